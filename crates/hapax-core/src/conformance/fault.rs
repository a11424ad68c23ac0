//! When things go wrong: replies are lost, calls are dropped half way, stores restart in the middle.

use std::future::{Future, poll_fn};
use std::task::Poll;

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::harness::Harness;
use super::lossy::{Lose, Lossy};
use super::rig::{Rig, Rules, assert_same, assert_stored, rules};
use super::samples::{
    LONG_MS, SHORT_MS, address, bytes, completed, every_field, fingerprint, outcome, policy, running,
};
use crate::address::Address;
use crate::record::{Labels, OnLapse, Policy, Record, Version};
use crate::store::{Durability, ErrorKind, Store, Swap};
use crate::transition::{Answer, Event};

/// Claims and completes; before each of the two, `arm` makes a reply get lost. Both must be answered as if it had not.
async fn own_writes_are_recognised<S: Store>(engine: &Rules<S>, at: &Address, arm: impl AsyncFn()) {
    let long = Policy { lease_ms: LONG_MS, ..policy(OnLapse::Unknown) };
    arm().await;
    let claimed = engine.claim(at, &fingerprint(), long).await.expect("a claim is answered");
    assert_eq!(claimed.answer, Answer::Proceed, "the writer recognises its own claim");
    assert_eq!(claimed.record().map(|record| record.attempt), Some(1), "and claims once");
    let attempt_id = claimed.attempt_id().expect("it has an attempt");
    let rival = engine.claim(at, &fingerprint(), long).await.expect("a claim is answered");
    assert_eq!(rival.answer, Answer::Busy, "nobody else got it");

    arm().await;
    let outcome = outcome(b"paid");
    let complete = Event::Complete { attempt_id, outcome: &outcome, labels: &Labels::default() };
    let done = engine.apply(at, &complete, Some(claimed.seen)).await.expect("a completion is answered");
    assert_eq!(done.answer, Answer::Done, "the writer recognises its own completion");
    let replay = engine.claim(at, &fingerprint(), long).await.expect("a claim is answered");
    assert_eq!((replay.answer, replay.outcome()), (Answer::Replay, Some(&outcome)));
}

pub(super) async fn lost_reply_is_recognised<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    let at = address("alice", "k-1");
    if harness.lose_next_reply(&rig.store).await {
        // The first reply was armed by asking.
        let asked = std::sync::atomic::AtomicBool::new(true);
        let arm = async || {
            if !asked.swap(false, std::sync::atomic::Ordering::SeqCst) {
                assert!(harness.lose_next_reply(&rig.store).await, "it could lose a reply before");
            }
        };
        own_writes_are_recognised(&rig.engine, &at, arm).await;
    } else {
        let lossy = Lossy::new(rig.store.clone(), Lose::Reply);
        own_writes_are_recognised(&rules(lossy.clone()), &at, async || lossy.arm()).await;
    }
}

pub(super) async fn lost_request_is_tried_again<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    let lossy = Lossy::new(rig.store.clone(), Lose::Request);
    own_writes_are_recognised(&rules(lossy.clone()), &address("alice", "k-1"), async || lossy.arm()).await;
}

/// Polls a future so many times and drops it, done or not.
async fn drop_after<F: Future>(future: F, polls: usize) {
    let mut future = Box::pin(future);
    for _ in 0..polls {
        let done = poll_fn(|context| Poll::Ready(future.as_mut().poll(context).is_ready())).await;
        if done {
            return;
        }
        tokio::task::yield_now().await;
    }
}

pub(super) async fn dropped_swap_leaves_a_whole_record_or_none<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    let body = outcome(&bytes(100_000));
    let large = |attempt| Record { attempt, outcome: Some(body.clone()), ..completed(LONG_MS) };
    for polls in 0..12 {
        let at = address("alice", &format!("k-{polls}"));
        let (first, second) = (large(1), large(2));
        drop_after(rig.store.swap(&at, None, &first), polls).await;
        drop_after(rig.store.swap(&at, Some(first.version), &second), polls).await;
        // What was dropped may still be under way, so what stands there may change; but each look sees a whole record.
        let last = running();
        let mut expect: Option<Version> = None;
        for tries in 0.. {
            assert!(tries < 4, "two dropped swaps cannot be lost to more than twice");
            match rig.swap(&at, expect, &last).await {
                Swap::Applied(_) => break,
                Swap::Lost(seen) => {
                    expect = seen.version();
                    if let Some(stored) = &seen.stored {
                        let written = [&first, &second].into_iter().find(|one| one.version == stored.record.version);
                        assert_same(&stored.record, written.expect("it is one of the two"));
                    }
                }
            }
        }
        assert_same(&rig.stored(&at).await.record, &last);
    }
}

