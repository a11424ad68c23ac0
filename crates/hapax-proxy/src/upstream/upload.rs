//! The body of a request on its way to an HTTP/2 upstream.
//!
//! A small one that is all here is handed over at once. Any other is sent as the upstream takes it, by a task of its own,
//! since an upstream may answer before it has read everything. That one looks at the lease before every piece: an upstream
//! acts on the last byte, and must not get it late.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::{Reason, SendStream};
use hapax::http::SendBefore;
use http_body::Body as _;
use http_body_util::BodyExt;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use super::link::Stay;
use crate::{Body, BodyError};

/// A body up to this length fits into the window that every upstream begins with.
const AT_ONCE_BYTES_MAX: usize = 16 * 1024;

/// A body on its way. Dropped, it stops there, and the upstream is told that the request is given up.
pub(super) struct Upload {
    task: Option<AbortHandle>,
    /// Told when the client's body fails.
    failed: Option<oneshot::Receiver<BodyError>>,
}

/// Begins to send.
pub(super) fn begin(
    mut body: Body,
    mut stream: SendStream<Bytes>,
    before: Option<SendBefore>,
    stay: &Arc<Stay>,
) -> Upload {
    let body = match body.take_whole() {
        Some(bytes) if bytes.len() <= AT_ONCE_BYTES_MAX => {
            // Where the stream has failed, whoever waits for the answer is told.
            let _ = stream.send_data(bytes, true);
            return Upload::none();
        }
        Some(bytes) => Body::from(bytes),
        None => body,
    };
    let (tell, failed) = oneshot::channel();
    let stay = Arc::clone(stay);
    let task = tokio::spawn(async move {
        if let Err(error) = send(body, &mut stream, before.as_ref()).await {
            stream.send_reset(Reason::CANCEL);
            // Nobody waits for it any longer.
            let _ = tell.send(error);
        }
        drop((stream, stay));
    });
    Upload { task: Some(task.abort_handle()), failed: Some(failed) }
}

/// Sends all of it, or as much as the upstream takes. Only a failure of the body itself is one.
async fn send(body: Body, stream: &mut SendStream<Bytes>, before: Option<&SendBefore>) -> Result<(), BodyError> {
    let mut body = pin!(body);
    while let Some(frame) = body.frame().await {
        match frame?.into_data() {
            Ok(bytes) => {
                if !send_piece(bytes, stream, before).await {
                    return Ok(());
                }
            }
            Err(frame) => {
                let trailers = frame.into_trailers().unwrap_or_default();
                let _ = stream.send_trailers(trailers);
                return Ok(());
            }
        }
        if body.is_end_stream() {
            break;
        }
    }
    let _ = stream.send_data(Bytes::new(), true);
    Ok(())
}

/// False when the upstream takes no more, or must not get more.
async fn send_piece(mut bytes: Bytes, stream: &mut SendStream<Bytes>, before: Option<&SendBefore>) -> bool {
    while !bytes.is_empty() {
        stream.reserve_capacity(bytes.len());
        let capacity = poll_fn(|cx| {
            if stream.capacity() > 0 {
                return Poll::Ready(Some(stream.capacity()));
            }
            if stream.poll_reset(cx).is_ready() {
                return Poll::Ready(None);
            }
            stream.poll_capacity(cx).map(|capacity| capacity.and_then(Result::ok))
        });
        let Some(capacity) = capacity.await else { return false };
        if before.is_some_and(SendBefore::is_over) {
            stream.send_reset(Reason::CANCEL);
            return false;
        }
        let piece = bytes.split_to(capacity.min(bytes.len()));
        if stream.send_data(piece, false).is_err() {
            return false;
        }
    }
    true
}

impl Upload {
    /// Nothing is left to send.
    pub(super) fn none() -> Self {
        Self { task: None, failed: None }
    }

    /// The failure of the client's body, when there is one.
    pub(super) fn poll_failure(&mut self, cx: &mut Context<'_>) -> Poll<BodyError> {
        let Some(failed) = &mut self.failed else { return Poll::Pending };
        match Pin::new(failed).poll(cx) {
            Poll::Ready(Ok(error)) => Poll::Ready(error),
            Poll::Ready(Err(_)) => {
                self.failed = None;
                Poll::Pending
            }
            Poll::Pending => Poll::Pending,
        }
    }

    /// The failure that there has been.
    pub(super) fn failure(&mut self) -> Option<BodyError> {
        self.failed.as_mut()?.try_recv().ok()
    }

    /// The answer is complete; what is left is sent as long as the upstream takes it.
    pub(super) fn let_go(mut self) {
        self.task = None;
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}
