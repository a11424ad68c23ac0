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
        if pages < FIRST_COPY_PAGES {
            self.not_before_pages = 0;
        } else if pages >= self.not_before_pages {
            let copied = self.progress.copied_pages.load(Ordering::Acquire);
            match next_step(pages, copied) {
                Step::Wait => {}
                Step::Copy => self.order_copy(),
                Step::StartOver => self.start_over(connection, pages),
            }
        }
    }

    /// The writer starts the log over; if a reader still needs it, not now.
    fn start_over(&mut self, connection: &Connection, pages: u64) {
        let restarted = without_waiting(connection, || checkpoint(connection, "RESTART"));
        self.progress.copied_pages.store(0, Ordering::Release);
        if restarted.is_some_and(|restarted| !restarted.busy) {
            self.progress.log_pages.store(0, Ordering::Release);
        } else {
            self.not_before_pages = pages + NEXT_COPY_PAGES;
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

enum Step {
    Wait,
    Copy,
    StartOver,
}

/// What to do about a log that long, of which so much is in the file.
fn next_step(pages: u64, copied_pages: u64) -> Step {
    let rest = pages.saturating_sub(copied_pages);
    let is_long = pages >= START_OVER_PAGES;
    let few = if is_long { REST_PAGES_MAX } else { REST_PAGES_FEW };
    let many = if copied_pages == 0 { FIRST_COPY_PAGES } else { NEXT_COPY_PAGES };
    if pages >= LOG_PAGES_MAX || (copied_pages > 0 && rest <= few) {
        Step::StartOver
    } else if rest >= many || is_long {
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
