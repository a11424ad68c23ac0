//! The binary `hapax` as a process that a test starts, kills, and starts again on the same store.
//!
//! ```no_run
//! use hapax_testkit::hapax::Hapax;
//! use hapax_testkit::ledger::Ledger;
//! use hapax_testkit::raw_http::request;
//!
//! let ledger = Ledger::start();
//! let mut hapax = Hapax::builder("target/debug/hapax").with_upstream(&ledger.url()).start();
//! let charge = request("POST", "/charges").header("Authorization", "Bearer a").header("Idempotency-Key", "k").body("1");
//! let first = charge.send(hapax.address());
//! hapax.kill_9();
//! hapax.restart();
//! assert_eq!(charge.send(hapax.address()).body, first.body);
//! ledger.assert_once("k");
//! ```
//!
//! Unless a test says otherwise, the store is SQLite in a directory of its own, the scope is `credential`, and both
//! listeners are on free ports of the loopback interface, which stay the same over a restart. Failures panic with the
//! output of the process.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;

use crate::process::Process;
use crate::raw_http::{Response, request};
use crate::{port, wait};

/// It is ready within 200 ms; this is for a busy machine.
const START_TIME_MAX: Duration = Duration::from_secs(15);
/// Longer than any drain in the tests.
const STOP_TIME_MAX: Duration = Duration::from_secs(90);
/// Somebody may take a free port before the process does.
const PORT_ATTEMPTS_MAX: usize = 5;

/// How the process is to be started.
#[derive(Debug, Clone)]
pub struct Builder {
    program: PathBuf,
    upstream: Option<String>,
    store: Option<String>,
    scope: Option<String>,
    flags: Vec<String>,
    config: Option<String>,
    env: Vec<(String, String)>,
    port: Option<u16>,
}

impl Builder {
    /// `--to`.
    #[must_use]
    pub fn with_upstream(mut self, url: &str) -> Builder {
        self.upstream = Some(url.to_owned());
        self
    }

    /// `--store`; an empty text leaves the flag out. Otherwise it is SQLite in a directory of the process's own.
    #[must_use]
    pub fn with_store(mut self, url: &str) -> Builder {
        self.store = Some(url.to_owned());
        self
    }

    /// `--scope`; an empty text leaves the flag out. Otherwise it is `credential`.
    #[must_use]
    pub fn with_scope(mut self, scope: &str) -> Builder {
        self.scope = Some(scope.to_owned());
        self
    }

    /// One more argument, such as `--observe`.
    #[must_use]
    pub fn with_arg(mut self, arg: &str) -> Builder {
        self.flags.push(arg.to_owned());
        self
    }

    /// A flag and its value.
    #[must_use]
    pub fn with_flag(self, name: &str, value: &str) -> Builder {
        self.with_arg(name).with_arg(value)
    }

    /// `--config`, with this text in a file of the process's own directory.
    #[must_use]
    pub fn with_config(mut self, text: &str) -> Builder {
        self.config = Some(text.to_owned());
        self
    }

