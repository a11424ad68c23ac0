//! What is said at start, on one screen: what is protected, where the data lives, and a request to try.

use std::fmt::Write as _;
use std::net::SocketAddr;

use crate::config::{Config, Mode, ScopeKind};
use crate::run::store::AnyStore;

/// The text, with the addresses that were bound.
pub(super) fn text(config: &Config, store: &AnyStore, from: SocketAddr, admin: Option<SocketAddr>) -> String {
    let scheme = if config.server.tls.is_some() { "https" } else { "http" };
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        // Writing to a string does not fail.
        let _ = writeln!(text, "  {name:<11}{value}");
    };
    line("listening", &format!("on {scheme}://{from}"));
    line("upstream", &config.upstream.to.to_string());
    line("protects", &protects(config));
    line("callers", &callers(config));
    line("records", &format!("{} ({})", config.store.backend.shown(), store.durability().1));
    match admin {
        Some(admin) => line("admin", &format!("on http://{admin} (/readyz, /metrics)")),
        None => line("admin", "off"),
    }
    let curl = curl(config, scheme, from);
    let (what, hint) = match config.mode {
        Mode::Enforce => ("requests happen once", "Try it twice; the second answer is the first one, replayed:"),
        Mode::Observe => ("requests are observed", "Try it twice; both run, and /metrics counts what would have been:"),
    };
    format!("hapax {}: {what}\n\n{text}\n{hint}\n\n  {curl}\n\n", env!("CARGO_PKG_VERSION"))
}

fn protects(config: &Config) -> String {
    let defaults = &config.defaults;
    let what = match (defaults.protect, defaults.required) {
        (false, _) => "only the routes below".to_owned(),
        (true, true) => "POST and PATCH, which must carry an Idempotency-Key".to_owned(),
        (true, false) => "POST and PATCH that carry an Idempotency-Key".to_owned(),
    };
    let routes = match config.routes.len() {
        0 => String::new(),
        count => format!("; {count} routes of their own (`hapax routes` lists them)"),
    };
    let mode = if config.mode == Mode::Observe { "; OBSERVING ONLY: nothing is refused or replayed" } else { "" };
    format!("{what}{routes}{mode}")
}

fn callers(config: &Config) -> String {
    let kinds: Vec<String> = config.scope.kinds.iter().map(kind).collect();
    let anonymous = if config.scope.anonymous { "; requests without one share a scope" } else { "" };
    format!("told apart by {}{anonymous}", kinds.join(" and "))
}

fn kind(kind: &ScopeKind) -> String {
    match kind {
        ScopeKind::Credential => "their Authorization".to_owned(),
        ScopeKind::CredentialHeader(name) => format!("the secret in {name}"),
        ScopeKind::CredentialCookie(name) => format!("the secret in the cookie {name}"),
        ScopeKind::Header(name) => format!("{name}, which a gateway in front must set"),
        ScopeKind::Jwt(jwt) => format!("`{}` of their verified token", jwt.claim),
        ScopeKind::Ask(ask) => format!("asking {}", ask.url),
        ScopeKind::Single => "nothing: there is one tenant".to_owned(),
    }
}

fn curl(config: &Config, scheme: &str, from: SocketAddr) -> String {
    let mut headers = String::new();
    for kind in &config.scope.kinds {
        let field = match kind {
            ScopeKind::Credential => "Authorization: Bearer my-token".to_owned(),
            ScopeKind::CredentialHeader(name) => format!("{name}: my-secret"),
            ScopeKind::CredentialCookie(name) => format!("Cookie: {name}=my-secret"),
            ScopeKind::Header(name) => format!("{name}: me"),
            ScopeKind::Jwt(_) | ScopeKind::Ask(_) => "Authorization: Bearer $TOKEN".to_owned(),
            ScopeKind::Single => continue,
        };
        let _ = write!(headers, " -H '{field}'");
    }
    let insecure = if scheme == "https" { " -k" } else { "" };
    format!(
        "curl -i{insecure} {scheme}://{from}/ -d '{{}}' -H 'Content-Type: application/json'{headers} -H 'Idempotency-Key: try-1'"
    )
}
