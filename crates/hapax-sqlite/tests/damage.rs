//! Files that are damaged, moved away or left by a process that was killed: nothing wrong is said of any key, and one bad
//! spot costs the others nothing.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

mod common;

use std::path::Path;

use futures_util::future::join_all;
use hapax_core::engine::EngineError;
use hapax_core::record::Policy;
use hapax_core::store::{ErrorKind, Store};
use hapax_core::transition::Answer;
use hapax_sqlite::{Options, Sqlite};
use hapax_testkit::clock::FakeClock;
use hapax_testkit::wait;
use rusqlite::Connection;

use common::{TestEngine, address, claim, claim_and_complete, engine, fingerprint, message};

fn open(path: &Path) -> TestEngine<Sqlite> {
    engine(Sqlite::open(Options::new(path)).unwrap())
}

async fn kind_of_claim(engine: &TestEngine<Sqlite>, key: &str) -> Result<Answer, ErrorKind> {
    match engine.claim(&address(key), &fingerprint(), Policy::default()).await {
        Ok(reply) => Ok(reply.answer),
        Err(EngineError::Store(error)) => Err(error.kind),
        Err(other) => panic!("{key}: {other}"),
    }
}

#[tokio::test]
async fn a_place_that_leads_to_another_record_is_damage_and_no_answer() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("hapax.db");
    let engine = open(&path);
    claim_and_complete(&engine, "alices").await;
    claim_and_complete(&engine, "bobs").await;
    let altered = "UPDATE hapax_place SET seq = (SELECT seq FROM hapax_record WHERE key = 'alices') WHERE id = ?1";
    let changed = Connection::open(&path).unwrap().execute(altered, [address("bobs").id().as_bytes()]).unwrap();
    assert_eq!(changed, 1);
    for _ in 0..2 {
        assert_eq!(kind_of_claim(&engine, "bobs").await, Err(ErrorKind::Damaged));
        assert_eq!(engine.store().get(&address("bobs")).await.unwrap_err().kind, ErrorKind::Damaged);
    }
    assert_eq!(kind_of_claim(&engine, "alices").await, Ok(Answer::Replay));
}

/// Breaks the page of the file that holds that text.
fn break_page_with(path: &Path, text: &str) {
    const PAGE: usize = 4096;
    let mut bytes = std::fs::read(path).unwrap();
    let at = bytes.windows(text.len()).position(|window| window == text.as_bytes()).unwrap() / PAGE * PAGE;
    bytes[at..at + 8].fill(0xff);
    std::fs::write(path, bytes).unwrap();
}

#[tokio::test]
async fn a_damaged_page_costs_only_those_whose_records_are_on_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("hapax.db");
    let before = open(&path);
    for at in 0..60 {
        claim_and_complete(&before, &format!("old-{at:02}")).await;
    }
    drop(before);
    let log = dir.path().join("hapax.db-wal");
    wait::until("the store is closed", std::time::Duration::from_secs(10), || !log.exists());
    break_page_with(&path, "old-30");

    let engine = open(&path);
    let engine = &engine;
    for round in 0..20 {
        // Whatever of them is written in one transaction.
        let claims = (0..16).map(|at| async move {
            let key = if at % 4 == 0 { "old-30".to_owned() } else { format!("new-{round}-{at}") };
            (kind_of_claim(engine, &key).await, key)
        });
        for (answer, key) in join_all(claims).await {
            let expected = if key == "old-30" { Err(ErrorKind::Damaged) } else { Ok(Answer::Proceed) };
            assert_eq!(answer, expected, "{key}");
        }
    }
}

#[tokio::test]
async fn a_record_with_an_altered_time_is_not_deleted() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), FakeClock::default());
    let path = dir.path().join("hapax.db");
    let engine = engine(Sqlite::open(Options::new(&path).with_clock(clock.clone())).unwrap());
    for key in ["whole", "altered", "held"] {
        claim_and_complete(&engine, key).await;
    }
    let raw = Connection::open(&path).unwrap();
    for sql in [
        "UPDATE hapax_record SET reap_at = 2 WHERE key = 'altered'",
        "UPDATE hapax_record SET reap_at = 1, state = 2 WHERE key = 'held'",
    ] {
        assert_eq!(raw.execute(sql, []).unwrap(), 1);
    }
    assert_eq!(engine.store().reap(10).await.unwrap(), 0, "nothing has expired");
    assert_eq!(kind_of_claim(&engine, "altered").await, Err(ErrorKind::Damaged));
    assert_eq!(kind_of_claim(&engine, "whole").await, Ok(Answer::Replay));
    clock.advance_ms(Policy::default().retention_ms + 1);
    assert_eq!(engine.store().reap(1).await.unwrap(), 1, "those in front are passed over");
}

#[tokio::test]
async fn nothing_is_written_to_a_file_that_is_not_in_its_place_until_it_is_back() {
    let dir = tempfile::tempdir().unwrap();
    let (path, moved) = (dir.path().join("hapax.db"), dir.path().join("moved.db"));
    let engine = open(&path);
    let held = claim(&engine, "before").await;
    std::fs::rename(&path, &moved).unwrap();
    let expected = "the file was moved, deleted or replaced while in use; nothing was written; put it back with its -wal \
                    and -shm: without them every key is forgotten";
    for replaced in [false, true] {
        if replaced {
            std::fs::write(&path, b"").unwrap();
        }
        let Err(EngineError::Store(error)) =
            engine.claim(&address("meanwhile"), &fingerprint(), Policy::default()).await
        else {
            panic!("a claim that nobody will find")
        };
        assert_eq!(error.kind, ErrorKind::Unsuitable);
        assert_eq!(message(&error), format!("swap: {}: {expected}", path.display()));
        let error = engine.store().health().await.unwrap_err();
        assert_eq!(
            (error.kind, message(&error)),
            (ErrorKind::Unsuitable, format!("health: {}: {expected}", path.display()))
        );
    }
    std::fs::rename(&moved, &path).unwrap();
    assert_eq!(common::complete(&engine, "before", held).await.answer, Answer::Done);
    claim_and_complete(&engine, "meanwhile").await;
}

#[tokio::test]
async fn a_folded_log_leaves_the_file_whole() {
    let dir = tempfile::tempdir().unwrap();
    let (path, copy) = (dir.path().join("hapax.db"), dir.path().join("copy.db"));
    let engine = open(&path);
    for key in ["k-1", "k-2", "k-3"] {
        claim_and_complete(&engine, key).await;
    }
    engine.store().fold_log().await;
    std::fs::copy(&path, &copy).unwrap();
    let copied = open(&copy);
    for key in ["k-1", "k-2", "k-3"] {
        assert_eq!(kind_of_claim(&copied, key).await, Ok(Answer::Replay), "{key}");
    }
    claim_and_complete(&engine, "and it goes on").await;
}

/// A process that was killed may leave commits in the log that are not on the disk. The first commit of the next one puts
/// them there, before anybody is told of them.
#[tokio::test]
async fn every_open_commits_before_anything_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("hapax.db");
    let first = open(&path);
    claim_and_complete(&first, "k").await;
    first.store().fold_log().await;
    let log = dir.path().join("hapax.db-wal");
    assert_eq!(std::fs::metadata(&log).unwrap().len(), 0);
    let second = open(&path);
    assert!(std::fs::metadata(&log).unwrap().len() > 0);
    assert_eq!(kind_of_claim(&second, "k").await, Ok(Answer::Replay));
}
