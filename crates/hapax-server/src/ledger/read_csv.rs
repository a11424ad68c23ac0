//! A ledger in CSV: a row of column names, then one row per entry.
//!
//! A quotation mark that nobody closes would swallow the rows after it. Such a row is reported, and reading goes on with
//! the line after its first one. Left to others: what the cells mean.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use csv::{ByteRecord, Position, Reader, ReaderBuilder, Terminator};

use super::LedgerError;
use super::args::Columns;
use super::rows::{Cells, Line, ROW_BYTES_MAX};
use crate::logs::escaped;

/// How often reading may go back after a row that swallowed others. A file with more of them is no CSV.
const RETURNS_MAX: u32 = 100;

/// Bytes read ahead of the row in hand.
const AHEAD_BYTES: usize = 64 * 1024;

/// The rows of a file.
pub(super) struct CsvLedger {
    reader: Reader<Allowed<File>>,
    /// The same file, to look at raw bytes.
    raw: BufReader<File>,
    path: PathBuf,
    allowance: Arc<AtomicUsize>,
    length: u64,
    ends_in_line_feed: bool,
    names: usize,
    places: Places,
    returns: u32,
}

/// Where the columns are.
struct Places {
    value: usize,
    scope: Option<usize>,
    status: Option<usize>,
    time: Option<usize>,
    body: Option<usize>,
}

impl CsvLedger {
    pub(super) fn open(path: &Path, columns: &Columns) -> Result<Self, LedgerError> {
        let failed = |source| LedgerError::File { path: path.to_owned(), source };
        let allowance = Arc::new(AtomicUsize::new(ROW_BYTES_MAX));
        let file = Allowed { inner: File::open(path).map_err(failed)?, left: Arc::clone(&allowance) };
        let mut raw = BufReader::new(File::open(path).map_err(failed)?);
        let (length, ends_in_line_feed) = end_of(&mut raw).map_err(failed)?;
        // Only a line feed ends a row, so that lines are counted as an editor does.
        let mut builder = ReaderBuilder::new();
        builder.flexible(true).terminator(Terminator::Any(b'\n')).buffer_capacity(AHEAD_BYTES);
        let mut reader = builder.from_reader(file);
        let names = match reader.byte_headers() {
            Ok(names) => names.clone(),
            Err(error) if is_too_long(&error) => {
                return Err(LedgerError::Form("has no row of column names at its beginning; is it CSV?".to_owned()));
            }
            Err(error) => return Err(failed(error.into())),
        };
        let names: Vec<String> = names.iter().map(|name| String::from_utf8_lossy(name).trim().to_owned()).collect();
        let (places, names) = (Places::find(&names, columns)?, names.len());
        let path = path.to_owned();
        Ok(Self { reader, raw, path, allowance, length, ends_in_line_feed, names, places, returns: 0 })
    }

    /// Bytes read so far.
    pub(super) fn position(&self) -> u64 {
        self.reader.position().byte()
    }

    /// The next row. Empty lines are none.
    pub(super) fn next_line(&mut self) -> Result<Option<Line>, LedgerError> {
        let mut record = ByteRecord::new();
        loop {
            self.allowance.store(ROW_BYTES_MAX, Ordering::Relaxed);
            let start = self.reader.position().clone();
            match self.reader.read_byte_record(&mut record) {
                Ok(false) => return Ok(None),
                Ok(true) if is_empty(&record) => {}
                Ok(true) => return self.line(&record, &start).map(Some),
                Err(error) if is_too_long(&error) => {
                    self.return_to(&start, 1)?;
                    let why =
                        format!("the row is longer than {ROW_BYTES_MAX} bytes; a quotation mark may not be closed");
                    return Ok(Some(Line { number: start.line(), cells: Err(why) }));
                }
                Err(error) => return Err(self.failed(error.into())),
            }
        }
    }

    fn line(&mut self, record: &ByteRecord, start: &Position) -> Result<Line, LedgerError> {
        let line_feeds = record.as_slice().iter().filter(|byte| **byte == b'\n').count() as u64;
        let open = line_feeds > 0 && self.ends_open(start)?;
        // The last line feed of the file is a part of a row that is left open.
        let unended = self.reader.position().byte() >= self.length && (open || !self.ends_in_line_feed);
        // The reader counts from before the empty lines that it passed over.
        let number = self.reader.position().line() - line_feeds - u64::from(!unended);
        let cells = if open {
            Err("a quotation mark is not closed; close it or double it".to_owned())
        } else {
            self.cells(record)
        };
        if cells.is_err() && line_feeds > 0 {
            self.return_to(start, number.saturating_sub(start.line()) + 1)?;
        }
        Ok(Line { number, cells })
    }

