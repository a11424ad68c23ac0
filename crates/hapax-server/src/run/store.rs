//! The store that the configuration names, chosen at run time.

use hapax_core::address::Address;
use hapax_core::clock::Now;
use hapax_core::journal::{Journal, Note, NoteScan, Noted};
use hapax_core::memory::Memory;
use hapax_core::record::{Record, Version};
use hapax_core::store::{ErrorKind, Health, Page, Scan, Seen, Store, StoreError, Swap};
use hapax_postgres::Postgres;
use hapax_sqlite::{Sqlite, SystemClock};

use crate::config::{self, Backend};
use crate::proxy::tls;

/// One of the stores.
#[derive(Clone, Debug)]
pub enum AnyStore {
    /// Nothing survives a restart.
    Memory(std::sync::Arc<Memory>),
    /// A file on this host.
    Sqlite(Sqlite),
    /// A database server.
    Postgres(Postgres),
}

impl AnyStore {
    /// Opens the store that the configuration names.
    ///
    /// # Errors
    /// What the store says: cause and next step.
    pub async fn open(config: &config::Store) -> Result<Self, StoreError> {
        Self::open_or_make(config, true).await
    }

    /// Opens it only where it is already: a name that was mistyped makes no new store.
    ///
    /// # Errors
    /// What the store says: cause and next step.
    pub async fn open_existing(config: &config::Store) -> Result<Self, StoreError> {
        Self::open_or_make(config, false).await
    }

    async fn open_or_make(config: &config::Store, make: bool) -> Result<Self, StoreError> {
        match &config.backend {
            Backend::Memory => Ok(Self::Memory(std::sync::Arc::new(Memory::new(SystemClock)))),
            Backend::Sqlite { path } => {
                let options = hapax_sqlite::Options::new(path).with_busy_timeout(config.timeout);
                let options = if make { options } else { options.with_existing() };
                // Opening reads and may migrate: not on a thread that serves requests.
                let opened = tokio::task::spawn_blocking(move || Sqlite::open(&options)).await;
                opened
                    .map_err(|_| StoreError::new("open", ErrorKind::Unavailable, "opening was interrupted"))?
                    .map(Self::Sqlite)
            }
            Backend::Postgres { url, .. } => open_postgres(config, url.expose(), make).await.map(Self::Postgres),
        }
    }

    /// Its name in metrics.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Memory(_) => "memory",
            Self::Sqlite(_) => "sqlite",
            Self::Postgres(_) => "postgres",
        }
    }

    /// What an acknowledged write survives, in a word and for people.
    #[must_use]
    pub fn durability(&self) -> (&'static str, &'static str) {
        match self {
            Self::Memory(_) => ("none", "nothing survives a restart"),
            Self::Sqlite(_) => ("strict", "every write is on the disk before it is acknowledged"),
            Self::Postgres(_) => {
                ("strict", "every write is in the server's log, on its disk, before it is acknowledged")
            }
        }
    }
}

async fn open_postgres(config: &config::Store, url: &str, make: bool) -> Result<Postgres, StoreError> {
    let mut options = hapax_postgres::Options::new(url)
        .with_schema(&config.schema)
        .with_connections(config.connections.get() as usize)
        .with_statement_timeout(config.timeout)
        .with_connect_timeout(config.timeout);
    if !make {
        options = options.with_existing();
    }
    if config.pooler {
        options = options.with_pooler();
    }
    if !wants_tls(url) {
        return Postgres::open(&options).await;
    }
    let roots = tls::client_config(config.ca_file.as_deref())
        .map_err(|error| StoreError::new("open", ErrorKind::Unsuitable, error.to_string()))?;
    let mut tls = (*roots).clone();
    // Newer servers end a handshake that offers them HTTP.
    tls.alpn_protocols = vec![b"postgresql".to_vec()];
    let connector = tokio_postgres_rustls::MakeRustlsConnect::new(tls);
    Postgres::open_with_tls(&options, connector).await
}

/// Unless the connection string turns it off, or the server is on this host and nothing is said.
fn wants_tls(url: &str) -> bool {
    let said = url.split(['?', '&', ' ']).find_map(|part| part.strip_prefix("sslmode="));
    match said {
        Some(mode) => mode != "disable",
        None => false,
    }
}

macro_rules! each {
    ($self:ident, $store:ident => $call:expr) => {
        match $self {
            Self::Memory($store) => $call,
            Self::Sqlite($store) => $call,
            Self::Postgres($store) => $call,
        }
    };
}

/// The same in boxes, for what is rare: a future is as large as the largest of the three.
macro_rules! each_boxed {
    ($self:ident, $store:ident => $call:expr) => {
        match $self {
            Self::Memory($store) => Box::pin($call).await,
            Self::Sqlite($store) => Box::pin($call).await,
            Self::Postgres($store) => Box::pin($call).await,
        }
    };
}

impl Store for AnyStore {
    async fn swap(&self, at: &Address, expect: Option<Version>, next: &Record) -> Result<Swap, StoreError> {
        each!(self, store => store.swap(at, expect, next).await)
    }

    async fn get(&self, at: &Address) -> Result<Seen, StoreError> {
        each_boxed!(self, store => store.get(at))
    }

    async fn scan(&self, query: &Scan) -> Result<Page, StoreError> {
        each_boxed!(self, store => store.scan(query))
    }

    async fn reap(&self, limit: u32) -> Result<u32, StoreError> {
        each_boxed!(self, store => store.reap(limit))
    }

    async fn health(&self) -> Result<Health, StoreError> {
        each_boxed!(self, store => store.health())
    }
}

impl Journal for AnyStore {
    async fn swap_noted(
        &self,
        at: &Address,
        expect: Option<Version>,
        next: &Record,
        note: &Note,
    ) -> Result<Swap, StoreError> {
        each!(self, store => store.swap_noted(at, expect, next, note).await)
    }

    async fn note(&self, note: &Note) -> Result<Now, StoreError> {
        each!(self, store => store.note(note).await)
    }

    async fn notes(&self, query: &NoteScan) -> Result<Vec<Noted>, StoreError> {
        each!(self, store => store.notes(query).await)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tls_is_used_where_the_connection_string_asks_for_it() {
        assert!(wants_tls("postgres://a@b/c?sslmode=require"));
        assert!(wants_tls("host=b sslmode=verify-full"));
        assert!(!wants_tls("postgres://a@b/c?sslmode=disable"));
        assert!(!wants_tls("postgres://a@b/c"));
    }
}
