//! A ledger in NDJSON: one object per line. A column is a member's name, or a JSON pointer (`/data/id`) to a nested one.
//!
//! Left to others: what the cells mean.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use hapax_core::canonical_json::{Pointer, RawValue, raw_values};

use super::LedgerError;
use super::args::Columns;
use super::rows::{Cells, Line, ROW_BYTES_MAX};

/// The rows of a file.
pub(super) struct NdjsonLedger {
    lines: BufReader<File>,
    path: PathBuf,
    columns: Columns,
    number: u64,
    position: u64,
}

impl NdjsonLedger {
    pub(super) fn open(path: &Path, columns: &Columns) -> Result<Self, LedgerError> {
        let file = File::open(path).map_err(|source| LedgerError::File { path: path.to_owned(), source })?;
        Ok(Self {
            lines: BufReader::new(file),
            path: path.to_owned(),
            columns: columns.clone(),
            number: 0,
            position: 0,
        })
    }

    /// Bytes read so far.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// The next row. Empty lines are none.
    pub(super) fn next_line(&mut self) -> Result<Option<Line>, LedgerError> {
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            let failed = |source| LedgerError::File { path: self.path.clone(), source };
            let most = ROW_BYTES_MAX as u64 + 1;
            let read = self.lines.by_ref().take(most).read_until(b'\n', &mut bytes).map_err(failed)?;
            if read == 0 {
                return Ok(None);
            }
            self.number += 1;
            self.position += read as u64;
            let number = self.number;
            if bytes.len() > ROW_BYTES_MAX && !bytes.ends_with(b"\n") {
                self.position += self.lines.skip_until(b'\n').map_err(failed)? as u64;
                let cells = Err(format!("the line is longer than {ROW_BYTES_MAX} bytes; put one object on a line"));
                return Ok(Some(Line { number, cells }));
            }
            let text = bytes.trim_ascii();
            let text = if number == 1 { text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text) } else { text };
            if !text.is_empty() {
                return Ok(Some(Line { number, cells: self.cells(text) }));
            }
        }
    }

    fn cells(&self, text: &[u8]) -> Result<Cells, String> {
        let Columns { value, scope, status, time, body } = &self.columns;
        let named = [Some(value), scope.as_ref(), status.as_ref(), time.as_ref(), body.as_ref()];
        let mut pointers = vec![Pointer::default()];
        for column in named.into_iter().flatten() {
            pointers.push(pointer(column)?);
        }
        let mut found =
            raw_values(text, &pointers).map_err(|error| format!("the line is not JSON: {error}"))?.into_iter();
        if !matches!(found.next(), Some(Some(RawValue::Container(line))) if line.starts_with('{')) {
            return Err("the line is JSON, but not an object; put one object on a line".to_owned());
        }
        let mut next = |column: Option<&String>| column.and_then(|_| found.next()).flatten();
        let [value_found, scope_found, status_found, time_found, body_found] = named.map(&mut next);
        let optional = |column: &Option<String>, found| column.as_ref().map(|column| cell(column, found)).transpose();
        Ok(Cells {
            value: name(value, value_found)?,
            scope: scope.as_ref().map(|column| name(column, scope_found)).transpose()?,
            status: optional(status, status_found)?,
            time: optional(time, time_found)?,
            body: body_found.map(body_of),
        })
    }
}

fn pointer(column: &str) -> Result<Pointer, String> {
    if !column.starts_with('/') {
        return Ok(Pointer::to_member(column));
    }
    Pointer::new(column).map_err(|error| format!("`{}` is no column: {error}", crate::logs::escaped(column)))
}

/// What a row is about: a text, or an integer in its own digits. Other numbers may be known under another spelling.
fn name(column: &str, found: Option<RawValue<'_>>) -> Result<String, String> {
    match &found {
        Some(RawValue::Number(number)) if found.as_ref().is_some_and(|found| found.identifier().is_none()) => {
            let column = crate::logs::escaped(column);
            Err(format!("`{column}` is {number}, a number that is not an integer; export it as text"))
        }
        _ => cell(column, found),
    }
}

/// A text, a number in its own digits, or a truth value; nothing where there is none.
fn cell(column: &str, found: Option<RawValue<'_>>) -> Result<String, String> {
    match found {
        None | Some(RawValue::Null) => Ok(String::new()),
        Some(RawValue::Container(_)) => {
            Err(format!("`{}` is a list or an object; name one value in it", crate::logs::escaped(column)))
        }
        Some(value) => Ok(value.into_text().into_owned()),
    }
}

/// A text as it is, anything else as it stands there.
fn body_of(value: RawValue<'_>) -> String {
    match value {
        RawValue::Null => String::new(),
        value => value.into_text().into_owned(),
    }
}
