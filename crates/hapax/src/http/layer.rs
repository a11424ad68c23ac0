//! [`IdempotencyLayer`]: what is configured, and what the services it makes share.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use hapax_core::address::{AddressScheme, Scope, Space};
use hapax_core::engine::Engine;
use hapax_core::fingerprint::HmacKey;
use hapax_core::store::Store;
use http::Method;
use http::header::HeaderName;
use http::request::Parts;
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;
use tower_layer::Layer;

use crate::claim::SPACE;
use crate::fence::Fence;
use crate::http::answers::Answers;
use crate::http::attempts::{ATTEMPTS_MAX, ATTEMPTS_PER_CLIENT_MAX};
use crate::http::budget::{Budget, MEMORY_BYTES_MAX};
use crate::http::cors::Cors;
use crate::http::guard::{Guard, Open};
use crate::http::key::IDEMPOTENCY_KEY;
use crate::http::occupancy::Occupancy;
use crate::http::pattern::Pattern;
use crate::http::reading::Reading;
use crate::http::replayed::Replayed;
use crate::http::route::{Route, Routes};
use crate::http::scope::{NoScope, Scopes};
use crate::http::service::Idempotency;
use crate::http::unswept::Unswept;
use crate::http::wait::Waiters;
use crate::observe;
use crate::tokens::{self, Random};

/// Longer than the stores' own limits for one operation by default, and shorter than most clients wait.
const STORE_TIMEOUT: Duration = Duration::from_secs(10);

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
    /// How long a client waits for the store at one time: for everything that its claim asks, and again for the recording of
    /// its answer.
    pub store_timeout: Duration,
    /// How many attempts may be in flight at once, those whose client hung up included. Beyond it new ones are refused
    /// before anything is claimed; known keys are answered.
    pub attempts_max: usize,
    /// How many of them for one [`Client`](crate::http::Client).
    pub attempts_per_client_max: usize,
    /// Bytes that request bodies and recorded or replayed responses may take in memory, together. What finds no room gets
    /// 503; no [`Client`](crate::http::Client) takes more than a quarter.
    pub memory_max: usize,
}

