//! The log, and what was copied from it into the file, put on the disk once more: at every start, before anything is built on
//! either.
//!
//! When a sync fails, Linux marks the pages that it could not write as clean and keeps their new bytes in its cache. A
//! process that starts afterwards reads them there as if they had been written, and no later sync writes them. Built upon, they
//! are a hole: after a power loss everything behind it is gone. The process that met the failure may leave no mark of it, so
//! every start acts as if there had been one.
//!
//! - **The log.** [`log`] writes its bytes back to themselves, which makes every page of it dirty, and syncs it and its
//!   directory. The write lock keeps other writers out; nothing changes. Only then does anybody read it to build upon it.
//! - **The file.** Pages reach it by copies of the log (checkpoints), and SQLite copies none a second time that it remembers as
//!   copied. It remembers it in the `-shm`, which is made anew when the first process opens the file, and lives on while any
//!   process, be it one that only looks, has it open. So [`file`] copies what is left, which leaves nobody else anything to
//!   write to the file while the write lock is held, and then, where anything was copied before this process opened the
//!   file, writes every page of the log to the file by itself, and syncs it. Until that was possible, the log is not
//!   started over.
//!
//! A second process that lives through the failure of the first: it sees no commit whose sync failed, because SQLite shows a
//! commit to others only after its sync. Its own descriptors of log and file were opened before the failure, so Linux
//! reports that failure to its next sync of each as well, and it stops, too. Where it has synced nothing since and ends, what
//! it had acknowledged was on the disk before.
//!
//! The handle of the file that [`file`] uses is never closed: closing any handle of a file ends all locks that its process has
//! on it, SQLite's as well. The log has no locks.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use hapax_core::store::{ErrorKind, StoreError};
use rusqlite::{Connection, ErrorCode};

use crate::backup::{at, beside, sync_directory_of};
use crate::failure;
use crate::whereabouts::identity_of;

/// Written at a time.
const CHUNK_BYTES: usize = 1024 * 1024;

/// The log beside a file, if there is anything in it. SQLite follows a link to the file before it names the log.
pub(crate) fn log_of(path: &Path) -> Option<PathBuf> {
    let log = beside(&path.canonicalize().ok()?, "-wal");
    std::fs::metadata(&log).is_ok_and(|metadata| metadata.len() > 0).then_some(log)
}

/// Puts the log on the disk, whatever the host believes is there. The connection is in no transaction.
pub(crate) fn log(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    let Some(log) = log_of(path) else { return Ok(()) };
    while_nobody_writes(connection, || {
        rewrite(&log).map_err(|error| failed_again(&log, error))?;
        sync_directory_of(&log)
    })?;
    check_log(connection, &log)
}

/// Whether the log is the one that SQLite has read: between that and the rewriting the host may have dropped a page which it
/// took for clean, and with it what was never written. What SQLite has in mind then must not be built upon.
fn check_log(connection: &Connection, log: &Path) -> Result<(), StoreError> {
    for _ in 0..CHECKS_MAX {
        let frames = checkpoint(connection, "NOOP").map_err(|error| failure::of_statement("open", error))?.frames;
        let file = File::open(log).map_err(|error| failed_again(log, error))?;
        // Shorter than that is another log.
        if frames == 0 || matches!(Pages::read(&file, frames), Ok(Some(_))) {
            return Ok(());
        }
    }
    Err(changed(log))
}

/// Another process may start the log over between the question and the look.
const CHECKS_MAX: usize = 3;

/// How far the log is copied into the file.
struct Copied {
    is_busy: bool,
    frames: u32,
    copied: u32,
}

/// `NOOP` copies nothing. An SQLite that does not know it yet copies what it can, which is as good: `copied` is what counts.
fn checkpoint(connection: &Connection, mode: &str) -> rusqlite::Result<Copied> {
    connection.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |row| {
        let count = |at| row.get::<_, i64>(at).map(|count| u32::try_from(count).unwrap_or(0));
        Ok(Copied { is_busy: count(0)? != 0, frames: count(1)?, copied: count(2)? })
    })
}

/// Whether a process before this one has copied any of the log that is in use, as far as those who live remember. What is
/// copied after this process has opened the file fails before its eyes: Linux tells it.
pub(crate) fn is_begun(connection: &Connection) -> Result<bool, StoreError> {
    let copied = checkpoint(connection, "NOOP").map_err(|error| failure::of_statement("open", error))?;
    Ok(copied.copied > 0)
}

/// Holds the write lock meanwhile, and changes nothing by it.
pub(crate) fn while_nobody_writes<T>(
    connection: &Connection,
    work: impl FnOnce() -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let failed = |error| failure::of_statement("open", error);
    connection.execute_batch("BEGIN IMMEDIATE").map_err(failed)?;
    let done = work();
    connection.execute_batch("ROLLBACK").map_err(failed)?;
    done
}

fn rewrite(log: &Path) -> io::Result<()> {
    let file = OpenOptions::new().read(true).write(true).open(log)?;
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut offset = 0;
    loop {
        let read = file.read_at(&mut chunk, offset)?;
        let Some(bytes) = chunk.get(..read).filter(|bytes| !bytes.is_empty()) else { break };
        file.write_all_at(bytes, offset)?;
        offset += read as u64;
    }
    file.sync_data()
}

/// Puts the whole log into the file and the file on the disk. False: somebody reads an old state of the file, or there is no
/// room for it, and SQLite cannot copy all; try again later. Somebody holds the write lock, on another connection.
/// With `again`, also what SQLite remembers as copied: that needs a handle of the file which stays open.
pub(crate) fn file(connection: &Connection, path: &Path, again: bool) -> Result<bool, StoreError> {
    let Copied { is_busy, frames, copied } = match checkpoint(connection, "PASSIVE") {
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::DiskFull) => return Ok(false),
        copied => copied.map_err(|error| failure::of_statement("open", error))?,
    };
    if is_busy || copied < frames {
        return Ok(false);
    }
    if again && frames > 0 {
        copy_again(path, frames)?;
    }
    Ok(true)
}

