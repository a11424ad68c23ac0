//! Finding records: by state, due time, scope, label and text.

use std::collections::BTreeSet;

use super::harness::Harness;
use super::rig::Rig;
use super::samples::{LONG_MS, SHORT_MS, address, completed, in_state, label, running, scope_of};
use crate::address::Address;
use crate::clock::Timestamp;
use crate::record::{Label, Labels, Record, State};
use crate::store::{Due, Entry, Scan};

fn everything() -> Scan {
    Scan { limit: 100, ..Scan::default() }
}

/// The keys that a scan finds, in alphabetical order.
async fn keys<H: Harness>(rig: &Rig<'_, H>, query: Scan) -> Vec<String> {
    let mut keys: Vec<_> = rig.scan_all(&query).await.iter().map(key_of).collect();
    keys.sort();
    keys
}

fn key_of(entry: &Entry) -> String {
    entry.address.key().as_str().to_owned()
}

fn with_labels(labels: &[Label]) -> Record {
    Record { labels: labels.into(), ..completed(LONG_MS) }
}

pub(super) async fn of_an_empty_store_is_one_empty_page<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    let page = rig.page(&everything()).await;
    assert!(page.entries.is_empty() && page.damaged.is_empty());
    assert_eq!(page.next, None, "there is nothing to go on with");
    assert!(page.now.at.as_ms() > 0);
}

pub(super) async fn by_state<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    for state in State::ALL {
        rig.put(&address("alice", state.name()), &in_state(state)).await;
        rig.put(&address("bob", state.name()), &in_state(state)).await;
    }
    for state in State::ALL {
        let name = state.name();
        assert_eq!(keys(&rig, Scan { states: vec![state], ..everything() }).await, [name, name]);
    }
    let finished = Scan { states: vec![State::Completed, State::Expired], ..everything() };
    assert_eq!(keys(&rig, finished).await, ["completed", "completed", "expired", "expired"]);
    let mixed = Scan { states: vec![State::Completed, State::Running], ..everything() };
    assert_eq!(keys(&rig, mixed).await, ["completed", "completed", "running", "running"]);
    let twice = Scan { states: vec![State::Dead, State::Dead], ..everything() };
    assert_eq!(keys(&rig, twice).await, ["dead", "dead"], "naming a state twice changes nothing");
    assert_eq!(keys(&rig, everything()).await.len(), 2 * State::ALL.len(), "no state means any");
}

pub(super) async fn by_state_follows_every_write<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    let at = address("alice", "k-1");
    let mut last = running();
    rig.put(&at, &last).await;
    for from in State::ALL {
        for to in State::ALL {
            for state in [from, to] {
                let next = in_state(state);
                rig.replace(&at, last.version, &next).await;
                last = next;
            }
            for state in State::ALL {
                let found = keys(&rig, Scan { states: vec![state], ..everything() }).await;
                assert_eq!(found.len(), usize::from(state == to), "{state} after {from} became {to}");
            }
        }
    }
}

pub(super) async fn by_state_without_a_due_time<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    for state in State::ALL {
        rig.put(&address("alice", state.name()), &Record { due_in_ms: None, ..in_state(state) }).await;
    }
    for state in State::ALL {
        assert_eq!(keys(&rig, Scan { states: vec![state], ..everything() }).await, [state.name()]);
    }
    let due = Scan { due: Some(Due::By(Timestamp::from_ms(u64::MAX))), ..everything() };
    assert!(keys(&rig, due).await.is_empty(), "what has no due time is never due");
}

pub(super) async fn by_due_now_follows_the_time<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    let at = address("alice", "soon");
    rig.put(&address("alice", "now"), &Record { due_in_ms: Some(0), ..running() }).await;
    rig.put(&address("alice", "later"), &Record { due_in_ms: Some(LONG_MS), ..running() }).await;
    rig.put(&address("alice", "never"), &completed(LONG_MS)).await;
    let stamped = rig.put(&at, &Record { due_in_ms: Some(SHORT_MS), ..running() }).await;
    let due = Scan { due: Some(Due::Now), ..everything() };
    let page = rig.page(&due).await;
    if page.now.at < stamped.at.plus_ms(SHORT_MS) {
        assert_eq!(page.entries.iter().map(key_of).collect::<Vec<_>>(), ["now"]);
    }
    rig.pass_ms(SHORT_MS).await;
    assert_eq!(keys(&rig, due).await, ["now", "soon"]);
}

