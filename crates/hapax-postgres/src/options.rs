//! What can be chosen when a store is opened.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use hapax_core::store::{ErrorKind, StoreError};
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

use crate::encryption::{self, Encryption};

/// More connections would make smaller batches, not more writes.
pub(crate) const CONNECTIONS_MAX: usize = 64;

/// PostgreSQL cuts longer names off.
const SCHEMA_CHARS_MAX: usize = 63;

/// PostgreSQL counts the milliseconds of its timeouts in an `int`.
const TIMEOUT_MAX: Duration = Duration::from_millis(i32::MAX as u64);

/// A connection that is idle this long is checked by the operating system, so that a peer that is gone is noticed.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);

/// How to reach a database, and how to use it. A connection string alone is [`Options::new`] of it.
///
/// ```
/// use hapax_postgres::{Encryption, Options};
///
/// let options = Options::new("postgres://app@db.internal/app").with_schema("idempotency").with_tls_required();
/// assert_eq!(options.encryption()?, Some(Encryption::Always));
/// # Ok::<_, hapax_core::store::StoreError>(())
/// ```
#[derive(Clone)]
pub struct Options {
    dsn: String,
    pub(crate) schema: String,
    pub(crate) connections: usize,
    pub(crate) statement_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) pooler: bool,
    pub(crate) existing: bool,
    pub(crate) standby_required: bool,
    tls_required: bool,
}

impl fmt::Debug for Options {
    /// Shows no password, whatever the connection string looks like.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let target = self.config().map_or_else(|_| "unreadable".to_owned(), |config| target_of(&config));
        f.debug_struct("Options")
            .field("target", &target)
            .field("schema", &self.schema)
            .field("connections", &self.connections)
            .field("statement_timeout", &self.statement_timeout)
            .field("connect_timeout", &self.connect_timeout)
            .field("pooler", &self.pooler)
            .finish()
    }
}

impl Options {
    /// A database by its connection string, `postgres://user:password@host:5432/database` or `host=… user=…`. It is read
    /// when the store is opened. Of several hosts the one that takes writes is used; one that does not answer is passed over after
    /// half a second.
    pub fn new(dsn: impl Into<String>) -> Self {
        Self {
            dsn: dsn.into(),
            schema: "hapax".to_owned(),
            connections: 4,
            statement_timeout: Duration::from_secs(5),
            connect_timeout: Duration::from_secs(5),
            pooler: false,
            existing: false,
            standby_required: false,
            tls_required: false,
        }
    }

    /// The schema that holds hapax's tables. Default `hapax`. It is made if it is not there. Lower-case letters, digits
    /// and underscores, so that it reads the same quoted and unquoted.
    #[must_use]
    pub fn with_schema(mut self, schema: impl Into<String>) -> Self {
        self.schema = schema.into();
        self
    }

    /// Connections for writing, 1 to 64. Default 4. Reads have as many of their own, and rows that somebody's open
    /// transaction holds have [two more](crate::Postgres); all are opened when first needed.
    #[must_use]
    pub fn with_connections(mut self, connections: usize) -> Self {
        self.connections = connections.clamp(1, CONNECTIONS_MAX);
        self
    }

    /// How long an operation may wait for its turn, and then for the server. Default 5 s. At most 24 days, which is what
    /// PostgreSQL can count: more is taken as that.
    #[must_use]
    pub fn with_statement_timeout(mut self, timeout: Duration) -> Self {
        self.statement_timeout = timeout.min(TIMEOUT_MAX);
        self
    }

