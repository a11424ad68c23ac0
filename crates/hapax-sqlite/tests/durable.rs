//! Nothing is acknowledged before it is on disk: shown by the system calls themselves, in order.
//!
//! A kill does not show it, because the host keeps what a dead process wrote. So a worker runs under strace; it says
//! each batch that the writer begins and each reply with a `write`, and before each reply there must be an `fdatasync` of
//! the log that has returned, after the last page that the reply's batch wrote into it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

mod common;

use std::collections::HashMap;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::{FutureExt as _, join_all};
use hapax_core::record::Record;
use hapax_core::store::{ErrorKind, Store, Swap};
use hapax_sqlite::{Options, Sqlite};
use hapax_testkit::{child, wait};
use metrics::{Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use rusqlite::Connection;

use common::{address, claim, complete, engine};

const FILE: &str = "HAPAX_TEST_FILE";
const ROUNDS: usize = 50;

/// Swaps that are written in one batch, and the keys that they fight for.
const CROWD: usize = 8;
const CROWD_KEYS: usize = 2;

/// A page takes long enough to reach the disk that a reply which does not wait for it is said first.
const SYNC_DELAY: &str = "inject=fdatasync:delay_enter=3000";

/// How many batches the writer has begun. It says of each how large it is, before it touches the file.
#[derive(Clone, Default)]
struct Batches(Arc<AtomicUsize>);

impl Batches {
    fn begun(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }
}

impl HistogramFn for Batches {
    fn record(&self, rows: f64) {
        child::say(&format!("batch {} has {rows} rows", self.begun() + 1));
        self.0.fetch_add(1, Ordering::Release);
    }
}

impl Recorder for Batches {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        if key.name() == "hapax_batch_rows" { Histogram::from_arc(Arc::new(self.clone())) } else { Histogram::noop() }
    }
}

/// Replies, one after the other; and batches of many for few keys, where most are lost to others of their own batch.
#[tokio::main(flavor = "current_thread")]
async fn work(path: &str) {
    let batches = Batches::default();
    metrics::set_global_recorder(batches.clone()).unwrap_or_else(|_| panic!("there is a recorder already"));
    let engine = engine(Sqlite::open(Options::new(path)).unwrap());
    let other = Connection::open(path).unwrap();
    for round in 0..ROUNDS {
        let key = format!("k-{round}");
        let held = claim(&engine, &key).await;
        child::say(&format!("reply of batch {}: Applied", batches.begun()));
        complete(&engine, &key, held).await;
        child::say(&format!("reply of batch {}: Applied", batches.begun()));
        let record = engine.store().get(&address(&key)).await.unwrap().stored.unwrap().record;
        crowd(engine.store(), &other, &batches, round, &record).await;
    }
}

/// While somebody else holds the file, the writer waits with one swap in its hands, and all others gather behind it.
async fn crowd(store: &Sqlite, other: &Connection, batches: &Batches, round: usize, record: &Record) {
    let before = batches.begun();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let first = queued(store, &format!("first-{round}"), record, before + 1);
    wait::until("the writer to begin with the first", Duration::from_secs(4), || batches.begun() == before + 1);
    let mut replies = vec![first];
    for swap in 0..CROWD {
        replies.push(queued(store, &format!("raced-{round}-{}", swap % CROWD_KEYS), record, before + 2));
    }
    other.execute_batch("COMMIT").unwrap();
    join_all(replies).await.into_iter().for_each(Result::unwrap);
}

/// A swap of a task of its own, which says the reply as soon as it is there. It is in the writer's queue when this returns.
fn queued(store: &Sqlite, key: &str, record: &Record, batch: usize) -> tokio::task::JoinHandle<()> {
    let (store, at, record) = (store.clone(), address(key), record.clone());
    let mut swap = Box::pin(async move { store.swap(&at, None, &record).await });
    assert!(swap.as_mut().now_or_never().is_none(), "{key} was answered while another held the file");
    tokio::spawn(async move {
        let name = match swap.await.unwrap() {
            Swap::Applied(_) => "Applied",
            Swap::Lost(_) => "Lost",
        };
        child::say(&format!("reply of batch {batch}: {name}"));
    })
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
    command.args(["-f", "-qq", "-y", "-s", "200", "-e", "trace=fdatasync,write,pwrite64", "-e", SYNC_DELAY, "-o"]);
    command.arg(&trace);
    command.arg(rerun.get_program()).args(rerun.get_args()).envs(rerun.get_envs().filter_map(|(k, v)| Some((k, v?))));
    command.env(FILE, dir.path().join("hapax.db"));
    let output = command.output().expect("strace runs; scripts/test installs it");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let order = in_order(&std::fs::read_to_string(&trace).unwrap());
    let count = |wanted: &dyn Fn(&Call) -> bool| order.iter().filter(|call| wanted(call)).count();
    assert_eq!(count(&|call| matches!(call, Call::Reply { lost: false, .. })), (3 + CROWD_KEYS) * ROUNDS);
    assert_eq!(count(&|call| matches!(call, Call::Reply { lost: true, .. })), (CROWD - CROWD_KEYS) * ROUNDS);
    assert_eq!(count(&|call| matches!(call, Call::Batch { rows: CROWD, .. })), ROUNDS, "a crowd is one batch");
    for (at, call) in order.iter().enumerate() {
        if let Call::Reply { batch, .. } = call {
            let durable = durable_at(&order, *batch);
            assert!(durable.is_some_and(|durable| durable < at), "{call:?} was said before fdatasync returned");
        }
    }
}

