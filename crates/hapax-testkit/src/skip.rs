//! Whether tests that need a server run, and saying so when they do not.

use std::io::Write;
use std::panic::Location;

/// Set to `1` to leave out every test that needs a server.
const SKIP: &str = "HAPAX_SKIP_SERVERS";
/// A file that collects what was left out, so that `scripts/test` can list it at its end.
const COLLECT: &str = "HAPAX_NOT_TESTED_FILE";

/// True where tests that need `server` shall run; otherwise says `NOT TESTED` and is false.
#[track_caller]
pub(crate) fn wanted(server: &str) -> bool {
    if std::env::var(SKIP).as_deref() != Ok("1") {
        return true;
    }
    let line = format!("NOT TESTED: {} needs {server} ({SKIP}=1)", test_name());
    println!("{line}");
    collect(&line);
    false
}

/// Says that this test is left out because the machine does not have, or does not allow, what it needs. For what can be
/// installed there is no such excuse: its absence fails the test.
#[track_caller]
pub fn not_tested(needs: &str) {
    let line = format!("NOT TESTED: {} needs {needs}", test_name());
    // Nobody asked for it, so it is said past the harness, which keeps to itself what a test prints that passes.
    writeln!(std::io::stdout(), "{line}").expect("standard output can be written");
    collect(&line);
}

fn collect(line: &str) {
    if let Some(path) = std::env::var_os(COLLECT) {
        let mut file =
            std::fs::OpenOptions::new().append(true).create(true).open(path).expect("the file can be opened");
        writeln!(file, "{line}").expect("the file can be written");
    }
}

/// What to do about a server that is missing; the end of every such message.
pub(crate) fn advice() -> String {
    format!("run scripts/test, which installs it, or set {SKIP}=1 to leave out the tests that need it")
}

/// Package and test. The harness names the test's thread after the test, unless it runs tests on the main thread.
#[track_caller]
fn test_name() -> String {
    let package = std::env::var("CARGO_PKG_NAME").unwrap_or_default();
    let thread = std::thread::current().name().filter(|name| *name != "main").map(str::to_owned);
    let test = thread.or_else(|| std::env::var("NEXTEST_TEST_NAME").ok());
    format!("{package} {}", test.unwrap_or_else(|| Location::caller().to_string()))
}
