//! The body of an answer: the service's, or our refusal; while it lives, the connection is not idle.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hapax::http::Occupied;
use http_body::{Body as HttpBody, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::shared::Shared;
use crate::proxy::Body;

/// Counts a request as open until it is dropped.
pub(super) struct Open {
    shared: Arc<Shared>,
    /// Its room among the requests at one time.
    room: Option<Occupied>,
    /// Whether the client has a piece of the answer to take.
    offered: bool,
}

impl Open {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        shared.begin();
        Self { shared: Arc::clone(shared), room: None, offered: false }
    }

    pub(super) fn hold(&mut self, room: Occupied) {
        self.room = Some(room);
    }

    fn offer(&mut self, offered: bool) {
        match (self.offered, offered) {
            (false, true) => self.shared.offer(),
            (true, false) => self.shared.take(),
            _ => {}
        }
        self.offered = offered;
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.offer(false);
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
    pub(super) fn service(body: B, open: Open) -> Self {
        Self { kind: Kind::Service { body }, open }
    }

    pub(super) fn refusal(body: Body, open: Open) -> Self {
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
        this.open.offer(false);
        let frame = match this.kind.project() {
            KindProjected::Service { body } => ready!(body.poll_frame(cx)).map(|frame| frame.map_err(Into::into)),
            KindProjected::Refusal { body } => ready!(body.poll_frame(cx)).map(|frame| frame.map_err(Into::into)),
        };
        this.open.offer(matches!(frame, Some(Ok(_))));
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
