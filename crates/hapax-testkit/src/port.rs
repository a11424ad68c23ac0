//! Free loopback ports.
//!
//! They lie below the range from which Linux takes ports for outgoing connections, so that a server that is stopped and
//! started again finds its port free.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener};
use std::sync::{Mutex, PoisonError};

use crate::tokens;

/// Above the ports of well-known services.
const LOWEST: u16 = 15_000;
/// Below the default start of `ip_local_port_range`, 32768.
const HIGHEST: u16 = 32_000;
/// More attempts than a machine with a sensible number of listeners needs.
const ATTEMPTS_MAX: usize = 100;
/// Then all of them may be given out again: those who had them first are long gone.
const GIVEN_MAX: usize = 400;

/// Ports that [`free`] has given out in this process. Each is held by a socket of that name, which every process sees and
/// which ends with ours.
static GIVEN: Mutex<BTreeMap<u16, UnixListener>> = Mutex::new(BTreeMap::new());

/// A port that was free a moment ago, and that no other test has been given. A stranger may take it before the caller does:
/// be ready to ask again.
pub fn free() -> u16 {
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    if given.len() >= GIVEN_MAX {
        given.clear();
    }
    let port = || listener().local_addr().expect("a listener has an address").port();
    let (port, hold) = (0..ATTEMPTS_MAX)
        .map(|_| port())
        .find_map(|port| Some((port, hold(port)?)))
        .expect("some port on the loopback interface was not given out yet");
    given.insert(port, hold);
    port
}

/// `None` where another test has the port, or this one has had it before.
fn hold(port: u16) -> Option<UnixListener> {
    let name = UnixAddr::from_abstract_name(format!("hapax-testkit/port/{port}")).expect("the name is short");
    UnixListener::bind_addr(&name).ok()
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
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_port_is_given_twice() {
        let ports: Vec<u16> = (0..GIVEN_MAX / 2).map(|_| free()).collect();
        assert_eq!(ports.iter().collect::<BTreeSet<_>>().len(), ports.len());
        assert!(hold(ports[0]).is_none(), "nor to anyone else on this machine");
    }
}
