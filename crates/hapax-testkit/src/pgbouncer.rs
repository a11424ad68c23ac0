//! PgBouncer in front of a test database.
//!
//! In transaction mode consecutive transactions of one client may run on different server connections, so whatever a
//! client sets for its session is lost or, worse, left to others. This shows whether a store can live with that. The
//! settings are PgBouncer's own defaults except for a small pool.

use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

use crate::postgres::Database;
use crate::watchdog::Watchdog;
use crate::{command, port, skip, wait};

/// Fewer server connections than tests have clients, so that they do share.
const POOL_SIZE: usize = 4;
/// Above what any test opens.
const CLIENTS_MAX: usize = 500;
/// It starts within milliseconds; this is for a busy machine.
const START_TIME_MAX: Duration = Duration::from_secs(20);

/// Returns from the test, saying so, where servers are left out; fails it where PostgreSQL or PgBouncer is missing.
#[macro_export]
macro_rules! needs_pgbouncer {
    () => {
        if !$crate::pgbouncer::required() {
            return;
        }
    };
}

/// True where tests run that need PgBouncer; false, with a line `NOT TESTED: …`, under `HAPAX_SKIP_SERVERS=1`.
///
/// # Panics
///
/// When the tests shall run and PostgreSQL or PgBouncer is missing.
#[track_caller]
pub fn required() -> bool {
    let wanted = skip::wanted("PgBouncer") && crate::postgres::required();
    if wanted {
        program();
    }
    wanted
}

/// A running PgBouncer. It ends when this value is dropped or the test process ends.
#[derive(Debug)]
pub struct Bouncer {
    address: SocketAddr,
    database: Database,
    #[expect(dead_code, reason = "held for its drop, which stops the process")]
    watchdog: Watchdog,
}

impl Bouncer {
    /// Starts one in transaction mode and waits until it accepts connections.
    ///
    /// # Panics
    ///
    /// When PgBouncer is missing or does not start; the message holds its log.
    pub fn transaction_mode(database: &Database) -> Bouncer {
        let program = program();
        let directory = command::server_dir("hapax-bouncer");
        let address = port::loopback(port::free());
        let configuration = directory.join("pgbouncer.ini");
        let log = directory.join("log");
        std::fs::write(&configuration, settings(database, address, &log)).expect("the directory is writable");
        let mut service = command::as_server_user(program);
        service.arg("-q").arg(&configuration);
        let watchdog = Watchdog::running(&service, &directory);
        wait::until(&format!("PgBouncer opens its port; its log: {}", log.display()), START_TIME_MAX, || {
            TcpStream::connect(address).is_ok()
        });
        Bouncer { address, database: database.clone(), watchdog }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of the database by way of PgBouncer.
    pub fn url(&self) -> String {
        self.database.url_via(self.address)
    }
}

#[track_caller]
fn program() -> PathBuf {
    let debian = PathBuf::from("/usr/sbin/pgbouncer");
    let found = command::on_path("pgbouncer").or_else(|| debian.is_file().then_some(debian));
    found.unwrap_or_else(|| panic!("pgbouncer is not on PATH; {}", skip::advice()))
}

/// Clients are trusted; towards the server it logs in as the superuser.
fn settings(database: &Database, address: SocketAddr, log: &std::path::Path) -> String {
    let server = database.address();
    let login = database.password().map(|word| format!(" password='{}'", word.replace('\'', "''"))).unwrap_or_default();
    format!(
        "[databases]\n\
         {name} = host={host} port={server_port} dbname={name} user=postgres{login}\n\
         [pgbouncer]\n\
         listen_addr = {own_host}\n\
         listen_port = {own_port}\n\
         unix_socket_dir =\n\
         auth_type = any\n\
         pool_mode = transaction\n\
         default_pool_size = {POOL_SIZE}\n\
         max_client_conn = {CLIENTS_MAX}\n\
         logfile = {log}\n",
        name = database.name(),
        host = server.ip(),
        server_port = server.port(),
        own_host = address.ip(),
        own_port = address.port(),
        log = log.display(),
    )
}
