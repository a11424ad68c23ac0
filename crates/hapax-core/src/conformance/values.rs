//! What is kept comes back, byte for byte: bodies, header fields, every field of a record, at every size.

use std::sync::Arc;

use super::harness::Harness;
use super::rig::{Rig, assert_stored};
use super::samples::{LONG_MS, address, bytes, completed, every_field, in_state, label, outcome, running, version};
use crate::clock::Timestamp;
use crate::limits;
use crate::record::{Body, Checkpoint, Label, OnLapse, Outcome, Policy, Record, State, Verdict};

/// Writes the record three ways, and it must come back the same each time: by `get`, in `Lost`, and on a page.
async fn comes_back<H: Harness>(rig: &Rig<'_, H>, key: &str, record: &Record) {
    record.check_limits().expect("the suite keeps the limits");
    let at = address("values", key);
    let stamped = rig.put(&at, record).await;
    assert_stored(&rig.get(&at).await, record, stamped);
    assert_stored(&rig.loses(&at, None, &running()).await, record, stamped);
    let again = Record { version: version(), ..record.clone() };
    let stamped = rig.replace(&at, record.version, &again).await;
    let seen = rig.get(&at).await;
    assert_stored(&seen, &again, stamped);
    let found = rig.scan_all(&crate::store::Scan { limit: 500, ..Default::default() }).await;
    let entry = found.into_iter().find(|entry| entry.address == at).unwrap_or_else(|| panic!("{at:?} is on no page"));
    assert!(Some(&entry.stored) == seen.stored.as_ref(), "a page shows the same record as a look at {key}");
}

fn with_body(body: Body) -> Record {
    let outcome = Outcome { body, ..(*outcome(b"")).clone() };
    Record { outcome: Some(Arc::new(outcome)), ..completed(LONG_MS) }
}

fn with_headers(headers: Vec<(Vec<u8>, Vec<u8>)>) -> Record {
    let outcome = Outcome { headers, ..(*outcome(b"body")).clone() };
    Record { outcome: Some(Arc::new(outcome)), ..completed(LONG_MS) }
}

fn fields(fields: &[(&[u8], &[u8])]) -> Vec<(Vec<u8>, Vec<u8>)> {
    fields.iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect()
}

pub(super) async fn empty_body_is_not_an_absent_one<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    comes_back(&rig, "empty", &with_body(Body::Kept(Vec::new()))).await;
    comes_back(&rig, "not-kept", &with_body(Body::NotKept)).await;
    comes_back(&rig, "no-outcome", &Record { outcome: None, ..completed(LONG_MS) }).await;
}

pub(super) async fn every_byte_value<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    for byte in [0, 1, b'\n', b'\r', b'\\', b'\'', 0x7f, 0x80, 0xff] {
        comes_back(&rig, &format!("one-{byte}"), &with_body(Body::Kept(vec![byte]))).await;
    }
    let up: Vec<u8> = (0..=255).collect();
    let down: Vec<u8> = up.iter().rev().copied().collect();
    comes_back(&rig, "up", &with_body(Body::Kept(up))).await;
    comes_back(&rig, "down", &with_body(Body::Kept(down))).await;
}

pub(super) async fn bodies_around_powers_of_two<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    for power in [7, 8, 12, 14, 16, 20] {
        for length in [(1 << power) - 1, 1 << power, (1 << power) + 1] {
            comes_back(&rig, &format!("b-{length}"), &with_body(Body::Kept(bytes(length)))).await;
        }
    }
}

pub(super) async fn largest_body<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    comes_back(&rig, "largest", &with_body(Body::Kept(bytes(limits::BODY_BYTES_MAX)))).await;
}

pub(super) async fn headers_keep_order_and_repeats<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    let repeated = fields(&[
        (b"link", b"<b>"),
        (b"via", b"1.1 x"),
        (b"link", b"<a>"),
        (b"Link", b"<c>"),
        (b"link", b"<a>"),
        (b"accept-ranges", b"none"),
    ]);
    comes_back(&rig, "repeated", &with_headers(repeated)).await;
    comes_back(&rig, "none", &with_headers(Vec::new())).await;
}

pub(super) async fn odd_headers<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    let all: Vec<u8> = (0..=255).collect();
    let odd = fields(&[
        (b"x-empty", b""),
        (b"x-spaces", b"  two before, three after   "),
        (b"x-tab", b"\t"),
        (b"x-latin", b"caf\xe9"),
        (b"x-not-utf-8", b"\xff\xfe\x80"),
        (b"x-nul", b"a\0b"),
        (b"x-colon", b"a: b"),
        (b"x-quotes", b"\"'`\\"),
        (b"X-UPPER", b"Kept As It Came"),
        (b"", b"a name that is empty"),
        (b"x-all", &all),
    ]);
    comes_back(&rig, "odd", &with_headers(odd)).await;
}

