//! Faults in `scan` and `reap`, in the time, and in what a restart leaves.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use hapax_core::address::{Address, Id};
use hapax_core::clock::{ClockHealth, Now, Reading, Timestamp};
use hapax_core::limits::REAP_MAX;
use hapax_core::memory::Memory;
use hapax_core::record::{Record, State, Stored, Version};
use hapax_core::store::{Cursor, Due, Durability, Entry, ErrorKind, Health, Page, Scan, Seen, Store, StoreError, Swap};
use hapax_testkit::clock::FakeClock;

use crate::bent::Bend;
use crate::writes::force;

/// Everything that matches, whatever limits there are.
async fn all(whole: &Memory, query: &Scan) -> Result<Page, StoreError> {
    let mut page = whole.scan(&Scan { after: None, limit: u32::MAX, ..query.clone() }).await?;
    while let Some(after) = page.next.take() {
        let more = whole.scan(&Scan { after: Some(after), limit: u32::MAX, ..query.clone() }).await?;
        page.entries.extend(more.entries);
        page.next = more.next;
    }
    Ok(page)
}

/// Deletes a record, whatever it says.
async fn delete(whole: &Memory, at: &Address, stored: &Stored) -> Result<(), StoreError> {
    let policy = hapax_core::record::Policy { keep_expired_ms: None, ..stored.record.policy };
    let gone = Record { state: State::Completed, expires_in_ms: Some(0), policy, ..stored.record.clone() };
    force(whole, at, &gone).await?;
    whole.reap(REAP_MAX).await.map(|_| ())
}

/// Where there is no record, there is no time either.
#[derive(Default)]
pub(crate) struct NoTimeForNothing;

impl Bend for NoTimeForNothing {
    async fn get(&self, whole: &Memory, at: &Address) -> Result<Seen, StoreError> {
        let seen = whole.get(at).await?;
        Ok(if seen.stored.is_none() { Seen::default() } else { seen })
    }
}

/// Every page has a next one.
#[derive(Default)]
pub(crate) struct ScansNeverEnd;

impl Bend for ScansNeverEnd {
    async fn scan(&self, whole: &Memory, query: &Scan) -> Result<Page, StoreError> {
        let page = whole.scan(query).await?;
        let end = || Cursor::from_bytes(vec![0xff; 16]);
        Ok(Page { next: page.next.or_else(|| Some(end())), ..page })
    }
}

/// Of several states only the first counts.
#[derive(Default)]
pub(crate) struct OneStateAtATime;

impl Bend for OneStateAtATime {
    async fn scan(&self, whole: &Memory, query: &Scan) -> Result<Page, StoreError> {
        let states = query.states.iter().copied().take(1).collect();
        whole.scan(&Scan { states, ..query.clone() }).await
    }
}

/// All that matches is on one page.
#[derive(Default)]
pub(crate) struct NoPages;

impl Bend for NoPages {
    async fn scan(&self, whole: &Memory, query: &Scan) -> Result<Page, StoreError> {
        whole.scan(&Scan { limit: 1, ..query.clone() }).await?;
        all(whole, query).await
    }
}

/// A place in a scan is the number of records before it.
#[derive(Default)]
pub(crate) struct PagesByOffset;

impl Bend for PagesByOffset {
    async fn scan(&self, whole: &Memory, query: &Scan) -> Result<Page, StoreError> {
        let invalid = || StoreError::new("scan", ErrorKind::Invalid, "not an offset");
        let offset = match &query.after {
            Some(after) => u64::from_be_bytes(after.as_bytes().try_into().map_err(|_| invalid())?) as usize,
            None => 0,
        };
        let mut page = all(whole, query).await?;
        let limit = query.limit.clamp(1, 500) as usize;
        let next = offset + limit;
        page.next = (next < page.entries.len()).then(|| Cursor::from_bytes((next as u64).to_be_bytes().to_vec()));
        page.entries = page.entries.into_iter().skip(offset).take(limit).collect();
        Ok(page)
    }
}

/// A place in a scan is a due time alone; what shares it with the last record of a page is passed over.
#[derive(Default)]
pub(crate) struct PagesByDueTimeAlone;

