//! What stands around a claim: replay checks, limits of new keys, the breaker, and what a retry is told that comes early.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{Fickle, Got, Work, app, by_tenant, layer, request, send};
use axum::Router;
use axum::body::Body;
use hapax::http::{
    Asked, Begun, Client, Ended, Guard, IdempotencyLayer, InFlight, Mode, NewKey, NoScope, Problem, Refusal, Report,
    Route, Scope, Scopes, Wait,
};
use hapax_core::address::Address;
use hapax_core::record::{Record, State, Version};
use hapax_core::store::{ErrorKind, Health, Page, Scan, Seen, Store, StoreError, Swap};
use http::request::Parts;

/// Alice's payment with that preference, sent by itself.
fn ask(app: &Router, prefer: &'static str) -> tokio::task::JoinHandle<Got> {
    let (app, mut request) = (app.clone(), request("/pay", "k"));
    request.headers_mut().insert("prefer", prefer.parse().unwrap());
    tokio::spawn(async move { send(&app, request).await })
}

/// Says whose key it is, and whether the answer may still be seen.
#[derive(Clone, Default)]
struct Doorman {
    refuses: Arc<AtomicBool>,
    is_away: Arc<AtomicBool>,
    asked: Arc<AtomicU32>,
}

impl Scopes for Doorman {
    fn of<'a>(&'a self, parts: &'a Parts) -> Asked<'a, Scope> {
        Box::pin(std::future::ready(by_tenant(parts)))
    }

    fn may_replay<'a>(&'a self, parts: &'a Parts, caller: &'a Scope) -> Asked<'a, bool> {
        assert_eq!((caller.as_str(), &parts.headers["x-tenant"]), ("alice", &"alice".parse().unwrap()));
        self.asked.fetch_add(1, Ordering::SeqCst);
        let answer = match self.is_away.load(Ordering::SeqCst) {
            true => Err(NoScope::Unavailable("the doorman is away; try again".into())),
            false => Ok(!self.refuses.load(Ordering::SeqCst)),
        };
        Box::pin(std::future::ready(answer))
    }
}

