//! The commands of `hapax` and their flags.
//!
//! Left to others: flags that several commands have (`flags`), and what commands do (`main`).

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::config::Sources;
pub use crate::flags::Flags;
use crate::flags::PolicyFlags;
use crate::ledger::args::LedgerArgs;
use crate::operate::args::Operation;
use crate::store_files::args::StoreCommand;

/// State-changing work, once: idempotency for any HTTP API
#[derive(Debug, Parser)]
#[command(name = "hapax", version, disable_help_subcommand = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Stand in front of an API, and answer retries from the record
    Proxy(Flags),
    /// Check, show or explain the configuration
    Config {
        /// Which of these.
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// List the routes, and what is called without protection
    Routes(RoutesArgs),
    /// Compare a provider's records with hapax's, and settle by them
    Reconcile(LedgerArgs),
    /// Back up, restore and fence the store
    Store {
        /// Which of these.
        #[command(subcommand)]
        command: StoreCommand,
    },
    /// What an operator does.
    #[command(flatten)]
    Operate(Operation),
}

/// What to do with the configuration.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Find what `hapax proxy` would refuse, except by its store and ports
    Check(Flags),
    /// Print every setting as it is in force
    Show {
        /// Say where each value comes from
        #[arg(long)]
        origin: bool,
        /// The flags of the proxy.
        #[command(flatten)]
        flags: Flags,
    },
    /// Print a file with every key, its meaning and its default
    Default,
}

/// The flags of `hapax routes`.
#[derive(Debug, Args)]
pub struct RoutesArgs {
    /// An access log: NDJSON, Common or Combined Log Format
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// How to print: text, json
    #[arg(long, value_enum, value_name = "FORM", default_value_t = Output::Text, hide_possible_values = true)]
    pub output: Output,
    /// The flags of the proxy that say what holds for a request.
    #[command(flatten)]
    pub policy: PolicyFlags,
    /// The configuration [default: hapax.toml]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// How to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people
    Text,
    /// For programs
    Json,
}

impl RoutesArgs {
    /// What a configuration is made from. No upstream is needed: nothing is forwarded.
    #[must_use]
    pub fn sources(&self, environment: Vec<(String, String)>) -> Sources {
        let flags = Flags { config: self.config.clone(), policy: self.policy.clone(), ..Flags::default() };
        Sources { without_upstream: true, ..flags.sources(environment) }
    }
}
