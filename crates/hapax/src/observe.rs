//! What is counted, through the `metrics` facade: nothing, unless the application installs a recorder.
//!
//! Names and labels are described in `docs/metrics.md`. No key, caller or body is ever a label. Looking a metric up by its
//! name takes longer than counting it, so each thread keeps what it has looked up, for as long as the recorder is the same. An
//! application with a recorder of its own calls `describe` and gives `BUCKETS` to its exporter (feature `http`).

#![cfg_attr(not(feature = "http"), allow(dead_code, reason = "most of it is counted by the layer"))]

#[cfg(feature = "http")]
mod list;

use std::cell::RefCell;
use std::sync::Arc;

use hapax_core::store::StoreError;
use metrics::{Counter, Histogram};

#[cfg(feature = "http")]
pub use list::{BUCKETS, Kind, Label, METRICS, Metric, describe};

/// A metric's name and its only label's value, by where they stand: both are constants of this crate. A constant that
/// stands in two places is looked up twice, and is still one metric.
type Place = (*const u8, *const u8);

thread_local! {
    static METERS: RefCell<Meters> = const { RefCell::new(Meters::of(0)) };
}

/// What a thread has looked up: a few dozen at most.
struct Meters {
    /// Where the recorder stands.
    recorder: usize,
    counters: Vec<(Place, Counter)>,
    histograms: Vec<(Place, Histogram)>,
    gauges: Vec<(Place, metrics::Gauge)>,
    /// By route. There are as many as the configuration has had.
    duplicates: Vec<(Arc<str>, Counter)>,
}

impl Meters {
    const fn of(recorder: usize) -> Self {
        Self { recorder, counters: Vec::new(), histograms: Vec::new(), gauges: Vec::new(), duplicates: Vec::new() }
    }

    /// Forgets everything if there is another recorder now.
    fn check_recorder(&mut self) {
        let recorder = metrics::with_recorder(|recorder| std::ptr::from_ref(recorder).addr());
        if self.recorder != recorder {
            *self = Self::of(recorder);
        }
    }
}

/// Does something with a meter, which is made if this thread does not have it.
fn with<M>(
    of: impl Fn(&mut Meters) -> &mut Vec<(Place, M)>,
    name: &'static str,
    value: &'static str,
    make: impl FnOnce() -> M,
    act: impl FnOnce(&M),
) {
    // A thread that is ending has none any more.
    let _ = METERS.try_with(|meters| {
        let Ok(mut meters) = meters.try_borrow_mut() else { return };
        meters.check_recorder();
        let known = of(&mut meters);
        let place = (name.as_ptr(), value.as_ptr());
        match known.iter().find(|(at, _)| *at == place) {
            Some((_, meter)) => act(meter),
            None => {
                let meter = make();
                act(&meter);
                known.push((place, meter));
            }
        }
    });
}

fn count(name: &'static str, label: &'static str, value: &'static str) {
    with(
        |meters| &mut meters.counters,
        name,
        value,
        || metrics::counter!(name, label => value),
        |meter| meter.increment(1),
    );
}

fn gauge(name: &'static str, act: impl FnOnce(&metrics::Gauge)) {
    with(|meters| &mut meters.gauges, name, "", || metrics::gauge!(name), act);
}

fn record(name: &'static str, make: impl FnOnce() -> Histogram, value: &'static str, seconds: f64) {
    with(|meters| &mut meters.histograms, name, value, make, |meter| meter.record(seconds));
}

/// A claim ended in that way.
pub(crate) fn claimed(outcome: &'static str) {
    count("hapax_claims_total", "outcome", outcome);
}

/// A request was refused for that reason.
pub(crate) fn refused(code: &'static str) {
    metrics::counter!("hapax_refused_total", "reason" => code).increment(1);
}

/// A request passed through unprotected.
pub(crate) fn passed_through(why: &'static str) {
    count("hapax_passed_through_total", "why", why);
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
    record("hapax_store_seconds", || metrics::histogram!("hapax_store_seconds", "op" => op), op, seconds);
}

