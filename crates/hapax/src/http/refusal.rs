//! Refusals: answers that hapax gives instead of the service behind it.
//!
//! Each is `application/problem+json` (RFC 9457) with a stable type, one cause and one next step, and is described in
//! `docs/problems/<code>.md`. None may be kept by a cache, and none is ever recorded but the answers to what was given up and to what never ran.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, Response, StatusCode};

/// Why a request was not run, or its answer not given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Problem {
    /// There is no key, and the route wants one.
    KeyMissing,
    /// The key is not one that is accepted.
    KeyMalformed,
    /// Nobody can tell whose key it is.
    ScopeMissing,
    /// Whoever knows whose key it is cannot be asked.
    ScopeUnavailable,
    /// The request is older than the route accepts.
    RequestTooOld,
    /// The request's body is framed in a way that cannot be understood.
    BadFraming,
    /// The request's body ended early or came too slowly.
    BodyIncomplete,
    /// The request's body is larger than the route accepts.
    BodyTooLarge,
    /// Another attempt is running, or the next one is not due yet.
    InProgress,
    /// Nobody knows whether the last attempt had its effect.
    OutcomeUnknown,
    /// An operator gave the request up. The only one that is recorded: it is the answer from then on.
    GivenUp,
    /// The request was accepted, and its time was over before it ran. Recorded as well, by [`reap`](crate::reap).
    NeverRan,
    /// The key was used for another request.
    KeyReused,
    /// The answer was too large or streamed, and was not kept.
    AnswerNotKept,
    /// The caller may no longer see the recorded answer.
    ReplayRefused,
    /// The key was used and has expired.
    KeyExpired,
    /// The caller uses too many new keys, or looks up too many.
    TooMany,
    /// Too many attempts are in flight, in all or for this client.
    TooManyInFlight,
    /// The store cannot prove the claim.
    StoreUnavailable,
    /// The store has no room for new keys.
    StoreFull,
    /// Requests hold as much memory as they may.
    MemoryFull,
    /// The service behind could not be reached; nothing happened.
    UpstreamUnreachable,
}

impl Problem {
    /// Every problem, in the order of the contract's table.
    pub const ALL: [Self; 22] = [
        Self::KeyMissing,
        Self::KeyMalformed,
        Self::ScopeMissing,
        Self::ScopeUnavailable,
        Self::RequestTooOld,
        Self::BadFraming,
        Self::BodyIncomplete,
        Self::BodyTooLarge,
        Self::InProgress,
        Self::OutcomeUnknown,
        Self::GivenUp,
        Self::NeverRan,
        Self::KeyReused,
        Self::AnswerNotKept,
        Self::ReplayRefused,
        Self::KeyExpired,
        Self::TooMany,
        Self::TooManyInFlight,
        Self::StoreUnavailable,
        Self::StoreFull,
        Self::MemoryFull,
        Self::UpstreamUnreachable,
    ];

