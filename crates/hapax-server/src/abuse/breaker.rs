//! The circuit breaker in front of claims.
//!
//! A store that is down is found out by a timeout, and a request that waits for a timeout holds a connection. After some
//! failures in a row the breaker refuses claims at once, then lets a single one through as a probe. It gates claims only:
//! a completion is tried as long as the process lives, because giving it up would lose an answer. What the refusal
//! looks like (503 with `Retry-After`) is the caller's business.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::telemetry;

/// What callers are told to wait while a probe is under way: it will be decided soon.
const PROBE_RETRY: Duration = Duration::from_secs(1);

/// Longer pauses are cut to this: a store that came back must not be left alone for longer.
const PAUSE_MAX: Duration = Duration::from_secs(3600);

/// Refuses claims for a while after `failures_max` failures in a row.
#[derive(Clone)]
pub struct Breaker {
    shared: Arc<Shared>,
}

struct Shared {
    failures_max: u32,
    pause: Duration,
    /// True while it is closed and the last claim went well, which is nearly always: no lock is taken and no clock read then.
    calm: AtomicBool,
    /// The one of `inner`, for permits given while it is calm.
    generation: AtomicU64,
    inner: Mutex<Inner>,
}

struct Inner {
    state: State,
    /// Grows with every change of state, so that a report from before the change counts for nothing.
    generation: u64,
    random: u64,
}

#[derive(Clone, Copy)]
enum State {
    Closed {
        failures: u32,
    },
    Open {
        until: Instant,
    },
    /// One claim is under way. If it has not reported by `until`, another one may try.
    Probing {
        until: Instant,
    },
}

/// Leave to try one claim. Report how it went; dropping it counts as neither success nor failure.
#[must_use = "a permit that is not reported teaches the breaker nothing"]
pub struct Permit {
    shared: Arc<Shared>,
    generation: u64,
    reported: bool,
}

impl Breaker {
    /// A closed breaker. It opens after `failures_max` failures in a row (at least one), each time for about `pause`.
    #[must_use]
    pub fn new(failures_max: u32, pause: Duration) -> Self {
        Self::with_seed(failures_max, pause, random_seed())
    }

    /// The same with a given source of jitter.
    #[must_use]
    pub fn with_seed(failures_max: u32, pause: Duration, seed: u64) -> Self {
        let inner = Inner { state: State::Closed { failures: 0 }, generation: 0, random: seed };
        show(false);
        let (failures_max, pause) = (failures_max.max(1), pause.min(PAUSE_MAX));
        let (calm, generation) = (AtomicBool::new(true), AtomicU64::new(inner.generation));
        Self { shared: Arc::new(Shared { failures_max, pause, calm, generation, inner: Mutex::new(inner) }) }
    }

    /// May a claim be tried now?
    ///
    /// # Errors
    ///
    /// The breaker is open: how long to wait before trying again.
    pub fn admit(&self) -> Result<Permit, Duration> {
        self.shared.calm_permit().map_or_else(|| self.admit_at(Instant::now()), Ok)
    }

    /// [`Breaker::admit`] at a given time.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn admit_at(&self, now: Instant) -> Result<Permit, Duration> {
        let mut inner = self.shared.lock();
        match inner.state {
            State::Closed { .. } => {}
            State::Open { until } if now < until => return Err(until - now),
            State::Probing { until } if now < until => return Err(PROBE_RETRY.min(self.shared.pause)),
            State::Open { .. } | State::Probing { .. } => {
                inner.enter(State::Probing { until: now + self.shared.pause });
            }
        }
        let generation = inner.generation;
        self.shared.publish(&inner);
        Ok(Permit { shared: Arc::clone(&self.shared), generation, reported: false })
    }

    /// True while a claim would be refused. When the pause is over it is false although no claim has shown yet that the
    /// store answers: where only ready nodes get requests, that claim would otherwise never come.
    #[must_use]
    pub fn is_refusing(&self) -> bool {
        self.is_refusing_at(Instant::now())
    }

    /// [`Breaker::is_refusing`] at a given time.
    #[must_use]
    pub fn is_refusing_at(&self, now: Instant) -> bool {
        match self.shared.lock().state {
            State::Closed { .. } => false,
            State::Open { until } | State::Probing { until } => now < until,
        }
    }

    /// True while claims are refused, or only one is let through to see.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !matches!(self.shared.lock().state, State::Closed { .. })
    }
}

impl fmt::Debug for Breaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Breaker").field("open", &self.is_open()).finish_non_exhaustive()
    }
}

