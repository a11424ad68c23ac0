//! The configuration as the rest of the server sees it: plain data, complete, checked.
//!
//! Every default stands here. Left to others: reading (`sections`), checking (`check`), what a route may say
//! (`policy`).

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Method, Uri};

pub use super::choice::{Dialect, JwtAlgorithm, KeySyntax, LogFormat, Mode, Role};
use super::policy::Policy;
use super::secret::Secret;
use super::value::without_query;
use hapax::http::Pattern;
use hapax_proxy::network::Network;

/// Everything that can be configured.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `observe` means that nothing is enforced anywhere; policies below are already resolved accordingly.
    pub mode: Mode,
    /// Whose habits answers follow.
    pub dialect: Dialect,
    /// Whose key it is.
    pub scope: Scope,
    /// The endpoint that names tenants, for the scope `ask` and for `replay_check = "ask"`.
    pub ask: Option<Ask>,
    /// The side of the clients.
    pub server: Server,
    /// Which web pages of other origins may read answers; `None` adds no header.
    pub cors: Option<Cors>,
    /// The API behind.
    pub upstream: Upstream,
    /// Where records are kept.
    pub store: Store,
    /// How keys are sent.
    pub keys: Keys,
    /// What fingerprints are keyed with.
    pub fingerprint: FingerprintKeys,
    /// What is done beside requests.
    pub background: Background,
    /// The listener for operators.
    pub admin: Admin,
    /// What is logged.
    pub log: Log,
    /// What holds for POST and PATCH requests that no route names.
    pub defaults: Policy,
    /// The routes, the most specific first.
    pub routes: Vec<Route>,
    /// `--new-addresses`: an address scheme other than the store's is accepted.
    pub new_addresses: bool,
    /// The file that was read.
    pub file: Option<PathBuf>,
}

/// So many times the largest body must fit into memory: one client holds up to a quarter of it, and a part of that is for
/// small bodies.
pub(super) const BODIES_IN_MEMORY_MIN: usize = 5;

impl Config {
    /// The least that `server.memory_max` may be.
    #[must_use]
    pub fn memory_needed(&self) -> usize {
        let policies = self.routes.iter().map(|route| &route.policy).chain([&self.defaults]);
        let largest = policies.map(|policy| policy.request_bytes_max.max(policy.answer_bytes_max)).max().unwrap_or(0);
        // What is above that limit is refused as it is.
        largest.min(hapax_core::limits::BODY_BYTES_MAX) * BODIES_IN_MEMORY_MIN
    }
}

/// `[server]`: the side of the clients.
#[derive(Clone, Debug, PartialEq)]
pub struct Server {
    /// The address to listen on.
    pub from: SocketAddr,
    /// Certificate and key files; `None` means plain HTTP.
    pub tls: Option<Tls>,
    /// Connections at a time; when all are taken, whoever has waited longest for its client is closed, or others wait.
    pub connections_max: NonZeroU32,
    /// Connections of one client address, if it is no trusted peer.
    pub connections_per_client_max: NonZeroU32,
    /// Attempts in flight, those whose client hung up included.
    pub attempts_max: NonZeroU32,
    /// Those of one client.
    pub attempts_per_client_max: NonZeroU32,
    /// Fields of a request's header.
    pub header_count_max: NonZeroU32,
    /// Bytes of a request's header.
    pub header_bytes_max: usize,
    /// How long a request's header may take.
    pub header_timeout: Duration,
    /// How long a request's body may make no progress.
    pub body_timeout: Duration,
    /// Bytes per second that a request's body must have on the average.
    pub body_rate_min: Option<NonZeroU32>,
    /// How long a client may not read its answer.
    pub write_timeout: Duration,
    /// Bytes per second that a client must read of its answer on the average.
    pub write_rate_min: Option<NonZeroU32>,
    /// How long a tunnel may be without a byte.
    pub tunnel_idle_timeout: Duration,
    /// How long a connection may be idle between requests.
    pub keep_alive: Duration,
    /// Requests at a time on one HTTP/2 connection.
    pub h2_streams_max: NonZeroU32,
    /// Streams that an HTTP/2 client may reset before they were looked at.
    pub h2_resets_max: NonZeroU32,
    /// Bytes of request bodies and of recorded or replayed responses in memory, together.
    pub memory_max: usize,
    /// How long running requests have at shutdown.
    pub drain: Duration,
    /// How long requests are still accepted after SIGTERM, while `/readyz` says that the node is draining.
    pub drain_delay: Duration,
    /// The header field that holds a request's id.
    pub request_id_header: HeaderName,
    /// Peers whose `Forwarded` and `X-Forwarded-*` are believed.
    pub trusted_peers: Vec<Network>,
    /// New keys per second and client address that may come to nothing.
    pub client_new_keys_per_second: Option<NonZeroU32>,
    /// Look-ups per second and client address.
    pub client_lookups_per_second: Option<NonZeroU32>,
}

