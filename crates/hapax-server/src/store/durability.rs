//! What an acknowledged write survives, in the store's own words: `health()` is asked at start and again while the node runs.
//!
//! Whatever tells people about durability (banner, metric, status) takes it from here, so that none of them can promise more
//! than the store does. A change is logged when it is noticed.

use std::sync::{Arc, Mutex, PoisonError};

use hapax_core::store::{Durability, Health, Store as _, StoreError};

use crate::store::AnyStore;
use crate::telemetry;

/// In a word, for metrics and programs.
pub(crate) fn level(durability: Durability) -> &'static str {
    match durability {
        Durability::None => "none",
        Durability::Disk => "disk",
        Durability::Replicated => "replicated",
    }
}

/// The same for people.
pub(crate) fn meaning(store: &AnyStore, durability: Durability) -> &'static str {
    match (store, durability) {
        (AnyStore::Memory(_), _) => "nothing survives a restart",
        (AnyStore::Sqlite(_), Durability::None) => {
            "the file is on a file system in memory, and goes with the host's power"
        }
        (AnyStore::Sqlite(_), _) => "every write is on the disk before it is acknowledged",
        (AnyStore::Postgres(_), Durability::Replicated) => {
            "every write is on the server's disk, and a standby has confirmed it, before it is acknowledged"
        }
        (AnyStore::Postgres(_), _) => {
            "every write is on the server's disk before it is acknowledged; no standby confirms it"
        }
    }
}

/// What is less than the configuration lets people expect, with the next step.
pub(crate) fn warning(store: &AnyStore, durability: Durability) -> Option<String> {
    match (store, durability) {
        (AnyStore::Postgres(postgres), Durability::Disk) if postgres.host_count() > 1 => Some(
            "the store has several hosts, and no standby confirms what the primary commits: a failover may lose keys that \
             were claimed, and their requests run again; set synchronous_standby_names at the server, and `store.strict` to \
             refuse one without"
                .to_owned(),
        ),
        (AnyStore::Sqlite(_), Durability::None) => Some(
            "the store's file is on a file system in memory (tmpfs): the next start of the host forgets every key, and \
             retries run again; put the file on a disk"
                .to_owned(),
        ),
        _ => None,
    }
}

/// The durability of a node's store, as it was last heard.
#[derive(Debug)]
pub(crate) struct Watched {
    store: AnyStore,
    last: Mutex<Durability>,
}

impl Watched {
    /// Asks for the first time.
    ///
    /// # Errors
    /// What the store says.
    pub(crate) async fn begin(store: &AnyStore) -> Result<Arc<Self>, StoreError> {
        let Health { durability, .. } = store.health().await?;
        telemetry::set_durability(store.name(), level(durability), None);
        if let Some(warning) = warning(store, durability) {
            tracing::warn!("{warning}");
        }
        Ok(Arc::new(Self { store: store.clone(), last: Mutex::new(durability) }))
    }

    /// The store's name in metrics.
    pub(crate) fn name(&self) -> &'static str {
        self.store.name()
    }

    /// As it was last heard.
    pub(crate) fn last(&self) -> Durability {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the store how it is.
    ///
    /// # Errors
    /// What the store says. The last word about durability stands then.
    pub(crate) async fn health(&self) -> Result<Health, StoreError> {
        let health = self.store.health().await?;
        self.heard(health.durability);
        Ok(health)
    }

    fn heard(&self, durability: Durability) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if *last == durability {
            return;
        }
        let (before, now) = (level(*last), level(durability));
        *last = durability;
        telemetry::set_durability(self.store.name(), now, Some(before));
        tracing::warn!(before, now, "the store's durability changed: {}", meaning(&self.store, durability));
        if let Some(warning) = warning(&self.store, durability) {
            tracing::warn!("{warning}");
        }
    }
}
