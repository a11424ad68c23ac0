//! The kind `ask`: what an authentication endpoint's answers mean, and that no answer means no.

use std::sync::Arc;
use std::time::Duration;

use hapax_core::address::Scope;
use hapax_server::scope::{AskOptions, Challenge, HeaderOrCookie, Kind, Refusal, ScopeOptions, Scopes};
use hapax_testkit::clock::FakeClock;
use http::HeaderName;
use tokio::sync::Semaphore;

use super::stand_in::{Reply, StandIn, answer};
use super::{invalid, invalid_token, post, refusal, scope, unauthorized, unavailable};

const TENANT: HeaderName = HeaderName::from_static("x-tenant");
const CALLER: [(&str, &str); 1] = [("authorization", "Bearer sk_1")];

fn asking(endpoint: &StandIn) -> AskOptions {
    AskOptions::new(endpoint.url("/whoami?v=1"), TENANT)
}

fn scopes(options: AskOptions) -> Scopes {
    Scopes::new(vec![Kind::Ask(options)], &ScopeOptions::default()).unwrap()
}

fn acme() -> Reply {
    answer(200, &[("X-Tenant", "acme")])
}

#[tokio::test]
async fn the_endpoint_names_the_tenant() {
    let endpoint = StandIn::start(acme()).await;
    assert_eq!(scope(&scopes(asking(&endpoint)), &CALLER).await, "a:acme");
    endpoint.says(answer(204, &[("x-tenant", "\u{e9} & co")]));
    assert_eq!(scope(&scopes(asking(&endpoint)), &CALLER).await, "a:\u{e9} & co");
}

#[tokio::test]
async fn it_is_sent_the_credentials_the_configured_headers_and_what_was_asked_for() {
    let endpoint = StandIn::start(acme()).await;
    let headers = ["authorization", "cookie", "x-device"].map(HeaderName::from_static).to_vec();
    let options = AskOptions { headers, ..asking(&endpoint) };
    let lines = [
        ("authorization", "Bearer sk_1"),
        ("cookie", "a=1"),
        ("cookie", "b=2"),
        ("x-device", "d1"),
        ("x-other", "not passed on"),
        ("x-original-uri", "/forged"),
        ("x-original-method", "FORGED"),
        ("content-length", "5"),
        ("host", "forged.example.com"),
    ];
    scope(&scopes(options), &lines).await;
    let heads = endpoint.heads();
    let mut sent: Vec<&str> = heads[0].trim_end().split("\r\n").collect();
    assert_eq!(sent.remove(0), "GET /whoami?v=1 HTTP/1.1");
    sent.sort_unstable();
    let host = format!("host: {}", endpoint.address);
    let expected = [
        "authorization: Bearer sk_1",
        "cookie: a=1",
        "cookie: b=2",
        host.as_str(),
        "x-device: d1",
        "x-original-method: POST",
        "x-original-uri: /payments?a=1",
    ];
    assert_eq!(sent, expected);
}

#[tokio::test]
async fn a_repeated_credential_is_refused_unasked() {
    let endpoint = StandIn::start(acme()).await;
    let headers = ["authorization", "x-api-key"].map(HeaderName::from_static).to_vec();
    let by = scopes(AskOptions { headers, ..asking(&endpoint) });
    for name in ["authorization", "x-api-key"] {
        let detail = format!("the request has `{name}` more than once; send it once");
        assert_eq!(refusal(&by, &[(name, "mine"), (name, "yours")]).await, invalid(&detail));
    }
    assert_eq!(endpoint.requests(), 0);
}

const NOT_LET_IN: &str = "the authentication endpoint does not let this caller in; ask who grants access";

