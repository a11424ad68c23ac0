//! Whose key it is, as a function of the request's head.
//!
//! Two callers may choose the same key, so a key counts only together with its caller. The caller comes from something
//! that was verified, never from the body, and there is no silent shared default: where nobody can tell, the request is
//! refused.

use std::future::Future;
use std::pin::Pin;

use hapax_core::address::{InvalidPart, Scope};
use http::HeaderValue;
use http::request::Parts;

/// Why there is no scope. The text has one cause and one next step, and no credential. The client reads it: what an
/// operator should configure belongs in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoScope {
    /// The request does not say, or not in a way that can be used: 400.
    Missing(String),
    /// Credentials are missing, have expired or are not valid, and other ones would do: 401. SDKs get a new token on that
    /// status, and on no other.
    Unauthorized {
        /// The value of `WWW-Authenticate`, such as `Bearer realm="api", error="invalid_token"`.
        challenge: HeaderValue,
        /// One cause and one next step, for the client.
        detail: String,
    },
    /// Whoever knows cannot be asked: 503.
    Unavailable(String),
}

/// A text that is no scope: with it `Ok(Scope::new(id)?)` is all that a scope function needs.
impl From<InvalidPart> for NoScope {
    fn from(error: InvalidPart) -> Self {
        Self::Missing(error.to_string())
    }
}

/// A future in a box, so that a [`Scopes`] can be chosen at run time.
pub type Asked<'a, T> = Pin<Box<dyn Future<Output = Result<T, NoScope>> + Send + 'a>>;

/// Tells whose key a request carries. Closures do so: a plain one is given to
/// [`IdempotencyLayer::new`](crate::http::IdempotencyLayer::new) as it is, one that returns a future through [`scope_async`].
/// Implement the trait where replays are checked as well:
///
/// ```
/// use hapax::http::{Asked, IdempotencyLayer, NoScope, Route, Scope, Scopes};
/// use http::request::Parts;
///
/// struct Accounts;
///
/// impl Scopes for Accounts {
///     fn of<'a>(&'a self, parts: &'a Parts) -> Asked<'a, Scope> {
///         let account = parts.headers.get("x-account").and_then(|value| value.to_str().ok());
///         let missing = || NoScope::Missing("send X-Account".into());
///         Box::pin(async move { Ok(Scope::new(account.ok_or_else(missing)?)?) })
///     }
///
///     fn may_replay<'a>(&'a self, _parts: &'a Parts, caller: &'a Scope) -> Asked<'a, bool> {
///         Box::pin(async move { Ok(caller.as_str() != "closed") })
///     }
/// }
///
/// let layer = IdempotencyLayer::with_scopes(hapax::Memory::new(), Accounts)
///     .with_default_route(Route::new().with_replay_check(true));
/// # let _ = layer;
/// ```
pub trait Scopes: Send + Sync + 'static {
    /// The caller of that request.
    fn of<'a>(&'a self, parts: &'a Parts) -> Asked<'a, Scope>;

    /// Whether the caller may still see what was recorded for it. Asked where the route has a replay check.
    fn may_replay<'a>(&'a self, _parts: &'a Parts, _caller: &'a Scope) -> Asked<'a, bool> {
        Box::pin(std::future::ready(Ok(true)))
    }
}

/// For a closure that needs nothing but the head.
impl<F> Scopes for F
where
    F: Fn(&Parts) -> Result<Scope, NoScope> + Send + Sync + 'static,
{
    fn of<'a>(&'a self, parts: &'a Parts) -> Asked<'a, Scope> {
        Box::pin(std::future::ready(self(parts)))
    }
}

/// Scopes by a closure that awaits something: a session in a database, a service that knows the caller.
///
/// The closure owns its copy of the head, so that `async move` may use it across an `.await`. Headers are shared by the copy, and
/// extensions cloned.
///
/// ```
/// use hapax::http::{IdempotencyLayer, NoScope, Scope, scope_async};
///
/// # async fn tenant_of(_session: &str) -> Option<String> { None }
/// let layer = IdempotencyLayer::with_scopes(
///     hapax::Memory::new(),
///     scope_async(|parts| async move {
///         let session = parts.headers.get("x-session").and_then(|value| value.to_str().ok()).unwrap_or_default();
///         let tenant = tenant_of(session).await.ok_or_else(|| NoScope::Missing("log in first".into()))?;
///         Ok(Scope::new(&tenant)?)
///     }),
/// );
/// # let _ = layer;
/// ```
pub fn scope_async<F, Fut>(scope_of: F) -> impl Scopes
where
    F: Fn(Parts) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Scope, NoScope>> + Send + 'static,
{
    ScopeAsync(scope_of)
}

struct ScopeAsync<F>(F);

impl<F, Fut> Scopes for ScopeAsync<F>
where
    F: Fn(Parts) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Scope, NoScope>> + Send + 'static,
{
    fn of<'a>(&'a self, parts: &'a Parts) -> Asked<'a, Scope> {
        Box::pin(self.0(parts.clone()))
    }
}

/// One tenant, said out loud: for [`IdempotencyLayer::new`](crate::http::IdempotencyLayer::new).
///
/// # Errors
/// Never; it has the form of a scope function.
pub fn single_tenant(_parts: &Parts) -> Result<Scope, NoScope> {
    Ok(Scope::new("single")?)
}
