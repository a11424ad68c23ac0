//! How ours behaves as it grows: claims beside many records, bytes per record, claims during a reap. SQLite.

#![expect(clippy::disallowed_methods, reason = "a benchmark measures time")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hapax_core::record::{Policy, Record, State};
use hapax_core::store::Store;
use hapax_sqlite::{Options, Sqlite};
use tokio::task::JoinSet;

use super::Args;
use super::report::{Growth, Reap, Report};
use super::workload::{Ours, Tally, address, cycles, ms_at, outcome, record};

/// What the larger store is compared with.
const SMALL: u64 = 10_000;

/// Claims at a time, while they are measured.
const CONCURRENCY: usize = 64;

/// Writers of the records that are there before.
const LOADERS: usize = 512;

const SLICES: u32 = 10;

/// How long claims are measured before the reap begins.
const BEFORE: Duration = Duration::from_secs(10);

pub(crate) async fn run(args: &Args, dir: &Path, report: &mut Report) {
    if let Some(records) = args.preload {
        growth(args, dir, records, report).await;
    }
    if let Some(records) = args.reap {
        reap(dir, records, report).await;
    }
}

/// Claims in a store of 10,000 records and in a large one, in turn.
async fn growth(args: &Args, dir: &Path, records: u64, report: &mut Report) {
    let day_ms = Policy::default().retention_ms;
    let small = loaded(&dir.join("small.db"), SMALL, day_ms, report).await;
    let large = loaded(&dir.join("large.db"), records, day_ms, report).await;
    let bytes = bytes_of(&dir.join("large.db"));
    let (mut of_small, mut of_large) = (Tally::new(), Tally::new());
    let bar = report.bar(&format!("claims beside {records} records"), SLICES);
    for _ in 0..SLICES {
        cycles(&small, CONCURRENCY, args.length() / SLICES, &mut of_small).await;
        cycles(&large, CONCURRENCY, args.length() / SLICES, &mut of_large).await;
        bar.inc(1);
    }
    report.growth(&Growth {
        records,
        concurrency: CONCURRENCY,
        bytes_per_record: bytes as f64 / records as f64,
        small_per_s: of_small.per_s(),
        large_per_s: of_large.per_s(),
        small_claim_p99_ms: ms_at(&of_small.claims, 0.99),
        large_claim_p99_ms: ms_at(&of_large.claims, 0.99),
    });
}

/// Claims while expired records are deleted, and before.
async fn reap(dir: &Path, records: u64, report: &mut Report) {
    let ours = loaded(&dir.join("reap.db"), records, 1, report).await;
    let mut before = Tally::new();
    cycles(&ours, CONCURRENCY, BEFORE, &mut before).await;
    let bar = report.bar(&format!("claims while {records} records are reaped"), 1);
    let done = Arc::new(AtomicBool::new(false));
    let (claiming, stop) = (ours.clone(), Arc::clone(&done));
    let claims = tokio::spawn(async move {
        let mut during = Tally::new();
        while !stop.load(Ordering::Relaxed) {
            cycles(&claiming, CONCURRENCY, Duration::from_millis(250), &mut during).await;
        }
        during
    });
    let start = Instant::now();
    let mut reaped = 0;
    loop {
        let count = ours.store().reap(10_000).await.expect("a reap");
        reaped += u64::from(count);
        if count < 10_000 {
            break;
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    done.store(true, Ordering::Relaxed);
    let during = claims.await.expect("the claims");
    bar.inc(1);
    assert!(reaped >= records, "{reaped} of {records} were reaped");
    report.reap(&Reap {
        records: reaped,
        seconds,
        before_claim_p99_ms: ms_at(&before.claims, 0.99),
        before_claim_max_ms: ms_at(&before.claims, 1.0),
        during_claim_p99_ms: ms_at(&during.claims, 0.99),
        during_claim_max_ms: ms_at(&during.claims, 1.0),
    });
}

/// A store with that many completed records.
async fn loaded(path: &PathBuf, records: u64, retention_ms: u64, report: &Report) -> Ours<Sqlite> {
    let store = Sqlite::open(Options::new(path)).expect("a file");
    let bar = report.bar(&format!("writing {records} records"), u32::try_from(records / 1000).unwrap_or(u32::MAX));
    let left = Arc::new(AtomicU64::new(records));
    let mut tasks = JoinSet::new();
    for _ in 0..LOADERS {
        let (store, left, bar) = (store.clone(), Arc::clone(&left), bar.clone());
        tasks.spawn(async move {
            while let Ok(turn) = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)) {
                store.swap(&address(), None, &completed(retention_ms)).await.expect("a write");
                if turn.is_multiple_of(1000) {
                    bar.inc(1);
                }
            }
        });
    }
    tasks.join_all().await;
    Ours::new(store)
}

/// Pages in use, those still in the log included.
fn bytes_of(path: &Path) -> i64 {
    let connection = rusqlite::Connection::open(path).expect("a file");
    let sql = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size";
    connection.query_row(sql, [], |row| row.get(0)).expect("a count of pages")
}

fn completed(retention_ms: u64) -> Record {
    Record {
        policy: Policy { retention_ms, ..Policy::default() },
        expires_in_ms: Some(retention_ms),
        outcome: Some(outcome()),
        ..record(State::Completed)
    }
}
