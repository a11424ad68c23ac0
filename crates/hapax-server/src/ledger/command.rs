//! `hapax reconcile --ledger`: all of it in order.

use std::io::{self, BufWriter, Write};

use hapax::tokens;
use hapax_core::engine::Engine;
use hapax_core::store::{Scan, Store as _};

use super::args::LedgerArgs;
use super::book::Book;
use super::compare::{self, Window};
use super::report::{self, Summary};
use super::{LedgerError, apply};
use crate::flags::who;
use crate::store_files::open;

/// Both agree.
pub const EXIT_AGREES: u8 = 0;
/// Something disagrees, is undecided, or could not be read.
pub const EXIT_DISAGREES: u8 = 1;

/// Compares, resolves where asked to, and reports. Returns the exit code.
///
/// # Errors
/// If flags do not fit together, or ledger, store or report fail.
pub async fn run(
    args: &LedgerArgs,
    environment: Vec<(String, String)>,
    to: &mut impl Write,
) -> Result<u8, LedgerError> {
    let plan = args.plan()?;
    let who = who(&args.actor, &environment);
    let store = open::existing(&args.store, environment).await?;
    let now = store.scan(&Scan { limit: 1, ..Scan::default() }).await?.now;
    let window = Window::new(&plan, now.at, args.absent_means_did_not_happen)?;
    let book = Book::open()?;
    let reading = compare::read_ledger(args, &plan, &window, &book)?;
    let brought = compare::read_store(&store, &plan, &window, &book).await?;
    // A row without a key may be about any record.
    let unread = reading.malformed + reading.without_key;
    let agreeing = compare::compare(&book, args, &plan, unread)?;
    if args.apply {
        apply::apply(&Engine::new(store, tokens::random), args, &who, &book).await?;
    }
    let summary = Summary {
        ledger: args.ledger.display().to_string(),
        window,
        rows: reading.rows,
        without_key: reading.without_key,
        malformed: reading.malformed,
        unlisted: reading.unlisted,
        records: brought.inside,
        damaged: brought.damaged,
        agreeing,
    };
    let written = report::write(args.output, &summary, &book, &mut BufWriter::new(Patient(to)));
    let disagrees = written.map_err(|error| match error {
        LedgerError::Report(error) if args.apply => LedgerError::ReportAfter(error),
        other => other,
    })?;
    Ok(if disagrees { EXIT_DISAGREES } else { EXIT_AGREES })
}

/// A reader that has gone away, as `head` does, is no failure.
struct Patient<'a, W>(&'a mut W);

impl<W: Write> Write for Patient<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0.write(bytes) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(bytes.len()),
            written => written,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.0.flush() {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            flushed => flushed,
        }
    }
}
