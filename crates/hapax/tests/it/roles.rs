//! Lapse, reap and reconcile over a store in memory whose clock moves only when it is told to.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hapax::reconcile::{NoProbe, Plan, Probe, Probed};
use hapax::tokens::{self, Random};
use hapax::{lapse, reap, reconcile, survey};
use hapax_core::address::{Address, AddressScheme, Key, Scope, Space};
use hapax_core::engine::Engine;
use hapax_core::fingerprint::{Fingerprint, Fingerprinter, Fingerprints, Recipe, Request};
use hapax_core::journal::{Journal, NoteScan};
use hapax_core::limits::CLOCK_SETTLE_MS;
use hapax_core::memory::Memory;
use hapax_core::record::{AttemptId, Body, Labels, OnLapse, Outcome, Policy, Record, State, Stored, Verdict, Version};
use hapax_core::store::{Damaged, Health, Page, Scan, Seen, Store, StoreError, Swap};
use hapax_core::transition::{Answer, Claimant, Event};
use hapax_testkit::clock::FakeClock;
use tokio_util::sync::CancellationToken;

const LEASE_MS: u64 = 30_000;
const SETTLE_MS: u64 = 60_000;

struct Setup {
    clock: FakeClock,
    engine: Engine<Arc<Memory>, Random>,
}

fn setup() -> Setup {
    let clock = FakeClock::default();
    let engine = Engine::new(Arc::new(Memory::with_clock(clock.clone())), tokens::random as Random);
    Setup { clock, engine }
}

fn at(key: &str) -> Address {
    let (space, scope) = (Space::new("http").unwrap(), Scope::new("alice").unwrap());
    Address::new(&AddressScheme::default(), &space, &scope, &Key::new(key).unwrap())
}

fn request() -> Fingerprint {
    Fingerprinter::new(Request::new("POST", "/pay", b"{}"), &Recipe::new(), &[]).unwrap().current()
}

fn outcome(status: u16) -> Arc<Outcome> {
    Arc::new(Outcome { status, headers: Vec::new(), body: Body::Kept(b"paid".to_vec()) })
}

impl Setup {
    async fn claim(&self, key: &str, policy: Policy) -> AttemptId {
        let reply = self.engine.claim(&at(key), &request(), policy).await.unwrap();
        assert_eq!(reply.answer, Answer::Proceed);
        reply.attempt_id().unwrap()
    }

    async fn complete(&self, key: &str, attempt_id: AttemptId) -> Answer {
        let event = Event::Complete { attempt_id, outcome: &outcome(201), labels: &Labels::default() };
        self.engine.apply(&at(key), &event, None).await.unwrap().answer
    }

    /// A key that nobody is sure about since now.
    async fn unknown(&self, key: &str) -> AttemptId {
        let attempt_id = self.claim(key, Policy::default()).await;
        let event = Event::Doubt { attempt_id, error: "timeout", probe_in_ms: 0 };
        assert_eq!(self.engine.apply(&at(key), &event, None).await.unwrap().answer, Answer::Done);
        attempt_id
    }

    async fn stored(&self, key: &str) -> Option<Stored> {
        self.engine.store().get(&at(key)).await.unwrap().stored
    }

    async fn record(&self, key: &str) -> Record {
        self.stored(key).await.unwrap().record
    }

    async fn state(&self, key: &str) -> State {
        self.record(key).await.state
    }
}

/// Says the same every time, and counts.
struct Says {
    probed: Mutex<Probed>,
    asked: AtomicU32,
    plan: Plan,
}

fn says(probed: Probed) -> Says {
    let plan = Plan {
        settle_after: Duration::from_millis(SETTLE_MS),
        attempts_max: 3,
        backoff: Duration::from_secs(4),
        timeout: Duration::from_secs(5),
    };
    Says { probed: Mutex::new(probed), asked: AtomicU32::new(0), plan }
}

impl Says {
    fn asked(&self) -> u32 {
        self.asked.load(Ordering::SeqCst)
    }
}

