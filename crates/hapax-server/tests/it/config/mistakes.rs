//! What newcomers write on the first day, and what they are told.

use crate::config::setup::{file, problem, without_file};

#[test]
fn a_path_as_other_routers_write_it_is_refused_with_what_was_meant() {
    for (path, segment, meant) in [("/pay/:id", ":id", "{id}"), ("/pay/<id>/x", "<id>", "{id}")] {
        let told = problem(&format!("[[route]]\npath = \"{path}\""));
        let expected = format!("has a segment `{segment}`, which here is no name; did you mean `{meant}`?");
        assert!(told.starts_with("hapax.toml:2: ") && told.ends_with(&expected), "{told}");
    }
    file("[[route]]\npath = \"/pay/%3Aid\"").load();
}

#[test]
fn what_only_the_library_can_do_is_refused_with_the_reason() {
    assert_eq!(
        problem("[defaults]\non_lapse = \"resume\""),
        "hapax.toml:2: `defaults.on_lapse` must be \"unknown\" or \"rerun\", not \"resume\": nothing behind a proxy can write \
         the checkpoint from which it would go on"
    );
    assert_eq!(
        problem("[[route]]\npath = \"/pay\"\non_panic = \"ready\""),
        "hapax.toml:3: `route[0].on_panic` says what a panic in a handler means, and a proxy runs no handler; remove it"
    );
}

#[test]
fn a_probe_that_goes_by_the_status_alone_gets_a_note() {
    let note = |name: &str| {
        format!(
            "the probe of {name} has no `happened_if`: its status alone says that a request happened; name what the body \
             must say, such as happened_if = \"/status=succeeded\""
        )
    };
    let probe = |rest: &str| format!("probe = {{ get = \"/payments?record={{id}}\"{rest} }}\n");
    let route = |text: &str| format!("[[route]]\npath = \"/pay\"\n{text}");
    let notes = |text: &str| file(text).load().warnings();
    assert_eq!(notes(&route(&probe(""))), [note("the route `/pay`")]);
    let both = format!("[defaults]\n{}{}", probe(""), route("lease = \"20s\"\n"));
    assert_eq!(notes(&both), [note("`defaults`")], "what a route inherits is said once");
    assert_eq!(notes(&route(&probe(", happened_if = \"/status=succeeded\""))), [""; 0]);
}

#[test]
fn callers_credentials_do_not_go_over_plain_http_unless_that_is_said() {
    let ask = |url: &str, rest: &str| format!("scope = \"ask\"\n[ask]\nurl = \"{url}\"\n{rest}");
    assert_eq!(
        problem(&ask("http://auth.example.com/whoami", "")),
        "hapax.toml:3: `ask.url` is not https, so anyone between could read the callers' credentials and name any tenant; \
         use https, or set `ask.allow_http` where the network in between is trusted"
    );
    for url in ["https://auth.example.com/", "http://127.0.0.1:9/", "http://localhost:9/", "http://[::1]:9/"] {
        file(&ask(url, "")).load();
    }
    assert!(file(&ask("http://auth:9000/", "allow_http = true")).load().ask.unwrap().allow_http);
}

#[test]
fn the_secret_of_a_probe_does_not_go_over_plain_http_unless_that_is_said() {
    let text = |url: &str, rest: &str| {
        format!("[defaults]\nprobe = {{ get = \"/{{id}}\", happened_if = \"/a=1\", url = \"{url}\"{rest} }}\n")
    };
    let secret = ", header = \"Authorization\", value = \"hunter2\"";
    assert_eq!(
        problem(&text("http://bank.example", secret)),
        "hapax.toml:2: `probe` sends a secret to a `url` that is not https, so anyone between could read it; use https, or \
         add `allow_http = true` where the network in between is trusted"
    );
    file(&text("http://bank.example", &format!("{secret}, allow_http = true"))).load();
    file(&text("https://bank.example", secret)).load();
    file(&text("http://127.0.0.1:9", secret)).load();
    file(&text("http://bank.example", "")).load();
    let odd = problem(&text("http://bank.example", &format!("{secret}, allow_http = 1")));
    assert!(odd.ends_with("`allow_http` that is neither true nor false"), "{odd}");
}

