//! What is counted, through the `metrics` facade: nothing, unless the application installs a recorder.
//!
//! Names and labels are described in `docs/metrics.md`. No key, caller or body is ever a label.

use std::sync::Arc;

use hapax_core::store::StoreError;

use crate::survey::Waiting;

/// A claim ended in that way.
pub(crate) fn claimed(outcome: &'static str) {
    metrics::counter!("hapax_claims_total", "outcome" => outcome).increment(1);
}

/// A request was refused for that reason.
pub(crate) fn refused(code: &'static str) {
    metrics::counter!("hapax_refused_total", "reason" => code).increment(1);
}

/// A request passed through unprotected.
pub(crate) fn passed_through(why: &'static str) {
    metrics::counter!("hapax_passed_through_total", "why" => why).increment(1);
}

/// A request ran unprotected because it had no key, where keys are optional.
pub(crate) fn unprotected() {
    metrics::counter!("hapax_unprotected_total").increment(1);
}

/// What would have happened to a request that is only observed.
pub(crate) fn observed(outcome: &'static str) {
    metrics::counter!("hapax_observed_total", "outcome" => outcome).increment(1);
}

/// The store failed.
pub(crate) fn store_failed(error: &StoreError) {
    let kind = format!("{:?}", error.kind).to_ascii_lowercase();
    metrics::counter!("hapax_store_errors_total", "op" => error.op, "kind" => kind).increment(1);
}

/// How long the store took for an event.
pub(crate) fn store_took(op: &'static str, seconds: f64) {
    metrics::histogram!("hapax_store_seconds", "op" => op).record(seconds);
}

/// How long the work behind took to answer.
pub(crate) fn work_took(seconds: f64) {
    metrics::histogram!("hapax_upstream_seconds").record(seconds);
}

/// A completion was fenced: another attempt had its effect as well, or may have it.
pub(crate) fn double_run() {
    metrics::counter!("hapax_double_runs_total").increment(1);
}

/// A completion proved a verdict wrong that said "did not happen".
pub(crate) fn contradicted() {
    metrics::counter!("hapax_contradicted_total").increment(1);
}

/// A completion came after a verdict had settled the record.
pub(crate) fn overruled() {
    metrics::counter!("hapax_overruled_total").increment(1);
}

/// A key came back that was used before, on the route of that name.
pub(crate) fn duplicate(route: &Arc<str>) {
    metrics::counter!("hapax_duplicates_total", "route" => Arc::clone(route)).increment(1);
}

/// A lease has lapsed.
pub(crate) fn lapsed() {
    metrics::counter!("hapax_lapsed_total").increment(1);
}

/// Expired records were deleted.
pub(crate) fn reaped(records: u32) {
    metrics::counter!("hapax_reaped_total").increment(records.into());
}

/// An expired record became a tombstone.
pub(crate) fn expired() {
    metrics::counter!("hapax_expired_total").increment(1);
}

/// A record was probed, and that came of it.
pub(crate) fn reconciled(outcome: &'static str) {
    metrics::counter!("hapax_reconcile_total", "outcome" => outcome).increment(1);
}

/// How many records wait for somebody to say what became of them.
pub(crate) fn waiting(waiting: &Waiting) {
    metrics::gauge!("hapax_unknown").set(waiting.unknown as f64);
    metrics::gauge!("hapax_dead").set(waiting.dead as f64);
    metrics::gauge!("hapax_oldest_unknown_seconds").set(waiting.oldest_unknown_ms as f64 / 1000.0);
}

/// A background role swept.
pub(crate) fn swept(role: &'static str, seconds: f64) {
    metrics::histogram!("hapax_sweep_seconds", "role" => role).record(seconds);
}

/// A background role could not sweep.
pub(crate) fn sweep_failed(role: &'static str) {
    metrics::counter!("hapax_sweep_failures_total", "role" => role).increment(1);
}

/// One more of something while it lives.
#[derive(Debug)]
pub(crate) struct Gauge(&'static str);

impl Gauge {
    /// An attempt that runs.
    pub(crate) fn in_flight() -> Self {
        Self::raise("hapax_in_flight")
    }

    /// A request that waits for another's answer.
    pub(crate) fn waiting() -> Self {
        Self::raise("hapax_waiters")
    }

    /// An answer that could not be recorded yet.
    pub(crate) fn completion_pending() -> Self {
        Self::raise("hapax_completions_pending")
    }

    fn raise(name: &'static str) -> Self {
        metrics::gauge!(name).increment(1.0);
        Self(name)
    }
}

impl Drop for Gauge {
    fn drop(&mut self) {
        metrics::gauge!(self.0).decrement(1.0);
    }
}
