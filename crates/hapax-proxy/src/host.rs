//! What a host looks like where a request names one: `uri-host [ ":" port ]` (RFC 9110, 7.2; RFC 3986, 3.2).
//!
//! Whoever reads a malformed one guesses, and the next in the chain guesses otherwise. A comma is not let through
//! either: RFC 3986 allows it in names, but no name has one, and many take it for the end of the first of two hosts.

use std::net::Ipv6Addr;

/// Whether these bytes are a host name or an address, with or without a port.
pub fn is_host(host: &[u8]) -> bool {
    if let Some(bracketed) = host.strip_prefix(b"[") {
        let Some(end) = bracketed.iter().position(|byte| *byte == b']') else { return false };
        return is_ipv6(&bracketed[..end]) && is_port(&bracketed[end + 1..]);
    }
    let end = host.iter().position(|byte| *byte == b':').unwrap_or(host.len());
    is_name(&host[..end]) && is_port(&host[end..])
}

fn is_ipv6(text: &[u8]) -> bool {
    str::from_utf8(text).is_ok_and(|text| text.parse::<Ipv6Addr>().is_ok())
}

/// Nothing, or a colon and a number that a port can have.
fn is_port(text: &[u8]) -> bool {
    match text {
        [] | [b':'] => true,
        [b':', digits @ ..] => {
            digits.iter().all(u8::is_ascii_digit)
                && str::from_utf8(digits).is_ok_and(|digits| digits.parse::<u16>().is_ok())
        }
        _ => false,
    }
}

/// A name, or an IPv4 address, which looks like one.
fn is_name(name: &[u8]) -> bool {
    let plain = name.iter().all(|byte| is_name_byte(*byte));
    plain && !name.is_empty() && name.split(|byte| *byte == b'%').skip(1).all(begins_with_two_hex_digits)
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'-' | b'.' | b'_' | b'~' | b'%' | b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b';' | b'='
        )
}

fn begins_with_two_hex_digits(text: &[u8]) -> bool {
    text.len() >= 2 && text[..2].iter().all(u8::is_ascii_hexdigit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_addresses_are_hosts_with_or_without_a_port() {
        let good = "a|shop.example|shop.example.:443|my_service:8080|10.0.0.1:80|[::1]|[2001:db8::1]:8443|a:|a%20b";
        for host in good.split('|') {
            assert!(is_host(host.as_bytes()), "{host}");
        }
    }

    #[test]
    fn nothing_else_is() {
        let bad = "|:80|a b|a/b|a,b|a, b|[::1|::1|[]|[a]|[::1]a|[::1%25eth0]|a:b|a:80:80|a:+80|a:65536|user@a|a?b";
        let bad = bad.split('|').chain(["a#b", "a\\b", "a\"b", "a%", "a%2", "a%zz", "<a>", "a\t", "b\u{fc}cher"]);
        for host in bad {
            assert!(!is_host(host.as_bytes()), "{host}");
        }
    }
}
