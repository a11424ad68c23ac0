//! What every request passes first: it has an id, which stands in every refusal and in the logs. The listener gives it one;
//! what comes another way gets it here.

use std::task::{Context, Poll};

use http::Request;
use tower_service::Service;

/// Numbers requests.
#[derive(Clone, Debug)]
pub(super) struct Numbered<S> {
    inner: S,
}

impl<S> Numbered<S> {
    pub(super) fn new(inner: S) -> Self {
        Self { inner }
    }
}

impl<S: Service<Request<B>>, B> Service<Request<B>> for Numbered<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> S::Future {
        if request.extensions().get::<hapax::http::RequestId>().is_none() {
            request.extensions_mut().insert(hapax::http::RequestId(hapax_proxy::request_id::next()));
        }
        self.inner.call(request)
    }
}
