//! `cargo xtask crash`: the crash matrix with random timings.
//!
//! Every point is run on every store with as many seeds as asked for; a seed stands for the timing of a run. Cases mostly
//! wait for leases and sweeps, so many run side by side. What a case does and how it is judged is in hapax-testkit.

mod table;

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Mutex;

use clap::ValueEnum;
use hapax_testkit::crash::{ALL, Case, Point, Store, Timing, Verdict, named};
use hapax_testkit::postgres::Server;
use indicatif::{ProgressBar, ProgressStyle};
use tempfile::TempDir;

use self::table::Table;
use crate::bench::page::{machine, write_section_in};

/// What to run.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Runs for each point and store: seeds 1 to N.
    #[arg(long, default_value_t = 20)]
    seeds: u64,
    /// Only this seed, to see a failure again.
    #[arg(long, conflicts_with = "seeds")]
    seed: Option<u64>,
    /// Only this point; may be given more than once.
    #[arg(long, value_parser = point)]
    point: Vec<&'static Point>,
    /// Only this store; may be given more than once.
    #[arg(long, value_enum)]
    store: Vec<StoreName>,
    /// Cases at a time.
    #[arg(long, default_value_t = 12)]
    parallel: usize,
    /// Write the table to docs/reliability.md, too.
    #[arg(long)]
    write_docs: bool,
    /// A `hapax` with the feature `failpoints`. Default: one is built.
    #[arg(long)]
    hapax: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum StoreName {
    Sqlite,
    Postgres,
}

fn point(name: &str) -> Result<&'static Point, String> {
    let names = || ALL.iter().map(|point| point.name).collect::<Vec<_>>().join(", ");
    named(name).ok_or_else(|| format!("there is no such point; there are: {}", names()))
}

/// One case and how to name it again.
struct Numbered {
    seed: u64,
    case: Case,
}

impl Numbered {
    fn name_again(&self) -> String {
        let Numbered { seed, case } = self;
        format!("cargo xtask crash --point {} --store {} --seed {seed}", case.point.name, case.store)
    }
}

/// Runs all, prints failures as they come and the table at the end. Fails if any case did.
pub(crate) fn run(args: &Args) -> ExitCode {
    let dir = tempfile::tempdir().expect("a directory for the program");
    let program = args.hapax.clone().unwrap_or_else(|| built(&dir));
    // Lives as long as the cases do.
    let server =
        args.wants(StoreName::Postgres).then(|| Server::builder().with_setting("max_connections", "500").start());
    let cases = cases(args, server.as_ref());
    let bar = bar(cases.len() as u64);
    let (cases, table) = (Mutex::new(cases), Mutex::new(Table::default()));
    std::thread::scope(|scope| {
        for _ in 0..args.parallel.max(1) {
            scope.spawn(|| work(&program, &cases, &table, &bar));
        }
    });
    bar.finish_and_clear();
    let table = table.into_inner().expect("no worker panicked");
    println!("{table}");
    if args.write_docs {
        write_section_in("docs/reliability.md", "crash", &format!("{}\n\n{table}", machine()));
    }
    if table.passed() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

impl Args {
    fn wants(&self, store: StoreName) -> bool {
        self.store.is_empty() || self.store.contains(&store)
    }
}

/// All cases, seed by seed, so that an early end has seen every point.
fn cases(args: &Args, server: Option<&Server>) -> VecDeque<Numbered> {
    let seeds = args.seed.map_or(1..=args.seeds, |seed| seed..=seed);
    let points: Vec<&'static Point> = if args.point.is_empty() { ALL.iter().collect() } else { args.point.clone() };
    let mut stores = Vec::new();
    if args.wants(StoreName::Sqlite) {
        stores.push(Store::Sqlite);
    }
    stores.extend(server.map(|server| Store::Postgres(server.fresh_database())));
    let numbered = |seed: u64, point: &'static Point, store: &Store| {
        let timing = Timing::of(mixed(seed, point, store));
        Numbered { seed, case: Case::new(point, store, timing) }
    };
    let mut cases = VecDeque::new();
    for seed in seeds {
        for point in &points {
            cases.extend(stores.iter().map(|store| numbered(seed, point, store)));
        }
    }
    cases
}

/// The same seed is another timing at another point and on another store.
fn mixed(seed: u64, point: &Point, store: &Store) -> u64 {
    let text = format!("{seed} {} {store}", point.name);
    // FNV-1a: the same on every machine and in every release.
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

fn work(program: &Path, cases: &Mutex<VecDeque<Numbered>>, table: &Mutex<Table>, bar: &ProgressBar) {
    loop {
        let Some(numbered) = cases.lock().expect("no worker panicked").pop_front() else { return };
        let ran = std::panic::catch_unwind(AssertUnwindSafe(|| numbered.case.run(program)));
        let verdict =
            ran.unwrap_or_else(|_| Verdict { other: vec!["it did not run".to_owned()], ..Verdict::default() });
        if !verdict.passed() {
            let wrongs: Vec<String> = verdict.wrongs().collect();
            let Numbered { seed, case } = &numbered;
            bar.suspend(|| {
                println!("FAILED seed {seed}: {}\n  {:?}", numbered.name_again(), case.timing);
                println!("  {}", wrongs.join("\n  "));
            });
        }
        table.lock().expect("no worker panicked").add(numbered.case.point.name, &numbered.case.store, &verdict);
        bar.inc(1);
    }
}

fn bar(cases: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} cases, {elapsed}, {eta} left");
    ProgressBar::new(cases).with_style(style.expect("a well-formed template"))
}

/// Builds the program with failpoints and copies it away, so that another build does not change it under the cases.
fn built(dir: &TempDir) -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let build = ["build", "--quiet", "--package", "hapax-server", "--features", "failpoints"];
    let status = Command::new(cargo).args(build).status();
    assert!(status.is_ok_and(|status| status.success()), "hapax-server does not build with failpoints");
    let own = std::env::current_exe().expect("a path of this program");
    let target = own.ancestors().nth(2).expect("a target directory");
    let copy = dir.path().join("hapax");
    std::fs::copy(target.join("debug").join("hapax"), &copy).expect("the program was built");
    copy
}
