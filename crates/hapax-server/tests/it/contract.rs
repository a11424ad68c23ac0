//! The HTTP contract (docs/http-contract.md), row by row: the running binary, real sockets, SQLite and PostgreSQL, judged by
//! an upstream that keeps its own ledger.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

use std::time::Duration;

use crate::node::{self, Kept, on_both_stores, pay, refused, start, start_with, unkeyed};
use hapax_testkit::ledger::{Answer, Behaviour};
use hapax_testkit::raw_http::{Conn, Response, request};
use hapax_testkit::wait::until;

on_both_stores! {
    first_request_gets_the_upstreams_answer_unchanged
    retry_after_completion_is_replayed_byte_for_byte
    key_missing_where_required
    key_malformed
    no_usable_caller_identity
    upstream_unreachable_and_nothing_happened
    upstream_cut_off_is_unknown
    upstream_timed_out_is_unknown
    retry_while_running_is_a_conflict
    retry_while_running_may_be_accepted_or_wait
    prefer_wait_asks_for_the_wait
    retry_before_the_next_attempt_is_due
    another_request_under_the_same_key
    answer_too_large_is_passed_on_and_not_kept
    streamed_answer_is_passed_on_and_not_kept
    expired_key_is_free_again_or_gone
    request_body_over_the_limit
    too_many_new_keys_while_retries_are_spared
    each_status_means_what_the_contract_says
    stored_server_errors_in_the_stripe_dialect
    observed_requests_are_neither_refused_nor_replayed
    observed_requests_count_as_what_they_would_have_come_to
    the_service_sees_key_and_attempt
    cookies_dates_and_rates_are_not_replayed
    safe_methods_pass_and_routes_may_protect_others
    ambiguous_paths_and_overridden_methods_are_protected
    keys_per_route
    cross_origin_refusals_and_replays_can_be_read
    replays_mix_no_origins
    refusals_name_the_request_and_show_no_secret
}

fn first_request_gets_the_upstreams_answer_unchanged(kept: Kept) {
    let node = start(kept);
    let answer = Answer {
        status: 201,
        headers: vec![("X-One".into(), "1".into()), ("Link".into(), "</a>".into()), ("Link".into(), "</b>".into())],
        body: vec![0, 159, 146, 150],
        delay: Duration::ZERO,
    };
    node.ledger.on("k", Behaviour::Answer(answer));
    let first = node.send(&pay("k"));
    assert_eq!((first.status, first.body.as_slice()), (201, [0, 159, 146, 150].as_slice()));
    assert_eq!((first.header("x-one"), first.all("link")), (Some("1"), vec!["</a>", "</b>"]));
    assert!(!first.is_replay());
    node.ledger.assert_once("k");
}

