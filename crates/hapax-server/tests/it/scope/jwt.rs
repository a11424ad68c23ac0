//! The kind `jwt` with keys from files: which tokens count, and every way in which one does not.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use hapax_server::scope::{HeaderOrCookie, JwtAlgorithm, JwtKeys, JwtOptions, Kind, Refusal, ScopeOptions, Scopes};
use hapax_testkit::clock::FakeClock;
use serde_json::{Value, json};

use super::tokens::{NOW_S, RSA, SECRET, Signer, base64url, claims, claims_with, file, set_of};
use super::{invalid, invalid_token, refusal, scope, unauthorized};

pub(crate) fn scopes_at(clock: &FakeClock, options: JwtOptions) -> Scopes {
    let all = ScopeOptions { clock: Arc::new(clock.clone()), ..ScopeOptions::default() };
    Scopes::new(vec![Kind::Jwt(options)], &all).unwrap()
}

fn scopes(options: JwtOptions) -> Scopes {
    scopes_at(&FakeClock::default(), options)
}

fn with_key(signer: &Signer, algorithm: JwtAlgorithm) -> JwtOptions {
    JwtOptions::new(JwtKeys::File(file(&signer.public)), vec![algorithm])
}

fn with_secret() -> (Signer, JwtOptions) {
    let signer = Signer::with_secret(SECRET);
    let options = with_key(&signer, JwtAlgorithm::Hs256);
    (signer, options)
}

pub(crate) async fn scope_by(by: &Scopes, token: &str) -> String {
    scope(by, &[("authorization", &format!("Bearer {token}"))]).await
}

pub(crate) async fn refusal_of(by: &Scopes, token: &str) -> Refusal {
    refusal(by, &[("authorization", &format!("Bearer {token}"))]).await
}

const BAD_SIGNATURE: &str = "the signature of the token does not fit; send the token unchanged";
const BAD_SHAPE: &str = "the credential is not a signed JSON Web Token; send one";
const UNKNOWN_KEY: &str = "the token is signed with a key that is not known; get a new token";

mod accepted {
    use super::*;

    #[tokio::test]
    async fn all_four_algorithms_verify_with_a_key_file() {
        let hs = Signer::with_secret(SECRET);
        let cases = [
            (&hs, JwtAlgorithm::Hs256),
            (&*RSA, JwtAlgorithm::Rs256),
            (&Signer::ec(), JwtAlgorithm::Es256),
            (&Signer::ed(), JwtAlgorithm::EdDsa),
        ];
        for (signer, algorithm) in cases {
            let by = scopes(with_key(signer, algorithm));
            assert_eq!(scope_by(&by, &signer.sign(None, &claims())).await, "j:alice", "{algorithm:?}");
            let by_kid = signer.sign(Some("k1"), &claims());
            assert_eq!(scope_by(&by, &by_kid).await, "j:alice", "a key without an id fits any id");
        }
    }

    #[tokio::test]
    async fn a_set_in_a_file_is_searched_by_key_id_and_algorithm() {
        let (ec, ed, hs) = (Signer::ec(), Signer::ed(), Signer::with_secret(SECRET));
        let unknown = json!({ "kty": "XYZ", "kid": "x", "alg": "FUTURE" });
        let keys = [unknown, ec.jwk(Some("ec")), ed.jwk(None), RSA.jwk(Some("rsa")), hs.jwk(Some("hs"))];
        let path = file(set_of(&keys));
        let all = vec![JwtAlgorithm::Hs256, JwtAlgorithm::Rs256, JwtAlgorithm::Es256, JwtAlgorithm::EdDsa];
        let by = scopes(JwtOptions::new(JwtKeys::SetFile(path), all));
        for (signer, kid) in [(&ec, "ec"), (&ed, "any"), (&*RSA, "rsa"), (&hs, "hs")] {
            assert_eq!(scope_by(&by, &signer.sign(Some(kid), &claims())).await, "j:alice", "{kid}");
            assert_eq!(scope_by(&by, &signer.sign(None, &claims())).await, "j:alice", "{kid}");
        }
        assert_eq!(refusal_of(&by, &ec.sign(Some("rsa"), &claims())).await, invalid_token(UNKNOWN_KEY));
        assert_eq!(refusal_of(&by, &Signer::ec().sign(Some("ec"), &claims())).await, invalid_token(BAD_SIGNATURE));
    }

