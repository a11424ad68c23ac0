//! Connections that wait for the next request: few, not for long, and looked at before they are used.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::time::Instant;

use super::exchange::Connection;

/// Idle connections, the one used last on top.
pub(super) struct Pool {
    idle: Mutex<Vec<Idle>>,
    idle_timeout: Duration,
    idle_max: usize,
    swept: AtomicBool,
}

struct Idle {
    connection: Box<Connection>,
    since: Instant,
}

impl Pool {
    pub(super) fn new(idle_timeout: Duration, idle_max: usize) -> Arc<Self> {
        Arc::new(Self { idle: Mutex::default(), idle_timeout, idle_max, swept: AtomicBool::new(false) })
    }

    /// A connection that is still good, as far as can be known.
    pub(super) fn take(&self) -> Option<Box<Connection>> {
        loop {
            let Idle { connection, since } = self.idle().pop()?;
            if since.elapsed() < self.idle_timeout && connection.is_quiet() {
                return Some(connection);
            }
        }
    }

    /// Keeps a connection for the next request.
    pub(super) fn put(self: &Arc<Self>, connection: Box<Connection>) {
        if !self.swept.swap(true, Ordering::Relaxed) {
            tokio::spawn(sweep(Arc::downgrade(self), self.idle_timeout));
        }
        let mut idle = self.idle();
        if idle.len() < self.idle_max {
            idle.push(Idle { connection, since: Instant::now() });
        }
    }

    /// Closes what has waited for too long. The oldest lie at the bottom.
    fn close_old(&self) {
        let now = Instant::now();
        let mut idle = self.idle();
        let old = idle.partition_point(|idle| now.duration_since(idle.since) >= self.idle_timeout);
        let closed: Vec<Idle> = idle.drain(..old).collect();
        // Closing takes its time; nobody needs to wait for it.
        drop(idle);
        drop(closed);
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Idle>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes old connections as long as there is a pool.
async fn sweep(pool: Weak<Pool>, idle_timeout: Duration) {
    loop {
        tokio::time::sleep(idle_timeout / 4).await;
        match pool.upgrade() {
            Some(pool) => pool.close_old(),
            None => return,
        }
    }
}
