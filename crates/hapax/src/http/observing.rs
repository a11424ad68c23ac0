//! Observe mode: requests pass through as they are; what would have happened to them is counted and logged.
//!
//! Claims are made beside the request, in a space of their own, and delay nothing. A failing store is counted as well.

use std::sync::Arc;

use bytes::Bytes;
use hapax_core::address::{Id, Scope, Space};
use hapax_core::engine::Reply;
use hapax_core::fingerprint::Fingerprinter;
use hapax_core::limits::LABEL_BYTES_MAX;
use hapax_core::record::{AttemptId, Body as Recorded, Label, Labels, OnLapse, Outcome, Policy};
use hapax_core::store::Store;
use hapax_core::transition::{Answer, Claimant, Event};
use http::request::Parts;
use http::{Request, Response};
use http_body::Body;
use sha2::{Digest, Sha256};
use tower_service::Service;

use crate::claim::named;
use crate::http::access::Arrived;
use crate::http::body::AnswerBody;
use crate::http::budget::Use;
use crate::http::claiming::{self, Call};
use crate::http::client::Client;
use crate::http::guard::{Begun, Ended, NewKey};
use crate::http::layer::{Settings, Shared};
use crate::http::path::{compared_method, uri_that_counts};
use crate::http::route::{Route, Then};
use crate::http::service::{self, Asked};
use crate::http::{RequestId, key, meaning, read_request};
use crate::{clock, log, observe, tokens};

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
    let arrived = Arrived::now(request.headers(), request.extensions());
    let (parts, body) = request.into_parts();
    let found = key::read(&parts.headers, &settings.key_headers, &route.key_rules, clock::wall_ms());
    // It would not be refused, so there is nothing to observe.
    if matches!(found, Ok(None)) && !route.required {
        observe::unprotected();
        return service::pass(settings, inner, Request::from_parts(parts, body), "no-key").await;
    }
    let scope = settings.scopes.of(&parts).await.ok();
    let (key, scope) = match (found, scope) {
        (Ok(Some(key)), Some(scope)) if fits(&body, &route) => (key, scope),
        (found, scope) => {
            let outcome = match found {
                Ok(Some(_)) if !fits(&body, &route) => "body-not-read",
                Ok(Some(_)) => "scope-missing",
                Ok(None) => "key-missing",
                Err(_) => "key-malformed",
            };
            count(outcome, &parts, &route, scope.as_ref(), None);
            return service::pass(settings, inner, Request::from_parts(parts, body), "observed").await;
        }
    };
    let mut share = shared.budget.share(parts.extensions.get());
    let length = body.size_hint().upper().and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(usize::MAX);
    // Nothing is refused here: what there is no memory for passes unread.
    if share.hold(length, Use::Request).is_err() {
        count("body-not-read", &parts, &route, Some(&scope), None);
        return service::pass(settings, inner, Request::from_parts(parts, body), "observed").await;
    }
    let bytes = match read_request::body(&parts, body, route.request_bytes_max, share).await {
        Ok(bytes) => bytes,
        // The rest of the request never came: there is nothing left to pass on.
        Err(refusal) => return Ok(Asked::of(&settings, &parts.headers, arrived).refuse(&settings, None, refusal)),
    };
    let (body, on_route) = (bytes.clone(), Arc::clone(&route));
    let call = Call { parts: parts.clone(), head: None, body, route: on_route, scope, key, arrived };
    let claimed = tokio::spawn(claim(Arc::clone(&shared), Arc::clone(&settings), call));
    let passed = service::pass(settings, inner, Request::from_parts(parts, ReqBody::from(bytes)), "observed").await;
    tokio::spawn(record(shared, claimed, End::of(passed.as_ref().ok(), &route)));
    passed
}

/// Whether the body can be read without a risk of having to refuse it.
fn fits<B: Body>(body: &B, route: &Route) -> bool {
    body.size_hint().upper().is_some_and(|bytes| bytes <= route.request_bytes_max as u64)
}

/// Counts what would have happened, and logs whose request it was: that is what the mode is looked at for. The caller is
/// named by a digest, as everywhere in logs.
fn count(outcome: &'static str, parts: &Parts, route: &Route, caller: Option<&Scope>, id: Option<&Id>) {
    observe::observed(outcome);
    tracing::info!(
        target: log::OBSERVED,
        outcome,
        client = parts.extensions.get::<Client>().map(tracing::field::display),
        caller = caller.map(digest),
        route = &*route.name,
        method = shortened(parts.method.as_str()),
        path = shortened(uri_that_counts(&parts.uri, &parts.extensions).path()),
        request_id = parts.extensions.get::<RequestId>().map(|id| &*id.0),
        id = id.map(tracing::field::display),
        "observed"
    );
}

/// As long as a label may be: no client writes the log full with one request.
fn shortened(text: &str) -> &str {
    &text[..text.floor_char_boundary(LABEL_BYTES_MAX)]
}

/// The first 12 hexadecimal digits of the scope's SHA-256.
fn digest(caller: &Scope) -> String {
    Sha256::digest(caller.as_str())[..6].iter().map(|byte| format!("{byte:02x}")).collect()
}

struct Claimed {
    at: hapax_core::address::Address,
    client: Option<Client>,
    begun: Begun,
    attempt_id: AttemptId,
}

