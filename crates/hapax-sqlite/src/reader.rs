//! The threads that read: `get` and `scan`, on connections of their own, beside the writer.
//!
//! In WAL mode a reader sees only what was committed, and a commit is visible only after it is durable.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use hapax_core::address::{Address, Id};
use hapax_core::clock::Now;
use hapax_core::codec::{self, OwnedRow};
use hapax_core::journal::{NoteScan, Noted};
use hapax_core::large::take_back_freed;
use hapax_core::limits::{PAGE_BYTES_MAX, PAGE_ENTRIES_MAX, PAGE_ROWS_EXAMINED_MAX};
use hapax_core::record::State;
use hapax_core::store::{Cursor, Entry, ErrorKind, Page, Scan, StoreError};
use rusqlite::{Connection, params};
use tokio::sync::{mpsc, oneshot};

use crate::lookup::Measured;
use crate::rows::{self, COLUMNS, Decoded, FoundRow};
use crate::writer::SharedTime;
use crate::{failure, lookup, notes};

pub(crate) enum Question {
    Get { id: Id, reply: oneshot::Sender<Result<(FoundRow, Now), StoreError>> },
    Large { at: Address, reply: oneshot::Sender<Result<(Decoded, Now), StoreError>> },
    Scan { query: Scan, reply: oneshot::Sender<Result<Page, StoreError>> },
    Notes { query: NoteScan, reply: oneshot::Sender<Result<Vec<Noted>, StoreError>> },
    NotesBetween { first: Id, last: Id, query: NoteScan, reply: oneshot::Sender<Result<Vec<Noted>, StoreError>> },
    Between { first: Id, last: Id, limit: u32, reply: oneshot::Sender<Result<Page, StoreError>> },
    Count { reply: oneshot::Sender<Result<u64, StoreError>> },
    CountUpTo { most: u64, reply: oneshot::Sender<Result<u64, StoreError>> },
    Measure { path: PathBuf, reply: oneshot::Sender<Result<Measured, StoreError>> },
}

pub(crate) struct Reader {
    pub(crate) connection: Connection,
    pub(crate) time: Arc<SharedTime>,
    pub(crate) questions: Arc<Mutex<mpsc::Receiver<Question>>>,
}

impl Reader {
    /// Works until every handle to the store is gone.
    pub(crate) fn run(self) {
        while let Some(question) = self.next_question() {
            match question {
                Question::Get { id, reply } => {
                    // The row first, then the time: a lease that has lapsed by a later clock has lapsed.
                    let row = rows::find(&self.connection, &id).map_err(|error| failure::of_statement("get", error));
                    let _ = reply.send(row.map(|row| (row, self.time.now())));
                }
                Question::Large { at, reply } => {
                    take_back_freed();
                    let found = rows::find_whole_at(&self.connection, &at);
                    let found = found.map_err(|error| failure::of_statement("get", error));
                    let _ = reply.send(found.map(|found| (found, self.time.now())));
                }
                Question::Scan { query, reply } => {
                    let _ = reply.send(scan(&self.connection, &query, self.time.now()));
                }
                Question::Notes { query, reply } => {
                    let found = notes::find(&self.connection, &query);
                    let _ = reply.send(found.map_err(|error| failure::of_statement("notes", error)));
                }
                Question::NotesBetween { first, last, query, reply } => {
                    let found = notes::find_between(&self.connection, &first, &last, &query);
                    let _ = reply.send(found.map_err(|error| failure::of_statement("notes", error)));
                }
                Question::Between { first, last, limit, reply } => {
                    let _ = reply.send(lookup::between(&self.connection, &first, &last, limit, self.time.now()));
                }
                Question::Count { reply } => {
                    let counted = lookup::about_count(&self.connection);
                    let _ = reply.send(counted.map_err(|error| failure::of_statement("count", error)));
                }
                Question::CountUpTo { most, reply } => {
                    let counted = lookup::count_up_to(&self.connection, most);
                    let _ = reply.send(counted.map_err(|error| failure::of_statement("count", error)));
                }
                Question::Measure { path, reply } => {
                    let _ = reply.send(lookup::measure(&self.connection, &path));
                }
            }
        }
    }

    fn next_question(&self) -> Option<Question> {
        self.questions.lock().unwrap_or_else(PoisonError::into_inner).blocking_recv()
    }
}

/// A place in a scan: (due time or 0, seq). By due time the due index is walked, else the records in order.
type Place = (i64, i64);

pub(crate) fn scan(connection: &Connection, query: &Scan, now: Now) -> Result<Page, StoreError> {
    let failed = |error| failure::of_statement("scan", error);
    let by_due = walks_due_index(query);
    let after = query.after.as_ref().map_or(Ok((i64::MIN, i64::MIN)), |cursor| read_cursor(cursor, by_due))?;
    let mut statement = connection.prepare_cached(&select(query, by_due)).map_err(failed)?;
    let due_max = query.due.map_or(i64::MAX, |due| codec::column(Some(due.by(now))).unwrap_or(i64::MAX));
    let mut rows =
        if by_due { statement.query(params![after.0, after.1, due_max]) } else { statement.query(params![after.1]) }
            .map_err(failed)?;
    let mut page = Page { entries: Vec::new(), damaged: Vec::new(), next: None, now };
    let (mut examined, mut bytes) = (0, 0);
    while let Some(row) = rows.next().map_err(failed)? {
        let place: Place = (row.get(0).map_err(failed)?, row.get(1).map_err(failed)?);
        examined += 1;
        if may_match(row, query) {
            let raw = rows::read(row, 2);
            bytes += raw.data.len();
            take(&mut page, query, &raw);
        }
        let entries_max = query.limit.clamp(1, PAGE_ENTRIES_MAX) as usize;
        let full = page.entries.len() + page.damaged.len() >= entries_max || bytes >= PAGE_BYTES_MAX;
        if full || examined >= PAGE_ROWS_EXAMINED_MAX {
            page.next = Some(write_cursor(place, by_due));
            break;
        }
    }
    Ok(page)
}

