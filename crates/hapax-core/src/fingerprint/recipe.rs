//! How a fingerprint is made: the recipe a route is configured with, and the text that names it.
//!
//! Why: a fingerprint is stored for days and compared by other nodes and later releases. The text
//! stored beside it, the [`Scheme`], says how to compute it again; whoever cannot read it knows
//! that it cannot compare.
//!
//! The text is a version, the hash, and what differs from the default, in this order:
//!
//! ```text
//! 1;sha256
//! 1;hmac-sha256=key-2026
//! 1;sha256;headers=x-account,x-region;only=/amount,/currency
//! 1;sha256;except=/sent_at
//! 1;sha256;body=ignored
//! ```
//!
//! Names and pointers are sorted and stand once. In pointers `%`, `,`, `;` and whatever is not
//! printable ASCII are percent-encoded. Each recipe has one text, and no other text is read.
//!
//! Left to others: computing (the parent module), and reading configuration.

use crate::canonical_json::{InvalidPointer, Pointer};
use hmac::{Hmac, KeyInit};
use sha2::Sha256;
use std::fmt;
use std::str::FromStr;

/// Longer scheme texts are refused: one is stored with every record.
pub const SCHEME_BYTES_MAX: usize = 1024;

/// Longer key ids are refused: they stand in the scheme of every record.
pub const KEY_ID_BYTES_MAX: usize = 64;

/// Shorter HMAC keys are refused: whoever can try all keys can search for bodies after all.
pub const HMAC_KEY_BYTES_MIN: usize = 16;

/// The version of everything that a scheme text does not say: what is hashed, and in which order.
const VERSION: &str = "1";

/// Text stored beside a digest: the recipe that made it. Any node that knows the recipe can compute
/// the digest again.
///
/// It may name a recipe that this release does not know; [`Recipe::parse`] tells.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Scheme(Box<str>);

/// Why a text is no scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a fingerprint scheme is 1 to {SCHEME_BYTES_MAX} printable ASCII characters without spaces")]
pub struct InvalidScheme;

impl Scheme {
    /// Checks and keeps a scheme text, known to this release or not.
    ///
    /// # Errors
    ///
    /// Where the text is empty, too long, or not printable ASCII.
    pub fn new(text: &str) -> Result<Self, InvalidScheme> {
        let length = (1..=SCHEME_BYTES_MAX).contains(&text.len());
        let printable = text.bytes().all(|byte| byte.is_ascii_graphic());
        if length && printable { Ok(Self(text.into())) } else { Err(InvalidScheme) }
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Scheme {
    type Err = InvalidScheme;

    fn from_str(text: &str) -> Result<Self, InvalidScheme> {
        Self::new(text)
    }
}

/// How to compute a fingerprint. By default: plain SHA-256, no further headers, the whole body.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Recipe {
    /// The HMAC key's id; `None` means plain SHA-256.
    key_id: Option<Box<str>>,
    headers: Vec<Box<str>>,
    body: Body,
}

/// What of the body counts. Pointers are sorted, without repeats, and at least one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Body {
    #[default]
    Whole,
    Only(Vec<Pointer>),
    Except(Vec<Pointer>),
    Ignored,
}

/// Why a recipe or a key cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidRecipe {
    /// A key id has other characters than letters, digits, `.`, `_` and `-`, or a wrong length.
    #[error("a key id is 1 to {KEY_ID_BYTES_MAX} letters, digits, dots, underscores and hyphens")]
    KeyId,
    /// An HMAC key is shorter than [`HMAC_KEY_BYTES_MIN`].
    #[error("an HMAC key has at least {HMAC_KEY_BYTES_MIN} bytes")]
    KeyLength,
    /// A header name is not one.
    #[error("`{0}` is not a header name")]
    Header(String),
    /// A JSON pointer is not one.
    #[error("`{text}` is not a usable JSON pointer")]
    Pointer {
        /// The pointer as given.
        text: String,
        /// What is wrong with it.
        source: InvalidPointer,
    },
    /// A list of JSON pointers is empty.
    #[error("a list of JSON pointers names at least one")]
    NoPointers,
    /// The scheme text would be longer than [`SCHEME_BYTES_MAX`].
    #[error("header names and pointers take more than {SCHEME_BYTES_MAX} bytes together")]
    TooLong,
}

