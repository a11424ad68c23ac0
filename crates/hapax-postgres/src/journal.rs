//! Notes of what people did, written in one transaction with the record they are about. See the migration for the table.
//!
//! These are rare and not batched: each takes one of the connections that read, and a transaction of its own.

use deadpool_postgres::Transaction as Pooled;
use hapax_core::address::{Address, Id};
use hapax_core::clock::{Now, Timestamp};
use hapax_core::journal::{About, Journal, Note, NoteScan, Noted};
use hapax_core::record::{Record, State, Version};
use hapax_core::store::{StoreError, Swap};
use tokio::time::timeout;
use tokio_postgres::types::Type;
use tokio_postgres::{Error, IsolationLevel, Row, Transaction};

use crate::clock::moment;
use crate::connections::Connection;
use crate::failure;
use crate::rows::{Parameter, Question, Write};
use crate::statements::{CLOCK, in_schema};
use crate::store::{Postgres, Shared};
use crate::transaction::swap_as_guest;

pub(crate) const COLUMNS: &str = "number, at, who, what, id, scope, key, attempt, before, after, reason, detail";

impl Journal for Postgres {
    async fn swap_noted(
        &self,
        at: &Address,
        expect: Option<Version>,
        next: &Record,
        note: &Note,
    ) -> Result<Swap, StoreError> {
        note.check_limits()?;
        let write = Write::new(at, expect, next)?;
        let (mut connection, _turn) = self.shared.to_read("swap").await?;
        let tx = begin(&self.shared, &mut connection, "swap").await?;
        let limit = self.shared.statement_timeout;
        let swapped = timeout(limit, swap_and_keep(&self.shared, &tx, &write, note)).await;
        let swapped = swapped.map_err(|_| failure::unanswered_read("swap"))??;
        commit(&self.shared, tx, "swap").await?;
        connection.settled();
        Ok(swapped)
    }

    async fn note(&self, note: &Note) -> Result<Now, StoreError> {
        note.check_limits()?;
        let sent = self.shared.clock.sent();
        let (mut connection, _turn) = self.shared.to_read("note").await?;
        let tx = begin(&self.shared, &mut connection, "note").await?;
        let kept = timeout(self.shared.statement_timeout, keep(&tx, &self.shared.schema, note, None)).await;
        let at_ms = kept.map_err(|_| failure::unanswered_read("note"))??;
        commit(&self.shared, tx, "note").await?;
        connection.settled();
        Ok(Now { at: moment(at_ms), ..self.shared.clock.heard(sent, at_ms) })
    }

    async fn notes(&self, query: &NoteScan) -> Result<Vec<Noted>, StoreError> {
        let before = query.before.map_or(i64::MAX, |before| i64::try_from(before).unwrap_or(i64::MAX));
        let count = i64::from(query.count());
        let id = query.about.as_ref().map(|id| &id.as_bytes()[..]);
        let condition = if id.is_some() { "id = $3" } else { "$3::bytea IS NULL" };
        let sql = in_schema(
            &self.shared.schema,
            &format!(
                "SELECT {COLUMNS} FROM {{schema}}.note WHERE number < $1 AND {condition} ORDER BY number DESC LIMIT $2"
            ),
        );
        let parameters: [Parameter<'_>; 3] = [(&before, Type::INT8), (&count, Type::INT8), (&id, Type::BYTEA)];
        let (mut connection, _turn) = self.shared.to_read("notes").await?;
        let asked = connection.query(&Question::new(&sql, parameters)).await;
        let rows = asked.map_err(|refusal| refusal.of_read("notes"))?;
        rows.iter().map(|row| read(row).map_err(|error| failure::of_read("notes", error))).collect()
    }
}

async fn begin<'a>(
    shared: &Shared,
    connection: &'a mut Connection,
    op: &'static str,
) -> Result<Pooled<'a>, StoreError> {
    let client = connection.client().ok_or_else(|| failure::stopped(op))?;
    let begun = client.build_transaction().isolation_level(IsolationLevel::ReadCommitted).start();
    let begun = timeout(shared.statement_timeout, begun).await.map_err(|_| failure::unanswered_read(op))?;
    begun.map_err(|error| failure::of_read(op, error))
}

