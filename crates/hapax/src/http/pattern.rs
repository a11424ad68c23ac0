//! Path patterns of routes: `/payments/{id}/capture`, `/v1/{*rest}`.
//!
//! There is no regular expression, so that no pattern can be slow and everybody can see which of two is more specific:
//! segment by segment a literal beats `{name}`, which beats `{*rest}`. Left to others: the readings of a request's path, and
//! what the route does.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use crate::http::path::{Undo, spelled};

/// Longer patterns are refused: a request's path could hardly be that long.
const PATTERN_BYTES_MAX: usize = 1024;

/// A path pattern: segments that are literal, `{name}` for any one segment, `{*rest}` at the end for all that follow.
///
/// ```
/// use hapax::http::Pattern;
///
/// let pattern: Pattern = "/payments/{id}/capture".parse()?;
/// assert!(pattern.matches("/payments/42/capture"));
/// assert!(!pattern.matches("/payments/42/refund"));
/// assert!(pattern.specificity() > Pattern::parse("/payments/{*rest}")?.specificity());
/// assert_eq!(Pattern::parse("/pay/:id").unwrap_err().to_string(), "has a segment `:id`, which here is no name; did you mean `{id}`?");
/// # Ok::<_, hapax::http::InvalidPattern>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Pattern {
    text: String,
    segments: Vec<Segment>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Segment {
    /// In the spelling that paths are matched in.
    Literal(String),
    /// Exactly one segment that is not empty.
    Name,
    /// All that follows, also nothing.
    Rest,
}

/// How specific a pattern is: the greater one is the route that applies.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Specificity(Vec<u8>);

/// Why a text is no pattern: one cause and one next step.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidPattern(String);

impl Pattern {
    /// Reads a pattern.
    ///
    /// # Errors
    ///
    /// Where the text cannot be a pattern; the error says why, and what to write.
    pub fn parse(text: &str) -> Result<Self, InvalidPattern> {
        let Some(path) = text.strip_prefix('/') else { return refuse("does not begin with `/`; put one in front") };
        if text.len() > PATTERN_BYTES_MAX {
            return refuse(&format!("has more than {PATTERN_BYTES_MAX} bytes; shorten it"));
        }
        let parts: Vec<&str> = path.split('/').collect();
        let last = parts.len() - 1;
        let mut names = BTreeSet::new();
        let mut segments = Vec::with_capacity(parts.len());
        for (at, part) in parts.into_iter().enumerate() {
            if part.is_empty() && at != last {
                return refuse("has an empty segment (`//`); paths are normalised before they are matched");
            }
            segments.push(segment(part, at == last, &mut names)?);
        }
        // A slash at the end does not count; the root is nothing but one.
        segments.pop_if(|last| at_end(last) && path.contains('/'));
        Ok(Self { text: text.to_owned(), segments })
    }

    /// The pattern `/`.
    #[must_use]
    pub fn root() -> Self {
        Self { text: "/".to_owned(), segments: vec![Segment::Literal(String::new())] }
    }

    /// True where the normalised path (without query) is one that the pattern describes. A slash at the end of a path does
    /// not count, as it does not at the end of a pattern.
    #[must_use]
    pub fn matches(&self, path: &str) -> bool {
        self.matches_by(path, |literal, part| literal == part)
    }

    /// The same, whatever the case of its letters: several frameworks do not look at it.
    #[must_use]
    pub(crate) fn matches_in_any_case(&self, path: &str) -> bool {
        self.matches_by(path, str::eq_ignore_ascii_case)
    }

    /// Whether a segment has a capital letter.
    pub(crate) fn has_capitals(&self) -> bool {
        let has_one = |part: &String| part.bytes().any(|byte| byte.is_ascii_uppercase());
        self.segments.iter().any(|segment| matches!(segment, Segment::Literal(part) if has_one(part)))
    }

    /// Whether it describes one path only.
    pub(crate) fn is_literal(&self) -> bool {
        self.segments.iter().all(|segment| matches!(segment, Segment::Literal(_)))
    }

    fn matches_by(&self, path: &str, is_same: impl Fn(&str, &str) -> bool) -> bool {
        let without_slash = || path.strip_suffix('/').filter(|rest| !rest.is_empty());
        self.describes(path, &is_same) || without_slash().is_some_and(|path| self.describes(path, &is_same))
    }

