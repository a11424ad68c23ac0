//! What somebody meets on the first day: ids of requests in every log, a node that says goodbye, a log that can be turned up,
//! and commands that work beside a broken file.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

use std::process::{Command, Output};
use std::time::Duration;

use crate::node::{Kept, Node, pay, refused, start, start_with, unkeyed};
use hapax_testkit::ledger::{Answer, Behaviour};
use hapax_testkit::raw_http::{Conn, ReadError, Response, request};
use hapax_testkit::wait::until;
use serde_json::Value;
use tokio::time::Instant;

/// More than any machine needs.
const SOON: Duration = Duration::from_secs(20);

/// The line of the log that holds this text, read as JSON.
#[track_caller]
fn line(node: &Node, text: &str) -> Value {
    let line = node.hapax.line_with(text);
    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

/// The line that a request has left.
#[track_caller]
fn request_line(node: &Node, request_id: &str) -> Value {
    let of = |line: &&str| line.contains("\"hapax::request\"") && line.contains(&format!("\"{request_id}\""));
    let mut found = None;
    until("the request has left a line", SOON, || {
        found = node.hapax.stderr().lines().find(of).map(str::to_owned);
        found.is_some()
    });
    serde_json::from_str(&found.unwrap()).unwrap()
}

fn command(node: &Node, args: &[&str]) -> Output {
    let store = format!("sqlite:{}", node.hapax.dir().join("hapax.db").display());
    let mut command = Command::new(env!("CARGO_BIN_EXE_hapax"));
    command.args(args).args(["--store", &store]).current_dir(node.hapax.dir()).output().unwrap()
}

#[track_caller]
fn shown(node: &Node, key: &str) -> String {
    let output = command(node, &["keys", "show", key]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn id_of(response: &Response) -> String {
    let all = response.all("x-request-id");
    assert_eq!(all.len(), 1, "{:?}", response.headers);
    all[0].to_owned()
}

#[test]
fn the_id_that_a_client_gives_is_in_the_response_at_the_upstream_in_the_log_and_in_the_record() {
    let node = start(Kept::Sqlite);
    let first = node.send(&pay("k").header("X-Request-Id", "mine-1"));
    assert_eq!((first.status, id_of(&first).as_str()), (201, "mine-1"));
    assert_eq!(node.ledger.last().all("x-request-id"), ["mine-1"]);
    let shown = shown(&node, "k");
    for label in ["label           request-id=mine-1", "label           method=POST", "label           path=/payments"]
    {
        assert!(shown.contains(label), "{label}: {shown}");
    }
    let line = request_line(&node, "mine-1");
    let said = ["outcome", "state", "route", "level"].map(|name| line[name].as_str().unwrap().to_owned());
    assert_eq!(said, ["created", "completed", "default", "INFO"]);
    assert_eq!((line["status"].as_u64(), line["attempt"].as_u64()), (Some(201), Some(1)));
    assert!(line["duration_ms"].as_f64().is_some() && line["timestamp"].as_str().unwrap().starts_with("20"), "{line}");
    assert!(shown.contains(line["id"].as_str().unwrap()), "{shown}");

    let retry = node.send(&pay("k").header("X-Request-Id", "mine-2"));
    assert_eq!((retry.is_replay(), id_of(&retry).as_str()), (true, "mine-2"));
    let replayed = request_line(&node, "mine-2");
    assert_eq!((replayed["outcome"].as_str(), &replayed["id"]), (Some("replayed"), &line["id"]));
    node.ledger.assert_once("k");
}

#[test]
fn every_response_names_its_request() {
    let node = start(Kept::Sqlite);
    let passed = node.send(&request("GET", "/things").header("X-Request-Id", "got-1"));
    assert_eq!((passed.status, id_of(&passed).as_str()), (200, "got-1"));
    assert_eq!(node.ledger.last().all("x-request-id"), ["got-1"]);
    let refusal = node.send(&unkeyed("{}").header("X-Request-Id", "no-1"));
    assert_eq!((refused(&refusal), id_of(&refusal).as_str()), ((400, "key-missing".into()), "no-1"));
    assert_eq!(refusal.json()["request_id"], "no-1");
    assert_eq!(line(&node, "\"no-1\"")["code"], "key-missing");
    node.ledger.refuse(true);
    node.ledger.cut_connections();
    let unreachable = node.send(&pay("k").header("X-Request-Id", "down-1"));
    assert_eq!((unreachable.status, id_of(&unreachable).as_str()), (502, "down-1"));
    node.ledger.refuse(false);
    let mut conn = Conn::open(node.hapax.address());
    conn.write(b"GET / HTTP/1.1\r\nX-Request-Id: bad-1\r\n\r\n");
    let bad = conn.read_response().unwrap();
    assert_eq!((refused(&bad), id_of(&bad).as_str()), ((400, "bad-host".into()), "bad-1"));
    // What cannot be read has no id of its own.
    let mut conn = Conn::open(node.hapax.address());
    conn.write(b"GET / HTTP/1.1\r\nHost: a\r\nX-Request-Id: bad-2\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n");
    let bad = conn.read_response().unwrap();
    assert_eq!(refused(&bad).1, "bad-framing");
    assert_eq!(bad.json()["request_id"].as_str(), Some(id_of(&bad).as_str()));
}

#[test]
fn an_id_that_is_not_sane_is_replaced_before_anybody_sees_it() {
    let node = start(Kept::Sqlite);
    let long = "x".repeat(129);
    for (nth, odd) in ["a b", "a\"b", "", &long].into_iter().enumerate() {
        let response = node.send(&pay(&format!("k-{nth}")).header("X-Request-Id", odd));
        let id = id_of(&response);
        assert!(id.len() == 16 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{odd}: {id}");
        assert_eq!(node.ledger.last().all("x-request-id"), [id.as_str()], "{odd}");
    }
    let twice =
        node.send(&pay("twice").header("X-Request-Id", "a").header("X-Request-Id", "b").header("X_Request_Id", "c"));
    assert_eq!(node.ledger.last().all("x-request-id"), [id_of(&twice).as_str()]);
    assert!(node.ledger.last().all("x_request_id").is_empty(), "what some servers take for the same field");
}

#[test]
fn an_upstream_that_has_ids_of_its_own_keeps_them_under_another_name() {
    let node = start(Kept::Sqlite);
    let headers = vec![("X-Request-Id".to_owned(), "req_theirs".to_owned())];
    node.ledger.on("k", Behaviour::Answer(Answer { status: 201, headers, ..Answer::default() }));
    for (nth, id) in ["mine-1", "mine-2"].into_iter().enumerate() {
        let response = node.send(&pay("k").header("X-Request-Id", id));
        assert_eq!((response.is_replay(), id_of(&response).as_str()), (nth == 1, id));
        assert_eq!(response.header("x-upstream-request-id"), Some("req_theirs"));
    }
    let headers = vec![("X-Request-Id".to_owned(), "echo-1".to_owned())];
    node.ledger.on("echo", Behaviour::Answer(Answer { status: 201, headers, ..Answer::default() }));
    let echoed = node.send(&pay("echo").header("X-Request-Id", "echo-1"));
    assert_eq!((id_of(&echoed).as_str(), echoed.header("x-upstream-request-id")), ("echo-1", None));
}

#[test]
fn a_trace_is_passed_on_as_it_came_and_named_in_the_record() {
    let node = start(Kept::Sqlite);
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    node.send(&pay("k").header("traceparent", parent).header("tracestate", "vendor=1"));
    let last = node.ledger.last();
    assert_eq!((last.header("traceparent"), last.header("tracestate")), (Some(parent), Some("vendor=1")));
    assert!(shown(&node, "k").contains("trace-id=4bf92f3577b34da6a3ce929d0e0e4736"));
    let other = "00-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-00f067aa0ba902b7-00";
    assert!(node.send(&pay("k").header("traceparent", other)).is_replay(), "a trace is no part of the request");
    node.send(&pay("none"));
    assert_eq!(node.ledger.last().header("traceparent"), None, "none is made up");
}

#[test]
fn the_field_of_the_id_can_be_another_one() {
    let config = "[server]\nrequest_id_header = \"X-Correlation-Id\"\n";
    let node = start_with(Kept::Sqlite, |builder| builder.with_config(config));
    let response = node.send(&pay("k").header("X-Correlation-Id", "mine-1").header("X-Request-Id", "other"));
    assert_eq!(response.header("x-correlation-id"), Some("mine-1"));
    assert_eq!(response.header("x-request-id"), None);
    let last = node.ledger.last();
    assert_eq!((last.header("x-correlation-id"), last.header("x-request-id")), (Some("mine-1"), Some("other")));
}

#[test]
fn what_work_logs_names_its_request_also_when_the_client_is_gone() {
    let node = start_with(Kept::Sqlite, |builder| builder.with_config("[log]\nlevel = \"info\"\n"));
    node.ledger.hold("k");
    let mut conn = Conn::open(node.hapax.address());
    conn.write(&pay("k").header("X-Request-Id", "gone-1").bytes());
    node.ledger.wait_until_received("k");
    drop(conn);
    node.ledger.release("k");
    let line = request_line(&node, "gone-1");
    assert_eq!((line["outcome"].as_str(), line["state"].as_str()), (Some("created"), Some("completed")));
    node.ledger.next("lost", Behaviour::Drop);
    node.send(&pay("lost").header("X-Request-Id", "lost-1"));
    let line = request_line(&node, "lost-1");
    assert_eq!((line["state"].as_str(), line["status"].as_u64()), (Some("unknown"), Some(504)));
    assert!(line["why"].is_string(), "{line}");
}

#[test]
fn what_is_observed_says_whose_request_it_was_and_where_it_went() {
    let node = start_with(Kept::Sqlite, |builder| builder.with_arg("--observe"));
    node.send(&unkeyed("{}").header("X-Request-Id", "old-client"));
    node.send(&pay("k").header("X-Request-Id", "new-client"));
    let callers: Vec<Value> = ["old-client", "new-client"]
        .into_iter()
        .zip(["key-missing", "created"])
        .map(|(id, outcome)| {
            let line = line(&node, &format!("\"{id}\""));
            let said = ["outcome", "client", "route", "method", "path"]
                .map(|name| line[name].as_str().unwrap_or("-").to_owned());
            assert_eq!(said, [outcome, "127.0.0.1", "default", "POST", "/payments"], "{line}");
            line["caller"].clone()
        })
        .collect();
    assert!(callers[0].as_str().is_some_and(|digest| digest.len() == 12) && callers[0] == callers[1], "{callers:?}");
    assert!(!node.hapax.stderr().contains("alice-secret"));
}

#[test]
fn a_node_that_is_about_to_end_is_not_ready_and_still_serves_for_a_while() {
    let config = "[server]\ndrain_delay = \"60s\"\n";
    let mut node = start_with(Kept::Sqlite, |builder| builder.with_config(config));
    node.hapax.signal("TERM");
    until("it says that it is not ready", SOON, || node.hapax.ask_admin("/readyz").status == 503);
    assert!(node.hapax.ask_admin("/readyz?verbose").text().contains("[-] draining"));
    for nth in 0..3 {
        assert_eq!(node.send(&pay(&format!("k-{nth}"))).status, 201, "a new connection is accepted");
    }
    let told_again = Instant::now();
    node.hapax.signal("TERM");
    assert_eq!(node.hapax.wait(), Some(0), "a second signal ends the delay, and what ran is recorded");
    assert!(told_again.elapsed() < Duration::from_secs(30));
    assert!(matches!(pay("late").try_send(node.hapax.address()), Err(ReadError::Refused(_))));
    assert!(node.hapax.stderr().contains("everything that ran is recorded"), "{}", node.hapax.stderr());
}

#[test]
fn the_delay_ends_by_itself_and_nobody_at_a_terminal_waits_for_it() {
    let config = |delay: &str| format!("[server]\ndrain_delay = \"{delay}\"\n");
    let mut node = start_with(Kept::Sqlite, |builder| builder.with_config(&config("300ms")));
    let begun = Instant::now();
    assert_eq!(node.hapax.terminate(), Some(0));
    assert!(begun.elapsed() >= Duration::from_millis(300));
    let mut node = start_with(Kept::Sqlite, |builder| builder.with_config(&config("60s")));
    let begun = Instant::now();
    node.hapax.signal("INT");
    assert_eq!(node.hapax.wait(), Some(0));
    assert!(begun.elapsed() < Duration::from_secs(30), "Ctrl-C does not wait");
}

#[test]
fn the_level_of_the_log_is_reloaded_and_the_line_says_what_changed() {
    let mut node = start_with(Kept::Sqlite, |builder| builder.with_config("[defaults]\nretention = \"1d\"\n"));
    node.send(&pay("before"));
    assert!(!node.hapax.stderr().contains("a state-changing request"));
    node.hapax.write_config("[defaults]\nretention = \"2d\"\n[log]\nlevel = \"debug\"\n");
    node.hapax.hup();
    let reloaded = line(&node, "the configuration was reloaded");
    let changed = reloaded["changed"].as_str().unwrap();
    assert!(changed.contains("defaults.retention: \"24h\" -> \"2d\""), "{changed}");
    assert!(changed.contains("log.level: \"info\" -> \"debug\""), "{changed}");
    assert!(!changed.contains("defaults.lease"), "{changed}");
    node.send(&pay("after"));
    node.hapax.line_with("a state-changing request");
    node.hapax.write_config("[log]\nlevel = \"warn\"\n");
    node.hapax.hup();
    until("it is quiet", SOON, || node.hapax.metric("hapax_reload_total{result=\"applied\"}") == 2.0);
    node.send(&pay("quiet").header("X-Request-Id", "quiet-1"));
    node.hapax.terminate();
    assert!(!node.hapax.stderr().contains("quiet-1"), "{}", node.hapax.stderr());
}

#[test]
fn without_a_terminal_the_start_is_one_line_of_the_log() {
    let node = start(Kept::Sqlite);
    let started = line(&node, "\"serving\"");
    assert_eq!(started["listening"].as_str(), Some(node.hapax.url().as_str()));
    assert!(started["protects"].as_str().unwrap().contains("POST and PATCH"), "{started}");
    assert_eq!(node.hapax.stdout(), "", "standard output and error are one stream in a container");
    let for_people = start_with(Kept::Sqlite, |builder| builder.with_env("HAPAX_LOG_FORMAT", "pretty"));
    for_people.hapax.line_with("Try it twice");
    assert!(for_people.hapax.stdout().contains("Try it twice"), "asked for by name");
}

#[test]
fn a_store_that_a_flag_names_is_looked_at_beside_a_broken_file() {
    let node = start(Kept::Sqlite);
    node.send(&pay("k"));
    let ledger = node.hapax.dir().join("ledger.csv");
    std::fs::write(&ledger, "idempotency_key\nk\n").unwrap();
    let ledger = ledger.to_str().unwrap().to_owned();
    let since = ["--since", "2020-01-01", "--match", "key=idempotency_key"];
    let reconcile = [&["reconcile", "--ledger", &ledger], &since[..]].concat();
    let commands: [&[&str]; 7] = [
        &["status"],
        &["keys", "list"],
        &["keys", "show", "k"],
        &["audit"],
        &["store", "fence", "--show"],
        &["keys", "purge", "k", "--keys-unique", "--reason", "x", "--yes"],
        &reconcile,
    ];
    let outcome = |args: &[&str]| {
        let output = command(&node, args);
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for broken in ["[routes\n", "[defaults]\nretenton = \"1h\"\n"] {
        for args in commands {
            let _ = std::fs::remove_file(node.hapax.dir().join("hapax.toml"));
            let sound = outcome(args);
            std::fs::write(node.hapax.dir().join("hapax.toml"), broken).unwrap();
            let beside = outcome(args);
            assert!(!beside.1.contains("hapax.toml"), "{args:?}: {}", beside.1);
            assert_eq!(beside.0 == Some(2), sound.0 == Some(2), "{args:?}: {} {}", sound.1, beside.1);
        }
        let fence = ["store", "fence", "--raise", "--since", "2020-01-01", "--reason", "x"];
        assert!(outcome(&fence).1.contains("hapax.toml"), "it must know how long answers are kept");
    }
}
