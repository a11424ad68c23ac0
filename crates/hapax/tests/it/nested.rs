//! A layer inside `Router::nest`: the path counts as the client sent it, though the router takes its prefix off.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

use crate::common::{Fickle, Work, layer, request, send};
use axum::Router;
use axum::extract::{Request, State};
use axum::routing::any;
use hapax::http::{IdempotencyLayer, KeyPer, Route};
use http::Method;

/// Says which path it sees, and in which run.
async fn create(State(work): State<Work>, request: Request) -> String {
    let run = work.runs.fetch_add(1, std::sync::atomic::Ordering::SeqCst) + 1;
    format!("{} sees {}, run {run}", request.method(), request.uri())
}

/// The same resource below two prefixes, with one layer inside both.
fn nested(work: &Work, layer: &IdempotencyLayer<Fickle>) -> Router {
    let inside = || Router::new().route("/create", any(create)).with_state(work.clone()).layer(layer.clone());
    Router::new().nest("/charges", inside()).nest("/v1", Router::new().nest("/refunds", inside()))
}

#[tokio::test]
async fn the_same_key_below_another_prefix_is_another_request() {
    let (store, work) = (Fickle::default(), Work::default());
    let app = nested(&work, &layer(&store));
    let charge = send(&app, request("/charges/create?a=1", "k")).await;
    assert_eq!((charge.status, charge.body.as_str()), (200, "POST sees /create?a=1, run 1"), "the handler's own view");
    let refund = send(&app, request("/v1/refunds/create?a=1", "k")).await;
    assert_eq!((refund.status, refund.code().as_str()), (422, "key-reused"), "{}", refund.body);
    assert!(send(&app, request("/charges/create?a=1", "k")).await.is_replay());
    assert_eq!(send(&app, request("/charges/create?a=2", "k")).await.status, 422, "the query counts");
    assert_eq!(work.runs(), 1);
}

#[tokio::test]
async fn keys_per_route_are_apart_below_different_prefixes() {
    let (store, work) = (Fickle::default(), Work::default());
    let app = nested(&work, &layer(&store).with_default_route(Route::new().with_key_per(KeyPer::Route)));
    assert_eq!(send(&app, request("/charges/create", "k")).await.body, "POST sees /create, run 1");
    assert_eq!(send(&app, request("/v1/refunds/create", "k")).await.body, "POST sees /create, run 2");
    for (path, body) in [("/charges/create", "run 1"), ("/v1/refunds/create", "run 2")] {
        let retry = send(&app, request(path, "k")).await;
        assert!(retry.is_replay() && retry.body.ends_with(body), "{path}: {}", retry.body);
    }
}

#[tokio::test]
async fn patterns_have_the_whole_path() {
    let (store, work) = (Fickle::default(), Work::default());
    let pattern = "/v1/refunds/create";
    let app = nested(&work, &layer(&store).with_route(&[Method::PUT], pattern, Route::new()));
    let put = |path: &str| {
        let mut request = request(path, "k");
        *request.method_mut() = Method::PUT;
        request
    };
    for (path, protected) in [("/v1/refunds/create", true), ("/charges/create", false)] {
        send(&app, put(path)).await;
        assert_eq!(send(&app, put(path)).await.is_replay(), protected, "{path}");
    }
}
