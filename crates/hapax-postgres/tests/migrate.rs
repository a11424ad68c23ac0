//! Databases of older releases, with records in them: what is there stays, and what works beside goes on.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

mod common;

use std::time::Duration;

use hapax_core::record::{Doubt, Record, State};
use hapax_core::store::{Due, ErrorKind, Scan, Store, Swap};
use hapax_postgres::{Options, Postgres};
use hapax_testkit::needs_postgres;
use hapax_testkit::postgres::{Database, Server};
use tokio::time::timeout;

use common::{PATIENCE, address, claim_and_complete, connect, engine, open, put, running, state};

/// The migrations as they are embedded; a release's never change.
const MIGRATIONS: [&str; 2] =
    [include_str!("../src/migrations/0001_records.sql"), include_str!("../src/migrations/0002_notes.sql")];

/// How the release of schema 2 looked for what is due.
const SCAN_DUE_OF_2: &str = "SELECT r.key FROM hapax.record r
     WHERE (r.due_at IS NOT NULL OR r.state < 5) AND (coalesce(r.due_at, -1), r.id) > ($1::bigint, $2::bytea)
       AND coalesce(r.due_at, -1) <= $3::bigint
     ORDER BY coalesce(r.due_at, -1), r.id LIMIT 100";

/// Longer than a migration waits for a lock, and far shorter than it may wait for another node.
const SOON: Duration = Duration::from_secs(10);

/// A database as a release of that schema left it, with nothing in it yet.
fn of_schema(number: usize) -> Database {
    let database = Server::shared().fresh_database();
    let steps = MIGRATIONS[..number].concat().replace("{schema}", "hapax");
    database.run(&format!(
        "CREATE SCHEMA hapax;
         CREATE TABLE hapax.meta (name text PRIMARY KEY, value text NOT NULL);
         INSERT INTO hapax.meta VALUES ('schema', '{number}'), ('min_reader', '1'), ('store', gen_random_uuid()::text);
         {steps}"
    ));
    database
}

fn schema_of(database: &Database) -> String {
    database.run("SELECT value FROM hapax.meta WHERE name = 'schema'")
}

fn indexes_of(database: &Database, schema: &str) -> String {
    let all = "SELECT indexdef FROM pg_indexes WHERE schemaname";
    database.run(&format!("{all} = '{schema}' ORDER BY 1")).replace(&format!("{schema}."), "")
}

/// Records of every state, in another schema of the database; returns their keys.
async fn write_every_kind(database: &Database) -> Vec<String> {
    let store = Postgres::open(Options::new(database.url()).with_schema("source")).await.unwrap();
    let mut keys = Vec::new();
    for state in State::ALL {
        let doubt = (state == State::Unknown).then_some(Doubt { since: None, probes: 3 });
        let timed = [None, Some(60_000)];
        for (due_in_ms, expires_in_ms) in timed.into_iter().flat_map(|due| timed.map(|expires| (due, expires))) {
            let record = Record { state, due_in_ms, expires_in_ms, doubt, ..running() };
            let key = format!("{state:?}-{due_in_ms:?}-{expires_in_ms:?}");
            let swapped = store.swap(&address(&key), None, &record).await.unwrap();
            assert!(matches!(swapped, Swap::Applied(_)), "{key}");
            keys.push(key);
        }
    }
    let engine = engine(store);
    claim_and_complete(&engine, "with an answer").await;
    keys.push("with an answer".to_owned());
    keys
}

#[tokio::test]
async fn every_record_of_an_older_schema_is_as_it_was() {
    needs_postgres!();
    for number in 1..=MIGRATIONS.len() {
        let database = of_schema(number);
        let keys = write_every_kind(&database).await;
        database.run("INSERT INTO hapax.record SELECT * FROM source.record");
        if number > 1 {
            let columns = "(at, who, what, reason, detail)";
            database.run(&format!("INSERT INTO hapax.note {columns} VALUES (1, 'me', 'resolve', 'because', '')"));
        }
        let store = open(database.url()).await;
        assert_eq!(schema_of(&database), "3", "from {number}");
        let differs =
            "SELECT count(*) FROM hapax.record a FULL JOIN source.record b USING (id) WHERE a IS DISTINCT FROM b";
        assert_eq!(database.run(differs), "0", "from {number}");
        assert_eq!(database.run("SELECT count(*) FROM hapax.record"), keys.len().to_string());
        let source = Postgres::open(Options::new(database.url()).with_schema("source")).await.unwrap();
        for key in &keys {
            let (ours, theirs) = (store.get(&address(key)).await.unwrap(), source.get(&address(key)).await.unwrap());
            assert!(ours.stored.is_some() && ours.stored == theirs.stored, "from {number}: {key}: {ours:?}");
        }
        let indexes = indexes_of(&database, "hapax");
        assert_eq!(indexes, indexes_of(&database, "source"), "from {number}");
        let by_state = "record_due ON record USING btree (state, COALESCE(due_at, ('-1'::integer)::bigint))";
        for index in [by_state, "record_reap ON record USING btree (reap_at)", "note_about ON note"] {
            assert!(indexes.contains(index), "from {number}: {index} in {indexes}");
        }
        let notes = database.run("SELECT count(*) FROM hapax.note");
        assert_eq!(notes, if number > 1 { "1" } else { "0" }, "from {number}");
    }
}

