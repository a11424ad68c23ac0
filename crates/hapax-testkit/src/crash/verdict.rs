//! What the ledger and the clients say: once, the same answer, and not too late.

use std::time::Duration;

use tokio::time::Instant;

use super::client::{Client, Heard};
use crate::ledger::{Entry, Ledger};

/// How a case ended. It passed if every list is empty.
#[derive(Debug, Default)]
pub struct Verdict {
    /// Whether the point was reached. Otherwise the kill came at some other moment, which counts as well.
    pub reached: bool,
    /// Keys that were executed more than once.
    pub double_executions: Vec<String>,
    /// Keys of which two different answers were given, or one that is not the execution's.
    pub changed_answers: Vec<String>,
    /// Keys without an answer in time.
    pub stuck_keys: Vec<String>,
    /// Anything else that should not be.
    pub other: Vec<String>,
    /// The longest that a client waited for its answer after the last start.
    pub longest_wait: Duration,
}

impl Verdict {
    /// Whether nothing was wrong.
    pub fn passed(&self) -> bool {
        self.wrongs().next().is_none()
    }

    /// All that was wrong, a line each.
    pub fn wrongs(&self) -> impl Iterator<Item = String> {
        let kinds = [
            ("executed twice", &self.double_executions),
            ("changed answer", &self.changed_answers),
            ("stuck", &self.stuck_keys),
            ("wrong", &self.other),
        ];
        kinds.into_iter().flat_map(|(kind, list)| list.iter().map(move |what| format!("{kind}: {what}")))
    }

    /// Judges one client's key.
    pub(super) fn judge(&mut self, client: &Client, ledger: &Ledger, back: &Back, runs_max: usize) {
        let executions = ledger.executions(&client.key);
        if executions.len() > runs_max {
            self.double_executions.push(told(client, &executions));
        }
        if runs_max == 1 && !is_constant(client, &executions) {
            self.changed_answers.push(told(client, &executions));
        }
        match client.answered_from(back.since).map(|at| at.saturating_duration_since(back.ready)) {
            Some(waited) if waited <= back.limit => self.longest_wait = self.longest_wait.max(waited),
            Some(waited) => self.stuck_keys.push(format!("for {waited:?}: {}", told(client, &executions))),
            None => self.stuck_keys.push(told(client, &executions)),
        }
        if client.heard.iter().any(|heard| matches!(heard, Heard::Wrong(_))) {
            self.other.push(told(client, &executions));
        }
    }
}

/// When the proxy was there again.
pub(super) struct Back {
    /// From when on answers are its.
    pub(super) since: Instant,
    /// When it said that it is ready.
    pub(super) ready: Instant,
    /// How long an answer may take from then.
    pub(super) limit: Duration,
}

/// Every answer is the one that the execution gave, and the beginning of an answer is its beginning.
fn is_constant(client: &Client, executions: &[Entry]) -> bool {
    let mut answers = client.heard.iter().filter_map(|heard| match heard {
        Heard::Answer { status, body, .. } => Some((status, body)),
        _ => None,
    });
    let Some(first) = answers.next() else { return true };
    let is_first = |part: &[u8]| part.starts_with(b"HTTP/1.1 ") || first.1.starts_with(part);
    let parts_fit = client.heard.iter().all(|heard| !matches!(heard, Heard::Part(part) if !is_first(part)));
    let is_executed = executions.iter().any(|entry| first.1.starts_with(entry.id.as_bytes()));
    is_executed && parts_fit && answers.all(|answer| answer == first)
}

/// The story of a key, short: what was heard, runs of the same summed up, and what the ledger holds.
fn told(client: &Client, executions: &[Entry]) -> String {
    let mut story: Vec<(String, usize)> = Vec::new();
    for heard in &client.heard {
        let line = match heard {
            Heard::Answer { status, body, .. } => format!("{status} {}", beginning(body)),
            Heard::Part(part) => format!("a part {}", beginning(part)),
            Heard::NotYet(what) | Heard::Wrong(what) => what.clone(),
            Heard::Nothing => "nothing".to_owned(),
        };
        match story.last_mut() {
            Some((last, count)) if *last == line => *count += 1,
            _ => story.push((line, 1)),
        }
    }
    let heard: Vec<String> = story.iter().map(|(line, count)| format!("{count} x {line}")).collect();
    let ran: Vec<String> =
        executions.iter().map(|entry| format!("{} at {} ({})", entry.id, entry.unix_ms, entry.treated)).collect();
    format!("{} heard [{}], executed [{}]", client.key, heard.join(", "), ran.join(", "))
}

fn beginning(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(40)]).into_owned()
}
