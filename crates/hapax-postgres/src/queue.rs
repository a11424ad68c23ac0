//! What waits to be written, and what is being written.
//!
//! Swaps wait in two lines, new records and changes, because each line is one statement. A writer takes what is there and
//! never waits for more. Of one id at most one swap is under way at a time: the next one steps aside until its
//! predecessor is answered, so a statement never meets the same id twice and never waits for a sibling.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hapax_core::address::Id;
use hapax_core::store::StoreError;
use tokio::sync::{Notify, oneshot};

use crate::rows::{Write, Written};

/// Rows in one statement. More would make the first of them wait without making the rest cheaper.
const BATCH_MAX: usize = 256;

/// Bytes in one statement, so that a batch of large answers does not hold up small ones.
const BATCH_BYTES_MAX: usize = 8 * 1024 * 1024;

pub(crate) type Answer = Result<Written, StoreError>;

/// The swaps of all tasks of a process.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    lines: Mutex<Lines>,
    roused: Notify,
}

impl Queue {
    /// Gets in line. The ticket is for stepping out of it again.
    pub(crate) fn join(&self, write: Write) -> (u64, oneshot::Receiver<Answer>) {
        let (reply, answer) = oneshot::channel();
        let mut lines = self.lines();
        lines.tickets += 1;
        let ticket = lines.tickets;
        lines.line_of(&write).push_back(Waiting { ticket, write, reply, reserved: false });
        self.rouse(&mut lines);
        (ticket, answer)
    }

    /// Steps out of line. False where the swap is no longer waiting: then it will be answered.
    pub(crate) fn withdraw(&self, ticket: u64, id: &Id) -> bool {
        let mut lines = self.lines();
        let Some(waiting) = lines.remove(ticket, id) else { return false };
        if waiting.reserved && lines.release(id) {
            self.rouse(&mut lines);
        }
        true
    }

    /// What is waiting now, in the order of ids; waits only if that is nothing. `None` when the store is closed and
    /// all is written.
    pub(crate) async fn next(self: &Arc<Self>) -> Option<Vec<Flight>> {
        loop {
            // Whoever is ready to run, and about to get in line, goes first.
            tokio::task::yield_now().await;
            let roused = self.roused.notified();
            let (batch, done) = self.take();
            if !batch.is_empty() {
                return Some(batch);
            }
            if done {
                // The next writer may end too.
                self.roused.notify_one();
                return None;
            }
            roused.await;
        }
    }

    /// Lets the writers end when all is written.
    pub(crate) fn close(&self) {
        self.lines().closed = true;
        self.roused.notify_one();
    }

    fn take(self: &Arc<Self>) -> (Vec<Flight>, bool) {
        let mut lines = self.lines();
        lines.rousing = false;
        let mut batch = lines.take();
        if !lines.is_empty() {
            self.rouse(&mut lines);
        }
        let done = lines.closed && lines.is_empty() && lines.under_way.is_empty();
        drop(lines);
        // Locks are taken in the order of ids by everybody, so that two batches cannot wait for each other.
        batch.sort_unstable_by(|one, other| one.write.at.id().cmp(other.write.at.id()));
        (batch.into_iter().map(|waiting| Flight::new(waiting, self)).collect(), done)
    }

    fn rouse(&self, lines: &mut Lines) {
        if !lines.rousing {
            lines.rousing = true;
            self.roused.notify_one();
        }
    }

    fn landed(&self, id: &Id) {
        let mut lines = self.lines();
        if lines.release(id) || lines.closed {
            self.rouse(&mut lines);
        }
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A swap that waits.
#[derive(Debug)]
struct Waiting {
    ticket: u64,
    write: Write,
    reply: oneshot::Sender<Answer>,
    /// It stepped aside once, and its id is now kept for it.
    reserved: bool,
}

#[derive(Debug, Default)]
struct Lines {
    new: VecDeque<Waiting>,
    changes: VecDeque<Waiting>,
    /// Ids that are being written, or kept for the next one, each with those who stepped aside for it.
    under_way: HashMap<Id, VecDeque<Waiting>>,
    tickets: u64,
    /// A writer was roused and has not looked yet: it will find whatever comes until it does.
    rousing: bool,
    closed: bool,
}

impl Lines {
    fn is_empty(&self) -> bool {
        self.new.is_empty() && self.changes.is_empty()
    }

    fn line_of(&mut self, write: &Write) -> &mut VecDeque<Waiting> {
        if write.expect.is_none() { &mut self.new } else { &mut self.changes }
    }

    /// From the line whose first has waited longest.
    fn take(&mut self) -> Vec<Waiting> {
        let first = |line: &VecDeque<Waiting>| line.front().map_or(u64::MAX, |waiting| waiting.ticket);
        let Self { new, changes, under_way, .. } = self;
        let line = if first(new) < first(changes) { new } else { changes };
        let (mut batch, mut bytes) = (Vec::with_capacity(line.len().min(BATCH_MAX)), 0);
        while batch.len() < BATCH_MAX && bytes < BATCH_BYTES_MAX {
            let Some(waiting) = line.pop_front() else { break };
            match under_way.get_mut(waiting.write.at.id()) {
                Some(aside) if !waiting.reserved => aside.push_back(waiting),
                _ => {
                    bytes += waiting.write.bytes();
                    under_way.entry(*waiting.write.at.id()).or_default();
                    batch.push(waiting);
                }
            }
        }
        batch
    }

    /// The id is free for the next one who stepped aside. True where there is one.
    fn release(&mut self, id: &Id) -> bool {
        let Some(mut next) = self.under_way.get_mut(id).and_then(VecDeque::pop_front) else {
            self.under_way.remove(id);
            return false;
        };
        next.reserved = true;
        self.line_of(&next.write).push_front(next);
        true
    }

    fn remove(&mut self, ticket: u64, id: &Id) -> Option<Waiting> {
        let aside = self.under_way.get_mut(id);
        [Some(&mut self.new), Some(&mut self.changes), aside].into_iter().flatten().find_map(|line| {
            let place = line.iter().position(|waiting| waiting.ticket == ticket)?;
            line.remove(place)
        })
    }
}

/// A swap that a writer has in hand. If it is dropped unanswered, its caller learns that nobody knows.
#[derive(Debug)]
pub(crate) struct Flight {
    /// What is to be written.
    pub(crate) write: Write,
    /// `None` once it is answered.
    reply: Option<oneshot::Sender<Answer>>,
    queue: Arc<Queue>,
}

impl Flight {
    fn new(waiting: Waiting, queue: &Arc<Queue>) -> Self {
        Self { write: waiting.write, reply: Some(waiting.reply), queue: Arc::clone(queue) }
    }

    /// Answers the caller. If it has gone away it no longer needs the answer; the write stands.
    pub(crate) fn land(mut self, answer: Answer) {
        if let Some(reply) = self.reply.take() {
            // First the id, so that the caller's next swap does not have to step aside for this one.
            self.queue.landed(self.write.at.id());
            let _ = reply.send(answer);
        }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if self.reply.is_some() {
            self.queue.landed(self.write.at.id());
        }
    }
}
