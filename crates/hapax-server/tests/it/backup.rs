//! `hapax store` as an operator uses it: backup of a store in use, restore, and the fence over what was lost.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::node::{self, Kept, Node, on_both_stores, pay, refused, start, start_with};
use hapax_core::clock::Timestamp;
use hapax_server::timestamp;
use hapax_testkit::ledger::Behaviour;
use hapax_testkit::raw_http::Response;
use hapax_testkit::wait::{holds_within, until};
use rusqlite::Connection;

/// How a command ended.
#[derive(Debug)]
struct Ended {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

fn hapax(directory: &Path, arguments: &[&str]) -> Ended {
    let output = Command::new(env!("CARGO_BIN_EXE_hapax"))
        .arg("store")
        .args(arguments)
        .current_dir(directory)
        .env_clear()
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ended { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

#[track_caller]
fn done(directory: &Path, arguments: &[&str]) -> String {
    let ended = hapax(directory, arguments);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    ended.stdout
}

#[track_caller]
fn fails(directory: &Path, arguments: &[&str], code: i32, said: &str) {
    let ended = hapax(directory, arguments);
    assert_eq!(ended.code, Some(code), "{ended:?}");
    assert!(ended.stderr.contains(said), "{ended:?}");
}

/// Files of the node's directory whose names contain that.
fn files(node: &Node, part: &str) -> Vec<PathBuf> {
    let all = std::fs::read_dir(node.hapax.dir()).unwrap().map(|entry| entry.unwrap().path());
    all.filter(|path| path.file_name().unwrap().to_str().unwrap().contains(part)).collect()
}

fn records(file: &Path) -> i64 {
    let store = Connection::open(file).unwrap();
    store.query_row("SELECT count(*) FROM hapax_record WHERE space = 'http'", [], |row| row.get(0)).unwrap()
}

#[test]
fn a_backup_made_while_a_proxy_writes_holds_everything_that_was_acknowledged_before_it() {
    let node = start(Kept::Sqlite);
    for number in 0..20 {
        assert_eq!(node.send(&pay(&format!("before-{number}"))).status, 201);
    }
    let going = AtomicBool::new(true);
    let said = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..3)
            .map(|writer| {
                let (node, going) = (&node, &going);
                scope.spawn(move || {
                    let keys = (0..).take_while(|_| going.load(Ordering::Relaxed));
                    keys.map(|number| assert_eq!(node.send(&pay(&format!("w{writer}-{number}"))).status, 201)).count()
                })
            })
            .collect();
        node.ledger.wait_for_executions("w0-5", 1);
        let said = done(node.hapax.dir(), &["backup", "copy.db"]);
        going.store(false, Ordering::Relaxed);
        assert!(writers.into_iter().map(|writer| writer.join().unwrap()).sum::<usize>() > 5);
        said
    });
    assert!(said.contains("Backed up hapax.db to copy.db.") && said.contains(" completed"), "{said}");
    let copy = Connection::open(node.hapax.dir().join("copy.db")).unwrap();
    let whole: String = copy.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(whole, "ok");
    let sql = "SELECT count(*) FROM hapax_record WHERE key LIKE 'before-%' AND state = 5";
    assert_eq!(copy.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap(), 20);
    assert_eq!(files(&node, "partial"), Vec::<PathBuf>::new(), "nothing is left beside it");
    let rights = std::os::unix::fs::PermissionsExt::mode(&copy_rights(&node));
    assert_eq!(rights & 0o077, 0, "it holds answers: nobody else may read it");
}

fn copy_rights(node: &Node) -> std::fs::Permissions {
    std::fs::metadata(node.hapax.dir().join("copy.db")).unwrap().permissions()
}

