//! How addresses are made is remembered by the store, because another way would forget every key.
//!
//! What is remembered stands in a record of its own: the scheme, and random bytes that go into digests of credentials, so
//! that a leaked store cannot be searched with a list of passwords. A server that would make other addresses refuses to
//! start, unless it is told that this is meant. Operators' look-ups compute the address of a key from it ([`known`]).

use hapax::remembered::{self, Remembered as Recalled};
use hapax::tokens;
use hapax_core::address::{Address, AddressScheme, InvalidPart, Key, Scope, Space};
use hapax_core::store::{ErrorKind, Store, StoreError};

/// The name under which it is remembered.
const NAME: &str = "addresses";

/// The scheme begins with its own version.
const VERSION: &str = "1";

/// What follows the scheme of scopes where every key is unique per caller.
const PER_CALLER: &str = "per-caller";

/// The spaces in which a layer keeps keys that are unique per caller: those that it enforces, and those that it observes.
const SPACES: [&str; 2] = ["http", "http-observed"];

/// What the store remembers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Remembered {
    /// Goes into digests of credentials.
    pub(crate) salt: [u8; 32],
    /// How addresses are made; empty until [`confirm`] has been called once: then no node has used the store yet.
    pub(crate) scheme: String,
}

/// The scheme of addresses where scopes are made so.
pub(crate) fn of_scopes(scopes: &str) -> Result<AddressScheme, InvalidPart> {
    AddressScheme::new(&format!("{VERSION};{scopes}"))
}

/// Names everything that decides about addresses, for the store to remember: how scopes are made, and for whom keys are unique.
pub(crate) fn full(scopes: &str, key_per: &str) -> String {
    format!("{VERSION};{scopes};{key_per}")
}

/// How the keys of a store are addressed, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    schemes: Vec<AddressScheme>,
    /// Whether every key of a node is unique per caller. Otherwise some have addresses that depend on their path.
    pub(crate) is_per_caller: bool,
}

impl Known {
    fn of(scheme: &str) -> Self {
        // A service with the layer in it uses the default.
        let mut schemes = vec![AddressScheme::default()];
        // Scopes end with a mark of the random bytes, and it has eight digits.
        let scopes_end = scheme.rfind(";salt:").map(|at| at + ";salt:".len() + 8);
        let parts = scopes_end.and_then(|at| scheme.split_at_checked(at));
        if let Some((Ok(scheme), _)) = parts.map(|(scopes, rest)| (AddressScheme::new(scopes), rest)) {
            schemes.insert(0, scheme);
        }
        let is_per_caller = parts.is_some_and(|(_, rest)| rest.strip_prefix(';') == Some(PER_CALLER));
        Self { schemes, is_per_caller }
    }

    /// The addresses that a key of that scope has where it is unique per caller.
    pub(crate) fn addresses<'a>(&'a self, scope: &'a Scope, key: &'a Key) -> impl Iterator<Item = Address> + 'a {
        let spaces = SPACES.iter().filter_map(|name| Space::new(name).ok());
        spaces.flat_map(move |space| self.schemes.iter().map(move |scheme| Address::new(scheme, &space, scope, key)))
    }
}

/// How the keys of that store are addressed. Nothing is written.
pub(crate) async fn known(store: &impl Store) -> Result<Known, StoreError> {
    let recalled = remembered::recall(store, NAME).await?;
    // Where it cannot be read, no node starts, and operators look for records without it.
    let scheme = read(&recalled).map(|remembered| remembered.scheme).unwrap_or_default();
    Ok(Known::of(&scheme))
}

/// What the store remembers. A new store draws its random bytes now; of several nodes that start at once, one does.
pub(crate) async fn recall(store: &impl Store) -> Result<Remembered, StoreError> {
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
pub(crate) async fn confirm(store: &impl Store, scheme: &str, renew: bool) -> Result<Option<String>, StoreError> {
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

    #[test]
    fn a_scheme_says_where_keys_are() {
        let scopes = "credential;salt:0123abcd";
        for (key_per, is_per_caller) in
            [("per-caller", true), ("per-caller;POST/pay=route", false), ("per-route", false)]
        {
            let known = Known::of(&full(scopes, key_per));
            assert_eq!(known.schemes, [of_scopes(scopes).unwrap(), AddressScheme::default()], "{key_per}");
            assert_eq!(known.is_per_caller, is_per_caller, "{key_per}");
        }
        for unknown in ["", "1;credential;per-caller", "1;credential;salt:12", "1;credential;salt:0123abcé"] {
            let known = Known::of(unknown);
            assert_eq!((known.schemes, known.is_per_caller), (vec![AddressScheme::default()], false), "{unknown}");
        }
    }

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
