//! What strangers can make a node write into its log: lines of each kind are limited by the second, what was left out is
//! told, metrics count everything, and lines about the state of the node are always there.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::node::{Kept, Node, pay, start_with, unkeyed};
use hapax_testkit::hapax::Hapax;
use hapax_testkit::raw_http::{Conn, request};
use hapax_testkit::wait;

/// So many requests, or connections, of each kind.
const FLOOD: u64 = 300;
/// Few lines, so that even a slow machine sends more than it may log.
const PER_SECOND: u64 = 5;

fn flooded(config: &str) -> Node {
    let config = format!("{config}[log]\nformat = \"json\"\nrequests_per_second = {PER_SECOND}\n");
    start_with(Kept::Sqlite, |builder| builder.with_config(&config))
}

/// How many lines there are with that message, and how many were left out by what they say.
fn logged(hapax: &Hapax, message: &str) -> (u64, u64) {
    let text = hapax.stderr();
    let lines = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let own = lines.filter(|line| line["message"].as_str().is_some_and(|it| it.starts_with(message)));
    own.fold((0, 0), |(lines, left_out), line| (lines + 1, left_out + line["left_out"].as_u64().unwrap_or(0)))
}

/// Causes a line [`FLOOD`] times: few of them are written, and all are told of by the next ones.
#[track_caller]
fn assert_limited(hapax: &Hapax, message: &str, mut cause: impl FnMut()) -> u64 {
    let begun_ms = hapax::clock::boot_ms();
    (0..FLOOD).for_each(|_| cause());
    let seconds = (hapax::clock::boot_ms() - begun_ms) / 1000 + 2;
    let (lines, _) = logged(hapax, message);
    assert!(lines <= PER_SECOND * seconds, "{lines} lines of {message:?} in {seconds} s");
    let mut sent = FLOOD;
    wait::until(&format!("every {message:?} is written or told of"), Duration::from_secs(60), || {
        cause();
        sent += 1;
        // The next second begins meanwhile.
        wait::pass(Duration::from_millis(300));
        let (lines, left_out) = logged(hapax, message);
        left_out > 0 && lines + left_out == sent
    });
    sent
}

fn raw(to: SocketAddr, bytes: &str) {
    let mut client = TcpStream::connect(to).unwrap();
    client.write_all(bytes.as_bytes()).unwrap();
    // The refusal, to the end of the connection.
    client.read_to_end(&mut Vec::new()).unwrap();
}

#[test]
fn a_flood_of_refusals_by_the_layer_is_told_in_few_lines_and_counted_exactly() {
    let node = flooded("");
    let mut conn = Conn::open(node.hapax.address());
    let refused = unkeyed("{}");
    let sent = assert_limited(&node.hapax, "refused", || assert_eq!(conn.send(&refused).status, 400));
    assert_eq!(node.hapax.metric("hapax_refused_total{reason=\"key-missing\"}"), sent as f64);
    assert_eq!(node.send(&pay("k")).status, 201);
    node.hapax.line_with("hapax::request");
}

#[test]
fn a_flood_of_refusals_by_the_listener_is_told_in_few_lines_and_counted_exactly() {
    let node = flooded("");
    let bad = "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n";
    let sent = assert_limited(&node.hapax, "refused", || raw(node.hapax.address(), bad));
    assert_eq!(node.hapax.metric("hapax_refused_total{reason=\"bad-framing\"}"), sent as f64);
}

#[test]
fn a_flood_of_refused_callers_is_told_in_few_lines() {
    let node = flooded("");
    let mut conn = Conn::open(node.hapax.address());
    let unknown = request("POST", "/payments").header("Idempotency-Key", "k").body("{}");
    assert_limited(&node.hapax, "refused", || assert_eq!(conn.send(&unknown).status, 401));
}

#[test]
fn a_flood_of_requests_to_an_upstream_that_is_away_is_told_in_few_lines() {
    let config = format!("[log]\nformat = \"json\"\nrequests_per_second = {PER_SECOND}\n");
    let nobody = hapax_testkit::port::loopback(hapax_testkit::port::free());
    let hapax = Hapax::builder(env!("CARGO_BIN_EXE_hapax")).with_upstream(&format!("http://{nobody}"));
    let hapax = hapax.with_config(&config).start();
    let mut conn = Conn::open(hapax.address());
    let get = request("GET", "/");
    assert_limited(&hapax, "the upstream gave no answer", || assert_eq!(conn.send(&get).status, 502));
}

#[test]
fn a_flood_of_observed_requests_is_told_in_few_lines_and_no_path_makes_a_long_one() {
    let node = flooded("[defaults]\nmode = \"observe\"\n");
    let mut conn = Conn::open(node.hapax.address());
    let long = request("POST", &format!("/{}", "p".repeat(6000))).header("Authorization", "Bearer a").body("{}");
    assert_limited(&node.hapax, "observed", || assert!(conn.send(&long).status < 500));
    let text = node.hapax.stderr();
    let longest = text.lines().filter(|line| line.contains("observed")).map(str::len).max().unwrap();
    assert!(longest < 1500, "{longest} bytes");
}

/// h2 has a line for every answer to a PING that was never sent.
#[test]
fn a_flood_of_frames_that_a_crate_complains_of_is_told_in_few_lines() {
    let node = flooded("");
    let mut client = TcpStream::connect(node.hapax.address()).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    client.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    client.write_all(&settings).unwrap();
    let answer_to_ping = [0, 0, 8, 6, 1, 0, 0, 0, 0, b'n', b'o', b'b', b'o', b'd', b'y', b'.', b'.'];
    assert_limited(&node.hapax, "recv PING ack", || client.write_all(&answer_to_ping).unwrap());
}

#[test]
fn lines_about_the_state_of_a_node_are_there_whatever_else_floods_the_log() {
    let mut node = flooded("");
    let mut conn = Conn::open(node.hapax.address());
    let refused = unkeyed("{}");
    for round in 0..3 {
        (0..50).for_each(|_| assert_eq!(conn.send(&refused).status, 400));
        let [old, new] = [PER_SECOND + round, PER_SECOND + round + 1];
        node.hapax.write_config(&format!("[log]\nformat = \"json\"\nrequests_per_second = {new}\n"));
        node.hapax.hup();
        node.hapax.line_with(&format!("log.requests_per_second: {old} -> {new}"));
    }
    let (lines, _) = logged(&node.hapax, "refused");
    assert!(lines < 150, "{lines}");
}
