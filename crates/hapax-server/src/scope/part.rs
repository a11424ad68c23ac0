//! What each kind contributes, and how the parts become one [`Scope`].
//!
//! A scope is either a short text that operators can read (`h:acme`) or a digest (`c:…` of one secret, `m:…` of
//! several parts, or of a text that does not fit). The prefix says which, so a value can never pass for a digest or for
//! the value of another kind. In a digest every part is preceded by its length: nothing runs into its neighbour.
//!
//! SHA-256 of a secret that nobody can guess (an API key, an opaque token) reveals nothing about it. A password in Basic
//! credentials may be guessed, and then a digest confirms the guess. So only the first 16 bytes are kept, which is
//! plenty to tell callers apart, and a salt of the store's own makes digests useless outside of that store.

use hapax_core::address::Scope;
use sha2::{Digest, Sha256};

use crate::logs::hex;

/// Precedes everything in a digest, so that it equals no other digest that hapax or anybody else makes.
const DOMAIN: &[u8] = b"hapax scope 1";

/// The bytes of a digest that are kept. Nobody finds a second credential with the same 128 bits.
const DIGEST_BYTES: usize = 16;

/// Random bytes of one store.
pub(super) type Salt = [u8; 32];

/// What one kind says of a caller.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Part {
    /// A secret, and where it stood. It is never shown.
    Secret { source: String, value: Vec<u8> },
    /// Names that may be read: mostly one; a tenant's name together with its issuer's is two.
    Plain { tag: &'static str, values: Vec<Vec<u8>> },
    /// A word that hapax itself chose.
    Word(&'static str),
}

impl Part {
    pub(super) fn plain(tag: &'static str, value: impl Into<Vec<u8>>) -> Self {
        Self::Plain { tag, values: vec![value.into()] }
    }

    /// The scope, if this part alone can be read and fits.
    fn readable(&self) -> Option<Scope> {
        match self {
            Self::Secret { .. } => None,
            Self::Word(word) => Scope::new(word).ok(),
            Self::Plain { tag, values } => match values.as_slice() {
                [value] => Scope::new(&format!("{tag}:{}", str::from_utf8(value).ok()?)).ok(),
                _ => None,
            },
        }
    }

    fn feed(&self, hash: &mut Sha256) {
        match self {
            Self::Secret { source, value } => feed_all(hash, &[b"secret", source.as_bytes(), value]),
            Self::Word(word) => feed_all(hash, &[b"word", word.as_bytes()]),
            Self::Plain { tag, values } => {
                let mut fields = vec![b"plain".as_slice(), tag.as_bytes()];
                fields.extend(values.iter().map(Vec::as_slice));
                feed_all(hash, &fields);
            }
        }
    }
}

/// The text of the scope that these parts make.
pub(super) fn scope_of(salt: Option<&Salt>, parts: &[Part]) -> Result<Scope, hapax_core::address::InvalidPart> {
    match parts {
        [Part::Secret { .. }] => Scope::new(&format!("c:{}", digest(salt, parts))),
        [part] => part.readable().map_or_else(|| Scope::new(&format!("m:{}", digest(salt, parts))), Ok),
        _ => Scope::new(&format!("m:{}", digest(salt, parts))),
    }
}

/// Whether a scope is a digest: nobody but hapax knows what it stands for. The prefix of a readable one is another.
pub(crate) fn is_digest(scope: &Scope) -> bool {
    scope.as_str().starts_with("c:") || scope.as_str().starts_with("m:")
}

/// The digest of the parts, as 32 hex characters.
pub(super) fn digest(salt: Option<&Salt>, parts: &[Part]) -> String {
    let mut hash = Sha256::new();
    feed_all(&mut hash, &[DOMAIN, salt.map_or(&[], Salt::as_slice)]);
    hash.update((parts.len() as u64).to_le_bytes());
    for part in parts {
        part.feed(&mut hash);
    }
    hex(&hash.finalize()[..DIGEST_BYTES])
}

fn feed_all(hash: &mut Sha256, fields: &[&[u8]]) {
    hash.update((fields.len() as u64).to_le_bytes());
    for field in fields {
        hash.update((field.len() as u64).to_le_bytes());
        hash.update(field);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(parts: &[Part]) -> String {
        scope_of(None, parts).unwrap().as_str().to_owned()
    }

    fn secret(value: &str) -> Part {
        Part::Secret { source: "authorization bearer".into(), value: value.into() }
    }

    #[test]
    fn digests_never_change_because_stored_keys_depend_on_them() {
        assert_eq!(scope(&[secret("sk_1")]), "c:2fcb05f08b87942f48c38e032de7f54f");
        assert_eq!(scope(&[secret("sk_1"), Part::plain("h", "acme")]), "m:507b2f017a6e7823b4f061aa63bd2445");
        assert_eq!(digest(Some(&[7; 32]), &[secret("sk_1")]), "e0b2706b4dcbbac8000ab000830b8f63");
    }

    #[test]
    fn parts_do_not_run_into_one_another() {
        let two = |a: &str, b: &str| scope(&[Part::plain("h", a), Part::plain("h", b)]);
        assert_ne!(two("a:b", "c"), two("a", "b:c"));
        assert_ne!(two("ab", ""), two("a", "b"));
        let joined = scope(&[Part::Plain { tag: "j", values: vec![b"a".to_vec(), b"b".to_vec()] }]);
        assert_ne!(joined, scope(&[Part::plain("j", "a"), Part::plain("j", "b")]));
        assert_ne!(two("a", "b"), two("b", "a"));
    }

    #[test]
    fn what_cannot_be_read_is_digested_and_cannot_be_forged_by_a_name() {
        let long = scope(&[Part::plain("h", "x".repeat(300))]);
        assert!(long.starts_with("m:") && long.len() == 34, "{long}");
        assert_eq!(scope(&[Part::plain("h", long.as_str())]), format!("h:{long}"));
        assert!(scope(&[Part::plain("h", vec![0xff])]).starts_with("m:"));
        assert!(scope(&[Part::plain("h", "a\tb")]).starts_with("m:"));
        assert_eq!(scope(&[Part::Word("single")]), "single");
    }
}