#[test]
fn a_backup_replaces_nothing_unless_told_to_and_never_the_store() {
    let node = start(Kept::Sqlite);
    let directory = node.hapax.dir();
    std::fs::write(directory.join("taken.db"), "mine").unwrap();
    fails(directory, &["backup", "taken.db"], 1, "is there already; give another name, or replace it with --force");
    assert_eq!(std::fs::read(directory.join("taken.db")).unwrap(), b"mine");
    done(directory, &["backup", "taken.db", "--force"]);
    assert_eq!(records(&directory.join("taken.db")), 0);
    fails(directory, &["backup", "hapax.db", "--force"], 1, "this is the store itself");
    assert_eq!(node.send(&pay("k")).status, 201);
    std::os::unix::fs::symlink("hapax.db", directory.join("link.db")).unwrap();
    std::os::unix::fs::symlink("hapax.db-wal", directory.join("link-to-log")).unwrap();
    std::fs::hard_link(directory.join("hapax.db-wal"), directory.join("hard-link")).unwrap();
    let parts = ["hapax.db-wal", "hapax.db-shm", "hapax.db-journal", "./hapax.db-wal", "link-to-log", "hard-link"];
    for part in parts {
        fails(directory, &["backup", part, "--force"], 1, "this is a part of the store");
        let by_link = ["backup", part, "--force", "--store", "sqlite:link.db"];
        fails(directory, &by_link, 1, "this is a part of the store");
    }
    fails(directory, &["backup", "link.db-wal", "--store", "sqlite:link.db"], 1, "this is a part of the store");
    std::fs::write(directory.join("new.db-wal"), "of another file").unwrap();
    fails(directory, &["backup", "new.db"], 1, "a log of another file lies beside this name");
    assert_eq!(records(&directory.join("hapax.db")), 1);
    assert!(node.send(&pay("k")).is_replay(), "nothing of the store was touched");
    fails(directory, &["backup", "missing/copy.db"], 1, "check its directory");
    fails(directory, &["backup", "copy.db", "--store", "sqlite:none.db"], 2, "there is no store at none.db");
    fails(directory, &["backup", "copy.db", "--store", "memory:"], 2, "keeps nothing");
    fails(directory, &["backup", "copy.db", "--store", "postgres://db/app"], 2, "PostgreSQL's own means");
    assert!(!directory.join("copy.db").exists() && !directory.join("none.db").exists());
    assert_eq!(node.send(&pay("k")).status, 201);
}

#[test]
fn a_store_that_is_open_is_not_restored_over() {
    let mut node = start(Kept::Sqlite);
    assert_eq!(node.send(&pay("k-1")).status, 201);
    done(node.hapax.dir(), &["backup", "copy.db"]);
    assert_eq!(node.send(&pay("k-2")).status, 201);
    fails(node.hapax.dir(), &["restore", "copy.db"], 1, "another process has the store open; stop it first");
    assert_eq!(node.send(&pay("k-2")).header("idempotent-replayed"), Some("true"), "it works on");
    assert_eq!(files(&node, "before-restore").len() + files(&node, "partial").len(), 0);
    node.hapax.signal("STOP");
    fails(node.hapax.dir(), &["restore", "copy.db"], 1, "another process has the store open");
    node.hapax.signal("CONT");
    assert_eq!(node.send(&pay("k-3")).status, 201);
}

#[test]
fn a_restore_keeps_the_old_file_and_replays_what_the_backup_holds() {
    let mut node = start(Kept::Sqlite);
    let first = node.send(&pay("k-1"));
    done(node.hapax.dir(), &["backup", "copy.db"]);
    assert_eq!(node.send(&pay("k-2")).status, 201);
    // What was not moved from the log into the file must not be lost with it.
    node.hapax.kill_9();
    let said = done(node.hapax.dir(), &["restore", "copy.db", "--reason", "disk lost", "--as", "ana"]);
    assert!(said.contains("Restored hapax.db from copy.db.") && said.contains("A fence stands"), "{said}");
    let kept = files(&node, "before-restore");
    assert_eq!(kept.len(), 1, "{kept:?}");
    assert!(said.contains(kept[0].file_name().unwrap().to_str().unwrap()), "{said}");
    assert_eq!((records(&kept[0]), records(&node.hapax.dir().join("hapax.db"))), (2, 1));
    node.hapax.restart();
    let replay = node.send(&pay("k-1"));
    assert_eq!((replay.status, &replay.body, replay.header("idempotent-replayed")), (201, &first.body, Some("true")));
    let store = Connection::open(node.hapax.dir().join("hapax.db")).unwrap();
    let sql = "SELECT count(*) FROM hapax_note WHERE what = 'restore' AND reason = 'disk lost' AND who = 'ana'";
    assert_eq!(store.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap(), 1, "it is in the audit log");
}

#[test]
fn a_broken_configuration_is_no_reason_to_go_without_a_backup() {
    let node = start(Kept::Sqlite);
    assert_eq!(node.send(&pay("k-1")).status, 201);
    std::fs::write(node.hapax.dir().join("hapax.toml"), "[routes\n").unwrap();
    fails(node.hapax.dir(), &["backup", "copy.db"], 2, "hapax.toml:1: not TOML");
    done(node.hapax.dir(), &["backup", "copy.db", "--store", "sqlite:hapax.db"]);
    // How long a fence stands is in the file.
    let restore = ["restore", "copy.db", "--store", "sqlite:other.db"];
    fails(node.hapax.dir(), &restore, 2, "hapax.toml:1: not TOML");
}

#[test]
fn a_store_is_restored_twice_within_a_second() {
    let mut node = start(Kept::Sqlite);
    assert_eq!(node.send(&pay("k-1")).status, 201);
    done(node.hapax.dir(), &["backup", "copy.db"]);
    node.hapax.kill_9();
    for _ in 0..3 {
        done(node.hapax.dir(), &["restore", "copy.db"]);
    }
    assert_eq!(files(&node, "before-restore").len(), 3, "each old file is kept");
}

