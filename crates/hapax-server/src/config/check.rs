//! Which values fit together.
//!
//! Each check names what is wrong and what to write instead. They run when a configuration is loaded, so that
//! `hapax config check`, a start and a reload can never disagree. Left to others: single values (`value`).

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use hapax::http::IDEMPOTENCY_KEY;
use hapax_postgres::Encryption;
use http::{HeaderName, Uri};

use super::choice::ReplayCheck;
use super::model::{Backend, Config, Jwt, Place, ScopeKind};
use super::problem::{Origin, nearest};
use super::reader::{Reader, Setting};
use super::secret;
use super::units::{show_duration, show_size};
use super::value::Value as _;
use super::{check_fields, host};
use crate::logs;

/// No timeout and no retention is longer: more is a unit mistaken for another.
pub(super) const DURATION_MAX: Duration = Duration::from_millis(hapax_core::limits::DURATION_MS_MAX);

/// PostgreSQL cuts longer names off.
const SCHEMA_CHARS_MAX: usize = 63;

/// More connections would make smaller batches, not more writes.
const STORE_CONNECTIONS_MAX: u32 = 64;

/// Clocks that differ by more are to be corrected.
const LEEWAY_MAX: Duration = Duration::from_secs(5 * 60);

/// Whoever is shut out is let in for as long.
const ASK_CACHE_MAX: Duration = Duration::from_secs(60 * 60);

/// The engines cannot count to much more than three weeks, and no client waits as long as this.
const STORE_TIMEOUT_MAX: Duration = Duration::from_secs(600);

/// How much is logged, from nothing to everything.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Fields that have a meaning of their own.
pub(super) const OTHER_USE: [&str; 7] =
    ["authorization", "cookie", "host", "content-length", "content-type", "connection", "transfer-encoding"];

/// Checks everything but policies.
pub(super) fn config(reader: &mut Reader<'_>, config: &Config, without_upstream: bool) {
    upstream(reader, config, without_upstream);
    addresses(reader, config);
    store(reader, config);
    keys(reader, config);
    callers(reader, config);
    secrets(reader, config);
    plain_http(reader, config);
    request_id(reader, config);
    check_fields::config(reader, config);
    log_level(reader, &config.log.level);
    timeouts(reader, config);
    memory(reader, config);
}

fn upstream(reader: &mut Reader<'_>, config: &Config, without_upstream: bool) {
    let to = &config.upstream.to;
    if reader.settings.iter().any(|setting| setting.key == "upstream.to" && setting.origin == Origin::Default) {
        if !without_upstream {
            reader.refuse(&[], "no upstream is named; pass --to URL or set `upstream.to`");
        }
        return;
    }
    if to.path_and_query().is_some_and(|path| path != "/") {
        let message =
            "`upstream.to` has a path; name scheme, host and port only, since paths are passed on as they come";
        reader.refuse(&["upstream.to"], message);
    }
    if config.upstream.h2c && to.scheme_str() == Some("https") {
        let message = "`upstream.h2c` is HTTP/2 without TLS, but `upstream.to` is https; remove it";
        reader.refuse(&["upstream.h2c"], message);
    }
    if leads_to(to, config.server.from) {
        let message = format!(
            "`upstream.to` is {}, where hapax itself listens (`server.from`), so requests would go round; name the \
             API's address",
            to.authority().map_or("", |authority| authority.as_str())
        );
        reader.refuse(&["upstream.to", "server.from"], message);
    }
    if config.admin.from.is_some_and(|admin| leads_to(to, admin)) {
        let message = "`upstream.to` is the address of the admin listener (`admin.from`); name the API's address";
        reader.refuse(&["upstream.to", "admin.from"], message);
    }
    if config.ask.as_ref().is_some_and(|ask| leads_to(&ask.url, config.server.from)) {
        let message = "`ask.url` leads to hapax itself (`server.from`), so requests would go round; name the \
         endpoint's own address";
        reader.refuse(&["ask.url", "server.from"], message);
    }
}

