//! The kind `ask`: an authentication endpoint says who calls.
//!
//! hapax sends it a GET with the credentials of the request and with `X-Original-Method` and `X-Original-Uri`; it
//! answers 2xx and names the tenant in a header, or 401 (with a `WWW-Authenticate` that is passed on) or 403. Anything else
//! counts as no answer, and without an answer nothing is forwarded. How the answer becomes a scope is left to others.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hapax_core::clock::Clock;
use http::header::{self, AUTHORIZATION, COOKIE, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;

use super::advice;
use super::challenge::Challenge;
use super::fetch::{Fetch, FetchError, Fetched, Limits, without_query};
use super::field::{Unread, one_header};
use super::part::{Part, digest};
use super::refusal::{Refusal, ScopeConfigError};

/// A tenant is a name. It is read by people and stored with every record; with its prefix it must fit a scope.
pub const TENANT_CHARS_MAX: usize = 250;

/// What an endpoint says beside its header fields is of no interest; a larger body costs the connection.
const BODY_BYTES_MAX: usize = 64 * 1024;

/// Remembered callers. When there are more, the rest is asked about each time.
const CACHE_ENTRIES_MAX: usize = 10_000;

const ORIGINAL_METHOD: HeaderName = HeaderName::from_static("x-original-method");
const ORIGINAL_URI: HeaderName = HeaderName::from_static("x-original-uri");

/// Where to ask, and how.
#[derive(Clone, PartialEq, Eq)]
pub struct AskOptions {
    /// The endpoint: `http://…` or `https://…`.
    pub url: String,
    /// The header of its answer that names the tenant.
    pub tenant_header: HeaderName,
    /// Headers of the request that it is sent. Default `Authorization` and `Cookie`.
    pub headers: Vec<HeaderName>,
    /// For one question, waiting for a turn included. Default 2 s.
    pub timeout: Duration,
    /// How long a tenant is remembered for the same headers. Default 0: every request asks. With more, the endpoint's
    /// answer must depend on those headers only, not on method and URI.
    pub cache: Duration,
    /// Questions at the same time. Default 64.
    pub at_once: usize,
    /// Certificates to trust beside the host's, in PEM.
    pub ca_file: Option<PathBuf>,
}

/// Without the query of the URL, which may hold a secret.
impl fmt::Debug for AskOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AskOptions")
            .field("url", &without_query(&self.url))
            .field("tenant_header", &self.tenant_header)
            .field("headers", &self.headers)
            .field("timeout", &self.timeout)
            .field("cache", &self.cache)
            .field("at_once", &self.at_once)
            .field("ca_file", &self.ca_file)
            .finish()
    }
}

impl AskOptions {
    /// Ask there, and read the tenant from that header of the answer.
    #[must_use]
    pub fn new(url: impl Into<String>, tenant_header: HeaderName) -> Self {
        Self {
            url: url.into(),
            tenant_header,
            headers: vec![AUTHORIZATION, COOKIE],
            timeout: Duration::from_secs(2),
            cache: Duration::ZERO,
            at_once: 64,
            ca_file: None,
        }
    }
}

/// The field of the answer that names the tenant, unless another is configured.
pub(crate) const USUAL_TENANT_HEADER: &str = "x-tenant";

/// Whether an answer that was remembered will do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Freshness {
    Remembered,
    AskAgain,
}

/// A tenant, and when it was asked for, in milliseconds on the boot clock.
type Remembered = (Arc<[u8]>, u64);

pub(super) struct Ask {
    fetch: Fetch,
    tenant_header: HeaderName,
    passed_on: Vec<HeaderName>,
    cache: Duration,
    clock: Arc<dyn Clock>,
    remembered: Mutex<BTreeMap<String, Remembered>>,
}

