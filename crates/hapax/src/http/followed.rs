//! The body of an answer that is too large to be read before anybody gets it.
//!
//! Only a complete answer says what became of a request, and what is passed on is complete when its end has come. So the
//! attempt keeps its lease meanwhile, is told of the end, and records it before the client sees it: the last of the body is
//! held back until then. A client that goes away cancels nothing: what is left is read without it, for a while. A body that
//! breaks off, or does not end in that time, is never told, and its key is in doubt.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::http::replay;

/// How long an answer is read for nobody. Work that matters ends before; a stream of events may have no end at all.
const READ_ON_TIME_MAX: Duration = Duration::from_secs(60);

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
    /// `None` only when this is dropped.
    rest: Option<Pin<Box<B>>>,
    /// Reads the rest where nobody wants it any more. Whoever makes this knows that the body may change threads.
    read_on: fn(Pin<Box<B>>, Watch),
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

impl<B> Drop for Followed<B> {
    fn drop(&mut self) {
        if let (Some(rest), Stage::Passing(watch)) = (self.rest.take(), std::mem::replace(&mut self.stage, Stage::Over))
        {
            (self.read_on)(rest, watch);
        }
    }
}

/// Reads a body to its end, for nobody, and tells of it.
fn read_on<B: Body<Data = Bytes> + Send + 'static>(mut rest: Pin<Box<B>>, watch: Watch) {
    // Without a runtime the process is ending, and the lease is left to lapse.
    let Ok(runtime) = Handle::try_current() else { return };
    runtime.spawn(async move {
        let to_end = async {
            loop {
                match std::future::poll_fn(|cx| rest.as_mut().poll_frame(cx)).await {
                    Some(Ok(_)) => {}
                    Some(Err(_)) => return false,
                    None => return true,
                }
            }
        };
        if timeout(READ_ON_TIME_MAX, to_end).await == Ok(true) {
            // The attempt waits for it, unless the runtime is ending.
            let _ = watch.ended.send(());
        }
    });
}

impl<B: Body<Data = Bytes>> Followed<B> {
    pub(crate) fn new(begun: VecDeque<Bytes>, rest: Pin<Box<B>>, announced: Option<u64>, watch: Watch) -> Self
    where
        B: Send + 'static,
    {
        let (rest, stage) = (Some(rest), Stage::Passing(watch));
        Self { begun, rest, read_on: read_on::<B>, announced, held: VecDeque::new(), stage }
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
        let mut next = match self.begun.pop_front() {
            Some(bytes) => Some(Ok(Frame::data(bytes))),
            None => match &mut self.rest {
                Some(rest) => ready!(rest.as_mut().poll_frame(cx)),
                None => None,
            },
        };
        if let Some(Ok(frame)) = &mut next
            && let Some(trailers) = frame.trailers_mut()
        {
            replay::remove_marks(trailers);
        }
        if let (Some(left), Some(Ok(frame))) = (&mut self.announced, &next) {
            *left = left.saturating_sub(length(frame));
        }
        Poll::Ready(next)
    }

    /// Whether a server may let the body go after that frame, without asking whether there is more.
    fn is_last(&self, frame: &Frame<Bytes>) -> bool {
        let is_all = self.rest.as_ref().is_none_or(|rest| rest.is_end_stream() || rest.size_hint().exact() == Some(0));
        frame.is_trailers() || self.announced == Some(0) || (self.begun.is_empty() && is_all)
    }

    /// What comes after it, an end or an error, decides.
    fn hold(&mut self, frame: Frame<Bytes>) {
        self.held.push_back(frame);
        if self.begun.is_empty() && self.rest.as_ref().is_none_or(Body::is_end_stream) {
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
        let rest = self.rest.as_ref().map_or_else(SizeHint::new, Body::size_hint);
        longer(&rest, begun + self.held.iter().map(length).sum::<u64>())
    }
}

fn length(frame: &Frame<Bytes>) -> u64 {
    frame.data_ref().map_or(0, |bytes| bytes.len() as u64)
}

/// The hint for a body with that many bytes before it.
fn longer(rest: &SizeHint, read: u64) -> SizeHint {
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

    fn followed<B: Body<Data = Bytes> + Send + 'static>(
        begun: &[&'static str],
        rest: B,
        says: Option<u64>,
    ) -> (Followed<B>, Watcher) {
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

    #[tokio::test]
    async fn what_nobody_wants_any_more_is_read_to_its_end() {
        let (mut body, watcher) = followed(&["a"], StreamBody::new(stream::iter([text("b"), text("c")])), None);
        assert_eq!(next(&mut body), Some(Some("a".into())));
        drop(body);
        assert_eq!(watcher.ended.await, Ok(()));

        let frames = [Ok(Frame::data(Bytes::from_static(b"a"))), Err(std::io::Error::other("cut"))];
        let (body, watcher) = followed(&[], StreamBody::new(stream::iter(frames)), None);
        drop(body);
        assert!(watcher.ended.await.is_err(), "it broke off");
    }

    #[tokio::test(start_paused = true)]
    async fn what_does_not_end_is_read_for_a_while_only() {
        let endless = stream::unfold((), |()| async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Some((text("tick"), ()))
        });
        let (body, watcher) = followed(&[], StreamBody::new(Box::pin(endless)), None);
        drop(body);
        assert!(watcher.ended.await.is_err());
    }

    #[test]
    fn what_breaks_off_or_is_dropped_without_a_runtime_never_ends() {
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
