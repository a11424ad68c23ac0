//! A backup put into the place of a store: [`Restore`].
//!
//! The new file is made beside its place, checked, and changed there as its owner wants (a fence, for one); it takes the place
//! of the old one in one step, so that nobody ever opens a restored store without its fence. From beginning to end the old
//! file is locked as SQLite itself locks it: no process that has it open goes unnoticed, and none can open it meanwhile. The
//! old file is kept under another name.
//!
//! Left to others: what is to be changed in the restored records.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hapax_core::address::Address;
use hapax_core::clock::{Clock, Now, StoreTime};
use hapax_core::codec;
use hapax_core::journal::{Journal, Note, NoteScan, Noted};
use hapax_core::record::{Record, Version};
use hapax_core::store::{Durability, ErrorKind, Health, Page, Scan, Seen, Store, StoreError, Swap};
use rusqlite::{Connection, OpenFlags};
use rustix::fs::{FlockOperation, fcntl_lock};

use crate::backup::{self, Contents, Partial};
use crate::options::Options;
use crate::rows::{self, Swaps, Write};
use crate::{durable, failure, notes, reader, schema};

/// A restore that has begun. Nothing is in place before [`Restore::finish`]; dropped before that, it leaves no trace.
pub struct Restore {
    to: PathBuf,
    partial: Partial,
    contents: Contents,
    store: Unplaced,
    old: Option<Old>,
}

/// The file that stands there, locked.
struct Old {
    lock: File,
    /// Its log could not be moved into it: it is damaged.
    damaged: bool,
}

impl Restore {
    /// Checks the backup, makes sure that nobody uses the store, and makes the new file. Blocks for as long as that takes.
    ///
    /// # Errors
    /// If the backup is not whole or not hapax's, or if another process has the store open.
    pub fn begin(backup: &Path, options: &Options) -> Result<Self, StoreError> {
        let to = options.path.clone();
        if backup::is_same_file(backup, &to) {
            return Err(backup::refused("restore", backup, "this is the store itself; name a backup"));
        }
        let source = backup::open_own(backup, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        backup::check_whole(&source, backup)?;
        let contents = backup::contents(&source, backup)?;
        check_place(&to)?;
        let old = Old::take(&to)?;
        let partial = Partial::create(&to)?;
        let copied = source.execute("VACUUM INTO ?1", [partial.name()?]);
        copied.map_err(|error| backup::at(&to, failure::of_statement("restore", error)))?;
        let store = Unplaced::open(&partial.path, Arc::clone(&options.clock))?;
        Ok(Self { to, partial, contents, store, old })
    }

    /// What the backup holds.
    #[must_use]
    pub fn contents(&self) -> &Contents {
        &self.contents
    }

    /// The restored records, before anybody else can see them.
    #[must_use]
    pub fn store(&self) -> &Unplaced {
        &self.store
    }

    /// Puts the file into its place. What stood there is kept beside it, with that ending. Returns the kept file's name.
    ///
    /// # Errors
    /// If the file system refuses. The old file is in its place then.
    pub fn finish(self, ending: &str) -> Result<Option<PathBuf>, StoreError> {
        let Self { to, partial, store, old, .. } = self;
        store.close()?;
        let kept = backup::beside(&to, ending);
        match &old {
            Some(old) => old.keep(&to, &kept, &partial)?,
            None => keep_leftovers(&to, &kept)?,
        }
        partial.place(&to, old.is_some())?;
        Ok(old.map(|_| kept))
    }
}

/// Where the file is gone and its log is not: SQLite would write the log of the old file into the new one.
fn keep_leftovers(to: &Path, kept: &Path) -> Result<(), StoreError> {
    for ending in ["-wal", "-journal"] {
        match std::fs::rename(backup::beside(to, ending), backup::beside(kept, ending)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(backup::io_error("restore", to, error));
            }
            _ => {}
        }
    }
    // An index into a log that is gone.
    let _ = std::fs::remove_file(backup::beside(to, "-shm"));
    Ok(())
}

