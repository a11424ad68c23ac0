//! The parts of a running proxy together: store, layer, upstream, and what is changed or ended while it runs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use hapax::http::{IdempotencyLayer, Settings};
use hapax_core::store::{Durability, Store as _};
use metrics_exporter_prometheus::PrometheusHandle;
use rustls::ClientConfig;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tower_layer::Layer;

use crate::admin::Access;
use crate::config::unprobed::ProbeCount;
use crate::config::{self, Config, ConfigErrors, LogFormat, Setting, Sources};
use crate::desk::direct::Direct;
use crate::run::background::{self, Background};
use crate::run::forward::Forward;
use crate::run::guard::Doorkeeper;
use crate::run::notify::Notify;
use crate::run::prepare::{Prepared, prepare};
use crate::run::probe::Probes;
use crate::run::readiness::Fitness;
use crate::run::scopes::ForLayer;
use crate::run::service::Numbered;
use crate::run::signals::{Signal, Signals};
use crate::run::{Ended, StartError, memory, other, settings};
use crate::scope::Scopes;
use crate::store::AnyStore;
use crate::store::address_scheme;
use crate::store::durability::{Watched, meaning};
use crate::{admin, logs};
use hapax_proxy::descriptors;
use hapax_proxy::headers::ReliedOn;
use hapax_proxy::tls::{self, Certificate};
use hapax_proxy::{ListenOptions, Shutdown, Upstream, UpstreamOptions};

/// How long a replayed answer is at hand. Retries of one key in a storm come closer together; people who purge a key need
/// longer to tell anybody.
const ANSWERS_AT_HAND: Duration = Duration::from_secs(1);

/// A proxy that runs.
pub(super) struct Node {
    pub(super) config: Config,
    pub(super) store: AnyStore,
    pub(super) durability: Arc<Watched>,
    /// Whether no node has used the store before: it knows no keys.
    pub(super) is_new: bool,
    sources: Sources,
    salt: [u8; 32],
    /// How addresses of records are made, which no reload changes.
    scheme: String,
    /// As the last reload left them.
    scopes: ArcSwap<Scopes>,
    layer: IdempotencyLayer<AnyStore>,
    upstream: Arc<ArcSwap<Upstream>>,
    probes: Arc<ArcSwap<Probes>>,
    doorkeeper: Arc<Doorkeeper>,
    relied_on: ReliedOn,
    certificate: Option<Certificate>,
    draining: Arc<AtomicBool>,
    access: Arc<ArcSwap<Access>>,
    /// As the last reload left it, and every setting as text.
    current: Mutex<(Config, Vec<Setting>)>,
}

impl Node {
    /// Opens the store and puts everything together. Nothing is served yet.
    pub(super) async fn start(config: Config, prepared: Prepared, sources: Sources) -> Result<Self, StartError> {
        let Prepared { certificate, upstream, probes, scopes, settings: explained } = prepared;
        let store = AnyStore::open(&config.store).await?;
        let durability = Watched::begin(&store).await?;
        if config.store.strict && durability.last() == Durability::None {
            let cause = meaning(&store, durability.last());
            return Err(StartError::Other(format!("`store.strict` refuses this store: {cause}; put it on a disk")));
        }
        let remembered = address_scheme::recall(&store).await?;
        let scopes = Arc::new(scopes.with_salt(remembered.salt));
        let ours = settings::scheme(&scopes.scheme(), &config);
        if let Some(theirs) = address_scheme::confirm(&store, &ours, config.new_addresses).await? {
            return Err(StartError::OtherAddresses { ours, theirs });
        }
        let addresses = address_scheme::of_scopes(&scopes.scheme()).map_err(other)?;
        let is_new = remembered.scheme.is_empty();
        let doorkeeper = Arc::new(Doorkeeper::new(&config, store.clone()));
        if let Err(error) = doorkeeper.ceiling.measure(&store).await {
            tracing::warn!(%error, "the store could not be measured; it is tried again");
        }
        let layer = IdempotencyLayer::with_scheme(store.clone(), addresses, ForLayer(Arc::clone(&scopes)));
        let node = Self {
            relied_on: Arc::new(ArcSwap::from_pointee(settings::relied_on(&config))),
            access: Arc::new(ArcSwap::from_pointee(settings::access(&config.admin))),
            current: Mutex::new((config.clone(), explained)),
            config,
            store,
            durability,
            is_new,
            sources,
            salt: remembered.salt,
            scheme: ours,
            scopes: ArcSwap::new(Arc::clone(&scopes)),
            layer,
            upstream,
            probes: Arc::new(ArcSwap::from_pointee(probes)),
            doorkeeper,
            certificate,
            draining: Arc::default(),
        };
        node.layer.replace(node.settings(&node.config, Arc::clone(&scopes))?);
        background::look_for_fence(&node.layer).await?;
        // Keys of tokens are fetched in advance; where that fails, the first request tries again.
        tokio::spawn(async move { scopes.warm().await });
        if node.is_new {
            tracing::info!(store = node.store.name(), "the store is new: no key is known yet");
        }
        for warning in node.config.warnings() {
            tracing::warn!("{warning}");
        }
        Ok(node)
    }

