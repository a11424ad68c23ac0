//! Every rule, in one pure function: [`decide`].
//!
//! Given what the store said of an address ([`Seen`]) and what somebody wants ([`Event`]), `decide` says what to write,
//! if anything, and what to answer. It reads no clock, draws no random number and awaits nothing, so it is tested by
//! enumeration and by model checking. The table is in `docs/state_machine.md`, and a test compares the two.
//!
//! An attempt is recognised by its [`AttemptId`]: "mine" means the same one. That is the fence. Who lost it changes
//! nothing.

use std::sync::Arc;

use crate::clock::{Now, Timestamp};
use crate::fingerprint::Fingerprints;
use crate::record::{AttemptId, Doubt, Labels, OnLapse, Outcome, Policy, Record, State, Stored, Verdict, Version};
use crate::store::Seen;

pub use crate::event::{Answer, Claimant, Decision, Event, Resolution, UnrecognisedScheme};

/// What may happen to a key.
///
/// `version` becomes the version of whatever is written: random, never used before.
///
/// # Errors
/// If the stored fingerprint cannot be compared. That is never a mismatch.
pub fn decide(seen: &Seen, event: &Event<'_>, version: Version) -> Result<Decision, UnrecognisedScheme> {
    Rules { fence: true }.decide(seen, event, version)
}

/// The rules, with a switch that only the model checker's toothless twin turns off.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) fence: bool,
}

