//! The thread that writes: group commit.
//!
//! It takes what is waiting, never waits for more, writes it in one transaction and answers after the commit. So no
//! answer, `Lost` included, rests on a write that is not durable. Reaping goes in slices between the batches, so that a
//! claim never waits behind more than one slice.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use hapax_core::clock::{Clock, Now, StoreTime};
use hapax_core::journal::Note;
use hapax_core::store::{ErrorKind, StoreError};
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use crate::checkpoint::Checkpointer;
use crate::rows::{self, Swaps, Write, Written};
use crate::whereabouts::Whereabouts;
use crate::{failure, notes, schema};

/// Swaps in one transaction. More would make the first of them wait without making the commit cheaper.
const BATCH_MAX: usize = 512;

/// Bytes in one transaction, so that a batch of large answers does not hold up small ones.
const BATCH_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Records deleted in one go: no more than a batch of claims writes, so that the log and the disk keep up with both. A
/// slice that takes longer than [`REAP_SLICE_MS`] makes the next one smaller.
pub(crate) const REAP_SLICE_MIN: u32 = 8;
const REAP_SLICE_MAX: u32 = 64;

/// How long a claim may have to wait for a slice.
const REAP_SLICE_MS: u64 = 3;

/// How often the time is written down, so that a host that starts with its clock behind is noticed.
const HIGH_WATER_EVERY_MS: u64 = 1_000;

pub(crate) enum Job {
    Swap {
        write: Write,
        reply: oneshot::Sender<Result<(Written, Now), StoreError>>,
    },
    Reap {
        limit: u32,
        reply: oneshot::Sender<Result<u32, StoreError>>,
    },
    Note {
        note: Box<Note>,
        reply: oneshot::Sender<Result<Now, StoreError>>,
    },
    /// Move the whole log into the file.
    Fold {
        reply: oneshot::Sender<()>,
    },
}

/// Store time, read by writer and readers alike.
pub(crate) struct SharedTime {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) time: Mutex<StoreTime>,
}

impl SharedTime {
    pub(crate) fn now(&self) -> Now {
        let reading = self.clock.read();
        self.time.lock().unwrap_or_else(PoisonError::into_inner).now(reading)
    }

    fn skew_ms(&self) -> i64 {
        self.time.lock().unwrap_or_else(PoisonError::into_inner).skew_ms()
    }
}

/// Set when a commit failed on disk, or the log could not be moved into the file: from then on nothing is written, because
/// nobody knows what is there. Shared with the handles, so that `health()` says it as well.
#[derive(Default)]
pub(crate) struct Broken {
    log: AtomicBool,
    file: AtomicBool,
}

impl Broken {
    /// A commit failed: the log could not be written or synced.
    pub(crate) fn set_by_log(&self) {
        self.log.store(true, Ordering::Release);
    }

    /// The file could not be written or synced.
    pub(crate) fn set_by_file(&self) {
        self.file.store(true, Ordering::Release);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.log.load(Ordering::Acquire) || self.file.load(Ordering::Acquire)
    }

    /// Fails, with the cause, once the store has stopped.
    pub(crate) fn check(&self, op: &'static str) -> Result<(), StoreError> {
        if self.log.load(Ordering::Acquire) {
            return Err(failure::log_failed(op));
        }
        if self.file.load(Ordering::Acquire) {
            return Err(failure::file_failed(op));
        }
        Ok(())
    }
}

pub(crate) struct Writer {
    pub(crate) connection: Connection,
    pub(crate) time: Arc<SharedTime>,
    pub(crate) jobs: mpsc::Receiver<Job>,
    pub(crate) checkpointer: Checkpointer,
    pub(crate) reaping: VecDeque<Reaping>,
    pub(crate) reap_slice: u32,
    pub(crate) noting: Vec<Noting>,
    pub(crate) folding: Vec<oneshot::Sender<()>>,
    pub(crate) high_water_ms: u64,
    pub(crate) broken: Arc<Broken>,
    pub(crate) whereabouts: Arc<Whereabouts>,
}

pub(crate) struct Reaping {
    left: u32,
    done: u32,
    reply: oneshot::Sender<Result<u32, StoreError>>,
}

pub(crate) type Noting = (Box<Note>, oneshot::Sender<Result<Now, StoreError>>);
type Waiting = (Write, oneshot::Sender<Result<(Written, Now), StoreError>>);

impl Writer {
    /// Works until every handle to the store is gone.
    pub(crate) fn run(mut self) {
        while let Some(batch) = self.next_batch() {
            if !batch.is_empty() {
                self.write(batch);
            }
            for (note, reply) in std::mem::take(&mut self.noting) {
                let kept = self.transaction(|connection, now| notes::keep(connection, &note, now.at));
                let _ = reply.send(kept.map(|((), now)| now).map_err(|error| StoreError { op: "note", ..error }));
            }
            if let Some(reaping) = self.reaping.pop_front() {
                self.reap_slice(reaping);
            }
            self.checkpointer.after_commit(&self.connection);
            for reply in std::mem::take(&mut self.folding) {
                self.checkpointer.fold(&self.connection);
                let _ = reply.send(());
            }
        }
        let trusts_file = self.checkpointer.finish(&self.connection);
        if self.broken.is_set() || !trusts_file {
            // The last connection to be closed would move the log into the file after all: this one never is.
            std::mem::forget(self.connection);
        }
    }

