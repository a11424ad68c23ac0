//! Processes that a test starts, talks to and kills.
//!
//! For two-process tests the current test binary is run again with a role:
//!
//! ```no_run
//! use hapax_testkit::child::{self, Child};
//! use std::time::Duration;
//!
//! // This is a #[test].
//! fn a_killed_writer_loses_nothing() {
//!     if let Some(role) = child::role() {
//!         child::say(&format!("{role} is ready"));
//!         child::hear();
//!         return;
//!     }
//!     let mut writer = Child::spawn(&mut child::rerun("a_killed_writer_loses_nothing", "writer"));
//!     assert_eq!(writer.said(Duration::from_secs(10)).as_deref(), Some("writer is ready"));
//!     writer.kill_9();
//! }
//! ```
//!
//! A role learns of databases and files from its environment (`Command::env`); it must not start servers of its own.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use crate::wait;

/// Says which part of a two-process test this process plays.
const ROLE: &str = "HAPAX_TEST_ROLE";
/// Sets what a role says apart from what the test harness prints around it.
const SAID: &str = "<said> ";

/// The role this process was started for by [`rerun`]; `None` in the test itself.
pub fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// Says a line to the test that started this role; it receives it with [`Child::said`].
pub fn say(line: &str) {
    // The harness may have begun a line without ending it.
    println!("\n{SAID}{line}");
    std::io::stdout().flush().expect("the test is listening");
}

/// Waits for a line from the test that started this role; `None` when the test has gone.
pub fn hear() -> Option<String> {
    let mut line = String::new();
    let length = std::io::stdin().read_line(&mut line).expect("standard input is readable");
    (length > 0).then(|| line.trim_end().to_owned())
}

/// A command that runs one test of the current test binary again, in a role. `test` is its full name, modules included.
pub fn rerun(test: &str, role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this process has an executable"));
    command.args([test, "--exact", "--nocapture"]).env(ROLE, role);
    command
}

/// A process that is killed when this value is dropped.
#[derive(Debug)]
pub struct Child {
    process: std::process::Child,
    lines: Receiver<String>,
}

impl Child {
    /// Starts the command with its standard input and output connected to us.
    pub fn spawn(command: &mut Command) -> Child {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let output = process.stdout.take().expect("the output is a pipe");
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            // Ends with the output, or when nobody listens any more.
            let _ = BufReader::new(output).lines().map_while(Result::ok).try_for_each(|line| sender.send(line));
        });
        Child { process, lines }
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// The next line of its output, without its end; `None` after the last.
    ///
    /// # Panics
    ///
    /// When none comes within `limit`.
    #[track_caller]
    pub fn line(&mut self, limit: Duration) -> Option<String> {
        match self.lines.recv_timeout(limit) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("process {} printed nothing for {limit:?}", self.id()),
        }
    }

    /// The next line that the role said with [`say`]; `None` after the last. `limit` counts from line to line.
    ///
    /// # Panics
    ///
    /// When no line comes within `limit`.
    #[track_caller]
    pub fn said(&mut self, limit: Duration) -> Option<String> {
        while let Some(line) = self.line(limit) {
            if let Some(said) = line.strip_prefix(SAID) {
                return Some(said.to_owned());
            }
        }
        None
    }

    /// Sends a line to its standard input; a role receives it with [`hear`].
    pub fn tell(&mut self, line: &str) {
        let input = self.process.stdin.as_mut().expect("the input is a pipe");
        writeln!(input, "{line}").and_then(|()| input.flush()).expect("the process is listening");
    }

    /// Waits for its end.
    ///
    /// # Panics
    ///
    /// When it still runs after `limit`.
    #[track_caller]
    pub fn wait(&mut self, limit: Duration) -> ExitStatus {
        let mut status = None;
        wait::until("the end of the process", limit, || {
            status = self.process.try_wait().expect("it is our child");
            status.is_some()
        });
        status.expect("the wait ended with it")
    }

    /// Sends SIGKILL and waits until it is gone. Nothing of it runs afterwards.
    pub fn kill_9(&mut self) {
        // An error means that it has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill_9();
    }
}
