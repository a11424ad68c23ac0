//! The configurations that are checked to the last state, and the mutants that must be caught.
//!
//! A configuration leaves out what another one covers, so that all of them together take seconds. In each of them
//! processes die, replies are lost, writes land late, leases lapse and a person decides, rightly or wrongly, without
//! limit. Run with `--nocapture` to see the number of states.

use stateright::{Checker, HasDiscoveries, Model};

use super::bridge::Bridge;
use super::liveness::Graph;
use super::world::{CALLS_MAX, What};
use super::{AT_MOST_ONCE, Hapax, Mutant, Node, milestones};
use crate::record::{OnLapse, State};
use crate::transition::Rules;

const FENCED: Rules = Rules { fence: true };

const STRICT: Node = Node { on_lapse: OnLapse::Unknown, starts: &[What::Claim] };
const RERUN: Node = Node { on_lapse: OnLapse::Rerun, starts: &[What::Claim] };
const RESUME: Node = Node { on_lapse: OnLapse::Resume, starts: &[What::Claim] };
const ACCEPTS: Node = Node { on_lapse: OnLapse::Resume, starts: &[What::Accept] };
const WORKS: Node = Node { on_lapse: OnLapse::Resume, starts: &[What::WorkerClaim] };

/// Three calls under the policy `unknown`.
fn once() -> Hapax {
    Hapax {
        bridge: Bridge::new(FENCED, None),
        nodes: [STRICT; CALLS_MAX],
        calls: CALLS_MAX,
        says: &[What::Complete, What::Fail, What::Doubt],
        beats: false,
        knows: false,
        expires: false,
        keeps_tombstones: false,
        pauses: false,
        outages: false,
        mutant: None,
        milestones: milestones::ONCE,
    }
}

fn renewals() -> Hapax {
    Hapax { calls: 2, beats: true, knows: true, milestones: milestones::RENEWALS, ..once() }
}

fn outage() -> Hapax {
    Hapax { outages: true, knows: false, milestones: milestones::OUTAGE, ..renewals() }
}

/// One node says that a rerun is safe, the other that it is not.
fn rolling_rerun() -> Hapax {
    Hapax {
        nodes: [RERUN, RERUN, STRICT],
        says: &[What::Complete, What::Fail],
        milestones: milestones::ROLLING,
        ..once()
    }
}

/// One node says that resuming is safe, the other that it is not, and attempts have recovery points.
fn rolling_resume() -> Hapax {
    Hapax {
        nodes: [RESUME, STRICT, STRICT],
        calls: 2,
        says: &[What::Complete, What::Fail, What::Checkpoint],
        milestones: milestones::ROLLING,
        ..once()
    }
}

/// Nodes that agree that running again is safe, from the start or from a recovery point.
fn recovery_points() -> Hapax {
    Hapax {
        nodes: [RERUN, RESUME, RESUME],
        calls: 2,
        says: &[What::Complete, What::Fail, What::Checkpoint],
        milestones: &[],
        ..once()
    }
}

fn expiry() -> Hapax {
    Hapax { calls: 2, knows: true, expires: true, milestones: milestones::EXPIRY, ..once() }
}

fn tombstones() -> Hapax {
    Hapax { keeps_tombstones: true, milestones: milestones::TOMBSTONES, ..expiry() }
}

fn paused_clock() -> Hapax {
    Hapax { pauses: true, knows: false, milestones: milestones::PAUSED, ..expiry() }
}

fn attempts_max() -> Hapax {
    Hapax {
        bridge: Bridge::new(FENCED, Some(2)),
        nodes: [RERUN; CALLS_MAX],
        calls: 2,
        milestones: milestones::ATTEMPTS_MAX,
        ..once()
    }
}

/// One call hands in requests to be run later, two workers run them.
fn run_later() -> Hapax {
    Hapax {
        nodes: [ACCEPTS, WORKS, WORKS],
        says: &[What::Complete, What::Fail, What::Checkpoint],
        milestones: milestones::LATER,
        ..once()
    }
}

/// The same, and workers may stay away for longer than the work is worth.
fn never_run() -> Hapax {
    Hapax {
        bridge: Bridge::new(FENCED, None).telling_attempts_apart(),
        says: &[What::Complete, What::Fail],
        expires: true,
        milestones: milestones::NEVER_RUN,
        ..run_later()
    }
}

