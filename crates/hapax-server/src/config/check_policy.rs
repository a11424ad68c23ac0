//! Which values of a policy fit together, and which routes fit beside each other.
//!
//! A route is checked as it is in force, with what it inherits; the problem is shown where somebody set one of the
//! values involved. Left to others: everything outside of policies (`check`).

use std::time::Duration;

use hapax::http::OWN_LABELS;
use hapax_core::limits::{BODY_BYTES_MAX, KEY_CHARS_MAX, LABEL_BYTES_MAX, LABEL_COUNT_MAX, REQUEST_BYTES_MAX};
use http::Method;

use super::check::{above_zero, is_plain};
use super::check_fields;
use super::model::{Config, Route, ScopeKind};
use super::policy::{Counted, KeyFormat, LabelSource, Policy, ReplayCheck};
use super::probe::{Piece, Probe};
use super::reader::Reader;
use super::secret;
use super::units::{show_duration, show_size};

/// A shorter lease lapses by a hiccup of the store.
const LEASE_MIN: Duration = Duration::from_secs(1);

/// A client, or something between, gives up before a longer wait ends.
const WAIT_MAX: Duration = Duration::from_secs(300);

/// A probe that takes longer holds up others.
const PROBE_TIMEOUT_MAX: Duration = Duration::from_secs(300);

/// The length of a UUID with its hyphens.
const UUID_CHARS: u8 = 36;

/// Checks the default policy, then each route, in the order of the file.
pub(super) fn policies(reader: &mut Reader<'_>, config: &Config) {
    policy(&mut Place { reader, route: None }, &config.defaults, config);
    for (at, route) in config.routes.iter().enumerate() {
        policy(&mut Place { reader, route: Some(at) }, &route.policy, config);
        methods(&mut Place { reader, route: Some(at) }, route);
        let same = |other: &&Route| {
            other.path.equals(&route.path) && other.methods.iter().any(|method| route.methods.contains(method))
        };
        if let Some(other) = config.routes[..at].iter().find(same) {
            let shared = other.methods.iter().find(|method| route.methods.contains(method)).map_or("", Method::as_str);
            let message = format!("another route already says what holds for {shared} {}; join the two", other.path);
            Place { reader, route: Some(at) }.refuse(&["path"], message);
        }
    }
}

/// Checks that each probe is bound to the caller. Nothing for commands that ask no probe: how callers are told apart may have
/// been said to the proxy by a flag.
pub(super) fn probes(reader: &mut Reader<'_>, config: &Config) {
    let kinds = &config.scope.kinds;
    bound(&mut Place { reader, route: None }, &config.defaults, kinds);
    for (at, route) in config.routes.iter().enumerate() {
        bound(&mut Place { reader, route: Some(at) }, &route.policy, kinds);
    }
}

/// Whose policy is checked: a route's, or the default one.
struct Place<'r, 'a> {
    reader: &'r mut Reader<'a>,
    route: Option<usize>,
}

impl Place<'_, '_> {
    /// The keys under which a value of this policy may have been set, the nearest first.
    fn keys(&self, names: &[&str]) -> Vec<String> {
        let own = |at: usize| names.iter().map(move |name| format!("route[{at}].{name}"));
        let inherited = names.iter().map(|name| format!("defaults.{name}"));
        self.route.into_iter().flat_map(own).chain(inherited).collect()
    }

    /// Notes a problem of this policy, unless the default one, from which it was inherited, has the same.
    fn refuse(&mut self, names: &[&str], message: impl Into<String>) {
        self.refuse_beside(names, &[], message);
    }

    fn refuse_beside(&mut self, names: &[&str], others: &[&str], message: impl Into<String>) {
        let keys = self.keys(names);
        let keys: Vec<&str> = keys.iter().map(String::as_str).chain(others.iter().copied()).collect();
        let before = self.reader.problems.len();
        self.reader.refuse(&keys, message);
        self.forget_repeats(before);
    }

    /// Removes problems after the first `before` that were noted already.
    fn forget_repeats(&mut self, before: usize) {
        for problem in self.reader.problems.split_off(before) {
            if !self.reader.problems.contains(&problem) {
                self.reader.problems.push(problem);
            }
        }
    }
}

