//! Does this look like a JSON Web Token, and what does its header say? Nothing here is believed.
//!
//! The kind `credential` refuses what looks like one, because such tokens are renewed and a retry then carries another
//! value. The kind `jwt` learns here which key to look for; it believes a token only after its signature fits.

use serde::Deserialize;

/// Longer tokens are refused unread: an honest one has a few hundred bytes to a few kilobytes.
pub(super) const TOKEN_BYTES_MAX: usize = 16 * 1024;

/// What the header of a token claims.
#[derive(Debug, Deserialize)]
pub(super) struct Claimed {
    pub(super) alg: serde_json::Value,
    pub(super) kid: Option<serde_json::Value>,
    pub(super) crit: Option<serde_json::Value>,
}

/// The header, if the text has the shape of a signed token (three parts) or of an encrypted one (five).
pub(super) fn claimed(token: &[u8]) -> Option<Claimed> {
    if token.len() > TOKEN_BYTES_MAX {
        return None;
    }
    let parts: Vec<&[u8]> = token.split(|byte| *byte == b'.').collect();
    let shaped = matches!(parts.len(), 3 | 5) && parts.iter().all(|part| part.iter().all(|byte| is_base64url(*byte)));
    let header = if shaped { decoded(parts.first()?)? } else { return None };
    serde_json::from_slice(&header).ok()
}

/// Whether a token stands in it, alone or beside other words: `Bearer <token>`, `user:<token>`.
pub(super) fn holds_token(text: &[u8]) -> bool {
    text.split(|byte| *byte != b'.' && !is_base64url(*byte)).any(|word| claimed(word).is_some())
}

/// What Basic credentials say, in whichever alphabet: `user:password`.
pub(super) fn basic_decoded(credentials: &[u8]) -> Option<Vec<u8>> {
    let in_url_alphabet = |byte: &u8| match byte {
        b'+' => b'-',
        b'/' => b'_',
        other => *other,
    };
    decoded(&credentials.iter().map(in_url_alphabet).collect::<Vec<u8>>())
}

/// Whether it has the three parts of a signed token.
pub(super) fn is_signed(token: &[u8]) -> bool {
    token.iter().filter(|byte| **byte == b'.').count() == 2
}

fn is_base64url(byte: u8) -> bool {
    byte == b'=' || sextet(byte).is_some()
}

/// Decodes base64url, with or without padding at the end.
pub(super) fn decoded(text: &[u8]) -> Option<Vec<u8>> {
    let end = text.iter().rposition(|byte| *byte != b'=').map_or(0, |last| last + 1);
    let mut bytes = Vec::with_capacity(end * 3 / 4);
    let (mut bits, mut held) = (0_u32, 0_u32);
    for byte in &text[..end] {
        bits = (bits << 6 | sextet(*byte)?) & 0xffff;
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push(u8::try_from(bits >> held & 0xff).ok()?);
        }
    }
    Some(bytes)
}

fn sextet(byte: u8) -> Option<u32> {
    match byte {
        b'A'..=b'Z' => Some(u32::from(byte - b'A')),
        b'a'..=b'z' => Some(u32::from(byte - b'a') + 26),
        b'0'..=b'9' => Some(u32::from(byte - b'0') + 52),
        b'-' => Some(62),
        b'_' => Some(63),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64url_is_decoded_with_and_without_padding() {
        let text =
            |encoded: &str| decoded(encoded.as_bytes()).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        assert_eq!(text("").unwrap(), "");
        assert_eq!(text("Zg").unwrap(), "f");
        assert_eq!(text("Zm8=").unwrap(), "fo");
        assert_eq!(text("Zm9vYmFy").unwrap(), "foobar");
        assert_eq!(decoded(b"-_-_").unwrap(), [0xfb, 0xff, 0xbf]);
        assert_eq!(decoded(b"Zm+v"), None);
        assert_eq!(decoded(b"Z=m8"), None);
    }

    #[test]
    fn only_a_json_object_with_an_algorithm_in_front_of_two_or_four_parts_is_a_token() {
        // {"alg":"none"}, {"typ":"JWT"}, [1]
        let (with, without, list) = ("eyJhbGciOiJub25lIn0", "eyJ0eXAiOiJKV1QifQ", "WzFd");
        let is = |token: String| claimed(token.as_bytes()).is_some();
        assert!(is(format!("{with}.e30.")) && is(format!("{with}.e30.c2ln")) && is(format!("{with}=.e30=.c2ln")));
        assert!(is(format!("{with}.a.b.c.d")), "encrypted");
        assert!(!is(format!("{with}.e30")) && !is(format!("{with}.a.b.c")));
        assert!(!is(format!("{without}.e30.c2ln")) && !is(format!("{list}.e30.c2ln")));
        assert!(!is(format!("{with}.e+0.c2ln")) && !is("sk_live_4eC39HqLyjWDarjtT1zdp7dc".into()));
        assert!(!is("v1.abc.def".into()));
    }

    #[test]
    fn a_token_is_found_beside_other_words() {
        let token = "eyJhbGciOiJub25lIn0.e30.c2ln";
        for text in ["", "Bearer ", "bearer\t", "Token  ", "user:", "\"", "a, "] {
            assert!(holds_token(format!("{text}{token}").as_bytes()), "{text}");
        }
        assert!(holds_token(format!("{token}:x").as_bytes()));
        assert!(!holds_token(format!("Bearer {token}.more").as_bytes()), "four parts");
        assert!(!holds_token(b"Bearer sk_live_4eC39HqLyjWDarjtT1zdp7dc") && !holds_token(b""));
    }

    #[test]
    fn basic_credentials_are_decoded_in_both_alphabets() {
        for text in ["dTp+fn8/", "dTp-fn8_", "dTp-fn8_=="] {
            assert_eq!(basic_decoded(text.as_bytes()).unwrap(), b"u:~~\x7f?", "{text}");
        }
        assert_eq!(basic_decoded(b"d*p"), None);
    }
}
