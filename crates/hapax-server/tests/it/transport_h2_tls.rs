//! The listener and the upstream glued together, over HTTP/2 and over TLS.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::proxied::{self, Ledger, Proxy, SOON, Wire, endless, proxy, proxy_to, proxy_with, scripted};
use bytes::Bytes;
use h2::Reason;
use hapax_proxy::tls::{Certificate, client_config};
use hapax_proxy::{Body, BodyError, Failure, ListenOptions, Shutdown, Upstream, UpstreamOptions, serve};
use http::{HeaderMap, Method, Request, Response, Version};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::{TlsAcceptor, TlsConnector};

const GET: &str = "GET /a HTTP/1.1\r\nHost: a\r\n\r\n";

/// An HTTP/2 client on any stream.
async fn multiplexed<T: AsyncRead + AsyncWrite + Unpin + Send + 'static>(stream: T) -> SendRequest<Full<Bytes>> {
    let (sender, driver) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(driver);
    sender
}

fn request(method: Method, body: &'static str) -> Request<Full<Bytes>> {
    Request::builder().method(method).uri("http://shop/pay?a").body(Full::from(body)).unwrap()
}

async fn text(response: Response<impl http_body::Body<Data = Bytes, Error: std::fmt::Debug>>) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

#[tokio::test]
async fn many_requests_of_one_http2_client_reach_an_http1_upstream() {
    let ledger = Ledger::start().await;
    let proxy = proxy(ledger.addr).await;
    let sender = multiplexed(TcpStream::connect(proxy.addr).await.unwrap()).await;
    let mut running = Vec::new();
    for _ in 0..20 {
        let mut sender = sender.clone();
        running.push(tokio::spawn(async move {
            let response = sender.send_request(request(Method::POST, "hello")).await.unwrap();
            assert_eq!(response.headers()["via"], "1.1 hapax");
            text(response).await
        }));
    }
    for run in running {
        assert_eq!(run.await.unwrap(), "POST /pay?a");
    }
    let seen = ledger.seen();
    assert_eq!(seen.len(), 20);
    assert!(seen.iter().all(|seen| seen.text() == "hello" && seen.fields("host") == ["shop"]), "{seen:?}");
    assert!(seen.iter().all(|seen| seen.fields("via") == ["2 hapax"] && seen.fields("x-forwarded-host") == ["shop"]));
}

#[tokio::test]
async fn connect_over_http2_is_refused() {
    let ledger = Ledger::start().await;
    let proxy = proxy(ledger.addr).await;
    let mut sender = multiplexed(TcpStream::connect(proxy.addr).await.unwrap()).await;
    let connect = Request::builder().method(Method::CONNECT).uri("shop:443").body(Full::default()).unwrap();
    assert_eq!(sender.send_request(connect).await.unwrap().status(), 405);
    let response = sender.send_request(request(Method::GET, "")).await.unwrap();
    assert_eq!(text(response).await, "GET /pay?a");
}

#[tokio::test]
async fn a_host_field_beside_another_authority_is_refused_over_http2() {
    let ledger = Ledger::start().await;
    let proxy = proxy(ledger.addr).await;
    let mut sender = multiplexed(TcpStream::connect(proxy.addr).await.unwrap()).await;
    let mut bad = request(Method::GET, "");
    bad.headers_mut().insert("host", "other".parse().unwrap());
    assert_eq!(sender.send_request(bad).await.unwrap().status(), 400);
    assert!(ledger.seen().is_empty());
}

#[tokio::test]
async fn two_lengths_are_refused_over_http2_even_when_they_agree() {
    let ledger = Ledger::start().await;
    let proxy = proxy(ledger.addr).await;
    let mut sender = multiplexed(TcpStream::connect(proxy.addr).await.unwrap()).await;
    let mut twice = request(Method::POST, "hello");
    for _ in 0..2 {
        twice.headers_mut().append("content-length", "5".parse().unwrap());
    }
    let refusal = sender.send_request(twice).await.unwrap();
    assert_eq!(refusal.status(), 400);
    assert!(text(refusal).await.contains("urn:hapax:problem:bad-framing"));
    assert!(ledger.seen().is_empty());
    let response = sender.send_request(request(Method::POST, "hello")).await.unwrap();
    assert_eq!(text(response).await, "POST /pay?a", "the connection goes on");
}

