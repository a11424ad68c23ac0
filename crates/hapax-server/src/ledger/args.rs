//! The flags of `hapax reconcile`, and the plan they make once they are checked.
//!
//! Every mistake is found before the ledger or the store is opened. Left to others: everything the plan says.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::LedgerError;
use super::moment;
use crate::config::duration;
use crate::desk::moment::Moment;
use crate::logs::escaped;
use crate::operate::args::Actor;
use crate::store_files::args::StoreFlags;

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
    /// key=COLUMN, scope=..., label:NAME=...
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
    Key,
    Label(String),
}

/// The flags, checked.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) format: Format,
    pub(super) columns: Columns,
    pub(super) by: By,
    pub(super) since: Option<Moment>,
    pub(super) until: Option<Moment>,
    pub(super) settle_ms: u64,
}

impl LedgerArgs {
    /// Checks what the parser of flags cannot.
    pub(super) fn plan(&self) -> Result<Plan, LedgerError> {
        let (by, value, scope) = self.matched()?;
        self.check_statuses()?;
        self.check_answers()?;
        self.check_reason()?;
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

    fn matched(&self) -> Result<(By, String, Option<String>), LedgerError> {
        let (mut by, mut scope) = (None, None);
        for given in &self.matches {
            let (part, column) = given.rsplit_once('=').filter(|(_, column)| !column.is_empty()).ok_or_else(|| {
                usage("`--match` takes PART=COLUMN; write key=COLUMN, scope=COLUMN or label:NAME=COLUMN")
            })?;
            let twice = match part.split_once(':') {
                None if part == "key" => by.replace((By::Key, column.to_owned())).is_some(),
                None if part == "scope" => scope.replace(column.to_owned()).is_some(),
                Some(("label", name)) if !name.is_empty() => {
                    by.replace((By::Label(name.to_owned()), column.to_owned())).is_some()
                }
                _ => {
                    return Err(usage(format!(
                        "`--match {}` names no part; use key, scope or label:NAME",
                        escaped(part)
                    )));
                }
            };
            if twice {
                return Err(usage(
                    "`--match` names a part twice, or a key and a label; give one of key and label:NAME",
                ));
            }
        }
        let (by, value) = by.ok_or_else(|| usage("`--match scope=` alone finds no record; add key= or label:NAME="))?;
        Ok((by, value, scope))
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

fn moment_of(flag: &str, text: &str) -> Result<Moment, LedgerError> {
    moment::read(text).map(Moment::At).or_else(|| Moment::read(text)).ok_or_else(|| {
        usage(format!("`{flag}` is no time; write 2026-11-16T12:00:00Z, 2026-11-16 or how long ago, such as 24h"))
    })
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn usage(why: impl Into<String>) -> LedgerError {
    LedgerError::Usage(why.into())
}
