//! What a node does beside requests, seen from outside: after a crash it finds out what became of a request, without a
//! person where a probe is configured, and it forgets what has expired.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

use std::os::unix::fs::PermissionsExt as _;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::node::{self, Kept, Node, builder, on_both_stores, pay, refused};
use hapax_testkit::hapax::{Builder, Hapax};
use hapax_testkit::ledger::{Answer, Behaviour};
use hapax_testkit::raw_http::{ReadError, Response};
use hapax_testkit::wait::until;
use tempfile::TempDir;
use tokio::time::Instant;

on_both_stores! {
    after_a_crash_a_probe_that_finds_the_payment_answers_the_retry
    after_a_crash_a_probe_that_finds_no_payment_lets_it_run_once_it_counts
    after_a_crash_a_declined_payment_is_a_recorded_failure
    without_a_probe_it_stays_unknown_and_is_counted
    a_probe_that_cannot_tell_leaves_it_to_a_person
    a_probe_that_recovers_in_time_still_settles_it
    a_probe_gets_its_secret_and_what_it_asks_for
    a_kept_key_answers_410_and_a_free_one_runs_again
    a_probe_may_be_added_by_a_reload
    draining_waits_for_no_sweep
    without_a_probe_one_command_settles_it
    truth_that_comes_after_a_verdict_is_recorded_counted_and_noted
    truth_that_comes_after_a_purge_is_counted_and_noted
    a_route_whose_probe_never_answers_does_not_hold_up_another
    a_probe_is_asked_under_the_host_that_it_names
    a_fence_that_stands_is_counted_and_shown
}

/// Long enough for a busy machine; nothing here takes more than a few seconds.
const PATIENCE: Duration = Duration::from_secs(30);

const SETTLE: Duration = Duration::from_secs(2);

/// A node of one tenant, so that probes may ask by key and tests know what is asked for.
fn start_with(kept: Kept, change: impl FnOnce(Builder) -> Builder) -> Node {
    node::start_with(kept, |builder| change(builder.with_scope("single")))
}

/// Everything lapses, settles and is asked about within seconds.
fn config(probe: &str) -> String {
    format!(
        r#"
[upstream]
answer_timeout = "2s"

[background]
sweep_every = "200ms"
reap_every = "200ms"
reconcile_every = "200ms"

[defaults]
lease = "1s"
retention = "1h"

[[route]]
methods = ["POST"]
path = "/payments"
settle_after = "{}ms"
probe_backoff = "200ms"
probe_attempts = 3
labels = {{ currency = "request:/currency" }}
{probe}
"#,
        SETTLE.as_millis()
    )
}

/// Asks for a page of its own for every key, so that a test can say how each is answered.
const PROBE: &str =
    r#"probe = { get = "/look-up/{key}", happened_if = "/status=succeeded", declined = "402", timeout = "500ms" }"#;

fn look_up(key: &str) -> String {
    format!("/look-up/{key}")
}

fn succeeded() -> Behaviour {
    let headers = vec![("Content-Type".to_owned(), "application/json".to_owned())];
    let body = br#"{"id":"p-1","status":"succeeded"}"#.to_vec();
    Behaviour::Answer(Answer { status: 200, headers, body, ..Answer::default() })
}

/// A payment that the upstream has received and not answered.
fn begin(node: &Node, key: &str) -> JoinHandle<Result<Response, ReadError>> {
    node.ledger.hold(key);
    let (payment, address) = (pay(key), node.hapax.address());
    let first = std::thread::spawn(move || payment.try_send(address));
    node.ledger.wait_until_received(key);
    first
}

/// Kills the node while those payments are under way, and starts it again.
fn crash_amid(node: &mut Node, keys: &[&str]) {
    let first: Vec<_> = keys.iter().map(|key| begin(node, key)).collect();
    node.hapax.kill_9();
    for first in first {
        assert!(first.join().unwrap().is_err());
    }
    keys.iter().for_each(|key| node.ledger.release(*key));
    node.hapax.restart();
}

