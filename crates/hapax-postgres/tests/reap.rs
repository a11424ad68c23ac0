//! Reaping: what was altered stays and holds up nothing, and several may reap at once.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use hapax_core::record::{Body, Outcome, Record, State};
use hapax_core::store::{ErrorKind, Store, Swap};
use hapax_core::transition::Answer;
use hapax_postgres::Postgres;
use hapax_testkit::needs_postgres;
use hapax_testkit::postgres::Server;
use tokio::task::JoinSet;

use common::{address, claim, claim_and_complete, connect, engine, open, running};

/// A record that expires as soon as it is written.
fn short_lived() -> Record {
    Record { state: State::Completed, due_in_ms: None, expires_in_ms: Some(1), ..running() }
}

async fn put(store: &Postgres, key: &str, record: &Record) {
    let swapped = store.swap(&address(key), None, record).await.unwrap();
    assert!(matches!(swapped, Swap::Applied(_)), "{key}: {swapped:?}");
}

/// Writes that many records and returns once all have expired.
async fn put_expired(store: &Postgres, name: &str, count: u32) {
    let mut tasks = JoinSet::new();
    for number in 0..count {
        let (store, key) = (store.clone(), format!("{name}-{number}"));
        tasks.spawn(async move { put(&store, &key, &short_lived()).await });
    }
    tasks.join_all().await;
    tokio::time::sleep(Duration::from_millis(10)).await;
}

#[tokio::test]
async fn a_record_with_an_altered_time_is_not_deleted() {
    needs_postgres!();
    let database = Server::shared().fresh_database();
    let engine = engine(open(database.url()).await);
    let store = engine.store();
    for key in ["whole", "altered", "held", "both"] {
        claim_and_complete(&engine, key).await;
    }
    database.run(
        "UPDATE hapax.record SET reap_at = stamped_at + 1 WHERE key = 'altered';
         UPDATE hapax.record SET reap_at = stamped_at, state = 2 WHERE key = 'held';
         UPDATE hapax.record SET reap_at = 2, stamped_at = 1 WHERE key = 'both'",
    );
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(store.reap(10).await.unwrap(), 0, "nothing has expired");
    for key in ["altered", "held", "both"] {
        assert_eq!(store.get(&address(key)).await.unwrap_err().kind, ErrorKind::Damaged, "{key}");
        let error = store.swap(&address(key), None, &running()).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Damaged, "{key} does not come free");
    }
    assert_eq!(claim(&engine, "whole").await.answer, Answer::Replay);
    put_expired(store, "late", 1).await;
    assert_eq!(store.reap(1).await.unwrap(), 1, "those in front are passed over");
    assert_eq!(database.run("SELECT count(*) FROM hapax.record"), "4");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn damaged_records_in_front_keep_no_sound_one_from_being_reaped() {
    needs_postgres!();
    let database = Server::shared().fresh_database();
    let store = open(database.url()).await;
    // More than two statements look at, some of them of one millisecond.
    put_expired(&store, "damaged", 1_200).await;
    database.run("UPDATE hapax.record SET data = set_byte(data, 20, 255 - get_byte(data, 20))");
    put_expired(&store, "sound", 700).await;
    let left = "SELECT count(*) FILTER (WHERE key LIKE 'damaged%'), count(*) FILTER (WHERE key LIKE 'sound%')
                FROM hapax.record";
    assert_eq!(store.reap(1).await.unwrap(), 1);
    assert_eq!(database.run(left), "1200|699");
    assert_eq!(store.reap(10).await.unwrap(), 10);
    assert_eq!(store.reap(10_000).await.unwrap(), 689);
    assert_eq!(database.run(left), "1200|0");
    assert_eq!(store.reap(10).await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn several_reapers_at_once_delete_each_record_once() {
    needs_postgres!();
    let database = Server::shared().fresh_database();
    let store = open(database.url()).await;
    put_expired(&store, "k", 3_000).await;
    let mut reapers = JoinSet::new();
    for _ in 0..4 {
        let other = open(database.url()).await;
        reapers.spawn(async move { other.reap(10_000).await.unwrap() });
    }
    let reaped: u32 = reapers.join_all().await.into_iter().sum();
    assert_eq!(database.run("SELECT count(*) FROM hapax.record"), "0");
    assert_eq!(reaped, 3_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_another_transaction_holds_stays_and_nobody_waits_for_it() {
    needs_postgres!();
    let database = Server::shared().fresh_database();
    let store = open(database.url()).await;
    put_expired(&store, "held", 1).await;
    put_expired(&store, "free", 1).await;
    let mut shop = connect(&database.url()).await;
    let tx = shop.transaction().await.unwrap();
    tx.execute("SELECT 1 FROM hapax.record WHERE key = 'held-0' FOR UPDATE", &[]).await.unwrap();
    assert_eq!(store.reap(1).await.unwrap(), 1, "the one behind it");
    assert_eq!(database.run("SELECT key FROM hapax.record"), "held-0");
    tx.rollback().await.unwrap();
    assert_eq!(store.reap(1).await.unwrap(), 1);
}

#[tokio::test]
async fn large_answers_are_reaped_in_smaller_slices() {
    needs_postgres!();
    let database = Server::shared().fresh_database();
    let store = open(database.url()).await;
    let body = Body::Kept(vec![7; 7 * 1024 * 1024]);
    let outcome = Arc::new(Outcome { status: 200, headers: Vec::new(), body });
    for number in 0..5 {
        let record = Record { outcome: Some(Arc::clone(&outcome)), ..short_lived() };
        put(&store, &format!("large-{number}"), &record).await;
    }
    put_expired(&store, "small", 1).await;
    assert_eq!(store.reap(10).await.unwrap(), 6, "one call, however many statements that takes");
}
