//! Moves the write-ahead log into the file, beside the writer.
//!
//! A commit appends to the log; now and then its pages are copied into the file. Doing that in the writer's thread would
//! make some claims wait for a copy of many megabytes. So a thread of its own copies (`PASSIVE`: it blocks nobody), and
//! the writer starts the log over only once little is left to copy. The log is never cut while it is in use: a commit
//! into blocks that are there already is cheaper.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::Connection;
use rusqlite::hooks::Wal;

/// The log is copied when it has this many pages. Longer: pages written often are copied less often. Shorter: a commit
/// finds its blocks in place sooner.
const COPY_PAGES: u64 = 4_000;

/// The log is started over by the writer once no more than this is left to copy: a few milliseconds.
const REST_PAGES_MAX: u64 = 4_000;

/// Beyond this the writer copies whatever is left: a log without end would fill the disk.
const LOG_PAGES_MAX: u64 = 16 * COPY_PAGES;

pub(crate) struct Checkpointer {
    orders: Option<mpsc::SyncSender<()>>,
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
    /// How long the log was after the writer's last commit.
    log_pages: AtomicU64,
}

impl Checkpointer {
    /// Starts the thread, with a connection of its own.
    pub(crate) fn start(connection: Connection) -> std::io::Result<Self> {
        let (orders, waiting) = mpsc::sync_channel(1);
        let progress = Arc::new(Progress::default());
        let shared = Arc::clone(&progress);
        let thread = std::thread::Builder::new().name("hapax-checkpoint".to_owned()).spawn(move || {
            while waiting.recv().is_ok() {
                if let Some(done) = checkpoint(&connection, "PASSIVE") {
                    shared.copied_pages.store(done.copied_pages, Ordering::Release);
                }
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
        if pages < COPY_PAGES {
            self.not_before_pages = 0;
            return;
        }
        let copied = self.progress.copied_pages.load(Ordering::Acquire);
        let rest = pages.saturating_sub(copied);
        if pages < self.not_before_pages {
            return;
        }
        if pages >= LOG_PAGES_MAX || (copied > 0 && rest <= REST_PAGES_MAX) {
            self.start_over(connection, pages);
        } else {
            self.order_copy();
        }
    }

    /// The writer starts the log over; if a reader still needs it, not now.
    fn start_over(&mut self, connection: &Connection, pages: u64) {
        let restarted = without_waiting(connection, || checkpoint(connection, "RESTART"));
        self.progress.copied_pages.store(0, Ordering::Release);
        if restarted.is_some_and(|restarted| !restarted.busy) {
            self.progress.log_pages.store(0, Ordering::Release);
        } else {
            self.not_before_pages = pages + COPY_PAGES;
        }
    }

    fn order_copy(&self) {
        self.progress.busy.store(true, Ordering::Release);
        if self.orders.as_ref().is_none_or(|orders| orders.try_send(()).is_err()) {
            self.progress.busy.store(false, Ordering::Release);
        }
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