/// Writes every page of the log to the file, and syncs it.
fn copy_again(path: &Path, frames: u32) -> Result<(), StoreError> {
    let Some(log_path) = log_of(path) else { return Err(changed(path)) };
    let failed = |error| failed_again(path, error);
    let log = File::open(&log_path).map_err(failed)?;
    let Some(pages) = Pages::read(&log, frames).map_err(failed)? else { return Err(changed(&log_path)) };
    let file = held_open(path).map_err(failed)?;
    let mut page = vec![0; pages.page_bytes];
    for (number, offset) in pages.newest {
        log.read_exact_at(&mut page, offset).map_err(failed)?;
        file.write_all_at(&page, u64::from(number - 1) * page.len() as u64).map_err(failed)?;
    }
    file.sync_data().map_err(failed)
}

/// Files whose handles must stay open for as long as this process may have locks on them. One for each file.
static HELD: Mutex<BTreeMap<(u64, u64), Arc<File>>> = Mutex::new(BTreeMap::new());

fn held_open(path: &Path) -> io::Result<Arc<File>> {
    let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
    let identity = identity_of(path).ok_or(io::ErrorKind::NotFound)?;
    if let Some(file) = held.get(&identity) {
        return Ok(Arc::clone(file));
    }
    let file = Arc::new(OpenOptions::new().read(true).write(true).open(path)?);
    held.insert(identity, Arc::clone(&file));
    Ok(file)
}

/// Where the newest state of each page is in a log.
struct Pages {
    page_bytes: usize,
    /// The offset in the log by the number of the page.
    newest: BTreeMap<u32, u64>,
}

const LOG_HEADER: usize = 32;
const FRAME_HEADER: usize = 24;

/// What a log begins with; the last bit says in which order the bytes of checksums are read.
const LOG_MAGIC: u32 = 0x377f_0682;

impl Pages {
    /// Reads so many frames, and checks that each is what SQLite wrote after the one before. `None`: they are not.
    fn read(log: &File, frames: u32) -> io::Result<Option<Self>> {
        let mut header = [0; LOG_HEADER];
        log.read_exact_at(&mut header, 0)?;
        let (magic, page_bytes) = (word(&header, 0), word(&header, 8) as usize);
        let big_endian = magic & 1 == 1;
        let mut sum = Checksum { big_endian, sum: (0, 0) };
        sum.add(header.get(..24).unwrap_or_default());
        if magic & !1 != LOG_MAGIC || !page_bytes.is_power_of_two() || !sum.is_at(&header, 24) {
            return Ok(None);
        }
        let salts = [word(&header, 16), word(&header, 20)];
        let mut frame = vec![0; FRAME_HEADER + page_bytes];
        let (mut newest, mut size) = (BTreeMap::new(), 0);
        for number in 0..u64::from(frames) {
            let offset = LOG_HEADER as u64 + number * frame.len() as u64;
            log.read_exact_at(&mut frame, offset)?;
            sum.add(frame.get(..8).unwrap_or_default());
            sum.add(frame.get(FRAME_HEADER..).unwrap_or_default());
            let page = word(&frame, 0);
            if page == 0 || [word(&frame, 8), word(&frame, 12)] != salts || !sum.is_at(&frame, 16) {
                return Ok(None);
            }
            newest.insert(page, offset + FRAME_HEADER as u64);
            // The last frame of a commit says how many pages the file has then.
            size = if word(&frame, 4) == 0 { size } else { word(&frame, 4) };
        }
        newest.retain(|page, _| *page <= size);
        Ok(Some(Self { page_bytes, newest }))
    }
}

/// A number in the log's header or a frame's: big-endian.
fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|bytes| bytes.first_chunk()).map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

/// SQLite's checksum of a log, which goes on from frame to frame.
struct Checksum {
    big_endian: bool,
    sum: (u32, u32),
}

impl Checksum {
    fn add(&mut self, bytes: &[u8]) {
        let read = if self.big_endian { u32::from_be_bytes } else { u32::from_le_bytes };
        let (pairs, _) = bytes.as_chunks::<8>();
        for [a, b, c, d, e, f, g, h] in pairs {
            self.sum.0 = self.sum.0.wrapping_add(read([*a, *b, *c, *d])).wrapping_add(self.sum.1);
            self.sum.1 = self.sum.1.wrapping_add(read([*e, *f, *g, *h])).wrapping_add(self.sum.0);
        }
    }

    fn is_at(&self, bytes: &[u8], at: usize) -> bool {
        (word(bytes, at), word(bytes, at + 4)) == self.sum
    }
}

fn failed_again(path: &Path, error: io::Error) -> StoreError {
    if matches!(error.kind(), io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied) {
        return StoreError::new("open", ErrorKind::Unsuitable, failure::NOT_WRITABLE).caused_by(error);
    }
    let message = "what an earlier process may have left unsynced could not be put on the disk; nothing was acknowledged; \
                   check the device, its file system and the space left, then start again";
    at(path, StoreError::new("open", ErrorKind::Unavailable, message).caused_by(error))
}

fn changed(path: &Path) -> StoreError {
    let message = "the log on the disk is not the one that SQLite has read: the host has lost pages of it since; end every \
                   process that has the store open, and start again";
    at(path, StoreError::new("open", ErrorKind::Unavailable, message))
}

#[cfg(test)]
mod tests;
