//! `scope`, `[jwt]` and `[ask]`: whose key it is.
//!
//! A kind without what it needs is refused, and so is a section that no kind uses: somebody would believe in a check
//! that nobody makes. Left to others: finding the caller of a request.

use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderName, Uri};

use super::choice::JwtAlgorithm;
pub(super) use super::host::is_loopback;
use super::model::{Ask, Jwt, JwtKeys, Place, Scope, ScopeKind, count};
use super::problem::did_you_mean;
use super::reader::{Reader, Section};
use super::secret;
use super::sections::{ca_file, file};
use super::value::{Fault, Value, quoted};
use crate::scope::{KINDS_MAX, USUAL_TENANT_HEADER};

/// A kind as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Word {
    Credential,
    CredentialHeader(HeaderName),
    CredentialCookie(String),
    Header(HeaderName),
    Jwt,
    Ask,
    Single,
}

/// Claims that say nothing of who calls: a retry with a renewed token would be another caller.
const CHANGING_CLAIMS: [&str; 5] = ["exp", "nbf", "iat", "jti", "nonce"];

/// The kinds where nobody names any.
pub(super) fn default_words() -> Vec<Word> {
    vec![Word::Credential]
}

impl Value for Word {
    fn expected() -> String {
        "\"credential\", \"credential:NAME\", \"credential:cookie:NAME\", \"header:NAME\", \"jwt\", \"ask\" or \
         \"single\""
            .to_owned()
    }

    fn parse(text: &str) -> Result<Self, Fault> {
        let header = |name: &str| name.parse().map_err(|_| Fault::not(text));
        match text.split_once(':') {
            Some(("credential", rest)) => match rest.strip_prefix("cookie:") {
                Some(name) if is_cookie_name(name) => Ok(Self::CredentialCookie(name.to_owned())),
                Some(_) => Err(Fault::not(text)),
                None => header(rest).map(Self::CredentialHeader),
            },
            Some(("header", name)) => header(name).map(Self::Header),
            None => match text {
                "credential" => Ok(Self::Credential),
                "jwt" => Ok(Self::Jwt),
                "ask" => Ok(Self::Ask),
                "single" => Ok(Self::Single),
                "header" => Err(Fault::Because("has `header` without a name; write \"header:NAME\"".to_owned())),
                other => Err(unknown(other, other)),
            },
            Some((kind, _)) => Err(unknown(text, kind)),
        }
    }

    fn show(&self) -> String {
        quoted(&match self {
            Self::Credential => "credential".to_owned(),
            Self::CredentialHeader(name) => format!("credential:{name}"),
            Self::CredentialCookie(name) => format!("credential:cookie:{name}"),
            Self::Header(name) => format!("header:{name}"),
            Self::Jwt => "jwt".to_owned(),
            Self::Ask => "ask".to_owned(),
            Self::Single => "single".to_owned(),
        })
    }
}

fn unknown(text: &str, kind: &str) -> Fault {
    Fault::not_but(text, &did_you_mean(kind, ["credential", "header", "jwt", "ask", "single"]))
}

/// A token, as RFC 6265 has it; it has the letters of a header name.
fn is_cookie_name(name: &str) -> bool {
    HeaderName::from_bytes(name.as_bytes()).is_ok()
}

/// The scope, with what its kinds need.
pub(super) fn scope(
    reader: &mut Reader<'_>,
    words: &[Word],
    anonymous: bool,
    jwt: Option<&Jwt>,
    ask: Option<&Ask>,
) -> Scope {
    check_words(reader, words, anonymous);
    if jwt.is_some() && !words.contains(&Word::Jwt) {
        let keys = ["jwt.key_file", "jwt.jwks_file", "jwt.jwks_url"];
        reader.refuse(
            &keys,
            "[jwt] has keys, but `scope` does not name \"jwt\", so no token would be verified; add it to `scope`",
        );
    }
    let mut kinds = Vec::with_capacity(words.len());
    for word in words {
        match word {
            Word::Credential => kinds.push(ScopeKind::Credential),
            Word::CredentialHeader(name) => kinds.push(ScopeKind::CredentialHeader(name.clone())),
            Word::CredentialCookie(name) => kinds.push(ScopeKind::CredentialCookie(name.clone())),
            Word::Header(name) => kinds.push(ScopeKind::Header(name.clone())),
            Word::Jwt => kinds.extend(jwt.cloned().map(ScopeKind::Jwt)),
            Word::Ask => kinds.extend(ask.cloned().map(ScopeKind::Ask)),
            Word::Single => kinds.push(ScopeKind::Single),
        }
    }
    if words.contains(&Word::Jwt) && jwt.is_none() {
        let message = "the scope `jwt` needs a key; set one of `jwt.key_file`, `jwt.jwks_file` and `jwt.jwks_url`";
        reader.refuse(&["scope", "jwt.key_file", "jwt.jwks_file", "jwt.jwks_url"], message);
    }
    if words.contains(&Word::Ask) && ask.is_none() {
        reader.refuse(&["scope", "ask.url"], "the scope `ask` needs an endpoint; set `ask.url`");
    }
    Scope { kinds, anonymous }
}

