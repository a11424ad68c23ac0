//! How the cases ended, point by point.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use hapax_testkit::crash::{ALL, Store, Verdict};

/// Sums by point and store.
#[derive(Default)]
pub(super) struct Table {
    rows: BTreeMap<(usize, String), Row>,
}

#[derive(Default)]
struct Row {
    runs: usize,
    reached: usize,
    double_executions: usize,
    changed_answers: usize,
    stuck_keys: usize,
    other: usize,
    failed: usize,
    longest_wait: Duration,
}

impl Row {
    fn add(&mut self, other: &Row) {
        self.runs += other.runs;
        self.reached += other.reached;
        self.double_executions += other.double_executions;
        self.changed_answers += other.changed_answers;
        self.stuck_keys += other.stuck_keys;
        self.other += other.other;
        self.failed += other.failed;
        self.longest_wait = self.longest_wait.max(other.longest_wait);
    }

    fn of(verdict: &Verdict) -> Row {
        Row {
            runs: 1,
            reached: usize::from(verdict.reached),
            double_executions: verdict.double_executions.len(),
            changed_answers: verdict.changed_answers.len(),
            stuck_keys: verdict.stuck_keys.len(),
            other: verdict.other.len(),
            failed: usize::from(!verdict.passed()),
            longest_wait: verdict.longest_wait,
        }
    }
}

impl Table {
    pub(super) fn add(&mut self, point: &str, store: &Store, verdict: &Verdict) {
        let place = ALL.iter().position(|other| other.name == point).unwrap_or(ALL.len());
        self.rows.entry((place, store.to_string())).or_default().add(&Row::of(verdict));
    }

    pub(super) fn passed(&self) -> bool {
        self.rows.values().all(|row| row.failed == 0)
    }

    fn sum(&self) -> Row {
        let mut sum = Row::default();
        self.rows.values().for_each(|row| sum.add(row));
        sum
    }
}

impl fmt::Display for Table {
    /// In Markdown, so that it can be pasted into docs/reliability.md.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| point | store | runs | at the point | run twice | changed | stuck | other | longest wait |")?;
        writeln!(f, "|---|---|---|---|---|---|---|---|---|")?;
        for ((place, store), row) in &self.rows {
            writeln!(f, "| {} | {store} | {row} |", ALL.get(*place).map_or("?", |point| point.name))?;
        }
        let sum = self.sum();
        writeln!(f, "| all | | {sum} |\n")?;
        write!(f, "{} runs, {} failed", sum.runs, sum.failed)
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Row { runs, reached, double_executions, changed_answers, stuck_keys, other, longest_wait, .. } = self;
        let seconds = longest_wait.as_secs_f64();
        write!(
            f,
            "{runs} | {reached} | {double_executions} | {changed_answers} | {stuck_keys} | {other} | {seconds:.1} s"
        )
    }
}