/// How long the work behind took to answer.
pub(crate) fn work_took(seconds: f64) {
    record("hapax_upstream_seconds", || metrics::histogram!("hapax_upstream_seconds"), "", seconds);
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

/// A completion found nothing left of its record.
pub(crate) fn forgotten() {
    metrics::counter!("hapax_forgotten_total").increment(1);
}

/// There is a route of that name: its counter begins at zero, so that the first increase is seen.
pub(crate) fn route_is_known(route: &Arc<str>) {
    metrics::counter!("hapax_duplicates_total", "route" => Arc::clone(route)).increment(0);
}

/// A key came back that was used before, on the route of that name.
pub(crate) fn duplicate(route: &Arc<str>) {
    // Every replay is one.
    let _ = METERS.try_with(|meters| {
        let Ok(mut meters) = meters.try_borrow_mut() else { return };
        meters.check_recorder();
        if let Some((_, counter)) = meters.duplicates.iter().find(|(known, _)| known == route) {
            return counter.increment(1);
        }
        let counter = metrics::counter!("hapax_duplicates_total", "route" => Arc::clone(route));
        counter.increment(1);
        meters.duplicates.push((Arc::clone(route), counter));
    });
}

/// Memory was asked for, for that, and there was no room.
pub(crate) fn memory_refused(what: &'static str) {
    count("hapax_memory_refused_total", "what", what);
}

/// So many bytes more are held for requests, or less.
pub(crate) fn memory_held(more: f64) {
    gauge("hapax_memory_bytes", |gauge| gauge.increment(more));
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

/// How many records wait for somebody to say what became of them. Their age stays as it was last known while the store's
/// clock is not trusted.
pub(crate) fn waiting(unknown: u64, dead: u64, oldest_unknown_ms: Option<u64>) {
    metrics::gauge!("hapax_unknown").set(unknown as f64);
    metrics::gauge!("hapax_dead").set(dead as f64);
    if let Some(ms) = oldest_unknown_ms {
        metrics::gauge!("hapax_oldest_unknown_seconds").set(ms as f64 / 1000.0);
    }
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
        gauge(name, |gauge| gauge.increment(1.0));
        Self(name)
    }
}

impl Drop for Gauge {
    fn drop(&mut self) {
        gauge(self.0, |gauge| gauge.decrement(1.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use metrics::{Key, KeyName, Metadata, Recorder, SharedString, Unit};

    /// Adds all counters up, and keeps the age of what is unknown.
    #[derive(Default)]
    struct Sum(Arc<AtomicU64>, Arc<AtomicU64>);

    impl Recorder for Sum {
        fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
            Counter::from_arc(Arc::clone(&self.0))
        }
        fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> metrics::Gauge {
            match key.name() {
                "hapax_oldest_unknown_seconds" => metrics::Gauge::from_arc(Arc::clone(&self.1)),
                _ => metrics::Gauge::noop(),
            }
        }
        fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
            Histogram::noop()
        }
    }

    #[test]
    fn an_age_stays_as_it_was_known_while_the_clock_is_not_trusted() {
        let recorder = Sum::default();
        metrics::with_local_recorder(&recorder, || {
            waiting(0, 0, Some(7_000));
            waiting(0, 0, None);
        });
        assert_eq!(f64::from_bits(recorder.1.load(Ordering::Relaxed)), 7.0);
    }

    #[test]
    fn what_was_looked_up_is_forgotten_with_its_recorder() {
        claimed("created");
        let recorders = [Sum::default(), Sum::default()];
        for recorder in &recorders {
            metrics::with_local_recorder(recorder, || {
                claimed("created");
                claimed("created");
                claimed("replayed");
            });
        }
        claimed("created");
        assert_eq!(recorders.map(|recorder| recorder.0.load(Ordering::Relaxed)), [3, 3]);
    }
}
