//! Store time: milliseconds that only a store hands out, and that no step of the wall clock can move.
//!
//! Leases and expiry are counted in the time of the store. A database server has a clock of its own; an embedded store
//! builds one with [`StoreTime`]: it starts at the wall clock and then follows the boot clock, which is slewed with the
//! wall clock but never stepped. A step is noticed by comparing the two; it is reported, and lapse and expiry pause
//! until the clock has been steady for [`CLOCK_SETTLE_MS`], so that no key comes free early.
//!
//! This file reads no clock. The owner of a store passes in a [`Clock`]: `SystemClock` (feature `system-clock`) reads the host's,
//! `FakeClock` (feature `test-util`) is moved by a test.

#[cfg(feature = "test-util")]
mod fake;
#[cfg(feature = "system-clock")]
mod system;

use std::fmt;
use std::sync::Arc;

use crate::limits::{CLOCK_SETTLE_MS, CLOCK_STEP_MS_MIN};

#[cfg(feature = "test-util")]
pub use fake::FakeClock;
#[cfg(feature = "system-clock")]
pub use system::SystemClock;

/// A moment in store time: milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The moment that many milliseconds after the Unix epoch.
    #[must_use]
    pub const fn from_ms(ms: u64) -> Self {
        Self(ms)
    }

    /// Milliseconds since the Unix epoch.
    #[must_use]
    pub const fn as_ms(self) -> u64 {
        self.0
    }

    /// The moment `ms` later, or the end of time.
    #[must_use]
    pub const fn plus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// Milliseconds from here until `later`; nothing if that has passed.
    #[must_use]
    pub const fn ms_until(self, later: Self) -> u64 {
        later.0.saturating_sub(self.0)
    }
}

/// The store's word on the time: when it is, and whether lapse and expiry pause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Now {
    /// The moment the store stamped.
    pub at: Timestamp,
    /// The store does not trust its clock at the moment: nothing counts as lapsed or expired.
    pub paused: bool,
}

impl Now {
    /// A moment of a clock that is trusted.
    #[must_use]
    pub const fn steady(at: Timestamp) -> Self {
        Self { at, paused: false }
    }

    /// Whether `moment` has come, by a clock that is trusted.
    #[must_use]
    pub fn has_reached(&self, moment: Timestamp) -> bool {
        !self.paused && self.at >= moment
    }
}

/// One reading of the two clocks of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The wall clock: milliseconds since the Unix epoch. People and time servers may set it.
    pub wall_ms: u64,
    /// The boot clock: milliseconds since the host started, asleep or awake. Nobody sets it.
    pub boot_ms: u64,
}

/// Where an embedded store reads the clocks of its host.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Both clocks, read together.
    fn read(&self) -> Reading;

    /// A name for this start of the host: boot clocks of two starts cannot be compared.
    fn boot_id(&self) -> String;
}

impl<C: Clock + ?Sized> Clock for Arc<C> {
    fn read(&self) -> Reading {
        (**self).read()
    }

    fn boot_id(&self) -> String {
        (**self).boot_id()
    }
}

/// What a store says of its clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockHealth {
    /// How far the wall clock was stepped, all steps noticed so far added up; negative is back.
    pub stepped_by_ms: i64,
    /// Whether lapse and expiry pause because of it.
    pub paused: bool,
}

/// Store time for a store without a server: continuous across steps of the wall clock.
#[derive(Clone, Debug)]
pub struct StoreTime {
    /// Store time minus boot clock: fixed for one start of the host.
    offset_ms: i64,
    /// Wall clock minus boot clock at the last reading; a change is a step.
    wall_offset_ms: i64,
    stepped_by_ms: i64,
    /// On the boot clock.
    paused_until_ms: Option<u64>,
}

impl StoreTime {
    /// Time for a store that this start of the host has not used yet. `high_water` is the latest stamp it holds: time
    /// never runs back behind it. `skew_ms` is how far it was from the wall clock then: a clock that was corrected during
    /// the last start must not make the records older at the next.
    #[must_use]
    pub fn start(reading: Reading, high_water: Option<Timestamp>, skew_ms: i64) -> Self {
        let skew_ms = if skew_ms.unsigned_abs() >= CLOCK_STEP_MS_MIN { skew_ms } else { 0 };
        let mark_ms = high_water.map_or(0, Timestamp::as_ms);
        let at_ms = reading.wall_ms.saturating_add_signed(skew_ms).max(mark_ms);
        let mut time = Self::resume(reading, signed_difference(at_ms, reading.boot_ms));
        let apart_ms = signed_difference(reading.wall_ms, at_ms);
        if apart_ms.unsigned_abs() >= CLOCK_STEP_MS_MIN {
            time.note_step(apart_ms, reading);
        }
        time
    }

    /// Time for a store that this start of the host has used before, with the offset it was given then.
    #[must_use]
    pub fn resume(reading: Reading, offset_ms: i64) -> Self {
        let wall_offset_ms = signed_difference(reading.wall_ms, reading.boot_ms);
        Self { offset_ms, wall_offset_ms, stepped_by_ms: 0, paused_until_ms: None }
    }

    /// What to keep with the store, beside the boot id, for [`StoreTime::resume`].
    #[must_use]
    pub fn offset_ms(&self) -> i64 {
        self.offset_ms
    }

    /// How far this time is from the wall clock, for [`StoreTime::start`] after the host has started anew; negative is
    /// behind.
    #[must_use]
    pub fn skew_ms(&self) -> i64 {
        self.offset_ms.saturating_sub(self.wall_offset_ms)
    }

