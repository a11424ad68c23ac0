//! Faults in `swap` and `get`: versions, races, replies, and what of a record is kept.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use hapax_core::address::{Address, Id, Key, Scope};
use hapax_core::memory::Memory;
use hapax_core::record::{Body, Label, Outcome, Policy, Record, Stored, Version};
use hapax_core::store::{Entry, Page, Scan, Seen, Store, StoreError, Swap};

use crate::bent::Bend;

/// Writes whatever stands there, until it is written.
pub(crate) async fn force(whole: &Memory, at: &Address, next: &Record) -> Result<Swap, StoreError> {
    let mut expect = whole.get(at).await?.version();
    loop {
        match whole.swap(at, expect, next).await? {
            Swap::Applied(now) => return Ok(Swap::Applied(now)),
            Swap::Lost(seen) => expect = seen.version(),
        }
    }
}

/// Updates by address, without looking at the version.
#[derive(Default)]
pub(crate) struct IgnoresTheVersion;

impl Bend for IgnoresTheVersion {
    async fn swap(
        &self,
        whole: &Memory,
        at: &Address,
        expect: Option<Version>,
        next: &Record,
    ) -> Result<Swap, StoreError> {
        match expect {
            Some(_) if whole.get(at).await?.stored.is_some() => force(whole, at, next).await,
            _ => whole.swap(at, expect, next).await,
        }
    }
}

/// An insert is an upsert.
#[derive(Default)]
pub(crate) struct InsertOverwrites;

impl Bend for InsertOverwrites {
    async fn swap(
        &self,
        whole: &Memory,
        at: &Address,
        expect: Option<Version>,
        next: &Record,
    ) -> Result<Swap, StoreError> {
        match expect {
            None => force(whole, at, next).await,
            Some(_) => whole.swap(at, expect, next).await,
        }
    }
}

/// Updates what is not there: a version that nobody wrote counts as a match on nothing.
#[derive(Default)]
pub(crate) struct UpdateInserts;

impl Bend for UpdateInserts {
    async fn swap(
        &self,
        whole: &Memory,
        at: &Address,
        expect: Option<Version>,
        next: &Record,
    ) -> Result<Swap, StoreError> {
        match whole.swap(at, expect, next).await? {
            Swap::Lost(seen) if seen.stored.is_none() => whole.swap(at, None, next).await,
            swap => Ok(swap),
        }
    }
}

/// Reads, compares, and writes a moment later.
#[derive(Default)]
pub(crate) struct LooksThenWrites;

impl Bend for LooksThenWrites {
    async fn swap(
        &self,
        whole: &Memory,
        at: &Address,
        expect: Option<Version>,
        next: &Record,
    ) -> Result<Swap, StoreError> {
        let seen = whole.get(at).await?;
        if seen.version() != expect {
            return Ok(Swap::Lost(seen));
        }
        tokio::task::yield_now().await;
        force(whole, at, next).await
    }
}

/// Writes a record without its answer first, and the answer a moment later.
#[derive(Default)]
pub(crate) struct WritesInTwoSteps;

impl Bend for WritesInTwoSteps {
    async fn swap(
        &self,
        whole: &Memory,
        at: &Address,
        expect: Option<Version>,
        next: &Record,
    ) -> Result<Swap, StoreError> {
        let half = Record { outcome: None, ..next.clone() };
        match whole.swap(at, expect, &half).await? {
            Swap::Applied(_) => {
                tokio::task::yield_now().await;
                whole.swap(at, Some(half.version), next).await
            }
            lost => Ok(lost),
        }
    }
}

/// Says that a swap was lost, but not to what.
#[derive(Default)]
pub(crate) struct LostWithoutTheRecord;

impl Bend for LostWithoutTheRecord {
    async fn swap(
        &self,
        whole: &Memory,
        at: &Address,
        expect: Option<Version>,
        next: &Record,
    ) -> Result<Swap, StoreError> {
        Ok(match whole.swap(at, expect, next).await? {
            Swap::Lost(seen) => Swap::Lost(Seen { stored: None, ..seen }),
            applied => applied,
        })
    }
}

