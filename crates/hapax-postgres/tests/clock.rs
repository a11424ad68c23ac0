//! Time is the server's: the host's does not matter, and a step of the server's is noticed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

mod common;

use std::process::Command;
use std::time::Duration;

use hapax_core::limits::CLOCK_SETTLE_MS;
use hapax_core::record::{OnLapse, Policy, Record, State};
use hapax_core::store::{Due, ErrorKind, Scan, Store, Swap};
use hapax_core::transition::Answer;
use hapax_postgres::{Options, Postgres};
use hapax_testkit::child::{self, Child};
use hapax_testkit::needs_postgres;
use hapax_testkit::postgres::{Database, Server};

use common::{PATIENCE, address, engine, fingerprint, open, put, running};

const URL: &str = "HAPAX_TEST_URL";
const HOUR_S: i64 = 3_600;

/// What a node with a wrong clock finds of keys that another node claimed.
#[tokio::main]
async fn look_with_a_wrong_clock(url: &str) {
    let engine = engine(open(url).await);
    let policy = Policy { on_lapse: OnLapse::Unknown, ..Policy::default() };
    for key in ["live", "lapsed", "new"] {
        let reply = engine.claim(&address(key), &fingerprint(), policy).await.unwrap();
        child::say(&format!("{key} {:?}", reply.answer));
    }
    let clock = engine.store().health().await.unwrap().clock;
    child::say(&format!("stepped by {}, paused {}", clock.stepped_by_ms, clock.paused));
    child::say(&format!("host {}", host_s()));
}

#[expect(clippy::disallowed_methods, reason = "to show that the host's clock is wrong")]
fn host_s() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs()
}

/// The test binary in a role, with its clocks skewed by Debian's `faketime`.
fn skewed(test: &str, by: &str, url: &str) -> Command {
    let plain = child::rerun(test, "skewed");
    let mut command = Command::new("faketime");
    command.args(["-f", by]).arg(plain.get_program()).args(plain.get_args());
    for (name, value) in plain.get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    // The monotonic clock is nobody's to set, on a real host as here.
    command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("DONT_FAKE_MONOTONIC", "1").env(URL, url);
    command
}

#[test]
fn a_host_clock_that_is_wrong_by_an_hour_changes_nothing() {
    let test = "a_host_clock_that_is_wrong_by_an_hour_changes_nothing";
    if child::role().is_some() {
        return look_with_a_wrong_clock(&std::env::var(URL).unwrap());
    }
    needs_postgres!();
    let found = Command::new("faketime").arg("--version").output();
    assert!(found.is_ok(), "faketime is not on PATH; run scripts/test, which installs it, or set HAPAX_SKIP_SERVERS=1");
    for (by, hours) in [("+1h", 1), ("-1h", -1)] {
        let database = Server::shared().fresh_database();
        tokio::runtime::Runtime::new().unwrap().block_on(async {
            let store = open(database.url()).await;
            put(&store, "live").await;
            let short = Record { due_in_ms: Some(1), ..running() };
            store.swap(&address("lapsed"), None, &short).await.unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
        });
        let mut node = Child::spawn(&mut skewed(test, by, &database.url()));
        let mut said = || node.said(PATIENCE).unwrap();
        assert_eq!(said(), "live Busy", "{by}");
        assert_eq!(said(), "lapsed Undecided", "{by}");
        assert_eq!(said(), "new Proceed", "{by}");
        assert_eq!(said(), "stepped by 0, paused false", "{by}");
        let host = said().strip_prefix("host ").unwrap().parse::<i64>().unwrap();
        let skew_s = host - i64::try_from(host_s()).unwrap();
        assert!((skew_s - hours * HOUR_S).abs() < 300, "the node's clock was to be wrong by {by}: {skew_s} s");
        let stamped = "SELECT abs(stamped_at / 1000 - extract(epoch FROM clock_timestamp())) < 300 FROM hapax.record";
        assert_eq!(database.run(&format!("SELECT DISTINCT near FROM ({stamped}) t (near)")), "t", "{by}");
    }
}

/// A database whose clock can be stepped: the functions that a role finds first are ours.
fn with_fake_server_clock() -> Database {
    let database = Server::shared().fresh_database();
    database.run(&format!(
        "CREATE SCHEMA fake;
         CREATE TABLE fake.host (skew interval, standby bool);
         INSERT INTO fake.host VALUES ('0', false);
         CREATE FUNCTION fake.clock_timestamp() RETURNS timestamptz VOLATILE LANGUAGE sql AS
           'SELECT pg_catalog.clock_timestamp() + skew FROM fake.host';
         CREATE FUNCTION fake.pg_is_in_recovery() RETURNS bool VOLATILE LANGUAGE sql AS 'SELECT standby FROM fake.host';
         ALTER DATABASE {} SET search_path = fake, pg_catalog, public",
        database.name()
    ));
    database
}

