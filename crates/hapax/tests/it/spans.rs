//! What is logged of a request: one line that says what became of it, in the span that it arrived in, whoever still waits.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

use std::io::Write;
use std::sync::{Arc, Mutex};

use crate::common::{Fickle, request};
use axum::Router;
use axum::body::Body;
use axum::routing::post;
use hapax::http::{IdempotencyLayer, RequestId, single_tenant};
use http::Request;
use tokio::sync::Notify;
use tower::ServiceExt;
use tracing::subscriber::DefaultGuard;
use tracing::{Instrument as _, info_span};

/// Lines of the log.
#[derive(Clone, Default)]
pub(crate) struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Lines {
    pub(crate) fn capture() -> (Self, DefaultGuard) {
        let lines = Self::default();
        let made = lines.clone();
        let subscriber =
            tracing_subscriber::fmt().with_ansi(false).without_time().with_writer(move || made.clone()).finish();
        (lines, tracing::subscriber::set_default(subscriber))
    }

    pub(crate) fn with(&self, text: &str) -> Vec<String> {
        let all = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        all.lines().filter(|line| line.contains(text)).map(str::to_owned).collect()
    }
}

fn numbered(key: &str, id: &str) -> Request<Body> {
    let mut request = request("/pay", key);
    request.extensions_mut().insert(RequestId(id.into()));
    request
}

#[tokio::test]
async fn work_whose_client_has_gone_logs_in_the_span_of_its_request() {
    let (lines, _guard) = Lines::capture();
    let (begun, go, done) = (Arc::new(Notify::new()), Arc::new(Notify::new()), Arc::new(Notify::new()));
    let handler = {
        let (begun, go, done) = (Arc::clone(&begun), Arc::clone(&go), Arc::clone(&done));
        move || async move {
            begun.notify_one();
            go.notified().await;
            tracing::info!("charging");
            done.notify_one();
            "paid"
        }
    };
    let layer = IdempotencyLayer::new(Fickle::default(), single_tenant);
    let app = Router::new().route("/pay", post(handler)).layer(layer.clone());
    let span = info_span!("call", trace_id = "tr-77");
    {
        let mut waiting = Box::pin(app.oneshot(numbered("k-1", "r-1")).instrument(span));
        tokio::select! {
            biased;
            _ = &mut waiting => panic!("the handler waits"),
            () = begun.notified() => {}
        }
    }
    go.notify_one();
    done.notified().await;
    layer.drain().await;
    for text in ["charging", "outcome=\"created\""] {
        let found = lines.with(text);
        assert!(found.len() == 1 && found[0].contains("tr-77"), "{text}: {found:?}");
    }
}

#[tokio::test]
async fn a_request_leaves_one_line_that_says_what_became_of_it() {
    let (lines, _guard) = Lines::capture();
    let layer = IdempotencyLayer::new(Fickle::default(), single_tenant);
    let app = Router::new().route("/pay", post(|| async { "paid" })).layer(layer);
    for id in ["r-1", "r-2"] {
        assert_eq!(app.clone().oneshot(numbered("canary-key", id)).await.unwrap().status(), 200);
    }
    let (created, replayed) = (lines.with("\"r-1\""), lines.with("\"r-2\""));
    assert!(created.len() == 1 && replayed.len() == 1, "{created:?} {replayed:?}");
    for part in
        [" INFO ", "hapax::request", "outcome=\"created\"", "state=\"completed\"", "status=200", "route=\"default\""]
    {
        assert!(created[0].contains(part), "{part}: {created:?}");
    }
    for part in ["outcome=\"replayed\"", "status=200", "duration_ms="] {
        assert!(replayed[0].contains(part), "{part}: {replayed:?}");
    }
    let id = |line: &str| line.split(" id=").nth(1).and_then(|rest| rest.split(' ').next()).map(str::to_owned);
    assert!(id(&created[0]).is_some_and(|id| id.len() == 64) && id(&created[0]) == id(&replayed[0]));
    assert!(lines.with("canary-key").is_empty(), "the key itself is in no log");
}
