//! Compare and swap: the one write primitive.

use super::harness::Harness;
use super::rig::{Rig, assert_stored};
use super::samples::{SHORT_MS, address, completed, every_field, in_state, running, version};
use crate::record::{Record, State};
use crate::store::Swap;

pub(super) async fn absent_is_none_with_the_time<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    let first = rig.get(&address("alice", "k-1")).await;
    assert_eq!(first.stored, None, "a new store is empty");
    assert!(first.now.at.as_ms() > 0, "the store says what time it is");
    assert!(!first.now.paused, "a store that was just opened trusts its clock");
}

pub(super) async fn on_absent_is_applied<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    let (at, record) = (address("alice", "k-1"), running());
    let stamped = rig.put(&at, &record).await;
    assert_stored(&rig.get(&at).await, &record, stamped);
}

pub(super) async fn on_matching_version_is_applied<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    let at = address("alice", "k-1");
    let mut last = running();
    rig.put(&at, &last).await;
    for state in State::ALL {
        let next = in_state(state);
        let stamped = rig.replace(&at, last.version, &next).await;
        assert_stored(&rig.get(&at).await, &next, stamped);
        last = next;
    }
}

pub(super) async fn on_stale_version_is_lost<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    let at = address("alice", "k-1");
    let (first, second) = (running(), completed(1_000_000));
    rig.put(&at, &first).await;
    let stamped = rig.replace(&at, first.version, &second).await;
    for stale in [first.version, version()] {
        let seen = rig.loses(&at, Some(stale), &running()).await;
        assert_stored(&seen, &second, stamped);
    }
    assert_stored(&rig.get(&at).await, &second, stamped);
}

pub(super) async fn expecting_a_version_on_absent_is_lost<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    let at = address("alice", "k-1");
    let seen = rig.loses(&at, Some(version()), &running()).await;
    assert_eq!(seen.stored, None, "it was lost to nothing");
    assert_eq!(rig.get(&at).await.stored, None, "a lost swap writes nothing");
}

pub(super) async fn expecting_none_on_present_is_lost<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    for state in State::ALL {
        let (at, record) = (address("alice", state.name()), in_state(state));
        let stamped = rig.put(&at, &record).await;
        let seen = rig.loses(&at, None, &running()).await;
        assert_stored(&seen, &record, stamped);
        assert_stored(&rig.get(&at).await, &record, stamped);
    }
}

pub(super) async fn lost_carries_the_whole_record<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    let (at, record) = (address("alice", "k-1"), every_field());
    let stamped = rig.put(&at, &record).await;
    assert_stored(&rig.loses(&at, None, &running()).await, &record, stamped);
    assert_stored(&rig.loses(&at, Some(version()), &running()).await, &record, stamped);
}

pub(super) async fn lost_carries_the_latest_record<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    let at = address("alice", "k-1");
    let mut last = running();
    rig.put(&at, &last).await;
    for attempt in 2..20 {
        let next = Record { attempt, ..running() };
        let stamped = rig.replace(&at, last.version, &next).await;
        let stale = last.version;
        last = next;
        assert_stored(&rig.loses(&at, Some(stale), &running()).await, &last, stamped);
        assert_stored(&rig.loses(&at, None, &running()).await, &last, stamped);
    }
}

pub(super) async fn applied_is_stamped_with_the_time_it_returns<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    let at = address("alice", "k-1");
    let before = rig.get(&at).await.now.at;
    let first = running();
    let stamped = rig.put(&at, &first).await;
    assert!(before <= stamped.at, "time does not run backwards: {before:?}, then {stamped:?}");
    rig.pass_ms(SHORT_MS).await;
    let second = running();
    let again = rig.replace(&at, first.version, &second).await;
    assert!(stamped.at.plus_ms(SHORT_MS) <= again.at, "each write is stamped anew: {stamped:?}, then {again:?}");
    assert_stored(&rig.get(&at).await, &second, again);
}

pub(super) async fn a_record_is_replaced_whole<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    let at = address("alice", "k-1");
    let (full, bare) = (every_field(), Record { attempt_id: None, due_in_ms: None, ..running() });
    rig.put(&at, &full).await;
    let stamped = rig.replace(&at, full.version, &bare).await;
    assert_stored(&rig.get(&at).await, &bare, stamped);
    let full = every_field();
    let stamped = rig.replace(&at, bare.version, &full).await;
    assert_stored(&rig.get(&at).await, &full, stamped);
}

pub(super) async fn records_do_not_touch_each_other<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    let (at, other) = (address("alice", "k-1"), address("alice", "k-2"));
    // The same version at both: a version is compared at its address only.
    let record = running();
    let stamped = rig.put(&at, &record).await;
    assert!(matches!(rig.swap(&other, Some(record.version), &running()).await, Swap::Lost(_)));
    rig.put(&other, &record).await;
    rig.replace(&other, record.version, &completed(1_000_000)).await;
    assert_stored(&rig.get(&at).await, &record, stamped);
}

pub(super) async fn every_handle_reads_what_one_wrote<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    let other = Rig::over(harness, rig.store.clone());
    let at = address("alice", "k-1");
    let mut last = running();
    let mut stamped = rig.put(&at, &last).await;
    for attempt in 2..50 {
        assert_stored(&other.get(&at).await, &last, stamped);
        let next = Record { attempt, ..running() };
        stamped = other.replace(&at, last.version, &next).await;
        assert_stored(&rig.get(&at).await, &next, stamped);
        last = next;
    }
}
