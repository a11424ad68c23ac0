//! Store time across restarts of the process and of the host: it goes on, whatever the wall clock says.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

mod common;

use hapax_core::limits::CLOCK_SETTLE_MS;
use hapax_core::record::{Policy, State};
use hapax_core::store::Store;
use hapax_core::transition::{Answer, Event};
use hapax_sqlite::{Options, Sqlite};
use hapax_testkit::clock::FakeClock;

use common::{address, claim, claim_and_complete, engine};

const HOUR_MS: i64 = 3_600_000;

fn open(dir: &std::path::Path, clock: &FakeClock) -> Sqlite {
    Sqlite::open(Options::new(dir.join("hapax.db")).with_clock(clock.clone())).unwrap()
}

#[tokio::test]
async fn a_process_started_after_a_step_has_the_time_of_the_one_before() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), FakeClock::default());
    let first = engine(open(dir.path(), &clock));
    let held = claim(&first, "k").await;
    clock.step_ms(HOUR_MS);
    clock.advance_ms(1_000);
    let second = engine(open(dir.path(), &clock));
    let reply = claim(&second, "k").await;
    assert_eq!(reply.answer, Answer::Busy, "the lease has 29 seconds left");
    assert_eq!(reply.seen.now.at, held.seen.now.at.plus_ms(1_000));
}

#[tokio::test]
async fn a_host_started_with_its_clock_behind_goes_on_from_the_records() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), FakeClock::default());
    let before = engine(open(dir.path(), &clock));
    claim_and_complete(&before, "done").await;
    let held = claim(&before, "running").await;
    drop(before);
    clock.reboot_ms(-HOUR_MS);
    let after = engine(open(dir.path(), &clock));
    let reply = claim(&after, "running").await;
    assert_eq!(reply.answer, Answer::Busy);
    assert!(reply.seen.now.at >= held.seen.now.at, "time does not run back");
    assert!(reply.seen.now.paused);
    assert_eq!(claim(&after, "done").await.answer, Answer::Replay);
    let health = after.store().health().await.unwrap();
    assert_eq!(health.clock.stepped_by_ms, -HOUR_MS);
    assert!(health.clock.paused);

    clock.advance_ms(CLOCK_SETTLE_MS + Policy::default().lease_ms);
    assert!(!after.store().health().await.unwrap().clock.paused);
    let reply = after.apply(&address("running"), &Event::Lapse, None).await.unwrap();
    assert_eq!(reply.answer, Answer::Undecided, "when the clock has settled, leases lapse again");
    assert_eq!(reply.record().unwrap().state, State::Unknown);
}

#[tokio::test]
async fn a_clock_that_was_corrected_frees_no_key_when_the_host_starts_anew() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), FakeClock::default());
    let before = engine(open(dir.path(), &clock));
    clock.step_ms(25 * HOUR_MS);
    clock.advance_ms(CLOCK_SETTLE_MS);
    claim_and_complete(&before, "done").await;
    drop(before);
    clock.reboot_ms(60_000);
    let after = engine(open(dir.path(), &clock));
    assert_eq!(claim(&after, "done").await.answer, Answer::Replay, "it was done a minute ago");
    clock.advance_ms(CLOCK_SETTLE_MS);
    assert_eq!(claim(&after, "done").await.answer, Answer::Replay, "also when the clock is trusted again");
    assert_eq!(after.store().health().await.unwrap().clock.stepped_by_ms, 25 * HOUR_MS);
}

#[tokio::test]
async fn a_host_that_was_off_for_an_hour_knows_it() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), FakeClock::default());
    let before = engine(open(dir.path(), &clock));
    let held = claim(&before, "k").await;
    drop(before);
    clock.reboot_ms(HOUR_MS);
    let after = engine(open(dir.path(), &clock));
    let reply = claim(&after, "k").await;
    assert_eq!(reply.answer, Answer::Undecided, "the lease lapsed while the host was off");
    assert_eq!(reply.seen.now.at, held.seen.now.at.plus_ms(HOUR_MS as u64));
}
