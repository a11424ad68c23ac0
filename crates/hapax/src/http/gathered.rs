//! A body that is being read, within a share of the memory budget.
//!
//! Room is taken before it is filled. For a response whose length is known it is taken at once. For a request it grows by
//! doubling: a length is a word of the client's, and whoever says a large one and sends nothing must not hold anything.
//! Whether there is room for all of it is asked before anything is read all the same.
//!
//! What is read is copied into one buffer, because a piece as it came may keep a much larger buffer of its connection alive.
//! Only a first piece that may be all of it stays as it came, as that of most bodies does.

use bytes::{Bytes, BytesMut};

use crate::http::budget::{Full, SMALL_BYTES_MAX, Share, Use};

/// A smaller buffer is not worth its while.
const BUFFER_BYTES_MIN: usize = 1024;

/// What was read, in order.
#[derive(Debug)]
pub(crate) struct Gathered {
    share: Share,
    what: Use,
    /// The length of all of it, if it is known.
    expected: usize,
    /// A first piece, as it came.
    alone: Option<Bytes>,
    buffer: BytesMut,
}

impl Gathered {
    /// Nothing yet. Refused where there is no room for the length that is expected.
    pub(crate) fn new(mut share: Share, what: Use, expected: Option<usize>) -> Result<Self, Full> {
        let expected = expected.unwrap_or(0);
        if what != Use::Request {
            share.hold(expected, what)?;
        } else if expected > SMALL_BYTES_MAX {
            share.hold(expected, what)?;
            share.keep(0);
        }
        Ok(Self { share, what, expected, alone: None, buffer: BytesMut::new() })
    }

    /// Adds a piece; `stays` where it may be kept as it came if it is the first. Without memory for it nothing is added.
    pub(crate) fn push(&mut self, piece: &Bytes, stays: bool) -> Result<(), Full> {
        if piece.is_empty() {
            return Ok(());
        }
        if stays && self.length() == 0 {
            self.share.hold(piece.len(), self.what)?;
            self.alone = Some(piece.clone());
            return Ok(());
        }
        self.make_room(self.length() + piece.len())?;
        if let Some(first) = self.alone.take() {
            self.buffer.extend_from_slice(&first);
        }
        self.buffer.extend_from_slice(piece);
        Ok(())
    }

    fn make_room(&mut self, bytes: usize) -> Result<(), Full> {
        if bytes <= self.buffer.capacity() {
            return Ok(());
        }
        let doubled = bytes.next_power_of_two().max(BUFFER_BYTES_MIN);
        let room = match self.what {
            _ if bytes > self.expected => doubled,
            Use::Request => doubled.min(self.expected),
            Use::Response | Use::Replay => self.expected,
        };
        self.share.hold(room, self.what)?;
        let mut larger = BytesMut::with_capacity(room);
        larger.extend_from_slice(&self.buffer);
        self.buffer = larger;
        Ok(())
    }

    /// How many bytes were read.
    pub(crate) fn length(&self) -> usize {
        self.alone.as_ref().map_or(0, Bytes::len) + self.buffer.len()
    }

    /// All of it in one piece, and what is held for it.
    pub(crate) fn into_whole(mut self) -> (Bytes, Share) {
        let taken = self.alone.as_ref().map_or(self.buffer.capacity(), Bytes::len);
        self.share.keep(taken);
        let whole = self.alone.unwrap_or_else(|| self.buffer.freeze());
        (whole, self.share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::budget::Budget;
    use std::sync::Arc;

    fn gathered(budget: &Arc<Budget>, expected: Option<usize>) -> Result<Gathered, Full> {
        Gathered::new(budget.share(None), Use::Request, expected)
    }

    #[test]
    fn pieces_are_put_together_in_order() {
        let budget = Arc::default();
        for expected in [None, Some(7), Some(7_000)] {
            for stays in [true, false] {
                let mut gathered = gathered(&budget, expected).unwrap();
                for piece in ["ab", "", "c", "defg"] {
                    gathered.push(&Bytes::from(piece), stays).unwrap();
                }
                assert_eq!(gathered.length(), 7);
                assert_eq!(gathered.into_whole().0, "abcdefg");
            }
        }
        assert_eq!(gathered(&budget, None).unwrap().into_whole().0, "");
    }

    #[test]
    fn a_piece_that_is_all_of_it_is_not_copied() {
        let (piece, mut gathered) = (Bytes::from(vec![b'x'; 100_000]), gathered(&Arc::default(), None).unwrap());
        gathered.push(&piece, true).unwrap();
        assert_eq!(gathered.into_whole().0.as_ptr(), piece.as_ptr());
    }

    #[test]
    fn what_was_held_in_vain_is_given_back() {
        let budget = Arc::<Budget>::default();
        for (stays, taken) in [(true, 2), (false, BUFFER_BYTES_MIN)] {
            let mut gathered = gathered(&budget, Some(16 * 1024)).unwrap();
            gathered.push(&Bytes::from_static(b"{}"), stays).unwrap();
            let (_, _share) = gathered.into_whole();
            assert_eq!(budget.used(), taken);
        }
    }

    #[test]
    fn a_length_that_a_client_says_takes_nothing_before_it_comes_and_no_more_in_the_end() {
        let budget = Arc::<Budget>::default();
        let mut gathered = gathered(&budget, Some(100_000)).unwrap();
        assert_eq!(budget.used(), 0);
        for sent in 1..=100_000 {
            gathered.push(&Bytes::from_static(b"x"), false).unwrap();
            assert!(budget.used() <= (2 * sent).clamp(BUFFER_BYTES_MIN, 100_000), "{sent}");
        }
        assert_eq!((budget.used(), gathered.buffer.capacity()), (100_000, 100_000));
        gathered.push(&Bytes::from_static(b"x"), false).unwrap();
        assert_eq!(gathered.length(), 100_001);
    }

    #[test]
    fn the_known_length_of_a_response_is_taken_at_once_and_takes_no_more() {
        let budget = Arc::<Budget>::default();
        let mut gathered = Gathered::new(budget.share(None), Use::Response, Some(100_000)).unwrap();
        assert_eq!(budget.used(), 100_000);
        (0..100_000).for_each(|_| gathered.push(&Bytes::from_static(b"x"), false).unwrap());
        assert_eq!((budget.used(), gathered.buffer.capacity()), (100_000, 100_000));
    }

    #[test]
    fn an_unknown_length_takes_at_most_twice_its_bytes() {
        let budget = Arc::<Budget>::default();
        let mut gathered = gathered(&budget, None).unwrap();
        for sent in 1..=100_000 {
            gathered.push(&Bytes::from_static(b"x"), false).unwrap();
            assert!(budget.used() <= (2 * sent).max(BUFFER_BYTES_MIN), "{sent}");
            assert_eq!(gathered.buffer.capacity(), budget.used());
        }
        let (whole, share) = gathered.into_whole();
        assert_eq!(whole.len(), 100_000);
        drop(share);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn without_memory_nothing_is_added() {
        let budget = Arc::<Budget>::default();
        budget.set_max(1_000_000);
        assert!(gathered(&budget, Some(1_000_000)).is_err());
        let mut gathered = gathered(&budget, None).unwrap();
        let piece = Bytes::from(vec![b'x'; 100_000]);
        let pushed = std::iter::repeat_with(|| gathered.push(&piece, false)).take_while(Result::is_ok).count();
        assert_eq!((pushed, gathered.length()), (5, 500_000));
        drop(gathered);
        assert_eq!(budget.used(), 0);
    }
}
