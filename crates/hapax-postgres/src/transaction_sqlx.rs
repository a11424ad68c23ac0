//! Swaps inside a transaction that `sqlx` opened.

use hapax_core::address::Address;
use hapax_core::codec::OwnedRow;
use hapax_core::record::{Record, Version};
use hapax_core::store::{StoreError, Swap};
use sqlx::error::DatabaseError;
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, PgConnection, Row};
use tokio_postgres::error::SqlState;

use crate::rows::Write;
use crate::store::Postgres;
use crate::transaction::{Failed, Guest, Reply, swap_as_guest};

impl Postgres {
    /// The same as [`Postgres::swap_in`], for `sqlx`: pass `&mut *transaction`.
    ///
    /// # Errors
    /// As for [`Postgres::swap_in`].
    pub async fn swap_in_sqlx(
        &self,
        transaction: &mut PgConnection,
        at: &Address,
        expect: Option<Version>,
        next: &Record,
    ) -> Result<Swap, StoreError> {
        // Named statements do not outlive a transaction behind a pooler.
        let mut guest = Sqlx { connection: transaction, prepares: self.shared.connections.prepares() };
        swap_as_guest(&self.shared, &mut guest, &Write::new(at, expect, next)?).await
    }
}

struct Sqlx<'a> {
    connection: &'a mut PgConnection,
    prepares: bool,
}

impl From<sqlx::Error> for Failed {
    fn from(error: sqlx::Error) -> Self {
        let code = error.as_database_error().and_then(DatabaseError::code).map(|code| SqlState::from_code(&code));
        Self { code, source: error.into() }
    }
}

impl Guest for Sqlx<'_> {
    async fn whereabouts(&mut self, sql: &str) -> Result<Option<(bool, String)>, Failed> {
        let query = sqlx::query(AssertSqlSafe(sql)).persistent(self.prepares);
        let row = query.fetch_optional(&mut *self.connection).await?;
        row.map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).transpose()
    }

    async fn write(&mut self, sql: &str, write: &Write) -> Result<Option<Reply>, Failed> {
        let query = sqlx::query(AssertSqlSafe(sql)).persistent(self.prepares);
        let id = write.at.id().as_bytes().as_slice();
        let query = query.bind(None::<String>).bind(id);
        let query = match &write.expect {
            None => query.bind(write.version.as_bytes().as_slice()),
            Some(expect) => query.bind(expect.as_bytes().as_slice()).bind(write.version.as_bytes().as_slice()),
        };
        let query = query.bind(write.state).bind(write.due_in).bind(write.reap_in);
        let query = match &write.expect {
            None => query
                .bind(write.at.scheme().as_str())
                .bind(write.at.space().as_str())
                .bind(write.at.scope().as_str())
                .bind(write.at.key().as_str()),
            Some(_) => query,
        };
        let Some(row) = query.bind(write.data.as_slice()).fetch_optional(&mut *self.connection).await? else {
            return Ok(None);
        };
        let found = if row.len() > 3 { read(&row, 3) } else { None };
        Ok(Some(Reply { now_ms: row.try_get(0)?, stamped_at: row.try_get(2)?, found }))
    }

    async fn find(&mut self, sql: &str, id: &[u8]) -> Result<Option<(i64, Option<OwnedRow>)>, Failed> {
        let query = sqlx::query(AssertSqlSafe(sql)).persistent(self.prepares).bind(vec![id]);
        let row = query.fetch_optional(&mut *self.connection).await?;
        row.map(|row| Ok((row.try_get(0)?, read(&row, 2)))).transpose()
    }
}

/// The columns of a record, as [`rows::read`](crate::rows::read) reads them.
fn read(row: &PgRow, first: usize) -> Option<OwnedRow> {
    let bytes = |at: usize| row.try_get::<Option<Vec<u8>>, _>(first + at).ok().flatten();
    let text = |at: usize| row.try_get::<Option<String>, _>(first + at).ok().flatten().unwrap_or_default();
    let number = |at: usize| row.try_get::<Option<i64>, _>(first + at).ok().flatten();
    Some(OwnedRow {
        id: bytes(0)?,
        address: [text(1), text(2), text(3), text(4)],
        version: bytes(5).unwrap_or_default(),
        state: row.try_get::<Option<i16>, _>(first + 6).ok().flatten().map_or(-1, i64::from),
        stamped_at: number(7).unwrap_or(-1),
        due_at: number(8),
        reap_at: number(9),
        data: bytes(10).unwrap_or_default(),
    })
}
