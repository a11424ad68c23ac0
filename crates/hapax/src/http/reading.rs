//! Answers by reading alone, where the store cannot be written or is not asked for claims.
//!
//! What was recorded needs no write to be answered: a replay, a mismatch, that somebody runs it. So a full disk, a store that has
//! stopped writing or an open breaker keeps new keys away, and those alone. What a store shows is durable, or it would
//! not show it ([`Store`]), so nothing is answered that could be forgotten and run again. Whatever the rules would write
//! something for is left to the refusal.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hapax_core::address::Address;
use hapax_core::engine::Reply;
use hapax_core::record::Version;
use hapax_core::store::{Seen, Store};
use hapax_core::transition::{Answer, Event, decide};
use tokio::time::{Instant, timeout};

use crate::fence::Fence;

/// How long a read may take: it is added to the time that the claim has taken already. One that works takes a few milliseconds.
const READ_TIME_MAX: Duration = Duration::from_millis(300);

/// How long nothing is read after a read has failed: a store that is down altogether must not hold up every refusal.
const PAUSE: Duration = Duration::from_secs(1);

/// Whether reading is worth a try.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    failed_at: Mutex<Option<Instant>>,
}

impl Reading {
    /// What the record at that address alone says about a claim. `None`: there is nothing that could be said without a write,
    /// or the store cannot be read. With `is_in_doubt`, a write of this claim may have arrived: only what is final is said.
    pub(crate) async fn answer(
        &self,
        store: &impl Store,
        at: &Address,
        fence: Option<Fence>,
        events: [&Event<'_>; 2],
        is_in_doubt: bool,
    ) -> Option<Reply> {
        let is_down =
            self.failed_at.lock().unwrap_or_else(PoisonError::into_inner).is_some_and(|at| at.elapsed() < PAUSE);
        if is_down {
            return None;
        }
        let Ok(Ok(seen)) = timeout(READ_TIME_MAX, store.get(at)).await else {
            *self.failed_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
            return None;
        };
        let answer = without_a_write(&seen, at, fence, events)?;
        let is_final = matches!(answer, Answer::Replay | Answer::Mismatch | Answer::Gone);
        (is_final || !is_in_doubt).then_some(Reply { answer, seen, wrote: false })
    }
}

/// What the rules say where they write nothing, behind a fence as well.
fn without_a_write(
    seen: &Seen,
    at: &Address,
    fence: Option<Fence>,
    [suspect, claim]: [&Event<'_>; 2],
) -> Option<Answer> {
    let decided = |event| {
        let decided = decide(seen, event, Version::from_bytes([0; 16])).ok()?;
        decided.write.is_none().then_some(decided.answer)
    };
    if fence.is_some_and(|fence| fence.holds(at.key()) && !fence.has_fallen(seen.now)) {
        let suspected = decided(suspect)?;
        if matches!(suspected, Answer::Undecided | Answer::Mismatch) {
            return Some(suspected);
        }
    }
    decided(claim)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use hapax_core::address::{AddressScheme, Key, Scope, Space};
    use hapax_core::clock::{Now, Timestamp};
    use hapax_core::fingerprint::{Fingerprint, Scheme};
    use hapax_core::record::{AttemptId, Body, Outcome, Policy, Record, State, Stored};
    use hapax_core::store::{ErrorKind, Health, Page, Scan, StoreError, Swap};
    use hapax_core::transition::Claimant;

    use super::*;

    /// A store that can be read, or not, and never be written.
    #[derive(Default)]
    struct ReadOnly {
        seen: Option<Seen>,
        reads: AtomicUsize,
    }

    fn down<T>() -> Result<T, StoreError> {
        Err(StoreError::new("get", ErrorKind::Unavailable, "down"))
    }

    impl Store for ReadOnly {
        async fn swap(&self, _: &Address, _: Option<Version>, _: &Record) -> Result<Swap, StoreError> {
            down()
        }

        async fn get(&self, _: &Address) -> Result<Seen, StoreError> {
            self.reads.fetch_add(1, Ordering::Relaxed);
            self.seen.clone().map_or_else(down, Ok)
        }

        async fn scan(&self, _: &Scan) -> Result<Page, StoreError> {
            down()
        }

        async fn reap(&self, _: u32) -> Result<u32, StoreError> {
            down()
        }

        async fn health(&self) -> Result<Health, StoreError> {
            down()
        }
    }

    fn fingerprint(digest: u8) -> Fingerprint {
        Fingerprint { scheme: Scheme::new("1;sha256").unwrap(), digest: [digest; 32] }
    }

    fn holding(state: Option<State>) -> ReadOnly {
        let now = Now { at: Timestamp::from_ms(5_000), paused: false };
        let stored = state.map(|state| {
            let new = Record::new(Version::from_bytes([1; 16]), state, fingerprint(9), Policy::default());
            let outcome = Arc::new(Outcome { status: 201, headers: Vec::new(), body: Body::Kept(vec![1]) });
            let (attempt_id, is_completed) = (Some(AttemptId::from_bytes([2; 16])), state == State::Completed);
            let record = Record {
                attempt: 1,
                attempt_id,
                due_in_ms: (!is_completed).then_some(30_000),
                expires_in_ms: Some(60_000),
                outcome: is_completed.then_some(outcome),
                ..new
            };
            Stored { record, stamped_at: now.at }
        });
        ReadOnly { seen: Some(Seen { stored, now }), reads: AtomicUsize::new(0) }
    }

    async fn answer(
        reading: &Reading,
        store: &ReadOnly,
        digest: u8,
        fence: Option<Fence>,
        in_doubt: bool,
    ) -> Option<Answer> {
        let (space, scope) = (Space::new("http").unwrap(), Scope::new("alice").unwrap());
        let at = Address::new(&AddressScheme::default(), &space, &scope, &Key::new("k").unwrap());
        let (fingerprints, policy, labels) = (&fingerprint(digest), Policy::default(), &Arc::default());
        let since = fence.map_or_else(Timestamp::default, |fence| fence.restored_at);
        let suspect = Event::Suspect { since, fingerprints, policy, labels };
        let attempt_id = AttemptId::from_bytes([3; 16]);
        let claim = Event::Claim { by: Claimant::Client, attempt_id, fingerprints, policy, labels };
        let reply = reading.answer(store, &at, fence, [&suspect, &claim], in_doubt).await?;
        assert!(!reply.wrote);
        Some(reply.answer)
    }

    #[tokio::test]
    async fn what_is_recorded_is_answered_and_what_needs_a_write_is_not() {
        let reading = Reading::default();
        let (completed, running, free) =
            (holding(Some(State::Completed)), holding(Some(State::Running)), holding(None));
        for in_doubt in [false, true] {
            assert_eq!(answer(&reading, &completed, 9, None, in_doubt).await, Some(Answer::Replay));
            assert_eq!(answer(&reading, &completed, 8, None, in_doubt).await, Some(Answer::Mismatch));
            assert_eq!(answer(&reading, &free, 9, None, in_doubt).await, None, "a new key");
        }
        assert_eq!(answer(&reading, &running, 9, None, false).await, Some(Answer::Busy));
        assert_eq!(answer(&reading, &running, 9, None, true).await, None, "it may be this very claim");
    }

    #[tokio::test]
    async fn behind_a_fence_what_stands_there_is_answered_and_a_free_key_is_not() {
        let [lost_since, restored_at, until] = [3_000, 4_000, 90_000].map(Timestamp::from_ms);
        let fence = Fence { lost_since, restored_at, until };
        let reading = Reading::default();
        assert_eq!(
            answer(&reading, &holding(Some(State::Completed)), 9, Some(fence), false).await,
            Some(Answer::Replay)
        );
        assert_eq!(answer(&reading, &holding(None), 9, Some(fence), false).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_cannot_be_read_is_left_alone_for_a_while() {
        let (reading, store) = (Reading::default(), ReadOnly::default());
        for _ in 0..5 {
            assert_eq!(answer(&reading, &store, 9, None, false).await, None);
        }
        assert_eq!(store.reads.load(Ordering::Relaxed), 1);
        tokio::time::advance(PAUSE).await;
        assert_eq!(answer(&reading, &store, 9, None, false).await, None);
        assert_eq!(store.reads.load(Ordering::Relaxed), 2);
    }
}
