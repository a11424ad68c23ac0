//! The long tests of the proxy, whole: bursts that are stopped anywhere, a hundred thousand payments beside idle
//! connections, a thousand copies at once, two hundred tenants with the same keys.

use std::process::{Command, ExitCode};

use hapax_testkit::whole::WHOLE;

/// The tests that ask how much to run.
const TESTS: [&str; 3] = ["asleep::", "idle_close::", "storms::"];

/// Runs them, and says what came of it.
pub(crate) fn run() -> ExitCode {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["test", "--package", "hapax-server", "--all-features", "--locked", "--test", "it", "--"]);
    cargo.args(TESTS).env(WHOLE, "1");
    match cargo.status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("cannot run cargo: {error}");
            ExitCode::FAILURE
        }
    }
}
