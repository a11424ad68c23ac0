//! Whose file it is, which schema it has, and how it gets the one this release writes.
//!
//! Migrations are numbered, embedded, and run in one transaction each. A file says two things in `hapax_meta`: `schema`,
//! the newest migration it has had, and `min_reader`, the oldest release's schema that can still work with it. An old
//! binary goes on beside a new one as long as it is at least `min_reader`.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use hapax_core::clock::{Clock, StoreTime, Timestamp};
use hapax_core::store::{ErrorKind, StoreError};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension, Transaction, TransactionBehavior, params};

use crate::checkpoint::HURRY_PAGES;
use crate::options::Options;
use crate::{durable, failure};

/// "hapx": the application id of a file of hapax's own.
pub(crate) const APPLICATION_ID: i32 = 0x6861_7078;

/// One step of the schema.
struct Migration {
    number: i64,
    /// The oldest schema whose code still works once this has run.
    min_reader: i64,
    sql: &'static str,
}

const MIGRATIONS: &[Migration] = &[
    Migration { number: 1, min_reader: 1, sql: include_str!("migrations/0001_records.sql") },
    Migration { number: 2, min_reader: 1, sql: include_str!("migrations/0002_notes.sql") },
    Migration { number: 3, min_reader: 1, sql: include_str!("migrations/0003_due_by_state.sql") },
];

/// The schema this release reads and writes.
const SCHEMA: i64 = 3;

/// The oldest schema that this release can work with as it is. Whoever only looks does not migrate: that is for nodes to do.
const SCHEMA_MIN: i64 = 2;

/// A connection set up as every connection of this store is: durable, patient, its log moved by `checkpoint.rs`.
pub(crate) fn connect(options: &Options) -> Result<Connection, StoreError> {
    if !options.existing {
        create_private(&options.path);
    }
    let open = || {
        let connection = Connection::open_with_flags(&options.path, flags(options))?;
        connection.busy_timeout(options.busy_timeout)?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.pragma_update(None, "wal_autocheckpoint", 0)?;
        connection.pragma_update(None, "cache_size", -CACHE_KIB)?;
        connection.pragma_update(None, "journal_size_limit", LOG_BYTES)?;
        Ok(connection)
    };
    open().map_err(|error| failure::of_statement("open", error))
}

/// Whether the log stays as it is when this connection is closed. Otherwise the last one to be closed moves it into the file,
/// which nobody may do before the log is known to be on the disk.
pub(crate) fn leave_log_at_close(connection: &Connection, leave: bool) -> Result<(), StoreError> {
    let set = connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, leave);
    set.map(|_| ()).map_err(|error| failure::of_statement("open", error))
}

/// A new file is its owner's alone: it holds recorded answers. SQLite gives its log the same rights. Whatever is wrong with
/// the place is said by SQLite, which opens it next.
///
/// A link to a place where nothing is yet is followed. The file is opened only where this makes it: closing a handle of one that
/// is in use would end SQLite's locks on it.
fn create_private(path: &Path) {
    let mut place = path.to_owned();
    for _ in 0..LINKS_MAX {
        let Ok(target) = std::fs::read_link(&place) else { break };
        place = place.parent().unwrap_or(Path::new("")).join(target);
    }
    let _ = OpenOptions::new().write(true).create_new(true).mode(0o600).open(place);
}

/// As many as Linux follows.
const LINKS_MAX: usize = 40;

fn flags(options: &Options) -> OpenFlags {
    let mut flags = OpenFlags::default();
    flags.set(OpenFlags::SQLITE_OPEN_CREATE, !options.existing);
    flags
}

/// Page cache of each connection: the upper levels of the trees, some 6 MiB with ten million records, and the pages in use. The
/// rest is the host's, and a larger one costs more: SQLite walks its table of cached pages at nearly every commit, until the
/// file has 1 GiB.
const CACHE_KIB: i64 = 16 * 1024;

/// Of a log that became longer, no more than this stays on the disk.
const LOG_BYTES: i64 = HURRY_PAGES as i64 * 4096;

/// Makes the file ready: whose it is, write-ahead log, migrations. Returns the name of the store.
pub(crate) fn prepare(connection: &mut Connection, options: &Options) -> Result<Vec<u8>, StoreError> {
    let failed = |error| failure::of_statement("open", error);
    check_owner(connection, options)?;
    if options.existing {
        check_existing(connection)?;
    }
    let mode = to_wal_mode(connection).map_err(failed)?;
    if mode != "wal" {
        return Err(unsuitable("the file cannot be put into WAL mode; use a local file system and a file, not memory"));
    }
    durable::log(connection, &options.path)?;
    if let Some(bytes_max) = options.bytes_max {
        let page_bytes: i64 = connection.query_row("PRAGMA page_size", [], |row| row.get(0)).map_err(failed)?;
        let pages = i64::try_from(bytes_max).unwrap_or(i64::MAX) / page_bytes.max(1);
        connection.pragma_update(None, "max_page_count", pages.max(1)).map_err(failed)?;
    }
    let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
    migrate(&tx, options)?;
    let name =
        tx.query_row("SELECT value FROM hapax_meta WHERE name = 'store'", [], |row| row.get(0)).map_err(failed)?;
    tx.commit().map_err(failed)?;
    Ok(name)
}

/// Which mode the file is in then. The change is made, or fails, only after SQLite has said so: asked to its end.
fn to_wal_mode(connection: &Connection) -> rusqlite::Result<String> {
    let mut change = connection.prepare("PRAGMA journal_mode = WAL")?;
    let mut answers = change.query([])?;
    let mode = answers.next()?.map_or_else(|| Ok(String::new()), |row| row.get(0))?;
    while answers.next()?.is_some() {}
    Ok(mode)
}

