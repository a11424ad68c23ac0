//! The SQLite store passes the suite that every store must pass.
//!
//! Each case gets a directory of its own and a fake clock. A restart closes the file and opens it again. The rival is
//! this test binary, started once more with the path of the file; it has the clock of the host.

#![allow(clippy::expect_used, reason = "a panic with a message is how a test fails")]

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use hapax_core::conformance::{ClockSource, Harness, rival};
use hapax_sqlite::{Options, Sqlite};
use hapax_testkit::clock::FakeClock;
use tempfile::TempDir;

/// Tells this binary, started as a rival, which file to open.
const FILE_OF_RIVAL: &str = "HAPAX_SQLITE_FILE_OF_RIVAL";

/// Files in a directory that goes away with it.
struct Files {
    directory: TempDir,
    clock: FakeClock,
    opened: AtomicU32,
}

impl Files {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory for the files");
        Self { directory, clock: FakeClock::default(), opened: AtomicU32::new(0) }
    }

    /// The file that was opened last.
    fn path(&self) -> PathBuf {
        self.directory.path().join(format!("{}.db", self.opened.load(Ordering::SeqCst)))
    }

    fn open_last(&self) -> Sqlite {
        Sqlite::open(Options::new(self.path()).with_clock(self.clock.clone())).expect("the file opens")
    }
}

impl Harness for Files {
    type Store = Sqlite;

    async fn open(&self) -> Sqlite {
        self.opened.fetch_add(1, Ordering::SeqCst);
        self.open_last()
    }

    async fn pass_ms(&self, ms: u64) {
        self.clock.advance_ms(ms);
    }

    fn step_clock_ms(&self, by_ms: i64) -> ClockSource {
        self.clock.step_ms(by_ms);
        ClockSource::Host
    }

    async fn restart(&self, store: Sqlite) -> Option<Sqlite> {
        drop(store);
        Some(self.open_last())
    }

    fn rival(&self, _: &Sqlite) -> Option<Command> {
        let mut command = Command::new(std::env::current_exe().expect("this process has an executable"));
        command.args(["conformance_rival", "--exact", "--nocapture"]).env(FILE_OF_RIVAL, self.path());
        Some(command)
    }
}

/// Does nothing, unless it was started as the second process of a case.
#[test]
fn conformance_rival() {
    if let Some(path) = std::env::var_os(FILE_OF_RIVAL) {
        rival::run(async { Sqlite::open(Options::new(PathBuf::from(path))).expect("the file opens") });
    }
}

hapax_core::conformance!(Files::new());

#[tokio::test]
async fn notes_are_kept_with_the_records() {
    hapax_core::conformance::check_journal(&Files::new().open().await).await;
}

#[tokio::test]
async fn notes_cannot_be_changed_or_deleted() {
    let files = Files::new();
    hapax_core::conformance::check_journal(&files.open().await).await;
    let other = rusqlite::Connection::open(files.path()).expect("the file opens");
    for statement in ["UPDATE hapax_note SET reason = 'none'", "DELETE FROM hapax_note"] {
        let refused = other.execute(statement, []).expect_err("notes stay as they are").to_string();
        assert!(refused.contains("notes are not"), "{refused}");
    }
}
