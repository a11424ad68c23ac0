//! How many new keys that come to nothing one client address may use.
//!
//! A rate per caller stops nobody who makes callers up: with the scope `credential` every made-up token is a new caller, and
//! each leaves a record. So new keys are counted by client address as well ([`Client`]: the peer, or whom a trusted peer
//! names). A plain rate per address would be an outage wherever many people share one: an office, a mobile network, a load
//! balancer that nobody has declared. What tells them from a sprayer is what comes of their requests, so that is what counts:
//!
//! - A request of a caller that has lately had a good answer (below 400) at this address is never held back and costs
//!   nothing. Such a *proof* is used up by `PROOF` answers from 400 to 499 in a row. A service that fails says nothing about its
//!   callers, so an outage uses up no proof.
//! - Any other request is let through while the address has an allowance. It costs 1 when it has ended without a good answer, and
//!   `UNKNOWN_COST` when it leaves a caller its first unknown outcomes, because such a record stays until somebody resolves
//!   it. Many of one caller are limited by [`active`](super::active) instead.
//! - The allowance is refilled at the configured rate, up to `BURST_SECONDS` seconds' worth. A good answer pays for a useless
//!   one as well, and the first good answer of a caller for `FIRST_WORTH`.
//!
//! It is paid afterwards, when it is known what came of a request. So that nobody starts any number before the first has ended,
//! an address may have `UNDER_WAY` times its allowance under way; and what they cost beyond it is owed, up to one burst, so
//! that nobody is shut out for longer than that takes to refill. The failures of a service are not owed: when it is back, so are
//! its callers.
//!
//! Many proven callers at one address are a shared address: the operator is told once, with `trusted_peers` as the next step.
//! Memory is bounded: made-up callers are never remembered, and clients beyond `CLIENTS_MAX` share one allowance.

use std::collections::HashMap;
#[expect(clippy::disallowed_types, reason = "nothing that is stored depends on it; a sprayer must not foresee it")]
use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher as _;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hapax::http::Client;
use tokio::time::Instant;

use super::hashed::ByHash;

/// The allowance holds as much as comes in so many seconds: an honest burst, such as all clients after a restart.
const BURST_SECONDS: f64 = 10.0;

/// Useless requests in a row that a good answer vouches for.
const PROOF: u32 = 100;

/// What an unknown outcome costs: nothing takes its record away but a probe or a person.
const UNKNOWN_COST: u32 = 10;

/// What the first good answer of a caller at an address pays for: an address with ever new honest callers, among them many who
/// mistype their password, is none that sprays.
const FIRST_WORTH: u32 = 10;

/// How many times its allowance an address may have under way: honest callers come in crowds, and most of them turn out good.
const UNDER_WAY: f64 = 2.0;

/// Clients remembered. Those beyond share one allowance: who has so many addresses is limited by the ceiling of the store.
pub const CLIENTS_MAX: usize = 65_536;

/// Proofs remembered, in two generations of half as many: those that are not used are forgotten first.
pub const PROOFS_MAX: usize = 131_072;

/// An address with so many proven callers is shared by people who know nothing of each other.
pub const CROWD: u32 = 1_000;

/// One client's being held back is logged at most so often.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// Where there is no room for a client, room is looked for at most so often: it reads all of them.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// Locks, so that clients and callers seldom wait for each other.
const SHARDS: usize = 16;

/// What came of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Worth {
    /// An answer below 400.
    Good,
    /// An answer from 400 to 499: the caller was turned away, or asked for something that cannot be.
    Useless,
    /// The service failed, or was not reached.
    Failed,
    /// Nobody knows, and the caller has few such requests: it may be made up.
    Unknown,
}

/// What every client may still use up, and whose callers are proven.
#[expect(clippy::disallowed_types, reason = "nothing that is stored depends on it; a sprayer must not foresee it")]
pub struct Clients {
    /// Useless new keys per second; 0: no limit.
    rate: AtomicU32,
    hasher: RandomState,
    allowances: [Mutex<Allowances>; SHARDS],
    proofs: [Mutex<Proofs>; SHARDS],
}

impl Clients {
    /// Nobody is known yet. `None`: no limit.
    #[must_use]
    pub fn new(per_second: Option<NonZeroU32>) -> Self {
        let clients = Self {
            rate: AtomicU32::new(0),
            hasher: Default::default(),
            allowances: Default::default(),
            proofs: Default::default(),
        };
        clients.set_rate(per_second);
        clients
    }

