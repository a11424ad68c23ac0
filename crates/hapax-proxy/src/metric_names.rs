//! The names of the metrics that are counted here. What they mean stands beside those of the others, in the server.

/// Requests that were refused, by problem code.
pub const REFUSED: &str = "hapax_refused_total";
/// Connections that were closed for others.
pub const CONNECTIONS_CLOSED: &str = "hapax_connections_closed_total";
