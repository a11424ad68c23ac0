//! The desk through a running node: each operation is a request to its admin API.
//!
//! A connection is kept for the next request. What changes nothing when said twice is said again where a kept connection
//! turns out to be closed; a purge is not, since nobody would know what it did. Left to others: reading the
//! address and the token.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use http::{HeaderMap, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::view::{
    AuditView, ChangeView, Filter, PageView, PurgeRequest, PurgeView, RecordView, ResolutionRequest, StatusView,
};
use super::{ACTOR, ACTOR_BYTES_MAX};
use super::{Desk, DeskError, DeskErrorKind};
use hapax_proxy::tls;

/// Where a token is taken from: never from a flag, which other users of the host can read.
pub(crate) const TOKEN: &str = "HAPAX_ADMIN_TOKEN";

/// The file that holds it, where it is kept in one.
pub(crate) const TOKEN_FILE: &str = "HAPAX_ADMIN_TOKEN_FILE";

/// A node that does not take a connection within this time is away.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);

/// A search goes through many records before it answers.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(60);

/// A purge by filter writes each record by itself, with its note.
const PURGE_TIME_MAX: Duration = Duration::from_secs(30 * 60);

/// More than a page of the largest answers.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

type Sender = SendRequest<Full<Bytes>>;

/// A desk at a node.
pub struct Remote {
    /// As it may be shown: without what stands before an @, which is refused, and without a path.
    url: String,
    host: String,
    port: u16,
    host_field: HeaderValue,
    token: Option<HeaderValue>,
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    kept: Mutex<Option<Sender>>,
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Remote").field("url", &self.url).finish_non_exhaustive()
    }
}

/// A request before it is sent; it may be sent twice.
struct Ask<'a> {
    method: Method,
    target: String,
    who: Option<&'a str>,
    body: Bytes,
    /// Said twice, it does no more than once.
    repeatable: bool,
}

impl Remote {
    /// A desk at the node whose admin listener has that URL, such as `http://127.0.0.1:9180`. Connects to nothing yet.
    ///
    /// `ca_file` names certificates that are trusted besides the system's.
    ///
    /// # Errors
    /// If the URL, the token or the file cannot be used.
    pub fn new(url: &str, token: Option<&str>, ca_file: Option<&Path>) -> Result<Self, DeskError> {
        let unfit =
            |cause: &str| invalid(format!("the URL of the admin listener {cause}; write http://127.0.0.1:9180"));
        let uri: Uri = url.parse().map_err(|_| unfit("is not a URL"))?;
        let secure = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(unfit("begins with neither http:// nor https://")),
        };
        let authority = uri.authority().ok_or_else(|| unfit("has no host"))?;
        if authority.as_str().contains('@') || uri.path_and_query().is_some_and(|path| path != "/") {
            return Err(unfit("has more than a host and a port"));
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = match authority.port_u16() {
            Some(0) => return Err(unfit("has the port 0")),
            // A port such as 99999 is kept as text by the parser, and is then no port.
            None if authority.as_str() != authority.host() => return Err(unfit("has a port that is none")),
            port => port.unwrap_or(if secure { 443 } else { 80 }),
        };
        let tls = if secure { Some(trust(&host, ca_file)?) } else { None };
        Ok(Self {
            url: format!("{}://{authority}", if secure { "https" } else { "http" }),
            host_field: HeaderValue::from_str(authority.as_str())
                .map_err(|_| unfit("has a host that cannot be used"))?,
            token: token.map(bearer).transpose()?,
            kept: Mutex::default(),
            host,
            port,
            tls,
        })
    }

    async fn get<T: DeserializeOwned>(&self, target: String) -> Result<T, DeskError> {
        self.ask(Ask { method: Method::GET, target, who: None, body: Bytes::new(), repeatable: true }).await
    }

    async fn post<T: DeserializeOwned>(
        &self,
        target: &str,
        body: &impl Serialize,
        who: &str,
        repeatable: bool,
    ) -> Result<T, DeskError> {
        let body = serde_json::to_vec(body).map_err(|error| invalid(error.to_string()))?;
        let (target, body, who) = (target.to_owned(), body.into(), Some(who));
        self.ask(Ask { method: Method::POST, target, who, body, repeatable }).await
    }

    async fn ask<T: DeserializeOwned>(&self, ask: Ask<'_>) -> Result<T, DeskError> {
        let exchange = self.exchange(&ask);
        let late = |_| self.away("did not answer in time");
        let time_max = if ask.repeatable { ANSWER_TIME_MAX } else { PURGE_TIME_MAX };
        let (status, body) = tokio::time::timeout(time_max, exchange).await.map_err(late)??;
        if status.is_success() {
            let other = |_| self.other(status);
            return serde_json::from_slice(&body).map_err(other);
        }
        Err(self.refused(status, &body))
    }

