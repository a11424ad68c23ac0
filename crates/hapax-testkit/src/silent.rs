//! Addresses that do not answer: a host that is gone, and one that is frozen.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use crate::port;

/// Loopback connections stand long before this, even on a busy machine.
const STANDS_AFTER: Duration = Duration::from_millis(300);
/// More connections than a queue of one place can hold.
const FILL_MAX: usize = 16;

/// An address whose SYNs are not answered, as those of a host that has lost its power: its queue of connections is full,
/// and nobody accepts.
#[derive(Debug)]
pub struct Gone {
    address: SocketAddr,
    #[expect(dead_code, reason = "held for their drop: they fill the queue")]
    holds: (Socket, Vec<TcpStream>),
}

impl Gone {
    /// Takes a port and fills its queue.
    ///
    /// # Panics
    /// When this system answers SYNs that do not fit the queue.
    pub fn begin() -> Gone {
        let address = port::loopback(port::free());
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket can be had");
        socket.bind(&address.into()).expect("the port is free");
        socket.listen(0).expect("the socket can listen");
        let mut filling = Vec::new();
        for _ in 0..FILL_MAX {
            match TcpStream::connect_timeout(&address, STANDS_AFTER) {
                Ok(stream) => filling.push(stream),
                Err(_) => return Gone { address, holds: (socket, filling) },
            }
        }
        panic!("{address} answers although its queue is full");
    }

    /// Where nobody answers.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// An address that takes connections and never says a word, as a process that was stopped.
#[derive(Debug)]
pub struct Mute {
    listener: TcpListener,
}

impl Mute {
    /// Takes a port.
    pub fn begin() -> Mute {
        Mute { listener: port::listener() }
    }

    /// Where nothing is said.
    pub fn address(&self) -> SocketAddr {
        self.listener.local_addr().expect("a listener has an address")
    }
}