impl Permit {
    /// Says whether the store answered. A refusal by rule, such as a mismatch, is an answer: `ok` is true.
    pub fn report(mut self, ok: bool) {
        if ok && self.shared.calm.load(Ordering::Acquire) {
            self.reported = true;
            return;
        }
        self.report_at(ok, Instant::now());
    }

    /// [`Permit::report`] at a given time.
    pub fn report_at(mut self, ok: bool, now: Instant) {
        self.reported = true;
        let mut inner = self.shared.lock();
        if inner.generation != self.generation {
            return;
        }
        match (inner.state, ok) {
            (State::Closed { failures: 0 }, true) | (State::Open { .. }, _) => {}
            (State::Closed { .. }, true) => inner.state = State::Closed { failures: 0 },
            (State::Closed { failures }, false) if failures + 1 < self.shared.failures_max => {
                inner.state = State::Closed { failures: failures + 1 };
            }
            (State::Closed { .. } | State::Probing { .. }, false) => self.shared.open(&mut inner, now),
            (State::Probing { .. }, true) => {
                inner.enter(State::Closed { failures: 0 });
                show(false);
                tracing::info!("the store answers again: claims are admitted");
            }
        }
        self.shared.publish(&inner);
    }
}

impl Drop for Permit {
    /// A probe that ended without a word leaves the question open: the next claim asks it again.
    fn drop(&mut self) {
        if self.reported || self.shared.calm.load(Ordering::Acquire) {
            return;
        }
        let mut inner = self.shared.lock();
        if let (State::Probing { until }, true) = (inner.state, inner.generation == self.generation) {
            // `until` lies one pause after the probe began, so this time has come.
            let began = until.checked_sub(self.shared.pause).unwrap_or(until);
            inner.enter(State::Open { until: began });
        }
        self.shared.publish(&inner);
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").finish_non_exhaustive()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// After a change, before the lock is let go.
    fn publish(&self, inner: &Inner) {
        self.generation.store(inner.generation, Ordering::Release);
        self.calm.store(matches!(inner.state, State::Closed { failures: 0 }), Ordering::Release);
    }

    /// Leave to try, where there is nothing to think about. A breaker that opens in this moment ignores what it reports.
    fn calm_permit(self: &Arc<Self>) -> Option<Permit> {
        let generation = self.generation.load(Ordering::Acquire);
        self.calm.load(Ordering::Acquire).then(|| Permit { shared: Arc::clone(self), generation, reported: false })
    }

    fn open(&self, inner: &mut Inner, now: Instant) {
        let pause = inner.jittered(self.pause);
        if matches!(inner.state, State::Closed { .. }) {
            tracing::warn!(
                pause_ms = pause.as_millis(),
                "the store fails: claims are refused until it answers a probe"
            );
        }
        inner.enter(State::Open { until: now + pause });
        show(true);
    }
}

impl Inner {
    fn enter(&mut self, state: State) {
        self.state = state;
        self.generation += 1;
    }

