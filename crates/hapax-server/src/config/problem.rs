//! What is wrong with a configuration: where it stands, the cause, and what to do.
//!
//! All problems of a configuration are reported in one go, because finding them one restart at a time is tiresome. No
//! text here holds a secret. Left to others: finding them.

use std::fmt;
use std::path::PathBuf;

/// Where a value comes from, the weakest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nobody said anything.
    Default,
    /// A line of a file.
    File {
        /// The file, as it was named.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
    },
    /// An environment variable.
    Environment(String),
    /// A flag, with its dashes.
    Flag(&'static str),
}

impl Origin {
    /// The greater one wins.
    pub(super) fn rank(&self) -> u8 {
        match self {
            Self::Default => 0,
            Self::File { .. } => 1,
            Self::Environment(_) => 2,
            Self::Flag(_) => 3,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Environment(name) => f.write_str(name),
            Self::Flag(flag) => f.write_str(flag),
        }
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where it stands; `Default` where it is about something that nobody said.
    pub origin: Origin,
    /// The cause, and the next step.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Origin::Default => f.write_str(&self.message),
            origin => write!(f, "{origin}: {}", self.message),
        }
    }
}

/// Everything that is wrong with a configuration; at least one problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors(pub Vec<Problem>);

impl fmt::Display for ConfigErrors {
    /// One line for each problem, without a line end after the last.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, problem) in self.0.iter().enumerate() {
            let separator = if at == 0 { "" } else { "\n" };
            write!(f, "{separator}{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}

/// A word that begins or ends with a known one of fewer letters may do so by chance.
const PART_CHARS_MIN: usize = 4;

/// What people call settings that have another name here: the names of flags, and those that other servers use.
const OTHER_NAMES: [(&str, &str); 16] = [
    ("to", "upstream.to"),
    ("target", "upstream.to"),
    ("from", "server.from"),
    ("listen", "server.from"),
    ("bind", "server.from"),
    ("port", "server.from"),
    ("address", "server.from"),
    ("store", "store.url"),
    ("dsn", "store.url"),
    ("database_url", "store.url"),
    ("admin", "admin.from"),
    ("keys", "defaults.required"),
    ("observe", "mode"),
    ("ttl", "defaults.retention"),
    ("expiry", "defaults.retention"),
    ("timeout", "upstream.answer_timeout"),
];

/// The key that goes by another name elsewhere.
pub(super) fn by_other_name(word: &str) -> Option<&'static str> {
    OTHER_NAMES.iter().find(|(name, _)| *name == word).map(|(_, key)| *key)
}

/// The known word that was most likely meant, if any is close.
pub(super) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    let known: Vec<(String, &str)> = known.into_iter().map(|name| (name.to_lowercase(), name)).collect();
    // A third of the letters may be wrong; beyond that a guess is noise.
    let close = known.iter().filter_map(|(lower, name)| {
        let distance = strsim::damerau_levenshtein(&word, lower);
        (distance <= word.len().max(lower.len()) / 3).then_some((distance, *name))
    });
    let is_part =
        |part: &str, whole: &str| part.len() >= PART_CHARS_MIN && (whole.starts_with(part) || whole.ends_with(part));
    let part = known.iter().find(|(lower, _)| is_part(lower, &word) || is_part(&word, lower));
    close.min().map(|(_, name)| name).or(part.map(|(_, name)| *name))
}

/// `; did you mean …?`, or nothing.
pub(super) fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(word, known).map(|name| format!("; did you mean `{name}`?")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_close_word_is_suggested_and_a_distant_one_is_not() {
        let known = ["retention", "lease", "required", "in_flight"];
        assert_eq!(nearest("retentoin", known), Some("retention"));
        assert_eq!(nearest("Lease", known), Some("lease"));
        assert_eq!(nearest("inflight", known), Some("in_flight"));
        assert_eq!(nearest("retention_time", known), Some("retention"));
        assert_eq!(nearest("idempotency_required", known), Some("required"));
        assert_eq!(nearest("colour", known), None);
        assert_eq!(nearest("", known), None);
    }

    #[test]
    fn each_problem_stands_on_its_own_line_behind_its_place() {
        let place = Origin::File { path: "hapax.toml".into(), line: 3 };
        let one = Problem { origin: place, message: "a".into() };
        let two = Problem { origin: Origin::Environment("HAPAX_X".into()), message: "b".into() };
        let three = Problem { origin: Origin::Default, message: "c".into() };
        assert_eq!(ConfigErrors(vec![one, two, three]).to_string(), "hapax.toml:3: a\nHAPAX_X: b\nc");
    }
}
