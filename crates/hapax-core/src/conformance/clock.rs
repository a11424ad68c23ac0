//! The time of the store: one clock for leases and expiry, which no step of the host's clock can hurry.
//!
//! Where the store reads the host's clocks, a step pauses lapse and expiry and is reported. Where it has a server's
//! clock, a step of the host's changes nothing at all. Each case says which of the two it expects.

use super::harness::{ClockSource, Harness};
use super::rig::Rig;
use super::samples::{HOUR_MS, LONG_MS, SHORT_MS, address, completed, policy, running};
use crate::clock::ClockHealth;
use crate::limits::CLOCK_SETTLE_MS;
use crate::record::{OnLapse, Policy, Record};
use crate::store::{Due, Health, Scan, Store};
use crate::transition::{Answer, Event};

/// A fake clock is stepped exactly; what a store notices may be off by the time that passed meanwhile.
const SLACK_MS: u64 = 1_000;

async fn health<H: Harness>(rig: &Rig<'_, H>) -> Health {
    rig.store.health().await.expect("the store is healthy")
}

/// Waits until a store that noticed a step trusts its clock again. A server's clock never lost that trust.
async fn settle<H: Harness>(rig: &Rig<'_, H>, source: ClockSource) {
    if source == ClockSource::Host {
        rig.pass_ms(CLOCK_SETTLE_MS).await;
    }
}

pub(super) async fn time_passes_in_the_store<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    let at = address("alice", "k-1");
    let mut last = rig.get(&at).await.now.at;
    for _ in 0..3 {
        rig.pass_ms(SHORT_MS).await;
        let now = rig.get(&at).await.now;
        assert!(now.at >= last.plus_ms(SHORT_MS), "{SHORT_MS} ms passed between {last:?} and {now:?}");
        assert!(!now.paused);
        last = now.at;
    }
    assert!(rig.page(&Scan::default()).await.now.at >= last, "a page has the same time");
    assert!(rig.loses(&at, Some(running().version), &running()).await.now.at >= last, "and so has a lost swap");
    assert_eq!(health(&rig).await.clock, ClockHealth::default(), "a steady clock is nothing to report");
}

pub(super) async fn stamps_of_a_record_never_run_backwards<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    let at = address("alice", "k-1");
    let first = running();
    let mut last = (first.version, rig.put(&at, &first).await.at);
    for by_ms in [0, HOUR_MS, -2 * HOUR_MS, HOUR_MS, -1, 1] {
        rig.harness.step_clock_ms(by_ms);
        for _ in 0..10 {
            let next = running();
            let stamped = rig.replace(&at, last.0, &next).await.at;
            assert!(stamped >= last.1, "stamped {stamped:?} after {:?}, with the clock stepped by {by_ms} ms", last.1);
            assert!(stamped.as_ms() - last.1.as_ms() < LONG_MS, "a step of the clock is not time that passed");
            let seen = rig.get(&at).await;
            assert!(seen.now.at >= stamped, "read at {:?}, before it was stamped at {stamped:?}", seen.now);
            last = (next.version, stamped);
        }
    }
}

/// A step by an hour, while leases and retentions of ten minutes are under way.
async fn step_frees_no_key<H: Harness>(harness: &H, by_ms: i64) {
    let rig = Rig::open(harness).await;
    let long = |on_lapse| Policy { lease_ms: LONG_MS, ..policy(on_lapse) };
    let at = |on_lapse: OnLapse, key: &str| address(&format!("{on_lapse:?}"), key);
    for on_lapse in OnLapse::ALL {
        rig.proceeds(&at(on_lapse, "runs"), long(on_lapse)).await;
        rig.completes(&at(on_lapse, "done"), long(on_lapse), b"paid").await;
    }
    let before = rig.get(&address("alice", "k-1")).await.now.at;
    let source = rig.harness.step_clock_ms(by_ms);
    for round in ["at once", "when the clock has settled"] {
        assert_eq!(rig.reap(100).await, 0, "{round}");
        for on_lapse in OnLapse::ALL {
            let (runs, done) = (at(on_lapse, "runs"), at(on_lapse, "done"));
            assert_eq!(rig.claim(&runs, long(on_lapse)).await.answer, Answer::Busy, "{round}, {on_lapse:?}");
            assert_eq!(rig.apply(&runs, &Event::Lapse).await.answer, Answer::Busy, "{round}, {on_lapse:?}");
            assert_eq!(rig.claim(&done, long(on_lapse)).await.answer, Answer::Replay, "{round}, {on_lapse:?}");
        }
        settle(&rig, source).await;
    }
    let after = rig.get(&address("alice", "k-1")).await.now.at;
    assert!(before <= after && after.as_ms() - before.as_ms() < LONG_MS, "no hour passed: {before:?}, then {after:?}");
}

pub(super) async fn step_forward_frees_no_key<H: Harness>(harness: &H) {
    step_frees_no_key(harness, HOUR_MS).await;
}

pub(super) async fn step_back_frees_no_key<H: Harness>(harness: &H) {
    step_frees_no_key(harness, -HOUR_MS).await;
}

