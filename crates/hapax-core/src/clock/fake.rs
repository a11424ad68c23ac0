//! A clock that moves only when a test moves it (feature `test-util`).

use std::sync::{Arc, Mutex, PoisonError};

use crate::clock::{Clock, Reading};

/// A fake host clock, for tests of leases and retention. Clones move together.
///
/// ```
/// use hapax_core::clock::{Clock, FakeClock};
///
/// let clock = FakeClock::default();
/// let before = clock.read();
/// clock.clone().advance_ms(1_500);
/// assert_eq!(clock.read().wall_ms, before.wall_ms + 1_500);
/// ```
#[derive(Clone, Debug)]
pub struct FakeClock(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    reading: Reading,
    boot: u32,
}

impl Default for FakeClock {
    fn default() -> Self {
        let reading = Reading { wall_ms: 1_700_000_000_000, boot_ms: 100_000 };
        Self(Arc::new(Mutex::new(State { reading, boot: 1 })))
    }
}

impl FakeClock {
    /// Time passes.
    pub fn advance_ms(&self, ms: u64) {
        self.change(|state| {
            state.reading.wall_ms += ms;
            state.reading.boot_ms += ms;
        });
    }

    /// The wall clock is set; no time passes.
    pub fn step_ms(&self, by_ms: i64) {
        self.change(|state| state.reading.wall_ms = state.reading.wall_ms.saturating_add_signed(by_ms));
    }

    /// The host starts anew, `off_ms` later by its wall clock.
    pub fn reboot_ms(&self, off_ms: i64) {
        self.change(|state| {
            state.reading.wall_ms = state.reading.wall_ms.saturating_add_signed(off_ms);
            state.reading.boot_ms = 0;
            state.boot += 1;
        });
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Clock for FakeClock {
    fn read(&self) -> Reading {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).reading
    }

    fn boot_id(&self) -> String {
        format!("fake-boot-{}", self.0.lock().unwrap_or_else(PoisonError::into_inner).boot)
    }
}
