//! Keys that this process has met lately: for those a look at the file, on the caller's own thread, is likely to find the
//! answer, and no thread has to be roused for it.
//!
//! Nothing depends on it but speed. A key that it forgot, or never met, goes to the writer as every new key does.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, TryLockError};

use hapax_core::address::{Address, Id};
use hapax_core::codec::DecodeError;
use hapax_core::record::Stored;
use rusqlite::Connection;

use crate::rows::{self, Found};

/// Keys remembered, half a megabyte of them. A power of two.
const SLOTS: usize = 65_536;

/// Connections for looking. More would not be used: a look takes a few microseconds.
pub(crate) const LOOKERS: usize = 2;

/// Keys met lately, and connections to look them up with.
pub(crate) struct Recent {
    /// A part of an id each; the last one that fell on a slot stays.
    slots: Box<[AtomicU64]>,
    lookers: Vec<Mutex<Connection>>,
}

impl Recent {
    pub(crate) fn new(lookers: Vec<Connection>) -> Self {
        let slots = std::iter::repeat_with(AtomicU64::default).take(SLOTS).collect();
        Self { slots, lookers: lookers.into_iter().map(Mutex::new).collect() }
    }

    /// Remembers a key.
    pub(crate) fn note(&self, id: &Id) {
        let (slot, part) = place(id);
        if let Some(slot) = self.slots.get(slot) {
            slot.store(part, Ordering::Relaxed);
        }
    }

    /// The committed record of a key met lately. `None`: ask the writer.
    pub(crate) fn look(&self, at: &Address) -> Option<Found<Result<Stored, DecodeError>>> {
        let (slot, part) = place(at.id());
        if self.slots.get(slot)?.load(Ordering::Relaxed) != part {
            return None;
        }
        for looker in &self.lookers {
            match looker.try_lock() {
                // Whatever fails here, the writer says it better.
                Ok(connection) => return rows::find_at(&connection, at).ok().flatten(),
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Poisoned(_)) => return None,
            }
        }
        None
    }
}

/// Ids are digests, so any part of them is as good as another.
fn place(id: &Id) -> (usize, u64) {
    let [a, b, rest @ ..] = id.as_bytes();
    let part = rest.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    (usize::from(u16::from_le_bytes([*a, *b])) % SLOTS, part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hapax_core::address::{AddressScheme, Key, Scope, Space};

    fn address(key: &str) -> Address {
        let (space, scope) = (Space::new("http").unwrap(), Scope::new("alice").unwrap());
        Address::new(&AddressScheme::default(), &space, &scope, &Key::new(key).unwrap())
    }

    #[test]
    fn only_keys_that_were_met_are_looked_up() {
        let recent = Recent::new(Vec::new());
        let (one, other) = (address("one"), address("other"));
        let knows = |at: &Address| recent.slots[place(at.id()).0].load(Ordering::Relaxed) == place(at.id()).1;
        assert!(!knows(&one));
        recent.note(one.id());
        assert!(knows(&one) && !knows(&other));
        assert!(recent.look(&one).is_none(), "without a connection there is nothing to look with");
    }
}
