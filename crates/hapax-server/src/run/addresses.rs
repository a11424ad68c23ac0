//! How addresses are made is remembered by the store, because another way would forget every key.
//!
//! What is remembered stands in a record of its own: the scheme, and random bytes that go into digests of credentials, so
//! that a leaked store cannot be searched with a list of passwords. A server that would make other addresses refuses to
//! start, unless it is told that this is meant.

use std::sync::Arc;

use hapax::tokens;
use hapax_core::address::{Address, AddressScheme, InvalidPart, Key, Scope, Space};
use hapax_core::fingerprint::{Fingerprint, Scheme};
use hapax_core::limits::DURATION_MS_MAX;
use hapax_core::record::{Body, Outcome, Policy, Record, State, Version};
use hapax_core::store::{ErrorKind, Seen, Store, StoreError, Swap};

/// What the store remembers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Remembered {
    /// Goes into digests of credentials.
    pub(super) salt: [u8; 32],
    /// How addresses are made; empty until [`confirm`] has been called once.
    pub(super) scheme: String,
}

/// What the store remembers. A new store draws its random bytes now; of several nodes that start at once, one does.
pub(super) async fn recall(store: &impl Store) -> Result<Remembered, StoreError> {
    let at = address().map_err(|error| invalid(&error))?;
    let seen = store.get(&at).await?;
    if let Some(remembered) = read(&seen)? {
        return Ok(remembered);
    }
    let mut salt = [0; 32];
    salt[..16].copy_from_slice(&tokens::random());
    salt[16..].copy_from_slice(&tokens::random());
    let new = Remembered { salt, scheme: String::new() };
    match store.swap(&at, seen.version(), &record(&new)?).await? {
        Swap::Applied(_) => Ok(new),
        Swap::Lost(seen) => read(&seen)?.ok_or_else(damaged),
    }
}

/// Compares the scheme with the one remembered; a store without one learns it, and with `renew` any store does.
/// Returns the one that stands there if it is another.
pub(super) async fn confirm(store: &impl Store, scheme: &str, renew: bool) -> Result<Option<String>, StoreError> {
    let at = address().map_err(|error| invalid(&error))?;
    let mut seen = store.get(&at).await?;
    // Another node may confirm at the same time: what it wrote is compared as well.
    for _ in 0..8 {
        let remembered = read(&seen)?.ok_or_else(damaged)?;
        if remembered.scheme == scheme {
            return Ok(None);
        }
        if !remembered.scheme.is_empty() && !renew {
            return Ok(Some(remembered.scheme));
        }
        let next = record(&Remembered { scheme: scheme.to_owned(), ..remembered })?;
        match store.swap(&at, seen.version(), &next).await? {
            Swap::Applied(_) => return Ok(None),
            Swap::Lost(now) => seen = now,
        }
    }
    Err(StoreError::new("start", ErrorKind::Unavailable, "other nodes keep changing the address scheme; start again"))
}

fn address() -> Result<Address, InvalidPart> {
    let (space, scope, key) = (Space::new("hapax")?, Scope::new("server")?, Key::new("addresses")?);
    Ok(Address::new(&AddressScheme::default(), &space, &scope, &key))
}

/// Two lines: the random bytes in hexadecimal digits, and the scheme.
fn record(remembered: &Remembered) -> Result<Record, StoreError> {
    let salt: String = remembered.salt.iter().map(|byte| format!("{byte:02x}")).collect();
    let body = format!("{salt}\n{}", remembered.scheme).into_bytes();
    let scheme =
        Scheme::new("none").map_err(|error| StoreError::new("start", ErrorKind::Invalid, error.to_string()))?;
    Ok(Record {
        version: Version::from_bytes(tokens::random()),
        state: State::Completed,
        attempt: 0,
        attempt_id: None,
        fingerprint: Fingerprint { scheme, digest: [0; 32] },
        policy: Policy { retention_ms: DURATION_MS_MAX, ..Policy::default() },
        due_in_ms: None,
        expires_in_ms: Some(DURATION_MS_MAX),
        created_at: None,
        checkpoint: None,
        request: None,
        outcome: Some(Arc::new(Outcome { status: 200, headers: Vec::new(), body: Body::Kept(body) })),
        error: None,
        verdict: None,
        doubt: None,
        labels: Vec::new(),
    })
}

fn read(seen: &Seen) -> Result<Option<Remembered>, StoreError> {
    let Some(stored) = &seen.stored else { return Ok(None) };
    let Some(Body::Kept(body)) = stored.record.outcome.as_ref().map(|outcome| &outcome.body) else {
        return Err(damaged());
    };
    let text = std::str::from_utf8(body).map_err(|_| damaged())?;
    let (digits, scheme) = text.split_once('\n').ok_or_else(damaged)?;
    let mut salt = [0; 32];
    if digits.len() != 64 || !digits.is_ascii() {
        return Err(damaged());
    }
    for (at, byte) in salt.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).map_err(|_| damaged())?;
    }
    Ok(Some(Remembered { salt, scheme: scheme.to_owned() }))
}

fn damaged() -> StoreError {
    let message = "the record of how addresses are made cannot be read; restore it from a backup, or use a new store";
    StoreError::new("start", ErrorKind::Damaged, message)
}

fn invalid(error: &InvalidPart) -> StoreError {
    StoreError::new("start", ErrorKind::Invalid, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use hapax_core::memory::Memory;
    use hapax_sqlite::SystemClock;

    #[tokio::test]
    async fn a_store_keeps_its_random_bytes_and_its_scheme() {
        let store = Memory::new(SystemClock);
        let first = recall(&store).await.unwrap();
        assert_ne!(first.salt, [0; 32]);
        assert_eq!(recall(&store).await.unwrap(), first);
        assert_eq!(confirm(&store, "1;credential", false).await.unwrap(), None);
        assert_eq!(confirm(&store, "1;credential", false).await.unwrap(), None);
        assert_eq!(confirm(&store, "1;single", false).await.unwrap().as_deref(), Some("1;credential"));
        assert_eq!(confirm(&store, "1;single", true).await.unwrap(), None);
        let last = recall(&store).await.unwrap();
        assert_eq!((last.salt, last.scheme.as_str()), (first.salt, "1;single"));
    }
}
