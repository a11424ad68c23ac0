//! Stores that are down, slow, cut off or killed while requests run, and come back: nothing runs unprotected, nothing runs
//! twice, no answer is lost while the process lives, and nobody has to restart anything.
//!
//! PostgreSQL is broken by a proxy on the way to it, or by killing it; SQLite by another process that holds its write
//! lock for longer than the store waits.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::node::{self, Kept, Node, builder, on_both_stores, pay, refused};
use hapax_testkit::hapax::Hapax;
use hapax_testkit::ledger::Ledger;
use hapax_testkit::needs_postgres;
use hapax_testkit::postgres::{Database, Server};
use hapax_testkit::raw_http::{Response, request};
use hapax_testkit::tcp_proxy::TcpProxy;
use hapax_testkit::wait::{holds_within, until};
use tokio::time::Instant;

on_both_stores! {
    an_answer_that_comes_while_the_store_is_down_is_recorded_when_it_is_back
    an_answer_is_recorded_even_where_the_outage_outlives_the_lease
    a_process_that_is_told_to_end_waits_for_the_store_with_an_answer_in_hand
    nothing_is_forwarded_while_the_store_is_down_and_it_recovers_by_itself
    the_breaker_refuses_at_once_and_closes_by_itself
    a_node_without_requests_is_ready_again_by_itself
}

/// Short, so that a test need not wait; the lease is longer than all of it.
const CONFIG: &str = "[store]\ntimeout = \"500ms\"\nbreaker_failures = 3\nbreaker_pause = \"1s\"\n";

/// Long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// By then it works again without a restart.
const RECOVERY_MAX: Duration = Duration::from_secs(5);

/// How the store is broken.
enum Breaking {
    Proxy(TcpProxy),
    Lock { file: PathBuf, holder: Option<rusqlite::Connection> },
}

/// A node whose store can be broken.
struct Fragile {
    node: Node,
    breaking: Breaking,
}

fn fragile(kept: Kept, config: &str) -> Fragile {
    let ledger = Ledger::start();
    match kept {
        Kept::Sqlite => {
            let hapax = builder(&ledger, None).with_config(config).start();
            let file = hapax.dir().join("hapax.db");
            let breaking = Breaking::Lock { file, holder: None };
            Fragile { node: Node { ledger, hapax, database: None }, breaking }
        }
        Kept::Postgres => {
            let database = Server::shared().fresh_database();
            let proxy = TcpProxy::in_front_of(database.address());
            let hapax = via(&ledger, &database, &proxy, config);
            let node = Node { ledger, hapax, database: Some(database) };
            Fragile { node, breaking: Breaking::Proxy(proxy) }
        }
    }
}

fn via(ledger: &Ledger, database: &Database, proxy: &TcpProxy, config: &str) -> Hapax {
    builder(ledger, None).with_store(&database.url_via(proxy.address())).with_config(config).start()
}

impl Fragile {
    fn down(&mut self) {
        match &mut self.breaking {
            Breaking::Proxy(proxy) => {
                proxy.refuse(true);
                proxy.cut_now();
            }
            Breaking::Lock { file, holder } => {
                let connection = rusqlite::Connection::open(file).unwrap();
                connection.busy_timeout(Duration::from_secs(10)).unwrap();
                connection.execute_batch("BEGIN EXCLUSIVE").unwrap();
                *holder = Some(connection);
            }
        }
    }

    fn up(&mut self) {
        match &mut self.breaking {
            Breaking::Proxy(proxy) => proxy.heal(),
            // Its transaction is rolled back.
            Breaking::Lock { holder, .. } => drop(holder.take()),
        }
    }

    fn proxy(&self) -> &TcpProxy {
        match &self.breaking {
            Breaking::Proxy(proxy) => proxy,
            Breaking::Lock { .. } => panic!("there is no proxy in front of a file"),
        }
    }
}

/// Sends the request in the background and waits until the upstream has it and holds it.
fn hold(node: &Node, key: &'static str) -> JoinHandle<Response> {
    node.ledger.hold(key);
    let address = node.hapax.address();
    let first = std::thread::spawn(move || pay(key).send(address));
    node.ledger.wait_until_received(key);
    first
}

/// The node's status names that problem. Only a file can still be read while it cannot be written.
#[track_caller]
fn assert_told(node: &Node, problem: &str) {
    let status = node.hapax.ask_admin("/v1/status").json();
    assert_eq!(status["healthy"], false, "{status}");
    let problems = status["problems"].as_array().unwrap();
    assert!(problems.iter().any(|told| told.as_str().unwrap().starts_with(problem)), "{status}");
}

