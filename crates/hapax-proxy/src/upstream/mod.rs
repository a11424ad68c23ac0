//! Sends a request to the upstream, once, and says what came of it.
//!
//! A request goes out on a connection that was checked a moment before. Only a request that hyper hands back untouched may
//! go to another connection; of every other one a byte may have left, and it is never sent again. A failure becomes a
//! response with a [`Failure`] among its extensions: the layer that keeps the books reads it there.
//!
//! A request may carry a [`SendBefore`]: it is looked at where the first byte is written, however long connecting, a TLS
//! handshake or the wait for a stream took. When it is over, nothing is sent.

mod answer;
mod connect;
mod download;
mod exchange;
mod gate;
mod link;
mod multiplexed;
mod pool;
mod reread;
mod room;
mod tunnel;
mod upload;
mod wire;

use std::convert::Infallible;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hapax::http::{BodyUnread, Claim, SendBefore};
use http::header::{CONNECTION, CONTENT_LENGTH, EXPECT, HOST, TE, TRANSFER_ENCODING, UPGRADE};
use http::uri::{Authority, Scheme};
use http::{HeaderValue, Request, Response, StatusCode, Uri, Version};
use http_body::Body as _;
use hyper::upgrade::OnUpgrade;
use rustls::ClientConfig;
use tower_service::Service;

pub(super) use answer::Answer;

use super::listen::Lodging;
use super::problem::{self, Problem};
use super::{Body, Failure};
use super::{header_map, headers};
use connect::{Connected, connect};
use exchange::{Connection, HELD_UP, Lost};
use multiplexed::Multiplexed;
use pool::Pool;

/// Connections that turn out to be closed just when they are used; after so many, a new one is made.
const POOLED_ATTEMPTS_MAX: usize = 3;

/// How to reach the upstream.
#[derive(Clone)]
pub struct UpstreamOptions {
    /// For the name, the socket and TLS together; over HTTP/2, for a connection and a free stream.
    pub connect_timeout: Duration,
    /// From the beginning of a request to the end of its answer; over HTTP/2, from when there is a stream for it.
    pub answer_timeout: Duration,
    /// How long a connection may wait for the next request: less than the upstream lets it (Node: 5 s). Zero: every request
    /// has a connection of its own.
    pub idle_timeout: Duration,
    /// How many connections may wait.
    pub idle_max: usize,
    /// Speak HTTP/2 without TLS.
    pub h2c: bool,
    /// Send the upstream's own name as `Host`, not the one the client sent.
    pub host_of_upstream: bool,
    /// Whom to trust, for an upstream with `https`.
    pub tls: Option<Arc<ClientConfig>>,
}

impl Default for UpstreamOptions {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(5),
            answer_timeout: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(1),
            idle_max: 512,
            h2c: false,
            host_of_upstream: false,
            tls: None,
        }
    }
}

impl fmt::Debug for UpstreamOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpstreamOptions").field("answer_timeout", &self.answer_timeout).finish_non_exhaustive()
    }
}

/// Why a URL cannot be an upstream.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadUpstream {
    /// Neither `http` nor `https`.
    #[error("the upstream's URL begins with neither http:// nor https://")]
    Scheme,
    /// No host.
    #[error("the upstream's URL names no host")]
    Host,
    /// More than scheme, host and port.
    #[error("the upstream's URL has a path; requests keep their own, so leave it out")]
    Path,
    /// `https` without trust.
    #[error("the upstream's URL begins with https://, but it was not said which certificates to trust")]
    Trust,
}

/// Where the upstream is.
struct Target {
    /// For TLS.
    host: String,
    /// For the resolver: without brackets.
    dial: String,
    port: u16,
    scheme: Scheme,
    authority: Authority,
    /// What the upstream calls itself.
    host_field: HeaderValue,
    tls: Option<Arc<ClientConfig>>,
}

/// The upstream, as a service.
#[derive(Clone)]
pub struct Upstream {
    inner: Arc<Inner>,
}

struct Inner {
    target: Target,
    /// Where requests go that may leave HTTP/1.1: never by HTTP/2.
    target_http1: Target,
    options: UpstreamOptions,
    pool: Arc<Pool>,
    multiplexed: Multiplexed,
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upstream").field("authority", &self.inner.target.authority).finish_non_exhaustive()
    }
}