/// Somebody is asked before each replay.
fn checked(mut route: Route) -> Route {
    route.replay_check = true;
    route
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_an_answer_is_asked_about_like_everybody_else() {
    for in_flight in [InFlight::Wait, InFlight::Conflict, InFlight::Accepted] {
        let (store, work, doorman) = (Fickle::default(), Work::held(), Doorman::default());
        let route = checked(Route::new().with_in_flight(in_flight));
        let app = app(&work, IdempotencyLayer::with_scopes(store, doorman.clone()).with_default_route(route));
        let first = ask(&app, "wait=5");
        work.has_begun().await;
        let waiting: Vec<_> = (0..3).map(|_| ask(&app, "wait=5")).collect();
        tokio::time::sleep(Duration::from_secs(1)).await;
        doorman.refuses.store(true, Ordering::SeqCst);
        work.let_go();
        assert_eq!(first.await.unwrap().status, 201, "the first answer is no replay");
        for waited in waiting {
            let waited = waited.await.unwrap();
            assert_eq!((waited.status, waited.code().as_str()), (403, "replay-refused"), "{in_flight:?}");
        }
        assert_eq!(doorman.asked.load(Ordering::SeqCst), 3);
    }
}

#[tokio::test(start_paused = true)]
async fn who_waits_gets_no_answer_that_nobody_can_be_asked_about() {
    let (store, work, doorman) = (Fickle::default(), Work::held(), Doorman::default());
    let route = checked(Route::new());
    let app = app(&work, IdempotencyLayer::with_scopes(store, doorman.clone()).with_default_route(route));
    let first = ask(&app, "wait=5");
    work.has_begun().await;
    let waiting = ask(&app, "wait=5");
    tokio::time::sleep(Duration::from_secs(1)).await;
    doorman.is_away.store(true, Ordering::SeqCst);
    work.let_go();
    first.await.unwrap();
    assert_eq!(waiting.await.unwrap().code(), "scope-unavailable");
    doorman.is_away.store(false, Ordering::SeqCst);
    assert!(send(&app, request("/pay", "k")).await.is_replay());
}

/// A store that fails in one way.
struct Failing(ErrorKind);

impl Failing {
    fn fail<T>(&self, op: &'static str) -> Result<T, StoreError> {
        Err(StoreError::new(op, self.0, "failed by the test"))
    }
}

impl Store for Failing {
    async fn swap(&self, _: &Address, _: Option<Version>, _: &Record) -> Result<Swap, StoreError> {
        self.fail("swap")
    }
    async fn get(&self, _: &Address) -> Result<Seen, StoreError> {
        self.fail("get")
    }
    async fn scan(&self, _: &Scan) -> Result<Page, StoreError> {
        self.fail("scan")
    }
    async fn reap(&self, _: u32) -> Result<u32, StoreError> {
        self.fail("reap")
    }
    async fn health(&self) -> Result<Health, StoreError> {
        self.fail("health")
    }
}

/// Remembers what it is told of the store, and counts the new keys that it is asked about.
#[derive(Clone, Default)]
struct Remembering {
    told: Arc<Mutex<Vec<bool>>>,
    new_keys: Arc<AtomicU32>,
    /// No new key is allowed.
    is_full: Arc<AtomicBool>,
    /// There is no room for one; how often somebody asked.
    has_no_room: Arc<AtomicBool>,
    asked: Arc<AtomicU32>,
    /// How attempts ended; those that began are counted.
    began: Arc<AtomicU32>,
    ended: Arc<Mutex<Vec<Ended>>>,
}

impl Guard for Remembering {
    fn store(&self) -> Result<Option<Report>, Wait> {
        let told = Arc::clone(&self.told);
        Ok(Some(Box::new(move |answered| told.lock().unwrap().push(answered))))
    }

    fn room_for(&self, new: &NewKey<'_>) -> Result<(), Refusal> {
        assert_eq!(new.client, None, "nobody has told the layer");
        self.asked.fetch_add(1, Ordering::SeqCst);
        match self.has_no_room.load(Ordering::SeqCst) {
            true => Err(Refusal::new(Problem::StoreFull, "full").with_retry_after(Duration::from_secs(4))),
            false => Ok(()),
        }
    }

    fn began(&self, _: &Scope, _: Option<Client>) -> Begun {
        self.began.fetch_add(1, Ordering::SeqCst);
        Begun(7)
    }

    fn ended(&self, _: &Scope, _: Option<Client>, begun: Begun, how: Ended) {
        assert_eq!(begun, Begun(7));
        self.ended.lock().unwrap().push(how);
    }

    fn new_key(&self, _: &Scope, _: &Route) -> Result<(), Wait> {
        self.new_keys.fetch_add(1, Ordering::SeqCst);
        match self.is_full.load(Ordering::SeqCst) {
            true => Err(Duration::from_secs(3)),
            false => Ok(()),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_damaged_record_is_an_answer_and_only_silence_opens_the_breaker() {
    for limit in [None, Some(100)] {
        for (kind, answered) in [
            (ErrorKind::Damaged, true),
            (ErrorKind::Invalid, true),
            (ErrorKind::Unavailable, false),
            (ErrorKind::Ambiguous, false),
            (ErrorKind::Unsuitable, false),
        ] {
            let guard = Remembering::default();
            let mut route = Route::new();
            route.new_keys_per_second = limit;
            let layer = IdempotencyLayer::new(Failing(kind), by_tenant).with_default_route(route);
            let app = Router::new()
                .route("/pay", axum::routing::post(|| async { "paid" }))
                .layer(layer.with_guard(guard.clone()));
            let refused = send(&app, request("/pay", "k")).await;
            assert_eq!((refused.status, refused.code().as_str()), (503, "store-unavailable"), "{kind:?}");
            assert_eq!(*guard.told.lock().unwrap(), [answered], "{kind:?}, limit {limit:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_answered_too_late_is_refused_in_time_and_given_back() {
    let (store, work, guard) = (Fickle::default(), Work::default(), Remembering::default());
    let patience = Duration::from_secs(5);
    let app = app(&work, layer(&store).with_store_timeout(patience).with_guard(guard.clone()));
    *store.pause_next.lock().unwrap() = Some(Duration::from_secs(60));
    let began = tokio::time::Instant::now();
    let refused = send(&app, request("/pay", "k")).await;
    assert_eq!((refused.status, refused.code().as_str()), (503, "store-unavailable"));
    assert_eq!(began.elapsed().as_secs(), patience.as_secs());
    assert_eq!(*guard.told.lock().unwrap(), [false], "the breaker hears of it when the client does");
    assert_eq!(send(&app, request("/pay", "k")).await.code(), "in-progress", "the claim is in the store");
    tokio::time::sleep(Duration::from_secs(56)).await;
    assert_eq!((send(&app, request("/pay", "k")).await.status, work.runs()), (201, 1), "nothing ran for it");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_recorded_too_late_is_said_to_be_unknown_and_replayed_later() {
    let (store, work) = (Fickle::default(), Work::held());
    let app = app(&work, layer(&store).with_store_timeout(Duration::from_secs(5)));
    let first = ask(&app, "");
    work.has_begun().await;
    *store.pause_next.lock().unwrap() = Some(Duration::from_secs(60));
    let began = tokio::time::Instant::now();
    work.let_go();
    assert_eq!(first.await.unwrap().code(), "outcome-unknown");
    assert_eq!(began.elapsed().as_secs(), 5);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(send(&app, request("/pay", "k")).await.is_replay());
    assert_eq!(work.runs(), 1);
}

fn limited(guard: &Remembering, store: &Fickle, work: &Work) -> Router {
    let mut route = Route::new().with_retention(Duration::from_secs(60));
    route.new_keys_per_second = Some(100);
    app(work, layer(store).with_default_route(route).with_guard(guard.clone()))
}

#[tokio::test]
async fn only_new_keys_are_charged() {
    let (store, work, guard) = (Fickle::default(), Work::default(), Remembering::default());
    let app = limited(&guard, &store, &work);
    let charged = || guard.new_keys.load(Ordering::SeqCst);
    assert_eq!((send(&app, request("/pay", "k")).await.status, charged()), (201, 1));
    for _ in 0..5 {
        assert!(send(&app, request("/pay", "k")).await.is_replay());
    }
    let other = request("/pay", "k").map(|_| Body::from("other"));
    assert_eq!(send(&app, other).await.code(), "key-reused");
    assert_eq!(charged(), 1, "retries and mismatches of a known key");
    for run in 1..=3 {
        assert_eq!(send(&app, request("/status/503", "again")).await.body, format!("run {}", run + 1));
    }
    assert_eq!(charged(), 2, "a key that runs again is known");
    store.clock.advance_ms(61_000);
    assert_eq!((send(&app, request("/pay", "k")).await.is_replay(), charged()), (false, 3), "expired: a new one");
    assert_eq!(*guard.told.lock().unwrap(), [true; 11]);
}

#[tokio::test]
async fn without_room_new_keys_are_refused_and_known_ones_go_on() {
    let (store, work, guard) = (Fickle::default(), Work::default(), Remembering::default());
    // Where the route limits new keys, and where it does not.
    let apps = [limited(&guard, &store, &work), app(&work, layer(&store).with_guard(guard.clone()))];
    send(&apps[0], request("/pay", "k")).await;
    for app in &apps {
        guard.has_no_room.store(true, Ordering::SeqCst);
        let charged = guard.new_keys.load(Ordering::SeqCst);
        let refused = send(app, request("/pay", "new")).await;
        assert_eq!((refused.status, refused.code().as_str()), (503, "store-full"));
        assert_eq!(refused.header("retry-after"), Some("4"));
        assert_eq!(guard.new_keys.load(Ordering::SeqCst), charged, "and no allowance is used up");
        assert!(send(app, request("/pay", "k")).await.is_replay());
    }
    assert_eq!(work.runs(), 1);
    assert_eq!(store.scan(&Scan { limit: 9, ..Scan::default() }).await.unwrap().entries.len(), 1);
}

#[tokio::test]
async fn without_room_new_keys_are_not_even_observed_and_known_ones_are() {
    let (store, work, guard) = (Fickle::default(), Work::default(), Remembering::default());
    let observed = layer(&store).with_default_route(Route::new().with_mode(Mode::Observe));
    let app = app(&work, observed.with_guard(guard.clone()));
    let completed = async || -> Vec<String> {
        let scan = Scan { states: vec![State::Completed], limit: 9, ..Scan::default() };
        store.scan(&scan).await.unwrap().entries.iter().map(|entry| entry.address.key().as_str().to_owned()).collect()
    };
    guard.has_no_room.store(true, Ordering::SeqCst);
    assert_eq!(send(&app, request("/pay", "new")).await.status, 201, "nothing is refused");
    while guard.asked.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    guard.has_no_room.store(false, Ordering::SeqCst);
    assert_eq!(send(&app, request("/pay", "known")).await.status, 201);
    while completed().await != ["known".to_owned()] {
        assert!(completed().await.len() < 2, "{:?}", completed().await);
        tokio::task::yield_now().await;
    }
    assert_eq!((guard.began.load(Ordering::SeqCst), guard.ended.lock().unwrap().len()), (1, 1));
}

#[tokio::test]
async fn the_guard_is_told_of_every_attempt_how_it_ended() {
    let (store, work, guard) = (Fickle::default(), Work::default(), Remembering::default());
    let app = app(&work, layer(&store).with_guard(guard.clone()));
    for (status, key) in [(201, "a"), (401, "b"), (403, "c"), (503, "d"), (502, "e")] {
        send(&app, request(&format!("/status/{status}"), key)).await;
        send(&app, request(&format!("/status/{status}"), key)).await;
    }
    let expected = [
        Ended::Recorded(201),
        // Run twice, because nothing was stored.
        Ended::TurnedAway,
        Ended::TurnedAway,
        Ended::Recorded(403),
        Ended::Free,
        Ended::Free,
        Ended::Unknown,
    ];
    assert_eq!(*guard.ended.lock().unwrap(), expected);
    assert_eq!(guard.began.load(Ordering::SeqCst) as usize, expected.len());
}

#[tokio::test]
async fn what_a_refused_credential_left_behind_is_forgotten_after_minutes_and_answers_are_not() {
    let (store, work) = (Fickle::default(), Work::default());
    let app = app(&work, layer(&store));
    for path in ["/pay", "/status/401", "/status/503"] {
        send(&app, request(path, &format!("of{path}"))).await;
    }
    let records = async || store.scan(&Scan { limit: 9, ..Scan::default() }).await.unwrap().entries.len();
    store.clock.advance_ms(599_000);
    assert_eq!((store.reap(9).await.unwrap(), records().await), (0, 3));
    store.clock.advance_ms(2_000);
    assert_eq!((store.reap(9).await.unwrap(), records().await), (1, 2));
    let other = request("/status/401", "of/status/401").map(|_| Body::from("other"));
    assert_eq!(send(&app, other).await.status, 401, "free, whatever is asked now");
    assert!(send(&app, request("/pay", "of/pay")).await.is_replay());
}

#[tokio::test]
async fn a_caller_over_its_limit_claims_nothing_and_still_gets_its_answers() {
    let (store, work, guard) = (Fickle::default(), Work::default(), Remembering::default());
    let app = limited(&guard, &store, &work);
    send(&app, request("/pay", "k")).await;
    send(&app, request("/status/503", "again")).await;
    guard.is_full.store(true, Ordering::SeqCst);
    let refused = send(&app, request("/pay", "new")).await;
    assert_eq!((refused.status, refused.code().as_str()), (429, "too-many"));
    assert_eq!((refused.header("retry-after"), work.runs()), (Some("3"), 2));
    assert_eq!(
        store.scan(&Scan { limit: 9, ..Scan::default() }).await.unwrap().entries.len(),
        2,
        "nothing was claimed"
    );
    assert!(send(&app, request("/pay", "k")).await.is_replay());
    assert_eq!(send(&app, request("/status/503", "again")).await.body, "run 3");
    store.clock.advance_ms(61_000);
    let expired = send(&app, request("/pay", "k")).await;
    assert_eq!((expired.code().as_str(), work.runs()), ("too-many", 3), "an expired key is a new one");
}

#[tokio::test]
async fn a_guard_with_rules_of_its_own_spares_known_keys() {
    let (store, work, guard) = (Fickle::default(), Work::default(), Remembering::default());
    let app = app(&work, layer(&store).with_guard(guard.clone()));
    assert_eq!(send(&app, request("/pay", "k")).await.status, 201);
    guard.is_full.store(true, Ordering::SeqCst);
    assert!(send(&app, request("/pay", "k")).await.is_replay());
    assert_eq!(send(&app, request("/pay", "l")).await.code(), "too-many");
}

fn detail(got: &Got) -> String {
    let document: serde_json::Value = serde_json::from_str(&got.body).unwrap();
    document["detail"].as_str().unwrap().to_owned()
}

/// A service that asks to come back after five seconds.
fn busy(store: &Fickle, work: &Work, route: Route) -> Router {
    let runs = Arc::clone(&work.runs);
    let handler = move || async move {
        runs.fetch_add(1, Ordering::SeqCst);
        (http::StatusCode::SERVICE_UNAVAILABLE, [("retry-after", "5")], "later")
    };
    Router::new().route("/pay", axum::routing::post(handler)).layer(layer(store).with_default_route(route))
}

#[tokio::test]
async fn a_retry_before_its_time_is_told_that_nothing_runs() {
    for in_flight in [InFlight::Conflict, InFlight::Wait, InFlight::Accepted] {
        let (store, work) = (Fickle::default(), Work::default());
        let app = busy(&store, &work, Route::new().with_in_flight(in_flight));
        assert_eq!(send(&app, request("/pay", "k")).await.status, 503);
        for (waited_ms, left) in [(0, "5"), (1_500, "4"), (3_400, "1")] {
            store.clock.advance_ms(waited_ms);
            let soon = send(&app, request("/pay", "k")).await;
            assert_eq!((soon.status, soon.code().as_str()), (409, "in-progress"));
            assert_eq!((soon.header("retry-after"), soon.header("x-should-retry")), (Some(left), Some("true")));
            assert!(detail(&soon).starts_with("nothing runs under this key now"), "{}", detail(&soon));
        }
        store.clock.advance_ms(100);
        assert_eq!((send(&app, request("/pay", "k")).await.status, work.runs()), (503, 2));
    }
}

#[tokio::test(start_paused = true)]
async fn who_waited_for_an_attempt_that_left_the_key_free_is_told_so() {
    let (store, work) = (Fickle::default(), Work::held());
    let app = app(&work, layer(&store));
    let to = |prefer: &'static str| {
        let (app, mut request) = (app.clone(), request("/status/503", "k"));
        request.headers_mut().insert("prefer", prefer.parse().unwrap());
        tokio::spawn(async move { send(&app, request).await })
    };
    let first = to("wait=0");
    work.has_begun().await;
    let waiting = to("wait=5");
    tokio::time::sleep(Duration::from_secs(1)).await;
    work.let_go();
    assert_eq!(first.await.unwrap().status, 503);
    let waited = waiting.await.unwrap();
    assert_eq!((waited.code().as_str(), waited.header("retry-after")), ("in-progress", Some("1")));
    assert!(detail(&waited).starts_with("nothing runs under this key now"), "{}", detail(&waited));
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_is_over_ends_as_the_route_says() {
    for (in_flight, status) in [(InFlight::Accepted, 202), (InFlight::Conflict, 409), (InFlight::Wait, 409)] {
        let (store, work) = (Fickle::default(), Work::held());
        let app = app(&work, layer(&store).with_default_route(Route::new().with_in_flight(in_flight)));
        let first = ask(&app, "respond-async");
        work.has_begun().await;
        for prefer in ["respond-async, wait=1", "wait=1"] {
            let begun = tokio::time::Instant::now();
            let over = ask(&app, prefer).await.unwrap();
            assert_eq!((over.status, over.header("retry-after")), (status, Some("1")), "{in_flight:?}, {prefer}");
            assert!(begun.elapsed() >= Duration::from_secs(1));
        }
        let waiting = ask(&app, "respond-async, wait=5");
        tokio::time::sleep(Duration::from_secs(1)).await;
        work.let_go();
        assert_eq!(first.await.unwrap().status, 201);
        assert!(waiting.await.unwrap().is_replay(), "what comes in time is the answer");
    }
}
