//! Every metric hapax has: its name, its labels, what it means.
//!
//! The library and the stores emit through the `metrics` facade and know nothing of Prometheus; this file is the list they
//! keep to, and `docs/metrics.md` explains it to operators. Tests hold the three together. No label ever holds a key, a
//! tenant, a path or anything else that a caller chooses: the number of time series is fixed by the build.

use hapax::http::Problem;
use hapax_proxy::metric_names::{CONNECTIONS_CLOSED, REFUSED};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};

/// Claims by what came of them.
pub const CLAIMS: &str = "hapax_claims_total";
/// Requests to protected routes that hapax did not protect.
pub const UNPROTECTED: &str = "hapax_unprotected_total";
/// Requests passed on without a claim, by reason.
pub const PASSED_THROUGH: &str = "hapax_passed_through_total";
/// What enforcement would have done, on routes that only observe.
pub const OBSERVED: &str = "hapax_observed_total";
/// Failures of the store.
pub const STORE_ERRORS: &str = "hapax_store_errors_total";
/// How long the store takes.
pub const STORE_SECONDS: &str = "hapax_store_seconds";
/// How many rows the store writes at once.
pub const BATCH_ROWS: &str = "hapax_batch_rows";
/// How long the upstream takes.
pub const UPSTREAM_SECONDS: &str = "hapax_upstream_seconds";
/// Attempts under way.
pub const IN_FLIGHT: &str = "hapax_in_flight";
/// Requests that wait for another's answer.
pub const WAITERS: &str = "hapax_waiters";
/// Answers that could not be recorded yet.
pub const COMPLETIONS_PENDING: &str = "hapax_completions_pending";
/// Bytes in memory for requests.
pub const MEMORY_BYTES: &str = "hapax_memory_bytes";
/// What found no room in memory.
pub const MEMORY_REFUSED: &str = "hapax_memory_refused_total";
/// Suspected double runs.
pub const DOUBLE_RUNS: &str = "hapax_double_runs_total";
/// Verdicts that turned out to be wrong.
pub const OVERRULED: &str = "hapax_overruled_total";
/// Answers of attempts whose records are gone.
pub const FORGOTTEN: &str = "hapax_forgotten_total";
/// Leases that ran out.
pub const LAPSED: &str = "hapax_lapsed_total";
/// Expired records that were deleted.
pub const REAPED: &str = "hapax_reaped_total";
/// Tombstones in place of expired records.
pub const EXPIRED: &str = "hapax_expired_total";
/// Probes, by what came of them.
pub const RECONCILE: &str = "hapax_reconcile_total";
/// Records that nobody is sure about.
pub const UNKNOWN: &str = "hapax_unknown";
/// For how long.
pub const OLDEST_UNKNOWN: &str = "hapax_oldest_unknown_seconds";
/// Records that wait for a person.
pub const DEAD: &str = "hapax_dead";
/// How long background roles take.
pub const SWEEP_SECONDS: &str = "hapax_sweep_seconds";
/// Background roles that failed.
pub const SWEEP_FAILURES: &str = "hapax_sweep_failures_total";
/// Verdicts that an attempt proved wrong.
pub const CONTRADICTED: &str = "hapax_contradicted_total";
/// Keys that came back.
pub const DUPLICATES: &str = "hapax_duplicates_total";
/// Whether a fence stands after a restore.
pub const FENCE: &str = "hapax_fence";
/// Whether the circuit breaker refuses claims.
pub const BREAKER_OPEN: &str = "hapax_breaker_open";
/// How many records the store holds.
pub const STORE_ROWS: &str = "hapax_store_rows";
/// How many bytes they take.
pub const STORE_BYTES: &str = "hapax_store_bytes";
/// What is left on the store's disk.
pub const STORE_DISK_FREE: &str = "hapax_store_disk_free_bytes";
/// Whether the store has no room for new keys.
pub const STORE_FULL: &str = "hapax_store_full";
/// Reloads of the configuration.
pub const RELOADS: &str = "hapax_reload_total";
/// Which release runs.
pub const BUILD_INFO: &str = "hapax_build_info";
/// How durable the store is.
pub const DURABILITY_INFO: &str = "hapax_durability_info";

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

/// From half a millisecond, a fast commit, to the longest that an upstream is usually given.
const SECONDS: &[f64] =
    &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

