//! Reading one value from the head of a request: from a header or from a cookie.
//!
//! Strictly one: where a field stands twice, whoever reads it next may take the other one. Values are compared
//! byte by byte, so nothing is trimmed, folded or normalised; a value with white space around it is refused, because an
//! HTTP/1.1 hop behind us would remove it and see another value than we did.

use http::header::{COOKIE, HeaderMap, HeaderName};

/// Where a secret stands that is not in `Authorization`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderOrCookie {
    /// In a header of its own. Names are compared without regard to case.
    Header(HeaderName),
    /// In a cookie. Names are compared byte by byte.
    Cookie(String),
}

impl HeaderOrCookie {
    /// How it is called in texts and schemes: `x-api-key`, `cookie:session`. No header has a colon in its name.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Header(name) => name.as_str().to_owned(),
            Self::Cookie(name) => format!("cookie:{name}"),
        }
    }

    pub(super) fn read<'a>(&self, headers: &'a HeaderMap) -> Result<&'a [u8], Unread> {
        match self {
            Self::Header(name) => one_header(headers, name),
            Self::Cookie(name) => one_cookie(headers, name),
        }
    }
}

/// Why there is no one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unread {
    Absent,
    Empty,
    Repeated,
    Padded,
}

impl Unread {
    /// Cause and next step, for a field of that name.
    pub(super) fn detail(self, name: &str) -> String {
        match self {
            Self::Absent => format!("the request has no `{name}`; send it"),
            Self::Empty => format!("`{name}` is empty; send a value"),
            Self::Repeated => format!("the request has `{name}` more than once; send it once"),
            Self::Padded => format!("the value of `{name}` has white space around it; remove it"),
        }
    }
}

pub(super) fn one_header<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<&'a [u8], Unread> {
    let mut lines = headers.get_all(name).iter();
    let value = lines.next().ok_or(Unread::Absent)?.as_bytes();
    if lines.next().is_some() { Err(Unread::Repeated) } else { checked(value) }
}

fn one_cookie<'a>(headers: &'a HeaderMap, name: &str) -> Result<&'a [u8], Unread> {
    // HTTP/2 may send every cookie on a line of its own, so several lines are nothing unusual.
    let pairs = headers.get_all(COOKIE).iter().flat_map(|line| line.as_bytes().split(|byte| *byte == b';'));
    let mut values = pairs.filter_map(|pair| {
        let pair = pair.trim_ascii();
        let equals = pair.iter().position(|byte| *byte == b'=')?;
        (pair[..equals].trim_ascii_end() == name.as_bytes()).then(|| pair[equals + 1..].trim_ascii_start())
    });
    let value = values.next().ok_or(Unread::Absent)?;
    if values.next().is_some() { Err(Unread::Repeated) } else { checked(value) }
}

fn checked(value: &[u8]) -> Result<&[u8], Unread> {
    match value.trim_ascii() {
        [] => Err(Unread::Empty),
        trimmed if trimmed.len() != value.len() => Err(Unread::Padded),
        _ => Ok(value),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn read(lines: &[&str], from: &HeaderOrCookie) -> Result<String, Unread> {
        let mut headers = HeaderMap::new();
        let name = if matches!(from, HeaderOrCookie::Cookie(_)) { "cookie" } else { "x-api-key" };
        for line in lines {
            headers.append(HeaderName::from_static(name), HeaderValue::from_str(line).unwrap());
        }
        from.read(&headers).map(|value| String::from_utf8(value.to_vec()).unwrap())
    }

    #[test]
    fn a_header_has_exactly_one_value_without_space_around_it() {
        let from = HeaderOrCookie::Header(HeaderName::from_static("x-api-key"));
        assert_eq!(read(&["k 1"], &from).unwrap(), "k 1");
        assert_eq!(read(&[], &from), Err(Unread::Absent));
        assert_eq!(read(&[""], &from), Err(Unread::Empty));
        assert_eq!(read(&[" \t"], &from), Err(Unread::Empty));
        assert_eq!(read(&["k", "k"], &from), Err(Unread::Repeated));
        assert_eq!(read(&[" k"], &from), Err(Unread::Padded));
        assert_eq!(read(&["k\t"], &from), Err(Unread::Padded));
    }

    #[test]
    fn a_cookie_is_found_on_any_line_and_only_once() {
        let from = HeaderOrCookie::Cookie("sid".into());
        assert_eq!(read(&["a=1; sid=s=1; b=2"], &from).unwrap(), "s=1");
        assert_eq!(read(&["a=1", "sid=s"], &from).unwrap(), "s");
        assert_eq!(read(&["sid=s; a=1; sid=t"], &from), Err(Unread::Repeated));
        assert_eq!(read(&["sid=s", "sid=s"], &from), Err(Unread::Repeated));
        assert_eq!(read(&["SID=s; xsid=t; sid"], &from), Err(Unread::Absent));
        assert_eq!(read(&["sid="], &from), Err(Unread::Empty));
    }
}