    #[tokio::test]
    async fn a_renewed_token_is_the_same_caller_and_another_subject_is_another() {
        let (signer, options) = with_secret();
        let by = scopes(options);
        let renewed = json!({ "sub": "alice", "exp": NOW_S + 3600, "iat": NOW_S, "jti": "2" });
        assert_eq!(scope_by(&by, &signer.sign(None, &renewed)).await, "j:alice");
        for other in ["Alice", "alice ", "al\u{ed}ce"] {
            let token = signer.sign(None, &claims_with("sub", Some(json!(other))));
            assert_eq!(scope_by(&by, &token).await, format!("j:{other}"));
        }
        let long = signer.sign(None, &claims_with("sub", Some(json!("x".repeat(300)))));
        assert!(scope_by(&by, &long).await.starts_with("m:"));
    }

    #[tokio::test]
    async fn another_claim_and_another_place_can_be_configured() {
        let (signer, options) = with_secret();
        let token = signer.sign(None, &claims_with("https://example.com/tenant", Some(json!("acme"))));
        let claim = "https://example.com/tenant".to_owned();
        let from = Some(HeaderOrCookie::Cookie("session".into()));
        let by = scopes(JwtOptions { claim, from, ..options });
        assert_eq!(scope(&by, &[("cookie", &format!("session={token}"))]).await, "j:acme");
        let detail = "the request has no `cookie:session`; send it";
        assert_eq!(refusal(&by, &[("authorization", &format!("Bearer {token}"))]).await, unauthorized(detail));
    }

    #[tokio::test]
    async fn the_subjects_of_two_issuers_never_meet() {
        let (signer, options) = with_secret();
        let token = |issuer: Option<Value>| signer.sign(None, &claims_with("iss", issuer));
        let two = JwtOptions { issuers: vec!["one".into(), "two".into()], ..options.clone() };
        let one = JwtOptions { issuers: vec!["one".into()], ..options.clone() };
        let by = scopes(two);
        let (of_one, of_two) =
            (scope_by(&by, &token(Some(json!("one")))).await, scope_by(&by, &token(Some(json!("two")))).await);
        assert!(of_one != of_two && of_one.starts_with("m:"), "{of_one} {of_two}");
        assert_eq!(scope_by(&scopes(one.clone()), &token(Some(json!("one")))).await, "j:alice");
        // None configured: whoever the key verifies, each apart.
        let any = scopes(options);
        assert_eq!(scope_by(&any, &token(Some(json!("one")))).await, of_one);
        assert_eq!(scope_by(&any, &token(None)).await, "j:alice");
        let other = JwtOptions { issuers: vec!["two".into()], ..one.clone() };
        assert_eq!(any.scheme(), "jwt:iss+sub");
        assert!(scopes(one.clone()).scheme().starts_with("jwt:sub@"), "the scope itself does not name the issuer");
        assert_ne!(scopes(one).scheme(), scopes(other).scheme());
    }
}

mod forged {
    use super::*;

