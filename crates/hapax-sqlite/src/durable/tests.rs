//! Logs as SQLite writes them, a page that was lost, and a reader in the way.

use super::*;
use crate::{Options, schema};

fn filled(dir: &Path) -> (Connection, PathBuf) {
    let path = dir.join("hapax.db");
    let options = Options::new(&path);
    let mut connection = schema::connect(&options).unwrap();
    schema::prepare(&mut connection, &options).unwrap();
    connection.execute_batch("CREATE TABLE filler (bytes BLOB)").unwrap();
    for _ in 0..50 {
        connection.execute("INSERT INTO filler VALUES (randomblob(3000))", []).unwrap();
    }
    (connection, path)
}

fn frames(log: &Path) -> u32 {
    ((std::fs::metadata(log).unwrap().len() - 32) / (24 + 4096)) as u32
}

#[test]
fn the_frames_of_a_log_are_read_as_sqlite_wrote_them() {
    let dir = tempfile::tempdir().unwrap();
    let (connection, path) = filled(dir.path());
    let log = log_of(&path).unwrap();
    let pages = Pages::read(&File::open(&log).unwrap(), frames(&log)).unwrap().unwrap();
    let count: i64 = connection.query_row("PRAGMA page_count", [], |row| row.get(0)).unwrap();
    assert_eq!((pages.page_bytes, pages.newest.len() as i64), (4096, count), "every page of a new file is in its log");
}

#[test]
fn a_log_that_lost_a_page_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let (_connection, path) = filled(dir.path());
    let log = log_of(&path).unwrap();
    OpenOptions::new().write(true).open(&log).unwrap().write_all_at(&[0; 4096], 40 * 4096).unwrap();
    assert!(Pages::read(&File::open(&log).unwrap(), frames(&log)).unwrap().is_none());
    assert!(Pages::read(&File::open(&log).unwrap(), 30).unwrap().is_some(), "what is before it is whole");
}

#[test]
fn what_was_copied_is_copied_again_although_another_process_remembers_it() {
    let dir = tempfile::tempdir().unwrap();
    let (connection, path) = filled(dir.path());
    let other = schema::connect(&Options::new(&path)).unwrap();
    let copy = || while_nobody_writes(&connection, || file(&other, &path, true)).unwrap();
    assert!(copy());
    // A page that a failed sync has lost. Through the handle that is held: closing another one would end SQLite's locks.
    let held = held_open(&path).unwrap();
    let mut whole = vec![0; held.metadata().unwrap().len() as usize];
    held.read_exact_at(&mut whole, 0).unwrap();
    held.write_all_at(&[0; 4096], 3 * 4096).unwrap();
    let now = || {
        let mut now = vec![0; whole.len()];
        held.read_exact_at(&mut now, 0).unwrap();
        now
    };
    assert!(while_nobody_writes(&connection, || file(&other, &path, false)).unwrap());
    assert!(now() != whole, "SQLite copies nothing twice by itself");
    assert!(is_begun(&other).unwrap() && copy());
    assert!(now() == whole, "the page is back");
}

#[test]
fn while_somebody_reads_an_old_state_it_is_left_for_later() {
    let dir = tempfile::tempdir().unwrap();
    let (connection, path) = filled(dir.path());
    let reader = schema::connect(&Options::new(&path)).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM filler").unwrap();
    connection.execute("INSERT INTO filler VALUES (randomblob(3000))", []).unwrap();
    let other = schema::connect(&Options::new(&path)).unwrap();
    let copy = || while_nobody_writes(&connection, || file(&other, &path, true)).unwrap();
    assert!(!copy());
    reader.execute_batch("COMMIT").unwrap();
    assert!(copy());
}