/// Powers of two up to the largest batch of a store.
const ROWS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0];

const CLAIM_OUTCOMES: &[&str] =
    &["created", "replayed", "in_progress", "mismatch", "retried", "unknown", "gone", "not_kept", "accepted"];

/// The code of every problem document.
const PROBLEMS: &[&str] = &{
    let mut codes = [""; Problem::ALL.len()];
    let mut at = 0;
    while at < codes.len() {
        codes[at] = Problem::ALL[at].code();
        at += 1;
    }
    codes
};

const MEMORY_USES: &[&str] = &["request", "replay", "response"];

const PASSED_FOR: &[&str] = &["method", "route", "no-key", "observed"];

const RECONCILE_OUTCOMES: &[&str] = &["scheduled", "resolved", "failed", "too_soon"];

const STORE_OPS: &[&str] = &["swap", "get", "scan", "reap"];

const STORE_FAILURES: &[&str] = &["unavailable", "ambiguous", "damaged", "unsuitable", "invalid"];

const ROLES: &[&str] = &["lapse", "reap", "reconcile", "survey", "fence", "room"];

/// Every metric. The order is that of `docs/metrics.md`.
pub const ALL: &[Metric] = &[
    counter(CLAIMS, &[("outcome", CLAIM_OUTCOMES)], "Claims of a key, by what came of them."),
    counter(REFUSED, &[("reason", PROBLEMS)], "Requests that were refused, by problem code."),
    counter(UNPROTECTED, &[], "State-changing requests that ran without a key."),
    counter(PASSED_THROUGH, &[("why", PASSED_FOR)], "Requests that were passed on without a claim, by reason."),
    counter(OBSERVED, &[("outcome", CLAIM_OUTCOMES)], "What a claim would have come to, on routes that only observe."),
    counter(
        STORE_ERRORS,
        &[("op", STORE_OPS), ("kind", STORE_FAILURES)],
        "Failures of the store, by operation and kind.",
    ),
    histogram(STORE_SECONDS, SECONDS, &[("op", &[])], "How long the store took, by operation."),
    histogram(BATCH_ROWS, ROWS, &[("store", &[])], "How many rows the store wrote in one transaction."),
    histogram(UPSTREAM_SECONDS, SECONDS, &[], "How long the upstream took to answer a protected request."),
    gauge(IN_FLIGHT, &[], "Attempts that are running in this process."),
    gauge(WAITERS, &[], "Requests that wait for the answer of a running attempt."),
    gauge(COMPLETIONS_PENDING, &[], "Answers that are not recorded yet because the store failed."),
    gauge(MEMORY_BYTES, &[], "Bytes of request bodies and recorded or replayed responses in memory."),
    counter(MEMORY_REFUSED, &[("what", MEMORY_USES)], "Requests, replays and responses that found no room in memory."),
    counter(DOUBLE_RUNS, &[], "Completions that found another attempt's work: suspected double runs."),
    counter(CONTRADICTED, &[], "Completions of attempts that a verdict had said did not happen."),
    counter(OVERRULED, &[], "Completions that came after a verdict had settled their key."),
    counter(FORGOTTEN, &[], "Completions that found their record gone or a tombstone: their answers are not recorded."),
    counter(DUPLICATES, &[("route", &[])], "Keys that came back, by route as it is configured."),
    counter(LAPSED, &[], "Attempts whose lease ran out, as when a process dies."),
    counter(RECONCILE, &[("outcome", RECONCILE_OUTCOMES)], "Probes of unknown outcomes, by what came of them."),
    gauge(UNKNOWN, &[], "Records whose outcome is unknown, up to 10000."),
    gauge(OLDEST_UNKNOWN, &[], "For how long the oldest of them has been unknown."),
    gauge(DEAD, &[], "Records that wait for a person, up to 10000."),
    counter(REAPED, &[], "Expired records that were deleted."),
    counter(EXPIRED, &[], "Expired records that became tombstones."),
    histogram(SWEEP_SECONDS, SECONDS, &[("role", &[])], "How long a background role took for one sweep."),
    counter(SWEEP_FAILURES, &[("role", ROLES)], "Sweeps of background roles that failed."),
    gauge(FENCE, &[], "1 while a fence stands after a restore, otherwise 0."),
    gauge(BREAKER_OPEN, &[], "1 while claims are refused because the store fails, otherwise 0."),
    gauge(STORE_ROWS, &[("store", &[])], "About how many records callers have in the store."),
    gauge(STORE_BYTES, &[("store", &[])], "How many bytes the store takes."),
    gauge(STORE_DISK_FREE, &[("store", &[])], "How many bytes are left on the disk of an SQLite store."),
    gauge(STORE_FULL, &[], "1 while new keys are refused because the store is at its ceiling, otherwise 0."),
    counter(RELOADS, &[("result", &["applied", "refused"])], "Reloads of the configuration, by result."),
    counter(
        CONNECTIONS_CLOSED,
        &[("reason", &["full", "client"])],
        "Connections that waited for their client and were closed to make room for others, by what was full.",
    ),
    gauge(BUILD_INFO, &[("version", &[])], "1, with the release as a label."),
    gauge(DURABILITY_INFO, &[("store", &[]), ("level", &[])], "1, with the kind of store and how durable it is."),
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

/// Installs the recorder for the whole process; what is emitted before is lost, so call it first.
///
/// Without it the facade does nothing, which is right where nobody can scrape: only [`super::serve`] runs the upkeep
/// that keeps a recorder's memory bounded.
///
/// # Errors
///
/// A recorder is installed already.
pub fn install() -> Result<PrometheusHandle, BuildError> {
    let handle = builder()?.install_recorder()?;
    begin();
    Ok(handle)
}

/// A recorder builder that knows the buckets.
///
/// # Errors
///
/// A histogram of [`ALL`] has no buckets.
pub fn builder() -> Result<PrometheusBuilder, BuildError> {
    let mut builder = PrometheusBuilder::new();
    for metric in ALL {
        if let Kind::Histogram(bounds) = metric.kind {
            builder = builder.set_buckets_for_metric(Matcher::Full(metric.name.to_owned()), bounds)?;
        }
    }
    Ok(builder)
}

/// Describes every metric to the current recorder, and starts at zero what can be: an alert on the rate of a counter that
/// does not exist yet never fires.
pub fn begin() {
    for metric in ALL {
        match metric.kind {
            Kind::Counter => ::metrics::describe_counter!(metric.name, metric.help),
            Kind::Gauge => ::metrics::describe_gauge!(metric.name, metric.help),
            Kind::Histogram(_) => ::metrics::describe_histogram!(metric.name, metric.help),
        }
        match (metric.kind, metric.labels) {
            (Kind::Counter, []) => ::metrics::counter!(metric.name).increment(0),
            (Kind::Gauge, []) => ::metrics::gauge!(metric.name).increment(0.0),
            (Kind::Counter, [(label, values)]) => {
                for value in *values {
                    ::metrics::counter!(metric.name, *label => *value).increment(0);
                }
            }
            (Kind::Counter, [(label, values), (other, others)]) => {
                for (value, second) in values.iter().flat_map(|value| others.iter().map(move |second| (value, second)))
                {
                    ::metrics::counter!(metric.name, *label => *value, *other => *second).increment(0);
                }
            }
            _ => {}
        }
    }
    ::metrics::gauge!(BUILD_INFO, "version" => env!("CARGO_PKG_VERSION")).set(1.0);
}

/// Says what the store takes and what is left: rows, bytes, and free bytes of its disk, as far as they are known; and whether
/// it is at its ceiling.
pub fn set_room(store: &'static str, [rows, bytes, free]: [Option<u64>; 3], is_full: bool) {
    for (name, value) in [(STORE_ROWS, rows), (STORE_BYTES, bytes), (STORE_DISK_FREE, free)] {
        if let Some(value) = value {
            ::metrics::gauge!(name, "store" => store).set(value as f64);
        }
    }
    ::metrics::gauge!(STORE_FULL).set(if is_full { 1.0 } else { 0.0 });
}

/// Says how durable the store is: `store` is its kind, `level` what it says of itself, such as `disk`; not any more what it said
/// `before`.
pub fn set_durability(store: &'static str, level: &'static str, before: Option<&'static str>) {
    if let Some(before) = before {
        ::metrics::gauge!(DURABILITY_INFO, "store" => store, "level" => before).set(0.0);
    }
    ::metrics::gauge!(DURABILITY_INFO, "store" => store, "level" => level).set(1.0);
}
