//! Files of older schemas, with records in them: what this release makes of them, and whether the release that wrote them
//! can go on beside it.
//!
//! The statements of the older releases stand here as they had them: they are what `min_reader` promises will work.

use std::path::{Path, PathBuf};

use hapax_core::address::{Address, AddressScheme, Key, Scope, Space};
use hapax_core::codec;
use hapax_core::fingerprint::{Fingerprint, Scheme};
use hapax_core::journal::{About, Journal, Note, NoteScan};
use hapax_core::record::{Body, Outcome, Policy, Record, State, Stored, Version};
use hapax_core::store::{Due, Scan, Store, Swap};
use rusqlite::types::Value;

use super::*;
use crate::Sqlite;

/// The first schema with notes.
const WITH_NOTES: i64 = 2;

/// When the records were written; all that is due and expires does so by the seconds after it.
const WRITTEN: Timestamp = Timestamp::from_ms(1_000_000);

/// The statements of the releases of schema 1 and 2.
mod old {
    pub(super) const TAKE: &str = "INSERT INTO hapax_place (id, seq) VALUES (?1, ?2) ON CONFLICT DO NOTHING";
    pub(super) const END: &str = "SELECT coalesce(max(seq), 0) + 1 FROM hapax_record";
    pub(super) const ADD: &str = "INSERT INTO hapax_record
             (seq, version, state, stamped_at, due_at, reap_at, id, scheme, space, scope, key, data)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";
    pub(super) const REPLACE: &str = "UPDATE hapax_record
             SET version = ?3, state = ?4, stamped_at = ?5, due_at = ?6, reap_at = ?7, data = ?8
             WHERE seq = (SELECT seq FROM hapax_place WHERE id = ?1) AND version = ?2";
    pub(super) const FIND: &str =
        "SELECT id, scheme, space, scope, key, version, state, stamped_at, due_at, reap_at, data
             FROM hapax_record WHERE seq = (SELECT seq FROM hapax_place WHERE id = ?1)";
    pub(super) const DUE: &str = "SELECT coalesce(due_at, -1), seq, id, scheme, space, scope, key, version, state, \
             stamped_at, due_at, reap_at, data FROM hapax_record INDEXED BY hapax_due
             WHERE (due_at IS NOT NULL OR state < 5) AND coalesce(due_at, -1) BETWEEN ?1 AND ?3
               AND (coalesce(due_at, -1) > ?1 OR seq > ?2)
             ORDER BY coalesce(due_at, -1), seq";
    pub(super) const EXPIRED: &str = "SELECT seq, id FROM hapax_record WHERE reap_at <= ?1 ORDER BY reap_at LIMIT ?2";
    pub(super) const FORGET: &str = "DELETE FROM hapax_place WHERE id = ?1";
    pub(super) const DELETE: &str = "DELETE FROM hapax_record WHERE seq = ?1";
    pub(super) const NOTE: &str =
        "INSERT INTO hapax_note (at, who, what, id, scope, key, attempt, before, after, reason, detail)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";
    pub(super) const NOTES: &str =
        "SELECT number, at, who, what, id, scope, key, attempt, before, after, reason, detail FROM hapax_note
             WHERE id = ?1 AND number < ?2 ORDER BY number DESC LIMIT ?3";
}

/// A file as the release of that schema leaves it, and a connection of that release.
struct Old {
    path: PathBuf,
    connection: Connection,
    _dir: tempfile::TempDir,
}

