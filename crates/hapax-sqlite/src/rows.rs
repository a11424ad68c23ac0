//! The statements: what is written, how it is found, and a row as it comes back.
//!
//! Used by the writer, the readers, and a caller's own transaction alike.

use hapax_core::address::{Address, Id};
use hapax_core::clock::{Now, Timestamp};
use hapax_core::codec::{self, DecodeError, OwnedRow};
use hapax_core::journal::Note;
use hapax_core::large::LARGE_BYTES_MIN;
use hapax_core::record::{Record, Stored, Version};
use hapax_core::store::{StoreError, Swap};
use rusqlite::types::ValueRef;
use rusqlite::{CachedStatement, Connection, OptionalExtension, params};

use crate::{failure, notes};

/// A swap, encoded before it reaches the writer.
#[derive(Debug)]
pub(crate) struct Write {
    pub(crate) at: Address,
    pub(crate) expect: Option<Version>,
    version: Version,
    pub(crate) state: u8,
    due_in_ms: Option<u64>,
    reap_in_ms: Option<u64>,
    data: Vec<u8>,
    note: Option<Box<Note>>,
}

impl Write {
    pub(crate) fn new(at: &Address, expect: Option<Version>, next: &Record) -> Self {
        Self {
            at: at.clone(),
            expect,
            version: next.version,
            state: next.state.number(),
            due_in_ms: next.due_in_ms,
            reap_in_ms: next.reap_in_ms(),
            data: codec::encode(at.id(), next),
            note: None,
        }
    }

    /// With a note that is kept if the swap is applied.
    pub(crate) fn noted(self, note: &Note) -> Self {
        Self { note: Some(Box::new(note.clone())), ..self }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.data.len()
    }
}

/// What became of a swap, before anything is decoded.
#[derive(Debug)]
pub(crate) enum Written {
    Applied,
    Lost(Option<OwnedRow>),
    /// To a large record of that version, which is to be read by itself.
    LostToLarge(Vec<u8>),
}

impl Written {
    /// What a caller with a connection of its own gets: that reads a large record at once.
    pub(crate) fn into_swap_on(self, connection: &Connection, at: &Address, now: Now) -> Result<Swap, StoreError> {
        let row = match self {
            Self::Applied => return Ok(Swap::Applied(now)),
            Self::Lost(row) => row,
            Self::LostToLarge(_) => {
                find_whole(connection, at.id()).map_err(|error| failure::of_statement("swap", error))?
            }
        };
        Ok(Swap::Lost(codec::seen(at, row.as_ref(), now, "swap")?))
    }
}

/// A record as it was found.
#[derive(Debug)]
pub(crate) enum Found<T> {
    Whole(T),
    /// A large one of that version. Its data was not read.
    Large(Vec<u8>),
}

/// Swaps inside whatever transaction the connection is in. Statements and the end of the records are looked up once: while
/// the transaction holds the file, nobody else appends.
pub(crate) struct Swaps<'c> {
    connection: &'c Connection,
    /// Where the next record goes.
    next_seq: Option<i64>,
    take: Option<CachedStatement<'c>>,
    add: Option<CachedStatement<'c>>,
    replace: Option<CachedStatement<'c>>,
}

/// What stood in the place, or was prepared now.
fn prepared<'s, 'c>(
    place: &'s mut Option<CachedStatement<'c>>,
    connection: &'c Connection,
    sql: &str,
) -> rusqlite::Result<&'s mut CachedStatement<'c>> {
    match place {
        Some(statement) => Ok(statement),
        None => Ok(place.insert(connection.prepare_cached(sql)?)),
    }
}

impl<'c> Swaps<'c> {
    pub(crate) fn new(connection: &'c Connection) -> Self {
        Self { connection, next_seq: None, take: None, add: None, replace: None }
    }

    /// Compares and swaps.
    pub(crate) fn swap(&mut self, write: &Write, now: Timestamp) -> rusqlite::Result<Written> {
        let applied = match &write.expect {
            Some(expect) => self.update(write, expect, now)?,
            None => self.insert(write, now)?,
        };
        if applied {
            if let Some(note) = &write.note {
                notes::keep(self.connection, note, now)?;
            }
            return Ok(Written::Applied);
        }
        Ok(match find(self.connection, write.at.id())? {
            Some(Found::Large(version)) => Written::LostToLarge(version),
            Some(Found::Whole(row)) => Written::Lost(Some(row)),
            None => Written::Lost(None),
        })
    }

