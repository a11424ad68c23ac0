//! Who sends the most duplicates, mismatches and refused requests.
//!
//! A tenant must not become a metric label, and a million callers must not become a million counters. This keeps the busiest
//! few by the space-saving algorithm (Metwally, Agrawal and El Abbadi, 2005): a caller that is not among them takes the
//! place of the least busy one and inherits its count as uncertainty. Whoever made more than one in [`TRACKED`] of all
//! counted requests is certain to be listed. Callers are known by a short digest only, the same as in the logs.
//!
//! A mismatch is a security signal: a client bug at best, somebody guessing keys at worst. So it is also logged.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;

use crate::logs::digest_of_caller;

/// How many callers an operator is shown unless more or fewer are asked for.
pub const SHOWN: usize = 100;

/// Callers counted at once: ten times those shown, so that the order at the end of the list is right too.
pub const TRACKED: usize = 1_000;

/// One caller's mismatches are logged at most so often.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// Warnings per [`WARN_EVERY`] over all callers: made-up callers must not fill the log.
const WARNINGS_MAX: u32 = 60;

/// What happened to a caller's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A request whose key was already known, with the same content.
    Duplicate,
    /// A request whose key was already known, with other content.
    Mismatch,
    /// A request that was refused for another reason.
    Refusal,
}

/// One of the busiest callers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Caller {
    /// The first 12 hexadecimal digits of the SHA-256 of the caller's scope.
    pub caller: String,
    /// Requests whose key was already known.
    pub duplicates: u64,
    /// Requests that used a known key for something else.
    pub mismatches: u64,
    /// Requests refused for another reason.
    pub refusals: u64,
    /// So many more there may have been before this caller was tracked.
    pub uncertain: u64,
}

impl Caller {
    fn total(&self) -> u64 {
        self.duplicates + self.mismatches + self.refusals + self.uncertain
    }
}

/// Counts per caller, for the busiest.
pub struct Callers {
    inner: Mutex<Inner>,
}

impl Callers {
    /// Nobody is counted yet.
    #[must_use]
    pub fn new() -> Self {
        Self::tracking(TRACKED)
    }

    /// The same with another number of callers counted at once (at least one).
    #[must_use]
    pub fn tracking(tracked: usize) -> Self {
        Self { inner: Mutex::new(Inner { tracked: tracked.max(1), ..Inner::default() }) }
    }

    /// Counts one request of this caller; `caller` is its scope as text.
    pub fn count(&self, caller: &str, what: What) {
        let caller = digest_of_caller(caller);
        let warning = self.lock().count(&caller, what, Instant::now);
        if let Some(Warning { mismatches, unsaid }) = warning {
            tracing::warn!(caller, mismatches, unsaid, "a caller uses known keys for other requests");
        }
    }

