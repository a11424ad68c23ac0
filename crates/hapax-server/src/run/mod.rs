//! Starting, reloading, draining: the proxy as a process.
//!
//! | module | what it is |
//! |---|---|
//! | `settings`, `scopes` | from the configuration to what the layer wants |
//! | `prepare` | everything that is made of a configuration before the store is opened |
//! | `guard` | rates, breaker, counts |
//! | `node` | all of these together, while the process lives |
//! | `background`, `probe` | what is done beside requests, and how unknown outcomes are found out |
//! | `forward` | the upstream behind the layer |
//! | `service` | what every request passes first |
//! | `readiness`, `banner`, `example` | what operators and newcomers see |
//! | [`signals`], [`notify`] | what the system says, and what it is told |

mod background;
mod banner;
mod example;
mod forward;
mod guard;
mod memory;
mod node;
pub mod notify;
mod prepare;
mod probe;
mod probe_path;
mod readiness;
mod scopes;
mod service;
mod settings;
pub mod signals;

use std::io::{ErrorKind, IsTerminal as _, Write as _};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hapax_core::store::StoreError;
use tokio::net::{TcpListener, TcpSocket};
use tokio::time::timeout;

use crate::config::{Config, LogFormat, Sources};
use crate::telemetry;
use crate::{admin, logs};
use hapax_proxy::Shutdown;
use hapax_proxy::descriptors;
use hapax_proxy::tls::TlsError;
use node::Node;
use notify::Notify;
pub use prepare::{Prepared, prepare};
pub(crate) use settings::routes;
use signals::{Reloads, Signals};

/// Connections that wait to be accepted; the system may allow fewer. With the usual 128, clients that all come at once (a
/// load balancer's, after a restart) find the queue full, and Linux resets some of them.
const ACCEPT_QUEUE_MAX: u32 = 4096;

/// How long the end of a process may take for leaving its store in one piece.
const FOLD_TIME_MAX: Duration = Duration::from_secs(2);

/// Why the proxy did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The store cannot be used.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {source}; {}", next_step(.source, .flag))]
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

/// How the proxy ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Ended {
    /// Everything that ran is recorded.
    Complete,
    /// Something still ran: it was given up, and its lease is left to lapse.
    Early,
}

fn other(error: impl std::fmt::Display) -> StartError {
    StartError::Other(error.to_string())
}

/// Runs the proxy until it is told to end, with what was prepared for this configuration. Reloads that were asked for since it
/// was read are made when it serves.
///
/// # Errors
/// If it cannot start.
pub async fn proxy(
    config: Config,
    prepared: Prepared,
    sources: Sources,
    reloads: Reloads,
) -> Result<Ended, StartError> {
    let log = &config.log;
    logs::init(node::log_format(log.format), &log.level, log.requests_per_second).map_err(other)?;
    let metrics = telemetry::install().map_err(other)?;
    telemetry::begin();
    let mut signals = Signals::install(reloads).map_err(other)?;
    let server = &config.server;
    descriptors::divide(
        memory::connections(server),
        memory::places(server.attempts_max.get() as usize, server),
        admin::CONNECTIONS_MAX + config.store.connections.get() as usize,
    );
    let listener = bind(config.server.from, "--from")?;
    let admin_listener = match config.admin.from {
        Some(address) => Some(bind(address, "--admin")?),
        None => None,
    };
    let addresses = (listener.local_addr().map_err(other)?, admin_listener.as_ref().and_then(|l| l.local_addr().ok()));
    let node = tokio::select! {
        node = Node::start(config, prepared, sources.pinned()) => node?,
        _ = signals.next_end() => {
            tracing::info!("ended before it had started");
            return Ok(Ended::Complete);
        }
    };
    let shutdown = Shutdown::new();
    let serving = node.serve(listener, shutdown.clone())?;
    let end_admin = node.serve_admin(admin_listener, metrics);
    if is_read_by_people(&node.config) {
        announce(&banner::text(&node, addresses.0, addresses.1));
    } else {
        banner::log(&node, addresses.0, addresses.1);
    }
    let notify = Arc::new(Notify::from_env());
    notify.ready("serving");
    let background = node.start_background();
    let watched = Arc::clone(&notify);
    let watchdog = tokio::spawn(async move { watched.keep_watchdog_quiet().await });
    node.until_told_to_end(&mut signals, &notify).await;
    notify.stopping("finishing what runs");
    node.announce_end(&mut signals).await;
    background.stop().await;
    let ended = node.end(&mut signals, &shutdown, serving).await;
    watchdog.abort();
    end_admin.cancel();
    logs::flush();
    if ended == Ended::Complete {
        // Whoever needs the log for longer leaves it where it is.
        let _ = timeout(FOLD_TIME_MAX, node.store.fold_log()).await;
    }
    Ok(ended)
}

/// What to do about an address that cannot be listened on.
fn next_step(source: &std::io::Error, flag: &str) -> String {
    match source.kind() {
        ErrorKind::AddrInUse => format!("stop what uses it, or choose another with {flag}"),
        ErrorKind::PermissionDenied => {
            format!("choose a port from 1024 on with {flag}, or allow this user lower ones (CAP_NET_BIND_SERVICE)")
        }
        ErrorKind::AddrNotAvailable => format!("this machine does not have that address; name one it has with {flag}"),
        _ => format!("choose another address with {flag}"),
    }
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

/// Whether the banner is for anybody: in a container, or under a supervisor, one line of the log says the same.
fn is_read_by_people(config: &Config) -> bool {
    std::io::stdout().is_terminal() || config.log.format == LogFormat::Pretty
}

/// A reader that has gone away is no failure.
fn announce(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_for_which_an_address_cannot_be_had_has_its_own_next_step() {
        let said = |kind: ErrorKind| {
            let address = SocketAddr::from(([127, 0, 0, 1], 80));
            StartError::Listen { address, source: kind.into(), flag: "--from" }.to_string()
        };
        assert!(said(ErrorKind::AddrInUse).ends_with("; stop what uses it, or choose another with --from"));
        assert!(said(ErrorKind::PermissionDenied).contains("; choose a port from 1024 on with --from"));
        assert!(said(ErrorKind::AddrNotAvailable).contains("; this machine does not have that address"));
        assert!(said(ErrorKind::Unsupported).ends_with("; choose another address with --from"));
    }
}
