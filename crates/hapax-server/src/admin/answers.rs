//! One request of an operator, one response.
//!
//! Here is what every prober and scraper asks for; all under `/v1` is the API's (`api`).

use std::fmt::Write as _;

use bytes::Bytes;
use http::header::{ALLOW, HeaderValue};
use http::{Method, Request, StatusCode};
use http_body::Body;

use super::readiness::{self, Check, Readiness};
use super::reply::{Answer, JSON, problem, refuse, respond};
use super::{Here, State, api, guard};
use crate::abuse::callers;
use crate::desk::Desk;

const TEXT: &str = "text/plain; charset=utf-8";
/// The version names the text format of Prometheus.
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Answers one request.
pub(super) async fn answer<B, R, D>(request: Request<B>, state: &State<R, D>, here: &Here) -> Answer
where
    B: Body<Data = Bytes> + Send,
    R: Readiness,
    D: Desk,
{
    if here.loopback && !guard::is_meant(&request, &state.hosts) {
        let detail = "The Host field names somebody else. Use an IP address or localhost, or configure the name.";
        return problem(StatusCode::MISDIRECTED_REQUEST, detail);
    }
    let path = request.uri().path();
    if path == "/v1" || path.starts_with("/v1/") {
        return api::answer(request, &state.desk, &state.access.load(), here).await;
    }
    if !matches!(path, "/livez" | "/healthz" | "/readyz" | "/metrics" | "/callers") {
        return problem(StatusCode::NOT_FOUND, "There are /livez, /readyz, /metrics, /callers and /v1/openapi.json.");
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut refusal = problem(StatusCode::METHOD_NOT_ALLOWED, "This only tells. Use GET or HEAD.");
        refusal.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refusal;
    }
    match path {
        "/readyz" => {
            // A prober's answer must not hang on a token, so without one only the details are left out.
            let may_see = here.loopback || state.access.load().admit(request.headers(), here.loopback).is_ok();
            readyz(&readiness::ask(&state.readiness).await, may_see && has_flag(&request, "verbose"))
        }
        "/metrics" => respond(StatusCode::OK, METRICS, state.metrics.render()),
        "/callers" => match state.access.load().admit(request.headers(), here.loopback) {
            Ok(_) => callers(&request, &state.callers),
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

fn callers<B>(request: &Request<B>, callers: &callers::Callers) -> Answer {
    let n = match value(request, "n").map(str::parse) {
        None => callers::SHOWN,
        Some(Ok(n)) if n <= callers::TRACKED => n,
        Some(_) => return problem(StatusCode::BAD_REQUEST, "`n` must be a number of at most 1000."),
    };
    let body = serde_json::json!({ "callers": callers.top(n) });
    respond(StatusCode::OK, JSON, body.to_string())
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