/// True where the URL certainly leads to a listener at that address.
fn leads_to(url: &Uri, listener: SocketAddr) -> bool {
    let port = url.port_u16().unwrap_or(if url.scheme_str() == Some("https") { 443 } else { 80 });
    if port != listener.port() || port == 0 {
        return false;
    }
    let host = url.host().unwrap_or_default();
    let listens = listener.ip().to_canonical();
    match host::address(host) {
        Some(address) if address == listens => true,
        // Whoever connects to no address in particular gets this machine.
        Some(address) if address.is_unspecified() => listens.is_loopback() || listens.is_unspecified(),
        // A listener on all addresses is reached by each.
        Some(address) => listens.is_unspecified() && is_reached(listens, address) && host::is_own_address(address),
        None if host::is_localhost(host) => listens.is_loopback() || listens.is_unspecified(),
        None => listens.is_unspecified() && host::is_own_name(host),
    }
}

/// Whether a listener on all addresses hears that one: one of IPv6 hears IPv4 as well.
fn is_reached(listens: IpAddr, address: IpAddr) -> bool {
    address.is_loopback() || address.is_ipv4() || listens.is_ipv6()
}

fn addresses(reader: &mut Reader<'_>, config: &Config) {
    let from = config.server.from;
    let Some(admin) = config.admin.from else { return };
    let overlap = admin.ip() == from.ip() || admin.ip().is_unspecified() || from.ip().is_unspecified();
    if admin.port() == from.port() && admin.port() != 0 && overlap {
        let message = format!("`admin.from` and `server.from` are both at port {}; choose another port", admin.port());
        reader.refuse(&["admin.from", "server.from"], message);
    }
}

fn store(reader: &mut Reader<'_>, config: &Config) {
    let store = &config.store;
    if store.strict && store.backend == Backend::Memory {
        let message =
            "`store.strict` asks for a store that loses nothing, and `memory:` loses all at exit; choose another store";
        reader.refuse(&["store.url", "store.strict"], message);
    }
    if store.connections.get() > STORE_CONNECTIONS_MAX {
        let message = format!(
            "`store.connections` is above {STORE_CONNECTIONS_MAX}; batches would only get smaller, so lower it"
        );
        reader.refuse(&["store.connections"], message);
    }
    let is_letter = |c: char| c.is_ascii_lowercase() || c == '_' || c.is_ascii_digit();
    let name = &store.schema;
    let begins_well = name.starts_with(|c: char| !c.is_ascii_digit()) && !name.starts_with("pg_");
    if !(begins_well && name.len() <= SCHEMA_CHARS_MAX && name.chars().all(is_letter)) {
        let message = format!(
            "`store.schema` must be up to {SCHEMA_CHARS_MAX} lower-case letters, digits and underscores, not beginning \
             with a digit or pg_"
        );
        reader.refuse(&["store.schema"], message);
    }
    if store.timeout > STORE_TIMEOUT_MAX {
        let message = format!(
            "`store.timeout` is {}, above {}; requests would wait that long for a store that hangs, so lower it",
            show_duration(store.timeout),
            show_duration(STORE_TIMEOUT_MAX)
        );
        reader.refuse(&["store.timeout"], message);
    }
    if let Backend::Postgres { url, .. } = &store.backend {
        encryption(reader, url.expose(), store.ca_file.is_some());
    }
    if let Backend::Sqlite { path } = &store.backend {
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        if let Some(directory) = directory.filter(|directory| !directory.is_dir()) {
            let message = format!("`store.url`: the directory `{}` does not exist; create it", directory.display());
            reader.refuse(&["store.url"], message);
        }
    }
}

