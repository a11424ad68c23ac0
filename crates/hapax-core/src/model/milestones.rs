//! What must come true somewhere in a configuration, so that the checks are about something.
//!
//! Each is a sentence and a way to see it, most of them one step ahead: somebody could now hear this answer.

use super::possible::Action;
use super::step::Step;
use super::world::{Call, Phase, Time, What, Who, World};
use super::{Hapax, Milestone};
use crate::record::{OnLapse, State};
use crate::transition::Answer;

pub(super) const ONCE: &[Milestone] = &[
    ("a retry is answered from the record", |model, world| model.hears(world, What::Claim, Answer::Replay)),
    ("a retry is told to come back", |model, world| model.hears(world, What::Claim, Answer::Busy)),
    ("a retry is told that nobody knows", |model, world| model.hears(world, What::Claim, Answer::Undecided)),
    ("a lease lapses into doubt", |model, world| model.hears(world, What::Lapse, Answer::Undecided)),
    ("a late completion beats doubt", |model, world| {
        is_in(world, State::Unknown) && model.hears(world, What::Complete, Answer::Done)
    }),
    ("a late failure beats doubt", |model, world| {
        is_in(world, State::Unknown) && model.hears(world, What::Fail, Answer::Done)
    }),
    ("a failure that is repeated after a lost reply is fenced", |model, world| {
        is_in(world, State::Running) && model.hears(world, What::Fail, Answer::Fenced)
    }),
    ("a completion contradicts a verdict", |model, world| model.hears(world, What::Complete, Answer::Contradicted)),
    ("a completion is overruled by a verdict", |model, world| model.hears(world, What::Complete, Answer::Overruled)),
    ("a wrong verdict ends in a double run, and it is reported", |model, world| {
        model.hears(world, What::Complete, Answer::DoubleRun)
    }),
    ("all three calls have had their effect after two wrong verdicts", |_, world| {
        world.calls.iter().all(|call| call.phase == Phase::Executed)
    }),
    ("a claim knows its own write", |model, world| model.recognises(world, What::Claim)),
    ("a completion knows its own write", |model, world| model.recognises(world, What::Complete)),
    ("a write lands after its writer has died", |_, world| {
        world.limbo.is_some() && world.calls.iter().all(|call| call.phase == Phase::Idle)
    }),
];

pub(super) const RENEWALS: &[Milestone] = &[
    ("a renewal brings a lapsed attempt back", |model, world| {
        is_in(world, State::Unknown) && model.hears(world, What::Renew, Answer::Done)
    }),
    ("a renewal takes its record back from a verdict", |model, world| {
        is_in(world, State::Ready) && model.hears(world, What::Renew, Answer::Done)
    }),
    ("a sweep overtakes a renewal", |_, world| {
        let is_overtaken =
            |call: &Call| call.beat.and_then(|op| op.write).is_some_and(|write| write.is_bound_to_lose());
        is_in(world, State::Unknown) && world.calls.iter().any(is_overtaken)
    }),
    ("a renewal and a sweep race", |_, world| {
        world.sweeper.is_some() && world.calls.iter().any(|call| call.beat.is_some())
    }),
    ("a renewal races the completion of its own attempt", |_, world| {
        world.calls.iter().any(|call| call.beat.is_some() && call.op.is_some_and(|op| op.what == What::Complete))
    }),
];

pub(super) const OUTAGE: &[Milestone] = &[
    ("an outage outlasts the lease while the attempt lives", |_, world| {
        world.outage && has_lapsed(world) && world.calls.iter().any(|call| call.phase == Phase::Executed)
    }),
    ("an attempt that outlived an outage takes its record back", |model, world| {
        is_in(world, State::Unknown) && model.hears(world, What::Renew, Answer::Done)
    }),
    ("an attempt that outlived an outage records its answer", |model, world| {
        is_in(world, State::Unknown) && model.hears(world, What::Complete, Answer::Done)
    }),
];

pub(super) const ROLLING: &[Milestone] = &[
    ("a lapsed attempt is run again", |model, world| {
        is_in(world, State::Running) && model.hears(world, What::Claim, Answer::Proceed)
    }),
    ("a stricter route stops a rerun", |model, world| {
        claimed_under(world, |on_lapse| on_lapse != OnLapse::Unknown)
            && model.hears(world, What::Claim, Answer::Undecided)
    }),
    ("a stricter record stops a rerun", |model, world| {
        claimed_under(world, |on_lapse| on_lapse == OnLapse::Unknown)
            && model.some_step(world, What::Claim, |action, step| {
                let Action::Swap(Who::Call(call)) = action else { return false };
                let is_lax = model.nodes[call].on_lapse != OnLapse::Unknown;
                is_lax && step.note.is_some_and(|note| note.answer == Answer::Undecided)
            })
    }),
    ("a double run is reported", |model, world| model.hears(world, What::Complete, Answer::DoubleRun)),
];

