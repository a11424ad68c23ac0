//! Rust source with comments and literals blanked out.
//!
//! The rules count braces and look for attributes; a brace in a string or a comment must not count. Every other byte stays
//! where it was, so offsets and lines are those of the source.

/// The source with spaces for everything inside comments, strings and character literals. Line ends stay.
pub(super) fn masked(source: &str) -> String {
    let bytes = source.as_bytes();
    let mut code = Vec::with_capacity(bytes.len());
    while code.len() < bytes.len() {
        let at = code.len();
        match opaque(bytes, at) {
            0 => code.push(bytes[at]),
            length => code.extend(bytes[at..at + length].iter().map(|byte| if *byte == b'\n' { b'\n' } else { b' ' })),
        }
    }
    // Whole literals and comments were replaced, so what is left is cut at character boundaries.
    String::from_utf8_lossy(&code).into_owned()
}

/// How long the comment or literal is that begins here; 0 where there is none.
fn opaque(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    match rest {
        [b'/', b'/', ..] => rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len()),
        [b'/', b'*', ..] => block_comment(rest),
        [b'"', ..] => quoted(rest, b'"'),
        [b'\'', ..] => character(rest),
        [b'r', ..] if !continues_name(bytes, at) => raw_string(rest),
        _ => 0,
    }
}

/// Block comments nest.
fn block_comment(rest: &[u8]) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < rest.len() {
        match &rest[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

/// A literal in quotes, in which a backslash takes away the meaning of the next byte.
fn quoted(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// A character literal: `'x'` or `'\…'`. Anything else that begins with `'` is a lifetime.
fn character(rest: &[u8]) -> usize {
    match rest {
        [_, b'\\', ..] => quoted(rest, b'\''),
        [_, first, ..] => {
            let close = 1 + width(*first);
            if rest.get(close) == Some(&b'\'') { close + 1 } else { 0 }
        }
        _ => 0,
    }
}

/// Bytes of the UTF-8 character that begins with this one.
fn width(first: u8) -> usize {
    match first.leading_ones() {
        0 => 1,
        ones => ones as usize,
    }
}

/// `r"…"`, `r#"…"#` and so on; 0 for a raw identifier such as `r#type`.
fn raw_string(rest: &[u8]) -> usize {
    let hashes = rest[1..].iter().take_while(|byte| **byte == b'#').count();
    if rest.get(1 + hashes) != Some(&b'"') {
        return 0;
    }
    let mut end = vec![b'"'];
    end.resize(1 + hashes, b'#');
    let body = &rest[2 + hashes..];
    let length = body.windows(end.len()).position(|window| window == end);
    length.map_or(rest.len(), |length| 2 + hashes + length + end.len())
}

/// True where the byte belongs to a name that began earlier: `for"x"` is no raw string, `br"x"` is one.
fn continues_name(bytes: &[u8], at: usize) -> bool {
    let is_name = |at: usize| bytes[at].is_ascii_alphanumeric() || bytes[at] == b'_';
    match at {
        0 => false,
        1 => is_name(0) && !is_prefix(bytes[0]),
        _ => is_name(at - 1) && (!is_prefix(bytes[at - 1]) || is_name(at - 2)),
    }
}

fn is_prefix(byte: u8) -> bool {
    byte == b'b' || byte == b'c'
}
