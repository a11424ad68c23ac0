//! Decide, swap, and decide again if somebody else was faster: a bounded loop.
//!
//! The engine is the only place where rules and store meet. [`Engine::apply`] starts from what the caller knows, or from
//! the guess that makes the common case one round trip: a claim assumes a free key. A lost swap brings the record that
//! stands there, and the rules decide again. After an ambiguous failure the engine reads back and looks for the version
//! it wrote. [`Engine::apply_once`] decides about the record as it was seen, and about no other.
//!
//! Leases, waiting and background work are not here.
//!
//! ```
//! use std::sync::Arc;
//! # use hapax_core::address::{Address, AddressScheme, Key, Scope, Space};
//! # use hapax_core::clock::{Clock, Reading};
//! # use hapax_core::fingerprint::{Fingerprinter, Fingerprints, Recipe, Request};
//! use hapax_core::engine::Engine;
//! use hapax_core::memory::Memory;
//! use hapax_core::record::{Body, Labels, Outcome, Policy};
//! use hapax_core::transition::{Answer, Event};
//! # #[derive(Debug)]
//! # struct Stopped;
//! # impl Clock for Stopped {
//! #     fn read(&self) -> Reading { Reading { wall_ms: 1_000, boot_ms: 0 } }
//! #     fn boot_id(&self) -> String { "doc".into() }
//! # }
//! # let counter = std::sync::atomic::AtomicU64::new(1);
//! # let random = move || u128::from(counter.fetch_add(1, std::sync::atomic::Ordering::Relaxed)).to_le_bytes();
//! # let at = Address::new(&AddressScheme::default(), &Space::new("http")?, &Scope::new("alice")?, &Key::new("k-1")?);
//! # let recipe = Recipe::new();
//! # let request = Fingerprinter::new(Request::new("POST", "/pay", b"{}"), &recipe, &[])?.current();
//! # let mut context = std::task::Context::from_waker(std::task::Waker::noop());
//! # let mut block_on = |future: std::pin::Pin<Box<dyn Future<Output = _>>>| -> Result<_, hapax_core::engine::EngineError> {
//! #     let mut future = future;
//! #     loop { if let std::task::Poll::Ready(out) = future.as_mut().poll(&mut context) { return out } }
//! # };
//! # let engine = Arc::new(Engine::new(Memory::with_clock(Stopped), random));
//! # let outer = engine.clone();
//! # block_on(Box::pin(async move {
//! let reply = engine.claim(&at, &request, Policy::default()).await?;
//! assert_eq!(reply.answer, Answer::Proceed);
//!
//! let attempt_id = reply.attempt_id().expect("a claim that proceeds has an attempt");
//! let outcome = Arc::new(Outcome { status: 201, headers: vec![], body: Body::Kept(b"paid".to_vec()) });
//! let complete = Event::Complete { attempt_id, outcome: &outcome, labels: &Labels::default() };
//! assert_eq!(engine.apply(&at, &complete, Some(reply.seen)).await?.answer, Answer::Done);
//!
//! let retry = engine.claim(&at, &request, Policy::default()).await?;
//! assert_eq!(retry.answer, Answer::Replay);
//! assert_eq!(retry.outcome(), Some(&outcome));
//! # Ok(())
//! # }))?;
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::address::Address;
use crate::fingerprint::Fingerprints;
use crate::journal::{About, Journal, Note};
use crate::limits::SWAP_TRIES_MAX;
use crate::record::{AttemptId, Labels, Outcome, Policy, Record, Stored, Version};
use crate::store::{ErrorKind, Seen, Store, StoreError, Swap};
use crate::transition::{Answer, Claimant, Decision, Event, UnrecognisedScheme, decide};

/// Where random tokens come from. A closure will do.
pub trait Tokens: Send + Sync {
    /// Sixteen bytes that nobody has drawn before and nobody can guess.
    fn draw(&self) -> [u8; 16];
}

impl<F: Fn() -> [u8; 16] + Send + Sync> Tokens for F {
    fn draw(&self) -> [u8; 16] {
        self()
    }
}

/// A source that repeats itself disarms the fence: a late attempt would be taken for the one that took over from it.
const REPEATED: &str = "the engine's token source has given the same token twice; nothing was written; draw sixteen random \
                        bytes each time, as hapax::tokens::random does";

/// Why there is no answer. Nothing may run.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The record cannot be compared with the request.
    #[error(transparent)]
    Scheme(#[from] UnrecognisedScheme),
    /// Others kept writing the same record.
    #[error("the record changed {SWAP_TRIES_MAX} times while this was being decided; try again")]
    Contended,
}

/// An answer, and the record it is about as it now stands.
#[derive(Clone, Debug)]
pub struct Reply {
    /// What was decided.
    pub answer: Answer,
    /// The record after it, and the store's time. Start the next event of the same attempt from here.
    pub seen: Seen,
    /// Whether the record stands so because this operation wrote it.
    pub wrote: bool,
}