/// Waits until a retry is replayed, with the bytes of the one execution.
#[track_caller]
fn assert_recorded_in_time(node: &Node, key: &str) {
    let mut last = None;
    let in_time = holds_within(RECOVERY_MAX, || last.insert(node.send(&pay(key))).is_replay());
    let last = last.unwrap();
    assert!(in_time, "the answer for {key} is not recorded: {:?}", refused(&last));
    assert_eq!((last.status, &last.json()["id"]), (201, &node.ledger.executions(key)[0].id.as_str().into()));
    node.ledger.assert_once(key);
}

/// Waits until a new key is served.
#[track_caller]
fn assert_recovers_in_time(node: &Node) {
    let mut nth = 0;
    until("a new key is served", RECOVERY_MAX, || {
        nth += 1;
        node.send(&pay(&format!("recovery-{nth}"))).status == 201
    });
}

fn is_ready(node: &Node) -> bool {
    node.hapax.ask_admin("/readyz").status == 200
}

fn an_answer_that_comes_while_the_store_is_down_is_recorded_when_it_is_back(kept: Kept) {
    let mut fragile = fragile(kept, CONFIG);
    let first = hold(&fragile.node, "k");
    fragile.down();
    fragile.node.ledger.release("k");
    let first = first.join().unwrap();
    assert_eq!(refused(&first), (409, "outcome-unknown".into()), "nobody sees an answer that is not recorded");
    assert!(first.header("retry-after").is_some());
    let node = &fragile.node;
    assert_eq!(node.hapax.metric("hapax_completions_pending"), 1.0);
    // A file that cannot be written can still be read: the record says that the key is running.
    let told = if kept == Kept::Sqlite { (409, "in-progress") } else { (503, "store-unavailable") };
    assert_eq!(refused(&node.send(&pay("k"))), (told.0, told.1.into()));
    if kept == Kept::Sqlite {
        assert_told(node, "answers that wait in this node's memory for the store: 1; bring it back before");
    }
    fragile.up();
    assert_recorded_in_time(&fragile.node, "k");
    let pending = || fragile.node.hapax.metric("hapax_completions_pending");
    until("nothing is pending", RECOVERY_MAX, || pending() == 0.0);
}

fn an_answer_is_recorded_even_where_the_outage_outlives_the_lease(kept: Kept) {
    let short = format!("{CONFIG}[defaults]\nlease = \"1s\"\n[upstream]\nanswer_timeout = \"30s\"\n");
    let mut fragile = fragile(kept, &short);
    let first = hold(&fragile.node, "k");
    fragile.down();
    fragile.node.ledger.release("k");
    assert_eq!(refused(&first.join().unwrap()), (409, "outcome-unknown".into()));
    // A pause, not a wait for something: the lease must lapse.
    holds_within(Duration::from_millis(1500), || false);
    fragile.up();
    // A retry may write `unknown` before the answer comes: late truth beats doubt.
    assert_recorded_in_time(&fragile.node, "k");
}

fn a_process_that_is_told_to_end_waits_for_the_store_with_an_answer_in_hand(kept: Kept) {
    let mut fragile = fragile(kept, CONFIG);
    let first = hold(&fragile.node, "k");
    fragile.down();
    fragile.node.ledger.release("k");
    assert_eq!(refused(&first.join().unwrap()), (409, "outcome-unknown".into()));
    fragile.node.hapax.signal("TERM");
    fragile.node.hapax.line_with("finishing what runs");
    fragile.up();
    assert_eq!(fragile.node.hapax.wait(), Some(0));
    fragile.node.hapax.restart();
    assert!(fragile.node.send(&pay("k")).is_replay(), "it was recorded before the end");
    fragile.node.ledger.assert_once("k");
}

fn nothing_is_forwarded_while_the_store_is_down_and_it_recovers_by_itself(kept: Kept) {
    let mut fragile = fragile(kept, &CONFIG.replace("\"1s\"", "\"2s\""));
    assert!(is_ready(&fragile.node));
    let done = fragile.node.send(&pay("done"));
    fragile.down();
    let keys: Vec<String> = (0..8).map(|at| format!("down-{at}")).collect();
    for key in &keys {
        let response = fragile.node.send(&pay(key));
        assert_eq!(refused(&response), (503, "store-unavailable".into()));
        let after: u32 = response.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=5).contains(&after), "{after}");
        fragile.node.ledger.assert_never(key);
    }
    if kept == Kept::Sqlite {
        assert_told(&fragile.node, "the store failed several times, and this node refuses claims");
    }
    let verbose = fragile.node.hapax.ask_admin("/readyz?verbose");
    assert_eq!(verbose.status, 503, "{}", verbose.text());
    assert!(verbose.text().contains("[-] breaker"), "{}", verbose.text());
    assert_eq!(fragile.node.hapax.ask_admin("/livez").status, 200, "a restart would not help");
    assert_eq!(fragile.node.send(&request("GET", "/things")).status, 200, "what needs no protection passes");
    assert!(fragile.node.hapax.metric("hapax_refused_total{reason=\"store-unavailable\"}") >= 8.0);
    fragile.up();
    assert_recovers_in_time(&fragile.node);
    until("it is ready", RECOVERY_MAX, || is_ready(&fragile.node));
    for key in &keys {
        until("a refused request can be sent again", RECOVERY_MAX, || fragile.node.send(&pay(key)).status == 201);
        fragile.node.ledger.assert_once(key);
    }
    let replay = fragile.node.send(&pay("done"));
    assert_eq!((replay.is_replay(), replay.body), (true, done.body));
}

