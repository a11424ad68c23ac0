//! The provider's rows, whatever file they came in: what each says, or why it cannot be understood.
//!
//! A row that cannot be understood is kept with its line and the cause, and the rest goes on.

use std::collections::BTreeMap;

use hapax_core::address::{Key, Scope};
use hapax_core::clock::Timestamp;

use super::args::{By, LedgerArgs, Plan};
use super::timestamp;
use crate::logs::escaped;

/// The longest row. A longer one is a quotation mark that was not closed, or no ledger at all.
pub(super) const ROW_BYTES_MAX: usize = 1024 * 1024;

/// Different statuses that no list names, remembered for the report.
const UNLISTED_MAX: usize = 20;

/// Digits of a record's id.
const ID_DIGITS: usize = 64;

/// Letters of a status in the report.
const UNLISTED_CHARS_MAX: usize = 40;

/// What a row says of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Says {
    /// Its status is in no list.
    Nothing,
    Happened,
    Declined,
    DidNotHappen,
}

impl Says {
    pub(super) const fn number(self) -> i64 {
        match self {
            Self::Nothing => 0,
            Self::Happened => 1,
            Self::Declined => 2,
            Self::DidNotHappen => 3,
        }
    }

    pub(super) fn from_number(number: i64) -> Self {
        match number {
            1 => Self::Happened,
            2 => Self::Declined,
            3 => Self::DidNotHappen,
            _ => Self::Nothing,
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Nothing => "",
            Self::Happened => "happened",
            Self::Declined => "declined",
            Self::DidNotHappen => "did not happen",
        }
    }
}

/// The cells of a row that count, as they are in the file.
#[derive(Clone, Debug, Default)]
pub(super) struct Cells {
    pub(super) value: String,
    pub(super) scope: Option<String>,
    pub(super) status: Option<String>,
    pub(super) time: Option<String>,
    pub(super) body: Option<String>,
}

/// What a row is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) scope: Option<String>,
    /// The id, the key, or the label's value.
    pub(super) value: String,
}

/// A row, understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) line: u64,
    /// What the row is about, as it stands there.
    pub(super) name: Name,
    /// What it may be about where no record has just that name: padding and quotation marks may be the export's.
    pub(super) second: Option<Name>,
    pub(super) says: Says,
    pub(super) at: Option<Timestamp>,
    pub(super) body: Option<String>,
}

/// A line and what is on it. `Err`: why it cannot be understood.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) number: u64,
    pub(super) cells: Result<Cells, String>,
}

/// What the lists of statuses mean, and what was met besides them.
#[derive(Debug)]
pub(super) struct Reading<'a> {
    args: &'a LedgerArgs,
    by: &'a By,
    /// Statuses in no list, with how often.
    pub(super) unlisted: BTreeMap<String, u64>,
    pub(super) rows: u64,
    pub(super) malformed: u64,
    /// Rows without a key: nothing of hapax's.
    pub(super) without_key: u64,
}

impl<'a> Reading<'a> {
    pub(super) fn new(args: &'a LedgerArgs, plan: &'a Plan) -> Self {
        Self { args, by: &plan.by, unlisted: BTreeMap::new(), rows: 0, malformed: 0, without_key: 0 }
    }

    /// What the line says; `None` where it has no key.
    pub(super) fn understand(&mut self, line: Line) -> Result<Option<Row>, String> {
        self.rows += 1;
        let understood = line.cells.and_then(|cells| self.row(line.number, cells));
        match &understood {
            Ok(None) => self.without_key += 1,
            Ok(Some(_)) => {}
            Err(_) => self.malformed += 1,
        }
        understood
    }

    fn row(&mut self, line: u64, cells: Cells) -> Result<Option<Row>, String> {
        let Some((name, second)) = self.names(&cells)? else { return Ok(None) };
        let at = cells.time.as_deref().map(|text| timestamp::read(text).ok_or_else(|| no_time(text))).transpose()?;
        let says = cells.status.as_deref().map_or(Says::Happened, |status| self.meaning(status.trim()));
        Ok(Some(Row { line, name, second, says, at, body: cells.body.filter(|body| !body.is_empty()) }))
    }

    /// The name as it stands there, and the one without what an export may have added; `None` where there is none.
    fn names(&self, cells: &Cells) -> Result<Option<(Name, Option<Name>)>, String> {
        let value = cells.value.as_str();
        if *self.by == By::Id {
            return id_of(value, cells.scope.as_deref());
        }
        // A label is data of the caller: it is never altered.
        let plain = if *self.by == By::Key { unquoted(value) } else { value };
        if plain.trim().is_empty() {
            return Ok(None);
        }
        let name = |scope: Option<&str>, value: &str| {
            if *self.by == By::Key {
                Key::new(value).map_err(|error| error.to_string())?;
            }
            let scope = scope.map(|scope| Scope::new(scope).map(|scope| scope.as_str().to_owned()));
            let scope = scope.transpose().map_err(|error| error.to_string())?;
            Ok(Name { scope, value: value.to_owned() })
        };
        let scope = cells.scope.as_deref();
        let (exact, second) = (name(scope, value), name(scope.map(str::trim), plain));
        Ok(Some(match (exact, second) {
            (Ok(exact), Ok(second)) if exact != second => (exact, Some(second)),
            (Ok(exact), _) => (exact, None),
            (Err(_), Ok(second)) => (second, None),
            (Err(_), Err(why)) => return Err(why),
        }))
    }

    fn meaning(&mut self, status: &str) -> Says {
        let LedgerArgs { happened, declined, did_not_happen, .. } = self.args;
        let lists = [(happened, Says::Happened), (declined, Says::Declined), (did_not_happen, Says::DidNotHappen)];
        let found = lists.into_iter().find(|(list, _)| list.iter().any(|value| value.trim() == status));
        if let Some((_, says)) = found {
            return says;
        }
        let shown: String = status.chars().take(UNLISTED_CHARS_MAX).collect();
        if self.unlisted.contains_key(&shown) || self.unlisted.len() < UNLISTED_MAX {
            *self.unlisted.entry(shown).or_default() += 1;
        }
        Says::Nothing
    }
}

/// The id that a row names. It has one spelling, so that case, blanks and quotation marks are the export's.
fn id_of(cell: &str, scope: Option<&str>) -> Result<Option<(Name, Option<Name>)>, String> {
    let id = unquoted(cell).to_ascii_lowercase();
    if id.is_empty() {
        return Ok(None);
    }
    if id.len() != ID_DIGITS || !id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(format!("the id is not one: it must have {ID_DIGITS} hexadecimal digits"));
    }
    let scope = scope.map(|scope| Scope::new(scope.trim()).map(|scope| scope.as_str().to_owned()));
    Ok(Some((Name { scope: scope.transpose().map_err(|error| error.to_string())?, value: id }, None)))
}

/// Letters by which two names that are almost the same are known: a blank, a quotation mark or a capital letter may have been
/// lost, or added, on the way.
pub(super) fn almost(text: &str) -> String {
    let is_kept = |c: &char| !c.is_whitespace() && !matches!(c, '"' | '\'' | '\\');
    text.chars().filter(is_kept).flat_map(char::to_lowercase).collect()
}

/// A key in quotation marks may be the key without them, as in the request.
fn unquoted(text: &str) -> &str {
    let text = text.trim();
    text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(text)
}

fn no_time(text: &str) -> String {
    let shown: String = text.chars().take(UNLISTED_CHARS_MAX).collect();
    format!("`{}` is no time; write times as 2026-11-16T12:00:00Z", escaped(&shown))
}
