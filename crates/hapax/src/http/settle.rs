//! The claim, and what follows from it. Detached: it goes on if the client hangs up.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hapax_core::address::{Address, Key, Scope, Space};
use hapax_core::clock::Timestamp;
use hapax_core::engine::{EngineError, Reply};
use hapax_core::fingerprint::{Fingerprinter, Fingerprints};
use hapax_core::record::{AttemptId, Body as Recorded, State, Version};
use hapax_core::store::{ErrorKind, Seen, Store};
use hapax_core::transition::{Answer, Claimant, Decision, Event, decide};
use http::header::{ACCEPT_ENCODING, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use http::request::Parts;
use http::{Request, Response, StatusCode};
use http_body::Body;
use sha2::{Digest, Sha256};
use tokio::time::Instant;
use tower_service::Service;
use tracing::{Instrument as _, Span};

use crate::claim::Claim;
use crate::fence::Fence;
use crate::http::access::Arrived;
use crate::http::attempt::Attempt;
use crate::http::body::AnswerBody;
use crate::http::capture;
use crate::http::guard::{Seen as Saw, Wait};
use crate::http::layer::{Settings, Shared};
use crate::http::path::{effective_method, resolved, uri_that_counts};
use crate::http::refusal::{Problem, Refusal, seconds};
use crate::http::route::{InFlight, KeyPer, Route};
use crate::http::service::refusal_of;
use crate::http::{read_request, replay, trace};
use crate::observe;
use crate::tokens;

/// The field that tells the service behind which attempt this is. It only grows: a fencing token.
pub const IDEMPOTENCY_ATTEMPT: HeaderName = HeaderName::from_static("idempotency-attempt");

/// How soon to come back while another attempt runs: most end within a second.
const BUSY_RETRY_AFTER: Duration = Duration::from_secs(1);

/// How soon to come back while nobody knows: reconciling takes longer.
const UNKNOWN_RETRY_AFTER: Duration = Duration::from_secs(5);

/// How soon to come back while the store is away.
const STORE_RETRY_AFTER: Duration = Duration::from_secs(1);

/// A request with all that is needed to claim its key.
pub(crate) struct Call {
    pub(crate) parts: Parts,
    pub(crate) body: Bytes,
    pub(crate) route: Arc<Route>,
    pub(crate) scope: Scope,
    pub(crate) key: Key,
    pub(crate) arrived: Arrived,
}

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
    /// Its head, where somebody is to be asked before a replay.
    checked: Option<Box<Parts>>,
    /// Whether the route accepts (202) what still runs after that time.
    accepts: bool,
}

/// Where the record of a request is.
pub(crate) fn address<S>(shared: &Shared<S>, call: &Call) -> Address {
    address_in(&shared.space, &shared.scheme, call)
}

pub(crate) fn address_in(space: &Space, scheme: &hapax_core::address::AddressScheme, call: &Call) -> Address {
    match call.route.key_per {
        KeyPer::Caller => Address::new(scheme, space, &call.scope, &call.key),
        KeyPer::Route => {
            let mut hash = Sha256::new();
            let method = effective_method(&call.parts.method, &call.parts.headers);
            let uri = uri_that_counts(&call.parts.uri, &call.parts.extensions);
            for part in [method.as_str(), &*resolved(uri.path())] {
                hash.update((part.len() as u64).to_le_bytes());
                hash.update(part);
            }
            let digest: String = hash.finalize()[..16].iter().map(|byte| format!("{byte:02x}")).collect();
            let space = Space::new(&format!("{}:{digest}", space.as_str())).unwrap_or_else(|_| space.clone());
            Address::new(scheme, &space, &call.scope, &call.key)
        }
    }
}

