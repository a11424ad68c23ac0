//! One HTTP/1.1 response as it came over the wire: fields in order with repeats, body by length, chunks or close.

use std::fmt;
use std::io::{BufRead, ErrorKind, Read};

/// No head is longer than this, whatever a test sends; an endless one must not fill the memory.
const HEAD_BYTES_MAX: usize = 4 * 1024 * 1024;

/// A complete response.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Response {
    /// The final status.
    pub status: u16,
    /// The statuses of the interim responses (1xx) before it.
    pub interim: Vec<u16>,
    /// Names as they were spelled, values without surrounding blanks.
    pub headers: Vec<(String, String)>,
    /// The body, without its framing.
    pub body: Vec<u8>,
    /// The fields after the last chunk.
    pub trailers: Vec<(String, String)>,
}

/// What came instead of a complete response.
#[derive(Debug)]
pub enum ReadError {
    /// The connection could not be made.
    Refused(std::io::Error),
    /// The server closed the connection before a byte of a response.
    Closed,
    /// The server closed the connection inside a response; what had come of it.
    Truncated(Vec<u8>),
    /// The connection was reset.
    Reset,
    /// The deadline passed.
    TimedOut,
    /// This is not HTTP/1.1; what it was.
    Malformed(String),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::Refused(error) => write!(f, "cannot connect: {error}"),
            ReadError::Closed => write!(f, "the connection was closed without an answer"),
            ReadError::Truncated(bytes) => write!(f, "the answer ends early: {:?}", String::from_utf8_lossy(bytes)),
            ReadError::Reset => write!(f, "the connection was reset"),
            ReadError::TimedOut => write!(f, "no complete answer before the deadline"),
            ReadError::Malformed(what) => write!(f, "not HTTP/1.1: {what}"),
        }
    }
}

impl std::error::Error for ReadError {}

impl Response {
    /// The first value of the field, its name in any case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// Every value of the field, in order.
    pub fn all(&self, name: &str) -> Vec<&str> {
        let named = self.headers.iter().filter(|(own, _)| own.eq_ignore_ascii_case(name));
        named.map(|(_, value)| value.as_str()).collect()
    }

    /// The body as text; bytes that are not UTF-8 are replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    ///
    /// # Panics
    ///
    /// When it is none.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{} with a body that is not JSON ({error}): {}", self.status, self.text()))
    }

    /// The code of a refusal: `in-progress` where the problem's type is `urn:hapax:problem:in-progress`.
    pub fn problem(&self) -> Option<String> {
        let json: serde_json::Value = serde_json::from_slice(&self.body).ok()?;
        json["type"].as_str()?.strip_prefix("urn:hapax:problem:").map(str::to_owned)
    }

    /// True where it carries `Idempotent-Replayed: true`.
    pub fn is_replay(&self) -> bool {
        self.header("idempotent-replayed") == Some("true")
    }

    /// Reads one response, interim ones before it included. `bodiless` is for the answer to a HEAD.
    pub(super) fn read(from: &mut impl BufRead, bodiless: bool) -> Result<Response, ReadError> {
        let mut interim = Vec::new();
        loop {
            let (status, headers) = read_head(from)?;
            if (100..200).contains(&status) && status != 101 {
                interim.push(status);
                continue;
            }
            let mut response = Response { status, interim, headers, ..Response::default() };
            if !bodiless && !matches!(status, 101 | 204 | 304) {
                response.read_body(from)?;
            }
            return Ok(response);
        }
    }

    fn read_body(&mut self, from: &mut impl BufRead) -> Result<(), ReadError> {
        if self.header("transfer-encoding").is_some_and(|value| value.to_ascii_lowercase().ends_with("chunked")) {
            return self.read_chunks(from);
        }
        let Some(length) = self.header("content-length") else {
            from.read_to_end(&mut self.body).map_err(|error| of(&error, &self.body))?;
            return Ok(());
        };
        let length = length.parse().map_err(|_| ReadError::Malformed(format!("Content-Length: {length}")))?;
        read_exactly(from, length, &mut self.body)
    }

    fn read_chunks(&mut self, from: &mut impl BufRead) -> Result<(), ReadError> {
        loop {
            let line = read_line(from)?;
            let size = line.split(';').next().unwrap_or_default().trim();
            let size = usize::from_str_radix(size, 16)
                .map_err(|_| ReadError::Malformed(format!("a chunk of size {line:?}")))?;
            if size == 0 {
                self.trailers = read_fields(from)?;
                return Ok(());
            }
            read_exactly(from, size, &mut self.body)?;
            if !read_line(from)?.is_empty() {
                return Err(ReadError::Malformed("a chunk does not end where it says".to_owned()));
            }
        }
    }
}

/// Status and fields.
type Head = (u16, Vec<(String, String)>);

