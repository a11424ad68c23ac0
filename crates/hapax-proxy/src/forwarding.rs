//! Who sends a request: `Forwarded` (RFC 7239), and the older `X-Forwarded-For`, `-Proto` and `-Host`.
//!
//! It is said by us, not by the sender, unless the sender is a trusted peer: what that one says is kept, and we add
//! ourselves to it. Many peers speak one of the two families only. Then the other one says the same, as far as it can be
//! translated, and is left out where it cannot: an upstream must not find `https` in one and `http` in the other.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::sync::OnceLock;

use hapax::http::Client;
use http::header::{FORWARDED, HOST};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::Peer;
use super::header_map::retain;
use super::host::is_host;
use crate::network::Network;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

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

    /// Whether it may say who is behind it.
    pub(super) fn is_trusted(&self) -> bool {
        self.trusted
    }

    /// The client that a request comes from, before any field is changed. Of a trusted peer's `X-Forwarded-For`, or of its
    /// `Forwarded` where there is no other, it is the last address that is not itself trusted: what stands before that
    /// one was written by strangers. None where a trusted peer names nobody.
    pub(super) fn client(&self, headers: &HeaderMap, trusted: &[Network]) -> Option<Client> {
        if !self.trusted {
            return Some(Client::new(self.peer.addr.ip()));
        }
        let older = headers.get_all(X_FORWARDED_FOR).iter().rev().flat_map(|line| members_reversed(line, ','));
        if headers.contains_key(X_FORWARDED_FOR) {
            return last_stranger(older.map(address), trusted);
        }
        let newer = headers.get_all(FORWARDED).iter().rev().flat_map(|line| members_reversed(line, ','));
        last_stranger(newer.map(sender_of), trusted)
    }

    /// Sets `X-Forwarded-For`, `-Proto`, `-Host` and `Forwarded`. What a trusted peer said of those before it is kept; what
    /// anybody else said, in these or any other `X-Forwarded-` field, is not. `said_before` tells whether there is any.
    pub(super) fn say_who_sends(&self, headers: &mut HeaderMap, said_before: bool) {
        if said_before && self.trusted {
            return self.add_to_what_was_said(headers);
        }
        if said_before {
            remove_forwarding_fields(headers);
        }
        let host = headers.get(HOST).cloned();
        headers.insert(X_FORWARDED_FOR, self.address.clone());
        headers.insert(FORWARDED, self.element(host.as_ref()));
        headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static(self.proto()));
        if let Some(host) = host {
            headers.insert(X_FORWARDED_HOST, host);
        }
    }

    /// For a trusted peer.
    fn add_to_what_was_said(&self, headers: &mut HeaderMap) {
        let by_one = headers.contains_key(FORWARDED);
        let by_three =
            [X_FORWARDED_FOR, X_FORWARDED_PROTO, X_FORWARDED_HOST].iter().any(|name| headers.contains_key(name));
        let said = if by_one { Said::in_forwarded(headers) } else { Said::in_x_forwarded(headers) };
        let element = self.element(headers.get(HOST));
        if by_one || said.is_some() {
            if let Some(before) = said.as_ref().filter(|_| !by_one).and_then(Said::as_forwarded) {
                headers.insert(FORWARDED, before);
            }
            add_to_list(headers, FORWARDED, &element);
        }
        // Where it cannot be read what was said in the one field, nobody knows what to add to the three.
        let may_add = said.is_some() || !by_one;
        if by_three || said.is_some() {
            let said = said.filter(|_| by_one).unwrap_or_default();
            if let Some(senders) = said.senders().filter(|_| !headers.contains_key(X_FORWARDED_FOR)) {
                headers.insert(X_FORWARDED_FOR, senders);
            }
            add_to_list(headers, X_FORWARDED_FOR, &self.address);
            if !may_add {
                return;
            }
            let proto = value_of(said.proto).unwrap_or(HeaderValue::from_static(self.proto()));
            headers.entry(X_FORWARDED_PROTO).or_insert(proto);
            if let Some(host) = value_of(said.host).or_else(|| headers.get(HOST).cloned()) {
                headers.entry(X_FORWARDED_HOST).or_insert(host);
            }
        }
    }

    fn proto(&self) -> &'static str {
        if self.peer.tls { "https" } else { "http" }
    }

    /// What `Forwarded` says of a request for that host.
    fn element(&self, host: Option<&HeaderValue>) -> HeaderValue {
        let make = || {
            let mut text = String::with_capacity(64);
            let host = host.and_then(|host| host.to_str().ok());
            write_element(&mut text, Some(self.peer.addr.ip()), host, Some(self.proto()));
            // Nothing else is in it.
            HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("for=unknown"))
        };
        let Some(host) = host else { return make() };
        // A copy: a part of the request would keep all of it in memory.
        let copied = || HeaderValue::from_bytes(host.as_bytes()).unwrap_or_else(|_| host.clone());
        let (first, element) = self.first.get_or_init(|| (copied(), make()));
        if first == host { element.clone() } else { make() }
    }
}