impl Probe for Says {
    fn plan(&self, _: &Address, _: &Record) -> Option<Plan> {
        Some(self.plan)
    }

    async fn ask(&self, _: &Address, _: &Record) -> Probed {
        self.asked.fetch_add(1, Ordering::SeqCst);
        tokio::task::yield_now().await;
        self.probed.lock().unwrap().clone()
    }
}

fn cannot_tell() -> Probed {
    Probed::CannotTell("500".to_owned())
}

#[tokio::test]
async fn a_lapsed_lease_becomes_unknown_and_no_sooner() {
    let setup = setup();
    setup.claim("a", Policy::default()).await;
    setup.clock.advance_ms(LEASE_MS - 1);
    assert_eq!(lapse::run_once(&setup.engine, 100).await.unwrap().lapsed, 0);
    setup.clock.advance_ms(1);
    assert_eq!(lapse::run_once(&setup.engine, 100).await.unwrap().lapsed, 1);
    assert_eq!(setup.state("a").await, State::Unknown);
    assert_eq!(lapse::run_once(&setup.engine, 100).await.unwrap().lapsed, 0, "it is noticed once");
}

#[tokio::test]
async fn a_lapse_means_what_the_record_says_it_means() {
    let setup = setup();
    setup.claim("rerun", Policy { on_lapse: OnLapse::Rerun, ..Policy::default() }).await;
    setup.claim("last", Policy { on_lapse: OnLapse::Rerun, attempts_max: Some(1), ..Policy::default() }).await;
    setup.clock.advance_ms(LEASE_MS);
    assert_eq!(lapse::run_once(&setup.engine, 100).await.unwrap().lapsed, 2);
    assert_eq!(setup.state("rerun").await, State::Ready);
    assert_eq!(setup.state("last").await, State::Dead);
}

#[tokio::test]
async fn nothing_lapses_by_a_clock_that_was_set() {
    let setup = setup();
    setup.claim("a", Policy::default()).await;
    setup.clock.step_ms(3_600_000);
    assert_eq!(lapse::run_once(&setup.engine, 100).await.unwrap().lapsed, 0);
    assert_eq!(setup.state("a").await, State::Running);
}

#[tokio::test]
async fn more_than_the_limit_is_left_for_the_next_sweep() {
    let setup = setup();
    for key in 0..25 {
        setup.claim(&format!("k{key}"), Policy::default()).await;
    }
    setup.clock.advance_ms(LEASE_MS);
    let mut lapsed = 0;
    for sweep in 0..5 {
        let report = lapse::run_once(&setup.engine, 5).await.unwrap();
        assert!(report.left.more, "sweep {sweep}");
        lapsed += report.lapsed;
    }
    assert_eq!(lapsed, 25);
    assert_eq!(lapse::run_once(&setup.engine, 5).await.unwrap(), lapse::Report::default());
}

/// A store in which one record is damaged.
struct Scratched(Arc<Memory>);

impl Store for Scratched {
    async fn swap(&self, at: &Address, expect: Option<Version>, next: &Record) -> Result<Swap, StoreError> {
        self.0.swap(at, expect, next).await
    }
    async fn get(&self, at: &Address) -> Result<Seen, StoreError> {
        self.0.get(at).await
    }
    async fn scan(&self, query: &Scan) -> Result<Page, StoreError> {
        let mut page = self.0.scan(query).await?;
        if query.after.is_none() {
            page.damaged.push(Damaged { id: None, scope: None, key: None, reason: "a byte was changed".to_owned() });
        }
        Ok(page)
    }
    async fn reap(&self, limit: u32) -> Result<u32, StoreError> {
        self.0.reap(limit).await
    }
    async fn health(&self) -> Result<Health, StoreError> {
        self.0.health().await
    }
}

