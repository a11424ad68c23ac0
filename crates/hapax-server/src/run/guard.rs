//! What stands between a caller and a claim: rates, the circuit breaker, counts.

use std::num::NonZeroU32;
use std::sync::Arc;

use hapax::http::{Guard, Report, Route, Seen, Wait};
use hapax_core::address::Scope;

use crate::abuse::breaker::Breaker;
use crate::abuse::callers::{Callers, What};
use crate::abuse::rates::Rates;

/// Rates per caller, the breaker of the store, and the busiest callers.
#[derive(Debug)]
pub(super) struct Doorkeeper {
    pub(super) rates: Rates,
    pub(super) breaker: Breaker,
    pub(super) callers: Arc<Callers>,
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
        Ok(Some(Box::new(move |proved| permit.report(proved))))
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
}