    #[tokio::test]
    async fn no_algorithm_at_all_is_refused() {
        let (_, options) = with_secret();
        let by = scopes(options);
        for name in ["none", "None", "NONE", "nOnE", "", "HS512", "hs256"] {
            let header = json!({ "alg": name, "typ": "JWT" }).to_string();
            let token = format!("{}.{}.", base64url(header.as_bytes()), base64url(claims().to_string().as_bytes()));
            let detail = "the token is signed in a way that is not accepted; send one signed with HS256";
            assert_eq!(refusal_of(&by, &token).await, invalid_token(detail), "{name}");
        }
        let unsigned = format!("{}.{}.", base64url(br#"{"alg":"HS256"}"#), base64url(claims().to_string().as_bytes()));
        assert_eq!(refusal_of(&by, &unsigned).await, invalid_token(BAD_SIGNATURE));
    }

    #[tokio::test]
    async fn a_public_key_is_never_used_as_a_secret() {
        let by = scopes(with_key(&RSA, JwtAlgorithm::Rs256));
        let forger = Signer::with_secret(&RSA.public);
        let detail = "the token is signed in a way that is not accepted; send one signed with RS256";
        assert_eq!(refusal_of(&by, &forger.sign(None, &claims())).await, invalid_token(detail));
        let relabelled = forger.sign_raw(r#"{"alg":"RS256"}"#, &claims().to_string());
        assert_eq!(refusal_of(&by, &relabelled).await, invalid_token(BAD_SIGNATURE));

        // Both algorithms accepted, each with a key of its own: the RSA key still serves RS256 only.
        let path = file(set_of(&[RSA.jwk(Some("rsa")), Signer::with_secret(SECRET).jwk(Some("hs"))]));
        let both = vec![JwtAlgorithm::Hs256, JwtAlgorithm::Rs256];
        let by = scopes(JwtOptions::new(JwtKeys::SetFile(path), both));
        assert_eq!(refusal_of(&by, &forger.sign(Some("rsa"), &claims())).await, invalid_token(UNKNOWN_KEY));
        assert_eq!(refusal_of(&by, &forger.sign(Some("hs"), &claims())).await, invalid_token(BAD_SIGNATURE));
        assert_eq!(refusal_of(&by, &forger.sign(None, &claims())).await, invalid_token(BAD_SIGNATURE));
    }

    #[tokio::test]
    async fn a_key_that_the_token_brings_along_is_not_used() {
        let by = scopes(with_key(&Signer::ec(), JwtAlgorithm::Es256));
        let forger = Signer::ec();
        let with = |name: &str, value: Value| {
            let mut header = json!({ "alg": "ES256", "typ": "JWT" });
            header[name] = value;
            forger.sign_raw(&header.to_string(), &claims().to_string())
        };
        assert_eq!(refusal_of(&by, &with("jwk", forger.jwk(None))).await, invalid_token(BAD_SIGNATURE));
        let elsewhere = json!("http://127.0.0.1:1/keys");
        assert_eq!(refusal_of(&by, &with("jku", elsewhere)).await, invalid_token(BAD_SIGNATURE));
    }

    #[tokio::test]
    async fn changed_claims_and_changed_signatures_do_not_fit() {
        let (signer, options) = with_secret();
        let by = scopes(options);
        let token = signer.sign(None, &claims());
        let parts: Vec<&str> = token.split('.').collect();
        let evil = base64url(claims_with("sub", Some(json!("bob"))).to_string().as_bytes());
        let last = if parts[2].starts_with('A') { "B" } else { "A" };
        for forged in [
            format!("{}.{evil}.{}", parts[0], parts[2]),
            format!("{}.{}.{last}{}", parts[0], parts[1], &parts[2][1..]),
            format!("{}.{}.{}", parts[0], parts[1], &parts[2][..20]),
            format!("{}.{}.{}", parts[0], parts[1], parts[2].repeat(2)),
            Signer::with_secret("another secret of thirty-two bytes").sign(None, &claims()),
        ] {
            assert_eq!(refusal_of(&by, &forged).await, invalid_token(BAD_SIGNATURE), "{forged}");
        }
    }

    #[tokio::test]
    async fn what_is_no_token_is_refused_unread() {
        let (signer, options) = with_secret();
        let by = scopes(options);
        let good = signer.sign(None, &claims());
        let deep = base64url(format!("{{\"alg\":{}", "[".repeat(5_000)).as_bytes());
        let odd = [
            "opaque".to_owned(),
            "a.b".to_owned(),
            "..".to_owned(),
            "!!!.e30.c2ln".to_owned(),
            good.replace('.', "+"),
            format!("{good}.more"),
            format!("{good}!"),
            format!("{}.e30.c2ln", base64url(b"not json")),
            format!("{}.e30.c2ln", base64url(b"[\"alg\"]")),
            format!("{deep}.e30.c2ln"),
        ];
        for token in odd {
            assert_eq!(refusal_of(&by, &token).await, invalid_token(BAD_SHAPE), "{token}");
        }
        let huge = signer.sign(None, &claims_with("x", Some(json!("x".repeat(75 * 1024)))));
        assert!(huge.len() > 100 * 1024 - 100);
        assert_eq!(refusal_of(&by, &huge).await, invalid_token("the token is over 16 KiB; send a shorter one"));
        let encrypted = format!("{}.a.b.c.d", base64url(br#"{"alg":"HS256","enc":"A128GCM"}"#));
        assert_eq!(refusal_of(&by, &encrypted).await, invalid_token(BAD_SHAPE));
        let critical = signer.sign_raw(r#"{"alg":"HS256","crit":["b64"],"b64":false}"#, &claims().to_string());
        let detail = "the token has extensions that are not known; send one without `crit`";
        assert_eq!(refusal_of(&by, &critical).await, invalid_token(detail));
        // A payload that is signed and yet is no object.
        for payload in ["[]", "\"alice\"", "not json", ""] {
            let token = signer.sign_raw(r#"{"alg":"HS256"}"#, payload);
            let detail = "the token holds no claims; send one that does";
            assert_eq!(refusal_of(&by, &token).await, invalid_token(detail), "{payload}");
        }
    }

    #[tokio::test]
    async fn requests_without_exactly_one_bearer_token_are_refused() {
        let (signer, options) = with_secret();
        let by = scopes(options);
        let bearer = format!("Bearer {}", signer.sign(None, &claims()));
        let detail = "the request has no Authorization; send `Authorization: Bearer <token>`";
        assert_eq!(refusal(&by, &[]).await, unauthorized(detail));
        let twice = [("authorization", bearer.as_str()), ("authorization", bearer.as_str())];
        assert_eq!(refusal(&by, &twice).await, invalid("the request has `Authorization` more than once; send it once"));
        let detail = "the Authorization is not a bearer token; send `Authorization: Bearer <token>`";
        assert_eq!(refusal(&by, &[("authorization", "Basic dTpw")]).await, unauthorized(detail));
        let with_proof = bearer.replace("Bearer", "DPoP");
        let refused = refusal(&by, &[("authorization", &with_proof)]).await;
        assert_eq!(refused, unauthorized(detail));
    }
}

mod claimed {
    use super::*;

    /// The refusal of a token with that claim.
    async fn refused(by: &Scopes, name: &str, value: Option<Value>) -> Refusal {
        refusal_of(by, &Signer::with_secret(SECRET).sign(None, &claims_with(name, value))).await
    }

    #[tokio::test]
    async fn a_token_expires_half_a_minute_late_and_a_retry_with_it_is_refused() {
        let clock = FakeClock::default();
        let (signer, options) = with_secret();
        let by = scopes_at(&clock, options);
        let token = signer.sign(None, &claims());
        clock.advance_ms(89_999);
        assert_eq!(scope_by(&by, &token).await, "j:alice");
        clock.advance_ms(1);
        let detail = "the token has expired; get a new one and retry with the same key";
        assert_eq!(refusal_of(&by, &token).await, invalid_token(detail));
        let renewed = signer.sign(None, &claims_with("exp", Some(json!(NOW_S + 600))));
        assert_eq!(scope_by(&by, &renewed).await, "j:alice", "the retry with a new token is the same caller's");
    }

    #[tokio::test]
    async fn a_token_must_say_when_it_expires_in_numbers() {
        let by = scopes(with_secret().1);
        let detail = "the token does not say when it expires; send one with `exp`";
        for exp in [None, Some(json!("1800000000")), Some(json!(null)), Some(json!([NOW_S + 60])), Some(json!(true))] {
            assert_eq!(refused(&by, "exp", exp.clone()).await, invalid_token(detail), "{exp:?}");
        }
        let late = invalid_token("the token has expired; get a new one and retry with the same key");
        for exp in [json!(0), json!(-1), json!(-1e300)] {
            assert_eq!(refused(&by, "exp", Some(exp)).await, late);
        }
        let fraction = claims_with("exp", Some(json!(NOW_S as f64 + 0.5)));
        assert_eq!(scope_by(&by, &Signer::with_secret(SECRET).sign(None, &fraction)).await, "j:alice");
    }

    #[tokio::test]
    async fn a_token_that_is_not_valid_yet_is_refused() {
        let by = scopes(with_secret().1);
        let early = invalid_token("the token is not valid yet; retry when it is");
        assert_eq!(refused(&by, "nbf", Some(json!(NOW_S + 31))).await, early);
        let detail = "`nbf` of the token is not a number; send one with a valid `nbf`";
        assert_eq!(refused(&by, "nbf", Some(json!("0"))).await, invalid_token(detail));
        let within = claims_with("nbf", Some(json!(NOW_S + 30)));
        assert_eq!(scope_by(&by, &Signer::with_secret(SECRET).sign(None, &within)).await, "j:alice");
    }

    #[tokio::test]
    async fn a_token_of_another_issuer_is_refused() {
        let by = scopes(JwtOptions { issuers: vec!["https://id.example.com".into()], ..with_secret().1 });
        let other = invalid_token("the token is not of an accepted issuer; get one from the issuer of this API");
        let odd =
            [json!("https://id.example.com/"), json!("https://ID.example.com"), json!(["https://id.example.com"])];
        for issuer in odd.into_iter().map(Some).chain([None, Some(json!(7)), Some(json!(null))]) {
            assert_eq!(refused(&by, "iss", issuer.clone()).await, other, "{issuer:?}");
        }
        let by = scopes(with_secret().1);
        assert_eq!(refused(&by, "iss", Some(json!(["a"]))).await, other, "an issuer is a text");
    }

    #[tokio::test]
    async fn a_token_for_another_audience_is_refused() {
        let by = scopes(JwtOptions { audiences: vec!["payments".into(), "refunds".into()], ..with_secret().1 });
        let other = invalid_token("the token is meant for somebody else; get one for this API");
        for audience in [None, Some(json!("Payments")), Some(json!(["orders"])), Some(json!([])), Some(json!({}))] {
            assert_eq!(refused(&by, "aud", audience.clone()).await, other, "{audience:?}");
        }
        for audience in [json!("refunds"), json!(["orders", "payments"])] {
            let token = Signer::with_secret(SECRET).sign(None, &claims_with("aud", Some(audience)));
            assert_eq!(scope_by(&by, &token).await, "j:alice");
        }
        let by = scopes(with_secret().1);
        assert_eq!(refused(&by, "aud", Some(json!("orders"))).await, other, "none is configured");
    }

    #[tokio::test]
    async fn the_claim_must_be_there_and_be_a_text() {
        let by = scopes(with_secret().1);
        let detail = "the claim `sub` of the token is missing; send a token that has it";
        assert_eq!(refused(&by, "sub", None).await, invalid_token(detail));
        let detail = "the claim `sub` of the token is not a text, or is empty; send a token that has it";
        for sub in [json!(7), json!(null), json!(["alice"]), json!({ "a": 1 }), json!(true), json!("")] {
            assert_eq!(refused(&by, "sub", Some(sub)).await, invalid_token(detail));
        }
    }
}

mod configured {
    use super::*;

    fn error(options: JwtOptions) -> String {
        Scopes::new(vec![Kind::Jwt(options)], &ScopeOptions::default()).unwrap_err().to_string()
    }

    /// The error for a key file, without the name of the file.
    fn key_error(contents: impl AsRef<[u8]>, algorithm: JwtAlgorithm) -> String {
        let path = file(contents);
        let text = error(JwtOptions::new(JwtKeys::File(path.clone()), vec![algorithm]));
        text.strip_prefix(&format!("{}: ", path.display())).unwrap().to_owned()
    }

    #[test]
    fn keys_that_do_not_fit_their_algorithm_are_refused_at_start() {
        let not_pem = "holds no public key in PEM; name a file that begins with -----BEGIN PUBLIC KEY-----";
        let other_type = "holds a key of another type than the algorithm's; name the key of the algorithm";
        let (ec, ed) = (Signer::ec().public, Signer::ed().public);
        assert_eq!(key_error(SECRET, JwtAlgorithm::Rs256), not_pem);
        assert_eq!(key_error("", JwtAlgorithm::EdDsa), not_pem);
        let private = rcgen::KeyPair::generate().unwrap().serialize_pem();
        assert_eq!(key_error(private, JwtAlgorithm::Es256), not_pem, "a private key has no business here");
        assert_eq!(key_error(&ec, JwtAlgorithm::Rs256), other_type);
        assert_eq!(key_error(&ec, JwtAlgorithm::EdDsa), other_type);
        assert_eq!(key_error(&ed, JwtAlgorithm::Es256), other_type);
        assert_eq!(key_error(&RSA.public, JwtAlgorithm::Es256), other_type);
        assert_eq!(
            key_error(&RSA.public, JwtAlgorithm::Hs256),
            "is a PEM file, which is no secret; name the file of the shared secret, or RS256 or ES256"
        );
        let p384 = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap().public_key_pem();
        assert_eq!(
            key_error(p384, JwtAlgorithm::Es256),
            "holds a key on another curve than P-256; name a P-256 key for ES256"
        );
        assert_eq!(
            key_error(format!("{}\r\n", &SECRET[1..]), JwtAlgorithm::Hs256),
            "holds a secret of under 32 bytes; use a random one of 32 bytes or more"
        );
    }

    #[test]
    fn a_secret_that_everybody_can_read_is_refused() {
        let path = file(SECRET);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        let detail = format!("{}: holds a secret and can be read by everybody; chmod 600 it", path.display());
        assert_eq!(error(JwtOptions::new(JwtKeys::File(path.clone()), vec![JwtAlgorithm::Hs256])), detail);
        assert_eq!(error(JwtOptions::new(JwtKeys::SetFile(path), vec![JwtAlgorithm::Hs256])), detail);
    }

    #[tokio::test]
    async fn the_line_end_of_a_secret_file_is_not_part_of_the_secret() {
        let path = file(format!("{SECRET}\n"));
        let by = scopes(JwtOptions::new(JwtKeys::File(path), vec![JwtAlgorithm::Hs256]));
        assert_eq!(scope_by(&by, &Signer::with_secret(SECRET).sign(None, &claims())).await, "j:alice");
    }

    #[test]
    fn sets_without_a_usable_key_are_refused_at_start() {
        let of = |contents: &[u8], algorithm| {
            let path = file(contents);
            let text = error(JwtOptions::new(JwtKeys::SetFile(path.clone()), vec![algorithm]));
            text.strip_prefix(&format!("{}: ", path.display())).unwrap().to_owned()
        };
        let next = "name a JSON Web Key Set with a key for a configured algorithm";
        for contents in ["", "{}", "[]", "{\"keys\":{}}"] {
            let detail = format!("is not a JSON Web Key Set; {next}");
            assert_eq!(of(contents.as_bytes(), JwtAlgorithm::Rs256), detail, "{contents}");
        }
        let none = format!("holds no key for a configured algorithm; {next}");
        assert_eq!(of(&set_of(&[]), JwtAlgorithm::Rs256), none);
        assert_eq!(of(&set_of(&[Signer::ec().jwk(None)]), JwtAlgorithm::Rs256), none);
        let mut for_encryption = RSA.jwk(None);
        for_encryption["use"] = json!("enc");
        assert_eq!(of(&set_of(&[for_encryption]), JwtAlgorithm::Rs256), none);
        let mut for_another = RSA.jwk(None);
        for_another["alg"] = json!("PS256");
        assert_eq!(of(&set_of(&[for_another]), JwtAlgorithm::Rs256), none);
        let short = Signer::with_secret("short").jwk(None);
        assert_eq!(of(&set_of(&[short]), JwtAlgorithm::Hs256), none);
    }

    #[test]
    fn options_that_contradict_one_another_are_refused_at_start() {
        let path = file(SECRET);
        let at = |algorithms: &[JwtAlgorithm]| JwtOptions::new(JwtKeys::File(path.clone()), algorithms.to_vec());
        let prefix = "the scope kind `jwt` cannot work: ";
        let url = JwtKeys::SetUrl { url: "http://127.0.0.1:1/".into(), ca_file: None };
        let cases = [
            (at(&[]), "no algorithm is named; use HS256, RS256, ES256 or EdDSA"),
            (
                at(&[JwtAlgorithm::Hs256, JwtAlgorithm::Rs256]),
                "a key file serves one algorithm; name one algorithm, or use a key set",
            ),
            (
                JwtOptions::new(url, vec![JwtAlgorithm::Hs256]),
                "HS256 needs a secret, which no URL may publish; use a key file for HS256",
            ),
            (
                JwtOptions { claim: "jti".into(), ..at(&[JwtAlgorithm::Hs256]) },
                "the claim changes from token to token; name one that says who calls, for example sub",
            ),
            (
                JwtOptions { claim: String::new(), ..at(&[JwtAlgorithm::Hs256]) },
                "the claim has no name; name one, for example sub",
            ),
        ];
        for (options, detail) in cases {
            assert_eq!(error(options), format!("{prefix}{detail}"));
        }
        assert_eq!("ES256".parse::<JwtAlgorithm>().unwrap(), JwtAlgorithm::Es256);
        assert!("none".parse::<JwtAlgorithm>().is_err());
        let missing = error(JwtOptions::new(JwtKeys::File("/no/such/key".into()), vec![JwtAlgorithm::Rs256]));
        assert!(missing.starts_with("/no/such/key: cannot be read ("), "{missing}");
    }
}
