//! Servers and networks that fail, and what callers are told meanwhile.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

mod common;

use std::time::Duration;

use hapax_core::store::{ErrorKind, Scan, Store, StoreError, Swap};
use hapax_postgres::{Options, Postgres};
use hapax_testkit::needs_postgres;
use hapax_testkit::postgres::{Database, Server};
use hapax_testkit::tcp_proxy::TcpProxy;
use tokio::time::timeout;

use common::{PATIENCE, address, connect, open, put, running};

const SHORT: Duration = Duration::from_millis(300);
/// The statement's time, the grace for the server's own answer, and a busy machine.
const IN_TIME: Duration = Duration::from_secs(5);

/// A store with short limits behind a proxy, each of its statements prepared.
async fn behind_proxy() -> (Database, TcpProxy, Postgres) {
    let database = Server::shared().fresh_database();
    let proxy = TcpProxy::in_front_of(database.address());
    let options = Options::new(database.url_via(proxy.address()))
        .with_connections(1)
        .with_statement_timeout(SHORT)
        .with_connect_timeout(SHORT);
    let store = Postgres::open(&options).await.unwrap();
    let first = put(&store, "warm-up").await;
    store.swap(&address("warm-up"), Some(first.version), &running()).await.unwrap();
    store.get(&address("warm-up")).await.unwrap();
    (database, proxy, store)
}

#[tokio::test]
async fn a_server_that_was_restarted_is_used_again() {
    needs_postgres!();
    let mut server = Server::builder().start();
    let store = open(server.maintenance().url()).await;
    put(&store, "before").await;
    server.stop();
    // Ended sessions are noticed while the runtime runs, as it does in a service.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let error = store.swap(&address("meanwhile"), None, &running()).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable, "{error}");
    let down = "the server cannot be reached; nothing was written; check that it runs and listens there";
    assert!(error.to_string().ends_with(down), "{error}");
    let error = store.health().await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable, "{error}");
    server.start();
    put(&store, "after").await;
    assert!(store.get(&address("before")).await.unwrap().stored.is_some());
    assert!(store.get(&address("meanwhile")).await.unwrap().stored.is_none());
    store.health().await.unwrap();
}

#[tokio::test]
async fn a_session_that_was_ended_in_the_middle_of_a_write_leaves_the_outcome_open() {
    needs_postgres!();
    let database = Server::shared().fresh_database();
    let store = open(database.url()).await;
    put(&store, "warm-up").await;
    database.run(
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(60); RETURN NEW; END';
         CREATE TRIGGER slow BEFORE INSERT ON hapax.record FOR EACH ROW EXECUTE FUNCTION slow()",
    );
    let writing = tokio::spawn({
        let store = store.clone();
        async move { store.swap(&address("k"), None, &running()).await }
    });
    let sleeping =
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'";
    until(|| database.run(sleeping) == "1").await;
    database.run(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                  WHERE datname = current_database() AND wait_event = 'PgSleep'",
    );
    let error = timeout(PATIENCE, writing).await.unwrap().unwrap().unwrap_err();
    assert_eq!(error.kind, ErrorKind::Ambiguous, "{error:?}");
    assert_eq!(
        error.to_string(),
        "swap: the connection was lost before the server answered; the write may be there; read it back"
    );
    database.run("DROP FUNCTION slow CASCADE");
    put(&store, "k").await;
}

/// How the sessions of a batch end before it is answered.
#[derive(Clone, Copy, Debug)]
enum End {
    Sessions,
    Server,
}

#[tokio::test]
async fn every_write_of_a_batch_that_was_cut_short_is_left_open_and_says_so() {
    needs_postgres!();
    for end in [End::Sessions, End::Server] {
        let mut server = Server::builder().start();
        let database = server.maintenance();
        let store = open(database.url()).await;
        put(&store, "warm-up").await;
        database.run(
            "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(60); RETURN NEW; END';
             CREATE TRIGGER slow BEFORE INSERT ON hapax.record FOR EACH ROW EXECUTE FUNCTION slow()",
        );
        let writing: Vec<_> = (0..40).map(|number| write(&store, format!("k-{number}"))).collect();
        // By then whatever was not in the first batch is in another.
        let asleep = "SELECT count(*) FROM pg_stat_activity
                      WHERE wait_event = 'PgSleep' AND clock_timestamp() - query_start > interval '200 ms'";
        until(|| database.run(asleep) != "0").await;
        match end {
            End::Sessions => {
                database.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'");
            }
            End::Server => server.kill_9(),
        }
        for swapped in writing {
            let error = timeout(PATIENCE, swapped).await.unwrap().unwrap().unwrap_err();
            assert_eq!(error.kind, ErrorKind::Ambiguous, "{end:?}: {error:?}");
            assert_eq!(
                error.to_string(),
                "swap: the connection was lost before the server answered; the write may be there; read it back",
                "{end:?}"
            );
        }
        if matches!(end, End::Server) {
            server.start();
        }
        assert_eq!(database.run("SELECT count(*) FROM hapax.record"), "1", "{end:?}");
        database.run("DROP FUNCTION slow CASCADE");
        put(&store, "k-0").await;
    }
}

