//! What the tests of this crate share: addresses, records, stores on throw-away databases.

#![allow(dead_code, reason = "each test binary uses its own part")]

pub(crate) mod harness;

use std::sync::Arc;
use std::time::Duration;

use hapax_core::address::{Address, AddressScheme, Key, Scope, Space};
use hapax_core::engine::{Engine, Reply};
use hapax_core::fingerprint::{Fingerprint, Scheme};
use hapax_core::record::{AttemptId, Body, Labels, Outcome, Policy, Record, State, Version};
use hapax_core::store::{Seen, Store, StoreError, Swap};
use hapax_core::transition::{Answer, Event, decide};
use hapax_postgres::{Options, Postgres};
use hapax_testkit::tokens;
use tokio_postgres::{Client, NoTls};

/// Nothing here takes this long, even on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) type TestEngine<S> = Engine<S, fn() -> [u8; 16]>;

pub(crate) fn engine<S: Store>(store: S) -> TestEngine<S> {
    Engine::new(store, tokens::random as fn() -> [u8; 16])
}

pub(crate) async fn open(url: impl Into<String>) -> Postgres {
    Postgres::open(Options::new(url)).await.unwrap()
}

/// The application's own connection.
pub(crate) async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

pub(crate) fn address(key: &str) -> Address {
    let (space, scope) = (Space::new("http").unwrap(), Scope::new("alice").unwrap());
    Address::new(&AddressScheme::default(), &space, &scope, &Key::new(key).unwrap())
}

pub(crate) fn fingerprint() -> Fingerprint {
    Fingerprint { scheme: Scheme::new("1;sha256").unwrap(), digest: [7; 32] }
}

/// An answer whose body says which key it is for.
pub(crate) fn outcome(key: &str) -> Arc<Outcome> {
    let headers = vec![(b"content-type".to_vec(), b"text/plain".to_vec())];
    Arc::new(Outcome { status: 201, headers, body: Body::Kept(format!("answer of {key}").into_bytes()) })
}

/// A record of a claim that has just been made.
pub(crate) fn running() -> Record {
    Record {
        attempt: 1,
        attempt_id: Some(AttemptId::from_bytes(tokens::random())),
        due_in_ms: Some(30_000),
        ..Record::new(Version::from_bytes(tokens::random()), State::Running, fingerprint(), Policy::default())
    }
}

/// The record that completes what was claimed, and the version to expect.
pub(crate) fn completion(seen: &Seen, key: &str) -> (Option<Version>, Record) {
    let attempt_id = seen.stored.as_ref().and_then(|stored| stored.record.attempt_id).unwrap();
    let event = Event::Complete { attempt_id, outcome: &outcome(key), labels: &Labels::default() };
    let decision = decide(seen, &event, Version::from_bytes(tokens::random())).unwrap();
    (seen.version(), decision.write.unwrap())
}

pub(crate) fn state(seen: &Seen) -> Option<State> {
    seen.stored.as_ref().map(|stored| stored.record.state)
}

/// Writes a new record, which must not be there yet.
pub(crate) async fn put(store: &Postgres, key: &str) -> Record {
    let record = running();
    let swapped = store.swap(&address(key), None, &record).await.unwrap();
    assert!(matches!(swapped, Swap::Applied(_)), "{key}: {swapped:?}");
    record
}

pub(crate) async fn claim<S: Store>(engine: &TestEngine<S>, key: &str) -> Reply {
    engine.claim(&address(key), &fingerprint(), Policy::default()).await.unwrap()
}

pub(crate) async fn claim_and_complete<S: Store>(engine: &TestEngine<S>, key: &str) {
    let held = claim(engine, key).await;
    assert_eq!(held.answer, Answer::Proceed);
    let (attempt_id, outcome) = (held.attempt_id().unwrap(), outcome(key));
    let event = Event::Complete { attempt_id, outcome: &outcome, labels: &Labels::default() };
    let done = engine.apply(&address(key), &event, Some(held.seen)).await.unwrap();
    assert_eq!(done.answer, Answer::Done);
}

/// Everything that is said of a failure, to whoever looks at it in whatever way.
pub(crate) fn everything_said(error: &StoreError) -> String {
    let mut said = format!("{error} {error:?}");
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        said.push_str(&format!(" {cause} {cause:?}"));
        source = cause.source();
    }
    said
}
