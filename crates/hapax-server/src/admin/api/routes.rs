//! Which paths and methods there are.
//!
//! `document` describes the same to programs; a test holds the two together.

use http::Method;

use super::refusal::Refusal;

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Document,
    Status,
    List,
    Show(String),
    Purge,
    Resolve,
    Audit,
}

impl Operation {
    /// Does it change anything?
    pub(super) fn changes(&self) -> bool {
        matches!(self, Self::Purge | Self::Resolve)
    }
}

/// Every path with its method. Those before win over those after.
pub(super) const ALL: &[(Method, &str)] = &[
    (Method::GET, "/v1/openapi.json"),
    (Method::GET, "/v1/status"),
    (Method::GET, "/v1/keys"),
    (Method::POST, "/v1/keys/purge"),
    (Method::GET, "/v1/keys/{id}"),
    (Method::POST, "/v1/resolutions"),
    (Method::GET, "/v1/audit"),
];

/// Finds what is asked for. Whoever may GET may also HEAD.
pub(super) fn find(method: &Method, path: &str) -> Result<Operation, Refusal> {
    let (only, template) = ALL.iter().find(|(_, template)| fits(template, path)).ok_or_else(Refusal::no_such_path)?;
    if !(method == only || (only == Method::GET && method == Method::HEAD)) {
        return Err(Refusal::other_method(if only == Method::GET { "GET, HEAD" } else { "POST" }));
    }
    match *template {
        "/v1/openapi.json" => Ok(Operation::Document),
        "/v1/status" => Ok(Operation::Status),
        "/v1/keys" => Ok(Operation::List),
        "/v1/keys/purge" => Ok(Operation::Purge),
        "/v1/resolutions" => Ok(Operation::Resolve),
        "/v1/audit" => Ok(Operation::Audit),
        _ => Ok(Operation::Show(path.rsplit('/').next().unwrap_or_default().to_owned())),
    }
}

/// An `{id}` is one segment that is not empty.
fn fits(template: &str, path: &str) -> bool {
    match template.strip_suffix("{id}") {
        None => template == path,
        Some(before) => path.strip_prefix(before).is_some_and(|id| !id.is_empty() && !id.contains('/')),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_found_by_its_method() {
        assert_eq!(find(&Method::GET, "/v1/keys").unwrap(), Operation::List);
        assert_eq!(find(&Method::HEAD, "/v1/keys/ab").unwrap(), Operation::Show("ab".to_owned()));
        assert_eq!(find(&Method::POST, "/v1/keys/purge").unwrap(), Operation::Purge);
        assert_eq!(find(&Method::GET, "/v1/keys/purge").unwrap_err().allow, Some("POST"));
        assert_eq!(find(&Method::DELETE, "/v1/keys/ab").unwrap_err().allow, Some("GET, HEAD"));
        for path in ["/v1", "/v1/", "/v1/keys/", "/v1/keys/a/b", "/v1/Keys", "/v1/keys//", "/v1/../livez"] {
            assert_eq!(find(&Method::GET, path).unwrap_err().status, 404, "{path}");
        }
    }
}
