//! The operator's desk on the store: what is found, what can be said of it, what is refused, on every store.
//!
//! Records are made by the rule book itself. The commands are tested from outside, in `operate.rs`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

use std::collections::BTreeSet;
use std::sync::Arc;

use hapax::{remembered, tokens};
use hapax_core::address::{Address, AddressScheme, Key, Scope, Space};
use hapax_core::engine::Engine;
use hapax_core::fingerprint::{Fingerprinter, Fingerprints, Recipe, Request};
use hapax_core::memory::Memory;
use hapax_core::record::{AttemptId, Body, Label, Labels, Outcome, Policy};
use hapax_core::store::Store as _;
use hapax_core::transition::{Claimant, Event};
use hapax_server::desk::direct::Direct;
use hapax_server::desk::view::{AnswerRequest, Filter, PageView, PurgeRequest, ResolutionRequest};
use hapax_server::desk::{Desk, DeskError, DeskErrorKind};
use hapax_server::store::AnyStore;
use hapax_testkit::clock::FakeClock;
use hapax_testkit::postgres::{Database, Server};

/// A store with its desk, and what keeps it there.
struct Rig {
    store: AnyStore,
    desk: Direct,
    directory: tempfile::TempDir,
    _database: Option<Database>,
}

#[derive(Clone, Copy)]
enum Kept {
    Memory,
    Sqlite,
    Postgres,
}

async fn rig(kept: Kept) -> Rig {
    let directory = tempfile::tempdir().unwrap();
    let mut database = None;
    let store = match kept {
        Kept::Memory => AnyStore::Memory(Arc::new(Memory::new())),
        Kept::Sqlite => {
            let options = hapax_sqlite::Options::new(directory.path().join("hapax.db"));
            AnyStore::Sqlite(hapax_sqlite::Sqlite::open(&options).unwrap())
        }
        Kept::Postgres => {
            let fresh = Server::shared().fresh_database();
            let options = hapax_postgres::Options::new(fresh.url());
            database = Some(fresh);
            AnyStore::Postgres(hapax_postgres::Postgres::open(&options).await.unwrap())
        }
    };
    Rig { desk: Direct::new(store.clone()), store, directory, _database: database }
}

