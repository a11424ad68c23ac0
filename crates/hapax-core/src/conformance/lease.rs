//! The rules over the real store: leases, attempts and expiry, counted in the store's own time.
//!
//! The cases run on a fake clock and on a real one alike. So an answer is not compared with what a case believes the
//! time to be, but with the time that the store says it was.

use std::sync::Arc;

use super::harness::Harness;
use super::rig::{Rig, assert_same};
use super::samples::{
    LONG_MS, SHORT_MS, address, attempt_id, every_field, fingerprint, label, other_fingerprint, outcome, policy,
};
use crate::address::Address;
use crate::clock::Timestamp;
use crate::engine::Reply;
use crate::record::{AttemptId, Checkpoint, Labels, OnLapse, Policy, State, Stored, Verdict};
use crate::store::{Scan, Seen};
use crate::transition::{Answer, Claimant, Event, Resolution};

/// How long is waited between two looks.
const STEP_MS: u64 = SHORT_MS / 5;

/// Claims again and again while time passes. Until `moment` the answer must be `before`, from then on `after`.
async fn changes_at<H: Harness>(
    rig: &Rig<'_, H>,
    at: &Address,
    policy: Policy,
    moment: Timestamp,
    (before, after): (Answer, Answer),
) -> Reply {
    for _ in 0..SHORT_MS / STEP_MS + 2 {
        let reply = rig.claim(at, policy).await;
        let now = reply.seen.now.at;
        if reply.answer != before {
            assert_eq!(reply.answer, after, "at {now:?}");
            assert!(now >= moment, "{after:?} came at {now:?}, before {moment:?}");
            return reply;
        }
        assert!(now < moment, "still {before:?} at {now:?}, after {moment:?}");
        rig.pass_ms(STEP_MS).await;
    }
    panic!("{SHORT_MS} ms have passed, and the answer is still {before:?}");
}

fn due_at(seen: &Seen) -> Timestamp {
    seen.stored.as_ref().and_then(Stored::due_at).expect("the record has a due time")
}

fn renew(attempt_id: AttemptId) -> Event<'static> {
    Event::Renew { attempt_id }
}

pub(super) async fn claim_holds_the_key<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    let at = address("alice", "k-1");
    let policy = Policy { lease_ms: LONG_MS, ..policy(OnLapse::Rerun) };
    let (mine, first) = rig.proceeds(&at, policy).await;
    let busy = rig.claim(&at, policy).await;
    assert_eq!(busy.answer, Answer::Busy);
    assert_eq!(busy.seen.stored, first.seen.stored, "a claim that must wait changes nothing");
    assert_eq!(busy.attempt_id(), Some(mine));
    assert!(busy.seen.due_in_ms() > 0, "and says for how long: {:?}", busy.seen);
    assert_eq!(rig.claim(&address("bob", "k-1"), policy).await.answer, Answer::Proceed, "another caller's key is free");
}

pub(super) async fn lapses_after_its_length_and_not_before<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    let at = address("alice", "k-1");
    let (mine, first) = rig.proceeds(&at, policy(OnLapse::Unknown)).await;
    let stamped = rig.stored(&at).await.stamped_at;
    assert_eq!(due_at(&first.seen), stamped.plus_ms(SHORT_MS), "the lease is counted from the stamp");
    let lapsed =
        changes_at(&rig, &at, policy(OnLapse::Unknown), due_at(&first.seen), (Answer::Busy, Answer::Undecided)).await;
    assert_eq!(lapsed.record().map(|record| record.state), Some(State::Unknown));
    assert_eq!(lapsed.attempt_id(), Some(mine), "a lapse does not take the record from its attempt");
}

pub(super) async fn renew_lengthens_it<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    let at = address("alice", "k-1");
    let (mine, first) = rig.proceeds(&at, policy(OnLapse::Unknown)).await;
    rig.pass_ms(SHORT_MS / 2).await;
    let renewed = rig.apply(&at, &renew(mine)).await;
    assert_eq!(renewed.answer, Answer::Done);
    assert!(due_at(&renewed.seen) >= due_at(&first.seen).plus_ms(SHORT_MS / 2), "{:?}", renewed.seen);
    let ends = due_at(&renewed.seen);
    changes_at(&rig, &at, policy(OnLapse::Unknown), ends, (Answer::Busy, Answer::Undecided)).await;
    assert_eq!(rig.apply(&at, &renew(attempt_id())).await.answer, Answer::Fenced, "only its attempt may renew");
}

