//! The kind `jwt`: a claim of a token whose signature hapax has verified.
//!
//! Which algorithms and keys count is configured; the token has no say. The times are checked against a clock that is
//! passed in. Where tokens of several issuers are accepted, the issuer is part of the identity, because a subject is
//! unique within its issuer only; a single one is part of the scheme. Where keys come from is left to `jwt_keys` and
//! `jwks_url`.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hapax_core::clock::Clock;
use http::header::HeaderMap;
use jsonwebtoken::crypto::verify;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::advice;
use super::challenge::Challenge;
use super::credential::bearer;
use super::fetch::without_query;
use super::field::{HeaderOrCookie, Unread};
use super::jwks_url::JwksUrl;
use super::jwt_keys::{JwtAlgorithm, VerifyingKey, of_file, of_set_file};
use super::part::Part;
use super::refusal::{Refusal, ScopeConfigError};
use super::token_shape::{Claimed, TOKEN_BYTES_MAX, claimed, decoded, is_signed};

/// Claims that differ from token to token: none of them says who calls.
const CHANGING: [&str; 5] = ["exp", "nbf", "iat", "jti", "nonce"];

/// Where the keys are.
#[derive(Clone, PartialEq, Eq)]
pub enum JwtKeys {
    /// A file with one key: a secret for HS256 (one line end at its end is not part of it), else a public key in PEM.
    File(PathBuf),
    /// A file with a JSON Web Key Set.
    SetFile(PathBuf),
    /// A URL with a JSON Web Key Set. Not for HS256: its secrets are not to be published.
    SetUrl {
        /// `http://…` or `https://…`.
        url: String,
        /// Certificates to trust beside the host's, in PEM.
        ca_file: Option<PathBuf>,
    },
}

/// Without the query of the URL, which may hold a secret.
impl fmt::Debug for JwtKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(file) => f.debug_tuple("File").field(file).finish(),
            Self::SetFile(file) => f.debug_tuple("SetFile").field(file).finish(),
            Self::SetUrl { url, ca_file } => {
                f.debug_struct("SetUrl").field("url", &without_query(url)).field("ca_file", ca_file).finish()
            }
        }
    }
}

/// Which tokens count, and what in them says who calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JwtOptions {
    /// Where the keys are.
    pub keys: JwtKeys,
    /// Accepted signatures. One for [`JwtKeys::File`].
    pub algorithms: Vec<JwtAlgorithm>,
    /// Accepted issuers. None given: any issuer that the keys verify, and the issuer is part of the identity.
    pub issuers: Vec<String>,
    /// Accepted audiences; a token must have one of them. None given: only tokens without an audience.
    pub audiences: Vec<String>,
    /// The claim that says who calls. Default `sub`.
    pub claim: String,
    /// Where the token stands, if not in `Authorization: Bearer`.
    pub from: Option<HeaderOrCookie>,
    /// How far clocks may differ. Default 30 s.
    pub leeway: Duration,
}

impl JwtOptions {
    /// Tokens signed so, verified with these keys.
    #[must_use]
    pub fn new(keys: JwtKeys, algorithms: Vec<JwtAlgorithm>) -> Self {
        Self {
            keys,
            algorithms,
            issuers: Vec::new(),
            audiences: Vec::new(),
            claim: "sub".to_owned(),
            from: None,
            leeway: Duration::from_secs(30),
        }
    }
}

enum Keys {
    Fixed(Vec<VerifyingKey>),
    Url(Arc<JwksUrl>),
}

pub(super) struct Jwt {
    keys: Keys,
    options: JwtOptions,
    clock: Arc<dyn Clock>,
}

impl Jwt {
    pub(super) fn new(options: JwtOptions, clock: &Arc<dyn Clock>) -> Result<Self, ScopeConfigError> {
        check(&options)?;
        let keys = match &options.keys {
            JwtKeys::File(file) => match options.algorithms.as_slice() {
                [algorithm] => Keys::Fixed(vec![of_file(file, *algorithm)?]),
                _ => return Err(unfit("a key file serves one algorithm", "name one algorithm, or use a key set")),
            },
            JwtKeys::SetFile(file) => Keys::Fixed(of_set_file(file, &options.algorithms)?),
            JwtKeys::SetUrl { url, ca_file } => {
                Keys::Url(JwksUrl::new(url, ca_file.as_deref(), &options.algorithms, clock)?)
            }
        };
        Ok(Self { keys, options, clock: clock.clone() })
    }

