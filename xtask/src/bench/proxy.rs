//! `cargo xtask bench proxy`: hapax and nginx before the same upstream, interleaved in one run.
//!
//! Machines are shared and noisy, so a figure alone says little. In every round each path is measured once, ours and
//! nginx's in turn, and the ratio of the medians is what counts. nginx gets exactly the requests that hapax gets, so the
//! load generator costs both the same. `--calibrate` puts nginx in hapax's place: every ratio must then be near 1.

mod memory;
mod nginx;
mod report;
mod subject;
mod wrk;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use hapax_testkit::postgres::Server;

use self::nginx::Nginx;
use self::report::{Report, Series};
use self::subject::Subject;
use self::wrk::{Load, Run};
use super::report::bar;

/// What to measure.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only this path; may be given more than once.
    #[arg(long, value_enum)]
    path: Vec<PathName>,
    /// Seconds for each measurement.
    #[arg(long, default_value_t = 8.0)]
    seconds: f64,
    /// How often each path is measured; the median counts.
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Connections that the load comes over.
    #[arg(long, default_value_t = 64)]
    connections: u32,
    /// Requests over which the growth of the memory is measured.
    #[arg(long, default_value_t = 1_000_000)]
    requests: u64,
    /// Idle connections whose memory is measured.
    #[arg(long, default_value_t = 10_000)]
    idle: usize,
    /// Print one JSON object a line instead of a table.
    #[arg(long)]
    json: bool,
    /// The binary to measure. Default: it is built.
    #[arg(long)]
    hapax: Option<PathBuf>,
    /// Where files are made; the disk matters. Default: the build directory.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Measure nginx in the place of hapax, to see how well the ratios can be trusted.
    #[arg(long)]
    calibrate: bool,
    /// Another build of hapax to measure in the place of nginx: every ratio is then that of the two builds.
    #[arg(long, conflicts_with = "calibrate")]
    against: Option<PathBuf>,
    /// Write the table to docs/benchmarks.md, too. Done by default when everything is measured.
    #[arg(long)]
    write_docs: bool,
}

/// A way through the proxy, or a measurement of its memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum PathName {
    /// A GET, which needs no key.
    PassThrough,
    /// A POST with a key that was never seen, kept in memory: what a store that costs nothing would give.
    MemoryFirst,
    /// A POST with a key that was never seen: two durable writes.
    SqliteFirst,
    /// A POST with a key whose answer is recorded.
    SqliteReplay,
    PostgresFirst,
    PostgresReplay,
    /// Growth of the memory over many requests of all kinds.
    Rss,
    /// Memory with many idle connections.
    Idle,
}

/// The paths whose speed is measured, in the order of the table.
const FAST_PATHS: [PathName; 6] = [
    PathName::PassThrough,
    PathName::MemoryFirst,
    PathName::SqliteFirst,
    PathName::SqliteReplay,
    PathName::PostgresFirst,
    PathName::PostgresReplay,
];

impl PathName {
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    fn load(self) -> Load {
        match self {
            PathName::PassThrough => Load::Get,
            PathName::SqliteReplay | PathName::PostgresReplay => Load::Replay,
            PathName::MemoryFirst | PathName::SqliteFirst | PathName::PostgresFirst => Load::First,
            PathName::Rss | PathName::Idle => Load::Mixed,
        }
    }

    fn needs_postgres(self) -> bool {
        matches!(self, PathName::PostgresFirst | PathName::PostgresReplay)
    }
}

impl Args {
    fn measures(&self, path: PathName) -> bool {
        self.path.is_empty() || self.path.contains(&path)
    }

    fn fast_paths(&self) -> Vec<PathName> {
        FAST_PATHS.into_iter().filter(|path| self.measures(*path)).collect()
    }

    fn length(&self) -> Duration {
        Duration::from_secs_f64(self.seconds.clamp(1.0, 600.0))
    }

    fn is_whole(&self) -> bool {
        self.path.is_empty() && !self.calibrate && self.hapax.is_none() && self.against.is_none()
    }
}

