//! Whose key it is, through the whole binary: tokens, a question to an endpoint, composed kinds, replay checks.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use crate::node::refused;
use hapax_testkit::hapax::Hapax;
use hapax_testkit::ledger::{Answer, Behaviour, Ledger};
use hapax_testkit::raw_http::{Request, Response, request};
use hapax_testkit::wait::until;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};

const SECRET: &[u8] = b"a secret that only the issuer and hapax know";

fn token(subject: &str, expires_at: u64, secret: &[u8]) -> String {
    let claims = serde_json::json!({ "sub": subject, "exp": expires_at, "aud": "payments" });
    encode(&Header::new(Algorithm::HS256), &claims, &EncodingKey::from_secret(secret)).unwrap()
}

fn post(key: &str) -> Request {
    request("POST", "/payments").header("Idempotency-Key", key).body("{}")
}

/// A moment that no test outlives.
const LATER: u64 = 4_000_000_000;

#[test]
fn a_claim_of_a_verified_token_names_the_caller() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("secret");
    fs::write(&file, SECRET).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let config = format!(
        "scope = [\"jwt\"]\n[jwt]\nalgorithms = [\"HS256\"]\nkey_file = \"{}\"\naudience = [\"payments\"]\n",
        file.display()
    );
    let ledger = Ledger::start();
    let hapax = Hapax::builder(env!("CARGO_BIN_EXE_hapax"))
        .with_upstream(&ledger.url())
        .with_scope("")
        .with_config(&config)
        .start();
    let send = |key: &str, token: &str| -> Response {
        post(key).header("Authorization", &format!("Bearer {token}")).send(hapax.address())
    };
    let first = send("k", &token("alice", LATER, SECRET));
    assert_eq!(first.status, 201, "{}", first.text());
    let renewed = send("k", &token("alice", LATER + 1, SECRET));
    assert!(renewed.is_replay(), "another token of the same caller");
    let other = send("k", &token("bob", LATER, SECRET));
    assert_eq!((other.status, other.is_replay()), (201, false), "another caller");
    for bad in [
        token("alice", 1_000_000_000, SECRET),
        token("alice", LATER, b"some other secret of the same length...."),
        "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbGljZSIsImV4cCI6NDAwMDAwMDAwMH0.".to_owned(),
    ] {
        let response = send("k", &bad);
        assert_eq!(refused(&response), (401, "scope-missing".into()));
        let asked = response.header("www-authenticate").unwrap();
        assert!(asked.starts_with("Bearer realm=\"api\", error=\"invalid_token\", error_description=\""), "{asked}");
        assert_eq!(response.header("cache-control"), Some("no-store"));
    }
    let missing = post("k").send(hapax.address());
    assert_eq!(refused(&missing), (401, "scope-missing".into()));
    assert_eq!(missing.header("www-authenticate"), Some("Bearer realm=\"api\""));
    assert_eq!(ledger.all().len(), 2);
}

#[test]
fn an_endpoint_names_the_tenant_and_may_refuse_a_replay() {
    let (ledger, doorman) = (Ledger::start(), Ledger::start());
    let says = |status: u16, tenant: &str| {
        let headers = vec![("X-Tenant".to_owned(), tenant.to_owned())];
        Behaviour::Answer(Answer { status, headers, ..Answer::default() })
    };
    doorman.on("*", says(200, "acme"));
    let config =
        format!("scope = [\"ask\"]\n[ask]\nurl = \"{}/whoami\"\n[defaults]\nreplay_check = \"ask\"\n", doorman.url());
    let hapax = Hapax::builder(env!("CARGO_BIN_EXE_hapax"))
        .with_upstream(&ledger.url())
        .with_scope("")
        .with_config(&config)
        .start();
    let send = || post("k").header("Authorization", "Bearer opaque").send(hapax.address());
    assert_eq!(send().status, 201);
    assert!(send().is_replay());
    doorman.on("*", says(403, ""));
    assert_eq!(refused(&send()), (400, "scope-missing".into()), "no longer let in");
    doorman.on("*", says(401, ""));
    let expired = send();
    assert_eq!(refused(&expired), (401, "scope-missing".into()));
    assert!(expired.header("www-authenticate").unwrap().contains("error=\"invalid_token\""));
    doorman.on("*", says(200, "other"));
    assert_eq!((send().status, ledger.executions("k").len()), (201, 2), "another tenant's key is another key");
    doorman.on("*", Behaviour::Drop);
    let failed = send();
    assert_eq!(refused(&failed), (503, "scope-unavailable".into()), "fails closed");
    assert!(failed.header("retry-after").is_some());
    assert_eq!(ledger.executions("k").len(), 2);
}

