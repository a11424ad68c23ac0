//! `decide` against `docs/state_machine.md`: every combination, judged by the table that people read.
//!
//! The table says what must come of it; this file says which words of the table hold for a combination, from how it was
//! put together and not from what `decide` makes of it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

#[path = "transition/scenario.rs"]
mod scenario;
#[path = "transition/table.rs"]
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hapax_core::clock::Timestamp;
use hapax_core::record::{Body, Labels, OnLapse, Outcome, Policy, Record, State, Stored, Version};
use hapax_core::transition::{Answer, Decision, Event, decide};

use scenario::{EVENTS, Kind, Print, Scenario, every_scenario};
use table::{Row, edges, rows};

const PAGE: &str = include_str!("../../../docs/state_machine.md");
const NEXT_VERSION: Version = Version::from_bytes([0xee; 16]);

#[test]
fn every_combination_is_decided_as_the_table_says() {
    let rows = rows(PAGE);
    let mut hits = vec![0_u64; rows.len()];
    let mut tried = 0_u64;
    for scenario in every_scenario() {
        let seen = scenario.seen();
        for kind in EVENTS {
            let decided = scenario.with_event(kind, |event| decide(&seen, event, NEXT_VERSION));
            tried += 1;
            if scenario.cannot_compare(kind) {
                assert!(decided.is_err(), "{scenario:?} {kind:?}: a scheme that nobody knows is an error: {decided:?}");
                continue;
            }
            let facts = scenario.facts(kind);
            let (number, row) = rows
                .iter()
                .enumerate()
                .find(|(_, row)| row.fits(&facts, kind))
                .unwrap_or_else(|| panic!("no row for {scenario:?} {kind:?} {facts:?}"));
            hits[number] += 1;
            check(&scenario, kind, row, &decided.unwrap());
        }
    }
    assert!(tried > 400_000, "only {tried} combinations were tried");
    for (row, hits) in rows.iter().zip(hits) {
        assert!(hits > 0, "no combination reaches the row {row:?}");
    }
}

fn check(scenario: &Scenario, kind: Kind, row: &Row, decision: &Decision) {
    let context = || format!("{scenario:?} {kind:?}\nrow {row:?}\n{decision:?}");
    assert_eq!(decision.answer, row.answer, "{}", context());
    assert_eq!(
        decision.write.as_ref().map(|next| next.state),
        row.writes.as_ref().map(|writes| writes.state),
        "{}",
        context()
    );
    let (Some(next), Some(writes)) = (&decision.write, &row.writes) else { return };
    let before = scenario.stored();
    let found = before.as_ref().filter(|_| !scenario.is_free()).map(|stored| &stored.record);
    let attempt = found.map_or(0, |record| record.attempt);
    let fence = found.and_then(|record| record.attempt_id);
    let expected = match writes.attempt.as_str() {
        "attempt 1" => (1, Some(scenario::MINE)),
        "new attempt" => (attempt + 1, Some(scenario::MINE)),
        "same attempt" => (attempt, fence),
        "no attempt" => (attempt, None),
        other => panic!("the table says {other:?} of an attempt"),
    };
    assert_eq!((next.attempt, next.attempt_id), expected, "{}", context());
    assert_eq!(next.version, NEXT_VERSION, "{}", context());
    assert_kept(found, before.as_ref(), next, &context);
    let accepted = matches!(kind, Kind::Claim | Kind::Accept) && writes.state == State::Ready;
    let takes_policy = writes.attempt.ends_with("new attempt") || accepted;
    let policy = match found {
        None => scenario.route(),
        Some(record) if takes_policy => record.policy.stricter(scenario.route()),
        Some(record) => record.policy,
    };
    assert_eq!(next.policy, policy, "{}", context());
    assert_times(kind, next, &policy, &context);
    assert_doubt(kind, found, next, &context);
    let runs_again = matches!(kind, Kind::Claim | Kind::ClaimByWorker | Kind::Accept | Kind::Lapse)
        && matches!(next.state, State::Ready | State::Running)
        && found.is_some_and(|record| record.state == State::Running);
    let from_the_start = runs_again && next.policy.on_lapse == OnLapse::Rerun;
    let keeps = kind != Kind::Checkpoint && !from_the_start && next.state.is_unfinished();
    if let Some(record) = found.filter(|_| keeps) {
        assert_eq!(next.checkpoint, record.checkpoint, "{}", context());
    }
    assert!(!(from_the_start && next.checkpoint.is_some()), "{}", context());
}

