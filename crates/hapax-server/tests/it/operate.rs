//! The operator's commands from outside the binary: what they print, what they change, how they end; on both stores.
//!
//! The walkthrough of docs/operating.md is run as it stands there. The rules of the desk itself are tested in `desk.rs`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

mod alone;
mod lookup;
mod naming;
mod terminal;

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::node::{self, Kept, Node, on_both_stores, pay, refused, start, start_with};
use hapax_testkit::ledger::Behaviour;
use hapax_testkit::raw_http::request;
use hapax_testkit::wait::until;
use serde_json::Value;

on_both_stores! {
    the_walkthrough_of_the_page_settles_a_request_whose_proxy_was_killed
    status_says_how_things_stand
    records_are_listed_in_every_form
    what_is_pasted_is_found_and_shown
    a_verdict_is_what_clients_get
    a_record_is_found_alike_with_and_without_a_terminal
    what_is_ambiguous_is_named_and_not_changed
    the_same_key_of_two_routes_is_ambiguous
    times_are_said_as_moments_or_by_how_long_ago
    notes_outlive_their_record_and_are_found_by_what_stands_in_them
    what_cannot_be_resolved_says_why_with_a_stable_code
    a_given_up_request_is_a_failure_from_then_on
    a_purge_by_filter_is_counted_first
    a_purged_key_runs_again_only_where_that_was_said
    tail_follows_what_is_unfinished_until_it_is_interrupted
    a_person_at_a_terminal_is_asked
    who_says_no_ends_the_command_with_1_and_a_program_gets_json
    a_store_that_is_not_there_is_not_made
    every_command_works_through_a_node
}

const SOON: Duration = Duration::from_secs(20);

/// `hapax` with those arguments on the node's store, in an environment of its own.
fn command(node: &Node, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hapax"));
    command.args(arguments).args(["--store", &store_url(node)]);
    alone(&mut command, node.hapax.dir());
    command
}

/// Nothing of the developer's shell changes what is tested.
fn alone(command: &mut Command, directory: &Path) {
    command.current_dir(directory).env_clear().env("USER", "ana").env("PATH", std::env::var_os("PATH").unwrap());
}

fn store_url(node: &Node) -> String {
    match &node.database {
        Some(database) => database.url(),
        None => format!("sqlite:{}", node.hapax.dir().join("hapax.db").display()),
    }
}

fn hapax(node: &Node, arguments: &[&str]) -> Output {
    command(node, arguments).output().unwrap()
}

