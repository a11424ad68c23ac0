//! Bad input gets a clear error, and loses nothing.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

mod common;

use hapax_core::store::{ErrorKind, Scan, Store, StoreError};
use hapax_postgres::{Options, Postgres};
use hapax_testkit::needs_postgres;
use hapax_testkit::postgres::{Database, Server};

use common::{address, everything_said, open, put, running};

async fn refusal(options: &Options) -> StoreError {
    match Postgres::open(options).await {
        Ok(_) => panic!("it opened"),
        Err(error) => error,
    }
}

/// Another database of the same server.
fn elsewhere(database: &Database, name: &str) -> String {
    let url = database.url();
    let (server, _) = url.rsplit_once('/').unwrap();
    format!("{server}/{name}")
}

#[tokio::test]
async fn an_unreadable_connection_string_is_refused_without_repeating_it() {
    for dsn in ["postgres//me:hunter2@db/app", "host=db port=hunter2", "password='hunter2"] {
        let error = refusal(&Options::new(dsn)).await;
        assert_eq!(error.kind, ErrorKind::Unsuitable);
        assert_eq!(
            error.to_string(),
            "open: the connection string cannot be read; write postgres://user:password@host:5432/database"
        );
        assert!(!everything_said(&error).contains("hunter2"), "{error:?}");
    }
    let error = refusal(&Options::new("user=me password=hunter2")).await;
    assert_eq!(
        error.to_string(),
        "open: the connection string names no host; write postgres://user:password@host:5432/database"
    );
}

#[tokio::test]
async fn a_wrong_password_is_refused_and_shown_to_nobody() {
    needs_postgres!();
    let server = Server::builder().with_password("right-secret").start();
    let error = refusal(&Options::new(server.dsn("postgres", "wrong-secret"))).await;
    assert_eq!(error.kind, ErrorKind::Unsuitable);
    let target = format!("{}/postgres", server.address());
    assert_eq!(
        error.to_string(),
        format!("open: {target}: the server refused the user or the password; correct them in the connection string")
    );
    let said = everything_said(&error);
    assert!(said.contains("password authentication failed"), "what the server said is passed on: {said}");
    assert!(!said.contains("wrong-secret"), "{said}");

    let store = open(server.dsn("postgres", "right-secret")).await;
    assert!(!format!("{store:?}").contains("secret"), "{store:?}");
    put(&store, "k").await;
}

#[tokio::test]
async fn a_server_that_is_down_is_named() {
    needs_postgres!();
    let mut server = Server::builder().start();
    let url = server.maintenance().url();
    let address = server.address();
    server.stop();
    let error = refusal(&Options::new(url)).await;
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert_eq!(
        error.to_string(),
        format!(
            "open: {address}/postgres: the server cannot be reached; nothing was written; check that it runs and listens \
             there"
        )
    );
}

#[tokio::test]
async fn a_database_that_does_not_exist_is_named() {
    needs_postgres!();
    let database = Server::shared().maintenance();
    let url = elsewhere(&database, "nowhere");
    let error = refusal(&Options::new(url)).await;
    assert_eq!(error.kind, ErrorKind::Unsuitable);
    assert_eq!(
        error.to_string(),
        format!(
            "open: {}/nowhere: the database does not exist; create it or correct the connection string",
            database.address()
        )
    );
}

#[tokio::test]
async fn a_standby_is_refused_with_the_reason() {
    needs_postgres!();
    let primary = Server::builder().start();
    open(primary.maintenance().url()).await;
    let standby = primary.standby();
    let error = refusal(&Options::new(standby.maintenance().url())).await;
    assert_eq!(error.kind, ErrorKind::Unsuitable);
    assert_eq!(
        error.to_string(),
        format!("open: {}/postgres: the server is a standby; connect to the primary", standby.address())
    );
    let both = format!("postgres://postgres@{},{}/postgres", standby.address(), primary.address());
    put(&open(both).await, "of several hosts the one that takes writes is used").await;
}

#[tokio::test]
async fn a_server_that_does_not_wait_for_its_disk_is_refused() {
    needs_postgres!();
    let server = Server::builder().with_setting("fsync", "off").start();
    let error = refusal(&Options::new(server.maintenance().url())).await;
    assert_eq!(error.kind, ErrorKind::Unsuitable);
    assert_eq!(
        error.to_string(),
        format!(
            "open: {}/postgres: fsync is off: what was acknowledged would not survive a crash; set fsync = on",
            server.address()
        )
    );
}

#[tokio::test]
async fn a_database_that_cannot_hold_every_scope_is_refused() {
    needs_postgres!();
    let name = hapax_testkit::tokens::name("latin");
    let database = Server::shared().maintenance();
    database.run(&format!("CREATE DATABASE {name} ENCODING 'LATIN1' TEMPLATE template0"));
    let error = refusal(&Options::new(elsewhere(&database, &name))).await;
    assert_eq!(error.kind, ErrorKind::Unsuitable);
    assert!(error.to_string().ends_with("the database's encoding is LATIN1; create one with encoding UTF8"), "{error}");
}

#[tokio::test]
async fn tls_that_was_asked_for_and_not_given_is_refused() {
    needs_postgres!();
    let url = format!("{}?sslmode=require", Server::shared().maintenance().url());
    let error = refusal(&Options::new(url)).await;
    // The server has no TLS either; whoever notices first, it is not done without.
    assert!(error.to_string().contains("TLS") || everything_said(&error).contains("TLS"), "{error:?}");
}

