//! Work that goes on when nobody waits for it any longer.
//!
//! A task of its own for every request would cost a hop between threads on the way there and on the way back. So the work
//! is done by whoever waits for it, and only when that one goes away, as when a client hangs up, it becomes a task.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;
use tracing::{Instrument as _, Span};

/// A future that cannot be cancelled by dropping it.
pub(crate) struct Detached<F: Future<Output: Send> + Send + 'static> {
    /// `None` once it is done, or has panicked: such work cannot go on.
    work: Option<Pin<Box<F>>>,
    /// Counts as running until it is done.
    token: Option<TaskTrackerToken>,
    /// Where it was begun: what it logs when nobody waits any longer still names the request.
    span: Span,
}

impl<F: Future<Output: Send> + Send + 'static> Detached<F> {
    /// Work that the tracker waits for, whoever does it.
    pub(crate) fn new(work: F, tracker: &TaskTracker) -> Self {
        Self { work: Some(Box::pin(work)), token: Some(tracker.token()), span: Span::current() }
    }
}

impl<F: Future<Output: Send> + Send + 'static> Future for Detached<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        // Taken out, so that it is not there any more if it panics.
        let Some(mut work) = self.work.take() else { return Poll::Pending };
        let done = work.as_mut().poll(cx);
        if done.is_ready() {
            self.token = None;
        } else {
            self.work = Some(work);
        }
        done
    }
}

impl<F: Future<Output: Send> + Send + 'static> Drop for Detached<F> {
    fn drop(&mut self) {
        let (Some(work), token) = (self.work.take(), self.token.take()) else { return };
        // Without a runtime the process is ending, and the lease is left to lapse.
        if let Ok(runtime) = Handle::try_current() {
            let rest = async move {
                work.await;
                drop(token);
            };
            runtime.spawn(rest.instrument(std::mem::replace(&mut self.span, Span::none())));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use tokio::sync::Notify;

    #[tokio::test]
    async fn dropped_work_is_finished_and_waited_for() {
        let (tracker, go, done) = (TaskTracker::new(), Arc::new(Notify::new()), Arc::new(Notify::new()));
        let mut work = Detached::new(
            {
                let (go, done) = (Arc::clone(&go), Arc::clone(&done));
                async move {
                    go.notified().await;
                    done.notify_one();
                }
            },
            &tracker,
        );
        assert!(futures_util::poll!(&mut work).is_pending());
        drop(work);
        assert_eq!(tracker.len(), 1);
        go.notify_one();
        done.notified().await;
        tracker.close();
        tracker.wait().await;
    }

    #[tokio::test]
    async fn work_that_is_waited_for_is_done_in_place() {
        let tracker = TaskTracker::new();
        assert_eq!(Detached::new(async { 7 }, &tracker).await, 7);
        assert_eq!(tracker.len(), 0);
    }

    #[tokio::test]
    async fn work_that_panicked_is_not_tried_again() {
        let (tracker, polls) = (TaskTracker::new(), Arc::new(AtomicU32::new(0)));
        let counted = Arc::clone(&polls);
        let panics = std::future::poll_fn(move |_| -> Poll<()> {
            counted.fetch_add(1, Ordering::SeqCst);
            panic!("on purpose")
        });
        let work = Detached::new(panics, &tracker);
        assert!(std::panic::AssertUnwindSafe(work).catch_unwind().await.is_err());
        assert_eq!(tracker.len(), 0, "and nobody waits for it");
        tokio::task::yield_now().await;
        assert_eq!(polls.load(Ordering::SeqCst), 1);
    }
}