/// What no write may change.
fn assert_kept(found: Option<&Record>, before: Option<&Stored>, next: &Record, context: &dyn Fn() -> String) {
    match found {
        Some(record) => {
            assert_eq!(next.fingerprint, record.fingerprint, "{}", context());
            assert_eq!(next.created_at, before.map(Stored::created_at), "{}", context());
            assert!(next.labels.starts_with(&record.labels), "{}", context());
        }
        None => assert_eq!(next.created_at, None, "a new record begins with its stamp: {}", context()),
    }
    match next.state {
        State::Completed => assert!(next.outcome.is_some() && next.request.is_none(), "{}", context()),
        State::Expired => assert!(next.outcome.is_none() && next.request.is_none(), "{}", context()),
        _ => assert!(next.outcome.is_none(), "{}", context()),
    }
}

/// Unfinished records are due some time and never expire, but for ready ones; finished ones expire.
fn assert_times(kind: Kind, next: &Record, policy: &Policy, context: &dyn Fn() -> String) {
    let (due, expires) = (next.due_in_ms, next.expires_in_ms);
    match next.state {
        State::Running => assert_eq!((due, expires), (Some(policy.lease_ms), None), "{}", context()),
        State::Ready => {
            let is_soon = kind == Kind::FailSoonForgotten && policy.keep_expired_ms.is_none() && next.request.is_none();
            let keep_ms = if is_soon { scenario::SOON_MS } else { policy.retention_ms };
            assert_eq!(expires, due.map(|due| due + keep_ms), "{}", context());
        }
        State::Unknown | State::Dead => assert!(due.is_some() && expires.is_none(), "{}", context()),
        State::Completed => {
            let look = policy.keep_expired_ms.and(Some(policy.retention_ms));
            assert_eq!((due, expires), (look, Some(policy.retention_ms)), "{}", context());
        }
        State::Expired => {
            let stands = match kind {
                Kind::Purge => policy.keep_expired_ms.max(Some(policy.retention_ms)),
                Kind::PurgeToRerun if expires == Some(0) => Some(0),
                Kind::PurgeToRerun => policy.keep_expired_ms.max(Some(policy.retention_ms)),
                _ => policy.keep_expired_ms,
            };
            assert_eq!((due, expires), (None, stands), "{}", context());
        }
    }
    assert_eq!(next.state.is_unfinished(), due.is_some() && next.state != State::Completed, "{}", context());
    let waits = next.state == State::Ready && next.request.is_none();
    let may_go = (next.state == State::Completed || waits) && policy.keep_expired_ms.is_none();
    let reaped = if may_go || next.state == State::Expired { expires } else { None };
    assert_eq!(next.reap_in_ms(), reaped, "{}", context());
}

/// Since when nobody knows stays the same until somebody does.
fn assert_doubt(kind: Kind, found: Option<&Record>, next: &Record, context: &dyn Fn() -> String) {
    let before = found.and_then(|record| record.doubt);
    match next.state {
        State::Unknown | State::Dead => {
            let since = next.doubt.map(|doubt| doubt.since);
            let expected = match kind {
                Kind::Suspect => Some(scenario::RESTORED),
                Kind::SuspectOfOld => Some(Timestamp::from_ms(scenario::NOW_MS)),
                // It was at work until now.
                Kind::Doubt => None,
                _ => before.and_then(|doubt| doubt.since),
            };
            assert_eq!(since, Some(expected), "{}", context());
        }
        _ => assert_eq!(next.doubt, None, "{}", context()),
    }
}

