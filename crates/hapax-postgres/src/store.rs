//! [`Postgres`]: the store, as its callers see it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{ConfigConnectImpl, Connect};
use hapax_core::address::Address;
use hapax_core::record::{Record, Version};
use hapax_core::store::{Health, Page, Scan, Seen, Store, StoreError, Swap};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout_at};
use tokio_postgres::Socket;
use tokio_postgres::tls::{MakeTlsConnect, NoTls, TlsConnect};

use crate::clock::ServerClock;
use crate::connections::{Connection, Connections};
#[cfg(feature = "rustls")]
use crate::encryption::Encryption;
use crate::large::Large;
use crate::options::{Options, target_of};
use crate::queue::Queue;
use crate::rows::{Question, Write};
use crate::statements::Statements;
#[cfg(feature = "rustls")]
use crate::tls;
use crate::{failure, large, reader, reaper, scan, schema, suitable, writer};

/// Swaps that may be under way or waiting at one time; a caller beyond them waits for its turn to wait.
const SWAPS_MAX: usize = 16 * 1024;

/// Rows held by other transactions that are waited for at one time. Each takes a connection.
const ALONE_MAX: usize = 2;

/// hapax records in PostgreSQL. Clones share it; when the last one is dropped, what is waiting is written and the
/// connections are closed.
///
/// A store has at most twice as many connections as it was given, half for writing and half for reading, and two for rows
/// that another transaction holds.
#[derive(Clone)]
pub struct Postgres {
    pub(crate) shared: Arc<Shared>,
    desk: Arc<Desk>,
}

/// What writers and readers share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) connections: Connections,
    pub(crate) statements: Statements,
    pub(crate) clock: ServerClock,
    pub(crate) schema: String,
    pub(crate) statement_timeout: Duration,
    /// Limits the connections that read.
    reads: Semaphore,
    /// Limits the rows that are written alone.
    pub(crate) alone: Semaphore,
    pub(crate) large: Large,
}

impl Shared {
    /// A connection to read with. It is the caller's as long as the permit is. Turn, connection and first statement have one
    /// limit together.
    pub(crate) async fn to_read(&self, op: &'static str) -> Result<(Connection, SemaphorePermit<'_>), StoreError> {
        let deadline = Instant::now() + self.statement_timeout;
        let turn = timeout_at(deadline, self.reads.acquire()).await;
        let turn = turn.map_err(|_| failure::crowded(op))?.map_err(|_| failure::stopped(op))?;
        Ok((self.connections.get_by(op, deadline).await?, turn))
    }
}

/// Where swaps are handed in. Closed with the last handle.
struct Desk {
    queue: Arc<Queue>,
    turns: Semaphore,
}

impl Desk {
    /// The tasks that write are gone, because their runtime is; nothing will be written any more. Each of them, and each
    /// swap under way, holds the queue.
    fn is_deserted(&self) -> bool {
        Arc::strong_count(&self.queue) == 1
    }

    /// Why a swap's turn did not come.
    fn out_of_turn(&self, op: &'static str) -> StoreError {
        if self.is_deserted() { failure::stopped(op) } else { failure::crowded(op) }
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        self.queue.close();
    }
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres")
            .field("target", &self.shared.connections.target())
            .field("schema", &self.shared.schema)
            .finish_non_exhaustive()
    }
}

impl Postgres {
    /// Connects, checks the server, and brings hapax's tables up to date, unless [`Options::with_existing`] says that they have to
    /// be there. Takes a connection string, or [`Options`]. Starts the tasks that write on the current runtime, which must
    /// outlive the store.
    ///
    /// With the feature `rustls`, connections are encrypted where [`Options::encryption`] asks for it, and certificates are
    /// verified against the authorities of the system and the name in the connection string. Without the feature such options
    /// are refused: use [`Postgres::open_with_tls`].
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), hapax_core::store::StoreError> {
    /// use hapax_postgres::Postgres;
    ///
    /// let store = Postgres::open("postgres://app:secret@db.internal/app?sslmode=require").await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the server cannot be reached, refuses the login, cannot keep the promises (a standby, too old, not durable), or
    /// holds tables of a newer release that this one cannot work with, or none where some have to be there.
    pub async fn open(options: impl Into<Options>) -> Result<Self, StoreError> {
        let options = options.into();
        Self::open_over(&options, connector_of(&options)?).await
    }

    /// The same with TLS, by any connector that works with `tokio-postgres`: it decides which certificates are good. Where
    /// [`Options::encryption`] does not ask for [`Always`](crate::Encryption::Always), a server that offers no TLS is talked
    /// to without.
    ///
    /// # Errors
    /// As for [`Postgres::open`].
    pub async fn open_with_tls<T>(options: impl Into<Options>, tls: T) -> Result<Self, StoreError>
    where
        T: MakeTlsConnect<Socket> + Clone + Sync + Send + 'static,
        T::Stream: Sync + Send,
        T::TlsConnect: Sync + Send,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        Self::open_over(&options.into(), Box::new(ConfigConnectImpl { tls })).await
    }

    /// Makes hapax's tables or brings them up to date, and no more: for a step of a deployment, by a user who may. The service
    /// then opens the store [as it is](Options::with_existing), by one who may not; `docs/postgres.md` has the rights that it
    /// needs. Connects as [`Postgres::open`] does. Run twice, it changes nothing.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), hapax_core::store::StoreError> {
    /// use hapax_postgres::{Options, Postgres};
    ///
    /// Postgres::migrate("postgres://owner:secret@db.internal/app").await?;
    /// let store = Postgres::open(Options::new("postgres://app:secret@db.internal/app").with_existing()).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`Postgres::open`], and if the user may not create tables.
    pub async fn migrate(options: impl Into<Options>) -> Result<(), StoreError> {
        let mut options = options.into();
        options.existing = false;
        connect(&options, connector_of(&options)?).await.map(drop)
    }

    /// How many hosts the connection string names. With more than one, a failover is meant to be possible.
    #[must_use]
    pub fn host_count(&self) -> usize {
        self.shared.connections.host_count()
    }

    async fn open_over(options: &Options, connector: Box<dyn Connect>) -> Result<Self, StoreError> {
        let shared = connect(options, connector).await?;
        let queue = Arc::new(Queue::default());
        for _ in 0..options.connections {
            tokio::spawn(writer::run(Arc::clone(&shared), Arc::clone(&queue)));
        }
        Ok(Self { shared, desk: Arc::new(Desk { queue, turns: Semaphore::new(SWAPS_MAX) }) })
    }
}

