//! One request of an operator, one response.
//!
//! Refusals are problem documents (RFC 9457) like everywhere in hapax, of the generic type: what they say is all there is
//! to say.

use std::fmt::Write as _;

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;

use super::State;
use super::guard::{self, Closed};
use super::readiness::{self, Check, Readiness};
use crate::abuse::callers;

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";
const PROBLEM: &str = "application/problem+json";
/// The version names the text format of Prometheus.
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

type Answer = Response<Full<Bytes>>;

/// Answers one request; `loopback` says that only this machine can reach the listener.
pub(super) async fn answer<B, R: Readiness>(request: &Request<B>, state: &State<R>, loopback: bool) -> Answer {
    if loopback && !guard::is_meant(request, &state.hosts) {
        let detail = "The Host field names somebody else. Use an IP address or localhost, or configure the name.";
        return problem(StatusCode::MISDIRECTED_REQUEST, detail);
    }
    let path = request.uri().path();
    if !matches!(path, "/livez" | "/healthz" | "/readyz" | "/metrics" | "/callers") {
        return problem(StatusCode::NOT_FOUND, "There are /livez, /readyz, /metrics and /callers.");
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut refusal = problem(StatusCode::METHOD_NOT_ALLOWED, "This listener only tells. Use GET or HEAD.");
        refusal.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refusal;
    }
    match path {
        "/readyz" => readyz(&readiness::ask(&state.readiness).await, has_flag(request, "verbose")),
        "/metrics" => respond(StatusCode::OK, METRICS, state.metrics.render()),
        "/callers" => match guard::admit(request.headers(), state.token.as_ref(), loopback) {
            Ok(()) => callers(request, state),
            Err(closed) => refuse(closed),
        },
        _ => respond(StatusCode::OK, TEXT, "alive\n"),
    }
}

fn readyz(checks: &[Check], verbose: bool) -> Answer {
    let failed: Vec<&str> = checks.iter().filter(|check| !check.ok).map(|check| check.name).collect();
    let status = if failed.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let mut text = String::new();
    for check in checks.iter().filter(|_| verbose) {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "[{}] {}: {}", if check.ok { '+' } else { '-' }, check.name, one_line(&check.detail));
    }
    text.push_str(if failed.is_empty() { "ready" } else { "not ready: " });
    text.push_str(&failed.join(", "));
    text.push('\n');
    respond(status, TEXT, text)
}

/// A driver's message may have several lines; a check has one.
fn one_line(text: &str) -> String {
    crate::logs::escaped(text).into_owned()
}

fn callers<B, R>(request: &Request<B>, state: &State<R>) -> Answer {
    let n = match value(request, "n").map(str::parse) {
        None => callers::SHOWN,
        Some(Ok(n)) if n <= callers::TRACKED => n,
        Some(_) => return problem(StatusCode::BAD_REQUEST, "`n` must be a number of at most 1000."),
    };
    let body = serde_json::json!({ "callers": state.callers.top(n) });
    respond(StatusCode::OK, JSON, body.to_string())
}

fn refuse(closed: Closed) -> Answer {
    match closed {
        Closed::Everywhere => {
            let detail = "Other machines can reach this listener, so this needs a token. Configure one.";
            problem(StatusCode::FORBIDDEN, detail)
        }
        Closed::Token => {
            let detail = "The token is missing or wrong. Send Authorization: Bearer and the configured token.";
            let mut refusal = problem(StatusCode::UNAUTHORIZED, detail);
            refusal.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            refusal
        }
    }
}

/// The parameters of the query; nothing here needs percent-decoding.
fn parameters<B>(request: &Request<B>) -> impl Iterator<Item = (&str, &str)> {
    let query = request.uri().query().unwrap_or_default();
    query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

fn has_flag<B>(request: &Request<B>, name: &str) -> bool {
    parameters(request).any(|(given, value)| given == name && !matches!(value, "0" | "false"))
}

fn value<'r, B>(request: &'r Request<B>, name: &str) -> Option<&'r str> {
    parameters(request).find(|(given, _)| *given == name).map(|(_, value)| value)
}

fn problem(status: StatusCode, detail: &str) -> Answer {
    let title = status.canonical_reason().unwrap_or_default();
    let body =
        serde_json::json!({ "type": "about:blank", "title": title, "status": status.as_u16(), "detail": detail });
    respond(status, PROBLEM, body.to_string())
}

fn respond(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
