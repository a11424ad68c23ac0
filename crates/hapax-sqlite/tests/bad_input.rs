//! Files that cannot be used, disks that are full, bytes that were altered: a clear error, and nothing lost.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

mod common;

use std::path::Path;
use std::time::Duration;

use hapax_core::address::{Id, Key};
use hapax_core::engine::EngineError;
use hapax_core::record::Policy;
use hapax_core::store::{ErrorKind, Scan, Store, StoreError};
use hapax_core::transition::Answer;
use hapax_sqlite::{Options, Sqlite};
use rusqlite::Connection;

use common::{address, claim, claim_and_complete, engine, fingerprint, message};

fn refused(path: &Path) -> StoreError {
    Sqlite::open(Options::new(path)).unwrap_err()
}

#[test]
fn a_file_that_is_not_a_database_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notes.txt");
    let text = "these are notes, not a database; they are long enough to have a header".repeat(20);
    std::fs::write(&path, &text).unwrap();
    let error = refused(&path);
    assert_eq!(error.kind, ErrorKind::Unsuitable);
    assert_eq!(
        message(&error),
        format!(
            "open: {}: the file is not an SQLite database; give another path or move the file away",
            path.display()
        )
    );
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
}

#[tokio::test]
async fn a_timeout_without_end_is_one_that_sqlite_takes() {
    let dir = tempfile::tempdir().unwrap();
    let store = Sqlite::open(Options::new(dir.path().join("hapax.db")).with_busy_timeout(Duration::MAX)).unwrap();
    claim(&engine(store), "k").await;
}

#[test]
fn another_applications_file_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("shop.db");
    Connection::open(&path)
        .unwrap()
        .execute_batch("CREATE TABLE orders (id INTEGER); PRAGMA application_id = 77")
        .unwrap();
    let before = std::fs::read(&path).unwrap();
    let error = refused(&path);
    assert_eq!(error.kind, ErrorKind::Unsuitable);
    assert_eq!(
        message(&error),
        format!(
            "open: {}: the file is another application's SQLite database; give hapax a file of its own; a program can keep \
             records in it as a guest (Options::with_guest)",
            path.display()
        )
    );
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[test]
fn a_newer_schema_is_refused_and_one_that_this_release_can_read_beside_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("hapax.db");
    drop(Sqlite::open(Options::new(&path)).unwrap());
    let set = |min_reader: i64| {
        let other = Connection::open(&path).unwrap();
        other.execute("UPDATE hapax_meta SET value = 9 WHERE name = 'schema'", []).unwrap();
        other.execute("UPDATE hapax_meta SET value = ?1 WHERE name = 'min_reader'", [min_reader]).unwrap();
    };
    set(8);
    let error = refused(&path);
    assert_eq!(error.kind, ErrorKind::Unsuitable);
    assert_eq!(
        message(&error),
        format!(
            "open: {}: the file has schema 9 and needs a release that knows 8; this one knows 3: upgrade it",
            path.display()
        )
    );
    set(1);
    Sqlite::open(Options::new(&path)).unwrap();
}

/// A directory that nobody may write to, not even root, to whom permissions do not apply.
fn unwritable() -> std::path::PathBuf {
    Path::new("/proc/self").to_owned()
}

#[test]
fn a_directory_that_cannot_be_written_is_refused() {
    let path = unwritable().join("hapax.db");
    let error = refused(&path);
    assert_eq!(error.kind, ErrorKind::Unsuitable);
    let expected = "the database cannot be opened; check that its directory exists and that this user may write to it";
    assert_eq!(message(&error), format!("open: {}: {expected}", path.display()));
}

#[test]
fn a_missing_directory_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("nowhere").join("hapax.db");
    let expected = "the database cannot be opened; check that its directory exists and that this user may write to it";
    assert_eq!(message(&refused(&path)), format!("open: {}: {expected}", path.display()));
}

#[tokio::test]
async fn a_full_disk_refuses_new_claims_and_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("hapax.db");
    let engine = engine(Sqlite::open(Options::new(&path).with_bytes_max(256 * 1024)).unwrap());
    let mut claimed = Vec::new();
    let error = loop {
        let key = format!("k-{}", claimed.len());
        match engine.claim(&address(&key), &fingerprint(), Policy::default()).await {
            Ok(reply) if reply.answer == Answer::Proceed => claimed.push(key),
            Ok(reply) => panic!("{:?}", reply.answer),
            Err(EngineError::Store(error)) => break error,
            Err(error) => panic!("{error}"),
        }
        assert!(claimed.len() < 10_000, "the limit was never reached");
    };
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert_eq!(
        message(&error),
        "swap: the disk or the file's size limit is full; nothing was written; free some space"
    );
    assert!(claimed.len() > 100, "only {} fitted", claimed.len());
    for key in &claimed {
        assert_eq!(claim(&engine, key).await.answer, Answer::Busy, "{key}");
    }
    drop(engine);
    let engine = common::engine(Sqlite::open(Options::new(&path)).unwrap());
    for key in &claimed {
        assert_eq!(claim(&engine, key).await.answer, Answer::Busy, "{key}");
    }
    claim_and_complete(&engine, "after").await;
}

