//! Who waits for whom: the records of one share are probed a few at a time, and no share waits for another.
//!
//! A probe that hangs takes until its timeout, and there may be hundreds of them. So a sweep does not wait for what it has
//! begun: each share takes up what it has room for, and the next sweep finds what is left. What becomes of one record is in the
//! parent module.

use std::collections::{BTreeMap, HashSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use hapax_core::address::Id;
use hapax_core::clock::Now;
use hapax_core::engine::{Engine, Tokens};
use hapax_core::journal::Journal;
use hapax_core::limits::PAGE_ENTRIES_MAX;
use hapax_core::record::State;
use hapax_core::store::{Cursor, Entry, Store, StoreError};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use super::{Came, LIMIT, Probe, look};
use crate::sweep::{Left, Walk};

/// Probes of a share at a time: whoever answers them has other work, too.
const PROBES_AT_ONCE: usize = 16;

/// Records read per sweep at most, those of full shares included. The next sweep goes on from there.
const READ_MAX: usize = 10_000;

/// The shares that have something to do.
#[derive(Default)]
pub(super) struct Shares {
    by_name: Mutex<BTreeMap<Arc<str>, Share>>,
    /// Where the last sweep stopped reading; `None`: at the end.
    place: Mutex<Option<Cursor>>,
    /// What failed since somebody last asked.
    failed: Mutex<Option<StoreError>>,
}

struct Share {
    places: Arc<Semaphore>,
    /// What is being probed, or waits for a place.
    taken: HashSet<Id>,
}

/// A record that its share has taken up.
pub(super) struct Taken {
    share: Arc<str>,
    places: Arc<Semaphore>,
    entry: Entry,
    /// When it was read.
    now: Now,
}

/// Whether a share takes a record up.
enum Room {
    Taken(Arc<Semaphore>),
    /// It has it already.
    Known,
    /// It has enough to do.
    Full,
}

impl Shares {
    /// Takes up what is due: of each share, as much as makes `limit` with what it has.
    pub(super) async fn take(
        &self,
        store: &impl Store,
        probe: &impl Probe,
        limit: u32,
    ) -> Result<(Vec<Taken>, Left), StoreError> {
        let mut taken = Vec::new();
        match self.take_up(store, probe, limit, &mut taken).await {
            Ok(left) => {
                // Where nothing could be taken up, there is nothing to do at once.
                let more = left.more && !taken.is_empty();
                Ok((taken, Left { more, ..left }))
            }
            Err(error) => {
                // Nobody will ask about them, so the next sweep must find them.
                taken.iter().for_each(|taken: &Taken| self.end(&taken.share, taken.entry.address.id()));
                Err(error)
            }
        }
    }

    async fn take_up(
        &self,
        store: &impl Store,
        probe: &impl Probe,
        limit: u32,
        taken: &mut Vec<Taken>,
    ) -> Result<Left, StoreError> {
        let (mut left, mut read) = (Left::default(), 0);
        let place = self.place.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut walk = Walk::due(store, &[State::Unknown], limit.min(PAGE_ENTRIES_MAX)).from(place);
        while let Some(page) = walk.page().await? {
            left.damaged.extend(page.damaged);
            read += page.entries.len();
            for entry in page.entries {
                let share = probe.share(&entry.address, &entry.stored.record);
                match self.room(&share, entry.address.id(), limit as usize) {
                    Room::Taken(places) => taken.push(Taken { share, places, entry, now: page.now }),
                    Room::Known => {}
                    Room::Full => left.more = true,
                }
            }
            if read >= READ_MAX {
                *self.place.lock().unwrap_or_else(PoisonError::into_inner) = walk.place();
                break;
            }
        }
        Ok(left)
    }

    fn room(&self, share: &Arc<str>, id: &Id, limit: usize) -> Room {
        let mut shares = self.by_name();
        let share = shares
            .entry(Arc::clone(share))
            .or_insert_with(|| Share { places: Arc::new(Semaphore::new(PROBES_AT_ONCE)), taken: HashSet::new() });
        if share.taken.contains(id) {
            return Room::Known;
        }
        if share.taken.len() >= limit {
            return Room::Full;
        }
        share.taken.insert(*id);
        Room::Taken(Arc::clone(&share.places))
    }

    /// Probes a record that was taken up, when it is its turn.
    pub(super) async fn ask<S: Journal, T: Tokens>(
        &self,
        engine: &Engine<S, T>,
        probe: &impl Probe,
        taken: Taken,
    ) -> Result<Came, StoreError> {
        let Taken { share, places, entry, now } = taken;
        let id = *entry.address.id();
        // Nobody closes them.
        let _place = places.acquire().await;
        let came = look(engine, probe, entry, now).await;
        self.end(&share, &id);
        came
    }

    fn end(&self, name: &str, id: &Id) {
        let mut shares = self.by_name();
        let Some(share) = shares.get_mut(name) else { return };
        share.taken.remove(id);
        if share.taken.is_empty() {
            shares.remove(name);
        }
    }

    fn by_name(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Share>> {
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self) -> MutexGuard<'_, Option<StoreError>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What has begun.
pub(super) type Begun<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// One sweep: every share begins with what it has room for. Waits for that, but no longer than `most`: what takes longer goes
/// on beside the next sweep, which comes soon, because the pause was had.
pub(super) async fn sweep_once<'a, S: Journal, T: Tokens>(
    engine: &'a Engine<S, T>,
    probe: &'a impl Probe,
    shares: &'a Shares,
    begin: &UnboundedSender<Begun<'a>>,
    most: Duration,
) -> Result<Left, StoreError> {
    let (taken, mut left) = shares.take(engine.store(), probe, LIMIT).await?;
    let begun = TaskTracker::new();
    for taken in taken {
        let asking = async move {
            if let Err(error) = shares.ask(engine, probe, taken).await {
                *shares.failed() = Some(error);
            }
        };
        // Where nobody takes it up, the loop has ended.
        let _ = begin.send(Box::pin(begun.track_future(asking)));
    }
    begun.close();
    left.more |= timeout(most, begun.wait()).await.is_err();
    let failed = shares.failed().take();
    failed.map_or(Ok(left), Err)
}

/// Carries on what has begun, for as long as more may come.
pub(super) async fn carry_on(mut begun: UnboundedReceiver<Begun<'_>>) {
    let mut under_way = FuturesUnordered::new();
    loop {
        tokio::select! {
            next = begun.recv() => match next {
                Some(next) => under_way.push(next),
                None => return,
            },
            Some(()) = under_way.next() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconcile::NoProbe;
    use hapax_core::address::{Address, AddressScheme, Key, Scope, Space};
    use hapax_core::fingerprint::{Fingerprint, Scheme};
    use hapax_core::memory::Memory;
    use hapax_core::record::{Policy, Record, Version};
    use hapax_core::store::{ErrorKind, Health, Page, Scan, Seen, Swap};
    use hapax_testkit::clock::FakeClock;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// The second page of a walk fails, once.
    struct Torn {
        memory: Memory,
        whole: AtomicBool,
    }

    impl Store for Torn {
        async fn swap(&self, at: &Address, expect: Option<Version>, next: &Record) -> Result<Swap, StoreError> {
            self.memory.swap(at, expect, next).await
        }
        async fn get(&self, at: &Address) -> Result<Seen, StoreError> {
            self.memory.get(at).await
        }
        async fn scan(&self, query: &Scan) -> Result<Page, StoreError> {
            if query.after.is_some() && !self.whole.swap(true, Ordering::SeqCst) {
                return Err(StoreError::new("scan", ErrorKind::Unavailable, "taken away by the test"));
            }
            self.memory.scan(query).await
        }
        async fn reap(&self, limit: u32) -> Result<u32, StoreError> {
            self.memory.reap(limit).await
        }
        async fn health(&self) -> Result<Health, StoreError> {
            self.memory.health().await
        }
    }

    #[tokio::test]
    async fn what_was_taken_up_before_a_page_failed_is_found_again() {
        let clock = FakeClock::default();
        let store = Torn { memory: Memory::with_clock(clock.clone()), whole: AtomicBool::new(false) };
        let fingerprint = Fingerprint { scheme: Scheme::new("none").unwrap(), digest: [0; 32] };
        for number in 0..PAGE_ENTRIES_MAX + 10 {
            let (space, scope) = (Space::new("http").unwrap(), Scope::new("alice").unwrap());
            let key = Key::new(&format!("k{number}")).unwrap();
            let at = Address::new(&AddressScheme::default(), &space, &scope, &key);
            let version = Version::from_bytes(crate::tokens::random());
            let unknown = Record::new(version, State::Unknown, fingerprint.clone(), Policy::default());
            store.swap(&at, None, &Record { attempt: 1, due_in_ms: Some(0), ..unknown }).await.unwrap();
        }
        clock.advance_ms(1);
        let (shares, limit) = (Shares::default(), 10_000);
        assert!(shares.take(&store, &NoProbe, limit).await.is_err());
        let (taken, _) = shares.take(&store, &NoProbe, limit).await.unwrap();
        assert_eq!(taken.len(), PAGE_ENTRIES_MAX as usize + 10);
    }
}
