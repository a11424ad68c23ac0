//! A record as bytes, with a checksum: what every store keeps, so that no store invents a format of its own.
//!
//! A store keeps version, state and times in columns, because it compares and searches them, and the rest as one
//! `data` blob. The blob begins with its schema number and ends in a checksum that also covers id, version and state.
//! Times are kept twice, relative in the blob and absolute in the columns; [`decode`] compares. A record that was altered
//! is an error and is never replayed. What it cannot notice: a stamp moved together with every time that counts from it,
//! because only the store knows the stamp.

use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::address::{Address, AddressScheme, Id, Key, Scope, Space};
use crate::clock::{Now, Timestamp};
use crate::fingerprint::{Fingerprint, Scheme};
use crate::record::{
    AttemptId, Body, Checkpoint, Doubt, Label, OnLapse, Outcome, Policy, Record, State, Stored, Verdict, Version,
};
use crate::store::{Damaged, ErrorKind, Seen, StoreError};

/// The newest schema [`encode`] writes. A blob of a newer one is refused, not guessed.
pub const SCHEMA: u8 = 2;

/// What a record without a doubt is written in, so that a release from before doubts were kept can still read it.
const SCHEMA_WITHOUT_DOUBT: u8 = 1;

const CHECKSUM_BYTES: usize = 16;

/// Why stored bytes are not a record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The bytes are not what was written.
    #[error(
        "the stored record was altered or damaged ({0}); it will not be replayed; restore it, or delete it as the runbook says"
    )]
    Damaged(&'static str),
    /// Written by a later release.
    #[error("the stored record has schema {0}, newer than this release knows; upgrade this node")]
    Newer(u8),
}

impl DecodeError {
    /// What a store says of it.
    #[must_use]
    pub fn in_store(&self, op: &'static str) -> StoreError {
        let kind = match self {
            Self::Damaged(_) => ErrorKind::Damaged,
            Self::Newer(_) => ErrorKind::Unsuitable,
        };
        StoreError::new(op, kind, self.to_string())
    }
}

/// A row as a store keeps it.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// The 32 bytes it is found by.
    pub id: &'a [u8],
    /// Address scheme, space, scope, key.
    pub address: [&'a str; 4],
    /// The version column.
    pub version: &'a [u8],
    /// The state column.
    pub state: i64,
    /// When it was written.
    pub stamped_at: i64,
    /// The due column.
    pub due_at: Option<i64>,
    /// The reap column.
    pub reap_at: Option<i64>,
    /// The blob.
    pub data: &'a [u8],
}

impl Row<'_> {
    /// The record of a row that was looked up by an address. A row that names another one was not meant, however whole it
    /// is: it may be another caller's.
    ///
    /// # Errors
    /// As for [`decode`], and if the row stands for another address.
    pub fn decode_at(&self, at: &Address) -> Result<Stored, DecodeError> {
        let parts = [at.scheme().as_str(), at.space().as_str(), at.scope().as_str(), at.key().as_str()];
        if self.id == at.id().as_bytes() && self.address == parts {
            return decode_stored(at.id(), self);
        }
        Err(DecodeError::Damaged("address"))
    }
}

/// The same, as a driver hands it over. A store reads a column that is missing or of the wrong kind as empty or
/// negative: it is damage, and found when the row is decoded.
#[derive(Clone, Debug)]
pub struct OwnedRow {
    /// The 32 bytes it is found by.
    pub id: Vec<u8>,
    /// Address scheme, space, scope, key.
    pub address: [String; 4],
    /// The version column.
    pub version: Vec<u8>,
    /// The state column.
    pub state: i64,
    /// When it was written.
    pub stamped_at: i64,
    /// The due column.
    pub due_at: Option<i64>,
    /// The reap column.
    pub reap_at: Option<i64>,
    /// The blob.
    pub data: Vec<u8>,
}

impl OwnedRow {
    /// See [`decode`].
    ///
    /// # Errors
    /// If any byte of it was altered, or a later release wrote it.
    pub fn decode(&self) -> Result<(Address, Stored), DecodeError> {
        decode(&self.as_row())
    }