/// How connections are made where the caller brings no connector: encrypted where the options ask for it and this build can.
fn connector_of(options: &Options) -> Result<Box<dyn Connect>, StoreError> {
    #[cfg(feature = "rustls")]
    if let Some(Encryption::IfOffered | Encryption::Always) = options.encryption()? {
        return Ok(Box::new(ConfigConnectImpl { tls: tls::system()? }));
    }
    options.encryption()?;
    Ok(Box::new(ConfigConnectImpl { tls: NoTls }))
}

/// Connects to the server, checks it, and makes its schema ready.
async fn connect(options: &Options, connector: Box<dyn Connect>) -> Result<Arc<Shared>, StoreError> {
    let config = options.config()?;
    options.check_schema()?;
    let (count, target) = (2 * options.connections + ALONE_MAX, target_of(&config));
    let shared = Arc::new(Shared {
        connections: Connections::new(config, connector, target, options, count)?,
        statements: Statements::new(&options.schema),
        clock: ServerClock::new(),
        schema: options.schema.clone(),
        statement_timeout: options.statement_timeout,
        reads: Semaphore::new(options.connections),
        alone: Semaphore::new(ALONE_MAX),
        large: Large::default(),
    });
    let opened = prepare(&shared, options.existing).await;
    opened.map_err(|error| StoreError { op: "open", ..error })?;
    Ok(shared)
}

/// Brings the schema up to date, learns the store's name, and takes a first look at its clock.
async fn prepare(shared: &Shared, existing: bool) -> Result<(), StoreError> {
    let mut connection = shared.connections.get("open").await?;
    let prepared = schema::prepare(&mut connection, &shared.schema, existing).await;
    let name = prepared.map_err(|error| StoreError {
        message: format!("{}: {}", shared.connections.target(), error.message),
        ..error
    })?;
    shared.connections.expect_store(name);
    reader::find(shared, &mut connection, &[], "open").await?;
    Ok(())
}

impl Store for Postgres {
    async fn swap(&self, at: &Address, expect: Option<Version>, next: &Record) -> Result<Swap, StoreError> {
        let write = Write::new(at, expect, next)?;
        let deadline = Instant::now() + self.shared.statement_timeout;
        let turn = timeout_at(deadline, self.desk.turns.acquire()).await;
        let _turn = turn.map_err(|_| failure::crowded("swap"))?.map_err(|_| failure::stopped("swap"))?;
        let (ticket, mut answer) = self.desk.queue.join(write);
        let answered = match timeout_at(deadline, &mut answer).await {
            Ok(answered) => answered,
            Err(_) if self.desk.queue.withdraw(ticket, at.id()) => return Err(self.desk.out_of_turn("swap")),
            // It is under way, and whoever has it in hand keeps to the time limits.
            Err(_) => answer.await,
        };
        let written = answered.map_err(|_| failure::abandoned("swap"))??;
        match written.lost_to_large() {
            // In a box, because it is rare, and every request would hold room for it.
            Some(found) => Ok(Swap::Lost(Box::pin(large::get(&self.shared, at, found, "swap")).await?)),
            None => written.into_swap(at, "swap"),
        }
    }

    async fn get(&self, at: &Address) -> Result<Seen, StoreError> {
        Box::pin(reader::get(&self.shared, at)).await
    }

    async fn scan(&self, query: &Scan) -> Result<Page, StoreError> {
        scan::scan(&self.shared, query).await
    }

    async fn reap(&self, limit: u32) -> Result<u32, StoreError> {
        reaper::reap(&self.shared, limit).await
    }

    async fn health(&self) -> Result<Health, StoreError> {
        if self.desk.is_deserted() {
            return Err(failure::stopped("health"));
        }
        let (mut connection, _turn) = self.shared.to_read("health").await?;
        let sent = self.shared.clock.sent();
        let answer =
            connection.query(&Question::new(suitable::LOOK, [])).await.map_err(|refusal| refusal.of_read("health"))?;
        let server = suitable::read(&answer);
        if let Err(reason) = self.shared.connections.check(&server) {
            // What was a good server when they were opened must not be written to any longer.
            self.shared.connections.close_idle();
            connection.close();
            return Err(failure::unsuitable("health", reason));
        }
        let asked = suitable::name_of_store(&self.shared.schema);
        let answer = connection.query(&Question::new(&asked, [])).await.map_err(|refusal| refusal.of_read("health"))?;
        suitable::check_store(&answer, self.shared.connections.store_name())
            .map_err(|reason| failure::unsuitable("health", reason))?;
        self.shared.clock.heard(sent, server.now_ms);
        Ok(Health { durability: server.durability(), clock: self.shared.clock.health() })
    }
}