impl Ask {
    pub(super) fn new(options: &AskOptions, clock: &Arc<dyn Clock>) -> Result<Self, ScopeConfigError> {
        if options.timeout.is_zero() {
            return Err(ScopeConfigError::Zero { option: "timeout" });
        }
        if options.at_once == 0 {
            return Err(ScopeConfigError::Zero { option: "at_once" });
        }
        if options.headers.is_empty() {
            return Err(ScopeConfigError::NothingPassedOn);
        }
        let mut passed_on = Vec::new();
        for name in &options.headers {
            if belongs_to_the_request(name) {
                return Err(ScopeConfigError::NotPassedOn { header: name.as_str().to_owned() });
            }
            if !passed_on.contains(name) {
                passed_on.push(name.clone());
            }
        }
        let at_once = options.at_once.min(tokio::sync::Semaphore::MAX_PERMITS);
        let limits = Limits { timeout: options.timeout, body_bytes_max: BODY_BYTES_MAX, at_once };
        Ok(Self {
            fetch: Fetch::new("ask", &options.url, options.ca_file.as_deref(), limits)?,
            tenant_header: options.tenant_header.clone(),
            passed_on,
            cache: options.cache,
            clock: clock.clone(),
            remembered: Mutex::default(),
        })
    }

    /// The field that names the tenant, where it is not the usual one: what an address depends on.
    pub(super) fn scheme(&self) -> String {
        match self.tenant_header.as_str() {
            USUAL_TENANT_HEADER => "ask".to_owned(),
            other => format!("ask:{other}"),
        }
    }

    /// Who calls.
    pub(super) async fn tenant(&self, parts: &Parts, freshness: Freshness) -> Result<Part, Refusal> {
        let caller = self.caller(&parts.headers);
        if freshness == Freshness::Remembered
            && let Some(tenant) = caller.as_deref().and_then(|caller| self.recall(caller))
        {
            return Ok(Part::plain("a", &*tenant));
        }
        let asked_at_ms = self.clock.read().boot_ms;
        let answer = self.permitted(parts).await.inspect_err(|refusal| self.forget(caller.as_deref(), refusal))?;
        let tenant = tenant_in(&answer.headers, &self.tenant_header)?;
        if let Some(caller) = caller {
            self.remember(caller, tenant.into(), asked_at_ms);
        }
        Ok(Part::plain("a", tenant))
    }

    /// Asks, and wants no more than a 2xx.
    pub(super) async fn permitted(&self, parts: &Parts) -> Result<Fetched, Refusal> {
        let answer = self.fetch.get(self.question(parts)?).await.map_err(|failed| no_answer(&failed))?;
        match answer.status.as_u16() {
            200..=299 => Ok(answer),
            401 => Err(self.unauthorized(parts, &answer.headers)),
            403 => {
                Err(Refusal::invalid("the authentication endpoint does not let this caller in; ask who grants access"))
            }
            status => Err(Refusal::unavailable(format!(
                "the authentication endpoint answered {status}, which says neither yes nor no; try again later"
            ))),
        }
    }

    /// What the endpoint asks for, where it says so.
    fn unauthorized(&self, parts: &Parts, answer: &HeaderMap) -> Refusal {
        let has_credentials = self.passed_on.iter().any(|name| parts.headers.contains_key(name));
        let (detail, usual) = if has_credentials {
            let detail = "the authentication endpoint does not accept these credentials; send valid ones";
            (detail, Challenge::invalid_token(detail))
        } else {
            ("the request has no credentials; send those that this API asks for", Challenge::bearer())
        };
        Refusal::unauthorized(Challenge::of_answer(answer).unwrap_or(usual), detail)
    }

    fn question(&self, parts: &Parts) -> Result<HeaderMap, Refusal> {
        let unfit =
            |_| Refusal::invalid("the URI of the request cannot be passed on; send one of printable characters");
        let uri = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        let mut headers = HeaderMap::new();
        for name in &self.passed_on {
            for value in parts.headers.get_all(name) {
                // The endpoint and the upstream might each take another line. Only cookies come in several.
                if headers.append(name, value.clone()) && *name != COOKIE {
                    return Err(Refusal::invalid(Unread::Repeated.detail(name.as_str())));
                }
            }
        }
        headers.insert(ORIGINAL_METHOD, HeaderValue::from_str(parts.method.as_str()).map_err(unfit)?);
        headers.insert(ORIGINAL_URI, HeaderValue::from_bytes(uri.as_bytes()).map_err(unfit)?);
        Ok(headers)
    }

    /// A digest of everything passed on; nothing where no answer is to be remembered. Callers who send none of it
    /// could be anybody, so nothing is remembered of them.
    fn caller(&self, headers: &HeaderMap) -> Option<String> {
        if self.cache.is_zero() {
            return None;
        }
        let lines = self.passed_on.iter().flat_map(|name| headers.get_all(name).iter().map(move |line| (name, line)));
        let parts: Vec<Part> = lines
            .map(|(name, line)| Part::Secret { source: name.to_string(), value: line.as_bytes().to_vec() })
            .collect();
        (!parts.is_empty()).then(|| digest(None, &parts))
    }

