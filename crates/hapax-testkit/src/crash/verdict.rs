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
        Heard::Answer { status, fields, body, .. } => Some((status, fields, body)),
        _ => None,
    });
    let Some(first) = answers.next() else { return true };
    let is_first = |part: &[u8]| part.starts_with(b"HTTP/1.1 ") || first.2.starts_with(part);
    let parts_fit = client.heard.iter().all(|heard| !matches!(heard, Heard::Part(part) if !is_first(part)));
    let is_executed = executions.iter().any(|entry| first.2.starts_with(entry.id.as_bytes()));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Behaviour;
    use crate::raw_http::request;

    /// A client whose payment the upstream has carried out so many times, and the bodies of its answers.
    fn paid(times: usize) -> (Ledger, Client, Vec<Vec<u8>>) {
        let ledger = Ledger::start();
        ledger.on("*", Behaviour::LargeBody(100));
        let pay = request("POST", "/payments").header("Idempotency-Key", "k").body("1");
        let bodies = (0..times).map(|_| pay.send(ledger.address()).body).collect();
        (ledger, Client::new("/payments", "k".to_owned()), bodies)
    }

    fn answer(body: &[u8]) -> Heard {
        answer_as("text/plain", body)
    }

    fn answer_as(content_type: &str, body: &[u8]) -> Heard {
        let fields = vec![("content-type".to_owned(), content_type.to_owned())];
        Heard::Answer { status: 200, fields, body: body.to_vec(), at: Instant::now() }
    }

    fn judged(ledger: &Ledger, client: &Client, since: Instant) -> Verdict {
        let mut verdict = Verdict::default();
        let back = Back { since, ready: since, limit: Duration::from_secs(5) };
        verdict.judge(client, ledger, &back, 1);
        verdict
    }

    #[test]
    fn one_execution_whose_answer_is_given_again_passes() {
        let since = Instant::now();
        let (ledger, mut client, bodies) = paid(1);
        client.heard = vec![Heard::Part(bodies[0][..7].to_vec()), Heard::Nothing, Heard::NotYet("409".to_owned())];
        client.heard.extend([answer(&bodies[0]), answer(&bodies[0])]);
        let verdict = judged(&ledger, &client, since);
        assert!(verdict.passed(), "{verdict:?}");
    }

    #[test]
    fn a_second_execution_is_seen_whatever_the_client_was_told() {
        let since = Instant::now();
        let (ledger, mut client, bodies) = paid(2);
        client.heard = vec![answer(&bodies[0])];
        let verdict = judged(&ledger, &client, since);
        assert_eq!((verdict.double_executions.len(), verdict.changed_answers.len()), (1, 0), "{verdict:?}");
    }

    #[test]
    fn an_answer_that_differs_from_another_or_from_its_beginning_is_seen() {
        let since = Instant::now();
        let (ledger, mut client, bodies) = paid(1);
        let mut other = bodies[0].clone();
        other[99] = b'y';
        for first in [answer(&other), Heard::Part(other[99..].to_vec())] {
            client.heard = vec![first, answer(&bodies[0])];
            assert_eq!(judged(&ledger, &client, since).changed_answers.len(), 1);
        }
    }

    #[test]
    fn an_answer_with_other_fields_is_seen() {
        let since = Instant::now();
        let (ledger, mut client, bodies) = paid(1);
        client.heard = vec![answer(&bodies[0]), answer_as("text/html", &bodies[0])];
        assert_eq!(judged(&ledger, &client, since).changed_answers.len(), 1);
    }

    #[test]
    fn an_answer_that_nobody_gave_is_seen() {
        let since = Instant::now();
        let (ledger, mut client, _) = paid(0);
        client.heard = vec![answer(b"ex_made_up")];
        assert_eq!(judged(&ledger, &client, since).changed_answers.len(), 1);
    }

    #[test]
    fn a_key_without_an_answer_since_is_stuck() {
        let (ledger, mut client, bodies) = paid(1);
        client.heard = vec![answer(&bodies[0]), Heard::NotYet("409 outcome-unknown".to_owned())];
        let verdict = judged(&ledger, &client, Instant::now() + Duration::from_millis(1));
        assert_eq!(verdict.stuck_keys.len(), 1);
        assert!(verdict.stuck_keys[0].contains("1 x 409 outcome-unknown"), "{verdict:?}");
    }

    #[test]
    fn what_nobody_should_be_told_is_seen() {
        let since = Instant::now();
        let (ledger, mut client, bodies) = paid(1);
        client.heard = vec![Heard::Wrong("500".to_owned()), answer(&bodies[0])];
        assert_eq!(judged(&ledger, &client, since).other.len(), 1);
    }
}