macro_rules! on_every_store {
    ($($name:ident)*) => {
        mod memory { $(#[tokio::test] async fn $name() { super::$name(super::rig(super::Kept::Memory).await).await })* }
        mod sqlite { $(#[tokio::test] async fn $name() { super::$name(super::rig(super::Kept::Sqlite).await).await })* }
        mod postgres {
            $(#[tokio::test] async fn $name() {
                hapax_testkit::needs_postgres!();
                super::$name(super::rig(super::Kept::Postgres).await).await
            })*
        }
    };
}

on_every_store! {
    anything_that_is_pasted_is_found
    a_key_is_found_letter_by_letter
    records_of_hapax_itself_never_show
    every_record_is_on_one_page
    a_cursor_is_good_for_its_own_filter_only
    bad_filters_say_what_is_accepted
    a_verdict_settles_what_is_unknown
    what_was_said_can_be_said_again_and_nothing_else
    only_what_is_uncertain_can_be_resolved
    a_stale_view_changes_nothing
    a_key_that_several_callers_have_must_be_named_with_its_scope
    what_is_enforced_goes_before_what_was_only_observed
    a_wrong_verdict_says_what_frees_its_key_and_what_does_not
    a_record_is_named_by_its_label
    a_key_alone_names_a_record_only_where_keys_are_said_to_be_unique
    a_label_is_found_although_some_key_contains_its_text
    what_is_said_is_checked_first
    a_purge_takes_away_what_it_was_shown
    an_id_is_purged_or_says_why_not
    every_change_is_in_the_audit_log
    notes_are_found_by_the_first_digits_of_an_id_that_is_gone
    the_status_counts_and_judges
}

fn address(space: &str, scope: &str, key: &str) -> Address {
    let (space, scope) = (Space::new(space).unwrap(), Scope::new(scope).unwrap());
    Address::new(&AddressScheme::default(), &space, &scope, &Key::new(key).unwrap())
}

impl Rig {
    fn engine(&self) -> Engine<AnyStore, tokens::Random> {
        Engine::new(self.store.clone(), tokens::random)
    }

    /// Claims a key; returns its fence.
    async fn claim(&self, at: &Address, labels: &[(&str, &str)]) -> AttemptId {
        let recipe = Recipe::new();
        let fingerprint = Fingerprinter::new(Request::new("POST", "/pay", b"{}"), &recipe, &[]).unwrap().current();
        let attempt_id = AttemptId::from_bytes(tokens::random());
        let labels: Labels =
            labels.iter().map(|(name, value)| Label { name: (*name).into(), value: (*value).into() }).collect();
        let event = Event::Claim {
            by: Claimant::Client,
            attempt_id,
            fingerprints: &fingerprint,
            policy: Policy::default(),
            labels: &labels,
        };
        self.engine().apply(at, &event, None).await.unwrap();
        attempt_id
    }

    async fn unknown(&self, scope: &str, key: &str, labels: &[(&str, &str)]) -> String {
        let at = address("http", scope, key);
        let attempt_id = self.claim(&at, labels).await;
        let doubt = Event::Doubt { attempt_id, error: "cut-off", probe_in_ms: 60_000 };
        self.engine().apply(&at, &doubt, None).await.unwrap();
        at.id().to_string()
    }

    async fn completed(&self, scope: &str, key: &str, labels: &[(&str, &str)]) -> String {
        let at = address("http", scope, key);
        let attempt_id = self.claim(&at, labels).await;
        let headers = vec![(b"content-type".to_vec(), b"text/plain".to_vec())];
        let outcome = Arc::new(Outcome { status: 201, headers, body: Body::Kept(b"paid".to_vec()) });
        let complete = Event::Complete { attempt_id, outcome: &outcome, labels: &Labels::default() };
        self.engine().apply(&at, &complete, None).await.unwrap();
        at.id().to_string()
    }

    /// Everything that a filter finds, page by page.
    async fn all(&self, filter: &Filter, limit: u32) -> Vec<String> {
        let mut found = Vec::new();
        let mut next: Option<String> = None;
        loop {
            let page: PageView = self.desk.list(filter, next.as_deref(), limit).await.unwrap();
            assert!(page.records.len() <= limit as usize);
            found.extend(page.records.into_iter().map(|record| record.id));
            next = page.next;
            if next.is_none() {
                return found;
            }
        }
    }

    async fn find(&self, text: &str) -> Vec<String> {
        self.all(&Filter { find: Some(text.into()), ..Filter::default() }, 100).await
    }

    async fn say(&self, request: &ResolutionRequest) -> Result<(bool, String), DeskError> {
        let change = self.desk.resolve(request, "ana").await?;
        Ok((change.changed, change.record.state))
    }
}

fn said(id: &str, verdict: &str) -> ResolutionRequest {
    ResolutionRequest {
        id: Some(id.into()),
        scope: None,
        key: None,
        label: None,
        keys_unique: false,
        verdict: verdict.into(),
        attempt: None,
        answer: None,
        reason: "the provider says so".into(),
    }
}

fn purge(id: Option<&str>, filter: Option<Filter>) -> PurgeRequest {
    let id = id.map(str::to_owned);
    PurgeRequest { id, filter, allow_rerun: false, dry_run: false, expect: None, reason: "asked to".into() }
}

fn states(names: &[&str]) -> Filter {
    Filter { states: names.iter().map(|name| (*name).to_owned()).collect(), ..Filter::default() }
}

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T, DeskError>) -> (DeskErrorKind, String) {
    let error = result.unwrap_err();
    (error.kind, error.message)
}

async fn anything_that_is_pasted_is_found(rig: Rig) {
    let unknown = rig.unknown("alice", "order-17", &[("request-id", "944d51cc9fc32cae"), ("payment", "pay_1")]).await;
    let completed = rig.completed("alice", "order-18", &[("request-id", "aaaa51cc9fc32cae")]).await;
    let other = rig.completed("bob", "b-%_'\"1", &[("payment", "pay_2")]).await;
    assert_eq!(rig.find("order-17").await, [unknown.as_str()]);
    assert_eq!(rig.find("order-18").await, [completed.as_str()]);
    assert_eq!(rig.find(" order-18\n").await, [""; 0], "blanks are a part of a key");
    assert_eq!(rig.find("order-").await, [unknown.as_str(), completed.as_str()], "what is unfinished comes first");
    assert_eq!(rig.find("bob").await, [other.as_str()]);
    assert_eq!(rig.find(&unknown).await, [unknown.as_str()]);
    assert_eq!(rig.find(&completed[..8].to_uppercase()).await, [completed.as_str()]);
    assert_eq!(rig.find("944d51cc9fc32cae").await, [unknown.as_str()], "a request id");
    assert_eq!(rig.find("aaaa51cc9fc32cae").await, [completed.as_str()]);
    assert_eq!(rig.find("pay_2").await, [other.as_str()]);
    assert_eq!(rig.find("payment=pay_1").await, [unknown.as_str()]);
    // What a person pastes is text: no wildcard, no quote.
    assert_eq!(rig.find("b-%_'\"1").await, [other.as_str()]);
    for text in ["%", "order_17", "' OR 1=1 --", "pay_", "*"] {
        let expected: &[&str] = if text == "%" { &[&other] } else { &[] };
        assert_eq!(rig.find(text).await, expected, "{text}");
    }
    let only_completed = Filter { find: Some("order-".into()), ..states(&["completed"]) };
    assert_eq!(rig.all(&only_completed, 100).await, [completed.as_str()]);
    let unknown_of_bob = Filter { scope: Some("bob".into()), ..states(&["unknown", "completed"]) };
    assert_eq!(rig.all(&unknown_of_bob, 100).await, [other.as_str()]);
    let by_label = Filter { label: Some("payment=pay_1".into()), ..Filter::default() };
    assert_eq!(rig.all(&by_label, 100).await, [unknown.as_str()]);
    let before_all = Filter { until: Some("2001-01-01".into()), ..Filter::default() };
    assert_eq!(rig.all(&before_all, 100).await, [""; 0]);
    let since = Filter { since: Some("2001-01-01T00:00:00+02:00".into()), ..Filter::default() };
    assert_eq!(rig.all(&since, 100).await.len(), 3);
}

async fn a_key_is_found_letter_by_letter(rig: Rig) {
    let unknown = rig.unknown("alice", "order-1", &[]).await;
    let longer = rig.completed("alice", "order-10", &[("order", "order-1")]).await;
    let other = rig.completed("bob", "order-1", &[]).await;
    let keyed = |key: &str, scope: Option<&str>| Filter {
        key: Some(key.into()),
        scope: scope.map(str::to_owned),
        ..Filter::default()
    };
    assert_eq!(rig.all(&keyed("order-1", Some("alice")), 100).await, [unknown.as_str()]);
    assert_eq!(rig.all(&keyed("order-1", Some("bob")), 100).await, [other.as_str()]);
    assert_eq!(rig.all(&keyed("order-1", None), 100).await, [unknown.as_str(), other.as_str()]);
    assert_eq!(rig.all(&keyed("order-10", None), 1).await, [longer.as_str()]);
    let completed = Filter { key: Some("order-1".into()), scope: Some("alice".into()), ..states(&["completed"]) };
    assert_eq!(rig.all(&completed, 100).await, [""; 0]);
    for (key, scope) in [("order-", Some("alice")), ("order-1", Some("carol")), ("Order-1", None)] {
        assert_eq!(rig.all(&keyed(key, scope), 100).await, [""; 0], "{key}");
    }
    // What says how addresses are made cannot be read: then it is done without.
    let recalled = remembered::recall(&rig.store, "addresses").await.unwrap();
    remembered::remember(&rig.store, "addresses", &recalled, "nonsense").await.unwrap().unwrap();
    assert_eq!(rig.all(&keyed("order-1", Some("alice")), 100).await, [unknown.as_str()]);
}

async fn records_of_hapax_itself_never_show(rig: Rig) {
    let recalled = remembered::recall(&rig.store, "addresses").await.unwrap();
    remembered::remember(&rig.store, "addresses", &recalled, "secret salt").await.unwrap().unwrap();
    let id = address("hapax", "server", "addresses").id().to_string();
    assert_eq!(rig.all(&Filter::default(), 10).await, [""; 0]);
    assert_eq!(rig.find("addresses").await, [""; 0]);
    assert_eq!(rig.find(&id).await, [""; 0]);
    assert_eq!(refused(rig.desk.show(&id, true).await).0, DeskErrorKind::NotFound);
    assert_eq!(refused(rig.desk.resolve(&said(&id, "happened"), "ana").await).0, DeskErrorKind::NotFound);
    assert_eq!(refused(rig.desk.purge(&purge(Some(&id), None), "ana").await).0, DeskErrorKind::NotFound);
    let all = purge(None, Some(states(&["completed"])));
    assert_eq!(rig.desk.purge(&all, "ana").await.unwrap().matched, 0);
    assert!(rig.store.get(&address("hapax", "server", "addresses")).await.unwrap().stored.is_some());
}

async fn every_record_is_on_one_page(rig: Rig) {
    let mut made = BTreeSet::new();
    for number in 0..23 {
        made.insert(match number % 3 {
            0 => rig.unknown("alice", &format!("k-{number}"), &[("order", "same")]).await,
            _ => rig.completed("alice", &format!("k-{number}"), &[("order", "same")]).await,
        });
    }
    let labelled = Filter { find: Some("same".into()), ..Filter::default() };
    let by_text = Filter { find: Some("k-".into()), ..Filter::default() };
    for filter in [&Filter::default(), &by_text, &states(&["unknown", "completed"])] {
        for limit in [1, 4, 23, 500] {
            let found = rig.all(filter, limit).await;
            assert_eq!(found.len(), 23, "{filter:?} by {limit}");
            assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), made, "{filter:?} by {limit}");
        }
    }
    // Whoever pasted something that unfinished records have is shown those; labels of finished ones are the last resort.
    assert_eq!(rig.all(&labelled, 5).await.len(), 8);
    assert_eq!(rig.all(&Filter { states: vec!["completed".into()], ..labelled }, 2).await.len(), 15);
}

