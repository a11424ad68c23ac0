//! The reference store: records in memory, for tests and for reading how little a store has to know.
//!
//! Nothing survives the process. Its time is a [`StoreTime`] over whatever [`Clock`] it is given.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::address::{Address, Id};
use crate::clock::{Clock, Now, StoreTime, Timestamp};
use crate::journal::{Journal, Note, NoteScan, Noted};
use crate::limits::{PAGE_BYTES_MAX, PAGE_ENTRIES_MAX, REAP_MAX};
use crate::record::{Body, Record, Stored, Version};
use crate::store::{Cursor, Durability, Entry, ErrorKind, Health, Page, Scan, Seen, Store, StoreError, Swap};

/// A store in memory. Clones share it.
///
/// ```
/// # #[cfg(feature = "system-clock")] {
/// let store = hapax_core::memory::Memory::new();
/// assert_eq!(store.count(), 0);
/// # }
/// ```
#[derive(Clone)]
pub struct Memory {
    clock: Arc<dyn Clock>,
    shelf: Arc<Mutex<Shelf>>,
}

struct Shelf {
    time: StoreTime,
    /// Where each id stands in the order of first writing.
    places: HashMap<Id, u64>,
    entries: BTreeMap<u64, Entry>,
    next_place: u64,
    notes: Vec<Noted>,
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Memory {{ records: {} }}", self.shelf().entries.len())
    }
}

impl Memory {
    /// An empty store with the clock of the host.
    #[cfg(feature = "system-clock")]
    #[must_use]
    pub fn new() -> Self {
        Self::with_clock(crate::clock::SystemClock)
    }

    /// An empty store with that clock.
    pub fn with_clock(clock: impl Clock + 'static) -> Self {
        let time = StoreTime::start(clock.read(), None, 0);
        let shelf = Shelf { time, places: HashMap::new(), entries: BTreeMap::new(), next_place: 0, notes: Vec::new() };
        Self { clock: Arc::new(clock), shelf: Arc::new(Mutex::new(shelf)) }
    }

    /// How many records there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.shelf().entries.len() as u64
    }

    /// A panic elsewhere cannot leave a half-written record: each write is one assignment.
    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(feature = "system-clock")]
impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl Shelf {
    fn seen(&self, id: &Id, now: Now) -> Seen {
        let entry = self.places.get(id).and_then(|place| self.entries.get(place));
        Seen { stored: entry.map(|entry| entry.stored.clone()), now }
    }

    fn put(&mut self, at: &Address, stored: Stored) {
        let place = *self.places.entry(*at.id()).or_insert_with(|| {
            self.next_place += 1;
            self.next_place
        });
        self.entries.insert(place, Entry { address: at.clone(), stored });
    }

    fn remove(&mut self, place: u64) {
        if let Some(entry) = self.entries.remove(&place) {
            self.places.remove(entry.address.id());
        }
    }

    fn keep(&mut self, note: &Note, now: Now) {
        let number = self.notes.len() as u64 + 1;
        self.notes.push(Noted { number, at: now.at, note: note.clone() });
    }

    /// Places in the order of the page: by due time where that is asked for, else by first writing.
    fn in_order(&self, query: &Scan) -> Vec<(u64, u64)> {
        let due_ms = |entry: &Entry| match query.due {
            Some(_) => entry.stored.due_at().map_or(0, Timestamp::as_ms),
            None => 0,
        };
        let mut order: Vec<_> = self.entries.iter().map(|(place, entry)| (due_ms(entry), *place)).collect();
        order.sort_unstable();
        order
    }
}

impl Store for Memory {
    async fn swap(&self, at: &Address, expect: Option<Version>, next: &Record) -> Result<Swap, StoreError> {
        let mut shelf = self.shelf();
        let now = shelf.time.now(self.clock.read());
        let seen = shelf.seen(at.id(), now);
        if seen.version() != expect {
            return Ok(Swap::Lost(seen));
        }
        shelf.put(at, Stored { record: next.clone(), stamped_at: now.at });
        Ok(Swap::Applied(now))
    }

    async fn get(&self, at: &Address) -> Result<Seen, StoreError> {
        let mut shelf = self.shelf();
        let now = shelf.time.now(self.clock.read());
        Ok(shelf.seen(at.id(), now))
    }