    fn recall(&self, caller: &str) -> Option<Arc<[u8]>> {
        let remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        let now_ms = self.clock.read().boot_ms;
        remembered.get(caller).filter(|entry| self.is_fresh(entry, now_ms)).map(|(tenant, _)| tenant.clone())
    }

    fn remember(&self, caller: String, tenant: Arc<[u8]>, asked_at_ms: u64) {
        let mut remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        if remembered.len() >= CACHE_ENTRIES_MAX {
            let now_ms = self.clock.read().boot_ms;
            remembered.retain(|_, entry| self.is_fresh(entry, now_ms));
        }
        if remembered.len() < CACHE_ENTRIES_MAX || remembered.contains_key(&caller) {
            remembered.insert(caller, (tenant, asked_at_ms));
        }
    }

    /// Who was turned away is no longer let in by what was remembered.
    fn forget(&self, caller: Option<&str>, refusal: &Refusal) {
        if let (Some(caller), Refusal::Invalid { .. } | Refusal::Unauthorized { .. }) = (caller, refusal) {
            self.remembered.lock().unwrap_or_else(PoisonError::into_inner).remove(caller);
        }
    }

    fn is_fresh(&self, (_, asked_at_ms): &Remembered, now_ms: u64) -> bool {
        u128::from(now_ms.saturating_sub(*asked_at_ms)) < self.cache.as_millis()
    }
}

fn tenant_in<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<&'a [u8], Refusal> {
    let is_sound = |text: &str| !text.chars().any(char::is_control) && text.chars().count() <= TENANT_CHARS_MAX;
    let value = one_header(headers, name).ok();
    value.filter(|value| str::from_utf8(value).is_ok_and(is_sound)).ok_or_else(|| {
        advice::UNFIT_TENANT.log();
        Refusal::unavailable("the answer of the authentication endpoint cannot be used; try again later")
    })
}

fn no_answer(failed: &FetchError) -> Refusal {
    Refusal::unavailable(format!("the authentication endpoint {failed}; try again later"))
}

/// Fields that describe the message or the connection, or that this file itself sets.
fn belongs_to_the_request(name: &HeaderName) -> bool {
    [
        header::HOST,
        header::CONNECTION,
        header::CONTENT_LENGTH,
        header::TRANSFER_ENCODING,
        header::TE,
        header::TRAILER,
        header::UPGRADE,
        header::EXPECT,
        header::RANGE,
        HeaderName::from_static("keep-alive"),
        HeaderName::from_static("proxy-connection"),
        ORIGINAL_METHOD,
        ORIGINAL_URI,
    ]
    .contains(name)
}

#[cfg(test)]
mod tests {
    use hapax_testkit::clock::FakeClock;

    use super::*;

    #[test]
    fn no_more_callers_are_remembered_than_the_limit_and_old_ones_make_room() {
        let clock = FakeClock::default();
        let options = AskOptions {
            cache: Duration::from_secs(60),
            ..AskOptions::new("http://127.0.0.1:1/", HeaderName::from_static("x-tenant"))
        };
        let ask = Ask::new(&options, &(Arc::new(clock.clone()) as Arc<dyn Clock>)).unwrap();
        let remember = |caller: &str, tenant: &str| {
            ask.remember(caller.to_owned(), tenant.as_bytes().into(), clock.read().boot_ms);
        };
        let recall = |caller: &str| ask.recall(caller).map(|tenant| String::from_utf8(tenant.to_vec()).unwrap());
        for i in 0..CACHE_ENTRIES_MAX {
            remember(&i.to_string(), "old");
        }
        remember("one more", "new");
        remember("7", "changed");
        assert_eq!((recall("one more"), recall("7")), (None, Some("changed".to_owned())));
        assert_eq!(ask.remembered.lock().unwrap().len(), CACHE_ENTRIES_MAX);
        clock.advance_ms(60_000);
        remember("one more", "new");
        assert_eq!((recall("one more"), recall("7")), (Some("new".to_owned()), None));
        assert_eq!(ask.remembered.lock().unwrap().len(), 1);
    }
}
