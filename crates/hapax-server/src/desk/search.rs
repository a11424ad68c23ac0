//! Which records are meant: a filter that was checked, walked phase by phase and page by page.
//!
//! A search for anything a person pastes begins where it is cheap: ids by their index; a key of a named scope where it must be,
//! if that can be computed; then what is unfinished, by the due index, then keys and scopes of all records, and last the labels of all records, unless a record was found whose key,
//! scope or label is just what was pasted.
//! No record is met in two phases. A cursor says phase and place, and is good for the filter it was made for, and for no
//! other; but for its times, since "24 hours ago" is another moment whenever it is said.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hapax_core::address::{Address, Id, Key, Scope};
use hapax_core::clock::Timestamp;
use hapax_core::record::{Label, State};
use hapax_core::store::{Cursor, Entry, Scan};
use sha2::{Digest, Sha256};

use super::view::Filter;
use super::{DeskError, DeskErrorKind, lookup};
use crate::timestamp;

/// What a person pastes is an identifier.
const FIND_CHARS_MAX: usize = 512;

/// The kind of cursor; another release may make others.
const CURSOR_KIND: u8 = 2;

/// Bytes of the digest that binds a cursor to its filter.
const SEAL_BYTES: usize = 16;

/// A longer cursor was not made here.
const CURSOR_CHARS_MAX: usize = 512;

/// Where a search looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Where a key of a scope is, if it is unique per caller.
    Addresses,
    /// Ids that begin so.
    Ids,
    /// What is unfinished, whatever of it fits.
    Unfinished,
    /// Keys and scopes of the others.
    Texts,
    /// Labels of the others.
    Labels,
    /// All records, where nothing was pasted.
    All,
}

impl Phase {
    const EVERY: [Self; 6] = [Self::Addresses, Self::Ids, Self::Unfinished, Self::Texts, Self::Labels, Self::All];
}

/// A place in a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) phase: Phase,
    /// Whether something was found so far that is just what was pasted, and not merely contains it.
    found: bool,
    /// Where the store goes on.
    pub(super) after: Option<Cursor>,
}

/// A filter that was checked.
#[derive(Clone, Debug)]
pub(super) struct Search {
    states: Vec<State>,
    scope: Option<Scope>,
    key: Option<Key>,
    label: Option<Label>,
    /// What is looked for in texts: what was pasted, or else the key.
    find: Option<String>,
    /// Where the key is, if it is unique per caller, and whether it cannot be anywhere else.
    addresses: (Vec<Address>, bool),
    ids: Option<(Id, Id)>,
    since: Option<Timestamp>,
    until: Option<Timestamp>,
    seal: Vec<u8>,
}

impl Search {
    /// Checks a filter.
    pub(super) fn new(filter: &Filter) -> Result<Self, DeskError> {
        let pasted = filter.find.as_deref().map(pasted).transpose()?;
        let key = filter.key.as_deref().map(key).transpose()?;
        let timeless = Filter { since: None, until: None, ..filter.clone() };
        Ok(Self {
            states: filter.states.iter().map(|name| state(name)).collect::<Result<_, _>>()?,
            scope: filter.scope.as_deref().map(scope).transpose()?,
            label: filter.label.as_deref().map(label).transpose()?,
            ids: pasted.as_deref().and_then(lookup::range),
            find: pasted.or_else(|| key.as_ref().map(|key| key.as_str().to_owned())),
            key,
            addresses: (Vec::new(), false),
            since: filter.since.as_deref().map(|text| time("since", text)).transpose()?,
            until: filter.until.as_deref().map(|text| time("until", text)).transpose()?,
            seal: serde_json::to_vec(&timeless).map_err(|error| invalid(error.to_string()))?,
        })
    }

    /// The key whose address can be computed.
    pub(super) fn addressed(&self) -> Option<(&Scope, &Key)> {
        self.scope.as_ref().zip(self.key.as_ref())
    }

    /// The same with the addresses that this key may have, and whether it has no others.
    pub(super) fn at(self, addresses: Vec<Address>, are_all: bool) -> Self {
        Self { addresses: (addresses, are_all), ..self }
    }

