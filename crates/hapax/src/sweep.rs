//! One loop for every background role: sweep, pause, sweep again.
//!
//! Any number of nodes may sweep the same store at the same time: the swap decides who was first, so nobody leads. A sweep
//! that fails is counted, logged once, and tried again; nothing ends the loop but the token. What a role does is in its own
//! file: [`lapse`](crate::lapse), [`reap`](crate::reap), [`reconcile`](crate::reconcile), [`survey`](crate::survey).

use std::future::Future;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use hapax_core::engine::EngineError;
use hapax_core::record::State;
use hapax_core::store::{Cursor, Damaged, Due, Page, Scan, Store, StoreError};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::{observe, tokens};

/// How many records of a page are written at the same time: enough to fill a batch of the store.
pub(crate) const SWAPS_AT_ONCE: usize = 64;

/// What a sweep leaves to its loop.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// There is more to do at once.
    pub more: bool,
    /// Records that could not be read: somebody must look at them.
    pub damaged: Vec<Damaged>,
}

/// How often a role sweeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// The longest pause between two sweeps. Up to a quarter less, so that nodes do not march in step.
    pub every: Duration,
    /// The pause where a sweep left more to do: it gives way to requests.
    pub between: Duration,
}

/// Sweeps at that pace until the token is cancelled. The first sweep comes soon: whoever starts may follow a crash.
pub async fn repeat<F>(role: &'static str, pace: Pace, ending: &CancellationToken, mut sweep: impl FnMut() -> F + Send)
where
    F: Future<Output = Result<Left, StoreError>> + Send,
{
    let mut told = Told { role, failing: false, damaged: 0 };
    let mut pause = pace.between;
    loop {
        tokio::select! {
            () = ending.cancelled() => return,
            () = sleep(jittered(pause)) => {}
        }
        let begun = Instant::now();
        let swept = tokio::select! {
            () = ending.cancelled() => return,
            swept = sweep() => swept,
        };
        observe::swept(role, begun.elapsed().as_secs_f64());
        pause = if swept.as_ref().is_ok_and(|left| left.more) { pace.between } else { pace.every };
        told.tell(swept);
    }
}

/// What was told already, so that the same thing is not told with every sweep.
struct Told {
    role: &'static str,
    failing: bool,
    damaged: usize,
}

impl Told {
    fn tell(&mut self, swept: Result<Left, StoreError>) {
        let role = self.role;
        match swept {
            Ok(left) => {
                if std::mem::take(&mut self.failing) {
                    tracing::info!(role, "sweeps work again");
                }
                let damaged = left.damaged.len();
                if damaged > self.damaged {
                    let first = left.damaged.first().map(|record| record.reason.as_str()).unwrap_or_default();
                    tracing::error!(role, damaged, first, "records cannot be read and are left as they are");
                }
                self.damaged = damaged;
            }
            Err(error) => {
                observe::sweep_failed(role);
                if !std::mem::replace(&mut self.failing, true) {
                    tracing::error!(role, %error, "a sweep failed; it is tried again");
                }
            }
        }
    }
}

/// Between three quarters of it and all of it.
pub(crate) fn jittered(most: Duration) -> Duration {
    let [low, high, ..] = tokens::random();
    let part = u32::from(u16::from_le_bytes([low, high]));
    most * 3 / 4 + most / 4 * part / u32::from(u16::MAX)
}

/// The pages of the records in those states that are due, or of all of them.
pub(crate) struct Walk<'s, S> {
    store: &'s S,
    next: Option<Scan>,
}

impl<'s, S: Store> Walk<'s, S> {
    pub(crate) fn due(store: &'s S, states: &[State], page: u32) -> Self {
        let scan = Scan { states: states.to_vec(), due: Some(Due::Now), limit: page, ..Scan::default() };
        Self { store, next: Some(scan) }
    }

    pub(crate) fn all(store: &'s S, states: &[State], page: u32) -> Self {
        Self { store, next: Some(Scan { states: states.to_vec(), limit: page, ..Scan::default() }) }
    }

