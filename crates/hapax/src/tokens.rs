//! Where random tokens come from: the operating system.

use std::cell::RefCell;

/// Bytes drawn from the operating system at a time: a system call for every token would be felt.
const DRAWN: usize = 4096;

thread_local! {
    /// Bytes that were drawn and not handed out yet, at the end of the buffer. Each is handed out once.
    static LEFT: RefCell<([u8; DRAWN], usize)> = const { RefCell::new(([0; DRAWN], 0)) };
}

/// Sixteen random bytes: the fence of an attempt, the version of a record.
///
/// # Panics
/// If the operating system has no randomness to give. Nothing can be kept apart then.
#[must_use]
pub fn random() -> [u8; 16] {
    LEFT.with_borrow_mut(|(drawn, left)| {
        if *left < 16 {
            draw(drawn);
            *left = DRAWN;
        }
        let from = DRAWN - *left;
        *left -= 16;
        let mut token = [0; 16];
        token.swap_with_slice(&mut drawn[from..from + 16]);
        token
    })
}

#[expect(clippy::disallowed_methods, reason = "this is the one place that draws random bytes")]
#[expect(clippy::expect_used, reason = "without randomness two attempts could be taken for one; stopping is safer")]
fn draw(bytes: &mut [u8]) {
    getrandom::fill(bytes).expect("the operating system gives random bytes");
}

/// A function that draws tokens, as the engine wants it.
pub type Random = fn() -> [u8; 16];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_token_comes_twice() {
        let drawn = || (0..1000).map(|_| random()).collect::<Vec<_>>();
        let other = std::thread::spawn(drawn);
        let mut all = drawn();
        all.extend(other.join().unwrap());
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 2000);
        assert!(!all.contains(&[0; 16]));
    }
}
