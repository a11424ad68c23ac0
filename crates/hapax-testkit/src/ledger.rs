//! An upstream that keeps a ledger: the judge of "once".
//!
//! It writes every request that reached it whole to a file of its own, and syncs it, before it answers. So how often
//! something happened is said by a witness that shares no code with what is tested, and it still knows after a restart.
//! A request that reaches it is an *execution*, whatever it answers then; half a request is none.
//!
//! What it answers is the test's choice: a rule for a path, a key or everything ([`Ledger::on`], [`Ledger::next`]), or, for
//! clients that are scripts, the request field `X-Test-Behaviour` (see [`Behaviour::parse`]). The field wins over rules,
//! a key over a path, a path over everything, and otherwise it echoes.
//!
//! ```no_run
//! use hapax_testkit::ledger::{Behaviour, Ledger};
//! use hapax_testkit::raw_http::request;
//!
//! let ledger = Ledger::start();
//! ledger.next("/charges", Behaviour::Drop);
//! let charge = request("POST", "/charges").header("Idempotency-Key", "k-1").body("amount=1");
//! assert!(charge.try_send(ledger.address()).is_err());
//! ledger.assert_once("k-1");
//! ```
//!
//! It speaks HTTP/1.1, plain or over TLS, from a thread of its own. It leaves HTTP/2 and every expectation to the tests.

mod answer;
mod behaviour;
mod book;
mod request;
mod server;
mod shared;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;

use crate::port;
pub use behaviour::{Answer, Behaviour, Selector};
pub use book::Entry;
pub use request::Received;
use server::{Server, Settings};
use shared::Shared;

/// How long a test waits for a request before it fails.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// How a ledger is to be set up.
#[derive(Debug, Default)]
pub struct Builder {
    file: Option<PathBuf>,
    tenant_header: Option<String>,
    settings: Settings,
}

impl Builder {
    /// Keeps the ledger in this file, which may hold entries already. Otherwise it is in a temporary directory.
    #[must_use]
    pub fn with_file(mut self, file: impl Into<PathBuf>) -> Builder {
        self.file = Some(file.into());
        self
    }

    /// The field whose value is the tenant in the ledger. Otherwise it is `Authorization`.
    #[must_use]
    pub fn with_tenant_header(mut self, name: &str) -> Builder {
        self.tenant_header = Some(name.to_owned());
        self
    }

    /// Closes a connection that has been idle this long, without a word, as Node's server does after 5 s.
    #[must_use]
    pub fn with_idle_close(mut self, after: Duration) -> Builder {
        self.settings.idle_close = Some(after);
        self
    }

    /// Speaks TLS with this certificate chain and key, both in PEM.
    #[must_use]
    pub fn with_tls(mut self, certificates_pem: &str, key_pem: &str) -> Builder {
        self.settings.tls = Some(server::tls(certificates_pem, key_pem));
        self
    }

    /// Starts it on a free port of the loopback interface.
    pub fn start(self) -> Ledger {
        let dir = self.file.is_none().then(|| tempfile::tempdir().expect("a temporary directory"));
        let file = self.file.unwrap_or_else(|| dir.as_ref().expect("just made").path().join("ledger.ndjson"));
        let shared = Arc::new(Shared::open(&file, self.tenant_header.as_deref().unwrap_or("authorization")));
        let listener = port::listener();
        let address = listener.local_addr().expect("a listener has an address");
        let server = Some(Server::start(listener, Arc::clone(&shared), self.settings.clone()));
        Ledger { address, file, shared, settings: self.settings, server, dir }
    }
}

/// A running upstream. Dropping it closes its port and its connections.
#[derive(Debug)]
pub struct Ledger {
    address: SocketAddr,
    file: PathBuf,
    shared: Arc<Shared>,
    settings: Settings,
    server: Option<Server>,
    #[expect(dead_code, reason = "held for its drop, which removes the file")]
    dir: Option<TempDir>,
}

impl Ledger {
    /// Starts one with an empty ledger in a temporary directory.
    pub fn start() -> Ledger {
        Ledger::builder().start()
    }