#[tokio::test]
async fn a_no_is_invalid_and_everything_else_is_no_answer() {
    let endpoint = StandIn::start(acme()).await;
    let by = scopes(asking(&endpoint));
    endpoint.says(answer(401, &[("x-tenant", "acme")]));
    let detail = "the authentication endpoint does not accept these credentials; send valid ones";
    assert_eq!(refusal(&by, &CALLER).await, invalid_token(detail));
    let detail = "the request has no credentials; send those that this API asks for";
    assert_eq!(refusal(&by, &[]).await, unauthorized(detail));
    endpoint.says(answer(401, &[("www-authenticate", "Basic realm=\"acme\"")]));
    let asked = refusal(&by, &CALLER).await;
    let is_asked = |challenge: &Challenge| challenge.value() == "Basic realm=\"acme\"";
    assert!(matches!(&asked, Refusal::Unauthorized { challenge, .. } if is_asked(challenge)), "{asked:?}");
    endpoint.says(answer(403, &[("x-tenant", "acme")]));
    assert_eq!(refusal(&by, &CALLER).await, invalid(NOT_LET_IN));
    for status in [301, 302, 307, 304, 400, 404, 429, 500, 503] {
        endpoint.says(answer(status, &[("x-tenant", "acme"), ("location", &endpoint.url("/elsewhere"))]));
        let detail =
            format!("the authentication endpoint answered {status}, which says neither yes nor no; try again later");
        assert_eq!(refusal(&by, &CALLER).await, unavailable(&detail));
    }
    assert!(endpoint.heads().iter().all(|head| head.starts_with("GET /whoami")), "no redirect is followed");
}

#[tokio::test]
async fn a_tenant_that_cannot_be_one_is_no_answer() {
    let endpoint = StandIn::start(acme()).await;
    let by = scopes(asking(&endpoint));
    let line = |value: &[u8]| Reply::Answer(200, vec![("x-tenant", value.to_vec())], Vec::new());
    let cases = [
        answer(200, &[]),
        answer(200, &[("x-tenant", "")]),
        answer(200, &[("x-tenant", "acme"), ("x-tenant", "evil")]),
        line("x".repeat(251).as_bytes()),
        line(b"ac\tme"),
        line("ac\u{85}me".as_bytes()),
        line(&[b'a', 0xff]),
    ];
    for reply in cases {
        endpoint.says(reply);
        let detail = "the answer of the authentication endpoint cannot be used; try again later";
        assert_eq!(refusal(&by, &CALLER).await, unavailable(detail));
    }
    endpoint.says(line("x".repeat(250).as_bytes()));
    assert_eq!(scope(&by, &CALLER).await, format!("a:{}", "x".repeat(250)));
}

#[tokio::test]
async fn an_endpoint_that_fails_or_hangs_is_no_answer() {
    let endpoint = StandIn::start(Reply::Hang("")).await;
    let by = scopes(AskOptions { timeout: Duration::from_millis(50), ..asking(&endpoint) });
    let late = unavailable("the authentication endpoint did not answer in time; try again later");
    assert_eq!(refusal(&by, &CALLER).await, late);
    // A body that never ends is late, too, whatever its head said.
    endpoint.says(Reply::Hang("HTTP/1.1 200 OK\r\nx-tenant: acme\r\ncontent-length: 9\r\n\r\nslow"));
    assert_eq!(refusal(&by, &CALLER).await, late);

    let by = scopes(asking(&endpoint));
    let broken = unavailable("the authentication endpoint broke off its answer; try again later");
    for bytes in [
        "",
        "HTTP/1.1 200 OK\r\nx-tenant: acme",
        "HTTP/1.1 200 OK\r\nx-tenant: acme\r\ncontent-length: 9\r\n\r\nshort",
        "HTTP/1.1 200 OK\r\nx-tenant: acme\r\ntransfer-encoding: chunked\r\n\r\n5\r\nshort\r\n",
        "HTTP/1.1 200 OK\r\nx-tenant: ac\0me\r\ncontent-length: 0\r\n\r\n",
        "SSH-2.0-x\r\n\r\n",
    ] {
        endpoint.says(Reply::Cut(bytes));
        assert_eq!(refusal(&by, &CALLER).await, broken, "{bytes:?}");
    }
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let by = scopes(AskOptions::new(format!("http://{free}/"), TENANT));
    let gone = unavailable("the authentication endpoint cannot be reached; try again later");
    assert_eq!(refusal(&by, &CALLER).await, gone);
}