    /// The claim and whose it is: what an address depends on.
    pub(super) fn scheme(&self) -> String {
        let claim = &self.options.claim;
        match self.options.issuers.as_slice() {
            [issuer] => format!("jwt:{claim}@{}", crate::logs::hex(&Sha256::digest(issuer)[..4])),
            _ => format!("jwt:iss+{claim}"),
        }
    }

    /// Begins with the keys of another, if they come from the same URL and serve the same algorithms.
    pub(super) fn keep_keys_of(&self, other: &Self) {
        let (ours, theirs) = (&self.options, &other.options);
        if let (Keys::Url(url), Keys::Url(old)) = (&self.keys, &other.keys)
            && (&ours.keys, &ours.algorithms) == (&theirs.keys, &theirs.algorithms)
        {
            url.keep_keys_of(old);
        }
    }

    /// Fetches the keys, if they come from a URL.
    pub(super) async fn warm(&self) {
        if let Keys::Url(url) = &self.keys {
            url.refreshed().await;
        }
    }

    /// Who calls.
    pub(super) async fn subject(&self, headers: &HeaderMap) -> Result<Part, Refusal> {
        let token = self.token(headers)?;
        let header = self.accepted_header(token)?;
        let claims = match &self.keys {
            Keys::Fixed(keys) => verified(token, &header, keys)?,
            Keys::Url(url) => verified(token, &header, &url.keys_for(&header).await?.keys)?,
        };
        self.check_times(&claims)?;
        let issuer = self.checked_issuer(&claims)?;
        self.check_audience(&claims)?;
        let who = match claims.get(&self.options.claim) {
            Some(Value::String(who)) if !who.is_empty() => who.as_bytes().to_vec(),
            Some(_) => return Err(self.claim_refused("is not a text, or is empty")),
            None => return Err(self.claim_refused("is missing")),
        };
        let issuer = issuer.filter(|_| self.options.issuers.len() != 1);
        Ok(Part::Plain {
            tag: "j",
            values: issuer.map(|name| name.as_bytes().to_vec()).into_iter().chain([who]).collect(),
        })
    }

