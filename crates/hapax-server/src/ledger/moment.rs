//! Moments as people and providers write them: RFC 3339, a date alone, seconds or milliseconds since 1970, or how long ago.
//!
//! Only UTC and fixed offsets: a ledger's time zone cannot be guessed. Left to others: what time it is.

use hapax_core::clock::Timestamp;

const DAY_MS: i64 = 86_400_000;

/// Below this a plain number counts seconds, from it on milliseconds: the year 5138, or 1973.
const SECONDS_MAX: u64 = 100_000_000_000;

/// Reads `2026-11-16T12:00:00Z`, `2026-11-16 12:00:00.250+01:00`, `2026-11-16`, `1794830400`, `1794830400000`. A date
/// alone is its midnight in UTC, and a time without an offset is in UTC.
#[must_use]
pub fn parse(text: &str) -> Option<Timestamp> {
    let text = text.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        let number: u64 = text.parse().ok()?;
        return Some(Timestamp::from_ms(if number < SECONDS_MAX { number.checked_mul(1000)? } else { number }));
    }
    let (date, time) = match text.split_once(['T', 't', ' ']) {
        Some((date, time)) => (date, Some(time)),
        None => (text, None),
    };
    let day_ms = days_of(date)?.checked_mul(DAY_MS)?;
    let ms = day_ms.checked_add(time.map_or(Some(0), ms_of_day)?)?;
    u64::try_from(ms).ok().map(Timestamp::from_ms)
}

/// As [`parse`] reads it back: `2026-11-16T12:00:00.250Z`.
#[must_use]
pub fn show(at: Timestamp) -> String {
    let ms = i64::try_from(at.as_ms()).unwrap_or(i64::MAX);
    let (year, month, day) = civil(ms.div_euclid(DAY_MS));
    let rest = ms.rem_euclid(DAY_MS);
    let (hour, minute, second, ms) = (rest / 3_600_000, rest / 60_000 % 60, rest / 1000 % 60, rest % 1000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

/// Days since 1970 of `2026-11-16`.
fn days_of(date: &str) -> Option<i64> {
    let mut parts = date.split('-');
    let (year, month, day) = (digits(parts.next()?, 4)?, digits(parts.next()?, 2)?, digits(parts.next()?, 2)?);
    let days = days_from_civil(year, month, day);
    // A day that does not exist comes back as another one.
    (parts.next().is_none() && civil(days) == (year, month, day)).then_some(days)
}

/// Milliseconds since midnight UTC of `12:00:00.250+01:00`; may be negative or more than a day.
fn ms_of_day(time: &str) -> Option<i64> {
    let (clock, offset_ms) = match time.find(['Z', 'z', '+', '-']) {
        Some(at) => (&time[..at], offset_ms(&time[at..])?),
        None => (time, 0),
    };
    let (whole, fraction) = clock.split_once('.').unwrap_or((clock, ""));
    let mut parts = whole.split(':');
    let (hour, minute) = (digits(parts.next()?, 2)?, digits(parts.next()?, 2)?);
    let second = parts.next().map_or(Some(0), |text| digits(text, 2))?;
    let sound = parts.next().is_none() && hour < 24 && minute < 60 && second <= 60;
    sound.then_some(((hour * 60 + minute) * 60 + second) * 1000 + fraction_ms(fraction)? - offset_ms)
}

fn offset_ms(text: &str) -> Option<i64> {
    if text.eq_ignore_ascii_case("z") {
        return Some(0);
    }
    let (sign, rest) = text.split_at_checked(1)?;
    let (hour, minute) = rest.split_once(':').or_else(|| rest.split_at_checked(2))?;
    let (hour, minute) = (digits(hour, 2)?, digits(minute, 2)?);
    let ms = (hour * 60 + minute) * 60_000;
    (hour < 24 && minute < 60).then_some(if sign == "-" { -ms } else { ms })
}

/// The first three digits after the point.
fn fraction_ms(text: &str) -> Option<i64> {
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let padded: String = text.chars().chain("000".chars()).take(3).collect();
    padded.parse().ok()
}

fn digits(text: &str, count: usize) -> Option<i64> {
    (text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok())?
}

/// Days since 1970 in the Gregorian calendar, whose years are counted from March so that a leap day comes last.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// Year, month and day of days since 1970.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day_of_year - (153 * shifted + 2) / 5 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_read_in_the_forms_that_ledgers_use() {
        for (text, ms) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2026-11-16T12:00:00Z", 1_794_830_400_000),
            ("2026-11-16t13:30:00.25+01:30", 1_794_830_400_250),
            ("2026-11-16 07:00:00-0500", 1_794_830_400_000),
            ("2026-11-16 12:00", 1_794_830_400_000),
            ("2026-11-16", 1_794_787_200_000),
            ("2024-02-29", 1_709_164_800_000),
            ("1794830400", 1_794_830_400_000),
            (" 1794830400123 ", 1_794_830_400_123),
        ] {
            assert_eq!(parse(text), Some(Timestamp::from_ms(ms)), "{text}");
            assert_eq!(parse(&show(Timestamp::from_ms(ms))), Some(Timestamp::from_ms(ms)), "{text}");
        }
        assert_eq!(show(Timestamp::from_ms(1_794_830_400_250)), "2026-11-16T12:00:00.250Z");
    }

    #[test]
    fn what_is_no_moment_is_not_guessed() {
        for text in [
            "",
            "now",
            "2026-13-01",
            "2025-02-29",
            "2026-1-1",
            "16.11.2026",
            "11/16/2026",
            "2026-11-16T25:00Z",
            "2026-11-16T12",
            "2026-11-16T12:00:00 CET",
            "-5",
            "1969-12-31",
            "2026-11-16T12:00:00+1",
            "99999999999999999999",
            "2026-11-16T12:00:00.x",
            "2026-11-16T12:00:00+\u{e9}9",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn every_day_of_four_centuries_comes_back() {
        for days in (0..146_097).step_by(7) {
            let (year, month, day) = civil(days);
            assert_eq!(days_from_civil(year, month, day), days, "{year}-{month}-{day}");
        }
    }
}
