//! The PostgreSQL store under the suite of all stores.
//!
//! Each store gets a database of its own, with a TCP proxy before it that can lose a reply, and, where asked for, a PgBouncer
//! between the two. The clock is the server's and cannot be stepped here. A rival is this test binary, started once more.

use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

use hapax_core::conformance::{ClockSource, Harness, rival};
use hapax_core::store::{ErrorKind, Store};
use hapax_postgres::{Options, Postgres};
use hapax_testkit::pgbouncer::Bouncer;
use hapax_testkit::postgres::{Database, Server};
use hapax_testkit::tcp_proxy::TcpProxy;

use super::{address, running};

/// Tells this binary, started as a rival, which database to open.
const URL_OF_RIVAL: &str = "HAPAX_POSTGRES_URL_OF_RIVAL";
/// And whether that is behind a pooler.
const POOLER_OF_RIVAL: &str = "HAPAX_POSTGRES_POOLER_OF_RIVAL";

/// How often a pooler may hand out a session that is gone, after all of them were ended.
const REOPEN_TRIES_MAX: u32 = 50;
/// And how long it gets to notice, each time.
const REOPEN_PAUSE: Duration = Duration::from_millis(100);

/// Databases in a server: the shared one, or one that a case may restart.
pub(crate) struct Databases {
    own: Option<Mutex<Server>>,
    pooled: bool,
    /// The database that was opened last, and what is before it.
    last: Mutex<Option<Way>>,
}

/// The way to a database.
struct Way {
    database: Database,
    bouncer: Option<Bouncer>,
    proxy: TcpProxy,
}

impl Databases {
    /// In the shared server. A restart ends every session of the database.
    pub(crate) fn shared() -> Self {
        Self { own: None, pooled: false, last: Mutex::new(None) }
    }

    /// The same behind PgBouncer in transaction mode.
    pub(crate) fn pooled() -> Self {
        Self { pooled: true, ..Self::shared() }
    }

    /// In a server of their own, which a restart really restarts.
    pub(crate) fn in_own_server() -> Self {
        Self { own: Some(Mutex::new(Server::builder().start())), ..Self::shared() }
    }

    fn fresh(&self) -> Database {
        match &self.own {
            Some(server) => server.lock().unwrap().fresh_database(),
            None => Server::shared().fresh_database(),
        }
    }

    fn last<T>(&self, read: impl FnOnce(&Way) -> T) -> T {
        read(self.last.lock().unwrap().as_ref().expect("a store was opened"))
    }

    fn url(&self) -> String {
        self.last(|way| way.database.url_via(way.proxy.address()))
    }

    async fn open_last(&self) -> Postgres {
        open_at(&self.url(), self.pooled).await
    }

    /// Opens it after every session was ended. A pooler goes on handing out sessions that are gone until it has noticed
    /// each of them.
    async fn open_again(&self) -> Postgres {
        let options = options_for(&self.url(), self.pooled);
        for _ in 0..REOPEN_TRIES_MAX {
            match Postgres::open(&options).await {
                Err(error) if self.pooled && error.kind == ErrorKind::Unavailable => {
                    tokio::time::sleep(REOPEN_PAUSE).await;
                }
                opened => return opened.expect("the database opens again"),
            }
        }
        panic!("the pooler handed out no living session in {REOPEN_TRIES_MAX} tries");
    }

    /// Has every statement prepared on the connection that is used next, so that the next request is the swap itself.
    async fn warm_up(&self, store: &Postgres) {
        let (at, first, second) = (address("warm-up"), running(), running());
        store.swap(&at, None, &first).await.unwrap();
        store.swap(&at, Some(first.version), &second).await.unwrap();
        let forget = format!("DELETE FROM hapax.record WHERE id = '\\x{}'", at.id());
        self.last(|way| way.database.run(&forget));
    }
}

async fn open_at(url: &str, pooled: bool) -> Postgres {
    Postgres::open(&options_for(url, pooled)).await.expect("the database opens")
}

fn options_for(url: &str, pooled: bool) -> Options {
    let options = Options::new(url);
    if pooled { options.with_pooler() } else { options }
}

impl Harness for Databases {
    type Store = Postgres;

    async fn open(&self) -> Postgres {
        let database = self.fresh();
        let bouncer = self.pooled.then(|| Bouncer::transaction_mode(&database));
        let behind = bouncer.as_ref().map_or(database.address(), Bouncer::address);
        let proxy = TcpProxy::in_front_of(behind);
        *self.last.lock().unwrap() = Some(Way { database, bouncer, proxy });
        self.open_last().await
    }

    async fn pass_ms(&self, ms: u64) {
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }

    fn step_clock_ms(&self, _: i64) -> ClockSource {
        ClockSource::Server
    }

    async fn restart(&self, store: Postgres) -> Option<Postgres> {
        drop(store);
        match &self.own {
            Some(server) => tokio::task::block_in_place(|| server.lock().unwrap().restart()),
            None => {
                let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                           WHERE datname = current_database() AND pid <> pg_backend_pid()";
                tokio::task::block_in_place(|| self.last(|way| way.database.run(end)));
            }
        }
        Some(self.open_again().await)
    }

    async fn lose_next_reply(&self, store: &Postgres) -> bool {
        self.warm_up(store).await;
        self.last(|way| way.proxy.lose_next_reply());
        true
    }

    fn rival(&self, _: &Postgres) -> Option<Command> {
        let mut command = Command::new(std::env::current_exe().expect("this process has an executable"));
        command.args(["conformance_rival", "--exact", "--nocapture"]).env(URL_OF_RIVAL, self.url());
        if self.pooled {
            command.env(POOLER_OF_RIVAL, "1");
        }
        Some(command)
    }
}

/// For the test `conformance_rival`: does nothing, unless it was started as the second process of a case.
pub(crate) fn be_the_rival() {
    if let Ok(url) = std::env::var(URL_OF_RIVAL) {
        let pooled = std::env::var_os(POOLER_OF_RIVAL).is_some();
        rival::run(async { open_at(&url, pooled).await });
    }
}

/// One `#[test]` per case of the suite, for the harness that the expression gives; left out where servers are.
#[macro_export]
macro_rules! suite {
    ($needs:path, $harness:expr; $($group:ident { $($case:ident: $about:literal,)* })*) => {
        $(mod $group {
            $(
                #[doc = $about]
                #[test]
                fn $case() {
                    $needs!();
                    hapax_core::conformance::run(concat!(stringify!($group), "::", stringify!($case)), $harness);
                }
            )*
        })*
    };
}
