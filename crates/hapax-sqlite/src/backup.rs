//! A copy of a file that is in use, and what a copy holds.
//!
//! A copy is made by SQLite from one read transaction: it is consistent however much is written meanwhile, and nobody
//! waits for it. It appears under its name when it is whole and on the disk, and not before.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use hapax_core::clock::Timestamp;
use hapax_core::record::State;
use hapax_core::store::{ErrorKind, StoreError};
use rusqlite::{Connection, OpenFlags, OptionalExtension};

use crate::whereabouts::identity_of;
use crate::{failure, schema};

/// How the names of files end that SQLite keeps beside a file.
const PARTS: [&str; 3] = ["-wal", "-shm", "-journal"];

const NOT_OWN: &str = "this is not a file of hapax's own, or was copied without the log (-wal) beside it; copy a store with \
                       `hapax store backup`, and back up an application's file by its own means";

/// What a file holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents {
    /// How many records are in each state that occurs.
    pub states: Vec<(State, u64)>,
    /// The latest moment it knows of. Whatever was written later is not in it.
    pub newest: Timestamp,
    /// Its size.
    pub bytes: u64,
}

/// Copies the file of a store, which may be in use, to a file that is not there yet; with `replace`, over one that is.
/// Blocks for as long as that takes.
///
/// # Errors
/// If the store is not there or not hapax's, the copy cannot be written, or its name is taken.
pub fn back_up(from: &Path, to: &Path, replace: bool) -> Result<Contents, StoreError> {
    let failed = |error| at(to, failure::of_statement("backup", error));
    let source = open_own(from, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    // A copy only looks: the log of a store that nobody uses is left to whoever starts on it next.
    schema::leave_log_at_close(&source, true)?;
    if is_same_file(from, to) {
        return Err(refused("backup", to, "this is the store itself; give another name"));
    }
    if is_beside(from, to) {
        return Err(refused("backup", to, "this is a part of the store, the log beside it; give another name"));
    }
    if !replace && to.exists() {
        return Err(refused("backup", to, "the file is there already; give another name, or replace it with --force"));
    }
    // SQLite would take it for the copy's own.
    if ["-wal", "-journal"].iter().any(|part| std::fs::metadata(beside(to, part)).is_ok_and(|log| log.len() > 0)) {
        return Err(refused("backup", to, "a log of another file lies beside this name; give another name"));
    }
    let partial = Partial::create(to)?;
    source.execute("VACUUM INTO ?1", [partial.name()?]).map_err(failed)?;
    let contents = contents(&open_own(&partial.path, OpenFlags::SQLITE_OPEN_READ_ONLY)?, &partial.path)?;
    partial.place(to, replace)?;
    Ok(contents)
}

/// What a file holds, after every page of it was checked.
///
/// # Errors
/// If it is not there, not hapax's, damaged, or of a release that this one cannot read.
pub fn inspect(path: &Path) -> Result<Contents, StoreError> {
    let connection = open_own(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    check_whole(&connection, path)?;
    contents(&connection, path)
}

/// A file of hapax's own that is there already.
pub(crate) fn open_own(path: &Path, flags: OpenFlags) -> Result<Connection, StoreError> {
    let failed = |error| at(path, failure::of_statement("open", error));
    if !path.exists() {
        return Err(refused("open", path, "there is no such file; check the name"));
    }
    let connection = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX).map_err(failed)?;
    connection.busy_timeout(std::time::Duration::from_secs(5)).map_err(failed)?;
    let owner: i32 = connection.query_row("PRAGMA application_id", [], |row| row.get(0)).map_err(failed)?;
    if owner != schema::APPLICATION_ID {
        return Err(refused("open", path, NOT_OWN));
    }
    Ok(connection)
}

/// Reads every page. A damaged backup restores nothing.
pub(crate) fn check_whole(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    let said: Result<String, _> = connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0));
    match said {
        Ok(said) if said == "ok" => Ok(()),
        Ok(said) => {
            let error = StoreError::new("verify", ErrorKind::Damaged, "the file is damaged; use another backup");
            Err(at(path, error.caused_by(said)))
        }
        Err(error) => Err(at(path, failure::of_statement("verify", error))),
    }
}

