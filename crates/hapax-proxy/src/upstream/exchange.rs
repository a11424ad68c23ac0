//! One request and its answer on one HTTP/1.1 connection.
//!
//! The connection is driven by the task that wants the answer, not by one of its own: no message goes from task to task,
//! and a connection that nobody uses does nothing. What a failure means is decided here, by what was written.

use std::error::Error as _;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, Method, Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::time::{Instant, Sleep, sleep_until};

use super::connect::Stream;
use super::reread;
use super::wire::Wire;
use crate::{Body, BodyError};
use hapax::http::{BodyTimedOut, SendBefore};

/// Provisional answers and the head of the final one, together; a flood of the former ends here.
pub(super) const BYTES_BEFORE_ANSWER_MAX: usize = 128 * 1024;
/// Why nothing was sent by a process that was asleep.
pub(super) const HELD_UP: &str = "this node was held up for longer than its lease; nothing was sent";
/// Why an answer was not read.
const TOO_LARGE: &str = "the upstream's answer has more than 512 header fields, or more than 96 KiB of them";

/// A connection to the upstream.
pub(super) struct Connection {
    sender: http1::SendRequest<Body>,
    /// None once it has ended and somebody still waited: a request that it had not taken comes back only when it is dropped.
    driver: Option<http1::Connection<TokioIo<Stream>, Body>>,
    driven_to_end: bool,
    /// Whether the answer is read a second time; see [`reread`].
    reread: bool,
    /// Whether an answer that comes before the whole request was taken leaves the rest to be sent: it is all here, and the
    /// upstream has not said that it closes.
    sends_rest: bool,
    wire: Arc<Wire>,
    timeout: Duration,
    deadline: Instant,
    /// One for all requests: it comes too early for all but the first, and is then set again.
    timer: Pin<Box<Sleep>>,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Lost {
    /// Nothing of the request was looked at; it is where it was.
    Unsent,
    /// Something else, as far as is known without a byte sent.
    NothingSent(&'static str),
    /// Bytes have left.
    Doubt(&'static str),
    /// The client's body failed.
    Body {
        /// In which way.
        error: BodyError,
        /// Whether no byte had left by then.
        untouched: bool,
    },
}

impl Connection {
    pub(super) fn new(
        sender: http1::SendRequest<Body>,
        driver: http1::Connection<TokioIo<Stream>, Body>,
        wire: Arc<Wire>,
        timeout: Duration,
    ) -> Self {
        let deadline = Instant::now() + timeout;
        let timer = Box::pin(sleep_until(deadline));
        let (driver, driven_to_end, reread, sends_rest) = (Some(driver), false, false, false);
        Self { sender, driver, driven_to_end, reread, sends_rest, wire, timeout, deadline, timer }
    }

    /// Takes a request, sends it once, and waits for the head of the answer. After an error the connection must not be used
    /// again; the request is put back if it may be sent on another one.
    pub(super) async fn send(&mut self, slot: &mut Option<Request<Body>>) -> Result<Response<Incoming>, Lost> {
        // A request is a few hundred bytes; it is moved once, not with every function on the way.
        let Some(request) = slot.take() else { return Err(Lost::NothingSent("the request is gone")) };
        self.deadline = Instant::now() + self.timeout;
        self.wire.allow(BYTES_BEFORE_ANSWER_MAX);
        let before = request.extensions().get::<SendBefore>().cloned();
        self.wire.send_before(before.clone());
        let written_before = self.wire.written();
        let is_head = request.method() == Method::HEAD;
        let is_whole = request.body().is_whole();
        let mut answer = pin!(self.sender.try_send_request(request));
        let result = poll_fn(|cx| self.poll_answer(answer.as_mut(), cx)).await;
        let untouched = self.wire.written() == written_before;
        let response = match result {
            None if untouched => return Err(Lost::NothingSent("the upstream took nothing of the request in time")),
            None => return Err(Lost::Doubt("the upstream did not answer in time")),
            Some(Err(mut failed)) => {
                *slot = failed.take_message();
                let error = failed.into_error();
                if slot.is_some() {
                    return Err(Lost::Unsent);
                }
                if untouched && before.is_some_and(|before| before.is_over()) {
                    return Err(Lost::NothingSent(HELD_UP));
                }
                if !error.is_parse_too_large() {
                    return Err(lost(&error, untouched));
                }
                drop(error);
                Box::pin(self.read_again(is_head)).await?
            }
            Some(Ok(response)) => response,
        };
        hapax_core::failpoint!(async "answer-headers-in");
        self.wire.allow(usize::MAX);
        check_head(response.headers()).map_err(Lost::Doubt)?;
        self.sends_rest = is_whole && stays_open(&response);
        Ok(response)
    }

    /// The answer, or none when its time is over.
    fn poll_answer<F: Future>(&mut self, mut answer: Pin<&mut F>, cx: &mut Context<'_>) -> Poll<Option<F::Output>> {
        self.drive(cx);
        let mut result = answer.as_mut().poll(cx);
        if result.is_pending() && self.driven_to_end {
            self.driver = None;
            result = answer.poll(cx);
        }
        match result {
            Poll::Ready(result) => Poll::Ready(Some(result)),
            Poll::Pending => self.poll_deadline(cx).map(|()| None),
        }
    }

    /// Reads the head of an answer again that has more fields than hyper reads at first.
    async fn read_again(&mut self, is_head: bool) -> Result<Response<Incoming>, Lost> {
        let Some(driver) = self.driver.take() else { return Err(Lost::Doubt(TOO_LARGE)) };
        let (sender, driver) = reread::again(driver).await.map_err(|_| Lost::Doubt(TOO_LARGE))?;
        (self.sender, self.driver, self.driven_to_end, self.reread) = (sender, Some(driver), false, true);
        // It goes nowhere, but whether an answer has a body depends on what it answers.
        let mut stand_in = Request::new(Body::empty());
        if is_head {
            *stand_in.method_mut() = Method::HEAD;
        }
        let mut answer = pin!(self.sender.try_send_request(stand_in));
        match poll_fn(|cx| self.poll_answer(answer.as_mut(), cx)).await {
            Some(Ok(response)) if response.status() != StatusCode::SWITCHING_PROTOCOLS => Ok(response),
            Some(Ok(_)) => Err(Lost::Doubt(TOO_LARGE)),
            Some(Err(failed)) => Err(lost(&failed.into_error(), false)),
            None => Err(Lost::Doubt("the upstream did not answer in time")),
        }
    }

    /// Does what can be done now.
    fn drive(&mut self, cx: &mut Context<'_>) {
        if let Some(driver) = self.driver.as_mut().filter(|_| !self.driven_to_end) {
            // Its errors come out where the answer or its body is waited for.
            self.driven_to_end = driver.poll_without_shutdown(cx).is_ready();
        }
    }

    fn poll_deadline(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(self.timer.as_mut().poll(cx));
            if Instant::now() >= self.deadline {
                return Poll::Ready(());
            }
            self.timer.as_mut().reset(self.deadline);
        }
    }

    /// The next frame of the answer's body.
    pub(super) fn poll_frame(
        &mut self,
        incoming: &mut Incoming,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, BodyError>>> {
        use http_body::Body as _;
        let mut frame = Pin::new(&mut *incoming).poll_frame(cx);
        if frame.is_pending() {
            self.drive(cx);
            frame = Pin::new(&mut *incoming).poll_frame(cx);
        }
        if frame.is_pending() && self.driven_to_end {
            self.driver = None;
            frame = Pin::new(incoming).poll_frame(cx);
        }
        match frame {
            Poll::Ready(frame) => {
                hapax_core::failpoint!("half-answer-in");
                Poll::Ready(frame.map(|frame| frame.map_err(|_| BodyError::CutOff)))
            }
            Poll::Pending => self.poll_deadline(cx).map(|()| Some(Err(BodyError::TimedOut(BodyTimedOut)))),
        }
    }

    /// After the whole answer was read: whether the connection can take another request. An upstream may answer first and
    /// read on: what it has not taken yet would be lost with the connection, so that is waited for.
    pub(super) fn poll_settled(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        self.drive(cx);
        if self.driven_to_end || self.reread {
            return Poll::Ready(false);
        }
        match self.sender.is_ready() {
            false if self.sends_rest => self.poll_deadline(cx).map(|()| false),
            is_ready => Poll::Ready(is_ready),
        }
    }

    /// Whether the other side is still there and silent.
    pub(super) fn is_quiet(&self) -> bool {
        !self.sender.is_closed() && self.wire.is_quiet()
    }

    /// The stream, after the upstream has agreed to leave HTTP, with what it has said since.
    pub(super) async fn leave_http(mut self: Box<Self>) -> Option<(Stream, Bytes)> {
        let mut driver = self.driver.take()?;
        if !self.driven_to_end {
            poll_fn(|cx| driver.poll_without_shutdown(cx)).await.ok()?;
        }
        let parts = driver.into_parts();
        Some((parts.io.into_inner(), parts.read_buf))
    }
}

/// What an error of hyper's means.
fn lost(error: &hyper::Error, untouched: bool) -> Lost {
    if let Some(body) = error.source().and_then(|source| source.downcast_ref::<BodyError>()) {
        return Lost::Body { error: body.same(), untouched };
    }
    if untouched {
        return Lost::NothingSent("the upstream closed the connection before the request");
    }
    let cause = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    // (A lease that ended in the middle of a request comes here, too: the connection is closed before its last byte.)
    Lost::Doubt(if error.is_parse_too_large() {
        TOO_LARGE
    } else if error.is_parse() {
        "the upstream's answer is malformed"
    } else if cause.is_some_and(|cause| cause.kind() == io::ErrorKind::InvalidData) {
        "the upstream sent too many provisional answers, or too large ones"
    } else {
        "the upstream closed the connection without an answer"
    })
}

/// Whether whoever answered goes on with the connection.
fn stays_open(response: &Response<Incoming>) -> bool {
    let mut lines = response.headers().get_all(CONNECTION).iter().filter_map(|line| line.to_str().ok());
    let closes = lines.any(|line| line.split(',').any(|word| word.trim().eq_ignore_ascii_case("close")));
    response.version() == Version::HTTP_11 && !closes
}

/// hyper takes the first of several lengths; we do not believe any.
pub(super) fn check_head(headers: &HeaderMap) -> Result<(), &'static str> {
    let mut lengths = headers.get_all(CONTENT_LENGTH).into_iter();
    let first = lengths.next();
    if lengths.next().is_some() || first.is_some_and(|length| !length.as_bytes().iter().all(u8::is_ascii_digit)) {
        return Err("the upstream's answer has two lengths");
    }
    if first.is_some() && headers.contains_key(TRANSFER_ENCODING) {
        return Err("the upstream's answer has both a length and a transfer encoding");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use http::Uri;
    use tokio::net::{TcpListener, TcpStream};

    use super::super::connect::{Connected, connect};
    use super::super::{Target, UpstreamOptions};
    use super::*;

    /// A connection that nobody has checked, and its other end.
    async fn pair() -> (Box<Connection>, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url: Uri = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let target = Target::new(&url, None).unwrap();
        let Ok(Connected::Http1(connection)) = connect(&target, &UpstreamOptions::default()).await else {
            panic!("an HTTP/1.1 connection");
        };
        (connection, listener.accept().await.unwrap().0)
    }

    #[tokio::test]
    async fn a_request_on_a_connection_that_was_closed_comes_back_at_once() {
        for reset in [false, true] {
            let (mut connection, peer) = pair().await;
            if reset {
                peer.set_zero_linger().unwrap();
            }
            drop(peer);
            // Let the runtime hear of it.
            tokio::time::sleep(Duration::from_millis(20)).await;
            let mut slot = Some(Request::new(Body::from(Bytes::from_static(b"hello"))));
            let sent = tokio::time::timeout(Duration::from_secs(5), connection.send(&mut slot)).await;
            let lost = sent.expect("it does not wait for an answer").expect_err("there is nobody");
            assert!(matches!(lost, Lost::Unsent | Lost::NothingSent(_)), "{lost:?}");
            assert_eq!(slot.is_some(), matches!(lost, Lost::Unsent));
            assert_eq!(connection.wire.written(), 0);
        }
    }
}
