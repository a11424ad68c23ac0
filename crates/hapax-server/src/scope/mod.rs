//! Whose key it is: from the head of a request to a [`Scope`].
//!
//! [`Kind`] lists the ways to tell callers apart; they compose, and each contributes a part. A scope never comes from the
//! body, and there is no default that callers would share unawares: where the caller cannot be told, the request
//! is refused ([`Refusal`]), and the log says which kinds would fit. `docs/scopes.md` has the table.
//!
//! | file | what it is |
//! |---|---|
//! | `part` | the parts, and the scope they make |
//! | `field` | exactly one value of a header or cookie |
//! | `credential` | a secret that stays the same: Basic, opaque Bearer, an API key |
//! | `jwt`, `jwt_keys`, `jwks_url`, `token_shape` | a claim of a verified token |
//! | `ask` | an authentication endpoint says who calls |
//! | `fetch` | the HTTP client of the last two |
//! | `challenge` | what a 401 asks for |
//! | `advice` | what an operator should configure, for the log |
//!
//! ```
//! use hapax_server::scope::{Kind, ScopeOptions, Scopes};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let scopes = Scopes::new(vec![Kind::Header("x-tenant".parse()?)], &ScopeOptions::default())?;
//! let (parts, ()) = http::Request::post("/payments").header("X-Tenant", "acme").body(())?.into_parts();
//! assert_eq!(scopes.of(&parts).await?.as_str(), "h:acme");
//! # Ok(())
//! # }
//! ```
//!
//! This module leaves to the layer what status a refusal gets, and to the configuration how options are written.

mod advice;
mod ask;
mod challenge;
mod credential;
mod fetch;
mod field;
mod jwks_url;
mod jwt;
mod jwt_keys;
mod part;
mod refusal;
mod token_shape;

use std::fmt;
use std::sync::Arc;

use hapax_core::address::Scope;
use hapax_core::clock::Clock;
use http::header::{AUTHORIZATION, COOKIE, HeaderMap, HeaderName, PROXY_AUTHORIZATION};
use http::request::Parts;
use sha2::{Digest, Sha256};

pub use ask::{AskOptions, TENANT_CHARS_MAX};
pub use challenge::Challenge;
pub use field::HeaderOrCookie;
pub use jwt::{JwtKeys, JwtOptions};
pub use jwt_keys::JwtAlgorithm;
pub use refusal::{Refusal, ScopeConfigError};

pub(crate) use ask::USUAL_TENANT_HEADER;
use ask::{Ask, Freshness};
use field::{Unread, one_header};
use jwt::Jwt;
pub(crate) use part::is_digest;
use part::{Part, Salt};

/// More kinds than any caller has names.
pub const KINDS_MAX: usize = 8;

/// Longer scheme texts are shortened to a digest: the scheme of an address holds more than this one.
const SCHEME_CHARS_MAX: usize = 32;

/// A way to tell callers apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `credential`: a digest of a Basic or opaque Bearer `Authorization`.
    Credential,
    /// `credential:NAME`: a digest of another header or cookie that holds a secret.
    CredentialIn(HeaderOrCookie),
    /// `header:NAME`: a name that a trusted gateway in front has set.
    Header(HeaderName),
    /// `jwt`: a claim of a token whose signature was verified.
    Jwt(JwtOptions),
    /// `ask`: what an authentication endpoint answers.
    Ask(AskOptions),
    /// `single`: one tenant, said out loud.
    Single,
}

/// What applies to all kinds together.
#[derive(Clone, Debug)]
pub struct ScopeOptions {
    /// Requests without a credential share the scope `anonymous`. Only where the upstream has no callers to tell apart.
    pub anonymous: bool,
    /// Whom [`Scopes::may_replay`] asks where `ask` is not among the kinds.
    pub replay_ask: Option<AskOptions>,
    /// For the times in tokens, and for the age of what is remembered. Default: the host's.
    pub clock: Arc<dyn Clock>,
}

impl Default for ScopeOptions {
    fn default() -> Self {
        Self { anonymous: false, replay_ask: None, clock: Arc::new(hapax_sqlite::SystemClock) }
    }
}

/// A kind, ready for use.
enum Ready {
    Credential,
    CredentialIn(HeaderOrCookie),
    Header(HeaderName),
    Jwt(Box<Jwt>),
    Ask(Box<Ask>),
    Single,
}

/// The configured kinds, in order.
pub struct Scopes {
    kinds: Vec<Ready>,
    anonymous: bool,
    replay_ask: Option<Ask>,
    salt: Option<Salt>,
}

