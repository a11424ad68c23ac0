//! [`AnyStore`]: a store that is chosen at run time.
//!
//! [`Store`] is generic, so that a service with one store pays for no indirection, and for that reason no trait object can be
//! made of it. Here is the indirection, for services that want it: one allocation and one dynamic call for each operation, which
//! is little beside a commit. It knows no rules and no stores.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::address::Address;
use crate::clock::Now;
use crate::journal::{Journal, Note, NoteScan, Noted};
use crate::record::{Record, Version};
use crate::store::{Health, Page, Scan, Seen, Store, StoreError, Swap};

/// Any store, of a kind that is known at run time only. Clones share it.
///
/// ```
/// use hapax_core::any_store::AnyStore;
/// use hapax_core::memory::Memory;
/// # struct Settings { kind: &'static str }
/// # let settings = Settings { kind: "memory" };
///
/// let store = match settings.kind {
///     "memory" => AnyStore::new(Memory::new()),
///     // "sqlite" => AnyStore::new(Sqlite::open("pay.db")?),
///     // "postgres" => AnyStore::new(Postgres::open(url).await?),
///     other => panic!("no store is called {other}"),
/// };
/// # let _ = store;
/// ```
#[derive(Clone)]
pub struct AnyStore(Arc<dyn Kept>);

impl AnyStore {
    /// That store.
    pub fn new(store: impl Journal + fmt::Debug + 'static) -> Self {
        Self(Arc::new(store))
    }
}

impl fmt::Debug for AnyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AnyStore").field(&self.0).finish()
    }
}

type Boxed<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// What [`Store`] and [`Journal`] have, with futures in boxes.
trait Kept: Send + Sync + fmt::Debug {
    fn swap<'a>(&'a self, at: &'a Address, expect: Option<Version>, next: &'a Record) -> Boxed<'a, Swap>;
    fn get<'a>(&'a self, at: &'a Address) -> Boxed<'a, Seen>;
    fn scan<'a>(&'a self, query: &'a Scan) -> Boxed<'a, Page>;
    fn reap(&self, limit: u32) -> Boxed<'_, u32>;
    fn health(&self) -> Boxed<'_, Health>;
    fn has_stopped(&self) -> bool;
    fn swap_noted<'a>(
        &'a self,
        at: &'a Address,
        expect: Option<Version>,
        next: &'a Record,
        note: &'a Note,
    ) -> Boxed<'a, Swap>;
    fn note<'a>(&'a self, note: &'a Note) -> Boxed<'a, Now>;
    fn notes<'a>(&'a self, query: &'a NoteScan) -> Boxed<'a, Vec<Noted>>;
}

impl<S: Journal + fmt::Debug> Kept for S {
    fn swap<'a>(&'a self, at: &'a Address, expect: Option<Version>, next: &'a Record) -> Boxed<'a, Swap> {
        Box::pin(Store::swap(self, at, expect, next))
    }

    fn get<'a>(&'a self, at: &'a Address) -> Boxed<'a, Seen> {
        Box::pin(Store::get(self, at))
    }

    fn scan<'a>(&'a self, query: &'a Scan) -> Boxed<'a, Page> {
        Box::pin(Store::scan(self, query))
    }

    fn reap(&self, limit: u32) -> Boxed<'_, u32> {
        Box::pin(Store::reap(self, limit))
    }

    fn health(&self) -> Boxed<'_, Health> {
        Box::pin(Store::health(self))
    }

    fn has_stopped(&self) -> bool {
        Store::has_stopped(self)
    }

    fn swap_noted<'a>(
        &'a self,
        at: &'a Address,
        expect: Option<Version>,
        next: &'a Record,
        note: &'a Note,
    ) -> Boxed<'a, Swap> {
        Box::pin(Journal::swap_noted(self, at, expect, next, note))
    }

    fn note<'a>(&'a self, note: &'a Note) -> Boxed<'a, Now> {
        Box::pin(Journal::note(self, note))
    }

    fn notes<'a>(&'a self, query: &'a NoteScan) -> Boxed<'a, Vec<Noted>> {
        Box::pin(Journal::notes(self, query))
    }
}

impl Store for AnyStore {
    async fn swap(&self, at: &Address, expect: Option<Version>, next: &Record) -> Result<Swap, StoreError> {
        self.0.swap(at, expect, next).await
    }

    async fn get(&self, at: &Address) -> Result<Seen, StoreError> {
        self.0.get(at).await
    }

    async fn scan(&self, query: &Scan) -> Result<Page, StoreError> {
        self.0.scan(query).await
    }

    async fn reap(&self, limit: u32) -> Result<u32, StoreError> {
        self.0.reap(limit).await
    }

    async fn health(&self) -> Result<Health, StoreError> {
        self.0.health().await
    }

    fn has_stopped(&self) -> bool {
        self.0.has_stopped()
    }
}

impl Journal for AnyStore {
    async fn swap_noted(
        &self,
        at: &Address,
        expect: Option<Version>,
        next: &Record,
        note: &Note,
    ) -> Result<Swap, StoreError> {
        self.0.swap_noted(at, expect, next, note).await
    }

    async fn note(&self, note: &Note) -> Result<Now, StoreError> {
        self.0.note(note).await
    }

    async fn notes(&self, query: &NoteScan) -> Result<Vec<Noted>, StoreError> {
        self.0.notes(query).await
    }
}
