//! What a request may be taken for by whoever is behind: other spellings of a path, other methods, and fields that name
//! another path, host or client. None of them leads to laxer rules, and none reaches the upstream unless it is trusted.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

use crate::node::{Kept, pay, refused, start, start_with, unkeyed};
use hapax_testkit::raw_http::{Conn, request};

const ONE_ROUTE: &str = "[defaults]\nprotect = false\n\n[[route]]\nmethods = [\"POST\"]\npath = \"/pay\"\n";

#[test]
fn every_spelling_of_a_protected_path_is_protected() {
    let node = start_with(Kept::Sqlite, |builder| builder.with_config(ONE_ROUTE));
    let spellings = "/PAY /Pay /pay.json /pay.XML /pay. /pay.. /pay%20 /pay%20%20. /pay%00 /pay%00.png /pay%2e /%2570ay \
                     /%25%37%30ay /pay%3Fx /pay%0a \
                     /%252570ay /PAY.json /%50ay/ /x/..%252fpay /pay;v=1.json /pay.json;v=1 //PAY %2fPAY.";
    for path in spellings.split_whitespace() {
        let path = if path.starts_with('%') { format!("/x/..{path}") } else { path.to_owned() };
        let answer = node.send(&request("POST", &path).header("Authorization", "Bearer a").body("{}"));
        assert_eq!(refused(&answer), (400, "key-missing".into()), "{path}");
    }
    for path in ["/", "/pays", "/paid.json", "/pay/1", "/p.ay", "/pay.json/1", "/.json", "/pay%2Bx", "/xpay", "/pa"] {
        let answer = node.send(&request("POST", path).header("Authorization", "Bearer a").body("{}"));
        assert_eq!(answer.status, 201, "{path}");
    }
    assert_eq!(node.ledger.received().len(), 10);
}

#[test]
fn an_override_never_takes_a_request_out_of_protection() {
    let node = start(Kept::Sqlite);
    for name in ["X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"] {
        for asked in ["PUT", "DELETE", "GET", "put"] {
            let answer = node.send(&unkeyed("{}").header(name, asked));
            assert_eq!(refused(&answer), (400, "key-missing".into()), "{name}: {asked}");
        }
        let (key, keyed) =
            (format!("k-{name}"), |request: hapax_testkit::raw_http::Request| request.header(name, "PUT"));
        assert_eq!(node.send(&keyed(pay(&key))).status, 201);
        assert!(node.send(&keyed(pay(&key))).is_replay());
        assert_eq!(refused(&node.send(&pay(&key))), (422, "key-reused".into()), "without it, it is another request");
        node.ledger.assert_once(&key);
        let get = request("GET", "/x").header("Authorization", "Bearer a").header(name, "POST");
        assert_eq!(refused(&node.send(&get)), (400, "key-missing".into()), "{name}");
    }
}

/// Fields by which whoever is behind may take a request for that of another client, host or path.
const SAID_BY_PROXIES: &str = "X-Real-IP True-Client-IP Client-IP X-Client-IP X-Cluster-Client-IP CF-Connecting-IP \
    CF-Connecting-IPv6 Fastly-Client-IP X-Forwarded Forwarded-For X-Originating-IP X-Remote-IP X-Remote-Addr X-Host \
    X-Original-Host X-Forwarded-Server X-Original-URL X-Rewrite-URL X-Original-Forwarded-For X-ProxyUser-IP \
    X-Azure-ClientIP X-Envoy-External-Address X-HTTP-Host-Override X_Real_IP X_Original_URL";

#[test]
fn what_only_a_proxy_may_say_is_removed_unless_the_peer_is_trusted() {
    for trusted in [false, true] {
        let config = if trusted { "[server]\ntrusted_peers = [\"127.0.0.0/8\"]\n" } else { "" };
        let node = start_with(Kept::Sqlite, |builder| builder.with_config(config));
        for name in SAID_BY_PROXIES.split_whitespace() {
            let answer = node.send(&request("GET", "/x").header(name, "198.51.100.7").header("X-Kept", "yes"));
            assert_eq!(answer.status, 200);
            let last = node.ledger.last();
            let kept = trusted && !name.contains('_');
            assert_eq!(last.header(name).is_some(), kept, "{name}, trusted: {trusted}");
            assert_eq!(last.header("x-kept"), Some("yes"));
        }
    }
}

#[test]
fn a_path_that_a_trusted_gateway_names_counts_for_rules_and_comparisons() {
    let config = format!("{ONE_ROUTE}\n[server]\ntrusted_peers = [\"127.0.0.0/8\"]\n");
    let node = start_with(Kept::Sqlite, |builder| builder.with_config(&config));
    for name in ["X-Original-URL", "X-Rewrite-URL"] {
        for path in ["/pay", "/PAY?a=1", "http://shop/pay"] {
            let open = request("POST", "/open").header("Authorization", "Bearer a").body("{}");
            let named = |path: &str| open.clone().header(name, path);
            assert_eq!(refused(&node.send(&named(path))), (400, "key-missing".into()), "{name}: {path}");
            let key = format!("{name}-{path}");
            let keyed = |path: &str| named(path).header("Idempotency-Key", &key);
            assert_eq!(node.send(&keyed(path)).status, 201);
            assert!(node.send(&keyed(path)).is_replay());
            assert_eq!(refused(&node.send(&keyed("/pay/"))), (422, "key-reused".into()), "{name}: {path}");
        }
        let open = request("POST", "/open").header("Authorization", "Bearer a").body("{}");
        assert_eq!(node.send(&open.header(name, "/free")).status, 201);
    }
}

#[test]
fn what_can_be_read_in_two_ways_or_tells_too_much_is_refused() {
    let node = start(Kept::Sqlite);
    for length in ["05", "00", "000000005"] {
        let mut conn = Conn::open(node.hapax.address());
        conn.write(format!("PUT /x HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\nhello").as_bytes());
        assert_eq!(refused(&conn.read_response().unwrap()), (400, "bad-framing".into()), "{length}");
    }
    for method in ["TRACE", "trace", "TRACK"] {
        assert_eq!(refused(&node.send(&request(method, "/x"))), (405, "method-not-allowed".into()), "{method}");
    }
    assert!(node.ledger.received().is_empty());
    let empty = node.send(&request("PUT", "/x").header("Content-Length", "0"));
    assert_eq!(empty.status, 200, "a single zero is a number");
}
