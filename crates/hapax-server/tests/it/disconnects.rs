//! Clients that leave: at eight points of a request and its answer, by a reset, by closing, by closing their half only.
//!
//! Whatever the point, the work is done at most once, the key is never stuck, and a retry gets the recorded answer, or the
//! first one if nothing had been done. The retry has less time than a lease has, so a claim that waits for its lease to
//! lapse fails the test. What upstreams do wrong is tested elsewhere.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

use std::time::Duration;

use crate::node::{self, Kept, Node, on_both_stores, pay, refused, start};
use hapax_testkit::ledger::Behaviour;
use hapax_testkit::raw_http::{Conn, ReadError, Request, Response};
use hapax_testkit::wait::until;

on_both_stores! {
    leaving_before_the_head_ends
    leaving_after_the_head
    leaving_in_the_middle_of_the_body
    leaving_before_the_body_ends
    leaving_after_the_whole_request
    leaving_while_the_upstream_works
    leaving_after_the_head_of_the_answer
    leaving_in_the_middle_of_a_large_answer
    leaving_in_the_middle_of_an_answer_that_is_not_kept
    a_crowd_that_leaves_at_any_moment
}

/// A lease has 30 s.
const SETTLED_MAX: Duration = Duration::from_secs(15);
/// It is kept, and it fits into no socket's buffers: whoever leaves in the middle has not got all of it.
const LARGE: usize = 7 * 1024 * 1024;

/// How a client goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leaving {
    /// The server's next read or write fails.
    Reset,
    /// Both directions at once; what comes is answered by a reset.
    Close,
    /// Nothing more to say, but still listening. hapax takes it for leaving, as nginx does: what is not sent yet of an
    /// answer is not sent. A retry gets it.
    HalfClose,
}

const WAYS: [Leaving; 3] = [Leaving::Reset, Leaving::Close, Leaving::HalfClose];

impl Leaving {
    /// Leaves; who still listens returns what comes until the connection ends.
    fn leave(self, mut conn: Conn) -> Option<Result<Vec<u8>, ReadError>> {
        match self {
            Leaving::Reset => conn.reset(),
            Leaving::Close => drop(conn),
            Leaving::HalfClose => {
                conn.half_close();
                return Some(conn.read_to_end());
            }
        }
        None
    }
}

/// The payment with its body framed by a length, and in chunks.
fn framings(key: &str) -> [(String, Request); 2] {
    [false, true].map(|chunked| {
        let key = if chunked { format!("{key}-chunked") } else { key.to_owned() };
        let request = if chunked { pay(&key).chunked() } else { pay(&key) };
        (key, request)
    })
}

/// Retries until the first attempt is settled. A client that left must not have to wait for a lease.
fn settled(node: &Node, request: &Request) -> Response {
    let mut last = None;
    until("the key is settled", SETTLED_MAX, || {
        let answer = node.send(request);
        let running = refused(&answer) == (409, "in-progress".to_owned());
        last = Some(answer);
        !running
    });
    last.unwrap()
}

/// What the upstream said, without what hapax adds to a replay.
fn said(answer: &Response) -> (u16, Option<&str>, &[u8]) {
    (answer.status, answer.header("x-execution"), &answer.body)
}

/// One execution, whose answer this is, and which every later retry gets.
#[track_caller]
fn assert_one(node: &Node, key: &str, request: &Request, answer: &Response) {
    node.ledger.assert_once(key);
    assert_eq!(answer.header("x-execution"), Some(node.ledger.executions(key)[0].id.as_str()));
    let again = node.send(request);
    assert_eq!((again.is_replay(), said(&again)), (true, said(answer)), "{key}");
    node.ledger.assert_once(key);
}

