//! What was measured of the proxy: on the terminal, as JSON lines, and in docs/benchmarks.md.

use std::fmt::Write as _;

use serde_json::json;

use super::super::page::{machine, rounded, write_section};
use super::memory::{Growth, Idle};
use super::wrk::Counted;

/// One path, measured round by round.
pub(super) struct Series {
    path: String,
    nginx: Vec<Counted>,
    ours: Vec<Counted>,
}

impl Series {
    pub(super) fn new(path: String) -> Series {
        Series { path, nginx: Vec::new(), ours: Vec::new() }
    }

    pub(super) fn add(&mut self, nginx: &Counted, ours: &Counted) {
        self.nginx.push(*nginx);
        self.ours.push(*ours);
    }

    fn ratio(&self) -> f64 {
        median(&self.ours, |run| run.per_s) / median(&self.nginx, |run| run.per_s)
    }
}

/// The middle one; of an even number, the mean of the two in the middle.
fn median(runs: &[Counted], of: impl Fn(&Counted) -> f64) -> f64 {
    let mut values: Vec<f64> = runs.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.as_slice() {
        [] => f64::NAN,
        odd if odd.len() % 2 == 1 => odd[middle],
        even => f64::midpoint(even[middle - 1], even[middle]),
    }
}

pub(super) struct Report {
    json: bool,
    connections: u32,
    rows: Vec<[String; 8]>,
    others: Vec<String>,
}

const HEAD: [&str; 8] =
    ["path", "hapax/s", "nginx/s", "ratio", "hapax p50 ms", "hapax p99 ms", "nginx p50 ms", "nginx p99 ms"];

impl Report {
    pub(super) fn new(json: bool, connections: u32) -> Report {
        Report { json, connections, rows: Vec::new(), others: Vec::new() }
    }

    /// Something to know about the whole run.
    pub(super) fn note(&mut self, text: &str) {
        self.others.push(text.to_owned());
    }

    pub(super) fn path(&mut self, series: &Series) {
        let (ours, nginx) = (&series.ours, &series.nginx);
        let (per_s, nginx_per_s) = (median(ours, |run| run.per_s), median(nginx, |run| run.per_s));
        let (p50, p99) = (median(ours, |run| run.p50_ms), median(ours, |run| run.p99_ms));
        let (nginx_p50, nginx_p99) = (median(nginx, |run| run.p50_ms), median(nginx, |run| run.p99_ms));
        if self.json {
            println!(
                "{}",
                json!({
                    "bench": "proxy", "path": series.path, "connections": self.connections, "rounds": ours.len(),
                    "per_s": rounded(per_s, 1), "nginx_per_s": rounded(nginx_per_s, 1),
                    "ratio": rounded(series.ratio(), 2), "p50_ms": rounded(p50, 3), "p99_ms": rounded(p99, 3),
                    "nginx_p50_ms": rounded(nginx_p50, 3), "nginx_p99_ms": rounded(nginx_p99, 3),
                })
            );
        }
        let ms = |value: f64| format!("{value:.2}");
        self.rows.push([
            series.path.clone(),
            format!("{per_s:.0}"),
            format!("{nginx_per_s:.0}"),
            format!("{:.2}", series.ratio()),
            ms(p50),
            ms(p99),
            ms(nginx_p50),
            ms(nginx_p99),
        ]);
    }

    pub(super) fn growth(&mut self, growth: &Growth) {
        if self.json {
            println!(
                "{}",
                json!({
                    "bench": "proxy", "path": "rss", "requests": growth.requests, "cold_mb": mb(growth.cold_bytes),
                    "warm_mb": mb(growth.warm_bytes), "end_mb": mb(growth.end_bytes()),
                    "peak_mb": mb(growth.peak_bytes()), "growth_mb": rounded(growth.bytes() as f64 / 1e6, 1),
                    "samples_mb": growth.samples.iter().copied().map(mb).collect::<Vec<_>>(),
                })
            );
        }
        self.others.push(format!(
            "- Memory over {} requests (GETs, first-time keys, replays in turn, SQLite): {:.1} MB at the start, \
             {:.1} MB when caches are full, {:.1} MB at the end, {:.1} MB at most; growth {:.1} MB.",
            growth.requests,
            mb(growth.cold_bytes),
            mb(growth.warm_bytes),
            mb(growth.end_bytes()),
            mb(growth.peak_bytes()),
            growth.bytes() as f64 / 1e6,
        ));
    }

