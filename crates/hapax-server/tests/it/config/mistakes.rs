//! What newcomers write on the first day, and what they are told.

use crate::config::setup::{file, problem};

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
