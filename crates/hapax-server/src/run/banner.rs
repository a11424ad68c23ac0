//! What is said at start, on one screen: what is protected, where the data lives, and a request to try.

use std::fmt::Write as _;
use std::net::SocketAddr;

use hapax::http::IDEMPOTENCY_KEY;

use crate::config::{Config, Mode, Policy, ScopeKind, without_query};
use crate::run::example::{Example, titled};
use crate::run::node::Node;
use crate::store::durability::meaning;

/// The text, with the addresses that were bound.
pub(super) fn text(node: &Node, from: SocketAddr, admin: Option<SocketAddr>) -> String {
    let Node { config, store, durability, is_new, .. } = node;
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
    let age = if *is_new { "; new: no key is known yet" } else { "" };
    line("records", &format!("{} ({}{age})", config.store.backend.shown(), meaning(store, durability.last())));
    match admin {
        Some(admin) => line("admin", &format!("on http://{admin} (/readyz, /metrics)")),
        None => line("admin", "off"),
    }
    let example = Example::new(config, from);
    let (what, outcome) = match (example.mode, admin) {
        (Some(Mode::Enforce), _) => ("requests happen once", "the second answer is the first one, replayed"),
        (Some(Mode::Observe), Some(_)) => {
            ("requests are observed", "both run, and /metrics counts what would have been")
        }
        (Some(Mode::Observe), None) => ("requests are observed", "both run"),
        (None, _) => ("requests pass through", "both run, for nothing is protected"),
    };
    let hint = if example.needs_token { "With a token in TOKEN, try it twice" } else { "Try it twice" };
    format!("hapax {}: {what}\n\n{text}\n{hint}; {outcome}:\n\n  {}\n\n", env!("CARGO_PKG_VERSION"), example.command)
}

/// The same in one line of the log, where nobody reads along.
pub(super) fn log(node: &Node, from: SocketAddr, admin: Option<SocketAddr>) {
    let Node { config, store, durability, is_new, .. } = node;
    let scheme = if config.server.tls.is_some() { "https" } else { "http" };
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        listening = %format_args!("{scheme}://{from}"),
        upstream = %config.upstream.to,
        protects = %protects(config),
        callers = %callers(config),
        records = %config.store.backend.shown(),
        durability = %meaning(store, durability.last()),
        is_new,
        admin = admin.map(|admin| tracing::field::display(format!("http://{admin}"))),
        "serving"
    );
}

fn protects(config: &Config) -> String {
    let defaults = &config.defaults;
    let of_their_own = match config.routes.len() {
        0 => String::new(),
        1 => "; 1 route of its own (`hapax routes` shows it)".to_owned(),
        count => format!("; {count} routes of their own (`hapax routes` lists them)"),
    };
    let must = if defaults.required { ", which must carry" } else { " that carry" };
    let usual = format!("POST and PATCH{must} {}{of_their_own}", a_key(config));
    let observed = config.mode == Mode::Observe;
    let counts = |policy: &Policy| policy.protect && (observed || policy.mode == Mode::Enforce);
    let named = match config.routes.iter().filter(|route| counts(&route.policy)).count() {
        0 => "nothing".to_owned(),
        1 => "only 1 route (`hapax routes` shows it)".to_owned(),
        count => format!("only {count} routes (`hapax routes` lists them)"),
    };
    match (counts(defaults), defaults.protect, observed) {
        (true, _, false) => usual,
        (true, _, true) => format!("{usual}; OBSERVING ONLY: nothing is refused or replayed"),
        (false, false, false) => named,
        (false, false, true) => format!("{named}; OBSERVING ONLY: nothing is refused or replayed"),
        (false, true, _) => {
            let others = if named == "nothing" { "" } else { "other " };
            format!("{named}; {others}POST and PATCH are OBSERVED ONLY: not refused, not replayed")
        }
    }
}

fn a_key(config: &Config) -> String {
    match config.keys.headers.first() {
        Some(name) if *name != IDEMPOTENCY_KEY => format!("a key in {}", titled(name)),
        _ => "an Idempotency-Key".to_owned(),
    }
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
        ScopeKind::Ask(ask) => format!("asking {}", without_query(&ask.url)),
        ScopeKind::Single => "nothing: there is one tenant".to_owned(),
    }
}
