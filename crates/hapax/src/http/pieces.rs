//! The pieces of a body that is being read, kept such that they take little more memory than the body has bytes.
//!
//! A sender may send byte by byte, and a piece of one byte costs tens. So small pieces are copied together. A large one is
//! kept as it came, and so is one that stays alone, as that of most bodies does.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

/// Smaller pieces are copied: what a piece costs by itself is little beside this.
const SMALL_BYTES_MAX: usize = 4 * 1024;

/// What was read, in order.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    closed: VecDeque<Bytes>,
    /// Small pieces that came after those.
    open: BytesMut,
    length: usize,
}

impl Pieces {
    pub(crate) fn push(&mut self, piece: Bytes) {
        if piece.is_empty() {
            return;
        }
        self.length += piece.len();
        if piece.len() >= SMALL_BYTES_MAX || self.length == piece.len() {
            self.close();
            self.closed.push_back(piece);
            return;
        }
        // The first piece was alone until now.
        if let Some(last) = self.closed.pop_back_if(|last| last.len() < SMALL_BYTES_MAX) {
            self.open.extend_from_slice(&last);
        }
        self.open.extend_from_slice(&piece);
    }

    fn close(&mut self) {
        if !self.open.is_empty() {
            self.closed.push_back(std::mem::take(&mut self.open).freeze());
        }
    }

    /// How many bytes were read.
    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// All of it in one piece.
    pub(crate) fn into_whole(mut self) -> Bytes {
        self.close();
        if self.closed.len() < 2 {
            return self.closed.pop_front().unwrap_or_default();
        }
        let mut whole = BytesMut::with_capacity(self.length);
        self.closed.iter().for_each(|piece| whole.extend_from_slice(piece));
        whole.freeze()
    }

    /// All of it in few pieces.
    pub(crate) fn into_few(mut self) -> VecDeque<Bytes> {
        self.close();
        self.closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(lengths: impl IntoIterator<Item = usize>) -> Pieces {
        let mut pieces = Pieces::default();
        lengths.into_iter().for_each(|length| pieces.push(vec![b'x'; length].into()));
        pieces
    }

    #[test]
    fn a_body_that_comes_byte_by_byte_takes_few_pieces_and_little_more_than_its_length() {
        let pieces = pieces(std::iter::repeat_n(1, 100_000));
        assert_eq!((pieces.length(), pieces.closed.len(), pieces.open.len()), (100_000, 0, 100_000));
        assert!(pieces.open.capacity() <= 2 * 100_000, "{}", pieces.open.capacity());
        assert_eq!(pieces.into_whole().len(), 100_000);
    }

    #[test]
    fn a_piece_that_stays_alone_is_not_copied() {
        for length in [1, SMALL_BYTES_MAX, 100_000] {
            let (alone, mut pieces) = (Bytes::from(vec![b'x'; length]), Pieces::default());
            pieces.push(Bytes::new());
            pieces.push(alone.clone());
            pieces.push(Bytes::new());
            assert_eq!(pieces.into_whole().as_ptr(), alone.as_ptr(), "{length}");
        }
    }

    #[test]
    fn large_pieces_are_kept_as_they_came() {
        let large = Bytes::from(vec![b'x'; SMALL_BYTES_MAX]);
        let mut pieces = pieces([1, 2]);
        pieces.push(large.clone());
        let few = pieces.into_few();
        assert_eq!(few.iter().map(Bytes::len).collect::<Vec<_>>(), [3, SMALL_BYTES_MAX]);
        assert_eq!(few[1].as_ptr(), large.as_ptr());
    }

    #[test]
    fn small_pieces_between_large_ones_are_few() {
        let pieces = pieces([1, 1, SMALL_BYTES_MAX, 1, 1, 1, SMALL_BYTES_MAX, SMALL_BYTES_MAX, 1]);
        let few: Vec<usize> = pieces.into_few().iter().map(Bytes::len).collect();
        assert_eq!(few, [2, SMALL_BYTES_MAX, 3, SMALL_BYTES_MAX, SMALL_BYTES_MAX, 1]);
    }

    #[test]
    fn the_order_stays() {
        let mut pieces = Pieces::default();
        let sent: Vec<Vec<u8>> = (0..50_u8).map(|at| vec![at; if at % 7 == 0 { 5_000 } else { 3 }]).collect();
        sent.iter().for_each(|piece| pieces.push(piece.clone().into()));
        assert_eq!(pieces.into_whole(), sent.concat());
        assert_eq!(Pieces::default().into_whole(), Bytes::new());
    }
}
