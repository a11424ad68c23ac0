//! What is written, as arrays, and a row as it comes back.
//!
//! Used by the writers, the readers, and a caller's own transaction alike.

use hapax_core::address::{Address, Id};
use hapax_core::clock::Now;
use hapax_core::codec::{self, DecodeError, Row};
use hapax_core::record::{Record, Stored, Version};
use hapax_core::store::{ErrorKind, Seen, StoreError, Swap};
use tokio_postgres::types::{ToSql, Type};

/// A parameter with its type: with it a statement needs no preparation.
pub(crate) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// A swap, encoded before it waits for its turn.
#[derive(Debug)]
pub(crate) struct Write {
    pub(crate) at: Address,
    pub(crate) expect: Option<Version>,
    pub(crate) version: Version,
    pub(crate) state: i16,
    pub(crate) due_in: Option<i64>,
    pub(crate) reap_in: Option<i64>,
    pub(crate) data: Vec<u8>,
}

impl Write {
    pub(crate) fn new(at: &Address, expect: Option<Version>, next: &Record) -> Self {
        let column = |ms: Option<u64>| ms.map(|ms| i64::try_from(ms).unwrap_or(i64::MAX));
        Self {
            at: at.clone(),
            expect,
            version: next.version,
            state: next.state.number().into(),
            due_in: column(next.due_in_ms),
            reap_in: column(next.reap_in_ms()),
            data: codec::encode(at.id(), next),
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.data.len()
    }
}

/// The columns of the rows of a batch.
#[derive(Debug, Default)]
pub(crate) struct Arrays<'a> {
    pub(crate) ids: Vec<&'a [u8]>,
    pub(crate) expects: Vec<&'a [u8]>,
    pub(crate) versions: Vec<&'a [u8]>,
    pub(crate) states: Vec<i16>,
    pub(crate) dues_in: Vec<Option<i64>>,
    pub(crate) reaps_in: Vec<Option<i64>>,
    pub(crate) schemes: Vec<&'a str>,
    pub(crate) spaces: Vec<&'a str>,
    pub(crate) scopes: Vec<&'a str>,
    pub(crate) keys: Vec<&'a str>,
    pub(crate) data: Vec<&'a [u8]>,
}

impl<'a> Arrays<'a> {
    /// Rows that expect a version have it in `expects`; the others leave that one empty.
    pub(crate) fn of(writes: impl IntoIterator<Item = &'a Write>) -> Self {
        let mut arrays = Self::default();
        for write in writes {
            arrays.ids.push(write.at.id().as_bytes());
            arrays.expects.extend(write.expect.as_ref().map(|expect| &expect.as_bytes()[..]));
            arrays.versions.push(write.version.as_bytes());
            arrays.states.push(write.state);
            arrays.dues_in.push(write.due_in);
            arrays.reaps_in.push(write.reap_in);
            arrays.schemes.push(write.at.scheme().as_str());
            arrays.spaces.push(write.at.space().as_str());
            arrays.scopes.push(write.at.scope().as_str());
            arrays.keys.push(write.at.key().as_str());
            arrays.data.push(&write.data);
        }
        arrays
    }

    /// For [`Statements::insert`](crate::statements::Statements).
    pub(crate) fn for_insert<'b>(&'b self, patience: &'b Option<String>) -> [Parameter<'b>; 11] {
        [
            (patience, Type::TEXT),
            (&self.ids, Type::BYTEA_ARRAY),
            (&self.versions, Type::BYTEA_ARRAY),
            (&self.states, Type::INT2_ARRAY),
            (&self.dues_in, Type::INT8_ARRAY),
            (&self.reaps_in, Type::INT8_ARRAY),
            (&self.schemes, Type::TEXT_ARRAY),
            (&self.spaces, Type::TEXT_ARRAY),
            (&self.scopes, Type::TEXT_ARRAY),
            (&self.keys, Type::TEXT_ARRAY),
            (&self.data, Type::BYTEA_ARRAY),
        ]
    }

    /// For [`Statements::update_free`](crate::statements::Statements) and its patient sibling.
    pub(crate) fn for_update<'b>(&'b self, patience: &'b Option<String>) -> [Parameter<'b>; 8] {
        [
            (patience, Type::TEXT),
            (&self.ids, Type::BYTEA_ARRAY),
            (&self.expects, Type::BYTEA_ARRAY),
            (&self.versions, Type::BYTEA_ARRAY),
            (&self.states, Type::INT2_ARRAY),
            (&self.dues_in, Type::INT8_ARRAY),
            (&self.reaps_in, Type::INT8_ARRAY),
            (&self.data, Type::BYTEA_ARRAY),
        ]
    }
}

