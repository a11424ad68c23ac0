//! Which hosts are this machine, however they are spelled.
//!
//! Resolvers take `127.1`, `0x7f000001` and `localhost.` for loopback, so hapax does too. Nothing here asks a name server: a
//! name is known if it is the machine's own. Left to others: what follows from it.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};

/// The address that a host is, in any spelling that resolvers accept; `None` for a name.
pub(super) fn address(host: &str) -> Option<IpAddr> {
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let address = match bare {
        Some(bare) => bare.parse().ok(),
        None => host.parse().ok().or_else(|| by_numbers(host).map(IpAddr::V4)),
    };
    address.map(|address: IpAddr| address.to_canonical())
}

/// One to four numbers, decimal, octal (`0177`) or hexadecimal (`0x7f`), of which the last one fills what is left: the forms of
/// `inet_aton`.
fn by_numbers(host: &str) -> Option<Ipv4Addr> {
    let numbers: Vec<u32> = host.split('.').map(number).collect::<Option<_>>()?;
    let (last, others) = numbers.split_last()?;
    if others.len() > 3 || others.iter().any(|number| *number > 255) {
        return None;
    }
    let bits_left = 32 - 8 * others.len() as u32;
    if bits_left < 32 && *last >= 1 << bits_left {
        return None;
    }
    let high = others.iter().fold(0, |bits: u32, number| (bits << 8) | number);
    Some(Ipv4Addr::from_bits(high.checked_shl(bits_left).unwrap_or(0) | last))
}

fn number(text: &str) -> Option<u32> {
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None if text.len() > 1 && text.starts_with('0') => (&text[1..], 8),
        None => (text, 10),
    };
    let is_number = !digits.is_empty() && digits.chars().all(|digit| digit.is_digit(radix));
    is_number.then(|| u32::from_str_radix(digits, radix).ok()).flatten()
}

/// True for a host that is certainly this machine, and is not reached over a network.
pub(super) fn is_loopback(host: &str) -> bool {
    is_localhost(host) || address(host).is_some_and(|address| address.is_loopback())
}

/// Names below it are left out: not every resolver keeps them to this machine.
pub(super) fn is_localhost(host: &str) -> bool {
    host.strip_suffix('.').unwrap_or(host).eq_ignore_ascii_case("localhost")
}

/// True where the machine has this address. What cannot be listened on is somebody else's.
pub(super) fn is_own_address(address: IpAddr) -> bool {
    address.is_loopback() || UdpSocket::bind((address, 0)).is_ok()
}

/// True for the name that the machine has given itself.
pub(super) fn is_own_name(host: &str) -> bool {
    let own = rustix::system::uname();
    let own = own.nodename().to_string_lossy();
    !own.is_empty() && host.strip_suffix('.').unwrap_or(host).eq_ignore_ascii_case(&own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_known_in_every_spelling() {
        for spelling in
            ["127.0.0.1", "127.1", "127.0.1", "2130706433", "0x7f000001", "0x7F.1", "0177.0.0.01", "[::ffff:127.0.0.1]"]
        {
            assert_eq!(address(spelling), Some(Ipv4Addr::LOCALHOST.into()), "{spelling}");
        }
        assert_eq!(address("[::1]"), Some("::1".parse().unwrap()));
        assert_eq!(address("0"), Some(Ipv4Addr::UNSPECIFIED.into()));
        assert_eq!(address("1.2.3"), Some(Ipv4Addr::new(1, 2, 0, 3).into()));
        for name in [
            "",
            ".",
            "localhost",
            "127.16777216",
            "1.2.3.4.5",
            "256.1.1.1",
            "08",
            "0x",
            "4294967296",
            "1.2.65536",
            "a.1",
            "127.1.",
        ] {
            assert_eq!(address(name), None, "{name}");
        }
    }

    #[test]
    fn this_machine_is_known_by_its_names() {
        for host in ["localhost", "LocalHost.", "127.1", "[::1]", "::1"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["localhost.example", "api.localhost", "127.1.", "10.0.0.1", "128.1"] {
            assert!(!is_loopback(host), "{host}");
        }
        let own = rustix::system::uname().nodename().to_string_lossy().into_owned();
        assert!(is_own_name(&own) && is_own_name(&format!("{}.", own.to_uppercase())));
        assert!(!is_own_name(&format!("not-{own}")) && !is_own_name(""));
        assert!(is_own_address(Ipv4Addr::LOCALHOST.into()));
        assert!(!is_own_address(Ipv4Addr::new(192, 0, 2, 1).into()), "a network for documentation");
    }
}
