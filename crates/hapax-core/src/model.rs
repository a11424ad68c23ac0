//! placeholder
mod audit;
mod bridge;
mod step;
mod world;

use stateright::{Checker, Model, Property, HasDiscoveries};

use self::bridge::Bridge;
use self::step::Action;
use self::world::{Broken, CALLS_MAX, What, World};
use crate::record::OnLapse;
use crate::transition::Rules;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Node {
    on_lapse: OnLapse,
    starts: &'static [What],
}

#[derive(Clone, Debug)]
struct Hapax {
    bridge: Bridge,
    nodes: [Node; CALLS_MAX],
    calls: usize,
    says: &'static [What],
    verdicts: &'static [What],
    beats: bool,
    loses_replies: bool,
    expires: bool,
    keeps_tombstones: bool,
    pauses: bool,
    outages: bool,
    compares_versions: bool,
    goes_by_its_route_only: bool,
}

impl Model for Hapax {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World::EMPTY]
    }

    fn actions(&self, state: &World, actions: &mut Vec<Action>) {
        if state.broken.is_none() {
            self.possible(state, actions);
        }
    }

    fn next_state(&self, state: &World, action: Action) -> Option<World> {
        let next = self.after(state, action).world;
        (next != *state).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("once", |_, world: &World| world.permits >= 0),
            Property::always("recordable", |model: &Hapax, world| model.can_record_answers(world)),
            Property::always("end", |model: &Hapax, world| model.comes_to_an_end(world)),
            Property::always("fence", |_, world: &World| world.broken != Some(Broken::Fence)),
            Property::always("changed", |_, world: &World| world.broken != Some(Broken::AnswerChanged)),
            Property::always("overlap", |_, world: &World| world.broken != Some(Broken::Overlap)),
            Property::always("policy", |_, world: &World| world.broken != Some(Broken::PolicyLoosened)),
            Property::always("discarded", |_, world: &World| world.broken != Some(Broken::AnswerDiscarded)),
            Property::always("paused", |_, world: &World| world.broken != Some(Broken::PausedClock)),
            Property::always("reaped", |_, world: &World| world.broken != Some(Broken::Reaped)),
            Property::always("attempt", |_, world: &World| world.broken != Some(Broken::Attempt)),
        ]
    }
}

const BASE: Node = Node { on_lapse: OnLapse::Unknown, starts: &[What::Claim] };
const ALL_VERDICTS: &[What] = &[What::Happened, What::DidNotHappen, What::GiveUp];

fn base(calls: usize) -> Hapax {
    Hapax {
        bridge: Bridge::new(Rules { fence: true }, None),
        nodes: [BASE; CALLS_MAX],
        calls,
        says: &[What::Complete, What::Fail, What::Doubt],
        verdicts: ALL_VERDICTS,
        beats: false,
        loses_replies: true,
        expires: false,
        keeps_tombstones: false,
        pauses: false,
        outages: false,
        compares_versions: true,
        goes_by_its_route_only: false,
    }
}

fn run(name: &str, model: Hapax) {
    let checker = model.checker().threads(2).finish_when(HasDiscoveries::AnyFailures).timeout(std::time::Duration::from_secs(120)).spawn_bfs().join();
    println!("{name}: {} unique, {} total, depth {} done {}", checker.unique_state_count(), checker.state_count(), checker.max_depth(), checker.is_done());
    for (name, path) in checker.discoveries() {
        println!("FOUND {name}: {:#?}", path.into_actions());
    }
}

#[test]
fn t2() { run("base 2", base(2)); }
#[test]
fn t2b() { run("beats 2", Hapax { beats: true, ..base(2) }); }
#[test]
fn t3() { run("base 3", base(3)); }
#[test]
fn t3n() { run("base 3 no lost", Hapax { loses_replies: false, ..base(3) }); }
