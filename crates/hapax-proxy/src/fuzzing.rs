//! What the fuzz targets of `hapax-fuzz` drive and nobody else sees: the framing of HTTP/1.

use super::ListenOptions;
use super::framing::{Framing, Stop};

/// What the framing let through of a client's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Framed {
    /// The bytes that the HTTP parser gets to see.
    pub passed: Vec<u8>,
    /// How many heads were let through or refused.
    pub heads: u64,
    /// How it ended.
    pub end: End,
}

/// Why no more was let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// All of it passed.
    Passed,
    /// The beginning of a head is held back.
    Held,
    /// A request asks to leave HTTP.
    Upgrade,
    /// A head was refused.
    Refused,
    /// A body cannot be followed any further.
    Malformed,
}

/// Sends the bytes through the framing, piece by piece as they arrive.
#[must_use]
pub fn http1<'a>(pieces: impl IntoIterator<Item = &'a [u8]>, options: &ListenOptions) -> Framed {
    let mut framing = Framing::new(options.head_limits());
    let (mut held, mut passed, mut end) = (Vec::new(), Vec::new(), End::Passed);
    for piece in pieces {
        held.extend_from_slice(piece);
        let (count, stop) = framing.advance(&held);
        passed.extend(held.drain(..count));
        end = match stop {
            Stop::NoMore => End::Passed,
            Stop::Partial => End::Held,
            Stop::Upgrade => End::Upgrade,
            Stop::Refused(_) => End::Refused,
            Stop::Malformed => End::Malformed,
        };
        if !matches!(end, End::Passed | End::Held) {
            break;
        }
    }
    Framed { passed, heads: framing.heads(), end }
}
