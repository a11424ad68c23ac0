//! Connections that wait for the next request: few, not for long, and looked at before they are used.
//!
//! Each thread has a stack of its own, and takes from another's only when that is empty: a connection that was used by this
//! thread is in its core's cache, and threads do not wait for each other.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::time::Instant;

use super::exchange::Connection;
use crate::descriptors;

/// A stack holds at least so many, or there are fewer stacks: with little room nobody should close what another could use.
const STACK_IDLE_MIN: usize = 64;

/// Idle connections, in each stack the one used last on top.
pub(super) struct Pool {
    stacks: Box<[Stack]>,
    idle_timeout: Duration,
    /// In each stack.
    idle_max: usize,
    swept: AtomicBool,
}

/// On a cache line of its own.
#[derive(Default)]
#[repr(align(128))]
struct Stack(Mutex<Vec<Idle>>);

struct Idle {
    connection: Box<Connection>,
    since: Instant,
}

impl Pool {
    /// For at most that many connections in all.
    pub(super) fn new(idle_timeout: Duration, idle_max: usize) -> Arc<Self> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let count = (idle_max / STACK_IDLE_MIN).clamp(1, threads);
        let stacks = std::iter::repeat_with(Stack::default).take(count).collect();
        Arc::new(Self { stacks, idle_timeout, idle_max: idle_max / count, swept: AtomicBool::new(false) })
    }

    /// A connection that is still good, as far as can be known.
    pub(super) fn take(&self) -> Option<Box<Connection>> {
        let (others, own) = self.stacks.split_at(this_thread() % self.stacks.len());
        own.iter().chain(others).find_map(|stack| self.take_from(stack))
    }

    fn take_from(&self, stack: &Stack) -> Option<Box<Connection>> {
        loop {
            let Idle { connection, since } = stack.idle().pop()?;
            if since.elapsed() < self.idle_timeout && connection.is_quiet() {
                return Some(connection);
            }
        }
    }

    /// Keeps a connection for the next request; not where none is to wait.
    pub(super) fn put(self: &Arc<Self>, connection: Box<Connection>) {
        if self.idle_timeout.is_zero() {
            return;
        }
        if !self.swept.load(Ordering::Relaxed) && !self.swept.swap(true, Ordering::Relaxed) {
            tokio::spawn(sweep(Arc::downgrade(self), self.idle_timeout));
        }
        // Somebody may wait for its descriptor.
        if descriptors::are_short() {
            return;
        }
        let mut idle = self.stacks[this_thread() % self.stacks.len()].idle();
        if idle.len() < self.idle_max {
            idle.push(Idle { connection, since: Instant::now() });
        }
    }

    /// Closes what has waited for too long. The oldest lie at the bottom.
    fn close_old(&self) {
        let now = Instant::now();
        for stack in &self.stacks {
            let mut idle = stack.idle();
            let old = idle.partition_point(|idle| now.duration_since(idle.since) >= self.idle_timeout);
            let closed: Vec<Idle> = idle.drain(..old).collect();
            // Closing takes its time; nobody needs to wait for it.
            drop(idle);
            drop(closed);
        }
    }
}

impl Stack {
    fn idle(&self) -> MutexGuard<'_, Vec<Idle>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The number of this thread, in the order in which they came here.
fn this_thread() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: usize = THREADS.fetch_add(1, Ordering::Relaxed);
    }
    NUMBER.with(|number| *number)
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

#[cfg(test)]
mod tests {
    use http::Uri;
    use tokio::net::TcpListener;

    use super::super::connect::{Connected, connect};
    use super::super::{Target, UpstreamOptions};
    use super::*;

    #[tokio::test]
    async fn whatever_thread_left_a_connection_it_is_used_again() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url: Uri = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let target = Target::new(&url, None).unwrap();
        let pool = Pool::new(Duration::from_secs(60), 512);
        for _ in 0..4 {
            let Ok(Connected::Http1(connection)) = connect(&target, &UpstreamOptions::default()).await else {
                panic!("an HTTP/1.1 connection");
            };
            pool.put(connection);
        }
        let taking = |pool: Arc<Pool>| std::thread::spawn(move || pool.take().is_some()).join().unwrap();
        // Each on a thread of its own.
        assert_eq!([(); 5].map(|()| taking(Arc::clone(&pool))), [true, true, true, true, false]);
    }

    #[test]
    fn no_more_connections_wait_than_allowed() {
        for idle_max in [1, 2, 63, 64, 130, 512, 100_000] {
            let pool = Pool::new(Duration::from_secs(1), idle_max);
            let room = pool.idle_max * pool.stacks.len();
            assert!(room <= idle_max && room + pool.stacks.len() > idle_max, "{room} of {idle_max}");
            assert!(pool.stacks.len() == 1 || pool.idle_max >= STACK_IDLE_MIN);
        }
    }
}