impl Old {
    /// With a record of every state, due and not, and where there can be one, a note about the first.
    fn new(schema: i64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hapax.db");
        let connection = Connection::open(&path).unwrap();
        let _: String = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)).unwrap();
        connection.pragma_update(None, "application_id", APPLICATION_ID).unwrap();
        connection
            .execute_batch("CREATE TABLE hapax_meta (name TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID")
            .unwrap();
        for migration in MIGRATIONS.iter().filter(|migration| migration.number <= schema) {
            connection.execute_batch(migration.sql).unwrap();
        }
        write_number(&connection, "schema", schema).unwrap();
        write_number(&connection, "min_reader", 1).unwrap();
        connection.execute("INSERT INTO hapax_meta (name, value) VALUES ('store', zeroblob(16))", []).unwrap();
        let old = Self { path, connection, _dir: dir };
        for (at, record) in records() {
            assert!(old.insert(&at, &record));
        }
        if schema >= WITH_NOTES {
            old.note(&records()[0].0, "before the migration");
        }
        old
    }

    fn insert(&self, at: &Address, record: &Record) -> bool {
        let seq: i64 = self.connection.prepare_cached(old::END).unwrap().query_row([], |row| row.get(0)).unwrap();
        let id = at.id().as_bytes();
        if self.connection.prepare_cached(old::TAKE).unwrap().execute(params![id, seq]).unwrap() == 0 {
            return false;
        }
        let [due_at, reap_at] = [record.due_in_ms, record.reap_in_ms()].map(column_in);
        let row = params![
            seq,
            record.version.as_bytes(),
            record.state.number(),
            codec::column(Some(WRITTEN)),
            due_at,
            reap_at,
            id,
            at.scheme().as_str(),
            at.space().as_str(),
            at.scope().as_str(),
            at.key().as_str(),
            codec::encode(at.id(), record),
        ];
        self.connection.prepare_cached(old::ADD).unwrap().execute(row).unwrap() == 1
    }

    fn update(&self, at: &Address, expect: Version, record: &Record) -> bool {
        let [due_at, reap_at] = [record.due_in_ms, record.reap_in_ms()].map(column_in);
        let row = params![
            at.id().as_bytes(),
            expect.as_bytes(),
            record.version.as_bytes(),
            record.state.number(),
            codec::column(Some(WRITTEN)),
            due_at,
            reap_at,
            codec::encode(at.id(), record),
        ];
        self.connection.prepare_cached(old::REPLACE).unwrap().execute(row).unwrap() == 1
    }

    fn find(&self, at: &Address) -> Vec<Vec<Value>> {
        rows(&self.connection, old::FIND, &[&at.id().as_bytes()])
    }

    /// What is unfinished or due, in the order in which somebody must look.
    fn due(&self) -> Vec<Vec<Value>> {
        rows(&self.connection, old::DUE, &[&i64::MIN, &i64::MIN, &i64::MAX])
    }

    fn reap(&self) -> usize {
        let expired = rows(&self.connection, old::EXPIRED, &[&i64::MAX, &100]);
        for row in &expired {
            assert_eq!(self.connection.prepare_cached(old::FORGET).unwrap().execute([&row[1]]).unwrap(), 1);
            assert_eq!(self.connection.prepare_cached(old::DELETE).unwrap().execute([&row[0]]).unwrap(), 1);
        }
        expired.len()
    }

    fn note(&self, at: &Address, reason: &str) {
        let (id, scope, key) = (at.id().as_bytes(), at.scope().as_str(), at.key().as_str());
        let row = params![7, "ann", "resolve", id, scope, key, 1, 3, 5, reason, "status 201"];
        self.connection.prepare_cached(old::NOTE).unwrap().execute(row).unwrap();
    }

    fn notes(&self, at: &Address) -> Vec<Vec<Value>> {
        rows(&self.connection, old::NOTES, &[&at.id().as_bytes(), &i64::MAX, &100])
    }
}

/// A column of that many milliseconds after the records were written.
fn column_in(ms: Option<u64>) -> Option<i64> {
    codec::column(ms.map(|ms| WRITTEN.plus_ms(ms)))
}

