//! Reconciling: records that are `unknown` are probed until somebody can tell what became of them.
//!
//! A [`Probe`] asks whoever would know: it happened, and this is the answer; it did not; or it cannot be told. That it did
//! not happen counts only once the record has been in doubt for [`Plan::settle_after`]: a process can die while its upstream
//! is still at work. What cannot be told is asked again, later and later, and after [`Plan::attempts_max`] times a person
//! has to decide: the record is dead.
//!
//! What a probe finds is replayed to the caller whose record it is, so it must not be about anybody else: look it up by the
//! record's id ([`Address::id`]), which covers scope and key and which the service got as `Idempotency-Record`. A key or a
//! label alone is what a caller wrote, and another one may have written the same.
//!
//! A node that probes first puts the next probe off by a swap, so that of several nodes one asks, and one that dies while it
//! asks is followed by another. Which route is probed how is left to whoever implements the probe, and so is who waits for
//! whom: records of one [share](Probe::share) do.

mod shares;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use hapax_core::address::Address;
use hapax_core::clock::Now;
use hapax_core::engine::{Engine, EngineError, Reply, Tokens};
use hapax_core::journal::{Journal, Note};
use hapax_core::limits::NOTE_TEXT_BYTES_MAX;
use hapax_core::record::{Outcome, Record, State, Stored};
use hapax_core::store::{Entry, ErrorKind, Seen, StoreError};
use hapax_core::transition::{Answer, Event, Resolution};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::reconcile::shares::Shares;
use crate::sweep::{self, Left, Pace};
use crate::{log, observe};

/// Who is named in notes about what a probe found out.
pub const WHO: &str = "reconcile";

/// Records that a share takes up at a time.
const LIMIT: u32 = 500;

/// The pause where there is more.
const BETWEEN: Duration = Duration::from_millis(100);

/// A record that nobody can probe is looked at again after this long: a probe may have been configured by then.
const UNPROBED_AGAIN: Duration = Duration::from_secs(10 * 60);

/// The longest pause between two probes.
const BACKOFF_MAX: Duration = Duration::from_secs(60 * 60);

/// Added to what a probe may take, before another node takes it for dead.
const PROBE_GRACE: Duration = Duration::from_secs(1);

/// What a probe found out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probed {
    /// It happened; retries get this. A definite failure, such as a declined card, is an outcome as well.
    Happened(Arc<Outcome>),
    /// It did not happen.
    DidNotHappen,
    /// Neither can be told; why, in words without secrets.
    CannotTell(String),
}

/// How a record is probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// That it did not happen counts only after this long in doubt. At least as long as an attempt may work on after the
    /// process that started it has died.
    pub settle_after: Duration,
    /// After this many probes that could not tell, a person has to decide.
    pub attempts_max: u32,
    /// The pause after the first probe that could not tell. Each one after that is twice as long, up to an hour.
    pub backoff: Duration,
    /// How long one probe may take.
    pub timeout: Duration,
}

/// Finds out what became of attempts. `docs/library.md` has one over a table, with the service around it.
///
/// ```
/// use std::time::Duration;
/// use hapax::reconcile::{Plan, Probe, Probed};
/// use hapax::{Address, Record};
///
/// /// Asks the provider, who was sent the record's id with the charge.
/// struct Provider;
///
/// impl Probe for Provider {
///     fn plan(&self, _at: &Address, _record: &Record) -> Option<Plan> {
///         let (settle_after, backoff) = (Duration::from_secs(120), Duration::from_secs(5));
///         Some(Plan { settle_after, attempts_max: 10, backoff, timeout: Duration::from_secs(5) })
///     }
///
///     async fn ask(&self, at: &Address, _record: &Record) -> Probed {
///         // GET https://provider.example/charges?metadata.record={at.id()}
///         Probed::CannotTell(format!("the provider did not answer for {}", at.id()))
///     }
/// }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), hapax_core::store::StoreError> {
/// # let layer = hapax::http::IdempotencyLayer::new(hapax::Memory::new(), hapax::http::single_tenant);
///
/// // Once, as a test does; `reconcile::run` goes on until its token is cancelled.
/// let report = hapax::reconcile::run_once(layer.engine(), &Provider, 100).await?;
/// assert_eq!(report.resolved, 0, "nothing is unknown yet");
/// # Ok(())
/// # }
/// ```
pub trait Probe: Send + Sync {
    /// How that record is probed; `None` where nobody can tell, and a person has to.
    fn plan(&self, at: &Address, record: &Record) -> Option<Plan>;

    /// Which records wait for each other: those of one share are probed a few at a time, and those of others do not wait
    /// for them. Whoever is asked by a probe that may hang should be a share of its own. By default there is one for all.
    fn share(&self, _: &Address, _: &Record) -> Arc<str> {
        Arc::from("")
    }

