//! Deleting what has expired, and nothing else.

use std::collections::BTreeSet;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use tokio::task::JoinSet;

use super::harness::Harness;
use super::rig::{Rig, assert_stored, rules};
use super::samples::{LONG_MS, SHORT_MS, address, completed, fingerprint, in_state, policy, running};
use crate::address::Address;
use crate::record::{OnLapse, Policy, Record, State, Stored};
use crate::store::{Scan, Store};
use crate::transition::{Answer, Event};

async fn keys<H: Harness>(rig: &Rig<'_, H>) -> BTreeSet<String> {
    let all = rig.scan_all(&Scan { limit: 500, ..Scan::default() }).await;
    all.iter().map(|entry| entry.address.key().as_str().to_owned()).collect()
}

/// A policy under which outcomes expire within a case.
fn short_retention() -> Policy {
    Policy { retention_ms: SHORT_MS, lease_ms: LONG_MS, ..policy(OnLapse::Unknown) }
}

pub(super) async fn takes_only_what_has_expired<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    assert_eq!(rig.reap(10).await, 0, "there is nothing in a new store");
    rig.put(&address("alice", "completed"), &completed(SHORT_MS)).await;
    let ready = Record { due_in_ms: Some(0), expires_in_ms: Some(SHORT_MS), ..in_state(State::Ready) };
    rig.put(&address("alice", "ready"), &ready).await;
    let expired = Record { expires_in_ms: Some(SHORT_MS), ..in_state(State::Expired) };
    rig.put(&address("alice", "expired"), &expired).await;
    rig.put(&address("alice", "long"), &completed(LONG_MS)).await;
    let never = Record { expires_in_ms: None, ..completed(0) };
    rig.put(&address("alice", "never"), &never).await;
    rig.pass_ms(SHORT_MS).await;
    assert_eq!(rig.reap(10).await, 3);
    assert_eq!(keys(&rig).await, BTreeSet::from(["long".to_owned(), "never".to_owned()]));
    assert_eq!(rig.get(&address("alice", "completed")).await.stored, None);
    assert_eq!(rig.reap(10).await, 0);
}

pub(super) async fn waits_until_the_moment<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    let at = address("alice", "k-1");
    rig.put(&at, &completed(SHORT_MS)).await;
    let reap_at = rig.stored(&at).await.reap_at().expect("it expires");
    for _ in 0..SHORT_MS / 10 + 2 {
        let reaped = rig.reap(10).await;
        let now = rig.get(&at).await.now.at;
        if reaped == 1 {
            assert!(now >= reap_at, "reaped by {now:?}, before {reap_at:?}");
            return;
        }
        rig.pass_ms(10).await;
    }
    panic!("what has expired is reaped");
}

pub(super) async fn oldest_first<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    for (key, expires_in_ms) in [("d", 40), ("a", 10), ("c", 30), ("b", 20), ("e", 50)] {
        rig.put(&address("alice", key), &completed(expires_in_ms)).await;
    }
    rig.pass_ms(SHORT_MS).await;
    for left in (1..=5).rev() {
        let all = rig.scan_all(&Scan { limit: 10, ..Scan::default() }).await;
        assert_eq!(all.len(), left);
        let oldest = all.iter().map(|entry| entry.stored.reap_at()).min().expect("there is one");
        assert_eq!(rig.reap(1).await, 1);
        let left = keys(&rig).await;
        let gone = all.iter().find(|entry| !left.contains(entry.address.key().as_str())).expect("one is gone");
        assert_eq!(gone.stored.reap_at(), oldest, "{:?} was not the oldest", gone.address.key());
    }
}

pub(super) async fn in_batches_of_the_limit<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    let records = (0..450).map(|number| (address("alice", &format!("k-{number}")), completed(0)));
    rig.put_all(records.collect()).await;
    rig.pass_ms(1).await;
    assert_eq!(rig.reap(0).await, 0, "a limit of nothing takes nothing");
    assert_eq!(rig.reap(1).await, 1);
    assert_eq!(rig.reap(9).await, 9);
    assert_eq!(rig.reap(400).await, 400);
    assert_eq!(keys(&rig).await.len(), 40);
    assert_eq!(rig.reap(400).await, 40, "fewer than the limit means that nothing more is due");
    assert_eq!(rig.reap(u32::MAX).await, 0);
}