/// Nothing is left behind: no attempt, no waiter, no doubt.
#[track_caller]
fn assert_nothing_left(node: &Node) {
    until("no attempt runs", SETTLED_MAX, || node.hapax.metric("hapax_in_flight") == 0.0);
    for name in [
        "hapax_waiters",
        "hapax_completions_pending",
        "hapax_double_runs_total",
        "hapax_lapsed_total",
        r#"hapax_claims_total{outcome="unknown"}"#,
    ] {
        assert_eq!(node.hapax.metric(name), 0.0, "{name}");
    }
}

/// Leaves when `bytes_sent` of the request have been sent: nothing may be done, and the key is as good as new.
fn leaving_within_the_request(kept: Kept, bytes_sent: impl Fn(&[u8], usize) -> usize) {
    let node = start(kept);
    for leaving in WAYS {
        for (key, request) in framings(&format!("{leaving:?}")) {
            let bytes = request.bytes();
            let head = bytes.windows(4).position(|end| end == b"\r\n\r\n").unwrap() + 4;
            let mut conn = Conn::open(node.hapax.address());
            conn.write_part(&request, bytes_sent(&bytes, head));
            if let Some(told) = leaving.leave(conn) {
                let told = String::from_utf8(told.unwrap_or_default()).unwrap();
                assert!(told.is_empty() || told.starts_with("HTTP/1.1 400 "), "{key}: {told}");
            }
            node.ledger.assert_never(&key);
            let retry = settled(&node, &request);
            assert_eq!((retry.status, retry.is_replay()), (201, false), "{key}");
            assert_eq!(node.ledger.executions(&key)[0].attempt.as_deref(), Some("1"), "{key}");
            assert_one(&node, &key, &request, &retry);
        }
    }
    assert_nothing_left(&node);
}

fn leaving_before_the_head_ends(kept: Kept) {
    leaving_within_the_request(kept, |_, head| head / 2);
    leaving_within_the_request(kept, |_, head| head - 1);
}

fn leaving_after_the_head(kept: Kept) {
    leaving_within_the_request(kept, |_, head| head);
}

fn leaving_in_the_middle_of_the_body(kept: Kept) {
    leaving_within_the_request(kept, |bytes, head| usize::midpoint(head, bytes.len()));
}

/// One byte is missing; and, in chunks, only the word that the body is complete.
fn leaving_before_the_body_ends(kept: Kept) {
    leaving_within_the_request(kept, |bytes, _| bytes.len() - 1);
    leaving_within_the_request(kept, |bytes, _| bytes.len() - b"0\r\n\r\n".len());
}

/// Whether hapax had seen the request when the client left is chance; both are right, many times.
fn leaving_after_the_whole_request(kept: Kept) {
    let node = start(kept);
    for round in 0..20 {
        for leaving in WAYS {
            for (key, request) in framings(&format!("{leaving:?}-{round}")) {
                let mut conn = Conn::open(node.hapax.address());
                conn.write(&request.bytes());
                let told = leaving.leave(conn);
                let retry = settled(&node, &request);
                assert_eq!(retry.status, 201, "{key}: {}", retry.text());
                assert_one(&node, &key, &request, &retry);
                if let Some(told) = told {
                    assert_same_or_nothing(&told.unwrap_or_default(), &retry);
                }
            }
        }
    }
    assert_nothing_left(&node);
}

/// Who still listens gets the recorded answer or none, and never another.
#[track_caller]
fn assert_same_or_nothing(told: &[u8], recorded: &Response) {
    let same = told.starts_with(b"HTTP/1.1 201 ") && told.ends_with(&recorded.body);
    assert!(told.is_empty() || same, "{:?}", String::from_utf8_lossy(told));
}

fn leaving_while_the_upstream_works(kept: Kept) {
    let node = start(kept);
    for leaving in WAYS {
        for (key, request) in framings(&format!("{leaving:?}")) {
            node.ledger.hold(&key);
            let mut conn = Conn::open(node.hapax.address());
            conn.write(&request.bytes());
            node.ledger.wait_until_received(&key);
            // Who still listens would wait for what is held.
            let left = std::thread::spawn(move || leaving.leave(conn));
            for _ in 0..3 {
                assert_eq!(refused(&node.send(&request)), (409, "in-progress".into()), "{key}: leaving frees nothing");
            }
            node.ledger.release(&key);
            let retry = settled(&node, &request);
            assert!(retry.is_replay(), "{key}: {}", retry.text());
            assert_one(&node, &key, &request, &retry);
            if let Some(told) = left.join().unwrap() {
                assert_same_or_nothing(&told.unwrap_or_default(), &retry);
            }
        }
    }
    assert_nothing_left(&node);
}