fn check_owner(connection: &Connection, options: &Options) -> Result<(), StoreError> {
    let read = || {
        let owner: i32 = connection.query_row("PRAGMA application_id", [], |row| row.get(0))?;
        let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
        Ok((owner, tables))
    };
    match read().map_err(|error| failure::of_statement("open", error))? {
        (APPLICATION_ID, _) | (0, 0) => Ok(()),
        _ if options.guest => Ok(()),
        _ => Err(unsuitable(
            "the file is another application's SQLite database; give hapax a file of its own; a program can keep records \
             in it as a guest (Options::with_guest)",
        )),
    }
}

fn check_existing(connection: &Connection) -> Result<(), StoreError> {
    let sql = "SELECT count(*) FROM sqlite_schema WHERE name = 'hapax_meta'";
    match connection.query_row(sql, [], |row| row.get(0)).map_err(|error| failure::of_statement("open", error))? {
        0 => Err(unsuitable("the file holds no store; name the file that `hapax proxy` uses")),
        _ => Ok(()),
    }
}

fn migrate(tx: &Transaction<'_>, options: &Options) -> Result<(), StoreError> {
    let failed = |error| failure::of_statement("migrate", error);
    tx.execute_batch("CREATE TABLE IF NOT EXISTS hapax_meta (name TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID")
        .map_err(failed)?;
    let schema = read_number(tx, "schema").map_err(failed)?.unwrap_or(0);
    let min_reader = read_number(tx, "min_reader").map_err(failed)?.unwrap_or(0);
    if min_reader > SCHEMA {
        return Err(unsuitable(&format!(
            "the file has schema {schema} and needs a release that knows {min_reader}; this one knows {SCHEMA}: upgrade it"
        )));
    }
    if options.existing && schema >= SCHEMA_MIN {
        return Ok(());
    }
    if options.existing {
        return Err(unsuitable(&format!(
            "the file has schema {schema}, of an older release; start a node of this release on it first, which migrates it"
        )));
    }
    if schema == 0 && !options.guest {
        tx.pragma_update(None, "application_id", APPLICATION_ID).map_err(failed)?;
    }
    for migration in MIGRATIONS.iter().filter(|migration| migration.number > schema) {
        tx.execute_batch(migration.sql).map_err(failed)?;
        hapax_core::failpoint!("migration");
        write_number(tx, "schema", migration.number).map_err(failed)?;
        write_number(tx, "min_reader", migration.min_reader).map_err(failed)?;
    }
    tx.execute("INSERT OR IGNORE INTO hapax_meta (name, value) VALUES ('store', randomblob(16))", [])
        .map_err(failed)?;
    Ok(())
}

/// The time of this file: continued within one start of the host, else begun anew behind nothing it holds. Always commits: a
/// disk that cannot be written is noticed now.
pub(crate) fn begin_time(connection: &mut Connection, clock: &dyn Clock) -> Result<StoreTime, StoreError> {
    let mut begin = || {
        let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let boot: Option<String> =
            tx.query_row("SELECT value FROM hapax_meta WHERE name = 'boot'", [], |row| row.get(0)).optional()?;
        let offset_ms = read_number(&tx, "offset_ms")?;
        let this_boot = clock.boot_id();
        let time = match offset_ms.filter(|_| boot.as_ref() == Some(&this_boot)) {
            Some(offset_ms) => StoreTime::resume(clock.read(), offset_ms),
            None => {
                let mark = read_number(&tx, "high_water")?.and_then(|mark| u64::try_from(mark).ok());
                let skew_ms = read_number(&tx, "skew_ms")?.unwrap_or(0);
                StoreTime::start(clock.read(), mark.map(Timestamp::from_ms), skew_ms)
            }
        };
        tx.execute("INSERT OR REPLACE INTO hapax_meta (name, value) VALUES ('boot', ?1)", [&this_boot])?;
        // SQLite writes no page that stays as it was.
        tx.execute("INSERT OR REPLACE INTO hapax_meta (name, value) VALUES ('opened', randomblob(16))", [])?;
        write_number(&tx, "offset_ms", time.offset_ms())?;
        tx.commit()?;
        Ok(time)
    };
    begin().map_err(|error| failure::of_statement("open", error))
}

/// Remembers how far time has come, and how far it is from the wall clock, inside the writer's transaction.
pub(crate) fn keep_high_water(connection: &Connection, now: Timestamp, skew_ms: i64) -> rusqlite::Result<()> {
    write_number(connection, "high_water", i64::try_from(now.as_ms()).unwrap_or(i64::MAX))?;
    write_number(connection, "skew_ms", skew_ms)
}

fn read_number(connection: &Connection, name: &str) -> rusqlite::Result<Option<i64>> {
    connection.query_row("SELECT value FROM hapax_meta WHERE name = ?1", [name], |row| row.get(0)).optional()
}

fn write_number(connection: &Connection, name: &str, value: i64) -> rusqlite::Result<()> {
    connection
        .prepare_cached("INSERT OR REPLACE INTO hapax_meta (name, value) VALUES (?1, ?2)")?
        .execute(params![name, value])
        .map(|_| ())
}

fn unsuitable(message: &str) -> StoreError {
    StoreError::new("open", ErrorKind::Unsuitable, message)
}

#[cfg(test)]
mod tests;
