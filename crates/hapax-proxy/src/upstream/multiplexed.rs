//! HTTP/2 to the upstream: one connection for all requests, made again when it ends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::header::{CONNECTION, HOST, TRANSFER_ENCODING};
use http::uri::Authority;
use http::{Request, Response, Uri, Version};
use tokio::time::{Instant, timeout_at};

use super::connect::{Connected, connect};
use super::exchange::Lost;
use super::link::Link;
use super::{Target, UpstreamOptions};
use crate::{Body, header_map};

/// Connections that end just when a request wants to use them; after so many it is told that nothing was sent.
const LINKS_MAX: usize = 3;

/// Why there is no answer where the upstream takes no more streams.
const NO_STREAM: &str = "the upstream had no free HTTP/2 stream in time";

/// The connection, if there is one.
pub(super) struct Multiplexed {
    /// Whether the upstream speaks HTTP/2, as far as is known.
    expected: AtomicBool,
    link: Mutex<Option<Arc<Link>>>,
    /// Held by whoever connects, so that the others wait for that connection.
    connecting: tokio::sync::Mutex<()>,
}

impl Multiplexed {
    pub(super) fn new(expected: bool) -> Self {
        let (link, connecting) = (Mutex::default(), tokio::sync::Mutex::default());
        Self { expected: AtomicBool::new(expected), link, connecting }
    }

    pub(super) fn is_expected(&self) -> bool {
        self.expected.load(Ordering::Relaxed)
    }

    /// Sends a request on the connection that was just made.
    pub(super) async fn begin(
        &self,
        link: Arc<Link>,
        slot: &mut Option<Request<Body>>,
        target: &Target,
        options: &UpstreamOptions,
    ) -> Result<Response<Body>, Lost> {
        self.expected.store(true, Ordering::Relaxed);
        *self.link() = Some(link);
        self.send(slot, target, options).await
    }

    /// Sends a request, when there is a stream for it; one that is handed back untouched goes to a new connection. Getting a
    /// connection and a stream may take as long as connecting may, and the time for the answer begins after that.
    pub(super) async fn send(
        &self,
        slot: &mut Option<Request<Body>>,
        target: &Target,
        options: &UpstreamOptions,
    ) -> Result<Response<Body>, Lost> {
        address(slot, target)?;
        let until = Instant::now() + options.connect_timeout;
        for _ in 0..LINKS_MAX {
            let link = self.connected(until, target, options).await?;
            let place = timeout_at(until, link.room.enter()).await.map_err(|_| Lost::NothingSent(NO_STREAM))?;
            let Some(place) = place else { continue };
            match link.exchange(place, slot, options).await {
                Err(Lost::Unsent) => {}
                other => return other,
            }
        }
        Err(Lost::NothingSent("the upstream ended its connections before the request was sent"))
    }

    async fn connected(&self, until: Instant, target: &Target, options: &UpstreamOptions) -> Result<Arc<Link>, Lost> {
        if let Some(link) = self.live() {
            return Ok(link);
        }
        // Whoever connects may fail, one after the other; nobody waits for all of them.
        let turn = timeout_at(until, self.connecting.lock()).await;
        let _turn = turn.map_err(|_| Lost::NothingSent("connecting took too long"))?;
        if let Some(link) = self.live() {
            return Ok(link);
        }
        match connect(target, options).await.map_err(Lost::NothingSent)? {
            Connected::Http2(link) => {
                *self.link() = Some(Arc::clone(&link));
                Ok(link)
            }
            Connected::Http1(_) => {
                self.expected.store(false, Ordering::Relaxed);
                Err(Lost::NothingSent("the upstream no longer speaks HTTP/2"))
            }
        }
    }

    fn live(&self) -> Option<Arc<Link>> {
        self.link().as_ref().filter(|link| !link.room.has_ended()).cloned()
    }

    fn link(&self) -> MutexGuard<'_, Option<Arc<Link>>> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The request as HTTP/2 has it: the host in the target.
fn address(slot: &mut Option<Request<Body>>, target: &Target) -> Result<(), Lost> {
    let Some(request) = slot else { return Err(Lost::NothingSent("the request is gone")) };
    let host = request.headers().get(HOST);
    let authority = host.and_then(|host| Authority::try_from(host.as_bytes()).ok());
    let mut parts = std::mem::take(request.uri_mut()).into_parts();
    parts.scheme = Some(target.scheme.clone());
    parts.authority = Some(authority.unwrap_or_else(|| target.authority.clone()));
    *request.uri_mut() = Uri::from_parts(parts).map_err(|_| Lost::NothingSent("the request's target is malformed"))?;
    *request.version_mut() = Version::HTTP_2;
    header_map::retain(request.headers_mut(), |name| ![HOST, CONNECTION, TRANSFER_ENCODING].contains(name));
    Ok(())
}
