//! The `Idempotency-Key` field: which key a request carries.
//!
//! The field is a structured string (RFC 9651), and no SDK in the field sends one: they send the bare key. So `"k"` and
//! `k` are the same key, unless the route is strict. Keys are opaque; what is not printable ASCII, or could be two lines
//! that somebody joined, is refused before anything is looked up.

use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};
use sfv::{BareItem, Item, List, Parser};

use hapax_core::address::Key;
use hapax_core::limits::KEY_CHARS_MAX;

use crate::clock;

/// The usual name of the field.
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// How the field may be written. In the order of strictness.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeySyntax {
    /// A bare key counts as the quoted one.
    #[default]
    Lenient,
    /// Only a structured string.
    Strict,
}

/// What a key must look like. In the order of strictness.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyFormat {
    /// Any printable ASCII.
    #[default]
    Any,
    /// A UUID of any version.
    Uuid,
    /// A UUID of version 7, which tells when it was made.
    UuidV7,
}

/// What keys a route accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyRules {
    /// How the field may be written.
    pub syntax: KeySyntax,
    /// What a key must look like.
    pub format: KeyFormat,
    /// Shorter keys are refused: they are too easily used twice.
    pub length_min: usize,
    /// Older keys are refused, and those made over a minute in the future. Only for keys that tell their time.
    pub age_ms_max: Option<u64>,
}

impl Default for KeyRules {
    fn default() -> Self {
        Self { syntax: KeySyntax::Lenient, format: KeyFormat::Any, length_min: 1, age_ms_max: None }
    }
}

/// What is wrong with the field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadKey {
    #[error("the field is empty; send a new random key, such as a UUID")]
    Empty,
    #[error("the field came more than once with different values; send one key")]
    Several,
    #[error("the key has {0} characters; at most {KEY_CHARS_MAX} are accepted; send a shorter one, such as a UUID")]
    TooLong(usize),
    #[error("the key has {0} characters; this route asks for at least {1}; send a longer random one")]
    TooShort(usize, usize),
    #[error("the key has a character that is not printable ASCII; use letters, digits and hyphens")]
    NotAscii,
    #[error("the quotes are not balanced, or an escape is not one of \\\" and \\\\; send \"key\" or the bare key")]
    Quotes,
    #[error(
        "what follows the closing quote is no parameter such as ;x=1, whose name is lower-case; send \"key\" alone"
    )]
    AfterQuotes,
    #[error("a bare key with a comma could be two keys; put it in quotes, or send one key")]
    Comma,
    #[error("the value is not a string; send \"key\" in quotes, or a bare key")]
    NotAString,
    #[error("this route asks for a structured string; put the key in double quotes")]
    NotQuoted,
    #[error("this route asks for a UUID; send one, such as 8e03978e-40d5-43dd-bc93-6894a57f9324")]
    NotUuid,
    #[error("this route asks for a UUID of version 7; send a new one")]
    NotUuidV7,
    #[error("the key was made too long ago or in the future; send a new one, or correct the clock")]
    TooOld,
}

/// The key of a request, if the field is there. `now_ms`: the wall clock, for keys that tell their time.
pub(crate) fn read(
    headers: &HeaderMap,
    names: &[HeaderName],
    rules: &KeyRules,
    now_ms: u64,
) -> Result<Option<Key>, BadKey> {
    let mut lines = names.iter().flat_map(|name| headers.get_all(name));
    let Some(first) = lines.next() else { return Ok(None) };
    let text = read_line(first, rules.syntax)?;
    for line in lines {
        if read_line(line, rules.syntax)? != text {
            return Err(BadKey::Several);
        }
    }
    check(&text, rules, now_ms)?;
    Key::new(&text).map(Some).map_err(|_| BadKey::NotAscii)
}

