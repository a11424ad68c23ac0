//! Who wins: for each key, the flag, else the variable, else the file, else the default.
//!
//! Whoever reads a section asks for each key once. From that alone follow the keys that exist, the keys that nobody
//! asked for (which are refused), and the list of all settings with their origins. Problems are collected, not
//! returned: a value that cannot be read is replaced by its default, so that reading goes on to the next problem. Left
//! to others: which keys there are (`sections`), and which values fit together (`check`).

use std::path::{Path, PathBuf};

use super::problem::{Origin, Problem, by_other_name, nearest};
use super::secret::{self, Secret};
use super::source::{Node, Override, Raw};
use super::value::{Fault, Value};

/// The entries of a table.
pub(super) type Entries = [(String, Node)];

/// One setting as it is in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The key with its section: `server.from`; `route[0].retention` for a route, which lists only what it says itself.
    pub key: String,
    /// The value as TOML; secrets are hidden. Empty where there is none.
    pub value: String,
    /// Where the value comes from.
    pub origin: Origin,
    /// Who also said something, and lost.
    pub over: Vec<Origin>,
}

/// Reads sections, and remembers what it saw.
pub(super) struct Reader<'a> {
    pub(super) file: Option<&'a Path>,
    /// The strongest first.
    pub(super) overrides: &'a [Override],
    pub(super) problems: Vec<Problem>,
    pub(super) settings: Vec<Setting>,
    unknown: Vec<Unknown>,
    /// Keys whose values could not be read: a default stands in for them, so nothing follows from it.
    faulty: Vec<String>,
}

/// A key that nobody asked for.
struct Unknown {
    key: String,
    section: String,
    line: usize,
    siblings: Vec<&'static str>,
}

/// One section while it is read.
pub(super) struct Section<'r, 'a> {
    pub(super) reader: &'r mut Reader<'a>,
    path: String,
    entries: &'a Entries,
    asked: Vec<&'static str>,
}

