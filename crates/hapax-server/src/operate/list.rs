//! `hapax keys list`: records, found by filters or by anything a person pastes.

use hapax_core::clock::Timestamp;

use super::args::{Form, ListArgs, Which};
use super::csv::csv;
use super::failure::Failure;
use super::locate::is_padded;
use super::open;
use super::table::{may_be_cut, table, whole};
use super::terminal::{Terminal, print, print_json, remark};
use crate::desk::time_spec::TimeSpec;
use crate::desk::view::{Filter, PageView, RecordView};
use crate::desk::{Desk, DeskError, DeskErrorKind};
use crate::timestamp;

/// Records in one list; more are asked for part by part.
const LIST_MAX: u32 = 100_000;

/// Records asked for at a time.
const PAGE: u32 = 500;

/// Pages without a match before the search stops. Each looks at many records.
const CALLS_MAX: u32 = 1_000;

/// Digits of an id that a terminal shows.
pub(super) const ID_DIGITS: usize = 12;

const HEAD: [&str; 18] = [
    "id",
    "space",
    "scope",
    "key",
    "state",
    "attempt",
    "error",
    "verdict",
    "doubted_since",
    "probes",
    "created_at",
    "changed_at",
    "due_at",
    "expires_at",
    "status",
    "body_bytes",
    "labels",
    "remark",
];

pub(super) async fn run(args: &ListArgs, environment: Vec<(String, String)>) -> Result<u8, Failure> {
    if !(1..=LIST_MAX).contains(&args.limit) {
        return Err(Failure::usage(format!("--limit must be 1 to {LIST_MAX}; use --after to go on from there")));
    }
    let times = Times::of(&args.which)?;
    let terminal = Terminal::of_output(&environment);
    let desk = open::desk(&args.place, environment).await?;
    let filter = Filter { find: args.find.clone(), ..times.filter(&desk, &args.which).await? };
    let found = gather(&desk, &filter, args.after.clone(), args.limit).await?;
    match args.output {
        Form::Text => print(&text(&found.records, terminal))?,
        Form::Json => print_json(&found)?,
        Form::Csv => print(&csv(&HEAD, &found.records.iter().map(row).collect::<Vec<_>>()))?,
    };
    for damaged in &found.damaged {
        remark(&format!("record {} cannot be read: {}", damaged.named(), damaged.reason));
    }
    if found.records.is_empty() && args.find.as_deref().is_some_and(is_padded) {
        remark("blanks and quotation marks around a text are a part of it; try it without them");
    }
    if let Some(next) = found.next.filter(|_| args.output != Form::Json) {
        let stopped = (found.records.len() as u32) < args.limit;
        let why = if stopped { "the search stopped before the last record" } else { "there may be more" };
        remark(&format!("{why}; go on with --after {next}"));
    }
    Ok(0)
}

/// From when to when, as the flags say it.
pub(super) struct Times {
    since: Option<TimeSpec>,
    until: Option<TimeSpec>,
}

impl Times {
    pub(super) fn of(which: &Which) -> Result<Self, Failure> {
        let read = |flag: &str, text: &Option<String>| match text.as_deref() {
            Some(text) => TimeSpec::read(text).map(Some).ok_or_else(|| no_time(flag)),
            None => Ok(None),
        };
        Ok(Self { since: read("--since", &which.since)?, until: read("--until", &which.until)? })
    }

    /// What the flags name. How long ago something was is counted by the store's clock, like the records' own times.
    pub(super) async fn filter(&self, desk: &impl Desk, which: &Which) -> Result<Filter, Failure> {
        let is_ago = |moment: &Option<TimeSpec>| matches!(moment, Some(TimeSpec::Ago(_)));
        let now = if is_ago(&self.since) || is_ago(&self.until) {
            timestamp::read(&desk.status().await?.now).ok_or_else(no_clock)?
        } else {
            Timestamp::default()
        };
        let text = |said: Option<TimeSpec>| said.map(|said| timestamp::text(said.at(now)));
        Ok(Filter {
            states: which.state.clone(),
            scope: which.scope.clone(),
            label: which.label.clone(),
            key: None,
            find: None,
            since: text(self.since),
            until: text(self.until),
        })
    }
}

fn no_clock() -> DeskError {
    DeskError::new(DeskErrorKind::Unavailable, "the node does not say what time it is; give a date instead")
}

fn no_time(flag: &str) -> Failure {
    Failure::usage(format!(
        "`{flag}` is no time; write 2026-01-31, 2026-01-31T09:05:00Z or how long ago, such as 24h or 7d"
    ))
}

