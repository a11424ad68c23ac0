//! What PostgreSQL or the driver said, in words and kinds a caller can act on.
//!
//! The one question that matters for a write is whether it may be there. An error that the server sent with a code means
//! that the transaction was rolled back, except where the server was going down; no answer means that nobody knows.

use hapax_core::store::{ErrorKind, StoreError};
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

use crate::hosts::Unusable;

/// A statement that cannot have written anything: a read, a preparation, a part of a caller's open transaction.
pub(crate) fn of_read(op: &'static str, error: Error) -> StoreError {
    let (kind, message) = match error.code() {
        Some(code) => of_code(code),
        None => (ErrorKind::Unavailable, "the connection to the server was lost; it is opened again by the next call"),
    };
    StoreError::new(op, kind, message).caused_by(error)
}

/// A step of a migration. It is rolled back with all that came before it.
pub(crate) fn of_migration(error: Error) -> StoreError {
    if is_lock(&error) {
        let message = "an open transaction or a dump holds hapax's tables, so they were not migrated; nothing was changed; \
                       end it, then open the store again";
        return StoreError::new("migrate", ErrorKind::Unavailable, message).caused_by(error);
    }
    of_read("migrate", error)
}

/// A statement in a caller's transaction, by the server's code. No failure of it is ambiguous: the caller has not committed.
pub(crate) fn of_guest(op: &'static str, code: Option<&SqlState>) -> StoreError {
    let lost = (ErrorKind::Unavailable, "the transaction's connection was lost; nothing was written; begin again");
    let (kind, message) = code.filter(|code| !may_have_committed(code)).map_or(lost, of_code);
    StoreError::new(op, kind, message)
}

/// A statement that writes, and is a transaction by itself.
pub(crate) fn of_write(op: &'static str, error: Error) -> StoreError {
    match error.code() {
        Some(code) if !may_have_committed(code) => of_read(op, error),
        _ => {
            let message = "the connection was lost before the server answered; the write may be there; read it back";
            StoreError::new(op, ErrorKind::Ambiguous, message).caused_by(error)
        }
    }
}

/// The server was going away, or says itself that it does not know.
fn may_have_committed(code: &SqlState) -> bool {
    code.code().starts_with("08")
        || code.code().starts_with("57P")
        || *code == SqlState::T_R_STATEMENT_COMPLETION_UNKNOWN
}

/// Whether the session ended with that error, although the driver may not have noticed yet.
pub(crate) fn is_last_word(error: &Error) -> bool {
    error.is_closed() || error.code().is_none_or(may_have_committed)
}

/// Whether one row of a batch may be the reason, so that the others have to be tried without it.
pub(crate) fn may_be_one_row(error: &Error) -> bool {
    let class = |code: &SqlState| ["22", "23", "40", "54", "55"].contains(&code.code().get(..2).unwrap_or_default());
    error.code().is_some_and(|code| class(code) && !may_have_committed(code))
}

/// Whether somebody else's lock was in the way for too long.
pub(crate) fn is_lock(error: &Error) -> bool {
    let locks = [&SqlState::LOCK_NOT_AVAILABLE, &SqlState::T_R_DEADLOCK_DETECTED, &SqlState::T_R_SERIALIZATION_FAILURE];
    error.code().is_some_and(|code| locks.contains(&code))
}

const HELD: &str = "an open transaction holds the record; nothing was written; end it or try again";

