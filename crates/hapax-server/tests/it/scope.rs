//! Whose key it is: who gets which scope, who is refused with which words, and that no two callers share one.
//!
//! This file tests credentials, headers, composition and configuration; `scope/jwt.rs` tests tokens and `scope/ask.rs`
//! the authentication endpoint, both against a stand-in on the loopback interface.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

mod ask;
mod jwks_url;
mod jwt;
mod stand_in;
mod tokens;

use std::collections::BTreeMap;

use hapax_core::address::{Address, AddressScheme, Key, Space};
use hapax_server::scope::{
    AskOptions, Challenge, HeaderOrCookie, JwtKeys, Kind, Refusal, ScopeConfigError, ScopeOptions, Scopes,
};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Request};

/// The head of a POST with these header lines.
fn post(lines: &[(&str, &str)]) -> Parts {
    let bytes: Vec<(&str, &[u8])> = lines.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
    post_bytes(&bytes)
}

fn post_bytes(lines: &[(&str, &[u8])]) -> Parts {
    let mut request = Request::post("http://api.example.com/payments?a=1").body(()).unwrap();
    for (name, value) in lines {
        request.headers_mut().append(name.parse::<HeaderName>().unwrap(), HeaderValue::from_bytes(value).unwrap());
    }
    request.into_parts().0
}

fn scopes(kinds: &[Kind]) -> Scopes {
    Scopes::new(kinds.to_vec(), &ScopeOptions::default()).unwrap()
}

fn header(name: &'static str) -> Kind {
    Kind::Header(HeaderName::from_static(name))
}

fn secret_in(name: &'static str) -> Kind {
    Kind::CredentialIn(HeaderOrCookie::Header(HeaderName::from_static(name)))
}

async fn scope(scopes: &Scopes, lines: &[(&str, &str)]) -> String {
    scopes.of(&post(lines)).await.unwrap().as_str().to_owned()
}

async fn refusal(scopes: &Scopes, lines: &[(&str, &str)]) -> Refusal {
    scopes.of(&post(lines)).await.unwrap_err()
}

fn missing(detail: &str) -> Refusal {
    Refusal::Missing { detail: detail.to_owned() }
}

fn invalid(detail: &str) -> Refusal {
    Refusal::Invalid { detail: detail.to_owned() }
}

/// 401, with a challenge that names no error.
fn unauthorized(detail: &str) -> Refusal {
    Refusal::Unauthorized { detail: detail.to_owned(), challenge: Challenge::bearer() }
}

/// 401, for a token that is not accepted.
fn invalid_token(detail: &str) -> Refusal {
    Refusal::Unauthorized { detail: detail.to_owned(), challenge: Challenge::invalid_token(detail) }
}

fn unavailable(detail: &str) -> Refusal {
    Refusal::Unavailable { detail: detail.to_owned() }
}

const ABSENT: &str = "the request has no Authorization, so it cannot be said whose key this is; send the credentials \
                      that this API asks for";

mod credential {
    use super::*;

    #[tokio::test]
    async fn the_same_credential_is_the_same_caller_and_every_other_is_another() {
        let by = scopes(&[Kind::Credential]);
        let values = ["Bearer sk_1", "Bearer sk_2", "Bearer SK_1", "Basic sk_1", "Basic dTpw", "Basic dTpw="];
        let mut seen = BTreeMap::new();
        for value in values {
            let one = scope(&by, &[("authorization", value)]).await;
            assert_eq!(one, scope(&by, &[("Authorization", value)]).await);
            assert_eq!(seen.insert(one, value), None, "{value}");
        }
    }

    #[tokio::test]
    async fn the_scope_is_a_digest_that_shows_nothing_of_the_credential() {
        let shown = scope(&scopes(&[Kind::Credential]), &[("authorization", "Bearer sk_live_canary")]).await;
        let hex = shown.strip_prefix("c:").unwrap();
        assert!(hex.len() == 32 && hex.bytes().all(|byte| byte.is_ascii_hexdigit()), "{shown}");
    }

    #[tokio::test]
    async fn the_spelling_of_the_scheme_and_the_space_after_it_do_not_matter() {
        let by = scopes(&[Kind::Credential]);
        let one = scope(&by, &[("authorization", "Bearer sk_1")]).await;
        assert_eq!(one, scope(&by, &[("authorization", "bEARER   sk_1")]).await);
    }