fn check_words(reader: &mut Reader<'_>, words: &[Word], anonymous: bool) {
    if words.is_empty() {
        let message =
            "`scope` names nothing, and all callers would share their keys; if there is one tenant, write \"single\"";
        reader.refuse(&["scope"], message);
    }
    for (at, word) in words.iter().enumerate() {
        if words[..at].contains(word) {
            reader.refuse(&["scope"], format!("`scope` names {} twice; remove one", word.show()));
        }
    }
    if words.len() > KINDS_MAX {
        let message = format!("`scope` names {} kinds, above the limit of {KINDS_MAX}; remove some", words.len());
        reader.refuse(&["scope"], message);
    }
    if words.len() > 1 && words.contains(&Word::Single) {
        let message =
            "`scope` names \"single\" beside other kinds; one tenant has no other identity, so remove one of them";
        reader.refuse(&["scope"], message);
    }
    for word in words {
        if let Some(why) = unfit(word) {
            reader.refuse(&["scope"], format!("`scope` names {}, {why}", word.show()));
        }
    }
    let is_credential =
        |word: &Word| matches!(word, Word::Credential | Word::CredentialHeader(_) | Word::CredentialCookie(_));
    if anonymous && !words.iter().any(is_credential) {
        let message = "`anonymous` speaks of requests without a credential, but `scope` asks for none; remove it";
        reader.refuse(&["anonymous"], message);
    }
}

/// Why a field cannot say who calls.
fn unfit(word: &Word) -> Option<&'static str> {
    let (name, shown) = match word {
        Word::CredentialHeader(name) => (name.as_str(), false),
        Word::Header(name) => (name.as_str(), true),
        _ => return None,
    };
    match name {
        "idempotency-key" => Some("which is the key and no caller; name another field"),
        "authorization" | "proxy-authorization" | "cookie" if shown => {
            Some("a secret that would be shown to operators; use a `credential` kind")
        }
        "authorization" => Some("for which there is a kind of its own; write \"credential\""),
        "cookie" => Some("which holds many values; write \"credential:cookie:NAME\""),
        "proxy-authorization" => Some("which is meant for a proxy and not for the API; write \"credential\""),
        _ => None,
    }
}

impl Value for Place {
    fn expected() -> String {
        "\"header:NAME\" or \"cookie:NAME\"".to_owned()
    }

    fn parse(text: &str) -> Result<Self, Fault> {
        match text.split_once(':') {
            Some(("header", name)) => name.parse().map(Self::Header).map_err(|_| Fault::not(text)),
            Some(("cookie", name)) if is_cookie_name(name) => Ok(Self::Cookie(name.to_owned())),
            _ => Err(Fault::not(text)),
        }
    }

    fn show(&self) -> String {
        quoted(&match self {
            Self::Header(name) => format!("header:{name}"),
            Self::Cookie(name) => format!("cookie:{name}"),
        })
    }
}