#[tokio::test]
async fn what_http1_refuses_is_refused_over_http2() {
    let ledger = Ledger::start().await;
    let proxy = proxy(ledger.addr).await;
    let mut sender = multiplexed(TcpStream::connect(proxy.addr).await.unwrap()).await;
    for (method, target) in [("POST", "*"), ("GET", "*"), ("POST", "/caf\u{e9}"), ("POST", "/x?\u{e9}")] {
        let mut uri = http::uri::Parts::default();
        uri.scheme = Some(http::uri::Scheme::HTTP);
        uri.authority = Some("shop".parse().unwrap());
        uri.path_and_query = Some(target.parse().unwrap());
        let request = Request::builder().method(method).uri(http::Uri::from_parts(uri).unwrap());
        let refusal = sender.send_request(request.body(Full::from("hello")).unwrap()).await.unwrap();
        assert_eq!(refusal.status(), 400, "{method} {target}");
        assert!(text(refusal).await.contains("urn:hapax:problem:bad-framing"));
    }
    let mut octal = request(Method::POST, "hello");
    octal.headers_mut().insert("content-length", "05".parse().unwrap());
    assert_eq!(sender.send_request(octal).await.unwrap().status(), 400);
    for method in ["TRACE", "Trace", "TRACK"] {
        let refusal = sender.send_request(request(method.parse().unwrap(), "")).await.unwrap();
        assert_eq!(refusal.status(), 405, "{method}");
    }
    assert!(ledger.seen().is_empty());
    assert_eq!(sender.send_request(request(Method::OPTIONS, "")).await.unwrap().status(), 200);
}

#[tokio::test]
async fn cookies_on_lines_of_their_own_reach_an_http1_upstream_on_one() {
    let ledger = Ledger::start().await;
    let proxy = proxy(ledger.addr).await;
    let mut sender = multiplexed(TcpStream::connect(proxy.addr).await.unwrap()).await;
    let mut crumbs = request(Method::GET, "");
    for crumb in ["a=1", "b=2; c=3", "d=4"] {
        crumbs.headers_mut().append("cookie", crumb.parse().unwrap());
    }
    assert_eq!(sender.send_request(crumbs).await.unwrap().status(), 200);
    assert_eq!(ledger.only().fields("cookie"), ["a=1; b=2; c=3; d=4"]);
}

#[tokio::test]
async fn a_request_that_is_reset_in_its_body_does_not_reach_the_upstream_whole() {
    for reason in [Reason::NO_ERROR, Reason::CANCEL] {
        let ledger = Ledger::start().await;
        let proxy = proxy(ledger.addr).await;
        let stream = TcpStream::connect(proxy.addr).await.unwrap();
        let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        let request = Request::builder().method(Method::POST).uri("http://shop/pay").body(()).unwrap();
        let (answer, mut body) = client.send_request(request, false).unwrap();
        body.send_data(Bytes::from_static(b"hello"), false).unwrap();
        body.send_reset(reason);
        drop(answer);
        // A second request goes the same way behind it, so the first has been seen by then, if it is seen at all.
        let request = Request::builder().uri("http://shop/second").body(()).unwrap();
        let (answer, _) = client.send_request(request, true).unwrap();
        assert_eq!(answer.await.unwrap().status(), 200);
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(ledger.only().first_line(), "GET /second HTTP/1.1", "{reason:?}");
    }
}

