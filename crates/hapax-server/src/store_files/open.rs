//! The store that the flags and the configuration name, if it is there.
//!
//! A command that looks at a store must not make one: an empty store would agree with everything.

use std::path::PathBuf;

use super::StoreFileError;
use crate::config::{self, Backend};
use crate::flags::StoreFlags;
use crate::flags::without_token;
use crate::store::AnyStore;

/// Opens the store.
///
/// # Errors
/// If the configuration is wrong, the store is not there, keeps nothing, or cannot be opened.
pub async fn existing(flags: &StoreFlags, environment: Vec<(String, String)>) -> Result<AnyStore, StoreFileError> {
    let store = config::load_store(&flags.sources(without_token(environment)))?;
    match &store.backend {
        Backend::Memory => Err(keeps_nothing()),
        Backend::Sqlite { path } if !path.exists() => Err(StoreFileError::Missing(path.clone())),
        Backend::Sqlite { .. } | Backend::Postgres { .. } => Ok(AnyStore::open_existing(&store).await?),
    }
}

/// The file of an SQLite store, there or not.
pub(super) fn file(flags: &StoreFlags, environment: Vec<(String, String)>) -> Result<PathBuf, StoreFileError> {
    match config::load(&flags.sources_of_place(without_token(environment)))?.store.backend {
        Backend::Memory => Err(keeps_nothing()),
        Backend::Sqlite { path } => Ok(path),
        Backend::Postgres { .. } => Err(StoreFileError::Usage(
            "a PostgreSQL store is backed up and restored by PostgreSQL's own means; see docs/backup.md".to_owned(),
        )),
    }
}

fn keeps_nothing() -> StoreFileError {
    StoreFileError::Usage("a store in memory keeps nothing; name one with --store".to_owned())
}
