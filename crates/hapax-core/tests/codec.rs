//! A record survives its bytes, and altered bytes are never a record.
//!
//! Records made at random come back as they were. Every bit of one record that uses all fields is flipped, and some
//! bits of records made at random. The bytes of that one record are written down here, field by field, so that the
//! format cannot change unnoticed; forged blobs with a right checksum are made from them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

use std::sync::Arc;

use hapax_core::address::{Address, AddressScheme, Key, Scope, Space};
use hapax_core::clock::{Now, Timestamp};
use hapax_core::codec::{DecodeError, OwnedRow, SCHEMA, column, encode, seen};
use hapax_core::fingerprint::{Fingerprint, SCHEME_BYTES_MAX, Scheme};
use hapax_core::limits::DURATION_MS_MAX;
use hapax_core::record::{
    AttemptId, Body, Checkpoint, Doubt, Label, OnLapse, Outcome, Policy, Record, State, Stored, Verdict, Version,
};
use hapax_core::store::{ErrorKind, Seen};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use sha2::{Digest, Sha256};

const CHECKSUM_BYTES: usize = 16;

/// Every single bit, and all of them.
const MASKS: [u8; 9] = [0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0xff];

const STAMP_MS: u64 = 1_700_000_000_000;

type Decoded = Result<(Address, Stored), DecodeError>;

fn damaged(what: &'static str) -> Decoded {
    Err(DecodeError::Damaged(what))
}

/// Enough cases to find what is wrong, few enough to run always.
fn config() -> ProptestConfig {
    ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() }
}

fn address(scheme: &str, space: &str, scope: &str, key: &str) -> Address {
    let scheme = AddressScheme::new(scheme).unwrap();
    Address::new(&scheme, &Space::new(space).unwrap(), &Scope::new(scope).unwrap(), &Key::new(key).unwrap())
}

/// The row of a record, as a store keeps it.
fn row(at: &Address, stored: &Stored) -> OwnedRow {
    let record = &stored.record;
    OwnedRow {
        id: at.id().as_bytes().to_vec(),
        address: [at.scheme().as_str(), at.space().as_str(), at.scope().as_str(), at.key().as_str()].map(str::to_owned),
        version: record.version.as_bytes().to_vec(),
        state: record.state.number().into(),
        stamped_at: column(Some(stored.stamped_at)).unwrap(),
        due_at: column(stored.due_at()),
        reap_at: column(stored.reap_at()),
        data: encode(at.id(), record),
    }
}

/// What a row says after a change.
fn after(row: &OwnedRow, change: impl FnOnce(&mut OwnedRow)) -> Decoded {
    let mut row = row.clone();
    change(&mut row);
    row.decode()
}

/// The row with another body of the blob and a checksum that fits.
fn resummed(row: &OwnedRow, body: &[u8]) -> OwnedRow {
    let mut hash = Sha256::new();
    hash.update(&row.id);
    hash.update(&row.version);
    hash.update([u8::try_from(row.state).unwrap()]);
    hash.update(body);
    let data = [body, &hash.finalize()[..CHECKSUM_BYTES]].concat();
    OwnedRow { data, ..row.clone() }
}

fn body_of(row: &OwnedRow) -> &[u8] {
    &row.data[..row.data.len() - CHECKSUM_BYTES]
}

/// The other numbers of a state column: other states, none, and what no column should hold.
fn other_states(state: i64) -> impl Iterator<Item = i64> {
    (-1..=8).chain([255, 256, 256 + state, i64::MIN, i64::MAX]).filter(move |other| *other != state)
}

/// One moment as other columns would have it.
fn other_moments(at: Option<i64>) -> Vec<Option<i64>> {
    match at {
        Some(at) => vec![None, Some(at - 1), Some(at + 1), Some(0), Some(-at), Some(i64::MAX)],
        None => vec![Some(0), Some(STAMP_MS as i64), Some(i64::MAX), Some(-1)],
    }
}

/// Other texts in place of one part of an address.
fn other_texts(text: &str) -> [String; 6] {
    let mut last_changed = text.to_owned();
    let last = last_changed.pop();
    last_changed.push(if last == Some('x') { 'y' } else { 'x' });
    [String::new(), format!("{text}x"), format!("x{text}"), format!("{text}\0"), text.repeat(300), last_changed]
}

