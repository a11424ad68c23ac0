//! The bodies of answers: whole, passed on as they come, or begun here and passed on.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::http::followed::{Followed, Watch};

pin_project! {
    /// The body of an answer of the layer. `B` is the body of the service behind it.
    #[derive(Debug)]
    pub struct AnswerBody<B> {
        #[pin]
        kind: Kind<B>,
    }
}

pin_project! {
    #[project = Parts]
    #[derive(Debug)]
    enum Kind<B> {
        // Known in full: what is left to send, and what follows it.
        Whole { bytes: Option<Bytes>, trailers: Option<HeaderMap> },
        // As the service sends it.
        Passed { #[pin] body: B },
        // Read up to some point, and from there on as the service sends it; somebody wants to know whether it comes to its end.
        Followed { followed: Box<Followed<B>> },
    }
}

impl<B> AnswerBody<B> {
    /// A body that is known in full.
    #[must_use]
    pub fn whole(bytes: Bytes) -> Self {
        Self::with_trailers(bytes, None)
    }

    pub(crate) fn with_trailers(bytes: Bytes, trailers: Option<HeaderMap>) -> Self {
        Self { kind: Kind::Whole { bytes: Some(bytes).filter(|bytes| !bytes.is_empty()), trailers } }
    }

    pub(crate) fn passed(body: B) -> Self {
        Self { kind: Kind::Passed { body } }
    }
}

impl<B: Body<Data = Bytes>> AnswerBody<B> {
    /// `announced`: the length that the head gives.
    pub(crate) fn followed(begun: VecDeque<Bytes>, rest: Pin<Box<B>>, announced: Option<u64>, watch: Watch) -> Self
    where
        B: Send + 'static,
    {
        Self { kind: Kind::Followed { followed: Box::new(Followed::new(begun, rest, announced, watch)) } }
    }
}

impl<B: Body<Data = Bytes>> Body for AnswerBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.project().kind.project() {
            Parts::Whole { bytes, trailers } => {
                let data = bytes.take().map(Frame::data);
                Poll::Ready(data.or_else(|| trailers.take().map(Frame::trailers)).map(Ok))
            }
            Parts::Passed { body } => body.poll_frame(cx),
            Parts::Followed { followed } => followed.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Whole { bytes, trailers } => bytes.is_none() && trailers.is_none(),
            Kind::Passed { body } => body.is_end_stream(),
            Kind::Followed { followed } => followed.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            // A length that is announced leaves no room for trailers.
            Kind::Whole { trailers: Some(_), .. } => SizeHint::default(),
            Kind::Whole { bytes, trailers: None } => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Kind::Passed { body } => body.size_hint(),
            Kind::Followed { followed } => followed.size_hint(),
        }
    }
}