    /// A variable of its environment.
    #[must_use]
    pub fn with_env(mut self, name: &str, value: &str) -> Builder {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The port to listen on, where a test must know it before the start.
    #[must_use]
    pub fn with_port(mut self, port: u16) -> Builder {
        self.port = Some(port);
        self
    }

    /// Starts it and waits until it is ready.
    ///
    /// # Panics
    ///
    /// When it does not become ready; the message holds its output.
    #[track_caller]
    pub fn start(self) -> Hapax {
        let dir = Arc::new(tempfile::tempdir().expect("a temporary directory"));
        for _ in 1..PORT_ATTEMPTS_MAX {
            let mut hapax = self.spawn(&dir);
            if hapax.becomes_ready() {
                return hapax;
            }
            let said = hapax.stdout() + &hapax.stderr();
            if !said.contains("in use") {
                hapax.give_up();
            }
        }
        let mut hapax = self.spawn(&dir);
        hapax.wait_until_ready();
        hapax
    }

    /// Starts it and waits for nothing: it may never become ready.
    pub fn start_unready(self) -> Hapax {
        self.spawn(&Arc::new(tempfile::tempdir().expect("a temporary directory")))
    }

    /// Starts it where it is expected to refuse, and returns how it ended: exit code, standard output, standard error.
    ///
    /// # Panics
    ///
    /// When it goes on running.
    #[track_caller]
    pub fn start_refused(self) -> (Option<i32>, String, String) {
        let dir = Arc::new(tempfile::tempdir().expect("a temporary directory"));
        let mut hapax = self.spawn(&dir);
        let status = hapax.process.wait(START_TIME_MAX);
        (status.code(), hapax.stdout(), hapax.stderr())
    }

    fn spawn(&self, dir: &Arc<TempDir>) -> Hapax {
        let address = port::loopback(self.port.unwrap_or_else(port::free));
        let admin = port::loopback(port::free());
        let process = Process::spawn(&mut self.command(dir.path(), address, admin));
        Hapax { address, admin, builder: self.clone(), process, dir: Arc::clone(dir) }
    }

    fn command(&self, dir: &Path, address: SocketAddr, admin: SocketAddr) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("proxy").args(["--from", &address.to_string(), "--admin", &admin.to_string()]);
        let store = self.store.clone().unwrap_or_else(|| format!("sqlite:{}", dir.join("hapax.db").display()));
        let scope = self.scope.clone().unwrap_or_else(|| "credential".to_owned());
        let upstream = self.upstream.clone().unwrap_or_default();
        for (flag, value) in [("--to", upstream), ("--store", store), ("--scope", scope)] {
            if !value.is_empty() {
                command.args([flag, &value]);
            }
        }
        if let Some(text) = &self.config {
            let file = dir.join("hapax.toml");
            std::fs::write(&file, text).expect("the directory is writable");
            command.arg("--config").arg(file);
        }
        command.args(&self.flags);
        // A variable of the developer's shell must not change what is tested.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("HAPAX_") {
                command.env_remove(name);
            }
        }
        command.env_remove("FAILPOINT").env_remove("FAILPOINT_DELAY").env_remove("FAILPOINT_RESUME");
        command.envs(self.env.iter().map(|(name, value)| (name, value))).current_dir(dir);
        command
    }
}

/// The process, running or ended. It is killed when this value is dropped or this process ends in any way.
#[derive(Debug)]
pub struct Hapax {
    address: SocketAddr,
    admin: SocketAddr,
    builder: Builder,
    process: Process,
    /// Last, so that the process has ended when it is removed.
    dir: Arc<TempDir>,
}

impl Hapax {
    /// Set one up. The program is `env!("CARGO_BIN_EXE_hapax")` in the tests of hapax-server.
    pub fn builder(program: impl Into<PathBuf>) -> Builder {
        Builder {
            program: program.into(),
            upstream: None,
            store: None,
            scope: None,
            flags: Vec::new(),
            config: None,
            env: Vec::new(),
            port: None,
        }
    }

    /// Where clients connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL for clients.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Where the admin listener is.
    pub fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// The directory of the store, the configuration file, and nothing else.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// What it has written to its standard output since it was last started.
    pub fn stdout(&self) -> String {
        self.process.stdout()
    }

    /// What it has written to its standard error since it was last started.
    pub fn stderr(&self) -> String {
        self.process.stderr()
    }

    /// Waits for a line with this text in its output, and returns it.
    ///
    /// # Panics
    ///
    /// When none comes.
    #[track_caller]
    pub fn line_with(&self, text: &str) -> String {
        self.process.line_with(text, START_TIME_MAX)
    }

    /// Asks the admin listener.
    ///
    /// # Panics
    ///
    /// When it does not answer.
    #[track_caller]
    pub fn ask_admin(&self, target: &str) -> Response {
        request("GET", target).send(self.admin)
    }

