//! How many unfinished keys a caller may have: those that run, and those whose outcome is unknown or dead.
//!
//! An unknown outcome stays until a probe or a person resolves it; nothing is deleted or forgotten to make room. What can be
//! done about a caller that leaves ever more of them is to give it no new keys. Its known keys go on.
//!
//! What runs is counted here as it begins and ends, on this node. What is unknown or dead is counted in the store, which all
//! nodes share, every now and then ([`Active::counting`]); in between, what this node left unknown is added. So the number is
//! a close one and not exact: for a few seconds it may be too high by what was resolved, and too low by what other nodes left.

#[expect(clippy::disallowed_types, reason = "nothing that is stored depends on it; a caller must not foresee it")]
use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher as _;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::hashed::ByHash;

/// Callers of whom a count is kept per shard: whoever makes up more of them has few keys under each.
const CALLERS_PER_SHARD_MAX: usize = 8_192;

const SHARDS: usize = 16;

/// Unfinished keys by caller, as far as this node knows.
#[expect(clippy::disallowed_types, reason = "nothing that is stored depends on it; a caller must not foresee it")]
pub struct Active {
    /// 0: no limit.
    most: AtomicU32,
    hasher: RandomState,
    shards: [Mutex<ByHash<Count>>; SHARDS],
}

/// The unfinished keys of one caller.
#[derive(Clone, Copy, Default)]
struct Count {
    running: u32,
    /// In doubt, when the store was last counted.
    stored: u32,
    /// Left in doubt by this node before the count that is under way began.
    before: u32,
    /// And since.
    since: u32,
}

impl Count {
    fn all(self) -> u32 {
        [self.stored, self.before, self.since].into_iter().fold(self.running, u32::saturating_add)
    }
}

/// A count of the store that is under way.
#[must_use = "it counts only once it is finished"]
pub struct Counting<'a> {
    active: &'a Active,
    found: ByHash<u32>,
}

impl Active {
    /// Nothing is known to run. `None`: no limit.
    #[must_use]
    pub fn new(most: Option<NonZeroU32>) -> Self {
        let active = Self { most: AtomicU32::new(0), hasher: Default::default(), shards: Default::default() };
        active.set_most(most);
        active
    }

    /// Another limit from now on.
    pub fn set_most(&self, most: Option<NonZeroU32>) {
        self.most.store(most.map_or(0, NonZeroU32::get), Ordering::Relaxed);
    }

    /// May this caller have one more?
    ///
    /// # Errors
    ///
    /// No: how many it has.
    pub fn new_key(&self, caller: &str) -> Result<(), u32> {
        let most = self.most.load(Ordering::Relaxed);
        if most == 0 {
            return Ok(());
        }
        let caller = self.hasher.hash_one(caller);
        let all = self.shard(caller).get(&caller).map_or(0, |count| count.all());
        if all < most { Ok(()) } else { Err(all) }
    }

    /// A request of this caller runs.
    pub fn began(&self, caller: &str) {
        self.change(caller, |count| count.running = count.running.saturating_add(1));
    }

    /// It has ended, and nobody knows how, or somebody does. Says how many unfinished keys the caller has now; 0 where nothing is
    /// counted.
    pub fn ended(&self, caller: &str, is_unknown: bool) -> u32 {
        self.change(caller, |count| {
            count.running = count.running.saturating_sub(1);
            count.since = count.since.saturating_add(u32::from(is_unknown));
        })
    }

