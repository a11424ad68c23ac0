//! What stands between a caller and a claim: rates, the circuit breaker, counts.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use hapax::http::{Guard, LateTruth, Report, Route, Seen, Wait};
use hapax_core::address::{Address, Scope};
use hapax_core::journal::{About, Journal, Note};
use hapax_core::store::Store as _;
use tokio_util::task::TaskTracker;

use crate::abuse::breaker::Breaker;
use crate::abuse::callers::{Callers, What};
use crate::abuse::rates::Rates;
use crate::run::store::AnyStore;

/// Tries to note late truth: over about two minutes, twice as long apart each time.
const NOTE_TRIES_MAX: u32 = 8;
const NOTE_RETRY_FIRST: Duration = Duration::from_millis(500);

/// Rates per caller, the breaker of the store, and the busiest callers.
#[derive(Debug)]
pub(super) struct Doorkeeper {
    pub(super) rates: Rates,
    pub(super) breaker: Breaker,
    pub(super) callers: Arc<Callers>,
    /// Where late truth is noted.
    pub(super) store: AnyStore,
    /// Notes that are being written.
    pub(super) notes: TaskTracker,
}

impl Doorkeeper {
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

    fn new_key(&self, caller: &Scope, route: &Route) -> Result<(), Wait> {
        self.rates.new_key(caller.as_str(), route.new_keys_per_second.and_then(NonZeroU32::new))
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
        let store = AnyStore::Memory(Arc::new(Memory::new(FakeClock::default())));
        let doorkeeper = Doorkeeper {
            rates: Rates::new(),
            breaker: Breaker::new(1, Duration::from_secs(1)),
            callers: Arc::new(Callers::new()),
            store: store.clone(),
            notes: TaskTracker::new(),
        };
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
