//! The rules about the log by themselves, and the thread with a file of its own.

use std::path::Path;
use std::time::Instant;

use super::*;

fn log(pages: u64, copied_pages: u64, synced_pages: u64) -> Log {
    Log { pages, copied_pages, synced_pages, commit_pages: 50 }
}

#[test]
fn a_log_is_copied_in_parts_synced_and_started_over() {
    let step = |pages, copied, synced| log(pages, copied, synced).next_step();
    assert_eq!(step(FIRST_COPY_PAGES, 0, 0), Step::Copy);
    assert_eq!(step(1_050, 1_000, 0), Step::Sync, "so little is left");
    assert_eq!(step(1_100, 1_050, 1_050), Step::StartOver, "and on the disk");
    assert_eq!(step(1_300, 1_000, 0), Step::Wait);
    assert_eq!(step(4_000, 1_000, 0), Step::Wait);
    assert_eq!(step(5_000, 1_000, 0), Step::Copy);
    assert_eq!(step(9_000, 5_000, 0), Step::CatchUp, "much is not on the disk yet");
    assert_eq!(step(9_300, 9_000, 0), Step::Sync, "and now it can be");
    assert_eq!(step(9_700, 9_300, 9_300), Step::Wait, "it is not long");
    assert_eq!(step(13_300, 9_300, 9_300), Step::Copy);
    assert_eq!(step(START_OVER_PAGES, 13_000, 9_000), Step::CatchUp, "it is long");
    assert_eq!(step(START_OVER_PAGES + 500, START_OVER_PAGES, 9_000), Step::Sync, "copied is not on the disk");
    assert_eq!(step(START_OVER_PAGES + 2_000, START_OVER_PAGES, START_OVER_PAGES), Step::CatchUp);
    assert_eq!(step(START_OVER_PAGES + 500, START_OVER_PAGES, START_OVER_PAGES), Step::StartOver);
    assert_eq!(step(LOG_PAGES_MAX, LOG_PAGES_MAX - 5_000, 0), Step::StartOver, "whatever it takes");
    assert_eq!(step(LOG_PAGES_MAX, 1, 0), Step::CatchUp, "not all of it while claims wait");
}

#[test]
fn large_commits_leave_more_and_their_log_starts_over_all_the_same() {
    let large = |pages, copied_pages, synced_pages| Log { pages, copied_pages, synced_pages, commit_pages: 4_000 };
    assert_eq!(large(20_000, 14_000, 9_000).next_step(), Step::Sync);
    assert_eq!(large(24_000, 20_000, 20_000).next_step(), Step::StartOver);
}

#[test]
fn catching_up_ends_when_little_is_left_when_a_pass_gains_nothing_and_after_many() {
    /// Passes that leave so many pages of an endless log, in turn; how many were made.
    fn passes(left: impl Fn(u64) -> u64) -> u64 {
        let progress = Progress::default();
        progress.log_pages.store(1_000_000, Ordering::Release);
        let mut count = 0;
        let pass = || {
            count += 1;
            let (log_pages, copied_pages) = (1_000_000, 1_000_000 - left(count));
            Some(Checkpoint { busy: false, log_pages, copied_pages })
        };
        Order::CatchUp { enough_pages: 100 }.run(pass, &progress);
        count
    }
    assert_eq!(passes(|pass| 1_000 >> pass), 4);
    assert_eq!(passes(|_| 5_000), 2, "a reader is in the way");
    assert_eq!(passes(|pass| 5_000 + pass), 2, "the writer is faster");
    assert_eq!(passes(|pass| 5_000 - pass), u64::from(PASSES_MAX));
}

#[test]
fn only_a_pass_that_reached_the_end_of_the_log_counts_as_synced() {
    for (busy, copied_pages, synced) in [(false, 90, 90), (false, 80, 0), (true, 90, 0)] {
        let progress = Progress::default();
        Order::Sync.run(|| Some(Checkpoint { busy, log_pages: 90, copied_pages }), &progress);
        assert_eq!(progress.synced_pages.load(Ordering::Acquire), synced, "{copied_pages}, busy: {busy}");
    }
}

struct Rig {
    writer: Connection,
    checkpointer: Checkpointer,
}

fn connection(path: &Path) -> Connection {
    let connection = Connection::open(path).unwrap();
    connection.execute_batch("PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0").unwrap();
    connection
}

impl Rig {
    fn new(path: &Path) -> Self {
        let mut writer = connection(path);
        let checkpointer = Checkpointer::start(connection(path), Arc::default(), Trust::Earned).unwrap();
        checkpointer.watch(&mut writer).unwrap();
        writer.execute_batch("CREATE TABLE t (x)").unwrap();
        Self { writer, checkpointer }
    }

    /// Commits about that many pages, and says how long the log is then.
    fn commit(&self, pages: u32) -> u64 {
        self.writer.execute("INSERT INTO t VALUES (zeroblob(?1))", [pages * 4096]).unwrap();
        self.pages()
    }

    fn pages(&self) -> u64 {
        self.checkpointer.progress.log_pages.load(Ordering::Acquire)
    }

    fn synced_pages(&self) -> u64 {
        self.checkpointer.progress.synced_pages.load(Ordering::Acquire)
    }

    fn wait_until_idle(&self) {
        assert!(self.checkpointer.progress.is_idle_within(Duration::from_secs(60)));
    }
}

