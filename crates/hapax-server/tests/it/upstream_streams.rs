//! HTTP/2 to the upstream: a request waits for a stream, and what never left is free. Answers that begin and are refused,
//! limits that change, and connections that say goodbye while requests wait.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

use crate::node;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::proxied::{SOON, Wire, scripted};
use bytes::Bytes;
use h2::Reason;
use h2::server::{Connection, SendResponse};
use hapax_proxy::{Body, Failure, Upstream, UpstreamOptions};
use hapax_testkit::hapax::Hapax;
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use tokio::net::TcpStream;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::timeout;

const CONNECT_TIMEOUT: Duration = Duration::from_millis(400);
const ANSWER_TIMEOUT: Duration = Duration::from_millis(1200);

fn options() -> UpstreamOptions {
    UpstreamOptions {
        h2c: true,
        connect_timeout: CONNECT_TIMEOUT,
        answer_timeout: ANSWER_TIMEOUT,
        ..UpstreamOptions::default()
    }
}

fn post(path: &str) -> Request<Body> {
    let body = Body::from(Bytes::from_static(b"hello"));
    Request::builder().method(Method::POST).uri(path).header("host", "shop").body(body).unwrap()
}

/// An upstream over HTTP/2 without TLS, with that limit of streams, and what it does with each connection.
async fn upstream<F, R>(streams_max: u32, script: F) -> Upstream
where
    F: Fn(Connection<TcpStream, Bytes>) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = ()> + Send + 'static,
{
    let addr = scripted(move |wire| {
        let script = script.clone();
        async move {
            let mut builder = h2::server::Builder::new();
            builder.max_concurrent_streams(streams_max);
            if let Ok(connection) = builder.handshake(wire.stream).await {
                script(connection).await;
            }
        }
    })
    .await;
    Upstream::new(&format!("http://{addr}").parse().unwrap(), options()).unwrap()
}

fn send(upstream: &Upstream, path: String) -> JoinHandle<Response<Body>> {
    let upstream = upstream.clone();
    tokio::spawn(async move { upstream.send(post(&path)).await })
}

/// How many ended free, in doubt, and answered.
async fn outcomes(running: Vec<JoinHandle<Response<Body>>>) -> (usize, usize, usize) {
    let mut counts = (0, 0, 0);
    for run in running {
        let response = timeout(SOON, run).await.expect("it ends").unwrap();
        match response.extensions().get::<Failure>() {
            Some(Failure::NothingSent { .. }) => {
                assert_eq!(response.status(), StatusCode::BAD_GATEWAY);
                counts.0 += 1;
            }
            Some(Failure::Doubt { .. }) => {
                assert_eq!(response.status(), StatusCode::GATEWAY_TIMEOUT);
                counts.1 += 1;
            }
            None => {
                response.into_body().collect().await.unwrap();
                counts.2 += 1;
            }
        }
    }
    counts
}

/// Answers its first request, so that the limit of streams is known; takes the others, never answers, and counts them.
fn stalling(reached: &Arc<AtomicUsize>) -> impl Fn(Connection<TcpStream, Bytes>) -> BoxedScript + Clone + use<> {
    let reached = Arc::clone(reached);
    move |mut connection| {
        let reached = Arc::clone(&reached);
        Box::pin(async move {
            let mut held = Vec::new();
            while let Some(Ok((request, mut answer))) = connection.accept().await {
                if request.uri().path() == "/first" {
                    answer.send_response(Response::new(()), true).unwrap();
                    continue;
                }
                reached.fetch_add(1, Ordering::SeqCst);
                held.push((request, answer));
            }
        })
    }
}

type BoxedScript = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

#[tokio::test]
async fn of_twelve_callers_exactly_those_that_reached_the_upstream_are_in_doubt() {
    for streams_max in [1, 2, 5] {
        let reached = Arc::new(AtomicUsize::new(0));
        let upstream = upstream(streams_max, stalling(&reached)).await;
        assert_eq!(upstream.send(post("/first")).await.status(), 200);
        let running = (0..12).map(|at| send(&upstream, format!("/{at}"))).collect();
        let (free, doubts, answered) = outcomes(running).await;
        let reached = reached.load(Ordering::SeqCst);
        assert_eq!((reached, doubts, answered), (streams_max as usize, reached, 0), "streams: {streams_max}");
        assert_eq!(free, 12 - doubts);
    }
}

