//! How many attempts are in flight, in all and for one client; asked before a key is claimed.
//!
//! An attempt goes on when its client hangs up, so a limit on connections does not limit attempts. A place is taken before
//! the claim and held until the end of the attempt is recorded; whoever gets none claims nothing.
//!
//! Clients are counted without a lock and without a list of them: each has a counter in either of two rows, chosen by a
//! hash with a key of this process, and what it holds is the smaller of the two. A client is only taken for busier than it
//! is where others share both of its counters, and nobody outside can choose them.

#![expect(clippy::disallowed_types, reason = "nothing that is stored depends on it, and nobody outside may know it")]

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::http::client::Client;
use crate::http::refusal::{Problem, Refusal};

/// How many attempts may be in flight unless it is said otherwise: as many as the server has connections by default.
pub(crate) const ATTEMPTS_MAX: usize = 10_000;

/// How many of them for one client: a quarter is always left to others.
pub(crate) const ATTEMPTS_PER_CLIENT_MAX: usize = ATTEMPTS_MAX / 4 * 3;

/// Counters in a row: two clients share both of theirs once in many millions.
const COUNTERS: usize = 4096;

/// How soon to come back: most attempts end within a second.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// A limit that is reached is logged at most this often.
const WARN_EVERY_SECS: u64 = 60;

/// Counts attempts.
pub(crate) struct Attempts {
    running: AtomicUsize,
    rows: [Box<[AtomicU32]>; 2],
    hasher: RandomState,
    begun: Instant,
    /// When a warning may be logged again, in seconds since `begun`.
    quiet_until: AtomicU64,
}

impl Default for Attempts {
    fn default() -> Self {
        let row = || std::iter::repeat_with(AtomicU32::default).take(COUNTERS).collect();
        Self {
            running: AtomicUsize::new(0),
            rows: [row(), row()],
            hasher: RandomState::new(),
            begun: Instant::now(),
            quiet_until: AtomicU64::new(0),
        }
    }
}

/// The place of one attempt, free again when it is dropped.
pub(crate) struct Place {
    attempts: Arc<Attempts>,
    counters: Option<[usize; 2]>,
}

/// Why there is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// For nobody.
    All,
    /// For this client.
    Client(Client),
}

impl Attempts {
    /// Takes a place, if fewer than `max` attempts run, and fewer than `client_max` for that client.
    pub(crate) fn take(self: &Arc<Self>, client: Option<Client>, max: usize, client_max: usize) -> Result<Place, Full> {
        // Given back by its drop, whatever is found.
        let place = Place { attempts: Arc::clone(self), counters: client.map(|client| self.counters(client)) };
        let running = self.running.fetch_add(1, Ordering::Relaxed);
        let mine = place.counters.map_or(0, |counters| self.add(counters));
        match client {
            _ if running >= max => Err(Full::All),
            Some(client) if mine >= client_max => Err(Full::Client(client)),
            _ => Ok(place),
        }
        .inspect_err(|full| self.warn(*full, max, client_max))
    }

    /// Which counters a client has.
    fn counters(&self, client: Client) -> [usize; 2] {
        let hash = self.hasher.hash_one(client);
        [hash as usize % COUNTERS, (hash >> 32) as usize % COUNTERS]
    }

    /// Counts one more; returns how many there were before.
    fn add(&self, counters: [usize; 2]) -> usize {
        let [a, b] = [0, 1].map(|row| self.rows[row][counters[row]].fetch_add(1, Ordering::Relaxed));
        a.min(b) as usize
    }

    /// Tells the operator, but not once for each request of a flood.
    fn warn(&self, full: Full, max: usize, client_max: usize) {
        let now = self.begun.elapsed().as_secs();
        let quiet_until = self.quiet_until.load(Ordering::Relaxed);
        let next = now + WARN_EVERY_SECS;
        if now < quiet_until
            || self.quiet_until.compare_exchange(quiet_until, next, Ordering::Relaxed, Ordering::Relaxed).is_err()
        {
            return;
        }
        match full {
            Full::All => tracing::warn!(
                max,
                "as many attempts are in flight as are allowed, and new ones are refused; find out why the service is \
                 slow, or raise server.attempts_max"
            ),
            Full::Client(client) => tracing::warn!(
                %client,
                max = client_max,
                "one client has as many attempts in flight as are allowed to one, and its new ones are refused; if it is a \
                 proxy with many callers behind it, add it to server.trusted_peers"
            ),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.attempts.running.fetch_sub(1, Ordering::Relaxed);
        if let Some(counters) = self.counters {
            for (row, counter) in self.attempts.rows.iter().zip(counters) {
                row[counter].fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
}

impl Full {
    /// What the client is told.
    pub(crate) fn refusal(self) -> Refusal {
        let detail = match self {
            Self::All => "too many requests are being carried out; nothing was run; send the same request again",
            Self::Client(_) => {
                "too many requests of this client are being carried out; nothing was run; send the same request again"
            }
        };
        Refusal::new(Problem::TooManyInFlight, detail).with_retry_after(RETRY_AFTER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(last: u8) -> Client {
        Client::new([192, 0, 2, last].into())
    }

    #[test]
    fn places_are_limited_in_all_and_for_each_client_and_come_back() {
        let attempts = Arc::new(Attempts::default());
        let take = |of: Option<u8>| attempts.take(of.map(client), 5, 2);
        let mut held: Vec<Place> = [1, 1, 2].into_iter().map(|of| take(Some(of)).ok().unwrap()).collect();
        assert_eq!(take(Some(1)).err(), Some(Full::Client(client(1))));
        held.push(take(None).ok().unwrap());
        held.push(take(None).ok().unwrap());
        assert_eq!(take(Some(2)).err(), Some(Full::All));
        assert_eq!(take(None).err(), Some(Full::All));
        held.remove(0);
        held.push(take(Some(1)).ok().unwrap());
        assert_eq!(take(Some(1)).err(), Some(Full::All));
        drop(held);
        assert_eq!(attempts.running.load(Ordering::Relaxed), 0);
        let left = attempts.rows.iter().flat_map(|row| row.iter()).filter(|count| count.load(Ordering::Relaxed) > 0);
        assert_eq!(left.count(), 0);
    }

    #[test]
    fn a_client_without_an_address_is_limited_by_the_whole_only() {
        let attempts = Arc::new(Attempts::default());
        let held: Vec<Place> = (0..5).map(|_| attempts.take(None, 5, 0).ok().unwrap()).collect();
        assert_eq!(attempts.take(None, 5, 0).err(), Some(Full::All));
        drop(held);
    }
}
