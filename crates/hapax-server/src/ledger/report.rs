//! What a comparison found: a table for people, JSON or CSV for programs. Written row by row: it may be long.
//!
//! Whatever a ledger holds, a terminal stays as it was (control characters are escaped) and a spreadsheet computes nothing
//! (a cell that begins like a formula gets an apostrophe in front).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, Write};

use hapax_core::record::State;
use serde_json::{Value, json};

use super::LedgerError;
use super::args::Form;
use super::book::{Book, Listed};
use super::compare::Window;
use super::judge::Kind;
use super::rows::Says;
use crate::logs::escaped;
use crate::timestamp;

/// Findings of one kind in the table; people who have more want a file.
const SHOWN_MAX: u32 = 50;

/// Findings held in memory.
const PAGE: u32 = 500;

/// The letters of the longest cell that is aligned; longer ones push the line out.
const WIDTH_MAX: usize = 48;

/// The numbers of a comparison.
#[derive(Clone, Debug)]
pub(super) struct Summary {
    pub(super) ledger: String,
    pub(super) window: Window,
    pub(super) rows: u64,
    pub(super) without_key: u64,
    pub(super) malformed: u64,
    pub(super) unlisted: BTreeMap<String, u64>,
    pub(super) records: u64,
    pub(super) damaged: u64,
    pub(super) agreeing: u64,
}

/// Writes the report, and says whether something disagrees.
pub(super) fn write(form: Form, summary: &Summary, book: &Book, to: &mut impl Write) -> Result<bool, LedgerError> {
    let counts = counts(book)?;
    match form {
        Form::Text => text(summary, &counts, book, to),
        Form::Json => json(summary, &counts, book, to),
        Form::Csv => csv(book, to),
    }?;
    to.flush().map_err(LedgerError::Report)?;
    let disagrees = counts.iter().any(|(kind, count)| kind.disagrees() && *count > 0);
    Ok(disagrees || summary.malformed > 0 || summary.damaged > 0)
}

type Counts = Vec<(Kind, u64)>;

fn counts(book: &Book) -> Result<Counts, LedgerError> {
    Kind::ALL.into_iter().map(|kind| Ok((kind, book.count(kind)?))).collect()
}

/// Every finding of a kind, page by page.
fn each(book: &Book, kind: Kind, mut take: impl FnMut(&Listed) -> Result<(), LedgerError>) -> Result<(), LedgerError> {
    let mut after = 0;
    loop {
        let page = book.page(kind, after, PAGE)?;
        let Some(last) = page.last() else { return Ok(()) };
        after = last.n;
        page.iter().try_for_each(&mut take)?;
    }
}

/// Every malformed row, page by page.
fn each_malformed(book: &Book, mut take: impl FnMut(i64, &str) -> Result<(), LedgerError>) -> Result<(), LedgerError> {
    let mut after = 0;
    loop {
        let page = book.malformed(after, PAGE)?;
        let Some((last, ..)) = page.last() else { return Ok(()) };
        after = *last;
        page.iter().try_for_each(|(_, line, cause)| take(*line, cause))?;
    }
}

fn text(summary: &Summary, counts: &Counts, book: &Book, to: &mut impl Write) -> Result<(), LedgerError> {
    let mut rows: Vec<[String; 6]> = Vec::new();
    for (kind, _) in counts {
        rows.extend(book.page(*kind, 0, SHOWN_MAX)?.iter().map(row_of_table));
    }
    if !rows.is_empty() {
        table(["FINDING", "LINE", "KEY", "SCOPE", "HERE", "THERE"], &rows, to).map_err(LedgerError::Report)?;
    }
    malformed_text(summary, book, to)?;
    summary_text(summary, counts, to).map_err(LedgerError::Report)
}

fn row_of_table(found: &Listed) -> [String; 6] {
    let there = match (found.says, found.note.as_str()) {
        (Says::Nothing, "") => "-".to_owned(),
        (Says::Nothing, note) => note.to_owned(),
        (says, "") => says.name().to_owned(),
        (says, note) => format!("{}: {note}", says.name()),
    };
    [
        found.kind.name().to_owned(),
        found.line.map_or_else(|| "-".to_owned(), |line| line.to_string()),
        found.key.clone(),
        found.scope.clone().unwrap_or_else(|| "-".to_owned()),
        found.state.map_or("-", State::name).to_owned(),
        there,
    ]
}

fn table(head: [&str; 6], rows: &[[String; 6]], to: &mut impl Write) -> io::Result<()> {
    let rows: Vec<[Cow<'_, str>; 6]> = rows.iter().map(|row| row.each_ref().map(|cell| escaped(cell))).collect();
    let mut widths = head.map(str::len);
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count().min(WIDTH_MAX));
        }
    }
    for row in std::iter::once(&head.map(Cow::Borrowed)).chain(&rows) {
        let [w0, w1, w2, w3, w4, _] = widths;
        let [c0, c1, c2, c3, c4, c5] = row;
        writeln!(to, "{c0:<w0$}  {c1:>w1$}  {c2:<w2$}  {c3:<w3$}  {c4:<w4$}  {c5}")?;
    }
    writeln!(to)
}

fn malformed_text(summary: &Summary, book: &Book, to: &mut impl Write) -> Result<(), LedgerError> {
    for (_, line, cause) in book.malformed(0, SHOWN_MAX)? {
        writeln!(to, "line {line}: {}", escaped(&cause)).map_err(LedgerError::Report)?;
    }
    let more = summary.malformed.saturating_sub(SHOWN_MAX.into());
    if more > 0 {
        writeln!(to, "… and {more} more malformed rows; --output json lists all").map_err(LedgerError::Report)?;
    }
    if summary.malformed > 0 {
        writeln!(to).map_err(LedgerError::Report)?;
    }
    Ok(())
}