/// What stands at the address, seen with the clock in hand.
enum Found<'a> {
    Free,
    Tombstone(&'a Stored),
    Live(&'a Stored),
}

impl Rules {
    pub(crate) fn decide(
        self,
        seen: &Seen,
        event: &Event<'_>,
        version: Version,
    ) -> Result<Decision, UnrecognisedScheme> {
        let found = find(seen);
        match *event {
            Event::Claim { fingerprints, .. } | Event::Accept { fingerprints, .. } => {
                start(&found, seen.now, event, fingerprints, version)
            }
            Event::Renew { attempt_id }
            | Event::Checkpoint { attempt_id, .. }
            | Event::Complete { attempt_id, .. }
            | Event::Fail { attempt_id, .. }
            | Event::Doubt { attempt_id, .. } => Ok(self.attempt(&found, attempt_id, event, seen.now, version)),
            Event::Lapse => Ok(lapse(&found, seen.now, version)),
            Event::Expire { never_ran } => Ok(expire(&found, seen.now, never_ran, version)),
            Event::Suspect { fingerprints, .. } => suspect(&found, event, fingerprints, version),
            Event::Inconclusive { attempt, probe_in_ms, probes_max } => {
                Ok(inconclusive(&found, attempt, probe_in_ms, probes_max, version))
            }
            Event::Resolve { resolution, attempt, since } => Ok(resolve(&found, resolution, (attempt, since), version)),
            Event::Purge { allow_rerun } => Ok(purge(&found, allow_rerun, version)),
        }
    }

    fn is_mine(self, record: &Record, attempt_id: AttemptId) -> bool {
        record.attempt_id == Some(attempt_id) || !self.fence
    }

    /// Renew, checkpoint, complete, fail, doubt: only the attempt itself may.
    fn attempt(
        self,
        found: &Found<'_>,
        attempt_id: AttemptId,
        event: &Event<'_>,
        now: Now,
        version: Version,
    ) -> Decision {
        let Found::Live(stored) = found else {
            return answer(Answer::Fenced);
        };
        let record = &stored.record;
        if !self.is_mine(record, attempt_id) {
            return answer(fenced(event));
        }
        let next = next_of(stored, version);
        match (record.state, event) {
            (State::Running | State::Unknown | State::Ready, Event::Renew { .. }) => write(running(next), Answer::Done),
            (State::Running | State::Unknown | State::Ready, Event::Checkpoint { checkpoint, .. }) => {
                write(running(Record { checkpoint: Some((*checkpoint).clone()), ..next }), Answer::Done)
            }
            (State::Dead, Event::Checkpoint { checkpoint, .. }) => {
                let due_in_ms = remaining_due_ms(stored, now);
                write(Record { checkpoint: Some((*checkpoint).clone()), due_in_ms, ..next }, Answer::Done)
            }
            (State::Running | State::Unknown | State::Dead | State::Ready, Event::Complete { outcome, labels, .. }) => {
                let was_denied = record.verdict == Some(Verdict::DidNotHappen);
                let said = if was_denied { Answer::Contradicted } else { Answer::Done };
                // The attempt itself has settled it; no verdict stands any longer.
                write(completed(Record { verdict: None, ..next.with_labels(labels) }, outcome), said)
            }
            (State::Running | State::Unknown | State::Dead, Event::Fail { error, retry_in_ms, keep_ms, .. }) => {
                let next = failed(next, error);
                let is_dead = attempts_used_up(&next, &next.policy);
                write(if is_dead { dead(next) } else { ready(next, *retry_in_ms, *keep_ms) }, Answer::Done)
            }
            // Somebody said that it may run again, whatever the number of attempts.
            (State::Ready, Event::Fail { error, retry_in_ms, keep_ms, .. }) => {
                write(ready(failed(next, error), *retry_in_ms, *keep_ms), Answer::Done)
            }
            (State::Running, Event::Doubt { error, probe_in_ms, .. }) => {
                write(unknown(Record { error: Some((*error).to_owned()), ..next }, *probe_in_ms), Answer::Done)
            }
            // It was at work until now: whoever asks must wait from here.
            (State::Unknown, Event::Doubt { error, probe_in_ms, .. }) => {
                let next = Record { error: Some((*error).to_owned()), doubt: None, ..next };
                write(unknown(next, *probe_in_ms), Answer::Done)
            }
            (State::Dead, Event::Doubt { .. }) => answer(Answer::Done),
            (State::Dead, Event::Renew { .. }) => answer(Answer::Undecided),
            (State::Completed, Event::Complete { .. }) if record.verdict.is_some() => answer(Answer::Overruled),
            // Said once more, because the reply to the first time was lost.
            (State::Completed, Event::Complete { outcome, .. }) if record.outcome.as_ref() == Some(*outcome) => {
                answer(Answer::Done)
            }
            _ => answer(Answer::Fenced),
        }
    }
}

/// Whether what is there, if anything, was another request.
fn is_mismatch(found: &Found<'_>, fingerprints: &dyn Fingerprints) -> Result<bool, UnrecognisedScheme> {
    let (Found::Live(stored) | Found::Tombstone(stored)) = found else { return Ok(false) };
    let recorded = &stored.record.fingerprint;
    match fingerprints.under(&recorded.scheme) {
        Some(computed) => Ok(!computed.matches(&recorded.digest)),
        None => Err(UnrecognisedScheme(recorded.scheme.clone())),
    }
}

/// Claim and accept: the fingerprint is compared first, and a mismatch wins over every other answer.
fn start(
    found: &Found<'_>,
    now: Now,
    event: &Event<'_>,
    fingerprints: &dyn Fingerprints,
    version: Version,
) -> Result<Decision, UnrecognisedScheme> {
    if is_mismatch(found, fingerprints)? {
        return Ok(answer(Answer::Mismatch));
    }
    Ok(match (found, event) {
        (Found::Tombstone(_), _) => answer(Answer::Gone),
        (Found::Free, Event::Claim { by: Claimant::Worker, .. }) => answer(Answer::NotFound),
        (Found::Free, event) => start_new(event, fingerprints, version),
        (Found::Live(stored), Event::Claim { by, attempt_id, policy, labels, .. }) => {
            let claim = Claim { by: *by, attempt_id: *attempt_id, policy: *policy, labels };
            claim_live(stored, now, &claim, version)
        }
        (Found::Live(stored), event) => accept_live(stored, now, event, version),
    })
}

struct Claim<'a> {
    by: Claimant,
    attempt_id: AttemptId,
    policy: Policy,
    labels: &'a Labels,
}

/// A key that may have been claimed in what a restore lost. A record that is there was not lost, but if it stood to be run,
/// it may have been; and where nobody knew before, somebody may have said that it can run, so the doubt begins with the
/// restore. Compared first, as for a claim: another request says nothing about it.
fn suspect(
    found: &Found<'_>,
    event: &Event<'_>,
    fingerprints: &dyn Fingerprints,
    version: Version,
) -> Result<Decision, UnrecognisedScheme> {
    if is_mismatch(found, fingerprints)? {
        return Ok(answer(Answer::Mismatch));
    }
    Ok(match (found, event) {
        (Found::Free, Event::Suspect { .. }) => start_new(event, fingerprints, version),
        (Found::Live(stored), Event::Suspect { since, .. })
            if stored.stamped_at <= *since && stands_to_be_run(&stored.record) =>
        {
            let next = Record { verdict: None, ..next_of(stored, version) };
            write(restored(next, *since), Answer::Undecided)
        }
        (Found::Live(stored), Event::Suspect { since, .. }) if was_in_doubt_before(stored, *since) => {
            let next = Record { verdict: None, ..next_of(stored, version) };
            let next = restored(next, *since);
            write(if stored.record.state == State::Dead { dead(next) } else { next }, Answer::Undecided)
        }
        _ => answer(Answer::Refused),
    })
}

