//! Short texts that a store remembers for hapax itself, such as how addresses are made and whether a fence stands.
//!
//! Each is a record in a space of its own ([`SPACE`]), so every store can keep it and no caller's key can reach it. Whoever
//! lists the records of callers leaves that space out.

use std::sync::Arc;

use hapax_core::address::{Address, AddressScheme, InvalidPart, Key, Scope, Space};
use hapax_core::clock::Now;
use hapax_core::fingerprint::{Fingerprint, Scheme};
use hapax_core::journal::{Journal, Note};
use hapax_core::limits::DURATION_MS_MAX;
use hapax_core::record::{Body, Outcome, Policy, Record, State, Version};
use hapax_core::store::{ErrorKind, Seen, Store, StoreError, Swap};

use crate::tokens;

/// The space of hapax's own records.
pub const SPACE: &str = "hapax";

/// A text, and the version to expect when it is replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remembered {
    /// What is remembered. `None`: nothing so far.
    pub text: Option<String>,
    version: Option<Version>,
    /// When it was recalled, by the store's clock.
    pub(crate) now: Now,
}

/// What the store remembers under that name.
///
/// # Errors
/// If the store fails, or what it has cannot be read.
pub async fn recall(store: &impl Store, name: &str) -> Result<Remembered, StoreError> {
    read(&store.get(&address(name)?).await?)
}

/// Replaces what was recalled, and says what stands there now if somebody else was faster.
///
/// # Errors
/// If the store fails.
pub async fn remember(
    store: &impl Store,
    name: &str,
    recalled: &Remembered,
    text: &str,
) -> Result<Result<(), Remembered>, StoreError> {
    replaced(store.swap(&address(name)?, recalled.version, &record(text)?).await?)
}

/// The same with a note of who changed it and why: both are kept, or neither.
///
/// # Errors
/// If the store fails.
pub async fn remember_noted(
    store: &impl Journal,
    name: &str,
    recalled: &Remembered,
    text: &str,
    note: &Note,
) -> Result<Result<(), Remembered>, StoreError> {
    replaced(store.swap_noted(&address(name)?, recalled.version, &record(text)?, note).await?)
}

fn replaced(swap: Swap) -> Result<Result<(), Remembered>, StoreError> {
    match swap {
        Swap::Applied(_) => Ok(Ok(())),
        Swap::Lost(seen) => read(&seen).map(Err),
    }
}

fn address(name: &str) -> Result<Address, StoreError> {
    let made = || {
        let (space, scope, key) = (Space::new(SPACE)?, Scope::new("server")?, Key::new(name)?);
        Ok(Address::new(&AddressScheme::default(), &space, &scope, &key))
    };
    made().map_err(|error: InvalidPart| StoreError::new("recall", ErrorKind::Invalid, error.to_string()))
}

fn record(text: &str) -> Result<Record, StoreError> {
    let scheme =
        Scheme::new("none").map_err(|error| StoreError::new("remember", ErrorKind::Invalid, error.to_string()))?;
    let body = Body::Kept(text.as_bytes().to_vec());
    let policy = Policy { retention_ms: DURATION_MS_MAX, ..Policy::default() };
    let fingerprint = Fingerprint { scheme, digest: [0; 32] };
    Ok(Record {
        expires_in_ms: Some(DURATION_MS_MAX),
        outcome: Some(Arc::new(Outcome { status: 200, headers: Vec::new(), body })),
        ..Record::new(Version::from_bytes(tokens::random()), State::Completed, fingerprint, policy)
    })
}

fn read(seen: &Seen) -> Result<Remembered, StoreError> {
    let (version, now) = (seen.version(), seen.now);
    let Some(stored) = &seen.stored else { return Ok(Remembered { text: None, version, now }) };
    match stored.record.outcome.as_ref().map(|outcome| &outcome.body) {
        Some(Body::Kept(body)) => {
            let text = String::from_utf8(body.clone()).map_err(|_| damaged())?;
            Ok(Remembered { text: Some(text), version, now })
        }
        _ => Err(damaged()),
    }
}

fn damaged() -> StoreError {
    let message = "a record of hapax itself cannot be read; restore it from a backup, or use a new store";
    StoreError::new("recall", ErrorKind::Damaged, message)
}
