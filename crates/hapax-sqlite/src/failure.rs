//! What SQLite said, in words and kinds a caller can act on.

use hapax_core::store::{ErrorKind, StoreError};
use rusqlite::{Error, ErrorCode};

/// A failure of a statement before the commit: the transaction is rolled back, so nothing was written.
pub(crate) fn of_statement(op: &'static str, error: Error) -> StoreError {
    let (kind, message) = match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => {
            (ErrorKind::Unavailable, "the disk or the file's size limit is full; nothing was written; free some space")
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => (
            ErrorKind::Unavailable,
            "another process or an open transaction holds the database; nothing was written; end it or try again",
        ),
        Some(ErrorCode::ReadOnly) => {
            (ErrorKind::Unsuitable, "the database cannot be written; make the file and its directory writable")
        }
        Some(ErrorCode::PermissionDenied | ErrorCode::CannotOpen) => (
            ErrorKind::Unsuitable,
            "the database cannot be opened; check that its directory exists and that this user may write to it",
        ),
        Some(ErrorCode::NotADatabase) => {
            (ErrorKind::Unsuitable, "the file is not an SQLite database; give another path or move the file away")
        }
        Some(ErrorCode::DatabaseCorrupt) => {
            (ErrorKind::Damaged, "the database file is damaged; stop, keep a copy, and restore a backup")
        }
        Some(ErrorCode::SystemIoFailure) => {
            (ErrorKind::Unavailable, "the disk failed; nothing was written; check the device and its file system")
        }
        _ => (ErrorKind::Unavailable, "SQLite refused the statement; nothing was written"),
    };
    StoreError::new(op, kind, message).caused_by(error)
}

/// A failure of the commit itself. After a failed write to disk nobody knows what is there; a second try would
/// only pretend to.
pub(crate) fn of_commit(error: Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(ErrorCode::SystemIoFailure) => {
            StoreError::new("swap", ErrorKind::Ambiguous, COMMIT_LOST.to_owned()).caused_by(error)
        }
        _ => of_statement("swap", error),
    }
}

pub(crate) const COMMIT_LOST: &str =
    "the disk failed during a commit; what was written is not known; check the device, then restart";

/// The store's own threads are gone: it was closed, or a disk failure stopped it.
pub(crate) fn stopped(op: &'static str) -> StoreError {
    StoreError::new(op, ErrorKind::Unavailable, "the store has stopped; restart the process")
}

/// The threads went away with the operation in hand.
pub(crate) fn abandoned(op: &'static str) -> StoreError {
    StoreError::new(op, ErrorKind::Ambiguous, "the store stopped before it answered; read the record again")
}