    fn describes(&self, path: &str, is_same: &impl Fn(&str, &str) -> bool) -> bool {
        let Some(path) = path.strip_prefix('/') else { return false };
        let mut parts = path.split('/');
        for segment in &self.segments {
            match (segment, parts.next()) {
                (Segment::Rest, Some(_)) => return true,
                (Segment::Name, Some(part)) if !part.is_empty() => {}
                (Segment::Literal(literal), Some(part)) if is_same(literal, part) => {}
                _ => return false,
            }
        }
        parts.next().is_none()
    }

    /// How specific the pattern is.
    #[must_use]
    pub fn specificity(&self) -> Specificity {
        let rank = |segment: &Segment| match segment {
            Segment::Rest => 0,
            Segment::Name => 1,
            Segment::Literal(_) => 2,
        };
        Specificity(self.segments.iter().map(rank).collect())
    }

    /// True where both describe the same paths, whatever their names are.
    #[must_use]
    pub fn equals(&self, other: &Self) -> bool {
        self.segments == other.segments
    }

    /// True where some path is described by both.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        let (mut ours, mut theirs) = (self.segments.iter(), other.segments.iter());
        loop {
            match (ours.next(), theirs.next()) {
                (None, None) => return true,
                // The rest may be nothing but the slash that does not count.
                (None, Some(Segment::Rest)) | (Some(Segment::Rest), None) => return true,
                (Some(Segment::Rest), Some(_)) | (Some(_), Some(Segment::Rest)) => return true,
                (Some(Segment::Name), Some(Segment::Name)) => {}
                (Some(Segment::Name), Some(Segment::Literal(part))) if !part.is_empty() => {}
                (Some(Segment::Literal(part)), Some(Segment::Name)) if !part.is_empty() => {}
                (Some(Segment::Literal(one)), Some(Segment::Literal(other))) if one == other => {}
                _ => return false,
            }
        }
    }

    /// The pattern as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl FromStr for Pattern {
    type Err = InvalidPattern;

    fn from_str(text: &str) -> Result<Self, InvalidPattern> {
        Self::parse(text)
    }
}

impl TryFrom<&str> for Pattern {
    type Error = InvalidPattern;

    fn try_from(text: &str) -> Result<Self, InvalidPattern> {
        Self::parse(text)
    }
}

impl TryFrom<String> for Pattern {
    type Error = InvalidPattern;

    fn try_from(text: String) -> Result<Self, InvalidPattern> {
        Self::parse(&text)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pattern({:?})", self.text)
    }
}

fn at_end(segment: &Segment) -> bool {
    matches!(segment, Segment::Literal(part) if part.is_empty())
}

/// What is meant by a segment that is a name in the patterns of other routers: `:id` (Express, Rails), `<id>` (Flask). As a
/// literal it would match no request, and nobody would notice. One that is meant literally is written with an escape: `%3Aid`.
fn elsewhere(part: &str) -> Option<String> {
    let is_name =
        |name: &&str| !name.is_empty() && name.chars().all(|letter| letter.is_alphanumeric() || letter == '_');
    let angled = || part.strip_prefix('<')?.strip_suffix('>')?.rsplit(':').next();
    let name = part.strip_prefix(':').or_else(angled).filter(is_name)?;
    Some(format!("{{{name}}}"))
}

fn segment<'a>(part: &'a str, last: bool, names: &mut BTreeSet<&'a str>) -> Result<Segment, InvalidPattern> {
    if let Some(meant) = elsewhere(part) {
        return refuse(&format!("has a segment `{part}`, which here is no name; did you mean `{meant}`?"));
    }
    if !part.contains(['{', '}']) {
        return literal(part);
    }
    let Some(inner) = part.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) else {
        return refuse(&format!("has a segment `{part}` that is only partly a name; write `{{name}}` alone"));
    };
    let (name, found) = match inner.strip_prefix('*') {
        Some(_) if !last => return refuse(&format!("goes on after `{part}`; `{{*name}}` can only stand at the end")),
        Some(name) => (name, Segment::Rest),
        None => (inner, Segment::Name),
    };
    let begins_well = name.starts_with(|letter: char| letter.is_ascii_alphabetic() || letter == '_');
    if !begins_well || !name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_') {
        return refuse(&format!("has a bad name in `{part}`; use letters, digits and underscores"));
    }
    if !names.insert(name) {
        return refuse(&format!("has the name `{name}` twice; rename one"));
    }
    Ok(found)
}

