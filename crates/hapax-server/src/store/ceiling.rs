//! The ceiling of the store: rows, bytes, free disk. At it no new keys are admitted, and known ones go on.
//!
//! Everything a stranger can make grow has an end. What must never happen at that end is that a running attempt cannot
//! record its answer, so the ceiling is below what the disk holds, and only new keys are refused: replays, completions,
//! renewals and verdicts go on. Nothing is deleted to make room but what has expired.
//!
//! The store is measured beside requests, and a request only looks at what was found last: between two measures it may grow
//! by what is written in that time. `store.free_disk_min` leaves room for that.
//!
//! Whoever says how full the store is has it from here: the metrics, `/v1/status`, and `hapax status` on the store itself. They
//! count what callers have, without hapax's own.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use hapax::remembered;
use hapax::sweep::{self, Left, Pace};
use hapax_core::store::{ErrorKind, StoreError};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::config;
use crate::config::units::about_size;
use crate::store::{AnyStore, Room};
use crate::telemetry;

/// How often a file is measured: a few reads of what the system has at hand. In that time an attacker writes less than
/// `store.free_disk_min`.
const FILE_EVERY: Duration = Duration::from_secs(1);

/// How often a server is asked, where something is limited.
const SERVER_EVERY: Duration = Duration::from_secs(5);

/// How often anybody is asked where nothing is limited: for the metrics only.
const UNLIMITED_EVERY: Duration = Duration::from_secs(30);

/// Rows are counted one by one at most so often.
const COUNT_EVERY: Duration = Duration::from_secs(10);

/// Rows are counted up to so many times the ceiling: beyond it nobody needs to know exactly, and it is not worth the reading.
const COUNT_FACTOR: u64 = 2;

/// What hapax itself may have the store remember: how addresses are made, and a fence.
const OWN: [&str; 2] = ["addresses", "fence"];

/// On a small disk, no more than this part of it is left free.
const FREE_PART: u64 = 10;

/// What was found last, and whether the store has room for new keys.
#[derive(Debug)]
pub(crate) struct Ceiling {
    rows_max: Option<u64>,
    bytes_max: Option<u64>,
    free_disk_min: Option<u64>,
    full: ArcSwapOption<String>,
    counted: Mutex<Option<Counted>>,
}

/// How full the store is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Found {
    /// What it takes: rows are what callers have, and there are never more, as far as the store itself knows.
    pub(crate) room: Room,
    /// Why there is no room for new keys, if so: the cause and what an operator does about it.
    pub(crate) full: Option<String>,
}

/// Rows that were counted one by one.
#[derive(Clone, Copy, Debug)]
struct Counted {
    rows: u64,
    /// What the store said then, cheaply: never fewer.
    about: u64,
    at: Instant,
}

impl Ceiling {
    /// Nothing is limited: for whoever does not know what a node is configured with.
    pub(crate) fn unlimited() -> Self {
        let (full, counted) = (ArcSwapOption::empty(), Mutex::new(None));
        Self { rows_max: None, bytes_max: None, free_disk_min: None, full, counted }
    }

    /// Nothing is known yet: there is room.
    pub(crate) fn new(config: &config::Store) -> Self {
        Self {
            rows_max: config.rows_max.map(|rows| rows.get().into()),
            bytes_max: config.bytes_max.map(|bytes| bytes as u64),
            free_disk_min: config.free_disk_min.map(|bytes| bytes as u64),
            ..Self::unlimited()
        }
    }

    /// Whether there is room, for whoever asks with each request.
    pub(crate) fn is_full(&self) -> bool {
        self.full.load().is_some()
    }

    /// Measures the store, and decides. Requests, metrics and the log follow from it.
    pub(crate) async fn measure(&self, store: &AnyStore) -> Result<Found, StoreError> {
        let mut room = store.room().await?;
        if let Some(about) = room.rows {
            room.rows = Some(self.rows(store, about).await?);
        }
        Ok(self.found(store.name(), room))
    }

    /// The same for whoever only tells: where the store cannot be measured, what was decided last.
    pub(crate) async fn measure_or_last(&self, store: &AnyStore) -> Found {
        let last = |_| Found { room: Room::default(), full: self.full.load().as_deref().cloned() };
        self.measure(store).await.unwrap_or_else(last)
    }

    /// How many records callers have: no more than that. What the store says cheaply is enough where it is below the ceiling, and
    /// so is what was counted last with all that was added since; counting reads an index from end to end.
    async fn rows(&self, store: &AnyStore, about: u64) -> Result<u64, StoreError> {
        let own = own_count(store).await?;
        let about = about.saturating_sub(own);
        let Some(most) = self.rows_max else { return Ok(about) };
        let counted = *self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let at_most = counted.map_or(about, |counted| counted.rows + about.saturating_sub(counted.about));
        let is_recent = counted.is_some_and(|counted| counted.at.elapsed() < COUNT_EVERY);
        if at_most.min(about) < most || is_recent {
            return Ok(at_most.min(about));
        }
        let enough = most.saturating_mul(COUNT_FACTOR);
        let Some(rows) = store.exact_count(enough.saturating_add(own)).await? else { return Ok(about) };
        // Where counting stopped, what the store says cheaply is not too few.
        let rows = Some(rows.saturating_sub(own)).filter(|rows| *rows < enough).unwrap_or(about);
        let counted = Counted { rows, about, at: Instant::now() };
        *self.counted.lock().unwrap_or_else(PoisonError::into_inner) = Some(counted);
        Ok(rows)
    }

