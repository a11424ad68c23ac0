//! The listener for operators: health, metrics, busiest callers, and the admin API.
//!
//! It has an address of its own, loopback by default, so that what it tells never shares a port with the API it protects.
//!
//! | path | answer |
//! |---|---|
//! | `/livez`, `/healthz` | 200 as long as the process can answer at all; nothing else is looked at |
//! | `/readyz` | 200 or 503, and in a few words what is not in order; `?verbose` lists every check, off loopback with a token only |
//! | `/metrics` | Prometheus text |
//! | `/callers` | JSON: the busiest callers by digest; `?n=` sets how many |
//! | `/v1/…` | the admin API: look at records, resolve them, take answers away, read who did what |
//!
//! | module | what it is |
//! |---|---|
//! | `readiness` | what "ready" means |
//! | `guard` | what a browser can be made to do |
//! | `access` | tokens and roles |
//! | `answers`, `reply` | one request, one response |
//! | `api` | all under `/v1` |
//! | `listen` | sockets and their limits |

mod access;
mod answers;
mod api;
mod guard;
mod listen;
mod readiness;
mod reply;

use std::sync::Arc;

use arc_swap::ArcSwap;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::sync::Semaphore;

use crate::abuse::callers::Callers;

pub use access::{Access, Role};
pub use api::openapi;
pub use listen::{CONNECTIONS_MAX, serve};
pub use readiness::{Check, Readiness};

/// What the listener tells about.
#[derive(Debug)]
pub struct State<R, D> {
    /// Knows whether requests can be taken.
    pub readiness: R,
    /// Renders the metrics; from [`crate::telemetry::install`].
    pub metrics: PrometheusHandle,
    /// The busiest callers.
    pub callers: Arc<Callers>,
    /// Who may do what; a reload replaces it.
    pub access: Arc<ArcSwap<Access>>,
    /// Names, besides IP addresses and `localhost`, that a loopback listener answers to.
    pub hosts: Vec<String>,
    /// Where the admin API gets and does everything.
    pub desk: D,
}

/// The listener itself.
#[derive(Debug)]
struct Here {
    /// Only this machine can reach it.
    loopback: bool,
    /// Requests of the API at the same time.
    turns: Semaphore,
}

impl Here {
    fn new(loopback: bool) -> Self {
        Self { loopback, turns: Semaphore::new(api::AT_ONCE_MAX) }
    }
}
