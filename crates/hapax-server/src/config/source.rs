//! Where settings come from: flags, environment variables, a file.
//!
//! It turns each into the same thing: a key with a value and an origin. Flags and variables are texts; a file is a tree
//! with line numbers. Left to others: what the keys mean (`sections`), and who wins (`reader`).

use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

use super::problem::{Origin, Problem};
use super::secret;

/// The file that is read where none is named, if it is there.
pub const FILE_DEFAULT: &str = "hapax.toml";

/// The variable that names a file, as `--config` does.
pub const FILE_VARIABLE: &str = "HAPAX_CONFIG";

/// A larger file is something else by mistake.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// What a configuration is made from. Reading it again gives what the file says by then.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Sources {
    /// The file named by `--config`.
    pub file: Option<PathBuf>,
    /// The whole environment; only names that begin with `HAPAX_` are looked at.
    pub environment: Vec<(String, String)>,
    /// What the flags say.
    pub flags: Vec<FlagValue>,
    /// `--new-addresses`: the store's keys may be forgotten.
    pub new_addresses: bool,
    /// The command forwards nothing, so no upstream has to be named.
    pub without_upstream: bool,
    /// The directory in which [`FILE_DEFAULT`] is looked for; `None` looks for no such file.
    pub directory: Option<PathBuf>,
}

/// The value of one flag.
#[derive(Clone, PartialEq, Eq)]
pub struct FlagValue {
    /// The flag with its dashes.
    pub flag: &'static str,
    /// The key it sets.
    pub key: &'static str,
    /// The value; lists are separated by commas.
    pub value: String,
}

impl std::fmt::Debug for Sources {
    /// Variables may hold secrets, so only what hapax reads is shown, and only by name.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = self.environment.iter().map(|(name, _)| name.as_str());
        let names: Vec<&str> = names.filter(|name| name.starts_with("HAPAX_")).collect();
        f.debug_struct("Sources")
            .field("file", &self.named_file())
            .field("environment", &names)
            .field("flags", &self.flags)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for FlagValue {
    /// The value may hold a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.flag)
    }
}

/// A setting from a flag or a variable.
pub(super) struct Override {
    pub(super) key: String,
    pub(super) text: String,
    pub(super) origin: Origin,
}

/// A value in a file.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) line: usize,
    pub(super) raw: Raw,
}

/// A value as TOML knows it.
#[derive(Debug, Clone)]
pub(super) enum Raw {
    Text(String),
    Integer(i64),
    Bool(bool),
    Float,
    Datetime,
    List(Vec<Node>),
    Table(Vec<(String, Node)>),
}

impl Raw {
    /// What it is called in messages.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "a text",
            Self::Integer(_) | Self::Float => "a number",
            Self::Bool(_) => "true or false",
            Self::Datetime => "a date",
            Self::List(_) => "a list",
            Self::Table(_) => "a table",
        }
    }

    /// The value itself where it is short, else what it is. Not for secrets.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Text(text) if text.chars().count() <= 64 => format!("{text:?}"),
            Self::Integer(number) => number.to_string(),
            Self::Bool(value) => value.to_string(),
            other => other.kind().to_owned(),
        }
    }
}

impl Sources {
    /// The same with the file that there is now, so that its absence is noticed when it is read again.
    #[must_use]
    pub fn pinned(self) -> Self {
        Self { file: self.named_file(), ..self }
    }

    /// The file to read: the one that was named, else the one in the directory.
    pub(super) fn named_file(&self) -> Option<PathBuf> {
        let names_file = |(name, path): &&(String, String)| name == FILE_VARIABLE && !path.is_empty();
        let by_variable = || self.environment.iter().find(names_file).map(|(_, path)| path.into());
        let in_directory = || {
            let directory = self.directory.as_ref()?;
            // "./hapax.toml" would only be noise before each line number.
            let path = if directory == Path::new(".") { FILE_DEFAULT.into() } else { directory.join(FILE_DEFAULT) };
            // A link that leads nowhere is a mistake, and no absence.
            path.symlink_metadata().is_ok().then_some(path)
        };
        self.file.clone().or_else(by_variable).or_else(in_directory)
    }
}

/// Reads a file into a tree; an empty tree where it cannot be read, with the problems.
pub(super) fn read_file(path: &Path, problems: &mut Vec<Problem>) -> Vec<(String, Node)> {
    let text = match read_text(path) {
        Ok(text) => text,
        Err(message) => {
            problems.push(Problem { origin: Origin::Default, message });
            return Vec::new();
        }
    };
    let lines = Lines::of(&text);
    let (table, errors) = DeTable::parse_recoverable(&text);
    for error in &errors {
        let line = error.span().map_or(1, |span| lines.line_of(span.start));
        // The message names no value; the whole error would print the line, which may hold a secret.
        let message = format!("not TOML: {}; correct this line", error.message());
        problems.push(Problem { origin: Origin::File { path: path.to_owned(), line }, message });
    }
    if errors.is_empty() { tree(table.get_ref(), &lines) } else { Vec::new() }
}

fn read_text(path: &Path) -> Result<String, String> {
    secret::check_readable(path)?;
    let about = std::fs::metadata(path).map_err(|error| secret::unreadable(path, &error))?;
    if about.len() > FILE_BYTES_MAX {
        return Err(format!("`{}` has more than 4 MiB, so it is no configuration; name another file", path.display()));
    }
    std::fs::read_to_string(path).map_err(|error| secret::unreadable(path, &error))
}

/// Where lines begin.
struct Lines(Vec<usize>);

impl Lines {
    fn of(text: &str) -> Self {
        Self(text.match_indices('\n').map(|(at, _)| at).collect())
    }

    fn line_of(&self, at: usize) -> usize {
        self.0.partition_point(|end| *end < at) + 1
    }
}

fn tree(table: &DeTable<'_>, lines: &Lines) -> Vec<(String, Node)> {
    let entry = |(key, value): (&toml::Spanned<std::borrow::Cow<'_, str>>, &toml::Spanned<DeValue<'_>>)| {
        // The line of the key: where a reader looks, also for a table that is spread over a file.
        let node = Node { line: lines.line_of(key.span().start), raw: raw(value.get_ref(), lines) };
        (key.get_ref().to_string(), node)
    };
    table.iter().map(entry).collect()
}

fn raw(value: &DeValue<'_>, lines: &Lines) -> Raw {
    match value {
        DeValue::String(text) => Raw::Text(text.to_string()),
        DeValue::Integer(number) => {
            let parsed = i64::from_str_radix(number.as_str(), number.radix());
            parsed.map_or(Raw::Float, Raw::Integer)
        }
        DeValue::Float(_) => Raw::Float,
        DeValue::Boolean(value) => Raw::Bool(*value),
        DeValue::Datetime(_) => Raw::Datetime,
        DeValue::Table(table) => Raw::Table(tree(table, lines)),
        DeValue::Array(items) => {
            let item = |item: &toml::Spanned<DeValue<'_>>| Node {
                line: lines.line_of(item.span().start),
                raw: raw(item.get_ref(), lines),
            };
            Raw::List(items.iter().map(item).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_from_one() {
        let lines = Lines::of("a\nbc\n\nd");
        assert_eq!([0, 1, 2, 4, 5, 6].map(|at| lines.line_of(at)), [1, 1, 2, 2, 3, 4]);
    }
}