pub(super) async fn restart_keeps_what_was_acknowledged<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    let mut written = Vec::new();
    for number in 0..30 {
        let at = address("alice", &format!("k-{number}"));
        let record = if number % 3 == 0 { every_field() } else { running() };
        let mut stamped = rig.put(&at, &record).await;
        let mut last = record;
        if number % 2 == 0 {
            let next = completed(LONG_MS);
            stamped = rig.replace(&at, last.version, &next).await;
            last = next;
        }
        written.push((at, last, stamped));
    }
    let Some(rig) = rig.restart().await else {
        return;
    };
    for (at, record, stamped) in &written {
        assert_stored(&rig.get(at).await, record, *stamped);
    }
    let (at, record, _) = &written[0];
    rig.replace(at, record.version, &running()).await;
    rig.put(&address("alice", "new"), &running()).await;
}

pub(super) async fn time_goes_on_after_a_restart<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    let (long, short) = (address("alice", "long"), address("alice", "short"));
    let hour = Policy { lease_ms: LONG_MS, ..policy(OnLapse::Unknown) };
    rig.proceeds(&long, hour).await;
    let (mine, _) = rig.proceeds(&short, policy(OnLapse::Unknown)).await;
    let before = rig.get(&long).await.now.at;
    let Some(rig) = rig.restart().await else {
        return;
    };
    let after = rig.get(&long).await.now;
    assert!(after.at >= before, "time ran backwards: {before:?}, then {after:?}");
    assert!(!after.paused, "a restart is not a step of the clock");
    assert_eq!(rig.claim(&long, hour).await.answer, Answer::Busy, "a lease outlives a restart");
    rig.pass_ms(SHORT_MS).await;
    assert_eq!(rig.claim(&short, policy(OnLapse::Unknown)).await.answer, Answer::Undecided, "and lapses in its time");
    assert_eq!(rig.complete(&short, mine, b"late").await.answer, Answer::Done, "its attempt can still be recorded");
}

/// A record of the traffic: which task wrote it, and its number there.
type Place = (usize, usize);

/// One task of the traffic: inserts its records one after the other and says which were acknowledged.
async fn insert_all<S: Store>(
    store: S,
    task: usize,
    records: Vec<(Address, Record)>,
    acknowledged: mpsc::UnboundedSender<Place>,
) {
    for (number, (at, record)) in records.iter().enumerate() {
        match store.swap(at, None, record).await {
            Ok(Swap::Applied(_)) => acknowledged.send((task, number)).expect("the case listens"),
            Ok(Swap::Lost(seen)) => panic!("nobody else writes at {at:?}, but there is {seen:?}"),
            Err(error) => assert!(
                matches!(error.kind, ErrorKind::Unavailable | ErrorKind::Ambiguous),
                "a store that restarts is away: {error}"
            ),
        }
    }
}

pub(super) async fn restart_in_the_middle_of_traffic<H: Harness>(harness: &H) {
    const TASKS: usize = 8;
    const RECORDS: usize = 100;
    const BEFORE: usize = 50;
    let store = harness.open().await;
    let durability = store.health().await.expect("the store is healthy").durability;
    let record_of = |task, number| (address("traffic", &format!("k-{task}-{number}")), every_field());
    let written: Vec<Vec<_>> =
        (0..TASKS).map(|task| (0..RECORDS).map(|number| record_of(task, number)).collect()).collect();
    let (sender, mut acknowledged) = mpsc::unbounded_channel();
    let mut tasks = JoinSet::new();
    for (task, records) in written.iter().enumerate() {
        tasks.spawn(insert_all(store.clone(), task, records.clone(), sender.clone()));
    }
    drop(sender);
    let mut kept = Vec::new();
    while kept.len() < BEFORE {
        kept.push(acknowledged.recv().await.expect("the store works before it is restarted"));
    }
    let same = store.clone();
    let restarted = harness.restart(store).await;
    assert_eq!(restarted.is_some(), durability != Durability::None, "its health says {durability:?}");
    while let Some(place) = acknowledged.recv().await {
        kept.push(place);
    }
    tasks.join_all().await;
    let rig = Rig::over(harness, restarted.unwrap_or(same));
    for (task, number) in kept {
        let (at, record) = &written[task][number];
        assert_same(&rig.stored(at).await.record, record);
    }
    for (at, record) in written.iter().flatten() {
        if let Some(stored) = rig.get(at).await.stored {
            assert_same(&stored.record, record);
        }
    }
    rig.put(&address("traffic", "afterwards"), &running()).await;
}

pub(super) async fn health_says_what_survives<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    let health = rig.store.health().await.expect("the store is healthy");
    assert!(!health.clock.paused, "a store that was just opened trusts its clock");
    rig.put(&address("alice", "k-1"), &running()).await;
    assert_eq!(rig.store.health().await.expect("the store is healthy").durability, health.durability);
    rig.restart().await;
}
