//! Cross-origin fields on answers that do not come from the service behind: refusals and replays.
//!
//! Without them a browser would hide a 409 from the page that has to act on it. Preflights (OPTIONS) pass through.

use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, HeaderMap,
    HeaderName, HeaderValue, LOCATION, ORIGIN, RETRY_AFTER, VARY,
};

use crate::http::replay::{IDEMPOTENCY_EXPIRES, IDEMPOTENT_REPLAYED};

/// Who may read answers in a browser.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cors {
    /// Origins such as `https://shop.example`; `*` for any.
    pub origins: Vec<String>,
    /// Whether answers to requests with cookies may be read. Not with `*`.
    pub credentials: bool,
    /// Fields that a page may read besides those that it always may.
    pub expose: Vec<HeaderName>,
}

/// Nobody may, and whoever is let in may read what this layer adds.
impl Default for Cors {
    fn default() -> Self {
        let expose = vec![IDEMPOTENT_REPLAYED, IDEMPOTENCY_EXPIRES, RETRY_AFTER, LOCATION];
        Self { origins: Vec::new(), credentials: false, expose }
    }
}

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
        let names: Vec<&str> = self.expose.iter().map(HeaderName::as_str).collect();
        if let Ok(names) = HeaderValue::from_str(&names.join(", "))
            && !names.is_empty()
        {
            answer.insert(ACCESS_CONTROL_EXPOSE_HEADERS, names);
        }
        if self.credentials && !any {
            answer.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_may_read_the_fields_that_are_named() {
        let exposed = |expose: Vec<HeaderName>| {
            let cors = Cors { origins: vec!["*".into()], credentials: false, expose };
            let mut answer = HeaderMap::new();
            cors.apply(&HeaderMap::from_iter([(ORIGIN, "https://a.example".parse().unwrap())]), &mut answer);
            answer.get(ACCESS_CONTROL_EXPOSE_HEADERS).map(|value| value.to_str().unwrap().to_owned())
        };
        assert_eq!(exposed(vec![LOCATION, RETRY_AFTER]).as_deref(), Some("location, retry-after"));
        assert_eq!(exposed(Vec::new()), None);
    }

    #[test]
    fn only_allowed_origins_may_read() {
        let cors = Cors { origins: vec!["https://shop.example".into()], credentials: true, ..Cors::default() };
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
