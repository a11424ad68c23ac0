//! A client's connection as hyper sees it: only well-formed requests, and nobody who waits for ever.
//!
//! Heads are held back until they are complete and checked. In place of one that must not pass, hyper is given a
//! harmless one, which the service recognises by its number and answers with the refusal; after it nothing more is read.
//! While a request asks to leave HTTP, nothing behind it is let through before the answer decides what it is.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use http::HeaderName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until, timeout_at};

use super::shared::Shared;
use super::{ListenOptions, Protocol};
use crate::framing::{Framing, Stop};
use crate::pace::Pace;
use crate::{problem, request_id};

/// Stands for a head that was refused, without its end: the field with the request's id may follow.
const REFUSED_HEAD: &[u8] = b"GET / HTTP/1.1\r\nhost: refused\r\n";
/// What an HTTP/2 client says first.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Room for the first head of most clients.
const FIRST_READ_BYTES: usize = 1024;
/// How much more of a refused request is read, so that the answer is not lost in a reset.
const LINGER_BYTES_MAX: usize = 1024 * 1024;
/// For how long.
const LINGER: Duration = Duration::from_secs(1);

/// A client that is so far behind in taking an answer may lose its place to somebody who wants one.
const STUCK_AFTER: Duration = Duration::from_secs(2);

/// See the module.
pub(super) struct Guarded<T> {
    inner: T,
    shared: Arc<Shared>,
    mode: Mode,
    /// Checked, to be given to hyper.
    ready: BytesMut,
    /// Not checked, or not complete.
    held: BytesMut,
    /// Whether `held` has not been looked at yet.
    unchecked: bool,
    head_time: Duration,
    idle_time: Duration,
    write_time: Duration,
    /// Since when the client owes us something.
    since: Instant,
    /// When its times were last looked at.
    looked: Instant,
    /// How many answers had been given by then.
    answered: u64,
    timer: Option<Pin<Box<Sleep>>>,
    write_timer: Option<Pin<Box<Sleep>>>,
    /// How much of its time for taking answers the client has left.
    write_pace: Pace,
    /// How many pieces of answers an HTTP/2 client had taken, and when that was new.
    taking: Option<(u64, Instant)>,
    linger: Option<(Pin<Box<Sleep>>, usize)>,
    request_id_header: HeaderName,
}

enum Mode {
    /// HTTP/1, checked.
    Framed(Framing),
    /// HTTP/1, after a request that asks to leave it.
    Undecided(Framing),
    /// HTTP/2, or a tunnel.
    Raw,
    /// Nothing more is read: the last head was refused.
    Refused,
    /// Nothing more is read: the body cannot be followed.
    Malformed,
    /// The client has sent all it will send.
    Gone,
}

impl<T: AsyncRead + AsyncWrite + Unpin> Guarded<T> {
    pub(super) fn new(inner: T, shared: Arc<Shared>, options: &ListenOptions) -> Self {
        Self {
            inner,
            shared,
            mode: Mode::Framed(Framing::new(options.head_limits())),
            ready: BytesMut::new(),
            held: BytesMut::new(),
            unchecked: true,
            head_time: options.head_time,
            idle_time: options.idle_time,
            write_time: options.write_time,
            since: Instant::now(),
            looked: Instant::now(),
            answered: 0,
            timer: None,
            write_timer: None,
            write_pace: Pace::new(options.write_time, options.write_rate_min),
            taking: None,
            linger: None,
            request_id_header: options.request_id_header.clone(),
        }
    }

    /// Finds out what the client speaks, from its first bytes. None if it leaves without a word.
    pub(super) async fn detect(&mut self) -> io::Result<Option<Protocol>> {
        loop {
            let known = self.held.len().min(PREFACE.len());
            if self.held[..known] != PREFACE[..known] {
                return Ok(Some(Protocol::Http1));
            }
            if known == PREFACE.len() {
                return Ok(Some(Protocol::Http2));
            }
            self.held.reserve(FIRST_READ_BYTES);
            if self.inner.read_buf(&mut self.held).await? == 0 {
                return Ok((known > 0).then_some(Protocol::Http1));
            }
        }
    }

