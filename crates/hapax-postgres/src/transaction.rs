//! Swaps inside a caller's own transaction, so that a record and the caller's data commit together or not at all.
//!
//! The steps are the same for every driver; what a driver has to do is [`Guest`]. Here is the one for `tokio-postgres`.

use hapax_core::address::Address;
use hapax_core::clock::Now;
use hapax_core::codec::OwnedRow;
use hapax_core::record::{Record, Version};
use hapax_core::store::{StoreError, Swap};
use tokio_postgres::Transaction;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;

use crate::clock::moment;
use crate::rows::{self, One, Write, Written};
use crate::statements::in_schema;
use crate::store::{Postgres, Shared};
use crate::{failure, suitable};

const OP: &str = "swap_in";

/// Whether the transaction is on a primary, and on which store.
const WHERE: &str = "SELECT pg_is_in_recovery(), value FROM {schema}.meta WHERE name = 'store'";

impl Postgres {
    /// Swaps inside the caller's transaction. The record is written when, and only when, the caller commits; until then
    /// [`Swap::Applied`] is a promise of the transaction, not of the store. Claims do not belong here: they must be
    /// durable before anything runs.
    ///
    /// Waits for whoever else holds the record, for as long as the caller's own settings allow. Makes the caller's commit
    /// wait for the disk, even where `synchronous_commit` is off. After an error the transaction must be rolled back.
    ///
    /// This is for programs that claim with an [`Engine`](hapax_core::engine::Engine) of their own. A handler behind
    /// `hapax`'s HTTP layer must not complete its own record: the layer does, with the answer that it sent.
    ///
    /// ```no_run
    /// # use std::sync::Arc;
    /// use hapax_core::record::{Labels, Outcome, Version};
    /// use hapax_core::store::Swap;
    /// use hapax_core::transition::{Event, decide};
    /// # use hapax_core::address::Address;
    /// # use hapax_core::engine::{Engine, Reply};
    /// # use hapax_postgres::Postgres;
    /// # async fn example(
    /// #     engine: &Engine<Postgres, fn() -> [u8; 16]>,
    /// #     client: &mut tokio_postgres::Client,
    /// #     at: &Address,
    /// #     claimed: Reply,
    /// #     outcome: &Arc<Outcome>,
    /// #     random: fn() -> [u8; 16],
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    ///
    /// // `claimed` is what `engine.claim(…)` answered, with `Answer::Proceed`.
    /// let attempt_id = claimed.attempt_id().ok_or("a claim that proceeds has an attempt")?;
    /// let complete = Event::Complete { attempt_id, outcome, labels: &Labels::default() };
    /// let decision = decide(&claimed.seen, &complete, Version::from_bytes(random()))?;
    /// let next = decision.write.ok_or("the attempt is no longer ours")?;
    ///
    /// let transaction = client.transaction().await?;
    /// transaction.execute("INSERT INTO orders VALUES ('o-1')", &[]).await?;
    /// match engine.store().swap_in(&transaction, at, claimed.seen.version(), &next).await? {
    ///     Swap::Applied(_) => transaction.commit().await?,
    ///     Swap::Lost(_) => transaction.rollback().await?, // the lease lapsed, and somebody else goes on
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the transaction is on another database than the store or on a standby, or a statement fails.
    pub async fn swap_in(
        &self,
        transaction: &Transaction<'_>,
        at: &Address,
        expect: Option<Version>,
        next: &Record,
    ) -> Result<Swap, StoreError> {
        swap_as_guest(&self.shared, &mut &*transaction, &Write::new(at, expect, next)?).await
    }
}

/// A driver's transaction.
pub(crate) trait Guest {
    /// Whether the server is a standby, and the name of the store: the first row of that statement.
    async fn whereabouts(&mut self, sql: &str) -> Result<Option<(bool, String)>, Failed>;

    /// Runs the statement for one row: the time, then the stamp if it was written, or the row that was found.
    async fn write(&mut self, sql: &str, write: &Write) -> Result<Option<Reply>, Failed>;