fn policy(place: &mut Place<'_, '_>, policy: &Policy, config: &Config) {
    times(place, policy, config.upstream.answer_timeout);
    sizes(place, policy);
    key_rules(place, policy);
    request_age(place, policy);
    fingerprint(place, policy, config);
    fields(place, policy, config);
    labels(place, policy);
    probe(place, policy, config.upstream.answer_timeout);
    probe_over_http(place, policy);
    if policy.replay_check == ReplayCheck::Ask && config.ask.is_none() {
        let message = "`replay_check = \"ask\"` needs an endpoint; set `ask.url`";
        place.refuse_beside(&["replay_check"], &["ask.url"], message);
    }
}

fn times(place: &mut Place<'_, '_>, policy: &Policy, answer_timeout: Duration) {
    let optional = [
        ("keep_expired", policy.keep_expired),
        ("key_age_max", policy.key_age_max),
        ("not_stored_retention", policy.not_stored_retention),
    ];
    let given = optional.into_iter().filter_map(|(name, value)| Some((name, value?)));
    for (name, value) in [("retention", policy.retention), ("lease", policy.lease)].into_iter().chain(given) {
        let keys = place.keys(&[name]);
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let before = place.reader.problems.len();
        above_zero(place.reader, &keys, name, value);
        place.forget_repeats(before);
    }
    let retention = policy.retention;
    if retention.is_zero() {
        return;
    }
    if policy.lease < LEASE_MIN && !policy.lease.is_zero() {
        place.refuse(&["lease"], "`lease` is below 1s, so a hiccup of the store would end it; raise it");
    }
    let shown = show_duration(retention);
    if retention < policy.lease {
        let message =
            format!("`retention` is {shown}, shorter than `lease`, {}; raise it", show_duration(policy.lease));
        place.refuse(&["retention", "lease"], message);
    }
    if retention < answer_timeout {
        let limit = show_duration(answer_timeout);
        let message = format!("`retention` is {shown}, shorter than `upstream.answer_timeout`, {limit}; raise it");
        place.refuse_beside(&["retention"], &["upstream.answer_timeout"], message);
    }
    if policy.wait_max > WAIT_MAX {
        let message =
            format!("`wait_max` is {}, above 5m, longer than clients wait; lower it", show_duration(policy.wait_max));
        place.refuse(&["wait_max"], message);
    }
}

fn sizes(place: &mut Place<'_, '_>, policy: &Policy) {
    let limits = [
        ("request_bytes_max", policy.request_bytes_max, REQUEST_BYTES_MAX),
        ("answer_bytes_max", policy.answer_bytes_max, BODY_BYTES_MAX),
    ];
    for (name, value, limit) in limits {
        if value > limit {
            let message =
                format!("`{name}` is {}, above the limit of {}; lower it", show_size(value), show_size(limit));
            place.refuse(&[name], message);
        }
    }
}

fn key_rules(place: &mut Place<'_, '_>, policy: &Policy) {
    let length_min = policy.key_length_min;
    if length_min == 0 {
        place.refuse(&["key_length_min"], "`key_length_min` is 0, but an empty key is no key; write 1 or more");
    }
    if policy.key_format != KeyFormat::Any && length_min > UUID_CHARS {
        let message = format!("`key_length_min` is {length_min}, but a UUID has {UUID_CHARS} characters; lower it");
        place.refuse(&["key_length_min", "key_format"], message);
    }
    if policy.key_age_max.is_some() && policy.key_format != KeyFormat::Uuidv7 {
        let message = "`key_age_max` needs keys that hold their time; set `key_format = \"uuidv7\"`";
        place.refuse(&["key_age_max", "key_format"], message);
    }
    const { assert!(KEY_CHARS_MAX == u8::MAX as usize) };
}

fn request_age(place: &mut Place<'_, '_>, policy: &Policy) {
    let names = ["request_age_max", "request_time_header"];
    match (policy.request_age_max, &policy.request_time_header) {
        (Some(_), None) => {
            let message = "`request_age_max` needs the field that holds a request's time; set `request_time_header`";
            place.refuse(&names, message);
        }
        (None, Some(_)) => {
            let message = "`request_time_header` does nothing without `request_age_max`; set that too";
            place.refuse(&names, message);
        }
        _ => {}
    }
    if policy.request_age_max.is_some_and(|age| age.is_zero()) {
        place.refuse(&names, "`request_age_max` is 0; write a duration above 0");
    }
}

