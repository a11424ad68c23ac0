//! What a service may add around claims: rates per caller, a circuit breaker, counts.
//!
//! The layer asks and tells; it keeps none of this itself. Completions are never asked about: they must always be tried.

use std::time::Duration;

use hapax_core::address::{Address, Scope};

use crate::http::client::Client;
use crate::http::refusal::{Problem, Refusal};
use crate::http::route::Route;

/// How long to stay away.
pub type Wait = Duration;

/// Told once whether the store answered when a claim was asked for, be it only that the record is damaged.
pub type Report = Box<dyn FnOnce(bool) + Send>;

/// Something that happened to a caller's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Seen {
    /// A new key was claimed.
    Created,
    /// A key came back that was used before.
    Duplicate,
    /// A key came back with another request: a mistake, or somebody guessing.
    Mismatch,
    /// The request was refused.
    Refused(Problem),
}

/// The truth came out after something else had been said, or done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LateTruth {
    /// An attempt completed that had been said not to have happened. Its answer is recorded.
    Contradicted,
    /// An attempt completed after a verdict had settled its key. The verdict's answer stands.
    Overruled,
    /// An attempt completed that another one had taken over: suspected double run.
    DoubleRun,
    /// An attempt completed whose record is gone, or a tombstone: purged, or expired. Its answer is recorded nowhere, and
    /// once the key is free, a retry runs.
    Forgotten,
}

impl LateTruth {
    /// The word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Contradicted => "contradicted",
            Self::Overruled => "overruled",
            Self::DoubleRun => "double-run",
            Self::Forgotten => "forgotten",
        }
    }
}

/// A request that would be the first under its key.
#[derive(Clone, Copy, Debug)]
pub struct NewKey<'a> {
    /// Whose key it would be.
    pub caller: &'a Scope,
    /// Where the request comes from, as far as that counts: see [`Client`].
    pub client: Option<Client>,
    /// What applies to it.
    pub route: &'a Route,
}

/// How an attempt ended, whether or not that could be recorded yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ended {
    /// With an answer that is kept, of this status.
    Recorded(u16),
    /// With an answer that is not kept, because the caller was turned away: 401, 429 and the like.
    TurnedAway,
    /// The service failed, or was not reached: provably nothing was done, and the key is free for another attempt.
    Free,
    /// Nobody knows.
    Unknown,
}

/// What a guard wants to remember of an attempt until its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Begun(pub u8);

/// Asked before a claim, told afterwards. Everything is allowed by default.
///
/// ```
/// use std::sync::atomic::{AtomicU32, Ordering};
/// use std::time::Duration;
/// use hapax::Scope;
/// use hapax::http::{Guard, IdempotencyLayer, Route, Wait, single_tenant};
///
/// /// No more than a number of new keys, for the life of the process.
/// struct Quota(AtomicU32);
///
/// impl Guard for Quota {
///     fn new_key(&self, _caller: &Scope, _route: &Route) -> Result<(), Wait> {
///         let taken = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
///         taken.map(|_| ()).map_err(|_| Duration::from_secs(3600))
///     }
/// }
///
/// let layer = IdempotencyLayer::new(hapax::Memory::new(), single_tenant).with_guard(Quota(AtomicU32::new(1000)));
/// # let _ = layer;
/// ```
pub trait Guard: Send + Sync + 'static {
    /// Whether the caller may look up a key.
    ///
    /// # Errors
    /// How long to stay away.
    fn look_up(&self, _caller: &Scope, _route: &Route) -> Result<(), Wait> {
        Ok(())
    }

    /// Whether keys may be looked up from there, whoever the caller is. Not asked where nobody knows from where.
    ///
    /// # Errors
    /// How long to stay away.
    fn look_up_from(&self, _client: Client) -> Result<(), Wait> {
        Ok(())
    }

    /// Whether the caller may use a new key. Asked before it is claimed. A known key is not asked about where the route
    /// limits new keys ([`Route::new_keys_per_second`]); where it does not, every key is, and a no counts for new ones only.
    ///
    /// # Errors
    /// How long to stay away.
    fn new_key(&self, _caller: &Scope, _route: &Route) -> Result<(), Wait> {
        Ok(())
    }

    /// Whether there is room for a new key, whoever asks for it. Asked before it is claimed, of every key: a no counts for new
    /// ones only, and known ones go on. Nothing is used up by asking.
    ///
    /// # Errors
    /// What the caller is told instead.
    fn room_for(&self, _new: &NewKey<'_>) -> Result<(), Refusal> {
        Ok(())
    }

    /// An attempt of this caller begins to run. What is said here is given back at its end.
    fn began(&self, _caller: &Scope, _client: Option<Client>) -> Begun {
        Begun::default()
    }

    /// It has ended. Told once for each that began.
    fn ended(&self, _caller: &Scope, _client: Option<Client>, _begun: Begun, _how: Ended) {}

    /// Whether the store may be asked for a claim, and who wants to know whether it answered.
    ///
    /// # Errors
    /// How long to stay away.
    fn store(&self) -> Result<Option<Report>, Wait> {
        Ok(None)
    }

    /// Something happened to a caller's request.
    fn saw(&self, _caller: &Scope, _seen: Seen) {}

    /// A completion of that attempt came too late to be the whole truth. It is logged and counted already; whoever keeps
    /// a journal notes it. Must not block.
    fn late_truth(&self, _at: &Address, _attempt: u32, _truth: LateTruth) {}
}

/// Allows everything and counts nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Open;

impl Guard for Open {}