    fn cells(&self, record: &ByteRecord) -> Result<Cells, String> {
        let (found, wanted) = (record.len(), self.names);
        if found != wanted {
            let some = if found < wanted { "fewer" } else { "more" };
            return Err(format!("the row has {some} cells ({found}) than there are column names ({wanted})"));
        }
        let cell = |at: usize| {
            let bytes = record.get(at).unwrap_or_default();
            // What is left of a Windows line end.
            let bytes = if at + 1 == wanted { bytes.strip_suffix(b"\r").unwrap_or(bytes) } else { bytes };
            String::from_utf8(bytes.to_vec()).map_err(|_| format!("cell {} is not UTF-8; export it as UTF-8", at + 1))
        };
        let Places { value, scope, status, time, body } = self.places;
        let cells = Cells {
            value: cell(value)?,
            scope: scope.map(cell).transpose()?,
            status: status.map(cell).transpose()?,
            time: time.map(cell).transpose()?,
            body: body.map(cell).transpose()?,
        };
        let short = [Some(&cells.value), cells.scope.as_ref(), cells.status.as_ref(), cells.time.as_ref()];
        if short.into_iter().flatten().any(|cell| cell.contains('\n')) {
            return Err("a cell has a line break; a quotation mark may not be closed".to_owned());
        }
        Ok(cells)
    }

    /// Whether a row of several lines is one only because a quotation mark is not closed: their number is odd then.
    fn ends_open(&mut self, start: &Position) -> Result<bool, LedgerError> {
        let length = self.reader.position().byte().saturating_sub(start.byte());
        let mut bytes = Vec::new();
        let sought = self.raw.seek(SeekFrom::Start(start.byte()));
        let read = sought.and_then(|_| self.raw.by_ref().take(length).read_to_end(&mut bytes));
        read.map_err(|error| self.failed(error))?;
        Ok(bytes.iter().filter(|byte| **byte == b'"').count() % 2 == 1)
    }

    /// Goes on that many lines after the start of a row that swallowed others.
    fn return_to(&mut self, start: &Position, lines: u64) -> Result<(), LedgerError> {
        self.returns += 1;
        if self.returns > RETURNS_MAX {
            let why =
                format!("has more than {RETURNS_MAX} rows with quotation marks left open; export it again as CSV");
            return Err(LedgerError::Form(why));
        }
        let sought = self.raw.seek(SeekFrom::Start(start.byte()));
        let skipped = sought.and_then(|_| (0..lines).try_fold(0, |sum, _| Ok(sum + skip_line(&mut self.raw)?)));
        let skipped = skipped.map_err(|error| self.failed(error))?;
        let mut next = start.clone();
        next.set_byte(start.byte() + skipped).set_line(start.line() + lines);
        self.reader.seek(next).map_err(|error| self.failed(error.into()))
    }

    fn failed(&self, source: io::Error) -> LedgerError {
        LedgerError::File { path: self.path.clone(), source }
    }
}

/// The length of the file, and whether its last byte is a line feed.
fn end_of(file: &mut BufReader<File>) -> io::Result<(u64, bool)> {
    let length = file.seek(SeekFrom::End(0))?;
    let mut last = [0];
    if length > 0 {
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
    }
    Ok((length, last == *b"\n"))
}

/// A line with nothing on it, or with the rest of a Windows line end.
fn is_empty(record: &ByteRecord) -> bool {
    record.len() == 1 && record.as_slice().trim_ascii().is_empty()
}

/// Bytes up to and with the next line feed.
fn skip_line(from: &mut BufReader<File>) -> io::Result<u64> {
    let mut skipped = 0;
    loop {
        let buffer = from.fill_buf()?;
        if buffer.is_empty() {
            return Ok(skipped);
        }
        let (bytes, ended) = match buffer.iter().position(|byte| *byte == b'\n') {
            Some(at) => (at + 1, true),
            None => (buffer.len(), false),
        };
        from.consume(bytes);
        skipped += bytes as u64;
        if ended {
            return Ok(skipped);
        }
    }
}

impl Places {
    fn find(names: &[String], columns: &Columns) -> Result<Self, LedgerError> {
        let place = |name: &String| match names.iter().position(|known| known == name) {
            Some(at) if names[at + 1..].contains(name) => {
                Err(LedgerError::Form(format!("has two columns `{}`; rename one of them", escaped(name))))
            }
            Some(at) => Ok(at),
            None => {
                let known: Vec<_> = names.iter().take(30).map(|name| escaped(name)).collect();
                let known = known.join(", ");
                Err(LedgerError::Form(format!("has no column `{}`; it has: {known}", escaped(name))))
            }
        };
        Ok(Self {
            value: place(&columns.value)?,
            scope: columns.scope.as_ref().map(place).transpose()?,
            status: columns.status.as_ref().map(place).transpose()?,
            time: columns.time.as_ref().map(place).transpose()?,
            body: columns.body.as_ref().map(place).transpose()?,
        })
    }
}

/// A file of which only so many bytes may be read for one row.
struct Allowed<R> {
    inner: R,
    left: Arc<AtomicUsize>,
}

/// Said by a reader whose allowance is used up.
#[derive(Debug, thiserror::Error)]
#[error("the row is too long")]
struct TooLong;

fn is_too_long(error: &csv::Error) -> bool {
    let csv::ErrorKind::Io(error) = error.kind() else { return false };
    error.get_ref().and_then(|source| source.downcast_ref::<TooLong>()).is_some()
}

impl<R: Read> Read for Allowed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.left.load(Ordering::Relaxed);
        if left == 0 {
            return Err(io::Error::other(TooLong));
        }
        let most = buffer.len().min(left);
        let read = self.inner.read(&mut buffer[..most])?;
        self.left.store(left - read, Ordering::Relaxed);
        Ok(read)
    }
}

impl<R: Seek> Seek for Allowed<R> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.inner.seek(to)
    }
}
