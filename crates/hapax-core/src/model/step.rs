//! What a step does: the engine, message by message, and the store.
//!
//! An operation follows the engine. It decides on what it saw, and the swap is a step of its own, so that anything can
//! happen in between. The swap is applied, or loses and decides again on what stands there, or loses its reply. In
//! that case the write is in limbo and lands later or never, and the writer reads back and looks for its own version.
//! Reading back can fail as well; then nothing may run, and an attempt says again what it has to say.
//!
//! When a step is possible is in [`possible`](super::possible).

use super::bridge::{Asker, Decided};
use super::possible::Action;
use super::world::{Call, DEPARTED, Kept, Op, Phase, Time, What, Who, World, Write};
use super::{Hapax, Mutant};
use crate::record::State;
use crate::transition::Answer;

/// What an operation was told, for properties that look for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) what: What,
    pub(super) answer: Answer,
    /// Whether it knew its own write after a lost reply.
    pub(super) recognised: bool,
}

/// A state in the middle of a step.
pub(super) struct Step<'m> {
    pub(super) model: &'m Hapax,
    pub(super) world: World,
    pub(super) note: Option<Note>,
}

impl Hapax {
    /// The state after a step.
    pub(super) fn after(&self, world: &World, action: Action) -> Step<'_> {
        let mut step = Step { model: self, world: *world, note: None };
        step.take(action);
        step.tidy();
        step
    }
}

