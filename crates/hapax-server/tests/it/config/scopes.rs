//! Scopes: what each kind needs.

use hapax_server::config::{JwtAlgorithm, JwtKeys, Place, ScopeKind};

use crate::config::setup::{file, problem, without_file};

#[test]
fn without_a_scope_the_credential_is_the_scope() {
    assert_eq!(without_file().load().scope.kinds, [ScopeKind::Credential]);
}

#[test]
fn kinds_compose_in_their_order() {
    let config = file("scope = [\"credential\", \"header:Stripe-Account\"]").load();
    assert_eq!(config.scope.kinds, [ScopeKind::Credential, ScopeKind::Header("stripe-account".parse().unwrap())]);
    let by_variable = without_file().variable("HAPAX_SCOPE", "credential:X-Api-Key,header:X-Org").load();
    assert_eq!(by_variable.scope.kinds.len(), 2);
    let cookie = file("scope = \"credential:cookie:Sid\"").load();
    assert_eq!(cookie.scope.kinds, [ScopeKind::CredentialCookie("Sid".to_owned())]);
}

#[test]
fn a_plain_header_is_accepted_with_a_warning() {
    let config = file("scope = [\"header:X-Tenant\"]").load();
    assert_eq!(
        config.warnings(),
        ["the scope is the plain header `x-tenant`: whoever reaches this listener without the gateway can name any \
             tenant"]
    );
}

#[test]
fn a_kind_that_does_not_exist_is_refused() {
    assert_eq!(
        problem("scope = [\"credentials\"]"),
        "hapax.toml:1: `scope` must be a list, each item \"credential\", \"credential:NAME\", \
         \"credential:cookie:NAME\", \
         \"header:NAME\", \"jwt\", \"ask\" or \"single\", not \"credentials\"; did you mean `credential`?"
    );
    assert_eq!(
        problem("scope = \"header\""),
        "hapax.toml:1: `scope` has `header` without a name; write \"header:NAME\""
    );
}

#[test]
fn a_scope_that_says_nothing_or_contradicts_itself_is_refused() {
    assert_eq!(
        problem("scope = []"),
        "hapax.toml:1: `scope` names nothing, and all callers would share their keys; if there is one tenant, write \
         \"single\""
    );
    assert_eq!(
        problem("scope = [\"jwt\", \"jwt\"]\n[jwt]\nalgorithms = \"RS256\"\njwks_url = \"https://i.example\""),
        "hapax.toml:1: `scope` names \"jwt\" twice; remove one"
    );
    assert_eq!(
        problem("scope = [\"credential\", \"single\"]"),
        "hapax.toml:1: `scope` names \"single\" beside other kinds; one tenant has no other identity, so remove one of \
         them"
    );
    assert_eq!(
        problem("scope = \"single\"\nanonymous = true"),
        "hapax.toml:2: `anonymous` speaks of requests without a credential, but `scope` asks for none; remove it"
    );
}

#[test]
fn jwt_needs_a_key_and_an_algorithm() {
    assert_eq!(
        problem("scope = \"jwt\""),
        "hapax.toml:1: the scope `jwt` needs a key; set one of `jwt.key_file`, `jwt.jwks_file` and `jwt.jwks_url`"
    );
    assert_eq!(
        problem("scope = \"jwt\"\n[jwt]\njwks_url = \"https://issuer.example/keys\""),
        "hapax.toml:3: `jwt.algorithms` names none; name what the issuer signs with, such as \"RS256\""
    );
    assert_eq!(
        problem("[jwt]\nalgorithms = [\"RS256\"]\njwks_url = \"https://issuer.example/keys\""),
        "hapax.toml:3: [jwt] has keys, but `scope` does not name \"jwt\", so no token would be verified; add it to \
         `scope`"
    );
    assert_eq!(
        problem("scope = \"jwt\"\n[jwt]\nalgorithms = [\"none\"]\njwks_url = \"https://issuer.example/keys\"")
            .split(", not")
            .next(),
        Some("hapax.toml:3: `jwt.algorithms` must be a list, each item \"HS256\", \"RS256\", \"ES256\" or \"EdDSA\"")
    );
}

