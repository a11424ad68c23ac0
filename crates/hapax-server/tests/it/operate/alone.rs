//! What an operator does while no node runs, or while the output leads nowhere.

use std::fs::File;
use std::process::Command;

use hapax_testkit::ledger::Behaviour;
use hapax_testkit::wait::until;

use super::node::{self, Kept, Node, on_both_stores, pay, start, start_with};
use super::{SOON, command, complete, failed, hapax, json, lose, said, text, through};

on_both_stores! {
    with_no_node_running_a_lease_that_ended_is_noticed_by_whoever_resolves
    an_output_that_cannot_be_written_is_said_to_be_and_so_is_the_change
    whoever_only_looks_migrates_nothing
}

/// A node that was killed in the middle of a payment.
fn killed(kept: Kept, config: &str) -> Node {
    let mut node = start_with(kept, |builder| builder.with_config(config));
    node.ledger.hold("k");
    let address = node.hapax.address();
    let first = std::thread::spawn(move || pay("k").try_send(address));
    node.ledger.wait_until_received("k");
    node.hapax.kill_9();
    assert!(first.join().unwrap().is_err());
    node.ledger.release("k");
    node
}

fn with_no_node_running_a_lease_that_ended_is_noticed_by_whoever_resolves(kept: Kept) {
    let node = killed(kept, "[defaults]\nlease = \"2s\"\n");
    let resolve = ["keys", "resolve", "k", "--keys-unique", "--happened", "--status", "201", "--reason", "paid"];
    let (code, told) = failed(&node, &resolve);
    assert_eq!((code, told.contains("attempt 1 under a lease until")), (4, true), "{told}");
    let purge = ["keys", "purge", "k", "--keys-unique", "--reason", "x"];
    until("the lease ends", SOON, || text(&hapax(&node, &purge).stderr).contains("and no node has noticed"));
    let shown = said(&node, &["keys", "show", "k"]);
    assert!(shown.contains("\nremark          lease ended 20") && shown.contains("; no node has noticed\n"), "{shown}");
    assert!(said(&node, &["keys", "list"]).contains("lease ended 20"));
    assert!(said(&node, &["status"]).contains("\nrunning   1, 1 of them past its lease\n"));
    let (code, told) =
        failed(&node, &["keys", "resolve", "k", "--keys-unique", "--happened", "--attempt", "2", "--reason", "x"]);
    assert_eq!((code, told.contains("attempt 2 was meant")), (4, true), "{told}");
    assert!(json(&node, &["audit"])["notes"].as_array().unwrap().is_empty(), "nothing was changed");
    let told = said(&node, &resolve);
    assert!(told.contains("completed: k of ") && told.contains("was unknown; clients get 201"), "{told}");
    let notes = json(&node, &["audit", "k"])["notes"].as_array().unwrap().clone();
    let steps: Vec<_> = notes.iter().map(|note| (&note["what"], &note["before"], &note["after"])).collect();
    let [resolved, lapsed] = [("resolve", "unknown", "completed"), ("lapse", "running", "unknown")]
        .map(|(what, before, after)| (what.into(), before.into(), after.into()));
    assert_eq!(steps, [(&resolved.0, &resolved.1, &resolved.2), (&lapsed.0, &lapsed.1, &lapsed.2)]);
    node.ledger.assert_once("k");
}

#[test]
fn where_the_configuration_is_broken_a_node_can_be_asked() {
    let node = start(Kept::Sqlite);
    std::fs::write(node.hapax.dir().join("hapax.toml"), "[routes\n").unwrap();
    let mut status = Command::new(env!("CARGO_BIN_EXE_hapax"));
    super::alone(status.arg("status"), node.hapax.dir());
    let output = status.output().unwrap();
    let told = text(&output.stderr);
    assert!(output.status.code() == Some(2) && told.contains("hapax.toml:1: not TOML"), "{told}");
    assert!(said(&node, &["status"]).starts_with("healthy"), "a store that is named needs no file");
    assert!(told.contains("or ask a running node with --admin URL"), "{told}");
    assert!(through(&node, None, &["status"]).1.starts_with("healthy"));
}

#[test]
fn what_its_policy_runs_again_is_left_to_it() {
    let node = killed(Kept::Sqlite, "[defaults]\nlease = \"1s\"\non_lapse = \"rerun\"\n");
    let resolve = ["keys", "resolve", "k", "--keys-unique", "--happened", "--reason", "x"];
    until("the lease ends", SOON, || text(&hapax(&node, &resolve).stderr).contains("goes on with it"));
    assert_eq!(json(&node, &["keys", "show", "k"])["state"].as_str(), Some("running"));
}