    async fn scan(&self, query: &Scan) -> Result<Page, StoreError> {
        let mut shelf = self.shelf();
        let now = shelf.time.now(self.clock.read());
        let after = query.after.as_ref().map(read_cursor).transpose()?;
        let mut page = Page { entries: Vec::new(), damaged: Vec::new(), next: None, now };
        let mut bytes = 0;
        for (due_ms, place) in shelf.in_order(query) {
            let Some(entry) = shelf.entries.get(&place).filter(|_| after.is_none_or(|after| (due_ms, place) > after))
            else {
                continue;
            };
            if !query.matches(&entry.address, &entry.stored, now) {
                continue;
            }
            bytes += size_of_entry(entry);
            page.entries.push(entry.clone());
            if page.entries.len() >= query.limit.clamp(1, PAGE_ENTRIES_MAX) as usize || bytes > PAGE_BYTES_MAX {
                page.next = Some(write_cursor(due_ms, place));
                break;
            }
        }
        Ok(page)
    }

    async fn reap(&self, limit: u32) -> Result<u32, StoreError> {
        let mut shelf = self.shelf();
        let now = shelf.time.now(self.clock.read());
        let due = |entry: &Entry| entry.stored.reap_at().filter(|at| now.has_reached(*at));
        let mut expired: Vec<_> =
            shelf.entries.iter().filter_map(|(place, entry)| Some((due(entry)?, *place))).collect();
        expired.sort_unstable();
        expired.truncate(limit.min(REAP_MAX) as usize);
        for (_, place) in &expired {
            shelf.remove(*place);
        }
        Ok(u32::try_from(expired.len()).unwrap_or(u32::MAX))
    }

    async fn health(&self) -> Result<Health, StoreError> {
        let mut shelf = self.shelf();
        shelf.time.now(self.clock.read());
        Ok(Health { durability: Durability::None, clock: shelf.time.health() })
    }
}

impl Journal for Memory {
    async fn swap_noted(
        &self,
        at: &Address,
        expect: Option<Version>,
        next: &Record,
        note: &Note,
    ) -> Result<Swap, StoreError> {
        note.check_limits()?;
        let mut shelf = self.shelf();
        let now = shelf.time.now(self.clock.read());
        let seen = shelf.seen(at.id(), now);
        if seen.version() != expect {
            return Ok(Swap::Lost(seen));
        }
        shelf.put(at, Stored { record: next.clone(), stamped_at: now.at });
        shelf.keep(note, now);
        Ok(Swap::Applied(now))
    }

    async fn note(&self, note: &Note) -> Result<Now, StoreError> {
        note.check_limits()?;
        let mut shelf = self.shelf();
        let now = shelf.time.now(self.clock.read());
        shelf.keep(note, now);
        Ok(now)
    }

    async fn notes(&self, query: &NoteScan) -> Result<Vec<Noted>, StoreError> {
        let asked = |noted: &&Noted| {
            let about = noted.note.about.as_ref().map(|about| about.id);
            query.before.is_none_or(|before| noted.number < before) && (query.about.is_none() || query.about == about)
        };
        Ok(self.shelf().notes.iter().rev().filter(asked).take(query.count() as usize).cloned().collect())
    }
}

fn size_of_entry(entry: &Entry) -> usize {
    match entry.stored.record.outcome.as_deref().map(|outcome| &outcome.body) {
        Some(Body::Kept(bytes)) => bytes.len(),
        _ => 0,
    }
}

fn write_cursor(due_ms: u64, place: u64) -> Cursor {
    Cursor::from_bytes([due_ms.to_be_bytes(), place.to_be_bytes()].concat())
}

fn read_cursor(cursor: &Cursor) -> Result<(u64, u64), StoreError> {
    let read = |range: std::ops::Range<usize>| {
        cursor.as_bytes().get(range).and_then(|bytes| bytes.try_into().ok()).map(u64::from_be_bytes)
    };
    match (cursor.as_bytes().len(), read(0..8), read(8..16)) {
        (16, Some(due_ms), Some(place)) => Ok((due_ms, place)),
        _ => {
            Err(StoreError::new("scan", ErrorKind::Invalid, "the cursor is not one of this store; start again without"))
        }
    }
}
