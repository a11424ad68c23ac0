//! One connection, from its handshake to its end, and each request on it.

use std::convert::Infallible;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use hapax::http::{BodyUnread, Client, Full, Occupancy, Occupied};
use http::header::{CONNECTION, CONTENT_LENGTH};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body as HttpBody;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::{HttpService, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::{Accept, TlsAcceptor};
use tower_service::Service;

use super::guarded::Guarded;
use super::reply::{Open, Reply};
use super::shared::Shared;
use super::shutdown::Shutdown;
use super::{ListenOptions, Protocol, peer};
use crate::body::Patience;
use crate::forwarding::Sender;
use crate::framing;
use crate::headers::{self, Wish};
use crate::pace::Pace;
use crate::places::Place;
use crate::problem::{self, Problem};
use crate::request_id::Named;
use crate::{Body, Peer};

/// What `Connection` says where nothing more is read.
const CLOSE: HeaderValue = HeaderValue::from_static("close");
/// A client that does not answer this is gone, even if its connection is not.
const PING_INTERVAL: Duration = Duration::from_secs(20);
/// For saying that a connection ends, to a client that is idle.
const LAST_WORD_TIME: Duration = Duration::from_secs(1);
/// For the same, to a client whose place was given to somebody else.
const SENT_AWAY_TIME: Duration = Duration::from_millis(100);
/// How often it is looked whether an HTTP/2 connection has nothing to do. Its requests are tasks of their own, and do not tell.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Where there is no room for a request, how often and how many times it is looked again: connections that were sent away
/// are gone by then.
const ROOM_LOOK_EVERY: Duration = Duration::from_millis(50);
const ROOM_LOOKS: usize = 6;
/// What one HTTP/2 stream may have waiting for its client.
const SEND_BUFFER_BYTES: usize = 64 * 1024;

/// What an HTTP/2 client may send of one body before somebody reads it.
const STREAM_WINDOW_BYTES: u32 = 256 * 1024;
/// And of all bodies on a connection together: it is in memory, and in nobody's budget.
const CONNECTION_WINDOW_BYTES: u32 = 512 * 1024;

/// How many fields hyper reads unless told otherwise.
const FIELDS_OF_HYPER: usize = 100;
/// How large hyper's buffer for reading may become, unless a head may be larger. A connection whose body nobody reads at the
/// moment holds no more.
const BUFFER_BYTES: usize = 64 * 1024;

/// An extension of requests that ask to become a WebSocket, and may: a tunnel keeps its place among the connections, and
/// ends when the listener drains.
#[derive(Clone)]
pub(crate) struct Lodging {
    shared: Arc<Shared>,
    shutdown: Shutdown,
    /// How long a tunnel may be without a byte.
    pub(crate) idle_time: Duration,
}

impl Lodging {
    /// The listener drains, or the place was given to somebody else.
    pub(crate) async fn ends(&self) {
        tokio::select! {
            () = self.shutdown.drained() => {}
            () = self.place().sent_away() => {}
        }
    }

    pub(crate) fn place(&self) -> &Place {
        &self.shared.place
    }
}

/// What all connections of a listener have in common.
pub(super) struct Terms {
    pub(super) options: ListenOptions,
    pub(super) tls: Option<TlsAcceptor>,
    pub(super) shutdown: Shutdown,
    /// Requests at one time, on all connections.
    pub(super) requests: Arc<Occupancy>,
}

/// Serves one connection; its place is free again when it ends.
pub(super) async fn run<S, B>(terms: Arc<Terms>, service: S, stream: TcpStream, addr: SocketAddr, place: Place)
where
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send + 'static,
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    // Without it answers are only later.
    let _ = stream.set_nodelay(true);
    let shared = Shared::new(place);
    // In boxes, because the future of an encrypted connection is several times as large as the other.
    match &terms.tls {
        None => Box::pin(talk(&terms, service, stream, Guest { peer: peer(addr, false), shared }, None)).await,
        Some(tls) => {
            let guest = Guest { peer: peer(addr, true), shared };
            Box::pin(talk_encrypted(&terms, service, tls.accept(stream), guest)).await;
        }
    }
}

