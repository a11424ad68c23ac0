//! The bytes of each behaviour. Pure: no sockets, no time.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::json;

use super::behaviour::{Answer, Behaviour};
use super::book::Entry;
use super::request::Received;

/// Before a reset, so that the receiver reads what came before it.
const BEFORE_RESET: Duration = Duration::from_millis(20);

/// What is done with the connection, one after the other. After the last one it is kept for the next request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    Send(Vec<u8>),
    Pause(Duration),
    /// End the connection with a FIN.
    Close,
    /// End it with a reset.
    Reset,
    /// Do nothing until the other side has gone.
    Hang,
}

/// The steps of the answer to this request.
pub(super) fn steps(behaviour: &Behaviour, entry: &Entry, request: &Received) -> Vec<Step> {
    let echo = echo(entry, request);
    let plain = |fields: &str| Step::Send(whole(echo_status(entry), fields, &echo, entry));
    match behaviour {
        Behaviour::Echo | Behaviour::First(_) => vec![plain("")],
        Behaviour::Late(_, then) | Behaviour::LookUp(then) => steps(then, entry, request),
        Behaviour::Answer(answer) => vec![Step::Pause(answer.delay), Step::Send(exactly(answer, entry))],
        Behaviour::Delay(delay) => vec![Step::Pause(*delay), plain("")],
        Behaviour::Drip(pause) => {
            let bytes = whole(echo_status(entry), "", &echo, entry);
            bytes.into_iter().flat_map(|byte| [Step::Send(vec![byte]), Step::Pause(*pause)]).collect()
        }
        Behaviour::Drop => vec![Step::Close],
        Behaviour::Hang => vec![Step::Hang],
        Behaviour::ResetBeforeHead => vec![Step::Reset],
        Behaviour::ResetInBody => vec![Step::Send(cut_short(&echo)), Step::Pause(BEFORE_RESET), Step::Reset],
        Behaviour::ShortLength => vec![Step::Send(cut_short(&echo)), Step::Close],
        Behaviour::MissingLastChunk => vec![Step::Send(chunks(&echo, None)), Step::Close],
        Behaviour::InterimFlood(count) => {
            vec![Step::Send(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n".repeat(*count)), plain("")]
        }
        Behaviour::TwoLengths => vec![plain(&format!("Content-Length: {}\r\n", echo.len() / 2)), Step::Close],
        Behaviour::LargeHeader(bytes) => vec![plain(&format!("X-Large: {}\r\n", "x".repeat(*bytes)))],
        Behaviour::ManyHeaders(count) => {
            let lines = (0..*count).fold(String::new(), |mut lines, at| {
                let _ = write!(lines, "X-Field-{at}: {at}\r\n");
                lines
            });
            vec![plain(&lines)]
        }
        Behaviour::LargeBody(bytes) => {
            let mut body = entry.id.clone().into_bytes();
            body.resize(*bytes, b'x');
            vec![Step::Send(whole(200, "", &body, entry))]
        }
        Behaviour::Stream(events, pause) => stream(entry, *events, *pause),
        Behaviour::Cookies => vec![plain(COOKIES)],
        Behaviour::RetryLater(status, seconds) => {
            vec![Step::Send(whole(*status, &format!("Retry-After: {seconds}\r\n"), &echo, entry))]
        }
        Behaviour::Trailers => vec![Step::Send(chunks(&echo, Some("X-Sum: 1\r\n")))],
        Behaviour::UntilClose => {
            let mut bytes = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n".to_vec();
            bytes.extend_from_slice(&echo);
            vec![Step::Send(bytes), Step::Close]
        }
        Behaviour::Raw(bytes) => vec![Step::Send(bytes.clone()), Step::Close],
    }
}

/// What a proxy must not keep, and one thing that it must.
const COOKIES: &str = "Set-Cookie: session=one; HttpOnly\r\nSet-Cookie: theme=two\r\nAge: 3\r\nRateLimit-Limit: 10\r\n\
                       X-RateLimit-Remaining: 9\r\nX-Kept: yes\r\n";

/// Tells the request back. Its body too, so that a test of isolation can look for a marker in answers.
fn echo(entry: &Entry, request: &Received) -> Vec<u8> {
    let json = json!({
        "id": entry.id, "object": "execution", "sequence": entry.sequence, "method": entry.method, "path": entry.path,
        "query": entry.query, "key": entry.key, "attempt": entry.attempt, "tenant": entry.tenant,
        "body": String::from_utf8_lossy(&request.body),
    });
    json.to_string().into_bytes()
}

fn echo_status(entry: &Entry) -> u16 {
    if entry.method == "POST" { 201 } else { 200 }
}

fn head(status: u16, fields: &str) -> String {
    format!("HTTP/1.1 {status} Status\r\n{fields}")
}

/// A complete answer in JSON. The answer to a HEAD has the fields only.
fn whole(status: u16, fields: &str, body: &[u8], entry: &Entry) -> Vec<u8> {
    let fields = format!(
        "Content-Type: application/json\r\nX-Execution: {}\r\n{fields}Content-Length: {}\r\n\r\n",
        entry.id,
        body.len()
    );
    with_body(head(status, &fields), body, entry)
}

fn exactly(answer: &Answer, entry: &Entry) -> Vec<u8> {
    let mut text = head(answer.status, "");
    for (name, value) in &answer.headers {
        let _ = write!(text, "{name}: {value}\r\n");
    }
    if answer.status != 204 && answer.status != 304 {
        let _ = write!(text, "Content-Length: {}\r\n", answer.body.len());
    }
    with_body(format!("{text}\r\n"), &answer.body, entry)
}

fn with_body(head: String, body: &[u8], entry: &Entry) -> Vec<u8> {
    let mut bytes = head.into_bytes();
    if entry.method != "HEAD" {
        bytes.extend_from_slice(body);
    }
    bytes
}

/// Half of a body whose whole length is announced.
fn cut_short(body: &[u8]) -> Vec<u8> {
    let fields = format!("Content-Type: application/json\r\nContent-Length: {}\r\n\r\n", body.len());
    let mut bytes = head(200, &fields).into_bytes();
    bytes.extend_from_slice(&body[..body.len() / 2]);
    bytes
}

/// The body in two chunks; with trailers it is complete, without it has no end.
fn chunks(body: &[u8], trailers: Option<&str>) -> Vec<u8> {
    let announced = trailers.map_or("", |_| "Trailer: X-Sum\r\n");
    let fields = format!("Content-Type: application/json\r\n{announced}Transfer-Encoding: chunked\r\n\r\n");
    let mut bytes = head(200, &fields).into_bytes();
    let (first, second) = body.split_at(body.len() / 2);
    bytes.extend(chunk(first));
    bytes.extend(chunk(second));
    if let Some(trailers) = trailers {
        bytes.extend_from_slice(format!("0\r\n{trailers}\r\n").as_bytes());
    }
    bytes
}

fn chunk(data: &[u8]) -> Vec<u8> {
    let mut bytes = format!("{:x}\r\n", data.len()).into_bytes();
    bytes.extend_from_slice(data);
    bytes.extend_from_slice(b"\r\n");
    bytes
}

/// Server-sent events: a body whose length nobody knows.
fn stream(entry: &Entry, events: usize, pause: Duration) -> Vec<Step> {
    let fields = "Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    let mut steps = vec![Step::Send(head(200, fields).into_bytes())];
    for at in 0..events {
        steps.push(Step::Pause(pause));
        steps.push(Step::Send(chunk(format!("data: {at} {}\n\n", entry.id).as_bytes())));
    }
    steps.push(Step::Send(b"0\r\n\r\n".to_vec()));
    steps
}
