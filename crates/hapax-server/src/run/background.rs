//! What a node does beside requests: lapse, reap, reconcile, count what waits, and watch the fence.
//!
//! Every node does all of it; the swap decides who was first. The roles themselves are in the library. They begin when the
//! node serves, and end when it drains.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use hapax::http::IdempotencyLayer;
use hapax::sweep::{self, Left, Pace};
use hapax::{fence, lapse, reap, reconcile, survey};
use hapax_core::store::StoreError;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::admin::metrics::FENCE;
use crate::config;
use crate::run::durability::Watched;
use crate::run::probe::{Current, Probes};
use crate::run::store::AnyStore;

/// How long after its start a node looks again whether a fence stands.
const FENCE_FIRST: Duration = Duration::from_millis(100);

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
        let (engine, end) = (Arc::clone(layer.engine()), ending.clone());
        tasks.spawn(async move { survey::run(engine.store(), reconcile_every, &end).await });
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
