//! Nothing is acknowledged before it is on disk: shown by the system calls themselves, in order.
//!
//! A kill does not show it, because the host keeps what a dead process wrote. So a worker runs under strace; it says
//! each reply with a `write`, and before each such line there must be an `fdatasync` of the log that began after the
//! line before it and has returned.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

mod common;

use std::process::Command;
use std::time::Duration;

use hapax_core::store::{ErrorKind, Store, Swap};
use hapax_sqlite::{Options, Sqlite};
use hapax_testkit::child;
use rusqlite::Connection;

use common::{address, claim, complete, engine};

const FILE: &str = "HAPAX_TEST_FILE";
const ROUNDS: usize = 50;

/// Replies, one after the other; and a batch of two for the same key, where one is lost to the other.
#[tokio::main(flavor = "current_thread")]
async fn work(path: &str) {
    let engine = engine(Sqlite::open(&Options::new(path)).unwrap());
    for round in 0..ROUNDS {
        let key = format!("k-{round}");
        let held = claim(&engine, &key).await;
        child::say("reply Applied");
        complete(&engine, &key, held).await;
        child::say("reply Applied");
        let (at, store) = (address(&format!("raced-{round}")), engine.store());
        let record = store.get(&address(&key)).await.unwrap().stored.unwrap().record;
        let (one, other) = tokio::join!(store.swap(&at, None, &record), store.swap(&at, None, &record));
        for swap in [one.unwrap(), other.unwrap()] {
            child::say(match swap {
                Swap::Applied(_) => "reply of a pair: Applied",
                Swap::Lost(_) => "reply of a pair: Lost",
            });
        }
    }
}

#[test]
fn fdatasync_has_returned_before_every_reply() {
    if child::role().is_some() {
        return work(&std::env::var(FILE).unwrap());
    }
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("trace");
    let rerun = child::rerun("fdatasync_has_returned_before_every_reply", "worker");
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-s", "200", "-e", "trace=fdatasync,fsync,write,pwrite64", "-o"]).arg(&trace);
    command.arg(rerun.get_program()).args(rerun.get_args()).envs(rerun.get_envs().filter_map(|(k, v)| Some((k, v?))));
    command.env(FILE, dir.path().join("hapax.db"));
    let output = command.output().expect("strace runs; scripts/test installs it");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let order = in_order(&std::fs::read_to_string(&trace).unwrap());
    let replies = order.iter().filter(|event| matches!(event, Call::Reply)).count();
    assert_eq!(replies, 3 * ROUNDS, "a reply of each claim, completion and pair was seen");
    for (at, event) in order.iter().enumerate().filter(|(_, event)| matches!(event, Call::Reply)) {
        let since = order[..at].iter().rposition(|before| matches!(before, Call::Reply)).map_or(0, |before| before + 1);
        let synced = order[since..at].windows(1).any(|calls| matches!(calls, [Call::Synced]));
        assert!(synced, "{event:?} number {at} was given before fdatasync returned: {:?}", &order[since..=at]);
        let last_write = order[since..at].iter().rposition(|call| matches!(call, Call::LogWrite));
        let last_sync = order[since..at].iter().rposition(|call| matches!(call, Call::Synced));
        assert!(last_write < last_sync, "the log was written after the last fdatasync before reply {at}");
    }
}

/// Claims until the disk fails, and then asks.
#[tokio::main(flavor = "current_thread")]
async fn work_until_the_disk_fails(path: &str) {
    let engine = engine(Sqlite::open(&Options::new(path)).unwrap());
    let store = engine.store();
    let held = claim(&engine, "first").await;
    let record = held.seen.stored.unwrap().record;
    store.health().await.unwrap();
    for round in 0..ROUNDS {
        let Err(error) = store.swap(&address(&format!("k-{round}")), None, &record).await else { continue };
        assert_eq!(error.kind, ErrorKind::Ambiguous, "{error}");
        let stopped = store.swap(&address("later"), None, &record).await.unwrap_err();
        assert_eq!(stopped.to_string(), "swap: the store has stopped; restart the process");
        let health = store.health().await.unwrap_err();
        assert_eq!(health.to_string(), "health: the store has stopped; restart the process");
        assert!(store.get(&address("first")).await.unwrap().stored.is_some(), "what is there can still be read");
        child::say("said that it has stopped");
        return;
    }
    panic!("the disk did not fail");
}

#[test]
fn a_store_that_has_stopped_after_a_failure_of_the_disk_is_not_healthy() {
    if child::role().is_some() {
        return work_until_the_disk_fails(&std::env::var(FILE).unwrap());
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("hapax.db");
    drop(Sqlite::open(&Options::new(&file)).unwrap());
    let rerun = child::rerun("a_store_that_has_stopped_after_a_failure_of_the_disk_is_not_healthy", "worker");
    let mut command = Command::new("strace");
    // Counted for each thread: opening syncs less often, the thread that writes at every commit.
    command.args(["-f", "-qq", "-e", "trace=fdatasync", "-e", "inject=fdatasync:error=EIO:when=12+", "-o"]);
    command.arg(dir.path().join("trace"));
    command.arg(rerun.get_program()).args(rerun.get_args()).envs(rerun.get_envs().filter_map(|(k, v)| Some((k, v?))));
    let output = command.env(FILE, &file).output().expect("strace runs; scripts/test installs it");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("said that it has stopped"), "{said}");
}

#[derive(Debug)]
enum Call {
    /// A page went into the log.
    LogWrite,
    /// A sync of the log returned.
    Synced,
    /// A reply was acknowledged. Of a pair, the first.
    Reply,
}

/// The calls that matter, in the order in which they ended.
fn in_order(trace: &str) -> Vec<Call> {
    let mut pair_open = false;
    let mut calls = Vec::new();
    for line in trace.lines() {
        if line.contains("pwrite64(") {
            calls.push(Call::LogWrite);
        } else if (line.contains("fdatasync(") || line.contains("fdatasync resumed")) && line.contains("= 0") {
            calls.push(Call::Synced);
        } else if line.contains("write(1") && line.contains("reply of a pair") {
            pair_open = !pair_open;
            if pair_open {
                calls.push(Call::Reply);
            }
        } else if line.contains("write(1") && line.contains("reply Applied") {
            calls.push(Call::Reply);
        }
    }
    calls
}

#[tokio::test]
async fn a_reply_never_rests_on_a_write_that_is_not_committed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("hapax.db");
    let engine = engine(Sqlite::open(&Options::new(&path)).unwrap());
    let held = claim(&engine, "source").await;
    complete(&engine, "source", held).await;
    let record = engine.store().get(&address("source")).await.unwrap().stored.unwrap().record;
    let at = address("k");

    let mut other = Connection::open(&path).unwrap();
    let tx = other.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).unwrap();
    assert!(matches!(engine.store().swap_in(&tx, &at, None, &record).unwrap(), Swap::Applied(_)));
    assert_eq!(engine.store().get(&at).await.unwrap().stored, None, "a read does not see it");
    let (store, raced, next) = (engine.store().clone(), at.clone(), record.clone());
    let mut waiting = tokio::spawn(async move { store.swap(&raced, None, &next).await });
    let early = tokio::time::timeout(Duration::from_millis(200), &mut waiting).await;
    assert!(early.is_err(), "a swap waits for the commit: {early:?}");
    tx.rollback().unwrap();
    assert!(matches!(waiting.await.unwrap().unwrap(), Swap::Applied(_)), "it was rolled back, so the key is free");
}
