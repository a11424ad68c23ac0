//! Large records that are in use: each is in memory once, however many ask for it.
//!
//! A thousand retries of one key would otherwise each read, check and hold a copy of the same megabytes. A store leaves
//! large data out of its batched reads and reads it one record at a time; whoever asks for the same version meanwhile gets
//! what is in memory already. Nothing is kept longer than somebody uses it.
//!
//! Left to a store: reading few large records at a time ([`READS_MAX`]).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::address::Id;
use crate::record::{Outcome, Record, Stored};

/// More encoded bytes than this, and a record is large: reading it costs more than another round trip.
pub const LARGE_BYTES_MIN: u32 = 64 * 1024;

/// Large records that a store reads at the same time: each takes its bytes two or three times until it is decoded.
pub const READS_MAX: usize = 2;

/// Takes back what other threads have freed of this thread's memory. To be called before a large block is allocated.
///
/// An allocator with a heap per thread hands such blocks back late: mimalloc looks for them at every hundredth allocation that
/// takes its slow path. A thread that allocates little but large blocks, to be freed by others, would let dozens of them pile
/// up, whatever any limit says. So it makes those allocations; untouched, they take some microseconds and no memory.
pub fn take_back_freed() {
    const SLOW_PATHS: usize = 100;
    const BLOCK_BYTES: usize = 256 * 1024;
    for _ in 0..SLOW_PATHS {
        std::hint::black_box(Vec::<u8>::with_capacity(BLOCK_BYTES));
    }
}

/// The large records that somebody uses.
#[derive(Debug, Default)]
pub struct LargeRecords {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// By id: the record without its outcome, and the outcome for as long as somebody has it.
    records: HashMap<Id, (Stored, Weak<Outcome>)>,
    /// When so many are known, those that nobody uses any more are forgotten.
    clear_at: usize,
}

impl LargeRecords {
    /// The record as it was read before. A version is never written twice, so what has the same version is the same record.
    #[must_use]
    pub fn find(&self, id: &Id, version: &[u8]) -> Option<Stored> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let (stored, outcome) = known.records.get(id)?;
        let outcome = outcome.upgrade().filter(|_| stored.record.version.as_bytes() == version)?;
        Some(Stored { record: Record { outcome: Some(outcome), ..stored.record.clone() }, ..stored.clone() })
    }

    /// Remembers a record that was read, for as long as somebody uses its outcome. Gives it as everybody is to use it: where
    /// two have read the same version at once, the first one's is used by both.
    #[must_use]
    pub fn keep(&self, id: &Id, stored: Stored) -> Stored {
        if let Some(known) = self.find(id, stored.record.version.as_bytes()) {
            return known;
        }
        let Some(outcome) = &stored.record.outcome else { return stored };
        let without = Stored { record: Record { outcome: None, ..stored.record.clone() }, ..stored.clone() };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.records.len() >= known.clear_at {
            known.records.retain(|_, (_, outcome)| outcome.strong_count() > 0);
            known.clear_at = 2 * known.records.len() + 16;
        }
        known.records.insert(*id, (without, Arc::downgrade(outcome)));
        drop(known);
        stored
    }
}

/// Reads under way, by the version that is read: whoever wants the same joins instead of reading it again.
#[derive(Debug)]
pub struct Flights<T> {
    under_way: Mutex<HashMap<Vec<u8>, Weak<T>>>,
}

impl<T> Default for Flights<T> {
    fn default() -> Self {
        Self { under_way: Mutex::default() }
    }
}

impl<T: Default> Flights<T> {
    /// What all who read that version at the moment share. It is forgotten with the last of them.
    #[must_use]
    pub fn join(&self, version: &[u8]) -> Arc<T> {
        let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(flight) = under_way.get(version).and_then(Weak::upgrade) {
            return flight;
        }
        under_way.retain(|_, flight| flight.strong_count() > 0);
        let flight = Arc::default();
        under_way.insert(version.to_vec(), Arc::downgrade(&flight));
        flight
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;
    use crate::fingerprint::{Fingerprint, Scheme};
    use crate::record::{Body, Policy, State, Version};

    fn stored(version: u8) -> Stored {
        let fingerprint = Fingerprint { scheme: Scheme::new("1;sha256").unwrap(), digest: [9; 32] };
        let new = Record::new(Version::from_bytes([version; 16]), State::Completed, fingerprint, Policy::default());
        let outcome = Some(Arc::new(Outcome { status: 201, headers: Vec::new(), body: Body::Kept(vec![version]) }));
        Stored { record: Record { outcome, ..new }, stamped_at: Timestamp::from_ms(5) }
    }

    #[test]
    fn a_record_in_use_is_found_by_its_version_and_shares_its_outcome() {
        let (large, id, read) = (LargeRecords::default(), Id::from_bytes([1; 32]), stored(1));
        assert_eq!(large.find(&id, &[1; 16]), None);
        let read = large.keep(&id, read);
        let found = large.find(&id, &[1; 16]).unwrap();
        assert_eq!(found, read);
        assert!(Arc::ptr_eq(found.record.outcome.as_ref().unwrap(), read.record.outcome.as_ref().unwrap()));
        let read_at_once = large.keep(&id, stored(1));
        assert!(Arc::ptr_eq(&found.record.outcome.clone().unwrap(), &read_at_once.record.outcome.unwrap()));
        assert_eq!(large.find(&id, &[2; 16]), None, "it was written again since");
        assert_eq!(large.find(&Id::from_bytes([2; 32]), &[1; 16]), None);
        drop((found, read));
        assert_eq!(large.find(&id, &[1; 16]), None, "nobody uses it any more");
    }

    #[test]
    fn who_reads_the_same_version_shares_a_flight_until_the_last_has_left() {
        let flights = Flights::<Mutex<u8>>::default();
        let (one, other) = (flights.join(&[1]), flights.join(&[1]));
        *one.lock().unwrap() = 7;
        assert_eq!((*other.lock().unwrap(), *flights.join(&[2]).lock().unwrap()), (7, 0));
        drop((one, other));
        assert_eq!(*flights.join(&[1]).lock().unwrap(), 0);
        assert_eq!(flights.under_way.lock().unwrap().len(), 1);
    }

    #[test]
    fn what_nobody_uses_is_forgotten() {
        let large = LargeRecords::default();
        for number in 0..10_000_u16 {
            let [high, low] = number.to_be_bytes();
            let mut id = [0; 32];
            (id[0], id[1]) = (high, low);
            drop(large.keep(&Id::from_bytes(id), stored(1)));
        }
        assert!(large.known.lock().unwrap().records.len() <= 32);
    }
}
