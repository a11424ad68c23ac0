//! One budget in bytes for what requests make the layer hold: request bodies, and responses that are recorded or replayed.
//!
//! Whoever is about to hold something asks first, and is refused where there is no room; what it may hold is given back when
//! a [`Share`] is dropped. There are two pools:
//!
//! - **Small**, an eighth of the budget: what takes up to [`SMALL_BYTES_MAX`]. So ordinary requests go on while large ones
//!   have used up the rest. Where the small pool is used up, the large one is asked.
//! - **Large**, the rest. Of its last part, an eighth of the budget, one half is for replays and for responses of attempts
//!   that run, and the other for those responses alone: whatever requests hold, what is known is answered; and a response
//!   that finds no room cannot be kept for retries.
//!
//! No client holds more than a quarter of the budget. A request that names no [`Client`] is limited by the whole alone.
//!
//! Everything is an atomic counter, and there is no lock. Clients are counted in buckets by a keyed hash: two clients that
//! fall into one bucket share their quarter. That is rare where it matters, since no more than four quarters can be in use
//! at a time, and nobody outside can choose whom to meet.

#![expect(clippy::disallowed_types, reason = "nothing of it is stored: a client must not be able to choose its bucket")]

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

use crate::http::client::Client;
use crate::observe;

/// What takes no more than this is small: most requests and responses of an API are.
pub const SMALL_BYTES_MAX: usize = 16 * 1024;

/// The budget unless told otherwise.
pub const MEMORY_BYTES_MAX: usize = 512 * 1024 * 1024;

/// Bytes that nobody can be made to hold: a limit above it would overflow a sum.
const UNLIMITED: usize = usize::MAX / 4;

/// Counters of clients in each pool.
const BUCKETS: usize = 4096;

/// For what memory is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// A request's head or body.
    Request,
    /// A recorded response.
    Replay,
    /// The response of an attempt.
    Response,
}

impl Use {
    fn word(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Replay => "replay",
            Self::Response => "response",
        }
    }
}

/// There is no room for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

/// See the module.
pub(crate) struct Budget {
    bytes_max: AtomicUsize,
    small: Pool,
    large: Pool,
    hashing: RandomState,
}

impl Default for Budget {
    fn default() -> Self {
        let (small, large) = (Pool::new(), Pool::new());
        Self { bytes_max: AtomicUsize::new(MEMORY_BYTES_MAX), small, large, hashing: RandomState::new() }
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budget").field("used", &self.used()).finish_non_exhaustive()
    }
}

impl Budget {
    /// From now on. What is held already stays.
    pub(crate) fn set_max(&self, bytes: usize) {
        self.bytes_max.store(bytes.min(UNLIMITED), Ordering::Relaxed);
    }

    /// Bytes in use.
    pub(crate) fn used(&self) -> usize {
        self.small.used.load(Ordering::Relaxed) + self.large.used.load(Ordering::Relaxed)
    }

    /// A share of that client, with nothing in it yet.
    pub(crate) fn share(self: &Arc<Self>, client: Option<&Client>) -> Share {
        let bucket = client.map(|client| (self.hashing.hash_one(client) % BUCKETS as u64) as usize);
        Share { budget: Arc::clone(self), bucket, small: 0, large: 0 }
    }

    fn take_small(&self, bucket: Option<usize>, bytes: usize) -> bool {
        let pool_max = self.bytes_max.load(Ordering::Relaxed) / 8;
        self.small.take(bucket, bytes, pool_max, pool_max / 4)
    }

    fn take_large(&self, bucket: Option<usize>, bytes: usize, what: Use) -> bool {
        let all = self.bytes_max.load(Ordering::Relaxed);
        let pool_max = all
            - match what {
                Use::Response => all / 8,
                Use::Replay => all / 8 + all / 16,
                Use::Request => all / 4,
            };
        // With its part of the small pool that is a quarter.
        self.large.take(bucket, bytes, pool_max, all / 4 - all / 32)
    }
}

/// A counter, and one for each bucket of clients.
struct Pool {
    used: AtomicUsize,
    by_client: Box<[AtomicUsize]>,
}