impl Upstream {
    /// An upstream at this URL. Nothing is connected yet.
    pub fn new(url: &Uri, options: UpstreamOptions) -> Result<Self, BadUpstream> {
        let target = Target::new(url, options.tls.clone())?;
        let only_http1 = options.tls.as_ref().map(|tls| {
            let mut tls = ClientConfig::clone(tls);
            tls.alpn_protocols = vec![b"http/1.1".to_vec()];
            Arc::new(tls)
        });
        let target_http1 = Target::new(url, only_http1)?;
        let pool = Pool::new(options.idle_timeout, options.idle_max);
        let multiplexed = Multiplexed::new(options.h2c);
        Ok(Self { inner: Arc::new(Inner { target, target_http1, options, pool, multiplexed }) })
    }

    /// Sends a request, at most once. Without a box around it, unlike [`call`](Service::call).
    pub async fn send(&self, mut request: Request<Body>) -> Response<Body> {
        // What is said in a tunnel cannot be replayed, so a request that is recorded stays HTTP.
        let lodging =
            request.extensions_mut().remove::<Lodging>().filter(|_| request.extensions().get::<Claim>().is_none());
        let client = lodging.and_then(|lodging| Some((request.extensions_mut().remove::<OnUpgrade>()?, lodging)));
        // We answered it ourselves, when the body was wanted.
        header_map::retain(request.headers_mut(), |name| name != EXPECT);
        self.inner.prepare(&mut request, client.is_some());
        let mut slot = Some(request);
        let exchanged = match client {
            Some((client, lodging)) => Box::pin(self.inner.open_tunnel(&mut slot, client, lodging)).await,
            None => self.inner.exchange(&mut slot).await,
        };
        exchanged.unwrap_or_else(|lost| failed(&lost))
    }
}

impl Service<Request<Body>> for Upstream {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let upstream = self.clone();
        Box::pin(async move { Ok(upstream.send(request).await) })
    }
}

impl Target {
    fn new(url: &Uri, tls: Option<Arc<ClientConfig>>) -> Result<Self, BadUpstream> {
        let scheme = url.scheme().filter(|scheme| [Scheme::HTTP, Scheme::HTTPS].contains(scheme));
        let scheme = scheme.cloned().ok_or(BadUpstream::Scheme)?;
        let authority = url.authority().filter(|authority| !authority.host().is_empty()).ok_or(BadUpstream::Host)?;
        if url.path_and_query().is_some_and(|path| path != "/") {
            return Err(BadUpstream::Path);
        }
        let encrypted = scheme == Scheme::HTTPS;
        if encrypted && tls.is_none() {
            return Err(BadUpstream::Trust);
        }
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        Ok(Self {
            dial: host.clone(),
            host,
            port: authority.port_u16().unwrap_or(if encrypted { 443 } else { 80 }),
            scheme,
            host_field: HeaderValue::from_str(authority.as_str()).map_err(|_| BadUpstream::Host)?,
            authority: authority.clone(),
            tls: tls.filter(|_| encrypted),
        })
    }
}

