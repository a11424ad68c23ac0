//! What the tests of this crate share: addresses, records, an engine.

#![allow(dead_code, reason = "each test binary uses its own part")]

use std::sync::Arc;

use hapax_core::address::{Address, AddressScheme, Key, Scope, Space};
use hapax_core::engine::{Engine, Reply};
use hapax_core::fingerprint::{Fingerprint, Scheme};
use hapax_core::record::{Body, Labels, Outcome, Policy};
use hapax_core::store::{Store, StoreError};
use hapax_core::transition::{Answer, Event};
use hapax_testkit::tokens;

pub(crate) type TestEngine<S> = Engine<S, fn() -> [u8; 16]>;

pub(crate) fn engine<S: Store>(store: S) -> TestEngine<S> {
    Engine::new(store, tokens::random as fn() -> [u8; 16])
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

pub(crate) async fn claim<S: Store>(engine: &TestEngine<S>, key: &str) -> Reply {
    engine.claim(&address(key), &fingerprint(), Policy::default()).await.unwrap()
}

pub(crate) async fn complete<S: Store>(engine: &TestEngine<S>, key: &str, held: Reply) -> Reply {
    let attempt_id = held.attempt_id().unwrap();
    let event = Event::Complete { attempt_id, outcome: &outcome(key), labels: &Labels::default() };
    engine.apply(&address(key), &event, Some(held.seen)).await.unwrap()
}

pub(crate) async fn claim_and_complete<S: Store>(engine: &TestEngine<S>, key: &str) {
    let held = claim(engine, key).await;
    assert_eq!(held.answer, Answer::Proceed);
    assert_eq!(complete(engine, key, held).await.answer, Answer::Done);
}

/// The whole chain of causes, as an operator would see it.
pub(crate) fn message(error: &StoreError) -> String {
    error.to_string()
}
