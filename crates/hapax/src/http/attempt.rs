//! One attempt: the work, its lease, and the recording of its end.
//!
//! It is detached, so that a client that hangs up cancels nothing. The lease is short and renewed while the work lives,
//! which is until the end of the answer where only that frees the key. The end is recorded before anybody sees the answer;
//! where the store is away, recording is tried again for as long as the process lives, and the client is told that the
//! outcome is not known yet.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::OptionFuture;
use hapax_core::address::Address;
use hapax_core::engine::{EngineError, Reply};
use hapax_core::large::{LARGE_BYTES_MIN, take_back_freed};
use hapax_core::limits::CLOCK_SETTLE_MS;
use hapax_core::record::{AttemptId, Body as Recorded, Label, Labels, Outcome, State};
use hapax_core::store::{ErrorKind, Seen, Store, StoreError};
use hapax_core::transition::{Answer, Event};
use http::{Response, StatusCode};
use http_body::Body;
use tokio::time::{Instant, sleep, timeout};
use tracing::Instrument as _;

use crate::http::access::{Arrived, Ran};
use crate::http::attempts::Place;
use crate::http::body::AnswerBody;
use crate::http::budget::Share;
use crate::http::capture::{self, Captured};
use crate::http::client::Client;
use crate::http::followed::{self, Watch, Watcher};
use crate::http::guard::{Begun, Ended, LateTruth};
use crate::http::layer::Shared;
use crate::http::meaning::{self, Happened};
use crate::http::refusal::{Problem, Refusal};
use crate::http::replay;
use crate::http::replayed::Whole;
use crate::http::route::{Route, Then};
use crate::http::send_before::SendBefore;
use crate::{clock, log, observe};

/// Pauses between tries to record an end.
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_LAST: Duration = Duration::from_secs(2);

/// A lease is renewed at least so often, however long it is: while the store does not trust its clock nothing lapses, and
/// every attempt that lives must be heard of before it trusts it again.
const RENEWAL_MS_MAX: u64 = CLOCK_SETTLE_MS / 3;

/// How long a large response waits while others are being recorded.
const LARGE_WAIT_MAX: Duration = Duration::from_secs(1);

/// How often a claim that is not in the store is looked for: a write that was cut off arrives soon or never.
const GIVE_BACK_LOOKS_MAX: usize = 10;

/// How long to wait before a lease of that length is renewed.
fn renewal_pause(lease_ms: u64) -> Duration {
    Duration::from_millis((lease_ms / 3).clamp(1, RENEWAL_MS_MAX))
}

/// What a failure leaves behind.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Left {
    /// For how long the key is kept; `None`: for the retention.
    keep_ms: Option<u64>,
    /// The service turned the caller away.
    is_turned_away: bool,
}

/// How an attempt ended.
#[derive(Debug)]
pub(crate) enum End {
    Complete { outcome: Arc<Outcome>, labels: Labels },
    Fail { error: String, retry_in_ms: u64, left: Left },
    Doubt { error: String },
}

impl End {
    /// The same end with less in it that a store could refuse: what cannot be kept must not stay unrecorded. Labels go
    /// first, then fields and body, and a doubt is the last: it alone has no time to be kept for.
    fn less(&self) -> Option<Self> {
        Some(match self {
            Self::Complete { outcome, labels } if !labels.is_empty() => {
                Self::Complete { outcome: Arc::clone(outcome), labels: Labels::default() }
            }
            Self::Complete { outcome, .. } if outcome.body != Recorded::NotKept => {
                let outcome = Outcome { status: outcome.status, headers: Vec::new(), body: Recorded::NotKept };
                Self::Complete { outcome: Arc::new(outcome), labels: Labels::default() }
            }
            Self::Fail { error, retry_in_ms, left } if error != "failed" => {
                Self::Fail { error: "failed".to_owned(), retry_in_ms: *retry_in_ms, left: *left }
            }
            Self::Complete { .. } | Self::Fail { .. } => Self::Doubt { error: "not-recordable".to_owned() },
            Self::Doubt { error } if error != "doubtful" => Self::Doubt { error: "doubtful".to_owned() },
            Self::Doubt { .. } => return None,
        })
    }

    fn is_answer(&self) -> bool {
        matches!(self, Self::Complete { .. })
    }

