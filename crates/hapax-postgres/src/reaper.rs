//! Deleting what has expired, in slices.
//!
//! The server's clock decides, but it is not believed further than the replies before allow: a clock that was stepped
//! forward, or another host's after a failover, must not free a key early.

use hapax_core::limits::REAP_MAX;
use hapax_core::store::StoreError;
use tokio_postgres::types::Type;

use crate::rows::Question;
use crate::store::Shared;

/// Records deleted by one statement: a few milliseconds, so that whoever claims one of these keys hardly waits.
const REAP_SLICE: u32 = 500;

/// Deletes up to `limit` records whose time has come, oldest first.
pub(crate) async fn reap(shared: &Shared, limit: u32) -> Result<u32, StoreError> {
    let limit = limit.min(REAP_MAX);
    let (mut connection, _turn) = shared.to_read("reap").await?;
    let mut reaped = 0;
    while reaped < limit {
        let Some(believed_ms) = shared.clock.believed_ms() else { break };
        let slice = (limit - reaped).min(REAP_SLICE);
        let parameters = [(&i64::from(slice) as _, Type::INT8), (&believed_ms as _, Type::INT8)];
        let sent = shared.clock.sent();
        let rows = connection.query(&Question::new(&shared.statements.reap, parameters)).await;
        let rows = rows.map_err(|refusal| refusal.of_write("reap"))?;
        let Some(row) = rows.first() else { break };
        shared.clock.heard(sent, row.try_get(0).unwrap_or(0));
        let count = row.try_get::<_, i64>(1).ok().and_then(|count| u32::try_from(count).ok()).unwrap_or(0);
        reaped += count;
        hapax_core::failpoint!(async if count > 0 { "reap" } else { "idle-reap" });
        if count < slice {
            break;
        }
    }
    Ok(reaped)
}
