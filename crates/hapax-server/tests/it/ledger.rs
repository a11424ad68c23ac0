//! `hapax reconcile --ledger` as an operator uses it: a provider's export beside the store of a live proxy.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use crate::node::{self, Kept, Node, on_both_stores, pay, refused};
use hapax_core::address::{Address, AddressScheme, Key, Scope, Space};
use hapax_core::fingerprint::{Fingerprint, Scheme};
use hapax_core::record::{Body, Outcome, Policy, Record, State, Version};
use hapax_core::store::{Store as _, Swap};
use hapax_sqlite::{Options, Sqlite};
use hapax_testkit::hapax::Builder;
use hapax_testkit::ledger::Behaviour;
use hapax_testkit::raw_http::{Request, request};
use hapax_testkit::wait;
use serde_json::Value;
use tokio::task::JoinSet;

/// How a run ended.
struct Ended {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Ended {
    fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {}\n{}", self.stdout, self.stderr))
    }

    /// Finding, key and line of everything that was found.
    fn found(&self) -> Vec<(String, String, Option<u64>)> {
        let json = self.json();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let findings = json["findings"].as_array().unwrap().iter();
        findings.map(|found| (text(&found["finding"]), text(&found["key"]), found["line"].as_u64())).collect()
    }
}

fn store_url(node: &Node) -> String {
    match &node.database {
        Some(database) => database.url(),
        None => format!("sqlite:{}", node.hapax.dir().join("hapax.db").display()),
    }
}

/// Runs the command on the node's store, with the ledger in a file of that name.
fn reconcile(node: &Node, name: &str, ledger: &str, arguments: &[&str]) -> Ended {
    let file = node.hapax.dir().join(name);
    std::fs::write(&file, ledger).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_hapax"));
    command.args(["reconcile", "--ledger", name, "--store", &store_url(node)]).args(arguments);
    run(command.current_dir(node.hapax.dir()).env_clear())
}

fn run(command: &mut Command) -> Ended {
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ended { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// A node of one tenant: every row is about that one's requests.
fn start(kept: Kept) -> Node {
    start_with(kept, |builder| builder)
}

fn start_with(kept: Kept, change: impl FnOnce(Builder) -> Builder) -> Node {
    node::start_with(kept, |builder| change(builder.with_scope("single")))
}

const BY_KEY: [&str; 6] = ["--match", "key=key", "--match", "scope:single", "--output", "json"];
const STATUS: [&str; 8] =
    ["--status", "status", "--happened", "paid, settled", "--declined", "declined", "--did-not-happen", "void"];
const APPLY: [&str; 7] = ["--apply", "--reason", "provider's export", "--answer-status", "201", "--settle-after", "0s"];

fn with<'a>(parts: &[&[&'a str]]) -> Vec<&'a str> {
    parts.concat()
}

/// A payment that reached the upstream, whose answer nobody saw.
fn lose_answer(node: &Node, key: &str) {
    node.ledger.next(key, Behaviour::Drop);
    assert_eq!(refused(&node.send(&pay(key))), (504, "outcome-unknown".to_owned()));
}

on_both_stores! {
    a_ledger_that_agrees_ends_with_0
    what_disagrees_is_reported_and_nothing_is_changed
    what_the_ledger_decides_is_resolved_and_replayed
    rows_that_contradict_or_say_nothing_decide_nothing
    a_missing_row_says_nothing_unless_somebody_vouches_for_it
    a_record_that_the_ledger_cannot_name_is_not_missing_from_it
    a_label_finds_the_record_and_a_nested_value_the_row
    the_same_key_of_two_callers_is_told_apart_by_scope_only
    an_id_finds_its_record_and_no_other
    malformed_rows_are_named_and_the_rest_goes_on
    keys_and_labels_are_compared_letter_by_letter
    a_row_about_an_earlier_attempt_does_not_let_a_later_one_run_again
}

fn a_ledger_that_agrees_ends_with_0(kept: Kept) {
    let node = start(kept);
    for key in ["k-1", "k-2"] {
        assert_eq!(node.send(&pay(key)).status, 201);
    }
    let ledger = "key,amount\r\nk-1,5\r\n\r\n\"k-2\",7\r\n,9\r\n";
    let agrees = reconcile(&node, "provider.csv", ledger, &BY_KEY);
    assert_eq!((agrees.code, agrees.stderr.as_str()), (Some(0), ""), "{}", agrees.stdout);
    let json = agrees.json();
    assert_eq!(
        (json["rows"].as_u64(), json["without_key"].as_u64(), json["records"].as_u64()),
        (Some(3), Some(1), Some(2))
    );
    assert_eq!(json["agreeing"], 2);
    let text = reconcile(&node, "provider.csv", ledger, &["--match", "key=key"]);
    assert!(text.stdout.starts_with("provider.csv: 3 rows, 1 without a key, 0 malformed\n"), "{}", text.stdout);
}

