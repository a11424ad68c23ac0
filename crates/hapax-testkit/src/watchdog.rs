//! Small processes that clean up after us, however we end.
//!
//! A static is never dropped, and nothing runs after SIGKILL. So a shell, in a process group of its own, waits until we
//! are gone (a pipe that we hold closes, or the whole test run has ended), then stops the server and removes its directory.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Waits for the end of its input, stops the server with the command it was given, removes the directory.
const STOP_AT_END_OF_INPUT: &str = r#"
    dir=$1; shift
    cat >/dev/null
    "$@"
    rm -rf -- "$dir"
"#;

/// Runs the command it was given until the end of its input, removes the directory.
const RUN_UNTIL_END_OF_INPUT: &str = r#"
    dir=$1; shift
    "$@" & pid=$!
    cat >/dev/null
    kill -9 "$pid"; wait "$pid"
    rm -rf -- "$dir"
"#;

/// Waits until the runner has ended and nobody holds the run's lock; then as above. The lock is held until the run's
/// directory is gone, so whoever gets it later sees that it belongs to a removed file.
const STOP_AT_END_OF_RUN: &str = r#"
    dir=$1; run=$2; runner=$3; shift 3
    while kill -0 "$runner"; do sleep 0.2; done
    exec 9<"$run/lock" && flock -x 9
    "$@"
    rm -rf -- "$dir" "$run"
"#;

/// A process that cleans up when this value is dropped or this process ends.
#[derive(Debug)]
pub(crate) struct Watchdog {
    process: Child,
}

impl Watchdog {
    /// Runs `stop` and removes `dir` in the end.
    pub(crate) fn stopping(stop: &Command, dir: &Path) -> Watchdog {
        Watchdog::spawn(shell(STOP_AT_END_OF_INPUT).arg(dir), stop)
    }

    /// Runs `service` now; kills it and removes `dir` in the end.
    pub(crate) fn running(service: &Command, dir: &Path) -> Watchdog {
        Watchdog::spawn(shell(RUN_UNTIL_END_OF_INPUT).arg(dir), service)
    }

    fn spawn(shell: &mut Command, job: &Command) -> Watchdog {
        let shell = append(shell, job).stdin(Stdio::piped());
        Watchdog { process: shell.spawn().expect("a shell can be started") }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        // Nothing to be done about an error here, and a panic would hide the test's own.
        let _ = self.process.wait();
    }
}

/// Runs `stop` and removes `dir` and `run` once the process `runner` has ended and nobody holds `run/lock`.
#[expect(clippy::zombie_processes, reason = "it outlives this process on purpose")]
pub(crate) fn stop_at_end_of_run(stop: &Command, dir: &Path, run: &Path, runner: u32) {
    let mut shell = shell(STOP_AT_END_OF_RUN);
    shell.arg(dir).arg(run).arg(runner.to_string());
    append(&mut shell, stop).spawn().expect("a shell can be started");
}

/// A shell that keeps none of our files open and gets none of the signals meant for our process group.
fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script, "watchdog"]).current_dir("/").process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn append<'a>(shell: &'a mut Command, job: &Command) -> &'a mut Command {
    shell.arg(job.get_program()).args(job.get_args())
}
