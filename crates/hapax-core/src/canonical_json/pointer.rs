//! JSON pointers (RFC 6901), and the values of a canonical document that they name.
//!
//! Why: a route may say which parts of a body count, or which do not. Canonical bytes are easy to
//! walk: no white space, and each name in one spelling, so that names compare as bytes.
//!
//! Left to others: what is done with the values, and canonicalising: nothing here checks a document.

use super::DEPTH_MAX;
use super::text::write_character;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

/// A JSON pointer (RFC 6901): names one value of a document, if the document has it.
///
/// `""` names the whole document, `/items/0/price` the price of the first item. A `~` in a name is
/// written `~0`, a `/` is written `~1`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pointer(Box<str>);

/// Why a text is not a JSON pointer that can name something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidPointer {
    /// It is neither empty nor begins with a slash.
    #[error("a JSON pointer is empty or begins with a slash")]
    NoSlash,
    /// A tilde is followed by neither 0 nor 1.
    #[error("in a JSON pointer a tilde is written ~0, and a slash within a name ~1")]
    Tilde,
    /// It has more than [`DEPTH_MAX`] names, deeper than any canonical document.
    #[error("a JSON pointer of more than {DEPTH_MAX} names")]
    Depth,
}

impl Pointer {
    /// Checks and keeps a pointer.
    ///
    /// # Errors
    ///
    /// Where the text is not a pointer, or is deeper than any canonical document.
    pub fn new(text: &str) -> Result<Self, InvalidPointer> {
        if !text.is_empty() && !text.starts_with('/') {
            return Err(InvalidPointer::NoSlash);
        }
        if text.split('~').skip(1).any(|rest| !rest.starts_with(['0', '1'])) {
            return Err(InvalidPointer::Tilde);
        }
        if text.matches('/').count() > DEPTH_MAX {
            return Err(InvalidPointer::Depth);
        }
        Ok(Self(text.into()))
    }

    /// The pointer as it was given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The pointer to a member of the document itself.
    #[must_use]
    pub fn to_member(name: &str) -> Self {
        Self(format!("/{}", name.replace('~', "~0").replace('/', "~1")).into())
    }

    /// Its names, unescaped.
    pub(super) fn names(&self) -> impl Iterator<Item = String> {
        self.0.split('/').skip(1).map(|name| name.replace("~1", "/").replace("~0", "~"))
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where a document has the value that a pointer names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// The pointer, by its place in the list.
    pub(crate) pointer: usize,
    /// The value's bytes.
    pub(crate) value: Range<usize>,
    /// What must go for the document to be without it: its name and a comma, too.
    cut: Range<usize>,
}

/// Pointers as a tree of names, so that one walk over a document finds them all.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    ends: Option<usize>,
    /// By name, spelled as in a canonical document but without the quotes.
    below: BTreeMap<Vec<u8>, Paths>,
}

impl Paths {
    /// Joins a list of pointers.
    pub(crate) fn new(pointers: &[Pointer]) -> Self {
        let mut root = Self::default();
        for (index, pointer) in pointers.iter().enumerate() {
            let mut path = &mut root;
            for name in pointer.names() {
                let mut spelled = Vec::new();
                name.chars().for_each(|character| write_character(character, &mut spelled));
                path = path.below.entry(spelled).or_default();
            }
            path.ends = Some(index);
        }
        root
    }

    /// Finds what the pointers name in a canonical document.
    pub(crate) fn find(&self, document: &[u8]) -> Vec<Found> {
        let mut walk = Walk { document, found: Vec::new() };
        let end = walk.value(self, 0);
        if let Some(pointer) = self.ends {
            walk.found.push(Found { pointer, value: 0..end, cut: 0..end });
        }
        walk.found
    }

    /// The paths that go through an array, by index: `0`, or digits that do not begin with 0.
    fn by_index(&self) -> BTreeMap<usize, &Paths> {
        let index = |name: &[u8]| {
            let plain = name == b"0" || !name.starts_with(b"0");
            let digits = plain && name.iter().all(u8::is_ascii_digit);
            if digits { str::from_utf8(name).ok()?.parse().ok() } else { None }
        };
        self.below.iter().filter_map(|(name, path)| Some((index(name)?, path))).collect()
    }
}