fn an_output_that_cannot_be_written_is_said_to_be_and_so_is_the_change(kept: Kept) {
    let node = start(kept);
    lose(&node, "k-1");
    complete(&node, "k-2");
    let full = |arguments: &[&str]| {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = command(&node, arguments).stdout(full).output().unwrap();
        (output.status.code(), text(&output.stderr))
    };
    let made = "the change was made, and is in the audit log";
    for arguments in [&["keys", "list"][..], &["keys", "show", "k-1"], &["audit"], &["status"]] {
        let (code, told) = full(arguments);
        assert!(code == Some(1) && told.starts_with("error: the output cannot be written: "), "{code:?} {told}");
        assert!(!told.contains(made), "{told}");
    }
    let resolve = ["keys", "resolve", "k-1", "--keys-unique", "--happened", "--reason", "x"];
    let (code, told) = full(&resolve);
    assert!(code == Some(1) && told.contains(made), "{code:?} {told}");
    let (code, told) = full(&resolve);
    assert!(code == Some(1) && !told.contains(made), "the second time changed nothing: {told}");
    let (code, told) = full(&["keys", "purge", "k-2", "--keys-unique", "--reason", "x", "--output", "json"]);
    assert!(code == Some(1) && told.contains(made), "{code:?} {told}");
    let (code, told) = full(&["keys", "purge", "--state", "completed", "--dry-run"]);
    assert!(code == Some(1) && !told.contains(made), "{code:?} {told}");
    assert_eq!(json(&node, &["audit"])["notes"].as_array().unwrap().len(), 2);
    node.ledger.next("k-3", Behaviour::Drop);
    assert_eq!(node::refused(&node.send(&pay("k-3"))).0, 504);
    std::fs::write(node.hapax.dir().join("p.csv"), "key\nk-3\n").unwrap();
    let ledger = ["reconcile", "--ledger", "p.csv", "--match", "unique-key=key"];
    let (code, told) = full(&ledger);
    assert!(code == Some(1) && told.contains("the report cannot be written") && !told.contains("resolved"), "{told}");
    let (code, told) = full(&[&ledger[..], &["--apply", "--reason", "x", "--answer-status", "200"]].concat());
    assert!(code == Some(1) && told.contains("what the ledger decides was resolved"), "{told}");
    assert_eq!(json(&node, &["keys", "show", "k-3"])["state"].as_str(), Some("completed"));
}

/// What a person does with the database's own means.
fn by_hand(node: &Node, sqlite: &str, postgres: &str) -> String {
    match &node.database {
        Some(database) => database.run(postgres).trim().to_owned(),
        None => {
            let store = rusqlite::Connection::open(node.hapax.dir().join("hapax.db")).unwrap();
            match store.query_row(sqlite, [], |row| row.get::<_, String>(0)) {
                Ok(said) => said,
                Err(_) => store.execute_batch(sqlite).map(|()| String::new()).unwrap(),
            }
        }
    }
}

/// As the release before left it: without the index by state, and before that without notes.
fn age(node: &Node, schema: u32) {
    let due = "(coalesce(due_at, -1)) WHERE due_at IS NOT NULL OR state < 5";
    let (sqlite, postgres) = match schema {
        2 => (
            format!("DROP INDEX hapax_due; CREATE INDEX hapax_due ON hapax_record {due};"),
            format!("DROP INDEX hapax.record_due; CREATE INDEX record_due ON hapax.record {due};"),
        ),
        _ => ("DROP TABLE hapax_note;".to_owned(), "DROP TABLE hapax.note;".to_owned()),
    };
    by_hand(
        node,
        &format!("{sqlite} UPDATE hapax_meta SET value = {schema} WHERE name = 'schema';"),
        &format!("{postgres} UPDATE hapax.meta SET value = '{schema}' WHERE name = 'schema';"),
    );
}

fn schema(node: &Node) -> String {
    let index = "SELECT sql || (SELECT value FROM hapax_meta WHERE name = 'schema') FROM sqlite_schema
                 WHERE name = 'hapax_due'";
    let postgres = "SELECT indexdef || (SELECT value FROM hapax.meta WHERE name = 'schema') FROM pg_indexes
                    WHERE schemaname = 'hapax' AND indexname = 'record_due'";
    by_hand(node, index, postgres)
}

fn whoever_only_looks_migrates_nothing(kept: Kept) {
    let mut node = start(kept);
    lose(&node, "k-1");
    complete(&node, "k-2");
    node.hapax.terminate();
    let current = schema(&node);
    age(&node, 2);
    let old = schema(&node);
    assert!(old != current && old.ends_with('2'), "{old}");
    assert!(said(&node, &["status"]).contains("unknown   1"), "{old}");
    assert_eq!(super::records(&json(&node, &["keys", "list", "--state", "unknown"])).len(), 1);
    said(&node, &["keys", "resolve", "k-1", "--keys-unique", "--happened", "--reason", "x"]);
    assert_eq!(json(&node, &["audit"])["notes"].as_array().unwrap().len(), 1);
    std::fs::write(node.hapax.dir().join("p.csv"), "key\nk-1\nk-2\n").unwrap();
    said(&node, &["reconcile", "--ledger", "p.csv", "--match", "key=key"]);
    assert_eq!(schema(&node), old, "nothing was migrated");
    age(&node, 1);
    let (code, told) = failed(&node, &["status"]);
    assert!(code == 6 && told.contains("has schema 1, of an older release; start a node of this release"), "{told}");
    node.hapax.restart();
    assert_eq!(schema(&node), current, "a node migrates");
    assert_eq!(node.send(&pay("k-1")).status, 200);
}