fn write(store: &Postgres, key: String) -> tokio::task::JoinHandle<Result<Swap, StoreError>> {
    let store = store.clone();
    tokio::spawn(async move { store.swap(&address(&key), None, &running()).await })
}

async fn until(done: impl Fn() -> bool) {
    for _ in 0..2_000 {
        if done() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("waited in vain");
}

#[tokio::test]
async fn a_statement_that_takes_too_long_is_ended_by_the_server_and_writes_nothing() {
    needs_postgres!();
    let database = Server::shared().fresh_database();
    let store = Postgres::open(Options::new(database.url()).with_statement_timeout(SHORT)).await.unwrap();
    put(&store, "warm-up").await;
    database.run(
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(60); RETURN NEW; END';
         CREATE TRIGGER slow BEFORE INSERT ON hapax.record FOR EACH ROW EXECUTE FUNCTION slow()",
    );
    let error = timeout(IN_TIME, store.swap(&address("k"), None, &running())).await.unwrap().unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable, "{error:?}");
    let late = "the server took longer than the statement timeout; nothing was written; try again, or allow more time";
    assert_eq!(error.to_string(), format!("swap: {late}"));
    assert!(store.get(&address("k")).await.unwrap().stored.is_none());

    let mut shop = connect(&database.url()).await;
    let tx = shop.transaction().await.unwrap();
    tx.execute("LOCK TABLE hapax.record IN ACCESS EXCLUSIVE MODE", &[]).await.unwrap();
    let error = timeout(IN_TIME, store.get(&address("k"))).await.unwrap().unwrap_err();
    assert_eq!((error.kind, error.to_string()), (ErrorKind::Unavailable, format!("get: {late}")));
    tx.rollback().await.unwrap();
    database.run("DROP FUNCTION slow CASCADE");
    put(&store, "k").await;
}

#[tokio::test]
async fn a_black_hole_is_noticed_in_time_and_nothing_is_forwarded() {
    needs_postgres!();
    let (database, proxy, store) = behind_proxy().await;
    proxy.black_hole(true);
    let before = proxy.counts();
    let error = timeout(IN_TIME, store.swap(&address("k"), None, &running())).await.unwrap().unwrap_err();
    assert_eq!(error.kind, ErrorKind::Ambiguous, "{error:?}");
    assert_eq!(error.to_string(), "swap: the server did not answer in time; the write may be there; read it back");
    let error = timeout(IN_TIME, store.get(&address("k"))).await.unwrap().unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable, "{error:?}");
    let no_connection = "no connection could be had in time; nothing was written; check the server and the network";
    assert!(error.to_string().ends_with(no_connection), "the first connection was given up: {error}");
    let error = timeout(IN_TIME, store.scan(&Scan { limit: 1, ..Scan::default() })).await.unwrap().unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable, "{error:?}");
    assert_eq!(proxy.counts().client_bytes, before.client_bytes);
    assert_eq!(database.run("SELECT count(*) FROM hapax.record WHERE key = 'k'"), "0");
    proxy.heal();
    put(&store, "k").await;
}

#[tokio::test]
async fn a_read_that_is_not_answered_is_given_up() {
    needs_postgres!();
    let (_database, proxy, store) = behind_proxy().await;
    proxy.hold_replies(true);
    let error = timeout(IN_TIME, store.get(&address("k"))).await.unwrap().unwrap_err();
    assert_eq!(
        (error.kind, error.to_string().as_str()),
        (ErrorKind::Unavailable, "get: the server did not answer in time; check the server and the network")
    );
    proxy.heal();
    store.get(&address("k")).await.unwrap();
}

#[tokio::test]
async fn a_write_whose_reply_is_held_back_is_there_although_nobody_was_told() {
    needs_postgres!();
    let (database, proxy, store) = behind_proxy().await;
    let record = running();
    proxy.hold_replies(true);
    let error = timeout(IN_TIME, store.swap(&address("k"), None, &record)).await.unwrap().unwrap_err();
    assert_eq!(error.kind, ErrorKind::Ambiguous, "{error:?}");
    assert_eq!(database.run("SELECT count(*) FROM hapax.record WHERE key = 'k'"), "1");
    proxy.heal();
    assert_eq!(store.get(&address("k")).await.unwrap().version(), Some(record.version));
    match store.swap(&address("k"), None, &running()).await.unwrap() {
        Swap::Lost(seen) => assert_eq!(seen.version(), Some(record.version)),
        applied => panic!("{applied:?}"),
    }
}