/// Where in the order the batch is durable: the first sync that returned after its last page went into the log.
fn durable_at(order: &[Call], batch: usize) -> Option<usize> {
    let begun = order.iter().position(|call| matches!(call, Call::Batch { number, .. } if *number == batch))?;
    let calls = &order[begun + 1..];
    let calls = &calls[..calls.iter().position(|call| matches!(call, Call::Batch { .. })).unwrap_or(calls.len())];
    let written = calls.iter().rposition(|call| matches!(call, Call::LogWrite))?;
    let synced = calls[written..].iter().position(|call| matches!(call, Call::Synced))?;
    Some(begun + 1 + written + synced)
}

/// Claims until the disk fails, and then asks.
#[tokio::main(flavor = "current_thread")]
async fn work_until_the_disk_fails(path: &str) {
    let engine = engine(Sqlite::open(Options::new(path)).unwrap());
    let store = engine.store();
    let held = claim(&engine, "first").await;
    let record = held.seen.stored.unwrap().record;
    store.health().await.unwrap();
    for round in 0..ROUNDS {
        let Err(error) = store.swap(&address(&format!("k-{round}")), None, &record).await else { continue };
        assert_eq!(error.kind, ErrorKind::Ambiguous, "{error}");
        let stopped = store.swap(&address("later"), None, &record).await.unwrap_err();
        let cause =
            "the disk failed while the log was written, so the store has stopped: nothing was acknowledged since";
        assert!(stopped.to_string().starts_with(&format!("swap: {cause}")), "{stopped}");
        let health = store.health().await.unwrap_err();
        assert!(health.to_string().starts_with(&format!("health: {cause}")), "{health}");
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
    drop(Sqlite::open(Options::new(&file)).unwrap());
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
    /// The writer began a batch; its pages come next.
    Batch { number: usize, rows: usize },
    /// A page went into the log.
    LogWrite,
    /// A sync of the log returned.
    Synced,
    /// A reply was acknowledged.
    Reply { batch: usize, lost: bool },
}

/// The calls that matter: writes in the order in which they began, syncs in the order in which they returned.
fn in_order(trace: &str) -> Vec<Call> {
    let mut syncing = HashMap::new();
    trace.lines().filter_map(|line| call(line, &mut syncing)).collect()
}

/// What a line of the trace tells. `syncing`: threads in the middle of a sync, and whether it is one of the log.
fn call<'t>(line: &'t str, syncing: &mut HashMap<&'t str, bool>) -> Option<Call> {
    let thread = line.split_whitespace().next()?;
    if line.contains("fdatasync(") {
        syncing.insert(thread, line.contains("-wal>"));
    }
    if line.contains("fdatasync") && line.contains(" = 0") {
        return syncing.remove(thread)?.then_some(Call::Synced);
    }
    if line.contains("pwrite64(") && line.contains("-wal>") {
        return Some(Call::LogWrite);
    }
    let said = line.contains("write(1<").then_some(line)?;
    let number = |text: &str| text.split(|c: char| !c.is_ascii_digit()).next().and_then(|digits| digits.parse().ok());
    if let Some((_, reply)) = said.split_once("reply of batch ") {
        return Some(Call::Reply { batch: number(reply)?, lost: reply.contains(": Lost") });
    }
    let (batch, rows) = said.split_once("batch ")?.1.split_once(" has ")?;
    Some(Call::Batch { number: number(batch)?, rows: number(rows)? })
}

#[tokio::test]
async fn a_reply_never_rests_on_a_write_that_is_not_committed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("hapax.db");
    let engine = engine(Sqlite::open(Options::new(&path)).unwrap());
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