    fn settings(&self, config: &Config, scopes: Arc<Scopes>) -> Result<Settings, StartError> {
        let attempts = config.server.attempts_max.get() as usize;
        let attempts_per_client = config.server.attempts_per_client_max.get() as usize;
        let attempts_max = descriptors::outgoing(memory::places(attempts, &config.server));
        Ok(Settings {
            routes: settings::routes(config).map_err(other)?,
            scopes: Arc::new(ForLayer(scopes)),
            guard: Arc::<Doorkeeper>::clone(&self.doorkeeper),
            key_headers: config.keys.headers.clone(),
            fingerprint_keys: settings::fingerprint_keys(config).map_err(other)?,
            cors: settings::cors(config),
            fence: self.layer.settings().fence,
            answers_at_hand: ANSWERS_AT_HAND,
            store_timeout: settings::store_patience(config),
            attempts_max,
            attempts_per_client_max: descriptors::part(attempts_per_client, attempts_max, attempts),
            memory_max: memory::budget(config),
        })
    }

    /// Serves clients from that socket.
    pub(super) fn serve(&self, listener: TcpListener, shutdown: Shutdown) -> Result<JoinHandle<()>, StartError> {
        let service = Numbered::new(self.layer.layer(self.forward()));
        let tls = self.certificate.as_ref().map(Certificate::server_config).transpose()?;
        let options = ListenOptions { relied_on: Arc::clone(&self.relied_on), ..listen_options(&self.config) };
        Ok(tokio::spawn(hapax_proxy::serve(listener, tls, options, service, shutdown)))
    }

    fn forward(&self) -> Forward {
        Forward::new(Arc::clone(&self.upstream), self.config.server.request_id_header.clone())
    }

    /// Starts what is done beside requests.
    pub(super) fn start_background(&self) -> Background {
        Background::start(&self.layer, &self.config.background, &self.probes, &self.doorkeeper, &self.durability)
    }

    /// Serves operators until the token is cancelled.
    pub(super) fn serve_admin(&self, listener: Option<TcpListener>, metrics: PrometheusHandle) -> CancellationToken {
        let ending = CancellationToken::new();
        let Some(listener) = listener else { return ending };
        let readiness = Fitness {
            store: Arc::clone(&self.durability),
            doorkeeper: Arc::clone(&self.doorkeeper),
            draining: Arc::clone(&self.draining),
        };
        let state = Arc::new(admin::State {
            readiness,
            metrics,
            callers: Arc::clone(&self.doorkeeper.callers),
            access: Arc::clone(&self.access),
            hosts: self.config.admin.hosts.clone(),
            desk: self.desk(),
        });
        let ended = ending.clone();
        tokio::spawn(async move {
            if let Err(error) = admin::serve(listener, state, ended.cancelled()).await {
                tracing::error!(%error, "the admin listener ended");
            }
        });
        ending
    }

