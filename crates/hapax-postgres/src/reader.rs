//! What only reads: `get`, and the looking again of the writers. Scans are in `scan.rs`.
//!
//! A standby may be behind, so each reply also says that it does not come from one.

use std::collections::HashMap;

use hapax_core::address::{Address, Id};
use hapax_core::clock::Now;
use hapax_core::codec::{self, OwnedRow};
use hapax_core::store::{Seen, StoreError};
use tokio_postgres::types::Type;

use crate::connections::Connection;
use crate::rows::{self, Question};
use crate::store::Shared;
use crate::{failure, large};

/// The record at that address.
pub(crate) async fn get(shared: &Shared, at: &Address) -> Result<Seen, StoreError> {
    let (row, now) = {
        let (mut connection, _turn) = shared.to_read("get").await?;
        let (mut rows, now) = find(shared, &mut connection, &[&at.id().as_bytes()[..]], "get").await?;
        (rows.remove(at.id()), now)
    };
    match row {
        Some(row) if rows::is_large(&row) => Box::pin(large::get(shared, at, (&row, now), "get")).await,
        row => codec::seen(at, row.as_ref(), now, "get"),
    }
}

/// The rows of those ids, as far as they are there. Large data is left out.
pub(crate) async fn find(
    shared: &Shared,
    connection: &mut Connection,
    ids: &[&[u8]],
    op: &'static str,
) -> Result<(HashMap<Id, OwnedRow>, Now), StoreError> {
    find_by(shared, connection, &shared.statements.find, ids, op).await
}

/// The same by one of the two statements.
pub(crate) async fn find_by(
    shared: &Shared,
    connection: &mut Connection,
    sql: &str,
    ids: &[&[u8]],
    op: &'static str,
) -> Result<(HashMap<Id, OwnedRow>, Now), StoreError> {
    let sent = shared.clock.sent();
    let rows = connection
        .query(&Question::new(sql, [(&ids as _, Type::BYTEA_ARRAY)]))
        .await
        .map_err(|refusal| refusal.of_read(op))?;
    let (now_ms, in_recovery) =
        rows.first().map_or((0, true), |row| (row.try_get(0).unwrap_or(0), row.try_get(1).unwrap_or(true)));
    if in_recovery {
        return Err(failure::standby(op));
    }
    let now = shared.clock.heard(sent, now_ms);
    let found = rows.iter().filter_map(|row| rows::read(row, 2)).filter_map(|row| Some((row.id()?, row)));
    Ok((found.collect(), now))
}