    /// What became of the record's last attempt, looked up by `at.id()`. Must change nothing.
    fn ask(&self, at: &Address, record: &Record) -> impl Future<Output = Probed> + Send;
}

/// Nobody can tell.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoProbe;

impl Probe for NoProbe {
    fn plan(&self, _: &Address, _: &Record) -> Option<Plan> {
        None
    }

    async fn ask(&self, _: &Address, _: &Record) -> Probed {
        Probed::CannotTell("there is no probe".to_owned())
    }
}

/// What a sweep came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Records whose fate is known now.
    pub resolved: u32,
    /// Records that could not be told, and are asked about again.
    pub scheduled: u32,
    /// Records that were said not to have happened before that counts.
    pub too_soon: u32,
    /// Records that are dead now: a person has to decide.
    pub failed: u32,
    /// Records that nobody can probe.
    pub unprobed: u32,
    /// What is left.
    pub left: Left,
}

/// What came of one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Came {
    Resolved,
    Scheduled,
    TooSoon,
    Failed,
    Unprobed,
    /// Somebody else was faster.
    Elsewhere,
}

impl Report {
    fn count(&mut self, came: Came) {
        match came {
            Came::Resolved => self.resolved += 1,
            Came::Scheduled => self.scheduled += 1,
            Came::TooSoon => self.too_soon += 1,
            Came::Failed => self.failed += 1,
            Came::Unprobed => self.unprobed += 1,
            Came::Elsewhere => {}
        }
    }
}

/// Probes up to `limit` unknown records of each share that are due.
///
/// # Errors
/// If the store fails. What was found out before stays so.
pub async fn run_once<S: Journal, T: Tokens>(
    engine: &Engine<S, T>,
    probe: &impl Probe,
    limit: u32,
) -> Result<Report, StoreError> {
    let shares = Shares::default();
    let (taken, left) = shares.take(engine.store(), probe, limit).await?;
    let mut report = Report { left, ..Report::default() };
    for came in join_all(taken.into_iter().map(|taken| shares.ask(engine, probe, taken))).await {
        report.count(came?);
    }
    Ok(report)
}

/// One record: put the next probe off, ask, and write what was found out.
async fn look<S: Journal, T: Tokens>(
    engine: &Engine<S, T>,
    probe: &impl Probe,
    entry: Entry,
    now: Now,
) -> Result<Came, StoreError> {
    let Entry { address, stored } = entry;
    let plan = probe.plan(&address, &stored.record);
    let again = plan.map_or(UNPROBED_AGAIN, |plan| plan.timeout + PROBE_GRACE);
    let Some(mine) = put_off(engine, &address, Seen { stored: Some(stored), now }, again).await? else {
        return Ok(Came::Elsewhere);
    };
    let Some(plan) = plan else { return Ok(Came::Unprobed) };
    let case = Case { engine, at: &address, plan, seen: mine };
    let Some(stored) = &case.seen.stored else { return Ok(Came::Elsewhere) };
    let asked = timeout(plan.timeout, probe.ask(&address, &stored.record)).await;
    let probed = asked.unwrap_or_else(|_| Probed::CannotTell("the probe took too long".to_owned()));
    hapax_core::failpoint!(async "probe");
    let came = case.write(probed).await?;
    observe::reconciled(match came {
        Came::Resolved => "resolved",
        Came::Scheduled => "scheduled",
        Came::TooSoon => "too_soon",
        Came::Failed => "failed",
        Came::Unprobed | Came::Elsewhere => return Ok(came),
    });
    Ok(came)
}

/// Puts the next probe off, unless the record has changed since it was seen: then somebody else is at it.
async fn put_off<S: Journal, T: Tokens>(
    engine: &Engine<S, T>,
    at: &Address,
    seen: Seen,
    again: Duration,
) -> Result<Option<Seen>, StoreError> {
    let Some(attempt) = seen.stored.as_ref().map(|stored| stored.record.attempt) else { return Ok(None) };
    let event = Event::Inconclusive { attempt, probe_in_ms: millis(again), probes_max: None };
    match engine.apply_once(at, &event, seen).await {
        Ok(Some(reply)) if reply.wrote => Ok(Some(reply.seen)),
        Err(EngineError::Store(error)) => Err(error),
        _ => Ok(None),
    }
}

/// A record that is being asked about.
struct Case<'a, S, T> {
    engine: &'a Engine<S, T>,
    at: &'a Address,
    plan: Plan,
    /// As it was before the probe: its time is what "did not happen" is judged by.
    seen: Seen,
}

