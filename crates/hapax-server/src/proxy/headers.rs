//! What of a message's head is passed on, and what is not.
//!
//! Fields that belong to one connection are removed in both directions (RFC 9110, 7.6.1). Who sent a request is said by us,
//! not by the sender, unless the sender is a trusted peer. A client may name fields of its own in `Connection`; the
//! fields on which safety rests it cannot remove that way.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::OnceLock;

use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, COOKIE, FORWARDED, HOST, PROXY_AUTHORIZATION, TE, TRANSFER_ENCODING,
    UPGRADE, VIA,
};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, Version, response};

use super::Peer;
use super::problem::{self, Problem};
use crate::network::Network;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");
const IDEMPOTENCY_ATTEMPT: HeaderName = HeaderName::from_static("idempotency-attempt");
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

/// Makes a request ready for the service, and for the upstream behind it: one host, a target in origin form, no fields of
/// the client's connection, and true forwarding fields.
pub(super) fn arrive(parts: &mut Parts, sender: &Sender) -> Result<Wish, Problem> {
    settle_host(parts)?;
    let websocket = is_websocket(parts);
    remove_connection_fields(&mut parts.headers);
    if parts.headers.keys().any(|name| NOT_FORWARDED.contains(name)) {
        NOT_FORWARDED.iter().for_each(|name| drop(parts.headers.remove(name)));
    }
    if websocket {
        parts.headers.insert(UPGRADE, WEBSOCKET);
    }
    sender.say_who_sends(&mut parts.headers);
    parts.headers.append(VIA, via(parts.version));
    Ok(if websocket { Wish::WebSocket } else { Wish::Answer })
}

/// Meant for us, or only ever set by us.
static NOT_FORWARDED: [HeaderName; 3] = [HTTP2_SETTINGS, PROXY_AUTHORIZATION, IDEMPOTENCY_ATTEMPT];

/// Makes the upstream's answer ready for the client, to whom we speak our own version.
pub(super) fn leave(parts: &mut response::Parts) {
    remove_connection_fields(&mut parts.headers);
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
        (None, Some(_)) => Ok(()),
        (None, None) if parts.version == Version::HTTP_10 => Ok(()),
        (None, None) => Err(problem::bad_host("Host is missing. Send it.")),
        (Some(authority), Some(host)) if !host.as_bytes().eq_ignore_ascii_case(authority.as_str().as_bytes()) => {
            Err(problem::bad_host("The target names another host than Host does. Send the same in both."))
        }
        (Some(authority), _) => {
            let host = HeaderValue::from_str(authority.as_str())
                .map_err(|_| problem::bad_host("The target's host is malformed. Send a plain host name."))?;
            parts.headers.insert(HOST, host);
            parts.uri = origin_form(&parts.uri);
            Ok(())
        }
    }
}

