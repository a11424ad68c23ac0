//! The path and query that a probe asks for: a template with what is known of a record.
//!
//! Key and labels are what a caller wrote. Percent-encoding keeps them inside their place, but not every server reads a path
//! as it is encoded: `..` is another path before anybody decodes anything, and `%2F` is a slash to some. So a value that could
//! change what is asked for is not asked at all, and the probe cannot tell. In a query only an empty value is refused.

use hapax_core::address::Address;
use hapax_core::record::Record;

use crate::config::{Piece, Template};
use crate::scope::is_digest;

/// Decoding more often than any server does.
const DECODED_TIMES_MAX: usize = 4;

/// The path for a record.
///
/// # Errors
/// Why it cannot be asked for, in words without anything that a caller wrote.
pub(super) fn filled(template: &Template, at: &Address, record: &Record) -> Result<String, String> {
    let mut path = Filled::default();
    for piece in template.pieces() {
        match piece {
            Piece::Literal(text) => path.literal(text)?,
            Piece::Id => path.value("id", &at.id().to_string())?,
            Piece::Key => path.value("key", at.key().as_str())?,
            Piece::Scope if is_digest(at.scope()) => {
                return Err("the scope is a digest, which only hapax knows; ask by {id}".to_owned());
            }
            Piece::Scope => path.value("scope", at.scope().as_str())?,
            Piece::Label(name) => {
                let label = record.labels.iter().find(|label| label.name == *name);
                let label = label.ok_or_else(|| format!("the record has no label `{name}`, which the probe needs"))?;
                path.value(&format!("label `{name}`"), &label.value)?;
            }
        }
    }
    path.finish()
}

/// A path while it is filled in.
#[derive(Default)]
struct Filled {
    text: String,
    in_query: bool,
    /// Where the segment begins that is being written, and which value stands in it.
    segment: usize,
    holds: Option<String>,
}

impl Filled {
    fn literal(&mut self, text: &str) -> Result<(), String> {
        for character in text.chars() {
            if !self.in_query && matches!(character, '/' | '?') {
                self.end_segment()?;
                self.in_query = character == '?';
                self.segment = self.text.len() + 1;
            }
            self.text.push(character);
        }
        Ok(())
    }

    fn value(&mut self, name: &str, value: &str) -> Result<(), String> {
        if value.is_empty() {
            return Err(format!("the {name} is empty, so that the probe would ask for something else"));
        }
        if !self.in_query {
            if value.chars().any(changes_a_path) {
                return Err(format!("the {name} has a character that could change the path of the probe"));
            }
            self.holds = Some(name.to_owned());
        }
        encode(&mut self.text, value);
        Ok(())
    }

    fn end_segment(&mut self) -> Result<(), String> {
        let Some(name) = self.holds.take() else { return Ok(()) };
        // `.` and `..` are no names, however they are spelled, and some servers ignore blanks and look-alikes beside them.
        if !decoded(&self.text[self.segment..]).chars().any(char::is_alphanumeric) {
            return Err(format!("the {name} makes a path without a letter or digit, such as `..`"));
        }
        Ok(())
    }

    fn finish(mut self) -> Result<String, String> {
        self.end_segment()?;
        Ok(self.text)
    }
}

/// What ends a segment, or begins something else, to a server that decodes before it looks.
fn changes_a_path(character: char) -> bool {
    matches!(character, '/' | '\\' | '%' | ';' | '?' | '#') || character.is_control()
}

fn encode(path: &mut String, text: &str) {
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => path.push(char::from(byte)),
            other => path.push_str(&format!("%{other:02X}")),
        }
    }
}

/// As a server may read it that decodes more than once.
fn decoded(segment: &str) -> String {
    let mut text = segment.to_owned();
    for _ in 0..DECODED_TIMES_MAX {
        let next = decoded_once(&text);
        if next == text {
            break;
        }
        text = next;
    }
    text
}

