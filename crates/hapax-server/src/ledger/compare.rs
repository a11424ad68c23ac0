//! Both sides put into the book, and every record judged.

use std::borrow::Cow;

use hapax::remembered::SPACE;
use hapax_core::clock::Timestamp;
use hapax_core::limits::PAGE_ENTRIES_MAX;
use hapax_core::record::Stored;
use hapax_core::store::{Entry, Scan, Store};

use super::LedgerError;
use super::args::{By, Format, LedgerArgs, Plan};
use super::book::{Book, OurRow};
use super::judge::{Absence, Ours, judge, unless_bound};
use super::progress::Progress;
use super::read_csv::CsvLedger;
use super::read_ndjson::NdjsonLedger;
use super::rows::{Line, Reading, Row};

/// What is compared: from when to when, and what time it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) since: Option<Timestamp>,
    pub(super) until: Timestamp,
    pub(super) now: Timestamp,
    pub(super) settle_ms: u64,
}

impl Window {
    /// # Errors
    /// If it is empty, or a complete ledger of the future is claimed.
    pub(super) fn new(plan: &Plan, now: Timestamp, absence_counts: bool) -> Result<Self, LedgerError> {
        let since = plan.since.map(|since| since.at(now));
        let until = plan.until.map_or(now, |until| until.at(now));
        if since.is_some_and(|since| since >= until) {
            return Err(LedgerError::Usage("the window is empty; give a --since that is before --until".to_owned()));
        }
        if absence_counts && until > now {
            let why = "a ledger cannot be complete up to a time that has not come; give an --until that has passed";
            return Err(LedgerError::Usage(why.to_owned()));
        }
        Ok(Self { since, until, now, settle_ms: plan.settle_ms })
    }

    fn holds(&self, at: Timestamp) -> bool {
        self.since.is_none_or(|since| since <= at) && at <= self.until
    }

    /// From the first sign of the key to the last moment at which its attempt could have had an effect.
    fn covers(&self, stored: &Stored) -> bool {
        if is_restored(stored) {
            return false;
        }
        let begins = self.since.is_some_and(|since| since <= stored.created_at());
        begins && self.settles_at(stored) <= self.until
    }

    /// From when on the last attempt can do nothing any more. Probes write the record, so the last write may be later.
    fn settles_at(&self, stored: &Stored) -> Timestamp {
        stored.doubted_since().unwrap_or(stored.stamped_at).plus_ms(self.settle_ms)
    }

    /// From when on a row can say of the last attempt that it did not happen. An earlier one may be about another attempt.
    fn denied_from(&self, stored: &Stored) -> Timestamp {
        if is_first(stored) { stored.created_at() } else { self.settles_at(stored) }
    }

    fn ours(&self, stored: &Stored) -> Ours {
        Ours {
            state: stored.record.state,
            status: stored.record.outcome.as_ref().map(|outcome| outcome.status),
            inside: self.holds(stored.created_at()),
            covered: self.covers(stored),
            settled: self.settles_at(stored) <= self.now.min(self.until),
            denied_from: self.denied_from(stored),
            first: is_first(stored),
            twin: false,
            named: true,
            nearly: false,
        }
    }
}

/// Claimed in what a restore lost: when, and how often, nobody knows.
fn is_restored(stored: &Stored) -> bool {
    stored.record.error.as_deref() == Some("restored")
}

/// Whether no attempt came before the last one, so that whatever a row says is about it.
fn is_first(stored: &Stored) -> bool {
    stored.record.attempt <= 1 && !is_restored(stored)
}

/// A ledger of either form.
enum Ledger {
    Csv(Box<CsvLedger>),
    Ndjson(NdjsonLedger),
}

impl Ledger {
    fn open(args: &LedgerArgs, plan: &Plan) -> Result<Self, LedgerError> {
        match plan.format {
            Format::Csv => CsvLedger::open(&args.ledger, &plan.columns).map(|csv| Self::Csv(Box::new(csv))),
            Format::Ndjson => NdjsonLedger::open(&args.ledger, &plan.columns).map(Self::Ndjson),
        }
    }

    fn next_line(&mut self) -> Result<Option<Line>, LedgerError> {
        match self {
            Self::Csv(ledger) => ledger.next_line(),
            Self::Ndjson(ledger) => ledger.next_line(),
        }
    }