pub(super) const EXPIRY: &[Milestone] = &[
    ("a key is free once its answer has expired", |model, world| {
        is_in(world, State::Completed) && model.hears(world, What::Claim, Answer::Proceed)
    }),
    ("a key is free once its answer was deleted", |_, world| world.kept.is_none() && world.permits > 0),
    ("an attempt outlives its record", |model, world| {
        world.kept.is_none() && model.hears(world, What::Complete, Answer::Fenced)
    }),
];

pub(super) const TOMBSTONES: &[Milestone] = &[
    ("a tombstone is put up", |model, world| model.hears(world, What::Expire, Answer::Done)),
    ("a retry hears that the key is gone", |model, world| model.hears(world, What::Claim, Answer::Gone)),
    ("a key is free once its tombstone has expired", |model, world| {
        is_in(world, State::Expired) && model.hears(world, What::Claim, Answer::Proceed)
    }),
];

pub(super) const PAUSED: &[Milestone] = &[
    ("a lease that has run out does not lapse", |model, world| {
        world.paused && has_lapsed(world) && model.hears(world, What::Claim, Answer::Busy)
    }),
    ("an answer that should have expired is replayed", |model, world| {
        let expired = world.kept.is_some_and(|kept| kept.expires == Time::Passed);
        world.paused && expired && model.hears(world, What::Claim, Answer::Replay)
    }),
];

pub(super) const ATTEMPTS_MAX: &[Milestone] = &[
    ("automation gives up after a failure", |model, world| {
        model.some_step(world, What::Fail, |_, step| step.note.is_some() && is_in(&step.world, State::Dead))
    }),
    ("automation gives up after a lapse", |model, world| {
        model.some_step(world, What::Lapse, |_, step| step.note.is_some() && is_in(&step.world, State::Dead))
    }),
    ("a late completion revives the dead", |model, world| {
        is_in(world, State::Dead) && model.hears(world, What::Complete, Answer::Done)
    }),
];

pub(super) const LATER: &[Milestone] = &[
    ("a request is accepted", |model, world| model.hears(world, What::Accept, Answer::Accepted)),
    ("a worker runs it", |model, world| model.hears(world, What::WorkerClaim, Answer::Proceed)),
    ("a worker resumes a lapsed attempt", |model, world| {
        is_in(world, State::Running) && model.hears(world, What::WorkerClaim, Answer::Proceed)
    }),
    ("its answer is replayed", |model, world| model.hears(world, What::Accept, Answer::Replay)),
];

pub(super) const NEVER_RUN: &[Milestone] = &[
    ("work that never ran is said to", |model, world| model.hears(world, What::Expire, Answer::Done)),
    ("work that may have run is in doubt", |model, world| model.hears(world, What::Expire, Answer::Undecided)),
];

impl Hapax {
    fn hears(&self, world: &World, what: What, answer: Answer) -> bool {
        self.some_step(world, what, |_, step| step.note.is_some_and(|note| note.answer == answer))
    }

    fn recognises(&self, world: &World, what: What) -> bool {
        let wrote = |call: &Call| call.op.is_some_and(|op| op.what == what && op.wrote_current.is_some());
        world.calls.iter().any(wrote)
            && self.some_step(world, what, |_, step| step.note.is_some_and(|note| note.recognised))
    }

    /// Whether a step of an operation about that can lead there.
    fn some_step(&self, world: &World, what: What, is_it: impl Fn(Action, &Step<'_>) -> bool) -> bool {
        let mut actions = Vec::new();
        self.possible(world, &mut actions);
        let steps = actions.into_iter().filter(|action| action.what(world) == Some(what));
        steps.into_iter().any(|action| is_it(action, &self.after(world, action)))
    }
}

fn is_in(world: &World, state: State) -> bool {
    world.state() == Some(state)
}

fn has_lapsed(world: &World) -> bool {
    world.kept.is_some_and(|kept| kept.state == State::Running && kept.due == Time::Passed)
}

fn claimed_under(world: &World, is_it: impl Fn(OnLapse) -> bool) -> bool {
    has_lapsed(world) && world.kept.is_some_and(|kept| is_it(kept.on_lapse))
}
