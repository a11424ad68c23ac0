//! Moves the write-ahead log into the file, beside the writer.
//!
//! A commit appends to the log; now and then its pages are copied into the file. Doing that in the writer's thread would
//! make some claims wait until many megabytes are copied and on the disk. So a thread of its own copies (`PASSIVE`: it
//! blocks nobody). SQLite syncs the file only at the end of a pass that found nothing committed since it began. So when
//! little is left to copy the writer keeps still for a moment: long enough for the pass to get to its sync, not until that
//! ends. What was committed during that sync is little too, and the writer starts the log over. The log is not cut while
//! it is in use, unless it became very long: a commit into blocks that are there already is cheaper.
//!
//! If the disk fails, nothing is copied any more and the store stops: what a failed sync left behind counts as written,
//! so a second one would succeed. All of it is still in the log, for the next start. That start does not trust the file before
//! everything that the log holds was copied once more: [`Trust`].

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use hapax_core::store::StoreError;
use rusqlite::hooks::Wal;
use rusqlite::{Connection, ErrorCode};

use crate::options::Options;
use crate::writer::Broken;
use crate::{durable, failure, schema};

/// The first copy begins when the log has this many pages. Under a light load all of it is soon in the file, and the
/// log starts over: a commit then finds its blocks in place.
const FIRST_COPY_PAGES: u64 = 1_000;

/// Later copies begin when this many pages are left to copy. More: pages that are written often are copied less often.
const NEXT_COPY_PAGES: u64 = 4_000;

/// So many pages are copied before the file is synced: the disk has other things to do than to write them all at once.
const SYNC_PAGES: u64 = 6_000;

/// Under a heavy load the log becomes this long before it is started over.
const START_OVER_PAGES: u64 = 16_000;

/// So little is copied and synced in a few milliseconds. Of larger commits, two.
const REST_PAGES_MAX: u64 = 600;

/// So little that the log may start over although it is not long.
const REST_PAGES_FEW: u64 = 100;

/// How long the writer keeps still for a pass, and for each page of it.
const STILL: Duration = Duration::from_millis(5);
const STILL_PER_PAGE: Duration = Duration::from_micros(5);

/// From here on the writer lets the thread catch up, a moment after each commit. A log that was longer is cut when it starts
/// over.
pub(crate) const HURRY_PAGES: u64 = 2 * START_OVER_PAGES;

/// From here on the writer starts the log over even if that takes long: a log without end would fill the disk.
const LOG_PAGES_MAX: u64 = 128_000;

/// Passes of one copy. Each is shorter than the one before, or it is the last.
const PASSES_MAX: u32 = 16;

/// Whether what was copied from the log into the file before this process began is known to be on the disk. Before it is,
/// the log must not start over. See `durable.rs`.
pub(crate) enum Trust {
    Earned,
    /// Somebody read an old state of the file when it was to be copied again.
    Pending {
        options: Box<Options>,
        again: bool,
    },
    /// Whoever only operates on a store leaves its log to the nodes.
    NotWanted,
}

impl Trust {
    /// At the start. A new file must hold something by then: SQLite throws the log of an empty one away.
    pub(crate) fn begin(options: &Options, writer: &Connection, copying: &Connection) -> Result<Self, StoreError> {
        if options.existing {
            return Ok(Self::NotWanted);
        }
        let again = durable::is_begun(copying)?;
        let copied = durable::while_nobody_writes(writer, || durable::file(copying, &options.path, again))?;
        Ok(if copied { Self::Earned } else { Self::Pending { options: Box::new(options.clone()), again } })
    }

    fn is_earned(&self) -> bool {
        matches!(self, Self::Earned)
    }

    /// Tries again. A failure of the disk is one of the file.
    fn earn(&mut self, writer: &Connection, broken: &Broken) {
        let Self::Pending { options, again } = self else { return };
        if broken.is_set() {
            return;
        }
        let copied = without_waiting(writer, || {
            let copying = schema::connect(options)?;
            durable::while_nobody_writes(writer, || durable::file(&copying, &options.path, *again))
        });
        match copied {
            Ok(true) => *self = Self::Earned,
            Err(error) if !failure::is_busy(&error) => broken.set_by_file(),
            // Somebody is in the way.
            Ok(false) | Err(_) => {}
        }
    }
}

pub(crate) struct Checkpointer {
    orders: Option<mpsc::SyncSender<Order>>,
    thread: Option<JoinHandle<()>>,
    progress: Arc<Progress>,
    broken: Arc<Broken>,
    trust: Trust,
    /// Nothing is tried again before the log is this long.
    not_before_pages: u64,
    /// How long the log was when it was looked at last.
    seen_pages: u64,
}