fn fingerprint(place: &mut Place<'_, '_>, policy: &Policy, config: &Config) {
    let names = ["fingerprint", "fingerprint_pointers", "fingerprint_headers"];
    if needs_pointers(policy) && policy.fingerprint_pointers.is_empty() {
        let message = "`fingerprint` is \"only\" or \"except\", which needs JSON pointers; set `fingerprint_pointers`";
        return place.refuse(&names, message);
    }
    if has_idle_pointers(place, policy, config) {
        let message = "`fingerprint_pointers` do nothing unless `fingerprint` is \"only\" or \"except\"; set that too, or \
                       remove them";
        place.refuse(&["fingerprint_pointers", "fingerprint"], message);
    }
    let key_id = config.fingerprint.current.as_ref().map(|key| key.id.as_str());
    if let Err(why) = policy.recipe(key_id) {
        // A key id that cannot be is reported where the key is checked.
        if policy.recipe(None).is_err() {
            place.refuse(&names, format!("`fingerprint` is not accepted: {why}"));
        }
    }
}

/// Fields that no request has by the time they are asked for.
fn fields(place: &mut Place<'_, '_>, policy: &Policy, config: &Config) {
    let compared = policy.fingerprint_headers.iter().map(|name| ("fingerprint_headers", name));
    for (key, name) in compared.chain(policy.request_time_header.iter().map(|name| ("request_time_header", name))) {
        if let Some(why) = check_fields::unfit(name, config) {
            place.refuse(&[key], format!("`{key}` names `{name}`, {why}"));
        }
    }
}

fn needs_pointers(policy: &Policy) -> bool {
    matches!(policy.fingerprint, Counted::Only | Counted::Except)
}

/// Whether somebody wrote pointers here that count nowhere: those of the defaults may count in a route.
fn has_idle_pointers(place: &Place<'_, '_>, policy: &Policy, config: &Config) -> bool {
    if needs_pointers(policy) || policy.fingerprint_pointers.is_empty() {
        return false;
    }
    let says = |at: usize| {
        let key = format!("route[{at}].fingerprint_pointers");
        place.reader.settings.iter().any(|setting| setting.key == key)
    };
    match place.route {
        Some(at) => says(at),
        None => !config.routes.iter().enumerate().any(|(at, route)| needs_pointers(&route.policy) && !says(at)),
    }
}

fn labels(place: &mut Place<'_, '_>, policy: &Policy) {
    let most = LABEL_COUNT_MAX - OWN_LABELS.len();
    if policy.labels.len() > most {
        let message = format!("`labels` has {} entries, above the limit of {most}; remove some", policy.labels.len());
        place.refuse(&["labels"], message);
    }
    let is_sound = |name: &str| {
        let letters = name.chars().all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-' | '.'));
        !name.is_empty() && name.len() <= LABEL_BYTES_MAX / 4 && letters
    };
    if let Some(name) = policy.labels.keys().find(|name| OWN_LABELS.contains(&name.as_str())) {
        let message = format!("`labels` has the name {name:?}, which hapax gives every record itself; choose another");
        place.refuse(&["labels"], message);
    }
    if let Some(name) = policy.labels.keys().find(|name| !is_sound(name)) {
        let message = format!("`labels` has the name {name:?}; use letters, digits, dots, underscores and hyphens");
        place.refuse(&["labels"], message);
    }
}