fn what_disagrees_is_reported_and_nothing_is_changed(kept: Kept) {
    let node = start(kept);
    assert_eq!(node.send(&pay("here-only")).status, 201);
    assert_eq!(node.send(&pay("both")).status, 201);
    node.ledger.next("declined-here", Behaviour::answer(402, "no"));
    assert_eq!(node.send(&pay("declined-here")).status, 402);
    lose_answer(&node, "lost");
    let ledger = "key,status\nboth,paid\nthere-only,paid\nlost,paid\ntwice,paid\ntwice,settled\ndeclined-here,paid\n";
    for _ in 0..2 {
        let found = reconcile(&node, "p.csv", ledger, &with(&[&BY_KEY, &STATUS]));
        let expected = [
            ("twice-there", "twice", Some(5)),
            ("contradicts", "declined-here", Some(7)),
            ("not-here", "there-only", Some(3)),
            ("not-here", "twice", Some(5)),
            ("not-there", "here-only", None),
            ("decidable", "lost", Some(4)),
        ];
        let expected: Vec<_> = expected.map(|(kind, key, line)| (kind.to_owned(), key.to_owned(), line)).into();
        assert_eq!(found.found(), expected, "{}", found.stdout);
        assert_eq!(found.code, Some(1));
        assert_eq!(found.json()["agreeing"], 1);
    }
    assert_eq!(refused(&node.send(&pay("lost"))).1, "outcome-unknown", "nothing was resolved");
    let text = reconcile(&node, "p.csv", ledger, &with(&[&["--match", "key=key"], &STATUS]));
    assert!(text.stdout.contains("not-there: completed here, not in the ledger"), "{}", text.stdout);
}

fn what_the_ledger_decides_is_resolved_and_replayed(kept: Kept) {
    let node = start(kept);
    for key in ["paid", "declined", "void"] {
        lose_answer(&node, key);
    }
    let ledger =
        "key,status,body\npaid,paid,\"{\"\"id\"\":\"\"p-1\"\"}\"\ndeclined,declined,card expired\nvoid,void,\n";
    let arguments = with(&[&BY_KEY, &STATUS, &APPLY, &["--answer-body-column", "body", "--as", "ana"]]);
    let done = reconcile(&node, "p.csv", ledger, &arguments);
    assert_eq!(done.code, Some(0), "{}{}", done.stdout, done.stderr);
    assert_eq!(done.json()["counts"]["resolved"], 3);
    let replay = node.send(&pay("paid"));
    assert_eq!((replay.status, replay.text().as_str()), (201, "{\"id\":\"p-1\"}"));
    assert_eq!(replay.header("content-type"), Some("application/json"));
    assert_eq!(replay.header("idempotent-replayed"), Some("true"));
    let replay = node.send(&pay("declined"));
    assert_eq!((replay.status, replay.text().as_str()), (402, "card expired"));
    for key in ["paid", "declined"] {
        node.ledger.assert_once(key);
    }
    assert_eq!(node.send(&pay("void")).status, 201, "what did not happen runs again");
    assert_eq!(node.ledger.executions("void").len(), 2);
    let again = reconcile(&node, "p.csv", &ledger.replace("void,void", "void,paid"), &arguments);
    assert_eq!((again.code, again.json()["counts"]["resolved"].as_u64()), (Some(0), Some(0)), "{}", again.stdout);
    if kept == Kept::Sqlite {
        let store = rusqlite::Connection::open(node.hapax.dir().join("hapax.db")).unwrap();
        let sql = "SELECT detail FROM hapax_note WHERE what = 'resolve' AND reason = 'provider''s export'
                   AND who = 'ana' AND before = 3 ORDER BY key DESC";
        let mut select = store.prepare(sql).unwrap();
        let notes: Vec<String> = select.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
        let expected = [
            "did not happen; by the ledger p.csv",
            "happened; answer 201 with 12 bytes; by the ledger p.csv",
            "declined; answer 402 with 12 bytes; by the ledger p.csv",
        ];
        assert_eq!(notes, expected, "each is in the audit log, with the verdict and the answer");
    }
}

