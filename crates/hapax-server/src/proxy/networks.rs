//! Networks in CIDR notation: whose word about other peers is believed.

use std::net::IpAddr;
use std::str::FromStr;

/// A set of networks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Networks {
    networks: Vec<Network>,
}

impl Networks {
    /// Whether an address lies in one of them.
    pub fn contain(&self, addr: IpAddr) -> bool {
        let addr = addr.to_canonical();
        self.networks.iter().any(|network| network.contains(addr))
    }
}

impl FromIterator<Network> for Networks {
    fn from_iter<I: IntoIterator<Item = Network>>(networks: I) -> Self {
        Self { networks: networks.into_iter().collect() }
    }
}

/// One network, as in `10.0.0.0/8`, `fd00::/8` or `192.0.2.7`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    base: IpAddr,
    /// How many leading bits count.
    prefix: u8,
}

/// The text is no network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a network: write it like 10.0.0.0/8, fd00::/8 or 192.0.2.7")]
pub struct NotANetwork;

impl Network {
    fn contains(&self, addr: IpAddr) -> bool {
        match (self.base, addr) {
            (IpAddr::V4(base), IpAddr::V4(addr)) => {
                let shift = 32 - u32::from(self.prefix);
                (u64::from(base.to_bits()) >> shift) == (u64::from(addr.to_bits()) >> shift)
            }
            (IpAddr::V6(base), IpAddr::V6(addr)) => {
                let differing = base.to_bits() ^ addr.to_bits();
                differing.leading_zeros() >= u32::from(self.prefix)
            }
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = NotANetwork;

    fn from_str(text: &str) -> Result<Self, NotANetwork> {
        let (base, prefix) = match text.split_once('/') {
            Some((base, prefix)) => (base, Some(prefix)),
            None => (text, None),
        };
        let base: IpAddr = base.parse().map_err(|_| NotANetwork)?;
        let bits = if base.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.map_or(Ok(bits), |prefix| prefix.parse().map_err(|_| NotANetwork))?;
        if prefix > bits { Err(NotANetwork) } else { Ok(Network { base, prefix }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn networks(texts: &[&str]) -> Networks {
        texts.iter().map(|text| text.parse::<Network>().unwrap()).collect()
    }

    #[test]
    fn an_address_is_in_a_network_when_its_leading_bits_agree() {
        let networks = networks(&["10.1.0.0/16", "192.0.2.7", "fd00::/8"]);
        for inside in ["10.1.0.0", "10.1.255.255", "192.0.2.7", "fdff::1", "::ffff:10.1.2.3"] {
            assert!(networks.contain(inside.parse().unwrap()), "{inside}");
        }
        for outside in ["10.2.0.0", "192.0.2.6", "fe00::1", "::1", "127.0.0.1"] {
            assert!(!networks.contain(outside.parse().unwrap()), "{outside}");
        }
    }

    #[test]
    fn a_prefix_of_zero_means_every_address_of_its_family() {
        assert!(networks(&["0.0.0.0/0"]).contain("203.0.113.9".parse().unwrap()));
        assert!(networks(&["::/0"]).contain("2001:db8::1".parse().unwrap()));
        assert!(!networks(&["::/0"]).contain("203.0.113.9".parse().unwrap()));
    }

    #[test]
    fn what_is_no_network_is_refused() {
        for text in ["", "10.0.0.0/33", "10.0.0/8", "::/129", "10.0.0.0/-1", "example", "10.0.0.0/"] {
            assert_eq!(text.parse::<Network>(), Err(NotANetwork), "{text}");
        }
    }
}