/// A record that uses every field, with a due and a reap time.
fn rich() -> (Address, Stored) {
    let header = |value: &[u8]| (b"set-cookie".to_vec(), value.to_vec());
    let record = Record {
        version: Version::from_bytes([0x11; 16]),
        state: State::Expired,
        attempt: 300,
        attempt_id: Some(AttemptId::from_bytes([0x22; 16])),
        fingerprint: Fingerprint { scheme: Scheme::new("1;sha256").unwrap(), digest: [7; 32] },
        policy: Policy {
            on_lapse: OnLapse::Resume,
            lease_ms: 30_000,
            retention_ms: 86_400_000,
            keep_expired_ms: Some(3_600_000),
            attempts_max: Some(5),
        },
        due_in_ms: Some(500),
        expires_in_ms: Some(3_600_000),
        created_at: Some(Timestamp::from_ms(1_234_567_890_123)),
        checkpoint: Some(Checkpoint { name: "charged".to_owned(), data: vec![0, 1, 255] }),
        request: Some(Arc::from(&b"POST /pay"[..])),
        outcome: Some(Arc::new(Outcome {
            status: 201,
            headers: vec![header(b"a=1"), header(b"\xff\0")],
            body: Body::Kept(b"paid".to_vec()),
        })),
        error: Some("zu spät\0".to_owned()),
        verdict: Some(Verdict::DidNotHappen),
        doubt: None,
        labels: [Label { name: "order".to_owned(), value: "№\u{0}1".to_owned() }].into(),
    };
    let stored = Stored { record, stamped_at: Timestamp::from_ms(STAMP_MS) };
    (address("1", "http", "alice é", "k-1"), stored)
}

fn rich_row() -> OwnedRow {
    let (at, stored) = rich();
    row(&at, &stored)
}

mod at_random {
    use super::*;

    fn text() -> impl Strategy<Value = String> {
        let odd = select(vec!['\0', '\n', '"', '\u{7f}', '\u{e9}', '\u{202e}', '\u{ffff}', '\u{10ffff}', '😂']);
        let character = prop_oneof![3 => prop::char::range('a', 'z'), 2 => odd, 1 => any::<char>()];
        vec(character, 0..12).prop_map(String::from_iter)
    }

