//! Rows that are written alone, because another transaction holds them or because one of a batch is to blame.
//!
//! A caller's open transaction may hold a record for as long as it likes. Whoever swaps that record has to wait; this is
//! where, each with a connection that batches do not need, and with a limit on how many and how long.

use std::sync::Arc;
use std::time::Duration;

use hapax_core::store::StoreError;
use tokio::time::timeout;

use crate::connections::{Connection, Refusal};
use crate::queue::Flight;
use crate::rows::Written;
use crate::store::Shared;
use crate::writer::{Held, attempt, is_as_expected, settle};
use crate::{failure, reader};

/// How long one row of a batch that failed waits for a lock before it is set apart.
const LOCK_WAIT: Duration = Duration::from_millis(10);

/// How often a held row is tried: each time it came free and was taken again.
const TRIES_MAX: u32 = 3;

/// Tries every row of a batch that failed because of one of them.
pub(crate) async fn one_by_one(shared: &Arc<Shared>, connection: &mut Connection, flights: Vec<Flight>) {
    for flight in flights {
        let row = std::slice::from_ref(&flight);
        match attempt(shared, connection, row, Held::PassOver(LOCK_WAIT)).await {
            Ok(done) => settle(shared, connection, vec![flight], done).await,
            Err(Refusal::Failed(error)) if failure::is_lock(&error) => set_apart(shared, flight),
            Err(refusal) => flight.land(Err(refusal.of_write("swap"))),
        }
    }
}

/// Leaves a row that another transaction holds to a task of its own.
pub(crate) fn set_apart(shared: &Arc<Shared>, flight: Flight) {
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        let answer = wait_and_write(&shared, &flight).await;
        flight.land(answer);
    });
}

async fn wait_and_write(shared: &Shared, flight: &Flight) -> Result<Written, StoreError> {
    // Less than the statement may take, so that the server says what it waited for.
    let wait = shared.statement_timeout.mul_f64(0.9);
    let turn = timeout(shared.statement_timeout, shared.alone.acquire()).await;
    let _turn = turn.map_err(|_| failure::held("swap"))?.map_err(|_| failure::stopped("swap"))?;
    let mut connection = shared.connections.get("swap").await?;
    let id = flight.write.at.id();
    for _ in 0..TRIES_MAX {
        let done = attempt(shared, &mut connection, std::slice::from_ref(flight), Held::WaitFor(wait)).await;
        if let Some(written) = done.map_err(|refusal| refusal.of_write("swap"))?.remove(id) {
            return Ok(written);
        }
        let (mut rows, now) = reader::find(shared, &mut connection, &[&id.as_bytes()[..]], "swap").await?;
        let row = rows.remove(id);
        if !is_as_expected(row.as_ref(), flight) {
            return Ok(Written::Lost(row.map(Box::new), now));
        }
    }
    Err(failure::held("swap"))
}