impl Recipe {
    /// The default recipe.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// HMAC-SHA-256 with the key of this id in place of plain SHA-256.
    ///
    /// # Errors
    ///
    /// Where this cannot be a key id, or the scheme gets too long.
    pub fn with_hmac(mut self, key_id: &str) -> Result<Self, InvalidRecipe> {
        check_key_id(key_id)?;
        self.key_id = Some(key_id.into());
        self.check_length()
    }

    /// Headers that count besides those that always do. Names are lower-cased.
    ///
    /// # Errors
    ///
    /// Where one is no header name, or the scheme gets too long.
    pub fn with_headers<N: AsRef<str>>(mut self, names: impl IntoIterator<Item = N>) -> Result<Self, InvalidRecipe> {
        let names = names.into_iter().map(|name| header_name(name.as_ref()));
        self.headers = names.collect::<Result<_, _>>()?;
        self.headers.sort_unstable();
        self.headers.dedup();
        self.check_length()
    }

    /// Of JSON bodies, only what these pointers name counts. Other bodies count whole.
    ///
    /// # Errors
    ///
    /// Where there is none, one is no JSON pointer, or the scheme gets too long.
    pub fn with_only<P: AsRef<str>>(mut self, pointers: impl IntoIterator<Item = P>) -> Result<Self, InvalidRecipe> {
        self.body = Body::Only(read_pointers(pointers)?);
        self.check_length()
    }

    /// Of JSON bodies, all but what these pointers name counts. Other bodies count whole.
    ///
    /// # Errors
    ///
    /// Where there is none, one is no JSON pointer, or the scheme gets too long.
    pub fn with_except<P: AsRef<str>>(mut self, pointers: impl IntoIterator<Item = P>) -> Result<Self, InvalidRecipe> {
        self.body = Body::Except(read_pointers(pointers)?);
        self.check_length()
    }

    /// The body does not count at all.
    ///
    /// # Errors
    ///
    /// Where the scheme gets too long.
    pub fn without_body(mut self) -> Result<Self, InvalidRecipe> {
        self.body = Body::Ignored;
        self.check_length()
    }

    /// A recipe under which two requests are the same only if they are under each of both: the headers of both count, and
    /// of the body the whole before parts of it, parts before nothing, and the whole where they name different parts. With
    /// a key if one has a key. Where the scheme would get too long, the whole body counts, and at last only the headers of
    /// this one.
    #[must_use]
    pub fn stricter(&self, other: &Self) -> Self {
        let body = match (&self.body, &other.body) {
            (one, other) if one == other => one.clone(),
            (Body::Ignored, counted) | (counted, Body::Ignored) => counted.clone(),
            _ => Body::Whole,
        };
        let key_id = self.key_id.as_ref().or(other.key_id.as_ref());
        let mut headers = [self.headers.as_slice(), &other.headers].concat();
        headers.sort_unstable();
        headers.dedup();
        let both = Self { key_id: key_id.cloned(), headers, body };
        let whole = Self { body: Body::Whole, ..both.clone() };
        let own = Self { body: Body::Whole, ..self.clone() };
        both.check_length().or_else(|_| whole.check_length()).unwrap_or(own)
    }

    /// The text that names this recipe.
    #[must_use]
    pub fn scheme(&self) -> Scheme {
        Scheme(self.text().into())
    }

    /// The recipe that a text names; `None` where this release does not know it.
    #[must_use]
    pub fn parse(scheme: &Scheme) -> Option<Self> {
        let mut parts = scheme.as_str().split(';');
        if parts.next() != Some(VERSION) {
            return None;
        }
        let mut recipe = match parts.next()?.split_once('=') {
            None => Self::new(),
            Some((_, key_id)) => Self::new().with_hmac(key_id).ok()?,
        };
        for part in parts {
            let (option, value) = part.split_once('=')?;
            let values = value.split(',');
            recipe = match option {
                "headers" => recipe.with_headers(values),
                "only" => recipe.with_only(values.map(decode).collect::<Option<Vec<_>>>()?),
                "except" => recipe.with_except(values.map(decode).collect::<Option<Vec<_>>>()?),
                "body" => recipe.without_body(),
                _ => return None,
            }
            .ok()?;
        }
        // Reading is lenient; what makes it exact is that only a recipe's own text is accepted.
        (recipe.text() == scheme.as_str()).then_some(recipe)
    }