#[test]
fn a_pass_while_the_writer_keeps_still_lets_the_next_commit_start_the_log_over() {
    let dir = tempfile::tempdir().unwrap();
    let mut rig = Rig::new(&dir.path().join("log.db"));
    let pages = rig.commit(30);
    assert!(pages > 20, "{pages} pages");
    rig.checkpointer.keep_still(&log(pages, 0, 0));
    rig.wait_until_idle();
    assert_eq!(rig.synced_pages(), pages);
    assert!(rig.commit(1) < 10, "{} pages", rig.pages());
    rig.checkpointer.after_commit(&rig.writer);
    assert_eq!(rig.checkpointer.not_before_pages, 0, "a new log is looked at again");
}

#[test]
fn a_log_that_a_reader_needs_is_not_tried_at_every_commit() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.db");
    let mut rig = Rig::new(&path);
    let pages = rig.commit(FIRST_COPY_PAGES as u32);
    let reader = connection(&path);
    reader.execute_batch("BEGIN; SELECT count(*) FROM t").unwrap();
    // However slow the disk: only a pass that ended meanwhile counts.
    while rig.checkpointer.not_before_pages == 0 {
        rig.checkpointer.keep_still(&log(pages, 0, 0));
        rig.wait_until_idle();
    }
    assert_eq!(rig.checkpointer.not_before_pages, pages + NEXT_COPY_PAGES);
    assert!(rig.commit(10) > pages, "the log goes on");
    rig.checkpointer.orders = None;
    rig.checkpointer.after_commit(&rig.writer);
    assert_eq!(rig.checkpointer.not_before_pages, pages + NEXT_COPY_PAGES, "nothing was tried");
}

#[test]
fn the_writer_starts_a_log_over_unless_a_reader_needs_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.db");
    let mut rig = Rig::new(&path);
    let reader = connection(&path);
    reader.execute_batch("BEGIN; SELECT count(*) FROM t").unwrap();
    let pages = rig.commit(50);
    rig.checkpointer.start_over(&rig.writer, pages);
    assert_eq!(rig.checkpointer.not_before_pages, pages + NEXT_COPY_PAGES);
    assert!(rig.commit(1) > pages);
    reader.execute_batch("COMMIT").unwrap();
    let pages = rig.pages();
    rig.checkpointer.start_over(&rig.writer, pages);
    assert_eq!((rig.checkpointer.not_before_pages, rig.pages()), (0, 0));
    assert!(rig.commit(1) < 10);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "how long somebody waits is what is tested")]
fn the_writer_keeps_still_for_a_moment_and_no_longer() {
    let dir = tempfile::tempdir().unwrap();
    let mut rig = Rig::new(&dir.path().join("log.db"));
    // A thread that is given orders and never carries them out.
    let (orders, _waiting) = mpsc::sync_channel(1);
    rig.checkpointer.orders = Some(orders);
    let begun = Instant::now();
    rig.checkpointer.keep_still(&log(1_000, 900, 0));
    assert!(begun.elapsed() >= STILL, "{:?}", begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!(rig.checkpointer.not_before_pages, 0);
    // It is busy now, so nothing else is ordered, and a short log is not waited for.
    rig.checkpointer.after_commit(&rig.writer);
    assert!(!rig.checkpointer.progress.is_idle_within(Duration::ZERO));
}

#[test]
fn a_thread_that_is_gone_is_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let mut rig = Rig::new(&dir.path().join("log.db"));
    rig.checkpointer.orders = None;
    rig.checkpointer.keep_still(&log(1_000, 900, 0));
    assert!(rig.checkpointer.progress.is_idle_within(Duration::ZERO));
    assert_eq!(rig.checkpointer.not_before_pages, 0);
}

#[test]
fn an_order_that_panics_is_over() {
    let progress = Progress::default();
    progress.set_busy(true);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _busy = Busy(&progress);
        Order::Copy.run(|| panic!("for the test"), &progress);
    }));
    assert!(panicked.is_err());
    assert!(progress.is_idle_within(Duration::ZERO));
}

#[test]
fn of_a_log_that_began_anew_nothing_is_copied() {
    let dir = tempfile::tempdir().unwrap();
    let mut rig = Rig::new(&dir.path().join("log.db"));
    for count in [&rig.checkpointer.progress.copied_pages, &rig.checkpointer.progress.synced_pages] {
        count.store(9_000, Ordering::Release);
    }
    rig.checkpointer.not_before_pages = 20_000;
    rig.checkpointer.after_commit(&rig.writer);
    let Log { copied_pages, synced_pages, .. } = rig.checkpointer.progress.of(0, 0);
    assert_eq!((copied_pages, synced_pages, rig.checkpointer.not_before_pages), (0, 0, 0));
}

#[test]
fn after_a_failure_of_the_disk_nothing_is_moved() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.db");
    let mut rig = Rig::new(&path);
    let pages = rig.commit(50);
    rig.checkpointer.broken.set_by_file();
    rig.checkpointer.keep_still(&log(pages, 0, 0));
    rig.wait_until_idle();
    rig.checkpointer.start_over(&rig.writer, pages);
    rig.checkpointer.finish(&rig.writer);
    let whole = std::fs::metadata(dir.path().join("log.db-wal")).unwrap().len();
    assert!(whole >= pages * 4096, "the log has {whole} bytes");
    assert!(std::fs::metadata(&path).unwrap().len() < 4 * 4096, "the file has no page of it");
}

#[test]
fn however_large_the_commits_the_log_stays_within_bounds() {
    let dir = tempfile::tempdir().unwrap();
    let mut rig = Rig::new(&dir.path().join("log.db"));
    let mut longest = 0;
    for round in 0..40 {
        longest = longest.max(rig.commit(4_000));
        rig.writer.execute("DELETE FROM t", []).unwrap();
        rig.checkpointer.after_commit(&rig.writer);
        assert!(longest < LOG_PAGES_MAX, "{longest} pages after {round} commits");
    }
    assert!(longest > START_OVER_PAGES, "{longest} pages: too few to show anything");
}
