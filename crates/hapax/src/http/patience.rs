//! How long a client waits for the store: one limit over everything that a claim asks of it.
//!
//! A claim is more than one question: its turn, a connection, the write, and reading back where the write was not answered. Each
//! has a limit of its own, and they add up. When the time for all of them is over the client is refused; the claim is not
//! dropped but goes on by itself, so that what it may have written is found and given back: nothing was run for it.

use std::sync::Arc;

use tokio::sync::Notify;

/// Shared by the one who waits for an answer and the claim that is made for it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Patience(Arc<Notify>);

impl Patience {
    /// The time is over. Said by the claim: from then on nothing is run for it.
    pub(crate) fn end(&self) {
        self.0.notify_one();
    }

    /// What comes of the work, or `None` if the time was over first. The caller drops the work then, which goes on as a task.
    pub(crate) async fn wait_for<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            done = work => Some(done),
            () = self.0.notified() => None,
        }
    }
}
