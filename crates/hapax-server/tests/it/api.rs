//! The admin API of a running node, on either store: every endpoint, every role, and what must not work.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

pub(crate) mod setup;

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::node::{self, Kept, on_both_stores};
use hapax_testkit::ledger::Behaviour;
use hapax_testkit::raw_http::request;
use hapax_testkit::wait::until;
use hapax_testkit::{clients, needs_clients};
use serde_json::{Value, json};
use setup::{Desk, OPERATOR, VIEWER, audited, key_of, order, page, pay, start, start_with};

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

on_both_stores! {
    status_counts_what_needs_looking_at
    records_are_listed_by_state_scope_label_time_and_anything_pasted
    pages_go_on_where_the_page_before_ended
    a_forged_cursor_is_refused_and_so_is_one_of_another_filter
    a_filter_is_text_whatever_it_looks_like
    headers_and_body_are_shown_on_request_to_operators_only
    what_happened_is_replayed_to_the_retry
    what_did_not_happen_runs_again
    what_was_given_up_is_a_failure_for_good
    said_again_it_changes_nothing_and_said_otherwise_it_is_a_conflict
    only_what_is_uncertain_can_be_resolved
    a_stale_view_resolves_nothing
    a_record_is_named_by_id_by_scope_and_key_or_by_label
    an_unknown_record_is_not_found
    a_purge_frees_a_completed_key_only_where_that_is_said
    a_purge_by_filter_is_counted_first
    a_purge_by_what_a_caller_wrote_needs_the_scope
    who_did_what_is_written_down
    a_viewer_changes_nothing
}

fn status_counts_what_needs_looking_at(kept: Kept) {
    let desk = start(kept);
    let before = desk.get("/v1/status");
    assert_eq!(before.status, 200);
    let before = before.json();
    assert_eq!((&before["healthy"], &before["counts"]["unknown"]), (&json!(true), &json!(0)), "{before}");
    let kind = if kept == Kept::Sqlite { "sqlite" } else { "postgres" };
    assert_eq!(before["store"]["kind"], kind);
    desk.unknown("k-1");
    desk.completed("k-2");
    let after = desk.get("/v1/status").json();
    assert_eq!(after["counts"]["unknown"], 1, "{after}");
    assert!(after["oldest_unknown_since"].is_string(), "{after}");
}

fn records_are_listed_by_state_scope_label_time_and_anything_pasted(kept: Kept) {
    let desk = start(kept);
    let id = desk.unknown("k-unknown");
    desk.completed("k-completed");
    desk.ready("k-ready");
    let keys = |query: &str| {
        let mut keys: Vec<String> = page(&desk.get(&format!("/v1/keys{query}"))).iter().map(key_of).collect();
        keys.sort();
        keys
    };
    assert_eq!(keys(""), ["k-completed", "k-ready", "k-unknown"]);
    assert_eq!(keys("?state=unknown"), ["k-unknown"]);
    assert_eq!(keys("?state=unknown&state=ready"), ["k-ready", "k-unknown"]);
    assert_eq!(keys("?state=running"), [""; 0]);
    let record = desk.get(&format!("/v1/keys/{id}")).json();
    let scope = record["scope"].as_str().unwrap().to_owned();
    assert_eq!(keys(&format!("?scope={}&state=completed", scope.replace(':', "%3A"))), ["k-completed"]);
    assert_eq!(keys("?scope=somebody-else"), [""; 0]);
    assert_eq!(record["labels"]["order"], "o-k-unknown", "it is recorded with the claim");
    assert_eq!(keys("?label=order%3Do-k-unknown"), ["k-unknown"]);
    for pasted in ["k-unknown", &id, &id[..12], "o-k-unknown"] {
        assert_eq!(keys(&format!("?find={pasted}")), ["k-unknown"], "{pasted}");
    }
    assert_eq!(keys("?since=2020-01-01T00:00:00Z&state=unknown"), ["k-unknown"]);
    assert_eq!(keys("?until=2020-01-01T00:00:00Z"), [""; 0]);
}