/// An HTTP/2 upstream without TLS that does with each connection what the script says.
async fn h2_upstream<F, R>(script: F) -> Upstream
where
    F: Fn(h2::server::Connection<TcpStream, Bytes>) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = ()> + Send + 'static,
{
    let addr = scripted(move |wire| {
        let script = script.clone();
        async move {
            if let Ok(connection) = h2::server::handshake(wire.stream).await {
                script(connection).await;
            }
        }
    })
    .await;
    let options = UpstreamOptions { h2c: true, answer_timeout: Duration::from_secs(2), ..UpstreamOptions::default() };
    Upstream::new(&format!("http://{addr}").parse().unwrap(), options).unwrap()
}

fn post() -> Request<Body> {
    let body = Body::from(Bytes::from_static(b"hello"));
    Request::builder().method(Method::POST).uri("/pay").header("host", "shop").body(body).unwrap()
}

/// What a request means after the upstream did this with its stream.
async fn outcome(act: impl Fn(h2::server::SendResponse<Bytes>) + Clone + Send + Sync + 'static) -> Response<Body> {
    let upstream = h2_upstream(move |mut connection| {
        let act = act.clone();
        async move {
            while let Some(Ok((_request, answer))) = connection.accept().await {
                act(answer);
            }
        }
    })
    .await;
    upstream.send(post()).await
}

fn failure(response: &Response<Body>) -> Failure {
    *response.extensions().get().expect("a failure")
}

#[tokio::test]
async fn an_http1_client_reaches_an_http2_upstream() {
    let upstream = h2_upstream(|mut connection| async move {
        while let Some(Ok((request, mut answer))) = connection.accept().await {
            tokio::spawn(async move {
                assert_eq!(request.uri().to_string(), "http://a/a");
                assert_eq!(request.headers().get("connection"), None);
                let mut body = answer.send_response(Response::new(()), false).unwrap();
                body.send_data(Bytes::from_static(b"ok"), true).unwrap();
            });
        }
    })
    .await;
    let proxy = proxy_to(upstream, ListenOptions::default()).await;
    let mut client = Wire::connect(proxy.addr).await;
    for _ in 0..3 {
        client.send(GET).await;
        let answer = client.answer().await;
        assert_eq!((answer.status(), answer.text().as_str(), answer.fields("via")), (200, "ok", vec!["2 hapax"]));
    }
}

#[tokio::test]
async fn trailers_pass_from_http2_to_http2() {
    let upstream = h2_upstream(|mut connection| async move {
        while let Some(Ok((request, mut answer))) = connection.accept().await {
            tokio::spawn(async move {
                let mut body = request.into_body();
                while body.data().await.is_some() {}
                let sum = body.trailers().await.unwrap().unwrap();
                let mut stream = answer.send_response(Response::new(()), false).unwrap();
                stream.send_data(Bytes::from_static(b"ok"), false).unwrap();
                stream.send_trailers(sum).unwrap();
            });
        }
    })
    .await;
    let proxy = proxy_to(upstream, ListenOptions::default()).await;
    let stream = TcpStream::connect(proxy.addr).await.unwrap();
    let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let request = Request::builder().method(Method::POST).uri("http://shop/pay").body(()).unwrap();
    let (answer, mut body) = client.send_request(request, false).unwrap();
    body.send_data(Bytes::from_static(b"hi"), false).unwrap();
    let mut trailers = HeaderMap::new();
    trailers.insert("x-sum", "7".parse().unwrap());
    body.send_trailers(trailers.clone()).unwrap();
    let mut body = answer.await.unwrap().into_body();
    assert_eq!(body.data().await.unwrap().unwrap(), "ok");
    assert_eq!(body.trailers().await.unwrap(), Some(trailers));
}

#[tokio::test]
async fn a_head_of_http2_with_too_many_bytes_gets_a_bare_431_and_its_connection_goes_on() {
    let ledger = Ledger::start().await;
    let proxy = proxy(ledger.addr).await;
    let stream = TcpStream::connect(proxy.addr).await.unwrap();
    let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    for (bytes, status, named) in [(40_000, 431, false), (10, 200, true)] {
        let request = Request::get("http://shop/").header("x-large", "x".repeat(bytes)).body(()).unwrap();
        let (answer, _) = client.send_request(request, true).unwrap();
        let answer = answer.await.unwrap();
        let is_named = answer.headers().contains_key("x-request-id");
        assert_eq!((answer.status().as_u16(), is_named), (status, named));
    }
}