    #[tokio::test]
    async fn a_salt_changes_every_digest_and_the_scheme() {
        let salted = |byte| scopes(&[Kind::Credential]).with_salt([byte; 32]);
        let lines = [("authorization", "Basic dTpw")];
        let all = [
            scope(&scopes(&[Kind::Credential]), &lines).await,
            scope(&salted(1), &lines).await,
            scope(&salted(2), &lines).await,
        ];
        assert!(all[0] != all[1] && all[1] != all[2] && all[0] != all[2], "{all:?}");
        assert_eq!(all[1], scope(&salted(1), &lines).await);
        assert_ne!(salted(1).scheme(), salted(2).scheme());
        assert!(!format!("{:?}", salted(1)).contains("0101"), "the salt is not shown");
    }

    #[tokio::test]
    async fn no_credential_is_unauthorized_and_told_nothing_of_the_configuration() {
        assert_eq!(refusal(&scopes(&[Kind::Credential]), &[]).await, unauthorized(ABSENT));
        // What a caller claims elsewhere is no credential.
        let claims = [("x-tenant", "acme"), ("x-forwarded-for", "10.0.0.1"), ("cookie", "session=1")];
        assert_eq!(refusal(&scopes(&[Kind::Credential]), &claims).await, unauthorized(ABSENT));
    }

    #[tokio::test]
    async fn two_lines_empty_values_and_lists_are_refused() {
        let by = scopes(&[Kind::Credential]);
        let cases: [(&[(&str, &str)], &str); 8] = [
            (
                &[("authorization", "Bearer a"), ("authorization", "Bearer a")],
                "the request has `Authorization` more than once; send it once",
            ),
            (&[("authorization", "")], "`Authorization` is empty; send a value"),
            (
                &[("authorization", "Bearer")],
                "the Authorization has a scheme but no credential; send one after the scheme",
            ),
            (
                &[("authorization", "Bearer a, Bearer b")],
                "the Authorization holds more than one credential; send exactly one",
            ),
            (&[("authorization", "Bearer a,b")], "the Authorization holds more than one credential; send exactly one"),
            (&[("authorization", "Bearer a b")], "the Authorization holds more than one credential; send exactly one"),
            (
                &[("authorization", "Bearer a\u{e9}")],
                "the Authorization holds more than one credential; send exactly one",
            ),
            (&[("authorization", " Bearer a")], "the value of `Authorization` has white space around it; remove it"),
        ];
        for (lines, detail) in cases {
            let is_missing = detail.contains("is empty") || detail.contains("but no credential");
            let expected = if is_missing { unauthorized(detail) } else { invalid(detail) };
            assert_eq!(refusal(&by, lines).await, expected, "{lines:?}");
        }
    }

    #[tokio::test]
    async fn schemes_that_sign_every_request_are_refused_by_name() {
        let by = scopes(&[Kind::Credential]);
        for name in ["AWS4-HMAC-SHA256", "DPoP", "Digest", "Signature", "Hawk", "OAuth"] {
            let value = format!("{} keyId=\"canary\", signature=\"canary\"", name.to_lowercase());
            let detail = format!(
                "the Authorization scheme {name} signs every request anew, so a retry could not be recognised by it; send \
                 Basic or Bearer credentials"
            );
            assert_eq!(refusal(&by, &[("authorization", &value)]).await, invalid(&detail));
        }
    }

    #[tokio::test]
    async fn unknown_schemes_are_refused_without_repeating_what_may_be_a_secret() {
        let detail = "the Authorization is neither Basic nor Bearer, so it may change between a request and its retry; \
                      send Basic or Bearer credentials";
        for value in ["sk_live_canary", "Token canary", "Negotiate canary", "Bearer\tcanary", "Basiccanary x"] {
            let refused = refusal(&scopes(&[Kind::Credential]), &[("authorization", value)]).await;
            assert_eq!(refused, invalid(detail), "{value}");
        }
    }

