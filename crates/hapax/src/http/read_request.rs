//! Reading a request: its body, within a limit, and what of it is compared.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use hapax_core::fingerprint::Request as Compared;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue, IF_MATCH};
use http::request::Parts;
use http_body::Body;
use http_body_util::{BodyExt, LengthLimitError, Limited};

use crate::http::refusal::{Problem, Refusal};
use crate::http::route::{RequestAge, millis};

/// What is read of a refused request's body, so that its connection stays usable. More than that, and it is closed.
const DRAIN_BYTES_MAX: usize = 256 * 1024;

/// How long a refused request's body may take. Its client is waiting for the refusal.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(1);

/// In the chain of causes of a body's error: its sender made no progress for too long. The client then gets 408.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its sender made no progress for too long")]
pub struct BodyTimedOut;

/// The whole body.
pub(crate) async fn body<B>(parts: &Parts, body: B, bytes_max: usize) -> Result<Bytes, Refusal>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    if body.is_end_stream() {
        return Ok(Bytes::new());
    }
    if body.size_hint().lower() > bytes_max as u64 {
        drain(parts, body).await;
        return Err(too_large(bytes_max));
    }
    match Limited::new(body, bytes_max).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(too_large(bytes_max)),
        Err(error) if timed_out(&*error) => Err(Refusal::new(
            Problem::BodyIncomplete,
            "the body made no progress for too long; nothing was run; send the request again",
        )
        .with_status(http::StatusCode::REQUEST_TIMEOUT)),
        Err(_) => Err(Refusal::new(
            Problem::BodyIncomplete,
            "the body ended before it was complete; nothing was run; send the request again",
        )),
    }
}

/// Whether a body failed because its sender was too slow.
fn timed_out(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut chain = std::iter::successors(Some(error), |error| error.source());
    chain.any(<dyn std::error::Error>::is::<BodyTimedOut>)
}

fn too_large(bytes_max: usize) -> Refusal {
    Refusal::new(
        Problem::BodyTooLarge,
        format!("the body is larger than the {bytes_max} bytes this route accepts; nothing was run; send less"),
    )
}

/// Reads and forgets what is left of a refused request, within reason. One that waits for `100 Continue` has sent nothing.
pub(crate) async fn drain<B: Body>(parts: &Parts, body: B) {
    if body.is_end_stream() || parts.headers.contains_key(EXPECT) {
        return;
    }
    let mut body = std::pin::pin!(body);
    let reading = async {
        let mut read = 0;
        while let Some(Ok(frame)) = body.frame().await {
            read += frame.data_ref().map_or(0, bytes::Buf::remaining);
            if read > DRAIN_BYTES_MAX {
                break;
            }
        }
    };
    // What takes longer is left to the server, which closes the connection.
    let _ = tokio::time::timeout(DRAIN_TIME_MAX, reading).await;
}

/// Refuses a request that was made too long ago, by a field that somebody trusted has set.
pub(crate) fn check_age(headers: &HeaderMap, age: &RequestAge, now_ms: u64) -> Result<(), Refusal> {
    let refuse = |detail: String| Err(Refusal::new(Problem::RequestTooOld, detail));
    let name = age.header.as_str();
    let Some(text) = headers.get(&age.header).and_then(|value| value.to_str().ok()) else {
        return refuse(format!("the field `{name}` that says when the request was made is missing; send it"));
    };
    match moment_ms(text.trim()) {
        None => refuse(format!("the field `{name}` is no time; send seconds since 1970 or an HTTP date")),
        Some(made_ms) if now_ms.abs_diff(made_ms) > millis(age.age_max) => {
            refuse(format!("by `{name}` the request was made too long ago or in the future; make a new one"))
        }
        Some(_) => Ok(()),
    }
}