fn rows_that_contradict_or_say_nothing_decide_nothing(kept: Kept) {
    let node = start(kept);
    for key in ["torn", "pending", "early"] {
        lose_answer(&node, key);
    }
    let ledger = "key,status\ntorn,paid\ntorn,void\npending,on its way\nearly,void\n";
    let arguments = with(&[&BY_KEY, &STATUS, &APPLY[..5]]);
    let found = reconcile(&node, "p.csv", ledger, &arguments);
    assert_eq!(found.code, Some(1));
    let json = found.json();
    assert_eq!((json["counts"]["undecided"].as_u64(), json["counts"]["resolved"].as_u64()), (Some(3), Some(0)));
    assert_eq!(json["unlisted_statuses"]["on its way"], 1);
    let note = |key: &str| {
        let found = json["findings"].as_array().unwrap().iter().find(|found| found["key"] == key).unwrap();
        found["note"].as_str().unwrap().to_owned()
    };
    assert!(note("torn").contains("contradict each other"));
    assert!(note("pending").contains("a status that is in no list"));
    assert!(note("early").contains("may still be going on"), "10 minutes have not passed");
    for key in ["torn", "pending", "early"] {
        assert_eq!(refused(&node.send(&pay(key))).1, "outcome-unknown");
        node.ledger.assert_once(key);
    }
}

fn a_missing_row_says_nothing_unless_somebody_vouches_for_it(kept: Kept) {
    let node = start(kept);
    lose_answer(&node, "lost");
    let others = "key,status\nother,paid\n";
    let counts = |ledger: &str, more: &[&str]| {
        let ended = reconcile(&node, "p.csv", ledger, &with(&[&BY_KEY, &STATUS, &APPLY, more]));
        assert_eq!(ended.code, Some(1), "{}{}", ended.stdout, ended.stderr);
        let counts = &ended.json()["counts"];
        (counts["undecided"].as_u64().unwrap(), counts["resolved"].as_u64().unwrap())
    };
    let vouched = "--absent-means-did-not-happen";
    assert_eq!(counts(others, &[]), (1, 0), "never by default");
    assert_eq!(counts(others, &[vouched, "--since", "1h", "--until", "30m"]), (0, 0), "outside of the window");
    let unsettled = [vouched, "--since", "1h", "--until", "0s", "--settle-after", "1h"];
    let ended = reconcile(&node, "p.csv", others, &with(&[&BY_KEY, &STATUS, &APPLY[..5], &unsettled]));
    assert_eq!(ended.json()["counts"]["undecided"], 1, "the window ends before the attempt can have");
    let whole = [vouched, "--since", "1h", "--until", "0s"];
    assert_eq!(counts(&format!("{others}torn\n"), &whole), (1, 0), "it may be the malformed row");
    node.ledger.assert_once("lost");
    assert_eq!(counts(others, &whole), (0, 1));
    assert_eq!(node.send(&pay("lost")).status, 201, "it runs again");
}

fn a_record_that_the_ledger_cannot_name_is_not_missing_from_it(kept: Kept) {
    let config = "[[route]]\npath = \"/payments\"\nlabels = { payment = \"answer:/id\" }\n";
    let node = start_with(kept, |builder| builder.with_config(config));
    lose_answer(&node, "lost");
    let by_label = ["--match", "label:payment=id", "--match", "scope:single", "--output", "json"];
    let whole = ["--absent-means-did-not-happen", "--since", "1h", "--until", "0s"];
    let ledger = "id,status\npay-1,paid\n";
    let ended = reconcile(&node, "p.csv", ledger, &with(&[&by_label, &STATUS, &APPLY, &whole]));
    let counts = &ended.json()["counts"];
    assert_eq!((counts["undecided"].as_u64(), counts["resolved"].as_u64()), (Some(1), Some(0)), "{}", ended.stdout);
    let nameless = "key,status\nother,paid\n,paid\n";
    let ended = reconcile(&node, "p.csv", nameless, &with(&[&BY_KEY, &STATUS, &APPLY, &whole]));
    assert_eq!(ended.json()["counts"]["resolved"], 0, "it may be the row without a key");
    assert_eq!(refused(&node.send(&pay("lost"))), (409, "outcome-unknown".to_owned()));
    node.ledger.assert_once("lost");
}

