//! A store that is silent: nobody waits for it for longer than `store.timeout` and a second, whatever is asked of it, and what
//! was claimed meanwhile is given back, because nothing was run for it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

use std::net::SocketAddr;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::node::{Node, builder, pay, refused};
use hapax_testkit::ledger::Ledger;
use hapax_testkit::needs_postgres;
use hapax_testkit::postgres::Server;
use hapax_testkit::raw_http::{Request, Response, request};
use hapax_testkit::tcp_proxy::TcpProxy;
use hapax_testkit::wait::until;
use tokio::time::Instant;

/// The breaker would end it too soon.
const CONFIG: &str = "[store]\ntimeout = \"1s\"\nconnections = 2\nbreaker_failures = 100000\n";

/// `store.timeout` and a second.
const REFUSED_AFTER_MAX: Duration = Duration::from_secs(2);

/// A request that waits looks at the store once a second.
const BETWEEN_LOOKS_MAX: Duration = Duration::from_secs(1);

/// Below the lease of 30 s: what is free by then did not wait for it to lapse.
const GIVEN_BACK_AFTER_MAX: Duration = Duration::from_secs(20);

const KNOWN: usize = 6;
const NEW: usize = 18;

/// Sends it from a thread, and says how long the answer took.
fn timed(request: Request, to: SocketAddr) -> JoinHandle<(Response, Duration)> {
    std::thread::spawn(move || {
        let began = Instant::now();
        (request.send(to), began.elapsed())
    })
}

#[track_caller]
fn assert_refused_soon(what: &str, sent: JoinHandle<(Response, Duration)>, limit: Duration) {
    let (response, took) = sent.join().unwrap();
    assert!(response.status >= 400, "{what}: {}", response.status);
    assert!(took <= limit, "{what}: {:?} after {took:?}", refused(&response));
}

#[expect(clippy::disallowed_methods, reason = "requests that come one after the other are what is tested")]
fn nobody_waits_for_long(silence: fn(&TcpProxy)) {
    let ledger = Ledger::start();
    let database = Server::shared().fresh_database();
    let proxy = TcpProxy::in_front_of(database.address());
    let hapax = builder(&ledger, None).with_store(&database.url_via(proxy.address())).with_config(CONFIG).start();
    let node = Node { ledger, hapax, database: Some(database) };
    let (front, admin) = (node.hapax.address(), node.hapax.admin());
    for number in 0..KNOWN {
        assert_eq!(node.send(&pay(&format!("known-{number}"))).status, 201);
    }
    node.ledger.hold("held");
    let held = timed(pay("held"), front);
    node.ledger.wait_until_received("held");
    let waiting = timed(pay("held").header("Prefer", "wait=25"), front);
    until("it waits", GIVEN_BACK_AFTER_MAX, || node.hapax.metric("hapax_waiters") == 1.0);

    silence(&proxy);
    let began = Instant::now();
    let mut asked: Vec<_> = (0..KNOWN).map(|number| timed(pay(&format!("known-{number}")), front)).collect();
    for number in 0..NEW {
        asked.push(timed(pay(&format!("new-{number}")), front));
        // Not all in one batch: each finds the store in another stage of its silence.
        std::thread::sleep(Duration::from_millis(40));
    }
    node.ledger.release("held");
    let released = Instant::now();
    let admins: Vec<_> =
        ["/v1/status", "/v1/keys", "/readyz"].map(|path| (path, timed(request("GET", path), admin))).into();
    for (number, sent) in asked.into_iter().enumerate() {
        assert_refused_soon(&format!("claim {number}"), sent, REFUSED_AFTER_MAX);
    }
    for (path, sent) in admins {
        assert_refused_soon(path, sent, REFUSED_AFTER_MAX + Duration::from_millis(500));
    }
    let (answer, _) = held.join().unwrap();
    assert_eq!(refused(&answer), (409, "outcome-unknown".to_owned()), "it was done and could not be recorded");
    assert!(released.elapsed() <= REFUSED_AFTER_MAX + Duration::from_millis(500), "{:?}", released.elapsed());
    let (answer, _) = waiting.join().unwrap();
    assert_eq!(refused(&answer), (503, "store-unavailable".to_owned()));
    let limit = REFUSED_AFTER_MAX + BETWEEN_LOOKS_MAX + Duration::from_millis(500);
    assert!(began.elapsed() <= limit, "a request that waited: {:?}", began.elapsed());

    for number in 0..NEW {
        node.ledger.assert_never(&format!("new-{number}"));
    }
    proxy.heal();
    for key in (0..NEW).map(|number| format!("new-{number}")) {
        until("the key is free again, and runs", GIVEN_BACK_AFTER_MAX, || node.send(&pay(&key)).status == 201);
        node.ledger.assert_once(&key);
    }
    until("the answer is recorded", GIVEN_BACK_AFTER_MAX, || node.send(&pay("held")).is_replay());
    node.ledger.assert_once("held");
    let status = node.hapax.ask_admin("/v1/status").json();
    assert_eq!(status["counts"]["unknown"], 0, "nothing was left to lapse: {status}");
}

/// Nothing arrives.
#[test]
fn no_refusal_of_a_black_holed_store_takes_longer_than_its_timeout_and_a_second() {
    needs_postgres!();
    nobody_waits_for_long(|proxy| proxy.black_hole(true));
}

/// Everything arrives, and nobody hears of it: the claims are in the store.
#[test]
fn claims_that_were_written_while_their_clients_were_refused_are_given_back() {
    needs_postgres!();
    nobody_waits_for_long(|proxy| proxy.hold_replies(true));
}
