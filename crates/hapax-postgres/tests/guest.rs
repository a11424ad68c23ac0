//! Swaps inside an application's own transaction: both commit, or neither.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

mod common;

use hapax_core::record::State;
use hapax_core::store::{ErrorKind, Store, Swap};
use hapax_postgres::Postgres;
use hapax_testkit::needs_postgres;
use hapax_testkit::postgres::{Database, Server};

use common::{TestEngine, address, claim, completion, connect, engine, open, put, running, state};

const OTHER: &str =
    "swap_in: the transaction is not on this store's database; begin it on the database the store was opened on";

async fn shop() -> (Database, TestEngine<Postgres>) {
    let database = Server::shared().fresh_database();
    database.run("CREATE TABLE orders (id text)");
    let engine = engine(open(database.url()).await);
    (database, engine)
}

fn orders(database: &Database) -> String {
    database.run("SELECT count(*) FROM orders")
}

async fn state_of(engine: &TestEngine<Postgres>, key: &str) -> Option<State> {
    state(&engine.store().get(&address(key)).await.unwrap())
}

#[tokio::test]
async fn completion_and_the_applications_data_commit_together_or_not_at_all() {
    needs_postgres!();
    let (database, engine) = shop().await;
    let mut client = connect(&database.url()).await;
    let held = claim(&engine, "k").await;
    let (expect, next) = completion(&held.seen, "k");
    for commits in [false, true] {
        let tx = client.transaction().await.unwrap();
        tx.execute("INSERT INTO orders VALUES ('o-1')", &[]).await.unwrap();
        let swapped = engine.store().swap_in(&tx, &address("k"), expect, &next).await.unwrap();
        assert!(matches!(swapped, Swap::Applied(_)));
        assert_eq!(state_of(&engine, "k").await, Some(State::Running), "not before the commit");
        if commits {
            tx.commit().await.unwrap();
        } else {
            tx.rollback().await.unwrap();
        }
        let expected = if commits { (State::Completed, "1") } else { (State::Running, "0") };
        assert_eq!((state_of(&engine, "k").await, orders(&database).as_str()), (Some(expected.0), expected.1));
    }
    let tx = client.transaction().await.unwrap();
    match engine.store().swap_in(&tx, &address("k"), expect, &next).await.unwrap() {
        Swap::Lost(seen) => assert_eq!(seen.version(), Some(next.version)),
        applied => panic!("{applied:?}"),
    }
    match engine.store().swap_in(&tx, &address("k"), None, &running()).await.unwrap() {
        Swap::Lost(seen) => assert_eq!(seen.version(), Some(next.version)),
        applied => panic!("{applied:?}"),
    }
    match engine.store().swap_in(&tx, &address("absent"), expect, &next).await.unwrap() {
        Swap::Lost(seen) => assert_eq!(seen.stored, None),
        applied => panic!("{applied:?}"),
    }
    tx.commit().await.unwrap();
}

#[tokio::test]
async fn an_accepted_request_commits_with_the_applications_data() {
    needs_postgres!();
    let (database, engine) = shop().await;
    let mut client = connect(&database.url()).await;
    let record = running();
    let tx = client.transaction().await.unwrap();
    tx.execute("INSERT INTO orders VALUES ('o-1')", &[]).await.unwrap();
    let swapped = engine.store().swap_in(&tx, &address("k"), None, &record).await.unwrap();
    let Swap::Applied(now) = swapped else { panic!("{swapped:?}") };
    tx.commit().await.unwrap();
    let stored = engine.store().get(&address("k")).await.unwrap().stored.unwrap();
    assert_eq!((stored.record, stored.stamped_at), (record, now.at));
}

#[tokio::test]
async fn a_transaction_on_another_database_is_refused() {
    needs_postgres!();
    let (_database, engine) = shop().await;
    let held = claim(&engine, "k").await;
    let (expect, next) = completion(&held.seen, "k");
    let without_tables = Server::shared().fresh_database();
    let with_tables = Server::shared().fresh_database();
    put(&open(with_tables.url()).await, "k").await;
    for other in [without_tables, with_tables] {
        let mut client = connect(&other.url()).await;
        let tx = client.transaction().await.unwrap();
        let error = engine.store().swap_in(&tx, &address("k"), expect, &next).await.unwrap_err();
        assert_eq!((error.kind, error.to_string()), (ErrorKind::Unsuitable, OTHER.to_owned()));
    }
}

