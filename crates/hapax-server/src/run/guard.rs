//! What stands between a caller and a claim: rates, ceilings, the circuit breaker, counts.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use hapax::http::{Begun, Client, Ended, Guard, LateTruth, NewKey, Problem, Refusal, Report, Route, Seen, Wait};
use hapax_core::address::{Address, Scope};
use hapax_core::journal::{About, Journal, Note};
use hapax_core::store::Store as _;
use tokio_util::task::TaskTracker;

use crate::abuse::active::Active;
use crate::abuse::breaker::Breaker;
use crate::abuse::callers::{Callers, What};
use crate::abuse::clients::{Clients, Worth};
use crate::abuse::rates::Rates;
use crate::config::Config;
use crate::store::AnyStore;
use crate::store::ceiling::Ceiling;

/// Tries to note late truth: over about two minutes, twice as long apart each time.
const NOTE_TRIES_MAX: u32 = 8;
const NOTE_RETRY_FIRST: Duration = Duration::from_millis(500);

/// How soon to come back when the store is full: room is made by what expires, or by an operator.
const FULL_RETRY_AFTER: Duration = Duration::from_secs(10);

/// How soon to come back for a caller with too many unfinished keys: they are counted anew every few seconds.
const ACTIVE_RETRY_AFTER: Duration = Duration::from_secs(5);

/// A caller with more unfinished keys than this is no made-up one, who has one or two: its own limit holds it.
const FEW_UNFINISHED: u32 = 3;

/// Rates per caller and client, the ceiling and the breaker of the store, and the busiest callers.
#[derive(Debug)]
pub(super) struct Doorkeeper {
    pub(super) rates: Rates,
    pub(super) clients: Clients,
    /// Look-ups by client; by another key than callers, and so in a table of its own.
    client_lookups: Rates,
    /// 0: no limit.
    client_lookups_per_second: AtomicU32,
    pub(super) active: Active,
    pub(super) ceiling: Arc<Ceiling>,
    pub(super) breaker: Breaker,
    pub(super) callers: Arc<Callers>,
    /// Where late truth is noted.
    pub(super) store: AnyStore,
    /// Notes that are being written.
    pub(super) notes: TaskTracker,
}

impl Doorkeeper {
    /// Nobody has come yet.
    pub(super) fn new(config: &Config, store: AnyStore) -> Self {
        Self {
            rates: Rates::new(),
            clients: Clients::new(config.server.client_new_keys_per_second),
            client_lookups: Rates::new(),
            client_lookups_per_second: AtomicU32::new(lookups(config)),
            active: Active::new(config.keys.active_max),
            ceiling: Arc::new(Ceiling::new(&config.store)),
            breaker: Breaker::new(config.store.breaker_failures.get(), config.store.breaker_pause),
            callers: Arc::new(Callers::new()),
            store,
            notes: TaskTracker::new(),
        }
    }

    /// Other limits from now on, as far as they can be changed.
    pub(super) fn adjust(&self, config: &Config) {
        self.clients.set_rate(config.server.client_new_keys_per_second);
        self.client_lookups_per_second.store(lookups(config), Ordering::Relaxed);
        self.active.set_most(config.keys.active_max);
    }

    /// Waits until every late truth is noted, or given up on. Nothing must run any longer that could tell another.
    pub(super) async fn noted(&self) {
        self.notes.close();
        self.notes.wait().await;
    }
}

impl Guard for Doorkeeper {
    fn look_up(&self, caller: &Scope, route: &Route) -> Result<(), Wait> {
        self.rates.lookup(caller.as_str(), route.lookups_per_second.and_then(NonZeroU32::new))
    }

    fn look_up_from(&self, client: Client) -> Result<(), Wait> {
        match NonZeroU32::new(self.client_lookups_per_second.load(Ordering::Relaxed)) {
            None => Ok(()),
            rate => self.client_lookups.lookup(&client.to_string(), rate),
        }
    }

    fn new_key(&self, caller: &Scope, route: &Route) -> Result<(), Wait> {
        self.rates.new_key(caller.as_str(), route.new_keys_per_second.and_then(NonZeroU32::new))
    }

    fn room_for(&self, new: &NewKey<'_>) -> Result<(), Refusal> {
        let refuse = |problem, detail: &str, wait| Err(Refusal::new(problem, detail).with_retry_after(wait));
        if self.ceiling.is_full() {
            let detail = "there is no room for new keys now; nothing was run; keys that were used before go on; send the \
                          same request again later";
            return refuse(Problem::StoreFull, detail, FULL_RETRY_AFTER);
        }
        if self.active.new_key(new.caller.as_str()).is_err() {
            let detail = "this caller has too many requests that run or whose outcome is not known; nothing was run; send \
                          the same request again when some of them are settled";
            return refuse(Problem::TooMany, detail, ACTIVE_RETRY_AFTER);
        }
        if let Some(client) = new.client
            && let Err(wait) = self.clients.new_key(client, new.caller.as_str())
        {
            let detail =
                "too many requests with new keys from this address came to nothing; nothing was run; slow down";
            return refuse(Problem::TooMany, detail, wait);
        }
        Ok(())
    }

