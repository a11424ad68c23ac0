//! Fingerprints: what must be equal for two requests to be the same request.
//!
//! Why: a key that comes back with another request is a mistake of the client's, and neither run
//! nor answered from the record. A key that comes back with the same request is a retry.
//!
//! # What counts
//!
//! Method, authority, path, query, `Content-Type`, `Content-Encoding` and `If-Match`, each byte by
//! byte as given (`application/json` and `application/json; charset=utf-8` differ); the headers
//! that the [`Recipe`] names; and the body. Nothing else does: not `Accept`, not dates or tracing,
//! not credentials, which decide whose record it is. Where the body is ignored, so is the boundary
//! in the content type of a multipart one: it stands for a way to write that body.
//!
//! A body counts in its [canonical form](crate::canonical_json) where its content type is
//! `application/json` or ends in `+json`, no content encoding was applied (nothing is ever
//! decompressed), and it has one. Every other body counts byte by byte: forms, invalid JSON,
//! duplicate member names.
//!
//! # What is hashed
//!
//! The scheme text, then the parts above in that order. Bytes are preceded by their length (64
//! bits, little endian), so that no two lists of parts run together into the same bytes. What may
//! be absent is preceded by one byte, 0 for absent and 1 for present; headers by the number of
//! their values. The body is preceded by one byte that says in which way it counts. A change of
//! any of this is a new version in the scheme text.
//!
//! Left to others: bringing the authority and path into one spelling, joining the lines of a
//! repeated `Content-Type`, and what follows from a mismatch.
//!
//! ```
//! use hapax_core::fingerprint::{Fingerprinter, Fingerprints, Recipe, Request};
//!
//! let first = br#"{"amount": 10.0, "currency": "EUR"}"#;
//! let mut request = Request {
//!     authority: "api.example.com",
//!     content_type: Some(b"application/json"),
//!     ..Request::new("POST", "/payments", first)
//! };
//! let recipe = Recipe::new();
//! let stored = Fingerprinter::new(request, &recipe, &[])?.current();
//! assert_eq!(stored.scheme.as_str(), "1;sha256");
//!
//! request.body = br#"{"currency":"EUR","amount":10}"#;
//! let retry = Fingerprinter::new(request, &recipe, &[])?;
//! assert_eq!(retry.under(&stored.scheme), Some(stored.clone()));
//!
//! request.body = br#"{"currency":"EUR","amount":11}"#;
//! let other = Fingerprinter::new(request, &recipe, &[])?;
//! assert_ne!(other.under(&stored.scheme), Some(stored));
//! # Ok::<(), hapax_core::fingerprint::UnknownKey>(())
//! ```

mod recipe;

pub use recipe::{
    HMAC_KEY_BYTES_MIN, HmacKey, InvalidRecipe, InvalidScheme, KEY_ID_BYTES_MAX, Recipe, SCHEME_BYTES_MAX, Scheme,
};

use crate::canonical_json::{Paths, Pointer, canonicalise, without};
use hmac::{Hmac, Mac};
use recipe::Body;
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::fmt;
use std::sync::OnceLock;

/// A request reduced to 32 bytes, with the recipe that did it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Fingerprint {
    /// How the digest was made.
    pub scheme: Scheme,
    /// The digest.
    pub digest: [u8; 32],
}

impl Fingerprint {
    /// Whether the digest equals another one made under the same scheme.
    ///
    /// Takes the same time wherever they differ, so that the answer does not tell how much of a
    /// keyed digest was guessed.
    #[must_use]
    pub fn matches(&self, other: &[u8; 32]) -> bool {
        let differences = self.digest.iter().zip(other).fold(0, |all, (a, b)| all | (a ^ b));
        std::hint::black_box(differences) == 0
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, ..] = self.digest;
        write!(f, "Fingerprint({} {a:02x}{b:02x}{c:02x}{d:02x}…)", self.scheme)
    }
}

/// A request that can tell its fingerprint, under any scheme that this node knows.
///
/// A record keeps the scheme that it was made with. While a route's recipe changes, old records
/// are compared under theirs.
pub trait Fingerprints: fmt::Debug + Send + Sync {
    /// The fingerprint that a new record gets.
    fn current(&self) -> Fingerprint;

    /// The fingerprint under the scheme of a record. `None`: this node does not recognise the
    /// scheme, or does not have its key.
    fn under(&self, scheme: &Scheme) -> Option<Fingerprint>;
}

/// For callers that have one fixed digest.
impl Fingerprints for Fingerprint {
    fn current(&self) -> Fingerprint {
        self.clone()
    }

    fn under(&self, scheme: &Scheme) -> Option<Fingerprint> {
        (*scheme == self.scheme).then(|| self.clone())
    }
}

