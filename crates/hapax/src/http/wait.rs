//! Waiting for another request's answer: one poller per key and node, however many wait.
//!
//! Who waits holds no body: the request was compared when it was told to wait, so the record that comes is its answer.
//! The attempt rouses the poller if it runs on this node; otherwise the poller looks at the store, less and less often.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hapax_core::address::{Address, Id};
use hapax_core::engine::Engine;
use hapax_core::record::State;
use hapax_core::store::{Seen, Store};
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use crate::tokens::Random;

/// More than that for one key, and a retry gets 409 at once.
pub(crate) const WAITERS_PER_KEY_MAX: usize = 100;

const POLL_FIRST: Duration = Duration::from_millis(50);
const POLL_LAST: Duration = Duration::from_secs(1);

/// Who waits for what.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    keys: Mutex<HashMap<Id, Waiting>>,
}

#[derive(Debug)]
struct Waiting {
    count: usize,
    roused: Arc<Notify>,
    /// The record once it has stopped running.
    settled: watch::Receiver<Option<Seen>>,
}

impl Waiters {
    /// Rouses whoever waits for that key: its attempt has ended.
    pub(crate) fn rouse(&self, id: &Id) {
        if let Some(waiting) = self.keys().get(id) {
            waiting.roused.notify_one();
        }
    }

    /// The record at that address once it is no longer running; `None` if that takes longer than `wait`, or too many
    /// wait already.
    pub(crate) async fn wait<S: Store + 'static>(
        self: &Arc<Self>,
        engine: &Arc<Engine<S, Random>>,
        at: &Address,
        wait: Duration,
    ) -> Option<Seen> {
        let (mut settled, _place) = self.join(engine, at)?;
        let settled = timeout(wait, settled.wait_for(Option::is_some)).await;
        settled.ok()?.ok()?.clone()
    }

    fn join<S: Store + 'static>(
        self: &Arc<Self>,
        engine: &Arc<Engine<S, Random>>,
        at: &Address,
    ) -> Option<(watch::Receiver<Option<Seen>>, Place)> {
        let mut keys = self.keys();
        let waiting = keys.entry(*at.id()).or_insert_with(|| {
            let (tell, settled) = watch::channel(None);
            let roused = Arc::new(Notify::new());
            tokio::spawn(poll(Arc::clone(engine), at.clone(), Arc::clone(&roused), tell));
            Waiting { count: 0, roused, settled }
        });
        if waiting.count >= WAITERS_PER_KEY_MAX {
            return None;
        }
        waiting.count += 1;
        Some((waiting.settled.clone(), Place { waiters: Arc::clone(self), id: *at.id() }))
    }

    fn keys(&self) -> MutexGuard<'_, HashMap<Id, Waiting>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One who waits. The last one to leave takes the key with it, and so ends the poller.
struct Place {
    waiters: Arc<Waiters>,
    id: Id,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut keys = self.waiters.keys();
        if let Some(waiting) = keys.get_mut(&self.id) {
            waiting.count -= 1;
            if waiting.count == 0 {
                keys.remove(&self.id);
            }
        }
    }
}

/// Looks until the record has stopped running or nobody waits any longer. A store that fails is asked again.
async fn poll<S: Store>(
    engine: Arc<Engine<S, Random>>,
    at: Address,
    roused: Arc<Notify>,
    tell: watch::Sender<Option<Seen>>,
) {
    let mut pause = POLL_FIRST;
    loop {
        tokio::select! {
            _ = timeout(pause, roused.notified()) => {}
            () = tell.closed() => return,
        }
        pause = (pause * 2).min(POLL_LAST);
        if let Ok(seen) = engine.store().get(&at).await
            && !is_running(&seen)
        {
            // If nobody listens any longer, nobody needs it.
            let _ = tell.send(Some(seen));
            return;
        }
    }
}

fn is_running(seen: &Seen) -> bool {
    seen.stored.as_ref().is_some_and(|stored| stored.record.state == State::Running)
}
