//! Large records: left out of batches, and in memory once however many ask for them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

mod common;

use std::sync::Arc;

use futures_util::future::join_all;
use hapax_core::record::{Body, Labels, Outcome};
use hapax_core::store::{Store, Swap};
use hapax_core::transition::{Answer, Event};
use hapax_sqlite::{Options, Sqlite};

use common::{TestEngine, address, claim, engine};

async fn complete_with(engine: &TestEngine<Sqlite>, key: &str, bytes: usize) -> Arc<Outcome> {
    let outcome = Arc::new(Outcome { status: 201, headers: Vec::new(), body: Body::Kept(vec![7; bytes]) });
    let held = claim(engine, key).await;
    let event =
        Event::Complete { attempt_id: held.attempt_id().unwrap(), outcome: &outcome, labels: &Labels::default() };
    assert_eq!(engine.apply(&address(key), &event, Some(held.seen)).await.unwrap().answer, Answer::Done);
    outcome
}

#[tokio::test]
async fn all_who_ask_for_a_large_record_at_once_get_the_same_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("hapax.db");
    let recorded = complete_with(&engine(Sqlite::open(Options::new(&path)).unwrap()), "k", 1_000_000).await;
    // A process that has never met the key asks its writer.
    for round in 0..2 {
        let engine = engine(Sqlite::open(Options::new(&path)).unwrap());
        if round == 1 {
            claim(&engine, "k").await;
        }
        let replies = join_all((0..200).map(|_| claim(&engine, "k"))).await;
        let outcomes: Vec<&Arc<Outcome>> = replies.iter().map(|reply| reply.outcome().unwrap()).collect();
        assert!(outcomes.iter().all(|outcome| Arc::ptr_eq(outcome, outcomes[0])), "round {round}");
        assert_eq!((replies[0].answer, outcomes[0]), (Answer::Replay, &recorded));
        let looked = engine.store().get(&address("k")).await.unwrap().stored.unwrap().record.outcome.unwrap();
        assert!(Arc::ptr_eq(&looked, outcomes[0]));
    }
}

#[tokio::test]
async fn records_around_the_limit_come_back_as_they_were_written() {
    let directory = tempfile::tempdir().unwrap();
    let engine = engine(Sqlite::open(Options::new(directory.path().join("hapax.db"))).unwrap());
    for bytes in [0, 65_000, 65_300, 65_400, 65_500, 65_535, 65_536, 70_000, 8 * 1024 * 1024] {
        let key = format!("k-{bytes}");
        let recorded = complete_with(&engine, &key, bytes).await;
        assert_eq!(claim(&engine, &key).await.outcome(), Some(&recorded), "{bytes}");
    }
}

#[tokio::test]
async fn a_guest_that_loses_to_a_large_record_sees_it_whole() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("hapax.db");
    let engine = engine(Sqlite::open(Options::new(&path)).unwrap());
    let held = claim(&engine, "k").await;
    let recorded = {
        let outcome = Arc::new(Outcome { status: 201, headers: Vec::new(), body: Body::Kept(vec![7; 100_000]) });
        let event =
            Event::Complete { attempt_id: held.attempt_id().unwrap(), outcome: &outcome, labels: &Labels::default() };
        engine.apply(&address("k"), &event, Some(held.seen.clone())).await.unwrap();
        outcome
    };
    let mut guest = rusqlite::Connection::open(&path).unwrap();
    guest.execute_batch("PRAGMA synchronous = FULL").unwrap();
    let transaction = guest.transaction().unwrap();
    let next = held.record().unwrap().clone();
    let swapped = engine.store().swap_in(&transaction, &address("k"), held.seen.version(), &next).unwrap();
    let Swap::Lost(seen) = swapped else { panic!("it was completed meanwhile") };
    assert_eq!(seen.stored.unwrap().record.outcome, Some(recorded));
}
