//! The wall clock of this host, for what a client's own time is compared with. Leases and expiry use the store's.

use std::time::{SystemTime, UNIX_EPOCH};

/// How far another's clock may be ahead of ours: of hosts that keep time, none is off by more.
pub(crate) const SKEW_MS: u64 = 60_000;

/// Whether something was made no longer ago than that, and not in the future but for the skew of a clock.
#[cfg(feature = "http")]
pub(crate) fn is_recent(made_ms: u64, now_ms: u64, age_ms_max: u64) -> bool {
    now_ms.saturating_sub(made_ms) <= age_ms_max && made_ms <= now_ms.saturating_add(SKEW_MS)
}

/// Milliseconds since 1970.
#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the wall clock")]
#[must_use]
pub fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
