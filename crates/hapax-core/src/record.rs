//! What is known of one key: [`Record`], its [`State`], its [`Outcome`].
//!
//! A [`Record`] is what the rule book writes. Its times count from the moment the store stamps it, because only the
//! store knows the time. A [`Stored`] is what a store gives back: the record and its stamp.
//!
//! This file holds data and its limits. What may follow what is decided in [`transition`](crate::transition).

use std::fmt;
use std::sync::Arc;

use crate::clock::Timestamp;
use crate::fingerprint::Fingerprint;
use crate::limits;

/// Where a key stands. An absent record counts as free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// Not started, or the last attempt provably did nothing. Anyone may run it from its due time; where a request is
    /// stored with it, only a worker.
    Ready,
    /// Claimed under a lease by one attempt.
    Running,
    /// The last attempt may or may not have happened. Nobody runs it until it is resolved.
    Unknown,
    /// Automation gave up; a person decides.
    Dead,
    /// An outcome is stored, success or final failure. It is replayed.
    Completed,
    /// A tombstone without a body.
    Expired,
}

impl State {
    /// Every state, in the order of their numbers.
    pub const ALL: [Self; 6] = [Self::Ready, Self::Running, Self::Unknown, Self::Dead, Self::Completed, Self::Expired];

    /// The number a store keeps. Never given to another state.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Ready => 1,
            Self::Running => 2,
            Self::Unknown => 3,
            Self::Dead => 4,
            Self::Completed => 5,
            Self::Expired => 6,
        }
    }

    /// The state of that number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.number() == number)
    }

    /// The word used everywhere: in logs, metrics, commands and documents.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Running => "running",
            Self::Unknown => "unknown",
            Self::Dead => "dead",
            Self::Completed => "completed",
            Self::Expired => "expired",
        }
    }

    /// Whether somebody or something still has to act on it.
    #[must_use]
    pub const fn is_unfinished(self) -> bool {
        matches!(self, Self::Ready | Self::Running | Self::Unknown | Self::Dead)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

macro_rules! token {
    ($(#[$docs:meta])* $name:ident) => {
        $(#[$docs])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name([u8; 16]);

        impl $name {
            /// From sixteen random bytes.
            #[must_use]
            pub const fn from_bytes(bytes: [u8; 16]) -> Self {
                Self(bytes)
            }

            /// The bytes to keep.
            #[must_use]
            pub const fn as_bytes(&self) -> &[u8; 16] {
                &self.0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(concat!(stringify!($name), "("))?;
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
                f.write_str(")")
            }
        }
    };
}

token!(
    /// Random, new with every write. For compare-and-swap only, and to recognise one's own write after a lost reply.
    Version
);
token!(
    /// Random, set when a claim proceeds and kept through renew, checkpoint, lapse and doubt. This is the fence: who
    /// holds another one changes nothing.
    AttemptId
);

/// What a lapsed lease means. In the order of strictness: the stricter of record and route wins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OnLapse {
    /// Running again from the start is safe.
    Rerun,
    /// Running again from the last checkpoint is safe.
    Resume,
    /// Nobody knows; it gets reconciled.
    #[default]
    Unknown,
}

impl OnLapse {
    /// Every policy.
    pub const ALL: [Self; 3] = [Self::Rerun, Self::Resume, Self::Unknown];
}

/// What was agreed when the key was claimed. Frozen with the record, so that a later deployment cannot loosen it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Policy {
    /// What a lapsed lease means.
    pub on_lapse: OnLapse,
    /// How long an attempt may be silent before its lease lapses.
    pub lease_ms: u64,
    /// How long an outcome is replayed, counted from completion; and how long a ready record waits for its client.
    pub retention_ms: u64,
    /// How long a tombstone stands after that. `None`: the key is free at once.
    pub keep_expired_ms: Option<u64>,
    /// After this many failed attempts the record is dead. `None`: never.
    pub attempts_max: Option<u32>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            on_lapse: OnLapse::Unknown,
            lease_ms: 30_000,
            retention_ms: 24 * 60 * 60 * 1000,
            keep_expired_ms: None,
            attempts_max: None,
        }
    }
}