    /// Another rate from now on.
    pub fn set_rate(&self, per_second: Option<NonZeroU32>) {
        self.rate.store(per_second.map_or(0, NonZeroU32::get), Ordering::Relaxed);
    }

    /// May this caller use a new key, coming from there?
    ///
    /// # Errors
    ///
    /// No: how long to wait before the next one.
    pub fn new_key(&self, client: Client, caller: &str) -> Result<(), Duration> {
        self.new_key_at(client, caller, Instant::now)
    }

    /// [`Clients::new_key`] at a given time.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn new_key_at(&self, client: Client, caller: &str, now: impl FnOnce() -> Instant) -> Result<(), Duration> {
        let Some(rate) = self.rate() else { return Ok(()) };
        let pair = self.pair(client, caller);
        if lock(self.proofs_of(pair)).left(pair) > 0 {
            return Ok(());
        }
        let now = now();
        let held = match lock(self.allowances_of(client)).find(client) {
            Some(allowance) => allowance.hold(rate, now),
            None => return Ok(()),
        };
        let Some(Held { wait, tell }) = held else { return Ok(()) };
        if tell {
            tracing::warn!(
                %client,
                "a client is held back: its requests with new keys came to nothing, over and over; if it is a load balancer or \
                 proxy of yours, add it to `server.trusted_peers`"
            );
        }
        Err(wait)
    }

    /// A request of this caller, coming from there, runs. Says whether it counts as one under way, which is to be said at its
    /// end.
    pub fn began(&self, client: Client, caller: &str) -> bool {
        self.began_at(client, caller, Instant::now)
    }

    /// [`Clients::began`] at a given time.
    pub fn began_at(&self, client: Client, caller: &str, now: impl FnOnce() -> Instant) -> bool {
        let Some(rate) = self.rate() else { return false };
        let pair = self.pair(client, caller);
        let counts = lock(self.proofs_of(pair)).left(pair) == 0;
        if counts {
            let now = now();
            lock(self.allowances_of(client)).of(client, rate, now).under_way += 1;
        }
        counts
    }

    /// It has ended so; `counted` is what [`Clients::began`] said.
    pub fn ended(&self, client: Client, caller: &str, worth: Worth, counted: bool) {
        self.ended_at(client, caller, (worth, counted), Instant::now());
    }

    /// [`Clients::ended`] at a given time.
    pub fn ended_at(&self, client: Client, caller: &str, (worth, counted): (Worth, bool), now: Instant) {
        if counted && let Some(allowance) = lock(self.allowances_of(client)).find(client) {
            allowance.under_way = allowance.under_way.saturating_sub(1);
        }
        let Some(rate) = self.rate() else { return };
        let pair = self.pair(client, caller);
        let (is_proven, most_owed) = match worth {
            Worth::Good => return self.ended_well(rate, client, pair, now),
            Worth::Useless => (lock(self.proofs_of(pair)).use_up(pair), rate * BURST_SECONDS),
            Worth::Unknown => (lock(self.proofs_of(pair)).left(pair) > 0, rate * BURST_SECONDS),
            Worth::Failed => (lock(self.proofs_of(pair)).left(pair) > 0, 0.0),
        };
        let cost = if worth == Worth::Unknown { UNKNOWN_COST } else { 1 };
        if !is_proven {
            lock(self.allowances_of(client)).of(client, rate, now).charge(f64::from(cost), most_owed, rate, now);
        }
    }

    fn ended_well(&self, rate: f64, client: Client, pair: u64, now: Instant) {
        let is_first = lock(self.proofs_of(pair)).renew(pair);
        let mut allowances = lock(self.allowances_of(client));
        if !is_first {
            if let Some(allowance) = allowances.find(client) {
                allowance.earn(1.0, rate, now);
            }
            return;
        }
        let allowance = allowances.of(client, rate, now);
        allowance.earn(f64::from(FIRST_WORTH), rate, now);
        allowance.callers += 1;
        if allowance.callers == CROWD {
            drop(allowances);
            tracing::warn!(
                %client,
                callers = CROWD,
                "very many callers come from one address, which limits per client count as one; if it is a load balancer or \
                 proxy of yours, add it to `server.trusted_peers`"
            );
        }
    }

    /// How many clients and how many proofs are remembered, for tests and curiosity.
    #[must_use]
    pub fn remembered(&self) -> (usize, usize) {
        let clients = self.allowances.iter().map(|shard| lock(shard).by_client.len()).sum();
        let proofs = self.proofs.iter().map(|shard| lock(shard)).map(|shard| shard.young.len() + shard.old.len()).sum();
        (clients, proofs)
    }

    fn rate(&self) -> Option<f64> {
        match self.rate.load(Ordering::Relaxed) {
            0 => None,
            rate => Some(f64::from(rate)),
        }
    }

    fn pair(&self, client: Client, caller: &str) -> u64 {
        self.hasher.hash_one((client, caller))
    }

    fn proofs_of(&self, pair: u64) -> &Mutex<Proofs> {
        &self.proofs[pair as usize % SHARDS]
    }

    fn allowances_of(&self, client: Client) -> &Mutex<Allowances> {
        &self.allowances[self.hasher.hash_one(client) as usize % SHARDS]
    }
}

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clients").field("rate", &self.rate).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Callers that had a good answer, by a hash of client and caller, with the useless requests that it still vouches for.
#[derive(Default)]
struct Proofs {
    young: ByHash<u32>,
    old: ByHash<u32>,
}

