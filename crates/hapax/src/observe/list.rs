//! Every metric of the layer, the background roles and the stores: its name, its labels, what it means.
//!
//! The code emits through the `metrics` facade and knows no exporter; this is the list that it keeps to, for the application's own.
//! The server adds its own to it, and `docs/metrics.md` explains both to operators.

/// How a metric behaves.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// A distribution, with these upper bounds.
    Histogram(&'static [f64]),
}

/// A label and the values that begin at zero; no values means that the build or the configuration names them, never a caller.
pub type Label = (&'static str, &'static [&'static str]);

/// One metric.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// As it is scraped.
    pub name: &'static str,
    /// How it behaves.
    pub kind: Kind,
    /// What it is split by.
    pub labels: &'static [Label],
    /// What it means, in one sentence.
    pub help: &'static str,
}

impl Metric {
    /// Describes it to the current recorder, and starts it at zero where its labels are known: an alert on the rate of a counter
    /// that does not exist yet never fires.
    pub fn describe(&self) {
        match self.kind {
            Kind::Counter => metrics::describe_counter!(self.name, self.help),
            Kind::Gauge => metrics::describe_gauge!(self.name, self.help),
            Kind::Histogram(_) => metrics::describe_histogram!(self.name, self.help),
        }
        match (self.kind, self.labels) {
            (Kind::Counter, []) => metrics::counter!(self.name).increment(0),
            (Kind::Gauge, []) => metrics::gauge!(self.name).increment(0.0),
            (Kind::Counter, [(label, values)]) => {
                for value in *values {
                    metrics::counter!(self.name, *label => *value).increment(0);
                }
            }
            (Kind::Counter, [(label, values), (other, others)]) => {
                for (value, second) in values.iter().flat_map(|value| others.iter().map(move |second| (value, second)))
                {
                    metrics::counter!(self.name, *label => *value, *other => *second).increment(0);
                }
            }
            _ => {}
        }
    }
}

/// Describes [`METRICS`] to the recorder that is installed, and starts at zero what can be. Call it once, after the recorder is
/// installed and before the first request.
///
/// ```
/// use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
///
/// let mut exporter = PrometheusBuilder::new();
/// for (name, bounds) in hapax::observe::BUCKETS {
///     exporter = exporter.set_buckets_for_metric(Matcher::Full((*name).to_owned()), bounds)?;
/// }
/// let handle = exporter.install_recorder()?;
/// hapax::observe::describe();
/// assert!(handle.render().contains("# HELP hapax_claims_total Claims of a key, by what came of them."));
/// assert!(handle.render().contains("hapax_claims_total{outcome=\"replayed\"} 0"));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
pub fn describe() {
    for metric in METRICS {
        metric.describe();
    }
}

/// The histograms of [`METRICS`] with upper bounds that suit them. An exporter that is given none makes summaries of them.
pub const BUCKETS: &[(&str, &[f64])] = &[
    ("hapax_store_seconds", SECONDS),
    ("hapax_batch_rows", ROWS),
    ("hapax_upstream_seconds", SECONDS),
    ("hapax_sweep_seconds", SECONDS),
];

/// From half a millisecond, a fast commit, to the longest that an upstream is usually given.
const SECONDS: &[f64] =
    &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

/// Powers of two up to the largest batch of a store.
const ROWS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0];

const CLAIM_OUTCOMES: &[&str] =
    &["created", "replayed", "in_progress", "mismatch", "retried", "unknown", "gone", "not_kept", "accepted"];

/// The code of every problem document; a test compares it with the problems themselves.
const PROBLEMS: &[&str] = &[
    "key-missing",
    "key-malformed",
    "scope-missing",
    "scope-unavailable",
    "request-too-old",
    "bad-framing",
    "body-incomplete",
    "body-too-large",
    "in-progress",
    "outcome-unknown",
    "given-up",
    "never-ran",
    "key-reused",
    "answer-not-kept",
    "replay-refused",
    "key-expired",
    "too-many",
    "too-many-in-flight",
    "store-unavailable",
    "store-full",
    "memory-full",
    "upstream-unreachable",
];

const MEMORY_USES: &[&str] = &["request", "replay", "response"];

const PASSED_FOR: &[&str] = &["method", "route", "no-key", "observed"];

const RECONCILE_OUTCOMES: &[&str] = &["scheduled", "resolved", "failed", "too_soon"];

const STORE_OPS: &[&str] = &["swap", "get", "scan", "reap"];

const STORE_FAILURES: &[&str] = &["unavailable", "ambiguous", "damaged", "unsuitable", "invalid"];

const ROLES: &[&str] = &["lapse", "reap", "reconcile", "survey", "fence", "room"];

