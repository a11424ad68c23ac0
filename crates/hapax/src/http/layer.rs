//! [`IdempotencyLayer`]: what is configured, and what the services it makes share.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use hapax_core::address::{AddressScheme, Space};
use hapax_core::engine::Engine;
use hapax_core::fingerprint::HmacKey;
use hapax_core::store::Store;
use http::Method;
use http::header::HeaderName;
use tokio_util::task::TaskTracker;
use tower_layer::Layer;

use crate::fence::Fence;
use crate::http::answers::Answers;
use crate::http::attempts::{ATTEMPTS_MAX, ATTEMPTS_PER_CLIENT_MAX, Attempts};
use crate::http::cors::Cors;
use crate::http::guard::{Guard, Open};
use crate::http::key::IDEMPOTENCY_KEY;
use crate::http::pattern::Pattern;
use crate::http::route::{Route, Routes};
use crate::http::scope::Scopes;
use crate::http::service::Idempotency;
use crate::http::wait::Waiters;
use crate::observe;
use crate::tokens::{self, Random};

/// Makes services whose requests happen once. Clones share everything.
///
/// See the [module](crate::http) for an example.
pub struct IdempotencyLayer<S> {
    shared: Arc<Shared<S>>,
}

impl<S> Clone for IdempotencyLayer<S> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<S> fmt::Debug for IdempotencyLayer<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyLayer").field("routes", &self.shared.settings().routes).finish_non_exhaustive()
    }
}

/// What may change while requests run.
#[derive(Clone)]
pub struct Settings {
    /// What each route says.
    pub routes: Routes,
    /// Whose key it is.
    pub scopes: Arc<dyn Scopes>,
    /// Rates, breaker, counts.
    pub guard: Arc<dyn Guard>,
    /// The fields that may carry the key.
    pub key_headers: Vec<HeaderName>,
    /// Keys of keyed fingerprints, the current one and older ones.
    pub fingerprint_keys: Vec<HmacKey>,
    /// Who may read answers in a browser.
    pub cors: Option<Cors>,
    /// Stands after the store was restored: keys that may have been claimed in what was lost start as unknown.
    pub fence: Option<Fence>,
    /// How long an answer that was replayed may be replayed again without asking the store; zero asks it each time. A purge
    /// is felt after that time.
    pub answers_at_hand: Duration,
    /// How many attempts may be in flight at once, those whose client hung up included. Beyond it new ones are refused
    /// before anything is claimed; known keys are answered.
    pub attempts_max: usize,
    /// How many of them for one [`Client`](crate::http::Client).
    pub attempts_per_client_max: usize,
}

/// What the services of a layer share.
pub(crate) struct Shared<S> {
    pub(crate) engine: Arc<Engine<S, Random>>,
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) answers: Answers,
    pub(crate) attempts: Arc<Attempts>,
    /// Ends that the store could not take yet.
    pub(crate) unrecorded: AtomicUsize,
    /// Attempts that run, and ends that are still to be recorded.
    pub(crate) tasks: TaskTracker,
    pub(crate) scheme: AddressScheme,
    pub(crate) space: Space,
    settings: RwLock<Arc<Settings>>,
}

impl<S> Shared<S> {
    pub(crate) fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// That fence costs no claim anything any more. Another one that was raised meanwhile stands.
    pub(crate) fn let_fall(&self, fallen: Fence) {
        let mut settings = self.settings.write().unwrap_or_else(PoisonError::into_inner);
        if settings.fence == Some(fallen) {
            *settings = Arc::new(Settings { fence: None, ..(**settings).clone() });
        }
    }
}