    /// See [`Row::decode_at`].
    ///
    /// # Errors
    /// As for [`decode`].
    pub fn decode_at(&self, at: &Address) -> Result<Stored, DecodeError> {
        self.as_row().decode_at(at)
    }

    fn as_row(&self) -> Row<'_> {
        Row {
            id: &self.id,
            address: self.address.each_ref().map(String::as_str),
            version: &self.version,
            state: self.state,
            stamped_at: self.stamped_at,
            due_at: self.due_at,
            reap_at: self.reap_at,
            data: &self.data,
        }
    }

    /// The id, as far as it can be read.
    #[must_use]
    pub fn id(&self) -> Option<Id> {
        self.id.as_slice().try_into().ok().map(Id::from_bytes)
    }

    /// What a scan says of a row that could not be decoded.
    #[must_use]
    pub fn damaged(&self, error: &DecodeError) -> Damaged {
        let [_, _, scope, key] = self.address.each_ref().map(|text| Some(text.clone()).filter(|text| !text.is_empty()));
        Damaged { id: self.id(), scope, key, reason: error.to_string() }
    }
}

/// What a store says of the row it found, or did not find, at that address.
///
/// # Errors
/// If the row is damaged or of a later release.
pub fn seen(at: &Address, row: Option<&OwnedRow>, now: Now, op: &'static str) -> Result<Seen, StoreError> {
    let stored = row.map(|row| row.decode_at(at)).transpose().map_err(|error| error.in_store(op))?;
    Ok(Seen { stored, now })
}

/// The blob of a record at that address.
#[must_use]
pub fn encode(id: &Id, record: &Record) -> Vec<u8> {
    let mut out = Writer(Vec::with_capacity(256 + outcome_bytes(record)));
    out.0.push(if record.doubt.is_some() { SCHEMA } else { SCHEMA_WITHOUT_DOUBT });
    out.uint(record.attempt.into());
    out.option(record.attempt_id.as_ref(), |out, attempt_id| out.0.extend_from_slice(attempt_id.as_bytes()));
    out.bytes(record.fingerprint.scheme.as_str().as_bytes());
    out.0.extend_from_slice(&record.fingerprint.digest);
    write_policy(&mut out, &record.policy);
    out.option(record.due_in_ms, Writer::uint);
    out.option(record.expires_in_ms, Writer::uint);
    out.option(record.created_at, |out, at| out.uint(at.as_ms()));
    out.option(record.checkpoint.as_ref(), |out, checkpoint| {
        out.bytes(checkpoint.name.as_bytes());
        out.bytes(&checkpoint.data);
    });
    out.option(record.request.as_deref(), Writer::bytes);
    out.option(record.outcome.as_deref(), write_outcome);
    out.option(record.error.as_deref(), |out, error| out.bytes(error.as_bytes()));
    out.0.push(verdict_number(record.verdict));
    out.uint(record.labels.len() as u64);
    for label in record.labels.iter() {
        out.bytes(label.name.as_bytes());
        out.bytes(label.value.as_bytes());
    }
    if let Some(doubt) = record.doubt {
        out.option(doubt.since, |out, since| out.uint(since.as_ms()));
        out.uint(doubt.probes.into());
    }
    let sum = checksum(id, &record.version, record.state.number(), &out.0);
    out.0.extend_from_slice(&sum);
    out.0
}

/// The record of a row, if it is what was written.
///
/// # Errors
/// If any byte of it was altered, or a later release wrote it.
pub fn decode(row: &Row<'_>) -> Result<(Address, Stored), DecodeError> {
    let id = Id::from_bytes(row.id.try_into().map_err(|_| DecodeError::Damaged("id"))?);
    let address = decode_address(&id, row.address)?;
    Ok((address, decode_stored(&id, row)?))
}