#[tokio::test]
async fn altered_bytes_are_detected_and_never_replayed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("hapax.db");
    let engine = engine(Sqlite::open(Options::new(&path)).unwrap());
    for (altered, key) in [
        ("data = CAST(substr(data, 1, 90) || x'00' || substr(data, 92) AS BLOB)", "body"),
        ("data = x''", "no-body"),
        ("state = 1", "state"),
        ("version = zeroblob(16)", "version"),
        ("scope = 'bob'", "scope"),
        ("reap_at = reap_at - 86000000", "expiry"),
        ("stamped_at = 'yesterday'", "stamp"),
    ] {
        claim_and_complete(&engine, key).await;
        let changed = Connection::open(&path)
            .unwrap()
            .execute(&format!("UPDATE hapax_record SET {altered} WHERE key = ?1"), [key])
            .unwrap();
        assert_eq!(changed, 1);
        let expected = "it will not be replayed; restore it, or delete it as the runbook says";
        let error = engine.store().get(&address(key)).await.unwrap_err();
        assert_eq!((error.kind, error.op), (ErrorKind::Damaged, "get"), "{key}");
        assert!(message(&error).starts_with("get: the stored record was altered or damaged"), "{error}");
        assert!(message(&error).ends_with(expected), "{error}");
        match engine.claim(&address(key), &fingerprint(), Policy::default()).await {
            Err(EngineError::Store(error)) => assert_eq!(error.kind, ErrorKind::Damaged, "{key}"),
            other => panic!("{key}: {other:?}"),
        }
    }
    let page = engine.store().scan(&Scan { limit: 100, ..Scan::default() }).await.unwrap();
    assert_eq!((page.entries.len(), page.damaged.len()), (0, 7), "damaged records are listed, not passed over");
}

#[test]
fn an_over_long_key_is_refused_before_it_reaches_the_store() {
    let error = Key::new(&"k".repeat(256)).unwrap_err();
    assert_eq!(error.to_string(), "the key has 256 characters; at most 255 are accepted");
}

#[tokio::test]
async fn a_transaction_of_somebody_else_held_too_long_is_an_error_and_no_guess() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("hapax.db");
    let patience = Duration::from_millis(50);
    let store = Sqlite::open(Options::new(&path).with_busy_timeout(patience)).unwrap();
    let engine = engine(store);
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    match engine.claim(&address("k"), &fingerprint(), Policy::default()).await {
        Err(EngineError::Store(error)) => {
            assert_eq!(error.kind, ErrorKind::Unavailable);
            assert_eq!(
                message(&error),
                "swap: another process or an open transaction holds the database; nothing was written; end it or try again"
            );
        }
        reply => panic!("{reply:?}"),
    }
    other.execute_batch("COMMIT").unwrap();
    assert_eq!(claim(&engine, "k").await.answer, Answer::Proceed);
}

#[tokio::test]
async fn a_store_that_has_to_be_there_is_not_made() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("hapax.db");
    let existing = || Sqlite::open(Options::new(&path).with_existing());
    assert!(existing().is_err());
    assert!(!path.exists(), "nothing was made");
    std::fs::write(&path, b"").unwrap();
    let error = existing().unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unsuitable);
    let expected = "the file holds no store; name the file that `hapax proxy` uses";
    assert_eq!(message(&error), format!("open: {}: {expected}", path.display()));
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 0, "nothing was written");
    drop(Sqlite::open(Options::new(&path)).unwrap());
    existing().unwrap();
}

#[tokio::test]
async fn records_are_found_by_the_first_digits_of_their_ids_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let store = Sqlite::open(Options::new(dir.path().join("hapax.db"))).unwrap();
    assert_eq!(store.about_count().await.unwrap(), 0);
    let engine = engine(store.clone());
    for key in ["k-1", "k-2", "k-3"] {
        claim(&engine, key).await;
    }
    let id = *address("k-2").id();
    let found = store.between(&id, &id, 10).await.unwrap();
    assert_eq!(found.entries.iter().map(|entry| entry.address.key().as_str()).collect::<Vec<_>>(), ["k-2"]);
    let (first, last) = (Id::from_bytes([0; 32]), Id::from_bytes([255; 32]));
    assert_eq!(store.between(&first, &last, 10).await.unwrap().entries.len(), 3);
    assert_eq!(store.between(&first, &last, 2).await.unwrap().entries.len(), 2);
    assert_eq!(store.between(&last, &first, 2).await.unwrap().entries.len(), 0);
    assert_eq!(store.about_count().await.unwrap(), 3);
    assert_eq!((store.count_up_to(2).await.unwrap(), store.count_up_to(10).await.unwrap()), (2, 3));
    let measured = store.measure().await.unwrap();
    assert!(measured.bytes >= 8 * 4096 && measured.bytes < 1024 * 1024, "{measured:?}");
    assert!(measured.disk_free > 0 && measured.disk_free <= measured.disk_size, "{measured:?}");
}

#[test]
fn a_new_file_is_its_owners_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("hapax.db");
    let store = Sqlite::open(Options::new(&path)).unwrap();
    for entry in std::fs::read_dir(dir.path()).unwrap() {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{} can be read by others", entry.path().display());
    }
    drop(store);
}