#[derive(Default)]
struct Progress {
    /// An order is being carried out.
    busy: Mutex<bool>,
    idle: Condvar,
    /// How many pages of the log are in the file.
    copied_pages: AtomicU64,
    /// How many are on the disk there, as far as can be told: what is wrong here costs time, and nothing else.
    synced_pages: AtomicU64,
    /// How long the log was after the writer's last commit.
    log_pages: AtomicU64,
}

impl Progress {
    fn set_busy(&self, busy: bool) {
        *self.busy.lock().unwrap_or_else(PoisonError::into_inner) = busy;
        self.idle.notify_all();
    }

    /// Whether nothing is under way, now or soon.
    fn is_idle_within(&self, wait: Duration) -> bool {
        let busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.idle.wait_timeout_while(busy, wait, |busy| *busy);
        !*waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn of(&self, pages: u64, commit_pages: u64) -> Log {
        let [copied_pages, synced_pages] =
            [&self.copied_pages, &self.synced_pages].map(|count| count.load(Ordering::Acquire));
        Log { pages, copied_pages, synced_pages, commit_pages }
    }
}

/// An order under way. Over when it is dropped, however that comes.
struct Busy<'a>(&'a Progress);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.set_busy(false);
    }
}

impl Checkpointer {
    /// Starts the thread, with a connection of its own.
    pub(crate) fn start(connection: Connection, broken: Arc<Broken>, trust: Trust) -> std::io::Result<Self> {
        let (orders, waiting) = mpsc::sync_channel::<Order>(1);
        let progress = Arc::new(Progress::default());
        let (shared, failed) = (Arc::clone(&progress), Arc::clone(&broken));
        let thread = std::thread::Builder::new().name("hapax-checkpoint".to_owned()).spawn(move || {
            while let Ok(order) = waiting.recv() {
                let _busy = Busy(&shared);
                order.run(|| checkpoint(&connection, "PASSIVE", &failed), &shared);
            }
        })?;
        let (orders, thread) = (Some(orders), Some(thread));
        Ok(Self { orders, thread, progress, broken, trust, not_before_pages: 0, seen_pages: 0 })
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
        let pages = self.progress.log_pages.load(Ordering::Acquire);
        let commit_pages = pages.saturating_sub(std::mem::replace(&mut self.seen_pages, pages));
        let patience = if pages >= HURRY_PAGES { STILL } else { Duration::ZERO };
        if !self.progress.is_idle_within(patience) {
            return;
        }
        if pages < FIRST_COPY_PAGES {
            // Nothing of it was copied yet. SQLite itself, or another process, may have started the log over.
            self.begin_anew();
        } else if !self.trust.is_earned() {
            if pages >= self.not_before_pages {
                self.trust.earn(connection, &self.broken);
                self.not_before_pages = pages + NEXT_COPY_PAGES;
            }
        } else if pages >= self.not_before_pages {
            let log = self.progress.of(pages, commit_pages);
            match log.next_step() {
                Step::Wait => {}
                Step::Copy => self.order(Order::Copy),
                Step::CatchUp => self.order(Order::CatchUp { enough_pages: log.little() / 2 }),
                Step::Sync => self.keep_still(&log),
                Step::StartOver => self.start_over(connection, pages),
            }
        }
    }

    /// Commits nothing until the thread has copied the rest, and most likely is syncing the file.
    fn keep_still(&mut self, log: &Log) {
        self.order(Order::Sync);
        let wait = STILL + STILL_PER_PAGE.saturating_mul(u32::try_from(log.rest()).unwrap_or(u32::MAX));
        let is_done = self.progress.is_idle_within(wait);
        if is_done && self.progress.synced_pages.load(Ordering::Acquire) >= log.pages {
            // SQLite starts the log over with the next commit, unless a reader needs it; then it is not tried again soon.
            self.not_before_pages = log.pages + NEXT_COPY_PAGES;
        }
    }

