//! Observe mode: requests pass through as they are; what would have happened to them is counted and logged.
//!
//! Claims are made beside the request, in a space of their own, and delay nothing. A failing store is counted as well.

use std::sync::Arc;

use bytes::Bytes;
use hapax_core::address::Space;
use hapax_core::fingerprint::Fingerprinter;
use hapax_core::record::{AttemptId, Body as Recorded, OnLapse, Outcome, Policy};
use hapax_core::store::Store;
use hapax_core::transition::{Answer, Claimant, Event};
use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use crate::http::body::AnswerBody;
use crate::http::layer::{Settings, Shared, named};
use crate::http::path::effective_method;
use crate::http::route::Route;
use crate::http::settle::{self, Call};
use crate::http::{key, read_request, service};
use crate::{clock, observe, tokens};

/// Keys that were only observed never stand in the way once the rules are applied.
static SPACE: std::sync::LazyLock<Space> = std::sync::LazyLock::new(|| named("http-observed"));

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Passed<I, ReqBody, ResBody> = Result<Response<AnswerBody<ResBody>>, <I as Service<Request<ReqBody>>>::Error>;

/// Passes a request through and observes it.
pub(crate) async fn pass<S, I, ReqBody, ResBody>(
    shared: Arc<Shared<S>>,
    settings: Arc<Settings>,
    route: Arc<Route>,
    inner: I,
    request: Request<ReqBody>,
) -> Passed<I, ReqBody, ResBody>
where
    S: Store + 'static,
    I: Service<Request<ReqBody>, Response = Response<ResBody>>,
    ReqBody: Body<Data = Bytes> + From<Bytes> + Send + 'static,
    ReqBody::Error: Into<BoxError>,
{
    let found = key::read(request.headers(), &settings.key_headers, &route.key_rules, clock::wall_ms());
    let key = match found {
        Ok(Some(key)) if fits(request.body(), &route) => key,
        Ok(Some(_)) => return pass_counted(inner, request, "body-not-read").await,
        Ok(None) => return pass_counted(inner, request, "key-missing").await,
        Err(_) => return pass_counted(inner, request, "key-malformed").await,
    };
    let (parts, body) = request.into_parts();
    let Ok(scope) = settings.scopes.of(&parts).await else {
        return pass_counted(inner, Request::from_parts(parts, body), "scope-missing").await;
    };
    let Ok(bytes) = read_request::body(&parts, body, route.request_bytes_max).await else {
        // The client went away in the middle of its request: there is nothing left to pass on, and nobody to tell.
        return Ok(incomplete());
    };
    let call = Call { parts: parts.clone(), body: bytes.clone(), route, scope, key };
    let claimed = tokio::spawn(claim(Arc::clone(&shared), settings, call));
    let answer = service::pass(inner, Request::from_parts(parts, ReqBody::from(bytes)), "observed").await?;
    tokio::spawn(complete(shared, claimed, answer.status().as_u16()));
    Ok(answer)
}

/// Whether the body can be read without a risk of having to refuse it.
fn fits<B: Body>(body: &B, route: &Route) -> bool {
    body.size_hint().upper().is_some_and(|bytes| bytes <= route.request_bytes_max as u64)
}

async fn pass_counted<I, ReqBody, ResBody>(
    inner: I,
    request: Request<ReqBody>,
    outcome: &'static str,
) -> Passed<I, ReqBody, ResBody>
where
    I: Service<Request<ReqBody>, Response = Response<ResBody>>,
{
    observe::observed(outcome);
    tracing::info!(outcome, "observed");
    service::pass(inner, request, "observed").await
}

fn incomplete<B>() -> Response<AnswerBody<B>> {
    let mut response = Response::new(AnswerBody::whole(Bytes::new()));
    *response.status_mut() = http::StatusCode::BAD_REQUEST;
    response
}

struct Claimed {
    at: hapax_core::address::Address,
    attempt_id: AttemptId,
}

async fn claim<S: Store + 'static>(shared: Arc<Shared<S>>, settings: Arc<Settings>, call: Call) -> Option<Claimed> {
    let at = settle::address_in(&SPACE, &shared.scheme, &call);
    let attempt_id = AttemptId::from_bytes(tokens::random());
    let method = effective_method(&call.parts.method, &call.parts.headers);
    let fields = read_request::fields(&call.parts);
    let compared = read_request::compared(&call.parts, method.as_str(), &fields, &call.body);
    let fingerprints = Fingerprinter::new(compared, &call.route.recipe, &settings.fingerprint_keys).ok()?;
    // Nothing hangs on an observed key: one whose request was lost is forgotten, and never a case for people.
    let frozen = call.route.policy;
    let policy = Policy { on_lapse: OnLapse::Rerun, keep_expired_ms: None, attempts_max: None, ..frozen };
    let event = Event::Claim { by: Claimant::Client, attempt_id, fingerprints: &fingerprints, policy, labels: &[] };
    let answer = shared.engine.apply(&at, &event, None).await.map(|reply| reply.answer);
    let outcome = match answer {
        Ok(Answer::Proceed) => "created",
        Ok(Answer::Mismatch) => "mismatch",
        Ok(Answer::Replay) => "replayed",
        Ok(Answer::Busy | Answer::Undecided) => "in_progress",
        Ok(_) => "gone",
        Err(_) => "store-unavailable",
    };
    observe::observed(outcome);
    tracing::info!(id = %at.id(), outcome, "observed");
    (outcome == "created").then_some(Claimed { at, attempt_id })
}

async fn complete<S: Store + 'static>(
    shared: Arc<Shared<S>>,
    claimed: tokio::task::JoinHandle<Option<Claimed>>,
    status: u16,
) {
    let Ok(Some(Claimed { at, attempt_id })) = claimed.await else { return };
    let outcome = Arc::new(Outcome { status, headers: Vec::new(), body: Recorded::NotKept });
    let event = Event::Complete { attempt_id, outcome: &outcome, labels: &[] };
    if let Err(error) = shared.engine.apply(&at, &event, None).await {
        tracing::warn!(id = %at.id(), %error, "an observed request could not be recorded");
    }
}
