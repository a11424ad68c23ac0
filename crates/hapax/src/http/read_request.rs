//! Reading a request: its body, within a limit, and what of it is compared.

use std::borrow::Cow;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hapax_core::fingerprint::Request as Compared;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue, IF_MATCH};
use http::request::Parts;
use http_body::Body;
use http_body_util::BodyExt;

use crate::clock;
use crate::http::budget::{Budget, Full, Share, Use};
use crate::http::gathered::Gathered;
use crate::http::path::{compared_path, uri_that_counts};
use crate::http::refusal::{Problem, Refusal};
use crate::http::route::{RequestAge, millis};

/// What is read of a refused request's body, so that its connection stays usable. More than that, and it is closed.
const DRAIN_BYTES_MAX: usize = 256 * 1024;

/// How long a refused request's body may take. Its client is waiting for the refusal.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(1);

/// In the chain of causes of a body's error: its sender made too little progress for too long. The client then gets 408.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its sender made too little progress for too long")]
pub struct BodyTimedOut;

/// In the chain of causes of a body's error: its chunks or trailers are malformed. The client then gets `bad-framing`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its framing is malformed")]
pub struct BodyMalformed;

/// What of a head counts: names, values and what keeps them apart in memory, roughly.
const FIELD_BYTES: usize = 32;

/// A head that takes less is what every request has.
const HEAD_BYTES_FREE: usize = 4 * 1024;

/// Holds memory for a head, where that is larger than usual: it stays for as long as its request does.
pub(crate) fn hold_head<B>(budget: &Arc<Budget>, request: &http::Request<B>) -> Result<Option<Share>, Full> {
    let field = |(name, value): (&HeaderName, &HeaderValue)| name.as_str().len() + value.len() + FIELD_BYTES;
    let target = request.uri().path().len() + request.uri().query().map_or(0, str::len);
    let bytes = target + request.headers().iter().map(field).sum::<usize>();
    if bytes <= HEAD_BYTES_FREE {
        return Ok(None);
    }
    let mut share = budget.share(request.extensions().get());
    share.hold(bytes, Use::Request).map(|()| Some(share))
}

/// Refuses a request for which there is no memory. Nothing more is read of it.
pub(crate) fn no_memory<B: Body>(body: &B) -> Refusal {
    Refusal::memory_full("it takes no further request of this size").with_body_read(body.is_end_stream())
}

/// The whole body. Memory for it is taken as it comes, and given back when the last part of it is dropped.
pub(crate) async fn body<B>(parts: &Parts, body: B, bytes_max: usize, share: Share) -> Result<Bytes, Refusal>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    if body.is_end_stream() {
        return Ok(Bytes::new());
    }
    if body.size_hint().lower() > bytes_max as u64 {
        return Err(after_body(too_large(bytes_max), parts, body).await);
    }
    let expected = body.size_hint().exact().and_then(|bytes| usize::try_from(bytes).ok());
    let Ok(mut read) = Gathered::new(share, Use::Request, expected) else {
        return Err(no_memory(&body));
    };
    let mut body = std::pin::pin!(body);
    while let Some(frame) = body.frame().await {
        // What follows the body is not passed on.
        let frame = frame.map_err(|error| broken(&*error.into()).with_body_read(false))?;
        let Ok(bytes) = frame.into_data() else { continue };
        if bytes.len() > bytes_max - read.length() {
            return Err(after_body(too_large(bytes_max), parts, body).await);
        }
        let is_all = body.is_end_stream();
        if read.push(&bytes, is_all).is_err() {
            return Err(no_memory(&*body));
        }
    }
    let (whole, share) = read.into_whole();
    Ok(if whole.is_empty() { whole } else { share.around(whole) })
}

fn broken(error: &(dyn Error + 'static)) -> Refusal {
    if causes(error).any(<dyn Error>::is::<BodyTimedOut>) {
        let detail = "the body made too little progress for too long; nothing was run; send the request again";
        return Refusal::new(Problem::BodyIncomplete, detail).with_status(http::StatusCode::REQUEST_TIMEOUT);
    }
    if is_malformed(error) {
        let detail = "the body's chunks or trailers are malformed; nothing was run; send a well-formed request";
        return Refusal::new(Problem::BadFraming, detail);
    }
    let detail = "the body ended before it was complete; nothing was run; send the request again";
    Refusal::new(Problem::BodyIncomplete, detail)
}

fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error| (*error).source())
}

