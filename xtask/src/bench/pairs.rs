//! Each store and its naive twins, slice by slice in turn.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hapax_core::memory::Memory;
use hapax_postgres::Postgres;
use hapax_sqlite::Sqlite;
use hapax_testkit::postgres::Server;

use super::Args;
use super::naive_postgres::NaivePostgres;
use super::naive_sqlite::NaiveSqlite;
use super::report::{Pair, Report};
use super::workload::{Ours, Subject, Tally, completed_keys, cycles, replays};

/// Slices of one measurement: each side gets a share of whatever else the machine is doing.
const SLICES: u32 = 6;

/// Completed keys that replays go round.
const REPLAY_KEYS: usize = 2_000;

/// Memory has no naive way that keeps any promise; it shows what the rules themselves cost.
pub(crate) async fn memory(args: &Args, report: &mut Report) {
    let ours = Ours::new(Memory::new());
    for concurrency in args.concurrencies() {
        let mut tally = Tally::new();
        let bar = report.bar(&format!("memory, {concurrency} at a time"), SLICES);
        for _ in 0..SLICES {
            cycles(&ours, concurrency, args.length() / SLICES, &mut tally).await;
            bar.inc(1);
        }
        report.pair(&Pair { store: "memory", op: "cycle", against: "", concurrency, ours: &tally, naive: None });
    }
}

pub(crate) async fn sqlite(args: &Args, dir: &Path, report: &mut Report) {
    let ours = Ours::new(Sqlite::open(hapax_sqlite::Options::new(dir.join("ours.db"))).expect("a file"));
    let naive = NaiveSqlite::open(&dir.join("naive.db"));
    all(args, "sqlite", &ours, &[("", naive)], report).await;
}

pub(crate) async fn postgres(args: &Args, report: &mut Report) {
    let server = Server::builder().start();
    let database = server.fresh_database();
    let ours = Postgres::open(hapax_postgres::Options::new(database.url())).await.expect("a database");
    let (unprepared, prepared) =
        (NaivePostgres::open(&database.url(), false).await, NaivePostgres::open(&database.url(), true).await);
    let naive = [("unprepared", unprepared), ("prepared", prepared)];
    all(args, "postgres", &Ours::new(ours), &naive, report).await;
}

/// Ours against every naive way there is, each with a word that tells it from the others. Whoever comes first in one slice
/// comes last in another: what a slice leaves to be cleaned up burdens the next.
async fn all<O: Subject, N: Subject>(
    args: &Args,
    store: &'static str,
    ours: &O,
    naive: &[(&'static str, N)],
    report: &mut Report,
) {
    let tallies = || naive.iter().map(|_| Tally::new()).collect::<Vec<_>>();
    for concurrency in args.concurrencies() {
        let (mut our_tally, mut naive_tallies) = (Tally::new(), tallies());
        let bar = report.bar(&format!("{store}, {concurrency} at a time"), SLICES);
        let length = args.length() / SLICES;
        for slice in 0..SLICES as usize {
            for turn in 0..=naive.len() {
                match (slice + turn) % (naive.len() + 1) {
                    0 => cycles(ours, concurrency, length, &mut our_tally).await,
                    way => cycles(&naive[way - 1].1, concurrency, length, &mut naive_tallies[way - 1]).await,
                }
            }
            bar.inc(1);
        }
        for ((against, _), tally) in naive.iter().zip(&naive_tallies) {
            report.pair(&Pair { store, op: "cycle", against, concurrency, ours: &our_tally, naive: Some(tally) });
        }
    }
    let our_keys = Arc::new(completed_keys(ours, REPLAY_KEYS).await);
    let mut naive_keys = Vec::new();
    for (_, naive) in naive {
        naive_keys.push(Arc::new(completed_keys(naive, REPLAY_KEYS).await));
    }
    for concurrency in args.concurrencies() {
        let (mut our_tally, mut naive_tallies) = (Tally::new(), tallies());
        let bar = report.bar(&format!("{store} replays, {concurrency} at a time"), SLICES);
        let length: Duration = args.length() / SLICES / 2;
        for slice in 0..SLICES as usize {
            for turn in 0..=naive.len() {
                match (slice + turn) % (naive.len() + 1) {
                    0 => replays(ours, &our_keys, concurrency, length, &mut our_tally).await,
                    way => {
                        let (naive, keys, tally) =
                            (&naive[way - 1].1, &naive_keys[way - 1], &mut naive_tallies[way - 1]);
                        replays(naive, keys, concurrency, length, tally).await;
                    }
                }
            }
            bar.inc(1);
        }
        for ((against, _), tally) in naive.iter().zip(&naive_tallies) {
            report.pair(&Pair { store, op: "replay", against, concurrency, ours: &our_tally, naive: Some(tally) });
        }
    }
}