/// True for `Forwarded` and every `X-Forwarded-` field.
pub(super) fn is_forwarding(name: &HeaderName) -> bool {
    *name == FORWARDED || name.as_str().starts_with("x-forwarded-")
}

/// True for the other fields by which a proxy tells whoever is behind which client, host or target is meant. Nobody agrees
/// on them, and services believe some of them, so from a peer that is not trusted none is passed on.
pub(super) fn is_said_by_proxies(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "cf-connecting-ip"
            | "cf-connecting-ipv6"
            | "cf-pseudo-ipv4"
            | "client-ip"
            | "fastly-client-ip"
            | "forwarded-for"
            | "proxy-client-ip"
            | "true-client-ip"
            | "wl-proxy-client-ip"
            | "x-appengine-user-ip"
            | "x-azure-clientip"
            | "x-client-ip"
            | "x-cluster-client-ip"
            | "x-envoy-external-address"
            | "x-envoy-original-path"
            | "x-forwarded"
            | "x-host"
            | "x-http-host-override"
            | "x-original-forwarded-for"
            | "x-original-host"
            | "x-original-url"
            | "x-originating-ip"
            | "x-proxyuser-ip"
            | "x-real-ip"
            | "x-remote-addr"
            | "x-remote-ip"
            | "x-rewrite-url"
    )
}

fn remove_forwarding_fields(headers: &mut HeaderMap) {
    retain(headers, |name| !is_forwarding(name));
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

fn value_of(text: Option<String>) -> Option<HeaderValue> {
    HeaderValue::try_from(text?).ok()
}

/// What a trusted peer said in one family of fields, where it is plain: addresses, and the scheme and host that the
/// first client in the chain asked for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Said {
    senders: Vec<IpAddr>,
    proto: Option<String>,
    host: Option<String>,
}

impl Said {
    /// None where something is not plain.
    fn in_x_forwarded(headers: &HeaderMap) -> Option<Self> {
        let mut said = Self::default();
        for line in headers.get_all(X_FORWARDED_FOR) {
            for member in members(line.to_str().ok()?, ',') {
                said.senders.push(address(member)?);
            }
        }
        let first = |name: HeaderName| match headers.get(name) {
            None => Some(None),
            Some(list) => Some(members(list.to_str().ok()?, ',').next().map(str::to_owned)),
        };
        said.proto = first(X_FORWARDED_PROTO)?;
        said.host = first(X_FORWARDED_HOST)?;
        said.is_plain().then_some(said)
    }

    /// None where something is not plain.
    fn in_forwarded(headers: &HeaderMap) -> Option<Self> {
        let mut said = Self::default();
        for line in headers.get_all(FORWARDED) {
            // A comma or semicolon within quotes leaves a quotation mark without its partner: that is not plain.
            for pair in members(line.to_str().ok()?, ',').flat_map(|element| members(element, ';')) {
                let (name, value) = pair.split_once('=')?;
                let value = unquoted(value)?;
                if name.eq_ignore_ascii_case("for") {
                    said.senders.push(address(value)?);
                } else if name.eq_ignore_ascii_case("proto") {
                    said.proto.get_or_insert_with(|| value.to_owned());
                } else if name.eq_ignore_ascii_case("host") {
                    said.host.get_or_insert_with(|| value.to_owned());
                }
            }
        }
        said.is_plain().then_some(said)
    }

    fn is_plain(&self) -> bool {
        let is_scheme = |text: &String| text.bytes().all(|byte| byte.is_ascii_alphanumeric()) && !text.is_empty();
        self.proto.as_ref().is_none_or(is_scheme) && self.host.as_ref().is_none_or(|host| is_host(host.as_bytes()))
    }

    /// As `Forwarded` has it: scheme and host stand with the first sender, who asked for them.
    fn as_forwarded(&self) -> Option<HeaderValue> {
        let mut text = String::new();
        write_element(&mut text, self.senders.first().copied(), self.host.as_deref(), self.proto.as_deref());
        for sender in self.senders.iter().skip(1) {
            text.push_str(", ");
            write_element(&mut text, Some(*sender), None, None);
        }
        value_of(Some(text).filter(|text| !text.is_empty()))
    }