fn rows(connection: &Connection, sql: &str, values: &[&dyn rusqlite::ToSql]) -> Vec<Vec<Value>> {
    let mut statement = connection.prepare_cached(sql).unwrap();
    let columns = statement.column_count();
    let read = |row: &rusqlite::Row<'_>| (0..columns).map(|at| row.get(at)).collect();
    statement.query_map(values, read).unwrap().collect::<rusqlite::Result<_>>().unwrap()
}

fn address(key: &str) -> Address {
    let (space, scope) = (Space::new("http").unwrap(), Scope::new("alice").unwrap());
    Address::new(&AddressScheme::default(), &space, &scope, &Key::new(key).unwrap())
}

fn record(version: u8, state: State, due_in_ms: Option<u64>) -> Record {
    let fingerprint = Fingerprint { scheme: Scheme::new("1;sha256").unwrap(), digest: [7; 32] };
    let finished = !state.is_unfinished();
    let body = Body::Kept(format!("answer {version}").into_bytes());
    let outcome = Outcome { status: 201, headers: vec![(b"x".to_vec(), vec![version])], body };
    Record {
        attempt: 1,
        due_in_ms,
        expires_in_ms: finished.then_some(5_000 + u64::from(version)),
        outcome: (state == State::Completed).then(|| outcome.into()),
        ..Record::new(Version::from_bytes([version; 16]), state, fingerprint, Policy::default())
    }
}

/// Of every state one that is never due and one that is, later ones earlier.
fn records() -> Vec<(Address, Record)> {
    let all = State::ALL.into_iter().flat_map(|state| [(state, false), (state, true)]);
    all.zip(1_u8..)
        .map(|((state, is_due), version)| {
            let due_in_ms = is_due.then_some(1_000 - u64::from(version));
            (address(&format!("{state}-{version}")), record(version, state, due_in_ms))
        })
        .collect()
}

/// Every row of the records and notes, whatever is in it.
fn contents(connection: &Connection, schema: i64) -> Vec<Vec<Value>> {
    let mut all = rows(connection, "SELECT * FROM hapax_place ORDER BY id", &[]);
    all.extend(rows(connection, "SELECT * FROM hapax_record ORDER BY seq", &[]));
    if schema >= WITH_NOTES {
        all.extend(rows(connection, "SELECT * FROM hapax_note ORDER BY number", &[]));
    }
    all
}

/// Tables, indexes and triggers, in SQLite's own words.
fn layout(connection: &Connection) -> Vec<Vec<Value>> {
    rows(connection, "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name", &[])
}

fn layout_of_a_new_file() -> Vec<Vec<Value>> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("hapax.db");
    drop(open(&path));
    layout(&Connection::open(&path).unwrap())
}

fn open(path: &Path) -> Sqlite {
    Sqlite::open(Options::new(path)).unwrap()
}

/// Every record of the file, as it was written.
async fn assert_all_are_there(store: &Sqlite) {
    for (at, record) in records() {
        let stored = store.get(&at).await.unwrap().stored;
        assert_eq!(stored, Some(Stored { record, stamped_at: WRITTEN }), "{:?}", at.key());
    }
    let page = store.scan(&Scan { limit: 100, ..Scan::default() }).await.unwrap();
    assert_eq!((page.entries.len(), page.damaged.len()), (records().len(), 0));
}

/// The keys that this release finds by their due time, in order.
async fn due_keys(store: &Sqlite) -> Vec<String> {
    let query = Scan { due: Some(Due::Now), limit: 100, ..Scan::default() };
    let page = store.scan(&query).await.unwrap();
    page.entries.iter().map(|entry| entry.address.key().as_str().to_owned()).collect()
}

/// The reasons of the notes about a record, newest first.
async fn reasons(store: &Sqlite, at: &Address) -> Vec<String> {
    let query = NoteScan { about: Some(*at.id()), limit: 100, ..NoteScan::default() };
    store.notes(&query).await.unwrap().into_iter().map(|noted| noted.note.reason).collect()
}

