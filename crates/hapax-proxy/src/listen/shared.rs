//! What a connection and the service on it tell each other.
//!
//! Both count requests: the connection the heads it let through, the service its calls and answers. By these numbers they
//! mean the same request, also when a client sends several at once.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use tokio::time::Instant;

use crate::places::Place;
use crate::problem::Problem;

/// Something is under way between the client and hyper.
const STIRRING: u8 = 0;
/// Nothing is: no half of a head, nothing that could not be written.
const QUIET: u8 = 1;
/// A head has begun and is not complete.
const HEAD_BEGUN: u8 = 2;

/// State of one connection.
pub(crate) struct Shared {
    /// The connection's place; a tunnel keeps it.
    pub(crate) place: Place,
    refused: OnceLock<(u64, Problem)>,
    calls: AtomicU64,
    answered: AtomicU64,
    tunnel: AtomicBool,
    undecided: AtomicBool,
    open: AtomicUsize,
    /// Bytes of responses that the client has taken.
    taken: AtomicU64,
    offered: AtomicUsize,
    quiet: AtomicU8,
    /// Requests whose bodies come too slowly.
    starved: AtomicUsize,
    /// The client takes too little of what it is sent.
    stuck: AtomicBool,
}

impl Shared {
    pub(super) fn new(place: Place) -> Arc<Self> {
        Arc::new(Self {
            place,
            refused: OnceLock::new(),
            calls: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            tunnel: AtomicBool::new(false),
            undecided: AtomicBool::new(false),
            open: AtomicUsize::new(0),
            taken: AtomicU64::new(0),
            offered: AtomicUsize::new(0),
            quiet: AtomicU8::new(STIRRING),
            starved: AtomicUsize::new(0),
            stuck: AtomicBool::new(false),
        })
    }

    /// The head with this number must not pass.
    pub(super) fn refuse(&self, head: u64, problem: Problem) {
        // Only the first counts: nothing is read after it.
        let _ = self.refused.set((head, problem));
    }

    /// Counts a call; says whether it is the one that was refused.
    pub(super) fn call(&self) -> Option<Problem> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        self.refused.get().filter(|(head, _)| *head == call).map(|(_, problem)| *problem)
    }

    /// Counts an answer. With `tunnel` the connection leaves HTTP.
    pub(super) fn answer(&self, tunnel: bool) {
        if tunnel {
            self.tunnel.store(true, Ordering::Release);
        }
        self.answered.fetch_add(1, Ordering::Release);
    }

    /// Says whether the connection reads nothing more before an answer has decided whether it leaves HTTP.
    pub(super) fn set_undecided(&self, undecided: bool) {
        self.undecided.store(undecided, Ordering::Relaxed);
    }

    pub(super) fn is_undecided(&self) -> bool {
        self.undecided.load(Ordering::Relaxed)
    }

    pub(super) fn answered(&self) -> u64 {
        self.answered.load(Ordering::Acquire)
    }

    pub(super) fn is_tunnel(&self) -> bool {
        self.tunnel.load(Ordering::Acquire)
    }

    /// A request has begun: the connection does not wait for its client any more.
    pub(super) fn begin(&self) {
        self.place.resume();
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    /// Its answer has been handed over or given up.
    pub(super) fn end(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    /// The head or a piece of an answer was given to hyper, which asks for the next when the client has room for it.
    pub(super) fn offer(&self) {
        self.offered.fetch_add(1, Ordering::Relaxed);
    }

    /// It was taken, with so many bytes, or nobody wants it any more.
    pub(super) fn take(&self, bytes: u64) {
        self.offered.fetch_sub(1, Ordering::Relaxed);
        self.taken.fetch_add(bytes, Ordering::Relaxed);
    }

    /// How many bytes were taken so far.
    pub(super) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// The same; none while nothing is offered.
    pub(super) fn taking(&self) -> Option<u64> {
        (self.offered.load(Ordering::Relaxed) > 0).then(|| self.taken())
    }

    /// Whether there are requests and none of them goes on unless the client sends more of it or takes more of its answer.
    /// For a moment that is so on every connection; what counts is how much is taken meanwhile.
    pub(super) fn is_up_to_client(&self) -> bool {
        let (open, starved) = (self.open.load(Ordering::Relaxed), self.starved.load(Ordering::Relaxed));
        open > 0 && open <= starved + self.offered.load(Ordering::Relaxed)
    }

    /// Something is under way between the client and hyper.
    pub(super) fn set_stirring(&self) {
        self.quiet.store(STIRRING, Ordering::Relaxed);
    }

    /// Says whether nothing is under way between the client and hyper: no half of a head, nothing that could not be
    /// written; and if something is, whether it is half of a head.
    pub(super) fn set_quiet(&self, quiet: bool, head_begun: bool) {
        let state = match (quiet, head_begun) {
            (true, _) => QUIET,
            (false, true) => HEAD_BEGUN,
            (false, false) => STIRRING,
        };
        self.quiet.store(state, Ordering::Relaxed);
    }

    /// Whether hyper's buffers are empty and no request is open.
    pub(super) fn is_quiet(&self) -> bool {
        self.quiet.load(Ordering::Relaxed) == QUIET && !self.is_busy()
    }

    /// Whether the next request is waited for, or the rest of its head.
    pub(super) fn is_between_requests(&self) -> bool {
        self.quiet.load(Ordering::Relaxed) != STIRRING && !self.is_busy()
    }

    /// Says whether the client takes too little of what it is sent.
    pub(super) fn set_stuck(&self, stuck: bool) {
        self.stuck.store(stuck, Ordering::Relaxed);
        if stuck { self.wait_for_client() } else { self.place.resume() }
    }

    /// Everything that goes on here waits for the client.
    pub(super) fn wait_for_client(&self) {
        self.place.wait(Instant::now(), self.is_busy());
    }

    pub(super) fn is_stuck(&self) -> bool {
        self.stuck.load(Ordering::Relaxed)
    }

    /// Whether everything that goes on here waits for the client: there is no request, or the bodies of all come too
    /// slowly, or it does not take what it is sent.
    pub(super) fn is_waiting(&self) -> bool {
        self.is_stuck() || self.open.load(Ordering::Relaxed) <= self.starved.load(Ordering::Relaxed)
    }

    /// Whether it is our turn, not the client's.
    pub(super) fn is_busy(&self) -> bool {
        self.open.load(Ordering::Relaxed) > 0
    }
}

/// Says of a request, while it lives, that its body comes too slowly.
pub(crate) struct Starving(Arc<Shared>);

impl Starving {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        shared.starved.fetch_add(1, Ordering::Relaxed);
        if shared.is_waiting() {
            shared.wait_for_client();
        }
        Self(Arc::clone(shared))
    }
}

impl Drop for Starving {
    fn drop(&mut self) {
        self.0.starved.fetch_sub(1, Ordering::Relaxed);
        self.0.place.resume();
    }
}
