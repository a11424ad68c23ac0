//! The reaper: what has expired is deleted, in small batches with pauses, so that requests do not feel it.
//!
//! Most records are simply deleted by the store. Two kinds need a word first: where the policy keeps a tombstone, the record
//! becomes one; and accepted work that never ran becomes an answer (408) that says so, so that whoever polls for it learns
//! of it. Running, unknown and dead records are never touched: they do not expire.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use hapax_core::clock::Now;
use hapax_core::engine::{Engine, Tokens};
use hapax_core::limits::PAGE_ENTRIES_MAX;
use hapax_core::record::{Body, Outcome, State};
use hapax_core::store::{Cursor, Entry, Page, Seen, Store, StoreError};
use hapax_core::transition::{Answer, Event};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::sweep::{self, Left, Pace, SWAPS_AT_ONCE, Walk};
use crate::{log, observe};

/// Records that a node deletes at a time: a larger batch would hold up the claims that wait behind it.
pub const LIMIT: u32 = 250;

/// Ready records looked through per sweep. There may be as many as an outage of the service leaves, and few of them need a
/// word.
const READY_MAX: u32 = 20_000;

/// The pause between batches: most of the time belongs to requests.
pub const BETWEEN: Duration = Duration::from_millis(5);

/// One cause and one next step.
const NEVER_RAN_DETAIL: &str = "the request was accepted and not started before its time was over, so nothing happened; \
                                send it again with a new key";

/// What a sweep came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Records that were deleted.
    pub reaped: u32,
    /// Records that became a tombstone.
    pub expired: u32,
    /// Accepted work that never ran, and is now answered with 408.
    pub never_ran: u32,
    /// Accepted work of which an attempt lapsed, that nobody finished before its time was over, and that is now unknown.
    pub in_doubt: u32,
    /// What is left.
    pub left: Left,
}

impl Report {
    fn last_words(&self) -> u32 {
        self.expired + self.never_ran + self.in_doubt
    }
}

/// What whoever asks for accepted work that never ran is told.
#[must_use]
pub fn never_ran() -> Arc<Outcome> {
    static NEVER_RAN: LazyLock<Arc<Outcome>> = LazyLock::new(|| {
        let body = format!(
            concat!(
                r#"{{"type":"urn:hapax:problem:never-ran","title":"The request was accepted and never ran","#,
                r#""status":408,"detail":"{detail}","#,
                r#""error":{{"type":"idempotency_error","code":"never-ran","message":"{detail}"}}}}"#,
            ),
            detail = NEVER_RAN_DETAIL
        );
        let header = |name: &str, value: &str| (name.as_bytes().to_vec(), value.as_bytes().to_vec());
        let headers = vec![header("content-type", "application/problem+json"), header("cache-control", "no-store")];
        Arc::new(Outcome { status: 408, headers, body: Body::Kept(body.into_bytes()) })
    });
    Arc::clone(&NEVER_RAN)
}

/// Reaps, sweep by sweep. It remembers how far it has looked through the ready records.
#[derive(Debug, Default)]
pub struct Reaper {
    ready_after: Option<Cursor>,
}

impl Reaper {
    /// Gives up to `limit` expired records their last word, and deletes up to `limit` that need none.
    ///
    /// # Errors
    /// If the store fails. What was done before stays so.
    pub async fn run_once<S: Store, T: Tokens>(
        &mut self,
        engine: &Engine<S, T>,
        limit: u32,
    ) -> Result<Report, StoreError> {
        engine.mark_swept();
        let mut report = Report::default();
        let page_max = limit.min(PAGE_ENTRIES_MAX);
        // Completed records are due when they expire.
        let mut completed = Walk::due(engine.store(), &[State::Completed], page_max);
        while let Some(page) = completed.page().await? {
            say_last_words(engine, page, &mut report).await?;
            if report.last_words() >= limit {
                report.left.more = true;
                break;
            }
        }
        self.look_through_ready(engine, limit, &mut report).await?;
        report.reaped = engine.store().reap(limit).await?;
        observe::reaped(report.reaped);
        report.left.more |= report.reaped >= limit;
        Ok(report)
    }

