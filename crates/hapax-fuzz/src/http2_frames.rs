//! HTTP/2 frames written by hand, because no client library writes what a stranger may. Fields are literals, so that any
//! bytes can stand in them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// A server that says nothing for so long hangs.
const REPLY_TIME_MAX: Duration = Duration::from_secs(20);

pub(crate) type Field<'a> = (&'a [u8], &'a [u8]);

/// One request on a connection of its own.
pub(crate) struct Exchange<'a> {
    pub(crate) fields: Vec<Field<'a>>,
    pub(crate) body: Option<&'a [u8]>,
    pub(crate) trailers: Vec<Field<'a>>,
    /// The head comes in frames of at most this many bytes.
    pub(crate) head_piece: usize,
    /// The body comes in frames of at most this many bytes.
    pub(crate) body_piece: usize,
}

impl Exchange<'_> {
    /// Sends it, and reads until the stream or the connection has ended.
    pub(crate) fn with(&self, server: SocketAddr) {
        let mut stream = TcpStream::connect(server).unwrap_or_else(|error| panic!("no connection: {error}"));
        stream.set_read_timeout(Some(REPLY_TIME_MAX)).unwrap_or_else(|error| panic!("no time limit: {error}"));
        // A server may close while we write; what it said before counts.
        let _ = stream.write_all(&self.bytes());
        let mut reader = Replies::default();
        let mut buffer = [0; 4096];
        while !reader.ended {
            match stream.read(&mut buffer) {
                Ok(0) => return,
                Ok(count) => reader.read(&buffer[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("no reply: the listener hangs"),
                Err(_) => return,
            }
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = PREFACE.to_vec();
        frame(&mut bytes, SETTINGS, 0, 0, &[]);
        let ends = self.body.is_none() && self.trailers.is_empty();
        head(&mut bytes, &self.fields, ends, self.head_piece);
        if let Some(body) = self.body {
            let pieces = body.chunks(self.body_piece.max(1));
            let last = pieces.len().saturating_sub(1);
            let ends = self.trailers.is_empty();
            if body.is_empty() {
                frame(&mut bytes, DATA, if ends { END_STREAM } else { 0 }, 1, &[]);
            }
            for (number, piece) in pieces.enumerate() {
                frame(&mut bytes, DATA, if ends && number == last { END_STREAM } else { 0 }, 1, piece);
            }
        }
        if !self.trailers.is_empty() {
            head(&mut bytes, &self.trailers, true, self.head_piece);
        }
        bytes
    }
}

fn head(bytes: &mut Vec<u8>, fields: &[Field<'_>], ends: bool, piece: usize) {
    let mut block = Vec::new();
    for (name, value) in fields {
        // A literal without indexing, with a name of its own (RFC 7541, 6.2.2).
        block.push(0);
        text(&mut block, name);
        text(&mut block, value);
    }
    let pieces: Vec<&[u8]> = if block.is_empty() { vec![&[]] } else { block.chunks(piece.max(1)).collect() };
    for (number, piece) in pieces.iter().enumerate() {
        let kind = if number == 0 { HEADERS } else { CONTINUATION };
        let last = if number + 1 == pieces.len() { END_HEADERS } else { 0 };
        let end = if number == 0 && ends { END_STREAM } else { 0 };
        frame(bytes, kind, last | end, 1, piece);
    }
}

/// A string literal without Huffman coding; lengths have a prefix of seven bits.
fn text(block: &mut Vec<u8>, text: &[u8]) {
    match u8::try_from(text.len()) {
        Ok(length) if length < 127 => block.push(length),
        _ => {
            block.push(127);
            let mut rest = text.len() - 127;
            while rest >= 128 {
                block.push((rest % 128) as u8 | 128);
                rest /= 128;
            }
            block.push(rest as u8);
        }
    }
    block.extend_from_slice(text);
}

fn frame(bytes: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let length = u32::try_from(payload.len()).unwrap_or(0).to_be_bytes();
    bytes.extend_from_slice(&length[1..]);
    bytes.extend_from_slice(&[kind, flags]);
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(payload);
}

/// What the server says, as far as it matters when to stop.
#[derive(Default)]
struct Replies {
    held: Vec<u8>,
    ended: bool,
}

impl Replies {
    fn read(&mut self, bytes: &[u8]) {
        self.held.extend_from_slice(bytes);
        while let Some((length, kind, flags, stream)) = self.next_frame() {
            self.held.drain(..9 + length);
            let ends_stream = matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0;
            self.ended |= kind == GOAWAY || (stream == 1 && (kind == RST_STREAM || ends_stream));
        }
    }

    fn next_frame(&self) -> Option<(usize, u8, u8, u32)> {
        let head = self.held.get(..9)?;
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        let stream = u32::from_be_bytes([head[5] & 0x7f, head[6], head[7], head[8]]);
        (self.held.len() >= 9 + length).then_some((length, head[3], head[4], stream))
    }
}