#[test]
fn the_id_of_a_request_has_a_field_of_its_own() {
    for name in ["Authorization", "Idempotency-Key", "traceparent", "Content-Type"] {
        let told = problem(&format!("[server]\nrequest_id_header = \"{name}\""));
        assert!(told.ends_with("or which holds something else; name another field for one of them"), "{told}");
    }
    for text in [
        "scope = \"header:X-Request-Id\"",
        "scope = \"credential:X-Request-Id\"",
        "[defaults]\nfingerprint_headers = [\"X-Request-Id\"]",
    ] {
        assert!(problem(text).contains("`server.request_id_header` names `x-request-id`"), "{text}");
    }
    file("[server]\nrequest_id_header = \"X-Correlation-Id\"").load();
}

/// Every setting that names a field of a request, with a field in it: the file, the line, and how the setting shows it.
fn naming(field: &str) -> Vec<(String, usize, String)> {
    let lower = field.to_lowercase();
    let jwt =
        "[jwt]\nalgorithms = [\"RS256\"]\njwks_url = \"http://127.0.0.1:1/keys\"\naudience = \"a\"\nissuer = \"i\"\n";
    let ask = "scope = \"ask\"\n[ask]\nurl = \"http://127.0.0.1:9/ask\"\n";
    let route = "[[route]]\npath = \"/pay\"\n";
    vec![
        (format!("[keys]\nheaders = [\"Idempotency-Key\", \"{field}\"]"), 2, format!("`keys.headers` names `{lower}`")),
        (format!("scope = [\"credential\", \"header:{field}\"]"), 1, format!("`scope` names \"header:{lower}\"")),
        (format!("scope = \"credential:{field}\""), 1, format!("`scope` names \"credential:{lower}\"")),
        (
            format!("scope = \"jwt\"\n{jwt}token_in = \"header:{field}\""),
            7,
            format!("`jwt.token_in` names \"header:{lower}\""),
        ),
        (
            format!("{ask}pass_headers = [\"Authorization\", \"{field}\"]"),
            4,
            format!("`ask.pass_headers` names `{lower}`"),
        ),
        (
            format!("[defaults]\nfingerprint_headers = [\"{field}\"]"),
            2,
            format!("`fingerprint_headers` names `{lower}`"),
        ),
        (
            format!("{route}fingerprint_headers = [\"X-Currency\", \"{field}\"]"),
            3,
            format!("`fingerprint_headers` names `{lower}`"),
        ),
        (
            format!("{route}request_age_max = \"5m\"\nrequest_time_header = \"{field}\""),
            4,
            format!("`request_time_header` names `{lower}`"),
        ),
        (
            format!("[server]\nrequest_id_header = \"{field}\""),
            2,
            format!("`server.request_id_header` names `{lower}`"),
        ),
    ]
}

#[test]
fn a_field_that_no_request_keeps_is_refused_wherever_it_is_named() {
    let fields = [
        "Idempotency-Record",
        "Idempotency-Attempt",
        "HTTP2-Settings",
        "Keep-Alive",
        "Proxy-Connection",
        "TE",
        "Upgrade",
    ];
    for field in fields {
        for (text, line, named) in naming(field) {
            let why = "which hapax removes from every request, so that nobody could send it; name another field";
            assert_eq!(problem(&text), format!("hapax.toml:{line}: {named}, {why}"));
        }
    }
    // Those that hold something else had a problem of their own before.
    for field in ["Connection", "Transfer-Encoding", "Proxy-Authorization"] {
        for (text, line, named) in naming(field) {
            assert!(problem(&text).starts_with(&format!("hapax.toml:{line}: {named}, ")), "{text}");
        }
    }
}