async fn talk_encrypted<S, B>(terms: &Arc<Terms>, service: S, handshake: Accept<TcpStream>, guest: Guest)
where
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send + 'static,
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let shaken = tokio::select! {
        biased;
        shaken = timeout(terms.options.head_time, handshake) => shaken,
        () = guest.shared.place.sent_away() => return,
    };
    if let Ok(Ok(stream)) = shaken {
        let multiplexed = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        let protocol = if multiplexed { Protocol::Http2 } else { Protocol::Http1 };
        talk(terms, service, stream, guest, Some(protocol)).await;
    }
}

/// Who is connected, and the place taken.
struct Guest {
    peer: Peer,
    shared: Arc<Shared>,
}

/// `known` is what was agreed on during the handshake.
async fn talk<T, S, B>(terms: &Arc<Terms>, service: S, stream: T, guest: Guest, known: Option<Protocol>)
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send + 'static,
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let Guest { peer, shared } = guest;
    let mut io = Guarded::new(stream, Arc::clone(&shared), &terms.options);
    let protocol = match known {
        Some(protocol) => protocol,
        None => match first_words(terms, &mut io, &shared.place).await {
            Some(protocol) => protocol,
            None => return,
        },
    };
    let sender = Sender::new(peer, &terms.options.trusted_peers);
    let context = Context { terms: Arc::clone(terms), shared: Arc::clone(&shared), peer, sender, protocol };
    let context = Arc::new(context);
    let answering = service_fn(move |request| answer(Arc::clone(&context), service.clone(), request));
    let io = if protocol == Protocol::Http2 { io.raw() } else { io };
    match protocol {
        Protocol::Http1 => speak_http1(terms, io, answering, &shared).await,
        Protocol::Http2 => {
            let served = http2(&terms.options).serve_connection(TokioIo::new(io), answering);
            // The errors left are those of a client that went away.
            let end = http2::Connection::graceful_shutdown;
            let _ = Box::pin(until_done(served, terms, &shared, end)).await;
        }
    }
}

/// Serves HTTP/1. hyper holds 16 KiB of buffers for a connection, also for one that only waits; so after a moment without a
/// request the connection is taken apart, and put together again when the next request begins.
async fn speak_http1<T, S, B>(terms: &Terms, mut io: Guarded<T>, mut service: S, shared: &Shared)
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: HttpService<Incoming, ResBody = B>,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    B: HttpBody<Data = Bytes> + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    loop {
        let served = http1(&terms.options).serve_connection(TokioIo::new(io), service).with_upgrades();
        let Some(parts) = Box::pin(until_idle(served, terms, shared)).await else { return };
        (io, service) = (parts.io.into_inner(), parts.service);
        io.take_back(&parts.read_buf);
        drop(parts.read_buf);
        shared.place.wait_since(Instant::now());
        let goes_on = tokio::select! {
            biased;
            begun = io.rest() => begun,
            () = terms.shutdown.drained() => false,
            () = shared.place.sent_away() => false,
        };
        if !goes_on {
            // Whoever does not take a last word does without.
            let _ = timeout(LAST_WORD_TIME, io.shutdown()).await;
            return;
        }
    }
}

/// A connection without a word is idle.
async fn first_words<T: AsyncRead + AsyncWrite + Unpin>(
    terms: &Terms,
    io: &mut Guarded<T>,
    place: &Place,
) -> Option<Protocol> {
    tokio::select! {
        biased;
        detected = timeout(terms.options.idle_time, io.detect()) => detected.ok()?.ok()?,
        () = terms.shutdown.drained() => None,
        () = place.sent_away() => None,
    }
}

fn http1(options: &ListenOptions) -> http1::Builder {
    let mut builder = http1::Builder::new();
    // The connection itself keeps the times.
    builder.header_read_timeout(None);
    // And the limits of a head; hyper's must not be the smaller ones. Up to its own default hyper reads fields on the
    // stack, and with any other number on the heap, so it is told one only where more are asked for.
    if options.fields_max > FIELDS_OF_HYPER {
        builder.max_headers(options.fields_max);
    }
    builder.max_buf_size(options.head_bytes_max.saturating_add(1).max(BUFFER_BYTES));
    builder
}

