//! Places for connections: how many there are, how many one client may have, and who goes when there are none left.
//!
//! A connection that waits for its client (for a first byte, the rest of a head, the next request, a body that comes too
//! slowly, a word in a tunnel) says so. When all places are taken, the one that has waited longest gives its place to
//! whoever comes next; what runs is never closed. A client that has all that one may have gives up its own first.
//!
//! Nothing here is touched while requests follow each other: a connection says that it waits after it has been quiet for a
//! moment, and that it does not when the next request has come.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::future::poll_fn;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use hapax::http::Client;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use crate::metric_names::CONNECTIONS_CLOSED;

/// So many are sent away at once at most when all places are taken: the next ones to come need not look again.
const BATCH_MAX: usize = 32;
/// Of those that wait, this part is sent away at once at most.
const BATCH_PART: usize = 8;
/// How many connections may be closing beside those that have a place, as a part of all places, and at least and at most.
const CLOSING_PART: usize = 16;
const CLOSING_MIN: usize = 32;
const CLOSING_MAX: usize = 256;
/// Where it is not places that are missing, whoever came just now is spared: its request is on its way.
const SPARED_NANOS: u64 = 1_000_000_000;
/// Where nobody could be sent away, it is tried again after this time at the latest.
const LOOK_AGAIN: Duration = Duration::from_millis(250);
/// Where requests want room, so many connections are sent away at once whose requests all wait for their clients.
const BURDENED_BATCH: usize = 4;
/// What is said of clients is logged at most this often.
const WARN_EVERY: Duration = Duration::from_secs(60);

const ACTIVE: u8 = 0;
const WAITING: u8 = 1;
const SENT_AWAY: u8 = 2;

/// How many connections may be closing beside `max` open ones.
pub fn closing_max(max: usize) -> usize {
    (max / CLOSING_PART).clamp(CLOSING_MIN, CLOSING_MAX)
}

/// All places of a listener.
pub struct Places {
    max: usize,
    client_max: usize,
    begun: Instant,
    state: Mutex<State>,
    freed: Notify,
}

#[derive(Default)]
struct State {
    taken: usize,
    /// Sent away, and not gone yet.
    closing: usize,
    clients: HashMap<Client, Holding>,
    /// Who waits for its client, the longest first.
    waiting: BTreeMap<Rank, Arc<Signal>>,
    /// Those of them that have requests, and all of these wait for their client.
    burdened: BTreeSet<Rank>,
    next: u64,
    /// Somebody wants a place and found nobody to send away.
    wanted: bool,
    quiet_until: Option<Instant>,
}

/// Since when a connection waits, and its number.
type Rank = (u64, u64);

#[derive(Default)]
struct Holding {
    taken: usize,
    waiting: BTreeSet<Rank>,
}

/// What the connection and its place tell each other.
struct Signal {
    state: AtomicU8,
    /// Since when it waits, in nanoseconds; written under the lock.
    since: AtomicU64,
    number: u64,
    client: Option<Client>,
    waker: AtomicWaker,
}

/// Why there is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// All are taken, and nobody could be sent away.
    Full,
    /// The client has as many as one may have, and all of them are in use.
    Client,
}

impl Places {
    /// So many in all, and for one client; where that is as many, clients are not told from each other.
    pub fn new(max: usize, client_max: usize) -> Arc<Self> {
        let (begun, state, freed) = (Instant::now(), Mutex::default(), Notify::new());
        Arc::new(Self { max, client_max, begun, state, freed })
    }

