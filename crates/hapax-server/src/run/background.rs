//! What a node does beside requests: lapse, reap, reconcile, count what waits, measure the store, and watch the fence.
//!
//! Every node does all of it; the swap decides who was first. The roles themselves are in the library. They begin when the
//! node serves, and end when it drains.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use hapax::http::IdempotencyLayer;
use hapax::sweep::{self, Left, Pace};
use hapax::{fence, lapse, reap, reconcile, survey};
use hapax_core::store::StoreError;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config;
use crate::run::guard::Doorkeeper;
use crate::run::probe::{Current, Probes};
use crate::store::AnyStore;
use crate::store::ceiling;
use crate::store::durability::Watched;
use crate::telemetry::FENCE;

/// How long after its start a node looks again whether a fence stands.
const FENCE_FIRST: Duration = Duration::from_millis(100);

/// How soon a node counts what waits after its start, and what remains of a pause that is longer.
const SURVEY_FIRST: Duration = Duration::from_millis(100);

/// A count that takes long is repeated after so many times as long: it never takes more than a small part of a reader.
const SURVEY_PART: u32 = 20;

/// The roles of a node, while they run.
pub(super) struct Background {
    ending: CancellationToken,
    tasks: TaskTracker,
}

impl Background {
    /// Starts every role.
    pub(super) fn start(
        layer: &IdempotencyLayer<AnyStore>,
        config: &config::Background,
        probes: &Arc<ArcSwap<Probes>>,
        doorkeeper: &Arc<Doorkeeper>,
        durability: &Arc<Watched>,
    ) -> Self {
        let (ending, tasks) = (CancellationToken::new(), TaskTracker::new());
        let config::Background { sweep_every, reap_every, reconcile_every } = *config;
        let (engine, end) = (Arc::clone(layer.engine()), ending.clone());
        tasks.spawn(async move { lapse::run(&engine, sweep_every, &end).await });
        let (engine, end) = (Arc::clone(layer.engine()), ending.clone());
        tasks.spawn(async move { reap::run(&engine, reap_every, &end).await });
        let (engine, end, probes) = (Arc::clone(layer.engine()), ending.clone(), Current(Arc::clone(probes)));
        tasks.spawn(async move { reconcile::run(&engine, &probes, reconcile_every, &end).await });
        let (keeper, end) = (Arc::clone(doorkeeper), ending.clone());
        tasks.spawn(async move { count_waiting(&keeper, reconcile_every, &end).await });
        let (keeper, end) = (Arc::clone(doorkeeper), ending.clone());
        tasks.spawn(async move { ceiling::watch(&keeper.ceiling, &keeper.store, &end).await });
        let (layer, durability, end) = (layer.clone(), Arc::clone(durability), ending.clone());
        tasks.spawn(async move { watch_fence(&layer, &durability, sweep_every, &end).await });
        tasks.close();
        Self { ending, tasks }
    }

    /// Ends every role. What one has begun to write is written or not; another node, or the next start, goes on from there.
    pub(super) async fn stop(&self) {
        self.ending.cancel();
        self.tasks.wait().await;
    }
}

/// Counts what waits for somebody to say what became of it, and whose it is.
async fn count_waiting(doorkeeper: &Doorkeeper, every: Duration, ending: &CancellationToken) {
    let not_before = Mutex::new(Instant::now());
    let count = || async {
        let begun = Instant::now();
        if begun < *not_before.lock().unwrap_or_else(PoisonError::into_inner) {
            return Ok(Left::default());
        }
        let mut counting = doorkeeper.active.counting();
        survey::run_once_telling(&doorkeeper.store, |at| counting.add(at.scope().as_str())).await?;
        counting.finish();
        *not_before.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now() + begun.elapsed() * SURVEY_PART;
        Ok(Left::default())
    };
    sweep::repeat("survey", Pace { every, between: SURVEY_FIRST.min(every) }, ending, count).await;
}

/// Tells the layer which fence stands, if one does, and whoever watches the metrics.
pub(super) async fn look_for_fence(layer: &IdempotencyLayer<AnyStore>) -> Result<(), StoreError> {
    let fence = fence::standing(layer.engine().store()).await?;
    metrics::gauge!(FENCE).set(if fence.is_some() { 1.0 } else { 0.0 });
    layer.set_fence(fence);
    Ok(())
}

/// An operator may raise or lift a fence while nodes run, and a server may lose its standby.
async fn watch_fence(
    layer: &IdempotencyLayer<AnyStore>,
    durability: &Watched,
    every: Duration,
    ending: &CancellationToken,
) {
    let look = || async {
        // That it fails is for readiness to say.
        let _ = durability.health().await;
        look_for_fence(layer).await?;
        Ok(Left::default())
    };
    sweep::repeat("fence", Pace { every, between: FENCE_FIRST.min(every) }, ending, look).await;
}
