//! Looking without an address, for people: by the first digits of an id, how many records there are, and what they take.
//!
//! All read an index and never the table. What a store must be able to do for hapax itself is in `reader.rs`.

use std::path::Path;

use hapax_core::address::Id;
use hapax_core::clock::Now;
use hapax_core::journal::{NoteScan, Noted};
use hapax_core::limits::PAGE_ENTRIES_MAX;
use hapax_core::store::{Entry, ErrorKind, Page, StoreError};
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

    /// How many records there are exactly, up to `most`: reads as much of an index.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub async fn count_up_to(&self, most: u64) -> Result<u64, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.ask(Question::CountUpTo { most, reply }, "count").await?;
        answer.await.map_err(|_| failure::stopped("count"))?
    }

    /// How many bytes the file and its log take, without what is free inside the file; and of the disk they are on, how many
    /// are free, and how many there are in all.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub async fn measure(&self) -> Result<Measured, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.ask(Question::Measure { path: self.path().to_owned(), reply }, "measure").await?;
        answer.await.map_err(|_| failure::stopped("measure"))?
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

/// What a store takes, and what is left for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// The file without its free pages, and its log.
    pub bytes: u64,
    /// Left on the disk for whoever is not its administrator.
    pub disk_free: u64,
    /// The whole disk.
    pub disk_size: u64,
}

pub(crate) fn measure(connection: &Connection, path: &Path) -> Result<Measured, StoreError> {
    let failed = |error| failure::of_statement("measure", error);
    let number = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0)).map_err(failed);
    let pages = number("PRAGMA page_count")?.saturating_sub(number("PRAGMA freelist_count")?);
    let file = pages.saturating_mul(number("PRAGMA page_size")?);
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let log = std::fs::metadata(&log).map_or(0, |metadata| metadata.len());
    // A file that was moved away is on the same disk, as a rule, and others tell of it.
    let disk = rustix::fs::statvfs(path).or_else(|_| rustix::fs::statvfs(directory_of(path))).map_err(|error| {
        StoreError::new("measure", ErrorKind::Unavailable, "the system does not say how much of the disk is free")
            .caused_by(error)
    })?;
    Ok(Measured {
        bytes: u64::try_from(file).unwrap_or(0).saturating_add(log),
        disk_free: disk.f_bavail.saturating_mul(disk.f_frsize),
        disk_size: disk.f_blocks.saturating_mul(disk.f_frsize),
    })
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

pub(crate) fn count_up_to(connection: &Connection, most: u64) -> rusqlite::Result<u64> {
    let sql = "SELECT count(*) FROM (SELECT 1 FROM hapax_place LIMIT ?1)";
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    let count: i64 = connection.prepare_cached(sql)?.query_row([most], |row| row.get(0))?;
    Ok(u64::try_from(count).unwrap_or(0))
}

pub(crate) fn about_count(connection: &Connection) -> rusqlite::Result<u64> {
    let sql = "SELECT coalesce((SELECT max(seq) FROM hapax_record) - (SELECT min(seq) FROM hapax_record) + 1, 0)";
    let span: i64 = connection.prepare_cached(sql)?.query_row([], |row| row.get(0))?;
    Ok(u64::try_from(span).unwrap_or(0))
}
