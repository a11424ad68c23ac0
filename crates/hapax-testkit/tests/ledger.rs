//! The upstream that keeps a ledger, asked over raw sockets: what it writes down, and each of its ways to misbehave.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use hapax_testkit::ledger::{Answer, Behaviour, Ledger};
use hapax_testkit::raw_http::{Conn, ReadError, Request, request};
use hapax_testkit::wait::until;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

fn charge(key: &str) -> Request {
    request("POST", "/charges?a=1")
        .header("Authorization", "Bearer alice")
        .header("Idempotency-Key", key)
        .body("amount=1")
}

fn treated(behaviour: &str) -> Request {
    charge("k").header("X-Test-Behaviour", behaviour)
}

#[test]
fn an_execution_is_written_down_in_full() {
    let ledger = Ledger::start();
    let answer = charge("\"k-1\"").header("Idempotency-Attempt", "3").send(ledger.address());
    assert_eq!(answer.status, 201);
    let [entry] = &ledger.executions("k-1")[..] else { panic!("one entry") };
    assert_eq!((entry.sequence, entry.method.as_str(), entry.path.as_str()), (1, "POST", "/charges"));
    assert_eq!((entry.query.as_deref(), entry.attempt.as_deref()), (Some("a=1"), Some("3")));
    assert_eq!(entry.tenant.as_deref(), Some("Bearer alice"));
    assert_eq!(entry.body_sha256, "5a8787b9c0914d84003dfd8d0d80838ade4f3bd17cd6f978296df97b5f21b922");
    assert_eq!(answer.json()["id"], entry.id.as_str());
}

#[test]
fn two_executions_never_give_equal_bytes() {
    let ledger = Ledger::start();
    let (first, second) = (charge("k").send(ledger.address()), charge("k").send(ledger.address()));
    assert_ne!(first.body, second.body);
    assert_eq!(ledger.executions("k").len(), 2);
}

#[test]
#[should_panic(expected = "executed 2 times, not 1")]
fn a_second_execution_fails_the_assertion() {
    let ledger = Ledger::start();
    charge("k").send(ledger.address());
    charge("k").send(ledger.address());
    ledger.assert_once("k");
}

#[test]
fn tenants_are_told_apart() {
    let ledger = Ledger::builder().with_tenant_header("X-Tenant").start();
    for tenant in ["a", "b"] {
        request("POST", "/").header("X-Tenant", tenant).header("Idempotency-Key", "k").send(ledger.address());
    }
    ledger.assert_once_by("a", "k");
    ledger.assert_once_by("b", "k");
    ledger.assert_each_once(2);
    ledger.assert_never("other");
}

#[test]
fn half_a_request_is_no_execution() {
    let ledger = Ledger::start();
    let whole = charge("k");
    for count in [1, 20, whole.bytes().len() - 1] {
        let mut conn = Conn::open(ledger.address());
        conn.write_part(&whole, count);
        conn.half_close();
        conn.expect_closed();
    }
    assert_eq!((ledger.all().len(), ledger.broken()), (0, 3));
}