/// Seconds, milliseconds (from the year 2001 on they have 13 digits), or an HTTP date.
fn moment_ms(text: &str) -> Option<u64> {
    match text.parse::<u64>() {
        Ok(ms) if ms >= 1_000_000_000_000 => Some(ms),
        Ok(seconds) => seconds.checked_mul(1000),
        Err(_) => {
            let at = httpdate::parse_http_date(text).ok()?;
            u64::try_from(at.duration_since(std::time::UNIX_EPOCH).ok()?.as_millis()).ok()
        }
    }
}

/// The fields of a request that can be compared.
pub(crate) struct Fields<'a> {
    /// Those that a recipe may name.
    all: Vec<(&'a str, &'a [u8])>,
    content_type: Option<Cow<'a, [u8]>>,
    content_encoding: Option<Cow<'a, [u8]>>,
    if_match: Option<Cow<'a, [u8]>>,
}

/// Reads them, the lines of each joined.
pub(crate) fn fields(parts: &Parts) -> Fields<'_> {
    let headers = &parts.headers;
    Fields {
        all: headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect(),
        content_type: joined(headers, &CONTENT_TYPE),
        content_encoding: joined(headers, &CONTENT_ENCODING),
        if_match: joined(headers, &IF_MATCH),
    }
}

/// A field's lines as one list: whoever is behind may act on the second line, so that it counts like the first.
fn joined<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<Cow<'a, [u8]>> {
    let mut lines = headers.get_all(name).iter().map(HeaderValue::as_bytes);
    let mut list = Cow::Borrowed(lines.next()?);
    for line in lines {
        list.to_mut().extend_from_slice(b", ");
        list.to_mut().extend_from_slice(line);
    }
    Some(list)
}

/// What of the request can be compared.
pub(crate) fn compared<'a>(parts: &'a Parts, method: &'a str, fields: &'a Fields<'a>, body: &'a [u8]) -> Compared<'a> {
    let host = parts.headers.get(HOST).and_then(|value| value.to_str().ok());
    Compared {
        authority: parts.uri.authority().map(http::uri::Authority::as_str).or(host).unwrap_or_default(),
        query: parts.uri.query(),
        content_type: fields.content_type.as_deref(),
        content_encoding: fields.content_encoding.as_deref(),
        if_match: fields.if_match.as_deref(),
        headers: &fields.all,
        ..Compared::new(method, parts.uri.path(), body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_a_field_is_compared() {
        let request = http::Request::post("/").header("if-match", "\"1\"").header("if-match", "\"2\"");
        let (parts, ()) = request.header("content-type", "text/plain").body(()).unwrap().into_parts();
        let fields = fields(&parts);
        let compared = compared(&parts, "POST", &fields, b"");
        assert_eq!(compared.if_match, Some(b"\"1\", \"2\"".as_slice()));
        assert_eq!((compared.content_type, compared.content_encoding), (Some(b"text/plain".as_slice()), None));
    }

    #[test]
    fn a_request_that_is_too_old_is_refused() {
        let header = HeaderName::from_static("x-made-at");
        let age = RequestAge { header: header.clone(), age_max: Duration::from_secs(10) };
        let check = |text: &str| {
            let headers = HeaderMap::from_iter([(header.clone(), text.parse().unwrap())]);
            check_age(&headers, &age, 1_700_000_000_000).map_err(|refusal| refusal.detail)
        };
        assert_eq!(check("1700000000"), Ok(()));
        assert_eq!(check("1700000009999"), Ok(()));
        assert_eq!(check("Tue, 14 Nov 2023 22:13:20 GMT"), Ok(()));
        assert!(check("1699999989").unwrap_err().contains("too long ago"));
        assert!(check("1700000011").unwrap_err().contains("in the future"));
        for bad in ["NaN", "-1", "18446744073709551616", ""] {
            assert!(check(bad).unwrap_err().contains("is no time"), "{bad}");
        }
        assert!(check_age(&HeaderMap::new(), &age, 0).unwrap_err().detail.contains("missing"));
    }
}
