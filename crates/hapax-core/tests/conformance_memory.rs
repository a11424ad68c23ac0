//! The reference store passes the suite: with the clocks of a host, which can be stepped, and as if it were a server,
//! with a clock of its own that takes its time and a wire on which replies get lost.

mod with_the_clocks_of_a_host {
    use hapax_core::conformance::{ClockSource, Harness};
    use hapax_core::memory::Memory;
    use hapax_testkit::clock::FakeClock;

    #[derive(Default)]
    struct InMemory {
        clock: FakeClock,
    }

    impl Harness for InMemory {
        type Store = Memory;

        async fn open(&self) -> Memory {
            Memory::with_clock(self.clock.clone())
        }

        async fn pass_ms(&self, ms: u64) {
            self.clock.advance_ms(ms);
        }

        fn step_clock_ms(&self, by_ms: i64) -> ClockSource {
            self.clock.step_ms(by_ms);
            ClockSource::Host
        }
    }

    hapax_core::conformance!(InMemory::default());

    #[tokio::test]
    async fn notes_are_kept_with_the_records() {
        hapax_core::conformance::check_journal(&Memory::with_clock(FakeClock::default())).await;
    }
}

/// Behind the indirection of a store that is chosen at run time.
mod as_any_store {
    use hapax_core::any_store::AnyStore;
    use hapax_core::conformance::{ClockSource, Harness};
    use hapax_core::memory::Memory;
    use hapax_core::store::Store;
    use hapax_testkit::clock::FakeClock;

    #[derive(Default)]
    struct Any {
        clock: FakeClock,
    }

    impl Harness for Any {
        type Store = AnyStore;

        async fn open(&self) -> AnyStore {
            AnyStore::new(Memory::with_clock(self.clock.clone()))
        }

        async fn pass_ms(&self, ms: u64) {
            self.clock.advance_ms(ms);
        }

        fn step_clock_ms(&self, by_ms: i64) -> ClockSource {
            self.clock.step_ms(by_ms);
            ClockSource::Host
        }
    }

    hapax_core::conformance!(Any::default());

    #[tokio::test]
    async fn notes_are_kept_with_the_records() {
        hapax_core::conformance::check_journal(&AnyStore::new(Memory::new())).await;
    }

    #[test]
    fn it_says_what_it_is_and_whether_it_has_stopped() {
        let store = AnyStore::new(Memory::new());
        assert_eq!(format!("{store:?}"), "AnyStore(Memory { records: 0 })");
        assert!(!store.has_stopped());
    }
}

mod as_if_it_were_a_server {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use hapax_core::address::Address;
    use hapax_core::clock::{Clock, Reading};
    use hapax_core::conformance::{ClockSource, Harness};
    use hapax_core::memory::Memory;
    use hapax_core::record::{Record, Version};
    use hapax_core::store::{ErrorKind, Health, Page, Scan, Seen, Store, StoreError, Swap};
    use tokio::time::Instant;

    /// A clock that cannot be moved, only waited for.
    #[derive(Debug)]
    struct RealClock(Instant);

    impl Clock for RealClock {
        fn read(&self) -> Reading {
            let boot_ms = self.0.elapsed().as_millis() as u64;
            Reading { wall_ms: 1_700_000_000_000 + boot_ms, boot_ms }
        }

        fn boot_id(&self) -> String {
            "served".to_owned()
        }
    }

    #[derive(Clone)]
    struct Served {
        memory: Memory,
        loses_next_reply: Arc<AtomicBool>,
    }

    impl Store for Served {
        async fn swap(&self, at: &Address, expect: Option<Version>, next: &Record) -> Result<Swap, StoreError> {
            let swap = self.memory.swap(at, expect, next).await?;
            if self.loses_next_reply.swap(false, Ordering::SeqCst) {
                return Err(StoreError::new("swap", ErrorKind::Ambiguous, "the connection was cut"));
            }
            Ok(swap)
        }

        async fn get(&self, at: &Address) -> Result<Seen, StoreError> {
            self.memory.get(at).await
        }

        async fn scan(&self, query: &Scan) -> Result<Page, StoreError> {
            self.memory.scan(query).await
        }

        async fn reap(&self, limit: u32) -> Result<u32, StoreError> {
            self.memory.reap(limit).await
        }

        async fn health(&self) -> Result<Health, StoreError> {
            self.memory.health().await
        }
    }

    struct Server;

    impl Harness for Server {
        type Store = Served;

        async fn open(&self) -> Served {
            Served { memory: Memory::with_clock(RealClock(Instant::now())), loses_next_reply: Arc::default() }
        }

        async fn pass_ms(&self, ms: u64) {
            tokio::time::sleep(Duration::from_millis(ms)).await;
        }

        fn step_clock_ms(&self, _: i64) -> ClockSource {
            ClockSource::Server
        }

        async fn lose_next_reply(&self, store: &Served) -> bool {
            store.loses_next_reply.store(true, Ordering::SeqCst);
            true
        }
    }

    hapax_core::conformance!(Server);
}
