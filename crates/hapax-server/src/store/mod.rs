//! The store that the configuration names, chosen at run time.
//!
//! | module | what it is |
//! |---|---|
//! | `address_scheme` | how addresses are made, as the store remembers it; where a key of a scope is |
//! | `ceiling` | whether the store has room for new keys |
//! | `durability` | what an acknowledged write survives, as the store says, and watched |

pub(crate) mod address_scheme;
pub(crate) mod ceiling;
pub(crate) mod durability;

use hapax_core::address::Address;
use hapax_core::clock::Now;
use hapax_core::journal::{Journal, Note, NoteScan, Noted};
use hapax_core::memory::Memory;
use hapax_core::record::{Record, Version};
use hapax_core::store::{ErrorKind, Health, Page, Scan, Seen, Store, StoreError, Swap};
use hapax_postgres::{Encryption, Postgres};
use hapax_sqlite::Sqlite;
use rustls::ClientConfig;
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::config::{self, Backend};
use hapax_proxy::tls;

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

/// What a store takes, and what is left for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// Records.
    pub rows: Option<u64>,
    /// Bytes.
    pub bytes: Option<u64>,
    /// The disk it is on.
    pub disk: Option<Disk>,
}

/// A disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disk {
    /// Bytes left.
    pub free: u64,
    /// Bytes in all.
    pub size: u64,
}

impl AnyStore {
    /// Opens the store that the configuration names.
    ///
    /// # Errors
    /// What the store says: cause and next step.
    pub async fn open(config: &config::Store) -> Result<Self, StoreError> {
        Self::open_or_make(config, true).await
    }

    /// Opens it only where it is already: a name that was mistyped makes no new store. A file may be an application's that
    /// holds a store as a guest.
    ///
    /// # Errors
    /// What the store says: cause and next step.
    pub async fn open_existing(config: &config::Store) -> Result<Self, StoreError> {
        Self::open_or_make(config, false).await
    }

    async fn open_or_make(config: &config::Store, make: bool) -> Result<Self, StoreError> {
        match &config.backend {
            Backend::Memory => Ok(Self::Memory(std::sync::Arc::new(Memory::new()))),
            Backend::Sqlite { path } => {
                let options = hapax_sqlite::Options::new(path).with_busy_timeout(config.timeout);
                let options = if make { options } else { options.with_existing().with_guest() };
                // Opening reads and may migrate: not on a thread that serves requests.
                let opened = tokio::task::spawn_blocking(move || Sqlite::open(&options)).await;
                let store = opened
                    .map_err(|_| StoreError::new("open", ErrorKind::Unavailable, "opening was interrupted"))??;
                // Once it is known to be a store: another application's file is refused as that.
                if make {
                    check_private(path)?;
                }
                Ok(Self::Sqlite(store))
            }
            Backend::Postgres { url, .. } => open_postgres(config, url.expose(), make).await.map(Self::Postgres),
        }
    }

    /// Leaves what it holds in one piece, for whoever copies it when the process has ended.
    pub async fn fold_log(&self) {
        if let Self::Sqlite(store) = self {
            store.fold_log().await;
        }
    }

    /// What it takes and what is left for it, as far as it can say so cheaply. There are never more rows than it says.
    ///
    /// # Errors
    /// If it cannot be asked.
    pub async fn room(&self) -> Result<Room, StoreError> {
        match self {
            Self::Memory(store) => Ok(Room { rows: Some(store.count()), ..Room::default() }),
            Self::Sqlite(store) => {
                let measured = store.measure().await?;
                let disk = Disk { free: measured.disk_free, size: measured.disk_size };
                Ok(Room { rows: Some(store.about_count().await?), bytes: Some(measured.bytes), disk: Some(disk) })
            }
            Self::Postgres(store) => {
                Ok(Room { rows: store.about_count().await?, bytes: Some(store.bytes().await?), disk: None })
            }
        }
    }

    /// How many rows there are exactly, up to `most`, where [`AnyStore::room`] says too many: it reads an index for that.
    ///
    /// # Errors
    /// If it cannot be asked.
    pub async fn exact_count(&self, most: u64) -> Result<Option<u64>, StoreError> {
        match self {
            Self::Sqlite(store) => store.count_up_to(most).await.map(Some),
            Self::Memory(_) | Self::Postgres(_) => Ok(None),
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
}

/// Refuses a file that anyone on this machine can read or change: it holds recorded answers.
fn check_private(path: &std::path::Path) -> Result<(), StoreError> {
    match config::exposed_store(path) {
        Some(why) => Err(StoreError::new("open", ErrorKind::Unsuitable, why)),
        None => Ok(()),
    }
}

async fn open_postgres(config: &config::Store, url: &str, make: bool) -> Result<Postgres, StoreError> {
    let options = config.postgres_options(url);
    // Operators look also where a node would not start.
    let options = match make {
        true if config.strict && !config.single_node => options.with_standby_required(),
        true => options,
        false => options.with_existing(),
    };
    match options.encryption()? {
        None | Some(Encryption::Never) => Postgres::open(&options).await,
        Some(Encryption::IfOffered | Encryption::Always) => {
            let connector = MakeRustlsConnect::new(client_tls(config)?);
            Postgres::open_with_tls(&options, connector).await
        }
    }
}

/// Certificates are always verified, against the name in the connection string.
fn client_tls(config: &config::Store) -> Result<ClientConfig, StoreError> {
    let roots = tls::client_config(config.ca_file.as_deref())
        .map_err(|error| StoreError::new("open", ErrorKind::Unsuitable, error.to_string()))?;
    let mut tls = (*roots).clone();
    // Newer servers end a handshake that offers them HTTP.
    tls.alpn_protocols = vec![b"postgresql".to_vec()];
    Ok(tls)
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

    fn has_stopped(&self) -> bool {
        each!(self, store => store.has_stopped())
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