fn read_line(line: &HeaderValue, syntax: KeySyntax) -> Result<String, BadKey> {
    let bytes = line.as_bytes().trim_ascii();
    if bytes.is_empty() {
        return Err(BadKey::Empty);
    }
    let text = std::str::from_utf8(bytes).map_err(|_| BadKey::NotAscii)?;
    if !text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
        return Err(BadKey::NotAscii);
    }
    if text.starts_with('"') {
        return read_quoted(text);
    }
    match syntax {
        KeySyntax::Strict => Err(BadKey::NotQuoted),
        KeySyntax::Lenient if is_other_item(text) => Err(BadKey::NotAString),
        KeySyntax::Lenient if text.contains(',') => Err(BadKey::Comma),
        KeySyntax::Lenient if text.contains('"') => Err(BadKey::Quotes),
        KeySyntax::Lenient => Ok(text.to_owned()),
    }
}

fn read_quoted(text: &str) -> Result<String, BadKey> {
    let item: Item = Parser::new(text).parse().map_err(|_| why_not_quoted(text))?;
    match item.bare_item {
        BareItem::String(key) if key.as_str().is_empty() => Err(BadKey::Empty),
        BareItem::String(key) => Ok(key.as_str().to_owned()),
        _ => Err(BadKey::NotAString),
    }
}

/// What is wrong with a text that begins with a quote and is no structured string.
fn why_not_quoted(text: &str) -> BadKey {
    let is_list = || Parser::new(text).parse::<List>().is_ok();
    match after_quotes(text) {
        _ if text.contains("\",") || is_list() => BadKey::Several,
        // Outside of parameters, a quote that opens again is one too many.
        Some(rest) if rest.starts_with(';') || !rest.contains('"') => BadKey::AfterQuotes,
        _ => BadKey::Quotes,
    }
}

/// What follows the string that a text begins with. `None` where it does not end, or an escape is none.
fn after_quotes(text: &str) -> Option<&str> {
    let mut chars = text.char_indices().skip(1);
    while let Some((at, char)) = chars.next() {
        match char {
            '"' => return text.get(at + 1..),
            '\\' if !matches!(chars.next(), Some((_, '"' | '\\'))) => return None,
            _ => {}
        }
    }
    None
}

/// A boolean, bytes, a date, a list, a display string, with parameters or without: structured, and no string.
fn is_other_item(text: &str) -> bool {
    let bare = text.split_once(';').map_or(text, |(bare, _)| bare);
    let is_bytes = |text: &str| text.starts_with(':') && text.ends_with(':');
    bare == "?0"
        || bare == "?1"
        || text.starts_with("%\"")
        || text.starts_with('(')
        || is_bytes(text)
        || is_bytes(bare)
        || bare.strip_prefix('@').is_some_and(|seconds| seconds.parse::<i64>().is_ok())
}

fn check(key: &str, rules: &KeyRules, now_ms: u64) -> Result<(), BadKey> {
    let chars = key.len();
    if chars > KEY_CHARS_MAX {
        return Err(BadKey::TooLong(chars));
    }
    if chars < rules.length_min {
        return Err(BadKey::TooShort(chars, rules.length_min));
    }
    if rules.format == KeyFormat::Any && rules.age_ms_max.is_none() {
        return Ok(());
    }
    let uuid = uuid_of(key);
    match (rules.format, uuid) {
        (KeyFormat::Any, _) | (KeyFormat::Uuid, Some(_)) => {}
        (KeyFormat::UuidV7, Some(uuid)) if version_of(uuid) == 7 => {}
        (KeyFormat::UuidV7, _) => return Err(BadKey::NotUuidV7),
        (KeyFormat::Uuid, None) => return Err(BadKey::NotUuid),
    }
    let made_ms = uuid.filter(|uuid| version_of(*uuid) == 7).map(|uuid| (uuid >> 80) as u64);
    match (rules.age_ms_max, made_ms) {
        (Some(age_ms_max), Some(made_ms)) if !clock::is_recent(made_ms, now_ms, age_ms_max) => Err(BadKey::TooOld),
        _ => Ok(()),
    }
}