/// Reads, writes, scans and reaps; all of it is prepared after the first time.
async fn use_every_statement(store: &Postgres, round: u32) {
    let key = format!("round-{round}");
    let first = put(store, &key).await;
    let second = running();
    let swapped = store.swap(&address(&key), Some(first.version), &second).await.unwrap();
    assert!(matches!(swapped, Swap::Applied(_)), "{swapped:?}");
    let lost = store.swap(&address(&key), None, &running()).await.unwrap();
    assert!(matches!(lost, Swap::Lost(seen) if seen.version() == Some(second.version)));
    let many = (0..50).map(|number| put_in_background(store, format!("{key}-{number}")));
    for task in many.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    let short = Record { state: State::Completed, due_in_ms: None, expires_in_ms: Some(1), ..running() };
    store.swap(&address("short"), None, &short).await.unwrap();
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(store.reap(10).await.unwrap(), 1);
    let now = store.get(&address(&key)).await.unwrap().now.at;
    let soon = Scan { due: Some(Due::By(now.plus_ms(60_000))), limit: 500, ..Scan::default() };
    for query in [soon, Scan { limit: 500, ..Scan::default() }] {
        let found = store.scan(&query).await.unwrap();
        assert!(found.damaged.is_empty());
        assert_eq!(found.entries.len(), 51 * (round as usize + 1), "{query:?}");
    }
    let id = *address(&key).id();
    assert_eq!(store.between(&id, &id, 10).await.unwrap().entries.len(), 1);
}

fn put_in_background(store: &Postgres, key: String) -> tokio::task::JoinHandle<Record> {
    let store = store.clone();
    tokio::spawn(async move { put(&store, &key).await })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn who_works_on_schema_2_goes_on_when_another_node_migrates_it() {
    needs_postgres!();
    let database = of_schema(2);
    let old = Postgres::open(Options::new(database.url()).with_existing()).await.unwrap();
    use_every_statement(&old, 0).await;
    use_every_statement(&old, 1).await;
    assert_eq!(schema_of(&database), "2", "whoever only looks does not migrate");
    let client = connect(&database.url()).await;
    let scan = client.prepare(SCAN_DUE_OF_2).await.unwrap();
    let before = client.query(&scan, &[&-1_i64, &&b""[..], &i64::MAX]).await.unwrap().len();

    let new = open(database.url()).await;
    assert_eq!(schema_of(&database), "3");
    use_every_statement(&old, 2).await;
    use_every_statement(&new, 3).await;
    assert_eq!(before, 100);
    assert_eq!(client.query(&scan, &[&-1_i64, &&b""[..], &i64::MAX]).await.unwrap().len(), 100);
    let again = Postgres::open(Options::new(database.url()).with_existing()).await.unwrap();
    assert_eq!(state(&again.get(&address("round-0")).await.unwrap()), Some(State::Running));
}

#[tokio::test]
async fn schema_1_is_not_opened_by_whoever_only_looks() {
    needs_postgres!();
    let database = of_schema(1);
    let error = Postgres::open(Options::new(database.url()).with_existing()).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unsuitable);
    assert!(
        error.message.ends_with(
            "the database has schema 1, of an older release; start a node of this release on it first, which migrates it, or \
             run `Postgres::migrate`"
        ),
        "{error}"
    );
    assert_eq!(schema_of(&database), "1");
    Postgres::migrate(database.url()).await.unwrap();
    assert_eq!(schema_of(&database), "3");
    Postgres::open(Options::new(database.url()).with_existing()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_migration_gives_up_soon_on_a_transaction_that_stays_open() {
    needs_postgres!();
    let database = of_schema(2);
    let working = Postgres::open(Options::new(database.url()).with_existing()).await.unwrap();
    let mut shop = connect(&database.url()).await;
    let tx = shop.transaction().await.unwrap();
    working.swap_in(&tx, &address("theirs"), None, &running()).await.unwrap();
    let indexes = indexes_of(&database, "hapax");
    let opening = tokio::spawn({
        let url = database.url();
        async move { timeout(SOON, Postgres::open(Options::new(url))).await }
    });
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                   AND wait_event_type = 'Lock' AND query LIKE '%CREATE INDEX%'";
    hapax_testkit::wait::until("the migration waits for the writer", PATIENCE, || database.run(waiting) == "1");
    put(&working, "meanwhile").await;
    let error = opening.await.unwrap().expect("it gives up").unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable);
    let held = "an open transaction or a dump holds hapax's tables, so they were not migrated; nothing was changed; end it, \
                then open the store again";
    let target = format!("{}/{}", database.address(), database.name());
    assert_eq!(error.to_string(), format!("open: {target}: {held}"));
    assert_eq!((schema_of(&database), indexes_of(&database, "hapax")), ("2".to_owned(), indexes));
    put(&working, "afterwards").await;

    tx.commit().await.unwrap();
    let opened = open(database.url()).await;
    assert_eq!(schema_of(&database), "3");
    for key in ["theirs", "meanwhile", "afterwards"] {
        assert!(opened.get(&address(key)).await.unwrap().stored.is_some(), "{key}");
    }
}