impl Reply {
    /// The record, if there is one.
    #[must_use]
    pub fn record(&self) -> Option<&Record> {
        self.seen.stored.as_ref().map(|stored| &stored.record)
    }

    /// The fence of the attempt that the record belongs to.
    #[must_use]
    pub fn attempt_id(&self) -> Option<AttemptId> {
        self.record().and_then(|record| record.attempt_id)
    }

    /// The recorded outcome.
    #[must_use]
    pub fn outcome(&self) -> Option<&Arc<Outcome>> {
        self.record().and_then(|record| record.outcome.as_ref())
    }
}

/// The rules over a store.
#[derive(Clone, Debug)]
pub struct Engine<S, T> {
    store: S,
    tokens: T,
    /// Shared by clones.
    is_swept: Arc<AtomicBool>,
}

impl<S: Store, T: Tokens> Engine<S, T> {
    /// The rules over that store. Tokens must be random: a source that repeats itself is refused when a record is to be written
    /// with the version that it has.
    pub fn new(store: S, tokens: T) -> Self {
        Self { store, tokens, is_swept: Arc::default() }
    }

    /// The store, for scanning and reaping.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// Whether a background role has looked through the store by this engine. Where none ever does, nothing is deleted, and a crash
    /// is noticed by a retry only.
    pub fn is_swept(&self) -> bool {
        self.is_swept.load(Ordering::Relaxed)
    }

    /// A background role looks through the store.
    pub fn mark_swept(&self) {
        self.is_swept.store(true, Ordering::Relaxed);
    }

    /// Claims a key for a client: one round trip for a new key, and one for a replay.
    ///
    /// # Errors
    /// If the store cannot prove the claim. Nothing may run then.
    pub async fn claim(
        &self,
        at: &Address,
        fingerprints: &dyn Fingerprints,
        policy: Policy,
    ) -> Result<Reply, EngineError> {
        let attempt_id = AttemptId::from_bytes(self.tokens.draw());
        let event = Event::Claim { by: Claimant::Client, attempt_id, fingerprints, policy, labels: &Labels::default() };
        self.apply(at, &event, None).await
    }

    /// Decides an event and writes what follows. `known` is what the caller last saw of the record, if it did: a good
    /// guess saves a round trip, a stale one costs one.
    ///
    /// # Errors
    /// If the store failed, the record cannot be compared, or others kept writing it. A caller that was to run must
    /// not.
    // Not `async fn`: one more future around this one would hold what is known twice.
    pub fn apply(
        &self,
        at: &Address,
        event: &Event<'_>,
        known: Option<Seen>,
    ) -> impl Future<Output = Result<Reply, EngineError>> + Send {
        self.apply_by(at, event, known, &Unnoted)
    }

    /// The same, with a note of who did it and why, kept with whatever is written. States and attempt of the note are filled
    /// in from the record.
    ///
    /// # Errors
    /// As for [`Engine::apply`].
    pub async fn apply_noted(
        &self,
        at: &Address,
        event: &Event<'_>,
        known: Option<Seen>,
        note: &Note,
    ) -> Result<Reply, EngineError>
    where
        S: Journal,
    {
        self.apply_by(at, event, known, note).await
    }

    /// Decides an event about the record as it was seen, and writes what follows if it still stands so. `None`: it has
    /// changed meanwhile, and nothing was written.
    ///
    /// # Errors
    /// If the store failed, or the record cannot be compared.
    pub async fn apply_once(&self, at: &Address, event: &Event<'_>, seen: Seen) -> Result<Option<Reply>, EngineError> {
        self.apply_once_by(at, event, seen, &Unnoted).await
    }

    /// The same, with a note as by [`Engine::apply_noted`].
    ///
    /// # Errors
    /// As for [`Engine::apply_once`].
    pub async fn apply_once_noted(
        &self,
        at: &Address,
        event: &Event<'_>,
        seen: Seen,
        note: &Note,
    ) -> Result<Option<Reply>, EngineError>
    where
        S: Journal,
    {
        self.apply_once_by(at, event, seen, note).await
    }

    async fn apply_once_by(
        &self,
        at: &Address,
        event: &Event<'_>,
        seen: Seen,
        how: &impl Swapping<S>,
    ) -> Result<Option<Reply>, EngineError> {
        let Decision { write, answer } = decide(&seen, event, Version::from_bytes(self.tokens.draw()))?;
        let Some(next) = write else {
            return Ok(Some(Reply { answer, seen, wrote: false }));
        };
        check(&seen, &next)?;
        let now = match how.swap(&self.store, at, &seen, &next).await {
            Ok(Swap::Applied(now)) => now,
            Ok(Swap::Lost(_)) => return Ok(None),
            Err(error) if error.kind == ErrorKind::Ambiguous => match self.store.get(at).await {
                Ok(found) if found.version() == Some(next.version) => {
                    return Ok(Some(Reply { answer, seen: found, wrote: true }));
                }
                Ok(found) if found.version() != seen.version() => return Ok(None),
                // The write may still arrive.
                _ => return Err(error.into()),
            },
            Err(error) => return Err(error.into()),
        };
        let stored = Stored { record: next, stamped_at: now.at };
        Ok(Some(Reply { answer, seen: Seen { stored: Some(stored), now }, wrote: true }))
    }

