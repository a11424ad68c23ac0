//! Which host a connection leads to. Several are tried side by side, so that a silent one costs its head start and no more.
//!
//! A connection counts when it was checked: the login, and everything in `suitable.rs`. The host that was good last goes
//! first; one that is silent for its head start gets company; the first that is good is taken and the others are dropped. A
//! name with several addresses is treated in the same way, address by address.
//!
//! All connections in use lead to one place. When another one is found to be good, or a statement was not answered, those
//! made before are not used again: a server that was frozen and believes itself the primary still gets no more of our writes.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use deadpool_postgres::{ClientWrapper, Connect};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::net::lookup_host;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_postgres::Config;
use tokio_postgres::config::Host;

use crate::connections::{Terms, admit};
use crate::options::{host_count, port_of};

/// How long a host may be silent before the next one is tried beside it. Longer than a login takes, TLS included, on
/// another continent; shorter than anybody waits. Documented in docs/postgres.md.
const HEAD_START: Duration = Duration::from_millis(500);

/// A host of the connection string, at one of its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    host: usize,
    /// None for a socket of this host.
    address: Option<IpAddr>,
}

/// A connection that was checked.
pub(crate) struct Session {
    pub(crate) client: ClientWrapper,
    place: Place,
    era: u64,
    memory: Arc<Memory>,
}

impl Session {
    /// Nothing was answered for as long as is waited at most: connections to that place are not used again, and it is tried
    /// last.
    pub(crate) fn was_silent(&self) {
        self.memory.was_silent(self.place, self.era);
    }

    /// Whether it may be used again.
    pub(crate) fn is_current(&self) -> bool {
        !self.client.is_closed() && self.memory.era.load(Ordering::Acquire) == self.era
    }
}

/// Why a host cannot be used.
#[derive(Debug)]
pub(crate) enum Unusable {
    /// The driver or the server said no.
    Refused(tokio_postgres::Error),
    /// It cannot keep the promises.
    Unsuitable(String),
    /// Its name has no address.
    Nameless(io::Error),
    /// It did not answer in time.
    Silent,
}

/// The hosts of a connection string.
pub(crate) struct Hosts {
    connect: Box<dyn Connect>,
    config: Config,
    terms: Arc<Terms>,
    memory: Arc<Memory>,
    /// For all hosts together.
    limit: Duration,
    /// For each of them, login included.
    limit_each: Duration,
}

impl fmt::Debug for Hosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hosts").field("limit", &self.limit).finish_non_exhaustive()
    }
}

impl Hosts {
    /// Nothing is connected to yet.
    pub(crate) fn new(config: Config, connect: Box<dyn Connect>, terms: Arc<Terms>, limit: Duration) -> Self {
        let limit_each = config.get_connect_timeout().copied().unwrap_or(limit).min(limit);
        Self { connect, config, terms, memory: Arc::default(), limit, limit_each }
    }

    /// A connection to the first host that is good.
    ///
    /// # Errors
    /// Each host that was tried, with the reason.
    pub(crate) async fn session(&self) -> Result<Session, Vec<(String, Unusable)>> {
        let mut hosts: Vec<usize> = (0..self.count()).collect();
        self.memory.order(&mut hosts, |place, host| place.host == *host);
        let deadline = Instant::now() + self.limit;
        let lanes = hosts.into_iter().map(|host| self.session_at_host(host, deadline));
        race(self.head_start(), lanes.collect()).await
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        host_count(&self.config)
    }

    /// With little time, everybody still gets a turn.
    fn head_start(&self) -> Duration {
        let turns = u32::try_from(self.count()).unwrap_or(u32::MAX).saturating_add(1);
        HEAD_START.min(self.limit / turns)
    }

    async fn session_at_host(&self, host: usize, deadline: Instant) -> Result<Session, (String, Unusable)> {
        let named = |reason| (self.name(host), reason);
        let deadline = deadline.min(Instant::now() + self.limit_each);
        let mut addresses = match timeout_at(deadline, self.addresses(host)).await {
            Ok(addresses) => addresses.map_err(|error| named(Unusable::Nameless(error)))?,
            Err(_) => return Err(named(Unusable::Silent)),
        };
        self.memory.order(&mut addresses, |place, address| *place == Place { host, address: *address });
        let lanes = addresses.into_iter().map(|address| self.session_at(Place { host, address }, deadline));
        let won = race(self.head_start(), lanes.collect()).await;
        // Of several addresses the first tells: it is the one that is usually good.
        won.map_err(|mut reasons| named(if reasons.is_empty() { Unusable::Silent } else { reasons.swap_remove(0) }))
    }

