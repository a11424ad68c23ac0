//! What must never happen, written down without looking at the rules: the checks of the model.
//!
//! Most checks look at a write in the moment it is decided or applied, when it is known who writes what over what. What
//! they find stays in [`World::broken`], where the checker sees it. Ghost state keeps what no record holds: how many
//! executions are permitted, how a record became ready, whose record went to another attempt.

use super::Hapax;
use super::bridge::{Asker, Decided};
use super::step::Step;
use super::world::{Broken, DEPARTED, Kept, Phase, ReadyBy, Time, What, World, Write};
use crate::record::{OnLapse, State};
use crate::transition::Answer;

impl Step<'_> {
    fn broke(&mut self, broken: Broken) {
        // What a mutant breaks first is not what we want to see, but where it leads.
        if self.model.mutant.is_none() {
            self.world.broken = self.world.broken.or(Some(broken));
        }
    }

    /// One more execution may follow.
    fn permit(&mut self) {
        self.world.permits += 1;
    }

    fn pass_over(&mut self) {
        self.world.passed_over = (self.world.passed_over + 1).min(2);
    }

    fn settle_one(&mut self) {
        self.world.passed_over = self.world.passed_over.saturating_sub(1);
    }

    /// In the moment of a decision: an attempt writes its own record only, and who is told that nothing was changed has
    /// changed nothing.
    pub(super) fn audit_decision(&mut self, what: What, kept: Option<&Kept>, attempt_id: u8, decided: &Decided) {
        if decided.next.is_none() {
            return;
        }
        let is_told_of_a_write = matches!(
            decided.answer,
            Answer::Proceed | Answer::Accepted | Answer::Undecided | Answer::Done | Answer::Contradicted
        );
        let holds = kept.is_some_and(|kept| kept.attempt_id == Some(attempt_id));
        if !is_told_of_a_write || (what.is_of_attempt() && !holds) {
            self.broke(Broken::Fence);
        }
    }

    /// While the clock is not trusted nobody but the attempt itself touches a running record, and nothing is free or a
    /// tombstone because of the time.
    pub(super) fn audit_paused_decision(&mut self, what: What, kept: Option<&Kept>, decided: &Decided) {
        let Some(kept) = kept.filter(|_| decided.next.is_some()) else { return };
        let by_time = match kept.state {
            State::Running => !what.is_of_attempt(),
            State::Ready => decided.begins || what == What::Expire,
            State::Completed | State::Expired => true,
            State::Unknown | State::Dead => false,
        };
        if by_time {
            self.broke(Broken::PausedClock);
        }
    }

    /// In the moment the store writes.
    pub(super) fn audit_write(&mut self, write: &Write) {
        match self.world.kept {
            Some(before) if !write.begins => self.audit_change(&before, write),
            before => {
                if before.is_none_or(|before| is_free(&before)) {
                    self.permit();
                } else {
                    self.broke(Broken::AnswerChanged);
                }
                self.world.ready_by = Some(ReadyBy::Accepted);
                self.world.passed_over = 0;
            }
        }
    }

    fn audit_change(&mut self, before: &Kept, write: &Write) {
        let next = &write.next;
        if matches!(before.state, State::Completed | State::Expired) {
            let has_expired = before.state == State::Completed && before.expires == Time::Passed;
            if !(has_expired && before.keeps_tombstone && next.state == State::Expired) {
                self.broke(Broken::AnswerChanged);
            }
        }
        match (write.what, next.state) {
            (What::Expire, State::Completed) if self.world.passed_over > 0 => self.broke(Broken::NeverRan),
            // The last one is in doubt again.
            (What::Expire, State::Unknown) if self.world.ready_by == Some(ReadyBy::Lapsed) => self.settle_one(),
            _ => {}
        }
        if next.on_lapse < before.on_lapse || (before.keeps_tombstone && !next.keeps_tombstone) {
            self.broke(Broken::PolicyLoosened);
        }
        match (before.attempt_id, next.attempt_id) {
            (held, holds) if held == holds => {}
            (_, Some(_)) => self.audit_start(before, write),
            (_, None) if write.what == What::Fail => {}
            _ => self.broke(Broken::Attempt),
        }
        self.note_ready(before, write);
    }

    /// A new attempt over a record: the one before provably did nothing, or somebody said that running again is safe.
    fn audit_start(&mut self, before: &Kept, write: &Write) {
        let lapsed = before.state == State::Running
            && before.due == Time::Passed
            && before.on_lapse != OnLapse::Unknown
            && write.route != OnLapse::Unknown;
        let lapsed_earlier = before.state == State::Ready && self.world.ready_by == Some(ReadyBy::Lapsed);
        if lapsed {
            self.pass_over();
        }
        if lapsed || lapsed_earlier {
            self.permit();
            if write.next.on_lapse == OnLapse::Rerun && write.next.has_checkpoint {
                self.broke(Broken::Checkpoint);
            }
        }
        if !write.what.is_claim() || !(lapsed || before.state == State::Ready) {
            self.broke(Broken::Overlap);
        }
    }

    fn note_ready(&mut self, before: &Kept, write: &Write) {
        if write.next.state != State::Ready || before.state == State::Ready && write.what != What::Fail {
            return;
        }
        match write.what {
            What::Fail => {
                // An attempt that lapsed says itself that it did nothing.
                if self.world.ready_by == Some(ReadyBy::Lapsed) {
                    self.settle_one();
                }
                self.world.ready_by = Some(ReadyBy::Failed);
            }
            What::DidNotHappen => {
                self.permit();
                self.world.ready_by = Some(ReadyBy::Verdict);
            }
            _ => {
                self.world.ready_by = Some(ReadyBy::Lapsed);
                self.pass_over();
                let may_run_again =
                    before.state == State::Running && before.due == Time::Passed && before.on_lapse != OnLapse::Unknown;
                if !may_run_again {
                    self.broke(Broken::Overlap);
                }
            }
        }
    }

    /// In the moment the store deletes.
    pub(super) fn audit_reap(&mut self) {
        let finished = |kept: Kept| matches!(kept.state, State::Ready | State::Completed | State::Expired);
        if !self.world.kept.is_some_and(finished) {
            self.broke(Broken::Reaped);
        }
    }

    /// In the moment an attempt hears what became of its answer.
    pub(super) fn audit_answer(&mut self, call: usize, what: What, answer: Answer) {
        if what != What::Complete || matches!(answer, Answer::Done | Answer::Contradicted) {
            return;
        }
        if !is_settled(&self.world, call) {
            self.broke(Broken::AnswerDiscarded);
        }
        let stands = self.world.kept.is_some_and(|kept| kept.state == State::Completed && kept.expires != Time::Passed);
        let is_its_own = self.world.calls[call].recorded && !self.world.calls[call].displaced;
        if stands && is_its_own {
            self.broke(Broken::AnswerDenied);
        }
    }
}