fn literal(part: &str) -> Result<Segment, InvalidPattern> {
    if part == "." || part == ".." {
        return refuse("has a dot segment; paths are normalised before they are matched");
    }
    if part.contains(['?', '#']) {
        return refuse("has a query or fragment; a route matches the path only");
    }
    if part.contains(['*', '^', '$', '(', '|', '\\', '[']) {
        return refuse(
            "looks like a regular expression or glob; write `{name}` for one segment, `{*rest}` for all that follow",
        );
    }
    if let Some(letter) = part.chars().find(|letter| !letter.is_ascii_graphic()) {
        return refuse(&format!("has the character {letter:?}; percent-encode it"));
    }
    check_escapes(part)?;
    Ok(Segment::Literal(spelled(part, Undo::Needless)))
}

/// A normalised path spells escapes with upper-case digits, and does not escape what needs no escape; a pattern spelled
/// otherwise would never match.
fn check_escapes(part: &str) -> Result<(), InvalidPattern> {
    for (at, _) in part.match_indices('%') {
        let digits = part.get(at + 1..at + 3).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let Some(digits) = digits else { return refuse("has a `%` without two hexadecimal digits; write `%25`") };
        let byte = u8::from_str_radix(digits, 16).unwrap_or_default();
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            return refuse(&format!("escapes `{}`, which needs no escape; write it plainly", char::from(byte)));
        }
        if digits.bytes().any(|digit| digit.is_ascii_lowercase()) {
            return refuse(&format!("has the escape `%{digits}`; write `%{}`", digits.to_ascii_uppercase()));
        }
    }
    Ok(())
}

