//! Whether every record can come to its end, by a search of the whole graph of states.
//!
//! A checker that follows paths forwards cannot say "from everywhere there is a way": this file collects every state
//! and every step, and walks back from where the record has come to its end.

use std::collections::HashMap;

use stateright::Model;

use super::Hapax;
use super::world::World;

/// All states of a configuration, and the steps between them, backwards.
pub(super) struct Graph {
    worlds: Vec<World>,
    /// From each state to those that lead to it, and whether that step needs neither a client nor a living attempt.
    back: Vec<Vec<(usize, bool)>>,
}

impl Graph {
    /// Visits everything.
    pub(super) fn new(model: &Hapax) -> Self {
        let mut graph = Self { worlds: model.init_states(), back: vec![Vec::new()] };
        let mut places: HashMap<World, usize> = HashMap::from([(graph.worlds[0], 0)]);
        let mut place = 0;
        while place < graph.worlds.len() {
            let mut actions = Vec::new();
            model.actions(&graph.worlds[place], &mut actions);
            for action in actions {
                let next = model.after(&graph.worlds[place], action).world;
                let next_place = *places.entry(next).or_insert_with(|| {
                    graph.worlds.push(next);
                    graph.back.push(Vec::new());
                    graph.worlds.len() - 1
                });
                graph.back[next_place].push((place, action.happens_by_itself()));
            }
            place += 1;
        }
        graph
    }

    pub(super) fn len(&self) -> usize {
        self.worlds.len()
    }

    /// A state from which no way leads to the goal.
    pub(super) fn stuck(&self, is_goal: impl Fn(&World) -> bool, by_itself: bool) -> Option<&World> {
        let mut reaches: Vec<bool> = self.worlds.iter().map(is_goal).collect();
        let mut front: Vec<usize> = (0..self.len()).filter(|place| reaches[*place]).collect();
        while let Some(place) = front.pop() {
            for (before, is_by_itself) in &self.back[place] {
                if !reaches[*before] && (*is_by_itself || !by_itself) {
                    reaches[*before] = true;
                    front.push(*before);
                }
            }
        }
        reaches.iter().position(|reaches| !reaches).map(|place| &self.worlds[place])
    }
}
