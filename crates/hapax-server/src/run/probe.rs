//! The proxy's probe: one GET that tells what became of a request, per route as configured.
//!
//! Whatever is not exactly as configured cannot tell: another status, a redirect (which is not followed), an answer that
//! breaks off, is too large, or whose JSON does not say what it should. A probe whose path cannot be filled in safely
//! (`probe_path`) is not asked. When to ask is the library's business.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use hapax::http::{ROUTE_LABEL, Routes, outcome_of};
use hapax::reconcile::{Plan, Probe, Probed};
use hapax_core::address::Address;
use hapax_core::canonical_json::{RawValue, canonicalise, raw_values};
use hapax_core::record::{Body as Recorded, Outcome, Record};
use http::header::{ACCEPT_ENCODING, HOST, HeaderValue};
use http::response::Parts;
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt, Limited};

use crate::config::policy::Policy;
use crate::config::{self, Config, ProbeAnswer, Sign};
use crate::run::node::upstream_at;
use crate::run::probe_path::filled;
use crate::run::{StartError, other};
use hapax_proxy::{Body, Failure, Upstream};

/// The largest answer of a probe. It is about one request.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// The route of records that name none: they are older than the label.
const DEFAULT_ROUTE: &str = "default";

/// The probes of all routes.
pub(super) struct Probes {
    by_route: BTreeMap<Arc<str>, RouteProbe>,
    upstream: Arc<ArcSwap<Upstream>>,
}

struct RouteProbe {
    plan: Plan,
    probe: config::Probe,
    /// Instead of the name of whoever is asked.
    host: Option<HeaderValue>,
    /// Asked instead of the upstream.
    elsewhere: Option<Upstream>,
}

impl Probes {
    /// As the configuration says.
    pub(super) fn new(config: &Config, upstream: &Arc<ArcSwap<Upstream>>) -> Result<Self, StartError> {
        let named = config.routes.iter().map(|route| (Routes::name(&route.methods, &route.path), &route.policy));
        let all = named.chain([(Arc::from(DEFAULT_ROUTE), &config.defaults)]);
        let mut by_route = BTreeMap::new();
        for (name, policy) in all {
            if let Some(probe) = RouteProbe::new(policy, config)? {
                by_route.insert(name, probe);
            }
        }
        Ok(Self { by_route, upstream: Arc::clone(upstream) })
    }

    fn of(&self, record: &Record) -> Option<&RouteProbe> {
        self.by_route.get(route_of(record))
    }
}

fn route_of(record: &Record) -> &str {
    let named = record.labels.iter().find(|label| label.name == ROUTE_LABEL);
    named.map_or(DEFAULT_ROUTE, |label| &label.value)
}

impl RouteProbe {
    fn new(policy: &Policy, config: &Config) -> Result<Option<Self>, StartError> {
        let Some(probe) = policy.probe.clone() else { return Ok(None) };
        let plan = Plan {
            settle_after: policy.settle_after,
            attempts_max: policy.probe_attempts.get(),
            backoff: policy.probe_backoff,
            timeout: probe.timeout,
        };
        let host = probe.host.as_deref().map(HeaderValue::from_str).transpose().map_err(other)?;
        // Under a host of its own the upstream is somebody else, too.
        let url = probe.url.as_ref().or_else(|| host.as_ref().map(|_| &config.upstream.to));
        let keep_host = config.upstream.keep_host || host.is_some();
        let elsewhere = url.map(|url| upstream_at(url, config, keep_host)).transpose()?;
        Ok(Some(Self { plan, probe, host, elsewhere }))
    }

    async fn ask(&self, upstream: &Upstream, at: &Address, record: &Record) -> Result<Probed, String> {
        let request = self.request(at, record)?;
        let response = self.elsewhere.as_ref().unwrap_or(upstream).send(request).await;
        if let Some(Failure::NothingSent { why } | Failure::Doubt { why }) = response.extensions().get() {
            return Err((*why).to_owned());
        }
        let (head, body) = response.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|_| "the answer broke off, or is larger than 1 MiB".to_owned())?.to_bytes();
        self.meaning(&head, &body)
    }

    fn request(&self, at: &Address, record: &Record) -> Result<Request<Body>, String> {
        let path = filled(&self.probe.get, at, record)?;
        let path: Uri = path.parse().map_err(|_| "the path of the probe is no path".to_owned())?;
        let mut request = Request::new(Body::empty());
        *request.uri_mut() = path;
        // What is recorded must be what every retry can read.
        request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        if let Some(host) = &self.host {
            request.headers_mut().insert(HOST, host.clone());
        }
        if let Some((name, secret)) = &self.probe.header {
            let value = HeaderValue::from_str(secret.expose());
            let mut value = value.map_err(|_| "the value of the probe's header is none".to_owned())?;
            value.set_sensitive(true);
            request.headers_mut().insert(name.clone(), value);
        }
        Ok(request)
    }

    fn meaning(&self, head: &Parts, body: &Bytes) -> Result<Probed, String> {
        let means = |sign: &Sign| sign_matches(sign, head.status, body);
        let probe = &self.probe;
        match (means(&probe.happened), means(&probe.did_not_happen), means(&probe.declined)) {
            (true, false, false) => Ok(Probed::Happened(Arc::new(self.outcome(head, body)))),
            (false, true, false) => Ok(Probed::DidNotHappen),
            (false, false, true) => Ok(Probed::Happened(Arc::new(self.declined(head, body)))),
            (false, false, false) => Err(format!("status {} and its body say none of what is configured", head.status)),
            _ => Err(format!("status {} and its body say several things at once", head.status)),
        }
    }

    fn outcome(&self, head: &Parts, body: &Bytes) -> Outcome {
        match self.probe.answer {
            ProbeAnswer::Probe => outcome_of(head, body),
            ProbeAnswer::ProbeAs(status) => Outcome { status: status.as_u16(), ..outcome_of(head, body) },
            ProbeAnswer::Stored(status) => bare(status.as_u16()),
        }
    }

    /// A definite failure must not look like a success to whoever retries. What was asked by the key alone may be about
    /// somebody else who used it, so that only the status counts.
    fn declined(&self, head: &Parts, body: &Bytes) -> Outcome {
        let outcome = if self.probe.is_by_key_alone() { bare(head.status.as_u16()) } else { outcome_of(head, body) };
        if outcome.status < 400 {
            Outcome { status: StatusCode::PAYMENT_REQUIRED.as_u16(), ..outcome }
        } else {
            outcome
        }
    }
}