    async fn exchange(&self, ask: &Ask<'_>) -> Result<(StatusCode, Bytes), DeskError> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(sender) = kept.filter(|sender| ask.repeatable && !sender.is_closed())
            && let Ok(answer) = self.send(sender, ask).await
        {
            return Ok(answer);
        }
        let connected = tokio::time::timeout(CONNECT_TIME_MAX, self.connect()).await;
        let sender = connected.map_err(|_| self.away("takes no connection"))??;
        self.send(sender, ask).await
    }

    async fn send(&self, mut sender: Sender, ask: &Ask<'_>) -> Result<(StatusCode, Bytes), DeskError> {
        let broken = |_| self.away("broke off its answer");
        sender.ready().await.map_err(broken)?;
        let answer = sender.send_request(self.request(ask)?).await.map_err(broken)?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|_| self.away("broke off its answer, or its answer is too long"))?.to_bytes();
        *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
        Ok((status, body))
    }

    fn request(&self, ask: &Ask<'_>) -> Result<Request<Full<Bytes>>, DeskError> {
        let mut request = Request::new(Full::new(ask.body.clone()));
        *request.method_mut() = ask.method.clone();
        *request.uri_mut() = ask.target.parse().map_err(|_| invalid("the filter is too long; shorten it"))?;
        let headers: &mut HeaderMap = request.headers_mut();
        headers.insert(HOST, self.host_field.clone());
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        if let Some(token) = &self.token {
            headers.insert(AUTHORIZATION, token.clone());
        }
        if ask.method == Method::POST {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        if let Some(who) = ask.who.and_then(actor) {
            headers.insert(ACTOR, who);
        }
        Ok(request)
    }

    async fn connect(&self) -> Result<Sender, DeskError> {
        let address = (self.host.as_str(), self.port);
        let socket =
            TcpStream::connect(address).await.map_err(|error| self.away(&format!("cannot be reached: {error}")))?;
        // Without it an answer may come a little later; nothing else depends on it.
        let _ = socket.set_nodelay(true);
        let broken = || self.away("does not speak HTTP");
        match &self.tls {
            None => handshake(socket).await.ok_or_else(broken),
            Some((config, name)) => {
                let connector = TlsConnector::from(Arc::clone(config));
                let untrusted = |error| self.away(&format!("shows no certificate that is trusted ({error})"));
                handshake(connector.connect(name.clone(), socket).await.map_err(untrusted)?).await.ok_or_else(broken)
            }
        }
    }

    /// What the node says of a refusal, or that it is no node.
    fn refused(&self, status: StatusCode, body: &[u8]) -> DeskError {
        let problem: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
        let Some(detail) = problem["detail"].as_str() else { return self.other(status) };
        // A node that has no token says 403: then one would not help.
        if status == StatusCode::UNAUTHORIZED && self.token.is_none() {
            let message = format!("the node asks for a token, and none was given; set {TOKEN} or {TOKEN_FILE}");
            return DeskError::new(DeskErrorKind::Forbidden, message);
        }
        let kind = match (problem["kind"].as_str(), status.as_u16()) {
            (Some("not-found"), _) => DeskErrorKind::NotFound,
            (Some("several"), _) => DeskErrorKind::Several,
            (Some("conflict"), _) => DeskErrorKind::Conflict,
            (Some("unavailable"), _) | (None, 500..) => DeskErrorKind::Unavailable,
            (Some("forbidden"), _) | (None, 401 | 403 | 421) => DeskErrorKind::Forbidden,
            _ => DeskErrorKind::Invalid,
        };
        DeskError::new(kind, detail)
    }

    fn away(&self, how: &str) -> DeskError {
        let next = "check that it runs and that --admin names its admin listener";
        DeskError::new(DeskErrorKind::Unavailable, format!("the node at {} {how}; {next}", self.url))
    }

    fn other(&self, status: StatusCode) -> DeskError {
        self.away(&format!("answers {}, and not as a node of this release does", status.as_u16()))
    }
}

impl Desk for Remote {
    async fn status(&self) -> Result<StatusView, DeskError> {
        self.get("/v1/status".to_owned()).await
    }

    async fn list(&self, filter: &Filter, after: Option<&str>, limit: u32) -> Result<PageView, DeskError> {
        let mut target = Target::new("/v1/keys");
        for state in &filter.states {
            target.add("state", state);
        }
        let texts = [
            ("scope", filter.scope.as_deref()),
            ("key", filter.key.as_deref()),
            ("label", filter.label.as_deref()),
            ("find", filter.find.as_deref()),
            ("since", filter.since.as_deref()),
            ("until", filter.until.as_deref()),
            ("after", after),
        ];
        for (name, text) in texts {
            target.add_some(name, text);
        }
        target.add("limit", &limit.to_string());
        self.get(target.0).await
    }

    async fn show(&self, id: &str, body: bool) -> Result<RecordView, DeskError> {
        let mut target = Target::new(&format!("/v1/keys/{}", encoded(id)));
        if body {
            target.add("body", "true");
        }
        self.get(target.0).await
    }