    /// The value of a metric, its labels spelled as `/metrics` does: `hapax_claims_total{outcome="created"}`. Zero where there
    /// is none yet.
    ///
    /// # Panics
    ///
    /// When the admin listener does not answer.
    #[track_caller]
    pub fn metric(&self, name: &str) -> f64 {
        let text = self.ask_admin("/metrics").text();
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok());
        value.unwrap_or(0.0)
    }

    /// The memory it has in use, in bytes.
    ///
    /// # Panics
    ///
    /// When it does not run.
    #[track_caller]
    pub fn rss_bytes(&self) -> u64 {
        self.process.rss_bytes().expect("it runs")
    }

    /// Sends SIGKILL and waits until it is gone.
    pub fn kill_9(&mut self) {
        self.process.kill_9();
    }

    /// Sends SIGTERM, waits for its end, and returns its exit code; `None` where a signal ended it.
    ///
    /// # Panics
    ///
    /// When it goes on running.
    #[track_caller]
    pub fn terminate(&mut self) -> Option<i32> {
        self.signal("TERM");
        self.wait()
    }

    /// Waits for its end and returns its exit code; `None` where a signal ended it.
    ///
    /// # Panics
    ///
    /// When it goes on running.
    #[track_caller]
    pub fn wait(&mut self) -> Option<i32> {
        self.process.wait(STOP_TIME_MAX).code()
    }

    /// Sends SIGHUP: read the configuration again. It takes effect a moment later; wait for what it says.
    pub fn hup(&mut self) {
        self.signal("HUP");
    }

    /// Sends a signal, such as `STOP` or `CONT`.
    pub fn signal(&mut self, name: &str) {
        self.process.signal(name);
    }

    /// Writes its configuration file anew, for [`hup`](Self::hup) or [`restart`](Self::restart).
    pub fn write_config(&mut self, text: &str) {
        std::fs::write(self.dir.path().join("hapax.toml"), text).expect("the directory is writable");
        self.builder.config = Some(text.to_owned());
    }

    /// Sets or removes a variable of its environment, for [`restart`](Self::restart).
    pub fn set_env(&mut self, name: &str, value: Option<&str>) {
        self.builder.env.retain(|(own, _)| own != name);
        self.builder.env.extend(value.map(|value| (name.to_owned(), value.to_owned())));
    }

    /// Starts it again, killing it first where it runs: same store, same addresses, same flags.
    ///
    /// # Panics
    ///
    /// When it does not become ready; the message holds its output.
    #[track_caller]
    pub fn restart(&mut self) {
        self.kill_9();
        self.process = Process::spawn(&mut self.builder.command(self.dir.path(), self.address, self.admin));
        self.wait_until_ready();
    }

    /// Waits until `/readyz` says yes.
    ///
    /// # Panics
    ///
    /// When it does not.
    #[track_caller]
    pub fn wait_until_ready(&mut self) {
        if !self.becomes_ready() {
            self.give_up();
        }
    }

    /// True when it is ready; false when it has ended or takes too long.
    fn becomes_ready(&mut self) -> bool {
        let mut ready = false;
        wait::holds_within(START_TIME_MAX, || {
            ready = request("GET", "/readyz").try_send(self.admin).is_ok_and(|answer| answer.status == 200);
            ready || self.process.ended().is_some()
        });
        // Somebody else may answer at the address where ours could not listen.
        ready && self.process.ended().is_none()
    }

    #[track_caller]
    fn give_up(&mut self) -> ! {
        let answer = request("GET", "/readyz").try_send(self.admin).map(|answer| (answer.status, answer.text()));
        self.kill_9();
        let (ended, stdout, stderr) = (self.process.ended(), self.stdout(), self.stderr());
        panic!("hapax did not become ready: {answer:?}, {ended:?}\n{stdout}\n{stderr}");
    }
}
