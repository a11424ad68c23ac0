//! Where HTTP/1 requests begin and end, read strictly, before hyper sees them.
//!
//! hyper forgives what smugglers need: of Content-Length beside Transfer-Encoding it silently drops one, it takes bare line
//! feeds and repeated lengths. So every byte from a client passes through here first. What can be read in exactly one way
//! is let through unchanged; for the rest there is a [`Problem`], and hyper never sees it. This module only counts bytes:
//! [`guarded`](super::listen) holds them, and everything about the meaning of fields is left to
//! [`headers`](super::headers).

mod chunks;
mod head;

use super::problem::{self, Problem};
use chunks::{Chunks, Progress};
use head::{Head, HeadLimits, Seen};

pub(super) use head::{BAD_TARGET, HeadLimits as Limits, check_length, is_target, value_in_refused};

/// What comes next in the stream of a client.
#[derive(Debug)]
enum Expecting {
    Head(Head),
    Fixed(u64),
    Chunked(Chunks),
}

/// Follows the requests of one connection.
#[derive(Debug)]
pub(super) struct Framing {
    limits: HeadLimits,
    expecting: Expecting,
    heads: u64,
}

/// Why the framing stopped, after the bytes that may be let through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// Everything may pass.
    NoMore,
    /// The rest is the beginning of a head, to be given again with more behind it.
    Partial,
    /// The rest comes after a request that asks to leave HTTP.
    Upgrade,
    /// The rest is a head that must not pass.
    Refused(Problem),
    /// The body of the request that passed cannot be followed any further.
    Malformed,
}

impl Framing {
    pub(super) fn new(limits: HeadLimits) -> Self {
        Self { limits, expecting: Expecting::Head(Head::default()), heads: 0 }
    }

    /// How many heads have been let through or refused.
    pub(super) fn heads(&self) -> u64 {
        self.heads
    }

    /// Whether a new request may begin here, and nothing of it has come.
    pub(super) fn is_between_requests(&self) -> bool {
        matches!(&self.expecting, Expecting::Head(head) if head.is_untouched())
    }

    /// Looks at what comes next; tells how much of it may pass, and why no more.
    pub(super) fn advance(&mut self, bytes: &[u8]) -> (usize, Stop) {
        let mut passed = 0;
        while passed < bytes.len() {
            let rest = &bytes[passed..];
            match &mut self.expecting {
                Expecting::Head(head) => match head.read(rest, &self.limits) {
                    Seen::Partial => return (passed, Stop::Partial),
                    Seen::Complete { bytes, length, upgrade } => {
                        passed += bytes;
                        self.heads += 1;
                        self.expecting = length.map_or_else(Expecting::chunked, Expecting::fixed);
                        if upgrade {
                            return (passed, Stop::Upgrade);
                        }
                    }
                    Seen::Bad(problem) => return (passed, self.refuse(problem)),
                },
                Expecting::Fixed(left) => {
                    let step = (rest.len() as u64).min(*left);
                    // At most the length of a slice.
                    passed += usize::try_from(step).unwrap_or(rest.len());
                    self.expecting = Expecting::fixed(*left - step);
                }
                Expecting::Chunked(chunks) => match chunks.read(rest) {
                    Progress::Within => passed = bytes.len(),
                    Progress::Ended(at) => {
                        passed += at;
                        self.expecting = Expecting::fixed(0);
                    }
                    Progress::Malformed(at) => return (passed + at, Stop::Malformed),
                },
            }
        }
        (passed, Stop::NoMore)
    }

    /// Counts the head that is refused in place of what was to come.
    pub(super) fn refuse(&mut self, problem: Problem) -> Stop {
        self.heads += 1;
        Stop::Refused(problem)
    }
}

impl Expecting {
    fn fixed(left: u64) -> Self {
        if left == 0 { Expecting::Head(Head::default()) } else { Expecting::Fixed(left) }
    }

    fn chunked() -> Self {
        Expecting::Chunked(Chunks::default())
    }
}

#[cfg(test)]
mod tests;
