//! What a 401 asks for: the value of `WWW-Authenticate` (RFC 9110, 11.6.1), in the words of RFC 6750 for bearer tokens.
//!
//! Without credentials the challenge names no error; with a token that is not accepted it says `invalid_token`, which is
//! what SDKs look for before they get a new one. No `Basic` is offered: it makes a browser ask its user for a password in
//! the middle of a page, and clients that use Basic send it without being asked.

use http::HeaderValue;
use http::header::{HeaderMap, WWW_AUTHENTICATE};

use super::field::HeaderOrCookie;

/// A longer challenge of an authentication endpoint is not passed on: it goes into the head of every refusal.
const CHALLENGE_BYTES_MAX: usize = 1024;

/// The value of `WWW-Authenticate`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Challenge(HeaderValue);

impl Challenge {
    /// For a request without a bearer token.
    #[must_use]
    pub fn bearer() -> Self {
        Self(HeaderValue::from_static("Bearer realm=\"api\""))
    }

    /// For a token that is not accepted.
    #[must_use]
    pub fn invalid_token(detail: &str) -> Self {
        let text =
            format!("Bearer realm=\"api\", error=\"invalid_token\", error_description=\"{}\"", described(detail));
        HeaderValue::from_str(&text).map_or_else(|_| Self::bearer(), Self)
    }

    /// For a request without the secret that a header or cookie of its own holds. There is no registered scheme for it.
    #[must_use]
    pub fn secret_in(from: &HeaderOrCookie) -> Self {
        let text = match from {
            HeaderOrCookie::Header(name) => format!("ApiKey realm=\"api\", header=\"{name}\""),
            HeaderOrCookie::Cookie(name) => format!("Cookie realm=\"api\", cookie-name=\"{}\"", described(name)),
        };
        HeaderValue::from_str(&text).map_or_else(|_| Self::bearer(), Self)
    }

    /// What an authentication endpoint asks for, if it says so in a way that can be passed on.
    pub(super) fn of_answer(headers: &HeaderMap) -> Option<Self> {
        let lines: Vec<&[u8]> = headers.get_all(WWW_AUTHENTICATE).iter().map(HeaderValue::as_bytes).collect();
        let joined = lines.join(b", ".as_slice());
        let is_sound = joined.iter().all(|byte| matches!(byte, b' '..=b'~'));
        let fits = !joined.is_empty() && joined.len() <= CHALLENGE_BYTES_MAX && is_sound;
        if fits { HeaderValue::from_bytes(&joined).ok().map(Self) } else { None }
    }

    /// The value of the field.
    #[must_use]
    pub fn value(&self) -> &HeaderValue {
        &self.0
    }
}

/// The characters that RFC 6750 (section 3) allows in a description; others become apostrophes.
fn described(text: &str) -> String {
    text.chars()
        .map(|letter| if matches!(letter, ' '..='~') && !"\"\\".contains(letter) { letter } else { '\'' })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_stays_inside_its_quotes() {
        let challenge = Challenge::invalid_token("the claim `a\"b\\` is\nmissing");
        let expected =
            "Bearer realm=\"api\", error=\"invalid_token\", error_description=\"the claim `a'b'` is'missing\"";
        assert_eq!(challenge.value(), expected);
    }

    #[test]
    fn a_challenge_of_an_endpoint_is_passed_on_unless_it_is_too_long_or_strange() {
        let of = |lines: &[&[u8]]| {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(WWW_AUTHENTICATE, HeaderValue::from_bytes(line).unwrap());
            }
            Challenge::of_answer(&headers).map(|challenge| challenge.value().clone())
        };
        assert_eq!(of(&[b"Basic realm=\"x\"", b"Bearer"]).unwrap(), "Basic realm=\"x\", Bearer");
        assert_eq!((of(&[]), of(&[b""])), (None, None));
        assert_eq!((of(&[&[b'a'; 1025]]), of(&[b"Basic \xff"])), (None, None));
    }
}