    async fn session_at(&self, place: Place, deadline: Instant) -> Result<Session, Unusable> {
        let config = self.config_of(place);
        let made = timeout_at(deadline, async {
            let (client, connection) = self.connect.connect(&config).await.map_err(Unusable::Refused)?;
            let client = ClientWrapper::new(client, connection);
            admit(&client, &self.terms).await?;
            Ok(client)
        });
        let client = made.await.map_err(|_| Unusable::Silent)??;
        let era = self.memory.was_good(place);
        Ok(Session { client, place, era, memory: Arc::clone(&self.memory) })
    }

    /// Where a host can be reached: a socket of this host has no address.
    async fn addresses(&self, host: usize) -> io::Result<Vec<Option<IpAddr>>> {
        if let Some(address) = self.config.get_hostaddrs().get(host) {
            return Ok(vec![Some(*address)]);
        }
        let Some(Host::Tcp(name)) = self.config.get_hosts().get(host) else { return Ok(vec![None]) };
        let mut found: Vec<Option<IpAddr>> = Vec::new();
        for address in lookup_host((name.as_str(), port_of(&self.config, host))).await? {
            if !found.contains(&Some(address.ip())) {
                found.push(Some(address.ip()));
            }
        }
        if found.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
        }
        Ok(found)
    }

    /// The connection string for that place alone.
    fn config_of(&self, place: Place) -> Config {
        let mut config = without_hosts(&self.config);
        config.port(port_of(&self.config, place.host));
        match self.config.get_hosts().get(place.host) {
            // The name is what a certificate is checked against.
            Some(Host::Tcp(name)) => config.host(name),
            #[cfg(unix)]
            Some(Host::Unix(path)) => config.host_path(path),
            None => &mut config,
        };
        if let Some(address) = place.address {
            config.hostaddr(address);
        }
        config
    }

    /// For people.
    fn name(&self, host: usize) -> String {
        crate::options::name_of_host(&self.config, host)
    }
}

/// The same settings for nowhere: the driver's own way through several hosts knows no limit for a login.
fn without_hosts(all: &Config) -> Config {
    let mut config = Config::new();
    if let Some(user) = all.get_user() {
        config.user(user);
    }
    if let Some(password) = all.get_password() {
        config.password(password);
    }
    if let Some(name) = all.get_dbname() {
        config.dbname(name);
    }
    if let Some(options) = all.get_options() {
        config.options(options);
    }
    if let Some(name) = all.get_application_name() {
        config.application_name(name);
    }
    if let Some(timeout) = all.get_connect_timeout() {
        config.connect_timeout(*timeout);
    }
    if let Some(timeout) = all.get_tcp_user_timeout() {
        config.tcp_user_timeout(*timeout);
    }
    if let Some(interval) = all.get_keepalives_interval() {
        config.keepalives_interval(interval);
    }
    if let Some(retries) = all.get_keepalives_retries() {
        config.keepalives_retries(retries);
    }
    config
        .keepalives(all.get_keepalives())
        .keepalives_idle(all.get_keepalives_idle())
        .ssl_mode(all.get_ssl_mode())
        .ssl_negotiation(all.get_ssl_negotiation())
        .target_session_attrs(all.get_target_session_attrs())
        .channel_binding(all.get_channel_binding());
    config
}

/// Starts one after the other: the next one when the last started has been silent for the head start, or any has failed. The
/// first that succeeds wins, and the others are dropped.
async fn race<T, E>(head_start: Duration, lanes: Vec<impl Future<Output = Result<T, E>>>) -> Result<T, Vec<E>> {
    let mut waiting = lanes.into_iter();
    let mut running = FuturesUnordered::new();
    let mut failed = Vec::new();
    loop {
        if running.is_empty() {
            match waiting.next() {
                Some(lane) => running.push(lane),
                None => return Err(failed),
            }
        }
        let done = if waiting.len() == 0 {
            running.next().await
        } else {
            match timeout(head_start, running.next()).await {
                Ok(done) => done,
                Err(_) => {
                    running.extend(waiting.next());
                    continue;
                }
            }
        };
        match done {
            Some(Ok(won)) => return Ok(won),
            Some(Err(reason)) => {
                failed.push(reason);
                running.extend(waiting.next());
            }
            None => {}
        }
    }
}

/// What is known of the places.
#[derive(Debug, Default)]
struct Memory {
    /// Connections of an earlier one are not used again.
    era: AtomicU64,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    good: Option<Place>,
    silent: Option<Place>,
}

impl Memory {
    /// All new connections should lead there. Returns the era that begins or goes on.
    fn was_good(&self, place: Place) -> u64 {
        let mut known = self.known();
        if known.silent == Some(place) {
            known.silent = None;
        }
        if known.good.replace(place).is_some_and(|before| before != place) {
            self.era.fetch_add(1, Ordering::AcqRel);
        }
        self.era.load(Ordering::Acquire)
    }