fn a_label_finds_the_record_and_a_nested_value_the_row(kept: Kept) {
    let config = "[[route]]\npath = \"/payments\"\nlabels = { order = \"request:/order\" }\n";
    let node = start_with(kept, |builder| builder.with_config(config));
    let order = |key: &str, order: &str| -> Request {
        request("POST", "/payments")
            .header("Authorization", "Bearer alice-secret")
            .header("Content-Type", "application/json")
            .header("Idempotency-Key", key)
            .body(format!("{{\"order\":\"{order}\"}}"))
    };
    node.ledger.next("k-1", Behaviour::Drop);
    assert_eq!(node.send(&order("k-1", "o-1")).status, 504);
    assert_eq!(node.send(&order("k-2", "o-2")).status, 201);
    let ledger = "{\"data\":{\"order\":\"o-1\",\"paid\":true,\"answer\":{\"id\":7}}}\n\n\
                  {\"data\":{\"order\":\"o-2\",\"paid\":true}}\n{\"data\":{}}\n";
    let arguments = [
        "--match",
        "label:order=/data/order",
        "--match",
        "scope:single",
        "--status",
        "/data/paid",
        "--happened",
        "true",
        "--answer-body-column",
        "/data/answer",
        "--output",
        "json",
    ];
    let done = reconcile(&node, "events.ndjson", ledger, &with(&[&arguments, &APPLY]));
    assert_eq!(
        (done.code, done.json()["counts"]["resolved"].as_u64()),
        (Some(0), Some(1)),
        "{}{}",
        done.stdout,
        done.stderr
    );
    let replay = node.send(&order("k-1", "o-1"));
    assert_eq!((replay.status, replay.text().as_str()), (201, "{\"id\":7}"));
    node.ledger.assert_once("k-1");
}