impl Pool {
    fn new() -> Self {
        Self {
            used: AtomicUsize::new(0),
            by_client: std::iter::repeat_with(AtomicUsize::default).take(BUCKETS).collect(),
        }
    }

    fn client(&self, bucket: Option<usize>) -> Option<&AtomicUsize> {
        bucket.and_then(|bucket| self.by_client.get(bucket))
    }

    fn take(&self, bucket: Option<usize>, bytes: usize, max: usize, client_max: usize) -> bool {
        if !add(&self.used, bytes, max) {
            return false;
        }
        let fits = self.client(bucket).is_none_or(|held| add(held, bytes, client_max));
        if !fits {
            self.used.fetch_sub(bytes, Ordering::Relaxed);
        }
        fits
    }

    fn give_back(&self, bucket: Option<usize>, bytes: usize) {
        if bytes > 0 {
            self.used.fetch_sub(bytes, Ordering::Relaxed);
            if let Some(held) = self.client(bucket) {
                held.fetch_sub(bytes, Ordering::Relaxed);
            }
        }
    }
}

/// Adds to a counter unless that makes it too large. Two that meet at the limit may both be refused.
fn add(counter: &AtomicUsize, bytes: usize, max: usize) -> bool {
    let fits = bytes <= max && counter.fetch_add(bytes, Ordering::Relaxed) <= max - bytes;
    if !fits && bytes <= max {
        counter.fetch_sub(bytes, Ordering::Relaxed);
    }
    fits
}

/// What somebody holds of the budget, until it is dropped.
pub(crate) struct Share {
    budget: Arc<Budget>,
    bucket: Option<usize>,
    small: usize,
    large: usize,
}

impl Share {
    /// Makes sure that this covers so many bytes in all.
    pub(crate) fn hold(&mut self, bytes: usize, what: Use) -> Result<(), Full> {
        let more = bytes.saturating_sub(self.bytes());
        if more == 0 {
            return Ok(());
        }
        if bytes <= SMALL_BYTES_MAX && self.budget.take_small(self.bucket, more) {
            self.small += more;
        } else if self.budget.take_large(self.bucket, more, what) {
            self.large += more;
        } else {
            observe::memory_refused(what.word());
            return Err(Full);
        }
        observe::memory_held(more as f64);
        Ok(())
    }

    /// Gives back what it covers beyond so many bytes.
    pub(crate) fn keep(&mut self, bytes: usize) {
        let less = self.bytes().saturating_sub(bytes);
        if less == 0 {
            return;
        }
        let (large, small) = (less.min(self.large), less.saturating_sub(self.large));
        self.budget.large.give_back(self.bucket, large);
        self.budget.small.give_back(self.bucket, small);
        (self.large, self.small) = (self.large - large, self.small - small);
        observe::memory_held(-(less as f64));
    }

    fn bytes(&self) -> usize {
        self.small + self.large
    }

    /// Those bytes, for which this is held until the last part of them is dropped.
    pub(crate) fn around(self, bytes: impl AsRef<[u8]> + Send + 'static) -> Bytes {
        Bytes::from_owner(Held { bytes, _share: self })
    }
}

impl fmt::Debug for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Share").field(&self.bytes()).finish()
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.keep(0);
    }
}

struct Held<B> {
    bytes: B,
    _share: Share,
}

impl<B: AsRef<[u8]>> AsRef<[u8]> for Held<B> {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1024 * 1024;

    fn budget(bytes: usize) -> Arc<Budget> {
        let budget = Arc::new(Budget::default());
        budget.set_max(bytes);
        budget
    }

    fn client(last: u8) -> Client {
        Client::new([192, 0, 2, last].into())
    }

    /// As many shares of that size as there is room for.
    fn fill(budget: &Arc<Budget>, client: Option<&Client>, bytes: usize, what: Use) -> Vec<Share> {
        let share = || {
            let mut share = budget.share(client);
            share.hold(bytes, what).is_ok().then_some(share)
        };
        std::iter::from_fn(share).collect()
    }