#[tokio::test]
async fn what_was_given_up_while_it_waited_is_never_sent() {
    let (reached, go_on) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let (counted, released) = (Arc::clone(&reached), Arc::clone(&go_on));
    let upstream = upstream(1, move |mut connection| {
        let (counted, released) = (Arc::clone(&counted), Arc::clone(&released));
        async move {
            let mut first: Option<SendResponse<Bytes>> = None;
            loop {
                tokio::select! {
                    accepted = connection.accept() => {
                        let Some(Ok((_, mut answer))) = accepted else { return };
                        if counted.fetch_add(1, Ordering::SeqCst) == 0 {
                            first = Some(answer);
                        } else {
                            answer.send_response(Response::new(()), true).unwrap();
                        }
                    }
                    () = released.notified() => {
                        first.take().unwrap().send_response(Response::new(()), true).unwrap();
                    }
                }
            }
        }
    })
    .await;
    let first = send(&upstream, "/first".to_owned());
    while reached.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    let waiting = (0..8).map(|at| send(&upstream, format!("/{at}"))).collect();
    assert_eq!(outcomes(waiting).await, (8, 0, 0));
    go_on.notify_one();
    assert_eq!(outcomes(vec![first]).await, (0, 0, 1));
    let after = send(&upstream, "/after".to_owned());
    assert_eq!(outcomes(vec![after]).await, (0, 0, 1), "the connection goes on");
    assert_eq!(reached.load(Ordering::SeqCst), 2, "the first one and the one after");
}

