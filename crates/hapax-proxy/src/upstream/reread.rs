//! An answer with more fields than usual is read a second time.
//!
//! hyper reads up to 100 fields on the stack. Told to read more, it takes memory from the heap for every answer, also for one
//! with ten. So a connection begins with hyper's own limit, and the rare answer above it is read again from its first
//! byte, by a second hyper that may use the heap. That one has to believe that it has sent a request: what it writes goes
//! nowhere. The connection is not used again.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::connect::{Stream, reader};
use crate::Body;

/// Twice what a record holds. An answer with more is not read.
pub(super) const FIELDS_MAX: usize = 2 * hapax_core::limits::HEADER_COUNT_MAX;

/// See the module.
#[derive(Debug)]
pub(super) struct Reread {
    stream: Stream,
    /// What was read of the answer already.
    early: Bytes,
    /// Whether the second hyper believes that it has sent a request. Before that it takes an answer for an error.
    asked: bool,
}

/// The sender and the driver of a connection.
type Halves = (http1::SendRequest<Body>, http1::Connection<TokioIo<Stream>, Body>);

/// A second look at the answer that the first hyper could not read; the next request on it gets that answer, and is not sent.
pub(super) async fn again(driver: http1::Connection<TokioIo<Stream>, Body>) -> hyper::Result<Halves> {
    let parts = driver.into_parts();
    let reread = Reread { stream: parts.io.into_inner(), early: parts.read_buf, asked: false };
    reader().max_headers(FIELDS_MAX).handshake(TokioIo::new(Stream::Reread(Box::new(reread)))).await
}

impl AsyncRead for Reread {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.asked {
            // It is asked right after this.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if this.early.is_empty() {
            return Pin::new(&mut this.stream).poll_read(cx, buf);
        }
        let count = this.early.len().min(buf.remaining());
        buf.put_slice(&this.early[..count]);
        this.early.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Reread {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.get_mut().asked = true;
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
