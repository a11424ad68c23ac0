//! The claim itself: whose record it is, and what is asked before the store is, and of the store.
//!
//! Rates and room for new keys, a place among the attempts, the breaker; then one limit over all that the store is asked. What
//! cannot be claimed may still be answered by reading. What follows from a claim is left to `settle`.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hapax_core::address::{Address, Key, Scope, Space};
use hapax_core::clock::Timestamp;
use hapax_core::engine::{EngineError, Reply};
use hapax_core::fingerprint::{Fingerprinter, Fingerprints};
use hapax_core::record::{AttemptId, Labels, Version};
use hapax_core::store::{ErrorKind, Seen, Store, StoreError};
use hapax_core::transition::{Answer, Claimant, Decision, Event, decide};
use http::request::Parts;
use sha2::{Digest, Sha256};
use tokio::time::{Instant, timeout};

use crate::fence::Fence;
use crate::http::access::Arrived;
use crate::http::attempt::Attempt;
use crate::http::attempts::{self, Place};
use crate::http::budget::Share;
use crate::http::capture;
use crate::http::client::Client;
use crate::http::guard::{NewKey, Report};
use crate::http::layer::{Settings, Shared};
use crate::http::path::{compared_method, effective_method, resolved, uri_that_counts};
use crate::http::patience::Patience;
use crate::http::read_request;
use crate::http::refusal::{Problem, Refusal};
use crate::http::route::{KeyPer, Route};
use crate::{log, observe};

/// How soon to come back while the store is away.
pub(crate) const STORE_RETRY_AFTER: Duration = Duration::from_secs(1);

/// A request with all that is needed to claim its key.
pub(crate) struct Call {
    pub(crate) parts: Parts,
    /// Memory that is held for a large head.
    pub(crate) head: Option<Share>,
    pub(crate) body: Bytes,
    pub(crate) route: Arc<Route>,
    pub(crate) scope: Scope,
    pub(crate) key: Key,
    pub(crate) arrived: Arrived,
}

/// Where the record of a request is.
pub(crate) fn address<S>(shared: &Shared<S>, call: &Call) -> Address {
    address_in(&shared.space, &shared.scheme, call)
}

pub(crate) fn address_in(space: &Space, scheme: &hapax_core::address::AddressScheme, call: &Call) -> Address {
    match call.route.key_per {
        KeyPer::Caller => Address::new(scheme, space, &call.scope, &call.key),
        KeyPer::Route => {
            let mut hash = Sha256::new();
            let method = effective_method(&call.parts.method, &call.parts.headers);
            let uri = uri_that_counts(&call.parts.uri, &call.parts.extensions);
            for part in [method.as_str(), &*resolved(uri.path())] {
                hash.update((part.len() as u64).to_le_bytes());
                hash.update(part);
            }
            let digest: String = hash.finalize()[..16].iter().map(|byte| format!("{byte:02x}")).collect();
            let space = Space::new(&format!("{}:{digest}", space.as_str())).unwrap_or_else(|_| space.clone());
            Address::new(scheme, &space, &call.scope, &call.key)
        }
    }
}

/// The claim itself, behind rates and breaker, with the place of the attempt that it begins.
pub(crate) async fn claim<S: Store + 'static>(
    shared: &Arc<Shared<S>>,
    settings: &Settings,
    call: &Call,
    at: &Address,
    attempt_id: AttemptId,
    patience: &Patience,
) -> Result<(Reply, Option<Place>), Refusal> {
    let (guard, route) = (&settings.guard, &*call.route);
    guard.look_up(at.scope(), route).map_err(|wait| too_many("look-ups", wait))?;
    if let Some(client) = client_of(&call.parts) {
        guard.look_up_from(client).map_err(too_many_from_there)?;
    }
    let at_hand = shared.answers.find(at, Instant::now(), settings.answers_at_hand);
    let method = compared_method(&call.parts.method, &call.parts.headers);
    let fields = read_request::fields(&call.parts);
    let compared = read_request::compared(&call.parts, &method, &fields, &call.body);
    let fingerprints = Fingerprinter::new(compared, &route.recipe, &settings.fingerprint_keys)
        .map_err(|error| store_unavailable(&error.to_string()))?;
    let (fingerprints, policy): (&dyn Fingerprints, _) = (&fingerprints, route.policy);
    let claim_with = |labels| Event::Claim { by: Claimant::Client, attempt_id, fingerprints, policy, labels };
    let no_labels = Labels::default();
    // A replay writes nothing, so it needs none.
    if let Some(reply) = at_hand.and_then(|seen| replayed(seen, &claim_with(&no_labels))) {
        return Ok((reply, None));
    }
    let labels = &capture::claim_labels(route, &call.parts, call.arrived.trace_id(), &call.body);
    let since = settings.fence.map_or_else(Timestamp::default, |fence| fence.restored_at);
    let (suspect, claim) = (Event::Suspect { since, fingerprints, policy, labels }, claim_with(labels));
    let (events, client) = ([&suspect, &claim], client_of(&call.parts));
    let (place, turn) = match admitted(shared, settings, client) {
        Ok(admitted) => admitted,
        Err(refusal) => {
            let reply = read_only(shared, settings, at, events, false).await;
            return reply.map(|reply| (reply, None)).ok_or(refusal);
        }
    };
    let begun = Instant::now();
    let new = NewKey { caller: at.scope(), client, route };
    let mut claiming = pin!(claim_if_allowed(shared, settings, &new, at, events));
    let in_time = timeout(settings.store_timeout, &mut claiming).await;
    if let Some(report) = turn {
        report(in_time.as_ref().is_ok_and(has_answered));
    }
    let Ok(claimed) = in_time else {
        patience.end();
        tell_of_slowness(at, call);
        give_back_late(shared, call, at, attempt_id, &claiming.await, place);
        return Err(store_too_slow());
    };
    observe::store_took("claim", begun.elapsed().as_secs_f64());
    let (mut place, is_in_doubt) = (Some(place), is_ambiguous(&claimed));
    if is_in_doubt {
        Attempt::give_back(shared, &call.route, at.clone(), attempt_id, place.take(), call.arrived.clone());
    }
    if !has_answered(&claimed)
        && let Some(reply) = read_only(shared, settings, at, events, is_in_doubt).await
    {
        return Ok((reply, None));
    }
    let reply = claimed.map_err(|error| refused_claim(&error, at, call))??;
    if reply.answer == Answer::Replay {
        shared.answers.keep(at, &reply.seen, begun, settings.answers_at_hand);
    }
    Ok((reply, place))
}