async fn a_cursor_is_good_for_its_own_filter_only(rig: Rig) {
    for number in 0..3 {
        rig.unknown("alice", &format!("k-{number}"), &[]).await;
    }
    let filter = states(&["unknown"]);
    let cursor = rig.desk.list(&filter, None, 1).await.unwrap().next.unwrap();
    assert!(rig.desk.list(&filter, Some(&cursor), 1).await.is_ok());
    let mut forged: Vec<String> = ["", "x", "!!!", "AAAA", &"A".repeat(9000)].map(str::to_owned).to_vec();
    for at in 0..cursor.len() {
        let other = if &cursor[at..=at] == "A" { "B" } else { "A" };
        forged.push(format!("{}{other}{}", &cursor[..at], &cursor[at + 1..]));
    }
    for text in forged {
        let (kind, message) = refused(rig.desk.list(&filter, Some(&text), 1).await);
        assert_eq!(kind, DeskErrorKind::Invalid, "{text}");
        assert_eq!(message, "the cursor does not belong to this filter; begin again without it");
    }
    let later = Filter { since: Some("2001-01-01".into()), ..filter };
    assert!(rig.desk.list(&later, Some(&cursor), 1).await.is_ok(), "how long ago something was changes meanwhile");
    let other = rig.desk.list(&states(&["dead"]), Some(&cursor), 1).await;
    assert_eq!(refused(other).0, DeskErrorKind::Invalid);
}

async fn bad_filters_say_what_is_accepted(rig: Rig) {
    let with = |change: fn(&mut Filter)| {
        let mut filter = Filter::default();
        change(&mut filter);
        filter
    };
    for (filter, told) in [
        (states(&["lost"]), "there is no state \"lost\"; use ready, running, unknown, dead, completed, expired"),
        (with(|f| f.label = Some("pay".into())), "write name=value"),
        (with(|f| f.label = Some("=x".into())), "write name=value"),
        (with(|f| f.scope = Some("a\u{1b}b".into())), "use anything but control characters"),
        (with(|f| f.find = Some("  ".into())), "what to find has 1 to 512 characters"),
        (with(|f| f.since = Some("yesterday".into())), "`since` is not a time"),
        (with(|f| f.until = Some("2026-02-30".into())), "`until` is not a time"),
    ] {
        let (kind, message) = refused(rig.desk.list(&filter, None, 10).await);
        assert_eq!(kind, DeskErrorKind::Invalid, "{message}");
        assert!(message.contains(told), "{message}");
    }
    for limit in [0, 501, 1_000_000_000] {
        let (kind, message) = refused(rig.desk.list(&Filter::default(), None, limit).await);
        assert_eq!(kind, DeskErrorKind::Invalid);
        assert!(message.contains("ask for 1 to 500"), "{message}");
        assert_eq!(refused(rig.desk.audit(None, None, limit).await).0, DeskErrorKind::Invalid);
    }
    assert_eq!(refused(rig.desk.show("93ed900", false).await).0, DeskErrorKind::Invalid);
    assert_eq!(refused(rig.desk.show("93ed900b", false).await).0, DeskErrorKind::NotFound);
}

