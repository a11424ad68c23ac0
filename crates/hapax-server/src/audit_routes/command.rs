//! The command `hapax routes`: the configured routes, and what a log says about them.

use std::collections::HashMap;
use std::error::Error;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::sync::Arc;

use hapax::http::{Mode as RouteMode, Routes};
use http::{HeaderMap, Method};

use super::{Audit, Keys, Report, Route};
use crate::config::policy::Policy;
use crate::config::{Config, Mode, show_duration};
use crate::run;

/// Reads the log, if there is one, and says what was found.
///
/// # Errors
/// If the log cannot be read, or nothing in it is a request.
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
    // The proxy's own choice: what holds for a path such as `//pay` is as strict as each route that it may be taken for.
    let chosen = run::routes(config)?;
    let names = config.routes.iter().map(|route| Routes::name(&route.methods, &route.path));
    let mut places: HashMap<Arc<str>, usize> = names.enumerate().map(|(nth, name)| (name, nth)).collect();
    places.insert(Arc::clone(&chosen.default_route().name), default);
    let matching = |method: &str, path: &str| {
        let method = Method::from_bytes(method.as_bytes()).ok()?;
        let route = chosen.find(&method, path, &HeaderMap::new())?;
        let is_enforced = route.protected && route.mode == RouteMode::Enforce;
        Some((*places.get(&route.name)?, keys_of(is_enforced, route.required)))
    };
    let mut audit = Audit::new(&routes, &config.keys.headers, matching);
    if let Some(path) = log {
        let unreadable = |error| format!("the log `{}` cannot be read: {error}; name another file", path.display());
        audit.read(BufReader::new(File::open(path).map_err(unreadable)?)).map_err(unreadable)?;
    }
    let report = audit.finish();
    match log.filter(|_| report.requests == 0) {
        Some(path) => Err(no_request(path, report.malformed).into()),
        None => Ok(report),
    }
}

/// Where requests stand that the proxy has seen.
const OWN_LOG: &str = "hapax's own has them with log.level = \"info,hapax=debug\"";

/// Silence would look like a clean bill.
fn no_request(path: &Path, lines: u64) -> String {
    if lines == 0 {
        let path = path.display();
        return format!("the log `{path}` holds no request, so there is nothing to judge; name another ({OWN_LOG})");
    }
    format!(
        "the log `{}` has no request that could be understood in its {lines} lines; name one in NDJSON with a method and a \
         path, or in the Common or Combined Log Format ({OWN_LOG})",
        path.display()
    )
}

fn describe(methods: Vec<String>, pattern: &str, policy: &Policy) -> Route {
    let keys = keys_of(policy.protect && policy.mode == Mode::Enforce, policy.required);
    Route { methods, pattern: pattern.to_owned(), policy: in_words(policy), keys }
}

fn keys_of(is_enforced: bool, required: bool) -> Keys {
    match (is_enforced, required) {
        (false, _) => Keys::Ignored,
        (true, true) => Keys::Required,
        (true, false) => Keys::Optional,
    }
}

fn in_words(policy: &Policy) -> String {
    if !policy.protect {
        return "passed through".to_owned();
    }
    let observed = if policy.mode == Mode::Observe { "observed only, " } else { "" };
    let keys = if policy.required { "required" } else { "optional" };
    let (retention, lease) = (show_duration(policy.retention), show_duration(policy.lease));
    let lapse = format!("{:?}", policy.on_lapse).to_lowercase();
    format!("{observed}keys {keys}, answers kept {retention}, lease {lease}, a lapse is {lapse}")
}
