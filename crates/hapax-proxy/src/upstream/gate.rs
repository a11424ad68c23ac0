//! The frames that leave for an HTTP/2 upstream, looked at on their way out.
//!
//! h2 queues a request until the upstream lets it open a stream, and sends it even after everybody has lost interest (a
//! stream must be opened before it can be reset). So only whoever sees the bytes leave knows what has left. This gate stands
//! between h2 and the socket: it knows of which streams a byte may be out, and it lets no request out that was withdrawn or
//! whose lease is over. A frame cannot be left out of a connection, so the connection ends there; that is rare, because
//! nobody hands h2 a request before there is room for its stream.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use hapax::http::SendBefore;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What a client sends before its first frame (RFC 9113, 3.4).
const PREFACE_BYTES: usize = 24;
/// The type of a frame that opens a stream, or ends one with trailers.
const HEADERS: u8 = 1;

/// What is known of the frames of one connection.
#[derive(Debug, Default)]
pub(super) struct Gate(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    frames: Frames,
    /// The last stream of which a byte may have left.
    begun: u32,
    /// Streams that were handed to h2 and of which nothing has left, in the order of their numbers.
    waiting: VecDeque<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    stream: u32,
    before: Option<SendBefore>,
    withdrawn: bool,
}

impl Gate {
    /// A stream is about to be handed to h2. Streams are announced in the order of their numbers.
    pub(super) fn announce(&self, stream: u32, before: Option<SendBefore>) {
        self.state().waiting.push_back(Waiting { stream, before, withdrawn: false });
    }

    /// The stream was not handed to h2 after all.
    pub(super) fn forget(&self, stream: u32) {
        self.state().waiting.retain(|waiting| waiting.stream != stream);
    }

