//! The tasks that write: a batch is a statement, and a statement is a transaction.
//!
//! A writer takes what waits, writes it, and answers when the server has, so after the commit. What the statement did not
//! take is looked at again: a row of another version has lost; a row that another transaction holds is left to
//! `alone.rs`, so that it holds up nobody else.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hapax_core::address::Id;
use hapax_core::clock::Now;
use hapax_core::codec::OwnedRow;
use hapax_core::store::StoreError;
use tokio::time::timeout;
use tokio_postgres::Row;

use crate::clock::moment;
use crate::connections::{Connection, Refusal, setting_of};
use crate::queue::{Batch, Flight, Queue};
use crate::rows::{self, Question, Rows, Written};
use crate::statements::Statements;
use crate::store::Shared;
use crate::{alone, failure, reader};

/// How long a batch waits for a row that another transaction holds, before the rows are taken apart. Longer than a commit
/// takes, shorter than anybody notices.
const LOCK_WAIT: Duration = Duration::from_millis(20);

/// A batch that takes longer no longer keeps the next one waiting: see [`Seat`](crate::queue::Seat).
const SLOW: Duration = Duration::from_millis(20);

/// Works until every handle to the store is gone and all is written.
pub(crate) async fn run(shared: Arc<Shared>, queue: Arc<Queue>) {
    let mut crowded = false;
    while let Some(Batch { flights, seat }) = queue.next(crowded).await {
        crowded = flights.len() > 1;
        metrics::histogram!("hapax_batch_rows", "store" => "postgres").record(flights.len() as f64);
        let mut work = pin!(write(&shared, flights));
        if timeout(SLOW, &mut work).await.is_err() {
            seat.give_up();
            work.await;
        }
    }
}

async fn write(shared: &Arc<Shared>, flights: Vec<Flight>) {
    let mut connection = match shared.connections.get("swap").await {
        Ok(connection) => connection,
        Err(error) => return fail(flights, error),
    };
    let mut done = attempt(shared, &mut connection, &flights, Held::GiveUp(LOCK_WAIT)).await;
    if matches!(&done, Err(refusal) if refusal.is_before_anything()) {
        // Nobody had noticed that the connection was gone. Nothing was run on it, so another one may.
        drop(connection);
        connection = match shared.connections.get("swap").await {
            Ok(connection) => connection,
            Err(error) => return fail(flights, error),
        };
        done = attempt(shared, &mut connection, &flights, Held::GiveUp(LOCK_WAIT)).await;
    }
    if matches!(&done, Err(Refusal::Failed(error)) if failure::is_lock(error)) {
        done = attempt(shared, &mut connection, &flights, Held::PassOver(LOCK_WAIT)).await;
    }
    match done {
        Ok(done) => {
            let (written, left) = sort_out(flights, done);
            if left.is_empty() {
                // Back before anybody is answered: whoever is roused may need it.
                drop(connection);
                land(written);
            } else {
                land(written);
                look_again(shared, &mut connection, left).await;
            }
        }
        Err(Refusal::Failed(error)) if failure::may_be_one_row(&error) => {
            alone::one_by_one(shared, &mut connection, flights).await;
        }
        Err(refusal) => fail(flights, refusal.of_write("swap")),
    }
}

/// Answers what was written or found; looks again at the rest.
pub(crate) async fn settle(shared: &Arc<Shared>, connection: &mut Connection, flights: Vec<Flight>, done: Done) {
    let (written, left) = sort_out(flights, done);
    land(written);
    if !left.is_empty() {
        look_again(shared, connection, left).await;
    }
}

/// What was written or found, and the rest.
fn sort_out(flights: Vec<Flight>, mut done: Done) -> (Vec<(Flight, Written)>, Vec<Flight>) {
    let (mut written, mut left) = (Vec::with_capacity(flights.len()), Vec::new());
    for flight in flights {
        match done.remove(flight.write.at.id()) {
            Some(became) => written.push((flight, became)),
            None => left.push(flight),
        }
    }
    (written, left)
}

fn land(written: Vec<(Flight, Written)>) {
    for (flight, became) in written {
        flight.land(Ok(became));
    }
}

async fn look_again(shared: &Arc<Shared>, connection: &mut Connection, left: Vec<Flight>) {
    let ids: Vec<&[u8]> = left.iter().map(|flight| &flight.write.at.id().as_bytes()[..]).collect();
    let (mut rows, now) = match reader::find(shared, connection, &ids, "swap").await {
        Ok(found) => found,
        Err(error) => return fail(left, error),
    };
    for flight in left {
        let row = rows.remove(flight.write.at.id());
        if is_as_expected(row.as_ref(), &flight) {
            alone::set_apart(shared, flight);
        } else {
            flight.land(Ok(Written::Lost(row.map(Box::new), now)));
        }
    }
}

