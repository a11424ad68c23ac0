//! A request whose lease is over is not sent, wherever the time went: on a pooled connection, in a TLS handshake, or in the
//! queue for an HTTP/2 stream. That another process cannot be seen to sleep there is tested in `asleep.rs`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::proxied::{SOON, scripted};
use bytes::Bytes;
use hapax::http::SendBefore;
use hapax_proxy::tls::{Certificate, client_config};
use hapax_proxy::{Body, Failure, Upstream, UpstreamOptions};
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

const HELD_UP: &str = "this node was held up for longer than its lease; nothing was sent";

fn post(before: &SendBefore) -> Request<Body> {
    let body = Body::from(Bytes::from_static(b"hello"));
    let request = Request::builder().method(Method::POST).uri("/pay").header("host", "shop");
    request.extension(before.clone()).body(body).unwrap()
}

fn never() -> SendBefore {
    SendBefore::after(Duration::from_secs(600))
}

async fn send(upstream: &Upstream, before: &SendBefore) -> Response<Body> {
    timeout(SOON, upstream.send(post(before))).await.expect("it ends")
}

fn why(response: &Response<Body>) -> Option<&'static str> {
    match response.extensions().get::<Failure>() {
        Some(Failure::NothingSent { why }) => Some(why),
        Some(Failure::Doubt { why }) => panic!("a doubt: {why}"),
        None => None,
    }
}

/// An upstream in each protocol, over TLS. It begins a handshake when `open` says so, and counts the requests.
async fn upstream(
    protocol: &'static [u8],
    open: impl Fn() -> bool + Clone + Send + Sync + 'static,
) -> (Upstream, Arc<AtomicUsize>) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (cert, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let mut config = (*Certificate::read(&cert, &key).unwrap().server_config().unwrap()).clone();
    config.alpn_protocols = vec![protocol.to_vec()];
    let (acceptor, reached) = (TlsAcceptor::from(Arc::new(config)), Arc::new(AtomicUsize::new(0)));
    let addr = serving(acceptor, open, Arc::clone(&reached)).await;
    let options = UpstreamOptions { tls: Some(client_config(Some(&cert)).unwrap()), ..UpstreamOptions::default() };
    let options = UpstreamOptions { idle_timeout: SOON, ..options };
    (Upstream::new(&format!("https://localhost:{}", addr.port()).parse().unwrap(), options).unwrap(), reached)
}

async fn serving(
    acceptor: TlsAcceptor,
    open: impl Fn() -> bool + Clone + Send + Sync + 'static,
    reached: Arc<AtomicUsize>,
) -> SocketAddr {
    scripted(move |wire| {
        let (acceptor, open, reached) = (acceptor.clone(), open.clone(), Arc::clone(&reached));
        async move {
            while !open() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let Ok(stream) = acceptor.accept(wire.stream).await else { return };
            let answer = hyper::service::service_fn(move |request: Request<hyper::body::Incoming>| {
                reached.fetch_add(1, Ordering::SeqCst);
                async move {
                    let _ = request.into_body().collect().await;
                    Ok::<_, std::convert::Infallible>(Response::new(Full::new(Bytes::from_static(b"ok"))))
                }
            });
            let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
            let _ = builder.serve_connection(TokioIo::new(stream), answer).await;
        }
    })
    .await
}

#[tokio::test]
async fn a_lease_that_ends_in_a_tls_handshake_is_noticed_before_the_first_byte() {
    for protocol in [b"http/1.1".as_slice(), b"h2"] {
        let before = SendBefore::after(Duration::from_millis(200));
        let seen = before.clone();
        let (upstream, reached) = upstream(protocol, move || seen.is_over()).await;
        assert_eq!(why(&send(&upstream, &before).await), Some(HELD_UP), "{protocol:?}");
        assert_eq!(send(&upstream, &never()).await.status(), 200, "the next one is sent");
        assert_eq!(reached.load(Ordering::SeqCst), 1, "{protocol:?}");
    }
}

