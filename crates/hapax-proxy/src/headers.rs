//! What of a message's head is passed on, and what is not.
//!
//! Fields that belong to one connection are removed in both directions (RFC 9110, 7.6.1). A client may name fields of its
//! own in `Connection`; the fields on which safety rests, some of them named by the configuration, it cannot remove that
//! way. Who sent a request is left to `forwarding`.

use std::sync::Arc;

use arc_swap::ArcSwap;
use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, FORWARDED, HOST, PROXY_AUTHORIZATION, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE, VIA,
};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, Version, response};

use super::forwarding::{Sender, is_forwarding, is_said_by_proxies};
use super::header_map::retain;
use super::host::is_host;
use super::problem::{self, Problem};

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");
const IDEMPOTENCY_ATTEMPT: HeaderName = HeaderName::from_static("idempotency-attempt");
const IDEMPOTENCY_RECORD: HeaderName = HeaderName::from_static("idempotency-record");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const TRAILERS: HeaderValue = HeaderValue::from_static("trailers");
const WEBSOCKET: HeaderValue = HeaderValue::from_static("websocket");

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    /// An answer.
    Answer,
    /// To become a WebSocket.
    WebSocket,
}

/// The fields by which the configuration tells keys and callers; a reload may change them.
pub type ReliedOn = Arc<ArcSwap<Vec<HeaderName>>>;

/// Makes a request ready for the service, and for the upstream behind it: one host, a target in origin form, no fields of
/// the client's connection, and true forwarding fields.
pub(super) fn arrive(parts: &mut Parts, sender: &Sender, relied_on: &ReliedOn) -> Result<Wish, Problem> {
    settle_host(parts)?;
    let seen = Seen::of(&parts.headers);
    if seen.not_a_name {
        return Err(problem::bad_framing("The name of a header field holds a quotation mark. Remove it."));
    }
    let websocket = seen.of_one_connection && is_websocket(parts);
    if seen.of_one_connection {
        remove_connection_fields(&mut parts.headers, |name| relied_on.load().contains(name));
    }
    if seen.not_forwarded {
        retain(&mut parts.headers, |name| !NOT_FORWARDED.contains(name));
    }
    if seen.underscore {
        remove_twins(&mut parts.headers, relied_on);
    }
    if seen.said_by_proxies && !sender.is_trusted() {
        let relied_on = relied_on.load();
        retain(&mut parts.headers, |name| !is_said_by_proxies(name) || relied_on.contains(name));
    }
    if seen.cookie {
        join_cookies(&mut parts.headers);
    }
    if websocket {
        parts.headers.insert(UPGRADE, WEBSOCKET);
    }
    sender.say_who_sends(&mut parts.headers, seen.forwarding);
    parts.headers.append(VIA, via(parts.version));
    Ok(if websocket { Wish::WebSocket } else { Wish::Answer })
}

/// Meant for us, or only ever set by us.
static NOT_FORWARDED: [HeaderName; 4] = [HTTP2_SETTINGS, PROXY_AUTHORIZATION, IDEMPOTENCY_ATTEMPT, IDEMPOTENCY_RECORD];

/// What becomes of a field that a client sends, where it is not simply passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is gone.
    Removed,
    /// It is gone, unless a trusted peer sends it.
    RemovedUnlessTrusted,
    /// It is ours, or something of ours is added to it.
    Set,
    /// It is ours, unless a trusted peer sends it.
    SetUnlessTrusted,
}

/// What becomes of a field by `arrive`, whoever relies on it; `None`: it is there as the client sent it.
pub fn fate(name: &HeaderName) -> Option<Fate> {
    match name.as_str() {
        _ if is_of_one_connection(name) || NOT_FORWARDED.contains(name) => Some(Fate::Removed),
        "via" | "forwarded" | "x-forwarded-for" => Some(Fate::Set),
        "x-forwarded-host" | "x-forwarded-proto" => Some(Fate::SetUnlessTrusted),
        _ if is_forwarding(name) => Some(Fate::RemovedUnlessTrusted),
        _ => None,
    }
}

/// Which kinds of fields a request has. One walk over a few names is cheaper than a look-up of each that there might be.
#[derive(Debug, Default)]
struct Seen {
    of_one_connection: bool,
    not_forwarded: bool,
    forwarding: bool,
    said_by_proxies: bool,
    cookie: bool,
    underscore: bool,
    not_a_name: bool,
}

