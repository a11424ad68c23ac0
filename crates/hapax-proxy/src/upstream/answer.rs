//! The body of an answer, and the connection it comes on, which is free again only after the last byte of it.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;

use super::exchange::Connection;
use super::pool::Pool;
use crate::{Body, BodyError};

/// A body that is still being received over HTTP/1.1.
pub(crate) struct Answer {
    incoming: Incoming,
    /// Whether all of it was read; what is left to do is up to the connection.
    ended: bool,
    /// None after the end and after an error.
    connection: Option<Box<Connection>>,
    pool: Arc<Pool>,
    /// What was read before anybody asked for it.
    first: Option<Result<Bytes, BodyError>>,
}

/// A frame of a body, its end, or an error.
type Next = Option<Result<Frame<Bytes>, BodyError>>;

impl Answer {
    pub(super) fn new(incoming: Incoming, connection: Box<Connection>, pool: Arc<Pool>) -> Self {
        Self { incoming, ended: false, connection: Some(connection), pool, first: None }
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        let mut hint = self.incoming.size_hint();
        if let (Some(Ok(first)), Some(left)) = (&self.first, hint.exact()) {
            hint.set_exact(left + first.len() as u64);
        }
        hint
    }

    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Next> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(first.map(Frame::data)));
        }
        let Some(connection) = &mut self.connection else { return Poll::Ready(None) };
        if self.ended {
            return self.poll_release(cx).map(|()| None);
        }
        let next = ready!(connection.poll_frame(&mut self.incoming, cx));
        match &next {
            Some(Ok(_)) => {}
            Some(Err(_)) => self.connection = None,
            None => return self.poll_release(cx).map(|()| None),
        }
        Poll::Ready(next)
    }

    /// After the last byte: gives the connection back when the request, too, is at its end.
    fn poll_release(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.ended = true;
        let Some(connection) = &mut self.connection else { return Poll::Ready(()) };
        let is_usable = ready!(connection.poll_settled(cx));
        if let Some(connection) = self.connection.take().filter(|_| is_usable) {
            self.pool.put(connection);
        }
        Poll::Ready(())
    }

    /// The body, whole if it is small and already here, as most are.
    pub(super) fn into_body(mut self, cx: &mut Context<'_>) -> Body {
        if self.incoming.is_end_stream() {
            return match self.poll_release(cx) {
                Poll::Ready(()) => Body::empty(),
                Poll::Pending => Body::answer(Box::new(self)),
            };
        }
        let length = self.incoming.size_hint().exact();
        if length.is_none() {
            return Body::answer(Box::new(self));
        }
        match self.poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                let data = frame.into_data().unwrap_or_default();
                if Some(data.len() as u64) == length && self.poll_release(cx).is_ready() {
                    return Body::from(data);
                }
                self.first = Some(Ok(data));
            }
            Poll::Ready(Some(Err(error))) => self.first = Some(Err(error)),
            Poll::Ready(None) | Poll::Pending => {}
        }
        Body::answer(Box::new(self))
    }
}
