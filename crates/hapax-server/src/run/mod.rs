//! Starting, reloading, draining: the proxy as a process.
//!
//! | module | what it is |
//! |---|---|
//! | `store` | the store that the configuration names |
//! | `addresses` | how addresses are made, as the store remembers it |
//! | `settings`, `scopes` | from the configuration to what the layer wants |
//! | `guard` | rates, breaker, counts |
//! | `node` | all of these together, while the process lives |
//! | `background`, `probe` | what is done beside requests, and how unknown outcomes are found out |
//! | `forward` | the upstream behind the layer |
//! | `service` | what every request passes first |
//! | `readiness`, `banner` | what operators and newcomers see |
//! | [`signals`], [`notify`] | what the system says, and what it is told |

mod addresses;
mod background;
mod banner;
mod forward;
mod guard;
mod node;
pub mod notify;
mod probe;
mod readiness;
mod scopes;
mod service;
mod settings;
pub mod signals;
pub mod store;

use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;

use hapax_core::store::StoreError;
use tokio::net::{TcpListener, TcpSocket};

use crate::config::{Config, Sources};
use crate::proxy::Shutdown;
use crate::proxy::tls::TlsError;
use crate::{admin, logs};
use node::Node;
use notify::Notify;
use signals::Signals;

/// Connections that wait to be accepted; the system may allow fewer. With the usual 128, clients that all come at once (a
/// load balancer's, after a restart) find the queue full, and Linux resets some of them.
const ACCEPT_QUEUE_MAX: u32 = 4096;

/// Why the proxy did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The store cannot be used.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {source}; stop what uses it, or choose another with {flag}")]
    Listen {
        /// Which one.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
        /// Where it is set.
        flag: &'static str,
    },
    /// The store's keys were made in another way.
    #[error(
        "the store's addresses are made by `{theirs}`, and this configuration makes them by `{ours}`: every key would be \
         forgotten; restore the old scope and key_per, or start once with --new-addresses"
    )]
    OtherAddresses {
        /// What this configuration says.
        ours: String,
        /// What the store remembers.
        theirs: String,
    },
    /// A certificate or key cannot be used.
    #[error("{0}")]
    Tls(#[from] TlsError),
    /// Something else, with its cause and next step.
    #[error("{0}")]
    Other(String),
}

fn other(error: impl std::fmt::Display) -> StartError {
    StartError::Other(error.to_string())
}

/// Runs the proxy until it is told to end.
///
/// # Errors
/// If it cannot start.
pub async fn proxy(config: Config, sources: Sources) -> Result<(), StartError> {
    logs::init(node::log_format(config.log.format), &config.log.level).map_err(other)?;
    let metrics = admin::metrics::install().map_err(other)?;
    admin::metrics::begin();
    let mut signals = Signals::install().map_err(other)?;
    let listener = bind(config.server.from, "--from")?;
    let admin_listener = match config.admin.from {
        Some(address) => Some(bind(address, "--admin")?),
        None => None,
    };
    let addresses = (listener.local_addr().map_err(other)?, admin_listener.as_ref().and_then(|l| l.local_addr().ok()));
    let node = Node::start(config, sources).await?;
    let shutdown = Shutdown::new();
    let serving = node.serve(listener, shutdown.clone())?;
    let end_admin = node.serve_admin(admin_listener, metrics);
    announce(&banner::text(&node.config, &node.store, addresses.0, addresses.1));
    let notify = Arc::new(Notify::from_env());
    notify.ready("serving");
    let background = node.start_background();
    let watched = Arc::clone(&notify);
    let watchdog = tokio::spawn(async move { watched.keep_watchdog_quiet().await });
    node.until_told_to_end(&mut signals, &notify).await;
    notify.stopping("finishing what runs");
    background.stop().await;
    node.end(&mut signals, &shutdown, serving).await;
    watchdog.abort();
    end_admin.cancel();
    Ok(())
}

fn bind(address: SocketAddr, flag: &'static str) -> Result<TcpListener, StartError> {
    listen(address).map_err(|source| StartError::Listen { address, source, flag })
}

fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // Connections of the process before us may still be closing.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(ACCEPT_QUEUE_MAX)
}

/// A reader that has gone away is no failure.
fn announce(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
