//! `hapax routes`: what is called without protection. Being written.

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::cli::Output;
use crate::config::Config;

/// Prints the audit; the code is 1 where something is called without protection.
///
/// # Errors
///
/// Always: it is being written.
pub fn run(_config: &Config, _log: Option<PathBuf>, _output: Output) -> Result<ExitCode, Box<dyn Error + Send + Sync>> {
    Err("the audit of routes is being written".into())
}
