//! Taking answers away: what matches is chosen and counted first, and then changed one by one, each with its note.

use hapax::tokens;
use hapax_core::address::Address;
use hapax_core::engine::Engine;
use hapax_core::journal::Note;
use hapax_core::record::{State, Stored, Version};
use hapax_core::store::Entry;
use hapax_core::transition::{Answer, Event};

use super::direct::Direct;
use super::pinned::{Pinned, has_moved_on};
use super::search::invalid;
use super::view::{Filter, PurgeRequest, PurgeView};
use super::{DeskError, refused, said};

/// Records that one purge may touch: each is written by itself, with its note.
const PURGE_MAX: usize = 100_000;

/// A record as it was chosen.
pub(super) struct Chosen {
    at: Address,
    version: Version,
    state: State,
}

impl From<Entry> for Chosen {
    fn from(entry: Entry) -> Self {
        let record = entry.stored.record;
        Self { at: entry.address, version: record.version, state: record.state }
    }
}

/// What became of one.
enum Purged {
    Done,
    /// It could not be touched.
    Left(Option<Stored>),
    /// Somebody changed it after it was chosen.
    MovedOn,
}

pub(super) async fn purge(desk: &Direct, request: &PurgeRequest, who: &str) -> Result<PurgeView, DeskError> {
    let rerun = if request.allow_rerun { "the key may run again" } else { "the key stays taken" };
    let note = said::note(who, "purge", &request.reason, rerun.to_owned())?;
    let chosen = choose(desk, request).await?;
    check_count(&chosen, request.expect)?;
    let mut view = PurgeView { matched: chosen.len() as u64, dry_run: request.dry_run, ..PurgeView::default() };
    for one in &chosen {
        let purged = match request.dry_run {
            true => foreseen(one.state),
            false => apply(desk, one, request.allow_rerun, &note).await.map_err(|error| after_some(&view, error))?,
        };
        match purged {
            Purged::Done if request.allow_rerun && one.state == State::Completed => view.freed += 1,
            Purged::Done => view.tombstones += 1,
            Purged::Left(stored) if request.id.is_some() && !request.dry_run => {
                return Err(stored.map_or_else(refused::not_found, |stored| refused::purge(&stored)));
            }
            Purged::MovedOn if request.id.is_some() => {
                return Err(refused::conflict("the record changed meanwhile; look at it again and repeat"));
            }
            Purged::Left(_) | Purged::MovedOn => view.left += 1,
        }
    }
    Ok(view)
}

async fn choose(desk: &Direct, request: &PurgeRequest) -> Result<Vec<Chosen>, DeskError> {
    match (&request.id, &request.filter) {
        (Some(id), None) => Ok(vec![desk.by_id(id).await?.into()]),
        (None, Some(filter)) if *filter == Filter::default() => {
            Err(invalid("an empty filter would take every answer away; name states, a scope or a label"))
        }
        (None, Some(filter)) => desk.matches(filter, PURGE_MAX).await,
        _ => Err(invalid("name one record by its id, or some by a filter")),
    }
}

/// What a purge would do, by the state alone.
fn foreseen(state: State) -> Purged {
    match state {
        State::Running | State::Expired => Purged::Left(None),
        State::Ready | State::Unknown | State::Dead | State::Completed => Purged::Done,
    }
}

async fn apply(desk: &Direct, one: &Chosen, allow_rerun: bool, note: &Note) -> Result<Purged, DeskError> {
    let pinned = Pinned { store: desk.store.clone(), version: one.version };
    let engine = Engine::new(pinned, tokens::random as tokens::Random);
    match engine.apply_noted(&one.at, &Event::Purge { allow_rerun }, None, note).await {
        Ok(reply) if reply.answer == Answer::Done => Ok(Purged::Done),
        Ok(reply) => Ok(Purged::Left(reply.seen.stored)),
        Err(error) if has_moved_on(&error) => Ok(Purged::MovedOn),
        Err(error) => Err(error.into()),
    }
}

/// A failure in the middle: what was done stays done, and is in the audit log.
fn after_some(view: &PurgeView, error: DeskError) -> DeskError {
    let done = view.freed + view.tombstones;
    if done == 0 {
        return error;
    }
    let message = format!("{}; {done} of {} were purged before that, see the audit log", error.message, view.matched);
    DeskError::new(error.kind, message)
}

fn check_count(chosen: &[Chosen], expect: Option<u64>) -> Result<(), DeskError> {
    if chosen.len() > PURGE_MAX {
        return Err(invalid(format!("more than {PURGE_MAX} records match; narrow the filter and purge part by part")));
    }
    match expect {
        Some(expect) if chosen.len() as u64 > expect => Err(refused::conflict(format!(
            "{} records match now, and {expect} were expected: nothing was changed; look again and repeat",
            chosen.len()
        ))),
        _ => Ok(()),
    }
}
