//! `hapax store ...`: which command, and what it says.

use super::StoreFileError;
use super::args::StoreCommand;
use super::{backup, fence, recover, restore};

/// Does it, and returns what to print.
///
/// # Errors
/// If it was refused or failed. Nothing is left half done.
pub async fn run(command: &StoreCommand, environment: Vec<(String, String)>) -> Result<String, StoreFileError> {
    match command {
        StoreCommand::Backup(args) => backup::run(args, environment),
        StoreCommand::Restore(args) => restore::run(args, environment).await,
        StoreCommand::Recover(args) => recover::run(args, environment).await,
        StoreCommand::Fence(args) => fence::run(args, environment).await,
    }
}
