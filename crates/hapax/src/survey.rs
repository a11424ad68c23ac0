//! How many records wait for somebody to say what became of them, and for how long: for gauges and alerts.
//!
//! It looks and changes nothing. Every node counts the same records, so a dashboard takes the largest number, not the sum.

use std::time::Duration;

use hapax_core::address::Address;
use hapax_core::limits::PAGE_ENTRIES_MAX;
use hapax_core::record::State;
use hapax_core::store::{Store, StoreError};
use tokio_util::sync::CancellationToken;

use crate::observe;
use crate::sweep::{self, Left, Pace, Walk};

/// Records counted at most. Where there are more, the number is this one, and the alert is the same.
const COUNTED_MAX: u64 = 10_000;

/// Records that are told about at most where somebody wants to know whose they are: twice what one caller may have by default.
const TOLD_MAX: u64 = 100_000;

/// What waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// Records that are unknown.
    pub unknown: u64,
    /// Records that are dead: a person decides.
    pub dead: u64,
    /// For how long the oldest unknown one has been in doubt; 0 while the store does not trust its clock.
    pub oldest_unknown_ms: u64,
}

/// Counts what waits, up to 10,000 records.
///
/// # Errors
/// If the store fails.
pub async fn run_once<S: Store>(store: &S) -> Result<Waiting, StoreError> {
    count(store, COUNTED_MAX, |_| {}).await
}

/// The same, and tells whose each of them is. Looks at up to 100,000 records for it; the gauges stay at 10,000.
///
/// # Errors
/// If the store fails. What was told by then is a part of the whole.
pub async fn run_once_telling<S: Store>(store: &S, tell: impl FnMut(&Address)) -> Result<Waiting, StoreError> {
    count(store, TOLD_MAX, tell).await
}

async fn count<S: Store>(store: &S, most: u64, mut tell: impl FnMut(&Address)) -> Result<Waiting, StoreError> {
    let (mut waiting, mut trusted) = (Waiting::default(), true);
    let mut walk = Walk::all(store, &[State::Unknown, State::Dead], PAGE_ENTRIES_MAX);
    while let Some(page) = walk.page().await? {
        trusted &= !page.now.paused;
        for entry in &page.entries {
            tell(&entry.address);
            if entry.stored.record.state == State::Dead {
                waiting.dead += 1;
                continue;
            }
            waiting.unknown += 1;
            let since = entry.stored.doubted_since().unwrap_or(entry.stored.stamped_at);
            waiting.oldest_unknown_ms = waiting.oldest_unknown_ms.max(since.ms_until(page.now.at));
        }
        if waiting.unknown + waiting.dead >= most {
            break;
        }
    }
    if !trusted {
        waiting.oldest_unknown_ms = 0;
    }
    waiting.unknown = waiting.unknown.min(COUNTED_MAX);
    waiting.dead = waiting.dead.min(COUNTED_MAX);
    observe::waiting(waiting.unknown, waiting.dead, trusted.then_some(waiting.oldest_unknown_ms));
    Ok(waiting)
}

/// Counts every `every` until the token is cancelled.
pub async fn run<S: Store>(store: &S, every: Duration, ending: &CancellationToken) {
    let pace = Pace { every, between: Duration::from_millis(100).min(every) };
    let count = || async { run_once(store).await.map(|_| Left::default()) };
    sweep::repeat("survey", pace, ending, count).await;
}