pub(super) async fn renewed_after_a_lapse_runs_again<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    let at = address("alice", "k-1");
    let (mine, _) = rig.proceeds(&at, policy(OnLapse::Unknown)).await;
    rig.pass_ms(SHORT_MS).await;
    assert_eq!(rig.apply(&at, &Event::Lapse).await.answer, Answer::Undecided);
    let renewed = rig.apply(&at, &renew(mine)).await;
    assert_eq!(renewed.answer, Answer::Done);
    assert_eq!(renewed.record().map(|record| record.state), Some(State::Running), "the attempt lives");
    assert_eq!(rig.complete(&at, mine, b"slow").await.answer, Answer::Done);
}

pub(super) async fn checkpoint_is_handed_to_the_next_attempt<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    let at = address("alice", "k-1");
    let (mine, _) = rig.proceeds(&at, policy(OnLapse::Resume)).await;
    let checkpoint = Checkpoint { name: "charged".to_owned(), data: (0..=255).collect() };
    let kept = rig.apply(&at, &Event::Checkpoint { attempt_id: mine, checkpoint: &checkpoint }).await;
    assert_eq!(kept.answer, Answer::Done);
    rig.pass_ms(SHORT_MS).await;
    let (theirs, resumed) = rig.proceeds(&at, policy(OnLapse::Resume)).await;
    assert_ne!(mine, theirs);
    let record = &rig.stored(&at).await.record;
    assert_eq!(record.attempt, 2);
    assert_eq!(record.checkpoint.as_ref(), Some(&checkpoint));
    assert_same(record, resumed.record().expect("the reply has the record"));
}

pub(super) async fn completed_is_replayed_byte_for_byte<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    let at = address("alice", "k-1");
    let (mine, first) = rig.proceeds(&at, policy(OnLapse::Unknown)).await;
    let outcome = every_field().outcome.expect("it has one");
    let labels = [label("order", "o-1")].into();
    let complete = Event::Complete { attempt_id: mine, outcome: &outcome, labels: &labels };
    let done = rig.engine.apply(&at, &complete, Some(first.seen)).await.expect("it is answered");
    assert_eq!(done.answer, Answer::Done);
    rig.pass_ms(2 * SHORT_MS).await;
    for _ in 0..3 {
        let replay = rig.claim(&at, policy(OnLapse::Unknown)).await;
        assert_eq!(replay.answer, Answer::Replay, "a lease that has passed no longer counts");
        assert_eq!(replay.outcome(), Some(&outcome));
        assert_eq!(replay.seen.stored, done.seen.stored, "a replay changes nothing");
    }
    let found = rig.scan_all(&Scan { label: Some(labels[0].clone()), limit: 10, ..Scan::default() }).await;
    assert_eq!(found.len(), 1, "what the answer taught can be searched for");
}

pub(super) async fn outcome_expires_after_its_retention_and_not_before<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    let at = address("alice", "k-1");
    let short = Policy { retention_ms: SHORT_MS, lease_ms: LONG_MS, ..policy(OnLapse::Unknown) };
    rig.completes(&at, short, b"paid").await;
    let expires_at = rig.stored(&at).await.expires_at().expect("a completed record expires");
    let fresh = changes_at(&rig, &at, short, expires_at, (Answer::Replay, Answer::Proceed)).await;
    let record = fresh.record().expect("the claim wrote a record");
    assert_eq!((record.attempt, &record.outcome), (1, &None), "an expired key starts anew");
}

pub(super) async fn failed_may_run_again_when_it_is_due<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    let at = address("alice", "k-1");
    let (mine, _) = rig.proceeds(&at, policy(OnLapse::Unknown)).await;
    let fail = Event::Fail { attempt_id: mine, error: "refused", retry_in_ms: SHORT_MS, keep_ms: None };
    let failed = rig.apply(&at, &fail).await;
    assert_eq!(failed.answer, Answer::Done);
    assert_eq!(rig.stored(&at).await.record.error.as_deref(), Some("refused"));
    let again =
        changes_at(&rig, &at, policy(OnLapse::Unknown), due_at(&failed.seen), (Answer::Busy, Answer::Proceed)).await;
    assert_eq!(again.record().map(|record| record.attempt), Some(2));
    assert_eq!(rig.complete(&at, mine, b"late").await.answer, Answer::DoubleRun, "it had said that it did nothing");
}