fn decoded_once(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let hex = (*first == b'%').then(|| after.get(..2)).flatten().and_then(|hex| str::from_utf8(hex).ok());
        let (byte, taken) = match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => (byte, 2),
            None => (*first, 0),
        };
        bytes.push(byte);
        rest = after.get(taken..).unwrap_or_default();
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use hapax_core::address::{AddressScheme, Key, Scope, Space};
    use hapax_core::fingerprint::{Fingerprint, Scheme};
    use hapax_core::record::{Label, Policy, State, Version};

    use super::*;

    fn asked(get: &str, scope: &str, key: &str, order: Option<&str>) -> Result<String, String> {
        let (scheme, space) = (AddressScheme::default(), Space::new("http").unwrap());
        let at = Address::new(&scheme, &space, &Scope::new(scope).unwrap(), &Key::new(key).unwrap());
        let fingerprint = Fingerprint { scheme: Scheme::new("none").unwrap(), digest: [0; 32] };
        let mut record = Record::new(Version::from_bytes([1; 16]), State::Unknown, fingerprint, Policy::default());
        record.labels =
            order.map(|value| Label { name: "order".to_owned(), value: value.to_owned() }).into_iter().collect();
        filled(&Template::parsed(get).unwrap(), &at, &record)
    }

    #[test]
    fn values_are_encoded_where_they_stand() {
        let get = "/payments/{key}/x?tenant={scope}&order={label:order}&id={id}";
        let id = "9e4b";
        let path = asked(get, "h:acme", "a b&c", Some("../a?#%2e")).unwrap();
        let (path, found) = path.rsplit_once('=').unwrap();
        assert_eq!(path, "/payments/a%20b%26c/x?tenant=h%3Aacme&order=..%2Fa%3F%23%252e&id");
        assert_eq!(found.len(), 64, "{id}");
        assert_eq!(asked("/p/{label:order}", "s", "k", Some("o-1.2")).unwrap(), "/p/o-1.2");
        assert_eq!(asked("/p/v{label:order}", "s", "k", Some(".")).unwrap(), "/p/v.");
        assert_eq!(asked("/p/{label:order}", "s", "k", Some("größe 1")).unwrap(), "/p/gr%C3%B6%C3%9Fe%201");
    }

    #[test]
    fn what_could_be_another_path_is_not_asked() {
        let values = [
            "",
            ".",
            "..",
            "...",
            ". .",
            ".. ",
            "\u{2025}",
            "\u{ff0e}\u{ff0e}",
            "a/b",
            "../b",
            "..\\b",
            "%2e%2e",
            "%2E.",
            "%252e%252e",
            "a%2fb",
            "..;x",
            "a;b",
            "a?b",
            "a#b",
            "a\0",
            "a\n",
            "~",
            "-",
        ];
        for value in values {
            for get in ["/p/{label:order}", "/p/{label:order}/refunds", "/p/{label:order}?x=1"] {
                assert!(asked(get, "s", "k", Some(value)).is_err(), "{get} {value:?}");
            }
        }
        assert!(asked("/p/.{label:order}", "s", "k", Some(".")).is_err(), "two halves make one");
        assert!(asked("/p/%2e{label:order}", "s", "k", Some(".")).is_err());
        assert!(asked("/p/{key}{label:order}", "s", ".", Some(".")).is_err());
        assert!(asked("/p/{key}", "s", "..", None).is_err());
        assert!(asked("/p?a={label:order}", "s", "k", Some("")).is_err(), "an empty value asks for all");
        assert_eq!(asked("/p?a={label:order}", "s", "k", Some("..")).unwrap(), "/p?a=..");
    }

    #[test]
    fn a_scope_that_is_a_digest_is_not_asked_for() {
        for scope in ["c:2fcb05f08b87942f48c38e032de7f54f", "m:507b2f017a6e7823b4f061aa63bd2445"] {
            assert!(asked("/p/{scope}", scope, "k", None).unwrap_err().contains("digest"));
        }
        assert_eq!(asked("/p/{scope}", "h:m:1", "k", None).unwrap(), "/p/h%3Am%3A1");
    }

    #[test]
    fn why_it_is_not_asked_holds_nothing_that_a_caller_wrote() {
        for (get, order) in [("/p/{label:order}", Some("../secret")), ("/p/{label:order}", None)] {
            assert!(!asked(get, "s", "k", order).unwrap_err().contains("secret"));
        }
    }
}