    fn bytes(bytes_max: usize) -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![1 => Just(Vec::new()), 4 => vec(any::<u8>(), 0..=bytes_max)]
    }

    fn ascii(first: char, chars_max: usize) -> impl Strategy<Value = String> {
        vec(prop::char::range(first, '~'), 1..=chars_max).prop_map(String::from_iter)
    }

    pub(super) fn at() -> impl Strategy<Value = Address> {
        let scope = vec(any::<char>().prop_filter("no control", |c| !c.is_control()), 1..=20);
        let scope = scope.prop_map(String::from_iter);
        (ascii(' ', 8), ascii(' ', 8), scope, ascii(' ', 255))
            .prop_map(|(scheme, space, scope, key)| address(&scheme, &space, &scope, &key))
    }

    /// Durations around the places where their encoding gets longer, and any.
    fn ms(ms_max: u64) -> impl Strategy<Value = u64> {
        let edges = (0..64_u32, 0..2_u64).prop_map(move |(bits, back)| ((1_u64 << bits) - back).min(ms_max));
        prop_oneof![edges, Just(ms_max), 0..=ms_max]
    }

    fn policy(ms_max: u64) -> impl Strategy<Value = Policy> {
        let lengths = (ms(ms_max), ms(ms_max), option::of(ms(ms_max)));
        (select(&OnLapse::ALL[..]), lengths, option::of(any::<u32>())).prop_map(|(on_lapse, lengths, attempts_max)| {
            let (lease_ms, retention_ms, keep_expired_ms) = lengths;
            Policy { on_lapse, lease_ms, retention_ms, keep_expired_ms, attempts_max }
        })
    }

    fn fingerprint() -> impl Strategy<Value = Fingerprint> {
        (ascii('!', SCHEME_BYTES_MAX), any::<[u8; 32]>())
            .prop_map(|(scheme, digest)| Fingerprint { scheme: Scheme::new(&scheme).unwrap(), digest })
    }

    fn outcome() -> impl Strategy<Value = Arc<Outcome>> {
        let body = prop_oneof![1 => Just(Body::NotKept), 4 => bytes(2048).prop_map(Body::Kept)];
        (any::<u16>(), vec((bytes(16), bytes(32)), 0..6), body)
            .prop_map(|(status, headers, body)| Arc::new(Outcome { status, headers, body }))
    }

    fn label() -> impl Strategy<Value = Label> {
        (text(), text()).prop_map(|(name, value)| Label { name, value })
    }

    fn checkpoint() -> impl Strategy<Value = Checkpoint> {
        (text(), bytes(40)).prop_map(|(name, data)| Checkpoint { name, data })
    }

    fn verdict() -> impl Strategy<Value = Option<Verdict>> {
        option::of(select(vec![Verdict::Happened, Verdict::DidNotHappen, Verdict::GivenUp]))
    }

    /// Any record with any of its fields there or not, whether or not the rules would write it.
    fn record(ms_max: u64) -> impl Strategy<Value = Record> {
        let head = (any::<[u8; 16]>(), select(&State::ALL[..]), any::<u32>(), option::of(any::<[u8; 16]>()));
        let agreed = (fingerprint(), policy(ms_max));
        let times = (option::of(ms(ms_max)), option::of(ms(ms_max)), option::of(ms(u64::MAX)));
        let before = (option::of(checkpoint()), option::of(bytes(64)), option::of(text()));
        let doubt = option::of((option::of(ms(u64::MAX)), any::<u32>()));
        let end = (option::of(outcome()), verdict(), vec(label(), 0..5), doubt);
        (head, agreed, times, before, end).prop_map(|(head, agreed, times, before, end)| Record {
            version: Version::from_bytes(head.0),
            state: head.1,
            attempt: head.2,
            attempt_id: head.3.map(AttemptId::from_bytes),
            fingerprint: agreed.0,
            policy: agreed.1,
            due_in_ms: times.0,
            expires_in_ms: times.1,
            created_at: times.2.map(Timestamp::from_ms),
            checkpoint: before.0,
            request: before.1.map(Arc::from),
            error: before.2,
            outcome: end.0,
            verdict: end.1,
            doubt: end.3.map(|(since, probes)| Doubt { since: since.map(Timestamp::from_ms), probes }),
            labels: end.2.into(),
        })
    }

    pub(super) fn stored(ms_max: u64) -> impl Strategy<Value = Stored> {
        (record(ms_max), 1..=2 * STAMP_MS)
            .prop_map(|(record, ms)| Stored { record, stamped_at: Timestamp::from_ms(ms) })
    }

    /// The row of a record whose times are no longer than the limits allow.
    pub(super) fn honest_row() -> impl Strategy<Value = OwnedRow> {
        (at(), stored(DURATION_MS_MAX)).prop_map(|(at, stored)| row(&at, &stored))
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn any_record_comes_back_as_it_was(at in at_random::at(), stored in at_random::stored(u64::MAX)) {
        let row = row(&at, &stored);
        prop_assert_eq!(row.id(), Some(*at.id()));
        prop_assert_eq!(row.decode(), Ok((at, stored)));
    }

    #[test]
    fn altered_bytes_of_any_record_are_damage(
        row in at_random::honest_row(),
        flips in vec((any::<Index>(), 1..=255_u8), 1..16),
        cuts in vec(any::<Index>(), 1..16),
        tail in vec(any::<u8>(), 1..20),
    ) {
        for (index, mask) in flips {
            let at = index.index(row.data.len());
            prop_assert_eq!(after(&row, |row| row.data[at] ^= mask), damaged("checksum"), "byte {}", at);
        }
        for length in cuts.iter().map(|cut| cut.index(row.data.len())) {
            let what = if length < CHECKSUM_BYTES { "length" } else { "checksum" };
            prop_assert_eq!(after(&row, |row| row.data.truncate(length)), damaged(what), "{} bytes", length);
        }
        prop_assert_eq!(after(&row, |row| row.data.extend(tail)), damaged("checksum"));
    }

    #[test]
    fn altered_names_of_any_record_are_damage(
        row in at_random::honest_row(),
        index in any::<Index>(),
        mask in 1..=255_u8,
    ) {
        prop_assert_eq!(after(&row, |row| row.id[index.index(32)] ^= mask), damaged("address"));
        prop_assert_eq!(after(&row, |row| row.version[index.index(16)] ^= mask), damaged("checksum"));
        for state in other_states(row.state) {
            let what = if (0..=255).contains(&state) { "checksum" } else { "state" };
            prop_assert_eq!(after(&row, |row| row.state = state), damaged(what), "state {}", state);
        }
        for part in 0..4 {
            for text in other_texts(&row.address[part]) {
                prop_assert_eq!(after(&row, |row| row.address[part] = text.clone()), damaged("address"), "{:?}", text);
            }
        }
    }

    #[test]
    fn altered_times_of_any_record_are_damage(row in at_random::honest_row(), stamp in 0..=2 * STAMP_MS as i64) {
        for at in other_moments(row.due_at).into_iter().filter(|at| *at != row.due_at) {
            prop_assert_eq!(after(&row, |row| row.due_at = at), damaged("times"), "due {:?}", at);
        }
        for at in other_moments(row.reap_at).into_iter().filter(|at| *at != row.reap_at) {
            prop_assert_eq!(after(&row, |row| row.reap_at = at), damaged("times"), "reap {:?}", at);
        }
        prop_assert_eq!(after(&row, |row| row.stamped_at = -1 - stamp), damaged("stamp"));
        if (row.due_at.is_some() || row.reap_at.is_some()) && stamp != row.stamped_at {
            prop_assert_eq!(after(&row, |row| row.stamped_at = stamp), damaged("times"), "stamp {}", stamp);
        }
    }

    #[test]
    fn garbage_is_damage_and_never_a_panic(
        id in vec(any::<u8>(), 0..40),
        texts in any::<[String; 4]>(),
        version in vec(any::<u8>(), 0..20),
        numbers in any::<(i64, i64, Option<i64>, Option<i64>)>(),
        data in vec(any::<u8>(), 0..200),
    ) {
        prop_assert!(after(&rich_row(), |row| row.data.clone_from(&data)).is_err());
        let (state, stamped_at, due_at, reap_at) = numbers;
        let garbage = OwnedRow { id, address: texts, version, state, stamped_at, due_at, reap_at, data };
        prop_assert!(matches!(garbage.decode(), Err(DecodeError::Damaged(_))));
    }

    /// Whoever can compute the checksum can write a record, but cannot make the reader panic or run away.
    #[test]
    fn forged_fields_are_never_a_panic(
        row in at_random::honest_row(),
        noise in vec(any::<u8>(), 0..200),
        flips in vec((any::<Index>(), 1..=255_u8), 1..16),
        cut in any::<Index>(),
    ) {
        let fields_or_times = |row: OwnedRow| match row.decode() {
            Ok(_) | Err(DecodeError::Damaged("fields" | "times")) => Ok(()),
            other => Err(TestCaseError::fail(format!("{other:?}"))),
        };
        let noise = [&[SCHEMA][..], &noise].concat();
        fields_or_times(resummed(&row, &noise))?;
        let fields = &body_of(&row)[1..];
        fields_or_times(resummed(&row, &[&noise, fields].concat()))?;
        for (index, mask) in flips {
            let mut body = body_of(&row).to_vec();
            body[1 + index.index(fields.len())] ^= mask;
            fields_or_times(resummed(&row, &body))?;
        }
        let shorter = resummed(&row, &body_of(&row)[..=cut.index(fields.len())]);
        prop_assert_eq!(shorter.decode(), damaged("fields"));
    }
}

