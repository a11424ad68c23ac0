//! What a route says: [`Route`], and which route a request is on: [`Routes`].
//!
//! By default POST and PATCH are protected and must carry a key; everything else passes through.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use hapax_core::fingerprint::Recipe;
use hapax_core::limits::{BODY_BYTES_MAX, DURATION_MS_MAX};
use hapax_core::record::{OnLapse, Policy};
use http::header::HeaderName;
use http::{HeaderMap, Method, StatusCode};

use crate::http::key::KeyRules;
use crate::http::path;
use crate::http::pattern::Pattern;
use crate::http::strictest;

/// What becomes of a key after an answer that may or may not be final. In the order of strictness.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Then {
    /// It may run again.
    Ready,
    /// The answer is recorded and replayed.
    Completed,
    /// Nobody knows; it gets reconciled.
    Unknown,
}

/// What a retry gets while the first request is running.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum InFlight {
    /// 409 at once.
    #[default]
    Conflict,
    /// 202 at once.
    Accepted,
    /// The answer if it comes within the route's `wait_max`, otherwise 409.
    Wait,
}

/// For whom a key is unique.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KeyPer {
    /// One caller. The same key on another path is a mismatch.
    #[default]
    Caller,
    /// One caller, method and path. The same key on another path is another key; on another spelling of the path (`/pay/`,
    /// `//pay`, `/%70ay`) it is the same.
    Route,
}

/// Whether the rules are applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// Nothing is refused or replayed; what would have been is counted and logged.
    Observe,
    /// Applied.
    #[default]
    Enforce,
}

/// Where a business identifier is found.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LabelSource {
    /// The label's name.
    pub name: String,
    /// In the answer rather than in the request.
    pub in_answer: bool,
    /// A JSON pointer (RFC 6901).
    pub pointer: String,
}

/// A field that says when a request was made, set or signed by somebody trusted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RequestAge {
    /// The field: seconds or milliseconds since 1970, or an HTTP date.
    pub header: HeaderName,
    /// Older requests are refused.
    pub age_max: Duration,
}

/// What a route says. Begin with [`Route::new`] and change what differs.
///
/// ```
/// use std::time::Duration;
/// use hapax::OnLapse;
/// use hapax::http::{InFlight, Route, Then};
///
/// // A payment: kept for a week, and never run again after an error before it is known what happened.
/// let payments = Route::new()
///     .with_retention(Duration::from_secs(7 * 24 * 3600))
///     .with_on_server_error(Then::Unknown)
///     .with_in_flight(InFlight::Wait);
/// // A report: running it twice is harmless.
/// let reports = Route::new().with_optional_key().with_on_lapse(OnLapse::Rerun);
/// assert!(payments.required && !reports.required);
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Route {
    /// What it is called in labels of records and metrics: its methods and its pattern, or `default`. Set by [`Routes`].
    pub name: Arc<str>,
    /// Whether its requests are protected at all.
    pub protected: bool,
    /// Whether they must carry a key.
    pub required: bool,
    /// Applied, or only observed.
    pub mode: Mode,
    /// What is frozen with a record: lease, retention, what a lapse means.
    pub policy: Policy,
    /// After a complete 500 or 503: an error of the service itself.
    pub on_server_error: Then,
    /// After a complete 502, 504 or any other status from 500 on: somebody in between may have lost a success.
    pub on_gateway_error: Then,
    /// After a panic of the handler.
    pub on_panic: Then,
    /// What a retry gets while the first request is running.
    pub in_flight: InFlight,
    /// How long a retry may wait for the answer, where the route or the client (`Prefer: wait=N`) asks for it.
    pub wait_max: Duration,
    /// For whom a key is unique.
    pub key_per: KeyPer,
    /// What keys are accepted.
    pub key_rules: KeyRules,
    /// What must be equal for two requests to be the same.
    pub recipe: Recipe,
    /// Larger requests are refused.
    pub request_bytes_max: usize,
    /// Larger answers are passed on and not kept.
    pub answer_bytes_max: usize,
    /// Whether `Set-Cookie` is recorded and replayed.
    pub keep_cookies: bool,
    /// Statuses that are passed on and leave the key ready.
    pub not_stored: Vec<StatusCode>,
    /// How long such a key is kept for its next attempt, where that is shorter than the retention. `None`: for the retention.
    /// Not shorter than the time after which an attempt that was not heard of counts as gone: the number of attempts begins
    /// at 1 again.
    pub not_stored_retention: Option<Duration>,
    /// Older requests are refused.
    pub request_age: Option<RequestAge>,
    /// Asks before each replay whether this caller may still see it.
    pub replay_check: bool,
    /// New keys per second of one caller.
    pub new_keys_per_second: Option<u32>,
    /// Requests with a key, per second of one caller.
    pub lookups_per_second: Option<u32>,
    /// Business identifiers to find a record by.
    pub labels: Vec<LabelSource>,
    /// A mismatch is 400, as Stripe has it.
    pub mismatch_is_400: bool,
}