fn of_code(code: &SqlState) -> (ErrorKind, &'static str) {
    match *code {
        SqlState::LOCK_NOT_AVAILABLE => (ErrorKind::Unavailable, HELD),
        SqlState::T_R_DEADLOCK_DETECTED | SqlState::T_R_SERIALIZATION_FAILURE => {
            (ErrorKind::Unavailable, "another transaction wrote the same record; nothing was written; try again")
        }
        SqlState::QUERY_CANCELED => (
            ErrorKind::Unavailable,
            "the server took longer than the statement timeout; nothing was written; try again, or allow more time",
        ),
        SqlState::READ_ONLY_SQL_TRANSACTION => {
            (ErrorKind::Unsuitable, "the server is a standby or read-only; nothing was written; connect to the primary")
        }
        SqlState::DISK_FULL => {
            (ErrorKind::Unavailable, "the server's disk is full; nothing was written; free some space on it")
        }
        SqlState::TOO_MANY_CONNECTIONS => (
            ErrorKind::Unavailable,
            "the server has no connection left; nothing was written; raise max_connections or use fewer connections",
        ),
        SqlState::INVALID_PASSWORD | SqlState::INVALID_AUTHORIZATION_SPECIFICATION => (
            ErrorKind::Unsuitable,
            "the server refused the user or the password; correct them in the connection string",
        ),
        SqlState::INVALID_CATALOG_NAME => {
            (ErrorKind::Unsuitable, "the database does not exist; create it or correct the connection string")
        }
        SqlState::INSUFFICIENT_PRIVILEGE => (
            ErrorKind::Unsuitable,
            "the user may not use hapax's schema; grant it, or let a user with more rights open the store once",
        ),
        SqlState::UNDEFINED_TABLE | SqlState::INVALID_SCHEMA_NAME | SqlState::UNDEFINED_COLUMN => {
            (ErrorKind::Unsuitable, "hapax's tables are gone or of another release; nothing was written; restart hapax")
        }
        SqlState::INVALID_SQL_STATEMENT_NAME | SqlState::DUPLICATE_PSTATEMENT => (
            ErrorKind::Unsuitable,
            "prepared statements do not last: there is a pooler in transaction mode; open the store with_pooler()",
        ),
        _ => (ErrorKind::Unavailable, "PostgreSQL refused the statement; nothing was written"),
    }
}

/// None of the hosts can be used. With several, each is named with its reason; a standby among them may be promoted.
pub(crate) fn of_hosts(op: &'static str, mut reasons: Vec<(String, Unusable)>) -> StoreError {
    if reasons.len() <= 1 {
        return reasons.pop().map_or_else(|| no_connection(op), |(_, reason)| of_host(op, reason));
    }
    let (mut kind, mut said) = (ErrorKind::Unsuitable, Vec::new());
    for (host, reason) in reasons {
        let is_silent = matches!(reason, Unusable::Silent);
        let error = of_host(op, reason);
        said.push(format!("{host}: {}", if is_silent { SILENT.to_owned() } else { in_short(&error) }));
        if error.kind != ErrorKind::Unsuitable {
            kind = ErrorKind::Unavailable;
        }
    }
    let message = format!(
        "none of the hosts can be used ({}); nothing was written; check that one of them runs and is the primary",
        said.join("; ")
    );
    StoreError::new(op, kind, message)
}

const SILENT: &str = "it did not answer in time";

/// Cause without next step, of a host that was named.
fn in_short(error: &StoreError) -> String {
    let cause = error.message.split(';').next().unwrap_or_default();
    cause.strip_prefix("the server ").map_or_else(|| cause.to_owned(), |rest| format!("it {rest}"))
}

fn of_host(op: &'static str, reason: Unusable) -> StoreError {
    match reason {
        Unusable::Refused(error) => of_connect(op, error),
        Unusable::Unsuitable(reason) => unsuitable(op, reason),
        Unusable::Nameless(error) => StoreError::new(op, ErrorKind::Unavailable, UNREACHABLE).caused_by(error),
        Unusable::Silent => no_connection(op),
    }
}

const UNREACHABLE: &str = "the server cannot be reached; nothing was written; check that it runs and listens there";

/// The server takes no writes, or none any more: the next connection may lead to one that does.
pub(crate) fn is_read_only(error: &Error) -> bool {
    error.code() == Some(&SqlState::READ_ONLY_SQL_TRANSACTION)
}

/// The driver passed over a host because it takes no writes. It says so in its words only.
fn takes_no_writes(error: &Error) -> bool {
    let said = std::error::Error::source(error).map(ToString::to_string);
    said.as_deref() == Some("database does not allow writes")
}

/// A connection could not be made.
pub(crate) fn of_connect(op: &'static str, error: Error) -> StoreError {
    if let Some((kind, message)) = of_tls(&error) {
        return StoreError::new(op, kind, message).caused_by(error);
    }
    let (kind, message) = match error.code() {
        Some(_) if wants_tls(&error) => (
            ErrorKind::Unsuitable,
            "the server lets nobody in from here without TLS; add sslmode=require to the connection string, or allow it",
        ),
        Some(code) if code.code().starts_with("57P") => {
            (ErrorKind::Unavailable, "the server is starting or stopping; nothing was written; try again")
        }
        Some(code) => of_code(code),
        None if takes_no_writes(&error) => (
            ErrorKind::Unavailable,
            "the server is a standby or read-only; nothing was written; promote it, or its primary",
        ),
        None => (ErrorKind::Unavailable, UNREACHABLE),
    };
    StoreError::new(op, kind, message).caused_by(error)
}

