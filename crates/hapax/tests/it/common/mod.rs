//! A service that counts, a store that can be taken away, and requests to try them with.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, post};
use hapax::http::{IdempotencyLayer, NoScope, Scope};
use hapax_core::address::Address;
use hapax_core::memory::Memory;
use hapax_core::record::{Body as Recorded, Record, Version};
use hapax_core::store::{ErrorKind, Health, Page, Scan, Seen, Store, StoreError, Swap};
use hapax_testkit::clock::FakeClock;
use http::request::Parts;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use tokio::sync::Semaphore;
use tower::ServiceExt;

/// A write that is on its way: where, in place of what, and what.
type CutOff = (Address, Option<Version>, Record);

/// A store that can be taken away.
#[derive(Clone, Debug)]
pub(crate) struct Fickle {
    pub(crate) memory: Arc<Memory>,
    pub(crate) down: Arc<AtomicBool>,
    /// The next write is cut off: it is on its way, nobody is told, and the store is down from then on.
    pub(crate) cut_next: Arc<AtomicBool>,
    on_its_way: Arc<Mutex<Option<CutOff>>>,
    /// It cannot keep an answer's body.
    pub(crate) keeps_no_body: Arc<AtomicBool>,
    /// It cannot keep anything for as long as it is asked to.
    pub(crate) keeps_nothing_so_long: Arc<AtomicBool>,
    /// The process is paused for so long while the next write is under way.
    pub(crate) pause_next: Arc<Mutex<Option<Duration>>>,
    pub(crate) clock: FakeClock,
}

impl Default for Fickle {
    fn default() -> Self {
        let clock = FakeClock::default();
        let memory = Arc::new(Memory::with_clock(clock.clone()));
        Self {
            memory,
            down: Arc::default(),
            cut_next: Arc::default(),
            on_its_way: Arc::default(),
            keeps_no_body: Arc::default(),
            keeps_nothing_so_long: Arc::default(),
            pause_next: Arc::default(),
            clock,
        }
    }
}

impl Fickle {
    /// What was cut off arrives in the store.
    pub(crate) async fn let_arrive(&self) {
        let (at, expect, next) = self.on_its_way.lock().unwrap().take().unwrap();
        self.memory.swap(&at, expect, &next).await.unwrap();
    }

    fn check(&self, op: &'static str) -> Result<(), StoreError> {
        match self.down.load(Ordering::SeqCst) {
            true => Err(StoreError::new(op, ErrorKind::Unavailable, "taken away by the test")),
            false => Ok(()),
        }
    }
}

impl Store for Fickle {
    async fn swap(&self, at: &Address, expect: Option<Version>, next: &Record) -> Result<Swap, StoreError> {
        self.check("swap")?;
        let has_body = next.outcome.as_ref().is_some_and(|outcome| outcome.body != Recorded::NotKept);
        let is_too_long = next.expires_in_ms.is_some() && self.keeps_nothing_so_long.load(Ordering::SeqCst);
        if is_too_long || (has_body && self.keeps_no_body.load(Ordering::SeqCst)) {
            return Err(StoreError::new("swap", ErrorKind::Invalid, "refused by the test"));
        }
        if self.cut_next.swap(false, Ordering::SeqCst) {
            self.down.store(true, Ordering::SeqCst);
            *self.on_its_way.lock().unwrap() = Some((at.clone(), expect, next.clone()));
            return Err(StoreError::new("swap", ErrorKind::Ambiguous, "cut off by the test"));
        }
        let swapped = self.memory.swap(at, expect, next).await;
        let pause = self.pause_next.lock().unwrap().take();
        if let Some(pause) = pause {
            tokio::time::sleep(pause).await;
        }
        swapped
    }
    async fn get(&self, at: &Address) -> Result<Seen, StoreError> {
        self.check("get")?;
        self.memory.get(at).await
    }
    async fn scan(&self, query: &Scan) -> Result<Page, StoreError> {
        self.memory.scan(query).await
    }
    async fn reap(&self, limit: u32) -> Result<u32, StoreError> {
        self.memory.reap(limit).await
    }
    async fn health(&self) -> Result<Health, StoreError> {
        self.memory.health().await
    }
}

/// What the service behind the layer has done, and what it is to do.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    pub(crate) runs: Arc<AtomicU32>,
    /// Runs wait here until a test lets them go.
    pub(crate) gate: Arc<Semaphore>,
    /// Told when a run has begun.
    pub(crate) begun: Arc<Semaphore>,
}

impl Default for Work {
    fn default() -> Self {
        let open = Semaphore::new(Semaphore::MAX_PERMITS);
        Self { runs: Arc::default(), gate: Arc::new(open), begun: Arc::new(Semaphore::new(0)) }
    }
}