impl Bend for PagesByDueTimeAlone {
    async fn scan(&self, whole: &Memory, query: &Scan) -> Result<Page, StoreError> {
        if query.due.is_none() {
            return whole.scan(query).await;
        }
        let mut page = whole.scan(query).await?;
        if let Some((next, last)) = page.next.as_mut().zip(page.entries.last()) {
            let due_ms = last.stored.due_at().map_or(0, Timestamp::as_ms);
            *next = Cursor::from_bytes([due_ms.to_be_bytes(), u64::MAX.to_be_bytes()].concat());
        }
        Ok(page)
    }
}

/// A cursor that cannot be read starts the scan again.
#[derive(Default)]
pub(crate) struct ForgivesForgedCursors;

impl Bend for ForgivesForgedCursors {
    async fn scan(&self, whole: &Memory, query: &Scan) -> Result<Page, StoreError> {
        match whole.scan(query).await {
            Err(error) if error.kind == ErrorKind::Invalid => whole.scan(&Scan { after: None, ..query.clone() }).await,
            page => page,
        }
    }
}

/// `text LIKE pattern`, as SQL has it: `%`, `_`, and no difference between upper and lower case.
fn like(text: &[char], pattern: &[char]) -> bool {
    match pattern {
        [] => text.is_empty(),
        ['%', rest @ ..] => (0..=text.len()).any(|from| like(&text[from..], rest)),
        ['_', rest @ ..] => !text.is_empty() && like(&text[1..], rest),
        [first, rest @ ..] => text.first().is_some_and(|c| c.eq_ignore_ascii_case(first)) && like(&text[1..], rest),
    }
}

/// Text is searched with LIKE.
#[derive(Default)]
pub(crate) struct TextWithWildcards;

impl Bend for TextWithWildcards {
    async fn scan(&self, whole: &Memory, query: &Scan) -> Result<Page, StoreError> {
        let mut page = whole.scan(&Scan { text: None, ..query.clone() }).await?;
        if let Some(text) = &query.text {
            let pattern: Vec<_> = format!("%{text}%").chars().collect();
            let fits = |part: &str| like(&part.chars().collect::<Vec<_>>(), &pattern);
            page.entries.retain(|entry| fits(entry.address.scope().as_str()) || fits(entry.address.key().as_str()));
        }
        Ok(page)
    }
}

/// Conditions are alternatives: scope or label is enough.
#[derive(Default)]
pub(crate) struct AnyConditionWillDo;

impl Bend for AnyConditionWillDo {
    async fn scan(&self, whole: &Memory, query: &Scan) -> Result<Page, StoreError> {
        match (&query.scope, &query.label) {
            (Some(_), Some(_)) => whole.scan(&Scan { label: None, ..query.clone() }).await,
            _ => whole.scan(query).await,
        }
    }
}

/// A scope is found by how it begins, a label by its value.
#[derive(Default)]
pub(crate) struct FindsWhatIsAlike;

impl Bend for FindsWhatIsAlike {
    async fn scan(&self, whole: &Memory, query: &Scan) -> Result<Page, StoreError> {
        let mut page = whole.scan(&Scan { scope: None, label: None, ..query.clone() }).await?;
        page.entries.retain(|entry| {
            let label = |value: &str| entry.stored.record.labels.iter().any(|label| label.value == value);
            query.scope.as_ref().is_none_or(|scope| entry.address.scope().as_str().starts_with(scope.as_str()))
                && query.label.as_ref().is_none_or(|wanted| label(&wanted.value))
        });
        Ok(page)
    }
}

/// The states that a scan knows are those of the first write.
#[derive(Default)]
pub(crate) struct IndexIsNotUpdated(Mutex<HashMap<Id, State>>);

impl Bend for IndexIsNotUpdated {
    async fn swap(
        &self,
        whole: &Memory,
        at: &Address,
        expect: Option<Version>,
        next: &Record,
    ) -> Result<Swap, StoreError> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(*at.id()).or_insert(next.state);
        whole.swap(at, expect, next).await
    }

    async fn scan(&self, whole: &Memory, query: &Scan) -> Result<Page, StoreError> {
        let mut page = whole.scan(&Scan { states: Vec::new(), ..query.clone() }).await?;
        let states = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let state = |entry: &Entry| states.get(entry.address.id()).copied().unwrap_or(entry.stored.record.state);
        page.entries.retain(|entry| query.states.is_empty() || query.states.contains(&state(entry)));
        Ok(page)
    }
}

