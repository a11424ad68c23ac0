//! A ledger in NDJSON: one object per line. A column is a member's name, or a JSON pointer (`/data/id`) to a nested one.
//!
//! Left to others: what the cells mean.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use serde_json::Value;

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
        let object: Value = serde_json::from_slice(text).map_err(|error| format!("the line is not JSON: {error}"))?;
        if !object.is_object() {
            return Err("the line is JSON, but not an object; put one object on a line".to_owned());
        }
        let Columns { value, scope, status, time, body } = &self.columns;
        let cell = |column: &String| cell(&object, column);
        Ok(Cells {
            value: cell(value)?.unwrap_or_default(),
            scope: scope.as_ref().map(|column| cell(column).map(Option::unwrap_or_default)).transpose()?,
            status: status.as_ref().map(|column| cell(column).map(Option::unwrap_or_default)).transpose()?,
            time: time.as_ref().map(|column| cell(column).map(Option::unwrap_or_default)).transpose()?,
            body: body.as_ref().and_then(|column| find(&object, column)).map(body_of),
        })
    }
}

fn find<'a>(object: &'a Value, column: &str) -> Option<&'a Value> {
    if column.starts_with('/') { object.pointer(column) } else { object.get(column) }
}

/// A text, number or truth value as text; nothing where there is none.
fn cell(object: &Value, column: &str) -> Result<Option<String>, String> {
    match find(object, column) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(value @ (Value::Number(_) | Value::Bool(_))) => Ok(Some(value.to_string())),
        Some(Value::Array(_) | Value::Object(_)) => {
            Err(format!("`{}` is a list or an object; name one value in it", crate::logs::escaped(column)))
        }
    }
}

/// A text as it is, anything else as JSON.
fn body_of(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
