//! Scans, page by page and, within a page, slice by slice.
//!
//! The server looks at the small columns and hands over the data of what may match; the last word has
//! [`Scan::matches`], which also looks inside. Places are (due time or 0, id), so a record that nobody writes is met once.

use hapax_core::address::Scope;
use hapax_core::clock::Now;
use hapax_core::codec::{self, OwnedRow};
use hapax_core::limits::{PAGE_BYTES_MAX, PAGE_ENTRIES_MAX, PAGE_ROWS_EXAMINED_MAX};
use hapax_core::record::State;
use hapax_core::store::{Cursor, Due, Entry, ErrorKind, Page, Scan, StoreError};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::connections::Connection;
use crate::failure;
use crate::rows::{self, Parameter, Question};
use crate::store::Shared;

/// Rows examined by one statement, where most may not match. Each costs a look at its page, so a slice is short.
const SLICE_ROWS: u32 = 2_000;

/// Occurs in no scope and no key.
const NOWHERE: &str = "\u{1}";

/// A place in a scan.
#[derive(Clone, Debug)]
struct Place {
    due_at: i64,
    id: Vec<u8>,
}

/// One page.
pub(crate) async fn scan(shared: &Shared, query: &Scan) -> Result<Page, StoreError> {
    let by_due = walks_due_index(query);
    // What has no due time comes first, and is never due.
    let first_due = if query.due.is_some() { 0 } else { i64::MIN };
    let start = || Ok(Place { due_at: first_due, id: Vec::new() });
    let mut after = query.after.as_ref().map_or_else(start, |cursor| read_cursor(cursor, by_due))?;
    let (mut connection, _turn) = shared.to_read("scan").await?;
    let mut page = Page { entries: Vec::new(), damaged: Vec::new(), next: None, now: Now::default() };
    let (mut examined, mut bytes) = (0, 0);
    loop {
        let room = Room::of(query, &page, examined, bytes);
        let slice = ask(shared, &mut connection, query, &after, &room).await?;
        page.now = slice.now;
        if query.due == Some(Due::Now) && page.now.paused {
            return Ok(Page { entries: Vec::new(), damaged: Vec::new(), next: None, now: page.now });
        }
        examined += slice.examined;
        bytes += slice.rows.iter().map(|row| row.data.len()).sum::<usize>();
        slice.rows.iter().for_each(|row| take(&mut page, query, row));
        let Some(end) = slice.end else { return Ok(page) };
        let full = page.entries.len() + page.damaged.len() >= entries_max(query) || bytes >= PAGE_BYTES_MAX;
        if full || examined >= PAGE_ROWS_EXAMINED_MAX {
            page.next = Some(write_cursor(&end, by_due));
            return Ok(page);
        }
        after = end;
    }
}

/// Every unfinished record is in the due index, and little else.
fn walks_due_index(query: &Scan) -> bool {
    let unfinished = !query.states.is_empty() && query.states.iter().all(|state: &State| state.is_unfinished());
    query.due.is_some() || unfinished
}

fn entries_max(query: &Scan) -> usize {
    query.limit.clamp(1, PAGE_ENTRIES_MAX) as usize
}

/// How much the next slice may look at and bring.
struct Room {
    examined: i64,
    rows: i64,
    bytes: i64,
}

impl Room {
    fn of(query: &Scan, page: &Page, examined: u32, bytes: usize) -> Self {
        let column = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        let rows = column(entries_max(query).saturating_sub(page.entries.len() + page.damaged.len()));
        let filtered = !query.states.is_empty() || query.scope.is_some() || query.text.is_some();
        let slice = if filtered { i64::from(SLICE_ROWS) } else { rows };
        let examined = slice.min(i64::from(PAGE_ROWS_EXAMINED_MAX - examined));
        Self { examined, rows, bytes: column(PAGE_BYTES_MAX.saturating_sub(bytes)) }
    }
}

/// What one statement brought.
struct Slice {
    rows: Vec<OwnedRow>,
    examined: u32,
    /// Where it ended; `None`: at the end.
    end: Option<Place>,
    now: Now,
}