/// Says that a swap was lost to the record as it was first written.
#[derive(Default)]
pub(crate) struct LostWithAStaleRecord(Mutex<HashMap<Id, Stored>>);

impl Bend for LostWithAStaleRecord {
    async fn swap(
        &self,
        whole: &Memory,
        at: &Address,
        expect: Option<Version>,
        next: &Record,
    ) -> Result<Swap, StoreError> {
        let swap = whole.swap(at, expect, next).await?;
        let mut first = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(match swap {
            Swap::Applied(now) => {
                first.entry(*at.id()).or_insert_with(|| Stored { record: next.clone(), stamped_at: now.at });
                Swap::Applied(now)
            }
            Swap::Lost(seen) => Swap::Lost(Seen { stored: first.get(at.id()).cloned(), ..seen }),
        })
    }
}

/// Reads come from a copy that is one write behind.
#[derive(Default)]
pub(crate) struct ReadsFromABehindCopy(Mutex<HashMap<Id, Option<Stored>>>);

impl Bend for ReadsFromABehindCopy {
    async fn swap(
        &self,
        whole: &Memory,
        at: &Address,
        expect: Option<Version>,
        next: &Record,
    ) -> Result<Swap, StoreError> {
        let before = whole.get(at).await?.stored;
        let swap = whole.swap(at, expect, next).await?;
        if matches!(swap, Swap::Applied(_)) {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(*at.id(), before);
        }
        Ok(swap)
    }

    async fn get(&self, whole: &Memory, at: &Address) -> Result<Seen, StoreError> {
        let seen = whole.get(at).await?;
        let behind = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(at.id()).cloned();
        Ok(Seen { stored: behind.unwrap_or_default(), ..seen })
    }
}

/// A fault that changes a record on its way in.
pub(crate) trait Garble: Default + Send + Sync + 'static {
    fn garble(record: Record, before: Option<&Record>) -> Record;
}

/// Writes what [`Garble`] makes of a record.
#[derive(Default)]
pub(crate) struct Garbles<G>(G);

impl<G: Garble> Bend for Garbles<G> {
    async fn swap(
        &self,
        whole: &Memory,
        at: &Address,
        expect: Option<Version>,
        next: &Record,
    ) -> Result<Swap, StoreError> {
        let before = whole.get(at).await?.stored.map(|stored| stored.record);
        whole.swap(at, expect, &G::garble(next.clone(), before.as_ref())).await
    }
}

fn change_outcome(record: Record, change: impl FnOnce(&mut Outcome)) -> Record {
    let Some(outcome) = &record.outcome else {
        return record;
    };
    let mut outcome = Outcome::clone(outcome);
    change(&mut outcome);
    Record { outcome: Some(Arc::new(outcome)), ..record }
}

/// Keeps header fields in a map: no order, no repeats.
#[derive(Default)]
pub(crate) struct HeadersInAMap;

impl Garble for HeadersInAMap {
    fn garble(record: Record, _: Option<&Record>) -> Record {
        change_outcome(record, |outcome| {
            let map: BTreeMap<_, _> = outcome.headers.drain(..).collect();
            outcome.headers = map.into_iter().collect();
        })
    }
}

/// Keeps header values as text.
#[derive(Default)]
pub(crate) struct HeadersAsText;

impl Garble for HeadersAsText {
    fn garble(record: Record, _: Option<&Record>) -> Record {
        change_outcome(record, |outcome| {
            for (_, value) in &mut outcome.headers {
                *value = String::from_utf8_lossy(value).trim().as_bytes().to_vec();
            }
        })
    }
}

/// Bodies end after 1 MiB.
#[derive(Default)]
pub(crate) struct BodiesCutAtOneMib;

impl Garble for BodiesCutAtOneMib {
    fn garble(record: Record, _: Option<&Record>) -> Record {
        change_outcome(record, |outcome| {
            if let Body::Kept(bytes) = &mut outcome.body {
                bytes.truncate(1 << 20);
            }
        })
    }
}