    /// The last part of its type, and its word in metrics and documents.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::KeyMissing => "key-missing",
            Self::KeyMalformed => "key-malformed",
            Self::ScopeMissing => "scope-missing",
            Self::ScopeUnavailable => "scope-unavailable",
            Self::RequestTooOld => "request-too-old",
            Self::BadFraming => "bad-framing",
            Self::BodyIncomplete => "body-incomplete",
            Self::BodyTooLarge => "body-too-large",
            Self::InProgress => "in-progress",
            Self::OutcomeUnknown => "outcome-unknown",
            Self::GivenUp => "given-up",
            Self::NeverRan => "never-ran",
            Self::KeyReused => "key-reused",
            Self::AnswerNotKept => "answer-not-kept",
            Self::ReplayRefused => "replay-refused",
            Self::KeyExpired => "key-expired",
            Self::TooMany => "too-many",
            Self::TooManyInFlight => "too-many-in-flight",
            Self::StoreUnavailable => "store-unavailable",
            Self::StoreFull => "store-full",
            Self::MemoryFull => "memory-full",
            Self::UpstreamUnreachable => "upstream-unreachable",
        }
    }

    /// What it is, in a few words that never change.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::KeyMissing => "Idempotency-Key is missing",
            Self::KeyMalformed => "Idempotency-Key is malformed",
            Self::ScopeMissing => "No usable caller identity",
            Self::ScopeUnavailable => "The caller's identity cannot be established now",
            Self::RequestTooOld => "The request is too old",
            Self::BadFraming => "The request's framing is unsafe",
            Self::BodyIncomplete => "The request body is incomplete",
            Self::BodyTooLarge => "The request body is too large",
            Self::InProgress => "A request is outstanding for this Idempotency-Key",
            Self::OutcomeUnknown => "The outcome of this request is not known",
            Self::GivenUp => "The request was given up",
            Self::NeverRan => "The request was accepted and never ran",
            Self::KeyReused => "Idempotency-Key is already used",
            Self::AnswerNotKept => "The answer to this request was not kept",
            Self::ReplayRefused => "The recorded answer is not for this caller any more",
            Self::KeyExpired => "Idempotency-Key has expired",
            Self::TooMany => "Too many requests",
            Self::TooManyInFlight => "Too many requests are being carried out",
            Self::StoreUnavailable => "Idempotency cannot be guaranteed now",
            Self::StoreFull => "There is no room for new keys now",
            Self::MemoryFull => "There is no memory for this request now",
            Self::UpstreamUnreachable => "The service could not be reached",
        }
    }

    /// The status it usually has.
    #[must_use]
    pub const fn status(self) -> StatusCode {
        match self {
            Self::KeyMissing
            | Self::KeyMalformed
            | Self::ScopeMissing
            | Self::RequestTooOld
            | Self::BadFraming
            | Self::BodyIncomplete => StatusCode::BAD_REQUEST,
            Self::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::InProgress | Self::OutcomeUnknown | Self::AnswerNotKept => StatusCode::CONFLICT,
            Self::GivenUp => StatusCode::INTERNAL_SERVER_ERROR,
            Self::NeverRan => StatusCode::REQUEST_TIMEOUT,
            Self::KeyReused => StatusCode::UNPROCESSABLE_ENTITY,
            Self::ReplayRefused => StatusCode::FORBIDDEN,
            Self::KeyExpired => StatusCode::GONE,
            Self::TooMany => StatusCode::TOO_MANY_REQUESTS,
            Self::TooManyInFlight
            | Self::StoreUnavailable
            | Self::StoreFull
            | Self::ScopeUnavailable
            | Self::MemoryFull => StatusCode::SERVICE_UNAVAILABLE,
            Self::UpstreamUnreachable => StatusCode::BAD_GATEWAY,
        }
    }
}

/// How soon to come back when there is no memory: most requests are over by then.
const MEMORY_RETRY_AFTER: Duration = Duration::from_secs(2);

const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");
const STRIPE_SHOULD_RETRY: HeaderName = HeaderName::from_static("stripe-should-retry");

/// Tells SDKs that obey such fields whether a retry can help.
pub(crate) fn say_should_retry(headers: &mut HeaderMap, should: bool) {
    let value = HeaderValue::from_static(if should { "true" } else { "false" });
    headers.insert(SHOULD_RETRY, value.clone());
    headers.insert(STRIPE_SHOULD_RETRY, value);
}

/// Among the extensions of an answer that hapax gives in place of the service behind. Cross-origin fields are added to it, as
/// they are to every refusal, wherever it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Refused;

/// Among the extensions of a refusal whose request was not read to its end. Whoever holds the connection has to close it, and
/// says so: what comes next on it is the rest of that request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BodyUnread;

/// A problem with what is to be said about this one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Which problem.
    pub problem: Problem,
    /// The status, where it is not the usual one.
    pub status: StatusCode,
    /// One cause and one next step.
    pub detail: String,
    /// When to come back.
    pub retry_after: Option<Duration>,
    should_retry: Option<bool>,
    body_unread: bool,
    challenge: Option<HeaderValue>,
}

