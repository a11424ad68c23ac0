//! Throw-away PostgreSQL servers.
//!
//! ```no_run
//! use hapax_testkit::postgres::Server;
//!
//! let database = Server::shared().fresh_database(); // for most tests
//! let mut server = Server::builder().with_password("secret").start(); // to be stopped, killed or configured
//! # let _ = (database.url(), &mut server);
//! ```
//!
//! Each server has a temporary directory, a free port on the loopback interface, and small settings, but real durability:
//! `fsync` and `synchronous_commit` are on unless a test says otherwise. It is gone when its value is dropped or the test
//! process ends in any way. A shared server lives as long as the test process, or, under cargo-nextest, which starts a process
//! per test, as long as the test run.
//!
//! Failures panic: this is test support. What is stored in the databases is the tests' business.

mod binaries;
mod cluster;
mod shared;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::OnceLock;

use crate::watchdog::Watchdog;
use crate::{skip, tokens};
use cluster::{Cluster, SUPERUSER};

/// Returns from the test, saying so, where servers are left out; fails it where PostgreSQL is missing.
#[macro_export]
macro_rules! needs_postgres {
    () => {
        if !$crate::postgres::required() {
            return;
        }
    };
}

/// True where tests run that need PostgreSQL; false, with a line `NOT TESTED: …`, under `HAPAX_SKIP_SERVERS=1`.
///
/// # Panics
///
/// When the tests shall run and PostgreSQL is missing.
#[track_caller]
pub fn required() -> bool {
    let wanted = skip::wanted("PostgreSQL");
    if wanted {
        binaries::directory();
    }
    wanted
}

/// How a server is to be set up.
#[derive(Debug, Default, Clone)]
pub struct Builder {
    settings: Vec<(String, String)>,
    password: Option<String>,
    tls: Option<(String, String)>,
}

impl Builder {
    /// A line for `postgresql.conf`. A later one wins over an earlier one and over the defaults.
    #[must_use]
    pub fn with_setting(mut self, name: &str, value: &str) -> Builder {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Asks every connection for this password (SCRAM-SHA-256). Otherwise everybody is trusted.
    #[must_use]
    pub fn with_password(mut self, password: &str) -> Builder {
        self.password = Some(password.to_owned());
        self
    }

    /// Offers TLS with this certificate and its key, both PEM. Who connects without is let in as well.
    #[must_use]
    pub fn with_tls(mut self, certificate: &str, key: &str) -> Builder {
        self.tls = Some((certificate.to_owned(), key.to_owned()));
        self
    }

    /// Creates the server and waits until it answers.
    ///
    /// # Panics
    ///
    /// When PostgreSQL is missing or does not start; the message holds the server's log.
    pub fn start(self) -> Server {
        let cluster = Cluster::in_new_directory(self.password);
        let watchdog = Watchdog::stopping(&cluster.stop_command("immediate"), cluster.directory());
        let mut server = Server { cluster, keeper: Keeper::Owner(watchdog) };
        server.cluster.create(&self.settings, self.tls.as_ref());
        server
    }
}

/// A running server, or one that the test has stopped.
#[derive(Debug)]
pub struct Server {
    cluster: Cluster,
    #[expect(dead_code, reason = "held for its drop: the server lives as long as this")]
    keeper: Keeper,
}

/// What keeps a server alive.
#[derive(Debug)]
#[expect(dead_code, reason = "held for their drop")]
enum Keeper {
    /// Ours alone: it ends with us.
    Owner(Watchdog),
    /// Shared by a test run: a lock that says we use it.
    Holder(std::fs::File),
}

impl Server {
    /// The server that all tests of this process, or of this nextest run, use together. Use a database of your own in it.
    ///
    /// It cannot be stopped: the methods that do so want `&mut`.
    pub fn shared() -> &'static Server {
        static SHARED: OnceLock<Server> = OnceLock::new();
        SHARED.get_or_init(|| match std::env::var("NEXTEST_RUN_ID") {
            Ok(run) => shared::join(&run),
            Err(_) => Builder::default().start(),
        })
    }

    /// Set up a server of one's own.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// A new empty database, with a name that no other test uses. It goes with its server.
    pub fn fresh_database(&self) -> Database {
        let name = tokens::name("test");
        self.maintenance().run(&format!("CREATE DATABASE {name}"));
        Database { name, ..self.maintenance() }
    }