/// In builds with debug assertions, h2 may panic in the task of a connection that is dropped with open streams, as by a client
/// that hangs up (`Counts::drop`, hyperium/h2#907): that connection was over, and releases do not have the assertion.
fn http2(options: &ListenOptions) -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(options.streams_max)
        .max_pending_accept_reset_streams(options.resets_max)
        .max_header_list_size(u32::try_from(options.head_bytes_max).unwrap_or(u32::MAX))
        .max_send_buf_size(SEND_BUFFER_BYTES)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .keep_alive_interval(PING_INTERVAL);
    builder
}

/// Runs an HTTP/2 connection; when the listener drains, or the place was given to somebody else, `end` tells it to finish.
async fn until_done<F: Future>(
    served: F,
    terms: &Terms,
    shared: &Shared,
    end: impl Fn(Pin<&mut F>),
) -> Option<F::Output> {
    let (mut served, mut timer, mut drain) = (pin!(served), pin!(sleep(LOOK_EVERY)), terms.shutdown.watch());
    let (mut ending, mut sent_away) = (false, false);
    let mut last = Look::new(shared, terms.options.write_rate_min);
    poll_fn(|cx| {
        if !ending && drain.poll(cx).is_ready() {
            ending = true;
            end(served.as_mut());
        }
        if let Poll::Ready(output) = served.as_mut().poll(cx) {
            return Poll::Ready(Some(output));
        }
        // Requests that it still has are finished, if they do not wait for their client themselves.
        if !sent_away && shared.place.is_sent_away(cx) {
            sent_away = true;
            timer.as_mut().reset(Instant::now() + SENT_AWAY_TIME);
            end(served.as_mut());
            if let Poll::Ready(output) = served.as_mut().poll(cx) {
                return Poll::Ready(Some(output));
            }
        }
        let is_looked_after = |shared: &Shared| sent_away || !shared.place.is_waiting() || shared.is_busy();
        while is_looked_after(shared) && timer.as_mut().poll(cx).is_ready() {
            match last.next(shared) {
                Waits::Client | Waits::Idle if sent_away => return Poll::Ready(None),
                Waits::Client => shared.wait_for_client(),
                Waits::Idle => {}
                Waits::No if shared.is_busy() => shared.place.resume(),
                Waits::No => {}
            }
            timer.as_mut().reset(Instant::now() + LOOK_EVERY);
        }
        Poll::Pending
    })
    .await
}

/// What an HTTP/2 connection waits for.
enum Waits {
    /// For its client, since the last look at least.
    Client,
    /// For its client since less than that.
    Idle,
    No,
}

/// A look at an HTTP/2 connection.
struct Look {
    at: Instant,
    answered: u64,
    taken: u64,
    rate_min: u64,
}

impl Look {
    fn new(shared: &Shared, rate_min: Option<u32>) -> Self {
        let (answered, taken) = (shared.answered(), shared.taken());
        Self { at: Instant::now(), answered, taken, rate_min: rate_min.unwrap_or(0).into() }
    }

    /// Looks again. A client that has an answer to take on every stream and takes next to nothing is waited for, whatever
    /// else it asks for meanwhile.
    fn next(&mut self, shared: &Shared) -> Waits {
        let now = Self { at: Instant::now(), answered: shared.answered(), taken: shared.taken(), ..*self };
        let millis = u64::try_from((now.at - self.at).as_millis()).unwrap_or(u64::MAX);
        let least = (self.rate_min.saturating_mul(millis) / 1000).max(1);
        let is_held_up = shared.is_up_to_client() && now.taken - self.taken < least;
        let is_quiet = now.answered == self.answered;
        *self = now;
        match shared.is_waiting() {
            _ if is_held_up => Waits::Client,
            true if is_quiet => Waits::Client,
            true => Waits::Idle,
            false => Waits::No,
        }
    }
}