async fn a_verdict_settles_what_is_unknown(rig: Rig) {
    let happened = rig.unknown("alice", "k-1", &[]).await;
    let answer = AnswerRequest { status: Some(201), body: Some("{\"id\":7}".into()), ..AnswerRequest::default() };
    let request = ResolutionRequest { answer: Some(answer), ..said(&happened, "happened") };
    let change = rig.desk.resolve(&request, "ana").await.unwrap();
    assert_eq!((change.changed, change.before.as_str()), (true, "unknown"));
    assert_eq!((change.record.state.as_str(), change.record.verdict.as_deref()), ("completed", Some("happened")));
    let shown = rig.desk.show(&happened, true).await.unwrap().answer.unwrap();
    assert_eq!((shown.status, shown.body.as_deref()), (201, Some("{\"id\":7}")));
    assert_eq!(shown.headers.unwrap(), [("content-type".to_owned(), "application/json".to_owned())]);
    let without = rig.desk.show(&happened, false).await.unwrap().answer.unwrap();
    assert_eq!((without.body_bytes, without.headers, without.body), (Some(8), None, None), "only where asked for");

    let did_not = rig.unknown("alice", "k-2", &[]).await;
    assert_eq!(rig.say(&said(&did_not, "did-not-happen")).await.unwrap(), (true, "ready".to_owned()));

    let given_up = rig.unknown("alice", "k-3", &[("request-id", "r-3")]).await;
    assert_eq!(rig.say(&said(&given_up, "give-up")).await.unwrap(), (true, "completed".to_owned()));
    let shown = rig.desk.show(&given_up, true).await.unwrap().answer.unwrap();
    let document: serde_json::Value = serde_json::from_str(&shown.body.unwrap()).unwrap();
    assert_eq!((shown.status, document["type"].as_str()), (500, Some("urn:hapax:problem:given-up")));
    assert_eq!(document["request_id"].as_str(), Some("r-3"));

    let bytes = rig.unknown("alice", "k-4", &[]).await;
    let answer = AnswerRequest { body_base64: Some("/wA=".into()), ..AnswerRequest::default() };
    rig.say(&ResolutionRequest { answer: Some(answer), ..said(&bytes, "happened") }).await.unwrap();
    let shown = rig.desk.show(&bytes, true).await.unwrap().answer.unwrap();
    assert_eq!((shown.status, shown.body, shown.body_base64.as_deref()), (200, None, Some("/wA=")));
}

async fn what_was_said_can_be_said_again_and_nothing_else(rig: Rig) {
    let completed = "the record is completed: it was resolved as happened before, with the answer 200";
    let gave_up = "the record is completed: it was resolved as given-up before, with the answer 500";
    let ready = "the record is ready: it was resolved as did-not-happen before";
    for (verdict, told) in [("happened", completed), ("give-up", gave_up), ("did-not-happen", ready)] {
        let id = rig.unknown("alice", verdict, &[]).await;
        assert!(rig.say(&said(&id, verdict)).await.unwrap().0);
        assert!(!rig.say(&said(&id, verdict)).await.unwrap().0, "said twice");
        for other in ["happened", "give-up", "did-not-happen"].into_iter().filter(|other| *other != verdict) {
            let (kind, message) = refused(rig.say(&said(&id, other)).await);
            assert_eq!(kind, DeskErrorKind::Conflict, "{verdict} then {other}");
            assert!(message.starts_with(told), "{message}");
        }
        let notes = rig.desk.audit(Some(&id), None, 10).await.unwrap().notes;
        assert_eq!(notes.len(), 1, "what changed nothing leaves no note");
    }
    let id = rig.unknown("alice", "answer", &[]).await;
    rig.say(&said(&id, "happened")).await.unwrap();
    let answer = Some(AnswerRequest { status: Some(202), ..AnswerRequest::default() });
    let other_answer = ResolutionRequest { answer, ..said(&id, "happened") };
    assert_eq!(refused(rig.say(&other_answer).await).0, DeskErrorKind::Conflict, "an answer once seen never changes");
}

async fn only_what_is_uncertain_can_be_resolved(rig: Rig) {
    let running = address("http", "alice", "running");
    let attempt_id = rig.claim(&running, &[]).await;
    let id = running.id().to_string();
    let (kind, message) = refused(rig.say(&said(&id, "happened")).await);
    assert_eq!(kind, DeskErrorKind::Conflict);
    assert!(message.starts_with("the record is running, attempt 1 under a lease until 2"), "{message}");
    let fail = Event::Fail { attempt_id, error: "refused", retry_in_ms: 0, keep_ms: None };
    rig.engine().apply(&running, &fail, None).await.unwrap();
    let (kind, message) = refused(rig.say(&said(&id, "did-not-happen")).await);
    assert_eq!(kind, DeskErrorKind::Conflict);
    assert!(message.starts_with("the record is ready: its last attempt did nothing"), "{message}");
    let id = rig.completed("alice", "done", &[]).await;
    let (kind, message) = refused(rig.say(&said(&id, "give-up")).await);
    assert_eq!(kind, DeskErrorKind::Conflict);
    assert!(message.starts_with("the record is completed: its own attempt recorded the answer 201"), "{message}");
    rig.desk.purge(&purge(Some(&id), None), "ana").await.unwrap();
    let (kind, message) = refused(rig.say(&said(&id, "happened")).await);
    assert_eq!(kind, DeskErrorKind::Conflict);
    assert!(message.starts_with("the record is expired"), "{message}");
}

