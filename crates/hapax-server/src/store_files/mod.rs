//! `hapax store`: a backup of a store in use, a backup put back, and the fence that a restore raises.
//!
//! | module | what it is |
//! |---|---|
//! | [`args`] | the flags |
//! | `open` | the store that the flags and the configuration name, if it is there |
//! | `backup`, `restore` | the commands for SQLite |
//! | `recover`, `old_record` | what the file that a restore kept has and the store lacks |
//! | `fence`, `unprobed` | the command for every store, and on which routes it takes a person |
//! | [`command`] | which of them, and how it ends |

pub mod args;
mod backup;
pub mod command;
mod fence;
mod old_record;
pub mod open;
mod recover;
mod restore;

use std::path::PathBuf;

use hapax_core::store::StoreError;

use crate::config::ConfigErrors;

/// Why a command about a store failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreFileError {
    /// The configuration is wrong.
    #[error(transparent)]
    Configuration(#[from] ConfigErrors),
    /// The flags do not fit together, or do not fit the store.
    #[error("{0}")]
    Usage(String),
    /// The named file is not there; opening it would make an empty store.
    #[error("there is no store at {}; check --store, or run in the directory of the proxy", .0.display())]
    Missing(PathBuf),
    /// The store failed.
    #[error("{}", with_cause(.0))]
    Store(#[from] StoreError),
}

/// What the store said, with what its driver said.
fn with_cause(error: &StoreError) -> String {
    match &error.source {
        Some(source) => format!("{error} ({source})"),
        None => error.to_string(),
    }
}