#[tokio::test]
async fn requests_take_turns_when_there_are_fewer_streams_than_callers() {
    let (open, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counts = (Arc::clone(&open), Arc::clone(&most));
    let upstream = upstream(3, move |mut connection| {
        let (open, most) = counts.clone();
        async move {
            while let Some(Ok((mut request, mut answer))) = connection.accept().await {
                let (open, most) = (Arc::clone(&open), Arc::clone(&most));
                tokio::spawn(async move {
                    most.fetch_max(open.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    while let Some(Ok(data)) = request.body_mut().data().await {
                        let _ = request.body_mut().flow_control().release_capacity(data.len());
                    }
                    tokio::task::yield_now().await;
                    open.fetch_sub(1, Ordering::SeqCst);
                    let mut body = answer.send_response(Response::new(()), false).unwrap();
                    body.send_data(Bytes::from_static(b"ok"), true).unwrap();
                });
            }
        }
    })
    .await;
    let running = (0..200).map(|at| send(&upstream, format!("/{at}"))).collect();
    assert_eq!(outcomes(running).await, (0, 0, 200));
    assert!(most.load(Ordering::SeqCst) <= 3, "{most:?}");
}

/// The running binary: whose key is free and whose is unknown is what the upstream says, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_twelve_keys_exactly_those_that_reached_the_upstream_are_unknown() {
    let (reached, answers) = (Arc::new(Mutex::new(BTreeSet::new())), Arc::new(AtomicBool::new(true)));
    let (noted, does_answer) = (Arc::clone(&reached), Arc::clone(&answers));
    let addr = scripted(move |wire| {
        let (noted, does_answer) = (Arc::clone(&noted), Arc::clone(&does_answer));
        async move {
            let mut builder = h2::server::Builder::new();
            let mut connection = builder.max_concurrent_streams(2).handshake::<_, Bytes>(wire.stream).await.unwrap();
            let mut held = Vec::new();
            while let Some(Ok((request, mut answer))) = connection.accept().await {
                let key = request.headers()["idempotency-key"].to_str().unwrap().to_owned();
                if does_answer.load(Ordering::SeqCst) {
                    answer.send_response(Response::builder().status(201).body(()).unwrap(), true).unwrap();
                } else {
                    noted.lock().unwrap().insert(key);
                    held.push((request, answer));
                }
            }
        }
    })
    .await;
    let config = "[upstream]\nh2c = true\nconnect_timeout = \"1s\"\nanswer_timeout = \"2s\"\n";
    let hapax = Hapax::builder(env!("CARGO_BIN_EXE_hapax")).with_upstream(&format!("http://{addr}"));
    let hapax = tokio::task::spawn_blocking(|| hapax.with_config(config).start()).await.unwrap();
    let address = hapax.address();
    let pay = move |key: String| tokio::task::spawn_blocking(move || node::refused(&node::pay(&key).send(address)));
    assert_eq!(pay("before".to_owned()).await.unwrap().0, 201);
    answers.store(false, Ordering::SeqCst);
    let keys: Vec<String> = (0..12).map(|at| format!("key-{at}")).collect();
    let running: Vec<_> = keys.iter().map(|key| (key.clone(), pay(key.clone()))).collect();
    let mut first = BTreeMap::new();
    for (key, run) in running {
        first.insert(key, run.await.unwrap());
    }
    answers.store(true, Ordering::SeqCst);
    let reached = reached.lock().unwrap().clone();
    assert_eq!(reached.len(), 2, "{first:?}");
    for key in keys {
        let (expected, then) = if reached.contains(&key) {
            ((504, "outcome-unknown"), (409, "outcome-unknown"))
        } else {
            ((502, "upstream-unreachable"), (201, ""))
        };
        assert_eq!(first[&key], (expected.0, expected.1.to_owned()), "{key}");
        assert_eq!(pay(key.clone()).await.unwrap(), (then.0, then.1.to_owned()), "{key}: a retry");
    }
}

/// SETTINGS with that limit of streams.
fn limit(streams: u8) -> [u8; 15] {
    [0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, streams]
}

const ACK: [u8; 9] = [0, 0, 0, 4, 1, 0, 0, 0, 0];

/// Reads frames until one of that type comes, and returns its stream.
async fn until_frame(wire: &mut Wire<TcpStream>, kind: u8) -> u32 {
    loop {
        let head = wire.rest_of(9).await;
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        wire.rest_of(length).await;
        if head[3] == kind {
            return u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        }
    }
}

const HEADERS: u8 = 1;

#[tokio::test]
async fn a_limit_that_is_lowered_to_none_leaves_those_who_wait_free() {
    let (sent, lowered) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (tell, told) = (Arc::clone(&sent), Arc::clone(&lowered));
    let addr = scripted(move |mut wire| {
        let (tell, told) = (Arc::clone(&tell), Arc::clone(&told));
        async move {
            wire.rest_of(24).await;
            wire.send(limit(1)).await;
            wire.send(ACK).await;
            assert_eq!(until_frame(&mut wire, HEADERS).await, 1);
            wire.send(limit(0)).await;
            // Its acknowledgement comes when the limit holds.
            until_frame(&mut wire, 4).await;
            told.add_permits(1);
            // The answer to the first: `:status: 200`, the end.
            wire.send([0, 0, 1, 1, 5, 0, 0, 0, 1, 0x88]).await;
            if wire.head().await.is_some() {
                tell.add_permits(1);
            }
        }
    })
    .await;
    let upstream = Upstream::new(&format!("http://{addr}").parse().unwrap(), options()).unwrap();
    let first = send(&upstream, "/first".to_owned());
    lowered.acquire().await.unwrap().forget();
    let waiting = (0..4).map(|at| send(&upstream, format!("/{at}"))).collect();
    assert_eq!(outcomes(waiting).await, (4, 0, 0));
    assert_eq!(outcomes(vec![first]).await, (0, 0, 1));
    assert_eq!(sent.available_permits(), 0);
}

#[tokio::test]
async fn whoever_waits_while_the_upstream_says_goodbye_goes_to_a_new_connection() {
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&connections);
    let upstream = upstream(1, move |mut connection| {
        let first = counted.fetch_add(1, Ordering::SeqCst) == 0;
        async move {
            let mut held = Vec::new();
            while let Some(Ok((_, mut answer))) = connection.accept().await {
                if first {
                    held.push(answer);
                    connection.graceful_shutdown();
                } else {
                    answer.send_response(Response::new(()), true).unwrap();
                }
            }
        }
    })
    .await;
    let running = (0..6).map(|at| send(&upstream, format!("/{at}"))).collect();
    assert_eq!(outcomes(running).await, (0, 1, 5), "one reached the connection that ended, and was held there");
    assert_eq!(connections.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_connection_that_breaks_leaves_those_free_that_waited() {
    let (reached, broken) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let (counted, breaks) = (Arc::clone(&reached), Arc::clone(&broken));
    let upstream = upstream(2, move |mut connection| {
        let (counted, breaks) = (Arc::clone(&counted), Arc::clone(&breaks));
        async move {
            let mut held = Vec::new();
            loop {
                tokio::select! {
                    accepted = connection.accept() => {
                        let Some(Ok(request)) = accepted else { return };
                        counted.fetch_add(1, Ordering::SeqCst);
                        held.push(request);
                    }
                    () = breaks.notified() => return,
                }
            }
        }
    })
    .await;
    let running: Vec<_> = (0..8).map(|at| send(&upstream, format!("/{at}"))).collect();
    while reached.load(Ordering::SeqCst) < 2 {
        tokio::task::yield_now().await;
    }
    broken.notify_one();
    let (free, doubts, answered) = outcomes(running).await;
    assert_eq!(answered, 0);
    assert_eq!((free + doubts, doubts), (8, reached.load(Ordering::SeqCst)), "exactly what reached it");
}

/// What becomes of a request with whose stream the upstream does this.
async fn outcome(act: impl Fn(SendResponse<Bytes>) + Clone + Send + Sync + 'static) -> Response<Body> {
    let upstream = upstream(100, move |mut connection| {
        let act = act.clone();
        async move {
            while let Some(Ok((_request, answer))) = connection.accept().await {
                act(answer);
            }
        }
    })
    .await;
    timeout(SOON, upstream.send(post("/pay"))).await.expect("it ends")
}

fn hint() -> Response<()> {
    Response::builder().status(103).header("link", "</a>").body(()).unwrap()
}

#[tokio::test]
async fn whoever_began_to_answer_and_then_refuses_has_looked_at_the_request() {
    for hints in [0, 1, 3] {
        let response = outcome(move |mut answer| {
            for _ in 0..hints {
                answer.send_informational(hint()).unwrap();
            }
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(50)).await;
                answer.send_reset(Reason::REFUSED_STREAM);
            });
        })
        .await;
        let failure = *response.extensions().get::<Failure>().unwrap();
        assert_eq!(matches!(failure, Failure::Doubt { .. }), hints > 0, "{hints}: {failure:?}");
    }
}