fn refuse<T>(why: &str) -> Result<T, InvalidPattern> {
    Err(InvalidPattern(why.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> Pattern {
        Pattern::parse(text).unwrap()
    }

    #[test]
    fn a_literal_pattern_matches_that_path_only() {
        let payments = pattern("/payments");
        assert!(payments.matches("/payments"));
        for path in ["/", "", "payments", "/payments//", "/payments/1", "/Payments", "/payment", "/paymentss"] {
            assert!(!payments.matches(path), "{path}");
        }
        assert!(pattern("/").matches("/"));
        assert!(!pattern("/").matches("/a"));
        assert!(!pattern("/").matches("/a/"));
    }

    #[test]
    fn a_slash_at_the_end_does_not_count() {
        for text in ["/a/{x}/b", "/a/{x}/b/"] {
            assert!(pattern(text).matches("/a/1/b") && pattern(text).matches("/a/1/b/"), "{text}");
        }
        assert!(pattern("/hooks/").equals(&pattern("/hooks")));
        assert_eq!(pattern("/hooks/").to_string(), "/hooks/");
        assert!(pattern("/").matches("/") && pattern("/").equals(&Pattern::root()));
    }

    #[test]
    fn a_literal_may_have_escapes_that_are_not_needed_everywhere() {
        assert!(pattern("/a%3Ab%2A").matches("/a:b*"));
        assert!(pattern("/a:b").equals(&pattern("/a%3Ab")));
        assert!(pattern("/a%2Fb").matches("/a%2Fb"));
        assert!(!pattern("/a%2Fb").matches("/a/b"));
    }

    #[test]
    fn names_as_other_routers_write_them_are_refused_with_what_is_meant() {
        let cases =
            [("/pay/:id", "{id}"), ("/pay/:id/capture", "{id}"), ("/pay/<id>", "{id}"), ("/pay/<int:id>", "{id}")];
        for (text, meant) in cases {
            let why = Pattern::parse(text).unwrap_err().to_string();
            assert!(why.ends_with(&format!("; did you mean `{meant}`?")), "{text}: {why}");
        }
        assert!(pattern("/pay/%3Aid").matches("/pay/:id") && pattern("/v1/users:batch").matches("/v1/users:batch"));
    }

    #[test]
    fn a_name_matches_one_segment_that_is_not_empty() {
        let capture = pattern("/payments/{id}/capture");
        assert!(capture.matches("/payments/1/capture"));
        assert!(capture.matches("/payments/%2F/capture"));
        for path in ["/payments//capture", "/payments/capture", "/payments/1/2/capture", "/payments/1/capture//"] {
            assert!(!capture.matches(path), "{path}");
        }
    }

    #[test]
    fn the_rest_matches_all_that_follows_and_also_nothing() {
        let rest = pattern("/v1/{*rest}");
        for path in ["/v1/", "/v1/a", "/v1/a/b", "/v1/a//b"] {
            assert!(rest.matches(path), "{path}");
        }
        assert!(!rest.matches("/v1"));
        assert!(!rest.matches("/v2/a"));
        assert!(pattern("/{*all}").matches("/"));
    }

    #[test]
    fn literals_beat_names_and_names_beat_the_rest() {
        let order = ["/a/b", "/a/{x}/c", "/a/{x}", "/a/{*x}", "/{x}/b", "/{x}", "/{*x}"];
        for pair in order.windows(2) {
            assert!(pattern(pair[0]).specificity() > pattern(pair[1]).specificity(), "{pair:?}");
        }
        assert!(pattern("/a/{x}").equals(&pattern("/a/{y}")));
        assert!(!pattern("/a/{x}").equals(&pattern("/a/{*x}")));
    }

    #[test]
    fn two_patterns_overlap_where_one_path_is_both() {
        for (one, other) in [
            ("/a", "/a"),
            ("/a", "/{x}"),
            ("/a/b", "/{*x}"),
            ("/a/", "/a/{*x}"),
            ("/a", "/a/{*x}"),
            ("/{x}/b", "/a/{y}"),
            ("/a/{*x}", "/{y}/b/c"),
            ("/{*x}", "/"),
        ] {
            assert!(pattern(one).overlaps(&pattern(other)), "{one} {other}");
            assert!(pattern(other).overlaps(&pattern(one)), "{other} {one}");
        }
        for (one, other) in [("/a", "/b"), ("/a", "/a/b"), ("/a/", "/a/{x}"), ("/a/{*x}", "/b/{*y}"), ("/", "/{x}")] {
            assert!(!pattern(one).overlaps(&pattern(other)), "{one} {other}");
            assert!(!pattern(other).overlaps(&pattern(one)), "{other} {one}");
        }
    }

    #[test]
    fn a_bad_pattern_is_refused_with_what_to_write() {
        for (text, why) in [
            ("", "does not begin with `/`; put one in front"),
            ("payments", "does not begin with `/`; put one in front"),
            ("/a//b", "has an empty segment (`//`); paths are normalised before they are matched"),
            ("/a/../b", "has a dot segment; paths are normalised before they are matched"),
            ("/a?b=1", "has a query or fragment; a route matches the path only"),
            ("/a/x{id}", "has a segment `x{id}` that is only partly a name; write `{name}` alone"),
            ("/a/{id", "has a segment `{id` that is only partly a name; write `{name}` alone"),
            ("/a/{}", "has a bad name in `{}`; use letters, digits and underscores"),
            ("/a/{b-c}", "has a bad name in `{b-c}`; use letters, digits and underscores"),
            ("/{*rest}/b", "goes on after `{*rest}`; `{*name}` can only stand at the end"),
            ("/{id}/{id}", "has the name `id` twice; rename one"),
            ("/a b", "has the character ' '; percent-encode it"),
            ("/é", "has the character 'é'; percent-encode it"),
            ("/100%", "has a `%` without two hexadecimal digits; write `%25`"),
            ("/a%2fb", "has the escape `%2f`; write `%2F`"),
            ("/%41", "escapes `A`, which needs no escape; write it plainly"),
        ] {
            assert_eq!(Pattern::parse(text).unwrap_err().to_string(), why, "{text}");
        }
    }

    #[test]
    fn a_regular_expression_is_refused_whatever_it_would_cost() {
        for text in ["/(a+)+$", "/payments/*", "/^pay", "/a|b", "/[0-9]"] {
            let why = Pattern::parse(text).unwrap_err().to_string();
            assert!(why.starts_with("looks like a regular expression or glob"), "{text}: {why}");
        }
        assert!(Pattern::parse(&format!("/{}", "a".repeat(PATTERN_BYTES_MAX))).is_err());
    }
}
