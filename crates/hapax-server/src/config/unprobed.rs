//! How many routes can find out by themselves what became of a request, and on how many a person must: under a fence that is
//! what decides how long a client waits.

use crate::config::{Config, Mode, Policy};

/// Protected routes, the default one included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProbeCount {
    /// Those with a probe.
    pub(crate) with: usize,
    /// Those without.
    pub(crate) without: usize,
}

impl ProbeCount {
    /// As that configuration has them.
    pub(crate) fn of(config: &Config) -> Self {
        let is_enforced =
            |policy: &&Policy| policy.protect && policy.mode == Mode::Enforce && config.mode == Mode::Enforce;
        let routes = config.routes.iter().map(|route| &route.policy);
        let mut probes = Self::default();
        for policy in routes.chain([&config.defaults]).filter(is_enforced) {
            match policy.probe {
                Some(_) => probes.with += 1,
                None => probes.without += 1,
            }
        }
        probes
    }
}
