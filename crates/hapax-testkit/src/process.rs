//! A process in the background: its output is kept, and it ends with us, however we end.
//!
//! [`Child`](crate::child::Child) is for a process that a test talks to line by line. This one is for a server: nobody
//! reads its output while it runs, but everybody wants to see it when something went wrong. A small shell kills it
//! when this process is gone, even after SIGKILL.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::{command, wait};

/// Waits for the end of its input, which is our end, and kills the process.
const KILL_AT_END_OF_INPUT: &str = r#"cat >/dev/null; kill -9 "$1""#;

/// What a process has written is read by then after its end.
const OUTPUT_END_MAX: Duration = Duration::from_secs(2);

/// A running process, or one that has ended. It is killed when this value is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    keeper: Child,
    status: Option<ExitStatus>,
    out: Output,
    err: Output,
}

impl Process {
    /// Starts the command, with no input and its output kept.
    ///
    /// # Panics
    ///
    /// When it cannot be started.
    #[track_caller]
    pub fn spawn(command: &mut Command) -> Process {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let keeper = keeper_of(child.id());
        let out = Output::collect(child.stdout.take().expect("the output is a pipe"));
        let err = Output::collect(child.stderr.take().expect("the errors are a pipe"));
        Process { child, keeper, status: None, out, err }
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it has written to its standard output so far.
    pub fn stdout(&self) -> String {
        self.out.text()
    }

    /// What it has written to its standard error so far.
    pub fn stderr(&self) -> String {
        self.err.text()
    }

    /// The memory it has in use (`VmRSS`); `None` where it has ended.
    pub fn rss_bytes(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
    }

    /// Waits until one of its outputs has a line that contains `text`, and returns that line.
    ///
    /// # Panics
    ///
    /// When none comes within `limit`; the message holds the output.
    #[track_caller]
    pub fn line_with(&self, text: &str, limit: Duration) -> String {
        let mut found = None;
        wait::until(&format!("a line with {text:?} in the output of process {}", self.id()), limit, || {
            found = self.out.line_with(text).or_else(|| self.err.line_with(text));
            found.is_some()
        });
        found.expect("the wait ended with it")
    }

    /// How it ended; `None` while it runs.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            self.status = self.child.try_wait().expect("it is our child");
        }
        self.status
    }

    /// Sends a signal, such as `TERM`. A process that has just ended is no error.
    pub fn signal(&mut self, name: &str) {
        if self.ended().is_none() {
            let mut kill = Command::new("sh");
            kill.args(["-c", r#"kill "-$1" "$2""#, "kill", name, &self.id().to_string()]);
            let _ = command::try_output(&mut kill);
        }
    }

    /// Waits for its end and returns its exit status, with all of its output collected.
    ///
    /// # Panics
    ///
    /// When it still runs after `limit`.
    #[track_caller]
    pub fn wait(&mut self, limit: Duration) -> ExitStatus {
        wait::until(&format!("the end of process {}", self.id()), limit, || self.ended().is_some());
        self.out.finish();
        self.err.finish();
        self.status.expect("the wait ended with it")
    }

    /// Sends SIGKILL and waits until it is gone. Nothing of it runs afterwards.
    pub fn kill_9(&mut self) {
        if self.ended().is_none() {
            // An error means that it has ended already.
            let _ = self.child.kill();
            self.status = self.child.wait().ok();
        }
        self.out.finish();
        self.err.finish();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The keeper first: afterwards the number may belong to somebody else.
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
        self.kill_9();
    }
}

/// In a process group of its own: a signal for ours must not end it before us.
fn keeper_of(process: u32) -> Child {
    let mut shell = Command::new("sh");
    shell.args(["-c", KILL_AT_END_OF_INPUT, "keeper", &process.to_string()]).current_dir("/").process_group(0);
    shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    shell.spawn().expect("a shell can be started")
}

/// What a process has written to one of its outputs.
#[derive(Debug)]
struct Output {
    lines: Arc<Mutex<Vec<String>>>,
    reader: Option<JoinHandle<()>>,
}

impl Output {
    fn collect(from: impl Read + Send + 'static) -> Output {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let into = Arc::clone(&lines);
        let reader = std::thread::spawn(move || {
            let mut from = BufReader::new(from);
            let mut line = Vec::new();
            while let Ok(1..) = from.read_until(b'\n', &mut line) {
                let text = String::from_utf8_lossy(&line).trim_end_matches('\n').to_owned();
                into.lock().expect("nobody panics while holding it").push(text);
                line.clear();
            }
        });
        Output { lines, reader: Some(reader) }
    }

    fn text(&self) -> String {
        self.lines.lock().expect("nobody panics while holding it").join("\n")
    }

    fn line_with(&self, text: &str) -> Option<String> {
        self.lines.lock().expect("nobody panics while holding it").iter().find(|line| line.contains(text)).cloned()
    }

    /// Waits for the rest of it, but not for a grandchild that keeps the output open.
    fn finish(&mut self) {
        if let Some(reader) = self.reader.take() {
            let _ = wait::holds_within(OUTPUT_END_MAX, || reader.is_finished());
        }
    }
}