/// The target without scheme and host.
pub(super) fn origin_form(uri: &Uri) -> Uri {
    let target = uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    Uri::from(target)
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

/// Removes what concerns one connection only, and what `Connection` names.
fn remove_connection_fields(headers: &mut HeaderMap) {
    // Mostly there are none, and one walk over a few names is cheaper than a look-up of each.
    if !headers.keys().any(|name| *name == CONNECTION || OF_ONE_CONNECTION.contains(name)) {
        return;
    }
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .into_iter()
        .flat_map(tokens)
        .filter(|name| !name.eq_ignore_ascii_case("keep-alive") && !name.eq_ignore_ascii_case("close"))
        .filter_map(|name| HeaderName::from_bytes(name.as_bytes()).ok())
        .filter(|name| !is_protected(name) && name != TE)
        .collect();
    for name in named {
        headers.remove(name);
    }
    headers.remove(CONNECTION);
    if !headers.keys().any(|name| OF_ONE_CONNECTION.contains(name)) {
        return;
    }
    let accepted = headers.remove(TE);
    OF_ONE_CONNECTION.iter().for_each(|name| drop(headers.remove(name)));
    if accepted.is_some_and(|accepted| tokens(&accepted).any(|token| token.eq_ignore_ascii_case("trailers"))) {
        headers.insert(TE, TRAILERS);
    }
}

/// Beside `Connection`.
static OF_ONE_CONNECTION: [HeaderName; 5] = [KEEP_ALIVE, PROXY_CONNECTION, TRANSFER_ENCODING, UPGRADE, TE];

/// Fields that nobody can have removed by naming them.
fn is_protected(name: &HeaderName) -> bool {
    [HOST, AUTHORIZATION, COOKIE, FORWARDED, IDEMPOTENCY_KEY].contains(name)
        || name.as_str().starts_with("content-")
        || name.as_str().starts_with("x-forwarded-")
}

/// Who sends the requests of a connection, as the forwarding fields say it.
#[derive(Debug)]
pub(super) struct Sender {
    peer: Peer,
    /// Whether it may say who is behind it.
    trusted: bool,
    address: HeaderValue,
    /// The host of its first request, which is mostly that of all, and what `Forwarded` says then.
    first: OnceLock<(HeaderValue, HeaderValue)>,
}

impl Sender {
    pub(super) fn new(peer: Peer, trusted: &[Network]) -> Self {
        let ip = peer.addr.ip();
        // An address is always a valid value.
        let address = HeaderValue::try_from(ip.to_string()).unwrap_or(HeaderValue::from_static("unknown"));
        let trusted = trusted.iter().any(|network| network.contains(ip));
        Self { peer, trusted, address, first: OnceLock::new() }
    }

    /// Sets `X-Forwarded-For`, `-Proto`, `-Host` and `Forwarded`. What a trusted peer said of those before it is kept; what
    /// anybody else said, in these or any other `X-Forwarded-` field, is not.
    fn say_who_sends(&self, headers: &mut HeaderMap) {
        let said_before = headers.keys().any(|name| *name == FORWARDED || is_forwarding(name));
        if said_before && !self.trusted {
            remove_forwarding_fields(headers);
        }
        let element = self.element(headers.get(HOST));
        let (proto, host) = (HeaderValue::from_static(self.proto()), headers.get(HOST).cloned());
        if said_before && self.trusted {
            add_to_list(headers, X_FORWARDED_FOR, &self.address);
            add_to_list(headers, FORWARDED, &element);
            headers.entry(X_FORWARDED_PROTO).or_insert(proto);
            if let Some(host) = host {
                headers.entry(X_FORWARDED_HOST).or_insert(host);
            }
            return;
        }
        headers.insert(X_FORWARDED_FOR, self.address.clone());
        headers.insert(FORWARDED, element);
        headers.insert(X_FORWARDED_PROTO, proto);
        if let Some(host) = host {
            headers.insert(X_FORWARDED_HOST, host);
        }
    }

    fn proto(&self) -> &'static str {
        if self.peer.tls { "https" } else { "http" }
    }

    /// What `Forwarded` says of a request for that host.
    fn element(&self, host: Option<&HeaderValue>) -> HeaderValue {
        let make = || forwarded_element(self.peer.addr.ip(), self.proto(), host);
        let Some(host) = host else { return make() };
        // A copy: a part of the request would keep all of it in memory.
        let copied = || HeaderValue::from_bytes(host.as_bytes()).unwrap_or_else(|_| host.clone());
        let (first, element) = self.first.get_or_init(|| (copied(), make()));
        if first == host { element.clone() } else { make() }
    }
}

fn is_forwarding(name: &HeaderName) -> bool {
    name.as_str().starts_with("x-forwarded-")
}

fn remove_forwarding_fields(headers: &mut HeaderMap) {
    headers.remove(FORWARDED);
    while let Some(name) = headers.keys().find(|name| is_forwarding(name)).cloned() {
        headers.remove(name);
    }
}

/// Adds an element to the end of a list, in one line, since not every upstream reads more than one.
fn add_to_list(headers: &mut HeaderMap, name: HeaderName, element: &HeaderValue) {
    let mut list = Vec::new();
    for value in headers.get_all(&name) {
        list.extend_from_slice(value.as_bytes());
        list.extend_from_slice(b", ");
    }
    list.extend_from_slice(element.as_bytes());
    // Values with a comma between them are a value.
    if let Ok(value) = HeaderValue::try_from(list) {
        headers.insert(name, value);
    }
}

/// As RFC 7239 writes it: `for=192.0.2.1;host="example.org:8080";proto=http`.
fn forwarded_element(ip: IpAddr, proto: &str, host: Option<&HeaderValue>) -> HeaderValue {
    let host = host.and_then(|host| host.to_str().ok()).unwrap_or_default();
    let mut element = String::with_capacity(64 + host.len());
    // Writing to a string cannot fail.
    let _ = match ip {
        IpAddr::V4(ip) => write!(element, "for={ip}"),
        IpAddr::V6(ip) => write!(element, "for=\"[{ip}]\""),
    };
    let plain =
        host.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b':' | b'[' | b']'));
    if !host.is_empty() && plain {
        let _ = write!(element, ";host=\"{host}\"");
    }
    let _ = write!(element, ";proto={proto}");
    // Nothing else is in it.
    HeaderValue::try_from(element).unwrap_or(HeaderValue::from_static("for=unknown"))
}
