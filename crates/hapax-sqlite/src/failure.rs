//! What SQLite said, in words and kinds a caller can act on.

use hapax_core::store::{ErrorKind, StoreError};
use rusqlite::{Error, ErrorCode};

pub(crate) const NOT_WRITABLE: &str = "the database cannot be written; make the file and its directory writable";

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
        Some(ErrorCode::ReadOnly) => (ErrorKind::Unsuitable, NOT_WRITABLE),
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

/// Whether somebody else was in the way, and a later try may get on.
pub(crate) fn is_busy(error: &StoreError) -> bool {
    let source = error.source.as_deref().and_then(|source| source.downcast_ref::<Error>());
    let code = source.and_then(Error::sqlite_error_code);
    matches!(code, Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

pub(crate) const COMMIT_LOST: &str = "the disk failed during a commit; what was written is not known; the store has stopped; check the device, then restart";

/// The store's own threads are gone: it was closed.
pub(crate) fn stopped(op: &'static str) -> StoreError {
    StoreError::new(op, ErrorKind::Unavailable, "the store is closed; restart the process")
}

/// A commit failed on disk some time ago, and the store has stopped.
pub(crate) fn log_failed(op: &'static str) -> StoreError {
    StoreError::new(
        op,
        ErrorKind::Unavailable,
        "the disk failed while the log was written, so the store has stopped: nothing was acknowledged since; check the \
         device, its file system and the space left, then restart every process that uses the store: the start writes the \
         log to the disk again, and is refused if that fails",
    )
}

/// The file could not be written or synced some time ago, and the store has stopped.
pub(crate) fn file_failed(op: &'static str) -> StoreError {
    StoreError::new(
        op,
        ErrorKind::Unavailable,
        "the disk failed while the log was copied into the file, so the store has stopped: what was acknowledged is in the \
         log; check the device, its file system and the space left, then restart every process that uses the store: the \
         start copies it again, and is refused if that fails",
    )
}

/// The threads went away with the operation in hand.
pub(crate) fn abandoned(op: &'static str) -> StoreError {
    StoreError::new(op, ErrorKind::Ambiguous, "the store stopped before it answered; read the record again")
}
