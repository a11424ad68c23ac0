//! How things stand: the store's health, what is unfinished, and what of it needs a person.

use std::collections::HashSet;

use hapax::fence::{self, Fence};
use hapax_core::address::Id;
use hapax_core::clock::{Now, Timestamp};
use hapax_core::limits::PAGE_ENTRIES_MAX;
use hapax_core::record::State;
use hapax_core::store::{Cursor, Entry, ErrorKind, Scan, Store as _};

use super::DeskError;
use super::view::{CountsView, FenceView, StatusView, StoreView};
use crate::store::AnyStore;
use crate::store::ceiling::{Ceiling, Found};
use crate::store::durability;
use crate::timestamp;

/// Counting stops here: more than this many pages of records in one state say the same.
const PAGES_MAX: u32 = 50;

/// An unknown record that is older needs a person, as the alert `HapaxUnknownOutcomes` says too.
const UNKNOWN_AGE_MS_MAX: u64 = 5 * 60 * 1000;

/// A lease that ended this long ago was not noticed: no node sweeps.
const UNSWEPT_MS_MAX: u64 = 60 * 1000;

/// What was counted.
#[derive(Default)]
struct Counted {
    counts: CountsView,
    oldest_unknown: Option<Timestamp>,
    /// Running records whose lease ended long ago.
    unswept: u64,
    /// By id, as far as it can be read.
    damaged: HashSet<Option<Id>>,
    now: Now,
}

/// How things stand.
pub(super) async fn status(
    store: &AnyStore,
    ceiling: &Ceiling,
    without_probe: Option<usize>,
) -> Result<StatusView, DeskError> {
    let mut problems = Vec::new();
    let (durability, clock_trusted) = match store.health().await {
        Ok(health) => {
            if health.clock.paused {
                problems
                    .push("the store does not trust its clock: nothing lapses or expires until it is steady".into());
            }
            (Some(health.durability), !health.clock.paused)
        }
        // Looked at as far as it goes: that is when people look.
        Err(error) if error.kind == ErrorKind::Unsuitable => {
            problems.push(error.message);
            (None, false)
        }
        Err(error) => return Err(error.into()),
    };
    let mut counted = count(store).await?;
    problems.extend(counted.problems());
    // Where it cannot be said how large it is, the rest can.
    let Found { room, full } = ceiling.measure_or_last(store).await;
    counted.counts.about_all = room.rows;
    problems.extend(full);
    let fence = fence::standing(store).await?;
    problems.extend(fence.as_ref().map(|fence| fenced(fence, without_probe)));
    let fence = fence.map(|fence| FenceView {
        lost_since: timestamp::text(fence.lost_since),
        restored_at: timestamp::text(fence.restored_at),
        until: timestamp::text(fence.until),
        routes_without_probe: without_probe,
    });
    Ok(StatusView {
        healthy: problems.is_empty(),
        problems,
        store: StoreView {
            kind: store.name().to_owned(),
            durability: durability.map_or("unknown", durability::level).to_owned(),
            warning: durability.and_then(|durability| durability::warning(store, durability)),
            clock_trusted,
            bytes: room.bytes,
            disk_free_bytes: room.disk.map(|disk| disk.free),
        },
        counts: counted.counts,
        oldest_unknown_since: counted.oldest_unknown.map(timestamp::text),
        fence,
        now: timestamp::text(counted.now.at),
    })
}

/// While it stands, clients with new keys are refused: somebody should know, and end it as soon as it is safe.
fn fenced(fence: &Fence, without_probe: Option<usize>) -> String {
    let (restored_at, until) = (timestamp::text(fence.restored_at), timestamp::text(fence.until));
    let people = match without_probe {
        None => "on routes without a probe a person must decide each".to_owned(),
        Some(0) => "a probe decides each, for every route has one".to_owned(),
        Some(1) => "on the 1 route without a probe a person must decide each".to_owned(),
        Some(count) => format!("on {count} routes without a probe a person must decide each"),
    };
    format!(
        "a fence stands since a restore: until {until} every new key that is no UUIDv7 made since {restored_at} gets 409 \
         outcome-unknown; {people}; see `hapax store recover` for what the old file has, and lift the fence when you know"
    )
}

/// State by state, and what needs a person first: however many wait for their next attempt, the dead are seen.
async fn count(store: &AnyStore) -> Result<Counted, DeskError> {
    let mut counted = Counted::default();
    for state in [State::Dead, State::Unknown, State::Running, State::Ready] {
        let mut after: Option<Cursor> = None;
        for _ in 0..PAGES_MAX {
            let query = Scan { states: vec![state], after, limit: PAGE_ENTRIES_MAX, ..Scan::default() };
            let page = store.scan(&query).await?;
            counted.now = page.now;
            page.entries.iter().for_each(|entry| counted.add(entry));
            // One that cannot be read may be found by every look.
            counted.damaged.extend(page.damaged.into_iter().map(|damaged| damaged.id));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        counted.counts.capped |= after.is_some();
    }
    Ok(counted)
}

impl Counted {
    fn add(&mut self, entry: &Entry) {
        let stored = &entry.stored;
        match stored.record.state {
            State::Ready => self.counts.ready += 1,
            State::Running => {
                self.counts.running += 1;
                let is_past = stored.due_at().is_some_and(|due_at| self.now.has_reached(due_at));
                self.counts.past_lease += u64::from(is_past);
                let ended = stored.due_at().is_some_and(|due_at| due_at.plus_ms(UNSWEPT_MS_MAX) < self.now.at);
                self.unswept += u64::from(ended);
            }
            State::Unknown => {
                self.counts.unknown += 1;
                let since = stored.doubted_since().unwrap_or(stored.stamped_at);
                self.oldest_unknown = Some(self.oldest_unknown.map_or(since, |oldest| oldest.min(since)));
            }
            State::Dead => self.counts.dead += 1,
            State::Completed | State::Expired => {}
        }
    }

    fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let CountsView { dead, unknown, .. } = self.counts;
        if dead > 0 {
            problems
                .push(format!("{dead} dead: automation gave up; see `hapax keys list --state dead` and resolve them"));
        }
        // By a clock that is not trusted nothing is old, and no lease has ended.
        let trusted = !self.now.paused;
        let oldest = self.oldest_unknown.filter(|_| trusted);
        let age_ms = oldest.map_or(0, |since| since.ms_until(self.now.at));
        if age_ms > UNKNOWN_AGE_MS_MAX {
            let minutes = age_ms / 60_000;
            problems.push(format!(
                "{unknown} unknown, the oldest for {minutes} minutes; see `hapax keys list --state unknown` and resolve them"
            ));
        }
        if self.unswept > 0 && trusted {
            let unswept = self.unswept;
            problems
                .push(format!("{unswept} running with a lease that ended over a minute ago: no node looks after them"));
        }
        if !self.damaged.is_empty() {
            let damaged = self.damaged.len();
            problems.push(format!(
                "{damaged} cannot be read: what is stored was altered or damaged; see the runbook, HapaxRecordDamaged"
            ));
        }
        problems
    }
}
