//! Sockets of the admin listener and their limits.
//!
//! It must answer when everything else is in trouble, and must not become the trouble: few connections, small heads, short
//! times. When all places are taken, the connection that has waited longest for its client gives way: whatever silent
//! connections do, a prober gets in. HTTP/1.1 is all that probers and scrapers speak.

use std::convert::Infallible;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::answers::answer;
use super::readiness::Readiness;
use super::{Here, State};
use crate::desk::Desk;
use hapax_proxy::descriptors;
use hapax_proxy::places::{Place, Places};

/// Connections at once; then those that wait for a request, or for the rest of one, give way. A prober and two scrapers need
/// three.
pub const CONNECTIONS_MAX: usize = 64;

/// A head must be complete within this time, and an idle connection is closed after it.
const HEAD_LIMIT: Duration = Duration::from_secs(5);

/// More fields than any prober or scraper sends.
const FIELDS_MAX: usize = 64;

/// More bytes than any head needs here; also the least that hyper allows.
const BUFFER_BYTES_MAX: usize = 8 * 1024;

/// A connection this old is asked to end, so that slow readers do not hold all of them.
const LIFE: Duration = Duration::from_secs(60);

/// What a connection that was asked to end is given to finish its answer.
const GRACE: Duration = Duration::from_secs(2);

/// How long to wait when no connection can be accepted, as when the process has no file descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How often histograms are folded into their buckets; between two scrapes they only grow.
const UPKEEP_EVERY: Duration = Duration::from_secs(5);

/// Serves operators until `shutdown`, then lets running answers finish for a moment.
///
/// # Errors
///
/// The address of the listener cannot be read.
pub async fn serve<R: Readiness, D: Desk + 'static>(
    listener: TcpListener,
    state: Arc<State<R, D>>,
    shutdown: impl Future<Output = ()> + Send,
) -> io::Result<()> {
    let here = Arc::new(Here::new(listener.local_addr()?.ip().to_canonical().is_loopback()));
    let ending = CancellationToken::new();
    let tasks = TaskTracker::new();
    tasks.spawn(upkeep(Arc::clone(&state), ending.clone()));
    let accepting = accept_all(&listener, &tasks, &state, &here, &ending);
    tokio::select! {
        () = accepting => {}
        () = shutdown => {}
    }
    drop(listener);
    ending.cancel();
    tasks.close();
    // Whatever is left after the grace ends with the runtime.
    let _ = tokio::time::timeout(GRACE * 2, tasks.wait()).await;
    Ok(())
}

async fn accept_all<R: Readiness, D: Desk + 'static>(
    listener: &TcpListener,
    tasks: &TaskTracker,
    state: &Arc<State<R, D>>,
    here: &Arc<Here>,
    ending: &CancellationToken,
) {
    let places = Places::new(CONNECTIONS_MAX, CONNECTIONS_MAX);
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let Some(place) = places.get(None).await else { continue };
                let (state, here, ending) = (Arc::clone(state), Arc::clone(here), ending.clone());
                tasks.spawn(async move {
                    converse(stream, &state, &here, &ending, &place).await;
                });
            }
            Err(error) => {
                tracing::warn!(%error, "the admin listener cannot accept a connection; trying again");
                if descriptors::ran_out(&error) {
                    places.make_room();
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn converse<R: Readiness, D: Desk>(
    stream: TcpStream,
    state: &State<R, D>,
    here: &Here,
    ending: &CancellationToken,
    place: &Place,
) {
    let changing = AtomicBool::new(false);
    let service = service_fn(|request: http::Request<Incoming>| {
        let changes = request.method() == http::Method::POST;
        let request = request.map(|incoming| Arriving::new(incoming, changes, &changing, place));
        async {
            let answer = answer(request, state, here).await;
            changing.store(false, Ordering::Relaxed);
            place.wait_since(Instant::now());
            Ok::<_, Infallible>(answer)
        }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_LIMIT);
    builder.max_headers(FIELDS_MAX).max_buf_size(BUFFER_BYTES_MAX);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    // How a conversation with a prober ends interests nobody.
    tokio::select! {
        _ = connection.as_mut() => return,
        () = ending.cancelled() => {}
        () = tokio::time::sleep(LIFE) => {}
        () = place.sent_away() => if !changing.load(Ordering::Relaxed) { return },
    }
    connection.as_mut().graceful_shutdown();
    // A long purge must not be broken off in the middle because its connection is old.
    while tokio::time::timeout(GRACE, connection.as_mut()).await.is_err() && changing.load(Ordering::Relaxed) {}
}

/// The body of a request; when it is there, the connection does not wait for its client any more.
struct Arriving<'c> {
    incoming: Incoming,
    changes: bool,
    changing: &'c AtomicBool,
    place: &'c Place,
}

impl<'c> Arriving<'c> {
    fn new(incoming: Incoming, changes: bool, changing: &'c AtomicBool, place: &'c Place) -> Self {
        let arriving = Self { incoming, changes, changing, place };
        arriving.look();
        arriving
    }

    fn look(&self) {
        if self.incoming.is_end_stream() {
            self.has_come();
        }
    }

    fn has_come(&self) {
        self.changing.store(self.changes, Ordering::Relaxed);
        self.place.resume();
    }
}

impl Body for Arriving<'_> {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = Pin::new(&mut self.incoming).poll_frame(cx);
        match &frame {
            Poll::Ready(None) => self.has_come(),
            Poll::Ready(Some(_)) => self.look(),
            Poll::Pending => {}
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

async fn upkeep<R: Readiness, D: Desk>(state: Arc<State<R, D>>, ending: CancellationToken) {
    let mut ticks = tokio::time::interval(UPKEEP_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    while ending.run_until_cancelled(ticks.tick()).await.is_some() {
        state.metrics.run_upkeep();
    }
}
