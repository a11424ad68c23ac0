//! What the layer does after a crash, a pause or a restore: late truth, held-up processes, fences, and labels to find a
//! record by.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{Fickle, Got, Work, app, layer, request, send};
use axum::body::Body;
use hapax::fence::Fence;
use hapax::http::{Guard, IdempotencyLayer, LabelSource, LateTruth, Pattern, RequestId, Route, SendBefore};
use hapax::{lapse, reap};
use hapax_core::address::{Address, Id};
use hapax_core::clock::Timestamp;
use hapax_core::record::{Body as Recorded, OnLapse, Outcome, Policy, State, Stored};
use hapax_core::store::{Scan, Store};
use hapax_core::transition::{Answer, Event, Resolution};
use http::{Method, Request};

const LEASE_MS: u64 = 30_000;

/// Keeps what it is told.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<(Id, u32, LateTruth)>>>);

impl Guard for Told {
    fn late_truth(&self, at: &Address, attempt: u32, truth: LateTruth) {
        self.0.lock().unwrap().push((*at.id(), attempt, truth));
    }
}

impl Told {
    fn truths(&self) -> Vec<(u32, LateTruth)> {
        self.0.lock().unwrap().iter().map(|(_, attempt, truth)| (*attempt, *truth)).collect()
    }
}

async fn the_record(store: &Fickle) -> (Address, Stored) {
    let mut page = store.scan(&Scan { limit: 10, ..Scan::default() }).await.unwrap();
    assert_eq!(page.entries.len(), 1);
    let entry = page.entries.remove(0);
    (entry.address, entry.stored)
}

/// A first request that is being carried out, and whose lease lapses meanwhile.
struct Lapsed {
    store: Fickle,
    layer: IdempotencyLayer<Fickle>,
    work: Work,
    told: Told,
    first: tokio::task::JoinHandle<Got>,
}

async fn lapsed(route: Route) -> Lapsed {
    let (store, work, told) = (Fickle::default(), Work::held(), Told::default());
    let layer = layer(&store).with_default_route(route).with_guard(told.clone());
    let service = app(&work, layer.clone());
    let first = tokio::spawn(async move { send(&service, request("/pay", "k-1")).await });
    work.has_begun().await;
    store.clock.advance_ms(LEASE_MS);
    Lapsed { store, layer, work, told, first }
}

impl Lapsed {
    async fn resolve(&self, resolution: Resolution<'_>) {
        assert_eq!(lapse::run_once(self.layer.engine(), 10).await.unwrap().lapsed, 1);
        let (at, _) = the_record(&self.store).await;
        let event = Event::Resolve { resolution, attempt: Some(1), since: None };
        assert_eq!(self.layer.engine().apply(&at, &event, None).await.unwrap().answer, Answer::Done);
    }
}

#[tokio::test]
async fn a_completion_after_did_not_happen_is_stored_and_reported() {
    let lapsed = lapsed(Route::new()).await;
    lapsed.resolve(Resolution::DidNotHappen).await;
    lapsed.work.let_go();
    let first = lapsed.first.await.unwrap();
    assert_eq!((first.status, first.body.as_str()), (201, "paid, run 1"));
    assert_eq!(lapsed.told.truths(), [(1, LateTruth::Contradicted)]);
    assert_eq!(the_record(&lapsed.store).await.1.record.state, State::Completed);
    assert!(send(&app(&lapsed.work, lapsed.layer), request("/pay", "k-1")).await.is_replay());
}

#[tokio::test]
async fn a_completion_after_a_verdict_changes_no_answer_and_is_reported() {
    let lapsed = lapsed(Route::new()).await;
    let said =
        Arc::new(Outcome { status: 200, headers: Vec::new(), body: Recorded::Kept(b"as the bank says".to_vec()) });
    lapsed.resolve(Resolution::Happened(&said)).await;
    lapsed.work.let_go();
    let first = lapsed.first.await.unwrap();
    assert_eq!((first.status, first.code().as_str()), (409, "outcome-unknown"), "a retry would get another answer");
    assert_eq!(lapsed.told.truths(), [(1, LateTruth::Overruled)]);
    let retry = send(&app(&lapsed.work, lapsed.layer), request("/pay", "k-1")).await;
    assert_eq!((retry.status, retry.body.as_str()), (200, "as the bank says"));
}

#[tokio::test]
async fn a_completion_that_another_attempt_took_over_is_reported() {
    let lapsed = lapsed(Route::new().with_on_lapse(OnLapse::Rerun)).await;
    let service = app(&lapsed.work, lapsed.layer.clone());
    let second = tokio::spawn(async move { send(&service, request("/pay", "k-1")).await });
    lapsed.work.has_begun().await;
    lapsed.work.let_go();
    lapsed.work.let_go();
    let codes = [lapsed.first.await.unwrap().status, second.await.unwrap().status];
    assert_eq!(codes, [409, 201]);
    assert_eq!(lapsed.told.truths(), [(1, LateTruth::DoubleRun)]);
}

