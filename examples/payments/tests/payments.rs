//! The example over a real socket: a client that loses its answer and asks again is charged once.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use hapax_sqlite::Sqlite;
use payments::{Charges, app_with};

async fn start() -> (tempfile::TempDir, SocketAddr, Charges) {
    let directory = tempfile::tempdir().unwrap();
    let store = Sqlite::open(directory.path().join("payments.db")).unwrap();
    let charges = Charges::default();
    let (app, _) = app_with(store, charges.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    (directory, address, charges)
}

async fn post(address: SocketAddr, who: &str, key: &str, amount: u32) -> String {
    let (who, key, body) = (who.to_owned(), key.to_owned(), format!("{{\"amount\": {amount}}}"));
    let talk = move || {
        let mut stream = TcpStream::connect(address).unwrap();
        let head = format!(
            "POST /payments HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {who}-secret\r\nIdempotency-Key: {key}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    tokio::task::spawn_blocking(talk).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_asks_again_is_charged_once() {
    let (_directory, address, charges) = start().await;
    let first = post(address, "alice", "k-1", 1200).await;
    assert!(first.starts_with("HTTP/1.1 201"), "{first}");
    let retry = post(address, "alice", "k-1", 1200).await;
    assert!(retry.contains("idempotent-replayed: true"), "{retry}");
    let body = |answer: &str| answer.split("\r\n\r\n").nth(1).unwrap().to_owned();
    assert_eq!(body(&first), body(&retry));
    assert_eq!(charges.count(), 1);
    assert!(post(address, "alice", "k-1", 9900).await.starts_with("HTTP/1.1 422"));
    assert!(post(address, "bob", "k-1", 1200).await.starts_with("HTTP/1.1 201"), "bob's key is another one");
    assert!(post(address, "eve", "k-1", 1200).await.starts_with("HTTP/1.1 401"));
    assert_eq!(charges.count(), 2);
}