#[test]
fn jwt_keys_that_could_be_confused_or_forged_are_refused() {
    let setup = file("");
    let key = setup.write("key", "x", 0o600);
    let text =
        format!("scope = \"jwt\"\n[jwt]\nalgorithms = [\"HS256\", \"RS256\"]\nkey_file = \"{}\"\n", key.display());
    setup.write("hapax.toml", &text, 0o600);
    assert_eq!(
        setup.problems(),
        ["hapax.toml:3: `jwt.key_file` holds one key, which fits one of `jwt.algorithms`; name that one only"]
    );
    assert_eq!(
        problem("scope = \"jwt\"\n[jwt]\nalgorithms = [\"HS256\"]\njwks_url = \"https://issuer.example/keys\""),
        "hapax.toml:3: HS256 needs a shared secret, which must not be fetched from `jwt.jwks_url`; use `jwt.key_file`"
    );
    assert_eq!(
        problem("scope = \"jwt\"\n[jwt]\nalgorithms = [\"RS256\"]\njwks_url = \"http://issuer.example/keys\""),
        "hapax.toml:4: `jwt.jwks_url` is not https, so anyone between could put in keys; use https"
    );
    let both = format!(
        "scope = \"jwt\"\n[jwt]\nalgorithms = \"RS256\"\njwks_file = \"{}\"\njwks_url = \"https://issuer.example\"",
        key.display()
    );
    assert_eq!(problem(&both), "hapax.toml:5: `jwt.jwks_file` and `jwt.jwks_url` are both set; remove one");
    setup.write("hapax.toml", &text.replace(", \"RS256\"", ""), 0o600);
    setup.write("key", "x", 0o644);
    assert_eq!(
        setup.problems(),
        ["hapax.toml:4: `jwt.key_file`: anyone on this machine can read `key`, which holds a secret; run `chmod \
             o-rwx key`"]
    );
}

#[test]
fn a_complete_jwt_section_reaches_its_kind() {
    let text = "scope = \"jwt\"\n[jwt]\nalgorithms = [\"RS256\", \"EdDSA\"]\njwks_url = \"http://127.0.0.1:1/keys\"\n\
                audience = \"payments\"\nissuer = \"https://issuer.example\"\nclaim = \"org\"\nleeway = \"5s\"\n\
                token_in = \"cookie:Sid\"\n";
    let config = file(text).load();
    let [ScopeKind::Jwt(jwt)] = config.scope.kinds.as_slice() else { panic!("{:?}", config.scope) };
    assert_eq!(jwt.algorithms, [JwtAlgorithm::Rs256, JwtAlgorithm::EdDsa]);
    assert!(matches!(&jwt.keys, JwtKeys::JwksUrl(url) if url.path() == "/keys"));
    assert_eq!((jwt.audience.concat().as_str(), jwt.issuer.concat().as_str()), ("payments", "https://issuer.example"));
    assert_eq!(jwt.token_in, Some(Place::Cookie("Sid".to_owned())));
    assert_eq!((jwt.claim.as_str(), jwt.leeway.as_secs()), ("org", 5));
}

#[test]
fn ask_needs_an_endpoint_that_is_not_hapax() {
    assert_eq!(problem("scope = \"ask\""), "hapax.toml:1: the scope `ask` needs an endpoint; set `ask.url`");
    assert_eq!(
        problem("scope = \"ask\"\n[ask]\nurl = \"http://127.0.0.1:8080/ask\""),
        "hapax.toml:3: `ask.url` leads to hapax itself (`server.from`), so requests would go round; name the \
         endpoint's own address"
    );
    let config = file("scope = \"ask\"\n[ask]\nurl = \"http://127.0.0.1:9/ask\"\ncache = \"10s\"\n").load();
    let [ScopeKind::Ask(ask)] = config.scope.kinds.as_slice() else { panic!("{:?}", config.scope) };
    assert_eq!((ask.timeout.as_secs(), ask.cache.map(|cache| cache.as_secs())), (2, Some(10)));
    assert_eq!(config.ask.as_ref(), Some(ask));
}

