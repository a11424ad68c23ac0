//! Upstreams that fail in every way we know: what the first caller gets, what a retry finds, and how often it happened.
//!
//! The running binary, real sockets, both stores, judged by the upstream's own ledger. How a fault is told from the
//! bytes on the wire is tested in `transport.rs`; what a status means, in `contract.rs`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

use std::path::PathBuf;
use std::time::Duration;

use crate::node::{self, Kept, Node, on_both_stores, pay, refused, start_with};
use hapax_testkit::ledger::{Answer, Behaviour, Ledger};
use hapax_testkit::raw_http::{ReadError, Response, request};
use hapax_testkit::tcp_proxy::TcpProxy;
use hapax_testkit::wait::holds_within;
use tempfile::TempDir;

on_both_stores! {
    each_fault_is_answered_recorded_and_counted_as_the_contract_says
    each_unusual_but_complete_answer_is_passed_on_and_replayed
    an_answer_with_a_larger_head_than_a_record_holds_is_passed_on_and_not_kept
    a_large_answer_that_breaks_off_is_unknown
    a_large_failure_leaves_the_key_ready_only_if_it_is_whole
    a_refused_connection_leaves_the_key_ready
    a_connection_that_was_closed_while_idle_is_not_used
    an_idle_close_race_makes_no_unknown
    a_tls_upstream_that_is_trusted_is_used
    a_tls_upstream_that_is_not_trusted_leaves_the_key_ready
    an_upstream_without_tls_behind_an_https_url_leaves_the_key_ready
    a_tls_handshake_that_hangs_leaves_the_key_ready
}

/// Short enough to wait for; longer than any answer here takes.
const ANSWER_TIMEOUT: &str = "[upstream]\nanswer_timeout = \"2s\"\n";

