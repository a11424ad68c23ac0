//! The table and the diagram of `docs/state_machine.md`, as the tests read them.

use std::collections::BTreeMap;

use hapax_core::record::State;
use hapax_core::transition::Answer;

use crate::scenario::{Facts, Kind};

/// A row: when it fits, and what must come of it.
#[derive(Debug)]
pub(crate) struct Row {
    /// Each of these must hold; of one, any of its words.
    found: Vec<Vec<String>>,
    events: Vec<String>,
    pub(crate) answer: Answer,
    pub(crate) writes: Option<Writes>,
}

/// What a row writes.
#[derive(Debug)]
pub(crate) struct Writes {
    pub(crate) state: State,
    pub(crate) attempt: String,
}

impl Row {
    pub(crate) fn fits(&self, facts: &Facts, kind: Kind) -> bool {
        let names = |event: &String| event == kind.name() || event == kind.short_name();
        self.events.iter().any(names) && self.found.iter().all(|words| words.iter().any(|word| facts.holds(word)))
    }
}

/// The rows of the rule table, in their order.
pub(crate) fn rows(page: &str) -> Vec<Row> {
    let mut lines = page.lines().skip_while(|line| *line != "| found | event | answer | writes |").skip(2);
    let mut rows = Vec::new();
    for line in lines.by_ref().take_while(|line| line.starts_with('|')) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [found, events, answer, writes] = cells[..] else { panic!("four cells: {line}") };
        let list = |cell: &str| cell.split(", ").map(str::to_owned).collect::<Vec<_>>();
        let found: Vec<Vec<String>> =
            list(found).iter().map(|words| words.split(" or ").map(str::to_owned).collect()).collect();
        for word in found.iter().flatten() {
            assert!(Facts::WORDS.contains(&word.as_str()), "{word:?} is not a word of the table: {line}");
        }
        rows.push(Row { found, events: list(events), answer: answer_named(answer), writes: writes_of(writes) });
    }
    assert!(rows.len() > 30, "the table was found");
    rows
}

fn writes_of(cell: &str) -> Option<Writes> {
    let (state, attempt) = cell.split_once(", ")?;
    Some(Writes { state: state_named(state), attempt: attempt.to_owned() })
}

fn state_named(name: &str) -> State {
    State::ALL.into_iter().find(|state| state.name() == name).unwrap_or_else(|| panic!("no state is called {name}"))
}

fn answer_named(name: &str) -> Answer {
    let answers = [
        Answer::Proceed,
        Answer::Accepted,
        Answer::Busy,
        Answer::Undecided,
        Answer::Replay,
        Answer::Gone,
        Answer::Mismatch,
        Answer::Done,
        Answer::Contradicted,
        Answer::Fenced,
        Answer::DoubleRun,
        Answer::Overruled,
        Answer::NotFound,
        Answer::Refused,
        Answer::Stale,
    ];
    let found = answers.into_iter().find(|answer| format!("{answer:?}") == name);
    found.unwrap_or_else(|| panic!("no answer is called {name}"))
}

/// The edges of the diagram, with their events.
pub(crate) fn edges(page: &str) -> BTreeMap<(String, String), Vec<String>> {
    let edge = |line: &str| {
        let (ends, events) = line.trim().split_once(": ")?;
        let (from, to) = ends.split_once(" --> ")?;
        Some(((from.to_owned(), to.to_owned()), events.split(", ").map(str::to_owned).collect()))
    };
    page.lines().skip_while(|line| *line != "```mermaid").take_while(|line| *line != "```").filter_map(edge).collect()
}