/// The parts of a request that can count.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// As sent: `POST`.
    pub method: &'a str,
    /// Host and port that the request is meant for.
    pub authority: &'a str,
    /// Without the query.
    pub path: &'a str,
    /// What follows the question mark, as sent; `None` where there is none.
    pub query: Option<&'a str>,
    /// The header's value, byte by byte.
    pub content_type: Option<&'a [u8]>,
    /// The header's value, byte by byte.
    pub content_encoding: Option<&'a [u8]>,
    /// The header's value, byte by byte.
    pub if_match: Option<&'a [u8]>,
    /// Where the headers that a recipe names are looked up, in any case: all there are, in order
    /// and with repeats.
    pub headers: &'a [(&'a str, &'a [u8])],
    /// The body as received, still encoded if it was.
    pub body: &'a [u8],
}

/// Shows no values of headers and no body: they may be secret.
impl fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("method", &self.method)
            .field("authority", &self.authority)
            .field("path", &self.path)
            .field("body_bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

impl<'a> Request<'a> {
    /// A request of which only method, path and body count: the authority is empty, the rest absent.
    #[must_use]
    pub fn new(method: &'a str, path: &'a str, body: &'a [u8]) -> Self {
        Self {
            method,
            authority: "",
            path,
            query: None,
            content_type: None,
            content_encoding: None,
            if_match: None,
            headers: &[],
            body,
        }
    }

    fn is_plain_json(&self) -> bool {
        let plain = match self.content_encoding {
            None => true,
            Some(encoding) => encoding.trim_ascii().eq_ignore_ascii_case(b"identity"),
        };
        plain && self.content_type.is_some_and(is_json)
    }
}

/// Computes the fingerprints of one request, under the route's own recipe or the one a record was
/// stored with. Each part of the work is done once, when it is first needed.
#[derive(Debug)]
pub struct Fingerprinter<'a> {
    request: Request<'a>,
    recipe: &'a Recipe,
    /// The key that the recipe names.
    key: Option<&'a HmacKey>,
    /// For other recipes.
    keys: &'a [HmacKey],
    current: OnceLock<Fingerprint>,
    canonical_body: OnceLock<Option<Hidden>>,
}

/// The route's recipe names a key that this node does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no fingerprint key with the id `{id}`")]
pub struct UnknownKey {
    /// The key's id.
    pub id: String,
}

impl<'a> Fingerprinter<'a> {
    /// Fingerprints of `request`, by default under `recipe`. `keys` holds all the keys that records
    /// may have been made with.
    ///
    /// # Errors
    ///
    /// Where the recipe names a key that is not among them.
    pub fn new(request: Request<'a>, recipe: &'a Recipe, keys: &'a [HmacKey]) -> Result<Self, UnknownKey> {
        let key = find_key(recipe, keys)?;
        let (current, canonical_body) = (OnceLock::new(), OnceLock::new());
        Ok(Self { request, recipe, key, keys, current, canonical_body })
    }

    fn fingerprint(&self, recipe: &Recipe, key: Option<&HmacKey>) -> Fingerprint {
        let scheme = recipe.scheme();
        let mut parts = Parts::new(key);
        parts.bytes(scheme.as_str().as_bytes());
        self.put_head(recipe, &mut parts);
        self.put_body(recipe.body(), &mut parts);
        Fingerprint { scheme, digest: parts.digest() }
    }

    fn put_head(&self, recipe: &Recipe, parts: &mut Parts) {
        let request = &self.request;
        parts.bytes(request.method.as_bytes());
        parts.bytes(request.authority.as_bytes());
        parts.bytes(request.path.as_bytes());
        parts.optional(request.query.map(str::as_bytes));
        match (request.content_type, recipe.body()) {
            (Some(multipart), Body::Ignored) => parts.optional(Some(&without_boundary(multipart))),
            (content_type, _) => parts.optional(content_type),
        }
        parts.optional(request.content_encoding);
        parts.optional(request.if_match);
        for name in recipe.headers() {
            let named = || request.headers.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name));
            parts.number(named().count());
            named().for_each(|(_, value)| parts.bytes(value));
        }
    }

    fn put_body(&self, body: &Body, parts: &mut Parts) {
        if *body == Body::Ignored {
            return parts.tag(Tag::Ignored);
        }
        match (self.canonical_body(), body) {
            (Some(document), Body::Only(pointers)) => {
                parts.tag(Tag::Selected);
                put_selected(document, pointers, parts);
            }
            (Some(document), Body::Except(pointers)) => {
                parts.tag(Tag::Remaining);
                parts.bytes(&without(document, &Paths::new(pointers)));
            }
            (Some(document), _) => {
                parts.tag(Tag::CanonicalJson);
                parts.bytes(document);
            }
            (None, _) => {
                parts.tag(Tag::Raw);
                parts.bytes(self.request.body);
            }
        }
    }

    fn canonical_body(&self) -> Option<&[u8]> {
        let canonicalised = self.canonical_body.get_or_init(|| {
            let is_json = self.request.is_plain_json();
            if is_json { canonicalise(self.request.body).ok().map(Hidden) } else { None }
        });
        canonicalised.as_ref().map(|Hidden(bytes)| bytes.as_slice())
    }
}