impl Seen {
    fn of(headers: &HeaderMap) -> Self {
        let mut seen = Self::default();
        for name in headers.keys() {
            seen.of_one_connection |= is_of_one_connection(name);
            seen.not_forwarded |= NOT_FORWARDED.contains(name);
            seen.forwarding |= is_forwarding(name);
            seen.said_by_proxies |= is_said_by_proxies(name);
            seen.cookie |= *name == COOKIE;
            seen.underscore |= has_underscore(name);
            seen.not_a_name |= is_not_a_name(name);
        }
        seen
    }
}

/// Removes what a server in the manner of CGI takes for a field that we set, replace or go by: to it, `X_Forwarded_For` and
/// `X-Forwarded-For` are one.
fn remove_twins(headers: &mut HeaderMap, relied_on: &ReliedOn) {
    let relied_on = relied_on.load();
    retain(headers, |name| !is_twin(name, &relied_on));
}

fn is_twin(name: &HeaderName, relied_on: &[HeaderName]) -> bool {
    if relied_on.contains(name) {
        return false;
    }
    let hyphened = |name: &HeaderName| name.as_str().replace('_', "-");
    let text = hyphened(name);
    if relied_on.iter().any(|other| hyphened(other) == text) {
        return true;
    }
    if !has_underscore(name) {
        return false;
    }
    GONE_BY.contains(&text.as_str())
        || HeaderName::try_from(text)
            .is_ok_and(|meant| is_protected(&meant) || NOT_FORWARDED.contains(&meant) || is_said_by_proxies(&meant))
}

/// What requests are told apart, protected and framed by, beside what nobody can have removed.
const GONE_BY: [&str; 6] = [
    "accept-encoding",
    "if-match",
    "transfer-encoding",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
];

fn has_underscore(name: &HeaderName) -> bool {
    name.as_str().as_bytes().contains(&b'_')
}

/// The one character that `HeaderName` takes and that no name may have (RFC 9110, 5.6.2). By HTTP/1 it does not get here; by
/// HTTP/2 it would, and an upstream may read such a line in its own way.
fn is_not_a_name(name: &HeaderName) -> bool {
    name.as_str().as_bytes().contains(&b'"')
}

/// Removes from a request's trailers what we set, replace, remove or go by in the head: a server may add them to it. Who sent
/// the request was said there, so here not even a trusted peer says it.
pub(super) fn arrive_late(trailers: &mut HeaderMap, relied_on: &ReliedOn) {
    let relied_on = relied_on.load();
    let is_settled = |name: &HeaderName| {
        is_of_one_connection(name)
            || is_forwarding(name)
            || is_said_by_proxies(name)
            || is_protected(name)
            || NOT_FORWARDED.contains(name)
            || NOT_LATE.contains(name)
            || GONE_BY.contains(&name.as_str())
            || relied_on.contains(name)
            || is_twin(name, &relied_on)
            || is_not_a_name(name)
    };
    retain(trailers, |name| !is_settled(name));
}

/// What is said in a head and means nothing, or something else, behind it.
static NOT_LATE: [HeaderName; 3] = [EXPECT, TRAILER, VIA];

/// HTTP/2 may send every cookie on a line of its own; of HTTP/1.1 servers many read one line only (RFC 9113, 8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    if headers.get_all(COOKIE).iter().nth(1).is_none() {
        return;
    }
    let lines: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    // Values with a semicolon between them are a value.
    if let Ok(joined) = HeaderValue::try_from(lines.join(b"; ".as_slice())) {
        headers.insert(COOKIE, joined);
    }
}

/// Makes the upstream's answer ready for the client, to whom we speak our own version.
pub(super) fn leave(parts: &mut response::Parts) {
    if parts.headers.keys().any(is_of_one_connection) {
        remove_connection_fields(&mut parts.headers, |_| false);
    }
    retain(&mut parts.headers, |name| !is_not_a_name(name));
    parts.headers.append(VIA, via(parts.version));
    parts.version = Version::HTTP_11;
}

/// How the message came to us.
fn via(version: Version) -> HeaderValue {
    match version {
        Version::HTTP_2 => HeaderValue::from_static("2 hapax"),
        Version::HTTP_10 => HeaderValue::from_static("1.0 hapax"),
        _ => HeaderValue::from_static("1.1 hapax"),
    }
}