#[test]
fn who_waits_for_an_answer_is_asked_about_when_it_comes() {
    let (ledger, doorman) = (Ledger::start(), Ledger::start());
    let says = |status: u16| {
        let headers = vec![("X-Tenant".to_owned(), "acme".to_owned())];
        Behaviour::Answer(Answer { status, headers, ..Answer::default() })
    };
    doorman.on("*", says(200));
    let config =
        format!("scope = [\"ask\"]\n[ask]\nurl = \"{}/whoami\"\n[defaults]\nreplay_check = \"ask\"\n", doorman.url());
    let hapax = Hapax::builder(env!("CARGO_BIN_EXE_hapax"))
        .with_upstream(&ledger.url())
        .with_scope("")
        .with_config(&config)
        .start();
    let address = hapax.address();
    let send = move |prefer: &str| {
        let request = post("k").header("Authorization", "Bearer opaque").header("Prefer", prefer);
        std::thread::spawn(move || request.send(address))
    };
    ledger.hold("k");
    let first = send("wait=0");
    ledger.wait_until_received("k");
    let waiting = send("wait=9");
    until("a retry waits", Duration::from_secs(20), || hapax.metric("hapax_waiters") >= 1.0);
    doorman.on("*", says(403));
    ledger.release("k");
    assert_eq!(first.join().unwrap().status, 201);
    assert_eq!(refused(&waiting.join().unwrap()), (403, "replay-refused".into()));
    ledger.assert_once("k");
}

#[test]
fn a_replay_for_credentials_that_have_expired_asks_for_new_ones() {
    let (ledger, doorman) = (Ledger::start(), Ledger::start());
    let config = format!("[ask]\nurl = \"{}/check\"\n[defaults]\nreplay_check = \"ask\"\n", doorman.url());
    let hapax = Hapax::builder(env!("CARGO_BIN_EXE_hapax"))
        .with_upstream(&ledger.url())
        .with_scope("")
        .with_config(&config)
        .start();
    let send = || post("k").header("Authorization", "Bearer opaque").send(hapax.address());
    assert_eq!(send().status, 201);
    let headers = vec![("WWW-Authenticate".to_owned(), "Bearer realm=\"acme\", error=\"invalid_token\"".to_owned())];
    doorman.on("*", Behaviour::Answer(Answer { status: 401, headers, ..Answer::default() }));
    let expired = send();
    assert_eq!(refused(&expired), (401, "scope-missing".into()));
    assert_eq!(expired.header("www-authenticate"), Some("Bearer realm=\"acme\", error=\"invalid_token\""));
    doorman.on("*", Behaviour::answer(200, ""));
    assert!(send().is_replay(), "with credentials that are accepted again");
    ledger.assert_once("k");
}

#[test]
fn kinds_are_composed_and_each_counts() {
    let ledger = Ledger::start();
    let config = "scope = [\"credential\", \"header:X-Account\"]\n";
    let hapax = Hapax::builder(env!("CARGO_BIN_EXE_hapax"))
        .with_upstream(&ledger.url())
        .with_scope("")
        .with_config(config)
        .start();
    let send = |credential: &str, account: &str| {
        let request = post("k").header("Authorization", &format!("Bearer {credential}")).header("X-Account", account);
        request.send(hapax.address()).is_replay()
    };
    assert!(!send("a", "1"));
    assert!(!send("a", "2"));
    assert!(!send("b", "1"));
    assert!(send("a", "1") && send("a", "2") && send("b", "1"));
    assert_eq!(ledger.executions("k").len(), 3);
}
