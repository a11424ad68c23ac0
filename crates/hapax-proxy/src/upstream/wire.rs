//! The socket to the upstream, with an eye on it: how much was written, and whether the other side is still there.
//!
//! hyper owns the stream; we keep a second handle. With it we know that no byte of a request has left, see that an idle
//! connection was closed before we use it, and stop an upstream that sends provisional answers for ever. Here, directly
//! before every system call that writes, the lease of the request is looked at for the last time.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use hapax::http::SendBefore;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;

/// Our handle.
#[derive(Debug)]
pub(super) struct Wire {
    /// Locked by whoever drives the connection, and that is one task at a time.
    line: Mutex<Line>,
    written: AtomicU64,
    /// How many bytes may still be read.
    allowance: AtomicUsize,
    /// The descriptor that it takes.
    _descriptor: Option<OwnedSemaphorePermit>,
}

#[derive(Debug)]
struct Line {
    tcp: TcpStream,
    /// Until when bytes of the request may be written.
    before: Option<SendBefore>,
}

impl Wire {
    pub(super) fn new(tcp: TcpStream, descriptor: Option<OwnedSemaphorePermit>) -> Arc<Self> {
        let (written, allowance) = (AtomicU64::new(0), AtomicUsize::new(usize::MAX));
        Arc::new(Self { line: Mutex::new(Line { tcp, before: None }), written, allowance, _descriptor: descriptor })
    }

    /// A request begins, and may be written until then. Not only its first byte: an upstream acts on the last one.
    pub(super) fn send_before(&self, before: Option<SendBefore>) {
        self.line().before = before;
    }

    /// Bytes that were handed to the system since the connection was made.
    pub(super) fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// No more than this much is read from now on.
    pub(super) fn allow(&self, bytes: usize) {
        self.allowance.store(bytes, Ordering::Relaxed);
    }

    /// Whether the connection is open and silent, as an idle one must be. Asks the system, not the runtime, which may
    /// not have heard of it yet.
    pub(super) fn is_quiet(&self) -> bool {
        let line = self.line();
        let mut byte = [MaybeUninit::uninit()];
        match SockRef::from(&line.tcp).peek(&mut byte) {
            Ok(_) => false,
            Err(error) => error.kind() == io::ErrorKind::WouldBlock,
        }
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Line {
    /// Writes, unless the lease of the request is over.
    fn write(&mut self, write: impl FnOnce(Pin<&mut TcpStream>) -> Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Some(before) = &self.before {
            hapax_core::failpoint!("first-byte");
            if before.is_over() {
                return Poll::Ready(Err(io::Error::other("the lease is over")));
            }
        }
        write(Pin::new(&mut self.tcp))
    }
}

/// hyper's handle.
#[derive(Debug)]
pub(super) struct Socket(pub(super) Arc<Wire>);

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let allowance = self.0.allowance.load(Ordering::Relaxed);
        if allowance == 0 {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, "too much before the answer")));
        }
        let before = buf.filled().len();
        let read = if buf.remaining() <= allowance {
            Pin::new(&mut self.0.line().tcp).poll_read(cx, buf)
        } else {
            let mut rest = ReadBuf::new(buf.initialize_unfilled_to(allowance));
            let read = Pin::new(&mut self.0.line().tcp).poll_read(cx, &mut rest);
            let count = rest.filled().len();
            buf.advance(count);
            read
        };
        if allowance != usize::MAX {
            let count = buf.filled().len() - before;
            self.0.allowance.store(allowance.saturating_sub(count), Ordering::Relaxed);
        }
        read
    }
}

impl Socket {
    fn count(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(count)) = &written {
            self.0.written.fetch_add(*count as u64, Ordering::Relaxed);
        }
        written
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        hapax_core::failpoint!("half-request-sent" => {
            Pin::new(&mut self.0.line().tcp).poll_write(cx, &bytes[..bytes.len() / 2])
        });
        let written = self.0.line().write(|tcp| tcp.poll_write(cx, bytes));
        hapax_core::failpoint!("request-sent");
        self.count(written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        hapax_core::failpoint!("half-request-sent" => {
            let all: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
            Pin::new(&mut self.0.line().tcp).poll_write(cx, &all[..all.len() / 2])
        });
        let written = self.0.line().write(|tcp| tcp.poll_write_vectored(cx, slices));
        hapax_core::failpoint!("request-sent");
        self.count(written)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0.line().tcp).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0.line().tcp).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    /// A connection, and its other end, which acts without the runtime hearing of it.
    async fn pair() -> (Arc<Wire>, std::net::TcpStream) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (Wire::new(stream, None), listener.accept().unwrap().0)
    }

    #[tokio::test]
    async fn a_connection_that_was_closed_this_moment_is_not_quiet() {
        let (wire, peer) = pair().await;
        assert!(wire.is_quiet());
        drop(peer);
        assert!(!wire.is_quiet());
    }

    #[tokio::test]
    async fn a_connection_on_which_something_came_unasked_is_not_quiet() {
        let (wire, mut peer) = pair().await;
        peer.write_all(b"HTTP/1.1 408 Request Timeout\r\n\r\n").unwrap();
        assert!(!wire.is_quiet());
    }
}
