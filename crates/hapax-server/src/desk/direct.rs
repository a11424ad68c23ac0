//! [`Direct`]: the operator's desk on the store itself.
//!
//! Every change goes through the rule book ([`Engine::apply_noted`]), with a note of who and why in the same transaction.
//! Records of hapax itself never show. Searches that would read everything go page by page and have an end.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use hapax::remembered::SPACE;
use hapax::tokens;
use hapax_core::address::Address;
use hapax_core::clock::Now;
use hapax_core::engine::{Engine, Reply};
use hapax_core::journal::{Journal as _, Note, NoteScan};
use hapax_core::limits::PAGE_ENTRIES_MAX;
use hapax_core::record::{OnLapse, State};
use hapax_core::store::{Cursor, Damaged, Entry, ErrorKind, Page, Scan, Store as _, StoreError};
use hapax_core::transition::{Answer, Event};
use tokio::time::timeout;

use super::purging::{self, Chosen};
use super::said::{self, Said, Target};
use super::search::{Phase, Place, Search, invalid};
use super::view::{
    AuditView, ChangeView, Filter, PageView, PurgeRequest, PurgeView, RecordView, ResolutionRequest, StatusView,
};
use super::{Desk, DeskError, lookup, refused, shown, survey};
use crate::config::unprobed::ProbeCount;
use crate::store::AnyStore;
use crate::store::address_scheme;
use crate::store::ceiling::Ceiling;

/// Pages of the store that one page of a list may take. A rare match gives an empty page and a cursor, not a long silence.
const PAGES_PER_LIST_MAX: u32 = 8;

/// Pages of the store that are searched for one record that is named by key or label.
const PAGES_PER_SEARCH_MAX: u32 = 1_000;

/// More records that fit are not looked for: one of them has to be named.
const SEVERAL_MAX: usize = 9;

/// The operator's desk on the store itself. Clones share the store.
#[derive(Clone)]
pub struct Direct {
    pub(super) store: AnyStore,
    /// Whether the store has room for new keys, by the limits of its nodes.
    ceiling: Arc<Ceiling>,
    /// What a node knows of itself that its store does not.
    own_problems: Option<Arc<dyn Fn() -> Vec<String> + Send + Sync>>,
    /// How long a change may take.
    patience: Option<Duration>,
    /// On how many protected routes a person must decide what became of a request.
    without_probe: Option<usize>,
}

impl fmt::Debug for Direct {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Direct").field("store", &self.store).finish_non_exhaustive()
    }
}

impl Direct {
    /// On that store.
    #[must_use]
    pub fn new(store: AnyStore) -> Self {
        Self { store, ceiling: Arc::new(Ceiling::unlimited()), own_problems: None, patience: None, without_probe: None }
    }

    /// The same at a node, which tells what is wrong with itself.
    #[must_use]
    pub fn with_own_problems(self, tell: impl Fn() -> Vec<String> + Send + Sync + 'static) -> Self {
        Self { own_problems: Some(Arc::new(tell)), ..self }
    }

