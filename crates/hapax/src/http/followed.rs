//! The body of an answer that leaves its key free, and is too large to be read before anybody gets it.
//!
//! Only a complete answer frees a key, and what is passed on is complete when its end has come. So the attempt keeps its
//! lease meanwhile, is told of the end, and records it before the client sees it: the last of the body is held back until
//! then. A body that breaks off, or that nobody reads to its end, is never told, and its key is in doubt.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::oneshot;

/// The body's side: tells of the end, and hears when it is recorded.
#[derive(Debug)]
pub(crate) struct Watch {
    ended: oneshot::Sender<()>,
    recorded: oneshot::Receiver<()>,
}

/// The attempt's side.
#[derive(Debug)]
pub(crate) struct Watcher {
    /// An error where the body was dropped before its end.
    pub(crate) ended: oneshot::Receiver<()>,
    pub(crate) recorded: oneshot::Sender<()>,
}

/// Both sides.
pub(crate) fn watch() -> (Watch, Watcher) {
    let (tell_end, ended) = oneshot::channel();
    let (tell_recorded, recorded) = oneshot::channel();
    (Watch { ended: tell_end, recorded }, Watcher { ended, recorded: tell_recorded })
}

/// A body that is watched for its end.
#[derive(Debug)]
pub(crate) struct Followed<B> {
    begun: VecDeque<Bytes>,
    rest: Pin<Box<B>>,
    /// What the head says is still to come. A server asks for no more than that.
    announced: Option<u64>,
    /// The last of it, until its end is recorded.
    held: VecDeque<Frame<Bytes>>,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Passing(Watch),
    Recording(oneshot::Receiver<()>),
    Over,
}

impl<B: Body<Data = Bytes>> Followed<B> {
    pub(crate) fn new(begun: VecDeque<Bytes>, rest: Pin<Box<B>>, announced: Option<u64>, watch: Watch) -> Self {
        Self { begun, rest, announced, held: VecDeque::new(), stage: Stage::Passing(watch) }
    }

    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        loop {
            match &mut self.stage {
                Stage::Over => return Poll::Ready(self.held.pop_front().map(Ok)),
                Stage::Recording(recorded) => {
                    // An error: the runtime is ending, and nobody records it any more.
                    let _ = ready!(Pin::new(recorded).poll(cx));
                    self.stage = Stage::Over;
                }
                Stage::Passing(_) => match ready!(self.poll_next(cx)) {
                    Some(Ok(frame)) if !self.is_last(&frame) => return Poll::Ready(Some(Ok(frame))),
                    Some(Ok(frame)) => self.hold(frame),
                    Some(Err(error)) => {
                        self.held.clear();
                        self.stage = Stage::Over;
                        return Poll::Ready(Some(Err(error)));
                    }
                    None => self.end(),
                },
            }
        }
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let next = match self.begun.pop_front() {
            Some(bytes) => Some(Ok(Frame::data(bytes))),
            None => ready!(self.rest.as_mut().poll_frame(cx)),
        };
        if let (Some(left), Some(Ok(frame))) = (&mut self.announced, &next) {
            *left = left.saturating_sub(length(frame));
        }
        Poll::Ready(next)
    }

    /// Whether a server may let the body go after that frame, without asking whether there is more.
    fn is_last(&self, frame: &Frame<Bytes>) -> bool {
        let is_all = self.rest.is_end_stream() || self.rest.size_hint().exact() == Some(0);
        frame.is_trailers() || self.announced == Some(0) || (self.begun.is_empty() && is_all)
    }

    /// What comes after it, an end or an error, decides.
    fn hold(&mut self, frame: Frame<Bytes>) {
        self.held.push_back(frame);
        if self.begun.is_empty() && self.rest.is_end_stream() {
            self.end();
        }
    }

    fn end(&mut self) {
        if let Stage::Passing(Watch { ended, recorded }) = std::mem::replace(&mut self.stage, Stage::Over)
            && ended.send(()).is_ok()
        {
            self.stage = Stage::Recording(recorded);
        }
    }

    pub(crate) fn is_end_stream(&self) -> bool {
        matches!(self.stage, Stage::Over) && self.held.is_empty()
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        let begun: u64 = self.begun.iter().map(|bytes| bytes.len() as u64).sum();
        longer(&self.rest.size_hint(), begun + self.held.iter().map(length).sum::<u64>())
    }
}

