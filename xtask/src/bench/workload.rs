//! What is measured: tasks that claim and complete new keys, or replay old ones, for a while.

#![expect(clippy::disallowed_methods, reason = "a benchmark measures time")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hapax::tokens;
use hapax_core::address::{Address, AddressScheme, Key, Scope, Space};
use hapax_core::engine::{Engine, Reply};
use hapax_core::fingerprint::{Fingerprint, Scheme};
use hapax_core::record::{Body, Outcome, Policy, Record, State, Version};
use hapax_core::store::Store;
use hapax_core::transition::{Answer, Event};
use hdrhistogram::Histogram;
use tokio::task::JoinSet;

/// Bytes of every answer.
pub(crate) const ANSWER_BYTES: usize = 1024;

/// Something that can claim a key and complete it.
pub(crate) trait Subject: Clone + Send + Sync + 'static {
    /// What a claim gives, to complete it with.
    type Held: Send;

    fn claim(&self, at: &Address) -> impl Future<Output = Self::Held> + Send;
    fn complete(&self, at: &Address, held: Self::Held) -> impl Future<Output = ()> + Send;
    fn replay(&self, at: &Address) -> impl Future<Output = ()> + Send;
}

/// A new address: a random key of 36 characters, as a UUID has.
pub(crate) fn address() -> Address {
    let token = u128::from_be_bytes(tokens::random());
    let hex = format!("{token:032x}");
    let key = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-");
    numbered(&key)
}

/// The address of that key.
pub(crate) fn numbered(key: &str) -> Address {
    let scope = Scope::new("5f2b6c0e8d8f4c3c9d1f0a7be3a9c001").expect("a scope");
    let space = Space::new("http").expect("a space");
    Address::new(&AddressScheme::default(), &space, &scope, &Key::new(key).expect("a key"))
}

/// The answer that every completion records: one kibibyte of JSON-like text and three header fields.
pub(crate) fn outcome() -> Arc<Outcome> {
    let headers = [("content-type", "application/json"), ("x-request-id", "8d8f4c3c"), ("location", "/payments/1")];
    let headers = headers.map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec())).to_vec();
    let body: Vec<u8> = (0..ANSWER_BYTES).map(|i| b'a' + (i * 7 % 26) as u8).collect();
    Arc::new(Outcome { status: 201, headers, body: Body::Kept(body) })
}

pub(crate) fn fingerprint() -> Fingerprint {
    Fingerprint { scheme: Scheme::new("1;sha256").expect("a scheme"), digest: [9; 32] }
}

/// A record of attempt 1 with nothing in it, to fill a store with.
pub(crate) fn record(state: State) -> Record {
    let version = Version::from_bytes(tokens::random());
    Record { attempt: 1, ..Record::new(version, state, fingerprint(), Policy::default()) }
}

/// Where the engine draws its tokens.
type Random = fn() -> [u8; 16];

/// Ours: the engine over a store.
pub(crate) struct Ours<S> {
    engine: Arc<Engine<S, Random>>,
    outcome: Arc<Outcome>,
    fingerprint: Fingerprint,
}

impl<S> Clone for Ours<S> {
    fn clone(&self) -> Self {
        let fingerprint = self.fingerprint.clone();
        Self { engine: Arc::clone(&self.engine), outcome: Arc::clone(&self.outcome), fingerprint }
    }
}

impl<S: Store> Ours<S> {
    pub(crate) fn new(store: S) -> Self {
        let engine = Arc::new(Engine::new(store, tokens::random as Random));
        Self { engine, outcome: outcome(), fingerprint: fingerprint() }
    }

    pub(crate) fn store(&self) -> &S {
        self.engine.store()
    }
}