impl Policy {
    /// The stricter of two policies, question by question: keeps longer, reruns less.
    #[must_use]
    pub fn stricter(self, other: Self) -> Self {
        Self {
            on_lapse: self.on_lapse.max(other.on_lapse),
            lease_ms: self.lease_ms.max(other.lease_ms),
            retention_ms: self.retention_ms.max(other.retention_ms),
            keep_expired_ms: self.keep_expired_ms.max(other.keep_expired_ms),
            attempts_max: match (self.attempts_max, other.attempts_max) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (one, None) | (None, one) => one,
            },
        }
    }
}

/// A place to resume from, named and with whatever bytes the attempt needs to go on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Checkpoint {
    /// The name of the recovery point.
    pub name: String,
    /// What the attempt needs there.
    pub data: Vec<u8>,
}

/// The answer of an attempt, as it is replayed.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Outcome {
    /// The status code.
    pub status: u16,
    /// Header fields in order, with repeats, byte for byte.
    pub headers: Vec<(Vec<u8>, Vec<u8>)>,
    /// The body.
    pub body: Body,
}

/// The body of an outcome.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Body {
    /// Replayed byte for byte.
    Kept(Vec<u8>),
    /// Too large or streamed: the first caller got it whole, a retry learns that it was not kept.
    NotKept,
}

impl fmt::Debug for Outcome {
    /// Shows no header value and no body: they may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let body = match &self.body {
            Body::Kept(bytes) => format!("{} bytes", bytes.len()),
            Body::NotKept => "not kept".to_owned(),
        };
        write!(f, "Outcome {{ status: {}, headers: {}, body: {body} }}", self.status, self.headers.len())
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kept(bytes) => write!(f, "Kept({} bytes)", bytes.len()),
            Self::NotKept => f.write_str("NotKept"),
        }
    }
}

/// What somebody with authority said of an attempt nobody was sure about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It happened, with this outcome.
    Happened,
    /// It did not happen.
    DidNotHappen,
    /// It will not be pursued; clients get a failure.
    GivenUp,
}

/// Since when nobody knows, and how often somebody asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Doubt {
    /// When the record became unknown. `None` in the write that makes it so: the stamp says it.
    pub since: Option<Timestamp>,
    /// How many probes could not tell.
    pub probes: u32,
}

/// A business identifier to find a record by. A record has one of each name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Label {
    /// What kind of identifier.
    pub name: String,
    /// Which one.
    pub value: String,
}

/// The labels of a record. Shared, since every record that follows from another one has them as well.
pub type Labels = Arc<[Label]>;

/// What the rule book writes. Its times count from the store's stamp.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// New with every write.
    pub version: Version,
    /// Where the key stands.
    pub state: State,
    /// How many attempts have started. Only grows.
    pub attempt: u32,
    /// Whose attempt the last one is. `None`: there is none, or it said itself that it did nothing.
    pub attempt_id: Option<AttemptId>,
    /// What must be equal in a retry.
    pub fingerprint: Fingerprint,
    /// What was agreed at the claim.
    pub policy: Policy,
    /// When somebody must look next, counted from the stamp: lease end, earliest next attempt, next probe.
    pub due_in_ms: Option<u64>,
    /// When the record expires, counted from the stamp. Only completed, ready and expired ones do.
    pub expires_in_ms: Option<u64>,
    /// When the key was first seen. `None` in the first write: the stamp says it.
    pub created_at: Option<Timestamp>,
    /// Where to resume.
    pub checkpoint: Option<Checkpoint>,
    /// The request, where it is run later by a worker. Opaque here.
    pub request: Option<Arc<[u8]>>,
    /// The answer, once there is one.
    pub outcome: Option<Arc<Outcome>>,
    /// Why the last attempt failed or is in doubt: a word.
    pub error: Option<String>,
    /// What was said of the last attempt, if somebody had to.
    pub verdict: Option<Verdict>,
    /// Since when nobody knows. Unknown and dead records have one, unless they are older than the field.
    pub doubt: Option<Doubt>,
    /// Business identifiers.
    pub labels: Labels,
}

impl Record {
    /// A record in that state with nothing in it yet, before its first attempt.
    #[must_use]
    pub fn new(version: Version, state: State, fingerprint: Fingerprint, policy: Policy) -> Self {
        Self {
            version,
            state,
            attempt: 0,
            attempt_id: None,
            fingerprint,
            policy,
            due_in_ms: None,
            expires_in_ms: None,
            created_at: None,
            checkpoint: None,
            request: None,
            outcome: None,
            error: None,
            verdict: None,
            doubt: None,
            labels: Labels::default(),
        }
    }