/// What became of a swap, before anything is decoded.
#[derive(Debug)]
pub(crate) enum Written {
    Applied(Now),
    Lost(Option<RawRow>, Now),
}

impl Written {
    pub(crate) fn into_swap(self, op: &'static str) -> Result<Swap, StoreError> {
        match self {
            Self::Applied(now) => Ok(Swap::Applied(now)),
            Self::Lost(row, now) => Ok(Swap::Lost(seen(row.as_ref(), now, op)?)),
        }
    }
}

/// A row as the server gave it. A value that is missing or of the wrong kind is damage, found when the row is decoded.
#[derive(Debug)]
pub(crate) struct RawRow {
    pub(crate) id: Vec<u8>,
    pub(crate) address: [String; 4],
    pub(crate) version: Vec<u8>,
    pub(crate) state: i64,
    pub(crate) stamped_at: i64,
    pub(crate) due_at: Option<i64>,
    pub(crate) reap_at: Option<i64>,
    pub(crate) data: Vec<u8>,
}

impl RawRow {
    /// Reads the columns of a record, beginning at `first`. `None`: there is no id, so there is no record.
    pub(crate) fn read(row: &tokio_postgres::Row, first: usize) -> Option<Self> {
        let bytes = |at: usize| row.try_get::<_, Option<&[u8]>>(first + at).ok().flatten();
        let text = |at: usize| row.try_get::<_, Option<&str>>(first + at).ok().flatten().unwrap_or_default().to_owned();
        let number = |at: usize| row.try_get::<_, Option<i64>>(first + at).ok().flatten();
        Some(Self {
            id: bytes(0)?.to_vec(),
            address: [text(1), text(2), text(3), text(4)],
            version: bytes(5).unwrap_or_default().to_vec(),
            state: row.try_get::<_, Option<i16>>(first + 6).ok().flatten().map_or(-1, i64::from),
            stamped_at: number(7).unwrap_or(-1),
            due_at: number(8),
            reap_at: number(9),
            data: bytes(10).unwrap_or_default().to_vec(),
        })
    }

    pub(crate) fn decode(&self) -> Result<(Address, Stored), DecodeError> {
        codec::decode(&Row {
            id: &self.id,
            address: self.address.each_ref().map(String::as_str),
            version: &self.version,
            state: self.state,
            stamped_at: self.stamped_at,
            due_at: self.due_at,
            reap_at: self.reap_at,
            data: &self.data,
        })
    }

    pub(crate) fn id(&self) -> Option<Id> {
        self.id.as_slice().try_into().ok().map(Id::from_bytes)
    }

    pub(crate) fn has_version(&self, version: Option<&Version>) -> bool {
        version.is_some_and(|version| self.version == version.as_bytes())
    }

    pub(crate) fn bytes(&self) -> usize {
        self.data.len()
    }
}

/// What a row says, for the rules.
pub(crate) fn seen(row: Option<&RawRow>, now: Now, op: &'static str) -> Result<Seen, StoreError> {
    let stored = row.map(RawRow::decode).transpose().map_err(|error| {
        let kind = match error {
            DecodeError::Damaged(_) => ErrorKind::Damaged,
            DecodeError::Newer(_) => ErrorKind::Unsuitable,
        };
        StoreError::new(op, kind, error.to_string())
    })?;
    Ok(Seen { stored: stored.map(|(_, stored)| stored), now })
}
