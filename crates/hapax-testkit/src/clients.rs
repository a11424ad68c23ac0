//! Where the real clients are: the SDKs that `scripts/test` installs, and programs of the system.
//!
//! The SDKs lie under the build directory, Python's in a virtual environment, so that nothing of the machine changes.
//! A test begins with [`needs_clients!`](crate::needs_clients). With `HAPAX_SKIP_SERVERS=1` it then says `NOT TESTED: …` and
//! returns; without it, a missing client fails the test. What the clients do is the tests' business.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{command, skip};

/// Returns from the test, saying so, where servers and clients are left out.
#[macro_export]
macro_rules! needs_clients {
    () => {
        if !$crate::clients::required() {
            return;
        }
    };
}

/// True where tests run that need real clients; false, with a line `NOT TESTED: …`, under `HAPAX_SKIP_SERVERS=1`.
#[track_caller]
pub fn required() -> bool {
    skip::wanted("real clients")
}

/// A command that runs a script with the Python that has the SDKs. `target` is the build directory.
///
/// # Panics
///
/// When they were not installed.
#[track_caller]
pub fn python(target: &Path, script: &Path) -> Command {
    let mut command = Command::new(installed(target.join("real-clients/python/bin/python")));
    command.arg(script);
    command
}

/// A command that runs a script with the Node that has the SDKs. `target` is the build directory.
///
/// # Panics
///
/// When they were not installed.
#[track_caller]
pub fn node(target: &Path, script: &Path) -> Command {
    let modules = installed(target.join("real-clients/node/node_modules"));
    let mut command = program("node");
    command.arg(script).env("NODE_PATH", modules);
    command
}

/// A command that runs a program of the system, such as `curl`.
///
/// # Panics
///
/// When it is missing.
#[track_caller]
pub fn program(name: &str) -> Command {
    let found = command::on_path(name).unwrap_or_else(|| panic!("{name} is not on PATH; {}", skip::advice()));
    Command::new(found)
}

/// Runs a client to its end and returns what it printed.
///
/// # Panics
///
/// When it fails, with its words.
#[track_caller]
pub fn run(command: &mut Command) -> String {
    command::output(command)
}

#[track_caller]
fn installed(path: PathBuf) -> PathBuf {
    assert!(path.exists(), "{} is missing; {}", path.display(), skip::advice());
    path
}