#[tokio::test]
async fn a_damaged_record_is_reported_and_the_others_are_swept() {
    let setup = setup();
    for key in 0..20 {
        setup.claim(&format!("k{key}"), Policy::default()).await;
    }
    setup.clock.advance_ms(LEASE_MS);
    let engine = Engine::new(Scratched(Arc::clone(setup.engine.store())), tokens::random as Random);
    let report = lapse::run_once(&engine, 1000).await.unwrap();
    assert_eq!((report.lapsed, report.left.damaged.len()), (20, 1));
    assert_eq!(reap::run_once(&engine, 1000).await.unwrap().left.damaged.len(), 2, "one per walk");
}

#[tokio::test]
async fn of_several_nodes_one_notices_a_lapse() {
    let setup = setup();
    for key in 0..100 {
        setup.claim(&format!("k{key}"), Policy::default()).await;
    }
    setup.clock.advance_ms(LEASE_MS);
    let sweep = || lapse::run_once(&setup.engine, 1000);
    let (one, other, third) = tokio::join!(sweep(), sweep(), sweep());
    assert_eq!(one.unwrap().lapsed + other.unwrap().lapsed + third.unwrap().lapsed, 100);
}

#[tokio::test]
async fn an_attempt_that_ends_after_the_sweep_settles_its_own_doubt() {
    let setup = setup();
    let attempt_id = setup.claim("a", Policy::default()).await;
    setup.clock.advance_ms(LEASE_MS);
    lapse::run_once(&setup.engine, 100).await.unwrap();
    assert_eq!(setup.complete("a", attempt_id).await, Answer::Done);
    assert_eq!(setup.state("a").await, State::Completed);
}

#[tokio::test]
async fn what_has_expired_is_deleted_and_what_is_unfinished_never_is() {
    let setup = setup();
    let done = setup.claim("done", Policy::default()).await;
    setup.complete("done", done).await;
    let failed = setup.claim("ready", Policy::default()).await;
    let event = Event::Fail { attempt_id: failed, error: "refused", retry_in_ms: 0, keep_ms: None };
    setup.engine.apply(&at("ready"), &event, None).await.unwrap();
    setup.claim("running", Policy::default()).await;
    setup.unknown("unknown").await;
    setup.clock.advance_ms(Policy::default().retention_ms - 1);
    assert_eq!(reap::run_once(&setup.engine, 100).await.unwrap(), reap::Report::default());
    setup.clock.advance_ms(1);
    let report = reap::run_once(&setup.engine, 100).await.unwrap();
    assert_eq!((report.reaped, report.expired, report.never_ran), (2, 0, 0));
    setup.clock.advance_ms(10 * Policy::default().retention_ms);
    assert_eq!(reap::run_once(&setup.engine, 100).await.unwrap().reaped, 0);
    for key in ["running", "unknown"] {
        assert!(setup.stored(key).await.is_some(), "{key}");
    }
}

#[tokio::test]
async fn a_kept_key_becomes_a_tombstone_and_is_deleted_after_it() {
    let setup = setup();
    let policy = Policy { keep_expired_ms: Some(1_000_000), ..Policy::default() };
    let attempt_id = setup.claim("a", policy).await;
    setup.complete("a", attempt_id).await;
    setup.clock.advance_ms(policy.retention_ms);
    let report = reap::run_once(&setup.engine, 100).await.unwrap();
    assert_eq!((report.reaped, report.expired), (0, 1));
    let record = setup.record("a").await;
    assert_eq!((record.state, record.outcome), (State::Expired, None));
    let retry = setup.engine.claim(&at("a"), &request(), policy).await.unwrap();
    assert_eq!(retry.answer, Answer::Gone);
    assert_eq!(reap::run_once(&setup.engine, 100).await.unwrap(), reap::Report::default(), "once");
    setup.clock.advance_ms(1_000_000);
    assert_eq!(reap::run_once(&setup.engine, 100).await.unwrap().reaped, 1);
    assert_eq!(setup.stored("a").await, None);
}

