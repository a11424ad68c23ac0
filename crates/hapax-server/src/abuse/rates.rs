//! How many new keys and how many look-ups one caller may have per second.
//!
//! New keys cost storage for a day, look-ups cost a read; a client in a loop makes thousands of either. The caller of this
//! module decides what is new and what is a look-up, and spares retries of known keys. Callers are known here by a
//! digest only. Routes with the same rate share a caller's allowance; routes with different rates do not.

use std::collections::HashMap;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use governor::clock::{Clock, DefaultClock};
use governor::state::keyed::DashMapStateStore;
use governor::{Quota, RateLimiter};
use sha2::{Digest, Sha256};

/// Callers remembered per rate. Beyond it all are forgotten once, and from then on several callers share an allowance until there
/// are fewer again: memory is bounded, and whoever makes up names lifts nobody's limit by it, its own included.
pub const CALLERS_MAX: usize = 100_000;

/// With so few callers left at so many sweeps, each has an allowance of its own again. Right after all were forgotten there are few
/// in any case.
const CALLERS_FEW: usize = CALLERS_MAX / 8;
const CALM_SWEEPS: u32 = CALLERS_MAX as u32 / SWEEP_EVERY;

/// As much of a caller's digest counts while there are too many of them: 65,536 allowances.
const SHARED_BYTES: usize = 2;

/// Different rates known at once. More can only come from many reloads with changed rates.
const RATES_MAX: usize = 256;

/// After so many questions idle callers are forgotten: seldom enough to cost nothing, often enough to bound memory.
const SWEEP_EVERY: u32 = 1024;

/// A caller's name is never kept.
type Caller = [u8; 16];

type Limiter<C> =
    RateLimiter<Caller, DashMapStateStore<Caller>, C, governor::middleware::NoOpMiddleware<<C as Clock>::Instant>>;

/// Limits per caller. Cheap where a route has none.
pub struct Rates<C: Clock = DefaultClock> {
    new_keys: Table<C>,
    lookups: Table<C>,
}

impl Rates {
    /// Nobody is known yet.
    #[must_use]
    pub fn new() -> Self {
        Self::with_clock(DefaultClock::default())
    }
}

impl Default for Rates {
    fn default() -> Self {
        Self::new()
    }
}

impl<C: Clock + Clone> Rates<C> {
    /// The same with a given clock.
    #[must_use]
    pub fn with_clock(clock: C) -> Self {
        Self { new_keys: Table::new(clock.clone()), lookups: Table::new(clock) }
    }

    /// May this caller have one more new key? A burst of one second's worth is allowed.
    ///
    /// # Errors
    ///
    /// No: how long to wait before the next one.
    pub fn new_key(&self, caller: &str, per_second: Option<NonZeroU32>) -> Result<(), Duration> {
        self.new_keys.check(caller, per_second)
    }

    /// May this caller look up one more key?
    ///
    /// # Errors
    ///
    /// As for [`Rates::new_key`].
    pub fn lookup(&self, caller: &str, per_second: Option<NonZeroU32>) -> Result<(), Duration> {
        self.lookups.check(caller, per_second)
    }

    /// How many callers are remembered, for tests and curiosity.
    #[must_use]
    pub fn remembered(&self) -> usize {
        self.new_keys.remembered() + self.lookups.remembered()
    }
}

impl<C: Clock> fmt::Debug for Rates<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rates").finish_non_exhaustive()
    }
}

struct Table<C: Clock> {
    clock: C,
    limiters: RwLock<HashMap<NonZeroU32, Arc<Limiter<C>>>>,
    asked: AtomicU32,
    /// Above zero while there are too many callers for an allowance each: the sweeps that have to find few.
    crowded: AtomicU32,
}

impl<C: Clock + Clone> Table<C> {
    fn new(clock: C) -> Self {
        Self { clock, limiters: RwLock::default(), asked: AtomicU32::new(0), crowded: AtomicU32::new(0) }
    }

    fn check(&self, caller: &str, per_second: Option<NonZeroU32>) -> Result<(), Duration> {
        let Some(rate) = per_second else { return Ok(()) };
        if self.asked.fetch_add(1, Ordering::Relaxed) % SWEEP_EVERY == SWEEP_EVERY - 1 {
            self.sweep();
        }
        let mut caller = digest(caller);
        if self.crowded.load(Ordering::Relaxed) > 0 {
            caller[SHARED_BYTES..].fill(0);
        }
        let verdict = self.limiter(rate).check_key(&caller);
        verdict.map_err(|until| until.wait_time_from(self.clock.now()))
    }

    fn limiter(&self, rate: NonZeroU32) -> Arc<Limiter<C>> {
        let known = self.limiters.read().unwrap_or_else(PoisonError::into_inner).get(&rate).cloned();
        known.unwrap_or_else(|| {
            let mut limiters = self.limiters.write().unwrap_or_else(PoisonError::into_inner);
            if limiters.len() >= RATES_MAX {
                limiters.clear();
            }
            Arc::clone(limiters.entry(rate).or_insert_with(|| Arc::new(self.fresh(rate))))
        })
    }

    fn fresh(&self, rate: NonZeroU32) -> Limiter<C> {
        RateLimiter::new(Quota::per_second(rate), DashMapStateStore::default(), self.clock.clone())
    }

