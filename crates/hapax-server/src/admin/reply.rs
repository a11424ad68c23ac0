//! What every answer of the admin listener has in common: never cached, never sniffed.
//!
//! Refusals are problem documents (RFC 9457) like everywhere in hapax, of the generic type: what they say is all there is
//! to say.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS};
use http::{Response, StatusCode};
use http_body_util::Full;

use super::access::Closed;

pub(super) const JSON: &str = "application/json";
const PROBLEM: &str = "application/problem+json";

pub(super) type Answer = Response<Full<Bytes>>;

/// An answer with that body.
pub(super) fn respond(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// A refusal: one cause, one next step.
pub(super) fn problem(status: StatusCode, detail: &str) -> Answer {
    problem_of_kind(status, None, detail)
}

/// The same, with a word that tells programs apart what a status does not.
pub(super) fn problem_of_kind(status: StatusCode, kind: Option<&'static str>, detail: &str) -> Answer {
    let title = status.canonical_reason().unwrap_or_default();
    let mut body =
        serde_json::json!({ "type": "about:blank", "title": title, "status": status.as_u16(), "detail": detail });
    if let (Some(kind), Some(members)) = (kind, body.as_object_mut()) {
        members.insert("kind".to_owned(), kind.into());
    }
    respond(status, PROBLEM, body.to_string())
}

/// Says why it stays closed.
pub(super) fn refuse(closed: Closed) -> Answer {
    let mut refusal = problem_of_kind(closed.status(), Some("forbidden"), closed.detail());
    if closed.status() == StatusCode::UNAUTHORIZED {
        refusal.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    refusal
}
