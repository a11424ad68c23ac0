//! TLS on the way to PostgreSQL: when it is used, whom it trusts, and that nothing is said before it stands.
//!
//! A server with a certificate of its own, and one that records what it is sent and speaks no TLS.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::thread::JoinHandle;

use hapax_core::store::{ErrorKind, Store as _, StoreError};
use hapax_server::config::{self, FlagValue, Sources};
use hapax_server::store::AnyStore;
use hapax_testkit::needs_postgres;
use hapax_testkit::postgres::Server;
use tempfile::TempDir;

/// Who signs certificates, with its own in a file.
struct Authority {
    dir: TempDir,
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        std::fs::write(dir.path().join("ca.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
        Self { dir, issuer: rcgen::Issuer::new(params, key) }
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("ca.pem")
    }

    /// A server with a certificate for that name.
    fn server(&self, name: &str) -> Server {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Server::builder().with_tls(&certificate.pem(), &key.serialize_pem()).start()
    }
}

/// Opens the store as a node does that is configured like this.
async fn open(url: &str, authority: Option<&Authority>) -> Result<AnyStore, StoreError> {
    let flag = |flag, key, value: String| FlagValue { flag, key, value };
    let mut flags = vec![flag("--store", "store.url", url.to_owned())];
    flags.extend(authority.map(|authority| flag("--ca", "store.ca_file", authority.file().display().to_string())));
    let sources = Sources { flags, without_upstream: true, ..Sources::default() };
    AnyStore::open(&config::load(&sources).unwrap().store).await
}

async fn refusal(url: &str, authority: Option<&Authority>) -> StoreError {
    match open(url, authority).await {
        Ok(_) => panic!("it opened: {url}"),
        Err(error) => error,
    }
}

/// Whether the store's sessions are encrypted: `t`, `f`, or both.
fn encrypted(server: &Server) -> String {
    server.maintenance().run(
        "SELECT string_agg(DISTINCT ssl::text, ',') FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
         WHERE application_name = 'hapax'",
    )
}

#[tokio::test]
async fn an_authority_or_a_mode_that_asks_for_tls_gets_it_and_nothing_else_does() {
    needs_postgres!();
    let authority = Authority::new();
    let server = authority.server("127.0.0.1");
    let url = server.maintenance().url();
    for mode in ["", "?sslmode=prefer", "?sslmode=require", "?sslmode=verify-ca", "?sslmode=verify-full"] {
        let store = open(&format!("{url}{mode}"), Some(&authority)).await.unwrap();
        store.health().await.unwrap();
        assert_eq!(encrypted(&server), "true", "{mode}");
        drop(store);
        gone(&server);
    }
    for mode in ["", "?sslmode=disable"] {
        let store = open(&format!("{url}{mode}"), None).await.unwrap();
        store.health().await.unwrap();
        assert_eq!(encrypted(&server), "false", "{mode}");
        drop(store);
        gone(&server);
    }
}

/// Waits until the sessions of a store that was dropped are closed.
fn gone(server: &Server) {
    let sessions = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = 'hapax'";
    server.maintenance().run(sessions);
    assert_eq!(encrypted(server), "");
}

#[tokio::test]
async fn a_certificate_of_somebody_else_or_for_another_name_is_refused_in_every_mode() {
    needs_postgres!();
    let (authority, other) = (Authority::new(), Authority::new());
    let server = authority.server("127.0.0.1");
    let url = server.maintenance().url();
    for mode in ["", "?sslmode=prefer", "?sslmode=require", "?sslmode=verify-ca", "?sslmode=verify-full"] {
        let error = refusal(&format!("{url}{mode}"), Some(&other)).await;
        assert_eq!(error.kind, ErrorKind::Unsuitable, "{error}");
        let said = error.to_string();
        assert!(said.contains(": the TLS handshake failed (invalid peer certificate: "), "{mode}: {said}");
        assert!(said.ends_with("; check the server's certificate, the authority that is trusted, and the host's name"));
    }
    let by_name = url.replace("127.0.0.1", "localhost");
    let error = refusal(&format!("{by_name}?sslmode=verify-ca"), Some(&authority)).await;
    assert!(error.to_string().contains("certificate not valid for name \"localhost\""), "{error}");
}

/// A server that speaks no TLS and keeps what the first connection sends it.
fn recorder() -> (SocketAddr, JoinHandle<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let heard = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut heard = vec![0; 8];
        stream.read_exact(&mut heard).unwrap();
        stream.write_all(b"N").unwrap();
        // A client that insists on TLS closes now; one that does not says who it is.
        stream.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
        let _ = stream.read_to_end(&mut heard);
        heard
    });
    (address, heard)
}

/// `SSLRequest`: its length and its number.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

#[tokio::test]
async fn a_server_without_tls_is_told_nothing_where_tls_is_required() {
    let authority = Authority::new();
    for (mode, authority) in [("", Some(&authority)), ("?sslmode=require", None), ("?sslmode=verify-full", None)] {
        let (address, heard) = recorder();
        let error = refusal(&format!("postgres://me:hunter2@{address}/app{mode}"), authority).await;
        assert_eq!(error.kind, ErrorKind::Unsuitable);
        assert_eq!(
            error.to_string(),
            format!(
                "open: {address}/app: the server does not speak TLS, and TLS is required (by sslmode or ca_file); \
                 nothing was sent; turn ssl on at the server"
            )
        );
        assert_eq!(heard.join().unwrap(), SSL_REQUEST, "{mode}");
    }
}

#[tokio::test]
async fn a_server_that_lets_nobody_in_without_tls_says_so() {
    needs_postgres!();
    let authority = Authority::new();
    let mut server = authority.server("127.0.0.1");
    let database = server.maintenance();
    let rules = database.run("SHOW hba_file");
    std::fs::write(&rules, "local all all trust\nhostssl all all all trust\n").unwrap();
    server.restart();
    let error = refusal(&database.url(), None).await;
    assert_eq!(error.kind, ErrorKind::Unsuitable);
    let said = error.to_string();
    assert!(said.contains("without TLS; add sslmode=require to the connection string"), "{said}");
    open(&database.url(), Some(&authority)).await.unwrap();
}

#[tokio::test]
async fn strict_asks_for_a_standby_or_for_the_word_that_there_is_none() {
    needs_postgres!();
    let url = Server::shared().fresh_database().url();
    let store = |strict: bool, single_node: bool| {
        let word = |flag, key, value: bool| FlagValue { flag, key, value: value.to_string() };
        let url = FlagValue { flag: "--store", key: "store.url", value: url.clone() };
        let words = [word("-", "store.strict", strict), word("-", "store.single_node", single_node)];
        let flags = std::iter::once(url).chain(words).collect();
        config::load(&Sources { flags, without_upstream: true, ..Sources::default() }).unwrap().store
    };
    let error = AnyStore::open(&store(true, false)).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unsuitable);
    assert!(
        error.to_string().ends_with(
            ": no standby confirms what is committed, and one is required; set synchronous_standby_names, or say that \
             this is a single node (`store.single_node`)"
        ),
        "{error}"
    );
    for (strict, single_node) in [(true, true), (false, false), (false, true)] {
        AnyStore::open(&store(strict, single_node)).await.unwrap();
    }
    AnyStore::open_existing(&store(true, false)).await.expect("an operator can look");
}
