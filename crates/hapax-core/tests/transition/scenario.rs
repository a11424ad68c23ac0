//! Every combination that can matter, and the words of the table that hold for it.

use std::sync::Arc;

use hapax_core::clock::{Now, Timestamp};
use hapax_core::fingerprint::{Fingerprint, Scheme};
use hapax_core::record::{
    AttemptId, Body, Checkpoint, Doubt, Label, OnLapse, Outcome, Policy, Record, State, Stored, Verdict, Version,
};
use hapax_core::store::Seen;
use hapax_core::transition::{Claimant, Event, Resolution};

pub(crate) const MINE: AttemptId = AttemptId::from_bytes([1; 16]);
const OTHER: AttemptId = AttemptId::from_bytes([2; 16]);
pub(crate) const NOW_MS: u64 = 1_000_000;
const ATTEMPTS: u32 = 3;
/// When the store was restored.
pub(crate) const RESTORED: Timestamp = Timestamp::from_ms(99);
/// Of unknown and dead records.
pub(crate) const DOUBT: Doubt = Doubt { since: Some(Timestamp::from_ms(88)), probes: 4 };

/// One of the things that can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Claim,
    ClaimByWorker,
    Accept,
    Renew,
    Checkpoint,
    Complete,
    Fail,
    FailSoonForgotten,
    Doubt,
    Lapse,
    Expire,
    Suspect,
    SuspectOfOld,
    Inconclusive,
    InconclusiveForTheLastTime,
    InconclusiveTooSoon,
    InconclusiveOfAnotherAttempt,
    Happened,
    DidNotHappen,
    GiveUp,
    ResolveAnotherAttempt,
    ResolveAnEarlierDoubt,
    Purge,
    PurgeToRerun,
}

/// How long a key is kept that is soon forgotten: shorter than any retention here.
pub(crate) const SOON_MS: u64 = 1_000;

pub(crate) const EVENTS: [Kind; 24] = [
    Kind::Claim,
    Kind::ClaimByWorker,
    Kind::Accept,
    Kind::Renew,
    Kind::Checkpoint,
    Kind::Complete,
    Kind::Fail,
    Kind::FailSoonForgotten,
    Kind::Doubt,
    Kind::Lapse,
    Kind::Expire,
    Kind::Suspect,
    Kind::SuspectOfOld,
    Kind::Inconclusive,
    Kind::InconclusiveForTheLastTime,
    Kind::InconclusiveTooSoon,
    Kind::InconclusiveOfAnotherAttempt,
    Kind::Happened,
    Kind::DidNotHappen,
    Kind::GiveUp,
    Kind::ResolveAnotherAttempt,
    Kind::ResolveAnEarlierDoubt,
    Kind::Purge,
    Kind::PurgeToRerun,
];

impl Kind {
    /// As the table has it where resolutions differ.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Happened => "Resolve: happened",
            Self::DidNotHappen => "Resolve: did not happen",
            Self::GiveUp => "Resolve: give up",
            Self::ResolveAnotherAttempt => "Resolve: another attempt",
            Self::SuspectOfOld => "Suspect: written before",
            Self::ResolveAnEarlierDoubt => "Resolve: an earlier doubt",
            Self::InconclusiveForTheLastTime => "Inconclusive: for the last time",
            Self::InconclusiveOfAnotherAttempt => "Inconclusive: another attempt",
            Self::PurgeToRerun => "Purge: allow rerun",
            Self::FailSoonForgotten => "Fail: soon forgotten",
            other => other.short_name(),
        }
    }

    /// As the table and the diagram have it where they do not.
    pub(crate) fn short_name(self) -> &'static str {
        match self {
            Self::Claim => "Claim",
            Self::ClaimByWorker => "Claim by a worker",
            Self::Accept => "Accept",
            Self::Renew => "Renew",
            Self::Checkpoint => "Checkpoint",
            Self::Complete => "Complete",
            Self::Fail | Self::FailSoonForgotten => "Fail",
            Self::Doubt => "Doubt",
            Self::Lapse => "Lapse",
            Self::Expire => "Expire",
            Self::Suspect | Self::SuspectOfOld => "Suspect",
            Self::Inconclusive
            | Self::InconclusiveForTheLastTime
            | Self::InconclusiveTooSoon
            | Self::InconclusiveOfAnotherAttempt => "Inconclusive",
            Self::Happened
            | Self::DidNotHappen
            | Self::GiveUp
            | Self::ResolveAnotherAttempt
            | Self::ResolveAnEarlierDoubt => "Resolve",
            Self::Purge | Self::PurgeToRerun => "Purge",
        }
    }

    fn starts(self) -> bool {
        matches!(self, Self::Claim | Self::ClaimByWorker | Self::Accept)
    }

    /// Whether the request's fingerprint is looked at.
    fn compares(self) -> bool {
        self.starts() || matches!(self, Self::Suspect | Self::SuspectOfOld)
    }
}

