//! The values that JSON pointers name, as they stand in a document: texts unescaped, numbers digit by digit.
//!
//! Why: identifiers are compared with other people's (an order in a label, a row of a ledger, the answer of a probe), and one
//! that went through a double, or was spelled anew, is another identifier. 18446744073709551616 must not become
//! 1.8446744073709552e19, nor 0.10 become 0.1. Whoever takes an identifier out of JSON takes it from here.
//!
//! Nothing is guessed. A document that is not JSON has no values; where an object on the way has the name twice, parsers
//! disagree on which one counts, so that the pointer names nothing.
//!
//! The document is read once, however many pointers there are, and nothing recurses over it. Left to others: what a value
//! means.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::text::{self, is_plain, push_utf8};
use super::{DEPTH_MAX, NotCanonical, Pointer, number};

/// A value as it stands in a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RawValue<'a> {
    /// A string, unescaped.
    Text(Cow<'a, str>),
    /// A number in its own spelling.
    Number(&'a str),
    /// `true` or `false`.
    Bool(bool),
    /// `null`.
    Null,
    /// An array or an object with its brackets, as it is written.
    Container(&'a str),
}

impl<'a> RawValue<'a> {
    /// The value as an identifier: a text as it is, an integer in its own digits. Anything else is none.
    ///
    /// `1e2`, `100.0` and `-0` are none: whoever received the number may have kept it as `100` or `0`, and would not find it
    /// under its other spelling.
    #[must_use]
    pub fn identifier(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Number(digits) if is_integer(digits) => Some(digits),
            _ => None,
        }
    }

    /// The value in its own spelling, a text unescaped.
    #[must_use]
    pub fn into_text(self) -> Cow<'a, str> {
        match self {
            Self::Text(text) => text,
            Self::Number(raw) | Self::Container(raw) => Cow::Borrowed(raw),
            Self::Bool(true) => Cow::Borrowed("true"),
            Self::Bool(false) => Cow::Borrowed("false"),
            Self::Null => Cow::Borrowed("null"),
        }
    }
}

/// Whether a JSON number is an integer in its one plain spelling.
fn is_integer(number: &str) -> bool {
    let digits = number.strip_prefix('-').unwrap_or(number);
    number != "-0" && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// What each pointer names in a document; `None` where it names nothing, or where it is ambiguous.
///
/// ```
/// use hapax_core::canonical_json::{Pointer, RawValue, raw_values};
///
/// let order = [Pointer::new("/order/id")?];
/// let found = raw_values(br#"{"order": {"id": 18446744073709551616}}"#, &order)?;
/// assert_eq!(found, [Some(RawValue::Number("18446744073709551616"))]);
/// let twice = raw_values(br#"{"order": {"id": 1, "\u0069d": 2}}"#, &order)?;
/// assert_eq!(twice, [None]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// Where the document is not JSON in UTF-8, has half a surrogate pair, or is nested deeper than [`DEPTH_MAX`].
pub fn raw_values<'a>(document: &'a [u8], pointers: &[Pointer]) -> Result<Vec<Option<RawValue<'a>>>, NotCanonical> {
    let document = str::from_utf8(document).map_err(|error| NotCanonical::Utf8 { at: error.valid_up_to() })?;
    let names = Names::new(pointers);
    let found = pointers.iter().map(|_| Found::Nothing).collect();
    let walk = Walk { document, json: document.as_bytes(), at: 0, names: &names, open: Vec::new(), found };
    let found = walk.document()?;
    Ok(found.into_iter().map(Found::value).collect())
}

/// What was found for a pointer so far.
#[derive(Clone, Debug)]
enum Found<'a> {
    Nothing,
    One(RawValue<'a>),
    /// A name on the way stands twice in its object.
    Ambiguous,
}

impl<'a> Found<'a> {
    fn value(self) -> Option<RawValue<'a>> {
        match self {
            Self::One(value) => Some(value),
            Self::Nothing | Self::Ambiguous => None,
        }
    }
}

/// The pointers as a tree of names; the first is the document itself.
struct Names {
    all: Vec<Name>,
}

#[derive(Default)]
struct Name {
    /// The pointers that end here.
    ends: Vec<usize>,
    below: BTreeMap<String, usize>,
}