    /// How long it may take to get a connection, over all hosts, login included. Default 5 s, at most 24 days. A
    /// `connect_timeout` in the connection string limits each host.
    #[must_use]
    pub fn with_connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout.min(TIMEOUT_MAX);
        self
    }

    /// There is a pooler such as PgBouncer in transaction mode before the server: nothing is prepared or set for a
    /// session, because the next transaction may run in another one.
    #[must_use]
    pub fn with_pooler(mut self) -> Self {
        self.pooler = true;
        self
    }

    /// The schema must hold a store already: nothing is made in a database that is named by mistake, and nothing is migrated. A
    /// store of an older release is used as it is, or refused.
    #[must_use]
    pub fn with_existing(mut self) -> Self {
        self.existing = true;
        self
    }

    /// Connections must be encrypted, as with `sslmode=require`, also where the connection string says nothing or
    /// `prefer`. Sockets on this host stay as they are: PostgreSQL speaks no TLS on them.
    #[must_use]
    pub fn with_tls_required(mut self) -> Self {
        self.tls_required = true;
        self
    }

    /// A server whose commits no standby confirms (`synchronous_standby_names`) is refused, on each new connection and by
    /// `health()`, which also closes the connections at rest: what it has acknowledged goes with its disk.
    #[must_use]
    pub fn with_standby_required(mut self) -> Self {
        self.standby_required = true;
        self
    }

    /// Whether connections are to be encrypted. `None` where nothing was said: [`Postgres::open`](crate::Postgres::open) then
    /// does not, and [`Postgres::open_with_tls`](crate::Postgres::open_with_tls) does where the server offers it.
    ///
    /// # Errors
    /// If the connection string has a `sslmode` that is none.
    pub fn encryption(&self) -> Result<Option<Encryption>, StoreError> {
        let asked = encryption::asked_for(&self.dsn)?;
        let raised = self.tls_required && asked != Some(Encryption::Always);
        Ok(if raised && self.driver_config().is_some_and(|config| !is_by_socket(&config)) {
            Some(Encryption::Always)
        } else {
            asked
        })
    }

    /// Whether what is sent can be read on the way: the server is on another host, and connections need not be encrypted.
    /// False where the connection string cannot be read.
    #[must_use]
    pub fn is_exposed(&self) -> bool {
        let must_be_encrypted = matches!(self.encryption(), Err(_) | Ok(Some(Encryption::Always)));
        !must_be_encrypted && self.driver_config().is_some_and(|config| leaves_the_host(&config))
    }

    /// How many hosts the connection string names; 0 where it cannot be read.
    #[must_use]
    pub fn host_count(&self) -> usize {
        self.driver_config().map_or(0, |config| host_count(&config))
    }

    fn driver_config(&self) -> Option<Config> {
        encryption::for_driver(&self.dsn).parse().ok()
    }

    /// The connection string as the driver reads it.
    pub(crate) fn config(&self) -> Result<Config, StoreError> {
        let encryption = self.encryption()?;
        // What the driver says of a string it cannot read may repeat parts of it, so it is not passed on.
        let mut config = self.driver_config().ok_or_else(|| {
            invalid("the connection string cannot be read; write postgres://user:password@host:5432/database")
        })?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(invalid(
                "the connection string names no host; write postgres://user:password@host:5432/database",
            ));
        }
        if encryption == Some(Encryption::Always) {
            config.ssl_mode(SslMode::Require);
        }
        if config.get_application_name().is_none() {
            config.application_name("hapax");
        }
        if !self.dsn.contains("keepalives") {
            config.keepalives_idle(KEEPALIVE_IDLE);
        }
        let (names, addresses, ports) =
            (config.get_hosts().len(), config.get_hostaddrs().len(), config.get_ports().len());
        let hosts = names.max(addresses);
        if (names > 0 && addresses > 0 && names != addresses) || (ports > 1 && ports != hosts) {
            return Err(invalid("the connection string must have as many ports and host addresses as it has hosts"));
        }
        if hosts > 1 && config.get_target_session_attrs() == TargetSessionAttrs::Any {
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        Ok(config)
    }

    /// Refuses a schema name that would have to be quoted.
    pub(crate) fn check_schema(&self) -> Result<(), StoreError> {
        let accepts = |c: char| c.is_ascii_lowercase() || c == '_' || c.is_ascii_digit();
        let name = &self.schema;
        let begins_well = name.starts_with(|c: char| !c.is_ascii_digit());
        if begins_well && name.len() <= SCHEMA_CHARS_MAX && name.chars().all(accepts) && !name.starts_with("pg_") {
            return Ok(());
        }
        Err(invalid(&format!(
            "the schema name {name:?} is not accepted; use up to {SCHEMA_CHARS_MAX} lower-case letters, digits and \
             underscores, not beginning with a digit or pg_"
        )))
    }
}

impl From<&str> for Options {
    fn from(dsn: &str) -> Self {
        Self::new(dsn)
    }
}

impl From<String> for Options {
    fn from(dsn: String) -> Self {
        Self::new(dsn)
    }
}

impl From<&Self> for Options {
    fn from(options: &Self) -> Self {
        options.clone()
    }
}

/// Whether every host is a socket of this one.
fn is_by_socket(config: &Config) -> bool {
    let hosts = config.get_hosts();
    !hosts.is_empty() && hosts.iter().all(|host| !matches!(host, Host::Tcp(_)))
}

/// Whether any of the hosts is certainly or possibly another one than this.
fn leaves_the_host(config: &Config) -> bool {
    let addresses = config.get_hostaddrs();
    if !addresses.is_empty() {
        return addresses.iter().any(|address| !address.to_canonical().is_loopback());
    }
    let is_here = |name: &str| {
        name.eq_ignore_ascii_case("localhost")
            || name.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
    };
    config.get_hosts().iter().any(|host| matches!(host, Host::Tcp(name) if !is_here(name)))
}

/// How many hosts it names.
pub(crate) fn host_count(config: &Config) -> usize {
    config.get_hosts().len().max(config.get_hostaddrs().len())
}

/// Where a configuration leads to: `host:port/database`.
pub(crate) fn target_of(config: &Config) -> String {
    let hosts: Vec<String> = (0..host_count(config)).map(|host| name_of_host(config, host)).collect();
    format!("{}/{}", hosts.join(","), config.get_dbname().or(config.get_user()).unwrap_or_default())
}

