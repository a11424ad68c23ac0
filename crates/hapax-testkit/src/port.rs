//! Free loopback ports.
//!
//! They lie below the range from which Linux takes ports for outgoing connections, so that a server that is stopped and
//! started again finds its port free.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use crate::tokens;

/// Above the ports of well-known services.
const LOWEST: u16 = 15_000;
/// Below the default start of `ip_local_port_range`, 32768.
const HIGHEST: u16 = 32_000;
/// More attempts than a machine with a sensible number of listeners needs.
const ATTEMPTS_MAX: usize = 100;

/// A port that was free a moment ago. Somebody may take it before the caller does: be ready to ask again.
pub fn free() -> u16 {
    listener().local_addr().expect("a listener has an address").port()
}

/// A listener on a free port.
pub fn listener() -> TcpListener {
    (0..ATTEMPTS_MAX)
        .find_map(|_| TcpListener::bind(loopback(candidate())).ok())
        .expect("some port on the loopback interface is free")
}

/// `127.0.0.1` with this port.
pub fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

fn candidate() -> u16 {
    let [high, low, ..] = tokens::random();
    LOWEST + u16::from_be_bytes([high, low]) % (HIGHEST - LOWEST)
}
