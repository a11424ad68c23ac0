//! Retries of keys met lately: answered beside the writer, and from what is committed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

mod common;

use std::time::Duration;

use hapax_core::transition::Answer;
use hapax_sqlite::{Options, Sqlite};
use rusqlite::Connection;
use tokio::time::timeout;

use common::{claim, claim_and_complete, complete, engine};

#[tokio::test]
async fn a_retry_does_not_wait_for_whoever_is_writing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("hapax.db");
    let options = Options::new(&path).with_busy_timeout(Duration::from_secs(20));
    let engine = engine(Sqlite::open(&options).unwrap());
    claim_and_complete(&engine, "k").await;
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let retry = timeout(Duration::from_secs(5), claim(&engine, "k")).await.expect("no wait for the writer");
    assert_eq!(retry.answer, Answer::Replay);
    other.execute_batch("ROLLBACK").unwrap();
}

#[tokio::test]
async fn a_retry_sees_what_another_store_on_the_same_file_has_written() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("hapax.db");
    let open = || engine(Sqlite::open(Options::new(&path)).unwrap());
    let (one, other) = (open(), open());
    let held = claim(&one, "k").await;
    assert_eq!(claim(&one, "k").await.answer, Answer::Busy);
    assert_eq!(complete(&other, "k", held).await.answer, Answer::Done);
    assert_eq!(claim(&one, "k").await.answer, Answer::Replay);
}
