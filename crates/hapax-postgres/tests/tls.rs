//! TLS by the feature `rustls`: the authorities of the system count, and nothing is sent to a server that none of them vouches for.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

use std::process::Command;

use hapax_core::store::ErrorKind;
use hapax_postgres::Postgres;
use hapax_testkit::needs_postgres;
use hapax_testkit::postgres::Server;
use tempfile::TempDir;

/// Set in the process that trusts the test's own authority: rustls-native-certs reads `SSL_CERT_FILE`.
const TRUSTING: &str = "HAPAX_TEST_TRUSTING";

/// An authority, in a file, and a server that it vouches for.
fn server_of_own_authority() -> (TempDir, Server) {
    let dir = TempDir::new().unwrap();
    let authority_key = rcgen::KeyPair::generate().unwrap();
    let mut authority = rcgen::CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    std::fs::write(dir.path().join("ca.pem"), authority.self_signed(&authority_key).unwrap().pem()).unwrap();
    let (issuer, key) = (rcgen::Issuer::new(authority, authority_key), rcgen::KeyPair::generate().unwrap());
    let params = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap();
    (dir, Server::builder().with_tls(&certificate.pem(), &key.serialize_pem()).start())
}

#[tokio::test]
async fn a_server_is_trusted_if_the_system_trusts_its_authority_and_not_otherwise() {
    needs_postgres!();
    if let Ok(url) = std::env::var(TRUSTING) {
        Postgres::migrate(url.as_str()).await.unwrap();
        Postgres::open(url).await.unwrap();
        return;
    }
    let (dir, server) = server_of_own_authority();
    let url = format!("{}?sslmode=require", server.maintenance().url());
    let error = Postgres::open(url.as_str()).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unsuitable, "{error}");
    assert!(error.message.contains("UnknownIssuer") || error.message.contains("no certificate authorities"), "{error}");
    let name = "a_server_is_trusted_if_the_system_trusts_its_authority_and_not_otherwise";
    let trusting = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(TRUSTING, &url)
        .env("SSL_CERT_FILE", dir.path().join("ca.pem"))
        .env_remove("SSL_CERT_DIR")
        .output()
        .unwrap();
    assert!(trusting.status.success(), "{}", String::from_utf8_lossy(&trusting.stderr));
    let stored = server.maintenance().run("SELECT count(*) FROM hapax.meta");
    assert_ne!(stored, "0", "the other process was here");
}
