//! Answers that are passed on as they come: what they mean for their key is recorded when they have come to their end.

#![cfg(feature = "axum")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

use std::convert::Infallible;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{Fickle, layer, request, send};
use axum::Router;
use axum::body::Body;
use axum::routing::post;
use hapax::http::{IdempotencyLayer, Route};
use hapax_core::record::State;
use hapax_core::store::{Scan, Store};
use http::{Response, StatusCode};
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tower::ServiceExt;

/// Answers over this are passed on.
const ANSWER_BYTES_MAX: usize = 1_000;

type Piece = Result<&'static str, io::Error>;

/// A service whose answers a test sends piece by piece.
#[derive(Clone)]
struct Sender {
    runs: Arc<AtomicU32>,
    status: StatusCode,
    fields: &'static [(&'static str, &'static str)],
    pieces: Arc<Mutex<Option<mpsc::UnboundedSender<Piece>>>>,
}

impl Sender {
    fn new(status: u16, fields: &'static [(&'static str, &'static str)]) -> Self {
        let status = StatusCode::from_u16(status).unwrap();
        Self { runs: Arc::default(), status, fields, pieces: Arc::default() }
    }

    fn runs(&self) -> u32 {
        self.runs.load(Ordering::SeqCst)
    }

    fn say(&self, piece: Piece) {
        self.pieces.lock().unwrap().as_ref().unwrap().send(piece).unwrap();
    }

    fn end(&self) {
        self.pieces.lock().unwrap().take();
    }

    fn answer(&self) -> Response<Body> {
        self.runs.fetch_add(1, Ordering::SeqCst);
        let (pieces, receiver) = mpsc::unbounded_channel();
        *self.pieces.lock().unwrap() = Some(pieces);
        let stream = futures_util::stream::unfold(receiver, |mut receiver| async move {
            receiver.recv().await.map(|piece| (piece, receiver))
        });
        let mut response = Response::new(Body::from_stream(stream));
        *response.status_mut() = self.status;
        for (name, value) in self.fields {
            response.headers_mut().insert(*name, value.parse().unwrap());
        }
        response
    }

    fn app(&self, layer: IdempotencyLayer<Fickle>) -> Router {
        let sender = self.clone();
        let route = Route::new().with_answer_bytes_max(ANSWER_BYTES_MAX);
        let answer = post(move || async move { Ok::<_, Infallible>(sender.answer()) });
        Router::new().route("/pay", answer).layer(layer.with_default_route(route))
    }
}

async fn only_state(store: &Fickle) -> State {
    let page = store.scan(&Scan::default()).await.unwrap();
    assert_eq!(page.entries.len(), 1);
    page.entries[0].stored.record.state
}

async fn retry(app: &Router) -> (u16, String) {
    let answered = tokio::time::timeout(Duration::from_secs(5), send(app, request("/pay", "k"))).await;
    let got = answered.expect("a refusal, which is no stream");
    (got.status, got.code())
}

async fn open(app: &Router) -> Body {
    app.clone().oneshot(request("/pay", "k")).await.unwrap().into_body()
}

async fn read(body: &mut Body) -> Option<String> {
    let frame = body.frame().await?.unwrap();
    Some(String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap())
}

fn in_progress() -> (u16, String) {
    (409, "in-progress".to_owned())
}

fn unknown() -> (u16, String) {
    (409, "outcome-unknown".to_owned())
}

const EVENTS: &[(&str, &str)] = &[("content-type", "text/event-stream")];

#[tokio::test(start_paused = true)]
async fn a_failure_that_streams_frees_its_key_at_its_end() {
    for status in [500, 503, 429] {
        let (store, sender) = (Fickle::default(), Sender::new(status, EVENTS));
        let app = sender.app(layer(&store));
        let mut body = open(&app).await;
        sender.say(Ok("one"));
        assert_eq!(read(&mut body).await.as_deref(), Some("one"));
        for _ in 0..10 {
            assert_eq!((retry(&app).await, sender.runs()), (in_progress(), 1));
            // Longer than a lease in all: it is renewed.
            tokio::time::sleep(Duration::from_secs(10)).await;
            store.clock.advance_ms(10_000);
        }
        sender.say(Ok("two"));
        assert_eq!(read(&mut body).await.as_deref(), Some("two"));
        sender.end();
        assert_eq!(read(&mut body).await, None);
        assert_eq!(only_state(&store).await, State::Ready, "as soon as the end is seen");
        drop(open(&app).await);
        assert_eq!(sender.runs(), 2);
    }
}

#[tokio::test]
async fn a_failure_that_is_cut_short_is_unknown() {
    for fields in [EVENTS, &[("content-length", "5000")]] {
        let (store, sender) = (Fickle::default(), Sender::new(500, fields));
        let layer = layer(&store);
        let app = sender.app(layer.clone());
        let reading = tokio::spawn({
            let app = app.clone();
            async move { open(&app).await.collect().await.map(|_| ()) }
        });
        while sender.runs() == 0 {
            tokio::task::yield_now().await;
        }
        sender.say(Ok(LARGE));
        sender.say(Err(io::Error::other("cut")));
        assert!(reading.await.unwrap().is_err());
        layer.drain().await;
        assert_eq!((retry(&app).await, sender.runs()), (unknown(), 1), "{fields:?}");
    }
}

