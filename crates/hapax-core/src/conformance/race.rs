//! Many tasks and two processes at the same records: of those that expect the same version, at most one is applied.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::Poll;

use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::harness::Harness;
use super::rig::{Rig, assert_same, rules};
use super::rival::{self, BLOCK_KEYS, Rival};
use super::samples::{LONG_MS, address, fingerprint, policy, running};
use crate::record::{OnLapse, Policy, Record, Version};
use crate::store::{Store, Swap};
use crate::transition::Answer;

/// Tasks that race for one key.
const RACERS: usize = 64;

/// What a racer did in one round: the version it wrote if it won, or the one it lost to.
struct Finish {
    wrote: Version,
    lost_to: Option<Version>,
}

/// Exactly one racer won each round, and all others saw its record.
fn assert_one_winner_each(rounds: usize, racers: &[Vec<Finish>]) {
    for round in 0..rounds {
        let winners: Vec<_> = racers.iter().map(|racer| &racer[round]).filter(|it| it.lost_to.is_none()).collect();
        assert_eq!(winners.len(), 1, "winners of round {round}");
        let losers = racers.iter().filter_map(|racer| racer[round].lost_to);
        assert!(losers.into_iter().all(|to| to == winners[0].wrote), "a racer of round {round} lost to no winner");
    }
}

pub(super) async fn sixty_four_inserts_have_one_winner<H: Harness>(harness: &H) {
    const ROUNDS: usize = 200;
    let rig = Rig::open(harness).await;
    let barrier = Arc::new(Barrier::new(RACERS));
    let mut tasks = JoinSet::new();
    for _ in 0..RACERS {
        let (store, barrier) = (rig.store.clone(), Arc::clone(&barrier));
        tasks.spawn(async move {
            let mut finishes = Vec::new();
            for round in 0..ROUNDS {
                let (at, record) = (address("race", &format!("k-{round}")), running());
                barrier.wait().await;
                let lost_to = match store.swap(&at, None, &record).await.expect("a swap is answered") {
                    Swap::Applied(_) => None,
                    Swap::Lost(seen) => Some(seen.version().expect("it was lost to a record")),
                };
                finishes.push(Finish { wrote: record.version, lost_to });
            }
            finishes
        });
    }
    assert_one_winner_each(ROUNDS, &tasks.join_all().await);
}

pub(super) async fn sixty_four_updates_have_one_winner<H: Harness>(harness: &H) {
    const ROUNDS: usize = 50;
    let rig = Rig::open(harness).await;
    let (at, first) = (address("race", "k-1"), running());
    rig.put(&at, &first).await;
    let barrier = Arc::new(Barrier::new(RACERS));
    let mut tasks = JoinSet::new();
    for _ in 0..RACERS {
        let (store, barrier, at, mut expect) = (rig.store.clone(), Arc::clone(&barrier), at.clone(), first.version);
        tasks.spawn(async move {
            let mut finishes = Vec::new();
            for _ in 0..ROUNDS {
                let record = running();
                barrier.wait().await;
                let lost_to = match store.swap(&at, Some(expect), &record).await.expect("a swap is answered") {
                    Swap::Applied(_) => None,
                    Swap::Lost(seen) => Some(seen.version().expect("it was lost to a record")),
                };
                expect = lost_to.unwrap_or(record.version);
                finishes.push(Finish { wrote: record.version, lost_to });
            }
            finishes
        });
    }
    assert_one_winner_each(ROUNDS, &tasks.join_all().await);
}

pub(super) async fn sixty_four_claims_have_one_attempt<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    let long = Policy { lease_ms: LONG_MS, ..policy(OnLapse::Rerun) };
    for round in 0..20 {
        let at = address("race", &format!("k-{round}"));
        let mut tasks = JoinSet::new();
        for _ in 0..RACERS {
            let (engine, at) = (rules(rig.store.clone()), at.clone());
            tasks.spawn(async move { engine.claim(&at, &fingerprint(), long).await.expect("a claim is answered") });
        }
        let replies = tasks.join_all().await;
        let proceeds: Vec<_> = replies.iter().filter(|reply| reply.answer == Answer::Proceed).collect();
        assert_eq!(proceeds.len(), 1, "attempts that started in round {round}");
        for reply in &replies {
            assert!(matches!(reply.answer, Answer::Proceed | Answer::Busy), "{:?}", reply.answer);
            assert_eq!(reply.attempt_id(), proceeds[0].attempt_id(), "all see the attempt that runs");
        }
    }
}