pub(super) async fn dead_when_its_attempts_are_used_up<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    let at = address("alice", "k-1");
    let once = Policy { attempts_max: Some(1), ..policy(OnLapse::Unknown) };
    let (mine, _) = rig.proceeds(&at, once).await;
    let fail = Event::Fail { attempt_id: mine, error: "refused", retry_in_ms: 0, keep_ms: None };
    assert_eq!(rig.apply(&at, &fail).await.record().map(|record| record.state), Some(State::Dead));
    assert_eq!(rig.claim(&at, once).await.answer, Answer::Undecided);
    let resolved =
        rig.apply(&at, &Event::Resolve { resolution: Resolution::DidNotHappen, attempt: None, since: None }).await;
    assert_eq!(resolved.answer, Answer::Done);
    assert_eq!(rig.stored(&at).await.record.verdict, Some(Verdict::DidNotHappen));
    assert_eq!(rig.proceeds(&at, once).await.1.record().map(|record| record.attempt), Some(2));
}

pub(super) async fn doubt_waits_for_a_verdict<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    let at = address("alice", "k-1");
    let (mine, _) = rig.proceeds(&at, policy(OnLapse::Rerun)).await;
    let doubt = Event::Doubt { attempt_id: mine, error: "timeout", probe_in_ms: 0 };
    assert_eq!(rig.apply(&at, &doubt).await.answer, Answer::Done);
    rig.pass_ms(2 * SHORT_MS).await;
    assert_eq!(rig.claim(&at, policy(OnLapse::Rerun)).await.answer, Answer::Undecided, "no time makes it free");
    let outcome = outcome(b"it happened");
    assert_eq!(
        rig.apply(&at, &Event::Resolve { resolution: Resolution::Happened(&outcome), attempt: None, since: None })
            .await
            .answer,
        Answer::Done
    );
    let replay = rig.claim(&at, policy(OnLapse::Rerun)).await;
    assert_eq!((replay.answer, replay.outcome()), (Answer::Replay, Some(&outcome)));
    assert_eq!(rig.complete(&at, mine, b"late").await.answer, Answer::Overruled);
    assert_eq!(rig.stored(&at).await.record.outcome.as_ref(), Some(&outcome));
}

pub(super) async fn late_completion_after_a_lapse_is_recorded<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    let at = address("alice", "k-1");
    let (mine, _) = rig.proceeds(&at, policy(OnLapse::Unknown)).await;
    rig.pass_ms(SHORT_MS).await;
    assert_eq!(rig.claim(&at, policy(OnLapse::Unknown)).await.answer, Answer::Undecided);
    assert_eq!(rig.stored(&at).await.record.state, State::Unknown);
    assert_eq!(rig.complete(&at, mine, b"late").await.answer, Answer::Done, "late truth beats doubt");
    let replay = rig.claim(&at, policy(OnLapse::Unknown)).await;
    assert_eq!((replay.answer, replay.outcome()), (Answer::Replay, Some(&outcome(b"late"))));
}

pub(super) async fn late_completion_after_a_takeover_is_fenced<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    let at = address("alice", "k-1");
    let (mine, first) = rig.proceeds(&at, policy(OnLapse::Rerun)).await;
    rig.pass_ms(SHORT_MS).await;
    let (theirs, second) = rig.proceeds(&at, policy(OnLapse::Rerun)).await;
    assert_eq!(second.record().map(|record| record.attempt), Some(2));
    let outcome_of_first = outcome(b"first");
    let late = Event::Complete { attempt_id: mine, outcome: &outcome_of_first, labels: &Labels::default() };
    let fenced = rig.engine.apply(&at, &late, Some(first.seen)).await.expect("it is answered");
    assert_eq!(fenced.answer, Answer::DoubleRun, "whatever the first attempt last saw");
    assert_eq!(Some(&rig.stored(&at).await), second.seen.stored.as_ref(), "a fenced writer changes nothing");
    for event in [renew(mine), Event::Fail { attempt_id: mine, error: "late", retry_in_ms: 0, keep_ms: None }] {
        assert_eq!(rig.apply(&at, &event).await.answer, Answer::Fenced);
    }
    assert_eq!(rig.complete(&at, theirs, b"second").await.answer, Answer::Done);
    let replay = rig.claim(&at, policy(OnLapse::Rerun)).await;
    assert_eq!(replay.outcome(), Some(&outcome(b"second")));
}