    /// The same, and nobody waits for a change for longer than that. What it became is then found by looking.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Self {
        Self { patience: Some(patience), ..self }
    }

    /// The same with the limits that the nodes of this store have.
    #[must_use]
    pub(crate) fn with_ceiling(self, ceiling: Arc<Ceiling>) -> Self {
        Self { ceiling, ..self }
    }

    /// The same with what the configuration says of probes.
    #[must_use]
    pub(crate) fn with_probes(self, probes: ProbeCount) -> Self {
        Self { without_probe: Some(probes.without), ..self }
    }

    /// The one record whose id begins so.
    pub(super) async fn by_id(&self, digits: &str) -> Result<Entry, DeskError> {
        self.by_id_at(digits).await.map(|(entry, _)| entry)
    }

    /// The same, and when that was.
    async fn by_id_at(&self, digits: &str) -> Result<(Entry, Now), DeskError> {
        let Some((first, last)) = lookup::range(digits) else {
            return Target::id(digits).and(Err(refused::not_found()));
        };
        let page = self.store.between(&first, &last, SEVERAL_MAX as u32).await?;
        if let Some(damaged) = page.damaged.first() {
            return Err(refused::damaged(damaged));
        }
        let entry = one_of(page.entries.into_iter().filter(is_callers).collect())?;
        Ok((entry, page.now))
    }

    /// The one record that is meant.
    async fn locate(&self, target: &Target) -> Result<Entry, DeskError> {
        match target {
            Target::Id(digits) => self.by_id(digits).await,
            Target::Key(Some(scope), key) => {
                let is_it = |entry: &Entry| entry.address.key() == key && entry.address.scope() == scope;
                let scan = Scan { scope: Some(scope.clone()), text: Some(key.as_str().to_owned()), ..Scan::default() };
                let known = address_scheme::known(&self.store).await?;
                let (_, computed) = self.read_all(known.addresses(scope, key)).await?;
                if !computed.is_empty() && known.is_per_caller {
                    return Collected { entries: computed, ..Collected::default() }.one();
                }
                // Keys that are unique per route have addresses that cannot be computed from here.
                let mut found = self.collect(&unfinished(&scan), is_it).await?;
                let is_new = |one: &Entry| found.entries.iter().all(|entry| entry.address != one.address);
                let computed: Vec<Entry> = computed.into_iter().filter(is_new).collect();
                found.entries.extend(computed);
                if !found.entries.is_empty() {
                    return found.one();
                }
                self.collect(&scan, is_it).await?.one()
            }
            Target::Key(None, key) => {
                let scan = Scan { text: Some(key.as_str().to_owned()), ..Scan::default() };
                let found = self.collect(&scan, |entry| entry.address.key() == key).await?.enforced_first();
                // One that cannot be read may be the one that is meant.
                let is_it = |damaged: &Damaged| damaged.key.as_deref() == Some(key.as_str());
                match found.damaged.iter().find(|damaged| is_it(damaged)) {
                    Some(damaged) if found.entries.len() <= 1 => Err(refused::damaged(damaged)),
                    _ if found.entries.len() <= 1 && !found.complete => Err(refused::may_be_several()),
                    _ => found.one(),
                }
            }
            Target::Label(scope, label) => {
                let scan = Scan { scope: Some(scope.clone()), label: Some(label.clone()), ..Scan::default() };
                let found = self.collect(&unfinished(&scan), |_| true).await?;
                if !found.entries.is_empty() {
                    return found.one();
                }
                self.collect(&scan, |_| true).await?.one()
            }
        }
    }

    /// What is at these addresses, and when that was.
    async fn read_all(&self, addresses: impl Iterator<Item = Address>) -> Result<(Option<Now>, Vec<Entry>), DeskError> {
        let (mut now, mut entries) = (None, Vec::new());
        for address in addresses {
            let seen = self.store.get(&address).await?;
            now = Some(seen.now);
            entries.extend(seen.stored.map(|stored| Entry { address, stored }));
        }
        Ok((now, entries))
    }

    /// A search by that filter; for a key of a scope it begins where that is.
    async fn search(&self, filter: &Filter) -> Result<Search, DeskError> {
        let search = Search::new(filter)?;
        let Some((scope, key)) = search.addressed() else { return Ok(search) };
        let known = address_scheme::known(&self.store).await?;
        let addresses = known.addresses(scope, key).collect();
        Ok(search.at(addresses, known.is_per_caller))
    }

    /// Records of callers that fit.
    async fn collect(&self, scan: &Scan, fits: impl Fn(&Entry) -> bool + Send + Sync) -> Result<Collected, DeskError> {
        let mut found = Collected::default();
        let mut after: Option<Cursor> = None;
        for _ in 0..PAGES_PER_SEARCH_MAX {
            let page = self.store.scan(&Scan { after, limit: PAGE_ENTRIES_MAX, ..scan.clone() }).await?;
            found.entries.extend(page.entries.into_iter().filter(|entry| is_callers(entry) && fits(entry)));
            found.damaged.extend(page.damaged);
            found.complete = page.next.is_none() || found.entries.len() >= SEVERAL_MAX;
            if found.complete {
                break;
            }
            after = page.next;
        }
        Ok(found)
    }

    /// What one place of a search brings: a page of the store, and what of it was asked for, at most `room`.
    async fn look(&self, search: &Search, place: &Place, room: usize) -> Result<(Page, Vec<Entry>), DeskError> {
        let mut limit = PAGE_ENTRIES_MAX;
        loop {
            let mut page = match (place.phase, search.ids()) {
                (Phase::Addresses, _) => match self.read_all(search.addresses().iter().cloned()).await? {
                    (Some(now), entries) => Page { entries, damaged: Vec::new(), next: None, now },
                    (None, _) => return Err(refused::not_found()),
                },
                (Phase::Ids, Some((first, last))) => self.store.between(&first, &last, limit).await?,
                _ => self.store.scan(&search.scan(place, limit)).await?,
            };
            let takes = |entry: &Entry| is_callers(entry) && search.takes(place.phase, entry);
            let fitting: Vec<usize> = (0..page.entries.len()).filter(|at| takes(&page.entries[*at])).collect();
            // A page of the store cannot be cut: its cursor is at its end. So a shorter one is asked for.
            if fitting.len() > room && !matches!(place.phase, Phase::Ids | Phase::Addresses) {
                limit = u32::try_from(fitting[room - 1] + 1).unwrap_or(1);
                continue;
            }
            let mut entries = std::mem::take(&mut page.entries);
            entries.retain(takes);
            entries.truncate(room);
            return Ok((page, entries));
        }
    }

    /// Everything that a filter names, up to `max` and one more.
    pub(super) async fn matches(&self, filter: &Filter, max: usize) -> Result<Vec<Chosen>, DeskError> {
        let search = self.search(filter).await?;
        let mut found = Vec::new();
        let mut place = search.start();
        while let Some(here) = place
            && found.len() <= max
        {
            let (page, entries) = self.look(&search, &here, PAGE_ENTRIES_MAX as usize).await?;
            place = search.onwards(&here, page.next, &entries);
            found.extend(entries.into_iter().map(Chosen::from));
        }
        Ok(found)
    }

    /// Where an attempt's lease has ended and nobody has noticed, because no node runs: the record as it is once that is
    /// noticed. The rules say whether it has ended. One that would run again is left to its policy.
    async fn notice_lapse(&self, entry: Entry, attempt: Option<u32>, note: &Note) -> Result<Entry, DeskError> {
        let record = &entry.stored.record;
        let is_meant = attempt.is_none_or(|attempt| attempt == record.attempt);
        if record.state != State::Running || record.policy.on_lapse != OnLapse::Unknown || !is_meant {
            return Ok(entry);
        }
        let detail = "the lease had ended, and no node had noticed".to_owned();
        let note = Note { what: "lapse".to_owned(), detail, ..note.clone() };
        let (reply, _) = self.apply(&entry.address, &Event::Lapse, &note).await?;
        Ok(match reply.seen.stored {
            Some(stored) => Entry { stored, ..entry },
            None => entry,
        })
    }

    /// Applies an event with its note, and says whether that changed anything.
    async fn apply(&self, at: &Address, event: &Event<'_>, note: &Note) -> Result<(Reply, bool), DeskError> {
        let engine = Engine::new(self.store.clone(), tokens::random as fn() -> [u8; 16]);
        let applying = engine.apply_noted(at, event, None, note);
        let reply = match self.patience {
            None => applying.await?,
            Some(patience) => timeout(patience, applying).await.map_err(|_| not_in_time())??,
        };
        let changed = reply.wrote;
        Ok((reply, changed))
    }
}