/// Every fault after the request has left: it happened once, the caller is told that nobody knows, and nobody runs it again.
fn faults() -> Vec<(&'static str, Behaviour)> {
    let raw = |text: &str| Behaviour::Raw(text.as_bytes().to_vec());
    vec![
        ("hang", Behaviour::Hang),
        ("closed without an answer", Behaviour::Drop),
        ("reset before the head", Behaviour::ResetBeforeHead),
        ("cut off in the head", raw("HTTP/1.1 201 Created\r\nContent-Le")),
        ("reset in the body", Behaviour::ResetInBody),
        ("short Content-Length", Behaviour::ShortLength),
        ("missing last chunk", Behaviour::MissingLastChunk),
        ("a chunk that is none", raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nab\r\n0\r\n\r\n")),
        ("1xx flood", Behaviour::InterimFlood(10_000)),
        ("1xx and then nothing", raw("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")),
        ("101 unasked", raw("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n")),
        ("two Content-Lengths", Behaviour::TwoLengths),
        ("the same length twice", raw("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok")),
        ("a length beside chunks", raw(BOTH_FRAMINGS)),
        ("a length that is none", raw("HTTP/1.1 200 OK\r\nContent-Length: 0x2\r\n\r\nok")),
        ("128 KB header", Behaviour::LargeHeader(128 * 1024)),
        ("1,000 headers", Behaviour::ManyHeaders(1_000)),
        ("no HTTP at all", raw("SSH-2.0-OpenSSH_9.2\r\n")),
        ("one byte per second", Behaviour::Drip(Duration::from_secs(1))),
    ]
}

const BOTH_FRAMINGS: &str =
    "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";

fn each_fault_is_answered_recorded_and_counted_as_the_contract_says(kept: Kept) {
    let node = start_with(kept, |builder| builder.with_config(ANSWER_TIMEOUT));
    for (at, (name, behaviour)) in faults().into_iter().enumerate() {
        let key = format!("fault-{at}");
        node.ledger.on(&key, behaviour);
        let first = node.send(&pay(&key));
        assert_eq!(refused(&first), (504, "outcome-unknown".into()), "{name}: the first caller");
        assert_eq!(first.header("cache-control"), Some("no-store"), "{name}");
        // If it ran again, it would succeed.
        node.ledger.on(&key, Behaviour::Echo);
        for _ in 0..2 {
            let retry = node.send(&pay(&key));
            assert_eq!(refused(&retry), (409, "outcome-unknown".into()), "{name}: a retry");
            assert!(retry.header("retry-after").is_some(), "{name}");
        }
        assert_eq!(node.ledger.executions(&key).len(), 1, "{name}: executions");
    }
    let healthy = node.send(&pay("after-all-of-them"));
    assert_eq!((healthy.status, node.hapax.metric("hapax_in_flight")), (201, 0.0), "nothing is left over");
}

/// What is unusual and complete all the same. The last column is what of the first answer's body is expected, where it is
/// not the echo.
fn complete() -> Vec<(&'static str, Behaviour, u16, Option<&'static [u8]>)> {
    let raw = |text: &str| Behaviour::Raw(text.as_bytes().to_vec());
    let empty = |status| Behaviour::Answer(Answer { status, ..Answer::default() });
    vec![
        ("no length, until close", Behaviour::UntilClose, 200, None),
        ("trailers", Behaviour::Trailers, 200, None),
        ("a few interim answers", Behaviour::InterimFlood(20), 201, None),
        ("a header of 16 KB", Behaviour::LargeHeader(16 * 1024), 201, None),
        ("a header of 60 KB", Behaviour::LargeHeader(60 * 1024), 201, None),
        ("100 headers", Behaviour::ManyHeaders(100), 201, None),
        ("250 headers", Behaviour::ManyHeaders(250), 201, None),
        ("204", empty(204), 204, Some(b"")),
        ("304, a length without a body", raw("HTTP/1.1 304 X\r\nContent-Length: 5\r\n\r\n"), 304, Some(b"")),
        ("an empty 200", empty(200), 200, Some(b"")),
        ("HTTP/1.0", raw("HTTP/1.0 200 OK\r\n\r\nold"), 200, Some(b"old")),
        ("an answer and garbage", raw("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokGARBAGE"), 200, Some(b"ok")),
        ("slow, in time", Behaviour::Delay(Duration::from_millis(300)), 201, None),
    ]
}

fn each_unusual_but_complete_answer_is_passed_on_and_replayed(kept: Kept) {
    let node = start_with(kept, |builder| builder.with_config(ANSWER_TIMEOUT));
    for (at, (name, behaviour, status, body)) in complete().into_iter().enumerate() {
        let key = format!("complete-{at}");
        node.ledger.on(&key, behaviour);
        let first = node.send(&pay(&key));
        assert_eq!((first.status, first.is_replay()), (status, false), "{name}: the first caller");
        match body {
            Some(body) => assert_eq!(first.body, body, "{name}"),
            None => assert_eq!(first.json()["id"], node.ledger.executions(&key)[0].id, "{name}"),
        }
        for _ in 0..2 {
            let retry = node.send(&pay(&key));
            assert!(retry.is_replay(), "{name}: {:?}", refused(&retry));
            assert_eq!((retry.status, &retry.body), (first.status, &first.body), "{name}: a retry");
            assert_eq!(retry.header("x-field-249"), first.header("x-field-249"), "{name}: a retry's fields");
        }
        assert_eq!(node.ledger.executions(&key).len(), 1, "{name}: executions");
    }
    let head = node.send(&request("HEAD", "/things/1"));
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert!(head.header("content-length").is_some(), "a HEAD tells the length of what a GET would give");
}

/// More than a record holds, and less than what is not read at all.
fn an_answer_with_a_larger_head_than_a_record_holds_is_passed_on_and_not_kept(kept: Kept) {
    let node = start_with(kept, |builder| builder);
    for (key, behaviour) in [("large", Behaviour::LargeHeader(64 * 1024)), ("many", Behaviour::ManyHeaders(400))] {
        node.ledger.on(key, behaviour);
        let first = node.send(&pay(key));
        assert_eq!((first.status, first.json()["id"].is_null()), (201, false), "{key}: {:?}", refused(&first));
        assert!(first.header("x-large").is_some() || first.header("x-field-399") == Some("399"), "{key}");
        assert_eq!(refused(&node.send(&pay(key))), (409, "answer-not-kept".into()), "{key}");
        node.ledger.assert_once(key);
    }
    node.ledger.on("more", Behaviour::ManyHeaders(1_000));
    assert_eq!(refused(&node.send(&pay("more"))), (504, "outcome-unknown".into()));
    node.hapax.line_with("the upstream's answer has more than 512 header fields, or more than 96 KiB of them");
}

/// Only a complete 500 frees its key, and it is complete when its last byte has come.
fn a_large_failure_leaves_the_key_ready_only_if_it_is_whole(kept: Kept) {
    let config = format!("{ANSWER_TIMEOUT}[defaults]\nanswer_bytes_max = \"1KiB\"\n");
    let node = start_with(kept, |builder| builder.with_config(&config));
    let text = "x".repeat(100_000);
    let chunked = |rest: &str| format!("HTTP/1.1 500 X\r\nTransfer-Encoding: chunked\r\n\r\n186a0\r\n{text}\r\n{rest}");
    let long = |length: usize| format!("HTTP/1.1 500 X\r\nContent-Length: {length}\r\n\r\n{text}");
    for (at, whole) in [long(100_000), chunked("0\r\n\r\n")].into_iter().enumerate() {
        let key = format!("whole-{at}");
        node.ledger.next(&key, Behaviour::Raw(whole.into_bytes()));
        let first = node.send(&pay(&key));
        assert_eq!((first.status, first.body.len()), (500, 100_000));
        let retry = node.send(&pay(&key));
        assert_eq!((retry.status, retry.is_replay()), (201, false), "{key}: it runs at once");
        assert_eq!(node.ledger.executions(&key).len(), 2, "{key}");
    }
    for (at, cut) in [long(100_001), chunked(""), chunked("zz")].into_iter().enumerate() {
        let key = format!("cut-{at}");
        node.ledger.next(&key, Behaviour::Raw(cut.into_bytes()));
        let first = pay(&key).try_send(node.hapax.address());
        assert!(!matches!(first, Ok(_) | Err(ReadError::Refused(_))), "{key}: the caller sees it: {first:?}");
        let is_unknown = || refused(&node.send(&pay(&key))) == (409, "outcome-unknown".into());
        assert!(holds_within(Duration::from_secs(5), is_unknown), "{key}");
        assert_eq!(node.ledger.executions(&key).len(), 1, "{key}");
    }
    assert_eq!(node.hapax.metric("hapax_in_flight"), 0.0, "nothing is left over");
}

/// Its beginning has reached the caller before the fault shows, but only a complete answer says that it was carried out.
fn a_large_answer_that_breaks_off_is_unknown(kept: Kept) {
    let node = start_with(kept, |builder| builder.with_config(ANSWER_TIMEOUT));
    let mut bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 9437184\r\n\r\n".to_vec();
    bytes.resize(bytes.len() + 1024, b'x');
    node.ledger.next("k", Behaviour::Raw(bytes));
    let cut = pay("k").try_send(node.hapax.address());
    assert!(!matches!(cut, Ok(_) | Err(ReadError::Refused(_))), "the caller sees that it is not whole: {cut:?}");
    let is_unknown = || refused(&node.send(&pay("k"))) == (409, "outcome-unknown".into());
    assert!(holds_within(Duration::from_secs(5), is_unknown));
    node.ledger.assert_once("k");
}

fn a_refused_connection_leaves_the_key_ready(kept: Kept) {
    let node = start_with(kept, |builder| builder);
    node.ledger.refuse(true);
    for _ in 0..3 {
        assert_eq!(refused(&node.send(&pay("k"))), (502, "upstream-unreachable".into()));
    }
    node.ledger.assert_never("k");
    node.ledger.refuse(false);
    let done = node.send(&pay("k"));
    assert_eq!((done.status, done.is_replay()), (201, false));
    assert_eq!(node.ledger.executions("k")[0].attempt.as_deref(), Some("4"), "the number only grows");
    assert_replayed(&node, "k", &done);
}

#[track_caller]
fn assert_replayed(node: &Node, key: &str, first: &Response) {
    let retry = node.send(&pay(key));
    assert_eq!((retry.is_replay(), &retry.body), (true, &first.body));
    node.ledger.assert_once(key);
}

fn a_connection_that_was_closed_while_idle_is_not_used(kept: Kept) {
    let node = start_with(kept, |builder| builder);
    for at in 0..30 {
        assert_eq!(node.send(&pay(&format!("k-{at}"))).status, 201, "request {at}");
        node.ledger.cut_connections();
    }
    assert_eq!(node.ledger.connections(), 30, "each connection was pooled, and found closed");
    node.ledger.assert_each_once(30);
}

/// The upstream closes after 120 ms, hapax keeps connections for 60 ms: pauses around both.
fn an_idle_close_race_makes_no_unknown(kept: Kept) {
    let ledger = Ledger::builder().with_idle_close(Duration::from_millis(120)).start();
    let node = behind(kept, ledger, "[upstream]\nidle_timeout = \"60ms\"\n");
    for at in 0..60 {
        let key = format!("k-{at}");
        let answer = node.send(&pay(&key));
        assert_eq!(answer.status, 201, "request {at}: {:?}", refused(&answer));
        // A pause, not a wait for something: what is tried is time itself.
        holds_within(Duration::from_millis([0, 55, 60, 65, 115, 120, 125][at % 7]), || false);
    }
    node.ledger.assert_each_once(60);
    assert!(node.ledger.connections() > 20, "connections were dropped in time: {}", node.ledger.connections());
}

/// A node in front of an upstream that the test has set up.
fn behind(kept: Kept, ledger: Ledger, config: &str) -> Node {
    let mut node = start_with(kept, |builder| builder.with_upstream(&ledger.url()).with_config(config));
    node.ledger = ledger;
    node
}

/// A certificate for 127.0.0.1 and who signed it, in files.
struct Authority {
    dir: TempDir,
    certificate: String,
    key: String,
}

impl Authority {
    fn new(name: &str) -> Authority {
        let dir = TempDir::new().unwrap();
        let ca_key = rcgen::KeyPair::generate().unwrap();
        let mut ca = rcgen::CertificateParams::new(Vec::new()).unwrap();
        ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        ca.distinguished_name.push(rcgen::DnType::CommonName, dir.path().display().to_string());
        std::fs::write(dir.path().join("ca.pem"), ca.self_signed(&ca_key).unwrap().pem()).unwrap();
        let issuer = rcgen::Issuer::new(ca, ca_key);
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &issuer);
        Authority { dir, certificate: certificate.unwrap().pem(), key: key.serialize_pem() }
    }

    fn ledger(&self) -> Ledger {
        Ledger::builder().with_tls(&self.certificate, &self.key).start()
    }

    fn ca_file(&self) -> PathBuf {
        self.dir.path().join("ca.pem")
    }

    fn config(&self) -> String {
        format!("[upstream]\nca_file = \"{}\"\n", self.ca_file().display())
    }
}

