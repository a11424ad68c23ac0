//! What passes through the whole binary unharmed: upgrades, expectations, trailers, HTTP/2.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;

use crate::node::{Kept, pay, refused, start, start_with, unkeyed};
use hapax_testkit::hapax::Hapax;
use hapax_testkit::ledger::{Answer, Behaviour};
use hapax_testkit::needs_clients;
use hapax_testkit::raw_http::{Conn, Request, Response, request};

/// Reads a head, to its empty line.
fn read_head(stream: &mut TcpStream) -> String {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

#[test]
fn a_websocket_speaks_both_ways_after_the_upstream_agreed() {
    let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", upstream.local_addr().unwrap());
    let hapax = Hapax::builder(env!("CARGO_BIN_EXE_hapax")).with_upstream(&url).start();
    let echo = std::thread::spawn(move || {
        let (mut stream, _) = upstream.accept().unwrap();
        let head = read_head(&mut stream).to_ascii_lowercase();
        assert!(head.contains("upgrade: websocket") && head.contains("sec-websocket-key: x3jj"), "{head}");
        stream
            .write_all(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
            .unwrap();
        let mut frame = [0; 4];
        stream.read_exact(&mut frame).unwrap();
        frame.reverse();
        stream.write_all(&frame).unwrap();
    });
    let mut client = TcpStream::connect(hapax.address()).unwrap();
    let ask = "GET /chat HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: x3JJ\r\n\
               Sec-WebSocket-Version: 13\r\n\r\n";
    client.write_all(ask.as_bytes()).unwrap();
    let head = read_head(&mut client);
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    client.write_all(b"abcd").unwrap();
    let mut frame = [0; 4];
    client.read_exact(&mut frame).unwrap();
    assert_eq!(&frame, b"dcba");
    echo.join().unwrap();
}

#[test]
fn a_protected_request_never_becomes_a_websocket() {
    let node = start(Kept::Sqlite);
    let ask = request("GET", "/payments")
        .header("Authorization", "Bearer alice-secret")
        .header("Idempotency-Key", "w")
        .header("X-HTTP-Method-Override", "POST")
        .header("Connection", "Upgrade")
        .header("Upgrade", "websocket")
        .header("Sec-WebSocket-Key", "x3JJ");
    let mut conn = Conn::open(node.hapax.address());
    let first = conn.send(&ask);
    assert!(first.status < 300 && first.status >= 200 && !first.is_replay(), "{first:?}");
    let seen = node.ledger.last();
    assert_eq!(
        (seen.header("upgrade"), seen.header("connection")),
        (None, None),
        "the upstream is not asked to leave HTTP"
    );
    let retry = conn.send(&ask);
    assert_eq!((retry.is_replay(), retry.status, &retry.body), (true, first.status, &first.body));
    assert_eq!(node.ledger.executions("w").len(), 1);
    conn.expect_usable("/after");
}

#[test]
fn a_client_that_expects_100_gets_a_refusal_at_once_and_otherwise_100_first() {
    let node = start(Kept::Sqlite);
    let mut conn = Conn::open(node.hapax.address());
    let waiting = unkeyed("{\"amount\":1}").header("Expect", "100-continue");
    let head = waiting.bytes().len() - 12;
    conn.write_part(&waiting, head);
    let refused = conn.read_response().unwrap();
    assert_eq!((refused.status, refused.interim), (400, vec![]), "the body was never asked for");
    let mut conn = Conn::open(node.hapax.address());
    let waiting = unkeyed("{\"amount\":1}").header("Expect", "100-continue").header("Idempotency-Key", "e");
    let bytes = waiting.bytes();
    conn.write(&bytes[..bytes.len() - 12]);
    assert!(conn.read_bytes(25).starts_with(b"HTTP/1.1 100 Continue\r\n\r\n"));
    conn.write(&bytes[bytes.len() - 12..]);
    assert_eq!(conn.read_response().unwrap().status, 201);
    node.ledger.assert_once("e");
}

#[test]
fn a_refusal_before_the_end_of_the_body_says_that_the_connection_closes() {
    let config = "[defaults]\nrequest_bytes_max = \"1KiB\"\n[server]\nbody_timeout = \"1s\"\n";
    let node = start_with(Kept::Sqlite, |builder| builder.with_config(config));
    let large = |bytes: usize| unkeyed(&"x".repeat(bytes)).header("Idempotency-Key", "k");
    let waiting = unkeyed("{}").header("Expect", "100-continue");
    let cut = |request: &Request, left: usize| {
        let bytes = request.bytes();
        bytes[..bytes.len() - left].to_vec()
    };
    for (bytes, problem) in [
        (cut(&waiting, 2), (400, "key-missing")),
        (cut(&unkeyed("{}"), 1), (400, "key-missing")),
        (large(1_000_000).bytes(), (413, "body-too-large")),
        (large(1_000_000).chunked().bytes(), (413, "body-too-large")),
        (cut(&large(1_000), 1), (408, "body-incomplete")),
        (cut(&waiting.header("Idempotency-Key", "\"a"), 2), (400, "key-malformed")),
    ] {
        let mut conn = Conn::open(node.hapax.address());
        // The refusal may come before the last byte is taken.
        let _ = conn.try_write(&bytes);
        let refusal = conn.read_response().unwrap();
        assert_eq!(refused(&refusal), (problem.0, problem.1.to_owned()));
        assert_eq!(refusal.header("connection"), Some("close"), "{problem:?}");
        conn.expect_closed();
    }
    for read in [unkeyed("{}"), large(2_000), large(2_000).chunked(), unkeyed("").header("Expect", "100-continue")] {
        let mut conn = Conn::open(node.hapax.address());
        let refusal = conn.send(&read);
        assert_eq!((refusal.status / 100, refusal.header("connection")), (4, None));
        conn.expect_usable("/after");
    }
}

#[test]
fn a_retry_gets_the_fields_in_the_order_of_the_first_answer() {
    let node = start(Kept::Sqlite);
    let field = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    let headers = [
        ("X-O1", "1"),
        ("Connection", "keep-alive"),
        ("X-O2", "2"),
        ("Keep-Alive", "timeout=5"),
        ("X-O3", "3"),
        ("X-O2", "2b"),
        ("X-O4", "4"),
        ("X-O5", "5"),
        ("X-O6", "6"),
    ];
    let answer = Answer { status: 201, headers: headers.map(field).to_vec(), ..Answer::default() };
    node.ledger.on("*", Behaviour::Answer(answer));
    let own = |response: &Response| {
        let own = response.headers.iter().filter(|(name, _)| name.to_lowercase().starts_with("x-o"));
        own.map(|(_, value)| value.clone()).collect::<Vec<_>>()
    };
    let (first, retry) = (node.send(&pay("k")), node.send(&pay("k")));
    assert!(retry.is_replay());
    assert_eq!((own(&first), own(&retry)), (own(&first), own(&first)));
    assert_eq!(own(&first), ["1", "2", "2b", "3", "4", "5", "6"]);
}

#[test]
fn a_client_cannot_remove_the_fields_that_the_configuration_names() {
    let config =
        |key: &str| format!("scope = [\"credential:X-Api-Key\", \"header:X-Tenant\"]\n[keys]\nheaders = [\"{key}\"]\n");
    let with_config = config("X-Request-Key");
    let mut node = start_with(Kept::Sqlite, |builder| builder.with_scope("").with_config(&with_config));
    let named = |field: &str, key: &str| {
        request("POST", "/payments")
            .header("X-Api-Key", "secret")
            .header("X-Tenant", "acme")
            .header("X-Own", "1")
            .header(field, key)
            .header("Connection", &format!("X-Own, X-Api-Key, X-Tenant, {field}"))
            .body("{}")
    };
    let first = node.send(&named("X-Request-Key", "k"));
    assert_eq!(first.status, 201, "{:?}", refused(&first));
    assert!(node.send(&named("X-Request-Key", "k")).is_replay());
    let seen = node.ledger.last();
    for (field, values) in [("x-request-key", vec!["k"]), ("x-api-key", vec!["secret"]), ("x-own", vec![])] {
        assert_eq!(seen.all(field), values, "{field}");
    }
    // A reload names another one.
    node.hapax.write_config(&config("X-Other-Key"));
    node.hapax.hup();
    node.hapax.line_with("the configuration was reloaded");
    let other = node.send(&named("X-Other-Key", "k2"));
    assert_eq!(other.status, 201, "{:?}", refused(&other));
}

#[test]
fn trailers_reach_the_first_caller() {
    let node = start(Kept::Sqlite);
    node.ledger.on("*", Behaviour::Trailers);
    let get = node.send(&request("GET", "/trailers").header("TE", "trailers"));
    assert!(!get.trailers.is_empty(), "{get:?}");
    let first = node.send(&pay("t").header("TE", "trailers"));
    assert!(first.status == 200 && !first.trailers.is_empty(), "{first:?}");
    assert!(node.send(&pay("t")).is_replay());
    node.ledger.assert_once("t");
}

/// One hapax behind another: the marks are those of the first that protects the request.
#[test]
fn the_outer_of_two_nodes_says_what_a_replay_is_and_passes_on_what_it_does_not_protect() {
    let inner = start(Kept::Sqlite);
    let outer = |config: &str| {
        let outer = Hapax::builder(env!("CARGO_BIN_EXE_hapax")).with_upstream(&inner.hapax.url());
        outer.with_config(config).start()
    };
    let (protecting, passing) = (outer(""), outer("[defaults]\nprotect = false\n"));
    assert!(!pay("k").send(inner.hapax.address()).is_replay());
    let first = pay("k").send(protecting.address());
    assert_eq!(
        (first.status, first.header("idempotent-replayed"), first.header("idempotency-expires")),
        (201, None, None)
    );
    let again = pay("k").send(protecting.address());
    assert!(again.is_replay() && again.all("idempotency-expires").len() == 1, "{again:?}");
    let passed = pay("k").send(passing.address());
    assert!(passed.is_replay() && passed.header("idempotency-expires").is_some(), "{passed:?}");
    inner.ledger.assert_once("k");
}

#[test]
fn http_2_is_spoken_with_prior_knowledge() {
    needs_clients!();
    let node = start(Kept::Sqlite);
    let curl = |key: &str| {
        let out = Command::new("curl")
            .args([
                "-sS",
                "--http2-prior-knowledge",
                "-o",
                "/dev/null",
                "-w",
                "%{http_version} %{http_code} %header{idempotent-replayed}",
            ])
            .args(["-d", "{}", "-H", "Authorization: Bearer a", "-H", &format!("Idempotency-Key: {key}")])
            .arg(format!("{}/payments", node.hapax.url()))
            .output()
            .unwrap();
        String::from_utf8(out.stdout).unwrap()
    };
    assert_eq!(curl("h2").trim(), "2 201");
    assert_eq!(curl("h2").trim(), "2 201 true");
    node.ledger.assert_once("h2");
}

#[test]
fn a_body_that_stands_still_is_ended_with_408() {
    let node = start_with(Kept::Sqlite, |builder| builder.with_config("[server]\nbody_timeout = \"200ms\"\n"));
    let mut conn = Conn::open(node.hapax.address());
    let slow = pay("slow");
    conn.write_part(&slow, slow.bytes().len() - 5);
    let ended = conn.read_response().unwrap();
    assert_eq!(refused(&ended), (408, "body-incomplete".into()));
    conn.expect_closed();
    node.ledger.assert_never("slow");
    assert_eq!(node.send(&pay("slow")).status, 201);
}