#[test]
fn what_is_no_sound_backup_of_hapax_is_refused_and_the_store_stays_as_it_was() {
    let mut node = start(Kept::Sqlite);
    for number in 0..40 {
        assert_eq!(node.send(&pay(&format!("k-{number}"))).status, 201);
    }
    let directory = node.hapax.dir().to_owned();
    done(&directory, &["backup", "copy.db"]);
    node.hapax.terminate();
    let before = std::fs::read(directory.join("hapax.db")).unwrap();
    let mut bytes = std::fs::read(directory.join("copy.db")).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 3000].fill(0xa5);
    std::fs::write(directory.join("damaged.db"), &bytes).unwrap();
    std::fs::write(directory.join("cut.db"), &bytes[..middle]).unwrap();
    std::fs::write(directory.join("text.db"), "not a database, but long enough to look at".repeat(100)).unwrap();
    std::fs::write(directory.join("empty.db"), "").unwrap();
    Connection::open(directory.join("other.db")).unwrap().execute_batch("CREATE TABLE t (x)").unwrap();
    fails(&directory, &["restore", "damaged.db"], 1, "damaged");
    fails(&directory, &["restore", "cut.db"], 1, "cut.db");
    fails(&directory, &["restore", "text.db"], 1, "not an SQLite database");
    fails(&directory, &["restore", "empty.db"], 1, "not a file of hapax's own");
    fails(&directory, &["restore", "other.db"], 1, "not a file of hapax's own");
    fails(&directory, &["restore", "missing.db"], 1, "there is no such file");
    fails(&directory, &["restore", "hapax.db"], 1, "this is the store itself");
    fails(&directory, &["restore", "copy.db", "--store", "postgres://db/app"], 2, "PostgreSQL's own means");
    assert_eq!(std::fs::read(directory.join("hapax.db")).unwrap(), before);
    assert_eq!(files(&node, "before-restore").len() + files(&node, "partial").len(), 0);
}

#[test]
fn a_backup_of_a_newer_release_is_refused() {
    let mut node = start(Kept::Sqlite);
    done(node.hapax.dir(), &["backup", "copy.db"]);
    let copy = Connection::open(node.hapax.dir().join("copy.db")).unwrap();
    copy.execute_batch("UPDATE hapax_meta SET value = 99 WHERE name IN ('schema', 'min_reader')").unwrap();
    drop(copy);
    node.hapax.terminate();
    fails(node.hapax.dir(), &["restore", "copy.db"], 1, "needs a release that knows 99");
    assert_eq!(files(&node, "before-restore").len() + files(&node, "partial").len(), 0);
}

#[test]
fn a_damaged_store_is_replaced_and_kept() {
    let mut node = start(Kept::Sqlite);
    let first = node.send(&pay("k-1"));
    done(node.hapax.dir(), &["backup", "copy.db"]);
    node.hapax.kill_9();
    let store = node.hapax.dir().join("hapax.db");
    std::fs::write(&store, "rubbish ".repeat(4096)).unwrap();
    done(node.hapax.dir(), &["restore", "copy.db"]);
    let kept = files(&node, "before-restore");
    assert!(kept.iter().any(|path| std::fs::read(path).unwrap().starts_with(b"rubbish")), "{kept:?}");
    assert!(kept.iter().any(|path| path.to_str().unwrap().ends_with("-wal")), "its log goes with it: {kept:?}");
    node.hapax.restart();
    assert_eq!(node.send(&pay("k-1")).body, first.body);
}

#[test]
fn a_backup_is_restored_to_a_new_place() {
    let mut node = start(Kept::Sqlite);
    assert_eq!(node.send(&pay("k-1")).status, 201);
    done(node.hapax.dir(), &["backup", "copy.db"]);
    node.hapax.terminate();
    std::fs::remove_file(node.hapax.dir().join("hapax.db")).unwrap();
    let said = done(node.hapax.dir(), &["restore", "copy.db"]);
    assert!(!said.contains("is kept as"), "{said}");
    node.hapax.restart();
    assert_eq!(node.send(&pay("k-1")).header("idempotent-replayed"), Some("true"));
}

#[test]
fn a_log_that_was_left_behind_does_not_reach_the_restored_store() {
    let mut node = start(Kept::Sqlite);
    assert_eq!(node.send(&pay("k-1")).status, 201);
    done(node.hapax.dir(), &["backup", "copy.db"]);
    assert_eq!(node.send(&pay("k-2")).status, 201);
    node.hapax.kill_9();
    let file = node.hapax.dir().join("hapax.db");
    assert!(node.hapax.dir().join("hapax.db-wal").exists(), "a process that was killed leaves its log");
    std::fs::rename(&file, node.hapax.dir().join("hapax.db.bad")).unwrap();
    done(node.hapax.dir(), &["restore", "copy.db"]);
    assert!(done(node.hapax.dir(), &["fence"]).contains("fence stands"), "as it was said");
    let sound: String = Connection::open(&file)
        .and_then(|file| file.query_row("PRAGMA integrity_check", [], |row| row.get(0)))
        .unwrap();
    assert_eq!(sound, "ok");
    node.hapax.restart();
    assert_eq!(node.send(&pay("k-1")).header("idempotent-replayed"), Some("true"));
    assert_eq!(refused(&node.send(&pay("k-2"))), (409, "outcome-unknown".to_owned()), "it is not known any more");
    node.ledger.assert_once("k-2");
}

