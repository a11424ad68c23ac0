//! What the suite asks of whoever wrote a store: [`Harness`].
//!
//! The questions replace skipping. A harness that answers "this store cannot do that" gets the case that fits its
//! answer: a store that does not survive a restart must say so in its health, a store with a server's clock must not
//! notice what the host's clock does.

use std::future::Future;
use std::process::Command;

use crate::store::Store;

/// Where the time of a store comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockSource {
    /// The clocks of the host, through [`Clock`](crate::clock::Clock). The harness gives the store a fake one, which
    /// it can step. A step must pause lapse and expiry, and be reported.
    Host,
    /// A server. A step of the host's clock must change nothing at all.
    Server,
}

/// A store under test and what can be done to it. Each case makes a harness of its own; most open one store. Where a
/// case opens several, only the last one is restarted, loses a reply or gets a rival.
pub trait Harness: Send + Sync + 'static {
    /// The store. Clones are handles to the same records.
    type Store: Store + Clone + 'static;

    /// A new and empty store. Nothing of it is shared with a store that was opened before.
    fn open(&self) -> impl Future<Output = Self::Store> + Send;

    /// Lets at least `ms` milliseconds of store time pass: a fake clock is moved, a real one is waited for. The cases
    /// ask for 200 ms at most, and for more only where the clock is the host's.
    fn pass_ms(&self, ms: u64) -> impl Future<Output = ()> + Send;

    /// Steps the wall clock of the host, as far as the store can see it, without time passing; then says where the time
    /// of the store comes from. A store with a server's clock sees nothing of the host's, so there is nothing to do.
    fn step_clock_ms(&self, by_ms: i64) -> ClockSource;

    /// Stops the store and starts it again on the same records: closes a file and opens it, restarts a server. In the
    /// middle of traffic there are other handles in use. `None`: nothing survives, which the store's health must then
    /// admit.
    fn restart(&self, store: Self::Store) -> impl Future<Output = Option<Self::Store>> + Send {
        drop(store);
        async { None }
    }

    /// Arms a fault: the next swap on this store is committed, and its reply is lost on the way. `false`: there is no
    /// wire on which it could be lost; the suite then loses it between the store and the rules.
    fn lose_next_reply(&self, store: &Self::Store) -> impl Future<Output = bool> + Send {
        let _ = store;
        async { false }
    }

    /// A command that starts a second process on the same records; it must call [`rival::run`](super::rival::run).
    /// `None`: the records cannot be shared between processes, which fits only a store that keeps nothing on disk.
    fn rival(&self, store: &Self::Store) -> Option<Command> {
        let _ = store;
        None
    }
}
