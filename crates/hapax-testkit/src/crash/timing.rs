//! What differs from run to run: how many clients, which of them is hit, and how long everything takes. A seed stands for it.

use std::time::Duration;

use super::LATE;
use super::point::MIDDLE;

/// The most clients at one time; each has a key of its own.
const KEYS_MAX: u64 = 4;
/// Between reaching the point and the kill: other threads go on, and writes become durable or not.
const KILL_AFTER_MS_MAX: u64 = 40;
/// Between the kill and the next start: the lease may lapse before it or after.
const DOWN_MS_MAX: u64 = 1_500;
/// What every point on the way may take.
const DELAY_MS_MAX: u64 = 6;

/// The timing of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timing {
    /// How many clients send a payment at the same time.
    pub keys: usize,
    /// Which time the point is reached is the last.
    pub hit: u64,
    /// How long the process lives on at the point.
    pub kill_after: Duration,
    /// How long nobody listens.
    pub down: Duration,
    /// How long the upstream goes on working after the proxy has died.
    pub late: Duration,
    /// Where the process before was killed, for points that only a process after a crash gets to.
    pub(super) before: &'static str,
    /// Seed and most milliseconds of the delays at every point.
    pub(super) delay: Option<(u64, u64)>,
}

impl Timing {
    /// One client, killed as soon as the point is reached.
    pub fn plain() -> Timing {
        let (kill_after, down) = (Duration::ZERO, Duration::ZERO);
        Timing { keys: 1, hit: 1, kill_after, down, late: Duration::ZERO, before: "request-sent", delay: None }
    }

    /// The same with an upstream that goes on working for so long.
    pub fn plain_late(late: Duration) -> Timing {
        Timing { late, ..Timing::plain() }
    }

    /// What this seed stands for.
    pub fn of(seed: u64) -> Timing {
        let mut dice = Dice(seed);
        let keys = 1 + dice.below(KEYS_MAX);
        Timing {
            keys: keys as usize,
            hit: 1 + dice.below(keys),
            kill_after: Duration::from_millis(dice.below(KILL_AFTER_MS_MAX + 1)),
            down: Duration::from_millis(dice.below(DOWN_MS_MAX + 1)),
            late: if dice.below(3) == 0 { LATE } else { Duration::ZERO },
            before: MIDDLE[dice.below(MIDDLE.len() as u64) as usize],
            delay: (dice.below(2) == 0).then(|| (dice.next(), DELAY_MS_MAX)),
        }
    }
}

/// SplitMix64.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_stands_for_one_timing() {
        assert_eq!(Timing::of(7), Timing::of(7));
        assert_ne!(Timing::of(7), Timing::of(8));
    }

    #[test]
    fn seeds_cover_what_may_differ() {
        let all: Vec<Timing> = (0..200).map(Timing::of).collect();
        for keys in 1..=KEYS_MAX {
            assert!(all.iter().any(|timing| timing.keys as u64 == keys && timing.hit == keys));
        }
        assert!(all.iter().all(|timing| (1..=timing.keys as u64).contains(&timing.hit)));
        assert!([LATE, Duration::ZERO].iter().all(|late| all.iter().any(|timing| timing.late == *late)));
        assert!(MIDDLE.iter().all(|name| all.iter().any(|timing| timing.before == *name)));
    }
}
