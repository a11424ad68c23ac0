//! One line in the log for every request that was carried out or replayed: what an operator looks for by a request's id.
//!
//! At INFO with the target [`LOG_TARGET`], so that a filter can leave these lines out (`info,hapax::request=off`) or take
//! nothing else. Refusals have a line of their own. The record's id stands for scope and key, which are in no log.

use std::time::Duration;

use hapax_core::address::Id;
use http::StatusCode;
use tokio::time::Instant;

use crate::http::RequestId;
use crate::http::route::Route;

/// The target of these lines.
pub const LOG_TARGET: &str = "hapax::request";

/// What is known of a request when it arrives.
#[derive(Clone, Debug)]
pub(crate) struct Arrived {
    pub(crate) request_id: Option<RequestId>,
    pub(crate) at: Instant,
}

impl Arrived {
    pub(crate) fn now(extensions: &http::Extensions) -> Self {
        Self { request_id: extensions.get().cloned(), at: Instant::now() }
    }

    /// A request that got what was recorded, or is told to come back (202).
    pub(crate) fn replayed(&self, outcome: &'static str, id: &Id, route: &Route, status: StatusCode) {
        tracing::info!(
            target: LOG_TARGET,
            outcome,
            status = status.as_u16(),
            id = %id,
            request_id = self.request_id.as_ref().map(|id| &*id.0),
            route = &*route.name,
            duration_ms = milliseconds(self.at.elapsed()),
            "request"
        );
    }

    /// A request that ran, with what became of its key.
    pub(crate) fn ran(&self, ran: &Ran<'_>) {
        let outcome = if ran.attempt <= 1 { "created" } else { "retried" };
        tracing::info!(
            target: LOG_TARGET,
            outcome,
            state = ran.state,
            status = ran.status.as_u16(),
            why = ran.why,
            id = %ran.id,
            attempt = ran.attempt,
            request_id = self.request_id.as_ref().map(|id| &*id.0),
            route = &*ran.route.name,
            duration_ms = milliseconds(self.at.elapsed()),
            "request"
        );
    }
}

/// How a request ended that ran.
pub(crate) struct Ran<'a> {
    pub(crate) id: &'a Id,
    pub(crate) route: &'a Route,
    pub(crate) attempt: u32,
    pub(crate) status: StatusCode,
    /// `completed`, `ready` or `unknown`.
    pub(crate) state: &'static str,
    /// Why it is not completed.
    pub(crate) why: Option<&'a str>,
}

/// With three digits behind the point: most replays take less than one.
fn milliseconds(took: Duration) -> f64 {
    took.as_micros() as f64 / 1000.0
}