fn encryption(reader: &mut Reader<'_>, url: &str, has_authority: bool) {
    match hapax_postgres::Options::new(url).encryption() {
        Ok(Some(Encryption::Never)) if has_authority => {
            let message = "`store.ca_file` asks for TLS, and `store.url` turns it off (sslmode=disable); remove one";
            reader.refuse(&["store.url", "store.ca_file"], message);
        }
        Ok(_) => {}
        Err(_) => {
            let message = "`store.url`: sslmode must be disable, prefer, require, verify-ca or verify-full";
            reader.refuse(&["store.url"], message);
        }
    }
}

fn keys(reader: &mut Reader<'_>, config: &Config) {
    let headers = &config.keys.headers;
    if headers.is_empty() {
        reader.refuse(&["keys.headers"], "`keys.headers` names none; write \"Idempotency-Key\"");
    }
    for name in headers.iter().filter(|name| OTHER_USE.contains(&name.as_str())) {
        reader.refuse(
            &["keys.headers"],
            format!("`keys.headers` names `{name}`, which holds something else; choose another"),
        );
    }
    let ids = config.fingerprint.current.iter().chain(&config.fingerprint.older);
    let mut seen: Vec<&str> = Vec::new();
    for key in ids {
        let keyed = hapax_core::fingerprint::HmacKey::new(&key.id, key.secret.expose().as_bytes());
        if let Err(why) = keyed {
            reader.refuse(&FINGERPRINT_KEYS, format!("the fingerprint key `{}` is not accepted: {why}", key.id));
        }
        if seen.contains(&key.id.as_str()) {
            reader.refuse(
                &FINGERPRINT_KEYS,
                format!("two fingerprint keys are called `{}`; give each its own id", key.id),
            );
        }
        seen.push(&key.id);
    }
}

/// What says who calls must not be the key, and whoever is configured to be asked must be asked.
fn callers(reader: &mut Reader<'_>, config: &Config) {
    let is_key = |name: &HeaderName| config.keys.headers.contains(name);
    for kind in &config.scope.kinds {
        let (key, shown) = match kind {
            // The usual field is refused where scopes are read.
            ScopeKind::Header(name) if is_key(name) && *name != IDEMPOTENCY_KEY => ("scope", format!("header:{name}")),
            ScopeKind::CredentialHeader(name) if is_key(name) && *name != IDEMPOTENCY_KEY => {
                ("scope", format!("credential:{name}"))
            }
            ScopeKind::Jwt(Jwt { token_in: Some(Place::Header(name)), .. }) if is_key(name) => {
                ("jwt.token_in", format!("header:{name}"))
            }
            _ => continue,
        };
        let message = format!("`{key}` names \"{shown}\", which `keys.headers` says is the key; name another field");
        reader.refuse(&[key, "keys.headers"], message);
    }
    let in_scope = config.scope.kinds.iter().any(|kind| matches!(kind, ScopeKind::Ask(_)));
    let policies = config.routes.iter().map(|route| &route.policy).chain([&config.defaults]);
    let in_policy = policies.into_iter().any(|policy| policy.replay_check == ReplayCheck::Ask);
    if config.ask.is_some() && !in_scope && !in_policy {
        let routes = (0..config.routes.len()).map(|at| format!("route[{at}].replay_check"));
        let said: Vec<String> = routes.chain(["defaults.replay_check".to_owned()]).collect();
        let keys: Vec<&str> = ["ask.url", "scope"].into_iter().chain(said.iter().map(String::as_str)).collect();
        let message = "[ask] has an endpoint, but neither `scope` nor a `replay_check` names \"ask\", so it would not be \
                       asked; add it to one of them, or remove `ask.url`";
        reader.refuse(&keys, message);
    }
}

/// Where a fingerprint key may have been set.
const FINGERPRINT_KEYS: [&str; 3] = ["fingerprint.key_file", "fingerprint.key", "fingerprint.older_key_files"];

