//! The layer around an axum service: what happens once, what is replayed, what is refused.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::common::{self, Fickle, Work, app, layer, request, send};
use axum::body::Body;
use hapax::http::{InFlight, KeyPer, LabelSource, Mode, Pattern, Route, Then};
use hapax_core::record::{OnLapse, State};
use hapax_core::store::{Scan, Store};
use http::{Method, Request};

fn setup() -> (Fickle, Work) {
    (Fickle::default(), Work::default())
}

/// Sends a payment that goes on by itself.
fn begin(app: &axum::Router) -> tokio::task::JoinHandle<common::Got> {
    let app = app.clone();
    tokio::spawn(async move { send(&app, request("/pay", "k")).await })
}

fn route_on(path: &str, route: Route) -> (Pattern, Route) {
    (path.parse().unwrap(), route)
}

async fn only_state(store: &Fickle) -> State {
    let page = store.scan(&Scan::default()).await.unwrap();
    assert_eq!(page.entries.len(), 1);
    page.entries[0].stored.record.state
}

#[tokio::test]
async fn a_retry_gets_the_recorded_answer() {
    let (store, work) = setup();
    let app = app(&work, layer(&store));
    let first = send(&app, request("/pay", "k")).await;
    assert_eq!((first.status, first.body.as_str()), (201, "paid, run 1"));
    assert!(!first.is_replay());
    assert_eq!(first.header("set-cookie"), Some("a=1"), "the first answer is passed on unchanged");
    let retry = send(&app, request("/pay", "k")).await;
    assert_eq!((retry.status, retry.body.as_str()), (201, "paid, run 1"));
    assert!(retry.is_replay());
    assert!(retry.header("idempotency-expires").unwrap().ends_with("GMT"));
    assert_eq!(retry.headers.get_all("link").iter().count(), 2);
    assert_eq!((retry.header("set-cookie"), retry.header("date")), (None, None));
    assert_eq!(work.runs(), 1);
}

#[tokio::test]
async fn the_service_learns_the_attempt_and_is_asked_for_a_plain_encoding() {
    let (store, work) = setup();
    let app = app(&work, layer(&store));
    let mut forged = request("/pay", "k");
    forged.headers_mut().insert("idempotency-attempt", "99".parse().unwrap());
    forged.headers_mut().insert("accept-encoding", "gzip".parse().unwrap());
    let first = send(&app, forged).await;
    assert_eq!((first.header("x-attempt"), first.header("x-encoding")), (Some("1"), Some("identity")));
}

#[tokio::test]
async fn the_service_learns_the_id_of_the_record_whatever_the_client_says() {
    let (store, work) = setup();
    let mut seen = Vec::new();
    for route in [Route::new(), Route::new().with_key_per(KeyPer::Route)] {
        let app = app(&work, layer(&store).with_default_route(route));
        let mut forged = request("/pay", "k");
        forged.headers_mut().insert("idempotency-record", "ab".repeat(32).parse().unwrap());
        seen.push(send(&app, forged).await.header("x-record").unwrap().to_owned());
    }
    let page = store.scan(&Scan { limit: 10, ..Scan::default() }).await.unwrap();
    let mut kept: Vec<String> = page.entries.iter().map(|entry| entry.address.id().to_string()).collect();
    seen.sort_unstable();
    kept.sort_unstable();
    assert_eq!((seen.len(), &seen), (2, &kept), "that of the address, which differs by route");
}

#[tokio::test]
async fn of_many_at_once_one_runs() {
    let (store, work) = (Fickle::default(), Work::held());
    let app = app(&work, layer(&store));
    let first = begin(&app);
    work.has_begun().await;
    for _ in 0..50 {
        let busy = send(&app, request("/pay", "k")).await;
        assert_eq!((busy.status, busy.code().as_str()), (409, "in-progress"));
        assert_eq!((busy.header("retry-after"), busy.header("x-should-retry")), (Some("1"), Some("true")));
    }
    work.let_go();
    assert_eq!(first.await.unwrap().status, 201);
    assert_eq!(work.runs(), 1);
}

