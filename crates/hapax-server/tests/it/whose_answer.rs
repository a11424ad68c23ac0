//! Whose answer a caller gets, over real sockets: what comes from outside (a probe's answer, a verdict through the admin API, a
//! row of a provider's ledger) is bound to the caller, and nothing that a caller writes chooses another's.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

mod shop;

use std::process::Command;
use std::time::Duration;

use hapax_testkit::hapax::Hapax;
use hapax_testkit::raw_http::{Request, Response, request};
use hapax_testkit::wait::until;
use serde_json::{Value, json};
use shop::{ROOT, Shop};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(30);

/// A route with that probe. Everything is settled within seconds.
fn config(scope: &str, probe: &str) -> String {
    format!(
        r#"
scope = "{scope}"

[upstream]
answer_timeout = "1s"

[background]
sweep_every = "200ms"
reconcile_every = "200ms"

[defaults]
lease = "1s"

[[route]]
methods = ["POST"]
path = "/payments"
settle_after = "1s"
probe_backoff = "100ms"
probe_attempts = 3
labels = {{ order = "request:/order" }}
probe = {probe}
"#
    )
}

fn probe(get: &str) -> String {
    format!(r#"{{ get = "{get}", happened_if = "/status=succeeded", answer = "probe:201" }}"#)
}

/// What `hapax config check` says of it: `None` where it is sound.
fn refused(config: &str) -> Option<String> {
    let directory = TempDir::new().unwrap();
    std::fs::write(directory.path().join("hapax.toml"), config).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_hapax"));
    command.args(["config", "check", "--to", "http://127.0.0.1:3000"]).current_dir(directory.path()).env_clear();
    let done = command.output().unwrap();
    (!done.status.success()).then(|| String::from_utf8(done.stderr).unwrap())
}

fn start(shop: &Shop, config: &str) -> Hapax {
    let builder = Hapax::builder(env!("CARGO_BIN_EXE_hapax")).with_upstream(&shop.url());
    builder.with_scope("").with_config(config).start()
}

fn pay(caller: &str, key: &str, order: &str) -> Request {
    request("POST", "/payments")
        .header("Authorization", &format!("Bearer {caller}-secret"))
        .header("Idempotency-Key", key)
        .header("Content-Type", "application/json")
        .body(format!(r#"{{"order":{order},"amount":1200}}"#))
}

/// Sends it with its outcome in doubt: `drop` before the work, `lose` after it.
fn in_doubt(hapax: &Hapax, payment: &Request, how: &str) {
    let lost = payment.clone().header("X-Test", how).send(hapax.address());
    assert_eq!((lost.status, lost.problem().as_deref()), (504, Some("outcome-unknown")));
}

/// Sends it again until something else than "nobody knows" is said, or nobody ever will.
fn retried(hapax: &Hapax, payment: &Request) -> Option<Response> {
    let mut answer = None;
    until("a retry is answered, or left to a person", PATIENCE, || {
        let retry = payment.send(hapax.address());
        let settled = retry.status != 409;
        answer = settled.then_some(retry);
        settled || hapax.metric("hapax_dead") >= 1.0 && hapax.metric("hapax_unknown") == 0.0
    });
    answer
}

/// The attack: bob uses alice's key, carol names alice's order, dave an order that is a way up.
fn nobody_gets_anothers_answer(get: &str) {
    let config = config("credential", &probe(get));
    if let Some(why) = refused(&config) {
        assert!(why.contains("`probe`"), "{get}: {why}");
        return;
    }
    let shop = Shop::start();
    let hapax = start(&shop, &config);
    assert_eq!(pay("alice", "order-17", r#""A-1""#).send(hapax.address()).status, 201);
    let attacks = [
        ("bob", pay("bob", "order-17", r#""B-1""#)),
        ("carol", pay("carol", "c-1", r#""A-1""#)),
        ("dave", pay("dave", "d-1", r#""..""#)),
        ("erin", pay("erin", "e-1", r#""""#)),
    ];
    attacks.iter().for_each(|(_, payment)| in_doubt(&hapax, payment, "drop"));
    for (caller, payment) in &attacks {
        let Some(answer) = retried(&hapax, payment) else { continue };
        let said = answer.text();
        assert!(!said.contains("alice") && said != ROOT, "{get}: {caller} got {said}");
        assert!(said.contains(&format!("\"owner\":\"{caller}\"")), "{get}: {caller} got {said}");
        assert_eq!(shop.executions(caller, payment_key(caller)), 1, "{get}: {caller}");
    }
    assert_eq!(shop.executions("alice", "order-17"), 1);
}

fn payment_key(caller: &str) -> &'static str {
    match caller {
        "bob" => "order-17",
        "carol" => "c-1",
        "dave" => "d-1",
        _ => "e-1",
    }
}

#[test]
fn a_probe_by_key_hands_nobody_anothers_answer() {
    nobody_gets_anothers_answer("/payments?idempotency_key={key}");
}

#[test]
fn a_probe_by_label_hands_nobody_anothers_answer() {
    nobody_gets_anothers_answer("/payments/{label:order}");
}

#[test]
fn a_probe_by_id_hands_nobody_anothers_answer() {
    nobody_gets_anothers_answer("/payments?record={id}");
}

#[test]
fn a_label_keeps_all_digits_of_a_number_so_that_nothing_runs_twice() {
    let shop = Shop::start();
    let hapax = start(&shop, &config("single", &probe("/payments/{label:order}")));
    for order in ["18446744073709551615", "18446744073709551616", "123456789012345678901234567890", "-7"] {
        let payment = pay("alice", &format!("k{order}"), order);
        in_doubt(&hapax, &payment, "lose");
        let answer = retried(&hapax, &payment).expect("the probe finds it");
        assert_eq!((answer.status, answer.is_replay()), (201, true), "{order}: {}", answer.text());
        assert_eq!(shop.executions("alice", &format!("k{order}")), 1, "{order}");
        assert!(shop.asked().contains(&format!("/payments/{order}")), "{order}: {:?}", shop.asked());
    }
}

#[test]
fn an_unbound_probe_is_refused_by_check_start_and_reload() {
    let shop = Shop::start();
    let [bound, unbound] =
        ["/payments?record={id}", "/payments?key={key}"].map(|get| config("credential", &probe(get)));
    let why =
        "`probe` asks by {key}, which another caller may use as well, and would find what is another's; ask by {id}";
    assert!(refused(&unbound).is_some_and(|told| told.contains(why)));
    let builder = Hapax::builder(env!("CARGO_BIN_EXE_hapax")).with_upstream(&shop.url()).with_scope("");
    let (code, _, told) = builder.with_config(&unbound).start_refused();
    assert_eq!((code, told.contains(why)), (Some(2), true), "{told}");
    let mut hapax = start(&shop, &bound);
    hapax.write_config(&unbound);
    hapax.hup();
    hapax.line_with("asks by {key}");
    let payment = pay("alice", "k", r#""A-1""#);
    in_doubt(&hapax, &payment, "lose");
    assert_eq!(retried(&hapax, &payment).expect("the old probe goes on").status, 201);
    assert!(shop.asked().iter().all(|target| target.starts_with("/payments?record=")), "{:?}", shop.asked());
}

#[test]
fn a_probe_may_be_bound_by_a_scope_that_the_service_knows() {
    let shop = Shop::start();
    let hapax = start(&shop, &config("header:X-Tenant", &probe("/payments?tenant={scope}&key={key}")));
    let [alice, bob] = ["alice", "bob"].map(|caller| pay(caller, "k", r#""A-1""#).header("X-Tenant", caller));
    assert_eq!(alice.send(hapax.address()).status, 201);
    in_doubt(&hapax, &bob, "drop");
    let answer = retried(&hapax, &bob).expect("bob's did not happen");
    assert!(answer.text().contains(r#""owner":"bob""#) && !answer.is_replay(), "{}", answer.text());
}

#[test]
fn where_keys_are_said_to_be_unique_nobody_gets_more_than_a_status() {
    let shop = Shop::start();
    let said = r#"{ get = "/payments?key={key}", happened_if = "/status=succeeded", keys_unique = true }"#;
    let hapax = start(&shop, &config("credential", said));
    assert_eq!(pay("alice", "order-17", r#""A-1""#).send(hapax.address()).status, 201);
    let bob = pay("bob", "order-17", r#""B-1""#);
    in_doubt(&hapax, &bob, "drop");
    let answer = retried(&hapax, &bob).expect("the key is known");
    assert_eq!((answer.status, answer.text().as_str(), answer.header("content-type")), (200, "", None));
    // The same for what was declined: here any payment counts as that.
    let shop = Shop::start();
    let said = r#"{ get = "/payments?key={key}", happened = "418", declined = "200", keys_unique = true }"#;
    let hapax = start(&shop, &config("credential", said));
    assert_eq!(pay("alice", "order-17", r#""A-1""#).send(hapax.address()).status, 201);
    in_doubt(&hapax, &bob, "drop");
    let answer = retried(&hapax, &bob).expect("the key is known");
    assert_eq!((answer.status, answer.text().as_str(), answer.header("content-type")), (402, "", None));
}

#[test]
fn a_value_that_could_be_another_path_is_never_asked_for() {
    let shop = Shop::start();
    let hapax = start(&shop, &config("single", &probe("/payments/{label:order}")));
    let orders = ["..", ".", "", "../..", "%2e%2e", "..;x", "a/b", "a\\\\b", "..%2f", "a?b", "\\u0000"];
    let mut settled = 0.0;
    for (number, order) in orders.iter().enumerate() {
        let payment = pay("alice", &format!("k-{number}"), &format!("\"{order}\""));
        in_doubt(&hapax, &payment, "drop");
        settled += 1.0;
    }
    // Nor is a label that is not there: a number that may be known under another spelling, a name that stands twice.
    for (number, order) in ["1e2", "-0", r#"1,"order":2"#, "true"].iter().enumerate() {
        in_doubt(&hapax, &pay("alice", &format!("n-{number}"), order), "drop");
        settled += 1.0;
    }
    until("all are left to a person", PATIENCE, || hapax.metric("hapax_dead") == settled);
    assert_eq!(shop.asked(), Vec::<String>::new());
}

#[test]
fn only_hapax_says_which_record_a_request_belongs_to() {
    let shop = Shop::start();
    let config = "[[route]]\nmethods = [\"POST\"]\npath = \"/observed\"\nmode = \"observe\"\n\
                  [[route]]\nmethods = [\"POST\"]\npath = \"/open\"\nprotect = false\n\
                  [[route]]\nmethods = [\"POST\"]\npath = \"/optional\"\nrequired = false\n\
                  [[route]]\nmethods = [\"POST\"]\npath = \"/per-route\"\nkey_per = \"route\"\n";
    let hapax = start(&shop, config);
    let forged = |method: &str, path: &str| {
        request(method, path)
            .header("Authorization", "Bearer alice-secret")
            .header("Idempotency-Record", &"ab".repeat(32))
            .header("idempotency-record", &"cd".repeat(32))
            .header("IDEMPOTENCY_RECORD", &"ef".repeat(32))
            .header("Connection", "Idempotency-Record")
    };
    let keyed = |path: &str| forged("POST", path).header("Idempotency-Key", "k").body("{}");
    let cases = [
        ("safe", forged("GET", "/safe"), false),
        ("put", forged("PUT", "/put").body("{}"), false),
        ("observed", keyed("/observed"), false),
        ("unprotected", keyed("/open"), false),
        ("without a key", forged("POST", "/optional").body("{}"), false),
        ("protected", keyed("/protected"), true),
        ("per route", keyed("/per-route"), true),
    ];
    for (case, request, protected) in cases {
        assert!(request.send(hapax.address()).status < 500, "{case}");
        let seen = shop.seen().pop().unwrap();
        let told = seen.header("idempotency-record").map(str::to_owned);
        assert_eq!((told.is_some(), seen.header("idempotency_record")), (protected, None), "{case}");
        let Some(told) = told else { continue };
        let shown = hapax.ask_admin(&format!("/v1/keys/{told}"));
        assert_eq!((shown.status, &shown.json()["key"]), (200, &json!("k")), "{case}: {}", shown.text());
    }
}

const TOKEN: &str = "operator-token-0123456789";

/// A node without a probe, whose callers are told apart by a header, and which takes verdicts.
fn start_judged(shop: &Shop) -> Hapax {
    let config = "[[route]]\npath = \"/payments\"\nlabels = { order = \"request:/order\" }\n";
    let builder = Hapax::builder(env!("CARGO_BIN_EXE_hapax")).with_upstream(&shop.url());
    builder.with_scope("header:X-Tenant").with_env("HAPAX_ADMIN_TOKEN", TOKEN).with_config(config).start()
}

fn of_tenant(tenant: &str, key: &str, order: &str) -> Request {
    pay(tenant, key, order).header("X-Tenant", tenant)
}

fn resolve(hapax: &Hapax, named: &Value) -> Response {
    let mut said = named.clone();
    said["verdict"] = json!("happened");
    said["reason"] = json!("payment.succeeded");
    said["answer"] = json!({ "status": 201, "body": "the answer to alice" });
    request("POST", "/v1/resolutions")
        .header("Authorization", &format!("Bearer {TOKEN}"))
        .header("Content-Type", "application/json")
        .body(said.to_string())
        .send(hapax.admin())
}

#[test]
fn a_verdict_by_a_key_or_a_label_that_callers_choose_settles_nobody_elses_request() {
    let shop = Shop::start();
    let hapax = start_judged(&shop);
    assert_eq!(of_tenant("alice", "order-17", r#""A-1""#).send(hapax.address()).status, 201);
    let carol = of_tenant("carol", "c-1", r#""A-1""#);
    in_doubt(&hapax, &carol, "drop");
    // Of alice's payment there is no record: it went another way, or has expired.
    let bob = of_tenant("bob", "order-18", r#""B-1""#);
    in_doubt(&hapax, &bob, "drop");
    for named in [json!({ "label": "order=A-1" }), json!({ "key": "order-18" }), json!({ "key": "c-1" })] {
        let refusal = resolve(&hapax, &named);
        assert_eq!(refusal.status, 400, "{named}: {}", refusal.text());
        assert!(refusal.text().contains("`id`"), "{named}: {}", refusal.text());
    }
    for payment in [&carol, &bob] {
        let retry = payment.send(hapax.address());
        assert_eq!((retry.status, retry.problem().as_deref()), (409, Some("outcome-unknown")), "{}", retry.text());
    }
    // Whoever says whose it is, is believed.
    let named = resolve(&hapax, &json!({ "scope": "h:carol", "label": "order=A-1" }));
    assert_eq!((named.status, &named.json()["record"]["key"]), (200, &json!("c-1")), "{}", named.text());
    let id = shop.seen().iter().find(|seen| seen.header("x-tenant") == Some("bob")).cloned().unwrap();
    let id = id.header("idempotency-record").unwrap().to_owned();
    let named = resolve(&hapax, &json!({ "id": id }));
    assert_eq!((named.status, &named.json()["record"]["key"]), (200, &json!("order-18")), "{}", named.text());
}

/// How `hapax reconcile` ended: its exit code, and how many records it resolved.
fn reconcile(hapax: &Hapax, ledger: &str, flags: &[&str]) -> (Option<i32>, u64, String) {
    std::fs::write(hapax.dir().join("p.ndjson"), ledger).unwrap();
    let store = format!("sqlite:{}", hapax.dir().join("hapax.db").display());
    let mut command = Command::new(env!("CARGO_BIN_EXE_hapax"));
    command.args(["reconcile", "--ledger", "p.ndjson", "--store", &store, "--output", "json"]).args(flags);
    command.args(["--apply", "--reason", "export", "--answer-status", "201", "--settle-after", "0s"]);
    let done = command.current_dir(hapax.dir()).env_clear().output().unwrap();
    let resolved = serde_json::from_slice(&done.stdout).unwrap_or(Value::Null)["counts"]["resolved"].as_u64();
    (done.status.code(), resolved.unwrap_or(0), String::from_utf8_lossy(&done.stderr).into_owned())
}

#[test]
fn a_ledger_row_settles_no_request_unless_it_says_whose_it_is() {
    let shop = Shop::start();
    let hapax = start_judged(&shop);
    let carol = of_tenant("carol", "order-17", r#""A-1""#);
    in_doubt(&hapax, &carol, "drop");
    // Alice's row: her record has expired.
    let ledger = r#"{"key":"order-17","order":"A-1","tenant":"h:alice","answer":"the answer to alice"}"#;
    for matched in ["key=key", "label:order=order"] {
        let (code, resolved, told) = reconcile(&hapax, ledger, &["--match", matched]);
        assert_eq!((code, resolved), (Some(2), 0), "{matched}: {told}");
        assert!(told.contains("--match id=COLUMN"), "{matched}: {told}");
        let (_, resolved, told) = reconcile(&hapax, ledger, &["--match", matched, "--match", "scope=tenant"]);
        assert_eq!(resolved, 0, "{matched}: {told}");
    }
    assert_eq!(carol.send(hapax.address()).status, 409);
    let id = shop.seen()[0].header("idempotency-record").unwrap().to_owned();
    let by_id = format!(r#"{{"record":"{id}","answer":"the answer to carol"}}"#);
    let (code, resolved, told) = reconcile(&hapax, &by_id, &["--match", "id=record", "--answer-body-column", "answer"]);
    assert_eq!((code, resolved), (Some(0), 1), "{told}");
    assert_eq!(carol.send(hapax.address()).text(), "the answer to carol");
}

#[test]
fn a_ledger_row_with_a_long_number_is_about_that_number_and_no_other() {
    let shop = Shop::start();
    let hapax = start_judged(&shop);
    let flags = ["--match", "label:order=order", "--match", "scope=tenant", "--answer-body-column", "answer"];
    let row = |order: &str| format!(r#"{{"order":{order},"tenant":"h:bob","answer":{{"order":{order}}}}}"#);
    for (number, (order, other)) in [
        ("18446744073709551616", "18446744073709551617"),
        ("100000000000000000000124", "100000000000000000000123"),
        ("-9223372036854775809", "-9223372036854775810"),
    ]
    .into_iter()
    .enumerate()
    {
        let payment = of_tenant("bob", &format!("k-{number}"), order);
        in_doubt(&hapax, &payment, "drop");
        let (_, resolved, told) = reconcile(&hapax, &row(other), &flags);
        assert_eq!(resolved, 0, "{order} is not {other}: {told}");
        let (_, resolved, told) = reconcile(&hapax, &row(order), &flags);
        assert_eq!(resolved, 1, "{order}: {told}");
        let answer = payment.send(hapax.address());
        assert_eq!(answer.text(), format!(r#"{{"order":{order}}}"#), "digits of the answer are kept, too");
    }
}
