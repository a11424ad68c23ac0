//! Every metric hapax has: those of the library ([`METRICS`]), and those of the server.
//!
//! The library and the stores emit through the `metrics` facade and know nothing of Prometheus; `docs/metrics.md` explains the list
//! to operators. Tests hold the three together. No label ever holds a key, a tenant, a path or anything else that a caller
//! chooses: the number of time series is fixed by the build.

use hapax::observe::METRICS;
pub use hapax::observe::{Kind, Label, Metric};
use hapax_proxy::metric_names::CONNECTIONS_CLOSED;
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};

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

/// Every metric: the library's, then the server's. The order is that of `docs/metrics.md`.
pub const ALL: &[Metric] = &{
    let mut all = [METRICS[0]; METRICS.len() + OWN.len()];
    let mut at = 0;
    while at < all.len() {
        all[at] = if at < METRICS.len() { METRICS[at] } else { OWN[at - METRICS.len()] };
        at += 1;
    }
    all
};

/// The server's own.
const OWN: &[Metric] = &[
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

/// Installs the recorder for the whole process; what is emitted before is lost, so call it first.
///
/// Without it the facade does nothing, which is right where nobody can scrape: only [`crate::admin::serve`] runs the upkeep
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
    ALL.iter().for_each(Metric::describe);
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
