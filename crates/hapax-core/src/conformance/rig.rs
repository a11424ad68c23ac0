//! An open store with the rules over it, and the questions that cases ask of it again and again.

use super::harness::Harness;
use super::samples;
use crate::address::Address;
use crate::clock::Now;
use crate::engine::{Engine, Reply};
use crate::record::{AttemptId, Labels, Outcome, Policy, Record, Stored, Version};
use crate::store::{Durability, Entry, Page, Scan, Seen, Store, Swap};
use crate::transition::{Answer, Event};

/// Pages after which a scan is taken to go round in circles.
const PAGES_MAX: usize = 5_000;

/// The rules over some store, with the suite's tokens.
pub(super) type Rules<S> = Engine<S, fn() -> [u8; 16]>;

pub(super) struct Rig<'a, H: Harness> {
    pub(super) harness: &'a H,
    pub(super) store: H::Store,
    pub(super) engine: Rules<H::Store>,
}

impl<'a, H: Harness> Rig<'a, H> {
    pub(super) async fn open(harness: &'a H) -> Self {
        Self::over(harness, harness.open().await)
    }

    pub(super) fn over(harness: &'a H, store: H::Store) -> Self {
        let engine = rules(store.clone());
        Self { harness, store, engine }
    }

    /// Restarts the store; the health it had before must have said whether its records survive that.
    pub(super) async fn restart(self) -> Option<Self> {
        let Self { harness, store, engine } = self;
        // Nothing else holds the store.
        drop(engine);
        let durability = store.health().await.expect("the store is healthy").durability;
        let restarted = harness.restart(store).await;
        assert_eq!(restarted.is_some(), durability != Durability::None, "its health says {durability:?}");
        Some(Self::over(harness, restarted?))
    }

    pub(super) async fn pass_ms(&self, ms: u64) {
        self.harness.pass_ms(ms).await;
    }

    pub(super) async fn swap(&self, at: &Address, expect: Option<Version>, next: &Record) -> Swap {
        self.store.swap(at, expect, next).await.expect("a swap is answered")
    }

    pub(super) async fn get(&self, at: &Address) -> Seen {
        self.store.get(at).await.expect("a record is read")
    }

    /// The record at that address, which must be there.
    pub(super) async fn stored(&self, at: &Address) -> Stored {
        self.get(at).await.stored.unwrap_or_else(|| panic!("there is no record at {at:?}"))
    }

    /// Writes a record where there is none.
    pub(super) async fn put(&self, at: &Address, record: &Record) -> Now {
        match self.swap(at, None, record).await {
            Swap::Applied(now) => now,
            Swap::Lost(seen) => panic!("nothing was written at {at:?}, but this is there: {seen:?}"),
        }
    }

    /// Writes many records where there are none, many at a time.
    pub(super) async fn put_all(&self, records: Vec<(Address, Record)>) {
        let mut records = records;
        while !records.is_empty() {
            let rest = records.split_off(records.len().min(PUTS_AT_ONCE));
            let mut tasks = tokio::task::JoinSet::new();
            for (at, record) in records {
                let store = self.store.clone();
                tasks.spawn(async move { store.swap(&at, None, &record).await.expect("a swap is answered") });
            }
            for swap in tasks.join_all().await {
                assert!(matches!(swap, Swap::Applied(_)), "a record was written to an empty place: {swap:?}");
            }
            records = rest;
        }
    }

    /// Writes a record over another one.
    pub(super) async fn replace(&self, at: &Address, expect: Version, next: &Record) -> Now {
        match self.swap(at, Some(expect), next).await {
            Swap::Applied(now) => now,
            Swap::Lost(seen) => panic!("the version at {at:?} was not the one just written: {seen:?}"),
        }
    }

    /// A swap that must lose, and what it lost to.
    pub(super) async fn loses(&self, at: &Address, expect: Option<Version>, next: &Record) -> Seen {
        match self.swap(at, expect, next).await {
            Swap::Lost(seen) => seen,
            Swap::Applied(_) => panic!("a swap that expected {expect:?} at {at:?} was applied"),
        }
    }

    pub(super) async fn page(&self, query: &Scan) -> Page {
        self.store.scan(query).await.expect("a page is read")
    }