impl Work {
    pub(crate) fn held() -> Self {
        Self { gate: Arc::new(Semaphore::new(0)), ..Self::default() }
    }

    pub(crate) fn runs(&self) -> u32 {
        self.runs.load(Ordering::SeqCst)
    }

    /// Waits until a run has begun.
    pub(crate) async fn has_begun(&self) {
        self.begun.acquire().await.unwrap().forget();
    }

    pub(crate) fn let_go(&self) {
        self.gate.add_permits(1);
    }

    async fn run(&self) -> u32 {
        let run = self.runs.fetch_add(1, Ordering::SeqCst) + 1;
        self.begun.add_permits(1);
        self.gate.acquire().await.unwrap().forget();
        run
    }
}

async fn pay(State(work): State<Work>, request: Request<Body>) -> Response {
    let attempt = request.headers().get("idempotency-attempt").cloned();
    let record = request.headers().get("idempotency-record").cloned();
    let method = request.method().as_str().parse().unwrap();
    let encoding = request.headers().get("accept-encoding").cloned();
    let run = work.run().await;
    let mut response = (StatusCode::CREATED, format!("paid, run {run}")).into_response();
    let headers = response.headers_mut();
    headers.insert("x-attempt", attempt.unwrap_or_else(|| "none".parse().unwrap()));
    headers.insert("x-record", record.unwrap_or_else(|| "none".parse().unwrap()));
    headers.insert("x-encoding", encoding.unwrap_or_else(|| "none".parse().unwrap()));
    headers.insert("x-method", method);
    headers.append("link", "</1>".parse().unwrap());
    headers.append("link", "</2>".parse().unwrap());
    headers.insert("set-cookie", "a=1".parse().unwrap());
    headers.insert("date", "Thu, 01 Jan 1970 00:00:00 GMT".parse().unwrap());
    response
}

/// Answers with the status in the path.
async fn status(State(work): State<Work>, axum::extract::Path(status): axum::extract::Path<u16>) -> Response {
    let run = work.run().await;
    (StatusCode::from_u16(status).unwrap(), format!("run {run}")).into_response()
}

#[expect(clippy::panic, reason = "the test wants to see what a panic does")]
async fn panics(State(work): State<Work>) -> Response {
    work.run().await;
    panic!("on purpose")
}

/// A body of that many bytes.
async fn large(State(work): State<Work>, axum::extract::Path(bytes): axum::extract::Path<usize>) -> Response {
    work.run().await;
    vec![b'x'; bytes].into_response()
}

/// A body that breaks off.
async fn broken(State(work): State<Work>) -> Response {
    work.run().await;
    let frames = [Ok::<_, std::io::Error>("half"), Err(std::io::Error::other("cut"))];
    Body::from_stream(futures_util::stream::iter(frames)).into_response()
}

pub(crate) fn by_tenant(parts: &Parts) -> Result<Scope, NoScope> {
    let tenant = parts.headers.get("x-tenant").and_then(|value| value.to_str().ok());
    let tenant = tenant.ok_or_else(|| NoScope::Missing("say who you are in X-Tenant".into()))?;
    Scope::new(tenant).map_err(|error| NoScope::Missing(error.to_string()))
}

pub(crate) fn layer(store: &Fickle) -> IdempotencyLayer<Fickle> {
    IdempotencyLayer::new(store.clone(), by_tenant)
}

pub(crate) fn app(work: &Work, layer: IdempotencyLayer<Fickle>) -> Router {
    Router::new()
        .route("/pay", any(pay))
        .route("/status/{status}", post(status))
        .route("/panic", post(panics))
        .route("/large/{bytes}", post(large))
        .route("/broken", post(broken))
        .with_state(work.clone())
        .layer(layer)
}

/// A request of alice's with that key.
pub(crate) fn request(path: &str, key: &str) -> Request<Body> {
    let builder = Request::post(path).header("x-tenant", "alice").header("content-type", "application/json");
    builder.header("idempotency-key", key).body(Body::from(r#"{"amount":1}"#)).unwrap()
}

/// What came back.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Got {
    pub(crate) status: u16,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: String,
}

impl Got {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub(crate) fn is_replay(&self) -> bool {
        self.header("idempotent-replayed") == Some("true")
    }

    /// The last part of a problem's type.
    pub(crate) fn code(&self) -> String {
        let document: serde_json::Value = serde_json::from_str(&self.body).unwrap_or_default();
        document["type"].as_str().unwrap_or_default().trim_start_matches("urn:hapax:problem:").to_owned()
    }
}

pub(crate) async fn send(app: &Router, request: Request<Body>) -> Got {
    let (head, body) = app.clone().oneshot(request).await.unwrap().into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    Got { status: head.status.as_u16(), headers: head.headers, body: String::from_utf8(bytes.to_vec()).unwrap() }
}