pub(super) async fn two_hundred_headers<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    let many = (0..200).map(|n| (format!("x-{}", n % 50).into_bytes(), format!("{n}").into_bytes())).collect();
    comes_back(&rig, "many", &with_headers(many)).await;
    let most = (0..limits::HEADER_COUNT_MAX).map(|n| (b"x".to_vec(), n.to_be_bytes().to_vec())).collect();
    comes_back(&rig, "most", &with_headers(most)).await;
}

pub(super) async fn every_optional_field_empty<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    let policy = Policy { keep_expired_ms: None, attempts_max: None, ..Policy::default() };
    for state in State::ALL {
        let bare = Record { attempt: 0, attempt_id: None, due_in_ms: None, policy, ..running() };
        comes_back(&rig, state.name(), &Record { state, expires_in_ms: None, outcome: None, ..bare }).await;
    }
}

pub(super) async fn every_optional_field_filled<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    for state in State::ALL {
        comes_back(&rig, state.name(), &Record { state, ..every_field() }).await;
    }
}

pub(super) async fn every_verdict_and_policy<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    for on_lapse in OnLapse::ALL {
        for verdict in [None, Some(Verdict::Happened), Some(Verdict::DidNotHappen), Some(Verdict::GivenUp)] {
            for (keep_expired_ms, attempts_max) in [(None, Some(0)), (Some(0), None), (Some(LONG_MS), Some(u32::MAX))] {
                let policy = Policy { on_lapse, keep_expired_ms, attempts_max, ..Policy::default() };
                let record = Record { verdict, policy, ..in_state(State::Unknown) };
                let key = format!("{on_lapse:?}-{verdict:?}-{keep_expired_ms:?}");
                comes_back(&rig, &key, &record).await;
            }
        }
    }
}

pub(super) async fn durations_and_numbers_up_to_their_limits<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    for ms in [0, 1, limits::DURATION_MS_MAX] {
        let policy = Policy {
            lease_ms: ms,
            retention_ms: ms,
            keep_expired_ms: Some(ms),
            attempts_max: Some(u32::MAX),
            ..Policy::default()
        };
        let created_at = Some(Timestamp::from_ms(ms));
        let times = Record { due_in_ms: Some(ms), expires_in_ms: Some(ms), created_at, policy, ..running() };
        comes_back(&rig, &format!("running-{ms}"), &times).await;
        let completed = Record { attempt: u32::MAX, state: State::Completed, version: version(), ..times };
        comes_back(&rig, &format!("completed-{ms}"), &completed).await;
    }
}

pub(super) async fn texts_come_back_untouched<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    let texts = [
        "",
        " ",
        " a ",
        "a\n",
        "\ttab",
        "it's",
        "\"",
        "\\",
        "\\0",
        "%",
        "_",
        "NULL",
        "null",
        "{}",
        "é",
        "e\u{301}",
        "\u{202e}rtl",
        "🦀",
        "\u{feff}bom",
        "a\0b",
    ];
    for (number, text) in texts.into_iter().enumerate() {
        let record = Record {
            error: Some(text.to_owned()),
            checkpoint: Some(Checkpoint { name: text.to_owned(), data: text.as_bytes().to_vec() }),
            labels: vec![label(text, "value"), label("name", text), label(text, text), label(text, text)].into(),
            ..running()
        };
        comes_back(&rig, &format!("text-{number}"), &record).await;
    }
}

pub(super) async fn largest_record<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    let header_bytes = limits::HEADER_BYTES_MAX / limits::HEADER_COUNT_MAX - 1;
    let headers = (0..limits::HEADER_COUNT_MAX).map(|_| (b"x".to_vec(), bytes(header_bytes))).collect();
    let body = Body::Kept(bytes(limits::BODY_BYTES_MAX));
    let labels = (0..limits::LABEL_COUNT_MAX)
        .map(|n| Label { name: format!("{n:02}"), value: "v".repeat(limits::LABEL_BYTES_MAX - 2) });
    let record = Record {
        checkpoint: Some(Checkpoint { name: "c".to_owned(), data: bytes(limits::CHECKPOINT_BYTES_MAX - 1) }),
        request: Some(bytes(limits::REQUEST_BYTES_MAX).into()),
        outcome: Some(Arc::new(Outcome { status: u16::MAX, headers, body })),
        error: Some("e".repeat(limits::ERROR_CODE_CHARS_MAX)),
        labels: labels.collect(),
        ..every_field()
    };
    comes_back(&rig, "largest", &record).await;
}