impl Inner {
    /// The request as HTTP/1.1 has it.
    fn prepare(&self, request: &mut Request<Body>, websocket: bool) {
        *request.version_mut() = Version::HTTP_11;
        if request.uri().authority().is_some() {
            *request.uri_mut() = headers::origin_form(request.uri());
        }
        // Of a GET, hyper would drop a body whose length it does not know.
        let chunked = request.body().size_hint().exact().is_none();
        let headers = request.headers_mut();
        if chunked && !headers.contains_key(CONTENT_LENGTH) {
            headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        if self.options.host_of_upstream || !headers.contains_key(HOST) {
            headers.insert(HOST, self.target.host_field.clone());
        }
        if websocket {
            headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
            return;
        }
        header_map::retain(headers, |name| name != UPGRADE);
        if headers.contains_key(TE) {
            headers.insert(CONNECTION, HeaderValue::from_static("te"));
        }
    }

    /// What is rare is in boxes, to keep the future of the usual way small.
    async fn exchange(&self, slot: &mut Option<Request<Body>>) -> Result<Response<Body>, Lost> {
        hapax_core::failpoint!(async "before-connect");
        if self.multiplexed.is_expected() {
            return Box::pin(self.multiplexed.send(slot, &self.target, &self.options)).await;
        }
        for _ in 0..POOLED_ATTEMPTS_MAX {
            let Some(connection) = self.pool.take() else { break };
            match self.exchange_on(connection, slot).await {
                Err(Lost::Unsent) => {}
                other => return other,
            }
        }
        Box::pin(self.exchange_on_new(slot)).await
    }

    async fn exchange_on_new(&self, slot: &mut Option<Request<Body>>) -> Result<Response<Body>, Lost> {
        let before = slot.as_ref().and_then(|request| request.extensions().get::<SendBefore>());
        if before.is_some_and(SendBefore::is_over) {
            return Err(Lost::NothingSent(HELD_UP));
        }
        match connect(&self.target, &self.options).await.map_err(Lost::NothingSent)? {
            Connected::Http1(connection) => self.exchange_on(connection, slot).await,
            Connected::Http2(link) => self.multiplexed.begin(link, slot, &self.target, &self.options).await,
        }
    }

    async fn exchange_on(
        &self,
        mut connection: Box<Connection>,
        slot: &mut Option<Request<Body>>,
    ) -> Result<Response<Body>, Lost> {
        let response = connection.send(slot).await?;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return Err(Lost::Doubt("the upstream left HTTP without being asked"));
        }
        let (mut parts, incoming) = response.into_parts();
        headers::leave(&mut parts);
        let answer = Answer::new(incoming, connection, Arc::clone(&self.pool));
        let mut answer = Some(answer);
        let body =
            poll_fn(|cx| Poll::Ready(answer.take().map_or_else(Body::empty, |answer| answer.into_body(cx)))).await;
        Ok(Response::from_parts(parts, body))
    }

    /// On a connection of its own; whatever else the upstream answers, it is passed on.
    async fn open_tunnel(
        &self,
        slot: &mut Option<Request<Body>>,
        client: OnUpgrade,
        lodging: Lodging,
    ) -> Result<Response<Body>, Lost> {
        if self.options.h2c {
            return Err(Lost::NothingSent("the upstream speaks HTTP/2 only, which has no such tunnels"));
        }
        let connected = connect(&self.target_http1, &self.options).await.map_err(Lost::NothingSent)?;
        let Connected::Http1(mut connection) = connected else {
            return Err(Lost::NothingSent("the upstream speaks HTTP/2 only, which has no such tunnels"));
        };
        let response = connection.send(slot).await?;
        let (mut parts, incoming) = response.into_parts();
        headers::leave(&mut parts);
        if parts.status != StatusCode::SWITCHING_PROTOCOLS {
            let body = Body::answer(Box::new(Answer::new(incoming, connection, Arc::clone(&self.pool))));
            return Ok(Response::from_parts(parts, body));
        }
        parts.headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        parts.headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        tokio::spawn(tunnel::run(client, connection, lodging));
        Ok(Response::from_parts(parts, Body::empty()))
    }
}

/// What the client is told, and beside it what the layer is told.
fn failed(lost: &Lost) -> Response<Body> {
    let (problem, failure) = meaning(lost);
    let mut response = problem.response().map(Body::from);
    response.extensions_mut().insert(failure);
    if matches!(lost, Lost::Body { .. }) {
        response.extensions_mut().insert(BodyUnread);
        // For whoever knows the request's id.
        response.extensions_mut().insert(problem);
    }
    response
}

fn meaning(lost: &Lost) -> (Problem, Failure) {
    match lost {
        Lost::Unsent => {
            let why = "the upstream closed the connection before the request";
            (problem::UPSTREAM_UNREACHABLE, Failure::NothingSent { why })
        }
        Lost::NothingSent(why) => (problem::UPSTREAM_UNREACHABLE, Failure::NothingSent { why }),
        Lost::Doubt(why) => (problem::OUTCOME_UNKNOWN, Failure::Doubt { why }),
        Lost::Body { error, untouched } => {
            let why = "the client's body failed";
            let failure = if *untouched { Failure::NothingSent { why } } else { Failure::Doubt { why } };
            (error.as_problem(), failure)
        }
    }
}