mod golden {
    use super::*;

    /// The blob of [`rich`], field by field. A change here is a new schema number, and old blobs must still be read.
    const FIELDS: [(&str, &str); 21] = [
        ("schema", "01"),
        ("attempt", "ac02"),
        ("attempt_id", "0122222222222222222222222222222222"),
        ("scheme", "08313b736861323536"),
        ("digest", "0707070707070707070707070707070707070707070707070707070707070707"),
        ("on_lapse", "03"),
        ("lease_ms", "b0ea01"),
        ("retention_ms", "80b89929"),
        ("keep_expired_ms", "0180dddb01"),
        ("attempts_max", "0105"),
        ("due_in_ms", "01f403"),
        ("expires_in_ms", "0180dddb01"),
        ("created_at", "01cb89ec8ff723"),
        ("checkpoint", "010763686172676564030001ff"),
        ("request", "0109504f5354202f706179"),
        ("status", "01c901"),
        ("headers", "020a7365742d636f6f6b696503613d310a7365742d636f6f6b696502ff00"),
        ("body", "010470616964"),
        ("error", "01097a75207370c3a47400"),
        ("verdict", "02"),
        ("labels", "01056f7264657205e284960031"),
    ];

    const CHECKSUM: &str = "efd77c17941e754d21f1a8c029cf4fc8";