/// How the stored fingerprint compares with the request's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Print {
    Same,
    Other,
    Unrecognised,
}

/// A record, the time, and the route of whoever asks.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    state: Option<State>,
    past_expiry: bool,
    keeps_tombstone: bool,
    past_due: bool,
    stored: bool,
    of_record: OnLapse,
    of_route: OnLapse,
    used_up: bool,
    used_up_by_route: bool,
    owner: Option<AttemptId>,
    verdict: Option<Verdict>,
    pub(crate) print: Print,
    paused: bool,
}

/// Every combination. Where a choice cannot matter (a running record does not expire) it is made once.
pub(crate) fn every_scenario() -> impl Iterator<Item = Scenario> {
    let both = || [false, true].into_iter();
    let states = std::iter::once(None).chain(State::ALL.into_iter().map(Some));
    let shapes = states.flat_map(move |state| {
        both().flat_map(move |past_expiry| {
            both().flat_map(move |keeps| {
                both().flat_map(move |past_due| {
                    both().flat_map(move |stored| {
                        both().map(move |used| (state, past_expiry, keeps, past_due, stored, used))
                    })
                })
            })
        })
    });
    shapes
        .flat_map(|(state, past_expiry, keeps_tombstone, past_due, stored, used_up)| {
            let policies =
                OnLapse::ALL.into_iter().flat_map(|one| OnLapse::ALL.into_iter().map(move |other| (one, other)));
            policies.flat_map(move |(of_record, of_route)| {
                let owners = [None, Some(MINE), Some(OTHER)].into_iter();
                owners.flat_map(move |owner| {
                    let verdicts = [None, Some(Verdict::DidNotHappen), Some(Verdict::Happened), Some(Verdict::GivenUp)];
                    verdicts.into_iter().flat_map(move |verdict| {
                        [Print::Same, Print::Other, Print::Unrecognised].into_iter().flat_map(move |print| {
                            let last = [(false, false), (false, true), (true, false), (true, true)];
                            last.into_iter().map(move |(paused, used_up_by_route)| Scenario {
                                state,
                                past_expiry,
                                keeps_tombstone,
                                past_due,
                                stored,
                                of_record,
                                of_route,
                                used_up,
                                used_up_by_route,
                                owner,
                                verdict,
                                print,
                                paused,
                            })
                        })
                    })
                })
            })
        })
        .filter(Scenario::differs)
}

impl Scenario {
    /// Leaves out what only repeats another combination.
    fn differs(&self) -> bool {
        let expires = matches!(self.state, Some(State::Ready | State::Completed | State::Expired));
        let comes_due = matches!(self.state, Some(State::Ready | State::Running));
        let bare = self.state.is_some()
            || (!self.keeps_tombstone
                && !self.stored
                && !self.used_up
                && self.owner.is_none()
                && self.verdict.is_none());
        let policies = comes_due || (self.of_record == OnLapse::Unknown && self.of_route == OnLapse::Unknown);
        let comes_to_route = self.state == Some(State::Running) || !self.used_up_by_route;
        (expires || !self.past_expiry) && (comes_due || !self.past_due) && bare && policies && comes_to_route
    }

    fn now(&self) -> Now {
        Now { at: Timestamp::from_ms(NOW_MS), paused: self.paused }
    }

    /// What this node's route says.
    pub(crate) fn route(&self) -> Policy {
        Policy {
            on_lapse: self.of_route,
            lease_ms: 400,
            retention_ms: 5_000,
            keep_expired_ms: None,
            attempts_max: self.used_up_by_route.then_some(ATTEMPTS),
        }
    }

    pub(crate) fn stored(&self) -> Option<Stored> {
        let state = self.state?;
        let policy = Policy {
            on_lapse: self.of_record,
            lease_ms: 300,
            retention_ms: 7_000,
            keep_expired_ms: self.keeps_tombstone.then_some(900),
            attempts_max: Some(if self.used_up { ATTEMPTS } else { ATTEMPTS + 1 }),
        };
        let in_ms = |past: bool| Some(if past { 10 } else { 10_000 });
        let record = Record {
            version: Version::from_bytes([9; 16]),
            state,
            attempt: ATTEMPTS,
            attempt_id: self.owner,
            fingerprint: self.recorded_fingerprint(),
            policy,
            due_in_ms: if state.is_unfinished() { in_ms(self.past_due) } else { None },
            expires_in_ms: match state {
                State::Ready | State::Completed | State::Expired => in_ms(self.past_expiry),
                _ => None,
            },
            created_at: Some(Timestamp::from_ms(77)),
            checkpoint: Some(Checkpoint { name: "paid".to_owned(), data: vec![1] }),
            request: self.stored.then(|| Arc::from(&b"stored request"[..])),
            outcome: (state == State::Completed).then(outcome),
            error: None,
            verdict: self.verdict,
            doubt: matches!(state, State::Unknown | State::Dead).then_some(DOUBT),
            labels: [Label { name: "order".to_owned(), value: "o-1".to_owned() }].into(),
        };
        Some(Stored { record, stamped_at: Timestamp::from_ms(NOW_MS - 100) })
    }