#[tokio::test]
async fn a_bad_schema_name_is_refused() {
    let error = refusal(&Options::new("postgres://me@db/app").with_schema("Robert'); DROP TABLE")).await;
    assert_eq!(error.kind, ErrorKind::Unsuitable);
    assert!(error.to_string().contains("use up to 63 lower-case letters, digits and underscores"), "{error}");
}

#[tokio::test]
async fn a_newer_schema_is_refused_unless_it_admits_this_release() {
    needs_postgres!();
    let database = Server::shared().fresh_database();
    let store = open(database.url()).await;
    put(&store, "k").await;
    database.run("UPDATE hapax.meta SET value = '9' WHERE name IN ('schema', 'min_reader')");
    let error = refusal(&Options::new(database.url())).await;
    assert_eq!(error.kind, ErrorKind::Unsuitable);
    assert_eq!(
        error.to_string(),
        format!(
            "open: {}/{}: the database has schema 9 and needs a release that knows 9; this one knows 3: upgrade it",
            database.address(),
            database.name()
        )
    );
    database.run("UPDATE hapax.meta SET value = '1' WHERE name = 'min_reader'");
    let beside = open(database.url()).await;
    assert!(beside.get(&address("k")).await.unwrap().stored.is_some());
}

#[tokio::test]
async fn somebody_elses_tables_are_left_alone() {
    needs_postgres!();
    let database = Server::shared().fresh_database();
    database.run("CREATE SCHEMA hapax; CREATE TABLE hapax.meta (name text, value text)");
    let error = refusal(&Options::new(database.url())).await;
    assert_eq!(error.kind, ErrorKind::Unsuitable);
    assert!(
        error
            .to_string()
            .ends_with("the table hapax.meta is not hapax's or was altered; use another schema, or restore it"),
        "{error}"
    );
    assert_eq!(database.run("SELECT count(*) FROM pg_tables WHERE schemaname = 'hapax'"), "1");
}

const DAMAGED: &str = "the stored record was altered or damaged (checksum); it will not be replayed; restore it, or \
                       delete it as the runbook says";

async fn with_altered(sql: &str) -> (Database, Postgres) {
    let database = Server::shared().fresh_database();
    let store = open(database.url()).await;
    put(&store, "whole").await;
    put(&store, "altered").await;
    database.run(&format!("UPDATE hapax.record SET {sql} WHERE key = 'altered'"));
    (database, store)
}

#[tokio::test]
async fn altered_bytes_are_found_by_get_swap_and_scan() {
    needs_postgres!();
    let (_database, store) = with_altered("data = set_byte(data, 20, 255 - get_byte(data, 20))").await;
    let at = address("altered");
    let error = store.get(&at).await.unwrap_err();
    assert_eq!((error.kind, error.to_string()), (ErrorKind::Damaged, format!("get: {DAMAGED}")));
    let error = store.swap(&at, None, &running()).await.unwrap_err();
    assert_eq!((error.kind, error.to_string()), (ErrorKind::Damaged, format!("swap: {DAMAGED}")));
    let error = store.swap(&at, Some(running().version), &running()).await.unwrap_err();
    assert_eq!((error.kind, error.to_string()), (ErrorKind::Damaged, format!("swap: {DAMAGED}")));
    let page = store.scan(&Scan { limit: 10, ..Scan::default() }).await.unwrap();
    assert_eq!(page.entries.iter().map(|entry| entry.address.key().as_str()).collect::<Vec<_>>(), ["whole"]);
    assert_eq!(page.damaged.len(), 1);
    assert_eq!((page.damaged[0].id, page.damaged[0].reason.as_str()), (Some(*at.id()), DAMAGED));
}

#[tokio::test]
async fn every_altered_column_is_found() {
    needs_postgres!();
    for sql in [
        "version = set_byte(version, 0, 255 - get_byte(version, 0))",
        "version = ''",
        "state = 5",
        "state = 77",
        "due_at = due_at + 1",
        "due_at = null",
        "stamped_at = -1",
        "reap_at = 1",
        "scope = 'mallory'",
        "space = ''",
        "data = ''",
        "data = substring(data from 2)",
    ] {
        let (_database, store) = with_altered(sql).await;
        let error = store.get(&address("altered")).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Damaged, "{sql}: {error}");
        let page = store.scan(&Scan { limit: 10, ..Scan::default() }).await.unwrap();
        assert_eq!((page.entries.len(), page.damaged.len()), (1, 1), "{sql}");
    }
}

#[tokio::test]
async fn tables_that_are_gone_are_reported() {
    needs_postgres!();
    let database = Server::shared().fresh_database();
    let store = open(database.url()).await;
    put(&store, "k").await;
    database.run("DROP SCHEMA hapax CASCADE");
    let gone = "hapax's tables are gone or of another release; nothing was written; restart hapax";
    let error = store.swap(&address("k"), None, &running()).await.unwrap_err();
    assert_eq!((error.kind, error.to_string()), (ErrorKind::Unsuitable, format!("swap: {gone}")));
    let error = store.get(&address("k")).await.unwrap_err();
    assert_eq!((error.kind, error.to_string()), (ErrorKind::Unsuitable, format!("get: {gone}")));
}