/// Visits every state. `states_min` keeps the model from becoming empty unnoticed.
fn check(name: &str, states_min: usize, model: Hapax) {
    let finish_when = HasDiscoveries::AnyFailures;
    let checker = model.checker().finish_when(finish_when).spawn_bfs().join();
    let (states, depth) = (checker.unique_state_count(), checker.max_depth());
    println!("model `{name}`: {states} states, {} steps, at most {depth} deep", checker.state_count());
    checker.assert_properties();
    assert!(states >= states_min, "the model `{name}` has only {states} states");
}

/// Shows that the model finds what it is there to find.
fn catch_double_run(name: &str, model: Hapax) {
    let finish_when = HasDiscoveries::AnyOf([AT_MOST_ONCE].into());
    let checker = model.checker().finish_when(finish_when).spawn_bfs().join();
    let path = checker.discovery(AT_MOST_ONCE).unwrap_or_else(|| panic!("the mutant `{name}` was not caught"));
    let actions = path.into_actions();
    println!("mutant `{name}`: caught after {} steps: {actions:?}", actions.len());
}

/// Shows that there is a way on from every state.
fn check_ends(name: &str, states_min: usize, model: &Hapax) {
    let graph = Graph::new(model);
    println!("graph `{name}`: {} states", graph.len());
    assert!(graph.len() >= states_min, "the graph `{name}` has only {} states", graph.len());
    let stuck = graph.stuck(|world| world.state() == Some(State::Completed), false);
    assert_eq!(stuck, None, "from here no way leads to completed");
    let is_over = |state: Option<State>| matches!(state, None | Some(State::Completed | State::Expired));
    let stuck = graph.stuck(|world| is_over(world.state()), true);
    assert_eq!(stuck, None, "from here time, sweeps and people alone lead nowhere");
}

#[test]
fn under_unknown_the_effect_happens_once() {
    check("once", 150_000, once());
}

#[test]
fn renewals_race_the_sweeper_and_never_fence_themselves() {
    check("renewals", 100_000, renewals());
}

#[test]
fn an_attempt_outlives_an_outage_longer_than_its_lease() {
    check("outage", 50_000, outage());
}

#[test]
fn the_stricter_policy_wins_while_a_deployment_rolls() {
    check("rolling, rerun", 100_000, rolling_rerun());
    check("rolling, resume", 20_000, rolling_resume());
    check("recovery points", 10_000, recovery_points());
}

#[test]
fn a_key_is_free_only_after_its_expiry() {
    check("expiry", 50_000, expiry());
    check("tombstones", 50_000, tombstones());
}

#[test]
fn a_paused_clock_frees_nothing() {
    check("paused clock", 50_000, paused_clock());
}

#[test]
fn automation_gives_up_and_a_person_decides() {
    check("attempts_max", 10_000, attempts_max());
}

#[test]
fn requests_run_later_run_once() {
    check("run later", 10_000, run_later());
}

#[test]
fn what_may_have_run_is_not_said_to_have_never_run() {
    check("never run", 100_000, never_run());
}

#[test]
fn every_record_can_reach_completed_or_its_end() {
    let with_expiry = |model: Hapax| Hapax { calls: 2, knows: false, expires: true, ..model };
    check_ends("expiry", 20_000, &with_expiry(expiry()));
    check_ends("tombstones", 20_000, &with_expiry(tombstones()));
    check_ends("attempts_max", 20_000, &with_expiry(attempts_max()));
    check_ends("run later", 5_000, &with_expiry(run_later()));
}

#[test]
fn without_the_fence_the_double_run_is_found() {
    let bridge = Bridge::new(Rules { fence: false }, None);
    catch_double_run("no fence", Hapax { bridge, mutant: Some(Mutant::HasNoFence), ..once() });
}

#[test]
fn with_a_store_that_ignores_versions_the_double_run_is_found() {
    catch_double_run("versions ignored", Hapax { mutant: Some(Mutant::IgnoresVersions), ..once() });
}

#[test]
fn with_a_node_that_goes_by_its_own_route_the_double_run_is_found() {
    catch_double_run("record's policy ignored", Hapax { mutant: Some(Mutant::GoesByItsRouteOnly), ..rolling_rerun() });
}
