//! From the model to the real rules and back: the only place where [`Rules::decide`] is called.
//!
//! A small record of the model becomes a real one with real times, the real rules decide, and what they write becomes
//! small again. Nothing is decided here.

use std::sync::Arc;

use super::world::{CURRENT, Kept, Time, What};
use crate::clock::{Now, Timestamp};
use crate::fingerprint::{Fingerprint, Scheme};
use crate::record::{AttemptId, Body, Checkpoint, Labels, OnLapse, Outcome, Policy, Record, State, Stored, Version};
use crate::store::Seen;
use crate::transition::{Answer, Claimant, Event, Resolution, Rules};

const NOW_MS: u64 = 1_000_000;
/// Every record was stamped this long ago.
const AGO_MS: u64 = 1_000;

const LEASE_MS: u64 = 10;
const RETENTION_MS: u64 = 100;
const TOMBSTONE_MS: u64 = 50;
const RETRY_MS: u64 = 5;
const PROBE_MS: u64 = 5;

/// The rules, and the data that events need and the model does not tell apart.
#[derive(Clone, Debug)]
pub(super) struct Bridge {
    rules: Rules,
    attempts_max: Option<u32>,
    /// Attempts are told apart up to this number: as far as the rules look.
    attempts_told: u32,
    fingerprint: Fingerprint,
    outcome: Arc<Outcome>,
    request: Arc<[u8]>,
    checkpoint: Checkpoint,
    labels: Labels,
}

/// A decision, made small.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decided {
    pub(super) next: Option<Kept>,
    pub(super) answer: Answer,
    /// Whether what is written is the first record of its key, or the first after the last one expired.
    pub(super) begins: bool,
}

/// Who asks, and under which policy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asker {
    pub(super) attempt_id: u8,
    pub(super) on_lapse: OnLapse,
    pub(super) keeps_tombstone: bool,
}

impl Bridge {
    pub(super) fn new(rules: Rules, attempts_max: Option<u32>) -> Self {
        let scheme = Scheme::new("1;sha256").expect("a scheme");
        Self {
            rules,
            attempts_max,
            attempts_told: attempts_max.unwrap_or(1),
            fingerprint: Fingerprint { scheme, digest: [7; 32] },
            outcome: Arc::new(Outcome { status: 201, headers: vec![], body: Body::NotKept }),
            request: Arc::from(b"request".as_slice()),
            checkpoint: Checkpoint { name: "halfway".to_owned(), data: vec![] },
            labels: Labels::default(),
        }
    }

    /// Where it matters whether there was more than one attempt.
    pub(super) fn telling_attempts_apart(self) -> Self {
        Self { attempts_told: 2, ..self }
    }

    /// Asks the real rules.
    pub(super) fn decide(&self, kept: Option<&Kept>, paused: bool, what: What, asker: Asker) -> Decided {
        let seen =
            Seen { stored: kept.map(|kept| self.stored(kept)), now: Now { at: Timestamp::from_ms(NOW_MS), paused } };
        let event = self.event(what, asker);
        let version = Version::from_bytes([CURRENT; 16]);
        let decision = self.rules.decide(&seen, &event, version).expect("the scheme is known");
        Decided {
            next: decision.write.as_ref().map(|record| self.kept(record)),
            answer: decision.answer,
            begins: decision.write.is_some_and(|record| record.created_at.is_none()),
        }
    }

    /// Whether a store may delete it, by the record's own word.
    pub(super) fn is_to_be_reaped(&self, kept: &Kept) -> bool {
        self.stored(kept).reap_at().is_some_and(|at| at <= Timestamp::from_ms(NOW_MS))
    }

    fn policy(&self, on_lapse: OnLapse, keeps_tombstone: bool) -> Policy {
        Policy {
            on_lapse,
            lease_ms: LEASE_MS,
            retention_ms: RETENTION_MS,
            keep_expired_ms: keeps_tombstone.then_some(TOMBSTONE_MS),
            attempts_max: self.attempts_max,
        }
    }

