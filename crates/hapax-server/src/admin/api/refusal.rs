//! Why nothing is done: a status, one cause, one next step.

use http::StatusCode;
use http::header::{ALLOW, HeaderValue, RETRY_AFTER};

use crate::admin::access::Closed;
use crate::admin::reply::{self, Answer};
use crate::desk::{DeskError, DeskErrorKind};

/// A refusal.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) kind: &'static str,
    pub(super) detail: String,
    /// The methods there are.
    pub(super) allow: Option<&'static str>,
    closed: Option<Closed>,
}

impl Refusal {
    fn new(status: StatusCode, kind: &'static str, detail: impl Into<String>) -> Self {
        Self { status, kind, detail: detail.into(), allow: None, closed: None }
    }

    /// The request makes no sense.
    pub(super) fn invalid(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid", detail)
    }

    /// The same, where HTTP has a word of its own for it.
    pub(super) fn invalid_as(status: StatusCode, detail: impl Into<String>) -> Self {
        Self::new(status, "invalid", detail)
    }

    pub(super) fn no_such_path() -> Self {
        Self::invalid_as(StatusCode::NOT_FOUND, "There is no such path. /v1/openapi.json names all there are.")
    }

    pub(super) fn other_method(allow: &'static str) -> Self {
        let detail = format!("This path has another method. Use {allow}.");
        Self { allow: Some(allow), ..Self::invalid_as(StatusCode::METHOD_NOT_ALLOWED, detail) }
    }

    /// Others are asking already.
    pub(super) fn busy() -> Self {
        let detail = "Too many requests of the admin API run at the same time. Try again in a second.";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", detail)
    }

    pub(super) fn into_answer(self) -> Answer {
        if let Some(closed) = self.closed {
            return reply::refuse(closed);
        }
        let mut answer = reply::problem_of_kind(self.status, Some(self.kind), &self.detail);
        if let Some(allow) = self.allow {
            answer.headers_mut().insert(ALLOW, HeaderValue::from_static(allow));
        }
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        answer
    }
}

impl From<Closed> for Refusal {
    fn from(closed: Closed) -> Self {
        Self { closed: Some(closed), ..Self::new(closed.status(), "forbidden", closed.detail()) }
    }
}

impl From<DeskError> for Refusal {
    fn from(error: DeskError) -> Self {
        let (status, kind) = match error.kind {
            DeskErrorKind::Invalid => (StatusCode::BAD_REQUEST, "invalid"),
            DeskErrorKind::NotFound => (StatusCode::NOT_FOUND, "not-found"),
            DeskErrorKind::Several => (StatusCode::CONFLICT, "several"),
            DeskErrorKind::Conflict => (StatusCode::CONFLICT, "conflict"),
            DeskErrorKind::Forbidden => (StatusCode::FORBIDDEN, "forbidden"),
            DeskErrorKind::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
        };
        Self::new(status, kind, error.message)
    }
}