/// Bodies end at their first NUL.
#[derive(Default)]
pub(crate) struct BodiesEndAtNul;

impl Garble for BodiesEndAtNul {
    fn garble(record: Record, _: Option<&Record>) -> Record {
        change_outcome(record, |outcome| {
            if let Body::Kept(bytes) = &mut outcome.body {
                bytes.truncate(bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len()));
            }
        })
    }
}

/// An empty body is kept as none.
#[derive(Default)]
pub(crate) struct EmptyBodyIsNone;

impl Garble for EmptyBodyIsNone {
    fn garble(record: Record, _: Option<&Record>) -> Record {
        change_outcome(record, |outcome| {
            if outcome.body == Body::Kept(Vec::new()) {
                outcome.body = Body::NotKept;
            }
        })
    }
}

/// Fields that are empty in the new record stay as they were in the old one.
#[derive(Default)]
pub(crate) struct MergesRecords;

impl Garble for MergesRecords {
    fn garble(record: Record, before: Option<&Record>) -> Record {
        let Some(before) = before.cloned() else {
            return record;
        };
        Record {
            due_in_ms: record.due_in_ms.or(before.due_in_ms),
            expires_in_ms: record.expires_in_ms.or(before.expires_in_ms),
            checkpoint: record.checkpoint.or(before.checkpoint),
            request: record.request.or(before.request),
            outcome: record.outcome.or(before.outcome),
            error: record.error.or(before.error),
            verdict: record.verdict.or(before.verdict),
            ..record
        }
    }
}

/// Keeps the answer, and leaves out what only the rules need.
#[derive(Default)]
pub(crate) struct ForgetsThePolicy;

impl Garble for ForgetsThePolicy {
    fn garble(record: Record, _: Option<&Record>) -> Record {
        Record { policy: Policy::default(), checkpoint: None, request: None, verdict: None, ..record }
    }
}

/// What is empty is kept as zero.
#[derive(Default)]
pub(crate) struct NothingIsZero;

impl Garble for NothingIsZero {
    fn garble(record: Record, _: Option<&Record>) -> Record {
        let keep_expired_ms = record.policy.keep_expired_ms.or(Some(0));
        let policy = Policy { keep_expired_ms, ..record.policy };
        Record { policy, due_in_ms: record.due_in_ms.or(Some(0)), ..record }
    }
}

/// Durations are kept in 32 bits.
#[derive(Default)]
pub(crate) struct DurationsInThirtyTwoBits;

impl Garble for DurationsInThirtyTwoBits {
    fn garble(record: Record, _: Option<&Record>) -> Record {
        let short = |ms: u64| ms.min(u64::from(u32::MAX));
        let (due_in_ms, expires_in_ms) = (record.due_in_ms.map(short), record.expires_in_ms.map(short));
        Record { due_in_ms, expires_in_ms, ..record }
    }
}

/// Texts are trimmed.
#[derive(Default)]
pub(crate) struct TextsTrimmed;

impl Garble for TextsTrimmed {
    fn garble(record: Record, _: Option<&Record>) -> Record {
        let trimmed =
            |label: &Label| Label { name: label.name.trim().to_owned(), value: label.value.trim().to_owned() };
        let labels = record.labels.iter().map(trimmed).collect();
        Record { labels, error: record.error.map(|error| error.trim().to_owned()), ..record }
    }
}

/// A fault that takes one address for another.
pub(crate) trait Confuse: Default + Send + Sync + 'static {
    /// Addresses of which this is the same are taken to be the same.
    fn name(at: &Address) -> String;
}

/// The first address of each name stands for all others.
#[derive(Default)]
pub(crate) struct Confuses<C>(Mutex<HashMap<String, Address>>, C);

impl<C: Confuse> Confuses<C> {
    fn address(&self, at: &Address) -> Address {
        let mut first = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        first.entry(C::name(at)).or_insert_with(|| at.clone()).clone()
    }
}

