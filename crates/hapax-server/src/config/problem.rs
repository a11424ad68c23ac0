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

/// The known word that was most likely meant, if any is close.
pub(super) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = word.to_lowercase();
    let distance = |name: &str| strsim::damerau_levenshtein(&lower, &name.to_lowercase());
    let close = known.into_iter().map(|name| (distance(name), name));
    // A third of the letters may be wrong; beyond that a guess is noise.
    close.filter(|(distance, name)| *distance <= name.len().max(3) / 3).min().map(|(_, name)| name)
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
