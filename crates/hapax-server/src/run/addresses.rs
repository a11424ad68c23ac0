//! How addresses are made is remembered by the store, because another way would forget every key.
//!
//! What is remembered stands in a record of its own: the scheme, and random bytes that go into digests of credentials, so
//! that a leaked store cannot be searched with a list of passwords. A server that would make other addresses refuses to
//! start, unless it is told that this is meant.

use hapax::remembered::{self, Remembered as Recalled};
use hapax::tokens;
use hapax_core::store::{ErrorKind, Store, StoreError};

/// The name under which it is remembered.
const NAME: &str = "addresses";

/// What the store remembers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Remembered {
    /// Goes into digests of credentials.
    pub(super) salt: [u8; 32],
    /// How addresses are made; empty until [`confirm`] has been called once: then no node has used the store yet.
    pub(super) scheme: String,
}

/// What the store remembers. A new store draws its random bytes now; of several nodes that start at once, one does.
pub(super) async fn recall(store: &impl Store) -> Result<Remembered, StoreError> {
    let recalled = remembered::recall(store, NAME).await?;
    if recalled.text.is_some() {
        return read(&recalled);
    }
    let mut salt = [0; 32];
    salt[..16].copy_from_slice(&tokens::random());
    salt[16..].copy_from_slice(&tokens::random());
    let new = Remembered { salt, scheme: String::new() };
    match remembered::remember(store, NAME, &recalled, &text(&new)).await? {
        Ok(()) => Ok(new),
        Err(other) => read(&other),
    }
}

/// Compares the scheme with the one remembered; a store without one learns it, and with `renew` any store does.
/// Returns the one that stands there if it is another.
pub(super) async fn confirm(store: &impl Store, scheme: &str, renew: bool) -> Result<Option<String>, StoreError> {
    let mut recalled = remembered::recall(store, NAME).await?;
    // Another node may confirm at the same time: what it wrote is compared as well.
    for _ in 0..8 {
        let known = read(&recalled)?;
        if known.scheme == scheme {
            return Ok(None);
        }
        if !known.scheme.is_empty() && !renew {
            return Ok(Some(known.scheme));
        }
        let next = Remembered { scheme: scheme.to_owned(), ..known };
        match remembered::remember(store, NAME, &recalled, &text(&next)).await? {
            Ok(()) => return Ok(None),
            Err(other) => recalled = other,
        }
    }
    Err(StoreError::new("start", ErrorKind::Unavailable, "other nodes keep changing the address scheme; start again"))
}

/// Two lines: the random bytes in hexadecimal digits, and the scheme.
fn text(remembered: &Remembered) -> String {
    let salt: String = remembered.salt.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{salt}\n{}", remembered.scheme)
}

fn read(recalled: &Recalled) -> Result<Remembered, StoreError> {
    let text = recalled.text.as_deref().ok_or_else(damaged)?;
    let (digits, scheme) = text.split_once('\n').ok_or_else(damaged)?;
    let mut salt = [0; 32];
    if digits.len() != 64 || !digits.is_ascii() {
        return Err(damaged());
    }
    for (at, byte) in salt.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).map_err(|_| damaged())?;
    }
    Ok(Remembered { salt, scheme: scheme.to_owned() })
}

fn damaged() -> StoreError {
    let message = "the record of how addresses are made cannot be read; restore it from a backup, or use a new store";
    StoreError::new("start", ErrorKind::Damaged, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hapax_core::memory::Memory;

    #[tokio::test]
    async fn a_store_keeps_its_random_bytes_and_its_scheme() {
        let store = Memory::new();
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