/// The largest request that is read: it is held in memory while it runs.
const REQUEST_BYTES_MAX: usize = 1024 * 1024;

/// Most clients give up after ten seconds or more.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// The longest wait: a client, or something between, gives up before.
const WAIT_LIMIT: Duration = Duration::from_secs(300);

/// A shorter lease is over before it can be renewed, by a hiccup of the store; a shorter retention before a client that lost
/// the answer comes back.
const SECOND: Duration = Duration::from_secs(1);

/// Long enough for a client that refreshes its token or obeys a `Retry-After`; short enough that whoever makes up callers, each of
/// whom is answered 401, leaves minutes' worth of records and not a day's.
const NOT_STORED_RETENTION: Duration = Duration::from_secs(10 * 60);

/// The longest lease, retention or age.
const DURATION_MAX: Duration = Duration::from_millis(DURATION_MS_MAX);

/// The name of the route that no pattern leads to.
const DEFAULT_NAME: &str = "default";

impl Default for Route {
    fn default() -> Self {
        Self {
            name: Arc::from(DEFAULT_NAME),
            protected: true,
            required: true,
            mode: Mode::Enforce,
            policy: Policy::default(),
            on_server_error: Then::Ready,
            on_gateway_error: Then::Unknown,
            on_panic: Then::Unknown,
            in_flight: InFlight::Conflict,
            wait_max: WAIT_MAX,
            key_per: KeyPer::Caller,
            key_rules: KeyRules::default(),
            recipe: Recipe::new(),
            request_bytes_max: REQUEST_BYTES_MAX,
            answer_bytes_max: BODY_BYTES_MAX,
            keep_cookies: false,
            not_stored: vec![
                StatusCode::UNAUTHORIZED,
                StatusCode::REQUEST_TIMEOUT,
                StatusCode::TOO_EARLY,
                StatusCode::TOO_MANY_REQUESTS,
            ],
            not_stored_retention: Some(NOT_STORED_RETENTION),
            request_age: None,
            replay_check: false,
            new_keys_per_second: None,
            lookups_per_second: None,
            labels: Vec::new(),
            mismatch_is_400: false,
        }
    }
}