/// What the services of a layer share.
pub(crate) struct Shared<S> {
    pub(crate) engine: Arc<Engine<S, Random>>,
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) answers: Answers,
    pub(crate) attempts: Arc<Occupancy>,
    pub(crate) reading: Reading,
    pub(crate) budget: Arc<Budget>,
    pub(crate) replayed: Replayed,
    /// Large responses that are being recorded: the store's copy of each is beyond the budget.
    pub(crate) recording: Semaphore,
    /// Ends that the store could not take yet.
    pub(crate) unrecorded: AtomicUsize,
    /// Attempts that run, and ends that are still to be recorded.
    pub(crate) tasks: TaskTracker,
    pub(crate) scheme: AddressScheme,
    pub(crate) space: Space,
    pub(crate) unswept: Unswept,
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
    /// Protects POST and PATCH by keys in that store. `scope_of` tells whose key it is, from the head of the request: a closure, a
    /// function, or [`single_tenant`](crate::http::single_tenant) where there is one caller only. Where it has to await
    /// something: [`Self::with_scopes`].
    ///
    /// ```
    /// use hapax::http::{IdempotencyLayer, NoScope, Scope};
    ///
    /// // Set by the layer that authenticated the caller.
    /// #[derive(Clone)]
    /// struct Customer(String);
    ///
    /// let layer = IdempotencyLayer::new(hapax::Memory::new(), |parts| match parts.extensions.get::<Customer>() {
    ///     Some(customer) => Ok(Scope::new(&customer.0)?),
    ///     None => Err(NoScope::Missing("log in first".into())),
    /// });
    /// # let _ = layer;
    /// ```
    // Not `impl Scopes`: the bound on the function itself gives a closure the type of its argument.
    pub fn new<F>(store: S, scope_of: F) -> Self
    where
        F: Fn(&Parts) -> Result<Scope, NoScope> + Send + Sync + 'static,
    {
        Self::with_scopes(store, scope_of)
    }

    /// The same with any [`Scopes`]: [`scope_async`](crate::http::scope_async) of an `async` closure, or a type of your own.
    pub fn with_scopes(store: S, scopes: impl Scopes) -> Self {
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
            store_timeout: STORE_TIMEOUT,
            attempts_max: ATTEMPTS_MAX,
            attempts_per_client_max: ATTEMPTS_PER_CLIENT_MAX,
            memory_max: MEMORY_BYTES_MAX,
        };
        let shared = Shared {
            engine: Arc::new(Engine::new(store, tokens::random as Random)),
            waiters: Arc::default(),
            answers: Answers::default(),
            attempts: Arc::default(),
            reading: Reading::default(),
            budget: Arc::default(),
            replayed: Replayed::default(),
            recording: Semaphore::new(LARGE_RECORDED_MAX),
            unrecorded: AtomicUsize::new(0),
            tasks: TaskTracker::new(),
            scheme,
            space: SPACE.clone(),
            unswept: Unswept::now(),
            settings: RwLock::new(Arc::new(settings)),
        };
        Self { shared: Arc::new(shared) }
    }

    /// What POST and PATCH get where no other route matches.
    #[must_use]
    pub fn with_default_route(self, route: Route) -> Self {
        self.changed(|settings| settings.routes = settings.routes.clone().with_default(route))
    }

    /// A route of its own for those methods and paths. `pattern` is a [`Pattern`], or a literal of one.
    ///
    /// ```
    /// use hapax::http::{IdempotencyLayer, Route, single_tenant};
    /// use http::Method;
    ///
    /// let layer = IdempotencyLayer::new(hapax::Memory::new(), single_tenant)
    ///     .with_route(&[Method::POST, Method::PUT], "/payments/{id}/capture", Route::new().with_mismatch_is_400(true))
    ///     .with_route(&[Method::POST], "/search/{*rest}", Route::unprotected());
    /// # let _ = layer;
    /// ```
    ///
    /// # Panics
    /// If the text is no pattern. For one that is not known when the program is written there is
    /// [`try_with_route`](Self::try_with_route).
    #[must_use]
    #[track_caller]
    #[expect(clippy::panic, reason = "a literal is wrong in every run of the program, and the first one says so")]
    pub fn with_route<P>(self, methods: &[Method], pattern: P, route: Route) -> Self
    where
        P: TryInto<Pattern>,
        P::Error: fmt::Display,
    {
        match pattern.try_into() {
            Ok(pattern) => self.routed(methods, pattern, route),
            Err(error) => panic!("the pattern of this route {error}"),
        }
    }

    /// The same with a pattern from a configuration.
    ///
    /// ```
    /// use hapax::http::{IdempotencyLayer, Route, single_tenant};
    /// use http::Method;
    ///
    /// let layer = IdempotencyLayer::new(hapax::Memory::new(), single_tenant);
    /// let error = layer.try_with_route(&[Method::POST], "payments", Route::new()).unwrap_err();
    /// assert_eq!(error.to_string(), "does not begin with `/`; put one in front");
    /// ```
    ///
    /// # Errors
    /// If the text is no pattern: why, and what to write.
    pub fn try_with_route<P>(self, methods: &[Method], pattern: P, route: Route) -> Result<Self, P::Error>
    where
        P: TryInto<Pattern>,
    {
        let pattern = pattern.try_into()?;
        Ok(self.routed(methods, pattern, route))
    }

    fn routed(self, methods: &[Method], pattern: Pattern, route: Route) -> Self {
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

    /// How long a client waits for the store at one time; 10 s by default. A claim that is not proved by then is refused with
    /// 503 and given back when the store can say what became of it; an answer that is not recorded by then is recorded
    /// later, and its client is told that the outcome is not known yet. The store's own limits are per step and add up: choose
    /// what one operation may take there, and half a second.
    #[must_use]
    pub fn with_store_timeout(self, for_at_most: Duration) -> Self {
        self.changed(|settings| settings.store_timeout = for_at_most)
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

    /// Bytes that request bodies and recorded or replayed responses may take in memory, together; 512 MiB by default. A
    /// request beyond it gets 503, and a response that finds no room is passed on and not kept for retries. A single body
    /// may take up to a fifth of it, and no [`Client`](crate::http::Client) more than a quarter.
    #[must_use]
    pub fn with_memory_max(self, bytes: usize) -> Self {
        self.changed(|settings| settings.memory_max = bytes)
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
        self.shared.budget.set_max(settings.memory_max);
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

    /// Bytes that are held in memory for requests, of [`Settings::memory_max`].
    #[must_use]
    pub fn memory_used(&self) -> usize {
        self.shared.budget.used()
    }

    /// How many ends wait in memory because the store could not take them yet. They are lost if the process ends before it can.
    #[must_use]
    pub fn unrecorded(&self) -> usize {
        self.shared.unrecorded.load(Ordering::Relaxed)
    }

    /// Waits until every attempt has ended and its end is recorded, or, where the store has stopped for good, cannot be
    /// recorded any more: [`Self::unrecorded`] says how many. Stop taking requests first.
    pub async fn drain(&self) {
        self.shared.tasks.close();
        tokio::select! {
            () = self.shared.tasks.wait() => {}
            () = self.until_nothing_can_be_recorded() => {}
        }
    }

    async fn until_nothing_can_be_recorded(&self) {
        while !self.shared.engine.store().has_stopped() || self.running() > self.unrecorded() {
            tokio::time::sleep(STOPPED_CHECK_PAUSE).await;
        }
    }
}

/// How often a layer that is drained looks whether its store has stopped.
const STOPPED_CHECK_PAUSE: Duration = Duration::from_millis(50);

/// Large responses recorded at a time, each of which the store copies.
const LARGE_RECORDED_MAX: usize = 2;

impl<S, I> Layer<I> for IdempotencyLayer<S> {
    type Service = Idempotency<S, I>;

    fn layer(&self, inner: I) -> Self::Service {
        Idempotency::new(Arc::clone(&self.shared), inner)
    }
}
