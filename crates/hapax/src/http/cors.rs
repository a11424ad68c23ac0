//! Cross-origin fields on answers that do not come from the service behind: refusals and replays. They are the
//! configuration's; what the service said of them to an earlier caller does not count for this one, except what may be read.
//!
//! Without them a browser would hide a 409 from the page that has to act on it. Preflights (OPTIONS) pass through.

use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, HeaderMap,
    HeaderName, HeaderValue, LOCATION, RETRY_AFTER, VARY, WWW_AUTHENTICATE,
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
        let expose = vec![IDEMPOTENT_REPLAYED, IDEMPOTENCY_EXPIRES, RETRY_AFTER, LOCATION, WWW_AUTHENTICATE];
        Self { origins: Vec::new(), credentials: false, expose }
    }
}

impl Cors {
    /// Adds the fields to an answer for a request from that origin, in place of those that were recorded for another one.
    pub(crate) fn apply(&self, origin: Option<&HeaderValue>, answer: &mut HeaderMap) {
        answer.remove(ACCESS_CONTROL_ALLOW_ORIGIN);
        answer.remove(ACCESS_CONTROL_ALLOW_CREDENTIALS);
        let Some(origin) = origin else { return };
        let any = self.origins.iter().any(|allowed| allowed == "*");
        if !any && !self.origins.iter().any(|allowed| allowed.as_bytes() == origin.as_bytes()) {
            return;
        }
        let shown = if any && !self.credentials { HeaderValue::from_static("*") } else { origin.clone() };
        answer.insert(ACCESS_CONTROL_ALLOW_ORIGIN, shown);
        answer.append(VARY, HeaderValue::from_static("Origin"));
        if let Some(names) = self.exposed(answer) {
            answer.insert(ACCESS_CONTROL_EXPOSE_HEADERS, names);
        }
        if self.credentials && !any {
            answer.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
        }
    }

    /// What the service lets a page read, and what is configured, each once.
    fn exposed(&self, answer: &HeaderMap) -> Option<HeaderValue> {
        let lines = answer.get_all(ACCESS_CONTROL_EXPOSE_HEADERS).iter().filter_map(|line| line.to_str().ok());
        let said = lines.flat_map(|line| line.split(',')).map(str::trim).filter(|name| !name.is_empty());
        let mut names: Vec<&str> = Vec::new();
        for name in said.chain(self.expose.iter().map(HeaderName::as_str)) {
            if !names.iter().any(|known| known.eq_ignore_ascii_case(name)) {
                names.push(name);
            }
        }
        if names.is_empty() { None } else { HeaderValue::from_str(&names.join(", ")).ok() }
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
            cors.apply(Some(&"https://a.example".parse().unwrap()), &mut answer);
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
            cors.apply(Some(&origin.parse().unwrap()), &mut answer);
            answer.get(ACCESS_CONTROL_ALLOW_ORIGIN).map(|value| value.to_str().unwrap().to_owned())
        };
        assert_eq!(fields("https://shop.example").as_deref(), Some("https://shop.example"));
        assert_eq!(fields("https://shop.example.evil"), None, "and the recorded origin of another caller is gone");
    }

    #[test]
    fn what_was_recorded_for_another_caller_is_not_mixed_with_what_is_configured() {
        let recorded = || {
            HeaderMap::from_iter([
                (ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("https://old.example")),
                (ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true")),
                (ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("X-Total, Location,")),
            ])
        };
        let applied = |credentials: bool, origin: Option<&'static str>| {
            let cors = Cors { origins: vec!["https://shop.example".into()], credentials, ..Cors::default() };
            let mut answer = recorded();
            answer.append(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("x-page"));
            cors.apply(origin.map(HeaderValue::from_static).as_ref(), &mut answer);
            let field = |name| answer.get(name).map(|value: &HeaderValue| value.to_str().unwrap().to_owned());
            let exposed = answer.get_all(ACCESS_CONTROL_EXPOSE_HEADERS).iter().count();
            let allowed = (field(ACCESS_CONTROL_ALLOW_ORIGIN), field(ACCESS_CONTROL_ALLOW_CREDENTIALS));
            (allowed, field(ACCESS_CONTROL_EXPOSE_HEADERS).filter(|_| exposed == 1))
        };
        let merged =
            "X-Total, Location, x-page, idempotent-replayed, idempotency-expires, retry-after, www-authenticate";
        let shop = Some("https://shop.example".to_owned());
        assert_eq!(applied(false, Some("https://shop.example")), ((shop.clone(), None), Some(merged.into())));
        assert_eq!(applied(true, Some("https://shop.example")), ((shop, Some("true".into())), Some(merged.into())));
        for nobody in [None, Some("https://old.example")] {
            assert_eq!(applied(true, nobody).0, (None, None), "{nobody:?}");
        }
    }
}
