//! Looking without an address, for people: by the first digits of an id, and how many records there are.
//!
//! All read an index and never the table. What a store must be able to do for hapax itself is in `reader.rs`.

use hapax_core::address::Id;
use hapax_core::clock::Now;
use hapax_core::journal::{NoteScan, Noted};
use hapax_core::limits::PAGE_ENTRIES_MAX;
use hapax_core::store::{Entry, Page, StoreError};
use rusqlite::{Connection, params};
use tokio::sync::oneshot;

use crate::reader::Question;
use crate::store::Sqlite;
use crate::{failure, rows};

impl Sqlite {
    /// Records whose ids lie between these two, both included, in order; at most `limit`, and no more than a page holds.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub async fn between(&self, first: &Id, last: &Id, limit: u32) -> Result<Page, StoreError> {
        let (reply, answer) = oneshot::channel();
        let question = Question::Between { first: *first, last: *last, limit, reply };
        self.ask(question, "between").await?;
        answer.await.map_err(|_| failure::stopped("between"))?
    }

    /// Notes about records whose ids lie between these two, both included, newest first, also where the records are gone.
    /// `query` says older than which and how many; what it is about does not count.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub async fn notes_between(&self, first: &Id, last: &Id, query: &NoteScan) -> Result<Vec<Noted>, StoreError> {
        let (reply, answer) = oneshot::channel();
        let question = Question::NotesBetween { first: *first, last: *last, query: query.clone(), reply };
        self.ask(question, "notes").await?;
        answer.await.map_err(|_| failure::stopped("notes"))?
    }

    /// About how many records there are: never fewer, and more where some were deleted between others.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub async fn about_count(&self) -> Result<u64, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.ask(Question::Count { reply }, "count").await?;
        answer.await.map_err(|_| failure::stopped("count"))?
    }
}

pub(crate) fn between(
    connection: &Connection,
    first: &Id,
    last: &Id,
    limit: u32,
    now: Now,
) -> Result<Page, StoreError> {
    let failed = |error| failure::of_statement("between", error);
    let mut select = connection
        .prepare_cached(
            "SELECT r.id, r.scheme, r.space, r.scope, r.key, r.version, r.state, r.stamped_at, r.due_at, r.reap_at, r.data
             FROM hapax_place p JOIN hapax_record r ON r.seq = p.seq
             WHERE p.id BETWEEN ?1 AND ?2 ORDER BY p.id LIMIT ?3",
        )
        .map_err(failed)?;
    let limit = limit.clamp(1, PAGE_ENTRIES_MAX);
    let mut found = select.query(params![first.as_bytes(), last.as_bytes(), limit]).map_err(failed)?;
    let mut page = Page { entries: Vec::new(), damaged: Vec::new(), next: None, now };
    while let Some(row) = found.next().map_err(failed)? {
        let raw = rows::read(row, 0);
        match raw.decode() {
            Ok((address, stored)) => page.entries.push(Entry { address, stored }),
            Err(error) => page.damaged.push(raw.damaged(&error)),
        }
    }
    Ok(page)
}

pub(crate) fn about_count(connection: &Connection) -> rusqlite::Result<u64> {
    let sql = "SELECT coalesce((SELECT max(seq) FROM hapax_record) - (SELECT min(seq) FROM hapax_record) + 1, 0)";
    let span: i64 = connection.prepare_cached(sql)?.query_row([], |row| row.get(0))?;
    Ok(u64::try_from(span).unwrap_or(0))
}