/// It may be done, or be done a moment later; said again, it changes nothing.
fn not_in_time() -> StoreError {
    let message =
        "the store did not answer in time; it may be done or not: look at the record, and say it again if not";
    StoreError::new("swap", ErrorKind::Ambiguous, message)
}

/// What a search for one record brought.
#[derive(Default)]
struct Collected {
    entries: Vec<Entry>,
    /// What could not be read meanwhile.
    damaged: Vec<Damaged>,
    /// Whether every record was looked at, or enough to say that several fit.
    complete: bool,
}

impl Collected {
    /// Without what was only observed, if something else fits: nobody is answered by that.
    fn enforced_first(mut self) -> Self {
        let is_enforced = |entry: &Entry| !lookup::is_observed(entry.address.space().as_str());
        if self.entries.iter().any(is_enforced) {
            self.entries.retain(is_enforced);
        }
        self
    }

    fn one(self) -> Result<Entry, DeskError> {
        match self.entries.is_empty() {
            true if !self.complete => Err(refused::not_found_so_far()),
            true if !self.damaged.is_empty() => Err(refused::not_found_beside(&self.damaged)),
            _ => one_of(self.enforced_first().entries),
        }
    }
}

fn is_callers(entry: &Entry) -> bool {
    entry.address.space().as_str() != SPACE
}

fn unfinished(scan: &Scan) -> Scan {
    let states = State::ALL.into_iter().filter(|state| state.is_unfinished()).collect();
    Scan { states, ..scan.clone() }
}