/// Work at "a", to be done by a worker.
async fn accept(setup: &Setup, policy: Policy) {
    let work: Arc<[u8]> = Arc::from(&b"POST /pay"[..]);
    let event =
        Event::Accept { request: &work, due_in_ms: 0, fingerprints: &request(), policy, labels: &Labels::default() };
    assert_eq!(setup.engine.apply(&at("a"), &event, None).await.unwrap().answer, Answer::Accepted);
}

#[tokio::test]
async fn accepted_work_that_never_ran_is_answered_with_408_before_it_goes() {
    let setup = setup();
    accept(&setup, Policy::default()).await;
    assert_eq!(reap::run_once(&setup.engine, 100).await.unwrap(), reap::Report::default(), "it is due, not expired");
    setup.clock.advance_ms(Policy::default().retention_ms);
    let report = reap::run_once(&setup.engine, 100).await.unwrap();
    assert_eq!((report.reaped, report.never_ran), (0, 1));
    let retry = setup.engine.claim(&at("a"), &request(), Policy::default()).await.unwrap();
    assert_eq!((retry.answer, retry.outcome().unwrap().status), (Answer::Replay, 408));
    setup.clock.advance_ms(Policy::default().retention_ms);
    assert_eq!(reap::run_once(&setup.engine, 100).await.unwrap().reaped, 1);
}

#[tokio::test]
async fn accepted_work_that_may_have_run_is_not_said_to_have_never_run() {
    let setup = setup();
    let policy = Policy { on_lapse: OnLapse::Rerun, ..Policy::default() };
    accept(&setup, policy).await;
    let event = Event::Claim {
        by: Claimant::Worker,
        attempt_id: AttemptId::from_bytes(tokens::random()),
        fingerprints: &request(),
        policy,
        labels: &Labels::default(),
    };
    assert_eq!(setup.engine.apply(&at("a"), &event, None).await.unwrap().answer, Answer::Proceed);
    setup.clock.advance_ms(LEASE_MS);
    lapse::run_once(&setup.engine, 100).await.unwrap();
    assert_eq!(setup.state("a").await, State::Ready, "a worker may try again");
    setup.clock.advance_ms(policy.retention_ms);
    let report = reap::run_once(&setup.engine, 100).await.unwrap();
    assert_eq!((report.in_doubt, report.never_ran), (1, 0));
    assert_eq!(setup.state("a").await, State::Unknown, "nobody did");
    assert_eq!(
        reap::run_once(&setup.engine, 100).await.unwrap(),
        reap::Report::default(),
        "it stays until it is resolved"
    );
}

#[tokio::test]
async fn the_reaper_looks_through_many_ready_records_in_turns() {
    let setup = setup();
    let ready = |retention_ms, work: Option<Arc<[u8]>>| {
        let policy = Policy { retention_ms, keep_expired_ms: Some(1), ..Policy::default() };
        let new = Record::new(Version::from_bytes(tokens::random()), State::Ready, request(), policy);
        Record { attempt: 1, due_in_ms: Some(0), expires_in_ms: Some(retention_ms), request: work, ..new }
    };
    for key in 0..20_500 {
        setup.engine.store().swap(&at(&format!("k{key}")), None, &ready(1_000_000, None)).await.unwrap();
    }
    setup.clock.advance_ms(1);
    setup.engine.store().swap(&at("last"), None, &ready(100, Some(Arc::from(&b"POST /pay"[..])))).await.unwrap();
    setup.clock.advance_ms(100);
    let mut reaper = reap::Reaper::default();
    assert_eq!(reaper.run_once(&setup.engine, 500).await.unwrap().never_ran, 0, "it is not looked at yet");
    assert_eq!(reaper.run_once(&setup.engine, 500).await.unwrap().never_ran, 1);
    assert_eq!(reaper.run_once(&setup.engine, 500).await.unwrap().never_ran, 0, "and from the front again");
}

