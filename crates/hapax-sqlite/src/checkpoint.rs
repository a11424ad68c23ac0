//! Moves the write-ahead log into the file, beside the writer.
//!
//! A commit appends to the log; now and then its pages are copied into the file. Doing that in the writer's thread would
//! make some claims wait until many megabytes are copied and on the disk. So a thread of its own copies (`PASSIVE`: it
//! blocks nobody). SQLite syncs the file only at the end of a pass that found nothing committed since it began, and a log
//! starts over by itself once such a pass has ended and nothing was committed since. So when little is left to copy the
//! writer keeps still for a moment: long enough for the pass to get to its sync, not until that ends. What is committed
//! meanwhile is less than what was synced, so a few rounds bring both together. The log is never cut while it is in use:
//! a commit into blocks that are there already is cheaper.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::Connection;
use rusqlite::hooks::Wal;

/// The first copy begins when the log has this many pages. Under a light load all of it is soon in the file, and the
/// log starts over: a commit then finds its blocks in place.
const FIRST_COPY_PAGES: u64 = 1_000;

/// Later copies begin when this many pages are left to copy. More: pages that are written often are copied less often.
const NEXT_COPY_PAGES: u64 = 4_000;

/// So many pages are copied before the file is synced: the disk has other things to do than to write them all at once.
const SYNC_PAGES: u64 = 6_000;

/// Under a heavy load the log becomes this long before it is started over.
const START_OVER_PAGES: u64 = 16_000;

/// So few pages are copied in less than [`STILL`].
const REST_PAGES_MAX: u64 = 400;

/// So few that there is next to nothing to sync either, and the log may start over although it is not long.
const REST_PAGES_FEW: u64 = 100;

/// How long the writer keeps still for a pass.
const STILL: Duration = Duration::from_millis(5);

/// Beyond this the writer copies whatever is left: a log without end would fill the disk.
const LOG_PAGES_MAX: u64 = 128_000;

/// Passes of one copy. Each is shorter than the one before, unless the writer is faster than the copy.
const PASSES_MAX: u32 = 16;

pub(crate) struct Checkpointer {
    orders: Option<mpsc::SyncSender<Order>>,
    thread: Option<JoinHandle<()>>,
    progress: Arc<Progress>,
    /// Nothing is tried again before the log is this long.
    not_before_pages: u64,
}

#[derive(Default)]
struct Progress {
    /// A copy is under way.
    busy: AtomicBool,
    /// How many pages of the log are in the file.
    copied_pages: AtomicU64,
    /// How many are on the disk there, as far as can be told: what is wrong here costs time, and nothing else.
    synced_pages: AtomicU64,
    /// How long the log was after the writer's last commit.
    log_pages: AtomicU64,
}

impl Checkpointer {
    /// Starts the thread, with a connection of its own.
    pub(crate) fn start(connection: Connection) -> std::io::Result<Self> {
        let (orders, waiting) = mpsc::sync_channel::<Order>(1);
        let progress = Arc::new(Progress::default());
        let shared = Arc::clone(&progress);
        let thread = std::thread::Builder::new().name("hapax-checkpoint".to_owned()).spawn(move || {
            while let Ok(order) = waiting.recv() {
                order.run(&connection, &shared);
                shared.busy.store(false, Ordering::Release);
            }
        })?;
        Ok(Self { orders: Some(orders), thread: Some(thread), progress, not_before_pages: 0 })
    }

    /// From now on every commit on that connection says how long the log is.
    pub(crate) fn watch(&self, writer: &mut Connection) -> rusqlite::Result<()> {
        let progress = Arc::clone(&self.progress);
        writer.wal_hook(Some(move |_: &mut Wal, pages: i32| {
            progress.log_pages.store(u64::try_from(pages).unwrap_or(0), Ordering::Release);
            Ok(())
        }))
    }