    fn token<'a>(&self, headers: &'a HeaderMap) -> Result<&'a [u8], Refusal> {
        let token = match &self.options.from {
            None => bearer(headers)?,
            Some(from) => from.read(headers).map_err(|unread| match unread {
                Unread::Absent | Unread::Empty => {
                    Refusal::unauthorized(Challenge::bearer(), unread.detail(&from.name()))
                }
                Unread::Repeated | Unread::Padded => Refusal::invalid(unread.detail(&from.name())),
            })?,
        };
        match token.len() {
            0..=TOKEN_BYTES_MAX => Ok(token),
            _ => Err(Refusal::invalid_token("the token is over 16 KiB; send a shorter one")),
        }
    }

    fn accepted_header(&self, token: &[u8]) -> Result<Claimed, Refusal> {
        let header = claimed(token).filter(|_| is_signed(token)).ok_or_else(|| {
            advice::NOT_A_TOKEN.log();
            Refusal::invalid_token("the credential is not a signed JSON Web Token; send one")
        })?;
        if header.crit.is_some() {
            return Err(Refusal::invalid_token("the token has extensions that are not known; send one without `crit`"));
        }
        let accepted = |algorithm: &JwtAlgorithm| header.alg.as_str() == Some(algorithm.name());
        if !self.options.algorithms.iter().any(accepted) {
            let names: Vec<&str> = self.options.algorithms.iter().map(|algorithm| algorithm.name()).collect();
            return Err(Refusal::invalid_token(format!(
                "the token is signed in a way that is not accepted; send one signed with {}",
                names.join(" or ")
            )));
        }
        Ok(header)
    }

    fn check_times(&self, claims: &Map<String, Value>) -> Result<(), Refusal> {
        let now_s = Duration::from_millis(self.clock.read().wall_ms).as_secs_f64();
        let leeway_s = self.options.leeway.as_secs_f64();
        match claims.get("exp").and_then(Value::as_f64) {
            None => return Err(Refusal::invalid_token("the token does not say when it expires; send one with `exp`")),
            Some(exp) if exp + leeway_s <= now_s => {
                return Err(Refusal::invalid_token("the token has expired; get a new one and retry with the same key"));
            }
            Some(_) => {}
        }
        match claims.get("nbf").map(Value::as_f64) {
            Some(None) => {
                Err(Refusal::invalid_token("`nbf` of the token is not a number; send one with a valid `nbf`"))
            }
            Some(Some(nbf)) if nbf > now_s + leeway_s => {
                Err(Refusal::invalid_token("the token is not valid yet; retry when it is"))
            }
            _ => Ok(()),
        }
    }

    fn checked_issuer<'a>(&self, claims: &'a Map<String, Value>) -> Result<Option<&'a str>, Refusal> {
        let accepted = &self.options.issuers;
        match claims.get("iss") {
            None if accepted.is_empty() => Ok(None),
            Some(Value::String(issuer)) if accepted.is_empty() || accepted.contains(issuer) => Ok(Some(issuer)),
            _ => {
                advice::OTHER_ISSUER.log();
                Err(Refusal::invalid_token(
                    "the token is not of an accepted issuer; get one from the issuer of this API",
                ))
            }
        }
    }

    fn check_audience(&self, claims: &Map<String, Value>) -> Result<(), Refusal> {
        let accepted = &self.options.audiences;
        let meant = |audience: &Value| audience.as_str().is_some_and(|name| accepted.iter().any(|own| own == name));
        let fits = match claims.get("aud") {
            None => accepted.is_empty(),
            Some(Value::Array(audiences)) => audiences.iter().any(meant),
            Some(audience) => meant(audience),
        };
        match fits {
            true => Ok(()),
            false => {
                advice::OTHER_AUDIENCE.log();
                Err(Refusal::invalid_token("the token is meant for somebody else; get one for this API"))
            }
        }
    }

    fn claim_refused(&self, cause: &str) -> Refusal {
        Refusal::invalid_token(format!(
            "the claim `{}` of the token {cause}; send a token that has it",
            self.options.claim
        ))
    }
}

/// The claims, if one of the keys has signed them. Times, issuer and audience are checked by [`Jwt`], against a clock
/// that can be passed in.
fn verified(token: &[u8], header: &Claimed, keys: &[VerifyingKey]) -> Result<Map<String, Value>, Refusal> {
    let bad_signature = || Refusal::invalid_token("the signature of the token does not fit; send the token unchanged");
    let mut fitting = keys.iter().filter(|key| key.fits(header)).peekable();
    if fitting.peek().is_none() {
        return Err(Refusal::invalid_token("the token is signed with a key that is not known; get a new token"));
    }
    let signed = str::from_utf8(token).ok().and_then(|token| token.rsplit_once('.'));
    let (message, signature) = signed.ok_or_else(bad_signature)?;
    let signs = |key: &VerifyingKey| verify(signature, message.as_bytes(), &key.key, key.algorithm.known());
    if !fitting.any(|key| signs(key).unwrap_or(false)) {
        return Err(bad_signature());
    }
    let payload = message.split_once('.').and_then(|(_, payload)| decoded(payload.as_bytes()));
    payload
        .and_then(|payload| serde_json::from_slice(&payload).ok())
        .ok_or_else(|| Refusal::invalid_token("the token holds no claims; send one that does"))
}

fn check(options: &JwtOptions) -> Result<(), ScopeConfigError> {
    if options.algorithms.is_empty() {
        return Err(unfit("no algorithm is named", "use HS256, RS256, ES256 or EdDSA"));
    }
    if matches!(options.keys, JwtKeys::SetUrl { .. }) && options.algorithms.contains(&JwtAlgorithm::Hs256) {
        return Err(unfit("HS256 needs a secret, which no URL may publish", "use a key file for HS256"));
    }
    if options.claim.is_empty() {
        return Err(unfit("the claim has no name", "name one, for example sub"));
    }
    if CHANGING.contains(&options.claim.as_str()) {
        return Err(unfit("the claim changes from token to token", "name one that says who calls, for example sub"));
    }
    Ok(())
}

fn unfit(cause: &str, next: &'static str) -> ScopeConfigError {
    ScopeConfigError::Jwt { cause: cause.to_owned(), next }
}