    pub(crate) fn seen(&self) -> Seen {
        Seen { stored: self.stored(), now: self.now() }
    }

    fn recorded_fingerprint(&self) -> Fingerprint {
        match self.print {
            Print::Same => fingerprint("1;sha256", 5),
            Print::Other => fingerprint("1;sha256", 6),
            Print::Unrecognised => fingerprint("9;moon", 5),
        }
    }

    fn is_past(&self) -> bool {
        self.past_expiry && !self.paused
    }

    /// Absent, or run out without a tombstone.
    pub(crate) fn is_free(&self) -> bool {
        match self.state {
            None => true,
            Some(State::Expired) => self.is_past(),
            Some(State::Ready) if self.stored => false,
            Some(State::Completed | State::Ready) => self.is_past() && !self.keeps_tombstone,
            Some(_) => false,
        }
    }

    fn is_past_its_time(&self) -> bool {
        let expires = match self.state {
            Some(State::Ready) => !self.stored,
            other => other == Some(State::Completed),
        };
        expires && self.is_past() && self.keeps_tombstone
    }

    /// A completed record that still stands, with no verdict on it.
    pub(crate) fn is_completed_by_its_attempt(&self) -> bool {
        self.state == Some(State::Completed) && self.owner == Some(MINE) && self.verdict.is_none() && !self.is_past()
    }

    /// Whether the event needs a comparison that this node cannot make.
    pub(crate) fn cannot_compare(&self, kind: Kind) -> bool {
        kind.compares() && !self.is_free() && self.print == Print::Unrecognised
    }

    /// The words of the table that hold.
    pub(crate) fn facts(&self, kind: Kind) -> Facts {
        let mut facts = Facts::default();
        if self.is_free() {
            facts.add("free");
            return facts;
        }
        facts.add("record");
        if self.is_past_its_time() {
            facts.add("past its time");
        }
        match self.state {
            Some(State::Expired) => facts.add("tombstone"),
            _ if self.is_past_its_time() => facts.add("tombstone"),
            Some(state) => facts.add(state.name()),
            None => {}
        }
        facts.add(if self.print == Print::Other { "other fingerprint" } else { "same fingerprint" });
        facts.add(if self.owner == Some(MINE) { "mine" } else { "not mine" });
        let lapsed = self.past_due && !self.paused;
        facts.add(if lapsed { "lapsed" } else { "live" });
        facts.add(if self.past_due { "due" } else { "not due" });
        let of_route = if kind == Kind::Lapse { self.of_record } else { self.of_route };
        facts.add_if(self.of_record == OnLapse::Unknown || of_route == OnLapse::Unknown, "strict");
        facts.add_if(self.of_record != OnLapse::Unknown, "reruns");
        facts.add_if(self.used_up || kind.starts() && self.used_up_by_route, "used up");
        facts.add_if(self.state == Some(State::Completed), "same answer");
        facts.add(if self.stored { "stored" } else { "not stored" });
        facts.add_if(self.verdict == Some(Verdict::DidNotHappen), "denied");
        facts.add_if(self.verdict.is_some(), "settled");
        facts.add_if(self.state == Some(State::Ready) && self.is_past(), "overdue");
        let last_lapsed = self.owner.is_some() && self.verdict != Some(Verdict::DidNotHappen);
        facts.add_if(last_lapsed || ATTEMPTS > 1 && self.of_record != OnLapse::Unknown, "lapsed before");
        let said = match (self.state, self.verdict) {
            (Some(State::Completed), Some(Verdict::Happened)) => Some(Kind::Happened),
            (Some(State::Completed), Some(Verdict::GivenUp)) => Some(Kind::GiveUp),
            (Some(State::Ready), Some(Verdict::DidNotHappen)) if kind == Kind::ResolveAnEarlierDoubt => Some(kind),
            (Some(State::Ready), Some(Verdict::DidNotHappen)) => Some(Kind::DidNotHappen),
            _ => None,
        };
        facts.add_if(said == Some(kind), "said before");
        facts
    }