    /// Looks at the log after a commit.
    pub(crate) fn after_commit(&mut self, connection: &Connection) {
        if self.progress.busy.load(Ordering::Acquire) {
            return;
        }
        let pages = self.progress.log_pages.load(Ordering::Acquire);
        if pages < FIRST_COPY_PAGES {
            // Nothing of it was copied yet. SQLite itself, or another process, may have started the log over.
            self.begin_anew();
        } else if pages >= self.not_before_pages {
            let copied = self.progress.copied_pages.load(Ordering::Acquire);
            let synced = self.progress.synced_pages.load(Ordering::Acquire);
            match next_step(pages, copied, synced) {
                Step::Wait => {}
                Step::Copy => self.order(Order::Copy),
                Step::CatchUp => self.order(Order::CatchUp),
                Step::Sync => self.keep_still(pages),
                Step::StartOver => self.start_over(connection, pages),
            }
        }
    }

    /// Commits nothing until the thread has copied the rest, and most likely is syncing the file.
    fn keep_still(&mut self, pages: u64) {
        let (done, ended) = mpsc::sync_channel(1);
        self.order(Order::Sync(done));
        if ended.recv_timeout(STILL).is_ok() {
            // The next commit starts the log over, unless a reader needs it; then it is not tried again soon.
            self.not_before_pages = pages + NEXT_COPY_PAGES;
        }
    }

    /// The writer starts the log over; if a reader still needs it, not now.
    fn start_over(&mut self, connection: &Connection, pages: u64) {
        let restarted = without_waiting(connection, || checkpoint(connection, "RESTART"));
        self.begin_anew();
        if restarted.is_some_and(|restarted| !restarted.busy) {
            self.progress.log_pages.store(0, Ordering::Release);
        } else {
            self.not_before_pages = pages + NEXT_COPY_PAGES;
        }
    }

    fn begin_anew(&mut self) {
        self.not_before_pages = 0;
        self.progress.copied_pages.store(0, Ordering::Release);
        self.progress.synced_pages.store(0, Ordering::Release);
    }

    fn order(&self, order: Order) {
        self.progress.busy.store(true, Ordering::Release);
        if self.orders.as_ref().is_none_or(|orders| orders.try_send(order).is_err()) {
            self.progress.busy.store(false, Ordering::Release);
        }
    }

    /// Leaves nothing in the log, unless somebody still reads there.
    pub(crate) fn fold(&mut self, connection: &Connection) {
        checkpoint(connection, "TRUNCATE");
        self.begin_anew();
    }

    /// A store that is closed leaves no log behind.
    pub(crate) fn finish(&mut self, connection: &Connection) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        checkpoint(connection, "TRUNCATE");
    }
}

/// What the thread is to do.
enum Order {
    /// Copy what is there.
    Copy,
    /// Copy until little is left.
    CatchUp,
    /// Copy what is there while the writer keeps still, and say when it is on the disk.
    Sync(mpsc::SyncSender<()>),
}

impl Order {
    fn run(self, connection: &Connection, progress: &Progress) {
        match self {
            Self::Copy => drop(pass(connection, progress)),
            Self::CatchUp => catch_up(connection, progress),
            Self::Sync(done) => {
                if let Some(copied_pages) = pass(connection, progress) {
                    progress.synced_pages.store(copied_pages, Ordering::Release);
                    // The writer may have gone on.
                    let _ = done.try_send(());
                }
            }
        }
    }
}

fn catch_up(connection: &Connection, progress: &Progress) {
    let mut before = None;
    for _ in 0..PASSES_MAX {
        let Some(copied_pages) = pass(connection, progress) else { return };
        let rest = progress.log_pages.load(Ordering::Acquire).saturating_sub(copied_pages);
        // A reader that needs the log, such as a backup, lets no pass get any further.
        let is_stuck = before.replace(copied_pages) == Some(copied_pages);
        if rest <= REST_PAGES_MAX / 2 || is_stuck {
            return;
        }
    }
}

