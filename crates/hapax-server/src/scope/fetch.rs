//! A small HTTP client: GET one configured URL, keep the connection for the next time.
//!
//! Used for key sets and for `ask`. It has a time limit for everything together, a limit on requests at the same time
//! and one on the body. It follows no redirect: an answer from elsewhere is not the answer of who was asked. A GET on
//! a kept connection that turns out to be closed is sent once more on a new one; this client is for nothing but GETs.
//! What an answer means is left to the caller.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{HOST, HeaderMap, HeaderValue};
use http::{Request, StatusCode, Uri, uri::Scheme};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

use super::refusal::ScopeConfigError;

/// Connections are not used again after this long without use. Common servers close theirs after 5 s.
const IDLE_MAX: Duration = Duration::from_secs(4);

/// The head of an answer; more is no answer to us.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// How much one client may use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// For everything together: waiting for a turn, connecting, sending, reading.
    pub(super) timeout: Duration,
    pub(super) body_bytes_max: usize,
    /// Requests at the same time; others wait.
    pub(super) at_once: usize,
}

/// Why there is no answer. The texts go on: "the endpoint …".
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum FetchError {
    #[error("did not answer in time")]
    TimedOut,
    #[error("cannot be reached")]
    Unreachable,
    #[error("has no certificate that is trusted")]
    Untrusted,
    #[error("broke off its answer")]
    Broken,
}

/// A whole answer.
#[derive(Debug)]
pub(super) struct Fetched {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    /// Nothing if it was over the limit.
    pub(super) body: Option<Bytes>,
}

type Sender = SendRequest<Empty<Bytes>>;

/// A client for one URL.
pub(super) struct Fetch {
    host: String,
    port: u16,
    host_field: HeaderValue,
    path: Uri,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    limits: Limits,
    turns: Semaphore,
    idle: Mutex<Vec<(Sender, Instant)>>,
}

impl Fetch {
    /// Checks the URL and reads the certificates; connects to nothing yet. `of` is the kind whose URL it is.
    pub(super) fn new(
        of: &'static str,
        url: &str,
        ca_file: Option<&Path>,
        limits: Limits,
    ) -> Result<Self, ScopeConfigError> {
        let unfit = |cause: &str, next| ScopeConfigError::Url { of, cause: cause.to_owned(), next };
        let uri: Uri = url.parse().map_err(|_| unfit("is not a URL", "write it as https://host/path"))?;
        let secure = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(scheme) if *scheme == Scheme::HTTP => false,
            _ => return Err(unfit("is neither http nor https", "write it as https://host/path")),
        };
        let authority = uri.authority().ok_or_else(|| unfit("has no host", "write it as https://host/path"))?;
        if authority.as_str().contains('@') {
            return Err(unfit("holds a user name", "remove what stands before the @"));
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let bad_host = || unfit("has a host that cannot be used", "check its spelling");
        let host_field = HeaderValue::from_str(authority.as_str()).map_err(|_| bad_host())?;
        let tls = match secure {
            true => Some((connector(of, ca_file)?, ServerName::try_from(host.clone()).map_err(|_| bad_host())?)),
            false => None,
        };
        Ok(Self {
            port: authority.port_u16().unwrap_or(if secure { 443 } else { 80 }),
            path: uri.path_and_query().map_or_else(|| Uri::from_static("/"), |path| Uri::from(path.clone())),
            turns: Semaphore::new(limits.at_once),
            idle: Mutex::default(),
            host,
            host_field,
            tls,
            limits,
        })
    }

    /// One GET with these headers.
    pub(super) async fn get(&self, headers: HeaderMap) -> Result<Fetched, FetchError> {
        let exchange = async {
            let _turn = self.turns.acquire().await.map_err(|_| FetchError::Unreachable)?;
            if let Some(kept) = self.kept()
                && let Ok(fetched) = self.exchange(kept, headers.clone()).await
            {
                return Ok(fetched);
            }
            self.exchange(self.connected().await?, headers).await
        };
        tokio::time::timeout(self.limits.timeout, exchange).await.unwrap_or(Err(FetchError::TimedOut))
    }

