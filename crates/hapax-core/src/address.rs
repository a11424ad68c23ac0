//! Whose record this is: [`Space`], [`Scope`] and [`Key`], and the 32-byte [`Id`] they make.
//!
//! The id is SHA-256 over the length-prefixed address scheme, space, scope and key. Ids of one length spread evenly
//! over shards, and nothing a caller sends can be injected into one: `a:b` + `c` and `a` + `b:c` are different
//! addresses. The parts are kept beside the id, for people.
//!
//! How a scope is found in a request is not decided here.
//!
//! ```
//! use hapax_core::address::{Address, AddressScheme, Key, Scope, Space};
//!
//! let scheme = AddressScheme::default();
//! let space = Space::new("http")?;
//! let address = |scope: &str, key: &str| {
//!     Ok::<_, hapax_core::address::InvalidPart>(Address::new(&scheme, &space, &Scope::new(scope)?, &Key::new(key)?))
//! };
//! assert_eq!(address("alice", "k-1")?.id(), address("alice", "k-1")?.id());
//! assert_ne!(address("a:b", "c")?.id(), address("a", "b:c")?.id());
//! # Ok::<_, hapax_core::address::InvalidPart>(())
//! ```

use std::fmt;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::limits::{ADDRESS_SCHEME_CHARS_MAX, KEY_CHARS_MAX, SCOPE_CHARS_MAX, SPACE_CHARS_MAX};

/// Why a text cannot be a part of an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPart {
    /// There is no text.
    #[error("the {part} is empty; give at least one character")]
    Empty {
        /// Which part.
        part: &'static str,
    },
    /// There is too much text.
    #[error("the {part} has {chars} characters; at most {chars_max} are accepted")]
    TooLong {
        /// Which part.
        part: &'static str,
        /// How long it is.
        chars: usize,
        /// How long it may be.
        chars_max: usize,
    },
    /// A character that is not accepted.
    #[error("the {part} has a character that is not accepted at position {position}; use {accepted}")]
    Character {
        /// Which part.
        part: &'static str,
        /// Where, counted in characters from 0.
        position: usize,
        /// What is accepted.
        accepted: &'static str,
    },
}

macro_rules! part {
    ($(#[$docs:meta])* $name:ident, $part:literal, $chars_max:expr, $accepted:literal, $accepts:expr) => {
        $(#[$docs])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks the text.
            ///
            /// # Errors
            /// If it is empty, too long, or has a character that is not accepted.
            pub fn new(text: &str) -> Result<Self, InvalidPart> {
                check(text, $part, $chars_max, $accepted, $accepts).map(|()| Self(text.into()))
            }

            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:?})"), &self.0)
            }
        }
    };
}

part!(
    /// One use of the store: `http`, `webhook`. Keys of two spaces never meet.
    Space, "space", SPACE_CHARS_MAX, "printable ASCII", is_printable_ascii
);
part!(
    /// Whose key it is: a digest of a credential, a tenant's name. Unicode, kept as it came: no normalisation.
    Scope, "scope", SCOPE_CHARS_MAX, "anything but control characters", |c: char| !c.is_control()
);
part!(
    /// What the client chose: an idempotency key, a webhook's event id. Opaque.
    Key, "key", KEY_CHARS_MAX, "printable ASCII", is_printable_ascii
);
part!(
    /// How addresses are made: which kind of scope, keys per caller or per route. Another scheme makes other ids of
    /// the same keys, so a change would forget every key.
    AddressScheme, "address scheme", ADDRESS_SCHEME_CHARS_MAX, "printable ASCII", is_printable_ascii
);

impl Default for AddressScheme {
    fn default() -> Self {
        Self("1".into())
    }
}

fn is_printable_ascii(c: char) -> bool {
    matches!(c, ' '..='~')
}

fn check(
    text: &str,
    part: &'static str,
    chars_max: usize,
    accepted: &'static str,
    accepts: impl Fn(char) -> bool,
) -> Result<(), InvalidPart> {
    if text.is_empty() {
        return Err(InvalidPart::Empty { part });
    }
    // Nearly every part is short and plain; this is on the way of every request.
    if text.len() <= chars_max && text.bytes().all(|byte| byte.is_ascii() && accepts(char::from(byte))) {
        return Ok(());
    }
    let chars = text.chars().count();
    if chars > chars_max {
        return Err(InvalidPart::TooLong { part, chars, chars_max });
    }
    match text.chars().position(|c| !accepts(c)) {
        Some(position) => Err(InvalidPart::Character { part, position, accepted }),
        None => Ok(()),
    }
}