pub(super) async fn by_due_time_in_its_order<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    for (number, state) in State::ALL.into_iter().cycle().take(30).enumerate() {
        // Written in an order that is not that of their due times.
        let due_in_ms = Some(1_000 * ((number as u64 * 7) % 30));
        rig.put(&address("alice", &format!("k-{number:02}")), &Record { due_in_ms, ..in_state(state) }).await;
    }
    let all = rig.scan_all(&Scan { due: Some(Due::By(Timestamp::from_ms(u64::MAX))), ..everything() }).await;
    let due_at: Vec<_> = all.iter().map(|entry| entry.stored.due_at().expect("it is due")).collect();
    assert_eq!(due_at.len(), 30, "records of every state that have a due time");
    assert!(due_at.is_sorted(), "the page is in order of due time: {due_at:?}");
    let middle = due_at[14];
    let half = rig.scan_all(&Scan { due: Some(Due::By(middle)), ..everything() }).await;
    assert_eq!(half.len(), due_at.iter().filter(|at| **at <= middle).count(), "by that moment, it included");
    let before = Timestamp::from_ms(due_at[0].as_ms() - 1);
    assert!(keys(&rig, Scan { due: Some(Due::By(before)), ..everything() }).await.is_empty());
}

pub(super) async fn by_scope_exactly<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    let scopes = ["alice", "Alice", "alice ", " alice", "alice2", "alic", "al%", "a_ice", "\u{e9}", "e\u{301}", "'"];
    for scope in scopes {
        rig.put(&address(scope, "k-1"), &running()).await;
        rig.put(&address(scope, "k-2"), &completed(LONG_MS)).await;
    }
    for scope in scopes {
        let found = rig.scan_all(&Scan { scope: Some(scope_of(scope)), ..everything() }).await;
        assert!(found.iter().all(|entry| entry.address.scope().as_str() == scope), "scope {scope:?}");
        assert_eq!(found.iter().map(key_of).collect::<BTreeSet<_>>().len(), 2, "scope {scope:?}");
        assert_eq!(found.len(), 2, "scope {scope:?}");
    }
    assert!(keys(&rig, Scan { scope: Some(scope_of("nobody")), ..everything() }).await.is_empty());
}

pub(super) async fn by_label_exactly<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    rig.put(&address("alice", "both"), &with_labels(&[label("order", "o-1"), label("invoice", "i-1")])).await;
    rig.put(&address("alice", "same"), &with_labels(&[label("invoice", "i-2"), label("order", "o-1")])).await;
    rig.put(&address("alice", "swapped"), &with_labels(&[label("o-1", "order")])).await;
    rig.put(&address("alice", "crossed"), &with_labels(&[label("order", "i-1"), label("invoice", "o-1")])).await;
    rig.put(&address("alice", "longer"), &with_labels(&[label("order", "o-11"), label("order2", "o-1")])).await;
    rig.put(&address("alice", "case"), &with_labels(&[label("Order", "O-1")])).await;
    rig.put(&address("alice", "odd"), &with_labels(&[label("%", "'\"\\"), label("_", "")])).await;
    rig.put(&address("alice", "none"), &with_labels(&[])).await;
    let by = |name: &str, value: &str| Scan { label: Some(label(name, value)), ..everything() };
    assert_eq!(keys(&rig, by("order", "o-1")).await, ["both", "same"]);
    assert_eq!(keys(&rig, by("o-1", "order")).await, ["swapped"]);
    assert_eq!(keys(&rig, by("Order", "O-1")).await, ["case"]);
    assert_eq!(keys(&rig, by("%", "'\"\\")).await, ["odd"]);
    assert_eq!(keys(&rig, by("_", "")).await, ["odd"]);
    assert!(keys(&rig, by("order", "")).await.is_empty());
    assert!(keys(&rig, by("", "")).await.is_empty());
}