fn length(frame: &Frame<Bytes>) -> u64 {
    frame.data_ref().map_or(0, |bytes| bytes.len() as u64)
}

/// The hint for a body with that many bytes before it.
pub(crate) fn longer(rest: &SizeHint, read: u64) -> SizeHint {
    let mut hint = SizeHint::new();
    hint.set_lower(rest.lower().saturating_add(read));
    if let Some(upper) = rest.upper() {
        hint.set_upper(upper.saturating_add(read));
    }
    hint
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::{FutureExt, stream};
    use http_body_util::{BodyExt, Full, StreamBody};
    use std::convert::Infallible;
    use std::future::poll_fn;

    fn text(text: &'static str) -> Result<Frame<Bytes>, Infallible> {
        Ok(Frame::data(Bytes::from_static(text.as_bytes())))
    }

    fn followed<B: Body<Data = Bytes>>(begun: &[&'static str], rest: B, says: Option<u64>) -> (Followed<B>, Watcher) {
        let (watch, watcher) = watch();
        let begun = begun.iter().map(|text| Bytes::from_static(text.as_bytes())).collect();
        (Followed::new(begun, Box::pin(rest), says, watch), watcher)
    }

    /// What can be had at once: a text, the end, or nothing yet.
    fn next<B: Body<Data = Bytes, Error: std::fmt::Debug>>(body: &mut Followed<B>) -> Option<Option<Bytes>> {
        let frame = poll_fn(|cx| body.poll_frame(cx)).now_or_never()?;
        Some(frame.map(|frame| frame.unwrap().into_data().unwrap_or_default()))
    }

    #[test]
    fn the_end_of_a_stream_is_recorded_before_it_is_seen() {
        let (mut body, mut watcher) = followed(&["a"], StreamBody::new(stream::iter([text("b")])), None);
        assert_eq!(next(&mut body), Some(Some("a".into())));
        assert_eq!(next(&mut body), Some(Some("b".into())), "nothing of a stream is held back");
        assert!(watcher.ended.try_recv().is_err());
        assert_eq!((next(&mut body), body.is_end_stream()), (None, false));
        assert_eq!(watcher.ended.try_recv(), Ok(()));
        watcher.recorded.send(()).unwrap();
        assert_eq!((next(&mut body), next(&mut body)), (Some(None), Some(None)));
        assert!(body.is_end_stream());
    }

    #[test]
    fn the_last_of_a_body_of_known_length_is_held_back_until_its_end_is_recorded() {
        let known = || Full::new(Bytes::from_static(b"b")).boxed();
        let announced = || StreamBody::new(stream::iter([text("b")])).boxed();
        for (rest, says) in [(known(), None), (known(), Some(2)), (announced(), Some(2))] {
            let (mut body, mut watcher) = followed(&["a"], rest, says);
            assert_eq!(next(&mut body), Some(Some("a".into())));
            assert_eq!(next(&mut body), None);
            assert_eq!(watcher.ended.try_recv(), Ok(()), "although nobody would ask for more");
            drop(watcher.recorded);
            assert_eq!(next(&mut body), Some(Some("b".into())));
            assert!(body.is_end_stream());
        }
    }

    #[test]
    fn what_was_read_before_may_be_all() {
        let (mut body, mut watcher) = followed(&["a", "b"], Full::<Bytes>::default(), None);
        assert_eq!(body.size_hint().exact(), Some(2));
        assert_eq!((next(&mut body), next(&mut body)), (Some(Some("a".into())), None));
        assert_eq!(body.size_hint().exact(), Some(1));
        assert_eq!(watcher.ended.try_recv(), Ok(()));
    }

    #[test]
    fn what_breaks_off_or_is_dropped_never_ends() {
        let frames = [Ok(Frame::data(Bytes::from_static(b"a"))), Err(std::io::Error::other("cut"))];
        let (mut body, mut watcher) = followed(&[], StreamBody::new(stream::iter(frames)), Some(1));
        let broken = poll_fn(|cx| body.poll_frame(cx)).now_or_never();
        assert!(matches!(broken, Some(Some(Err(_)))), "the last byte is no use without an end");
        assert_eq!(watcher.ended.try_recv(), Err(oneshot::error::TryRecvError::Closed));
        let (body, mut watcher) = followed(&["a"], StreamBody::new(stream::iter([text("b")])), None);
        drop(body);
        assert_eq!(watcher.ended.try_recv(), Err(oneshot::error::TryRecvError::Closed));
    }
}
