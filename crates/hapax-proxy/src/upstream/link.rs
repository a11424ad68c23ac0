//! One HTTP/2 connection to the upstream, and one request and its answer on it.
//!
//! What a failure means is decided here: by what the [`Gate`] saw leave, and by what the upstream said.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use h2::RecvStream;
use h2::client::{Connection, ResponseFuture, SendRequest};
use hapax::http::SendBefore;
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, HeaderValue, Method, Request, Response, Version};
use http_body::Body as _;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::connect::{HEAD_BYTES_MAX, Stream};
use super::exchange::{BYTES_BEFORE_ANSWER_MAX, HELD_UP, Lost, check_head};
use super::gate::{Gate, Gated};
use super::room::{Place, Room};
use super::upload::{self, Upload};
use super::{UpstreamOptions, download};
use crate::{Body, BodyError, headers};

/// What one answer may have waiting here for its reader.
const STREAM_WINDOW_BYTES: u32 = 256 * 1024;
/// What all answers of a connection may: one that nobody reads must not hold up the others.
const CONNECTION_WINDOW_BYTES: u32 = 16 * 1024 * 1024;
/// What RFC 9113 counts for a header field beside its letters.
const FIELD_BYTES: usize = 32;
/// Streams of clients have odd numbers.
const FIRST_STREAM: u32 = 1;

/// A connection. It ends when it is dropped, so whatever goes on on it holds it.
pub(super) struct Link {
    gate: Arc<Gate>,
    pub(super) room: Arc<Room>,
    /// Locked while a request is handed over, so that streams are announced in the order of their numbers.
    sending: Mutex<Sending>,
    _in_use: oneshot::Sender<()>,
}

struct Sending {
    sender: SendRequest<Bytes>,
    next_stream: u32,
}

/// What goes on on a connection: its place, and the connection itself.
pub(super) struct Stay {
    _place: Place,
    _link: Arc<Link>,
}

/// A request that was handed over.
struct Sent {
    answer: ResponseFuture,
    stream: u32,
    upload: Upload,
}

impl Link {
    /// Begins a connection. Nothing is sent on it before the upstream has said how many streams it takes.
    pub(super) async fn begin(stream: Stream) -> Result<Arc<Self>, &'static str> {
        let gate = Arc::new(Gate::default());
        let mut builder = h2::client::Builder::new();
        builder
            .enable_push(false)
            .initial_max_send_streams(0)
            .initial_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_header_list_size(u32::try_from(HEAD_BYTES_MAX).unwrap_or(u32::MAX));
        let begun = builder.handshake::<_, Bytes>(Gated::new(stream, Arc::clone(&gate))).await;
        let (sender, connection) = begun.map_err(|_| "the HTTP/2 connection did not begin")?;
        let (room, (in_use, unused)) = (Arc::new(Room::default()), oneshot::channel());
        tokio::spawn(drive(connection, sender.clone(), Arc::clone(&room), unused));
        let sending = Mutex::new(Sending { sender, next_stream: FIRST_STREAM });
        Ok(Arc::new(Self { gate, room, sending, _in_use: in_use }))
    }

    /// Sends a request, for whose stream there is a place, once. One of which nothing was looked at is put back.
    pub(super) async fn exchange(
        self: &Arc<Self>,
        place: Place,
        slot: &mut Option<Request<Body>>,
        options: &UpstreamOptions,
    ) -> Result<Response<Body>, Lost> {
        let stay = Arc::new(Stay { _place: place, _link: Arc::clone(self) });
        let mut sent = self.hand_over(slot, &stay)?;
        let deadline = Instant::now() + options.answer_timeout;
        let mut hinted = 0;
        let answered = timeout_at(deadline, poll_fn(|cx| poll_answer(&mut sent, &mut hinted, cx))).await;
        let response = match answered {
            Ok(Ok(response)) => response,
            Ok(Err(failed)) => return Err(self.lost(&sent, failed, hinted > 0)),
            Err(_) => return Err(self.lost(&sent, Failed::Late, hinted > 0)),
        };
        check_head(response.headers()).map_err(Lost::Doubt)?;
        let (mut parts, stream) = response.into_parts();
        headers::leave(&mut parts);
        let body = download::body(stream, &parts.headers, deadline, sent.upload, stay);
        Ok(Response::from_parts(parts, body))
    }

    fn hand_over(&self, slot: &mut Option<Request<Body>>, stay: &Arc<Stay>) -> Result<Sent, Lost> {
        let Some(request) = slot.take() else { return Err(Lost::NothingSent("the request is gone")) };
        let before = request.extensions().get::<SendBefore>().cloned();
        if before.as_ref().is_some_and(SendBefore::is_over) {
            return Err(Lost::NothingSent(HELD_UP));
        }
        let ends_at_once = request.body().is_end_stream();
        let mut sending = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
        let expected = sending.next_stream;
        self.gate.announce(expected, before.clone());
        // A clone, since a sender that has once waited for a stream refuses the next request.
        let (answer, stream) = match sending.sender.clone().send_request(head(&request), ends_at_once) {
            Ok(sent) => sent,
            Err(_) => {
                self.gate.forget(expected);
                let is_over = has_ended(&sending.sender);
                self.room.end();
                if !is_over {
                    return Err(Lost::NothingSent("the request cannot be sent over HTTP/2"));
                }
                *slot = Some(request);
                return Err(Lost::Unsent);
            }
        };
        let number = u32::from(answer.stream_id());
        if number != expected {
            self.gate.forget(expected);
            self.gate.announce(number, before.clone());
        }
        sending.next_stream = number.saturating_add(2);
        drop(sending);
        let upload =
            if ends_at_once { Upload::none() } else { upload::begin(request.into_body(), stream, before, stay) };
        Ok(Sent { answer, stream: number, upload })
    }

    /// What it means that there is no answer.
    fn lost(&self, sent: &Sent, failed: Failed, hinted: bool) -> Lost {
        let untouched = self.gate.withdraw(sent.stream);
        if untouched {
            // h2 may still have it in its queue, and the connection would end there.
            self.room.end();
        }
        match failed {
            Failed::Body(error) => Lost::Body { error, untouched },
            Failed::Late if untouched => Lost::NothingSent("the upstream took nothing of the request in time"),
            Failed::Stream(_) | Failed::Flood if untouched => {
                Lost::NothingSent("the connection to the upstream ended before the request was sent")
            }
            Failed::Late => Lost::Doubt("the upstream did not answer in time"),
            Failed::Flood => Lost::Doubt("the upstream sent too many provisional answers, or too large ones"),
            Failed::Stream(error) => meaning(&error, hinted),
        }
    }
}