impl Refusal {
    /// A refusal with its usual status.
    #[must_use]
    pub fn new(problem: Problem, detail: impl Into<String>) -> Self {
        let should_retry = match problem {
            Problem::InProgress => Some(true),
            Problem::KeyReused | Problem::AnswerNotKept => Some(false),
            _ => None,
        };
        Self {
            problem,
            status: problem.status(),
            detail: detail.into(),
            retry_after: None,
            should_retry,
            body_unread: false,
            challenge: None,
        }
    }

    /// There is no memory for a request, or for its recorded response. What was not read of it stays unread.
    pub(crate) fn memory_full(what: &str) -> Self {
        let detail = format!(
            "this node holds as much in memory as it may for requests, so {what}; nothing was run; send the same request \
             again after `Retry-After`"
        );
        Self::new(Problem::MemoryFull, detail).with_retry_after(MEMORY_RETRY_AFTER)
    }

    /// With another status.
    #[must_use]
    pub fn with_status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    /// With a time to come back after, at least a second.
    #[must_use]
    pub fn with_retry_after(mut self, after: Duration) -> Self {
        self.retry_after = Some(after);
        self
    }

    /// 401, with that value of `WWW-Authenticate`.
    #[must_use]
    pub fn with_challenge(mut self, challenge: HeaderValue) -> Self {
        self.status = StatusCode::UNAUTHORIZED;
        self.challenge = Some(challenge);
        self
    }

    /// For a request whose body was read to its end, or not.
    #[must_use]
    pub(crate) fn with_body_read(mut self, read: bool) -> Self {
        self.body_unread = !read;
        self
    }

    /// The response, with [`Refused`] among its extensions, and [`BodyUnread`] where that is so. `request_id` finds it in the logs.
    #[must_use]
    pub fn into_response(self, request_id: Option<&str>) -> Response<Bytes> {
        let mut problem = serde_json::json!({
            "type": format!("urn:hapax:problem:{}", self.problem.code()),
            "title": self.problem.title(),
            "status": self.status.as_u16(),
            "detail": self.detail,
        });
        // Some SDKs look for this member and not at the status.
        problem["error"] = serde_json::json!({
            "type": "idempotency_error", "code": self.problem.code(), "message": self.detail,
        });
        if let Some(id) = request_id {
            problem["request_id"] = id.into();
        }
        let mut response = Response::new(Bytes::from(problem.to_string()));
        *response.status_mut() = self.status;
        response.extensions_mut().insert(Refused);
        if self.body_unread {
            response.extensions_mut().insert(BodyUnread);
        }
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(after) = self.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds(after)));
        }
        if let Some(challenge) = self.challenge {
            headers.insert(WWW_AUTHENTICATE, challenge);
        }
        if let Some(should) = self.should_retry {
            say_should_retry(headers, should);
        }
        response
    }
}

/// Whole seconds, rounded up, at least one: zero would mean "at once", all clients together.
pub(crate) fn seconds(after: Duration) -> u64 {
    after.as_millis().div_ceil(1000).clamp(1, u128::from(u32::MAX)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_a_problem_document_that_no_cache_keeps() {
        let refusal = Refusal::new(Problem::InProgress, "wait").with_retry_after(Duration::from_millis(1200));
        let response = refusal.into_response(Some("r-1"));
        assert_eq!(response.status(), 409);
        let field = |name: &str| response.headers()[name].to_str().unwrap();
        assert_eq!(field("content-type"), "application/problem+json");
        assert_eq!(field("cache-control"), "no-store");
        assert_eq!(field("retry-after"), "2");
        assert_eq!((field("x-should-retry"), field("stripe-should-retry")), ("true", "true"));
        let document: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
        let expected = serde_json::json!({
            "type": "urn:hapax:problem:in-progress",
            "title": "A request is outstanding for this Idempotency-Key",
            "status": 409, "detail": "wait", "request_id": "r-1",
            "error": { "type": "idempotency_error", "code": "in-progress", "message": "wait" },
        });
        assert_eq!(document, expected);
    }

    #[test]
    fn codes_are_distinct() {
        let mut codes = Problem::ALL.map(Problem::code).to_vec();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), Problem::ALL.len());
    }
}
