//! What follows from a claim: the work, a replay, a wait or a refusal. Detached: it goes on if the client hangs up.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hapax_core::address::Address;
use hapax_core::engine::Reply;
use hapax_core::record::{AttemptId, Body as Recorded, State};
use hapax_core::store::{Seen, Store};
use hapax_core::transition::Answer;
use http::header::{ACCEPT_ENCODING, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use http::request::Parts;
use http::{Request, Response, StatusCode};
use http_body::Body;
use tokio::time::Instant;
use tower_service::Service;

use crate::claim::Claim;
use crate::http::attempt::Attempt;
use crate::http::attempts::Place;
use crate::http::body::AnswerBody;
use crate::http::budget::{Full, Share};
use crate::http::claiming::{Call, STORE_RETRY_AFTER, claim, client_of, store_unavailable};
use crate::http::client::Client;
use crate::http::guard::Seen as Saw;
use crate::http::layer::{Settings, Shared};
use crate::http::patience::Patience;
use crate::http::refusal::{Problem, Refusal, seconds};
use crate::http::replay;
use crate::http::route::{InFlight, Route};
use crate::http::send_before::SendBefore;
use crate::http::service::refusal_of;
use crate::http::wait::Waited;
use crate::tokens;
use crate::{clock, observe};

/// The field that tells the service behind which attempt this is. It only grows: a fencing token.
pub const IDEMPOTENCY_ATTEMPT: HeaderName = HeaderName::from_static("idempotency-attempt");

/// The field that tells the service behind which record this is: the id, in hexadecimal. It covers scope and key, so that a
/// service that keeps it can say later what became of this very request. It is a name and no credential: whoever knows it can
/// neither renew nor complete nor fail anything.
pub const IDEMPOTENCY_RECORD: HeaderName = HeaderName::from_static("idempotency-record");

/// How soon to come back while another attempt runs: most end within a second.
const BUSY_RETRY_AFTER: Duration = Duration::from_secs(1);

/// How soon to come back while nobody knows: reconciling takes longer.
const UNKNOWN_RETRY_AFTER: Duration = Duration::from_secs(5);

/// What comes of a claim.
pub(crate) enum Step<B> {
    /// The service's answer.
    Answer(Response<AnswerBody<B>>),
    /// The recorded one.
    Replay(Response<Bytes>),
    /// Somebody runs it; come back after that.
    Accepted(Duration),
    /// Somebody runs it; wait for the answer.
    Wait(Waiting),
    /// None.
    Refuse(Refusal),
}

/// A request that waits for the answer of the attempt that runs. It holds no body.
pub(crate) struct Waiting {
    /// At most that long.
    most: Duration,
    /// Its head, where somebody is to be asked before a replay, and the memory that is held for it.
    checked: Option<(Box<Parts>, Option<Share>)>,
    client: Option<Client>,
    /// Whether the route accepts (202) what still runs after that time.
    accepts: bool,
}

/// Claims the key and does what follows.
pub(crate) async fn settle<S, I, ReqBody, ResBody>(
    shared: Arc<Shared<S>>,
    settings: Arc<Settings>,
    call: Box<Call>,
    at: Address,
    inner: I,
    patience: Patience,
) -> Step<ResBody>
where
    S: Store + 'static,
    I: Service<Request<ReqBody>, Response = Response<ResBody>>,
    ReqBody: From<Bytes>,
    ResBody: Body<Data = Bytes> + Send + 'static,
{
    let attempt_id = AttemptId::from_bytes(tokens::random());
    hapax_core::failpoint!(async "before-claim");
    // The lease begins when the store stamps the claim, which is not before this.
    let (begun, begun_ms) = (Instant::now(), clock::boot_ms());
    // In a box, so that the work does not hold the room that the claim took.
    let claiming = Box::pin(claim(&shared, &settings, &call, &at, attempt_id, &patience));
    let (reply, place) = match claiming.await {
        Ok(claimed) => claimed,
        Err(refusal) => return Step::Refuse(refusal),
    };
    count(&reply, &settings, &call.route, &at);
    match reply.answer {
        // In a box, so that a replay does not pay for the room that work takes.
        Answer::Proceed => {
            let claimed = Claimed { attempt_id, reply, begun, begun_ms, place };
            Box::pin(run(&shared, call, at, claimed, inner)).await
        }
        Answer::Replay => {
            let replayed = recorded(&shared, call.parts.extensions.get(), &reply.seen);
            replay_if_allowed(&settings, call.route.replay_check.then_some(&call.parts), &at, replayed).await
        }
        Answer::Busy => busy(&reply.seen, call),
        Answer::Accepted => Step::Accepted(due(&reply.seen)),
        Answer::Undecided => Step::Refuse(undecided()),
        Answer::Mismatch => Step::Refuse(mismatch(&call.route)),
        Answer::Gone => Step::Refuse(Refusal::new(
            Problem::KeyExpired,
            "the key was used and its answer is no longer kept; send a new key if the request is a new one",
        )),
        _ => Step::Refuse(store_unavailable("the store gave an answer that makes no sense here")),
    }
}

fn count(reply: &Reply, settings: &Settings, route: &Route, at: &Address) {
    let attempt = reply.record().map_or(0, |record| record.attempt);
    let (outcome, saw) = match reply.answer {
        Answer::Proceed if attempt <= 1 => ("created", Saw::Created),
        Answer::Proceed => ("retried", Saw::Duplicate),
        Answer::Replay if is_not_kept(reply) => ("not_kept", Saw::Duplicate),
        Answer::Replay => ("replayed", Saw::Duplicate),
        Answer::Busy => ("in_progress", Saw::Duplicate),
        Answer::Accepted => ("accepted", Saw::Duplicate),
        Answer::Undecided => ("unknown", Saw::Duplicate),
        Answer::Mismatch => ("mismatch", Saw::Mismatch),
        _ => ("gone", Saw::Duplicate),
    };
    observe::claimed(outcome);
    if saw == Saw::Duplicate {
        observe::duplicate(&route.name);
    }
    if noticed_a_lapse(reply) {
        observe::lapsed();
    }
    settings.guard.saw(at.scope(), saw);
}

/// Whether this claim was the one that found the lease lapsed.
fn noticed_a_lapse(reply: &Reply) -> bool {
    let has_lapsed = || reply.record().is_some_and(|record| record.error.as_deref() == Some("lapsed"));
    reply.wrote && reply.answer == Answer::Undecided && has_lapsed()
}

fn is_not_kept(reply: &Reply) -> bool {
    reply.outcome().is_some_and(|outcome| outcome.body == Recorded::NotKept)
}

/// A claim that proceeds.
struct Claimed {
    attempt_id: AttemptId,
    reply: Reply,
    /// When the claim was begun.
    begun: Instant,
    /// The same by the boot clock, which goes on while the host is asleep.
    begun_ms: u64,
    place: Option<Place>,
}

async fn run<S, I, ReqBody, ResBody>(
    shared: &Arc<Shared<S>>,
    call: Box<Call>,
    at: Address,
    claimed: Claimed,
    mut inner: I,
) -> Step<ResBody>
where
    S: Store + 'static,
    I: Service<Request<ReqBody>, Response = Response<ResBody>>,
    ReqBody: From<Bytes>,
    ResBody: Body<Data = Bytes> + Send + 'static,
{
    hapax_core::failpoint!(async "claim-durable");
    let Call { mut parts, head: _head, body, route, arrived, .. } = *call;
    let Claimed { attempt_id, reply, begun, begun_ms, place } = claimed;
    let client = client_of(&parts);
    let (attempt, checkpoint) = reply.record().map_or((1, None), |record| (record.attempt, record.checkpoint.clone()));
    parts.headers.insert(IDEMPOTENCY_ATTEMPT, HeaderValue::from(attempt));
    if let Ok(id) = HeaderValue::from_bytes(&at.id().to_hex()) {
        parts.headers.insert(IDEMPOTENCY_RECORD, id);
    }
    // What is recorded must be what every retry can read.
    parts.headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    parts.extensions.insert(Claim::new(at.clone(), attempt, checkpoint));
    let lease_ms = reply.record().map_or(0, |record| record.policy.lease_ms);
    let before = SendBefore::of_lease(begun_ms, lease_ms);
    parts.extensions.insert(before.clone());
    let request = Request::from_parts(parts, ReqBody::from(body));
    let attempt = Attempt::new(shared, &route, (at, client), (attempt_id, reply), (before.clone(), place), arrived);
    // A process that was paused must not send what others may have taken for lost. Half a lease, so that the first
    // renewal still comes in time. Whoever sends looks again, directly before the first byte: see `send_before`.
    if begun.elapsed() >= Duration::from_millis(lease_ms) / 2 || before.is_over() {
        return Step::Refuse(attempt.give_up());
    }
    // A panic before the first await is one in the middle, too.
    match attempt.run(async move { inner.call(request).await }).await {
        Ok(answer) => Step::Answer(answer),
        Err(refusal) => Step::Refuse(refusal),
    }
}

/// The recorded answer, unless whoever is asked about a head that is to be checked says that it is not for this caller.
async fn replay_if_allowed<B>(
    settings: &Settings,
    checked: Option<&Parts>,
    at: &Address,
    replayed: Step<B>,
) -> Step<B> {
    let Some(parts) = checked else { return replayed };
    match settings.scopes.may_replay(parts, at.scope()).await {
        Ok(true) => replayed,
        Ok(false) => Step::Refuse(Refusal::new(
            Problem::ReplayRefused,
            "this caller may not see the recorded answer any more; ask whoever grants access",
        )),
        Err(no_scope) => Step::Refuse(refusal_of(no_scope)),
    }
}

fn recorded<S, B>(shared: &Shared<S>, client: Option<&Client>, seen: &Seen) -> Step<B> {
    match replay::response(seen, |version, outcome| shared.replayed.body(&shared.budget, client, version, outcome)) {
        Err(Full) => Step::Refuse(Refusal::memory_full("it cannot send the recorded response, which stands")),
        Ok(Some(answer)) => Step::Replay(answer),
        Ok(None) => Step::Refuse(Refusal::new(
            Problem::AnswerNotKept,
            "the request was carried out and its answer was too large or streamed, so it was not kept; \
             it is not run again; look the result up",
        )),
    }
}

fn busy<B>(seen: &Seen, call: Box<Call>) -> Step<B> {
    let Call { parts, route, head, .. } = *call;
    let client = parts.extensions.get().copied();
    let most = match (route.in_flight, preferred_wait(&parts)) {
        _ if !is_running(seen) => return Step::Refuse(not_running(due(seen))),
        (_, Some(asked)) if !asked.is_zero() => asked.min(route.wait_max),
        (InFlight::Wait, None) => route.wait_max,
        (InFlight::Accepted, _) => return Step::Accepted(BUSY_RETRY_AFTER),
        (InFlight::Conflict | InFlight::Wait, _) => return Step::Refuse(in_progress(BUSY_RETRY_AFTER)),
    };
    let accepts = route.in_flight == InFlight::Accepted;
    Step::Wait(Waiting { most, checked: route.replay_check.then(|| (Box::new(parts), head)), client, accepts })
}

/// `Prefer: wait=N` (RFC 7240). The first one counts; what is not understood is ignored.
fn preferred_wait(parts: &Parts) -> Option<Duration> {
    let lines = parts.headers.get_all("prefer").iter().filter_map(|value| value.to_str().ok());
    lines.flat_map(|line| line.split(',')).find_map(|preference| {
        let (name, value) = preference.split(';').next()?.split_once('=')?;
        let seconds = value.trim().trim_matches('"').parse::<u64>().ok()?;
        name.trim().eq_ignore_ascii_case("wait").then(|| Duration::from_secs(seconds))
    })
}

/// Waits for the answer of the attempt that runs.
pub(crate) async fn wait<S, B>(shared: &Shared<S>, settings: &Settings, at: &Address, waiting: Waiting) -> Step<B>
where
    S: Store + 'static,
{
    let _waiting = observe::Gauge::waiting();
    match shared.waiters.wait(&shared.engine, at, waiting.most, settings.store_timeout).await {
        Waited::Settled(seen) => match seen.stored.as_ref().map(|stored| stored.record.state) {
            Some(State::Completed) => {
                let replayed = recorded(shared, waiting.client.as_ref(), &seen);
                let checked = waiting.checked.as_ref().map(|(parts, _)| &**parts);
                replay_if_allowed(settings, checked, at, replayed).await
            }
            Some(State::Unknown | State::Dead) => Step::Refuse(undecided()),
            _ => Step::Refuse(not_running(due(&seen))),
        },
        Waited::StoreSilent => Step::Refuse(store_silent()),
        Waited::TimeOver if waiting.accepts => Step::Accepted(BUSY_RETRY_AFTER),
        Waited::TimeOver => Step::Refuse(in_progress(BUSY_RETRY_AFTER)),
    }
}

/// The store went away while another attempt was waited for, which may still run.
fn store_silent() -> Refusal {
    Refusal::new(
        Problem::StoreUnavailable,
        "a request with this key is being carried out, and the store does not answer any more; send the same request again",
    )
    .with_retry_after(STORE_RETRY_AFTER)
}

fn is_running(seen: &Seen) -> bool {
    seen.stored.as_ref().is_some_and(|stored| stored.record.state == State::Running)
}

fn due(seen: &Seen) -> Duration {
    Duration::from_millis(seen.due_in_ms())
}

/// 202 for a request that somebody runs.
pub(crate) fn accepted(after: Duration) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from_static(br#"{"state":"running"}"#));
    *response.status_mut() = StatusCode::ACCEPTED;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(http::header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(RETRY_AFTER, HeaderValue::from(seconds(after)));
    response
}

pub(crate) fn in_progress(after: Duration) -> Refusal {
    Refusal::new(
        Problem::InProgress,
        "a request with this key is being carried out; send the same request again after a while",
    )
    .with_retry_after(after)
}

/// The last attempt has ended and left the key free, and the next one may start after that time.
fn not_running(after: Duration) -> Refusal {
    let detail = if after.is_zero() {
        "nothing runs under this key now: the last attempt ended and left the key free; send the same request again"
    } else {
        "nothing runs under this key now: the last attempt ended with an answer that asks to come back later, and that \
         time has not come; send the same request again after `Retry-After`"
    };
    Refusal::new(Problem::InProgress, detail).with_retry_after(after)
}

fn undecided() -> Refusal {
    Refusal::new(
        Problem::OutcomeUnknown,
        "an earlier request with this key may or may not have been carried out, and nobody knows yet; \
         nothing is run meanwhile; send the same request again later",
    )
    .with_retry_after(UNKNOWN_RETRY_AFTER)
}

fn mismatch(route: &Route) -> Refusal {
    let refusal = Refusal::new(
        Problem::KeyReused,
        "the key was used for another request (method, host, path, query, content type or body differ); \
         send a new key with this one",
    );
    if route.mismatch_is_400 { refusal.with_status(StatusCode::BAD_REQUEST) } else { refusal }
}