    /// Set one up.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its URL, `https` where it speaks TLS.
    pub fn url(&self) -> String {
        let scheme = if self.settings.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// The file in which it keeps its entries.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// From now on, requests with this path or key (or all, `"*"`) are treated so.
    pub fn on(&self, whom: impl Into<Selector>, behaviour: Behaviour) {
        self.shared.change(|state| state.rules.always(whom.into(), behaviour));
    }

    /// The next request with this path or key (or any, `"*"`) is treated so. Calls queue up; they come before [`on`](Self::on).
    pub fn next(&self, whom: impl Into<Selector>, behaviour: Behaviour) {
        self.shared.change(|state| state.rules.once(whom.into(), behaviour));
    }

    /// Forgets all rules.
    pub fn forget_rules(&self) {
        self.shared.change(|state| state.rules = behaviour::Rules::default());
    }

    /// Lets requests with this path or key (or all, `"*"`) wait for [`release`](Self::release): they are in the ledger,
    /// and not yet answered.
    pub fn hold(&self, whom: impl Into<Selector>) {
        let whom = whom.into();
        self.shared.change(|state| state.held.push(whom));
    }

    /// Lets those go on that [`hold`](Self::hold) with the same selector stopped.
    pub fn release(&self, whom: impl Into<Selector>) {
        let whom = whom.into();
        self.shared.change(|state| state.held.retain(|held| *held != whom));
    }

    /// Refuses new connections (the port is closed), or accepts them again. Open ones live on.
    pub fn refuse(&self, on: bool) {
        self.server().refuse(on);
    }

    /// Cuts every open connection.
    pub fn cut_connections(&self) {
        self.server().cut();
    }

    /// Stops it, reads the ledger from its file, and starts it again at the same address. Rules stay.
    pub fn restart(&mut self) {
        self.server = None;
        self.shared.reopen(&self.file);
        let listener = server::bind(self.address);
        self.server = Some(Server::start(listener, Arc::clone(&self.shared), self.settings.clone()));
    }

    /// Every execution, in order.
    pub fn all(&self) -> Vec<Entry> {
        self.shared.read(|state| state.book.entries().to_vec())
    }

    /// The executions under this key, of all tenants.
    pub fn executions(&self, key: &str) -> Vec<Entry> {
        self.matching(|entry| entry.key.as_deref() == Some(key))
    }

    /// The executions under this tenant's key.
    pub fn executions_by(&self, tenant: &str, key: &str) -> Vec<Entry> {
        self.matching(|entry| entry.tenant.as_deref() == Some(tenant) && entry.key.as_deref() == Some(key))
    }

    /// How often each tenant's key was executed. Requests without a key are not in it.
    pub fn counts(&self) -> BTreeMap<(String, String), usize> {
        let mut counts = BTreeMap::new();
        for entry in self.all() {
            if let Some(key) = entry.key {
                *counts.entry((entry.tenant.unwrap_or_default(), key)).or_default() += 1;
            }
        }
        counts
    }

    /// The last requests, whole, with every field; at most `RECEIVED_MAX` of them.
    pub fn received(&self) -> Vec<Received> {
        self.shared.read(|state| state.received.iter().cloned().collect())
    }

    /// The last request.
    ///
    /// # Panics
    ///
    /// When there was none.
    #[track_caller]
    pub fn last(&self) -> Received {
        self.received().pop().expect("the upstream received a request")
    }

    /// How many requests began and never became whole, or were no HTTP/1.1.
    pub fn broken(&self) -> u64 {
        self.shared.read(|state| state.broken)
    }

    /// How many connections it has accepted.
    pub fn connections(&self) -> u64 {
        self.shared.read(|state| state.connections)
    }

    /// Waits until nothing is being worked on, also nothing [`Late`](Behaviour::Late).
    ///
    /// # Panics
    ///
    /// When it takes too long.
    #[track_caller]
    pub fn wait_until_idle(&self) {
        let in_time = self.shared.wait(WAIT_MAX, |state| state.working == 0);
        assert!(in_time, "the upstream still works after {WAIT_MAX:?}");
    }

    /// Waits until a request with this path or key (or any, `"*"`) is in the ledger.
    ///
    /// # Panics
    ///
    /// When none comes.
    #[track_caller]
    pub fn wait_until_received(&self, whom: impl Into<Selector>) {
        self.wait_for_executions(whom, 1);
    }

    /// Waits until at least so many are in the ledger.
    ///
    /// # Panics
    ///
    /// When they do not come.
    #[track_caller]
    pub fn wait_for_executions(&self, whom: impl Into<Selector>, count: usize) {
        let whom = whom.into();
        let matching = |state: &shared::State| state.book.entries().iter().filter(|entry| whom.matches(entry)).count();
        let in_time = self.shared.wait(WAIT_MAX, |state| matching(state) >= count);
        assert!(in_time, "{} of {count} executions for {whom:?} within {WAIT_MAX:?}", self.shared.read(matching));
    }

    /// Asserts that the key was executed once, whoever the tenant.
    ///
    /// # Panics
    ///
    /// When it was not; the message lists what happened.
    #[track_caller]
    pub fn assert_once(&self, key: &str) {
        assert_count(key, &self.executions(key), 1);
    }

    /// Asserts that this tenant's key was executed once.
    ///
    /// # Panics
    ///
    /// When it was not; the message lists what happened.
    #[track_caller]
    pub fn assert_once_by(&self, tenant: &str, key: &str) {
        assert_count(key, &self.executions_by(tenant, key), 1);
    }

    /// Asserts that the key was never executed.
    ///
    /// # Panics
    ///
    /// When it was; the message lists what happened.
    #[track_caller]
    pub fn assert_never(&self, key: &str) {
        assert_count(key, &self.executions(key), 0);
    }

    /// Asserts that no tenant's key was executed twice, and that there were `keys` of them.
    ///
    /// # Panics
    ///
    /// When one was, or there were more or fewer.
    #[track_caller]
    pub fn assert_each_once(&self, keys: usize) {
        let counts = self.counts();
        let twice: Vec<_> = counts.iter().filter(|(_, count)| **count != 1).take(10).collect();
        assert!(twice.is_empty(), "executed more than once: {twice:?}");
        assert_eq!(counts.len(), keys, "keys that were executed");
    }

    fn matching(&self, wanted: impl Fn(&Entry) -> bool) -> Vec<Entry> {
        self.shared.read(|state| state.book.entries().iter().filter(|entry| wanted(entry)).cloned().collect())
    }

    fn server(&self) -> &Server {
        self.server.as_ref().expect("it runs, except during a restart")
    }
}

#[track_caller]
fn assert_count(key: &str, entries: &[Entry], wanted: usize) {
    assert!(entries.len() == wanted, "{key} was executed {} times, not {wanted}:\n{entries:#?}", entries.len());
}