impl Proofs {
    fn left(&self, pair: u64) -> u32 {
        self.young.get(&pair).or_else(|| self.old.get(&pair)).copied().unwrap_or(0)
    }

    /// Says whether it is the first.
    fn renew(&mut self, pair: u64) -> bool {
        if let Some(left) = self.young.get_mut(&pair) {
            *left = PROOF;
            return false;
        }
        if self.young.len() >= PROOFS_MAX / 2 / SHARDS {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(pair, PROOF);
        self.old.remove(&pair).is_none()
    }

    /// False where there is none.
    fn use_up(&mut self, pair: u64) -> bool {
        let generation = if self.young.contains_key(&pair) { &mut self.young } else { &mut self.old };
        let Some(left) = generation.get_mut(&pair) else { return false };
        *left = left.saturating_sub(1);
        if *left == 0 {
            generation.remove(&pair);
        }
        true
    }
}

/// What the clients of one shard may use up.
#[derive(Default)]
struct Allowances {
    by_client: HashMap<Client, Allowance>,
    /// Of all for whom there is no room.
    others: Option<Allowance>,
    /// When room was last looked for.
    swept_at: Option<Instant>,
}

impl Allowances {
    fn find(&mut self, client: Client) -> Option<&mut Allowance> {
        match self.by_client.get_mut(&client) {
            Some(allowance) => Some(allowance),
            None => self.others.as_mut(),
        }
    }

    fn of(&mut self, client: Client, rate: f64, now: Instant) -> &mut Allowance {
        let most = CLIENTS_MAX / SHARDS;
        if self.by_client.len() >= most && !self.by_client.contains_key(&client) {
            if self.swept_at.is_none_or(|swept_at| now >= swept_at + SWEEP_EVERY) {
                // Who owes nothing is as good as new.
                self.by_client.retain(|_, allowance| !allowance.is_full(rate, now));
                self.swept_at = Some(now);
            }
            if self.by_client.len() >= most {
                return self.others.get_or_insert_with(|| Allowance::full(rate, now));
            }
            self.others = None;
        }
        self.by_client.entry(client).or_insert_with(|| Allowance::full(rate, now))
    }
}

/// What one client may use up.
struct Allowance {
    left: f64,
    at: Instant,
    /// Requests of callers without a proof that run.
    under_way: u32,
    /// Callers that were proven there.
    callers: u32,
    told_at: Option<Instant>,
}

/// A request is held back.
struct Held {
    wait: Duration,
    /// It is time to tell the operator.
    tell: bool,
}

impl Allowance {
    fn full(rate: f64, now: Instant) -> Self {
        Self { left: rate * BURST_SECONDS, at: now, under_way: 0, callers: 0, told_at: None }
    }

    fn refill(&mut self, rate: f64, now: Instant) {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.left = (self.left + passed * rate).min(rate * BURST_SECONDS);
        self.at = self.at.max(now);
    }