    /// Waits for the next request without any buffer. False where there will be none.
    pub(super) async fn rest(&mut self) -> bool {
        (self.timer, self.write_timer) = (None, None);
        let mut first = [0];
        let read = timeout_at(self.since + self.idle_time, self.inner.read(&mut first)).await;
        let began = matches!(read, Ok(Ok(1)));
        if began {
            self.since = Instant::now();
            self.held.extend_from_slice(&first);
            self.unchecked = true;
        }
        began
    }

    /// What hyper had read and not used.
    pub(super) fn take_back(&mut self, unused: &[u8]) {
        self.ready.extend_from_slice(unused);
    }

    /// Whether the client has sent nothing that waits here, and takes what it is sent.
    fn is_quiet(&self) -> bool {
        let between_requests = matches!(&self.mode, Mode::Framed(framing) if framing.is_between_requests());
        between_requests && self.held.is_empty() && self.ready.is_empty() && self.write_timer.is_none()
    }

    /// From now on, everything passes unchecked.
    fn speak_raw(&mut self) {
        self.mode = Mode::Raw;
        self.ready.unsplit(self.held.split());
    }

    /// For a client that was found to speak HTTP/2.
    pub(super) fn raw(mut self) -> Self {
        self.speak_raw();
        self
    }

    /// Gives what is ready; true if there was something.
    fn give(&mut self, buf: &mut ReadBuf<'_>) -> bool {
        let count = self.ready.len().min(buf.remaining());
        buf.put_slice(&self.ready[..count]);
        self.ready.advance(count);
        if self.ready.is_empty() && self.ready.capacity() > 0 {
            self.ready = BytesMut::new();
        }
        count > 0
    }

    /// Checks what is held, and moves to `ready` what may pass.
    fn check_held(&mut self) {
        let Mode::Framed(framing) = &mut self.mode else { return };
        let (passed, stop) = framing.advance(&self.held);
        let ready = self.held.split_to(passed);
        self.ready.unsplit(ready);
        if self.held.is_empty() {
            // An idle connection keeps no memory for it.
            self.held = BytesMut::new();
        }
        self.stop(stop);
    }

    /// Reads into `buf` what may pass, without a copy; what may not is taken out of it again.
    fn check_in_place(&mut self, buf: &mut ReadBuf<'_>, before: usize) {
        let Mode::Framed(framing) = &mut self.mode else { return };
        let new = &buf.filled()[before..];
        let (passed, stop) = framing.advance(new);
        self.held.extend_from_slice(&new[passed..]);
        buf.set_filled(before + passed);
        self.stop(stop);
    }

    fn stop(&mut self, stop: Stop) {
        match stop {
            Stop::NoMore | Stop::Partial => {}
            Stop::Upgrade => {
                if let Mode::Framed(framing) = std::mem::replace(&mut self.mode, Mode::Gone) {
                    self.mode = Mode::Undecided(framing);
                    self.shared.set_undecided(true);
                }
            }
            Stop::Refused(problem) => {
                let heads = if let Mode::Framed(framing) = &self.mode { framing.heads() } else { 0 };
                self.shared.refuse(heads, problem);
                self.stand_in();
                self.mode = Mode::Refused;
            }
            // What came before it may still be read.
            Stop::Malformed => self.mode = Mode::Malformed,
        }
    }

    /// Puts a harmless head in the place of the refused one, which is held, with the id that it gave its request.
    fn stand_in(&mut self) {
        self.ready.extend_from_slice(REFUSED_HEAD);
        if let Some(id) = request_id::of_refused(&self.held, &self.request_id_header) {
            for part in [self.request_id_header.as_str(), ": ", id, "\r\n"] {
                self.ready.extend_from_slice(part.as_bytes());
            }
        }
        self.ready.extend_from_slice(b"\r\n");
    }

    /// True if the answer to the request that asked to leave HTTP has been given.
    fn decide(&mut self) -> bool {
        if self.shared.is_tunnel() {
            self.speak_raw();
            return true;
        }
        let decided = matches!(&self.mode, Mode::Undecided(framing) if self.shared.answered() >= framing.heads());
        if decided && let Mode::Undecided(framing) = std::mem::replace(&mut self.mode, Mode::Gone) {
            self.mode = Mode::Framed(framing);
            self.unchecked = true;
            self.shared.set_undecided(false);
        }
        decided
    }