/// Claims the key and does what follows.
pub(crate) async fn settle<S, I, ReqBody, ResBody>(
    shared: Arc<Shared<S>>,
    settings: Arc<Settings>,
    call: Call,
    at: Address,
    inner: I,
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
    let begun = Instant::now();
    let reply = match claim(&shared, &settings, &call, &at, attempt_id).await {
        Ok(reply) => reply,
        Err(refusal) => return Step::Refuse(refusal),
    };
    count(&reply, &settings, &call.route, &at);
    match reply.answer {
        // In a box, so that a replay does not pay for the room that work takes.
        Answer::Proceed => {
            let span = span_of(&call);
            Box::pin(run(&shared, call, at, Claimed { attempt_id, reply, begun }, inner).instrument(span)).await
        }
        Answer::Replay => {
            replay_if_allowed(&settings, call.route.replay_check.then_some(&call.parts), &at, &reply.seen).await
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

/// The claim itself, behind rates and breaker.
async fn claim<S: Store + 'static>(
    shared: &Arc<Shared<S>>,
    settings: &Settings,
    call: &Call,
    at: &Address,
    attempt_id: AttemptId,
) -> Result<Reply, Refusal> {
    let (guard, route) = (&settings.guard, &*call.route);
    guard.look_up(at.scope(), route).map_err(|wait| too_many("look-ups", wait))?;
    let turn =
        guard.store().map_err(|wait| store_unavailable("the store has failed several times").with_retry_after(wait))?;
    let at_hand = shared.answers.find(at, Instant::now(), settings.answers_at_hand);
    let method = effective_method(&call.parts.method, &call.parts.headers);
    let fields = read_request::fields(&call.parts);
    let compared = read_request::compared(&call.parts, method.as_str(), &fields, &call.body);
    let fingerprints = Fingerprinter::new(compared, &route.recipe, &settings.fingerprint_keys)
        .map_err(|error| store_unavailable(&error.to_string()))?;
    let labels = &capture::claim_labels(route, &call.parts, &call.body);
    let (fingerprints, policy): (&dyn Fingerprints, _) = (&fingerprints, route.policy);
    let since = settings.fence.map_or_else(Timestamp::default, |fence| fence.restored_at);
    let suspect = Event::Suspect { since, fingerprints, policy, labels };
    let claim = Event::Claim { by: Claimant::Client, attempt_id, fingerprints, policy, labels };
    if let Some(reply) = at_hand.and_then(|seen| replayed(seen, &claim)) {
        return Ok(reply);
    }
    let begun = Instant::now();
    let claimed = claim_if_allowed(shared, settings, route, at, [&suspect, &claim]).await;
    observe::store_took("claim", begun.elapsed().as_secs_f64());
    if let Some(report) = turn {
        report(has_answered(&claimed));
    }
    if let Err(EngineError::Store(error)) = &claimed
        && error.kind == ErrorKind::Ambiguous
    {
        Attempt::give_back(shared, &call.route, at.clone(), attempt_id, call.arrived.clone());
    }
    let allowed = claimed.map_err(|error| refused_claim(&error, at, call))?;
    let reply = allowed.map_err(|wait| too_many("new keys", wait))?;
    if reply.answer == Answer::Replay {
        shared.answers.keep(at, &reply.seen, begun, settings.answers_at_hand);
    }
    Ok(reply)
}

/// Asks the store, and the guard before a new key is claimed. Whether it is new is looked up first where the route limits
/// new keys, so that retries use up nothing; elsewhere only for a guard that says no by rules of its own.
async fn claim_if_allowed<S: Store + 'static>(
    shared: &Shared<S>,
    settings: &Settings,
    route: &Route,
    at: &Address,
    [suspect, claim]: [&Event<'_>; 2],
) -> Result<Result<Reply, Wait>, EngineError> {
    let (engine, is_limited) = (&shared.engine, route.new_keys_per_second.is_some());
    let mut seen = if is_limited { Some(engine.store().get(at).await?) } else { None };
    if seen.as_ref().is_none_or(|seen| is_new(seen, claim))
        && let Err(wait) = settings.guard.new_key(at.scope(), route)
    {
        if is_limited {
            return Ok(Err(wait));
        }
        let looked = engine.store().get(at).await?;
        if is_new(&looked, claim) {
            return Ok(Err(wait));
        }
        seen = Some(looked);
    }
    match (settings.fence, seen) {
        (Some(fence), _) => claim_behind(shared, fence, at, suspect, claim).await,
        (None, Some(seen)) => claim_seen(shared, at, claim, seen).await,
        (None, None) => engine.apply(at, claim, None).await,
    }
    .map(Ok)
}

/// Whether a claim would be the first under its key: there is no record, or it has expired.
fn is_new(seen: &Seen, claim: &Event<'_>) -> bool {
    let decided = decide(seen, claim, Version::from_bytes([0; 16]));
    decided.is_ok_and(|decided| decided.write.is_some_and(|next| next.attempt <= 1))
}

/// The claim of a key that was just looked up. What needs no write is said as it was found: looked up once more, a known
/// key that expires in between would be a new one that nobody has allowed.
async fn claim_seen<S: Store + 'static>(
    shared: &Shared<S>,
    at: &Address,
    claim: &Event<'_>,
    seen: Seen,
) -> Result<Reply, EngineError> {
    match decide(&seen, claim, Version::from_bytes([0; 16])) {
        Ok(Decision { write: None, answer }) => Ok(Reply { answer, seen, wrote: false }),
        _ => shared.engine.apply(at, claim, Some(seen)).await,
    }
}

/// Whether the store gave an answer. That one record is damaged is one, and no reason not to ask it about the others.
fn has_answered<T>(claimed: &Result<T, EngineError>) -> bool {
    match claimed {
        Err(EngineError::Store(error)) => match error.kind {
            ErrorKind::Unavailable | ErrorKind::Ambiguous | ErrorKind::Unsuitable => false,
            ErrorKind::Damaged | ErrorKind::Invalid => true,
        },
        _ => true,
    }
}

/// What the rules say of an answer that is at hand, if they say that it is replayed.
fn replayed(seen: Seen, claim: &Event<'_>) -> Option<Reply> {
    let decided = decide(&seen, claim, Version::from_bytes([0; 16])).ok()?;
    let replayed = decided.write.is_none() && decided.answer == Answer::Replay;
    replayed.then_some(Reply { answer: Answer::Replay, seen, wrote: false })
}

/// The claim while a fence stands: a key that may have been claimed in what a restore lost is unknown first.
async fn claim_behind<S: Store + 'static>(
    shared: &Shared<S>,
    fence: Fence,
    at: &Address,
    suspect: &Event<'_>,
    claim: &Event<'_>,
) -> Result<Reply, EngineError> {
    let engine = &shared.engine;
    if !fence.holds(at.key()) {
        return engine.apply(at, claim, None).await;
    }
    let seen = engine.store().get(at).await?;
    if fence.has_fallen(seen.now) {
        shared.let_fall(fence);
        return engine.apply(at, claim, Some(seen)).await;
    }
    let suspected = engine.apply(at, suspect, Some(seen)).await?;
    match suspected.answer {
        Answer::Undecided | Answer::Mismatch => Ok(suspected),
        // What stands there was not lost.
        _ => engine.apply(at, claim, Some(suspected.seen)).await,
    }
}