#[tokio::test]
async fn connections_are_used_again_and_a_closed_one_is_replaced() {
    let endpoint = StandIn::start(acme()).await;
    let by = scopes(asking(&endpoint));
    for _ in 0..5 {
        assert_eq!(scope(&by, &CALLER).await, "a:acme");
    }
    assert_eq!((endpoint.requests(), endpoint.connections()), (5, 1));
    // The endpoint closes after its answer without having said so: the next question is not lost by it.
    endpoint.says(Reply::AndClose(Box::new(acme())));
    for _ in 0..5 {
        assert_eq!(scope(&by, &CALLER).await, "a:acme");
    }
    // A body over the limit is not read to its end; the head has said everything.
    endpoint.says(Reply::Answer(200, vec![("x-tenant", b"acme".to_vec())], vec![b'x'; 1024 * 1024]));
    assert_eq!(scope(&by, &CALLER).await, "a:acme");
}

#[tokio::test]
async fn a_question_lost_with_a_kept_connection_is_asked_once_more_on_a_new_one() {
    let endpoint = StandIn::start(Reply::Once(Box::new(acme()))).await;
    let by = scopes(asking(&endpoint));
    for _ in 0..3 {
        assert_eq!(scope(&by, &CALLER).await, "a:acme");
    }
    assert_eq!((endpoint.requests(), endpoint.connections()), (5, 3));
    // On a new connection it is asked once.
    endpoint.says(Reply::Cut(""));
    let before = endpoint.requests();
    assert!(matches!(refusal(&by, &CALLER).await, Refusal::Unavailable { .. }));
    assert_eq!(endpoint.requests(), before + 2, "once on the kept connection and once on the new one");
    assert!(matches!(refusal(&by, &CALLER).await, Refusal::Unavailable { .. }));
    assert_eq!(endpoint.requests(), before + 3);
}

#[tokio::test]
async fn no_more_questions_than_configured_are_asked_at_once() {
    let permits = Arc::new(Semaphore::new(0));
    let endpoint = StandIn::start(Reply::When(permits.clone(), Box::new(acme()))).await;
    let options = AskOptions { at_once: 2, timeout: Duration::from_secs(60), ..asking(&endpoint) };
    let by = Arc::new(scopes(options));
    let asked: Vec<_> = (0..6)
        .map(|_| {
            let by = by.clone();
            tokio::spawn(async move { scope(&by, &CALLER).await })
        })
        .collect();
    for answered in 0..6 {
        while endpoint.requests() < (answered + 2).min(6) {
            tokio::task::yield_now().await;
        }
        // Give a third question every chance to appear.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert!(endpoint.requests() <= answered + 2, "{} after {answered}", endpoint.requests());
        permits.add_permits(1);
    }
    for one in asked {
        assert_eq!(one.await.unwrap(), "a:acme");
    }
    assert!(endpoint.connections() <= 2);
}

#[tokio::test]
async fn answers_are_remembered_per_credential_only_where_configured() {
    let endpoint = StandIn::start(acme()).await;
    let every = scopes(asking(&endpoint));
    scope(&every, &CALLER).await;
    scope(&every, &CALLER).await;
    assert_eq!(endpoint.requests(), 2, "by default every request asks");

    let clock = FakeClock::default();
    let options = ScopeOptions { clock: Arc::new(clock.clone()), ..ScopeOptions::default() };
    let cached = AskOptions { cache: Duration::from_secs(5), ..asking(&endpoint) };
    let by = Scopes::new(vec![Kind::Ask(cached)], &options).unwrap();
    assert_eq!(scope(&by, &CALLER).await, "a:acme");
    endpoint.says(answer(200, &[("x-tenant", "other")]));
    assert_eq!(scope(&by, &CALLER).await, "a:acme");
    assert_eq!(endpoint.requests(), 3);
    assert_eq!(scope(&by, &[("authorization", "Bearer sk_2")]).await, "a:other", "another caller is asked about");
    assert_eq!(scope(&by, &[("authorization", "Bearer sk_1"), ("cookie", "a=1")]).await, "a:other");
    clock.advance_ms(4_999);
    assert_eq!(scope(&by, &CALLER).await, "a:acme");
    clock.advance_ms(1);
    assert_eq!(scope(&by, &CALLER).await, "a:other");
}

