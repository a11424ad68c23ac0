//! Which record a text means: letter by letter, a key before a label, and what cannot be read is said.

use hapax_testkit::wait::until;

use super::node::{self, Kept, Node, on_both_stores, pay, refused, start, start_with};
use super::{LABELS, SOON, command as command_of, failed, json, lose, lose_order, records, said, terminal};

on_both_stores! {
    a_text_is_taken_letter_by_letter
    a_key_goes_before_a_label
    what_a_caller_wrote_changes_nothing_by_itself
    what_is_enforced_goes_before_what_was_only_observed
    the_log_leads_from_any_refusal_to_its_record
    what_cannot_be_read_is_named_and_can_be_deleted_as_the_runbook_says
}

fn state(node: &Node, id: &str) -> String {
    json(node, &["keys", "show", id])["state"].as_str().unwrap().to_owned()
}

fn a_text_is_taken_letter_by_letter(kept: Kept) {
    let node = start(kept);
    lose(&node, "lead");
    let plain = json(&node, &["keys", "show", "lead"]);
    let scope = plain["scope"].as_str().unwrap();
    let happened = ["--happened", "--reason", "x"];
    for text in [" lead", "lead ", "\"lead\"", " \"lead\""] {
        for scoped in [&[][..], &["--scope", scope]] {
            let (code, told) = failed(&node, &[&["keys", "resolve", text], &happened[..], scoped].concat());
            assert_eq!((code, told.contains("\"lead\" is one: name it just so")), (3, true), "{text}: {told}");
            let (code, told) = failed(&node, &[&["keys", "purge", text, "--reason", "x"], scoped].concat());
            assert_eq!((code, told.contains("\"lead\" is one: name it just so")), (3, true), "{text}: {told}");
        }
    }
    assert_eq!(failed(&node, &["keys", "show", " lead"]).0, 3);
    let (code, told) = failed(&node, &["audit", " lead"]);
    assert_eq!((code, told.contains("\"lead\" is one")), (3, true), "{told}");
    assert_eq!(records(&json(&node, &["keys", "list", " lead"])).len(), 0);
    assert_eq!(json(&node, &["keys", "show", "\"lead\""])["id"], plain["id"], "as it stands in a request");
    // The key ` lead`.
    node.ledger.next("*", hapax_testkit::ledger::Behaviour::Drop);
    assert_eq!(node.send(&pay("\" lead\"")).status, 504);
    assert_eq!(json(&node, &["keys", "show", "\" lead\""])["key"].as_str(), Some(" lead"));
    said(&node, &[&["keys", "resolve", " lead", "--keys-unique"], &happened[..]].concat());
    assert_eq!(state(&node, plain["id"].as_str().unwrap()), "unknown", "another key");
    assert_eq!(json(&node, &["audit", " lead"])["notes"].as_array().unwrap().len(), 1);
    assert_eq!(json(&node, &["keys", "show", " lead", "--scope", scope])["state"].as_str(), Some("completed"));
}

fn a_key_goes_before_a_label(kept: Kept) {
    let node = start_with(kept, |builder| builder.with_config(LABELS));
    for key in ["order-77", "refund-77"] {
        lose_order(&node, key, "order-77");
    }
    let shown = json(&node, &["keys", "show", "order-77"]);
    assert_eq!(shown["key"].as_str(), Some("order-77"));
    let scope = shown["scope"].as_str().unwrap();
    let (code, told) = failed(&node, &["keys", "resolve", "order=order-77", "--happened", "--reason", "x"]);
    assert_eq!(code, 4, "{told}");
    assert!(told.contains("key \"order-77\"") && told.contains("key \"refund-77\""), "{told}");
    assert!(told.contains("name one by its id, or by its key"), "{told}");
    let (code, told) =
        failed(&node, &["keys", "resolve", "order=order-77", "--scope", scope, "--happened", "--reason", "x"]);
    assert_eq!((code, told.contains("--scope")), (4, false), "it would not help: {told}");
    said(&node, &["keys", "resolve", "order-77", "--scope", scope, "--happened", "--reason", "x"]);
    assert_eq!(
        records(&json(&node, &["keys", "list", "--state", "unknown"])),
        [("refund-77".into(), "unknown".into())]
    );
    assert_eq!(json(&node, &["keys", "show", "order-77", "--scope", scope])["id"], shown["id"]);
    said(&node, &["keys", "purge", "order-77", "--scope", scope, "--reason", "x"]);
    assert_eq!(state(&node, shown["id"].as_str().unwrap()), "expired");
    assert_eq!(records(&json(&node, &["keys", "list", "--state", "unknown"])).len(), 1, "the other was not touched");
}

