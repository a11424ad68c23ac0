//! Durations and sizes with their units: `30s`, `1h30m`, `1MiB`.
//!
//! A number without a unit is refused, because a reader cannot tell seconds from milliseconds. Left to others: which
//! values make sense.

use std::time::Duration;

/// Every unit of time, the largest first, so that a value is shown in the largest that fits.
const TIMES: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

/// Every unit of size. `MB` is not `MiB`; both are understood.
const SIZES: [(&str, u64); 7] = [
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1000),
    ("B", 1),
];

/// Reads `500ms`, `30s`, `1h30m`; `None` for anything else, a sign, a point or a space included.
pub(crate) fn duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut total = 0_u64;
    let mut unit_before = u64::MAX;
    while !rest.is_empty() {
        let (number, after) = leading_number(rest)?;
        let letters = after.find(|letter: char| !letter.is_ascii_alphabetic()).unwrap_or(after.len());
        let unit = unit_of(&TIMES, &after[..letters])?;
        if unit >= unit_before {
            return None;
        }
        total = total.checked_add(number.checked_mul(unit)?)?;
        (unit_before, rest) = (unit, &after[letters..]);
    }
    (!text.is_empty()).then(|| Duration::from_millis(total))
}

/// A text that [`duration`] reads back, in the largest unit that needs no other.
pub(crate) fn show_duration(duration: Duration) -> String {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    match millis {
        0 => return "0s".to_owned(),
        // How people speak of the default retention.
        86_400_000 => return "24h".to_owned(),
        _ => {}
    }
    let fitting = TIMES.iter().find(|(_, unit)| millis.is_multiple_of(*unit));
    let (name, unit) = fitting.copied().unwrap_or(("ms", 1));
    format!("{}{name}", millis / unit)
}

/// Reads `64KiB`, `8MB`, `512B`.
pub(super) fn size(text: &str) -> Option<usize> {
    let (number, unit) = leading_number(text)?;
    let bytes = number.checked_mul(unit_of(&SIZES, unit)?)?;
    usize::try_from(bytes).ok()
}

/// The shortest text that [`size`] reads back.
pub(super) fn show_size(bytes: usize) -> String {
    let bytes = bytes as u64;
    let fitting = SIZES.iter().find(|(_, unit)| bytes >= *unit && bytes.is_multiple_of(*unit));
    let (name, unit) = fitting.copied().unwrap_or(("B", 1));
    format!("{}{name}", bytes / unit)
}

/// A number of bytes for people, to three digits or so.
pub(crate) fn about_size(bytes: u64) -> String {
    let (name, unit) = SIZES[..3].iter().find(|(_, unit)| bytes >= *unit).copied().unwrap_or(("B", 1));
    if unit == 1 { format!("{bytes} B") } else { format!("{:.1} {name}", bytes as f64 / unit as f64) }
}

fn leading_number(text: &str) -> Option<(u64, &str)> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..digits].parse().ok()?, &text[digits..]))
}

fn unit_of(units: &[(&str, u64)], name: &str) -> Option<u64> {
    units.iter().find(|(known, _)| *known == name).map(|(_, unit)| *unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_with_their_units() {
        for (text, millis) in [("0s", 0), ("500ms", 500), ("30s", 30_000), ("1h30m", 5_400_000), ("7d", 604_800_000)] {
            assert_eq!(duration(text), Some(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn a_duration_without_a_unit_or_with_a_strange_one_is_not_read() {
        for text in
            ["", "30", "s", "-5s", "+5s", "1.5h", "30 s", "5w", "1y", "30S", "1m1h", "1s1s", "99999999999999999d"]
        {
            assert_eq!(duration(text), None, "{text}");
        }
    }

    #[test]
    fn a_shown_duration_is_read_back() {
        for millis in [0, 1, 999, 1000, 90_000, 86_400_000, 172_800_000, 90_061_001] {
            let value = Duration::from_millis(millis);
            assert_eq!(duration(&show_duration(value)), Some(value));
        }
        assert_eq!(show_duration(Duration::from_secs(5400)), "90m");
    }

    #[test]
    fn sizes_are_read_with_their_units_and_shown_again() {
        for (text, bytes) in [("1MiB", 1 << 20), ("32KiB", 32 << 10), ("8MB", 8_000_000), ("1500B", 1500)] {
            assert_eq!(size(text), Some(bytes), "{text}");
            assert_eq!(size(&show_size(bytes)), Some(bytes), "{text}");
        }
        for text in ["", "1", "1M", "1 MiB", "-1B", "1.5MiB", "99999999999GiB"] {
            assert_eq!(size(text), None, "{text}");
        }
    }
}
