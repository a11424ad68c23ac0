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
use tokio::time::{Instant, timeout, timeout_at};

use crate::tokens::Random;

/// More than that for one key, and a retry gets 409 at once.
pub(crate) const WAITERS_PER_KEY_MAX: usize = 100;

const POLL_FIRST: Duration = Duration::from_millis(50);
const POLL_LAST: Duration = Duration::from_secs(1);

/// What came of waiting.
pub(crate) enum Waited {
    /// The record has stopped running.
    Settled(Box<Seen>),
    /// It has not, in the time that was allowed; or too many wait already.
    TimeOver,
    /// The store has not answered for longer than a client waits for it.
    StoreSilent,
}

/// What the poller tells those who wait.
#[derive(Clone, Debug)]
enum Told {
    Nothing,
    Settled(Box<Seen>),
    StoreSilent,
}

/// Who waits for what.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    keys: Mutex<HashMap<Id, Waiting>>,
}

#[derive(Debug)]
struct Waiting {
    count: usize,
    roused: Arc<Notify>,
    told: watch::Receiver<Told>,
}

impl Waiters {
    /// Rouses whoever waits for that key: its attempt has ended.
    pub(crate) fn rouse(&self, id: &Id) {
        if let Some(waiting) = self.keys().get(id) {
            waiting.roused.notify_one();
        }
    }

    /// The record at that address once it is no longer running. At most `wait` long, and as long as the store is not silent
    /// for `store_timeout`.
    pub(crate) async fn wait<S: Store + 'static>(
        self: &Arc<Self>,
        engine: &Arc<Engine<S, Random>>,
        at: &Address,
        wait: Duration,
        store_timeout: Duration,
    ) -> Waited {
        let Some((mut told, _place)) = self.join(engine, at, store_timeout) else { return Waited::TimeOver };
        let told = timeout(wait, told.wait_for(|told| !matches!(told, Told::Nothing))).await;
        match told.ok().and_then(Result::ok).as_deref() {
            Some(Told::Settled(seen)) => Waited::Settled(seen.clone()),
            Some(Told::StoreSilent) => Waited::StoreSilent,
            Some(Told::Nothing) | None => Waited::TimeOver,
        }
    }

    fn join<S: Store + 'static>(
        self: &Arc<Self>,
        engine: &Arc<Engine<S, Random>>,
        at: &Address,
        store_timeout: Duration,
    ) -> Option<(watch::Receiver<Told>, Place)> {
        let mut keys = self.keys();
        let waiting = keys.entry(*at.id()).or_insert_with(|| {
            let (tell, told) = watch::channel(Told::Nothing);
            let roused = Arc::new(Notify::new());
            tokio::spawn(poll(Arc::clone(engine), at.clone(), store_timeout, Arc::clone(&roused), tell));
            Waiting { count: 0, roused, told }
        });
        if waiting.count >= WAITERS_PER_KEY_MAX {
            return None;
        }
        waiting.count += 1;
        Some((waiting.told.clone(), Place { waiters: Arc::clone(self), id: *at.id() }))
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

/// Looks until the record has stopped running, nobody waits any longer, or the store has been silent for too long. One that
/// fails sooner is asked again.
async fn poll<S: Store>(
    engine: Arc<Engine<S, Random>>,
    at: Address,
    store_timeout: Duration,
    roused: Arc<Notify>,
    tell: watch::Sender<Told>,
) {
    let mut pause = POLL_FIRST;
    let mut silent_since: Option<Instant> = None;
    loop {
        tokio::select! {
            _ = timeout(pause, roused.notified()) => {}
            () = tell.closed() => return,
        }
        pause = (pause * 2).min(POLL_LAST);
        let since = *silent_since.get_or_insert_with(Instant::now);
        let told = match timeout_at(since + store_timeout, engine.store().get(&at)).await {
            Ok(Ok(seen)) if is_running(&seen) => {
                silent_since = None;
                continue;
            }
            Ok(Ok(seen)) => Told::Settled(Box::new(seen)),
            Ok(Err(_)) if since.elapsed() < store_timeout => continue,
            Ok(Err(_)) | Err(_) => Told::StoreSilent,
        };
        // If nobody listens any longer, nobody needs it.
        let _ = tell.send(told);
        return;
    }
}

fn is_running(seen: &Seen) -> bool {
    seen.stored.as_ref().is_some_and(|stored| stored.record.state == State::Running)
}
