//! A file that can be read and not written: the disk is full, or has failed. What was recorded is answered; nothing new runs;
//! and an end waits for nothing that can never be recorded. Faults are put into the running process by strace.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use crate::node::{Kept, Node, builder, pay, refused, start_with, unkeyed};
use hapax_testkit::ledger::Ledger;
use hapax_testkit::needs_postgres;
use hapax_testkit::raw_http::Response;
use hapax_testkit::wait::until;
use tokio::time::Instant;

const PATIENCE: Duration = Duration::from_secs(30);

/// More than the breaker's failures in a row.
const CONFIG: &str = "[store]\nbreaker_failures = 3\nbreaker_pause = \"2s\"\n[server]\ndrain = \"20s\"\n";
const TRIES: usize = 6;

/// Calls of a process that fail until this is dropped.
struct Failing(Child);

impl Failing {
    /// `fault` such as `pwrite64:error=ENOSPC`, in calls on the node's log.
    fn in_log_of(node: &Node, fault: &str) -> Failing {
        let log = node.hapax.dir().join("hapax.db-wal");
        let call = fault.split(':').next().unwrap();
        let mut strace = Command::new("strace");
        strace.args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={call}"), "-e", &format!("inject={fault}")]);
        strace.arg("-P").arg(log).args(["-p", &node.hapax.id().to_string()]);
        let failing = Failing(strace.spawn().expect("strace runs; scripts/test installs it"));
        until("strace holds every thread", PATIENCE, || all_traced(node.hapax.id()));
        failing
    }
}

fn all_traced(process: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).unwrap().map(|entry| entry.unwrap().path());
    let is_traced = |thread: std::path::PathBuf| {
        let status = std::fs::read_to_string(thread.join("status")).unwrap_or_default();
        !status.lines().any(|line| line.starts_with("TracerPid:") && line.ends_with("\t0"))
    };
    threads.into_iter().all(is_traced)
}