#[tokio::test]
async fn a_trailer_of_http2_cannot_say_what_the_head_may_not() {
    let upstream = h2_upstream(|mut connection| async move {
        while let Some(Ok((request, mut answer))) = connection.accept().await {
            tokio::spawn(async move {
                let mut body = request.into_body();
                while body.data().await.is_some() {}
                let said = body.trailers().await.unwrap().unwrap_or_default();
                let mut stream = answer.send_response(Response::new(()), false).unwrap();
                let names: Vec<&str> = said.keys().map(http::HeaderName::as_str).collect();
                stream.send_data(Bytes::from(names.join(", ")), true).unwrap();
            });
        }
    })
    .await;
    let proxy = proxy_to(upstream, ListenOptions::default()).await;
    let stream = TcpStream::connect(proxy.addr).await.unwrap();
    let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    for (also, passed) in [(Some("x-sum"), "x-sum"), (None, "")] {
        let request = Request::builder().method(Method::PUT).uri("http://shop/pay").body(()).unwrap();
        let (answer, mut body) = client.send_request(request, false).unwrap();
        body.send_data(Bytes::from_static(b"hi"), false).unwrap();
        let forbidden = [
            "x-forwarded-for",
            "forwarded",
            "cookie",
            "host",
            "authorization",
            "idempotency-key",
            "idempotency-attempt",
            "idempotency_attempt",
            "idempotency-record",
            "idempotency_record",
            "proxy-authorization",
            "content-length",
            "trailer",
            "x-http-method-override",
        ];
        let names = forbidden.iter().copied().chain(also);
        let trailers: HeaderMap = names.map(|name| (name.parse().unwrap(), "7".parse().unwrap())).collect();
        body.send_trailers(trailers).unwrap();
        assert_eq!(answer.await.unwrap().into_body().data().await.unwrap().unwrap(), passed);
    }
}

#[tokio::test]
async fn a_refused_stream_means_that_nothing_happened() {
    let response = outcome(|mut answer| answer.send_reset(Reason::REFUSED_STREAM)).await;
    assert_eq!(response.status(), 502);
    assert!(matches!(failure(&response), Failure::NothingSent { .. }), "{response:?}");
}

#[tokio::test]
async fn an_answer_of_http2_is_passed_on_unless_its_head_is_too_large() {
    for (bytes, is_read) in [(80 * 1024, true), (96 * 1024, false)] {
        let response = outcome(move |mut answer| {
            let head = Response::builder().header("x-large", "x".repeat(bytes)).body(()).unwrap();
            let _ = answer.send_response(head, true);
        })
        .await;
        if is_read {
            assert_eq!((response.status().as_u16(), response.headers()["x-large"].len()), (200, bytes));
        } else {
            let why = "the upstream's answer is malformed, or has more than 96 KiB of header fields";
            assert_eq!(failure(&response), Failure::Doubt { why });
        }
    }
}

#[tokio::test]
async fn a_stream_that_fails_otherwise_leaves_a_doubt() {
    for reason in [Reason::INTERNAL_ERROR, Reason::CANCEL, Reason::NO_ERROR] {
        let response = outcome(move |mut answer| answer.send_reset(reason)).await;
        assert_eq!(response.status(), 504, "{reason:?}");
        assert!(matches!(failure(&response), Failure::Doubt { .. }), "{response:?}");
    }
}

/// The preface's answer, then these frames, to every client.
async fn raw_h2_upstream(frames: &'static [u8]) -> Upstream {
    let addr = scripted(move |mut wire| async move {
        // The preface (24), and at least the header of the settings.
        wire.rest_of(33).await;
        // Settings of our own, and the acknowledgement of theirs.
        wire.send([0, 0, 0, 4, 0, 0, 0, 0, 0]).await;
        wire.send([0, 0, 0, 4, 1, 0, 0, 0, 0]).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        wire.send(frames).await;
        wire.until_closed().await;
    })
    .await;
    let options = UpstreamOptions { h2c: true, answer_timeout: Duration::from_secs(2), ..UpstreamOptions::default() };
    Upstream::new(&format!("http://{addr}").parse().unwrap(), options).unwrap()
}

