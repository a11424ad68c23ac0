//! What can be asked of a record ([`Event`]), and what is decided ([`Decision`]).
//!
//! The words only. What follows from what is in [`transition`](crate::transition), which gives these out as well.

use std::sync::Arc;

use crate::clock::Timestamp;
use crate::fingerprint::{Fingerprints, Scheme};
use crate::record::{AttemptId, Checkpoint, Labels, Outcome, Policy, Record};

/// Who claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Claimant {
    /// A client with its request in hand. Never runs a record that has a stored request.
    Client,
    /// A worker that runs stored requests, and only those.
    Worker,
}

/// What somebody wants of a record.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// Run it now.
    Claim {
        /// Who asks.
        by: Claimant,
        /// The fence of the attempt that starts if the claim proceeds: random, never used before.
        attempt_id: AttemptId,
        /// What must be equal for it to be the same request.
        fingerprints: &'a dyn Fingerprints,
        /// What this route says.
        policy: Policy,
        /// Business identifiers known already.
        labels: &'a Labels,
    },
    /// Keep the request; a worker runs it later.
    Accept {
        /// The request, opaque.
        request: &'a Arc<[u8]>,
        /// When a worker may start.
        due_in_ms: u64,
        /// What must be equal for it to be the same request.
        fingerprints: &'a dyn Fingerprints,
        /// What this route says.
        policy: Policy,
        /// Business identifiers known already.
        labels: &'a Labels,
    },
    /// The attempt lives: lengthen its lease.
    Renew {
        /// Whose lease.
        attempt_id: AttemptId,
    },
    /// The attempt reached a recovery point. Lengthens the lease as well.
    Checkpoint {
        /// Whose.
        attempt_id: AttemptId,
        /// Where to resume.
        checkpoint: &'a Checkpoint,
    },
    /// The attempt is done, with this outcome.
    Complete {
        /// Whose.
        attempt_id: AttemptId,
        /// What is replayed from now on.
        outcome: &'a Arc<Outcome>,
        /// Business identifiers learnt from the outcome.
        labels: &'a Labels,
    },
    /// The attempt provably did nothing.
    Fail {
        /// Whose.
        attempt_id: AttemptId,
        /// Why: a word.
        error: &'a str,
        /// When the next attempt may start.
        retry_in_ms: u64,
        /// How long the key waits for its next attempt from then on, where that is shorter than the retention. `None`: for
        /// the retention.
        keep_ms: Option<u64>,
    },
    /// The attempt ended, and nobody knows whether it had its effect.
    Doubt {
        /// Whose.
        attempt_id: AttemptId,
        /// Why: a word.
        error: &'a str,
        /// When to find out.
        probe_in_ms: u64,
    },
    /// A sweep came by: notice if the lease has lapsed.
    Lapse,
    /// A sweep came by: put a tombstone in place of what has expired, where the policy keeps one. Stored work that never
    /// ran is completed first, so that whoever asks for it learns that.
    Expire {
        /// What is replayed of work that never ran.
        never_ran: &'a Arc<Outcome>,
    },
    /// The store was restored from a backup, and this key may have been claimed, or run again, in what was lost: nobody
    /// knows. What was written after the restore is not touched.
    Suspect {
        /// When the store was restored: what was lost was sent before.
        since: Timestamp,
        /// What must be equal for it to be the same request.
        fingerprints: &'a dyn Fingerprints,
        /// What this route says.
        policy: Policy,
        /// Business identifiers known already.
        labels: &'a Labels,
    },
    /// A probe could not tell what became of it, or not yet.
    Inconclusive {
        /// The attempt that was asked about.
        attempt: u32,
        /// When to ask again.
        probe_in_ms: u64,
        /// After this many probes that could not tell, the record is dead. `None`: this one does not count.
        probes_max: Option<u32>,
    },
    /// Somebody with authority says what became of it.
    Resolve {
        /// What became of it.
        resolution: Resolution<'a>,
        /// The attempt that is meant. `None`: whichever is the last.
        attempt: Option<u32>,
        /// Since when it was in doubt when somebody looked. `None`: since whenever. An attempt may live on and be doubted
        /// again; what was found out before that says nothing about it.
        since: Option<Timestamp>,
    },
    /// An operator takes the answer away.
    Purge {
        /// A completed key is free at once, so that a retry runs again. Otherwise a tombstone stays for its retention.
        allow_rerun: bool,
    },
}

/// What somebody with authority says.
#[derive(Clone, Copy, Debug)]
pub enum Resolution<'a> {
    /// It happened; replay this.
    Happened(&'a Arc<Outcome>),
    /// It did not happen; it may run again.
    DidNotHappen,
    /// Stop; replay this failure.
    GiveUp(&'a Arc<Outcome>),
}

/// What to write, if anything, and what to answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Written by a swap that expects the version that was seen. The answer holds only once it is applied.
    pub write: Option<Record>,
    /// The answer.
    pub answer: Answer,
}

/// An answer. The record it is about is beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// Run it: this attempt holds the lease.
    Proceed,
    /// A worker will run it.
    Accepted,
    /// Another attempt runs, or the next one is not due yet. Come back when the record is due.
    Busy,
    /// Nobody knows what became of the last attempt. Come back later.
    Undecided,
    /// The recorded outcome.
    Replay,
    /// The key was used and has expired.
    Gone,
    /// The key was used for another request.
    Mismatch,
    /// As asked.
    Done,
    /// As asked, and a verdict that said "did not happen" was wrong: report it.
    Contradicted,
    /// The caller's attempt is no longer the one that counts. Nothing was changed.
    Fenced,
    /// A completion was fenced: another attempt had its effect as well, or may have it. Nothing was changed; report it.
    DoubleRun,
    /// A completion came after a verdict had settled the record. Nothing was changed; report it.
    Overruled,
    /// There is no such record.
    NotFound,
    /// Not possible in the state the record is in.
    Refused,
    /// The record is at another attempt than the one that is meant. Nothing was changed.
    Stale,
}

/// A record was fingerprinted under a scheme this node does not know, so nobody can say whether the request is the same.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the record was fingerprinted under scheme `{}`, which this node does not recognise; upgrade it or give it the key",
    .0.as_str()
)]
pub struct UnrecognisedScheme(pub Scheme);