#[test]
fn what_ran_at_the_backup_under_a_policy_of_rerun_is_not_run_again_unasked() {
    let mut node = start_with(Kept::Sqlite, |builder| {
        builder.with_config("[defaults]\nlease = \"1s\"\non_lapse = \"rerun\"\n[background]\nsweep_every = \"200ms\"\n")
    });
    node.ledger.hold("k");
    let address = node.hapax.address();
    let first = std::thread::spawn(move || pay("k").send(address));
    node.ledger.wait_until_received("k");
    done(node.hapax.dir(), &["backup", "copy.db"]);
    node.ledger.release("k");
    assert_eq!(first.join().unwrap().status, 201, "it ends after the backup");
    node.hapax.terminate();
    done(node.hapax.dir(), &["restore", "copy.db"]);
    node.hapax.restart();
    assert_eq!(refused(&node.send(&pay("k"))), (409, "outcome-unknown".to_owned()));
    node.ledger.assert_once("k");
}

#[test]
fn a_fence_that_cannot_be_noted_is_not_lifted() {
    let mut node = start(Kept::Sqlite);
    assert_eq!(node.send(&pay("k-1")).status, 201);
    done(node.hapax.dir(), &["backup", "copy.db"]);
    node.hapax.terminate();
    done(node.hapax.dir(), &["restore", "copy.db"]);
    let long = "x".repeat(5_000);
    fails(node.hapax.dir(), &["fence", "--lift", "--reason", &long], 1, "5000 bytes");
    assert!(done(node.hapax.dir(), &["fence"]).contains("fence stands"));
}

#[test]
fn what_stood_ready_in_the_backup_and_ran_since_does_not_run_again() {
    let mut node = start(Kept::Sqlite);
    node.ledger.next("k", Behaviour::answer(503, "later"));
    assert_eq!(node.send(&pay("k")).status, 503);
    done(node.hapax.dir(), &["backup", "copy.db"]);
    assert_eq!(node.send(&pay("k")).status, 201, "the second attempt has its effect");
    node.hapax.terminate();
    let said = done(node.hapax.dir(), &["restore", "copy.db"]);
    assert!(said.contains("1 records that stood ready may have run since"), "{said}");
    node.hapax.restart();
    assert_eq!(refused(&node.send(&pay("k"))), (409, "outcome-unknown".to_owned()));
    assert_eq!(node.ledger.executions("k").len(), 2);
}

#[test]
fn another_applications_database_is_not_restored_over() {
    let mut node = start(Kept::Sqlite);
    assert_eq!(node.send(&pay("k")).status, 201);
    done(node.hapax.dir(), &["backup", "copy.db"]);
    node.hapax.terminate();
    let app = node.hapax.dir().join("app.db");
    Connection::open(&app).unwrap().execute_batch("CREATE TABLE orders (id TEXT)").unwrap();
    let restore = ["restore", "copy.db", "--store", "sqlite:app.db"];
    fails(node.hapax.dir(), &restore, 1, "another application's database");
    let orders: i64 =
        Connection::open(&app).unwrap().query_row("SELECT count(*) FROM orders", [], |row| row.get(0)).unwrap();
    assert_eq!(orders, 0, "the table is still there");
    assert_eq!(files(&node, "app.db").len(), 1, "and nothing beside it");
}

/// In the lost time somebody may have said that it did not happen, and an attempt may have followed.
#[test]
fn what_was_unknown_in_the_backup_is_in_doubt_since_the_restore() {
    let mut node = start(Kept::Sqlite);
    node.ledger.next("k", Behaviour::ResetBeforeHead);
    assert_eq!(node.send(&pay("k")).status, 504);
    done(node.hapax.dir(), &["backup", "copy.db"]);
    let before = doubted_since(&node);
    node.hapax.terminate();
    let said = done(node.hapax.dir(), &["restore", "copy.db"]);
    assert!(!said.contains("stood ready"), "{said}");
    let since = doubted_since(&node);
    assert!(since > before, "{since:?} {before:?}");
    assert!(since >= restored_at(&said), "{since:?} {said}");
}

fn doubted_since(node: &Node) -> Timestamp {
    let mut show = Command::new(env!("CARGO_BIN_EXE_hapax"));
    show.args(["keys", "show", "k", "--output", "json"]).current_dir(node.hapax.dir()).env_clear();
    let output = show.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let shown: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    timestamp::read(shown["doubted_since"].as_str().unwrap()).unwrap()
}

