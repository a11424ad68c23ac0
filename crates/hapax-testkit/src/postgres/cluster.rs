//! A PostgreSQL data directory and the programs that act on it.
//!
//! It knows how to create, start, stop and kill; who may do so, and when it goes away, is decided by its callers.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::binaries;
use crate::{command, port, wait};

/// The user that `initdb` creates.
pub(super) const SUPERUSER: &str = "postgres";

/// Other processes look for free ports too; losing this often means something else is wrong.
const START_ATTEMPTS_MAX: usize = 5;
/// Longer than recovery from a crash takes on a slow disk.
const START_SECONDS_MAX: &str = "120";
/// Processes that were sent SIGKILL are gone after this, unless the disk hangs.
const KILL_TIME_MAX: Duration = Duration::from_secs(30);

/// Small and quick to start. Nothing here weakens durability. Dynamic shared memory is kept in the data directory, so
/// that a killed server leaves nothing elsewhere.
const SETTINGS: &[(&str, &str)] = &[
    ("listen_addresses", "127.0.0.1"),
    ("max_connections", "300"),
    ("shared_buffers", "64MB"),
    ("dynamic_shared_memory_type", "mmap"),
    ("jit", "off"),
    ("fsync", "on"),
    ("full_page_writes", "on"),
    ("synchronous_commit", "on"),
];

/// Would lead the programs to another server.
const FOREIGN_ENVIRONMENT: [&str; 10] = [
    "PGHOST",
    "PGHOSTADDR",
    "PGPORT",
    "PGUSER",
    "PGPASSWORD",
    "PGDATABASE",
    "PGSERVICE",
    "PGOPTIONS",
    "PGSSLMODE",
    "PGDATA",
];

#[derive(Debug)]
pub(super) struct Cluster {
    directory: PathBuf,
    port: u16,
    password: Option<String>,
}

impl Cluster {
    /// A cluster that does not exist yet, in a directory that does.
    pub(super) fn in_new_directory(password: Option<String>) -> Cluster {
        binaries::directory();
        Cluster { directory: command::server_dir("hapax-pg"), port: 0, password }
    }

    /// A cluster that another process runs.
    pub(super) fn existing(directory: PathBuf, port: u16) -> Cluster {
        Cluster { directory, port, password: None }
    }

