//! From an answer to what is recorded of it.
//!
//! An answer is read whole before it is recorded, and recorded before anybody sees it. One that is too large, or a stream
//! without an end, is passed on and recorded at its end, as "not kept": a retry learns that it happened, and it never runs
//! again. See [`followed`](crate::http::followed). The same goes for one that finds no room in the memory budget: the effect
//! is recorded in any case.

use std::collections::VecDeque;
use std::pin::Pin;

use bytes::Bytes;
use hapax_core::canonical_json::{Pointer, raw_values};
use hapax_core::limits::{HEADER_BYTES_MAX, HEADER_COUNT_MAX, LABEL_BYTES_MAX, LABEL_COUNT_MAX};
use hapax_core::record::{Body as Recorded, Label, Labels, Outcome};
use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, SET_COOKIE};
use http::response::Parts;
use http_body::Body;
use http_body_util::BodyExt;

use crate::http::RequestId;
use crate::http::budget::{Share, Use};
use crate::http::gathered::Gathered;
use crate::http::path::uri_that_counts;
use crate::http::replay;
use crate::http::route::{LabelSource, Route};

/// What was read of an answer's body.
pub(crate) enum Captured<B> {
    /// All of it, and the memory that is held for it.
    Whole(Bytes, Option<HeaderMap>, Share),
    /// More than is kept, or a stream: what was read, and the rest.
    TooLarge(VecDeque<Bytes>, Pin<Box<B>>),
    /// It broke off.
    Broken,
}

/// Reads up to `bytes_max`, and no more than there is memory for: what finds none is treated as one that is too large.
pub(crate) async fn capture<B: Body<Data = Bytes>>(
    head: &Parts,
    body: B,
    bytes_max: usize,
    share: Share,
) -> Captured<B> {
    let mut body = Box::pin(body);
    let is_empty = body.is_end_stream() || body.size_hint().exact() == Some(0);
    if (is_stream(head) && !is_empty) || body.size_hint().lower() > bytes_max as u64 {
        return Captured::TooLarge(VecDeque::new(), body);
    }
    let expected = body.size_hint().exact().and_then(|bytes| usize::try_from(bytes).ok());
    let Ok(mut begun) = Gathered::new(share, Use::Response, expected) else {
        return Captured::TooLarge(VecDeque::new(), body);
    };
    let mut trailers = None;
    while let Some(frame) = body.as_mut().frame().await {
        let Ok(frame) = frame else { return Captured::Broken };
        match frame.into_data() {
            Ok(bytes) if begun.length() + bytes.len() > bytes_max || begun.push(&bytes, true).is_err() => {
                return Captured::TooLarge(passed_on(begun, bytes), body);
            }
            Ok(_) => {}
            Err(frame) => trailers = frame.into_trailers().ok().and_then(without_marks),
        }
    }
    let (whole, share) = begun.into_whole();
    Captured::Whole(whole, trailers, share)
}

/// Trailers of which nothing is left are none.
fn without_marks(mut trailers: HeaderMap) -> Option<HeaderMap> {
    replay::remove_marks(&mut trailers);
    Some(trailers).filter(|trailers| !trailers.is_empty())
}

/// What was read before it was known that not all of it can be. It counts until it is sent.
fn passed_on(begun: Gathered, next: Bytes) -> VecDeque<Bytes> {
    let (begun, share) = begun.into_whole();
    let begun = if begun.is_empty() { begun } else { share.around(begun) };
    [begun, next].into_iter().filter(|piece| !piece.is_empty()).collect()
}

fn is_stream(head: &Parts) -> bool {
    let kind = head.headers.get(CONTENT_TYPE).map_or(&[][..], |value| value.as_bytes());
    kind.get(..17).is_some_and(|kind| kind.eq_ignore_ascii_case(b"text/event-stream"))
}