impl<S: Store + 'static> IdempotencyLayer<S> {
    /// Protects POST and PATCH by keys in that store. `scopes` tells whose key it is: a closure over the head of the
    /// request, or [`single_tenant`](crate::http::single_tenant) where there is one caller only.
    pub fn new(store: S, scopes: impl Scopes) -> Self {
        Self::with_scheme(store, AddressScheme::default(), scopes)
    }

    /// The same, with a text that names how addresses are made. Another text makes other addresses of the same keys.
    pub fn with_scheme(store: S, scheme: AddressScheme, scopes: impl Scopes) -> Self {
        let settings = Settings {
            routes: Routes::default(),
            scopes: Arc::new(scopes),
            guard: Arc::new(Open),
            key_headers: vec![IDEMPOTENCY_KEY],
            fingerprint_keys: Vec::new(),
            cors: None,
            fence: None,
            answers_at_hand: Duration::ZERO,
            attempts_max: ATTEMPTS_MAX,
            attempts_per_client_max: ATTEMPTS_PER_CLIENT_MAX,
        };
        let shared = Shared {
            engine: Arc::new(Engine::new(store, tokens::random as Random)),
            waiters: Arc::default(),
            answers: Answers::default(),
            attempts: Arc::default(),
            unrecorded: AtomicUsize::new(0),
            tasks: TaskTracker::new(),
            scheme,
            space: SPACE.clone(),
            settings: RwLock::new(Arc::new(settings)),
        };
        Self { shared: Arc::new(shared) }
    }

    /// What POST and PATCH get where no other route matches.
    #[must_use]
    pub fn with_default_route(self, route: Route) -> Self {
        self.changed(|settings| settings.routes = settings.routes.clone().with_default(route))
    }

    /// A route of its own for those methods and paths.
    #[must_use]
    pub fn with_route(self, methods: &[Method], pattern: Pattern, route: Route) -> Self {
        self.changed(|settings| settings.routes = settings.routes.clone().with(methods, pattern, route))
    }

    /// The fields that may carry the key, instead of `Idempotency-Key`.
    #[must_use]
    pub fn with_key_headers(self, names: Vec<HeaderName>) -> Self {
        self.changed(|settings| settings.key_headers = names)
    }

    /// Keys of keyed fingerprints: those that a route's recipe names, and older ones that records were made with.
    #[must_use]
    pub fn with_fingerprint_keys(self, keys: Vec<HmacKey>) -> Self {
        self.changed(|settings| settings.fingerprint_keys = keys)
    }

    /// Rates per caller, a circuit breaker, counts.
    #[must_use]
    pub fn with_guard(self, guard: impl Guard) -> Self {
        self.changed(|settings| settings.guard = Arc::new(guard))
    }

    /// Who may read refusals and replays in a browser.
    #[must_use]
    pub fn with_cors(self, cors: Cors) -> Self {
        self.changed(|settings| settings.cors = Some(cors))
    }

    /// An answer that was replayed may be replayed again for that long without asking the store: retries in a storm cost
    /// little. A purge is felt after that time. By default the store is asked each time.
    #[must_use]
    pub fn with_answers_at_hand(self, for_at_most: Duration) -> Self {
        self.changed(|settings| settings.answers_at_hand = for_at_most)
    }

    /// How many attempts may be in flight at once, in all and for one [`Client`](crate::http::Client): those whose client
    /// hung up go on, and count. Beyond it, new ones are refused with 503 before anything is claimed, while known keys are
    /// answered. By default 10,000, and three quarters of them for one client.
    #[must_use]
    pub fn with_attempts_max(self, attempts_max: usize, per_client_max: usize) -> Self {
        self.changed(|settings| {
            settings.attempts_max = attempts_max;
            settings.attempts_per_client_max = per_client_max;
        })
    }

    /// Raises or lifts the fence after a restore, for all services of this layer.
    pub fn set_fence(&self, fence: Option<Fence>) {
        let mut settings = self.shared.settings.write().unwrap_or_else(PoisonError::into_inner);
        if settings.fence != fence {
            *settings = Arc::new(Settings { fence, ..(**settings).clone() });
        }
    }

    /// The settings as they stand.
    #[must_use]
    pub fn settings(&self) -> Arc<Settings> {
        self.shared.settings()
    }

    /// Replaces the settings, for all services of this layer. Requests that run keep the ones they began with.
    pub fn replace(&self, settings: Settings) {
        settings.routes.names().for_each(observe::route_is_known);
        *self.shared.settings.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
    }

    fn changed(self, change: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = (*self.shared.settings()).clone();
        change(&mut settings);
        self.replace(settings);
        self
    }

    /// The rules over the store, for background work and operators.
    #[must_use]
    pub fn engine(&self) -> &Arc<Engine<S, Random>> {
        &self.shared.engine
    }

    /// How many attempts run, or wait for their end to be recorded.
    #[must_use]
    pub fn running(&self) -> usize {
        self.shared.tasks.len()
    }

    /// How many ends wait in memory because the store could not take them yet. They are lost if the process ends before it can.
    #[must_use]
    pub fn unrecorded(&self) -> usize {
        self.shared.unrecorded.load(Ordering::Relaxed)
    }

    /// Waits until every attempt has ended and its end is recorded. Stop taking requests first.
    pub async fn drain(&self) {
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
    }
}

/// Keys of requests, apart from those of webhooks and of hapax itself.
static SPACE: std::sync::LazyLock<Space> = std::sync::LazyLock::new(|| named("http"));

/// A space of that name, which a developer chose.
#[expect(clippy::expect_used, reason = "the names are constants of this crate, and a test reads them")]
pub(crate) fn named(name: &'static str) -> Space {
    Space::new(name).expect("a short word")
}

impl<S, I> Layer<I> for IdempotencyLayer<S> {
    type Service = Idempotency<S, I>;

    fn layer(&self, inner: I) -> Self::Service {
        Idempotency::new(Arc::clone(&self.shared), inner)
    }
}
