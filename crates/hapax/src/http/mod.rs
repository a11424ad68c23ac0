//! The HTTP boundary: a tower layer that makes requests happen once.
//!
//! [`IdempotencyLayer`] claims a request's `Idempotency-Key` in a durable store before anything runs, compares the request
//! with the one the key was used for, runs it once, records the answer, and replays that answer to every retry. What it
//! answers in each situation is in `docs/http-contract.md`.
//!
//! # Security
//!
//! A key counts only together with its caller, so the layer wants to be told whose key it is: from something that was
//! verified before, such as a session or a token. Never take it from the body. Put the layer inside the one that
//! authenticates.
//!
//! # Paths
//!
//! Routes, the keys of [`KeyPer::Route`] and the comparison of requests go by the path, so the layer belongs outside of
//! whatever rewrites paths: inside, two endpoints may look like one, and one would get the other's recorded answer. With the
//! feature `axum` a layer inside `Router::nest` sees the path as the client sent it, prefix and all, and patterns are
//! written for that; the handler still sees what the router gives it. Without the feature the layer does not know of the
//! prefix: put it around the outermost router.
//!
//! # Where it stands
//!
//! What answers in place of the handler belongs outside of the layer. A timeout inside it answers 408 or 503 while the work may
//! go on, the layer takes that for the service's word that nothing was done, and the next retry runs again; outside of it, the
//! client hears of the timeout, and its retry gets what the handler answers in the end.
//!
//! # Beside requests
//!
//! [`IdempotencyLayer::spawn_background`] notices crashes and deletes what has expired: call it once. Features: `http`, which is on
//! by default; `axum` adds [`Claim`] as an argument of handlers, and the whole path inside `Router::nest`; `test-util` adds
//! [`Claim`]s for tests.
//!
//! # Work that blocks
//!
//! An attempt holds its key by a lease, which is lengthened every third of its time while the handler runs, beginning in
//! the task of the handler itself. One that blocks its thread for a third of the lease without an `.await` keeps it from
//! being lengthened, however many threads the runtime has: the lease may lapse while the work still goes on, and the key
//! becomes unknown, or runs again where the route says so. Hand such work to `tokio::task::spawn_blocking`, or give the route
//! a longer lease ([`Route::with_lease`]).
//!
//! The lease is looked at before the handler is called. One that prepares for long before it acts, or may sleep in between
//! (a stopped process, a host that is suspended), looks at [`SendBefore`] again directly before it acts.
//!
//! # In the log
//!
//! A request that is carried out or replayed leaves one line at INFO, with the target [`LOG_TARGET`]: outcome, status, the
//! record's id, the request's ([`RequestId`]), the route and how long it took. The work runs in the span that was current when
//! the request arrived, also after its client has hung up.
//!
//! Refusals and what goes wrong with a request have targets of their own ([`log`](crate::log)). Whoever sends requests can cause
//! any number of these lines, so whoever writes the log should limit them.
//!
//! # Example
//!
//! ```
//! use axum::{Router, body::Body, routing::post};
//! use hapax::http::{Claim, IdempotencyLayer, NoScope, Scope};
//! use http::Request;
//! use tower::ServiceExt;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Set by the layer that authenticated the caller.
//! #[derive(Clone)]
//! struct Customer(String);
//!
//! # let directory = tempfile::tempdir()?;
//! # let file = directory.path().join("hapax.db");
//! let store = hapax_sqlite::Sqlite::open(file)?;
//! let idempotency = IdempotencyLayer::new(store, |parts| match parts.extensions.get::<Customer>() {
//!     Some(customer) => Ok(Scope::new(&customer.0)?),
//!     None => Err(NoScope::Missing("log in first".into())),
//! });
//! let app = Router::new()
//!     .route("/payments", post(|claim: Claim| async move { format!("paid with {}", claim.derive("charge")) }))
//!     .layer(idempotency.clone());
//!
//! let request = || {
//!     let builder = Request::post("/payments").header("idempotency-key", "8e03978e-40d5-43dd-bc93-6894a57f9324");
//!     builder.extension(Customer("alice".into())).body(Body::from("{}"))
//! };
//! let first = app.clone().oneshot(request()?).await?;
//! assert!(!first.headers().contains_key("idempotent-replayed"));
//! let retry = app.oneshot(request()?).await?;
//! assert_eq!(retry.headers()["idempotent-replayed"], "true");
//! # Ok(())
//! # }
//! ```

mod access;
mod answers;
mod attempt;
mod attempts;
mod body;
mod budget;
mod capture;
mod claiming;
mod client;
mod cors;
mod detached;
mod followed;
mod gathered;
mod given_up;
mod guard;
mod key;
pub(crate) mod layer;
mod meaning;
mod observing;
mod occupancy;
mod path;
mod patience;
mod pattern;
mod read_request;
mod reading;
mod refusal;
mod replay;
mod replayed;
mod route;
mod scope;
mod send_before;
mod service;
mod settle;
mod spellings;
mod strictest;
mod trace;
mod unswept;
mod wait;

pub use access::LOG_TARGET;
pub use body::AnswerBody;
pub use budget::{MEMORY_BYTES_MAX, SMALL_BYTES_MAX};
pub use capture::{METHOD_LABEL, OWN_LABELS, PATH_LABEL, REQUEST_LABEL, ROUTE_LABEL, TRACE_LABEL, outcome_of};
pub use client::Client;
pub use cors::Cors;
pub use given_up::given_up;
pub use guard::{Begun, Ended, Guard, LateTruth, NewKey, Open, Report, Seen, Wait};
pub use hapax_core::address::Scope;
pub use key::{IDEMPOTENCY_KEY, KeyFormat, KeyRules, KeySyntax};
pub use layer::{IdempotencyLayer, Settings};
pub use meaning::Happened;
pub use occupancy::{Full, Occupancy, Occupied};
pub use pattern::{InvalidPattern, Pattern, Specificity};
pub use read_request::{BodyMalformed, BodyTimedOut};
pub use refusal::{BodyUnread, Problem, Refusal, Refused};
pub use replay::{IDEMPOTENCY_EXPIRES, IDEMPOTENT_REPLAYED};
pub use route::{InFlight, KeyPer, LabelSource, Mode, RequestAge, Route, Routes, Then};
pub use scope::{Asked, NoScope, Scopes, scope_async, single_tenant};
pub use send_before::SendBefore;
pub use service::Idempotency;
pub use settle::{IDEMPOTENCY_ATTEMPT, IDEMPOTENCY_RECORD};

pub use crate::claim::Claim;

/// Put into a request's extensions by whoever received it: stands in every refusal, in the logs and in the record. A client
/// may have chosen it, so it names a request for people and decides nothing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RequestId(pub std::sync::Arc<str>);
