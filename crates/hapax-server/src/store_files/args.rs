//! The flags of `hapax store`.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand};

use crate::flags::{Actor, StoreFlags};

/// What to do with the store.
#[derive(Clone, Debug, Subcommand)]
pub enum StoreCommand {
    /// Copy an SQLite store that may be in use
    Backup(BackupArgs),
    /// Put a backup into the place of an SQLite store that nobody uses
    Restore(RestoreArgs),
    /// Take over from an old file what the store lacks since a restore
    Recover(RecoverArgs),
    /// Show, raise or lift the fence over what a restore may have lost
    Fence(FenceArgs),
}

/// The flags of `hapax store backup`.
#[derive(Clone, Debug, Args)]
pub struct BackupArgs {
    /// Where the copy goes
    #[arg(value_name = "FILE")]
    pub to: PathBuf,
    /// Replace the file if it is there
    #[arg(long)]
    pub force: bool,
    /// Which store.
    #[command(flatten)]
    pub store: StoreFlags,
}

/// The flags of `hapax store restore`.
#[derive(Clone, Debug, Args)]
pub struct RestoreArgs {
    /// The backup
    #[arg(value_name = "FILE")]
    pub from: PathBuf,
    /// Why, for the audit log
    #[arg(long, value_name = "TEXT", default_value = "restored from a backup", hide_default_value = true)]
    pub reason: String,
    /// Who acts.
    #[command(flatten)]
    pub actor: Actor,
    /// Which store.
    #[command(flatten)]
    pub store: StoreFlags,
}

/// The flags of `hapax store recover`.
#[derive(Clone, Debug, Args)]
pub struct RecoverArgs {
    /// The file that the restore kept (`….before-restore-…`)
    #[arg(value_name = "FILE")]
    pub from: PathBuf,
    /// Take it over; without this, only say what would be
    #[arg(long, requires = "reason")]
    pub apply: bool,
    /// Why, for the audit log
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Who acts.
    #[command(flatten)]
    pub actor: Actor,
    /// Which store.
    #[command(flatten)]
    pub store: StoreFlags,
}

/// The flags of `hapax store fence`.
#[derive(Clone, Debug, Args)]
#[command(group = ArgGroup::new("what").args(["show", "raise", "lift"]))]
pub struct FenceArgs {
    /// Say whether one stands; the default
    #[arg(long)]
    pub show: bool,
    /// Raise one, after a recovery by other means
    #[arg(long, requires = "since", requires = "reason")]
    pub raise: bool,
    /// Lift it: from now on every new key runs
    #[arg(long, requires = "reason")]
    pub lift: bool,
    /// When the backup was made, or what was recovered to
    #[arg(long, value_name = "TIME", requires = "raise")]
    pub since: Option<String>,
    /// Why, for the audit log
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Who acts.
    #[command(flatten)]
    pub actor: Actor,
    /// Which store.
    #[command(flatten)]
    pub store: StoreFlags,
}