    /// Between three and five quarters of `pause`, so that several nodes do not probe a store in step.
    fn jittered(&mut self, pause: Duration) -> Duration {
        // The generator of Knuth's MMIX; its high bits are good enough to spread nodes.
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let share = (self.random >> 48) as u32;
        pause * 3 / 4 + pause / 2 * share / (1 << 16)
    }
}

fn show(open: bool) {
    ::metrics::gauge!(telemetry::BREAKER_OPEN).set(if open { 1.0 } else { 0.0 });
}

#[expect(clippy::disallowed_methods, reason = "jitter: it decides nothing that is stored; tests pass a seed")]
fn random_seed() -> u64 {
    // Without a random source the pause is still jittered, only the same on every node.
    getrandom::u64().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSE: Duration = Duration::from_secs(4);
    /// After jitter no pause is longer.
    const PAUSE_OVER: Duration = Duration::from_secs(5);

    fn opened(now: Instant) -> Breaker {
        let breaker = Breaker::with_seed(3, PAUSE, 7);
        for _ in 0..3 {
            breaker.admit_at(now).unwrap().report_at(false, now);
        }
        breaker
    }

    #[test]
    fn it_opens_after_failures_in_a_row_and_not_before() {
        let now = Instant::now();
        let breaker = Breaker::with_seed(3, PAUSE, 7);
        for ok in [false, false, true, false, false] {
            breaker.admit_at(now).unwrap().report_at(ok, now);
            assert!(!breaker.is_open());
        }
        breaker.admit_at(now).unwrap().report_at(false, now);
        let wait = breaker.admit_at(now).unwrap_err();
        assert!(breaker.is_open());
        assert!((PAUSE * 3 / 4..=PAUSE_OVER).contains(&wait), "{wait:?}");
    }

    #[test]
    fn one_probe_is_let_through_and_its_success_closes() {
        let now = Instant::now();
        let breaker = opened(now);
        let later = now + PAUSE_OVER;
        let probe = breaker.admit_at(later).unwrap();
        for _ in 0..100 {
            assert_eq!(breaker.admit_at(later).unwrap_err(), PROBE_RETRY);
        }
        probe.report_at(true, later);
        assert!(!breaker.is_open());
        // The count begins anew.
        breaker.admit_at(later).unwrap().report_at(false, later);
        assert!(!breaker.is_open());
    }

    #[test]
    fn when_the_pause_is_over_it_asks_for_a_claim() {
        let now = Instant::now();
        let breaker = opened(now);
        assert!(breaker.is_refusing_at(now));
        let later = now + PAUSE_OVER;
        assert!(!breaker.is_refusing_at(later) && breaker.is_open());
        let probe = breaker.admit_at(later).unwrap();
        assert!(breaker.is_refusing_at(later), "one is enough");
        probe.report_at(true, later);
        assert!(!breaker.is_refusing_at(later));
    }

    #[test]
    fn of_many_threads_exactly_one_probes() {
        let now = Instant::now();
        for _ in 0..50 {
            let breaker = opened(now);
            let admitted: Vec<Option<Permit>> = std::thread::scope(|scope| {
                let asks = |_| scope.spawn(|| breaker.admit_at(now + PAUSE_OVER).ok());
                let threads: Vec<_> = (0..8).map(asks).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            assert_eq!(admitted.iter().flatten().count(), 1);
        }
    }

    #[test]
    fn a_failed_probe_opens_again() {
        let now = Instant::now();
        let breaker = opened(now);
        let later = now + PAUSE_OVER;
        breaker.admit_at(later).unwrap().report_at(false, later);
        assert!(breaker.admit_at(later + PAUSE / 2).is_err());
        assert!(breaker.admit_at(later + PAUSE_OVER).is_ok());
    }

    #[test]
    fn a_dropped_permit_counts_as_neither() {
        let now = Instant::now();
        let breaker = Breaker::with_seed(1, PAUSE, 7);
        drop(breaker.admit_at(now).unwrap());
        assert!(!breaker.is_open());
        let breaker = opened(now);
        let later = now + PAUSE_OVER;
        drop(breaker.admit_at(later).unwrap());
        assert!(breaker.is_open());
        assert!(breaker.admit_at(later).is_ok(), "the next one may probe at once");
    }

    #[test]
    fn a_probe_that_never_reports_does_not_shut_everybody_out_for_ever() {
        let now = Instant::now();
        let breaker = opened(now);
        let later = now + PAUSE_OVER;
        let lost = breaker.admit_at(later).unwrap();
        assert!(breaker.admit_at(later + PAUSE / 2).is_err());
        let second = breaker.admit_at(later + PAUSE).unwrap();
        lost.report_at(true, later + PAUSE);
        assert!(breaker.is_open(), "a probe that was given up decides nothing");
        second.report_at(true, later + PAUSE);
        assert!(!breaker.is_open());
    }

    #[test]
    fn reports_of_claims_admitted_before_it_opened_change_nothing() {
        let now = Instant::now();
        let breaker = Breaker::with_seed(2, PAUSE, 7);
        let early: Vec<Permit> = (0..6).map(|_| breaker.admit_at(now).unwrap()).collect();
        for (nth, permit) in early.into_iter().enumerate() {
            permit.report_at(nth > 3, now);
        }
        assert!(breaker.is_open());
        let wait = breaker.admit_at(now).unwrap_err();
        assert!(wait <= PAUSE_OVER);
    }

    #[test]
    fn an_endless_pause_is_cut() {
        let now = Instant::now();
        let breaker = Breaker::with_seed(0, Duration::MAX, 7);
        breaker.admit_at(now).unwrap().report_at(false, now);
        assert!(breaker.admit_at(now).unwrap_err() <= PAUSE_MAX * 5 / 4);
    }

    #[test]
    fn pauses_differ_between_nodes() {
        let now = Instant::now();
        let waits: std::collections::BTreeSet<Duration> = (0..50)
            .map(|seed| {
                let breaker = Breaker::with_seed(1, PAUSE, u64::wrapping_mul(seed, 0x9e37_79b9_7f4a_7c15));
                breaker.admit_at(now).unwrap().report_at(false, now);
                breaker.admit_at(now).unwrap_err()
            })
            .collect();
        assert!(waits.len() > 40, "{waits:?}");
    }
}