    #[tokio::test]
    async fn a_json_web_token_is_refused_as_one_that_changes() {
        // {"alg":"RS256"}, {"alg":"none"}, and an encrypted one.
        let tokens = ["eyJhbGciOiJSUzI1NiJ9.e30.c2ln", "eyJhbGciOiJub25lIn0.e30.", "eyJhbGciOiJSUzI1NiJ9.a.b.c.d"];
        for token in tokens {
            let refused = refusal(&scopes(&[Kind::Credential]), &[("authorization", &format!("Bearer {token}"))]).await;
            assert_eq!(
                refused,
                invalid(
                    "the credential in `Authorization` is a JSON Web Token, which is renewed, so a retry could carry \
                     another one; send a credential that stays the same, or ask the operator of this API to accept \
                     tokens"
                )
            );
            let refused = refusal(&scopes(&[secret_in("x-api-key")]), &[("x-api-key", token)]).await;
            assert!(matches!(refused, Refusal::Invalid { .. }), "{refused:?}");
        }
        let by = scopes(&[Kind::Credential]);
        assert!(by.of(&post(&[("authorization", "Bearer not.a.token")])).await.is_ok(), "opaque, with dots");
    }

    #[tokio::test]
    async fn a_json_web_token_is_refused_also_behind_a_scheme_or_in_basic_credentials() {
        let token = "eyJhbGciOiJSUzI1NiJ9.e30.c2ln";
        // user:<token>, <token>:, and user:<token> with a sign of the standard alphabet.
        let user = "dXNlcjpleUpoYkdjaU9pSlNVekkxTmlKOS5lMzAuYzJsbg==";
        let alone = "ZXlKaGJHY2lPaUpTVXpJMU5pSjkuZTMwLmMybG46";
        let standard = "fn5+OmV5SmhiR2NpT2lKU1V6STFOaUo5LmUzMC5jMmxu";
        let by = scopes(&[Kind::Credential]);
        let by_field = scopes(&[secret_in("x-auth")]);
        for basic in [user, user.trim_end_matches('='), alone, standard] {
            let value = format!("Basic {basic}");
            let refused = refusal(&by, &[("authorization", &value)]).await;
            assert!(matches!(refused, Refusal::Invalid { .. }), "{value}: {refused:?}");
            let refused =
                refusal(&by_field, &[("x-auth", &value.to_lowercase().replace(&basic.to_lowercase(), basic))]).await;
            assert!(matches!(refused, Refusal::Invalid { .. }), "{value}: {refused:?}");
        }
        for before in ["Bearer ", "bearer  ", "Token ", "JWT "] {
            let refused = refusal(&by_field, &[("x-auth", &format!("{before}{token}"))]).await;
            let words = "the credential in `x-auth` is a JSON Web Token, which is renewed, so a retry could carry \
                         another one; send a credential that stays the same, or ask the operator of this API to accept \
                         tokens";
            assert_eq!(refused, invalid(words), "{before}");
        }
        let by_cookie = scopes(&[Kind::CredentialIn(HeaderOrCookie::Cookie("sid".into()))]);
        let refused = refusal(&by_cookie, &[("cookie", &format!("sid=Bearer {token}"))]).await;
        assert!(matches!(refused, Refusal::Invalid { .. }), "{refused:?}");
        // user:password, something that is no base64, and opaque secrets behind a scheme stay what they are.
        for value in ["Basic dXNlcjpwYXNzd29yZA==", "Basic ***"] {
            assert!(by.of(&post(&[("authorization", value)])).await.is_ok(), "{value}");
        }
        assert!(by_field.of(&post(&[("x-auth", "Bearer sk_live_1")])).await.is_ok());
    }

    #[tokio::test]
    async fn a_credential_of_100_kb_is_refused() {
        let value = format!("Bearer {}", "k".repeat(100 * 1024));
        let refused = refusal(&scopes(&[Kind::Credential]), &[("authorization", &value)]).await;
        assert_eq!(refused, invalid("the credential in `Authorization` is over 16 KiB; send a shorter one"));
    }

