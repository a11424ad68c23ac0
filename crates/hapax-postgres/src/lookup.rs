//! Looking without an address, for people: by the first digits of an id, how many records there are, and what they take.
//!
//! The first reads the primary key, or the notes' index by id; the second is what the server's own statistics say. What a store must be able to do for
//! hapax itself is in `reader.rs` and `scan.rs`.

use hapax_core::address::Id;
use hapax_core::journal::{NoteScan, Noted};
use hapax_core::limits::PAGE_ENTRIES_MAX;
use hapax_core::store::{Entry, Page, StoreError};
use tokio_postgres::types::Type;

use crate::failure;
use crate::journal::{self, COLUMNS};
use crate::rows::{self, Parameter, Question};
use crate::statements::in_schema;
use crate::store::Postgres;

impl Postgres {
    /// Records whose ids lie between these two, both included, in order; at most `limit`, and no more than a page holds.
    ///
    /// # Errors
    /// If the server cannot be asked.
    pub async fn between(&self, first: &Id, last: &Id, limit: u32) -> Result<Page, StoreError> {
        let shared = &self.shared;
        let (mut connection, _turn) = shared.to_read("between").await?;
        let (first, last) = (&first.as_bytes()[..], &last.as_bytes()[..]);
        let limit = i64::from(limit.clamp(1, PAGE_ENTRIES_MAX));
        let parameters: [Parameter<'_>; 3] = [(&first, Type::BYTEA), (&last, Type::BYTEA), (&limit, Type::INT8)];
        let sent = shared.clock.sent();
        let question = Question::new(&shared.statements.between, parameters);
        let rows = connection.query(&question).await.map_err(|refusal| refusal.of_read("between"))?;
        let (now_ms, in_recovery) =
            rows.first().map_or((0, true), |row| (row.try_get(0).unwrap_or(0), row.try_get(1).unwrap_or(true)));
        if in_recovery {
            return Err(failure::standby("between"));
        }
        let now = shared.clock.heard(sent, now_ms);
        let mut page = Page { entries: Vec::new(), damaged: Vec::new(), next: None, now };
        for raw in rows.iter().filter_map(|row| rows::read(row, 2)) {
            match raw.decode() {
                Ok((address, stored)) => page.entries.push(Entry { address, stored }),
                Err(error) => page.damaged.push(raw.damaged(&error)),
            }
        }
        Ok(page)
    }

    /// Notes about records whose ids lie between these two, both included, newest first, also where the records are gone.
    /// `query` says older than which and how many; what it is about does not count.
    ///
    /// # Errors
    /// If the server cannot be asked.
    pub async fn notes_between(&self, first: &Id, last: &Id, query: &NoteScan) -> Result<Vec<Noted>, StoreError> {
        let before = query.before.map_or(i64::MAX, |before| i64::try_from(before).unwrap_or(i64::MAX));
        let (first, last, count) = (&first.as_bytes()[..], &last.as_bytes()[..], i64::from(query.count()));
        // Materialized, so that the few are found by the index and then sorted; not all notes walked in order.
        let sql = in_schema(
            &self.shared.schema,
            &format!(
                "WITH about AS MATERIALIZED
                   (SELECT {COLUMNS} FROM {{schema}}.note WHERE id BETWEEN $1 AND $2 AND number < $3)
                 SELECT {COLUMNS} FROM about ORDER BY number DESC LIMIT $4"
            ),
        );
        let parameters: [Parameter<'_>; 4] =
            [(&first, Type::BYTEA), (&last, Type::BYTEA), (&before, Type::INT8), (&count, Type::INT8)];
        let (mut connection, _turn) = self.shared.to_read("notes").await?;
        let asked = connection.query(&Question::new(&sql, parameters)).await;
        let rows = asked.map_err(|refusal| refusal.of_read("notes"))?;
        rows.iter().map(|row| journal::read(row).map_err(|error| failure::of_read("notes", error))).collect()
    }

    /// About how many records there are, as the server estimated when it last looked. `None`: it has not looked yet.
    ///
    /// # Errors
    /// If the server cannot be asked.
    pub async fn about_count(&self) -> Result<Option<u64>, StoreError> {
        let (mut connection, _turn) = self.shared.to_read("count").await?;
        let table = in_schema(&self.shared.schema, "{schema}.record");
        let sql = format!("SELECT reltuples::bigint FROM pg_class WHERE oid = '{table}'::regclass");
        let rows = connection.query(&Question::new(&sql, [])).await.map_err(|refusal| refusal.of_read("count"))?;
        let estimate: Option<i64> = rows.first().and_then(|row| row.try_get(0).ok());
        Ok(estimate.and_then(|estimate| u64::try_from(estimate).ok()))
    }

    /// How many bytes the records take, with their indexes and what is free inside their files.
    ///
    /// # Errors
    /// If the server cannot be asked.
    pub async fn bytes(&self) -> Result<u64, StoreError> {
        let (mut connection, _turn) = self.shared.to_read("measure").await?;
        let table = in_schema(&self.shared.schema, "{schema}.record");
        let sql = format!("SELECT pg_total_relation_size('{table}'::regclass)");
        let rows = connection.query(&Question::new(&sql, [])).await.map_err(|refusal| refusal.of_read("measure"))?;
        let bytes: Option<i64> = rows.first().and_then(|row| row.try_get(0).ok());
        Ok(bytes.and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or(0))
    }
}
