//! What a browser can be made to do to the admin listener, and what is done about it.
//!
//! A browser on the operator's machine can be made to send requests to loopback addresses; with a name that resolves to
//! 127.0.0.1 it can even read the answers (DNS rebinding). So a loopback listener answers only to names that nobody else
//! can give it, and pages of other origins change nothing. Left to others: tokens (`access`).

use std::net::{IpAddr, Ipv6Addr};

use http::Request;
use http::header::{HOST, ORIGIN};
use http::uri::Authority;

use hapax_proxy::host::is_host;

/// Does the request name this listener by a name that only an operator can have given it?
pub(super) fn is_meant<B>(request: &Request<B>, names: &[String]) -> bool {
    let mut lines = request.headers().get_all(HOST).iter();
    let (Some(line), None) = (lines.next(), lines.next()) else { return false };
    let in_header = line.to_str().ok().filter(|text| is_host(text.as_bytes()));
    let in_header = in_header.and_then(|text| text.parse::<Authority>().ok());
    let in_header = in_header.is_some_and(|authority| is_known(&authority, names));
    let in_target = request.uri().authority().is_none_or(|authority| is_known(authority, names));
    in_header && in_target
}

/// Does no page ask, or one that came from this listener? A browser names the page's origin with every change.
pub(super) fn is_own_origin<B>(request: &Request<B>) -> bool {
    let mut lines = request.headers().get_all(ORIGIN).iter();
    let line = match (lines.next(), lines.next()) {
        (None, _) => return true,
        (Some(line), None) => line.as_bytes(),
        (Some(_), Some(_)) => return false,
    };
    let authority = line.strip_prefix(b"http://").or_else(|| line.strip_prefix(b"https://"));
    let host = request.headers().get(HOST).map(http::HeaderValue::as_bytes);
    authority.zip(host).is_some_and(|(authority, host)| authority.eq_ignore_ascii_case(host))
}

fn is_known(authority: &Authority, names: &[String]) -> bool {
    // `localhost@evil.example` is evil.example, and `[::1]evil` is nothing at all.
    if !is_host(authority.as_str().as_bytes()) {
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
            "[::1]evil",
            "[::1]evil.example:9180",
            "[::1].evil.example",
            "127.0.0.1:80:80",
            "localhost:evil",
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
    fn a_page_of_another_origin_is_not_ours() {
        let own = |origins: &[&str]| {
            let mut request = Request::post("/v1/resolutions").header(HOST, "localhost:9180");
            for origin in origins {
                request = request.header(ORIGIN, *origin);
            }
            is_own_origin(&request.body(()).unwrap())
        };
        assert!(own(&[]) && own(&["http://localhost:9180"]) && own(&["https://LOCALHOST:9180"]));
        for origins in [
            &["null"][..],
            &["http://evil.example"],
            &["http://localhost:9181"],
            &["http://localhost:9180.evil.example"],
            &["localhost:9180"],
            &[""],
            &["http://localhost:9180"; 2],
        ] {
            assert!(!own(origins), "{origins:?}");
        }
    }
}