    /// The same with further labels. One of the same name takes the place of another.
    pub(crate) fn with_labels(self, labels: &[Label]) -> Self {
        if labels.is_empty() {
            return self;
        }
        let mut all = self.labels.to_vec();
        for label in labels {
            match all.iter_mut().find(|known| known.name == label.name) {
                Some(known) => known.value.clone_from(&label.value),
                None => all.push(label.clone()),
            }
        }
        Self { labels: all.into(), ..self }
    }

    /// When a store may delete the record, counted from the stamp. `None`: not before it is written again, because it
    /// is unfinished or must become a tombstone first.
    #[must_use]
    pub fn reap_in_ms(&self) -> Option<u64> {
        match self.state {
            State::Expired => self.expires_in_ms,
            // Whoever asked for work that never ran must learn of it first.
            State::Ready if self.request.is_some() => None,
            State::Completed | State::Ready if self.policy.keep_expired_ms.is_none() => self.expires_in_ms,
            _ => None,
        }
    }

    /// Refuses what is larger than the limits allow, before it reaches a store.
    ///
    /// # Errors
    /// Names the part that is too large.
    pub fn check_limits(&self) -> Result<(), TooLarge> {
        let outcome = self.outcome.as_deref();
        let headers = outcome.map_or(&[][..], |outcome| &outcome.headers);
        let body_bytes = match outcome.map(|outcome| &outcome.body) {
            Some(Body::Kept(bytes)) => bytes.len(),
            _ => 0,
        };
        let label_bytes_max = self.labels.iter().map(|label| label.name.len() + label.value.len()).max().unwrap_or(0);
        let sizes = [
            ("body", body_bytes, limits::BODY_BYTES_MAX),
            ("stored request", self.request.as_ref().map_or(0, |request| request.len()), limits::REQUEST_BYTES_MAX),
            ("checkpoint", self.checkpoint.as_ref().map_or(0, checkpoint_bytes), limits::CHECKPOINT_BYTES_MAX),
            ("number of header fields", headers.len(), limits::HEADER_COUNT_MAX),
            ("header section", headers.iter().map(|(n, v)| n.len() + v.len()).sum(), limits::HEADER_BYTES_MAX),
            ("number of labels", self.labels.len(), limits::LABEL_COUNT_MAX),
            ("label", label_bytes_max, limits::LABEL_BYTES_MAX),
            ("error code", self.error.as_ref().map_or(0, String::len), limits::ERROR_CODE_CHARS_MAX),
        ];
        match sizes.into_iter().find(|(_, size, size_max)| size > size_max) {
            Some((part, size, size_max)) => Err(TooLarge { part, size, size_max }),
            None => Ok(()),
        }
    }
}

fn checkpoint_bytes(checkpoint: &Checkpoint) -> usize {
    checkpoint.name.len() + checkpoint.data.len()
}

/// A part of a record over its limit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the {part} is {size}; at most {size_max} is accepted")]
pub struct TooLarge {
    /// Which part.
    pub part: &'static str,
    /// How large it is.
    pub size: usize,
    /// How large it may be.
    pub size_max: usize,
}

/// What a store gives back: a record and when it was written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Stored {
    /// What was written.
    pub record: Record,
    /// When, in store time.
    pub stamped_at: Timestamp,
}

impl Stored {
    /// When somebody must look next.
    #[must_use]
    pub fn due_at(&self) -> Option<Timestamp> {
        self.record.due_in_ms.map(|ms| self.stamped_at.plus_ms(ms))
    }

    /// When the record expires.
    #[must_use]
    pub fn expires_at(&self) -> Option<Timestamp> {
        self.record.expires_in_ms.map(|ms| self.stamped_at.plus_ms(ms))
    }

    /// From when on a store may delete the record.
    #[must_use]
    pub fn reap_at(&self) -> Option<Timestamp> {
        self.record.reap_in_ms().map(|ms| self.stamped_at.plus_ms(ms))
    }

    /// Since when nobody knows what became of it.
    #[must_use]
    pub fn doubted_since(&self) -> Option<Timestamp> {
        self.record.doubt.map(|doubt| doubt.since.unwrap_or(self.stamped_at))
    }

    /// When the key was first seen.
    #[must_use]
    pub fn created_at(&self) -> Timestamp {
        self.record.created_at.unwrap_or(self.stamped_at)
    }
}