async fn a_stale_view_changes_nothing(rig: Rig) {
    let id = rig.unknown("alice", "k", &[]).await;
    let meant = |attempt| ResolutionRequest { attempt: Some(attempt), ..said(&id, "did-not-happen") };
    let (kind, message) = refused(rig.say(&meant(2)).await);
    assert_eq!(kind, DeskErrorKind::Conflict);
    assert_eq!(message, "the record is at attempt 1, and attempt 2 was meant: look at it again");
    assert!(rig.say(&meant(1)).await.unwrap().0);
    rig.unknown("alice", "k", &[]).await;
    assert_eq!(rig.desk.show(&id, false).await.unwrap().attempt, 2);
    assert_eq!(
        refused(rig.say(&meant(1)).await).0,
        DeskErrorKind::Conflict,
        "a late verdict never settles the next attempt"
    );
}

async fn a_key_that_several_callers_have_must_be_named_with_its_scope(rig: Rig) {
    let alice = rig.unknown("alice", "k-1", &[]).await;
    let bob = rig.completed("bob", "k-1", &[]).await;
    rig.unknown("alice", "k-12", &[]).await;
    let by_key = |key: &str, scope: Option<&str>| ResolutionRequest {
        id: None,
        key: Some(key.into()),
        scope: scope.map(str::to_owned),
        keys_unique: true,
        ..said("", "did-not-happen")
    };
    let (kind, message) = refused(rig.say(&by_key("k-1", None)).await);
    assert_eq!(kind, DeskErrorKind::Several);
    assert!(message.contains(&alice) && message.contains(&bob) && message.contains("scope alice"), "{message}");
    assert_eq!(refused(rig.say(&by_key("k-1", Some("bob"))).await).0, DeskErrorKind::Conflict);
    assert_eq!(refused(rig.say(&by_key("k-1", Some("eve"))).await).0, DeskErrorKind::NotFound);
    assert_eq!(refused(rig.say(&by_key("k", None)).await).0, DeskErrorKind::NotFound, "a part of a key is not the key");
    assert!(rig.say(&by_key("k-1", Some("alice"))).await.unwrap().0);
    assert!(rig.say(&by_key("k-12", None)).await.unwrap().0);
    // Keys that are unique per route have a space of their own.
    let per_route = address("http:0123456789abcdef0123456789abcdef", "carol", "k-2");
    let attempt_id = rig.claim(&per_route, &[]).await;
    let doubt = Event::Doubt { attempt_id, error: "cut-off", probe_in_ms: 0 };
    rig.engine().apply(&per_route, &doubt, None).await.unwrap();
    assert!(rig.say(&by_key("k-2", Some("carol"))).await.unwrap().0);
    assert!(!rig.say(&by_key("k-2", Some("carol"))).await.unwrap().0);
}

#[tokio::test]
async fn one_that_cannot_be_read_is_named_where_it_may_be_meant() {
    let rig = rig(Kept::Sqlite).await;
    rig.unknown("alice", "k-1", &[]).await;
    let bobs = rig.unknown("bob", "k-1", &[("payment", "pay_1")]).await;
    let file = rusqlite::Connection::open(rig.directory.path().join("hapax.db")).unwrap();
    file.execute("UPDATE hapax_record SET data = data || x'00' WHERE scope = 'bob'", []).unwrap();
    let by_key = |key: &str, scope: Option<&str>| ResolutionRequest {
        id: None,
        key: Some(key.into()),
        scope: scope.map(str::to_owned),
        keys_unique: true,
        ..said("", "happened")
    };
    let (kind, message) = refused(rig.say(&by_key("k-1", None)).await);
    assert_eq!((kind, message.contains(&bobs)), (DeskErrorKind::Conflict, true), "{message}");
    let (kind, message) = refused(rig.say(&by_key("k-1", Some("bob"))).await);
    assert_eq!((kind, message.contains("damaged")), (DeskErrorKind::Conflict, true), "{message}");
    let (label, scope) = (Some("payment=pay_1".into()), Some("bob".into()));
    let by_label = ResolutionRequest { id: None, scope, label, ..said("", "happened") };
    let (kind, message) = refused(rig.say(&by_label).await);
    assert_eq!((kind, message.contains(&bobs)), (DeskErrorKind::NotFound, true), "{message}");
    assert!(rig.say(&by_key("k-1", Some("alice"))).await.unwrap().0);
}

async fn what_is_enforced_goes_before_what_was_only_observed(rig: Rig) {
    let observed = address("http-observed", "alice", "k-1");
    rig.claim(&observed, &[]).await;
    let by_key = |scope: Option<&str>| ResolutionRequest {
        id: None,
        key: Some("k-1".to_owned()),
        scope: scope.map(str::to_owned),
        keys_unique: true,
        ..said("", "happened")
    };
    let (kind, message) = refused(rig.say(&by_key(None)).await);
    assert_eq!((kind, message.contains("the record is running")), (DeskErrorKind::Conflict, true), "the only one");
    let enforced = rig.unknown("alice", "k-1", &[]).await;
    assert!(rig.say(&by_key(None)).await.unwrap().0);
    assert!(!rig.say(&by_key(Some("alice"))).await.unwrap().0, "the same one");
    assert_eq!(rig.desk.show(&enforced, false).await.unwrap().state, "completed");
    let view = rig.desk.show(&observed.id().to_string(), false).await.unwrap();
    assert_eq!((view.state.as_str(), view.remark.as_deref()), ("running", Some("only observed")));
}

