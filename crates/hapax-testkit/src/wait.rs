//! Bounded waiting for what another process or thread does.
//!
//! A test waits for a signal where there is one. This is for the rest: a port that opens, a process that ends.

use std::time::{Duration, Instant};

/// How long to pause between two looks.
const STEP: Duration = Duration::from_millis(2);

/// Blocks until `done` says so.
///
/// # Panics
///
/// When `limit` has passed; the message names `what`.
#[track_caller]
pub fn until(what: &str, limit: Duration, mut done: impl FnMut() -> bool) {
    assert!(holds_within(limit, &mut done), "waited {limit:?} in vain: {what}");
}

/// Blocks until `done` says so, or `limit` has passed; says which.
#[expect(clippy::disallowed_methods, reason = "what another process does takes real time")]
pub fn holds_within(limit: Duration, mut done: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while start.elapsed() < limit {
        if done() {
            return true;
        }
        pause();
    }
    done()
}

/// Lets time pass, where that is what a test is about. Otherwise wait for a signal.
#[expect(clippy::disallowed_methods, reason = "the time itself is what is wanted")]
pub fn pass(length: Duration) {
    std::thread::sleep(length);
}

#[expect(clippy::disallowed_methods, reason = "the one place where tests poll, for what gives no signal")]
fn pause() {
    std::thread::sleep(STEP);
}
