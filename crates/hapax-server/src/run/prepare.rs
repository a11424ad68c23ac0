//! What a start makes of a configuration before it opens the store: certificates, trust, scopes, routes, probes.
//!
//! `hapax config check` makes the same and throws it away, so that the two cannot disagree. Every problem is found in one go,
//! and told with the key that it is about. Left to others: single values and which of them fit together (`config`), and what
//! only the store or the system can tell.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::config::{Config, ConfigErrors, JwtKeys, Origin, Problem, ScopeKind, Setting};
use crate::logs;
use crate::run::probe::Probes;
use crate::run::{StartError, node, scopes, settings};
use crate::scope::{ScopeConfigError, Scopes};
use hapax_proxy::Upstream;
use hapax_proxy::tls::{self, Certificate, TlsError};

/// All of it, ready for use.
pub struct Prepared {
    pub(super) certificate: Option<Certificate>,
    pub(super) upstream: Arc<ArcSwap<Upstream>>,
    pub(super) probes: Probes,
    /// Without the random bytes of the store.
    pub(super) scopes: Scopes,
    /// The settings that it was made from.
    pub(super) settings: Vec<Setting>,
}

/// Makes all of it, and connects to nothing. `settings` say where each value comes from.
///
/// # Errors
/// All problems that were found.
pub fn prepare(config: &Config, settings: &[Setting]) -> Result<Prepared, ConfigErrors> {
    let mut refusals = Refusals { settings, problems: Vec::new() };
    refusals.keep(logs::check_filter(&config.log.level).map_err(|error| Refused::of("log.level", error)));
    let certificate = refusals.keep(certificate(config));
    refusals.keep(trust("store.ca_file", config.store.ca_file.as_deref()));
    let trusted = refusals.keep(trust("upstream.ca_file", config.upstream.ca_file.as_deref()));
    // With certificates that cannot be read, the rest would repeat the problem.
    let upstream = trusted.and_then(|()| refusals.keep(upstream(config)));
    let probes = upstream.as_ref().and_then(|upstream| refusals.keep(probes(config, upstream)));
    let scopes = refusals.keep(scopes::unsalted(config).map_err(|error| Refused::of_scope(config, &error)));
    refusals.keep(settings::routes(config).map_err(|error| Refused::of("fingerprint", error)));
    refusals.keep(settings::fingerprint_keys(config).map_err(|error| Refused::of("fingerprint.key", error)));
    match (certificate, upstream, probes, scopes) {
        (Some(certificate), Some(upstream), Some(probes), Some(scopes)) if refusals.problems.is_empty() => {
            Ok(Prepared { certificate, upstream, probes, scopes, settings: settings.to_vec() })
        }
        _ => Err(ConfigErrors(refusals.problems)),
    }
}

/// Something that cannot be made.
struct Refused {
    /// Where the cause may have been set. The first is named in the message.
    keys: Vec<&'static str>,
    cause: String,
}

impl Refused {
    fn of(key: &'static str, cause: impl Display) -> Self {
        Self { keys: vec![key], cause: cause.to_string() }
    }

    fn of_scope(config: &Config, error: &ScopeConfigError) -> Self {
        let keys = match error {
            ScopeConfigError::AnonymousWithoutCredential => vec!["anonymous"],
            ScopeConfigError::Jwt { .. } => vec!["jwt.algorithms", "jwt.claim"],
            ScopeConfigError::File { file, .. } => vec![key_of_file(config, file)],
            ScopeConfigError::Url { of: "jwt", .. } => vec!["jwt.jwks_url"],
            ScopeConfigError::Url { .. } => vec!["ask.url"],
            ScopeConfigError::NotPassedOn { .. } | ScopeConfigError::NothingPassedOn => vec!["ask.pass_headers"],
            ScopeConfigError::Zero { .. } => vec!["ask.timeout", "ask.at_once"],
            _ => vec!["scope"],
        };
        Self { keys, cause: error.to_string() }
    }
}

/// The key that names that file.
fn key_of_file(config: &Config, file: &Path) -> &'static str {
    let is_it = |path: &Option<PathBuf>| path.as_deref() == Some(file);
    let of_jwt = config.scope.kinds.iter().find_map(|kind| match kind {
        ScopeKind::Jwt(jwt) if is_it(&jwt.ca_file) => Some("jwt.ca_file"),
        ScopeKind::Jwt(jwt) => match &jwt.keys {
            JwtKeys::File(path) if path == file => Some("jwt.key_file"),
            JwtKeys::JwksFile(path) if path == file => Some("jwt.jwks_file"),
            _ => None,
        },
        _ => None,
    });
    of_jwt.unwrap_or("ask.ca_file")
}

/// Collects what cannot be made.
struct Refusals<'s> {
    settings: &'s [Setting],
    problems: Vec<Problem>,
}

impl Refusals<'_> {
    fn keep<T>(&mut self, made: Result<T, Refused>) -> Option<T> {
        let refused = match made {
            Ok(made) => return Some(made),
            Err(refused) => refused,
        };
        let of = |key: &&str| self.settings.iter().find(|setting| setting.key == **key).map(|s| s.origin.clone());
        let mut origins = refused.keys.iter().filter_map(of);
        let origin = origins.find(|origin| *origin != Origin::Default).unwrap_or(Origin::Default);
        let key = refused.keys.first().copied().unwrap_or_default();
        self.problems.push(Problem { origin, message: format!("`{key}`: {}", refused.cause) });
        None
    }
}

fn certificate(config: &Config) -> Result<Option<Certificate>, Refused> {
    let Some(files) = &config.server.tls else { return Ok(None) };
    let refused = |error: TlsError| {
        let key = if error.path == files.cert { "server.tls_cert" } else { "server.tls_key" };
        Refused::of(key, error)
    };
    let certificate = Certificate::read(&files.cert, &files.key).map_err(refused)?;
    certificate.server_config().map_err(refused)?;
    Ok(Some(certificate))
}

/// Reads certificates to trust also where nothing is encrypted yet: whoever names a file means one that can be used.
fn trust(key: &'static str, file: Option<&Path>) -> Result<(), Refused> {
    let Some(file) = file else { return Ok(()) };
    tls::client_config(Some(file)).map(|_| ()).map_err(|error| Refused::of(key, error))
}

fn upstream(config: &Config) -> Result<Arc<ArcSwap<Upstream>>, Refused> {
    let upstream = node::upstream(config).map_err(|error| Refused::of("upstream.to", error))?;
    Ok(Arc::new(ArcSwap::from_pointee(upstream)))
}

fn probes(config: &Config, upstream: &Arc<ArcSwap<Upstream>>) -> Result<Probes, Refused> {
    Probes::new(config, upstream).map_err(|error: StartError| Refused::of("defaults.probe", error))
}
