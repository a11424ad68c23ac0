//! What becomes of one record of an old file: taken over, settled, or left alone.
//!
//! What is completed is true wherever it was written, so it may be taken over as it is. What is not is taken over as
//! `unknown`: it may have run. Nothing that stands in the store is overwritten: it changes only where the rules say that the
//! old answer settles it. Nothing is ever made to run by this.

use std::sync::Arc;

use hapax::tokens;
use hapax_core::clock::{Now, Timestamp};
use hapax_core::record::{AttemptId, Outcome, Record, State, Stored, Verdict, Version};
use hapax_core::store::Seen;
use hapax_core::transition::{Event, decide};

/// What is to be done about it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Plan {
    /// The store has it, or has something newer, or it no longer matters.
    Leave(Left),
    /// The store lacks it: written as it is.
    Copy(Box<Record>),
    /// The store lacks it, and nobody knows what became of it.
    Doubt(Box<Record>),
    /// The store's record is of the same attempt, which completed later.
    Complete(AttemptId, Arc<Outcome>),
    /// The store does not know what became of it, and the old file does.
    Settle(Verdict, Arc<Outcome>),
}

/// Why a record is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// It is the same.
    Same,
    /// What stands in the store stays: it is newer, or settled.
    Stands,
    /// It was for another request than the one that stands in the store.
    OtherRequest,
    /// Its key was free: the fence sees to it.
    Free,
    /// Its time is over.
    Over,
}

/// What to do about a record of an old file, where the store has that.
pub(super) fn plan(old: &Stored, seen: &Seen) -> Plan {
    let record = &old.record;
    match &seen.stored {
        None => missing(old, seen.now),
        Some(current) if current.record.version == record.version => Plan::Leave(Left::Same),
        Some(current) => match (&record.outcome, current.record.state) {
            (Some(outcome), State::Running | State::Unknown | State::Dead) if record.state == State::Completed => {
                settled(record, outcome, &current.record)
            }
            _ => Plan::Leave(Left::Stands),
        },
    }
}

fn settled(old: &Record, outcome: &Arc<Outcome>, current: &Record) -> Plan {
    let verdict = old.verdict.unwrap_or(Verdict::Happened);
    match (current.attempt_id, current.state) {
        _ if old.fingerprint != current.fingerprint => Plan::Leave(Left::OtherRequest),
        (Some(attempt_id), _) if old.attempt_id == Some(attempt_id) && old.verdict.is_none() => {
            Plan::Complete(attempt_id, Arc::clone(outcome))
        }
        (_, State::Unknown | State::Dead) => Plan::Settle(verdict, Arc::clone(outcome)),
        _ => Plan::Leave(Left::Stands),
    }
}

fn missing(old: &Stored, now: Now) -> Plan {
    let record = &old.record;
    match record.state {
        State::Completed | State::Expired => match left_ms(old.expires_at(), now) {
            Some(0) => Plan::Leave(Left::Over),
            expires_in_ms => {
                let (version, created_at) = (new_version(), Some(record.created_at.unwrap_or(old.stamped_at)));
                Plan::Copy(Box::new(Record { version, created_at, expires_in_ms, due_in_ms: None, ..record.clone() }))
            }
        },
        State::Running | State::Unknown | State::Dead => doubtful(old, now),
        State::Ready => Plan::Leave(Left::Free),
    }
}

/// As the rules make a key unknown that may have been claimed in what was lost, with what is known of its last attempt.
fn doubtful(old: &Stored, now: Now) -> Plan {
    let record = &old.record;
    let (fingerprints, policy, labels) = (&record.fingerprint, record.policy, &record.labels);
    let suspect = Event::Suspect { since: now.at, fingerprints, policy, labels };
    let decided = decide(&Seen { stored: None, now }, &suspect, new_version()).ok().and_then(|decided| decided.write);
    decided.map_or(Plan::Leave(Left::Free), |unknown| {
        let created_at = Some(record.created_at.unwrap_or(old.stamped_at));
        let (attempt, attempt_id, request) = (record.attempt, record.attempt_id, record.request.clone());
        Plan::Doubt(Box::new(Record { attempt, attempt_id, request, created_at, ..unknown }))
    })
}

