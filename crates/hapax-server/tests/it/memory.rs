//! Memory: what strangers can make a node hold is bounded, and others are served meanwhile.
//!
//! The attackers are HTTP/2 clients on the loopback interface that take nothing of their responses or never end their
//! requests. Judged by the resident memory of the process, read while they are at it, and by a client on another address
//! that sends ordinary requests all the time.

#![expect(
    clippy::disallowed_methods,
    reason = "memory and answers are looked at again and again while an attack goes on"
)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::node::{self, Kept, Node, on_both_stores, refused};
use bytes::Bytes;
use futures_util::FutureExt;
use hapax_testkit::hapax::Hapax;
use hapax_testkit::ledger::Behaviour;
use hapax_testkit::raw_http::{Conn, Request, Response, request};

const MIB: u64 = 1024 * 1024;
/// What the nodes are told.
const MEMORY_MAX: u64 = 64 * MIB;
/// What a node may take besides: connections, frames, pages that the allocator keeps.
const BESIDE: u64 = 64 * MIB;
/// The process is killed here, before it takes the machine with it.
const FAR_TOO_MUCH: u64 = 1024 * MIB;
/// Attacking connections.
const CONNECTIONS: usize = 20;
/// Requests on each.
const STREAMS: usize = 200;
/// Just under what a record keeps by default.
const LARGE: usize = 8_000_000;
/// How long ordinary requests may take meanwhile: most of them, since attackers, upstream and a debug build share the cores.
const HONEST_TIME_MAX: Duration = Duration::from_secs(1);

on_both_stores! {
    replays_that_nobody_takes_hold_their_answer_once
    replays_of_many_answers_stay_within_the_budget
}

fn start(kept: Kept) -> Node {
    let config = format!("[server]\nmemory_max = \"{}MiB\"\n", MEMORY_MAX / MIB);
    node::start_with(kept, |builder| builder.with_config(&config))
}

fn loopback(last: u8) -> IpAddr {
    Ipv4Addr::new(127, 0, 0, last).into()
}

/// A request of alice's.
fn post(target: &str, key: &str) -> Request {
    request("POST", target).header("Authorization", "Bearer alice-secret").header("Idempotency-Key", key)
}

/// Records an answer of eight megabytes under each key.
fn record_large(node: &Node, keys: &[String]) {
    node.ledger.on("/report", Behaviour::LargeBody(LARGE));
    for key in keys {
        let first = post("/report", key).body("{}").send(node.hapax.address());
        assert_eq!((first.status, first.body.len()), (200, LARGE));
    }
}

fn replays_that_nobody_takes_hold_their_answer_once(kept: Kept) {
    let node = start(kept);
    record_large(&node, &["large".to_owned()]);
    let statuses = under_watch(&node.hapax, async |to| {
        let mut attackers = Vec::new();
        for _ in 0..CONNECTIONS {
            attackers.push(Attacker::connect(loopback(1), to).await);
        }
        let mut answers = Vec::new();
        for _ in 0..STREAMS {
            for attacker in &mut attackers {
                answers.push(attacker.ask("/report", "large", Some(Bytes::from_static(b"{}")), true).await);
            }
        }
        (statuses_of(&mut answers).await, (attackers, answers))
    });
    assert_eq!(statuses, vec![200; CONNECTIONS * STREAMS], "one copy in memory is enough for all of them");
    node.ledger.assert_once("large");
}

fn replays_of_many_answers_stay_within_the_budget(kept: Kept) {
    let node = start(kept);
    let keys: Vec<String> = (0..9).map(|number| format!("large-{number}")).collect();
    record_large(&node, &keys);
    let statuses = under_watch(&node.hapax, async |to| {
        let mut attackers = Vec::new();
        let mut answers = Vec::new();
        for last in 1..=CONNECTIONS {
            // From many addresses: no quarter holds these.
            let mut attacker = Attacker::connect(loopback(u8::try_from(last + 2).unwrap()), to).await;
            for key in &keys {
                answers.push(attacker.ask("/report", key, Some(Bytes::from_static(b"{}")), true).await);
            }
            attackers.push(attacker);
        }
        (statuses_of(&mut answers).await, (attackers, answers))
    });
    let count = |status: u16| statuses.iter().filter(|other| **other == status).count();
    assert!(count(200) > 0 && count(503) > 0 && count(200) + count(503) == statuses.len(), "{statuses:?}");
    // Once they are gone, everybody gets the answer again.
    eventually(|| post("/report", &keys[0]).body("{}").send(node.hapax.address()).is_replay());
    keys.iter().for_each(|key| node.ledger.assert_once(key));
}