#[tokio::test]
async fn hints_before_an_answer_are_bounded_over_http2() {
    for (hints, bytes, passes) in [(20, 100, true), (40, 8_000, false)] {
        let response = outcome(move |mut answer| {
            for _ in 0..hints {
                let long = Response::builder().status(103).header("link", "x".repeat(bytes)).body(()).unwrap();
                answer.send_informational(long).unwrap();
            }
            answer.send_response(Response::new(()), true).unwrap();
        })
        .await;
        assert_eq!(response.status() == StatusCode::OK, passes, "{hints} × {bytes}: {response:?}");
        assert_eq!(response.extensions().get::<Failure>().is_some(), !passes);
    }
}

#[tokio::test]
async fn hints_before_an_answer_are_bounded_over_http1() {
    for (bytes, passes) in [(60_000, true), (140_000, false), (210_000, false)] {
        let addr = scripted(move |mut wire| async move {
            wire.message().await;
            let hint = format!("HTTP/1.1 103 Early Hints\r\nLink: {}\r\n\r\n", "x".repeat(4_000));
            let flood = hint.repeat(bytes / hint.len());
            let _ = tokio::io::AsyncWriteExt::write_all(
                &mut wire.stream,
                format!("{flood}HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").as_bytes(),
            )
            .await;
            wire.until_closed().await;
        })
        .await;
        let options = UpstreamOptions { h2c: false, ..options() };
        let upstream = Upstream::new(&format!("http://{addr}").parse().unwrap(), options).unwrap();
        let response = timeout(SOON, upstream.send(post("/pay"))).await.expect("it ends");
        assert_eq!(response.status() == StatusCode::OK, passes, "{bytes}: {response:?}");
    }
}