fn pages_go_on_where_the_page_before_ended(kept: Kept) {
    let desk = start(kept);
    for nth in 0..7 {
        desk.completed(&format!("k-{nth}"));
    }
    let (mut seen, mut after) = (Vec::new(), String::new());
    for _ in 0..20 {
        let answer = desk.get(&format!("/v1/keys?limit=3{after}"));
        let records = page(&answer);
        assert!(records.len() <= 3);
        seen.extend(records.iter().map(key_of));
        match answer.json()["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    seen.sort();
    assert_eq!(seen, (0..7).map(|nth| format!("k-{nth}")).collect::<Vec<_>>(), "each once");
}

fn a_forged_cursor_is_refused_and_so_is_one_of_another_filter(kept: Kept) {
    let desk = start(kept);
    for nth in 0..3 {
        desk.completed(&format!("k-{nth}"));
    }
    let next = desk.get("/v1/keys?limit=1").json()["next"].as_str().expect("there is more").to_owned();
    let mut forged = next.clone().into_bytes();
    forged[4] = if forged[4] == b'A' { b'B' } else { b'A' };
    let forged = String::from_utf8(forged).unwrap();
    for target in [
        format!("/v1/keys?after={forged}"),
        format!("/v1/keys?after={}", &next[1..]),
        "/v1/keys?after=AAAA".to_owned(),
        "/v1/keys?after=%27%20OR%201=1".to_owned(),
        format!("/v1/keys?after={}", "A".repeat(4000)),
        format!("/v1/keys?state=unknown&after={next}"),
    ] {
        desk.refused(&target, 400);
    }
    assert_eq!(desk.get(&format!("/v1/keys?limit=1&after={next}")).status, 200);
}

fn a_filter_is_text_whatever_it_looks_like(kept: Kept) {
    let desk = start(kept);
    desk.completed("k-1");
    for text in ["%27%20OR%20%271%27=%271", "%25", "_", "%5C", "%22%5D%7D", "x%27;DROP%20TABLE%20record;--"] {
        for name in ["scope", "find"] {
            assert_eq!(page(&desk.get(&format!("/v1/keys?{name}={text}"))).len(), 0, "{name}={text}");
        }
        assert_eq!(page(&desk.get(&format!("/v1/keys?label=a%3D{text}"))).len(), 0, "{text}");
    }
    assert_eq!(page(&desk.get("/v1/keys")).len(), 1, "everything is still there");
}

fn headers_and_body_are_shown_on_request_to_operators_only(kept: Kept) {
    let desk = start(kept);
    let id = desk.completed("k-1");
    let plain = desk.get(&format!("/v1/keys/{id}")).json();
    assert_eq!((&plain["answer"]["body"], &plain["answer"]["headers"]), (&Value::Null, &Value::Null), "{plain}");
    assert!(plain["answer"]["body_bytes"].as_u64().unwrap() > 0);
    let whole = desk.get(&format!("/v1/keys/{id}?body=true")).json();
    assert!(whole["answer"]["body"].as_str().unwrap().contains("k-1"), "{whole}");
    assert!(whole["answer"]["headers"].as_array().is_some_and(|fields| !fields.is_empty()), "{whole}");
    let viewer = desk.as_viewer(&request("GET", &format!("/v1/keys/{id}?body=true")));
    assert_eq!(viewer.status, 403, "{}", viewer.text());
    assert_eq!(desk.as_viewer(&request("GET", &format!("/v1/keys/{id}?body=false"))).status, 200);
    desk.refused(&format!("/v1/keys/{id}?body=yes"), 400);
}

fn what_happened_is_replayed_to_the_retry(kept: Kept) {
    let desk = start(kept);
    let id = desk.unknown("k-1");
    let answer = json!({ "status": 201, "body": "{\"payment\":\"p-1\"}" });
    let said = json!({ "id": id, "verdict": "happened", "answer": answer, "reason": "the provider's page shows it" });
    let change = desk.post("/v1/resolutions", &said);
    assert_eq!(change.status, 200, "{}", change.text());
    let change = change.json();
    assert_eq!((&change["changed"], &change["before"]), (&json!(true), &json!("unknown")), "{change}");
    assert_eq!(change["record"]["state"], "completed");
    let retry = desk.node.send(&pay("k-1"));
    assert_eq!((retry.status, retry.text().as_str(), retry.is_replay()), (201, "{\"payment\":\"p-1\"}", true));
    desk.node.ledger.assert_once("k-1");
}

fn what_did_not_happen_runs_again(kept: Kept) {
    let desk = start(kept);
    let id = desk.unknown("k-1");
    let said = json!({ "id": id, "verdict": "did-not-happen", "reason": "the provider has no such payment" });
    assert_eq!(desk.post("/v1/resolutions", &said).json()["record"]["state"], "ready");
    assert_eq!(desk.node.send(&pay("k-1")).status, 201);
    assert_eq!(desk.node.ledger.executions("k-1").len(), 2, "the lost one, and the one that a person allowed");
}

fn what_was_given_up_is_a_failure_for_good(kept: Kept) {
    let desk = start(kept);
    let id = desk.unknown("k-1");
    let said = json!({ "id": id, "verdict": "give-up", "reason": "nobody will ever know" });
    assert_eq!(desk.post("/v1/resolutions", &said).json()["record"]["state"], "completed");
    let retry = desk.node.send(&pay("k-1"));
    assert_eq!((retry.status, retry.is_replay()), (500, true), "{}", retry.text());
    desk.node.ledger.assert_once("k-1");
}

fn said_again_it_changes_nothing_and_said_otherwise_it_is_a_conflict(kept: Kept) {
    let desk = start(kept);
    let id = desk.unknown("k-1");
    let said = json!({ "id": id, "verdict": "happened", "reason": "webhook" });
    assert_eq!(desk.post("/v1/resolutions", &said).json()["changed"], true);
    let again = desk.post("/v1/resolutions", &said);
    assert_eq!((again.status, &again.json()["changed"]), (200, &json!(false)), "{}", again.text());
    let other = json!({ "id": id, "verdict": "did-not-happen", "reason": "a script disagrees" });
    let refusal = desk.post("/v1/resolutions", &other);
    assert_eq!((refusal.status, &refusal.json()["kind"]), (409, &json!("conflict")), "{}", refusal.text());
    assert!(refusal.json()["detail"].as_str().unwrap().contains("completed"), "{}", refusal.text());
    assert_eq!(audited(&desk).len(), 1, "one change, one note");
}

fn only_what_is_uncertain_can_be_resolved(kept: Kept) {
    let desk = start(kept);
    let (ready, completed) = (desk.ready("k-ready"), desk.completed("k-completed"));
    desk.node.ledger.hold("k-running");
    thread::scope(|scope| {
        let running = scope.spawn(|| desk.node.send(&pay("k-running")));
        desk.node.ledger.wait_until_received("k-running");
        let held = desk.id_of("k-running");
        for (id, state) in [(&ready, "ready"), (&completed, "completed"), (&held, "running")] {
            for verdict in ["happened", "did-not-happen", "give-up"] {
                let said = json!({ "id": id, "verdict": verdict, "reason": "a mistake" });
                let refusal = desk.post("/v1/resolutions", &said);
                assert_eq!(refusal.status, 409, "{state} {verdict}: {}", refusal.text());
                assert!(refusal.json()["detail"].as_str().unwrap().contains(state), "{state}: {}", refusal.text());
            }
        }
        desk.node.ledger.release("k-running");
        assert_eq!(running.join().unwrap().status, 201);
    });
    assert_eq!(audited(&desk).len(), 0, "nothing was changed");
}

fn a_stale_view_resolves_nothing(kept: Kept) {
    let desk = start(kept);
    let id = desk.unknown("k-1");
    let said = |attempt: u32| json!({ "id": id, "verdict": "happened", "attempt": attempt, "reason": "webhook" });
    assert_eq!(desk.post("/v1/resolutions", &said(7)).status, 409);
    assert_eq!(desk.get(&format!("/v1/keys/{id}")).json()["state"], "unknown");
    assert_eq!(desk.post("/v1/resolutions", &said(1)).json()["changed"], true);
}

fn a_record_is_named_by_id_by_scope_and_key_or_by_label(kept: Kept) {
    let desk = start(kept);
    let ids: Vec<String> = (0..3).map(|nth| desk.unknown(&format!("k-{nth}"))).collect();
    let record = desk.get(&format!("/v1/keys/{}", ids[0])).json();
    let named = [
        json!({ "scope": record["scope"], "key": "k-0" }),
        json!({ "key": "k-1", "keys_unique": true }),
        json!({ "scope": record["scope"], "label": "order=o-k-2" }),
    ];
    for (nth, mut said) in named.into_iter().enumerate() {
        said["verdict"] = json!("happened");
        said["reason"] = json!("webhook");
        let change = desk.post("/v1/resolutions", &said);
        assert_eq!((change.status, &change.json()["record"]["id"]), (200, &json!(ids[nth])), "{}", change.text());
    }
    // Somebody else's key of the same name.
    desk.node.ledger.next("*", Behaviour::Drop);
    desk.node.ledger.next("*", Behaviour::Drop);
    for caller in ["bob", "carol"] {
        let other = request("POST", "/payments").header("Authorization", &format!("Bearer {caller}-secret"));
        assert_eq!(desk.node.send(&other.header("Idempotency-Key", "shared").body("{}")).status, 504);
    }
    let shared = json!({ "key": "shared", "keys_unique": true, "verdict": "happened", "reason": "x" });
    let several = desk.post("/v1/resolutions", &shared);
    assert_eq!((several.status, &several.json()["kind"]), (409, &json!("several")), "{}", several.text());
}

fn an_unknown_record_is_not_found(kept: Kept) {
    let desk = start(kept);
    let id = "ab".repeat(32);
    assert_eq!(desk.get(&format!("/v1/keys/{id}")).status, 404);
    for named in [
        json!({ "id": id }),
        json!({ "scope": "h:acme", "key": "nobody's" }),
        json!({ "key": "nobody's", "keys_unique": true }),
        json!({ "scope": "h:acme", "label": "order=4711" }),
    ] {
        let mut said = named.clone();
        said["verdict"] = json!("happened");
        said["reason"] = json!("webhook");
        let refusal = desk.post("/v1/resolutions", &said);
        assert_eq!(
            (refusal.status, &refusal.json()["kind"]),
            (404, &json!("not-found")),
            "{named}: {}",
            refusal.text()
        );
    }
    for id in ["x", "%27", "AB", "..%2f..%2flivez"] {
        desk.refused(&format!("/v1/keys/{id}"), 400);
    }
}

fn a_purge_frees_a_completed_key_only_where_that_is_said(kept: Kept) {
    let desk = start(kept);
    let id = desk.completed("k-1");
    let count = json!({ "id": id, "dry_run": true, "reason": "look first" });
    let counted = desk.post("/v1/keys/purge", &count).json();
    assert_eq!((&counted["matched"], &counted["dry_run"]), (&json!(1), &json!(true)), "{counted}");
    let quiet = desk.post("/v1/keys/purge", &json!({ "id": id, "reason": "wrong amount" }));
    assert_eq!(quiet.json()["freed"].as_u64().unwrap_or(0), 0, "{}", quiet.text());
    let free = desk.completed("k-2");
    let loud = json!({ "id": free, "allow_rerun": true, "reason": "wrong amount" });
    let purged = desk.post("/v1/keys/purge", &loud);
    assert_eq!((purged.status, &purged.json()["freed"]), (200, &json!(1)), "{}", purged.text());
    assert_eq!(desk.node.send(&pay("k-2")).status, 201);
    assert_eq!(desk.node.ledger.executions("k-2").len(), 2);
    desk.node.send(&pay("k-1"));
    desk.node.ledger.assert_once("k-1");
}

fn a_purge_by_filter_is_counted_first(kept: Kept) {
    let desk = start(kept);
    for nth in 0..4 {
        desk.completed(&format!("k-{nth}"));
    }
    let purge = |extra: Value| {
        let mut said = json!({ "filter": { "states": ["completed"] }, "allow_rerun": true, "reason": "test data" });
        said.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        desk.post("/v1/keys/purge", &said)
    };
    assert_eq!(purge(json!({ "dry_run": true })).json()["matched"], 4);
    let fewer = purge(json!({ "expect": 3 }));
    assert_eq!(fewer.status, 409, "{}", fewer.text());
    assert_eq!(page(&desk.get("/v1/keys?state=completed")).len(), 4, "nothing was changed");
    assert_eq!(purge(json!({ "expect": 4 })).json()["freed"], 4);
    assert_eq!(page(&desk.get("/v1/keys?state=completed")).len(), 0);
}

fn a_purge_by_what_a_caller_wrote_needs_the_scope(kept: Kept) {
    let desk = start(kept);
    let id = desk.completed("k-1");
    // Mallory writes alice's order into a body of her own.
    let other = request("POST", "/payments").header("Authorization", "Bearer mallory-secret");
    let other = other.header("Idempotency-Key", "m-1").body("{\"order\":\"o-k-1\"}");
    assert_eq!(desk.node.send(&other).status, 201);
    let purge = |filter: &Value, dry_run: bool| {
        let said = json!({ "filter": filter, "allow_rerun": true, "dry_run": dry_run, "reason": "wrong amount" });
        desk.post("/v1/keys/purge", &said)
    };
    let (label, found) = (json!({ "label": "order=o-k-1" }), json!({ "find": "k-1", "states": ["completed"] }));
    for filter in [&label, &found] {
        for dry_run in [true, false] {
            let refusal = purge(filter, dry_run);
            assert_eq!((refusal.status, &refusal.json()["kind"]), (400, &json!("invalid")), "{}", refusal.text());
            let detail = refusal.json()["detail"].as_str().unwrap().to_owned();
            assert!(detail.contains("name the record by its `id`") && detail.contains("add its `scope`"), "{detail}");
        }
    }
    assert_eq!(page(&desk.get("/v1/keys?state=completed")).len(), 2, "nothing was changed");
    let scope = desk.get(&format!("/v1/keys/{id}")).json()["scope"].clone();
    let purged = purge(&json!({ "scope": scope, "label": "order=o-k-1" }), false);
    assert_eq!((purged.status, &purged.json()["freed"]), (200, &json!(1)), "{}", purged.text());
    assert_eq!(desk.node.send(&other).header("idempotent-replayed"), Some("true"), "the other caller's stays");
}

fn who_did_what_is_written_down(kept: Kept) {
    let desk = start(kept);
    let ids = [desk.unknown("k-0"), desk.unknown("k-1")];
    for (id, actor) in ids.iter().zip(["zo\u{eb}\u{202e}", "joe"]) {
        let said = json!({ "id": id, "verdict": "happened", "reason": format!("asked by {actor}") });
        let post = desk.request("/v1/resolutions", &said).header("X-Hapax-Actor", actor);
        assert_eq!(post.send(desk.node.hapax.admin()).status, 200);
    }
    let notes = audited(&desk);
    assert_eq!(notes.len(), 2);
    assert_eq!(
        (&notes[0]["who"], &notes[1]["who"]),
        (&json!("admin (joe)"), &json!("admin (zo\u{eb}\\u202e)")),
        "newest first: {notes:?}"
    );
    assert_eq!(
        (&notes[0]["id"], &notes[0]["before"], &notes[0]["after"]),
        (&json!(ids[1]), &json!("unknown"), &json!("completed"))
    );
    let about = desk.get(&format!("/v1/audit?id={}", ids[0])).json();
    assert_eq!(about["notes"].as_array().unwrap().len(), 1, "{about}");
    let first = desk.get("/v1/audit?limit=1").json();
    let older = desk.get(&format!("/v1/audit?limit=1&before={}", first["next"])).json();
    assert_eq!(older["notes"][0]["id"], json!(ids[0]), "{older}");
    let long = desk.request("/v1/resolutions", &json!({})).header("X-Hapax-Actor", &"x".repeat(81));
    assert_eq!(long.send(desk.node.hapax.admin()).status, 400);
}

fn a_viewer_changes_nothing(kept: Kept) {
    let desk = start(kept);
    let (unknown, completed) = (desk.unknown("k-0"), desk.completed("k-1"));
    let said = json!({ "id": unknown, "verdict": "happened", "reason": "x" });
    let purge = json!({ "id": completed, "allow_rerun": true, "reason": "x" });
    for (path, body) in [("/v1/resolutions", &said), ("/v1/keys/purge", &purge)] {
        let refusal = desk.as_viewer(&desk.bare(path, body));
        assert_eq!((refusal.status, &refusal.json()["kind"]), (403, &json!("forbidden")), "{}", refusal.text());
        assert!(refusal.json()["detail"].as_str().unwrap().contains("operator"), "{}", refusal.text());
    }
    for target in ["/v1/status", "/v1/keys", "/v1/audit", "/callers"] {
        assert_eq!(desk.as_viewer(&request("GET", target)).status, 200, "{target}");
    }
    assert_eq!(desk.get(&format!("/v1/keys/{unknown}")).json()["state"], "unknown");
    assert_eq!(audited(&desk).len(), 0);
}

#[test]
fn nothing_is_told_without_the_token_or_with_a_wrong_one() {
    let desk = start(Kept::Sqlite);
    let id = desk.unknown("k-0");
    let show = format!("/v1/keys/{id}");
    for authorization in ["", "Bearer", "Bearer wrong", "Basic YTpi", &format!("Bearer {OPERATOR}x")] {
        for target in ["/v1/status", "/v1/keys", &show, "/v1/audit"] {
            let answer = request("GET", target).header("Authorization", authorization).send(desk.node.hapax.admin());
            assert_eq!(answer.status, 401, "{authorization:?} {target}");
            assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
            assert!(!answer.text().contains("k-0"));
        }
        let said = json!({ "id": id, "verdict": "happened", "reason": "x" });
        let post = desk.bare("/v1/resolutions", &said).header("Authorization", authorization);
        assert_eq!(post.send(desk.node.hapax.admin()).status, 401, "{authorization:?}");
    }
    assert_eq!(request("GET", "/v1/openapi.json").send(desk.node.hapax.admin()).status, 200, "this tells nothing");
    assert_eq!(desk.get(&show).json()["state"], "unknown");
}

#[test]
fn without_any_token_this_machine_may_look_and_nobody_may_change() {
    let node = node::start(Kept::Sqlite);
    let admin = node.hapax.admin();
    assert_eq!(node.send(&pay("k-1")).status, 201);
    let listed = page(&request("GET", "/v1/keys").send(admin));
    let id = listed[0]["id"].as_str().unwrap();
    assert_eq!(request("GET", &format!("/v1/keys/{id}")).send(admin).status, 200);
    let body = request("GET", &format!("/v1/keys/{id}?body=true")).send(admin);
    let purge = request("POST", "/v1/keys/purge").header("Content-Type", "application/json").body("{}").send(admin);
    for refusal in [body, purge] {
        assert_eq!(refusal.status, 403);
        assert!(refusal.json()["detail"].as_str().unwrap().contains("admin.token_file"), "{}", refusal.text());
    }
}

#[test]
fn read_only_holds_for_operators_too() {
    let desk = start_with(Kept::Sqlite, |builder| builder.with_env("HAPAX_ADMIN_READ_ONLY", "true"));
    let id = desk.unknown("k-0");
    let refusal = desk.post("/v1/resolutions", &json!({ "id": id, "verdict": "happened", "reason": "x" }));
    assert_eq!(refusal.status, 403);
    assert!(refusal.text().contains("read_only"), "{}", refusal.text());
    assert_eq!(desk.get(&format!("/v1/keys/{id}?body=true")).status, 200);
}

#[test]
fn a_page_of_another_origin_changes_nothing() {
    let desk = start(Kept::Sqlite);
    let id = desk.unknown("k-0");
    let said = json!({ "id": id, "verdict": "happened", "reason": "x" });
    for origin in ["http://evil.example", "null", "http://localhost:1"] {
        let post = desk.request("/v1/resolutions", &said).header("Origin", origin);
        assert_eq!(post.send(desk.node.hapax.admin()).status, 403, "{origin}");
    }
    let elsewhere = desk.request("/v1/resolutions", &said).header("Host", "evil.example");
    assert_eq!(elsewhere.send(desk.node.hapax.admin()).status, 421);
    assert_eq!(desk.get(&format!("/v1/keys/{id}")).json()["state"], "unknown");
    let own = desk.request("/v1/resolutions", &said).header("Origin", "http://localhost");
    assert_eq!(own.send(desk.node.hapax.admin()).status, 200);
}

#[test]
fn what_makes_no_sense_is_refused_with_a_cause() {
    let desk = start(Kept::Sqlite);
    for target in [
        "/v1/keys?limit=1000000000",
        "/v1/keys?limit=0",
        "/v1/keys?limit=-1",
        "/v1/keys?limit=1&limit=2",
        "/v1/keys?stat=unknown",
        "/v1/keys?state=unkown",
        "/v1/keys?state=",
        "/v1/keys?state=dead&state=dead&state=dead&state=dead&state=dead&state=dead&state=dead",
        "/v1/keys?label=order",
        "/v1/keys?since=yesterday",
        "/v1/keys?find=%FF",
        "/v1/keys?find=%00",
        "/v1/status?verbose",
        "/v1/audit?before=x",
        "/v1/audit?limit=1000000000",
        "/v1/audit?id=%27",
    ] {
        desk.refused(target, 400);
    }
    let id = "ab".repeat(32);
    for body in [
        "",
        "{",
        "[]",
        "null",
        r#"{"verdict":"happened"}"#,
        r#"{"id":"x","verdict":"happened","reason":"x"}"#,
        &format!(r#"{{"id":"{id}","verdict":"maybe","reason":"x"}}"#),
        &format!(r#"{{"id":"{id}","verdict":"happened","reason":" "}}"#),
        &format!(r#"{{"id":"{id}","verdict":"happened","reason":"x","force":true}}"#),
        &format!(r#"{{"id":"{id}","id":"{id}","verdict":"happened","reason":"x"}}"#),
        &format!(r#"{{"id":"{id}","key":"k","verdict":"happened","reason":"x"}}"#),
        &format!(r#"{{"id":"{id}","verdict":"happened","reason":"x","answer":{{"status":99}}}}"#),
        &format!(r#"{{"id":"{id}","verdict":"happened","reason":"x","answer":{{"body_base64":"***"}}}}"#),
        &format!(r#"{{"id":"{id}","verdict":"happened","reason":"a\u0000b"}}"#),
        &"[".repeat(100_000),
    ] {
        let refusal = desk.raw("/v1/resolutions", body);
        let shown: String = body.chars().take(90).collect();
        assert_eq!((refusal.status, &refusal.json()["kind"]), (400, &json!("invalid")), "{shown}: {}", refusal.text());
    }
    assert_eq!(desk.raw("/v1/keys/purge", r#"{"reason":"x"}"#).status, 400, "neither id nor filter");
}

#[test]
fn other_paths_methods_types_and_sizes_have_their_own_refusals() {
    let desk = start(Kept::Sqlite);
    for target in ["/v1", "/v1/", "/v1/key", "/v1/keys/a/b", "/v2/keys"] {
        desk.refused(target, 404);
    }
    for (method, target, allow) in [
        ("POST", "/v1/keys", "GET, HEAD"),
        ("DELETE", "/v1/keys/ab", "GET, HEAD"),
        ("GET", "/v1/resolutions", "POST"),
        ("PUT", "/v1/keys/purge", "POST"),
        ("TRACE", "/v1/status", "GET, HEAD"),
    ] {
        let refusal = desk.send(&request(method, target));
        assert_eq!((refusal.status, refusal.header("allow")), (405, Some(allow)), "{method} {target}");
    }
    for kind in ["text/plain", "application/x-www-form-urlencoded", "", "application/jsonx"] {
        let post = request("POST", "/v1/resolutions").header("Content-Type", kind).body("{}");
        assert_eq!(desk.send(&post).status, 415, "{kind}");
    }
    assert_eq!(desk.send(&request("POST", "/v1/resolutions").body("{}")).status, 415);
    let large = json!({ "id": "ab".repeat(32), "verdict": "happened", "reason": "x".repeat(2_000_000) }).to_string();
    let post = request("POST", "/v1/resolutions").header("Content-Type", "application/json").body(large);
    assert_eq!(desk.send(&post).status, 413);
    assert_eq!(desk.send(&post.chunked()).status, 413);
    let head = desk.send(&request("HEAD", "/v1/status"));
    assert_eq!((head.status, head.body.len()), (200, 0));
}

#[test]
fn every_answer_is_json_that_nobody_keeps() {
    let desk = start(Kept::Sqlite);
    for (target, kind) in [
        ("/v1/status", "application/json"),
        ("/v1/openapi.json", "application/json"),
        ("/v1/nothing", "application/problem+json"),
        ("/v1/keys?x=1", "application/problem+json"),
    ] {
        let answer = desk.get(target);
        assert_eq!(answer.header("content-type"), Some(kind), "{target}");
        assert_eq!(answer.header("cache-control"), Some("no-store"), "{target}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{target}");
        assert!(answer.json().is_object());
    }
}

#[test]
fn a_reload_changes_tokens_and_ends_old_ones() {
    let mut desk = start(Kept::Sqlite);
    desk.write_viewer("another-viewer-token-1");
    desk.node.hapax.hup();
    until("the new token is known", PATIENCE, || {
        let status = |token: &str| {
            let get = request("GET", "/v1/status").header("Authorization", &format!("Bearer {token}"));
            get.send(desk.node.hapax.admin()).status
        };
        (status("another-viewer-token-1"), status(VIEWER)) == (200, 401)
    });
    assert_eq!(desk.get("/v1/status").status, 200, "the operator's is as before");
}

#[test]
fn no_token_reaches_a_log() {
    let desk: Desk = start(Kept::Sqlite);
    desk.get("/v1/status");
    desk.as_viewer(&request("POST", "/v1/keys/purge"));
    let said = desk.node.hapax.stdout() + &desk.node.hapax.stderr();
    assert!(!said.contains(OPERATOR) && !said.contains(VIEWER), "{said}");
}

/// What the upstream was told to be the record of that key.
fn node_record(desk: &Desk, key: &str) -> String {
    desk.node.ledger.executions(key)[0].record.clone().expect("the id is sent with the request")
}

/// The page's own examples, in their order, in one shell; only the address, the record, the scope and the file of the token are
/// changed.
#[test]
fn the_examples_of_the_page_work_as_written() {
    needs_clients!();
    let desk = start(Kept::Sqlite);
    let lost = order("k-lost", "4711");
    desk.node.ledger.next("k-lost", Behaviour::Drop);
    assert_eq!(desk.node.send(&lost).status, 504);
    assert_eq!(desk.node.send(&order("k-wrong", "4712")).status, 201);
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/admin-api.md");
    let page = std::fs::read_to_string(page).unwrap();
    let examples: Vec<&str> = page.split("\n```sh\n").skip(1).map(|rest| rest.split("\n```").next().unwrap()).collect();
    assert!(examples.len() >= 5, "{examples:?}");
    let token = desk.node.hapax.dir().join("admin-token");
    std::fs::write(&token, OPERATOR).unwrap();
    let script = format!("set -eu\n{}\n", examples.join("\n"));
    let script = script.replace("127.0.0.1:9180", &desk.node.hapax.admin().to_string());
    let script = script.replace("/etc/hapax/admin-token", &token.display().to_string());
    let shown = "93ed900b5c5f44afe0c9366190bb73debdde1a79f9dc772a8a7edc404818d049";
    let script = script.replace(shown, node_record(&desk, "k-lost").as_str());
    let record = desk.get(&format!("/v1/keys/{}", node_record(&desk, "k-wrong"))).json();
    let script = script.replace("\"alice\"", &record["scope"].to_string());
    let said = clients::run(Command::new("sh").args(["-c", &script]));
    assert!(said.contains(r#""changed":true"#) && said.contains(r#""freed":1"#), "{said}");
    assert!(said.contains("admin (provider-webhook)"), "{said}");
    let retry = desk.node.send(&lost);
    assert_eq!((retry.status, retry.text().as_str()), (201, r#"{"payment": "p-1"}"#));
    desk.node.ledger.assert_once("k-lost");
}
