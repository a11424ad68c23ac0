//! Whether a request can have the fields that the configuration names.
//!
//! By the time a request is looked at, some of its fields are gone and some are hapax's own. A key, a caller or a comparison that
//! went by one of them would be nobody's: every request would be refused, or all would be alike. Which these are is left to
//! `hapax_proxy::headers`; fields that hold something else to `check`.

use http::HeaderName;
use http::header::PROXY_AUTHORIZATION;

use super::check::OTHER_USE;
use super::model::{Config, Jwt, Place, ScopeKind};
use super::reader::Reader;
use hapax_proxy::headers::{Fate, fate};

/// Checks everything but policies.
pub(super) fn config(reader: &mut Reader<'_>, config: &Config) {
    let mut refuse = |key: &str, shown: &str, why: Option<&str>| {
        if let Some(why) = why {
            reader.refuse(&[key], format!("`{key}` names {shown}, {why}"));
        }
    };
    let holds_other = |name: &HeaderName| OTHER_USE.contains(&name.as_str());
    for name in config.keys.headers.iter().filter(|name| !holds_other(name)) {
        refuse("keys.headers", &format!("`{name}`"), unfit(name, config));
    }
    for kind in &config.scope.kinds {
        match kind {
            // What it is meant for is said where scopes are read.
            ScopeKind::Header(name) | ScopeKind::CredentialHeader(name) if *name == PROXY_AUTHORIZATION => {}
            ScopeKind::Header(name) => refuse("scope", &format!("\"header:{name}\""), unfit(name, config)),
            ScopeKind::CredentialHeader(name) => {
                refuse("scope", &format!("\"credential:{name}\""), unfit(name, config));
            }
            ScopeKind::Jwt(Jwt { token_in: Some(Place::Header(name)), .. }) => {
                refuse("jwt.token_in", &format!("\"header:{name}\""), unfit(name, config));
            }
            _ => {}
        }
    }
    for name in config.ask.iter().flat_map(|ask| &ask.pass_headers) {
        // Who is asked may well be told by hapax who sends.
        let is_set = matches!(fate(name), Some(Fate::Set | Fate::SetUnlessTrusted));
        refuse("ask.pass_headers", &format!("`{name}`"), unfit(name, config).filter(|_| !is_set));
    }
    let name = &config.server.request_id_header;
    if !holds_other(name) {
        refuse("server.request_id_header", &format!("`{name}`"), unfit(name, config));
    }
}

/// Why what a client sends in that field is not there when it is asked for.
pub(super) fn unfit(name: &HeaderName, config: &Config) -> Option<&'static str> {
    match fate(name)? {
        Fate::Removed => {
            Some("which hapax removes from every request, so that nobody could send it; name another field")
        }
        Fate::Set => Some(
            "which hapax sets itself in every request, so that it does not say what the client sent; name another field",
        ),
        Fate::RemovedUnlessTrusted | Fate::SetUnlessTrusted => config.server.trusted_peers.is_empty().then_some(
            "which hapax takes from nobody but a trusted peer, and no peer is trusted; name the gateway in \
             `server.trusted_peers`, or another field",
        ),
    }
}
