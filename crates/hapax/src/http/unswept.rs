//! A warning where a layer serves requests and no background role ever ran: nothing would be deleted, and a crash would be noticed
//! by a retry only, without a line in any log.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// A service that starts its background task at all has done so by then.
const GRACE: Duration = Duration::from_secs(60);

/// When the layer was made, and whether the warning was given.
pub(crate) struct Unswept {
    since: Instant,
    warned: AtomicBool,
}

impl Unswept {
    pub(crate) fn now() -> Self {
        Self { since: Instant::now(), warned: AtomicBool::new(false) }
    }

    /// Called for each claim.
    pub(crate) fn check(&self, is_swept: bool) {
        if is_swept || self.warned.load(Ordering::Relaxed) || self.since.elapsed() < GRACE {
            return;
        }
        if !self.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "no background task runs for this layer: expired records are not deleted, and a crash is noticed by a retry \
                 only; call `layer.spawn_background()`, unless another process does this for the store"
            );
        }
    }
}
