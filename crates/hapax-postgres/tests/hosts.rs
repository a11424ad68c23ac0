//! Several hosts in the connection string: one of them silent or frozen, and a standby that takes over.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

mod common;

use std::net::SocketAddr;
use std::time::Duration;

use hapax_core::store::{ErrorKind, Store};
use hapax_postgres::{Options, Postgres};
use hapax_testkit::postgres::{Database, Server};
use hapax_testkit::silent::{Gone, Mute};
use hapax_testkit::tcp_proxy::TcpProxy;
use hapax_testkit::{needs_postgres, wait};
use tokio::time::{Instant, timeout};

use common::{PATIENCE, address, put, running};

/// Less than the default connect timeout of 5 s, more than the head start of one host and a busy machine.
const SOON: Duration = Duration::from_secs(3);

/// Statements that freeze are given up soon.
const SHORT: Duration = Duration::from_millis(500);

fn url(hosts: &[SocketAddr], database: &Database) -> String {
    let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
    format!("postgres://postgres@{}/{}", hosts.join(","), database.name())
}

#[tokio::test]
async fn a_store_is_opened_although_the_first_host_is_gone_or_frozen() {
    needs_postgres!();
    let database = Server::shared().fresh_database();
    let (gone, mute) = (Gone::begin(), Mute::begin());
    for silent in [vec![gone.address()], vec![mute.address()], vec![gone.address(), mute.address()]] {
        let hosts = [silent.clone(), vec![database.address()]].concat();
        let began = Instant::now();
        let store = timeout(PATIENCE, Postgres::open(Options::new(url(&hosts, &database)))).await.unwrap().unwrap();
        assert!(began.elapsed() < SOON, "{silent:?}: {:?}", began.elapsed());
        let began = Instant::now();
        put(&store, &format!("{silent:?}")).await;
        store.health().await.unwrap();
        assert!(began.elapsed() < SOON, "{silent:?}: {:?}", began.elapsed());
    }
}

#[tokio::test]
async fn hosts_that_cannot_be_used_are_named_with_their_reasons() {
    needs_postgres!();
    let database = Server::shared().fresh_database();
    database.run(&format!("ALTER DATABASE {} SET default_transaction_read_only = on", database.name()));
    let (gone, mute) = (Gone::begin(), Mute::begin());
    let hosts = [gone.address(), mute.address(), database.address()];
    let options = Options::new(url(&hosts, &database)).with_connect_timeout(Duration::from_secs(2));
    let error = timeout(SOON, Postgres::open(&options)).await.unwrap().unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable, "a standby may be promoted: {error}");
    let said = error.to_string();
    for part in [
        format!("{}: it did not answer in time", gone.address()),
        format!("{}: it did not answer in time", mute.address()),
        format!("{}: it is a standby or read-only", database.address()),
    ] {
        assert!(said.contains(&part), "{part}: {said}");
    }
}

#[tokio::test]
async fn the_connect_timeout_of_the_url_limits_each_host_login_included() {
    needs_postgres!();
    let database = Server::shared().fresh_database();
    let (gone, mute) = (Gone::begin(), Mute::begin());
    for silent in [gone.address(), mute.address()] {
        let url = format!("{}?connect_timeout=1", url(&[silent], &database));
        let options = Options::new(url).with_connect_timeout(Duration::from_secs(30));
        let began = Instant::now();
        let error = timeout(PATIENCE, Postgres::open(&options)).await.unwrap().unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unavailable, "{error}");
        let took = began.elapsed();
        assert!(took >= Duration::from_millis(900) && took < SOON, "{took:?}: {error}");
    }
}

/// Whoever was good is asked first; the silent one is left alone.
#[tokio::test]
async fn the_host_that_answered_last_is_tried_first() {
    needs_postgres!();
    let database = Server::shared().fresh_database();
    let (first, second) = (TcpProxy::in_front_of(database.address()), TcpProxy::in_front_of(database.address()));
    let options = Options::new(url(&[first.address(), second.address()], &database)).with_statement_timeout(SHORT);
    let store = Postgres::open(&options).await.unwrap();
    put(&store, "at-the-first").await;
    assert_eq!(second.counts().connections, 0, "one that answers is not raced");
    first.black_hole(true);
    assert!(timeout(PATIENCE, store.swap(&address("lost"), None, &running())).await.unwrap().is_err());
    put(&store, "at-the-second").await;
    let before = first.counts().connections;
    for number in 0..3 {
        second.cut_now();
        wait::until("the cut is noticed", PATIENCE, || second.counts().open == 0);
        tokio::time::sleep(Duration::from_millis(20)).await;
        let began = Instant::now();
        put(&store, &format!("again-{number}")).await;
        assert!(began.elapsed() < Duration::from_millis(450), "no head start was waited for: {:?}", began.elapsed());
    }
    assert_eq!(first.counts().connections, before, "the silent host was not asked again");
}

/// A primary, and a standby that confirms what is committed.
fn pair() -> (Server, Server) {
    let primary = Server::builder().start();
    let standby = primary.standby();
    let database = primary.maintenance();
    database.run("ALTER SYSTEM SET synchronous_standby_names = '*'");
    database.run("SELECT pg_reload_conf()");
    wait::until("the standby is synchronous", PATIENCE, || {
        database.run("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'") == "1"
    });
    (primary, standby)
}

/// A store on both, with several connections, each of them used once.
async fn warmed_up(primary: &Server, standby: &Server) -> Postgres {
    let hosts = [primary.address(), standby.address()];
    let options = Options::new(url(&hosts, &primary.maintenance())).with_statement_timeout(SHORT);
    let store = Postgres::open(&options).await.unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..16 {
        let store = store.clone();
        tasks.spawn(async move {
            put(&store, &format!("warm-{number}")).await;
            store.get(&address(&format!("warm-{number}"))).await.unwrap();
        });
    }
    tasks.join_all().await;
    store
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_freezes_is_left_for_the_one_that_took_over() {
    needs_postgres!();
    let (primary, standby) = pair();
    let store = warmed_up(&primary, &standby).await;
    let frozen = primary.freeze();
    standby.promote();
    let began = Instant::now();
    let error = timeout(PATIENCE, store.swap(&address("under-way"), None, &running())).await.unwrap().unwrap_err();
    assert_eq!(error.kind, ErrorKind::Ambiguous, "{error}");
    // One statement found out for all connections.
    put(&store, "after").await;
    assert!(store.get(&address("warm-7")).await.unwrap().stored.is_some());
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    assert_eq!(standby.maintenance().run("SELECT count(*) FROM hapax.record WHERE key = 'after'"), "1");
    // It comes back and takes itself for the primary. Nobody goes there.
    drop(frozen);
    for number in 0..20 {
        put(&store, &format!("later-{number}")).await;
    }
    assert_eq!(standby.maintenance().run("SELECT count(*) FROM hapax.record WHERE key LIKE 'later-%'"), "20");
}

/// It answers, and yet what it commits waits for a standby that has gone its own way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_whose_commits_hang_is_left_for_the_one_that_took_over() {
    needs_postgres!();
    let (primary, standby) = pair();
    let store = warmed_up(&primary, &standby).await;
    standby.promote();
    let error = timeout(PATIENCE, store.swap(&address("under-way"), None, &running())).await.unwrap().unwrap_err();
    assert_eq!(error.kind, ErrorKind::Ambiguous, "{error}");
    let began = Instant::now();
    put(&store, "after").await;
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    assert_eq!(standby.maintenance().run("SELECT count(*) FROM hapax.record WHERE key = 'after'"), "1");
}