impl Step<'_> {
    fn take(&mut self, action: Action) {
        match action {
            Action::Start(call, what) => {
                self.world.calls[call].phase = Phase::Asking;
                self.begin(Who::Call(call), what);
            }
            Action::Effect(call) => {
                self.world.calls[call].phase = Phase::Executed;
                self.world.permits -= 1;
            }
            Action::Say(call, what) => {
                if what == What::Fail {
                    self.world.calls[call].phase = Phase::Nothing;
                }
                self.begin(Who::Call(call), what);
            }
            Action::Beat(call) => self.begin(Who::Beat(call), What::Renew),
            Action::Die(call) => self.world.end_call(call),
            Action::Sweep(what) => self.begin(Who::Sweeper, what),
            Action::Resolve(what) => self.begin(Who::Person, what),
            Action::Swap(who) => self.swap(who),
            Action::LoseReply(who) => self.lose_reply(who),
            Action::ReadBack(who) => self.look(who),
            Action::ReadBackFails(who) => self.fail(who),
            Action::Land => self.land(),
            Action::DuePasses => self.world.kept.iter_mut().for_each(|kept| kept.due = Time::Passed),
            Action::ExpiryPasses => self.world.kept.iter_mut().for_each(Kept::expire),
            Action::Reap => self.reap(),
            Action::PauseOrGoOn => self.world.paused = !self.world.paused,
            Action::OutageBeginsOrEnds => self.world.outage = !self.world.outage,
        }
    }

    /// As the engine: a claim assumes a free key, an attempt starts from what it knows, and what follows from that
    /// without a write is confirmed by a look first.
    fn begin(&mut self, who: Who, what: What) {
        *self.world.op_mut(who) = Some(Op { what, write: None, wrote_current: None, wrote_limbo: None });
        let guess = match who {
            Who::Call(_) if matches!(what, What::Claim | What::Accept) => Some((None, false)),
            Who::Call(call) | Who::Beat(call) => self.world.calls[call]
                .known
                .zip(self.world.kept)
                .map(|((due, expires, paused), kept)| (Some(Kept { due, expires, ..kept }), paused)),
            Who::Sweeper | Who::Person => None,
        };
        let Some((kept, paused)) = guess else { return self.look(who) };
        let decided = self.decide(who, what, kept, paused);
        if decided.next.is_none() {
            return self.look(who);
        }
        self.prepare(who, what, kept.map(|kept| kept.version), &decided);
    }

    /// Sees what stands there and knows its own write, or decides on it at once.
    fn look(&mut self, who: Who) {
        let Some(op) = self.world.op(who).copied() else { return };
        if let Some(answer) = op.wrote_current {
            return self.finish(who, answer, true);
        }
        let decided = self.decide(who, op.what, self.world.kept, self.world.paused);
        match decided.next {
            Some(_) => self.prepare(who, op.what, self.world.version(), &decided),
            None => self.finish(who, decided.answer, false),
        }
    }

    fn decide(&mut self, who: Who, what: What, kept: Option<Kept>, paused: bool) -> Decided {
        let asker = self.asker(who);
        let kept = match kept {
            Some(kept) if self.model.mutant == Some(Mutant::GoesByItsRouteOnly) => {
                Some(Kept { on_lapse: asker.on_lapse, ..kept })
            }
            kept => kept,
        };
        let decided = self.model.bridge.decide(kept.as_ref(), paused, what, asker);
        self.audit_decision(what, kept.as_ref(), asker.attempt_id, &decided);
        if paused {
            self.audit_paused_decision(what, kept.as_ref(), &decided);
        }
        decided
    }

    fn asker(&self, who: Who) -> Asker {
        let call = match who {
            Who::Call(call) | Who::Beat(call) => Some(call),
            Who::Sweeper | Who::Person => None,
        };
        Asker {
            attempt_id: call.map_or(DEPARTED, |call| call as u8),
            on_lapse: self.model.nodes[call.unwrap_or(0)].on_lapse,
            keeps_tombstone: self.model.keeps_tombstones,
        }
    }

    fn prepare(&mut self, who: Who, what: What, expect: Option<u8>, decided: &Decided) {
        let asker = self.asker(who);
        let write = decided.next.map(|next| Write {
            what,
            expect,
            next,
            answer: decided.answer,
            attempt_id: matches!(who, Who::Call(_) | Who::Beat(_)).then_some(asker.attempt_id),
            route: asker.on_lapse,
            begins: decided.begins,
        });
        self.world.op_mut(who).iter_mut().for_each(|op| op.write = write);
    }

    fn swap(&mut self, who: Who) {
        let Some(write) = self.world.op(who).and_then(|op| op.write) else { return };
        if self.world.version() == write.expect || self.model.mutant == Some(Mutant::IgnoresVersions) {
            self.apply(&write);
            self.finish(who, write.answer, false);
        } else {
            self.look(who);
        }
    }

    fn lose_reply(&mut self, who: Who) {
        let Some(op) = self.world.op_mut(who) else { return };
        let Some(write) = op.write.take() else { return };
        op.wrote_limbo = Some(write.answer);
        self.world.limbo = Some(write);
    }

    fn land(&mut self) {
        let Some(write) = self.world.limbo.take() else { return };
        if self.world.version() == write.expect {
            self.apply(&write);
            self.world.ops_mut().for_each(|op| op.wrote_current = op.wrote_limbo.take());
        } else {
            self.world.ops_mut().for_each(|op| op.wrote_limbo = None);
        }
    }

    /// The store writes.
    fn apply(&mut self, write: &Write) {
        self.audit_write(write);
        let held = self.world.kept.and_then(|kept| kept.attempt_id);
        self.world.forget_current();
        self.world.kept = Some(write.next);
        if held != write.next.attempt_id || write.begins {
            self.displace(held);
        }
        let recorded = write.attempt_id.filter(|_| write.what == What::Complete);
        if let Some(call) = recorded.and_then(|id| self.world.calls.get_mut(usize::from(id))) {
            call.recorded = true;
        }
    }

    fn reap(&mut self) {
        self.audit_reap();
        let held = self.world.kept.and_then(|kept| kept.attempt_id);
        self.world.forget_current();
        self.world.kept = None;
        self.displace(held);
    }

    fn displace(&mut self, held: Option<u8>) {
        if let Some(call) = held.and_then(|id| self.world.calls.get_mut(usize::from(id))) {
            call.displaced = true;
        }
    }

    /// The operation failed: a claim runs nothing, an attempt may try again.
    fn fail(&mut self, who: Who) {
        *self.world.op_mut(who) = None;
        if let Who::Call(call) = who
            && self.world.calls[call].phase == Phase::Asking
        {
            self.world.end_call(call);
        }
    }

    /// The operation has its answer.
    fn finish(&mut self, who: Who, answer: Answer, recognised: bool) {
        let Some(op) = self.world.op_mut(who).take() else { return };
        self.note = Some(Note { what: op.what, answer, recognised });
        let (Who::Call(call) | Who::Beat(call)) = who else { return };
        self.audit_answer(call, op.what, answer);
        match (op.what, answer) {
            (What::Claim | What::WorkerClaim, Answer::Proceed) => {
                self.world.calls[call] = Call { phase: Phase::NotYet, ..Call::IDLE };
            }
            (What::Renew | What::Checkpoint | What::Doubt, _) => {}
            _ => return self.world.end_call(call),
        }
        let seen = self.world.kept.filter(|_| self.model.knows);
        self.world.calls[call].known = seen.map(|kept| (kept.due, kept.expires, self.world.paused));
    }

    /// Brings a state into one spelling, so that states that cannot be told apart are one.
    fn tidy(&mut self) {
        let world = &mut self.world;
        if world.state() != Some(State::Ready) {
            world.ready_by = None;
        }
        if world.limbo.is_some_and(|write| write.is_bound_to_lose()) {
            world.limbo = None;
            world.ops_mut().for_each(|op| op.wrote_limbo = None);
        }
        if self.model.mutant != Some(Mutant::IgnoresVersions) {
            let has_a_chance = |op: &Op| !op.write.is_some_and(|write| write.is_bound_to_lose());
            // A sweep or a verdict that loses decides again on what stands there: it might as well begin again.
            world.sweeper = world.sweeper.filter(has_a_chance);
            world.person = world.person.filter(has_a_chance);
            let writes = world.ops_mut().filter_map(|op| op.write.as_mut());
            writes.filter(|write| write.is_bound_to_lose()).for_each(Write::forget);
        }
        // Every attempt uses at most one permit, and only one more can start without another.
        let can_use = world.calls.iter().filter(|call| call.phase == Phase::NotYet).count() as i8 + 1;
        world.permits = world.permits.min(can_use);
        self.sort_calls();
    }

    /// Calls at one node are alike: their order says nothing.
    fn sort_calls(&mut self) {
        for (left, right) in [(0, 1), (1, 2), (0, 1)] {
            let alike = right < self.model.calls && self.model.nodes[left] == self.model.nodes[right];
            if alike && sort_key(&self.world, left) > sort_key(&self.world, right) {
                self.world.calls.swap(left, right);
                self.world.rename(|id| match usize::from(id) {
                    id if id == left => right as u8,
                    id if id == right => left as u8,
                    _ => id,
                });
            }
        }
    }
}

/// What tells calls apart. Where it does not, one state is visited as two, and nothing is missed.
fn sort_key(world: &World, call: usize) -> impl Ord {
    let of_op = |op: Option<Op>| op.map(|op| (op.what, op.write.map(|write| write.expect), op.wrote_limbo.is_some()));
    let now = &world.calls[call];
    let holds = world.kept.is_some_and(|kept| kept.attempt_id == Some(call as u8));
    (now.phase, holds, of_op(now.op), of_op(now.beat), now.known, now.displaced)
}