fn secrets(reader: &mut Reader<'_>, config: &Config) {
    let Some(path) = reader.file.filter(|path| secret::is_public(path)) else { return };
    let has_password = matches!(&config.store.backend, Backend::Postgres { url, .. } if holds_password(url.expose()));
    let held = [
        ("admin.token", config.admin.token.is_some()),
        ("fingerprint.key", config.fingerprint.current.is_some()),
        ("store.url", has_password),
    ];
    let held = held.map(|(key, is_secret)| (key.to_owned(), is_secret));
    let tokens: Vec<_> = (0..config.admin.tokens.len()).map(|at| (format!("admin.tokens[{at}].value"), true)).collect();
    for (key, is_secret) in held.iter().chain(&tokens) {
        let set = |name: &str| reader.settings.iter().find(|setting| setting.key == name);
        let in_file = |setting: &&Setting| matches!(setting.origin, Origin::File { .. });
        // A secret that stands in a file of its own was checked there.
        let apart = set(&format!("{key}_file")).is_some_and(|setting| setting.value != None::<PathBuf>.show());
        if *is_secret && !apart && set(key).filter(in_file).is_some() {
            let path = path.display();
            let message = format!(
                "`{key}` is a secret, and anyone on this machine can read `{path}`; run `chmod o-rwx {path}` or set \
                 `{key}_file`"
            );
            reader.refuse(&[key], message);
        }
    }
}

/// Credentials of callers go out with a question, and the names of tenants come back: not over plain http through a network.
fn plain_http(reader: &mut Reader<'_>, config: &Config) {
    let Some(ask) = config.ask.as_ref().filter(|ask| !ask.allow_http) else { return };
    if is_plain(&ask.url) {
        let message = "`ask.url` is not https, so anyone between could read the callers' credentials and name any tenant; use \
                       https, or set `ask.allow_http` where the network in between is trusted";
        reader.refuse(&["ask.url"], message);
    }
}

/// Whether what is sent there can be read on the way: plain http that leaves this machine.
pub(super) fn is_plain(url: &Uri) -> bool {
    url.scheme_str() == Some("http") && !url.host().is_some_and(host::is_loopback)
}

/// The id of a request takes the place of what stood in its field, and is made up where nothing did: nothing may be decided by
/// that field.
fn request_id(reader: &mut Reader<'_>, config: &Config) {
    let name = &config.server.request_id_header;
    let says_who = |kind: &ScopeKind| match kind {
        ScopeKind::Header(other) | ScopeKind::CredentialHeader(other) => other == name,
        ScopeKind::Jwt(jwt) => jwt.token_in == Some(Place::Header(name.clone())),
        _ => false,
    };
    let mut policies = config.routes.iter().map(|route| &route.policy).chain([&config.defaults]);
    let is_other = config.keys.headers.contains(name)
        || config.scope.kinds.iter().any(says_who)
        || policies.any(|policy| {
            policy.fingerprint_headers.contains(name) || policy.request_time_header.as_ref() == Some(name)
        })
        || name.as_str().starts_with("content-")
        || OTHER_USE.contains(&name.as_str())
        || ["traceparent", "tracestate"].contains(&name.as_str());
    if is_other {
        let message = format!(
            "`server.request_id_header` names `{name}`, which requests are told apart by or which holds something \
                     else; name another field for one of them"
        );
        let keys =
            ["server.request_id_header", "scope", "keys.headers", "jwt.token_in", "defaults.fingerprint_headers"];
        reader.refuse(&keys, message);
    }
}

/// Between a user's name and the host, or as a parameter.
fn holds_password(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    authority.rsplit_once('@').is_some_and(|(user, _)| user.contains(':')) || rest.contains("password=")
}