fn was_in_doubt_before(stored: &Stored, since: Timestamp) -> bool {
    let doubt_since = stored.record.doubt.and_then(|doubt| doubt.since).unwrap_or(stored.stamped_at);
    matches!(stored.record.state, State::Unknown | State::Dead) && stored.stamped_at <= since && doubt_since < since
}

/// Whether another attempt would start without anybody being asked.
fn stands_to_be_run(record: &Record) -> bool {
    match record.state {
        State::Ready => true,
        State::Running => record.policy.on_lapse != OnLapse::Unknown,
        _ => false,
    }
}

/// A free key: the first write of a record.
fn start_new(event: &Event<'_>, fingerprints: &dyn Fingerprints, version: Version) -> Decision {
    let blank = |policy: Policy, labels: &Labels| Record {
        labels: Arc::clone(labels),
        ..Record::new(version, State::Ready, fingerprints.current(), policy)
    };
    match event {
        Event::Claim { attempt_id, policy, labels, .. } => {
            let next = Record { attempt: 1, attempt_id: Some(*attempt_id), ..blank(*policy, labels) };
            write(running(next), Answer::Proceed)
        }
        Event::Accept { request, due_in_ms, policy, labels, .. } => {
            let next = Record { request: Some(Arc::clone(request)), ..blank(*policy, labels) };
            write(ready(next, *due_in_ms, None), Answer::Accepted)
        }
        Event::Suspect { since, policy, labels, .. } => {
            write(restored(blank(*policy, labels), *since), Answer::Undecided)
        }
        _ => answer(Answer::Fenced),
    }
}

fn claim_live(stored: &Stored, now: Now, claim: &Claim<'_>, version: Version) -> Decision {
    let record = &stored.record;
    let for_worker = record.request.is_some();
    let policy = record.policy.stricter(claim.policy);
    match (record.state, claim.by) {
        (State::Completed, _) => answer(Answer::Replay),
        (State::Expired, _) => answer(Answer::Gone),
        (State::Unknown | State::Dead, _) => answer(Answer::Undecided),
        (_, Claimant::Worker) if !for_worker => answer(Answer::Refused),
        (State::Ready, Claimant::Worker) if has_expired(stored, now) => answer(Answer::Refused),
        (State::Ready, Claimant::Client) if for_worker => answer(Answer::Accepted),
        (State::Ready, _) if !is_due(stored, now) => answer(Answer::Busy),
        (State::Ready, _) => write(new_attempt(stored, claim, policy, version), Answer::Proceed),
        (State::Running, _) if !is_due(stored, now) => answer(Answer::Busy),
        (State::Running, _) if policy.on_lapse == OnLapse::Unknown => {
            write(lapsed_into_doubt(next_of(stored, version)), Answer::Undecided)
        }
        (State::Running, _) if attempts_used_up(record, &policy) => {
            write(dead(lapsed_into_doubt(next_of(stored, version))), Answer::Undecided)
        }
        (State::Running, Claimant::Client) if for_worker => {
            let next = Record { policy, ..next_of(stored, version).with_labels(claim.labels) };
            write(lapsed_into_ready(next, 0), Answer::Accepted)
        }
        (State::Running, _) => write(new_attempt(stored, claim, policy, version), Answer::Proceed),
    }
}