    /// Provably nothing was done, for that reason; a retry may run at once.
    fn nothing_done(error: &str) -> Self {
        Self::Fail { error: error.to_owned(), retry_in_ms: 0, left: Left::default() }
    }

    fn for_guard(&self) -> Ended {
        match self {
            Self::Complete { outcome, .. } => Ended::Recorded(outcome.status),
            Self::Fail { left, .. } if left.is_turned_away => Ended::TurnedAway,
            Self::Fail { .. } => Ended::Free,
            Self::Doubt { .. } => Ended::Unknown,
        }
    }

    /// The body for the client: the recorded one, so that it is in memory once, or else that one.
    fn body_or(&self, whole: Bytes, share: Share) -> Bytes {
        match self {
            Self::Complete { outcome, .. } if outcome.body != Recorded::NotKept && !whole.is_empty() => {
                share.around(Whole(Arc::clone(outcome)))
            }
            _ if whole.is_empty() => whole,
            _ => share.around(whole),
        }
    }

    fn is_large(&self) -> bool {
        let Self::Complete { outcome, .. } = self else { return false };
        matches!(&outcome.body, Recorded::Kept(body) if body.len() > LARGE_BYTES_MIN as usize)
    }
}

/// An attempt that holds a claim.
pub(crate) struct Attempt<S> {
    shared: Arc<Shared<S>>,
    route: Arc<Route>,
    at: Address,
    client: Option<Client>,
    begun: Begun,
    attempt_id: AttemptId,
    attempt: u32,
    /// Until when the work may begin; lengthened by renewals.
    before: SendBefore,
    /// The record as it was last seen, so that the next event costs one round trip.
    seen: Mutex<Option<Seen>>,
    /// Held until the end is recorded.
    _place: Option<Place>,
    arrived: Arrived,
}

/// What the client gets.
pub(crate) type Answered<B> = Result<Response<AnswerBody<B>>, Refusal>;