#[test]
fn bodies_that_never_end_stay_within_the_budget() {
    let node = start(Kept::Sqlite);
    let refused_count = under_watch(&node.hapax, async |to| {
        let body = Bytes::from(vec![b'x'; 1_000_000]);
        let (mut attackers, mut answers) = (Vec::new(), Vec::new());
        for number in 0..CONNECTIONS {
            let mut attacker = Attacker::connect(loopback(1), to).await;
            for stream in 0..STREAMS {
                let key = format!("never-{number}-{stream}");
                let length = (stream % 2 == 0).then_some(body.len());
                answers.push(attacker.ask_with_length("/payments", &key, body.clone(), length).await);
            }
            attackers.push(attacker);
        }
        let refused_count = refusals(&mut answers, 1_000).await;
        (refused_count, (attackers, answers))
    });
    assert!(refused_count >= 1_000, "{refused_count}");
    assert_eq!(
        node.ledger
            .all()
            .iter()
            .filter(|entry| entry.key.as_deref().is_some_and(|key| key.starts_with("never")))
            .count(),
        0
    );
}

/// Runs an attack with the memory watched and an honest client beside it. What the attack returns with its result stays
/// open until both have been judged.
#[expect(clippy::needless_pass_by_value, reason = "a closure that is written where it is called")]
fn under_watch<T: Send, K: Send>(hapax: &Hapax, attack: impl AsyncFn(SocketAddr) -> (T, K) + Send) -> T {
    let (to, before) = (hapax.address(), hapax.rss_bytes());
    let (peak, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let (result, mut times) = std::thread::scope(|scope| {
        scope.spawn(|| watch_memory(hapax, &peak, &over));
        let honest = scope.spawn(|| be_honest(to, &over));
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (result, kept) = runtime.block_on(attack(to));
        // It lasts for a while: what is held is held.
        std::thread::sleep(Duration::from_millis(500));
        over.store(true, Ordering::Relaxed);
        let times = honest.join().unwrap();
        drop(kept);
        (result, times)
    });
    times.sort_unstable();
    let (peak, usual) = (peak.into_inner(), times[times.len() / 2]);
    println!("before {} MiB, peak {} MiB, ordinary requests {usual:?} of {}", before / MIB, peak / MIB, times.len());
    assert!(peak <= before + MEMORY_MAX + BESIDE, "{} MiB before, then {} MiB", before / MIB, peak / MIB);
    assert!(usual <= HONEST_TIME_MAX, "ordinary requests took {times:?}");
    result
}

fn watch_memory(hapax: &Hapax, peak: &AtomicU64, over: &AtomicBool) {
    while !over.load(Ordering::Relaxed) {
        let now = hapax.rss_bytes();
        peak.fetch_max(now, Ordering::Relaxed);
        if now > FAR_TOO_MUCH {
            Command::new("kill").args(["-9", &hapax.id().to_string()]).status().unwrap();
            panic!("{} MiB: the process was killed before it took the machine with it", now / MIB);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Sends ordinary requests from an address of its own, one after the other, until it is over. Gives how long each took.
fn be_honest(to: SocketAddr, over: &AtomicBool) -> Vec<Duration> {
    let mut times = Vec::new();
    while times.is_empty() || !over.load(Ordering::Relaxed) {
        let begun = Instant::now();
        let answer = honest(to, &format!("honest-{}", times.len()), 1_000);
        times.push(begun.elapsed());
        assert_eq!(answer.status, 201, "{:?}", refused(&answer));
        std::thread::sleep(Duration::from_millis(20));
    }
    times
}

fn honest(to: SocketAddr, key: &str, bytes: usize) -> Response {
    let mut conn = Conn::open_from(loopback(2), to);
    conn.send(&post("/payments", key).body(vec![b'x'; bytes]))
}

fn eventually(mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(10), "it never came to be");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A length is a word: nothing is held for bodies that are announced and do not come, from however many addresses.
#[test]
fn bodies_that_are_announced_and_do_not_come_hold_nothing() {
    let node = start(Kept::Sqlite);
    let to = node.hapax.address();
    record_large(&node, &["large".to_owned()]);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let held = runtime.block_on(async {
        let mut held = Vec::new();
        for last in 3..=10 {
            let mut attacker = Attacker::connect(loopback(last), to).await;
            for stream in 0..100 {
                let key = format!("announced-{last}-{stream}");
                held.push(attacker.ask_with_length("/payments", &key, Bytes::new(), Some(1_000_000)).await);
            }
        }
        held
    });
    eventually(|| node.hapax.metric("hapax_memory_bytes") < 1_000_000.0);
    assert_eq!(honest(to, "honest", 500_000).status, 201);
    assert!(post("/report", "large").body("{}").send(to).is_replay());
    assert_eq!(node.hapax.metric("hapax_memory_refused_total{what=\"request\"}"), 0.0);
    drop(held);
}

/// Once four addresses hold a quarter each, nobody else's large bodies find room, and everybody's small ones do.
#[test]
fn small_requests_go_on_while_large_ones_have_used_up_the_rest() {
    let node = start(Kept::Sqlite);
    let to = node.hapax.address();
    let waiting: Vec<Conn> = (3..=10)
        .flat_map(|last| (0..8).map(move |number| (last, number)))
        .map(|(last, number)| {
            let mut conn = Conn::open_from(loopback(last), to);
            let head = post("/payments", &format!("waits-{last}-{number}")).header("Content-Length", "1000000");
            conn.write(&head.bytes());
            // All but a byte; whoever was refused meanwhile takes no more.
            let _ = conn.try_write(&vec![b'x'; 999_999]);
            conn
        })
        .collect();
    eventually(|| node.hapax.metric("hapax_memory_refused_total{what=\"request\"}") > 0.0);
    assert!(node.hapax.metric("hapax_memory_bytes") > 40_000_000.0);
    let large = honest(to, "large", 500_000);
    assert_eq!(refused(&large), (503, "memory-full".into()));
    assert_eq!((large.header("retry-after"), large.header("connection")), (Some("2"), Some("close")));
    assert_eq!(honest(to, "small", 16 * 1024).status, 201);
    assert_eq!(node.hapax.ask_admin("/readyz").status, 200);
    drop(waiting);
    eventually(|| honest(to, "large", 500_000).status == 201);
    eventually(|| node.hapax.metric("hapax_memory_bytes") == 0.0);
    node.ledger.assert_once("large");
}

/// Heads stay for as long as their requests.
#[test]
fn large_heads_stay_within_the_budget() {
    let node = start(Kept::Sqlite);
    let refused_count = under_watch(&node.hapax, async |to| {
        let (mut attackers, mut answers) = (Vec::new(), Vec::new());
        for _ in 0..CONNECTIONS {
            let mut attacker = Attacker::connect(loopback(1), to).await;
            for _ in 0..STREAMS {
                answers.push(attacker.ask_with_large_head("/payments").await);
            }
            attackers.push(attacker);
        }
        let refused_count = refusals(&mut answers, 1_000).await;
        (refused_count, (attackers, answers))
    });
    assert!(refused_count >= 1_000, "{refused_count}");
}

/// An HTTP/2 client that lets the server send nothing of any response.
struct Attacker {
    requests: h2::client::SendRequest<Bytes>,
}

struct Asked {
    response: h2::client::ResponseFuture,
    /// Dropped, the stream would be reset, and so for the rest of the response.
    _body: h2::SendStream<Bytes>,
    taken: Option<h2::RecvStream>,
}

impl Attacker {
    async fn connect(from: IpAddr, to: SocketAddr) -> Self {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::new(from, 0)).unwrap();
        let stream = socket.connect(to).await.unwrap();
        let shaken = h2::client::Builder::new().initial_window_size(0).handshake(stream).await;
        let (requests, connection) = shaken.unwrap();
        tokio::spawn(connection);
        Self { requests }
    }

    async fn ask(&mut self, target: &str, key: &str, body: Option<Bytes>, ends: bool) -> Asked {
        self.send(target, key, body.unwrap_or_default(), None, ends).await
    }

    /// A body that does not end, whatever length it says it has.
    async fn ask_with_length(&mut self, target: &str, key: &str, body: Bytes, length: Option<usize>) -> Asked {
        self.send(target, key, body, length, false).await
    }

    async fn send(&mut self, target: &str, key: &str, body: Bytes, length: Option<usize>, ends: bool) -> Asked {
        let mut request = http::Request::post(format!("http://localhost{target}"))
            .header("authorization", "Bearer alice-secret")
            .header("idempotency-key", key);
        if let Some(length) = length {
            request = request.header("content-length", length + 1);
        }
        let mut requests = self.requests.clone().ready().await.unwrap();
        let (response, mut stream) = requests.send_request(request.body(()).unwrap(), false).unwrap();
        stream.send_data(body, ends).unwrap();
        Asked { response, _body: stream, taken: None }
    }
}

impl Attacker {
    /// A request that does not end, with as much before its body as is let through.
    async fn ask_with_large_head(&mut self, target: &str) -> Asked {
        let request = http::Request::post(format!("http://localhost{target}"))
            .header("authorization", "Bearer alice-secret")
            .header("idempotency-key", "large-head")
            .header("x-large", "x".repeat(28 * 1024));
        let mut requests = self.requests.clone().ready().await.unwrap();
        let (response, stream) = requests.send_request(request.body(()).unwrap(), false).unwrap();
        Asked { response, _body: stream, taken: None }
    }
}

/// How many were refused for want of memory, once there are so many or a while has passed. The others are held.
async fn refusals(asked: &mut [Asked], enough: usize) -> usize {
    let (begun, mut count) = (Instant::now(), 0);
    while count < enough && begun.elapsed() < Duration::from_secs(20) {
        tokio::time::sleep(Duration::from_millis(50)).await;
        for one in asked.iter_mut().filter(|one| one.taken.is_none()) {
            if let Some(head) = one.head().now_or_never() {
                assert_eq!(head, (503, Some("2".to_owned())));
                count += 1;
            }
        }
    }
    count
}

impl Asked {
    /// The head of the response. The stream stays open.
    async fn head(&mut self) -> (u16, Option<String>) {
        let response = (&mut self.response).await.unwrap();
        let retry_after = response.headers().get("retry-after").map(|value| value.to_str().unwrap().to_owned());
        let status = response.status().as_u16();
        self.taken = Some(response.into_body());
        (status, retry_after)
    }
}

/// The statuses of all of them.
async fn statuses_of(asked: &mut [Asked]) -> Vec<u16> {
    let mut statuses = Vec::new();
    for one in asked {
        statuses.push(one.head().await.0);
    }
    statuses
}
