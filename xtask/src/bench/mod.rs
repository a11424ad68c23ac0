//! `cargo xtask bench stores`: every store against the naive way, interleaved in one run.
//!
//! Machines are shared and noisy, so a figure alone says little. Each measurement is cut into slices, ours and the naive
//! way in turn, and the ratio is what counts. `--preload` and `--reap` measure ours as it grows.

mod growth;
mod naive_postgres;
mod naive_sqlite;
pub(crate) mod page;
mod pairs;
pub(crate) mod proxy;
mod report;
pub(crate) mod sweep;
mod workload;

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;

use self::report::Report;

/// How many tasks claim and complete at the same time.
const CONCURRENCIES: [usize; 4] = [1, 16, 64, 256];

/// What to measure.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only this store; may be given more than once.
    #[arg(long, value_enum)]
    store: Vec<StoreName>,
    /// Only this concurrency; may be given more than once.
    #[arg(long)]
    concurrency: Vec<usize>,
    /// Seconds for each measurement of each side.
    #[arg(long, default_value_t = 6.0)]
    seconds: f64,
    /// Print one JSON object a line instead of a table.
    #[arg(long)]
    json: bool,
    /// Also measure claims with this many records in the store, against 10,000 (SQLite).
    #[arg(long)]
    preload: Option<u64>,
    /// Also measure claims while this many expired records are reaped (SQLite).
    #[arg(long)]
    reap: Option<u64>,
    /// Where files are made; the disk matters. Default: the build directory.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Write the tables to docs/benchmarks.md, too. Done by default when everything is measured.
    #[arg(long)]
    write_docs: bool,
}

/// A store that can be measured.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum StoreName {
    Memory,
    Sqlite,
    Postgres,
}

impl Args {
    fn measures(&self, store: StoreName) -> bool {
        self.store.is_empty() || self.store.contains(&store)
    }

    fn concurrencies(&self) -> Vec<usize> {
        if self.concurrency.is_empty() { CONCURRENCIES.to_vec() } else { self.concurrency.clone() }
    }

    fn length(&self) -> Duration {
        Duration::from_secs_f64(self.seconds.clamp(0.1, 600.0))
    }

    fn is_whole(&self) -> bool {
        self.store.is_empty() && self.concurrency.is_empty()
    }
}

/// Measures and prints.
pub(crate) fn run(args: &Args) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let beside = args.dir.clone().unwrap_or_else(target_dir);
    let dir = tempfile::Builder::new().prefix("hapax-bench-").tempdir_in(beside).expect("a directory for the files");
    let mut report = Report::new(args.json);
    runtime.block_on(async {
        if args.measures(StoreName::Memory) {
            pairs::memory(args, &mut report).await;
        }
        if args.measures(StoreName::Sqlite) {
            pairs::sqlite(args, dir.path(), &mut report).await;
        }
        if args.measures(StoreName::Postgres) {
            pairs::postgres(args, &mut report).await;
        }
        // Last: what it leaves for the disk to write would slow the others down.
        if args.measures(StoreName::Sqlite) {
            growth::run(args, dir.path(), &mut report).await;
        }
    });
    report.finish(args.write_docs || args.is_whole());
}

/// Beside the program: on the disk of the build, which is a real one; `/tmp` often is not.
fn target_dir() -> PathBuf {
    let program = std::env::current_exe().expect("a path of this program");
    program.parent().expect("a directory of this program").to_owned()
}
