//! The id of a request: the client's own if it has a sane one, or a new one.
//!
//! It is passed on, returned on every response, whoever gave it, and stands in the log, in refusals and in the record. A client
//! may choose what another one chose before, so it names a request for people and decides nothing.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use hapax::http::RequestId;
use http::header::{HeaderMap, HeaderName, HeaderValue};

use crate::framing;

/// Longer ids are replaced: they are read by people, and stand in every line and record of their request.
const ID_CHARS_MAX: usize = 128;

/// Where an upstream's own id is passed on, if it is another one than ours.
pub const UPSTREAM_REQUEST_ID: HeaderName = HeaderName::from_static("x-upstream-request-id");

/// The id of one request, in the forms that it is needed in.
#[derive(Clone, Debug)]
pub(super) struct Named {
    pub(super) id: RequestId,
    pub(super) value: HeaderValue,
}

impl Named {
    /// What the request calls itself in that field, or a new id.
    pub(super) fn of(headers: &HeaderMap, field: &HeaderName) -> Self {
        let mut lines = headers.get_all(field).iter();
        match (lines.next(), lines.next()) {
            (Some(value), None) => Self::read(value).unwrap_or_else(Self::new),
            _ => Self::new(),
        }
    }

    fn read(value: &HeaderValue) -> Option<Self> {
        let text = value.to_str().ok().filter(|text| is_sane(text))?;
        Some(Self { id: RequestId(Arc::from(text)), value: value.clone() })
    }

    fn new() -> Self {
        let text = next();
        // Hexadecimal digits are a value.
        let value = HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static("0"));
        Self { id: RequestId(text), value }
    }
}

/// A new id: 16 hexadecimal digits, unlike any other of this process and, but for bad luck, of any other.
#[must_use]
pub fn next() -> Arc<str> {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    static COUNTED: AtomicU64 = AtomicU64::new(0);
    static SEED: OnceLock<u64> = OnceLock::new();
    let bytes = mixed(*SEED.get_or_init(random_seed), COUNTED.fetch_add(1, Ordering::Relaxed)).to_be_bytes();
    // By hand: it is written for every request.
    let mut digits = [0; 16];
    for (pair, byte) in digits.chunks_exact_mut(2).zip(bytes) {
        pair.copy_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
    Arc::from(str::from_utf8(&digits).unwrap_or_default())
}

/// The finaliser of SplitMix64: one to one, so a counter that does not repeat makes ids that do not.
fn mixed(seed: u64, count: u64) -> u64 {
    let mut bits = seed.wrapping_add(count.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[expect(clippy::disallowed_methods, reason = "names requests for people; nothing is decided by it or stored")]
fn random_seed() -> u64 {
    // Without a random source ids are still unique in this process.
    getrandom::u64().unwrap_or_else(|_| u64::from(std::process::id()))
}

/// What a head that must not pass calls its request in that field, if it has a sane id.
pub(super) fn of_refused<'h>(head: &'h [u8], field: &HeaderName) -> Option<&'h str> {
    let value = framing::value_in_refused(head, field.as_str())?;
    std::str::from_utf8(value).ok().filter(|text| is_sane(text))
}

/// Visible ASCII without quotes and backslashes, so that it stands unchanged in every log and document.
fn is_sane(text: &str) -> bool {
    let is_fit = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\');
    (1..=ID_CHARS_MAX).contains(&text.len()) && text.bytes().all(is_fit)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELD: HeaderName = HeaderName::from_static("x-request-id");

    fn named(lines: &[&[u8]]) -> String {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(FIELD, HeaderValue::from_bytes(line).unwrap());
        }
        let named = Named::of(&headers, &FIELD);
        assert_eq!(named.value.as_bytes(), named.id.0.as_bytes());
        named.id.0.to_string()
    }

    #[test]
    fn a_sane_id_is_kept_and_any_other_is_replaced() {
        let longest = [b'a'; ID_CHARS_MAX];
        for kept in [&b"mine-1"[..], b"Root=1-67891233-abcdef", b"a/b+c==", &longest] {
            assert_eq!(named(&[kept]).as_bytes(), kept);
        }
        let too_long = [b'a'; ID_CHARS_MAX + 1];
        for odd in [&b""[..], b"a b", b"a\"b", b"a\\b", b"\xffid", b"a\tb", &too_long] {
            let id = named(&[odd]);
            assert!(id.len() == 16 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{odd:?}: {id}");
        }
        assert_ne!(named(&[b"a", b"a"]), "a", "said twice");
        assert_ne!(named(&[]), named(&[]));
    }
}
