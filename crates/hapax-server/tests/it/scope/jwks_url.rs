//! Key sets at a URL: fetched seldom, renewed when needed, kept when the URL is away, and never in anybody's way.

use std::sync::Arc;

use hapax_server::scope::{JwtAlgorithm, JwtKeys, JwtOptions, Refusal, Scopes};
use hapax_testkit::clock::FakeClock;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::jwt::{refusal_of, scope_by, scopes_at};
use super::stand_in::{Reply, StandIn, answer};
use super::tokens::{NOW_S, SECRET, Signer, claims_with, set_of};
use super::{invalid_token, post, unavailable};

const UNKNOWN_KEY: &str = "the token is signed with a key that is not known; get a new token";
const NO_KEYS: &str = "the keys that verify tokens cannot be fetched; try again later";

fn set(keys: &[Value]) -> Reply {
    Reply::Answer(200, vec![("content-type", b"application/jwk-set+json".to_vec())], set_of(keys))
}

fn scopes(clock: &FakeClock, server: &StandIn) -> Scopes {
    let keys = JwtKeys::SetUrl { url: server.url("/keys"), ca_file: None };
    scopes_at(clock, JwtOptions::new(keys, vec![JwtAlgorithm::Es256, JwtAlgorithm::EdDsa]))
}

/// Valid for as long as a test can move its clock.
fn token(signer: &Signer, kid: &str) -> String {
    signer.sign(Some(kid), &claims_with("exp", Some(json!(NOW_S + 1_000_000))))
}

#[tokio::test]
async fn a_set_is_fetched_once_and_then_kept() {
    let (signer, clock) = (Signer::ec(), FakeClock::default());
    let server = StandIn::start(set(&[signer.jwk(Some("1"))])).await;
    let by = scopes(&clock, &server);
    assert_eq!(server.requests(), 0);
    for _ in 0..5 {
        assert_eq!(scope_by(&by, &token(&signer, "1")).await, "j:alice");
    }
    assert_eq!(server.requests(), 1);
}

#[tokio::test]
async fn warming_up_fetches_before_the_first_request() {
    let (signer, clock) = (Signer::ed(), FakeClock::default());
    let server = StandIn::start(set(&[signer.jwk(Some("1"))])).await;
    let by = scopes(&clock, &server);
    by.warm().await;
    assert_eq!(server.requests(), 1);
    server.says(Reply::Hang(""));
    assert_eq!(scope_by(&by, &token(&signer, "1")).await, "j:alice");
}

#[tokio::test]
async fn scopes_that_are_made_anew_go_on_with_the_keys_at_hand() {
    let (signer, clock) = (Signer::ec(), FakeClock::default());
    let server = StandIn::start(set(&[signer.jwk(Some("1"))])).await;
    let old = scopes(&clock, &server);
    old.warm().await;
    server.says(Reply::Answer(500, Vec::new(), Vec::new()));
    assert_eq!(refusal_of(&scopes(&clock, &server), &token(&signer, "1")).await, unavailable(NO_KEYS));
    let new = scopes(&clock, &server).with_keys_of(&old);
    assert_eq!(scope_by(&new, &token(&signer, "1")).await, "j:alice");
    let asked = server.requests();
    new.warm().await;
    assert_eq!(server.requests(), asked + 1, "and asks anew, however short a time ago the old ones did");
    assert_eq!(scope_by(&new, &token(&signer, "1")).await, "j:alice", "in vain");
    // Keys from elsewhere are not theirs.
    let elsewhere = StandIn::start(Reply::Answer(500, Vec::new(), Vec::new())).await;
    let other = scopes(&clock, &elsewhere).with_keys_of(&old);
    assert_eq!(refusal_of(&other, &token(&signer, "1")).await, unavailable(NO_KEYS));
}

#[tokio::test]
async fn an_unknown_key_id_renews_the_set_at_most_every_ten_seconds() {
    let (old, new, clock) = (Signer::ec(), Signer::ec(), FakeClock::default());
    let server = StandIn::start(set(&[old.jwk(Some("1"))])).await;
    let by = scopes(&clock, &server);
    assert_eq!(scope_by(&by, &token(&old, "1")).await, "j:alice");

    server.says(set(&[old.jwk(Some("1")), new.jwk(Some("2"))]));
    for _ in 0..20 {
        assert_eq!(refusal_of(&by, &token(&new, "2")).await, invalid_token(UNKNOWN_KEY));
    }
    clock.advance_ms(9_999);
    assert_eq!(refusal_of(&by, &token(&new, "2")).await, invalid_token(UNKNOWN_KEY));
    assert_eq!(server.requests(), 1);
    clock.advance_ms(1);
    assert_eq!(scope_by(&by, &token(&new, "2")).await, "j:alice");
    assert_eq!(scope_by(&by, &token(&old, "1")).await, "j:alice");
    assert_eq!(server.requests(), 2);
}

#[tokio::test]
async fn a_flood_of_unknown_key_ids_makes_one_fetch() {
    let (signer, clock, permits) = (Signer::ec(), FakeClock::default(), Arc::new(Semaphore::new(0)));
    let reply = set(&[signer.jwk(Some("1"))]);
    let server = StandIn::start(Reply::When(permits.clone(), Box::new(reply))).await;
    let by = Arc::new(scopes(&clock, &server));
    let flood: Vec<_> = (0..100)
        .map(|i| {
            let (by, token) = (by.clone(), token(&signer, &format!("unknown-{i}")));
            tokio::spawn(async move { refusal_of(&by, &token).await })
        })
        .collect();
    while server.requests() == 0 {
        tokio::task::yield_now().await;
    }
    permits.add_permits(100);
    for one in flood {
        assert_eq!(one.await.unwrap(), invalid_token(UNKNOWN_KEY));
    }
    assert_eq!(server.requests(), 1);
}