    /// Tells whoever watches, and the log where it changes.
    fn found(&self, store: &'static str, room: Room) -> Found {
        let full = self.cause(&room).map(|cause| format!("new keys are refused, known ones go on: {cause}"));
        telemetry::set_room(store, [room.rows, room.bytes, room.disk.map(|disk| disk.free)], full.is_some());
        match (&full, self.is_full()) {
            (Some(cause), false) => tracing::error!("{cause}"),
            (None, true) => tracing::info!("the store has room again: new keys are admitted"),
            _ => {}
        }
        self.full.store(full.clone().map(Arc::new));
        Found { room, full }
    }

    fn cause(&self, room: &Room) -> Option<String> {
        if let (Some(most), Some(rows)) = (self.rows_max, room.rows)
            && rows >= most
        {
            return Some(format!("the store holds {rows} records, and `store.rows_max` is {most}; {RAISE}"));
        }
        if let (Some(most), Some(bytes)) = (self.bytes_max, room.bytes)
            && bytes >= most
        {
            let (bytes, most) = (about_size(bytes), about_size(most));
            return Some(format!("the store takes {bytes}, and `store.bytes_max` is {most}; {RAISE}"));
        }
        let (least, disk) = (self.free_disk_min?, room.disk?);
        let least = least.min(disk.size / FREE_PART);
        (disk.free < least).then(|| {
            let (free, least) = (about_size(disk.free), about_size(least));
            format!(
                "the store's disk has {free} left, and {least} are kept free (`store.free_disk_min`); free some of it"
            )
        })
    }

    /// How often it is worth measuring.
    fn pace(&self, store: &AnyStore) -> Pace {
        let is_limited = self.rows_max.is_some() || self.bytes_max.is_some();
        let every = match store {
            AnyStore::Sqlite(_) | AnyStore::Memory(_) => FILE_EVERY,
            AnyStore::Postgres(_) if is_limited => SERVER_EVERY,
            AnyStore::Postgres(_) => UNLIMITED_EVERY,
        };
        Pace { every, between: every }
    }
}

const RAISE: &str = "raise it, or find out with `hapax status` and `hapax keys list` what fills the store";

/// How many records of the store are hapax's own.
async fn own_count(store: &AnyStore) -> Result<u64, StoreError> {
    let mut own = 0;
    for name in OWN {
        own += match remembered::recall(store, name).await {
            Ok(recalled) => u64::from(recalled.text.is_some()),
            // One that cannot be read is there as well.
            Err(error) if error.kind == ErrorKind::Damaged => 1,
            Err(error) => return Err(error),
        };
    }
    Ok(own)
}

/// Measures until the token is cancelled.
pub(crate) async fn watch(ceiling: &Ceiling, store: &AnyStore, ending: &CancellationToken) {
    let measure = || async { ceiling.measure(store).await.map(|_| Left::default()) };
    sweep::repeat("room", ceiling.pace(store), ending, measure).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Disk;

    fn ceiling(change: impl FnOnce(&mut config::Store)) -> Ceiling {
        let mut store = config::Store::default();
        change(&mut store);
        Ceiling::new(&store)
    }

    fn room(rows: u64, bytes: u64, free: u64, size: u64) -> Room {
        Room { rows: Some(rows), bytes: Some(bytes), disk: Some(Disk { free, size }) }
    }

    #[test]
    fn each_limit_has_its_cause_and_next_step() {
        let ceiling = ceiling(|store| {
            store.rows_max = std::num::NonZeroU32::new(10);
            store.bytes_max = Some(1_000);
            store.free_disk_min = Some(100);
        });
        let cause = |room: &Room| ceiling.cause(room).unwrap_or_default();
        assert_eq!(cause(&room(9, 999, 100, 100_000)), "");
        assert!(
            cause(&room(10, 0, 100, 100_000)).starts_with("the store holds 10 records, and `store.rows_max` is 10;")
        );
        assert!(cause(&room(9, 1_000, 100, 100_000)).contains("`store.bytes_max`"));
        assert!(cause(&room(9, 999, 99, 100_000)).contains("`store.free_disk_min`"));
    }

    #[test]
    fn a_small_disk_need_not_be_empty() {
        let ceiling = ceiling(|_| {});
        let mib = 1024 * 1024;
        assert_eq!(ceiling.cause(&room(0, 0, 8 * mib, 16 * mib)), None);
        assert!(ceiling.cause(&room(0, 0, mib, 16 * mib)).is_some());
        assert_eq!(ceiling.cause(&room(0, 0, 65 * mib, 1_000_000 * mib)), None);
        assert!(ceiling.cause(&room(0, 0, 63 * mib, 1_000_000 * mib)).is_some());
    }

    #[test]
    fn what_is_not_known_refuses_nothing() {
        let ceiling = ceiling(|store| {
            store.rows_max = std::num::NonZeroU32::new(1);
            store.bytes_max = Some(1);
        });
        ceiling.found("sqlite", Room::default());
        assert!(!ceiling.is_full());
    }

    #[test]
    fn it_has_room_again_when_something_has_expired() {
        let ceiling = ceiling(|store| store.rows_max = std::num::NonZeroU32::new(10));
        assert!(ceiling.found("sqlite", room(10, 0, u64::MAX, u64::MAX)).full.is_some());
        assert!(ceiling.is_full());
        ceiling.found("sqlite", room(9, 0, u64::MAX, u64::MAX));
        assert!(!ceiling.is_full());
    }
}