    /// By a connection of that era.
    fn was_silent(&self, place: Place, era: u64) {
        let mut known = self.known();
        if self.era.load(Ordering::Acquire) == era {
            self.era.fetch_add(1, Ordering::AcqRel);
            *known = Known { good: None, silent: Some(place) };
        }
    }

    /// Whoever was good comes first, whoever was silent last; the others stay as they were written.
    fn order<T>(&self, all: &mut [T], is: impl Fn(&Place, &T) -> bool) {
        let known = self.known();
        all.sort_by_key(|one| match (&known.good, &known.silent) {
            (Some(good), _) if is(good, one) => 0,
            (_, Some(silent)) if is(silent, one) => 2,
            _ => 1,
        });
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Place = Place { host: 0, address: None };
    const B: Place = Place { host: 1, address: None };

    fn order(memory: &Memory) -> Vec<usize> {
        let mut hosts = vec![0, 1, 2];
        memory.order(&mut hosts, |place, host| place.host == *host);
        hosts
    }

    #[test]
    fn the_good_one_goes_first_and_the_silent_one_last() {
        let memory = Memory::default();
        assert_eq!(order(&memory), [0, 1, 2]);
        let era = memory.was_good(B);
        assert_eq!(order(&memory), [1, 0, 2]);
        memory.was_silent(B, era);
        assert_eq!(order(&memory), [0, 2, 1]);
        memory.was_good(A);
        assert_eq!(order(&memory), [0, 2, 1]);
        memory.was_good(B);
        assert_eq!(order(&memory), [1, 0, 2], "what was silent once is forgiven when it is good");
    }

    #[test]
    fn connections_to_another_place_or_from_before_a_silence_are_not_used_again() {
        let memory = Memory::default();
        let first = memory.was_good(A);
        assert_eq!(memory.was_good(A), first);
        let second = memory.was_good(B);
        assert_ne!(first, second);
        memory.was_silent(A, first);
        assert_eq!(memory.was_good(B), second, "of A nothing is left that could tell about B");
        memory.was_silent(B, second);
        assert_ne!(memory.was_good(B), second);
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_lane_delays_by_its_head_start_and_a_failed_one_not_at_all() {
        let lane = |after_ms: u64, answer: Result<u32, u32>| async move {
            tokio::time::sleep(Duration::from_millis(after_ms)).await;
            answer
        };
        let head_start = Duration::from_millis(500);
        for (lanes, wins, after_ms) in [
            (vec![lane(10, Ok(1)), lane(10, Ok(2))], Ok(1), 10),
            (vec![lane(60_000, Ok(1)), lane(10, Ok(2))], Ok(2), 510),
            (vec![lane(10, Err(1)), lane(10, Ok(2))], Ok(2), 20),
            (vec![lane(60_000, Err(1)), lane(60_000, Err(2)), lane(10, Ok(3))], Ok(3), 1_010),
            (vec![lane(700, Ok(1)), lane(10, Err(2))], Ok(1), 700),
            (vec![lane(10, Err(1)), lane(10, Err(2))], Err(vec![1, 2]), 20),
            (vec![], Err(vec![]), 0),
        ] {
            let began = Instant::now();
            assert_eq!(race(head_start, lanes).await, wins);
            assert_eq!(began.elapsed().as_millis(), after_ms, "{wins:?}");
        }
    }

    /// The driver's settings are copied one by one: none may be forgotten.
    #[test]
    fn a_place_has_every_setting_of_the_connection_string() {
        let settings = "user=me password=pass dbname=app options=-cgeqo=off application_name=name sslmode=require \
                        connect_timeout=3 tcp_user_timeout=4 keepalives=0 keepalives_idle=5 keepalives_interval=6 \
                        keepalives_retries=7 target_session_attrs=read-write channel_binding=require \
                        sslnegotiation=direct";
        let all: Config = format!("{settings} host=a,b port=1,2").parse().unwrap();
        let one: Config = format!("{settings} host=b hostaddr=10.0.0.7 port=2").parse().unwrap();
        struct Nobody;
        impl Connect for Nobody {
            fn connect(&self, _: &Config) -> std::pin::Pin<Box<dyn Future<Output = Connected> + Send + '_>> {
                Box::pin(std::future::pending())
            }
        }
        type Connected = Result<(tokio_postgres::Client, tokio::task::JoinHandle<()>), tokio_postgres::Error>;
        let hosts = Hosts::new(all, Box::new(Nobody), Arc::default(), Duration::from_secs(9));
        assert_eq!(hosts.limit_each, Duration::from_secs(3));
        let address = Some(IpAddr::from([10, 0, 0, 7]));
        assert!(hosts.config_of(Place { host: 1, address }) == one);
    }
}
