//! Which faults are on, and what they mean for a chunk of bytes. Pure: no sockets, no time.

use std::num::NonZeroU64;
use std::time::Duration;

/// Which way a chunk goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    ToServer,
    ToClient,
}

/// What is to be done with a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Forward,
    /// Forward only so many of its bytes, then cut the connection.
    ForwardThenCut(usize),
    /// Drop it and go on reading.
    Swallow,
    /// Drop it and the rest of the answer, then cut the connection.
    LoseReply,
}

/// How far the loss of one reply has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum LoseReply {
    #[default]
    Off,
    /// Waiting for a request on any connection.
    Armed,
    /// A request was seen on this connection; its answer is to be lost.
    Awaiting(u64),
}

/// The faults that are on.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Faults {
    /// How often all connections were cut. A connection that is older than the last time is to end.
    pub(super) cuts: u64,
    pub(super) delay: Duration,
    pub(super) bytes_per_s: Option<NonZeroU64>,
    pub(super) black_hole: bool,
    pub(super) hold_replies: bool,
    pub(super) lose_reply: LoseReply,
    pub(super) to_server_left: Option<u64>,
    pub(super) to_client_left: Option<u64>,
}

impl Faults {
    /// Judges a chunk and uses up the faults that happen once.
    pub(super) fn judge(&mut self, direction: Direction, connection: u64, length: usize) -> Verdict {
        if self.swallows(direction) {
            return Verdict::Swallow;
        }
        match (direction, self.lose_reply) {
            (Direction::ToServer, LoseReply::Armed) => self.lose_reply = LoseReply::Awaiting(connection),
            (Direction::ToClient, LoseReply::Awaiting(asked)) if asked == connection => {
                self.lose_reply = LoseReply::Off;
                return Verdict::LoseReply;
            }
            _ => {}
        }
        self.spend(direction, length)
    }

    /// True where bytes in this direction vanish.
    pub(super) fn swallows(&self, direction: Direction) -> bool {
        self.black_hole || (self.hold_replies && direction == Direction::ToClient)
    }

    fn spend(&mut self, direction: Direction, length: usize) -> Verdict {
        let left = match direction {
            Direction::ToServer => &mut self.to_server_left,
            Direction::ToClient => &mut self.to_client_left,
        };
        let length = length as u64;
        match *left {
            None => Verdict::Forward,
            Some(bytes) if bytes > length => {
                *left = Some(bytes - length);
                Verdict::Forward
            }
            Some(bytes) => {
                *left = None;
                Verdict::ForwardThenCut(usize::try_from(bytes).expect("it is at most the chunk's length"))
            }
        }
    }
}
