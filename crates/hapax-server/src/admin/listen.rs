//! Sockets of the admin listener and their limits.
//!
//! It must answer when everything else is in trouble, and must not become the trouble: few connections, small heads, short
//! times. HTTP/1.1 is all that probers and scrapers speak.

use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::answers::answer;
use super::readiness::Readiness;
use super::{Here, State};
use crate::desk::Desk;

/// Connections at once; the next ones wait until one of these ends. A prober and two scrapers need three.
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
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    while let Ok(place) = Arc::clone(&places).acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => {
                let (state, here, ending) = (Arc::clone(state), Arc::clone(here), ending.clone());
                tasks.spawn(async move {
                    converse(stream, &state, &here, &ending).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "the admin listener cannot accept a connection; trying again");
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
) {
    let changing = AtomicBool::new(false);
    let service = service_fn(|request: http::Request<Incoming>| {
        changing.store(request.method() == http::Method::POST, Ordering::Relaxed);
        async {
            let answer = answer(request, state, here).await;
            changing.store(false, Ordering::Relaxed);
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
    }
    connection.as_mut().graceful_shutdown();
    // A long purge must not be broken off in the middle because its connection is old.
    while tokio::time::timeout(GRACE, connection.as_mut()).await.is_err() && changing.load(Ordering::Relaxed) {}
}

async fn upkeep<R: Readiness, D: Desk>(state: Arc<State<R, D>>, ending: CancellationToken) {
    let mut ticks = tokio::time::interval(UPKEEP_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    while ending.run_until_cancelled(ticks.tick()).await.is_some() {
        state.metrics.run_upkeep();
    }
}