/// One pass over what is in the log now. `None` if another process is at it, or it failed: a later one gets on.
fn pass(connection: &Connection, progress: &Progress) -> Option<u64> {
    let done = checkpoint(connection, "PASSIVE")?;
    progress.copied_pages.store(done.copied_pages, Ordering::Release);
    (!done.busy).then_some(done.copied_pages)
}

#[derive(Debug, PartialEq)]
enum Step {
    Wait,
    Copy,
    CatchUp,
    Sync,
    StartOver,
}

/// What to do about a log that long, of which so much is in the file, and so much on the disk.
fn next_step(pages: u64, copied_pages: u64, synced_pages: u64) -> Step {
    let (rest, unsynced) = (pages.saturating_sub(copied_pages), pages.saturating_sub(synced_pages));
    let wants_sync = pages >= START_OVER_PAGES || unsynced >= SYNC_PAGES;
    let many = if copied_pages == 0 { FIRST_COPY_PAGES } else { NEXT_COPY_PAGES };
    if pages >= LOG_PAGES_MAX {
        Step::StartOver
    } else if copied_pages > 0 && (rest <= REST_PAGES_FEW || (wants_sync && rest <= REST_PAGES_MAX)) {
        Step::Sync
    } else if pages >= START_OVER_PAGES || (wants_sync && rest >= many) {
        Step::CatchUp
    } else if rest >= many {
        Step::Copy
    } else {
        Step::Wait
    }
}

struct Checkpoint {
    /// Somebody was in the way; a later try gets on.
    busy: bool,
    /// How many pages of the log are in the file now.
    copied_pages: u64,
}

fn checkpoint(connection: &Connection, mode: &str) -> Option<Checkpoint> {
    connection
        .query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |row| {
            let busy = row.get::<_, i64>(0)? != 0;
            Ok(Checkpoint { busy, copied_pages: u64::try_from(row.get::<_, i64>(2)?).unwrap_or(0) })
        })
        .ok()
}

