//! Refusals: one status, one stable code, one cause with one next step, as `application/problem+json` (RFC 9457).

use bytes::Bytes;
use hapax::http::Problem as Known;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};

use crate::metric_names::REFUSED;

/// Why a request is not passed on, or not answered by the upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Problem {
    /// The answer's status.
    pub status: StatusCode,
    /// The last part of `urn:hapax:problem:<code>`.
    pub code: &'static str,
    /// The status in words.
    pub title: &'static str,
    /// The cause and the next step.
    pub detail: &'static str,
}

impl Problem {
    /// The answer that tells the client.
    pub fn response(&self) -> Response<Bytes> {
        self.document("")
    }

    /// The same; `request_id` finds it in the logs.
    pub fn response_to(&self, request_id: &str) -> Response<Bytes> {
        self.document(&format!(r#","request_id":"{request_id}""#))
    }

    /// Counts the refusal, and logs it.
    pub fn tell(&self, request_id: &str) {
        metrics::counter!(REFUSED, "reason" => self.code).increment(1);
        tracing::info!(target: hapax::log::REFUSED, code = self.code, status = self.status.as_u16(), request_id, "refused");
    }

    fn document(&self, members: &str) -> Response<Bytes> {
        let Problem { status, code, title, detail } = self;
        let number = status.as_u16();
        // Some SDKs look for the last of these members and not at the status.
        let text =
            format!(r#"{{"type":"urn:hapax:problem:{code}","title":"{title}","status":{number},"detail":"{detail}","#)
                + &format!(r#""error":{{"type":"idempotency_error","code":"{code}","message":"{detail}"}}{members}}}"#);
        let mut response = Response::new(Bytes::from(text));
        *response.status_mut() = *status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if *status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

/// One of every code that is said here, whatever its detail; see `docs/problems/<code>.md`.
pub const ALL: [Problem; 9] = [
    bad_framing(""),
    bad_host(""),
    HEAD_TOO_LARGE,
    TARGET_TOO_LONG,
    NO_TUNNELS,
    REQUEST_TIMEOUT,
    TOO_MANY_REQUESTS_AT_A_TIME,
    UPSTREAM_UNREACHABLE,
    OUTCOME_UNKNOWN,
];

/// A request whose framing cannot be read in exactly one way.
pub const fn bad_framing(detail: &'static str) -> Problem {
    Problem { status: StatusCode::BAD_REQUEST, code: "bad-framing", title: "The request's framing is unsafe", detail }
}

/// Whoever comes behind us may go by the other one.
pub const LENGTH_TWICE: Problem = bad_framing("Content-Length is given twice. Send it once.");

/// Whoever comes behind us may take the number for an octal one.
pub const LENGTH_WITH_ZERO: Problem = bad_framing("Content-Length begins with a zero. Send it without.");

/// A request that does not say clearly which host it is for.
pub const fn bad_host(detail: &'static str) -> Problem {
    Problem { status: StatusCode::BAD_REQUEST, code: "bad-host", title: "The request's host is unclear", detail }
}

/// The head of a request, field by field or as a whole, is larger than the limit.
pub const HEAD_TOO_LARGE: Problem = Problem {
    status: StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
    code: "head-too-large",
    title: "The request's header fields are too many or too large",
    detail: "Send fewer or shorter header fields.",
};

/// The target of a request is longer than the limit.
pub const TARGET_TOO_LONG: Problem = Problem {
    status: StatusCode::URI_TOO_LONG,
    code: "target-too-long",
    title: "The request's target is too long",
    detail: "Send long parameters in the body.",
};

/// CONNECT asks for a tunnel.
pub const NO_TUNNELS: Problem = not_allowed("This is a reverse proxy and opens no tunnels. Send the request itself.");

/// TRACE asks for the request as it arrives, with every field that was added on the way.
pub const NO_TRACE: Problem = not_allowed("Requests are not told back to their senders. Send another method.");

const fn not_allowed(detail: &'static str) -> Problem {
    let (status, code) = (StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed");
    Problem { status, code, title: "The method is not allowed", detail }
}

/// The client stopped sending in the middle of a request, or sends too slowly.
pub const REQUEST_TIMEOUT: Problem = Problem {
    status: StatusCode::REQUEST_TIMEOUT,
    code: "request-timeout",
    title: "The request did not arrive in time",
    detail: "The sender made too little progress for too long. Send the whole request again.",
};

/// The client's body ended too early.
pub const BODY_CUT_OFF: Problem = Problem {
    status: StatusCode::BAD_REQUEST,
    code: "bad-framing",
    title: "The request's framing is unsafe",
    detail: "The body broke off before its end. Send the whole request again.",
};

/// There is no room for one more request at this time.
pub const TOO_MANY_REQUESTS_AT_A_TIME: Problem = Problem {
    status: StatusCode::SERVICE_UNAVAILABLE,
    code: Known::TooManyInFlight.code(),
    title: Known::TooManyInFlight.title(),
    detail: "Too many requests are under way. Nothing was done for this one. Send it again after Retry-After.",
};

/// Nothing was sent to the upstream.
pub const UPSTREAM_UNREACHABLE: Problem = Problem {
    status: StatusCode::BAD_GATEWAY,
    code: Known::UpstreamUnreachable.code(),
    title: Known::UpstreamUnreachable.title(),
    detail: "The request was not sent to the upstream, so nothing happened. Send it again later.",
};

/// The upstream may have acted on the request.
pub const OUTCOME_UNKNOWN: Problem = Problem {
    status: StatusCode::GATEWAY_TIMEOUT,
    code: Known::OutcomeUnknown.code(),
    title: Known::OutcomeUnknown.title(),
    detail: "The request was sent, but no complete answer came back. Find out what happened before sending it again.",
};