async fn claim<S: Store + 'static>(shared: Arc<Shared<S>>, settings: Arc<Settings>, call: Call) -> Option<Claimed> {
    let at = claiming::address_in(&SPACE, &shared.scheme, &call);
    let attempt_id = AttemptId::from_bytes(tokens::random());
    let method = compared_method(&call.parts.method, &call.parts.headers);
    let fields = read_request::fields(&call.parts);
    let compared = read_request::compared(&call.parts, &method, &fields, &call.body);
    let fingerprints = Fingerprinter::new(compared, &call.route.recipe, &settings.fingerprint_keys).ok()?;
    // Nothing hangs on an observed key: one whose request was lost is forgotten, and never a case for people.
    let frozen = call.route.policy;
    let policy = Policy { on_lapse: OnLapse::Rerun, keep_expired_ms: None, attempts_max: None, ..frozen };
    let event = Event::Claim {
        by: Claimant::Client,
        attempt_id,
        fingerprints: &fingerprints,
        policy,
        labels: &Labels::default(),
    };
    let client = claiming::client_of(&call.parts);
    let new = NewKey { caller: at.scope(), client, route: &call.route };
    // Records of observed requests take room as well.
    if let Err(refusal) = settings.guard.room_for(&new)
        && shared.engine.store().get(&at).await.is_ok_and(|seen| claiming::is_new(&seen, &event))
    {
        let outcome = refusal.problem.code();
        count(outcome, &call.parts, &call.route, Some(&call.scope), Some(at.id()));
        return None;
    }
    let claimed = shared.engine.apply(&at, &event, None).await;
    let outcome = claimed.as_ref().map_or("store-unavailable", outcome_of);
    count(outcome, &call.parts, &call.route, Some(&call.scope), Some(at.id()));
    if !claimed.is_ok_and(|reply| reply.answer == Answer::Proceed) {
        return None;
    }
    let begun = settings.guard.began(at.scope(), client);
    Some(Claimed { at, client, begun, attempt_id })
}

/// What would have happened, in a word.
fn outcome_of(reply: &Reply) -> &'static str {
    let is_first = reply.record().is_none_or(|record| record.attempt <= 1);
    let is_doubtful = reply.record().is_some_and(|record| record.labels.contains(&doubtful()));
    match reply.answer {
        Answer::Proceed if is_first => "created",
        Answer::Proceed => "retried",
        Answer::Mismatch => "mismatch",
        Answer::Replay if is_doubtful => "unknown",
        Answer::Replay => "replayed",
        Answer::Busy => "in_progress",
        Answer::Undecided => "unknown",
        _ => "gone",
    }
}

/// Stands in the record of an observed request of which nobody knows what became of it. The state of the same name would
/// wait for somebody to look.
fn doubtful() -> Label {
    Label { name: "observed".to_owned(), value: "unknown".to_owned() }
}

/// How an observed request ended.
struct End {
    status: u16,
    then: Then,
    why: String,
    retry_in_ms: u64,
    keep_ms: Option<u64>,
    is_turned_away: bool,
}

impl End {
    /// As an attempt would have ended with that answer, or with none.
    fn of<B>(answer: Option<&Response<B>>, route: &Route) -> Self {
        let Some(answer) = answer else {
            let why = "service-error".to_owned();
            return Self {
                status: 504,
                then: Then::Unknown,
                why,
                retry_in_ms: 0,
                keep_ms: None,
                is_turned_away: false,
            };
        };
        let (status, happened) = (answer.status(), answer.extensions().get().copied());
        let (then, why) = meaning::of(status, happened, route);
        Self {
            status: status.as_u16(),
            then,
            why,
            retry_in_ms: meaning::retry_in_ms(answer.headers()),
            keep_ms: meaning::keep_ms(status, happened, route),
            is_turned_away: meaning::turns_away(status, happened, route),
        }
    }

    /// What it is worth. An observed request whose outcome is unknown is recorded as completed, and is no case for people.
    fn for_guard(&self) -> Ended {
        match self.then {
            Then::Completed => Ended::Recorded(self.status),
            Then::Ready if self.is_turned_away => Ended::TurnedAway,
            Then::Ready | Then::Unknown => Ended::Free,
        }
    }
}

async fn record<S: Store + 'static>(
    shared: Arc<Shared<S>>,
    claimed: tokio::task::JoinHandle<Option<Claimed>>,
    end: End,
) {
    let Ok(Some(Claimed { at, client, begun, attempt_id })) = claimed.await else { return };
    shared.settings().guard.ended(at.scope(), client, begun, end.for_guard());
    let End { status, then, why, retry_in_ms, keep_ms, .. } = end;
    let outcome = Arc::new(Outcome { status, headers: Vec::new(), body: Recorded::NotKept });
    let labels = if then == Then::Unknown { Labels::from([doubtful()]) } else { Labels::default() };
    let event = match then {
        Then::Ready => Event::Fail { attempt_id, error: &why, retry_in_ms, keep_ms },
        Then::Completed | Then::Unknown => Event::Complete { attempt_id, outcome: &outcome, labels: &labels },
    };
    if let Err(error) = shared.engine.apply(&at, &event, None).await {
        tracing::warn!(target: log::ATTEMPT, id = %at.id(), %error, "an observed request could not be recorded");
    }
}
