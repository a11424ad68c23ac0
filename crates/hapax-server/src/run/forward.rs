//! The service behind the layer: the upstream, with what its failures mean.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use arc_swap::ArcSwap;
use hapax::http::{Claim, Happened, Problem, Refusal, Refused, RequestId};
use http::{HeaderMap, HeaderName, Request, Response, StatusCode};
use tower_service::Service;

use hapax_proxy::header_map::retain;
use hapax_proxy::metric_names::REFUSED;
use hapax_proxy::request_id::UPSTREAM_REQUEST_ID;
use hapax_proxy::{Body, Failure, Upstream, problem};

/// How soon to come back and find out: the doubt is recorded by then.
const DOUBT_RETRY_AFTER: Duration = Duration::from_secs(1);

/// Sends requests to the upstream, which a reload may replace. What runs stays with the old one.
#[derive(Clone, Debug)]
pub(super) struct Forward {
    upstream: Arc<ArcSwap<Upstream>>,
    /// The field that holds a request's id.
    request_id_header: HeaderName,
}

impl Forward {
    pub(super) fn new(upstream: Arc<ArcSwap<Upstream>>, request_id_header: HeaderName) -> Self {
        Self { upstream, request_id_header }
    }
}

impl Service<Request<Body>> for Forward {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let upstream = self.upstream.load_full();
        let asked = Asked {
            protected: request.extensions().get::<Claim>().is_some(),
            request_id: request.extensions().get().cloned(),
        };
        let field = self.request_id_header.clone();
        Box::pin(async move {
            let mut response = upstream.send(request).await;
            asked.set_apart(&field, response.headers_mut());
            Ok(match response.extensions().get::<Failure>().copied() {
                Some(failure) => asked.tell(failure, response),
                None => response,
            })
        })
    }
}

/// What the answer to a failure needs to know of its request.
struct Asked {
    protected: bool,
    request_id: Option<RequestId>,
}

impl Asked {
    /// An upstream's own id for a request is passed on under another name, and recorded with its answer. The field itself
    /// says, on every response, what the request is called here.
    fn set_apart(&self, field: &HeaderName, headers: &mut HeaderMap) {
        let Some(theirs) = headers.get(field) else { return };
        if self.request_id.as_ref().is_none_or(|ours| ours.0.as_bytes() != theirs.as_bytes()) {
            let theirs = theirs.clone();
            headers.insert(UPSTREAM_REQUEST_ID, theirs);
        }
        retain(headers, |name| name != field);
    }

    /// The failure as a refusal that names its request, with what it means for the key.
    fn tell(&self, failure: Failure, response: Response<Body>) -> Response<Body> {
        let (happened, why) = match failure {
            Failure::NothingSent { why } => (Happened::No { why }, why),
            Failure::Doubt { why } => (Happened::Unknown { why }, why),
        };
        let refusal = match response.status() {
            StatusCode::BAD_GATEWAY => {
                // A time to come back would hold the key back for as long.
                Some(Refusal::new(Problem::UpstreamUnreachable, problem::UPSTREAM_UNREACHABLE.detail))
            }
            StatusCode::GATEWAY_TIMEOUT => Some(self.doubt()),
            // The client's own body failed.
            _ => None,
        };
        let mut response = match refusal {
            Some(refusal) => self.refuse(refusal, why),
            None => self.refuse_body(response),
        };
        let extensions = response.extensions_mut();
        extensions.insert(happened);
        // Whichever it is, the upstream did not say it.
        extensions.insert(Refused);
        response
    }

    /// The refusal of the client's own body, with the request's id.
    fn refuse_body(&self, mut response: Response<Body>) -> Response<Body> {
        let problem = response.extensions_mut().remove::<problem::Problem>();
        let (Some(problem), Some(id)) = (problem, &self.request_id) else { return response };
        problem.tell(&id.0);
        let mut named = problem.response_to(&id.0).map(Body::from);
        std::mem::swap(named.extensions_mut(), response.extensions_mut());
        named
    }

    fn doubt(&self) -> Refusal {
        let detail = if self.protected { DOUBT_WITH_KEY } else { problem::OUTCOME_UNKNOWN.detail };
        let refusal = Refusal::new(Problem::OutcomeUnknown, detail).with_status(problem::OUTCOME_UNKNOWN.status);
        if self.protected { refusal.with_retry_after(DOUBT_RETRY_AFTER) } else { refusal }
    }

    fn refuse(&self, refusal: Refusal, why: &'static str) -> Response<Body> {
        let (code, request_id) = (refusal.problem.code(), self.request_id.as_ref().map(|id| &*id.0));
        metrics::counter!(REFUSED, "reason" => code).increment(1);
        let status = refusal.status.as_u16();
        tracing::warn!(target: hapax::log::UPSTREAM, code, status, request_id, why, "the upstream gave no answer");
        refusal.into_response(request_id).map(Body::from)
    }
}

/// With a key, asking again is safe.
const DOUBT_WITH_KEY: &str = "The request was sent, but no complete answer came back, so it may have happened. \
                              Send the same request with the same key to find out; it is not run again meanwhile.";