/// Why there is no answer.
enum Failed {
    Late,
    /// More before the answer than is read.
    Flood,
    /// The client's body failed.
    Body(BodyError),
    Stream(h2::Error),
}

/// A stream that was refused, or that lies above the last one the upstream looked at, did nothing; unless the upstream had
/// begun to answer it.
fn meaning(error: &h2::Error, hinted: bool) -> Lost {
    if error.is_remote() && !hinted {
        if error.reason() == Some(h2::Reason::REFUSED_STREAM) && error.is_reset() {
            return Lost::NothingSent("the upstream refused the stream");
        }
        if error.is_go_away() {
            return Lost::NothingSent("the upstream went away before it looked at the request");
        }
    }
    // h2 says no more of it.
    if error.is_library() && error.reason() == Some(h2::Reason::PROTOCOL_ERROR) {
        return Lost::Doubt("the upstream's answer is malformed, or has more than 96 KiB of header fields");
    }
    Lost::Doubt("the upstream ended the stream without an answer")
}

/// The answer, after what comes before it. The client's body may fail meanwhile.
fn poll_answer(
    sent: &mut Sent,
    hinted: &mut usize,
    cx: &mut Context<'_>,
) -> Poll<Result<Response<RecvStream>, Failed>> {
    loop {
        match sent.answer.poll_informational(cx) {
            Poll::Ready(Some(Ok(hint))) => {
                *hinted += FIELD_BYTES + bytes_of(hint.headers());
                if *hinted > BYTES_BEFORE_ANSWER_MAX {
                    return Poll::Ready(Err(Failed::Flood));
                }
            }
            Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(Failed::Stream(error))),
            Poll::Ready(None) | Poll::Pending => break,
        }
    }
    match Pin::new(&mut sent.answer).poll(cx) {
        Poll::Ready(Ok(response)) => Poll::Ready(Ok(response)),
        Poll::Ready(Err(error)) => Poll::Ready(Err(sent.upload.failure().map_or(Failed::Stream(error), Failed::Body))),
        Poll::Pending => sent.upload.poll_failure(cx).map(|error| Err(Failed::Body(error))),
    }
}

fn bytes_of(headers: &HeaderMap) -> usize {
    headers.iter().map(|(name, value)| name.as_str().len() + value.len() + FIELD_BYTES).sum()
}

/// The head of a request as h2 takes it. The request itself may be needed for another connection.
fn head(request: &Request<Body>) -> Request<()> {
    let mut head = Request::new(());
    head.method_mut().clone_from(request.method());
    head.uri_mut().clone_from(request.uri());
    head.headers_mut().clone_from(request.headers());
    *head.version_mut() = Version::HTTP_2;
    if let Some(length) = request.body().size_hint().exact() {
        let has_meaning = length > 0 || !matches!(*request.method(), Method::GET | Method::HEAD | Method::DELETE);
        if has_meaning && !head.headers().contains_key(CONTENT_LENGTH) {
            head.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
    }
    head
}

/// Whether a connection takes no more requests.
fn has_ended(sender: &SendRequest<Bytes>) -> bool {
    // A clone waits for nothing, so nobody has to be woken.
    matches!(sender.clone().poll_ready(&mut Context::from_waker(Waker::noop())), Poll::Ready(Err(_)))
}

/// Keeps a connection going as long as anybody uses it, and tells who waits what the upstream allows.
async fn drive(
    mut connection: Connection<Gated<Stream>, Bytes>,
    sender: SendRequest<Bytes>,
    room: Arc<Room>,
    mut unused: oneshot::Receiver<()>,
) {
    poll_fn(|cx| {
        // Every request on it is told of its own failure.
        let is_done = Pin::new(&mut connection).poll(cx).is_ready() || Pin::new(&mut unused).poll(cx).is_ready();
        if is_done || has_ended(&sender) {
            room.end();
        }
        room.allow(connection.max_concurrent_send_streams());
        if is_done { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