/// Its output, where it must end well.
#[track_caller]
fn said(node: &Node, arguments: &[&str]) -> String {
    let output = hapax(node, arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

#[track_caller]
fn json(node: &Node, arguments: &[&str]) -> Value {
    let shown = said(node, &[arguments, &["--output", "json"]].concat());
    serde_json::from_str(&shown).unwrap_or_else(|error| panic!("{error}: {shown}"))
}

/// Its exit code and what it said about it.
#[track_caller]
fn failed(node: &Node, arguments: &[&str]) -> (i32, String) {
    let output = hapax(node, arguments);
    assert!(output.stdout.is_empty(), "{arguments:?}: {}", text(&output.stdout));
    (output.status.code().unwrap(), text(&output.stderr))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A payment whose answer was lost: the record is unknown.
fn lose(node: &Node, key: &str) {
    node.ledger.next(key, Behaviour::Drop);
    assert_eq!(refused(&node.send(&pay(key))), (504, "outcome-unknown".into()));
}

/// A payment that was answered.
fn complete(node: &Node, key: &str) {
    assert_eq!(node.send(&pay(key)).status, 201);
}

fn records(document: &Value) -> Vec<(String, String)> {
    let word = |record: &Value, name: &str| record[name].as_str().unwrap().to_owned();
    document["records"].as_array().unwrap().iter().map(|record| (word(record, "key"), word(record, "state"))).collect()
}

// The walkthrough.

const PAGE: &str = include_str!("../../../../docs/operating.md");

/// The commands of the walkthrough, each with what the page shows.
fn walkthrough() -> Vec<(String, String)> {
    let section = PAGE.split("\n## Walkthrough").nth(1).unwrap().split("\n## ").next().unwrap();
    let blocks = section.split("```console\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let mut found: Vec<(String, String)> = Vec::new();
    for line in blocks.flat_map(str::lines) {
        match (line.strip_prefix("$ "), found.last_mut()) {
            (Some(command), _) => found.push((command.to_owned(), String::new())),
            (None, Some((_, shown))) => shown.push_str(&format!("{line}\n")),
            (None, None) => panic!("{line:?} is the output of no command"),
        }
    }
    found
}

/// The words of an output, without what differs between two runs or between a terminal and none.
fn plain(output: &str) -> Vec<String> {
    let kind = |word: &str| {
        let bare = word.trim_end_matches(';');
        let is_time = bare.len() >= 20 && bare.starts_with("20") && bare.ends_with('Z');
        let is_id = bare.len() >= 12 && bare.bytes().all(|byte| byte.is_ascii_hexdigit());
        match bare {
            _ if is_time => "TIME",
            _ if is_id => "ID",
            _ if bare.starts_with("c:") => "SCOPE",
            _ if bare.contains('@') => "WHO",
            "sqlite," | "postgres," => "STORE",
            other => other,
        }
        .to_owned()
    };
    let counted = |line: &&str| !line.starts_with("records") && !line.starts_with("size");
    output.lines().filter(counted).flat_map(str::split_whitespace).map(kind).collect()
}

fn the_walkthrough_of_the_page_settles_a_request_whose_proxy_was_killed(kept: Kept) {
    let mut node = start_with(kept, |builder| builder.with_config("[defaults]\nlease = \"1s\"\n"));
    let key = "order-17-payment";
    node.ledger.hold(key);
    let address = node.hapax.address();
    let first = std::thread::spawn(move || pay(key).try_send(address));
    node.ledger.wait_until_received(key);
    node.hapax.kill_9();
    assert!(first.join().unwrap().is_err(), "the client got nothing");
    node.hapax.restart();
    until("the lease lapses", SOON, || refused(&node.send(&pay(key))) == (409, "outcome-unknown".into()));

    // The page has an id of its own.
    let id = json(&node, &["keys", "show", key])["id"].as_str().unwrap().to_owned();
    let steps: Vec<_> =
        walkthrough().into_iter().map(|(step, shown)| (step.replace("93ed900b5c5f", &id[..12]), shown)).collect();
    assert!(steps.len() >= 5, "{steps:?}");
    let program = Path::new(env!("CARGO_BIN_EXE_hapax"));
    let paths = [program.parent().unwrap().to_owned(), "/usr/bin".into(), "/bin".into()];
    for (step, shown) in steps {
        let mut shell = Command::new("sh");
        shell.args(["-c", &step]);
        alone(&mut shell, node.hapax.dir());
        // The commands of the page find the store in the configuration.
        shell.env("HAPAX_STORE_URL", store_url(&node));
        let output = shell.env("PATH", std::env::join_paths(&paths).unwrap()).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{step}: {}", text(&output.stderr));
        assert_eq!(plain(&text(&output.stdout)), plain(&shown), "{step}: {}", text(&output.stdout));
    }
    let retry = node.send(&pay(key));
    assert_eq!((retry.status, retry.is_replay()), (201, true));
    assert_eq!(retry.json(), serde_json::json!({"id": "pay_17", "amount": 1200}));
    assert_eq!(retry.header("content-type"), Some("application/json"));
    node.ledger.release(key);
    node.ledger.assert_once(key);
}

// Looking.

fn status_says_how_things_stand(kept: Kept) {
    let node = start(kept);
    complete(&node, "k-1");
    lose(&node, "k-2");
    let shown = said(&node, &["status"]);
    assert!(shown.starts_with("healthy\nstore     "), "{shown}");
    assert!(shown.contains("\nunknown   1, the oldest since 20"), "{shown}");
    assert!(kept != Kept::Sqlite || shown.contains("\nrecords   about 2\n"), "hapax's own do not count: {shown}");
    let status = json(&node, &["status"]);
    assert_eq!((status["healthy"].as_bool(), status["counts"]["unknown"].as_u64()), (Some(true), Some(1)));
    assert_eq!(status["store"]["durability"].as_str(), Some("disk"));
    assert!(shown.contains(", durability disk, "), "{shown}");
}

#[test]
fn what_needs_a_person_is_said_in_the_exit_code() {
    let config = "[defaults]\nattempts_max = 1\n";
    let node = start_with(Kept::Sqlite, |builder| builder.with_config(config));
    node.ledger.next("k", Behaviour::answer(500, "broken"));
    assert_eq!(node.send(&pay("k")).status, 500);
    let output = hapax(&node, &["status"]);
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{shown}");
    assert!(shown.starts_with("needs attention\n"), "{shown}");
    assert!(shown.contains("\nproblem   1 dead: automation gave up"), "{shown}");
    let status: Value = serde_json::from_slice(&hapax(&node, &["status", "--output", "json"]).stdout).unwrap();
    assert_eq!(status["healthy"].as_bool(), Some(false));
    assert_eq!(said(&node, &["keys", "list", "--state", "dead"]).lines().count(), 2);
}

fn records_are_listed_in_every_form(kept: Kept) {
    let node = start(kept);
    assert_eq!(said(&node, &["keys", "list"]), "no records\n", "records of hapax itself do not show");
    complete(&node, "k-1");
    lose(&node, "k-2");
    complete(&node, "=SUM(A1:B1)");
    let table = said(&node, &["keys", "list", "--state", "unknown"]);
    let words: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!((table.lines().count(), words[0].len(), words[1], words[5]), (2, 64, "unknown", "k-2"), "{table}");
    let unknown_or_completed = json(&node, &["keys", "list", "--state", "unknown,completed"]);
    assert_eq!(records(&unknown_or_completed).len(), 3);
    let csv = said(&node, &["keys", "list", "--output", "csv"]);
    assert!(csv.starts_with("id,space,scope,key,state,attempt,"), "{csv}");
    assert_eq!(csv.lines().count(), 4);
    assert!(csv.contains(",'=SUM(A1:B1),"), "a formula is text: {csv}");
    let scope = unknown_or_completed["records"][0]["scope"].as_str().unwrap();
    assert_eq!(records(&json(&node, &["keys", "list", "--scope", scope])).len(), 3);
    assert_eq!(records(&json(&node, &["keys", "list", "--scope", "eve"])).len(), 0);
    assert_eq!(records(&json(&node, &["keys", "list", "--until", "2001-01-01"])).len(), 0);
    // Page by page, by the cursor that the list names.
    let first = json(&node, &["keys", "list", "--limit", "2"]);
    let rest = json(&node, &["keys", "list", "--limit", "2", "--after", first["next"].as_str().unwrap()]);
    assert_eq!((records(&first).len(), records(&rest).len()), (2, 1));
    let output = hapax(&node, &["keys", "list", "--limit", "2"]);
    assert!(text(&output.stderr).starts_with("note: there may be more; go on with --after "));
    let forged = failed(&node, &["keys", "list", "--after", "AAAA"]);
    assert_eq!(forged, (2, "error: the cursor does not belong to this filter; begin again without it\n".into()));
    let (code, told) = failed(&node, &["keys", "list", "--limit", "1000000000"]);
    assert_eq!((code, told.contains("--limit must be 1 to 100000")), (2, true), "{told}");
    let (code, told) = failed(&node, &["keys", "list", "--state", "lost"]);
    assert_eq!((code, told.contains("there is no state \"lost\"")), (2, true), "{told}");
    let (code, told) = failed(&node, &["keys", "list", "--label", "x"]);
    assert_eq!((code, told.contains("write name=value")), (2, true), "{told}");
    for injected in ["' OR '1'='1", "%", "k-_", "*"] {
        assert_eq!(records(&json(&node, &["keys", "list", injected])).len(), 0, "{injected}");
    }
}

fn what_is_pasted_is_found_and_shown(kept: Kept) {
    let node = start(kept);
    complete(&node, "order-17");
    complete(&node, "order-18");
    assert_eq!(records(&json(&node, &["keys", "list", "order-"])).len(), 2);
    let record = json(&node, &["keys", "show", "order-17"]);
    let id = record["id"].as_str().unwrap();
    assert_eq!((record["state"].as_str(), record["answer"]["status"].as_u64()), (Some("completed"), Some(201)));
    assert!(record["answer"]["body"].is_null() && record["answer"]["headers"].is_null(), "only where asked for");
    assert_eq!(json(&node, &["keys", "show", id])["key"].as_str(), Some("order-17"));
    assert_eq!(json(&node, &["keys", "show", &id[..10].to_uppercase()])["key"].as_str(), Some("order-17"));
    let shown = said(&node, &["keys", "show", "order-17", "--body"]);
    assert!(shown.contains("\nfield           content-type: application/json\n"), "{shown}");
    assert!(shown.contains("\"method\":\"POST\""), "{shown}");
    // The id that a refusal shows its client leads to the record.
    node.ledger.next("order-19", Behaviour::Drop);
    let request_id = node.send(&pay("order-19")).json()["request_id"].as_str().unwrap().to_owned();
    assert_eq!(json(&node, &["keys", "show", &request_id])["key"].as_str(), Some("order-19"));
    assert_eq!(records(&json(&node, &["keys", "list", &request_id])).len(), 1);
    let (code, told) = failed(&node, &["keys", "show", "order-"]);
    assert_eq!((code, told.contains("there is no such record")), (3, true), "{told}");
    assert_eq!(failed(&node, &["keys", "show", &"ab".repeat(32)]).0, 3);
    assert_eq!(failed(&node, &["keys", "show", "order-17", "--scope", "eve"]).0, 3);
    let bobs = pay("order-17").send_as_bob(&node);
    let (code, told) = failed(&node, &["keys", "show", "order-17"]);
    assert_eq!((bobs, code), (201, 4));
    assert!(told.contains("several records fit") && told.contains(id), "{told}");
    let scope = record["scope"].as_str().unwrap();
    assert_eq!(json(&node, &["keys", "show", "order-17", "--scope", scope])["id"].as_str(), Some(id));
}

/// The same payment by another caller.
trait AsBob {
    fn send_as_bob(self, node: &Node) -> u16;
}

impl AsBob for hapax_testkit::raw_http::Request {
    fn send_as_bob(self, node: &Node) -> u16 {
        let text = text(&self.bytes()).replace("alice-secret", "bob-secret");
        let mut conn = hapax_testkit::raw_http::Conn::open(node.hapax.address());
        conn.write(text.as_bytes());
        conn.read_response().unwrap().status
    }
}

// Saying.

fn a_verdict_is_what_clients_get(kept: Kept) {
    let node = start(kept);
    for key in ["k-1", "k-2", "k-3"] {
        lose(&node, key);
    }
    let why = ["--reason", "the provider says so"];
    let told = said(&node, &[&["keys", "resolve", "k-1", "--keys-unique", "--happened"], &why[..]].concat());
    assert!(
        told.starts_with("completed: k-1 of ") && told.contains("clients get 200 with an empty body from now on; "),
        "{told}"
    );
    let again = said(&node, &[&["keys", "resolve", "k-1", "--keys-unique", "--happened"], &why[..]].concat());
    assert!(again.starts_with("unchanged: k-1 of "), "{again}");
    let retry = node.send(&pay("k-1"));
    assert_eq!((retry.status, retry.is_replay(), retry.text().as_str()), (200, true, ""));

    std::fs::write(node.hapax.dir().join("answer.bin"), b"\xff\x00paid").unwrap();
    let answer = ["--happened", "--status", "202", "--body-file", "answer.bin", "--content-type", "application/x-paid"];
    let id = json(&node, &["keys", "show", "k-2"])["id"].as_str().unwrap().to_owned();
    let change = json(&node, &[&["keys", "resolve", &id], &answer[..], &why[..]].concat());
    assert_eq!((change["changed"].as_bool(), change["before"].as_str()), (Some(true), Some("unknown")));
    let retry = node.send(&pay("k-2"));
    assert_eq!((retry.status, retry.header("content-type")), (202, Some("application/x-paid")));
    assert_eq!(retry.body, b"\xff\x00paid");

    let id = json(&node, &["keys", "show", "k-3"])["id"].as_str().unwrap().to_owned();
    let as_of = ["--did-not-happen", "--attempt", "1", "--as", "batch of ben", "--yes"];
    let told = said(&node, &[&["keys", "resolve", &id[..8]], &as_of[..], &why[..]].concat());
    assert!(told.ends_with("the next request with the key runs\n"), "{told}");
    let retry = node.send(&pay("k-3"));
    assert_eq!((retry.status, retry.is_replay(), node.ledger.executions("k-3").len()), (201, false, 2));

    let audit = json(&node, &["audit"]);
    let notes = audit["notes"].as_array().unwrap();
    assert_eq!(notes.len(), 3, "what changed nothing leaves no note");
    let first = notes.last().unwrap();
    assert_eq!((first["key"].as_str(), first["reason"].as_str()), (Some("k-1"), Some("the provider says so")));
    assert!(first["who"].as_str().unwrap().starts_with("ana@"), "{first}");
    assert_eq!(notes[0]["who"].as_str(), Some("batch of ben"));
    assert_eq!((first["before"].as_str(), first["after"].as_str()), (Some("unknown"), Some("completed")));
    assert_eq!(json(&node, &["audit", &id])["notes"].as_array().unwrap().len(), 1);
    assert_eq!(json(&node, &["audit", "k-3"])["notes"].as_array().unwrap().len(), 1);
    let csv = said(&node, &["audit", "--output", "csv"]);
    assert!(csv.starts_with("number,at,who,what,id,") && csv.lines().count() == 4, "{csv}");
    let page = hapax(&node, &["audit", "--limit", "2"]);
    assert_eq!(text(&page.stdout).lines().count(), 3);
    let next = text(&page.stderr).rsplit(' ').next().unwrap().trim().to_owned();
    assert_eq!(said(&node, &["audit", "--limit", "2", "--before", &next]).lines().count(), 2);
    assert_eq!(failed(&node, &["audit", "--limit", "0"]).0, 2);
    assert_eq!(failed(&node, &["audit", "no-such-key"]).0, 3);
}

/// Labels by which records are found.
const LABELS: &str = "[defaults]\nlabels = { order = \"request:/order\" }\n";

/// A payment for that order, whose answer was lost. Returns the id that the client saw in the refusal.
fn lose_order(node: &Node, key: &str, order: &str) -> String {
    node.ledger.next(key, Behaviour::Drop);
    let sent = node::unkeyed(&format!("{{\"order\":\"{order}\"}}")).header("Idempotency-Key", key);
    node.send(&sent).json()["request_id"].as_str().unwrap().to_owned()
}

fn a_record_is_found_alike_with_and_without_a_terminal(kept: Kept) {
    let node = start_with(kept, |builder| builder.with_config(LABELS));
    let resolve = |text: &str, more: &[&str]| {
        command(&node, &[&["keys", "resolve", text, "--happened", "--reason", "x"], more].concat())
    };
    // By key, by id, by its first digits, by request id, by name and value of a label, by its value alone.
    for (nth, by) in ["key", "id", "digits", "request", "label", "value", "scope"].into_iter().enumerate() {
        for with_terminal in [true, false] {
            let (key, order) = (format!("{by}-{with_terminal}"), format!("o-{nth}-{with_terminal}"));
            let request_id = lose_order(&node, &key, &order);
            let record = json(&node, &["keys", "show", &key]);
            let (id, scope) = (record["id"].as_str().unwrap(), record["scope"].as_str().unwrap());
            let (text, more) = match by {
                "key" => (key.clone(), vec!["--keys-unique"]),
                "id" => (id.to_owned(), vec![]),
                "digits" => (id[..8].to_uppercase(), vec![]),
                // Any caller may write the same label: it must be said whose record is meant.
                "request" => (request_id, vec!["--scope", scope]),
                "label" => (format!("order={order}"), vec!["--scope", scope]),
                "value" => (order, vec!["--scope", scope]),
                _ => (key.clone(), vec!["--scope", scope]),
            };
            let (code, told) = if with_terminal {
                terminal::run(resolve(&text, &more), 80, "y\n")
            } else {
                let output = resolve(&text, &more).output().unwrap();
                (output.status.code(), format!("{}{}", self::text(&output.stdout), self::text(&output.stderr)))
            };
            assert_eq!(code, Some(0), "by {by}, with a terminal: {with_terminal}: {told}");
            assert!(told.contains(&format!("completed: {key} of ")), "{told}");
        }
    }
    assert_eq!(json(&node, &["audit"])["notes"].as_array().unwrap().len(), 14);
}

fn what_is_ambiguous_is_named_and_not_changed(kept: Kept) {
    let node = start_with(kept, |builder| builder.with_config(LABELS));
    for key in ["k-1", "k-2"] {
        lose_order(&node, key, "o-1");
    }
    let ids = ["k-1", "k-2"].map(|key| json(&node, &["keys", "show", key])["id"].as_str().unwrap().to_owned());
    for text in ["o-1", "order=o-1"] {
        let resolve = ["keys", "resolve", text, "--did-not-happen", "--reason", "x"];
        let (code, told) = failed(&node, &resolve);
        assert_eq!(code, 4, "{told}");
        let (asked, shown) = terminal::run(command(&node, &resolve), 80, "y\n");
        assert_eq!(asked, Some(4), "{shown}");
        let (purged, _) = failed(&node, &["keys", "purge", text, "--reason", "x"]);
        assert_eq!(purged, 4);
        for id in &ids {
            assert!(told.contains(id) && shown.contains(id), "{told}{shown}");
        }
    }
    // One that is finished fits as well, and the caller's scope does not tell them apart.
    lose_order(&node, "k-3", "o-2");
    let paid = node::unkeyed("{\"order\":\"o-2\"}").header("Idempotency-Key", "k-4");
    assert_eq!(node.send(&paid).status, 201);
    let scope = json(&node, &["keys", "show", "k-3"])["scope"].as_str().unwrap().to_owned();
    let (code, told) = failed(&node, &["keys", "purge", "order=o-2", "--scope", &scope, "--reason", "x"]);
    assert_eq!((code, told.contains("several records fit")), (4, true), "{told}");
    assert_eq!(records(&json(&node, &["keys", "list", "--state", "unknown"])).len(), 3, "nothing was changed");
    assert!(json(&node, &["audit"])["notes"].as_array().unwrap().is_empty());
}

fn the_same_key_of_two_routes_is_ambiguous(kept: Kept) {
    let node = start_with(kept, |builder| builder.with_config("[defaults]\nkey_per = \"route\"\n"));
    let to = |path: &str| {
        let base = request("POST", path).header("Authorization", "Bearer a").header("Idempotency-Key", "k-1");
        node.send(&base.body("{}")).status
    };
    assert_eq!(to("/one"), 201);
    node.ledger.next("k-1", Behaviour::Drop);
    assert_eq!(to("/two"), 504);
    let of = |state: &str| json(&node, &["keys", "list", "--state", state])["records"][0].clone();
    let (done, lost) = (of("completed"), of("unknown"));
    let scope = done["scope"].as_str().unwrap();
    let (code, told) = failed(&node, &["keys", "purge", "k-1", "--scope", scope, "--reason", "x"]);
    assert_eq!((code, told.contains("several records fit")), (4, true), "{told}");
    for record in [&done, &lost] {
        assert!(told.contains(record["id"].as_str().unwrap()), "{told}");
    }
    // Only one of them can be resolved.
    said(&node, &["keys", "resolve", "k-1", "--scope", scope, "--happened", "--reason", "x"]);
    said(&node, &["keys", "purge", done["id"].as_str().unwrap(), "--reason", "x"]);
    assert_eq!(of("completed")["id"], lost["id"]);
}

fn times_are_said_as_moments_or_by_how_long_ago(kept: Kept) {
    let node = start(kept);
    for key in ["k-1", "k-2", "k-3"] {
        complete(&node, key);
    }
    let count = |more: &[&str]| records(&json(&node, &[&["keys", "list"], more].concat())).len();
    assert_eq!((count(&["--since", "24h"]), count(&["--since", "7d"]), count(&["--since", "1h30m"])), (3, 3, 3));
    assert_eq!((count(&["--until", "24h"]), count(&["--until", "0s"])), (0, 3));
    assert_eq!((count(&["--since", "2001-01-01", "--until", "1h"]), count(&["--since", "2001-01-01"])), (0, 3));
    // The cursor goes on, though 24 hours ago is a moment later by then.
    let first = json(&node, &["keys", "list", "--since", "24h", "--limit", "2"]);
    let next = first["next"].as_str().unwrap();
    let rest = json(&node, &["keys", "list", "--since", "24h", "--limit", "2", "--after", next]);
    assert_eq!((records(&first).len(), records(&rest).len()), (2, 1));
    let purge = json(&node, &["keys", "purge", "--since", "1d", "--dry-run"]);
    assert_eq!(purge["matched"].as_u64(), Some(3));
    for bad in ["yesterday", "24", "-1h", ""] {
        let (code, told) = failed(&node, &["keys", "list", &format!("--since={bad}")]);
        assert_eq!((code, told.contains("`--since` is no time; write 2026-01-31")), (2, true), "{bad}: {told}");
        assert_eq!(failed(&node, &["keys", "purge", &format!("--until={bad}"), "--reason", "x", "--yes"]).0, 2);
    }
}

fn notes_outlive_their_record_and_are_found_by_what_stands_in_them(kept: Kept) {
    let config = "[background]\nreap_every = \"200ms\"\n";
    let node = start_with(kept, |builder| builder.with_config(config));
    lose(&node, "k-1");
    lose(&node, "k-2");
    let record = json(&node, &["keys", "show", "k-1"]);
    let (id, scope) = (record["id"].as_str().unwrap(), record["scope"].as_str().unwrap());
    for key in ["k-1", "k-2"] {
        said(&node, &["keys", "resolve", key, "--keys-unique", "--happened", "--reason", "paid"]);
        said(&node, &["keys", "purge", key, "--keys-unique", "--allow-rerun", "--reason", "not paid after all"]);
    }
    until("the record is gone", SOON, || hapax(&node, &["keys", "show", "k-1"]).status.code() == Some(3));
    let digits = id[..8].to_uppercase();
    for names in [&[id][..], &[&id[..20]], &[&digits], &["k-1"], &["k-1", "--scope", scope]] {
        let notes = json(&node, &[&["audit"], names].concat());
        let what: Vec<&str> =
            notes["notes"].as_array().unwrap().iter().map(|note| note["what"].as_str().unwrap()).collect();
        assert_eq!(what, ["purge", "resolve"], "{names:?}");
        assert!(notes["notes"].as_array().unwrap().iter().all(|note| note["id"] == id), "{names:?}");
        let first = json(&node, &[&["audit", "--limit", "1"], names].concat());
        let before = first["next"].as_u64().unwrap().to_string();
        let older = json(&node, &[&["audit", "--limit", "1", "--before", &before], names].concat());
        assert_eq!((&first["notes"][0]["what"], &older["notes"][0]["what"]), (&"purge".into(), &"resolve".into()));
    }
    assert_eq!(failed(&node, &["audit", "k-1", "--scope", "eve"]).0, 3);
    assert_eq!(failed(&node, &["audit", "--scope", scope]).0, 2, "a scope alone names no record");
    let (code, told) = failed(&node, &["audit", "deadbeef"]);
    assert_eq!((code, told.contains("no note about one")), (3, true), "{told}");
}

#[test]
fn a_search_through_very_many_notes_stops_and_says_where_to_go_on() {
    let node = start(Kept::Sqlite);
    let store = rusqlite::Connection::open(node.hapax.dir().join("hapax.db")).unwrap();
    // What purges of the last years have left, and behind all of it a note about a record that is gone.
    let sql = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100001)
               INSERT INTO hapax_note (at, who, what, id, scope, key, attempt, reason, detail)
               SELECT i, 'ana', 'purge', randomblob(32), 'c:1', iif(i = 1, 'k-1', 'k-' || (i + 1)), 1, 'r', '' FROM n";
    store.execute(sql, []).unwrap();
    let (code, told) = failed(&node, &["audit", "k-1"]);
    assert_eq!(code, 3);
    assert!(told.contains("none of the 100000 notes that were read is about one; go on with --before 2"), "{told}");
    assert_eq!(json(&node, &["audit", "k-1", "--before", "2"])["notes"].as_array().unwrap().len(), 1);
    assert_eq!(json(&node, &["audit", "k-100002"])["notes"].as_array().unwrap().len(), 1, "the newest");
}

#[test]
fn who_acts_is_the_user_by_name_or_else_by_number() {
    let node = start(Kept::Sqlite);
    let number = String::from_utf8(Command::new("id").arg("-u").output().unwrap().stdout).unwrap();
    let by_number = format!("uid {}@", number.trim());
    for (variable, value, expected) in [("USER", "ana", "ana@"), ("LOGNAME", "ben", "ben@"), ("USER", "", &by_number)] {
        lose(&node, expected);
        let mut command = command(&node, &["keys", "resolve", expected, "--keys-unique", "--give-up", "--reason", "x"]);
        assert!(command.env_remove("USER").env(variable, value).status().unwrap().success());
        let audit = json(&node, &["audit", expected]);
        assert!(audit["notes"][0]["who"].as_str().unwrap().starts_with(expected), "{audit}");
    }
    for name in ["", "  ", &"x".repeat(129)] {
        let (code, told) =
            failed(&node, &["keys", "resolve", "k", "--keys-unique", "--give-up", "--reason", "x", "--as", name]);
        assert_eq!((code, told.contains("1 to 128 bytes")), (2, true), "{told}");
    }
}

fn what_cannot_be_resolved_says_why_with_a_stable_code(kept: Kept) {
    let node = start(kept);
    complete(&node, "done");
    lose(&node, "lost");
    let rest = ["--keys-unique", "--reason", "x"];
    let resolve = |arguments: &[&str]| failed(&node, &[&["keys", "resolve"], arguments, &rest].concat());
    let (code, told) = resolve(&["done", "--happened"]);
    assert_eq!((code, told.contains("the record is completed: its own attempt recorded the answer 201")), (4, true));
    assert_eq!(resolve(&["missing", "--happened"]).0, 3);
    assert_eq!(resolve(&[&"ab".repeat(32), "--happened"]).0, 3);
    assert_eq!(resolve(&["deadbeef99", "--happened"]).0, 3);
    assert_eq!(resolve(&["payment=pay_1", "--happened"]).0, 3);
    assert_eq!(resolve(&["lost", "--happened", "--scope", "eve"]).0, 3);
    let (code, told) = resolve(&["lost", "--happened", "--attempt", "7"]);
    assert_eq!((code, told.contains("at attempt 1, and attempt 7 was meant")), (4, true), "{told}");
    let (code, told) = resolve(&["lost", "--happened", "--status", "99"]);
    assert_eq!((code, told.contains("use 200 to 599")), (2, true), "{told}");
    let (code, told) = resolve(&["lost", "--happened", "--body-file", "missing.json"]);
    assert_eq!((code, told.contains("the body `missing.json` cannot be read")), (2, true), "{told}");
    assert_eq!(resolve(&["lost"]).0, 2, "a verdict is required");
    assert_eq!(resolve(&["lost", "--happened", "--give-up"]).0, 2, "one verdict");
    assert_eq!(resolve(&["lost", "--did-not-happen", "--status", "200"]).0, 2);
    assert_eq!(failed(&node, &["keys", "resolve", "lost", "--keys-unique", "--happened"]).0, 2, "a reason is required");
    assert_eq!(failed(&node, &["keys", "resolve", "lost", "--keys-unique", "--happened", "--reason", "  "]).0, 2);
    let long = "x".repeat(4097);
    assert_eq!(failed(&node, &["keys", "resolve", "lost", "--keys-unique", "--happened", "--reason", &long]).0, 2);

    node.ledger.hold("running");
    let address = node.hapax.address();
    let running = std::thread::spawn(move || pay("running").try_send(address));
    node.ledger.wait_until_received("running");
    let (code, told) = resolve(&["running", "--did-not-happen"]);
    assert_eq!((code, told.contains("the record is running, attempt 1 under a lease until")), (4, true), "{told}");
    let (code, told) = failed(&node, &["keys", "purge", "running", "--keys-unique", "--reason", "x"]);
    assert_eq!((code, told.contains("the record is running")), (4, true), "{told}");
    node.ledger.release("running");
    assert_eq!(running.join().unwrap().unwrap().status, 201);

    said(&node, &["keys", "resolve", "lost", "--keys-unique", "--did-not-happen", "--reason", "x"]);
    let (code, told) = resolve(&["lost", "--happened"]);
    assert_eq!((code, told.contains("the record is ready: it was resolved as did-not-happen before")), (4, true));
    assert_eq!(node.send(&pay("lost")).status, 201);
    let (code, told) = resolve(&["lost", "--did-not-happen"]);
    assert_eq!((code, told.contains("the record is completed")), (4, true), "{told}");
}

fn a_given_up_request_is_a_failure_from_then_on(kept: Kept) {
    let node = start(kept);
    lose(&node, "k");
    said(&node, &["keys", "resolve", "k", "--keys-unique", "--give-up", "--reason", "nobody knows"]);
    let retry = node.send(&pay("k"));
    assert_eq!((refused(&retry), retry.is_replay()), ((500, "given-up".into()), true));
    assert_eq!(retry.header("x-should-retry"), Some("false"));
    assert_eq!(node.send(&pay("k")).body, retry.body);
    let (code, told) = failed(&node, &["keys", "resolve", "k", "--keys-unique", "--happened", "--reason", "found"]);
    assert_eq!((code, told.contains("it was resolved as given-up before")), (4, true), "{told}");
    node.ledger.assert_once("k");
}

fn a_purge_by_filter_is_counted_first(kept: Kept) {
    let node = start(kept);
    for key in ["k-1", "k-2", "k-3"] {
        complete(&node, key);
    }
    lose(&node, "k-4");
    let purge = ["keys", "purge", "--state", "completed"];
    let count = said(&node, &[&purge[..], &["--allow-rerun", "--dry-run"]].concat());
    assert_eq!(count, "3 matched: 3 would be freed, 0 would be made a tombstone, 0 would be left as they are\n");
    let (code, told) = failed(&node, &[&purge[..], &["--reason", "x"]].concat());
    assert_eq!(code, 2);
    assert_eq!(told, "error: 3 records match, and nobody is there to ask; repeat with --yes\n");
    assert_eq!(failed(&node, &[&purge[..], &["--yes"]].concat()).0, 2, "a reason is required");
    assert_eq!(failed(&node, &["keys", "purge", "--reason", "x", "--yes"]).0, 2, "an empty filter is refused");
    assert_eq!(failed(&node, &["keys", "purge", "k-1", "--keys-unique", "--state", "completed", "--reason", "x"]).0, 2);
    assert!(json(&node, &["audit"])["notes"].as_array().unwrap().is_empty(), "nothing was changed");
    let view = json(&node, &[&purge[..], &["--allow-rerun", "--yes", "--reason", "cache bust"]].concat());
    assert_eq!((view["matched"].as_u64(), view["freed"].as_u64()), (Some(3), Some(3)));
    assert_eq!(json(&node, &["audit"])["notes"].as_array().unwrap().len(), 3);
    let view = json(&node, &["keys", "purge", "--state", "unknown", "--allow-rerun", "--yes", "--reason", "x"]);
    assert_eq!((view["freed"].as_u64(), view["tombstones"].as_u64()), (Some(0), Some(1)), "unfinished stays taken");
    assert_eq!(refused(&node.send(&pay("k-4"))), (410, "key-expired".into()));
    assert_eq!(failed(&node, &["keys", "purge", "missing", "--reason", "x"]).0, 3);
}

fn a_purged_key_runs_again_only_where_that_was_said(kept: Kept) {
    let node = start(kept);
    complete(&node, "k-1");
    complete(&node, "k-2");
    said(&node, &["keys", "purge", "k-1", "--keys-unique", "--reason", "x"]);
    assert_eq!(refused(&node.send(&pay("k-1"))), (410, "key-expired".into()));
    node.ledger.assert_once("k-1");
    said(&node, &["keys", "purge", "k-2", "--keys-unique", "--allow-rerun", "--reason", "x"]);
    assert_eq!(node.send(&pay("k-2")).status, 201);
    assert_eq!(node.ledger.executions("k-2").len(), 2);
}

fn tail_follows_what_is_unfinished_until_it_is_interrupted(kept: Kept) {
    let node = start(kept);
    lose(&node, "k-1");
    let mut tail = command(&node, &["keys", "tail", "--output", "json"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(tail.stdout.take().unwrap()).lines();
    // Whether it is seen while it runs, and how often before it is probed, depends on when it looks.
    let mut next = move |key: &str| -> Value {
        let mut seen = lines.by_ref().map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
        seen.find(|record| record["state"] != "running" && record["key"] == key).unwrap()
    };
    let seen = next("k-1");
    assert_eq!((seen["key"].as_str(), seen["state"].as_str()), (Some("k-1"), Some("unknown")));
    lose(&node, "k-2");
    let seen = next("k-2");
    assert_eq!((seen["key"].as_str(), seen["state"].as_str()), (Some("k-2"), Some("unknown")));
    said(&node, &["keys", "resolve", "k-1", "--keys-unique", "--happened", "--reason", "x"]);
    let ended = std::iter::from_fn(|| Some(next("k-1"))).take(10).find(|record| record["state"] != "unknown");
    assert_eq!(ended.unwrap()["state"], "completed", "how it ended");
    let interrupt = Command::new("kill").args(["-INT", &tail.id().to_string()]).status().unwrap();
    assert!(interrupt.success());
    assert_eq!(tail.wait().unwrap().code(), Some(0));
    let mut unread = command(&node, &["keys", "tail"]).stdout(Stdio::piped()).spawn().unwrap();
    drop(unread.stdout.take());
    assert_eq!(unread.wait().unwrap().code(), Some(0), "nobody reads it any more");
    assert_eq!(failed(&node, &["keys", "tail", "--state", "completed"]).0, 2);
    assert_eq!(failed(&node, &["keys", "tail", "--every", "0"]).0, 2);
}

// People and programs.

fn a_person_at_a_terminal_is_asked(kept: Kept) {
    let node = start(kept);
    complete(&node, "k-1");
    lose(&node, &format!("long-{}", "x".repeat(200)));
    let purge = || command(&node, &["keys", "purge", "--state", "completed", "--allow-rerun", "--reason", "x"]);
    let (code, shown) = terminal::run(purge(), 80, "n\n");
    assert_eq!(code, Some(1), "{shown}");
    assert!(shown.contains("1 records match. Their requests may RUN AGAIN. Take their answers away? [y/N]"), "{shown}");
    assert!(shown.contains("nothing was changed"), "{shown}");
    let (code, shown) = terminal::run(purge(), 80, "y\n");
    assert_eq!((code, shown.contains("1 matched: 1 freed")), (Some(0), true), "{shown}");
    let (_, shown) = terminal::run(command(&node, &["keys", "list"]), 80, "");
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    assert!(shown.contains('…') && shown.contains("unknown"), "{shown}");
    let (_, shown) = terminal::run(command(&node, &["status"]), 80, "");
    assert!(shown.starts_with("\u{1b}[32mhealthy\u{1b}[0m\n"), "{shown:?}");
    let mut plain = command(&node, &["status"]);
    plain.env("NO_COLOR", "1");
    let (_, shown) = terminal::run(plain, 80, "");
    assert!(shown.starts_with("healthy\n"), "{shown:?}");
    let resolve = command(
        &node,
        &["keys", "resolve", &format!("long-{}", "x".repeat(200)), "--keys-unique", "--give-up", "--reason", "x"],
    );
    let (code, shown) = terminal::run(resolve, 80, "no\n");
    assert_eq!((code, shown.contains("Record it as give-up?")), (Some(1), true), "{shown}");
    assert_eq!(records(&json(&node, &["keys", "list", "--state", "unknown"])).len(), 1, "nothing was changed");
}

fn who_says_no_ends_the_command_with_1_and_a_program_gets_json(kept: Kept) {
    let node = start(kept);
    complete(&node, "k-1");
    lose(&node, "k-2");
    let resolve = ["keys", "resolve", "k-2", "--keys-unique", "--happened", "--reason", "x", "--output", "json"];
    let purge = ["keys", "purge", "--state", "completed", "--reason", "x", "--output", "json"];
    // An end of the input is no yes either.
    for typed in ["n\n", "\n", "\u{4}"] {
        let (code, seen, piped) = terminal::run_piped(command(&node, &resolve), typed);
        let change: Value = serde_json::from_str(&piped).unwrap_or_else(|error| panic!("{error}: {piped:?}"));
        assert_eq!((code, change["changed"].as_bool()), (Some(1), Some(false)), "{seen}");
        assert_eq!((change["before"].as_str(), change["record"]["key"].as_str()), (Some("unknown"), Some("k-2")));
        assert!(seen.contains("[y/N]"), "{seen}");
        let (code, seen, piped) = terminal::run_piped(command(&node, &purge), typed);
        let view: Value = serde_json::from_str(&piped).unwrap_or_else(|error| panic!("{error}: {piped:?}"));
        assert_eq!((code, view["matched"].as_u64()), (Some(1), Some(1)), "{seen}");
        assert_eq!(view["dry_run"].as_bool(), Some(true), "it was only counted");
    }
    assert!(json(&node, &["audit"])["notes"].as_array().unwrap().is_empty(), "nothing was changed");
    let (code, _, piped) = terminal::run_piped(command(&node, &resolve), "y\n");
    let change: Value = serde_json::from_str(&piped).unwrap();
    assert_eq!((code, change["changed"].as_bool()), (Some(0), Some(true)));
}

fn a_store_that_is_not_there_is_not_made(kept: Kept) {
    let node = start(kept);
    let directory = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hapax"));
        alone(command.args(arguments), directory.path());
        let output = command.output().unwrap();
        (output.status.code().unwrap(), text(&output.stderr))
    };
    let (code, told) = run(&["keys", "list"]);
    assert_eq!(code, 6, "{told}");
    assert_eq!(
        told,
        "error: there is no store at hapax.db; name it with --store sqlite:FILE, or a node with --admin URL\n"
    );
    assert_eq!(run(&["status", "--store", "sqlite:typo.db"]).0, 6);
    std::fs::write(directory.path().join("empty.db"), "").unwrap();
    let (code, told) = run(&["status", "--store", "sqlite:empty.db"]);
    assert_eq!((code, told.contains("the file holds no store")), (6, true), "{told}");
    std::fs::write(directory.path().join("letter.txt"), "not a database, but long enough to be read as one".repeat(99))
        .unwrap();
    assert_eq!(run(&["status", "--store", "sqlite:letter.txt"]).0, 6);
    let (code, told) = run(&["status", "--store", "memory:"]);
    assert_eq!((code, told.contains("--admin URL")), (6, true), "{told}");
    let (code, told) = run(&["status", "--store", "typo.db"]);
    assert_eq!((code, told.contains("for a file write sqlite:PATH")), (2, true), "{told}");
    assert_eq!(run(&["status", "--store", "postgres://nobody:hunter2@127.0.0.1:1/none"]).0, 6);
    let left: Vec<_> = std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "nothing was made: {left:?}");
    assert_eq!(std::fs::metadata(directory.path().join("empty.db")).unwrap().len(), 0);
    if let Some(database) = &node.database {
        let other = hapax_testkit::postgres::Server::shared().fresh_database();
        let (code, told) = run(&["status", "--store", &other.url()]);
        assert_eq!((code, told.contains("the schema hapax holds no store")), (6, true), "{told}");
        assert_eq!(other.run("SELECT count(*) FROM pg_namespace WHERE nspname = 'hapax'").trim(), "0");
        assert_eq!(database.run("SELECT count(*) FROM pg_namespace WHERE nspname = 'hapax'").trim(), "1");
    }
}

#[test]
fn control_characters_reach_no_terminal() {
    let node = start_with(Kept::Sqlite, |builder| builder.with_scope("header:X-Tenant"));
    let sent = pay("k").header("X-Tenant", "tenant\u{9b}31m");
    let answer = node.send(&sent);
    node.ledger.next("lost", Behaviour::Drop);
    node.send(&pay("lost").header("X-Tenant", "tenant"));
    said(&node, &["keys", "resolve", "lost", "--keys-unique", "--happened", "--reason", "see \u{1b}[2J\u{202e}this"]);
    for form in ["text", "json", "csv"] {
        for list in [&["audit"][..], &["keys", "list"]] {
            let shown = said(&node, &[list, &["--output", form]].concat());
            let unsafe_ones = |c: char| c.is_control() && c != '\n' && c != '\r' || c == '\u{202e}';
            assert!(!shown.contains(unsafe_ones), "{} {shown:?}", answer.status);
            assert!(list[0] != "audit" || shown.contains("\\u001b[2J\\u202ethis"), "{shown}");
        }
    }
}

#[test]
fn every_help_fits_a_terminal_and_every_command_has_a_page() {
    let directory = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hapax"));
        alone(command.args(arguments), directory.path());
        command.output().unwrap()
    };
    let commands: [&[&str]; 23] = [
        &[],
        &["proxy"],
        &["config"],
        &["config", "check"],
        &["config", "show"],
        &["config", "default"],
        &["routes"],
        &["status"],
        &["keys"],
        &["keys", "list"],
        &["keys", "show"],
        &["keys", "tail"],
        &["keys", "resolve"],
        &["keys", "purge"],
        &["audit"],
        &["reconcile"],
        &["store"],
        &["store", "backup"],
        &["store", "restore"],
        &["store", "recover"],
        &["store", "fence"],
        &["completions"],
        &["man"],
    ];
    assert_eq!(run(&["man", "."]).status.code(), Some(0));
    for command in commands {
        let help = text(&run(&[command, &["--help"]].concat()).stdout);
        let widest = help.lines().map(|line| line.chars().count()).max().unwrap();
        let fits = (5..=24).contains(&help.lines().count()) && widest <= 80;
        assert!(fits, "{command:?}: {widest} columns\n{help}");
        let page = directory.path().join([&["hapax"], command].concat().join("-")).with_extension("1");
        assert!(std::fs::read_to_string(&page).unwrap().contains(".TH"), "{page:?}");
    }
    assert!(text(&run(&["man"]).stdout).contains(".SH NAME\nhapax"));
    assert_eq!(run(&["man", "new/pages"]).status.code(), Some(0), "the directory is made");
    assert_eq!(run(&["man", "new/pages/hapax.1"]).status.code(), Some(2), "a file is none");
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = text(&run(&["completions", shell]).stdout);
        assert!(script.contains("resolve") && script.contains("did-not-happen"), "{shell}");
    }
    assert_eq!(run(&["completions", "command.com"]).status.code(), Some(2));
    let mut bash = Command::new("bash");
    let script = run(&["completions", "bash"]).stdout;
    std::fs::write(directory.path().join("hapax.bash"), script).unwrap();
    let checked = bash.args(["-n", "hapax.bash"]).current_dir(directory.path()).status();
    assert!(checked.is_ok_and(|status| status.success()));
}

// Through a node.

const OPERATOR: &str = "operator-token-0123456789";
const VIEWER: &str = "viewer-token-0123456789";

/// `hapax` with those arguments through the node, with that token.
fn through(node: &Node, token: Option<(&str, &str)>, arguments: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hapax"));
    command.args(arguments).args(["--admin", &format!("http://{}", node.hapax.admin())]);
    // No store is to be found here.
    let elsewhere = tempfile::tempdir().unwrap();
    alone(&mut command, elsewhere.path());
    let output = command.envs(token).output().unwrap();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

/// A file that only its owner can read.
fn secret(directory: &Path, name: &str, token: &str) -> String {
    use std::os::unix::fs::PermissionsExt as _;
    let path = directory.join(name);
    std::fs::write(&path, token).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    path.to_str().unwrap().to_owned()
}

fn every_command_works_through_a_node(kept: Kept) {
    let secrets = tempfile::tempdir().unwrap();
    let viewer = secret(secrets.path(), "viewer", VIEWER);
    let operator = secret(secrets.path(), "operator", &format!("{OPERATOR}\n"));
    let config = format!("[[admin.tokens]]\nname = \"board\"\nrole = \"viewer\"\nvalue_file = \"{viewer}\"\n");
    let node = start_with(kept, |builder| builder.with_config(&config).with_env("HAPAX_ADMIN_TOKEN", OPERATOR));
    lose(&node, "k-1");
    complete(&node, "k-2");
    let by_name = |arguments: &[&str]| through(&node, Some(("HAPAX_ADMIN_TOKEN", OPERATOR)), arguments);
    let by_file = |arguments: &[&str]| through(&node, Some(("HAPAX_ADMIN_TOKEN_FILE", &operator)), arguments);
    let viewing = |arguments: &[&str]| through(&node, Some(("HAPAX_ADMIN_TOKEN", VIEWER)), arguments);

    let (code, shown, _) = viewing(&["status"]);
    assert!(code == 0 && shown.contains("\nunknown   1, the oldest since "), "{shown}");
    let (code, shown, _) = by_file(&["keys", "list", "--state", "unknown", "--output", "json"]);
    assert_eq!((code, records(&serde_json::from_str(&shown).unwrap())), (0, vec![("k-1".into(), "unknown".into())]));
    let (code, shown, told) = viewing(&["keys", "list", "--since", "24h", "--output", "json"]);
    assert_eq!((code, records(&serde_json::from_str(&shown).unwrap()).len()), (0, 2), "{told}");
    let (code, shown, _) = by_name(&["keys", "show", "k-2", "--body"]);
    assert!(code == 0 && shown.contains("\"method\":\"POST\""), "{shown}");
    let resolve = ["keys", "resolve", "k-1", "--keys-unique", "--happened", "--status", "201", "--reason", "x"];
    let (code, _, told) = viewing(&resolve);
    assert_eq!(code, 5, "{told}");
    let (code, _, told) = viewing(&["keys", "purge", "k-2", "--keys-unique", "--allow-rerun", "--reason", "x"]);
    assert_eq!(code, 5, "{told}");
    let (code, shown, told) = by_name(&resolve);
    assert!(code == 0 && shown.starts_with("completed: k-1 of "), "{shown}{told}");
    let (code, shown, _) = by_name(&resolve);
    assert!(code == 0 && shown.starts_with("unchanged: "), "{shown}");
    let (code, _, told) = by_name(&["keys", "resolve", "k-1", "--keys-unique", "--give-up", "--reason", "x"]);
    assert!(code == 4 && told.contains("it was resolved as happened before"), "{told}");
    assert_eq!(by_name(&["keys", "resolve", "missing", "--give-up", "--reason", "x"]).0, 3);
    assert_eq!(by_name(&["keys", "list", "--after", "AAAA"]).0, 2);
    let (code, shown, told) = by_name(&["keys", "purge", "k-2", "--keys-unique", "--allow-rerun", "--reason", "x"]);
    assert!(code == 0 && shown.starts_with("1 matched: 1 freed"), "{shown}{told}");
    let (code, shown, _) = by_name(&["audit", "--output", "json"]);
    let audit: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!((code, audit["notes"].as_array().unwrap().len()), (0, 2));
    let (code, shown, told) = viewing(&["audit", &audit["notes"][1]["id"].as_str().unwrap()[..8], "--output", "json"]);
    let about: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!((code, &about["notes"]), (0, &serde_json::json!([audit["notes"][1]])), "{told}");
    let (code, shown, _) = viewing(&["audit", "k-2", "--output", "json"]);
    let about: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!((code, &about["notes"]), (0, &serde_json::json!([audit["notes"][0]])), "there or gone");
    assert!(audit["notes"][0]["who"].as_str().unwrap().contains("ana@"), "{shown}");
    assert_eq!(node.send(&pay("k-1")).status, 201);

    let (code, _, told) = through(&node, None, &resolve);
    assert!(code == 5 && told.contains("none was given; set HAPAX_ADMIN_TOKEN"), "{told}");
    let (code, _, told) = through(&node, Some(("HAPAX_ADMIN_TOKEN", "wrong-token-0123456789")), &["status"]);
    assert!(code == 5 && !told.contains("wrong-token"), "{told}");
    let missing = Some(("HAPAX_ADMIN_TOKEN_FILE", "missing"));
    let (code, _, told) = through(&node, missing, &["status"]);
    assert!(code == 2 && told.contains("HAPAX_ADMIN_TOKEN_FILE: `missing` does not exist"), "{told}");
}

#[test]
fn a_node_that_is_away_is_said_to_be() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hapax"));
    let url = format!("http://127.0.0.1:{}", hapax_testkit::port::free());
    let run = |command: &mut Command| {
        alone(command, Path::new("."));
        let output = command.output().unwrap();
        (output.status.code().unwrap(), text(&output.stderr))
    };
    let (code, told) = run(command.args(["status", "--admin", &url]));
    assert!(code == 6 && told.contains("cannot be reached"), "{told}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_hapax"));
    assert_eq!(run(command.args(["status", "--admin", "localhost"])).0, 2);
    let mut command = Command::new(env!("CARGO_BIN_EXE_hapax"));
    assert_eq!(run(command.args(["status", "--admin", &url, "--store", "sqlite:x.db"])).0, 2, "one or the other");
}
