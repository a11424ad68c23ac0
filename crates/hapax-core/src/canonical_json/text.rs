//! The characters of JSON strings: how each is spelled, and how names are ordered.
//!
//! Why: RFC 8785 escapes as little as JSON allows, and orders names as ECMAScript does, by UTF-16.
//!
//! Left to others: finding strings in a document.

use super::NotCanonical;
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

/// Reads the escape whose backslash is at `at`: the character, and where the escape ends.
pub(super) fn escape(json: &[u8], at: usize) -> Result<(char, usize), NotCanonical> {
    let character = match json.get(at + 1) {
        Some(byte @ (b'"' | b'\\' | b'/')) => char::from(*byte),
        Some(b'b') => '\u{8}',
        Some(b't') => '\t',
        Some(b'n') => '\n',
        Some(b'f') => '\u{c}',
        Some(b'r') => '\r',
        Some(b'u') => return unicode_escape(json, at),
        _ => return Err(NotCanonical::Syntax { at: at + 1 }),
    };
    Ok((character, at + 2))
}

/// Reads a `\u` escape that begins `at`, and its partner where it needs one.
fn unicode_escape(json: &[u8], at: usize) -> Result<(char, usize), NotCanonical> {
    let mut units = [code_unit(json, at + 2)?, 0];
    let (mut count, mut end) = (1, at + 6);
    if (0xd800..0xdc00).contains(&units[0]) && json[end..].starts_with(b"\\u") {
        units[1] = code_unit(json, end + 2)?;
        (count, end) = (2, end + 6);
    }
    match char::decode_utf16(units[..count].iter().copied()).next() {
        Some(Ok(character)) => Ok((character, end)),
        _ => Err(NotCanonical::Surrogate { at }),
    }
}

fn code_unit(json: &[u8], at: usize) -> Result<u16, NotCanonical> {
    let mut unit = 0;
    for at in at..at + 4 {
        let digit = json.get(at).and_then(|byte| char::from(*byte).to_digit(16));
        unit = unit * 16 + digit.ok_or(NotCanonical::Syntax { at })? as u16;
    }
    Ok(unit)
}