    /// The operator's desk, at this node.
    fn desk(&self) -> Direct {
        let (layer, doorkeeper) = (self.layer.clone(), Arc::clone(&self.doorkeeper));
        let patience = settings::store_patience(&self.config);
        let probes = ProbeCount::of(&self.config);
        let desk = Direct::new(self.store.clone()).with_ceiling(Arc::clone(&self.doorkeeper.ceiling));
        desk.with_patience(patience).with_probes(probes).with_own_problems(move || {
            let mut problems = Vec::new();
            if doorkeeper.breaker.is_open() {
                problems.push("the store failed several times, and this node refuses claims; its log says why".to_owned());
            }
            match layer.unrecorded() {
                0 => {}
                count if layer.engine().store().has_stopped() => problems.push(format!(
                    "outcomes that cannot be recorded, because the store has stopped: {count}; restart the node; their keys \
                     are unknown then until they are reconciled"
                )),
                count => problems.push(format!(
                    "answers that wait in this node's memory for the store: {count}; bring it back before you restart the node"
                )),
            }
            problems
        })
    }

    /// Reloads when asked to, until told to end.
    pub(super) async fn until_told_to_end(&self, signals: &mut Signals, notify: &Notify) {
        while let Signal::Reload = signals.next().await {
            notify.reloading();
            let result = match self.reload() {
                Ok(()) => "applied",
                Err(causes) => {
                    causes.iter().for_each(|cause| tracing::error!("{cause}"));
                    tracing::error!("the configuration was not reloaded; the old one stays in force");
                    "refused"
                }
            };
            metrics::counter!("hapax_reload_total", "result" => result).increment(1);
            notify.ready("serving");
        }
    }

    /// Reads the configuration again, and puts it in force as a whole or not at all.
    fn reload(&self) -> Result<(), Vec<String>> {
        let told = |errors: ConfigErrors| errors.0.iter().map(ToString::to_string).collect::<Vec<_>>();
        let explained = config::explain(&self.sources);
        let new = explained.config.map_err(told)?;
        let prepared = prepare(&new, &explained.settings).map_err(told)?;
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let scopes = prepared.scopes.with_salt(self.salt);
        let mut restart = current.0.needs_restart(&new);
        if scopes.scheme() != self.scopes.load().scheme() {
            restart.push("scope");
        }
        // Whatever was overlooked above: no reload makes other addresses.
        if restart.is_empty() && settings::scheme(&scopes.scheme(), &new) != self.scheme {
            restart.push("what addresses depend on");
        }
        if !restart.is_empty() {
            return Err(vec![format!("these settings need a restart: {}; restart, or undo them", restart.join(", "))]);
        }
        let scopes = Arc::new(scopes.with_keys_of(&self.scopes.load()));
        let settings = self.settings(&new, Arc::clone(&scopes)).map_err(|error| vec![error.to_string()])?;
        let probes = Probes::new(&new, &self.upstream).map_err(|error| vec![error.to_string()])?;
        if let Some(certificate) = &self.certificate {
            certificate.reload().map_err(|error| vec![error.to_string()])?;
        }
        logs::set_filter(&new.log.level).map_err(|error| vec![error.to_string()])?;
        logs::set_requests_per_second(new.log.requests_per_second);
        self.relied_on.store(Arc::new(settings::relied_on(&new)));
        self.layer.replace(settings);
        self.scopes.store(Arc::clone(&scopes));
        // Whoever reloads may have withdrawn a key.
        tokio::spawn(async move { scopes.warm().await });
        self.upstream.store(prepared.upstream.load_full());
        self.probes.store(Arc::new(probes));
        self.access.store(Arc::new(settings::access(&new.admin)));
        self.doorkeeper.adjust(&new);
        let changed = config::changes(&current.1, &explained.settings);
        *current = (new, explained.settings);
        tracing::info!(changed, "the configuration was reloaded");
        Ok(())
    }

    /// Says that this node is about to end, and goes on accepting requests for a while: whoever sends them has to hear of it
    /// first (`server.drain_delay`). Not where a person waits at a terminal; a second signal ends it.
    pub(super) async fn announce_end(&self, signals: &mut Signals) {
        self.draining.store(true, Ordering::SeqCst);
        let delay = self.current.lock().unwrap_or_else(PoisonError::into_inner).0.server.drain_delay;
        if delay.is_zero() || signals.is_interrupted() {
            return;
        }
        tracing::info!(delay_s = delay.as_secs_f64(), "shutting down: not ready, and still accepting requests");
        let told_again = async { while signals.next().await != Signal::Abandon {} };
        // Whichever comes first.
        let _ = timeout(delay, told_again).await;
    }

