//! `cargo xtask bench sweep`: the lapse sweep beside many completed records, and claims while expired ones are reaped the
//! way a node does it.
//!
//! The sweep must read the due index and not the table: 100 lapsed leases among 10,000,000 completed records in under 50 ms.

#![expect(clippy::disallowed_methods, reason = "a benchmark measures time")]

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hapax::{lapse, reap, survey, tokens};
use hapax_core::engine::Engine;
use hapax_core::record::{Body, Outcome, Policy, Record, State, Version};
use hapax_core::store::Store;
use hapax_postgres::Postgres;
use hapax_sqlite::{Options, Sqlite};
use hapax_testkit::postgres::Server;
use serde_json::json;
use tokio::task::JoinSet;

use super::workload::{Ours, Tally, address, cycles, ms_at, record};
use super::{StoreName, target_dir};

/// What to measure.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// SQLite or PostgreSQL.
    #[arg(long, value_enum, default_value = "sqlite")]
    store: StoreName,
    /// Completed records in the store.
    #[arg(long, default_value_t = 10_000_000)]
    records: u64,
    /// Lapsed leases among them.
    #[arg(long, default_value_t = 100)]
    lapsed: u32,
    /// Records that wait for their next attempt, as an outage of the service leaves them.
    #[arg(long, default_value_t = 0)]
    ready: u64,
    /// Sweeps; each finds as many lapsed leases.
    #[arg(long, default_value_t = 10)]
    sweeps: u32,
    /// The records have expired: measure claims while they are reaped, instead of sweeps.
    #[arg(long)]
    reap: bool,
    /// Where files are made; the disk matters. Default: the build directory.
    #[arg(long)]
    dir: Option<PathBuf>,
}

/// Writers of the records that are there before.
const LOADERS: usize = 512;

/// Claims at a time, while they are measured.
const CONCURRENCY: usize = 64;

/// How long claims are measured before the reap begins.
const BEFORE: Duration = Duration::from_secs(10);

/// Measures and prints one JSON object a line.
pub(crate) fn run(args: &Args) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let beside = args.dir.clone().unwrap_or_else(target_dir);
    let dir = tempfile::Builder::new().prefix("hapax-bench-").tempdir_in(beside).expect("a directory for the files");
    runtime.block_on(async {
        match args.store {
            StoreName::Sqlite => {
                let store = Sqlite::open(Options::new(dir.path().join("sweep.db"))).expect("a file");
                measure(args, store, "sqlite").await;
            }
            StoreName::Postgres => {
                let database = Server::shared().fresh_database();
                let options = hapax_postgres::Options::new(database.url());
                measure(args, Postgres::open(&options).await.expect("a database"), "postgres").await;
            }
            StoreName::Memory => println!("memory has no index; name another store"),
        }
    });
}

async fn measure<S: Store + Clone + 'static>(args: &Args, store: S, name: &str) {
    let retention_ms = if args.reap { 1 } else { Policy::default().retention_ms };
    load(&store, args.records, &completed(retention_ms)).await;
    load(&store, args.ready, &ready()).await;
    if args.reap { reaping(args, store, name).await } else { sweeping(args, &store, name).await }
}