    /// The busiest callers, busiest first.
    #[must_use]
    pub fn top(&self, n: usize) -> Vec<Caller> {
        let inner = self.lock();
        inner.order.iter().rev().take(n).filter_map(|(_, slot)| Some(inner.slots.get(*slot)?.caller.clone())).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Callers {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Callers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Callers").field("tracked", &self.lock().slots.len()).finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Inner {
    tracked: usize,
    slots: Vec<Slot>,
    by_digest: HashMap<String, usize>,
    /// Total and slot, least busy first.
    order: BTreeSet<(u64, usize)>,
    warnings: Warnings,
}

struct Slot {
    caller: Caller,
    warned_at: Option<Instant>,
}

#[derive(Debug, PartialEq, Eq)]
struct Warning {
    /// This caller's mismatches so far.
    mismatches: u64,
    /// Warnings about other callers that were left out since the last one.
    unsaid: u64,
}

#[derive(Default)]
struct Warnings {
    window_began: Option<Instant>,
    said: u32,
    unsaid: u64,
}

impl Inner {
    fn count(&mut self, digest: &str, what: What, now: impl FnOnce() -> Instant) -> Option<Warning> {
        let at = self.slot_of(digest);
        let slot = self.slots.get_mut(at)?;
        self.order.remove(&(slot.caller.total(), at));
        match what {
            What::Duplicate => slot.caller.duplicates += 1,
            What::Mismatch => slot.caller.mismatches += 1,
            What::Refusal => slot.caller.refusals += 1,
        }
        self.order.insert((slot.caller.total(), at));
        if what != What::Mismatch {
            return None;
        }
        let now = now();
        if slot.warned_at.is_some_and(|last| now < last + WARN_EVERY) {
            return None;
        }
        slot.warned_at = Some(now);
        let mismatches = slot.caller.mismatches;
        self.warnings.say(now).map(|unsaid| Warning { mismatches, unsaid })
    }

    /// The slot of a caller: its own, a free one, or that of the least busy caller.
    fn slot_of(&mut self, digest: &str) -> usize {
        if let Some(known) = self.by_digest.get(digest) {
            return *known;
        }
        let at = if self.slots.len() < self.tracked { self.free_slot(digest) } else { self.taken_slot(digest) };
        self.by_digest.insert(digest.to_owned(), at);
        at
    }

    fn free_slot(&mut self, digest: &str) -> usize {
        self.slots.push(Slot { caller: nobody(digest, 0), warned_at: None });
        self.order.insert((0, self.slots.len() - 1));
        self.slots.len() - 1
    }

    fn taken_slot(&mut self, digest: &str) -> usize {
        let (total, at) = self.order.first().copied().unwrap_or_default();
        if let Some(slot) = self.slots.get_mut(at) {
            self.by_digest.remove(&slot.caller.caller);
            // The same total as before, so its place in the order is unchanged.
            *slot = Slot { caller: nobody(digest, total), warned_at: None };
        }
        at
    }
}

impl Warnings {
    /// `None`: enough has been said in this window. Otherwise how many warnings went unsaid before this one.
    fn say(&mut self, now: Instant) -> Option<u64> {
        if self.window_began.is_none_or(|began| now >= began + WARN_EVERY) {
            self.window_began = Some(now);
            self.said = 0;
        }
        if self.said >= WARNINGS_MAX {
            self.unsaid += 1;
            return None;
        }
        self.said += 1;
        Some(std::mem::take(&mut self.unsaid))
    }
}

fn nobody(digest: &str, uncertain: u64) -> Caller {
    Caller { caller: digest.to_owned(), duplicates: 0, mismatches: 0, refusals: 0, uncertain }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_counted_apart_and_the_busiest_comes_first() {
        let callers = Callers::new();
        callers.count("quiet", What::Refusal);
        for what in [What::Duplicate, What::Duplicate, What::Mismatch, What::Refusal] {
            callers.count("busy", what);
        }
        let top = callers.top(SHOWN);
        let busy = Caller { duplicates: 2, mismatches: 1, refusals: 1, ..nobody(&digest_of_caller("busy"), 0) };
        let quiet = Caller { refusals: 1, ..nobody(&digest_of_caller("quiet"), 0) };
        assert_eq!(top, [busy, quiet]);
        assert_eq!(callers.top(1).len(), 1);
    }

    #[test]
    fn no_name_of_a_caller_is_kept() {
        let callers = Callers::new();
        callers.count("tenant-canary", What::Duplicate);
        let shown = format!("{callers:?} {:?} {}", callers.top(9), serde_json::to_string(&callers.top(9)).unwrap());
        assert!(!shown.contains("canary"), "{shown}");
        assert_eq!(callers.top(9)[0].caller.len(), 12);
    }

    #[test]
    fn the_busiest_are_found_among_a_million_callers_in_bounded_memory() {
        let mut inner = Inner { tracked: 100, ..Inner::default() };
        let now = Instant::now();
        for nth in 0..1_000_000_u64 {
            inner.count(&format!("made-up-{nth}"), What::Refusal, || now);
            // Ten callers with two in a hundred of all requests each.
            if nth % 5 == 0 {
                inner.count(&format!("busy-{}", nth / 5 % 10), What::Duplicate, || now);
            }
        }
        assert_eq!((inner.slots.len(), inner.by_digest.len(), inner.order.len()), (100, 100, 100));
        let callers = Callers { inner: Mutex::new(inner) };
        let top: BTreeSet<String> = callers.top(10).into_iter().map(|caller| caller.caller).collect();
        let busy: BTreeSet<String> = (0..10).map(|nth| format!("busy-{nth}")).collect();
        assert_eq!(top, busy);
        assert!(callers.top(10).iter().all(|caller| caller.duplicates + caller.uncertain >= 20_000));
    }

    #[test]
    fn a_caller_that_takes_anothers_place_inherits_its_count_as_uncertainty() {
        let callers = Callers::tracking(2);
        for caller in ["a", "a", "a", "b", "b", "c"] {
            callers.count(caller, What::Duplicate);
        }
        let a = Caller { duplicates: 3, ..nobody(&digest_of_caller("a"), 0) };
        let c = Caller { duplicates: 1, ..nobody(&digest_of_caller("c"), 2) };
        // Equal totals: the later slot comes first.
        assert_eq!(callers.top(9), [c, a]);
        assert_eq!(callers.lock().order.len(), 2);
    }

    #[test]
    fn mismatches_are_warned_of_at_most_once_a_minute_per_caller() {
        let mut inner = Inner { tracked: 10, ..Inner::default() };
        let start = Instant::now();
        assert_eq!(inner.count("a", What::Duplicate, || start), None);
        assert_eq!(inner.count("a", What::Mismatch, || start), Some(Warning { mismatches: 1, unsaid: 0 }));
        for second in 1..60 {
            assert_eq!(inner.count("a", What::Mismatch, || start + Duration::from_secs(second)), None);
        }
        assert_eq!(inner.count("b", What::Mismatch, || start), Some(Warning { mismatches: 1, unsaid: 0 }));
        let next = inner.count("a", What::Mismatch, || start + WARN_EVERY);
        assert_eq!(next, Some(Warning { mismatches: 61, unsaid: 0 }));
    }

    #[test]
    fn made_up_callers_do_not_fill_the_log() {
        let mut inner = Inner { tracked: 10, ..Inner::default() };
        let start = Instant::now();
        let said = (0..10_000).filter(|nth| inner.count(&nth.to_string(), What::Mismatch, || start).is_some()).count();
        assert_eq!(said, WARNINGS_MAX as usize);
        let next = inner.count("later", What::Mismatch, || start + WARN_EVERY);
        assert_eq!(next.unwrap().unsaid, 10_000 - u64::from(WARNINGS_MAX));
    }
}