    /// The database `postgres`, which every server has.
    pub fn maintenance(&self) -> Database {
        Database {
            address: self.address(),
            name: "postgres".to_owned(),
            password: self.cluster.password().map(str::to_owned),
            psql: self.cluster.program("psql"),
        }
    }

    /// Where it listens. Stays the same when the server is stopped and started.
    pub fn address(&self) -> SocketAddr {
        self.cluster.address()
    }

    /// A URL of the database `postgres` for any user and password, right or wrong. Without
    /// [`with_password`](Builder::with_password) the server believes every password.
    pub fn dsn(&self, user: &str, password: &str) -> String {
        url(user, Some(password), self.address(), "postgres")
    }

    /// What the server has logged.
    pub fn log(&self) -> String {
        self.cluster.log()
    }

    /// Stops it in an orderly way; open connections are closed, their transactions rolled back.
    pub fn stop(&mut self) {
        self.cluster.stop();
    }

    /// Starts it after [`stop`](Self::stop) or [`kill_9`](Self::kill_9) and waits until it answers.
    pub fn start(&mut self) {
        self.cluster.start();
    }

    /// Stops and starts it.
    pub fn restart(&mut self) {
        self.stop();
        self.start();
    }

    /// Sends SIGKILL to the server and all its processes at one moment, and waits until they are gone. What it had not
    /// written to its files is lost, as in a crash.
    pub fn kill_9(&mut self) {
        self.cluster.kill_9();
    }

    /// Stops all its processes (SIGSTOP) until the guard is dropped: connections are accepted by the system, and nothing is
    /// ever answered, not even a login.
    pub fn freeze(&self) -> Frozen<'_> {
        self.cluster.signal("-STOP");
        Frozen { cluster: &self.cluster }
    }

    /// Makes a [`standby`](Self::standby) the primary, and waits until it takes writes.
    pub fn promote(&self) {
        self.cluster.promote();
    }

    /// A second server that follows this one and answers reads only.
    pub fn standby(&self) -> Server {
        let cluster = Cluster::in_new_directory(self.cluster.password().map(str::to_owned));
        let watchdog = Watchdog::stopping(&cluster.stop_command("immediate"), cluster.directory());
        let mut standby = Server { cluster, keeper: Keeper::Owner(watchdog) };
        standby.cluster.copy_from(&self.cluster);
        standby
    }
}

/// A server that answers nothing as long as this lives.
#[derive(Debug)]
#[must_use = "the server goes on when this is dropped"]
pub struct Frozen<'a> {
    cluster: &'a Cluster,
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        self.cluster.signal("-CONT");
    }
}

/// A database of a server, and how to reach it.
#[derive(Debug, Clone)]
pub struct Database {
    address: SocketAddr,
    name: String,
    password: Option<String>,
    psql: PathBuf,
}

impl Database {
    /// The URL for drivers: `postgres://postgres@127.0.0.1:15432/test_…`.
    pub fn url(&self) -> String {
        self.url_via(self.address)
    }

    /// The URL by way of a proxy or pooler at `address`.
    pub fn url_via(&self, address: SocketAddr) -> String {
        url(SUPERUSER, self.password.as_deref(), address, &self.name)
    }

    /// Where its server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The superuser's password, where the server asks for one.
    pub fn password(&self) -> Option<&str> {
        self.password.as_deref()
    }

    /// Runs SQL over a connection of its own and returns the rows: a line each, columns separated by `|`.
    ///
    /// # Panics
    ///
    /// When the server cannot be reached or refuses, with its words.
    #[track_caller]
    pub fn run(&self, sql: &str) -> String {
        let mut psql = cluster::client(&self.psql);
        // `-X`: no start-up file. `-A -t`: rows without borders and titles.
        psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", &self.url(), "-c", sql]);
        crate::command::output(&mut psql).trim_end().to_owned()
    }
}

fn url(user: &str, password: Option<&str>, address: SocketAddr, database: &str) -> String {
    let password = password.map(|word| format!(":{}", percent_encoded(word))).unwrap_or_default();
    format!("postgres://{}{password}@{address}/{database}", percent_encoded(user))
}

fn percent_encoded(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' => char::from(byte).to_string(),
            other => format!("%{other:02X}"),
        })
        .collect()
}
