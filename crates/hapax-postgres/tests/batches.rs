//! Swaps that are written together: what they do to each other, and what other transactions do to them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

mod common;

use std::time::Duration;

use hapax_core::record::{Record, Version};
use hapax_core::store::{ErrorKind, Store, StoreError, Swap};
use hapax_postgres::{Options, Postgres};
use hapax_testkit::needs_postgres;
use hapax_testkit::postgres::{Database, Server};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use common::{PATIENCE, address, connect, open, put, running};

/// Far below the time a statement may take, far above what a batch takes.
const SOON: Duration = Duration::from_secs(3);

const KEYS: usize = 64;
/// Somewhere in the middle, so that it shares its batch with others.
const HELD: usize = 40;

fn key(number: usize) -> String {
    format!("k-{number}")
}

fn swap(store: &Postgres, number: usize, expect: Option<Version>) -> JoinHandle<Result<Swap, StoreError>> {
    let store = store.clone();
    tokio::spawn(async move { store.swap(&address(&key(number)), expect, &running()).await })
}

/// Swaps all keys at once; all but the held one must be applied soon. Returns the held one, still waiting.
async fn all_but_the_held_one(store: &Postgres, expects: &[Option<Version>]) -> JoinHandle<Result<Swap, StoreError>> {
    let mut swaps: Vec<_> = expects.iter().enumerate().map(|(number, expect)| swap(store, number, *expect)).collect();
    let held = swaps.remove(HELD);
    for swapped in swaps {
        let swapped = timeout(SOON, swapped).await.expect("a neighbour of the held row waits for it");
        assert!(matches!(swapped.unwrap().unwrap(), Swap::Applied(_)));
    }
    assert!(!held.is_finished(), "it is held by an open transaction");
    held
}

/// Waits until a session of hapax waits for a lock, and has done so for longer than a batch would.
fn until_something_waits(database: &Database) {
    let waiting =
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
                   AND application_name = 'hapax' AND clock_timestamp() - query_start > interval '100 ms'";
    hapax_testkit::wait::until("a session that waits for a lock", PATIENCE, || database.run(waiting) != "0");
}

async fn with_records() -> (Database, Postgres, Vec<Option<Version>>) {
    let database = Server::shared().fresh_database();
    let store = open(database.url()).await;
    let mut versions = Vec::new();
    for number in 0..KEYS {
        versions.push(Some(put(&store, &key(number)).await.version));
    }
    (database, store, versions)
}

