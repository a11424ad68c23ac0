//! Framing by itself: however the bytes are cut, the same is let through.

use super::*;

const LIMITS: Limits = Limits { fields_max: 10, bytes_max: 512, line_bytes_max: 128 };

/// Feeds bytes in pieces of `size`, holding back what is partial as a connection does.
fn feed(bytes: &[u8], size: usize) -> (Vec<u8>, Stop, u64) {
    let mut framing = Framing::new(LIMITS);
    let (mut passed, mut held) = (Vec::new(), Vec::new());
    let mut last = Stop::NoMore;
    for piece in bytes.chunks(size) {
        held.extend_from_slice(piece);
        let (count, stop) = framing.advance(&held);
        passed.extend(held.drain(..count));
        last = stop;
        if !matches!(stop, Stop::NoMore | Stop::Partial) {
            break;
        }
    }
    (passed, last, framing.heads())
}

const PIPELINE: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n\
    POST /b HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc\
    PUT /c HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3;x=\"y\"\r\n\r\n\r\r\n00a\r\n0123456789\r\n0\r\nX-Sum: 1\r\n\r\n\
    \r\nDELETE /d HTTP/1.0\r\n\r\n";

#[test]
fn well_formed_requests_pass_unchanged_however_they_are_cut() {
    for size in 1..=PIPELINE.len() {
        let (passed, stop, heads) = feed(PIPELINE, size);
        assert_eq!((passed.as_slice(), stop, heads), (PIPELINE, Stop::NoMore, 4), "in pieces of {size}");
    }
}

#[test]
fn nothing_of_a_refused_head_passes_however_it_is_cut() {
    let bad = b"POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    let all = [PIPELINE, bad].concat();
    for size in 1..=all.len() {
        let (passed, stop, heads) = feed(&all, size);
        assert_eq!((passed.as_slice(), heads), (PIPELINE, 5), "in pieces of {size}");
        assert!(matches!(stop, Stop::Refused(problem) if problem.code == "bad-framing"));
    }
}

#[test]
fn every_prefix_of_a_head_is_held_back() {
    let head = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    for length in 1..head.len() {
        assert_eq!(Framing::new(LIMITS).advance(&head[..length]), (0, Stop::Partial), "{length}");
    }
}

#[test]
fn what_follows_a_request_for_a_websocket_is_held_back() {
    let head = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\n\r\n";
    let all = [head.as_slice(), b"GET /smuggled HTTP/1.1\r\n\r\n"].concat();
    assert_eq!(Framing::new(LIMITS).advance(&all), (head.len(), Stop::Upgrade));
}

#[test]
fn a_head_that_grows_for_ever_is_refused_at_the_limit() {
    let (passed, stop, _) = feed(&[b"GET / HTTP/1.1\r\n".as_slice(), &[b'x'; 4096]].concat(), 7);
    assert_eq!((passed.len(), stop), (0, Stop::Refused(problem::HEAD_TOO_LARGE)));
    let (passed, stop, _) = feed(&[b'x'; 4096], 7);
    assert_eq!((passed.len(), stop), (0, Stop::Refused(problem::TARGET_TOO_LONG)));
    let (_, stop, _) = feed(&b"\r\n".repeat(100), 7);
    assert!(matches!(stop, Stop::Refused(_)));
}

#[test]
fn chunk_sizes_count_in_full() {
    let mut framing = Framing::new(LIMITS);
    let head = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(framing.advance(head), (head.len(), Stop::NoMore));
    assert_eq!(framing.advance(b"fffffffffffffff\r\nabc"), (20, Stop::NoMore));
    assert!(!framing.is_between_requests());
    let mut framing = Framing::new(LIMITS);
    framing.advance(head);
    assert_eq!(framing.advance(b"0000000000000001\r\na"), (15, Stop::Malformed));
}

#[test]
fn any_bytes_are_read_without_a_panic_and_the_same_in_any_pieces() {
    // A small generator is enough: every seed is a repeatable run.
    let alphabet =
        b"GET / HTTP/1.1\r\n\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n0\r\n\r\n;\x00\xff";
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    for _ in 0..20_000 {
        let mut bytes = Vec::new();
        for _ in 0..12 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let start = usize::try_from(state % alphabet.len() as u64).unwrap();
            let length = usize::try_from((state >> 32) % 24).unwrap();
            bytes.extend(alphabet.iter().cycle().skip(start).take(length));
        }
        let whole = feed(&bytes, bytes.len().max(1));
        for size in [1, 3, 16] {
            assert_eq!(feed(&bytes, size), whole, "{:?}", String::from_utf8_lossy(&bytes));
        }
    }
}
