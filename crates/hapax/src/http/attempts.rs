//! How many attempts are in flight, in all and for one client; asked before a key is claimed.
//!
//! An attempt goes on when its client hangs up, so a limit on connections does not limit attempts. A place is taken before
//! the claim and held until the end of the attempt is recorded; whoever gets none claims nothing.

use std::sync::Arc;
use std::time::Duration;

use crate::http::client::Client;
use crate::http::occupancy::{Full, Occupancy, Occupied};
use crate::http::refusal::{Problem, Refusal};

/// How many attempts may be in flight unless it is said otherwise: as many as the server has connections by default.
pub(crate) const ATTEMPTS_MAX: usize = 10_000;

/// How many of them for one client: a quarter is always left to others.
pub(crate) const ATTEMPTS_PER_CLIENT_MAX: usize = ATTEMPTS_MAX / 4 * 3;

/// How soon to come back: most attempts end within a second.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The place of one attempt, free again when it is dropped.
pub(crate) type Place = Occupied;

/// Takes a place, if fewer than `max` attempts run, and fewer than `client_max` for that client.
pub(crate) fn take(
    attempts: &Arc<Occupancy>,
    client: Option<Client>,
    max: usize,
    client_max: usize,
) -> Result<Place, Refusal> {
    attempts.take(client, max, client_max).map_err(|full| {
        if attempts.may_warn() {
            warn(full, max, client_max);
        }
        refusal(full)
    })
}

/// Tells the operator.
fn warn(full: Full, max: usize, client_max: usize) {
    match full {
        Full::All => tracing::warn!(
            max,
            "as many attempts are in flight as are allowed, and new ones are refused; find out why the service is slow, or \
             raise server.attempts_max"
        ),
        Full::Client(client) => tracing::warn!(
            %client,
            max = client_max,
            "one client has as many attempts in flight as are allowed to one, and its new ones are refused; if it is a \
             proxy with many callers behind it, add it to server.trusted_peers"
        ),
    }
}

/// What the client is told.
fn refusal(full: Full) -> Refusal {
    let detail = match full {
        Full::All => "too many requests are being carried out; nothing was run; send the same request again",
        Full::Client(_) => {
            "too many requests of this client are being carried out; nothing was run; send the same request again"
        }
    };
    Refusal::new(Problem::TooManyInFlight, detail).with_retry_after(RETRY_AFTER)
}