/// A certificate and its key.
#[derive(Clone, Debug, PartialEq)]
pub struct Tls {
    /// The certificate chain, PEM.
    pub cert: PathBuf,
    /// The private key, PEM.
    pub key: PathBuf,
}

/// `[cors]`
#[derive(Clone, Debug, PartialEq)]
pub struct Cors {
    /// Origins, or `*`.
    pub origins: Vec<HeaderValue>,
    /// Pages may send cookies and other credentials.
    pub credentials: bool,
    /// Header fields that pages may read.
    pub expose_headers: Vec<HeaderName>,
}

/// `[upstream]`: the API behind.
#[derive(Clone, Debug, PartialEq)]
pub struct Upstream {
    /// Scheme, host and port.
    pub to: Uri,
    /// How long a connection may take, TLS included; over HTTP/2, a connection and a free stream on it.
    pub connect_timeout: Duration,
    /// How long a whole answer may take.
    pub answer_timeout: Duration,
    /// Certificates that are trusted besides the system's, PEM.
    pub ca_file: Option<PathBuf>,
    /// How long a connection is kept for the next request. Shorter than what the upstream allows.
    pub idle_timeout: Duration,
    /// Idle connections kept.
    pub idle_connections_max: NonZeroU32,
    /// HTTP/2 is offered over TLS.
    pub h2: bool,
    /// HTTP/2 is spoken without TLS, unasked.
    pub h2c: bool,
    /// The client's `Host` is passed on; otherwise the upstream's own name is sent.
    pub keep_host: bool,
}

/// `[store]`: where records are kept.
#[derive(Clone, Debug, PartialEq)]
pub struct Store {
    /// Which store.
    pub backend: Backend,
    /// A store that can lose an acknowledged write is refused: memory, and a PostgreSQL server without a synchronous standby.
    pub strict: bool,
    /// PostgreSQL: there is one server, and nothing takes over from it; `strict` then asks for no standby.
    pub single_node: bool,
    /// PostgreSQL: the schema of hapax's tables.
    pub schema: String,
    /// PostgreSQL: certificates that are trusted besides the system's, PEM. With it, TLS is required.
    pub ca_file: Option<PathBuf>,
    /// PostgreSQL: there is a transaction pooler in front.
    pub pooler: bool,
    /// PostgreSQL: connections for writing.
    pub connections: NonZeroU32,
    /// How long one operation may take.
    pub timeout: Duration,
    /// Failures in a row after which new claims are refused for a while.
    pub breaker_failures: NonZeroU32,
    /// How long they are refused before the store is tried again.
    pub breaker_pause: Duration,
    /// Records beyond which new keys are refused.
    pub rows_max: Option<NonZeroU32>,
    /// Bytes beyond which new keys are refused.
    pub bytes_max: Option<usize>,
    /// SQLite: bytes of the disk below which new keys are refused, or a tenth of the disk if that is less.
    pub free_disk_min: Option<usize>,
}

/// A store.
#[derive(Clone, Debug, PartialEq)]
pub enum Backend {
    /// A file on this host.
    Sqlite {
        /// The file.
        path: PathBuf,
    },
    /// A database server.
    Postgres {
        /// The URL, with its password.
        url: Secret,
        /// The URL with nothing secret in it, for people.
        shown: String,
    },
    /// Nothing survives a restart.
    Memory,
}

/// `scope` and `anonymous`: whose key it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Scope {
    /// The kinds, which together make the identity; at least one.
    pub kinds: Vec<ScopeKind>,
    /// Requests without a credential share one scope.
    pub anonymous: bool,
}

/// One part of a caller's identity.
#[derive(Clone, Debug, PartialEq)]
pub enum ScopeKind {
    /// A digest of `Authorization`.
    Credential,
    /// A digest of another header that holds a secret.
    CredentialHeader(HeaderName),
    /// A digest of a cookie that holds a secret.
    CredentialCookie(String),
    /// A name that a gateway in front sets.
    Header(HeaderName),
    /// A claim of a verified token.
    Jwt(Jwt),
    /// What an authentication endpoint says.
    Ask(Ask),
    /// There is one tenant.
    Single,
}

/// `[jwt]`: how tokens are verified.
#[derive(Clone, Debug, PartialEq)]
pub struct Jwt {
    /// Algorithms that are accepted; at least one.
    pub algorithms: Vec<JwtAlgorithm>,
    /// Where the keys are.
    pub keys: JwtKeys,
    /// Audiences of which a token must name one; empty accepts only tokens that name none.
    pub audience: Vec<String>,
    /// Issuers of which a token must name one; empty accepts any whose key is known.
    pub issuer: Vec<String>,
    /// The claim that names the caller.
    pub claim: String,
    /// Where the token stands, if not in `Authorization: Bearer`.
    pub token_in: Option<Place>,
    /// How far clocks may differ.
    pub leeway: Duration,
    /// Certificates that are trusted besides the system's when keys are fetched, PEM.
    pub ca_file: Option<PathBuf>,
}

