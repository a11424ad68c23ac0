//! Which client sends a request, as far as the network tells: what limits per client count by.

use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv6Addr};

/// The client's network address; an extension of a request, put there by whoever received it.
///
/// Behind a trusted peer it is the address that the peer names. A request without it comes from a trusted peer that
/// names nobody, or was received by something that knows no addresses: limits per client do not apply to it.
///
/// IPv6 addresses count by their /64 network, which is what one customer of a provider has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Client(IpAddr);

impl Client {
    /// The client at that address.
    #[must_use]
    pub fn new(ip: IpAddr) -> Self {
        Self(match ip.to_canonical() {
            IpAddr::V6(ip) => {
                let [a, b, c, d, ..] = ip.segments();
                IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
            }
            v4 @ IpAddr::V4(_) => v4,
        })
    }
}

/// By one number: it is looked for several times in a request.
impl Hash for Client {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(match self.0 {
            IpAddr::V4(ip) => ip.to_bits().into(),
            // What follows is zero.
            IpAddr::V6(ip) => (ip.to_bits() >> 64) as u64,
        });
    }
}

impl std::fmt::Display for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            IpAddr::V4(ip) => ip.fmt(f),
            IpAddr::V6(ip) => write!(f, "{ip}/64"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(text: &str) -> Client {
        Client::new(text.parse().unwrap())
    }

    #[test]
    fn neighbours_count_as_one_client_by_ipv6_only() {
        assert_eq!(client("2001:db8::1"), client("2001:db8::ffff:2"));
        assert_ne!(client("2001:db8::1"), client("2001:db8:0:1::1"));
        assert_ne!(client("192.0.2.1"), client("192.0.2.2"));
        assert_eq!(client("::ffff:192.0.2.1"), client("192.0.2.1"));
        assert_eq!(client("2001:db8::1").to_string(), "2001:db8::/64");
        assert_eq!(client("192.0.2.1").to_string(), "192.0.2.1");
    }
}