/// Pages put together, up to `limit` records. It may stop before the last one: then there is a next.
pub(super) async fn gather(
    desk: &impl Desk,
    filter: &Filter,
    mut after: Option<String>,
    limit: u32,
) -> Result<PageView, Failure> {
    let mut found = PageView { records: Vec::new(), damaged: Vec::new(), next: None };
    for _ in 0..CALLS_MAX {
        let room = limit.saturating_sub(found.records.len() as u32).min(PAGE);
        let page = desk.list(filter, after.as_deref(), room).await?;
        found.records.extend(page.records);
        found.add_damaged(page.damaged);
        after = page.next;
        if after.is_none() || found.records.len() as u32 >= limit {
            break;
        }
    }
    found.next = after;
    Ok(found)
}

fn text(records: &[RecordView], terminal: Terminal) -> String {
    if records.is_empty() {
        return "no records\n".to_owned();
    }
    let columns = [
        whole("ID"),
        whole("STATE"),
        whole("TRY"),
        whole("CHANGED"),
        may_be_cut("SCOPE"),
        may_be_cut("KEY"),
        may_be_cut("WHY"),
    ];
    let rows: Vec<Vec<String>> = records
        .iter()
        .map(|record| {
            let id = short_id(&record.id, terminal);
            let why = why(record);
            let changed = last_change(record);
            let changed = if terminal.width.is_some() { seconds(changed) } else { changed.to_owned() };
            let (state, attempt) = (record.state.clone(), record.attempt.to_string());
            vec![id, state, attempt, changed, record.scope.clone(), record.key.clone(), why]
        })
        .collect();
    table(&columns, &rows, terminal.width)
}

/// What was said of it or why it failed, and what its state does not say.
fn why(record: &RecordView) -> String {
    let said = record.verdict.as_deref().or(record.error.as_deref());
    let parts: Vec<&str> = said.into_iter().chain(record.remark.as_deref()).collect();
    parts.join("; ")
}

/// When something last became of a record. One that nobody can probe is written every few minutes, and nothing happens.
pub(super) fn last_change(record: &RecordView) -> &str {
    match &record.doubted_since {
        Some(since) if record.state == "unknown" && record.probes == 0 => since.max(&record.created_at),
        _ => &record.changed_at,
    }
}

/// As many digits as a terminal has room for; all where nobody counts columns.
pub(super) fn short_id(id: &str, terminal: Terminal) -> String {
    let digits = if terminal.width.is_some() { ID_DIGITS } else { id.len() };
    id.chars().take(digits).collect()
}

/// A time without its fraction.
pub(super) fn seconds(at: &str) -> String {
    at.split_once('.').map_or_else(|| at.to_owned(), |(whole, _)| format!("{whole}Z"))
}

fn row(record: &RecordView) -> Vec<String> {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let answer = record.answer.as_ref();
    let labels: Vec<String> = record.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    vec![
        record.id.clone(),
        record.space.clone(),
        record.scope.clone(),
        record.key.clone(),
        record.state.clone(),
        record.attempt.to_string(),
        text(&record.error),
        text(&record.verdict),
        text(&record.doubted_since),
        record.probes.to_string(),
        record.created_at.clone(),
        record.changed_at.clone(),
        text(&record.due_at),
        text(&record.expires_at),
        answer.map_or_else(String::new, |answer| answer.status.to_string()),
        answer.and_then(|answer| answer.body_bytes).map_or_else(String::new, |bytes| bytes.to_string()),
        labels.join("; "),
        text(&record.remark),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_only_put_off_has_not_changed() {
        let record: RecordView = serde_json::from_value(serde_json::json!({
            "id": "", "space": "http", "scope": "a", "key": "k", "state": "unknown", "attempt": 1, "probes": 0,
            "created_at": "2026-01-31T09:00:00.000Z", "doubted_since": "2026-01-31T09:05:31.000Z",
            "changed_at": "2026-01-31T10:15:31.000Z", "labels": {},
        }))
        .unwrap();
        assert_eq!(last_change(&record), "2026-01-31T09:05:31.000Z");
        let probed = RecordView { probes: 1, ..record.clone() };
        assert_eq!(last_change(&probed), record.changed_at, "a probe could not tell");
        let dead = RecordView { state: "dead".to_owned(), ..record.clone() };
        assert_eq!(last_change(&dead), record.changed_at);
        let restored = RecordView { doubted_since: Some("2026-01-31T08:00:00.000Z".to_owned()), ..record.clone() };
        assert_eq!(last_change(&restored), record.created_at, "in doubt since before it was seen");
    }
}