pub(super) async fn step_before_a_restart_frees_no_key<H: Harness>(harness: &H) {
    for by_ms in [HOUR_MS, -HOUR_MS] {
        let rig = Rig::open(harness).await;
        let (runs, done) = (address("alice", "runs"), address("alice", "done"));
        let long = Policy { lease_ms: LONG_MS, ..policy(OnLapse::Rerun) };
        rig.proceeds(&runs, long).await;
        rig.completes(&done, long, b"paid").await;
        let before = rig.get(&runs).await.now.at;
        // Nothing looks at the store between the step and the restart.
        let source = rig.harness.step_clock_ms(by_ms);
        let Some(rig) = rig.restart().await else {
            return;
        };
        assert_eq!(rig.reap(100).await, 0, "stepped by {by_ms}");
        assert_eq!(rig.claim(&runs, long).await.answer, Answer::Busy, "stepped by {by_ms}");
        assert_eq!(rig.claim(&done, long).await.answer, Answer::Replay, "stepped by {by_ms}");
        let after = rig.get(&runs).await.now.at;
        assert!(before <= after && after.as_ms() - before.as_ms() < LONG_MS, "{before:?}, then {after:?}");
        settle(&rig, source).await;
        assert_eq!(rig.claim(&runs, long).await.answer, Answer::Busy, "stepped by {by_ms}, and settled");
    }
}

pub(super) async fn lapse_pauses_until_the_clock_has_settled<H: Harness>(harness: &H) {
    for by_ms in [HOUR_MS, -HOUR_MS] {
        let rig = Rig::open(harness).await;
        let at = address("alice", "k-1");
        let (mine, _) = rig.proceeds(&at, policy(OnLapse::Rerun)).await;
        let source = rig.harness.step_clock_ms(by_ms);
        rig.pass_ms(2 * SHORT_MS).await;
        if source == ClockSource::Host {
            assert_eq!(rig.claim(&at, policy(OnLapse::Rerun)).await.answer, Answer::Busy, "stepped by {by_ms}");
            assert_eq!(rig.apply(&at, &Event::Lapse).await.answer, Answer::Busy);
            rig.pass_ms(CLOCK_SETTLE_MS / 2).await;
            assert_eq!(
                rig.claim(&at, policy(OnLapse::Rerun)).await.answer,
                Answer::Busy,
                "half of it is not all of it"
            );
            let renewed = rig.apply(&at, &Event::Renew { attempt_id: mine }).await;
            assert_eq!(renewed.answer, Answer::Done, "an attempt that lives can say so meanwhile");
        }
        settle(&rig, source).await;
        assert_eq!(rig.claim(&at, policy(OnLapse::Rerun)).await.answer, Answer::Proceed, "then leases lapse again");
    }
}

pub(super) async fn expiry_pauses_until_the_clock_has_settled<H: Harness>(harness: &H) {
    for by_ms in [HOUR_MS, -HOUR_MS] {
        let rig = Rig::open(harness).await;
        let at = address("alice", "k-1");
        let short = Policy { retention_ms: SHORT_MS, lease_ms: LONG_MS, ..policy(OnLapse::Unknown) };
        rig.completes(&at, short, b"paid").await;
        let source = rig.harness.step_clock_ms(by_ms);
        rig.pass_ms(2 * SHORT_MS).await;
        if source == ClockSource::Host {
            assert_eq!(rig.reap(10).await, 0, "nothing is deleted by a clock that is not trusted");
            assert_eq!(rig.claim(&at, short).await.answer, Answer::Replay);
        }
        settle(&rig, source).await;
        assert_eq!(rig.reap(10).await, 1, "then records expire again");
        assert_eq!(rig.claim(&at, short).await.answer, Answer::Proceed);
    }
}

pub(super) async fn nothing_is_due_while_it_pauses<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    let at = address("alice", "k-1");
    rig.put(&at, &Record { due_in_ms: Some(0), ..running() }).await;
    rig.pass_ms(SHORT_MS).await;
    let due = Scan { due: Some(Due::Now), limit: 10, ..Scan::default() };
    assert_eq!(rig.scan_all(&due).await.len(), 1);
    let source = rig.harness.step_clock_ms(HOUR_MS);
    let page = rig.page(&due).await;
    let expected = usize::from(source == ClockSource::Server);
    assert_eq!(page.entries.len(), expected, "with the clock of the {source:?}");
    let by = Scan { due: Some(Due::By(page.now.at)), ..due.clone() };
    assert_eq!(rig.scan_all(&by).await.len(), 1, "for looking, the moment counts all the same");
    settle(&rig, source).await;
    assert_eq!(rig.scan_all(&due).await.len(), 1);
}

pub(super) async fn step_is_reported<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    let mut sum_ms = 0;
    for by_ms in [HOUR_MS, -3 * HOUR_MS, HOUR_MS / 2] {
        let source = rig.harness.step_clock_ms(by_ms);
        let clock = health(&rig).await.clock;
        match source {
            ClockSource::Host => {
                sum_ms += by_ms;
                assert!(clock.paused, "after a step of {by_ms} ms");
                let off_ms = (clock.stepped_by_ms - sum_ms).unsigned_abs();
                assert!(off_ms < SLACK_MS, "all steps add up to {sum_ms} ms, reported are {clock:?}");
            }
            ClockSource::Server => assert_eq!(clock, ClockHealth::default(), "the host's clock is not the store's"),
        }
        settle(&rig, source).await;
        assert!(!health(&rig).await.clock.paused, "it is over when the clock has settled");
    }
}

pub(super) async fn reads_notice_a_step_too<H: Harness>(harness: &H) {
    // Each operation on its own must notice: a store may be read only for hours.
    for look in 0..4 {
        let rig = Rig::open(harness).await;
        let at = address("alice", "k-1");
        rig.put(&at, &completed(SHORT_MS)).await;
        let source = rig.harness.step_clock_ms(HOUR_MS);
        let paused = match look {
            0 => rig.get(&at).await.now.paused,
            1 => rig.page(&Scan { limit: 1, ..Scan::default() }).await.now.paused,
            2 => rig.loses(&at, None, &running()).await.now.paused,
            _ => rig.put(&address("alice", "k-2"), &running()).await.paused,
        };
        assert_eq!(paused, source == ClockSource::Host, "operation {look}, with the clock of the {source:?}");
    }
}