    fn began(&self, caller: &Scope, client: Option<Client>) -> Begun {
        self.active.began(caller.as_str());
        Begun(client.is_some_and(|client| self.clients.began(client, caller.as_str())).into())
    }

    fn ended(&self, caller: &Scope, client: Option<Client>, begun: Begun, how: Ended) {
        let unfinished = self.active.ended(caller.as_str(), how == Ended::Unknown);
        let Some(client) = client else { return };
        let worth = match how {
            Ended::Recorded(..400) => Worth::Good,
            Ended::Recorded(..500) | Ended::TurnedAway => Worth::Useless,
            Ended::Unknown if unfinished <= FEW_UNFINISHED => Worth::Unknown,
            Ended::Recorded(_) | Ended::Free | Ended::Unknown => Worth::Failed,
        };
        self.clients.ended(client, caller.as_str(), worth, begun != Begun::default());
    }

    fn store(&self) -> Result<Option<Report>, Wait> {
        let permit = self.breaker.admit()?;
        Ok(Some(Box::new(move |answered| permit.report(answered))))
    }

    fn saw(&self, caller: &Scope, seen: Seen) {
        let what = match seen {
            Seen::Created => return,
            Seen::Duplicate => What::Duplicate,
            Seen::Mismatch => What::Mismatch,
            Seen::Refused(_) => What::Refusal,
        };
        self.callers.count(caller.as_str(), what);
    }

    fn late_truth(&self, at: &Address, attempt: u32, truth: LateTruth) {
        let (store, id) = (self.store.clone(), *at.id());
        let note = note_of(at, attempt, truth);
        // Beside the request: only the end of the process waits for it.
        self.notes.spawn(async move {
            let mut pause = NOTE_RETRY_FIRST;
            for _ in 0..NOTE_TRIES_MAX {
                match store.note(&note).await {
                    Ok(_) => return,
                    // Nothing is written any more before a restart.
                    Err(_) if store.has_stopped() => break,
                    Err(error) => tracing::warn!(%id, %error, "late truth could not be noted yet"),
                }
                tokio::time::sleep(pause).await;
                pause *= 2;
            }
            tracing::error!(%id, truth = truth.name(), "late truth is in the log only; the journal could not be written");
        });
    }
}

fn lookups(config: &Config) -> u32 {
    config.server.client_lookups_per_second.map_or(0, NonZeroU32::get)
}

/// What the journal says of it.
fn note_of(at: &Address, attempt: u32, truth: LateTruth) -> Note {
    let reason = match truth {
        LateTruth::Contradicted => {
            "an attempt that was said not to have happened has completed; its answer is recorded"
        }
        LateTruth::Overruled => "an attempt completed after a verdict had settled its key; the verdict's answer stands",
        LateTruth::DoubleRun => "an attempt completed that another one had taken over; it may have happened twice",
        LateTruth::Forgotten => "an attempt completed whose key was purged or had expired; its answer is not recorded",
    };
    Note {
        who: "hapax".to_owned(),
        what: truth.name().to_owned(),
        about: Some(About::new(at, attempt)),
        before: None,
        after: None,
        reason: reason.to_owned(),
        detail: String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hapax_core::address::{AddressScheme, Key, Space};
    use hapax_core::journal::NoteScan;
    use hapax_core::memory::Memory;
    use hapax_testkit::clock::FakeClock;

    #[tokio::test]
    async fn whoever_waits_for_the_notes_finds_them_in_the_journal() {
        let store = AnyStore::Memory(Arc::new(Memory::with_clock(FakeClock::default())));
        let config = Config::new(http::Uri::from_static("http://upstream.invalid"));
        let doorkeeper = Doorkeeper::new(&config, store.clone());
        let (space, scope, key) = (Space::new("http"), Scope::new("alice"), Key::new("k"));
        let at = Address::new(&AddressScheme::default(), &space.unwrap(), &scope.unwrap(), &key.unwrap());
        for truth in [LateTruth::Contradicted, LateTruth::Overruled, LateTruth::DoubleRun, LateTruth::Forgotten] {
            doorkeeper.late_truth(&at, 1, truth);
        }
        doorkeeper.noted().await;
        let notes = store.notes(&NoteScan { limit: 10, ..NoteScan::default() }).await.unwrap();
        let mut said: Vec<&str> = notes.iter().map(|noted| noted.note.what.as_str()).collect();
        said.sort_unstable();
        assert_eq!(said, ["contradicted", "double-run", "forgotten", "overruled"]);
    }
}
