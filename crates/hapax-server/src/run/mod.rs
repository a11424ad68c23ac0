//! Starting, reloading, draining. Being written.

use std::error::Error;

use crate::config::{Config, Sources};

/// Runs the proxy until it is told to end. `sources` are for reading the configuration again.
///
/// # Errors
///
/// Always: it is being written.
pub async fn proxy(_config: Config, _sources: Sources) -> Result<(), Box<dyn Error + Send + Sync>> {
    Err("the proxy is being written".into())
}