/// A handshake that failed. The driver keeps the kind of its errors to itself, but says it in its words.
fn of_tls(error: &Error) -> Option<(ErrorKind, String)> {
    if error.to_string() != "error performing TLS handshake" {
        return None;
    }
    let cause = std::error::Error::source(error);
    let said = cause.map(ToString::to_string).unwrap_or_default();
    if cause.is_some_and(<dyn std::error::Error>::is::<tokio_postgres::tls::NoTlsError>) {
        let message =
            "the connection string asks for TLS, and none was given; use Postgres::open_with_tls, or another sslmode";
        return Some((ErrorKind::Unsuitable, message.to_owned()));
    }
    if said == "server does not support TLS" {
        let message = "the server does not speak TLS, and TLS is required (by sslmode or ca_file); nothing was sent; turn \
                       ssl on at the server";
        return Some((ErrorKind::Unsuitable, message.to_owned()));
    }
    let broke_off = cause.and_then(|cause| cause.downcast_ref::<std::io::Error>()).is_some_and(|error| {
        !matches!(error.kind(), std::io::ErrorKind::InvalidData | std::io::ErrorKind::InvalidInput)
    });
    let kind = if broke_off { ErrorKind::Unavailable } else { ErrorKind::Unsuitable };
    let message = format!(
        "the TLS handshake failed ({said}); check the server's certificate, the authority that is trusted, and the \
         host's name"
    );
    Some((kind, message))
}

/// Whether the server refused the connection because it is not encrypted, in the words of PostgreSQL.
fn wants_tls(error: &Error) -> bool {
    let refused = |error: &tokio_postgres::error::DbError| {
        *error.code() == SqlState::INVALID_AUTHORIZATION_SPECIFICATION && error.message().ends_with("no encryption")
    };
    error.as_db_error().is_some_and(refused)
}

/// No connection within the time allowed.
pub(crate) fn no_connection(op: &'static str) -> StoreError {
    let message = "no connection could be had in time; nothing was written; check the server and the network";
    StoreError::new(op, ErrorKind::Unavailable, message)
}

/// A read that was not answered in time.
pub(crate) fn unanswered_read(op: &'static str) -> StoreError {
    StoreError::new(op, ErrorKind::Unavailable, "the server did not answer in time; check the server and the network")
}

/// A write that was not answered in time.
pub(crate) fn unanswered_write(op: &'static str) -> StoreError {
    let message = "the server did not answer in time; the write may be there; read it back";
    StoreError::new(op, ErrorKind::Ambiguous, message)
}

/// Its turn did not come.
pub(crate) fn crowded(op: &'static str) -> StoreError {
    let message = "too many operations are waiting; nothing was written; try again, or allow more connections";
    StoreError::new(op, ErrorKind::Unavailable, message)
}

/// Another transaction kept the record for too long.
pub(crate) fn held(op: &'static str) -> StoreError {
    StoreError::new(op, ErrorKind::Unavailable, HELD)
}

/// A server that cannot be worked with.
pub(crate) fn unsuitable(op: &'static str, message: impl Into<String>) -> StoreError {
    StoreError::new(op, ErrorKind::Unsuitable, message)
}

/// The server became a standby, or a pooler led to one.
pub(crate) fn standby(op: &'static str) -> StoreError {
    unsuitable(op, "the server is a standby: what it says may be old; connect to the primary")
}

/// The store's tasks are gone: their runtime was shut down.
pub(crate) fn stopped(op: &'static str) -> StoreError {
    StoreError::new(op, ErrorKind::Unavailable, "the store has stopped; open it again")
}

/// The tasks went away with the operation in hand.
pub(crate) fn abandoned(op: &'static str) -> StoreError {
    StoreError::new(op, ErrorKind::Ambiguous, "the store stopped before it answered; read the record again")
}

/// The same failure for everyone in a batch; the first gets its source as well.
pub(crate) fn share(cause: &mut Option<StoreError>) -> StoreError {
    match cause.take() {
        Some(error) => {
            *cause = Some(StoreError::new(error.op, error.kind, error.message.clone()));
            error
        }
        None => stopped("swap"),
    }
}
