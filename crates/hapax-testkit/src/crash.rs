//! The crash matrix: kill the proxy at a named point, start it again, and see what its clients and its upstream saw.
//!
//! A [`Case`] is a [`Point`], a [`Store`] and a [`Timing`]. It starts an upstream that keeps a ledger and the proxy, sends a
//! few payments, waits until the point is reached, sends SIGKILL, starts the proxy again and lets the clients retry
//! until each has an answer. The [`Verdict`] is reached from outside alone: from what the ledger holds and from what the clients
//! were told. Nothing in it knows hapax's states.
//!
//! The program must be built with the feature `failpoints`. Who runs how many cases is the business of `tests/it/crash.rs` of
//! hapax-server and of `cargo xtask crash`.

mod case;
mod client;
mod point;
mod timing;
mod verdict;

pub use case::{Case, Store};
pub use point::{ALL, Point, named};
pub use timing::Timing;
pub use verdict::Verdict;

use std::time::Duration;

/// How long a claim lives without a sign of life.
pub const LEASE: Duration = Duration::from_secs(1);

/// Between two looks of each background role.
pub const SWEEP: Duration = Duration::from_secs(1);

/// How long after the last moment at which an attempt could have sent its request "it did not happen" is not believed: the
/// upstream's answer timeout, and longer than [`LATE`].
pub const SETTLE_AFTER: Duration = Duration::from_secs(4);

/// How long one probe may take.
pub const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// After a node died while it probed, nobody asks again for so long: the timeout, and what hapax adds to it.
pub const PROBE_AGAIN: Duration = Duration::from_secs(2);

/// How long the late upstream goes on working, whoever has died meanwhile.
pub const LATE: Duration = LEASE.saturating_mul(3);

/// What a busy machine may add to what a key has to wait.
pub const SLACK: Duration = Duration::from_secs(2);
