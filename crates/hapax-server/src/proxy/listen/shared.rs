//! What a connection and the service on it tell each other.
//!
//! Both count requests: the connection the heads it let through, the service its calls and answers. By these numbers they
//! mean the same request, also when a client sends several at once.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crate::proxy::problem::Problem;

/// State of one connection.
#[derive(Debug, Default)]
pub(super) struct Shared {
    refused: OnceLock<(u64, Problem)>,
    calls: AtomicU64,
    answered: AtomicU64,
    tunnel: AtomicBool,
    undecided: AtomicBool,
    open: AtomicUsize,
    taken: AtomicU64,
    offered: AtomicUsize,
    quiet: AtomicBool,
}

impl Shared {
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

    /// A request has begun.
    pub(super) fn begin(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    /// Its answer has been handed over or given up.
    pub(super) fn end(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    /// A piece of an answer was given to hyper, which asks for the next when the client has taken it.
    pub(super) fn offer(&self) {
        self.offered.fetch_add(1, Ordering::Relaxed);
    }

    /// A piece was taken, or nobody wants it any more.
    pub(super) fn take(&self) {
        self.offered.fetch_sub(1, Ordering::Relaxed);
        self.taken.fetch_add(1, Ordering::Relaxed);
    }

    /// How many pieces were taken so far; none while none is offered.
    pub(super) fn taking(&self) -> Option<u64> {
        (self.offered.load(Ordering::Relaxed) > 0).then(|| self.taken.load(Ordering::Relaxed))
    }

    /// Says whether nothing is under way between the client and hyper: no half of a head, nothing that could not be written.
    pub(super) fn set_quiet(&self, quiet: bool) {
        self.quiet.store(quiet, Ordering::Relaxed);
    }

    /// Whether hyper's buffers are empty and no request is open.
    pub(super) fn is_quiet(&self) -> bool {
        self.quiet.load(Ordering::Relaxed) && !self.is_busy()
    }

    /// Whether it is our turn, not the client's.
    pub(super) fn is_busy(&self) -> bool {
        self.open.load(Ordering::Relaxed) > 0
    }
}