    fn sweep(&self) {
        let limiters: Vec<_> = {
            let all = self.limiters.read().unwrap_or_else(PoisonError::into_inner);
            all.iter().map(|(rate, limiter)| (*rate, Arc::clone(limiter))).collect()
        };
        let mut most = 0;
        for (rate, limiter) in limiters {
            limiter.retain_recent();
            most = most.max(limiter.len());
            if limiter.len() > CALLERS_MAX {
                self.limiters.write().unwrap_or_else(PoisonError::into_inner).remove(&rate);
            }
        }
        if most > CALLERS_MAX {
            self.crowded.store(CALM_SWEEPS, Ordering::Relaxed);
        } else if most <= CALLERS_FEW {
            let _ = self.crowded.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |sweeps| sweeps.checked_sub(1));
        }
    }

    fn remembered(&self) -> usize {
        self.limiters.read().unwrap_or_else(PoisonError::into_inner).values().map(|limiter| limiter.len()).sum()
    }
}

fn digest(caller: &str) -> Caller {
    let whole = Sha256::digest(caller.as_bytes());
    let mut short = [0; 16];
    short.copy_from_slice(&whole[..16]);
    short
}

#[cfg(test)]
mod tests {
    use governor::clock::FakeRelativeClock;

    use super::*;

    fn rate(per_second: u32) -> Option<NonZeroU32> {
        NonZeroU32::new(per_second)
    }

    #[test]
    fn a_caller_over_the_rate_is_told_how_long_to_wait() {
        let clock = FakeRelativeClock::default();
        let rates = Rates::with_clock(clock.clone());
        for _ in 0..5 {
            assert_eq!(rates.new_key("a", rate(5)), Ok(()));
        }
        let wait = rates.new_key("a", rate(5)).unwrap_err();
        assert!(wait > Duration::ZERO && wait <= Duration::from_millis(200), "{wait:?}");
        clock.advance(wait);
        assert_eq!(rates.new_key("a", rate(5)), Ok(()));
        assert!(rates.new_key("a", rate(5)).is_err());
    }

    #[test]
    fn callers_routes_and_kinds_do_not_use_up_each_others_allowance() {
        let rates = Rates::with_clock(FakeRelativeClock::default());
        assert!(rates.new_key("a", rate(1)).is_ok());
        assert!(rates.new_key("a", rate(1)).is_err());
        assert!(rates.new_key("b", rate(1)).is_ok(), "another caller");
        assert!(rates.lookup("a", rate(1)).is_ok(), "another kind");
        assert!(rates.new_key("a", rate(2)).is_ok(), "a route with another rate");
    }

    #[test]
    fn without_a_rate_nothing_is_limited_or_remembered() {
        let rates = Rates::new();
        for _ in 0..10_000 {
            assert_eq!(rates.lookup("a", None), Ok(()));
        }
        assert_eq!(rates.remembered(), 0);
    }

    #[test]
    fn idle_callers_are_forgotten() {
        let clock = FakeRelativeClock::default();
        let rates = Rates::with_clock(clock.clone());
        for caller in 0..5_000 {
            rates.new_key(&caller.to_string(), rate(3)).unwrap();
        }
        assert!(rates.remembered() > 4_000);
        clock.advance(Duration::from_secs(10));
        for _ in 0..SWEEP_EVERY {
            let _ = rates.new_key("one", rate(3));
        }
        assert_eq!(rates.remembered(), 1);
    }

    #[test]
    fn a_quarter_of_a_million_callers_within_a_moment_are_bounded() {
        let rates = Rates::with_clock(FakeRelativeClock::default());
        let mut most = 0;
        for caller in 0..250_000_u32 {
            let _ = rates.new_key(&caller.to_string(), rate(1));
            if caller % 1_000 == 0 {
                most = most.max(rates.remembered());
            }
        }
        assert!(most <= CALLERS_MAX + SWEEP_EVERY as usize, "{most}");
    }

    #[test]
    fn who_makes_up_callers_does_not_lift_a_limit_by_it() {
        let clock = FakeRelativeClock::default();
        let rates = Rates::with_clock(clock.clone());
        let mut passed = 0;
        for caller in 0..250_000_u32 {
            let _ = rates.new_key(&caller.to_string(), rate(1));
            if caller % 1_000 == 0 {
                passed += u32::from(rates.new_key("a", rate(1)).is_ok());
            }
        }
        assert!(passed <= 2, "once, and once more when all were forgotten: {passed}");
        clock.advance(Duration::from_secs(10));
        assert!(rates.new_keys.crowded.load(Ordering::Relaxed) > 0);
        for _ in 0..CALM_SWEEPS {
            rates.new_keys.sweep();
        }
        assert_eq!(rates.new_keys.crowded.load(Ordering::Relaxed), 0, "few are left, and have an allowance each");
    }

    #[test]
    fn reloads_with_ever_new_rates_are_bounded() {
        let rates = Rates::with_clock(FakeRelativeClock::default());
        for per_second in 1..10_000 {
            rates.new_key("a", rate(per_second)).unwrap();
        }
        assert!(rates.remembered() <= RATES_MAX);
    }
}