fn log_level(reader: &mut Reader<'_>, text: &str) {
    for directive in text.split(',') {
        let level = directive.rsplit('=').next().unwrap_or(directive).trim();
        if !LEVELS.contains(&level) {
            let close = nearest(level, LEVELS).map(|name| format!("; did you mean `{name}`?")).unwrap_or_default();
            let message = format!(
                "`log.level` must be {}, or such as \"info,hapax_server=debug\", not {level:?}{close}",
                LEVELS.join(", ")
            );
            return reader.refuse(&["log.level"], message);
        }
    }
    // The parts before the levels.
    if let Err(error) = logs::check_filter(text) {
        reader.refuse(&["log.level"], format!("`log.level`: {error}"));
    }
}

/// A body that is larger than what one client may hold would never be accepted.
fn memory(reader: &mut Reader<'_>, config: &Config) {
    let (max, needed) = (config.server.memory_max, config.memory_needed());
    if max < needed {
        let message = format!(
            "`server.memory_max` is {}, less than {} times the largest `request_bytes_max` or `answer_bytes_max`, {}; raise it",
            show_size(max),
            super::model::BODIES_IN_MEMORY_MIN,
            show_size(needed)
        );
        reader.refuse(&["server.memory_max"], message);
    }
}

/// A timeout of nothing fails every request; one of years is a mistaken unit.
fn timeouts(reader: &mut Reader<'_>, config: &Config) {
    let (server, upstream, store) = (&config.server, &config.upstream, &config.store);
    let all = [
        ("server.header_timeout", server.header_timeout),
        ("server.body_timeout", server.body_timeout),
        ("server.write_timeout", server.write_timeout),
        ("server.keep_alive", server.keep_alive),
        ("upstream.connect_timeout", upstream.connect_timeout),
        ("upstream.answer_timeout", upstream.answer_timeout),
        ("store.timeout", store.timeout),
        ("store.breaker_pause", store.breaker_pause),
        ("background.sweep_every", config.background.sweep_every),
        ("background.reap_every", config.background.reap_every),
        ("background.reconcile_every", config.background.reconcile_every),
    ];
    let ask = config.ask.as_ref().map(|ask| ("ask.timeout", ask.timeout));
    for (key, value) in all.into_iter().chain(ask) {
        above_zero(reader, &[key], key, value);
    }
    let leeway = config.scope.kinds.iter().find_map(|kind| match kind {
        ScopeKind::Jwt(jwt) => Some(("jwt.leeway", jwt.leeway, LEEWAY_MAX, "which keeps expired tokens valid")),
        _ => None,
    });
    let cache = config.ask.as_ref().and_then(|ask| ask.cache);
    let cache = cache.map(|cache| ("ask.cache", cache, ASK_CACHE_MAX, "in which a caller who was shut out comes in"));
    for (key, value, limit, what) in leeway.into_iter().chain(cache).filter(|(_, value, limit, _)| value > limit) {
        let (value, limit) = (show_duration(value), show_duration(limit));
        reader.refuse(&[key], format!("`{key}` is {value}, above {limit}, {what}; lower it"));
    }
    for (key, value) in [
        ("server.drain", server.drain),
        ("server.drain_delay", server.drain_delay),
        ("upstream.idle_timeout", upstream.idle_timeout),
    ] {
        not_endless(reader, &[key], key, value);
    }
    if server.header_bytes_max < 1024 {
        reader.refuse(
            &["server.header_bytes_max"],
            "`server.header_bytes_max` is below 1KiB, too little for honest requests; raise it",
        );
    }
}

/// Refuses a duration of nothing, and one of more than ten years.
pub(super) fn above_zero(reader: &mut Reader<'_>, keys: &[&str], name: &str, value: Duration) {
    if value.is_zero() {
        reader.refuse(keys, format!("`{name}` is 0; write a duration above 0"));
    }
    not_endless(reader, keys, name, value);
}

fn not_endless(reader: &mut Reader<'_>, keys: &[&str], name: &str, value: Duration) {
    if value > DURATION_MAX {
        let message = format!("`{name}` is {}, more than ten years; check its unit", show_duration(value));
        reader.refuse(keys, message);
    }
}
