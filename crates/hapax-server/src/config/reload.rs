//! What a reload cannot change, and what an operator should know.
//!
//! Sockets, the store and the addresses of records are fixed while the process lives. Left to others: the signal, the scheme of
//! scopes, which they know themselves, and putting a new configuration in force.

use http::Method;

use super::check::is_plain;
use super::model::{Backend, Config, Route, ScopeKind};
use super::policy::{KeyPer, Policy};
use super::probe::Probe;
use super::{Mode, read_scope};

impl Config {
    /// The keys whose new values need a restart; empty where `new` can be put in force as it is.
    #[must_use]
    pub fn needs_restart(&self, new: &Self) -> Vec<&'static str> {
        let (server, other) = (&self.server, &new.server);
        let changed = [
            ("server.from", server.from != other.from),
            ("server.tls_cert", server.tls != other.tls),
            ("server.connections_max", server.connections_max != other.connections_max),
            (
                "server.connections_per_client_max",
                // Where the other one changes, its default does too.
                server.connections_max == other.connections_max
                    && server.connections_per_client_max != other.connections_per_client_max,
            ),
            ("server.header_count_max", server.header_count_max != other.header_count_max),
            ("server.header_bytes_max", server.header_bytes_max != other.header_bytes_max),
            ("server.header_timeout", server.header_timeout != other.header_timeout),
            ("server.body_timeout", server.body_timeout != other.body_timeout),
            ("server.body_rate_min", server.body_rate_min != other.body_rate_min),
            ("server.write_rate_min", server.write_rate_min != other.write_rate_min),
            ("server.tunnel_idle_timeout", server.tunnel_idle_timeout != other.tunnel_idle_timeout),
            ("server.write_timeout", server.write_timeout != other.write_timeout),
            ("server.keep_alive", server.keep_alive != other.keep_alive),
            ("server.h2_streams_max", server.h2_streams_max != other.h2_streams_max),
            ("server.h2_resets_max", server.h2_resets_max != other.h2_resets_max),
            ("server.trusted_peers", server.trusted_peers != other.trusted_peers),
            ("server.request_id_header", server.request_id_header != other.request_id_header),
            ("store", self.store != new.store),
            ("key_per", self.key_per_scheme() != new.key_per_scheme()),
            ("background", self.background != new.background),
            ("admin.from", self.admin.from != new.admin.from),
            ("admin.hosts", self.admin.hosts != new.admin.hosts),
            ("log.format", self.log.format != new.log.format),
        ];
        changed.into_iter().filter(|(_, changed)| *changed).map(|(key, _)| key).collect()
    }

    /// For whom keys are unique, request by request, as a text: with another one, some keys get other addresses. Of the routes
    /// it names those that differ from the default, and those that take requests from them.
    pub(crate) fn key_per_scheme(&self) -> String {
        let default = self.defaults.key_per;
        let differ: Vec<&Route> = self.routes.iter().filter(|route| route.policy.key_per != default).collect();
        let counts = |route: &&Route| {
            route.policy.key_per != default || differ.iter().any(|other| takes_requests_from(route, other))
        };
        let named = |route: &Route| format!(";{}{}={}", methods(route), route.path, per(&route.policy));
        let mut routes: Vec<String> = self.routes.iter().filter(counts).map(named).collect();
        routes.sort();
        format!("per-{}{}", per(&self.defaults), routes.concat())
    }

    /// What is allowed but worth a second look, a sentence each.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.store.backend == Backend::Memory {
            warnings.push("the store is in memory: a restart forgets every key, and retries run again".to_owned());
        }
        if let Some(shown) = self.store.exposed_at() {
            warnings.push(format!(
                "the store at {shown} may be talked to without TLS: passwords and recorded answers can be read on the way; \
                 add sslmode=require to `store.url`"
            ));
        }
        if let Backend::Sqlite { path } = &self.store.backend
            && let Some(why) = super::exposed_store(path)
        {
            warnings.push(format!("the proxy will not start: {why}"));
        }
        if self.mode == Mode::Observe {
            warnings.push("mode is observe: nothing is refused or replayed, so nothing is protected".to_owned());
        }
        if !self.defaults.protect && !self.routes.iter().any(|route| route.policy.protect) {
            warnings.push("`defaults.protect` is false and no route protects: nothing is protected".to_owned());
        }
        if self.scope.anonymous {
            warnings.push("`anonymous` is true: all requests without a credential share their keys".to_owned());
        }
        if let Some(name) = self.scope.kinds.iter().find_map(plain_header) {
            let reach = "whoever reaches this listener without the gateway can name any tenant";
            warnings.push(format!("the scope is the plain header `{name}`: {reach}"));
        }
        warnings.extend(self.probes_without_condition());
        warnings.extend(self.probes_over_http());
        warnings.extend(self.server.trusted_peers.iter().filter(|network| network.has_strangers()).map(|network| {
            format!(
                "`server.trusted_peers` has {network}, which strangers are in: whoever reaches this listener can say who they \
                 are; name the gateways alone"
            )
        }));
        let open = self.admin.from.filter(|from| !read_scope::is_loopback(&from.ip().to_string()));
        let has_token = self.admin.token.is_some() || !self.admin.tokens.is_empty();
        if let Some(from) = open.filter(|_| !has_token) {
            warnings
                .push(format!("the admin listener is at {from}, beyond this machine, and `admin.token` is not set"));
        }
        warnings.extend(self.probes_by_key_alone());
        warnings
    }

    /// What may be wrong as far as can be told without the store. A node that starts asks the store itself.
    pub fn warnings_without_store(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.store.may_lose_in_failover() {
            warnings.push(
                "`store.url` has several hosts and `store.strict` is off: a server without a synchronous standby is used as \
                 well, and a failover from it may lose keys that were claimed; set `store.strict = true`"
                    .to_owned(),
            );
        }
        warnings
    }

    /// What a caller learns by somebody else's key.
    fn probes_by_key_alone(&self) -> Option<String> {
        let policies = self.routes.iter().map(|route| &route.policy).chain([&self.defaults]);
        let alone = policies.filter_map(|policy| policy.probe.as_ref()).any(Probe::is_by_key_alone);
        let why = "whoever sends another caller's key, with an outcome in doubt, learns what became of that one";
        (alone && self.scope.kinds != [ScopeKind::Single])
            .then(|| format!("a probe says `keys_unique`: {why}; ask by {{id}}"))
    }
}