#[tokio::test]
async fn a_success_that_streams_is_recorded_at_its_end() {
    let (store, sender) = (Fickle::default(), Sender::new(200, EVENTS));
    let app = sender.app(layer(&store));
    let mut body = open(&app).await;
    sender.say(Ok("one"));
    assert_eq!(read(&mut body).await.as_deref(), Some("one"));
    assert_eq!((retry(&app).await, only_state(&store).await), (in_progress(), State::Running));
    sender.end();
    assert_eq!(read(&mut body).await, None);
    assert_eq!((retry(&app).await, sender.runs()), ((409, "answer-not-kept".to_owned()), 1));
}

#[tokio::test]
async fn a_success_that_is_cut_short_is_unknown() {
    let (store, sender) = (Fickle::default(), Sender::new(200, EVENTS));
    let layer = layer(&store);
    let app = sender.app(layer.clone());
    let mut body = open(&app).await;
    sender.say(Ok("one"));
    read(&mut body).await;
    sender.say(Err(io::Error::other("cut")));
    assert!(body.frame().await.unwrap().is_err());
    layer.drain().await;
    assert_eq!((retry(&app).await, sender.runs()), (unknown(), 1));
}

#[tokio::test]
async fn a_client_that_goes_away_within_a_stream_cancels_nothing() {
    for (status, state) in [(200, State::Completed), (500, State::Ready)] {
        let (store, sender) = (Fickle::default(), Sender::new(status, EVENTS));
        let layer = layer(&store);
        let app = sender.app(layer.clone());
        let mut body = open(&app).await;
        sender.say(Ok("one"));
        read(&mut body).await;
        drop(body);
        // The service goes on as if somebody listened.
        sender.say(Ok("two"));
        assert_eq!((retry(&app).await, only_state(&store).await), (in_progress(), State::Running));
        sender.end();
        layer.drain().await;
        assert_eq!((only_state(&store).await, sender.runs()), (state, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_without_an_end_that_nobody_reads_is_unknown_after_a_while() {
    let (store, sender) = (Fickle::default(), Sender::new(200, EVENTS));
    let layer = layer(&store);
    let app = sender.app(layer.clone());
    drop(open(&app).await);
    layer.drain().await;
    assert_eq!((retry(&app).await, sender.runs()), (unknown(), 1));
}

#[tokio::test]
async fn a_stream_without_anything_in_it_is_an_answer_like_any_other() {
    let store = Fickle::default();
    let handler =
        || async { (StatusCode::SERVICE_UNAVAILABLE, [("content-type", "text/event-stream")], Body::empty()) };
    let app = Router::new().route("/pay", post(handler)).layer(layer(&store));
    // A server need not ask for a body that is empty.
    drop(open(&app).await);
    assert_eq!(only_state(&store).await, State::Ready);
}

/// More than is kept.
const LARGE: &str = match std::str::from_utf8(&[b'x'; ANSWER_BYTES_MAX + 1]) {
    Ok(text) => text,
    Err(_) => panic!(),
};

/// An answer as it stands on the wire, up to that text.
async fn read_until(conn: &mut tokio::net::TcpStream, end: &str) -> String {
    let mut read = String::new();
    while !read.ends_with(end) {
        let mut byte = [0];
        conn.read_exact(&mut byte).await.unwrap();
        read.push(byte[0].into());
    }
    read
}

#[tokio::test]
async fn a_server_that_asks_for_no_more_than_was_announced_frees_the_key_too() {
    let lengths: [&'static [(&str, &str)]; 2] = [&[], &[("content-length", "1001")]];
    for (fields, end) in lengths.into_iter().zip(["x\r\n0\r\n\r\n", LARGE]) {
        let (store, sender) = (Fickle::default(), Sender::new(500, fields));
        let app = sender.app(layer(&store));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut conn = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let serving = tokio::spawn(async move { axum::serve(listener, app).await });
        let request =
            "POST /pay HTTP/1.1\r\nhost: a\r\nx-tenant: alice\r\nidempotency-key: k\r\ncontent-length: 0\r\n\r\n";
        for run in 1..=3 {
            conn.write_all(request.as_bytes()).await.unwrap();
            while sender.runs() < run {
                tokio::task::yield_now().await;
            }
            sender.say(Ok(LARGE));
            sender.end();
            let answer = tokio::time::timeout(Duration::from_secs(10), read_until(&mut conn, end)).await.unwrap();
            assert!(answer.starts_with("HTTP/1.1 500"), "{answer}");
            assert_eq!(only_state(&store).await, State::Ready, "before the last byte has gone out");
        }
        serving.abort();
    }
}