/// Due records come in the order in which they were written, those with no due time among them.
#[derive(Default)]
pub(crate) struct DueInNoOrder;

impl Bend for DueInNoOrder {
    async fn scan(&self, whole: &Memory, query: &Scan) -> Result<Page, StoreError> {
        let mut page = whole.scan(&Scan { due: None, ..query.clone() }).await?;
        let by = query.due.map(|due| due.by(page.now));
        page.entries.retain(|entry| by.is_none_or(|by| entry.stored.due_at().is_none_or(|due_at| due_at <= by)));
        Ok(page)
    }
}

/// Whatever is due counts as due, trusted clock or not.
#[derive(Default)]
pub(crate) struct DueInSpiteOfThePause;

impl Bend for DueInSpiteOfThePause {
    async fn scan(&self, whole: &Memory, query: &Scan) -> Result<Page, StoreError> {
        let now = whole.scan(&Scan { limit: 1, ..Scan::default() }).await?.now.at;
        let due = query.due.map(|due| if due == Due::Now { Due::By(now) } else { due });
        whole.scan(&Scan { due, ..query.clone() }).await
    }
}

/// Deletes whatever has passed its due time.
#[derive(Default)]
pub(crate) struct ReapsRunning;

impl Bend for ReapsRunning {
    async fn reap(&self, whole: &Memory, limit: u32) -> Result<u32, StoreError> {
        let states = vec![State::Running, State::Unknown, State::Dead];
        let due = whole.scan(&Scan { states, due: Some(Due::Now), limit, ..Scan::default() }).await?;
        for entry in &due.entries {
            delete(whole, &entry.address, &entry.stored).await?;
        }
        Ok(due.entries.len() as u32 + whole.reap(limit).await?)
    }
}

/// Deletes expired records before they became tombstones.
#[derive(Default)]
pub(crate) struct ReapsBeforeTheTombstone;

impl Bend for ReapsBeforeTheTombstone {
    async fn reap(&self, whole: &Memory, limit: u32) -> Result<u32, StoreError> {
        let page = all(whole, &Scan { states: vec![State::Completed], ..Scan::default() }).await?;
        let past = |entry: &&Entry| entry.stored.expires_at().is_some_and(|at| page.now.has_reached(at));
        let expired: Vec<_> = page.entries.iter().filter(past).take(limit as usize).collect();
        for entry in &expired {
            delete(whole, &entry.address, &entry.stored).await?;
        }
        Ok(expired.len() as u32 + whole.reap(limit).await?)
    }
}

/// Deletes all that has expired, however few are asked for.
#[derive(Default)]
pub(crate) struct ReapIgnoresTheLimit;

impl Bend for ReapIgnoresTheLimit {
    async fn reap(&self, whole: &Memory, _: u32) -> Result<u32, StoreError> {
        whole.reap(REAP_MAX).await
    }
}

/// Makes a list of what has expired and deletes it a moment later, whatever was written meanwhile; newest first.
#[derive(Default)]
pub(crate) struct ReapsByAnOldList;

impl Bend for ReapsByAnOldList {
    async fn reap(&self, whole: &Memory, limit: u32) -> Result<u32, StoreError> {
        let page = all(whole, &Scan::default()).await?;
        let past = |entry: &&Entry| entry.stored.reap_at().is_some_and(|at| page.now.has_reached(at));
        let mut expired: Vec<_> = page.entries.iter().filter(past).collect();
        expired.sort_by_key(|entry| std::cmp::Reverse(entry.stored.reap_at()));
        expired.truncate(limit as usize);
        tokio::task::yield_now().await;
        let mut deleted = 0;
        for entry in &expired {
            tokio::task::yield_now().await;
            delete_one(whole, entry).await?;
            deleted += 1;
        }
        Ok(deleted)
    }
}

