//! TLS by rustls with the authorities of the system (feature `rustls`), for callers without a connector of their own.
//!
//! Certificates are always verified, for the name in the connection string. Left to others: when TLS is used (`encryption.rs`), and
//! authorities of one's own ([`Postgres::open_with_tls`](crate::Postgres::open_with_tls)).

use std::sync::Arc;

use hapax_core::store::{ErrorKind, StoreError};
use rustls::{ClientConfig, RootCertStore};
use tokio_postgres_rustls::MakeRustlsConnect;

/// A connector that trusts whom the system trusts.
pub(crate) fn system() -> Result<MakeRustlsConnect, StoreError> {
    let loaded = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // A certificate that cannot be read is one authority less.
    roots.add_parsable_certificates(loaded.certs);
    if roots.is_empty() {
        return Err(unsuitable(
            "the system has no certificate authorities; install its package of them (ca-certificates)",
        ));
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| unsuitable("TLS is not available in this build").caused_by(error))?;
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    // Newer servers end a handshake that offers them anything else.
    config.alpn_protocols = vec![b"postgresql".to_vec()];
    Ok(MakeRustlsConnect::new(config))
}

fn unsuitable(message: &str) -> StoreError {
    StoreError::new("open", ErrorKind::Unsuitable, message)
}
