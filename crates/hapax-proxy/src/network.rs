//! Networks in CIDR notation: `10.0.0.0/8`, `::1`.
//!
//! For the peers whose forwarding headers are believed. Left to others: what is believed.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// A network, or one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Network {
    /// The network's address; bits after the prefix are zero.
    pub address: IpAddr,
    /// How many leading bits are equal in all its addresses.
    pub prefix: u8,
}

/// Why a text is no network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a network")]
pub struct InvalidNetwork;

/// The widest network of IPv4 that one owner has (10.0.0.0/8).
const V4_PREFIX_MIN: u8 = 8;

/// The widest network of IPv6 that is private (fc00::/7).
const V6_PREFIX_MIN: u8 = 7;

impl Network {
    /// True where it is wider than what belongs to anybody: everyone is in it, or a part of everyone.
    #[must_use]
    pub fn has_strangers(&self) -> bool {
        self.prefix < if self.address.is_ipv4() { V4_PREFIX_MIN } else { V6_PREFIX_MIN }
    }

    /// True where the address belongs to the network. An IPv4 address that came in an IPv6 socket counts as IPv4.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.address.is_ipv4() && masked(address, self.prefix) == self.address
    }
}

impl FromStr for Network {
    type Err = InvalidNetwork;

    /// Bits after the prefix must be zero: `10.1.2.3/8` is a mistake for one of two things.
    fn from_str(text: &str) -> Result<Self, InvalidNetwork> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| InvalidNetwork)?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.map_or(Ok(bits), str::parse).map_err(|_| InvalidNetwork)?;
        let sound = prefix <= bits && masked(address, prefix) == address && address.to_canonical() == address;
        if sound { Ok(Self { address, prefix }) } else { Err(InvalidNetwork) }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

fn masked(address: IpAddr, prefix: u8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix.min(32))).unwrap_or(0);
            IpAddr::V4((v4.to_bits() & mask).into())
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefix.min(128))).unwrap_or(0);
            IpAddr::V6((v6.to_bits() & mask).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_contains_its_addresses_and_no_others() {
        for (network, inside, outside) in [
            ("10.0.0.0/8", "10.255.0.1", "11.0.0.0"),
            ("127.0.0.1", "127.0.0.1", "127.0.0.2"),
            ("0.0.0.0/0", "1.2.3.4", "::1"),
            ("fd00::/8", "fd12::1", "fe00::1"),
            ("::/0", "::1", "10.0.0.1"),
            ("10.0.0.0/8", "::ffff:10.0.0.1", "::ffff:11.0.0.1"),
        ] {
            let network: Network = network.parse().unwrap();
            assert!(network.contains(inside.parse().unwrap()), "{network} {inside}");
            assert!(!network.contains(outside.parse().unwrap()), "{network} {outside}");
        }
    }

    #[test]
    fn what_is_no_network_is_refused() {
        for text in
            ["", "10.0.0.0/33", "10.1.2.3/8", "::/129", "10.0.0.0/", "localhost", "10.0.0.0/-1", "::ffff:10.0.0.0/104"]
        {
            assert!(text.parse::<Network>().is_err(), "{text}");
        }
    }
}
