//! Room on an HTTP/2 connection: as many streams at a time as the upstream lets us open, and a queue for the others.
//!
//! h2 would queue requests itself, but it sends what it has queued, wanted or not. What waits here has provably not left.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// How many streams are open, and how many may be.
#[derive(Debug, Default)]
pub(super) struct Room {
    state: Mutex<State>,
    /// Somebody left, or the limit has changed.
    changed: Notify,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    open: usize,
    /// None may be opened before the upstream has said how many.
    open_max: usize,
    ended: bool,
}

impl Room {
    /// Waits for room. None when the connection takes no more requests.
    pub(super) async fn enter(self: &Arc<Self>) -> Option<Place> {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            {
                let mut state = self.state();
                if state.ended {
                    return None;
                }
                if state.open < state.open_max {
                    state.open += 1;
                    return Some(Place(Arc::clone(self)));
                }
            }
            changed.await;
        }
    }

    /// What the upstream allows now.
    pub(super) fn allow(&self, open_max: usize) {
        let mut state = self.state();
        if state.open_max == open_max {
            return;
        }
        state.open_max = open_max;
        drop(state);
        self.changed.notify_waiters();
    }

    /// No more requests; those who wait go elsewhere.
    pub(super) fn end(&self) {
        let was_ended = std::mem::replace(&mut self.state().ended, true);
        if !was_ended {
            self.changed.notify_waiters();
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.state().ended
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place for one stream, until it is dropped.
#[derive(Debug)]
pub(super) struct Place(Arc<Room>);

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.open = state.open.saturating_sub(1);
        drop(state);
        self.0.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn places_are_given_in_turn_up_to_the_limit_of_the_moment() {
        let room = Arc::new(Room::default());
        let mut first = Box::pin(room.enter());
        assert!(first.as_mut().now_or_never().is_none(), "nothing is allowed yet");
        room.allow(2);
        let first = first.await.unwrap();
        let second = room.enter().await.unwrap();
        let mut third = Box::pin(room.enter());
        assert!(third.as_mut().now_or_never().is_none());
        room.allow(0);
        drop(first);
        assert!(third.as_mut().now_or_never().is_none(), "none may be opened now");
        room.allow(2);
        let third = third.await.unwrap();
        let mut fourth = Box::pin(room.enter());
        assert!(fourth.as_mut().now_or_never().is_none());
        room.end();
        assert!(fourth.await.is_none() && room.enter().await.is_none() && room.has_ended());
        drop((second, third));
        assert_eq!(room.state().open, 0);
    }

    #[tokio::test]
    async fn whoever_gives_up_leaves_its_turn_to_the_next() {
        let room = Arc::new(Room::default());
        room.allow(1);
        let held = room.enter().await.unwrap();
        let (mut gives_up, mut next) = (Box::pin(room.enter()), Box::pin(room.enter()));
        assert!(gives_up.as_mut().now_or_never().is_none() && next.as_mut().now_or_never().is_none());
        drop(held);
        drop(gives_up);
        assert!(next.await.is_some());
    }
}
