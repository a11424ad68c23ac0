//! [`Sqlite`]: the store, as its callers see it.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use hapax_core::address::Address;
use hapax_core::clock::Now;
use hapax_core::codec;
use hapax_core::journal::{Journal, Note, NoteScan, Noted};
use hapax_core::limits::REAP_MAX;
use hapax_core::record::{Record, Version};
use hapax_core::store::{Durability, ErrorKind, Health, Page, Scan, Seen, Store, StoreError, Swap};
use rusqlite::{Connection, Transaction};
use tokio::sync::{mpsc, oneshot};

use crate::checkpoint::{Checkpointer, Trust};
use crate::large::Large;
use crate::options::Options;
use crate::reader::{Question, Reader};
use crate::recent::{LOOKERS, Recent};
use crate::rows::{Found, Swaps, Write, Written};
use crate::whereabouts::Whereabouts;
use crate::writer::{Broken, Job, REAP_SLICE_MIN, SharedTime, Writer};
use crate::{failure, schema};

/// Operations that may wait for a thread; a caller beyond them waits for its turn to wait.
const QUEUE_MAX: usize = 4096;

/// Threads that read. Reads are short; a second thread keeps a long scan from holding up a `get`.
const READERS: usize = 2;

/// hapax records in an SQLite file. Clones share it; when the last one is dropped, what is waiting is written and the
/// threads end.
#[derive(Clone)]
pub struct Sqlite {
    jobs: mpsc::Sender<Job>,
    questions: mpsc::Sender<Question>,
    pub(crate) time: Arc<SharedTime>,
    recent: Arc<Recent>,
    pub(crate) large: Arc<Large>,
    broken: Arc<Broken>,
    whereabouts: Arc<Whereabouts>,
    /// What the file calls itself, wherever it is.
    name: Arc<[u8]>,
}

impl fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sqlite").field("path", &self.whereabouts.path()).finish_non_exhaustive()
    }
}

impl Sqlite {
    /// Opens a file, makes it if it is not there, and brings its schema up to date. Takes a path, or [`Options`]. Blocks for as
    /// long as that takes.
    ///
    /// ```standalone_crate
    /// use hapax_sqlite::Sqlite;
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # std::env::set_current_dir(&directory)?;
    /// let store = Sqlite::open("pay.db")?;
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the file cannot be opened or written, is not a database, belongs to another application, was written by a newer
    /// release that this one cannot read beside, or has to be there and is not.
    pub fn open(options: impl Into<Options>) -> Result<Self, StoreError> {
        let options = options.into();
        let named = |error: StoreError| {
            let message = format!("{}: {}", options.path.display(), error.message);
            StoreError { op: "open", message, ..error }
        };
        Self::open_unnamed(&options).map_err(named)
    }

    fn open_unnamed(options: &Options) -> Result<Self, StoreError> {
        let mut connection = schema::connect(options)?;
        schema::leave_log_at_close(&connection, true)?;
        let name = schema::prepare(&mut connection, options)?;
        let copying = schema::connect(options)?;
        schema::leave_log_at_close(&copying, true)?;
        // Before the first commit: that may start the log over.
        let trust = Trust::begin(options, &connection, &copying)?;
        let begun = schema::begin_time(&mut connection, &options.clock)?;
        for connection in [&connection, &copying] {
            schema::leave_log_at_close(connection, false)?;
        }
        let time = Arc::new(SharedTime { clock: Arc::clone(&options.clock), time: Mutex::new(begun) });
        let (jobs, job_queue) = mpsc::channel(QUEUE_MAX);
        let (questions, question_queue) = mpsc::channel(QUEUE_MAX);
        let question_queue = Arc::new(Mutex::new(question_queue));
        for _ in 0..READERS {
            let (connection, questions) = (schema::connect(options)?, Arc::clone(&question_queue));
            let reader = Reader { connection, time: Arc::clone(&time), questions };
            spawn("hapax-reader", move || reader.run())?;
        }
        let broken = Arc::<Broken>::default();
        let checkpointer = Checkpointer::start(copying, Arc::clone(&broken), trust).map_err(no_thread)?;
        checkpointer.watch(&mut connection).map_err(|error| failure::of_statement("open", error))?;
        let whereabouts = Arc::new(Whereabouts::of(&options.path));
        let writer = Writer {
            connection,
            time: Arc::clone(&time),
            jobs: job_queue,
            checkpointer,
            reaping: VecDeque::new(),
            reap_slice: REAP_SLICE_MIN,
            noting: Vec::new(),
            folding: Vec::new(),
            high_water_ms: 0,
            broken: Arc::clone(&broken),
            whereabouts: Arc::clone(&whereabouts),
        };
        spawn("hapax-writer", move || writer.run())?;
        let lookers = (0..LOOKERS).map(|_| schema::connect(options)).collect::<Result<_, _>>()?;
        let recent = Arc::new(Recent::new(lookers));
        Ok(Self { jobs, questions, time, recent, large: Arc::default(), broken, whereabouts, name: name.into() })
    }

