//! Moments as ledgers write them, besides those that people write: seconds or milliseconds since 1970, and UTC that does not
//! say so.

use hapax_core::clock::Timestamp;

use crate::timestamp;

/// Below this a plain number counts seconds, from it on milliseconds: the year 5138, or 1973.
const SECONDS_MAX: u64 = 100_000_000_000;

/// Reads what [`timestamp::read`] does, and `2026-11-16 12:00:00`, `1794830400`, `1794830400000`.
#[must_use]
pub(super) fn read(text: &str) -> Option<Timestamp> {
    let text = text.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        let number: u64 = text.parse().ok()?;
        return Some(Timestamp::from_ms(if number < SECONDS_MAX { number.checked_mul(1000)? } else { number }));
    }
    timestamp::read(text).or_else(|| timestamp::read(&format!("{text}Z")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_read_in_the_forms_that_ledgers_use() {
        for (text, ms) in [
            ("2026-11-16T12:00:00Z", 1_794_830_400_000),
            ("2026-11-16T13:00:00.25+01:00", 1_794_830_400_250),
            (" 2026-11-16 12:00:00 ", 1_794_830_400_000),
            ("2026-11-16", 1_794_787_200_000),
            ("1794830400", 1_794_830_400_000),
            ("1794830400123", 1_794_830_400_123),
        ] {
            assert_eq!(read(text), Some(Timestamp::from_ms(ms)), "{text}");
        }
    }

    #[test]
    fn what_is_no_moment_is_not_guessed() {
        for text in ["", "now", "16.11.2026", "11/16/2026", "-5", "99999999999999999999", "2026-11-16T12:00:00 CET"] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