fn summary_text(summary: &Summary, counts: &Counts, to: &mut impl Write) -> io::Result<()> {
    let Summary { rows, without_key, malformed, records, damaged, agreeing, .. } = summary;
    let since = summary.window.since.map_or_else(|| "the beginning".to_owned(), timestamp::text);
    writeln!(to, "{}: {rows} rows, {without_key} without a key, {malformed} malformed", escaped(&summary.ledger))?;
    writeln!(to, "store: {records} records from {since} to {}", timestamp::text(summary.window.until))?;
    writeln!(to, "{agreeing:>10}  agree, or have nothing to say")?;
    for (kind, count) in counts.iter().filter(|(_, count)| *count > 0) {
        writeln!(to, "{count:>10}  {}: {}", kind.name(), kind.meaning())?;
    }
    if *damaged > 0 {
        writeln!(to, "{damaged:>10}  records here are damaged and were not compared")?;
    }
    if counts.iter().any(|(_, count)| *count > SHOWN_MAX.into()) {
        writeln!(to, "The table shows at most {SHOWN_MAX} of a kind; --output csv lists all.")?;
    }
    if !summary.unlisted.is_empty() {
        let all: Vec<String> =
            summary.unlisted.iter().map(|(status, count)| format!("{} ({count})", escaped(status))).collect();
        writeln!(to, "Statuses in no list, which say nothing: {}", all.join(", "))?;
    }
    Ok(())
}

fn json(summary: &Summary, counts: &Counts, book: &Book, to: &mut impl Write) -> Result<(), LedgerError> {
    let counts: serde_json::Map<String, Value> =
        counts.iter().map(|(kind, count)| (kind.name().to_owned(), json!(count))).collect();
    let Summary { ledger, rows, without_key, malformed, unlisted, records, damaged, agreeing, window } = summary;
    let head = json!({
        "ledger": ledger, "since": window.since.map(timestamp::text), "until": timestamp::text(window.until),
        "rows": rows, "without_key": without_key, "malformed": malformed, "unlisted_statuses": unlisted,
        "records": records, "damaged": damaged, "agreeing": agreeing, "counts": counts,
    });
    let head = head.to_string();
    let open = head.strip_suffix('}').unwrap_or(&head);
    write!(to, "{},\n\"malformed_rows\":[", escaped(open)).map_err(LedgerError::Report)?;
    let mut comma = "\n";
    each_malformed(book, |line, cause| {
        let row = json!({ "line": line, "cause": cause });
        write!(to, "{comma}{}", escaped(&row.to_string())).map_err(LedgerError::Report)?;
        comma = ",\n";
        Ok(())
    })?;
    write!(to, "],\n\"findings\":[").map_err(LedgerError::Report)?;
    comma = "\n";
    for kind in Kind::ALL {
        each(book, kind, |found| {
            write!(to, "{comma}{}", escaped(&finding_json(found).to_string())).map_err(LedgerError::Report)?;
            comma = ",\n";
            Ok(())
        })?;
    }
    writeln!(to, "]}}").map_err(LedgerError::Report)
}

fn finding_json(found: &Listed) -> Value {
    let says = (found.says != Says::Nothing).then(|| found.says.name());
    json!({
        "finding": found.kind.name(), "line": found.line, "key": found.key, "scope": found.scope,
        "state": found.state.map(State::name), "says": says, "note": found.note,
    })
}

fn csv(book: &Book, to: &mut impl Write) -> Result<(), LedgerError> {
    let failed = |error: csv::Error| LedgerError::Report(error.into());
    let mut out = csv::Writer::from_writer(to);
    out.write_record(["finding", "line", "key", "scope", "state", "says", "note"]).map_err(failed)?;
    for kind in Kind::ALL {
        each(book, kind, |found| {
            let line = found.line.map_or_else(String::new, |line| line.to_string());
            let state = found.state.map_or("", State::name);
            let scope = found.scope.as_deref().unwrap_or_default();
            let (key, scope, says) = (harmless(&found.key), harmless(scope), found.says.name());
            out.write_record([kind.name(), &line, &key, &scope, state, says, &found.note]).map_err(failed)
        })?;
    }
    each_malformed(book, |line, cause| {
        out.write_record(["malformed", &line.to_string(), "", "", "", "", &harmless(cause)]).map_err(failed)
    })?;
    out.flush().map_err(LedgerError::Report)
}

/// A cell that a spreadsheet does not take for a formula.
pub(super) fn harmless(cell: &str) -> Cow<'_, str> {
    let safe = escaped(cell);
    let computes = cell.trim_start().starts_with(['=', '+', '-', '@']) || cell.starts_with(['\t', '\r', '\n']);
    if computes { Cow::Owned(format!("'{safe}")) } else { safe }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_begins_like_a_formula_computes_nothing() {
        for cell in ["=1+1", "+1", "-1", "@SUM(A1)", " =1"] {
            assert_eq!(harmless(cell), format!("'{cell}"));
        }
        assert_eq!(harmless("\t=1"), r"'\u0009=1");
        assert_eq!(harmless("\rx"), r"'\u000dx");
        for cell in ["", "k-1", "a=b", "'=1"] {
            assert_eq!(harmless(cell), cell);
        }
    }
}