/// A place in the head of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A header field.
    Header(HeaderName),
    /// A cookie.
    Cookie(String),
}

/// Where the keys of tokens are.
#[derive(Clone, PartialEq)]
pub enum JwtKeys {
    /// One key: a PEM file, or a secret for HS256.
    File(PathBuf),
    /// A JWKS in a file.
    JwksFile(PathBuf),
    /// A JWKS behind a URL.
    JwksUrl(Uri),
}

/// `[ask]`: an endpoint that names the tenant of a request.
#[derive(Clone, PartialEq)]
pub struct Ask {
    /// The endpoint.
    pub url: Uri,
    /// The field of its answer that names the tenant.
    pub tenant_header: HeaderName,
    /// How long it may take.
    pub timeout: Duration,
    /// Fields of the request that it gets to see.
    pub pass_headers: Vec<HeaderName>,
    /// How long an answer is remembered.
    pub cache: Option<Duration>,
    /// Questions at a time.
    pub at_once: NonZeroU32,
    /// Certificates that are trusted besides the system's, PEM.
    pub ca_file: Option<PathBuf>,
    /// The endpoint may be asked over plain http beyond this machine.
    pub allow_http: bool,
}

/// Without the query of a URL, which may hold a secret.
impl fmt::Debug for JwtKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::JwksFile(path) => f.debug_tuple("JwksFile").field(path).finish(),
            Self::JwksUrl(url) => f.debug_tuple("JwksUrl").field(&without_query(url)).finish(),
        }
    }
}

/// Without the query of the URL, which may hold a secret.
impl fmt::Debug for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ask")
            .field("url", &without_query(&self.url))
            .field("tenant_header", &self.tenant_header)
            .field("timeout", &self.timeout)
            .field("pass_headers", &self.pass_headers)
            .field("cache", &self.cache)
            .field("at_once", &self.at_once)
            .field("ca_file", &self.ca_file)
            .field("allow_http", &self.allow_http)
            .finish()
    }
}

/// `[keys]`: how keys are sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Keys {
    /// The header fields that hold a key, the preferred one first.
    pub headers: Vec<HeaderName>,
    /// How a key may be spelled.
    pub syntax: KeySyntax,
    /// Unfinished keys of one caller.
    pub active_max: Option<NonZeroU32>,
}

/// `[fingerprint]`: what fingerprints are keyed with.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FingerprintKeys {
    /// The key for new records; `None` means plain SHA-256.
    pub current: Option<HmacKey>,
    /// Keys of records that still stand.
    pub older: Vec<HmacKey>,
}

/// A key of fingerprints.
#[derive(Clone, Debug, PartialEq)]
pub struct HmacKey {
    /// What it is called in a record's scheme.
    pub id: String,
    /// The key.
    pub secret: Secret,
}

/// `[background]`: what is done beside requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Background {
    /// How often attempts that died are looked for.
    pub sweep_every: Duration,
    /// How often expired records are deleted.
    pub reap_every: Duration,
    /// How often unknown records that are due are probed.
    pub reconcile_every: Duration,
}

impl Default for Background {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { sweep_every: seconds(5), reap_every: seconds(60), reconcile_every: seconds(5) }
    }
}

/// `[admin]`: the listener for operators.
#[derive(Clone, Debug, PartialEq)]
pub struct Admin {
    /// The address to listen on; `None` for no such listener.
    pub from: Option<SocketAddr>,
    /// What an operator has to show.
    pub token: Option<Secret>,
    /// Names besides addresses and `localhost` under which the listener may be asked.
    pub hosts: Vec<String>,
    /// Nothing can be changed through the listener, whatever is shown.
    pub read_only: bool,
    /// More tokens, each with a name and a role.
    pub tokens: Vec<AdminToken>,
}

/// `[[admin.tokens]]`: what somebody has to show, and what that allows.
#[derive(Clone, Debug, PartialEq)]
pub struct AdminToken {
    /// Who acts, in the audit log.
    pub name: String,
    /// What it allows.
    pub role: Role,
    /// The token.
    pub value: Secret,
}

/// `[log]`: what is logged.
#[derive(Clone, Debug, PartialEq)]
pub struct Log {
    /// How.
    pub format: LogFormat,
    /// How much: a level, or levels per part such as `info,hapax_server=debug`.
    pub level: String,
    /// Lines of each kind that requests cause, in a second; `None` for any number.
    pub requests_per_second: Option<NonZeroU32>,
}