/// Something that was said about a key.
enum Found<'a> {
    Text(&'a Override),
    InFile(&'a Node),
}

impl<'a> Reader<'a> {
    pub(super) fn new(file: Option<&'a Path>, overrides: &'a [Override]) -> Self {
        Self { file, overrides, problems: Vec::new(), settings: Vec::new(), unknown: Vec::new(), faulty: Vec::new() }
    }

    /// Reads a section with `read`, and notes the keys it did not ask for. The top of a file is the section "".
    pub(super) fn section<T>(
        &mut self,
        path: impl Into<String>,
        entries: &'a Entries,
        read: impl FnOnce(&mut Section<'_, 'a>) -> T,
    ) -> T {
        let mut section = Section { reader: self, path: path.into(), entries, asked: Vec::new() };
        let value = read(&mut section);
        let Section { path, asked, .. } = section;
        let left = entries.iter().filter(|(key, _)| !asked.contains(&key.as_str()));
        self.unknown.extend(left.map(|(key, node)| Unknown {
            key: key.clone(),
            section: path.clone(),
            line: node.line,
            siblings: asked.clone(),
        }));
        value
    }

    /// The place of a line of the file.
    pub(super) fn at_line(&self, line: usize) -> Origin {
        self.file.map_or(Origin::Default, |path| Origin::File { path: path.to_owned(), line })
    }

    /// Notes a problem between settings, at the first of them that somebody set. Where one of them could not be read,
    /// that was noted already, and this problem may be none.
    pub(super) fn refuse(&mut self, keys: &[&str], message: impl Into<String>) {
        if keys.iter().any(|key| self.faulty.iter().any(|faulty| faulty == key)) {
            return;
        }
        let of = |key: &&str| self.settings.iter().find(|setting| setting.key == **key).map(|s| s.origin.clone());
        let origin = keys.iter().filter_map(of).find(|origin| *origin != Origin::Default).unwrap_or(Origin::Default);
        self.problems.push(Problem { origin, message: message.into() });
    }

    /// Turns the keys nobody asked for into problems, when all keys that exist are known.
    pub(super) fn refuse_unknown(&mut self) {
        for unknown in std::mem::take(&mut self.unknown) {
            let message = self.about_unknown(&unknown);
            let origin = self.at_line(unknown.line);
            self.problems.push(Problem { origin, message });
        }
    }

    fn about_unknown(&self, unknown: &Unknown) -> String {
        let Unknown { key, section, siblings, .. } = unknown;
        let (place, shown) = (heading(section), key.escape_debug());
        // A key that exists elsewhere stands in the wrong section; else a misspelt one of this section is most likely.
        let all = || self.settings.iter().map(|setting| setting.key.as_str()).filter(|known| !known.contains('['));
        let elsewhere = all().find(|known| known.rsplit('.').next() == Some(key));
        let close = || nearest(key, siblings.iter().copied()).or_else(|| nearest(key, all()));
        let meant = elsewhere.or_else(|| by_other_name(key)).or_else(close);
        // In a route or among the defaults, the keys of policies have no section.
        let of_policy = section == "defaults" || section.contains('[');
        let meant = meant.map(|meant| if of_policy { meant.trim_start_matches("defaults.") } else { meant });
        match meant {
            Some(meant) => format!("unknown key `{shown}` {place}; did you mean `{meant}`?"),
            None => format!("unknown key `{shown}` {place}; `hapax config default` lists every key"),
        }
    }
}

/// The section in words.
fn heading(section: &str) -> String {
    match section.split_once('[') {
        _ if section.is_empty() => "at the top".to_owned(),
        Some((name, _)) => format!("in [[{name}]]"),
        None => format!("in [{section}]"),
    }
}

impl<'a> Section<'_, 'a> {
    /// A value, or its default.
    pub(super) fn value<T: Value>(&mut self, key: &'static str, default: T) -> T {
        let found = self.found(key);
        let origins: Vec<Origin> = found.iter().map(|found| self.origin(found)).collect();
        let value = match found.first().map(read::<T>) {
            None => default,
            Some(Ok(value)) => value,
            Some(Err(fault)) => {
                self.fault(key, &T::expected(), fault, origins.first());
                default
            }
        };
        self.note(key, value.show(), origins);
        value
    }

    /// A value that has no default. Where nobody gave one, it is noted as an empty text.
    pub(super) fn needed<T: Value>(&mut self, key: &'static str) -> Option<T> {
        let found = self.found(key);
        let origins: Vec<Origin> = found.iter().map(|found| self.origin(found)).collect();
        let value = match found.first().map(read::<T>) {
            None => None,
            Some(Ok(value)) => Some(value),
            Some(Err(fault)) => {
                self.fault(key, &T::expected(), fault, origins.first());
                None
            }
        };
        self.note(key, value.as_ref().map(T::show).unwrap_or_default(), origins);
        value
    }

    /// A secret, by its key or by the key that names a file; `shown` makes of it what people may see.
    pub(super) fn secret(
        &mut self,
        key: &'static str,
        file_key: &'static str,
        shown: impl Fn(&Secret) -> String,
        default_shown: &str,
    ) -> Option<Secret> {
        let (inline, by_file) = (self.found(key), self.found(file_key));
        let origins = |found: &[Found<'_>]| found.iter().map(|found| self.origin(found)).collect::<Vec<_>>();
        let (origins, origins_by_file) = (origins(&inline), origins(&by_file));
        let rank = strength(&origins, &inline);
        // A file that is "off" says nothing about the secret itself.
        let rank_by_file = Some(strength(&origins_by_file, &by_file)).filter(|rank| rank.1).unwrap_or_default();
        // Equal strength means the same kind of source, each with a value that is not "off".
        if rank == rank_by_file && rank.1 {
            let message = format!("`{}` and `{}` are both set; remove one", self.full(key), self.full(file_key));
            self.problem(origins.first(), message);
        }
        let path = by_file.first().and_then(|found| read::<Option<PathBuf>>(found).ok()).flatten();
        let secret = if rank_by_file > rank {
            by_file.first().and_then(|found| self.secret_in_file(file_key, found))
        } else {
            inline.first().and_then(|found| self.secret_inline(key, found))
        };
        let text = secret.as_ref().map_or_else(|| default_shown.to_owned(), &shown);
        // A value that comes from the file is told with the origin of the key that names the file.
        let told =
            if rank_by_file > rank && path.is_some() { [&*origins_by_file, &*origins].concat() } else { origins };
        self.note(key, text, told);
        self.note(file_key, path.show(), origins_by_file);
        secret
    }

    fn secret_inline(&mut self, key: &str, found: &Found<'_>) -> Option<Secret> {
        let origin = self.origin(found);
        match read::<Option<String>>(found) {
            Ok(Some(text)) => Some(Secret::new(text)),
            Ok(None) => None,
            Err(_) => {
                let full = self.full(key);
                self.problem(Some(&origin), format!("`{full}` must be a text that is not empty"));
                self.reader.faulty.push(full);
                None
            }
        }
    }

    fn secret_in_file(&mut self, file_key: &str, found: &Found<'_>) -> Option<Secret> {
        let origin = self.origin(found);
        match read::<Option<PathBuf>>(found) {
            Ok(path) => match secret::read_file(&path?) {
                Ok(secret) => Some(secret),
                Err(why) => {
                    let full = self.full(file_key);
                    self.problem(Some(&origin), format!("`{full}`: {why}"));
                    self.reader.faulty.push(full);
                    None
                }
            },
            Err(fault) => {
                self.fault(file_key, &<Option<PathBuf>>::expected(), fault, Some(&origin));
                None
            }
        }
    }

    /// Refuses a key that exists elsewhere and means nothing here.
    pub(super) fn refuse(&mut self, key: &'static str, why: &str) {
        let full = self.full(key);
        for found in self.found(key) {
            let origin = self.origin(&found);
            self.problem(Some(&origin), format!("`{full}` {why}"));
            self.reader.faulty.push(full.clone());
        }
    }

    /// Marks a key as known, and hands out what the file says about it.
    pub(super) fn ask(&mut self, key: &'static str) -> Option<&'a Node> {
        self.asked.push(key);
        self.entries.iter().find(|(name, _)| name == key).map(|(_, node)| node)
    }

    /// A table inside the section, to be read as a section of its own.
    pub(super) fn table(&mut self, key: &'static str) -> &'a Entries {
        match self.ask(key) {
            None => &[],
            Some(Node { raw: Raw::Table(entries), .. }) => entries,
            Some(Node { raw, line }) => {
                let origin = self.reader.at_line(*line);
                self.problem(Some(&origin), format!("`{key}` must be a table, [{key}], not {}", raw.shown()));
                &[]
            }
        }
    }

    /// The key with its section.
    pub(super) fn full(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// Notes a problem.
    pub(super) fn problem(&mut self, origin: Option<&Origin>, message: String) {
        self.reader.problems.push(Problem { origin: origin.cloned().unwrap_or(Origin::Default), message });
    }

    /// All that was said about a key, the strongest first.
    fn found(&mut self, key: &'static str) -> Vec<Found<'a>> {
        let in_file = self.ask(key).map(Found::InFile);
        let full = self.full(key);
        let overrides = self.reader.overrides;
        let of_key = overrides.iter().filter(|entry| entry.key == full).map(Found::Text);
        of_key.chain(in_file).collect()
    }

    fn origin(&self, found: &Found<'_>) -> Origin {
        match found {
            Found::Text(entry) => entry.origin.clone(),
            Found::InFile(node) => self.reader.at_line(node.line),
        }
    }

    fn note(&mut self, key: &str, value: String, origins: Vec<Origin>) {
        let mut origins = origins.into_iter();
        let origin = origins.next().unwrap_or(Origin::Default);
        // A route inherits; it lists only what it says itself.
        if origin == Origin::Default && self.path.contains('[') {
            return;
        }
        let key = self.full(key);
        self.reader.settings.push(Setting { key, value, origin, over: origins.collect() });
    }

    fn fault(&mut self, key: &str, expected: &str, fault: Fault, origin: Option<&Origin>) {
        let name = match self.path.split_once('[') {
            Some((kind, _)) => format!("{kind}.{key}"),
            None => self.full(key),
        };
        let message = match fault {
            Fault::Not(found) => format!("`{name}` must be {expected}, not {found}"),
            Fault::Because(why) => format!("`{name}` {why}"),
            Fault::At(line, fault) => {
                let origin = self.reader.at_line(line);
                return self.fault(key, expected, *fault, Some(&origin));
            }
        };
        self.reader.faulty.push(self.full(key));
        self.problem(origin, message);
    }
}

fn read<T: Value>(found: &Found<'_>) -> Result<T, Fault> {
    match found {
        Found::Text(entry) => T::parse(&entry.text),
        Found::InFile(node) => T::read(node),
    }
}

/// How strong the strongest source is, and whether it gives a value that is not "off".
fn strength(origins: &[Origin], found: &[Found<'_>]) -> (u8, bool) {
    let rank = origins.first().map_or(0, Origin::rank);
    let is_off = found.first().is_none_or(|found| matches!(read::<Option<String>>(found), Ok(None)));
    (rank, !is_off)
}
