//! The state of the model: one key, the calls that want it, and what an auditor needs to know of the past.
//!
//! Everything is small, so that every state can be visited. Times are only ahead or passed, because the rules ask for
//! nothing else, and the moment in which a time passes is a step of its own. Versions and attempt ids are small numbers
//! that are used again once nothing can tell the difference: of all versions, only the one that stands in the store can
//! ever match. Steps are in [`step`](super::step), checks in [`audit`](super::audit).

use crate::record::{OnLapse, State, Verdict};
use crate::transition::Answer;

/// Calls at a time. A call that has ended starts again as a new one, so the number of retries has no limit.
pub(super) const CALLS_MAX: usize = 3;

/// The version that stands in the store.
pub(super) const CURRENT: u8 = 1;
/// Every version that was replaced. No swap that expects one is applied.
pub(super) const GONE: u8 = 0;

/// The attempt id of every attempt of which nobody will hear again. One that lives has the number of its call.
pub(super) const DEPARTED: u8 = 9;

/// Where a time lies, seen from now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Time {
    Never,
    Ahead,
    Passed,
}

/// A record, reduced to what can differ in the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Kept {
    pub(super) version: u8,
    pub(super) state: State,
    pub(super) attempt: u8,
    pub(super) attempt_id: Option<u8>,
    pub(super) on_lapse: OnLapse,
    pub(super) keeps_tombstone: bool,
    pub(super) due: Time,
    pub(super) expires: Time,
    pub(super) verdict: Option<Verdict>,
    pub(super) has_request: bool,
    pub(super) has_checkpoint: bool,
}

impl Kept {
    /// What the auditor needs no more.
    const BLANK: Self = Self {
        version: GONE,
        state: State::Ready,
        attempt: 0,
        attempt_id: None,
        on_lapse: OnLapse::Unknown,
        keeps_tombstone: false,
        due: Time::Never,
        expires: Time::Never,
        verdict: None,
        has_request: false,
        has_checkpoint: false,
    };

    /// The record expires. Nothing is due later than that.
    pub(super) fn expire(&mut self) {
        self.expires = Time::Passed;
        if self.due == Time::Ahead {
            self.due = Time::Passed;
        }
    }
}

/// What somebody wants: an event without its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum What {
    Claim,
    WorkerClaim,
    Accept,
    Renew,
    Checkpoint,
    Complete,
    Fail,
    Doubt,
    Lapse,
    Expire,
    Happened,
    DidNotHappen,
    GiveUp,
}

impl What {
    pub(super) fn is_of_attempt(self) -> bool {
        matches!(self, Self::Renew | Self::Checkpoint | Self::Complete | Self::Fail | Self::Doubt)
    }

    pub(super) fn is_claim(self) -> bool {
        matches!(self, Self::Claim | Self::WorkerClaim)
    }
}

/// Who has an operation under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Who {
    /// A call: its claim, then what its attempt says.
    Call(usize),
    /// The renewals of an attempt, beside everything else it does.
    Beat(usize),
    /// The sweeper of either node.
    Sweeper,
    /// A person with authority, right or wrong.
    Person,
}

/// A swap that was decided and has not reached the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Write {
    pub(super) what: What,
    pub(super) expect: Option<u8>,
    pub(super) next: Kept,
    pub(super) answer: Answer,
    /// Whose attempt writes, or would start.
    pub(super) attempt_id: Option<u8>,
    /// What the writer's node says of a lapse.
    pub(super) route: OnLapse,
    /// Whether it is meant to be the first record of a free key.
    pub(super) begins: bool,
}

impl Write {
    pub(super) fn is_bound_to_lose(&self) -> bool {
        self.expect == Some(GONE)
    }

    /// A write that cannot be applied any longer is like every other.
    pub(super) fn forget(&mut self) {
        *self = Self {
            next: Kept::BLANK,
            answer: Answer::Fenced,
            attempt_id: None,
            route: OnLapse::Unknown,
            begins: false,
            ..*self
        };
    }
}

/// An operation of the engine between two messages to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Op {
    pub(super) what: What,
    /// The swap to send; `None`: the reply was lost, and the record is to be read back.
    pub(super) write: Option<Write>,
    /// Its own write stands in the store, and this is the answer if it finds that out.
    pub(super) wrote_current: Option<Answer>,
    /// The same for its write that may still land.
    pub(super) wrote_limbo: Option<Answer>,
}

/// How far a call has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Phase {
    Idle,
    /// It asks whether it may run.
    Asking,
    /// Its attempt runs, without an effect so far.
    NotYet,
    /// Its attempt had its effect and holds the answer.
    Executed,
    /// Its attempt ended and provably did nothing.
    Nothing,
}

/// A request of a client at a node, and the attempt it may become.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Call {
    pub(super) phase: Phase,
    pub(super) op: Option<Op>,
    pub(super) beat: Option<Op>,
    /// Due and expiry as the attempt last saw them, and whether the clock was paused; gone as soon as somebody writes.
    pub(super) known: Option<(Time, Time, bool)>,
    /// Ghost: the record went to another attempt, or expired and was deleted.
    pub(super) displaced: bool,
    /// Ghost: its answer is the one that was recorded.
    pub(super) recorded: bool,
}

