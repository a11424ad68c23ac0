//! HTTP/1 framing: what passes is read in exactly one way, and in the same way however it is cut into pieces.
//!
//! The first byte says how the rest is cut. The judge shares no code with the framing: heads are read by `httparse`, and
//! bodies by the few lines below.

use hapax_proxy::ListenOptions;
use hapax_proxy::fuzzing::{self, End, Framed};

pub(crate) const WORDS: &[&str] = &[
    "GET / HTTP/1.1\r\n",
    "POST /pay HTTP/1.1\r\n",
    "HTTP/1.0",
    "OPTIONS * HTTP/1.1\r\n",
    "Host: a\r\n",
    "Content-Length: 3\r\n",
    "Content-Length: 0\r\n",
    "Content-Length: 03\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Transfer-Encoding: gzip, chunked\r\n",
    "Transfer-Encoding\t: chunked\r\n",
    "Upgrade: websocket\r\nConnection: upgrade\r\n",
    "Expect: 100-continue\r\n",
    "\r\n\r\n",
    "\r\n",
    "\n",
    "\r",
    "3\r\nabc\r\n",
    "0\r\n\r\n",
    "0\r\nX: y\r\n\r\n",
    "0\r\nContent-Length: 3\r\n\r\n",
    "1;a=b\r\nx\r\n",
    "http://a/b",
    "\0",
    "\u{b}",
    " ",
    "\t",
    "ffffffffffffffff",
];

/// As the listener has them, but small, so that inputs reach them.
fn options() -> ListenOptions {
    ListenOptions { fields_max: 16, head_bytes_max: 1024, ..ListenOptions::default() }
}

/// Runs the target.
pub fn http1(data: &[u8]) {
    let Some((&cut, bytes)) = data.split_first() else { return };
    let options = options();
    let whole = fuzzing::http1([bytes], &options);
    let in_pieces = fuzzing::http1(bytes.chunks(usize::from(cut % 16) + 1), &options);
    // A head of which not all has come may be refused sooner; what passed is the same.
    let (early, late) = (kind(&in_pieces), kind(&whole));
    assert_eq!((&in_pieces.passed, early), (&whole.passed, late), "in pieces of {}", usize::from(cut % 16) + 1);
    assert!(bytes.starts_with(&whole.passed), "bytes were changed");
    judge(&whole, &options);
}

/// Whether the connection goes on.
fn kind(framed: &Framed) -> bool {
    matches!(framed.end, End::Passed | End::Held)
}

/// Reads what passed a second time.
fn judge(framed: &Framed, options: &ListenOptions) {
    let mut rest = framed.passed.as_slice();
    let mut heads = 0;
    while !rest.is_empty() {
        let mut fields = vec![httparse::EMPTY_HEADER; options.fields_max];
        let mut request = httparse::Request::new(&mut fields);
        let length = match request.parse(rest) {
            Ok(httparse::Status::Complete(length)) => length,
            // Empty lines before a request that has not come.
            _ if rest.iter().all(|byte| matches!(byte, b'\r' | b'\n')) => return,
            other => panic!("passed, and not a request: {other:?}: {:?}", String::from_utf8_lossy(rest)),
        };
        assert!(length <= options.head_bytes_max, "a head of {length} bytes passed");
        heads += 1;
        let body = Body::of(&request);
        rest = &rest[length..];
        let Some(after) = body.skip(rest) else {
            // The body goes on, or was found to be malformed: nothing behind it passed.
            break;
        };
        rest = after;
    }
    let refused = u64::from(framed.end == End::Refused);
    assert_eq!(heads + refused, framed.heads, "heads");
}

enum Body {
    Length(usize),
    Chunked,
}

impl Body {
    fn of(request: &httparse::Request<'_, '_>) -> Self {
        let values = |name: &str| -> Vec<&[u8]> {
            request
                .headers
                .iter()
                .filter(|field| field.name.eq_ignore_ascii_case(name))
                .map(|field| field.value)
                .collect()
        };
        let (lengths, encodings) = (values("content-length"), values("transfer-encoding"));
        match (lengths.as_slice(), encodings.as_slice()) {
            ([], []) => Self::Length(0),
            ([], [encoding]) => {
                assert!(encoding.eq_ignore_ascii_case(b"chunked"), "{encoding:?}");
                assert_eq!(request.version, Some(1), "chunks in HTTP/1.0");
                Self::Chunked
            }
            ([length], []) => {
                let text =
                    std::str::from_utf8(length).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
                Self::Length(
                    text.and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("a length of {length:?}")),
                )
            }
            other => panic!("a body with two ends: {other:?}"),
        }
    }

    /// What follows the body; none where its end did not pass.
    fn skip<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        match self {
            Self::Length(length) => bytes.get(*length..),
            Self::Chunked => skip_chunks(bytes),
        }
    }
}

fn skip_chunks(mut bytes: &[u8]) -> Option<&[u8]> {
    loop {
        let end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
        let digits = bytes[..end].split(|byte| *byte == b';').next()?;
        let size = usize::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        bytes = &bytes[end + 2..];
        if size == 0 {
            return skip_trailers(bytes);
        }
        let data_end = size.checked_add(2)?;
        let data = bytes.get(..data_end)?;
        assert!(data.ends_with(b"\r\n"), "data of a chunk that is longer than it says passed");
        bytes = &bytes[data_end..];
    }
}

fn skip_trailers(mut bytes: &[u8]) -> Option<&[u8]> {
    loop {
        let end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
        let line = &bytes[..end];
        bytes = &bytes[end + 2..];
        if line.is_empty() {
            return Some(bytes);
        }
        let mut field = [httparse::EMPTY_HEADER; 1];
        let parsed =
            httparse::parse_headers(&[line, b"\r\n\r\n"].concat(), &mut field).is_ok_and(|read| read.is_complete());
        assert!(parsed, "a trailer {:?}", String::from_utf8_lossy(line));
    }
}