/// Deletes this record and no other: what else has expired is kept back meanwhile by a longer life.
async fn delete_one(whole: &Memory, doomed: &Entry) -> Result<(), StoreError> {
    let page = all(whole, &Scan::default()).await?;
    let others = page.entries.iter().filter(|entry| entry.address != doomed.address);
    let expired: Vec<_> = others.filter(|entry| entry.stored.reap_at().is_some_and(|at| at <= page.now.at)).collect();
    for entry in &expired {
        let kept = Record { expires_in_ms: Some(u64::MAX), ..entry.stored.record.clone() };
        whole.swap(&entry.address, Some(kept.version), &kept).await?;
    }
    delete(whole, &doomed.address, &doomed.stored).await?;
    for entry in &expired {
        whole.swap(&entry.address, Some(entry.stored.record.version), &entry.stored.record).await?;
    }
    Ok(())
}

/// Follows the wall clock wherever it is set.
#[derive(Default)]
pub(crate) struct FollowsTheWallClock;

impl Bend for FollowsTheWallClock {
    fn read(&self, reading: Reading) -> Reading {
        Reading { boot_ms: reading.wall_ms, ..reading }
    }
}

/// Notices steps, but goes on as if nothing had happened.
#[derive(Default)]
pub(crate) struct NeverPauses;

fn unpaused(now: Now) -> Now {
    Now { paused: false, ..now }
}

impl Bend for NeverPauses {
    async fn swap(
        &self,
        whole: &Memory,
        at: &Address,
        expect: Option<Version>,
        next: &Record,
    ) -> Result<Swap, StoreError> {
        Ok(match whole.swap(at, expect, next).await? {
            Swap::Applied(now) => Swap::Applied(unpaused(now)),
            Swap::Lost(seen) => Swap::Lost(Seen { now: unpaused(seen.now), ..seen }),
        })
    }

    async fn get(&self, whole: &Memory, at: &Address) -> Result<Seen, StoreError> {
        let seen = whole.get(at).await?;
        Ok(Seen { now: unpaused(seen.now), ..seen })
    }

    async fn health(&self, whole: &Memory) -> Result<Health, StoreError> {
        Ok(Health { clock: ClockHealth::default(), ..whole.health().await? })
    }
}

/// Every moment is the same.
#[derive(Default)]
pub(crate) struct StampsAConstant;

impl StampsAConstant {
    const ALWAYS: Now = Now { at: Timestamp::from_ms(1_700_000_000_000), paused: false };

    fn seen(seen: Seen) -> Seen {
        let stored = seen.stored.map(|stored| Stored { stamped_at: Self::ALWAYS.at, ..stored });
        Seen { stored, now: Self::ALWAYS }
    }
}

impl Bend for StampsAConstant {
    async fn swap(
        &self,
        whole: &Memory,
        at: &Address,
        expect: Option<Version>,
        next: &Record,
    ) -> Result<Swap, StoreError> {
        Ok(match whole.swap(at, expect, next).await? {
            Swap::Applied(_) => Swap::Applied(Self::ALWAYS),
            Swap::Lost(seen) => Swap::Lost(Self::seen(seen)),
        })
    }

    async fn get(&self, whole: &Memory, at: &Address) -> Result<Seen, StoreError> {
        whole.get(at).await.map(Self::seen)
    }
}

/// Says that records survive on disk, and loses them when it is restarted.
#[derive(Default)]
pub(crate) struct ForgetsOnRestart;

impl Bend for ForgetsOnRestart {
    fn restart(&self, clock: FakeClock) -> Option<Memory> {
        Some(Memory::with_clock(clock))
    }

    async fn health(&self, whole: &Memory) -> Result<Health, StoreError> {
        Ok(Health { durability: Durability::Disk, ..whole.health().await? })
    }
}

/// Says that records survive on disk, and cannot be restarted at all.
#[derive(Default)]
pub(crate) struct PromisesADisk;

impl Bend for PromisesADisk {
    async fn health(&self, whole: &Memory) -> Result<Health, StoreError> {
        Ok(Health { durability: Durability::Disk, ..whole.health().await? })
    }
}
