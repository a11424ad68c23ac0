//! Why nothing was done, in words: the state the record is in, and what to do instead.

use hapax_core::address::Id;
use hapax_core::clock::Now;
use hapax_core::engine::EngineError;
use hapax_core::record::{OnLapse, State, Stored};
use hapax_core::store::{Damaged, Entry, ErrorKind, StoreError};

use super::{DeskError, DeskErrorKind, shown};
use crate::timestamp;

/// Records that are named where several fit.
const NAMED_MAX: usize = 8;

/// A resolution that the state does not allow.
pub(super) fn resolution(id: &Id, stored: &Stored, now: Now) -> DeskError {
    let record = &stored.record;
    let said = record.verdict.map(shown::verdict);
    let status = record.outcome.as_ref().map_or(0, |outcome| outcome.status);
    conflict(match (record.state, said) {
        (State::Completed, Some(said)) => format!(
            "the record is completed: it was resolved as {said} before, with the answer {status}, and a verdict stands; only \
             if it provably did not happen, free its key with `hapax keys purge {id} --allow-rerun` (without the flag the key \
             stays taken)"
        ),
        (State::Completed, None) => format!(
            "the record is completed: its own attempt recorded the answer {status}; nothing is uncertain, so there is \
             nothing to resolve"
        ),
        (State::Ready, Some(said)) => format!(
            "the record is ready: it was resolved as {said} before, and the next request with the key runs; wait for it, \
             or keep the key taken with `hapax keys purge {id}`"
        ),
        (State::Ready, None) => "the record is ready: its last attempt did nothing, and the next request with the key \
                                 runs; there is nothing to resolve"
            .to_owned(),
        (State::Running, _) => running(stored, now),
        (State::Expired, _) => format!("{}; nothing can be recorded", expired(stored, now)),
        (state @ (State::Unknown | State::Dead), _) => format!("the record is {state}; look at it again and repeat"),
    })
}

/// An attempt that is under way, or was when its lease ended.
fn running(stored: &Stored, now: Now) -> String {
    let (attempt, policy) = (stored.record.attempt, stored.record.policy);
    let until = stored.due_at().unwrap_or_default();
    let at = timestamp::text(until);
    let ended = format!("the lease of attempt {attempt} ended at {at}, and no node has noticed");
    match policy.on_lapse {
        _ if now.at < until => format!(
            "the record is running, attempt {attempt} under a lease until {at}; wait until it completes, or becomes unknown \
             when the lease lapses"
        ),
        _ if now.paused => {
            format!(
                "{ended}: the store does not trust its clock, so nothing lapses; repeat it when the clock is steady"
            )
        }
        OnLapse::Unknown => format!("{ended}; resolve the record"),
        OnLapse::Rerun | OnLapse::Resume => {
            format!("{ended}; by its policy nothing is uncertain, and a node or the next request goes on with it")
        }
    }
}

/// What is left of an answer, and what that means for the key.
fn expired(stored: &Stored, now: Now) -> String {
    match shown::taken_until(stored, now) {
        Some(until) => {
            format!("the record is expired: only its tombstone is left, which keeps the key taken until {until}")
        }
        None => "the record is expired, and its key is free: the next request with it runs".to_owned(),
    }
}

/// A purge that the state does not allow.
pub(super) fn purge(stored: &Stored, now: Now) -> DeskError {
    conflict(match stored.record.state {
        State::Running => format!("it is not touched: {}", running(stored, now)),
        State::Expired => format!("{}; there is no answer left to take away", expired(stored, now)),
        state => format!("the record is {state}: there is no answer left to take away"),
    })
}

/// The record has moved on.
pub(super) fn stale(stored: &Stored, attempt: Option<u32>) -> DeskError {
    let (now, meant) = (stored.record.attempt, attempt.unwrap_or_default());
    conflict(format!("the record is at attempt {now}, and attempt {meant} was meant: look at it again"))
}

pub(super) fn not_found() -> DeskError {
    DeskError::new(DeskErrorKind::NotFound, "there is no such record; it may have expired, or the name is mistyped")
}

/// None was found, but these could not be read: one of them may be it.
pub(super) fn not_found_beside(damaged: &[Damaged]) -> DeskError {
    let named: Vec<String> = damaged.iter().take(NAMED_MAX).map(|one| shown::damaged(one).named()).collect();
    let (count, named) = (damaged.len(), named.join(", "));
    let message = format!("there is no such record among those that can be read; {count} cannot be: {named}");
    DeskError::new(DeskErrorKind::NotFound, message)
}

/// The record that is meant, or may be, cannot be read.
pub(super) fn damaged(damaged: &Damaged) -> DeskError {
    let damaged = shown::damaged(damaged);
    conflict(format!("the record {} cannot be read: {}", damaged.named(), damaged.reason))
}

/// The search ended before the last record.
pub(super) fn not_found_so_far() -> DeskError {
    let message = "no unfinished record fits, and the search among the others stopped before the last one; name the record \
                   by its id, or by scope and key";
    DeskError::new(DeskErrorKind::NotFound, message)
}

/// Only one of those was found, and there may be others.
pub(super) fn may_be_several() -> DeskError {
    let message =
        "the search stopped before the last record, so others may have this key too; name the scope, or the id";
    DeskError::new(DeskErrorKind::Several, message)
}

/// Names them, so that one can be chosen.
pub(super) fn several(entries: &[Entry]) -> DeskError {
    let named = entries.iter().take(NAMED_MAX).map(|entry| {
        let (at, state) = (&entry.address, entry.stored.record.state);
        format!("{} ({state}, key {:?}, scope {})", at.id(), at.key().as_str(), at.scope().as_str())
    });
    let named: Vec<String> = named.collect();
    let more = if entries.len() > NAMED_MAX { ", and more" } else { "" };
    let message = format!("several records fit: {}{more}; name one by its id", named.join(", "));
    DeskError::new(DeskErrorKind::Several, message)
}

pub(super) fn conflict(message: impl Into<String>) -> DeskError {
    DeskError::new(DeskErrorKind::Conflict, message)
}

impl From<StoreError> for DeskError {
    fn from(error: StoreError) -> Self {
        let kind = match error.kind {
            ErrorKind::Unavailable | ErrorKind::Ambiguous | ErrorKind::Unsuitable => DeskErrorKind::Unavailable,
            ErrorKind::Damaged => DeskErrorKind::Conflict,
            ErrorKind::Invalid => DeskErrorKind::Invalid,
        };
        Self::new(kind, error.message)
    }
}

impl From<EngineError> for DeskError {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Store(error) => error.into(),
            other => conflict(other.to_string()),
        }
    }
}