    async fn resolve(&self, request: &ResolutionRequest, who: &str) -> Result<ChangeView, DeskError> {
        self.post("/v1/resolutions", request, who, true).await
    }

    async fn purge(&self, request: &PurgeRequest, who: &str) -> Result<PurgeView, DeskError> {
        self.post("/v1/keys/purge", request, who, request.dry_run).await
    }

    async fn audit(&self, id: Option<&str>, before: Option<u64>, limit: u32) -> Result<AuditView, DeskError> {
        let mut target = Target::new("/v1/audit");
        target.add_some("id", id);
        target.add_some("before", before.map(|number| number.to_string()).as_deref());
        target.add("limit", &limit.to_string());
        self.get(target.0).await
    }
}

/// A path and its query.
struct Target(String);

impl Target {
    fn new(path: &str) -> Self {
        Self(path.to_owned())
    }

    fn add(&mut self, name: &str, value: &str) {
        let joint = if self.0.contains('?') { '&' } else { '?' };
        // Writing to a string cannot fail.
        let _ = write!(self.0, "{joint}{name}={}", encoded(value));
    }

    fn add_some(&mut self, name: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.add(name, value);
        }
    }
}

/// Every byte that is not a letter, a digit or one of `-._~` as `%41`.
fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => encoded.push(char::from(byte)),
            other => {
                let _ = write!(encoded, "%{other:02X}");
            }
        }
    }
    encoded
}

/// The name as the node takes it; a longer one is cut rather than refused, since the token's name stands before it.
fn actor(who: &str) -> Option<HeaderValue> {
    let safe = crate::logs::escaped(who.trim()).into_owned();
    let end = (0..=safe.len().min(ACTOR_BYTES_MAX)).rev().find(|at| safe.is_char_boundary(*at))?;
    HeaderValue::from_bytes(&safe.as_bytes()[..end]).ok().filter(|value| !value.is_empty())
}

fn bearer(token: &str) -> Result<HeaderValue, DeskError> {
    let unfit = |_| invalid("the token holds characters that cannot be sent; check where it comes from");
    let mut value = HeaderValue::from_str(&format!("Bearer {}", token.trim())).map_err(unfit)?;
    value.set_sensitive(true);
    Ok(value)
}

fn trust(host: &str, ca_file: Option<&Path>) -> Result<(Arc<ClientConfig>, ServerName<'static>), DeskError> {
    let mut config = tls::client_config(ca_file).map_err(|error| invalid(error.to_string()))?;
    Arc::make_mut(&mut config).alpn_protocols = vec![b"http/1.1".to_vec()];
    let name = ServerName::try_from(host.to_owned());
    Ok((config, name.map_err(|_| invalid("the URL of the admin listener has a host that cannot be used; check it"))?))
}

async fn handshake(socket: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> Option<Sender> {
    let (sender, connection) = Builder::new().handshake(TokioIo::new(socket)).await.ok()?;
    // The connection ends by itself when its sender is dropped or the other side closes it.
    tokio::spawn(connection);
    Some(sender)
}

fn invalid(message: impl Into<String>) -> DeskError {
    DeskError::new(DeskErrorKind::Invalid, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_that_is_not_only_a_host_and_a_port_is_refused_without_being_repeated() {
        for url in [
            "",
            "127.0.0.1:9180",
            "ftp://a",
            "http://",
            "http://user:hunter2@a",
            "http://a/v1",
            "http://a/?token=hunter2",
            "http://a:0",
            "http://a:99999",
        ] {
            let error = Remote::new(url, None, None).unwrap_err();
            assert_eq!(error.kind, DeskErrorKind::Invalid, "{url}");
            assert!(!error.message.contains("hunter2"), "{}", error.message);
        }
        for url in ["http://127.0.0.1:9180", "http://[::1]:9180/", "https://hapax.internal"] {
            assert!(Remote::new(url, Some("s3cret\n"), None).is_ok(), "{url}");
        }
        assert!(Remote::new("http://a", Some("s3\ncret"), None).is_err());
    }

    #[test]
    fn nothing_shows_the_token() {
        let remote = Remote::new("http://127.0.0.1:9180", Some("hunter2hunter2"), None).unwrap();
        assert!(!format!("{remote:?}").contains("hunter2"));
    }

    #[test]
    fn a_filter_is_text_in_the_target() {
        let mut target = Target::new("/v1/keys");
        target.add("scope", "a&b=c d/€\0");
        target.add_some("label", None);
        target.add("limit", "5");
        assert_eq!(target.0, "/v1/keys?scope=a%26b%3Dc%20d%2F%E2%82%AC%00&limit=5");
    }

    #[test]
    fn a_long_name_is_cut_at_a_character() {
        assert_eq!(actor("jane").unwrap(), "jane");
        assert_eq!(actor(&"€".repeat(100)).unwrap().len(), ACTOR_BYTES_MAX / 3 * 3);
        assert_eq!(actor(" "), None);
    }
}