/// Leaves when the head and `body_bytes` of a large answer have come.
fn leaving_within_the_answer(kept: Kept, body_bytes: usize) {
    let node = start(kept);
    node.ledger.on("*", Behaviour::LargeBody(LARGE));
    for leaving in WAYS {
        for (key, request) in framings(&format!("{leaving:?}")) {
            let mut conn = Conn::open(node.hapax.address());
            conn.write(&request.bytes());
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.extend(conn.read_bytes(1));
            }
            let begun = conn.read_bytes(body_bytes);
            let rest = leaving.leave(conn);
            let retry = settled(&node, &request);
            assert!(retry.is_replay() && retry.body.len() == LARGE, "{key}: {} bytes", retry.body.len());
            assert_one(&node, &key, &request, &retry);
            assert_eq!(begun, retry.body[..body_bytes], "{key}: what had come of it is of the same answer");
            if let Some(rest) = rest {
                let rest = rest.unwrap_or_default();
                assert!(retry.body[body_bytes..].starts_with(&rest), "{key}: and so is what comes after");
            }
        }
    }
    assert_nothing_left(&node);
}

fn leaving_after_the_head_of_the_answer(kept: Kept) {
    leaving_within_the_answer(kept, 0);
}

fn leaving_in_the_middle_of_a_large_answer(kept: Kept) {
    leaving_within_the_answer(kept, 1024 * 1024);
}

fn leaving_in_the_middle_of_an_answer_that_is_not_kept(kept: Kept) {
    let node = start(kept);
    let (large, endless) = (Behaviour::LargeBody(64 * 1024 * 1024), Behaviour::Stream(1000, Duration::from_millis(5)));
    for (name, behaviour) in [("large", large), ("stream", endless)] {
        for leaving in [Leaving::Reset, Leaving::Close] {
            let key = format!("{name}-{leaving:?}");
            node.ledger.on(&key, behaviour.clone());
            let mut conn = Conn::open(node.hapax.address());
            conn.write(&pay(&key).bytes());
            conn.read_bytes(300);
            leaving.leave(conn);
            assert_eq!(refused(&settled(&node, &pay(&key))), (409, "answer-not-kept".into()), "{key}");
            node.ledger.assert_once(&key);
        }
    }
    assert_nothing_left(&node);
}

/// Two hundred at a time, each leaving a little later than the one before: from before the head to after the answer.
fn a_crowd_that_leaves_at_any_moment(kept: Kept) {
    const CROWD: usize = 200;
    let node = start(kept);
    node.ledger.on("*", Behaviour::Delay(Duration::from_millis(20)));
    let address = node.hapax.address();
    std::thread::scope(|scope| {
        for at in 0..CROWD {
            scope.spawn(move || {
                let bytes = pay(&format!("k-{at}")).bytes();
                let mut conn = Conn::open(address);
                conn.write(&bytes[..bytes.len().min(2 * at)]);
                conn.set_deadline(Duration::from_millis(1 + at as u64 / 4));
                // What comes within the time does not matter; that the client goes at its end does.
                let _ = conn.read_response();
                WAYS[at % 2].leave(conn);
            });
        }
    });
    for at in 0..CROWD {
        let key = format!("k-{at}");
        let retry = settled(&node, &pay(&key));
        assert_eq!(retry.status, 201, "{key}: {}", retry.text());
        assert_one(&node, &key, &pay(&key), &retry);
    }
    node.ledger.assert_each_once(CROWD);
    assert_nothing_left(&node);
}
