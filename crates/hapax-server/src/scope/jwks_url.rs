//! A JSON Web Key Set at a URL: fetched when a key is missing or the set is old, and kept.
//!
//! A token that names a key we do not know makes us fetch the set again, at most every 10 s, however many such tokens
//! arrive. Only the requests that need the new keys wait for it; all others go on with the keys at hand. While the URL
//! cannot be reached, the old keys stay in use.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use hapax_core::clock::Clock;
use http::header::{ACCEPT, HeaderMap, HeaderValue};
use tokio::sync::Mutex;

use super::fetch::{Fetch, Limits};
use super::jwt_keys::{JwtAlgorithm, VerifyingKey, of_set};
use super::refusal::{Refusal, ScopeConfigError};
use super::token_shape::Claimed;

/// Anybody can send a token with an unknown key id; the server of the set must not feel it.
const REFRESH_EVERY_MS_MIN: u64 = 10_000;

/// After this long the set is fetched again, beside the requests, so that withdrawn keys go.
const OLD_AFTER_MS: u64 = 300_000;

/// Key sets have a few kilobytes. One fetch runs at a time, and a request waits for it at most this long.
const LIMITS: Limits = Limits { timeout: Duration::from_secs(5), body_bytes_max: 1024 * 1024, at_once: 1 };

pub(super) struct JwksUrl {
    fetch: Fetch,
    algorithms: Vec<JwtAlgorithm>,
    known: ArcSwap<Known>,
    last: Mutex<Last>,
    clock: Arc<dyn Clock>,
}

/// The keys at hand.
#[derive(Default)]
pub(super) struct Known {
    pub(super) keys: Vec<VerifyingKey>,
    /// On the boot clock.
    fetched_at_ms: u64,
}

/// The last try. Whoever holds it is fetching.
#[derive(Default)]
struct Last {
    /// On the boot clock.
    tried_at_ms: Option<u64>,
    worked: bool,
}

impl Last {
    fn is_recent(&self, now_ms: u64) -> bool {
        self.tried_at_ms.is_some_and(|at_ms| now_ms.saturating_sub(at_ms) < REFRESH_EVERY_MS_MIN)
    }
}

impl JwksUrl {
    pub(super) fn new(
        url: &str,
        ca_file: Option<&std::path::Path>,
        algorithms: &[JwtAlgorithm],
        clock: &Arc<dyn Clock>,
    ) -> Result<Arc<Self>, ScopeConfigError> {
        Ok(Arc::new(Self {
            fetch: Fetch::new("jwt", url, ca_file, LIMITS)?,
            algorithms: algorithms.to_vec(),
            known: ArcSwap::default(),
            last: Mutex::default(),
            clock: clock.clone(),
        }))
    }

    /// Begins with the keys of another one. Whom to trust, and when to fetch, is its own.
    pub(super) fn keep_keys_of(&self, other: &Self) {
        self.known.store(other.known.load_full());
    }

    /// The keys, fetched again if none fits.
    pub(super) async fn keys_for(self: &Arc<Self>, claimed: &Claimed) -> Result<Arc<Known>, Refusal> {
        let known = self.known.load_full();
        if known.keys.iter().any(|key| key.fits(claimed)) {
            self.renew_if_old(&known);
            return Ok(known);
        }
        let worked = self.refreshed().await;
        let known = self.known.load_full();
        if worked || known.keys.iter().any(|key| key.fits(claimed)) {
            return Ok(known);
        }
        Err(Refusal::unavailable("the keys that verify tokens cannot be fetched; try again later"))
    }

    /// Fetches the set unless that was tried a moment ago. True if the last try worked. The fetch goes on when the
    /// request that wanted it is gone: others may wait for it.
    pub(super) async fn refreshed(self: &Arc<Self>) -> bool {
        let own = self.clone();
        tokio::spawn(async move { own.refresh().await }).await.unwrap_or(false)
    }

    /// Starts a fetch that nobody waits for.
    fn renew_if_old(self: &Arc<Self>, known: &Known) {
        let now_ms = self.clock.read().boot_ms;
        let old = now_ms.saturating_sub(known.fetched_at_ms) >= OLD_AFTER_MS;
        if old && self.last.try_lock().is_ok_and(|last| !last.is_recent(now_ms)) {
            let own = self.clone();
            tokio::spawn(async move { own.refresh().await });
        }
    }

    async fn refresh(&self) -> bool {
        let mut last = self.last.lock().await;
        let now_ms = self.clock.read().boot_ms;
        if last.is_recent(now_ms) {
            return last.worked;
        }
        last.tried_at_ms = Some(now_ms);
        last.worked = match self.fetched().await {
            Ok(keys) => {
                self.known.store(Arc::new(Known { keys, fetched_at_ms: now_ms }));
                true
            }
            Err(cause) => {
                tracing::warn!("the key set of the scope kind `jwt` {cause}; the keys at hand stay in use");
                false
            }
        };
        last.worked
    }

    async fn fetched(&self) -> Result<Vec<VerifyingKey>, String> {
        let headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static("application/json"))]);
        let answer = self.fetch.get(headers).await.map_err(|failed| failed.to_string())?;
        if answer.status != http::StatusCode::OK {
            return Err(format!("was answered with {}", answer.status.as_u16()));
        }
        let body = answer.body.ok_or("is over 1 MiB")?;
        of_set(&body, &self.algorithms).map_err(str::to_owned)
    }
}