async fn ask(
    shared: &Shared,
    connection: &mut Connection,
    query: &Scan,
    after: &Place,
    room: &Room,
) -> Result<Slice, StoreError> {
    let due_max = match query.due {
        Some(Due::Now) => None,
        Some(Due::By(at)) => codec::column(Some(at)),
        None => Some(i64::MAX),
    };
    let number = |state: &State| i16::from(state.number());
    let wanted = State::ALL.iter().filter(|state| query.states.contains(state)).map(number);
    let states: Option<Vec<i16>> = Some(wanted.collect()).filter(|some: &Vec<_>| !some.is_empty());
    let all_states: Vec<i16> = State::ALL.iter().map(number).collect();
    let scope = query.scope.as_ref().map(Scope::as_str);
    let text = query.text.as_deref().map(|text| if text.contains('\0') { NOWHERE } else { text });
    let statements = &shared.statements;
    let sql = if walks_due_index(query) { &statements.scan_due } else { &statements.scan_all };
    let sent = shared.clock.sent();
    let parameters: [Parameter<'_>; 10] = [
        (&after.due_at, Type::INT8),
        (&after.id, Type::BYTEA),
        (&due_max, Type::INT8),
        (&states, Type::INT2_ARRAY),
        (&all_states, Type::INT2_ARRAY),
        (&scope, Type::TEXT),
        (&text, Type::TEXT),
        (&room.examined, Type::INT8),
        (&room.rows, Type::INT8),
        (&room.bytes, Type::INT8),
    ];
    let rows = connection.query(&Question::new(sql, parameters)).await.map_err(|refusal| refusal.of_read("scan"))?;
    let heard = |now_ms| shared.clock.heard(sent, now_ms);
    read_slice(&rows, room, heard)
        .map_err(|error| failure::of_read("scan", error))?
        .ok_or_else(|| failure::standby("scan"))
}

/// The columns of a slice: time, standby or not, rows examined, rows matched, where the examination ended (two), the
/// due time of the row, the row. `None`: from a standby.
fn read_slice(
    rows: &[Row],
    room: &Room,
    heard: impl FnOnce(i64) -> Now,
) -> Result<Option<Slice>, tokio_postgres::Error> {
    let Some(first) = rows.first() else { return Ok(None) };
    if first.try_get(1)? {
        return Ok(None);
    }
    let (examined, matched): (i64, i64) = (first.try_get(2)?, first.try_get(3)?);
    let found: Vec<OwnedRow> = rows.iter().filter_map(|row| rows::read(row, 7)).collect();
    let cut_short = matched >= room.rows || (found.len() as i64) < matched;
    let last = rows.last().zip(found.last());
    let end = if let Some((row, found)) = last.filter(|_| cut_short) {
        Some(Place { due_at: row.try_get(6)?, id: found.id.clone() })
    } else if examined >= room.examined {
        Some(Place { due_at: first.try_get(4)?, id: first.try_get(5)? })
    } else {
        None
    };
    let examined = u32::try_from(examined).unwrap_or(u32::MAX);
    Ok(Some(Slice { rows: found, examined, end, now: heard(first.try_get(0)?) }))
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

fn write_cursor(place: &Place, by_due: bool) -> Cursor {
    let mut bytes = vec![u8::from(by_due)];
    bytes.extend(place.due_at.to_be_bytes());
    bytes.push(u8::try_from(place.id.len()).unwrap_or(u8::MAX));
    bytes.extend(&place.id);
    Cursor::from_bytes(bytes)
}

fn read_cursor(cursor: &Cursor, by_due: bool) -> Result<Place, StoreError> {
    let place = || {
        let (order, rest) = cursor.as_bytes().split_first()?;
        let (due_at, rest) = rest.split_first_chunk::<8>()?;
        let (length, id) = rest.split_first()?;
        let fits = *order == u8::from(by_due) && usize::from(*length) == id.len();
        fits.then(|| Place { due_at: i64::from_be_bytes(*due_at), id: id.to_vec() })
    };
    place().ok_or_else(|| {
        StoreError::new("scan", ErrorKind::Invalid, "the cursor does not belong to this scan; start again without it")
    })
}