/// One of its hosts, for people: `host:port`.
pub(crate) fn name_of_host(config: &Config, host: usize) -> String {
    let port = port_of(config, host);
    match (config.get_hosts().get(host), config.get_hostaddrs().get(host)) {
        (Some(Host::Tcp(name)), _) => format!("{name}:{port}"),
        #[cfg(unix)]
        (Some(Host::Unix(path)), _) => format!("{}:{port}", path.display()),
        (None, address) => format!("{}:{port}", address.map(ToString::to_string).unwrap_or_default()),
    }
}

/// The port of one of its hosts.
pub(crate) fn port_of(config: &Config, host: usize) -> u16 {
    let ports = config.get_ports();
    ports.get(host).or(ports.first()).copied().unwrap_or(5432)
}

fn invalid(message: &str) -> StoreError {
    StoreError::new("open", ErrorKind::Unsuitable, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_password_is_shown_by_any_spelling() {
        for dsn in [
            "postgres://me:hunter2@db/app",
            "host=db user=me password=hunter2 dbname=app",
            "postgres//me:hunter2@db/app",
            "postgres://me:hunter2@db/app?hunter2=1",
            "postgres://me:hunter2",
            "password='hunter2",
        ] {
            let options = Options::new(dsn);
            assert!(!format!("{options:?}").contains("hunter2"), "{options:?}");
            if let Err(error) = options.config() {
                assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
            }
        }
    }

    #[test]
    fn a_target_names_host_port_and_database() {
        let target = |dsn: &str| target_of(&Options::new(dsn).config().unwrap());
        assert_eq!(target("postgres://me:secret@db.example/app"), "db.example:5432/app");
        assert_eq!(target("postgres://me@a:5433,b:5434/app"), "a:5433,b:5434/app");
        assert_eq!(target("hostaddr=10.0.0.7 user=me"), "10.0.0.7:5432/me");
    }

    #[test]
    fn several_hosts_mean_the_one_that_takes_writes() {
        let attrs = |dsn: &str| Options::new(dsn).config().unwrap().get_target_session_attrs();
        assert_eq!(attrs("postgres://me@a,b/app"), TargetSessionAttrs::ReadWrite);
        assert_eq!(attrs("postgres://me@a/app"), TargetSessionAttrs::Any);
    }

    #[test]
    fn tls_can_be_required_beside_the_connection_string_but_not_on_a_socket() {
        let required = |dsn: &str| Options::new(dsn).with_tls_required();
        for dsn in ["postgres://me@db/app", "postgres://me@db/app?sslmode=prefer", "postgres://me@db?sslmode=disable"] {
            assert_eq!(required(dsn).encryption().unwrap(), Some(Encryption::Always), "{dsn}");
            assert_eq!(required(dsn).config().unwrap().get_ssl_mode(), SslMode::Require, "{dsn}");
        }
        let socket = required("postgres://me@%2Frun%2Fpostgresql/app");
        assert_eq!(socket.encryption().unwrap(), None);
        assert_eq!(socket.config().unwrap().get_ssl_mode(), SslMode::Prefer);
        let verified = Options::new("postgres://me@db/app?sslmode=verify-full").config().unwrap();
        assert_eq!(verified.get_ssl_mode(), SslMode::Require);
    }

    #[test]
    fn what_goes_to_another_host_unencrypted_is_exposed() {
        for dsn in
            ["postgres://me@db/app", "postgres://me@10.0.0.7/app?sslmode=prefer", "postgres://me@localhost,db/app"]
        {
            assert!(Options::new(dsn).is_exposed(), "{dsn}");
            assert!(!Options::new(dsn).with_tls_required().is_exposed(), "{dsn}");
        }
        for dsn in [
            "postgres://me@db/app?sslmode=verify-full",
            "postgres://me@127.0.0.1/app",
            "postgres://me@[::1]/app",
            "postgres://me@LOCALHOST/app",
            "postgres://me@%2Frun%2Fpostgresql/app",
            "host=db hostaddr=127.0.0.1",
            "not readable",
        ] {
            assert!(!Options::new(dsn).is_exposed(), "{dsn}");
        }
    }

    #[test]
    fn a_timeout_is_no_longer_than_the_server_can_count() {
        let options = Options::new("")
            .with_statement_timeout(Duration::MAX)
            .with_connect_timeout(Duration::from_secs(86_400 * 30));
        assert_eq!(options.statement_timeout.as_millis(), 2_147_483_647);
        assert_eq!(options.connect_timeout, options.statement_timeout);
    }

    #[test]
    fn a_bad_schema_name_is_refused_with_what_is_accepted() {
        let check = |name: &str| Options::new("").with_schema(name).check_schema().map_err(|error| error.to_string());
        assert_eq!(check("hapax_2"), Ok(()));
        for name in ["", "2hapax", "Hapax", "ha-pax", "a\"b", "pg_hapax", &"h".repeat(64)] {
            let message = check(name).unwrap_err();
            assert!(message.contains("use up to 63 lower-case letters, digits and underscores"), "{message}");
        }
    }
}