    async fn exchange(&self, mut sender: Sender, headers: HeaderMap) -> Result<Fetched, FetchError> {
        sender.ready().await.map_err(|_| FetchError::Broken)?;
        let mut request = Request::new(Empty::new());
        *request.uri_mut() = self.path.clone();
        *request.headers_mut() = headers;
        request.headers_mut().insert(HOST, self.host_field.clone());
        let answer = sender.send_request(request).await.map_err(|_| FetchError::Broken)?;
        let (head, body) = answer.into_parts();
        let body = self.read(body).await?;
        if body.is_some() {
            self.keep(sender);
        }
        Ok(Fetched { status: head.status, headers: head.headers, body })
    }

    async fn read(&self, body: Incoming) -> Result<Option<Bytes>, FetchError> {
        match Limited::new(body, self.limits.body_bytes_max).collect().await {
            Ok(whole) => Ok(Some(whole.to_bytes())),
            Err(failed) if failed.is::<http_body_util::LengthLimitError>() => Ok(None),
            Err(_) => Err(FetchError::Broken),
        }
    }

    async fn connected(&self) -> Result<Sender, FetchError> {
        let socket = TcpStream::connect((self.host.as_str(), self.port)).await.map_err(|_| FetchError::Unreachable)?;
        // Without it an answer may come a little later; nothing else depends on it.
        let _ = socket.set_nodelay(true);
        match &self.tls {
            None => handshake(socket).await,
            Some((connector, name)) => {
                handshake(connector.connect(name.clone(), socket).await.map_err(|_| FetchError::Untrusted)?).await
            }
        }
    }

    fn kept(&self) -> Option<Sender> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|(sender, since)| since.elapsed() < IDLE_MAX && !sender.is_closed());
        idle.pop().map(|(sender, _)| sender)
    }

    fn keep(&self, sender: Sender) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < self.limits.at_once {
            idle.push((sender, Instant::now()));
        }
    }
}

/// A URL as it may be shown: a query may hold a secret, and so may what stands before an @.
pub(super) fn without_query(url: &str) -> &str {
    let shown = url.split_once('?').map_or(url, |(shown, _)| shown);
    if shown.contains('@') { "(hidden)" } else { shown }
}

async fn handshake(socket: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> Result<Sender, FetchError> {
    let (sender, connection) = Builder::new()
        .max_buf_size(HEAD_BYTES_MAX)
        .handshake(TokioIo::new(socket))
        .await
        .map_err(|_| FetchError::Broken)?;
    // The connection ends by itself when its sender is dropped or the other side closes it.
    tokio::spawn(connection);
    Ok(sender)
}

/// TLS with the roots of the host and those of `ca_file`.
fn connector(of: &'static str, ca_file: Option<&Path>) -> Result<TlsConnector, ScopeConfigError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(file) = ca_file {
        add_certificates(&mut roots, file)?;
    }
    if roots.is_empty() {
        let cause = "uses https, and this host trusts no certificate".to_owned();
        return Err(ScopeConfigError::Url {
            of,
            cause,
            next: "install the system's CA certificates or name a CA file",
        });
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| ScopeConfigError::Url { of, cause: error.to_string(), next: "report this" })?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

fn add_certificates(roots: &mut RootCertStore, file: &Path) -> Result<(), ScopeConfigError> {
    let unfit = |cause: String| ScopeConfigError::File {
        file: file.to_owned(),
        cause,
        next: "name a readable file of CA certificates in PEM",
    };
    let certificates = CertificateDer::pem_file_iter(file).map_err(|error| unfit(error.to_string()))?;
    let before = roots.len();
    for certificate in certificates {
        let certificate = certificate.map_err(|error| unfit(error.to_string()))?;
        roots.add(certificate).map_err(|error| unfit(error.to_string()))?;
    }
    if roots.len() == before { Err(unfit("holds no certificate".to_owned())) } else { Ok(()) }
}