    fn insert(&mut self, write: &Write, now: Timestamp) -> rusqlite::Result<bool> {
        let seq = self.next_seq()?;
        let take = "INSERT INTO hapax_place (id, seq) VALUES (?1, ?2) ON CONFLICT DO NOTHING";
        let taken = prepared(&mut self.take, self.connection, take)?.execute(params![write.at.id().as_bytes(), seq])?;
        if taken == 0 {
            return Ok(false);
        }
        let add = "INSERT INTO hapax_record
             (seq, version, state, stamped_at, due_at, reap_at, id, scheme, space, scope, key, data)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";
        prepared(&mut self.add, self.connection, add)?.execute(params![
            seq,
            write.version.as_bytes(),
            write.state,
            codec::column(Some(now)),
            codec::column(write.due_in_ms.map(|ms| now.plus_ms(ms))),
            codec::column(write.reap_in_ms.map(|ms| now.plus_ms(ms))),
            write.at.id().as_bytes(),
            write.at.scheme().as_str(),
            write.at.space().as_str(),
            write.at.scope().as_str(),
            write.at.key().as_str(),
            write.data,
        ])?;
        self.next_seq = Some(seq + 1);
        Ok(true)
    }

    fn update(&mut self, write: &Write, expect: &Version, now: Timestamp) -> rusqlite::Result<bool> {
        let replace = "UPDATE hapax_record
             SET version = ?3, state = ?4, stamped_at = ?5, due_at = ?6, reap_at = ?7, data = ?8
             WHERE seq = (SELECT seq FROM hapax_place WHERE id = ?1) AND version = ?2 AND id = ?1";
        let changed = prepared(&mut self.replace, self.connection, replace)?.execute(params![
            write.at.id().as_bytes(),
            expect.as_bytes(),
            write.version.as_bytes(),
            write.state,
            codec::column(Some(now)),
            codec::column(write.due_in_ms.map(|ms| now.plus_ms(ms))),
            codec::column(write.reap_in_ms.map(|ms| now.plus_ms(ms))),
            write.data,
        ])?;
        Ok(changed == 1)
    }

    fn next_seq(&self) -> rusqlite::Result<i64> {
        match self.next_seq {
            Some(seq) => Ok(seq),
            None => self
                .connection
                .prepare_cached("SELECT coalesce(max(seq), 0) + 1 FROM hapax_record")?
                .query_row([], |row| row.get(0)),
        }
    }
}

/// The columns that [`read`] reads, in its order.
pub(crate) const COLUMNS: &str = "id, scheme, space, scope, key, version, state, stamped_at, due_at, reap_at, data";

/// A row that was looked for; none if there is none.
pub(crate) type FoundRow = Option<Found<OwnedRow>>;

/// A record that was looked for and decoded; none if there is none.
pub(crate) type Decoded = Option<Result<Stored, DecodeError>>;

/// The row of an id.
pub(crate) fn find(connection: &Connection, id: &Id) -> rusqlite::Result<FoundRow> {
    let read = |row: &rusqlite::Row<'_>| Ok(unless_large(row, |row| read(row, 0)));
    connection.prepare_cached(FIND)?.query_row(params![id.as_bytes(), LARGE_BYTES_MIN], read).optional()
}

/// The record at an address, decoded where it lies.
pub(crate) fn find_at(
    connection: &Connection,
    at: &Address,
) -> rusqlite::Result<Option<Found<Result<Stored, DecodeError>>>> {
    let decode = |row: &rusqlite::Row<'_>| Ok(unless_large(row, |row| borrowed(row, 0).decode_at(at)));
    connection.prepare_cached(FIND)?.query_row(params![at.id().as_bytes(), LARGE_BYTES_MIN], decode).optional()
}

/// The row of an id, however large it is.
pub(crate) fn find_whole(connection: &Connection, id: &Id) -> rusqlite::Result<Option<OwnedRow>> {
    connection.prepare_cached(FIND_WHOLE)?.query_row([id.as_bytes()], |row| Ok(read(row, 0))).optional()
}

