//! JSON in one spelling: documents that mean the same become the same bytes, others do not.
//!
//! Why: a client that retries may serialise its body anew, with members in another order or `1.0`
//! in place of `1`. That is the same request. One with another amount is not, and must never
//! look like it.
//!
//! The form is that of RFC 8785 (JCS): no white space, strings with the fewest escapes, members
//! sorted by the UTF-16 code units of their names. It deviates in one thing, on purpose.
//!
//! # Numbers
//!
//! A number here is the decimal value its digits denote, not the double nearest to it.
//!
//! 1. Where the JCS spelling of the number (what ECMAScript prints for the nearest double) denotes
//!    exactly that value, it is the spelling: `1`, `1.0`, `1e0` and `10e-1` become `1`, and `-0`
//!    becomes `0`.
//! 2. Any other number is written as its significant digits without leading or trailing zeros, `e`,
//!    and the power of ten that they are multiplied by, without a plus sign: `9007199254740993e0`.
//!
//! Both are JSON numbers that denote the value itself. So equal values get equal bytes, different
//! values get different bytes, and canonical bytes are their own canonical form. Powers of ten are
//! never written out: `1e999999999999` stays as it is, up to [`EXPONENT_MAX`].
//!
//! With the second kind RFC 8785 does otherwise. Its published test data has one such number, the
//! first of these:
//!
//! | written | RFC 8785 | here |
//! |---|---|---|
//! | `333333333.33333329` (`values.json`) | `333333333.3333333` | `33333333333333329e-8` |
//! | `9007199254740993` | `9007199254740992` | `9007199254740993e0` |
//! | `0.1000000000000000055511151231257827` | `0.1` | `1000000000000000055511151231257827e-34` |
//! | `1e-400` | `0` | `1e-400` |
//! | `1e400` | an error | `1e400` |
//!
//! # What has no canonical form
//!
//! Whatever is not I-JSON: invalid UTF-8, a surrogate without its partner, two members of one name
//! (parsers disagree on which one counts), a byte order mark. Also what is beyond the limits below.
//! What to do then is left to the caller; a fingerprint takes the raw bytes.
//!
//! Time grows with the size of the document (and, for members out of order, with the logarithm of
//! their number and with their depth), memory with its size. Nothing recurses over the document.
//!
//! ```
//! use hapax_core::canonical_json::canonicalise;
//!
//! let first = canonicalise(br#"{ "currency": "EUR", "amount": 10.0 }"#)?;
//! let again = canonicalise(br#"{"amount":1e1,"currency":"\u0045UR"}"#)?;
//! assert_eq!(first, br#"{"amount":10,"currency":"EUR"}"#);
//! assert_eq!(first, again);
//! # Ok::<(), hapax_core::canonical_json::NotCanonical>(())
//! ```

mod number;
mod pointer;
mod raw;
mod text;

pub use number::EXPONENT_MAX;
pub use pointer::{InvalidPointer, Pointer};
pub(crate) use pointer::{Paths, without};
pub use raw::{RawValue, raw_values};

use std::cmp::Ordering;
use text::{is_plain, push_utf8, utf16_order, write_character};

/// Arrays and objects may stand this deep in one another, the outermost counted.
///
/// Real requests stay under twenty. The limit bounds the work that unsorted nested objects cause,
/// since each level of them is moved once.
pub const DEPTH_MAX: usize = 128;

/// Longer documents are refused.
///
/// Request bodies are limited well below this elsewhere. Here it keeps every offset within 32
/// bits, even in the output, which is at most five times as long (`1e20,` becomes 22 bytes).
pub const DOCUMENT_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Why a document has no canonical form. `at` is an offset in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotCanonical {
    /// The bytes are not UTF-8.
    #[error("not UTF-8 at byte {at}")]
    Utf8 {
        /// The first byte that does not belong.
        at: usize,
    },
    /// The text is not JSON.
    #[error("not JSON at byte {at}")]
    Syntax {
        /// The first byte that does not belong, or the end where something is missing.
        at: usize,
    },
    /// A string holds half a surrogate pair, which stands for no character.
    #[error("half a surrogate pair at byte {at}")]
    Surrogate {
        /// The backslash of the escape.
        at: usize,
    },
    /// An object has two members of the same name.
    #[error("a member name that its object already has, at byte {at}")]
    DuplicateName {
        /// The opening quote of the second name.
        at: usize,
    },
    /// Arrays and objects are nested more than [`DEPTH_MAX`] deep.
    #[error("nested deeper than {DEPTH_MAX} at byte {at}")]
    Depth {
        /// The bracket that is one too many.
        at: usize,
    },
    /// A number's exponent is beyond [`EXPONENT_MAX`].
    #[error("an exponent beyond {EXPONENT_MAX} at byte {at}")]
    Exponent {
        /// The number's first byte.
        at: usize,
    },
    /// The document is longer than [`DOCUMENT_BYTES_MAX`].
    #[error("{bytes} bytes, more than {DOCUMENT_BYTES_MAX}")]
    Size {
        /// Its length.
        bytes: usize,
    },
}