fn decode_stored(id: &Id, row: &Row<'_>) -> Result<Stored, DecodeError> {
    let version = Version::from_bytes(row.version.try_into().map_err(|_| DecodeError::Damaged("version"))?);
    let state = u8::try_from(row.state).map_err(|_| DecodeError::Damaged("state"))?;
    let data = verified(id, &version, state, row.data)?;
    // Only now: a later release may have written a state that this one has no name for.
    let state = State::from_number(state).ok_or(DecodeError::Damaged("state"))?;
    let (schema, fields) = data;
    let record = read_record(version, state, schema, &mut Reader(fields)).ok_or(DecodeError::Damaged("fields"))?;
    let stamped_at = u64::try_from(row.stamped_at).map_err(|_| DecodeError::Damaged("stamp"))?;
    let stored = Stored { record, stamped_at: Timestamp::from_ms(stamped_at) };
    if column(stored.due_at()) != row.due_at || column(stored.reap_at()) != row.reap_at {
        return Err(DecodeError::Damaged("times"));
    }
    Ok(stored)
}

/// A moment as a column.
#[must_use]
pub fn column(at: Option<Timestamp>) -> Option<i64> {
    at.map(|at| i64::try_from(at.as_ms()).unwrap_or(i64::MAX))
}

fn decode_address(id: &Id, [scheme, space, scope, key]: [&str; 4]) -> Result<Address, DecodeError> {
    let parts = || {
        Some((AddressScheme::new(scheme).ok()?, Space::new(space).ok()?, Scope::new(scope).ok()?, Key::new(key).ok()?))
    };
    let (scheme, space, scope, key) = parts().ok_or(DecodeError::Damaged("address"))?;
    let address = Address::new(&scheme, &space, &scope, &key);
    if address.id() == id { Ok(address) } else { Err(DecodeError::Damaged("address")) }
}

/// The schema and the fields of a blob whose checksum is right.
fn verified<'a>(id: &Id, version: &Version, state: u8, data: &'a [u8]) -> Result<(u8, &'a [u8]), DecodeError> {
    let (body, sum) = data
        .len()
        .checked_sub(CHECKSUM_BYTES)
        .and_then(|at| data.split_at_checked(at))
        .ok_or(DecodeError::Damaged("length"))?;
    if checksum(id, version, state, body) != sum {
        return Err(DecodeError::Damaged("checksum"));
    }
    match body {
        [schema @ SCHEMA_WITHOUT_DOUBT..=SCHEMA, fields @ ..] => Ok((*schema, fields)),
        [newer, ..] if *newer > SCHEMA => Err(DecodeError::Newer(*newer)),
        [_, ..] => Err(DecodeError::Damaged("schema")),
        [] => Err(DecodeError::Damaged("length")),
    }
}

fn checksum(id: &Id, version: &Version, state: u8, body: &[u8]) -> [u8; CHECKSUM_BYTES] {
    let mut hash = Sha256::new();
    hash.update(id.as_bytes());
    hash.update(version.as_bytes());
    hash.update([state]);
    hash.update(body);
    let digest: [u8; 32] = hash.finalize().into();
    let mut sum = [0; CHECKSUM_BYTES];
    sum.copy_from_slice(&digest[..CHECKSUM_BYTES]);
    sum
}

fn outcome_bytes(record: &Record) -> usize {
    record.outcome.as_deref().map_or(0, |outcome| match &outcome.body {
        Body::Kept(bytes) => bytes.len() + 64 * outcome.headers.len(),
        Body::NotKept => 64 * outcome.headers.len(),
    })
}

fn write_policy(out: &mut Writer, policy: &Policy) {
    out.0.push(on_lapse_number(policy.on_lapse));
    out.uint(policy.lease_ms);
    out.uint(policy.retention_ms);
    out.option(policy.keep_expired_ms, Writer::uint);
    out.option(policy.attempts_max, |out, attempts| out.uint(attempts.into()));
}

fn read_policy(input: &mut Reader<'_>) -> Option<Policy> {
    Some(Policy {
        on_lapse: on_lapse_from(input.byte()?)?,
        lease_ms: input.uint()?,
        retention_ms: input.uint()?,
        keep_expired_ms: input.option(Reader::uint)?,
        attempts_max: input.option(|input| u32::try_from(input.uint()?).ok())?,
    })
}