/// Asks for a place among the attempts and for a turn at the store. Before the claim: what is claimed must be able to run, and
/// what runs must be counted.
fn admitted<S>(
    shared: &Shared<S>,
    settings: &Settings,
    client: Option<Client>,
) -> Result<(Place, Option<Report>), Refusal> {
    let place = attempts::take(&shared.attempts, client, settings.attempts_max, settings.attempts_per_client_max)?;
    let turn = settings.guard.store();
    let turn = turn.map_err(|wait| store_unavailable("the store has failed several times").with_retry_after(wait))?;
    Ok((place, turn))
}

fn tell_of_slowness(at: &Address, call: &Call) {
    let error = StoreError::new("swap", ErrorKind::Ambiguous, "it was not answered in time; nothing is run for it");
    observe::store_failed(&error);
    tracing::warn!(target: log::ATTEMPT, parent: &call.arrived.span(), id = %at.id(), %error, "a claim could not be proved");
}

fn is_ambiguous<T>(claimed: &Result<T, EngineError>) -> bool {
    matches!(claimed, Err(EngineError::Store(error)) if error.kind == ErrorKind::Ambiguous)
}

/// The client was refused while this was asked. If the key is ours by now, or may be, it is given back: nothing was run.
fn give_back_late<S: Store + 'static>(
    shared: &Arc<Shared<S>>,
    call: &Call,
    at: &Address,
    attempt_id: AttemptId,
    claimed: &Result<Result<Reply, Refusal>, EngineError>,
    place: Place,
) {
    let may_be_ours = is_ambiguous(claimed)
        || matches!(claimed, Ok(Ok(reply)) if reply.answer == Answer::Proceed && reply.attempt_id() == Some(attempt_id));
    if may_be_ours {
        Attempt::give_back(shared, &call.route, at.clone(), attempt_id, Some(place), call.arrived.clone());
    }
}

/// What can be answered although nothing can be claimed. In a box: it is rare, and claims should not pay for its room.
async fn read_only<S: Store + 'static>(
    shared: &Shared<S>,
    settings: &Settings,
    at: &Address,
    events: [&Event<'_>; 2],
    is_in_doubt: bool,
) -> Option<Reply> {
    let begun = Instant::now();
    let read = shared.reading.answer(shared.engine.store(), at, settings.fence, events, is_in_doubt);
    let reply = Box::pin(read).await?;
    if reply.answer == Answer::Replay {
        shared.answers.keep(at, &reply.seen, begun, settings.answers_at_hand);
    }
    Some(reply)
}

/// Asks the store, and the guard before a new key is claimed. Whether it is new is looked up first where the route limits
/// new keys, so that retries use up nothing; elsewhere only where the guard says no, which counts for new keys only.
async fn claim_if_allowed<S: Store + 'static>(
    shared: &Shared<S>,
    settings: &Settings,
    new: &NewKey<'_>,
    at: &Address,
    [suspect, claim]: [&Event<'_>; 2],
) -> Result<Result<Reply, Refusal>, EngineError> {
    let (engine, is_limited) = (&shared.engine, new.route.new_keys_per_second.is_some());
    let mut seen = if is_limited { Some(engine.store().get(at).await?) } else { None };
    if seen.as_ref().is_none_or(|seen| is_new(seen, claim))
        && let Err(refusal) = may_be_new(settings, new)
    {
        if is_limited {
            return Ok(Err(refusal));
        }
        let looked = engine.store().get(at).await?;
        if is_new(&looked, claim) {
            return Ok(Err(refusal));
        }
        seen = Some(looked);
    }
    // Those that are rare are in boxes: the others should not pay for their room.
    match (settings.fence, seen) {
        (Some(fence), _) => Box::pin(claim_behind(shared, fence, at, suspect, claim)).await,
        (None, Some(seen)) => Box::pin(claim_seen(shared, at, claim, seen)).await,
        (None, None) => engine.apply(at, claim, None).await,
    }
    .map(Ok)
}

