//! A store that loses one reply, for stores without a wire on which it could be lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::address::Address;
use crate::record::{Record, Version};
use crate::store::{ErrorKind, Health, Page, Scan, Seen, Store, StoreError, Swap};

/// When the next swap goes wrong.
#[derive(Clone, Copy, Debug)]
pub(super) enum Lose {
    /// Before the write: it never reached the store.
    Request,
    /// After the write: only the reply is lost.
    Reply,
}

/// Does what the inner store does, but says of one swap that it does not know.
#[derive(Clone)]
pub(super) struct Lossy<S> {
    inner: S,
    lose: Lose,
    armed: Arc<AtomicBool>,
}

impl<S> Lossy<S> {
    pub(super) fn new(inner: S, lose: Lose) -> Self {
        Self { inner, lose, armed: Arc::new(AtomicBool::new(false)) }
    }

    pub(super) fn arm(&self) {
        self.armed.store(true, Ordering::SeqCst);
    }
}

impl<S: Store> Store for Lossy<S> {
    async fn swap(&self, at: &Address, expect: Option<Version>, next: &Record) -> Result<Swap, StoreError> {
        if !self.armed.swap(false, Ordering::SeqCst) {
            return self.inner.swap(at, expect, next).await;
        }
        if matches!(self.lose, Lose::Reply) {
            self.inner.swap(at, expect, next).await?;
        }
        Err(StoreError::new("swap", ErrorKind::Ambiguous, "the suite lost the reply"))
    }

    async fn get(&self, at: &Address) -> Result<Seen, StoreError> {
        self.inner.get(at).await
    }

    async fn scan(&self, query: &Scan) -> Result<Page, StoreError> {
        self.inner.scan(query).await
    }

    async fn reap(&self, limit: u32) -> Result<u32, StoreError> {
        self.inner.reap(limit).await
    }

    async fn health(&self) -> Result<Health, StoreError> {
        self.inner.health().await
    }
}
