//! The way of a request: key, scope, body, claim, and then the work, a replay or a refusal.
//!
//! Everything from the claim on is detached: a client that hangs up cancels nothing and frees nothing.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hapax_core::address::Address;
use hapax_core::store::Store;
use http::header::{HeaderMap, HeaderValue, ORIGIN};
use http::request::Parts;
use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use crate::http::access::Arrived;
use crate::http::body::AnswerBody;
use crate::http::budget::Share;
use crate::http::claiming::{self, Call};
use crate::http::detached::Detached;
use crate::http::guard::Seen as Saw;
use crate::http::layer::{Settings, Shared};
use crate::http::path::uri_that_counts;
use crate::http::patience::Patience;
use crate::http::refusal::{Problem, Refusal, Refused};
use crate::http::route::{Mode, Route};
use crate::http::scope::NoScope;
use crate::http::settle::{self, IDEMPOTENCY_ATTEMPT, IDEMPOTENCY_RECORD, Step};
use crate::http::{key, observing, read_request};
use crate::{clock, log, observe};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A service whose requests happen once. Made by [`IdempotencyLayer`](crate::http::IdempotencyLayer).
pub struct Idempotency<S, I> {
    shared: Arc<Shared<S>>,
    inner: I,
}

impl<S, I> Idempotency<S, I> {
    pub(crate) fn new(shared: Arc<Shared<S>>, inner: I) -> Self {
        Self { shared, inner }
    }
}

impl<S, I: Clone> Clone for Idempotency<S, I> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), inner: self.inner.clone() }
    }
}

impl<S, I> std::fmt::Debug for Idempotency<S, I> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Idempotency")
    }
}

type Answer<I, ResBody, ReqBody> = Result<Response<AnswerBody<ResBody>>, <I as Service<Request<ReqBody>>>::Error>;

impl<S, I, ReqBody, ResBody> Service<Request<ReqBody>> for Idempotency<S, I>
where
    S: Store + 'static,
    I: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone + Send + 'static,
    I::Future: Send,
    I::Error: Send,
    ReqBody: Body<Data = Bytes> + From<Bytes> + Send + 'static,
    ReqBody::Error: Into<BoxError> + Send,
    ResBody: Body<Data = Bytes> + Send + 'static,
    ResBody::Error: Send,
{
    type Response = Response<AnswerBody<ResBody>>;
    type Error = I::Error;
    type Future = Pin<Box<dyn Future<Output = Answer<I, ResBody, ReqBody>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), I::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<ReqBody>) -> Self::Future {
        // Whoever takes it for a fence, or for the name of a record, must not be told by a client, protected or not.
        request.headers_mut().remove(IDEMPOTENCY_ATTEMPT);
        request.headers_mut().remove(IDEMPOTENCY_RECORD);
        // The one that was polled ready is called; its clone waits for the next request.
        let clone = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, clone);
        let settings = self.shared.settings();
        let Ok(head) = read_request::hold_head(&self.shared.budget, &request) else {
            let refusal = read_request::no_memory(request.body());
            let arrived = Arrived::now(request.headers(), request.extensions());
            let asked = Asked::of(&settings, request.headers(), arrived);
            return Box::pin(async move { Ok(asked.refuse(&settings, None, refusal)) });
        };
        let path = uri_that_counts(request.uri(), request.extensions()).path();
        let route = settings.routes.find(request.method(), path, request.headers());
        if !request.method().is_safe() {
            let method = request.method().as_str();
            let has_key = settings.key_headers.iter().any(|name| request.headers().contains_key(name));
            // What `hapax routes --log` reads.
            tracing::debug!(method, path, has_key, "a state-changing request");
        }
        match route {
            Some(route) if route.protected && route.mode == Mode::Enforce => {
                Box::pin(protect(Arc::clone(&self.shared), settings, route, inner, (request, head)))
            }
            Some(route) if route.protected => {
                let passing = observing::pass(Arc::clone(&self.shared), settings, route, inner, request);
                Box::pin(while_held(head, passing))
            }
            other => {
                let why = if other.is_some() { "route" } else { "method" };
                Box::pin(while_held(head, pass(settings, inner, request, why)))
            }
        }
    }
}

