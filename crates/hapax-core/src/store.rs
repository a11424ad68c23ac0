//! What a store must do: compare and swap, read, scan, delete what has expired. It knows no rules.
//!
//! A store keeps [`Record`]s by [`Address`]. It knows whether a version matched, and what time it is; every rule about
//! what may follow what is in [`transition`](crate::transition). Anyone may write a store: the cases it has to pass are
//! in the `conformance` module (feature `conformance`).
//!
//! Promises every store keeps:
//! - `swap` is atomic: of any number of swaps that expect the same version, at most one is applied.
//! - No reply, [`Swap::Lost`] included, is given before the commit it depends on is durable.
//! - The stamp is the store's own time, taken at the write; it never runs backwards for one record.
//! - What was written comes back byte for byte: texts of a record may hold any character, NUL included.
//! - A store never retries a write by itself. Where it cannot tell whether a write was committed it says
//!   [`ErrorKind::Ambiguous`], and the engine reads back and compares versions.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use crate::address::{Address, Id, Scope};
use crate::clock::{ClockHealth, Now, Timestamp};
use crate::record::{Label, Record, State, Stored, Version};

/// What a store said of one address: the record or none, and the time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Seen {
    /// The record. `None`: there is none.
    pub stored: Option<Stored>,
    /// The store's time when it looked.
    pub now: Now,
}

impl Seen {
    /// The version to expect in a swap.
    #[must_use]
    pub fn version(&self) -> Option<Version> {
        self.stored.as_ref().map(|stored| stored.record.version)
    }

    /// Milliseconds until somebody must look at the record.
    #[must_use]
    pub fn due_in_ms(&self) -> u64 {
        self.stored.as_ref().and_then(Stored::due_at).map_or(0, |due_at| self.now.at.ms_until(due_at))
    }
}

/// The result of a swap.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "it lives for one reply; a box would cost every replay an allocation")]
pub enum Swap {
    /// Written and durable, stamped with this time.
    Applied(Now),
    /// The version did not match. Nothing was written; this is what stands there.
    Lost(Seen),
}

/// A place that keeps records.
pub trait Store: Send + Sync {
    /// Writes `next` if the record at that address has the version `expect`, or if there is none and `expect` is
    /// `None`.
    fn swap(
        &self,
        at: &Address,
        expect: Option<Version>,
        next: &Record,
    ) -> impl Future<Output = Result<Swap, StoreError>> + Send;

    /// The record at that address.
    fn get(&self, at: &Address) -> impl Future<Output = Result<Seen, StoreError>> + Send;

    /// One page of the records that match. A record that nobody writes during the scan is on exactly one page.
    fn scan(&self, query: &Scan) -> impl Future<Output = Result<Page, StoreError>> + Send;

    /// Deletes up to `limit` records whose [`Stored::reap_at`] has come, oldest first, and says how many. Fewer than
    /// `limit` means that nothing more is due. Deletes nothing while the clock is not trusted, and nothing if `limit` is 0.
    fn reap(&self, limit: u32) -> impl Future<Output = Result<u32, StoreError>> + Send;

    /// Whether the store can be reached and proves what it promises, asked of the store itself.
    fn health(&self) -> impl Future<Output = Result<Health, StoreError>> + Send;

    /// Whether it has stopped for good: it writes nothing more before it is opened anew, so a write that was not made yet
    /// never will be by this process. What it holds may still be read. Must not block.
    fn has_stopped(&self) -> bool {
        false
    }
}

/// What points to a store is one.
macro_rules! by_reference {
    ($($pointer:ty),+) => {
        $(
            impl<S: Store> Store for $pointer {
                async fn swap(&self, at: &Address, expect: Option<Version>, next: &Record) -> Result<Swap, StoreError> {
                    (**self).swap(at, expect, next).await
                }

                async fn get(&self, at: &Address) -> Result<Seen, StoreError> {
                    (**self).get(at).await
                }

                async fn scan(&self, query: &Scan) -> Result<Page, StoreError> {
                    (**self).scan(query).await
                }

                async fn reap(&self, limit: u32) -> Result<u32, StoreError> {
                    (**self).reap(limit).await
                }

                async fn health(&self) -> Result<Health, StoreError> {
                    (**self).health().await
                }

                fn has_stopped(&self) -> bool {
                    (**self).has_stopped()
                }
            }
        )+
    };
}

by_reference!(&S, Arc<S>);

