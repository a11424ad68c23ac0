//! From records, answers and notes to what operators see. Bodies and headers only where they were asked for.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hapax_core::clock::Now;
use hapax_core::journal::Noted;
use hapax_core::record::{Body, Outcome, State, Stored, Verdict};
use hapax_core::store::{Damaged, Entry};

use super::lookup::is_observed;
use super::view::{AnswerView, DamagedView, NoteView, RecordView};
use crate::timestamp;

/// A record, as it stands at that time.
pub(super) fn record(entry: &Entry, now: Now, body: bool) -> RecordView {
    let (at, stored) = (&entry.address, &entry.stored);
    let record = &stored.record;
    RecordView {
        id: at.id().to_string(),
        space: at.space().as_str().to_owned(),
        scope: at.scope().as_str().to_owned(),
        key: at.key().as_str().to_owned(),
        state: record.state.name().to_owned(),
        attempt: record.attempt,
        error: record.error.clone(),
        verdict: record.verdict.map(|verdict| self::verdict(verdict).to_owned()),
        doubted_since: stored.doubted_since().map(timestamp::text),
        probes: record.doubt.map_or(0, |doubt| doubt.probes),
        created_at: timestamp::text(stored.created_at()),
        changed_at: timestamp::text(stored.stamped_at),
        due_at: stored.due_at().map(timestamp::text),
        expires_at: stored.expires_at().map(timestamp::text),
        remark: remark(entry, now),
        labels: record.labels.iter().map(|label| (label.name.clone(), label.value.clone())).collect(),
        answer: record.outcome.as_deref().map(|outcome| answer(outcome, body)),
    }
}

/// What state and times do not say by themselves.
fn remark(entry: &Entry, now: Now) -> Option<String> {
    let stored = &entry.stored;
    let observed = is_observed(entry.address.space().as_str()).then(|| "only observed".to_owned());
    let standing = match (stored.record.state, stored.due_at()) {
        (State::Running, Some(due_at)) if now.has_reached(due_at) => {
            Some(format!("lease ended {}; no node has noticed", timestamp::text(due_at)))
        }
        (State::Expired, _) => Some(taken_until(stored, now).map_or_else(
            || "free: the next request with the key runs".to_owned(),
            |until| format!("tombstone: the key stays taken until {until}"),
        )),
        _ => None,
    };
    let parts: Vec<String> = observed.into_iter().chain(standing).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// Until when a tombstone keeps its key taken; `None`: the key is free.
pub(super) fn taken_until(stored: &Stored, now: Now) -> Option<String> {
    match stored.expires_at() {
        Some(expires_at) if now.has_reached(expires_at) => None,
        expires_at => Some(expires_at.map_or_else(|| "further notice".to_owned(), timestamp::text)),
    }
}

/// The word for a verdict that was given.
pub(super) const fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Happened => "happened",
        Verdict::DidNotHappen => "did-not-happen",
        Verdict::GivenUp => "given-up",
    }
}

fn answer(outcome: &Outcome, body: bool) -> AnswerView {
    let kept = match &outcome.body {
        Body::Kept(bytes) => Some(bytes),
        Body::NotKept => None,
    };
    let lossy = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).into_owned();
    let text = kept.filter(|_| body).map(|bytes| std::str::from_utf8(bytes).map_err(|_| bytes));
    AnswerView {
        status: outcome.status,
        body_bytes: kept.map(|bytes| bytes.len() as u64),
        headers: body.then(|| outcome.headers.iter().map(|(name, value)| (lossy(name), lossy(value))).collect()),
        body: text.and_then(Result::ok).map(str::to_owned),
        body_base64: text.and_then(Result::err).map(|bytes| STANDARD.encode(bytes)),
    }
}

/// A record that could not be read.
pub(super) fn damaged(damaged: &Damaged) -> DamagedView {
    let Damaged { id, scope, key, reason } = damaged.clone();
    DamagedView { id: id.map(|id| id.to_string()), scope, key, reason }
}

/// A line of the audit log.
pub(super) fn note(noted: Noted) -> NoteView {
    let Noted { number, at, note } = noted;
    let about = note.about;
    NoteView {
        number,
        at: timestamp::text(at),
        who: note.who,
        what: note.what,
        id: about.as_ref().map(|about| about.id.to_string()),
        attempt: about.as_ref().map(|about| about.attempt),
        scope: about.as_ref().map(|about| about.scope.clone()),
        key: about.map(|about| about.key),
        before: note.before.map(|state| state.name().to_owned()),
        after: note.after.map(|state| state.name().to_owned()),
        reason: note.reason,
        detail: note.detail,
    }
}