    /// Takes a place; if there is none, whoever has waited longest is sent away. The new connection waits for its client.
    pub fn take(self: &Arc<Self>, client: Option<Client>) -> Result<Place, Denied> {
        let client = client.filter(|_| self.client_max < self.max);
        let mut state = self.state();
        let mine = client.and_then(|client| state.clients.get(&client)).map_or(0, |holding| holding.taken);
        if client.is_some() && mine >= self.client_max && !self.send_away_own(&mut state, client) {
            self.warn(&mut state, client, "its new connections are closed");
            return Err(Denied::Client);
        }
        if state.taken >= self.max {
            self.send_away(&mut state);
        }
        if state.taken >= self.max {
            state.wanted = true;
            return Err(Denied::Full);
        }
        state.wanted = false;
        // Before it hurts.
        if client.is_some() && self.client_max > 1 && mine + 1 == self.client_max.div_ceil(2) {
            self.warn(&mut state, client, "half of what one client may have is taken");
        }
        Ok(self.seat(&mut state, client))
    }

    /// Waits for a place for that client; none if it has too many.
    pub async fn get(self: &Arc<Self>, client: Option<Client>) -> Option<Place> {
        loop {
            match self.take(client) {
                Ok(place) => return Some(place),
                Err(Denied::Client) => return None,
                // Whether it was freed or not is seen when it is tried again.
                Err(Denied::Full) => _ = timeout(LOOK_AGAIN, self.freed.notified()).await,
            }
        }
    }

    /// Sends some away that have waited for a moment at least, for want of something other than places.
    pub fn make_room(&self) {
        let before = self.nanos(Instant::now()).saturating_sub(SPARED_NANOS);
        let mut state = self.state();
        if state.waiting.first_key_value().is_some_and(|((since, _), _)| *since < before) {
            self.send_away(&mut state);
        }
    }

    /// Sends a few away whose requests all wait for their clients, the longest waiting first.
    fn relieve(&self) {
        let mut state = self.state();
        for _ in 0..BURDENED_BATCH.min(closing_max(self.max).saturating_sub(state.closing)) {
            let first = state.burdened.first().and_then(|rank| state.waiting.get(rank)).map(Arc::clone);
            let Some(signal) = first else { return };
            state.send_away(&signal);
            metrics::counter!(CONNECTIONS_CLOSED, "reason" => "full").increment(1);
        }
    }

    fn seat(self: &Arc<Self>, state: &mut State, client: Option<Client>) -> Place {
        state.next += 1;
        state.taken += 1;
        if let Some(client) = client {
            state.clients.entry(client).or_default().taken += 1;
        }
        let signal = Arc::new(Signal {
            state: AtomicU8::new(ACTIVE),
            since: AtomicU64::new(0),
            number: state.next,
            client,
            waker: AtomicWaker::new(),
        });
        state.wait(&signal, self.nanos(Instant::now()), false);
        Place { places: Arc::clone(self), signal }
    }

    /// A few of those that have waited longest, as far as they may be closing at one time.
    fn send_away(&self, state: &mut State) {
        let count = (state.waiting.len() / BATCH_PART).clamp(1, BATCH_MAX);
        for _ in 0..count.min(closing_max(self.max).saturating_sub(state.closing)) {
            let Some((_, signal)) = state.waiting.first_key_value() else { return };
            let signal = Arc::clone(signal);
            state.send_away(&signal);
            metrics::counter!(CONNECTIONS_CLOSED, "reason" => "full").increment(1);
        }
    }

    /// One of the client's own. False if there is none.
    fn send_away_own(&self, state: &mut State, client: Option<Client>) -> bool {
        if state.closing >= closing_max(self.max) {
            return false;
        }
        let holding = client.and_then(|client| state.clients.get(&client));
        let first = holding.and_then(|holding| holding.waiting.first());
        let Some(signal) = first.and_then(|rank| state.waiting.get(rank)).map(Arc::clone) else { return false };
        state.send_away(&signal);
        metrics::counter!(CONNECTIONS_CLOSED, "reason" => "client").increment(1);
        true
    }

    /// Very many callers behind one address are a proxy that nobody has named, or an attack.
    fn warn(&self, state: &mut State, client: Option<Client>, what: &str) {
        let now = Instant::now();
        let Some(client) = client.filter(|_| state.quiet_until.is_none_or(|until| now >= until)) else { return };
        state.quiet_until = Some(now + WARN_EVERY);
        let max = self.client_max;
        tracing::warn!(
            %client,
            max,
            "very many connections from one client: {what}; if it is a proxy with many callers behind it, add it to \
             server.trusted_peers"
        );
    }

