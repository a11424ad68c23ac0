//! What waits to be written, and what is being written.
//!
//! Swaps wait in two lines, new records and changes, because each line is one statement. A writer takes what is there and
//! never waits for more to come: a swap that finds no other under way begins at once, one that does begins when that
//! ends or when enough others wait beside it. Of one id at most one swap is under way at a
//! time: the next one steps aside until its predecessor is answered, so a statement never meets the same id twice and
//! never waits for a sibling.

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

/// While one batch is being written, the next begins when this many wait, twice as many while two are being written, and
/// so on: many small batches would cost the server more than they save the callers. A batch that is slow does not count.
const BATCH_WORTH: usize = 16;

pub(crate) type Answer = Result<Written, StoreError>;

/// The swaps of all tasks of a process.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    roused: Notify,
}

impl Queue {
    /// Gets in line. The ticket is for stepping out of it again.
    pub(crate) fn join(&self, write: Write) -> (u64, oneshot::Receiver<Answer>) {
        let (reply, answer) = oneshot::channel();
        let mut state = self.state();
        state.tickets += 1;
        let ticket = state.tickets;
        state.line_of(&write).push_back(Waiting { ticket, write, reply, reserved: false });
        self.rouse(&mut state);
        (ticket, answer)
    }

    /// Steps out of line. False where the swap is no longer waiting: then it will be answered.
    pub(crate) fn withdraw(&self, ticket: u64, id: &Id) -> bool {
        let mut state = self.state();
        let Some(waiting) = state.remove(ticket, id) else { return false };
        if waiting.reserved && state.release(id) {
            self.rouse(&mut state);
        }
        true
    }

    /// What is waiting now; waits only if that is nothing. `None` when the store is closed and all is written.
    /// `crowded`: the batch before had company, so this one probably has.
    pub(crate) async fn next(self: &Arc<Self>, crowded: bool) -> Option<Batch> {
        loop {
            if crowded {
                // Whoever is ready to run, and about to get in line, goes first.
                tokio::task::yield_now().await;
            }
            let roused = self.roused.notified();
            match self.take() {
                Taken::Batch(batch) => return Some(batch),
                Taken::Nothing => roused.await,
                Taken::End => {
                    // The next writer may end too.
                    self.roused.notify_one();
                    return None;
                }
            }
        }
    }

    /// Lets the writers end when all is written.
    pub(crate) fn close(&self) {
        self.state().closed = true;
        self.roused.notify_one();
    }

    fn take(self: &Arc<Self>) -> Taken {
        let mut state = self.state();
        state.rousing = false;
        if state.is_empty() {
            let ended = state.closed && state.under_way.is_empty();
            return if ended { Taken::End } else { Taken::Nothing };
        }
        if !state.is_worth_it() {
            return Taken::Nothing;
        }
        let mut taken = state.take();
        if taken.is_empty() {
            return Taken::Nothing;
        }
        state.seated += 1;
        self.rouse(&mut state);
        drop(state);
        // Locks are taken in the order of ids by everybody, so that two batches cannot wait for each other.
        taken.sort_unstable_by(|one, other| one.write.at.id().cmp(other.write.at.id()));
        let flights = taken.into_iter().map(|waiting| Flight::new(waiting, self)).collect();
        Taken::Batch(Batch { flights, seat: Seat { queue: Some(Arc::clone(self)) } })
    }

    /// Rouses a writer, if there is something for it to begin.
    fn rouse(&self, state: &mut State) {
        if !state.rousing && (state.is_worth_it() || state.closed) {
            state.rousing = true;
            self.roused.notify_one();
        }
    }

    fn landed(&self, id: &Id) {
        let mut state = self.state();
        if state.release(id) || state.closed {
            self.rouse(&mut state);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a writer finds.
enum Taken {
    Batch(Batch),
    /// Nothing, or nothing to begin now.
    Nothing,
    /// The store is closed and all is written.
    End,
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
struct State {
    new: VecDeque<Waiting>,
    changes: VecDeque<Waiting>,
    /// Ids that are being written, or kept for the next one, each with those who stepped aside for it.
    under_way: HashMap<Id, VecDeque<Waiting>>,
    /// Batches that are being written and not slow.
    seated: usize,
    tickets: u64,
    /// A writer was roused and has not looked yet: it will find whatever comes until it does.
    rousing: bool,
    closed: bool,
}

impl State {
    fn is_empty(&self) -> bool {
        self.new.is_empty() && self.changes.is_empty()
    }

    /// Whether a batch may begin.
    fn is_worth_it(&self) -> bool {
        !self.is_empty() && self.new.len().max(self.changes.len()) >= self.seated * BATCH_WORTH
    }

    fn line_of(&mut self, write: &Write) -> &mut VecDeque<Waiting> {
        if write.expect.is_none() { &mut self.new } else { &mut self.changes }
    }

    /// From the line whose first has waited longest; from the other if all of that one step aside.
    fn take(&mut self) -> Vec<Waiting> {
        let taken = self.take_line();
        if taken.is_empty() { self.take_line() } else { taken }
    }

    fn take_line(&mut self) -> Vec<Waiting> {
        let first = |line: &VecDeque<Waiting>| line.front().map_or(u64::MAX, |waiting| waiting.ticket);
        let Self { new, changes, under_way, .. } = self;
        let line = if first(new) < first(changes) { new } else { changes };
        let (mut taken, mut bytes) = (Vec::with_capacity(line.len().min(BATCH_MAX)), 0);
        while taken.len() < BATCH_MAX && bytes < BATCH_BYTES_MAX {
            let Some(waiting) = line.pop_front() else { break };
            match under_way.get_mut(waiting.write.at.id()) {
                Some(aside) if !waiting.reserved => aside.push_back(waiting),
                _ => {
                    bytes += waiting.write.bytes();
                    under_way.entry(*waiting.write.at.id()).or_default();
                    taken.push(waiting);
                }
            }
        }
        taken
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

/// What is written together: all new, or all changes, in the order of ids.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) flights: Vec<Flight>,
    pub(crate) seat: Seat,
}

/// Held by a batch that is being written, and given up when it is done or known to be slow.
#[derive(Debug)]
pub(crate) struct Seat {
    /// `None` once it is given up.
    queue: Option<Arc<Queue>>,
}

impl Seat {
    /// For a batch that is slow: the next one need not wait for it.
    pub(crate) fn give_up(mut self) {
        if let Some(queue) = self.queue.take() {
            let mut state = queue.state();
            state.seated = state.seated.saturating_sub(1);
            queue.rouse(&mut state);
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(queue) = self.queue.take() {
            let mut state = queue.state();
            state.seated = state.seated.saturating_sub(1);
            // Its writer looks next.
            state.rousing = true;
        }
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

#[cfg(test)]
mod tests;