    #[tokio::test]
    async fn a_secret_in_a_header_or_cookie_of_its_own_is_digested() {
        let by_header = scopes(&[secret_in("x-api-key")]);
        let by_cookie = scopes(&[Kind::CredentialIn(HeaderOrCookie::Cookie("sid".into()))]);
        let one = scope(&by_header, &[("X-Api-Key", "k1"), ("authorization", "Bearer ignored")]).await;
        assert!(one.starts_with("c:"));
        assert_ne!(one, scope(&by_header, &[("x-api-key", "K1")]).await);
        let other = scope(&by_cookie, &[("cookie", "theme=dark; sid=k1")]).await;
        assert_ne!(one, other, "the same value elsewhere is another secret");
        assert_eq!(other, scope(&by_cookie, &[("cookie", "sid=k1"), ("cookie", "theme=light")]).await);

        let twice = [("x-api-key", "k1"), ("x-api-key", "k1")];
        let detail = "the request has `x-api-key` more than once; send it once";
        assert_eq!(refusal(&by_header, &twice).await, invalid(detail));
        let asks_for = |of: &Refusal, challenge: &str| match of {
            Refusal::Unauthorized { challenge: asked, .. } => asked.value() == challenge,
            _ => false,
        };
        let absent = refusal(&by_header, &[]).await;
        assert_eq!(absent.detail(), "the request has no `x-api-key`; send it");
        assert!(asks_for(&absent, "ApiKey realm=\"api\", header=\"x-api-key\""), "{absent:?}");
        assert!(asks_for(&refusal(&by_cookie, &[]).await, "Cookie realm=\"api\", cookie-name=\"sid\""));
        let detail = "the request has `cookie:sid` more than once; send it once";
        assert_eq!(refusal(&by_cookie, &[("cookie", "sid=a; sid=b")]).await, invalid(detail));
    }
}

mod anonymous {
    use super::*;

    fn anonymous(kinds: &[Kind]) -> Scopes {
        Scopes::new(kinds.to_vec(), &ScopeOptions { anonymous: true, ..ScopeOptions::default() }).unwrap()
    }

    #[tokio::test]
    async fn requests_without_a_credential_share_a_scope_only_where_that_is_configured() {
        let by = anonymous(&[Kind::Credential]);
        assert_eq!(scope(&by, &[]).await, "anonymous");
        assert_ne!(scope(&by, &[("authorization", "Bearer anonymous")]).await, "anonymous");
        assert_eq!(scope(&anonymous(&[secret_in("x-api-key")]), &[]).await, "anonymous");
    }

    #[tokio::test]
    async fn what_is_sent_but_cannot_be_used_never_falls_back_to_anonymous() {
        let by = anonymous(&[Kind::Credential]);
        for value in ["", "Bearer", "Token x", "DPoP x", "Bearer eyJhbGciOiJSUzI1NiJ9.e30.c2ln"] {
            let refused = refusal(&by, &[("authorization", value)]).await;
            assert!(matches!(refused, Refusal::Invalid { .. } | Refusal::Unauthorized { .. }), "{value}: {refused:?}");
        }
        let by = anonymous(&[secret_in("x-api-key")]);
        assert!(matches!(refusal(&by, &[("x-api-key", "")]).await, Refusal::Unauthorized { .. }));
    }

    #[tokio::test]
    async fn the_other_kinds_still_tell_anonymous_callers_apart() {
        let by = anonymous(&[Kind::Credential, header("x-tenant")]);
        let (a, b) = (scope(&by, &[("x-tenant", "a")]).await, scope(&by, &[("x-tenant", "b")]).await);
        assert!(a.starts_with("m:") && a != b);
        assert!(matches!(refusal(&by, &[]).await, Refusal::Missing { .. }));
    }

    #[test]
    fn anonymous_without_a_credential_kind_is_refused_at_start() {
        let options = ScopeOptions { anonymous: true, ..ScopeOptions::default() };
        let error = Scopes::new(vec![Kind::Single], &options).unwrap_err();
        assert!(matches!(error, ScopeConfigError::AnonymousWithoutCredential));
    }
}

mod named {
    use super::*;

    #[tokio::test]
    async fn the_name_stays_readable_and_is_compared_byte_by_byte() {
        let by = scopes(&[header("x-tenant")]);
        assert_eq!(scope(&by, &[("X-TENANT", "acme")]).await, "h:acme");
        // Case, Unicode in two normal forms, look-alikes, inner white space: all different.
        let variants = ["acme", "Acme", "ACME", "ac me", "ac  me", "\u{e9}", "e\u{301}", "\u{430}cme", "acme\u{200b}"];
        let mut seen = BTreeMap::new();
        for variant in variants {
            assert_eq!(seen.insert(scope(&by, &[("x-tenant", variant)]).await, variant), None, "{variant}");
        }
    }

    #[tokio::test]
    async fn missing_repeated_empty_and_padded_names_are_refused() {
        let by = scopes(&[header("x-tenant")]);
        let detail = "the request has no `x-tenant`, which the gateway in front has to set; send requests through the \
                      gateway";
        assert_eq!(refusal(&by, &[]).await, missing(detail));
        let twice = [("x-tenant", "acme"), ("X-Tenant", "evil")];
        let detail = "the request has `x-tenant` more than once; send it once";
        assert_eq!(refusal(&by, &twice).await, invalid(detail));
        assert_eq!(refusal(&by, &[("x-tenant", "")]).await, invalid("`x-tenant` is empty; send a value"));
        for padded in [" acme", "acme ", "\tacme"] {
            let detail = "the value of `x-tenant` has white space around it; remove it";
            assert_eq!(refusal(&by, &[("x-tenant", padded)]).await, invalid(detail));
        }
    }

