//! The flags of `hapax reconcile`, and the plan they make once they are checked.
//!
//! Every mistake is found before the ledger or the store is opened. Left to others: everything the plan says.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::LedgerError;
use super::timestamp;
use crate::config::duration;
use crate::desk::time_spec::TimeSpec;
use crate::flags::Actor;
use crate::flags::StoreFlags;
use crate::logs::escaped;

/// Longer reasons are documents; a reason is kept for ever and read in a list.
const REASON_CHARS_MAX: usize = 1000;

/// For the help, where every line counts, and for the manual page.
macro_rules! ends {
    () => {
        "Ends with 0 where both agree, 1 where something disagrees, 2 if it failed."
    };
}

/// The flags of `hapax reconcile`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = concat!("{about}\n{usage-heading} {usage}\n{options}\n", ends!()),
    override_usage = "hapax reconcile --ledger FILE --match PART=COLUMN [OPTIONS]",
    after_help = ends!()
)]
pub struct LedgerArgs {
    /// Their records: .csv or .ndjson
    #[arg(long, value_name = "FILE")]
    pub ledger: PathBuf,
    /// id=COLUMN, or key=, label:NAME= and scope=
    #[arg(long = "match", value_name = "PART=COLUMN", required = true)]
    pub matches: Vec<String>,
    /// What became of it; without: it happened
    #[arg(long, value_name = "COLUMN")]
    pub status: Option<String>,
    /// Its values for "happened", by commas
    #[arg(long, value_name = "VALUES", value_delimiter = ',', requires = "status")]
    pub happened: Vec<String>,
    /// Its values for "refused for good"
    #[arg(long, value_name = "VALUES", value_delimiter = ',', requires = "status")]
    pub declined: Vec<String>,
    /// Its values for "may run again"
    #[arg(long, value_name = "VALUES", value_delimiter = ',', requires = "status")]
    pub did_not_happen: Vec<String>,
    /// The column with the time of a row
    #[arg(long, value_name = "COLUMN")]
    pub time: Option<String>,
    /// A time, or how long ago, such as 24h
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// The same [default: now]
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,
    /// How long attempts may go on
    #[arg(long, value_name = "DURATION", default_value = "10m")]
    pub settle_after: String,
    /// It is complete for the window
    #[arg(long, requires = "since", requires = "until")]
    pub absent_means_did_not_happen: bool,
    /// Resolve what the ledger decides
    #[arg(long, requires = "reason")]
    pub apply: bool,
    /// Why, for the audit log
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// What clients get where it happened
    #[arg(long, value_name = "STATUS", value_parser = clap::value_parser!(u16).range(200..600))]
    pub answer_status: Option<u16>,
    /// And the body of it
    #[arg(long, value_name = "COLUMN")]
    pub answer_body_column: Option<String>,
    /// Where it was declined
    #[arg(long, value_name = "STATUS", default_value_t = 402, value_parser = clap::value_parser!(u16).range(400..600))]
    pub declined_status: u16,
    /// text, json or csv
    #[arg(long, value_enum, value_name = "FORM", default_value_t = Form::Text, hide_possible_values = true)]
    pub output: Form,
    /// Who acts.
    #[command(flatten)]
    pub actor: Actor,
    /// Which store.
    #[command(flatten)]
    pub store: StoreFlags,
}

/// How to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// A table
    Text,
    /// One document
    Json,
    /// One line per finding
    Csv,
}

/// What a ledger is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Csv,
    Ndjson,
}

/// The columns to read, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Columns {
    pub(super) value: String,
    pub(super) scope: Option<String>,
    pub(super) status: Option<String>,
    pub(super) time: Option<String>,
    pub(super) body: Option<String>,
}

/// What rows and records are matched by, besides the scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// The record's id, which covers scope and key.
    Id,
    Key,
    Label(String),
}

/// The flags, checked.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) format: Format,
    pub(super) columns: Columns,
    pub(super) by: By,
    /// Every row is of that scope.
    pub(super) scope: Option<String>,
    /// Rows say whose record they are about, or it is said out loud that no two callers use the same key. Otherwise a row
    /// decides nothing: callers choose keys and labels, and what is one's must not settle another's.
    pub(super) bound: bool,
    pub(super) since: Option<TimeSpec>,
    pub(super) until: Option<TimeSpec>,
    pub(super) settle_ms: u64,
}

impl LedgerArgs {
    /// Checks what the parser of flags cannot.
    pub(super) fn plan(&self) -> Result<Plan, LedgerError> {
        let Matched { by, value, scope, scope_of_all, unique } = self.matched()?;
        let is_named = by == By::Id || scope.is_some() || scope_of_all.is_some();
        self.check_statuses()?;
        self.check_answers()?;
        self.check_reason()?;
        self.check_bound(is_named, unique)?;
        let moment = |flag: &str, text: &Option<String>| text.as_deref().map(|text| moment_of(flag, text)).transpose();
        let columns = Columns {
            value,
            scope,
            status: self.status.clone(),
            time: self.time.clone(),
            body: self.answer_body_column.clone(),
        };
        Ok(Plan {
            format: self.format()?,
            columns,
            by,
            scope: scope_of_all,
            bound: is_named || unique,
            since: moment("--since", &self.since)?,
            until: moment("--until", &self.until)?,
            settle_ms: duration(&self.settle_after)
                .map(ms)
                .ok_or_else(|| usage("`--settle-after` is no duration; write it with a unit, such as 10m"))?,
        })
    }