#[tokio::test]
async fn a_step_of_the_servers_clock_frees_no_key_and_is_reported() {
    needs_postgres!();
    for (skew, sign) in [("1 hour", 1), ("-1 hour", -1)] {
        let database = with_fake_server_clock();
        let engine = engine(open(database.url()).await);
        let store = engine.store();
        let policy = Policy { on_lapse: OnLapse::Rerun, ..Policy::default() };
        engine.claim(&address("held"), &fingerprint(), policy).await.unwrap();
        let expired = Record { state: State::Completed, due_in_ms: None, expires_in_ms: Some(60_000), ..running() };
        store.swap(&address("kept"), None, &expired).await.unwrap();
        assert!(!store.health().await.unwrap().clock.paused);
        database.run(&format!("UPDATE fake.host SET skew = '{skew}'"));

        assert_eq!(store.reap(10).await.unwrap(), 0, "{skew}: the first to notice deletes nothing");
        let due = store.scan(&Scan { due: Some(Due::Now), limit: 10, ..Scan::default() }).await.unwrap();
        assert!(due.entries.is_empty() && due.next.is_none() && due.now.paused, "{skew}: {due:?}");
        let reply = engine.claim(&address("held"), &fingerprint(), policy).await.unwrap();
        assert_eq!(reply.answer, Answer::Busy, "{skew}");
        assert!(store.get(&address("kept")).await.unwrap().now.paused, "{skew}");
        let clock = store.health().await.unwrap().clock;
        assert!(clock.paused, "{skew}");
        let hour_ms = 1_000 * HOUR_S;
        assert!((clock.stepped_by_ms - sign * hour_ms).abs() < 60_000, "{skew}: {clock:?}");
    }
}

#[tokio::test]
async fn a_scan_or_a_claim_may_be_the_first_to_notice_a_step() {
    needs_postgres!();
    let database = with_fake_server_clock();
    let engine = engine(open(database.url()).await);
    let policy = Policy { on_lapse: OnLapse::Rerun, ..Policy::default() };
    engine.claim(&address("held"), &fingerprint(), policy).await.unwrap();
    database.run("UPDATE fake.host SET skew = '1 hour'");
    let reply = engine.claim(&address("held"), &fingerprint(), policy).await.unwrap();
    assert_eq!(reply.answer, Answer::Busy);
    database.run("UPDATE fake.host SET skew = '2 hours'");
    let due = engine.store().scan(&Scan { due: Some(Due::Now), limit: 10, ..Scan::default() }).await.unwrap();
    assert!(due.entries.is_empty(), "{due:?}");
    let shown = Scan { due: Some(Due::By(due.now.at)), limit: 10, ..Scan::default() };
    assert_eq!(engine.store().scan(&shown).await.unwrap().entries.len(), 1, "for looking, not for acting");
    assert!(engine.store().health().await.unwrap().clock.stepped_by_ms > 2_000 * HOUR_S - 60_000);
    const { assert!(CLOCK_SETTLE_MS >= 60_000, "longer than any test here") };
}

#[tokio::test]
async fn stamps_of_a_record_do_not_run_backwards_with_the_server() {
    needs_postgres!();
    let database = with_fake_server_clock();
    let store = open(database.url()).await;
    let first = running();
    let Swap::Applied(before) = store.swap(&address("k"), None, &first).await.unwrap() else { panic!("lost") };
    database.run("UPDATE fake.host SET skew = '-1 hour'");
    let second = running();
    let swapped = store.swap(&address("k"), Some(first.version), &second).await.unwrap();
    let Swap::Applied(after) = swapped else { panic!("{swapped:?}") };
    assert!(after.at >= before.at, "{before:?} {after:?}");
    let stored = store.get(&address("k")).await.unwrap().stored.unwrap();
    assert_eq!((stored.stamped_at, stored.record), (after.at, second));
}

#[tokio::test]
async fn a_standby_that_a_pooler_leads_to_is_not_believed() {
    needs_postgres!();
    let database = with_fake_server_clock();
    let store = Postgres::open(Options::new(database.url()).with_pooler()).await.unwrap();
    put(&store, "k").await;
    database.run("UPDATE fake.host SET standby = true");
    let standby = "the server is a standby: what it says may be old; connect to the primary";
    let error = store.get(&address("k")).await.unwrap_err();
    assert_eq!((error.kind, error.to_string()), (ErrorKind::Unsuitable, format!("get: {standby}")));
    let error = store.scan(&Scan { limit: 10, ..Scan::default() }).await.unwrap_err();
    assert_eq!((error.kind, error.to_string()), (ErrorKind::Unsuitable, format!("scan: {standby}")));
    let error = store.reap(10).await.unwrap_err();
    assert_eq!((error.kind, error.to_string()), (ErrorKind::Unsuitable, format!("reap: {standby}")));
    let error = store.health().await.unwrap_err();
    assert_eq!(error.to_string(), "health: the server is a standby; connect to the primary");
}