#[tokio::test]
async fn a_completion_whose_record_was_purged_is_reported() {
    let lapsed = lapsed(Route::new()).await;
    assert_eq!(lapse::run_once(lapsed.layer.engine(), 10).await.unwrap().lapsed, 1);
    let (at, _) = the_record(&lapsed.store).await;
    let purged = lapsed.layer.engine().apply(&at, &Event::Purge { allow_rerun: false }, None).await.unwrap();
    assert_eq!(purged.answer, Answer::Done);
    lapsed.work.let_go();
    let first = lapsed.first.await.unwrap();
    assert_eq!((first.status, first.code().as_str()), (409, "outcome-unknown"));
    assert_eq!(lapsed.told.truths(), [(1, LateTruth::Forgotten)]);
    assert_eq!(the_record(&lapsed.store).await.1.record.state, State::Expired, "nothing is brought back");
}

#[tokio::test]
async fn a_completion_whose_record_is_gone_is_reported() {
    for reaped in [false, true] {
        let lapsed = lapsed(Route::new()).await;
        lapsed.resolve(Resolution::DidNotHappen).await;
        lapsed.store.clock.advance_ms(Policy::default().retention_ms);
        if reaped {
            assert_eq!(reap::run_once(lapsed.layer.engine(), 10).await.unwrap().reaped, 1);
        }
        lapsed.work.let_go();
        assert_eq!(lapsed.first.await.unwrap().code(), "outcome-unknown");
        assert_eq!(lapsed.told.truths(), [(1, LateTruth::Forgotten)], "reaped: {reaped}");
    }
}

