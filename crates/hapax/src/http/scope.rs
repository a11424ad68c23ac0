//! Whose key it is, as a function of the request's head.
//!
//! Two callers may choose the same key, so a key counts only together with its caller. The caller comes from something
//! that was verified, never from the body, and there is no silent shared default: where nobody can tell, the request is
//! refused.

use std::future::Future;
use std::pin::Pin;

use hapax_core::address::Scope;
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

/// A future in a box, so that a [`Scopes`] can be chosen at run time.
pub type Asked<'a, T> = Pin<Box<dyn Future<Output = Result<T, NoScope>> + Send + 'a>>;

/// Tells whose key a request carries.
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

/// One tenant, said out loud.
///
/// # Errors
/// Never; it has the form that [`IdempotencyLayer::new`](crate::http::IdempotencyLayer::new) wants.
pub fn single_tenant(_parts: &Parts) -> Result<Scope, NoScope> {
    Scope::new("single").map_err(|error| NoScope::Missing(error.to_string()))
}
