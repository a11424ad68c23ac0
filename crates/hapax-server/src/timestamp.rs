//! Timestamps as people write them: RFC 3339 in UTC with milliseconds, such as `2026-01-31T09:05:00.000Z`.
//!
//! Written here because it is all that is needed of a calendar. Other offsets and a date alone are understood when read.

use hapax_core::clock::Timestamp;

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// Days from 1 March of the year 0 to 1 January 1970.
const DAYS_TO_EPOCH: i64 = 719_468;

/// The timestamp as text.
#[must_use]
pub fn text(at: Timestamp) -> String {
    let (days, ms) = (at.as_ms() / DAY_MS, at.as_ms() % DAY_MS);
    let (year, month, day) = civil(i64::try_from(days).unwrap_or(0));
    let (second, minute, hour) = (ms / 1000 % 60, ms / 60_000 % 60, ms / 3_600_000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", ms % 1000)
}

/// The timestamp that a text names; `None`: it names none.
#[must_use]
pub fn read(text: &str) -> Option<Timestamp> {
    let (date, time) = match text.split_once(['T', 't', ' ']) {
        Some((date, time)) => (date, Some(time)),
        None => (text, None),
    };
    let days = read_date(date)?;
    let ms = time.map_or(Some(0), read_time)?;
    let at = days.checked_mul(i64::try_from(DAY_MS).ok()?)?.checked_add(ms)?;
    u64::try_from(at).ok().map(Timestamp::from_ms)
}

/// Days since 1970.
fn read_date(text: &str) -> Option<i64> {
    let mut parts = text.split('-');
    let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
    let (year, month, day) = (digits(year, 4)?, digits(month, 2)?, digits(day, 2)?);
    let sound = parts.next().is_none() && (1..=12).contains(&month) && day >= 1;
    let days = days(year, month, day);
    // A day that the month does not have would be one of the next.
    (sound && civil(days) == (year, month, day)).then_some(days)
}

/// Milliseconds since midnight in UTC: `09:05`, `09:05:00.25`, each with `Z` or an offset such as `+01:00`.
fn read_time(text: &str) -> Option<i64> {
    let (clock, offset_ms) = match text.rfind(['Z', 'z', '+', '-'])? {
        at if text[at..].eq_ignore_ascii_case("z") => (&text[..at], 0),
        at => {
            let (hour, minute) = text[at + 1..].split_once(':')?;
            let ms = (digits(hour, 2)? * 60 + digits(minute, 2)?) * 60_000;
            (&text[..at], if text.as_bytes()[at] == b'-' { -ms } else { ms })
        }
    };
    let mut parts = clock.split(':');
    let (hour, minute) = (digits(parts.next()?, 2)?, digits(parts.next()?, 2)?);
    let (second, fraction) = parts.next().map_or(("00", ""), |second| second.split_once('.').unwrap_or((second, "0")));
    let second = digits(second, 2)?;
    if parts.next().is_some() || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    Some(((hour * 60 + minute) * 60 + second) * 1000 + read_fraction(fraction)? - offset_ms)
}

/// What stands after the point, in milliseconds.
fn read_fraction(text: &str) -> Option<i64> {
    let sound = text.len() <= 9 && text.bytes().all(|byte| byte.is_ascii_digit());
    let three: String = text.chars().chain("000".chars()).take(3).collect();
    three.parse().ok().filter(|_| sound)
}

fn digits(text: &str, count: usize) -> Option<i64> {
    let sound = text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| sound)
}

/// Year, month and day of a number of days since 1970, by the proleptic Gregorian calendar. Years begin in March, so that
/// the day that only some have is the last.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + DAYS_TO_EPOCH;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// The other way round.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let shifted = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * shifted + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - DAYS_TO_EPOCH
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_read_as_it_was_written() {
        let day = DAY_MS;
        for ms in [0, 1, 951_782_399_999, 951_782_400_000, 1_700_000_000_123, 4_102_444_800_000, 59 * day, 60 * day] {
            let at = Timestamp::from_ms(ms);
            assert_eq!(read(&text(at)), Some(at), "{}", text(at));
        }
        assert_eq!(text(Timestamp::from_ms(951_782_400_000)), "2000-02-29T00:00:00.000Z");
        assert_eq!(text(Timestamp::from_ms(1_700_000_000_123)), "2023-11-14T22:13:20.123Z");
    }

    #[test]
    fn offsets_dates_and_fractions_are_understood() {
        let ms = |text: &str| read(text).map(Timestamp::as_ms);
        assert_eq!(ms("2023-11-14T23:13:20.1+01:00"), Some(1_700_000_000_100));
        assert_eq!(ms("2023-11-14T20:43:20-01:30"), Some(1_700_000_000_000));
        assert_eq!(ms("2023-11-14 22:13z"), Some(1_699_999_980_000));
        assert_eq!(ms("1970-01-02"), Some(DAY_MS));
    }

    #[test]
    fn what_is_no_moment_is_refused() {
        for text in [
            "",
            "x",
            "2023",
            "2023-02-29",
            "2023-13-01",
            "2023-00-01",
            "2023-01-00",
            "2023-1-1",
            "2023-01-01T",
            "2023-01-01T00:00:00",
            "2023-01-01T24:00:00Z",
            "2023-01-01T00:60:00Z",
            "2023-01-01T00:00:00.1x",
            "2023-01-01T00:00:00+0100",
            "1969-12-31",
            "2023-01-01T00:00:00.Zé",
            "é2023-01-01",
            "2023-01-01Té:00Z",
            "+023-01-01",
            "2023-01-01T00:00:00Z; DROP TABLE record",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
