//! The lapse sweep: attempts whose lease has ended become `unknown`, or `ready` where their own policy says so.
//!
//! A retry notices a lapse as well, but nobody may come back. The sweep makes sure that a crash is noticed within one
//! interval, and that the record gets reconciled. It reads the due index only: finished records cost it nothing.

use std::time::Duration;

use hapax_core::clock::Now;
use hapax_core::engine::{Engine, Tokens};
use hapax_core::limits::PAGE_ENTRIES_MAX;
use hapax_core::record::State;
use hapax_core::store::{Entry, Seen, Store, StoreError};
use hapax_core::transition::{Answer, Event};
use tokio_util::sync::CancellationToken;

use crate::sweep::{self, Left, Pace, SWAPS_AT_ONCE, Walk};
use crate::{log, observe};

/// Records written per sweep: a node that died with more in flight is worked off in several.
const LIMIT: u32 = 1_000;

/// The pause where there is more.
const BETWEEN: Duration = Duration::from_millis(20);

/// What a sweep came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Attempts that are known to have lapsed now.
    pub lapsed: u32,
    /// What is left.
    pub left: Left,
}

/// Notices up to `limit` lapsed leases.
///
/// # Errors
/// If the store fails. What was noticed before stays so.
pub async fn run_once<S: Store, T: Tokens>(engine: &Engine<S, T>, limit: u32) -> Result<Report, StoreError> {
    engine.mark_swept();
    let mut report = Report::default();
    let mut walk = Walk::due(engine.store(), &[State::Running], limit.min(PAGE_ENTRIES_MAX));
    while let Some(page) = walk.page().await? {
        report.left.damaged.extend(page.damaged);
        let lapses = page.entries.into_iter().map(|entry| lapse(engine, entry, page.now)).collect();
        let lapsed = sweep::at_once(lapses, SWAPS_AT_ONCE).await?;
        report.lapsed += lapsed.into_iter().map(u32::from).sum::<u32>();
        if report.lapsed >= limit {
            report.left.more = true;
            break;
        }
    }
    Ok(report)
}

/// Whether this sweep was the one that noticed.
async fn lapse<S: Store, T: Tokens>(engine: &Engine<S, T>, entry: Entry, now: Now) -> Result<bool, StoreError> {
    let Entry { address, stored } = entry;
    let seen = Seen { stored: Some(stored), now };
    hapax_core::failpoint!(async "lapse-sweep");
    let Some(reply) = sweep::unless_store_failed(engine.apply(&address, &Event::Lapse, Some(seen)).await)? else {
        return Ok(false);
    };
    let lapsed = matches!(reply.answer, Answer::Undecided | Answer::Done);
    if lapsed {
        observe::lapsed();
        let state = reply.record().map(|record| record.state.name());
        tracing::warn!(target: log::RECORD, id = %address.id(), state, "a lease has lapsed: its attempt died, or lost its store");
    }
    Ok(lapsed)
}

/// Sweeps every `every` until the token is cancelled.
pub async fn run<S: Store, T: Tokens>(engine: &Engine<S, T>, every: Duration, ending: &CancellationToken) {
    let pace = Pace { every, between: BETWEEN.min(every) };
    sweep::repeat("lapse", pace, ending, || async { Ok(run_once(engine, LIMIT).await?.left) }).await;
}
