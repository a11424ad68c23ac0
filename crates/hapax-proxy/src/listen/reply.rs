//! The body of an answer: the service's, or our refusal; while it lives, the connection is not idle.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hapax::http::Occupied;
use http_body::{Body as HttpBody, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::shared::Shared;
use crate::Body;

/// Counts a request as open until it is dropped.
pub(super) struct Open {
    shared: Arc<Shared>,
    /// Its room among the requests at one time.
    room: Option<Occupied>,
    /// What the client has to take: the head or a piece of the answer, in bytes.
    offered: Option<u64>,
}

impl Open {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        shared.begin();
        Self { shared: Arc::clone(shared), room: None, offered: None }
    }

    pub(super) fn hold(&mut self, room: Occupied) {
        self.room = Some(room);
    }

    /// What was offered before is taken, and this is offered next.
    fn offer(&mut self, offered: Option<u64>) {
        if let Some(bytes) = self.offered {
            self.shared.take(bytes);
        }
        if offered.is_some() {
            self.shared.offer();
        }
        self.offered = offered;
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.offer(None);
        self.shared.end();
    }
}

pin_project! {
    /// See the module.
    pub(super) struct Reply<B> {
        #[pin]
        kind: Kind<B>,
        open: Open,
    }
}

pin_project! {
    #[project = KindProjected]
    enum Kind<B> {
        Service { #[pin] body: B },
        Refusal { #[pin] body: Body },
    }
}

impl<B> Reply<B> {
    pub(super) fn service(body: B, mut open: Open) -> Self {
        open.offer(Some(1));
        Self { kind: Kind::Service { body }, open }
    }

    pub(super) fn refusal(body: Body, mut open: Open) -> Self {
        open.offer(Some(1));
        Self { kind: Kind::Refusal { body }, open }
    }
}

/// A boxed error, as hyper takes it.
type Error = Box<dyn std::error::Error + Send + Sync>;

impl<B> HttpBody for Reply<B>
where
    B: HttpBody<Data = Bytes>,
    B::Error: Into<Error>,
{
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = self.project();
        this.open.offer(None);
        let frame = match this.kind.project() {
            KindProjected::Service { body } => ready!(body.poll_frame(cx)).map(|frame| frame.map_err(Into::into)),
            KindProjected::Refusal { body } => ready!(body.poll_frame(cx)).map(|frame| frame.map_err(Into::into)),
        };
        if let Some(Ok(frame)) = &frame {
            this.open.offer(Some(frame.data_ref().map_or(1, |data| data.len().max(1) as u64)));
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Service { body } => body.is_end_stream(),
            Kind::Refusal { body } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Service { body } => body.size_hint(),
            Kind::Refusal { body } => body.size_hint(),
        }
    }
}