impl Hapax {
    /// Whether every attempt that had its effect can still record its answer, unless it comes too late.
    pub(super) fn can_record_answers(&self, world: &World) -> bool {
        (0..self.calls).filter(|call| world.calls[*call].phase == Phase::Executed).all(|call| {
            let asker = Asker { attempt_id: call as u8, on_lapse: OnLapse::Unknown, keeps_tombstone: false };
            let decided = || self.bridge.decide(world.kept.as_ref(), world.paused, What::Complete, asker);
            is_settled(world, call) || decided().next.is_some_and(|next| next.state == State::Completed)
        })
    }

    /// Whether a record that everybody has left comes to its end: time passes, a sweep comes by, and then it is
    /// completed, it expires, or a person can settle it.
    pub(super) fn comes_to_an_end(&self, world: &World) -> bool {
        let is_left = world.calls.iter().all(|call| call.phase == Phase::Idle);
        let Some(mut kept) = world.kept.filter(|_| is_left) else { return true };
        let nobody = Asker { attempt_id: DEPARTED, on_lapse: OnLapse::Rerun, keeps_tombstone: false };
        if kept.state == State::Running {
            kept.due = Time::Passed;
            let Some(next) = self.bridge.decide(Some(&kept), false, What::Lapse, nobody).next else { return false };
            kept = next;
        }
        match kept.state {
            State::Unknown | State::Dead => [What::Happened, What::GiveUp].into_iter().all(|what| {
                let decided = self.bridge.decide(Some(&kept), false, what, nobody);
                decided.next.is_some_and(|next| next.state == State::Completed)
            }),
            State::Ready | State::Completed | State::Expired => kept.expires != Time::Never,
            State::Running => false,
        }
    }
}

/// Whether the key is free again though a record stands there.
fn is_free(kept: &Kept) -> bool {
    let can_expire = match kept.state {
        State::Ready | State::Completed => !kept.keeps_tombstone,
        State::Expired => true,
        State::Running | State::Unknown | State::Dead => false,
    };
    can_expire && kept.expires == Time::Passed
}

/// Whether an answer of that attempt comes too late: the record is completed, went to another attempt, or expired.
fn is_settled(world: &World, call: usize) -> bool {
    let is_over = |kept: Kept| matches!(kept.state, State::Completed | State::Expired) || kept.expires == Time::Passed;
    world.kept.is_none_or(is_over) || world.calls[call].displaced
}
