//! What a reload has changed, in a line for the log.

use super::reader::Setting;

/// More are only counted: a line of the log is for reading.
const NAMED_MAX: usize = 20;

/// The settings that differ, each with its old and its new value. Secrets are hidden in both, so a new one does not show.
#[must_use]
pub(crate) fn changes(old: &[Setting], new: &[Setting]) -> String {
    let value =
        |of: &[Setting], key: &str| of.iter().find(|setting| setting.key == key).map(|found| found.value.clone());
    let shown = |value: Option<String>| value.filter(|text| !text.is_empty()).unwrap_or_else(|| "(none)".to_owned());
    let gone = old.iter().filter(|setting| value(new, &setting.key).is_none());
    let mut named: Vec<String> = Vec::new();
    for setting in new.iter().chain(gone) {
        let (before, after) = (value(old, &setting.key), value(new, &setting.key));
        if before != after {
            named.push(format!("{}: {} -> {}", setting.key, shown(before), shown(after)));
        }
    }
    match named.len() {
        0 => "no setting; files that settings name were read again".to_owned(),
        count @ 1..=NAMED_MAX => named[..count].join(", "),
        count => format!("{}, and {} more", named[..NAMED_MAX].join(", "), count - NAMED_MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::super::problem::Origin;
    use super::*;

    fn settings(pairs: &[(&str, &str)]) -> Vec<Setting> {
        let setting = |(key, value): &(&str, &str)| Setting {
            key: (*key).to_owned(),
            value: (*value).to_owned(),
            origin: Origin::Default,
            over: Vec::new(),
        };
        pairs.iter().map(setting).collect()
    }

    #[test]
    fn what_differs_is_named_with_both_values() {
        let old = settings(&[("a", "1"), ("b", "2"), ("gone", "3"), ("same", "4")]);
        let new = settings(&[("a", "1"), ("b", "5"), ("same", "4"), ("new", "6")]);
        assert_eq!(changes(&old, &new), "b: 2 -> 5, new: (none) -> 6, gone: 3 -> (none)");
        assert_eq!(changes(&old, &old), "no setting; files that settings name were read again");
        let many: Vec<String> = (0..25).map(|at| format!("k{at}")).collect();
        let many: Vec<(&str, &str)> = many.iter().map(|key| (key.as_str(), "1")).collect();
        assert!(changes(&[], &settings(&many)).ends_with("k19: (none) -> 1, and 5 more"));
    }
}