pub(super) async fn mismatch_changes_nothing<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    let at = address("alice", "k-1");
    let (mine, first) = rig.proceeds(&at, policy(OnLapse::Rerun)).await;
    rig.pass_ms(2 * SHORT_MS).await;
    let other = rig.engine.claim(&at, &other_fingerprint(), policy(OnLapse::Rerun)).await.expect("it is answered");
    assert_eq!(other.answer, Answer::Mismatch);
    assert_eq!(Some(&rig.stored(&at).await), first.seen.stored.as_ref());
    rig.complete(&at, mine, b"mine").await;
    let other = rig.engine.claim(&at, &other_fingerprint(), policy(OnLapse::Rerun)).await.expect("it is answered");
    assert_eq!(other.answer, Answer::Mismatch, "a recorded answer is not for another request");
}

pub(super) async fn accepted_request_reaches_a_worker_whole<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    let at = address("alice", "k-1");
    let request: Arc<[u8]> = (0..=255).collect();
    let fingerprint = fingerprint();
    let policy = policy(OnLapse::Unknown);
    let accept = Event::Accept {
        request: &request,
        due_in_ms: 0,
        fingerprints: &fingerprint,
        policy,
        labels: &Labels::default(),
    };
    assert_eq!(rig.apply(&at, &accept).await.answer, Answer::Accepted);
    assert_eq!(rig.claim(&at, policy).await.answer, Answer::Accepted, "a client never runs it inline");
    let claim = Event::Claim {
        by: Claimant::Worker,
        attempt_id: attempt_id(),
        fingerprints: &fingerprint,
        policy,
        labels: &Labels::default(),
    };
    let worker = rig.apply(&at, &claim).await;
    assert_eq!(worker.answer, Answer::Proceed);
    assert_eq!(rig.stored(&at).await.record.request, Some(request));
}

pub(super) async fn tombstone_stands_for_its_time<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    let at = address("alice", "k-1");
    let keeps = Policy {
        retention_ms: SHORT_MS,
        keep_expired_ms: Some(SHORT_MS),
        lease_ms: LONG_MS,
        ..policy(OnLapse::Unknown)
    };
    rig.completes(&at, keeps, b"paid").await;
    let expires_at = rig.stored(&at).await.expires_at().expect("a completed record expires");
    changes_at(&rig, &at, keeps, expires_at, (Answer::Replay, Answer::Gone)).await;
    assert_eq!(rig.apply(&at, &Event::Expire { never_ran: &super::samples::never_ran() }).await.answer, Answer::Done);
    let tombstone = rig.stored(&at).await;
    assert_eq!((tombstone.record.state, &tombstone.record.outcome), (State::Expired, &None));
    let ends_at = tombstone.expires_at().expect("a tombstone ends");
    let fresh = changes_at(&rig, &at, keeps, ends_at, (Answer::Gone, Answer::Proceed)).await;
    assert_eq!(fresh.record().map(|record| record.attempt), Some(1));
}

pub(super) async fn stale_knowledge_is_found_out<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    let at = address("alice", "k-1");
    let (mine, first) = rig.proceeds(&at, policy(OnLapse::Unknown)).await;
    for _ in 0..3 {
        let renewed = rig.engine.apply(&at, &renew(mine), Some(first.seen.clone())).await.expect("it is answered");
        assert_eq!(renewed.answer, Answer::Done, "an attempt is never fenced by its own writes");
    }
    let none = Seen { stored: None, now: first.seen.now };
    let outcome = outcome(b"paid");
    let complete = Event::Complete { attempt_id: mine, outcome: &outcome, labels: &Labels::default() };
    let done = rig.engine.apply(&at, &complete, Some(none)).await.expect("it is answered");
    assert_eq!(done.answer, Answer::Done, "what follows from a guess is checked");
    assert_eq!(rig.stored(&at).await.record.outcome, Some(outcome));
}
