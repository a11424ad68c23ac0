//! The server's clock, watched.
//!
//! Times are the server's. It may be stepped, and after a failover it is another host's. Each reply says what time the
//! server had between sending and receiving; if that does not fit what the replies before said, by more than any drift
//! explains, lapse and expiry pause for a while. The time itself is never corrected: records of all nodes share it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use hapax_core::clock::{ClockHealth, Now, Timestamp};
use hapax_core::limits::CLOCK_SETTLE_MS;
use tokio::time::Instant;

/// Server time that moved this much more or less than the local clock was stepped. Above what networks and slow hosts
/// make of two readings, below any lease worth having.
const STEP_MS_MIN: i64 = 5_000;

/// A reply that took longer says too little about the clock to replace one that was quick.
const VAGUE_MS: i64 = 1_000;

/// Watches the clock of the server.
#[derive(Debug)]
pub(crate) struct ServerClock {
    began: Instant,
    watch: Mutex<Watch>,
}

/// When a statement was sent, on the local clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent(i64);

impl ServerClock {
    pub(crate) fn new() -> Self {
        Self { began: Instant::now(), watch: Mutex::default() }
    }

    /// To be called before a statement is sent.
    pub(crate) fn sent(&self) -> Sent {
        Sent(self.local_ms())
    }

    /// What time it is, by a reply to what was sent then.
    pub(crate) fn heard(&self, sent: Sent, server_ms: i64) -> Now {
        let local_ms = self.local_ms();
        let paused = self.watch().hear(sent.0, local_ms, server_ms);
        Now { at: moment(server_ms), paused }
    }

    /// What the server's clock can at most say now, unless it was stepped. While the clock is not trusted, nothing.
    pub(crate) fn believed_ms(&self) -> Option<i64> {
        let local_ms = self.local_ms();
        self.watch().believed_ms(local_ms)
    }

    pub(crate) fn health(&self) -> ClockHealth {
        let local_ms = self.local_ms();
        let watch = self.watch();
        ClockHealth { stepped_by_ms: watch.stepped_by_ms, paused: watch.is_paused(local_ms) }
    }

    /// Local milliseconds that nobody sets. The only clock this crate reads; it is compared with itself only.
    fn local_ms(&self) -> i64 {
        i64::try_from(self.began.elapsed().as_millis()).unwrap_or(i64::MAX)
    }

    fn watch(&self) -> MutexGuard<'_, Watch> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A moment as the server writes it.
pub(crate) fn moment(ms: i64) -> Timestamp {
    Timestamp::from_ms(u64::try_from(ms).unwrap_or(0))
}

/// Server time minus local time: between these two.
#[derive(Clone, Copy, Debug)]
struct Offset {
    min_ms: i64,
    max_ms: i64,
}

impl Offset {
    fn is_vague(self) -> bool {
        self.max_ms - self.min_ms > VAGUE_MS
    }

    /// How far this is from `other` at least; negative is back.
    fn moved_from(self, other: Self) -> i64 {
        if self.min_ms > other.max_ms {
            self.min_ms - other.max_ms
        } else if self.max_ms < other.min_ms {
            self.max_ms - other.min_ms
        } else {
            0
        }
    }
}

#[derive(Debug, Default)]
struct Watch {
    offset: Option<Offset>,
    stepped_by_ms: i64,
    /// On the local clock.
    paused_until_ms: Option<i64>,
}

impl Watch {
    /// Takes note of a reply; says whether lapse and expiry pause.
    fn hear(&mut self, sent_ms: i64, heard_ms: i64, server_ms: i64) -> bool {
        let heard = Offset { min_ms: server_ms.saturating_sub(heard_ms), max_ms: server_ms.saturating_sub(sent_ms) };
        let moved_ms = self.offset.map_or(0, |known| heard.moved_from(known));
        let stepped = moved_ms.unsigned_abs() >= STEP_MS_MIN.unsigned_abs();
        if stepped {
            self.stepped_by_ms = self.stepped_by_ms.saturating_add(moved_ms);
            self.paused_until_ms = Some(heard_ms.saturating_add(i64::try_from(CLOCK_SETTLE_MS).unwrap_or(i64::MAX)));
        }
        if stepped || self.offset.is_none() || !heard.is_vague() {
            self.offset = Some(heard);
        }
        self.is_paused(heard_ms)
    }

    fn is_paused(&self, local_ms: i64) -> bool {
        self.paused_until_ms.is_some_and(|until_ms| local_ms < until_ms)
    }

    fn believed_ms(&self, local_ms: i64) -> Option<i64> {
        let offset = self.offset.filter(|_| !self.is_paused(local_ms))?;
        Some(local_ms.saturating_add(offset.max_ms).saturating_add(STEP_MS_MIN))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START_MS: i64 = 1_700_000_000_000;
    const HOUR_MS: i64 = 3_600_000;

    #[test]
    fn a_steady_clock_is_trusted_however_slow_the_replies() {
        let mut watch = Watch::default();
        for round in 0..100 {
            let sent_ms = round * 60_000;
            let reply_ms = if round % 3 == 0 { 30_000 } else { 2 };
            for read_after_ms in [0, reply_ms] {
                assert!(!watch.hear(sent_ms, sent_ms + reply_ms, START_MS + sent_ms + read_after_ms), "{round}");
            }
        }
        assert_eq!(watch.stepped_by_ms, 0);
    }

    #[test]
    fn a_slow_drift_is_followed() {
        let mut watch = Watch::default();
        for round in 0..1_000 {
            assert!(!watch.hear(round * 1_000, round * 1_000 + 1, START_MS + round * 1_050), "{round}");
        }
    }

    #[test]
    fn a_step_pauses_once_and_is_reported_with_its_direction() {
        for step_ms in [HOUR_MS, -HOUR_MS] {
            let mut watch = Watch::default();
            assert!(!watch.hear(0, 1, START_MS));
            assert!(watch.hear(1_000, 1_001, START_MS + 1_000 + step_ms));
            assert!((watch.stepped_by_ms - step_ms).abs() < 5, "{}", watch.stepped_by_ms);
            let settle_ms = i64::try_from(CLOCK_SETTLE_MS).unwrap();
            assert!(watch.hear(1_000 + settle_ms, 1_000 + settle_ms, START_MS + 1_000 + settle_ms + step_ms));
            assert!(!watch.hear(1_001 + settle_ms, 1_001 + settle_ms, START_MS + 1_001 + settle_ms + step_ms));
        }
    }

    #[test]
    fn a_clock_is_believed_no_further_than_a_step() {
        let mut watch = Watch::default();
        assert_eq!(watch.believed_ms(0), None, "nothing was heard yet");
        watch.hear(0, 10, START_MS);
        assert_eq!(watch.believed_ms(100), Some(START_MS + 100 + STEP_MS_MIN));
        watch.hear(200, 210, START_MS + HOUR_MS);
        assert_eq!(watch.believed_ms(300), None, "paused");
    }
}