    fn position(&self) -> u64 {
        match self {
            Self::Csv(ledger) => ledger.position(),
            Self::Ndjson(ledger) => ledger.position(),
        }
    }
}

/// Puts the ledger into the book.
pub(super) fn read_ledger<'a>(
    args: &'a LedgerArgs,
    plan: &'a Plan,
    window: &Window,
    book: &Book,
) -> Result<Reading<'a>, LedgerError> {
    let mut ledger = Ledger::open(args, plan)?;
    let mut reading = Reading::new(args, plan);
    let progress = Progress::of_file(&args.ledger);
    let inside = |row: &Row| row.at.is_none_or(|at| window.holds(at));
    while let Some(line) = ledger.next_line()? {
        let number = line.number;
        match reading.understand(line) {
            Ok(Some(row)) => book.put_row(&row, inside(&row))?,
            Ok(None) => {}
            Err(cause) => book.put_malformed(number, &cause)?,
        }
        progress.reach(ledger.position());
    }
    if reading.rows > 0 && reading.without_key == reading.rows {
        let column = crate::logs::escaped(&plan.columns.value);
        return Err(LedgerError::Form(format!("has no row with a value in `{column}`; name another column")));
    }
    Ok(reading)
}

/// What the store brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Brought {
    /// Records of the window.
    pub(super) inside: u64,
    /// Records whose bytes are not what was written.
    pub(super) damaged: u64,
}

/// Puts the store's records into the book, page by page.
pub(super) async fn read_store(
    store: &impl Store,
    plan: &Plan,
    window: &Window,
    book: &Book,
) -> Result<Brought, LedgerError> {
    let progress = Progress::of_records();
    let mut brought = Brought::default();
    let mut query = Scan { limit: PAGE_ENTRIES_MAX, ..Scan::default() };
    loop {
        let page = store.scan(&query).await?;
        brought.damaged += page.damaged.len() as u64;
        let is_meant = |entry: &&Entry| is_a_callers(entry) && is_of(entry, plan.scope.as_deref());
        for entry in page.entries.iter().filter(is_meant) {
            let ours = window.ours(&entry.stored);
            brought.inside += u64::from(ours.inside);
            let (address, attempt) = (&entry.address, entry.stored.record.attempt);
            let (value, by_scope) = (value_of(entry, &plan.by), plan.columns.scope.is_some());
            book.put_record(&OurRow { address, value: value.as_deref(), by_scope, attempt, ours })?;
        }
        progress.advance(page.entries.len() as u64);
        match page.next {
            Some(next) => query.after = Some(next),
            None => return Ok(brought),
        }
    }
}

/// Records of hapax's own, such as how addresses are made: no provider knows them.
fn is_a_callers(entry: &Entry) -> bool {
    entry.address.space().as_str() != SPACE
}

/// Whether the rows can be about it, where all of them are of one scope.
fn is_of(entry: &Entry, scope: Option<&str>) -> bool {
    scope.is_none_or(|scope| entry.address.scope().as_str() == scope)
}

fn value_of<'a>(entry: &'a Entry, by: &By) -> Option<Cow<'a, str>> {
    match by {
        By::Id => Some(Cow::Owned(entry.address.id().to_string())),
        By::Key => Some(Cow::Borrowed(entry.address.key().as_str())),
        By::Label(name) => {
            let label = entry.stored.record.labels.iter().find(|label| label.name == *name);
            label.map(|label| Cow::Borrowed(label.value.as_str()))
        }
    }
}

/// Judges everything in the book. Returns how many records agree.
pub(super) fn compare(book: &Book, args: &LedgerArgs, plan: &Plan, unread: u64) -> Result<u64, LedgerError> {
    book.sort()?;
    let absence = match (args.absent_means_did_not_happen, unread) {
        (false, _) => Absence::SaysNothing,
        (true, 0) => Absence::DidNotHappen,
        (true, _) => Absence::HasMalformedRows,
    };
    let agreeing = book.judge(|ours, said| judge(ours, said, absence).map(|found| unless_bound(found, plan.bound)))?;
    book.find_in_theirs()?;
    Ok(agreeing)
}