    fn from_hex(text: &str) -> Vec<u8> {
        text.as_bytes().chunks(2).map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
    }

    fn to_hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The same blob with one field replaced, and a checksum that fits.
    fn forged(field: &str, hex: &str) -> OwnedRow {
        assert!(FIELDS.iter().any(|(name, _)| *name == field), "there is no field {field}");
        let body: String = FIELDS.iter().map(|(name, own)| if *name == field { hex } else { own }).collect();
        resummed(&rich_row(), &from_hex(&body))
    }

    #[test]
    fn the_bytes_of_a_record_never_change() {
        let written: String = FIELDS.iter().map(|(_, hex)| *hex).collect();
        assert_eq!(to_hex(&rich_row().data), written + CHECKSUM);
        assert_eq!(rich_row().decode(), Ok(rich()));
        assert_eq!(resummed(&rich_row(), body_of(&rich_row())).data, rich_row().data, "the checksum as documented");
    }

    #[test]
    fn the_numbers_of_states_policies_and_verdicts_never_change() {
        assert_eq!(State::ALL.map(State::number), [1, 2, 3, 4, 5, 6]);
        let record_of = |row: OwnedRow| row.decode().unwrap().1.record;
        for (hex, on_lapse) in [("01", OnLapse::Unknown), ("02", OnLapse::Rerun), ("03", OnLapse::Resume)] {
            assert_eq!(record_of(forged("on_lapse", hex)).policy.on_lapse, on_lapse);
        }
        let verdicts = [None, Some(Verdict::Happened), Some(Verdict::DidNotHappen), Some(Verdict::GivenUp)];
        for (hex, verdict) in ["00", "01", "02", "03"].into_iter().zip(verdicts) {
            assert_eq!(record_of(forged("verdict", hex)).verdict, verdict);
        }
    }

    #[test]
    fn fields_that_cannot_be_are_damage_even_under_a_right_checksum() {
        // Numbers over 32, 64 and 16 bits, tags that are neither 0 nor 1, texts that are not UTF-8, endless lists and
        // bytes, and something after the end.
        let impossible: [(&str, &[&str]); 13] = [
            ("attempt", &["8080808010", "ffffffffffffffffffff01"]),
            ("lease_ms", &["ffffffffffffffffff02"]),
            ("attempt_id", &["0222222222222222222222222222222222"]),
            ("scheme", &["00", "0120", "02c3a4"]),
            ("on_lapse", &["00", "04"]),
            ("attempts_max", &["018080808010"]),
            ("checkpoint", &["0101ff00"]),
            ("request", &["01ffffffffffffffffff01"]),
            ("status", &["01808004"]),
            ("headers", &["ffffffffffffffffff01"]),
            ("error", &["0101ff"]),
            ("verdict", &["04", "ff"]),
            ("labels", &["ffffffffffffffffff01", "0101ff00", "010100", "0000"]),
        ];
        for (field, hex) in impossible.into_iter().flat_map(|(field, all)| all.iter().map(move |hex| (field, hex))) {
            assert_eq!(forged(field, hex).decode(), damaged("fields"), "{field} {hex}");
        }
        assert_eq!(forged("due_in_ms", "01f503").decode(), damaged("times"));
        assert_eq!(forged("expires_in_ms", "00").decode(), damaged("times"));
        assert_eq!(resummed(&rich_row(), &[]).decode(), damaged("length"), "no body");
    }

    #[test]
    fn a_later_schema_is_newer_and_not_damage() {
        for schema in SCHEMA + 1..=u8::MAX {
            let row = forged("schema", &format!("{schema:02x}"));
            assert_eq!(row.decode(), Err(DecodeError::Newer(schema)));
            let unknown_fields = resummed(&row, &[schema, 1, 2, 3]);
            assert_eq!(unknown_fields.decode(), Err(DecodeError::Newer(schema)));
            let unknown_state = OwnedRow { state: 9, ..row };
            assert_eq!(resummed(&unknown_state, &[schema, 1]).decode(), Err(DecodeError::Newer(schema)));
        }
        assert_eq!(forged("schema", "00").decode(), damaged("schema"), "there never was a schema 0");
        let unsummed = after(&rich_row(), |row| row.data[0] = SCHEMA + 1);
        assert_eq!(unsummed, damaged("checksum"), "only a whole blob is believed to be newer");
    }
}

