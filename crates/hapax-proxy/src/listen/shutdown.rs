//! How a listener is told to end: first to finish, then, if need be, to let go.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// A handle for ending a listener. All clones mean the same listener.
#[derive(Debug, Clone, Default)]
pub struct Shutdown {
    tokens: Arc<Tokens>,
}

#[derive(Debug, Default)]
struct Tokens {
    /// Set before `drain` is: looked at with every request, without a lock.
    draining: AtomicBool,
    drain: CancellationToken,
    abandon: CancellationToken,
}

impl Shutdown {
    /// A handle for a new listener.
    pub fn new() -> Self {
        Self::default()
    }

    /// No new connections; idle ones are closed, requests that run are finished.
    pub fn drain(&self) {
        self.tokens.draining.store(true, Ordering::Release);
        self.tokens.drain.cancel();
    }

    /// Closes what is still open.
    pub fn abandon(&self) {
        self.drain();
        self.tokens.abandon.cancel();
    }

    /// Whether [`drain`](Self::drain) was called.
    pub fn is_draining(&self) -> bool {
        self.tokens.draining.load(Ordering::Acquire)
    }

    pub(super) async fn drained(&self) {
        self.tokens.drain.cancelled().await;
    }

    pub(super) async fn abandoned(&self) {
        self.tokens.abandon.cancelled().await;
    }

    /// For a connection.
    pub(super) fn watch(&self) -> DrainWatch {
        let waiting = Box::pin(self.tokens.drain.clone().cancelled_owned());
        DrainWatch { waiting, shutdown: self.clone(), waker: None }
    }
}

/// Wakes a connection when the listener drains. Waiting on a token takes a lock that all connections share, so it is done
/// once, not with every request.
pub(super) struct DrainWatch {
    waiting: Pin<Box<WaitForCancellationFutureOwned>>,
    shutdown: Shutdown,
    waker: Option<Waker>,
}

impl DrainWatch {
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.shutdown.is_draining() {
            return Poll::Ready(());
        }
        if self.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            return Poll::Pending;
        }
        self.waker = Some(cx.waker().clone());
        self.waiting.as_mut().poll(cx)
    }
}