    async fn apply_by(
        &self,
        at: &Address,
        event: &Event<'_>,
        known: Option<Seen>,
        how: &impl Swapping<S>,
    ) -> Result<Reply, EngineError> {
        let (mut seen, mut asked) = match (known, event) {
            (Some(seen), _) => (seen, false),
            (None, Event::Claim { .. } | Event::Accept { .. } | Event::Suspect { .. }) => (Seen::default(), false),
            (None, _) => (self.store.get(at).await?, true),
        };
        let mut written = Written::default();
        for _ in 0..SWAP_TRIES_MAX {
            let decided = decide(&seen, event, Version::from_bytes(self.tokens.draw()));
            // What follows from a guess alone is a guess: ask the store before saying it.
            if !asked && !decided.as_ref().is_ok_and(|decision| decision.write.is_some()) {
                (seen, asked) = (self.store.get(at).await?, true);
                continue;
            }
            let Decision { write, answer } = decided?;
            let Some(next) = write else {
                return Ok(Reply { answer, seen, wrote: false });
            };
            check(&seen, &next)?;
            written.versions.push((next.version, answer));
            let swapped = how.swap(&self.store, at, &seen, &next).await;
            seen = match self.settled(at, swapped, &mut written).await? {
                Swap::Applied(now) => {
                    let stored = Stored { record: next, stamped_at: now.at };
                    return Ok(Reply { answer, seen: Seen { stored: Some(stored), now }, wrote: true });
                }
                Swap::Lost(seen) => seen,
            };
            asked = true;
            if let Some(answer) = written.answer_of(&seen) {
                return Ok(Reply { answer, seen, wrote: true });
            }
        }
        Err(written.gave_up())
    }

    /// What a swap came to: after an ambiguous failure, what stands there now counts as what it lost to. Once one write is
    /// in doubt, no later failure can say that nothing was written.
    async fn settled(
        &self,
        at: &Address,
        swapped: Result<Swap, StoreError>,
        written: &mut Written,
    ) -> Result<Swap, StoreError> {
        match swapped {
            Err(error) if error.kind == ErrorKind::Ambiguous => {
                written.in_doubt = true;
                self.store.get(at).await.map(Swap::Lost).map_err(|_| error)
            }
            Err(error) if written.in_doubt => Err(StoreError { kind: ErrorKind::Ambiguous, ..error }),
            reply => reply,
        }
    }
}

/// Whether a record may be written in the place of what was seen.
fn check(seen: &Seen, next: &Record) -> Result<(), StoreError> {
    let invalid = |why: String| StoreError::new("swap", ErrorKind::Invalid, why);
    if seen.version() == Some(next.version) {
        return Err(invalid(REPEATED.to_owned()));
    }
    next.check_limits().map_err(|error| invalid(error.to_string()))
}

/// How a decision is written: with a note, or without.
trait Swapping<S>: Sync {
    fn swap(
        &self,
        store: &S,
        at: &Address,
        seen: &Seen,
        next: &Record,
    ) -> impl Future<Output = Result<Swap, StoreError>> + Send;
}

struct Unnoted;

impl<S: Store> Swapping<S> for Unnoted {
    async fn swap(&self, store: &S, at: &Address, seen: &Seen, next: &Record) -> Result<Swap, StoreError> {
        store.swap(at, seen.version(), next).await
    }
}

impl<S: Journal> Swapping<S> for Note {
    async fn swap(&self, store: &S, at: &Address, seen: &Seen, next: &Record) -> Result<Swap, StoreError> {
        let note = Self {
            about: Some(About::new(at, next.attempt)),
            before: seen.stored.as_ref().map(|stored| stored.record.state),
            after: Some(next.state),
            ..self.clone()
        };
        store.swap_noted(at, seen.version(), next, &note).await
    }
}

/// What this operation wrote or may have written, so that it recognises its own write.
#[derive(Default)]
struct Written {
    versions: Vec<(Version, Answer)>,
    /// A write may still arrive that was not there when the record was read back.
    in_doubt: bool,
}

impl Written {
    fn answer_of(&self, seen: &Seen) -> Option<Answer> {
        let version = seen.version()?;
        self.versions.iter().find(|(own, _)| *own == version).map(|(_, answer)| *answer)
    }

    fn gave_up(&self) -> EngineError {
        if self.in_doubt {
            let message = "every try was cut off before its answer; one of them may be there; read the record again";
            return StoreError::new("swap", ErrorKind::Ambiguous, message).into();
        }
        EngineError::Contended
    }
}
