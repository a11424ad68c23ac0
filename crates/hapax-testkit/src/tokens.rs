//! Random tokens for tests: names that do not collide, attempt ids, versions.
//!
//! Product code is handed its tokens; this is one of the places that hand them out.

/// Length of a token. 128 random bits: two tests never draw the same.
pub const TOKEN_BYTES: usize = 16;

/// A token from the operating system's random source.
#[expect(clippy::disallowed_methods, reason = "the one place where tests get random tokens from")]
pub fn random() -> [u8; TOKEN_BYTES] {
    let mut token = [0; TOKEN_BYTES];
    getrandom::fill(&mut token).expect("the operating system gives random bytes");
    token
}

/// A fresh name such as `test_5f0c…`: safe unquoted in SQL, in a path and in a URL.
pub fn name(prefix: &str) -> String {
    let token = u128::from_be_bytes(random());
    format!("{prefix}_{token:032x}")
}
