//! Page by page: a record that nobody writes during a scan is on exactly one page, whatever else changes meanwhile.

use std::collections::BTreeMap;

use super::harness::Harness;
use super::rig::Rig;
use super::samples::{LONG_MS, address, bytes, completed, outcome, running};
use crate::address::Address;
use crate::clock::Timestamp;
use crate::limits::{BODY_BYTES_MAX, PAGE_BYTES_MAX, PAGE_ENTRIES_MAX};
use crate::record::{Body, Record};
use crate::store::{Cursor, Due, ErrorKind, Page, Scan, Store};

/// Pages after which a scan of a few hundred records is taken to go round in circles.
const PAGES_MAX: usize = 2_000;

/// Reads all pages and lets something happen after each. How often each key was seen.
async fn walk<H: Harness>(
    rig: &Rig<'_, H>,
    query: &Scan,
    mut between: impl AsyncFnMut(usize, &Page),
) -> BTreeMap<String, usize> {
    let mut seen = BTreeMap::new();
    let mut query = query.clone();
    for number in 0..PAGES_MAX {
        let page = rig.page(&query).await;
        assert!(page.entries.len() <= query.limit.clamp(1, PAGE_ENTRIES_MAX) as usize, "page {number} is too long");
        for entry in &page.entries {
            *seen.entry(entry.address.key().as_str().to_owned()).or_default() += 1;
        }
        between(number, &page).await;
        match page.next {
            Some(next) => query.after = Some(next),
            None => return seen,
        }
    }
    panic!("{query:?} did not end after {PAGES_MAX} pages");
}

fn numbered(name: &str, number: usize) -> Address {
    address("alice", &format!("{name}-{number:03}"))
}

#[track_caller]
fn assert_each_once(seen: &BTreeMap<String, usize>, name: &str, count: usize) {
    for number in 0..count {
        let key = format!("{name}-{number:03}");
        assert_eq!(seen.get(&key), Some(&1), "how often {key} was seen");
    }
}

fn by_due(limit: u32) -> Scan {
    Scan { due: Some(Due::By(Timestamp::from_ms(u64::MAX))), limit, ..Scan::default() }
}

pub(super) async fn sees_each_record_once<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    // Many share a due time, so that the time alone is not a place in the order.
    let record = |number: usize| Record { due_in_ms: Some(LONG_MS * (number as u64 % 3)), ..running() };
    rig.put_all((0..100).map(|number| (numbered("k", number), record(number))).collect()).await;
    for limit in [1, 7, 50, 100, 101] {
        for query in [Scan { limit, ..Scan::default() }, by_due(limit)] {
            let seen = walk(&rig, &query, async |_, _| {}).await;
            assert_each_once(&seen, "k", 100);
            assert_eq!(seen.len(), 100);
        }
    }
}

pub(super) async fn stable_while_records_change<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    let touched = running();
    let mut records = Vec::new();
    for number in 0..60 {
        records.push((numbered("still", number), completed(LONG_MS)));
        records.push((numbered("expired", number), completed(0)));
        records.push((numbered("touched", number), Record { version: touched.version, ..running() }));
    }
    for (at, record) in records {
        rig.put(&at, &record).await;
    }
    let seen = walk(&rig, &Scan { limit: 7, ..Scan::default() }, async |page, _| {
        rig.reap(3).await;
        for number in [page % 60, (page * 7 + 31) % 60] {
            let expect = rig.get(&numbered("touched", number)).await.version();
            rig.store.swap(&numbered("touched", number), expect, &running()).await.expect("it is answered");
        }
        if page < 100 {
            rig.put(&numbered("new", page), &running()).await;
        }
    })
    .await;
    assert_each_once(&seen, "still", 60);
    let more_than_once = seen.iter().find(|(key, times)| key.starts_with("expired") && **times > 1);
    assert_eq!(more_than_once, None, "what is deleted may be missed, but not seen twice");
}