#[tokio::test]
async fn a_lease_that_is_over_is_noticed_on_a_connection_that_stands() {
    for protocol in [b"http/1.1".as_slice(), b"h2"] {
        let (upstream, reached) = upstream(protocol, || true).await;
        for _ in 0..3 {
            let answer = send(&upstream, &never()).await;
            assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "ok");
            let over = SendBefore::after(Duration::ZERO);
            assert_eq!(why(&send(&upstream, &over).await), Some(HELD_UP), "{protocol:?}");
        }
        assert_eq!(reached.load(Ordering::SeqCst), 3, "{protocol:?}");
    }
}

async fn is_over(before: &SendBefore) {
    while !before.is_over() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Reads a body when the lease of its request is over, and answers only what is whole.
async fn read_late(
    mut body: h2::RecvStream,
    mut answer: h2::server::SendResponse<Bytes>,
    before: SendBefore,
    received: Arc<AtomicUsize>,
) {
    is_over(&before).await;
    while let Some(data) = body.data().await {
        let Ok(data) = data else { return };
        received.fetch_add(data.len(), Ordering::SeqCst);
        let _ = body.flow_control().release_capacity(data.len());
    }
    answer.send_response(Response::new(()), true).unwrap();
}

/// More than the sockets of both sides hold.
const LARGE: usize = 48 * 1024 * 1024;

#[tokio::test]
async fn a_lease_that_ends_in_the_middle_of_a_request_leaves_it_incomplete() {
    for h2c in [false, true] {
        let body = Bytes::from(vec![b'x'; LARGE]);
        let before = SendBefore::after(Duration::from_secs(1));
        let (seen, received) = (before.clone(), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&received);
        let addr = scripted(move |mut wire| {
            let (seen, counted) = (seen.clone(), Arc::clone(&counted));
            async move {
                if h2c {
                    let mut connection: h2::server::Connection<_, Bytes> =
                        h2::server::handshake(wire.stream).await.unwrap();
                    while let Some(Ok((request, answer))) = connection.accept().await {
                        tokio::spawn(read_late(request.into_body(), answer, seen.clone(), Arc::clone(&counted)));
                    }
                } else {
                    is_over(&seen).await;
                    counted.store(wire.until_closed().await.len(), Ordering::SeqCst);
                }
            }
        })
        .await;
        let options = UpstreamOptions { h2c, ..UpstreamOptions::default() };
        let upstream = Upstream::new(&format!("http://{addr}").parse().unwrap(), options).unwrap();
        let mut large = post(&before);
        *large.body_mut() = Body::from(body);
        let response = timeout(SOON, upstream.send(large)).await.expect("it ends");
        let failure = *response.extensions().get::<Failure>().unwrap();
        assert!(matches!(failure, Failure::Doubt { .. }), "{failure:?}");
        assert!(received.load(Ordering::SeqCst) < LARGE, "h2c: {h2c}");
    }
}

#[tokio::test]
async fn a_lease_that_ends_in_the_queue_for_a_stream_is_noticed() {
    let before = SendBefore::after(Duration::from_millis(200));
    let (seen, reached) = (before.clone(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&reached);
    let addr = scripted(move |wire| {
        let (seen, counted) = (seen.clone(), Arc::clone(&counted));
        async move {
            let mut connection =
                h2::server::Builder::new().max_concurrent_streams(1).handshake(wire.stream).await.unwrap();
            while let Some(Ok((_, mut answer))) = connection.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                let seen = seen.clone();
                tokio::spawn(async move {
                    is_over(&seen).await;
                    let mut body: h2::SendStream<Bytes> = answer.send_response(Response::new(()), false).unwrap();
                    body.send_data(Bytes::from_static(b"ok"), true).unwrap();
                });
            }
        }
    })
    .await;
    let options = UpstreamOptions { h2c: true, ..UpstreamOptions::default() };
    let upstream = Upstream::new(&format!("http://{addr}").parse().unwrap(), options).unwrap();
    let first = tokio::spawn({
        let upstream = upstream.clone();
        async move { send(&upstream, &never()).await.into_body().collect().await.unwrap().to_bytes() }
    });
    while reached.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(why(&send(&upstream, &before).await), Some(HELD_UP));
    assert_eq!(first.await.unwrap(), "ok");
    assert_eq!(reached.load(Ordering::SeqCst), 1);
}
