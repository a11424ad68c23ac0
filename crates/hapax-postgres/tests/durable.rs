//! Acknowledged means durable, whatever a role, a database or a pooler says of `synchronous_commit`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

mod common;

use hapax_core::store::{Durability, ErrorKind, Store, Swap};
use hapax_postgres::{Options, Postgres};
use hapax_testkit::pgbouncer::Bouncer;
use hapax_testkit::postgres::{Database, Server};
use hapax_testkit::{needs_pgbouncer, needs_postgres, wait};

use common::{PATIENCE, address, connect, open, put, running};

/// Writes down, at the end of each transaction that touches a record, how that transaction is going to commit.
const WITNESS: &str = "
    CREATE TABLE commits (setting text);
    CREATE FUNCTION witness() RETURNS trigger LANGUAGE plpgsql AS
      'BEGIN INSERT INTO commits VALUES (current_setting(''synchronous_commit'')); RETURN NULL; END';
    CREATE CONSTRAINT TRIGGER witness AFTER INSERT OR UPDATE ON hapax.record
      DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION witness()";

async fn witnessed(database: &Database) {
    open(database.url()).await;
    database.run(WITNESS);
    database.run(&format!("ALTER DATABASE {} SET synchronous_commit = off", database.name()));
    assert_eq!(database.run("SHOW synchronous_commit"), "off", "that is what every new session has");
}

/// Single writes, batches, and a row that is written alone because somebody holds it.
async fn write_in_every_way(store: &Postgres, database: &Database) {
    let first = put(store, "alone").await;
    assert!(matches!(store.swap(&address("alone"), Some(first.version), &running()).await.unwrap(), Swap::Applied(_)));
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..100 {
        let store = store.clone();
        tasks.spawn(async move {
            let key = format!("k-{number}");
            let first = put(&store, &key).await;
            store.swap(&address(&key), Some(first.version), &running()).await.unwrap();
        });
    }
    tasks.join_all().await;
    let held = put(store, "held").await;
    let mut shop = connect(&database.url()).await;
    let tx = shop.transaction().await.unwrap();
    tx.execute("SELECT 1 FROM hapax.record WHERE key = 'held' FOR UPDATE", &[]).await.unwrap();
    let waiting = tokio::spawn({
        let store = store.clone();
        async move { store.swap(&address("held"), Some(held.version), &running()).await }
    });
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    tx.rollback().await.unwrap();
    assert!(matches!(waiting.await.unwrap().unwrap(), Swap::Applied(_)));
}

fn settings(database: &Database) -> String {
    database.run("SELECT DISTINCT setting FROM commits ORDER BY 1")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn commits_wait_for_the_disk_although_the_database_says_otherwise() {
    needs_postgres!();
    let database = Server::shared().fresh_database();
    witnessed(&database).await;
    let store = open(database.url()).await;
    write_in_every_way(&store, &database).await;
    assert_eq!(settings(&database), "on");
    assert_eq!(store.health().await.unwrap().durability, Durability::Disk);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn commits_wait_for_the_disk_behind_a_pooler_too() {
    needs_pgbouncer!();
    let database = Server::shared().fresh_database();
    witnessed(&database).await;
    let bouncer = Bouncer::transaction_mode(&database);
    let store = Postgres::open(Options::new(bouncer.url()).with_pooler()).await.unwrap();
    write_in_every_way(&store, &database).await;
    assert_eq!(settings(&database), "on");
}

#[tokio::test]
async fn a_callers_transaction_waits_for_the_disk_once_a_record_is_in_it() {
    needs_postgres!();
    let database = Server::shared().fresh_database();
    witnessed(&database).await;
    let store = open(database.url()).await;
    let mut shop = connect(&database.url()).await;
    let record = running();
    let tx = shop.transaction().await.unwrap();
    store.swap_in(&tx, &address("k"), None, &record).await.unwrap();
    tx.commit().await.unwrap();
    let tx = shop.transaction().await.unwrap();
    store.swap_in(&tx, &address("k"), Some(record.version), &running()).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(settings(&database), "on");
    let row = shop.query_one("SHOW synchronous_commit", &[]).await.unwrap();
    assert_eq!(row.get::<_, &str>(0), "off", "the rest of the caller's session is its own");
}

#[tokio::test]
async fn stronger_settings_are_left_as_they_are() {
    needs_postgres!();
    let database = Server::shared().fresh_database();
    witnessed(&database).await;
    database.run(&format!("ALTER DATABASE {} SET synchronous_commit = remote_apply", database.name()));
    put(&open(database.url()).await, "k").await;
    assert_eq!(settings(&database), "remote_apply");
}

#[tokio::test]
async fn a_synchronous_standby_makes_a_store_replicated() {
    needs_postgres!();
    let primary = Server::builder().start();
    let database = primary.maintenance();
    let store = open(database.url()).await;
    assert_eq!(store.health().await.unwrap().durability, Durability::Disk);
    let standby = primary.standby();
    database.run("ALTER SYSTEM SET synchronous_standby_names = '*'");
    database.run("SELECT pg_reload_conf()");
    wait::until("the standby is synchronous", PATIENCE, || {
        database.run("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'") == "1"
    });
    assert_eq!(store.health().await.unwrap().durability, Durability::Replicated);
    put(&store, "k").await;
    wait::until("the record is there", PATIENCE, || {
        standby.maintenance().run("SELECT count(*) FROM hapax.record") == "1"
    });

    let strict = Options::new(database.url()).with_standby_required();
    let strict = Postgres::open(&strict).await.unwrap();
    put(&strict, "strictly").await;
    strict.health().await.unwrap();
    database.run("ALTER SYSTEM RESET synchronous_standby_names");
    database.run("SELECT pg_reload_conf()");
    wait::until("nothing is confirmed any more", PATIENCE, || {
        database.run("SHOW synchronous_standby_names").is_empty()
    });
    let error = strict.health().await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "health: no standby confirms what is committed, and one is required; set synchronous_standby_names, or say that \
         this is a single node (`store.single_node`)"
    );
    let error = strict.swap(&address("not-confirmed"), None, &running()).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unsuitable, "the connections that were good are not used any more: {error}");
    let error = Postgres::open(Options::new(database.url()).with_standby_required()).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unsuitable);
    assert!(error.to_string().contains(": no standby confirms what is committed, and one is required;"), "{error}");
}
