//! Schemas: several nodes at once, several stores in one database, users with few rights.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

mod common;

use std::collections::BTreeSet;

use hapax_core::store::{ErrorKind, Store, Swap};
use hapax_postgres::{Options, Postgres};
use hapax_testkit::postgres::Server;
use hapax_testkit::{needs_postgres, tokens};
use tokio::task::JoinSet;

use common::{address, open, put, running};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn several_nodes_may_open_a_new_database_at_once() {
    needs_postgres!();
    for _ in 0..5 {
        let database = Server::shared().fresh_database();
        let mut nodes = JoinSet::new();
        for _ in 0..3 {
            let url = database.url();
            nodes.spawn(async move { open(url).await });
        }
        let nodes = nodes.join_all().await;
        let first = put(&nodes[0], "k").await;
        for node in &nodes {
            assert_eq!(node.get(&address("k")).await.unwrap().version(), Some(first.version));
        }
        assert_eq!(database.run("SELECT count(*) FROM hapax.meta WHERE name = 'store'"), "1");
        assert_eq!(database.run("SELECT value FROM hapax.meta WHERE name = 'schema'"), "3");
    }
}

#[tokio::test]
async fn two_schemas_of_a_database_are_two_stores() {
    needs_postgres!();
    let database = Server::shared().fresh_database();
    let one = open(database.url()).await;
    let other = Postgres::open(Options::new(database.url()).with_schema("hapax_2")).await.unwrap();
    put(&one, "k").await;
    assert!(other.get(&address("k")).await.unwrap().stored.is_none());
    put(&other, "k").await;
    let names: BTreeSet<String> = ["hapax", "hapax_2"]
        .map(|schema| database.run(&format!("SELECT value FROM {schema}.meta WHERE name = 'store'")))
        .into();
    assert_eq!(names.len(), 2);
}

#[tokio::test]
async fn an_everyday_user_needs_no_right_to_create() {
    needs_postgres!();
    let database = Server::shared().fresh_database();
    let user = tokens::name("app");
    database.run(&format!("CREATE ROLE {user} LOGIN; REVOKE ALL ON SCHEMA public FROM PUBLIC"));
    let url = database.url().replace("postgres://postgres@", &format!("postgres://{user}@"));
    let Err(error) = Postgres::open(Options::new(&url)).await else { panic!("it may create schemas") };
    assert_eq!(error.kind, ErrorKind::Unsuitable);
    assert!(
        error.to_string().ends_with(
            "the user may not use hapax's schema; grant it, or let a user with more rights open the store once"
        ),
        "{error}"
    );
    open(database.url()).await;
    database.run(&format!(
        "GRANT USAGE ON SCHEMA hapax TO {user};
         GRANT SELECT ON hapax.meta TO {user};
         GRANT SELECT, INSERT, UPDATE, DELETE ON hapax.record TO {user};
         GRANT SELECT, INSERT ON hapax.note TO {user}"
    ));
    let store = open(url).await;
    let first = put(&store, "k").await;
    let swapped = store.swap(&address("k"), Some(first.version), &running()).await.unwrap();
    assert!(matches!(swapped, Swap::Applied(_)));
    assert_eq!(store.reap(10).await.unwrap(), 0);
    store.health().await.unwrap();
    hapax_core::conformance::check_journal(&store).await;
}

#[tokio::test]
async fn a_schema_that_was_made_beforehand_is_filled() {
    needs_postgres!();
    let database = Server::shared().fresh_database();
    let user = tokens::name("owner");
    database.run(&format!("CREATE ROLE {user} LOGIN; CREATE SCHEMA hapax AUTHORIZATION {user}"));
    let url = database.url().replace("postgres://postgres@", &format!("postgres://{user}@"));
    put(&open(url).await, "k").await;
}

#[tokio::test]
async fn opening_again_changes_nothing() {
    needs_postgres!();
    let database = Server::shared().fresh_database();
    let first = put(&open(database.url()).await, "k").await;
    let dump = "SELECT name || value FROM hapax.meta ORDER BY 1";
    let before = database.run(dump);
    let again = open(database.url()).await;
    assert_eq!(database.run(dump), before);
    assert_eq!(again.get(&address("k")).await.unwrap().version(), Some(first.version));
}

#[tokio::test]
async fn indexes_hold_only_what_somebody_must_look_at() {
    needs_postgres!();
    let database = Server::shared().fresh_database();
    open(database.url()).await;
    let indexes = database.run("SELECT indexdef FROM pg_indexes WHERE schemaname = 'hapax' AND tablename = 'record'");
    assert_eq!(indexes.lines().count(), 3, "{indexes}");
    assert!(indexes.contains("WHERE ((due_at IS NOT NULL) OR (state < 5))"), "{indexes}");
    assert!(indexes.contains("WHERE (reap_at IS NOT NULL)"), "{indexes}");
}

#[tokio::test]
async fn one_user_migrates_and_another_that_may_create_nothing_opens() {
    needs_postgres!();
    let database = Server::shared().fresh_database();
    let user = format!("opens_{}", database.url().rsplit('/').next().unwrap());
    database.run(&format!("CREATE ROLE {user} LOGIN; REVOKE ALL ON SCHEMA public FROM PUBLIC"));
    let url = database.url().replace("postgres://postgres@", &format!("postgres://{user}@"));
    Postgres::migrate(url.as_str()).await.unwrap_err();
    for _ in 0..2 {
        Postgres::migrate(Options::new(database.url()).with_existing()).await.unwrap();
    }
    database.run(&format!(
        "GRANT USAGE ON SCHEMA hapax TO {user};
         GRANT SELECT ON hapax.meta TO {user};
         GRANT SELECT, INSERT, UPDATE, DELETE ON hapax.record TO {user};
         GRANT SELECT, INSERT ON hapax.note TO {user}"
    ));
    let store = Postgres::open(Options::new(&url).with_existing()).await.unwrap();
    put(&store, "k").await;
}

#[tokio::test]
async fn a_store_that_has_to_be_there_is_not_made() {
    needs_postgres!();
    let database = Server::shared().fresh_database();
    let error = Postgres::open(Options::new(database.url()).with_existing()).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unsuitable);
    assert!(error.message.contains("the schema hapax holds no store; name the database that `hapax proxy` uses"));
    assert!(error.message.contains("make one there first (`Postgres::migrate`"), "{error}");
    assert_eq!(database.run("SELECT count(*) FROM pg_namespace WHERE nspname = 'hapax'"), "0", "nothing was made");
    put(&open(database.url()).await, "k").await;
    let store = Postgres::open(Options::new(database.url()).with_existing()).await.unwrap();
    let id = *address("k").id();
    assert_eq!(store.between(&id, &id, 10).await.unwrap().entries.len(), 1);
    assert_eq!(store.about_count().await.unwrap(), None, "the server has not looked yet");
    database.run("ANALYZE hapax.record");
    assert_eq!(store.about_count().await.unwrap(), Some(1));
    assert!(store.bytes().await.unwrap() >= 8192);
}