    #[tokio::test]
    async fn a_name_that_does_not_fit_a_scope_is_digested_and_still_its_own() {
        let by = scopes(&[header("x-tenant")]);
        let long = |last: &str| format!("{}{last}", "x".repeat(300));
        let one = scope(&by, &[("x-tenant", &long("a"))]).await;
        assert!(one.starts_with("m:") && one != scope(&by, &[("x-tenant", &long("b"))]).await);
        let bytes = by.of(&post_bytes(&[("x-tenant", &[0xff, 0xfe])])).await.unwrap();
        assert!(bytes.as_str().starts_with("m:"));
    }

    #[tokio::test]
    async fn no_name_can_pass_for_a_digest_or_for_another_kind() {
        let by = scopes(&[header("x-tenant")]);
        let credential = scope(&scopes(&[Kind::Credential]), &[("authorization", "Bearer sk_1")]).await;
        for forged in [credential.as_str(), "single", "anonymous", "a:acme", "j:acme", "m:0"] {
            assert_eq!(scope(&by, &[("x-tenant", forged)]).await, format!("h:{forged}"));
        }
    }
}

mod composition {
    use super::*;

    #[tokio::test]
    async fn every_part_and_their_order_count() {
        let by = scopes(&[Kind::Credential, header("stripe-account")]);
        let of = async |credential: &str, account: &str| {
            scope(&by, &[("authorization", credential), ("stripe-account", account)]).await
        };
        let one = of("Bearer sk_1", "acct_1").await;
        assert!(one.starts_with("m:") && one.len() == 34, "{one}");
        assert_eq!(one, of("Bearer sk_1", "acct_1").await);
        assert_ne!(one, of("Bearer sk_2", "acct_1").await);
        assert_ne!(one, of("Bearer sk_1", "acct_2").await);
        let turned = scopes(&[header("stripe-account"), Kind::Credential]);
        assert_ne!(one, scope(&turned, &[("authorization", "Bearer sk_1"), ("stripe-account", "acct_1")]).await);
    }

    #[tokio::test]
    async fn parts_and_keys_do_not_run_into_one_another() {
        let by = scopes(&[header("x-tenant"), header("x-user")]);
        let of = async |tenant: &str, user: &str| scope(&by, &[("x-tenant", tenant), ("x-user", user)]).await;
        assert_ne!(of("a:b", "c").await, of("a", "b:c").await);
        assert_ne!(of("ab", "c").await, of("a", "bc").await);
        assert_ne!(of("a", "b").await, of("b", "a").await);

        // The same attack with a tenant and a key.
        let alone = scopes(&[header("x-tenant")]);
        let address = async |tenant: &str, key: &str| {
            let scope = alone.of(&post(&[("x-tenant", tenant)])).await.unwrap();
            let (scheme, space) = (AddressScheme::new(&alone.scheme()).unwrap(), Space::new("http").unwrap());
            *Address::new(&scheme, &space, &scope, &Key::new(key).unwrap()).id()
        };
        assert_ne!(address("a:b", "c").await, address("a", "b:c").await);
        assert_ne!(address("a", "1b").await, address("a1", "b").await);
    }

    #[tokio::test]
    async fn one_missing_part_refuses_the_request() {
        let by = scopes(&[Kind::Credential, header("stripe-account")]);
        assert!(matches!(refusal(&by, &[("authorization", "Bearer a")]).await, Refusal::Missing { .. }));
        assert!(matches!(refusal(&by, &[("stripe-account", "a")]).await, Refusal::Unauthorized { .. }));
    }

    #[tokio::test]
    async fn two_hundred_tenants_with_two_users_each_never_meet() {
        let by = scopes(&[header("x-tenant"), header("x-user")]);
        let mut seen = BTreeMap::new();
        for tenant in 0..200 {
            for user in 0..2 {
                let lines = [("x-tenant", format!("t{tenant}")), ("x-user", format!("{user}"))];
                let lines: Vec<(&str, &str)> = lines.iter().map(|(name, value)| (*name, value.as_str())).collect();
                assert_eq!(seen.insert(scope(&by, &lines).await, (tenant, user)), None);
            }
        }
    }

