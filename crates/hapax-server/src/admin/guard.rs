//! Who may ask what of the admin listener.
//!
//! A browser on the operator's machine can be made to send requests to loopback addresses; with a name that resolves to
//! 127.0.0.1 it can even read the answers (DNS rebinding). So a loopback listener answers only to names that nobody else
//! can give it. What tells about callers needs a token as soon as other machines can reach it.

use std::net::{IpAddr, Ipv6Addr};

use http::header::{AUTHORIZATION, HOST};
use http::uri::Authority;
use http::{HeaderMap, Request};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// A secret that opens what tells about callers. Only its digest is kept.
#[derive(Clone)]
pub struct Token([u8; 32]);

impl Token {
    /// `None` for an empty token: it would open to everybody.
    #[must_use]
    pub fn new(secret: &str) -> Option<Self> {
        (!secret.trim().is_empty()).then(|| Self(Sha256::digest(secret.trim().as_bytes()).into()))
    }

    /// Compares in constant time; the digests also hide how long the secret is.
    fn opens(&self, given: &[u8]) -> bool {
        let given: [u8; 32] = Sha256::digest(given).into();
        self.0.ct_eq(&given).into()
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

/// Why what tells about callers stays closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closed {
    /// Other machines can reach the listener, and no token is configured.
    Everywhere,
    /// The token is absent or wrong.
    Token,
}

/// May this request see what tells about callers?
pub(super) fn admit(headers: &HeaderMap, token: Option<&Token>, loopback: bool) -> Result<(), Closed> {
    match token {
        None if loopback => Ok(()),
        None => Err(Closed::Everywhere),
        Some(token) if bearer(headers).is_some_and(|given| token.opens(given)) => Ok(()),
        Some(_) => Err(Closed::Token),
    }
}

/// The one bearer token of a request.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut lines = headers.get_all(AUTHORIZATION).iter();
    let (Some(line), None) = (lines.next(), lines.next()) else { return None };
    let (scheme, rest) = line.as_bytes().split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| rest.trim_ascii())
}

/// Does the request name this listener by a name that only an operator can have given it?
pub(super) fn is_meant<B>(request: &Request<B>, names: &[String]) -> bool {
    let mut lines = request.headers().get_all(HOST).iter();
    let (Some(line), None) = (lines.next(), lines.next()) else { return false };
    let in_header = line.to_str().ok().and_then(|text| text.parse::<Authority>().ok());
    let in_header = in_header.is_some_and(|authority| is_known(&authority, names));
    let in_target = request.uri().authority().is_none_or(|authority| is_known(authority, names));
    in_header && in_target
}

fn is_known(authority: &Authority, names: &[String]) -> bool {
    // `localhost@evil.example` is evil.example; nothing that operators use has a part before `@`.
    if authority.as_str().contains('@') {
        return false;
    }
    let host = authority.host();
    let literal = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let is_literal = host.parse::<IpAddr>().is_ok() || literal.is_some_and(|v6| v6.parse::<Ipv6Addr>().is_ok());
    is_literal || host.eq_ignore_ascii_case("localhost") || names.iter().any(|name| name.eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meant(host: &str) -> bool {
        let request = Request::get("/metrics").header(HOST, host).body(()).unwrap();
        is_meant(&request, &["hapax.internal".to_owned()])
    }

    #[test]
    fn a_loopback_listener_answers_to_literals_localhost_and_configured_names() {
        for host in
            ["127.0.0.1:9180", "[::1]:9180", "[::1]", "10.1.2.3", "localhost:9180", "LOCALHOST", "Hapax.Internal"]
        {
            assert!(meant(host), "{host}");
        }
    }

    #[test]
    fn a_name_that_anybody_can_point_at_loopback_is_refused() {
        for host in [
            "evil.example",
            "evil.example:9180",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "localhost@evil",
            "",
        ] {
            assert!(!meant(host), "{host}");
        }
        let none = Request::get("/").body(()).unwrap();
        assert!(!is_meant(&none, &[]));
        let two = Request::get("/").header(HOST, "localhost").header(HOST, "localhost").body(()).unwrap();
        assert!(!is_meant(&two, &[]));
        let absolute = Request::get("http://evil.example/").header(HOST, "localhost").body(()).unwrap();
        assert!(!is_meant(&absolute, &[]));
    }

    #[test]
    fn the_token_must_be_the_one_and_only() {
        let token = Token::new(" s3cret\n").unwrap();
        let given = |lines: &[&str]| {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(AUTHORIZATION, line.parse().unwrap());
            }
            admit(&headers, Some(&token), true)
        };
        assert_eq!(given(&["Bearer s3cret"]), Ok(()));
        assert_eq!(given(&["bearer s3cret"]), Ok(()));
        for lines in
            [&[][..], &["Bearer s3cre"], &["Bearer s3cret2"], &["Basic s3cret"], &["Bearer"], &["Bearer s3cret"; 2]]
        {
            assert_eq!(given(lines), Err(Closed::Token), "{lines:?}");
        }
        assert!(Token::new(" ").is_none());
        assert_eq!(format!("{token:?}"), "Token(…)");
    }

    #[test]
    fn without_a_token_only_loopback_is_open() {
        assert_eq!(admit(&HeaderMap::new(), None, true), Ok(()));
        assert_eq!(admit(&HeaderMap::new(), None, false), Err(Closed::Everywhere));
    }
}