pub(super) async fn no_update_is_lost<H: Harness>(harness: &H) {
    const TASKS: u32 = 16;
    const TIMES: u32 = 10;
    let rig = Rig::open(harness).await;
    rig.put(&rival::counter(), &Record { attempt: 0, ..running() }).await;
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let store = rig.store.clone();
        tasks.spawn(async move { rival::increment(&store, TIMES).await });
    }
    tasks.join_all().await;
    assert_eq!(rig.stored(&rival::counter()).await.record.attempt, TASKS * TIMES);
}

/// Swaps that build on each other may reach a store in one batch and in any order; what it answers must fit one order.
pub(super) async fn chains_of_writes_fit_one_order<H: Harness>(harness: &H) {
    const LINKS: usize = 4;
    let rig = Rig::open(harness).await;
    for (number, order) in orders_of(LINKS).into_iter().enumerate() {
        let at = address("race", &format!("k-{number}"));
        let chain: Vec<_> = (1..).map(|attempt| Record { attempt, ..running() }).take(LINKS).collect();
        let swap_of = |link: usize| {
            let expect = link.checked_sub(1).map(|before| chain[before].version);
            rig.store.swap(&at, expect, &chain[link])
        };
        // All are begun in this order before any is waited for.
        let mut swaps: Vec<_> = order.iter().map(|link| (*link, Box::pin(swap_of(*link)))).collect();
        let mut replies = Vec::new();
        for (link, swap) in &mut swaps {
            replies.push((*link, poll_fn(|context| Poll::Ready(swap.as_mut().poll(context))).await));
        }
        let mut applied = [false; LINKS];
        for ((link, reply), (_, swap)) in replies.into_iter().zip(swaps) {
            let reply = match reply {
                Poll::Ready(reply) => reply,
                Poll::Pending => swap.await,
            };
            applied[link] = matches!(reply.expect("a swap is answered"), Swap::Applied(_));
        }
        let last = applied.iter().take_while(|applied| **applied).count();
        assert!(last > 0, "nothing else inserts: {applied:?} in the order {order:?}");
        let gap = applied[last..].contains(&true);
        assert!(!gap, "a link was written on one that was not there: {applied:?} in the order {order:?}");
        assert_same(&rig.stored(&at).await.record, &chain[last - 1]);
    }
}

/// Every order of so many things.
fn orders_of(count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let shorter = orders_of(count - 1);
    let with_last = |order: &Vec<usize>, at: usize| {
        let mut longer = order.clone();
        longer.insert(at, count - 1);
        longer
    };
    shorter.iter().flat_map(|order| (0..count).map(move |at| with_last(order, at))).collect()
}

pub(super) async fn two_processes_have_one_winner_per_key<H: Harness>(harness: &H) {
    const BLOCKS: usize = 50;
    let rig = Rig::open(harness).await;
    let mut rival = Rival::start(harness, &rig.store).await;
    let mut winners = BTreeMap::new();
    for block in 0..BLOCKS {
        rival.begin(&format!("race {block}"));
        let ours = rival::race(&rig.store, block).await;
        for (key, version) in ours.into_iter().chain(rival.won()) {
            assert_eq!(winners.insert(key, version), None, "both processes won rival-{key}");
        }
    }
    assert_eq!(winners.len(), BLOCKS * BLOCK_KEYS, "every key has a winner");
    for (key, version) in winners {
        let found = rig.stored(&rival::key(key)).await.record.version;
        assert_eq!(found, version, "the record of rival-{key} is the winner's");
    }
}

pub(super) async fn two_processes_lose_no_update<H: Harness>(harness: &H) {
    const ROUNDS: u32 = 25;
    const TIMES: u32 = 4;
    let rig = Rig::open(harness).await;
    rig.put(&rival::counter(), &Record { attempt: 0, ..running() }).await;
    let mut rival = Rival::start(harness, &rig.store).await;
    for round in 1..=ROUNDS {
        rival.begin(&format!("increment {TIMES}"));
        rival::increment(&rig.store, TIMES).await;
        assert!(rival.won().is_empty());
        assert_eq!(rig.stored(&rival::counter()).await.record.attempt, 2 * TIMES * round, "after round {round}");
    }
}
