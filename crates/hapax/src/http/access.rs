//! One line in the log for every request that was carried out or replayed: what an operator looks for by a request's id.
//!
//! At INFO with the target [`LOG_TARGET`], so that a filter can leave these lines out (`info,hapax::request=off`) or take
//! nothing else. Refusals have a line of their own. The record's id stands for scope and key, which are in no log.

use std::sync::Arc;
use std::time::Duration;

use hapax_core::address::Id;
use http::{Extensions, HeaderMap, StatusCode};
use tokio::time::Instant;
use tracing::Span;

use crate::http::route::Route;
use crate::http::{RequestId, trace};

/// The target of these lines.
pub const LOG_TARGET: &str = crate::log::REQUEST;

/// What is known of a request when it arrives.
#[derive(Clone, Debug)]
pub(crate) struct Arrived {
    request_id: Option<RequestId>,
    trace_id: Option<Arc<str>>,
    at: Instant,
}

impl Arrived {
    pub(crate) fn now(headers: &HeaderMap, extensions: &Extensions) -> Self {
        let trace_id = trace::id(headers).map(Arc::from);
        Self { request_id: extensions.get().cloned(), trace_id, at: Instant::now() }
    }

    pub(crate) fn request_id(&self) -> Option<&str> {
        self.request_id.as_ref().map(|id| &*id.0)
    }

    pub(crate) fn trace_id(&self) -> Option<&str> {
        self.trace_id.as_deref()
    }

    /// The parent of every other line about its work, so that it names the request. Made where there is such a line: a span
    /// around all work would cost as much as a tenth of it.
    pub(crate) fn span(&self) -> Span {
        tracing::info_span!("request", request_id = self.request_id(), trace_id = self.trace_id())
    }

    /// A request that got what was recorded, or is told to come back (202).
    pub(crate) fn replayed(&self, outcome: &'static str, id: &Id, route: &Route, status: StatusCode) {
        tracing::info!(
            target: LOG_TARGET,
            outcome,
            status = status.as_u16(),
            id = %id,
            request_id = self.request_id(),
            trace_id = self.trace_id(),
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
            request_id = self.request_id(),
            trace_id = self.trace_id(),
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