    /// As `X-Forwarded-For` has it.
    fn senders(&self) -> Option<HeaderValue> {
        let senders: Vec<String> = self.senders.iter().map(IpAddr::to_string).collect();
        value_of(Some(senders.join(", ")).filter(|text| !text.is_empty()))
    }
}

/// The client behind a chain of trusted peers, the last of which comes first. Where an address cannot be read, nobody
/// knows who is behind it.
fn last_stranger(mut senders: impl Iterator<Item = Option<IpAddr>>, trusted: &[Network]) -> Option<Client> {
    let is_trusted = |ip: &IpAddr| trusted.iter().any(|network| network.contains(*ip));
    senders.find(|sender| sender.is_none_or(|ip| !is_trusted(&ip))).flatten().map(Client::new)
}

/// The sender that an element of `Forwarded` names.
fn sender_of(element: &str) -> Option<IpAddr> {
    let mut pairs = members(element, ';').filter_map(|pair| pair.split_once('='));
    let (_, value) = pairs.find(|(name, _)| name.eq_ignore_ascii_case("for"))?;
    address(unquoted(value)?)
}

/// The members of a list that are not empty, the last one first. A value that is no text has none.
fn members_reversed(list: &HeaderValue, separator: char) -> impl Iterator<Item = &str> {
    let text = list.to_str().unwrap_or_default();
    text.rsplit(separator).map(str::trim).filter(|member| !member.is_empty())
}

/// The members of a list that are not empty.
fn members(list: &str, separator: char) -> impl Iterator<Item = &str> {
    list.split(separator).map(str::trim).filter(|member| !member.is_empty())
}

/// An address as either family writes it, with or without a port.
fn address(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    bare.parse().ok().or_else(|| text.parse::<SocketAddr>().ok().map(|addr| addr.ip()))
}

/// A value without the quotation marks around it; none where there are others, or escapes.
fn unquoted(value: &str) -> Option<&str> {
    let inner = match value.strip_prefix('"') {
        Some(rest) => rest.strip_suffix('"')?,
        None => value,
    };
    (!inner.contains(['"', '\\'])).then_some(inner)
}