fn accept_live(stored: &Stored, now: Now, event: &Event<'_>, version: Version) -> Decision {
    let record = &stored.record;
    let Event::Accept { request, due_in_ms, policy, labels, .. } = event else {
        return answer(Answer::Fenced);
    };
    let policy = record.policy.stricter(*policy);
    let keep = || Record {
        request: Some(record.request.as_ref().unwrap_or(request).clone()),
        policy,
        ..next_of(stored, version).with_labels(labels)
    };
    match record.state {
        State::Completed => answer(Answer::Replay),
        State::Expired => answer(Answer::Gone),
        State::Unknown | State::Dead => answer(Answer::Undecided),
        State::Ready if record.request.is_some() => answer(Answer::Accepted),
        State::Ready => {
            let due_in_ms = remaining_due_ms(stored, now).unwrap_or(0).max(*due_in_ms);
            write(ready(keep(), due_in_ms, None), Answer::Accepted)
        }
        State::Running if !is_due(stored, now) => answer(Answer::Busy),
        State::Running if policy.on_lapse == OnLapse::Unknown => {
            write(lapsed_into_doubt(next_of(stored, version)), Answer::Undecided)
        }
        State::Running if attempts_used_up(record, &policy) => {
            write(dead(lapsed_into_doubt(next_of(stored, version))), Answer::Undecided)
        }
        State::Running => write(lapsed_into_ready(keep(), *due_in_ms), Answer::Accepted),
    }
}

/// A sweep: the record's own policy says what a lapse means.
fn lapse(found: &Found<'_>, now: Now, version: Version) -> Decision {
    let stored = match found {
        Found::Free => return answer(Answer::NotFound),
        Found::Tombstone(_) => return answer(Answer::Refused),
        Found::Live(stored) => stored,
    };
    let next = next_of(stored, version);
    match stored.record.state {
        State::Running if !is_due(stored, now) => answer(Answer::Busy),
        State::Running if stored.record.policy.on_lapse == OnLapse::Unknown => {
            write(lapsed_into_doubt(next), Answer::Undecided)
        }
        State::Running if attempts_used_up(&next, &next.policy) => {
            write(dead(lapsed_into_doubt(next)), Answer::Undecided)
        }
        State::Running => write(lapsed_into_ready(next, 0), Answer::Done),
        _ => answer(Answer::Refused),
    }
}

/// A sweep: what has expired under a policy that keeps a tombstone becomes one. Stored work that never ran becomes an
/// answer that says so, and expires once more. Work of which an attempt lapsed may have happened, and nobody will run it
/// again: that is unknown.
fn expire(found: &Found<'_>, now: Now, never_ran: &Arc<Outcome>, version: Version) -> Decision {
    match found {
        Found::Free => answer(Answer::NotFound),
        Found::Tombstone(stored) if stored.record.state != State::Expired => {
            let expires_in_ms = stored.record.policy.keep_expired_ms;
            write(tombstone(next_of(stored, version), expires_in_ms), Answer::Done)
        }
        Found::Live(stored) if stored.record.state == State::Ready && has_expired(stored, now) => {
            let next = next_of(stored, version);
            if may_have_happened(&next) {
                write(lapsed_into_doubt(next), Answer::Undecided)
            } else {
                write(completed(next, never_ran), Answer::Done)
            }
        }
        Found::Tombstone(_) | Found::Live(_) => answer(Answer::Refused),
    }
}

/// A probe learnt nothing. It is asked again later, unless that was the last time.
fn inconclusive(
    found: &Found<'_>,
    attempt: u32,
    probe_in_ms: u64,
    probes_max: Option<u32>,
    version: Version,
) -> Decision {
    let stored = match found {
        Found::Free => return answer(Answer::NotFound),
        Found::Tombstone(_) => return answer(Answer::Refused),
        Found::Live(stored) => stored,
    };
    if stored.record.attempt != attempt {
        return answer(Answer::Stale);
    }
    if stored.record.state != State::Unknown {
        return answer(Answer::Refused);
    }
    let counted = u32::from(probes_max.is_some());
    let probes = stored.record.doubt.map_or(0, |doubt| doubt.probes).saturating_add(counted);
    // A record older than the field is in doubt since it was last written.
    let since = stored.doubted_since().unwrap_or(stored.stamped_at);
    let next = Record { doubt: Some(Doubt { since: Some(since), probes }), ..next_of(stored, version) };
    let last = probes_max.is_some_and(|probes_max| probes >= probes_max);
    write(if last { dead(next) } else { unknown(next, probe_in_ms) }, Answer::Done)
}

/// Takes an answer away. What is unfinished keeps its key taken: nobody can say that it had no effect.
fn purge(found: &Found<'_>, allow_rerun: bool, version: Version) -> Decision {
    let stored = match found {
        Found::Free => return answer(Answer::NotFound),
        Found::Tombstone(_) => return answer(Answer::Refused),
        Found::Live(stored) => stored,
    };
    let policy = &stored.record.policy;
    let stands_ms = policy.retention_ms.max(policy.keep_expired_ms.unwrap_or(0));
    let expires_in_ms = match stored.record.state {
        State::Running | State::Expired => return answer(Answer::Refused),
        State::Completed if allow_rerun => 0,
        State::Completed | State::Ready | State::Unknown | State::Dead => stands_ms,
    };
    write(tombstone(next_of(stored, version), Some(expires_in_ms)), Answer::Done)
}

