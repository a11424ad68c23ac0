//! What a service does beside its requests, at the usual pace: lapses are noticed, what has expired is deleted.
//!
//! Without it a crash is noticed by the next retry only, and nothing is ever deleted. Every node does it; the swap decides who
//! was first. Left to others: [`reconcile`](crate::reconcile), which needs somebody to ask, and counting
//! ([`survey`](crate::survey)).

use std::sync::Arc;
use std::time::Duration;

use hapax_core::engine::{Engine, Tokens};
use hapax_core::store::Store;
use tokio::task::JoinHandle;
pub use tokio_util::sync::CancellationToken;
use tokio_util::sync::DropGuard;

use crate::{lapse, reap};

/// Between two looks for lapsed leases.
const SWEEP_EVERY: Duration = Duration::from_secs(5);

/// Between two looks for what has expired.
const REAP_EVERY: Duration = Duration::from_secs(60);

/// Goes on until the token is cancelled. One task of a process is enough. With a layer,
/// [`spawn_background`](crate::http::IdempotencyLayer::spawn_background) does it; without one:
///
/// ```
/// use std::sync::Arc;
/// use hapax::background::{self, CancellationToken};
/// use hapax_core::engine::Engine;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tokio::task::JoinError> {
/// let engine = Arc::new(Engine::new(hapax::Memory::new(), hapax::tokens::random as hapax::tokens::Random));
/// let ending = CancellationToken::new();
/// let ended = ending.clone();
/// let sweeps = tokio::spawn(async move { background::run(&engine, &ended).await });
/// // At shutdown:
/// ending.cancel();
/// sweeps.await?;
/// # Ok(())
/// # }
/// ```
pub async fn run<S: Store, T: Tokens>(engine: &Engine<S, T>, ending: &CancellationToken) {
    tokio::join!(lapse::run(engine, SWEEP_EVERY, ending), reap::run(engine, REAP_EVERY, ending));
}

/// A task that does [`run`]. It ends by [`stop`](Self::stop), or soon after this is dropped.
#[derive(Debug)]
#[must_use = "dropping it stops the background task"]
pub struct Background {
    ending: DropGuard,
    task: JoinHandle<()>,
}

impl Background {
    /// Starts the task on the current runtime.
    ///
    /// # Panics
    /// Outside of a Tokio runtime.
    pub fn spawn<S, T>(engine: Arc<Engine<S, T>>) -> Self
    where
        S: Store + 'static,
        T: Tokens + 'static,
    {
        let ending = CancellationToken::new();
        let ended = ending.clone();
        let task = tokio::spawn(async move { run(&engine, &ended).await });
        Self { ending: ending.drop_guard(), task }
    }

    /// Stops the task and waits for its end. What it has begun to write is written, or is done again by another node.
    pub async fn stop(self) {
        drop(self.ending);
        if let Err(error) = self.task.await {
            tracing::error!(%error, "the background task did not end by itself");
        }
    }
}

/// Here, and not beside the layer, so that the layer does not need what sweeps.
#[cfg(feature = "http")]
impl<S: Store + 'static> crate::http::IdempotencyLayer<S> {
    /// Starts what has to run beside the requests: a lease that lapsed is noticed, what has expired is deleted. Once for each
    /// process. The task stops when the handle is dropped, or by [`Background::stop`]. A layer that serves requests for a minute
    /// without it logs a warning.
    ///
    /// ```
    /// use hapax::http::{IdempotencyLayer, single_tenant};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let layer = IdempotencyLayer::new(hapax::Memory::new(), single_tenant);
    /// let background = layer.spawn_background();
    /// // … serve; then, at shutdown, first the attempts that run:
    /// layer.drain().await;
    /// background.stop().await;
    /// # }
    /// ```
    ///
    /// # Panics
    /// Outside of a Tokio runtime.
    pub fn spawn_background(&self) -> Background {
        Background::spawn(Arc::clone(self.engine()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens;
    use hapax_core::address::{Address, AddressScheme, Key, Scope, Space};
    use hapax_core::fingerprint::{Fingerprinter, Fingerprints as _, Recipe, Request};
    use hapax_core::memory::Memory;
    use hapax_core::record::{Policy, Record, State, Version};
    use hapax_testkit::clock::FakeClock;

    #[tokio::test(start_paused = true)]
    async fn lapses_are_noticed_and_what_has_expired_is_deleted() {
        let clock = FakeClock::default();
        let engine = Engine::new(Memory::with_clock(clock.clone()), tokens::random as tokens::Random);
        let (lapsing, expiring) = (address("lapses"), address("expires"));
        let blank = |state| {
            let recipe = Recipe::new();
            let fingerprint = Fingerprinter::new(Request::new("POST", "/pay", b"{}"), &recipe, &[]).unwrap().current();
            Record::new(Version::from_bytes(tokens::random()), state, fingerprint, Policy::default())
        };
        let running = Record { due_in_ms: Some(1), ..blank(State::Running) };
        let ready = Record { due_in_ms: Some(0), expires_in_ms: Some(1), ..blank(State::Ready) };
        engine.store().swap(&lapsing, None, &running).await.unwrap();
        engine.store().swap(&expiring, None, &ready).await.unwrap();
        clock.advance_ms(2);
        let ending = CancellationToken::new();
        let roles = async { run(&engine, &ending).await };
        let look = async {
            loop {
                let (one, other) = (engine.store().get(&lapsing), engine.store().get(&expiring));
                let (one, other) = (one.await.unwrap().stored, other.await.unwrap().stored);
                if one.is_some_and(|stored| stored.record.state == State::Unknown) && other.is_none() {
                    break ending.cancel();
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        tokio::time::timeout(REAP_EVERY * 2, async { tokio::join!(roles, look) }).await.unwrap();
    }

    fn address(key: &str) -> Address {
        let (space, scope) = (Space::new("test").unwrap(), Scope::new("alice").unwrap());
        Address::new(&AddressScheme::default(), &space, &scope, &Key::new(key).unwrap())
    }
}