/// hyper tells malformed chunks from a broken connection by the kind of the error below its own.
fn is_malformed(error: &(dyn Error + 'static)) -> bool {
    use std::io::ErrorKind::{InvalidData, InvalidInput};
    causes(error).any(|cause| {
        let kind = cause.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
        cause.is::<BodyMalformed>() || matches!(kind, Some(InvalidData | InvalidInput))
    })
}

fn too_large(bytes_max: usize) -> Refusal {
    Refusal::new(
        Problem::BodyTooLarge,
        format!("the body is larger than the {bytes_max} bytes this route accepts; nothing was run; send less"),
    )
}

/// The refusal of a request before whose end it is known. It says whether the connection is of use afterwards.
pub(crate) async fn after_body<B: Body>(refusal: Refusal, parts: &Parts, body: B) -> Refusal {
    let read = drain(parts, body).await;
    refusal.with_body_read(read)
}

/// Reads and forgets what is left of a refused request, within reason; tells whether its end was reached. One that waits for
/// `100 Continue` has sent nothing.
async fn drain<B: Body>(parts: &Parts, body: B) -> bool {
    if body.is_end_stream() {
        return true;
    }
    if parts.headers.contains_key(EXPECT) {
        return false;
    }
    let mut body = std::pin::pin!(body);
    let reading = async {
        let mut read = 0;
        while let Some(frame) = body.frame().await {
            let Ok(frame) = frame else { return false };
            read += frame.data_ref().map_or(0, bytes::Buf::remaining);
            if read > DRAIN_BYTES_MAX {
                return false;
            }
        }
        true
    };
    // What takes longer is left to the server, which closes the connection.
    tokio::time::timeout(DRAIN_TIME_MAX, reading).await.unwrap_or(false)
}

/// Refuses a request that was made too long ago, by a field that somebody trusted has set.
pub(crate) fn check_age(headers: &HeaderMap, age: &RequestAge, now_ms: u64) -> Result<(), Refusal> {
    let refuse = |detail: String| Err(Refusal::new(Problem::RequestTooOld, detail));
    let name = age.header.as_str();
    let mut lines = headers.get_all(&age.header).iter();
    let Some(line) = lines.next() else {
        return refuse(format!("the field `{name}` that says when the request was made is missing; send it"));
    };
    // Whoever trusts the field next may take the other line: the client's own, beside that of the gateway.
    if lines.next().is_some() {
        return refuse(format!("the field `{name}` came more than once; send it once"));
    }
    match line.to_str().ok().and_then(|text| moment_ms(text.trim())) {
        None => refuse(format!("the field `{name}` is no time; send seconds since 1970 or an HTTP date")),
        Some(made_ms) if !clock::is_recent(made_ms, now_ms, millis(age.age_max)) => {
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
    authority: Cow<'a, str>,
    /// The path, and what else a field calls the path.
    path: Cow<'a, str>,
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
        authority: authority(parts),
        path: compared_path(uri_that_counts(&parts.uri, &parts.extensions).path(), headers),
        all: headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect(),
        content_type: joined(headers, &CONTENT_TYPE),
        content_encoding: joined(headers, &CONTENT_ENCODING),
        if_match: joined(headers, &IF_MATCH),
    }
}

/// The field that tells by which scheme a request came to whoever took it first.
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Whom the request is for, in one spelling: case does not count, and a port does not where it is the scheme's own. Each
/// byte that is not ASCII is one character, so that other bytes are another authority.
fn authority(parts: &Parts) -> Cow<'_, str> {
    let uri = uri_that_counts(&parts.uri, &parts.extensions);
    let target = uri.authority().map(|authority| authority.as_str().as_bytes());
    let host = || parts.headers.get(HOST).map(HeaderValue::as_bytes);
    let given = target.or_else(host).unwrap_or_default();
    let given = without_port_of_scheme(given, parts);
    match std::str::from_utf8(given) {
        Ok(text) if given.iter().all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase()) => Cow::Borrowed(text),
        _ => Cow::Owned(given.iter().map(|byte| char::from(byte.to_ascii_lowercase())).collect()),
    }
}