    /// Moves the log into the file, so that the file is whole by itself: for the end of a process, and whoever copies the
    /// file then. What another process still reads stays in the log.
    pub async fn fold_log(&self) {
        let (reply, answer) = oneshot::channel();
        // A store that has stopped has nothing to move.
        if self.jobs.send(Job::Fold { reply }).await.is_ok() {
            let _ = answer.await;
        }
    }

    /// Swaps inside the caller's own transaction, so that completion and the caller's data commit together or not at
    /// all. The record is written when, and only when, the caller commits. Claims do not belong here: they must be
    /// durable before anything runs.
    ///
    /// SQLite has one writer: while the caller's transaction is open, no other swap proceeds. Keep it short.
    ///
    /// This is for programs that claim with an [`Engine`](hapax_core::engine::Engine) of their own. A handler behind
    /// `hapax`'s HTTP layer must not complete its own record: the layer does, with the answer that it sent.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use hapax_core::address::{Address, AddressScheme, Key, Scope, Space};
    /// # use hapax_core::fingerprint::{Fingerprinter, Fingerprints, Recipe, Request};
    /// use hapax_core::engine::Engine;
    /// use hapax_core::record::{Body, Labels, Outcome, Policy, Version};
    /// use hapax_core::store::Swap;
    /// use hapax_core::transition::{Answer, Event, decide};
    /// use hapax_sqlite::{Options, Sqlite};
    /// # use std::sync::atomic::{AtomicU64, Ordering};
    /// # static DRAWN: AtomicU64 = AtomicU64::new(1);
    /// # fn random() -> [u8; 16] { u128::from(DRAWN.fetch_add(1, Ordering::Relaxed)).to_le_bytes() }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let at = Address::new(&AddressScheme::default(), &Space::new("http")?, &Scope::new("alice")?, &Key::new("k-1")?);
    /// # let recipe = Recipe::new();
    /// # let request = Fingerprinter::new(Request::new("POST", "/orders", b"{}"), &recipe, &[])?.current();
    ///
    /// let path = dir.path().join("shop.db");
    /// let mut shop = rusqlite::Connection::open(&path)?;
    /// shop.execute_batch("PRAGMA synchronous = FULL; CREATE TABLE orders (id TEXT)")?;
    /// let engine = Engine::new(Sqlite::open(Options::new(&path).with_guest())?, random);
    ///
    /// let claimed = engine.claim(&at, &request, Policy::default()).await?;
    /// assert_eq!(claimed.answer, Answer::Proceed); // anything else: replay, or refuse
    /// let attempt_id = claimed.attempt_id().ok_or("a claim that proceeds has an attempt")?;
    /// let outcome = Arc::new(Outcome { status: 201, headers: vec![], body: Body::Kept(b"o-1".to_vec()) });
    ///
    /// // The rules say what the record becomes; the caller's transaction writes it, beside the order.
    /// let complete = Event::Complete { attempt_id, outcome: &outcome, labels: &Labels::default() };
    /// let decision = decide(&claimed.seen, &complete, Version::from_bytes(random()))?;
    /// let next = decision.write.ok_or("the attempt is no longer ours")?;
    /// let transaction = shop.transaction()?;
    /// transaction.execute("INSERT INTO orders VALUES ('o-1')", [])?;
    /// match engine.store().swap_in(&transaction, &at, claimed.seen.version(), &next)? {
    ///     Swap::Applied(_) => transaction.commit()?,
    ///     Swap::Lost(_) => transaction.rollback()?, // the lease lapsed, and somebody else goes on
    /// }
    ///
    /// let retry = engine.claim(&at, &request, Policy::default()).await?;
    /// assert_eq!((retry.answer, retry.outcome()), (Answer::Replay, Some(&outcome)));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the transaction is on another file, or its connection would not make the commit durable.
    pub fn swap_in(
        &self,
        transaction: &Transaction<'_>,
        at: &Address,
        expect: Option<Version>,
        next: &Record,
    ) -> Result<Swap, StoreError> {
        self.check_guest(transaction)?;
        let write = Write::new(at, expect, next);
        let now = self.time.now();
        let written =
            Swaps::new(transaction).swap(&write, now.at).map_err(|error| failure::of_statement("swap_in", error))?;
        written.into_swap_on(transaction, at, now)
    }

    fn check_guest(&self, connection: &Connection) -> Result<(), StoreError> {
        let unsuitable = |message| Err(StoreError::new("swap_in", ErrorKind::Unsuitable, message));
        let name: Result<Vec<u8>, _> = connection
            .prepare_cached("SELECT value FROM hapax_meta WHERE name = 'store'")
            .and_then(|mut select| select.query_row([], |row| row.get(0)));
        if name.ok().as_deref() != Some(&*self.name) {
            return unsuitable("the transaction is not on this store's file; open both on the same file");
        }
        let level: i64 = connection
            .query_row("PRAGMA synchronous", [], |row| row.get(0))
            .map_err(|error| failure::of_statement("swap_in", error))?;
        if level < SYNCHRONOUS_FULL {
            return unsuitable("the connection would not make the commit durable; set PRAGMA synchronous = FULL on it");
        }
        Ok(())
    }
}

