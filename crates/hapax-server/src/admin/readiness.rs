//! Is this process fit to take requests, and if not, why?
//!
//! The admin listener asks; whoever runs the proxy knows. Liveness is not asked here: a process whose store is away is
//! alive, and restarting it would help nobody.

use std::time::Duration;

/// Checks that take longer have failed: a prober gives up after a second or two itself.
const LIMIT: Duration = Duration::from_secs(2);

/// One thing that must be in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// What is looked at: `store`, `clock`, `breaker`, `descriptors`, `draining`, `migration`.
    pub name: &'static str,
    /// Whether it is in order.
    pub ok: bool,
    /// What was found, for people. No secret, key or tenant.
    pub detail: String,
}

impl Check {
    /// It is in order.
    pub fn passed(name: &'static str, detail: impl Into<String>) -> Self {
        Self { name, ok: true, detail: detail.into() }
    }

    /// It is not.
    pub fn failed(name: &'static str, detail: impl Into<String>) -> Self {
        Self { name, ok: false, detail: detail.into() }
    }
}

/// Who knows whether requests can be taken.
pub trait Readiness: Send + Sync + 'static {
    /// Looks at everything now. Ready means that every check passed.
    fn checks(&self) -> impl Future<Output = Vec<Check>> + Send;
}

/// Asks, for a limited time.
pub(super) async fn ask(readiness: &impl Readiness) -> Vec<Check> {
    match tokio::time::timeout(LIMIT, readiness.checks()).await {
        Ok(checks) => checks,
        Err(_) => vec![Check::failed("checks", format!("no answer within {} s", LIMIT.as_secs()))],
    }
}
