//! What is counted, through the `metrics` facade: nothing, unless the application installs a recorder.
//!
//! Names and labels are described in `docs/metrics.md`. No key, caller or body is ever a label.

use hapax_core::store::StoreError;

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

/// A completion contradicted a verdict.
pub(crate) fn overruled() {
    metrics::counter!("hapax_overruled_total").increment(1);
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
