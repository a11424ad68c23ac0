//! The body of an answer that comes over HTTP/2. It holds its place on the connection until its end.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::RecvStream;
use hapax::http::BodyTimedOut;
use http::HeaderMap;
use http::header::CONTENT_LENGTH;
use http_body::{Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};

use super::link::Stay;
use super::upload::Upload;
use crate::{Body, BodyError};

/// A body that is being received.
struct Download {
    stream: RecvStream,
    /// How much is left, where its head says it. h2 compares it with what comes.
    left: Option<u64>,
    /// All data was read; trailers may follow.
    has_data: bool,
    /// None after the end. What is dropped before it tells the upstream that nobody wants the rest.
    open: Option<(Upload, Arc<Stay>)>,
    timer: Pin<Box<Sleep>>,
}

/// The body of an answer, to be received until then.
pub(super) fn body(
    stream: RecvStream,
    headers: &HeaderMap,
    deadline: Instant,
    upload: Upload,
    stay: Arc<Stay>,
) -> Body {
    if stream.is_end_stream() {
        upload.let_go();
        return Body::empty();
    }
    let length = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let timer = Box::pin(sleep_until(deadline));
    Body::streamed(Download { stream, left: length, has_data: true, open: Some((upload, stay)), timer })
}

impl Download {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if self.has_data {
            match ready!(self.stream.poll_data(cx)) {
                Some(Ok(bytes)) => {
                    // Whoever reads takes it; a stream that is gone needs no room.
                    let _ = self.stream.flow_control().release_capacity(bytes.len());
                    self.left = self.left.map(|left| left.saturating_sub(bytes.len() as u64));
                    return Poll::Ready(Some(Ok(Frame::data(bytes))));
                }
                Some(Err(_)) => return Poll::Ready(Some(Err(BodyError::CutOff))),
                None => self.has_data = false,
            }
        }
        match ready!(self.stream.poll_trailers(cx)) {
            Ok(Some(trailers)) => Poll::Ready(Some(Ok(Frame::trailers(trailers)))),
            // A reset without an error code is no end.
            Ok(None) if self.stream.is_end_stream() => Poll::Ready(None),
            Ok(None) | Err(_) => Poll::Ready(Some(Err(BodyError::CutOff))),
        }
    }
}

impl http_body::Body for Download {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if self.open.is_none() {
            return Poll::Ready(None);
        }
        let next = match self.poll_next(cx) {
            Poll::Ready(next) => next,
            Poll::Pending => {
                ready!(self.timer.as_mut().poll(cx));
                Some(Err(BodyError::TimedOut(BodyTimedOut)))
            }
        };
        match &next {
            Some(Ok(_)) => {}
            Some(Err(_)) => self.open = None,
            None => {
                if let Some((upload, _)) = self.open.take() {
                    upload.let_go();
                }
            }
        }
        Poll::Ready(next)
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