fn a_tls_upstream_that_is_trusted_is_used(kept: Kept) {
    let authority = Authority::new("127.0.0.1");
    let node = behind(kept, authority.ledger(), &authority.config());
    for key in ["a", "b"] {
        let first = node.send(&pay(key));
        assert_eq!((first.status, first.is_replay()), (201, false), "{:?}", refused(&first));
        assert_replayed(&node, key, &first);
    }
    assert_eq!(node.ledger.connections(), 1, "it is kept for the next request");
    node.ledger.on("cut", Behaviour::ResetInBody);
    assert_eq!(refused(&node.send(&pay("cut"))), (504, "outcome-unknown".into()), "faults mean the same over TLS");
    assert_eq!(refused(&node.send(&pay("cut"))), (409, "outcome-unknown".into()));
    node.ledger.assert_once("cut");
}

fn a_tls_upstream_that_is_not_trusted_leaves_the_key_ready(kept: Kept) {
    let (ours, other, elsewhere) = (Authority::new("127.0.0.1"), Authority::new("127.0.0.1"), Authority::new("a.test"));
    for (name, shown, trusted, why) in [
        ("an unknown authority", &ours, &other, "(UnknownIssuer); give its authority's certificate with --upstream-ca"),
        ("another name", &elsewhere, &elsewhere, "(NotValidForName); write one of its names in upstream.to"),
    ] {
        let mut node = behind(kept, shown.ledger(), &trusted.config());
        for _ in 0..2 {
            assert_eq!(refused(&node.send(&pay("k"))), (502, "upstream-unreachable".into()), "{name}");
        }
        assert!(node.ledger.all().is_empty(), "{name}: nothing of the request was sent");
        let said = node.hapax.line_with(why);
        assert!(said.contains("upstream-unreachable"), "{name}: {said}");
        if trusted.certificate != shown.certificate {
            node.hapax.write_config(&shown.config());
            node.hapax.restart();
            let done = node.send(&pay("k"));
            assert_eq!((done.status, done.is_replay()), (201, false), "{name}: the key was ready");
            assert_replayed(&node, "k", &done);
        }
    }
}