on_both_stores! {
    a_fence_is_raised_shown_and_lifted
    a_fence_is_not_raised_or_lifted_without_what_it_needs
    a_fence_raised_after_a_recovery_holds_what_was_lost_until_it_is_lifted
}

fn store_url(node: &Node) -> String {
    match &node.database {
        Some(database) => database.url(),
        None => "sqlite:hapax.db".to_owned(),
    }
}

fn a_fence_is_raised_shown_and_lifted(kept: Kept) {
    let node = start(kept);
    let (directory, url) = (node.hapax.dir(), store_url(&node));
    let fence = |more: &[&str]| done(directory, &[&["fence", "--store", &url], more].concat());
    assert_eq!(fence(&[]), "No fence stands.\n");
    let said = fence(&["--raise", "--since", "2024-11-16T12:00:00Z", "--reason", "recovered to noon"]);
    assert!(said.starts_with("A fence stands: what was claimed from 2024-11-16T12:00:00.000Z to "), "{said}");
    assert_eq!(fence(&["--show"]), said);
    let wider = fence(&["--raise", "--since", "2024-11-15", "--reason", "earlier still"]);
    assert!(wider.contains("from 2024-11-15T00:00:00.000Z"), "{wider}");
    let lifted = fence(&["--lift", "--reason", "compared with the ledger"]);
    assert!(lifted.starts_with("The fence is lifted.") && lifted.contains("stay unknown until"), "{lifted}");
    assert_eq!(fence(&["--show"]), "No fence stands.\n");
    assert_eq!(fence(&["--lift", "--reason", "again"]), "No fence stands; nothing to lift.\n");
    fence(&["--raise", "--since", "2024-11-15", "--reason", "drill", "--as", "ana of the night shift"]);
    let audit = Command::new(env!("CARGO_BIN_EXE_hapax"))
        .args(["audit", "--store", &url, "--output", "json"])
        .current_dir(directory)
        .env_clear()
        .output()
        .unwrap();
    let audit: serde_json::Value = serde_json::from_slice(&audit.stdout).unwrap();
    let who = |nth: usize| audit["notes"][nth]["who"].as_str().unwrap();
    assert_eq!(who(0), "ana of the night shift");
    assert!(who(1).starts_with("uid ") && who(1).contains('@'), "{audit}");
}

fn a_fence_is_not_raised_or_lifted_without_what_it_needs(kept: Kept) {
    let node = start(kept);
    let (directory, url) = (node.hapax.dir(), store_url(&node));
    let refused = |more: &[&str], said: &str| {
        fails(directory, &[&["fence", "--store", &url], more].concat(), 2, said);
    };
    refused(&["--raise"], "--since");
    refused(&["--raise", "--since", "2024-11-16"], "--reason");
    refused(&["--raise", "--since", "noon", "--reason", "x"], "2026-11-16T12:00:00Z");
    refused(&["--raise", "--since", "2999-01-01", "--reason", "x"], "has not come yet");
    refused(&["--lift"], "--reason");
    refused(&["--lift", "--reason", " "], "say why");
    refused(&["--lift", "--raise", "--since", "2024-11-16", "--reason", "x"], "cannot be used with");
    assert_eq!(done(directory, &["fence", "--store", &url]), "No fence stands.\n");
}

/// Everything lapses, settles and is asked about within seconds. Every key has a page of its own that says what became of it.
const PROBED: &str = r#"
[upstream]
answer_timeout = "1s"

[background]
sweep_every = "100ms"
reconcile_every = "100ms"

[defaults]
lease = "1s"
retention = "1h"

[[route]]
path = "/payments"
settle_after = "1s"
probe_backoff = "200ms"
probe = { get = "/look-up/{key}", happened = "200", did_not_happen = "404" }
"#;

/// Long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

fn start_probed(kept: Kept) -> Node {
    // One tenant, so that a probe may ask by key.
    start_with(kept, |builder| builder.with_scope("single").with_config(PROBED))
}

/// What became of a payment, as the upstream tells it: what its own ledger says.
fn tell(node: &Node, key: &str) {
    let happened = !node.ledger.executions(key).is_empty();
    let answer = if happened { Behaviour::answer(200, "it happened") } else { Behaviour::answer(404, "unheard of") };
    node.ledger.on(&*format!("/look-up/{key}"), answer);
}

/// Sends the payment again until it gets another answer than 409.
fn retry_until_answered(node: &Node, key: &str) -> Response {
    let mut answer = None;
    until("a retry is answered", PATIENCE, || {
        let retry = node.send(&pay(key));
        answer = (retry.status != 409).then_some(retry);
        answer.is_some()
    });
    answer.unwrap()
}