/// Asks the guard: first what uses nothing up.
fn may_be_new(settings: &Settings, new: &NewKey<'_>) -> Result<(), Refusal> {
    settings.guard.room_for(new)?;
    settings.guard.new_key(new.caller, new.route).map_err(|wait| too_many("new keys", wait))
}

/// Where a request comes from, as far as that counts.
pub(crate) fn client_of(parts: &Parts) -> Option<Client> {
    parts.extensions.get().copied()
}

/// Whether a claim would be the first under its key: there is no record, or it has expired.
pub(crate) fn is_new(seen: &Seen, claim: &Event<'_>) -> bool {
    let decided = decide(seen, claim, Version::from_bytes([0; 16]));
    decided.is_ok_and(|decided| decided.write.is_some_and(|next| next.attempt <= 1))
}

/// The claim of a key that was just looked up. What needs no write is said as it was found: looked up once more, a known
/// key that expires in between would be a new one that nobody has allowed.
async fn claim_seen<S: Store + 'static>(
    shared: &Shared<S>,
    at: &Address,
    claim: &Event<'_>,
    seen: Seen,
) -> Result<Reply, EngineError> {
    match decide(&seen, claim, Version::from_bytes([0; 16])) {
        Ok(Decision { write: None, answer }) => Ok(Reply { answer, seen, wrote: false }),
        _ => shared.engine.apply(at, claim, Some(seen)).await,
    }
}

/// Whether the store gave an answer. That one record is damaged is one, and no reason not to ask it about the others.
fn has_answered<T>(claimed: &Result<T, EngineError>) -> bool {
    match claimed {
        Err(EngineError::Store(error)) => match error.kind {
            ErrorKind::Unavailable | ErrorKind::Ambiguous | ErrorKind::Unsuitable => false,
            ErrorKind::Damaged | ErrorKind::Invalid => true,
        },
        _ => true,
    }
}

/// What the rules say of an answer that is at hand, if they say that it is replayed.
fn replayed(seen: Seen, claim: &Event<'_>) -> Option<Reply> {
    let decided = decide(&seen, claim, Version::from_bytes([0; 16])).ok()?;
    let replayed = decided.write.is_none() && decided.answer == Answer::Replay;
    replayed.then_some(Reply { answer: Answer::Replay, seen, wrote: false })
}

/// The claim while a fence stands: a key that may have been claimed in what a restore lost is unknown first.
async fn claim_behind<S: Store + 'static>(
    shared: &Shared<S>,
    fence: Fence,
    at: &Address,
    suspect: &Event<'_>,
    claim: &Event<'_>,
) -> Result<Reply, EngineError> {
    let engine = &shared.engine;
    if !fence.holds(at.key()) {
        return engine.apply(at, claim, None).await;
    }
    let seen = engine.store().get(at).await?;
    if fence.has_fallen(seen.now) {
        shared.let_fall(fence);
        return engine.apply(at, claim, Some(seen)).await;
    }
    let suspected = engine.apply(at, suspect, Some(seen)).await?;
    match suspected.answer {
        Answer::Undecided | Answer::Mismatch => Ok(suspected),
        // What stands there was not lost.
        _ => engine.apply(at, claim, Some(suspected.seen)).await,
    }
}

fn refused_claim(error: &EngineError, at: &Address, call: &Call) -> Refusal {
    tracing::warn!(target: log::ATTEMPT, parent: &call.arrived.span(), id = %at.id(), %error, "a claim could not be proved");
    if let EngineError::Store(error) = error {
        observe::store_failed(error);
    }
    store_unavailable("the store could not prove the claim")
}

fn too_many(what: &str, wait: Duration) -> Refusal {
    let detail = format!("this caller uses too many {what} per second; nothing was run; slow down");
    Refusal::new(Problem::TooMany, detail).with_retry_after(wait)
}

fn too_many_from_there(wait: Duration) -> Refusal {
    let detail = "too many look-ups per second come from this address; nothing was run; slow down";
    Refusal::new(Problem::TooMany, detail).with_retry_after(wait)
}

/// The time for a claim was over.
pub(crate) fn store_too_slow() -> Refusal {
    store_unavailable("the store did not answer in time")
}

pub(crate) fn store_unavailable(cause: &str) -> Refusal {
    let detail = format!("{cause}; nothing was run; send the same request again");
    Refusal::new(Problem::StoreUnavailable, detail).with_retry_after(STORE_RETRY_AFTER)
}