    fn format(&self) -> Result<Format, LedgerError> {
        let ending = self.ledger.extension().and_then(|ending| ending.to_str()).map(str::to_ascii_lowercase);
        match ending.as_deref() {
            Some("csv") => Ok(Format::Csv),
            Some("ndjson" | "jsonl") => Ok(Format::Ndjson),
            _ => Err(usage("the ledger's name must end in .csv, .ndjson or .jsonl; rename it to what it is")),
        }
    }

    fn matched(&self) -> Result<Matched, LedgerError> {
        let mut found = Matching::default();
        self.matches.iter().try_for_each(|given| found.add(given))?;
        let (by, value) = found
            .by
            .ok_or_else(|| usage("`--match` with a scope alone finds no record; add id=, key= or label:NAME="))?;
        let Matching { scope, scope_of_all, unique, .. } = found;
        Ok(Matched { by, value, scope, scope_of_all, unique })
    }

    /// What rows decide is believed only where they say whose it is, and what they hold goes to nobody else.
    fn check_bound(&self, is_named: bool, unique: bool) -> Result<(), LedgerError> {
        let next = "match the record's id with --match id=COLUMN, or add --match scope=COLUMN";
        if self.apply && !is_named && !unique {
            let why = "`--apply` needs rows that say whose they are: other callers may use the same key or label";
            return Err(usage(format!("{why}; {next}")));
        }
        if self.apply && !is_named && self.answer_body_column.is_some() {
            let why = "`--answer-body-column` needs rows that say whose they are: a body is for one caller only";
            return Err(usage(format!("{why}; {next}")));
        }
        Ok(())
    }

    fn check_statuses(&self) -> Result<(), LedgerError> {
        let lists = [&self.happened, &self.declined, &self.did_not_happen];
        if self.status.is_some() && lists.iter().all(|list| list.is_empty()) {
            return Err(usage("`--status` says nothing by itself; add --happened, --declined or --did-not-happen"));
        }
        let mut all: Vec<&str> = lists.into_iter().flatten().map(|value| value.trim()).collect();
        all.sort_unstable();
        match all.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(usage(format!("the status `{}` is given two meanings; keep one", escaped(pair[0])))),
            None => Ok(()),
        }
    }

    /// What is recorded is replayed to clients; nobody guesses it.
    fn check_answers(&self) -> Result<(), LedgerError> {
        let may_have_happened = self.status.is_none() || !self.happened.is_empty();
        if self.apply && may_have_happened && self.answer_status.is_none() {
            let why = "`--apply` records an answer for what happened; say which with --answer-status, such as 200";
            return Err(usage(why));
        }
        if let (Some(status @ (204 | 205 | 304)), Some(_)) = (self.answer_status, &self.answer_body_column) {
            return Err(usage(format!(
                "an answer {status} has no body; leave out --answer-body-column, or give another --answer-status"
            )));
        }
        Ok(())
    }

    fn check_reason(&self) -> Result<(), LedgerError> {
        let reason = self.reason.as_deref().unwrap_or("-");
        if reason.trim().is_empty() || reason.chars().count() > REASON_CHARS_MAX {
            return Err(usage(format!(
                "`--reason` must have 1 to {REASON_CHARS_MAX} characters; say why in a sentence"
            )));
        }
        Ok(())
    }
}

/// What `--match` says.
struct Matched {
    by: By,
    /// Its column.
    value: String,
    /// The column of the scope.
    scope: Option<String>,
    scope_of_all: Option<String>,
    /// Said out loud: no two callers use the same key.
    unique: bool,
}

/// The same while it is read.
#[derive(Default)]
struct Matching {
    by: Option<(By, String)>,
    scope: Option<String>,
    scope_of_all: Option<String>,
    unique: bool,
}

impl Matching {
    fn add(&mut self, given: &str) -> Result<(), LedgerError> {
        let twice = match given.strip_prefix("scope:").filter(|scope| !scope.is_empty()) {
            Some(scope) => self.scope_of_all.replace(scope.to_owned()).is_some(),
            None => self.add_column(given)?,
        };
        if twice || (self.scope.is_some() && self.scope_of_all.is_some()) {
            let why = "`--match` names a part twice, or a key and a label; give one of id, key and label:NAME";
            return Err(usage(why));
        }
        Ok(())
    }

    /// Whether the part was named before.
    fn add_column(&mut self, given: &str) -> Result<bool, LedgerError> {
        let (part, column) = given.rsplit_once('=').filter(|(_, column)| !column.is_empty()).ok_or_else(|| {
            usage("`--match` takes PART=COLUMN; write id=COLUMN, key=COLUMN, scope=COLUMN or label:NAME=COLUMN")
        })?;
        self.unique |= part == "unique-key";
        let by = match part.split_once(':') {
            None if part == "id" => By::Id,
            None if part == "key" || part == "unique-key" => By::Key,
            None if part == "scope" => return Ok(self.scope.replace(column.to_owned()).is_some()),
            Some(("label", name)) if !name.is_empty() => By::Label(name.to_owned()),
            _ => {
                let part = escaped(part);
                return Err(usage(format!("`--match {part}` names no part; use id, key, scope or label:NAME")));
            }
        };
        Ok(self.by.replace((by, column.to_owned())).is_some())
    }
}

fn moment_of(flag: &str, text: &str) -> Result<TimeSpec, LedgerError> {
    timestamp::read(text).map(TimeSpec::At).or_else(|| TimeSpec::read(text)).ok_or_else(|| {
        usage(format!("`{flag}` is no time; write 2026-11-16T12:00:00Z, 2026-11-16 or how long ago, such as 24h"))
    })
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn usage(why: impl Into<String>) -> LedgerError {
    LedgerError::Usage(why.into())
}
