//! The engine asks the store as little as it can, believes its own writes only when it has seen them, and repeats none
//! that may be there.
//!
//! The first half runs it over a store that says what a script tells it to, and counts what it was asked. The second
//! half runs it over the reference store, until every kind of answer has been given.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

use std::collections::{BTreeSet, VecDeque};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::task::{Context, Poll, Waker};

use hapax_core::address::{Address, AddressScheme, Key, Scope, Space};
use hapax_core::clock::{Now, Timestamp};
use hapax_core::engine::{Engine, EngineError, Reply, Tokens};
use hapax_core::fingerprint::{Fingerprint, Scheme};
use hapax_core::limits::{BODY_BYTES_MAX, LABEL_COUNT_MAX, SWAP_TRIES_MAX};
use hapax_core::memory::Memory;
use hapax_core::record::{
    AttemptId, Body, Checkpoint, Label, Labels, OnLapse, Outcome, Policy, Record, State, Stored, Version,
};
use hapax_core::store::{ErrorKind, Health, Page, Scan, Seen, Store, StoreError, Swap};
use hapax_core::transition::{Answer, Claimant, Event, Resolution};
use hapax_testkit::clock::FakeClock;

const MINE: AttemptId = AttemptId::from_bytes([0xaa; 16]);
const THEIRS: AttemptId = AttemptId::from_bytes([0xbb; 16]);
const NOW: Now = Now::steady(Timestamp::from_ms(50_000));

/// Neither store ever waits, so one poll is enough.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the engine waited for something other than its store"),
    }
}

/// Tokens that are all different, and none that a test chose: 1, 2, 3.
#[derive(Default)]
struct Counted(AtomicU64);

impl Tokens for Counted {
    fn draw(&self) -> [u8; 16] {
        u128::from(1 + self.0.fetch_add(1, Ordering::Relaxed)).to_le_bytes()
    }
}

fn at() -> Address {
    let scheme = AddressScheme::default();
    Address::new(&scheme, &Space::new("http").unwrap(), &Scope::new("alice").unwrap(), &Key::new("k-1").unwrap())
}

fn fingerprint(digest: u8) -> Fingerprint {
    Fingerprint { scheme: Scheme::new("1;sha256").unwrap(), digest: [digest; 32] }
}

static SAME: LazyLock<Fingerprint> = LazyLock::new(|| fingerprint(7));
static OTHER: LazyLock<Fingerprint> = LazyLock::new(|| fingerprint(8));
static REQUEST: LazyLock<Arc<[u8]>> = LazyLock::new(|| Arc::from(&b"POST /pay"[..]));
static CHECKPOINT: LazyLock<Checkpoint> =
    LazyLock::new(|| Checkpoint { name: "charged".to_owned(), data: vec![0, 255] });
static PAID: LazyLock<Arc<Outcome>> = LazyLock::new(|| {
    let headers = vec![(b"content-type".to_vec(), b"text/plain".to_vec())];
    Arc::new(Outcome { status: 201, headers, body: Body::Kept(b"paid".to_vec()) })
});

static NO_LABELS: LazyLock<Labels> = LazyLock::new(Labels::default);

