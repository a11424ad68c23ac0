//! The kinds `credential` and `credential:NAME`: a secret that the caller sends unchanged with every request.
//!
//! The upstream checks the secret; hapax only tells callers apart by it. That works for secrets that stay the same
//! between a request and its retry: Basic credentials, opaque bearer tokens, API keys. Everything else is refused here,
//! because with a value that changes, the retry would be another caller's request and run a second time.

use http::header::{AUTHORIZATION, HeaderMap};

use super::advice;
use super::challenge::Challenge;
use super::field::{HeaderOrCookie, Unread, one_header};
use super::part::Part;
use super::refusal::Refusal;
use super::token_shape::{TOKEN_BYTES_MAX, basic_decoded, holds_token};

/// All callers without a credential, where the configuration says that they are one.
const ANONYMOUS: Part = Part::Word("anonymous");

/// Schemes that sign every request anew. Named in refusals, so spelt here: what a caller sent is never repeated.
const SIGNED_PER_REQUEST: [&str; 6] = ["AWS4-HMAC-SHA256", "DPoP", "Digest", "Signature", "Hawk", "OAuth"];

/// The caller by `Authorization`.
pub(super) fn of_authorization(headers: &HeaderMap, anonymous: bool) -> Result<Part, Refusal> {
    let value = match one_header(headers, &AUTHORIZATION) {
        Ok(value) => value,
        Err(Unread::Absent) if anonymous => return Ok(ANONYMOUS),
        Err(Unread::Absent) => return Err(absent()),
        Err(unread) => return Err(unread_authorization(unread)),
    };
    let (scheme, secret) = scheme_and_secret(value)?;
    refuse_token(value, "Authorization")?;
    Ok(Part::Secret { source: format!("authorization {scheme}"), value: secret.to_vec() })
}

/// The caller by a secret that stands somewhere else.
pub(super) fn of_field(from: &HeaderOrCookie, headers: &HeaderMap, anonymous: bool) -> Result<Part, Refusal> {
    let name = from.name();
    match from.read(headers) {
        Ok(secret) => {
            refuse_token(secret, &name)?;
            Ok(Part::Secret { source: name, value: secret.to_vec() })
        }
        Err(Unread::Absent) if anonymous => Ok(ANONYMOUS),
        Err(unread @ (Unread::Absent | Unread::Empty)) => {
            Err(Refusal::unauthorized(Challenge::secret_in(from), unread.detail(&name)))
        }
        Err(unread) => Err(Refusal::invalid(unread.detail(&name))),
    }
}

/// The bearer token of a request, for those who verify it.
pub(super) fn bearer(headers: &HeaderMap) -> Result<&[u8], Refusal> {
    match one_header(headers, &AUTHORIZATION) {
        Ok(value) if known_scheme(value).is_none() => Err(not_bearer()),
        Ok(value) => match scheme_and_secret(value)? {
            ("bearer", token) => Ok(token),
            _ => Err(not_bearer()),
        },
        Err(Unread::Absent) => Err(Refusal::unauthorized(
            Challenge::bearer(),
            "the request has no Authorization; send `Authorization: Bearer <token>`",
        )),
        Err(unread) => Err(unread_authorization(unread)),
    }
}

/// RFC 6750 (section 3.1): another way to authenticate counts as none, and the challenge names no error.
fn not_bearer() -> Refusal {
    let detail = "the Authorization is not a bearer token; send `Authorization: Bearer <token>`";
    Refusal::unauthorized(Challenge::bearer(), detail)
}

/// An empty field is as good as none.
fn unread_authorization(unread: Unread) -> Refusal {
    let detail = unread.detail("Authorization");
    match unread {
        Unread::Absent | Unread::Empty => Refusal::unauthorized(Challenge::bearer(), detail),
        Unread::Repeated | Unread::Padded => Refusal::invalid(detail),
    }
}

/// The scheme in one spelling, and what follows it unchanged.
fn scheme_and_secret(value: &[u8]) -> Result<(&'static str, &[u8]), Refusal> {
    let (scheme, rest) = split_scheme(value);
    let Some(known) = known_scheme(value) else { return Err(other_scheme(scheme)) };
    let secret = rest.trim_ascii_start();
    if secret.is_empty() {
        let detail = "the Authorization has a scheme but no credential; send one after the scheme";
        return Err(Refusal::unauthorized(Challenge::bearer(), detail));
    }
    if !secret.iter().all(|byte| byte.is_ascii_graphic() && *byte != b',') {
        return Err(Refusal::invalid("the Authorization holds more than one credential; send exactly one"));
    }
    Ok((known, secret))
}

fn split_scheme(value: &[u8]) -> (&[u8], &[u8]) {
    value.split_at(value.iter().position(|byte| *byte == b' ').unwrap_or(value.len()))
}

/// The scheme, if it is one whose credentials stay the same.
fn known_scheme(value: &[u8]) -> Option<&'static str> {
    let (scheme, _) = split_scheme(value);
    ["basic", "bearer"].into_iter().find(|known| scheme.eq_ignore_ascii_case(known.as_bytes()))
}

fn other_scheme(scheme: &[u8]) -> Refusal {
    advice::OTHER_SCHEME.log();
    let signed = SIGNED_PER_REQUEST.into_iter().find(|known| scheme.eq_ignore_ascii_case(known.as_bytes()));
    Refusal::invalid(match signed {
        Some(name) => format!(
            "the Authorization scheme {name} signs every request anew, so a retry could not be recognised by it; send \
             Basic or Bearer credentials"
        ),
        None => {
            "the Authorization is neither Basic nor Bearer, so it may change between a request and its retry; send \
                 Basic or Bearer credentials"
                .to_owned()
        }
    })
}

/// Refuses what is or holds a token, also where a scheme or a user stands before it.
fn refuse_token(secret: &[u8], name: &str) -> Result<(), Refusal> {
    if secret.len() > TOKEN_BYTES_MAX {
        return Err(Refusal::invalid(format!("the credential in `{name}` is over 16 KiB; send a shorter one")));
    }
    let in_basic = || after_basic(secret).and_then(basic_decoded).is_some_and(|said| holds_token(&said));
    if holds_token(secret) || in_basic() {
        advice::TOKEN_AS_CREDENTIAL.log();
        return Err(Refusal::invalid(format!(
            "the credential in `{name}` is a JSON Web Token, which is renewed, so a retry could carry another one; send \
             a credential that stays the same, or ask the operator of this API to accept tokens"
        )));
    }
    Ok(())
}

/// What follows the word `Basic`: some clients send their token there, as the password.
fn after_basic(secret: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = secret.split_at_checked("basic".len())?;
    let follows = scheme.eq_ignore_ascii_case(b"basic") && rest.first().is_some_and(u8::is_ascii_whitespace);
    follows.then(|| rest.trim_ascii())
}

fn absent() -> Refusal {
    advice::NO_CREDENTIAL.log();
    let detail = "the request has no Authorization, so it cannot be said whose key this is; send the credentials that this \
                  API asks for";
    Refusal::unauthorized(Challenge::bearer(), detail)
}
