//! What was measured: on the terminal, as JSON lines, and in docs/benchmarks.md.

use std::fmt::Write as _;

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use super::page::{self, machine, rounded};
use super::workload::{Tally, ms_at};

/// Ours beside the naive way.
pub(crate) struct Pair<'a> {
    pub(crate) store: &'static str,
    /// `cycle`: claim + complete of a new key. `replay`: the answer of an old one.
    pub(crate) op: &'static str,
    /// Which naive way, where there are several.
    pub(crate) against: &'static str,
    pub(crate) concurrency: usize,
    pub(crate) ours: &'a Tally,
    pub(crate) naive: Option<&'a Tally>,
}

/// Claims in a small store and in a large one.
pub(crate) struct Growth {
    pub(crate) records: u64,
    pub(crate) concurrency: usize,
    pub(crate) bytes_per_record: f64,
    pub(crate) small_per_s: f64,
    pub(crate) large_per_s: f64,
    pub(crate) small_claim_p99_ms: f64,
    pub(crate) large_claim_p99_ms: f64,
}

/// Claims while expired records were deleted.
pub(crate) struct Reap {
    pub(crate) records: u64,
    pub(crate) seconds: f64,
    pub(crate) before_claim_p99_ms: f64,
    pub(crate) before_claim_max_ms: f64,
    pub(crate) during_claim_p99_ms: f64,
    pub(crate) during_claim_max_ms: f64,
}

pub(crate) struct Report {
    json: bool,
    pairs: Vec<[String; 10]>,
    others: Vec<String>,
}

const HEAD: [&str; 10] = [
    "store",
    "what",
    "at a time",
    "ours/s",
    "naive/s",
    "ratio",
    "ours p50 ms",
    "ours p99 ms",
    "naive p50 ms",
    "naive p99 ms",
];

impl Report {
    pub(crate) fn new(json: bool) -> Self {
        Self { json, pairs: Vec::new(), others: Vec::new() }
    }

    pub(crate) fn bar(&self, what: &str, steps: u32) -> ProgressBar {
        bar(what, steps)
    }

    pub(crate) fn pair(&mut self, pair: &Pair<'_>) {
        let (ours, naive) = (pair.ours, pair.naive);
        let (p50, p99) = (ms_at(&ours.cycles, 0.5), ms_at(&ours.cycles, 0.99));
        let ratio = naive.map(|naive| ours.per_s() / naive.per_s());
        if self.json {
            println!(
                "{}",
                json!({
                    "bench": "stores", "store": pair.store, "op": pair.op,
                    "naive": (!pair.against.is_empty()).then_some(pair.against), "concurrency": pair.concurrency,
                    "ours_per_s": rounded(ours.per_s(), 1), "naive_per_s": naive.map(|naive| rounded(naive.per_s(), 1)),
                    "ratio": ratio.map(|ratio| rounded(ratio, 2)),
                    "p50_ms": p50, "p99_ms": p99, "claim_p99_ms": ms_at(&ours.claims, 0.99),
                    "naive_p50_ms": naive.map(|naive| ms_at(&naive.cycles, 0.5)),
                    "naive_p99_ms": naive.map(|naive| ms_at(&naive.cycles, 0.99)),
                    "p50_ratio": naive.map(|naive| rounded(p50 / ms_at(&naive.cycles, 0.5), 2)),
                })
            );
        }
        let dash = || "–".to_owned();
        let of_naive = |show: &dyn Fn(&Tally) -> String| naive.map_or_else(dash, show);
        self.pairs.push([
            pair.store.to_owned(),
            if pair.against.is_empty() { pair.op.to_owned() } else { format!("{}, naive {}", pair.op, pair.against) },
            pair.concurrency.to_string(),
            format!("{:.0}", ours.per_s()),
            of_naive(&|naive| format!("{:.0}", naive.per_s())),
            ratio.map_or_else(dash, |ratio| format!("{ratio:.1}")),
            format!("{p50:.3}"),
            format!("{p99:.3}"),
            of_naive(&|naive| format!("{:.3}", ms_at(&naive.cycles, 0.5))),
            of_naive(&|naive| format!("{:.3}", ms_at(&naive.cycles, 0.99))),
        ]);
    }