/// One host in one place: the field `Host`.
fn settle_host(parts: &mut Parts) -> Result<(), Problem> {
    let mut hosts = parts.headers.get_all(HOST).into_iter();
    let host = hosts.next();
    if hosts.next().is_some() {
        return Err(problem::bad_host("Host is given twice. Send it once."));
    }
    match (parts.uri.authority(), host) {
        (None, Some(host)) if is_host(host.as_bytes()) => Ok(()),
        (None, Some(_)) => Err(problem::bad_host("Host is malformed. Send a host name or an address, and its port.")),
        (None, None) if parts.version == Version::HTTP_10 => Ok(()),
        (None, None) => Err(problem::bad_host("Host is missing. Send it.")),
        (Some(authority), Some(host)) if !host.as_bytes().eq_ignore_ascii_case(authority.as_str().as_bytes()) => {
            Err(problem::bad_host("The target names another host than Host does. Send the same in both."))
        }
        (Some(authority), _) => {
            let host = HeaderValue::from_str(authority.as_str()).ok().filter(|host| is_host(host.as_bytes()));
            let malformed = problem::bad_host("The target's host is malformed. Send a plain host name.");
            parts.headers.insert(HOST, host.ok_or(malformed)?);
            parts.uri = origin_form(&parts.uri);
            Ok(())
        }
    }
}

/// The target without scheme and host. Where it has no path, the path is the root, for us as for whoever comes behind us.
pub(super) fn origin_form(uri: &Uri) -> Uri {
    let root = || Uri::from_static("/");
    let Some(target) = uri.path_and_query() else { return root() };
    match target.as_str() {
        query if query.starts_with('?') => Uri::try_from(format!("/{query}")).unwrap_or_else(|_| root()),
        "/" => root(),
        _ => Uri::from(target.clone()),
    }
}

/// True for a GET over HTTP/1.1 that asks for a WebSocket and has no body. Every other upgrade is ignored.
fn is_websocket(parts: &Parts) -> bool {
    let headers = &parts.headers;
    let Some(upgrade) = headers.get(UPGRADE) else { return false };
    let without_body = !headers.contains_key(TRANSFER_ENCODING)
        && headers.get(CONTENT_LENGTH).is_none_or(|length| length.as_bytes().iter().all(|digit| *digit == b'0'));
    let asked =
        headers.get_all(CONNECTION).into_iter().flat_map(tokens).any(|name| name.eq_ignore_ascii_case("upgrade"));
    parts.method == Method::GET
        && parts.version == Version::HTTP_11
        && upgrade.as_bytes().eq_ignore_ascii_case(b"websocket")
        && without_body
        && asked
}

/// The members of a list.
fn tokens(value: &HeaderValue) -> impl Iterator<Item = &str> {
    value.to_str().unwrap_or_default().split(',').map(str::trim).filter(|token| !token.is_empty())
}

/// Removes what concerns one connection only, and what `Connection` names, unless it is relied on.
fn remove_connection_fields(headers: &mut HeaderMap, is_relied_on: impl Fn(&HeaderName) -> bool) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .into_iter()
        .flat_map(tokens)
        .filter(|name| !name.eq_ignore_ascii_case("keep-alive") && !name.eq_ignore_ascii_case("close"))
        .filter_map(|name| HeaderName::from_bytes(name.as_bytes()).ok())
        .filter(|name| !is_protected(name) && name != TE && !is_relied_on(name))
        .collect();
    let accepts_trailers =
        headers.get(TE).is_some_and(|te| tokens(te).any(|token| token.eq_ignore_ascii_case("trailers")));
    if accepts_trailers {
        headers.insert(TE, TRAILERS);
    }
    let stays = |name: &HeaderName| accepts_trailers && *name == TE;
    retain(headers, |name| stays(name) || !(is_of_one_connection(name) || named.contains(name)));
}

/// Beside `Connection`.
static OF_ONE_CONNECTION: [HeaderName; 5] = [KEEP_ALIVE, PROXY_CONNECTION, TRANSFER_ENCODING, UPGRADE, TE];

fn is_of_one_connection(name: &HeaderName) -> bool {
    *name == CONNECTION || OF_ONE_CONNECTION.contains(name)
}

/// Fields that nobody can have removed by naming them, whatever the configuration says.
fn is_protected(name: &HeaderName) -> bool {
    [HOST, AUTHORIZATION, COOKIE, FORWARDED, IDEMPOTENCY_KEY].contains(name)
        || name.as_str().starts_with("content-")
        || name.as_str().starts_with("x-forwarded-")
}

#[cfg(test)]
mod tests {
    use http::uri::PathAndQuery;

    use super::*;
    use crate::Peer;

    fn lines(headers: &HeaderMap) -> Vec<String> {
        headers.iter().map(|(name, value)| format!("{name}={}", value.to_str().unwrap())).collect()
    }