pub(super) async fn never_running_unknown_or_dead<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    for state in [State::Running, State::Unknown, State::Dead] {
        // As the rules write them, and with a time to expire that does not count in these states.
        let due = Record { due_in_ms: Some(0), ..in_state(state) };
        rig.put(&address("alice", state.name()), &due).await;
        let expiring = Record { due_in_ms: Some(0), expires_in_ms: Some(0), ..in_state(state) };
        rig.put(&address("bob", state.name()), &expiring).await;
    }
    rig.pass_ms(2 * SHORT_MS).await;
    assert_eq!(rig.reap(100).await, 0);
    for state in [State::Running, State::Unknown, State::Dead] {
        for scope in ["alice", "bob"] {
            assert_eq!(rig.stored(&address(scope, state.name())).await.record.state, state);
        }
    }
}

pub(super) async fn leaves_what_must_become_a_tombstone<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    let at = address("alice", "k-1");
    let keeps = Policy { keep_expired_ms: Some(SHORT_MS), ..short_retention() };
    rig.completes(&at, keeps, b"paid").await;
    rig.pass_ms(2 * SHORT_MS).await;
    assert_eq!(rig.reap(10).await, 0, "not before it is a tombstone");
    assert_eq!(rig.apply(&at, &Event::Expire { never_ran: &super::samples::never_ran() }).await.answer, Answer::Done);
    rig.pass_ms(SHORT_MS).await;
    assert_eq!(rig.reap(10).await, 1, "and not after its time");
    assert_eq!(rig.get(&at).await.stored, None);
}

pub(super) async fn key_starts_anew_afterwards<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    let at = address("alice", "k-1");
    rig.completes(&at, short_retention(), b"paid").await;
    let old = rig.stored(&at).await.record;
    rig.pass_ms(SHORT_MS).await;
    assert_eq!(rig.reap(10).await, 1);
    assert_eq!(rig.loses(&at, Some(old.version), &running()).await.stored, None, "its version is gone with it");
    let (_, fresh) = rig.proceeds(&at, short_retention()).await;
    let record = fresh.record().expect("the claim wrote a record");
    assert_eq!((record.attempt, record.created_at, &record.outcome), (1, None, &None));
    assert_eq!(rig.scan_all(&Scan { limit: 10, ..Scan::default() }).await.len(), 1);
}

pub(super) async fn leaves_what_was_written_again<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    let at = address("alice", "k-1");
    let (expired, live) = (completed(0), running());
    rig.put(&at, &expired).await;
    rig.pass_ms(SHORT_MS).await;
    let stamped = rig.replace(&at, expired.version, &live).await;
    assert_eq!(rig.reap(10).await, 0);
    assert_stored(&rig.get(&at).await, &live, stamped);
    let again = completed(LONG_MS);
    let stamped = rig.replace(&at, live.version, &again).await;
    assert_eq!(rig.reap(10).await, 0, "the time counts from the last write");
    assert_stored(&rig.get(&at).await, &again, stamped);
}

pub(super) async fn racing_a_claim_loses_no_live_record<H: Harness>(harness: &H) {
    const KEYS: u32 = 64;
    let rig = Rig::open(harness).await;
    let at = |round: u32, number: u32| address("alice", &format!("k-{round}-{number}"));
    for round in 0..10 {
        rig.put_all((0..KEYS).map(|number| (at(round, number), completed(0))).collect()).await;
        rig.pass_ms(1).await;
        // One reap has begun before the claims, others come meanwhile.
        let mut begun = pin!(rig.store.reap(KEYS / 2));
        let first = poll_fn(|context| Poll::Ready(begun.as_mut().poll(context))).await;
        let mut claims = JoinSet::new();
        let mut reaps = JoinSet::new();
        for number in 0..KEYS {
            claims.spawn(claim(rig.store.clone(), at(round, number)));
            let store = rig.store.clone();
            reaps.spawn(async move { store.reap(1).await.expect("reaping is answered") });
        }
        let claimed = claims.join_all().await;
        if first.is_pending() {
            begun.await.expect("reaping is answered");
        }
        reaps.join_all().await;
        for (at, stored) in claimed {
            assert_eq!(rig.get(&at).await.stored, stored, "a claimed record was reaped");
        }
        assert_eq!(rig.reap(1_000).await, 0, "all that had expired was claimed");
    }
}

/// Claims an expired key; the record that it then has.
async fn claim<S: Store>(store: S, at: Address) -> (Address, Option<Stored>) {
    let long = Policy { lease_ms: LONG_MS, ..policy(OnLapse::Unknown) };
    let reply = rules(store).claim(&at, &fingerprint(), long).await.expect("a claim is answered");
    assert_eq!(reply.answer, Answer::Proceed, "an expired key is free, reaped or not");
    (at, reply.seen.stored)
}