    /// Ready records are due from their next attempt on, so those that have expired are among all that wait.
    async fn look_through_ready<S: Store, T: Tokens>(
        &mut self,
        engine: &Engine<S, T>,
        limit: u32,
        report: &mut Report,
    ) -> Result<(), StoreError> {
        let page_max = limit.min(PAGE_ENTRIES_MAX);
        let mut ready = Walk::due(engine.store(), &[State::Ready], page_max).from(self.ready_after.take());
        let (mut looked_at, before) = (0, report.last_words());
        while let Some(page) = ready.page().await? {
            looked_at += page.entries.len().max(1);
            say_last_words(engine, page, report).await?;
            let many = report.last_words() - before >= limit;
            if many || looked_at >= READY_MAX as usize {
                report.left.more |= many;
                self.ready_after = ready.place();
                break;
            }
        }
        Ok(())
    }
}

/// One sweep that begins at the front; see [`Reaper::run_once`].
///
/// # Errors
/// If the store fails. What was done before stays so.
pub async fn run_once<S: Store, T: Tokens>(engine: &Engine<S, T>, limit: u32) -> Result<Report, StoreError> {
    Reaper::default().run_once(engine, limit).await
}

async fn say_last_words<S: Store, T: Tokens>(
    engine: &Engine<S, T>,
    page: Page,
    report: &mut Report,
) -> Result<(), StoreError> {
    report.left.damaged.extend(page.damaged);
    let has_expired = |entry: &Entry| entry.stored.expires_at().is_some_and(|at| page.now.has_reached(at));
    let expired = page.entries.into_iter().filter(has_expired);
    let words = expired.map(|entry| expire(engine, entry, page.now)).collect();
    for state in sweep::at_once(words, SWAPS_AT_ONCE).await? {
        match state {
            Some(State::Completed) => report.never_ran += 1,
            Some(State::Expired) => report.expired += 1,
            Some(State::Unknown) => report.in_doubt += 1,
            _ => {}
        }
    }
    Ok(())
}

/// What the record became by this sweep, if anything.
async fn expire<S: Store, T: Tokens>(
    engine: &Engine<S, T>,
    entry: Entry,
    now: Now,
) -> Result<Option<State>, StoreError> {
    let Entry { address, stored } = entry;
    let seen = Seen { stored: Some(stored), now };
    let event = Event::Expire { never_ran: &never_ran() };
    let Some(reply) = sweep::unless_store_failed(engine.apply(&address, &event, Some(seen)).await)? else {
        return Ok(None);
    };
    let has_become = matches!(reply.answer, Answer::Done | Answer::Undecided);
    let became = reply.record().map(|record| record.state).filter(|_| has_become);
    match became {
        Some(State::Expired) => observe::expired(),
        Some(State::Unknown) => {
            tracing::warn!(target: log::RECORD, id = %address.id(), "accepted work lapsed and was not finished before its time was over");
        }
        Some(_) => {
            tracing::warn!(target: log::RECORD, id = %address.id(), "accepted work never ran before its time was over");
        }
        None => {}
    }
    Ok(became)
}

/// Reaps every `every` until the token is cancelled.
pub async fn run<S: Store, T: Tokens>(engine: &Engine<S, T>, every: Duration, ending: &CancellationToken) {
    let pace = Pace { every, between: BETWEEN.min(every) };
    let reaper = Mutex::new(Reaper::default());
    let sweep = || async { Ok(reaper.lock().await.run_once(engine, LIMIT).await?.left) };
    sweep::repeat("reap", pace, ending, sweep).await;
}

#[cfg(all(test, feature = "http"))]
mod tests {
    use super::*;
    use crate::http::{Problem, Refusal};

    #[test]
    fn what_never_ran_is_answered_by_a_problem_like_any_other() {
        let refusal = Refusal::new(Problem::NeverRan, NEVER_RAN_DETAIL).into_response(None);
        let outcome = never_ran();
        let Body::Kept(body) = &outcome.body else { panic!("it has a body") };
        let read = |bytes: &[u8]| serde_json::from_slice::<serde_json::Value>(bytes).unwrap();
        assert_eq!((outcome.status, read(body)), (refusal.status().as_u16(), read(refusal.body())));
        let fields = refusal.headers().iter();
        let fields: Vec<_> = fields.map(|(name, value)| (name.as_str().into(), value.as_bytes().into())).collect();
        assert_eq!(outcome.headers, fields);
    }
}
