//! `hapax routes`: which state-changing endpoints are called without protection.
//!
//! A team that puts hapax in front of an API wants to know what it forgot. This reads an access log, matches each request
//! against the configured routes and reports the rest. It is pure: lines in, report out, in bounded memory. The command
//! line opens files and prints; the configuration supplies the routes and how they match.
//!
//! | module | what it is |
//! |---|---|
//! | [`command`] | the command: from a configuration and a file to a report |
//! | `line` | one line of a log, in NDJSON or the Common or Combined Log Format |
//! | `endpoint` | a path without its identifiers |
//! | `report` | what was found, as a table or as JSON |

pub mod command;
mod endpoint;
mod line;
mod report;

use std::collections::HashMap;
use std::io::{self, BufRead, Read};

use http::HeaderName;

use line::Parsed;
pub use report::{Endpoint, Finding, Report, RouteHits};

/// Endpoints told apart. A scanner makes up paths without end; what comes later is only counted.
pub const ENDPOINTS_MAX: usize = 10_000;

/// Longer lines are malformed: they are skipped without being kept.
pub const LINE_BYTES_MAX: usize = 64 * 1024;

/// Malformed lines whose numbers are reported.
pub const MALFORMED_SHOWN: usize = 10;

/// What a route asks of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Keys {
    /// A request without a key is refused.
    Required,
    /// A request without a key runs unprotected.
    Optional,
    /// The route is passed through or only observed: nothing is protected.
    Ignored,
}

/// A configured route.
#[derive(Clone, Debug)]
pub struct Route {
    /// The methods it matches; empty for all.
    pub methods: Vec<String>,
    /// The path pattern as it is written in the configuration.
    pub pattern: String,
    /// Its policy in a few words.
    pub policy: String,
    /// What it asks of keys.
    pub keys: Keys,
}

/// One request, as far as a log tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen<'s> {
    /// As in the request line.
    pub method: &'s str,
    /// Without query.
    pub path: &'s str,
    /// The status of the answer.
    pub status: Option<u16>,
    /// Whether the request had a key.
    pub has_key: Option<bool>,
}

/// An audit under way.
pub struct Audit<'r, M> {
    routes: &'r [Route],
    key_headers: &'r [HeaderName],
    matching: M,
    hits: Vec<u64>,
    endpoints: HashMap<(String, String), Tally>,
    unlisted: u64,
    lines: u64,
    requests: u64,
    malformed: u64,
    malformed_first: Vec<u64>,
}

/// What was seen of one endpoint.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    hits: u64,
    with_key: u64,
    without_key: u64,
    /// Requests that no route protects. Identifiers that look alike may match different routes.
    unprotected: u64,
    /// Requests that ran unprotected because they had no key, where keys are optional.
    ran_without_key: u64,
    /// Requests of which the log does not tell whether they had a key, where keys are optional.
    untold: u64,
}

impl<'r, M: Fn(&str, &str) -> Option<(usize, Keys)>> Audit<'r, M> {
    /// `matching` gives the index of the route for a method and a path without query, and what is asked of keys there; `key_headers` are the fields that
    /// hold a key.
    pub fn new(routes: &'r [Route], key_headers: &'r [HeaderName], matching: M) -> Self {
        Self {
            routes,
            key_headers,
            matching,
            hits: vec![0; routes.len()],
            endpoints: HashMap::new(),
            unlisted: 0,
            lines: 0,
            requests: 0,
            malformed: 0,
            malformed_first: Vec::new(),
        }
    }

    /// Reads a log to its end.
    ///
    /// # Errors
    ///
    /// The log cannot be read.
    pub fn read(&mut self, mut log: impl BufRead) -> io::Result<()> {
        let mut line = Vec::new();
        while next_line(&mut log, &mut line)? {
            self.line(&line);
        }
        Ok(())
    }

