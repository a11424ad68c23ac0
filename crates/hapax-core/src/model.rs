//! A model of the world around the rules, checked state by state.
//!
//! One key, three calls that retry, two nodes, a sweeper, a person, a store, and everything that can go wrong between
//! them. The model drives the real rules: [`bridge`] calls the `decide` of [`transition`](crate::transition), and every
//! reachable state is visited.
//!
//! | part | what it holds |
//! |---|---|
//! | [`world`] | a state |
//! | [`possible`], [`step`] | what can happen next, and what it does |
//! | [`bridge`] | the way to the real rules |
//! | [`audit`] | what must never happen |
//! | [`liveness`] | whether every record can come to its end |
//! | [`milestones`] | what must come true somewhere |
//! | [`configurations`] | the worlds that are checked, and mutants that must be caught |
//!
//! How the engine and a real store behave is tested elsewhere; the model takes from them what [`step`] says.

mod audit;
mod bridge;
mod configurations;
mod liveness;
mod milestones;
mod possible;
mod step;
mod world;

use stateright::{Model, Property};

use self::bridge::Bridge;
use self::possible::Action;
use self::world::{Broken, CALLS_MAX, What, World};
use crate::record::OnLapse;

/// What a node is configured to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Node {
    on_lapse: OnLapse,
    /// How its calls begin.
    starts: &'static [What],
}

/// A defect, to see that it is caught.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutant {
    /// The rules do not ask whose attempt it is.
    HasNoFence,
    /// The store writes whatever version is expected.
    IgnoresVersions,
    /// A node takes its own route's policy for that of the record.
    GoesByItsRouteOnly,
}

/// A sentence and how to see that it comes true.
type Milestone = (&'static str, fn(&Hapax, &World) -> bool);

/// A configuration of the model.
#[derive(Clone, Debug)]
struct Hapax {
    bridge: Bridge,
    /// The node of each call.
    nodes: [Node; CALLS_MAX],
    calls: usize,
    /// What attempts say.
    says: &'static [What],
    /// Whether attempts renew their leases.
    beats: bool,
    /// Whether attempts start from what they last saw instead of looking first.
    knows: bool,
    expires: bool,
    keeps_tombstones: bool,
    pauses: bool,
    outages: bool,
    mutant: Option<Mutant>,
    /// What must come true somewhere, so that the checks are about something.
    milestones: &'static [Milestone],
}

const AT_MOST_ONCE: &str = "no more executions than permitted: one, and one for each verdict, rerun or expiry";

impl Model for Hapax {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World::EMPTY]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if world.broken.is_none() {
            self.possible(world, actions);
        }
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let next = self.after(world, action).world;
        (next != *world).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let always: [Milestone; 14] = [
            (AT_MOST_ONCE, |_, world| world.permits >= 0),
            ("no attempt begins while the one before may still have an effect", |_, world| {
                world.broken != Some(Broken::Overlap)
            }),
            ("a policy is never loosened", |_, world| world.broken != Some(Broken::PolicyLoosened)),
            ("an attempt that had its effect can record its answer", |model, world| model.can_record_answers(world)),
            ("an answer that can be recorded is not turned away", |_, world| {
                world.broken != Some(Broken::AnswerDiscarded)
            }),
            ("an attempt whose answer stands is told so", |_, world| world.broken != Some(Broken::AnswerDenied)),
            ("a completed answer never changes", |_, world| world.broken != Some(Broken::AnswerChanged)),
            ("a fenced writer changes nothing", |_, world| world.broken != Some(Broken::Fence)),
            ("the fence stays until a new attempt", |_, world| world.broken != Some(Broken::Attempt)),
            ("a rerun begins at the beginning", |_, world| world.broken != Some(Broken::Checkpoint)),
            ("nothing lapses or expires by a paused clock", |_, world| world.broken != Some(Broken::PausedClock)),
            ("what may have run is not said to have never run", |_, world| world.broken != Some(Broken::NeverRan)),
            ("nothing unfinished is deleted", |_, world| world.broken != Some(Broken::Reaped)),
            ("a record that everybody left comes to an end", |model, world| model.comes_to_an_end(world)),
        ];
        let always = always.map(|(name, condition)| Property::always(name, condition));
        let sometimes = self.milestones.iter().map(|(name, condition)| Property::sometimes(name, *condition));
        always.into_iter().chain(sometimes).collect()
    }
}