#[tokio::test]
async fn a_no_and_callers_without_credentials_are_not_remembered() {
    let endpoint = StandIn::start(answer(401, &[])).await;
    let by = scopes(AskOptions { cache: Duration::from_secs(60), ..asking(&endpoint) });
    assert!(matches!(refusal(&by, &CALLER).await, Refusal::Unauthorized { .. }));
    endpoint.says(acme());
    assert_eq!(scope(&by, &CALLER).await, "a:acme");
    let before = endpoint.requests();
    scope(&by, &[]).await;
    scope(&by, &[]).await;
    assert_eq!(endpoint.requests(), before + 2);
}

mod replay {
    use super::*;

    fn of(text: &str) -> Scope {
        Scope::new(text).unwrap()
    }

    #[tokio::test]
    async fn a_replay_is_asked_about_again_whatever_is_remembered() {
        let endpoint = StandIn::start(acme()).await;
        let by = scopes(AskOptions { cache: Duration::from_secs(60), ..asking(&endpoint) });
        let found = by.of(&post(&CALLER)).await.unwrap();
        assert_eq!(by.may_replay(&post(&CALLER), &found).await, Ok(()));
        assert_eq!(endpoint.requests(), 2);

        endpoint.says(answer(403, &[]));
        assert_eq!(by.may_replay(&post(&CALLER), &found).await, Err(invalid(NOT_LET_IN)));
        assert_eq!(refusal(&by, &CALLER).await, invalid(NOT_LET_IN), "and what was remembered is forgotten");
        endpoint.says(answer(500, &[]));
        assert!(matches!(by.may_replay(&post(&CALLER), &found).await, Err(Refusal::Unavailable { .. })));
    }

    #[tokio::test]
    async fn a_credential_that_now_belongs_to_another_tenant_does_not_see_the_old_answer() {
        let endpoint = StandIn::start(acme()).await;
        let by = scopes(AskOptions { cache: Duration::from_secs(60), ..asking(&endpoint) });
        let found = by.of(&post(&CALLER)).await.unwrap();
        endpoint.says(answer(200, &[("x-tenant", "other")]));
        let detail = "the caller is no longer the one whose answer this is; use another key";
        assert_eq!(by.may_replay(&post(&CALLER), &found).await, Err(invalid(detail)));
    }

    #[tokio::test]
    async fn an_endpoint_for_replays_only_needs_no_tenant() {
        let endpoint = StandIn::start(answer(204, &[])).await;
        let options = ScopeOptions { replay_ask: Some(asking(&endpoint)), ..ScopeOptions::default() };
        let by = Scopes::new(vec![Kind::Credential], &options).unwrap();
        let found = by.of(&post(&CALLER)).await.unwrap();
        assert_eq!(endpoint.requests(), 0, "it is not asked for the scope");
        assert_eq!(by.may_replay(&post(&CALLER), &found).await, Ok(()));
        endpoint.says(answer(401, &[]));
        assert!(matches!(by.may_replay(&post(&CALLER), &found).await, Err(Refusal::Unauthorized { .. })));
        assert!(by.may_replay(&post(&CALLER), &of("c:other")).await.is_err());
    }

    #[tokio::test]
    async fn an_endpoint_that_names_the_tenant_is_asked_once_per_replay() {
        let endpoint = StandIn::start(acme()).await;
        let options = ScopeOptions { replay_ask: Some(asking(&endpoint)), ..ScopeOptions::default() };
        let by = Scopes::new(vec![Kind::Ask(asking(&endpoint))], &options).unwrap();
        assert_eq!(by.may_replay(&post(&CALLER), &of("a:acme")).await, Ok(()));
        assert_eq!(endpoint.requests(), 1);
    }

    #[tokio::test]
    async fn without_anybody_to_ask_no_replay_is_allowed() {
        let by = Scopes::new(vec![Kind::Single], &ScopeOptions::default()).unwrap();
        assert!(!by.can_check_replays());
        let refused = by.may_replay(&post(&[]), &of("single")).await;
        let detail = "no endpoint is configured for replay_check = \"ask\"; configure `ask`";
        assert_eq!(refused, Err(unavailable(detail)));
    }
}