/// Whether that was said of the record before, by whoever resolved it.
fn said_before(record: &Record, resolution: Resolution<'_>) -> bool {
    match (record.state, record.verdict, resolution) {
        (State::Completed, Some(Verdict::Happened), Resolution::Happened(outcome))
        | (State::Completed, Some(Verdict::GivenUp), Resolution::GiveUp(outcome)) => {
            record.outcome.as_ref() == Some(outcome)
        }
        (State::Ready, Some(Verdict::DidNotHappen), Resolution::DidNotHappen) => true,
        _ => false,
    }
}

fn resolve(
    found: &Found<'_>,
    resolution: Resolution<'_>,
    (attempt, since): (Option<u32>, Option<Timestamp>),
    version: Version,
) -> Decision {
    let stored = match found {
        Found::Free => return answer(Answer::NotFound),
        Found::Tombstone(_) => return answer(Answer::Refused),
        Found::Live(stored) => stored,
    };
    if attempt.is_some_and(|attempt| attempt != stored.record.attempt) {
        return answer(Answer::Stale);
    }
    if said_before(&stored.record, resolution) {
        return answer(Answer::Done);
    }
    if since.is_some() && stored.record.doubt.is_some() && since != stored.doubted_since() {
        return answer(Answer::Stale);
    }
    if !matches!(stored.record.state, State::Unknown | State::Dead) {
        return answer(Answer::Refused);
    }
    let next = |verdict| Record { verdict: Some(verdict), ..next_of(stored, version) };
    let written = match resolution {
        Resolution::Happened(outcome) => completed(next(Verdict::Happened), outcome),
        Resolution::GiveUp(outcome) => completed(next(Verdict::GivenUp), outcome),
        Resolution::DidNotHappen => ready(next(Verdict::DidNotHappen), 0, None),
    };
    write(written, Answer::Done)
}

/// An expired record is free, or a tombstone where its policy keeps one.
fn find(seen: &Seen) -> Found<'_> {
    let Some(stored) = &seen.stored else {
        return Found::Free;
    };
    let past = has_expired(stored, seen.now);
    let keeps = stored.record.policy.keep_expired_ms.is_some();
    match stored.record.state {
        State::Expired if past => Found::Free,
        State::Expired => Found::Tombstone(stored),
        // Work that was accepted and never ran is not forgotten before it was said to have failed.
        State::Ready if stored.record.request.is_some() => Found::Live(stored),
        State::Completed | State::Ready if past && keeps => Found::Tombstone(stored),
        State::Completed | State::Ready if past => Found::Free,
        _ => Found::Live(stored),
    }
}

/// A completion that is turned away is reported, even where no attempt holds the record: the next one will run it.
fn fenced(event: &Event<'_>) -> Answer {
    match event {
        Event::Complete { .. } => Answer::DoubleRun,
        _ => Answer::Fenced,
    }
}

fn has_expired(stored: &Stored, now: Now) -> bool {
    stored.expires_at().is_some_and(|expires_at| now.has_reached(expires_at))
}

fn is_due(stored: &Stored, now: Now) -> bool {
    match stored.record.state {
        // A lease lapses only by a clock that is trusted; whether a ready record may start does not hang on it.
        State::Running => stored.due_at().is_some_and(|due_at| now.has_reached(due_at)),
        _ => stored.due_at().is_none_or(|due_at| now.at >= due_at),
    }
}

/// An attempt of a ready record lapsed, and nobody has said what came of it. Where a lapse leads to another attempt, all
/// but the last one may have.
fn may_have_happened(ready: &Record) -> bool {
    let last = ready.attempt_id.is_some() && ready.verdict != Some(Verdict::DidNotHappen);
    let earlier = ready.attempt > 1 && ready.policy.on_lapse != OnLapse::Unknown;
    last || earlier
}

fn attempts_used_up(record: &Record, policy: &Policy) -> bool {
    policy.attempts_max.is_some_and(|attempts_max| record.attempt >= attempts_max)
}

fn remaining_due_ms(stored: &Stored, now: Now) -> Option<u64> {
    stored.due_at().map(|due_at| now.at.ms_until(due_at))
}