fn what_a_caller_wrote_changes_nothing_by_itself(kept: Kept) {
    let node = start_with(kept, |builder| builder.with_config(LABELS));
    lose_order(&node, "k-1", "o-1");
    let record = json(&node, &["keys", "show", "k-1"]);
    let (id, scope) = (record["id"].as_str().unwrap(), record["scope"].as_str().unwrap());
    let resolve = ["--happened", "--reason", "x", "--yes"];
    let purge = ["--allow-rerun", "--reason", "x", "--yes"];
    for (text, why) in [
        ("k-1", "another caller may have used the same key"),
        ("o-1", "any caller may write the same label"),
        ("order=o-1", "any caller may write the same label"),
    ] {
        for (command, flags) in [("resolve", &resolve[..]), ("purge", &purge), ("purge", &["--dry-run"])] {
            let arguments = [&["keys", command, text], flags].concat();
            let (code, told) = failed(&node, &arguments);
            assert_eq!(code, 2, "{arguments:?}: {told}");
            assert!(told.contains(why), "{told}");
            assert!(told.contains(&format!("{id} (unknown, key \"k-1\", scope {scope})")), "it is shown: {told}");
            assert!(told.contains(&format!("`hapax keys {command} {id}`")), "and what to type: {told}");
            // Somebody at a terminal is told the same, and not asked.
            let (asked, shown) = terminal::run(command_of(&node, &arguments), 80, "y\n");
            assert!(asked == Some(2) && shown.contains(why) && !shown.contains("[y/N]"), "{asked:?} {shown}");
        }
    }
    let by_label = ["keys", "purge", "--label", "order=o-1"];
    for flags in [&purge[..], &["--dry-run"], &["--state", "unknown", "--reason", "x", "--yes"]] {
        let (code, told) = failed(&node, &[&by_label, flags].concat());
        assert_eq!(code, 2, "{told}");
        assert!(told.contains("any caller may write the same label; add --scope"), "{told}");
        assert!(told.contains("`hapax keys list --label 'order=o-1'`"), "{told}");
    }
    assert_eq!(state(&node, id), "unknown");
    assert!(json(&node, &["audit"])["notes"].as_array().unwrap().is_empty(), "nothing was changed");
    // Said out loud, a key is enough, but for a body, which is one caller's; a label never is.
    std::fs::write(node.hapax.dir().join("body.json"), "{}").unwrap();
    let unique = ["keys", "resolve", "k-1", "--keys-unique", "--happened", "--reason", "x"];
    let (code, told) = failed(&node, &[&unique[..], &["--body-file", "body.json"]].concat());
    assert_eq!((code, told.contains("a body is recorded for one caller only")), (2, true), "{told}");
    assert_eq!(failed(&node, &["keys", "resolve", "o-1", "--keys-unique", "--give-up", "--reason", "x"]).0, 2);
    assert_eq!(failed(&node, &["keys", "purge", "o-1", "--keys-unique", "--reason", "x"]).0, 2);
    said(&node, &unique);
    assert_eq!(state(&node, id), "completed");
    said(&node, &["keys", "purge", "k-1", "--keys-unique", "--reason", "x"]);
    assert_eq!(state(&node, id), "expired");
    let (code, told) = failed(&node, &["keys", "purge", "--state", "dead", "--keys-unique", "--dry-run"]);
    assert_eq!(code, 2, "it is about a key: {told}");
}

fn what_is_enforced_goes_before_what_was_only_observed(kept: Kept) {
    let mut node = start_with(kept, |builder| builder.with_config("mode = \"observe\"\n"));
    assert_eq!(node.send(&pay("k")).status, 201);
    until("it is recorded", SOON, || records(&json(&node, &["keys", "list", "k"])).len() == 1);
    assert!(said(&node, &["keys", "list"]).contains("only observed"));
    assert_eq!(json(&node, &["keys", "show", "k"])["space"].as_str(), Some("http-observed"), "the only one");
    node.hapax.write_config("mode = \"enforce\"\n");
    node.hapax.restart();
    lose(&node, "k");
    let shown = json(&node, &["keys", "show", "k"]);
    assert_eq!((shown["space"].as_str(), shown["state"].as_str()), (Some("http"), Some("unknown")));
    said(&node, &["keys", "resolve", "k", "--keys-unique", "--happened", "--reason", "x"]);
    said(&node, &["keys", "purge", "k", "--keys-unique", "--reason", "x"]);
    assert_eq!(state(&node, shown["id"].as_str().unwrap()), "expired");
}