#[tokio::test]
async fn a_failure_whose_record_is_gone_is_no_news() {
    let (store, work, told) = (Fickle::default(), Work::held(), Told::default());
    let layer = layer(&store).with_guard(told.clone());
    let service = app(&work, layer.clone());
    let first = tokio::spawn(async move { send(&service, request("/status/503", "k-1")).await });
    work.has_begun().await;
    store.clock.advance_ms(LEASE_MS);
    lapse::run_once(layer.engine(), 10).await.unwrap();
    let (at, _) = the_record(&store).await;
    layer.engine().apply(&at, &Event::Purge { allow_rerun: false }, None).await.unwrap();
    work.let_go();
    assert_eq!(first.await.unwrap().status, 503);
    assert_eq!(told.truths(), []);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_the_store_refuses_once_it_is_back_is_recorded_without_its_body() {
    let (store, work) = (Fickle::default(), Work::held());
    let layer = layer(&store);
    let service = app(&work, layer.clone());
    let first = tokio::spawn(async move { send(&service, request("/pay", "k-1")).await });
    work.has_begun().await;
    store.down.store(true, Ordering::SeqCst);
    work.let_go();
    assert_eq!(first.await.unwrap().code(), "outcome-unknown");
    store.keeps_no_body.store(true, Ordering::SeqCst);
    store.down.store(false, Ordering::SeqCst);
    tokio::time::timeout(Duration::from_secs(60), layer.drain()).await.expect("it is recorded");
    let (_, stored) = the_record(&store).await;
    assert_eq!(stored.record.outcome.unwrap().body, Recorded::NotKept);
    let retry = send(&app(&work, layer), request("/pay", "k-1")).await;
    assert_eq!((retry.code().as_str(), work.runs()), ("answer-not-kept", 1));
}

#[tokio::test]
async fn an_end_that_no_store_can_keep_for_so_long_is_in_doubt() {
    for (path, first) in [("/pay", (409, "outcome-unknown")), ("/status/503", (503, ""))] {
        let (store, work) = (Fickle::default(), Work::default());
        store.keeps_nothing_so_long.store(true, Ordering::SeqCst);
        let layer = layer(&store);
        let app = app(&work, layer.clone());
        let got = send(&app, request(path, "k-1")).await;
        assert_eq!((got.status, got.code().as_str()), first, "no answer that no retry would get");
        tokio::time::timeout(Duration::from_secs(5), layer.drain()).await.expect("it is recorded");
        let record = the_record(&store).await.1.record;
        assert_eq!((record.state, record.error.as_deref()), (State::Unknown, Some("not-recordable")));
        assert_eq!(send(&app, request(path, "k-1")).await.code(), "outcome-unknown");
        assert_eq!(work.runs(), 1);
    }
}

#[tokio::test]
async fn a_completion_of_ones_own_doubt_is_no_news() {
    let lapsed = lapsed(Route::new()).await;
    assert_eq!(lapse::run_once(lapsed.layer.engine(), 10).await.unwrap().lapsed, 1);
    lapsed.work.let_go();
    assert_eq!(lapsed.first.await.unwrap().status, 201);
    assert_eq!(lapsed.told.truths(), []);
}

#[tokio::test(start_paused = true)]
async fn a_process_that_was_held_up_after_its_claim_sends_nothing() {
    let (store, work) = (Fickle::default(), Work::default());
    // One that is held up as a whole does not notice that it waited for too long.
    let service = app(&work, layer(&store).with_store_timeout(Duration::MAX));
    *store.pause_next.lock().unwrap() = Some(Duration::from_millis(LEASE_MS));
    let first = send(&service, request("/pay", "k-1")).await;
    assert_eq!((first.status, first.code().as_str(), work.runs()), (503, "store-unavailable", 0));
    // Nobody waits for the recording.
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(the_record(&store).await.1.record.error.as_deref(), Some("held-up"));
    let retry = send(&service, request("/pay", "k-1")).await;
    assert_eq!((retry.status, work.runs()), (201, 1));
}

#[tokio::test(start_paused = true)]
async fn a_slow_store_alone_is_no_reason_to_give_up() {
    let (store, work) = (Fickle::default(), Work::default());
    *store.pause_next.lock().unwrap() = Some(Duration::from_millis(LEASE_MS / 3));
    assert_eq!(send(&app(&work, layer(&store)), request("/pay", "k-1")).await.status, 201);
}

/// Tells, when it is let go, whether it may still begin.
fn looks_again(work: &Work, layer: IdempotencyLayer<Fickle>) -> axum::Router {
    let work = work.clone();
    let look = move |request: Request<Body>| async move {
        work.begun.add_permits(1);
        work.gate.acquire().await.unwrap().forget();
        let before = request.extensions().get::<SendBefore>().unwrap();
        if before.is_over() { "over" } else { "begins" }
    };
    axum::Router::new().route("/pay", axum::routing::post(look)).layer(layer)
}

#[tokio::test]
async fn a_handler_may_begin_as_long_as_its_lease_is_renewed_and_no_longer() {
    let lease = Duration::from_secs(1);
    for (is_renewed, said) in [(true, "begins"), (false, "over")] {
        let (store, work) = (Fickle::default(), Work::held());
        let layer = layer(&store).with_default_route(Route::new().with_lease(lease));
        let service = looks_again(&work, layer);
        let first = tokio::spawn(async move { send(&service, request("/pay", "k-1")).await });
        work.has_begun().await;
        store.down.store(!is_renewed, Ordering::SeqCst);
        tokio::time::sleep(lease * 3 / 2).await;
        store.down.store(false, Ordering::SeqCst);
        work.let_go();
        assert_eq!(first.await.unwrap().body, said);
    }
}

fn labels(stored: &Stored) -> Vec<(&str, &str)> {
    stored.record.labels.iter().map(|label| (label.name.as_str(), label.value.as_str())).collect()
}

fn numbered(path: &str) -> Request<Body> {
    let mut request = request(path, "k-1");
    request.extensions_mut().insert(RequestId("r-7".into()));
    request
}

#[tokio::test]
async fn a_record_can_be_found_by_its_route_and_its_request() {
    let (store, work) = (Fickle::default(), Work::default());
    let pattern: Pattern = "/status/{status}".parse().unwrap();
    let layer = layer(&store).with_route(&[Method::POST, Method::PUT], pattern, Route::new());
    let mut request = numbered("/status/200?token=canary");
    let traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    request.headers_mut().insert("traceparent", traceparent.parse().unwrap());
    send(&app(&work, layer), request).await;
    let (_, stored) = the_record(&store).await;
    let expected = [
        ("route", "POST,PUT /status/{status}"),
        ("request-id", "r-7"),
        ("method", "POST"),
        ("path", "/status/200"),
        ("trace-id", "4bf92f3577b34da6a3ce929d0e0e4736"),
    ];
    assert_eq!(labels(&stored), expected);
}

#[tokio::test]
async fn a_record_of_no_route_is_of_the_default_one() {
    let (store, work) = (Fickle::default(), Work::default());
    send(&app(&work, layer(&store)), request("/pay", "k-1")).await;
    assert_eq!(labels(&the_record(&store).await.1), [("route", "default"), ("method", "POST"), ("path", "/pay")]);
}

#[tokio::test]
async fn an_answer_is_kept_although_there_are_more_labels_than_a_record_holds() {
    let store = Fickle::default();
    let source = |at: usize| LabelSource { name: format!("l-{at}"), in_answer: at >= 10, pointer: "/amount".into() };
    let layer = layer(&store).with_default_route(Route::new().with_labels((0..20).map(source).collect()));
    let app = axum::Router::new().route("/pay", axum::routing::post(|| async { r#"{"amount":7}"# })).layer(layer);
    assert_eq!(send(&app, numbered("/pay")).await.status, 200);
    let retry = send(&app, numbered("/pay")).await;
    assert_eq!((retry.is_replay(), retry.body.as_str()), (true, r#"{"amount":7}"#));
    let (_, stored) = the_record(&store).await;
    let labels = labels(&stored);
    assert_eq!(labels.len(), hapax_core::limits::LABEL_COUNT_MAX);
    assert_eq!((labels[4], labels[13], labels[18]), (("l-0", "1"), ("l-9", "1"), ("l-14", "7")));
}

/// Stands from now on for an hour.
fn fence(store: &Fickle) -> Fence {
    let now = hapax_core::clock::Clock::read(&store.clock).wall_ms;
    let at = Timestamp::from_ms;
    Fence { lost_since: at(now - 60_000), restored_at: at(now), until: at(now + 3_600_000) }
}

#[tokio::test]
async fn behind_a_fence_a_key_that_may_be_lost_runs_only_once_it_is_known_not_to_have() {
    let (store, work) = (Fickle::default(), Work::default());
    let layer = layer(&store);
    let service = app(&work, layer.clone());
    layer.set_fence(Some(fence(&store)));
    for _ in 0..2 {
        let refused = send(&service, request("/pay", "k-1")).await;
        assert_eq!((refused.status, refused.code().as_str(), work.runs()), (409, "outcome-unknown", 0));
    }
    let (at, stored) = the_record(&store).await;
    assert_eq!((stored.record.state, stored.record.attempt), (State::Unknown, 0));
    // What is written in the very moment of the restore may be from before it.
    store.clock.advance_ms(1);
    let event = Event::Resolve { resolution: Resolution::DidNotHappen, attempt: Some(0), since: None };
    layer.engine().apply(&at, &event, None).await.unwrap();
    assert_eq!((send(&service, request("/pay", "k-1")).await.status, work.runs()), (201, 1));
    assert!(send(&service, request("/pay", "k-1")).await.is_replay(), "what is recorded is replayed");
}

#[tokio::test]
async fn behind_a_fence_another_request_with_the_key_is_told_so_and_changes_nothing() {
    let (store, work) = (Fickle::default(), Work::default());
    let layer = layer(&store);
    let service = app(&work, layer.clone());
    layer.set_fence(Some(fence(&store)));
    send(&service, request("/pay", "k-1")).await;
    let at = the_record(&store).await.0;
    let event = Event::Resolve { resolution: Resolution::DidNotHappen, attempt: Some(0), since: None };
    layer.engine().apply(&at, &event, None).await.unwrap();
    let refused = send(&service, request("/status/200", "k-1")).await;
    assert_eq!((refused.status, refused.code().as_str(), work.runs()), (422, "key-reused", 0));
    assert_eq!(the_record(&store).await.1.record.state, State::Ready);
    assert_eq!(send(&service, request("/pay", "k-1")).await.code(), "outcome-unknown", "it stood to be run");
}

#[tokio::test]
async fn behind_a_fence_a_key_made_later_and_one_that_was_not_lost_pass() {
    let (store, work) = (Fickle::default(), Work::default());
    let layer = layer(&store);
    let service = app(&work, layer.clone());
    send(&service, request("/pay", "kept")).await;
    let fence = fence(&store);
    layer.set_fence(Some(fence));
    assert!(send(&service, request("/pay", "kept")).await.is_replay());
    let hex = format!("{:012x}", fence.restored_at.as_ms() + 600_000);
    let later = format!("{}-{}-7000-8000-000000000000", &hex[..8], &hex[8..]);
    assert_eq!(send(&service, request("/pay", &later)).await.status, 201);
    store.clock.step_ms(7_200_000);
    assert_eq!(send(&service, request("/pay", "stepped")).await.code(), "outcome-unknown", "by no clock that was set");
    store.clock.advance_ms(3_600_000);
    assert_eq!(send(&service, request("/pay", "other")).await.status, 201, "a fence falls by itself");
    assert_eq!(layer.settings().fence, None, "and costs nothing any more");
    layer.set_fence(Some(Fence { until: fence.until.plus_ms(3_600_000), ..fence }));
    assert_eq!(send(&service, request("/pay", "again")).await.code(), "outcome-unknown", "until another is raised");
    layer.set_fence(None);
    assert_eq!(send(&service, request("/pay", "another")).await.status, 201);
}
