//! `hapax reconcile`: a provider's own records compared with what hapax has.
//!
//! The provider's export and hapax's records are put into a temporary database on disk, so a million rows need no more
//! memory than a thousand. Nothing is guessed: a row decides only what it says, several rows that contradict each other
//! decide nothing, and a key that is missing in the ledger says "did not happen" only where the caller says that the
//! ledger is complete and the window covers the attempt.
//!
//! | module | what it is |
//! |---|---|
//! | [`args`] | the flags, checked |
//! | `timestamp` | times as providers write them |
//! | `rows`, `read_csv`, `read_ndjson` | the provider's rows, one at a time |
//! | `book` | the temporary database: theirs, ours, findings |
//! | `judge` | what a record and the rows about it mean together: one pure function |
//! | `compare` | ours read from the store, and every record judged |
//! | `apply` | what the ledger decides, resolved |
//! | `report` | what was found: text, JSON, CSV |
//! | [`command`] | all of it in order |

mod apply;
pub mod args;
mod book;
pub mod command;
mod compare;
mod judge;
mod progress;
mod read_csv;
mod read_ndjson;
mod report;
mod rows;
mod timestamp;

use std::io;
use std::path::PathBuf;

use hapax_core::engine::EngineError;
use hapax_core::store::StoreError;

use crate::config::ConfigErrors;
use crate::store_files::StoreFileError;

/// Why a comparison could not be made.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The configuration is wrong.
    #[error(transparent)]
    Configuration(ConfigErrors),
    /// The flags do not fit together.
    #[error("{0}")]
    Usage(String),
    /// The ledger cannot be read.
    #[error("the ledger `{}` cannot be read: {source}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The ledger is not what its name says.
    #[error("the ledger {0}")]
    Form(String),
    /// The temporary database failed.
    #[error("the working file failed: {0}; free some space where temporary files are kept, or set TMPDIR")]
    Work(#[from] rusqlite::Error),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store cannot be opened.
    #[error(transparent)]
    Open(StoreFileError),
    /// A record could not be resolved.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The report cannot be written.
    #[error("the report cannot be written: {0}")]
    Report(io::Error),
    /// Nor can it after `--apply`.
    #[error("the report cannot be written: {0}; what the ledger decides was resolved, and is in the audit log")]
    ReportAfter(io::Error),
}

impl From<StoreFileError> for LedgerError {
    fn from(error: StoreFileError) -> Self {
        match error {
            StoreFileError::Configuration(errors) => Self::Configuration(errors),
            other => Self::Open(other),
        }
    }
}
