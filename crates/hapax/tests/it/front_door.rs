//! What a newcomer types first, as it is typed: nothing here names `hapax_core`, and no closure says the type of its argument.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

use axum::routing::post;
use axum::{Router, body::Body};
use hapax::http::{
    Claim, IdempotencyLayer, InvalidPattern, NoScope, Pattern, Route, Scope, scope_async, single_tenant,
};
use hapax::{AnyStore, HmacKey, Memory, OnLapse, Policy, Recipe, Store};
use hapax_sqlite::Sqlite;
use http::{Method, Request, Response};
use tower::ServiceExt;

const POST: Method = Method::POST;

fn request(path: &str, caller: Option<&str>) -> Request<Body> {
    let builder = Request::post(path).header("idempotency-key", "k-1");
    let builder = caller.into_iter().fold(builder, |builder, caller| builder.header("x-caller", caller));
    builder.body(Body::from("{}")).unwrap()
}

/// What comes back from a service under that layer, twice.
async fn twice<S: Store + 'static>(layer: IdempotencyLayer<S>, caller: Option<&str>) -> [Response<Body>; 2] {
    let pay = |claim: Option<Claim>| async move { claim.map_or_else(String::new, |claim| claim.scope().to_owned()) };
    let app = Router::new().route("/payments", post(pay)).layer(layer);
    let first = app.clone().oneshot(request("/payments", caller)).await.unwrap();
    [first, app.oneshot(request("/payments", caller)).await.unwrap()]
}

fn is_replay(response: &Response<Body>) -> bool {
    response.headers().contains_key("idempotent-replayed")
}

async fn body(response: Response<Body>) -> String {
    String::from_utf8(axum::body::to_bytes(response.into_body(), 1024).await.unwrap().to_vec()).unwrap()
}

#[tokio::test]
async fn a_closure_needs_no_types_and_a_question_mark_is_enough() {
    let layer = IdempotencyLayer::new(Memory::new(), |parts| {
        let caller = parts.headers.get("x-caller").and_then(|value| value.to_str().ok()).unwrap_or_default();
        Ok(Scope::new(caller)?)
    });
    let [first, retry] = twice(layer.clone(), Some("alice")).await;
    assert!(!is_replay(&first) && is_replay(&retry));
    assert_eq!(body(retry).await, "alice");
    let [refused, _] = twice(layer, None).await;
    assert_eq!(refused.status(), 400);
    assert!(body(refused).await.contains("the scope is empty; give at least one character"));
}

#[tokio::test]
async fn an_async_closure_may_use_the_head_after_it_has_waited() {
    let scopes = scope_async(|parts| async move {
        tokio::task::yield_now().await;
        let caller = parts.headers.get("x-caller").and_then(|value| value.to_str().ok());
        let caller = caller.ok_or_else(|| NoScope::Missing("log in first".into()))?;
        Ok(Scope::new(caller)?)
    });
    let layer = IdempotencyLayer::with_scopes(Memory::new(), scopes);
    let [first, retry] = twice(layer.clone(), Some("alice")).await;
    assert!(!is_replay(&first) && is_replay(&retry));
    assert_eq!(body(retry).await, "alice");
    assert!(body(twice(layer, None).await.into_iter().next().unwrap()).await.contains("log in first"));
}

#[tokio::test]
async fn a_literal_is_a_pattern() {
    let layer = IdempotencyLayer::new(Memory::new(), single_tenant)
        .with_route(&[POST], "/payments", Route::unprotected())
        .with_route(&[POST], "/search".to_owned(), Route::unprotected())
        .with_route(&[POST], Pattern::root(), Route::new().with_on_lapse(OnLapse::Rerun));
    let [_, retry] = twice(layer, None).await;
    assert!(!is_replay(&retry), "the route of that pattern is not protected");
}

#[test]
#[should_panic(expected = "the pattern of this route does not begin with `/`; put one in front")]
fn a_literal_that_is_no_pattern_ends_the_program_at_its_start() {
    let layer = IdempotencyLayer::new(Memory::new(), single_tenant);
    let _ = layer.with_route(&[POST], "payments", Route::new());
}

#[test]
fn a_pattern_from_a_configuration_is_tried() {
    let layer = || IdempotencyLayer::new(Memory::new(), single_tenant);
    let error: InvalidPattern = layer().try_with_route(&[POST], "/a//b", Route::new()).unwrap_err();
    assert!(error.to_string().starts_with("has an empty segment"), "{error}");
    let layer = layer().try_with_route(&[POST], "/a/{b}", Route::new()).unwrap();
    assert!(format!("{layer:?}").contains("/a/{b}"), "{layer:?}");
}

#[tokio::test]
async fn the_kind_of_store_is_chosen_at_run_time() {
    let directory = tempfile::tempdir().unwrap();
    for in_memory in [true, false] {
        let store = match in_memory {
            true => AnyStore::new(Memory::new()),
            false => AnyStore::new(Sqlite::open(directory.path().join("pay.db")).unwrap()),
        };
        let [first, retry] = twice(IdempotencyLayer::new(store, single_tenant), None).await;
        assert!(!is_replay(&first) && is_replay(&retry), "{in_memory}");
    }
}

#[test]
fn a_claim_for_a_test_is_the_one_that_the_layer_makes() {
    let claim = Claim::for_test("alice", "k-1");
    assert_eq!((claim.scope(), claim.key(), claim.attempt()), ("alice", "k-1", 1));
    assert!(claim.checkpoint().is_none());
}

#[tokio::test]
async fn what_a_claim_for_a_test_derives_is_what_a_handler_derives() {
    let by_header = |parts: &http::request::Parts| Ok(Scope::new(parts.headers["x-caller"].to_str().unwrap())?);
    let pay = |claim: Claim| async move { claim.derive("charge") };
    let app = Router::new().route("/payments", post(pay)).layer(IdempotencyLayer::new(Memory::new(), by_header));
    let response = app.oneshot(request("/payments", Some("alice"))).await.unwrap();
    assert_eq!(body(response).await, Claim::for_test("alice", "k-1").derive("charge"));
}

#[test]
fn what_routes_and_layers_are_built_of_has_a_name_here() {
    let route = Route::new().with_recipe(Recipe::new()).with_on_lapse(OnLapse::Rerun);
    assert_eq!(route.policy, Policy { on_lapse: OnLapse::Rerun, ..Policy::default() });
    let key = HmacKey::new("2026", b"thirty-two bytes or more, kept secret").unwrap();
    let layer = IdempotencyLayer::new(Memory::default(), single_tenant).with_fingerprint_keys(vec![key]);
    assert_eq!(layer.settings().fingerprint_keys.len(), 1);
}
