//! Chores of the repository, as commands: `cargo xtask bench stores`, `cargo xtask bench proxy`, `cargo xtask crash`,
//! `cargo xtask powerloss`, `cargo xtask storms`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a chore that fails says where and stops")]

mod bench;
mod crash;
mod powerloss;
mod storms;
#[cfg(test)]
mod tidy;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The allocator of the binary: stores are measured as they are used.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Chores of the repository")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure, ours and the naive way interleaved in one run.
    Bench {
        #[command(subcommand)]
        what: Bench,
    },
    /// Kill the proxy at every point with random timings, and judge from outside.
    Crash(crash::Args),
    /// Cut the power of the SQLite store anywhere, and look every acknowledged key up.
    Powerloss(powerloss::Args),
    /// Run the long tests whole, of which a part is run with all the others.
    Storms,
    /// The process that `powerloss` records.
    #[command(hide = true)]
    PowerlossWorker(powerloss::WorkerArgs),
}

#[derive(Subcommand)]
enum Bench {
    /// Claim + complete cycles, replays, growth and reaping of every store.
    Stores(bench::Args),
    /// The proxy beside nginx: pass-through, first-time keys, replays, memory.
    Proxy(bench::proxy::Args),
    /// The lapse sweep beside many completed records, or claims while expired ones are reaped.
    Sweep(bench::sweep::Args),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Bench { what: Bench::Stores(args) } => bench::run(&args),
        Command::Bench { what: Bench::Proxy(args) } => bench::proxy::run(&args),
        Command::Bench { what: Bench::Sweep(args) } => bench::sweep::run(&args),
        Command::Crash(args) => return crash::run(&args),
        Command::Powerloss(args) => return powerloss::run(&args),
        Command::Storms => return storms::run(),
        Command::PowerlossWorker(args) => powerloss::work(&args),
    }
    ExitCode::SUCCESS
}