/// Measures and prints.
pub(crate) fn run(args: &Args) {
    let beside = args.dir.clone().unwrap_or_else(super::target_dir);
    let dir = tempfile::Builder::new().prefix("hapax-bench-").tempdir_in(beside).expect("a directory for the files");
    let program = subject::program(args);
    let upstream = Nginx::upstream(&dir.path().join("upstream"));
    let mut report = Report::new(args.json, args.connections);
    if args.calibrate {
        report.note("- nginx in the place of hapax: every ratio should be near 1.");
    }
    if args.against.is_some() {
        report.note("- another build of hapax in the place of nginx.");
    }
    let paths = args.fast_paths();
    if !paths.is_empty() {
        fast_paths(args, &paths, &Bench { program: &program, dir: dir.path(), upstream: &upstream }, &mut report);
    }
    if args.measures(PathName::Rss) {
        let subject = Subject::sqlite(&program, &dir.path().join("rss"), upstream.address());
        report.growth(&memory::growth(args, &subject));
    }
    if args.measures(PathName::Idle) {
        let subject = Subject::sqlite(&program, &dir.path().join("idle"), upstream.address());
        report.idle(&memory::idle(args, &subject));
    }
    report.finish(args.write_docs || args.is_whole());
}

/// What all subjects have in common.
struct Bench<'a> {
    program: &'a subject::Program,
    dir: &'a Path,
    upstream: &'a Nginx,
}

/// A build of hapax on every store that is asked for.
struct Build {
    sqlite: Subject,
    memory: Option<Subject>,
    postgres: Option<Subject>,
}

impl Build {
    fn start(
        bench: &Bench<'_>,
        program: &subject::Program,
        name: &str,
        paths: &[PathName],
        server: Option<&Server>,
    ) -> Build {
        let (dir, upstream) = (bench.dir.join(name), bench.upstream.address());
        let at = |store: &str, url: &str| Subject::at(program, &dir.join(store), upstream, url);
        Build {
            sqlite: Subject::sqlite(program, &dir.join("sqlite"), upstream),
            memory: paths.contains(&PathName::MemoryFirst).then(|| at("memory", "memory:")),
            postgres: server.map(|server| at("postgres", &server.fresh_database().url())),
        }
    }

    fn subject(&self, path: PathName) -> &Subject {
        match (&self.postgres, &self.memory) {
            (Some(postgres), _) if path.needs_postgres() => postgres,
            (_, Some(memory)) if path == PathName::MemoryFirst => memory,
            _ => &self.sqlite,
        }
    }
}

fn fast_paths(args: &Args, paths: &[PathName], bench: &Bench<'_>, report: &mut Report) {
    let front = Nginx::in_front_of(&bench.dir.join("front"), bench.upstream.address());
    let server = paths.iter().any(|path| path.needs_postgres()).then(|| Server::builder().start());
    let ours = Build::start(bench, bench.program, "ours", paths, server.as_ref());
    let other = args.against.clone().map(subject::Program::Hapax);
    let other = other.map(|program| Build::start(bench, &program, "other", paths, server.as_ref()));
    let reference = |path: PathName| other.as_ref().map_or(front.address(), |build| build.subject(path).address());
    for path in paths.iter().filter(|path| path.load() == Load::Replay) {
        ours.subject(*path).prime();
        if let Some(other) = &other {
            other.subject(*path).prime();
        }
    }
    let mut series: Vec<Series> = paths.iter().map(|path| Series::new(path.name())).collect();
    let progress = bar("the proxy beside nginx", args.rounds * series.len() as u32);
    // The first measurement of each is for warmth and not counted.
    for round in 0..=args.rounds {
        for (path, series) in paths.iter().zip(&mut series) {
            let length = if round == 0 { Duration::from_secs(1) } else { args.length() };
            let run = Run { load: path.load(), connections: args.connections, length };
            let (nginx, hapax) = (run.against(reference(*path)), run.against(ours.subject(*path).address()));
            if round > 0 {
                series.add(&nginx, &hapax);
                progress.inc(1);
            }
        }
    }
    progress.finish_and_clear();
    for series in &series {
        report.path(series);
    }
}