impl Old {
    /// Locks the file, if there is one. Its log is moved into it first, so that it is complete by itself.
    fn take(to: &Path) -> Result<Option<Self>, StoreError> {
        if !to.exists() {
            return Ok(None);
        }
        let folded = if begins_as_a_database(to) { fold_log(to).map(|()| true) } else { Ok(false) };
        let damaged = match folded {
            Ok(folded) => !folded,
            Err(error) if failure::is_busy(&error) => return Err(in_use(to)),
            // That is why people restore.
            Err(_) => true,
        };
        let opened = OpenOptions::new().read(true).write(true).open(to);
        let lock = opened.map_err(|error| backup::io_error("restore", to, error))?;
        fcntl_lock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|_| in_use(to))?;
        if !damaged && log_of(to).is_some() {
            // Somebody came and went in between.
            return Err(in_use(to));
        }
        Ok(Some(Self { lock, damaged }))
    }

    fn keep(&self, to: &Path, kept: &Path, partial: &Partial) -> Result<(), StoreError> {
        let failed = |error| backup::io_error("restore", kept, error);
        let old = self.lock.metadata().map_err(failed)?;
        // Only root may give a file away; others own it already.
        let _ = std::os::unix::fs::chown(&partial.path, Some(old.uid()), Some(old.gid()));
        // Whoever shared it with a group goes on; nobody else reads answers, in the new file or in the old one.
        let private = std::fs::Permissions::from_mode(old.mode() & 0o770);
        std::fs::set_permissions(&partial.path, private.clone()).map_err(failed)?;
        std::fs::hard_link(to, kept).or_else(|_| self.copy(kept)).map_err(failed)?;
        std::fs::set_permissions(kept, private).map_err(failed)?;
        if self.damaged
            && let Some(log) = log_of(to)
        {
            std::fs::rename(log, backup::beside(kept, "-wal")).map_err(failed)?;
        }
        // An index into a log that is gone.
        let _ = std::fs::remove_file(backup::beside(to, "-shm"));
        Ok(())
    }
}

impl Old {
    /// Where the file system has no links. Read through the locked handle: closing another one would end the lock.
    fn copy(&self, kept: &Path) -> io::Result<()> {
        let mut copy = OpenOptions::new().write(true).create_new(true).mode(0o600).open(kept)?;
        io::copy(&mut &self.lock, &mut copy)?;
        copy.sync_all()
    }
}

/// SQLite is not let near anything else: it might throw the log away, which may be all that is left.
/// What can be read as another application's database is not replaced; what cannot be read is why people restore.
fn check_place(to: &Path) -> Result<(), StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let owner = || -> rusqlite::Result<(i32, i64)> {
        let connection = Connection::open_with_flags(to, flags)?;
        let owner: i32 = connection.query_row("PRAGMA application_id", [], |row| row.get(0))?;
        let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
        Ok((owner, tables))
    };
    match owner() {
        Ok((owner, tables)) if owner != schema::APPLICATION_ID && tables > 0 => {
            let message = "this is another application's database, and would be lost; name the store's own file";
            Err(backup::refused("restore", to, message))
        }
        _ => Ok(()),
    }
}

fn begins_as_a_database(path: &Path) -> bool {
    let mut begin = [0; 16];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut begin));
    read.is_ok() && begin == *b"SQLite format 3\0"
}

/// Moves the log into the file and removes it, which SQLite does only for the last one who has the file open.
/// What is moved must be on the disk first where it is.
fn fold_log(path: &Path) -> Result<(), StoreError> {
    let failed = |error| failure::of_statement("restore", error);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(failed)?;
    connection.busy_timeout(Duration::ZERO).map_err(failed)?;
    schema::leave_log_at_close(&connection, true)?;
    durable::log(&connection, path)?;
    let mode: String = connection.query_row("PRAGMA journal_mode = DELETE", [], |row| row.get(0)).map_err(failed)?;
    let busy = || rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY), None);
    if mode == "delete" { Ok(()) } else { Err(failed(busy())) }
}