impl<S: Store + 'static> Subject for Ours<S> {
    type Held = Reply;

    async fn claim(&self, at: &Address) -> Reply {
        let reply = self.engine.claim(at, &self.fingerprint, Policy::default()).await.expect("a claim");
        assert_eq!(reply.answer, Answer::Proceed);
        reply
    }

    async fn complete(&self, at: &Address, held: Reply) {
        let attempt_id = held.attempt_id().expect("an attempt");
        let event =
            Event::Complete { attempt_id, outcome: &self.outcome, labels: &hapax_core::record::Labels::default() };
        let reply = self.engine.apply(at, &event, Some(held.seen)).await.expect("a completion");
        assert_eq!(reply.answer, Answer::Done);
    }

    async fn replay(&self, at: &Address) {
        let reply = self.engine.claim(at, &self.fingerprint, Policy::default()).await.expect("a replay");
        assert_eq!(reply.answer, Answer::Replay);
    }
}

/// What came of a measurement.
pub(crate) struct Tally {
    pub(crate) count: u64,
    pub(crate) seconds: f64,
    /// Microseconds of whole cycles.
    pub(crate) cycles: Histogram<u64>,
    /// Microseconds of the claims alone.
    pub(crate) claims: Histogram<u64>,
}

impl Tally {
    pub(crate) fn new() -> Self {
        let empty = || Histogram::new_with_bounds(1, 600_000_000, 2).expect("bounds");
        Self { count: 0, seconds: 0.0, cycles: empty(), claims: empty() }
    }

    pub(crate) fn per_s(&self) -> f64 {
        self.count as f64 / self.seconds
    }

    fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.cycles.add(&other.cycles).expect("same bounds");
        self.claims.add(&other.claims).expect("same bounds");
    }
}

pub(crate) fn ms_at(histogram: &Histogram<u64>, quantile: f64) -> f64 {
    histogram.value_at_quantile(quantile) as f64 / 1000.0
}

/// Cycles of claim + complete on new keys, by that many tasks, added to the tally.
pub(crate) async fn cycles<S: Subject>(subject: &S, concurrency: usize, length: Duration, tally: &mut Tally) {
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..concurrency {
        let subject = subject.clone();
        tasks.spawn(async move {
            let mut own = Tally::new();
            while start.elapsed() < length {
                let at = address();
                let begun = Instant::now();
                let held = subject.claim(&at).await;
                own.claims.saturating_record(begun.elapsed().as_micros() as u64);
                subject.complete(&at, held).await;
                own.cycles.saturating_record(begun.elapsed().as_micros() as u64);
                own.count += 1;
            }
            own
        });
    }
    gather(tasks, start, tally).await;
}

/// Replays of keys that were completed before.
pub(crate) async fn replays<S: Subject>(
    subject: &S,
    keys: &Arc<Vec<Address>>,
    concurrency: usize,
    length: Duration,
    tally: &mut Tally,
) {
    let start = Instant::now();
    let next = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..concurrency {
        let (subject, keys, next) = (subject.clone(), Arc::clone(keys), Arc::clone(&next));
        tasks.spawn(async move {
            let mut own = Tally::new();
            while start.elapsed() < length {
                let turn = next.fetch_add(1, Ordering::Relaxed) as usize;
                let begun = Instant::now();
                subject.replay(&keys[turn % keys.len()]).await;
                own.cycles.saturating_record(begun.elapsed().as_micros() as u64);
                own.count += 1;
            }
            own
        });
    }
    gather(tasks, start, tally).await;
}

async fn gather(mut tasks: JoinSet<Tally>, start: Instant, tally: &mut Tally) {
    while let Some(own) = tasks.join_next().await {
        tally.add(&own.expect("a task of the benchmark"));
    }
    tally.seconds += start.elapsed().as_secs_f64();
}

/// Completed keys to replay.
pub(crate) async fn completed_keys<S: Subject>(subject: &S, count: usize) -> Vec<Address> {
    let mut tasks = JoinSet::new();
    for _ in 0..count {
        let subject = subject.clone();
        tasks.spawn(async move {
            let at = address();
            let held = subject.claim(&at).await;
            subject.complete(&at, held).await;
            at
        });
    }
    tasks.join_all().await
}