/// Claims are waiting behind this: what cannot be had at once is left.
fn without_waiting<T>(connection: &Connection, work: impl FnOnce() -> T) -> T {
    let patience: i64 = connection.query_row("PRAGMA busy_timeout", [], |row| row.get(0)).unwrap_or(0);
    let _ = connection.busy_timeout(Duration::ZERO);
    let done = work();
    let _ = connection.busy_timeout(Duration::from_millis(u64::try_from(patience).unwrap_or(0)));
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_copied_in_parts_synced_and_started_over() {
        assert_eq!(next_step(FIRST_COPY_PAGES, 0, 0), Step::Copy);
        assert_eq!(next_step(1_050, 1_000, 0), Step::Sync, "so little is left");
        assert_eq!(next_step(1_300, 1_000, 0), Step::Wait);
        assert_eq!(next_step(4_000, 1_000, 0), Step::Wait);
        assert_eq!(next_step(5_000, 1_000, 0), Step::Copy);
        assert_eq!(next_step(9_000, 5_000, 0), Step::CatchUp, "much is not on the disk yet");
        assert_eq!(next_step(9_300, 9_000, 0), Step::Sync, "and now it can be");
        assert_eq!(next_step(13_000, 9_000, 9_000), Step::Copy);
        assert_eq!(next_step(START_OVER_PAGES, 13_000, 9_000), Step::CatchUp, "it is long");
        assert_eq!(next_step(START_OVER_PAGES + 500, START_OVER_PAGES, START_OVER_PAGES), Step::CatchUp);
        assert_eq!(next_step(START_OVER_PAGES + 300, START_OVER_PAGES, START_OVER_PAGES), Step::Sync);
        assert_eq!(next_step(LOG_PAGES_MAX, 1, 0), Step::StartOver, "whatever it takes");
    }

    fn connection(path: &std::path::Path) -> Connection {
        let connection = Connection::open(path).unwrap();
        connection.execute_batch("PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0").unwrap();
        connection
    }

    #[test]
    fn a_pass_while_the_writer_keeps_still_lets_the_next_commit_start_the_log_over() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = connection(&dir.path().join("log.db"));
        let mut checkpointer = Checkpointer::start(connection(&dir.path().join("log.db"))).unwrap();
        checkpointer.watch(&mut writer).unwrap();
        writer.execute_batch("CREATE TABLE t (x); INSERT INTO t VALUES (randomblob(100000))").unwrap();
        let pages = checkpointer.progress.log_pages.load(Ordering::Acquire);
        assert!(pages > 20, "{pages} pages");
        checkpointer.keep_still(pages);
        while checkpointer.progress.busy.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        let Progress { copied_pages, synced_pages, .. } = &*checkpointer.progress;
        assert_eq!((copied_pages.load(Ordering::Acquire), synced_pages.load(Ordering::Acquire)), (pages, pages));
        writer.execute_batch("INSERT INTO t VALUES (1)").unwrap();
        let pages = checkpointer.progress.log_pages.load(Ordering::Acquire);
        assert!(pages < 5, "{pages} pages");
        checkpointer.after_commit(&writer);
        assert_eq!(checkpointer.not_before_pages, 0, "a new log is looked at again");
    }

    #[test]
    fn a_log_that_a_reader_needs_is_not_tried_at_every_commit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log.db");
        let mut writer = connection(&path);
        let mut checkpointer = Checkpointer::start(connection(&path)).unwrap();
        checkpointer.watch(&mut writer).unwrap();
        writer.execute_batch("CREATE TABLE t (x)").unwrap();
        let reader = connection(&path);
        reader.execute_batch("BEGIN; SELECT count(*) FROM t").unwrap();
        let pages = checkpointer.progress.log_pages.load(Ordering::Acquire);
        let (done, ended) = mpsc::sync_channel(1);
        Order::Sync(done).run(&connection(&path), &checkpointer.progress);
        assert!(ended.try_recv().is_ok());
        writer.execute_batch("INSERT INTO t VALUES (1)").unwrap();
        assert!(checkpointer.progress.log_pages.load(Ordering::Acquire) > pages, "the log goes on");
        // As after a pass that ended while the writer kept still.
        checkpointer.progress.log_pages.store(FIRST_COPY_PAGES + 10, Ordering::Release);
        checkpointer.progress.copied_pages.store(FIRST_COPY_PAGES, Ordering::Release);
        checkpointer.not_before_pages = FIRST_COPY_PAGES + NEXT_COPY_PAGES;
        checkpointer.after_commit(&writer);
        assert!(!checkpointer.progress.busy.load(Ordering::Acquire), "nothing was ordered");
    }

    #[test]
    fn of_a_log_that_began_anew_nothing_is_copied() {
        let dir = tempfile::tempdir().unwrap();
        let connection = Connection::open(dir.path().join("log.db")).unwrap();
        let mut checkpointer = Checkpointer::start(Connection::open(dir.path().join("log.db")).unwrap()).unwrap();
        checkpointer.progress.copied_pages.store(9_000, Ordering::Release);
        checkpointer.progress.synced_pages.store(9_000, Ordering::Release);
        checkpointer.progress.log_pages.store(FIRST_COPY_PAGES - 1, Ordering::Release);
        checkpointer.after_commit(&connection);
        let Progress { copied_pages, synced_pages, .. } = &*checkpointer.progress;
        assert_eq!((copied_pages.load(Ordering::Acquire), synced_pages.load(Ordering::Acquire)), (0, 0));
    }

    #[test]
    fn catching_up_with_a_writer_that_is_faster_comes_to_an_end() {
        let dir = tempfile::tempdir().unwrap();
        let connection = connection(&dir.path().join("log.db"));
        connection.execute_batch("CREATE TABLE t (x)").unwrap();
        let progress = Progress::default();
        // As if much were committed during every pass.
        progress.log_pages.store(u64::MAX, Ordering::Release);
        catch_up(&connection, &progress);
        assert_eq!(progress.synced_pages.load(Ordering::Acquire), 0);
        assert!(progress.copied_pages.load(Ordering::Acquire) > 0);
    }
}