/// What a store says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// What of an acknowledged write survives.
    pub durability: Durability,
    /// Its clock.
    pub clock: ClockHealth,
}

/// What of an acknowledged write survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Nothing survives the process, or nothing survives the loss of power.
    None,
    /// Survives the loss of the process and of power, on one disk.
    Disk,
    /// Survives the loss of one server: acknowledged by a synchronous standby too.
    Replicated,
}

/// Which records a scan is for. Empty means all; conditions add up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scan {
    /// In one of these states; empty: in any.
    pub states: Vec<State>,
    /// Due by then. The page is in order of due time.
    pub due: Option<Due>,
    /// Of exactly this scope.
    pub scope: Option<Scope>,
    /// With exactly this label.
    pub label: Option<Label>,
    /// With this text in scope or key, as it is: no wildcards. Empty text is in all of them.
    pub text: Option<String>,
    /// Where the page before ended.
    pub after: Option<Cursor>,
    /// At most this many; more than [`PAGE_ENTRIES_MAX`](crate::limits::PAGE_ENTRIES_MAX) means that many, and none
    /// means one.
    pub limit: u32,
}

impl Scan {
    /// Whether the conditions that look at the record itself hold. Stores may check them by their own means; this is
    /// what they mean.
    #[must_use]
    pub fn matches(&self, at: &Address, stored: &Stored, now: Now) -> bool {
        let due = |due: &Due| stored.due_at().is_some_and(|due_at| due_at <= due.by(now));
        let text = |text: &String| at.key().as_str().contains(text) || at.scope().as_str().contains(text);
        (self.states.is_empty() || self.states.contains(&stored.record.state))
            && self.due.as_ref().is_none_or(due)
            && self.scope.as_ref().is_none_or(|scope| scope == at.scope())
            && self.label.as_ref().is_none_or(|label| stored.record.labels.contains(label))
            && self.text.as_ref().is_none_or(text)
    }
}

/// By when a record is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// By the store's own time. Nothing is due while its clock is not trusted.
    Now,
    /// By that moment, trusted or not: for looking, not for acting.
    By(Timestamp),
}

impl Due {
    /// The moment meant.
    #[must_use]
    pub fn by(self, now: Now) -> Timestamp {
        match self {
            Self::Now if now.paused => Timestamp::default(),
            Self::Now => now.at,
            Self::By(at) => at,
        }
    }
}

/// A place in a scan: opaque, made by one store and understood by it only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor(Vec<u8>);

impl Cursor {
    /// A cursor as it was handed out.
    #[must_use]
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// The bytes to hand out.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// One page of a scan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// What matched.
    pub entries: Vec<Entry>,
    /// Records that could not be read. They are listed, not passed over: somebody must look.
    pub damaged: Vec<Damaged>,
    /// Where to go on; `None`: that was all. A page may be empty and still have a next one.
    pub next: Option<Cursor>,
    /// The store's time.
    pub now: Now,
}

/// A record with its address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Whose it is.
    pub address: Address,
    /// What it says.
    pub stored: Stored,
}

/// A record whose bytes are not what was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damaged {
    /// The id of its row, as far as it can be read.
    pub id: Option<Id>,
    /// The scope that stands there, as far as it can be read. It may be what was altered.
    pub scope: Option<String>,
    /// The key, likewise.
    pub key: Option<String>,
    /// What is wrong.
    pub reason: String,
}

/// What a caller does about a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The store could not be reached or refused to work; nothing was written. Come back later.
    Unavailable,
    /// The write may or may not be there. Read back and compare versions.
    Ambiguous,
    /// What is stored was altered or damaged. Never replay it; a person must look.
    Damaged,
    /// The store is not one that can keep the promises, or is of another release. Configuration must change.
    Unsuitable,
    /// The caller asked for something impossible: a forged cursor, a record over the limits.
    Invalid,
}

/// A failure of a store.
#[derive(Debug)]
pub struct StoreError {
    /// Which operation failed.
    pub op: &'static str,
    /// What to do about it.
    pub kind: ErrorKind,
    /// The cause and the next step, for people.
    pub message: String,
    /// What the driver said.
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl StoreError {
    /// A failure without a deeper cause.
    pub fn new(op: &'static str, kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { op, kind, message: message.into(), source: None }
    }

    /// The same with what the driver said.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.op, self.message)
    }
}

impl std::error::Error for StoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