macro_rules! with {
    ($($(#[$docs:meta])* $with:ident => $field:ident: $kind:ty;)*) => {
        $(
            $(#[$docs])*
            #[must_use]
            pub fn $with(mut self, $field: $kind) -> Self {
                self.$field = $field;
                self
            }
        )*
    };
}

impl Route {
    /// A protected route with the defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A route whose requests pass through.
    #[must_use]
    pub fn unprotected() -> Self {
        Self { protected: false, required: false, ..Self::default() }
    }

    /// The key may be left out; such a request is not protected.
    #[must_use]
    pub fn with_optional_key(mut self) -> Self {
        self.required = false;
        self
    }

    /// How long an answer is replayed, counted from completion: a second to ten years. What is shorter counts as a second,
    /// what is longer as ten years.
    #[must_use]
    pub fn with_retention(mut self, retention: Duration) -> Self {
        self.policy.retention_ms = millis(retention.clamp(SECOND, DURATION_MAX));
        self
    }

    /// How long an attempt may be silent. It renews its lease while it lives, so this is not a limit on its length. A second
    /// to ten years: a shorter one could not be renewed in time and counts as a second, a longer one as ten years.
    #[must_use]
    pub fn with_lease(mut self, lease: Duration) -> Self {
        self.policy.lease_ms = millis(lease.clamp(SECOND, DURATION_MAX));
        self
    }

    /// What a lapsed lease means: the process died in the middle.
    #[must_use]
    pub fn with_on_lapse(mut self, on_lapse: OnLapse) -> Self {
        self.policy.on_lapse = on_lapse;
        self
    }

    /// How long 410 is answered after an answer has expired. What is longer counts as ten years.
    #[must_use]
    pub fn with_keep_expired(mut self, keep: Duration) -> Self {
        self.policy.keep_expired_ms = Some(millis(keep.min(DURATION_MAX)));
        self
    }

    /// After how many failed attempts a person has to decide. Zero counts as one.
    #[must_use]
    pub fn with_attempts_max(mut self, attempts: u32) -> Self {
        self.policy.attempts_max = Some(attempts.max(1));
        self
    }

    /// How long a retry may wait for the answer. What is longer counts as five minutes.
    #[must_use]
    pub fn with_wait_max(mut self, wait_max: Duration) -> Self {
        self.wait_max = wait_max.min(WAIT_LIMIT);
        self
    }

    /// Older requests are refused, by a field that somebody trusted sets. An age that is longer counts as ten years.
    #[must_use]
    pub fn with_request_age(mut self, age: RequestAge) -> Self {
        self.request_age = Some(RequestAge { age_max: age.age_max.min(DURATION_MAX), ..age });
        self
    }

    /// How long a key is kept that an answer with a status of `not_stored` left free, at least a second. Longer than the
    /// retention counts as the retention.
    #[must_use]
    pub fn with_not_stored_retention(mut self, keep: Duration) -> Self {
        self.not_stored_retention = Some(keep.clamp(SECOND, DURATION_MAX));
        self
    }

    /// New keys per second of one caller, for the [`Guard`](crate::http::Guard) to hold up what is beyond. Zero counts as one.
    #[must_use]
    pub fn with_new_keys_per_second(mut self, keys: u32) -> Self {
        self.new_keys_per_second = Some(keys.max(1));
        self
    }

    /// Requests with a key, per second of one caller, for the [`Guard`](crate::http::Guard) to hold up what is beyond. Zero
    /// counts as one.
    #[must_use]
    pub fn with_lookups_per_second(mut self, lookups: u32) -> Self {
        self.lookups_per_second = Some(lookups.max(1));
        self
    }

    with! {
        /// Whether the rules are applied or only observed.
        with_mode => mode: Mode;
        /// What a complete 500 or 503 means.
        with_on_server_error => on_server_error: Then;
        /// What a complete 502, 504 or any other status from 500 on means.
        with_on_gateway_error => on_gateway_error: Then;
        /// What a panic of the handler means.
        with_on_panic => on_panic: Then;
        /// What a retry gets while the first request is running.
        with_in_flight => in_flight: InFlight;
        /// For whom a key is unique.
        with_key_per => key_per: KeyPer;
        /// What keys are accepted.
        with_key_rules => key_rules: KeyRules;
        /// What must be equal for two requests to be the same.
        with_recipe => recipe: Recipe;
        /// The largest request.
        with_request_bytes_max => request_bytes_max: usize;
        /// The largest answer that is kept.
        with_answer_bytes_max => answer_bytes_max: usize;
        /// Whether `Set-Cookie` is recorded and replayed.
        with_keep_cookies => keep_cookies: bool;
        /// Statuses that are passed on and leave the key ready.
        with_not_stored => not_stored: Vec<StatusCode>;
        /// Business identifiers to find a record by.
        with_labels => labels: Vec<LabelSource>;
        /// Whether [`Scopes::may_replay`](crate::http::Scopes::may_replay) is asked before each replay.
        with_replay_check => replay_check: bool;
        /// Whether a mismatch is 400, as Stripe has it, rather than 422.
        with_mismatch_is_400 => mismatch_is_400: bool;
    }
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A route with the requests it is for.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    /// In upper case.
    pub(super) methods: Vec<Method>,
    pub(super) pattern: Pattern,
    pub(super) route: Arc<Route>,
}

/// The routes of a service.
///
/// ```
/// use hapax::http::{Route, Routes};
/// use http::{HeaderMap, Method};
///
/// let routes = Routes::new(Route::new())
///     .with(&[Method::POST], "/search".parse()?, Route::unprotected())
///     .with(&[Method::PUT], "/accounts/{id}".parse()?, Route::new());
/// let name_of = |method, path| routes.find(&method, path, &HeaderMap::new()).map(|route| route.name.to_string());
/// assert_eq!(name_of(Method::PUT, "/accounts/7").as_deref(), Some("PUT /accounts/{id}"));
/// assert_eq!(name_of(Method::POST, "/payments").as_deref(), Some("default"));
/// assert_eq!(name_of(Method::GET, "/payments"), None);
/// # Ok::<_, hapax::http::InvalidPattern>(())
/// ```
#[derive(Clone)]
pub struct Routes {
    /// The most specific first.
    pub(super) rules: Vec<Rule>,
    default: Arc<Route>,
    /// Whether a pattern has a capital letter, so that a path without one may be another spelling of it.
    pub(super) has_capitals: bool,
}

impl fmt::Debug for Routes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.rules.iter().map(|rule| (&rule.methods, rule.pattern.as_str()))).finish()
    }
}

