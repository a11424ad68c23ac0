//! Reads one HTTP/1.1 request as it comes, and keeps all of it.
//!
//! It is strict where leniency would hide a fault of the sender: CR LF everywhere, one way of framing, one length.

use std::io::{Error, ErrorKind, Result};

use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// A head longer than this is no head.
const HEAD_BYTES_MAX: usize = 1024 * 1024;
/// No test sends more; a broken length must not fill the memory.
const BODY_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// A request as it reached the upstream.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Received {
    /// The method.
    pub method: String,
    /// The target, query included.
    pub target: String,
    /// The fields in order with repeats; values without surrounding blanks.
    pub headers: Vec<(String, String)>,
    /// The body, without its framing.
    pub body: Vec<u8>,
    /// The fields after the last chunk.
    pub trailers: Vec<(String, String)>,
}

impl Received {
    /// The first value of the field, its name in any case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// Every value of the field, in order.
    pub fn all(&self, name: &str) -> Vec<&str> {
        let named = self.headers.iter().filter(|(own, _)| own.eq_ignore_ascii_case(name));
        named.map(|(_, value)| value.as_str()).collect()
    }

    /// The target up to the `?`.
    pub(super) fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    /// What stands behind the `?`.
    pub(super) fn query(&self) -> Option<&str> {
        self.target.split_once('?').map(|(_, query)| query)
    }

    /// The idempotency key, without the quotes of a structured field.
    pub(super) fn key(&self) -> Option<&str> {
        let key = self.header("idempotency-key")?;
        Some(key.strip_prefix('"').and_then(|key| key.strip_suffix('"')).unwrap_or(key))
    }

    /// True where the sender wants the connection closed after the answer.
    pub(super) fn wants_close(&self) -> bool {
        self.header("connection").is_some_and(|value| value.to_ascii_lowercase().contains("close"))
    }

    /// Reads a request; `None` where the connection ended before one began.
    pub(super) async fn read<S>(stream: &mut S) -> Result<Option<Received>>
    where
        S: AsyncBufRead + AsyncWrite + Unpin,
    {
        if stream.fill_buf().await?.is_empty() {
            return Ok(None);
        }
        let line = read_line(stream).await?;
        let mut words = line.split(' ');
        let (Some(method), Some(target), Some("HTTP/1.1" | "HTTP/1.0"), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(broken(&format!("the request line {line:?}")));
        };
        let (method, target) = (method.to_owned(), target.to_owned());
        let mut received = Received { method, target, headers: read_fields(stream).await?, ..Received::default() };
        received.read_body(stream).await?;
        Ok(Some(received))
    }

    async fn read_body<S>(&mut self, stream: &mut S) -> Result<()>
    where
        S: AsyncBufRead + AsyncWrite + Unpin,
    {
        if self.header("expect").is_some_and(|value| value.eq_ignore_ascii_case("100-continue")) {
            stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
            stream.flush().await?;
        }
        match (self.all("transfer-encoding").as_slice(), self.all("content-length").as_slice()) {
            ([], []) => Ok(()),
            ([], [length]) => {
                let length = length.parse().map_err(|_| broken(&format!("Content-Length: {length}")))?;
                read_exactly(stream, length, &mut self.body).await
            }
            ([coding], []) if coding.eq_ignore_ascii_case("chunked") => self.read_chunks(stream).await,
            (codings, lengths) => Err(broken(&format!("framed by {codings:?} and {lengths:?}"))),
        }
    }

    async fn read_chunks<S: AsyncBufRead + Unpin>(&mut self, stream: &mut S) -> Result<()> {
        loop {
            let line = read_line(stream).await?;
            let size = u64::from_str_radix(line.split(';').next().unwrap_or_default(), 16)
                .map_err(|_| broken(&format!("a chunk of size {line:?}")))?;
            if size == 0 {
                self.trailers = read_fields(stream).await?;
                return Ok(());
            }
            read_exactly(stream, size, &mut self.body).await?;
            if !read_line(stream).await?.is_empty() {
                return Err(broken("a chunk does not end where it says"));
            }
        }
    }
}

async fn read_fields<S: AsyncBufRead + Unpin>(stream: &mut S) -> Result<Vec<(String, String)>> {
    let mut fields = Vec::new();
    let mut length = 0;
    loop {
        let line = read_line(stream).await?;
        if line.is_empty() {
            return Ok(fields);
        }
        length += line.len();
        let (name, value) = line.split_once(':').ok_or_else(|| broken(&format!("the field {line:?}")))?;
        if length > HEAD_BYTES_MAX || name.is_empty() || name.contains([' ', '\t']) {
            return Err(broken(&format!("the field {name:?}")));
        }
        fields.push((name.to_owned(), value.trim().to_owned()));
    }
}

/// A line without its end, which must be CR LF.
async fn read_line<S: AsyncBufRead + Unpin>(stream: &mut S) -> Result<String> {
    let mut line = Vec::new();
    stream.take(HEAD_BYTES_MAX as u64).read_until(b'\n', &mut line).await?;
    let line = line.strip_suffix(b"\r\n").ok_or_else(|| broken("a line that does not end in CR LF"))?;
    Ok(String::from_utf8_lossy(line).into_owned())
}

async fn read_exactly<S: AsyncBufRead + Unpin>(stream: &mut S, length: u64, into: &mut Vec<u8>) -> Result<()> {
    if length > BODY_BYTES_MAX {
        return Err(broken(&format!("{length} bytes")));
    }
    let read = stream.take(length).read_to_end(into).await?;
    if read as u64 == length { Ok(()) } else { Err(broken("the connection ended inside the body")) }
}

fn broken(what: &str) -> Error {
    Error::new(ErrorKind::InvalidData, what)
}