impl<C: Confuse> Bend for Confuses<C> {
    async fn swap(
        &self,
        whole: &Memory,
        at: &Address,
        expect: Option<Version>,
        next: &Record,
    ) -> Result<Swap, StoreError> {
        whole.swap(&self.address(at), expect, next).await
    }

    async fn get(&self, whole: &Memory, at: &Address) -> Result<Seen, StoreError> {
        whole.get(&self.address(at)).await
    }
}

fn parts(at: &Address) -> [&str; 4] {
    [at.scheme().as_str(), at.space().as_str(), at.scope().as_str(), at.key().as_str()]
}

/// The parts are joined by a colon.
#[derive(Default)]
pub(crate) struct AddressJoinedByColon;

impl Confuse for AddressJoinedByColon {
    fn name(at: &Address) -> String {
        parts(at).join(":")
    }
}

/// Upper and lower case are the same.
#[derive(Default)]
pub(crate) struct CaseDoesNotCount;

impl Confuse for CaseDoesNotCount {
    fn name(at: &Address) -> String {
        format!("{:?}", parts(at).map(str::to_lowercase))
    }
}

/// Spaces around the parts do not count.
#[derive(Default)]
pub(crate) struct SpacesDoNotCount;

impl Confuse for SpacesDoNotCount {
    fn name(at: &Address) -> String {
        format!("{:?}", parts(at).map(str::trim))
    }
}

/// Only the first 200 characters count.
#[derive(Default)]
pub(crate) struct PartsCutShort;

impl Confuse for PartsCutShort {
    fn name(at: &Address) -> String {
        format!("{:?}", parts(at).map(|part| part.chars().take(200).collect::<String>()))
    }
}

/// Letters with marks and without are the same, as in a forgiving collation; what cannot be shown is left out.
#[derive(Default)]
pub(crate) struct MarksDoNotCount;

impl Confuse for MarksDoNotCount {
    fn name(at: &Address) -> String {
        let plain = |part: &str| {
            let plain =
                part.chars().filter(|c| !matches!(c, '\u{300}'..='\u{36f}' | '\u{200b}'..='\u{202e}' | '\u{feff}'));
            plain.map(|c| if c == 'é' { 'e' } else { c }).collect::<String>()
        };
        format!("{:?}", parts(at).map(plain))
    }
}

/// Escapes in a key are taken for what they spell.
#[derive(Default)]
pub(crate) struct EscapesAreRead;

impl Confuse for EscapesAreRead {
    fn name(at: &Address) -> String {
        let mut key = at.key().as_str().replace("\\\\", "\\").replace("\\'", "'").replace("''", "'");
        for nul in ["\\0", "%00", "\\u0000", "\\x00"] {
            key = key.split(nul).next().unwrap_or_default().to_owned();
        }
        format!("{} {key}", at.scope().as_str())
    }
}

/// Space and scheme are not part of the address.
#[derive(Default)]
pub(crate) struct SpaceDoesNotCount;

impl Confuse for SpaceDoesNotCount {
    fn name(at: &Address) -> String {
        format!("{:?}", [at.scope().as_str(), at.key().as_str()])
    }
}

/// Addresses come back from a scan without what is not a letter or a digit.
#[derive(Default)]
pub(crate) struct AddressesSanitised;

impl Bend for AddressesSanitised {
    async fn scan(&self, whole: &Memory, query: &Scan) -> Result<Page, StoreError> {
        let page = whole.scan(query).await?;
        let entries = page.entries.into_iter().map(|entry| Entry { address: sanitised(&entry.address), ..entry });
        Ok(Page { entries: entries.collect(), ..page })
    }
}

fn sanitised(at: &Address) -> Address {
    let plain = |part: &str| -> String {
        part.chars().map(|c| if c.is_alphanumeric() || "-_.: /".contains(c) { c } else { '.' }).collect()
    };
    let scope = Scope::new(&plain(at.scope().as_str())).expect("a scope");
    let key = Key::new(&plain(at.key().as_str())).expect("a key");
    Address::new(at.scheme(), at.space(), &scope, &key)
}