    /// The writer starts the log over; if a reader still needs it, not now.
    fn start_over(&mut self, connection: &Connection, pages: u64) {
        let restarted = without_waiting(connection, || checkpoint(connection, "RESTART", &self.broken));
        self.begin_anew();
        if restarted.is_some_and(|restarted| !restarted.busy) {
            self.seen_pages = 0;
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
        self.progress.set_busy(true);
        if self.orders.as_ref().is_none_or(|orders| orders.try_send(order).is_err()) {
            self.progress.set_busy(false);
        }
    }

    /// Leaves nothing in the log, unless somebody still reads there.
    pub(crate) fn fold(&mut self, connection: &Connection) {
        self.trust.earn(connection, &self.broken);
        if self.trust.is_earned() {
            checkpoint(connection, "TRUNCATE", &self.broken);
            self.begin_anew();
        }
    }

    /// A store that is closed leaves no log behind. False: it must, because the file is not to be trusted.
    pub(crate) fn finish(&mut self, connection: &Connection) -> bool {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        self.fold(connection);
        !matches!(self.trust, Trust::Pending { .. })
    }
}

/// What the thread is to do.
#[derive(Clone, Copy)]
enum Order {
    /// Copy what is there.
    Copy,
    /// Copy until no more than this is left.
    CatchUp { enough_pages: u64 },
    /// Copy what is there, and sync the file: the writer keeps still meanwhile.
    Sync,
}

impl Order {
    fn run(self, mut pass: impl FnMut() -> Option<Checkpoint>, progress: &Progress) {
        let mut copy = || {
            let done = pass()?;
            progress.copied_pages.store(done.copied_pages, Ordering::Release);
            (!done.busy).then_some(done)
        };
        match self {
            Self::Copy => {
                copy();
            }
            Self::CatchUp { enough_pages } => {
                let mut least = u64::MAX;
                for _ in 0..PASSES_MAX {
                    let Some(done) = copy() else { return };
                    let rest = progress.log_pages.load(Ordering::Acquire).saturating_sub(done.copied_pages);
                    // A reader that needs the log, such as a backup, lets no pass get any further, and a writer may be faster.
                    if rest <= enough_pages || rest >= least {
                        return;
                    }
                    least = rest;
                }
            }
            Self::Sync => {
                if let Some(done) = copy().filter(|done| done.copied_pages >= done.log_pages) {
                    progress.synced_pages.store(done.copied_pages, Ordering::Release);
                }
            }
        }
    }
}

/// A log of `pages`, of which so many are in the file, and on the disk there; the last commits added so many.
#[derive(Clone, Copy, Debug, Default)]
struct Log {
    pages: u64,
    copied_pages: u64,
    synced_pages: u64,
    commit_pages: u64,
}

#[derive(Debug, PartialEq)]
enum Step {
    Wait,
    Copy,
    CatchUp,
    Sync,
    StartOver,
}

impl Log {
    fn rest(&self) -> u64 {
        self.pages.saturating_sub(self.copied_pages)
    }

    /// So little that the writer may wait for it.
    fn little(&self) -> u64 {
        REST_PAGES_MAX.max(2 * self.commit_pages)
    }

    fn next_step(&self) -> Step {
        let (rest, unsynced) = (self.rest(), self.pages.saturating_sub(self.synced_pages));
        let is_begun = self.copied_pages > 0;
        let is_long = self.pages >= START_OVER_PAGES;
        let many = if is_begun { NEXT_COPY_PAGES } else { FIRST_COPY_PAGES };
        if is_begun && unsynced <= if is_long { self.little() } else { REST_PAGES_FEW }
            || self.pages >= LOG_PAGES_MAX && rest <= START_OVER_PAGES
        {
            Step::StartOver
        } else if is_begun && (rest <= REST_PAGES_FEW || rest <= self.little() && (is_long || unsynced >= SYNC_PAGES)) {
            Step::Sync
        } else if is_long || rest >= many && unsynced >= SYNC_PAGES {
            Step::CatchUp
        } else if rest >= many {
            Step::Copy
        } else {
            Step::Wait
        }
    }
}

struct Checkpoint {
    /// Somebody was in the way; a later try gets on.
    busy: bool,
    /// How long the log is.
    log_pages: u64,
    /// How many pages of the log are in the file now.
    copied_pages: u64,
}

/// `None` where it failed, and nothing can be said.
fn checkpoint(connection: &Connection, mode: &str, broken: &Broken) -> Option<Checkpoint> {
    if broken.is_set() {
        return None;
    }
    let done = connection.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |row| {
        let pages = |at| row.get::<_, i64>(at).map(|pages| u64::try_from(pages).unwrap_or(0));
        Ok(Checkpoint { busy: row.get::<_, i64>(0)? != 0, log_pages: pages(1)?, copied_pages: pages(2)? })
    });
    if done.as_ref().is_err_and(|error| error.sqlite_error_code() == Some(ErrorCode::SystemIoFailure)) {
        broken.set_by_file();
    }
    done.ok()
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
mod tests;
