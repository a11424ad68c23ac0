//! What passes through the layer without being protected: what it is told, what it may say, what is only observed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::common::{Fickle, Got, Work, app, layer, request, send};
use axum::Router;
use axum::body::Body;
use axum::response::IntoResponse;
use axum::routing::any;
use hapax::http::{BodyTimedOut, Cors, Happened, IdempotencyLayer, Mode, Problem, Refusal, Route};
use hapax_core::record::{Record, State};
use hapax_core::store::{Scan, Store};
use http::Request;
use tower::ServiceExt;

/// The same request, with an attempt and a record that only the layer may speak of.
fn forged(mut request: Request<Body>) -> Request<Body> {
    request.headers_mut().append("idempotency-attempt", "98".parse().unwrap());
    request.headers_mut().append("idempotency-attempt", "99".parse().unwrap());
    request.headers_mut().append("idempotency-record", "98".parse().unwrap());
    request.headers_mut().append("idempotency-record", "99".parse().unwrap());
    request
}

fn without_key(mut request: Request<Body>) -> Request<Body> {
    request.headers_mut().remove("idempotency-key");
    request
}

#[tokio::test]
async fn nobody_but_the_layer_says_which_attempt_it_is() {
    let (store, work) = (Fickle::default(), Work::default());
    let routed = |route: Route| app(&work, layer(&store).with_default_route(route));
    let observed = || Route::new().with_mode(Mode::Observe);
    let get = Request::get("/pay").body(Body::empty()).unwrap();
    for (case, app, request) in [
        ("a safe method", routed(Route::new()), get),
        ("an unprotected route", routed(Route::unprotected()), request("/pay", "k")),
        ("no key", routed(Route::new().with_optional_key()), without_key(request("/pay", "k"))),
        ("observed", routed(observed()), request("/pay", "k")),
        ("observed, no key", routed(observed()), without_key(request("/pay", "k"))),
    ] {
        let got = send(&app, forged(request)).await;
        assert_eq!((got.status, got.header("x-attempt")), (201, Some("none")), "{case}");
        assert_eq!(got.header("x-record"), Some("none"), "{case}");
    }
}

/// A service that refuses by itself, as a proxy does that reaches nobody, and says things to pages of its own.
fn refusing(layer: IdempotencyLayer<Fickle>) -> Router {
    let refuse = || async {
        let refusal = Refusal::new(Problem::UpstreamUnreachable, "nobody is there; try again");
        let mut response = refusal.into_response(None).map(Body::from);
        response.extensions_mut().insert(Happened::No { why: "refused" });
        response
    };
    let pay = || async {
        let fields = [
            ("access-control-allow-origin", "https://pages.example"),
            ("access-control-allow-credentials", "true"),
            ("access-control-expose-headers", "X-Total"),
        ];
        (fields, "paid")
    };
    Router::new().route("/unreachable", any(refuse)).route("/pay", any(pay)).layer(layer)
}

fn from_shop(mut request: Request<Body>) -> Request<Body> {
    request.headers_mut().insert("origin", "https://shop.example".parse().unwrap());
    request
}

fn allowed(got: &Got) -> [Option<&str>; 3] {
    ["allow-origin", "allow-credentials", "expose-headers"].map(|what| got.header(&format!("access-control-{what}")))
}

fn open_to_shop(store: &Fickle, route: Route) -> Router {
    let cors = Cors { origins: vec!["https://shop.example".into()], ..Cors::default() };
    refusing(layer(store).with_default_route(route).with_cors(cors))
}

#[tokio::test]
async fn a_page_may_read_what_is_refused_behind_the_layer() {
    let get = || Request::get("/unreachable").body(Body::empty()).unwrap();
    for (case, route, request) in [
        ("protected", Route::new(), request("/unreachable", "k")),
        ("a safe method", Route::new(), get()),
        ("an unprotected route", Route::unprotected(), request("/unreachable", "k")),
        ("no key", Route::new().with_optional_key(), without_key(request("/unreachable", "k"))),
        ("observed", Route::new().with_mode(Mode::Observe), request("/unreachable", "k")),
    ] {
        let app = open_to_shop(&Fickle::default(), route);
        let got = send(&app, from_shop(request)).await;
        assert_eq!((got.status, got.code().as_str()), (502, "upstream-unreachable"), "{case}");
        assert_eq!(allowed(&got)[..2], [Some("https://shop.example"), None], "{case}");
    }
    let closed = refusing(layer(&Fickle::default()));
    let got = send(&closed, from_shop(request("/unreachable", "k"))).await;
    assert_eq!(allowed(&got), [None; 3], "nothing is configured");
}