#[test]
fn a_request_framed_twice_is_no_execution() {
    let ledger = Ledger::start();
    let mut conn = Conn::open(ledger.address());
    conn.write(b"POST / HTTP/1.1\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
    conn.expect_closed();
    assert_eq!((ledger.all().len(), ledger.broken()), (0, 1));
}

#[test]
fn it_remembers_after_a_restart() {
    let mut ledger = Ledger::start();
    charge("k-1").send(ledger.address());
    let before = ledger.all();
    ledger.restart();
    assert_eq!(ledger.all(), before);
    charge("k-2").send(ledger.address());
    assert_eq!(ledger.executions("k-2")[0].sequence, 2);
    let other = Ledger::builder().with_file(ledger.file()).start();
    assert_eq!(other.all(), ledger.all());
}

#[test]
fn connections_are_kept_and_requests_kept_apart() {
    let ledger = Ledger::start();
    let mut conn = Conn::open(ledger.address());
    assert_eq!(conn.send(&charge("k-1").chunked()).json()["body"], "amount=1");
    assert_eq!(conn.send(&charge("k-2")).json()["key"], "k-2");
    assert_eq!(conn.expect_usable("/health").status, 200);
    assert_eq!(ledger.connections(), 1);
    assert_eq!(conn.send(&request("HEAD", "/").header("Connection", "close")).body, b"");
    conn.expect_closed();
}

#[test]
fn the_whole_request_can_be_looked_at() {
    let ledger = Ledger::start();
    request("POST", "/p").header("B", "1").header("a", "2").header("B", "3").body("x").send(ledger.address());
    let last = ledger.last();
    assert_eq!((last.all("b"), last.header("A"), last.body.as_slice()), (vec!["1", "3"], Some("2"), &b"x"[..]));
}

#[test]
fn a_continue_is_sent_where_it_is_waited_for() {
    let ledger = Ledger::start();
    let answer = charge("k").header("Expect", "100-continue").send(ledger.address());
    assert_eq!((answer.interim, answer.status), (vec![100], 201));
}

#[test]
fn the_field_wins_over_a_key_a_key_over_a_path_and_a_path_over_everything() {
    let ledger = Ledger::start();
    let status = |request: Request| request.send(ledger.address()).status;
    ledger.on("*", Behaviour::answer(202, ""));
    ledger.on("/charges", Behaviour::answer(402, ""));
    ledger.on("k", Behaviour::answer(418, ""));
    ledger.next("/charges", Behaviour::answer(500, ""));
    ledger.next("/charges", Behaviour::answer(501, ""));
    assert_eq!(status(treated("answer 299")), 299);
    assert_eq!([status(charge("x")), status(charge("x")), status(charge("x"))], [500, 501, 402]);
    assert_eq!((status(charge("k")), status(request("GET", "/"))), (418, 202));
    ledger.forget_rules();
    assert_eq!(status(charge("k")), 201);
    assert_eq!(ledger.all().last().unwrap().treated, "echo");
}

#[test]
fn the_first_execution_of_a_key_can_be_treated_otherwise() {
    let ledger = Ledger::start();
    let flaky = treated("first answer 500");
    assert_eq!([flaky.send(ledger.address()).status, flaky.send(ledger.address()).status], [500, 201]);
}

#[test]
fn an_answer_is_exactly_what_was_asked_for() {
    let ledger = Ledger::start();
    let headers =
        vec![("B".to_owned(), "1".to_owned()), ("A".to_owned(), "2".to_owned()), ("B".to_owned(), "3".to_owned())];
    let answer = Answer { status: 422, headers, body: b"no".to_vec(), delay: Duration::from_millis(1) };
    ledger.on("*", Behaviour::Answer(answer));
    let got = charge("k").send(ledger.address());
    assert_eq!(
        (got.status, got.all("b"), got.header("a"), got.text()),
        (422, vec!["1", "3"], Some("2"), "no".to_owned())
    );
}

#[test]
fn an_answer_can_drip() {
    let ledger = Ledger::start();
    let mut conn = Conn::open(ledger.address());
    conn.write(&treated("drip 0").bytes());
    assert_eq!(conn.read_response().unwrap().json()["key"], "k");
    conn.write(&treated("drip 60000").bytes());
    assert_eq!(conn.read_bytes(1), b"H");
    conn.set_deadline(Duration::from_millis(20));
    assert!(matches!(conn.read_response(), Err(ReadError::TimedOut)));
}

#[test]
fn it_executes_and_tells_nobody() {
    let ledger = Ledger::start();
    assert!(matches!(treated("drop").try_send(ledger.address()), Err(ReadError::Closed)));
    assert!(matches!(treated("reset-before-head").try_send(ledger.address()), Err(ReadError::Reset)));
    assert!(matches!(treated("reset-in-body").try_send(ledger.address()), Err(ReadError::Reset)));
    assert!(matches!(treated("short-length").try_send(ledger.address()), Err(ReadError::Truncated(_))));
    assert!(matches!(treated("missing-last-chunk").try_send(ledger.address()), Err(ReadError::Truncated(_))));
    let all: Vec<_> = ledger.all().into_iter().map(|entry| entry.treated).collect();
    assert_eq!(all, ["drop", "reset-before-head", "reset-in-body", "short-length", "missing-last-chunk"]);
}

#[test]
fn it_hangs_until_the_client_goes() {
    let ledger = Ledger::start();
    let mut conn = Conn::open(ledger.address());
    conn.set_deadline(Duration::from_millis(50));
    assert!(matches!(conn.try_send(&treated("hang")), Err(ReadError::TimedOut)));
    conn.half_close();
    conn.expect_closed();
    ledger.assert_once("k");
}

#[test]
fn floods_and_large_heads_are_well_formed() {
    let ledger = Ledger::start();
    assert_eq!(treated("interim-flood 500").send(ledger.address()).interim.len(), 500);
    assert_eq!(treated("large-header 65536").send(ledger.address()).header("x-large").unwrap().len(), 65536);
    assert!(treated("many-headers 1000").send(ledger.address()).headers.len() >= 1000);
    assert_eq!(treated("large-body 3000000").send(ledger.address()).body.len(), 3_000_000);
}

#[test]
fn two_lengths_differ() {
    let ledger = Ledger::start();
    let mut conn = Conn::open(ledger.address());
    conn.write(&treated("two-lengths").bytes());
    let text = String::from_utf8(conn.read_to_end().unwrap()).unwrap();
    let lengths: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("Content-Length: ")).collect();
    assert_eq!(lengths.len(), 2);
    assert_ne!(lengths[0], lengths[1]);
}