async fn version_of(store: &Postgres, number: usize) -> Option<Version> {
    store.get(&address(&key(number))).await.unwrap().version()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_row_held_by_an_open_transaction_holds_up_nobody_else() {
    needs_postgres!();
    let (database, store, versions) = with_records().await;
    let mut shop = connect(&database.url()).await;
    let tx = shop.transaction().await.unwrap();
    tx.execute("UPDATE hapax.record SET state = state WHERE key = $1", &[&key(HELD)]).await.unwrap();
    let held = all_but_the_held_one(&store, &versions).await;
    tx.rollback().await.unwrap();
    let swapped = timeout(PATIENCE, held).await.unwrap().unwrap().unwrap();
    assert!(matches!(swapped, Swap::Applied(_)), "free again, it is written: {swapped:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_held_row_that_was_changed_has_lost_once_that_is_committed() {
    needs_postgres!();
    let (database, store, versions) = with_records().await;
    let mut shop = connect(&database.url()).await;
    let tx = shop.transaction().await.unwrap();
    let theirs = running();
    store.swap_in(&tx, &address(&key(HELD)), versions[HELD], &theirs).await.unwrap();
    let held = all_but_the_held_one(&store, &versions).await;
    until_something_waits(&database);
    assert!(!held.is_finished(), "nothing is said of a write that is not committed");
    assert_eq!(version_of(&store, HELD).await, versions[HELD], "and nobody sees it");
    tx.commit().await.unwrap();
    match timeout(PATIENCE, held).await.unwrap().unwrap().unwrap() {
        Swap::Lost(seen) => assert_eq!(seen.version(), Some(theirs.version)),
        applied => panic!("{applied:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_row_that_stays_held_is_given_up_in_time() {
    needs_postgres!();
    let database = Server::shared().fresh_database();
    let options = Options::new(database.url()).with_statement_timeout(Duration::from_millis(500));
    let store = Postgres::open(&options).await.unwrap();
    let first = put(&store, "k").await;
    let mut shop = connect(&database.url()).await;
    let tx = shop.transaction().await.unwrap();
    tx.execute("SELECT 1 FROM hapax.record FOR UPDATE", &[]).await.unwrap();
    for _ in 0..3 {
        let swapped = timeout(SOON, store.swap(&address("k"), Some(first.version), &running())).await.unwrap();
        let error = swapped.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unavailable);
        assert_eq!(
            error.to_string(),
            "swap: an open transaction holds the record; nothing was written; end it or try again"
        );
    }
    put(&store, "other").await;
    tx.rollback().await.unwrap();
    assert_eq!(store.get(&address("k")).await.unwrap().version(), Some(first.version));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_key_that_an_open_transaction_is_inserting_holds_up_nobody_else() {
    needs_postgres!();
    for commits in [false, true] {
        let database = Server::shared().fresh_database();
        let store = open(database.url()).await;
        let mut shop = connect(&database.url()).await;
        let tx = shop.transaction().await.unwrap();
        let theirs = running();
        store.swap_in(&tx, &address(&key(HELD)), None, &theirs).await.unwrap();
        let held = all_but_the_held_one(&store, &[None; KEYS]).await;
        until_something_waits(&database);
        assert!(!held.is_finished(), "nothing is said of a write that is not committed");
        assert_eq!(version_of(&store, HELD).await, None, "and nobody sees it");
        // Its statement began before the commit, so it can neither write the row nor see it, and must look again.
        if commits {
            tx.commit().await.unwrap();
        } else {
            tx.rollback().await.unwrap();
        }
        match (commits, timeout(PATIENCE, held).await.unwrap().unwrap().unwrap()) {
            (true, Swap::Lost(seen)) => assert_eq!(seen.version(), Some(theirs.version)),
            (false, Swap::Applied(_)) => {}
            (_, other) => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_row_committed_after_the_snapshot_is_read_again() {
    needs_postgres!();
    let database = Server::shared().fresh_database();
    let store = open(database.url()).await;
    let mut shop = connect(&database.url()).await;
    // Too quick for the batch to give up: it is the batch itself that has to look again.
    for round in 0..20 {
        let tx = shop.transaction().await.unwrap();
        let theirs = running();
        store.swap_in(&tx, &address(&key(round)), None, &theirs).await.unwrap();
        let ours = swap(&store, round, None);
        let beside = swap(&store, round + 1000, None);
        tokio::task::yield_now().await;
        tx.commit().await.unwrap();
        match timeout(PATIENCE, ours).await.unwrap().unwrap().unwrap() {
            Swap::Lost(seen) => assert_eq!(seen.version(), Some(theirs.version)),
            applied => panic!("round {round}: {applied:?}"),
        }
        assert!(matches!(beside.await.unwrap().unwrap(), Swap::Applied(_)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_replay_waits_for_nobody() {
    needs_postgres!();
    let (database, store, versions) = with_records().await;
    let mut shop = connect(&database.url()).await;
    let tx = shop.transaction().await.unwrap();
    tx.execute("UPDATE hapax.record SET state = state", &[]).await.unwrap();
    let replays: Vec<_> = (0..KEYS).map(|number| swap(&store, number, None)).collect();
    for (number, replay) in replays.into_iter().enumerate() {
        match timeout(SOON, replay).await.expect("a replay waits for a row lock").unwrap().unwrap() {
            Swap::Lost(seen) => assert_eq!(seen.version(), versions[number], "as it is committed"),
            applied => panic!("{applied:?}"),
        }
    }
    tx.rollback().await.unwrap();
}

/// One thread runs what is spawned in its order, so the swaps get in line in the order of the chain.
#[tokio::test]
async fn the_same_id_many_times_at_once_is_written_in_order() {
    needs_postgres!();
    let database = Server::shared().fresh_database();
    let store = open(database.url()).await;
    let chain: Vec<Record> = (0..50).map(|_| running()).collect();
    let (mut swaps, mut beside) = (Vec::new(), Vec::new());
    let mut expect = None;
    for (number, record) in chain.iter().cloned().enumerate() {
        let (store_of_chain, expected) = (store.clone(), expect.replace(record.version));
        swaps.push(tokio::spawn(async move { store_of_chain.swap(&address("chain"), expected, &record).await }));
        // And others between them, so that there are batches.
        beside.extend((0..3).map(|other| swap(&store, 3 * number + other, None)));
    }
    for (number, swapped) in swaps.into_iter().enumerate() {
        let swapped = timeout(PATIENCE, swapped).await.unwrap().unwrap().unwrap();
        assert!(matches!(swapped, Swap::Applied(_)), "{number} builds on the one before: {swapped:?}");
    }
    for swapped in beside {
        assert!(matches!(timeout(PATIENCE, swapped).await.unwrap().unwrap().unwrap(), Swap::Applied(_)));
    }
    assert_eq!(store.get(&address("chain")).await.unwrap().version(), chain.last().map(|last| last.version));
    let transactions = database.run("SELECT count(DISTINCT xmin::text) FROM hapax.record WHERE key LIKE 'k-%'");
    assert!(
        transactions.parse::<u32>().unwrap() < 50,
        "150 others in {transactions} transactions: there are no batches"
    );
}

/// In whatever order they come, some have lost; none builds on one that has.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_the_same_id_many_times_in_any_order_the_applied_ones_are_a_chain() {
    needs_postgres!();
    let database = Server::shared().fresh_database();
    let store = open(database.url()).await;
    let chain: Vec<Record> = (0..50).map(|_| running()).collect();
    let mut tasks = JoinSet::new();
    let mut expect = None;
    for (number, record) in chain.iter().cloned().enumerate() {
        let (store, expected) = (store.clone(), expect.replace(record.version));
        tasks.spawn(async move { (number, store.swap(&address("chain"), expected, &record).await.unwrap()) });
    }
    let done = tasks.join_all().await.into_iter();
    let mut applied: Vec<usize> =
        done.filter(|(_, swapped)| matches!(swapped, Swap::Applied(_))).map(|(number, _)| number).collect();
    applied.sort_unstable();
    let last = applied.last().copied().expect("the first one expects nothing and is written");
    assert_eq!(applied, (0..=last).collect::<Vec<_>>(), "each builds on the one before");
    assert_eq!(store.get(&address("chain")).await.unwrap().version(), Some(chain[last].version));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn batches_of_two_nodes_in_opposite_orders_do_not_block_each_other() {
    needs_postgres!();
    let (database, one, mut versions) = with_records().await;
    let other = open(database.url()).await;
    for round in 0..20 {
        let forwards = (0..KEYS).map(|number| (number, swap(&one, number, versions[number])));
        let forwards: Vec<_> = forwards.collect();
        let backwards: Vec<_> =
            (0..KEYS).rev().map(|number| (number, swap(&other, number, versions[number]))).collect();
        let mut winners = [0; KEYS];
        for (number, swapped) in forwards.into_iter().chain(backwards) {
            let swapped = timeout(PATIENCE, swapped).await.unwrap().unwrap().unwrap();
            winners[number] += usize::from(matches!(swapped, Swap::Applied(_)));
        }
        assert_eq!(winners, [1; KEYS], "round {round}");
        for (number, version) in versions.iter_mut().enumerate() {
            *version = version_of(&one, number).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn thousands_of_swaps_at_once_are_all_answered() {
    needs_postgres!();
    let database = Server::shared().fresh_database();
    let store = open(database.url()).await;
    let mut tasks = JoinSet::new();
    for number in 0..5_000 {
        let store = store.clone();
        tasks.spawn(async move { put(&store, &key(number)).await });
    }
    tasks.join_all().await;
    assert_eq!(database.run("SELECT count(*) FROM hapax.record"), "5000");
}

#[tokio::test]
async fn a_closed_store_leaves_no_session_behind() {
    needs_postgres!();
    let database = Server::shared().fresh_database();
    let store = open(database.url()).await;
    put(&store, "k").await;
    let sessions =
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'hapax' AND datname = current_database()";
    assert_ne!(database.run(sessions), "0");
    drop(store);
    for _ in 0..1_000 {
        if database.run(sessions) == "0" {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("its sessions are still there");
}