impl<S: Store + 'static> Attempt<S> {
    pub(crate) fn new(
        shared: &Arc<Shared<S>>,
        route: &Arc<Route>,
        (at, client): (Address, Option<Client>),
        (attempt_id, reply): (AttemptId, Reply),
        (before, place): (SendBefore, Option<Place>),
        arrived: Arrived,
    ) -> Arc<Self> {
        let (shared, route) = (Arc::clone(shared), Arc::clone(route));
        let attempt = reply.record().map_or(1, |record| record.attempt);
        let begun = shared.settings().guard.began(at.scope(), client);
        let seen = Mutex::new(Some(reply.seen));
        Arc::new(Self { shared, route, at, client, begun, attempt_id, attempt, before, seen, _place: place, arrived })
    }

    /// Gives back a claim that may be in the store although nobody could prove it. Nothing was run for it and nothing will
    /// be, so the key is ready; without this it would be held by nobody, and unknown when the lease has lapsed.
    pub(crate) fn give_back(
        shared: &Arc<Shared<S>>,
        route: &Arc<Route>,
        at: Address,
        attempt_id: AttemptId,
        place: Option<Place>,
        arrived: Arrived,
    ) {
        let (tasks, shared, route) = (&shared.tasks, Arc::clone(shared), Arc::clone(route));
        let (before, seen, begun) = (SendBefore::after(Duration::ZERO), Mutex::new(None), Begun::default());
        let (client, attempt) = (None, 1);
        let attempt =
            Self { shared, route, at, client, begun, attempt_id, attempt, before, seen, _place: place, arrived };
        tasks.spawn(async move { attempt.keep_giving_back().await }.in_current_span());
    }

    async fn keep_giving_back(&self) {
        let end = End::nothing_done("claim-not-proved");
        let (mut pause, mut looks) = (RETRY_FIRST, 0);
        while looks < GIVE_BACK_LOOKS_MAX {
            sleep(pause).await;
            pause = (pause * 2).min(RETRY_LAST);
            match self.try_record(&end).await {
                Ok(Answer::Done) => {
                    return tracing::info!(target: log::ATTEMPT, parent: &self.arrived.span(), id = %self.at.id(), "an unproved claim is given back");
                }
                Ok(_) => looks += 1,
                // What it never showed anybody was not claimed.
                Err(_) if self.shared.engine.store().has_stopped() => return,
                // While the store is away, nothing is known of the claim.
                Err(_) => {}
            }
            // What was seen then says nothing about a write that arrives later.
            self.seen.lock().unwrap_or_else(PoisonError::into_inner).take();
        }
    }

    /// Ends an attempt that was held up for so long that it may have lost its lease: nothing was sent, and nothing is.
    pub(crate) fn give_up(self: &Arc<Self>) -> Refusal {
        tracing::warn!(target: log::ATTEMPT, parent: &self.arrived.span(), id = %self.at.id(), "the process was held up for longer than a lease; nothing was sent");
        // Whatever comes of the recording, nothing was run; the client has waited for long enough.
        let attempt = Arc::clone(self);
        let recording = async move {
            let _ = attempt.record(End::nothing_done("held-up"), StatusCode::SERVICE_UNAVAILABLE).await;
        };
        self.shared.tasks.spawn(recording.in_current_span());
        let detail = "this node was held up for too long; nothing was run; send the same request again";
        Refusal::new(Problem::StoreUnavailable, detail).with_retry_after(Duration::from_secs(1))
    }

    /// Does the work, records its end, and says what the client gets.
    pub(crate) async fn run<B, E>(self: Arc<Self>, work: impl Future<Output = Result<Response<B>, E>>) -> Answered<B>
    where
        B: Body<Data = Bytes> + Send + 'static,
    {
        let _in_flight = observe::Gauge::in_flight();
        let begun = Instant::now();
        let (bytes_max, share) = (self.route.answer_bytes_max, self.shared.budget.share(self.client.as_ref()));
        let work = async {
            let (mut head, body) = work.await?.into_parts();
            replay::remove_marks(&mut head.headers);
            let captured = capture::capture(&head, body, bytes_max, share).await;
            Ok::<_, E>((head, captured))
        };
        let worked = self.while_renewing(AssertUnwindSafe(work).catch_unwind()).await;
        observe::work_took(begun.elapsed().as_secs_f64());
        // In boxes, so that a request that waits for its answer does not hold room for recording it.
        match worked {
            Ok(Ok((head, captured))) => Box::pin(self.end_with(head, captured)).await,
            Ok(Err(_)) => Box::pin(self.end_in_doubt("service-error", StatusCode::GATEWAY_TIMEOUT)).await,
            Err(_) => Box::pin(self.end_in_panic()).await,
        }
    }

    async fn end_with<B: Body<Data = Bytes> + Send + 'static>(
        self: &Arc<Self>,
        mut head: http::response::Parts,
        captured: Captured<B>,
    ) -> Answered<B> {
        let happened = head.extensions.remove::<Happened>();
        let (then, why) = meaning::of(head.status, happened, &self.route);
        let left = Left {
            keep_ms: meaning::keep_ms(head.status, happened, &self.route),
            is_turned_away: meaning::turns_away(head.status, happened, &self.route),
        };
        let then = (then, left);
        let (whole, trailers, share) = match captured {
            Captured::Broken => return self.end_in_doubt("answer-cut-off", StatusCode::GATEWAY_TIMEOUT).await,
            Captured::Whole(whole, trailers, share) => (whole, trailers, share),
            // Only a complete answer says what became of the request, and this one is complete when its end has come.
            Captured::TooLarge(begun, rest) => {
                let watch = self.follow(self.end_of(&head, None, then, why), head.status);
                let body = AnswerBody::followed(begun, rest, capture::announced(&head.headers), watch);
                return Ok(Response::from_parts(head, body));
            }
        };
        if whole.len() > LARGE_BYTES_MIN as usize {
            take_back_freed();
        }
        let end = self.end_of(&head, Some(&whole), then, why);
        let body = end.body_or(whole, share);
        self.record(end, head.status).await?;
        hapax_core::failpoint!(async "completion-durable");
        Ok(Response::from_parts(head, AnswerBody::with_trailers(body, trailers)))
    }

    /// The end that an answer means. Without its body, only that there was one is kept.
    fn end_of(
        &self,
        head: &http::response::Parts,
        whole: Option<&Bytes>,
        (then, left): (Then, Left),
        why: String,
    ) -> End {
        match then {
            Then::Ready => End::Fail { error: why, retry_in_ms: meaning::retry_in_ms(&head.headers), left },
            Then::Unknown => End::Doubt { error: why },
            Then::Completed => End::Complete {
                outcome: Arc::new(capture::outcome(head, whole, &self.route)),
                labels: self.fitting(capture::labels(&self.route.labels, true, whole.map_or(&[], |whole| whole))),
            },
        }
    }

    /// As many of an answer's labels as there is room for beside the claim's, the first ones.
    fn fitting(&self, labels: Vec<Label>) -> Labels {
        if labels.is_empty() {
            return Labels::default();
        }
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let record = seen.as_ref().and_then(|seen| seen.stored.as_ref()).map(|stored| &stored.record);
        capture::fitting(labels, record.map_or(&[], |record| &record.labels)).into()
    }

    /// Keeps the lease while an answer passes through, and records that end once it has come to its own. One that breaks
    /// off leaves a doubt.
    fn follow(self: &Arc<Self>, end: End, status: StatusCode) -> Watch {
        let (watch, Watcher { ended, recorded }) = followed::watch();
        let attempt = Arc::clone(self);
        let following = async move {
            let _in_flight = observe::Gauge::in_flight();
            let end = match attempt.while_renewing(ended).await {
                Ok(()) => end,
                Err(_) => End::Doubt { error: "answer-cut-off".to_owned() },
            };
            // No answer is kept back for its sake: it has gone out.
            let _ = attempt.record(end, status).await;
            let _ = recorded.send(());
        };
        self.shared.tasks.spawn(following.in_current_span());
        watch
    }

    async fn end_in_doubt<B>(self: &Arc<Self>, why: &str, status: StatusCode) -> Answered<B> {
        self.record(End::Doubt { error: why.to_owned() }, status).await?;
        Err(outcome_unknown("the service did not give a complete answer").with_status(status))
    }

    async fn end_in_panic<B>(self: &Arc<Self>) -> Answered<B> {
        tracing::error!(target: log::ATTEMPT, parent: &self.arrived.span(), id = %self.at.id(), "the handler panicked");
        let error = "panic".to_owned();
        let end = match self.route.on_panic {
            Then::Ready => End::nothing_done(&error),
            Then::Completed | Then::Unknown => End::Doubt { error },
        };
        self.record(end, StatusCode::INTERNAL_SERVER_ERROR).await?;
        Err(outcome_unknown("the service failed in the middle").with_status(StatusCode::INTERNAL_SERVER_ERROR))
    }

    /// Lengthens the lease for as long as the work takes.
    async fn while_renewing<T>(self: &Arc<Self>, work: impl Future<Output = T>) -> T {
        let pause = renewal_pause(self.route.policy.lease_ms);
        let mut work = std::pin::pin!(work);
        if let Ok(done) = timeout(pause, &mut work).await {
            return done;
        }
        let attempt = Arc::clone(self);
        let renew = async move {
            loop {
                Box::pin(attempt.renew()).await;
                sleep(pause).await;
            }
        };
        let renewing = Renewing(tokio::spawn(renew.in_current_span()));
        let done = work.await;
        drop(renewing);
        done
    }

    /// A failure is no reason to stop: the work goes on, and its end counts even after the lease has lapsed.
    async fn renew(&self) {
        let asked_ms = clock::boot_ms();
        match self.apply(&Event::Renew { attempt_id: self.attempt_id }).await {
            Ok(Answer::Done) => self.before.renew(asked_ms, self.lease_ms()),
            Ok(answer) => {
                tracing::warn!(target: log::ATTEMPT, parent: &self.arrived.span(), id = %self.at.id(), ?answer, "the lease could not be renewed");
            }
            Err(error) => {
                tracing::warn!(target: log::ATTEMPT, parent: &self.arrived.span(), id = %self.at.id(), %error, "the lease could not be renewed");
            }
        }
    }

    /// The length of the lease, as the record has it.
    fn lease_ms(&self) -> u64 {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.as_ref().and_then(|seen| seen.stored.as_ref()).map_or(0, |stored| stored.record.policy.lease_ms)
    }

    /// Records the end. An error is what the client gets instead of the answer, which has that status.
    async fn record(self: &Arc<Self>, end: End, status: StatusCode) -> Result<(), Refusal> {
        let is_answer = end.is_answer();
        let (settings, ended) = (self.shared.settings(), end.for_guard());
        let mut end = end;
        let in_time = timeout(settings.store_timeout, self.try_record_or_less(&mut end)).await;
        // Afterwards: whoever counts what the store holds finds it there.
        settings.guard.ended(self.at.scope(), self.client, self.begun, ended);
        match in_time.unwrap_or_else(|_| Err(too_slow())) {
            Ok(answer) => {
                self.log(answer, &end, status);
                self.tell(answer, &end)?;
                let is_left_out = is_answer && !end.is_answer();
                if is_left_out { Err(outcome_unknown("the answer could not be recorded")) } else { Ok(()) }
            }
            Err(error) => {
                tracing::error!(target: log::ATTEMPT, parent: &self.arrived.span(), id = %self.at.id(), %error, "the end of an attempt could not be recorded yet");
                let attempt = Arc::clone(self);
                let pending = observe::Gauge::completion_pending();
                self.shared.unrecorded.fetch_add(1, Ordering::Relaxed);
                let recording = async move {
                    attempt.keep_recording(end, status).await;
                    attempt.shared.unrecorded.fetch_sub(1, Ordering::Relaxed);
                    drop(pending);
                };
                self.shared.tasks.spawn(recording.in_current_span());
                if is_answer { Err(outcome_unknown("the answer could not be recorded yet")) } else { Ok(()) }
            }
        }
    }

    async fn keep_recording(&self, mut end: End, status: StatusCode) {
        let mut pause = RETRY_FIRST;
        loop {
            sleep(pause).await;
            pause = (pause * 2).min(RETRY_LAST);
            if let Ok(answer) = self.try_record_or_less(&mut end).await {
                tracing::info!(target: log::ATTEMPT, parent: &self.arrived.span(), id = %self.at.id(), "the end of an attempt is recorded");
                self.log(answer, &end, status);
                // Whoever asked is gone; what is left to say is in the log.
                let _ = self.tell(answer, &end);
                return;
            }
        }
    }

    /// Leaves out of the end, step by step, what the store refuses to keep.
    async fn try_record_or_less(&self, end: &mut End) -> Result<Answer, EngineError> {
        loop {
            let error = match self.try_record(end).await {
                Err(EngineError::Store(error)) if error.kind == ErrorKind::Invalid => error,
                recorded => return recorded,
            };
            let Some(less) = end.less() else { return Err(error.into()) };
            tracing::warn!(target: log::ATTEMPT, parent: &self.arrived.span(), id = %self.at.id(), %error, "a part of an attempt's end cannot be kept, and is left out");
            *end = less;
        }
    }

    async fn try_record(&self, end: &End) -> Result<Answer, EngineError> {
        let attempt_id = self.attempt_id;
        let event = match end {
            End::Complete { outcome, labels } => Event::Complete { attempt_id, outcome, labels },
            End::Fail { error, retry_in_ms, left } => {
                Event::Fail { attempt_id, error, retry_in_ms: *retry_in_ms, keep_ms: left.keep_ms }
            }
            End::Doubt { error } => Event::Doubt { attempt_id, error, probe_in_ms: 0 },
        };
        // The store makes a copy of it. Recording matters more than the copy: nobody waits for long.
        let turn = end.is_large().then(|| timeout(LARGE_WAIT_MAX, self.shared.recording.acquire()));
        let _turn = OptionFuture::from(turn).await;
        let answer = self.apply(&event).await?;
        self.shared.waiters.rouse(self.at.id());
        Ok(answer)
    }

    /// The line of a request that ran. What stands in the record in another way is reported apart.
    fn log(&self, answer: Answer, end: &End, status: StatusCode) {
        if !matches!(answer, Answer::Done | Answer::Contradicted) {
            return;
        }
        let (state, why) = match end {
            End::Complete { .. } => ("completed", None),
            End::Fail { error, .. } => ("ready", Some(error.as_str())),
            End::Doubt { error } => ("unknown", Some(error.as_str())),
        };
        let (id, route, attempt) = (self.at.id(), &*self.route, self.attempt);
        self.arrived.ran(&Ran { id, route, attempt, status, state, why });
    }

    /// What has to be reported of a recorded end. An answer that does not stand in the record is not given: a later
    /// retry would get another one.
    fn tell(&self, answer: Answer, end: &End) -> Result<(), Refusal> {
        let id = self.at.id();
        match answer {
            Answer::Contradicted => self.report(LateTruth::Contradicted),
            Answer::DoubleRun => self.report(LateTruth::DoubleRun),
            Answer::Overruled => self.report(LateTruth::Overruled),
            Answer::Fenced if end.is_answer() && self.is_forgotten() => {
                self.report(LateTruth::Forgotten);
            }
            Answer::Fenced => {
                tracing::warn!(target: log::ATTEMPT, parent: &self.arrived.span(), %id, "an attempt ended that no longer held its claim");
            }
            _ => {}
        }
        let stands = matches!(answer, Answer::Done | Answer::Contradicted);
        if stands || !end.is_answer() {
            return Ok(());
        }
        Err(outcome_unknown("the key was settled in another way while the request ran"))
    }

    /// Whether nothing is left of the record that a completion would go to: it was purged, or has expired.
    fn is_forgotten(&self) -> bool {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(record) = seen.as_ref().and_then(|seen| seen.stored.as_ref()).map(|stored| &stored.record) else {
            return seen.is_some();
        };
        match record.state {
            State::Expired | State::Ready => true,
            // Where it is this attempt's own answer, it was recorded before, and its reply was lost.
            State::Completed => record.attempt_id != Some(self.attempt_id) || record.verdict.is_some(),
            State::Running | State::Unknown | State::Dead => false,
        }
    }

    /// Loudly: what was said or done before was wrong.
    fn report(&self, truth: LateTruth) {
        let (id, attempt) = (self.at.id(), self.attempt);
        match truth {
            LateTruth::Contradicted => {
                observe::contradicted();
                tracing::error!(parent: &self.arrived.span(), %id, attempt, "an attempt that was said not to have happened has completed");
            }
            LateTruth::DoubleRun => {
                observe::double_run();
                tracing::error!(parent: &self.arrived.span(), %id, attempt, "an attempt completed that another had taken over: suspected double run");
            }
            LateTruth::Overruled => {
                observe::overruled();
                tracing::error!(parent: &self.arrived.span(), %id, attempt, "an attempt completed after a verdict had settled its key");
            }
            LateTruth::Forgotten => {
                observe::forgotten();
                tracing::error!(parent: &self.arrived.span(), %id, attempt, "an attempt completed whose key was forgotten: its answer is not recorded");
            }
        }
        self.shared.settings().guard.late_truth(&self.at, attempt, truth);
    }

    async fn apply(&self, event: &Event<'_>) -> Result<Answer, EngineError> {
        let known = self.seen.lock().unwrap_or_else(PoisonError::into_inner).take();
        let begun = Instant::now();
        let applied = self.shared.engine.apply(&self.at, event, known).await;
        observe::store_took("record", begun.elapsed().as_secs_f64());
        match applied {
            Ok(reply) => {
                *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(reply.seen);
                Ok(reply.answer)
            }
            Err(error) => {
                if let EngineError::Store(error) = &error {
                    observe::store_failed(error);
                }
                Err(error)
            }
        }
    }
}

/// It may still be written: whoever tries again finds that.
fn too_slow() -> EngineError {
    let error = StoreError::new("swap", ErrorKind::Ambiguous, "it was not answered in time; it is tried again");
    observe::store_failed(&error);
    error.into()
}

fn outcome_unknown(cause: &str) -> Refusal {
    let detail = format!("{cause}; it may have happened; send the same request with the same key again to find out");
    Refusal::new(Problem::OutcomeUnknown, detail).with_retry_after(Duration::from_secs(1))
}

/// Renews until it is dropped.
struct Renewing(tokio::task::JoinHandle<()>);

impl Drop for Renewing {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_of_any_length_is_renewed_before_a_pause_of_the_clock_ends() {
        assert_eq!(renewal_pause(30_000), Duration::from_secs(10));
        assert_eq!(renewal_pause(10 * 60_000), Duration::from_secs(20));
        assert_eq!(renewal_pause(0), Duration::from_millis(1));
        assert!(renewal_pause(u64::MAX) * 3 <= Duration::from_millis(CLOCK_SETTLE_MS));
    }
}