/// The same for HTTP/1, until the connection is done (none), or has had nothing to do for a moment.
async fn until_idle<I, S, B>(
    mut served: http1::UpgradeableConnection<I, S>,
    terms: &Terms,
    shared: &Shared,
) -> Option<http1::Parts<I, S>>
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
    S: HttpService<Incoming, ResBody = B>,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    B: HttpBody<Data = Bytes> + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (mut ending, mut answered, mut armed) = (false, shared.answered(), false);
    let (mut drain, rest_after) = (terms.shutdown.watch(), terms.options.rest_after);
    let mut timer = pin!(sleep(rest_after));
    let is_idle = poll_fn(|cx| {
        if !ending && drain.poll(cx).is_ready() {
            ending = true;
            Pin::new(&mut served).graceful_shutdown();
        }
        // The errors left are those of a client that went away.
        if Pin::new(&mut served).poll(cx).is_ready() {
            return Poll::Ready(false);
        }
        // A timer that is set a few times a second costs a busy connection nothing.
        while (!armed || timer.is_elapsed()) && shared.is_between_requests() {
            armed = timer.as_mut().poll(cx).is_pending();
            if !armed {
                if answered == shared.answered() && !ending {
                    if shared.is_quiet() {
                        return Poll::Ready(true);
                    }
                    shared.place.wait_since(Instant::now());
                }
                answered = shared.answered();
                timer.as_mut().reset(Instant::now() + rest_after);
            }
        }
        if shared.place.is_sent_away(cx) {
            if shared.is_waiting() {
                return Poll::Ready(false);
            }
            // A request came in the last moment: it is finished.
            if !ending {
                ending = true;
                Pin::new(&mut served).graceful_shutdown();
            }
        }
        Poll::Pending
    })
    .await;
    if is_idle { served.into_parts() } else { None }
}

/// What is known of a request before it is read.
struct Context {
    terms: Arc<Terms>,
    shared: Arc<Shared>,
    peer: Peer,
    sender: Sender,
    protocol: Protocol,
}

async fn answer<S, B>(
    context: Arc<Context>,
    service: S,
    request: Request<Incoming>,
) -> Result<Response<Reply<B>>, Infallible>
where
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible>,
{
    let mut open = Open::new(&context.shared);
    let field = &context.terms.options.request_id_header;
    let named = Named::of(request.headers(), field);
    let admitted = match context.admit(request, &named) {
        Ok(request) => context.make_room(request.extensions().get().copied()).await.map(|room| (request, room)),
        Err(problem) => Err(problem),
    };
    let mut response = match admitted {
        Ok((request, room)) => {
            open.hold(room);
            let Ok(mut response) = call(service, request).await;
            if context.protocol == Protocol::Http1 && response.extensions().get::<BodyUnread>().is_some() {
                response.headers_mut().insert(CONNECTION, CLOSE);
            }
            response.map(|body| Reply::service(body, open))
        }
        Err(problem) => context.refusal(&problem, &named).map(|body| Reply::refusal(body, open)),
    };
    // This request's, whatever an upstream says, or said to the request whose answer is replayed.
    response.headers_mut().insert(field, named.value);
    context.shared.answer(response.status() == StatusCode::SWITCHING_PROTOCOLS);
    if context.shared.is_undecided() {
        // The connection waits for this answer before it reads on, and nothing else may wake it: we are in its task.
        poll_fn(|cx| {
            cx.waker().wake_by_ref();
            Poll::Ready(())
        })
        .await;
    }
    Ok(response)
}

impl Context {
    /// The request as the service gets it.
    fn admit(&self, request: Request<Incoming>, named: &Named) -> Result<Request<Body>, Problem> {
        if self.protocol == Protocol::Http1
            && let Some(problem) = self.shared.call()
        {
            return Err(problem);
        }
        let options = &self.terms.options;
        let (mut parts, incoming) = request.into_parts();
        if parts.method == Method::CONNECT {
            return Err(problem::NO_TUNNELS);
        }
        if is_trace(&parts.method) {
            return Err(problem::NO_TRACE);
        }
        if self.protocol == Protocol::Http2 {
            check_as_http1(&parts)?;
        }
        if parts.headers.len() > options.fields_max {
            return Err(problem::HEAD_TOO_LARGE);
        }
        if let Some(client) = self.sender.client(&parts.headers, &options.trusted_peers) {
            parts.extensions.insert(client);
        }
        if headers::arrive(&mut parts, &self.sender, &options.relied_on)? == Wish::WebSocket {
            parts.extensions.insert(self.lodging());
        }
        parts.extensions.insert(self.peer);
        parts.headers.insert(&options.request_id_header, named.value.clone());
        parts.extensions.insert(named.id.clone());
        let patience = Patience::Paced(Pace::new(options.body_time, options.body_rate_min));
        let body = Body::received(incoming, self.protocol == Protocol::Http2, patience).with_place(&self.shared);
        let body = body.with_trailers_checked(&options.relied_on);
        Ok(Request::from_parts(parts, body))
    }

