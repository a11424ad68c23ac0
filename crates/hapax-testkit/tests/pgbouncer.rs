//! PgBouncer in transaction mode in front of test databases.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests, like the tests themselves")]

use std::collections::BTreeSet;
use std::net::TcpStream;

use hapax_testkit::needs_pgbouncer;
use hapax_testkit::pgbouncer::Bouncer;
use hapax_testkit::postgres::{Database, Server};
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

async fn ask(client: &Client, sql: &str) -> String {
    let messages = client.simple_query(sql).await.unwrap();
    let row = messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row.get(0).unwrap().to_owned()),
        _ => None,
    });
    row.unwrap()
}

async fn many_clients_share_few_connections(database: &Database) {
    let bouncer = Bouncer::transaction_mode(database);
    let mut clients = Vec::new();
    for _ in 0..12 {
        clients.push(connect(&bouncer.url()).await);
    }
    let mut backends = BTreeSet::new();
    for client in &clients {
        assert_eq!(ask(client, "SELECT current_database()").await, database.name());
        backends.insert(ask(client, "SELECT pg_backend_pid()").await);
    }
    assert!(backends.len() < clients.len(), "every client has a connection of its own: {backends:?}");
}

#[tokio::test]
async fn clients_share_server_connections() {
    needs_pgbouncer!();
    many_clients_share_few_connections(&Server::shared().fresh_database()).await;
}

#[tokio::test]
async fn it_logs_in_where_the_server_wants_a_password() {
    needs_pgbouncer!();
    let server = Server::builder().with_password("it's \"secret\"").start();
    many_clients_share_few_connections(&server.fresh_database()).await;
}

#[test]
fn it_ends_when_dropped() {
    needs_pgbouncer!();
    let bouncer = Bouncer::transaction_mode(&Server::shared().fresh_database());
    let address = bouncer.address();
    assert!(TcpStream::connect(address).is_ok());
    drop(bouncer);
    assert!(TcpStream::connect(address).is_err());
}
