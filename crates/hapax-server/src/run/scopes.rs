//! From the configuration to whose key it is, and from there to the layer.

use std::sync::Arc;

use hapax::http::{Asked, NoScope, Scope, Scopes as Wanted};
use http::request::Parts;

use crate::config::{self, Config, ScopeKind};
use crate::scope::{
    AskOptions, HeaderOrCookie, JwtAlgorithm, JwtKeys, JwtOptions, Kind, Refusal, ScopeConfigError, ScopeOptions,
    Scopes,
};

/// The scopes that the configuration names, without the random bytes of a store.
pub(super) fn unsalted(config: &Config) -> Result<Scopes, ScopeConfigError> {
    let kinds: Vec<Kind> = config.scope.kinds.iter().map(kind).collect();
    let has_ask = kinds.iter().any(|kind| matches!(kind, Kind::Ask(_)));
    let replay_ask = config.ask.as_ref().filter(|_| !has_ask).map(ask);
    let options = ScopeOptions { anonymous: config.scope.anonymous, replay_ask, ..ScopeOptions::default() };
    Scopes::new(kinds, &options)
}

fn kind(kind: &ScopeKind) -> Kind {
    match kind {
        ScopeKind::Credential => Kind::Credential,
        ScopeKind::CredentialHeader(name) => Kind::CredentialIn(HeaderOrCookie::Header(name.clone())),
        ScopeKind::CredentialCookie(name) => Kind::CredentialIn(HeaderOrCookie::Cookie(name.clone())),
        ScopeKind::Header(name) => Kind::Header(name.clone()),
        ScopeKind::Jwt(options) => Kind::Jwt(jwt(options)),
        ScopeKind::Ask(options) => Kind::Ask(ask(options)),
        ScopeKind::Single => Kind::Single,
    }
}

fn jwt(config: &config::Jwt) -> JwtOptions {
    let keys = match &config.keys {
        config::JwtKeys::File(path) => JwtKeys::File(path.clone()),
        config::JwtKeys::JwksFile(path) => JwtKeys::SetFile(path.clone()),
        config::JwtKeys::JwksUrl(url) => JwtKeys::SetUrl { url: url.to_string(), ca_file: config.ca_file.clone() },
    };
    let algorithms = config.algorithms.iter().map(|algorithm| match algorithm {
        config::JwtAlgorithm::Hs256 => JwtAlgorithm::Hs256,
        config::JwtAlgorithm::Rs256 => JwtAlgorithm::Rs256,
        config::JwtAlgorithm::Es256 => JwtAlgorithm::Es256,
        config::JwtAlgorithm::EdDsa => JwtAlgorithm::EdDsa,
    });
    JwtOptions {
        issuers: config.issuer.clone(),
        audiences: config.audience.clone(),
        claim: config.claim.clone(),
        from: config.token_in.as_ref().map(place),
        leeway: config.leeway,
        ..JwtOptions::new(keys, algorithms.collect())
    }
}

fn place(place: &config::Place) -> HeaderOrCookie {
    match place {
        config::Place::Header(name) => HeaderOrCookie::Header(name.clone()),
        config::Place::Cookie(name) => HeaderOrCookie::Cookie(name.clone()),
    }
}

fn ask(config: &config::Ask) -> AskOptions {
    AskOptions {
        headers: config.pass_headers.clone(),
        timeout: config.timeout,
        cache: config.cache.unwrap_or_default(),
        at_once: config.at_once.get() as usize,
        ca_file: config.ca_file.clone(),
        ..AskOptions::new(config.url.to_string(), config.tenant_header.clone())
    }
}

/// Scopes as the layer asks for them.
pub(super) struct ForLayer(pub(super) Arc<Scopes>);

impl Wanted for ForLayer {
    fn of<'a>(&'a self, parts: &'a Parts) -> Asked<'a, Scope> {
        Box::pin(async move { self.0.of(parts).await.map_err(no_scope) })
    }

    fn may_replay<'a>(&'a self, parts: &'a Parts, caller: &'a Scope) -> Asked<'a, bool> {
        Box::pin(async move {
            match self.0.may_replay(parts, caller).await {
                Ok(()) => Ok(true),
                Err(refusal @ (Refusal::Unavailable { .. } | Refusal::Unauthorized { .. })) => Err(no_scope(refusal)),
                Err(Refusal::Missing { .. } | Refusal::Invalid { .. }) => Ok(false),
            }
        })
    }
}

fn no_scope(refusal: Refusal) -> NoScope {
    match refusal {
        Refusal::Missing { detail } | Refusal::Invalid { detail } => NoScope::Missing(detail),
        Refusal::Unauthorized { detail, challenge } => {
            NoScope::Unauthorized { challenge: challenge.value().clone(), detail }
        }
        Refusal::Unavailable { detail } => NoScope::Unavailable(detail),
    }
}