    /// Runs the statement that looks at one row: the time, and the row if it is there.
    async fn find(&mut self, sql: &str, id: &[u8]) -> Result<Option<(i64, Option<OwnedRow>)>, Failed>;
}

/// What a statement for one row returned.
pub(crate) struct Reply {
    pub(crate) now_ms: i64,
    pub(crate) stamped_at: Option<i64>,
    pub(crate) found: Option<OwnedRow>,
}

/// Why a statement failed: the server's code, if it sent one, and what the driver said.
pub(crate) struct Failed {
    pub(crate) code: Option<SqlState>,
    pub(crate) source: Box<dyn std::error::Error + Send + Sync>,
}

/// Compares and swaps. Nothing is written for good before the caller commits, so no failure here is ambiguous.
pub(crate) async fn swap_as_guest(shared: &Shared, guest: &mut impl Guest, write: &Write) -> Result<Swap, StoreError> {
    let asked = guest.whereabouts(&in_schema(&shared.schema, WHERE)).await.map_err(at_check)?;
    match asked {
        Some((true, _)) => return Err(failure::standby(OP)),
        Some((false, name)) if name == shared.connections.store_name() => {}
        _ => return Err(failure::unsuitable(OP, suitable::OTHER_TRANSACTION)),
    }
    let statements = &shared.statements;
    let sql = if write.expect.is_none() { &statements.insert_one } else { &statements.update_one };
    let sent = shared.clock.sent();
    if let Some(reply) = guest.write(sql, write).await.map_err(failed)? {
        let now = shared.clock.heard(sent, reply.now_ms);
        let written = match reply.stamped_at {
            Some(stamped_at) => Written::Applied(Now { at: moment(stamped_at), ..now }),
            None => Written::Lost(reply.found.map(Box::new), now),
        };
        if written.lost_to_large().is_none() {
            return written.into_swap(&write.at, OP);
        }
    }
    let sent = shared.clock.sent();
    let found = guest.find(&statements.find_whole, write.at.id().as_bytes()).await.map_err(failed)?;
    let (now_ms, row) = found.ok_or_else(|| failure::standby(OP))?;
    Written::Lost(row.map(Box::new), shared.clock.heard(sent, now_ms)).into_swap(&write.at, OP)
}

fn failed(error: Failed) -> StoreError {
    failure::of_guest(OP, error.code.as_ref()).caused_by(error.source)
}

/// Another database has no such table.
fn at_check(error: Failed) -> StoreError {
    match &error.code {
        Some(code) if *code == SqlState::UNDEFINED_TABLE || *code == SqlState::INVALID_SCHEMA_NAME => {
            failure::unsuitable(OP, suitable::OTHER_TRANSACTION).caused_by(error.source)
        }
        _ => failed(error),
    }
}

impl From<tokio_postgres::Error> for Failed {
    fn from(error: tokio_postgres::Error) -> Self {
        Self { code: error.code().cloned(), source: error.into() }
    }
}

impl Guest for &Transaction<'_> {
    async fn whereabouts(&mut self, sql: &str) -> Result<Option<(bool, String)>, Failed> {
        let rows = self.query_typed(sql, &[]).await?;
        rows.first().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).transpose()
    }

    async fn write(&mut self, sql: &str, write: &Write) -> Result<Option<Reply>, Failed> {
        let (one, patience) = (One::of(write), None);
        let rows = match write.expect {
            None => self.query_typed(sql, &one.for_insert(&patience)).await?,
            Some(_) => self.query_typed(sql, &one.for_update(&patience)).await?,
        };
        let Some(row) = rows.first() else { return Ok(None) };
        let found = if row.len() > 3 { rows::read(row, 3) } else { None };
        Ok(Some(Reply { now_ms: row.try_get(0)?, stamped_at: row.try_get(2)?, found }))
    }

    async fn find(&mut self, sql: &str, id: &[u8]) -> Result<Option<(i64, Option<OwnedRow>)>, Failed> {
        let rows = self.query_typed(sql, &[(&[id].as_slice(), Type::BYTEA_ARRAY)]).await?;
        rows.first().map(|row| Ok((row.try_get(0)?, rows::read(row, 2)))).transpose()
    }
}