    /// The addresses of the first phase.
    pub(super) fn addresses(&self) -> &[Address] {
        &self.addresses.0
    }

    /// Where to begin.
    pub(super) fn start(&self) -> Option<Place> {
        let found = false;
        self.phases().into_iter().next().map(|phase| Place { phase, found, after: None })
    }

    /// Where to go on after a page, on which these were found.
    pub(super) fn onwards(&self, place: &Place, next: Option<Cursor>, found: &[Entry]) -> Option<Place> {
        let found = place.found || found.iter().any(|entry| self.is_meant(place.phase, entry));
        if next.is_some() {
            return Some(Place { phase: place.phase, found, after: next });
        }
        if place.phase == Phase::Addresses && found && self.addresses.1 {
            return None;
        }
        let phases = self.phases();
        let later = phases.into_iter().skip_while(|phase| *phase != place.phase).skip(1);
        // Whoever pasted an id has found it; who pasted a key did not mean a label.
        let mut later = later.filter(|phase| !found || !(place.phase == Phase::Ids || *phase == Phase::Labels));
        later.next().map(|phase| Place { phase, found, after: None })
    }

    fn phases(&self) -> Vec<Phase> {
        if self.find.is_none() {
            return vec![Phase::All];
        }
        let may = |unfinished: bool| {
            self.states.is_empty() || self.states.iter().any(|state| state.is_unfinished() == unfinished)
        };
        let fits = |phase: &Phase| match phase {
            Phase::Addresses => !self.addresses.0.is_empty(),
            Phase::Ids => self.ids.is_some(),
            Phase::Unfinished => may(true),
            Phase::Texts => may(false),
            // A key alone is in no label.
            Phase::Labels => may(false) && self.key.as_ref().map(Key::as_str) != self.find.as_deref(),
            Phase::All => false,
        };
        Phase::EVERY.into_iter().filter(fits).collect()
    }

    /// The ids of the first phase.
    pub(super) fn ids(&self) -> Option<(Id, Id)> {
        self.ids
    }

    /// What to ask the store for there.
    pub(super) fn scan(&self, place: &Place, limit: u32) -> Scan {
        let states = match place.phase {
            Phase::Unfinished if self.states.is_empty() => {
                State::ALL.into_iter().filter(|state| state.is_unfinished()).collect()
            }
            Phase::Unfinished => self.states.iter().copied().filter(|state| state.is_unfinished()).collect(),
            _ => self.states.clone(),
        };
        Scan {
            states,
            scope: self.scope.clone(),
            label: self.label.clone(),
            text: self.find.clone().filter(|_| place.phase == Phase::Texts),
            after: place.after.clone(),
            limit,
            due: None,
        }
    }

    /// Whether a record belongs to what is found in that phase.
    pub(super) fn takes(&self, phase: Phase, entry: &Entry) -> bool {
        let (at, record) = (&entry.address, &entry.stored.record);
        let created_at = entry.stored.created_at();
        let asked_for = (self.states.is_empty() || self.states.contains(&record.state))
            && self.scope.as_ref().is_none_or(|scope| scope == at.scope())
            && self.key.as_ref().is_none_or(|key| key == at.key())
            && self.label.as_ref().is_none_or(|label| record.labels.contains(label))
            && self.since.is_none_or(|since| created_at >= since)
            && self.until.is_none_or(|until| created_at < until);
        let by_id = || self.ids.is_some_and(|(first, last)| (first..=last).contains(at.id()));
        let text = self.find.as_deref().unwrap_or_default();
        let by_text = || at.key().as_str().contains(text) || at.scope().as_str().contains(text);
        let by_label = || record.labels.iter().any(|label| is_label(label, text));
        let unfinished = record.state.is_unfinished();
        asked_for
            && (phase == Phase::Addresses) == self.addresses.0.contains(at)
            && match phase {
                Phase::Addresses => true,
                Phase::All => true,
                Phase::Ids => by_id(),
                Phase::Unfinished => unfinished && !by_id() && (by_text() || by_label()),
                Phase::Texts => !unfinished && !by_id() && by_text(),
                Phase::Labels => !unfinished && !by_id() && !by_text() && by_label(),
            }
    }

