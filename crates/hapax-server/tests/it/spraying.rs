//! Key spraying: what a stranger who makes up callers and keys can leave behind, and who pays for it.
//!
//! Over real sockets, from one client address, with the figures that a node has by default where the test does not say
//! otherwise. What honest callers get meanwhile is part of each test: a limit that turns them away is no limit but an outage.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use crate::node::{self, Kept, Node, on_both_stores, refused, start_with};
use hapax_testkit::hapax::Builder;
use hapax_testkit::ledger::Behaviour;
use hapax_testkit::raw_http::{Conn, Request, Response, request};
use hapax_testkit::wait::until;
use serde_json::Value;

/// Connections that a sprayer uses at the same time.
const SPRAYERS: usize = 4;

on_both_stores! {
    made_up_callers_of_one_client_are_held_back_and_known_ones_go_on
    what_a_refused_credential_left_behind_is_soon_forgotten
    unknown_outcomes_of_made_up_callers_are_bounded
    a_full_store_refuses_new_keys_and_known_ones_go_on
    unfinished_keys_of_one_caller_have_an_end
}

/// A request of that caller with that key.
fn by(caller: &str, key: &str) -> Request {
    request("POST", "/payments")
        .header("Authorization", &format!("Bearer {caller}"))
        .header("Content-Type", "application/json")
        .header("Idempotency-Key", key)
        .body(r#"{"amount":1}"#)
}

/// One request of each of so many made-up callers.
fn spray(to: SocketAddr, from: usize, count: usize) -> Vec<Response> {
    let sender = |sprayer: usize| {
        move || {
            let mut conn = Conn::open(to);
            let mut answers = Vec::new();
            for caller in (from..from + count).filter(|caller| caller % SPRAYERS == sprayer) {
                answers.push(conn.send(&by(&format!("made-up-{caller}"), &format!("key-{caller}"))));
            }
            answers
        }
    };
    std::thread::scope(|scope| {
        let senders: Vec<_> = (0..SPRAYERS).map(|sprayer| scope.spawn(sender(sprayer))).collect();
        senders.into_iter().flat_map(|sender| sender.join().unwrap()).collect()
    })
}

/// How many of them there were, by status.
fn statuses(answers: &[Response]) -> BTreeMap<u16, usize> {
    let mut statuses = BTreeMap::new();
    for answer in answers {
        *statuses.entry(answer.status).or_default() += 1;
    }
    statuses
}

fn count(answers: &[Response], status: u16) -> usize {
    answers.iter().filter(|answer| answer.status == status).count()
}

/// The service knows alice only.
fn knows_alice_only(node: &Node) {
    node.ledger.on("*", Behaviour::answer(401, "who are you?"));
    for key in ["alice-1", "alice-2"] {
        node.ledger.on(key, Behaviour::Echo);
    }
}

/// 400 made-up tokens: the service answers each with 401, and each leaves a record. By default it is 100 a second; here 2, so
/// that a slow machine is no slow sprayer.
fn made_up_callers_of_one_client_are_held_back_and_known_ones_go_on(kept: Kept) {
    let node = start_with(kept, |builder| builder.with_config("[server]\nclient_new_keys_per_second = 2\n"));
    knows_alice_only(&node);
    assert_eq!(node.send(&by("alice", "alice-1")).status, 201);
    let answers = spray(node.hapax.address(), 0, 400);
    let (passed, held) = (count(&answers, 401), count(&answers, 429));
    assert_eq!(passed + held, answers.len(), "{:?}", statuses(&answers));
    assert!(held >= 300, "{passed} of 400 made-up callers passed");
    let refusal = answers.iter().find(|answer| answer.status == 429).unwrap();
    assert_eq!(refused(refusal), (429, "too-many".into()));
    assert!(refusal.header("retry-after").is_some());
    // The operator is told, with the next step.
    node.hapax.line_with("add it to `server.trusted_peers`");
    // From the same address: a caller who had an answer before, with a new key and with a known one.
    assert_eq!(node.send(&by("alice", "alice-2")).status, 201);
    assert!(node.send(&by("alice", "alice-1")).is_replay());
}

/// A 401 leaves a key free to be tried again, and that for minutes: not for as long as an answer is kept.
fn what_a_refused_credential_left_behind_is_soon_forgotten(kept: Kept) {
    let node = start_with(kept, |builder| builder);
    node.ledger.on("refused", Behaviour::answer(401, "who are you?"));
    assert_eq!(node.send(&by("mallory", "refused")).status, 401);
    assert_eq!(node.send(&by("mallory", "stored")).status, 201);
    let kept_for = |key: &str| {
        let page = node.hapax.ask_admin(&format!("/v1/keys?find={key}")).json();
        let record: &Value = &page["records"][0];
        let at = |name: &str| hapax_at(record[name].as_str().unwrap_or_else(|| panic!("{page}")));
        at("expires_at") - at("changed_at")
    };
    let (minute, day) = (60, 24 * 60 * 60);
    assert_eq!(kept_for("stored"), day, "an answer keeps its retention");
    assert!((minute..=15 * minute).contains(&kept_for("refused")), "{} s", kept_for("refused"));
}

/// Seconds since an epoch, of a time such as `2026-11-17T19:10:00.000Z`. Good enough for differences within a month.
fn hapax_at(text: &str) -> u64 {
    let number = |from: usize, to: usize| text[from..to].parse::<u64>().unwrap();
    let days = number(5, 7) * 31 + number(8, 10);
    ((days * 24 + number(11, 13)) * 60 + number(14, 16)) * 60 + number(17, 19)
}

/// 500 made-up callers whose connections are cut: each leaves a record that nothing but a person or a probe takes away.
fn unknown_outcomes_of_made_up_callers_are_bounded(kept: Kept) {
    let node = start_with(kept, |builder: Builder| builder);
    node.ledger.on("*", Behaviour::Drop);
    let answers = spray(node.hapax.address(), 0, 500);
    let unknown = count(&answers, 504);
    assert_eq!(unknown + count(&answers, 429), answers.len(), "{:?}", statuses(&answers));
    assert!(unknown <= 150, "{unknown} of 500 made-up callers left an unknown outcome");
    assert_eq!(node.ledger.all().len(), unknown, "who was refused did not run");
}

/// At the ceiling nothing that has begun is lost: only what is new has to wait.
fn a_full_store_refuses_new_keys_and_known_ones_go_on(kept: Kept) {
    let mut node = start_with(kept, |builder| builder);
    node.ledger.on("free", Behaviour::First(Box::new(Behaviour::answer(503, "not now"))));
    node.ledger.on("unknown", Behaviour::First(Box::new(Behaviour::Drop)));
    for (key, status) in [("recorded", 201), ("free", 503), ("unknown", 504)] {
        assert_eq!(node.send(&by("alice", key)).status, status);
    }
    // Less than an empty store takes.
    node.hapax.write_config("[store]\nbytes_max = \"1KiB\"\n");
    node.hapax.restart();
    for caller in ["alice", "bob"] {
        let refusal = node.send(&by(caller, "new"));
        assert_eq!(refused(&refusal), (503, "store-full".into()));
        assert!(refusal.header("retry-after").is_some());
    }
    node.ledger.assert_never("new");
    assert!(node.send(&by("alice", "recorded")).is_replay());
    assert_eq!(node.send(&by("alice", "free")).status, 201, "a key that was left free runs");
    assert!(node.send(&by("alice", "free")).is_replay(), "and its answer is recorded");
    assert_eq!(refused(&node.send(&by("alice", "unknown"))), (409, "outcome-unknown".into()));
    resolve(&node, "unknown");
    assert_eq!(node.send(&by("alice", "unknown")).status, 201);
    let status = node.hapax.ask_admin("/v1/status").json();
    assert_eq!(status["healthy"], false, "{status}");
    assert!(status["problems"].to_string().contains("`store.bytes_max`"), "{status}");
    let (code, direct) = status_of_store(&node);
    assert!(code == Some(1) && direct["problems"].to_string().contains("`store.bytes_max`"), "{direct}");
    assert!(node.hapax.metric("hapax_store_full") > 0.5);
}

/// What `hapax status` says of the node's store, with the file of the node: its exit code, and the document.
fn status_of_store(node: &Node) -> (Option<i32>, Value) {
    let output = command(node, &["status", "--output", "json"]).output().unwrap();
    (output.status.code(), serde_json::from_slice(&output.stdout).unwrap())
}

/// `hapax` with those arguments on the node's store, where the node's file is.
fn command(node: &Node, arguments: &[&str]) -> Command {
    let store = match &node.database {
        Some(database) => database.url(),
        None => format!("sqlite:{}", node.hapax.dir().join("hapax.db").display()),
    };
    let mut command = Command::new(env!("CARGO_BIN_EXE_hapax"));
    command.current_dir(node.hapax.dir()).env_clear().args(arguments).args(["--store", &store]);
    command
}

/// Says of that key that it did not happen.
fn resolve(node: &Node, key: &str) {
    let said = ["keys", "resolve", key, "--keys-unique", "--did-not-happen", "--reason", "looked", "--yes"];
    let output = command(node, &said).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// However it is asked, the store holds as many records, and new keys are refused or not.
#[test]
fn a_full_store_says_the_same_of_itself_wherever_it_is_asked() {
    let mut node = start_with(Kept::Sqlite, |builder| builder);
    for number in 0..60 {
        assert_eq!(node.send(&by("alice", &format!("k-{number}"))).status, 201);
    }
    let (code, roomy) = status_of_store(&node);
    assert_eq!((code, roomy["counts"]["about_all"].as_u64()), (Some(0), Some(60)), "{roomy}");
    // Below what there is, within twice of what there is, and far below.
    for most in [60, 45, 20, 1] {
        node.hapax.write_config(&format!("[store]\nrows_max = {most}\n"));
        node.hapax.restart();
        assert_eq!(refused(&node.send(&by("alice", "new"))), (503, "store-full".into()));
        let through = node.hapax.ask_admin("/v1/status").json();
        let (code, direct) = status_of_store(&node);
        let cause = format!("the store holds 60 records, and `store.rows_max` is {most}; ");
        for status in [&through, &direct] {
            assert_eq!((status["healthy"].as_bool(), status["counts"]["about_all"].as_u64()), (Some(false), Some(60)));
            assert!(status["problems"][0].as_str().is_some_and(|problem| problem.contains(&cause)), "{status}");
        }
        assert_eq!((code, &direct["problems"]), (Some(1), &through["problems"]));
        assert_eq!(
            (node.hapax.metric("hapax_store_rows{store=\"sqlite\"}"), node.hapax.metric("hapax_store_full")),
            (60.0, 1.0)
        );
    }
    node.hapax.write_config("[store]\nrows_max = 61\n");
    node.hapax.restart();
    let through = node.hapax.ask_admin("/v1/status").json();
    assert_eq!((status_of_store(&node).0, through["healthy"].as_bool()), (Some(0), Some(true)), "hapax's own are none");
    // Whatever else is wrong with the file, its limits are known.
    node.hapax.write_config("[store]\nrows_max = 20\n[defaults]\nretenton = \"1h\"\n");
    assert_eq!(status_of_store(&node).0, Some(1));
    node.hapax.write_config("[store]\nrows_max = \"many\"\n");
    assert_eq!(status_of_store(&node).0, Some(0), "a limit that is none");
}

/// Three keys that run, or of which nobody knows: the fourth has to wait, on every node and after a restart.
fn unfinished_keys_of_one_caller_have_an_end(kept: Kept) {
    let config = "[keys]\nactive_max = 3\n[background]\nreconcile_every = \"100ms\"\n";
    let mut node = start_with(kept, |builder| builder.with_config(config));
    let soon = Duration::from_secs(20);
    node.ledger.hold("*");
    let running: Vec<_> = (0..3)
        .map(|number| {
            let mut conn = Conn::open(node.hapax.address());
            conn.write(&by("alice", &format!("runs-{number}")).bytes());
            conn
        })
        .collect();
    until("three run", soon, || node.hapax.metric("hapax_in_flight") > 2.5);
    assert_eq!(refused(&node.send(&by("alice", "fourth"))), (429, "too-many".into()));
    node.ledger.release("*");
    for mut conn in running {
        assert_eq!(conn.read_response().unwrap().status, 201);
    }
    node.ledger.on("*", Behaviour::Drop);
    for number in 0..3 {
        assert_eq!(node.send(&by("alice", &format!("lost-{number}"))).status, 504);
    }
    assert_eq!(refused(&node.send(&by("alice", "fourth"))), (429, "too-many".into()));
    assert_eq!(refused(&node.send(&by("alice", "lost-0"))), (409, "outcome-unknown".into()), "a known key");
    node.ledger.forget_rules();
    assert!(node.send(&by("alice", "runs-0")).is_replay(), "a known key");
    assert_eq!(node.send(&by("bob", "fourth")).status, 201, "another caller");
    node.hapax.restart();
    node.hapax.wait_until_ready();
    until("the store was counted", soon, || node.send(&by("alice", "lost-0")).status == 409 && is_full(&node));
    resolve(&node, "lost-0");
    assert_eq!(node.send(&by("alice", "lost-0")).status, 201);
    until("the store was counted anew", soon, || !is_full(&node));
}

/// Whether a new key of alice's is refused. What is not refused is done, and counts no more.
fn is_full(node: &Node) -> bool {
    let answer = node.send(&by("alice", &format!("next-{}", node.ledger.all().len())));
    assert!(matches!(answer.status, 201 | 429), "{}", answer.status);
    answer.status == 429
}

/// People who share an address are not one client that sprays, however many they are and however often some mistype a password.
#[test]
fn very_many_callers_behind_one_untrusted_peer_raise_a_warning_and_no_refusal() {
    let node = start_with(Kept::Sqlite, |builder| builder.with_config("[server]\nclient_new_keys_per_second = 5\n"));
    let answers = spray(node.hapax.address(), 0, 1_100);
    assert_eq!(count(&answers, 201), answers.len(), "{:?}", statuses(&answers));
    node.hapax.line_with("very many callers come from one address");
    // One in three of the next ones is not known to the service.
    let mut answers = Vec::new();
    for caller in 2_000..2_300 {
        if caller % 3 == 0 {
            node.ledger.on(format!("key-{caller}").as_str(), Behaviour::answer(401, "who are you?"));
        }
        answers.extend(spray(node.hapax.address(), caller, 1));
    }
    assert_eq!((count(&answers, 201), count(&answers, 401)), (200, 100), "{:?}", statuses(&answers));
}

/// A trusted peer is nobody's client; whom it names is.
#[test]
fn a_trusted_peer_is_never_held_back_and_whom_it_names_is() {
    let config = "[server]\nclient_new_keys_per_second = 1\ntrusted_peers = [\"127.0.0.1\"]\n";
    let node = start_with(Kept::Sqlite, |builder| builder.with_config(config));
    node.ledger.on("*", Behaviour::answer(401, "who are you?"));
    let answers = spray(node.hapax.address(), 0, 100);
    assert_eq!(count(&answers, 401), 100, "{:?}", statuses(&answers));
    let from = |client: &str, number: usize| {
        let request = by(&format!("made-up-{number}"), &format!("of-{client}-{number}"));
        node.send(&request.header("X-Forwarded-For", client)).status
    };
    let passed = (0..100).filter(|number| from("203.0.113.7", *number) == 401).count();
    assert!((10..=40).contains(&passed), "{passed} of 100 passed");
    assert_eq!(from("203.0.113.8", 0), 401, "another client behind the same peer");
}

/// Where look-ups are limited by address, made-up callers share the limit of theirs.
#[test]
fn look_ups_of_made_up_callers_share_the_limit_of_their_address() {
    let node = start_with(Kept::Sqlite, |builder| builder.with_config("[server]\nclient_lookups_per_second = 20\n"));
    let (conn, known) = (&mut Conn::open(node.hapax.address()), by("alice", "known"));
    assert_eq!(conn.send(&known).status, 201);
    let mut answers: Vec<Response> =
        (0..300).map(|caller| conn.send(&by(&format!("made-up-{caller}"), "known"))).collect();
    let held = answers.iter().position(|answer| answer.status == 429).expect("some are held back");
    assert_eq!(refused(&answers.swap_remove(held)), (429, "too-many".into()));
    until("it is only for a while", Duration::from_secs(20), || conn.send(&known).is_replay());
}

/// What a reload says holds at once.
#[test]
fn the_limits_of_clients_and_callers_can_be_changed_by_a_reload() {
    let mut node = start_with(Kept::Sqlite, |builder| builder.with_config("[keys]\nactive_max = \"off\"\n"));
    node.ledger.on("*", Behaviour::answer(401, "who are you?"));
    assert_eq!(count(&spray(node.hapax.address(), 0, 50), 401), 50);
    node.hapax.write_config("[server]\nclient_new_keys_per_second = 1\n");
    node.hapax.hup();
    node.hapax.line_with("the configuration was reloaded");
    let answers = spray(node.hapax.address(), 100, 100);
    assert!(count(&answers, 429) >= 50, "{:?}", statuses(&answers));
}

/// What runs when the store becomes full is recorded.
#[test]
fn an_attempt_that_runs_is_recorded_in_a_store_that_has_become_full() {
    let node = start_with(Kept::Sqlite, |builder| builder.with_config("[store]\nrows_max = 6\n"));
    node.ledger.hold("runs");
    let mut conn = Conn::open(node.hapax.address());
    conn.write(&by("alice", "runs").bytes());
    node.ledger.wait_until_received("runs");
    for number in 0..6 {
        node.send(&by("alice", &format!("fills-{number}")));
    }
    until("the store was measured", Duration::from_secs(20), || node.hapax.metric("hapax_store_full") > 0.5);
    assert_eq!(refused(&node.send(&by("alice", "new"))), (503, "store-full".into()));
    node.ledger.release("runs");
    assert_eq!(conn.read_response().unwrap().status, 201);
    assert!(node.send(&by("alice", "runs")).is_replay());
}

/// Nothing is deleted to make room; but what has expired makes some.
#[test]
fn a_store_has_room_again_when_something_has_expired() {
    let config = "[store]\nrows_max = 6\n[upstream]\nanswer_timeout = \"1s\"\n[background]\nreap_every = \"100ms\"\n\
                  [defaults]\nlease = \"1s\"\nretention = \"2s\"\n";
    let node = start_with(Kept::Sqlite, |builder| builder.with_config(config));
    for number in 0..6 {
        node.send(&by("alice", &format!("fills-{number}")));
    }
    let is_refused = |key: &str| node.send(&by("alice", key)).status == 503;
    until("the store was measured", Duration::from_secs(20), || node.hapax.metric("hapax_store_full") > 0.5);
    until("some have expired", Duration::from_secs(20), || !is_refused("new"));
    node.hapax.line_with("the store has room again");
}

/// The limits can be turned off.
#[test]
fn what_is_off_limits_nothing() {
    let config = "[server]\nclient_new_keys_per_second = \"off\"\n[defaults]\nnot_stored_retention = \"off\"\n\
                  [keys]\nactive_max = \"off\"\n[store]\nfree_disk_min = \"off\"\n";
    let node = start_with(Kept::Sqlite, |builder| builder.with_config(config));
    node.ledger.on("*", Behaviour::answer(401, "who are you?"));
    let answers = spray(node.hapax.address(), 0, 1_200);
    assert_eq!(count(&answers, 401), 1_200, "{:?}", statuses(&answers));
}
