//! A raw HTTP/1.1 client: exact bytes out, every byte of the answer in.
//!
//! A polite client repairs what it sends and hides what it receives, so a test of framing, of repeated fields or of a
//! connection that is cut in the middle needs this one. It blocks, with a deadline on everything; concurrency is threads.
//! It leaves TLS, HTTP/2 and every judgement to the tests.
//!
//! ```no_run
//! use hapax_testkit::raw_http::{Conn, request};
//! # let address = std::net::SocketAddr::from(([127, 0, 0, 1], 80));
//! let answer = request("POST", "/charges").header("Idempotency-Key", "\"k-1\"").body("amount=1").send(address);
//! assert_eq!((answer.status, answer.header("idempotent-replayed")), (201, None));
//!
//! let mut conn = Conn::open(address);
//! conn.write(b"POST /charges HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n");
//! assert_eq!(conn.read_response().expect("an answer").status, 400);
//! conn.expect_closed();
//! ```

mod conn;
mod response;

use std::net::SocketAddr;

pub use conn::{Conn, DEADLINE};
pub use response::{ReadError, Response};

/// A request, field by field in the order given. Nothing is added but `Host` and the framing of the body.
#[derive(Debug, Clone)]
pub struct Request {
    method: String,
    target: String,
    fields: Vec<(String, String)>,
    body: Option<Vec<u8>>,
    chunked: bool,
}

/// Begins a request.
pub fn request(method: &str, target: &str) -> Request {
    let (method, target) = (method.to_owned(), target.to_owned());
    Request { method, target, fields: Vec::new(), body: None, chunked: false }
}

impl Request {
    /// Adds a field line. A repeated name gives a repeated line.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Request {
        self.fields.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets the body, framed by `Content-Length` unless it is [`chunked`](Self::chunked).
    #[must_use]
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Request {
        self.body = Some(body.into());
        self
    }

    /// Sends the body in chunks.
    #[must_use]
    pub fn chunked(mut self) -> Request {
        self.chunked = true;
        self
    }

    /// The bytes of the request. `Host: localhost` is added where there is none; framing where the request brings none itself.
    pub fn bytes(&self) -> Vec<u8> {
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.target);
        if !self.has("host") {
            head.push_str("Host: localhost\r\n");
        }
        for (name, value) in &self.fields {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        let body = self.body.as_deref();
        let framed = self.has("content-length") || self.has("transfer-encoding");
        match body {
            Some(_) if self.chunked => head.push_str("Transfer-Encoding: chunked\r\n"),
            Some(body) if !framed => head.push_str(&format!("Content-Length: {}\r\n", body.len())),
            _ => {}
        }
        head.push_str("\r\n");
        let mut bytes = head.into_bytes();
        match body {
            Some(body) if self.chunked => bytes.extend(in_one_chunk(body)),
            Some(body) => bytes.extend_from_slice(body),
            None => {}
        }
        bytes
    }

    /// Sends it on a connection of its own and reads the answer.
    ///
    /// # Panics
    ///
    /// When there is no complete answer before the deadline; use [`try_send`](Self::try_send) where that is expected.
    #[track_caller]
    pub fn send(&self, to: SocketAddr) -> Response {
        match self.try_send(to) {
            Ok(response) => response,
            Err(error) => panic!("{} {}: {error}", self.method, self.target),
        }
    }

    /// Sends it on a connection of its own and reads the answer, or says what came instead.
    ///
    /// # Errors
    ///
    /// When there is no complete answer before the deadline.
    pub fn try_send(&self, to: SocketAddr) -> Result<Response, ReadError> {
        Conn::try_open(to)?.try_send(self)
    }

    /// True where the answer has no body whatever its fields say.
    pub(crate) fn is_head(&self) -> bool {
        self.method == "HEAD"
    }

    fn has(&self, name: &str) -> bool {
        self.fields.iter().any(|(own, _)| own.eq_ignore_ascii_case(name))
    }
}

fn in_one_chunk(body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    if !body.is_empty() {
        bytes.extend(format!("{:x}\r\n", body.len()).into_bytes());
        bytes.extend_from_slice(body);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"0\r\n\r\n");
    bytes
}