/// Reads `[jwt]`; `None` where it names no key.
pub(super) fn jwt(section: &mut Section<'_, '_>) -> Option<Jwt> {
    let algorithms: Vec<JwtAlgorithm> = section.value("algorithms", Vec::new());
    let key_file: Option<PathBuf> = section.value("key_file", None);
    let jwks_file: Option<PathBuf> = section.value("jwks_file", None);
    let jwks_url: Option<Uri> = section.value("jwks_url", None);
    let audience = section.value("audience", Vec::new());
    let issuer = section.value("issuer", Vec::new());
    let claim = section.value("claim", "sub".to_owned());
    let token_in = section.value("token_in", None);
    let leeway = section.value("leeway", Duration::from_secs(30));
    let ca_file = ca_file(section);
    let named = [
        key_file.map(|path| ("jwt.key_file", JwtKeys::File(path))),
        jwks_file.map(|path| ("jwt.jwks_file", JwtKeys::JwksFile(path))),
        jwks_url.map(|url| ("jwt.jwks_url", JwtKeys::JwksUrl(url))),
    ];
    let mut named = named.into_iter().flatten();
    let (key, keys) = named.next()?;
    for (other, _) in named {
        section.reader.refuse(&[other], format!("`{key}` and `{other}` are both set; remove one"));
    }
    check_algorithms(section.reader, key, &keys, &algorithms);
    check_keys(section.reader, key, &keys, &algorithms);
    if CHANGING_CLAIMS.contains(&claim.as_str()) {
        let message =
            format!("`jwt.claim` is `{claim}`, which differs from token to token; name the one that says who calls");
        section.reader.refuse(&["jwt.claim"], message);
    }
    Some(Jwt { algorithms, keys, audience, issuer, claim, token_in, leeway, ca_file })
}

/// The algorithms are the operator's choice, never the token's; and a public key must not serve as a shared secret.
fn check_algorithms(reader: &mut Reader<'_>, key: &str, keys: &JwtKeys, algorithms: &[JwtAlgorithm]) {
    if algorithms.is_empty() {
        let message = "`jwt.algorithms` names none; name what the issuer signs with, such as \"RS256\"";
        return reader.refuse(&["jwt.algorithms", key], message);
    }
    match keys {
        JwtKeys::File(_) if algorithms.len() > 1 => {
            let message = "`jwt.key_file` holds one key, which fits one of `jwt.algorithms`; name that one only";
            reader.refuse(&["jwt.algorithms", key], message);
        }
        JwtKeys::JwksUrl(_) if algorithms.contains(&JwtAlgorithm::Hs256) => {
            let message =
                "HS256 needs a shared secret, which must not be fetched from `jwt.jwks_url`; use `jwt.key_file`";
            reader.refuse(&["jwt.algorithms", key], message);
        }
        _ => {}
    }
}

fn check_keys(reader: &mut Reader<'_>, key: &str, keys: &JwtKeys, algorithms: &[JwtAlgorithm]) {
    match keys {
        JwtKeys::File(path) | JwtKeys::JwksFile(path) => {
            let shared = algorithms.contains(&JwtAlgorithm::Hs256);
            file(reader, key, path, if shared { secret::check_private } else { secret::check_readable });
        }
        JwtKeys::JwksUrl(url) => {
            let loopback = url.host().is_some_and(is_loopback);
            if url.scheme_str() == Some("http") && !loopback {
                reader.refuse(&[key], "`jwt.jwks_url` is not https, so anyone between could put in keys; use https");
            }
        }
    }
}

/// Reads `[ask]`; `None` where it names no endpoint.
pub(super) fn ask(section: &mut Section<'_, '_>) -> Option<Ask> {
    let url: Option<Uri> = section.value("url", None);
    let passed = ["authorization", "cookie"].map(HeaderName::from_static).to_vec();
    let tenant_header = section.value("tenant_header", HeaderName::from_static(USUAL_TENANT_HEADER));
    let timeout = section.value("timeout", Duration::from_secs(2));
    let pass_headers = section.value("pass_headers", passed);
    let cache = section.value("cache", None);
    let at_once = section.value("at_once", count(64));
    let ca_file = ca_file(section);
    let allow_http = section.value("allow_http", false);
    Some(Ask { url: url?, tenant_header, timeout, pass_headers, cache, at_once, ca_file, allow_http })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_read_and_shown_again() {
        for text in
            ["credential", "credential:x-api-key", "credential:cookie:Sid", "header:x-tenant", "jwt", "ask", "single"]
        {
            assert_eq!(Word::parse(text).unwrap().show(), quoted(text));
        }
    }

    #[test]
    fn a_wrong_kind_is_refused_with_the_one_that_was_meant() {
        assert_eq!(
            Word::parse("credentials"),
            Err(Fault::Not("\"credentials\"; did you mean `credential`?".to_owned()))
        );
        assert_eq!(Word::parse("heder:X"), Err(Fault::Not("\"heder:X\"; did you mean `header`?".to_owned())));
        for text in ["header:", "header:a b", "credential:", "credential:cookie:", "credential:cookie:a=b", "jwt:x", ""]
        {
            assert!(Word::parse(text).is_err(), "{text}");
        }
    }
}