/// `None`: for ever.
fn left_ms(end: Option<Timestamp>, now: Now) -> Option<u64> {
    end.map(|end| now.at.ms_until(end))
}

fn new_version() -> Version {
    Version::from_bytes(tokens::random())
}

#[cfg(test)]
mod tests {
    use super::*;
    use hapax_core::fingerprint::{Fingerprint, Scheme};
    use hapax_core::record::{Body, OnLapse, Policy};

    const NOW: Now = Now { at: Timestamp::from_ms(10_000), paused: false };
    const OURS: AttemptId = AttemptId::from_bytes([3; 16]);

    fn fingerprint(digest: u8) -> Fingerprint {
        Fingerprint { scheme: Scheme::new("1;sha256").unwrap(), digest: [digest; 32] }
    }

    fn outcome() -> Arc<Outcome> {
        Arc::new(Outcome { status: 201, headers: Vec::new(), body: Body::Kept(b"paid".to_vec()) })
    }

    /// Written at second 5, to be kept until second 15.
    fn stored(state: State) -> Stored {
        let policy = Policy { on_lapse: OnLapse::Rerun, ..Policy::default() };
        let record = Record {
            attempt: 2,
            attempt_id: Some(OURS),
            expires_in_ms: matches!(state, State::Completed | State::Ready).then_some(10_000),
            due_in_ms: Some(0),
            outcome: (state == State::Completed).then(outcome),
            ..Record::new(new_version(), state, fingerprint(7), policy)
        };
        Stored { record, stamped_at: Timestamp::from_ms(5_000) }
    }

    fn beside(current: Option<Stored>) -> Seen {
        Seen { stored: current, now: NOW }
    }

    #[test]
    fn an_answer_is_copied_for_the_rest_of_its_time() {
        let old = stored(State::Completed);
        let Plan::Copy(next) = plan(&old, &beside(None)) else { panic!("it is missing") };
        assert_eq!((next.state, next.expires_in_ms, next.due_in_ms), (State::Completed, Some(5_000), None));
        assert_eq!((next.outcome.clone(), next.created_at), (Some(outcome()), Some(old.stamped_at)));
        assert_ne!(next.version, old.record.version);
        let over = Stored { stamped_at: Timestamp::from_ms(0), ..old };
        assert_eq!(plan(&over, &beside(None)), Plan::Leave(Left::Over));
    }

    #[test]
    fn what_was_not_finished_is_never_made_to_run() {
        for state in [State::Running, State::Unknown, State::Dead] {
            let Plan::Doubt(next) = plan(&stored(state), &beside(None)) else { panic!("{state:?}") };
            assert_eq!((next.state, next.attempt, next.attempt_id), (State::Unknown, 2, Some(OURS)), "{state:?}");
            assert_eq!((next.outcome.as_ref(), next.doubt.and_then(|doubt| doubt.since)), (None, Some(NOW.at)));
        }
        assert_eq!(plan(&stored(State::Ready), &beside(None)), Plan::Leave(Left::Free));
    }

    #[test]
    fn what_stands_in_the_store_changes_only_where_nobody_knew() {
        let old = stored(State::Completed);
        let same = beside(Some(old.clone()));
        assert_eq!(plan(&old, &same), Plan::Leave(Left::Same));
        for (state, is_settled) in [
            (State::Running, true),
            (State::Unknown, true),
            (State::Dead, true),
            (State::Ready, false),
            (State::Completed, false),
            (State::Expired, false),
        ] {
            let current = stored(state);
            let expected = if is_settled { Plan::Complete(OURS, outcome()) } else { Plan::Leave(Left::Stands) };
            assert_eq!(plan(&old, &beside(Some(current.clone()))), expected, "{state:?}");
            let mut other = current.clone();
            other.record.fingerprint = fingerprint(8);
            let expected = if is_settled { Left::OtherRequest } else { Left::Stands };
            assert_eq!(plan(&old, &beside(Some(other))), Plan::Leave(expected), "{state:?}");
            let mut another_attempt = current;
            another_attempt.record.attempt_id = None;
            let expected = match state {
                State::Unknown | State::Dead => Plan::Settle(Verdict::Happened, outcome()),
                _ => Plan::Leave(Left::Stands),
            };
            assert_eq!(plan(&old, &beside(Some(another_attempt))), expected, "{state:?}");
        }
    }
}