    /// Whether a record is just what was pasted. By id it always is.
    fn is_meant(&self, phase: Phase, entry: &Entry) -> bool {
        let text = self.find.as_deref().unwrap_or_default();
        let (at, record) = (&entry.address, &entry.stored.record);
        phase == Phase::Ids
            || at.key().as_str() == text
            || at.scope().as_str() == text
            || record.labels.iter().any(|label| is_label(label, text))
    }

    /// A place as it is handed out.
    pub(super) fn write(&self, place: &Place) -> String {
        let number = Phase::EVERY.iter().position(|phase| *phase == place.phase).unwrap_or(0);
        let mut bytes = vec![CURSOR_KIND, u8::try_from(number).unwrap_or(0), u8::from(place.found)];
        bytes.extend(place.after.iter().flat_map(Cursor::as_bytes));
        bytes.extend(self.sealed(&bytes));
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// A place that was handed out for this filter.
    pub(super) fn read(&self, text: &str) -> Result<Place, DeskError> {
        let read = || {
            let bytes = (text.len() <= CURSOR_CHARS_MAX).then(|| URL_SAFE_NO_PAD.decode(text).ok()).flatten()?;
            let (said, seal) = bytes.split_at_checked(bytes.len().checked_sub(SEAL_BYTES)?)?;
            if seal != self.sealed(said) {
                return None;
            }
            let (head, after) = said.split_at_checked(3)?;
            let phase = *Phase::EVERY.get(usize::from(head[1]))?;
            let sound = head[0] == CURSOR_KIND && self.phases().contains(&phase);
            let after = (!after.is_empty()).then(|| Cursor::from_bytes(after.to_vec()));
            sound.then_some(Place { phase, found: head[2] != 0, after })
        };
        read().ok_or_else(|| invalid("the cursor does not belong to this filter; begin again without it"))
    }

    fn sealed(&self, said: &[u8]) -> Vec<u8> {
        let hash = Sha256::new().chain_update(&self.seal).chain_update([0]).chain_update(said);
        hash.finalize()[..SEAL_BYTES].to_vec()
    }
}

/// Whether a label is what was pasted: its value, or name and value.
fn is_label(label: &Label, text: &str) -> bool {
    label.value == text || text.split_once('=').is_some_and(|(name, value)| label.name == name && label.value == value)
}

/// As it is: blanks are a part of keys, scopes and labels.
fn pasted(text: &str) -> Result<String, DeskError> {
    if text.trim().is_empty() || text.chars().count() > FIND_CHARS_MAX {
        return Err(invalid(format!(
            "what to find has 1 to {FIND_CHARS_MAX} characters; give a key, a scope or an id"
        )));
    }
    Ok(text.to_owned())
}

fn state(name: &str) -> Result<State, DeskError> {
    State::ALL.into_iter().find(|state| state.name() == name).ok_or_else(|| {
        let shown: String = name.chars().take(32).collect();
        invalid(format!("there is no state {shown:?}; use {}", State::ALL.map(State::name).join(", ")))
    })
}

fn key(text: &str) -> Result<Key, DeskError> {
    Key::new(text).map_err(|error| invalid(error.to_string()))
}

pub(super) fn scope(text: &str) -> Result<Scope, DeskError> {
    Scope::new(text).map_err(|error| invalid(error.to_string()))
}

pub(super) fn label(text: &str) -> Result<Label, DeskError> {
    let parts = text.split_once('=').filter(|(name, value)| !name.is_empty() && !value.is_empty());
    let (name, value) = parts.ok_or_else(|| invalid("a label is a name and a value; write name=value"))?;
    Ok(Label { name: name.to_owned(), value: value.to_owned() })
}

fn time(name: &str, text: &str) -> Result<Timestamp, DeskError> {
    timestamp::read(text)
        .ok_or_else(|| invalid(format!("`{name}` is not a time; write it as 2026-01-31 or 2026-01-31T09:05:00Z")))
}

pub(super) fn invalid(message: impl Into<String>) -> DeskError {
    DeskError::new(DeskErrorKind::Invalid, message)
}