fn note(at: &Address, reason: &str) -> Note {
    let [who, what, reason, detail] = ["bob", "purge", reason, ""].map(str::to_owned);
    Note { who, what, about: Some(About::new(at, 1)), before: None, after: None, reason, detail }
}

#[test]
fn migrations_are_numbered_without_a_gap_and_let_their_own_release_read() {
    let numbers: Vec<i64> = MIGRATIONS.iter().map(|migration| migration.number).collect();
    assert_eq!(numbers, (1..=SCHEMA).collect::<Vec<_>>());
    assert!(MIGRATIONS.iter().all(|migration| (1..=migration.number).contains(&migration.min_reader)));
    assert!(MIGRATIONS.is_sorted_by_key(|migration| migration.min_reader));
}

#[tokio::test]
async fn a_file_of_an_older_schema_keeps_every_record_and_gets_the_indexes_of_a_new_one() {
    for schema in 1..SCHEMA {
        let old = Old::new(schema);
        let before = contents(&old.connection, schema);
        assert_ne!(layout(&old.connection), layout_of_a_new_file());
        let store = open(&old.path);
        assert_eq!(contents(&old.connection, schema), before, "schema {schema}");
        assert_eq!(layout(&old.connection), layout_of_a_new_file(), "schema {schema}");
        let whole = rows(&old.connection, "PRAGMA integrity_check", &[]);
        assert_eq!(whole, [[Value::Text("ok".to_owned())]], "every index has what the tables have");
        assert_eq!(read_number(&old.connection, "schema").unwrap(), Some(SCHEMA));
        let name = rows(&old.connection, "SELECT value FROM hapax_meta WHERE name = 'store'", &[]);
        assert_eq!(name, [[Value::Blob(vec![0; 16])]], "it is the same store");
        assert_all_are_there(&store).await;
        let due: Vec<_> = records().into_iter().filter(|(_, record)| record.due_in_ms.is_some()).collect();
        let keys: Vec<_> = due.iter().rev().map(|(at, _)| at.key().as_str().to_owned()).collect();
        assert_eq!(due_keys(&store).await, keys, "schema {schema}");
        let noted = if schema >= WITH_NOTES { vec!["before the migration"] } else { vec![] };
        assert_eq!(reasons(&store, &records()[0].0).await, noted);
        drop(store);
        open(&old.path);
        assert_eq!(contents(&old.connection, schema), before, "once more changes nothing");
    }
}

/// An older release starts on a file if it is not older than `min_reader`, and never looks again.
fn starts(connection: &Connection, schema: i64) -> bool {
    read_number(connection, "min_reader").unwrap() <= Some(schema)
}

#[tokio::test]
async fn a_release_of_an_older_schema_goes_on_beside_this_one() {
    for schema in 1..SCHEMA {
        // Its statements are prepared before the migration, and go on after it.
        let old = Old::new(schema);
        let (first, held) = records().swap_remove(0);
        let (due, found) = (old.due(), old.find(&first));
        assert_eq!((due.len(), found.len()), (10, 1), "what is unfinished, and what is due of the rest");
        let store = open(&old.path);
        assert!(starts(&old.connection, schema), "a release that starts now does not refuse the file");
        assert_eq!((old.due(), old.find(&first)), (due, found), "the same records in the same order");

        let at = address("written by the old one");
        let running = record(90, State::Running, Some(1));
        assert!(old.insert(&at, &running) && !old.insert(&at, &running));
        assert_eq!(store.get(&at).await.unwrap().stored.unwrap().record, running);
        assert!(due_keys(&store).await.contains(&at.key().as_str().to_owned()));
        assert!(matches!(store.swap(&at, None, &running).await.unwrap(), Swap::Lost(_)));
        let completed = record(91, State::Completed, None);
        assert!(old.update(&at, running.version, &completed) && !old.update(&at, running.version, &completed));
        assert_eq!(store.get(&at).await.unwrap().stored.unwrap().record, completed);
        assert!(!due_keys(&store).await.contains(&at.key().as_str().to_owned()));

        let next = record(92, State::Dead, None);
        assert!(matches!(store.swap(&first, Some(held.version), &next).await.unwrap(), Swap::Applied(_)));
        assert_eq!(old.find(&first)[0][5], Value::Blob(vec![92; 16]), "what the new one writes, the old one finds");
        assert!(!old.update(&first, held.version, &next), "and does not overwrite");
        assert_eq!(old.reap(), 5, "both completed ones, both expired ones, and its own");
        assert!(store.get(&at).await.unwrap().stored.is_none());
        assert_eq!(rows(&old.connection, "PRAGMA integrity_check", &[]), [[Value::Text("ok".to_owned())]]);
    }
}

