//! The operator's commands and their flags. Each help fits a terminal of 24 lines and 80 columns.

use std::path::PathBuf;

use crate::flags::Actor;
use clap::{ArgAction, Args, Subcommand, ValueEnum};
use clap_complete::Shell;

/// What an operator can do.
#[derive(Debug, Subcommand)]
pub enum Operation {
    /// Say how things stand; ends with 1 where something needs a person
    Status(StatusArgs),
    /// Find, show, resolve and purge records
    Keys {
        /// Which of these.
        #[command(subcommand)]
        command: KeysCommand,
    },
    /// Say who changed what, when and why
    Audit(AuditArgs),
    /// Print a completion script for a shell
    Completions {
        /// bash, elvish, fish, powershell or zsh
        #[arg(hide_possible_values = true)]
        shell: Shell,
    },
    /// Print the manual page, or write every page into a directory
    Man {
        /// The directory; without it hapax(1) is printed
        #[arg(value_name = "DIR")]
        directory: Option<PathBuf>,
    },
}

/// What can be done with records.
#[derive(Debug, Subcommand)]
pub enum KeysCommand {
    /// List records, or find one by anything that is pasted
    List(ListArgs),
    /// Show all that is known of one record
    Show(ShowArgs),
    /// Follow what is unfinished, until Ctrl-C
    Tail(TailArgs),
    /// Say what became of a request that nobody is sure about
    Resolve(ResolveArgs),
    /// Take answers away
    Purge(PurgeArgs),
}

/// Where to look.
#[derive(Clone, Debug, Default, Args)]
pub struct Place {
    /// The store [default: the configured one]
    #[arg(long, value_name = "URL", conflicts_with = "admin")]
    pub store: Option<String>,
    /// Or a node's admin listener; see HAPAX_ADMIN_TOKEN
    #[arg(long, value_name = "URL")]
    pub admin: Option<String>,
    /// The configuration [default: hapax.toml]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// How to print.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// For people
    #[default]
    Text,
    /// For programs
    Json,
    /// For spreadsheets
    Csv,
}

/// How to print what is not a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Shape {
    /// For people
    #[default]
    Text,
    /// For programs
    Json,
}

/// The flags of `hapax status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// text or json [default: text]
    #[arg(
        long,
        value_enum,
        value_name = "FORM",
        default_value_t,
        hide_default_value = true,
        hide_possible_values = true
    )]
    pub output: Shape,
    /// Where to look.
    #[command(flatten)]
    pub place: Place,
}

/// Which records.
#[derive(Clone, Debug, Default, Args)]
pub struct Which {
    /// ready, running, unknown, dead, completed, expired
    #[arg(long, value_name = "STATE", value_delimiter = ',')]
    pub state: Vec<String>,
    /// Of exactly this scope
    #[arg(long, value_name = "SCOPE")]
    pub scope: Option<String>,
    /// With this label
    #[arg(long, value_name = "NAME=VALUE")]
    pub label: Option<String>,
    /// First seen at or after: 2026-01-31, or 24h ago
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// First seen before
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,
}

/// The flags of `hapax keys list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// A key, an id (or its first 8 digits), a scope, a request id, a label
    #[arg(value_name = "TEXT")]
    pub find: Option<String>,
    /// Which records.
    #[command(flatten)]
    pub which: Which,
    /// At most this many [default: 100]
    #[arg(long, value_name = "COUNT", default_value_t = 100, hide_default_value = true)]
    pub limit: u32,
    /// Go on where a list ended
    #[arg(long, value_name = "CURSOR")]
    pub after: Option<String>,
    /// text, json or csv [default: text]
    #[arg(
        long,
        value_enum,
        value_name = "FORM",
        default_value_t,
        hide_default_value = true,
        hide_possible_values = true
    )]
    pub output: Form,
    /// Where to look.
    #[command(flatten)]
    pub place: Place,
}

/// The flags of `hapax keys show`.
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// A key, an id (or its first 8 digits), a request id, a label
    #[arg(value_name = "KEY")]
    pub key: String,
    /// Whose key it is, where several have it
    #[arg(long, value_name = "SCOPE")]
    pub scope: Option<String>,
    /// With header fields and body of the recorded answer
    #[arg(long)]
    pub body: bool,
    /// text or json [default: text]
    #[arg(
        long,
        value_enum,
        value_name = "FORM",
        default_value_t,
        hide_default_value = true,
        hide_possible_values = true
    )]
    pub output: Shape,
    /// Where to look.
    #[command(flatten)]
    pub place: Place,
}

