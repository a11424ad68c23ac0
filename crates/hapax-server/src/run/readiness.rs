//! Whether this process is fit to take requests: its store, the store's clock, the breaker, descriptors, and whether it is
//! ending.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::abuse::breaker::Breaker;
use crate::admin::{Check, Readiness};
use crate::run::guard::Doorkeeper;
use crate::store::durability::{Watched, level};
use hapax_proxy::descriptors;

/// What is looked at.
#[derive(Clone, Debug)]
pub(super) struct Fitness {
    pub(super) store: Arc<Watched>,
    pub(super) doorkeeper: Arc<Doorkeeper>,
    pub(super) draining: Arc<AtomicBool>,
}

impl Readiness for Fitness {
    async fn checks(&self) -> Vec<Check> {
        let mut checks = Vec::new();
        match self.store.health().await {
            Ok(health) => {
                checks.push(Check::passed(
                    "store",
                    format!("{}, durability {}", self.store.name(), level(health.durability)),
                ));
                checks.push(match (health.clock.paused, health.clock.stepped_by_ms) {
                    (true, by) => Check::failed("clock", format!("stepped by {by} ms; lapse and expiry pause")),
                    (false, 0) => Check::passed("clock", "steady"),
                    (false, by) => Check::passed("clock", format!("steady again; stepped by {by} ms in all")),
                });
            }
            Err(error) => checks.push(Check::failed("store", error.to_string())),
        }
        checks.push(breaker(&self.doorkeeper.breaker));
        checks.push(match descriptors::is_missing() {
            true => {
                Check::failed("descriptors", "no file descriptor was left a moment ago; raise the limit (ulimit -n)")
            }
            false => Check::passed("descriptors", "there are some"),
        });
        checks.push(match self.draining.load(Ordering::SeqCst) {
            true => Check::failed("draining", "ending: what runs is being finished"),
            false => Check::passed("draining", "no"),
        });
        checks
    }
}

/// After the pause requests have to come again: one that waits for a claim to close would otherwise wait for ever.
fn breaker(breaker: &Breaker) -> Check {
    match (breaker.is_refusing(), breaker.is_open()) {
        (true, _) => Check::failed("breaker", "open: the store failed several times; claims are refused for a while"),
        (false, true) => Check::passed("breaker", "half open: the last claims failed, and the next one decides"),
        (false, false) => Check::passed("breaker", "closed"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_breaker_that_waits_for_a_claim_to_decide_says_so() {
        assert_eq!(breaker(&Breaker::new(1, Duration::ZERO)), Check::passed("breaker", "closed"));
        let pausing = Breaker::new(1, Duration::from_secs(60));
        pausing.admit().unwrap().report(false);
        assert!(!breaker(&pausing).ok);
        let undecided = Breaker::new(1, Duration::ZERO);
        undecided.admit().unwrap().report(false);
        let check = breaker(&undecided);
        assert!(check.ok && check.detail.starts_with("half open"), "{check:?}");
        undecided.admit().unwrap().report(true);
        assert_eq!(breaker(&undecided).detail, "closed");
    }
}
