//! Recorded answers that were asked for a moment ago, at hand for the next retry.
//!
//! A completed record does not change until it expires, so a storm of retries need not ask the store about each. Nothing is
//! kept for longer than a short while, so that a purge is soon felt by every node; nothing is kept but what the store
//! itself gave as a replay; and whatever the rules would say of it other than "replay" is left to the store.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use hapax_core::address::{Address, Id};
use hapax_core::clock::Now;
use hapax_core::record::{Body, Outcome, Record};
use hapax_core::store::Seen;
use tokio::time::Instant;

/// So that threads seldom meet.
const SHELVES: usize = 16;

/// Bytes of answers on one shelf: 8 MiB on all.
const SHELF_BYTES_MAX: usize = 512 * 1024;

/// A larger answer takes longer to send than to look up. It is at hand only while it is being sent to somebody.
const ANSWER_BYTES_MAX: usize = 32 * 1024;

/// What a record takes beside its answer, roughly.
const RECORD_BYTES: usize = 512;

/// Replays of the last moments, by id.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    shelves: [Mutex<Shelf>; SHELVES],
}

#[derive(Debug, Default)]
struct Shelf {
    answers: HashMap<Id, Kept>,
    /// In the order in which they were put there, which is that in which they go.
    order: VecDeque<(Id, Instant)>,
    bytes: usize,
}

#[derive(Debug)]
struct Kept {
    /// Without the outcome where that is large.
    seen: Seen,
    /// A large outcome, for as long as somebody sends it: it takes no memory here.
    large: Option<Weak<Outcome>>,
    /// The store was asked after this.
    since: Instant,
    bytes: usize,
}

impl Answers {
    /// A record that was replayed less than `age_max` ago, with the store's time as it must be by now.
    pub(crate) fn find(&self, at: &Address, now: Instant, age_max: Duration) -> Option<Seen> {
        if age_max.is_zero() {
            return None;
        }
        let shelf = self.shelf(at.id())?.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = shelf.answers.get(at.id())?;
        let age = now.saturating_duration_since(kept.since);
        let age_ms = u64::try_from(age.as_millis()).ok()?;
        let store_now = Now { at: kept.seen.now.at.plus_ms(age_ms), ..kept.seen.now };
        if age >= age_max {
            return None;
        }
        let mut stored = kept.seen.stored.clone();
        if let (Some(large), Some(stored)) = (&kept.large, &mut stored) {
            stored.record.outcome = Some(large.upgrade()?);
        }
        Some(Seen { stored, now: store_now })
    }

    /// Keeps what the store gave for a replay; it was asked after `since`. Takes away what is older than `age_max`.
    pub(crate) fn keep(&self, at: &Address, seen: &Seen, since: Instant, age_max: Duration) {
        if age_max.is_zero() {
            return;
        }
        let record = seen.stored.as_ref().map(|stored| &stored.record);
        let Some(bytes) = record.and_then(bytes_of) else { return };
        let kept = if bytes <= ANSWER_BYTES_MAX {
            Kept { seen: seen.clone(), large: None, since, bytes }
        } else {
            let mut seen = seen.clone();
            let outcome = seen.stored.as_mut().and_then(|stored| stored.record.outcome.take());
            Kept { seen, large: outcome.map(|outcome| Arc::downgrade(&outcome)), since, bytes: RECORD_BYTES }
        };
        if let Some(shelf) = self.shelf(at.id()) {
            let mut shelf = shelf.lock().unwrap_or_else(PoisonError::into_inner);
            shelf.put(*at.id(), kept);
            shelf.clear_out(since, age_max);
        }
    }

    /// Ids are digests, so any part of them is as good as another.
    fn shelf(&self, id: &Id) -> Option<&Mutex<Shelf>> {
        let [first, ..] = id.as_bytes();
        self.shelves.get(usize::from(*first) % SHELVES)
    }
}

impl Shelf {
    fn put(&mut self, id: Id, kept: Kept) {
        self.bytes += kept.bytes;
        self.order.push_back((id, kept.since));
        if let Some(before) = self.answers.insert(id, kept) {
            self.bytes -= before.bytes;
        }
    }

    /// Takes away what is too old, and the oldest where there is too much.
    fn clear_out(&mut self, now: Instant, age_max: Duration) {
        while let Some((id, since)) = self.order.front().copied() {
            if self.bytes <= SHELF_BYTES_MAX && now.saturating_duration_since(since) < age_max {
                break;
            }
            self.order.pop_front();
            // It may have been put there again since.
            if self.answers.get(&id).is_some_and(|kept| kept.since == since)
                && let Some(kept) = self.answers.remove(&id)
            {
                self.bytes -= kept.bytes;
            }
        }
    }
}

