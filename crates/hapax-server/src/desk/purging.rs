//! Taking answers away: what matches is chosen and counted first, and then changed one by one, each with its note.

use hapax::tokens;
use hapax_core::address::Address;
use hapax_core::engine::Engine;
use hapax_core::journal::Note;
use hapax_core::record::{AttemptId, Record, State};
use hapax_core::store::{Entry, Seen, Store as _};
use hapax_core::transition::{Answer, Event};

use super::bound::{Bond, By};
use super::direct::Direct;
use super::search::invalid;
use super::view::{Filter, PurgeRequest, PurgeView};
use super::{DeskError, refused, said};

/// Records that one purge may touch: each is written by itself, with its note.
const PURGE_MAX: usize = 100_000;

/// How often a record is taken up again that was only looked after meanwhile, such as by a probe that asks again later.
const TRIES_MAX: u32 = 8;

/// A record as it was chosen.
pub(super) struct Chosen {
    at: Address,
    state: State,
    attempt_id: Option<AttemptId>,
}

impl Chosen {
    /// Whether that is still what was chosen: nothing began and nothing ended since.
    fn is_still(&self, record: &Record) -> bool {
        record.state == self.state && record.attempt_id == self.attempt_id
    }
}

impl From<Entry> for Chosen {
    fn from(entry: Entry) -> Self {
        let record = entry.stored.record;
        Self { at: entry.address, state: record.state, attempt_id: record.attempt_id }
    }
}

/// What became of one.
enum Purged {
    Done,
    /// It could not be touched.
    Left(Option<Box<Seen>>),
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
            Purged::Left(seen) if request.id.is_some() && !request.dry_run => {
                return Err(seen.map_or_else(refused::not_found, |seen| left(&seen)));
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
            Err(invalid("an empty filter would take every answer away; name states, a scope or times"))
        }
        (None, Some(filter)) => {
            check_bound(filter)?;
            desk.matches(filter, PURGE_MAX).await
        }
        _ => Err(invalid("name one record by its id, or some by a filter")),
    }
}

/// States and times are hapax's own. What a caller wrote chooses among the records of one caller, and never among all.
fn check_bound(filter: &Filter) -> Result<(), DeskError> {
    let bond = Bond { scoped: filter.scope.is_some(), ..Bond::default() };
    let (key, label) = (filter.key.as_ref().map(|_| By::Key), filter.label.as_ref().map(|_| By::Label));
    let named = [key, label, filter.find.as_ref().map(|_| By::Text)];
    named.into_iter().flatten().try_for_each(|by| said::check_bound(by, bond))
}

/// What a purge would do, by the state alone.
fn foreseen(state: State) -> Purged {
    match state {
        State::Running | State::Expired => Purged::Left(None),
        State::Ready | State::Unknown | State::Dead | State::Completed => Purged::Done,
    }
}

async fn apply(desk: &Direct, one: &Chosen, allow_rerun: bool, note: &Note) -> Result<Purged, DeskError> {
    let engine = Engine::new(desk.store.clone(), tokens::random as tokens::Random);
    for _ in 0..TRIES_MAX {
        let seen = desk.store.get(&one.at).await?;
        // A response that came after the records were chosen, and counted, was never meant.
        if !seen.stored.as_ref().is_some_and(|stored| one.is_still(&stored.record)) {
            break;
        }
        match engine.apply_once_noted(&one.at, &Event::Purge { allow_rerun }, seen, note).await? {
            Some(reply) if reply.answer == Answer::Done => return Ok(Purged::Done),
            Some(reply) => return Ok(Purged::Left(Some(Box::new(reply.seen)))),
            None => {}
        }
    }
    Ok(Purged::MovedOn)
}

fn left(seen: &Seen) -> DeskError {
    seen.stored.as_ref().map_or_else(refused::not_found, |stored| refused::purge(stored, seen.now))
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use hapax_core::address::{AddressScheme, Key, Scope, Space};
    use hapax_core::fingerprint::{Fingerprinter, Fingerprints as _, Recipe, Request};
    use hapax_core::memory::Memory;
    use hapax_core::record::{Body, Outcome, Policy};

    use super::*;
    use crate::store::AnyStore;

    type Rig = (Direct, Engine<AnyStore, tokens::Random>, Address, AttemptId);

    /// A desk, and an attempt of which nobody knows what became of it.
    async fn setup() -> Rig {
        let store = AnyStore::Memory(Arc::new(Memory::new()));
        let parts = (Space::new("http").unwrap(), Scope::new("alice").unwrap(), Key::new("k").unwrap());
        let at = Address::new(&AddressScheme::default(), &parts.0, &parts.1, &parts.2);
        let recipe = Recipe::new();
        let request = Fingerprinter::new(Request::new("POST", "/", b"{}"), &recipe, &[]).unwrap().current();
        let engine = Engine::new(store.clone(), tokens::random as tokens::Random);
        let attempt_id = engine.claim(&at, &request, Policy::default()).await.unwrap().attempt_id().unwrap();
        doubt(&engine, &at, attempt_id).await;
        (Direct::new(store), engine, at, attempt_id)
    }

    async fn doubt(engine: &Engine<AnyStore, tokens::Random>, at: &Address, attempt_id: AttemptId) {
        let doubt = Event::Doubt { attempt_id, error: "cut-off", probe_in_ms: 0 };
        assert_eq!(engine.apply(at, &doubt, None).await.unwrap().answer, Answer::Done);
    }

    async fn chosen(desk: &Direct, at: &Address) -> Chosen {
        let stored = desk.store.get(at).await.unwrap().stored.unwrap();
        Entry { address: at.clone(), stored }.into()
    }

    fn note() -> Note {
        said::note("ana", "purge", "asked to be forgotten", String::new()).unwrap()
    }

    #[tokio::test]
    async fn what_was_only_looked_after_meanwhile_is_purged() {
        let (desk, engine, at, attempt_id) = setup().await;
        let one = chosen(&desk, &at).await;
        engine.apply(&at, &Event::Renew { attempt_id }, None).await.unwrap();
        doubt(&engine, &at, attempt_id).await;
        assert!(matches!(apply(&desk, &one, false, &note()).await, Ok(Purged::Done)));
        assert_eq!(chosen(&desk, &at).await.state, State::Expired);
    }

    #[tokio::test]
    async fn a_response_that_came_meanwhile_is_not_taken_away() {
        let (desk, engine, at, attempt_id) = setup().await;
        let one = chosen(&desk, &at).await;
        let outcome = Arc::new(Outcome { status: 201, headers: vec![], body: Body::Kept(b"paid".to_vec()) });
        let complete = Event::Complete { attempt_id, outcome: &outcome, labels: &Arc::default() };
        assert_eq!(engine.apply(&at, &complete, None).await.unwrap().answer, Answer::Done);
        assert!(matches!(apply(&desk, &one, true, &note()).await, Ok(Purged::MovedOn)));
        let again = chosen(&desk, &at).await;
        assert_eq!(again.state, State::Completed);
        assert!(matches!(apply(&desk, &again, true, &note()).await, Ok(Purged::Done)));
    }

    #[tokio::test]
    async fn what_went_on_meanwhile_is_left_alone() {
        let (desk, engine, at, attempt_id) = setup().await;
        let one = chosen(&desk, &at).await;
        engine.apply(&at, &Event::Renew { attempt_id }, None).await.unwrap();
        assert!(matches!(apply(&desk, &one, false, &note()).await, Ok(Purged::Left(_) | Purged::MovedOn)));
        assert_eq!(chosen(&desk, &at).await.state, State::Running);
    }
}
