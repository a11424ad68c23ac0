//! Certificates and trust, read from files: the server's certificate, which can be read again while it is used, and
//! whom to trust upstream.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::crypto::CryptoProvider;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// A file that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {cause}", path.display())]
pub struct TlsError {
    /// Which file.
    pub path: PathBuf,
    /// What is wrong with it, and what to do.
    pub cause: String,
}

/// A server's certificate and key. All clones mean the same one.
#[derive(Clone)]
pub struct Certificate {
    cert: PathBuf,
    key: PathBuf,
    current: Arc<Current>,
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate").field("cert", &self.cert).finish_non_exhaustive()
    }
}

struct Current(ArcSwap<CertifiedKey>);

impl fmt::Debug for Current {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Current")
    }
}

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

impl Certificate {
    /// Reads a chain of certificates and its key, both PEM.
    pub fn read(cert: impl AsRef<Path>, key: impl AsRef<Path>) -> Result<Self, TlsError> {
        let (cert, key) = (cert.as_ref().to_owned(), key.as_ref().to_owned());
        let current = ArcSwap::from_pointee(certified(&cert, &key)?);
        Ok(Self { cert, key, current: Arc::new(Current(current)) })
    }

    /// Reads the files again, for new connections. After an error the old certificate stays.
    pub fn reload(&self) -> Result<(), TlsError> {
        self.current.0.store(Arc::new(certified(&self.cert, &self.key)?));
        Ok(())
    }

    /// For a listener: HTTP/2 and HTTP/1.1.
    pub fn server_config(&self) -> Result<Arc<ServerConfig>, TlsError> {
        let builder = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| refused(&self.cert, error))?;
        let resolver: Arc<dyn ResolvesServerCert> = Arc::<Current>::clone(&self.current);
        let mut config = builder.with_no_client_auth().with_cert_resolver(resolver);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

/// For an upstream: trusts what the system trusts, and the authorities in `ca` (PEM) as well.
pub fn client_config(ca: Option<&Path>) -> Result<Arc<ClientConfig>, TlsError> {
    let mut roots = RootCertStore::empty();
    // A system without roots is one whose upstreams are all in `ca`; a certificate that cannot be read is one less.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(path) = ca {
        for certificate in certificates(path)? {
            roots.add(certificate).map_err(|error| refused(path, error))?;
        }
    }
    let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| refused(ca.unwrap_or(Path::new("system roots")), error))?;
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

fn certified(cert: &Path, key: &Path) -> Result<CertifiedKey, TlsError> {
    let chain = certificates(cert)?;
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| unreadable(key, "private key", error))?;
    let signing = provider().key_provider.load_private_key(private).map_err(|error| refused(key, error))?;
    let certified = CertifiedKey::new(chain, signing);
    match certified.keys_match() {
        // Some keys cannot say; a handshake will.
        Ok(()) | Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::Unknown)) => Ok(certified),
        Err(_) => Err(TlsError {
            path: key.to_owned(),
            cause: format!("the key does not belong to the certificate in {}; give the one that does", cert.display()),
        }),
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let certificates = read.map_err(|error| unreadable(path, "certificate", error))?;
    if certificates.is_empty() {
        return Err(unreadable(path, "certificate", rustls_pki_types::pem::Error::NoItemsFound));
    }
    Ok(certificates)
}

fn unreadable(path: &Path, what: &str, error: rustls_pki_types::pem::Error) -> TlsError {
    use rustls_pki_types::pem::Error;
    let cause = match error {
        Error::Io(error) => format!("cannot be read ({error})"),
        Error::NoItemsFound => format!("holds no {what} in PEM form; give a file that does"),
        _ => format!("is not well-formed PEM; give a file with a {what}"),
    };
    TlsError { path: path.to_owned(), cause }
}

#[expect(clippy::needless_pass_by_value, reason = "it is called as a function of an error, with map_err")]
fn refused(path: &Path, error: rustls::Error) -> TlsError {
    TlsError { path: path.to_owned(), cause: format!("cannot be used ({error})") }
}
