//! [`Claim`]: what a handler holds while its request runs.

use std::fmt;

use hapax_core::address::{Address, Id, Space};
use hapax_core::record::Checkpoint;
use sha2::{Digest, Sha256};

/// The claim that a request runs under. The layer puts it into the request's extensions; with the feature `axum` it is an
/// argument of handlers.
///
/// ```
/// # #[cfg(feature = "test-util")] {
/// use hapax::http::Claim;
///
/// /// Charges at the provider, and returns what the provider is asked with.
/// fn pay(claim: &Claim) -> String {
///     // The same in every attempt: the provider can recognise a repetition as well.
///     claim.derive("charge")
/// }
///
/// let claim = Claim::for_test("alice", "k-1");
/// assert_eq!((claim.scope(), claim.key(), claim.attempt()), ("alice", "k-1", 1));
/// assert_eq!(pay(&claim), pay(&Claim::for_test("alice", "k-1")));
/// assert_ne!(pay(&claim), pay(&Claim::for_test("bob", "k-1")));
/// # }
/// ```
#[derive(Clone)]
pub struct Claim {
    at: Address,
    attempt: u32,
    checkpoint: Option<Checkpoint>,
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim").field("id", self.at.id()).field("attempt", &self.attempt).finish_non_exhaustive()
    }
}

impl Claim {
    pub(crate) fn new(at: Address, attempt: u32, checkpoint: Option<Checkpoint>) -> Self {
        Self { at, attempt, checkpoint }
    }

    /// The first attempt under that key of that caller, as the layer with its defaults makes it: for tests of what takes a
    /// claim. Nothing is claimed in any store.
    ///
    /// # Panics
    /// If one of the two is no text of its kind, such as an empty one.
    #[cfg(feature = "test-util")]
    #[must_use]
    #[track_caller]
    #[expect(clippy::expect_used, reason = "a test fails by a panic")]
    pub fn for_test(scope: &str, key: &str) -> Self {
        let scope = hapax_core::address::Scope::new(scope).expect("the scope of a claim");
        let key = hapax_core::address::Key::new(key).expect("the key of a claim");
        let scheme = hapax_core::address::AddressScheme::default();
        Self::new(Address::new(&scheme, &SPACE, &scope, &key), 1, None)
    }

    /// The key that the client chose.
    #[must_use]
    pub fn key(&self) -> &str {
        self.at.key().as_str()
    }

    /// Whose key it is.
    #[must_use]
    pub fn scope(&self) -> &str {
        self.at.scope().as_str()
    }

    /// The record's name in the store.
    #[must_use]
    pub fn id(&self) -> &Id {
        self.at.id()
    }

    /// Which attempt this is, from 1. It only grows, so that a resource can refuse what comes from an older one.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Where an earlier attempt got to, if it said so.
    #[must_use]
    pub fn checkpoint(&self) -> Option<&Checkpoint> {
        self.checkpoint.as_ref()
    }

    /// A key for a call that this request makes: the same in every attempt, different for every name and every request,
    /// so that the provider can recognise a repetition.
    #[must_use]
    pub fn derive(&self, name: &str) -> String {
        let mut hash = Sha256::new();
        for part in [b"hapax derived key".as_slice(), self.at.id().as_bytes(), name.as_bytes()] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        hash.finalize()[..16].iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

#[cfg(feature = "axum")]
mod extract {
    use axum_core::extract::{FromRequestParts, OptionalFromRequestParts};
    use http::StatusCode;
    use http::request::Parts;

    use super::Claim;

    const UNPROTECTED: &str = "no claim: the route is not protected, or its request had no key; take Option<Claim>";

    impl<S: Send + Sync> FromRequestParts<S> for Claim {
        type Rejection = (StatusCode, &'static str);

        async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Self::Rejection> {
            parts.extensions.get().cloned().ok_or((StatusCode::INTERNAL_SERVER_ERROR, UNPROTECTED))
        }
    }

    impl<S: Send + Sync> OptionalFromRequestParts<S> for Claim {
        type Rejection = std::convert::Infallible;

        async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Option<Self>, Self::Rejection> {
            Ok(parts.extensions.get().cloned())
        }
    }
}

/// Keys of requests, apart from those of webhooks and of hapax itself.
pub(crate) static SPACE: std::sync::LazyLock<Space> = std::sync::LazyLock::new(|| named("http"));

/// A space of that name, which a developer chose.
#[expect(clippy::expect_used, reason = "the names are constants of this crate, and a test reads them")]
pub(crate) fn named(name: &'static str) -> Space {
    Space::new(name).expect("a short word")
}

#[cfg(test)]
mod tests {
    use super::*;
    use hapax_core::address::{AddressScheme, Key, Scope};

    fn claim(key: &str, attempt: u32) -> Claim {
        let (space, scope) = (Space::new("http").unwrap(), Scope::new("alice").unwrap());
        let at = Address::new(&AddressScheme::default(), &space, &scope, &Key::new(key).unwrap());
        Claim::new(at, attempt, None)
    }

    #[test]
    fn derived_keys_are_the_same_in_every_attempt_and_different_otherwise() {
        assert_eq!(claim("k", 1).derive("charge"), claim("k", 2).derive("charge"));
        assert_ne!(claim("k", 1).derive("charge"), claim("k", 1).derive("mail"));
        assert_ne!(claim("k", 1).derive("charge"), claim("l", 1).derive("charge"));
        assert_eq!(claim("k", 1).derive("charge").len(), 32);
    }
}