/// The record at an address, however large it is, decoded where it lies.
pub(crate) fn find_whole_at(connection: &Connection, at: &Address) -> rusqlite::Result<Decoded> {
    let decode = |row: &rusqlite::Row<'_>| Ok(borrowed(row, 0).decode_at(at));
    connection.prepare_cached(FIND_WHOLE)?.query_row([at.id().as_bytes()], decode).optional()
}

fn unless_large<T>(row: &rusqlite::Row<'_>, read: impl FnOnce(&rusqlite::Row<'_>) -> T) -> Found<T> {
    match row.get_ref(10) {
        Ok(ValueRef::Null) => Found::Large(borrowed(row, 0).version.to_vec()),
        _ => Found::Whole(read(row)),
    }
}

/// Without the data of large records: SQLite knows its length without reading it.
const FIND: &str = "SELECT id, scheme, space, scope, key, version, state, stamped_at, due_at, reap_at,
            CASE WHEN length(data) < ?2 THEN data END
     FROM hapax_record WHERE seq = (SELECT seq FROM hapax_place WHERE id = ?1)";

const FIND_WHOLE: &str = "SELECT id, scheme, space, scope, key, version, state, stamped_at, due_at, reap_at, data
     FROM hapax_record WHERE seq = (SELECT seq FROM hapax_place WHERE id = ?1)";

/// Records that cannot be read and stand in the way of a reap; behind more of them nothing is deleted until a person looks.
const REAP_DAMAGED_MAX: u32 = 1_000;

/// Deletes what may be deleted, oldest first. The column only says where to look: a record that was altered stays, since
/// its key would come free.
pub(crate) fn reap(connection: &Connection, limit: u32, now: Timestamp) -> rusqlite::Result<u32> {
    let expired = expired(connection, limit, now)?;
    let mut forget = connection.prepare_cached("DELETE FROM hapax_place WHERE id = ?1")?;
    let mut delete = connection.prepare_cached("DELETE FROM hapax_record WHERE seq = ?1")?;
    for (seq, id) in &expired {
        forget.execute([id])?;
        hapax_core::failpoint!("reap");
        delete.execute([seq])?;
    }
    Ok(u32::try_from(expired.len()).unwrap_or(u32::MAX))
}

/// Where the oldest records are that may be deleted, and their ids.
fn expired(connection: &Connection, limit: u32, now: Timestamp) -> rusqlite::Result<Vec<(i64, Vec<u8>)>> {
    let mut select = connection.prepare_cached(
        "SELECT seq, id, scheme, space, scope, key, version, state, stamped_at, due_at, reap_at, data
         FROM hapax_record WHERE reap_at <= ?1 ORDER BY reap_at LIMIT ?2",
    )?;
    let mut found = select.query(params![codec::column(Some(now)), limit.saturating_add(REAP_DAMAGED_MAX)])?;
    let mut expired = Vec::new();
    while expired.len() < limit as usize
        && let Some(row) = found.next()?
    {
        let raw = borrowed(row, 1);
        if codec::decode(&raw).is_ok() {
            expired.push((row.get(0)?, raw.id.to_vec()));
        }
    }
    Ok(expired)
}

/// Reads the columns of [`COLUMNS`], beginning at `first`.
pub(crate) fn read(row: &rusqlite::Row<'_>, first: usize) -> OwnedRow {
    let row = borrowed(row, first);
    OwnedRow {
        id: row.id.to_vec(),
        address: row.address.map(str::to_owned),
        version: row.version.to_vec(),
        state: row.state,
        stamped_at: row.stamped_at,
        due_at: row.due_at,
        reap_at: row.reap_at,
        data: row.data.to_vec(),
    }
}

/// The same without copying.
fn borrowed<'r>(row: &'r rusqlite::Row<'_>, first: usize) -> codec::Row<'r> {
    let value = |at: usize| row.get_ref(first + at).unwrap_or(ValueRef::Null);
    let bytes = |at: usize| value(at).as_bytes().unwrap_or_default();
    let number = |at: usize| value(at).as_i64().ok();
    let text = |at: usize| value(at).as_str().unwrap_or_default();
    codec::Row {
        id: bytes(0),
        address: [text(1), text(2), text(3), text(4)],
        version: bytes(5),
        state: number(6).unwrap_or(-1),
        stamped_at: number(7).unwrap_or(-1),
        due_at: number(8),
        reap_at: number(9),
        data: bytes(10),
    }
}