/// What work logs, wherever it goes on, names its request. Only for what runs: a replay has one line, which names it.
fn span_of(call: &Call) -> Span {
    let request_id = call.arrived.request_id.as_ref().map(|id| &*id.0);
    tracing::info_span!("request", request_id, trace_id = trace::id(&call.parts.headers))
}

fn refused_claim(error: &EngineError, at: &Address, call: &Call) -> Refusal {
    let request_id = call.arrived.request_id.as_ref().map(|id| &*id.0);
    tracing::warn!(id = %at.id(), request_id, %error, "a claim could not be proved");
    if let EngineError::Store(error) = error {
        observe::store_failed(error);
    }
    store_unavailable("the store could not prove the claim")
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
}

async fn run<S, I, ReqBody, ResBody>(
    shared: &Arc<Shared<S>>,
    call: Call,
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
    let Call { mut parts, body, route, arrived, .. } = call;
    let Claimed { attempt_id, reply, begun } = claimed;
    let (attempt, checkpoint) = reply.record().map_or((1, None), |record| (record.attempt, record.checkpoint.clone()));
    parts.headers.insert(IDEMPOTENCY_ATTEMPT, HeaderValue::from(attempt));
    // What is recorded must be what every retry can read.
    parts.headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    parts.extensions.insert(Claim::new(at.clone(), attempt, checkpoint));
    let request = Request::from_parts(parts, ReqBody::from(body));
    let lease = Duration::from_millis(reply.record().map_or(0, |record| record.policy.lease_ms));
    let attempt = Attempt::new(shared, &route, at, attempt_id, reply, arrived);
    // A process that was paused must not send what others may have taken for lost. Half a lease, so that the first
    // renewal still comes in time.
    if begun.elapsed() >= lease / 2 {
        return Step::Refuse(attempt.give_up().await);
    }
    // A panic before the first await is one in the middle, too.
    match attempt.run(async move { inner.call(request).await }).await {
        Ok(answer) => Step::Answer(answer),
        Err(refusal) => Step::Refuse(refusal),
    }
}