impl Names {
    fn new(pointers: &[Pointer]) -> Self {
        let mut all = vec![Name::default()];
        for (index, pointer) in pointers.iter().enumerate() {
            let mut at = 0;
            for name in pointer.names() {
                let next = all.len();
                at = *all[at].below.entry(name).or_insert(next);
                if at == next {
                    all.push(Name::default());
                }
            }
            all[at].ends.push(index);
        }
        Self { all }
    }

    /// The paths that go through an array, by index: `0`, or digits that do not begin with 0.
    fn by_index(&self, name: usize) -> Vec<(usize, usize)> {
        let plain = |name: &str| name == "0" || !name.starts_with(['0', '+']);
        let below = self.all[name].below.iter().filter(|(name, _)| plain(name));
        below.filter_map(|(name, below)| Some((name.parse().ok()?, *below))).collect()
    }

    /// Every pointer that ends at a name or below it.
    fn ends_below(&self, name: usize) -> Vec<usize> {
        let (mut ends, mut open) = (Vec::new(), vec![name]);
        while let Some(name) = open.pop() {
            ends.extend(&self.all[name].ends);
            open.extend(self.all[name].below.values());
        }
        ends
    }
}

/// An array or an object that is not closed yet.
struct Open {
    start: usize,
    /// Where pointers lead through it, or end at it.
    name: Option<usize>,
    kind: Kind,
}

enum Kind {
    /// The names of members that pointers lead through, as far as they were met.
    Object { met: Vec<usize> },
    /// The index of the value that is read, and the ones that pointers lead through.
    Array { index: usize, wanted: Vec<(usize, usize)> },
}

/// One walk over a document, from front to back.
struct Walk<'a, 'n> {
    document: &'a str,
    json: &'a [u8],
    at: usize,
    names: &'n Names,
    open: Vec<Open>,
    found: Vec<Found<'a>>,
}