/// `[[route]]`: what holds for some requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// Their methods.
    pub methods: Vec<Method>,
    /// Their paths.
    pub path: Pattern,
    /// What holds, complete.
    pub policy: Policy,
}

impl Config {
    /// The defaults, in front of that upstream.
    #[must_use]
    pub fn new(to: Uri) -> Self {
        Self {
            mode: Mode::default(),
            dialect: Dialect::default(),
            scope: Scope::default(),
            ask: None,
            server: Server::default(),
            cors: None,
            upstream: Upstream::new(to),
            store: Store::default(),
            keys: Keys::default(),
            fingerprint: FingerprintKeys::default(),
            background: Background::default(),
            admin: Admin::default(),
            log: Log::default(),
            defaults: Policy::default(),
            routes: Vec::new(),
            new_addresses: false,
            file: None,
        }
    }

    /// The routes that match, the most specific first. The path is normalised.
    pub fn routes_for<'a>(&'a self, method: &'a Method, path: &'a str) -> impl Iterator<Item = &'a Route> {
        self.routes.iter().filter(move |route| route.methods.contains(method) && route.path.matches(path))
    }
}

impl Backend {
    /// The store's name and place, without anything secret.
    #[must_use]
    pub fn shown(&self) -> String {
        match self {
            Self::Sqlite { path } => format!("sqlite:{}", path.display()),
            Self::Postgres { shown, .. } => shown.clone(),
            Self::Memory => "memory:".to_owned(),
        }
    }
}

impl Default for Server {
    fn default() -> Self {
        Self {
            from: SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)),
            tls: None,
            connections_max: count(10_000),
            connections_per_client_max: count(7_500),
            attempts_max: count(10_000),
            attempts_per_client_max: count(7_500),
            header_count_max: count(100),
            header_bytes_max: 32 * 1024,
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            body_rate_min: Some(count(500)),
            write_timeout: Duration::from_secs(60),
            write_rate_min: Some(count(500)),
            tunnel_idle_timeout: Duration::from_secs(10 * 60),
            keep_alive: Duration::from_secs(75),
            h2_streams_max: count(200),
            h2_resets_max: count(20),
            memory_max: hapax::http::MEMORY_BYTES_MAX,
            drain: Duration::from_secs(30),
            drain_delay: Duration::ZERO,
            request_id_header: HeaderName::from_static("x-request-id"),
            trusted_peers: Vec::new(),
            // More than an honest client's mistakes, and more than a shared address's beside its good requests; a sprayer
            // leaves less than a hundred megabytes, for as long as `not_stored_retention`.
            client_new_keys_per_second: NonZeroU32::new(100),
            // A storm of retries behind one address is what hapax is for.
            client_lookups_per_second: None,
        }
    }
}

impl Upstream {
    /// The defaults, in front of that upstream.
    #[must_use]
    pub fn new(to: Uri) -> Self {
        Self {
            to,
            connect_timeout: Duration::from_secs(5),
            answer_timeout: Duration::from_secs(60),
            ca_file: None,
            idle_timeout: Duration::from_secs(1),
            idle_connections_max: count(512),
            h2: true,
            h2c: false,
            keep_host: true,
        }
    }
}

impl Default for Store {
    fn default() -> Self {
        Self {
            backend: Backend::Sqlite { path: "hapax.db".into() },
            strict: false,
            single_node: false,
            schema: "hapax".to_owned(),
            ca_file: None,
            pooler: false,
            connections: count(4),
            timeout: Duration::from_secs(5),
            breaker_failures: count(5),
            breaker_pause: Duration::from_secs(2),
            rows_max: None,
            bytes_max: None,
            // The log of an SQLite file, and the answers of some ten thousand attempts that run.
            free_disk_min: Some(64 * 1024 * 1024),
        }
    }
}

impl Default for Keys {
    fn default() -> Self {
        Self {
            headers: vec![HeaderName::from_static("idempotency-key")],
            syntax: KeySyntax::Lenient,
            // What an upstream that loses every answer leaves in a minute and a half at 500 requests a second.
            active_max: NonZeroU32::new(50_000),
        }
    }
}

impl Default for Admin {
    fn default() -> Self {
        let from = Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 9180)));
        Self { from, token: None, hosts: Vec::new(), read_only: false, tokens: Vec::new() }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self { format: LogFormat::Auto, level: "info".to_owned(), requests_per_second: NonZeroU32::new(100) }
    }
}

impl Default for Scope {
    fn default() -> Self {
        Self { kinds: vec![ScopeKind::Credential], anonymous: false }
    }
}

/// A number that is known to be above 0.
pub(super) fn count(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN)
}