/// Only the commit can leave it open what was written.
async fn commit(shared: &Shared, tx: Pooled<'_>, op: &'static str) -> Result<(), StoreError> {
    let committed = timeout(shared.statement_timeout, tx.commit()).await.map_err(|_| failure::unanswered_write(op))?;
    committed.map_err(|error| failure::of_write(op, error))
}

async fn swap_and_keep(shared: &Shared, tx: &Transaction<'_>, write: &Write, note: &Note) -> Result<Swap, StoreError> {
    let swapped = swap_as_guest(shared, &mut &*tx, write).await;
    let swapped = swapped.map_err(|error| StoreError { op: "swap", ..error })?;
    if let Swap::Applied(now) = &swapped {
        let at_ms = i64::try_from(now.at.as_ms()).unwrap_or(i64::MAX);
        keep(tx, &shared.schema, note, Some(at_ms)).await?;
    }
    Ok(swapped)
}

/// Adds a note, stamped with that time or with the server's, and says when.
async fn keep(tx: &Transaction<'_>, schema: &str, note: &Note, at_ms: Option<i64>) -> Result<i64, StoreError> {
    let about = note.about.as_ref();
    let id = about.map(|about| &about.id.as_bytes()[..]);
    let (scope, key) = (about.map(|about| &about.scope), about.map(|about| &about.key));
    let attempt = about.map(|about| i64::from(about.attempt));
    let state = |state: Option<State>| state.map(|state| i16::from(state.number()));
    let (before, after) = (state(note.before), state(note.after));
    let sql = format!(
        "INSERT INTO {{schema}}.note (at, who, what, id, scope, key, attempt, before, after, reason, detail)
         VALUES (coalesce($1, {CLOCK}), $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) RETURNING at"
    );
    let parameters: [Parameter<'_>; 11] = [
        (&at_ms, Type::INT8),
        (&note.who, Type::TEXT),
        (&note.what, Type::TEXT),
        (&id, Type::BYTEA),
        (&scope, Type::TEXT),
        (&key, Type::TEXT),
        (&attempt, Type::INT8),
        (&before, Type::INT2),
        (&after, Type::INT2),
        (&note.reason, Type::TEXT),
        (&note.detail, Type::TEXT),
    ];
    let rows = tx.query_typed(&in_schema(schema, &sql), &parameters).await;
    let rows = rows.map_err(|error| failure::of_read("note", error))?;
    Ok(rows.first().and_then(|row| row.try_get(0).ok()).unwrap_or_default())
}

pub(crate) fn read(row: &Row) -> Result<Noted, Error> {
    let state = |at: usize| {
        let number: Option<i16> = row.try_get(at)?;
        Ok::<_, Error>(number.and_then(|number| u8::try_from(number).ok()).and_then(State::from_number))
    };
    let id: Option<&[u8]> = row.try_get(4)?;
    let about = match id.and_then(|id| id.try_into().ok()).map(Id::from_bytes) {
        Some(id) => {
            let attempt = u32::try_from(row.try_get::<_, i64>(7)?).unwrap_or_default();
            Some(About { id, scope: row.try_get(5)?, key: row.try_get(6)?, attempt })
        }
        None => None,
    };
    Ok(Noted {
        number: u64::try_from(row.try_get::<_, i64>(0)?).unwrap_or_default(),
        at: Timestamp::from_ms(u64::try_from(row.try_get::<_, i64>(1)?).unwrap_or_default()),
        note: Note {
            who: row.try_get(2)?,
            what: row.try_get(3)?,
            about,
            before: state(8)?,
            after: state(9)?,
            reason: row.try_get(10)?,
            detail: row.try_get(11)?,
        },
    })
}
