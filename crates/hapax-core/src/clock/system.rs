//! The clocks of the host: the one place of this crate that reads them (feature `system-clock`).

use rustix::time::{ClockId, clock_gettime};

use crate::clock::{Clock, Reading};

/// Readings this far apart on the boot clock were interrupted in between; the wall clock is read again.
const INTERRUPTED_MS: u64 = 100;

const READ_TRIES: u32 = 3;

/// The host's wall clock and boot clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn read(&self) -> Reading {
        let mut before_ms = boot_ms();
        for _ in 1..READ_TRIES {
            let wall_ms = wall_ms();
            let boot_ms = boot_ms();
            if boot_ms.saturating_sub(before_ms) < INTERRUPTED_MS {
                return Reading { wall_ms, boot_ms };
            }
            before_ms = boot_ms;
        }
        Reading { wall_ms: wall_ms(), boot_ms: boot_ms() }
    }

    /// Where the host does not say, every process counts as a new start, and its wall clock is believed.
    fn boot_id(&self) -> String {
        std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
            .map_or_else(|_| format!("process-{}-{}", std::process::id(), wall_ms()), |id| id.trim().to_owned())
    }
}

#[cfg(target_os = "linux")]
const BOOT_CLOCK: ClockId = ClockId::Boottime;
#[cfg(not(target_os = "linux"))]
const BOOT_CLOCK: ClockId = ClockId::Monotonic;

fn boot_ms() -> u64 {
    read_ms(BOOT_CLOCK)
}

fn wall_ms() -> u64 {
    read_ms(ClockId::Realtime)
}

#[expect(clippy::disallowed_methods, reason = "this is the place that provides the time to the store")]
fn read_ms(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let ms = time.tv_sec.saturating_mul(1000).saturating_add(time.tv_nsec / 1_000_000);
    u64::try_from(ms).unwrap_or(0)
}