    /// Initialises the cluster and starts it.
    pub(super) fn create(&mut self, settings: &[(String, String)], tls: Option<&(String, String)>) {
        let mut initdb = self.server_program("initdb");
        initdb.arg("-D").arg(self.data());
        initdb.args(["-U", SUPERUSER, "--encoding=UTF8", "--no-locale", "--no-sync"]);
        if let Some(password) = &self.password {
            let file = self.directory.join("password");
            write_private(&file, password);
            initdb.arg("--auth=scram-sha-256").arg("--pwfile").arg(file);
        } else {
            initdb.arg("--auth=trust");
        }
        command::output(&mut initdb);
        self.configure(SETTINGS.iter().copied());
        if let Some((certificate, key)) = tls {
            let (certificate, key) = (self.keep("server.crt", certificate), self.keep("server.key", key));
            self.configure([("ssl", "on"), ("ssl_cert_file", &certificate), ("ssl_key_file", &key)]);
        }
        self.configure(settings.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        self.start_on_free_port();
    }

    /// Becomes a running hot standby of `primary`.
    pub(super) fn copy_from(&mut self, primary: &Cluster) {
        let mut copy = self.server_program("pg_basebackup");
        copy.arg("-D").arg(self.data());
        copy.args(["-h", "127.0.0.1", "-p", &primary.port.to_string(), "-U", SUPERUSER]);
        // `-R` makes the copy a standby of what it was copied from.
        copy.args(["-R", "-X", "stream", "-c", "fast", "--no-sync"]);
        copy.env("PGPASSWORD", primary.password.as_deref().unwrap_or_default());
        command::output(&mut copy);
        self.start_on_free_port();
    }

    pub(super) fn start(&mut self) {
        if let Err(reason) = self.try_start() {
            panic!("{reason}\n{}", self.log());
        }
    }

    pub(super) fn stop(&mut self) {
        command::output(&mut self.stop_command("fast"));
    }

    /// The command that stops it, for a watchdog to keep. Modes: `fast` is orderly, `immediate` leaves recovery to the start.
    pub(super) fn stop_command(&self, mode: &str) -> Command {
        let mut stop = self.server_program("pg_ctl");
        stop.args(["stop", "-w", "-m", mode, "-D"]).arg(self.data());
        stop
    }

    /// Kills all processes of the server. The first one is halted before the others are listed, so that it cannot
    /// start more meanwhile.
    pub(super) fn kill_9(&mut self) {
        let file = self.data().join("postmaster.pid");
        let text = std::fs::read_to_string(&file).expect("the server is running");
        let lines: Vec<&str> = text.lines().collect();
        let postmaster: u32 = lines[0].parse().expect("the first line is the process id");
        send("-STOP", &[postmaster]);
        let mut processes = children_of(postmaster);
        processes.push(postmaster);
        send("-KILL", &processes);
        wait::until("the end of the killed server", KILL_TIME_MAX, || !processes.iter().any(|id| is_alive(*id)));
        // What a power cut would leave meaningless: the System V segment, whose id is the last word of line 7, and the
        // process id, which looks taken until the system's first process has asked how it ended.
        if let Some(segment) = lines.get(6).and_then(|line| line.split_whitespace().last()) {
            let _ = command::try_output(Command::new("ipcrm").args(["-m", segment]));
        }
        for lock in [file, self.directory.join(format!(".s.PGSQL.{}.lock", self.port))] {
            std::fs::remove_file(lock).expect("the server's directory is writable");
        }
    }

    /// Makes a standby the primary, and waits until it is.
    pub(super) fn promote(&self) {
        let mut promote = self.server_program("pg_ctl");
        promote.args(["promote", "-w", "-t", START_SECONDS_MAX, "-D"]).arg(self.data());
        command::output(&mut promote);
    }

    /// Sends a signal to all processes of the server, the first one before the others are listed.
    pub(super) fn signal(&self, signal: &str) {
        let text = std::fs::read_to_string(self.data().join("postmaster.pid")).expect("the server is running");
        let postmaster: u32 =
            text.lines().next().and_then(|line| line.parse().ok()).expect("the first line is the process id");
        send(signal, &[postmaster]);
        let others = children_of(postmaster);
        if !others.is_empty() {
            send(signal, &others);
        }
    }

    pub(super) fn address(&self) -> SocketAddr {
        port::loopback(self.port)
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(super) fn password(&self) -> Option<&str> {
        self.password.as_deref()
    }

    pub(super) fn log(&self) -> String {
        std::fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    pub(super) fn program(&self, name: &str) -> PathBuf {
        binaries::directory().join(name)
    }

    fn start_on_free_port(&mut self) {
        let mut reason = String::new();
        for _ in 0..START_ATTEMPTS_MAX {
            self.port = port::free();
            let socket_directory =
                self.directory.to_str().expect("the temporary directory has a plain name").to_owned();
            let own_port = self.port.to_string();
            self.configure([("port", own_port.as_str()), ("unix_socket_directories", &socket_directory)]);
            match self.try_start() {
                Ok(_) => return,
                Err(failure) => reason = failure,
            }
        }
        panic!("{reason}\n{}", self.log());
    }

    fn try_start(&self) -> Result<String, String> {
        let mut start = self.server_program("pg_ctl");
        start.args(["start", "-w", "-t", START_SECONDS_MAX, "-D"]).arg(self.data());
        start.arg("-l").arg(self.directory.join("log"));
        command::try_output(&mut start)
    }

    /// Adds lines to the end of `postgresql.conf`, where the last one wins.
    fn configure<'a>(&self, settings: impl IntoIterator<Item = (&'a str, &'a str)>) {
        let path = self.data().join("postgresql.conf");
        let mut text = std::fs::read_to_string(&path).expect("the configuration is readable");
        for (name, value) in settings {
            writeln!(text, "{name} = '{}'", value.replace('\'', "''")).expect("writing to a string does not fail");
        }
        // Written in place: the file stays the server user's.
        std::fs::write(&path, text).expect("the configuration is writable");
    }

    /// Writes a file that is the server user's alone, and returns its name.
    fn keep(&self, name: &str, text: &str) -> String {
        let path = self.directory.join(name);
        write_private(&path, text);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("the file is ours");
        let owner = self.directory.metadata().expect("the directory is there");
        std::os::unix::fs::chown(&path, Some(owner.uid()), Some(owner.gid())).expect("we are its owner, or root");
        path.to_str().expect("the temporary directory has a plain name").to_owned()
    }

    fn data(&self) -> PathBuf {
        self.directory.join("data")
    }

    fn server_program(&self, name: &str) -> Command {
        without_foreign_environment(command::as_server_user(self.program(name)))
    }
}

/// A client program that talks to the server it is told to, in English.
pub(super) fn client(program: &Path) -> Command {
    without_foreign_environment(Command::new(program))
}

fn without_foreign_environment(mut command: Command) -> Command {
    for name in FOREIGN_ENVIRONMENT {
        command.env_remove(name);
    }
    command.env("LC_ALL", "C");
    command
}

/// Readable by the server user, inside a directory that only it can enter.
fn write_private(path: &Path, text: &str) {
    std::fs::write(path, text).expect("the server's directory is writable");
}

/// Sends a signal. A process that has just ended is no error.
fn send(signal: &str, processes: &[u32]) {
    let mut kill = Command::new("sh");
    kill.args(["-c", "kill \"$@\"", "kill", signal]).args(processes.iter().map(u32::to_string));
    let _ = command::try_output(&mut kill);
}

fn children_of(parent: u32) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").expect("/proc is mounted").filter_map(Result::ok);
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter(|id| status(*id).is_some_and(|(_, parent_id)| parent_id == parent)).collect()
}

fn is_alive(id: u32) -> bool {
    status(id).is_some_and(|(state, _)| state != "Z" && state != "X")
}

/// State and parent, from `/proc/<id>/stat`: `id (name) state parent …`. The name may hold spaces and parentheses.
fn status(id: u32) -> Option<(String, u32)> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut words = rest.split(' ');
    Some((words.next()?.to_owned(), words.next()?.parse().ok()?))
}
