//! Path patterns of routes: `/payments`, `/payments/{id}/capture`, `/v1/{*rest}`.
//!
//! No regular expressions: a pattern is compared segment by segment, in time linear in the path, whatever the path.

use std::fmt;
use std::str::FromStr;

/// A path pattern.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pattern {
    text: Box<str>,
    segments: Vec<Segment>,
    /// Ends in `{*rest}`, which stands for one or more segments.
    open: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Segment {
    Literal(Box<str>),
    Any,
}

/// Why a text is no pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a path pattern: {cause}")]
pub struct InvalidPattern {
    text: String,
    cause: &'static str,
}

impl FromStr for Pattern {
    type Err = InvalidPattern;

    fn from_str(text: &str) -> Result<Self, InvalidPattern> {
        let invalid = |cause| InvalidPattern { text: text.to_owned(), cause };
        let rest = text.strip_prefix('/').ok_or_else(|| invalid("begin it with `/`"))?;
        let mut parts: Vec<&str> = if rest.is_empty() { Vec::new() } else { rest.split('/').collect() };
        let open = parts.last().is_some_and(|last| last.starts_with("{*") && last.ends_with('}'));
        if open {
            parts.pop();
        }
        let segments = parts.into_iter().map(segment).collect::<Result<_, _>>().map_err(invalid)?;
        Ok(Self { text: text.into(), segments, open })
    }
}

fn segment(text: &str) -> Result<Segment, &'static str> {
    let name = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    match name {
        Some(name) if name.starts_with('*') => Err("`{*rest}` can only stand at the end"),
        Some(name) if !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') => {
            Ok(Segment::Any)
        }
        Some(_) => Err("name a placeholder with letters, digits and underscores: `{id}`"),
        None if text.is_empty() => Err("leave out empty segments"),
        None if text == "." || text == ".." => Err("leave out dot segments"),
        None if text.contains(['{', '}', '*', '?', '#', '%', '\\']) => {
            Err("a segment is plain text or a placeholder such as `{id}`, decoded, without a query")
        }
        None => Ok(Segment::Literal(text.into())),
    }
}

impl Pattern {
    /// The pattern as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether a path matches. A slash at its end does not count.
    #[must_use]
    pub fn matches(&self, path: &str) -> bool {
        let path = path.strip_prefix('/').unwrap_or(path);
        let path = path.strip_suffix('/').unwrap_or(path);
        let mut parts = path.split('/').filter(|_| !path.is_empty());
        for segment in &self.segments {
            match (segment, parts.next()) {
                (Segment::Literal(text), Some(part)) if **text == *part => {}
                (Segment::Any, Some(part)) if !part.is_empty() => {}
                _ => return false,
            }
        }
        parts.next().is_some() == self.open
    }

    /// Orders patterns: of two that match a path the greater one says more about it.
    #[must_use]
    pub fn specificity(&self) -> impl Ord + use<> {
        let kinds: Vec<u8> = self.segments.iter().map(|segment| u8::from(*segment != Segment::Any)).collect();
        (!self.open, kinds.len(), kinds)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, path: &str) -> bool {
        pattern.parse::<Pattern>().unwrap().matches(path)
    }

    #[test]
    fn segments_are_compared_one_by_one() {
        assert!(matches("/", "/"));
        assert!(matches("/payments", "/payments"));
        assert!(matches("/payments", "/payments/"));
        assert!(!matches("/payments", "/payments/1"));
        assert!(!matches("/payments", "/pay"));
        assert!(matches("/payments/{id}/capture", "/payments/pi_1/capture"));
        assert!(!matches("/payments/{id}/capture", "/payments//capture"));
        assert!(!matches("/payments/{id}/capture", "/payments/a/b/capture"));
        assert!(matches("/v1/{*rest}", "/v1/a"));
        assert!(matches("/v1/{*rest}", "/v1/a/b/c"));
        assert!(!matches("/v1/{*rest}", "/v1"));
        assert!(matches("/{*rest}", "/a"));
    }

    #[test]
    fn literal_text_says_more_than_a_placeholder_and_that_more_than_the_rest() {
        let specificity = |text: &str| text.parse::<Pattern>().unwrap().specificity();
        assert!(specificity("/pay/now") > specificity("/pay/{id}"));
        assert!(specificity("/pay/{id}") > specificity("/pay/{*rest}"));
        assert!(specificity("/pay/{*rest}") > specificity("/{*rest}"));
    }

    #[test]
    fn bad_patterns_say_why() {
        let cause = |text: &str| text.parse::<Pattern>().unwrap_err().to_string();
        assert_eq!(cause("pay"), "`pay` is not a path pattern: begin it with `/`");
        assert_eq!(cause("/a//b"), "`/a//b` is not a path pattern: leave out empty segments");
        assert_eq!(cause("/{*all}/b"), "`/{*all}/b` is not a path pattern: `{*rest}` can only stand at the end");
        assert!(cause("/(a+)+$*").contains("plain text or a placeholder"));
        assert!(cause("/{}").contains("name a placeholder"));
        assert!(cause("/a%2Fb").contains("decoded"));
    }
}
