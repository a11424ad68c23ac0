//! What can be chosen when a store is opened.

use std::fmt;
use std::time::Duration;

use hapax_core::store::{ErrorKind, StoreError};
use tokio_postgres::Config;
use tokio_postgres::config::{Host, TargetSessionAttrs};

/// More connections would make smaller batches, not more writes.
pub(crate) const CONNECTIONS_MAX: usize = 64;

/// PostgreSQL cuts longer names off.
const SCHEMA_CHARS_MAX: usize = 63;

/// A connection that is idle this long is checked by the operating system, so that a peer that is gone is noticed.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);

/// How to reach a database, and how to use it.
#[derive(Clone)]
pub struct Options {
    dsn: String,
    pub(crate) schema: String,
    pub(crate) connections: usize,
    pub(crate) statement_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) pooler: bool,
    pub(crate) existing: bool,
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
    /// when the store is opened. With several hosts the one that takes writes is used.
    pub fn new(dsn: impl Into<String>) -> Self {
        Self {
            dsn: dsn.into(),
            schema: "hapax".to_owned(),
            connections: 4,
            statement_timeout: Duration::from_secs(5),
            connect_timeout: Duration::from_secs(5),
            pooler: false,
            existing: false,
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

    /// How long an operation may wait for its turn, and then for the server. Default 5 s.
    #[must_use]
    pub fn with_statement_timeout(mut self, timeout: Duration) -> Self {
        self.statement_timeout = timeout;
        self
    }

    /// How long it may take to get a connection, login included. Default 5 s.
    #[must_use]
    pub fn with_connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// There is a pooler such as PgBouncer in transaction mode before the server: nothing is prepared or set for a
    /// session, because the next transaction may run in another one.
    #[must_use]
    pub fn with_pooler(mut self) -> Self {
        self.pooler = true;
        self
    }

    /// The schema must hold a store already: nothing is made in a database that is named by mistake.
    #[must_use]
    pub fn with_existing(mut self) -> Self {
        self.existing = true;
        self
    }

    /// The connection string as the driver reads it.
    pub(crate) fn config(&self) -> Result<Config, StoreError> {
        // What the driver says of a string it cannot read may repeat parts of it, so it is not passed on.
        let mut config: Config = self.dsn.parse().map_err(|_| {
            invalid("the connection string cannot be read; write postgres://user:password@host:5432/database")
        })?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(invalid(
                "the connection string names no host; write postgres://user:password@host:5432/database",
            ));
        }
        if config.get_application_name().is_none() {
            config.application_name("hapax");
        }
        if !self.dsn.contains("keepalives") {
            config.keepalives_idle(KEEPALIVE_IDLE);
        }
        let hosts = config.get_hosts().len().max(config.get_hostaddrs().len());
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

/// Where a configuration leads to: `host:port/database`.
pub(crate) fn target_of(config: &Config) -> String {
    let ports = config.get_ports();
    let port = |at: usize| ports.get(at).or(ports.first()).copied().unwrap_or(5432);
    let name = |(at, host): (usize, &Host)| match host {
        Host::Tcp(name) => format!("{name}:{}", port(at)),
        #[cfg(unix)]
        Host::Unix(path) => format!("{}:{}", path.display(), port(at)),
    };
    let mut hosts: Vec<String> = config.get_hosts().iter().enumerate().map(name).collect();
    if hosts.is_empty() {
        hosts = config.get_hostaddrs().iter().enumerate().map(|(at, host)| format!("{host}:{}", port(at))).collect();
    }
    format!("{}/{}", hosts.join(","), config.get_dbname().or(config.get_user()).unwrap_or_default())
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
    fn a_bad_schema_name_is_refused_with_what_is_accepted() {
        let check = |name: &str| Options::new("").with_schema(name).check_schema().map_err(|error| error.to_string());
        assert_eq!(check("hapax_2"), Ok(()));
        for name in ["", "2hapax", "Hapax", "ha-pax", "a\"b", "pg_hapax", &"h".repeat(64)] {
            let message = check(name).unwrap_err();
            assert!(message.contains("use up to 63 lower-case letters, digits and underscores"), "{message}");
        }
    }
}