    /// Takes a stream back. True if nothing of it has left; nothing of it ever will then.
    pub(super) fn withdraw(&self, stream: u32) -> bool {
        let mut state = self.state();
        if state.begun >= stream {
            return false;
        }
        match state.waiting.iter_mut().find(|waiting| waiting.stream == stream) {
            Some(waiting) => waiting.withdrawn = true,
            None => state.waiting.push_back(Waiting { stream, before: None, withdrawn: true }),
        }
        true
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// How many of these bytes may leave: those before the first request that must not.
    fn allowed(&mut self, bytes: &[u8]) -> usize {
        let (mut frames, mut allowed) = (self.frames, bytes.len());
        frames.read(bytes, |start, stream| {
            let may_leave = self.may_leave(stream);
            if !may_leave {
                allowed = start;
            }
            may_leave
        });
        allowed
    }

    fn may_leave(&mut self, stream: u32) -> bool {
        if stream <= self.begun {
            return true;
        }
        let Some(waiting) = self.waiting.iter_mut().find(|waiting| waiting.stream == stream) else { return true };
        waiting.withdrawn |= waiting.before.as_ref().is_some_and(SendBefore::is_over);
        !waiting.withdrawn
    }

    /// These bytes have left.
    fn advance(&mut self, bytes: &[u8]) {
        let (mut frames, mut begun) = (self.frames, self.begun);
        frames.read(bytes, |_, stream| {
            begun = begun.max(stream);
            true
        });
        self.frames = frames;
        if begun > self.begun {
            self.begun = begun;
            self.waiting.retain(|waiting| waiting.stream > begun);
        }
    }
}

/// Finds frames in a stream of bytes that comes in pieces.
#[derive(Clone, Copy, Debug)]
struct Frames {
    /// Bytes until the next frame.
    skip: usize,
    head: [u8; 9],
    /// How much of that head is there.
    filled: usize,
}

impl Default for Frames {
    fn default() -> Self {
        Self { skip: PREFACE_BYTES, head: [0; 9], filled: 0 }
    }
}

impl Frames {
    /// Tells where each frame of type HEADERS begins, and its stream, until it is told to stop. One that began in the piece
    /// before begins at 0.
    fn read(&mut self, bytes: &[u8], mut found: impl FnMut(usize, u32) -> bool) {
        let mut at = 0;
        loop {
            let step = self.skip.min(bytes.len() - at);
            (self.skip, at) = (self.skip - step, at + step);
            let start = at.saturating_sub(self.filled);
            let count = (self.head.len() - self.filled).min(bytes.len() - at);
            self.head[self.filled..self.filled + count].copy_from_slice(&bytes[at..at + count]);
            (self.filled, at) = (self.filled + count, at + count);
            if self.filled < self.head.len() {
                return;
            }
            let [length_2, length_1, length_0, kind, _, stream @ ..] = self.head;
            self.skip = u32::from_be_bytes([0, length_2, length_1, length_0]) as usize;
            self.filled = 0;
            // The highest bit of a stream's number means nothing.
            if kind == HEADERS && !found(start, u32::from_be_bytes(stream) & (u32::MAX >> 1)) {
                return;
            }
        }
    }
}

/// A connection whose frames are looked at.
#[derive(Debug)]
pub(super) struct Gated<T> {
    io: T,
    gate: Arc<Gate>,
}

impl<T> Gated<T> {
    pub(super) fn new(io: T, gate: Arc<Gate>) -> Self {
        Self { io, gate }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Gated<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Gated<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let mut state = this.gate.state();
        let allowed = state.allowed(bytes);
        if allowed == 0 && !bytes.is_empty() {
            return Poll::Ready(Err(io::Error::other("a request must not leave any more")));
        }
        let written = ready!(Pin::new(&mut this.io).poll_write(cx, &bytes[..allowed]))?;
        state.advance(&bytes[..written]);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::AsyncWriteExt;

    use super::*;

    /// Two pieces of data with a stream's head between them.
    fn frames(stream: u8) -> Vec<u8> {
        let settings = [0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 1];
        let head = [0, 0, 2, HEADERS, 4, 0x80, 0, 0, stream, 0x82, 0x84];
        // A payload that looks like a head.
        let data = [0, 0, 9, 0, 1, 0, 0, 0, stream, 0, 0, 0, HEADERS, 0, 0, 0, 0, 99];
        [&settings[..], &head, &data].concat()
    }

    const PREFACE: [u8; PREFACE_BYTES] = *b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

    #[tokio::test]
    async fn a_stream_has_begun_when_its_head_has_left_however_the_bytes_are_cut() {
        for cut in 1..60 {
            let gate = Arc::new(Gate::default());
            let mut out = Gated::new(Vec::new(), Arc::clone(&gate));
            let bytes = [&PREFACE[..], &frames(1), &frames(3)].concat();
            gate.announce(1, None);
            for piece in bytes.chunks(cut) {
                out.write_all(piece).await.unwrap();
            }
            assert_eq!(out.io, bytes);
            assert!(!gate.withdraw(1) && !gate.withdraw(3), "{cut}");
            assert!(gate.withdraw(5) && gate.withdraw(99), "{cut}: what looks like a head in a payload is none");
        }
    }

    #[tokio::test]
    async fn what_was_withdrawn_or_is_late_does_not_leave_and_what_is_before_it_does() {
        for late in [false, true] {
            for cut in 1..60 {
                let gate = Arc::new(Gate::default());
                let mut out = Gated::new(Vec::new(), Arc::clone(&gate));
                let (first, second) = ([&PREFACE[..], &frames(1)].concat(), frames(3));
                gate.announce(1, Some(SendBefore::after(Duration::from_secs(60))));
                gate.announce(3, late.then(|| SendBefore::after(Duration::ZERO)));
                assert!(late || gate.withdraw(3));
                let bytes = [&first[..], &second].concat();
                let mut failed = false;
                for piece in bytes.chunks(cut) {
                    failed |= out.write_all(piece).await.is_err();
                    if failed {
                        break;
                    }
                }
                assert!(failed, "{cut}");
                // The settings may leave, and of a head that came in pieces the pieces before it was known.
                let head_ends = first.len() + 15 + 9;
                assert!(out.io.len() >= first.len() && out.io.len() < head_ends, "{cut}: {} bytes", out.io.len());
                assert!(gate.withdraw(3) && !gate.withdraw(1), "{cut}");
            }
        }
    }
}