pub(super) async fn by_text_in_scope_or_key<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    for (scope, key) in [("tenant-7", "pay-1"), ("pay", "x-1"), ("Tenant-8", "PAY-2"), ("é 日本", "x-2"), ("y", "ab")]
    {
        rig.put(&address(scope, key), &running()).await;
    }
    let by = |text: &str| Scan { text: Some(text.to_owned()), ..everything() };
    assert_eq!(keys(&rig, by("pay")).await, ["pay-1", "x-1"], "in one or the other, and not in another case");
    assert_eq!(keys(&rig, by("-1")).await, ["pay-1", "x-1"]);
    assert_eq!(keys(&rig, by("enant")).await, ["PAY-2", "pay-1"]);
    assert_eq!(keys(&rig, by("日")).await, ["x-2"]);
    assert!(keys(&rig, by("e\u{301}")).await.is_empty(), "no normalisation");
    assert!(keys(&rig, by("ya")).await.is_empty(), "text does not run from the scope into the key");
    assert!(keys(&rig, by("tenant-7pay")).await.is_empty());
    assert_eq!(keys(&rig, by("")).await.len(), 5, "no text is in every text");
}

pub(super) async fn text_has_no_wildcards<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    let all =
        ["100%", "100x", "a_b", "axb", "a*b", "a?b", "[ab]", "a\\b", "a\\%b", "a'b", "^a", "a$", "a.b", "(a", "a|b"];
    for key in all {
        rig.put(&address("alice", key), &running()).await;
    }
    let texts = ["%", "_", "*", "?", "[", "[ab]", "\\", "\\%", "'", "^", "$", ".", "(", "|", "a_b", "100%", "%%", "__"];
    for text in texts {
        let mut expected: Vec<_> = all.into_iter().filter(|key| key.contains(text)).collect();
        expected.sort_unstable();
        assert_eq!(keys(&rig, Scan { text: Some(text.to_owned()), ..everything() }).await, expected, "text {text}");
    }
}

/// Records that differ in everything a scan can ask for.
fn shelf() -> Vec<(Address, Record)> {
    let mut shelf = Vec::new();
    for state in State::ALL {
        for (scope, word) in [("alice", "pay"), ("bob", "pay"), ("bob", "ship")] {
            for (number, due_in_ms) in [None, Some(0), Some(LONG_MS)].into_iter().enumerate() {
                let labels = if number == 1 { Labels::default() } else { [label("order", word)].into() };
                let record = Record { due_in_ms, labels, ..in_state(state) };
                shelf.push((address(scope, &format!("{word}-{state}-{number}")), record));
            }
        }
    }
    shelf
}

pub(super) async fn conditions_add_up<H: Harness>(harness: &H) {
    let rig = Rig::open(harness).await;
    // What has no due time but waits for somebody has a case of its own.
    let shelf = shelf().into_iter().filter(|(_, record)| record.due_in_ms.is_some() || !record.state.is_unfinished());
    rig.put_all(shelf.collect()).await;
    let all = rig.scan_all(&everything()).await;
    let now = rig.page(&everything()).await.now;
    let mut combinations = 0;
    for states in [vec![], vec![State::Ready], vec![State::Running, State::Dead], vec![State::Completed, State::Ready]]
    {
        for due in [None, Some(Due::Now), Some(Due::By(now.at.plus_ms(2 * LONG_MS)))] {
            for scope in [None, Some(scope_of("bob"))] {
                for label in [None, Some(label("order", "pay"))] {
                    for text in [None, Some("ship".to_owned()), Some("pay-".to_owned())] {
                        let (states, scope, label) = (states.clone(), scope.clone(), label.clone());
                        let query = Scan { states, due, scope, label, text, limit: 10, ..Scan::default() };
                        let fits = |entry: &&Entry| query.matches(&entry.address, &entry.stored, now);
                        let expected: BTreeSet<_> = all.iter().filter(fits).map(|entry| *entry.address.id()).collect();
                        let found = rig.scan_all(&query).await;
                        let ids: BTreeSet<_> = found.iter().map(|entry| *entry.address.id()).collect();
                        assert_eq!((ids, found.len()), (expected.clone(), expected.len()), "{query:?}");
                        combinations += 1;
                    }
                }
            }
        }
    }
    assert_eq!(combinations, 144);
}