async fn a_wrong_verdict_says_what_frees_its_key_and_what_does_not(rig: Rig) {
    let id = rig.unknown("alice", "k-1", &[]).await;
    rig.say(&said(&id, "give-up")).await.unwrap();
    let (_, message) = refused(rig.say(&said(&id, "did-not-happen")).await);
    assert!(
        message.contains(&format!("`hapax keys purge {id} --allow-rerun` (without the flag the key stays taken)")),
        "{message}"
    );
    rig.desk.purge(&purge(Some(&id), None), "ana").await.unwrap();
    let taken = rig.desk.show(&id, false).await.unwrap();
    let until = format!("key taken until {}", taken.expires_at.unwrap());
    assert_eq!(taken.remark.unwrap(), format!("tombstone: the key stays {}", &until[4..]));
    let free_it = PurgeRequest { allow_rerun: true, ..purge(Some(&id), None) };
    for (_, message) in [refused(rig.say(&said(&id, "happened")).await), refused(rig.desk.purge(&free_it, "ana").await)]
    {
        assert!(message.contains("the record is expired") && message.contains(&until), "{message}");
    }
    let other = rig.completed("alice", "k-2", &[]).await;
    rig.desk.purge(&PurgeRequest { allow_rerun: true, ..purge(Some(&other), None) }, "ana").await.unwrap();
    let free = rig.desk.show(&other, false).await.unwrap();
    assert_eq!(free.remark.as_deref(), Some("free: the next request with the key runs"));
}

async fn a_key_alone_names_a_record_only_where_keys_are_said_to_be_unique(rig: Rig) {
    rig.unknown("alice", "k-1", &[]).await;
    let by_key = ResolutionRequest { id: None, key: Some("k-1".into()), ..said("", "happened") };
    let (kind, message) = refused(rig.say(&by_key).await);
    assert_eq!((kind, message.contains("another caller may have used the same key")), (DeskErrorKind::Invalid, true));
    let body = AnswerRequest { body: Some("p-1".into()), ..AnswerRequest::default() };
    let unique = ResolutionRequest { keys_unique: true, ..by_key };
    let (kind, message) = refused(rig.say(&ResolutionRequest { answer: Some(body), ..unique.clone() }).await);
    assert_eq!((kind, message.contains("a body is recorded for one caller only")), (DeskErrorKind::Invalid, true));
    assert!(rig.say(&unique).await.unwrap().0);
}

async fn a_record_is_named_by_its_label(rig: Rig) {
    rig.unknown("alice", "k-1", &[("payment", "pay_1")]).await;
    rig.unknown("alice", "k-2", &[("payment", "pay_2")]).await;
    rig.unknown("bob", "k-3", &[("payment", "pay_2")]).await;
    rig.unknown("alice", "k-4", &[("payment", "pay_4")]).await;
    rig.unknown("alice", "k-5", &[("payment", "pay_4")]).await;
    let by_label = |scope: Option<&str>, label: &str| ResolutionRequest {
        id: None,
        scope: scope.map(str::to_owned),
        label: Some(label.into()),
        ..said("", "happened")
    };
    let alices = |label: &str| by_label(Some("alice"), label);
    assert!(rig.say(&alices("payment=pay_1")).await.unwrap().0);
    assert!(!rig.say(&alices("payment=pay_1")).await.unwrap().0, "found again among what is completed");
    assert!(rig.say(&alices("payment=pay_2")).await.unwrap().0, "bob's is another one");
    assert_eq!(refused(rig.say(&alices("payment=pay_4")).await).0, DeskErrorKind::Several);
    assert_eq!(refused(rig.say(&alices("payment=pay_3")).await).0, DeskErrorKind::NotFound);
    assert_eq!(refused(rig.say(&by_label(Some("eve"), "payment=pay_1")).await).0, DeskErrorKind::NotFound);
    assert_eq!(refused(rig.say(&alices("pay_1")).await).0, DeskErrorKind::Invalid);
    assert_eq!(refused(rig.say(&by_label(None, "payment=pay_1")).await).0, DeskErrorKind::Invalid, "whose?");
}

async fn a_label_is_found_although_some_key_contains_its_text(rig: Rig) {
    let labelled = rig.completed("alice", "k-1", &[("order", "17")]).await;
    let longer = rig.unknown("alice", "order-17-a", &[]).await;
    let finished = rig.completed("alice", "order-17-b", &[]).await;
    for limit in [1, 10] {
        let filter = Filter { find: Some("17".into()), ..Filter::default() };
        let found: BTreeSet<_> = rig.all(&filter, limit).await.into_iter().collect();
        assert_eq!(found, BTreeSet::from([labelled.clone(), longer.clone(), finished.clone()]), "by {limit}");
    }
    // Whoever pasted a whole key meant that record.
    rig.completed("alice", "k-2", &[("order", "order-17-a")]).await;
    assert_eq!(rig.find("order-17-a").await, [longer.as_str()]);
}