fn the_breaker_refuses_at_once_and_closes_by_itself(kept: Kept) {
    let mut fragile = fragile(kept, &CONFIG.replace("\"1s\"", "\"3s\""));
    assert_eq!(fragile.node.hapax.metric("hapax_breaker_open"), 0.0);
    fragile.down();
    for at in 0..3 {
        assert_eq!(refused(&fragile.node.send(&pay(&format!("before-{at}")))), (503, "store-unavailable".into()));
    }
    assert_eq!(fragile.node.hapax.metric("hapax_breaker_open"), 1.0);
    let begun = Instant::now();
    for at in 0..20 {
        let response = fragile.node.send(&pay(&format!("open-{at}")));
        assert_eq!(refused(&response), (503, "store-unavailable".into()));
        assert!(response.json()["detail"].as_str().unwrap().contains("several times"), "{}", response.text());
    }
    assert!(begun.elapsed() < Duration::from_millis(1500), "20 refusals took {:?}", begun.elapsed());
    fragile.up();
    assert_recovers_in_time(&fragile.node);
    assert_eq!(fragile.node.hapax.metric("hapax_breaker_open"), 0.0);
}

/// Where readiness decides who gets requests, a breaker that waits for a request to close would wait for ever.
fn a_node_without_requests_is_ready_again_by_itself(kept: Kept) {
    let mut fragile = fragile(kept, CONFIG);
    fragile.down();
    for at in 0..3 {
        assert_eq!(fragile.node.send(&pay(&format!("k-{at}"))).status, 503);
    }
    assert!(!is_ready(&fragile.node));
    fragile.up();
    until("it is ready", RECOVERY_MAX, || is_ready(&fragile.node));
    let verbose = fragile.node.hapax.ask_admin("/readyz?verbose").text();
    assert!(verbose.contains("half open: the last claims failed, and the next one decides"), "{verbose}");
    until("one request closes the breaker", RECOVERY_MAX, || fragile.node.send(&pay("k")).status == 201);
    fragile.node.ledger.assert_once("k");
}

#[test]
fn a_slow_store_is_waited_for() {
    needs_postgres!();
    let fragile = fragile(Kept::Postgres, CONFIG);
    fragile.proxy().delay(Duration::from_millis(40));
    for key in ["a", "b"] {
        let first = fragile.node.send(&pay(key));
        assert_eq!((first.status, first.is_replay()), (201, false), "{:?}", refused(&first));
        assert!(fragile.node.send(&pay(key)).is_replay());
        fragile.node.ledger.assert_once(key);
    }
    assert!(is_ready(&fragile.node));
}

#[test]
fn a_store_that_is_too_slow_is_refused_and_nothing_runs_unprotected() {
    needs_postgres!();
    let fragile = fragile(Kept::Postgres, CONFIG);
    let keys: Vec<String> = (0..12).map(|at| format!("k-{at}")).collect();
    fragile.node.send(&pay("warm-up"));
    fragile.proxy().delay(Duration::from_millis(400));
    let answers: Vec<Response> = std::thread::scope(|scope| {
        let sent: Vec<_> = keys.iter().map(|key| scope.spawn(|| fragile.node.send(&pay(key)))).collect();
        sent.into_iter().map(|answer| answer.join().unwrap()).collect()
    });
    for (key, answer) in keys.iter().zip(&answers) {
        let executions = fragile.node.ledger.executions(key).len();
        let expected = match refused(answer) {
            (201, _) => 1,
            (503, code) if code == "store-unavailable" => 0,
            (409, code) if code == "outcome-unknown" => 1,
            other => panic!("{key}: {other:?}"),
        };
        assert_eq!(executions, expected, "{key}: {}", answer.status);
    }
    assert!(answers.iter().any(|answer| answer.status != 201), "the delay is longer than the timeout");
    fragile.proxy().heal();
    for key in &keys {
        until("it is settled", RECOVERY_MAX, || fragile.node.send(&pay(key)).status == 201);
        fragile.node.ledger.assert_once(key);
    }
}