#[test]
fn a_field_that_hapax_sets_itself_says_nothing_of_the_client() {
    for field in ["Via", "Forwarded", "X-Forwarded-For"] {
        for (text, line, named) in naming(field) {
            // An endpoint that is asked may well be told by hapax.
            if named.starts_with("`ask.pass_headers`") {
                file(&text).load();
                continue;
            }
            let why = "which hapax sets itself in every request, so that it does not say what the client sent; name another \
                       field";
            assert_eq!(problem(&text), format!("hapax.toml:{line}: {named}, {why}"));
        }
    }
    for field in ["X-Forwarded-Host", "X-Forwarded-User"] {
        for (text, line, named) in naming(field) {
            if named.starts_with("`ask.pass_headers`") && field == "X-Forwarded-Host" {
                continue;
            }
            let why = "which hapax takes from nobody but a trusted peer, and no peer is trusted; name the gateway in \
                       `server.trusted_peers`, or another field";
            assert_eq!(problem(&text), format!("hapax.toml:{line}: {named}, {why}"));
            let trusting = match text.strip_prefix("[server]\n") {
                Some(rest) => format!("[server]\ntrusted_peers = [\"10.0.0.1\"]\n{rest}"),
                None => format!("{text}\n[server]\ntrusted_peers = [\"10.0.0.1\"]\n"),
            };
            file(&trusting).load();
        }
    }
    // What others say by is theirs, where it is named.
    for field in ["X-Real-IP", "X-Tenant"] {
        for (text, ..) in naming(field) {
            file(&text).load();
        }
    }
}

#[test]
fn a_secret_that_a_probe_sends_to_a_plain_upstream_is_noted() {
    let text = |to: &str, rest: &str| {
        let probe = format!("{{ get = \"/{{id}}\", happened_if = \"/a=1\"{rest} }}");
        format!("[upstream]\nto = \"{to}\"\n[defaults]\nprobe = {probe}\n[[route]]\npath = \"/pay\"\n")
    };
    let notes = |text: &str| {
        let mut setup = file(text);
        setup.sources.flags.clear();
        setup.load().warnings()
    };
    let holder = without_file();
    let token = holder.write("token", "s3cret", 0o600);
    let secret = &format!(", header = \"Authorization\", value_file = \"{}\"", token.display());
    let note = "the probe of `defaults` sends a secret to `upstream.to`, which is not https: anyone between could read it; use \
                https, or add `allow_http = true` to the probe where the network in between is trusted";
    assert_eq!(notes(&text("http://api:3000", secret)), [note], "what a route inherits is said once");
    assert_eq!(notes(&text("http://api:3000", &format!("{secret}, allow_http = true"))), [""; 0]);
    for to in ["https://api.example", "http://127.0.0.1:3000", "http://localhost:3000"] {
        assert_eq!(notes(&text(to, secret)), [""; 0], "{to}");
    }
    assert_eq!(notes(&text("http://api:3000", "")), [""; 0], "no secret");
    let elsewhere = format!("{secret}, url = \"https://bank.example\"");
    assert_eq!(notes(&text("http://api:3000", &elsewhere)), [""; 0], "it goes elsewhere");
}

#[test]
fn trusting_everybody_is_noted() {
    let notes = |peers: &str| file(&format!("[server]\ntrusted_peers = [{peers}]\n")).load().warnings();
    let note = |network: &str| {
        format!(
            "`server.trusted_peers` has {network}, which strangers are in: whoever reaches this listener can say who they are; \
             name the gateways alone"
        )
    };
    assert_eq!(notes("\"0.0.0.0/0\""), [note("0.0.0.0/0")]);
    assert_eq!(notes("\"10.0.0.0/8\", \"::/0\""), [note("::/0")]);
    assert_eq!(notes("\"0.0.0.0/1\", \"128.0.0.0/1\""), [note("0.0.0.0/1"), note("128.0.0.0/1")]);
    assert_eq!(notes("\"2000::/3\""), [note("2000::/3")]);
    for peers in ["\"10.0.0.0/8\"", "\"172.16.0.0/12\"", "\"127.0.0.1\"", "\"fc00::/7\"", "\"::1\"", "\"203.0.113.7\""]
    {
        assert_eq!(notes(peers), [""; 0], "{peers}");
    }
}
