//! The characters of JSON strings: how each is spelled, and how names are ordered.
//!
//! Why: RFC 8785 escapes as little as JSON allows, and orders names as ECMAScript does, by UTF-16.
//!
//! Left to others: finding strings in a document, and reading escapes.

use std::cmp::Ordering;

/// Whether a byte within a string stands for itself in any spelling that JSON allows.
pub(super) fn is_plain(byte: u8) -> bool {
    byte >= 0x20 && byte != b'"' && byte != b'\\'
}

/// Compares UTF-8 texts by their UTF-16 code units.
///
/// UTF-8 bytes sort by code point. UTF-16 differs only in that it writes characters above U+FFFF
/// with surrogates, which sort before U+E000. In UTF-8 the former begin with 0xF0 or more, the
/// characters from U+E000 to U+FFFF with 0xEE or 0xEF.
pub(super) fn utf16_order(a: &[u8], b: &[u8]) -> Ordering {
    let first_difference = a.iter().zip(b).find(|(a, b)| a != b);
    match first_difference {
        None => a.len().cmp(&b.len()),
        Some((a, b)) if *a >= 0xee && *b >= 0xee && (*a >= 0xf0) != (*b >= 0xf0) => b.cmp(a),
        Some((a, b)) => a.cmp(b),
    }
}

/// Writes a character of a string as RFC 8785 spells it.
pub(super) fn write_character(character: char, out: &mut Vec<u8>) {
    match character {
        '"' => out.extend_from_slice(b"\\\""),
        '\\' => out.extend_from_slice(b"\\\\"),
        '\u{8}' => out.extend_from_slice(b"\\b"),
        '\t' => out.extend_from_slice(b"\\t"),
        '\n' => out.extend_from_slice(b"\\n"),
        '\u{c}' => out.extend_from_slice(b"\\f"),
        '\r' => out.extend_from_slice(b"\\r"),
        '\0'..'\u{20}' => out.extend_from_slice(format!("\\u{:04x}", u32::from(character)).as_bytes()),
        _ => push_utf8(character, out),
    }
}

/// Writes a character as it is.
pub(super) fn push_utf8(character: char, out: &mut Vec<u8>) {
    out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
}