impl Fingerprints for Fingerprinter<'_> {
    fn current(&self) -> Fingerprint {
        self.current.get_or_init(|| self.fingerprint(self.recipe, self.key)).clone()
    }

    fn under(&self, scheme: &Scheme) -> Option<Fingerprint> {
        let current = self.current();
        if current.scheme == *scheme {
            return Some(current);
        }
        let recipe = Recipe::parse(scheme)?;
        if recipe == *self.recipe {
            return Some(self.current());
        }
        let key = find_key(&recipe, self.keys).ok()?;
        Some(self.fingerprint(&recipe, key))
    }
}

/// Writes the values that the pointers name, in the order of the pointers; absent is not null.
fn put_selected(document: &[u8], pointers: &[Pointer], parts: &mut Parts) {
    let mut values = vec![None; pointers.len()];
    for found in Paths::new(pointers).find(document) {
        values[found.pointer] = Some(&document[found.value]);
    }
    values.into_iter().for_each(|value| parts.optional(value));
}

fn find_key<'k>(recipe: &Recipe, keys: &'k [HmacKey]) -> Result<Option<&'k HmacKey>, UnknownKey> {
    let Some(id) = recipe.key_id() else { return Ok(None) };
    match keys.iter().find(|key| key.id() == id) {
        Some(key) => Ok(Some(key)),
        None => Err(UnknownKey { id: id.to_owned() }),
    }
}

/// Whether a content type is `application/json` or ends in `+json`. Parameters do not matter.
fn is_json(content_type: &[u8]) -> bool {
    let end = content_type.iter().position(|byte| *byte == b';').unwrap_or(content_type.len());
    let media_type = content_type[..end].trim_ascii().to_ascii_lowercase();
    media_type == b"application/json" || (media_type.ends_with(b"+json") && media_type.contains(&b'/'))
}

/// A multipart content type without its boundary; every other one as it is.
fn without_boundary(content_type: &[u8]) -> Cow<'_, [u8]> {
    let is_multipart = content_type.get(..10).is_some_and(|kind| kind.eq_ignore_ascii_case(b"multipart/"));
    let parts = parameters(content_type).filter(|_| is_multipart).unwrap_or_default();
    let is_boundary = |part: &[u8]| {
        let name = part.split(|byte| *byte == b'=').next().unwrap_or_default();
        name.trim_ascii().eq_ignore_ascii_case(b"boundary")
    };
    if parts.iter().any(|part| is_boundary(part)) {
        let others: Vec<&[u8]> = parts.into_iter().filter(|part| !is_boundary(part)).collect();
        return Cow::Owned(others.join(&b';'));
    }
    Cow::Borrowed(content_type)
}

/// What stands between the semicolons that are not quoted. `None` where it is a list of several values: that says
/// more than one thing, and all of it counts.
fn parameters(content_type: &[u8]) -> Option<Vec<&[u8]>> {
    let (mut parts, mut from, mut quoted, mut escaped) = (Vec::new(), 0, false, false);
    for (at, byte) in content_type.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b',' if !quoted => return None,
            b';' if !quoted => {
                parts.push(&content_type[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&content_type[from..]);
    Some(parts)
}

/// In which way a body counts. The numbers are hashed.
#[derive(Clone, Copy)]
enum Tag {
    Raw = 0,
    CanonicalJson = 1,
    Selected = 2,
    Remaining = 3,
    Ignored = 4,
}

/// Takes in parts such that different lists of parts are different bytes.
enum Parts {
    Plain(Sha256),
    Keyed(Hmac<Sha256>),
}

impl Parts {
    fn new(key: Option<&HmacKey>) -> Self {
        key.map_or_else(|| Self::Plain(Sha256::new()), |key| Self::Keyed(key.keyed()))
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len());
        self.update(bytes);
    }

    fn optional(&mut self, bytes: Option<&[u8]>) {
        self.update(&[u8::from(bytes.is_some())]);
        if let Some(bytes) = bytes {
            self.bytes(bytes);
        }
    }

    fn number(&mut self, number: usize) {
        self.update(&(number as u64).to_le_bytes());
    }

    fn tag(&mut self, tag: Tag) {
        self.update(&[tag as u8]);
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Plain(hash) => Digest::update(hash, bytes),
            Self::Keyed(hash) => Mac::update(hash, bytes),
        }
    }

    fn digest(self) -> [u8; 32] {
        match self {
            Self::Plain(hash) => hash.finalize().into(),
            Self::Keyed(hash) => hash.finalize().into_bytes().into(),
        }
    }
}

/// Bytes that debug output must not show.
struct Hidden(Vec<u8>);

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}