async fn what_is_said_is_checked_first(rig: Rig) {
    let id = rig.unknown("alice", "k", &[]).await;
    let answer = |answer: AnswerRequest| ResolutionRequest { answer: Some(answer), ..said(&id, "happened") };
    let blank = AnswerRequest::default;
    for (request, told) in [
        (said(&id, "maybe"), "use happened, did-not-happen or give-up"),
        (ResolutionRequest { reason: " \n".into(), ..said(&id, "happened") }, "a reason is required"),
        (ResolutionRequest { reason: "x".repeat(4097), ..said(&id, "happened") }, "the reason has 4097 bytes"),
        (ResolutionRequest { reason: "a\0b".into(), ..said(&id, "happened") }, "NUL"),
        (ResolutionRequest { key: Some("k".into()), ..said(&id, "happened") }, "name the record in one way"),
        (ResolutionRequest { id: None, ..said(&id, "happened") }, "name the record in one way"),
        (
            ResolutionRequest { answer: Some(blank()), ..said(&id, "did-not-happen") },
            "what did not happen has no answer",
        ),
        (answer(AnswerRequest { status: Some(100), ..blank() }), "use 200 to 599"),
        (answer(AnswerRequest { status: Some(204), body: Some("x".into()), ..blank() }), "has no body"),
        (answer(AnswerRequest { content_type: Some("a\r\nb: c".into()), ..blank() }), "the content type"),
        (answer(AnswerRequest { body_base64: Some("*".into()), ..blank() }), "is not base64"),
        (answer(AnswerRequest { body: Some("x".into()), body_base64: Some("".into()), ..blank() }), "not both"),
        (answer(AnswerRequest { body: Some("x".repeat(8 * 1024 * 1024 + 1)), ..blank() }), "at most"),
    ] {
        let (kind, message) = refused(rig.say(&request).await);
        assert_eq!(kind, DeskErrorKind::Invalid, "{message}");
        assert!(message.contains(told), "{message}");
    }
    assert_eq!(refused(rig.desk.resolve(&said(&id, "happened"), " ").await).0, DeskErrorKind::Invalid, "nobody acts");
    assert_eq!(rig.desk.show(&id, false).await.unwrap().state, "unknown", "nothing was changed");
}

async fn a_purge_takes_away_what_it_was_shown(rig: Rig) {
    rig.completed("alice", "k-1", &[]).await;
    rig.completed("alice", "k-2", &[]).await;
    rig.unknown("alice", "k-3", &[]).await;
    rig.completed("bob", "k-4", &[]).await;
    rig.claim(&address("http", "alice", "k-5"), &[]).await;
    let alices = || Filter { scope: Some("alice".into()), ..Filter::default() };
    let dry = PurgeRequest { dry_run: true, allow_rerun: true, ..purge(None, Some(alices())) };
    let preview = rig.desk.purge(&dry, "ana").await.unwrap();
    assert_eq!((preview.matched, preview.freed, preview.tombstones, preview.left), (4, 2, 1, 1));
    assert_eq!(rig.all(&states(&["completed"]), 10).await.len(), 3, "nothing was changed");
    let expecting = |expect| PurgeRequest { dry_run: false, expect: Some(expect), ..dry.clone() };
    let (kind, message) = refused(rig.desk.purge(&expecting(3), "ana").await);
    assert_eq!((kind, message.contains("4 records match now, and 3 were expected")), (DeskErrorKind::Conflict, true));
    let done = rig.desk.purge(&expecting(4), "ana").await.unwrap();
    assert_eq!((done.matched, done.freed, done.tombstones, done.left, done.dry_run), (4, 2, 1, 1, false));
    assert_eq!(rig.all(&states(&["completed"]), 10).await.len(), 1, "bob's stays");
    // A freed key runs again; one that was unfinished stays taken.
    rig.claim(&address("http", "alice", "k-1"), &[]).await;
    assert_eq!(rig.all(&states(&["running"]), 10).await.len(), 2);
    let empty = refused(rig.desk.purge(&purge(None, Some(Filter::default())), "ana").await);
    assert_eq!((empty.0, empty.1.contains("an empty filter")), (DeskErrorKind::Invalid, true));
    assert_eq!(refused(rig.desk.purge(&purge(None, None), "ana").await).0, DeskErrorKind::Invalid);
}

async fn an_id_is_purged_or_says_why_not(rig: Rig) {
    let id = rig.completed("alice", "k-1", &[]).await;
    let done = rig.desk.purge(&purge(Some(&id[..12]), None), "ana").await.unwrap();
    assert_eq!((done.matched, done.freed, done.tombstones), (1, 0, 1), "without being told, the key stays taken");
    assert_eq!(rig.desk.show(&id, false).await.unwrap().state, "expired");
    let (kind, message) = refused(rig.desk.purge(&purge(Some(&id), None), "ana").await);
    assert_eq!((kind, message.contains("the record is expired")), (DeskErrorKind::Conflict, true));
    let running = address("http", "alice", "k-2");
    rig.claim(&running, &[]).await;
    let (kind, message) = refused(rig.desk.purge(&purge(Some(&running.id().to_string()), None), "ana").await);
    assert_eq!((kind, message.contains("the record is running")), (DeskErrorKind::Conflict, true));
    let unknown_id = "ab".repeat(32);
    assert_eq!(refused(rig.desk.purge(&purge(Some(&unknown_id), None), "ana").await).0, DeskErrorKind::NotFound);
}

async fn every_change_is_in_the_audit_log(rig: Rig) {
    let first = rig.unknown("alice", "k-1", &[]).await;
    let second = rig.completed("alice", "k-2", &[]).await;
    rig.say(&said(&first, "happened")).await.unwrap();
    rig.desk.purge(&PurgeRequest { allow_rerun: true, ..purge(Some(&second), None) }, "ben").await.unwrap();
    let audit = rig.desk.audit(None, None, 10).await.unwrap();
    assert_eq!(audit.next, None);
    let [purged, resolved] = &audit.notes[..] else { panic!("{audit:?}") };
    assert_eq!((resolved.who.as_str(), resolved.what.as_str()), ("ana", "resolve"));
    assert_eq!((resolved.before.as_deref(), resolved.after.as_deref()), (Some("unknown"), Some("completed")));
    assert_eq!((resolved.key.as_deref(), resolved.attempt), (Some("k-1"), Some(1)));
    assert_eq!(resolved.detail, "happened; answer 200 with 0 bytes");
    assert_eq!((purged.who.as_str(), purged.what.as_str(), purged.reason.as_str()), ("ben", "purge", "asked to"));
    assert_eq!(purged.detail, "the key may run again");
    let page = rig.desk.audit(None, None, 1).await.unwrap();
    assert_eq!(page.notes[0], *purged);
    assert_eq!(rig.desk.audit(None, page.next, 1).await.unwrap().notes[0], *resolved);
    assert_eq!(rig.desk.audit(Some(&first), None, 10).await.unwrap().notes, std::slice::from_ref(resolved));
    assert_eq!(rig.desk.audit(Some(&first[..8]), None, 10).await.unwrap().notes, std::slice::from_ref(resolved));
    assert_eq!(refused(rig.desk.audit(Some("k-1"), None, 10).await).0, DeskErrorKind::Invalid);
}