    /// Takes one line. Empty lines, lines that begin with `#` and what else hapax's own log tells are passed over.
    pub fn line(&mut self, line: &[u8]) {
        self.lines += 1;
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") {
            return;
        }
        let is_too_long = line.len() > LINE_BYTES_MAX;
        let parsed = if is_too_long { Parsed::Malformed } else { line::parse(line, self.key_headers) };
        match &parsed {
            Parsed::Own => {}
            Parsed::Request(request) => {
                self.requests += 1;
                self.see(&request.seen());
            }
            Parsed::Malformed => {
                self.malformed += 1;
                if self.malformed_first.len() < MALFORMED_SHOWN {
                    self.malformed_first.push(self.lines);
                }
            }
        }
    }

    /// Takes one request.
    pub fn see(&mut self, seen: &Seen<'_>) {
        let route = (self.matching)(seen.method, seen.path);
        if let Some(hits) = route.and_then(|(nth, _)| self.hits.get_mut(nth)) {
            *hits += 1;
        }
        // Such an answer says that there is no such endpoint: scanners guess at thousands.
        let guessed = matches!(seen.status, Some(404 | 405));
        if guessed || !matches!(seen.method, "POST" | "PATCH" | "PUT" | "DELETE") {
            return;
        }
        let keys = route.map_or(Keys::Ignored, |(_, keys)| keys);
        let place = (seen.method.to_owned(), endpoint::collapsed(seen.path));
        if self.endpoints.len() >= ENDPOINTS_MAX && !self.endpoints.contains_key(&place) {
            self.unlisted += 1;
            return;
        }
        self.endpoints.entry(place).or_default().add(seen, keys);
    }

    /// What was found.
    #[must_use]
    pub fn finish(self) -> Report {
        let found = self.endpoints.iter().filter_map(|((method, path), tally)| {
            let finding = tally.finding()?;
            Some(Endpoint {
                method: method.clone(),
                path: path.clone(),
                hits: tally.hits,
                with_key: tally.with_key,
                without_key: tally.without_key,
                finding,
            })
        });
        let mut endpoints: Vec<Endpoint> = found.collect();
        endpoints.sort_by(|a, b| b.hits.cmp(&a.hits).then_with(|| (&a.path, &a.method).cmp(&(&b.path, &b.method))));
        let routes = self.routes.iter().zip(&self.hits).map(|(route, hits)| RouteHits::of(route, *hits)).collect();
        Report {
            routes,
            endpoints,
            lines: self.lines,
            requests: self.requests,
            malformed: self.malformed,
            malformed_first: self.malformed_first,
            unlisted: self.unlisted,
        }
    }
}

impl Tally {
    fn add(&mut self, seen: &Seen<'_>, keys: Keys) {
        self.hits += 1;
        self.with_key += u64::from(seen.has_key == Some(true));
        self.without_key += u64::from(seen.has_key == Some(false));
        self.unprotected += u64::from(keys == Keys::Ignored);
        self.ran_without_key += u64::from(keys == Keys::Optional && seen.has_key == Some(false));
        self.untold += u64::from(keys == Keys::Optional && seen.has_key.is_none());
    }

    /// Where keys are required, a few requests without one are refused and nothing more; most of them are clients that
    /// will fail. Where keys are optional, a single one runs unprotected.
    fn finding(&self) -> Option<Finding> {
        if self.unprotected > 0 {
            Some(Finding::Unprotected)
        } else if self.without_key > self.with_key {
            Some(Finding::MostlyWithoutKeys)
        } else if self.ran_without_key > 0 {
            Some(Finding::PartlyWithoutKeys)
        } else {
            (self.untold > 0).then_some(Finding::KeysUnknown)
        }
    }
}

/// Reads a line into `line`; of one that is too long, only so much that this shows. False at the end.
fn next_line(log: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    let most = LINE_BYTES_MAX as u64 + 1;
    let read = log.by_ref().take(most).read_until(b'\n', line)?;
    if read as u64 == most && !line.ends_with(b"\n") {
        log.skip_until(b'\n')?;
    }
    Ok(read > 0)
}

#[cfg(test)]
mod tests;