    /// Goes on where another walk stopped.
    pub(crate) fn from(mut self, after: Option<Cursor>) -> Self {
        self.next = self.next.map(|scan| Scan { after, ..scan });
        self
    }

    /// Where the next page begins; `None`: there is none.
    pub(crate) fn place(&self) -> Option<Cursor> {
        self.next.as_ref().and_then(|scan| scan.after.clone())
    }

    /// The next page; `None`: that was all.
    pub(crate) async fn page(&mut self) -> Result<Option<Page>, StoreError> {
        let Some(scan) = self.next.take() else { return Ok(None) };
        let page = self.store.scan(&scan).await?;
        self.next = page.next.clone().map(|after| Scan { after: Some(after), ..scan });
        Ok(Some(page))
    }
}

/// Does all of them, so many at the same time, and then says if one failed.
pub(crate) async fn at_once<T>(
    many: Vec<impl Future<Output = Result<T, StoreError>>>,
    most: usize,
) -> Result<Vec<T>, StoreError> {
    let done: Vec<Result<T, StoreError>> = stream::iter(many).buffer_unordered(most).collect().await;
    done.into_iter().collect()
}

/// A failure of the store ends a sweep. A record that others keep writing is looked at by the next one.
pub(crate) fn unless_store_failed<T>(applied: Result<T, EngineError>) -> Result<Option<T>, StoreError> {
    match applied {
        Ok(reply) => Ok(Some(reply)),
        Err(EngineError::Store(error)) => Err(error),
        Err(EngineError::Contended | EngineError::Scheme(_)) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hapax_core::store::ErrorKind;
    use std::sync::atomic::{AtomicU32, Ordering};

    const PACE: Pace = Pace { every: Duration::from_secs(8), between: Duration::from_millis(80) };

    /// When each sweep came, counted from the start, if they end in these ways.
    async fn times(ends: Vec<Result<bool, ()>>) -> Vec<Duration> {
        let (ending, begun, sweeps) = (CancellationToken::new(), Instant::now(), AtomicU32::new(0));
        let times = std::sync::Mutex::new(Vec::new());
        repeat("lapse", PACE, &ending, || {
            times.lock().unwrap().push(begun.elapsed());
            let sweep = sweeps.fetch_add(1, Ordering::SeqCst) as usize;
            let end = ends.get(sweep).copied();
            if end.is_none() {
                ending.cancel();
            }
            async move {
                match end.unwrap_or(Ok(false)) {
                    Ok(more) => Ok(Left { more, damaged: Vec::new() }),
                    Err(()) => Err(StoreError::new("scan", ErrorKind::Unavailable, "taken away by the test")),
                }
            }
        })
        .await;
        times.into_inner().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_ends_nothing_and_what_is_left_comes_sooner() {
        let times = times(vec![Ok(false), Err(()), Err(()), Ok(true)]).await;
        assert_eq!(times.len(), 5);
        let pauses: Vec<Duration> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        for pause in &pauses[..3] {
            assert!(*pause >= PACE.every * 3 / 4 && *pause <= PACE.every + Duration::from_millis(2), "{pauses:?}");
        }
        assert!(pauses[3] <= PACE.between + Duration::from_millis(2), "{pauses:?}");
        assert!(times[0] <= PACE.between + Duration::from_millis(2), "the first comes soon");
    }

    #[tokio::test(start_paused = true)]
    async fn a_sweep_that_hangs_is_ended_by_the_token() {
        let ending = CancellationToken::new();
        let ended = ending.clone();
        tokio::spawn(async move {
            sleep(Duration::from_secs(100)).await;
            ended.cancel();
        });
        repeat("lapse", PACE, &ending, std::future::pending).await;
    }

    #[test]
    fn a_pause_is_never_longer_than_said() {
        for _ in 0..1000 {
            let pause = jittered(Duration::from_secs(4));
            assert!(pause >= Duration::from_secs(3) && pause <= Duration::from_secs(4), "{pause:?}");
        }
    }
}