    /// The id of the HMAC key, where there is one.
    #[must_use]
    pub fn key_id(&self) -> Option<&str> {
        self.key_id.as_deref()
    }

    /// Lower-case, sorted, without repeats.
    pub(super) fn headers(&self) -> impl ExactSizeIterator<Item = &str> {
        self.headers.iter().map(AsRef::as_ref)
    }

    pub(super) fn body(&self) -> &Body {
        &self.body
    }

    fn text(&self) -> String {
        let mut text = match &self.key_id {
            None => format!("{VERSION};sha256"),
            Some(id) => format!("{VERSION};hmac-sha256={id}"),
        };
        if !self.headers.is_empty() {
            text.push_str(";headers=");
            text.push_str(&self.headers.join(","));
        }
        match &self.body {
            Body::Whole => {}
            Body::Only(pointers) => push_pointers(&mut text, ";only=", pointers),
            Body::Except(pointers) => push_pointers(&mut text, ";except=", pointers),
            Body::Ignored => text.push_str(";body=ignored"),
        }
        text
    }

    fn check_length(self) -> Result<Self, InvalidRecipe> {
        if self.text().len() <= SCHEME_BYTES_MAX { Ok(self) } else { Err(InvalidRecipe::TooLong) }
    }
}

/// A secret for fingerprints, so that a leaked store cannot be searched for guessable bodies.
///
/// Its id is stored with every fingerprint, the secret never. Keep a key for as long as records
/// made with it are kept: without it their requests cannot be recognised.
#[derive(Clone)]
pub struct HmacKey {
    id: Box<str>,
    /// HMAC-SHA-256 that has taken in the secret, and nothing else yet.
    keyed: Hmac<Sha256>,
}

impl HmacKey {
    /// A key with its id.
    ///
    /// # Errors
    ///
    /// Where this cannot be an id, or the key is too short.
    pub fn new(id: &str, bytes: &[u8]) -> Result<Self, InvalidRecipe> {
        check_key_id(id)?;
        if bytes.len() < HMAC_KEY_BYTES_MIN {
            return Err(InvalidRecipe::KeyLength);
        }
        let keyed = Hmac::new_from_slice(bytes).map_err(|_| InvalidRecipe::KeyLength)?;
        Ok(Self { id: id.into(), keyed })
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn keyed(&self) -> Hmac<Sha256> {
        self.keyed.clone()
    }
}

impl fmt::Debug for HmacKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HmacKey").field("id", &self.id).finish_non_exhaustive()
    }
}

fn check_key_id(id: &str) -> Result<(), InvalidRecipe> {
    let length = (1..=KEY_ID_BYTES_MAX).contains(&id.len());
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    if length && id.bytes().all(plain) { Ok(()) } else { Err(InvalidRecipe::KeyId) }
}

/// The name in lower case, if RFC 9110 allows it.
fn header_name(name: &str) -> Result<Box<str>, InvalidRecipe> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || !name.bytes().all(allowed) {
        return Err(InvalidRecipe::Header(name.to_owned()));
    }
    Ok(name.to_ascii_lowercase().into())
}

fn read_pointers<P: AsRef<str>>(texts: impl IntoIterator<Item = P>) -> Result<Vec<Pointer>, InvalidRecipe> {
    let read = |text: P| {
        let text = text.as_ref();
        Pointer::new(text).map_err(|source| InvalidRecipe::Pointer { text: text.to_owned(), source })
    };
    let mut pointers = texts.into_iter().map(read).collect::<Result<Vec<_>, _>>()?;
    if pointers.is_empty() {
        return Err(InvalidRecipe::NoPointers);
    }
    pointers.sort_unstable();
    pointers.dedup();
    Ok(pointers)
}

fn push_pointers(text: &mut String, option: &str, pointers: &[Pointer]) {
    text.push_str(option);
    for (index, pointer) in pointers.iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        encode(pointer.as_str(), text);
    }
}

/// Percent-encodes what would end a pointer, or may not stand in a scheme.
fn encode(pointer: &str, text: &mut String) {
    for byte in pointer.bytes() {
        if byte.is_ascii_graphic() && !matches!(byte, b'%' | b',' | b';') {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
}

fn decode(encoded: &str) -> Option<String> {
    let mut parts = encoded.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(bytes).ok()
}