/// `None` where there is no answer to keep.
fn bytes_of(record: &Record) -> Option<usize> {
    let Outcome { headers, body, .. } = &**record.outcome.as_ref()?;
    let Body::Kept(body) = body else { return None };
    let fields: usize = headers.iter().map(|(name, value)| name.len() + value.len()).sum();
    let labels: usize = record.labels.iter().map(|label| label.name.len() + label.value.len()).sum();
    Some(RECORD_BYTES + fields + labels + body.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use hapax_core::address::{AddressScheme, Key, Scope, Space};
    use hapax_core::clock::Timestamp;
    use hapax_core::fingerprint::{Fingerprint, Scheme};
    use hapax_core::record::{Policy, State, Stored, Version};

    const AGE_MAX: Duration = Duration::from_secs(1);

    fn address(key: &str) -> Address {
        let (space, scope) = (Space::new("http").unwrap(), Scope::new("alice").unwrap());
        Address::new(&AddressScheme::default(), &space, &scope, &Key::new(key).unwrap())
    }

    fn completed(body: Body) -> Seen {
        let fingerprint = Fingerprint { scheme: Scheme::new("1;sha256").unwrap(), digest: [9; 32] };
        let new = Record::new(Version::from_bytes([1; 16]), State::Completed, fingerprint, Policy::default());
        let outcome = Some(Arc::new(Outcome { status: 201, headers: Vec::new(), body }));
        let record = Record { attempt: 1, expires_in_ms: Some(1_000), outcome, ..new };
        let at = Timestamp::from_ms(5_000);
        Seen { stored: Some(Stored { record, stamped_at: at }), now: Now { at, paused: false } }
    }

    #[test]
    fn an_answer_is_at_hand_for_a_while_and_the_time_goes_on() {
        let (answers, at, since) = (Answers::default(), address("k-1"), Instant::now());
        let seen = completed(Body::Kept(vec![1]));
        assert_eq!(answers.find(&at, since, AGE_MAX), None);
        answers.keep(&at, &seen, since, AGE_MAX);
        let later = answers.find(&at, since + Duration::from_millis(999), AGE_MAX).unwrap();
        assert_eq!((later.stored, later.now.at), (seen.stored, Timestamp::from_ms(5_999)));
        assert_eq!(answers.find(&at, since + AGE_MAX, AGE_MAX), None);
        assert_eq!(answers.find(&address("k-2"), since, AGE_MAX), None);
    }

    #[test]
    fn without_an_age_nothing_is_kept() {
        let (answers, at, since) = (Answers::default(), address("k-1"), Instant::now());
        answers.keep(&at, &completed(Body::Kept(vec![1])), since, Duration::ZERO);
        assert_eq!(answers.find(&at, since, Duration::ZERO), None);
    }

    #[test]
    fn large_answers_are_at_hand_while_somebody_sends_them() {
        let (answers, at, since) = (Answers::default(), address("k-1"), Instant::now());
        let sent = completed(Body::Kept(vec![1; ANSWER_BYTES_MAX]));
        answers.keep(&at, &sent, since, AGE_MAX);
        assert_eq!(answers.find(&at, since, AGE_MAX).unwrap().stored, sent.stored);
        drop(sent);
        assert_eq!(answers.find(&at, since, AGE_MAX), None);
    }

    #[test]
    fn answers_that_are_not_kept_are_left_to_the_store() {
        let (answers, at, since) = (Answers::default(), address("k-1"), Instant::now());
        answers.keep(&at, &completed(Body::NotKept), since, AGE_MAX);
        answers.keep(&at, &Seen { stored: None, ..completed(Body::NotKept) }, since, AGE_MAX);
        assert_eq!(answers.find(&at, since, AGE_MAX), None);
    }

    #[test]
    fn shelves_do_not_overflow() {
        let (answers, since) = (Answers::default(), Instant::now());
        let seen = completed(Body::Kept(vec![1; 4_000]));
        for number in 0..20_000_u64 {
            let put = since + Duration::from_micros(number / 2);
            answers.keep(&address(&format!("k-{}", number / 2)), &seen, put, AGE_MAX);
        }
        let shelves = || answers.shelves.iter().map(|shelf| shelf.lock().unwrap());
        assert!(shelves().all(|shelf| shelf.bytes <= SHELF_BYTES_MAX && shelf.answers.len() <= shelf.order.len()));
        assert!(shelves().all(|shelf| shelf.bytes == shelf.answers.values().map(|kept| kept.bytes).sum::<usize>()));
        let much_later = since + Duration::from_secs(60);
        for shelf in &answers.shelves {
            shelf.lock().unwrap().clear_out(much_later, AGE_MAX);
        }
        assert!(shelves().all(|shelf| shelf.bytes == 0 && shelf.answers.is_empty() && shelf.order.is_empty()));
    }
}
