//! Who changed what by hand, and why: [`Note`]s, kept with the records and never changed.
//!
//! Requests leave no note: their record says it all. A note is written where somebody with authority acts (a resolution, a
//! purge, a fence raised or lifted) and where the truth came out against a verdict. A note about a change of a record is
//! written in the same transaction as the change: both are there, or neither.

use std::future::Future;
use std::sync::Arc;

use crate::address::{Address, Id};
use crate::clock::{Now, Timestamp};
use crate::limits;
use crate::record::{Record, State, Version};
use crate::store::{ErrorKind, Store, StoreError, Swap};

/// What is noted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Who acted: a person, a token's name, or a role of the server.
    pub who: String,
    /// What was done: a word.
    pub what: String,
    /// About which record; none, if it is about the store.
    pub about: Option<About>,
    /// The state before.
    pub before: Option<State>,
    /// The state after.
    pub after: Option<State>,
    /// Why, in the actor's words.
    pub reason: String,
    /// More, for people: the status recorded, how many records, a time.
    pub detail: String,
}

/// The record a note is about, as far as people need it. It may be gone when the note is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// Its id.
    pub id: Id,
    /// Whose key it is.
    pub scope: String,
    /// The key.
    pub key: String,
    /// Which attempt.
    pub attempt: u32,
}

impl About {
    /// That attempt of the record at that address.
    #[must_use]
    pub fn new(at: &Address, attempt: u32) -> Self {
        let (scope, key) = (at.scope().as_str().to_owned(), at.key().as_str().to_owned());
        Self { id: *at.id(), scope, key, attempt }
    }
}

impl Note {
    /// Refuses what is larger than the limits allow, before it reaches a store.
    ///
    /// # Errors
    /// Names the part that is too large.
    pub fn check_limits(&self) -> Result<(), StoreError> {
        let sizes = [
            ("name of who acts", self.who.len(), limits::NOTE_WORD_BYTES_MAX),
            ("name of what is done", self.what.len(), limits::NOTE_WORD_BYTES_MAX),
            ("reason", self.reason.len(), limits::NOTE_TEXT_BYTES_MAX),
            ("detail", self.detail.len(), limits::NOTE_TEXT_BYTES_MAX),
        ];
        let refuse = |message: String| Err(StoreError::new("note", ErrorKind::Invalid, message));
        if let Some((part, size, size_max)) = sizes.into_iter().find(|(_, size, size_max)| size > size_max) {
            return refuse(format!("the {part} has {size} bytes; at most {size_max} are accepted"));
        }
        // Not every store can keep it, and nobody can read it.
        if [&self.who, &self.what, &self.reason, &self.detail].into_iter().any(|text| text.contains('\0')) {
            return refuse("a note holds a NUL character; leave it out".to_owned());
        }
        Ok(())
    }
}

/// A note as it was kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Noted {
    /// Its number. Later ones are larger; some may be missing.
    pub number: u64,
    /// When it was written, in store time.
    pub at: Timestamp,
    /// What it says.
    pub note: Note,
}

/// Which notes are asked for. Newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NoteScan {
    /// About this record only.
    pub about: Option<Id>,
    /// Older than that one: where the page before ended.
    pub before: Option<u64>,
    /// At most this many; more than [`PAGE_ENTRIES_MAX`](limits::PAGE_ENTRIES_MAX) means that many, and none means one.
    pub limit: u32,
}

impl NoteScan {
    /// How many are asked for, within what is allowed.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.limit.clamp(1, limits::PAGE_ENTRIES_MAX)
    }
}

/// A store that keeps notes with its records.
pub trait Journal: Store {
    /// Swaps as [`Store::swap`] does; where the swap is applied, the note is kept with it. Both or neither.
    fn swap_noted(
        &self,
        at: &Address,
        expect: Option<Version>,
        next: &Record,
        note: &Note,
    ) -> impl Future<Output = Result<Swap, StoreError>> + Send;

    /// Keeps a note by itself. Durable when it returns.
    fn note(&self, note: &Note) -> impl Future<Output = Result<Now, StoreError>> + Send;

    /// Notes, newest first.
    fn notes(&self, query: &NoteScan) -> impl Future<Output = Result<Vec<Noted>, StoreError>> + Send;
}

/// What points to a journal is one.
macro_rules! by_reference {
    ($($pointer:ty),+) => {
        $(
            impl<S: Journal> Journal for $pointer {
                async fn swap_noted(
                    &self,
                    at: &Address,
                    expect: Option<Version>,
                    next: &Record,
                    note: &Note,
                ) -> Result<Swap, StoreError> {
                    (**self).swap_noted(at, expect, next, note).await
                }

                async fn note(&self, note: &Note) -> Result<Now, StoreError> {
                    (**self).note(note).await
                }

                async fn notes(&self, query: &NoteScan) -> Result<Vec<Noted>, StoreError> {
                    (**self).notes(query).await
                }
            }
        )+
    };
}

by_reference!(&S, Arc<S>);
