//! What is written, as arrays, and a row as it comes back.
//!
//! Used by the writers, the readers, and a caller's own transaction alike.

use hapax_core::address::Address;
use hapax_core::clock::Now;
use hapax_core::codec::{self, OwnedRow};
use hapax_core::record::{Record, Version};
use hapax_core::store::{ErrorKind, StoreError, Swap};
use tokio_postgres::types::{ToSql, Type};

/// A parameter with its type: with it a statement needs no preparation.
pub(crate) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// A statement with its parameters.
pub(crate) struct Question<'a> {
    pub(crate) sql: &'a str,
    pub(crate) parameters: Vec<Parameter<'a>>,
}

impl<'a> Question<'a> {
    pub(crate) fn new(sql: &'a str, parameters: impl Into<Vec<Parameter<'a>>>) -> Self {
        Self { sql, parameters: parameters.into() }
    }
}

/// A moment this far from a stamp still has a column, whatever the stamp.
const LENGTH_MS_MAX: u64 = i64::MAX as u64 / 2;

const TOO_LONG: &str = "the record would be due or expire millions of years from now; give a shorter time";

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
    pub(crate) fn new(at: &Address, expect: Option<Version>, next: &Record) -> Result<Self, StoreError> {
        let column = |ms: Option<u64>| match ms {
            Some(ms @ ..=LENGTH_MS_MAX) => Ok(i64::try_from(ms).ok()),
            Some(_) => Err(StoreError::new("swap", ErrorKind::Invalid, TOO_LONG)),
            None => Ok(None),
        };
        Ok(Self {
            at: at.clone(),
            expect,
            version: next.version,
            state: next.state.number().into(),
            due_in: column(next.due_in_ms)?,
            reap_in: column(next.reap_in_ms())?,
            data: codec::encode(at.id(), next),
        })
    }

    pub(crate) fn bytes(&self) -> usize {
        self.data.len()
    }
}

/// The columns of one row.
#[derive(Debug)]
pub(crate) struct One<'a> {
    id: &'a [u8],
    expect: Option<&'a [u8]>,
    version: &'a [u8],
    state: i16,
    due_in: Option<i64>,
    reap_in: Option<i64>,
    scheme: &'a str,
    space: &'a str,
    scope: &'a str,
    key: &'a str,
    data: &'a [u8],
}

impl<'a> One<'a> {
    pub(crate) fn of(write: &'a Write) -> Self {
        Self {
            id: write.at.id().as_bytes(),
            expect: write.expect.as_ref().map(|expect| &expect.as_bytes()[..]),
            version: write.version.as_bytes(),
            state: write.state,
            due_in: write.due_in,
            reap_in: write.reap_in,
            scheme: write.at.scheme().as_str(),
            space: write.at.space().as_str(),
            scope: write.at.scope().as_str(),
            key: write.at.key().as_str(),
            data: &write.data,
        }
    }

    /// For `insert_one` of the [`Statements`](crate::statements::Statements).
    pub(crate) fn for_insert<'b>(&'b self, patience: &'b Option<String>) -> [Parameter<'b>; 11] {
        [
            (patience, Type::TEXT),
            (&self.id, Type::BYTEA),
            (&self.version, Type::BYTEA),
            (&self.state, Type::INT2),
            (&self.due_in, Type::INT8),
            (&self.reap_in, Type::INT8),
            (&self.scheme, Type::TEXT),
            (&self.space, Type::TEXT),
            (&self.scope, Type::TEXT),
            (&self.key, Type::TEXT),
            (&self.data, Type::BYTEA),
        ]
    }

    /// For `update_one`.
    pub(crate) fn for_update<'b>(&'b self, patience: &'b Option<String>) -> [Parameter<'b>; 8] {
        [
            (patience, Type::TEXT),
            (&self.id, Type::BYTEA),
            (&self.expect, Type::BYTEA),
            (&self.version, Type::BYTEA),
            (&self.state, Type::INT2),
            (&self.due_in, Type::INT8),
            (&self.reap_in, Type::INT8),
            (&self.data, Type::BYTEA),
        ]
    }
}

/// The columns of the rows of a batch, as arrays.
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

    /// For `insert` and `insert_free`.
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

    /// For `update`, `update_free` and `update_held`.
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

/// The rows of one statement: all new, or all changes.
#[derive(Debug)]
pub(crate) enum Rows<'a> {
    One(One<'a>),
    Many(Arrays<'a>),
}

impl<'a> Rows<'a> {
    /// One row may have a statement of its own.
    pub(crate) fn of(writes: &[&'a Write], one_has_its_own: bool) -> Self {
        match writes {
            [write] if one_has_its_own => Self::One(One::of(write)),
            _ => Self::Many(Arrays::of(writes.iter().copied())),
        }
    }
}

/// What became of a swap, before anything is decoded.
#[derive(Debug)]
pub(crate) enum Written {
    Applied(Now),
    Lost(Option<Box<OwnedRow>>, Now),
}

impl Written {
    /// The record that it lost to, if that is large and its data was left out.
    pub(crate) fn lost_to_large(&self) -> Option<(&OwnedRow, Now)> {
        match self {
            Self::Lost(Some(row), now) if is_large(row) => Some((row, *now)),
            _ => None,
        }
    }

    pub(crate) fn into_swap(self, at: &Address, op: &'static str) -> Result<Swap, StoreError> {
        match self {
            Self::Applied(now) => Ok(Swap::Applied(now)),
            Self::Lost(row, now) => Ok(Swap::Lost(codec::seen(at, row.as_deref(), now, op)?)),
        }
    }
}

/// Whether data was left out because it is large. No record has none; where one has, it is found to be damaged when it is
/// read whole.
pub(crate) fn is_large(row: &OwnedRow) -> bool {
    row.data.is_empty()
}

/// Reads the columns of a record, beginning at `first`. `None`: there is no id, so there is no record.
pub(crate) fn read(row: &tokio_postgres::Row, first: usize) -> Option<OwnedRow> {
    let bytes = |at: usize| row.try_get::<_, Option<&[u8]>>(first + at).ok().flatten();
    let text = |at: usize| row.try_get::<_, Option<&str>>(first + at).ok().flatten().unwrap_or_default().to_owned();
    let number = |at: usize| row.try_get::<_, Option<i64>>(first + at).ok().flatten();
    Some(OwnedRow {
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