/// A row that could be written and was not: another transaction holds it.
pub(crate) fn is_as_expected(row: Option<&OwnedRow>, flight: &Flight) -> bool {
    let expect = flight.write.expect.as_ref().map(|expect| expect.as_bytes().as_slice());
    row.is_some_and(|row| expect == Some(row.version.as_slice()))
}

/// What a statement does about rows that another transaction holds.
#[derive(Clone, Copy)]
pub(crate) enum Held {
    /// Waits this long and then fails, with all its rows. The cheapest where nobody holds any.
    GiveUp(Duration),
    /// Passes over them. Keys that are just being inserted cannot be passed over: it gives up on those.
    PassOver(Duration),
    /// Waits this long for a single row, and reads the clock after that.
    WaitFor(Duration),
}

impl Held {
    /// Expects that nobody holds anything.
    fn is_hopeful(self) -> bool {
        matches!(self, Self::GiveUp(_))
    }

    fn patience(self) -> Option<String> {
        let (Self::GiveUp(wait) | Self::PassOver(wait) | Self::WaitFor(wait)) = self;
        Some(setting_of(wait))
    }
}

/// What a statement did, by id. What is missing was neither written nor found.
pub(crate) type Done = HashMap<Id, Written>;

/// One statement for rows of one kind: all new, or all changes.
pub(crate) async fn attempt(
    shared: &Shared,
    connection: &mut Connection,
    flights: &[Flight],
    held: Held,
) -> Result<Done, Refusal> {
    let rows = Rows::of(&flights.iter().map(|flight| &flight.write).collect::<Vec<_>>(), held.is_hopeful());
    let patience = held.patience();
    let question = question(&shared.statements, flights, &rows, held, &patience);
    let sent = shared.clock.sent();
    let answer = hapax_core::failpoint_begun!(
        hapax_core::failpoint::of_swaps(flights.iter().map(|Flight { write, .. }| (
            &write.at,
            write.expect.is_none(),
            u8::try_from(write.state).unwrap_or(0)
        ))),
        connection.query(&question)
    )
    .await?;
    let now_ms = answer.first().and_then(|row| row.try_get(0).ok());
    let now = now_ms.map(|now_ms| shared.clock.heard(sent, now_ms)).unwrap_or_default();
    Ok(answer.iter().filter_map(|row| read_done(row, now)).collect())
}

/// The statement that fits: for one row or many, new or not, and what is to be done about held ones.
fn question<'a>(
    statements: &'a Statements,
    flights: &[Flight],
    rows: &'a Rows<'a>,
    held: Held,
    patience: &'a Option<String>,
) -> Question<'a> {
    let is_new = flights.iter().all(|flight| flight.write.expect.is_none());
    match (rows, held) {
        (Rows::One(row), _) if is_new => Question::new(&statements.insert_one, row.for_insert(patience)),
        (Rows::One(row), _) => Question::new(&statements.update_one, row.for_update(patience)),
        (Rows::Many(rows), Held::GiveUp(_)) if is_new => Question::new(&statements.insert, rows.for_insert(patience)),
        (Rows::Many(rows), _) if is_new => Question::new(&statements.insert_free, rows.for_insert(patience)),
        (Rows::Many(rows), Held::GiveUp(_)) => Question::new(&statements.update, rows.for_update(patience)),
        (Rows::Many(rows), Held::PassOver(_)) => Question::new(&statements.update_free, rows.for_update(patience)),
        (Rows::Many(rows), Held::WaitFor(_)) => Question::new(&statements.update_held, rows.for_update(patience)),
    }
}

/// A row that was written has its id and stamp in the second and third column; one that was found follows them.
fn read_done(row: &Row, now: Now) -> Option<(Id, Written)> {
    let written: Option<&[u8]> = row.try_get(1).ok()?;
    if let Some(id) = written {
        let now = Now { at: moment(row.try_get(2).ok()?), ..now };
        return Some((Id::from_bytes(id.try_into().ok()?), Written::Applied(now)));
    }
    let found = rows::read(row, 3)?;
    Some((found.id()?, Written::Lost(Some(Box::new(found)), now)))
}

fn fail(flights: Vec<Flight>, error: StoreError) {
    let mut cause = Some(error);
    for flight in flights {
        flight.land(Err(failure::share(&mut cause)));
    }
}
