//! Whether others than owner and group can get at the records.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::backup::beside;

/// What others may not have: any access at all.
const OTHERS: u32 = 0o007;

/// The files of a store, the log included, that every user of this host may read or change. They hold recorded answers. Empty
/// where there is no store yet: a new one is its owner's alone.
#[must_use]
pub fn exposed(path: &Path) -> Vec<PathBuf> {
    let is_exposed = |file: &PathBuf| {
        std::fs::metadata(file).is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & OTHERS != 0)
    };
    // SQLite follows a link before it names what is beside the file.
    let file = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let parts = ["-wal", "-shm"].map(|part| beside(&file, part));
    [file].into_iter().chain(parts).filter(is_exposed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Options, Sqlite};

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_new_file_is_its_owners_alone_and_so_is_one_behind_a_link() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("data")).unwrap();
        for (link, target) in [("one.db", "data/new"), ("two.db", "one-more.db"), ("one-more.db", "data/other")] {
            std::os::unix::fs::symlink(target, dir.path().join(link)).unwrap();
        }
        for name in ["plain.db", "one.db", "two.db"] {
            let path = dir.path().join(name);
            let store = Sqlite::open(Options::new(&path)).unwrap();
            let file = path.canonicalize().unwrap();
            for part in ["", "-wal", "-shm"] {
                assert_eq!(mode(&beside(&file, part)), 0o600, "{name}{part}");
            }
            assert_eq!(exposed(&path), Vec::<PathBuf>::new());
            drop(store);
        }
        assert!(dir.path().join("data/other").exists(), "links are followed to their end");
    }

    #[test]
    fn what_others_may_read_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hapax.db");
        assert_eq!(exposed(&path), Vec::<PathBuf>::new(), "nothing is there");
        for (part, mode, is_exposed) in
            [("", 0o644, true), ("", 0o640, false), ("", 0o602, true), ("-wal", 0o604, true)]
        {
            let file = beside(&path, part);
            std::fs::write(&file, "").unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
            let whole = file.canonicalize().unwrap();
            assert_eq!(exposed(&path).contains(&whole), is_exposed, "{part} {mode:o}");
        }
    }
}