    #[test]
    fn a_target_without_a_path_is_the_root() {
        let root = PathAndQuery::try_from("#x").unwrap();
        let targets = [Uri::from_static("http://a"), Uri::from_static("http://a#f"), Uri::from(root)];
        for target in targets {
            let origin = origin_form(&target);
            assert_eq!((origin.path(), origin.to_string().as_str()), ("/", "/"), "{target:?}");
        }
        let asked = origin_form(&Uri::from_static("http://a?x=1"));
        assert_eq!((asked.path(), asked.to_string().as_str()), ("/", "/?x=1"));
        let whole = origin_form(&Uri::from_static("http://a/b?x=1"));
        assert_eq!((whole.path(), whole.to_string().as_str()), ("/b", "/b?x=1"));
    }

    /// The value of a field that the configuration relies on, after it has come from that peer.
    fn arrived(name: &HeaderName, trusted: bool) -> Option<HeaderValue> {
        let mut parts = http::Request::get("/").header(HOST, "a").body(()).unwrap().into_parts().0;
        parts.headers.insert(name, HeaderValue::from_static("said"));
        let peer = Peer { addr: ([127, 0, 0, 1], 1).into(), tls: false };
        let networks = if trusted { vec!["127.0.0.1".parse().unwrap()] } else { vec![] };
        let relied_on = Arc::new(ArcSwap::from_pointee(vec![name.clone()]));
        arrive(&mut parts, &Sender::new(peer, &networks), &relied_on).ok()?;
        parts.headers.get(name).cloned()
    }

    #[test]
    fn the_fate_of_a_field_is_what_becomes_of_it() {
        let names = [
            ("connection", Some(Fate::Removed)),
            ("keep-alive", Some(Fate::Removed)),
            ("proxy-connection", Some(Fate::Removed)),
            ("transfer-encoding", Some(Fate::Removed)),
            ("upgrade", Some(Fate::Removed)),
            ("te", Some(Fate::Removed)),
            ("http2-settings", Some(Fate::Removed)),
            ("proxy-authorization", Some(Fate::Removed)),
            ("idempotency-attempt", Some(Fate::Removed)),
            ("idempotency-record", Some(Fate::Removed)),
            ("forwarded", Some(Fate::Set)),
            ("x-forwarded-for", Some(Fate::Set)),
            ("x-forwarded-host", Some(Fate::SetUnlessTrusted)),
            ("x-forwarded-proto", Some(Fate::SetUnlessTrusted)),
            ("x-forwarded-user", Some(Fate::RemovedUnlessTrusted)),
            ("idempotency-key", None),
            ("idempotency_record", None),
            ("authorization", None),
            ("cookie", None),
            ("x-real-ip", None),
            ("x_forwarded_for", None),
            ("x-tenant", None),
            ("accept-encoding", None),
            ("traceparent", None),
        ];
        for (text, expected) in names {
            let name = HeaderName::try_from(text).unwrap();
            assert_eq!(fate(&name), expected, "{name}");
            let is_said = |trusted| arrived(&name, trusted).is_some_and(|value| value == "said");
            let (from_anybody, from_trusted) = match expected {
                None => (true, true),
                Some(Fate::RemovedUnlessTrusted | Fate::SetUnlessTrusted) => (false, true),
                Some(Fate::Removed | Fate::Set) => (false, false),
            };
            assert_eq!((is_said(false), is_said(true)), (from_anybody, from_trusted), "{name}");
        }
        assert_eq!(fate(&VIA), Some(Fate::Set), "ours is added");
    }

    #[test]
    fn what_is_kept_stays_in_its_order_wherever_something_is_removed() {
        for gone in ["x-a", "x-b", "x-c", "x-d"] {
            let mut headers = HeaderMap::new();
            for (name, value) in [("x-a", "1"), ("x-b", "2"), ("x-a", "3"), ("x-c", "4"), ("x-d", "5"), ("x-d", "6")] {
                headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
            }
            let expected: Vec<String> = lines(&headers).into_iter().filter(|line| !line.starts_with(gone)).collect();
            retain(&mut headers, |name| name != gone);
            assert_eq!(lines(&headers), expected, "without {gone}");
        }
        let mut headers = HeaderMap::from_iter([(HOST, HeaderValue::from_static("a"))]);
        retain(&mut headers, |_| true);
        assert_eq!(lines(&headers), ["host=a"]);
        retain(&mut headers, |_| false);
        assert!(headers.is_empty());
    }
}
