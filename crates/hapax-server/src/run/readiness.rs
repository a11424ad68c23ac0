//! Whether this process is fit to take requests: its store, the store's clock, the breaker, and whether it is ending.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hapax_core::store::Store;

use crate::admin::{Check, Readiness};
use crate::run::guard::Doorkeeper;
use crate::run::store::AnyStore;

/// What is looked at.
#[derive(Clone, Debug)]
pub(super) struct Fitness {
    pub(super) store: AnyStore,
    pub(super) doorkeeper: Arc<Doorkeeper>,
    pub(super) draining: Arc<AtomicBool>,
}

impl Readiness for Fitness {
    async fn checks(&self) -> Vec<Check> {
        let mut checks = Vec::new();
        match self.store.health().await {
            Ok(health) => {
                checks.push(Check::passed("store", format!("{}, {:?}", self.store.name(), health.durability)));
                checks.push(match (health.clock.paused, health.clock.stepped_by_ms) {
                    (true, by) => Check::failed("clock", format!("stepped by {by} ms; lapse and expiry pause")),
                    (false, 0) => Check::passed("clock", "steady"),
                    (false, by) => Check::passed("clock", format!("steady again; stepped by {by} ms in all")),
                });
            }
            Err(error) => checks.push(Check::failed("store", error.to_string())),
        }
        checks.push(match self.doorkeeper.breaker.is_refusing() {
            true => Check::failed("breaker", "open: the store failed several times; claims are refused for a while"),
            false => Check::passed("breaker", "closed"),
        });
        checks.push(match self.draining.load(Ordering::SeqCst) {
            true => Check::failed("draining", "ending: what runs is being finished"),
            false => Check::passed("draining", "no"),
        });
        checks
    }
}