/// A status without a body.
fn bare(status: u16) -> Outcome {
    Outcome { status, headers: Vec::new(), body: Recorded::Kept(Vec::new()) }
}

fn sign_matches(sign: &Sign, status: StatusCode, body: &[u8]) -> bool {
    let says = |condition: &config::Condition| {
        let found = raw_values(body, std::slice::from_ref(&condition.pointer)).ok()?.pop()??;
        Some(match found {
            RawValue::Container(raw) => {
                canonicalise(raw.as_bytes()).ok()? == canonicalise(condition.equals.as_bytes()).ok()?
            }
            // Numbers as they are spelled: no two of them are taken for one.
            scalar => scalar.into_text() == condition.equals,
        })
    };
    sign.statuses.contains(&status) && sign.condition.as_ref().is_none_or(|condition| says(condition).unwrap_or(false))
}

/// The probes as the last reload left them.
pub(super) struct Current(pub(super) Arc<ArcSwap<Probes>>);

impl Probe for Current {
    fn plan(&self, _: &Address, record: &Record) -> Option<Plan> {
        self.0.load().of(record).map(|probe| probe.plan)
    }

    /// Each route asks somebody else, or for something else.
    fn share(&self, _: &Address, record: &Record) -> Arc<str> {
        Arc::from(route_of(record))
    }

    async fn ask(&self, at: &Address, record: &Record) -> Probed {
        let probes = self.0.load_full();
        let Some(probe) = probes.of(record) else { return Probed::CannotTell("the route has no probe".to_owned()) };
        let upstream = probes.upstream.load_full();
        probe.ask(&upstream, at, record).await.unwrap_or_else(Probed::CannotTell)
    }
}

#[cfg(test)]
mod tests {
    use hapax_core::canonical_json::Pointer;

    use super::*;

    fn means(condition: &str, body: &str) -> bool {
        let (pointer, equals) = condition.split_once('=').unwrap();
        let condition = config::Condition { pointer: Pointer::new(pointer).unwrap(), equals: equals.to_owned() };
        let sign = Sign { statuses: vec![StatusCode::OK], condition: Some(condition) };
        sign_matches(&sign, StatusCode::OK, body.as_bytes())
    }

    #[test]
    fn a_condition_takes_no_number_for_another() {
        for number in ["18446744073709551616", "100000000000000000000123", "0.10", "1e2", "-0"] {
            assert!(means(&format!("/n={number}"), &format!("{{\"n\": {number} }}")), "{number}");
        }
        assert!(!means("/n=18446744073709551616", r#"{"n":18446744073709551617}"#));
        assert!(!means("/n=1.8446744073709552e19", r#"{"n":18446744073709551616}"#));
        assert!(!means("/ids=[18446744073709551616]", r#"{"ids":[18446744073709551617]}"#));
        assert!(means("/ids=[18446744073709551616]", r#"{"ids":[ 18446744073709551616 ]}"#));
    }

    #[test]
    fn a_condition_is_a_text_as_it_is_and_anything_else_as_json() {
        assert!(means("/status=succeeded", r#"{"status":"succ\u0065eded"}"#));
        assert!(means("/data=[]", r#"{"data":[ ]}"#) && !means("/data=[]", r#"{"data":[{}]}"#));
        assert!(means("/paid=true", r#"{"paid":true}"#) && !means("/paid=true", r#"{"paid":false}"#));
        assert!(means("/error=null", r#"{"error":null}"#) && !means("/error=null", "{}"));
        assert!(means("/data/0/a=1", r#"{"data":[{"a":1}]}"#));
        assert!(!means("/a=1", r#"{"a":1,"a":1}"#), "parsers disagree on which one counts");
        assert!(!means("/a=1", r#"{"a":1}<html>"#), "the whole answer must be JSON");
    }
}