const SYNCHRONOUS_FULL: i64 = 2;

impl Sqlite {
    pub(crate) fn path(&self) -> &std::path::Path {
        self.whereabouts.path()
    }

    pub(crate) async fn ask(&self, question: Question, op: &'static str) -> Result<(), StoreError> {
        self.questions.send(question).await.map_err(|_| failure::stopped(op))
    }

    async fn write(&self, write: Write, at: &Address) -> Result<Swap, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.jobs.send(Job::Swap { write, reply }).await.map_err(|_| failure::stopped("swap"))?;
        let (written, now) = answer.await.map_err(|_| failure::abandoned("swap"))??;
        self.recent.note(at.id());
        match written {
            Written::Applied => Ok(Swap::Applied(now)),
            Written::Lost(row) => Ok(Swap::Lost(codec::seen(at, row.as_ref(), now, "swap")?)),
            Written::LostToLarge(version) => Ok(Swap::Lost(self.large(at, &version, "swap").await?)),
        }
    }
}

impl Journal for Sqlite {
    async fn swap_noted(
        &self,
        at: &Address,
        expect: Option<Version>,
        next: &Record,
        note: &Note,
    ) -> Result<Swap, StoreError> {
        note.check_limits()?;
        self.write(Write::new(at, expect, next).noted(note), at).await
    }

    async fn note(&self, note: &Note) -> Result<Now, StoreError> {
        note.check_limits()?;
        let (reply, answer) = oneshot::channel();
        let job = Job::Note { note: Box::new(note.clone()), reply };
        self.jobs.send(job).await.map_err(|_| failure::stopped("note"))?;
        answer.await.map_err(|_| failure::abandoned("note"))?
    }

    async fn notes(&self, query: &NoteScan) -> Result<Vec<Noted>, StoreError> {
        let (reply, answer) = oneshot::channel();
        let question = Question::Notes { query: query.clone(), reply };
        self.questions.send(question).await.map_err(|_| failure::stopped("notes"))?;
        answer.await.map_err(|_| failure::stopped("notes"))?
    }
}

impl Store for Sqlite {
    async fn swap(&self, at: &Address, expect: Option<Version>, next: &Record) -> Result<Swap, StoreError> {
        // A claim of a key that is there needs no write. What a reader sees is committed, and so durable.
        if expect.is_none()
            && let Some(found) = self.recent.look(at)
        {
            let stored = match found {
                Found::Whole(stored) => stored.map_err(|error| error.in_store("swap"))?,
                Found::Large(version) => return Ok(Swap::Lost(self.large(at, &version, "swap").await?)),
            };
            // The record first, then the time: a lease that has lapsed by a later clock has lapsed.
            return Ok(Swap::Lost(Seen { stored: Some(stored), now: self.time.now() }));
        }
        self.write(Write::new(at, expect, next), at).await
    }

    async fn get(&self, at: &Address) -> Result<Seen, StoreError> {
        let (reply, answer) = oneshot::channel();
        let question = Question::Get { id: *at.id(), reply };
        self.questions.send(question).await.map_err(|_| failure::stopped("get"))?;
        let (found, now) = answer.await.map_err(|_| failure::stopped("get"))??;
        match found {
            Some(Found::Large(version)) => self.large(at, &version, "get").await,
            Some(Found::Whole(row)) => codec::seen(at, Some(&row), now, "get"),
            None => Ok(Seen { stored: None, now }),
        }
    }

    async fn scan(&self, query: &Scan) -> Result<Page, StoreError> {
        let (reply, answer) = oneshot::channel();
        let question = Question::Scan { query: query.clone(), reply };
        self.questions.send(question).await.map_err(|_| failure::stopped("scan"))?;
        answer.await.map_err(|_| failure::stopped("scan"))?
    }

    async fn reap(&self, limit: u32) -> Result<u32, StoreError> {
        let (reply, answer) = oneshot::channel();
        let job = Job::Reap { limit: limit.min(REAP_MAX), reply };
        self.jobs.send(job).await.map_err(|_| failure::stopped("reap"))?;
        answer.await.map_err(|_| failure::stopped("reap"))?
    }

    async fn health(&self) -> Result<Health, StoreError> {
        self.broken.check("health")?;
        if self.jobs.is_closed() {
            return Err(failure::stopped("health"));
        }
        self.whereabouts.check("health")?;
        self.scan(&Scan { limit: 1, ..Scan::default() }).await.map_err(|error| StoreError { op: "health", ..error })?;
        let clock = self.time.time.lock().unwrap_or_else(PoisonError::into_inner).health();
        let durability = if self.whereabouts.is_in_memory() { Durability::None } else { Durability::Disk };
        Ok(Health { durability, clock })
    }

    fn has_stopped(&self) -> bool {
        self.broken.is_set()
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), StoreError> {
    std::thread::Builder::new().name(name.to_owned()).spawn(work).map(|_| ()).map_err(no_thread)
}

fn no_thread(error: std::io::Error) -> StoreError {
    StoreError::new("open", ErrorKind::Unavailable, "no thread could be started; raise the limit of threads")
        .caused_by(error)
}