/// The digits of a UUID in its usual form: 8-4-4-4-12.
fn uuid_of(key: &str) -> Option<u128> {
    let groups: Vec<&str> = key.split('-').collect();
    let lengths: Vec<usize> = groups.iter().map(|group| group.len()).collect();
    let hex = groups.concat();
    let is_uuid = lengths == [8, 4, 4, 4, 12] && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_uuid.then(|| u128::from_str_radix(&hex, 16).ok()).flatten()
}

fn version_of(uuid: u128) -> u8 {
    (uuid >> 76) as u8 & 0xf
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_with(lines: &[&[u8]], rules: KeyRules) -> Result<Option<String>, BadKey> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(IDEMPOTENCY_KEY, HeaderValue::from_bytes(line).unwrap());
        }
        let key = read(&headers, &[IDEMPOTENCY_KEY], &rules, 1_700_000_000_000)?;
        Ok(key.map(|key| key.as_str().to_owned()))
    }

    fn lenient(lines: &[&str]) -> Result<Option<String>, BadKey> {
        read_with(&lines.iter().map(|line| line.as_bytes()).collect::<Vec<_>>(), KeyRules::default())
    }

    #[test]
    fn a_bare_key_equals_the_quoted_one() {
        assert_eq!(lenient(&["k-1"]), Ok(Some("k-1".into())));
        assert_eq!(lenient(&["\"k-1\""]), Ok(Some("k-1".into())));
        assert_eq!(lenient(&["k-1", "\"k-1\""]), Ok(Some("k-1".into())), "one key, said twice");
        assert_eq!(lenient(&[]), Ok(None));
    }

    #[test]
    fn keys_are_opaque() {
        for key in [
            "'; DROP TABLE record; --",
            "../etc",
            "%00",
            "{{7*7}}",
            "<script>",
            "*",
            "{tag}",
            "a+/=",
            "1",
            "a;x=1",
            "a;X=1",
            "a?1;x=1",
            "?2;x=1",
            "@home;x=1",
            "a b",
        ] {
            assert_eq!(lenient(&[key]), Ok(Some(key.into())));
        }
    }

    #[test]
    fn what_is_not_a_key_is_refused_with_its_cause() {
        assert_eq!(lenient(&[""]), Err(BadKey::Empty));
        assert_eq!(lenient(&["   "]), Err(BadKey::Empty));
        assert_eq!(lenient(&["\"\""]), Err(BadKey::Empty));
        assert_eq!(lenient(&["a", "b"]), Err(BadKey::Several));
        assert_eq!(lenient(&["\"a\", \"b\""]), Err(BadKey::Several));
        assert_eq!(lenient(&["a, b"]), Err(BadKey::Comma));
        assert_eq!(lenient(&["\"a"]), Err(BadKey::Quotes));
        assert_eq!(lenient(&["a\"b"]), Err(BadKey::Quotes));
        assert_eq!(lenient(&["\"a\\x\""]), Err(BadKey::Quotes));
        assert_eq!(lenient(&["a\tb"]), Err(BadKey::NotAscii));
        assert_eq!(read_with(&["clé".as_bytes()], KeyRules::default()), Err(BadKey::NotAscii));
        assert_eq!(read_with(&[b"\xff"], KeyRules::default()), Err(BadKey::NotAscii));
        for other in ["?1", "?0", ":AAA=:", "(a b)", "@1659578233", "@-1", "%\"a\""] {
            assert_eq!(lenient(&[other]), Err(BadKey::NotAString), "{other}");
            for parameters in [";a=1", "; a", ";a=?1;b", ";A=1"] {
                assert_eq!(lenient(&[&format!("{other}{parameters}")]), Err(BadKey::NotAString), "{other}{parameters}");
            }
        }
        for after in ["\"a\";X=1", "\"a\";", "\"a\";x=", "\"a\"b", "\"a\\\"\";X", "\"a\";X=\"b\""] {
            assert_eq!(lenient(&[after]), Err(BadKey::AfterQuotes), "{after}");
        }
        assert_eq!(lenient(&["\"a\";x=1, \"b\""]), Err(BadKey::Several));
        assert_eq!(lenient(&[&"k".repeat(256)]), Err(BadKey::TooLong(256)));
        assert!(lenient(&[&"k".repeat(255)]).is_ok());
    }

    #[test]
    fn quoted_keys_may_have_escapes_and_parameters() {
        assert_eq!(lenient(&["\"a\\\"b\\\\\""]), Ok(Some("a\"b\\".into())));
        assert_eq!(lenient(&["\"a\";x=1"]), Ok(Some("a".into())));
        assert_eq!(lenient(&["\"a,b\""]), Ok(Some("a,b".into())));
    }

    #[test]
    fn a_strict_route_wants_a_structured_string() {
        let strict = KeyRules { syntax: KeySyntax::Strict, ..KeyRules::default() };
        assert_eq!(read_with(&[b"\"k\""], strict), Ok(Some("k".into())));
        assert_eq!(read_with(&[b"\"k\";x=1"], strict), Ok(Some("k".into())));
        assert_eq!(read_with(&[b"\"k\";X=1"], strict), Err(BadKey::AfterQuotes));
        for line in ["k", "42", "?1", "?1;a=1", "8e03978e-40d5-43dd-bc93-6894a57f9324"] {
            assert_eq!(read_with(&[line.as_bytes()], strict), Err(BadKey::NotQuoted), "{line}");
        }
    }

    #[test]
    fn a_route_may_ask_for_more() {
        let rules = |format| KeyRules { format, ..KeyRules::default() };
        let uuid4 = b"8e03978e-40d5-43dd-bc93-6894a57f9324".as_slice();
        assert!(read_with(&[uuid4], rules(KeyFormat::Uuid)).is_ok());
        assert_eq!(read_with(&[b"8e03978e40d543ddbc936894a57f9324"], rules(KeyFormat::Uuid)), Err(BadKey::NotUuid));
        assert_eq!(read_with(&[uuid4], rules(KeyFormat::UuidV7)), Err(BadKey::NotUuidV7));
        let long = KeyRules { length_min: 20, ..KeyRules::default() };
        assert_eq!(read_with(&[b"short"], long), Err(BadKey::TooShort(5, 20)));
        // 0x018bcfe56800 is 1,700,000,000,000 ms.
        let aged = KeyRules { age_ms_max: Some(1000), ..rules(KeyFormat::UuidV7) };
        assert!(read_with(&[b"018bcfe5-6800-7000-8000-000000000000"], aged).is_ok());
        assert_eq!(read_with(&[b"018bcfe5-0000-7000-8000-000000000000"], aged), Err(BadKey::TooOld));
    }

    #[test]
    fn a_key_of_the_future_is_too_old_whatever_age_is_accepted() {
        let aged = |age_ms_max| KeyRules { age_ms_max: Some(age_ms_max), ..KeyRules::default() };
        let made = |ms: u64| {
            let hex = format!("{ms:012x}");
            format!("{}-{}-7000-8000-000000000000", &hex[..8], &hex[8..]).into_bytes()
        };
        let now = 1_700_000_000_000;
        for (ms, age_ms_max, accepted) in [
            (now + 60_000, 1_000, true),
            (now + 60_001, 86_400_000, false),
            (now + 80_000_000, 86_400_000, false),
            (now + 60_001, u64::MAX, false),
            (now - 1_000, 1_000, true),
            (now - 1_001, 1_000, false),
            (0, u64::MAX, true),
        ] {
            assert_eq!(read_with(&[&made(ms)], aged(age_ms_max)).is_ok(), accepted, "{ms} with {age_ms_max}");
        }
    }
}
