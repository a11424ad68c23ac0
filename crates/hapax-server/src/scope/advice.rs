//! What an operator should configure, said in the log when clients are refused for want of it.
//!
//! The client that is refused cannot change the configuration, and need not read about it. A cause is said when it is met
//! first, and then at most every [`PAUSE`], however many requests have it: whoever sends requests must not fill the log.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// Between two lines about one cause.
const PAUSE: Duration = Duration::from_secs(10 * 60);

/// One cause, and what can be done about it.
pub(super) struct Advice {
    text: &'static str,
    /// Milliseconds since the first of all was said, plus one; 0: never.
    said_at_ms: AtomicU64,
}

/// Requests without `Authorization`, for `credential`.
pub(super) static NO_CREDENTIAL: Advice = Advice::new(
    "a request without Authorization was refused; if callers identify themselves otherwise, configure another scope \
     (\"jwt\", \"ask\", \"credential:NAME\", \"header:NAME\", \"single\"), or anonymous = true where the upstream does not \
     tell callers apart",
);

/// Schemes that sign every request, or that nobody knows, for `credential`.
pub(super) static OTHER_SCHEME: Advice = Advice::new(
    "a request was refused whose Authorization is neither Basic nor Bearer, so it may change between a request and its \
     retry; if callers use it, configure scope = \"ask\" (or \"jwt\", where they have a signed bearer token)",
);

/// Tokens for `credential`.
pub(super) static TOKEN_AS_CREDENTIAL: Advice = Advice::new(
    "a request was refused whose credential is a JSON Web Token, which is renewed, so a retry could carry another one; \
     if callers use tokens, configure scope = \"jwt\" (or \"ask\")",
);

/// Opaque credentials for `jwt`.
pub(super) static NOT_A_TOKEN: Advice = Advice::new(
    "a request was refused whose credential is not a signed JSON Web Token; if callers use opaque credentials, configure \
     scope = \"credential\" (or \"ask\")",
);

/// Tokens of issuers that are not configured.
pub(super) static OTHER_ISSUER: Advice = Advice::new(
    "a token was refused because its issuer is not one that is configured; if it should be accepted, add it to jwt.issuer",
);

/// Tokens for audiences that are not configured.
pub(super) static OTHER_AUDIENCE: Advice = Advice::new(
    "a token was refused because its audience is not one that is configured; if it should be accepted, add it to \
     jwt.audience",
);

/// An endpoint that names no tenant as it should.
pub(super) static UNFIT_TENANT: Advice = Advice::new(
    "the authentication endpoint accepted a caller without naming exactly one tenant of at most 250 printable \
     characters; correct its answer, or ask.tenant_header",
);

impl Advice {
    const fn new(text: &'static str) -> Self {
        Self { text, said_at_ms: AtomicU64::new(0) }
    }

    /// Logs it, unless it was logged a moment ago.
    pub(super) fn log(&self) {
        static FIRST: OnceLock<Instant> = OnceLock::new();
        let now = u64::try_from(FIRST.get_or_init(Instant::now).elapsed().as_millis()).unwrap_or(u64::MAX - 1) + 1;
        if self.is_due(now) {
            tracing::warn!("{}", self.text);
        }
    }

    /// Whether to say it now; true for one of many who ask at once.
    fn is_due(&self, now_ms: u64) -> bool {
        let pause_ms = PAUSE.as_millis() as u64;
        let due = |said| (said == 0 || now_ms.saturating_sub(said) >= pause_ms).then_some(now_ms);
        self.said_at_ms.try_update(Ordering::Relaxed, Ordering::Relaxed, due).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_said_at_once_and_then_once_in_a_while() {
        let advice = Advice::new("text");
        let due = |now_ms| advice.is_due(now_ms);
        assert!(due(1));
        assert!((2..1000).all(|now_ms| !due(now_ms)));
        assert!(!due(600_000) && due(600_001) && !due(600_002));
    }
}
