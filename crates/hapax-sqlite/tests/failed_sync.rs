//! After a sync that failed, nothing is built on what the host only believes to be on the disk.
//!
//! Linux counts the pages of a failed sync as written. So a start writes the whole log again, and syncs it, before it
//! acknowledges anything: shown by the system calls. What follows from it after a loss of power is shown by
//! `cargo xtask powerloss`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

mod common;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use hapax_core::store::Store;
use hapax_sqlite::{Options, Sqlite};
use hapax_testkit::child::{self, Child};
use hapax_testkit::powerloss::{Fault, Recording, recorded};

use common::{address, claim, claim_and_complete, engine};

const FILE: &str = "HAPAX_TEST_FILE";
const PATIENCE: Duration = Duration::from_secs(60);
const KEYS: usize = 40;

/// Claims until the store stops, or all keys are claimed.
#[tokio::main(flavor = "current_thread")]
async fn work(path: &str, first: usize) {
    let engine = engine(match Sqlite::open(Options::new(path)) {
        Ok(store) => store,
        Err(error) => return child::say(&format!("refused: {error}")),
    });
    let record = claim(&engine, "first").await.seen.stored.unwrap().record;
    for key in first..first + KEYS {
        match engine.store().swap(&address(&format!("k-{key}")), None, &record).await {
            Ok(_) => child::say(&format!("claimed k-{key}")),
            Err(error) => {
                child::say(&format!("stopped: {error}"));
                let later = engine.store().swap(&address("later"), None, &record).await.unwrap_err();
                return child::say(&format!("later: {later}"));
            }
        }
    }
}

fn worker(test: &str, path: &Path, first: usize) -> Command {
    let mut worker = child::rerun(test, &format!("{first}"));
    worker.env(FILE, path);
    worker
}

/// Runs a worker, and says what it said.
fn run(test: &str, path: &Path, first: usize, fault: Fault) -> (Recording, Vec<String>) {
    let trace = tempfile::NamedTempFile::new().unwrap();
    let mut recording = Recording::beginning_with(path.parent().unwrap());
    let mut child = Child::spawn(&mut recorded(&worker(test, path, first), trace.path(), fault));
    let said = std::iter::from_fn(|| child.said(PATIENCE)).collect();
    assert!(child.wait(PATIENCE).success());
    recording.add(trace.path(), path.parent().unwrap());
    (recording, said)
}

fn role() -> Option<(String, usize)> {
    Some((std::env::var(FILE).ok()?, child::role()?.parse().ok()?))
}

#[test]
fn after_a_failed_sync_the_whole_log_is_written_and_synced_before_anything_is_acknowledged() {
    if let Some((path, first)) = role() {
        work(&path, first);
        // As a killed process does: nothing is moved into the file.
        std::process::exit(0);
    }
    let test = "after_a_failed_sync_the_whole_log_is_written_and_synced_before_anything_is_acknowledged";
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("hapax.db");
    let (_, said) = run(test, &path, 0, Fault::Sync(20));
    let [.., stopped, later] = said.as_slice() else { panic!("{said:?}") };
    assert!(stopped.contains("the disk failed during a commit"), "{said:?}");
    let later = later.clone();
    let log_bytes = std::fs::metadata(dir.path().join("hapax.db-wal")).unwrap().len();
    assert!(log_bytes > 0, "the failed process has left its log");

    let (recording, said) = run(test, &path, KEYS, Fault::None);
    assert_eq!(said.iter().filter(|line| line.starts_with("claimed")).count(), KEYS, "{said:?}");
    let mut written = recording.synced_before_said("hapax.db-wal");
    written.sort_by_key(|range| range.start);
    let reached = written.iter().fold(0, |end, range| if range.start <= end { end.max(range.end) } else { end });
    assert!(reached >= log_bytes, "of {log_bytes} bytes only {reached} were written again and synced: {written:?}");
    assert!(later.contains("the disk failed while the log was written") && later.contains("then restart"), "{later}");
}

#[test]
fn a_disk_that_still_fails_is_not_started_on_and_nothing_is_moved() {
    if let Some((path, first)) = role() {
        return work(&path, first);
    }
    let test = "a_disk_that_still_fails_is_not_started_on_and_nothing_is_moved";
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("hapax.db");
    let (_, said) = run(test, &path, 0, Fault::Sync(20));
    let acknowledged = said.iter().filter_map(|line| line.strip_prefix("claimed ")).collect::<Vec<_>>();
    let kept = || ["hapax.db", "hapax.db-wal"].map(|name| std::fs::read(dir.path().join(name)).unwrap());
    let before = kept();
    let (_, refused) = run(test, &path, KEYS, Fault::Sync(1));
    let [refused] = refused.as_slice() else { panic!("{refused:?}") };
    assert!(refused.contains("could not be put on the disk; nothing was acknowledged; check the device"), "{refused}");
    assert!(kept() == before, "a start that is refused copies nothing of the log into the file");
    look_up(&path, &acknowledged);
}

#[tokio::main(flavor = "current_thread")]
async fn look_up(path: &Path, acknowledged: &[&str]) {
    assert!(!acknowledged.is_empty());
    let store = Sqlite::open(Options::new(path)).unwrap();
    for key in acknowledged {
        assert!(store.get(&address(key)).await.unwrap().stored.is_some(), "{key}");
    }
}

#[tokio::test]
async fn a_store_beside_a_process_that_only_looks_is_opened_and_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("hapax.db");
    let looking = Sqlite::open(Options::new(&path)).unwrap();
    for round in 0..3 {
        let engine = engine(Sqlite::open(Options::new(&path)).unwrap());
        claim_and_complete(&engine, &format!("k-{round}")).await;
        engine.store().fold_log().await;
    }
    for round in 0..3 {
        assert!(looking.get(&address(&format!("k-{round}"))).await.unwrap().stored.is_some(), "k-{round}");
    }
}

/// Which log this is: another one after each start over.
fn log_name(dir: &Path) -> Vec<u8> {
    std::fs::read(dir.join("hapax.db-wal")).unwrap()[16..24].to_vec()
}

#[tokio::test]
async fn a_file_that_could_not_be_copied_to_at_the_start_is_trusted_when_it_was_and_not_before() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("hapax.db");
    let other = engine(Sqlite::open(Options::new(&path)).unwrap());
    let record = claim(&other, "first").await.seen.stored.unwrap().record;
    let reader = rusqlite::Connection::open(&path).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM hapax_record").unwrap();
    claim(&other, "second").await;

    let store = Sqlite::open(Options::new(&path)).unwrap();
    let begun = log_name(dir.path());
    let mut round = 0;
    let mut write = async |count: usize| {
        for _ in 0..count {
            round += 1;
            store.swap(&address(&format!("k-{round}")), None, &record).await.unwrap();
        }
    };
    write(600).await;
    let bytes = std::fs::metadata(dir.path().join("hapax.db-wal")).unwrap().len();
    assert!(bytes > 1_000 * 4_096, "long enough to be copied: {bytes}");
    assert_eq!(log_name(dir.path()), begun, "somebody reads an old state: the log goes on");
    reader.execute_batch("COMMIT").unwrap();
    for _ in 0..40 {
        write(100).await;
        if log_name(dir.path()) != begun {
            return;
        }
    }
    panic!("the log was never started over");
}