fn the_same_key_of_two_callers_is_told_apart_by_scope_only(kept: Kept) {
    let node = start_with(kept, |builder| builder.with_scope("header:X-Tenant"));
    let by =
        |tenant: &str| request("POST", "/payments").header("X-Tenant", tenant).header("Idempotency-Key", "k").body("1");
    for tenant in ["a", "b"] {
        node.ledger.next("k", Behaviour::Drop);
        assert_eq!(node.send(&by(tenant)).status, 504);
    }
    let ledger = "key,tenant\nk,a\n";
    let by_key = ["--output", "json", "--match"];
    for more in [&["key=key"][..], &with(&[&["unique-key=key"], &APPLY])] {
        let ended = reconcile(&node, "p.csv", ledger, &with(&[&by_key, more]));
        let undecided = ended.json()["counts"]["undecided"].as_u64();
        assert_eq!((ended.code, undecided), (Some(1), Some(2)), "{}", ended.stdout);
    }
    let ended = reconcile(&node, "p.csv", ledger, &with(&[&by_key, &["key=key"]]));
    let scope = ended.json()["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|found| found["scope"].as_str().unwrap().to_owned())
        .find(|scope| scope.ends_with('a'))
        .unwrap();
    let ledger = format!("key,tenant\nk,{scope}\n");
    let ended = reconcile(&node, "p.csv", &ledger, &with(&[&by_key, &["key=key", "--match", "scope=tenant"], &APPLY]));
    let counts = ended.json()["counts"].clone();
    assert_eq!((counts["resolved"].as_u64(), counts["undecided"].as_u64()), (Some(1), Some(1)), "{}", ended.stdout);
    assert_eq!(node.send(&by("a")).status, 201);
    assert_eq!(refused(&node.send(&by("b"))).1, "outcome-unknown");
    // A ledger of one caller: what is another's is not looked at.
    let ended = reconcile(&node, "p.csv", "key\nk\n", &with(&[&by_key, &["key=key", "--match", "scope:h:c"], &APPLY]));
    assert_eq!(ended.found(), [("not-here".to_owned(), "k".to_owned(), Some(2))], "{}", ended.stdout);
    let ended = reconcile(&node, "p.csv", "key\nk\n", &with(&[&by_key, &["key=key", "--match", "scope:h:b"], &APPLY]));
    assert_eq!((ended.code, ended.found().len()), (Some(0), 1), "{}", ended.stdout);
    assert_eq!(node.send(&by("b")).status, 201);
}

fn an_id_finds_its_record_and_no_other(kept: Kept) {
    let node = start_with(kept, |builder| builder.with_scope("credential"));
    for key in ["k-1", "k-2"] {
        lose_answer(&node, key);
    }
    let id = node.ledger.executions("k-1")[0].record.clone().unwrap();
    let ledger = format!("record,body\n\"{} \",one\n{},two\nk-2,three\n,four\n", id.to_uppercase(), "ab".repeat(32));
    let by_id = ["--match", "id=record", "--answer-body-column", "body", "--output", "json"];
    let ended = reconcile(&node, "p.csv", &ledger, &with(&[&by_id, &APPLY]));
    let json = ended.json();
    assert_eq!((&json["counts"]["resolved"], &json["counts"]["not-here"]), (&1.into(), &1.into()), "{}", ended.stdout);
    assert_eq!((&json["malformed_rows"][0]["line"], &json["without_key"]), (&4.into(), &1.into()), "{}", ended.stdout);
    let replay = node.send(&pay("k-1"));
    assert_eq!((replay.status, replay.text().as_str(), replay.is_replay()), (201, "one", true));
    assert_eq!(refused(&node.send(&pay("k-2"))).1, "outcome-unknown");
}

fn malformed_rows_are_named_and_the_rest_goes_on(kept: Kept) {
    let node = start(kept);
    assert_eq!(node.send(&pay("k-1")).status, 201);
    let long = "x".repeat(256);
    let ledger =
        format!("key,status\nonly-one-cell\nk-0,\"never closed\n\u{20ac},paid\n{long},paid\na,b,c\nk-1,paid\n");
    let mut bytes = ledger.into_bytes();
    bytes.extend(b"\xff\xfe,paid\n");
    let file = node.hapax.dir().join("p.csv");
    std::fs::write(&file, &bytes).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_hapax"));
    command.args(["reconcile", "--ledger", "p.csv", "--store", &store_url(&node)]).args(BY_KEY).args(STATUS);
    let ended = run(command.current_dir(node.hapax.dir()).env_clear());
    assert_eq!(ended.code, Some(1), "{}{}", ended.stdout, ended.stderr);
    let json = ended.json();
    let rows: Vec<(u64, String)> = json["malformed_rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (row["line"].as_u64().unwrap(), row["cause"].as_str().unwrap().to_owned()))
        .collect();
    let lines: Vec<u64> = rows.iter().map(|(line, _)| *line).collect();
    assert_eq!(lines, [2, 3, 4, 5, 6, 8], "{rows:?}");
    for (at, cause) in [
        (0, "fewer cells (1)"),
        (1, "not closed"),
        (2, "printable ASCII"),
        (3, "256 characters"),
        (4, "more cells (3)"),
        (5, "not UTF-8"),
    ] {
        assert!(rows[at].1.contains(cause), "{:?} has no {cause}", rows[at]);
    }
    assert_eq!((json["agreeing"].as_u64(), ended.found().len()), (Some(1), 0), "k-1 is found after all of them");
    let ndjson = "{\"key\":\"k-1\"}\n{\"key\":\n[1]\n{\"key\":{\"a\":1}}\nnull\n";
    let ended = reconcile(&node, "p.ndjson", ndjson, &BY_KEY);
    let lines: Vec<u64> =
        ended.json()["malformed_rows"].as_array().unwrap().iter().map(|row| row["line"].as_u64().unwrap()).collect();
    assert_eq!((ended.code, lines), (Some(1), vec![2, 3, 4, 5]));
    let text = reconcile(&node, "p.ndjson", ndjson, &["--match", "key=key"]);
    assert!(text.stdout.contains("line 2: the line is not JSON"), "{}", text.stdout);
}

fn keys_and_labels_are_compared_letter_by_letter(kept: Kept) {
    let config = "[[route]]\npath = \"/payments\"\nlabels = { order = \"request:/order\" }\n";
    let node = start_with(kept, |builder| builder.with_config(config));
    // The keys are `pay 7 `, `"pay 8"` and `pay-9`.
    let sent = [(r#""pay 7 ""#, " o-7 "), (r#""\"pay 8\"""#, "\"o-8\""), ("pay-9", "o-9")];
    let pay = |(field, order): (&str, &str)| {
        let body = serde_json::json!({ "order": order }).to_string();
        node.send(&node::unkeyed(&body).header("Idempotency-Key", field)).status
    };
    for one in sent {
        node.ledger.next("*", Behaviour::Drop);
        assert_eq!(pay(one), 504);
    }
    let whole = ["--absent-means-did-not-happen", "--since", "1h", "--until", "0s"];
    let of = |name: &str, ledger: &str, by: &str, more: &[&str]| {
        let by = ["--match", by, "--match", "scope:single", "--output", "json"];
        let ended = reconcile(&node, name, ledger, &with(&[&by, &STATUS, &whole, more]));
        let mut found = ended.found();
        found.retain(|(kind, _, _)| kind != "not-here");
        found.sort_by_key(|(_, key, _)| key.trim_matches('"').to_owned());
        found.into_iter().map(|(kind, key, line)| format!("{kind} {key:?} {}", line.unwrap_or(0))).collect::<Vec<_>>()
    };
    let expected = |kind: &str| {
        let named = [("pay 7 ", 2), ("\"pay 8\"", 3), ("pay-9", 4)];
        named.map(|(key, line)| format!("{kind} {key:?} {line}")).to_vec()
    };
    // What is almost the same decides nothing, and is not absent.
    let almost = "key,status\npay 7,paid\npay 8,paid\nPAY-9,paid\n";
    assert_eq!(of("p.csv", almost, "key=key", &APPLY), expected("undecided"));
    let almost = "order,status\no-7,paid\no-8,paid\n\"\"\"o-9\"\"\",paid\n";
    assert_eq!(of("p.csv", almost, "label:order=order", &APPLY), expected("undecided"));
    // Just that text does.
    let labels = "order,status\n o-7 ,paid\n\"\"\"o-8\"\"\",paid\no-9,paid\n";
    assert_eq!(of("p.csv", labels, "label:order=order", &[]), expected("decidable"));
    // Quotation marks and padding around a key may be the export's, where no key here has them.
    let keys = [r#"{"key":"pay 7 "}"#, r#"{"key":"\"pay 8\""}"#, r#"{"key":" \"pay-9\""}"#];
    let keys = format!("\n{}\n", keys.join("\n").replace('}', ",\"status\":\"paid\"}"));
    assert_eq!(of("p.ndjson", &keys, "key=key", &APPLY), expected("resolved"));
    assert_eq!(sent.map(pay), [201; 3]);
    assert_eq!(node.ledger.all().len(), 3, "nothing ran again");
}

fn a_row_about_an_earlier_attempt_does_not_let_a_later_one_run_again(kept: Kept) {
    let node = start(kept);
    let counts = |ledger: &str, more: &[&str]| {
        let ended = reconcile(&node, "p.csv", ledger, &with(&[&BY_KEY, &STATUS, &APPLY, more]));
        let counts = ended.json()["counts"].clone();
        (counts["undecided"].as_u64().unwrap(), counts["resolved"].as_u64().unwrap())
    };
    let timed = ["--time", "at"];
    lose_answer(&node, "k");
    let old = "key,status,at\nk,void,2024-11-16T12:00:00Z\n";
    assert_eq!(counts(old, &timed), (1, 0), "it was not even sent by then");
    node.ledger.assert_once("k");
    assert_eq!(counts(old, &[]), (0, 1), "nobody says that it is old, and there was one attempt");
    lose_answer(&node, "k");
    assert_eq!(node.ledger.executions("k").len(), 2);
    assert_eq!(counts(old, &[]), (1, 0), "it may be about the first attempt");
    assert_eq!(counts(old, &timed), (1, 0));
    assert_eq!(refused(&node.send(&pay("k"))), (409, "outcome-unknown".to_owned()));
    assert_eq!(node.ledger.executions("k").len(), 2, "nothing ran again");
    let late = "key,status,at\nk,void,2024-11-16T12:00:00Z\nk,void,2999-01-01\n";
    assert_eq!(counts(late, &timed), (0, 1));
    assert_eq!(node.send(&pay("k")).status, 201);
}

#[test]
fn a_row_outside_of_the_window_is_not_missed_here_and_still_counts_as_evidence() {
    let node = start(Kept::Sqlite);
    lose_answer(&node, "lost");
    let ledger = "key,at\nold,2024-11-16 12:00:00\nlost,2024-11-16T12:00:00Z\nnew,1794830400000\nbad,last week\n";
    let window = ["--time", "at", "--since", "2026-11-16T12:00:00Z", "--until", "2027-01-01"];
    let found = reconcile(&node, "p.csv", ledger, &with(&[&BY_KEY, &window]));
    let expected = [("not-here", "new", Some(4)), ("decidable", "lost", Some(3))];
    let expected: Vec<_> = expected.map(|(kind, key, line)| (kind.to_owned(), key.to_owned(), line)).into();
    assert_eq!(found.found(), expected, "{}{}", found.stdout, found.stderr);
    assert_eq!(found.json()["malformed_rows"][0]["line"], 5);
}

#[test]
fn a_spreadsheet_computes_nothing_and_a_terminal_stays_as_it_was() {
    let node = start(Kept::Sqlite);
    let ledger = "key,scope\n=cmd|' /C calc'!A0,-1\n+1,x\n@SUM(A1),x\nplain,x\n";
    let csv = reconcile(&node, "p.csv", ledger, &["--match", "key=key", "--match", "scope=scope", "--output", "csv"]);
    assert_eq!(csv.code, Some(1));
    let lines: Vec<&str> = csv.stdout.lines().collect();
    assert_eq!(lines[0], "finding,line,key,scope,state,says,note");
    assert_eq!(lines[1], "not-here,2,'=cmd|' /C calc'!A0,'-1,,happened,");
    assert!(
        lines[2].contains(",'+1,") && lines[3].contains(",'@SUM(A1),") && lines[4].contains(",plain,"),
        "{lines:?}"
    );
    let status = "{\"key\":\"k\",\"status\":\"\\u001b[2J\\u202e\"}\n";
    let arguments = ["--match", "key=key", "--status", "status", "--happened", "paid"];
    let text = reconcile(&node, "p.ndjson", status, &arguments);
    assert!(text.stdout.contains(r"\u001b[2J\u202e (1)") && !text.stdout.contains('\u{1b}'), "{}", text.stdout);
}

#[test]
fn a_row_that_never_ends_and_a_file_that_is_no_ledger_are_refused() {
    let node = start(Kept::Sqlite);
    let long = format!("key\n\"{}\nk-1\n", "x".repeat(3 << 20));
    let ended = reconcile(&node, "p.csv", &long, &BY_KEY);
    let json = ended.json();
    assert_eq!((ended.code, json["malformed"].as_u64()), (Some(1), Some(1)), "{}", ended.stdout);
    assert_eq!(ended.found()[0].1, "k-1", "the line after it is read");
    let open = format!("key,b\n{}", "\"k,1\n".repeat(300));
    let ended = reconcile(&node, "p.csv", &open, &BY_KEY);
    assert_eq!(ended.code, Some(2), "{}", ended.stdout);
    assert!(ended.stderr.contains("quotation marks left open"), "{}", ended.stderr);
    let ended = reconcile(&node, "p.csv", &"x".repeat(3 << 20), &BY_KEY);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
}

#[test]
fn what_cannot_be_compared_is_a_usage_error_with_a_next_step() {
    let node = start(Kept::Sqlite);
    let ledger = "key,status\nk,paid\n";
    let refused = |name: &str, arguments: &[&str], said: &str| {
        let ended = reconcile(&node, name, ledger, arguments);
        assert_eq!(ended.code, Some(2), "{arguments:?}: {}{}", ended.stdout, ended.stderr);
        assert!(ended.stderr.contains(said), "{arguments:?}: {}", ended.stderr);
        assert_eq!(ended.stdout, "");
    };
    let key = ["--match", "key=key"];
    refused("p.csv", &["--match", "key=nokey"], "has no column `nokey`; it has: key, status");
    refused("p.txt", &key, "must end in .csv, .ndjson or .jsonl");
    refused("p.csv", &["--match", "scope=key"], "alone finds no record");
    refused("p.csv", &["--match", "tenant=key"], "names no part");
    refused("p.csv", &["--match", "key"], "PART=COLUMN");
    refused("p.csv", &with(&[&key, &["--match", "label:x=status"]]), "twice");
    refused("p.csv", &with(&[&key, &["--status", "status"]]), "says nothing by itself");
    refused("p.csv", &with(&[&key, &["--happened", "paid"]]), "--status");
    let twice = ["--status", "status", "--happened", "a,b", "--declined", "b"];
    refused("p.csv", &with(&[&key, &twice]), "two meanings");
    refused("p.csv", &with(&[&key, &APPLY]), "say whose they are");
    refused("p.csv", &with(&[&["--match", "label:order=key"], &APPLY]), "--match id=COLUMN");
    let body = ["--answer-body-column", "status"];
    refused("p.csv", &with(&[&["--match", "unique-key=key"], &APPLY, &body]), "a body is for one caller only");
    refused("p.csv", &with(&[&key, &["--match", "scope=status", "--match", "scope:x"]]), "twice");
    refused("p.csv", &with(&[&key, &["--apply"]]), "--reason");
    refused("p.csv", &with(&[&key, &["--apply", "--reason", "x"]]), "--answer-status");
    refused("p.csv", &with(&[&key, &["--apply", "--reason", " ", "--answer-status", "200"]]), "1 to 1000 characters");
    refused("p.csv", &with(&[&key, &["--answer-status", "99"]]), "99");
    refused("p.csv", &with(&[&key, &["--as", " "]]), "1 to 128 bytes");
    for status in ["204", "205", "304"] {
        let body = ["--answer-status", status, "--answer-body-column", "status"];
        refused("p.csv", &with(&[&key, &body]), &format!("an answer {status} has no body; leave out"));
    }
    refused("p.csv", &with(&[&key, &["--since", "yesterday"]]), "is no time");
    refused("p.csv", &with(&[&key, &["--since", "1h", "--until", "2h"]]), "window is empty");
    refused("p.csv", &with(&[&key, &["--settle-after", "10"]]), "with a unit");
    refused("p.csv", &with(&[&key, &["--absent-means-did-not-happen"]]), "--since");
    let future = ["--absent-means-did-not-happen", "--since", "1h", "--until", "2999-01-01"];
    refused("p.csv", &with(&[&key, &future]), "has not come");
    refused("p.csv", &["--match", "key=empty"], "has no column `empty`");
    let other = reconcile(&node, "p.ndjson", "{\"key\":\"k\"}\n", &["--match", "key=other"]);
    assert_eq!(other.code, Some(2));
    assert!(other.stderr.contains("has no row with a value in `other`; name another column"), "{}", other.stderr);
}

#[test]
fn a_ledger_or_store_that_is_not_there_makes_neither() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("p.csv"), "key\nk\n").unwrap();
    let hapax = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hapax"));
        run(command.arg("reconcile").args(arguments).current_dir(directory.path()).env_clear())
    };
    let ended = hapax(&["--ledger", "p.csv", "--match", "key=key"]);
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.contains("there is no store at hapax.db"), "{}", ended.stderr);
    assert!(!directory.path().join("hapax.db").exists(), "looking makes no store");
    let ended = hapax(&["--ledger", "p.csv", "--match", "key=key", "--store", "memory:"]);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    let node = start(Kept::Sqlite);
    let ended = hapax(&["--ledger", "missing.csv", "--match", "key=key", "--store", &store_url(&node)]);
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.contains("the ledger `missing.csv` cannot be read"), "{}", ended.stderr);
    std::fs::create_dir(directory.path().join("d.csv")).unwrap();
    assert_eq!(hapax(&["--ledger", "d.csv", "--match", "key=key", "--store", &store_url(&node)]).code, Some(2));
}

