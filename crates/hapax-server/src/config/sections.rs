//! Which keys there are: each section read into its part of the configuration.
//!
//! A key exists because it is asked for here, and nowhere else. Left to others: the listener for operators (`read_admin`),
//! policies (`read_policy`), scopes (`read_scope`), the store (`read_store`), and which values fit together (`check`).

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::PathBuf;

use http::{HeaderName, Uri};

use super::choice::Dialect;
use super::model::{Background, Config, Cors, FingerprintKeys, HmacKey, Keys, Log, Server, Tls, Upstream};
use super::policy::{Meaning, Policy};
use super::reader::{Entries, Reader, Section};
use super::secret::{self, Secret};
use super::value::{Size, quoted};
use super::{read_admin, read_policy, read_scope, read_store};

/// What stands in for an upstream where a command needs none. The name is reserved, so nothing answers to it.
const NO_UPSTREAM: &str = "http://upstream.invalid";

/// What `hapax config show` prints in place of a secret.
pub(super) const HIDDEN: &str = "\"(hidden)\"";

/// Reads everything. Problems are with the reader; where there are any, the result is not to be used.
pub(super) fn read<'a>(reader: &mut Reader<'a>, root: &'a Entries) -> Config {
    reader.section("", root, |top| {
        let mode = top.value("mode", Default::default());
        let dialect = top.value("dialect", Default::default());
        let kinds = top.value("scope", read_scope::default_words());
        let anonymous = top.value("anonymous", false);
        let server = within(top, "server", server);
        let cors = within(top, "cors", cors);
        let upstream = within(top, "upstream", upstream);
        let store = within(top, "store", read_store::store);
        let keys = within(top, "keys", keys);
        let jwt = within(top, "jwt", read_scope::jwt);
        let ask = within(top, "ask", read_scope::ask);
        let fingerprint = within(top, "fingerprint", fingerprint);
        let background = within(top, "background", background);
        let admin = within(top, "admin", read_admin::admin);
        let log = within(top, "log", log);
        let defaults = within(top, "defaults", |section| read_policy::policy(section, &defaults_of(dialect)));
        let routes = read_policy::routes(top, &defaults);
        let scope = read_scope::scope(top.reader, &kinds, anonymous, jwt.as_ref(), ask.as_ref());
        let file = top.reader.file.map(ToOwned::to_owned);
        let new_addresses = false;
        Config {
            mode,
            dialect,
            scope,
            ask,
            server,
            cors,
            upstream,
            store,
            keys,
            fingerprint,
            background,
            admin,
            log,
            defaults,
            routes,
            new_addresses,
            file,
        }
    })
}

/// Stripe stores every complete answer, failures too.
fn defaults_of(dialect: Dialect) -> Policy {
    match dialect {
        Dialect::Ietf => Policy::default(),
        Dialect::Stripe => {
            Policy { on_server_error: Meaning::Completed, on_gateway_error: Meaning::Completed, ..Policy::default() }
        }
    }
}

/// Reads the section of that name.
fn within<'a, T>(top: &mut Section<'_, 'a>, name: &'static str, read: impl FnOnce(&mut Section<'_, 'a>) -> T) -> T {
    let entries = top.table(name);
    top.reader.section(name, entries, read)
}

fn server(section: &mut Section<'_, '_>) -> Server {
    let default = Server::default();
    let from = section.value("from", default.from);
    let tls = tls(section);
    let connections_max = section.value("connections_max", default.connections_max);
    let attempts_max = section.value("attempts_max", connections_max);
    Server {
        from,
        tls,
        connections_max,
        connections_per_client_max: section.value("connections_per_client_max", most_of(connections_max)),
        attempts_max,
        attempts_per_client_max: section.value("attempts_per_client_max", most_of(attempts_max)),
        header_count_max: section.value("header_count_max", default.header_count_max),
        header_bytes_max: section.value("header_bytes_max", Size(default.header_bytes_max)).0,
        header_timeout: section.value("header_timeout", default.header_timeout),
        body_timeout: section.value("body_timeout", default.body_timeout),
        body_rate_min: section.value("body_rate_min", default.body_rate_min),
        write_timeout: section.value("write_timeout", default.write_timeout),
        write_rate_min: section.value("write_rate_min", default.write_rate_min),
        tunnel_idle_timeout: section.value("tunnel_idle_timeout", default.tunnel_idle_timeout),
        keep_alive: section.value("keep_alive", default.keep_alive),
        h2_streams_max: section.value("h2_streams_max", default.h2_streams_max),
        h2_resets_max: section.value("h2_resets_max", default.h2_resets_max),
        memory_max: section.value("memory_max", Size(default.memory_max)).0,
        drain: section.value("drain", default.drain),
        drain_delay: section.value("drain_delay", default.drain_delay),
        request_id_header: section.value("request_id_header", default.request_id_header),
        trusted_peers: section.value("trusted_peers", default.trusted_peers),
        client_new_keys_per_second: section.value("client_new_keys_per_second", default.client_new_keys_per_second),
        client_lookups_per_second: section.value("client_lookups_per_second", default.client_lookups_per_second),
    }
}

/// What one client may have of so many, unless it is said otherwise: three quarters. It may be a proxy that nobody has named,
/// and a quarter is always left to others.
fn most_of(all: NonZeroU32) -> NonZeroU32 {
    NonZeroU32::new(all.get() - all.get() / 4).unwrap_or(all)
}