impl fmt::Debug for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scopes").field("scheme", &self.scheme()).finish_non_exhaustive()
    }
}

impl Scopes {
    /// Checks the kinds and reads the files they name.
    ///
    /// # Errors
    /// If there are none, if they contradict one another, or if one lacks what it needs.
    pub fn new(kinds: Vec<Kind>, options: &ScopeOptions) -> Result<Self, ScopeConfigError> {
        check(&kinds, options)?;
        let kinds = kinds.into_iter().map(|kind| Ready::new(kind, &options.clock)).collect::<Result<Vec<_>, _>>()?;
        let names: Vec<String> = kinds.iter().map(Ready::scheme).collect();
        if let Some(twice) = names.iter().enumerate().find_map(|(i, name)| names[..i].contains(name).then_some(name)) {
            return Err(ScopeConfigError::Repeated { kind: twice.clone() });
        }
        let asks = kinds.iter().any(|kind| matches!(kind, Ready::Ask(_)));
        let replay_ask =
            options.replay_ask.as_ref().filter(|_| !asks).map(|ask| Ask::new(ask, &options.clock)).transpose()?;
        Ok(Self { kinds, anonymous: options.anonymous, replay_ask, salt: None })
    }

    /// Random bytes of the store, kept with it: they make digests useless outside of it. Other bytes make other scopes,
    /// and so forget every key; [`Scopes::scheme`] shows the difference.
    #[must_use]
    pub fn with_salt(mut self, salt: [u8; 32]) -> Self {
        self.salt = Some(salt);
        self
    }

    /// Whose key it is.
    ///
    /// # Errors
    /// If it cannot be said. Nothing may be forwarded then.
    pub async fn of(&self, parts: &Parts) -> Result<Scope, Refusal> {
        self.scope(parts, Freshness::Remembered).await
    }

    /// May this caller still see an answer recorded under `scope`? Everybody is asked again; nothing is remembered.
    ///
    /// # Errors
    /// If not, or if it cannot be said. The recorded answer must not be sent then.
    pub async fn may_replay(&self, parts: &Parts, scope: &Scope) -> Result<(), Refusal> {
        if !self.can_check_replays() {
            return Err(Refusal::unavailable("no endpoint is configured for replay_check = \"ask\"; configure `ask`"));
        }
        if self.scope(parts, Freshness::AskAgain).await? != *scope {
            return Err(Refusal::invalid("the caller is no longer the one whose answer this is; use another key"));
        }
        match &self.replay_ask {
            Some(ask) => ask.permitted(parts).await.map(|_| ()),
            None => Ok(()),
        }
    }

    /// Whether there is somebody to ask: `replay_check = "ask"` needs it.
    #[must_use]
    pub fn can_check_replays(&self) -> bool {
        self.replay_ask.is_some() || self.kinds.iter().any(|kind| matches!(kind, Ready::Ask(_)))
    }

    /// Goes on with the keys for tokens that another has fetched from the same place.
    #[must_use]
    pub fn with_keys_of(self, other: &Self) -> Self {
        for kind in &self.kinds {
            for old in &other.kinds {
                if let (Ready::Jwt(new), Ready::Jwt(old)) = (kind, old) {
                    new.keep_keys_of(old);
                }
            }
        }
        self
    }

    /// Fetches what the kinds need from elsewhere, so that the first request need not wait. Failing is not fatal: it is
    /// tried again when a request needs it.
    pub async fn warm(&self) {
        for kind in &self.kinds {
            if let Ready::Jwt(jwt) = kind {
                jwt.warm().await;
            }
        }
    }

    /// The kinds and their order, for the check of the address scheme: another text makes other scopes of the same
    /// callers. At most 46 characters of printable ASCII, and no secret.
    #[must_use]
    pub fn scheme(&self) -> String {
        let names: Vec<String> = self.kinds.iter().map(Ready::scheme).collect();
        let plain = |name: &String| name.bytes().all(|byte| (b' '..=b'~').contains(&byte) && byte != b',');
        let mut scheme = names.join(",");
        if scheme.len() > SCHEME_CHARS_MAX || !names.iter().all(plain) {
            let named: Vec<Part> = names.into_iter().map(|name| Part::plain("kind", name)).collect();
            scheme = format!("kinds:{}", &part::digest(None, &named)[..24]);
        }
        match &self.salt {
            // Four bytes of a digest of 32 random ones: enough to notice another salt, useless for anything else.
            Some(salt) => format!("{scheme};salt:{}", crate::logs::hex(&Sha256::digest(salt)[..4])),
            None => scheme,
        }
    }

