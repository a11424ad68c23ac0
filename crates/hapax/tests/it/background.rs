//! What runs beside the requests of a layer: how it is started and stopped, and the warning where it is not.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::post;
use hapax::Memory;
use hapax::http::{IdempotencyLayer, single_tenant};
use tower::ServiceExt;

use crate::common::request;
use crate::spans::Lines;

const WARNING: &str = "no background task runs for this layer";

fn layer() -> IdempotencyLayer<Memory> {
    IdempotencyLayer::new(Memory::new(), single_tenant)
}

async fn serve(layer: &IdempotencyLayer<Memory>, key: &str) {
    let app = Router::new().route("/pay", post(|| async { "paid" })).layer(layer.clone());
    assert_eq!(app.oneshot(request("/pay", key)).await.unwrap().status(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_layer_that_serves_without_it_warns_once() {
    let (lines, _guard) = Lines::capture();
    let layer = layer();
    serve(&layer, "k-1").await;
    assert!(lines.with(WARNING).is_empty(), "it may still be started");
    tokio::time::advance(Duration::from_secs(60)).await;
    serve(&layer, "k-2").await;
    serve(&layer, "k-3").await;
    assert_eq!(lines.with(WARNING).len(), 1);
    assert!(lines.with(WARNING)[0].contains("WARN"));
}

#[tokio::test(start_paused = true)]
async fn a_layer_that_serves_with_it_does_not_warn() {
    let (lines, _guard) = Lines::capture();
    let layer = layer();
    let background = layer.spawn_background();
    tokio::time::sleep(Duration::from_secs(61)).await;
    serve(&layer, "k-1").await;
    background.stop().await;
    serve(&layer, "k-2").await;
    assert!(lines.with(WARNING).is_empty());
}

#[tokio::test(start_paused = true)]
async fn it_ends_when_it_is_stopped_and_when_its_handle_is_dropped() {
    let layer = layer();
    let holders = || Arc::strong_count(layer.engine());
    let (alone, background) = (holders(), layer.spawn_background());
    assert_eq!(holders(), alone + 1);
    background.stop().await;
    assert_eq!(holders(), alone, "its task is gone when `stop` returns");
    drop(layer.spawn_background());
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(holders(), alone, "a handle that is dropped takes its task with it");
}
