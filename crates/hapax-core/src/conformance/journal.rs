//! What a store that keeps notes must do. One check, for a fresh store of any kind.

use super::samples::{address, running};
use crate::address::Address;
use crate::journal::{About, Journal, Note, NoteScan};
use crate::limits::{NOTE_TEXT_BYTES_MAX, PAGE_ENTRIES_MAX};
use crate::record::{Record, State};
use crate::store::{ErrorKind, Swap};

/// Runs every check on a fresh store.
///
/// # Panics
/// If the store does not keep its promises.
pub async fn check_journal<S: Journal>(store: &S) {
    kept_with_the_swap(store).await;
    kept_by_themselves(store).await;
    newest_first_page_by_page(store).await;
    refused_if_too_large(store).await;
}

fn note(what: &str) -> Note {
    Note {
        who: "ada".to_owned(),
        what: what.to_owned(),
        about: None,
        before: None,
        after: None,
        reason: "the provider's \"ledger\" says so; \\ ' % _ \u{e9}\u{202e}".to_owned(),
        detail: String::new(),
    }
}

async fn all<S: Journal>(store: &S) -> Vec<Note> {
    let query = NoteScan { limit: u32::MAX, ..NoteScan::default() };
    store.notes(&query).await.expect("notes are read").into_iter().map(|noted| noted.note).collect()
}

fn about(at: &Address, what: &str) -> Note {
    Note {
        about: Some(About::new(at, 3)),
        before: Some(State::Unknown),
        after: Some(State::Completed),
        detail: "status 201".to_owned(),
        ..note(what)
    }
}

async fn kept_with_the_swap<S: Journal>(store: &S) {
    let (at, first, second) = (address("alice", "journal"), running(), running());
    let lost = store.swap_noted(&at, Some(second.version), &first, &note("lost")).await.expect("a swap is answered");
    assert!(matches!(lost, Swap::Lost(_)), "nothing was there: {lost:?}");
    assert_eq!(all(store).await, [], "a swap that is lost leaves no note");
    let applied = store.swap_noted(&at, None, &first, &note("first")).await.expect("a swap is answered");
    assert!(matches!(applied, Swap::Applied(_)), "{applied:?}");
    let second = Record { created_at: None, ..second };
    let applied = store.swap_noted(&at, Some(first.version), &second, &about(&at, "second")).await;
    let Swap::Applied(now) = applied.expect("a swap is answered") else { panic!("the version matched") };
    let seen = store.get(&at).await.expect("a record is read");
    assert_eq!(seen.version(), Some(second.version), "the record was written with its note");
    assert_eq!(all(store).await, [about(&at, "second"), note("first")], "every field comes back");
    let newest = store.notes(&NoteScan { limit: 1, ..NoteScan::default() }).await.expect("notes are read");
    assert_eq!(newest.first().map(|noted| noted.at), Some(now.at), "stamped with the time of its swap");
    let lost = store.swap_noted(&at, Some(first.version), &first, &note("stale")).await.expect("a swap is answered");
    let Swap::Lost(seen) = lost else { panic!("the version did not match") };
    assert_eq!(seen.version(), Some(second.version), "a lost swap brings what stands there");
    assert_eq!(all(store).await.len(), 2, "and leaves no note");
}

async fn kept_by_themselves<S: Journal>(store: &S) {
    let before = all(store).await.len();
    store.note(&note("alone")).await.expect("a note is kept");
    let notes = all(store).await;
    assert_eq!((notes.len(), notes.first()), (before + 1, Some(&note("alone"))));
}

async fn newest_first_page_by_page<S: Journal>(store: &S) {
    let at = address("bob", "paged");
    for number in 0..7 {
        store.note(&about(&at, &format!("p{number}"))).await.expect("a note is kept");
        store.note(&note("between")).await.expect("a note is kept");
    }
    let (mut names, mut before) = (Vec::new(), None);
    loop {
        let query = NoteScan { about: Some(*at.id()), before, limit: 3 };
        let page = store.notes(&query).await.expect("notes are read");
        assert!(page.len() <= 3 && page.is_sorted_by(|one, other| one.number > other.number));
        let Some(last) = page.last() else { break };
        before = Some(last.number);
        names.extend(page.into_iter().map(|noted| noted.note.what));
    }
    assert_eq!(names, ["p6", "p5", "p4", "p3", "p2", "p1", "p0"], "those about the record, and no others");
    let none = store.notes(&NoteScan { limit: 0, ..NoteScan::default() }).await.expect("notes are read");
    assert_eq!(none.len(), 1, "a limit of nothing counts as one");
    let many = store.notes(&NoteScan { limit: 1_000_000_000, ..NoteScan::default() }).await.expect("notes are read");
    assert!(many.len() <= PAGE_ENTRIES_MAX as usize);
}

async fn refused_if_too_large<S: Journal>(store: &S) {
    let before = all(store).await.len();
    let large = Note { reason: "x".repeat(NOTE_TEXT_BYTES_MAX + 1), ..note("large") };
    let nul = Note { detail: "a\0b".to_owned(), ..note("nul") };
    for bad in [large, nul] {
        let alone = store.note(&bad).await.map(|_| ()).map_err(|error| error.kind);
        assert_eq!(alone, Err(ErrorKind::Invalid));
        let at = address("carol", "refused");
        let swapped = store.swap_noted(&at, None, &running(), &bad).await.map(|_| ()).map_err(|error| error.kind);
        assert_eq!(swapped, Err(ErrorKind::Invalid));
        assert!(store.get(&at).await.expect("a record is read").stored.is_none(), "nothing was written");
    }
    assert_eq!(all(store).await.len(), before);
}