#[tokio::test]
async fn many_are_reaped_in_batches() {
    let setup = setup();
    for key in 0..25 {
        let attempt_id = setup.claim(&format!("k{key}"), Policy::default()).await;
        setup.complete(&format!("k{key}"), attempt_id).await;
    }
    setup.clock.advance_ms(Policy::default().retention_ms);
    let mut reports = Vec::new();
    for _ in 0..3 {
        let report = reap::run_once(&setup.engine, 10).await.unwrap();
        reports.push((report.reaped, report.left.more));
    }
    assert_eq!(reports, [(10, true), (10, true), (5, false)]);
}

#[tokio::test]
async fn what_happened_is_recorded_at_once_and_noted() {
    let setup = setup();
    let attempt_id = setup.unknown("a").await;
    let probe = says(Probed::Happened(outcome(201)));
    assert_eq!(reconcile::run_once(&setup.engine, &probe, 100).await.unwrap().resolved, 1);
    let record = setup.record("a").await;
    assert_eq!((record.state, record.verdict), (State::Completed, Some(Verdict::Happened)));
    let notes = setup.engine.store().notes(&NoteScan { limit: 10, ..NoteScan::default() }).await.unwrap();
    let [noted] = notes.as_slice() else { panic!("one note, not {}", notes.len()) };
    assert_eq!((noted.note.who.as_str(), noted.note.what.as_str()), ("reconcile", "resolve"));
    assert_eq!((noted.note.before, noted.note.after), (Some(State::Unknown), Some(State::Completed)));
    assert_eq!(
        setup.complete("a", attempt_id).await,
        Answer::Overruled,
        "the attempt itself comes too late, and says so"
    );
}

#[tokio::test]
async fn that_it_did_not_happen_counts_only_after_settling() {
    let setup = setup();
    let attempt_id = setup.unknown("a").await;
    let probe = says(Probed::DidNotHappen);
    setup.clock.advance_ms(SETTLE_MS - 1);
    let report = reconcile::run_once(&setup.engine, &probe, 100).await.unwrap();
    assert_eq!((report.too_soon, report.resolved), (1, 0));
    assert_eq!((setup.state("a").await, setup.stored("a").await.unwrap().record.due_in_ms), (State::Unknown, Some(1)));
    assert_eq!(reconcile::run_once(&setup.engine, &probe, 100).await.unwrap(), reconcile::Report::default());
    setup.clock.advance_ms(1);
    assert_eq!(reconcile::run_once(&setup.engine, &probe, 100).await.unwrap().resolved, 1);
    assert_eq!(setup.state("a").await, State::Ready);
    assert_eq!(setup.record("a").await.doubt, None);
    assert_eq!(setup.complete("a", attempt_id).await, Answer::Contradicted, "late truth beats a wrong verdict");
}

#[tokio::test]
async fn settling_counts_from_the_first_doubt_and_not_from_the_last_probe() {
    let setup = setup();
    setup.unknown("a").await;
    let probe = says(cannot_tell());
    for _ in 0..2 {
        assert_eq!(reconcile::run_once(&setup.engine, &probe, 100).await.unwrap().scheduled, 1);
        setup.clock.advance_ms(SETTLE_MS / 2);
    }
    *probe.probed.lock().unwrap() = Probed::DidNotHappen;
    assert_eq!(reconcile::run_once(&setup.engine, &probe, 100).await.unwrap().resolved, 1);
}

#[tokio::test]
async fn what_cannot_be_told_is_asked_again_later_and_later_until_a_person_has_to() {
    let setup = setup();
    setup.unknown("a").await;
    let probe = says(cannot_tell());
    for most_ms in [4_000, 8_000] {
        assert_eq!(reconcile::run_once(&setup.engine, &probe, 100).await.unwrap().scheduled, 1);
        let due_in_ms = setup.record("a").await.due_in_ms.unwrap();
        assert!(due_in_ms >= most_ms * 3 / 4 && due_in_ms <= most_ms, "{due_in_ms} of {most_ms}");
        assert_eq!(reconcile::run_once(&setup.engine, &probe, 100).await.unwrap(), reconcile::Report::default());
        setup.clock.advance_ms(most_ms);
    }
    let report = reconcile::run_once(&setup.engine, &probe, 100).await.unwrap();
    assert_eq!((report.failed, report.scheduled), (1, 0));
    assert_eq!((setup.state("a").await, probe.asked()), (State::Dead, 3));
    setup.clock.advance_ms(1_000_000);
    assert_eq!(reconcile::run_once(&setup.engine, &probe, 100).await.unwrap(), reconcile::Report::default());
    assert_eq!(probe.asked(), 3, "the dead are left to people");
}