#[test]
fn what_cannot_be_asked_is_refused_at_start() {
    let error =
        |options: AskOptions| Scopes::new(vec![Kind::Ask(options)], &ScopeOptions::default()).unwrap_err().to_string();
    let at = |url: &str| AskOptions::new(url, TENANT);
    assert_eq!(error(at("not a url")), "the URL of `ask` is not a URL; write it as https://host/path");
    assert_eq!(error(at("/whoami")), "the URL of `ask` is neither http nor https; write it as https://host/path");
    assert_eq!(error(at("ftp://h/")), "the URL of `ask` is neither http nor https; write it as https://host/path");
    let with_password = error(at("http://user:canary@h/"));
    assert_eq!(with_password, "the URL of `ask` holds a user name; remove what stands before the @");
    assert_eq!(
        error(AskOptions { timeout: Duration::ZERO, ..at("http://h/") }),
        "`timeout` of `ask` is 0; give at least 1"
    );
    assert_eq!(error(AskOptions { at_once: 0, ..at("http://h/") }), "`at_once` of `ask` is 0; give at least 1");
    for name in ["host", "content-length", "transfer-encoding", "connection", "x-original-uri"] {
        let options = AskOptions { headers: vec![HeaderName::from_static(name)], ..at("http://h/") };
        let cause = "cannot be passed on by `ask`: it belongs to the request itself; remove it";
        assert_eq!(error(options), format!("the header `{name}` {cause}"));
    }
    assert_eq!(
        error(AskOptions { headers: Vec::new(), ..at("http://h/") }),
        "`ask` passes on no header, so every caller would look the same; name at least one, such as Authorization"
    );
    let missing = AskOptions { ca_file: Some("/no/such/file".into()), ..at("https://h/") };
    assert!(error(missing).starts_with("/no/such/file: "));
}

mod tls {
    use super::*;
    use std::io::Write;

    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
    use rustls::ServerConfig;
    use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
    use tokio_rustls::TlsAcceptor;

    /// A stand-in with a certificate for `localhost`, and the file of who signed it.
    async fn secure() -> (StandIn, tempfile::NamedTempFile) {
        let mut ca = CertificateParams::new(Vec::new()).unwrap();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = CertifiedIssuer::self_signed(ca, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let leaf = CertificateParams::new(vec!["localhost".to_owned()]).unwrap().signed_by(&key, &ca).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![leaf.der().clone()], key)
            .unwrap();
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(ca.pem().as_bytes()).unwrap();
        (StandIn::start_with(acme(), Some(TlsAcceptor::from(Arc::new(config)))).await, file)
    }

    #[tokio::test]
    async fn an_endpoint_is_believed_only_with_a_trusted_certificate_for_its_name() {
        let (endpoint, ca) = secure().await;
        let port = endpoint.address.port();
        let at = |host: &str, ca_file| {
            let by = AskOptions::new(format!("https://{host}:{port}/"), TENANT);
            Scopes::new(vec![Kind::Ask(AskOptions { ca_file, ..by })], &ScopeOptions::default())
        };
        let by = at("localhost", Some(ca.path().to_owned())).unwrap();
        assert_eq!(scope(&by, &CALLER).await, "a:acme");
        let untrusted = unavailable("the authentication endpoint has no certificate that is trusted; try again later");
        let other_name = at("127.0.0.1", Some(ca.path().to_owned())).unwrap();
        assert_eq!(refusal(&other_name, &CALLER).await, untrusted);
        // A host without any root certificates refuses already at start.
        match at("localhost", None) {
            Ok(by) => assert_eq!(refusal(&by, &CALLER).await, untrusted),
            Err(error) => assert!(error.to_string().contains("trusts no certificate"), "{error}"),
        }
        assert_eq!(endpoint.requests(), 1);
    }
}

#[tokio::test]
async fn ask_composes_with_a_credential() {
    let endpoint = StandIn::start(acme()).await;
    let kinds = vec![
        Kind::Ask(asking(&endpoint)),
        Kind::CredentialIn(HeaderOrCookie::Header(HeaderName::from_static("x-api-key"))),
    ];
    let by = Scopes::new(kinds, &ScopeOptions::default()).unwrap();
    let one = scope(&by, &[("x-api-key", "k1")]).await;
    assert!(one.starts_with("m:") && one != scope(&by, &[("x-api-key", "k2")]).await);
}