#[tokio::test]
async fn requests_with_known_keys_do_not_wait_for_a_fetch() {
    let (signer, clock) = (Signer::ec(), FakeClock::default());
    let server = StandIn::start(set(&[signer.jwk(Some("1"))])).await;
    let by = Arc::new(scopes(&clock, &server));
    assert_eq!(scope_by(&by, &token(&signer, "1")).await, "j:alice");
    server.says(Reply::Hang(""));
    clock.advance_ms(10_000);
    let (waiting_by, unknown) = (by.clone(), token(&signer, "2"));
    let waiting = tokio::spawn(async move { refusal_of(&waiting_by, &unknown).await });
    while server.requests() < 2 {
        tokio::task::yield_now().await;
    }
    for _ in 0..10 {
        assert_eq!(scope_by(&by, &token(&signer, "1")).await, "j:alice");
    }
    assert!(!waiting.is_finished(), "the fetch still hangs");
    waiting.abort();
}

#[tokio::test]
async fn an_old_set_is_renewed_beside_the_requests_and_withdrawn_keys_go() {
    let (old, new, clock) = (Signer::ec(), Signer::ec(), FakeClock::default());
    let server = StandIn::start(set(&[old.jwk(Some("1"))])).await;
    let by = scopes(&clock, &server);
    assert_eq!(scope_by(&by, &token(&old, "1")).await, "j:alice");
    server.says(set(&[new.jwk(Some("2"))]));
    clock.advance_ms(300_000);
    assert_eq!(scope_by(&by, &token(&old, "1")).await, "j:alice", "nobody waits for the renewal");
    while server.requests() < 2 {
        tokio::task::yield_now().await;
    }
    // The unknown key waits for the renewal that runs, and starts no other.
    assert_eq!(scope_by(&by, &token(&new, "2")).await, "j:alice");
    assert_eq!(server.requests(), 2);
    assert_eq!(refusal_of(&by, &token(&old, "1")).await, invalid_token(UNKNOWN_KEY), "withdrawn");
}

#[tokio::test]
async fn keys_stay_in_use_while_the_url_is_away_or_talks_nonsense() {
    let (signer, other, clock) = (Signer::ec(), Signer::ec(), FakeClock::default());
    let server = StandIn::start(set(&[signer.jwk(Some("1"))])).await;
    let by = scopes(&clock, &server);
    assert_eq!(scope_by(&by, &token(&signer, "1")).await, "j:alice");
    let large = Reply::Answer(200, Vec::new(), vec![b' '; 1024 * 1024 + 1]);
    let hmac = set(&[Signer::with_secret(SECRET).jwk(Some("2"))]);
    let elsewhere = answer(302, &[("location", &server.url("/other"))]);
    let nonsense = [answer(500, &[]), answer(200, &[]), set(&[]), elsewhere, large, hmac, Reply::Cut("")];
    for reply in nonsense {
        server.says(reply);
        clock.advance_ms(300_000);
        assert_eq!(refusal_of(&by, &token(&other, "2")).await, unavailable(NO_KEYS));
        assert_eq!(scope_by(&by, &token(&signer, "1")).await, "j:alice");
    }
    server.says(set(&[other.jwk(Some("2"))]));
    clock.advance_ms(10_000);
    assert_eq!(scope_by(&by, &token(&other, "2")).await, "j:alice", "and it recovers by itself");
}

#[tokio::test]
async fn without_keys_yet_nobody_is_let_in() {
    let (signer, clock) = (Signer::ec(), FakeClock::default());
    let server = StandIn::start(answer(503, &[])).await;
    let by = scopes(&clock, &server);
    by.warm().await;
    assert_eq!(refusal_of(&by, &token(&signer, "1")).await, unavailable(NO_KEYS));
    assert_eq!(server.requests(), 1, "a moment ago it did not work");
    server.says(set(&[signer.jwk(Some("1"))]));
    clock.advance_ms(10_000);
    assert_eq!(scope_by(&by, &token(&signer, "1")).await, "j:alice");
}

#[tokio::test]
async fn a_caller_who_goes_away_does_not_end_the_fetch_for_the_others() {
    let (signer, clock, permits) = (Signer::ec(), FakeClock::default(), Arc::new(Semaphore::new(0)));
    let reply = set(&[signer.jwk(Some("1"))]);
    let server = StandIn::start(Reply::When(permits.clone(), Box::new(reply))).await;
    let by = Arc::new(scopes(&clock, &server));
    let (first_by, first_token) = (by.clone(), token(&signer, "1"));
    let first = tokio::spawn(async move { scope_by(&first_by, &first_token).await });
    while server.requests() == 0 {
        tokio::task::yield_now().await;
    }
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    permits.add_permits(1);
    assert_eq!(scope_by(&by, &token(&signer, "1")).await, "j:alice");
    assert_eq!(server.requests(), 1);
}

#[tokio::test]
async fn a_token_that_is_refused_anyway_fetches_nothing() {
    let (signer, clock) = (Signer::with_secret(SECRET), FakeClock::default());
    let server = StandIn::start(set(&[])).await;
    let by = scopes(&clock, &server);
    assert!(matches!(refusal_of(&by, &token(&signer, "1")).await, Refusal::Unauthorized { .. }));
    assert!(matches!(by.of(&post(&[])).await, Err(Refusal::Unauthorized { .. })));
    assert_eq!(server.requests(), 0);
}
