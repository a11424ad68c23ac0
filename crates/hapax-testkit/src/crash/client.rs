//! A client: sends one payment, and sends it again until it has an answer.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::Instant;

use crate::raw_http::{ReadError, Request, Response, request};
use crate::wait;

/// The longest pause between two tries, whatever `Retry-After` says: what is measured is hapax, not its advice.
const PAUSE_MAX: Duration = Duration::from_millis(200);

/// Between two tries where nothing was advised.
const PAUSE: Duration = Duration::from_millis(25);

/// Bytes of a payment: half of them are the body, so that half a request is cut inside it.
const BODY_BYTES: usize = 4096;

/// Fields that hapax or the time of day adds: no part of the answer that is to stay the same.
const ADDED: [&str; 5] = ["date", "via", "idempotent-replayed", "idempotency-expires", "x-request-id"];

/// The fields of an answer that are to stay the same, by name.
pub(super) type Fields = Vec<(String, String)>;

/// One payment, its key, and all that was heard of it.
#[derive(Debug, Clone)]
pub(super) struct Client {
    pub(super) key: String,
    pub(super) path: &'static str,
    pub(super) heard: Vec<Heard>,
}

/// What came of one try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Heard {
    /// The answer, by which the client knows how its payment ended.
    Answer { status: u16, fields: Fields, body: Vec<u8>, at: Instant },
    /// The beginning of one.
    Part(Vec<u8>),
    /// "Come back": what it said.
    NotYet(String),
    /// Nobody was there, or the connection broke.
    Nothing,
    /// What nobody should be told here.
    Wrong(String),
}

impl Client {
    pub(super) fn new(path: &'static str, key: String) -> Client {
        Client { key, path, heard: Vec::new() }
    }

    fn payment(&self) -> Request {
        let body = format!("{{\"amount\":1200,\"note\":\"{}\"}}", "n".repeat(BODY_BYTES));
        request("POST", self.path)
            .header("Authorization", "Bearer alice-secret")
            .header("Content-Type", "application/json")
            .header("Idempotency-Key", &self.key)
            .body(body)
    }

    /// Sends it once, and says how long to wait for the next try; `None` where there is an answer.
    pub(super) fn ask(&mut self, to: SocketAddr) -> Option<Duration> {
        let sent = self.payment().try_send(to);
        let advised = sent.as_ref().ok().and_then(retry_after);
        let heard = hear(sent);
        let pause = match heard {
            Heard::Answer { .. } => None,
            Heard::NotYet(_) => Some(advised.unwrap_or(PAUSE).clamp(PAUSE, PAUSE_MAX)),
            _ => Some(PAUSE),
        };
        self.heard.push(heard);
        pause
    }

    /// Sends it until there is an answer, and then once more; gives up when `limit` has passed.
    pub(super) fn ask_until_answered(&mut self, to: SocketAddr, limit: Duration) {
        let begun = Instant::now();
        while let Some(pause) = self.ask(to) {
            if begun.elapsed() > limit {
                return;
            }
            wait::pass(pause);
        }
        self.ask(to);
    }

    /// The first answer from that moment on.
    pub(super) fn answered_from(&self, since: Instant) -> Option<Instant> {
        self.heard.iter().find_map(|heard| match heard {
            Heard::Answer { at, .. } if *at >= since => Some(*at),
            _ => None,
        })
    }
}

fn hear(sent: Result<Response, ReadError>) -> Heard {
    match sent {
        Ok(response) if response.status == 200 => {
            let (status, fields, body) = (response.status, constant_fields(response.headers), response.body);
            Heard::Answer { status, fields, body, at: Instant::now() }
        }
        Ok(response) => match (response.status, response.problem()) {
            (409 | 502..=504, Some(problem)) => Heard::NotYet(format!("{} {problem}", response.status)),
            (status, _) => Heard::Wrong(format!("{status} {}", response.text())),
        },
        Err(ReadError::Truncated(part)) => Heard::Part(part),
        Err(ReadError::Malformed(what)) => Heard::Wrong(what),
        Err(ReadError::TimedOut) => Heard::Wrong("no answer at all".to_owned()),
        Err(ReadError::Refused(_) | ReadError::Closed | ReadError::Reset) => Heard::Nothing,
    }
}

fn constant_fields(fields: Vec<(String, String)>) -> Fields {
    let lower = fields.into_iter().map(|(name, value)| (name.to_ascii_lowercase(), value));
    let mut fields: Fields = lower.filter(|(name, _)| !ADDED.contains(&name.as_str())).collect();
    // Where the length stands among them is hyper's business; fields of one name keep their order.
    fields.sort_by(|one, other| one.0.cmp(&other.0));
    fields
}

fn retry_after(response: &Response) -> Option<Duration> {
    response.header("retry-after")?.parse().ok().map(Duration::from_secs)
}