    fn event(&self, what: What, asker: Asker) -> Event<'_> {
        let attempt_id = attempt_id(asker.attempt_id);
        let policy = self.policy(asker.on_lapse, asker.keeps_tombstone);
        let fingerprints = &self.fingerprint;
        let claim = |by| Event::Claim { by, attempt_id, fingerprints, policy, labels: &self.labels };
        match what {
            What::Claim => claim(Claimant::Client),
            What::WorkerClaim => claim(Claimant::Worker),
            What::Accept => {
                Event::Accept { request: &self.request, due_in_ms: 0, fingerprints, policy, labels: &self.labels }
            }
            What::Renew => Event::Renew { attempt_id },
            What::Checkpoint => Event::Checkpoint { attempt_id, checkpoint: &self.checkpoint },
            What::Complete => Event::Complete { attempt_id, outcome: &self.outcome, labels: &self.labels },
            What::Fail => Event::Fail { attempt_id, error: "refused", retry_in_ms: RETRY_MS, keep_ms: None },
            What::Doubt => Event::Doubt { attempt_id, error: "timeout", probe_in_ms: PROBE_MS },
            What::Lapse => Event::Lapse,
            What::Expire => Event::Expire { never_ran: &self.outcome },
            What::Happened => {
                Event::Resolve { resolution: Resolution::Happened(&self.outcome), attempt: None, since: None }
            }
            What::DidNotHappen => Event::Resolve { resolution: Resolution::DidNotHappen, attempt: None, since: None },
            What::GiveUp => {
                Event::Resolve { resolution: Resolution::GiveUp(&self.outcome), attempt: None, since: None }
            }
        }
    }

    fn stored(&self, kept: &Kept) -> Stored {
        let record = Record {
            version: Version::from_bytes([kept.version; 16]),
            state: kept.state,
            attempt: kept.attempt.into(),
            attempt_id: kept.attempt_id.map(attempt_id),
            fingerprint: self.fingerprint.clone(),
            policy: self.policy(kept.on_lapse, kept.keeps_tombstone),
            due_in_ms: in_ms(kept.due),
            expires_in_ms: in_ms(kept.expires),
            created_at: Some(Timestamp::from_ms(0)),
            checkpoint: kept.has_checkpoint.then(|| self.checkpoint.clone()),
            request: kept.has_request.then(|| Arc::clone(&self.request)),
            outcome: (kept.state == State::Completed).then(|| Arc::clone(&self.outcome)),
            error: None,
            verdict: kept.verdict,
            doubt: None,
            labels: Labels::default(),
        };
        Stored { record, stamped_at: Timestamp::from_ms(NOW_MS - AGO_MS) }
    }

    fn kept(&self, record: &Record) -> Kept {
        assert_eq!(record.outcome.is_some(), record.state == State::Completed, "only completed records hold an answer");
        Kept {
            version: record.version.as_bytes()[0],
            state: record.state,
            attempt: record.attempt.min(self.attempts_told) as u8,
            attempt_id: record.attempt_id.map(|id| id.as_bytes()[0]),
            on_lapse: record.policy.on_lapse,
            keeps_tombstone: record.policy.keep_expired_ms.is_some(),
            due: time(record.due_in_ms),
            expires: time(record.expires_in_ms),
            verdict: record.verdict,
            has_request: record.request.is_some(),
            has_checkpoint: record.checkpoint.is_some(),
        }
    }
}

fn attempt_id(number: u8) -> AttemptId {
    AttemptId::from_bytes([number; 16])
}

fn in_ms(time: Time) -> Option<u64> {
    match time {
        Time::Never => None,
        Time::Ahead => Some(AGO_MS + 1),
        Time::Passed => Some(AGO_MS),
    }
}

fn time(in_ms: Option<u64>) -> Time {
    match in_ms {
        None => Time::Never,
        Some(0) => Time::Passed,
        Some(_) => Time::Ahead,
    }
}