#[tokio::test]
async fn a_probe_that_came_too_soon_does_not_count_against_the_record() {
    let setup = setup();
    setup.unknown("a").await;
    let probe = says(Probed::DidNotHappen);
    for _ in 0..10 {
        let report = reconcile::run_once(&setup.engine, &probe, 100).await.unwrap();
        assert!(report.too_soon == 1 || report == reconcile::Report::default(), "{report:?}");
        setup.clock.advance_ms(SETTLE_MS / 100);
    }
    assert_eq!(setup.record("a").await.doubt.unwrap().probes, 0);
}

#[tokio::test]
async fn of_several_nodes_one_probes() {
    let setup = setup();
    for key in 0..40 {
        setup.unknown(&format!("k{key}")).await;
    }
    let probe = says(cannot_tell());
    let sweep = || reconcile::run_once(&setup.engine, &probe, 1000);
    let (one, other, third) = tokio::join!(sweep(), sweep(), sweep());
    assert_eq!(one.unwrap().scheduled + other.unwrap().scheduled + third.unwrap().scheduled, 40);
    assert_eq!(probe.asked(), 40);
    for key in 0..40 {
        assert_eq!(setup.record(&format!("k{key}")).await.doubt.unwrap().probes, 1);
    }
}

#[tokio::test]
async fn nothing_is_probed_or_settled_by_a_clock_that_was_set() {
    let setup = setup();
    setup.unknown("a").await;
    setup.clock.step_ms(3_600_000);
    let probe = says(Probed::DidNotHappen);
    assert_eq!(reconcile::run_once(&setup.engine, &probe, 100).await.unwrap(), reconcile::Report::default());
    assert_eq!((probe.asked(), setup.state("a").await), (0, State::Unknown));
}

/// Says that it did not happen; meanwhile somebody sets the clock.
struct Stepped<'a> {
    clock: &'a FakeClock,
    steps: AtomicU32,
}

impl Probe for Stepped<'_> {
    /// Between the look at what is due and the swap that puts the next probe off.
    fn plan(&self, at: &Address, record: &Record) -> Option<Plan> {
        if self.steps.fetch_add(1, Ordering::SeqCst) == 0 {
            self.clock.step_ms(3_600_000);
        }
        says(cannot_tell()).plan(at, record)
    }

    async fn ask(&self, _: &Address, _: &Record) -> Probed {
        Probed::DidNotHappen
    }
}

#[tokio::test]
async fn no_age_is_old_enough_while_the_clock_is_not_trusted() {
    let setup = setup();
    setup.unknown("a").await;
    setup.clock.advance_ms(10 * SETTLE_MS);
    let probe = Stepped { clock: &setup.clock, steps: AtomicU32::new(0) };
    let report = reconcile::run_once(&setup.engine, &probe, 100).await.unwrap();
    assert_eq!((report.too_soon, report.resolved, setup.state("a").await), (1, 0, State::Unknown));
    assert_eq!(reconcile::run_once(&setup.engine, &probe, 100).await.unwrap(), reconcile::Report::default());
    setup.clock.advance_ms(CLOCK_SETTLE_MS);
    assert_eq!(reconcile::run_once(&setup.engine, &probe, 100).await.unwrap().resolved, 1, "once it is again");
}

/// While it is asked, the attempt ends, and another one starts and gets into doubt.
struct Overtaken<'a> {
    setup: &'a Setup,
    attempt_id: AttemptId,
}