/// The recorded answer, unless whoever is asked about a head that is to be checked says that it is not for this caller.
async fn replay_if_allowed<B>(settings: &Settings, checked: Option<&Parts>, at: &Address, seen: &Seen) -> Step<B> {
    let Some(parts) = checked else { return recorded(seen) };
    match settings.scopes.may_replay(parts, at.scope()).await {
        Ok(true) => recorded(seen),
        Ok(false) => Step::Refuse(Refusal::new(
            Problem::ReplayRefused,
            "this caller may not see the recorded answer any more; ask whoever grants access",
        )),
        Err(no_scope) => Step::Refuse(refusal_of(no_scope)),
    }
}

fn recorded<B>(seen: &Seen) -> Step<B> {
    match replay::response(seen) {
        Some(answer) => Step::Replay(answer),
        None => Step::Refuse(Refusal::new(
            Problem::AnswerNotKept,
            "the request was carried out and its answer was too large or streamed, so it was not kept; \
             it is not run again; look the result up",
        )),
    }
}

fn busy<B>(seen: &Seen, call: Call) -> Step<B> {
    let Call { parts, route, .. } = call;
    let most = match (route.in_flight, preferred_wait(&parts)) {
        _ if !is_running(seen) => return Step::Refuse(not_running(due(seen))),
        (_, Some(asked)) if !asked.is_zero() => asked.min(route.wait_max),
        (InFlight::Wait, None) => route.wait_max,
        (InFlight::Accepted, _) => return Step::Accepted(BUSY_RETRY_AFTER),
        (InFlight::Conflict | InFlight::Wait, _) => return Step::Refuse(in_progress(BUSY_RETRY_AFTER)),
    };
    let accepts = route.in_flight == InFlight::Accepted;
    Step::Wait(Waiting { most, checked: route.replay_check.then(|| Box::new(parts)), accepts })
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
    match shared.waiters.wait(&shared.engine, at, waiting.most).await {
        Some(seen) => match seen.stored.as_ref().map(|stored| stored.record.state) {
            Some(State::Completed) => replay_if_allowed(settings, waiting.checked.as_deref(), at, &seen).await,
            Some(State::Unknown | State::Dead) => Step::Refuse(undecided()),
            _ => Step::Refuse(not_running(due(&seen))),
        },
        None if waiting.accepts => Step::Accepted(BUSY_RETRY_AFTER),
        None => Step::Refuse(in_progress(BUSY_RETRY_AFTER)),
    }
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

fn too_many(what: &str, wait: Duration) -> Refusal {
    let detail = format!("this caller uses too many {what} per second; nothing was run; slow down");
    Refusal::new(Problem::TooMany, detail).with_retry_after(wait)
}

fn store_unavailable(cause: &str) -> Refusal {
    let detail = format!("{cause}; nothing was run; send the same request again");
    Refusal::new(Problem::StoreUnavailable, detail).with_retry_after(STORE_RETRY_AFTER)
}