#[tokio::test]
async fn a_replay_has_the_origins_of_the_configuration_and_shows_what_the_service_shows() {
    let app = open_to_shop(&Fickle::default(), Route::new());
    let first = send(&app, from_shop(request("/pay", "k"))).await;
    let said = [Some("https://pages.example"), Some("true"), Some("X-Total")];
    assert_eq!(allowed(&first), said, "the service's own answer is passed on unchanged");
    let replay = send(&app, from_shop(request("/pay", "k"))).await;
    assert!(replay.is_replay());
    let shown = "X-Total, idempotent-replayed, idempotency-expires, retry-after, location, www-authenticate";
    assert_eq!(allowed(&replay), [Some("https://shop.example"), None, Some(shown)]);
    let foreign = send(&app, request("/pay", "k")).await;
    assert_eq!(allowed(&foreign)[..2], [None, None]);
}

/// The only record, once it is as it should be. Observing goes on beside the requests.
async fn record_once(store: &Fickle, is_so: impl Fn(&Record) -> bool) -> Record {
    let looking = async {
        loop {
            let page = store.scan(&Scan::default()).await.unwrap();
            let record = page.entries.first().map(|entry| entry.stored.record.clone());
            if let Some(record) = record.filter(|record| is_so(record)) {
                return record;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), looking).await.expect("the record is never so")
}

#[tokio::test]
async fn what_would_run_again_is_observed_as_such() {
    let unreachable = Router::new().route(
        "/status/502",
        any(|| async {
            let mut response = (http::StatusCode::BAD_GATEWAY, "run 1").into_response();
            response.extensions_mut().insert(Happened::No { why: "refused" });
            response
        }),
    );
    let observed = |store: &Fickle| layer(store).with_default_route(Route::new().with_mode(Mode::Observe));
    for (status, says_that_nothing_happened, state) in [
        (201, false, State::Completed),
        (422, false, State::Completed),
        (429, false, State::Ready),
        (503, false, State::Ready),
        (502, true, State::Ready),
        (504, false, State::Completed),
    ] {
        let (store, work) = (Fickle::default(), Work::default());
        let app = match says_that_nothing_happened {
            true => unreachable.clone().layer(observed(&store)),
            false => app(&work, observed(&store)),
        };
        let path = format!("/status/{status}");
        assert_eq!(send(&app, request(&path, "k")).await.status, status);
        let record = record_once(&store, |record| record.state != State::Running).await;
        assert_eq!((record.state, record.attempt), (state, 1), "{status}");
        let is_doubtful = record.labels.iter().any(|label| label.name == "observed" && label.value == "unknown");
        assert_eq!(is_doubtful, status == 504, "{status}: nobody has to look at what was only observed");
        if state == State::Ready {
            assert_eq!(send(&app, request(&path, "k")).await.status, status);
            record_once(&store, |record| record.state == State::Ready && record.attempt == 2).await;
        }
    }
}

#[tokio::test]
async fn a_service_that_fails_is_observed_as_unknown() {
    let store = Fickle::default();
    let observed = layer(&store).with_default_route(Route::new().with_mode(Mode::Observe));
    let failing = tower::service_fn(|_: Request<Body>| async {
        Err::<http::Response<Body>, _>(std::io::Error::other("failed by the test"))
    });
    tower::Layer::layer(&observed, failing).oneshot(request("/pay", "k")).await.unwrap_err();
    let record = record_once(&store, |record| record.state == State::Completed).await;
    assert_eq!(record.labels[0].value, "unknown");
}

/// A body that announces more than it brings.
struct Short<E>(Option<E>);

impl<E: Unpin> http_body::Body for Short<E> {
    type Data = bytes::Bytes;
    type Error = E;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<bytes::Bytes>, E>>> {
        Poll::Ready(self.0.take().map(Err))
    }

    fn size_hint(&self) -> http_body::SizeHint {
        http_body::SizeHint::with_exact(10)
    }
}

#[tokio::test]
async fn a_body_that_never_came_is_refused_with_its_cause_although_it_is_only_observed() {
    let (store, work) = (Fickle::default(), Work::default());
    let app = app(&work, layer(&store).with_default_route(Route::new().with_mode(Mode::Observe)));
    let cut = Body::new(Short(Some(std::io::Error::other("cut"))));
    for (status, body) in [(400, cut), (408, Body::new(Short(Some(BodyTimedOut))))] {
        let mut request = request("/pay", "k");
        *request.body_mut() = body;
        let got = send(&app, request).await;
        assert_eq!((got.status, got.code().as_str()), (status, "body-incomplete"));
        assert_eq!(got.header("content-type"), Some("application/problem+json"));
    }
    assert_eq!(work.runs(), 0);
}

/// A service that says of its answer, in the head and behind the body, what only the layer may say.
fn boasting(layer: IdempotencyLayer<Fickle>) -> Router {
    let boast = || async {
        let marks = ["idempotent-replayed", "idempotency-expires", "idempotency-attempt", "idempotency-record"];
        let mut response = "paid".into_response();
        let headers = response.headers_mut();
        headers.insert("x-first", "1".parse().unwrap());
        for mark in marks {
            headers.append(mark, "true".parse().unwrap());
            headers.append(mark, "again".parse().unwrap());
        }
        headers.insert("x-should-retry", "false".parse().unwrap());
        headers.insert("x-last", "1".parse().unwrap());
        let mut trailers: http::HeaderMap =
            marks.iter().map(|mark| (mark.parse().unwrap(), "true".parse().unwrap())).collect();
        trailers.insert("x-sum", "7".parse().unwrap());
        response.map(|body| {
            let trailers = async move { Some(Ok(trailers)) };
            Body::new(http_body_util::BodyExt::with_trailers(body, trailers))
        })
    };
    Router::new().route("/pay", any(boast)).layer(layer)
}

/// The names of the fields in the head and behind the body.
async fn names(app: &Router, request: Request<Body>) -> (Vec<String>, Vec<String>) {
    let (head, body) = app.clone().oneshot(request).await.unwrap().into_parts();
    let trailers = http_body_util::BodyExt::collect(body).await.unwrap().trailers().cloned().unwrap_or_default();
    let own = |headers: &http::HeaderMap| -> Vec<String> {
        let names = headers.keys().map(|name| name.as_str().to_owned());
        names.filter(|name| name.starts_with("idempoten") || name.starts_with("x-")).collect()
    };
    (own(&head.headers), own(&trailers))
}

#[tokio::test]
async fn a_service_cannot_say_that_its_first_answer_is_a_replay() {
    let routes = [
        ("recorded", Route::new()),
        ("too large to be recorded", Route::new().with_answer_bytes_max(1)),
        ("free again", Route::new().with_not_stored(vec![http::StatusCode::OK])),
    ];
    for (case, route) in routes {
        let app = boasting(layer(&Fickle::default()).with_default_route(route));
        let (head, trailers) = names(&app, request("/pay", "k")).await;
        assert_eq!(head, ["x-first", "x-should-retry", "x-last"], "{case}");
        assert_eq!(trailers, ["x-sum"], "{case}");
    }
    let app = boasting(layer(&Fickle::default()));
    send(&app, request("/pay", "k")).await;
    let replay = send(&app, request("/pay", "k")).await;
    let all = |name: &str| replay.headers.get_all(name).iter().count();
    assert!(replay.is_replay());
    assert_eq!(["idempotent-replayed", "idempotency-expires", "idempotency-attempt"].map(all), [1, 1, 0]);
}

#[tokio::test]
async fn what_passes_through_keeps_the_marks_of_whoever_is_behind() {
    let (store, marks) = (Fickle::default(), 4);
    let routed = |route: Route| boasting(layer(&store).with_default_route(route));
    for (case, app, request) in [
        ("a safe method", routed(Route::new()), Request::get("/pay").body(Body::empty()).unwrap()),
        ("an unprotected route", routed(Route::unprotected()), request("/pay", "k")),
        ("no key", routed(Route::new().with_optional_key()), without_key(request("/pay", "k"))),
        ("observed", routed(Route::new().with_mode(Mode::Observe)), request("/pay", "k")),
    ] {
        let (head, trailers) = names(&app, request).await;
        let own = |names: &[String]| names.iter().filter(|name| name.starts_with("idempoten")).count();
        assert_eq!((own(&head), own(&trailers)), (marks, marks), "{case}");
    }
}