/// Writes a JSON document in its canonical form.
///
/// # Errors
///
/// Where the document has none; see the module.
pub fn canonicalise(json: &[u8]) -> Result<Vec<u8>, NotCanonical> {
    if json.len() > DOCUMENT_BYTES_MAX {
        return Err(NotCanonical::Size { bytes: json.len() });
    }
    if let Err(error) = str::from_utf8(json) {
        return Err(NotCanonical::Utf8 { at: error.valid_up_to() });
    }
    Writer::new(json).document()
}

/// Reads the document from front to back and writes it to `out` as it goes. Where an object closes
/// with its members out of order, they are put in order in `out`.
struct Writer<'a> {
    json: &'a [u8],
    at: usize,
    out: Vec<u8>,
    open: Vec<Container>,
    /// The members so far of every open object, innermost last.
    members: Vec<Member>,
    /// Their names, unescaped.
    names: Vec<u8>,
    /// Where members are gathered in order; kept to be used again.
    sorted: Vec<u8>,
}

enum Container {
    Array,
    Object(Object),
}

/// An open object: where its part of each buffer starts.
struct Object {
    out: usize,
    members: usize,
    names: usize,
    in_order: bool,
}

/// A member of an open object. Spans take 32 bits, as there may be millions of them.
struct Member {
    /// In `names`.
    name: Span,
    /// Name and value, in `out`.
    text: Span,
    /// The name, in the source.
    at: u32,
}

#[derive(Clone, Copy)]
struct Span {
    start: u32,
    end: u32,
}

/// Whether a value is complete, or is a container whose first value comes next.
enum Begun {
    Whole,
    Inside,
}

impl<'a> Writer<'a> {
    fn new(json: &'a [u8]) -> Self {
        Self {
            json,
            at: 0,
            out: Vec::with_capacity(json.len()),
            open: Vec::new(),
            members: Vec::new(),
            names: Vec::new(),
            sorted: Vec::new(),
        }
    }

    fn document(mut self) -> Result<Vec<u8>, NotCanonical> {
        loop {
            match self.value()? {
                Begun::Inside => {}
                Begun::Whole if self.next_value()? => {}
                Begun::Whole => break,
            }
        }
        if self.at < self.json.len() { Err(self.syntax()) } else { Ok(self.out) }
    }

    fn value(&mut self) -> Result<Begun, NotCanonical> {
        match self.peek() {
            Some(b'{') => return self.begin_object(),
            Some(b'[') => return self.begin_array(),
            Some(b'"') => self.string(false)?,
            Some(b'-' | b'0'..=b'9') => {
                self.at = number::canonicalise(self.json, self.at, &mut self.out)?;
            }
            Some(b'n') => self.literal(b"null")?,
            Some(b't') => self.literal(b"true")?,
            Some(b'f') => self.literal(b"false")?,
            _ => return Err(self.syntax()),
        }
        Ok(Begun::Whole)
    }

    /// After a value: closes what closes here, and says whether another value follows.
    fn next_value(&mut self) -> Result<bool, NotCanonical> {
        loop {
            let byte = self.peek();
            match (self.open.last(), byte) {
                (None, _) => return Ok(false),
                (Some(Container::Array), Some(b',')) => {
                    self.copy(b',');
                    return Ok(true);
                }
                (Some(Container::Object(_)), Some(b',')) => {
                    self.end_member();
                    self.copy(b',');
                    self.name()?;
                    return Ok(true);
                }
                (Some(Container::Array), Some(b']')) => {
                    self.open.pop();
                    self.copy(b']');
                }
                (Some(Container::Object(_)), Some(b'}')) => {
                    self.end_member();
                    self.end_object()?;
                }
                _ => return Err(self.syntax()),
            }
        }
    }

    fn begin_array(&mut self) -> Result<Begun, NotCanonical> {
        self.check_depth()?;
        self.copy(b'[');
        if self.peek() == Some(b']') {
            self.copy(b']');
            return Ok(Begun::Whole);
        }
        self.open.push(Container::Array);
        Ok(Begun::Inside)
    }

    fn begin_object(&mut self) -> Result<Begun, NotCanonical> {
        self.check_depth()?;
        self.copy(b'{');
        if self.peek() == Some(b'}') {
            self.copy(b'}');
            return Ok(Begun::Whole);
        }
        self.open.push(Container::Object(Object {
            out: self.out.len(),
            members: self.members.len(),
            names: self.names.len(),
            in_order: true,
        }));
        self.name()?;
        Ok(Begun::Inside)
    }