mod exhaustively {
    use super::*;

    #[test]
    fn every_flipped_bit_of_the_blob_is_damage() {
        let row = rich_row();
        for at in 0..row.data.len() {
            for mask in MASKS {
                assert_eq!(after(&row, |row| row.data[at] ^= mask), damaged("checksum"), "byte {at}, mask {mask:02x}");
            }
        }
    }

    #[test]
    fn every_shorter_or_longer_blob_is_damage() {
        let row = rich_row();
        for length in 0..row.data.len() {
            let what = if length < CHECKSUM_BYTES { "length" } else { "checksum" };
            assert_eq!(after(&row, |row| row.data.truncate(length)), damaged(what), "the first {length}");
            assert_eq!(after(&row, |row| row.data = row.data.split_off(row.data.len() - length)), damaged(what));
            assert_eq!(after(&row, |row| _ = row.data.remove(length)), damaged("checksum"), "without {length}");
            assert_eq!(after(&row, |row| row.data.insert(length, 0)), damaged("checksum"), "one more at {length}");
        }
    }

    #[test]
    fn every_flipped_bit_of_id_and_version_is_damage() {
        let row = rich_row();
        for mask in MASKS {
            for at in 0..row.id.len() {
                assert_eq!(after(&row, |row| row.id[at] ^= mask), damaged("address"), "byte {at}, mask {mask:02x}");
            }
            for at in 0..row.version.len() {
                assert_eq!(after(&row, |row| row.version[at] ^= mask), damaged("checksum"), "byte {at}");
            }
        }
    }

    #[test]
    fn ids_and_versions_of_another_length_are_damage() {
        let row = rich_row();
        for length in (0..40).filter(|length| *length != 32) {
            assert_eq!(after(&row, |row| row.id.resize(length, 0)), damaged("id"), "{length} bytes");
            assert_eq!(OwnedRow { id: vec![0; length], ..row.clone() }.id(), None);
        }
        for length in (0..40).filter(|length| *length != 16) {
            assert_eq!(after(&row, |row| row.version.resize(length, 0)), damaged("version"), "{length} bytes");
        }
    }

    #[test]
    fn every_flipped_bit_of_state_and_times_is_damage() {
        let row = rich_row();
        for bit in (0..64).map(|shift| 1_i64 << shift) {
            let is_a_state = (0..=255).contains(&(row.state ^ bit));
            let what = if is_a_state { "checksum" } else { "state" };
            assert_eq!(after(&row, |row| row.state ^= bit), damaged(what), "bit {bit:x}");
            let what = if bit < 0 { "stamp" } else { "times" };
            assert_eq!(after(&row, |row| row.stamped_at ^= bit), damaged(what), "bit {bit:x}");
            assert_eq!(after(&row, |row| row.due_at = row.due_at.map(|at| at ^ bit)), damaged("times"), "bit {bit:x}");
            assert_eq!(after(&row, |row| row.reap_at = row.reap_at.map(|at| at ^ bit)), damaged("times"), "{bit:x}");
        }
        for state in other_states(row.state) {
            assert!(after(&row, |row| row.state = state).is_err(), "state {state}");
        }
        assert_eq!(after(&row, |row| row.due_at = None), damaged("times"));
        assert_eq!(after(&row, |row| row.reap_at = None), damaged("times"));
        assert_eq!(after(&row, |row| (row.due_at, row.reap_at) = (row.reap_at, row.due_at)), damaged("times"));
    }

