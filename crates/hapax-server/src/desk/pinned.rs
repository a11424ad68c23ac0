//! A store on which one record may be changed only while it is as it was seen.
//!
//! The engine decides again where somebody else was faster. For a purge that would be wrong: an answer that came after the
//! records were chosen, and counted, was never meant. The store says so instead.

use hapax_core::address::Address;
use hapax_core::clock::Now;
use hapax_core::engine::EngineError;
use hapax_core::journal::{Journal, Note, NoteScan, Noted};
use hapax_core::record::{Record, Version};
use hapax_core::store::{ErrorKind, Health, Page, Scan, Seen, Store, StoreError, Swap};

use crate::run::store::AnyStore;

/// The operation that failures of this kind name.
const OP: &str = "change what was seen";

/// The store, for changes of a record at that version.
#[derive(Clone, Debug)]
pub(super) struct Pinned {
    pub(super) store: AnyStore,
    pub(super) version: Version,
}

/// Whether nothing was written because the record was no longer as it was seen.
pub(super) fn has_moved_on(error: &EngineError) -> bool {
    matches!(error, EngineError::Store(error) if error.op == OP)
}

impl Pinned {
    fn check(&self, expect: Option<Version>) -> Result<(), StoreError> {
        if expect == Some(self.version) {
            return Ok(());
        }
        Err(StoreError::new(OP, ErrorKind::Invalid, "the record changed meanwhile; look at it again"))
    }
}

impl Store for Pinned {
    async fn swap(&self, at: &Address, expect: Option<Version>, next: &Record) -> Result<Swap, StoreError> {
        self.check(expect)?;
        self.store.swap(at, expect, next).await
    }

    async fn get(&self, at: &Address) -> Result<Seen, StoreError> {
        self.store.get(at).await
    }

    async fn scan(&self, query: &Scan) -> Result<Page, StoreError> {
        self.store.scan(query).await
    }

    async fn reap(&self, limit: u32) -> Result<u32, StoreError> {
        self.store.reap(limit).await
    }

    async fn health(&self) -> Result<Health, StoreError> {
        self.store.health().await
    }
}

impl Journal for Pinned {
    async fn swap_noted(
        &self,
        at: &Address,
        expect: Option<Version>,
        next: &Record,
        note: &Note,
    ) -> Result<Swap, StoreError> {
        self.check(expect)?;
        self.store.swap_noted(at, expect, next, note).await
    }

    async fn note(&self, note: &Note) -> Result<Now, StoreError> {
        self.store.note(note).await
    }

    async fn notes(&self, query: &NoteScan) -> Result<Vec<Noted>, StoreError> {
        self.store.notes(query).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use hapax::tokens;
    use hapax_core::address::{AddressScheme, Key, Scope, Space};
    use hapax_core::engine::Engine;
    use hapax_core::fingerprint::{Fingerprinter, Fingerprints as _, Recipe, Request};
    use hapax_core::memory::Memory;
    use hapax_core::record::{Body, Outcome, Policy, State};
    use hapax_core::transition::{Answer, Event};

    use super::*;

    #[tokio::test]
    async fn an_answer_that_came_meanwhile_is_not_taken_away() {
        let store = AnyStore::Memory(Arc::new(Memory::new()));
        let parts = (Space::new("http").unwrap(), Scope::new("alice").unwrap(), Key::new("k").unwrap());
        let at = Address::new(&AddressScheme::default(), &parts.0, &parts.1, &parts.2);
        let recipe = Recipe::new();
        let request = Fingerprinter::new(Request::new("POST", "/", b"{}"), &recipe, &[]).unwrap().current();
        let engine = Engine::new(store.clone(), tokens::random as tokens::Random);
        let attempt_id = engine.claim(&at, &request, Policy::default()).await.unwrap().attempt_id().unwrap();
        let doubt = Event::Doubt { attempt_id, error: "cut-off", probe_in_ms: 0 };
        let version = engine.apply(&at, &doubt, None).await.unwrap().seen.version().unwrap();
        let pinned = Engine::new(Pinned { store, version }, tokens::random as tokens::Random);

        let outcome = Arc::new(Outcome { status: 201, headers: vec![], body: Body::Kept(b"paid".to_vec()) });
        engine
            .apply(&at, &Event::Complete { attempt_id, outcome: &outcome, labels: &Arc::default() }, None)
            .await
            .unwrap();
        let purge = Event::Purge { allow_rerun: true };
        let refused = pinned.apply(&at, &purge, None).await.unwrap_err();
        assert!(has_moved_on(&refused), "{refused}");
        let seen = engine.store().get(&at).await.unwrap();
        assert_eq!(seen.stored.as_ref().unwrap().record.state, State::Completed);
        let version = seen.version().unwrap();
        let pinned = Engine::new(Pinned { store: engine.store().clone(), version }, tokens::random as tokens::Random);
        assert_eq!(pinned.apply(&at, &purge, None).await.unwrap().answer, Answer::Done);
    }
}
