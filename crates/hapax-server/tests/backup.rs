//! `hapax store` as an operator uses it: backup of a store in use, restore, and the fence over what was lost.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

mod node;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use hapax_testkit::ledger::Behaviour;
use node::{Kept, Node, on_both_stores, pay, refused, start};
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
    let said = done(node.hapax.dir(), &["restore", "copy.db", "--reason", "disk lost"]);
    assert!(said.contains("Restored hapax.db from copy.db.") && said.contains("A fence stands"), "{said}");
    let kept = files(&node, "before-restore");
    assert_eq!(kept.len(), 1, "{kept:?}");
    assert!(said.contains(kept[0].file_name().unwrap().to_str().unwrap()), "{said}");
    assert_eq!((records(&kept[0]), records(&node.hapax.dir().join("hapax.db"))), (2, 1));
    node.hapax.restart();
    let replay = node.send(&pay("k-1"));
    assert_eq!((replay.status, &replay.body, replay.header("idempotent-replayed")), (201, &first.body, Some("true")));
    let store = Connection::open(node.hapax.dir().join("hapax.db")).unwrap();
    let sql =
        "SELECT count(*) FROM hapax_note WHERE what = 'restore' AND reason = 'disk lost' AND who LIKE 'somebody@%'";
    assert_eq!(store.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap(), 1, "it is in the audit log");
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

on_both_stores! {
    a_fence_is_raised_shown_and_lifted
    a_fence_is_not_raised_or_lifted_without_what_it_needs
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
    assert!(fence(&["--lift", "--reason", "compared with the ledger"]).starts_with("The fence is lifted."));
    assert_eq!(fence(&["--show"]), "No fence stands.\n");
    assert_eq!(fence(&["--lift", "--reason", "again"]), "No fence stands; nothing to lift.\n");
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