impl Drop for Failing {
    /// Told to end, it lets go of the process first.
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

fn keys() -> impl Iterator<Item = String> {
    (0..TRIES).map(|number| format!("done-{number}"))
}

/// A node that has answered the keys, and was started again since: it has none of them in mind.
fn node_with_answers(kept: Kept) -> (Node, Vec<Response>) {
    let mut node = start_with(kept, |builder| builder.with_config(CONFIG));
    let first = keys().map(|key| node.send(&pay(&key))).collect();
    assert_eq!(node.hapax.terminate(), Some(0));
    node.hapax.restart();
    (node, first)
}

/// Everything that was recorded is answered as it was, and another request under a known key is told so.
fn assert_known_are_answered(node: &Node, first: &[Response]) {
    for (key, first) in keys().zip(first) {
        let again = node.send(&pay(&key));
        assert!(again.is_replay(), "{key}: {:?}", refused(&again));
        assert_eq!((again.status, &again.body), (first.status, &first.body), "{key}");
        let other = unkeyed(r#"{"amount":9}"#).header("Idempotency-Key", &key);
        assert_eq!(refused(&node.send(&other)), (422, "key-reused".into()), "{key}");
        node.ledger.assert_once(&key);
    }
}

fn assert_new_are_refused(node: &Node, what: &str) {
    for number in 0..TRIES {
        let key = format!("{what}-{number}");
        assert_eq!(refused(&node.send(&pay(&key))), (503, "store-unavailable".into()), "{key}");
        node.ledger.assert_never(&key);
    }
}

#[test]
fn what_is_recorded_is_answered_while_the_disk_is_full() {
    let (node, first) = node_with_answers(Kept::Sqlite);
    let full = Failing::in_log_of(&node, "pwrite64:error=ENOSPC");
    assert_eq!(refused(&node.send(&pay("new"))), (503, "store-unavailable".into()));
    assert_known_are_answered(&node, &first);
    assert_new_are_refused(&node, "full");
    assert_eq!(node.hapax.metric("hapax_breaker_open"), 1.0);
    assert_known_are_answered(&node, &first);
    drop(full);
    until("a new key is served", PATIENCE, || node.send(&pay("new")).status == 201);
    node.ledger.assert_once("new");
}

#[test]
fn what_is_recorded_is_answered_while_the_servers_disk_is_full() {
    needs_postgres!();
    let (node, first) = node_with_answers(Kept::Postgres);
    let database = node.database.as_ref().unwrap();
    database.run(
        "CREATE FUNCTION disk_full() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN RAISE EXCEPTION 'full' USING ERRCODE = '53100'; END $$;
         CREATE TRIGGER disk_full BEFORE INSERT OR UPDATE ON hapax.record FOR EACH ROW EXECUTE FUNCTION disk_full();",
    );
    assert_new_are_refused(&node, "full");
    assert_known_are_answered(&node, &first);
    database.run("DROP TRIGGER disk_full ON hapax.record");
    until("a new key is served", PATIENCE, || node.send(&pay("new")).status == 201);
    node.ledger.assert_once("new");
}

#[test]
fn what_is_recorded_is_answered_after_the_store_has_stopped_and_nothing_else() {
    let (mut node, first) = node_with_answers(Kept::Sqlite);
    let failing = Failing::in_log_of(&node, "fdatasync:error=EIO");
    assert_eq!(refused(&node.send(&pay("lost"))), (503, "store-unavailable".into()));
    drop(failing);
    assert_known_are_answered(&node, &first);
    assert_new_are_refused(&node, "stopped");
    assert_eq!(
        refused(&node.send(&pay("lost"))),
        (503, "store-unavailable".into()),
        "its commit was never acknowledged"
    );
    assert_known_are_answered(&node, &first);
    let verbose = node.hapax.ask_admin("/readyz?verbose");
    assert_eq!(verbose.status, 503);
    assert!(verbose.text().contains("the disk failed while the log was written"), "{}", verbose.text());
    node.hapax.kill_9();
    node.hapax.restart();
    assert_known_are_answered(&node, &first);
    until("a key that was refused is served", PATIENCE, || node.send(&pay("stopped-0")).status == 201);
    node.ledger.assert_once("stopped-0");
}

#[test]
fn an_end_does_not_wait_for_what_can_never_be_recorded_and_answers_what_runs() {
    let (mut node, _) = node_with_answers(Kept::Sqlite);
    let address = node.hapax.address();
    let held = ["early", "late"].map(|key| {
        node.ledger.hold(key);
        let sent = std::thread::spawn(move || pay(key).send(address));
        node.ledger.wait_until_received(key);
        sent
    });
    let failing = Failing::in_log_of(&node, "fdatasync:error=EIO");
    node.ledger.release("early");
    let [early, late] = held;
    assert_eq!(refused(&early.join().unwrap()), (409, "outcome-unknown".into()));
    drop(failing);
    node.hapax.signal("TERM");
    node.hapax.line_with("finishing what runs");
    let begun = Instant::now();
    node.ledger.release("late");
    assert_eq!(refused(&late.join().unwrap()), (409, "outcome-unknown".into()), "what runs is answered before the end");
    assert_eq!(node.hapax.wait(), Some(1));
    assert!(begun.elapsed() < Duration::from_secs(8), "it took {:?}", begun.elapsed());
    let said = node.hapax.stderr() + &node.hapax.stdout();
    assert!(said.contains("the store has stopped") && said.contains("could not be recorded"), "{said}");
    node.hapax.restart();
    // The commit that failed was written, and is put on the disk by the start; nothing was written after it.
    assert!(node.send(&pay("early")).is_replay());
    assert_eq!(node.send(&pay("late")).status, 409, "nobody knows what became of it");
    ["early", "late"].iter().for_each(|key| node.ledger.assert_once(key));
}

#[test]
fn a_file_that_every_user_can_read_is_refused_with_the_command_that_mends_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("hapax.db");
    let store = format!("sqlite:{}", path.display());
    let ledger = Ledger::start();
    let node = || builder(&ledger, None).with_store(&store);
    assert_eq!(node().start().terminate(), Some(0));
    assert_eq!(mode(&path), 0o600);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    let (code, _, said) = node().start_refused();
    let command = format!("chmod o-rwx {}", path.canonicalize().unwrap().display());
    assert!(code == Some(1) && said.contains(&command), "{code:?}: {said}");
    let checked = Command::new(env!("CARGO_BIN_EXE_hapax"))
        .args(["config", "check", "--to", "http://127.0.0.1:1", "--scope", "single", "--store", &store])
        .env_clear()
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&checked.stdout) + String::from_utf8_lossy(&checked.stderr);
    assert!(said.contains(&command), "{said}");
    // The command names the log and the index as well, where they are.
    for part in ["hapax.db", "hapax.db-wal", "hapax.db-shm"].map(|name| dir.path().join(name)) {
        if part.exists() {
            std::fs::set_permissions(&part, std::fs::Permissions::from_mode(0o640)).unwrap();
        }
    }
    assert_eq!(node().start().terminate(), Some(0), "a group that was let in on purpose is not refused");
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}