    pub(super) fn idle(&mut self, idle: &Idle) {
        let per_connection = (idle.bytes.saturating_sub(idle.before_bytes)) / idle.connections.max(1) as u64;
        if self.json {
            println!(
                "{}",
                json!({
                    "bench": "proxy", "path": "idle", "connections": idle.connections,
                    "before_mb": mb(idle.before_bytes), "rss_mb": mb(idle.bytes), "bytes_per_connection": per_connection,
                })
            );
        }
        self.others.push(format!(
            "- Memory with {} idle connections: {:.1} MB ({per_connection} bytes each); before them {:.1} MB.",
            idle.connections,
            mb(idle.bytes),
            mb(idle.before_bytes),
        ));
    }

    /// Prints the table and, if asked to, keeps it.
    pub(super) fn finish(&self, write_docs: bool) {
        let tables = self.tables();
        if !self.json {
            println!("{tables}");
        }
        if write_docs {
            write_section("proxy", &format!("{INTRODUCTION}\n{}\n\n{tables}", machine()));
        }
    }

    fn tables(&self) -> String {
        let mut text = String::new();
        let line = |cells: &[&str]| format!("| {} |", cells.join(" | "));
        if !self.rows.is_empty() {
            let _ = writeln!(text, "{}", line(&HEAD));
            let _ = writeln!(text, "|---|{}", "---:|".repeat(HEAD.len() - 1));
        }
        for row in &self.rows {
            let _ = writeln!(text, "{}", line(&row.each_ref().map(String::as_str)));
        }
        for other in &self.others {
            let _ = write!(text, "\n{other}\n");
        }
        text
    }
}

const INTRODUCTION: &str = "## Proxy

Written by `cargo xtask bench proxy`; run it again on your machine. hapax and nginx `proxy_pass` (one worker, connections
kept) stand before the same upstream, an nginx that answers a small JSON object; wrk asks over 64 connections. nginx gets
exactly the requests that hapax gets, in turn with it in every round; the medians of the rounds are shown, and a run
with a single failed request does not count. All processes share the machine's cores.

- *pass-through*: a GET, which needs no key.
- *first*: a POST with a new random key: a durable claim, the upstream, a durable completion, then the answer.
- *memory-first*: the same with records in memory only, durable nowhere: how far a store that costs next to nothing would get.
- *replay*: a POST with one of 2,000 recorded keys: the recorded answer, without the upstream, which nginx does ask.
";

fn mb(bytes: u64) -> f64 {
    rounded(bytes as f64 / 1e6, 1)
}

#[cfg(test)]
mod tests {
    use super::{Counted, Series, median};

    fn run(per_s: f64) -> Counted {
        Counted { requests: 1, per_s, p50_ms: 1.0, p99_ms: 2.0 }
    }

    #[test]
    fn the_median_is_the_middle_and_one_bad_round_does_not_move_it() {
        assert_eq!(median(&[run(3.0), run(900.0), run(2.0)], |run| run.per_s), 3.0);
        assert_eq!(median(&[run(2.0), run(4.0)], |run| run.per_s), 3.0);
        assert!(median(&[], |run| run.per_s).is_nan());
    }

    #[test]
    fn the_ratio_is_of_the_medians() {
        let mut series = Series::new("sqlite-first".to_owned());
        for (nginx, ours) in [(100.0, 40.0), (10.0, 50.0), (200.0, 60.0)] {
            series.add(&run(nginx), &run(ours));
        }
        assert_eq!(series.ratio(), 0.5);
    }
}
