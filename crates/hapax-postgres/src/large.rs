//! Large records: left out of batches, read by few at a time, and shared while somebody uses them.
//!
//! So a storm of retries of one large response reads it once and holds it once. What is shared is in
//! [`hapax_core::large`].

use hapax_core::address::Address;
use hapax_core::clock::Now;
use hapax_core::codec::{self, OwnedRow};
use hapax_core::large::{Flights, LargeRecords, READS_MAX, take_back_freed};
use hapax_core::store::{Seen, StoreError};
use tokio::sync::{OnceCell, Semaphore};
use tokio::time::timeout;

use crate::store::Shared;
use crate::{failure, reader};

/// What the handles of a store share.
#[derive(Debug)]
pub(crate) struct Large {
    in_use: LargeRecords,
    flights: Flights<OnceCell<Seen>>,
    reads: Semaphore,
}

impl Default for Large {
    fn default() -> Self {
        Self { in_use: LargeRecords::default(), flights: Flights::default(), reads: Semaphore::new(READS_MAX) }
    }
}

/// The large record at that address, which was seen at that time without its data.
pub(crate) async fn get(
    shared: &Shared,
    at: &Address,
    (row, now): (&OwnedRow, Now),
    op: &'static str,
) -> Result<Seen, StoreError> {
    if let Some(stored) = shared.large.in_use.find(at.id(), &row.version) {
        return Ok(Seen { stored: Some(stored), now });
    }
    let flight = shared.large.flights.join(&row.version);
    flight.get_or_try_init(|| read(shared, at, op)).await.cloned()
}

async fn read(shared: &Shared, at: &Address, op: &'static str) -> Result<Seen, StoreError> {
    let turn = timeout(shared.statement_timeout, shared.large.reads.acquire()).await;
    let _turn = turn.map_err(|_| failure::crowded(op))?.map_err(|_| failure::stopped(op))?;
    let (mut connection, _reading) = shared.to_read(op).await?;
    take_back_freed();
    let ids = [&at.id().as_bytes()[..]];
    let (mut rows, now) = reader::find_by(shared, &mut connection, &shared.statements.find_whole, &ids, op).await?;
    let Seen { stored, now } = codec::seen(at, rows.remove(at.id()).as_ref(), now, op)?;
    Ok(Seen { stored: stored.map(|stored| shared.large.in_use.keep(at.id(), stored)), now })
}