#[test]
fn streams_cookies_trailers_and_open_ends_are_well_formed() {
    let ledger = Ledger::start();
    let stream = treated("stream 3 1").send(ledger.address());
    assert_eq!((stream.text().matches("data: ").count(), stream.header("content-length")), (3, None));
    assert_eq!(treated("cookies").send(ledger.address()).all("set-cookie").len(), 2);
    assert_eq!(treated("trailers").send(ledger.address()).trailers, [("X-Sum".to_owned(), "1".to_owned())]);
    assert_eq!(treated("until-close").send(ledger.address()).json()["key"], "k");
    let later = treated("retry-later 429 7").send(ledger.address());
    assert_eq!((later.status, later.header("retry-after")), (429, Some("7")));
    ledger.on("*", Behaviour::Raw(b"HTTP/1.1 204 No\r\nContent-Length: 3\r\n\r\nabc".to_vec()));
    let mut conn = Conn::open(ledger.address());
    conn.write(&charge("k").bytes());
    assert!(conn.read_to_end().unwrap().ends_with(b"abc"));
}

#[test]
fn a_held_request_is_in_the_ledger_and_waits() {
    let ledger = Ledger::start();
    ledger.hold("k");
    let mut held = Conn::open(ledger.address());
    held.write(&charge("k").bytes());
    ledger.wait_until_received("k");
    assert_eq!(charge("other").send(ledger.address()).status, 201);
    held.set_deadline(Duration::from_millis(20));
    assert!(matches!(held.read_response(), Err(ReadError::TimedOut)));
    ledger.release("k");
    held.set_deadline(Duration::from_secs(20));
    assert_eq!(held.read_response().unwrap().json()["key"], "k");
    ledger.wait_for_executions("*", 2);
}

#[test]
fn it_refuses_and_accepts_again_and_cuts_what_is_open() {
    let ledger = Ledger::start();
    let mut open = Conn::open(ledger.address());
    assert_eq!(open.expect_usable("/").status, 200);
    ledger.refuse(true);
    assert!(matches!(Conn::try_open(ledger.address()), Err(ReadError::Refused(_))));
    assert_eq!(open.expect_usable("/").status, 200);
    ledger.refuse(false);
    assert_eq!(charge("k").send(ledger.address()).status, 201);
    ledger.cut_connections();
    open.expect_closed();
}

#[test]
fn an_idle_connection_is_closed_in_its_time() {
    let ledger = Ledger::builder().with_idle_close(Duration::from_millis(30)).start();
    let mut conn = Conn::open(ledger.address());
    assert_eq!(conn.expect_usable("/").status, 200);
    conn.expect_closed();
}

#[test]
fn it_speaks_tls_with_the_given_certificate() {
    let own = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let ledger = Ledger::builder().with_tls(&own.cert.pem(), &own.signing_key.serialize_pem()).start();
    assert!(ledger.url().starts_with("https://127.0.0.1:"));
    let mut roots = RootCertStore::empty();
    roots.add(own.cert.der().clone()).unwrap();
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    let tls = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut stream = StreamOwned::new(tls, TcpStream::connect(ledger.address()).unwrap());
    stream.write_all(&charge("k").header("Connection", "close").bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 201 "), "{text}");
    ledger.assert_once("k");
    assert!(charge("k").try_send(ledger.address()).is_err());
}

#[test]
fn a_reset_of_the_client_is_no_end_of_the_ledger() {
    let ledger = Ledger::start();
    let mut conn = Conn::open(ledger.address());
    conn.write_part(&charge("k"), 30);
    conn.reset();
    assert_eq!(charge("k").send(ledger.address()).status, 201);
    ledger.assert_once("k");
}

#[test]
fn late_work_goes_on_without_its_caller_and_is_known_when_it_is_done() {
    let ledger = Ledger::start();
    let (late, answer) = (Duration::from_millis(300), Behaviour::LargeBody(100));
    ledger.on("/payments", Behaviour::Late(late, Box::new(answer.clone())));
    ledger.on("/look-up", Behaviour::LookUp(Box::new(answer)));
    let ask = request("GET", "/look-up?key=k-1");
    let mut conn = Conn::open(ledger.address());
    conn.write(&request("POST", "/payments").header("Idempotency-Key", "k-1").body("1").bytes());
    // On the same thread of the ledger, so the payment was read before this.
    until("the work has begun", Duration::from_secs(5), || ledger.received().iter().any(|had| had.method == "POST"));
    drop(conn);
    assert_eq!(ask.send(ledger.address()).status, 404, "it has not happened yet");
    ledger.assert_never("k-1");
    ledger.wait_until_idle();
    ledger.assert_once("k-1");
    let found = ask.send(ledger.address());
    assert_eq!((found.status, found.body.len()), (200, 100));
    assert!(found.body.starts_with(ledger.executions("k-1")[0].id.as_bytes()));
    assert_eq!(request("GET", "/look-up").send(ledger.address()).status, 404);
    assert_eq!(ledger.all().len(), 1, "a question is no execution");
}