#[tokio::test]
async fn a_transaction_on_a_standby_is_refused() {
    needs_postgres!();
    let primary = Server::builder().start();
    let store = open(primary.maintenance().url()).await;
    let first = put(&store, "k").await;
    let standby = primary.standby();
    let mut client = connect(&standby.maintenance().url()).await;
    let tx = client.transaction().await.unwrap();
    let error = store.swap_in(&tx, &address("k"), Some(first.version), &running()).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unsuitable);
    assert_eq!(error.to_string(), "swap_in: the server is a standby: what it says may be old; connect to the primary");
}

#[tokio::test]
async fn an_altered_record_is_not_handed_to_a_transaction() {
    needs_postgres!();
    let (database, engine) = shop().await;
    claim(&engine, "k").await;
    database.run("UPDATE hapax.record SET data = set_byte(data, 20, 255 - get_byte(data, 20))");
    let mut client = connect(&database.url()).await;
    let tx = client.transaction().await.unwrap();
    let error = engine.store().swap_in(&tx, &address("k"), None, &running()).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Damaged);
}

#[cfg(feature = "sqlx")]
mod sqlx_transactions {
    use sqlx::{Connection, PgConnection};

    use super::*;

    #[tokio::test]
    async fn completion_and_the_applications_data_commit_together_or_not_at_all() {
        needs_postgres!();
        let (database, engine) = shop().await;
        let mut connection = PgConnection::connect(&database.url()).await.unwrap();
        let held = claim(&engine, "k").await;
        let (expect, next) = completion(&held.seen, "k");
        for commits in [false, true] {
            let mut tx = connection.begin().await.unwrap();
            sqlx::query("INSERT INTO orders VALUES ('o-1')").execute(&mut *tx).await.unwrap();
            let swapped = engine.store().swap_in_sqlx(&mut tx, &address("k"), expect, &next).await.unwrap();
            assert!(matches!(swapped, Swap::Applied(_)));
            assert_eq!(state_of(&engine, "k").await, Some(State::Running), "not before the commit");
            if commits {
                tx.commit().await.unwrap();
            } else {
                tx.rollback().await.unwrap();
            }
            let expected = if commits { (State::Completed, "1") } else { (State::Running, "0") };
            assert_eq!((state_of(&engine, "k").await, orders(&database).as_str()), (Some(expected.0), expected.1));
        }
        let stored = engine.store().get(&address("k")).await.unwrap().stored.unwrap();
        assert_eq!(stored.record, next, "every byte came through");
    }

    #[tokio::test]
    async fn inserts_and_losses_are_told_apart() {
        needs_postgres!();
        let (database, engine) = shop().await;
        let mut connection = PgConnection::connect(&database.url()).await.unwrap();
        let store = engine.store();
        let mut tx = connection.begin().await.unwrap();
        let (first, second) = (running(), running());
        let swapped = store.swap_in_sqlx(&mut tx, &address("k"), None, &first).await.unwrap();
        assert!(matches!(swapped, Swap::Applied(_)));
        for expect in [None, Some(second.version)] {
            match store.swap_in_sqlx(&mut tx, &address("k"), expect, &second).await.unwrap() {
                Swap::Lost(seen) => assert_eq!(seen.stored.unwrap().record, first),
                applied => panic!("{applied:?}"),
            }
        }
        match store.swap_in_sqlx(&mut tx, &address("absent"), Some(first.version), &second).await.unwrap() {
            Swap::Lost(seen) => assert_eq!(seen.stored, None),
            applied => panic!("{applied:?}"),
        }
        tx.commit().await.unwrap();
        assert_eq!(store.get(&address("k")).await.unwrap().version(), Some(first.version));
    }

    #[tokio::test]
    async fn a_transaction_on_another_database_is_refused() {
        needs_postgres!();
        let (_database, engine) = shop().await;
        let held = claim(&engine, "k").await;
        let (expect, next) = completion(&held.seen, "k");
        let mut connection = PgConnection::connect(&Server::shared().fresh_database().url()).await.unwrap();
        let mut tx = connection.begin().await.unwrap();
        let error = engine.store().swap_in_sqlx(&mut tx, &address("k"), expect, &next).await.unwrap_err();
        assert_eq!((error.kind, error.to_string()), (ErrorKind::Unsuitable, OTHER.to_owned()));
    }
}