    fn check_depth(&self) -> Result<(), NotCanonical> {
        if self.open.len() < DEPTH_MAX { Ok(()) } else { Err(NotCanonical::Depth { at: self.at }) }
    }

    /// Begins a member: its name and colon.
    fn name(&mut self) -> Result<(), NotCanonical> {
        if self.peek() != Some(b'"') {
            return Err(self.syntax());
        }
        let (at, text, name) = (self.at, self.out.len(), self.names.len());
        self.string(true)?;
        if self.peek() != Some(b':') {
            return Err(self.syntax());
        }
        self.copy(b':');
        let member = Member { name: Span::new(name, self.names.len()), text: Span::new(text, text), at: at as u32 };
        if let Some(Container::Object(object)) = self.open.last_mut()
            && let Some(last) = self.members[object.members..].last()
        {
            let order = utf16_order(last.name.of(&self.names), member.name.of(&self.names));
            object.in_order &= order == Ordering::Less;
        }
        self.members.push(member);
        Ok(())
    }

    fn end_member(&mut self) {
        if let Some(member) = self.members.last_mut() {
            member.text.end = self.out.len() as u32;
        }
    }

    fn end_object(&mut self) -> Result<(), NotCanonical> {
        if let Some(Container::Object(object)) = self.open.pop() {
            if !object.in_order {
                self.put_in_order(&object)?;
            }
            self.members.truncate(object.members);
            self.names.truncate(object.names);
        }
        self.copy(b'}');
        Ok(())
    }

    fn put_in_order(&mut self, object: &Object) -> Result<(), NotCanonical> {
        let names = &self.names;
        let members = &mut self.members[object.members..];
        members.sort_unstable_by(|a, b| utf16_order(a.name.of(names), b.name.of(names)));
        for pair in members.windows(2) {
            if pair[0].name.of(names) == pair[1].name.of(names) {
                let at = pair[0].at.max(pair[1].at) as usize;
                return Err(NotCanonical::DuplicateName { at });
            }
        }
        self.sorted.clear();
        for (index, member) in members.iter().enumerate() {
            if index > 0 {
                self.sorted.push(b',');
            }
            self.sorted.extend_from_slice(member.text.of(&self.out));
        }
        self.out.truncate(object.out);
        self.out.extend_from_slice(&self.sorted);
        Ok(())
    }

    /// Copies a string, each character in its one spelling; as a name, also to `names`, unescaped.
    fn string(&mut self, is_name: bool) -> Result<(), NotCanonical> {
        self.copy(b'"');
        loop {
            let rest = &self.json[self.at..];
            let plain = rest.iter().take_while(|byte| is_plain(**byte)).count();
            self.out.extend_from_slice(&rest[..plain]);
            if is_name {
                self.names.extend_from_slice(&rest[..plain]);
            }
            self.at += plain;
            match rest.get(plain) {
                Some(b'"') => {
                    self.copy(b'"');
                    return Ok(());
                }
                Some(b'\\') => {
                    let character = self.escape()?;
                    write_character(character, &mut self.out);
                    if is_name {
                        push_utf8(character, &mut self.names);
                    }
                }
                _ => return Err(self.syntax()),
            }
        }
    }

    /// Reads an escape, from its backslash on.
    fn escape(&mut self) -> Result<char, NotCanonical> {
        let (character, end) = text::escape(self.json, self.at)?;
        self.at = end;
        Ok(character)
    }

    fn literal(&mut self, literal: &[u8]) -> Result<(), NotCanonical> {
        for byte in literal {
            if self.json.get(self.at) != Some(byte) {
                return Err(self.syntax());
            }
            self.copy(*byte);
        }
        Ok(())
    }

    /// The next byte that is not white space.
    fn peek(&mut self) -> Option<u8> {
        loop {
            match self.json.get(self.at) {
                Some(b' ' | b'\t' | b'\n' | b'\r') => self.at += 1,
                byte => return byte.copied(),
            }
        }
    }

    /// Passes over `byte`, which has been seen, and writes it.
    fn copy(&mut self, byte: u8) {
        self.at += 1;
        self.out.push(byte);
    }

    fn syntax(&self) -> NotCanonical {
        NotCanonical::Syntax { at: self.at }
    }
}

impl Span {
    /// Offsets fit: see [`DOCUMENT_BYTES_MAX`].
    fn new(start: usize, end: usize) -> Self {
        Self { start: start as u32, end: end as u32 }
    }

    fn of(self, buffer: &[u8]) -> &[u8] {
        &buffer[self.start as usize..self.end as usize]
    }
}
