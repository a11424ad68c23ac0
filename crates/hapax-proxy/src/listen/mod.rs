//! Accepts connections and serves requests on them, within limits that have names.
//!
//! HTTP/1.1 and HTTP/2, in the clear or over TLS; without TLS, HTTP/2 is recognised by its first bytes. A client that is
//! slow holds up nobody but itself, and not for ever. What is in a request is checked by `framing` and
//! [`headers`](super::headers); what is done with it is the service's business.

mod connection;
mod guarded;
mod reply;
mod shared;
mod shutdown;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hapax::http::Client;
use http::{HeaderName, Request, Response};
use http_body::Body as HttpBody;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tower_service::Service;

pub use shutdown::Shutdown;

use super::framing::Limits;
use super::headers::ReliedOn;
use super::{Body, Peer};
use crate::descriptors;
use crate::network::Network;
use crate::places::{Place, Places};
use connection::Terms;

pub(super) use connection::Lodging;
pub(super) use shared::{Shared, Starving};

/// How long to pause when the system has no more sockets for us.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// While that lasts, it is logged once in so many times.
const ACCEPT_FAILURES_PER_LINE: u64 = 100;
/// A target longer than this is not a target; nginx draws the line there, too.
const REQUEST_LINE_BYTES_MAX: usize = 8 * 1024;
/// No honest request has more fields, and a map of fields does not hold many times more.
const FIELDS_AT_MOST: usize = 10_000;

/// The limits of a listener.
#[derive(Debug, Clone)]
pub struct ListenOptions {
    /// Connections at one time, and requests on all of them together. When all places are taken, the connection that has
    /// waited longest for its client gives way; where none waits, further ones wait to be accepted.
    pub connections_max: usize,
    /// How many of them from one address (IPv6: from one /64 network); trusted peers may have all connections, and requests
    /// count for the clients that they name.
    pub connections_per_client_max: usize,
    /// Header fields of one request; never more than 10,000.
    pub fields_max: usize,
    /// Bytes of one request's head.
    pub head_bytes_max: usize,
    /// From the first byte of a head to its last, and for the TLS handshake.
    pub head_time: Duration,
    /// How long a request's body may make no progress, and how far it may fall behind `body_rate_min`.
    pub body_time: Duration,
    /// Bytes per second that a request's body must have on the average; none: it may come as slowly as it likes.
    pub body_rate_min: Option<u32>,
    /// How long a client may take nothing of an answer, and how far it may fall behind `write_rate_min`.
    pub write_time: Duration,
    /// Bytes per second that a client must take of an answer on the average, while there is something to take.
    pub write_rate_min: Option<u32>,
    /// How long a tunnel may be without a byte in either direction.
    pub tunnel_idle_time: Duration,
    /// How long a connection may be without a request.
    pub idle_time: Duration,
    /// An HTTP/1 connection that had nothing to do from one look to the next, this far apart, gives its buffers back.
    pub rest_after: Duration,
    /// Requests at one time on an HTTP/2 connection.
    pub streams_max: u32,
    /// Streams that an HTTP/2 client may reset before we have looked at them.
    pub resets_max: usize,
    /// Peers that may say who is behind them.
    pub trusted_peers: Vec<Network>,
    /// Fields that a client cannot have removed by naming them in `Connection`, beside those that are always safe from it.
    pub relied_on: ReliedOn,
    /// The field that holds a request's id, in requests and responses.
    pub request_id_header: HeaderName,
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self {
            connections_max: 10_000,
            connections_per_client_max: 10_000,
            fields_max: 100,
            head_bytes_max: 32 * 1024,
            head_time: Duration::from_secs(10),
            body_time: Duration::from_secs(30),
            body_rate_min: Some(500),
            write_time: Duration::from_secs(60),
            write_rate_min: Some(500),
            tunnel_idle_time: Duration::from_secs(10 * 60),
            idle_time: Duration::from_secs(75),
            rest_after: Duration::from_millis(250),
            streams_max: 200,
            resets_max: 20,
            trusted_peers: Vec::new(),
            relied_on: ReliedOn::default(),
            request_id_header: HeaderName::from_static("x-request-id"),
        }
    }
}

impl ListenOptions {
    pub(super) fn head_limits(&self) -> Limits {
        Limits {
            fields_max: self.fields_max,
            bytes_max: self.head_bytes_max,
            line_bytes_max: REQUEST_LINE_BYTES_MAX.min(self.head_bytes_max),
        }
    }
}

/// What a client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Http1,
    Http2,
}

/// Serves requests until `shutdown` says so, and then until all are done or abandoned.
pub async fn serve<S, B>(
    listener: TcpListener,
    tls: Option<Arc<ServerConfig>>,
    options: ListenOptions,
    service: S,
    shutdown: Shutdown,
) where
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send + 'static,
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let options = ListenOptions { fields_max: options.fields_max.min(FIELDS_AT_MOST), ..options };
    let places = Places::new(options.connections_max, options.connections_per_client_max);
    let (tls, requests) = (tls.map(TlsAcceptor::from), Arc::default());
    let terms = Arc::new(Terms { options, tls, shutdown: shutdown.clone(), requests });
    let mut open = JoinSet::new();
    // Kept over the turns of the loop: it may hold a connection that waits for a place.
    let mut accepting = Box::pin(accept(&listener, &places, &terms.options));
    loop {
        tokio::select! {
            biased;
            () = shutdown.drained() => break,
            // Ended tasks are let go of as they end.
            Some(_) = open.join_next() => {}
            (stream, addr, place) = &mut accepting => {
                accepting.set(accept(&listener, &places, &terms.options));
                open.spawn(connection::run(Arc::clone(&terms), service.clone(), stream, addr, place));
            }
        }
    }
    drop(accepting);
    drop(listener);
    tokio::select! {
        biased;
        () = shutdown.abandoned() => open.shutdown().await,
        () = async { while open.join_next().await.is_some() {} } => {}
    }
}

/// Waits for a connection, then for its place. A client that has too many already is hung up on.
async fn accept(
    listener: &TcpListener,
    places: &Arc<Places>,
    options: &ListenOptions,
) -> (TcpStream, SocketAddr, Place) {
    let mut failures = 0_u64;
    loop {
        let (stream, addr) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                if failures.is_multiple_of(ACCEPT_FAILURES_PER_LINE) {
                    tracing::warn!(%error, "a connection could not be accepted");
                }
                failures += 1;
                if descriptors::ran_out(&error) {
                    places.make_room();
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        failures = 0;
        let ip = addr.ip().to_canonical();
        let is_trusted = options.trusted_peers.iter().any(|network| network.contains(ip));
        if let Some(place) = places.get((!is_trusted).then(|| Client::new(ip))).await {
            return (stream, addr, place);
        }
    }
}

/// The peer of a connection.
fn peer(addr: SocketAddr, tls: bool) -> Peer {
    // An IPv4 client of an IPv6 socket is an IPv4 client.
    Peer { addr: SocketAddr::new(addr.ip().to_canonical(), addr.port()), tls }
}