impl Probe for Overtaken<'_> {
    fn plan(&self, at: &Address, record: &Record) -> Option<Plan> {
        says(cannot_tell()).plan(at, record)
    }

    async fn ask(&self, at: &Address, _: &Record) -> Probed {
        let event = Event::Fail { attempt_id: self.attempt_id, error: "refused", retry_in_ms: 0, keep_ms: None };
        self.setup.engine.apply(at, &event, None).await.unwrap();
        self.setup.unknown(at.key().as_str()).await;
        Probed::Happened(outcome(201))
    }
}

#[tokio::test]
async fn a_probe_never_settles_another_attempt_than_the_one_it_asked_about() {
    let setup = setup();
    let attempt_id = setup.unknown("a").await;
    let probe = Overtaken { setup: &setup, attempt_id };
    assert_eq!(reconcile::run_once(&setup.engine, &probe, 1).await.unwrap().resolved, 0);
    let record = setup.record("a").await;
    assert_eq!((record.state, record.attempt, record.verdict), (State::Unknown, 2, None));
}

struct Hangs;

impl Probe for Hangs {
    fn plan(&self, at: &Address, record: &Record) -> Option<Plan> {
        says(cannot_tell()).plan(at, record)
    }

    async fn ask(&self, _: &Address, _: &Record) -> Probed {
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_hangs_is_one_that_cannot_tell() {
    let setup = setup();
    setup.unknown("a").await;
    assert_eq!(reconcile::run_once(&setup.engine, &Hangs, 100).await.unwrap().scheduled, 1);
    assert_eq!(setup.record("a").await.doubt.unwrap().probes, 1);
}

#[tokio::test]
async fn a_node_that_dies_in_a_probe_is_followed_by_another() {
    let setup = setup();
    setup.unknown("a").await;
    {
        let dying = reconcile::run_once(&setup.engine, &Hangs, 100);
        assert!(futures_util::poll!(std::pin::pin!(dying)).is_pending());
    }
    let probe = says(Probed::Happened(outcome(201)));
    assert_eq!(reconcile::run_once(&setup.engine, &probe, 100).await.unwrap(), reconcile::Report::default());
    setup.clock.advance_ms(6_000);
    assert_eq!(reconcile::run_once(&setup.engine, &probe, 100).await.unwrap().resolved, 1);
}

/// Hangs for whatever is slow, and finds the rest at once.
#[derive(Default)]
struct Uneven {
    slow: AtomicU32,
}

impl Probe for Uneven {
    fn plan(&self, at: &Address, record: &Record) -> Option<Plan> {
        says(cannot_tell()).plan(at, record).map(|plan| Plan { timeout: Duration::from_secs(300), ..plan })
    }

    fn share(&self, at: &Address, _: &Record) -> Arc<str> {
        Arc::from(at.key().as_str().split('-').next().unwrap())
    }

    async fn ask(&self, at: &Address, _: &Record) -> Probed {
        if at.key().as_str().starts_with("quick") {
            return Probed::Happened(outcome(201));
        }
        self.slow.fetch_add(1, Ordering::SeqCst);
        std::future::pending().await
    }
}

const EVERY: Duration = Duration::from_secs(1);

/// Sweeps beside, until this is done. It must be, before a probe could have timed out.
async fn while_sweeping<P: Probe>(setup: &Setup, probe: &P, done: impl Future<Output = ()>) {
    let ending = CancellationToken::new();
    tokio::select! {
        () = reconcile::run(&setup.engine, probe, EVERY, &ending) => panic!("nobody ended it"),
        done = tokio::time::timeout(Duration::from_secs(100), done) => done.expect("it is done in time"),
    }
}

/// Waits until a key has an answer, and says how long that took.
async fn settled(setup: &Setup, key: &str) -> Duration {
    let begun = tokio::time::Instant::now();
    while setup.state(key).await != State::Completed {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    begun.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_share_whose_probes_hang_does_not_hold_up_another() {
    let (setup, probe) = (setup(), Uneven::default());
    setup.unknown("slow-0").await;
    while_sweeping(&setup, &probe, async {
        while probe.slow.load(Ordering::SeqCst) < 1 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        for key in 1..40 {
            setup.unknown(&format!("slow-{key}")).await;
        }
        while probe.slow.load(Ordering::SeqCst) < 16 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        for key in ["quick-1", "quick-2", "quick-3", "quick-4"] {
            setup.unknown(key).await;
            let took = settled(&setup, key).await;
            assert!(took <= EVERY + EVERY / 2, "{key}: {took:?}");
        }
    })
    .await;
    assert_eq!(probe.slow.load(Ordering::SeqCst), 16, "so many of a share at a time");
}

#[tokio::test(start_paused = true)]
async fn what_is_due_behind_very_many_of_a_share_that_hangs_is_found() {
    let (setup, probe) = (setup(), Uneven::default());
    for key in 0..10_100 {
        setup.unknown(&format!("slow-{key}")).await;
    }
    setup.clock.advance_ms(1);
    setup.unknown("quick-1").await;
    while_sweeping(&setup, &probe, async {
        let took = settled(&setup, "quick-1").await;
        assert!(took <= EVERY * 3, "{took:?}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn more_than_a_sweep_takes_is_gone_on_with_at_once() {
    let setup = setup();
    for key in 0..1200 {
        setup.unknown(&format!("quick-{key}")).await;
    }
    let begun = tokio::time::Instant::now();
    while_sweeping(&setup, &Uneven::default(), async {
        while survey::run_once(setup.engine.store()).await.unwrap().unknown > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    assert!(begun.elapsed() < EVERY, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_record_that_nobody_can_probe_is_left_alone_for_a_while() {
    let setup = setup();
    setup.unknown("a").await;
    assert_eq!(reconcile::run_once(&setup.engine, &NoProbe, 100).await.unwrap().unprobed, 1);
    assert_eq!(reconcile::run_once(&setup.engine, &NoProbe, 100).await.unwrap(), reconcile::Report::default());
    assert_eq!(setup.state("a").await, State::Unknown);
    assert_eq!(setup.record("a").await.doubt.unwrap().probes, 0);
    setup.clock.advance_ms(600_000);
    let probe = says(Probed::Happened(outcome(402)));
    assert_eq!(reconcile::run_once(&setup.engine, &probe, 100).await.unwrap().resolved, 1, "once there is a probe");
}

#[tokio::test]
async fn an_answer_that_no_record_holds_is_one_that_cannot_tell() {
    let setup = setup();
    setup.unknown("a").await;
    let body = Body::Kept(vec![0; hapax_core::limits::BODY_BYTES_MAX + 1]);
    let probe = says(Probed::Happened(Arc::new(Outcome { status: 200, headers: Vec::new(), body })));
    assert_eq!(reconcile::run_once(&setup.engine, &probe, 100).await.unwrap().scheduled, 1);
}

#[tokio::test]
async fn a_survey_counts_what_waits_and_for_how_long() {
    let setup = setup();
    assert_eq!(survey::run_once(setup.engine.store()).await.unwrap(), survey::Waiting::default());
    setup.unknown("old").await;
    setup.clock.advance_ms(5_000);
    setup.unknown("new").await;
    setup.claim("last", Policy { on_lapse: OnLapse::Rerun, attempts_max: Some(1), ..Policy::default() }).await;
    setup.clock.advance_ms(LEASE_MS);
    lapse::run_once(&setup.engine, 100).await.unwrap();
    let waiting = survey::run_once(setup.engine.store()).await.unwrap();
    assert_eq!(waiting, survey::Waiting { unknown: 2, dead: 1, oldest_unknown_ms: LEASE_MS + 5_000 });
    setup.clock.step_ms(3_600_000);
    let waiting = survey::run_once(setup.engine.store()).await.unwrap();
    assert_eq!(waiting, survey::Waiting { unknown: 2, dead: 1, oldest_unknown_ms: 0 }, "no age is trusted");
}