/// Nobody but the caller itself is deceived by a false `X-Forwarded-Proto`: it would take two of its own requests for one.
fn without_port_of_scheme<'a>(given: &'a [u8], parts: &Parts) -> &'a [u8] {
    let (host, scheme) = match (given.strip_suffix(b":80"), given.strip_suffix(b":443")) {
        (Some(host), _) => (host, "http"),
        (None, Some(host)) => (host, "https"),
        (None, None) => return given,
    };
    let forwarded = || parts.headers.get(X_FORWARDED_PROTO).map(HeaderValue::as_bytes);
    let known = uri_that_counts(&parts.uri, &parts.extensions).scheme_str().map(str::as_bytes).or_else(forwarded);
    if known.is_some_and(|known| known.eq_ignore_ascii_case(scheme.as_bytes())) { host } else { given }
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
    let uri = uri_that_counts(&parts.uri, &parts.extensions);
    Compared {
        authority: &fields.authority,
        query: uri.query(),
        content_type: fields.content_type.as_deref(),
        content_encoding: fields.content_encoding.as_deref(),
        if_match: fields.if_match.as_deref(),
        headers: &fields.all,
        ..Compared::new(method, &fields.path, body)
    }
}

#[cfg(test)]
mod tests {
    use super::{fields as fields_of, *};
    use futures_util::{FutureExt, StreamExt};

    #[test]
    fn every_line_of_a_field_is_compared() {
        let request = http::Request::post("/").header("if-match", "\"1\"").header("if-match", "\"2\"");
        let (parts, ()) = request.header("content-type", "text/plain").body(()).unwrap().into_parts();
        let fields = fields(&parts);
        let compared = compared(&parts, "POST", &fields, b"");
        assert_eq!(compared.if_match, Some(b"\"1\", \"2\"".as_slice()));
        assert_eq!((compared.content_type, compared.content_encoding), (Some(b"text/plain".as_slice()), None));
    }

    /// The authority of a request to that target with those fields.
    fn authority_of(target: &str, fields: &[(&str, &[u8])]) -> String {
        let request = fields.iter().fold(http::Request::post(target), |request, (name, value)| {
            request.header(*name, HeaderValue::from_bytes(value).unwrap())
        });
        let (parts, ()) = request.body(()).unwrap().into_parts();
        compared(&parts, "POST", &fields_of(&parts), b"").authority.to_owned()
    }

    #[test]
    fn an_authority_has_one_spelling() {
        let host = |host: &'static str| authority_of("/", &[("host", host.as_bytes())]);
        assert_eq!(host("shop.example"), "shop.example");
        assert_eq!(host("SHOP.Example"), "shop.example");
        assert_eq!(authority_of("http://Shop.example/", &[("host", b"other")]), "shop.example");
        assert_eq!(authority_of("/", &[]), "");
    }

    #[test]
    fn authorities_that_are_no_text_differ() {
        let host = |host: &'static [u8]| authority_of("/", &[("host", host)]);
        assert_ne!(host(b"bank-a\xff"), host(b"bank-b\xff"));
        assert_ne!(host(b"bank\xff"), host(b"bank\xfe"));
        assert_ne!(host(b"bank\xff"), host("bank\u{ff}".as_bytes()));
        assert_ne!(host(b"bank\xff"), host(b"bank"));
    }

    #[test]
    fn a_port_counts_unless_it_is_that_of_the_known_scheme() {
        let by = |proto: &'static str, host: &'static str| {
            authority_of("/", &[("host", host.as_bytes()), ("x-forwarded-proto", proto.as_bytes())])
        };
        assert_eq!((by("http", "shop:80"), by("https", "[::1]:443")), ("shop".to_owned(), "[::1]".to_owned()));
        assert_eq!((by("http", "shop:443"), by("https", "shop:80")), ("shop:443".to_owned(), "shop:80".to_owned()));
        assert_eq!((by("http", "shop:8080"), by("http", "shop:180")), ("shop:8080".to_owned(), "shop:180".to_owned()));
        assert_eq!(authority_of("https://shop:443/", &[]), "shop");
        assert_eq!(authority_of("https://shop:80/", &[("x-forwarded-proto", b"http")]), "shop:80");
        assert_eq!(authority_of("/", &[("host", b"shop:80")]), "shop:80", "nobody knows the scheme");
    }

    type Piece = Result<http_body::Frame<Bytes>, Box<dyn Error + Send + Sync>>;