/// Rows and records of the large comparison. A million of each was measured; see docs/ledger.md.
const MANY: usize = 50_000;

/// Far less than the rows would need, and not more for a million of them.
const RSS_BYTES_MAX: u64 = 200 << 20;

#[test]
fn many_rows_are_compared_in_bounded_memory() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("hapax.db");
    let runtime = tokio::runtime::Builder::new_multi_thread().build().unwrap();
    runtime.block_on(many_records(&file));
    drop(runtime);
    let mut ledger = BufWriter::new(File::create(directory.path().join("p.csv")).unwrap());
    writeln!(ledger, "id,key,status,note").unwrap();
    // One record is missing there, and one row is missing here.
    for number in 1..=MANY {
        writeln!(ledger, "pay_{number:012},{},paid,\"a note, with a comma\"", key_of(number)).unwrap();
    }
    drop(ledger);
    let mut command = Command::new(env!("CARGO_BIN_EXE_hapax"));
    command
        .args(["reconcile", "--ledger", "p.csv"])
        .args(["--match", "key=key", "--output", "json"])
        .args(STATUS)
        .current_dir(directory.path())
        .env_clear();
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut peak = 0;
    let mut status = None;
    wait::holds_within(Duration::from_secs(120), || {
        peak = peak.max(peak_rss_bytes(child.id()));
        status = child.try_wait().unwrap();
        status.is_some()
    });
    let json: Value = serde_json::from_reader(child.stdout.take().unwrap()).unwrap();
    assert_eq!(status.and_then(|status| status.code()), Some(1));
    assert_eq!(json["agreeing"], MANY - 1);
    assert_eq!((json["counts"]["not-here"].as_u64(), json["counts"]["not-there"].as_u64()), (Some(1), Some(1)));
    assert!(peak > 0 && peak < RSS_BYTES_MAX, "{peak} bytes");
}