    fn nanos(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.begun).as_nanos()).unwrap_or(u64::MAX)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn wait(&mut self, signal: &Arc<Signal>, since: u64, has_requests: bool) {
        signal.since.store(since, Ordering::Relaxed);
        signal.state.store(WAITING, Ordering::Release);
        self.waiting.insert((since, signal.number), Arc::clone(signal));
        if has_requests {
            self.burdened.insert((since, signal.number));
        }
        if let Some(holding) = signal.client.and_then(|client| self.clients.get_mut(&client)) {
            holding.waiting.insert((since, signal.number));
        }
    }

    /// Takes it out of those that wait.
    fn unlist(&mut self, signal: &Signal) {
        let rank = (signal.since.load(Ordering::Relaxed), signal.number);
        self.waiting.remove(&rank);
        self.burdened.remove(&rank);
        if let Some(holding) = signal.client.and_then(|client| self.clients.get_mut(&client)) {
            holding.waiting.remove(&rank);
        }
    }

    /// Its place is free from now on, also if it takes a moment to say goodbye.
    fn send_away(&mut self, signal: &Signal) {
        self.unlist(signal);
        self.free(signal);
        self.closing += 1;
        signal.state.store(SENT_AWAY, Ordering::Release);
        signal.waker.wake();
    }

    fn free(&mut self, signal: &Signal) {
        self.taken -= 1;
        let Some(client) = signal.client else { return };
        if let Some(holding) = self.clients.get_mut(&client) {
            holding.taken -= 1;
            if holding.taken == 0 {
                self.clients.remove(&client);
            }
        }
    }
}

/// The place of one connection, free again when it is dropped.
pub struct Place {
    places: Arc<Places>,
    signal: Arc<Signal>,
}

impl Place {
    /// The connection waits for its client since then, and has no request.
    pub fn wait_since(&self, since: Instant) {
        self.wait(since, false);
    }

    /// The connection waits for its client since then: it has requests or not, and none of them can go on without it.
    pub fn wait(&self, since: Instant, has_requests: bool) {
        if self.signal.state.load(Ordering::Acquire) != ACTIVE {
            return;
        }
        let mut state = self.places.state();
        // Another task of the same connection may have been faster.
        if self.signal.state.load(Ordering::Acquire) != ACTIVE {
            return;
        }
        state.wait(&self.signal, self.places.nanos(since), has_requests);
        if state.wanted {
            self.places.freed.notify_one();
        }
    }

    /// The client has sent what it was waited for.
    pub fn resume(&self) {
        if self.signal.state.load(Ordering::Acquire) != WAITING {
            return;
        }
        let mut state = self.places.state();
        if self.signal.state.load(Ordering::Acquire) == WAITING {
            state.unlist(&self.signal);
            self.signal.state.store(ACTIVE, Ordering::Release);
        }
    }

    /// A request wants room: connections whose requests all wait for their clients give way.
    pub fn relieve(&self) {
        self.places.relieve();
    }

    /// Whether it waits for its client.
    pub fn is_waiting(&self) -> bool {
        self.signal.state.load(Ordering::Acquire) == WAITING
    }

    /// Whether the place was given to somebody else; the task is woken when it is. One task at a time may ask.
    pub fn is_sent_away(&self, cx: &Context<'_>) -> bool {
        if self.signal.state.load(Ordering::Acquire) == ACTIVE {
            return false;
        }
        self.signal.waker.register(cx.waker());
        self.signal.state.load(Ordering::Acquire) == SENT_AWAY
    }

