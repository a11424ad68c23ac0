//! Throw-away PostgreSQL servers: what they promise to the tests that use them.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests, like the tests themselves")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use hapax_testkit::postgres::Server;
use hapax_testkit::tcp_proxy::TcpProxy;
use hapax_testkit::{needs_postgres, wait};
use tokio_postgres::{Client, Error, NoTls};

const LIMIT: Duration = Duration::from_secs(30);

async fn connect(url: &str) -> Result<Client, Error> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

fn directory(server: &Server) -> PathBuf {
    PathBuf::from(server.maintenance().run("SHOW data_directory")).parent().unwrap().to_owned()
}

/// Processes whose command line or working directory lies in the server's directory.
fn processes_in(directory: &Path) -> usize {
    let entries = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    entries.filter(|entry| entry.path().join("cwd").read_link().is_ok_and(|cwd| cwd.starts_with(directory))).count()
}

#[test]
fn fresh_databases_are_empty_and_apart() {
    needs_postgres!();
    let (one, other) = (Server::shared().fresh_database(), Server::shared().fresh_database());
    one.run("CREATE TABLE things (id int)");
    let tables = "SELECT count(*) FROM pg_tables WHERE tablename = 'things'";
    assert_eq!((one.run(tables).as_str(), other.run(tables).as_str()), ("1", "0"));
}

#[test]
fn durability_is_real_unless_a_test_says_otherwise() {
    needs_postgres!();
    let shared = Server::shared().maintenance();
    for setting in ["fsync", "synchronous_commit", "full_page_writes"] {
        assert_eq!(shared.run(&format!("SHOW {setting}")), "on", "{setting}");
    }
    let server = Server::builder().with_setting("synchronous_commit", "off").with_setting("work_mem", "1MB").start();
    assert_eq!(server.maintenance().run("SHOW synchronous_commit"), "off");
    assert_eq!(server.maintenance().run("SHOW work_mem"), "1MB");
}

#[tokio::test]
async fn a_password_is_asked_for_where_one_was_set() {
    needs_postgres!();
    let server = Server::builder().with_password("it's a:secret/@").start();
    let right = connect(&server.dsn("postgres", "it's a:secret/@")).await.unwrap();
    right.simple_query("SELECT 1").await.unwrap();
    connect(&server.fresh_database().url()).await.unwrap();
    let wrong = connect(&server.dsn("postgres", "guess")).await.unwrap_err();
    assert!(wrong.as_db_error().unwrap().message().contains("password authentication failed"), "{wrong:?}");
    assert_eq!(server.standby().maintenance().run("SELECT pg_is_in_recovery()"), "t");
}

#[test]
fn a_stopped_server_refuses_and_comes_back_with_its_data() {
    needs_postgres!();
    let mut server = Server::builder().start();
    let database = server.fresh_database();
    database.run("CREATE TABLE things AS SELECT 1 AS id");
    let address = server.address();
    server.stop();
    assert!(std::net::TcpStream::connect(address).is_err());
    server.start();
    assert_eq!(server.address(), address);
    assert_eq!(database.run("SELECT id FROM things"), "1");
    server.restart();
    assert_eq!(database.run("SELECT id FROM things"), "1");
}

#[tokio::test]
async fn a_killed_server_leaves_no_process_and_recovers() {
    needs_postgres!();
    let mut server = Server::builder().start();
    let directory = directory(&server);
    let database = server.fresh_database();
    database.run("CREATE TABLE things AS SELECT 7 AS id");
    let client = connect(&database.url()).await.unwrap();
    assert!(processes_in(&directory) >= 6);
    server.kill_9();
    assert_eq!(processes_in(&directory), 0);
    assert!(client.simple_query("SELECT 1").await.is_err());
    server.start();
    assert_eq!(database.run("SELECT id FROM things"), "7");
    assert!(server.log().contains("was interrupted"), "it did not notice the crash:\n{}", server.log());
}

#[test]
fn a_standby_follows_and_answers_reads_only() {
    needs_postgres!();
    let primary = Server::builder().start();
    primary.maintenance().run("CREATE TABLE things AS SELECT 1 AS id");
    let standby = primary.standby();
    let reader = standby.maintenance();
    assert_eq!(reader.run("SELECT pg_is_in_recovery()"), "t");
    primary.maintenance().run("INSERT INTO things VALUES (2)");
    wait::until("the row arrives", LIMIT, || reader.run("SELECT count(*) FROM things") == "2");
}

#[test]
fn a_dropped_server_is_gone_with_its_files() {
    needs_postgres!();
    let mut server = Server::builder().start();
    let running = directory(&server);
    drop(server);
    assert!(!running.exists());
    assert_eq!(processes_in(&running), 0);
    server = Server::builder().start();
    let killed = directory(&server);
    server.kill_9();
    drop(server);
    assert!(!killed.exists());
}

#[tokio::test]
async fn a_commit_whose_reply_is_lost_is_there() {
    needs_postgres!();
    let database = Server::shared().fresh_database();
    database.run("CREATE TABLE things (id int)");
    let proxy = TcpProxy::in_front_of(database.address());
    let client = connect(&database.url_via(proxy.address())).await.unwrap();
    let insert = client.prepare("INSERT INTO things VALUES ($1)").await.unwrap();
    proxy.lose_next_reply();
    assert!(client.execute(&insert, &[&1_i32]).await.is_err());
    assert_eq!(proxy.counts().replies_lost, 1);
    assert_eq!(database.run("SELECT id FROM things"), "1");
}
