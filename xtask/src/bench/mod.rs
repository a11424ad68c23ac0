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

/// Shorter measurements are for a quick look, and too noisy to be kept.
const SECONDS: f64 = 6.0;

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
    #[arg(long, default_value_t = SECONDS)]
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
    /// Write the tables to docs/benchmarks.md, too. Done by default when everything is measured: all stores and
    /// concurrencies, no shorter than by default, with --preload and --reap.
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

    /// What is left out, so that the page would lose by it. `None`: everything is measured.
    fn lacks(&self) -> Option<&'static str> {
        let left_out = [
            (!self.store.is_empty(), "not all stores were measured (--store)"),
            (!self.concurrency.is_empty(), "not all concurrencies were measured (--concurrency)"),
            (
                self.length() < Duration::from_secs_f64(SECONDS),
                "the measurements were shorter than by default (--seconds)",
            ),
            (self.preload.is_none(), "claims in a large store were not measured (--preload)"),
            (self.reap.is_none(), "claims during a reap were not measured (--reap)"),
        ];
        left_out.into_iter().find_map(|(is_left_out, what)| is_left_out.then_some(what))
    }

    /// Why the page is left alone, and how to have it written; `None` if it is written.
    fn leaves_the_page(&self) -> Option<String> {
        let lacks = self.lacks().filter(|_| !self.write_docs)?;
        Some(format!(
            "docs/benchmarks.md was left as it is: {lacks}; --preload 10000000 --reap 1000000 and nothing else measures \
             all of it, --write-docs writes it anyway"
        ))
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
    let left_alone = args.leaves_the_page();
    report.finish(left_alone.is_none());
    if let Some(why) = left_alone {
        eprintln!("{why}");
    }
}

/// Beside the program: on the disk of the build, which is a real one; `/tmp` often is not.
fn target_dir() -> PathBuf {
    let program = std::env::current_exe().expect("a path of this program");
    program.parent().expect("a directory of this program").to_owned()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::Args;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        args: Args,
    }

    fn args(line: &str) -> Args {
        Command::parse_from(["bench"].into_iter().chain(line.split_whitespace())).args
    }

    const WHOLE: &str = "--preload 10000000 --reap 1000000";

    #[test]
    fn the_page_is_written_by_a_whole_run() {
        assert_eq!(args(WHOLE).leaves_the_page(), None);
        assert_eq!(args(&format!("{WHOLE} --json --seconds 6")).leaves_the_page(), None);
        assert_eq!(args(&format!("{WHOLE} --seconds 20")).leaves_the_page(), None);
    }

    #[test]
    fn a_run_that_leaves_something_out_leaves_the_page_alone_and_says_why() {
        let lines = [
            ("", "--preload"),
            ("--json", "--preload"),
            ("--seconds 20", "--preload"),
            ("--preload 10000000", "--reap"),
            ("--reap 1000000", "--preload"),
            (&format!("{WHOLE} --seconds 5.9"), "--seconds"),
            (&format!("{WHOLE} --store sqlite"), "--store"),
            (&format!("{WHOLE} --concurrency 64"), "--concurrency"),
        ];
        for (line, lacks) in lines {
            let why = args(line).leaves_the_page().unwrap_or_else(|| panic!("`{line}` writes the page"));
            assert!(why.starts_with("docs/benchmarks.md was left as it is: "), "{why}");
            assert!(why.contains(&format!("({lacks}); ")) && why.contains(" --write-docs "), "`{line}`: {why}");
            assert_eq!(why.lines().count(), 1, "{why}");
        }
    }

    #[test]
    fn whoever_asks_for_it_has_the_page_written() {
        for line in ["--write-docs", "--write-docs --store memory --concurrency 1 --seconds 0.1"] {
            assert_eq!(args(line).leaves_the_page(), None, "{line}");
        }
    }
}