fn claims(by: Claimant, attempt_id: AttemptId, fingerprints: &'static Fingerprint) -> Event<'static> {
    Event::Claim { by, attempt_id, fingerprints, policy: Policy::default(), labels: &NO_LABELS }
}

macro_rules! events {
    ($($name:ident($($argument:ident: $type:ty),*) => $event:expr;)*) => {
        $(fn $name($($argument: $type),*) -> Event<'static> { $event })*
    };
}

events! {
    claim(attempt_id: AttemptId) => claims(Claimant::Client, attempt_id, &SAME);
    claim_other(attempt_id: AttemptId) => claims(Claimant::Client, attempt_id, &OTHER);
    worker(attempt_id: AttemptId) => claims(Claimant::Worker, attempt_id, &SAME);
    accept(due_in_ms: u64) =>
        Event::Accept { request: &REQUEST, due_in_ms, fingerprints: &*SAME, policy: Policy::default(), labels: &NO_LABELS };
    renew(attempt_id: AttemptId) => Event::Renew { attempt_id };
    checkpoint(attempt_id: AttemptId) => Event::Checkpoint { attempt_id, checkpoint: &CHECKPOINT };
    complete(attempt_id: AttemptId) => Event::Complete { attempt_id, outcome: &PAID, labels: &NO_LABELS };
    fail(attempt_id: AttemptId, retry_in_ms: u64) => Event::Fail { attempt_id, error: "refused", retry_in_ms, keep_ms: None };
    doubt(attempt_id: AttemptId) => Event::Doubt { attempt_id, error: "timeout", probe_in_ms: 5_000 };
    happened() => Event::Resolve { resolution: Resolution::Happened(&PAID), attempt: None, since: None };
    did_not_happen() => Event::Resolve { resolution: Resolution::DidNotHappen, attempt: None, since: None };
    expire() => Event::Expire { never_ran: &PAID };
    give_up() => Event::Resolve { resolution: Resolution::GiveUp(&PAID), attempt: None, since: None };
}

mod over_a_script {
    use super::*;

    /// What the store says next, to a swap or a get.
    #[derive(Debug)]
    #[expect(clippy::large_enum_variant, reason = "a script is short")]
    enum Says {
        /// The swap was applied.
        Applied,
        /// This stands there: the swap is lost, the get finds it.
        Stands(Seen),
        /// What the engine wrote with that swap, counted from 0, stands there.
        StandsOwn(usize),
        /// It failed.
        Fails(ErrorKind),
    }

    use Says::{Applied, Fails, Stands, StandsOwn};

    const AMBIGUOUS: Says = Fails(ErrorKind::Ambiguous);
    const NOTHING: Seen = Seen { stored: None, now: NOW };

    type Swapped = (Option<Version>, Record);

    #[derive(Default)]
    struct Scripted {
        script: Mutex<VecDeque<Says>>,
        asked: Mutex<Vec<&'static str>>,
        /// The version each swap expected, and the record it was to write.
        swaps: Mutex<Vec<Swapped>>,
    }

    impl Scripted {
        fn next(&self, op: &'static str) -> Result<Option<Seen>, StoreError> {
            self.asked.lock().unwrap().push(op);
            match self.script.lock().unwrap().pop_front() {
                Some(Applied) => Ok(None),
                Some(Stands(seen)) => Ok(Some(seen)),
                Some(StandsOwn(swap)) => Ok(Some(standing(self.swaps.lock().unwrap()[swap].1.clone()))),
                Some(Fails(kind)) => Err(StoreError::new(op, kind, "as scripted").caused_by("its author")),
                None => panic!("the engine asks for one {op} too many"),
            }
        }
    }

    impl Store for Scripted {
        async fn swap(&self, _: &Address, expect: Option<Version>, next: &Record) -> Result<Swap, StoreError> {
            self.swaps.lock().unwrap().push((expect, next.clone()));
            Ok(self.next("swap")?.map_or(Swap::Applied(NOW), Swap::Lost))
        }

        async fn get(&self, _: &Address) -> Result<Seen, StoreError> {
            Ok(self.next("get")?.expect("the script has a swap here, not a get"))
        }

        async fn scan(&self, _: &Scan) -> Result<Page, StoreError> {
            panic!("the engine scans")
        }

        async fn reap(&self, _: u32) -> Result<u32, StoreError> {
            panic!("the engine reaps")
        }

        async fn health(&self) -> Result<Health, StoreError> {
            panic!("the engine asks for health")
        }
    }

    fn version(number: u8) -> Version {
        Version::from_bytes([number; 16])
    }

    fn standing(record: Record) -> Seen {
        Seen { stored: Some(Stored { record, stamped_at: NOW.at }), now: NOW }
    }

    /// A record in that state, with the times the rules give it, none of them past.
    fn record(state: State, number: u8, attempt_id: AttemptId) -> Record {
        Record {
            attempt: 1,
            attempt_id: (state != State::Ready).then_some(attempt_id),
            due_in_ms: (state != State::Completed).then_some(if state == State::Ready { 0 } else { 30_000 }),
            expires_in_ms: matches!(state, State::Ready | State::Completed).then_some(60_000),
            outcome: (state == State::Completed).then(|| PAID.clone()),
            ..Record::new(version(number), state, SAME.clone(), Policy::default())
        }
    }

    fn found(state: State, number: u8, attempt_id: AttemptId) -> Seen {
        standing(record(state, number, attempt_id))
    }

    struct Played {
        result: Result<Reply, EngineError>,
        asked: Vec<&'static str>,
        swaps: Vec<Swapped>,
    }

    impl Played {
        /// It came to that answer, and the store was asked just this.
        fn comes_to(&self, answer: Answer, asked: &[&str]) -> &Seen {
            let reply = self.result.as_ref().unwrap();
            assert_eq!((reply.answer, &self.asked[..]), (answer, asked));
            let is_own = |swap: &Swapped| reply.seen.version() == Some(swap.1.version);
            assert_eq!(reply.wrote, self.swaps.iter().any(is_own), "it says whose write stands there");
            &reply.seen
        }

        /// It failed with what the store said to that operation, and the store was asked just this.
        fn fails(self, op: &str, kind: ErrorKind, asked: &[&str]) -> StoreError {
            assert_eq!(self.asked, asked);
            let Err(EngineError::Store(error)) = self.result else { panic!("no error of the store") };
            assert_eq!((error.op, error.kind), (op, kind));
            error
        }

        fn versions(&self) -> BTreeSet<Version> {
            self.swaps.iter().map(|(_, next)| next.version).collect()
        }
    }

    /// Applies the event over a store with that script, which must be played to its end.
    fn play(event: &Event<'_>, known: Option<Seen>, script: impl IntoIterator<Item = Says>) -> Played {
        let script = Mutex::new(script.into_iter().collect());
        let engine = Engine::new(Scripted { script, ..Scripted::default() }, Counted::default());
        let result = at_once(engine.apply(&at(), event, known));
        let Scripted { script, asked, swaps } = engine.store();
        assert!(script.lock().unwrap().is_empty(), "the store was not asked for {script:?}");
        Played { result, asked: asked.lock().unwrap().clone(), swaps: swaps.lock().unwrap().clone() }
    }

    /// The same for one try, from what was seen.
    fn play_once(event: &Event<'_>, seen: Seen, script: impl IntoIterator<Item = Says>) -> OncePlayed {
        let script = Mutex::new(script.into_iter().collect());
        let engine = Engine::new(Scripted { script, ..Scripted::default() }, Counted::default());
        let result = at_once(engine.apply_once(&at(), event, seen));
        let Scripted { script, asked, swaps } = engine.store();
        assert!(script.lock().unwrap().is_empty(), "the store was not asked for {script:?}");
        OncePlayed { result, asked: asked.lock().unwrap().clone(), swaps: swaps.lock().unwrap().clone() }
    }

    struct OncePlayed {
        result: Result<Option<Reply>, EngineError>,
        asked: Vec<&'static str>,
        swaps: Vec<Swapped>,
    }

    #[test]
    fn once_writes_only_in_the_place_of_what_was_seen() {
        let seen = found(State::Running, 1, MINE);
        let played = play_once(&complete(MINE), seen.clone(), [Applied]);
        let reply = played.result.unwrap().unwrap();
        let (expect, next) = &played.swaps[0];
        assert_eq!((reply.answer, reply.wrote, *expect), (Answer::Done, true, Some(version(1))));
        assert_eq!(reply.seen, standing(next.clone()));

        let played = play_once(&complete(MINE), seen.clone(), [Stands(found(State::Running, 2, MINE))]);
        assert!(played.result.unwrap().is_none(), "it is not decided again");
        assert_eq!(played.asked, ["swap"]);

        let played = play_once(&renew(THEIRS), seen.clone(), []);
        let reply = played.result.unwrap().unwrap();
        assert_eq!((reply.answer, reply.wrote, reply.seen), (Answer::Fenced, false, seen));
    }

    #[test]
    fn an_ambiguous_write_of_once_is_what_stands_there_afterwards() {
        let seen = found(State::Running, 1, MINE);
        let played = play_once(&complete(MINE), seen.clone(), [AMBIGUOUS, StandsOwn(0)]);
        let reply = played.result.unwrap().unwrap();
        assert_eq!((reply.answer, reply.wrote), (Answer::Done, true));
        let played = play_once(&complete(MINE), seen.clone(), [AMBIGUOUS, Stands(found(State::Running, 2, MINE))]);
        assert!(played.result.unwrap().is_none(), "another write stands there");
        for still in [Stands(seen.clone()), Fails(ErrorKind::Unavailable)] {
            let played = play_once(&complete(MINE), seen.clone(), [AMBIGUOUS, still]);
            let Err(EngineError::Store(error)) = played.result else { panic!("it may still arrive") };
            assert_eq!((error.op, error.kind, played.asked), ("swap", ErrorKind::Ambiguous, vec!["swap", "get"]));
        }
    }

    fn play_claim(script: impl IntoIterator<Item = Says>) -> Played {
        play(&claim(MINE), None, script)
    }

    #[test]
    fn a_new_key_is_one_swap_and_no_get() {
        let played = play_claim([Applied]);
        let seen = played.comes_to(Answer::Proceed, &["swap"]);
        let (expect, next) = &played.swaps[0];
        assert_eq!((*expect, next.state, next.attempt_id), (None, State::Running, Some(MINE)));
        assert_eq!(*seen, standing(next.clone()), "the reply has the record as it now stands");
    }

    #[test]
    fn claim_draws_an_attempt_of_its_own() {
        let script = Mutex::new([Applied].into());
        let engine = Engine::new(Scripted { script, ..Scripted::default() }, Counted::default());
        let reply = at_once(engine.claim(&at(), &*SAME, Policy::default())).unwrap();
        assert_eq!(reply.answer, Answer::Proceed);
        assert_eq!(reply.attempt_id(), Some(AttemptId::from_bytes(1_u128.to_le_bytes())));
        assert_eq!(reply.seen.version(), Some(Version::from_bytes(2_u128.to_le_bytes())));
    }

    #[test]
    fn a_source_that_gives_the_same_token_twice_is_refused() {
        let script = Mutex::new([Applied].into());
        let engine = Engine::new(Scripted { script, ..Scripted::default() }, || [7; 16]);
        let held = at_once(engine.claim(&at(), &*SAME, Policy::default())).unwrap();
        let fail = Event::Fail { attempt_id: held.attempt_id().unwrap(), error: "e", retry_in_ms: 0, keep_ms: None };
        let Err(EngineError::Store(error)) = at_once(engine.apply(&at(), &fail, Some(held.seen))) else {
            panic!("nobody can tell this version from the one before")
        };
        assert_eq!(error.kind, ErrorKind::Invalid);
        assert!(error.to_string().contains("has given the same token twice"), "{error}");
    }

    #[test]
    fn a_replay_is_one_swap_and_no_get() {
        let done = found(State::Completed, 1, THEIRS);
        assert_eq!(*play_claim([Stands(done.clone())]).comes_to(Answer::Replay, &["swap"]), done);
    }

    #[test]
    fn a_lost_swap_is_decided_again_with_what_it_lost_to() {
        let played = play_claim([Stands(found(State::Ready, 1, THEIRS)), Applied]);
        played.comes_to(Answer::Proceed, &["swap", "swap"]);
        let (expect, next) = &played.swaps[1];
        assert_eq!((*expect, next.attempt, next.attempt_id), (Some(version(1)), 2, Some(MINE)));
        assert_eq!(played.versions().len(), 2, "a version is written once");

        play_claim([Stands(found(State::Running, 1, THEIRS))]).comes_to(Answer::Busy, &["swap"]);
        let played = play(&claim_other(MINE), None, [Stands(found(State::Running, 1, THEIRS))]);
        played.comes_to(Answer::Mismatch, &["swap"]);
    }

    #[test]
    fn who_keeps_losing_gives_up() {
        let tries = u8::try_from(SWAP_TRIES_MAX).unwrap();
        let played = play_claim((1..=tries).map(|number| Stands(found(State::Ready, number, THEIRS))));
        let error = played.result.as_ref().unwrap_err();
        assert!(matches!(error, EngineError::Contended), "{error:?}");
        assert_eq!(error.to_string(), "the record changed 16 times while this was being decided; try again");
        assert_eq!(played.asked, vec!["swap"; tries.into()]);
        let expected = played.swaps.iter().map(|(expect, _)| *expect);
        assert!(expected.eq(std::iter::once(None).chain((1..tries).map(|number| Some(version(number))))));
        assert_eq!(played.versions().len(), usize::from(tries), "every try has a version of its own");
    }

    #[test]
    fn an_ambiguous_claim_that_is_there_proceeds() {
        let played = play_claim([AMBIGUOUS, StandsOwn(0)]);
        let seen = played.comes_to(Answer::Proceed, &["swap", "get"]);
        assert_eq!(*seen, standing(played.swaps[0].1.clone()));
    }

    #[test]
    fn an_ambiguous_completion_that_is_there_is_done() {
        let played = play(&complete(MINE), Some(found(State::Running, 1, MINE)), [AMBIGUOUS, StandsOwn(0)]);
        let seen = played.comes_to(Answer::Done, &["swap", "get"]);
        assert_eq!(played.swaps[0].0, Some(version(1)));
        assert_eq!(*seen, standing(played.swaps[0].1.clone()));
    }

    #[test]
    fn an_ambiguous_write_that_is_not_there_is_written_again_under_a_new_version() {
        let played = play_claim([AMBIGUOUS, Stands(NOTHING), Applied]);
        played.comes_to(Answer::Proceed, &["swap", "get", "swap"]);
        let [(None, first), (None, second)] = &played.swaps[..] else { panic!("{:?}", played.swaps) };
        assert_ne!(first.version, second.version);
        assert_eq!(Record { version: first.version, ..second.clone() }, *first, "else the same record");

        let known = found(State::Running, 1, MINE);
        let played = play(&complete(MINE), Some(known.clone()), [AMBIGUOUS, Stands(known), Applied]);
        played.comes_to(Answer::Done, &["swap", "get", "swap"]);
        assert_eq!((played.swaps[1].0, played.versions().len()), (Some(version(1)), 2));
    }

    #[test]
    fn an_ambiguous_write_that_cannot_be_read_back_stays_ambiguous() {
        for kind in [ErrorKind::Unavailable, ErrorKind::Ambiguous, ErrorKind::Damaged] {
            let played = play_claim([AMBIGUOUS, Fails(kind)]);
            let error = played.fails("swap", ErrorKind::Ambiguous, &["swap", "get"]);
            assert_eq!(error.to_string(), "swap: as scripted");
        }
    }

    #[test]
    fn once_a_write_is_in_doubt_no_later_failure_says_that_nothing_was_written() {
        for kind in [ErrorKind::Unavailable, ErrorKind::Unsuitable, ErrorKind::Damaged] {
            let played = play_claim([AMBIGUOUS, Stands(NOTHING), Fails(kind)]);
            played.fails("swap", ErrorKind::Ambiguous, &["swap", "get", "swap"]);
        }
        let script = (0..SWAP_TRIES_MAX).flat_map(|_| [AMBIGUOUS, Stands(NOTHING)]);
        let played = play_claim(script);
        let calls = ["swap", "get"].repeat(SWAP_TRIES_MAX as usize);
        played.fails("swap", ErrorKind::Ambiguous, &calls);
    }

    #[test]
    fn an_ambiguous_claim_that_lost_to_another_is_busy() {
        let rival = found(State::Running, 1, THEIRS);
        let played = play_claim([AMBIGUOUS, Stands(rival.clone())]);
        assert_eq!(*played.comes_to(Answer::Busy, &["swap", "get"]), rival);
    }

    #[test]
    fn late_own_write_is_recognised() {
        let played = play_claim([AMBIGUOUS, Stands(NOTHING), StandsOwn(0)]);
        let seen = played.comes_to(Answer::Proceed, &["swap", "get", "swap"]);
        assert_eq!(seen.version(), Some(played.swaps[0].1.version));

        let played = play_claim([AMBIGUOUS, Stands(NOTHING), AMBIGUOUS, StandsOwn(0)]);
        played.comes_to(Answer::Proceed, &["swap", "get", "swap", "get"]);

        let known = found(State::Running, 1, MINE);
        let played = play(&complete(MINE), Some(known.clone()), [AMBIGUOUS, Stands(known), StandsOwn(0)]);
        played.comes_to(Answer::Done, &["swap", "get", "swap"]);
    }

    #[test]
    fn a_good_guess_is_one_swap() {
        let played = play(&renew(MINE), Some(found(State::Running, 1, MINE)), [Applied]);
        played.comes_to(Answer::Done, &["swap"]);
        assert_eq!(played.swaps[0].0, Some(version(1)));
    }

    #[test]
    fn a_stale_guess_that_writes_is_decided_again() {
        let known = found(State::Running, 1, MINE);
        let script = [Stands(found(State::Running, 2, MINE)), Applied];
        let played = play(&complete(MINE), Some(known.clone()), script);
        played.comes_to(Answer::Done, &["swap", "swap"]);
        assert_eq!(played.swaps[1].0, Some(version(2)));

        let played = play(&complete(MINE), Some(known), [Stands(found(State::Running, 2, THEIRS))]);
        played.comes_to(Answer::DoubleRun, &["swap"]);
    }

    #[test]
    fn a_guess_that_would_answer_is_confirmed_by_a_get_first() {
        let theirs = found(State::Running, 1, THEIRS);
        let script = [Stands(found(State::Running, 2, MINE)), Applied];
        let played = play(&renew(MINE), Some(theirs.clone()), script);
        played.comes_to(Answer::Done, &["get", "swap"]);
        assert_eq!(played.swaps[0].0, Some(version(2)));

        play(&renew(MINE), Some(theirs.clone()), [Stands(theirs)]).comes_to(Answer::Fenced, &["get"]);
        play(&worker(MINE), None, [Stands(NOTHING)]).comes_to(Answer::NotFound, &["get"]);
    }

    #[test]
    fn without_a_guess_everything_but_claim_and_accept_begins_with_a_get() {
        let running = || Stands(found(State::Running, 1, MINE));
        play(&complete(MINE), None, [running(), Applied]).comes_to(Answer::Done, &["get", "swap"]);
        play(&Event::Lapse, None, [running()]).comes_to(Answer::Busy, &["get"]);
        play(&accept(0), None, [Applied]).comes_to(Answer::Accepted, &["swap"]);
    }

    #[test]
    fn a_record_over_the_limits_is_refused_before_the_store_is_asked() {
        let body = Body::Kept(vec![0; BODY_BYTES_MAX + 1]);
        let outcome = &Arc::new(Outcome { status: 200, headers: vec![], body });
        let complete = Event::Complete { attempt_id: MINE, outcome, labels: &Labels::default() };
        let played = play(&complete, Some(found(State::Running, 1, MINE)), []);
        let error = played.fails("swap", ErrorKind::Invalid, &[]);
        assert_eq!(error.to_string(), "swap: the body is 8388609; at most 8388608 is accepted");

        let labels = vec![Label { name: "order".to_owned(), value: "o-1".to_owned() }; LABEL_COUNT_MAX + 1].into();
        let (by, fingerprints, policy) = (Claimant::Client, &*SAME, Policy::default());
        let claim = Event::Claim { by, attempt_id: MINE, fingerprints, policy, labels: &labels };
        play(&claim, None, []).fails("swap", ErrorKind::Invalid, &[]);
    }

    #[test]
    fn an_unrecognised_scheme_is_an_error_and_never_a_mismatch() {
        for (digest, state) in [[7; 32], [8; 32]].into_iter().flat_map(|digest| State::ALL.map(|state| (digest, state)))
        {
            let fingerprint = Fingerprint { scheme: Scheme::new("9;sha999").unwrap(), digest };
            let played = play_claim([Stands(standing(Record { fingerprint, ..record(state, 1, THEIRS) }))]);
            assert_eq!(played.asked, ["swap"], "{state}");
            let error = played.result.unwrap_err();
            assert!(matches!(&error, EngineError::Scheme(scheme) if scheme.0.as_str() == "9;sha999"), "{error:?}");
            let message = "the record was fingerprinted under scheme `9;sha999`, which this node does not recognise; \
                           upgrade it or give it the key";
            assert_eq!(error.to_string(), message);
        }
    }

    #[test]
    fn a_failure_is_passed_on_and_nothing_is_retried() {
        for kind in [ErrorKind::Unavailable, ErrorKind::Damaged, ErrorKind::Unsuitable, ErrorKind::Invalid] {
            let error = play_claim([Fails(kind)]).fails("swap", kind, &["swap"]);
            assert_eq!(std::error::Error::source(&error).unwrap().to_string(), "its author");
            play(&complete(MINE), None, [Fails(kind)]).fails("get", kind, &["get"]);
            let theirs = || found(State::Ready, 1, THEIRS);
            play_claim([Stands(theirs()), Fails(kind)]).fails("swap", kind, &["swap", "swap"]);
            play(&renew(MINE), Some(theirs()), [Fails(kind)]).fails("get", kind, &["get"]);
        }
    }
}

mod over_the_reference_store {
    use super::*;

    const UNKNOWN: Policy = Policy {
        on_lapse: OnLapse::Unknown,
        lease_ms: 30_000,
        retention_ms: 100_000,
        keep_expired_ms: None,
        attempts_max: None,
    };
    const RERUN: Policy = Policy { on_lapse: OnLapse::Rerun, ..UNKNOWN };

    struct Step {
        /// How much time passes before it.
        after_ms: u64,
        event: Event<'static>,
        answer: Answer,
        /// The state of the record afterwards; empty: there is none.
        state: &'static str,
    }

    /// Plays a story over a new store. What is replayed is what was recorded.
    fn play(policy: Policy, story: impl IntoIterator<Item = Step>) {
        let clock = FakeClock::default();
        let engine = Engine::new(Memory::with_clock(clock.clone()), Counted::default());
        for Step { after_ms, mut event, answer, state } in story {
            clock.advance_ms(after_ms);
            if let Event::Claim { policy: own, .. } | Event::Accept { policy: own, .. } = &mut event {
                *own = policy;
            }
            let reply = at_once(engine.apply(&at(), &event, None)).unwrap();
            let found = reply.record().map_or("", |record| record.state.name());
            assert_eq!((reply.answer, found), (answer, state), "{event:?}");
            if answer == Answer::Replay {
                assert_eq!(reply.outcome(), Some(&*PAID));
            }
        }
    }

    /// One test per story, each a list of: time that passes, event, answer, state; and one for all of them.
    macro_rules! stories {
        ($($name:ident($policy:expr) { $($after_ms:literal, $event:expr => $answer:ident $state:literal;)* })*) => {
            $(#[test]
            fn $name() {
                let step = |after_ms, event, answer, state| Step { after_ms, event, answer, state };
                play($policy, [$(step($after_ms, $event, Answer::$answer, $state)),*]);
            })*

            const TOLD: &[Answer] = &[$($(Answer::$answer),*),*];
        };
    }

    stories! {
        a_claim_runs_once_and_is_replayed(UNKNOWN) {
            0, claim(MINE) => Proceed "running";
            0, claim(THEIRS) => Busy "running";
            0, claim_other(THEIRS) => Mismatch "running";
            29_999, renew(MINE) => Done "running";
            29_999, checkpoint(MINE) => Done "running";
            29_999, complete(THEIRS) => DoubleRun "running";
            0, complete(MINE) => Done "completed";
            0, claim(THEIRS) => Replay "completed";
            0, claim_other(THEIRS) => Mismatch "completed";
            0, renew(MINE) => Fenced "completed";
        }
        a_failed_attempt_is_retried_when_it_is_due(Policy { attempts_max: Some(2), ..UNKNOWN }) {
            0, claim(MINE) => Proceed "running";
            0, fail(MINE, 1_000) => Done "ready";
            0, complete(MINE) => DoubleRun "ready";
            999, claim(THEIRS) => Busy "ready";
            1, claim(THEIRS) => Proceed "running";
            0, renew(MINE) => Fenced "running";
            0, complete(MINE) => DoubleRun "running";
            0, fail(THEIRS, 0) => Done "dead";
            0, claim(MINE) => Undecided "dead";
        }
        a_doubt_is_resolved_as_happened(UNKNOWN) {
            0, claim(MINE) => Proceed "running";
            0, happened() => Refused "running";
            0, doubt(MINE) => Done "unknown";
            0, claim(THEIRS) => Undecided "unknown";
            0, happened() => Done "completed";
            0, complete(MINE) => Overruled "completed";
            0, claim(THEIRS) => Replay "completed";
        }
        a_wrong_verdict_is_contradicted(UNKNOWN) {
            0, claim(MINE) => Proceed "running";
            0, doubt(MINE) => Done "unknown";
            0, did_not_happen() => Done "ready";
            0, complete(MINE) => Contradicted "completed";
            0, claim(THEIRS) => Replay "completed";
        }
        what_is_given_up_is_replayed(UNKNOWN) {
            0, claim(MINE) => Proceed "running";
            0, doubt(MINE) => Done "unknown";
            0, give_up() => Done "completed";
            0, accept(0) => Replay "completed";
        }
        a_lapse_is_in_doubt_where_nobody_knows(UNKNOWN) {
            0, claim(MINE) => Proceed "running";
            29_999, Event::Lapse => Busy "running";
            1, claim(THEIRS) => Undecided "unknown";
            0, renew(MINE) => Done "running";
            30_000, Event::Lapse => Undecided "unknown";
            0, complete(MINE) => Done "completed";
        }
        a_lapse_is_run_again_where_that_is_safe(Policy { attempts_max: Some(2), ..RERUN }) {
            0, claim(MINE) => Proceed "running";
            30_000, Event::Lapse => Done "ready";
            0, Event::Lapse => Refused "ready";
            0, claim(THEIRS) => Proceed "running";
            0, fail(MINE, 0) => Fenced "running";
            30_000, claim(MINE) => Undecided "dead";
            0, renew(THEIRS) => Undecided "dead";
            0, complete(THEIRS) => Done "completed";
        }
        an_expired_key_is_free(UNKNOWN) {
            0, claim(MINE) => Proceed "running";
            0, complete(MINE) => Done "completed";
            99_999, claim(THEIRS) => Replay "completed";
            1, expire() => NotFound "completed";
            0, claim_other(THEIRS) => Proceed "running";
        }
        an_expired_key_is_gone_while_its_tombstone_stands(Policy { keep_expired_ms: Some(50_000), ..UNKNOWN }) {
            0, claim(MINE) => Proceed "running";
            0, complete(MINE) => Done "completed";
            0, expire() => Refused "completed";
            100_000, claim(THEIRS) => Gone "completed";
            0, expire() => Done "expired";
            0, accept(0) => Gone "expired";
            0, claim_other(THEIRS) => Mismatch "expired";
            0, happened() => Refused "expired";
            50_000, claim(THEIRS) => Proceed "running";
        }
        an_accepted_request_is_run_by_a_worker(RERUN) {
            0, worker(MINE) => NotFound "";
            0, accept(1_000) => Accepted "ready";
            0, accept(0) => Accepted "ready";
            0, worker(MINE) => Busy "ready";
            1_000, claim(THEIRS) => Accepted "ready";
            0, worker(MINE) => Proceed "running";
            0, accept(0) => Busy "running";
            30_000, worker(THEIRS) => Proceed "running";
            0, complete(THEIRS) => Done "completed";
            0, accept(0) => Replay "completed";
        }
        a_worker_does_not_run_what_a_client_holds(RERUN) {
            0, claim(MINE) => Proceed "running";
            30_000, worker(THEIRS) => Refused "running";
            0, accept(0) => Accepted "ready";
            0, worker(THEIRS) => Proceed "running";
        }
        nothing_happens_to_a_key_that_nobody_used(UNKNOWN) {
            0, Event::Lapse => NotFound "";
            0, expire() => NotFound "";
            0, happened() => NotFound "";
            0, complete(MINE) => Fenced "";
            0, checkpoint(MINE) => Fenced "";
        }
    }

    #[test]
    fn every_kind_of_answer_is_told_in_a_story() {
        let told: BTreeSet<usize> = TOLD.iter().map(|answer| *answer as usize).collect();
        assert!(told.into_iter().eq(0..=Answer::Refused as usize), "an answer is in no story: {TOLD:?}");
    }
}
