//! An upstream that answers before it has read the whole request.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use hapax_proxy::{Body, Upstream, UpstreamOptions};
use http::Request;
use http_body_util::BodyExt;
use tokio::io::AsyncWriteExt;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::GET;
use crate::proxied::{SOON, Wire, proxy, scripted};

#[tokio::test]
async fn an_answer_before_the_end_of_the_request_is_passed_on() {
    let upstream = scripted(|mut wire| async move {
        wire.head().await;
        wire.send("HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nbig").await;
        wire.until_closed().await;
    })
    .await;
    let proxy = proxy(upstream).await;
    let mut client = Wire::connect(proxy.addr).await;
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\nhello").await;
    let answer = client.answer().await;
    assert_eq!((answer.status(), answer.text().as_str()), (413, "big"));
    // What was to come of the body is never taken for a request.
    let _ = client.stream.write_all(GET.as_bytes()).await;
    assert!(client.is_closed().await);
}

/// More than the system takes without anybody reading.
const LARGE: usize = 32 * 1024 * 1024;

/// Sends a request of which all is here to an upstream that answers before it reads the body; gives status and text.
async fn large_to(upstream: SocketAddr) -> (u16, Bytes) {
    let options = UpstreamOptions { answer_timeout: 3 * SOON, ..UpstreamOptions::default() };
    let upstream = Upstream::new(&format!("http://{upstream}").parse().unwrap(), options).unwrap();
    let request = Request::post("/pay").header("host", "a").body(Body::from(Bytes::from(vec![b'x'; LARGE]))).unwrap();
    let (parts, body) = upstream.send(request).await.into_parts();
    let text = timeout(SOON, body.collect()).await.expect("nobody waits until the deadline").unwrap().to_bytes();
    (parts.status.as_u16(), text)
}

#[tokio::test]
async fn a_whole_request_is_sent_to_its_end_also_after_the_answer() {
    for (answer, text) in [
        ("Content-Length: 2\r\n\r\nok", "ok"),
        ("Content-Length: 0\r\n\r\n", ""),
        ("Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", "ok"),
    ] {
        let (whole, read) = (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
        let (told, counter) = (Arc::clone(&whole), Arc::clone(&read));
        let upstream = scripted(move |mut wire| {
            let (told, counter) = (Arc::clone(&told), Arc::clone(&counter));
            async move {
                let head = wire.head().await.unwrap();
                wire.send(format!("HTTP/1.1 202 Accepted\r\n{answer}")).await;
                // Long enough for hapax to have read the answer.
                tokio::time::sleep(Duration::from_millis(200)).await;
                counter.store(wire.body_of(&head).await.len(), Ordering::SeqCst);
                told.notify_one();
            }
        })
        .await;
        assert_eq!(large_to(upstream).await, (202, Bytes::from_static(text.as_bytes())));
        timeout(SOON, whole.notified()).await.expect("the whole request");
        assert_eq!(read.load(Ordering::SeqCst), LARGE);
    }
}

#[tokio::test]
async fn an_upstream_that_says_that_it_closes_is_not_waited_for() {
    let upstream = scripted(|mut wire| async move {
        wire.head().await;
        wire.send("HTTP/1.1 413 Content Too Large\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno").await;
        // It reads nothing more, and the connection stays.
        std::future::pending::<()>().await;
    })
    .await;
    assert_eq!(large_to(upstream).await, (413, Bytes::from_static(b"no")));
}
