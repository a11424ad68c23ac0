//! How many of something are in use at one time, in all and for each client.
//!
//! Clients are counted without a lock and without a list of them: each has a counter in either of two rows, chosen by a
//! hash with a key of this process, and what it holds is the smaller of the two. A client is only taken for busier than it
//! is where others share both of its counters, and nobody outside can choose them.

#![expect(clippy::disallowed_types, reason = "nothing that is stored depends on it, and nobody outside may know it")]

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use tokio::time::Instant;

use crate::http::client::Client;

/// Counters in a row: two clients share both of theirs once in many millions.
const COUNTERS: usize = 4096;

/// The last part of all is left to clients that have few, so that some that have many do not shut out everybody else.
const LAST_PART: usize = 8;
/// Who has no more than this part of all has few; one is always few.
const FEW_PART: usize = 128;

/// A limit that is reached is logged at most this often.
const WARN_EVERY_SECS: u64 = 60;

/// Counts what is in use.
pub struct Occupancy {
    taken: AtomicUsize,
    rows: [Box<[AtomicU32]>; 2],
    hasher: RandomState,
    begun: Instant,
    /// When a warning may be logged again, in seconds since `begun`.
    quiet_until: AtomicU64,
}

impl Default for Occupancy {
    fn default() -> Self {
        let row = || std::iter::repeat_with(AtomicU32::default).take(COUNTERS).collect();
        Self {
            taken: AtomicUsize::new(0),
            rows: [row(), row()],
            hasher: RandomState::new(),
            begun: Instant::now(),
            quiet_until: AtomicU64::new(0),
        }
    }
}

impl fmt::Debug for Occupancy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Occupancy").field("taken", &self.taken).finish_non_exhaustive()
    }
}

/// One that is in use, until this is dropped.
#[derive(Debug)]
pub struct Occupied {
    all: Arc<Occupancy>,
    counters: Option<[usize; 2]>,
}

/// Why there is none left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// For nobody.
    All,
    /// For this client.
    Client(Client),
}

impl Occupancy {
    /// Takes one, if fewer than `max` are in use, and fewer than `client_max` by that client; of the last eighth, if that
    /// client has few. Without a client, only the whole is limited.
    pub fn take(self: &Arc<Self>, client: Option<Client>, max: usize, client_max: usize) -> Result<Occupied, Full> {
        // Given back by its drop, whatever is found.
        let occupied = Occupied { all: Arc::clone(self), counters: client.map(|client| self.counters(client)) };
        let taken = self.taken.fetch_add(1, Ordering::Relaxed);
        let mine = occupied.counters.map_or(0, |counters| self.add(counters));
        match client {
            _ if taken >= max => Err(Full::All),
            Some(_) if taken >= max - max / LAST_PART && mine >= (max / FEW_PART).max(1) => Err(Full::All),
            Some(client) if mine >= client_max => Err(Full::Client(client)),
            _ => Ok(occupied),
        }
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

    /// Whether the operator may be told that none is left: not once for each request of a flood.
    pub fn may_warn(&self) -> bool {
        let now = self.begun.elapsed().as_secs();
        let quiet_until = self.quiet_until.load(Ordering::Relaxed);
        let next = now + WARN_EVERY_SECS;
        now >= quiet_until
            && self.quiet_until.compare_exchange(quiet_until, next, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

impl Drop for Occupied {
    fn drop(&mut self) {
        self.all.taken.fetch_sub(1, Ordering::Relaxed);
        if let Some(counters) = self.counters {
            for (row, counter) in self.all.rows.iter().zip(counters) {
                row[counter].fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(last: u8) -> Client {
        Client::new([192, 0, 2, last].into())
    }

    #[test]
    fn it_is_limited_in_all_and_for_each_client_and_comes_back() {
        let places = Arc::new(Occupancy::default());
        let take = |of: Option<u8>| places.take(of.map(client), 5, 2);
        let mut held: Vec<Occupied> = [1, 1, 2].into_iter().map(|of| take(Some(of)).ok().unwrap()).collect();
        assert_eq!(take(Some(1)).err(), Some(Full::Client(client(1))));
        held.push(take(None).ok().unwrap());
        held.push(take(None).ok().unwrap());
        assert_eq!(take(Some(2)).err(), Some(Full::All));
        assert_eq!(take(None).err(), Some(Full::All));
        held.remove(0);
        held.push(take(Some(1)).ok().unwrap());
        assert_eq!(take(Some(1)).err(), Some(Full::All));
        drop(held);
        assert_eq!(places.taken.load(Ordering::Relaxed), 0);
        let left = places.rows.iter().flat_map(|row| row.iter()).filter(|count| count.load(Ordering::Relaxed) > 0);
        assert_eq!(left.count(), 0);
    }

    #[test]
    fn the_last_part_is_for_clients_that_have_few() {
        let places = Arc::new(Occupancy::default());
        let take = |of: u8| places.take(Some(client(of)), 16, 12);
        let held: Vec<Occupied> = [[1; 7], [2; 7]].concat().into_iter().map(|of| take(of).ok().unwrap()).collect();
        assert_eq!(take(1).err(), Some(Full::All), "it has many already");
        let _third = take(3).ok().unwrap();
        assert_eq!(take(3).err(), Some(Full::All));
        let _fourth = take(4).ok().unwrap();
        assert_eq!(take(5).err(), Some(Full::All), "all are in use");
        drop(held);
        assert!(take(5).is_ok());
    }

    #[test]
    fn a_client_without_an_address_is_limited_by_the_whole_only() {
        let places = Arc::new(Occupancy::default());
        let held: Vec<Occupied> = (0..5).map(|_| places.take(None, 5, 0).ok().unwrap()).collect();
        assert_eq!(places.take(None, 5, 0).err(), Some(Full::All));
        drop(held);
    }
}