fn key_of(number: usize) -> String {
    format!("8e03978e-40d5-43dd-bc93-{number:012}")
}

/// Completed records 0 to `MANY` - 1.
async fn many_records(file: &Path) {
    let store = Sqlite::open(Options::new(file)).unwrap();
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let store = store.clone();
        writers.spawn(async move {
            for number in (writer..MANY).step_by(WRITERS) {
                let (space, scope) = (Space::new("http").unwrap(), Scope::new("alice").unwrap());
                let key = Key::new(&key_of(number)).unwrap();
                let at = Address::new(&AddressScheme::default(), &space, &scope, &key);
                assert!(matches!(store.swap(&at, None, &completed(number)).await.unwrap(), Swap::Applied(_)));
            }
        });
    }
    while let Some(joined) = writers.join_next().await {
        joined.unwrap();
    }
}

const WRITERS: usize = 256;

fn completed(number: usize) -> Record {
    let retention_ms = Policy::default().retention_ms;
    let outcome = Outcome { status: 201, headers: Vec::new(), body: Body::Kept(vec![b'x'; 200]) };
    let version = Version::from_bytes((number as u128).to_le_bytes());
    let fingerprint = Fingerprint { scheme: Scheme::new("none").unwrap(), digest: [0; 32] };
    Record {
        attempt: 1,
        expires_in_ms: Some(retention_ms),
        outcome: Some(Arc::new(outcome)),
        ..Record::new(version, State::Completed, fingerprint, Policy::default())
    }
}

/// The most memory the process has had so far; 0 once it has ended.
fn peak_rss_bytes(id: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok()).unwrap_or(0) * 1024
}
