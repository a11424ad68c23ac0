//! The listener for operators: health, metrics, busiest callers.
//!
//! It has an address of its own, loopback by default, so that what it tells never shares a port with the API. It reads and
//! never changes anything.
//!
//! | path | answer |
//! |---|---|
//! | `/livez`, `/healthz` | 200 as long as the process can answer at all; nothing else is looked at |
//! | `/readyz` | 200 or 503, and in a few words what is not in order; `?verbose` lists every check |
//! | `/metrics` | Prometheus text |
//! | `/callers` | JSON: the busiest callers by digest; `?n=` sets how many |
//!
//! | module | what it is |
//! |---|---|
//! | [`metrics`] | the list of metrics |
//! | `readiness` | what "ready" means |
//! | `guard` | names and tokens |
//! | `answers` | one request, one response |
//! | `listen` | sockets and their limits |

pub mod metrics;

mod answers;
mod guard;
mod listen;
mod readiness;

use std::sync::Arc;

use metrics_exporter_prometheus::PrometheusHandle;

use crate::abuse::callers::Callers;

pub use guard::Token;
pub use listen::{CONNECTIONS_MAX, serve};
pub use readiness::{Check, Readiness};

/// What the listener tells about.
#[derive(Debug)]
pub struct State<R> {
    /// Knows whether requests can be taken.
    pub readiness: R,
    /// Renders the metrics; from [`metrics::install`].
    pub metrics: PrometheusHandle,
    /// The busiest callers.
    pub callers: Arc<Callers>,
    /// Opens `/callers`. Without one it is open on loopback, and closed on any other address.
    pub token: Option<Token>,
    /// Names, besides IP addresses and `localhost`, that a loopback listener answers to.
    pub hosts: Vec<String>,
}
