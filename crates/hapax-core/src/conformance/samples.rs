//! Records, addresses and tokens for the cases.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sha2::{Digest, Sha256};

use crate::address::{Address, AddressScheme, Key, Scope, Space};
use crate::clock::Timestamp;
use crate::fingerprint::{Fingerprint, Scheme};
use crate::record::{AttemptId, Body, Checkpoint, Label, OnLapse, Outcome, Policy, Record, State, Verdict, Version};

/// A duration that passes within a case.
pub(super) const SHORT_MS: u64 = 50;

/// A duration that does not pass within a case, unless a fake clock is moved by it.
pub(super) const LONG_MS: u64 = 600_000;

/// How far a clock is stepped.
pub(super) const HOUR_MS: i64 = 3_600_000;

/// Sixteen bytes that no other call and no other process gets. They need not be secret here.
pub(super) fn token() -> [u8; 16] {
    static DRAWN: AtomicU64 = AtomicU64::new(0);
    let mut hash = Sha256::new();
    hash.update(std::process::id().to_le_bytes());
    hash.update(DRAWN.fetch_add(1, Ordering::Relaxed).to_le_bytes());
    let digest: [u8; 32] = hash.finalize().into();
    let mut token = [0; 16];
    token.copy_from_slice(&digest[..16]);
    token
}

pub(super) fn version() -> Version {
    Version::from_bytes(token())
}

pub(super) fn attempt_id() -> AttemptId {
    AttemptId::from_bytes(token())
}

/// The address of a key in a scope, where nothing else of it matters.
pub(super) fn address(scope: &str, key: &str) -> Address {
    address_of(AddressScheme::default().as_str(), "conformance", scope, key)
}

pub(super) fn address_of(scheme: &str, space: &str, scope: &str, key: &str) -> Address {
    let scheme = AddressScheme::new(scheme).expect("a scheme");
    let space = Space::new(space).expect("a space");
    Address::new(&scheme, &space, &scope_of(scope), &Key::new(key).expect("a key"))
}

pub(super) fn scope_of(scope: &str) -> Scope {
    Scope::new(scope).expect("a scope")
}

/// The fingerprint of the request that all cases repeat.
pub(super) fn fingerprint() -> Fingerprint {
    Fingerprint { scheme: Scheme::new("1;sha256").expect("a scheme"), digest: [7; 32] }
}

/// The fingerprint of another request.
pub(super) fn other_fingerprint() -> Fingerprint {
    Fingerprint { digest: [8; 32], ..fingerprint() }
}

/// A policy whose lease passes within a case and whose retention does not.
pub(super) fn policy(on_lapse: OnLapse) -> Policy {
    Policy { on_lapse, lease_ms: SHORT_MS, retention_ms: LONG_MS, keep_expired_ms: None, attempts_max: None }
}

/// What is replayed of work that was accepted and never ran.
pub(super) fn never_ran() -> Arc<Outcome> {
    Arc::new(Outcome { status: 408, headers: Vec::new(), body: Body::Kept(b"never ran".to_vec()) })
}

/// A running record, as a claim writes it.
pub(super) fn running() -> Record {
    Record {
        attempt: 1,
        attempt_id: Some(attempt_id()),
        due_in_ms: Some(LONG_MS),
        ..Record::new(version(), State::Running, fingerprint(), Policy::default())
    }
}

/// A record in that state, with the times the rules give it, that neither lapses nor expires within a case.
pub(super) fn in_state(state: State) -> Record {
    let (due_in_ms, expires_in_ms) = match state {
        State::Running | State::Unknown | State::Dead => (Some(LONG_MS), None),
        State::Ready => (Some(LONG_MS), Some(2 * LONG_MS)),
        State::Completed | State::Expired => (None, Some(LONG_MS)),
    };
    let outcome = (state == State::Completed).then(|| outcome(b"done"));
    Record { state, due_in_ms, expires_in_ms, outcome, ..running() }
}

/// A completed record that expires in that time.
pub(super) fn completed(expires_in_ms: u64) -> Record {
    Record { expires_in_ms: Some(expires_in_ms), ..in_state(State::Completed) }
}

/// An answer with that body.
pub(super) fn outcome(body: &[u8]) -> Arc<Outcome> {
    let headers = vec![(b"content-type".to_vec(), b"text/plain".to_vec())];
    Arc::new(Outcome { status: 201, headers, body: Body::Kept(body.to_vec()) })
}

pub(super) fn label(name: &str, value: &str) -> Label {
    Label { name: name.to_owned(), value: value.to_owned() }
}

/// A record that uses every field.
pub(super) fn every_field() -> Record {
    Record {
        version: version(),
        state: State::Completed,
        attempt: 3,
        attempt_id: Some(attempt_id()),
        fingerprint: fingerprint(),
        policy: Policy {
            on_lapse: OnLapse::Resume,
            lease_ms: 1,
            retention_ms: LONG_MS,
            keep_expired_ms: Some(2),
            attempts_max: Some(3),
        },
        due_in_ms: Some(LONG_MS),
        expires_in_ms: Some(LONG_MS),
        created_at: Some(Timestamp::from_ms(1_234_567_890_123)),
        checkpoint: Some(Checkpoint { name: "charged".to_owned(), data: vec![0, 1, 255] }),
        request: Some(Arc::from(&b"POST /pay"[..])),
        outcome: Some(outcome(b"paid")),
        error: Some("timeout".to_owned()),
        verdict: Some(Verdict::Happened),
        doubt: None,
        labels: vec![label("order", "o-1"), label("invoice", "i-1")].into(),
    }
}

/// Bytes without a short period, so that a piece that is missing or in the wrong place is noticed.
pub(super) fn bytes(length: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}