    /// Begins a count of what the store holds.
    pub fn counting(&self) -> Counting<'_> {
        for shard in &self.shards {
            for count in lock(shard).values_mut() {
                count.before = count.before.saturating_add(std::mem::take(&mut count.since));
            }
        }
        Counting { active: self, found: ByHash::default() }
    }

    /// Of how many callers a count is kept, for tests and curiosity.
    #[must_use]
    pub fn remembered(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).len()).sum()
    }

    fn change(&self, caller: &str, change: impl FnOnce(&mut Count)) -> u32 {
        if self.most.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        let caller = self.hasher.hash_one(caller);
        let mut shard = self.shard(caller);
        let is_known = shard.contains_key(&caller);
        if !is_known && shard.len() >= CALLERS_PER_SHARD_MAX {
            return 0;
        }
        let count = shard.entry(caller).or_default();
        change(count);
        let all = count.all();
        if all == 0 {
            shard.remove(&caller);
        }
        all
    }

    fn shard(&self, caller: u64) -> MutexGuard<'_, ByHash<Count>> {
        lock(&self.shards[caller as usize % SHARDS])
    }
}

impl Counting<'_> {
    /// The store holds one more that is in doubt.
    pub fn add(&mut self, caller: &str) {
        let found = self.found.entry(self.active.hasher.hash_one(caller)).or_default();
        *found = found.saturating_add(1);
    }

    /// All were added: from now on this is what the store holds.
    pub fn finish(self) {
        let mut found = self.found;
        for shard in &self.active.shards {
            lock(shard).retain(|caller, count| {
                (count.stored, count.before) = (found.remove(caller).unwrap_or(0), 0);
                count.all() > 0
            });
        }
        let mut found: Vec<(u64, u32)> = found.into_iter().collect();
        // Where there is no room for all, for those that have the most.
        found.sort_unstable_by_key(|(_, stored)| std::cmp::Reverse(*stored));
        for (caller, stored) in found {
            let mut shard = self.active.shard(caller);
            if shard.len() < CALLERS_PER_SHARD_MAX || shard.contains_key(&caller) {
                shard.entry(caller).or_default().stored = stored;
            }
        }
    }
}

impl fmt::Debug for Active {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Active").field("most", &self.most).finish_non_exhaustive()
    }
}

impl fmt::Debug for Counting<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counting").field("callers", &self.found.len()).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn active(most: u32) -> Active {
        Active::new(NonZeroU32::new(most))
    }

    #[test]
    fn what_runs_and_what_is_in_doubt_count_together_and_per_caller() {
        let active = active(3);
        active.began("a");
        active.began("a");
        assert_eq!(active.ended("a", true), 2);
        assert_eq!(active.new_key("a"), Ok(()), "one runs, one is in doubt");
        active.began("a");
        assert_eq!((active.new_key("a"), active.new_key("b")), (Err(3), Ok(())));
        active.ended("a", false);
        active.ended("a", false);
        assert_eq!(active.new_key("a"), Ok(()));
    }

    #[test]
    fn what_the_store_holds_takes_the_place_of_what_was_known_before_it_was_counted() {
        let active = active(4);
        for _ in 0..3 {
            active.began("a");
            active.ended("a", true);
        }
        let mut counting = active.counting();
        counting.add("a");
        counting.add("b");
        active.began("a");
        active.ended("a", true);
        assert_eq!(active.new_key("a"), Err(4), "the old ones count until the new count is there");
        counting.finish();
        active.began("a");
        assert_eq!(active.new_key("a"), Ok(()), "one in the store, one left while it was counted, one that runs");
        active.began("a");
        assert_eq!(active.new_key("a"), Err(4));
        active.ended("a", false);
        active.ended("a", false);
        active.counting().finish();
        assert_eq!(active.remembered(), 0, "somebody has resolved them");
    }

    #[test]
    fn made_up_callers_are_bounded() {
        let active = active(4);
        let mut counting = active.counting();
        for caller in 0..300_000 {
            counting.add(&caller.to_string());
            active.ended(&caller.to_string(), true);
        }
        counting.finish();
        assert!(active.remembered() <= CALLERS_PER_SHARD_MAX * SHARDS);
    }

    #[test]
    fn without_a_limit_nothing_is_remembered() {
        let active = Active::new(None);
        active.began("a");
        active.ended("a", true);
        assert_eq!((active.new_key("a"), active.remembered()), (Ok(()), 0));
    }
}