/// The name of a record in a store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id([u8; 32]);

impl Id {
    /// An id as a store kept it.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes to keep.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl Id {
    /// The id in hexadecimal, as it is shown and sent: 64 digits, lower case.
    #[must_use]
    pub fn to_hex(&self) -> [u8; 64] {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut hex = [0; 64];
        for (pair, byte) in hex.chunks_exact_mut(2).zip(self.0) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        hex
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        // By hand: it is written for every request that is logged.
        let mut text = [0; 64];
        for (pair, byte) in text.chunks_exact_mut(2).zip(self.0) {
            pair.copy_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
        }
        f.write_str(str::from_utf8(&text).unwrap_or_default())
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Id({self})")
    }
}

/// The whole address of a record, with its id.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    id: Id,
    scheme: AddressScheme,
    space: Space,
    scope: Scope,
    key: Key,
}

impl Address {
    /// The address of that key of that caller.
    #[must_use]
    pub fn new(scheme: &AddressScheme, space: &Space, scope: &Scope, key: &Key) -> Self {
        let id = id_of([&scheme.0, &space.0, &scope.0, &key.0]);
        Self { id, scheme: scheme.clone(), space: space.clone(), scope: scope.clone(), key: key.clone() }
    }

    /// The 32 bytes a store knows the record by.
    #[must_use]
    pub fn id(&self) -> &Id {
        &self.id
    }

    /// How the address was made.
    #[must_use]
    pub fn scheme(&self) -> &AddressScheme {
        &self.scheme
    }

    /// Which use of the store.
    #[must_use]
    pub fn space(&self) -> &Space {
        &self.space
    }

    /// Whose key.
    #[must_use]
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// The key.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }
}

fn id_of(parts: [&str; 4]) -> Id {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    Id(hash.finalize().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(scheme: &str, space: &str, scope: &str, key: &str) -> Address {
        let scheme = AddressScheme::new(scheme).unwrap();
        Address::new(&scheme, &Space::new(space).unwrap(), &Scope::new(scope).unwrap(), &Key::new(key).unwrap())
    }

    #[test]
    fn every_part_counts_and_none_runs_into_the_next() {
        let all = [
            address("1", "http", "a", "b"),
            address("2", "http", "a", "b"),
            address("1", "hook", "a", "b"),
            address("1", "http", "b", "a"),
            address("1", "http", "a:b", "c"),
            address("1", "http", "a", "b:c"),
            address("1", "http", "ab", "c"),
            address("1", "http", "a", "bc"),
        ];
        for (i, one) in all.iter().enumerate() {
            for other in &all[i + 1..] {
                assert_ne!(one.id(), other.id(), "{one:?} {other:?}");
            }
        }
    }

    #[test]
    fn the_id_of_an_address_never_changes() {
        let id = address("1", "http", "alice", "8e03978e-40d5-43dd-bc93-6894a57f9324").id().to_string();
        assert_eq!(id, "93ed900b5c5f44afe0c9366190bb73debdde1a79f9dc772a8a7edc404818d049");
        let hex = address("1", "http", "alice", "8e03978e-40d5-43dd-bc93-6894a57f9324").id().to_hex();
        assert_eq!(str::from_utf8(&hex), Ok(id.as_str()));
    }

    #[test]
    fn bad_parts_say_which_and_what_is_accepted() {
        let message = |result: Result<Key, InvalidPart>| result.unwrap_err().to_string();
        assert_eq!(message(Key::new("")), "the key is empty; give at least one character");
        assert_eq!(message(Key::new(&"k".repeat(256))), "the key has 256 characters; at most 255 are accepted");
        assert_eq!(
            message(Key::new("a\u{7f}")),
            "the key has a character that is not accepted at position 1; use printable ASCII"
        );
        assert!(Key::new(&"k".repeat(255)).is_ok());
        assert!(Key::new("\u{e9}").is_err(), "keys are ASCII");
        assert!(Scope::new("\u{e9}\u{202e}\u{1f600}").is_ok(), "scopes are Unicode");
        assert!(Scope::new("a\0b").is_err());
    }
}
