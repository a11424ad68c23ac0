//! Free loopback ports.
//!
//! They lie below the range from which Linux takes ports for outgoing connections, so that a server that is stopped and
//! started again finds its port free.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Mutex, PoisonError};

use crate::tokens;

/// Above the ports of well-known services.
const LOWEST: u16 = 15_000;
/// Below the default start of `ip_local_port_range`, 32768.
const HIGHEST: u16 = 32_000;
/// More attempts than a machine with a sensible number of listeners needs.
const ATTEMPTS_MAX: usize = 100;
/// Then all of them may be given out again: those who had them first are long gone.
const GIVEN_MAX: usize = 5_000;

/// Ports that [`free`] has given out in this process.
static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// A port that was free a moment ago, and was not given to anybody else of this process. Another process may take it before
/// the caller does: be ready to ask again.
pub fn free() -> u16 {
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    if given.len() > GIVEN_MAX {
        given.clear();
    }
    let port = || listener().local_addr().expect("a listener has an address").port();
    let port = (0..ATTEMPTS_MAX).map(|_| port()).find(|port| given.insert(*port));
    port.expect("some port on the loopback interface was not given out yet")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_port_is_given_twice() {
        let ports: Vec<u16> = (0..500).map(|_| free()).collect();
        assert_eq!(ports.iter().collect::<BTreeSet<_>>().len(), ports.len());
    }
}