/// A UUIDv7 that was made then.
fn uuid_v7(made_at: Timestamp) -> String {
    let hex = format!("{:012x}70008000000000000001", made_at.as_ms());
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

/// The end of the lost time, from what `hapax store` prints.
fn restored_at(said: &str) -> Timestamp {
    let line = said.lines().find(|line| line.starts_with("A fence stands")).unwrap();
    let time = line.split(" to ").nth(1).unwrap().split(' ').next().unwrap();
    timestamp::read(time).unwrap()
}

#[test]
fn what_a_restore_lost_is_probed_before_anything_runs_and_none_runs_twice() {
    let mut node = start_probed(Kept::Sqlite);
    let kept = node.send(&pay("kept"));
    done(node.hapax.dir(), &["backup", "copy.db"]);
    let lost = ["lost-1", "lost-2", "lost-3"];
    for key in lost {
        assert_eq!(node.send(&pay(key)).status, 201);
    }
    node.hapax.terminate();
    let said = done(node.hapax.dir(), &["restore", "copy.db"]);
    for key in lost.into_iter().chain(["new"]) {
        tell(&node, key);
    }
    node.hapax.restart();
    let replay = node.send(&pay("kept"));
    assert_eq!((replay.status, &replay.body), (201, &kept.body), "what was not lost is replayed at once");
    for key in lost.into_iter().chain(["new"]) {
        assert_eq!(refused(&node.send(&pay(key))), (409, "outcome-unknown".to_owned()), "{key}");
    }
    node.ledger.assert_never("new");
    for key in lost {
        let retry = retry_until_answered(&node, key);
        assert_eq!((retry.status, retry.text().as_str()), (200, "it happened"), "{key}");
        node.ledger.assert_once(key);
    }
    assert_eq!(retry_until_answered(&node, "new").status, 201, "a key that is new after all runs");
    node.ledger.assert_once("new");
    let restored_at = restored_at(&said);
    let made_later = uuid_v7(restored_at.plus_ms(120_000));
    assert_eq!(node.send(&pay(&made_later)).status, 201, "it cannot have been claimed before the restore");
    node.ledger.assert_once(&made_later);
    let made_before = uuid_v7(Timestamp::from_ms(restored_at.as_ms() - 120_000));
    assert_eq!(refused(&node.send(&pay(&made_before))).0, 409);
    node.ledger.assert_never(&made_before);
}

#[test]
fn a_fence_ends_when_every_lost_answer_would_have_expired() {
    let config = "[upstream]\nanswer_timeout = \"1s\"\n[background]\nsweep_every = \"100ms\"\n\
                  [defaults]\nlease = \"1s\"\nretention = \"4s\"\nsettle_after = \"1s\"\n";
    let mut node = start_with(Kept::Sqlite, |builder| builder.with_config(config));
    assert_eq!(node.send(&pay("kept")).status, 201);
    done(node.hapax.dir(), &["backup", "copy.db"]);
    node.hapax.terminate();
    let said = done(node.hapax.dir(), &["restore", "copy.db"]);
    node.hapax.restart();
    assert_eq!(refused(&node.send(&pay("early"))).0, 409);
    let later = said.split("It falls by itself at ").nth(1).unwrap().split(';').next().unwrap();
    assert_eq!(timestamp::read(later).unwrap(), restored_at(&said).plus_ms(4_000), "the retention, and nothing else");
    until_a_new_key_runs(&node);
    assert_eq!(done(node.hapax.dir(), &["fence"]), "No fence stands.\n");
    assert_eq!(refused(&node.send(&pay("early"))).0, 409, "what was in doubt stays so");
    node.ledger.assert_never("early");
}

/// Each try is a key of its own: one that was tried behind the fence is in doubt.
fn until_a_new_key_runs(node: &Node) {
    let mut tries = 0;
    until("a new key runs", PATIENCE, || {
        tries += 1;
        node.send(&pay(&format!("try-{tries}"))).status == 201
    });
}

/// As a recovery to an earlier point in time would: the record is gone.
fn forget(node: &Node, key: &str) {
    if let Some(database) = &node.database {
        database.run(&format!("DELETE FROM hapax.record WHERE key = '{key}'"));
        return;
    }
    let store = Connection::open(node.hapax.dir().join("hapax.db")).unwrap();
    let place = "DELETE FROM hapax_place WHERE seq IN (SELECT seq FROM hapax_record WHERE key = ?1)";
    assert_eq!(store.execute(place, [key]).unwrap(), 1);
    assert_eq!(store.execute("DELETE FROM hapax_record WHERE key = ?1", [key]).unwrap(), 1);
}

fn a_fence_raised_after_a_recovery_holds_what_was_lost_until_it_is_lifted(kept: Kept) {
    let mut node = start_probed(kept);
    let url = store_url(&node);
    node.ledger.next("ready", Behaviour::answer(503, "later"));
    assert_eq!(node.send(&pay("ready")).status, 503);
    assert_eq!(node.send(&pay("lost")).status, 201);
    node.hapax.terminate();
    forget(&node, "lost");
    let raise = ["fence", "--raise", "--since", "2024-11-16T12:00:00Z", "--reason", "recovered"];
    let said = done(node.hapax.dir(), &[&raise[..], &["--store", &url]].concat());
    assert!(said.contains("1 records that stood ready may have run since"), "{said}");
    tell(&node, "lost");
    node.ledger.on("/look-up/ready", Behaviour::answer(500, "cannot tell"));
    node.hapax.restart();
    for key in ["lost", "ready"] {
        assert_eq!(refused(&node.send(&pay(key))), (409, "outcome-unknown".to_owned()), "{key}");
    }
    assert_eq!(retry_until_answered(&node, "lost").text(), "it happened");
    node.ledger.assert_once("lost");
    node.ledger.assert_once("ready");
    assert_eq!(refused(&node.send(&pay("before"))).0, 409);
    node.ledger.assert_never("before");
    done(node.hapax.dir(), &["fence", "--lift", "--reason", "compared", "--store", &url]);
    until_a_new_key_runs(&node);
}

#[test]
fn a_restore_that_is_killed_leaves_the_old_store_or_the_new_one_with_its_fence() {
    let mut node = start(Kept::Sqlite);
    assert_eq!(node.send(&pay("k-1")).status, 201);
    done(node.hapax.dir(), &["backup", "copy.db"]);
    assert_eq!(node.send(&pay("k-2")).status, 201);
    node.hapax.terminate();
    let mut ends = [0, 0];
    for pause_ms in (0..60).step_by(4) {
        let directory = tempfile::tempdir().unwrap();
        for file in files(&node, ".db").iter().filter(|file| !file.to_str().unwrap().ends_with("-shm")) {
            std::fs::copy(file, directory.path().join(file.file_name().unwrap())).unwrap();
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_hapax"));
        command.args(["store", "restore", "copy.db"]).current_dir(directory.path()).env_clear().stdout(Stdio::null());
        let mut restore = command.spawn().unwrap();
        // Whenever it is killed, what follows must hold: the pause only spreads the moments.
        holds_within(Duration::from_millis(pause_ms), || false);
        restore.kill().unwrap();
        restore.wait().unwrap();
        let is_new = done(directory.path(), &["fence"]).starts_with("A fence stands");
        assert_eq!(records(&directory.path().join("hapax.db")), if is_new { 1 } else { 2 }, "after {pause_ms} ms");
        ends[usize::from(is_new)] += 1;
        let whole: String = Connection::open(directory.path().join("hapax.db"))
            .and_then(|store| store.query_row("PRAGMA integrity_check", [], |row| row.get(0)))
            .unwrap();
        assert_eq!(whole, "ok");
    }
    assert!(ends[0] > 0, "at least the first is killed before it has begun: {ends:?}");
}

fn ended(directory: &Path, arguments: &[&str]) -> Ended {
    let output =
        Command::new(env!("CARGO_BIN_EXE_hapax")).args(arguments).current_dir(directory).env_clear().output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ended { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// Three protected routes, the default one included; one of them has a probe.
const THREE_ROUTES: &str = r#"
[defaults]
retention = "72h"

[[route]]
path = "/refunds"

[[route]]
path = "/transfers"
probe = { get = "/look-up/{id}", happened = "200", did_not_happen = "404" }
"#;

#[test]
fn a_restore_says_in_plain_words_what_clients_get_and_status_needs_attention_meanwhile() {
    let mut node = start_with(Kept::Sqlite, |builder| builder.with_config(THREE_ROUTES));
    let directory = node.hapax.dir().to_owned();
    assert_eq!(node.send(&pay("k-1")).status, 201);
    done(&directory, &["backup", "copy.db"]);
    assert_eq!(ended(&directory, &["status"]).code, Some(0));
    node.hapax.terminate();
    let said = done(&directory, &["restore", "copy.db"]);
    for part in [
        "Every new key gets 409 outcome-unknown for up to 3 days, until 20",
        "Routes with a probe: 1.",
        "Routes without a probe: 2. A person must decide every such key",
        "see what it has and the backup lacks, and take it over: hapax store recover hapax.db.before-restore-",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    node.hapax.restart();
    let status = ended(&directory, &["status"]);
    assert_eq!(status.code, Some(1), "{status:?}");
    assert!(status.stdout.starts_with("needs attention\n"), "{status:?}");
    let problem = status.stdout.lines().find(|line| line.starts_with("problem ")).unwrap();
    assert!(problem.contains("a fence stands since a restore: until 20"), "{problem}");
    assert!(
        problem.contains("gets 409 outcome-unknown; on 2 routes without a probe a person must decide"),
        "{problem}"
    );
    let told = node.hapax.ask_admin("/v1/status").json();
    assert_eq!((&told["healthy"], &told["fence"]["routes_without_probe"]), (&false.into(), &2.into()), "{told}");
    assert_eq!(node.hapax.ask_admin("/readyz").status, 200, "known keys and others are served");
    done(&directory, &["fence", "--lift", "--reason", "compared with the ledger"]);
    assert_eq!(ended(&directory, &["status"]).code, Some(0));
}

/// A store that was restored: of what came after the backup, the kept file knows it all.
fn restored(config: &str) -> (Node, PathBuf, Response) {
    let mut node = start_with(Kept::Sqlite, |builder| builder.with_config(config));
    assert_eq!(node.send(&pay("before")).status, 201);
    done(node.hapax.dir(), &["backup", "copy.db"]);
    let answer = node.send(&pay("asked-again"));
    assert_eq!(node.send(&pay("not-asked-again")).status, 201);
    node.ledger.next("cut-off", Behaviour::Drop);
    assert_eq!(node.send(&pay("cut-off")).status, 504);
    node.hapax.terminate();
    done(node.hapax.dir(), &["restore", "copy.db"]);
    node.hapax.restart();
    let kept = files(&node, "before-restore").into_iter().next().unwrap();
    (node, kept, answer)
}

#[test]
fn what_the_kept_file_knows_is_taken_over_and_nothing_runs_twice() {
    let (node, kept, answer) = restored("[background]\nsweep_every = \"100ms\"\n");
    let (directory, kept) = (node.hapax.dir(), kept.to_str().unwrap());
    assert_eq!(refused(&node.send(&pay("asked-again"))), (409, "outcome-unknown".to_owned()));
    let other = pay("not-asked-again").body("{}");

    let said = done(directory, &["recover", kept]);
    for part in [
        " holds 4 records of callers.\n",
        "        1  are the same in the store\n",
        "        1  are completed, and the store lacks them",
        "        1  are completed, and in the store nobody knew",
        "        1  were not finished, and the store lacks them",
        "settled with its answer  asked-again  ",
        "Nothing was changed. To take it over: add --apply --reason TEXT.",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert_eq!(refused(&node.send(&pay("asked-again"))).0, 409, "it only looked");

    let apply = ["recover", kept, "--apply", "--reason", "the disk was readable after all", "--as", "ana"];
    let said = done(directory, &apply);
    assert!(said.contains("nothing is lost any more: hapax store fence --lift"), "{said}");
    let replay = node.send(&pay("asked-again"));
    assert_eq!((replay.status, &replay.body, replay.is_replay()), (201, &answer.body, true));
    assert!(node.send(&pay("not-asked-again")).is_replay());
    assert_eq!(node.send(&other).status, 422, "its fingerprint is there as well");
    assert_eq!(refused(&node.send(&pay("cut-off"))), (409, "outcome-unknown".to_owned()));
    for key in ["before", "asked-again", "not-asked-again"] {
        node.ledger.assert_once(key);
    }
    let store = Connection::open(directory.join("hapax.db")).unwrap();
    let sql = "SELECT count(*) FROM hapax_note WHERE what = 'recover' AND who = 'ana' AND reason LIKE 'the disk was%'";
    assert_eq!(store.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap(), 3, "each is in the audit log");

    let again = done(directory, &apply);
    assert!(again.contains("        4  are newer or settled") || !again.contains("taken over"), "{again}");
    done(directory, &["fence", "--lift", "--reason", "nothing was lost"]);
    until("the fence is gone", PATIENCE, || node.hapax.metric("hapax_fence") == 0.0);
    assert_eq!(node.send(&pay("new")).status, 201);
}

#[test]
fn what_ran_again_after_the_restore_is_not_overwritten_by_the_kept_file() {
    let (node, kept, answer) = restored("[background]\nsweep_every = \"100ms\"\n");
    done(node.hapax.dir(), &["fence", "--lift", "--reason", "a mistake"]);
    until("the fence is gone", PATIENCE, || node.hapax.metric("hapax_fence") == 0.0);
    let second = node.send(&pay("asked-again"));
    assert_eq!(second.status, 201);
    assert_ne!(second.body, answer.body, "it ran again, as a lifted fence allows");
    done(node.hapax.dir(), &["recover", kept.to_str().unwrap(), "--apply", "--reason", "too late for this one"]);
    assert_eq!(node.send(&pay("asked-again")).body, second.body);
}

#[test]
fn a_file_of_another_store_is_not_taken_over() {
    let (one, other) = (start(Kept::Sqlite), start(Kept::Sqlite));
    assert_eq!(other.send(&pay("k")).status, 201);
    let file = other.hapax.dir().join("hapax.db");
    let arguments = ["recover", file.to_str().unwrap(), "--apply", "--reason", "a mistake"];
    fails(one.hapax.dir(), &arguments, 2, "is not an older state of this store");
    fails(one.hapax.dir(), &["recover", "none.db"], 2, "there is no store at none.db");
    fails(one.hapax.dir(), &["recover", "none.db", "--apply"], 2, "--reason");
    assert_eq!(records(&one.hapax.dir().join("hapax.db")), 0);
}
