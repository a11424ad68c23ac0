//! The clocks of this host: the wall clock, for what a client's own time is compared with, and the boot clock, for how long
//! this process itself may still act. Leases and expiry use the store's.

use std::time::{SystemTime, UNIX_EPOCH};

/// How far another's clock may be ahead of ours: of hosts that keep time, none is off by more.
pub(crate) const SKEW_MS: u64 = 60_000;

/// Whether something was made no longer ago than that, and not in the future but for the skew of a clock.
#[cfg(feature = "http")]
pub(crate) fn is_recent(made_ms: u64, now_ms: u64, age_ms_max: u64) -> bool {
    now_ms.saturating_sub(made_ms) <= age_ms_max && made_ms <= now_ms.saturating_add(SKEW_MS)
}

#[cfg(all(feature = "http", target_os = "linux"))]
const BOOT_CLOCK: rustix::time::ClockId = rustix::time::ClockId::Boottime;
#[cfg(all(feature = "http", not(target_os = "linux")))]
const BOOT_CLOCK: rustix::time::ClockId = rustix::time::ClockId::Monotonic;

/// Milliseconds since the host was started, asleep or awake.
#[cfg(feature = "http")]
#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the boot clock")]
#[must_use]
pub fn boot_ms() -> u64 {
    let time = rustix::time::clock_gettime(BOOT_CLOCK);
    let ms = time.tv_sec.saturating_mul(1000).saturating_add(time.tv_nsec / 1_000_000);
    u64::try_from(ms).unwrap_or(0)
}

/// Milliseconds since 1970.
#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the wall clock")]
#[must_use]
pub fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
