//! Cross-origin fields on answers that do not come from the service behind: refusals and replays.
//!
//! Without them a browser would hide a 409 from the page that has to act on it. Preflights (OPTIONS) pass through.

use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, HeaderMap,
    HeaderValue, ORIGIN, VARY,
};

/// Who may read answers in a browser.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cors {
    /// Origins such as `https://shop.example`; `*` for any.
    pub origins: Vec<String>,
    /// Whether answers to requests with cookies may be read. Not with `*`.
    pub credentials: bool,
}

const EXPOSED: &str = "Idempotent-Replayed, Idempotency-Expires, Retry-After, Location";

impl Cors {
    /// Adds the fields to an answer for a request with those fields.
    pub(crate) fn apply(&self, request: &HeaderMap, answer: &mut HeaderMap) {
        answer.remove(ACCESS_CONTROL_ALLOW_ORIGIN);
        let Some(origin) = request.get(ORIGIN) else { return };
        let any = self.origins.iter().any(|allowed| allowed == "*");
        if !any && !self.origins.iter().any(|allowed| allowed.as_bytes() == origin.as_bytes()) {
            return;
        }
        let shown = if any && !self.credentials { HeaderValue::from_static("*") } else { origin.clone() };
        answer.insert(ACCESS_CONTROL_ALLOW_ORIGIN, shown);
        answer.append(VARY, HeaderValue::from_static("Origin"));
        answer.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
        if self.credentials && !any {
            answer.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_allowed_origins_may_read() {
        let cors = Cors { origins: vec!["https://shop.example".into()], credentials: true };
        let fields = |origin: &str| {
            let mut answer =
                HeaderMap::from_iter([(ACCESS_CONTROL_ALLOW_ORIGIN, "https://old.example".parse().unwrap())]);
            cors.apply(&HeaderMap::from_iter([(ORIGIN, origin.parse().unwrap())]), &mut answer);
            answer.get(ACCESS_CONTROL_ALLOW_ORIGIN).map(|value| value.to_str().unwrap().to_owned())
        };
        assert_eq!(fields("https://shop.example").as_deref(), Some("https://shop.example"));
        assert_eq!(fields("https://shop.example.evil"), None, "and the recorded origin of another caller is gone");
    }
}
