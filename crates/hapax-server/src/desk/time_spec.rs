//! A time as an operator says it: a timestamp, or how long ago, such as `24h`.

use hapax_core::clock::Timestamp;

use crate::config::duration;
use crate::timestamp;

/// A time, or how long before now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeSpec {
    /// That time.
    At(Timestamp),
    /// So many milliseconds ago.
    Ago(u64),
}

impl TimeSpec {
    /// The time that a text names, or how long ago it was: `2026-01-31`, `24h`, `7d`.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let ago = || duration(text).map(|ago| Self::Ago(u64::try_from(ago.as_millis()).unwrap_or(u64::MAX)));
        timestamp::read(text).map(Self::At).or_else(ago)
    }

    /// The time itself.
    #[must_use]
    pub fn at(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(at) => at,
            Self::Ago(ms) => Timestamp::from_ms(now.as_ms().saturating_sub(ms)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_MS: u64 = 24 * 60 * 60 * 1000;

    #[test]
    fn a_time_may_be_said_by_how_long_ago_it_was() {
        let now = Timestamp::from_ms(1_700_000_000_000);
        let at = |text: &str| TimeSpec::read(text).map(|time| time.at(now).as_ms());
        assert_eq!(at("24h"), Some(1_700_000_000_000 - DAY_MS));
        assert_eq!(at("7d"), Some(1_700_000_000_000 - 7 * DAY_MS));
        assert_eq!(at("1970-01-02"), Some(DAY_MS));
        assert_eq!(at("100000d"), Some(0), "before the beginning");
        for text in ["", "24", "-24h", "24 h", "yesterday", "h"] {
            assert_eq!(TimeSpec::read(text), None, "{text}");
        }
    }
}