fn log_of(path: &Path) -> Option<PathBuf> {
    let log = backup::beside(path, "-wal");
    std::fs::metadata(&log).is_ok_and(|metadata| metadata.len() > 0).then_some(log)
}

fn in_use(path: &Path) -> StoreError {
    let why = "another process has the store open; stop it first: it would go on with the old file";
    backup::at(path, StoreError::new("restore", ErrorKind::Unavailable, why))
}

/// Restored records that are not in their place yet, as a store. One caller at a time; durable once they are in place.
pub struct Unplaced {
    connection: Mutex<Connection>,
    time: Mutex<StoreTime>,
    clock: Arc<dyn Clock>,
}

impl Unplaced {
    fn open(path: &Path, clock: Arc<dyn Clock>) -> Result<Self, StoreError> {
        let options = Options::new(path);
        let mut connection = schema::connect(&options)?;
        schema::prepare(&mut connection, &options)?;
        let time = Mutex::new(schema::begin_time(&mut connection, &clock)?);
        // Nobody sees it before it is whole and synced.
        let set = connection.pragma_update(None, "synchronous", "OFF");
        set.map_err(|error| failure::of_statement("restore", error))?;
        Ok(Self { connection: Mutex::new(connection), time, clock })
    }

    fn now(&self) -> Now {
        let reading = self.clock.read();
        self.time.lock().unwrap_or_else(PoisonError::into_inner).now(reading)
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything into the file itself.
    fn close(self) -> Result<(), StoreError> {
        let connection = self.connection.into_inner().unwrap_or_else(PoisonError::into_inner);
        let folded = connection.query_row("PRAGMA journal_mode = DELETE", [], |_| Ok(()));
        folded.map_err(|error| failure::of_statement("restore", error))?;
        connection.close().map_err(|(_, error)| failure::of_statement("restore", error))
    }
}

impl Unplaced {
    fn write(&self, at: &Address, write: &Write) -> Result<Swap, StoreError> {
        let now = self.now();
        let connection = self.connection();
        let swapped = || {
            let transaction = connection.unchecked_transaction()?;
            let written = Swaps::new(&transaction).swap(write, now.at)?;
            transaction.commit()?;
            Ok(written)
        };
        swapped().map_err(|error| failure::of_statement("swap", error))?.into_swap_on(&connection, at, now)
    }
}

impl Store for Unplaced {
    async fn swap(&self, at: &Address, expect: Option<Version>, next: &Record) -> Result<Swap, StoreError> {
        self.write(at, &Write::new(at, expect, next))
    }

    async fn get(&self, at: &Address) -> Result<Seen, StoreError> {
        let row = rows::find_whole(&self.connection(), at.id()).map_err(|error| failure::of_statement("get", error))?;
        codec::seen(at, row.as_ref(), self.now(), "get")
    }

    async fn scan(&self, query: &Scan) -> Result<Page, StoreError> {
        reader::scan(&self.connection(), query, self.now())
    }

    async fn reap(&self, _limit: u32) -> Result<u32, StoreError> {
        Ok(0)
    }

    async fn health(&self) -> Result<Health, StoreError> {
        let clock = self.time.lock().unwrap_or_else(PoisonError::into_inner).health();
        Ok(Health { durability: Durability::None, clock })
    }
}

impl Journal for Unplaced {
    async fn swap_noted(
        &self,
        at: &Address,
        expect: Option<Version>,
        next: &Record,
        note: &Note,
    ) -> Result<Swap, StoreError> {
        note.check_limits()?;
        self.write(at, &Write::new(at, expect, next).noted(note))
    }

    async fn note(&self, note: &Note) -> Result<Now, StoreError> {
        note.check_limits()?;
        let now = self.now();
        let kept = notes::keep(&self.connection(), note, now.at);
        kept.map(|()| now).map_err(|error| failure::of_statement("note", error))
    }

    async fn notes(&self, query: &NoteScan) -> Result<Vec<Noted>, StoreError> {
        notes::find(&self.connection(), query).map_err(|error| failure::of_statement("notes", error))
    }
}