pub(crate) fn contents(connection: &Connection, path: &Path) -> Result<Contents, StoreError> {
    let read = || {
        let mut select =
            connection.prepare("SELECT state, count(*), max(stamped_at) FROM hapax_record GROUP BY state")?;
        let mut rows = select.query([])?;
        let (mut states, mut newest_ms) = (Vec::new(), 0_i64);
        while let Some(row) = rows.next()? {
            let count: i64 = row.get(1)?;
            newest_ms = newest_ms.max(row.get(2)?);
            if let Some(state) = State::from_number(row.get(0)?) {
                states.push((state, u64::try_from(count).unwrap_or(0)));
            }
        }
        let mark: Option<i64> = connection
            .query_row("SELECT value FROM hapax_meta WHERE name = 'high_water'", [], |row| row.get(0))
            .optional()?;
        Ok((states, newest_ms.max(mark.unwrap_or(0))))
    };
    let (states, newest_ms) = read().map_err(|error| at(path, failure::of_statement("inspect", error)))?;
    let bytes = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
    Ok(Contents { states, newest: Timestamp::from_ms(u64::try_from(newest_ms).unwrap_or(0)), bytes })
}

/// A file beside its place until it is whole. It is removed if it never is.
pub(crate) struct Partial {
    pub(crate) path: PathBuf,
}

impl Partial {
    /// An empty file that only this user may read: it will hold answers.
    pub(crate) fn create(place: &Path) -> Result<Self, StoreError> {
        let path = beside(place, &format!(".partial-{}", std::process::id()));
        let created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        created.map_err(|error| io_error("write", &path, error))?;
        Ok(Self { path })
    }

    pub(crate) fn name(&self) -> Result<&str, StoreError> {
        self.path.to_str().ok_or_else(|| refused("write", &self.path, "the name is not UTF-8; give another one"))
    }

    /// Gives it its name, once it is on the disk.
    pub(crate) fn place(self, to: &Path, replace: bool) -> Result<(), StoreError> {
        sync(&self.path)?;
        let placed = if replace { std::fs::rename(&self.path, to) } else { self.link(to) };
        placed.map_err(|error| io_error("write", to, error))?;
        drop(self);
        sync_directory_of(to)
    }

    /// A link never replaces what somebody else put there meanwhile. Not every file system has links.
    fn link(&self, to: &Path) -> io::Result<()> {
        match std::fs::hard_link(&self.path, to) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists && !to.exists() => {
                std::fs::rename(&self.path, to)
            }
            linked => linked,
        }
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        for ending in [""].into_iter().chain(PARTS) {
            // It has its name by now, or nobody wants it.
            let _ = std::fs::remove_file(beside(&self.path, ending));
        }
    }
}

pub(crate) fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

pub(crate) fn sync(path: &Path) -> Result<(), StoreError> {
    File::open(path).and_then(|file| file.sync_all()).map_err(|error| io_error("write", path, error))
}

pub(crate) fn sync_directory_of(path: &Path) -> Result<(), StoreError> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    sync(parent)
}

pub(crate) fn is_same_file(one: &Path, other: &Path) -> bool {
    identity_of(one).is_some() && identity_of(one) == identity_of(other)
}

/// Whether that is one of the files that SQLite keeps beside the store, or would be: by its name, or by whatever else leads
/// there.
fn is_beside(store: &Path, other: &Path) -> bool {
    let whole = |path: &Path| {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Some(parent.canonicalize().ok()?.join(path.file_name()?))
    };
    // SQLite follows a link to the store before it names what is beside it.
    let stores = [Some(store.to_owned()), store.canonicalize().ok()];
    let beside = stores.iter().flatten().flat_map(|store| PARTS.map(|part| beside(store, part)));
    let is_it = |part: PathBuf| is_same_file(&part, other) || (whole(&part).is_some() && whole(&part) == whole(other));
    beside.into_iter().any(is_it)
}

pub(crate) fn io_error(op: &'static str, path: &Path, error: io::Error) -> StoreError {
    let message = "the file cannot be written; check its directory, its rights and the space left";
    at(path, StoreError::new(op, ErrorKind::Unavailable, message).caused_by(error))
}

pub(crate) fn refused(op: &'static str, path: &Path, why: &str) -> StoreError {
    at(path, StoreError::new(op, ErrorKind::Invalid, why))
}

/// The same failure, naming the file.
pub(crate) fn at(path: &Path, error: StoreError) -> StoreError {
    let message = format!("{}: {}", path.display(), error.message);
    StoreError { message, ..error }
}