fn write_outcome(out: &mut Writer, outcome: &Outcome) {
    out.uint(outcome.status.into());
    out.uint(outcome.headers.len() as u64);
    for (name, value) in &outcome.headers {
        out.bytes(name);
        out.bytes(value);
    }
    let kept = match &outcome.body {
        Body::Kept(bytes) => Some(bytes.as_slice()),
        Body::NotKept => None,
    };
    out.option(kept, Writer::bytes);
}

fn read_outcome(input: &mut Reader<'_>) -> Option<Outcome> {
    let status = u16::try_from(input.uint()?).ok()?;
    let headers = input.list(|input| Some((input.bytes()?.to_vec(), input.bytes()?.to_vec())))?;
    let body = input.option(|input| Some(input.bytes()?.to_vec()))?.map_or(Body::NotKept, Body::Kept);
    Some(Outcome { status, headers, body })
}

fn read_record(version: Version, state: State, schema: u8, input: &mut Reader<'_>) -> Option<Record> {
    let record = Record {
        version,
        state,
        attempt: u32::try_from(input.uint()?).ok()?,
        attempt_id: input.option(|input| Some(AttemptId::from_bytes(input.array()?)))?,
        fingerprint: Fingerprint { scheme: Scheme::new(input.text()?).ok()?, digest: input.array()? },
        policy: read_policy(input)?,
        due_in_ms: input.option(Reader::uint)?,
        expires_in_ms: input.option(Reader::uint)?,
        created_at: input.option(Reader::uint)?.map(Timestamp::from_ms),
        checkpoint: input
            .option(|input| Some(Checkpoint { name: input.text()?.to_owned(), data: input.bytes()?.to_vec() }))?,
        request: input.option(|input| Some(input.bytes()?.into()))?,
        outcome: input.option(read_outcome)?.map(Arc::new),
        error: input.option(|input| Some(input.text()?.to_owned()))?,
        verdict: verdict_from(input.byte()?)?,
        labels: input
            .list(|input| Some(Label { name: input.text()?.to_owned(), value: input.text()?.to_owned() }))?
            .into(),
        doubt: if schema == SCHEMA_WITHOUT_DOUBT { None } else { Some(read_doubt(input)?) },
    };
    input.0.is_empty().then_some(record)
}

fn read_doubt(input: &mut Reader<'_>) -> Option<Doubt> {
    let since = input.option(Reader::uint)?.map(Timestamp::from_ms);
    Some(Doubt { since, probes: u32::try_from(input.uint()?).ok()? })
}

const fn on_lapse_number(on_lapse: OnLapse) -> u8 {
    match on_lapse {
        OnLapse::Unknown => 1,
        OnLapse::Rerun => 2,
        OnLapse::Resume => 3,
    }
}

fn on_lapse_from(number: u8) -> Option<OnLapse> {
    OnLapse::ALL.into_iter().find(|on_lapse| on_lapse_number(*on_lapse) == number)
}

const fn verdict_number(verdict: Option<Verdict>) -> u8 {
    match verdict {
        None => 0,
        Some(Verdict::Happened) => 1,
        Some(Verdict::DidNotHappen) => 2,
        Some(Verdict::GivenUp) => 3,
    }
}

fn verdict_from(number: u8) -> Option<Option<Verdict>> {
    [None, Some(Verdict::Happened), Some(Verdict::DidNotHappen), Some(Verdict::GivenUp)]
        .into_iter()
        .find(|verdict| verdict_number(*verdict) == number)
}

/// Numbers as LEB128, bytes with their length first.
struct Writer(Vec<u8>);

impl Writer {
    fn uint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.uint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn option<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        self.0.push(value.is_some().into());
        if let Some(value) = value {
            write(self, value);
        }
    }
}

/// The inverse of [`Writer`]; `None` is damage.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn uint(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            value |= bits.checked_shl(shift).filter(|shifted| shifted >> shift == bits)?;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let count = usize::try_from(self.uint()?).ok()?;
        self.take(count)
    }

    fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.bytes()?).ok()
    }

    fn option<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<Option<T>> {
        match self.byte()? {
            0 => Some(None),
            1 => read(self).map(Some),
            _ => None,
        }
    }

    fn list<T>(&mut self, mut read: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = self.uint()?;
        (0..count).map(|_| read(self)).collect()
    }
}