/// The length that the head gives.
pub(crate) fn announced(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// What is recorded: status, end-to-end fields in order with repeats, and the body if it is kept.
pub(crate) fn outcome(head: &Parts, body: Option<&Bytes>, route: &Route) -> Outcome {
    let named: Vec<String> = named_in_connection(&head.headers);
    let headers: Vec<(Vec<u8>, Vec<u8>)> = head
        .headers
        .iter()
        .filter(|(name, _)| is_recorded(name, route) && !named.iter().any(|other| other == name.as_str()))
        .map(|(name, value)| (name.as_str().as_bytes().to_vec(), value.as_bytes().to_vec()))
        .collect();
    let header_bytes: usize = headers.iter().map(|(name, value)| name.len() + value.len()).sum();
    let fits = headers.len() <= HEADER_COUNT_MAX && header_bytes <= HEADER_BYTES_MAX;
    match body {
        Some(body) if fits => Outcome { status: head.status.as_u16(), headers, body: Recorded::Kept(body.to_vec()) },
        _ => Outcome { status: head.status.as_u16(), headers: Vec::new(), body: Recorded::NotKept },
    }
}

/// What is recorded of an answer that came from elsewhere than the request itself, such as a probe's.
#[must_use]
pub fn outcome_of(head: &Parts, body: &Bytes) -> Outcome {
    outcome(head, Some(body), &Route::default())
}

fn named_in_connection(headers: &HeaderMap) -> Vec<String> {
    let lines = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(|name| name.trim().to_ascii_lowercase()).collect()
}

/// Fields of one connection, of one moment, or of one browser are not for a later retry.
fn is_recorded(name: &HeaderName, route: &Route) -> bool {
    const NEVER: [&str; 10] = [
        "connection",
        "keep-alive",
        "proxy-connection",
        "proxy-authenticate",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "date",
        "age",
    ];
    let text = name.as_str();
    let is_rate_limit =
        text.starts_with("ratelimit") || text.starts_with("x-ratelimit") || text.starts_with("x-rate-limit");
    let is_of_now = is_rate_limit || replay::is_mark(name);
    !NEVER.contains(&text) && !is_of_now && *name != CONTENT_LENGTH && (*name != SET_COOKIE || route.keep_cookies)
}

/// What every claim is labelled with: the name of its route.
pub const ROUTE_LABEL: &str = "route";
/// The id of the request that made the claim: the client's own, or what whoever received the request gave it.
pub const REQUEST_LABEL: &str = "request-id";
/// The method of that request.
pub const METHOD_LABEL: &str = "method";
/// Its path, without the query.
pub const PATH_LABEL: &str = "path";
/// The trace that it belongs to, if it names one.
pub const TRACE_LABEL: &str = "trace-id";

/// The names of labels that hapax gives records itself.
pub const OWN_LABELS: [&str; 5] = [ROUTE_LABEL, REQUEST_LABEL, METHOD_LABEL, PATH_LABEL, TRACE_LABEL];

/// The labels of a claim: those of hapax, and the business identifiers in the request.
pub(crate) fn claim_labels(route: &Route, parts: &http::request::Parts, trace_id: Option<&str>, body: &[u8]) -> Labels {
    let request_id = parts.extensions.get::<RequestId>().map(|id| &*id.0);
    let ours = [
        Some((ROUTE_LABEL, &*route.name)),
        request_id.map(|id| (REQUEST_LABEL, id)),
        Some((METHOD_LABEL, parts.method.as_str())),
        Some((PATH_LABEL, uri_that_counts(&parts.uri, &parts.extensions).path())),
        trace_id.map(|id| (TRACE_LABEL, id)),
    ];
    let ours = ours.into_iter().flatten().map(|(name, value)| {
        let end = value.floor_char_boundary(LABEL_BYTES_MAX - name.len());
        Label { name: name.to_owned(), value: value[..end].to_owned() }
    });
    ours.chain(labels(&route.labels, false, body)).take(LABEL_COUNT_MAX).collect()
}

/// The business identifiers that a JSON document holds: texts, and integers in their own digits, since others look for the
/// record by them. Whatever else a pointer names, or names twice, is none.
pub(crate) fn labels(sources: &[LabelSource], in_answer: bool, body: &[u8]) -> Vec<Label> {
    let mut wanted = sources.iter().filter(|source| source.in_answer == in_answer).peekable();
    if wanted.peek().is_none() {
        return Vec::new();
    }
    let (names, pointers): (Vec<&str>, Vec<Pointer>) =
        wanted.filter_map(|source| Some((source.name.as_str(), Pointer::new(&source.pointer).ok()?))).unzip();
    let Ok(found) = raw_values(body, &pointers) else { return Vec::new() };
    let named = names.into_iter().zip(found);
    named
        .filter_map(|(name, value)| Some(Label { name: name.to_owned(), value: value?.identifier()?.to_owned() }))
        .filter(|label| label.name.len() + label.value.len() <= LABEL_BYTES_MAX)
        .take(LABEL_COUNT_MAX)
        .collect()
}

/// As many labels as a record has room for that has those already. One of the same name takes the place of another.
pub(crate) fn fitting(mut labels: Vec<Label>, recorded: &[Label]) -> Vec<Label> {
    let mut room = LABEL_COUNT_MAX.saturating_sub(recorded.len());
    labels.retain(|label| {
        let is_new = recorded.iter().all(|known| known.name != label.name);
        let fits = !is_new || room > 0;
        room = room.saturating_sub(usize::from(is_new));
        fits
    });
    labels
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Response;

    #[test]
    fn fields_of_a_connection_a_moment_or_a_browser_are_not_recorded() {
        let response = Response::builder()
            .status(201)
            .header("connection", "x-hop, close")
            .header("x-hop", "1")
            .header("date", "now")
            .header("ratelimit-policy", "1")
            .header("x-ratelimit-remaining", "1")
            .header("set-cookie", "a=1")
            .header("content-length", "2")
            .header("link", "one")
            .header("location", "/1")
            .header("link", "two")
            .body(())
            .unwrap();
        let (head, ()) = response.into_parts();
        let names = |route: &Route| -> Vec<String> {
            let outcome = outcome(&head, Some(&Bytes::from_static(b"ok")), route);
            outcome.headers.iter().map(|(n, v)| String::from_utf8([n, &b":"[..], v].concat()).unwrap()).collect()
        };
        let mut kept = names(&Route::new());
        kept.sort();
        assert_eq!(kept, ["link:one", "link:two", "location:/1"]);
        assert!(names(&Route::new().with_keep_cookies(true)).contains(&"set-cookie:a=1".to_owned()));
    }

    #[test]
    fn an_answer_with_more_fields_than_a_record_holds_is_not_kept() {
        let mut builder = Response::builder().status(200);
        for i in 0..300 {
            builder = builder.header(format!("x-{i}"), "v");
        }
        let (head, ()) = builder.body(()).unwrap().into_parts();
        let outcome = outcome(&head, Some(&Bytes::new()), &Route::new());
        assert_eq!((outcome.body, outcome.headers.len()), (Recorded::NotKept, 0));
    }

    #[test]
    fn labels_are_texts_and_numbers_that_a_pointer_finds() {
        let source =
            |name: &str, pointer: &str| LabelSource { name: name.into(), in_answer: true, pointer: pointer.into() };
        let sources = [source("payment", "/data/id"), source("amount", "/amount"), source("list", "/list")];
        let found = labels(&sources, true, br#"{"data":{"id":"p-1"},"amount":7,"list":[1]}"#);
        let pairs: Vec<_> = found.iter().map(|label| (label.name.as_str(), label.value.as_str())).collect();
        assert_eq!(pairs, [("payment", "p-1"), ("amount", "7")]);
        assert_eq!(labels(&sources, false, b"{}"), []);
        assert_eq!(labels(&sources, true, b"not json"), []);
    }

    #[test]
    fn a_label_is_the_text_that_stands_there_or_none() {
        let sources = [LabelSource { name: "order".into(), in_answer: false, pointer: "/order".into() }];
        let label = |order: &str| {
            let found = labels(&sources, false, format!("{{\"order\":{order}}}").as_bytes());
            found.into_iter().next().map(|label| label.value)
        };
        for order in ["18446744073709551616", "100000000000000000000123", "-7", "0"] {
            assert_eq!(label(order).as_deref(), Some(order));
        }
        assert_eq!(label(r#""\ud83d\ude02-1""#).as_deref(), Some("😂-1"));
        // Whoever received these may know them under another spelling.
        for order in ["1e2", "100.0", "-0", "true", "null", "[1]", r#"1,"order":2"#, r#""\ud83d""#] {
            assert_eq!(label(order), None, "{order}");
        }
    }

    #[test]
    fn labels_of_an_answer_fit_beside_those_of_its_claim() {
        let named = |range: std::ops::Range<usize>| -> Vec<Label> {
            range.map(|at| Label { name: format!("l-{at}"), value: String::new() }).collect()
        };
        assert_eq!(fitting(named(20..40), &named(0..10)), named(20..29));
        assert_eq!(fitting(named(5..40), &named(0..10)), named(5..19), "five of them are there already");
        assert_eq!(fitting(named(10..30), &named(0..19)), named(10..19));
        assert_eq!(fitting(named(20..30), &[]), named(20..30));
    }
}
