//! Where random tokens come from: the operating system.

/// Sixteen random bytes: the fence of an attempt, the version of a record.
///
/// # Panics
/// If the operating system has no randomness to give. Nothing can be kept apart then.
#[expect(clippy::disallowed_methods, reason = "this is the one place that draws random bytes")]
#[expect(clippy::expect_used, reason = "without randomness two attempts could be taken for one; stopping is safer")]
#[must_use]
pub fn random() -> [u8; 16] {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the operating system gives random bytes");
    bytes
}

/// A function that draws tokens, as the engine wants it.
pub type Random = fn() -> [u8; 16];