fn an_upstream_without_tls_behind_an_https_url_leaves_the_key_ready(kept: Kept) {
    let node = start_with(kept, |builder| builder);
    let https = format!("https://{}", node.ledger.address());
    let wrong = start_with(kept, |builder| builder.with_upstream(&https));
    assert_eq!(refused(&wrong.send(&pay("k"))), (502, "upstream-unreachable".into()));
    assert_eq!(refused(&wrong.send(&pay("k"))), (502, "upstream-unreachable".into()), "and not 409");
    wrong.hapax.line_with("closed the connection in the TLS handshake; check that it speaks TLS at that port");
    node.ledger.assert_never("k");
}

fn a_tls_handshake_that_hangs_leaves_the_key_ready(kept: Kept) {
    let authority = Authority::new("127.0.0.1");
    let ledger = authority.ledger();
    let line = TcpProxy::in_front_of(ledger.address());
    let config = format!("{}connect_timeout = \"300ms\"\n", authority.config());
    let to = format!("https://{}", line.address());
    let mut node = start_with(kept, |builder| builder.with_upstream(&to).with_config(&config));
    node.ledger = ledger;
    line.black_hole(true);
    assert_eq!(refused(&node.send(&pay("k"))), (502, "upstream-unreachable".into()));
    node.ledger.assert_never("k");
    line.heal();
    let done = node.send(&pay("k"));
    assert_eq!((done.status, done.is_replay()), (201, false), "{:?}", refused(&done));
    assert_replayed(&node, "k", &done);
}