/// A probe that would be believed too early, or that asks for what no record has.
fn probe(place: &mut Place<'_, '_>, policy: &Policy, answer_timeout: Duration) {
    let Some(probe) = &policy.probe else { return };
    for (name, value) in [("settle_after", policy.settle_after), ("probe_backoff", policy.probe_backoff)] {
        let keys = place.keys(&[name]);
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let before = place.reader.problems.len();
        above_zero(place.reader, &keys, name, value);
        place.forget_repeats(before);
    }
    if policy.settle_after < answer_timeout {
        let message = format!(
            "`settle_after` is {}, shorter than `upstream.answer_timeout`, {}: a probe would be believed while the \
             upstream may still be at work; raise it",
            show_duration(policy.settle_after),
            show_duration(answer_timeout)
        );
        place.refuse_beside(&["settle_after", "probe"], &["upstream.answer_timeout"], message);
    }
    if probe.timeout.is_zero() || probe.timeout > PROBE_TIMEOUT_MAX {
        place.refuse(&["probe"], "`probe` has a `timeout` that is 0 or above 5m; write such as \"10s\"");
    }
    let known = |name: &str| policy.labels.contains_key(name) || OWN_LABELS.contains(&name);
    if let Some(name) = probe.get.labels().find(|name| !known(name)) {
        place
            .refuse(&["probe", "labels"], format!("`probe` asks for the label `{name}`, which `labels` does not have"));
    }
    let answered = |name: &&str| matches!(policy.labels.get(*name), Some(LabelSource::Answer(_)));
    if let Some(name) = probe.get.labels().find(answered) {
        let message = format!(
            "`probe` asks for the label `{name}`, which is taken from the answer: a request whose outcome is unknown has \
             none; take it from the request (\"request:/…\"), or ask by {{id}}"
        );
        place.refuse(&["probe", "labels"], message);
    }
    if probe.is_inline && place.reader.file.is_some_and(secret::is_public) {
        let message = "`probe` holds a secret, and anyone on this machine can read the file; name a file of its own in \
                       `value_file`";
        place.refuse(&["probe"], message);
    }
}

/// A probe that could be answered with what is another caller's.
fn bound(place: &mut Place<'_, '_>, policy: &Policy, kinds: &[ScopeKind]) {
    let Some(probe) = &policy.probe else { return };
    let why = match unbound(probe, kinds) {
        None => return,
        Some(Unbound::Digest) => "by {scope}, which is a digest here that only hapax knows",
        Some(Unbound::Key) => "by {key}, which another caller may use as well",
        Some(Unbound::Label) => "by a label, which any caller may write",
    };
    let message = format!(
        "`probe` asks {why}, and would find what is another's; ask by {{id}}, which the upstream gets as `Idempotency-Record`"
    );
    place.refuse_beside(&["probe"], &["scope"], message);
}

/// By what a probe asks that says nothing of who calls.
enum Unbound {
    Digest,
    Key,
    Label,
}

/// `{id}` binds, and so does a scope that others can read. Where there is one caller, everything is bound.
fn unbound(probe: &Probe, kinds: &[ScopeKind]) -> Option<Unbound> {
    let asks_by = |piece| probe.get.asks_by(piece);
    let readable = match kinds {
        [ScopeKind::Single] => return None,
        [ScopeKind::Header(_) | ScopeKind::Ask(_)] => true,
        // The names of several issuers' callers are digests.
        [ScopeKind::Jwt(jwt)] => jwt.issuer.len() == 1,
        _ => false,
    };
    match () {
        () if asks_by(&Piece::Id) || (asks_by(&Piece::Scope) && readable) => None,
        () if asks_by(&Piece::Key) && probe.keys_unique => None,
        () if asks_by(&Piece::Scope) => Some(Unbound::Digest),
        () if asks_by(&Piece::Key) => Some(Unbound::Key),
        () => Some(Unbound::Label),
    }
}

/// What is sent along with a probe is mostly a credential: not over plain http through a network. The upstream itself is
/// reached as the configuration says, and gets credentials of callers that way already: there it is only noted (`reload`).
fn probe_over_http(place: &mut Place<'_, '_>, policy: &Policy) {
    let Some(probe) = &policy.probe else { return };
    if probe.header.is_some() && !probe.allow_http && probe.url.as_ref().is_some_and(is_plain) {
        let message = "`probe` sends a secret to a `url` that is not https, so anyone between could read it; use https, or \
                       add `allow_http = true` where the network in between is trusted";
        place.refuse(&["probe"], message);
    }
}

fn methods(place: &mut Place<'_, '_>, route: &Route) {
    if route.methods.is_empty() {
        place.refuse(&["methods"], "`methods` names none; write [\"POST\"]");
    }
    let passed = [Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE, Method::CONNECT];
    if let Some(method) = route.methods.iter().find(|method| passed.contains(method)) {
        place.refuse(&["methods"], format!("`methods` names {method}, which is never protected; remove it"));
    }
}