/// Sends the payment again until it gets another answer than 409.
fn retry_until_answered(node: &Node, key: &str) -> Response {
    let mut answer = None;
    until("a retry is answered", PATIENCE, || {
        let retry = node.send(&pay(key));
        match refused(&retry) {
            (409, code) => assert!(code == "in-progress" || code == "outcome-unknown", "{code}"),
            _ => answer = Some(retry),
        }
        answer.is_some()
    });
    answer.unwrap()
}

fn after_a_crash_a_probe_that_finds_the_payment_answers_the_retry(kept: Kept) {
    let mut node = start_with(kept, |builder| builder.with_config(&config(PROBE)));
    node.ledger.on(&look_up("k"), succeeded());
    crash_amid(&mut node, &["k"]);
    let retry = retry_until_answered(&node, "k");
    assert_eq!((retry.status, retry.is_replay()), (200, true));
    assert_eq!(retry.text(), r#"{"id":"p-1","status":"succeeded"}"#);
    assert_eq!(retry.header("content-type"), Some("application/json"));
    node.ledger.assert_once("k");
    assert_eq!(node.send(&pay("k")).text(), retry.text(), "and it stays so");
    assert_eq!(node.hapax.metric("hapax_lapsed_total"), 1.0);
    assert_eq!(node.hapax.metric(r#"hapax_reconcile_total{outcome="resolved"}"#), 1.0);
    until("nothing waits any longer", PATIENCE, || node.hapax.metric("hapax_unknown") == 0.0);
}

fn after_a_crash_a_probe_that_finds_no_payment_lets_it_run_once_it_counts(kept: Kept) {
    let mut node = start_with(kept, |builder| builder.with_config(&config(PROBE)));
    node.ledger.on(&look_up("k"), Behaviour::answer(404, "{}"));
    crash_amid(&mut node, &["k"]);
    let restarted = Instant::now();
    until("the lapse is noticed", PATIENCE, || node.hapax.metric("hapax_lapsed_total") == 1.0);
    let retry = retry_until_answered(&node, "k");
    // Half a second for the sweep that noticed the lapse before this test did.
    assert!(restarted.elapsed() >= SETTLE - Duration::from_millis(500), "{:?}", restarted.elapsed());
    assert_eq!((retry.status, retry.is_replay()), (201, false));
    let attempts: Vec<_> = node.ledger.executions("k").into_iter().map(|entry| entry.attempt.unwrap()).collect();
    assert_eq!(attempts, ["1", "2"], "the probe said that the first had no effect");
    assert!(node.hapax.metric(r#"hapax_reconcile_total{outcome="too_soon"}"#) >= 1.0);
    assert!(node.send(&pay("k")).is_replay());
}

fn after_a_crash_a_declined_payment_is_a_recorded_failure(kept: Kept) {
    let mut node = start_with(kept, |builder| builder.with_config(&config(PROBE)));
    node.ledger.on(&look_up("k"), Behaviour::answer(402, r#"{"status":"declined"}"#));
    crash_amid(&mut node, &["k"]);
    let retry = retry_until_answered(&node, "k");
    assert_eq!((retry.status, retry.is_replay(), retry.text().as_str()), (402, true, r#"{"status":"declined"}"#));
    node.ledger.assert_once("k");
}

fn without_a_probe_it_stays_unknown_and_is_counted(kept: Kept) {
    let mut node = start_with(kept, |builder| builder.with_config(&config("")));
    crash_amid(&mut node, &["k"]);
    until("it is counted", PATIENCE, || node.hapax.metric("hapax_unknown") == 1.0);
    until("it grows old", PATIENCE, || node.hapax.metric("hapax_oldest_unknown_seconds") >= 1.0);
    assert_eq!(refused(&node.send(&pay("k"))), (409, "outcome-unknown".into()));
    assert_eq!(node.hapax.metric("hapax_dead"), 0.0, "nobody gave up on it");
    assert!(node.hapax.metric(r#"hapax_duplicates_total{route="POST /payments"}"#) >= 1.0);
    node.ledger.assert_once("k");
}

fn a_probe_that_cannot_tell_leaves_it_to_a_person(kept: Kept) {
    let mut node = start_with(kept, |builder| builder.with_config(&config(PROBE)));
    let elsewhere = Answer {
        status: 302,
        headers: vec![("Location".to_owned(), format!("{}/found", node.ledger.url()))],
        ..Answer::default()
    };
    node.ledger.on("/found", succeeded());
    let answers = [
        ("hangs", Behaviour::Hang),
        ("lies", Behaviour::answer(200, "<html>it works</html>")),
        ("other", Behaviour::answer(200, r#"{"status":"processing"}"#)),
        ("redirects", Behaviour::Answer(elsewhere)),
        ("fails", Behaviour::answer(500, r#"{"status":"succeeded"}"#)),
        ("breaks", Behaviour::ResetInBody),
        ("large", Behaviour::LargeBody(2 * 1024 * 1024)),
    ];
    for (key, answer) in &answers {
        node.ledger.on(&look_up(key), answer.clone());
    }
    let keys = answers.map(|(key, _)| key);
    crash_amid(&mut node, &keys);
    until("a person has to decide", PATIENCE, || node.hapax.metric("hapax_dead") == keys.len() as f64);
    for key in keys {
        assert_eq!(refused(&node.send(&pay(key))), (409, "outcome-unknown".into()), "{key}");
        node.ledger.assert_once(key);
        let asked = node.ledger.received().iter().filter(|request| request.target == look_up(key)).count();
        assert_eq!(asked, 3, "{key}");
    }
    assert_eq!(node.ledger.received().iter().filter(|request| request.target == "/found").count(), 0);
    assert_eq!(node.hapax.metric(r#"hapax_reconcile_total{outcome="failed"}"#), keys.len() as f64);
    assert_eq!(node.hapax.metric("hapax_unknown"), 0.0);
}

fn a_probe_that_recovers_in_time_still_settles_it(kept: Kept) {
    let mut node = start_with(kept, |builder| builder.with_config(&config(PROBE)));
    node.ledger.on(&look_up("k"), succeeded());
    node.ledger.next(&look_up("k"), Behaviour::answer(500, "{}"));
    node.ledger.next(&look_up("k"), Behaviour::Drop);
    crash_amid(&mut node, &["k"]);
    assert_eq!(retry_until_answered(&node, "k").status, 200);
    assert_eq!(node.hapax.metric(r#"hapax_reconcile_total{outcome="scheduled"}"#), 2.0);
    node.ledger.assert_once("k");
}

fn a_probe_gets_its_secret_and_what_it_asks_for(kept: Kept) {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("token");
    std::fs::write(&file, "Bearer probe-secret\n").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let probe = format!(
        "probe = {{ get = \"/find?key={{key}}&in={{label:currency}}&route={{label:route}}\", answer = \"probe:201\", \
         header = \"Authorization\", value_file = \"{}\" }}",
        file.display()
    );
    let mut node = start_with(kept, |builder| builder.with_config(&config(&probe)));
    node.ledger.on("/find", succeeded());
    crash_amid(&mut node, &["a b/c&d=?#%00"]);
    let retry = retry_until_answered(&node, "a b/c&d=?#%00");
    assert_eq!((retry.status, retry.text().as_str()), (201, r#"{"id":"p-1","status":"succeeded"}"#));
    let asked = node.ledger.received().into_iter().find(|request| request.target.starts_with("/find")).unwrap();
    assert_eq!(asked.target, "/find?key=a%20b%2Fc%26d%3D%3F%23%2500&in=EUR&route=POST%20%2Fpayments");
    assert_eq!((asked.method.as_str(), asked.header("authorization")), ("GET", Some("Bearer probe-secret")));
    assert_eq!((asked.header("idempotency-key"), asked.body.len()), (None, 0));
    assert!(!node.hapax.stderr().contains("probe-secret"));
}

fn a_kept_key_answers_410_and_a_free_one_runs_again(kept: Kept) {
    let short = "[[route]]\npath = \"/payments/kept\"\nretention = \"2s\"\nkeep_expired = \"30d\"\n\
                 [[route]]\npath = \"/payments/free\"\nretention = \"2s\"\n";
    let node = start_with(kept, |builder| builder.with_config(&format!("{}{short}", config(""))));
    let send = |path: &str| {
        let request = hapax_testkit::raw_http::request("POST", path).header("Authorization", "Bearer alice-secret");
        node.send(&request.header("Idempotency-Key", path).body("{}"))
    };
    for path in ["/payments/kept", "/payments/free"] {
        assert_eq!(send(path).status, 201);
        assert!(send(path).is_replay());
    }
    until("one is a tombstone", PATIENCE, || node.hapax.metric("hapax_expired_total") == 1.0);
    until("the other is deleted", PATIENCE, || node.hapax.metric("hapax_reaped_total") == 1.0);
    assert_eq!(refused(&send("/payments/kept")), (410, "key-expired".into()));
    node.ledger.assert_once("/payments/kept");
    let again = send("/payments/free");
    assert_eq!((again.status, again.is_replay()), (201, false));
}

fn a_probe_may_be_added_by_a_reload(kept: Kept) {
    let mut node = start_with(kept, |builder| builder.with_config(&config("")));
    node.ledger.on(&look_up("k"), succeeded());
    node.hapax.write_config(&config(PROBE));
    node.hapax.hup();
    node.hapax.line_with("the configuration was reloaded");
    // The upstream closes the connection without an answer: it happened, and nobody is told.
    node.ledger.next("k", Behaviour::Drop);
    assert_eq!(refused(&node.send(&pay("k"))), (504, "outcome-unknown".into()));
    assert_eq!(retry_until_answered(&node, "k").status, 200);
    node.ledger.assert_once("k");
}

fn draining_waits_for_no_sweep(kept: Kept) {
    let probe = r#"probe = { get = "/look-up/{key}", timeout = "1m" }"#;
    let mut node = start_with(kept, |builder| builder.with_config(&config(probe)));
    node.ledger.on(&look_up("k"), Behaviour::Hang);
    node.ledger.next("k", Behaviour::Drop);
    assert_eq!(node.send(&pay("k")).status, 504);
    node.ledger.wait_until_received(&look_up("k"));
    let begun = Instant::now();
    assert_eq!(node.hapax.terminate(), Some(0));
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

fn a_route_whose_probe_never_answers_does_not_hold_up_another(kept: Kept) {
    let refunds = "[[route]]\nmethods = [\"POST\"]\npath = \"/refunds\"\nsettle_after = \"5m\"\n\
                   probe = { get = \"/hangs/{key}\", timeout = \"5m\" }\n";
    // It hangs for longer than the test waits.
    let config = config(PROBE).replace("answer_timeout = \"2s\"", "answer_timeout = \"5m\"");
    let config = config.replace("settle_after = \"2000ms\"", "settle_after = \"5m\"");
    let node = start_with(kept, |builder| builder.with_config(&format!("{config}{refunds}")));
    node.ledger.on(&look_up("k"), succeeded());
    for key in (0..20).map(|key| format!("refund-{key}")) {
        node.ledger.on(&format!("/hangs/{key}"), Behaviour::Hang);
        node.ledger.next(&key, Behaviour::Drop);
        let refund =
            hapax_testkit::raw_http::request("POST", "/refunds").header("Authorization", "Bearer alice-secret");
        assert_eq!(node.send(&refund.header("Idempotency-Key", &key).body("{}")).status, 504);
    }
    let hang = || node.ledger.received().iter().filter(|request| request.target.starts_with("/hangs/")).count();
    until("as many hang as may", PATIENCE, || hang() == 16);
    node.ledger.next("k", Behaviour::Drop);
    assert_eq!(node.send(&pay("k")).status, 504);
    assert_eq!(retry_until_answered(&node, "k").status, 200);
    assert_eq!(hang(), 16);
}

fn a_probe_is_asked_under_the_host_that_it_names(kept: Kept) {
    let probe = |host: &str| format!("probe = {{ get = \"/look-up/{{key}}\"{host} }}");
    for (keep_host, host, asked_under) in [
        ("true", "", None),
        ("true", ", host = \"bank.example:8443\"", Some("bank.example:8443")),
        ("false", ", host = \"bank.example\"", Some("bank.example")),
    ] {
        let config = config(&probe(host)).replace("[upstream]", &format!("[upstream]\nkeep_host = {keep_host}"));
        let node = start_with(kept, |builder| builder.with_config(&config));
        node.ledger.on(&look_up("k"), succeeded());
        node.ledger.next("k", Behaviour::Drop);
        assert_eq!(node.send(&pay("k")).status, 504);
        assert_eq!(retry_until_answered(&node, "k").status, 200);
        let asked = node.ledger.received().into_iter().find(|request| request.target == look_up("k")).unwrap();
        let own = node.ledger.address().to_string();
        assert_eq!(asked.header("host"), Some(asked_under.unwrap_or(&own)), "{keep_host} {host}");
    }
}

fn a_fence_that_stands_is_counted_and_shown(kept: Kept) {
    let node = start_with(kept, |builder| builder.with_config(&config("")));
    assert_eq!(node.hapax.metric("hapax_fence"), 0.0);
    assert!(!command(&node, &["status"]).contains("fence"));
    let raise = ["store", "fence", "--raise", "--since", "2024-11-16T12:00:00Z", "--reason", "recovered to noon"];
    command(&node, &raise);
    until("the fence is noticed", PATIENCE, || node.hapax.metric("hapax_fence") == 1.0);
    let said = command(&node, &["status"]);
    let line = said.lines().find(|line| line.starts_with("fence ")).unwrap();
    assert!(line.contains("what was claimed from 2024-11-16T12:00:00.000Z to 2"), "{line}");
    assert!(line.contains("may be lost; it stands until 2"), "{line}");
    let told: serde_json::Value = serde_json::from_str(&command(&node, &["status", "--output", "json"])).unwrap();
    assert_eq!(told["fence"]["lost_since"], "2024-11-16T12:00:00.000Z");
    for moment in ["restored_at", "until"] {
        assert!(line.contains(told["fence"][moment].as_str().unwrap()), "{moment}: {line}");
    }
    command(&node, &["store", "fence", "--lift", "--reason", "compared with the ledger"]);
    until("that it is lifted is noticed", PATIENCE, || node.hapax.metric("hapax_fence") == 0.0);
    assert!(!command(&node, &["status"]).contains("fence"));
}

/// A command on the node's store, while the node runs.
fn command(node: &Node, args: &[&str]) -> String {
    let store = match &node.database {
        Some(database) => database.url(),
        None => format!("sqlite:{}", node.hapax.dir().join("hapax.db").display()),
    };
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_hapax"));
    command.args(args).args(["--store", &store]).current_dir(node.hapax.dir());
    let ours = std::env::vars().map(|(name, _)| name).filter(|name| name.starts_with("HAPAX_"));
    for name in ours {
        command.env_remove(name);
    }
    let done = command.output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    // A status that needs attention ends with 1, and a fence that stands does.
    let is_attention = done.status.code() == Some(1) && args[0] == "status";
    assert!(done.status.success() || is_attention, "{args:?}: {said}");
    said
}

fn without_a_probe_one_command_settles_it(kept: Kept) {
    let mut node = start_with(kept, |builder| builder.with_config(&config("")));
    crash_amid(&mut node, &["order-17"]);
    until("it is counted", PATIENCE, || node.hapax.metric("hapax_unknown") == 1.0);
    let listed = command(&node, &["keys", "list", "--state", "unknown"]);
    assert!(listed.contains("order-17") && listed.contains("unknown"), "{listed}");
    std::fs::write(node.hapax.dir().join("payment.json"), r#"{"id":"p-17"}"#).unwrap();
    let shown: serde_json::Value =
        serde_json::from_str(&command(&node, &["keys", "show", "order-17", "--output", "json"])).unwrap();
    let id = shown["id"].as_str().unwrap();
    let resolve = ["keys", "resolve", id, "--happened", "--status", "201", "--body-file", "payment.json"];
    command(&node, &[&resolve[..], &["--reason", "paid, see the bank's report", "--yes"]].concat());
    let retry = node.send(&pay("order-17"));
    assert_eq!((retry.status, retry.is_replay(), retry.text().as_str()), (201, true, r#"{"id":"p-17"}"#));
    node.ledger.assert_once("order-17");
}

/// A second process on the node's store, in front of the same upstream.
fn beside(node: &Node, text: &str) -> Hapax {
    let builder = builder(&node.ledger, node.database.as_ref()).with_scope("single").with_config(text);
    match &node.database {
        Some(_) => builder.start(),
        None => builder.with_store(&format!("sqlite:{}", node.hapax.dir().join("hapax.db").display())).start(),
    }
}

/// A node that stands still amid the payment `k`, and another one that has noticed the lapse.
struct Held {
    node: Node,
    other: Hapax,
    first: JoinHandle<Result<Response, ReadError>>,
}

fn held(kept: Kept) -> Held {
    // The upstream works for longer than anybody waits for it, and says meanwhile that there is nothing.
    let config = config(PROBE).replace("answer_timeout = \"2s\"", "answer_timeout = \"20s\"");
    let config = config.replace("settle_after = \"2000ms\"", "settle_after = \"20s\"");
    let mut node = start_with(kept, |builder| builder.with_config(&config));
    let first = begin(&node, "k");
    node.hapax.signal("STOP");
    let other = beside(&node, &config);
    until("the other notices the lapse", PATIENCE, || other.metric("hapax_lapsed_total") == 1.0);
    Held { node, other, first }
}

fn truth_that_comes_after_a_verdict_is_recorded_counted_and_noted(kept: Kept) {
    let Held { mut node, other, first } = held(kept);
    let said = ["keys", "resolve", "k", "--keys-unique", "--did-not-happen", "--reason", "so says the bank", "--yes"];
    command(&node, &said);
    node.hapax.signal("CONT");
    node.ledger.release("k");
    let answer = first.join().unwrap().unwrap();
    assert_eq!(answer.status, 201);
    assert_eq!(node.hapax.metric("hapax_contradicted_total"), 1.0);
    node.hapax.line_with("an attempt that was said not to have happened has completed");
    let retry = pay("k").send(other.address());
    assert_eq!((retry.is_replay(), retry.text()), (true, answer.text()));
    until("it is noted", PATIENCE, || command(&node, &["audit"]).contains("contradicted"));
    node.ledger.assert_once("k");
}

fn truth_that_comes_after_a_purge_is_counted_and_noted(kept: Kept) {
    let Held { mut node, other: _other, first } = held(kept);
    command(&node, &["keys", "purge", "k", "--keys-unique", "--reason", "asked to be forgotten", "--yes"]);
    node.hapax.signal("CONT");
    node.ledger.release("k");
    assert_eq!(refused(&first.join().unwrap().unwrap()), (409, "outcome-unknown".into()));
    assert_eq!(node.hapax.metric("hapax_forgotten_total"), 1.0);
    node.hapax.line_with("an attempt completed whose key was forgotten");
    until("it is noted", PATIENCE, || command(&node, &["audit"]).contains("whose key was purged"));
    node.ledger.assert_once("k");
}

#[test]
fn a_node_that_ends_waits_for_its_late_truth_to_be_noted() {
    hapax_testkit::needs_postgres!();
    let Held { mut node, other, first } = held(Kept::Postgres);
    command(
        &node,
        &["keys", "resolve", "k", "--keys-unique", "--did-not-happen", "--reason", "so says the bank", "--yes"],
    );
    // Nothing else writes notes meanwhile.
    drop(other);
    let database = node.database.take().unwrap();
    database.run("ALTER TABLE hapax.note RENAME TO note_away");
    node.hapax.signal("CONT");
    node.ledger.release("k");
    assert_eq!(first.join().unwrap().unwrap().status, 201);
    node.hapax.line_with("late truth could not be noted yet");
    node.hapax.signal("TERM");
    node.hapax.line_with("ending: finishing what runs");
    database.run("ALTER TABLE hapax.note_away RENAME TO note");
    assert_eq!(node.hapax.wait(), Some(0));
    assert_eq!(database.run("SELECT count(*) FROM hapax.note WHERE what = 'contradicted'"), "1");
}