#[test]
fn a_field_that_cannot_say_who_calls_is_refused() {
    for (kind, why) in [
        ("credential:Authorization", "for which there is a kind of its own; write \"credential\""),
        ("credential:Cookie", "which holds many values; write \"credential:cookie:NAME\""),
        ("header:Authorization", "a secret that would be shown to operators; use a `credential` kind"),
        ("header:Idempotency-Key", "which is the key and no caller; name another field"),
    ] {
        let shown = kind.split_once(':').map(|(kind, name)| format!("{kind}:{}", name.to_lowercase())).unwrap();
        assert_eq!(problem(&format!("scope = \"{kind}\"")), format!("hapax.toml:1: `scope` names \"{shown}\", {why}"));
    }
    assert_eq!(
        problem("scope = \"jwt\"\n[jwt]\nalgorithms = \"RS256\"\njwks_url = \"https://i.example\"\nclaim = \"jti\""),
        "hapax.toml:5: `jwt.claim` is `jti`, which differs from token to token; name the one that says who calls"
    );
}

#[test]
fn an_endpoint_that_nobody_asks_is_refused() {
    let why = "[ask] has an endpoint, but neither `scope` nor a `replay_check` names \"ask\", so it would not be asked; add it \
               to one of them, or remove `ask.url`";
    let ask = "[ask]\nurl = \"http://127.0.0.1:9/ask\"\n";
    assert_eq!(problem(ask), format!("hapax.toml:2: {why}"));
    file(&format!("scope = \"ask\"\n{ask}")).load();
    file(&format!("{ask}[defaults]\nreplay_check = \"ask\"\n")).load();
    file(&format!("{ask}[[route]]\npath = \"/a\"\nreplay_check = \"ask\"\n")).load();
}

#[test]
fn a_url_that_cannot_be_read_is_told_once() {
    for scope in ["scope = \"ask\"\n", "[defaults]\nreplay_check = \"ask\"\n"] {
        let problems = file(scope).variable("HAPAX_ASK_URL", "nonsense").problems();
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].starts_with("HAPAX_ASK_URL: `ask.url` must be"), "{problems:?}");
    }
    let jwt = "scope = \"jwt\"\n[jwt]\nalgorithms = \"RS256\"\njwks_url = \"nonsense\"\n";
    assert!(problem(jwt).starts_with("hapax.toml:4: `jwt.jwks_url` must be"));
}

#[test]
fn a_leeway_or_a_memory_without_end_is_refused() {
    assert_eq!(
        problem(
            "scope = \"jwt\"\n[jwt]\nalgorithms = \"RS256\"\njwks_url = \"https://i.example\"\nleeway = \"99999d\""
        ),
        "hapax.toml:5: `jwt.leeway` is 99999d, above 5m, which keeps expired tokens valid; lower it"
    );
    assert_eq!(
        problem("scope = \"ask\"\n[ask]\nurl = \"http://127.0.0.1:9/\"\ncache = \"61m\""),
        "hapax.toml:4: `ask.cache` is 61m, above 1h, in which a caller who was shut out comes in; lower it"
    );
    file("scope = \"ask\"\n[ask]\nurl = \"http://127.0.0.1:9/\"\ncache = \"1h\"").load();
}

#[test]
fn a_field_is_not_both_the_key_and_the_caller() {
    let keys = "[keys]\nheaders = [\"Idempotency-Key\", \"X-Tenant\"]\n";
    for kind in ["header", "credential"] {
        assert_eq!(
            problem(&format!("scope = \"{kind}:X-Tenant\"\n{keys}")),
            format!(
                "hapax.toml:1: `scope` names \"{kind}:x-tenant\", which `keys.headers` says is the key; name another field"
            )
        );
    }
    let jwt = "[jwt]\nalgorithms = \"RS256\"\njwks_url = \"https://i.example\"\ntoken_in = \"header:X-Tenant\"\n";
    assert_eq!(
        problem(&format!("scope = \"jwt\"\n{jwt}{keys}")),
        "hapax.toml:5: `jwt.token_in` names \"header:x-tenant\", which `keys.headers` says is the key; name another field"
    );
    file(&format!("scope = \"header:X-Org\"\n{keys}")).load();
}

#[test]
fn the_query_of_a_url_is_not_shown() {
    let setup = file("scope = \"ask\"\n[ask]\nurl = \"http://127.0.0.1:9/ask?token=hunter2\"\n");
    assert_eq!(setup.load().ask.unwrap().url.query(), Some("token=hunter2"));
    assert_eq!(setup.told("ask.url"), "\"http://127.0.0.1:9/ask?(hidden)\" # hapax.toml:3");
    assert!(!format!("{:?}", setup.explain()).contains("hunter2"));
}