    async fn scope(&self, parts: &Parts, freshness: Freshness) -> Result<Scope, Refusal> {
        let mut found = Vec::with_capacity(self.kinds.len());
        for kind in &self.kinds {
            found.push(match kind {
                Ready::Credential => credential::of_authorization(&parts.headers, self.anonymous)?,
                Ready::CredentialIn(from) => credential::of_field(from, &parts.headers, self.anonymous)?,
                Ready::Header(name) => named(&parts.headers, name)?,
                Ready::Jwt(jwt) => jwt.subject(&parts.headers).await?,
                Ready::Ask(ask) => ask.tenant(parts, freshness).await?,
                Ready::Single => Part::Word("single"),
            });
        }
        part::scope_of(self.salt.as_ref(), &found)
            .map_err(|_| Refusal::invalid("the identity of the caller cannot be used; send another"))
    }
}

impl Ready {
    fn new(kind: Kind, clock: &Arc<dyn Clock>) -> Result<Self, ScopeConfigError> {
        Ok(match kind {
            Kind::Credential => Self::Credential,
            Kind::CredentialIn(from) => Self::CredentialIn(from),
            Kind::Header(name) => Self::Header(name),
            Kind::Jwt(options) => Self::Jwt(Box::new(Jwt::new(options, clock)?)),
            Kind::Ask(options) => Self::Ask(Box::new(Ask::new(&options, clock)?)),
            Kind::Single => Self::Single,
        })
    }

    fn scheme(&self) -> String {
        match self {
            Self::Credential => "credential".to_owned(),
            Self::CredentialIn(from) => format!("credential:{}", from.name()),
            Self::Header(name) => format!("header:{name}"),
            Self::Jwt(jwt) => jwt.scheme(),
            Self::Ask(ask) => ask.scheme(),
            Self::Single => "single".to_owned(),
        }
    }
}

/// The kind `header:NAME`.
fn named(headers: &HeaderMap, name: &HeaderName) -> Result<Part, Refusal> {
    match one_header(headers, name) {
        Ok(value) => Ok(Part::plain("h", value)),
        Err(Unread::Absent) => Err(Refusal::missing(format!(
            "the request has no `{name}`, which the gateway in front has to set; send requests through the gateway"
        ))),
        Err(unread) => Err(Refusal::invalid(unread.detail(name.as_str()))),
    }
}

fn check(kinds: &[Kind], options: &ScopeOptions) -> Result<(), ScopeConfigError> {
    if kinds.is_empty() {
        return Err(ScopeConfigError::Empty);
    }
    if kinds.len() > KINDS_MAX {
        return Err(ScopeConfigError::TooMany { kinds: kinds.len(), kinds_max: KINDS_MAX });
    }
    if kinds.len() > 1 && kinds.iter().any(|kind| matches!(kind, Kind::Single)) {
        return Err(ScopeConfigError::SingleAmongOthers);
    }
    let by_credential = |kind: &Kind| matches!(kind, Kind::Credential | Kind::CredentialIn(_));
    if options.anonymous && !kinds.iter().any(by_credential) {
        return Err(ScopeConfigError::AnonymousWithoutCredential);
    }
    kinds.iter().try_for_each(check_name)
}

/// Refuses headers and cookies that would show a secret, or that change with every request.
fn check_name(kind: &Kind) -> Result<(), ScopeConfigError> {
    let (name, text) = match kind {
        Kind::Header(name) => (name, format!("header:{name}")),
        Kind::CredentialIn(HeaderOrCookie::Header(name)) => (name, format!("credential:{name}")),
        Kind::CredentialIn(HeaderOrCookie::Cookie(name)) if name.is_empty() || name.contains(['=', ';', ' ']) => {
            let cause = "a cookie cannot have this name";
            return Err(ScopeConfigError::Unfit {
                kind: "credential:cookie".into(),
                cause,
                next: "check its spelling",
            });
        }
        _ => return Ok(()),
    };
    let (cause, next) = if *name == AUTHORIZATION {
        ("it has rules of its own", "use `credential`, or `jwt`")
    } else if *name == COOKIE {
        ("it holds many values, of which some change", "name the one cookie that holds the secret")
    } else if *name == PROXY_AUTHORIZATION {
        ("it is not meant for the upstream", "use `credential`")
    } else if name.as_str() == "idempotency-key" {
        ("it is the key, and says nothing of who sends it", "use `credential`")
    } else {
        return Ok(());
    };
    Err(ScopeConfigError::Unfit { kind: text, cause, next })
}