fn tls(section: &mut Section<'_, '_>) -> Option<Tls> {
    let cert: Option<PathBuf> = section.value("tls_cert", None);
    let key: Option<PathBuf> = section.value("tls_key", None);
    match (cert, key) {
        (Some(cert), Some(key)) => {
            file(section.reader, "server.tls_cert", &cert, secret::check_readable);
            file(section.reader, "server.tls_key", &key, secret::check_private);
            Some(Tls { cert, key })
        }
        (Some(_), None) => {
            section
                .reader
                .refuse(&["server.tls_cert"], "`server.tls_cert` needs `server.tls_key`; name the key's file");
            None
        }
        (None, Some(_)) => {
            let message = "`server.tls_key` needs `server.tls_cert`; name the certificate's file";
            section.reader.refuse(&["server.tls_key"], message);
            None
        }
        (None, None) => None,
    }
}

/// Notes what is wrong with a file that a key names.
pub(super) fn file(
    reader: &mut Reader<'_>,
    key: &str,
    path: &std::path::Path,
    check: fn(&std::path::Path) -> Result<(), String>,
) {
    if let Err(why) = check(path) {
        reader.refuse(&[key], format!("`{key}`: {why}"));
    }
}

fn cors(section: &mut Section<'_, '_>) -> Option<Cors> {
    let origins = section.value("origins", Vec::new());
    let credentials = section.value("credentials", false);
    let readable = ["idempotent-replayed", "idempotency-expires", "retry-after", "www-authenticate", "x-request-id"]
        .map(HeaderName::from_static);
    let expose_headers = section.value("expose_headers", readable.to_vec());
    if credentials && origins.iter().any(|origin| origin == "*") {
        let message = "`cors.credentials` cannot be true for the origin \"*\", which browsers refuse; name the origins";
        section.reader.refuse(&["cors.credentials"], message);
    }
    (!origins.is_empty()).then_some(Cors { origins, credentials, expose_headers })
}

fn upstream(section: &mut Section<'_, '_>) -> Upstream {
    let to: Option<Uri> = section.needed("to");
    let default = Upstream::new(to.unwrap_or_else(|| Uri::from_static(NO_UPSTREAM)));
    let ca_file = ca_file(section);
    Upstream {
        to: default.to,
        connect_timeout: section.value("connect_timeout", default.connect_timeout),
        answer_timeout: section.value("answer_timeout", default.answer_timeout),
        ca_file,
        idle_timeout: section.value("idle_timeout", default.idle_timeout),
        idle_connections_max: section.value("idle_connections_max", default.idle_connections_max),
        h2: section.value("h2", default.h2),
        h2c: section.value("h2c", default.h2c),
        keep_host: section.value("keep_host", default.keep_host),
    }
}

/// Reads the `ca_file` of any section.
pub(super) fn ca_file(section: &mut Section<'_, '_>) -> Option<PathBuf> {
    let path: Option<PathBuf> = section.value("ca_file", None);
    if let Some(path) = &path {
        let key = section.full("ca_file");
        file(section.reader, &key, path, secret::check_readable);
    }
    path
}

fn keys(section: &mut Section<'_, '_>) -> Keys {
    let default = Keys::default();
    Keys {
        headers: section.value("headers", default.headers),
        syntax: section.value("syntax", default.syntax),
        active_max: section.value("active_max", default.active_max),
    }
}

fn background(section: &mut Section<'_, '_>) -> Background {
    let default = Background::default();
    Background {
        sweep_every: section.value("sweep_every", default.sweep_every),
        reap_every: section.value("reap_every", default.reap_every),
        reconcile_every: section.value("reconcile_every", default.reconcile_every),
    }
}

fn log(section: &mut Section<'_, '_>) -> Log {
    let default = Log::default();
    Log {
        format: section.value("format", default.format),
        level: section.value("level", default.level),
        requests_per_second: section.value("requests_per_second", default.requests_per_second),
    }
}

fn fingerprint(section: &mut Section<'_, '_>) -> FingerprintKeys {
    let secret = section.secret("key", "key_file", |_| HIDDEN.to_owned(), &quoted("off"));
    let id: Option<String> = section.value("key_id", None);
    let older: BTreeMap<String, PathBuf> = section.value("older_key_files", BTreeMap::new());
    let current = match (secret, id) {
        (Some(secret), Some(id)) => Some(HmacKey { id, secret }),
        (Some(_), None) => {
            let message =
                "`fingerprint.key` needs `fingerprint.key_id`, which records name it by; choose one, such as \"2026\"";
            section.reader.refuse(&["fingerprint.key", "fingerprint.key_file"], message);
            None
        }
        (None, Some(_)) => {
            let message = "`fingerprint.key_id` names no key; set `fingerprint.key_file`";
            section.reader.refuse(&["fingerprint.key_id"], message);
            None
        }
        (None, None) => None,
    };
    FingerprintKeys { current, older: older.into_iter().filter_map(|pair| older_key(section.reader, pair)).collect() }
}

fn older_key(reader: &mut Reader<'_>, (id, path): (String, PathBuf)) -> Option<HmacKey> {
    let read: Result<Secret, String> = secret::read_file(&path);
    match read {
        Ok(secret) => Some(HmacKey { id, secret }),
        Err(why) => {
            reader.refuse(&["fingerprint.older_key_files"], format!("`fingerprint.older_key_files`: {why}"));
            None
        }
    }
}
