//! kill -9 in the middle of 10,000 claims and completions: what was acknowledged is there, and every record is readable.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use hapax_core::record::{Body, State};
use hapax_core::store::{Scan, Store};
use hapax_sqlite::{Options, Sqlite};
use hapax_testkit::child::{self, Child};
use tokio::task::JoinSet;

use common::{address, claim, complete, engine};

const KEYS: u32 = 10_000;
const TASKS: u32 = 32;
const FILE: &str = "HAPAX_TEST_FILE";
const PATIENCE: Duration = Duration::from_secs(60);

/// Claims and completes every key, and says so after each acknowledgement.
#[tokio::main]
async fn work(path: &str) {
    let engine = Arc::new(engine(Sqlite::open(Options::new(path)).unwrap()));
    let next = Arc::new(AtomicU32::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let (engine, next) = (Arc::clone(&engine), Arc::clone(&next));
        tasks.spawn(async move {
            loop {
                let key = format!("k-{}", next.fetch_add(1, Ordering::Relaxed) % KEYS);
                let held = claim(&engine, &key).await;
                child::say(&format!("claimed {key}"));
                if held.attempt_id().is_some() && held.answer == hapax_core::transition::Answer::Proceed {
                    complete(&engine, &key, held).await;
                    child::say(&format!("completed {key}"));
                }
            }
        });
    }
    tasks.join_all().await;
}

#[test]
fn what_was_acknowledged_before_kill_9_is_there() {
    if child::role().is_some() {
        return work(&std::env::var(FILE).unwrap());
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("hapax.db");
    for (round, kill_after) in [KEYS / 2, KEYS * 2 - 500, 700].into_iter().enumerate() {
        let path = path.with_extension(format!("{round}.db"));
        let mut command = child::rerun("what_was_acknowledged_before_kill_9_is_there", "worker");
        let mut worker = Child::spawn(command.env(FILE, &path));
        let mut said: Vec<String> = (0..kill_after).map(|_| worker.said(PATIENCE).unwrap()).collect();
        worker.kill_9();
        // What it managed to say before it was gone counts as well.
        said.extend(std::iter::from_fn(|| worker.said(PATIENCE)));
        check(&path, &said);
    }
}

#[tokio::main(flavor = "current_thread")]
async fn check(path: &std::path::Path, said: &[String]) {
    let store = Sqlite::open(Options::new(path)).unwrap();
    let mut completed = 0;
    for line in said {
        let (what, key) = line.split_once(' ').unwrap();
        let stored = store.get(&address(key)).await.unwrap().stored.unwrap_or_else(|| panic!("{line}, and it is gone"));
        if what == "completed" {
            completed += 1;
            assert_eq!(stored.record.state, State::Completed, "{line}");
            let body = Body::Kept(format!("answer of {key}").into_bytes());
            assert_eq!(stored.record.outcome.unwrap().body, body, "{line}");
        }
    }
    assert!(completed > said.len() / 3, "{completed} of {} said were completions", said.len());
    let mut query = Scan { limit: 500, ..Scan::default() };
    let mut read = 0;
    loop {
        let page = store.scan(&query).await.unwrap();
        assert!(page.damaged.is_empty(), "{:?}", page.damaged);
        read += page.entries.len();
        query.after = page.next;
        if query.after.is_none() {
            break;
        }
    }
    assert!(read >= said.iter().filter(|line| line.starts_with("claimed")).count(), "{read} records");
}