/// Holds memory for a head until there is a response.
async fn while_held<T>(head: Option<Share>, passing: impl Future<Output = T>) -> T {
    let passed = passing.await;
    drop(head);
    passed
}

/// Passes a request through.
pub(crate) async fn pass<I, ReqBody, ResBody>(
    settings: Arc<Settings>,
    mut inner: I,
    request: Request<ReqBody>,
    why: &'static str,
) -> Answer<I, ResBody, ReqBody>
where
    I: Service<Request<ReqBody>, Response = Response<ResBody>>,
{
    observe::passed_through(why);
    let origin = origin_of(&settings, request.headers());
    let mut answer = inner.call(request).await?;
    let_read_if_refused(&settings, origin.as_ref(), &mut answer);
    Ok(answer.map(AnswerBody::passed))
}

/// The origin of a request, where it matters.
fn origin_of(settings: &Settings, headers: &HeaderMap) -> Option<HeaderValue> {
    settings.cors.as_ref().and_then(|_| headers.get(ORIGIN).cloned())
}

/// Whoever is behind may be hapax itself: what it refuses there, a page may read like any refusal.
fn let_read_if_refused<B>(settings: &Settings, origin: Option<&HeaderValue>, answer: &mut Response<B>) {
    if let Some(cors) = &settings.cors
        && answer.extensions().get::<Refused>().is_some()
    {
        cors.apply(origin, answer.headers_mut());
    }
}

async fn protect<S, I, ReqBody, ResBody>(
    shared: Arc<Shared<S>>,
    settings: Arc<Settings>,
    route: Arc<Route>,
    inner: I,
    (request, head): (Request<ReqBody>, Option<Share>),
) -> Answer<I, ResBody, ReqBody>
where
    S: Store + 'static,
    I: Service<Request<ReqBody>, Response = Response<ResBody>> + Send + 'static,
    I::Future: Send,
    I::Error: Send,
    ReqBody: Body<Data = Bytes> + From<Bytes> + Send + 'static,
    ReqBody::Error: Into<BoxError> + Send,
    ResBody: Body<Data = Bytes> + Send + 'static,
    ResBody::Error: Send,
{
    let arrived = Arrived::now(request.headers(), request.extensions());
    hapax_core::failpoint!(async "headers-read");
    let found = key::read(request.headers(), &settings.key_headers, &route.key_rules, clock::wall_ms());
    if matches!(found, Ok(None)) && !route.required {
        observe::unprotected();
        return pass(settings, inner, request, "no-key").await;
    }
    let (parts, body) = request.into_parts();
    let asked = Asked::of(&settings, &parts.headers, arrived.clone());
    let key = match found.map_err(|bad| Refusal::new(Problem::KeyMalformed, bad.to_string())) {
        Ok(Some(key)) => key,
        other => {
            let refusal = other.err().unwrap_or_else(|| key_missing(&settings));
            let refusal = read_request::after_body(refusal, &parts, body).await;
            return Ok(asked.refuse(&settings, None, refusal));
        }
    };
    let share = shared.budget.share(parts.extensions.get());
    let call = match prepare(&settings, &route, key, (parts, body, share), arrived).await {
        Ok(call) => Box::new(Call { head, ..call }),
        Err(refusal) => return Ok(asked.refuse(&settings, None, refusal)),
    };
    shared.unswept.check(shared.engine.is_swept());
    let at = claiming::address(&shared, &call);
    let patience = Patience::default();
    let settling =
        settle::settle(Arc::clone(&shared), Arc::clone(&settings), call, at.clone(), inner, patience.clone());
    let step = match patience.wait_for(Detached::new(settling, &shared.tasks)).await {
        Some(Step::Wait(waiting)) => settle::wait(&shared, &settings, &at, waiting).await,
        Some(step) => step,
        None => Step::Refuse(claiming::store_too_slow()),
    };
    Ok(match step {
        Step::Answer(mut answer) => {
            let_read_if_refused(&settings, asked.origin.as_ref(), &mut answer);
            answer
        }
        Step::Replay(answer) => {
            asked.arrived.replayed("replayed", at.id(), &route, answer.status());
            asked.replay(&settings, answer)
        }
        Step::Accepted(after) => {
            let answer = settle::accepted(after);
            asked.arrived.replayed("accepted", at.id(), &route, answer.status());
            asked.replay(&settings, answer)
        }
        Step::Refuse(refusal) => {
            settings.guard.saw(at.scope(), Saw::Refused(refusal.problem));
            asked.refuse(&settings, Some(&at), refusal)
        }
        Step::Wait(_) => asked.refuse(&settings, Some(&at), settle::in_progress(Duration::ZERO)),
    })
}

