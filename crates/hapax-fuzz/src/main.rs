//! Runs a target for a while with the seeded generator: `cargo run --release -p hapax-fuzz -- http1 --minutes 10`.

use std::panic::catch_unwind;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use hapax_fuzz::{TARGETS, Target, generate};
use tokio::time::Instant;

#[derive(Parser)]
#[command(about = "Fuzz a target with the seeded generator")]
struct Args {
    /// The target.
    #[arg(value_parser = target)]
    target: Target,
    /// For how long.
    #[arg(long, default_value_t = 10.0)]
    minutes: f64,
    /// The seed; the same seed gives the same inputs.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where an input that breaks a rule is written.
    #[arg(long, default_value = "target/fuzz")]
    findings: PathBuf,
}

fn target(name: &str) -> Result<Target, String> {
    let names = || TARGETS.map(|target| target.name).join(", ");
    Target::named(name).ok_or_else(|| format!("there is no such target; there are: {}", names()))
}

fn main() -> ExitCode {
    let args = Args::parse();
    let (start, length) = (Instant::now(), Duration::from_secs_f64(args.minutes.clamp(0.01, 1440.0) * 60.0));
    let mut count: u64 = 0;
    for input in generate(&args.target, args.seed) {
        if catch_unwind(|| (args.target.run)(&input)).is_err() {
            let file = args.findings.join(format!("{}-{}-{count}", args.target.name, args.seed));
            let kept = std::fs::create_dir_all(&args.findings).and_then(|()| std::fs::write(&file, &input));
            println!("{}: input {count} of seed {} breaks a rule: {file:?} {kept:?}", args.target.name, args.seed);
            return ExitCode::FAILURE;
        }
        count += 1;
        if count.is_multiple_of(256) && start.elapsed() >= length {
            break;
        }
    }
    println!("{}: {count} inputs of seed {} in {:.0?}, nothing found", args.target.name, args.seed, start.elapsed());
    ExitCode::SUCCESS
}