impl Call {
    pub(super) const IDLE: Self =
        Self { phase: Phase::Idle, op: None, beat: None, known: None, displaced: false, recorded: false };

    pub(super) fn is_attempt(&self) -> bool {
        matches!(self.phase, Phase::NotYet | Phase::Executed | Phase::Nothing)
    }
}

/// Ghost: how a record became ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ReadyBy {
    Accepted,
    Failed,
    Verdict,
    Lapsed,
}

/// What must never happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Broken {
    /// An attempt wrote a record of another one, or an answer that says "nothing was changed" came with a write.
    Fence,
    /// A completed answer was replaced before it expired, or a tombstone before its end.
    AnswerChanged,
    /// An attempt began though the one before may still have an effect, and nobody said that this is safe.
    Overlap,
    /// A record lost a stricter policy than the one it has now.
    PolicyLoosened,
    /// The answer of an attempt that had its effect was turned away though it could have been recorded.
    AnswerDiscarded,
    /// An attempt whose answer is the recorded one was told that it is not.
    AnswerDenied,
    /// A rerun from the start was given a checkpoint.
    Checkpoint,
    /// Something lapsed or expired by a clock that was not trusted.
    PausedClock,
    /// Work was said to have never run though an attempt of it may have.
    NeverRan,
    /// A store deleted what is not finished.
    Reaped,
    /// The attempt id changed without a reason.
    Attempt,
}

/// One state of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct World {
    pub(super) kept: Option<Kept>,
    pub(super) paused: bool,
    pub(super) outage: bool,
    pub(super) calls: [Call; CALLS_MAX],
    pub(super) sweeper: Option<Op>,
    pub(super) person: Option<Op>,
    /// A write whose reply was lost: it lands later, or never.
    pub(super) limbo: Option<Write>,
    /// Ghost: executions permitted so far minus executions.
    pub(super) permits: i8,
    /// Ghost: how the record became ready, while it is.
    pub(super) ready_by: Option<ReadyBy>,
    /// Ghost: how many attempts lapsed, and another one followed or may follow. Two stand for many.
    pub(super) passed_over: u8,
    /// The first thing an auditor found.
    pub(super) broken: Option<Broken>,
}

impl World {
    pub(super) const EMPTY: Self = Self {
        kept: None,
        paused: false,
        outage: false,
        calls: [Call::IDLE; CALLS_MAX],
        sweeper: None,
        person: None,
        limbo: None,
        permits: 0,
        ready_by: None,
        passed_over: 0,
        broken: None,
    };

    pub(super) fn state(&self) -> Option<State> {
        self.kept.map(|kept| kept.state)
    }

    pub(super) fn version(&self) -> Option<u8> {
        self.kept.map(|kept| kept.version)
    }

    pub(super) fn op(&self, who: Who) -> Option<&Op> {
        match who {
            Who::Call(call) => self.calls[call].op.as_ref(),
            Who::Beat(call) => self.calls[call].beat.as_ref(),
            Who::Sweeper => self.sweeper.as_ref(),
            Who::Person => self.person.as_ref(),
        }
    }

    pub(super) fn op_mut(&mut self, who: Who) -> &mut Option<Op> {
        match who {
            Who::Call(call) => &mut self.calls[call].op,
            Who::Beat(call) => &mut self.calls[call].beat,
            Who::Sweeper => &mut self.sweeper,
            Who::Person => &mut self.person,
        }
    }

    pub(super) fn ops_mut(&mut self) -> impl Iterator<Item = &mut Op> {
        let of_calls = self.calls.iter_mut().flat_map(|call| [&mut call.op, &mut call.beat]);
        of_calls.chain([&mut self.sweeper, &mut self.person]).flatten()
    }

    /// The version in the store is replaced by another: whoever expects it will lose.
    pub(super) fn forget_current(&mut self) {
        let stale = |write: &mut Write| {
            if write.expect == Some(CURRENT) {
                write.expect = Some(GONE);
            }
        };
        for op in self.ops_mut() {
            op.wrote_current = None;
            op.write.iter_mut().for_each(stale);
        }
        self.limbo.iter_mut().for_each(stale);
        self.calls.iter_mut().for_each(|call| call.known = None);
    }

    /// Gives attempts other ids, wherever they stand.
    pub(super) fn rename(&mut self, names: impl Fn(u8) -> u8) {
        let rename_write = |write: &mut Write| {
            write.next.attempt_id = write.next.attempt_id.map(&names);
            write.attempt_id = write.attempt_id.map(&names);
        };
        self.ops_mut().filter_map(|op| op.write.as_mut()).for_each(rename_write);
        self.limbo.iter_mut().for_each(rename_write);
        self.kept.iter_mut().for_each(|kept| kept.attempt_id = kept.attempt_id.map(&names));
    }

    /// The call has ended: by an answer, or because its process died.
    pub(super) fn end_call(&mut self, call: usize) {
        self.calls[call] = Call::IDLE;
        self.rename(|id| if usize::from(id) == call { DEPARTED } else { id });
    }
}