    #[test]
    fn every_other_text_of_the_address_is_damage() {
        let row = rich_row();
        for part in 0..4 {
            let own = &row.address[part];
            for (at, c) in own.char_indices() {
                for other in (' '..='~').chain(['\0', '\u{301}', 'é', 'É']).filter(|other| *other != c) {
                    let text = format!("{}{other}{}", &own[..at], &own[at + c.len_utf8()..]);
                    assert_eq!(after(&row, |row| row.address[part] = text), damaged("address"), "{part} {at} {other}");
                }
            }
            for text in other_texts(own) {
                assert_eq!(after(&row, |row| row.address[part] = text), damaged("address"), "part {part}");
            }
        }
        assert_eq!(after(&row, |row| row.address.swap(2, 3)), damaged("address"));
        assert_eq!(after(&row, |row| row.address[2] = "alice e\u{301}".to_owned()), damaged("address"), "decomposed");
    }
}

#[test]
fn a_record_comes_back_in_every_state() {
    let (at, rich) = rich();
    for state in State::ALL {
        let stored = Stored { record: Record { state, ..rich.record.clone() }, ..rich };
        assert_eq!(row(&at, &stored).decode(), Ok((at.clone(), stored)));
    }
}

#[test]
fn a_blob_put_back_or_moved_is_damage() {
    let (at, stored) = rich();
    let row_now = row(&at, &stored);
    let earlier =
        Stored { record: Record { version: Version::from_bytes([9; 16]), ..stored.record.clone() }, ..stored };
    let row_then = row(&at, &earlier);
    assert_eq!(after(&row_now, |row| row.data = row_then.data), damaged("checksum"), "an earlier one of the same key");
    let elsewhere = row(&address("1", "http", "bob", "k-1"), &rich().1);
    assert_eq!(after(&row_now, |row| row.data = elsewhere.data), damaged("checksum"), "the one of another caller");
}

#[test]
fn errors_say_what_is_wrong_and_what_to_do() {
    let parts = [
        (after(&rich_row(), |row| row.data[3] ^= 1), "checksum"),
        (after(&rich_row(), |row| row.data.clear()), "length"),
        (after(&rich_row(), |row| row.id.clear()), "id"),
        (after(&rich_row(), |row| row.version.clear()), "version"),
        (after(&rich_row(), |row| row.state = -1), "state"),
        (after(&rich_row(), |row| row.address[3].push('2')), "address"),
        (after(&rich_row(), |row| row.stamped_at = -1), "stamp"),
        (after(&rich_row(), |row| row.due_at = None), "times"),
        (resummed(&rich_row(), &[SCHEMA]).decode(), "fields"),
    ];
    for (decoded, part) in parts {
        let remedy = "it will not be replayed; restore it, or delete it as the runbook says";
        let message = format!("the stored record was altered or damaged ({part}); {remedy}");
        assert_eq!(decoded.unwrap_err().to_string(), message);
    }
    let newer = DecodeError::Newer(2).to_string();
    assert_eq!(newer, "the stored record has schema 2, newer than this release knows; upgrade this node");
}

#[test]
fn a_store_says_what_a_row_is_and_whether_anyone_can_help() {
    let (now, at) = (Now::steady(Timestamp::from_ms(STAMP_MS)), rich().0);
    assert_eq!(seen(&at, None, now, "get").unwrap(), Seen { stored: None, now });
    assert_eq!(seen(&at, Some(&rich_row()), now, "get").unwrap(), Seen { stored: Some(rich().1), now });

    let altered = OwnedRow { data: vec![], ..rich_row() };
    let error = seen(&at, Some(&altered), now, "get").unwrap_err();
    assert_eq!((error.op, error.kind), ("get", ErrorKind::Damaged));
    assert!(error.message.contains("altered or damaged (length)"), "{error}");

    let later = resummed(&rich_row(), &[SCHEMA + 1]);
    let error = seen(&at, Some(&later), now, "swap").unwrap_err();
    assert_eq!((error.op, error.kind), ("swap", ErrorKind::Unsuitable));
    assert!(error.message.contains("upgrade this node"), "{error}");
}

#[test]
fn a_row_that_names_another_address_than_it_was_looked_up_by_is_never_read() {
    let (at, stored) = rich();
    assert_eq!(rich_row().decode_at(&at), Ok(stored));
    // The row itself is sound, but it is somebody else's.
    let mallory = address("1", "http", "mallory", "k");
    assert_eq!(rich_row().decode_at(&mallory), Err(DecodeError::Damaged("address")));
    let mut renamed = rich_row();
    renamed.address[2] = "mallory".to_owned();
    assert_eq!(renamed.decode_at(&at), Err(DecodeError::Damaged("address")));
}