impl Default for Routes {
    fn default() -> Self {
        Self::new(Route::new())
    }
}

impl Routes {
    /// That route for POST and PATCH on every path.
    #[must_use]
    pub fn new(default: Route) -> Self {
        Self { rules: Vec::new(), default: Arc::new(default), has_capitals: false }
    }

    /// Another default.
    #[must_use]
    pub fn with_default(mut self, default: Route) -> Self {
        self.default = Arc::new(default);
        self
    }

    /// Another route for those methods, in any case, and paths. Of several that match, the most specific pattern counts.
    #[must_use]
    pub fn with(mut self, methods: &[Method], pattern: Pattern, route: Route) -> Self {
        let route = Route { name: Self::name(methods, &pattern), ..route };
        let methods = methods.iter().map(|method| path::in_upper_case(method).into_owned()).collect();
        self.has_capitals |= pattern.has_capitals();
        let rule = Rule { methods, pattern, route: Arc::new(route) };
        let place = self.rules.partition_point(|other| other.pattern.specificity() >= rule.pattern.specificity());
        self.rules.insert(place, rule);
        self
    }

    /// What a route for those methods and paths is called, such as `POST /payments`.
    #[must_use]
    pub fn name(methods: &[Method], pattern: &Pattern) -> Arc<str> {
        let methods: Vec<&str> = methods.iter().map(Method::as_str).collect();
        format!("{} {}", methods.join(","), pattern.as_str()).into()
    }

    /// What the routes are called.
    pub(crate) fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.rules.iter().map(|rule| &rule.route.name).chain([&self.default.name])
    }

    /// The route of POST and PATCH where no other matches.
    #[must_use]
    pub fn default_route(&self) -> &Arc<Route> {
        &self.default
    }

    /// The route that a request is on; `None` where it passes through because of its method. Where path or method may be
    /// taken for several (`post` may be for POST, `/Pay.json` for `/pay`), what applies is as strict as each of the routes that
    /// they lead to.
    #[must_use]
    pub fn find(&self, method: &Method, path: &str, headers: &HeaderMap) -> Option<Arc<Route>> {
        let is_ambiguous = path::is_ambiguous(headers);
        if !is_ambiguous && path::is_plain(path) && !self.has_other_spellings(path) {
            return self.of(&path::in_upper_case(method), path).cloned();
        }
        let methods = path::methods(method, headers);
        let mut readings = path::readings(path);
        if is_ambiguous {
            readings.extend(path::rewritten(headers).flat_map(|path| path::readings(&path)));
        }
        let mut found: Vec<&Arc<Route>> = Vec::new();
        let pairs = readings.iter().flat_map(|reading| methods.iter().map(move |method| (reading, method)));
        for route in pairs.flat_map(|(reading, method)| self.all_of(method, reading)) {
            if !found.iter().any(|other| Arc::ptr_eq(other, route)) {
                found.push(route);
            }
        }
        // The most specific first, the default last.
        let place = |route: &Arc<Route>| self.rules.iter().position(|rule| Arc::ptr_eq(&rule.route, route));
        found.sort_by_key(|route| place(route).unwrap_or(usize::MAX));
        strictest::of(&found, self.of(methods.first()?, &path::resolved(path)))
    }

    /// The route of that method, which is in upper case, on that very path.
    pub(super) fn of(&self, method: &Method, path: &str) -> Option<&Arc<Route>> {
        match self.rule(method, path) {
            Some(rule) => Some(&rule.route),
            None if *method == Method::POST || *method == Method::PATCH => Some(&self.default),
            None => None,
        }
    }

    pub(super) fn rule(&self, method: &Method, path: &str) -> Option<&Rule> {
        self.rules.iter().find(|rule| rule.methods.contains(method) && rule.pattern.matches(path))
    }
}

#[cfg(test)]
mod tests;
