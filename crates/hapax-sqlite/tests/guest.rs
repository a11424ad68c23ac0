//! Swaps inside an application's own transaction: both commit, or neither.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

mod common;

use hapax_core::record::{Labels, Record, State, Stored, Version};
use hapax_core::store::{ErrorKind, Seen, Store, Swap};
use hapax_core::transition::{Event, decide};
use hapax_sqlite::{Options, Sqlite};
use hapax_testkit::tokens;
use rusqlite::Connection;

use common::{address, claim, engine, outcome};

/// The record that completes what was claimed, and the version to expect.
fn completion(seen: &Seen, key: &str) -> (Option<Version>, Record) {
    let attempt_id = seen.stored.as_ref().and_then(|stored| stored.record.attempt_id).unwrap();
    let event = Event::Complete { attempt_id, outcome: &outcome(key), labels: &Labels::default() };
    let decision = decide(seen, &event, Version::from_bytes(tokens::random())).unwrap();
    (seen.version(), decision.write.unwrap())
}

fn orders(path: &std::path::Path) -> Connection {
    let connection = Connection::open(path).unwrap();
    connection.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE IF NOT EXISTS orders (id TEXT)").unwrap();
    connection
}

fn count(connection: &Connection) -> i64 {
    connection.query_row("SELECT count(*) FROM orders", [], |row| row.get(0)).unwrap()
}

fn state(seen: Seen) -> State {
    let Stored { record, .. } = seen.stored.unwrap();
    record.state
}

#[tokio::test]
async fn completion_and_the_applications_data_commit_together_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("shop.db");
    let mut shop = orders(&path);
    let engine = engine(Sqlite::open(Options::new(&path).with_guest()).unwrap());
    let held = claim(&engine, "k").await;
    let (expect, next) = completion(&held.seen, "k");

    let tx = shop.transaction().unwrap();
    tx.execute("INSERT INTO orders VALUES ('o-1')", []).unwrap();
    let swapped = engine.store().swap_in(&tx, &address("k"), expect, &next).unwrap();
    assert!(matches!(swapped, Swap::Applied(_)));
    tx.rollback().unwrap();
    assert_eq!(state(engine.store().get(&address("k")).await.unwrap()), State::Running);
    assert_eq!(count(&shop), 0);

    let tx = shop.transaction().unwrap();
    tx.execute("INSERT INTO orders VALUES ('o-1')", []).unwrap();
    engine.store().swap_in(&tx, &address("k"), expect, &next).unwrap();
    assert_eq!(state(engine.store().get(&address("k")).await.unwrap()), State::Running, "not before the commit");
    tx.commit().unwrap();
    assert_eq!(state(engine.store().get(&address("k")).await.unwrap()), State::Completed);
    assert_eq!(count(&shop), 1);

    let tx = shop.transaction().unwrap();
    assert!(matches!(engine.store().swap_in(&tx, &address("k"), expect, &next).unwrap(), Swap::Lost(_)));
}

#[tokio::test]
async fn a_transaction_on_another_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(Sqlite::open(Options::new(dir.path().join("hapax.db"))).unwrap());
    let held = claim(&engine, "k").await;
    let (expect, next) = completion(&held.seen, "k");
    let mut shop = orders(&dir.path().join("shop.db"));
    let tx = shop.transaction().unwrap();
    let error = engine.store().swap_in(&tx, &address("k"), expect, &next).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unsuitable);
    assert_eq!(error.to_string(), "swap_in: the transaction is not on this store's file; open both on the same file");
}

#[tokio::test]
async fn a_connection_that_would_not_make_the_commit_durable_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("shop.db");
    let mut shop = orders(&path);
    let engine = engine(Sqlite::open(Options::new(&path).with_guest()).unwrap());
    let held = claim(&engine, "k").await;
    let (expect, next) = completion(&held.seen, "k");
    shop.pragma_update(None, "synchronous", "NORMAL").unwrap();
    let tx = shop.transaction().unwrap();
    let error = engine.store().swap_in(&tx, &address("k"), expect, &next).unwrap_err();
    assert_eq!(
        error.to_string(),
        "swap_in: the connection would not make the commit durable; set PRAGMA synchronous = FULL on it"
    );
}

#[test]
fn a_guest_leaves_the_applications_marks_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("shop.db");
    orders(&path).execute_batch("PRAGMA application_id = 77; PRAGMA user_version = 5").unwrap();
    drop(Sqlite::open(Options::new(&path).with_guest()).unwrap());
    let shop = orders(&path);
    let read = |name: &str| shop.query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!((read("application_id"), read("user_version")), (77, 5));
}
