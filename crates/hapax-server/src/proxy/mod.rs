//! Sockets, TLS and HTTP on both sides of the proxy, without any idempotency.
//!
//! | module | what it does |
//! |---|---|
//! | [`listen`] | accepts connections, keeps their limits, hands requests to a service |
//! | `framing` | reads HTTP/1 heads and chunks strictly, before hyper sees them |
//! | [`headers`] | what is passed on, what is removed, what is added |
//! | `forwarding` | who sends a request |
//! | `pace` | a least rate for what a peer sends or takes |
//! | `host` | what a host looks like |
//! | [`upstream`] | sends a request once, and says what a failure means |
//! | [`body`] | one body type for both directions |
//! | [`tls`] | certificates and trust, from files |
//! | [`problem`] | refusals as `application/problem+json` |
//! | `request_id` | what a request is called |
//! | `fuzzing` | what fuzz targets drive (feature `fuzzing`) |
//!
//! A request passes `listen` → (the layer) → `upstream`. By the time the service gets it, its `Host` is checked, its
//! target is in origin form, fields of one connection are gone and forwarding fields are set, so that whatever the service
//! adds cannot be removed by the client.

pub mod body;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod headers;
pub mod listen;
pub mod problem;
pub mod tls;
pub mod upstream;

pub(crate) mod host;

mod forwarding;
mod framing;
mod pace;
pub(crate) mod request_id;

use std::net::SocketAddr;

pub use body::{Body, BodyError};
pub use listen::{ListenOptions, Shutdown, serve};
pub use upstream::{Upstream, UpstreamOptions};

/// Who is at the other end of the connection; an extension of every request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// The address the connection came from.
    pub addr: SocketAddr,
    /// Whether the connection is encrypted.
    pub tls: bool,
}

/// What a failed exchange with the upstream means; an extension of the response that tells the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// No byte of the request was sent, or the upstream said that it did not look at it.
    NothingSent {
        /// The cause, in a few words.
        why: &'static str,
    },
    /// The upstream may have acted on the request.
    Doubt {
        /// The cause, in a few words.
        why: &'static str,
    },
}