#[tokio::test]
async fn another_request_under_the_same_key_is_refused_even_while_the_first_runs() {
    let (store, work) = (Fickle::default(), Work::held());
    let app = app(&work, layer(&store));
    let first = begin(&app);
    work.has_begun().await;
    let other = request("/pay", "k").map(|_| Body::from(r#"{"amount":2}"#));
    let refused = send(&app, other).await;
    assert_eq!((refused.status, refused.code().as_str()), (422, "key-reused"));
    assert_eq!(refused.header("x-should-retry"), Some("false"));
    let elsewhere = send(&app, request("/status/200", "k")).await;
    assert_eq!(elsewhere.status, 422, "the path counts");
    work.let_go();
    first.await.unwrap();
    let reordered = request("/pay", "k").map(|_| Body::from(r#"{ "amount" : 1.0 }"#));
    assert!(send(&app, reordered).await.is_replay(), "another spelling is the same request");
    assert_eq!(work.runs(), 1);
}

#[tokio::test]
async fn callers_do_not_share_keys() {
    let (store, work) = setup();
    let app = app(&work, layer(&store));
    send(&app, request("/pay", "k")).await;
    let mut other = request("/pay", "k");
    other.headers_mut().insert("x-tenant", "bob".parse().unwrap());
    let got = send(&app, other).await;
    assert_eq!((got.is_replay(), got.body.as_str()), (false, "paid, run 2"));
    let mut nobody = request("/pay", "k");
    nobody.headers_mut().remove("x-tenant");
    let refused = send(&app, nobody).await;
    assert_eq!((refused.status, refused.code().as_str()), (400, "scope-missing"));
    assert_eq!(work.runs(), 2);
}

#[tokio::test]
async fn a_key_is_required_unless_the_route_says_otherwise() {
    let (store, work) = setup();
    let (pattern, route) = route_on("/status/{code}", Route::new().with_optional_key());
    let app = app(&work, layer(&store).with_route(&[Method::POST], pattern, route));
    let without = |path: &str| {
        let mut request = request(path, "k");
        request.headers_mut().remove("idempotency-key");
        request
    };
    let refused = send(&app, without("/pay")).await;
    assert_eq!((refused.status, refused.code().as_str()), (400, "key-missing"));
    assert_eq!(work.runs(), 0);
    assert_eq!(send(&app, without("/status/200")).await.status, 200);
    let mut bad = request("/pay", "k");
    bad.headers_mut().append("idempotency-key", "other".parse().unwrap());
    let refused = send(&app, bad).await;
    assert_eq!((refused.status, refused.code().as_str()), (400, "key-malformed"));
    let get = Request::get("/pay").body(Body::empty()).unwrap();
    assert_eq!(send(&app, get).await.status, 201, "other methods pass");
    assert_eq!(work.runs(), 2);
}

#[tokio::test]
async fn a_client_that_hangs_up_cancels_nothing() {
    let (store, work) = (Fickle::default(), Work::held());
    let layer = layer(&store);
    let app = app(&work, layer.clone());
    let first = begin(&app);
    work.has_begun().await;
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    assert_eq!(send(&app, request("/pay", "k")).await.code(), "in-progress", "nothing was freed");
    work.let_go();
    layer.drain().await;
    let retry = send(&app, request("/pay", "k")).await;
    assert_eq!((retry.is_replay(), retry.body.as_str(), work.runs()), (true, "paid, run 1", 1));
}

#[tokio::test]
async fn a_panic_is_unknown_unless_the_route_says_that_running_again_is_safe() {
    let (store, work) = setup();
    let app_of = |store: &Fickle, then| {
        let (pattern, route) = route_on("/panic", Route::new().with_on_panic(then));
        app(&work, layer(store).with_route(&[Method::POST], pattern, route))
    };
    let strict = app_of(&store, Then::Unknown);
    let first = send(&strict, request("/panic", "k")).await;
    assert_eq!((first.status, first.code().as_str()), (500, "outcome-unknown"));
    assert_eq!(send(&strict, request("/panic", "k")).await.code(), "outcome-unknown");
    assert_eq!((work.runs(), only_state(&store).await), (1, State::Unknown));
    let store = Fickle::default();
    let loose = app_of(&store, Then::Ready);
    send(&loose, request("/panic", "k")).await;
    assert_eq!(only_state(&store).await, State::Ready);
    send(&loose, request("/panic", "k")).await;
    assert_eq!(work.runs(), 3);
}

#[tokio::test]
async fn each_status_leaves_the_key_as_the_contract_says() {
    let cases = [
        (200, State::Completed),
        (404, State::Completed),
        (401, State::Ready),
        (408, State::Ready),
        (425, State::Ready),
        (429, State::Ready),
        (500, State::Ready),
        (503, State::Ready),
        (502, State::Unknown),
        (504, State::Unknown),
    ];
    for (status, state) in cases {
        let (store, work) = setup();
        let app = app(&work, layer(&store));
        let got = send(&app, request(&format!("/status/{status}"), "k")).await;
        assert_eq!((got.status, got.body.as_str()), (status, "run 1"), "the first caller gets the answer");
        assert_eq!(only_state(&store).await, state, "{status}");
        send(&app, request(&format!("/status/{status}"), "k")).await;
        assert_eq!(work.runs(), if state == State::Ready { 2 } else { 1 }, "{status}");
    }
}

#[tokio::test]
async fn a_stored_server_error_says_that_retrying_does_not_help() {
    let (store, work) = setup();
    let route = Route::new().with_on_server_error(Then::Completed);
    let app = app(&work, layer(&store).with_default_route(route));
    send(&app, request("/status/500", "k")).await;
    let retry = send(&app, request("/status/500", "k")).await;
    assert_eq!((retry.status, retry.is_replay(), retry.header("x-should-retry")), (500, true, Some("false")));
    assert_eq!(work.runs(), 1);
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_unknown() {
    let (store, work) = setup();
    let app = app(&work, layer(&store));
    let first = send(&app, request("/broken", "k")).await;
    assert_eq!((first.status, first.code().as_str()), (504, "outcome-unknown"));
    let retry = send(&app, request("/broken", "k")).await;
    assert_eq!((retry.status, retry.code().as_str(), work.runs()), (409, "outcome-unknown", 1));
}

#[tokio::test]
async fn an_answer_too_large_to_keep_goes_to_the_first_caller_only() {
    let (store, work) = setup();
    let route = Route::new().with_answer_bytes_max(1000);
    let app = app(&work, layer(&store).with_default_route(route));
    let first = send(&app, request("/large/100000", "k")).await;
    assert_eq!((first.status, first.body.len()), (200, 100_000));
    let retry = send(&app, request("/large/100000", "k")).await;
    assert_eq!((retry.status, retry.code().as_str(), work.runs()), (409, "answer-not-kept", 1));
    let exact = send(&app, request("/large/1000", "l")).await;
    assert_eq!(exact.body.len(), 1000);
    assert!(send(&app, request("/large/1000", "l")).await.is_replay());
}

#[tokio::test]
async fn a_request_too_large_is_refused_before_anything_runs() {
    let (store, work) = setup();
    let app = app(&work, layer(&store).with_default_route(Route::new().with_request_bytes_max(10)));
    let got = send(&app, request("/pay", "k").map(|_| Body::from("0123456789a"))).await;
    assert_eq!((got.status, got.code().as_str(), work.runs()), (413, "body-too-large", 0));
    assert!(store.scan(&Scan::default()).await.unwrap().entries.is_empty(), "and nothing is claimed");
    assert_eq!(send(&app, request("/pay", "k").map(|_| Body::from("0123456789"))).await.status, 201);
}

#[tokio::test(start_paused = true)]
async fn answers_at_hand_are_replayed_without_the_store_for_a_while() {
    let (store, work) = setup();
    let app = app(&work, layer(&store).with_answers_at_hand(Duration::from_secs(1)));
    assert!(!send(&app, request("/pay", "k")).await.is_replay());
    assert!(send(&app, request("/pay", "k")).await.is_replay(), "the store is asked, and what it gives is kept");
    store.down.store(true, Ordering::SeqCst);
    let retry = send(&app, request("/pay", "k")).await;
    assert_eq!((retry.is_replay(), retry.body.as_str()), (true, "paid, run 1"));
    let mut other = request("/pay", "k");
    *other.body_mut() = Body::from("another");
    assert_eq!(send(&app, other).await.status, 503, "what is no replay is for the store to say");
    assert_eq!(send(&app, request("/pay", "k-2")).await.status, 503);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(send(&app, request("/pay", "k")).await.status, 503, "no longer at hand");
    store.down.store(false, Ordering::SeqCst);
    assert!(send(&app, request("/pay", "k")).await.is_replay());
    assert_eq!(work.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_answer_at_hand_expires_with_its_record() {
    let (store, work) = setup();
    let route = Route::new().with_retention(Duration::from_secs(60));
    let layer = layer(&store).with_default_route(route).with_answers_at_hand(Duration::from_secs(120));
    let app = app(&work, layer);
    for _ in 0..2 {
        assert_eq!(send(&app, request("/pay", "k")).await.body, "paid, run 1");
    }
    tokio::time::advance(Duration::from_secs(61)).await;
    store.clock.advance_ms(61_000);
    assert_eq!(send(&app, request("/pay", "k")).await.body, "paid, run 2");
}

#[tokio::test]
async fn without_its_store_nothing_runs() {
    let (store, work) = setup();
    let app = app(&work, layer(&store));
    store.down.store(true, Ordering::SeqCst);
    let refused = send(&app, request("/pay", "k")).await;
    assert_eq!((refused.status, refused.code().as_str()), (503, "store-unavailable"));
    assert_eq!((refused.header("retry-after"), work.runs()), (Some("1"), 0));
    store.down.store(false, Ordering::SeqCst);
    assert_eq!(send(&app, request("/pay", "k")).await.status, 201);
}

/// Refused, because the claim was cut off; the store answers again, and the claim is not there yet.
async fn cut_off_claim(store: &Fickle, app: &axum::Router) {
    store.cut_next.store(true, Ordering::SeqCst);
    let refused = send(app, request("/pay", "k")).await;
    assert_eq!((refused.status, refused.code().as_str()), (503, "store-unavailable"));
    tokio::time::sleep(Duration::from_secs(60)).await;
    store.down.store(false, Ordering::SeqCst);
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_could_not_be_proved_is_given_back() {
    for late_ms in [0, 1_000, 3_000] {
        let (store, work) = setup();
        let layer = layer(&store);
        let app = app(&work, layer.clone());
        cut_off_claim(&store, &app).await;
        tokio::time::sleep(Duration::from_millis(late_ms)).await;
        store.let_arrive().await;
        assert_eq!(only_state(&store).await, State::Running, "by nobody");
        layer.drain().await;
        assert_eq!((only_state(&store).await, work.runs()), (State::Ready, 0), "{late_ms} ms late");
        let retry = send(&app, request("/pay", "k")).await;
        assert_eq!((retry.status, retry.header("x-attempt"), work.runs()), (201, Some("2"), 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_never_arrives_is_not_looked_for_for_ever() {
    let (store, work) = setup();
    let layer = layer(&store);
    let app = app(&work, layer.clone());
    cut_off_claim(&store, &app).await;
    let first = send(&app, request("/pay", "k")).await;
    layer.drain().await;
    let retry = send(&app, request("/pay", "k")).await;
    assert_eq!((retry.is_replay(), retry.body, work.runs()), (true, first.body, 1), "another's claim is left alone");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_could_not_be_recorded_is_recorded_later() {
    let (store, work) = (Fickle::default(), Work::held());
    let layer = layer(&store);
    let app = app(&work, layer.clone());
    let first = begin(&app);
    work.has_begun().await;
    store.down.store(true, Ordering::SeqCst);
    work.let_go();
    let first = first.await.unwrap();
    assert_eq!((first.status, first.code().as_str()), (409, "outcome-unknown"));
    store.down.store(false, Ordering::SeqCst);
    layer.drain().await;
    let retry = send(&app, request("/pay", "k")).await;
    assert_eq!((retry.is_replay(), retry.body.as_str(), work.runs()), (true, "paid, run 1", 1));
}

#[tokio::test(start_paused = true)]
async fn a_slow_attempt_keeps_its_lease() {
    let (store, work) = (Fickle::default(), Work::held());
    let route = Route::new().with_lease(Duration::from_secs(3)).with_on_lapse(OnLapse::Rerun);
    let app = app(&work, layer(&store).with_default_route(route));
    let first = begin(&app);
    work.has_begun().await;
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        store.clock.advance_ms(1000);
        assert_eq!(send(&app, request("/pay", "k")).await.code(), "in-progress");
    }
    work.let_go();
    assert_eq!((first.await.unwrap().status, work.runs()), (201, 1));
}

#[tokio::test(start_paused = true)]
async fn a_retry_may_wait_for_the_answer() {
    let (store, work) = (Fickle::default(), Work::held());
    let (pattern, route) = route_on("/pay", Route::new().with_in_flight(InFlight::Wait));
    let app = app(&work, layer(&store).with_route(&[Method::POST], pattern, route));
    let ask = |app: &axum::Router| {
        let app = app.clone();
        tokio::spawn(async move { send(&app, request("/pay", "k")).await })
    };
    let first = ask(&app);
    work.has_begun().await;
    let waiting: Vec<_> = (0..20).map(|_| ask(&app)).collect();
    let late = send(&app, request("/pay", "k")).await;
    assert_eq!(late.code(), "in-progress", "after ten seconds the wait is over");
    let waiting_again: Vec<_> = (0..20).map(|_| ask(&app)).collect();
    tokio::time::sleep(Duration::from_secs(1)).await;
    work.let_go();
    assert_eq!(first.await.unwrap().status, 201);
    for waited in waiting_again {
        let waited = waited.await.unwrap();
        assert_eq!((waited.is_replay(), waited.body.as_str()), (true, "paid, run 1"));
    }
    for waited in waiting {
        assert_eq!(waited.await.unwrap().code(), "in-progress");
    }
    assert_eq!(work.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_client_may_ask_for_the_wait_and_only_a_hundred_may_wait() {
    let (store, work) = (Fickle::default(), Work::held());
    let app = app(&work, layer(&store).with_default_route(Route::new().with_wait_max(Duration::from_secs(60))));
    let ask = |app: &axum::Router, prefer: &'static str| {
        let app = app.clone();
        let mut request = request("/pay", "k");
        request.headers_mut().insert("prefer", prefer.parse().unwrap());
        tokio::spawn(async move { send(&app, request).await })
    };
    let first = ask(&app, "respond-async");
    work.has_begun().await;
    let waiting: Vec<_> = (0..100).map(|_| ask(&app, "respond-async, wait=30")).collect();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(ask(&app, "wait=30").await.unwrap().code(), "in-progress", "the hundred and first");
    work.let_go();
    assert_eq!(first.await.unwrap().status, 201);
    for waited in waiting {
        assert!(waited.await.unwrap().is_replay());
    }
}

#[tokio::test]
async fn a_route_may_answer_202_while_the_first_runs() {
    let (store, work) = (Fickle::default(), Work::held());
    let app = app(&work, layer(&store).with_default_route(Route::new().with_in_flight(InFlight::Accepted)));
    let first = begin(&app);
    work.has_begun().await;
    let busy = send(&app, request("/pay", "k")).await;
    assert_eq!((busy.status, busy.header("retry-after")), (202, Some("1")));
    work.let_go();
    first.await.unwrap();
}

#[tokio::test]
async fn a_key_may_be_per_route() {
    let (store, work) = setup();
    let app = app(&work, layer(&store).with_default_route(Route::new().with_key_per(KeyPer::Route)));
    assert_eq!(send(&app, request("/pay", "k")).await.status, 201);
    assert_eq!(send(&app, request("/status/200", "k")).await.status, 200, "another path, another key");
    assert!(send(&app, request("/pay", "k")).await.is_replay());
    assert_eq!(work.runs(), 2);
}

#[tokio::test]
async fn expired_answers_are_forgotten_or_gone() {
    for (keep, status) in [(None, 201), (Some(Duration::from_secs(60)), 410)] {
        let (store, work) = setup();
        let mut route = Route::new().with_retention(Duration::from_secs(60));
        if let Some(keep) = keep {
            route = route.with_keep_expired(keep);
        }
        let app = app(&work, layer(&store).with_default_route(route));
        send(&app, request("/pay", "k")).await;
        store.clock.advance_ms(61_000);
        let got = send(&app, request("/pay", "k")).await;
        assert_eq!((got.status, got.is_replay()), (status, false));
    }
}

#[tokio::test]
async fn a_503_with_retry_after_is_not_run_again_before_that() {
    let (store, work) = setup();
    let app = axum::Router::new()
        .route(
            "/busy",
            axum::routing::post({
                let runs = work.runs.clone();
                move || async move {
                    runs.fetch_add(1, Ordering::SeqCst);
                    (http::StatusCode::SERVICE_UNAVAILABLE, [("retry-after", "5")], "later")
                }
            }),
        )
        .layer(layer(&store));
    assert_eq!(send(&app, request("/busy", "k")).await.status, 503);
    let soon = send(&app, request("/busy", "k")).await;
    assert_eq!((soon.status, soon.code().as_str(), soon.header("retry-after")), (409, "in-progress", Some("5")));
    store.clock.advance_ms(5_000);
    assert_eq!(send(&app, request("/busy", "k")).await.status, 503);
    assert_eq!(work.runs(), 2);
}

#[tokio::test]
async fn what_is_only_observed_is_neither_refused_nor_replayed() {
    let (store, work) = setup();
    let app = app(&work, layer(&store).with_default_route(Route::new().with_mode(Mode::Observe)));
    for run in 1..=3 {
        let got = send(&app, request("/pay", "k")).await;
        assert_eq!((got.status, got.is_replay(), got.body), (201, false, format!("paid, run {run}")));
    }
    let mut without = request("/pay", "k");
    without.headers_mut().remove("idempotency-key");
    assert_eq!(send(&app, without).await.status, 201);
    store.down.store(true, Ordering::SeqCst);
    assert_eq!(send(&app, request("/pay", "l")).await.status, 201, "not even without a store");
}

#[tokio::test]
async fn a_long_cause_of_doubt_does_not_keep_the_doubt_from_being_recorded() {
    let (store, work) = setup();
    let runs = work.runs.clone();
    let handler = move || async move {
        runs.fetch_add(1, Ordering::SeqCst);
        let mut response = http::Response::new(Body::from("ok"));
        let why = "a cause that is told at such length that no record would keep it as the word that it wants";
        response.extensions_mut().insert(hapax::http::Happened::Unknown { why });
        response
    };
    let app = axum::Router::new().route("/pay", axum::routing::post(handler)).layer(layer(&store));
    assert_eq!(send(&app, request("/pay", "k")).await.body, "ok");
    assert_eq!(only_state(&store).await, State::Unknown, "and it is not left running");
    assert_eq!(send(&app, request("/pay", "k")).await.code(), "outcome-unknown");
    assert_eq!(work.runs(), 1);
}

#[tokio::test]
async fn labels_are_recorded_with_the_claim() {
    let (store, work) = setup();
    let label = LabelSource { name: "amount".into(), in_answer: false, pointer: "/amount".into() };
    let app = app(&work, layer(&store).with_default_route(Route::new().with_labels(vec![label])));
    send(&app, request("/pay", "k")).await;
    let page = store.scan(&Scan::default()).await.unwrap();
    let labels = &page.entries[0].stored.record.labels;
    let label = labels.iter().find(|label| label.name == "amount").unwrap();
    assert_eq!(label.value, "1");
}

#[tokio::test]
async fn a_method_in_lower_case_is_protected_and_forwarded_as_it_came() {
    for route in [Route::new(), Route::new().with_key_per(KeyPer::Route)] {
        let (store, work) = setup();
        let app = app(&work, layer(&store).with_default_route(route));
        let spelled = |method: &str| {
            let mut request = request("/pay", "k");
            *request.method_mut() = Method::from_bytes(method.as_bytes()).unwrap();
            request
        };
        let mut without_key = spelled("post");
        without_key.headers_mut().remove("idempotency-key");
        assert_eq!(send(&app, without_key).await.code(), "key-missing");
        assert_eq!(send(&app, spelled("post")).await.header("x-method"), Some("post"));
        for method in ["post", "POST", "Post"] {
            assert!(send(&app, spelled(method)).await.is_replay(), "{method}");
        }
        assert_eq!(work.runs(), 1);
    }
}

#[tokio::test]
async fn an_override_that_names_no_method_of_a_route_leaves_a_request_protected() {
    let (store, work) = setup();
    let app = app(&work, layer(&store));
    for asked in ["FOO", "LINK", "CONNECT", "GET"] {
        let overridden = || {
            let mut request = request("/pay", asked);
            request.headers_mut().insert("x-http-method-override", asked.parse().unwrap());
            request
        };
        assert!(!send(&app, overridden()).await.is_replay());
        assert!(send(&app, overridden()).await.is_replay(), "{asked}");
    }
    assert_eq!(work.runs(), 4);
}

#[tokio::test]
async fn every_spelling_of_a_path_has_the_same_key_per_route() {
    let (store, work) = setup();
    let count = |axum::extract::State(work): axum::extract::State<Work>| async move {
        work.runs.fetch_add(1, Ordering::SeqCst);
    };
    let layer = layer(&store).with_default_route(Route::new().with_key_per(KeyPer::Route));
    let app = axum::Router::new().fallback(count).with_state(work.clone()).layer(layer);
    assert_eq!(send(&app, request("/kp", "k")).await.status, 200);
    for path in ["/%6bp", "//kp", "/kp/", "/./kp", "/x/../kp", "/kp;v=1", "/x/..%2Fkp"] {
        let got = send(&app, request(path, "k")).await;
        assert_eq!((got.status, got.code().as_str()), (422, "key-reused"), "{path}");
    }
    assert!(send(&app, request("/kp", "k")).await.is_replay());
    assert_eq!(work.runs(), 1);
    assert_eq!(send(&app, request("/kp/1", "k")).await.status, 200, "another path has keys of its own");
    assert_eq!(work.runs(), 2);
}