async fn notes_are_found_by_the_first_digits_of_an_id_that_is_gone(rig: Rig) {
    use hapax_core::journal::{About, Journal as _, Note};
    let note = |key: &str, what: &str| Note {
        who: "ana".into(),
        what: what.into(),
        about: Some(About::new(&address("http", "alice", key), 1)),
        before: None,
        after: None,
        reason: "r".into(),
        detail: String::new(),
    };
    for nth in 0..3 {
        rig.store.note(&note("gone", &format!("gone-{nth}"))).await.unwrap();
        rig.store.note(&note("other", "other")).await.unwrap();
        rig.store.note(&Note { about: None, ..note("store", "store") }).await.unwrap();
    }
    let id = address("http", "alice", "gone").id().to_string();
    let what = async |digits: &str, before: Option<u64>, limit: u32| {
        let page = rig.desk.audit(Some(digits), before, limit).await.unwrap();
        (page.notes.into_iter().map(|note| note.what).collect::<Vec<_>>(), page.next)
    };
    for digits in [&id[..8], &id[..31], &id.to_uppercase()[..63], &id] {
        assert_eq!(what(digits, None, 10).await, (vec!["gone-2".into(), "gone-1".into(), "gone-0".into()], None));
        let (first, next) = what(digits, None, 2).await;
        assert_eq!(first, ["gone-2", "gone-1"]);
        assert_eq!(what(digits, next, 2).await, (vec!["gone-0".into()], None));
    }
    let another = if id.starts_with('0') { "10000000" } else { "00000000" };
    assert_eq!(what(another, None, 10).await, (vec![], None));
    assert_eq!(refused(rig.desk.audit(Some(&id[..7]), None, 10).await).0, DeskErrorKind::Invalid);
}

async fn the_status_counts_and_judges(rig: Rig) {
    let empty = rig.desk.status().await.unwrap();
    assert_eq!((empty.healthy, empty.counts.unknown, empty.oldest_unknown_since), (true, 0, None));
    rig.unknown("alice", "k-1", &[]).await;
    rig.completed("alice", "k-2", &[]).await;
    let dead = address("http", "alice", "k-3");
    let attempt_id = rig.claim(&dead, &[]).await;
    let doubt = Event::Doubt { attempt_id, error: "cut-off", probe_in_ms: 0 };
    rig.engine().apply(&dead, &doubt, None).await.unwrap();
    let status = rig.desk.status().await.unwrap();
    assert!(status.healthy, "{:?}", status.problems);
    assert_eq!((status.counts.unknown, status.counts.dead, status.counts.capped), (2, 0, false));
    let last = Event::Inconclusive { attempt: 1, probe_in_ms: 0, probes_max: Some(1) };
    rig.engine().apply(&dead, &last, None).await.unwrap();
    let status = rig.desk.status().await.unwrap();
    assert_eq!((status.healthy, status.counts.unknown, status.counts.dead), (false, 1, 1));
    assert!(status.problems[0].starts_with("1 dead: automation gave up"), "{:?}", status.problems);
    assert!(status.oldest_unknown_since.is_some() && status.store.clock_trusted);
    if status.store.kind == "sqlite" {
        assert_eq!(status.counts.about_all, Some(3));
    }
}

#[tokio::test]
async fn a_lease_that_ended_and_nobody_noticed_is_said() {
    let clock = FakeClock::default();
    let store = AnyStore::Memory(Arc::new(Memory::with_clock(clock.clone())));
    let rig = Rig { desk: Direct::new(store.clone()), store, directory: tempfile::tempdir().unwrap(), _database: None };
    let at = address("http", "alice", "k-1");
    rig.claim(&at, &[]).await;
    let id = at.id().to_string();
    assert_eq!(rig.desk.show(&id, false).await.unwrap().remark, None);
    clock.advance_ms(Policy::default().lease_ms);
    let status = rig.desk.status().await.unwrap();
    assert_eq!((status.counts.running, status.counts.past_lease, status.healthy), (1, 1, true));
    let view = rig.desk.show(&id, false).await.unwrap();
    assert_eq!(view.remark.unwrap(), format!("lease ended {}; no node has noticed", view.due_at.unwrap()));
    let listed = rig.desk.list(&Filter::default(), None, 10).await.unwrap();
    assert!(listed.records[0].remark.as_ref().unwrap().starts_with("lease ended"));
}

#[tokio::test]
async fn the_status_judges_no_age_by_a_clock_that_is_not_trusted() {
    let clock = FakeClock::default();
    let store = AnyStore::Memory(Arc::new(Memory::with_clock(clock.clone())));
    let rig = Rig { desk: Direct::new(store.clone()), store, directory: tempfile::tempdir().unwrap(), _database: None };
    rig.unknown("alice", "unknown", &[]).await;
    rig.claim(&address("http", "alice", "running"), &[]).await;
    clock.advance_ms(3_600_000);
    let problems = rig.desk.status().await.unwrap().problems;
    assert!(problems.len() == 2 && problems[0].contains("the oldest for 60 minutes"), "{problems:?}");
    clock.step_ms(-7_200_000);
    let problems = rig.desk.status().await.unwrap().problems;
    assert!(problems.len() == 1 && problems[0].contains("does not trust its clock"), "{problems:?}");
}
