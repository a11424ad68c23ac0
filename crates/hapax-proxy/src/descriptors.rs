//! File descriptors: how many the process may have, what they are divided into, and whether they have run out.
//!
//! Each connection of a client takes one, and each connection to the upstream; the store, the admin listener and files need
//! some as well. What was accepted must be able to reach the upstream, so no more is accepted than that; and the admin
//! listener must answer while everything else waits. The limit is the process's, and so are these figures.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::places;

/// Listeners, logs, the runtime's own, resolving names, reading certificates again.
const OTHERS: usize = 32;
/// The files of SQLite, or a few connections of PostgreSQL beside those of the configuration.
const STORE: usize = 24;
/// Where no more than this part of the connections cannot be had, nobody needs to be warned.
const MARGIN_PART: usize = 10;
/// However few descriptors there are: with less nothing can be served at all.
const LEAST: usize = 4;
/// For so long after the last time that a descriptor was missing, the process is not fit for more requests.
const SHORTAGE: Duration = Duration::from_secs(5);

/// What is there for whom, once the process has begun to serve.
static SHARES: OnceLock<Shares> = OnceLock::new();
/// Connections to the upstream, and to whoever else is asked.
static OUTGOING: OnceLock<Arc<Semaphore>> = OnceLock::new();
/// When one was missing last, in milliseconds since [`begun`], plus one.
static MISSING: AtomicU64 = AtomicU64::new(0);

/// How many descriptors there are for whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    /// All that the process may have.
    pub limit: usize,
    /// Connections of clients.
    pub incoming: usize,
    /// Connections to the upstream.
    pub outgoing: usize,
    /// What would be enough for all that is configured.
    pub enough: usize,
}

impl Shares {
    /// Divides that many; `others` is what connections besides these take.
    fn of(limit: usize, incoming: usize, outgoing: usize, others: usize) -> Self {
        let reserve = |incoming| OTHERS + STORE + others + places::closing_max(incoming);
        let enough = reserve(incoming) + incoming + outgoing;
        if limit >= enough {
            return Self { limit, incoming, outgoing: limit - reserve(incoming) - incoming, enough };
        }
        // More for the upstream than for clients: attempts go on when their clients have hung up.
        let left = limit.saturating_sub(reserve(0)).max(3 * LEAST);
        let outgoing = outgoing.min(left * 4 / 7);
        let incoming = incoming.min((left - outgoing) * 16 / 17);
        Self { limit, incoming, outgoing, enough }
    }
}

/// Raises the limit as far as the process may, and divides what there is: among `incoming` connections, as many attempts
/// as `outgoing`, and `others`, connections of operators and to the store.
pub fn divide(incoming: usize, outgoing: usize, others: usize) -> Shares {
    let shares = Shares::of(raise(), incoming, outgoing, others);
    let _ = OUTGOING.set(Arc::new(Semaphore::new(shares.outgoing.min(Semaphore::MAX_PERMITS))));
    let Shares { limit, incoming: fewer, enough, .. } = shares;
    let words = format!(
        "too few file descriptors: the process may open {limit}, which is enough for {fewer} connections at a time, not \
         for the {incoming} of server.connections_max; allow {enough} (ulimit -n {enough}, or LimitNOFILE={enough} in the \
         unit), or lower server.connections_max and server.attempts_max"
    );
    if fewer < incoming - incoming / MARGIN_PART {
        tracing::warn!("{words}");
    } else if limit < enough {
        tracing::info!("{words}");
    }
    *SHARES.get_or_init(|| shares)
}

/// The part of `share` that is left where there are `fewer` places than `configured`.
pub fn part(share: usize, fewer: usize, configured: usize) -> usize {
    if fewer >= configured { share } else { (share.saturating_mul(fewer) / configured.max(1)).max(1) }
}

/// So many connections of clients as there are descriptors for, at most.
pub fn incoming(configured: usize) -> usize {
    SHARES.get().map_or(configured, |shares| configured.min(shares.incoming))
}

/// So many attempts as there are descriptors for, at most.
pub fn outgoing(configured: usize) -> usize {
    SHARES.get().map_or(configured, |shares| configured.min(shares.outgoing))
}

/// The soft limit, after it was raised to the hard one.
fn raise() -> usize {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
    {
        tracing::warn!(%error, "the limit of file descriptors could not be raised; set it with ulimit -n");
    }
    let now = getrlimit(Resource::Nofile).current;
    now.map_or(usize::MAX / 2, |now| usize::try_from(now).unwrap_or(usize::MAX / 2))
}

/// Waits for a descriptor for a connection to the upstream. None where they were never divided.
pub async fn take() -> Option<OwnedSemaphorePermit> {
    let all = Arc::clone(OUTGOING.get()?);
    // It is never closed.
    all.acquire_owned().await.ok()
}

/// Whether a connection to the upstream that has nothing to do would do better to go.
pub fn are_short() -> bool {
    OUTGOING.get().is_some_and(|all| all.available_permits() == 0)
}

/// Whether it failed because no descriptor is left, for the process or for the host; readiness hears of it.
pub fn ran_out(error: &io::Error) -> bool {
    let missing = [Errno::MFILE, Errno::NFILE].iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()));
    if missing {
        MISSING.store(now_ms() + 1, Ordering::Relaxed);
    }
    missing
}

/// Whether descriptors were missing lately, or are now.
pub fn is_missing() -> bool {
    // What is there now may be gone when a request needs it, so the last failure counts for a while.
    let last = MISSING.load(Ordering::Relaxed);
    if last > 0 && now_ms() < last + u64::try_from(SHORTAGE.as_millis()).unwrap_or(u64::MAX) {
        return true;
    }
    std::fs::File::open("/dev/null").is_err_and(|error| ran_out(&error))
}

fn now_ms() -> u64 {
    static BEGUN: OnceLock<Instant> = OnceLock::new();
    u64::try_from(BEGUN.get_or_init(Instant::now).elapsed().as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_configured_gets_its_descriptors_where_there_are_enough() {
        let shares = Shares::of(1_000_000, 10_000, 10_000, 16);
        assert_eq!(shares.incoming, 10_000);
        assert!(shares.outgoing >= 10_000 && shares.enough < 21_000, "{shares:?}");
        let exact = Shares::of(shares.enough, 10_000, 10_000, 16);
        assert_eq!((exact.incoming, exact.outgoing), (10_000, 10_000));
    }

    #[test]
    fn no_more_is_divided_than_there_is() {
        for limit in [256, 300, 1024, 4096, 20_000] {
            let shares = Shares::of(limit, 10_000, 10_000, 16);
            let reserved = OTHERS + STORE + 16;
            let all = shares.incoming + places::closing_max(shares.incoming) + shares.outgoing + reserved;
            assert!(all <= limit.max(reserved + 3 * LEAST), "{limit}: {shares:?}");
            let of_one_client = part(7_500, shares.outgoing, 10_000);
            assert!(shares.incoming <= shares.outgoing, "what is accepted can be sent on");
            assert!(limit == 20_000 || shares.incoming <= of_one_client, "also where one client sends all of it");
        }
    }

    #[test]
    fn a_missing_descriptor_is_told_from_other_failures() {
        assert!(ran_out(&io::Error::from_raw_os_error(Errno::MFILE.raw_os_error())));
        assert!(is_missing());
        assert!(!ran_out(&io::Error::from_raw_os_error(Errno::CONNREFUSED.raw_os_error())));
        assert!(!ran_out(&io::ErrorKind::TimedOut.into()));
    }
}