impl Config {
    /// Probes that take a status alone for "it happened": of many an API, 200 only says that the question was understood.
    fn probes_without_condition(&self) -> Vec<String> {
        self.probes_that(|probe| probe.happened.condition.is_none(), |name| {
            format!(
                "the probe of {name} has no `happened_if`: its status alone says that a request happened; name what the body \
                 must say, such as happened_if = \"/status=succeeded\""
            )
        })
    }

    /// Probes that send a secret to the upstream through a network that can be listened to.
    fn probes_over_http(&self) -> Vec<String> {
        let sends = |probe: &Probe| probe.header.is_some() && probe.url.is_none() && !probe.allow_http;
        self.probes_that(|probe| sends(probe) && is_plain(&self.upstream.to), |name| {
            format!(
                "the probe of {name} sends a secret to `upstream.to`, which is not https: anyone between could read it; use \
                 https, or add `allow_http = true` to the probe where the network in between is trusted"
            )
        })
    }

    /// A note of each such probe; of one that is inherited, one.
    fn probes_that(&self, such: impl Fn(&Probe) -> bool, note: impl Fn(&str) -> String) -> Vec<String> {
        let is_such = |policy: &Policy| policy.probe.as_ref().is_some_and(&such);
        let own = self.routes.iter().filter(|route| route.policy.probe != self.defaults.probe);
        let routes =
            own.filter(|route| is_such(&route.policy)).map(|route| note(&format!("the route `{}`", route.path)));
        is_such(&self.defaults).then(|| note("`defaults`")).into_iter().chain(routes).collect()
    }
}

fn plain_header(kind: &ScopeKind) -> Option<&str> {
    match kind {
        ScopeKind::Header(name) => Some(name.as_str()),
        _ => None,
    }
}

fn per(policy: &Policy) -> &'static str {
    match policy.key_per {
        KeyPer::Route => "route",
        KeyPer::Caller => "caller",
    }
}

/// Whether some request is on the one only because it is more specific than the other.
fn takes_requests_from(route: &Route, other: &Route) -> bool {
    route.methods.iter().any(|method| other.methods.contains(method))
        && route.path.specificity() > other.path.specificity()
        && route.path.overlaps(&other.path)
}

/// Nothing where they are the usual ones.
fn methods(route: &Route) -> String {
    let mut names: Vec<&str> = route.methods.iter().map(Method::as_str).collect();
    names.sort_unstable();
    if names == ["PATCH", "POST"] { String::new() } else { format!("{} ", names.join(",")) }
}
