//! What the body of a request says: JSON, within a limit and a time.

use std::pin::pin;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, StatusCode};
use http_body::Body;
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;

use super::refusal::Refusal;

/// An answer of one mebibyte in base64, and what stands around it.
pub(super) const BODY_BYTES_MAX: usize = 1024 * 1024 / 3 * 4 + 64 * 1024;

/// What is read of a body that is too large, so that its sender gets to see why it is refused.
const DRAINED_BYTES_MAX: usize = 8 * BODY_BYTES_MAX;

/// A body that takes longer is a sender that holds one of few turns.
const TIME_MAX: Duration = Duration::from_secs(10);

/// Reads a body of JSON.
pub(super) async fn read<T: DeserializeOwned>(
    headers: &HeaderMap,
    body: impl Body<Data = Bytes>,
) -> Result<T, Refusal> {
    if !is_json(headers) {
        let detail = "The body must be JSON. Send Content-Type: application/json.";
        return Err(Refusal::invalid_as(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail));
    }
    let late = |_| {
        let detail = format!("The body did not come within {} s. Send it at once.", TIME_MAX.as_secs());
        Refusal::invalid_as(StatusCode::REQUEST_TIMEOUT, detail)
    };
    let bytes = tokio::time::timeout(TIME_MAX, collect(body)).await.map_err(late)??;
    serde_json::from_slice(&bytes).map_err(|error| Refusal::invalid(format!("The body is not accepted: {error}.")))
}

fn is_json(headers: &HeaderMap) -> bool {
    let mut lines = headers.get_all(CONTENT_TYPE).iter();
    let (Some(line), None) = (lines.next(), lines.next()) else { return false };
    let kind = line.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default();
    kind.trim_ascii().eq_ignore_ascii_case(b"application/json")
}

async fn collect(body: impl Body<Data = Bytes>) -> Result<Bytes, Refusal> {
    let (mut body, mut kept, mut seen) = (pin!(body), BytesMut::new(), 0_usize);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Refusal::invalid("The body broke off. Send it again."))?;
        let Ok(data) = frame.into_data() else { continue };
        seen = seen.saturating_add(data.len());
        if seen <= BODY_BYTES_MAX {
            kept.extend_from_slice(&data);
        } else if seen > DRAINED_BYTES_MAX {
            break;
        }
    }
    if seen > BODY_BYTES_MAX {
        let detail = format!("The body has more than {BODY_BYTES_MAX} bytes. Record a shorter answer.");
        return Err(Refusal::invalid_as(StatusCode::PAYLOAD_TOO_LARGE, detail));
    }
    Ok(kept.freeze())
}

#[cfg(test)]
mod tests {
    use http_body_util::{Full, StreamBody};
    use serde_json::Value;

    use super::*;

    fn json() -> HeaderMap {
        [(CONTENT_TYPE, "Application/JSON; charset=utf-8".parse().unwrap())].into_iter().collect()
    }

    #[tokio::test]
    async fn a_body_is_read_up_to_the_limit_and_no_further() {
        let quoted = |bytes: usize| Full::new(Bytes::from(format!("\"{}\"", "x".repeat(bytes - 2))));
        assert!(read::<Value>(&json(), quoted(BODY_BYTES_MAX)).await.is_ok());
        assert_eq!(read::<Value>(&json(), quoted(BODY_BYTES_MAX + 1)).await.unwrap_err().status, 413);
    }

    #[tokio::test]
    async fn an_endless_body_is_not_read_to_its_end() {
        let chunk = || Ok::<_, std::io::Error>(http_body::Frame::data(Bytes::from(vec![b' '; 1024 * 1024])));
        let endless = StreamBody::new(futures_util::stream::repeat_with(chunk));
        assert_eq!(read::<Value>(&json(), endless).await.unwrap_err().status, 413);
    }

    #[tokio::test]
    async fn a_body_that_breaks_off_is_refused() {
        let broken = futures_util::stream::iter([Err(std::io::Error::other("reset"))]);
        assert_eq!(read::<Value>(&json(), StreamBody::new(broken)).await.unwrap_err().status, 400);
    }

    #[tokio::test]
    async fn other_types_are_refused_before_the_body_is_read() {
        let never =
            || StreamBody::new(futures_util::stream::pending::<Result<http_body::Frame<Bytes>, std::io::Error>>());
        let mut twice = json();
        twice.append(CONTENT_TYPE, "application/json".parse().unwrap());
        for headers in [HeaderMap::new(), twice] {
            assert_eq!(read::<Value>(&headers, never()).await.unwrap_err().status, 415);
        }
    }
}
