//! What an audit found, as a table for people or as JSON for scripts.

use std::fmt::Write as _;

use serde::Serialize;

use super::{Keys, MALFORMED_SHOWN, Route};
use crate::logs::escaped;

/// What is wrong with an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Finding {
    /// No route protects it.
    Unprotected,
    /// A route protects it, but most of its requests had no key: they run unprotected or will be refused.
    MostlyWithoutKeys,
    /// Keys are optional, and some of its requests had none: they run unprotected.
    PartlyWithoutKeys,
    /// Keys are optional, and the log does not tell which of its requests had one: those without run unprotected.
    KeysUnknown,
}

/// A configured route and how often it was hit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RouteHits {
    /// Its methods; empty for all.
    pub methods: Vec<String>,
    /// Its pattern.
    pub pattern: String,
    /// Its policy in a few words.
    pub policy: String,
    /// What it asks of keys.
    pub keys: Keys,
    /// Requests that it matched.
    pub hits: u64,
}

impl RouteHits {
    pub(super) fn of(route: &Route, hits: u64) -> Self {
        let Route { methods, pattern, policy, keys } = route.clone();
        Self { methods, pattern, policy, keys, hits }
    }
}

/// A state-changing endpoint that needs attention.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Endpoint {
    /// Its method.
    pub method: String,
    /// Its path, with `{id}` for identifiers.
    pub path: String,
    /// Requests.
    pub hits: u64,
    /// Requests that had a key; a log may not say.
    pub with_key: u64,
    /// Requests that had none.
    pub without_key: u64,
    /// What is wrong.
    pub finding: Finding,
}

impl Endpoint {
    /// The name of the finding, which the documents explain, and what it was found by.
    fn in_words(&self) -> String {
        let counts = || format!("{} of {} without a key", self.without_key, self.with_key + self.without_key);
        match self.finding {
            Finding::Unprotected => "unprotected".to_owned(),
            Finding::MostlyWithoutKeys => format!("mostly-without-keys: {}", counts()),
            Finding::PartlyWithoutKeys => format!("partly-without-keys: {}", counts()),
            Finding::KeysUnknown => {
                "keys-unknown: keys are optional, and the log does not tell who sends one".to_owned()
            }
        }
    }
}

/// What an audit found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Every configured route, in the order of the configuration.
    pub routes: Vec<RouteHits>,
    /// What needs attention, most hits first.
    pub endpoints: Vec<Endpoint>,
    /// Lines read.
    pub lines: u64,
    /// Lines that were understood as requests.
    pub requests: u64,
    /// Lines that could not be understood.
    pub malformed: u64,
    /// The numbers of the first of them.
    pub malformed_first: Vec<u64>,
    /// State-changing requests to endpoints beyond the limit: not judged.
    pub unlisted: u64,
}

impl Report {
    /// 1 if something is unprotected, or may be, because the log does not tell or there were too many endpoints to judge;
    /// otherwise 0.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        u8::from(!self.endpoints.is_empty() || self.unlisted > 0)
    }

    /// As one JSON document.
    ///
    /// # Errors
    ///
    /// Never for a report; the serialiser's signature says so.
    pub fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self)
    }

    /// As tables. Whatever a log holds, a terminal stays as it was.
    #[must_use]
    pub fn to_table(&self) -> String {
        let mut text = String::new();
        let rows = self.routes.iter().map(|route| {
            let methods = if route.methods.is_empty() { "*".to_owned() } else { route.methods.join(",") };
            [route.hits.to_string(), methods, route.pattern.clone(), route.policy.clone()]
        });
        table(&mut text, ["HITS", "METHODS", "ROUTE", "POLICY"], rows.collect());
        // Without a log there is nothing to judge.
        if self.lines > 0 {
            self.findings(&mut text);
        }
        text
    }

    /// What holds where no endpoint needs attention.
    fn verdict(&self) -> &'static str {
        match (self.requests, self.malformed, self.unlisted) {
            (0, ..) => "There is no request in the log, so nothing was judged.\n",
            (_, _, 1..) => "Every state-changing endpoint that was judged is protected.\n",
            (_, 0, _) => "Every state-changing endpoint in the log is protected.\n",
            _ => "Every state-changing endpoint in the lines that were understood is protected.\n",
        }
    }

    fn findings(&self, text: &mut String) {
        text.push('\n');
        if self.endpoints.is_empty() {
            text.push_str(self.verdict());
        } else {
            let rows = self
                .endpoints
                .iter()
                .map(|found| [found.hits.to_string(), found.method.clone(), found.path.clone(), found.in_words()]);
            table(text, ["HITS", "METHOD", "ENDPOINT", "FINDING"], rows.collect());
        }
        // Writing to a string cannot fail.
        let _ = writeln!(text, "\n{} lines read.", self.lines);
        if self.malformed > 0 {
            let first: Vec<String> = self.malformed_first.iter().map(u64::to_string).collect();
            let more = if self.malformed as usize > MALFORMED_SHOWN { ", …" } else { "" };
            let _ = writeln!(text, "{} could not be understood: line {}{more}.", self.malformed, first.join(", "));
        }
        if self.unlisted > 0 {
            let _ = writeln!(text, "{} requests went to further endpoints, which were not judged.", self.unlisted);
        }
    }
}

/// Columns as wide as their widest cell; numbers, which come first, to the right.
fn table(text: &mut String, head: [&str; 4], rows: Vec<[String; 4]>) {
    let rows: Vec<[String; 4]> = rows.into_iter().map(|row| row.map(|cell| escaped(&cell).into_owned())).collect();
    let mut widths = head.map(str::len);
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    for row in std::iter::once(&head.map(str::to_owned)).chain(&rows) {
        let [w0, w1, w2, _] = widths;
        let [c0, c1, c2, c3] = row;
        let _ = writeln!(text, "{c0:>w0$}  {c1:<w1$}  {c2:<w2$}  {c3}");
    }
}