impl<'a> Walk<'a, '_> {
    fn document(mut self) -> Result<Vec<Found<'a>>, NotCanonical> {
        let mut next = Some(Some(0));
        while let Some(name) = next {
            next = self.value(name)?;
        }
        self.peek();
        if self.at < self.json.len() { Err(self.syntax()) } else { Ok(self.found) }
    }

    /// Reads a value, or the beginning of one, and what closes after it. Says which value comes next, if one does.
    fn value(&mut self, name: Option<usize>) -> Result<Option<Option<usize>>, NotCanonical> {
        let start = match self.peek() {
            Some(b'{') => return self.begin_object(name),
            Some(b'[') => return self.begin_array(name),
            _ => self.at,
        };
        let value = match self.json.get(start) {
            Some(b'"') => RawValue::Text(self.string(name.is_some())?),
            Some(b'-' | b'0'..=b'9') => {
                self.at = number::end(self.json, start)?;
                RawValue::Number(&self.document[start..self.at])
            }
            Some(b'n') => self.literal(b"null", RawValue::Null)?,
            Some(b't') => self.literal(b"true", RawValue::Bool(true))?,
            Some(b'f') => self.literal(b"false", RawValue::Bool(false))?,
            _ => return Err(self.syntax()),
        };
        self.take(name, &value);
        self.next_value()
    }

    /// After a value: closes what closes here, and says which value follows.
    fn next_value(&mut self) -> Result<Option<Option<usize>>, NotCanonical> {
        loop {
            let byte = self.peek();
            let Some(last) = self.open.last_mut() else { return Ok(None) };
            match (&mut last.kind, byte) {
                (Kind::Array { index, wanted }, Some(b',')) => {
                    *index += 1;
                    let name = wanted.iter().find(|(wanted, _)| wanted == index).map(|(_, name)| *name);
                    self.at += 1;
                    return Ok(Some(name));
                }
                (Kind::Object { .. }, Some(b',')) => {
                    self.at += 1;
                    return self.member().map(Some);
                }
                (Kind::Array { .. }, Some(b']')) | (Kind::Object { .. }, Some(b'}')) => self.end_container(),
                _ => return Err(self.syntax()),
            }
        }
    }

    fn begin_object(&mut self, name: Option<usize>) -> Result<Option<Option<usize>>, NotCanonical> {
        self.begin_container(name, Kind::Object { met: Vec::new() })?;
        match self.peek() {
            Some(b'}') => self.next_value(),
            _ => self.member().map(Some),
        }
    }

    fn begin_array(&mut self, name: Option<usize>) -> Result<Option<Option<usize>>, NotCanonical> {
        let wanted = name.map(|name| self.names.by_index(name)).unwrap_or_default();
        let first = wanted.iter().find(|(index, _)| *index == 0).map(|(_, name)| *name);
        self.begin_container(name, Kind::Array { index: 0, wanted })?;
        match self.peek() {
            Some(b']') => self.next_value(),
            _ => Ok(Some(first)),
        }
    }

    fn begin_container(&mut self, name: Option<usize>, kind: Kind) -> Result<(), NotCanonical> {
        if self.open.len() >= DEPTH_MAX {
            return Err(NotCanonical::Depth { at: self.at });
        }
        self.open.push(Open { start: self.at, name, kind });
        self.at += 1;
        Ok(())
    }

    fn end_container(&mut self) {
        self.at += 1;
        if let Some(Open { start, name, .. }) = self.open.pop() {
            let value = RawValue::Container(&self.document[start..self.at]);
            self.take(name, &value);
        }
    }

    /// Reads a member's name and colon, and says where pointers lead from there.
    fn member(&mut self) -> Result<Option<usize>, NotCanonical> {
        if self.peek() != Some(b'"') {
            return Err(self.syntax());
        }
        let names = self.names;
        let below = self.open.last().and_then(|open| open.name).map(|name| &names.all[name].below);
        let below = below.filter(|below| !below.is_empty());
        let spelled = self.string(below.is_some())?;
        if self.peek() != Some(b':') {
            return Err(self.syntax());
        }
        self.at += 1;
        let Some(name) = below.and_then(|below| below.get(&*spelled)).copied() else { return Ok(None) };
        if let Some(Open { kind: Kind::Object { met }, .. }) = self.open.last_mut() {
            if met.contains(&name) {
                for end in names.ends_below(name) {
                    self.found[end] = Found::Ambiguous;
                }
            }
            met.push(name);
        }
        Ok(Some(name))
    }

    /// Keeps a value for the pointers that end at it.
    fn take(&mut self, name: Option<usize>, value: &RawValue<'a>) {
        let (Some(name), names) = (name, self.names) else { return };
        for end in &names.all[name].ends {
            if !matches!(self.found[*end], Found::Ambiguous) {
                self.found[*end] = Found::One(value.clone());
            }
        }
    }

    /// Reads a string; unescapes it where it is wanted, otherwise only checks it.
    fn string(&mut self, wanted: bool) -> Result<Cow<'a, str>, NotCanonical> {
        let start = self.at + 1;
        let mut unescaped: Option<Vec<u8>> = None;
        self.at = start;
        loop {
            let rest = &self.json[self.at..];
            let plain = rest.iter().take_while(|byte| is_plain(**byte)).count();
            if let Some(unescaped) = unescaped.as_mut().filter(|_| wanted) {
                unescaped.extend_from_slice(&rest[..plain]);
            }
            self.at += plain;
            match rest.get(plain) {
                Some(b'"') => break,
                Some(b'\\') => {
                    let before = &self.json[start..self.at];
                    let unescaped = unescaped.get_or_insert_with(|| if wanted { before.to_vec() } else { Vec::new() });
                    let (character, end) = text::escape(self.json, self.at)?;
                    self.at = end;
                    if wanted {
                        push_utf8(character, unescaped);
                    }
                }
                _ => return Err(self.syntax()),
            }
        }
        let end = self.at;
        self.at += 1;
        match unescaped {
            None => Ok(Cow::Borrowed(&self.document[start..end])),
            Some(bytes) => String::from_utf8(bytes).map(Cow::Owned).map_err(|_| NotCanonical::Utf8 { at: start }),
        }
    }

    fn literal(&mut self, literal: &[u8], value: RawValue<'a>) -> Result<RawValue<'a>, NotCanonical> {
        for byte in literal {
            if self.json.get(self.at) != Some(byte) {
                return Err(self.syntax());
            }
            self.at += 1;
        }
        Ok(value)
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

    fn syntax(&self) -> NotCanonical {
        NotCanonical::Syntax { at: self.at }
    }
}
