//! One body for both directions, so that a body is passed on without a box around it.
//!
//! It also holds the promise that an end is an end: what broke off, stalled or was malformed shows as an error, also
//! where hyper takes a reset stream for a finished one.

use std::error::Error as StdError;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hapax::http::{BodyMalformed, BodyTimedOut};
use http::HeaderMap;
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep, sleep_until};

use super::headers::{self, ReliedOn};
use super::listen::{Shared, Starving};
use super::pace::Pace;
use super::problem::{self, Problem};
use super::upstream::Answer;

/// A sender that is so far behind its least rate may lose its place to somebody who wants one.
const STARVED_AFTER: Duration = Duration::from_secs(2);

/// A request's or a response's body.
pub struct Body {
    kind: Kind,
}

enum Kind {
    Empty,
    Whole(Bytes),
    Received(Received),
    Answer(Box<Answer>),
    Boxed(Pin<Box<dyn HttpBody<Data = Bytes, Error = BodyError> + Send>>),
}

/// Why a body has no proper end.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// The sender made no progress, or too little, for too long.
    #[error("the body did not arrive in time")]
    TimedOut(#[source] BodyTimedOut),
    /// The framing of the body cannot be understood.
    #[error("the body's framing is malformed")]
    Malformed(#[source] BodyMalformed),
    /// The body ended before its end.
    #[error("the body broke off before its end")]
    CutOff,
    /// A body of another kind failed.
    #[error("the body could not be produced")]
    Other(#[source] Box<dyn StdError + Send + Sync>),
}

impl BodyError {
    /// What to tell a client whose request's body failed in this way.
    pub fn as_problem(&self) -> Problem {
        match self {
            BodyError::TimedOut(_) => problem::REQUEST_TIMEOUT,
            BodyError::Malformed(_) => {
                problem::bad_framing("The body's chunks or trailers are malformed. Send a well-formed request.")
            }
            BodyError::CutOff | BodyError::Other(_) => problem::BODY_CUT_OFF,
        }
    }

    /// The same failure again, without the cause.
    pub(super) fn same(&self) -> Self {
        match self {
            BodyError::TimedOut(_) => BodyError::TimedOut(BodyTimedOut),
            BodyError::Malformed(_) => BodyError::Malformed(BodyMalformed),
            BodyError::CutOff | BodyError::Other(_) => BodyError::CutOff,
        }
    }

    /// Malformed chunks are told from a broken connection by the kind of the error below.
    fn of(error: &hyper::Error) -> Self {
        let cause = error.source().and_then(|source| source.downcast_ref::<std::io::Error>());
        match cause.map(std::io::Error::kind) {
            Some(std::io::ErrorKind::InvalidData | std::io::ErrorKind::InvalidInput) => {
                BodyError::Malformed(BodyMalformed)
            }
            Some(std::io::ErrorKind::TimedOut) => BodyError::TimedOut(BodyTimedOut),
            _ => BodyError::CutOff,
        }
    }
}

impl Body {
    /// No body.
    pub const fn empty() -> Self {
        Self { kind: Kind::Empty }
    }

    /// A body of any other kind.
    pub fn boxed<B>(body: B) -> Self
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn StdError + Send + Sync>>,
    {
        let body = http_body_util::BodyExt::map_err(body, |error| BodyError::Other(error.into()));
        Self { kind: Kind::Boxed(Box::pin(body)) }
    }

    /// What a peer is sending; `multiplexed` if by HTTP/2.
    pub(super) fn received(incoming: Incoming, multiplexed: bool, patience: Patience) -> Self {
        if incoming.is_end_stream() {
            return Self::empty();
        }
        let received = Received {
            incoming,
            multiplexed,
            patience,
            relied_on: None,
            timer: None,
            waiting: false,
            place: None,
            starving: None,
        };
        Self { kind: Kind::Received(received) }
    }

    /// With the connection that it comes on, whose place is given to somebody else if it comes too slowly.
    pub(super) fn with_place(mut self, shared: &Arc<Shared>) -> Self {
        if let Kind::Received(received) = &mut self.kind {
            received.place = Some(Arc::clone(shared));
        }
        self
    }

    /// With the rules of the head for what follows the body of a request.
    pub(super) fn with_trailers_checked(mut self, relied_on: &ReliedOn) -> Self {
        if let Kind::Received(received) = &mut self.kind {
            received.relied_on = Some(Arc::clone(relied_on));
        }
        self
    }

    /// Whether all of it is here, so that sending it depends on nobody but the receiver.
    pub(super) fn is_whole(&self) -> bool {
        matches!(self.kind, Kind::Whole(_))
    }

    /// All of it, where it is here.
    pub(super) fn take_whole(&mut self) -> Option<Bytes> {
        match std::mem::replace(&mut self.kind, Kind::Empty) {
            Kind::Empty => Some(Bytes::new()),
            Kind::Whole(bytes) => Some(bytes),
            other => {
                self.kind = other;
                None
            }
        }
    }

    /// What an HTTP/2 upstream is sending.
    pub(super) fn streamed(body: impl HttpBody<Data = Bytes, Error = BodyError> + Send + 'static) -> Self {
        Self { kind: Kind::Boxed(Box::pin(body)) }
    }

    pub(super) fn answer(answer: Box<Answer>) -> Self {
        Self { kind: Kind::Answer(answer) }
    }
}

impl Default for Body {
    fn default() -> Self {
        Self::empty()
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self { kind: if bytes.is_empty() { Kind::Empty } else { Kind::Whole(bytes) } }
    }
}

/// For a body whose sender may take the time it likes.
impl From<Incoming> for Body {
    fn from(incoming: Incoming) -> Self {
        Self::received(incoming, false, Patience::Endless)
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match &self.kind {
            Kind::Empty => "empty",
            Kind::Whole(_) => "whole",
            Kind::Received(_) => "received",
            Kind::Answer(_) => "answer",
            Kind::Boxed(_) => "boxed",
        };
        f.debug_tuple("Body").field(&kind).finish()
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut self.kind {
            Kind::Empty => Poll::Ready(None),
            Kind::Whole(bytes) => {
                let bytes = std::mem::take(bytes);
                self.kind = Kind::Empty;
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            Kind::Received(received) => received.poll_frame(cx),
            Kind::Answer(answer) => answer.poll_frame(cx),
            Kind::Boxed(body) => body.as_mut().poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Empty => true,
            Kind::Whole(_) => false,
            Kind::Received(received) => received.incoming.is_end_stream(),
            // Its connection is given back at the end, so the end must be asked for.
            Kind::Answer(_) => false,
            Kind::Boxed(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Empty => SizeHint::with_exact(0),
            Kind::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Kind::Received(received) => received.incoming.size_hint(),
            Kind::Answer(answer) => answer.size_hint(),
            Kind::Boxed(body) => body.size_hint(),
        }
    }
}

/// How long a sender may take.
#[derive(Debug, Clone, Copy)]
pub(super) enum Patience {
    /// As long as it likes.
    Endless,
    /// As its pace allows.
    Paced(Pace),
}

impl Patience {
    /// The sender is waited for: until when?
    fn wait(&mut self) -> Option<Instant> {
        match self {
            Patience::Endless => None,
            Patience::Paced(pace) => Some(pace.wait()),
        }
    }

    /// When the sender will be far behind; none if it is not paced.
    fn until_starved(&self) -> Option<Instant> {
        match self {
            Patience::Paced(pace) => pace.until_behind(STARVED_AFTER),
            Patience::Endless => None,
        }
    }
}

struct Received {
    incoming: Incoming,
    /// Whether the end must be checked: after a reset without an error code, hyper's HTTP/2 body just ends.
    multiplexed: bool,
    patience: Patience,
    /// Of a request: by which fields the configuration goes. Its trailers are checked.
    relied_on: Option<ReliedOn>,
    /// Made when we first wait, and used again.
    timer: Option<Pin<Box<Sleep>>>,
    /// Whether the timer is set for what we wait for now.
    waiting: bool,
    /// Of a request: the connection it comes on.
    place: Option<Arc<Shared>>,
    /// While it is far behind its least rate.
    starving: Option<Starving>,
}

impl Received {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        loop {
            let Poll::Ready(frame) = Pin::new(&mut self.incoming).poll_frame(cx) else { return self.poll_timer(cx) };
            self.waiting = false;
            self.progress(frame.as_ref());
            let frame = self.checked(frame);
            // Trailers of which nothing is left are none.
            let is_nothing = |frame: &Frame<Bytes>| frame.trailers_ref().is_some_and(HeaderMap::is_empty);
            if !frame.as_ref().is_some_and(|frame| frame.as_ref().is_ok_and(is_nothing)) {
                return Poll::Ready(frame);
            }
        }
    }

    fn checked(&self, frame: Option<Result<Frame<Bytes>, hyper::Error>>) -> Option<Result<Frame<Bytes>, BodyError>> {
        match frame {
            Some(Ok(mut frame)) => {
                if let (Some(relied_on), Some(trailers)) = (&self.relied_on, frame.trailers_mut()) {
                    headers::arrive_late(trailers, relied_on);
                }
                Some(Ok(frame))
            }
            Some(Err(error)) => Some(Err(BodyError::of(&error))),
            None if self.multiplexed && !self.incoming.is_end_stream() => Some(Err(BodyError::CutOff)),
            None => None,
        }
    }

    fn progress(&mut self, frame: Option<&Result<Frame<Bytes>, hyper::Error>>) {
        let Patience::Paced(pace) = &mut self.patience else { return };
        let bytes = frame.and_then(|frame| frame.as_ref().ok()?.data_ref()).map_or(0, Bytes::len);
        pace.progress(bytes);
        if frame.is_none() || !pace.is_behind(STARVED_AFTER) {
            self.starving = None;
        }
    }

    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Some(end) = self.patience.wait() else { return Poll::Pending };
        let is_watched = self.place.is_some() && self.starving.is_none();
        let first = self.patience.until_starved().filter(|_| is_watched).unwrap_or(end);
        if !self.waiting {
            match &mut self.timer {
                Some(timer) => timer.as_mut().reset(first.min(end)),
                None => self.timer = Some(Box::pin(sleep_until(first.min(end)))),
            }
            self.waiting = true;
        }
        let Some(timer) = &mut self.timer else { return Poll::Pending };
        while timer.as_mut().poll(cx).is_ready() {
            if timer.deadline() >= end {
                return Poll::Ready(Some(Err(BodyError::TimedOut(BodyTimedOut))));
            }
            self.starving = self.place.as_ref().map(Starving::new);
            timer.as_mut().reset(end);
        }
        Poll::Pending
    }
}