impl<S: Journal, T: Tokens> Case<'_, S, T> {
    async fn write(&self, probed: Probed) -> Result<Came, StoreError> {
        match probed {
            Probed::Happened(outcome) => {
                let detail = format!("status {}", outcome.status);
                self.resolve(Resolution::Happened(&outcome), "the probe says that it happened", detail).await
            }
            Probed::DidNotHappen => match self.unsettled_ms() {
                0 => {
                    let reason = "the probe says that it did not happen";
                    self.resolve(Resolution::DidNotHappen, reason, String::new()).await
                }
                left_ms => self.ask_again(None, left_ms).await,
            },
            Probed::CannotTell(why) => self.cannot_tell(&why).await,
        }
    }

    /// How long "did not happen" does not count yet. Counted to the moment before the probe was sent. By a clock that is not
    /// trusted, no age is old enough: it is asked again as soon as the clock is.
    fn unsettled_ms(&self) -> u64 {
        let now = self.seen.now;
        let since = self.stored().and_then(Stored::doubted_since).unwrap_or(now.at);
        let settled_at = since.plus_ms(millis(self.plan.settle_after));
        if now.has_reached(settled_at) { 0 } else { now.at.ms_until(settled_at).max(1) }
    }

    fn stored(&self) -> Option<&Stored> {
        self.seen.stored.as_ref()
    }

    fn attempt(&self) -> u32 {
        self.stored().map_or(0, |stored| stored.record.attempt)
    }

    async fn resolve(&self, resolution: Resolution<'_>, reason: &str, detail: String) -> Result<Came, StoreError> {
        let note = Note {
            who: WHO.to_owned(),
            what: "resolve".to_owned(),
            about: None,
            before: None,
            after: None,
            reason: reason.to_owned(),
            detail,
        };
        let event = Event::Resolve {
            resolution,
            attempt: Some(self.attempt()),
            since: self.stored().and_then(Stored::doubted_since),
        };
        match self.engine.apply_noted(self.at, &event, Some(self.seen.clone()), &note).await {
            Ok(Reply { answer: Answer::Done, seen, .. }) => {
                let state = seen.stored.map(|stored| stored.record.state.name());
                tracing::info!(target: log::RECORD, id = %self.at.id(), state, "{reason}");
                Ok(Came::Resolved)
            }
            Err(EngineError::Store(error)) if error.kind == ErrorKind::Invalid => {
                self.cannot_tell("the probe's answer is larger than a record may be").await
            }
            // Somebody else settled it, or a new attempt runs, about which nothing was asked.
            applied => sweep::unless_store_failed(applied).map(|_| Came::Elsewhere),
        }
    }

    async fn cannot_tell(&self, why: &str) -> Result<Came, StoreError> {
        let probes = self.stored().and_then(|stored| stored.record.doubt).map_or(0, |doubt| doubt.probes);
        let pause = sweep::jittered(backoff(self.plan.backoff, probes));
        let why: String = why.chars().take(NOTE_TEXT_BYTES_MAX / 4).collect();
        tracing::warn!(target: log::RECORD, id = %self.at.id(), probes = probes + 1, why, "a probe cannot tell what became of a request");
        self.ask_again(Some(self.plan.attempts_max), millis(pause)).await
    }

    async fn ask_again(&self, probes_max: Option<u32>, probe_in_ms: u64) -> Result<Came, StoreError> {
        let event = Event::Inconclusive { attempt: self.attempt(), probe_in_ms, probes_max };
        let applied = self.engine.apply(self.at, &event, Some(self.seen.clone())).await;
        let Some(reply) = sweep::unless_store_failed(applied)? else { return Ok(Came::Elsewhere) };
        Ok(match reply.record().map(|record| record.state) {
            _ if reply.answer != Answer::Done => Came::Elsewhere,
            Some(State::Dead) => {
                tracing::error!(target: log::RECORD, id = %self.at.id(), "no probe could tell; a person has to decide (`hapax keys resolve`)");
                Came::Failed
            }
            _ if probes_max.is_none() => Came::TooSoon,
            _ => Came::Scheduled,
        })
    }
}

/// Twice as long after each probe.
fn backoff(first: Duration, probes: u32) -> Duration {
    first.saturating_mul(2_u32.saturating_pow(probes)).min(BACKOFF_MAX.max(first))
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Reconciles every `every` until the token is cancelled. A share whose probes take longer holds up nobody else.
pub async fn run<S: Journal, T: Tokens>(
    engine: &Engine<S, T>,
    probe: &impl Probe,
    every: Duration,
    ending: &CancellationToken,
) {
    let pace = Pace { every, between: BETWEEN.min(every) };
    let shares = Shares::default();
    let (begin, begun) = mpsc::unbounded_channel();
    let sweeps = sweep::repeat(WHO, pace, ending, || shares::sweep_once(engine, probe, &shares, &begin, every));
    tokio::select! {
        () = sweeps => {}
        () = shares::carry_on(begun) => {}
    }
}
