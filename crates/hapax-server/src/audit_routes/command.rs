//! The command `hapax routes`: the configured routes, and what a log says about them.

use std::error::Error;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use http::Method;

use super::{Audit, Keys, Report, Route};
use crate::config::policy::Policy;
use crate::config::{Config, Mode};

/// Reads the log, if there is one, and says what was found.
///
/// # Errors
/// If the log cannot be read.
pub fn audit(config: &Config, log: Option<&Path>) -> Result<Report, Box<dyn Error + Send + Sync>> {
    let mut routes: Vec<Route> = config
        .routes
        .iter()
        .map(|route| {
            describe(route.methods.iter().map(ToString::to_string).collect(), route.path.as_str(), &route.policy)
        })
        .collect();
    let default = routes.len();
    routes.push(describe(vec!["POST".into(), "PATCH".into()], "/{*rest}", &config.defaults));
    let matching = |method: &str, path: &str| {
        let method = Method::from_bytes(method.as_bytes()).ok()?;
        let found = config.routes.iter().position(|route| route.methods.contains(&method) && route.path.matches(path));
        found.or((method == Method::POST || method == Method::PATCH).then_some(default))
    };
    let mut audit = Audit::new(&routes, matching);
    if let Some(path) = log {
        let file = File::open(path).map_err(|error| format!("the log `{}` cannot be read: {error}", path.display()))?;
        audit.read(BufReader::new(file))?;
    }
    Ok(audit.finish())
}

fn describe(methods: Vec<String>, pattern: &str, policy: &Policy) -> Route {
    let keys = match (policy.protect && policy.mode == Mode::Enforce, policy.required) {
        (false, _) => Keys::Ignored,
        (true, true) => Keys::Required,
        (true, false) => Keys::Optional,
    };
    Route { methods, pattern: pattern.to_owned(), policy: in_words(policy), keys }
}

fn in_words(policy: &Policy) -> String {
    if !policy.protect {
        return "passed through".to_owned();
    }
    let observed = if policy.mode == Mode::Observe { "observed only, " } else { "" };
    let (retention, lease) = (policy.retention.as_secs(), policy.lease.as_secs());
    format!("{observed}answers kept {retention} s, lease {lease} s, a lapse is {:?}", policy.on_lapse).to_lowercase()
}