/// The flags of `hapax keys tail`.
#[derive(Debug, Args)]
pub struct TailArgs {
    /// ready, running, unknown, dead [default: all]
    #[arg(long, value_name = "STATE", value_delimiter = ',')]
    pub state: Vec<String>,
    /// Of exactly this scope
    #[arg(long, value_name = "SCOPE")]
    pub scope: Option<String>,
    /// With this label
    #[arg(long, value_name = "NAME=VALUE")]
    pub label: Option<String>,
    /// Seconds between looks, 1 to 3600 [default: 1]
    #[arg(long, value_name = "SECONDS", default_value_t = 1, hide_default_value = true,
          value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub every: u32,
    /// text, or json: one document a line [default: text]
    #[arg(
        long,
        value_enum,
        value_name = "FORM",
        default_value_t,
        hide_default_value = true,
        hide_possible_values = true
    )]
    pub output: Shape,
    /// Where to look.
    #[command(flatten)]
    pub place: Place,
}

/// The flags of `hapax keys resolve`.
#[derive(Debug, Args)]
#[command(override_usage = "hapax keys resolve ID --happened --reason TEXT [OPTIONS]", disable_help_flag = true)]
pub struct ResolveArgs {
    /// Print help: as everywhere, and left out of it for the sake of its length.
    #[arg(short, long, action = ArgAction::Help, hide = true)]
    help: Option<bool>,
    /// An id (or its first 8 digits); with --scope a key or a label
    #[arg(value_name = "ID")]
    pub key: String,
    /// What is said.
    #[command(flatten)]
    pub verdict: VerdictArgs,
    /// The answer that clients get [default: 200, 500]
    #[arg(long, value_name = "STATUS", conflicts_with = "did_not_happen")]
    pub status: Option<u16>,
    /// Its body; - reads it from the standard input
    #[arg(long, value_name = "FILE", conflicts_with = "did_not_happen")]
    pub body_file: Option<PathBuf>,
    /// Its type [default: application/json]
    #[arg(long, value_name = "TYPE", conflicts_with = "did_not_happen")]
    pub content_type: Option<String>,
    /// Why; it is kept in the audit log
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Whose key, or label, it is
    #[arg(long, value_name = "SCOPE")]
    pub scope: Option<String>,
    /// A key is enough: no two callers have the same
    #[arg(long)]
    pub keys_unique: bool,
    /// Only if the record is still at this attempt
    #[arg(long, value_name = "NUMBER")]
    pub attempt: Option<u32>,
    /// Who changes it, and where.
    #[command(flatten)]
    pub change: Change,
}

/// One of three.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct VerdictArgs {
    /// It happened: record this answer
    #[arg(long)]
    pub happened: bool,
    /// It did not: the next request with the key runs
    #[arg(long)]
    pub did_not_happen: bool,
    /// Nobody knows: record a failure, so clients stop
    #[arg(long)]
    pub give_up: bool,
}

/// What every command has that changes records.
#[derive(Debug, Args)]
pub struct Change {
    /// Who acts.
    #[command(flatten)]
    pub actor: Actor,
    /// Do not ask
    #[arg(long)]
    pub yes: bool,
    /// text or json [default: text]
    #[arg(
        long,
        value_enum,
        value_name = "FORM",
        default_value_t,
        hide_default_value = true,
        hide_possible_values = true
    )]
    pub output: Shape,
    /// Where to look.
    #[command(flatten)]
    pub place: Place,
}

/// The flags of `hapax keys purge`.
#[derive(Debug, Args)]
#[command(override_usage = "hapax keys purge ID | --state STATE ... --reason TEXT [OPTIONS]")]
pub struct PurgeArgs {
    /// An id (or its first 8 digits); with --scope a key; or filters
    #[arg(value_name = "ID")]
    pub key: Option<String>,
    /// A key is enough: no two callers have the same
    #[arg(long, requires = "key")]
    pub keys_unique: bool,
    /// Which records.
    #[command(flatten)]
    pub which: Which,
    /// Completed keys are free at once: a retry runs AGAIN
    #[arg(long)]
    pub allow_rerun: bool,
    /// Only count
    #[arg(long)]
    pub dry_run: bool,
    /// Why; it is kept in the audit log
    #[arg(long, value_name = "TEXT", required_unless_present = "dry_run")]
    pub reason: Option<String>,
    /// Who changes it, and where.
    #[command(flatten)]
    pub change: Change,
}

/// The flags of `hapax audit`.
#[derive(Debug, Args)]
pub struct AuditArgs {
    /// About one record, there or gone: its key, or its id (8 digits)
    #[arg(value_name = "KEY")]
    pub key: Option<String>,
    /// Whose key it is, where several have it
    #[arg(long, value_name = "SCOPE", requires = "key")]
    pub scope: Option<String>,
    /// At most this many, newest first [default: 50]
    #[arg(long, value_name = "COUNT", default_value_t = 50, hide_default_value = true)]
    pub limit: u32,
    /// Older than that number: go on where a list ended
    #[arg(long, value_name = "NUMBER")]
    pub before: Option<u64>,
    /// text, json or csv [default: text]
    #[arg(
        long,
        value_enum,
        value_name = "FORM",
        default_value_t,
        hide_default_value = true,
        hide_possible_values = true
    )]
    pub output: Form,
    /// Where to look.
    #[command(flatten)]
    pub place: Place,
}