/// Nobody but requests asks the store, once each role has looked; and a busy machine has the time it needs.
const QUIET: &str = "[background]\nsweep_every = \"1h\"\nreap_every = \"1h\"\nreconcile_every = \"1h\"\n";

#[test]
fn a_claim_whose_reply_was_lost_is_recognised_as_our_own() {
    needs_postgres!();
    let fragile = fragile(Kept::Postgres, QUIET);
    for role in ["lapse", "reap", "reconcile", "survey", "fence"] {
        let swept = format!("hapax_sweep_seconds_count{{role=\"{role}\"}}");
        until("each role has looked", PATIENCE, || fragile.node.hapax.metric(&swept) == 1.0);
    }
    // The connection that was used last is used next, and now its statements are prepared.
    fragile.node.send(&pay("warm-up"));
    fragile.proxy().lose_next_reply();
    let first = fragile.node.send(&pay("k"));
    assert_eq!((first.status, fragile.proxy().counts().replies_lost), (201, 1), "{:?}", refused(&first));
    fragile.node.ledger.assert_once("k");
    assert!(fragile.node.send(&pay("k")).is_replay());
}

/// The claim is in the store, nobody was told, and nothing was forwarded: the key must not stay claimed by nobody.
#[test]
fn a_claim_that_could_not_be_proved_is_given_back() {
    needs_postgres!();
    let fragile = fragile(Kept::Postgres, CONFIG);
    fragile.node.send(&pay("warm-up"));
    fragile.proxy().hold_replies(true);
    assert_eq!(refused(&fragile.node.send(&pay("k"))), (503, "store-unavailable".into()));
    fragile.node.ledger.assert_never("k");
    fragile.proxy().heal();
    until("a retry runs", RECOVERY_MAX, || fragile.node.send(&pay("k")).status == 201);
    fragile.node.ledger.assert_once("k");
    assert!(fragile.node.send(&pay("k")).is_replay());
}

#[test]
fn an_answer_whose_recording_was_not_acknowledged_is_not_given_and_then_replayed() {
    needs_postgres!();
    let fragile = fragile(Kept::Postgres, CONFIG);
    let first = hold(&fragile.node, "k");
    fragile.proxy().hold_replies(true);
    fragile.node.ledger.release("k");
    assert_eq!(refused(&first.join().unwrap()), (409, "outcome-unknown".into()));
    fragile.proxy().heal();
    assert_recorded_in_time(&fragile.node, "k");
}

#[test]
fn a_network_that_swallows_everything_is_noticed_and_recovered_from() {
    needs_postgres!();
    let fragile = fragile(Kept::Postgres, CONFIG);
    fragile.node.send(&pay("done"));
    fragile.proxy().black_hole(true);
    for at in 0..4 {
        let key = format!("k-{at}");
        assert_eq!(refused(&fragile.node.send(&pay(&key))), (503, "store-unavailable".into()));
        fragile.node.ledger.assert_never(&key);
    }
    assert_eq!(fragile.node.hapax.metric("hapax_breaker_open"), 1.0);
    fragile.proxy().heal();
    assert_recovers_in_time(&fragile.node);
    assert!(fragile.node.send(&pay("done")).is_replay());
}

#[test]
fn a_server_that_is_killed_or_stopped_and_started_again_loses_nothing() {
    needs_postgres!();
    let mut server = Server::builder().start();
    let ledger = Ledger::start();
    let database = server.maintenance();
    let hapax = builder(&ledger, Some(&database)).with_config(CONFIG).start();
    let node = Node { ledger, hapax, database: Some(database) };
    for (round, key) in ["killed", "stopped"].into_iter().enumerate() {
        let done = format!("done-{round}");
        let answer = node.send(&pay(&done));
        let first = hold(&node, key);
        if round == 0 {
            server.kill_9();
        } else {
            server.stop();
        }
        node.ledger.release(key);
        assert_eq!(refused(&first.join().unwrap()), (409, "outcome-unknown".into()), "{key}");
        let meanwhile = format!("meanwhile-{round}");
        assert_eq!(refused(&node.send(&pay(&meanwhile))), (503, "store-unavailable".into()), "{key}");
        node.ledger.assert_never(&meanwhile);
        assert!(!is_ready(&node), "{key}");
        server.start();
        assert_recovers_in_time(&node);
        assert_recorded_in_time(&node, key);
        assert_eq!(node.send(&pay(&meanwhile)).status, 201);
        assert_eq!(node.send(&pay(&done)).body, answer.body, "{key}");
        node.ledger.assert_once(&done);
        until("it is ready", RECOVERY_MAX, || is_ready(&node));
    }
}
