//! The reference store with one fault: what a [`Bend`] does not change is done by [`Memory`].

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use hapax_core::address::Address;
use hapax_core::clock::{Clock, Reading};
use hapax_core::conformance::{ClockSource, Harness};
use hapax_core::memory::Memory;
use hapax_core::record::{Record, Version};
use hapax_core::store::{Health, Page, Scan, Seen, Store, StoreError, Swap};
use hapax_testkit::clock::FakeClock;

/// One fault. Each method does what the whole store does, unless it is the faulty one.
pub(crate) trait Bend: Send + Sync + 'static {
    /// What the store believes the clocks to say.
    fn read(&self, reading: Reading) -> Reading {
        reading
    }

    /// What is left after a restart. `None`: the store says that nothing is.
    fn restart(&self, _clock: FakeClock) -> Option<Memory> {
        None
    }

    fn swap(
        &self,
        whole: &Memory,
        at: &Address,
        expect: Option<Version>,
        next: &Record,
    ) -> impl Future<Output = Result<Swap, StoreError>> + Send {
        whole.swap(at, expect, next)
    }

    fn get(&self, whole: &Memory, at: &Address) -> impl Future<Output = Result<Seen, StoreError>> + Send {
        whole.get(at)
    }

    fn scan(&self, whole: &Memory, query: &Scan) -> impl Future<Output = Result<Page, StoreError>> + Send {
        whole.scan(query)
    }

    fn reap(&self, whole: &Memory, limit: u32) -> impl Future<Output = Result<u32, StoreError>> + Send {
        whole.reap(limit)
    }

    fn health(&self, whole: &Memory) -> impl Future<Output = Result<Health, StoreError>> + Send {
        whole.health()
    }
}

/// No fault.
#[derive(Default)]
pub(crate) struct Intact;

impl Bend for Intact {}

type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// Any fault, so that the suite is compiled once and not for each of them.
pub(crate) trait AnyBend: Send + Sync {
    fn read(&self, reading: Reading) -> Reading;
    fn restart(&self, clock: FakeClock) -> Option<Memory>;
    fn swap<'a>(
        &'a self,
        whole: &'a Memory,
        at: &'a Address,
        expect: Option<Version>,
        next: &'a Record,
    ) -> Answer<'a, Swap>;
    fn get<'a>(&'a self, whole: &'a Memory, at: &'a Address) -> Answer<'a, Seen>;
    fn scan<'a>(&'a self, whole: &'a Memory, query: &'a Scan) -> Answer<'a, Page>;
    fn reap<'a>(&'a self, whole: &'a Memory, limit: u32) -> Answer<'a, u32>;
    fn health<'a>(&'a self, whole: &'a Memory) -> Answer<'a, Health>;
}

impl<B: Bend> AnyBend for B {
    fn read(&self, reading: Reading) -> Reading {
        Bend::read(self, reading)
    }

    fn restart(&self, clock: FakeClock) -> Option<Memory> {
        Bend::restart(self, clock)
    }

    fn swap<'a>(
        &'a self,
        whole: &'a Memory,
        at: &'a Address,
        expect: Option<Version>,
        next: &'a Record,
    ) -> Answer<'a, Swap> {
        Box::pin(Bend::swap(self, whole, at, expect, next))
    }

    fn get<'a>(&'a self, whole: &'a Memory, at: &'a Address) -> Answer<'a, Seen> {
        Box::pin(Bend::get(self, whole, at))
    }

    fn scan<'a>(&'a self, whole: &'a Memory, query: &'a Scan) -> Answer<'a, Page> {
        Box::pin(Bend::scan(self, whole, query))
    }

    fn reap<'a>(&'a self, whole: &'a Memory, limit: u32) -> Answer<'a, u32> {
        Box::pin(Bend::reap(self, whole, limit))
    }

    fn health<'a>(&'a self, whole: &'a Memory) -> Answer<'a, Health> {
        Box::pin(Bend::health(self, whole))
    }
}

/// The store. Clones share it.
#[derive(Clone)]
pub(crate) struct Bent {
    whole: Memory,
    bend: Arc<dyn AnyBend>,
}

impl Store for Bent {
    async fn swap(&self, at: &Address, expect: Option<Version>, next: &Record) -> Result<Swap, StoreError> {
        self.bend.swap(&self.whole, at, expect, next).await
    }

    async fn get(&self, at: &Address) -> Result<Seen, StoreError> {
        self.bend.get(&self.whole, at).await
    }

    async fn scan(&self, query: &Scan) -> Result<Page, StoreError> {
        self.bend.scan(&self.whole, query).await
    }

    async fn reap(&self, limit: u32) -> Result<u32, StoreError> {
        self.bend.reap(&self.whole, limit).await
    }

    async fn health(&self) -> Result<Health, StoreError> {
        self.bend.health(&self.whole).await
    }
}

/// The fake clock as the store reads it.
struct BentClock {
    clock: FakeClock,
    bend: Arc<dyn AnyBend>,
}

impl fmt::Debug for BentClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.clock.fmt(f)
    }
}

impl Clock for BentClock {
    fn read(&self) -> Reading {
        self.bend.read(self.clock.read())
    }

    fn boot_id(&self) -> String {
        self.clock.boot_id()
    }
}

/// Opens bent stores for the suite.
pub(crate) struct BentHarness {
    clock: FakeClock,
    bend: fn() -> Arc<dyn AnyBend>,
}

impl BentHarness {
    pub(crate) fn new(bend: fn() -> Arc<dyn AnyBend>) -> Self {
        Self { clock: FakeClock::default(), bend }
    }
}

impl Harness for BentHarness {
    type Store = Bent;

    async fn open(&self) -> Bent {
        let bend = (self.bend)();
        let clock = BentClock { clock: self.clock.clone(), bend: Arc::clone(&bend) };
        Bent { whole: Memory::with_clock(clock), bend }
    }

    async fn pass_ms(&self, ms: u64) {
        self.clock.advance_ms(ms);
    }

    fn step_clock_ms(&self, by_ms: i64) -> ClockSource {
        self.clock.step_ms(by_ms);
        ClockSource::Host
    }

    async fn restart(&self, store: Bent) -> Option<Bent> {
        let whole = store.bend.restart(self.clock.clone())?;
        Some(Bent { whole, bend: (self.bend)() })
    }
}
