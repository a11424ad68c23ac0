//! HTTP/2 to the upstream: one connection for all requests, made again when it ends.

use std::error::Error as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use http::header::{CONNECTION, HOST, TRANSFER_ENCODING};
use http::uri::Authority;
use http::{Request, Response, Uri, Version};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use tokio::time::{Instant, timeout_at};

use super::connect::{Connected, connect};
use super::exchange::{Lost, check_head};
use super::{Target, UpstreamOptions};
use crate::proxy::body::Patience;
use crate::proxy::{Body, BodyError, headers};

/// The connection, if there is one.
pub(super) struct Multiplexed {
    /// Whether the upstream speaks HTTP/2, as far as is known.
    expected: AtomicBool,
    sender: Mutex<Option<SendRequest<Body>>>,
    /// Held by whoever connects, so that the others wait for that connection.
    connecting: tokio::sync::Mutex<()>,
}

impl Multiplexed {
    pub(super) fn new(expected: bool) -> Self {
        let (sender, connecting) = (Mutex::default(), tokio::sync::Mutex::default());
        Self { expected: AtomicBool::new(expected), sender, connecting }
    }

    pub(super) fn is_expected(&self) -> bool {
        self.expected.load(Ordering::Relaxed)
    }

    /// Sends a request on the connection that was just made.
    pub(super) async fn begin(
        &self,
        sender: SendRequest<Body>,
        slot: &mut Option<Request<Body>>,
        target: &Target,
        options: &UpstreamOptions,
    ) -> Result<Response<Body>, Lost> {
        self.expected.store(true, Ordering::Relaxed);
        *self.sender() = Some(sender.clone());
        address(slot, target)?;
        exchange(sender, slot, options).await
    }

    /// Sends a request; one that is handed back untouched goes to a new connection.
    pub(super) async fn send(
        &self,
        slot: &mut Option<Request<Body>>,
        target: &Target,
        options: &UpstreamOptions,
    ) -> Result<Response<Body>, Lost> {
        address(slot, target)?;
        let sender = self.connected(target, options).await?;
        match exchange(sender, slot, options).await {
            Err(Lost::Unsent) => {
                *self.sender() = None;
                exchange(self.connected(target, options).await?, slot, options).await
            }
            other => other,
        }
    }

    async fn connected(&self, target: &Target, options: &UpstreamOptions) -> Result<SendRequest<Body>, Lost> {
        if let Some(sender) = self.live() {
            return Ok(sender);
        }
        let _turn = self.connecting.lock().await;
        if let Some(sender) = self.live() {
            return Ok(sender);
        }
        match connect(target, options).await.map_err(Lost::NothingSent)? {
            Connected::Http2(sender) => {
                *self.sender() = Some(sender.clone());
                Ok(sender)
            }
            Connected::Http1(_) => {
                self.expected.store(false, Ordering::Relaxed);
                Err(Lost::NothingSent("the upstream no longer speaks HTTP/2"))
            }
        }
    }

    fn live(&self) -> Option<SendRequest<Body>> {
        self.sender().as_ref().filter(|sender| !sender.is_closed()).cloned()
    }

    fn sender(&self) -> MutexGuard<'_, Option<SendRequest<Body>>> {
        self.sender.lock().unwrap_or_else(PoisonError::into_inner)
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
    headers::retain(request.headers_mut(), |name| ![HOST, CONNECTION, TRANSFER_ENCODING].contains(name));
    Ok(())
}

async fn exchange(
    mut sender: SendRequest<Body>,
    slot: &mut Option<Request<Body>>,
    options: &UpstreamOptions,
) -> Result<Response<Body>, Lost> {
    let Some(request) = slot.take() else { return Err(Lost::NothingSent("the request is gone")) };
    let deadline = Instant::now() + options.answer_timeout;
    let response = match timeout_at(deadline, sender.try_send_request(request)).await {
        Err(_) => return Err(Lost::Doubt("the upstream did not answer in time")),
        Ok(Ok(response)) => response,
        Ok(Err(mut failed)) => {
            *slot = failed.take_message();
            return Err(if slot.is_some() { Lost::Unsent } else { lost(&failed.into_error()) });
        }
    };
    check_head(response.headers()).map_err(Lost::Doubt)?;
    Ok(passed_on(response, deadline))
}

fn passed_on(response: Response<Incoming>, deadline: Instant) -> Response<Body> {
    let (mut parts, incoming) = response.into_parts();
    headers::leave(&mut parts);
    Response::from_parts(parts, Body::received(incoming, true, Patience::Until(deadline)))
}

/// A stream that was refused, or that lies above the last one the upstream looked at, did nothing.
fn lost(error: &hyper::Error) -> Lost {
    let Some(source) = error.source() else { return Lost::Doubt("the upstream ended the connection") };
    if let Some(body) = source.downcast_ref::<BodyError>() {
        return Lost::Body { error: body.same(), untouched: false };
    }
    match source.downcast_ref::<h2::Error>() {
        Some(error) if error.is_remote() && error.reason() == Some(h2::Reason::REFUSED_STREAM) => {
            Lost::NothingSent("the upstream refused the stream")
        }
        Some(error) if error.is_remote() && error.is_go_away() => {
            Lost::NothingSent("the upstream went away before it looked at the request")
        }
        // h2 says no more of it.
        Some(error) if error.is_library() && error.reason() == Some(h2::Reason::PROTOCOL_ERROR) => {
            Lost::Doubt("the upstream's answer is malformed, or has more than 96 KiB of header fields")
        }
        _ => Lost::Doubt("the upstream ended the stream without an answer"),
    }
}