    /// Called when the client sent nothing: has it taken too long?
    fn poll_patience(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let Some(next_look) = self.next_look() else { return Poll::Pending };
            let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(next_look)));
            // A timer that comes too early is cheaper than one that is set again for every request.
            if timer.is_elapsed() || timer.deadline() > next_look {
                timer.as_mut().reset(next_look);
            }
            ready!(timer.as_mut().poll(cx));
            if self.has_had_enough() {
                return self.give_up();
            }
        }
    }

    /// When to look again whether the client keeps its times.
    fn next_look(&self) -> Option<Instant> {
        let deadline = self.deadline()?;
        let is_raw = matches!(self.mode, Mode::Raw);
        Some(if is_raw { deadline.min(self.looked + self.write_time) } else { deadline })
    }

    /// When the client will have been idle or slow for too long.
    fn deadline(&self) -> Option<Instant> {
        match &self.mode {
            Mode::Framed(framing) if framing.is_between_requests() => Some(self.since + self.idle_time),
            // A body's time is kept by whoever reads it.
            Mode::Framed(_) if self.held.is_empty() => None,
            Mode::Framed(_) => Some(self.since + self.head_time),
            Mode::Raw if !self.shared.is_tunnel() => Some(self.since + self.idle_time),
            Mode::Raw | Mode::Undecided(_) | Mode::Refused | Mode::Malformed | Mode::Gone => None,
        }
    }

    fn has_had_enough(&mut self) -> bool {
        let now = Instant::now();
        self.looked = now;
        // An HTTP/2 connection has a life of its own, with pings; only requests count.
        let answered = self.shared.answered();
        if self.shared.is_busy() || (matches!(self.mode, Mode::Raw) && answered != self.answered) {
            self.answered = answered;
            self.since = now;
            return self.is_stalled(now);
        }
        self.deadline().is_some_and(|deadline| now >= deadline)
    }

    /// Whether an HTTP/2 client has taken nothing of any answer for too long. Its connection does not show it: that is
    /// alive, while the streams are held up by their own windows.
    fn is_stalled(&mut self, now: Instant) -> bool {
        let taking = self.shared.taking().filter(|_| matches!(self.mode, Mode::Raw));
        match (taking, self.taking) {
            (Some(taken), Some((before, when))) if taken == before => now >= when + self.write_time,
            (taken, _) => {
                self.taking = taken.map(|taken| (taken, now));
                false
            }
        }
    }

    /// A connection without a request is just closed; half a request is told so.
    fn give_up(&mut self) -> Poll<io::Result<()>> {
        match &mut self.mode {
            Mode::Framed(framing) if !self.held.is_empty() => {
                let stop = framing.refuse(problem::REQUEST_TIMEOUT);
                self.stop(stop);
                Poll::Ready(Ok(()))
            }
            _ => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
        }
    }

    /// A client that takes nothing of an answer holds its connection no longer than this.
    fn poll_write_patience<R>(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<R>> {
        self.shared.set_stirring();
        let end = self.write_pace.wait();
        let first = self.write_pace.until_behind(STUCK_AFTER).filter(|_| !self.shared.is_stuck());
        let next = first.unwrap_or(end).min(end);
        let timer = self.write_timer.get_or_insert_with(|| Box::pin(sleep_until(next)));
        while timer.as_mut().poll(cx).is_ready() {
            if timer.deadline() >= end {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            self.shared.set_stuck(true);
            timer.as_mut().reset(end);
        }
        Poll::Pending
    }

    fn wrote(&mut self, result: &io::Result<usize>) {
        self.write_timer = None;
        self.write_pace.progress(*result.as_ref().unwrap_or(&0));
        if self.shared.is_stuck() && !self.write_pace.is_behind(STUCK_AFTER) {
            self.shared.set_stuck(false);
        }
        if matches!(self.mode, Mode::Framed(_)) {
            self.since = Instant::now();
        }
    }

    /// Reads on for a moment: closing with something unread resets the connection, and the client may lose the answer.
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.linger.is_none() {
            self.shared.place.wait_since(Instant::now());
        }
        let (timer, left) =
            self.linger.get_or_insert_with(|| (Box::pin(sleep_until(Instant::now() + LINGER)), LINGER_BYTES_MAX));
        let mut scratch = [0; 4096];
        while *left > 0 && timer.as_mut().poll(cx).is_pending() {
            let mut buf = ReadBuf::new(&mut scratch);
            match ready!(Pin::new(&mut self.inner).poll_read(cx, &mut buf)) {
                Ok(()) if !buf.filled().is_empty() => *left = left.saturating_sub(buf.filled().len()),
                _ => break,
            }
        }
        Poll::Ready(())
    }

    fn poll_read_checked(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        match Pin::new(&mut self.inner).poll_read(cx, buf) {
            Poll::Pending => {
                let head_begun = !self.held.is_empty() && self.write_timer.is_none();
                self.shared.set_quiet(self.is_quiet(), head_begun);
                return self.poll_patience(cx);
            }
            Poll::Ready(result) => result?,
        }
        self.shared.set_stirring();
        if buf.filled().len() == before {
            // The client is gone; what it left behind is no request.
            self.mode = Mode::Gone;
            self.held.clear();
        } else if self.held.is_empty() {
            self.since = Instant::now();
            self.check_in_place(buf, before);
        } else {
            self.held.extend_from_slice(&buf.filled()[before..]);
            buf.set_filled(before);
            self.check_held();
        }
        Poll::Ready(Ok(()))
    }
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "malformed chunks")
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncRead for Guarded<T> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        loop {
            if this.give(buf) {
                return Poll::Ready(Ok(()));
            }
            match &this.mode {
                Mode::Raw => {
                    let read = Pin::new(&mut this.inner).poll_read(cx, buf);
                    return if read.is_pending() { this.poll_patience(cx) } else { read };
                }
                Mode::Undecided(_) => {
                    if !this.decide() {
                        // The answer wakes us.
                        return Poll::Pending;
                    }
                }
                // The answer to the refused head is all that is left to do.
                Mode::Refused => return Poll::Pending,
                Mode::Malformed => return Poll::Ready(Err(malformed())),
                Mode::Gone => return Poll::Ready(Ok(())),
                Mode::Framed(_) if this.unchecked => {
                    this.unchecked = false;
                    this.check_held();
                }
                Mode::Framed(_) => {
                    ready!(this.poll_read_checked(cx, buf))?;
                    if buf.filled().len() > before {
                        return Poll::Ready(Ok(()));
                    }
                }
            }
        }
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Guarded<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        hapax_core::failpoint!("half-answer-sent" => {
            Pin::new(&mut this.inner).poll_write(cx, &bytes[..bytes.len() / 2])
        });
        match Pin::new(&mut this.inner).poll_write(cx, bytes) {
            Poll::Pending => this.poll_write_patience(cx),
            Poll::Ready(result) => {
                this.wrote(&result);
                Poll::Ready(result)
            }
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        hapax_core::failpoint!("half-answer-sent" => {
            let all: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
            Pin::new(&mut this.inner).poll_write(cx, &all[..all.len() / 2])
        });
        match Pin::new(&mut this.inner).poll_write_vectored(cx, slices) {
            Poll::Pending => this.poll_write_patience(cx),
            Poll::Ready(result) => {
                this.wrote(&result);
                Poll::Ready(result)
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        match Pin::new(&mut this.inner).poll_flush(cx) {
            Poll::Pending => this.poll_write_patience(cx),
            Poll::Ready(result) => Poll::Ready(result),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.linger.is_none() {
            ready!(Pin::new(&mut this.inner).poll_shutdown(cx))?;
        }
        let unread = match &this.mode {
            Mode::Framed(framing) => !framing.is_between_requests(),
            Mode::Undecided(_) | Mode::Refused | Mode::Malformed => true,
            Mode::Raw | Mode::Gone => false,
        };
        if unread {
            ready!(this.poll_linger(cx));
        }
        Poll::Ready(Ok(()))
    }
}
