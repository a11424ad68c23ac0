//! Where the file is, and whether it is still there.
//!
//! A file that was moved away, deleted or replaced while it is in use can still be written, but whoever opens its place next
//! finds none of it: every key claimed meanwhile would run once more. So nothing is written then.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use hapax_core::store::{ErrorKind, StoreError};

/// The place of a file that is in use, and which file was there at first.
#[derive(Debug)]
pub(crate) struct Whereabouts {
    path: PathBuf,
    identity: Option<(u64, u64)>,
    is_in_memory: bool,
}

impl Whereabouts {
    /// Of the file that is there now.
    pub(crate) fn of(path: &Path) -> Self {
        Self { path: path.to_owned(), identity: identity_of(path), is_in_memory: is_in_memory(path) }
    }

    /// Whether its file system is one that goes with the host's power.
    pub(crate) fn is_in_memory(&self) -> bool {
        self.is_in_memory
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Fails while the file is not in its place. Put back, it is used again.
    pub(crate) fn check(&self, op: &'static str) -> Result<(), StoreError> {
        if identity_of(&self.path) == self.identity {
            return Ok(());
        }
        let message = format!(
            "{}: the file was moved, deleted or replaced while in use; nothing was written; put it back with its -wal and \
             -shm: without them every key is forgotten",
            self.path.display()
        );
        Err(StoreError::new(op, ErrorKind::Unsuitable, message))
    }
}

/// tmpfs and ramfs, as statfs(2) calls them. Elsewhere a disk is assumed: what is below a file system cannot be seen.
fn is_in_memory(path: &Path) -> bool {
    const TMPFS_MAGIC: u32 = 0x0102_1994;
    const RAMFS_MAGIC: u32 = 0x8584_58f6;
    rustix::fs::statfs(path).is_ok_and(|found| [TMPFS_MAGIC, RAMFS_MAGIC].contains(&(found.f_type as u32)))
}

/// Which file is at that path, whatever it is called elsewhere.
pub(crate) fn identity_of(path: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()))
}
