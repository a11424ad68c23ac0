//! `[defaults]` and `[[route]]`: what holds for a request.
//!
//! Both have the same keys. A route inherits from the defaults all that it does not say, except that naming a route
//! means to protect it. Left to others: which values fit together (`check`).

use http::Method;

use super::model::Route;
use super::policy::Policy;
use super::reader::Section;
use super::source::{Node, Raw};
use super::value::Size;
use hapax::http::Pattern;

/// Reads the keys of a policy; what is not said is as in `base`.
pub(super) fn policy(section: &mut Section<'_, '_>, base: &Policy) -> Policy {
    section.refuse("on_panic", "says what a panic in a handler means, and a proxy runs no handler; remove it");
    Policy {
        protect: section.value("protect", base.protect),
        required: section.value("required", base.required),
        mode: section.value("mode", base.mode),
        retention: section.value("retention", base.retention),
        lease: section.value("lease", base.lease),
        on_lapse: section.value("on_lapse", base.on_lapse),
        on_server_error: section.value("on_server_error", base.on_server_error),
        on_gateway_error: section.value("on_gateway_error", base.on_gateway_error),
        in_flight: section.value("in_flight", base.in_flight),
        wait_max: section.value("wait_max", base.wait_max),
        key_per: section.value("key_per", base.key_per),
        key_format: section.value("key_format", base.key_format),
        key_length_min: section.value("key_length_min", base.key_length_min),
        key_age_max: section.value("key_age_max", base.key_age_max),
        request_age_max: section.value("request_age_max", base.request_age_max),
        request_time_header: section.value("request_time_header", base.request_time_header.clone()),
        fingerprint: section.value("fingerprint", base.fingerprint),
        fingerprint_pointers: section.value("fingerprint_pointers", base.fingerprint_pointers.clone()),
        fingerprint_headers: section.value("fingerprint_headers", base.fingerprint_headers.clone()),
        request_bytes_max: section.value("request_bytes_max", Size(base.request_bytes_max)).0,
        answer_bytes_max: section.value("answer_bytes_max", Size(base.answer_bytes_max)).0,
        keep_cookies: section.value("keep_cookies", base.keep_cookies),
        not_stored: section.value("not_stored", base.not_stored.clone()),
        not_stored_retention: section.value("not_stored_retention", base.not_stored_retention),
        new_keys_per_second: section.value("new_keys_per_second", base.new_keys_per_second),
        lookups_per_second: section.value("lookups_per_second", base.lookups_per_second),
        replay_check: section.value("replay_check", base.replay_check),
        keep_expired: section.value("keep_expired", base.keep_expired),
        attempts_max: section.value("attempts_max", base.attempts_max),
        labels: section.value("labels", base.labels.clone()),
        probe: section.value("probe", base.probe.clone()),
        settle_after: section.value("settle_after", base.settle_after),
        probe_attempts: section.value("probe_attempts", base.probe_attempts),
        probe_backoff: section.value("probe_backoff", base.probe_backoff),
    }
}

/// Reads all routes, in the order of the file.
pub(super) fn routes(top: &mut Section<'_, '_>, defaults: &Policy) -> Vec<Route> {
    let tables = match top.ask("route") {
        None => return Vec::new(),
        Some(Node { raw: Raw::List(tables), .. }) => tables,
        Some(Node { raw, line }) => {
            let origin = top.reader.at_line(*line);
            let found = if matches!(raw, Raw::Table(_)) { "[route]".to_owned() } else { raw.shown() };
            top.problem(Some(&origin), format!("routes are written [[route]], not {found}; double the brackets"));
            return Vec::new();
        }
    };
    let base = Policy { protect: true, ..defaults.clone() };
    let mut routes = Vec::with_capacity(tables.len());
    for (at, table) in tables.iter().enumerate() {
        let Raw::Table(entries) = &table.raw else {
            let origin = top.reader.at_line(table.line);
            top.problem(Some(&origin), format!("a route must be a table, [[route]], not {}", table.raw.shown()));
            continue;
        };
        let line = table.line;
        let route = top.reader.section(format!("route[{at}]"), entries, |section| route(section, line, &base));
        routes.push(route);
    }
    routes
}

/// Reads one route; one whose path cannot be read stands in for itself with a path that nobody asks for.
fn route(section: &mut Section<'_, '_>, line: usize, base: &Policy) -> Route {
    let problems_before = section.reader.problems.len();
    let methods = section.value("methods", vec![Method::POST, Method::PATCH]);
    let path: Option<Pattern> = section.needed("path");
    if path.is_none() && section.reader.problems.len() == problems_before {
        let origin = section.reader.at_line(line);
        section.problem(Some(&origin), "the route has no path; write path = \"/payments\"".to_owned());
    }
    let path = path.or_else(|| Pattern::parse(&format!("/-/line-{line}")).ok());
    let policy = policy(section, base);
    // The pattern above is one, so nothing is lost by the other.
    Route { methods, path: path.unwrap_or_else(Pattern::root), policy }
}