    /// Room among the requests at one time. HTTP/1 has one on each connection; by HTTP/2 there are as many in all.
    async fn make_room(&self, client: Option<Client>) -> Result<Occupied, Problem> {
        let ListenOptions { connections_max: max, connections_per_client_max: client_max, .. } = self.terms.options;
        let mut room = self.terms.requests.take(client, max, client_max);
        for _ in 0..ROOM_LOOKS {
            if !matches!(room, Err(Full::All)) {
                break;
            }
            // What waits for its client gives way, and takes a moment to go.
            self.shared.place.relieve();
            sleep(ROOM_LOOK_EVERY).await;
            room = self.terms.requests.take(client, max, client_max);
        }
        room.map_err(|full| {
            if self.terms.requests.may_warn() {
                warn_of_too_many(full, max, client_max);
            }
            problem::TOO_MANY_REQUESTS_AT_A_TIME
        })
    }

    /// What a tunnel needs to outlive its connection.
    fn lodging(&self) -> Lodging {
        let (shared, shutdown) = (Arc::clone(&self.shared), self.terms.shutdown.clone());
        Lodging { shared, shutdown, idle_time: self.terms.options.tunnel_idle_time }
    }

    /// After a refusal nobody knows what the client takes the rest for.
    fn refusal(&self, problem: &Problem, named: &Named) -> Response<Body> {
        let request_id = &*named.id.0;
        problem.tell(request_id);
        let mut response = problem.response_to(request_id).map(Body::from);
        if self.protocol == Protocol::Http1 {
            response.headers_mut().insert(CONNECTION, CLOSE);
        }
        response
    }
}

/// Tells the operator.
fn warn_of_too_many(full: Full, max: usize, client_max: usize) {
    match full {
        Full::All => tracing::warn!(
            max,
            "as many requests are under way as there may be connections, and new ones are refused; find out why the \
             upstream is slow, or raise server.connections_max"
        ),
        Full::Client(client) => tracing::warn!(
            %client,
            max = client_max,
            "one client has as many requests under way as it may have connections, and its new ones are refused; if it is \
             a proxy with many callers behind it, add it to server.trusted_peers"
        ),
    }
}

/// TRACE, and what IIS calls it; in any case, as several servers take it.
fn is_trace(method: &Method) -> bool {
    method.as_str().eq_ignore_ascii_case("TRACE") || method.as_str().eq_ignore_ascii_case("TRACK")
}

/// What by HTTP/1 is never let through.
fn check_as_http1(parts: &http::request::Parts) -> Result<(), Problem> {
    let mut lengths = parts.headers.get_all(CONTENT_LENGTH).iter();
    if let Some(length) = lengths.next() {
        framing::check_length(length.as_bytes())?;
    }
    if lengths.next().is_some() {
        return Err(problem::LENGTH_TWICE);
    }
    let target = parts.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str).as_bytes();
    // Without a path at all, routes would be looked up by nothing, and the upstream asked for the root.
    let is_clean = target.iter().all(u8::is_ascii_graphic) && !parts.uri.path().is_empty();
    if is_clean && framing::is_target(target, parts.method == Method::OPTIONS) {
        Ok(())
    } else {
        Err(framing::BAD_TARGET)
    }
}

async fn call<S: Service<Request<Body>>>(mut service: S, request: Request<Body>) -> Result<S::Response, S::Error> {
    poll_fn(|cx| service.poll_ready(cx)).await?;
    service.call(request).await
}
