//! A disk that fails while the log is moved into the file: the store stops, and nothing that was acknowledged is lost.
//!
//! A failed sync is not tried again: the host may count as written what it could not write, so the second one would
//! succeed. All of it is still in the log.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

mod common;

use std::path::Path;
use std::process::{Command, Output};

use hapax_core::store::Store;
use hapax_sqlite::{Options, Sqlite};
use hapax_testkit::child;

use common::{address, claim, engine};

const FILE: &str = "HAPAX_TEST_FILE";
const SWAPS_MAX: usize = 20_000;

/// The same test as a worker. The `nth` sync of the file by a thread fails, in whichever thread; none of the log does, and
/// all others succeed. The syncs are in the file `trace` beside it.
fn rerun_on_a_disk_that_fails_once(test: &str, file: &Path, nth: u32) -> Output {
    let rerun = child::rerun(test, "worker");
    let mut command = Command::new("strace");
    let fault = format!("inject=fdatasync:error=EIO:when={nth}");
    command.args(["-f", "-qq", "-e", "trace=fdatasync", "-e", &fault, "-P"]).arg(file);
    command.arg("-o").arg(file.with_file_name("trace"));
    command.arg(rerun.get_program()).args(rerun.get_args()).envs(rerun.get_envs().filter_map(|(k, v)| Some((k, v?))));
    command.env(FILE, file).output().expect("strace runs; scripts/test installs it")
}

/// Writes until the store stops, and says how often it could.
#[tokio::main(flavor = "current_thread")]
async fn work_until_stopped(path: &str) {
    let engine = engine(Sqlite::open(Options::new(path)).unwrap());
    let store = engine.store();
    let record = claim(&engine, "first").await.seen.stored.unwrap().record;
    for round in 0..SWAPS_MAX {
        let Err(error) = store.swap(&address(&format!("k-{round}")), None, &record).await else { continue };
        let cause = "the disk failed while the log was copied into the file, so the store has stopped: what was acknowledged is";
        assert!(error.to_string().starts_with(&format!("swap: {cause}")), "{error}");
        let health = store.health().await.unwrap_err();
        assert!(health.to_string().starts_with(&format!("health: {cause}")), "{health}");
        assert!(store.get(&address("first")).await.unwrap().stored.is_some(), "what is there can still be read");
        child::say(&format!("written: {round}"));
        store.fold_log().await;
        return;
    }
    panic!("the store went on");
}

#[tokio::test]
async fn a_failed_sync_of_the_file_stops_the_store_and_loses_nothing() {
    if child::role().is_some() {
        let path = std::env::var(FILE).unwrap();
        return std::thread::spawn(move || work_until_stopped(&path)).join().unwrap();
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("hapax.db");
    drop(Sqlite::open(Options::new(&file)).unwrap());
    // A start syncs the file by itself. The thread that copies the log syncs it twice before that fails.
    let test = "a_failed_sync_of_the_file_stops_the_store_and_loses_nothing";
    let output = rerun_on_a_disk_that_fails_once(test, &file, 2);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let written: usize = said.lines().find_map(|line| line.split_once("written: ")?.1.parse().ok()).expect("a count");
    let trace = std::fs::read_to_string(dir.path().join("trace")).unwrap();
    assert_eq!(trace.matches("EIO").count(), 1, "{trace}");
    let after = trace.split_once("EIO").unwrap().1;
    assert_eq!(after.matches("= 0").count(), 0, "the file is not synced after that: {trace}");
    let engine = engine(Sqlite::open(Options::new(&file)).unwrap());
    for round in 0..written {
        let seen = engine.store().get(&address(&format!("k-{round}"))).await.unwrap();
        assert!(seen.stored.is_some(), "k-{round} of {written}");
    }
}

/// The change to WAL mode is written after SQLite has said what the mode is.
#[test]
fn a_file_that_could_not_be_put_into_wal_mode_is_not_opened() {
    if child::role().is_some() {
        let error = Sqlite::open(Options::new(std::env::var(FILE).unwrap())).unwrap_err();
        return child::say(&format!("refused: {error}"));
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("hapax.db");
    // SQLite makes an empty file a database before it changes its mode.
    rusqlite::Connection::open(&file).unwrap().execute_batch("PRAGMA user_version = 1").unwrap();
    let test = "a_file_that_could_not_be_put_into_wal_mode_is_not_opened";
    let output = rerun_on_a_disk_that_fails_once(test, &file, 1);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        said.contains("hapax.db: the disk failed; nothing was written"),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