    #[tokio::test]
    async fn single_is_one_tenant_said_out_loud() {
        let by = scopes(&[Kind::Single]);
        assert_eq!(scope(&by, &[]).await, "single");
        assert_eq!(scope(&by, &[("authorization", "Bearer a")]).await, "single");
    }
}

mod configuration {
    use super::*;

    fn error(kinds: Vec<Kind>) -> String {
        Scopes::new(kinds, &ScopeOptions::default()).unwrap_err().to_string()
    }

    #[test]
    fn contradictions_are_refused_at_start() {
        assert_eq!(error(vec![]), "no scope kind is given; name at least one, for example scope = [\"credential\"]");
        assert_eq!(
            error(vec![Kind::Single, Kind::Credential]),
            "`single` cannot be combined with other scope kinds; remove it, or remove the others"
        );
        assert_eq!(
            error(vec![header("x-tenant"), header("x-tenant")]),
            "the scope kind `header:x-tenant` is given twice; remove one"
        );
        let many = ["h1", "h2", "h3", "h4", "h5", "h6", "h7", "h8", "h9"];
        assert_eq!(error(many.map(header).to_vec()), "9 scope kinds are given; at most 8 are accepted, so remove some");
    }

    #[test]
    fn headers_that_cannot_say_who_calls_are_refused_at_start() {
        assert_eq!(
            error(vec![header("authorization")]),
            "`header:authorization` cannot be a scope kind: it has rules of its own; use `credential`, or `jwt`"
        );
        assert_eq!(
            error(vec![secret_in("cookie")]),
            "`credential:cookie` cannot be a scope kind: it holds many values, of which some change; name the one cookie \
             that holds the secret"
        );
        assert_eq!(
            error(vec![header("idempotency-key")]),
            "`header:idempotency-key` cannot be a scope kind: it is the key, and says nothing of who sends it; use \
             `credential`"
        );
        assert!(error(vec![header("proxy-authorization")]).contains("not meant for the upstream"));
        for name in ["", "a=b", "a;b", "a b"] {
            let kind = Kind::CredentialIn(HeaderOrCookie::Cookie(name.into()));
            assert!(error(vec![kind]).contains("a cookie cannot have this name"), "{name}");
        }
    }

    #[test]
    fn secrets_in_urls_are_not_shown() {
        let tenant = HeaderName::from_static("x-tenant");
        let keys = |url: &str| JwtKeys::SetUrl { url: url.into(), ca_file: None };
        for url in ["https://h/p?key=canary", "https://canary:canary@h/p?key=canary"] {
            let shown = format!("{:?} {:?}", Kind::Ask(AskOptions::new(url, tenant.clone())), keys(url));
            assert!(!shown.contains("canary"), "{shown}");
        }
    }

    #[test]
    fn the_scheme_names_the_kinds_in_order_and_fits_an_address() {
        let scheme = |kinds: &[Kind]| scopes(kinds).scheme();
        assert_eq!(scheme(&[Kind::Credential]), "credential");
        assert_eq!(scheme(&[Kind::Credential, header("stripe-account")]), "credential,header:stripe-account");
        assert_eq!(scheme(&[secret_in("x-api-key")]), "credential:x-api-key");
        assert_eq!(scheme(&[Kind::CredentialIn(HeaderOrCookie::Cookie("sid".into()))]), "credential:cookie:sid");
        assert_eq!(scheme(&[Kind::Single]), "single");
        let ask = AskOptions::new("http://127.0.0.1:1/?secret=canary", HeaderName::from_static("x-tenant"));
        let other = AskOptions { tenant_header: HeaderName::from_static("x-org"), ..ask.clone() };
        assert_eq!((scheme(&[Kind::Ask(ask)]), scheme(&[Kind::Ask(other)])), ("ask".into(), "ask:x-org".into()));

        let long = [header("x-a-very-long-name-of-a-tenant"), header("x-a-very-long-name-of-a-user")];
        let turned = [long[1].clone(), long[0].clone()];
        assert!(scheme(&long).starts_with("kinds:") && scheme(&long) != scheme(&turned));
        let salted = scopes(&long).with_salt([9; 32]).scheme();
        assert!(salted.len() <= 46 && AddressScheme::new(&salted).is_ok(), "{salted}");
    }
}
