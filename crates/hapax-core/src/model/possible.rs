//! Which steps are possible in a state.
//!
//! Nothing has a budget: processes die, replies are lost, leases lapse and people are wrong as often as they like. The
//! number of states is finite all the same, because nothing in them counts. What each step does is in
//! [`step`](super::step).

use super::Hapax;
use super::world::{Phase, Time, What, Who, World};
use crate::record::State;

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Action {
    /// A client's request arrives.
    Start(usize, What),
    /// The attempt has its effect.
    Effect(usize),
    /// The attempt has something to say.
    Say(usize, What),
    /// The attempt renews its lease, whatever else it does.
    Beat(usize),
    /// The process of the call dies, or nobody tries any longer.
    Die(usize),
    /// A sweep comes by.
    Sweep(What),
    /// A person decides.
    Resolve(What),
    /// The swap is sent, and the reply comes back.
    Swap(Who),
    /// The swap is sent, and the reply is lost.
    LoseReply(Who),
    /// The record is read back after a lost reply.
    ReadBack(Who),
    /// It cannot be: the operation fails.
    ReadBackFails(Who),
    /// A write that lost its reply reaches the store after all.
    Land,
    /// The due time of the record comes: its lease lapses, or it may start.
    DuePasses,
    /// The record expires.
    ExpiryPasses,
    /// The store deletes what has expired.
    Reap,
    /// The store stops trusting its clock, or trusts it again.
    PauseOrGoOn,
    /// Nobody reaches the store any longer, until the lease of the attempt that runs has lapsed.
    OutageBeginsOrEnds,
}

impl Action {
    /// What the operation is about that may have its answer after this step.
    pub(super) fn what(self, world: &World) -> Option<What> {
        match self {
            Self::Start(_, what) | Self::Say(_, what) | Self::Sweep(what) | Self::Resolve(what) => Some(what),
            Self::Beat(_) => Some(What::Renew),
            Self::Swap(who) | Self::ReadBack(who) => world.op(who).map(|op| op.what),
            _ => None,
        }
    }

    /// Whether it needs neither a client nor an attempt that lives.
    pub(super) fn happens_by_itself(self) -> bool {
        match self {
            Self::Swap(who) => matches!(who, Who::Sweeper | Who::Person),
            Self::Die(_) | Self::Sweep(_) | Self::Resolve(_) => true,
            Self::DuePasses | Self::ExpiryPasses | Self::Reap | Self::PauseOrGoOn | Self::OutageBeginsOrEnds => true,
            _ => false,
        }
    }
}

impl Hapax {
    /// Everything that can happen in this state.
    pub(super) fn possible(&self, world: &World, actions: &mut Vec<Action>) {
        for call in 0..self.calls {
            self.possible_for_call(world, call, actions);
            self.possible_for_op(world, Who::Call(call), actions);
            self.possible_for_op(world, Who::Beat(call), actions);
        }
        self.possible_for_op(world, Who::Sweeper, actions);
        self.possible_for_op(world, Who::Person, actions);
        if world.limbo.is_some() {
            actions.push(Action::Land);
        }
        if !world.outage {
            self.possible_for_others(world, actions);
        }
        self.possible_for_time(world, actions);
    }

    fn possible_for_call(&self, world: &World, call: usize, actions: &mut Vec<Action>) {
        let now = &world.calls[call];
        if now.phase == Phase::Idle {
            if !world.outage && self.is_first_idle(world, call) {
                actions.extend(self.nodes[call].starts.iter().map(|what| Action::Start(call, *what)));
            }
            return;
        }
        actions.push(Action::Die(call));
        if now.phase == Phase::NotYet {
            actions.push(Action::Effect(call));
        }
        if !now.is_attempt() || world.outage {
            return;
        }
        if now.op.is_none() {
            let sayable = self.says.iter().filter(|what| match what {
                What::Complete => now.phase == Phase::Executed,
                What::Fail => now.phase != Phase::Executed,
                _ => now.phase != Phase::Nothing,
            });
            actions.extend(sayable.map(|what| Action::Say(call, *what)));
        }
        if self.beats && now.beat.is_none() && now.phase != Phase::Nothing {
            actions.push(Action::Beat(call));
        }
    }

    /// Calls at one node are alike: it is enough if the first idle one starts.
    fn is_first_idle(&self, world: &World, call: usize) -> bool {
        (0..call).all(|other| self.nodes[other] != self.nodes[call] || world.calls[other].phase != Phase::Idle)
    }

    fn possible_for_op(&self, world: &World, who: Who, actions: &mut Vec<Action>) {
        match world.op(who).map(|op| op.write) {
            None => {}
            Some(Some(_)) if world.outage => {}
            Some(Some(write)) => {
                actions.push(Action::Swap(who));
                // The reply matters only to who acts on it. A swap that is bound to lose lands nowhere: to lose its
                // reply and to read back is the same as to lose.
                let matters = matches!(who, Who::Call(_)) && write.expect == world.version();
                if matters && world.limbo.is_none() {
                    actions.push(Action::LoseReply(who));
                }
            }
            Some(None) => {
                actions.push(Action::ReadBackFails(who));
                if !world.outage {
                    actions.push(Action::ReadBack(who));
                }
            }
        }
    }

    fn possible_for_others(&self, world: &World, actions: &mut Vec<Action>) {
        let Some(kept) = &world.kept else { return };
        if world.sweeper.is_none() && kept.due == Time::Passed && kept.state == State::Running {
            actions.push(Action::Sweep(What::Lapse));
        }
        if world.sweeper.is_none() && kept.expires == Time::Passed && kept.state != State::Expired {
            actions.push(Action::Sweep(What::Expire));
        }
        if world.person.is_none() && matches!(kept.state, State::Unknown | State::Dead) {
            actions.extend([What::Happened, What::DidNotHappen, What::GiveUp].map(Action::Resolve));
        }
        if kept.expires == Time::Passed && !world.paused && self.bridge.is_to_be_reaped(kept) {
            actions.push(Action::Reap);
        }
    }

    fn possible_for_time(&self, world: &World, actions: &mut Vec<Action>) {
        if self.pauses {
            actions.push(Action::PauseOrGoOn);
        }
        let Some(kept) = &world.kept else { return };
        let turns = if world.outage { kept.due == Time::Passed } else { kept.due == Time::Ahead };
        if self.outages && kept.state == State::Running && turns {
            actions.push(Action::OutageBeginsOrEnds);
        }
        if kept.due == Time::Ahead && kept.state != State::Completed {
            actions.push(Action::DuePasses);
        }
        let is_next = kept.due != Time::Ahead || kept.state == State::Completed;
        if self.expires && kept.expires == Time::Ahead && is_next {
            actions.push(Action::ExpiryPasses);
        }
    }
}