/// As RFC 7239 writes it: `for=192.0.2.1;host="example.org:8080";proto=http`.
fn write_element(text: &mut String, sender: Option<IpAddr>, host: Option<&str>, proto: Option<&str>) {
    let start = text.len();
    // Writing to a string cannot fail.
    let _ = match sender {
        Some(IpAddr::V4(ip)) => write!(text, "for={ip}"),
        Some(IpAddr::V6(ip)) => write!(text, "for=\"[{ip}]\""),
        None => Ok(()),
    };
    let is_plain = |host: &&str| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b':' | b'[' | b']');
        !host.is_empty() && host.bytes().all(plain)
    };
    for (name, value, mark) in [("host", host.filter(is_plain), "\""), ("proto", proto, "")] {
        if let Some(value) = value {
            let semicolon = if text.len() > start { ";" } else { "" };
            let _ = write!(text, "{semicolon}{name}={mark}{value}{mark}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
        fields.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    /// All fields after a peer that is trusted has sent these, in the order of their names.
    fn after(fields: &[(&'static str, &str)]) -> Vec<String> {
        let peer = Peer { addr: "10.0.0.1:4000".parse().unwrap(), tls: false };
        let mut headers = headers(fields);
        headers.insert(HOST, HeaderValue::from_static("shop"));
        Sender::new(peer, &["10.0.0.0/8".parse().unwrap()]).say_who_sends(&mut headers, true);
        headers.remove(HOST);
        let mut lines: Vec<String> =
            headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        lines.sort();
        lines
    }

    #[test]
    fn what_is_said_in_the_older_fields_is_said_in_the_newer_one() {
        let said = [
            ("x-forwarded-for", "192.0.2.7, [2001:db8::1]:99"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-host", "shop.example:8443"),
        ];
        let expected = [
            "forwarded: for=192.0.2.7;host=\"shop.example:8443\";proto=https, for=\"[2001:db8::1]\", \
             for=10.0.0.1;host=\"shop\";proto=http",
            "x-forwarded-for: 192.0.2.7, [2001:db8::1]:99, 10.0.0.1",
            "x-forwarded-host: shop.example:8443",
            "x-forwarded-proto: https",
        ];
        assert_eq!(after(&said), expected);
        let expected = [
            "forwarded: proto=https, for=10.0.0.1;host=\"shop\";proto=http",
            "x-forwarded-for: 10.0.0.1",
            "x-forwarded-host: shop",
            "x-forwarded-proto: https",
        ];
        assert_eq!(after(&[("x-forwarded-proto", "https")]), expected);
    }

    #[test]
    fn what_is_said_in_the_newer_field_is_said_in_the_older_ones() {
        let said = "For=\"[2001:db8::1]:99\"; Proto=https;host=\"shop.example\" , for=192.0.2.7;by=10.0.0.9";
        let expected = [
            format!("forwarded: {said}, for=10.0.0.1;host=\"shop\";proto=http"),
            "x-forwarded-for: 2001:db8::1, 192.0.2.7, 10.0.0.1".to_owned(),
            "x-forwarded-host: shop.example".to_owned(),
            "x-forwarded-proto: https".to_owned(),
        ];
        assert_eq!(after(&[("forwarded", said)]), expected);
        let expected = [
            "forwarded: proto=https, for=10.0.0.1;host=\"shop\";proto=http",
            "x-forwarded-for: 192.0.2.7, 10.0.0.1",
            "x-forwarded-host: shop",
            "x-forwarded-proto: https",
        ];
        assert_eq!(after(&[("forwarded", "proto=https"), ("x-forwarded-for", "192.0.2.7")]), expected);
    }

    #[test]
    fn what_cannot_be_translated_leaves_the_other_family_out() {
        for said in ["for=unknown", "for=_hidden", "for=\"a,b\"", "for=\"\\\"\"", "for", "for=192.0.2.7;host=\"a b\""] {
            let expected = [format!("forwarded: {said}, for=10.0.0.1;host=\"shop\";proto=http")];
            assert_eq!(after(&[("forwarded", said)]), expected, "{said}");
        }
        let both = after(&[("forwarded", "for=unknown;proto=https"), ("x-forwarded-for", "192.0.2.7")]);
        assert_eq!(both[1..], ["x-forwarded-for: 192.0.2.7, 10.0.0.1"], "and nothing of http");
        for said in ["unknown", "192.0.2.7, a b"] {
            let expected = [
                format!("x-forwarded-for: {said}, 10.0.0.1"),
                "x-forwarded-host: shop".to_owned(),
                "x-forwarded-proto: http".to_owned(),
            ];
            assert_eq!(after(&[("x-forwarded-for", said)]), expected, "{said}");
        }
    }

    #[test]
    fn the_client_is_the_last_address_that_no_trusted_peer_has() {
        let trusted = ["10.0.0.0/8".parse().unwrap()];
        let client = |peer: &str, fields: &[(&'static str, &str)]| {
            let peer = Peer { addr: peer.parse().unwrap(), tls: false };
            Sender::new(peer, &trusted).client(&headers(fields), &trusted).map(|client| client.to_string())
        };
        let gateway = "10.0.0.1:4000";
        let for_two = ("x-forwarded-for", "198.51.100.9, 192.0.2.7, 10.0.0.3");
        assert_eq!(client("192.0.2.1:4000", &[for_two]).as_deref(), Some("192.0.2.1"), "a stranger's word");
        assert_eq!(client(gateway, &[for_two]).as_deref(), Some("192.0.2.7"));
        assert_eq!(client(gateway, &[("x-forwarded-for", "10.0.0.2")]), None);
        assert_eq!(client(gateway, &[("x-forwarded-for", "192.0.2.7, unknown")]), None);
        assert_eq!(client(gateway, &[]), None);
        let newer = ("forwarded", "for=198.51.100.9, for=\"[2001:db8::7]:99\";proto=https, for=10.0.0.3");
        assert_eq!(client(gateway, &[newer]).as_deref(), Some("2001:db8::/64"));
        assert_eq!(
            client(gateway, &[newer, for_two]).as_deref(),
            Some("192.0.2.7"),
            "most gateways write the older one"
        );
    }

    #[test]
    fn a_peer_that_says_something_else_only_is_the_first_sender() {
        let expected = [
            "forwarded: for=10.0.0.1;host=\"shop\";proto=http",
            "x-forwarded-for: 10.0.0.1",
            "x-forwarded-host: shop",
            "x-forwarded-port: 443",
            "x-forwarded-proto: http",
        ];
        assert_eq!(after(&[("x-forwarded-port", "443")]), expected);
    }
}