    #[test]
    fn what_is_held_is_bounded_and_comes_back() {
        let budget = budget(64 * MIB);
        let shares = fill(&budget, None, MIB, Use::Request);
        assert_eq!((shares.len(), budget.used()), (48, 48 * MIB));
        drop(shares);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn small_ones_go_on_while_large_ones_have_used_up_the_rest() {
        let budget = budget(64 * MIB);
        let large = fill(&budget, None, MIB, Use::Response);
        assert_eq!(large.len(), 56);
        assert_eq!(fill(&budget, None, MIB, Use::Request).len(), 0);
        assert_eq!(fill(&budget, None, SMALL_BYTES_MAX, Use::Request).len(), 8 * MIB / SMALL_BYTES_MAX);
    }

    #[test]
    fn requests_leave_room_for_replays_and_both_for_responses() {
        let budget = budget(64 * MIB);
        let _requests = fill(&budget, None, MIB, Use::Request);
        let replays = fill(&budget, None, MIB, Use::Replay);
        assert_eq!(replays.len(), 4);
        assert_eq!(fill(&budget, None, MIB, Use::Response).len(), 4);
        drop(replays);
        assert_eq!(fill(&budget, None, MIB, Use::Response).len(), 8);
    }

    #[test]
    fn no_client_holds_more_than_a_quarter() {
        let budget = budget(64 * MIB);
        let greedy = client(1);
        let held = [
            fill(&budget, Some(&greedy), SMALL_BYTES_MAX, Use::Request),
            fill(&budget, Some(&greedy), MIB, Use::Response),
            fill(&budget, Some(&greedy), 2 * SMALL_BYTES_MAX, Use::Request),
        ];
        let held: usize = held.iter().flatten().map(Share::bytes).sum();
        assert_eq!((held, budget.used()), (16 * MIB, 16 * MIB));
        // Four in the same bucket would be bad luck of one in many millions.
        let others = (2..=4).map(|last| fill(&budget, Some(&client(last)), MIB, Use::Request).len());
        assert!(others.sum::<usize>() >= 14, "somebody else gets a quarter of its own");
    }

    #[test]
    fn a_share_grows_from_small_to_large_and_back_to_nothing() {
        let budget = budget(MIB);
        let mut share = budget.share(Some(&client(1)));
        for bytes in [100, SMALL_BYTES_MAX, SMALL_BYTES_MAX, 10, 100_000] {
            share.hold(bytes, Use::Request).unwrap();
        }
        assert_eq!((share.small, share.large), (SMALL_BYTES_MAX, 100_000 - SMALL_BYTES_MAX));
        share.keep(200_000);
        assert_eq!(share.hold(MIB, Use::Request), Err(Full));
        assert_eq!(budget.used(), 100_000, "a refusal changes nothing");
        let bytes = share.around(vec![7; 100_000]);
        let part = bytes.slice(5..6);
        drop(bytes);
        assert_eq!((budget.used(), &part[..]), (100_000, &[7][..]), "a part keeps the whole");
        drop(part);
        let mut share = budget.share(Some(&client(1)));
        share.hold(100_000, Use::Request).unwrap();
        share.keep(7);
        assert_eq!((share.small, share.large, budget.used()), (0, 7, 7));
        drop(share);
        assert_eq!(budget.used(), 0);
        assert!(
            budget.small.by_client.iter().chain(&budget.large.by_client).all(|held| held.load(Ordering::Relaxed) == 0)
        );
    }

    #[test]
    fn many_threads_at_the_limit_neither_pass_it_nor_lose_count() {
        let budget = budget(64 * MIB);
        std::thread::scope(|scope| {
            for number in 0..8 {
                let budget = &budget;
                scope.spawn(move || {
                    for round in 0..2_000 {
                        let mut share = budget.share(Some(&client(number)));
                        let _ = share.hold((round % 64) * 100_000, Use::Replay);
                        assert!(budget.large.used.load(Ordering::Relaxed) < 2 * 64 * MIB);
                    }
                });
            }
        });
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn no_limit_overflows() {
        let budget = budget(usize::MAX);
        let mut share = budget.share(None);
        assert_eq!(share.hold(usize::MAX, Use::Request), Err(Full));
        share.hold(MIB, Use::Request).unwrap();
    }
}
