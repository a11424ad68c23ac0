//! Notes of what people did: how they are written and read. See the migration for the table.

use hapax_core::address::Id;
use hapax_core::clock::Timestamp;
use hapax_core::codec;
use hapax_core::journal::{About, Note, NoteScan, Noted};
use hapax_core::record::State;
use rusqlite::{Connection, Row, params};

const COLUMNS: &str = "number, at, who, what, id, scope, key, attempt, before, after, reason, detail";

/// Adds a note, inside whatever transaction the connection is in.
pub(crate) fn keep(connection: &Connection, note: &Note, now: Timestamp) -> rusqlite::Result<()> {
    let about = note.about.as_ref();
    connection
        .prepare_cached(
            "INSERT INTO hapax_note (at, who, what, id, scope, key, attempt, before, after, reason, detail)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
        )?
        .execute(params![
            codec::column(Some(now)),
            note.who,
            note.what,
            about.map(|about| &about.id.as_bytes()[..]),
            about.map(|about| &about.scope),
            about.map(|about| &about.key),
            about.map(|about| about.attempt),
            note.before.map(State::number),
            note.after.map(State::number),
            note.reason,
            note.detail,
        ])
        .map(|_| ())
}

/// Notes, newest first.
pub(crate) fn find(connection: &Connection, query: &NoteScan) -> rusqlite::Result<Vec<Noted>> {
    let before = query.before.map_or(i64::MAX, |before| i64::try_from(before).unwrap_or(i64::MAX));
    match &query.about {
        Some(id) => connection
            .prepare_cached(&format!(
                "SELECT {COLUMNS} FROM hapax_note WHERE id = ?1 AND number < ?2 ORDER BY number DESC LIMIT ?3"
            ))?
            .query_map(params![id.as_bytes(), before, query.count()], read)?
            .collect(),
        None => connection
            .prepare_cached(&format!(
                "SELECT {COLUMNS} FROM hapax_note WHERE number < ?1 ORDER BY number DESC LIMIT ?2"
            ))?
            .query_map(params![before, query.count()], read)?
            .collect(),
    }
}

/// Notes about records whose ids lie between these two, newest first. By the index: there may be many notes, and few of these.
pub(crate) fn find_between(
    connection: &Connection,
    first: &Id,
    last: &Id,
    query: &NoteScan,
) -> rusqlite::Result<Vec<Noted>> {
    let before = query.before.map_or(i64::MAX, |before| i64::try_from(before).unwrap_or(i64::MAX));
    connection
        .prepare_cached(&format!(
            "SELECT {COLUMNS} FROM hapax_note INDEXED BY hapax_note_about
             WHERE id IS NOT NULL AND id BETWEEN ?1 AND ?2 AND number < ?3 ORDER BY number DESC LIMIT ?4"
        ))?
        .query_map(params![first.as_bytes(), last.as_bytes(), before, query.count()], read)?
        .collect()
}

fn read(row: &Row<'_>) -> rusqlite::Result<Noted> {
    let state = |at: usize| Ok::<_, rusqlite::Error>(row.get::<_, Option<u8>>(at)?.and_then(State::from_number));
    let id: Option<Vec<u8>> = row.get(4)?;
    let id = id.and_then(|id| id.try_into().ok()).map(Id::from_bytes);
    let about = match id {
        Some(id) => Some(About { id, scope: row.get(5)?, key: row.get(6)?, attempt: row.get(7)? }),
        None => None,
    };
    Ok(Noted {
        number: u64::try_from(row.get::<_, i64>(0)?).unwrap_or_default(),
        at: Timestamp::from_ms(u64::try_from(row.get::<_, i64>(1)?).unwrap_or_default()),
        note: Note {
            who: row.get(2)?,
            what: row.get(3)?,
            about,
            before: state(8)?,
            after: state(9)?,
            reason: row.get(10)?,
            detail: row.get(11)?,
        },
    })
}