    /// Stops accepting, finishes and records what runs, within the drain time; a second signal ends it at once.
    pub(super) async fn end(&self, signals: &mut Signals, shutdown: &Shutdown, serving: JoinHandle<()>) -> Ended {
        let drain = self.current.lock().unwrap_or_else(PoisonError::into_inner).0.server.drain;
        tracing::info!(running = self.layer.running(), "ending: finishing what runs");
        shutdown.drain();
        let finish = async {
            // The task ends when every connection has; if it failed, there is nothing left to wait for.
            let _ = serving.await;
            self.layer.drain().await;
            // What ran has told its late truth by now.
            self.doorkeeper.noted().await;
        };
        let told_again = async { while signals.next().await != Signal::Abandon {} };
        let ended = tokio::select! {
            ended = timeout(drain, finish) => match ended {
                Ok(()) if self.layer.unrecorded() > 0 => {
                    let unrecorded = self.layer.unrecorded();
                    tracing::error!(
                        unrecorded,
                        "shut down without waiting longer: the store has stopped, and the outcomes of these requests could not \
                         be recorded; after the restart their keys are unknown until they are reconciled, unless a failed write is \
                         found to be there"
                    );
                    Ended::Early
                }
                Ok(()) => {
                    tracing::info!("ended: everything that ran is recorded");
                    Ended::Complete
                }
                Err(_) => {
                    let (running, notes) = (self.layer.running(), self.doorkeeper.notes.len());
                    tracing::warn!(running, notes, "ended before everything was recorded");
                    Ended::Early
                }
            },
            () = told_again => {
                tracing::warn!(running = self.layer.running(), "ended at once; leases are left to lapse");
                Ended::Early
            }
        };
        shutdown.abandon();
        ended
    }
}

fn listen_options(config: &Config) -> ListenOptions {
    let server = &config.server;
    let configured = server.connections_max.get() as usize;
    let connections_max = descriptors::incoming(memory::places(configured, server));
    let per_client = server.connections_per_client_max.get() as usize;
    ListenOptions {
        connections_max,
        connections_per_client_max: descriptors::part(per_client, connections_max, configured),
        fields_max: server.header_count_max.get() as usize,
        head_bytes_max: server.header_bytes_max,
        head_time: server.header_timeout,
        body_time: server.body_timeout,
        body_rate_min: server.body_rate_min.map(Into::into),
        write_time: server.write_timeout,
        write_rate_min: server.write_rate_min.map(Into::into),
        tunnel_idle_time: server.tunnel_idle_timeout,
        idle_time: server.keep_alive,
        streams_max: server.h2_streams_max.get(),
        resets_max: server.h2_resets_max.get() as usize,
        trusted_peers: server.trusted_peers.clone(),
        request_id_header: server.request_id_header.clone(),
        ..ListenOptions::default()
    }
}

/// The upstream that the configuration names.
pub(super) fn upstream(config: &Config) -> Result<Upstream, StartError> {
    upstream_at(&config.upstream.to, config, config.upstream.keep_host)
}

/// Somebody at that URL, who is reached as the upstream is, under the host that a request names or under its own.
pub(super) fn upstream_at(url: &http::Uri, config: &Config, keep_host: bool) -> Result<Upstream, StartError> {
    let upstream = &config.upstream;
    let tls = match url.scheme_str() {
        Some("https") => Some(trust(upstream)?),
        _ => None,
    };
    let options = UpstreamOptions {
        connect_timeout: upstream.connect_timeout,
        answer_timeout: upstream.answer_timeout,
        idle_timeout: upstream.idle_timeout,
        idle_max: upstream.idle_connections_max.get() as usize,
        h2c: upstream.h2c,
        host_of_upstream: !keep_host,
        tls,
    };
    Upstream::new(url, options).map_err(other)
}

/// Whom to trust in an upstream, and what to speak with it.
fn trust(upstream: &config::Upstream) -> Result<Arc<ClientConfig>, StartError> {
    let mut tls = tls::client_config(upstream.ca_file.as_deref())?;
    if !upstream.h2 {
        Arc::make_mut(&mut tls).alpn_protocols = vec![b"http/1.1".to_vec()];
    }
    Ok(tls)
}

pub(super) fn log_format(format: LogFormat) -> logs::Format {
    match format {
        LogFormat::Auto => logs::Format::Auto,
        LogFormat::Pretty => logs::Format::Pretty,
        LogFormat::Json => logs::Format::Json,
    }
}