    /// Hands the event of that kind to `ask`.
    pub(crate) fn with_event<T>(&self, kind: Kind, ask: impl FnOnce(&Event<'_>) -> T) -> T {
        let (print, outcome, policy, labels) = (fingerprint("1;sha256", 5), outcome(), self.route(), Arc::default());
        let request: Arc<[u8]> = Arc::from(&b"accepted request"[..]);
        let checkpoint = Checkpoint { name: "sent".to_owned(), data: vec![2] };
        let inconclusive = |attempt, probes_max| Event::Inconclusive { attempt, probe_in_ms: 70, probes_max };
        let claim = |by| Event::Claim { by, attempt_id: MINE, fingerprints: &print, policy, labels: &labels };
        ask(&match kind {
            Kind::Claim => claim(Claimant::Client),
            Kind::ClaimByWorker => claim(Claimant::Worker),
            Kind::Accept => {
                Event::Accept { request: &request, due_in_ms: 0, fingerprints: &print, policy, labels: &labels }
            }
            Kind::Renew => Event::Renew { attempt_id: MINE },
            Kind::Checkpoint => Event::Checkpoint { attempt_id: MINE, checkpoint: &checkpoint },
            Kind::Complete => Event::Complete { attempt_id: MINE, outcome: &outcome, labels: &labels },
            Kind::Fail => Event::Fail { attempt_id: MINE, error: "refused", retry_in_ms: 50, keep_ms: None },
            Kind::FailSoonForgotten => {
                Event::Fail { attempt_id: MINE, error: "refused", retry_in_ms: 50, keep_ms: Some(SOON_MS) }
            }
            Kind::Doubt => Event::Doubt { attempt_id: MINE, error: "timeout", probe_in_ms: 60 },
            Kind::Lapse => Event::Lapse,
            Kind::Expire => Event::Expire { never_ran: &outcome },
            Kind::Suspect => Event::Suspect { since: RESTORED, fingerprints: &print, policy, labels: &labels },
            Kind::SuspectOfOld => {
                Event::Suspect { since: Timestamp::from_ms(NOW_MS), fingerprints: &print, policy, labels: &labels }
            }
            Kind::Inconclusive => inconclusive(ATTEMPTS, Some(DOUBT.probes + 2)),
            Kind::InconclusiveForTheLastTime => inconclusive(ATTEMPTS, Some(DOUBT.probes + 1)),
            Kind::InconclusiveTooSoon => inconclusive(ATTEMPTS, None),
            Kind::InconclusiveOfAnotherAttempt => inconclusive(ATTEMPTS - 1, Some(9)),
            Kind::ResolveAnotherAttempt => {
                Event::Resolve { resolution: Resolution::DidNotHappen, attempt: Some(ATTEMPTS - 1), since: None }
            }
            Kind::ResolveAnEarlierDoubt => Event::Resolve {
                resolution: Resolution::DidNotHappen,
                attempt: Some(ATTEMPTS),
                since: Some(Timestamp::from_ms(87)),
            },
            Kind::Purge => Event::Purge { allow_rerun: false },
            Kind::PurgeToRerun => Event::Purge { allow_rerun: true },
            Kind::Happened => Event::Resolve { resolution: Resolution::Happened(&outcome), attempt: None, since: None },
            Kind::DidNotHappen => Event::Resolve { resolution: Resolution::DidNotHappen, attempt: None, since: None },
            Kind::GiveUp => Event::Resolve { resolution: Resolution::GiveUp(&outcome), attempt: None, since: None },
        })
    }
}

fn fingerprint(scheme: &str, byte: u8) -> Fingerprint {
    Fingerprint { scheme: Scheme::new(scheme).unwrap(), digest: [byte; 32] }
}

fn outcome() -> Arc<Outcome> {
    Arc::new(Outcome { status: 201, headers: vec![], body: Body::Kept(b"paid".to_vec()) })
}

/// The words of the table that hold for a combination.
#[derive(Debug, Default)]
pub(crate) struct Facts(Vec<&'static str>);

impl Facts {
    pub(crate) const WORDS: [&'static str; 27] = [
        "free",
        "record",
        "tombstone",
        "past its time",
        "ready",
        "running",
        "unknown",
        "dead",
        "completed",
        "other fingerprint",
        "mine",
        "not mine",
        "same answer",
        "lapsed",
        "live",
        "due",
        "not due",
        "strict",
        "reruns",
        "used up",
        "stored",
        "not stored",
        "denied",
        "settled",
        "overdue",
        "lapsed before",
        "said before",
    ];

    fn add(&mut self, word: &'static str) {
        self.0.push(word);
    }

    fn add_if(&mut self, holds: bool, word: &'static str) {
        if holds {
            self.add(word);
        }
    }

    pub(crate) fn holds(&self, word: &str) -> bool {
        self.0.contains(&word)
    }
}