    fn is_full(&mut self, rate: f64, now: Instant) -> bool {
        self.refill(rate, now);
        self.left >= rate * BURST_SECONDS && self.under_way == 0
    }

    fn earn(&mut self, worth: f64, rate: f64, now: Instant) {
        self.refill(rate, now);
        self.left = (self.left + worth).min(rate * BURST_SECONDS);
    }

    fn charge(&mut self, cost: f64, most_owed: f64, rate: f64, now: Instant) {
        self.refill(rate, now);
        // What is owed already stays owed.
        self.left = (self.left - cost).max(self.left.min(-most_owed));
    }

    fn hold(&mut self, rate: f64, now: Instant) -> Option<Held> {
        self.refill(rate, now);
        if self.left >= 1.0 && f64::from(self.under_way) < self.left * UNDER_WAY {
            return None;
        }
        let tell = self.told_at.is_none_or(|told_at| now >= told_at + WARN_EVERY);
        if tell {
            self.told_at = Some(now);
        }
        let missing = (1.0 - self.left).max(0.0);
        Some(Held { wait: Duration::from_secs_f64(missing / rate), tell })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(number: u32) -> Client {
        Client::new(std::net::Ipv4Addr::from(number).into())
    }

    fn clients(per_second: u32) -> (Clients, Client, Instant) {
        (Clients::new(NonZeroU32::new(per_second)), client(1), Instant::now())
    }

    /// How many of so many made-up callers are let through, if each request ends so.
    fn passed(clients: &Clients, from: Client, callers: std::ops::Range<u32>, worth: Worth, now: Instant) -> usize {
        let passes = |caller: &u32| {
            let caller = format!("made-up-{caller}");
            let passes = clients.new_key_at(from, &caller, || now).is_ok();
            if passes {
                clients.ended_at(from, &caller, (worth, false), now);
            }
            passes
        };
        callers.filter(passes).count()
    }

    #[test]
    fn made_up_callers_are_held_back_at_a_burst_and_then_at_the_rate() {
        let (clients, from, now) = clients(5);
        assert_eq!(passed(&clients, from, 0..800, Worth::Useless, now), 50);
        let wait = clients.new_key_at(from, "next", || now).unwrap_err();
        assert!(wait <= Duration::from_millis(200), "{wait:?}");
        assert_eq!(passed(&clients, from, 800..1_600, Worth::Useless, now + Duration::from_secs(2)), 10);
        assert_eq!(clients.new_key_at(client(2), "next", || now), Ok(()), "another address");
    }

    #[test]
    fn unknown_outcomes_cost_more() {
        let (clients, from, now) = clients(5);
        assert_eq!(passed(&clients, from, 0..800, Worth::Unknown, now), 5);
    }

    #[test]
    fn very_many_honest_callers_of_one_address_are_not_held_back() {
        let (clients, from, now) = clients(100);
        for crowd in (0..20_000).collect::<Vec<u32>>().chunks(2_000) {
            for caller in crowd {
                assert_eq!(clients.new_key_at(from, &caller.to_string(), || now), Ok(()), "{caller}");
                assert!(clients.began_at(from, &caller.to_string(), || now));
            }
            for caller in crowd {
                clients.ended_at(from, &caller.to_string(), (Worth::Good, true), now);
            }
        }
        // One in two of the next new ones mistypes the password.
        for caller in 20_000..40_000_u32 {
            assert_eq!(clients.new_key_at(from, &caller.to_string(), || now), Ok(()));
            let worth = if caller % 2 == 0 { Worth::Good } else { Worth::Useless };
            clients.ended_at(from, &caller.to_string(), (worth, false), now);
        }
    }

    #[test]
    fn proven_callers_go_on_beside_a_sprayer_until_they_spray_themselves() {
        let (clients, from, now) = clients(1);
        clients.ended_at(from, "alice", (Worth::Good, false), now);
        passed(&clients, from, 0..1_000, Worth::Useless, now);
        assert!(clients.new_key_at(from, "mallory", || now).is_err());
        for _ in 0..PROOF {
            assert_eq!(clients.new_key_at(from, "alice", || now), Ok(()));
            clients.ended_at(from, "alice", (Worth::Useless, false), now);
        }
        assert!(clients.new_key_at(from, "alice", || now).is_err(), "her proof is used up");
        clients.ended_at(from, "alice", (Worth::Good, false), now);
        assert_eq!(clients.new_key_at(from, "alice", || now), Ok(()));
    }

    #[test]
    fn who_starts_everything_before_the_first_has_ended_is_held_back_too() {
        let (clients, from, now) = clients(5);
        let started = |callers: std::ops::Range<u32>| {
            callers.filter(|caller| {
                let caller = caller.to_string();
                clients.new_key_at(from, &caller, || now).is_ok() && clients.began_at(from, &caller, || now)
            })
        };
        assert_eq!(started(0..1_000).count(), 100);
        for caller in 0..100_u32 {
            clients.ended_at(from, &caller.to_string(), (Worth::Unknown, true), now);
        }
        assert_eq!(started(1_000..2_000).count(), 0, "and pays for it");
    }

    #[test]
    fn a_service_that_fails_uses_up_no_proof_and_nothing_is_owed_for_it() {
        let (clients, from, now) = clients(5);
        clients.ended_at(from, "alice", (Worth::Good, false), now);
        for _ in 0..10_000 {
            clients.ended_at(from, "alice", (Worth::Failed, false), now);
            clients.ended_at(from, "alice", (Worth::Unknown, false), now);
            clients.ended_at(from, "stranger", (Worth::Failed, false), now);
        }
        assert_eq!(clients.new_key_at(from, "alice", || now), Ok(()));
        let wait = clients.new_key_at(from, "stranger", || now).unwrap_err();
        assert!(wait <= Duration::from_millis(200), "{wait:?}");
    }

    #[test]
    fn a_proof_at_one_address_is_none_at_another() {
        let (clients, from, now) = clients(1);
        clients.ended_at(client(2), "everybody", (Worth::Good, false), now);
        for _ in 0..10 {
            clients.ended_at(from, "everybody", (Worth::Useless, false), now);
        }
        assert!(clients.new_key_at(from, "everybody", || now).is_err());
    }

    #[test]
    fn nobody_owes_more_than_a_burst() {
        let (clients, from, now) = clients(5);
        for _ in 0..10_000 {
            clients.ended_at(from, "cut-off", (Worth::Unknown, false), now);
        }
        let wait = clients.new_key_at(from, "next", || now).unwrap_err();
        assert!(wait <= Duration::from_secs(11), "{wait:?}");
        assert_eq!(clients.new_key_at(from, "next", || now + wait), Ok(()));
    }

    #[test]
    fn without_a_rate_nothing_is_limited_or_remembered() {
        let clients = Clients::new(None);
        for caller in 0..10_000 {
            let caller = caller.to_string();
            assert_eq!(clients.new_key(client(1), &caller), Ok(()));
            clients.ended(client(1), &caller, Worth::Useless, false);
        }
        assert_eq!(clients.remembered(), (0, 0));
    }

    #[test]
    fn however_many_callers_and_addresses_somebody_makes_up_memory_is_bounded() {
        let (clients, from, now) = clients(100);
        clients.ended_at(from, "alice", (Worth::Good, false), now);
        for caller in 0..200_000_u32 {
            clients.ended_at(from, &caller.to_string(), (Worth::Useless, false), now);
        }
        assert_eq!(clients.remembered(), (1, 1), "made-up callers are not remembered");
        for address in 2..100_000 {
            clients.ended_at(client(address), "x", (Worth::Useless, false), now);
        }
        assert!(clients.remembered().0 <= CLIENTS_MAX);
        let passed = passed(&clients, client(200_000), 0..2_000, Worth::Useless, now);
        assert!(passed <= 1_000, "those beyond share one allowance: {passed}");
        assert!(clients.new_key_at(from, "mallory", || now).is_err(), "and lift no limit");
        assert_eq!(clients.new_key_at(from, "alice", || now), Ok(()));
        let later = now + Duration::from_secs(60);
        clients.ended_at(client(200_000), "x", (Worth::Useless, false), later);
        assert!(clients.remembered().0 < CLIENTS_MAX, "who owes nothing any longer makes room");
        for caller in 0..200_000_u32 {
            clients.ended_at(from, &caller.to_string(), (Worth::Good, false), now);
        }
        assert!(clients.remembered().1 <= PROOFS_MAX);
    }
}