#[tokio::test]
async fn a_release_that_knows_notes_writes_and_reads_them_beside_this_one() {
    for schema in WITH_NOTES..SCHEMA {
        let old = Old::new(schema);
        let (at, _) = records().swap_remove(0);
        let store = open(&old.path);
        old.note(&at, "by the old one");
        store.note(&note(&at, "by the new one")).await.unwrap();
        let expected = ["by the new one", "by the old one", "before the migration"];
        assert_eq!(reasons(&store, &at).await, expected);
        let read: Vec<Value> = old.notes(&at).into_iter().map(|mut row| row.swap_remove(10)).collect();
        assert_eq!(read, expected.map(|reason| Value::Text(reason.to_owned())));
    }
}

#[tokio::test]
async fn whoever_only_looks_uses_an_older_schema_as_it_is_or_refuses_it() {
    for schema in 1..SCHEMA {
        let old = Old::new(schema);
        let (before, layout_before) = (contents(&old.connection, schema), layout(&old.connection));
        let opened = Sqlite::open(Options::new(&old.path).with_existing());
        if schema < WITH_NOTES {
            let message = format!(
                "open: {}: the file has schema {schema}, of an older release; start a node of this release on it first, \
                 which migrates it",
                old.path.display()
            );
            assert_eq!(opened.unwrap_err().to_string(), message);
        } else {
            let store = opened.unwrap();
            assert_all_are_there(&store).await;
            let looked = due_keys(&store).await;
            assert_eq!(reasons(&store, &records()[0].0).await, ["before the migration"]);
            assert_eq!(looked, due_keys(&open(&Old::new(schema).path)).await, "as after a migration");
        }
        assert_eq!((contents(&old.connection, schema), layout(&old.connection)), (before, layout_before));
        assert_eq!(read_number(&old.connection, "schema").unwrap(), Some(schema), "nothing was migrated");
    }
}

#[test]
fn a_newer_file_is_used_up_to_its_min_reader_and_its_numbers_are_not_set_back() {
    for existing in [false, true] {
        let old = Old::new(SCHEMA);
        let mut options = Options::new(&old.path);
        options.existing = existing;
        write_number(&old.connection, "schema", SCHEMA + 2).unwrap();
        write_number(&old.connection, "min_reader", SCHEMA).unwrap();
        let (before, layout_before) = (contents(&old.connection, SCHEMA), layout(&old.connection));
        drop(Sqlite::open(&options).unwrap());
        let numbers = |name| read_number(&old.connection, name).unwrap();
        assert_eq!((numbers("schema"), numbers("min_reader")), (Some(SCHEMA + 2), Some(SCHEMA)));

        write_number(&old.connection, "min_reader", SCHEMA + 1).unwrap();
        let error = Sqlite::open(&options).unwrap_err();
        let expected = format!(
            "the file has schema {} and needs a release that knows {}; this one knows {SCHEMA}: upgrade it",
            SCHEMA + 2,
            SCHEMA + 1
        );
        assert_eq!(error.to_string(), format!("open: {}: {expected}", old.path.display()));
        assert_eq!((contents(&old.connection, SCHEMA), layout(&old.connection)), (before, layout_before));
    }
}