async fn sweeping<S: Store + Clone + 'static>(args: &Args, store: &S, name: &str) {
    let engine = Engine::new(store.clone(), tokens::random as tokens::Random);
    let mut took_ms = Vec::new();
    for _ in 0..args.sweeps {
        load(store, args.lapsed.into(), &lapsed()).await;
        tokio::time::sleep(Duration::from_millis(10)).await;
        let begun = Instant::now();
        let report = lapse::run_once(&engine, args.lapsed * 2).await.expect("a sweep");
        took_ms.push(begun.elapsed().as_secs_f64() * 1000.0);
        assert_eq!(report.lapsed, args.lapsed);
    }
    let begun = Instant::now();
    lapse::run_once(&engine, args.lapsed).await.expect("a sweep");
    let idle_ms = begun.elapsed().as_secs_f64() * 1000.0;
    let begun = Instant::now();
    survey::run_once(store).await.expect("a survey");
    let survey_ms = begun.elapsed().as_secs_f64() * 1000.0;
    let begun = Instant::now();
    reap::run_once(&engine, reap::LIMIT).await.expect("a reap");
    let reap_ms = begun.elapsed().as_secs_f64() * 1000.0;
    took_ms.sort_by(f64::total_cmp);
    let (median_ms, max_ms) = (took_ms[took_ms.len() / 2], took_ms[took_ms.len() - 1]);
    let (records, ready, lapsed) = (args.records, args.ready, args.lapsed);
    println!(
        "{}",
        json!({
            "bench": "sweep", "store": name, "records": records, "ready": ready, "lapsed": lapsed,
            "median_ms": median_ms, "max_ms": max_ms, "idle_ms": idle_ms,
            "survey_ms": survey_ms, "reap_ms": reap_ms,
        })
    );
}

/// Claims before, and while the reaper of a node works.
async fn reaping<S: Store + Clone + 'static>(args: &Args, store: S, name: &str) {
    let ours = Ours::new(store.clone());
    let mut before = Tally::new();
    cycles(&ours, CONCURRENCY, BEFORE, &mut before).await;
    let done = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&done);
    let claims = tokio::spawn(async move {
        let mut during = Tally::new();
        while !stop.load(Ordering::Relaxed) {
            cycles(&ours, CONCURRENCY, Duration::from_millis(250), &mut during).await;
        }
        during
    });
    let engine = Engine::new(store, tokens::random as tokens::Random);
    let (begun, mut reaped) = (Instant::now(), 0);
    loop {
        let report = reap::run_once(&engine, reap::LIMIT).await.expect("a reap");
        reaped += u64::from(report.reaped);
        if !report.left.more {
            break;
        }
        tokio::time::sleep(reap::BETWEEN).await;
    }
    let seconds = begun.elapsed().as_secs_f64();
    done.store(true, Ordering::Relaxed);
    let during = claims.await.expect("the claims");
    assert!(reaped >= args.records, "{reaped} of {} were reaped", args.records);
    let (before_ms, during_ms) = (ms_at(&before.claims, 0.99), ms_at(&during.claims, 0.99));
    println!(
        "{}",
        json!({
            "bench": "reaping", "store": name, "records": reaped, "seconds": seconds,
            "before_claim_p99_ms": before_ms, "during_claim_p99_ms": during_ms, "ratio": during_ms / before_ms,
            "before_per_s": before.per_s(), "during_per_s": during.per_s(),
        })
    );
}

async fn load<S: Store + Clone + 'static>(store: &S, records: u64, record: &Record) {
    let left = Arc::new(AtomicU64::new(records));
    let mut tasks = JoinSet::new();
    for _ in 0..LOADERS {
        let (store, left, record) = (store.clone(), Arc::clone(&left), record.clone());
        tasks.spawn(async move {
            while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
                let record = Record { version: Version::from_bytes(tokens::random()), ..record.clone() };
                store.swap(&address(), None, &record).await.expect("a write");
            }
        });
    }
    tasks.join_all().await;
}

/// Small, so that many fit on a disk: the index is what is measured.
fn completed(retention_ms: u64) -> Record {
    let outcome = Outcome { status: 201, headers: Vec::new(), body: Body::Kept(b"{\"id\":\"p-1\"}".to_vec()) };
    Record {
        policy: Policy { retention_ms, ..Policy::default() },
        expires_in_ms: Some(retention_ms),
        outcome: Some(Arc::new(outcome)),
        ..record(State::Completed)
    }
}

/// It waits for its next attempt, and a retry may come at once.
fn ready() -> Record {
    let retention_ms = Policy::default().retention_ms;
    Record { due_in_ms: Some(0), expires_in_ms: Some(retention_ms), ..record(State::Ready) }
}

/// A lease that lapses at once.
fn lapsed() -> Record {
    Record { due_in_ms: Some(1), ..record(State::Running) }
}
