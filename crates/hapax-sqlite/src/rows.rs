//! The statements: what is written, how it is found, and a row as it comes back.
//!
//! Used by the writer, the readers, and a caller's own transaction alike.

use hapax_core::address::{Address, Id};
use hapax_core::clock::{Now, Timestamp};
use hapax_core::codec::{self, OwnedRow};
use hapax_core::journal::Note;
use hapax_core::record::{Record, Version};
use hapax_core::store::{StoreError, Swap};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, params};

use crate::notes;

/// A swap, encoded before it reaches the writer.
#[derive(Debug)]
pub(crate) struct Write {
    at: Address,
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
#[expect(clippy::large_enum_variant, reason = "it lives for one reply; a box would cost every replay an allocation")]
pub(crate) enum Written {
    Applied,
    Lost(Option<OwnedRow>),
}

impl Written {
    pub(crate) fn into_swap(self, now: Now) -> Result<Swap, StoreError> {
        match self {
            Self::Applied => Ok(Swap::Applied(now)),
            Self::Lost(row) => Ok(Swap::Lost(codec::seen(row.as_ref(), now, "swap")?)),
        }
    }
}

/// The end of the records, looked up once in a transaction: while it holds the file, nobody else appends.
#[derive(Debug, Default)]
pub(crate) struct End(Option<i64>);

impl End {
    fn seq(&self, connection: &Connection) -> rusqlite::Result<i64> {
        match self.0 {
            Some(seq) => Ok(seq),
            None => connection
                .prepare_cached("SELECT coalesce(max(seq), 0) + 1 FROM hapax_record")?
                .query_row([], |row| row.get(0)),
        }
    }
}

/// Compares and swaps, inside whatever transaction the connection is in.
pub(crate) fn swap(connection: &Connection, write: &Write, now: Timestamp, end: &mut End) -> rusqlite::Result<Written> {
    let applied = match &write.expect {
        Some(expect) => update(connection, write, expect, now)?,
        None => insert(connection, write, now, end)?,
    };
    if applied {
        if let Some(note) = &write.note {
            notes::keep(connection, note, now)?;
        }
        return Ok(Written::Applied);
    }
    Ok(Written::Lost(find(connection, write.at.id())?))
}

fn insert(connection: &Connection, write: &Write, now: Timestamp, end: &mut End) -> rusqlite::Result<bool> {
    let seq = end.seq(connection)?;
    let taken = connection
        .prepare_cached("INSERT INTO hapax_place (id, seq) VALUES (?1, ?2) ON CONFLICT DO NOTHING")?
        .execute(params![write.at.id().as_bytes(), seq])?;
    if taken == 0 {
        return Ok(false);
    }
    connection
        .prepare_cached(
            "INSERT INTO hapax_record
             (seq, version, state, stamped_at, due_at, reap_at, id, scheme, space, scope, key, data)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
        )?
        .execute(params![
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
    end.0 = Some(seq + 1);
    Ok(true)
}

fn update(connection: &Connection, write: &Write, expect: &Version, now: Timestamp) -> rusqlite::Result<bool> {
    let changed = connection
        .prepare_cached(
            "UPDATE hapax_record
             SET version = ?3, state = ?4, stamped_at = ?5, due_at = ?6, reap_at = ?7, data = ?8
             WHERE seq = (SELECT seq FROM hapax_place WHERE id = ?1) AND version = ?2",
        )?
        .execute(params![
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

/// The columns that [`read`] reads, in its order.
pub(crate) const COLUMNS: &str = "id, scheme, space, scope, key, version, state, stamped_at, due_at, reap_at, data";

/// The row of an id.
pub(crate) fn find(connection: &Connection, id: &Id) -> rusqlite::Result<Option<OwnedRow>> {
    connection
        .prepare_cached(
            "SELECT id, scheme, space, scope, key, version, state, stamped_at, due_at, reap_at, data
             FROM hapax_record WHERE seq = (SELECT seq FROM hapax_place WHERE id = ?1)",
        )?
        .query_row([id.as_bytes()], |row| Ok(read(row, 0)))
        .optional()
}

/// Deletes what may be deleted, oldest first.
pub(crate) fn reap(connection: &Connection, limit: u32, now: Timestamp) -> rusqlite::Result<u32> {
    let mut select =
        connection.prepare_cached("SELECT seq, id FROM hapax_record WHERE reap_at <= ?1 ORDER BY reap_at LIMIT ?2")?;
    let expired: Vec<(i64, Vec<u8>)> = select
        .query_map(params![codec::column(Some(now)), limit], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<rusqlite::Result<_>>()?;
    let mut forget = connection.prepare_cached("DELETE FROM hapax_place WHERE id = ?1")?;
    let mut delete = connection.prepare_cached("DELETE FROM hapax_record WHERE seq = ?1")?;
    for (seq, id) in &expired {
        forget.execute([id])?;
        hapax_core::failpoint!("reap");
        delete.execute([seq])?;
    }
    Ok(u32::try_from(expired.len()).unwrap_or(u32::MAX))
}

/// Reads the columns of [`COLUMNS`], beginning at `first`.
pub(crate) fn read(row: &rusqlite::Row<'_>, first: usize) -> OwnedRow {
    let value = |at: usize| row.get_ref(first + at).unwrap_or(ValueRef::Null);
    let bytes = |at: usize| value(at).as_bytes().unwrap_or_default().to_vec();
    let number = |at: usize| value(at).as_i64().ok();
    let text = |at: usize| value(at).as_str().unwrap_or_default().to_owned();
    OwnedRow {
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
