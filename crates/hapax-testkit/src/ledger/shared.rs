//! What the connections and the test share: the book, the rules, what waits, and what came last.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use sha2::{Digest, Sha256};
use tokio::sync::watch;

use super::behaviour::{Behaviour, Rules, Selector};
use super::book::{Book, Entry};
use super::request::Received;
use crate::tokens;

/// Requests that are kept whole. More than a test looks at; a long run must not fill the memory.
pub(super) const RECEIVED_MAX: usize = 1000;

/// By which a script chooses a behaviour.
const BEHAVIOUR_HEADER: &str = "x-test-behaviour";

#[derive(Debug)]
pub(super) struct State {
    pub(super) book: Book,
    pub(super) rules: Rules,
    pub(super) held: Vec<Selector>,
    pub(super) received: VecDeque<Received>,
    pub(super) broken: u64,
    /// How many requests are being worked on that are not in the book yet.
    pub(super) working: u64,
    pub(super) connections: u64,
}

#[derive(Debug)]
pub(super) struct Shared {
    tenant_header: String,
    state: Mutex<State>,
    /// For tests, which block.
    changed: Condvar,
    /// For connections, which do not.
    released: watch::Sender<()>,
}

impl Shared {
    pub(super) fn open(file: &Path, tenant_header: &str) -> Shared {
        let state = State {
            book: Book::open(file),
            rules: Rules::default(),
            held: Vec::new(),
            received: VecDeque::new(),
            broken: 0,
            working: 0,
            connections: 0,
        };
        let (tenant_header, released) = (tenant_header.to_owned(), watch::Sender::new(()));
        Shared { tenant_header, state: Mutex::new(state), changed: Condvar::new(), released }
    }

    /// Reads the ledger anew, as after a restart.
    pub(super) fn reopen(&self, file: &Path) {
        self.change(|state| state.book = Book::open(file));
    }

    pub(super) fn read<T>(&self, read: impl FnOnce(&State) -> T) -> T {
        read(&self.state())
    }

    pub(super) fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let changed = change(&mut self.state());
        self.changed.notify_all();
        self.released.send_replace(());
        changed
    }

    /// Blocks until `done` says so; false when `limit` has passed.
    pub(super) fn wait(&self, limit: Duration, done: impl Fn(&State) -> bool) -> bool {
        let waited = self.changed.wait_timeout_while(self.state(), limit, |state| !done(state));
        !waited.expect("nobody panics while holding it").1.timed_out()
    }

    /// Does the work, writes it to the book, and says how to treat the request.
    pub(super) async fn execute(&self, request: &Received) -> (Entry, Behaviour) {
        let asked = request.header(BEHAVIOUR_HEADER).map(Behaviour::parse);
        let mut entry = self.entry(request);
        let behaviour = self.change(|state| {
            let behaviour = asked.unwrap_or_else(|| state.rules.take(&entry));
            let same = |other: &Entry| (&other.tenant, &other.key) == (&entry.tenant, &entry.key);
            let behaviour = behaviour.resolved(|| !state.book.entries().iter().any(same));
            state.received.push_back(request.clone());
            if state.received.len() > RECEIVED_MAX {
                state.received.pop_front();
            }
            state.working += 1;
            behaviour
        });
        entry.treated = behaviour.name();
        if let Behaviour::Late(length, _) = &behaviour {
            tokio::time::sleep(*length).await;
        }
        self.change(|state| {
            state.working -= 1;
            match behaviour {
                Behaviour::LookUp(then) => look_up(state, entry, *then),
                behaviour => (state.book.add(entry), behaviour),
            }
        })
    }

    /// Returns when nobody holds this execution back.
    pub(super) async fn released(&self, entry: &Entry) {
        let mut changes = self.released.subscribe();
        while self.read(|state| state.held.iter().any(|held| held.matches(entry))) {
            // The sender lives in what we share, so it cannot be gone.
            let _ = changes.changed().await;
        }
    }

    fn entry(&self, request: &Received) -> Entry {
        let owned = |value: Option<&str>| value.map(str::to_owned);
        Entry {
            sequence: 0,
            id: tokens::name("ex"),
            method: request.method.clone(),
            path: request.path().to_owned(),
            query: owned(request.query()),
            key: owned(request.key()),
            attempt: owned(request.header("idempotency-attempt")),
            record: owned(request.header("idempotency-record")),
            tenant: owned(request.header(&self.tenant_header)),
            body_sha256: Sha256::digest(&request.body).iter().map(|byte| format!("{byte:02x}")).collect(),
            unix_ms: unix_ms(),
            treated: String::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics while holding it")
    }
}

/// What happened under the key, or the record's id, that a question asks about, or that nothing did.
fn look_up(state: &State, question: Entry, then: Behaviour) -> (Entry, Behaviour) {
    let asked = question.query.as_deref().and_then(|query| query.rsplit('=').next());
    let is_it = |entry: &&Entry| asked.is_some() && (entry.key.as_deref() == asked || entry.record.as_deref() == asked);
    match state.book.entries().iter().find(is_it) {
        Some(found) => (found.clone(), then),
        None => (question, Behaviour::answer(404, "{\"found\":false}")),
    }
}

#[expect(clippy::disallowed_methods, reason = "the witness has a clock of its own")]
fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