pub(super) async fn stable_by_due_time_while_records_change<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    for number in 0..60 {
        let due_in_ms = Some(1_000 * (number as u64 % 10));
        rig.put(&numbered("still", number), &Record { due_in_ms, ..running() }).await;
        rig.put(&numbered("renewed", number), &Record { due_in_ms, ..running() }).await;
    }
    let seen = walk(&rig, &by_due(7), async |page, _| {
        // Some move behind the place of the scan, some before it, some leave the order.
        for (number, due_in_ms) in [(page % 60, Some(LONG_MS)), ((page + 20) % 60, Some(0)), ((page + 40) % 60, None)] {
            let at = numbered("renewed", number);
            let expect = rig.get(&at).await.version();
            let next = match due_in_ms {
                Some(_) => Record { due_in_ms, ..running() },
                None => completed(LONG_MS),
            };
            rig.store.swap(&at, expect, &next).await.expect("it is answered");
        }
        if page < 100 {
            rig.put(&numbered("new", page), &Record { due_in_ms: Some(500), ..running() }).await;
        }
    })
    .await;
    assert_each_once(&seen, "still", 60);
}

pub(super) async fn goes_on_where_the_last_record_was_deleted<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    for number in 0..20 {
        rig.put(&numbered("expired", number), &completed(0)).await;
        rig.put(&numbered("still", number), &completed(LONG_MS)).await;
    }
    let seen = walk(&rig, &Scan { limit: 3, ..Scan::default() }, async |page, _| {
        if page == 0 {
            assert_eq!(rig.reap(100).await, 20, "all of them have expired");
        }
    })
    .await;
    assert_each_once(&seen, "still", 20);
}

pub(super) async fn limit_of_nothing_counts_as_one<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    rig.put_all((0..5).map(|number| (numbered("k", number), running())).collect()).await;
    let seen = walk(&rig, &Scan { limit: 0, ..Scan::default() }, async |_, page| {
        assert!(page.entries.len() <= 1, "{} records on a page", page.entries.len());
    })
    .await;
    assert_each_once(&seen, "k", 5);
}

pub(super) async fn limit_has_a_limit<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    let count = PAGE_ENTRIES_MAX as usize + 3;
    rig.put_all((0..count).map(|number| (numbered("k", number), running())).collect()).await;
    for query in [Scan { limit: 1_000_000_000, ..Scan::default() }, by_due(u32::MAX)] {
        let seen = walk(&rig, &query, async |_, page| {
            assert!(page.entries.len() <= PAGE_ENTRIES_MAX as usize, "{} records on a page", page.entries.len());
        })
        .await;
        assert_each_once(&seen, "k", count);
    }
}

pub(super) async fn forged_cursor_is_invalid<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    rig.put_all((0..20).map(|number| (numbered("k", number), running())).collect()).await;
    let query = Scan { limit: 7, ..Scan::default() };
    let real = rig.page(&query).await.next.expect("there is more").as_bytes().to_vec();
    let longer = [real.as_slice(), b"x"].concat();
    let shorter = real[..real.len() - 1].to_vec();
    let forged = [Vec::new(), b"7".to_vec(), b"' OR 1=1 --".to_vec(), vec![0xff; 1 << 20], longer, shorter];
    for cursor in forged {
        let length = cursor.len();
        let query = Scan { after: Some(Cursor::from_bytes(cursor)), ..query.clone() };
        match rig.store.scan(&query).await {
            Err(error) => assert_eq!(error.kind, ErrorKind::Invalid, "{error}"),
            Ok(_) => panic!("a cursor of {length} bytes that nobody handed out was taken for one"),
        }
    }
    let query = Scan { after: Some(Cursor::from_bytes(real)), ..query };
    assert_eq!(rig.page(&query).await.entries.len(), 7, "the real one is still good");
}

pub(super) async fn page_of_large_bodies_ends_early<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    let body_bytes = BODY_BYTES_MAX / 2;
    let body = outcome(&bytes(body_bytes));
    for number in 0..7 {
        rig.put(&numbered("k", number), &Record { outcome: Some(body.clone()), ..completed(LONG_MS) }).await;
    }
    let mut pages = 0;
    let seen = walk(&rig, &Scan { limit: 100, ..Scan::default() }, async |_, page| {
        let total: usize = page.entries.iter().map(|entry| body_bytes_of(&entry.stored.record)).sum();
        assert!(total <= PAGE_BYTES_MAX + BODY_BYTES_MAX, "{total} bytes on a page");
        pages += 1;
    })
    .await;
    assert!(pages > 1, "28 MiB are more than one page");
    assert_each_once(&seen, "k", 7);
}

fn body_bytes_of(record: &Record) -> usize {
    match record.outcome.as_deref().map(|outcome| &outcome.body) {
        Some(Body::Kept(bytes)) => bytes.len(),
        _ => 0,
    }
}
