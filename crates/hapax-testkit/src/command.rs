//! Commands that run to their end, and commands that must not run as root.
//!
//! PostgreSQL and PgBouncer refuse to run as root. Where the tests do, the servers run as the user that Debian's packages
//! create for them.

use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The account that runs the servers where the tests run as root.
const SERVER_USER: &str = "postgres";

/// A command that runs as us, or as the server user where we are root.
pub(crate) fn as_server_user(program: impl AsRef<OsStr>) -> Command {
    let mut command = if running_as_root() {
        let mut command = Command::new("setpriv");
        command.args([&format!("--reuid={SERVER_USER}"), &format!("--regid={SERVER_USER}"), "--init-groups", "--"]);
        command.arg(program);
        command
    } else {
        Command::new(program)
    };
    // Our own directory may be closed to the server user.
    command.current_dir("/").stdin(Stdio::null());
    command
}

/// Runs the command and returns what it printed.
///
/// # Panics
///
/// When it cannot be started or fails, with its words.
#[track_caller]
pub(crate) fn output(command: &mut Command) -> String {
    match try_output(command) {
        Ok(text) => text,
        Err(reason) => panic!("{reason}"),
    }
}

/// Runs the command and returns what it printed, or else why it failed.
pub(crate) fn try_output(command: &mut Command) -> Result<String, String> {
    let done = command.output().map_err(|error| format!("cannot start {command:?}: {error}"))?;
    let printed = String::from_utf8_lossy(&done.stdout);
    if done.status.success() {
        return Ok(printed.into_owned());
    }
    let complaint = String::from_utf8_lossy(&done.stderr);
    Err(format!("{command:?} failed, {}\n{printed}{complaint}", done.status))
}

/// A new directory that belongs to the server user and is closed to others.
pub(crate) fn server_dir(name: &str) -> PathBuf {
    let mut command = as_server_user("mktemp");
    command.arg("-d").arg("-p").arg(std::env::temp_dir()).arg(format!("{name}-XXXXXX"));
    PathBuf::from(output(&mut command).trim_end())
}

/// Finds a program the way a shell does.
pub(crate) fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|file| file.is_file())
}

fn running_as_root() -> bool {
    Path::new("/proc/self").metadata().expect("/proc is mounted").uid() == 0
}
