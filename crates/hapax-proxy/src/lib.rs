//! Sockets, TLS and HTTP on both sides of the proxy, without any idempotency.
//!
//! | module | what it does |
//! |---|---|
//! | [`listen`] | accepts connections, keeps their limits, hands requests to a service |
//! | `framing` | reads HTTP/1 heads and chunks strictly, before hyper sees them |
//! | [`header_map`] | removes header fields and keeps the order of the rest |
//! | [`headers`] | what is passed on, what is removed, what is added |
//! | `forwarding` | who sends a request |
//! | `pace` | a least rate for what a peer sends or takes |
//! | [`host`] | what a host looks like |
//! | [`upstream`] | sends a request once, and says what a failure means |
//! | [`body`] | one body type for both directions |
//! | [`tls`] | certificates and trust, from files |
//! | [`problem`] | refusals as `application/problem+json` |
//! | [`request_id`] | what a request is called |
//! | [`places`] | places for connections, and who goes when there are none left |
//! | [`descriptors`] | file descriptors: how many there are, and for whom |
//! | [`network`] | networks in CIDR notation: whose word is believed |
//! | [`metric_names`] | the names of the metrics that are counted here |
//! | `fuzzing` | what fuzz targets drive (feature `fuzzing`) |
//!
//! A request passes `listen` → (the layer) → `upstream`. By the time the service gets it, its `Host` is checked, its
//! target is in origin form, fields of one connection are gone and forwarding fields are set, so that whatever the service
//! adds cannot be removed by the client.

pub mod body;
pub mod descriptors;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod header_map;
pub mod headers;
pub mod host;
pub mod listen;
pub mod metric_names;
pub mod network;
pub mod places;
pub mod problem;
pub mod request_id;
pub mod tls;
pub mod upstream;

mod forwarding;
mod framing;
mod pace;

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