    /// Reads a body of at most 1,000 bytes.
    fn read(pieces: Vec<Piece>) -> Result<Bytes, Refusal> {
        let (parts, ()) = http::Request::new(()).into_parts();
        let pieces = http_body_util::StreamBody::new(futures_util::stream::iter(pieces));
        body(&parts, pieces, 1_000, Arc::<Budget>::default().share(None)).now_or_never().unwrap()
    }

    fn piece(bytes: &'static [u8]) -> Piece {
        Ok(http_body::Frame::data(Bytes::from_static(bytes)))
    }

    #[tokio::test]
    async fn a_body_is_read_whole_within_its_limit() {
        let bytes = |count: usize| (0..count).map(|_| piece(b"x")).collect();
        assert_eq!(read(bytes(1_000)).unwrap().len(), 1_000);
        assert_eq!(read(bytes(1_001)).unwrap_err().problem, Problem::BodyTooLarge);
        assert_eq!(read(vec![piece(&[b'x'; 1_001])]).unwrap_err().problem, Problem::BodyTooLarge);
        let trailers = Ok(http_body::Frame::trailers(HeaderMap::new()));
        assert_eq!(read(vec![piece(b"a"), piece(b""), piece(b"b"), trailers]).unwrap(), "ab");
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_says_whether_its_request_was_read_to_the_end() {
        let refused = |pieces: Vec<Piece>, stalls: bool, expects: bool| async move {
            let request = http::Request::post("/");
            let request = if expects { request.header(EXPECT, "100-continue") } else { request };
            let (parts, ()) = request.body(()).unwrap().into_parts();
            let rest = if stalls {
                futures_util::stream::pending().right_stream()
            } else {
                futures_util::stream::empty().left_stream()
            };
            let body = http_body_util::StreamBody::new(futures_util::stream::iter(pieces).chain(rest));
            let refusal = after_body(Refusal::new(Problem::KeyMissing, "no key"), &parts, body).await;
            refusal.into_response(None).extensions().get::<crate::http::BodyUnread>().is_none()
        };
        assert!(refused(vec![piece(b"a"), piece(b"b")], false, false).await);
        assert!(!refused(vec![piece(b"a")], true, false).await, "it stalls");
        assert!(!refused(vec![piece(b"a")], false, true).await, "it was not asked for");
        assert!(!refused(vec![Err(BodyMalformed.into())], false, false).await, "it is malformed");
        assert!(!refused(vec![piece(&[0; DRAIN_BYTES_MAX + 1])], false, false).await, "it is too long");
    }

    #[test]
    fn a_body_that_breaks_off_is_incomplete() {
        let cut = std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
        let refused = read(vec![piece(b"a"), Err(cut.into())]).unwrap_err();
        assert_eq!((refused.problem, refused.status.as_u16()), (Problem::BodyIncomplete, 400));
        let refused = read(vec![Err(BodyTimedOut.into())]).unwrap_err();
        assert_eq!((refused.problem, refused.status.as_u16()), (Problem::BodyIncomplete, 408));
    }

    #[test]
    fn a_body_whose_framing_is_malformed_is_not_to_be_sent_again() {
        for kind in [std::io::ErrorKind::InvalidData, std::io::ErrorKind::InvalidInput] {
            let refused = read(vec![piece(b"a"), Err(std::io::Error::from(kind).into())]).unwrap_err();
            assert_eq!((refused.problem, refused.status.as_u16()), (Problem::BadFraming, 400), "{kind}");
        }
        assert_eq!(read(vec![Err(BodyMalformed.into())]).unwrap_err().problem, Problem::BadFraming);
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
        assert_eq!(check("1700000060"), Ok(()), "a clock may be ahead");
        assert!(check("1700000061").unwrap_err().contains("in the future"));
        for bad in ["NaN", "-1", "18446744073709551616", ""] {
            assert!(check(bad).unwrap_err().contains("is no time"), "{bad}");
        }
        assert!(check_age(&HeaderMap::new(), &age, 0).unwrap_err().detail.contains("missing"));
        let twice =
            HeaderMap::from_iter(["1700000000", "1700000000"].map(|text| (header.clone(), text.parse().unwrap())));
        assert_eq!(twice.get_all(&header).iter().count(), 2);
        let refused = check_age(&twice, &age, 1_700_000_000_000).unwrap_err();
        assert_eq!(refused.problem, Problem::RequestTooOld);
        assert!(refused.detail.contains("more than once"));
    }
}