#[tokio::test]
async fn a_cut_before_the_request_arrives_leaves_nothing_and_a_refused_connection_says_so() {
    needs_postgres!();
    let (database, proxy, store) = behind_proxy().await;
    proxy.cut_after_client_bytes(0);
    let error = store.swap(&address("k"), None, &running()).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Ambiguous, "{error:?}");
    assert_eq!(database.run("SELECT count(*) FROM hapax.record WHERE key = 'k'"), "0");
    proxy.refuse(true);
    proxy.cut_now();
    until(|| proxy.counts().open == 0).await;
    let error = store.swap(&address("k"), None, &running()).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable, "nothing can have been written: {error:?}");
    proxy.heal();
    put(&store, "k").await;
}

/// A firewall, or a server that came back, may have ended a connection that nobody used meanwhile.
#[tokio::test]
async fn a_connection_that_ends_before_its_first_statement_is_run_is_replaced() {
    needs_postgres!();
    let database = Server::shared().fresh_database();
    let proxy = TcpProxy::in_front_of(database.address());
    let store = Postgres::open(Options::new(database.url_via(proxy.address())).with_connections(1)).await.unwrap();
    // Nothing is prepared yet, so this is the reply to the preparation.
    proxy.lose_next_reply();
    put(&store, "k").await;
    assert_eq!(proxy.counts().replies_lost, 1);
    assert_eq!(database.run("SELECT count(*) FROM hapax.record WHERE key = 'k'"), "1");
}

#[tokio::test]
async fn a_slow_network_is_only_slow() {
    needs_postgres!();
    let (_database, proxy, store) = behind_proxy().await;
    proxy.delay(Duration::from_millis(40));
    let first = put(&store, "k").await;
    assert_eq!(store.get(&address("k")).await.unwrap().version(), Some(first.version));
}

#[tokio::test]
async fn another_store_at_the_same_address_is_not_taken_for_this_one() {
    needs_postgres!();
    let database = Server::shared().fresh_database();
    let store = open(database.url()).await;
    put(&store, "k").await;
    database.run("DROP SCHEMA hapax CASCADE");
    let other = open(database.url()).await;
    let error = store.health().await.unwrap_err();
    let wrong = "this is not the database the store was opened on; connect to that one, or open the store again";
    assert_eq!((error.kind, error.to_string()), (ErrorKind::Unsuitable, format!("health: {wrong}")));
    database.run(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                  WHERE datname = current_database() AND pid <> pg_backend_pid()",
    );
    // The sessions that were ended are noticed by whoever uses them next.
    let _ = store.get(&address("k")).await;
    let _ = store.swap(&address("j"), None, &running()).await;
    let target = format!("{}/{}", database.address(), database.name());
    for _ in 0..3 {
        let error = store.swap(&address("k"), None, &running()).await.unwrap_err();
        assert_eq!((error.kind, error.to_string()), (ErrorKind::Unsuitable, format!("swap: {target}: {wrong}")));
    }
    put(&other, "k").await;
}

/// A runtime of one thread, ended by dropping it.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn a_store_whose_runtime_has_ended_is_not_healthy() {
    needs_postgres!();
    let database = Server::shared().fresh_database();
    let options = Options::new(database.url()).with_statement_timeout(SHORT);
    let (first, second) = (runtime(), runtime());
    let store = first.block_on(Postgres::open(&options)).unwrap();
    first.block_on(put(&store, "before"));
    first.block_on(store.health()).unwrap();
    drop(first);
    let error = second.block_on(store.health()).unwrap_err();
    assert_eq!(error.to_string(), "health: the store has stopped; open it again");
    let error = second.block_on(store.swap(&address("after"), None, &running())).unwrap_err();
    assert_eq!(error.to_string(), "swap: the store has stopped; open it again");
}

#[tokio::test]
async fn a_timeout_of_a_month_is_one_that_the_server_takes() {
    needs_postgres!();
    let database = Server::shared().fresh_database();
    let month = Duration::from_secs(30 * 86_400);
    for timeout in [month, Duration::MAX] {
        let options = Options::new(database.url()).with_statement_timeout(timeout).with_connect_timeout(timeout);
        let store = Postgres::open(&options).await.unwrap();
        put(&store, &format!("{timeout:?}")).await;
        store.health().await.unwrap();
    }
}