fn key_missing(settings: &Settings) -> Refusal {
    let name = settings.key_headers.first().map_or("Idempotency-Key", |name| name.as_str());
    let detail =
        format!("this request changes something and has no `{name}`; send a new random key with it, such as a UUID");
    Refusal::new(Problem::KeyMissing, detail)
}

/// Whose key it is, and the whole request.
async fn prepare<B>(
    settings: &Settings,
    route: &Arc<Route>,
    key: hapax_core::address::Key,
    (parts, body, share): (Parts, B, Share),
    arrived: Arrived,
) -> Result<Call, Refusal>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let scope = match settings.scopes.of(&parts).await {
        Ok(scope) => scope,
        Err(no_scope) => return Err(read_request::after_body(refusal_of(no_scope), &parts, body).await),
    };
    if let Some(age) = &route.request_age
        && let Err(refusal) = read_request::check_age(&parts.headers, age, clock::wall_ms())
    {
        return Err(read_request::after_body(refusal, &parts, body).await);
    }
    let body = read_request::body(&parts, body, route.request_bytes_max, share).await?;
    hapax_core::failpoint!(async "body-read");
    Ok(Call { parts, head: None, body, route: Arc::clone(route), scope, key, arrived })
}

pub(crate) fn refusal_of(no_scope: NoScope) -> Refusal {
    match no_scope {
        NoScope::Missing(detail) => Refusal::new(Problem::ScopeMissing, detail),
        NoScope::Unauthorized { challenge, detail } => {
            Refusal::new(Problem::ScopeMissing, detail).with_challenge(challenge)
        }
        NoScope::Unavailable(detail) => {
            Refusal::new(Problem::ScopeUnavailable, detail).with_retry_after(Duration::from_secs(1))
        }
    }
}

/// What an answer of the layer's own needs to know of its request.
pub(crate) struct Asked {
    origin: Option<HeaderValue>,
    arrived: Arrived,
}

impl Asked {
    pub(crate) fn of(settings: &Settings, headers: &HeaderMap, arrived: Arrived) -> Self {
        Self { origin: origin_of(settings, headers), arrived }
    }

    /// The log names the record as well, once it is known which one: the request's id is a label of the claim's only.
    pub(crate) fn refuse<B>(
        &self,
        settings: &Settings,
        at: Option<&Address>,
        refusal: Refusal,
    ) -> Response<AnswerBody<B>> {
        let (code, status) = (refusal.problem.code(), refusal.status.as_u16());
        observe::refused(code);
        let (request_id, trace_id) = (self.arrived.request_id(), self.arrived.trace_id());
        tracing::info!(
            target: log::REFUSED,
            code,
            status,
            request_id,
            trace_id,
            id = at.map(|at| tracing::field::display(at.id())),
            "refused"
        );
        self.replay(settings, refusal.into_response(request_id))
    }

    fn replay<B>(&self, settings: &Settings, answer: Response<Bytes>) -> Response<AnswerBody<B>> {
        let mut answer = answer.map(AnswerBody::whole);
        if let Some(cors) = &settings.cors {
            cors.apply(self.origin.as_ref(), answer.headers_mut());
        }
        answer
    }
}