/// The record to change: everything as it was, under a new version.
fn next_of(stored: &Stored, version: Version) -> Record {
    let doubt = stored.record.doubt.map(|doubt| Doubt { since: stored.doubted_since(), ..doubt });
    Record { version, created_at: Some(stored.created_at()), doubt, ..stored.record.clone() }
}

fn new_attempt(stored: &Stored, claim: &Claim<'_>, policy: Policy, version: Version) -> Record {
    let next = Record { policy, ..next_of(stored, version).with_labels(claim.labels) };
    let next = if stored.record.state == State::Running { from_the_start(next) } else { next };
    running(Record {
        attempt: stored.record.attempt.saturating_add(1),
        attempt_id: Some(claim.attempt_id),
        verdict: None,
        ..next
    })
}

/// After a lapse a rerun starts from the start. Only after a failure or a verdict is the last place still right.
fn from_the_start(next: Record) -> Record {
    let resumes = next.policy.on_lapse != OnLapse::Rerun;
    Record { checkpoint: next.checkpoint.filter(|_| resumes), ..next }
}

fn failed(next: Record, error: &str) -> Record {
    Record { error: Some(error.to_owned()), attempt_id: None, ..next }
}

fn running(next: Record) -> Record {
    let due_in_ms = Some(next.policy.lease_ms);
    Record { state: State::Running, due_in_ms, expires_in_ms: None, doubt: None, ..next }
}

/// Kept for `keep_ms` where that is shorter than the retention; not so accepted work, and what would leave a tombstone.
fn ready(next: Record, due_in_ms: u64, keep_ms: Option<u64>) -> Record {
    let Policy { retention_ms, keep_expired_ms, .. } = next.policy;
    let keep_ms = keep_ms.filter(|_| keep_expired_ms.is_none() && next.request.is_none());
    // Waiting for the next attempt does not use up the time in which its client may come back.
    let expires_in_ms = Some(due_in_ms.saturating_add(keep_ms.unwrap_or(retention_ms).min(retention_ms)));
    Record { state: State::Ready, due_in_ms: Some(due_in_ms), expires_in_ms, doubt: None, ..next }
}

fn dead(next: Record) -> Record {
    Record { state: State::Dead, due_in_ms: Some(0), expires_in_ms: None, doubt: in_doubt(&next), ..next }
}

fn unknown(next: Record, probe_in_ms: u64) -> Record {
    Record { state: State::Unknown, due_in_ms: Some(probe_in_ms), expires_in_ms: None, doubt: in_doubt(&next), ..next }
}

/// In doubt since the restore: what was lost was sent before.
fn restored(next: Record, since: Timestamp) -> Record {
    let doubt = Some(Doubt { since: Some(since), probes: 0 });
    unknown(Record { error: Some("restored".to_owned()), doubt, ..next }, 0)
}

/// The doubt there was, or one that begins with the stamp.
fn in_doubt(next: &Record) -> Option<Doubt> {
    next.doubt.or(Some(Doubt { since: None, probes: 0 }))
}

fn tombstone(next: Record, expires_in_ms: Option<u64>) -> Record {
    Record {
        state: State::Expired,
        due_in_ms: None,
        expires_in_ms,
        checkpoint: None,
        request: None,
        outcome: None,
        doubt: None,
        ..next
    }
}

fn lapsed_into_doubt(next: Record) -> Record {
    unknown(Record { error: Some("lapsed".to_owned()), ..next }, 0)
}

fn lapsed_into_ready(next: Record, due_in_ms: u64) -> Record {
    ready(Record { error: Some("lapsed".to_owned()), ..from_the_start(next) }, due_in_ms, None)
}

fn completed(next: Record, outcome: &Arc<Outcome>) -> Record {
    let expires_in_ms = Some(next.policy.retention_ms);
    // Where a tombstone follows, somebody must look when the record expires.
    let due_in_ms = next.policy.keep_expired_ms.and(expires_in_ms);
    Record {
        state: State::Completed,
        due_in_ms,
        expires_in_ms,
        outcome: Some(Arc::clone(outcome)),
        request: None,
        checkpoint: None,
        error: None,
        doubt: None,
        ..next
    }
}

fn write(next: Record, then: Answer) -> Decision {
    Decision { write: Some(next), answer: then }
}

fn answer(answer: Answer) -> Decision {
    Decision { write: None, answer }
}