/// Every unfinished record is in the due index, and little else.
fn walks_due_index(query: &Scan) -> bool {
    let unfinished = !query.states.is_empty() && query.states.iter().all(|state: &State| state.is_unfinished());
    query.due.is_some() || unfinished
}

/// By due time each state is a range of the index, already in order; SQLite merges them as they are read. States that no
/// release writes are looked for as well: somebody must see such a record.
fn select(query: &Scan, by_due: bool) -> String {
    if !by_due {
        return format!("SELECT 0, seq, {COLUMNS} FROM hapax_record WHERE seq > ?1 ORDER BY seq");
    }
    let wanted = |state: &State| query.states.is_empty() || query.states.contains(state);
    let known = State::ALL.into_iter().filter(wanted).map(|state| format!("state = {}", state.number()));
    let foreign = ["state < 1", "state > 6"].map(str::to_owned);
    let ranges = known.chain(foreign).map(|range| {
        format!(
            "SELECT coalesce(due_at, -1), seq, {COLUMNS} FROM hapax_record INDEXED BY hapax_due
             WHERE (due_at IS NOT NULL OR state < 5) AND {range} AND coalesce(due_at, -1) BETWEEN ?1 AND ?3
               AND (coalesce(due_at, -1) > ?1 OR seq > ?2)"
        )
    });
    ranges.collect::<Vec<_>>().join(" UNION ALL ") + " ORDER BY 1, 2"
}

/// A first look at the small columns, so that the body of a row that cannot match is not read.
fn may_match(row: &rusqlite::Row<'_>, query: &Scan) -> bool {
    let text = |at: usize| row.get_ref(at).ok().and_then(|value| value.as_str().ok()).unwrap_or_default();
    let state = row.get::<_, u8>(8).ok().and_then(State::from_number);
    let in_states = query.states.is_empty() || state.is_none_or(|state| query.states.contains(&state));
    let (scope, key) = (text(5), text(6));
    in_states
        && query.scope.as_ref().is_none_or(|wanted| wanted.as_str() == scope)
        && query.text.as_ref().is_none_or(|wanted| scope.contains(wanted) || key.contains(wanted))
}

fn take(page: &mut Page, query: &Scan, raw: &OwnedRow) {
    match raw.decode() {
        Ok((address, stored)) if query.matches(&address, &stored, page.now) => {
            page.entries.push(Entry { address, stored });
        }
        Ok(_) => {}
        Err(error) => page.damaged.push(raw.damaged(&error)),
    }
}

fn write_cursor((due_at, seq): Place, by_due: bool) -> Cursor {
    let mut bytes = vec![u8::from(by_due)];
    bytes.extend(due_at.to_be_bytes());
    bytes.extend(seq.to_be_bytes());
    Cursor::from_bytes(bytes)
}

fn read_cursor(cursor: &Cursor, by_due: bool) -> Result<Place, StoreError> {
    let read = |bytes: &[u8]| bytes.try_into().ok().map(i64::from_be_bytes);
    match cursor.as_bytes() {
        [order, rest @ ..] if *order == u8::from(by_due) && rest.len() == 16 => {
            let (due_at, seq) = rest.split_at(8);
            read(due_at).zip(read(seq))
        }
        _ => None,
    }
    .ok_or_else(|| {
        StoreError::new("scan", ErrorKind::Invalid, "the cursor does not belong to this scan; start again without it")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Options, schema};

    /// How SQLite means to read a scan, a line per step.
    fn plan(query: &Scan) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        let options = Options::new(dir.path().join("hapax.db"));
        let mut connection = schema::connect(&options).unwrap();
        schema::prepare(&mut connection, &options).unwrap();
        let sql = format!("EXPLAIN QUERY PLAN {}", select(query, walks_due_index(query)));
        let mut statement = connection.prepare(&sql).unwrap();
        let lines = statement.query_map([0, 0, 0], |row| row.get(3)).unwrap();
        lines.collect::<rusqlite::Result<_>>().unwrap()
    }

    #[test]
    fn each_state_is_a_range_of_the_due_index_in_order() {
        for states in [vec![State::Running], vec![State::Unknown, State::Dead], Vec::new()] {
            let query = Scan { due: Some(hapax_core::store::Due::Now), states: states.clone(), ..Scan::default() };
            let count = if states.is_empty() { State::ALL.len() } else { states.len() };
            let plan = plan(&query);
            let ranges = plan.iter().filter(|line| line.contains("hapax_due (state=? AND <expr>>? AND <expr><?)"));
            assert_eq!(ranges.count(), count, "{plan:#?}");
            let sorted = plan.iter().filter(|line| line.contains("TEMP B-TREE")).count();
            assert_eq!(sorted, 2, "only what no release writes, which is not there: {plan:#?}");
            assert!(!plan.iter().any(|line| line.contains("SCAN")), "{plan:#?}");
        }
    }

    #[test]
    fn every_state_is_a_number_that_the_ranges_know() {
        assert!(State::ALL.iter().all(|state| (1..=6).contains(&state.number())));
    }
}
