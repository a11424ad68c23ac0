//! The service behind the layer: the upstream, with what its failures mean.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use arc_swap::ArcSwap;
use hapax::http::Happened;
use http::{Request, Response};
use tower_service::Service;

use crate::proxy::{Body, Failure, Upstream};

/// Sends requests to the upstream, which a reload may replace. What runs stays with the old one.
#[derive(Clone, Debug)]
pub(super) struct Forward {
    upstream: Arc<ArcSwap<Upstream>>,
}

impl Forward {
    pub(super) fn new(upstream: Arc<ArcSwap<Upstream>>) -> Self {
        Self { upstream }
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
        Box::pin(async move {
            let mut response = upstream.send(request).await;
            let happened = match response.extensions().get::<Failure>() {
                Some(Failure::NothingSent { why }) => Some(Happened::No { why }),
                Some(Failure::Doubt { why }) => Some(Happened::Unknown { why }),
                None => None,
            };
            if let Some(happened) = happened {
                response.extensions_mut().insert(happened);
            }
            Ok(response)
        })
    }
}