    /// Waits until it is.
    pub async fn sent_away(&self) {
        poll_fn(|cx| {
            self.signal.waker.register(cx.waker());
            if self.signal.state.load(Ordering::Acquire) == SENT_AWAY { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.places.state();
        match self.signal.state.load(Ordering::Acquire) {
            SENT_AWAY => state.closing -= 1,
            was => {
                if was == WAITING {
                    state.unlist(&self.signal);
                }
                state.free(&self.signal);
            }
        }
        drop(state);
        self.places.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(last: u8) -> Option<Client> {
        Some(Client::new([192, 0, 2, last].into()))
    }

    fn is_away(place: &Place) -> bool {
        place.signal.state.load(Ordering::Relaxed) == SENT_AWAY
    }

    #[test]
    fn whoever_has_waited_longest_gives_way_and_nobody_else() {
        let places = Places::new(3, 2);
        let [first, second, third] = [1, 2, 3].map(|of| places.take(client(of)).ok().unwrap());
        first.resume();
        let now = Instant::now();
        first.wait_since(now + Duration::from_secs(1));
        let _fourth = places.take(client(4)).ok().unwrap();
        assert!(is_away(&second) && !is_away(&first) && !is_away(&third));
        third.resume();
        let fifth = places.take(client(5)).ok().unwrap();
        assert!(!is_away(&third));
        fifth.resume();
    }

    #[test]
    fn what_is_active_is_not_sent_away_and_a_place_comes_free_by_its_end() {
        let places = Places::new(2, 1);
        let held = [1, 2].map(|of| places.take(client(of)).ok().unwrap());
        held.iter().for_each(Place::resume);
        assert_eq!(places.take(client(3)).err(), Some(Denied::Full));
        drop(held);
        assert!(places.take(client(3)).is_ok());
        let state = places.state();
        assert_eq!((state.taken, state.clients.len(), state.waiting.len()), (0, 0, 0));
    }

    #[test]
    fn a_client_gives_up_its_own_before_it_gets_more() {
        let places = Places::new(10, 2);
        let held = [1, 1].map(|of| places.take(client(of)).ok().unwrap());
        let other = places.take(client(2)).ok().unwrap();
        let _third = places.take(client(1)).ok().unwrap();
        assert!(is_away(&held[0]) && !is_away(&held[1]) && !is_away(&other));
        held[1].resume();
        _third.resume();
        assert_eq!(places.take(client(1)).err(), Some(Denied::Client));
        assert!(places.take(None).is_ok() && places.take(None).is_ok() && places.take(None).is_ok());
    }

    #[test]
    fn requests_that_wait_for_their_clients_give_way_to_others_and_idle_connections_need_not() {
        let places = Places::new(10, 10);
        let [idle, stuck, active] = [1, 2, 3].map(|of| places.take(client(of)).ok().unwrap());
        stuck.resume();
        active.resume();
        active.relieve();
        assert!(!is_away(&idle) && !is_away(&stuck) && !is_away(&active));
        stuck.wait(Instant::now(), true);
        active.relieve();
        assert!(!is_away(&idle) && is_away(&stuck) && !is_away(&active));
        assert!(places.state().burdened.is_empty());
    }

    #[test]
    fn only_a_few_are_closing_at_one_time() {
        let places = Places::new(50, 50);
        let _held: Vec<Place> = (0..50).map(|_| places.take(None).ok().unwrap()).collect();
        let more: Vec<Result<Place, Denied>> = (0..50).map(|_| places.take(None)).collect();
        assert_eq!(more.iter().filter(|taken| taken.is_ok()).count(), CLOSING_MIN);
        assert!(places.state().closing <= CLOSING_MIN);
    }

    #[tokio::test]
    async fn who_begins_to_wait_gives_way_to_who_wants_a_place() {
        let places = Places::new(1, 1);
        let first = places.take(client(1)).ok().unwrap();
        first.resume();
        let mut getting = std::pin::pin!(places.get(client(2)));
        assert!(futures_util::poll!(&mut getting).is_pending());
        first.wait_since(Instant::now());
        let ((), got) = tokio::join!(first.sent_away(), getting);
        assert!(got.is_some());
    }
}
