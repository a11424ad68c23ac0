//! `cargo xtask powerloss`: cuts the power of the SQLite store anywhere, and asks it for every acknowledged key.
//!
//! A worker claims and completes keys under strace, and is started again after a clean run or a disk that failed; the recorder
//! and the model of the disk are in hapax-testkit. Each image is opened by the store, and judged: what was said to be
//! claimed is there, what was said to be completed has its answer, byte for byte, and SQLite finds the file whole.

mod judge;
mod worker;

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use hapax_testkit::child::Child;
use hapax_testkit::powerloss::{Dice, Fault, Recording, recorded};
use tempfile::TempDir;

pub(crate) use self::worker::WorkerArgs;
pub(crate) use self::worker::run as work;

/// Images of one recording: a recording takes seconds, an image a fraction of one.
const IMAGES_PER_RECORDING: usize = 17;

/// A worker that has not ended by then hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// What to run.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// How many images are judged.
    #[arg(long, default_value_t = 200)]
    images: usize,
    /// Where chance begins, to see a failure again. Default: drawn, and printed.
    #[arg(long)]
    seed: Option<u64>,
    /// Keys that each worker claims and completes.
    #[arg(long, default_value_t = 500)]
    keys: usize,
    /// Every N-th sync only pretends: a test of the test, which must fail.
    #[arg(long, value_name = "N")]
    lie: Option<usize>,
    /// Only what has this text in its name, such as "copy".
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
}

/// What happens to a file before the power goes.
#[derive(Clone, Copy, Debug)]
struct Scenario {
    name: &'static str,
    fault: fn(&mut Dice) -> Fault,
    /// Whether another process, which only looks, has the file open all the time.
    held: bool,
}

const SCENARIOS: [Scenario; 6] = [
    Scenario { name: "no fault", fault: |_| Fault::None, held: false },
    Scenario { name: "a sync of the log fails", fault: |dice| Fault::Sync(8 + dice.below(100) as u32), held: false },
    Scenario { name: "a copy of the log fails", fault: |dice| Fault::Truncate(1 + dice.below(3) as u32), held: false },
    Scenario {
        name: "a sync of the first start fails",
        fault: |dice| Fault::Sync(1 + dice.below(7) as u32),
        held: false,
    },
    Scenario {
        name: "a sync of the log fails, held",
        fault: |dice| Fault::Sync(8 + dice.below(100) as u32),
        held: true,
    },
    Scenario {
        name: "a copy of the log fails, held",
        fault: |dice| Fault::Truncate(1 + dice.below(3) as u32),
        held: true,
    },
];

/// Records, cuts, judges, and prints a line for each scenario. Fails if any key was lost.
pub(crate) fn run(args: &Args) -> ExitCode {
    let seed = args.seed.unwrap_or_else(|| u64::from_le_bytes(*hapax_testkit::tokens::random().first_chunk().unwrap()));
    println!(
        "seed {seed}; again with: cargo xtask powerloss --images {} --keys {} --seed {seed}",
        args.images, args.keys
    );
    let mut dice = Dice::new(seed);
    let scenarios: Vec<&Scenario> = SCENARIOS.iter().filter(|scenario| scenario.name.contains(&args.only)).collect();
    assert!(!scenarios.is_empty(), "nothing has {:?} in its name", args.only);
    let recordings = args.images.div_ceil(IMAGES_PER_RECORDING).max(scenarios.len().min(args.images));
    let (mut images, mut asked, mut violations) = (0, 0, 0);
    for number in 0..recordings {
        let scenario = scenarios[number % scenarios.len()];
        let count = (args.images - images).div_ceil(recordings - number);
        let dir = tempfile::tempdir().expect("a directory for the store");
        let (recording, faults) = record(scenario, &dir, args, &mut dice);
        let (mut keys, mut broken) = (0, Vec::new());
        for cut in cuts(&recording, &mut dice, count) {
            let image = recording.image(cut, &mut dice, args.lie);
            let verdict = judge::judge(&image, &mut dice);
            keys += verdict.asked;
            broken.extend(verdict.violations.into_iter().map(|violation| format!("cut at {cut}: {violation}")));
        }
        let (name, found) = (scenario.name, broken.len());
        println!("{name}: {faults} faults, {count} images, {keys} acknowledged keys looked up, {found} violations");
        broken.iter().take(5).for_each(|violation| println!("    {violation}"));
        (images, asked, violations) = (images + count, asked + keys, violations + broken.len());
    }
    println!("{images} images, {asked} acknowledged keys looked up, {violations} violations");
    if violations == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Most of them after the restart: what was acknowledged then rests on what the process before has left.
fn cuts(recording: &Recording, dice: &mut Dice, count: usize) -> Vec<usize> {
    let early = count / 4;
    let mut cuts = recording.cuts(dice, 0..recording.last_run().start.max(1), early);
    cuts.extend(recording.cuts(dice, recording.last_run(), count - early));
    cuts
}

/// A process that meets the fault or is killed in its tracks, and one after it; and how many faults were met.
fn record(scenario: &Scenario, dir: &TempDir, args: &Args, dice: &mut Dice) -> (Recording, usize) {
    let file = dir.path().join("hapax.db");
    let _held = scenario.held.then(|| hold(&file));
    let (mut recording, mut faults) = (Recording::beginning_with(dir.path()), 0);
    for (run, fault) in [(scenario.fault)(dice), Fault::None].into_iter().enumerate() {
        let trace = tempfile::NamedTempFile::new().expect("a file for the record");
        let mut worker = worker::command(&file);
        worker.args(["--first", &(run * args.keys).to_string(), "--keys", &args.keys.to_string()]);
        let mut worker = recorded(&worker, trace.path(), fault);
        let status = worker.stdout(Stdio::null()).status().expect("strace runs; scripts/test installs it");
        assert!(status.success(), "{}: the worker failed: {status}", scenario.name);
        let text = std::fs::read_to_string(trace.path()).expect("strace has written its record");
        faults += text.matches("(INJECTED)").count();
        recording.add(trace.path(), dir.path());
    }
    (recording, faults)
}

/// A process that makes the file, and keeps it open.
fn hold(file: &Path) -> Child {
    let mut command: Command = worker::command(file);
    let mut holder = Child::spawn(command.arg("--hold"));
    assert_eq!(holder.said(PATIENCE).as_deref(), Some("holding"));
    holder
}
