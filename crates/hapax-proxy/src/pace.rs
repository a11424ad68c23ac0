//! A least rate for what a peer sends or takes.
//!
//! A peer has a credit of time. While we wait for it, the credit is used up; each byte earns some of it back, up to what it
//! was at first. So whoever does nothing has that time, whoever keeps the rate has no end, and whoever does a little now
//! and then has not much more than whoever does nothing. Time in which we wait for somebody else does not count.

use std::time::Duration;

use tokio::time::Instant;

/// See the module.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    /// The credit at first, and at most.
    full: Duration,
    credit: Duration,
    /// Bytes per second; none earns everything back with the first byte.
    rate: Option<u32>,
    /// Since when the peer is waited for.
    since: Option<Instant>,
}

impl Pace {
    /// With a credit of that time.
    pub(super) fn new(full: Duration, rate: Option<u32>) -> Self {
        Self { full, credit: full, rate, since: None }
    }

    /// The peer is waited for, from now on if it was not before. When its credit ends.
    pub(super) fn wait(&mut self) -> Instant {
        let since = *self.since.get_or_insert_with(Instant::now);
        since + self.credit
    }

    /// The peer has sent or taken so many bytes.
    pub(super) fn progress(&mut self, bytes: usize) {
        if let Some(since) = self.since.take() {
            self.credit = self.credit.saturating_sub(since.elapsed());
        }
        if self.credit < self.full {
            self.credit = (self.credit + self.worth(bytes)).min(self.full);
        }
    }

    /// While the peer is waited for: when the credit will be by so much less than at first.
    pub(super) fn until_behind(&self, by: Duration) -> Option<Instant> {
        let left = self.credit.saturating_sub(self.full.saturating_sub(by));
        self.since.map(|since| since + left)
    }

    /// Whether the credit is by so much less than at first.
    pub(super) fn is_behind(&self, by: Duration) -> bool {
        self.credit + by <= self.full
    }

    /// The time that these bytes may take.
    fn worth(&self, bytes: usize) -> Duration {
        match self.rate {
            Some(rate) => Duration::from_secs_f64(bytes as f64 / f64::from(rate.max(1))),
            None if bytes > 0 => self.full,
            None => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: Duration = Duration::from_secs(30);

    async fn after(pace: &mut Pace, time: Duration, bytes: usize) -> Instant {
        let end = pace.wait();
        tokio::time::advance(time).await;
        pace.progress(bytes);
        end
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_keeps_the_rate_has_no_end_and_whoever_does_not_has_one() {
        let mut pace = Pace::new(FULL, Some(500));
        for _ in 0..100 {
            after(&mut pace, Duration::from_secs(20), 10_000).await;
        }
        assert_eq!(pace.credit, FULL);
        let mut slow = Pace::new(FULL, Some(500));
        for _ in 0..14 {
            after(&mut slow, Duration::from_secs(2), 1).await;
        }
        let left = slow.wait() - Instant::now();
        assert!(left < Duration::from_secs(3), "{left:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_saves_up_more_than_the_first_credit() {
        let mut pace = Pace::new(FULL, Some(500));
        after(&mut pace, Duration::from_secs(1), 1_000_000_000).await;
        assert_eq!(pace.wait() - Instant::now(), FULL);
    }

    #[tokio::test(start_paused = true)]
    async fn time_in_which_nobody_waits_for_the_peer_does_not_count() {
        let mut pace = Pace::new(FULL, Some(500));
        after(&mut pace, Duration::from_secs(10), 0).await;
        tokio::time::advance(Duration::from_secs(1000)).await;
        assert_eq!(pace.wait() - Instant::now(), Duration::from_secs(20));
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_rate_every_byte_is_progress_and_no_byte_is_none() {
        let mut pace = Pace::new(FULL, None);
        after(&mut pace, Duration::from_secs(29), 1).await;
        assert_eq!(pace.wait() - Instant::now(), FULL);
        after(&mut pace, Duration::from_secs(29), 0).await;
        assert_eq!(pace.wait() - Instant::now(), Duration::from_secs(1));
    }
}
