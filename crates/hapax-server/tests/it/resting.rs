//! Connections that have nothing to do are taken apart and put together again, and nobody notices.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

use std::time::Duration;

use crate::proxied::{self, Ledger, Proxy, Wire, proxy_with, scripted};
use hapax_proxy::{ListenOptions, UpstreamOptions};
use tokio::net::TcpStream;

/// How soon connections rest here.
const REST_AFTER: Duration = Duration::from_millis(5);
/// Many times as long.
const A_WHILE: Duration = Duration::from_millis(100);

const GET: &str = "GET /a HTTP/1.1\r\nHost: a\r\n\r\n";
const POST: &str = "POST /pay HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello";

fn restless() -> ListenOptions {
    ListenOptions { rest_after: REST_AFTER, ..ListenOptions::default() }
}

/// A client that had an answer, some time ago.
async fn rested(options: ListenOptions) -> (Ledger, Proxy, Wire<TcpStream>) {
    let ledger = Ledger::start().await;
    let proxy = proxy_with(ledger.addr, options, UpstreamOptions::default()).await;
    let mut client = Wire::connect(proxy.addr).await;
    assert!(client.is_in_step().await);
    tokio::time::sleep(A_WHILE).await;
    (ledger, proxy, client)
}

#[tokio::test]
async fn a_connection_that_rested_is_served_again_and_again() {
    let (ledger, _proxy, mut client) = rested(restless()).await;
    for _ in 0..3 {
        client.send(POST).await;
        assert_eq!(client.answer().await.text(), "POST /pay");
        tokio::time::sleep(A_WHILE).await;
        assert!(client.is_in_step().await);
    }
    let bodies: Vec<String> =
        ledger.seen().iter().map(proxied::Message::text).filter(|text| !text.is_empty()).collect();
    assert_eq!(bodies, ["hello"; 3]);
}

#[tokio::test]
async fn a_head_that_comes_in_pieces_ends_a_rest() {
    let (_ledger, _proxy, mut client) = rested(restless()).await;
    for at in [1, 2, 20] {
        client.send(&POST[..at]).await;
        tokio::time::sleep(A_WHILE).await;
        client.send(&POST[at..]).await;
        assert_eq!(client.answer().await.text(), "POST /pay");
        tokio::time::sleep(A_WHILE).await;
    }
    assert!(client.is_in_step().await);
}

#[tokio::test]
async fn requests_that_come_together_end_a_rest_and_are_answered_in_order() {
    let (_ledger, _proxy, mut client) = rested(restless()).await;
    client.send(format!("{POST}{GET}{POST}")).await;
    for expected in ["POST /pay", "GET /a", "POST /pay"] {
        assert_eq!(client.answer().await.text(), expected);
    }
}

#[tokio::test]
async fn what_must_not_pass_does_not_pass_after_a_rest_either() {
    let (ledger, _proxy, mut client) = rested(restless()).await;
    client.send("POST /pay HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nhello").await;
    assert_eq!(client.answer().await.status(), 400);
    assert!(client.is_closed().await);
    assert_eq!(ledger.seen().len(), 1);
}

#[tokio::test]
async fn a_rested_connection_is_closed_by_a_drain() {
    let (_ledger, proxy, mut client) = rested(restless()).await;
    proxy.shutdown.drain();
    assert!(client.is_closed().await);
    proxy.task.await.unwrap();
}

#[tokio::test]
async fn a_rested_connection_is_closed_when_it_was_idle_for_too_long() {
    let (_ledger, _proxy, mut client) = rested(ListenOptions { idle_time: 3 * A_WHILE, ..restless() }).await;
    assert!(client.is_in_step().await);
    assert!(client.is_closed().await);
}

#[tokio::test]
async fn a_request_under_way_is_no_rest() {
    let upstream = scripted(|mut wire| async move {
        while wire.message().await.is_some() {
            tokio::time::sleep(A_WHILE).await;
            wire.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n").await;
            tokio::time::sleep(A_WHILE).await;
            wire.send("ok").await;
        }
    })
    .await;
    let proxy = proxy_with(upstream, restless(), UpstreamOptions::default()).await;
    let mut client = Wire::connect(proxy.addr).await;
    for _ in 0..3 {
        client.send(GET).await;
        assert_eq!(client.answer().await.text(), "ok");
    }
}

#[tokio::test]
async fn an_answer_that_its_client_has_not_taken_yet_is_no_rest() {
    const LENGTH: usize = 32 * 1024 * 1024;
    let ledger = Ledger::answering(|_| {
        let mut answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {LENGTH}\r\n\r\n").into_bytes();
        answer.resize(answer.len() + LENGTH, b'x');
        answer
    })
    .await;
    let proxy = proxy_with(ledger.addr, restless(), UpstreamOptions::default()).await;
    let mut client = Wire::connect(proxy.addr).await;
    for _ in 0..2 {
        client.send(GET).await;
        tokio::time::sleep(A_WHILE).await;
        assert_eq!(client.answer().await.body.len(), LENGTH);
        tokio::time::sleep(A_WHILE).await;
    }
}