/// The line of the log about that refusal. It is written beside the answer, so it may come a little later.
fn refused_line(node: &Node, request_id: &str) -> String {
    let mut line = None;
    until("the refusal is in the log", SOON, || {
        let log = node.hapax.stderr();
        line = log.lines().find(|line| line.contains("refused") && line.contains(request_id)).map(str::to_owned);
        line.is_some()
    });
    line.unwrap()
}

fn the_log_leads_from_any_refusal_to_its_record(kept: Kept) {
    let node = start(kept);
    lose(&node, "k");
    let id = json(&node, &["keys", "show", "k"])["id"].as_str().unwrap().to_owned();
    let refusal = node.send(&pay("k"));
    assert_eq!(refusal.status, 409);
    let request_id = refusal.json()["request_id"].as_str().unwrap().to_owned();
    assert_eq!(failed(&node, &["keys", "show", &request_id]).0, 3, "it claimed nothing");
    let line = refused_line(&node, &request_id);
    assert!(line.contains(&id), "{line}");
    let missing = node.send(&node::unkeyed("{}")).json()["request_id"].as_str().unwrap().to_owned();
    let line = refused_line(&node, &missing);
    assert!(!line.contains("\"id\""), "no record is known: {line}");
}

const RUNBOOK: &str = include_str!("../../../../../docs/runbook.md");

/// The statements of the runbook for a damaged record, first for SQLite and then for PostgreSQL.
fn remedy(kept: Kept, id: &str) -> String {
    let section = RUNBOOK.split("\n## HapaxRecordDamaged").nth(1).unwrap().split("\n## ").next().unwrap();
    let mut blocks = section.split("```sql\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    blocks.nth(usize::from(kept == Kept::Postgres)).unwrap().replace("ID", id)
}

/// What a person does with the database's own means.
fn by_hand(node: &Node, sql: &str) {
    match &node.database {
        Some(database) => drop(database.run(sql)),
        None => rusqlite::Connection::open(node.hapax.dir().join("hapax.db")).unwrap().execute_batch(sql).unwrap(),
    }
}

fn what_cannot_be_read_is_named_and_can_be_deleted_as_the_runbook_says(kept: Kept) {
    let node = start(kept);
    lose(&node, "k-1");
    lose(&node, "k-2");
    said(&node, &["keys", "resolve", "k-1", "--keys-unique", "--did-not-happen", "--reason", "x"]);
    let record = json(&node, &["keys", "show", "k-1"]);
    let (id, scope) = (record["id"].as_str().unwrap(), record["scope"].as_str().unwrap());
    by_hand(
        &node,
        match kept {
            Kept::Sqlite => "UPDATE hapax_record SET data = data || x'00' WHERE key = 'k-1'",
            Kept::Postgres => "UPDATE hapax.record SET data = data || '\\x00' WHERE key = 'k-1'",
        },
    );
    let named = format!("{id} (key \"k-1\", scope {scope})");
    for text in ["k-1", id, &id[..8]] {
        for command in [&["show"][..], &["resolve", "--happened", "--reason", "x"], &["purge", "--reason", "x"]] {
            let (code, told) = failed(&node, &[&["keys", command[0], text], &command[1..]].concat());
            assert_eq!(code, 4, "{told}");
            assert!(told.contains(&format!("the record {named} cannot be read")), "{told}");
            assert!(told.contains("delete it as the runbook says"), "{told}");
        }
    }
    let (code, told) = failed(&node, &["keys", "show", "k-3"]);
    assert_eq!(code, 3);
    assert!(told.contains(&format!("there is no such record, but one that cannot be read: {named};")), "{told}");
    for text in ["k-1", id] {
        assert_eq!(json(&node, &["audit", text])["notes"].as_array().unwrap().len(), 1, "its notes can be read");
    }
    let list = super::hapax(&node, &["keys", "list", "k-"]);
    let notes = super::text(&list.stderr);
    assert_eq!(notes.matches(&named).count(), 1, "it is named once: {notes}");
    assert_eq!(json(&node, &["keys", "show", "k-2"])["key"].as_str(), Some("k-2"), "the others are found");
    assert_eq!(refused(&node.send(&pay("k-1"))).0, 503);
    by_hand(&node, &remedy(kept, id));
    let (code, told) = failed(&node, &["keys", "show", "k-1"]);
    assert_eq!((code, told.contains("cannot be read")), (3, false), "{told}");
    assert_eq!(node.send(&pay("k-1")).status, 201, "its key counts as new");
    assert_eq!(state(&node, id), "completed");
    assert_eq!(refused(&node.send(&pay("k-2"))).0, 409);
}