#[test]
fn a_completed_key_is_free_at_once_only_where_a_rerun_was_allowed() {
    let mut freed = 0;
    for scenario in every_scenario() {
        for kind in [Kind::Purge, Kind::PurgeToRerun] {
            let decision = scenario.with_event(kind, |event| decide(&scenario.seen(), event, NEXT_VERSION)).unwrap();
            let is_free = decision.write.is_some_and(|next| next.expires_in_ms == Some(0));
            let was_completed = scenario.stored().is_some_and(|stored| stored.record.state == State::Completed);
            assert!(!is_free || was_completed && kind == Kind::PurgeToRerun, "{scenario:?} {kind:?}");
            freed += u64::from(is_free);
        }
    }
    assert!(freed > 0);
}

#[test]
fn only_a_probe_that_could_have_told_is_counted() {
    for scenario in every_scenario() {
        for (kind, counted) in [(Kind::Inconclusive, 1), (Kind::InconclusiveTooSoon, 0)] {
            let decision = scenario.with_event(kind, |event| decide(&scenario.seen(), event, NEXT_VERSION)).unwrap();
            if let Some(doubt) = decision.write.and_then(|next| next.doubt) {
                assert_eq!(doubt.probes, scenario::DOUBT.probes + counted, "{scenario:?} {kind:?}");
            }
        }
    }
}

#[test]
fn the_diagram_shows_every_change_and_no_other() {
    let mut found: BTreeMap<(String, String), BTreeSet<&str>> = BTreeMap::new();
    for scenario in every_scenario().filter(|scenario| scenario.print == Print::Same) {
        let seen = scenario.seen();
        let from = scenario.stored().filter(|_| !scenario.is_free());
        let from = from.map_or("[*]".to_owned(), |stored| stored.record.state.name().to_owned());
        for kind in EVENTS {
            let decision = scenario.with_event(kind, |event| decide(&seen, event, NEXT_VERSION)).unwrap();
            if let Some(next) = decision.write {
                found.entry((from.clone(), next.state.name().to_owned())).or_default().insert(kind.short_name());
            }
        }
    }
    let drawn = edges(PAGE);
    let drawn: BTreeMap<_, BTreeSet<&str>> =
        drawn.iter().map(|(edge, events)| (edge.clone(), events.iter().map(String::as_str).collect())).collect();
    assert_eq!(found, drawn);
}

#[test]
fn another_answer_of_the_same_attempt_is_fenced() {
    let other = Arc::new(Outcome { status: 500, headers: vec![], body: Body::NotKept });
    let completed = every_scenario().filter(Scenario::is_completed_by_its_attempt);
    let mut tried = 0;
    for scenario in completed {
        let complete = Event::Complete { attempt_id: scenario::MINE, outcome: &other, labels: &Labels::default() };
        let decision = decide(&scenario.seen(), &complete, NEXT_VERSION).unwrap();
        assert_eq!(decision, Decision { write: None, answer: Answer::Fenced }, "{scenario:?}");
        tried += 1;
    }
    assert!(tried > 0);
}

#[test]
fn a_writer_who_was_refused_writes_nothing() {
    for scenario in every_scenario() {
        let seen = scenario.seen();
        for kind in EVENTS {
            let Ok(decision) = scenario.with_event(kind, |event| decide(&seen, event, NEXT_VERSION)) else { continue };
            let refused = matches!(
                decision.answer,
                Answer::Busy
                    | Answer::Replay
                    | Answer::Gone
                    | Answer::Mismatch
                    | Answer::Fenced
                    | Answer::DoubleRun
                    | Answer::Overruled
                    | Answer::NotFound
                    | Answer::Refused
                    | Answer::Stale
            );
            assert!(!(refused && decision.write.is_some()), "{scenario:?} {kind:?} {decision:?}");
        }
    }
}
