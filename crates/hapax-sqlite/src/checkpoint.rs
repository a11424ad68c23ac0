//! Moves the write-ahead log into the file, beside the writer.
//!
//! A commit appends to the log; now and then its pages are copied into the file. Doing that in the writer's thread would
//! make some claims wait until many megabytes are copied and on the disk. So a thread of its own copies (`PASSIVE`: it
//! blocks nobody), and the writer starts the log over only once little is left to copy. SQLite syncs the file only at the end of
//! a pass during which nothing was committed, so before the log is started over the thread makes short passes until there
//! was one. The log is never cut while it is in use: a commit into blocks that are there already is cheaper.

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

/// So little is left that the writer copies it without anyone noticing, and starts the log over.
const REST_PAGES_FEW: u64 = 100;

/// Under a heavy load the log becomes this long before it is started over …
const START_OVER_PAGES: u64 = 16_000;

/// … by the writer, once no more than this is left to copy: a few milliseconds.
const REST_PAGES_MAX: u64 = 1_000;

/// Beyond this the writer copies whatever is left: a log without end would fill the disk.
const LOG_PAGES_MAX: u64 = 128_000;

/// So many pages are copied before the file is synced: the disk has other things to do than to write them all at once.
const SYNC_PAGES: u64 = 6_000;

/// Passes of one copy. Each after the first takes a moment; between two commits there is soon room for one.
const PASSES_MAX: u32 = 64;

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
    /// How many are certainly on the disk there.
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
                Step::Copy(order) => self.order(order),
                Step::StartOver => self.start_over(connection, pages),
            }
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
#[derive(Clone, Copy)]
enum Order {
    /// Copy what is there.
    Once,
    /// Copy until nothing was committed during a pass: then the file is synced.
    UntilSynced,
}

impl Order {
    fn run(self, connection: &Connection, progress: &Progress) {
        let mut before = None;
        for _ in 0..PASSES_MAX {
            let Some(done) = checkpoint(connection, "PASSIVE") else { return };
            progress.copied_pages.store(done.copied_pages, Ordering::Release);
            let synced = progress.log_pages.load(Ordering::Acquire) <= done.copied_pages;
            if synced {
                progress.synced_pages.store(done.copied_pages, Ordering::Release);
            }
            // A reader that needs the log, such as a backup, lets no pass get any further.
            let stuck = before.replace(done.copied_pages) == Some(done.copied_pages);
            if synced || stuck || done.busy || matches!(self, Self::Once) {
                return;
            }
        }
    }
}

enum Step {
    Wait,
    Copy(Order),
    StartOver,
}

/// What to do about a log that long, of which so much is in the file, and so much on the disk.
fn next_step(pages: u64, copied_pages: u64, synced_pages: u64) -> Step {
    let rest = pages.saturating_sub(copied_pages);
    let is_long = pages >= START_OVER_PAGES;
    let few = if is_long { REST_PAGES_MAX } else { REST_PAGES_FEW };
    let many = if copied_pages == 0 { FIRST_COPY_PAGES } else { NEXT_COPY_PAGES };
    if pages >= LOG_PAGES_MAX || (copied_pages > 0 && rest <= few) {
        Step::StartOver
    } else if is_long || (rest >= many && pages.saturating_sub(synced_pages) >= SYNC_PAGES) {
        Step::Copy(Order::UntilSynced)
    } else if rest >= many {
        Step::Copy(Order::Once)
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

    fn step(pages: u64, copied: u64, synced: u64) -> &'static str {
        match next_step(pages, copied, synced) {
            Step::Wait => "wait",
            Step::Copy(Order::Once) => "copy",
            Step::Copy(Order::UntilSynced) => "copy and sync",
            Step::StartOver => "start over",
        }
    }

    #[test]
    fn a_log_is_copied_in_parts_synced_and_started_over() {
        assert_eq!(step(FIRST_COPY_PAGES, 0, 0), "copy");
        assert_eq!(step(1_050, 1_000, 0), "start over", "so little is left");
        assert_eq!(step(4_000, 1_000, 0), "wait");
        assert_eq!(step(5_000, 1_000, 0), "copy");
        assert_eq!(step(9_000, 5_000, 0), "copy and sync", "much is not on the disk yet");
        assert_eq!(step(13_000, 9_000, 9_000), "copy");
        assert_eq!(step(START_OVER_PAGES, 13_000, 9_000), "copy and sync", "before the writer starts over");
        assert_eq!(step(START_OVER_PAGES + 500, START_OVER_PAGES, START_OVER_PAGES), "start over");
        assert_eq!(step(LOG_PAGES_MAX, 1, 0), "start over", "whatever it takes");
    }

    #[test]
    fn a_copy_during_which_nothing_is_committed_syncs_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let connection = Connection::open(dir.path().join("log.db")).unwrap();
        connection
            .execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE t (x); INSERT INTO t VALUES (randomblob(100000))")
            .unwrap();
        let progress = Progress::default();
        Order::UntilSynced.run(&connection, &progress);
        let copied = progress.copied_pages.load(Ordering::Acquire);
        assert!(copied > 20, "{copied} pages");
        assert_eq!(progress.synced_pages.load(Ordering::Acquire), copied);
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
    fn a_copy_beside_a_busy_writer_comes_to_an_end() {
        let dir = tempfile::tempdir().unwrap();
        let connection = Connection::open(dir.path().join("log.db")).unwrap();
        connection.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE t (x)").unwrap();
        let progress = Progress::default();
        // As if something were committed during every pass.
        progress.log_pages.store(u64::MAX, Ordering::Release);
        Order::UntilSynced.run(&connection, &progress);
        assert_eq!(progress.synced_pages.load(Ordering::Acquire), 0);
    }
}