/// A canonical document without the values that the pointers name; empty if one names all of it.
///
/// An array closes the gap that an element leaves.
pub(crate) fn without(document: &[u8], paths: &Paths) -> Vec<u8> {
    let mut found = paths.find(document);
    found.sort_unstable_by_key(|found| (found.cut.start, std::cmp::Reverse(found.cut.end)));
    let mut kept = Vec::with_capacity(document.len());
    let mut at = 0;
    for Found { cut, .. } in found {
        // A value within one that was cut already starts before `at`.
        if cut.start >= at {
            kept.extend_from_slice(&document[at..cut.start]);
            at = cut.end;
        }
    }
    kept.extend_from_slice(&document[at..]);
    kept
}

/// One walk over a document. It descends only where a pointer leads, so that its depth is the
/// configured pointers' and not the client's to choose.
struct Walk<'a> {
    document: &'a [u8],
    found: Vec<Found>,
}

impl Walk<'_> {
    /// Walks the value that starts at `at`, and says where it ends.
    fn value(&mut self, path: &Paths, at: usize) -> usize {
        match self.document.get(at) {
            Some(b'{') if !path.below.is_empty() => self.object(path, at),
            Some(b'[') if !path.below.is_empty() => self.array(path, at),
            _ => value_end(self.document, at),
        }
    }

    fn object(&mut self, path: &Paths, open: usize) -> usize {
        let document = self.document;
        self.entries(open, |_, start| {
            let name_end = value_end(document, start);
            let name = document.get(start + 1..name_end.saturating_sub(1)).unwrap_or_default();
            (name_end + 1, path.below.get(name))
        })
    }

    fn array(&mut self, path: &Paths, open: usize) -> usize {
        let paths = path.by_index();
        self.entries(open, |index, start| (start, paths.get(&index).copied()))
    }

    /// Walks the entries of a container. `entry` says, from an entry's index and start, where its
    /// value starts and which path leads through it.
    fn entries<'p>(&mut self, open: usize, entry: impl Fn(usize, usize) -> (usize, Option<&'p Paths>)) -> usize {
        let mut start = open + 1;
        let mut any_kept = false;
        for index in 0.. {
            if !matches!(self.document.get(start), Some(byte) if !matches!(byte, b'}' | b']')) {
                break;
            }
            let (value, path) = entry(index, start);
            let end = match path {
                Some(path) => self.value(path, value),
                None => value_end(self.document, value),
            };
            let comma = self.document.get(end) == Some(&b',');
            match path.and_then(|path| path.ends) {
                Some(pointer) if any_kept => {
                    self.found.push(Found { pointer, value: value..end, cut: start - 1..end });
                }
                Some(pointer) => {
                    let cut = start..end + usize::from(comma);
                    self.found.push(Found { pointer, value: value..end, cut });
                }
                None => any_kept = true,
            }
            start = end + usize::from(comma);
        }
        self.document.len().min(start + 1)
    }
}

/// Where the value that starts at `at` ends.
fn value_end(document: &[u8], at: usize) -> usize {
    let mut depth = 0_usize;
    let mut end = at;
    while let Some(byte) = document.get(end) {
        match byte {
            b'"' => end = string_end(document, end),
            b'{' | b'[' => {
                depth += 1;
                end += 1;
                continue;
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                end += 1;
            }
            b',' | b':' => {
                end += 1;
                continue;
            }
            _ => end = scalar_end(document, end),
        }
        if depth == 0 {
            break;
        }
    }
    end
}

/// Where the string whose opening quote is at `at` ends.
fn string_end(document: &[u8], at: usize) -> usize {
    let mut end = at + 1;
    while let Some(byte) = document.get(end) {
        match byte {
            b'"' => return end + 1,
            b'\\' => end += 2,
            _ => end += 1,
        }
    }
    document.len()
}

fn scalar_end(document: &[u8], at: usize) -> usize {
    let rest = document.get(at..).unwrap_or_default();
    let length = rest.iter().take_while(|byte| !matches!(byte, b',' | b']' | b'}')).count();
    at + length
}
