//! A store that is there and cannot be written: what is said, and that nothing of it is lost.
//!
//! Permissions do not hold root back, so the place is made read-only for one process: the test runs again in a mount
//! namespace of its own, where the file, or its whole directory, is mounted so that nobody can write to it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

mod common;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use hapax_core::store::ErrorKind;
use hapax_core::transition::Answer;
use hapax_sqlite::{Options, Sqlite};
use hapax_testkit::child::{self, Child};
use hapax_testkit::{skip, wait};
use tempfile::TempDir;

use common::{TestEngine, claim, claim_and_complete, engine, outcome};

const FILE: &str = "HAPAX_TEST_FILE";
const LIMIT: Duration = Duration::from_secs(30);

const NOT_WRITTEN: &str = "the database cannot be written; make the file and its directory writable";
const NOT_OPENED: &str =
    "the database cannot be opened; check that its directory exists and that this user may write to it";

/// Mounts the first argument upon itself, read-only, and becomes the rest.
const MOUNTED: &str = r#"mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@""#;

/// As root, or as somebody who may make a namespace in which they are root.
const NAMESPACES: [&[&str]; 2] = [&["--mount"], &["--mount", "--map-root-user"]];

/// The beginning of a command that finds `place` unwritable; `None`, said loudly, where this machine does not allow it.
fn unwritable(place: &Path) -> Option<Command> {
    let begin = |namespace: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(namespace).args(["sh", "-c", MOUNTED]).arg(place);
        command
    };
    let works =
        |namespace: &&&[&str]| begin(namespace).arg("true").output().is_ok_and(|output| output.status.success());
    let namespace = NAMESPACES.iter().find(works);
    if namespace.is_none() {
        skip::not_tested("a mount namespace, which this user cannot make here");
    }
    namespace.map(|namespace| begin(namespace))
}

/// Tries to use the store of the environment, as a node and as whoever only looks, and says what came of it.
fn attempt() {
    let path = std::env::var_os(FILE).unwrap();
    for options in [Options::new(&path), Options::new(&path).with_existing()] {
        match Sqlite::open(&options) {
            Ok(_) => child::say("it was opened"),
            Err(error) => child::say(&format!("{:?}: {error}", error.kind)),
        }
    }
}

/// What an attempt at the store said, with the place unwritable.
fn attempted(mut command: Command, test: &str, path: &Path) -> Vec<String> {
    let rerun = child::rerun(test, "attempt");
    command.arg(rerun.get_program()).args(rerun.get_args()).envs(rerun.get_envs().filter_map(|(k, v)| Some((k, v?))));
    let mut attempt = Child::spawn(command.env(FILE, path));
    let said = std::iter::from_fn(|| attempt.said(LIMIT)).collect();
    assert!(attempt.wait(LIMIT).success());
    said
}

const FILE_NAME: &str = "hapax.db";
const LOG_NAME: &str = "hapax.db-wal";

fn keys() -> impl Iterator<Item = String> {
    (0..20).map(|key| format!("k-{key}"))
}

async fn filled(dir: &Path) -> TestEngine<Sqlite> {
    let engine = engine(Sqlite::open(Options::new(dir.join(FILE_NAME))).unwrap());
    for key in keys() {
        claim_and_complete(&engine, &key).await;
    }
    engine
}

/// A store whose process has ended: all of it is in the file.
async fn ended() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    drop(filled(dir.path()).await);
    wait::until("the log to be moved into the file", LIMIT, || !dir.path().join(LOG_NAME).exists());
    dir
}

/// A store whose process was killed: what it wrote is in the log.
async fn killed() -> TempDir {
    let (dir, left) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let _running = filled(dir.path()).await;
    for name in [FILE_NAME, LOG_NAME] {
        std::fs::copy(dir.path().join(name), left.path().join(name)).unwrap();
    }
    assert!(std::fs::metadata(left.path().join(LOG_NAME)).unwrap().len() > 0);
    left
}

/// What is kept of a store: its file, and its log, of which none is as good as an empty one.
fn kept(dir: &Path) -> [Vec<u8>; 2] {
    [FILE_NAME, LOG_NAME].map(|name| std::fs::read(dir.join(name)).unwrap_or_default())
}

/// Attempts at the store are refused with those words and change nothing; where it can be written, all of it is there.
/// Afterwards it holds the key `after`. False if it could not be tested.
async fn refused_and_whole(dir: &TempDir, place: &Path, test: &str, words: &str) -> bool {
    let path = dir.path().join(FILE_NAME);
    let Some(command) = unwritable(place) else { return false };
    let before = kept(dir.path());
    let expected = format!("{:?}: open: {}: {words}", ErrorKind::Unsuitable, path.display());
    assert_eq!(attempted(command, test, &path), [expected.as_str(); 2]);
    assert!(kept(dir.path()) == before, "the file or its log was changed");
    let engine = engine(Sqlite::open(Options::new(&path)).unwrap());
    for key in keys() {
        let again = claim(&engine, &key).await;
        assert_eq!((again.answer, again.outcome()), (Answer::Replay, Some(&outcome(&key))), "{key}");
    }
    claim_and_complete(&engine, "after").await;
    true
}

#[tokio::test]
async fn a_file_that_cannot_be_written_is_refused_and_loses_nothing() {
    if child::role().is_some() {
        return attempt();
    }
    let test = "a_file_that_cannot_be_written_is_refused_and_loses_nothing";
    for dir in [ended().await, killed().await] {
        refused_and_whole(&dir, &dir.path().join(FILE_NAME), test, NOT_WRITTEN).await;
    }
}

#[tokio::test]
async fn a_store_in_a_directory_that_cannot_be_written_is_refused_and_loses_nothing() {
    if child::role().is_some() {
        return attempt();
    }
    let test = "a_store_in_a_directory_that_cannot_be_written_is_refused_and_loses_nothing";
    for dir in [ended().await, killed().await] {
        refused_and_whole(&dir, dir.path(), test, NOT_OPENED).await;
    }
}

#[tokio::test]
async fn a_store_in_use_is_not_disturbed_by_who_cannot_write_it() {
    if child::role().is_some() {
        return attempt();
    }
    let test = "a_store_in_use_is_not_disturbed_by_who_cannot_write_it";
    let dir = tempfile::tempdir().unwrap();
    let running = filled(dir.path()).await;
    if refused_and_whole(&dir, dir.path(), test, NOT_WRITTEN).await {
        assert_eq!(claim(&running, "after").await.answer, Answer::Replay);
        claim_and_complete(&running, "later").await;
    }
}
