//! Deleting what has expired, in slices: each is read, then deleted if it is what was written.
//!
//! The column only says where to look: a record that was altered stays, since its key would come free. The server's clock
//! decides, but it is not believed further than the replies before allow: a clock that was stepped forward, or another
//! host's after a failover, must not free a key early. Between the two statements nothing is held: what was written again
//! meanwhile has another version.

use hapax_core::codec::OwnedRow;
use hapax_core::limits::{PAGE_BYTES_MAX, REAP_MAX};
use hapax_core::store::StoreError;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::connections::Connection;
use crate::failure;
use crate::rows::{self, Parameter, Question};
use crate::store::Shared;

/// Records read and deleted at a time: a few milliseconds, so that claims hardly wait. With 500 their 99th percentile
/// doubled.
const REAP_SLICE: u32 = 100;

/// Records passed over by one call: damaged, or held by others. Behind more damaged ones nothing is deleted until a person
/// looks; each costs its bytes, call after call.
const PASSED_OVER_MAX: u32 = 10_000;

/// Where a slice ended.
struct Place {
    reap_at: i64,
    id: Vec<u8>,
}

/// Deletes up to `limit` records whose time has come, oldest first.
pub(crate) async fn reap(shared: &Shared, limit: u32) -> Result<u32, StoreError> {
    let limit = limit.min(REAP_MAX);
    let (mut connection, _turn) = shared.to_read("reap").await?;
    let mut after = Place { reap_at: i64::MIN, id: Vec::new() };
    let (mut reaped, mut passed_over) = (0, 0);
    while reaped < limit && passed_over < PASSED_OVER_MAX {
        // Where some are damaged, the next slice is larger: they are passed over in few steps, even one by one.
        let rows_max = (limit - reaped + passed_over).min(REAP_SLICE);
        let Some(slice) = look(shared, &mut connection, &after, rows_max).await? else { break };
        let taken = Taken::of(&slice.rows, limit - reaped);
        let count = delete(shared, &mut connection, &taken).await?;
        hapax_core::failpoint!(async if count > 0 { "reap" } else { "idle-reap" });
        reaped += count;
        passed_over += taken.examined.saturating_sub(count);
        match taken.last.and_then(|last| Some((last.reap_at?, last))) {
            Some((reap_at, last)) if slice.has_more => after = Place { reap_at, id: last.id.clone() },
            _ => break,
        }
    }
    Ok(reaped)
}

/// What seems to have expired.
struct Slice {
    rows: Vec<OwnedRow>,
    has_more: bool,
}

/// `None`: the clock is not trusted.
async fn look(
    shared: &Shared,
    connection: &mut Connection,
    after: &Place,
    rows_max: u32,
) -> Result<Option<Slice>, StoreError> {
    let Some(believed_ms) = shared.clock.believed_ms() else { return Ok(None) };
    let (rows_max, bytes_max) = (i64::from(rows_max), i64::try_from(PAGE_BYTES_MAX).unwrap_or(i64::MAX));
    let parameters: [Parameter<'_>; 5] = [
        (&after.reap_at, Type::INT8),
        (&after.id, Type::BYTEA),
        (&believed_ms, Type::INT8),
        (&rows_max, Type::INT8),
        (&bytes_max, Type::INT8),
    ];
    let sent = shared.clock.sent();
    let answer = connection.query(&Question::new(&shared.statements.expired, parameters)).await;
    let answer = answer.map_err(|refusal| refusal.of_read("reap"))?;
    let first = answer.first().ok_or_else(|| failure::standby("reap"))?;
    let (now_ms, standby, due) = read_head(first).map_err(|error| failure::of_read("reap", error))?;
    if standby {
        return Err(failure::standby("reap"));
    }
    shared.clock.heard(sent, now_ms);
    let rows: Vec<OwnedRow> = answer.iter().filter_map(|row| rows::read(row, 3)).collect();
    let has_more = due >= rows_max || (rows.len() as i64) < due;
    Ok(Some(Slice { rows, has_more }))
}

/// The columns before the record: time, standby or not, rows that are due.
fn read_head(row: &Row) -> Result<(i64, bool, i64), tokio_postgres::Error> {
    Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?))
}

/// What of a slice may be deleted.
#[derive(Default)]
struct Taken<'a> {
    ids: Vec<&'a [u8]>,
    versions: Vec<&'a [u8]>,
    /// Records looked at, up to the last.
    examined: u32,
    last: Option<&'a OwnedRow>,
}

impl<'a> Taken<'a> {
    /// The first `limit` that are what was written.
    fn of(rows: &'a [OwnedRow], limit: u32) -> Self {
        let mut taken = Self::default();
        for row in rows {
            if taken.ids.len() >= limit as usize {
                break;
            }
            taken.examined += 1;
            taken.last = Some(row);
            if row.decode().is_ok() {
                taken.ids.push(&row.id);
                taken.versions.push(&row.version);
            }
        }
        taken
    }
}

/// How many of them were deleted. Whoever holds one, or has written it again, keeps it.
async fn delete(shared: &Shared, connection: &mut Connection, taken: &Taken<'_>) -> Result<u32, StoreError> {
    // What was heard with the slice may be that the clock was stepped.
    let Some(believed_ms) = shared.clock.believed_ms().filter(|_| !taken.ids.is_empty()) else { return Ok(0) };
    let parameters: [Parameter<'_>; 3] =
        [(&taken.ids, Type::BYTEA_ARRAY), (&taken.versions, Type::BYTEA_ARRAY), (&believed_ms, Type::INT8)];
    let sent = shared.clock.sent();
    let answer = connection.query(&Question::new(&shared.statements.reap, parameters)).await;
    let answer = answer.map_err(|refusal| refusal.of_write("reap"))?;
    let Some(row) = answer.first() else { return Ok(0) };
    shared.clock.heard(sent, row.try_get(0).unwrap_or(0));
    Ok(row.try_get::<_, i64>(1).ok().and_then(|count| u32::try_from(count).ok()).unwrap_or(0))
}