/// Every metric of the library. The order is that of `docs/metrics.md`.
pub const METRICS: &[Metric] = &[
    counter("hapax_claims_total", &[("outcome", CLAIM_OUTCOMES)], "Claims of a key, by what came of them."),
    counter("hapax_refused_total", &[("reason", PROBLEMS)], "Requests that were refused, by problem code."),
    counter("hapax_unprotected_total", &[], "State-changing requests that ran without a key."),
    counter(
        "hapax_passed_through_total",
        &[("why", PASSED_FOR)],
        "Requests that were passed on without a claim, by reason.",
    ),
    counter(
        "hapax_observed_total",
        &[("outcome", CLAIM_OUTCOMES)],
        "What a claim would have come to, on routes that only observe.",
    ),
    counter(
        "hapax_store_errors_total",
        &[("op", STORE_OPS), ("kind", STORE_FAILURES)],
        "Failures of the store, by operation and kind.",
    ),
    histogram("hapax_store_seconds", SECONDS, &[("op", &[])], "How long the store took, by operation."),
    histogram("hapax_batch_rows", ROWS, &[("store", &[])], "How many rows the store wrote in one transaction."),
    histogram("hapax_upstream_seconds", SECONDS, &[], "How long the upstream took to answer a protected request."),
    gauge("hapax_in_flight", &[], "Attempts that are running in this process."),
    gauge("hapax_waiters", &[], "Requests that wait for the answer of a running attempt."),
    gauge("hapax_completions_pending", &[], "Answers that are not recorded yet because the store failed."),
    gauge("hapax_memory_bytes", &[], "Bytes of request bodies and recorded or replayed responses in memory."),
    counter(
        "hapax_memory_refused_total",
        &[("what", MEMORY_USES)],
        "Requests, replays and responses that found no room in memory.",
    ),
    counter("hapax_double_runs_total", &[], "Completions that found another attempt's work: suspected double runs."),
    counter("hapax_contradicted_total", &[], "Completions of attempts that a verdict had said did not happen."),
    counter("hapax_overruled_total", &[], "Completions that came after a verdict had settled their key."),
    counter(
        "hapax_forgotten_total",
        &[],
        "Completions that found their record gone or a tombstone: their answers are not recorded.",
    ),
    counter("hapax_duplicates_total", &[("route", &[])], "Keys that came back, by route as it is configured."),
    counter("hapax_lapsed_total", &[], "Attempts whose lease ran out, as when a process dies."),
    counter(
        "hapax_reconcile_total",
        &[("outcome", RECONCILE_OUTCOMES)],
        "Probes of unknown outcomes, by what came of them.",
    ),
    gauge("hapax_unknown", &[], "Records whose outcome is unknown, up to 10000."),
    gauge("hapax_oldest_unknown_seconds", &[], "For how long the oldest of them has been unknown."),
    gauge("hapax_dead", &[], "Records that wait for a person, up to 10000."),
    counter("hapax_reaped_total", &[], "Expired records that were deleted."),
    counter("hapax_expired_total", &[], "Expired records that became tombstones."),
    histogram("hapax_sweep_seconds", SECONDS, &[("role", &[])], "How long a background role took for one sweep."),
    counter("hapax_sweep_failures_total", &[("role", ROLES)], "Sweeps of background roles that failed."),
];

const fn counter(name: &'static str, labels: &'static [Label], help: &'static str) -> Metric {
    Metric { name, kind: Kind::Counter, labels, help }
}

const fn gauge(name: &'static str, labels: &'static [Label], help: &'static str) -> Metric {
    Metric { name, kind: Kind::Gauge, labels, help }
}

const fn histogram(name: &'static str, bounds: &'static [f64], labels: &'static [Label], help: &'static str) -> Metric {
    Metric { name, kind: Kind::Histogram(bounds), labels, help }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::Problem;

    #[test]
    fn every_problem_is_counted() {
        assert_eq!(PROBLEMS, Problem::ALL.map(Problem::code));
    }

    #[test]
    fn every_histogram_has_its_buckets() {
        let listed = METRICS.iter().filter_map(|metric| match metric.kind {
            Kind::Histogram(bounds) => Some((metric.name, bounds)),
            Kind::Counter | Kind::Gauge => None,
        });
        assert_eq!(listed.collect::<Vec<_>>(), BUCKETS);
    }

    /// The names that the library's own code emits, as they stand in its source.
    #[test]
    fn every_metric_that_is_emitted_is_listed() {
        let emitted: Vec<&str> =
            include_str!("../observe.rs").split('"').filter(|text| text.starts_with("hapax_")).collect();
        assert!(emitted.len() > 20, "{emitted:?}");
        for name in emitted {
            assert!(METRICS.iter().any(|metric| metric.name == name), "{name} is not listed");
        }
    }
}