    /// All pages of a scan, one after the other.
    pub(super) async fn scan_all(&self, query: &Scan) -> Vec<Entry> {
        let mut entries = Vec::new();
        let mut query = query.clone();
        for _ in 0..PAGES_MAX {
            let page = self.page(&query).await;
            assert!(page.damaged.is_empty(), "what was written is readable: {:?}", page.damaged);
            entries.extend(page.entries);
            match page.next {
                Some(next) => query.after = Some(next),
                None => return entries,
            }
        }
        panic!("{query:?} did not end after {PAGES_MAX} pages");
    }

    pub(super) async fn reap(&self, limit: u32) -> u32 {
        self.store.reap(limit).await.expect("reaping is answered")
    }

    pub(super) async fn claim(&self, at: &Address, policy: Policy) -> Reply {
        self.engine.claim(at, &samples::fingerprint(), policy).await.expect("a claim is answered")
    }

    /// A claim that must proceed, and its attempt.
    pub(super) async fn proceeds(&self, at: &Address, policy: Policy) -> (AttemptId, Reply) {
        let reply = self.claim(at, policy).await;
        assert_eq!(reply.answer, Answer::Proceed, "a claim at {at:?}; it found {:?}", reply.seen);
        (reply.attempt_id().expect("a claim that proceeds has an attempt"), reply)
    }

    pub(super) async fn apply(&self, at: &Address, event: &Event<'_>) -> Reply {
        self.engine.apply(at, event, None).await.expect("an event is answered")
    }

    pub(super) async fn complete(&self, at: &Address, attempt_id: AttemptId, body: &[u8]) -> Reply {
        let outcome = samples::outcome(body);
        self.apply(at, &Event::Complete { attempt_id, outcome: &outcome, labels: &Labels::default() }).await
    }

    /// Claims and completes.
    pub(super) async fn completes(&self, at: &Address, policy: Policy, body: &[u8]) {
        let (attempt_id, _) = self.proceeds(at, policy).await;
        assert_eq!(self.complete(at, attempt_id, body).await.answer, Answer::Done);
    }
}

/// Enough to be written together where a store can, few enough for any pool of connections.
const PUTS_AT_ONCE: usize = 256;

pub(super) fn rules<S: Store>(store: S) -> Rules<S> {
    Engine::new(store, samples::token as fn() -> [u8; 16])
}

/// The stored record is the one that was written, in every field, stamped at that time.
#[track_caller]
pub(super) fn assert_stored(seen: &Seen, written: &Record, stamped: Now) {
    let stored = seen.stored.as_ref().unwrap_or_else(|| panic!("the record is not there: {written:?}"));
    assert_same(&stored.record, written);
    assert_eq!(stored.stamped_at, stamped.at, "the stamp is the time that the write returned");
    assert!(seen.now.at >= stored.stamped_at, "a record is read after it was written: {:?}", seen.now);
}

/// Two records are equal, and if not, in which field they differ.
#[track_caller]
pub(super) fn assert_same(found: &Record, written: &Record) {
    assert_eq!(found.version, written.version, "version");
    assert_eq!(found.state, written.state, "state");
    assert_eq!((found.attempt, found.attempt_id), (written.attempt, written.attempt_id), "attempt");
    assert_eq!(found.fingerprint, written.fingerprint, "fingerprint");
    assert_eq!(found.policy, written.policy, "policy");
    assert_eq!((found.due_in_ms, found.expires_in_ms), (written.due_in_ms, written.expires_in_ms), "times");
    assert_eq!(found.created_at, written.created_at, "created_at");
    assert!(found.checkpoint == written.checkpoint, "checkpoint: {:?}", found.checkpoint.as_ref().map(|c| &c.name));
    assert!(found.request == written.request, "stored request: {:?} bytes", found.request.as_ref().map(|r| r.len()));
    assert_same_outcome(found.outcome.as_deref(), written.outcome.as_deref());
    assert_eq!((&found.error, found.verdict), (&written.error, written.verdict), "error and verdict");
    assert_eq!(found.labels, written.labels, "labels");
    assert!(found == written, "the records differ in a field that this suite does not know");
}

#[track_caller]
fn assert_same_outcome(found: Option<&Outcome>, written: Option<&Outcome>) {
    let (Some(found), Some(written)) = (found, written) else {
        assert_eq!(found, written, "outcome");
        return;
    };
    assert_eq!(found.status, written.status, "status");
    assert_eq!(found.headers, written.headers, "header fields, in order and with repeats");
    assert!(found.body == written.body, "the body is {:?}, but {:?} was written", found.body, written.body);
}
