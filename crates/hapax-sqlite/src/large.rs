//! Large records: left out of batches and of quick looks, read by few at a time, and shared while somebody uses them.
//!
//! So a storm of retries of one large response reads it once and holds it once. What is shared is in
//! [`hapax_core::large`].

use hapax_core::address::Address;
use hapax_core::large::{Flights, LargeRecords, READS_MAX};
use hapax_core::store::{Seen, StoreError};
use tokio::sync::{OnceCell, Semaphore, oneshot};

use crate::failure;
use crate::reader::Question;
use crate::store::Sqlite;

/// What the handles of a store share.
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

impl Sqlite {
    /// The large record at that address, which had that version a moment ago.
    pub(crate) async fn large(&self, at: &Address, version: &[u8], op: &'static str) -> Result<Seen, StoreError> {
        if let Some(seen) = self.large_in_use(at, version) {
            return Ok(seen);
        }
        let flight = self.large.flights.join(version);
        flight.get_or_try_init(|| self.read_large(at, op)).await.cloned()
    }

    async fn read_large(&self, at: &Address, op: &'static str) -> Result<Seen, StoreError> {
        let _turn = self.large.reads.acquire().await.map_err(|_| failure::stopped(op))?;
        let (reply, answer) = oneshot::channel();
        self.ask(Question::Large { at: at.clone(), reply }, op).await?;
        let (found, now) = answer.await.map_err(|_| failure::stopped(op))??;
        let stored = found.transpose().map_err(|error| error.in_store(op))?;
        Ok(Seen { stored: stored.map(|stored| self.large.in_use.keep(at.id(), stored)), now })
    }

    fn large_in_use(&self, at: &Address, version: &[u8]) -> Option<Seen> {
        let stored = self.large.in_use.find(at.id(), version)?;
        // The record first, then the time: a lease that has lapsed by a later clock has lapsed.
        Some(Seen { stored: Some(stored), now: self.time.now() })
    }
}
