//! From the configuration to what the layer wants: routes, scopes, keys of fingerprints.

use std::time::Duration;

use hapax::http::{
    Cors, InFlight, KeyFormat, KeyPer, KeyRules, KeySyntax, LabelSource, Mode, RequestAge, Route, Routes, Then,
};
use hapax_core::fingerprint::{HmacKey, InvalidRecipe};
use http::HeaderName;

use crate::admin::{Access, Role};
use crate::config::policy::{self, Policy};
use crate::config::{self, Config, ScopeKind};
use crate::run::{StartError, other};
use crate::store::address_scheme;

/// The store's own limit comes first, so that its answer, that nothing was written, still arrives.
const STORE_GRACE: Duration = Duration::from_millis(500);

/// How long anybody waits for the store at one time, whatever it takes there.
pub(super) fn store_patience(config: &Config) -> Duration {
    config.store.timeout + STORE_GRACE
}

/// What every route says.
pub(crate) fn routes(config: &Config) -> Result<Routes, StartError> {
    let mut routes = Routes::new(route(&config.defaults, config)?);
    for rule in &config.routes {
        routes = routes.with(&rule.methods, rule.path.clone(), route(&rule.policy, config)?);
    }
    Ok(routes)
}

fn route(policy: &Policy, config: &Config) -> Result<Route, StartError> {
    let key_id = config.fingerprint.current.as_ref().map(|key| key.id.as_str());
    let mut route = Route::new();
    route.protected = policy.protect;
    route.required = policy.required;
    route.mode = if policy.mode == config::Mode::Observe { Mode::Observe } else { Mode::Enforce };
    route.policy = policy.frozen();
    route.on_server_error = then(policy.on_server_error);
    route.on_gateway_error = then(policy.on_gateway_error);
    route.in_flight = in_flight(policy.in_flight);
    route.wait_max = policy.wait_max;
    route.key_per = if policy.key_per == policy::KeyPer::Route { KeyPer::Route } else { KeyPer::Caller };
    route.key_rules = key_rules(policy, config);
    route.recipe = policy.recipe(key_id).map_err(other)?;
    route.request_bytes_max = policy.request_bytes_max;
    route.answer_bytes_max = policy.answer_bytes_max;
    route.keep_cookies = policy.keep_cookies;
    route.not_stored.clone_from(&policy.not_stored);
    // Attempts count from 1 again after that, so whatever is still under way from before must be gone by then.
    route.not_stored_retention = policy.not_stored_retention.map(|keep| keep.max(policy.settle_after));
    route.request_age = request_age(policy);
    route.replay_check = policy.replay_check == policy::ReplayCheck::Ask;
    route.new_keys_per_second = policy.new_keys_per_second.map(Into::into);
    route.lookups_per_second = policy.lookups_per_second.map(Into::into);
    route.labels = labels(policy);
    // What the dialect says of server errors is a default, and in the policy already.
    route.mismatch_is_400 = config.dialect == config::Dialect::Stripe;
    Ok(route)
}

fn then(meaning: policy::Meaning) -> Then {
    match meaning {
        policy::Meaning::Ready => Then::Ready,
        policy::Meaning::Completed => Then::Completed,
        policy::Meaning::Unknown => Then::Unknown,
    }
}

fn in_flight(choice: policy::InFlight) -> InFlight {
    match choice {
        policy::InFlight::Conflict => InFlight::Conflict,
        policy::InFlight::Accepted => InFlight::Accepted,
        policy::InFlight::Wait => InFlight::Wait,
    }
}

fn key_rules(policy: &Policy, config: &Config) -> KeyRules {
    KeyRules {
        syntax: match config.keys.syntax {
            config::KeySyntax::Lenient => KeySyntax::Lenient,
            config::KeySyntax::Strict => KeySyntax::Strict,
        },
        format: match policy.key_format {
            policy::KeyFormat::Any => KeyFormat::Any,
            policy::KeyFormat::Uuid => KeyFormat::Uuid,
            policy::KeyFormat::Uuidv7 => KeyFormat::UuidV7,
        },
        length_min: policy.key_length_min.into(),
        age_ms_max: policy.key_age_max.map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
    }
}

fn request_age(policy: &Policy) -> Option<RequestAge> {
    let header = policy.request_time_header.clone()?;
    Some(RequestAge { header, age_max: policy.request_age_max? })
}

fn labels(policy: &Policy) -> Vec<LabelSource> {
    let source = |(name, source): (&String, &policy::LabelSource)| {
        let (in_answer, pointer) = match source {
            policy::LabelSource::Request(pointer) => (false, pointer),
            policy::LabelSource::Answer(pointer) => (true, pointer),
        };
        LabelSource { name: name.clone(), in_answer, pointer: pointer.as_str().to_owned() }
    };
    policy.labels.iter().map(source).collect()
}

/// The keys of fingerprints, the current one and older ones.
pub(super) fn fingerprint_keys(config: &Config) -> Result<Vec<HmacKey>, InvalidRecipe> {
    let all = config.fingerprint.current.iter().chain(&config.fingerprint.older);
    all.map(|key| HmacKey::new(&key.id, key.secret.expose().as_bytes())).collect()
}

/// The fields on which keys, callers and comparisons rest: a client must not have them removed on the way here.
pub(super) fn relied_on(config: &Config) -> Vec<HeaderName> {
    let mut names = config.keys.headers.clone();
    names.push(config.server.request_id_header.clone());
    for kind in &config.scope.kinds {
        match kind {
            ScopeKind::CredentialHeader(name) | ScopeKind::Header(name) => names.push(name.clone()),
            ScopeKind::Jwt(jwt) => {
                if let Some(config::Place::Header(name)) = &jwt.token_in {
                    names.push(name.clone());
                }
            }
            ScopeKind::Ask(ask) => names.extend_from_slice(&ask.pass_headers),
            ScopeKind::Credential | ScopeKind::CredentialCookie(_) | ScopeKind::Single => {}
        }
    }
    names.extend(config.ask.iter().flat_map(|ask| &ask.pass_headers).cloned());
    for policy in config.routes.iter().map(|route| &route.policy).chain([&config.defaults]) {
        names.extend(policy.request_time_header.iter().chain(&policy.fingerprint_headers).cloned());
    }
    names
}

/// Who may do what at the admin listener.
pub(super) fn access(config: &config::Admin) -> Access {
    let mut access = Access::new(config.read_only);
    if let Some(token) = &config.token {
        access = access.with(config::OPERATOR, Role::Operator, token.expose());
    }
    for token in &config.tokens {
        let role = if token.role == config::Role::Operator { Role::Operator } else { Role::Viewer };
        access = access.with(&token.name, role, token.value.expose());
    }
    access
}

/// Who may read answers in a browser.
pub(super) fn cors(config: &Config) -> Option<Cors> {
    let cors = config.cors.as_ref()?;
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    Some(Cors {
        origins: cors.origins.iter().map(text).collect(),
        credentials: cors.credentials,
        expose: cors.expose_headers.clone(),
    })
}

/// Names everything that decides about addresses, for the store to remember.
pub(super) fn scheme(scopes: &str, config: &Config) -> String {
    address_scheme::full(scopes, &config.key_per_scheme())
}