fn retry_after_completion_is_replayed_byte_for_byte(kept: Kept) {
    let mut node = start(kept);
    let first = node.send(&pay("k"));
    for round in 0..3 {
        let retry = node.send(&pay("k"));
        assert_eq!((retry.status, &retry.body), (first.status, &first.body), "round {round}");
        assert!(retry.is_replay());
        assert!(retry.header("idempotency-expires").unwrap().ends_with(" GMT"));
        if round == 1 {
            node.hapax.kill_9();
            node.hapax.restart();
        }
    }
    let quoted = node.send(&unkeyed(r#"{ "currency": "EUR", "amount": 1200.0 }"#).header("idempotency-key", "\"k\""));
    assert!(quoted.is_replay(), "the quoted key, and another spelling of the same JSON");
    node.ledger.assert_once("k");
}

fn key_missing_where_required(kept: Kept) {
    let node = start(kept);
    let mut conn = Conn::open(node.hapax.address());
    let response = conn.send(&unkeyed("{}"));
    assert_eq!(refused(&response), (400, "key-missing".into()));
    assert_eq!(response.header("content-type"), Some("application/problem+json"));
    assert_eq!(response.header("cache-control"), Some("no-store"));
    conn.expect_usable("/after");
    assert_eq!(node.ledger.all().len(), 1, "only the GET that shows that the connection is in step");
    let optional = start_with(kept, |builder| builder.with_flag("--keys", "optional"));
    assert_eq!(optional.send(&unkeyed("{}")).status, 201);
}

fn key_malformed(kept: Kept) {
    let node = start(kept);
    for key in ["", "  ", "\"open", "a, b", "?1", &"k".repeat(256)] {
        let response = node.send(&pay(key));
        assert_eq!(refused(&response), (400, "key-malformed".into()), "{key:?}");
    }
    let twice = node.send(&pay("a").header("Idempotency-Key", "b"));
    assert_eq!(refused(&twice), (400, "key-malformed".into()));
    assert!(node.ledger.all().is_empty());
    assert_eq!(node.send(&pay("a").header("Idempotency-Key", "a")).status, 201, "said twice, the same key");
}

fn no_usable_caller_identity(kept: Kept) {
    let node = start(kept);
    let anonymous = request("POST", "/payments").header("Idempotency-Key", "k").body("{}");
    let response = node.send(&anonymous);
    assert_eq!(refused(&response), (401, "scope-missing".into()));
    assert_eq!(response.header("www-authenticate"), Some("Bearer realm=\"api\""));
    let speaks_to_operators = |response: &Response| {
        let text = response.text();
        ["configure", "anonymous", "scope =", "\"jwt\"", "\"ask\""].into_iter().any(|word| text.contains(word))
    };
    assert!(!speaks_to_operators(&response), "{}", response.text());
    node.hapax.line_with("anonymous = true where the upstream does not tell callers apart");
    let jwt = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhIn0.AAAA";
    let token =
        request("POST", "/payments").header("Idempotency-Key", "k").header("Authorization", &format!("Bearer {jwt}"));
    let response = node.send(&token.body("{}"));
    assert_eq!(refused(&response), (400, "scope-missing".into()), "a matter of the configuration");
    assert!(!speaks_to_operators(&response), "{}", response.text());
    node.hapax.line_with("if callers use tokens, configure scope");
    for _ in 0..5 {
        node.send(&anonymous);
    }
    let advice = node.hapax.stderr().matches("anonymous = true").count();
    assert_eq!(advice, 1, "said once, however many are refused");
    assert!(node.ledger.all().is_empty());
}

fn upstream_unreachable_and_nothing_happened(kept: Kept) {
    let node = start(kept);
    node.ledger.refuse(true);
    assert_eq!(refused(&node.send(&pay("k"))), (502, "upstream-unreachable".into()));
    node.ledger.assert_never("k");
    node.ledger.refuse(false);
    let retry = node.send(&pay("k"));
    assert_eq!((retry.status, retry.is_replay()), (201, false));
    assert_eq!(node.ledger.executions("k")[0].attempt.as_deref(), Some("2"));
    node.ledger.assert_once("k");
}

fn upstream_cut_off_is_unknown(kept: Kept) {
    let node = start(kept);
    node.ledger.on("k", Behaviour::Drop);
    assert_eq!(refused(&node.send(&pay("k"))), (504, "outcome-unknown".into()));
    for _ in 0..3 {
        let retry = node.send(&pay("k"));
        assert_eq!(refused(&retry), (409, "outcome-unknown".into()));
        assert!(retry.header("retry-after").is_some());
    }
    node.ledger.assert_once("k");
}

fn upstream_timed_out_is_unknown(kept: Kept) {
    let node = start_with(kept, |builder| builder.with_config("[upstream]\nanswer_timeout = \"300ms\"\n"));
    node.ledger.on("k", Behaviour::Hang);
    assert_eq!(refused(&node.send(&pay("k"))), (504, "outcome-unknown".into()));
    assert_eq!(refused(&node.send(&pay("k"))), (409, "outcome-unknown".into()));
    node.ledger.assert_once("k");
}

/// Sends the request in the background and waits until the upstream has it and holds it.
fn hold(node: &node::Node, key: &'static str) -> std::thread::JoinHandle<Response> {
    node.ledger.hold(key);
    let address = node.hapax.address();
    let first = std::thread::spawn(move || pay(key).send(address));
    node.ledger.wait_until_received(key);
    first
}

fn retry_while_running_is_a_conflict(kept: Kept) {
    let node = start(kept);
    let first = hold(&node, "k");
    let retry = node.send(&pay("k"));
    assert_eq!(refused(&retry), (409, "in-progress".into()));
    assert_eq!(retry.header("retry-after"), Some("1"));
    assert_eq!((retry.header("x-should-retry"), retry.header("stripe-should-retry")), (Some("true"), Some("true")));
    node.ledger.release("k");
    assert_eq!(first.join().unwrap().status, 201);
    assert!(node.send(&pay("k")).is_replay());
    node.ledger.assert_once("k");
}

fn retry_while_running_may_be_accepted_or_wait(kept: Kept) {
    let node = start_with(kept, |builder| builder.with_config("[defaults]\nin_flight = \"accepted\"\n"));
    let first = hold(&node, "k");
    let retry = node.send(&pay("k"));
    assert_eq!((retry.status, retry.header("retry-after")), (202, Some("1")));
    let waited = node.send(&pay("k").header("Prefer", "respond-async, wait=1"));
    assert_eq!((waited.status, waited.header("retry-after")), (202, Some("1")), "after the wait, too");
    node.ledger.release("k");
    first.join().unwrap();
    let node =
        start_with(kept, |builder| builder.with_config("[defaults]\nin_flight = \"wait\"\nwait_max = \"20s\"\n"));
    let first = hold(&node, "k");
    let address = node.hapax.address();
    let waiting = std::thread::spawn(move || pay("k").send(address));
    until("a retry waits", Duration::from_secs(20), || node.hapax.metric("hapax_waiters") >= 1.0);
    node.ledger.release("k");
    let (first, waited) = (first.join().unwrap(), waiting.join().unwrap());
    assert_eq!((waited.is_replay(), &waited.body), (true, &first.body));
    let node =
        start_with(kept, |builder| builder.with_config("[defaults]\nin_flight = \"wait\"\nwait_max = \"100ms\"\n"));
    let first = hold(&node, "k");
    assert_eq!(refused(&node.send(&pay("k"))), (409, "in-progress".into()), "and then 409");
    node.ledger.release("k");
    first.join().unwrap();
    node.ledger.assert_once("k");
}

fn prefer_wait_asks_for_the_wait(kept: Kept) {
    let node = start(kept);
    let first = hold(&node, "k");
    let address = node.hapax.address();
    let waiting = std::thread::spawn(move || pay("k").header("Prefer", "wait=9").send(address));
    until("a retry waits", Duration::from_secs(20), || node.hapax.metric("hapax_waiters") >= 1.0);
    node.ledger.release("k");
    let (first, waited) = (first.join().unwrap(), waiting.join().unwrap());
    assert_eq!((waited.is_replay(), &waited.body), (true, &first.body));
    node.ledger.assert_once("k");
}

fn retry_before_the_next_attempt_is_due(kept: Kept) {
    let node = start(kept);
    node.ledger.next("k", Behaviour::RetryLater(503, 600));
    let first = node.send(&pay("k"));
    assert_eq!((first.status, first.header("retry-after")), (503, Some("600")));
    let retry = node.send(&pay("k"));
    assert_eq!(refused(&retry), (409, "in-progress".into()));
    let after: u32 = retry.header("retry-after").unwrap().parse().unwrap();
    assert!((590..=600).contains(&after), "{after}");
    assert!(
        retry.json()["detail"].as_str().unwrap().starts_with("nothing runs under this key now"),
        "{}",
        retry.text()
    );
    node.ledger.assert_once("k");
}

fn another_request_under_the_same_key(kept: Kept) {
    let node = start(kept);
    node.send(&pay("k"));
    let others = [
        unkeyed(r#"{"amount":1201,"currency":"EUR"}"#),
        unkeyed(r#"{"amount":1200,"currency":"EUR"} "#.trim_end()).header("If-Match", "\"1\""),
    ];
    for other in others {
        let response = node.send(&other.header("Idempotency-Key", "k"));
        assert_eq!(refused(&response), (422, "key-reused".into()));
        assert_eq!(response.header("x-should-retry"), Some("false"));
    }
    let elsewhere = request("POST", "/refunds")
        .header("Authorization", "Bearer alice-secret")
        .header("Content-Type", "application/json")
        .header("Idempotency-Key", "k")
        .body(r#"{"amount":1200,"currency":"EUR"}"#);
    assert_eq!(refused(&node.send(&elsewhere)), (422, "key-reused".into()));
    node.ledger.assert_once("k");
}

fn answer_too_large_is_passed_on_and_not_kept(kept: Kept) {
    let node = start(kept);
    node.ledger.on("k", Behaviour::LargeBody(9 * 1024 * 1024));
    let first = node.send(&pay("k"));
    assert_eq!(first.body.len(), 9 * 1024 * 1024);
    assert_eq!(refused(&node.send(&pay("k"))), (409, "answer-not-kept".into()));
    assert_eq!(node.hapax.metric("hapax_claims_total{outcome=\"not_kept\"}"), 1.0);
    node.ledger.assert_once("k");
}

fn streamed_answer_is_passed_on_and_not_kept(kept: Kept) {
    let node = start(kept);
    node.ledger.on("k", Behaviour::Stream(3, Duration::from_millis(1)));
    let first = node.send(&pay("k"));
    assert!(first.status == 200 && !first.body.is_empty());
    assert_eq!(refused(&node.send(&pay("k"))), (409, "answer-not-kept".into()));
    node.ledger.assert_once("k");
}

fn expired_key_is_free_again_or_gone(kept: Kept) {
    let config = "[upstream]\nanswer_timeout = \"500ms\"\n[defaults]\nretention = \"1s\"\nlease = \"1s\"\n";
    let node = start_with(kept, |builder| builder.with_config(config));
    node.send(&pay("k"));
    until("the key is free", Duration::from_secs(20), || !node.send(&pay("k")).is_replay());
    assert_eq!(node.ledger.executions("k").len(), 2);
    let gone = format!("{config}keep_expired = \"1h\"\n");
    let node = start_with(kept, |builder| builder.with_config(&gone));
    node.send(&pay("k"));
    until("the key is gone", Duration::from_secs(20), || !node.send(&pay("k")).is_replay());
    assert_eq!(refused(&node.send(&pay("k"))), (410, "key-expired".into()));
    node.ledger.assert_once("k");
}

fn request_body_over_the_limit(kept: Kept) {
    let node = start_with(kept, |builder| builder.with_config("[defaults]\nrequest_bytes_max = \"1KiB\"\n"));
    let body = "x".repeat(1025);
    for large in [unkeyed(&body), unkeyed(&body).chunked()] {
        assert_eq!(refused(&node.send(&large.header("Idempotency-Key", "k"))), (413, "body-too-large".into()));
    }
    node.ledger.assert_never("k");
    assert_eq!(node.send(&unkeyed(&body[..1024]).header("Idempotency-Key", "k")).status, 201);
}

fn too_many_new_keys_while_retries_are_spared(kept: Kept) {
    let node = start_with(kept, |builder| builder.with_config("[defaults]\nnew_keys_per_second = 1\n"));
    assert_eq!(node.send(&pay("known")).status, 201);
    let refusals = (0..20).filter(|i| {
        let response = node.send(&pay(&format!("new-{i}")));
        if response.status == 429 {
            assert_eq!(refused(&response), (429, "too-many".into()));
            assert!(response.header("retry-after").is_some());
            node.ledger.assert_never(&format!("new-{i}"));
        }
        response.status == 429
    });
    assert!(refusals.count() >= 10);
    assert!(node.send(&pay("known")).is_replay(), "a known key is spared");
    until("retries leave the next new key its turn", Duration::from_secs(20), || {
        let known = node.send(&unkeyed("{}").header("Idempotency-Key", "known"));
        assert_eq!(refused(&known), (422, "key-reused".into()));
        node.send(&pay("next")).status == 201
    });
    let bob =
        request("POST", "/payments").header("Authorization", "Bearer bob").header("Idempotency-Key", "b").body("{}");
    assert_eq!(node.send(&bob).status, 201, "and so is another caller");
}

fn each_status_means_what_the_contract_says(kept: Kept) {
    let node = start(kept);
    let again = [401, 408, 425, 429, 500, 503];
    for status in [200, 201, 303, 400, 402, 404, 409, 422, 401, 408, 425, 429, 500, 503, 501, 502, 504, 524] {
        let key = format!("s-{status}");
        node.ledger.on(key.as_str(), Behaviour::answer(status, "answer"));
        let first = node.send(&pay(&key));
        assert_eq!((first.status, first.text().as_str()), (status, "answer"));
        let retry = node.send(&pay(&key));
        let runs = node.ledger.executions(&key).len();
        if again.contains(&status) {
            assert_eq!((retry.status, retry.is_replay(), runs), (status, false, 2), "{status}");
        } else if status > 500 {
            assert_eq!((refused(&retry), runs), ((409, "outcome-unknown".into()), 1), "{status}");
        } else {
            assert_eq!((retry.status, retry.is_replay(), runs), (status, true, 1), "{status}");
        }
    }
}

fn stored_server_errors_in_the_stripe_dialect(kept: Kept) {
    let node = start_with(kept, |builder| builder.with_flag("--dialect", "stripe"));
    node.ledger.on("k", Behaviour::answer(500, "broken"));
    assert_eq!(node.send(&pay("k")).status, 500);
    let retry = node.send(&pay("k"));
    assert_eq!((retry.status, retry.is_replay(), retry.header("stripe-should-retry")), (500, true, Some("false")));
    let other = node.send(&unkeyed("{}").header("Idempotency-Key", "k"));
    assert_eq!(refused(&other), (400, "key-reused".into()));
    node.ledger.assert_once("k");
}

fn observed_requests_are_neither_refused_nor_replayed(kept: Kept) {
    let node = start_with(kept, |builder| builder.with_arg("--observe"));
    for _ in 0..3 {
        assert_eq!(node.send(&pay("k")).status, 201);
    }
    assert_eq!(node.send(&unkeyed("{}").header("Idempotency-Key", "k")).status, 201);
    assert_eq!(node.send(&unkeyed("{}")).status, 201);
    assert_eq!(node.ledger.all().len(), 5);
    let observed = |outcome: &str| node.hapax.metric(&format!("hapax_observed_total{{outcome=\"{outcome}\"}}"));
    until("all is counted", Duration::from_secs(20), || {
        observed("created") == 1.0 && observed("mismatch") == 1.0 && observed("key-missing") == 1.0
    });
}

fn observed_requests_count_as_what_they_would_have_come_to(kept: Kept) {
    let node = start_with(kept, |builder| builder.with_arg("--observe").with_flag("--keys", "optional"));
    let observed = |outcome: &str| node.hapax.metric(&format!("hapax_observed_total{{outcome=\"{outcome}\"}}"));
    assert_eq!(node.send(&unkeyed("{}")).status, 201);
    assert_eq!((observed("key-missing"), node.hapax.metric("hapax_unprotected_total")), (0.0, 1.0));
    // The end is recorded beside the answer: a retry that comes sooner finds the first one running.
    let send_until = |key: &str, outcome: &str| {
        until(outcome, Duration::from_secs(20), || {
            node.send(&pay(key));
            observed(outcome) >= 1.0
        });
    };
    node.ledger.on("busy", Behaviour::answer(503, ""));
    send_until("busy", "retried");
    node.ledger.on("lost", Behaviour::Drop);
    send_until("lost", "unknown");
    assert_eq!(observed("replayed"), 0.0, "neither is replayed");
    assert_eq!(observed("created"), 2.0, "the first of each");
    send_until("done", "replayed");
    let mut conn = Conn::open(node.hapax.address());
    let half = pay("half");
    conn.write_part(&half, half.bytes().len() - 5);
    conn.half_close();
    assert_eq!(refused(&conn.read_response().unwrap()), (400, "body-incomplete".into()));
}

fn the_service_sees_key_and_attempt(kept: Kept) {
    let node = start(kept);
    node.ledger.next("k", Behaviour::answer(503, ""));
    let forged = pay("k").header("Idempotency-Attempt", "99").header("Idempotency-Record", &"ab".repeat(32));
    node.send(&forged.header("Connection", "Idempotency-Key, Idempotency-Record"));
    node.send(&pay("k"));
    let attempts: Vec<_> = node.ledger.executions("k").iter().map(|entry| entry.attempt.clone()).collect();
    assert_eq!(attempts, [Some("1".into()), Some("2".into())]);
    let records: Vec<_> = node.ledger.executions("k").iter().map(|entry| entry.record.clone().unwrap()).collect();
    let shown = node.hapax.ask_admin("/v1/keys?find=k").json()["records"][0]["id"].as_str().map(str::to_owned);
    assert_eq!(records, [shown.clone().unwrap(), shown.unwrap()], "the id that operators see, in every attempt");
    assert_eq!(node.ledger.last().header("accept-encoding"), Some("identity"));
}

fn cookies_dates_and_rates_are_not_replayed(kept: Kept) {
    let node = start_with(kept, |builder| {
        builder.with_config("[[route]]\nmethods = [\"POST\"]\npath = \"/keep\"\nkeep_cookies = true\n")
    });
    node.ledger.on("*", Behaviour::Cookies);
    assert_eq!(node.send(&pay("k")).all("set-cookie").len(), 2);
    let retry = node.send(&pay("k"));
    assert!(retry.is_replay());
    assert_eq!((retry.header("set-cookie"), retry.header("age")), (None, None));
    assert!(!retry.headers.iter().any(|(name, _)| name.to_ascii_lowercase().contains("ratelimit")));
    let keep = || {
        let base = request("POST", "/keep").header("Authorization", "Bearer a").header("Idempotency-Key", "c");
        node.send(&base.body("{}"))
    };
    keep();
    assert_eq!(keep().all("set-cookie").len(), 2);
}

fn safe_methods_pass_and_routes_may_protect_others(kept: Kept) {
    let config = "[[route]]\nmethods = [\"PUT\", \"DELETE\"]\npath = \"/things/{id}\"\n";
    let node = start_with(kept, |builder| builder.with_config(config));
    for method in ["GET", "OPTIONS", "PUT", "DELETE"] {
        assert!(node.send(&request(method, "/other")).status < 300, "{method}");
    }
    assert_eq!(refused(&node.send(&request("PUT", "/things/1").body("{}"))), (400, "key-missing".into()));
    let delete = request("DELETE", "/things/1").header("Authorization", "Bearer a").header("Idempotency-Key", "d");
    assert!(!node.send(&delete).is_replay());
    assert!(node.send(&delete).is_replay());
    node.ledger.assert_once("d");
}

fn ambiguous_paths_and_overridden_methods_are_protected(kept: Kept) {
    let config = "[defaults]\nprotect = false\n[[route]]\nmethods = [\"POST\", \"PATCH\"]\npath = \"/pay\"\n";
    let node = start_with(kept, |builder| builder.with_config(config));
    assert_eq!(node.send(&request("POST", "/other").body("{}")).status, 201);
    for path in ["/pay", "//pay", "/./pay", "/x/../pay", "/%70ay", "/x/%2e%2e/pay", "/pay/", "/pay?a=1"] {
        assert_eq!(refused(&node.send(&request("POST", path).body("{}"))), (400, "key-missing".into()), "{path}");
    }
    for path in ["/pay;v=1", "/x/..;/pay", "/x/..%2Fpay", "/pay%2f", "/x//..//%70ay"] {
        assert_eq!(refused(&node.send(&request("POST", path).body("{}"))), (400, "key-missing".into()), "{path}");
    }
    for (method, asked) in [("GET", "PATCH"), ("POST", "FOO"), ("POST", "LINK"), ("POST", "CONNECT"), ("post", "")] {
        let overridden = request(method, "/pay").header("X-HTTP-Method-Override", asked);
        assert_eq!(refused(&node.send(&overridden)), (400, "key-missing".into()), "{method} {asked}");
    }
}

fn keys_per_route(kept: Kept) {
    let node = start_with(kept, |builder| builder.with_config("[defaults]\nkey_per = \"route\"\n"));
    let to = |path: &str| {
        let base = request("POST", path).header("Authorization", "Bearer a").header("Idempotency-Key", "k");
        node.send(&base.body("{}"))
    };
    assert_eq!((to("/one").is_replay(), to("/two").is_replay(), to("/one").is_replay()), (false, false, true));
    for spelling in ["/%6fne", "//one", "/one/", "/./one", "/one;v=1"] {
        assert_eq!(refused(&to(spelling)), (422, "key-reused".into()), "{spelling}");
    }
    assert_eq!(node.ledger.executions("k").len(), 2);
}

fn cross_origin_refusals_and_replays_can_be_read(kept: Kept) {
    let config = "[cors]\norigins = [\"https://shop.example\"]\n";
    let node = start_with(kept, |builder| builder.with_config(config));
    let allowed = |response: &Response| response.header("access-control-allow-origin").map(str::to_owned);
    let refusal = node.send(&unkeyed("{}").header("Origin", "https://shop.example"));
    assert_eq!((refusal.status, allowed(&refusal).as_deref()), (400, Some("https://shop.example")));
    node.send(&pay("k"));
    let replay = node.send(&pay("k").header("Origin", "https://shop.example"));
    assert!(replay.is_replay());
    assert_eq!(allowed(&replay).as_deref(), Some("https://shop.example"));
    let evil = node.send(&pay("k").header("Origin", "https://evil.example"));
    assert_eq!(allowed(&evil), None);
    node.ledger.on("cut", Behaviour::Drop);
    let doubt = node.send(&pay("cut").header("Origin", "https://shop.example"));
    assert_eq!(refused(&doubt), (504, "outcome-unknown".into()));
    assert_eq!(allowed(&doubt).as_deref(), Some("https://shop.example"));
    node.ledger.refuse(true);
    for request in [pay("new"), request("GET", "/things")] {
        let unreachable = node.send(&request.header("Origin", "https://shop.example"));
        assert_eq!(refused(&unreachable), (502, "upstream-unreachable".into()));
        assert_eq!(allowed(&unreachable).as_deref(), Some("https://shop.example"));
    }
}

fn replays_mix_no_origins(kept: Kept) {
    let config = "[cors]\norigins = [\"https://shop.example\"]\ncredentials = false\n";
    let node = start_with(kept, |builder| builder.with_config(config));
    let fields = [
        ("Access-Control-Allow-Origin", "https://other.example"),
        ("Access-Control-Allow-Credentials", "true"),
        ("Access-Control-Expose-Headers", "X-Total"),
    ];
    let headers = fields.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    node.ledger.on("k", Behaviour::Answer(Answer { status: 201, headers, ..Answer::default() }));
    let send = || node.send(&pay("k").header("Origin", "https://shop.example"));
    let (first, replay) = (send(), send());
    assert_eq!(first.header("access-control-allow-credentials"), Some("true"), "the upstream's own");
    assert!(replay.is_replay());
    assert_eq!(replay.all("access-control-allow-origin"), ["https://shop.example"]);
    assert_eq!(replay.header("access-control-allow-credentials"), None);
    let exposed = replay.header("access-control-expose-headers").unwrap();
    assert!(exposed.starts_with("X-Total, idempotent-replayed"), "{exposed}");
}

fn refusals_name_the_request_and_show_no_secret(kept: Kept) {
    let node = start(kept);
    let response = node.send(&unkeyed("{\"card\":\"canary-body\"}"));
    let id = response.json()["request_id"].as_str().unwrap().to_owned();
    assert!(node.hapax.line_with(&id).contains("key-missing"));
    node.send(&pay("canary-key"));
    node.send(&pay("canary-key"));
    let said = node.hapax.stdout() + &node.hapax.stderr() + &node.hapax.ask_admin("/metrics").text();
    for secret in ["alice-secret", "canary-key", "canary-body"] {
        assert!(!said.contains(secret), "{secret} in {said}");
    }
}