    pub(crate) fn growth(&mut self, growth: &Growth) {
        let ratio = growth.large_claim_p99_ms / growth.small_claim_p99_ms;
        if self.json {
            println!(
                "{}",
                json!({
                    "bench": "growth", "store": "sqlite", "records": growth.records, "concurrency": growth.concurrency,
                    "bytes_per_record": rounded(growth.bytes_per_record, 0), "ratio": rounded(ratio, 2),
                    "small_per_s": rounded(growth.small_per_s, 1), "large_per_s": rounded(growth.large_per_s, 1),
                    "small_claim_p99_ms": growth.small_claim_p99_ms, "large_claim_p99_ms": growth.large_claim_p99_ms,
                })
            );
        }
        self.others.push(format!(
            "- SQLite with {} records, {} at a time: claim p99 {:.2} ms, with 10,000 records {:.2} ms (ratio {ratio:.2}); \
             {:.0} and {:.0} cycles/s; {:.0} bytes per record.",
            growth.records,
            growth.concurrency,
            growth.large_claim_p99_ms,
            growth.small_claim_p99_ms,
            growth.large_per_s,
            growth.small_per_s,
            growth.bytes_per_record,
        ));
    }

    pub(crate) fn reap(&mut self, reap: &Reap) {
        if self.json {
            println!(
                "{}",
                json!({
                    "bench": "reap", "store": "sqlite", "records": reap.records, "seconds": rounded(reap.seconds, 1),
                    "before_claim_p99_ms": reap.before_claim_p99_ms, "before_claim_max_ms": reap.before_claim_max_ms,
                    "during_claim_p99_ms": reap.during_claim_p99_ms,
                    "during_claim_max_ms": reap.during_claim_max_ms,
                })
            );
        }
        self.others.push(format!(
            "- SQLite, {} expired records reaped in {:.1} s under load: claim p99 {:.2} ms, longest {:.2} ms; before the \
             reap p99 {:.2} ms, longest {:.2} ms.",
            reap.records, reap.seconds, reap.during_claim_p99_ms, reap.during_claim_max_ms,
            reap.before_claim_p99_ms, reap.before_claim_max_ms,
        ));
    }

    /// Prints the tables and, if asked to, keeps them.
    pub(crate) fn finish(&self, write_docs: bool) {
        let tables = self.tables();
        if !self.json {
            println!("{tables}");
        }
        if write_docs {
            page::write_section("stores", &format!("{INTRODUCTION}\n{}\n\n{tables}", machine()));
        }
    }

    fn tables(&self) -> String {
        let mut text = String::new();
        let line = |cells: &[&str]| format!("| {} |", cells.join(" | "));
        let _ = writeln!(text, "{}", line(&HEAD));
        let _ = writeln!(text, "|---|---|{}", "---:|".repeat(HEAD.len() - 2));
        for pair in &self.pairs {
            let _ = writeln!(text, "{}", line(&pair.each_ref().map(String::as_str)));
        }
        for other in &self.others {
            let _ = write!(text, "\n{other}\n");
        }
        text
    }
}

const INTRODUCTION: &str = "## Stores

Written by `cargo xtask bench stores`; run it again on your machine. Every figure of ours was measured in slices, in turn
with the naive way in the same run, so that the ratio holds on a noisy machine. 1 KiB answers, 36-character random keys,
every index the product needs, every write durable before it is acknowledged.

- *cycle*: claim a new key and complete it: two durable writes. Latencies are of whole cycles.
- *replay*: claim a completed key and get its answer.
- *naive*, SQLite: one transaction per write on one connection. PostgreSQL: one statement per write on 64 connections, both
  *unprepared*, each statement parsed and planned anew, in one round trip, and *prepared* once per connection, as ours are.
";

/// Progress on standard error; nothing where that is not a terminal.
pub(crate) fn bar(what: &str, steps: u32) -> ProgressBar {
    let bar = ProgressBar::new(steps.into()).with_message(what.to_owned());
    let style = ProgressStyle::with_template("{msg:40} {bar:30} {pos}/{len} {elapsed}").expect("a template");
    bar.set_style(style);
    bar.tick();
    bar
}
