//! Clients that take an answer too slowly, and tunnels in which nothing is said.

use std::time::Duration;

use hapax_proxy::{ListenOptions, UpstreamOptions};
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use super::{ASK, GET};
use crate::proxied::{Wire, endless, impatient, proxy_with, scripted};

/// Reads a little of an endless answer now and then; true if that is not let go on.
async fn is_cut_off(options: ListenOptions) -> bool {
    let (upstream, ended) = endless().await;
    let proxy = proxy_with(upstream, options, UpstreamOptions::default()).await;
    let mut client = Wire::connect(proxy.addr).await;
    client.send(GET).await;
    // A few megabytes a second: more than what the system keeps for a connection, in the time that is allowed without any.
    let mut block = vec![0; 256 * 1024];
    for _ in 0..80 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        if ended.available_permits() > 0 || client.stream.read_exact(&mut block).await.is_err() {
            return true;
        }
    }
    false
}

#[tokio::test]
async fn a_reader_that_reads_too_slowly_is_cut_off() {
    let rate = |bytes| ListenOptions { write_time: Duration::from_secs(2), write_rate_min: bytes, ..impatient() };
    assert!(is_cut_off(rate(Some(100_000_000))).await);
    assert!(!is_cut_off(rate(Some(1))).await);
}

#[tokio::test]
async fn a_tunnel_without_a_byte_ends_and_one_with_a_byte_now_and_then_does_not() {
    let upstream = scripted(|mut wire| async move {
        wire.message().await;
        wire.send("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n").await;
        wire.until_closed().await;
    })
    .await;
    let options = ListenOptions { tunnel_idle_time: Duration::from_millis(400), ..ListenOptions::default() };
    let proxy = proxy_with(upstream, options, UpstreamOptions::default()).await;
    let (mut silent, mut alive) = (Wire::connect(proxy.addr).await, Wire::connect(proxy.addr).await);
    for socket in [&mut silent, &mut alive] {
        socket.send(ASK).await;
        assert_eq!(socket.head().await.unwrap().status(), 101);
    }
    let closed = tokio::spawn(async move { silent.is_closed().await });
    while !closed.is_finished() {
        alive.send("x").await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(closed.await.unwrap());
    assert!(timeout(Duration::from_millis(50), alive.stream.readable()).await.is_err(), "the other one is still open");
}
