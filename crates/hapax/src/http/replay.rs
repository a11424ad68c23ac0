//! From a record to the answer that a retry gets: status, fields and body as they were recorded, and marked as a replay.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use hapax_core::clock::Timestamp;
use hapax_core::record::{Outcome, Stored, Version};
use hapax_core::store::Seen;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode};

use crate::http::budget::Full;
use crate::http::refusal::say_should_retry;
use crate::http::settle::{IDEMPOTENCY_ATTEMPT, IDEMPOTENCY_RECORD};

/// Says that an answer comes from the record.
pub const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// Says until when the record is kept.
pub const IDEMPOTENCY_EXPIRES: HeaderName = HeaderName::from_static("idempotency-expires");

/// Takes out of a service's own answer, or of its trailers, what only this layer says: a client goes by it. Everything else
/// stays in its order.
pub(crate) fn remove_marks(headers: &mut HeaderMap) {
    if !headers.keys().any(is_mark) {
        return;
    }
    let mut is_kept = false;
    let mut last = None;
    for (name, value) in std::mem::take(headers) {
        // Further lines of a field come without its name.
        if let Some(name) = name {
            is_kept = !is_mark(&name);
            last = Some(name);
        }
        if let Some(name) = last.as_ref().filter(|_| is_kept) {
            headers.append(name, value);
        }
    }
}

/// Whether only this layer says that: to clients, or to services.
pub(crate) fn is_mark(name: &HeaderName) -> bool {
    static MARKS: [HeaderName; 4] = [IDEMPOTENT_REPLAYED, IDEMPOTENCY_EXPIRES, IDEMPOTENCY_ATTEMPT, IDEMPOTENCY_RECORD];
    name.as_str().starts_with("idempoten") && MARKS.contains(name)
}

/// The recorded answer. `None` where its body was not kept, or nothing was recorded. `body` gives that of a version, if
/// there is memory for it.
pub(crate) fn response(
    seen: &Seen,
    body: impl FnOnce(Version, &Arc<Outcome>) -> Result<Option<Bytes>, Full>,
) -> Result<Option<Response<Bytes>>, Full> {
    let Some(stored) = &seen.stored else { return Ok(None) };
    let Some(outcome) = &stored.record.outcome else { return Ok(None) };
    let Some(body) = body(stored.record.version, outcome)? else { return Ok(None) };
    Ok(response_with(stored, outcome, body))
}

fn response_with(stored: &Stored, outcome: &Outcome, body: Bytes) -> Option<Response<Bytes>> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(outcome.status).ok()?;
    let headers = response.headers_mut();
    for (name, value) in &outcome.headers {
        headers.append(HeaderName::from_bytes(name).ok()?, HeaderValue::from_bytes(value).ok()?);
    }
    headers.insert(IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"));
    if let Some(value) = stored.expires_at().and_then(date) {
        headers.insert(IDEMPOTENCY_EXPIRES, value);
    }
    if outcome.status >= 500 {
        say_should_retry(headers, false);
    }
    Some(response)
}

/// `None` where the date has no such form: its years have four digits.
fn date(at: Timestamp) -> Option<HeaderValue> {
    const YEAR_10000_MS: u64 = 253_402_300_800_000;
    let at = Some(at.as_ms()).filter(|ms| *ms < YEAR_10000_MS)?;
    HeaderValue::from_str(&httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_millis(at))).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hapax_core::clock::Now;
    use hapax_core::fingerprint::{Fingerprint, Scheme};
    use hapax_core::record::{Body, Policy, Record, State};

    fn kept_for(ms: u64) -> Seen {
        let fingerprint = Fingerprint { scheme: Scheme::new("1;sha256").unwrap(), digest: [9; 32] };
        let new = Record::new(Version::from_bytes([1; 16]), State::Completed, fingerprint, Policy::default());
        let outcome = Some(Arc::new(Outcome { status: 201, headers: Vec::new(), body: Body::Kept(b"ok".to_vec()) }));
        let record = Record { attempt: 1, expires_in_ms: Some(ms), outcome, ..new };
        let at = Timestamp::from_ms(0);
        Seen { stored: Some(Stored { record, stamped_at: at }), now: Now { at, paused: false } }
    }

    #[test]
    fn an_answer_that_is_kept_beyond_the_year_9999_is_replayed_without_a_date() {
        let body = |_, _: &_| Ok(Some(Bytes::new()));
        let response = |ms: u64| response(&kept_for(ms), body).unwrap().unwrap();
        let expires = |ms: u64| response(ms).headers().get(IDEMPOTENCY_EXPIRES).cloned();
        assert_eq!(expires(0).unwrap(), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(expires(253_402_300_799_999).unwrap(), "Fri, 31 Dec 9999 23:59:59 GMT");
        assert_eq!((expires(253_402_300_800_000), expires(u64::MAX)), (None, None));
    }
}