fn one_of(mut entries: Vec<Entry>) -> Result<Entry, DeskError> {
    if entries.len() > 1 {
        return Err(refused::several(&entries));
    }
    entries.pop().ok_or_else(refused::not_found)
}

fn page_limit(limit: u32) -> Result<u32, DeskError> {
    if (1..=PAGE_ENTRIES_MAX).contains(&limit) {
        return Ok(limit);
    }
    Err(invalid(format!("a page of {limit} cannot be asked for; ask for 1 to {PAGE_ENTRIES_MAX} and go on from there")))
}

impl Desk for Direct {
    async fn status(&self) -> Result<StatusView, DeskError> {
        let mut view = survey::status(&self.store, &self.ceiling, self.without_probe).await?;
        view.problems.extend(self.own_problems.iter().flat_map(|tell| tell()));
        view.healthy = view.problems.is_empty();
        Ok(view)
    }

    async fn list(&self, filter: &Filter, after: Option<&str>, limit: u32) -> Result<PageView, DeskError> {
        let limit = page_limit(limit)? as usize;
        let search = self.search(filter).await?;
        let mut place = match after {
            Some(text) => Some(search.read(text)?),
            None => search.start(),
        };
        let mut shown_page = PageView { records: Vec::new(), damaged: Vec::new(), next: None };
        for _ in 0..PAGES_PER_LIST_MAX {
            let room = limit - shown_page.records.len();
            let Some(here) = place.as_ref().filter(|_| room > 0) else { break };
            let (page, entries) = self.look(&search, here, room).await?;
            shown_page.add_damaged(page.damaged.iter().map(shown::damaged));
            place = search.onwards(here, page.next, &entries);
            shown_page.records.extend(entries.iter().map(|entry| shown::record(entry, page.now, false)));
        }
        shown_page.next = place.map(|place| search.write(&place));
        Ok(shown_page)
    }

    async fn show(&self, id: &str, body: bool) -> Result<RecordView, DeskError> {
        self.by_id_at(id).await.map(|(entry, now)| shown::record(&entry, now, body))
    }

    async fn resolve(&self, request: &ResolutionRequest, who: &str) -> Result<ChangeView, DeskError> {
        let said = Said::of(request)?;
        let target = Target::of(request)?;
        let mut note = said::note(who, "resolve", &request.reason, String::new())?;
        let entry = self.notice_lapse(self.locate(&target).await?, request.attempt, &note).await?;
        let answer = said.answer(&entry.stored.record);
        note.detail = said.detail(answer.as_ref());
        let event =
            Event::Resolve { resolution: said.resolution(answer.as_ref()), attempt: request.attempt, since: None };
        let (reply, changed) = self.apply(&entry.address, &event, &note).await?;
        let now = reply.seen.now;
        let stored = reply.seen.stored.ok_or_else(refused::not_found)?;
        match reply.answer {
            Answer::Done => {
                let before = if changed { entry.stored.record.state } else { stored.record.state };
                let entry = Entry { address: entry.address, stored };
                let record = shown::record(&entry, now, false);
                Ok(ChangeView { changed, before: before.name().to_owned(), record })
            }
            Answer::Stale => Err(refused::stale(&stored, request.attempt)),
            Answer::NotFound => Err(refused::not_found()),
            _ => Err(refused::resolution(entry.address.id(), &stored, now)),
        }
    }

    async fn purge(&self, request: &PurgeRequest, who: &str) -> Result<PurgeView, DeskError> {
        purging::purge(self, request, who).await
    }

    async fn audit(&self, id: Option<&str>, before: Option<u64>, limit: u32) -> Result<AuditView, DeskError> {
        let limit = page_limit(limit)?;
        let scan = NoteScan { about: None, before, limit };
        let notes = match id.map(lookup::range) {
            None => self.store.notes(&scan).await?,
            Some(Some((first, last))) if first == last => {
                self.store.notes(&NoteScan { about: Some(first), ..scan }).await?
            }
            // Not by the record: it may be gone, and its notes stay.
            Some(Some((first, last))) => self.store.notes_between(&first, &last, &scan).await?,
            Some(None) => return Err(invalid("an id has 64 hexadecimal digits; give at least its first 8")),
        };
        let next = notes.last().filter(|_| notes.len() >= limit as usize).map(|noted| noted.number);
        Ok(AuditView { notes: notes.into_iter().map(shown::note).collect(), next })
    }
}