fn read_head(from: &mut impl BufRead) -> Result<Head, ReadError> {
    if from.fill_buf().map_err(|error| of(&error, &[]))?.is_empty() {
        return Err(ReadError::Closed);
    }
    let line = read_line(from)?;
    let status =
        line.strip_prefix("HTTP/1.").and_then(|rest| rest.split(' ').nth(1)).and_then(|code| code.parse().ok());
    let status = status.ok_or_else(|| ReadError::Malformed(format!("the status line {line:?}")))?;
    Ok((status, read_fields(from)?))
}

fn read_fields(from: &mut impl BufRead) -> Result<Vec<(String, String)>, ReadError> {
    let mut fields = Vec::new();
    let mut length = 0;
    loop {
        let line = read_line(from)?;
        if line.is_empty() {
            return Ok(fields);
        }
        length += line.len();
        if length > HEAD_BYTES_MAX {
            return Err(ReadError::Malformed(format!("more than {HEAD_BYTES_MAX} bytes of fields")));
        }
        let (name, value) = line.split_once(':').ok_or_else(|| ReadError::Malformed(format!("the field {line:?}")))?;
        fields.push((name.to_owned(), value.trim().to_owned()));
    }
}

/// A line without its end, which must be CR LF.
fn read_line(from: &mut impl BufRead) -> Result<String, ReadError> {
    let mut line = Vec::new();
    from.take(HEAD_BYTES_MAX as u64).read_until(b'\n', &mut line).map_err(|error| of(&error, &line))?;
    match line.strip_suffix(b"\r\n") {
        Some(line) => Ok(String::from_utf8_lossy(line).into_owned()),
        None if line.ends_with(b"\n") => Err(ReadError::Malformed(format!("a bare LF after {line:?}"))),
        None => Err(ReadError::Truncated(line)),
    }
}

fn read_exactly(from: &mut impl Read, length: usize, into: &mut Vec<u8>) -> Result<(), ReadError> {
    let before = into.len();
    from.take(length as u64).read_to_end(into).map_err(|error| of(&error, into))?;
    if into.len() - before == length { Ok(()) } else { Err(ReadError::Truncated(into.clone())) }
}

/// What an error of the socket means; `had` is what came before it.
pub(super) fn of(error: &std::io::Error, had: &[u8]) -> ReadError {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => ReadError::TimedOut,
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::ConnectionAborted => ReadError::Reset,
        _ if had.is_empty() => ReadError::Closed,
        _ => ReadError::Truncated(had.to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::{ReadError, Response};

    fn read(bytes: &[u8]) -> Result<Response, ReadError> {
        Response::read(&mut &bytes[..], false)
    }

    #[test]
    fn fields_keep_their_order_and_their_repeats() {
        let bytes = b"HTTP/1.1 200 OK\r\nB: 1\r\na: 2\r\nb:  3 \r\ncontent-length: 2\r\n\r\nhi";
        let response = read(bytes).unwrap();
        assert_eq!(response.all("B"), ["1", "3"]);
        assert_eq!(response.headers[1], ("a".to_owned(), "2".to_owned()));
        assert_eq!(response.body, b"hi");
    }

    #[test]
    fn chunks_are_joined_and_trailers_kept() {
        let bytes = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x=1\r\nab\r\n1\r\nc\r\n0\r\nT: 1\r\n\r\n";
        let response = read(bytes).unwrap();
        assert_eq!((response.text(), response.trailers.len()), ("abc".to_owned(), 1));
    }

    #[test]
    fn a_missing_last_chunk_is_a_truncation() {
        let bytes = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n";
        assert!(matches!(read(bytes), Err(ReadError::Truncated(_))));
    }

    #[test]
    fn a_body_shorter_than_its_length_is_a_truncation() {
        let bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab";
        assert!(matches!(read(bytes), Err(ReadError::Truncated(body)) if body == b"ab"));
    }

    #[test]
    fn without_framing_the_body_ends_with_the_connection() {
        assert_eq!(read(b"HTTP/1.1 200 OK\r\n\r\nall of it").unwrap().text(), "all of it");
    }

    #[test]
    fn interim_responses_are_listed() {
        let response = read(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nA: b\r\n\r\nHTTP/1.1 204 No\r\n\r\n");
        assert_eq!(response.unwrap().interim, [100, 103]);
    }

    #[test]
    fn silence_garbage_and_a_bare_line_feed_are_told_apart() {
        assert!(matches!(read(b""), Err(ReadError::Closed)));
        assert!(matches!(read(b"SSH-2.0\r\n"), Err(ReadError::Malformed(_))));
        assert!(matches!(read(b"HTTP/1.1 200 OK\nA: b\n\n"), Err(ReadError::Malformed(_))));
    }

    #[test]
    fn the_code_of_a_refusal_is_read_from_its_type() {
        let body = r#"{"type":"urn:hapax:problem:in-progress"}"#;
        let response = Response { body: body.into(), ..Response::default() };
        assert_eq!(response.problem().as_deref(), Some("in-progress"));
        assert_eq!(Response { body: b"no".to_vec(), ..Response::default() }.problem(), None);
    }
}