    /// What is waiting now. Blocks only if there is nothing at all to do; `None` when the store is closed.
    fn next_batch(&mut self) -> Option<Vec<Waiting>> {
        let mut batch = Vec::new();
        let mut bytes = 0;
        if self.reaping.is_empty() {
            let first = self.jobs.blocking_recv()?;
            bytes += self.sort_in(first, &mut batch);
        }
        while batch.len() < BATCH_MAX && bytes < BATCH_BYTES_MAX {
            match self.jobs.try_recv() {
                Ok(job) => bytes += self.sort_in(job, &mut batch),
                Err(_) => break,
            }
        }
        Some(batch)
    }

    fn sort_in(&mut self, job: Job, batch: &mut Vec<Waiting>) -> usize {
        match job {
            Job::Swap { write, reply } => {
                let bytes = write.bytes();
                batch.push((write, reply));
                bytes
            }
            Job::Reap { limit, reply } => {
                self.reaping.push_back(Reaping { left: limit, done: 0, reply });
                0
            }
            Job::Note { note, reply } => {
                self.noting.push((note, reply));
                0
            }
            Job::Fold { reply } => {
                self.folding.push(reply);
                0
            }
        }
    }

    fn write(&mut self, batch: Vec<Waiting>) {
        metrics::histogram!("hapax_batch_rows", "store" => "sqlite").record(batch.len() as f64);
        match self.write_together(&batch) {
            Ok((written, now)) => {
                for ((_, reply), written) in batch.into_iter().zip(written) {
                    // A caller that has gone away no longer needs the answer; the write stands.
                    let _ = reply.send(Ok((written, now)));
                }
            }
            // One that meets a damaged page must not fail the others.
            Err(error) if error.kind == ErrorKind::Damaged && batch.len() > 1 => {
                batch.into_iter().for_each(|one| self.write(vec![one]));
            }
            Err(error) => {
                let mut cause = Some(error);
                for (_, reply) in batch {
                    let _ = reply.send(Err(share(&mut cause)));
                }
            }
        }
    }

    fn write_together(&mut self, batch: &[Waiting]) -> Result<(Vec<Written>, Now), StoreError> {
        self.transaction(|connection, now| {
            let mut swaps = Swaps::new(connection);
            let writes = batch.iter().map(|(write, _)| swaps.swap(write, now.at));
            let written = writes.collect::<rusqlite::Result<Vec<_>>>()?;
            hapax_core::failpoint!(hapax_core::failpoint::of_swaps(batch.iter().map(|(write, _)| (
                &write.at,
                write.expect.is_none(),
                write.state
            ))));
            Ok(written)
        })
    }

    fn reap_slice(&mut self, mut reaping: Reaping) {
        let limit = reaping.left.min(self.reap_slice);
        let begun_ms = self.time.clock.read().boot_ms;
        let reaped =
            self.transaction(|connection, now| if now.paused { Ok(0) } else { rows::reap(connection, limit, now.at) });
        let took_ms = self.time.clock.read().boot_ms.saturating_sub(begun_ms);
        self.reap_slice = next_slice(self.reap_slice, took_ms);
        match reaped {
            Ok((count, _)) => {
                reaping.done += count;
                reaping.left -= count.min(reaping.left);
                if count < limit || reaping.left == 0 {
                    let _ = reaping.reply.send(Ok(reaping.done));
                } else {
                    self.reaping.push_back(reaping);
                }
            }
            Err(error) => {
                let _ = reaping.reply.send(Err(StoreError { op: "reap", ..error }));
            }
        }
    }

    /// One transaction: all of it is durable when this returns, or none of it was written.
    fn transaction<T>(
        &mut self,
        work: impl FnOnce(&Connection, Now) -> rusqlite::Result<T>,
    ) -> Result<(T, Now), StoreError> {
        self.broken.check("swap")?;
        self.whereabouts.check("swap")?;
        let connection = &self.connection;
        connection.execute_batch("BEGIN IMMEDIATE").map_err(|error| failure::of_statement("swap", error))?;
        let now = self.time.now();
        let keep_mark = now.at.as_ms() >= self.high_water_ms + HIGH_WATER_EVERY_MS;
        let worked = work(connection, now).and_then(|done| {
            if keep_mark && connection.total_changes() > 0 {
                schema::keep_high_water(connection, now.at, self.time.skew_ms())?;
            }
            Ok(done)
        });
        let done = match worked {
            Ok(done) => done,
            Err(error) => {
                self.roll_back();
                return Err(failure::of_statement("swap", error));
            }
        };
        if let Err(error) = self.connection.execute_batch("COMMIT") {
            let error = failure::of_commit(error);
            if error.kind == ErrorKind::Ambiguous {
                self.broken.set_by_log();
            }
            self.roll_back();
            return Err(error);
        }
        if keep_mark {
            self.high_water_ms = now.at.as_ms();
        }
        Ok((done, now))
    }

    /// SQLite may have rolled back by itself already.
    fn roll_back(&mut self) {
        if !self.connection.is_autocommit() && self.connection.execute_batch("ROLLBACK").is_err() {
            self.broken.set_by_log();
        }
    }
}

/// Half after a slow slice, double after a fast one.
fn next_slice(slice: u32, took_ms: u64) -> u32 {
    let next = if took_ms > REAP_SLICE_MS { slice / 2 } else { slice.saturating_mul(2) };
    next.clamp(REAP_SLICE_MIN, REAP_SLICE_MAX)
}

/// The same failure for everyone in the batch; the first gets its source as well.
fn share(cause: &mut Option<StoreError>) -> StoreError {
    match cause.take() {
        Some(error) => {
            *cause = Some(StoreError::new(error.op, error.kind, error.message.clone()));
            error
        }
        None => failure::stopped("swap"),
    }
}