    /// The time, from a new reading. Notices steps.
    pub fn now(&mut self, reading: Reading) -> Now {
        let wall_offset_ms = signed_difference(reading.wall_ms, reading.boot_ms);
        let moved_ms = wall_offset_ms.saturating_sub(self.wall_offset_ms);
        if moved_ms.unsigned_abs() >= CLOCK_STEP_MS_MIN {
            self.note_step(moved_ms, reading);
        }
        self.wall_offset_ms = wall_offset_ms;
        if self.paused_until_ms.is_some_and(|until| reading.boot_ms >= until) {
            self.paused_until_ms = None;
        }
        Now { at: self.at(reading), paused: self.paused_until_ms.is_some() }
    }

    /// What has been noticed so far.
    #[must_use]
    pub fn health(&self) -> ClockHealth {
        ClockHealth { stepped_by_ms: self.stepped_by_ms, paused: self.paused_until_ms.is_some() }
    }

    fn at(&self, reading: Reading) -> Timestamp {
        Timestamp::from_ms(u64::try_from(to_signed(reading.boot_ms).saturating_add(self.offset_ms)).unwrap_or(0))
    }

    fn note_step(&mut self, by_ms: i64, reading: Reading) {
        self.stepped_by_ms = self.stepped_by_ms.saturating_add(by_ms);
        self.paused_until_ms = Some(reading.boot_ms.saturating_add(CLOCK_SETTLE_MS));
    }
}

fn to_signed(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}

fn signed_difference(a_ms: u64, b_ms: u64) -> i64 {
    to_signed(a_ms).saturating_sub(to_signed(b_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Reading = Reading { wall_ms: 1_000_000_000, boot_ms: 5_000 };
    const HOUR_MS: u64 = 3_600_000;

    fn later(reading: Reading, wall_ms: i64, boot_ms: u64) -> Reading {
        Reading { wall_ms: reading.wall_ms.saturating_add_signed(wall_ms), boot_ms: reading.boot_ms + boot_ms }
    }

    #[test]
    fn follows_both_clocks_while_they_agree() {
        let mut time = StoreTime::start(START, None, 0);
        assert_eq!(time.now(START), Now::steady(Timestamp::from_ms(START.wall_ms)));
        let now = time.now(later(START, 10_000, 10_000));
        assert_eq!(now, Now::steady(Timestamp::from_ms(START.wall_ms + 10_000)));
        assert_eq!(time.health(), ClockHealth::default());
    }

    #[test]
    fn a_step_forward_moves_nothing_and_pauses() {
        let mut time = StoreTime::start(START, None, 0);
        let stepped = later(START, HOUR_MS as i64, 10);
        assert_eq!(time.now(stepped), Now { at: Timestamp::from_ms(START.wall_ms + 10), paused: true });
        assert_eq!(time.health(), ClockHealth { stepped_by_ms: HOUR_MS as i64 - 10, paused: true });
        let settled = later(stepped, CLOCK_SETTLE_MS as i64, CLOCK_SETTLE_MS);
        assert_eq!(time.now(settled), Now::steady(Timestamp::from_ms(START.wall_ms + 10 + CLOCK_SETTLE_MS)));
        assert!(!time.health().paused);
    }

    #[test]
    fn a_step_back_moves_nothing_and_pauses() {
        let mut time = StoreTime::start(START, None, 0);
        let now = time.now(later(START, -(HOUR_MS as i64), 10));
        assert_eq!(now, Now { at: Timestamp::from_ms(START.wall_ms + 10), paused: true });
        assert_eq!(time.health().stepped_by_ms, -(HOUR_MS as i64) - 10);
    }

    #[test]
    fn slow_slewing_is_not_a_step() {
        let mut time = StoreTime::start(START, None, 0);
        let mut reading = START;
        for _ in 0..1_000 {
            reading = later(reading, 1_000 + 1, 1_000);
            assert!(!time.now(reading).paused);
        }
    }

    #[test]
    fn a_host_started_with_its_clock_behind_the_records_goes_on_from_the_records() {
        let mark = Timestamp::from_ms(START.wall_ms + HOUR_MS);
        let mut time = StoreTime::start(START, Some(mark), 0);
        assert_eq!(time.now(START), Now { at: mark, paused: true });
        assert_eq!(time.health().stepped_by_ms, -(HOUR_MS as i64));
    }

    #[test]
    fn a_correction_of_the_clock_is_remembered_when_the_host_starts_anew() {
        let mut time = StoreTime::start(START, None, 0);
        let corrected = later(START, HOUR_MS as i64, 10);
        let before = time.now(corrected).at;
        assert_eq!(time.skew_ms(), 10 - HOUR_MS as i64);
        let started = Reading { wall_ms: corrected.wall_ms + 90_000, boot_ms: 7 };
        let mut anew = StoreTime::start(started, Some(before), time.skew_ms());
        let expected = Timestamp::from_ms(before.as_ms() + 90_000);
        assert_eq!(anew.now(started), Now { at: expected, paused: true }, "no key comes free early");
        assert_eq!(anew.health().stepped_by_ms, HOUR_MS as i64 - 10);
        assert_eq!(StoreTime::start(started, Some(before), 999).skew_ms(), 0, "what slewing explains is forgotten");
    }

    #[test]
    fn a_second_process_of_the_same_start_has_the_same_time_whatever_the_wall_clock_says() {
        let first = StoreTime::start(START, None, 0);
        let stepped = later(START, HOUR_MS as i64, 500);
        let mut second = StoreTime::resume(stepped, first.offset_ms());
        assert_eq!(second.now(stepped).at, Timestamp::from_ms(START.wall_ms + 500));
    }
}
