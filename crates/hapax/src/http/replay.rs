//! From a record to the answer that a retry gets: status, fields and body as they were recorded, and marked as a replay.

use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use hapax_core::record::{Body, Outcome};
use hapax_core::store::Seen;
use http::header::{HeaderName, HeaderValue};
use http::{Response, StatusCode};

use crate::http::refusal::say_should_retry;

/// Says that an answer comes from the record.
pub const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// Says until when the record is kept.
pub const IDEMPOTENCY_EXPIRES: HeaderName = HeaderName::from_static("idempotency-expires");

/// The recorded answer. `None` where its body was not kept, or nothing was recorded.
pub(crate) fn response(seen: &Seen) -> Option<Response<Bytes>> {
    let stored = seen.stored.as_ref()?;
    let outcome: &Outcome = stored.record.outcome.as_deref()?;
    let Body::Kept(body) = &outcome.body else { return None };
    let mut response = Response::new(Bytes::copy_from_slice(body));
    *response.status_mut() = StatusCode::from_u16(outcome.status).ok()?;
    let headers = response.headers_mut();
    for (name, value) in &outcome.headers {
        headers.append(HeaderName::from_bytes(name).ok()?, HeaderValue::from_bytes(value).ok()?);
    }
    headers.insert(IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"));
    let expires = stored.expires_at().and_then(|at| UNIX_EPOCH.checked_add(Duration::from_millis(at.as_ms())));
    if let Some(value) = expires.and_then(|at| HeaderValue::from_str(&httpdate::fmt_http_date(at)).ok()) {
        headers.insert(IDEMPOTENCY_EXPIRES, value);
    }
    if outcome.status >= 500 {
        say_should_retry(headers, false);
    }
    Some(response)
}