#[tokio::test]
async fn a_stream_above_the_last_of_a_farewell_did_nothing() {
    // GOAWAY, last stream 0, no error.
    let upstream = raw_h2_upstream(&[0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).await;
    let response = upstream.send(post()).await;
    assert!(matches!(failure(&response), Failure::NothingSent { .. }), "{response:?}");
    assert_eq!(response.status(), 502);
}

#[tokio::test]
async fn a_stream_within_a_farewell_leaves_a_doubt() {
    // GOAWAY, last stream 1, no error; then nothing.
    let upstream = raw_h2_upstream(&[0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0]).await;
    let response = upstream.send(post()).await;
    assert!(matches!(failure(&response), Failure::Doubt { .. }), "{response:?}");
    assert_eq!(response.status(), 504);
}

#[tokio::test]
async fn an_http2_answer_that_is_reset_breaks_off_whatever_the_reason() {
    for reason in [Reason::NO_ERROR, Reason::CANCEL, Reason::REFUSED_STREAM] {
        let response = outcome(move |mut answer| {
            let mut stream = answer.send_response(Response::new(()), false).unwrap();
            tokio::spawn(async move {
                stream.send_data(Bytes::from_static(b"hello"), false).unwrap();
                tokio::time::sleep(Duration::from_millis(50)).await;
                stream.send_reset(reason);
            });
        })
        .await;
        assert_eq!(response.status(), 200, "{reason:?}");
        let error = response.into_body().collect().await.expect_err("the body has no end");
        assert!(matches!(error, BodyError::CutOff), "{reason:?}: {error:?}");
    }
}

#[tokio::test]
async fn a_connection_that_takes_too_long_means_that_nothing_was_sent() {
    let silent = scripted(|mut wire| async move { drop(wire.until_closed().await) }).await;
    let tls = Some(client_config(None).unwrap());
    let options = UpstreamOptions { connect_timeout: Duration::from_millis(100), tls, ..UpstreamOptions::default() };
    let upstream = Upstream::new(&format!("https://{silent}").parse().unwrap(), options).unwrap();
    let response = upstream.send(post()).await;
    assert_eq!(response.status(), 502);
    assert_eq!(failure(&response), Failure::NothingSent { why: "connecting took too long" });
}

#[tokio::test]
async fn a_name_that_cannot_be_resolved_means_that_nothing_was_sent() {
    // Too long for a label, so nobody is asked.
    let url = format!("http://{}.invalid", "a".repeat(64)).parse().unwrap();
    let response = Upstream::new(&url, UpstreamOptions::default()).unwrap().send(post()).await;
    assert_eq!(response.status(), 502);
    assert_eq!(failure(&response), Failure::NothingSent { why: "the upstream's name cannot be resolved" });
}

/// A certificate for `localhost` that signs itself, as files.
struct Papers {
    dir: TempDir,
    cert: PathBuf,
    key: PathBuf,
}

fn papers() -> Papers {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let dir = TempDir::new().unwrap();
    let (cert, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    Papers { dir, cert, key }
}

/// A TLS upstream that speaks the given protocol and answers with the version it was asked in.
async fn tls_upstream(papers: &Papers, protocol: &'static [u8]) -> SocketAddr {
    let certificate = Certificate::read(&papers.cert, &papers.key).unwrap();
    let mut config = (*certificate.server_config().unwrap()).clone();
    config.alpn_protocols = vec![protocol.to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    scripted(move |wire| {
        let acceptor = acceptor.clone();
        async move {
            let Ok(stream) = acceptor.accept(wire.stream).await else { return };
            let answer = hyper::service::service_fn(|request: Request<hyper::body::Incoming>| async move {
                let version = request.version();
                let body = request.into_body().collect().await.unwrap().to_bytes();
                let text = format!("{version:?} {}", String::from_utf8_lossy(&body));
                Ok::<_, std::convert::Infallible>(Response::new(Full::new(Bytes::from(text))))
            });
            let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
            let _ = builder.serve_connection(TokioIo::new(stream), answer).await;
        }
    })
    .await
}

fn https(addr: SocketAddr, papers: &Papers) -> Upstream {
    let options =
        UpstreamOptions { tls: Some(client_config(Some(&papers.cert)).unwrap()), ..UpstreamOptions::default() };
    Upstream::new(&format!("https://localhost:{}", addr.port()).parse().unwrap(), options).unwrap()
}

async fn tls_proxy(upstream: Upstream, certificate: &Certificate) -> Proxy {
    tls_proxy_with(upstream, certificate, ListenOptions::default()).await
}

async fn tls_proxy_with(upstream: Upstream, certificate: &Certificate, options: ListenOptions) -> Proxy {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let shutdown = Shutdown::new();
    let tls = Some(certificate.server_config().unwrap());
    let task = tokio::spawn(serve(listener, tls, options, upstream, shutdown.clone()));
    Proxy { addr, shutdown, task }
}

async fn tls_client(
    proxy: &Proxy,
    papers: &Papers,
    protocol: &[u8],
) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let mut config = (*client_config(Some(&papers.cert)).unwrap()).clone();
    config.alpn_protocols = vec![protocol.to_vec()];
    let stream = TcpStream::connect(proxy.addr).await.unwrap();
    TlsConnector::from(Arc::new(config)).connect("localhost".try_into().unwrap(), stream).await
}

#[tokio::test]
async fn tls_on_both_sides_with_every_protocol() {
    let papers = papers();
    let certificate = Certificate::read(&papers.cert, &papers.key).unwrap();
    for (upstream_protocol, version) in [(b"h2".as_slice(), "HTTP/2.0"), (b"http/1.1", "HTTP/1.1")] {
        let upstream = https(tls_upstream(&papers, upstream_protocol).await, &papers);
        let proxy = tls_proxy(upstream, &certificate).await;

        let mut client = Wire::new(tls_client(&proxy, &papers, b"http/1.1").await.unwrap());
        for _ in 0..3 {
            client.send("POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi").await;
            assert_eq!(client.answer().await.text(), format!("{version} hi"));
        }

        let mut sender = multiplexed(tls_client(&proxy, &papers, b"h2").await.unwrap()).await;
        let response = sender.send_request(request(Method::POST, "hello")).await.unwrap();
        assert_eq!(response.version(), Version::HTTP_2);
        assert_eq!(text(response).await, format!("{version} hello"));
    }
}

#[tokio::test]
async fn a_request_over_tls_is_said_to_be_encrypted() {
    let papers = papers();
    let ledger = Ledger::start().await;
    let url = format!("http://{}", ledger.addr).parse().unwrap();
    let upstream = Upstream::new(&url, UpstreamOptions::default()).unwrap();
    let proxy = tls_proxy(upstream, &Certificate::read(&papers.cert, &papers.key).unwrap()).await;
    let mut client = Wire::new(tls_client(&proxy, &papers, b"http/1.1").await.unwrap());
    client.send(GET).await;
    client.answer().await;
    let seen = ledger.only();
    assert_eq!(seen.fields("x-forwarded-proto"), ["https"]);
    assert_eq!(seen.fields("forwarded"), ["for=127.0.0.1;host=\"a\";proto=https"]);
}

#[tokio::test]
async fn an_upstream_whose_certificate_is_not_trusted_is_sent_nothing() {
    let (theirs, ours) = (papers(), papers());
    let upstream = https(tls_upstream(&theirs, b"http/1.1").await, &ours);
    let response = upstream.send(post()).await;
    assert_eq!(response.status(), 502);
    let Failure::NothingSent { why } = failure(&response) else { panic!("something was sent") };
    assert!(why.starts_with("the upstream's certificate is ") && why.ends_with(" with --upstream-ca"), "{why}");
}

#[tokio::test]
async fn an_upstream_that_does_not_speak_tls_is_sent_nothing() {
    let plain = scripted(|mut wire| async move { wire.send("HTTP/1.1 400 Bad Request\r\n\r\n").await }).await;
    let response = https(plain, &papers()).send(post()).await;
    assert_eq!(response.status(), 502);
    let why = "the upstream does not speak TLS at that port; write http:// in upstream.to, or another port";
    assert_eq!(failure(&response), Failure::NothingSent { why });
}

#[tokio::test]
async fn a_tls_answer_cut_off_without_a_farewell_breaks_off() {
    let papers = papers();
    let certificate = Certificate::read(&papers.cert, &papers.key).unwrap();
    let mut config = (*certificate.server_config().unwrap()).clone();
    config.alpn_protocols.clear();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let addr = scripted(move |wire| {
        let acceptor = acceptor.clone();
        async move {
            let mut wire = Wire::new(acceptor.accept(wire.stream).await.unwrap());
            wire.message().await;
            wire.send("HTTP/1.1 200 OK\r\n\r\nhello").await;
        }
    })
    .await;
    let response = https(addr, &papers).send(post()).await;
    assert_eq!(response.status(), 200);
    assert!(response.into_body().collect().await.is_err());
}

#[tokio::test]
async fn a_certificate_is_read_again_and_a_bad_one_is_not_taken() {
    let (first, second) = (papers(), papers());
    let ledger = Ledger::start().await;
    let url = format!("http://{}", ledger.addr).parse().unwrap();
    let upstream = Upstream::new(&url, UpstreamOptions::default()).unwrap();
    let certificate = Certificate::read(&first.cert, &first.key).unwrap();
    let proxy = tls_proxy(upstream, &certificate).await;
    assert!(tls_client(&proxy, &first, b"http/1.1").await.is_ok());

    std::fs::copy(&second.cert, first.dir.path().join("cert.pem")).unwrap();
    let error = certificate.reload().unwrap_err().to_string();
    assert!(error.contains("key.pem: the key does not belong to the certificate"), "{error}");
    assert!(tls_client(&proxy, &second, b"http/1.1").await.is_err());

    std::fs::copy(&second.key, first.dir.path().join("key.pem")).unwrap();
    certificate.reload().unwrap();
    assert!(tls_client(&proxy, &second, b"http/1.1").await.is_ok());
}

#[test]
fn a_file_that_cannot_be_used_is_named_with_the_cause() {
    let papers = papers();
    let missing = papers.dir.path().join("missing.pem");
    let empty = papers.dir.path().join("empty.pem");
    std::fs::write(&empty, "nothing").unwrap();
    let cause = |cert: &PathBuf, key: &PathBuf| Certificate::read(cert, key).unwrap_err().to_string();
    assert!(cause(&missing, &papers.key).contains("missing.pem: cannot be read"));
    assert!(cause(&empty, &papers.key).contains("empty.pem: holds no certificate in PEM form"));
    assert!(cause(&papers.cert, &empty).contains("empty.pem: holds no private key in PEM form"));
    let error = client_config(Some(&missing)).unwrap_err().to_string();
    assert!(error.contains("missing.pem: cannot be read"), "{error}");
}

#[test]
fn a_url_that_is_no_upstream_is_refused_with_the_cause() {
    let cause = |url: &str| {
        Upstream::new(&url.parse().unwrap(), UpstreamOptions::default()).expect_err("no upstream").to_string()
    };
    assert!(cause("ftp://a").contains("neither http:// nor https://"));
    assert!(cause("localhost:3000").contains("neither http:// nor https://"));
    assert!(cause("http://a/base").contains("has a path"));
    assert!(cause("https://a").contains("which certificates to trust"));
}

#[tokio::test]
async fn a_slow_body_over_http2_is_told_so() {
    let ledger = Ledger::start().await;
    let proxy = proxy_with(ledger.addr, proxied::impatient(), UpstreamOptions::default()).await;
    let stream = TcpStream::connect(proxy.addr).await.unwrap();
    let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let request = Request::builder().method(Method::POST).uri("http://shop/pay").body(()).unwrap();
    let (answer, mut body) = client.send_request(request, false).unwrap();
    body.send_data(Bytes::from_static(b"he"), false).unwrap();
    assert_eq!(answer.await.unwrap().status(), 408);
    assert!(ledger.seen().is_empty());
}

#[tokio::test]
async fn an_http2_client_that_takes_nothing_is_closed_and_its_upstream_connection_too() {
    let (upstream, ended) = endless().await;
    let proxy = proxy_with(upstream, proxied::impatient(), UpstreamOptions::default()).await;
    let stream = TcpStream::connect(proxy.addr).await.unwrap();
    let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let request = Request::builder().uri("http://shop/pay").body(()).unwrap();
    // The window is never opened again: nobody reads the body.
    let answer = client.send_request(request, true).unwrap().0.await.unwrap();
    timeout(SOON, ended.acquire()).await.expect("the upstream's connection is closed").unwrap().forget();
    drop(answer);
}

#[tokio::test]
async fn handshakes_that_do_not_begin_or_do_not_end_give_way() {
    let papers = papers();
    let upstream = https(tls_upstream(&papers, b"http/1.1").await, &papers);
    let options = ListenOptions { connections_max: 4, ..ListenOptions::default() };
    let certificate = Certificate::read(&papers.cert, &papers.key).unwrap();
    let proxy = tls_proxy_with(upstream, &certificate, options).await;
    let mut silent = Vec::new();
    for begun in [b"".as_slice(), b"\x16\x03\x01\x02\x00\x01", b"", b"\x16"] {
        let mut wire = Wire::connect(proxy.addr).await;
        wire.send(begun).await;
        silent.push(wire);
    }
    let client = timeout(SOON / 5, tls_client(&proxy, &papers, b"http/1.1")).await.expect("a place at once").unwrap();
    let mut client = Wire::new(client);
    client.send(GET).await;
    assert_eq!(client.answer().await.status(), 200);
    assert!(silent[0].is_closed().await, "the one that came first went first");
}

/// By HTTP/2, too, a connection gives way when its requests have been answered, and says goodbye.
#[tokio::test]
async fn an_http2_connection_without_a_request_gives_way_with_a_farewell() {
    let ledger = Ledger::start().await;
    let options = ListenOptions { connections_max: 1, ..ListenOptions::default() };
    let proxy = proxy_with(ledger.addr, options, UpstreamOptions::default()).await;
    let (mut first, connection) = h2::client::handshake(TcpStream::connect(proxy.addr).await.unwrap()).await.unwrap();
    let connection = tokio::spawn(connection);
    let request = Request::builder().uri("http://shop/pay").body(()).unwrap();
    assert_eq!(first.send_request(request, true).unwrap().0.await.unwrap().status(), 200);
    let mut second = Wire::connect(proxy.addr).await;
    assert!(second.is_in_step().await);
    assert!(
        timeout(SOON, connection).await.expect("the connection ends").unwrap().is_ok(),
        "with GOAWAY, not with an error"
    );
}

#[tokio::test]
async fn an_idle_http2_connection_is_closed() {
    let ledger = Ledger::start().await;
    let proxy = proxy_with(ledger.addr, proxied::impatient(), UpstreamOptions::default()).await;
    let stream = TcpStream::connect(proxy.addr).await.unwrap();
    let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
    let connection = tokio::spawn(connection);
    let request = Request::builder().uri("http://shop/pay").body(()).unwrap();
    assert_eq!(client.send_request(request, true).unwrap().0.await.unwrap().status(), 200);
    timeout(SOON, connection).await.expect("the connection ends").unwrap().ok();
}
