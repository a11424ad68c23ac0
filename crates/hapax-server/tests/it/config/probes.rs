//! Probes in the configuration: what is read, what is refused, and that no secret is shown.

use std::time::Duration;

use hapax_server::config::{PROBE_KEYS, ProbeAnswer};
use http::StatusCode;

use crate::config::setup::{file, problem, without_file};

const MINIMAL: &str = r#"{ get = "/payments?record={id}" }"#;

#[test]
fn a_probe_needs_little_and_is_inherited() {
    let config = file(&format!("[defaults]\nprobe = {MINIMAL}\n[[route]]\npath = \"/a\"\n")).load();
    let probe = config.routes[0].policy.probe.clone().unwrap();
    assert_eq!(config.defaults.probe.as_ref(), Some(&probe));
    assert_eq!(
        (probe.happened.statuses, probe.did_not_happen.statuses),
        (vec![StatusCode::OK], vec![StatusCode::NOT_FOUND])
    );
    assert_eq!((probe.declined.statuses, probe.answer), (vec![], ProbeAnswer::Probe));
    assert_eq!((probe.timeout, probe.header, probe.url), (Duration::from_secs(10), None, None));
}

#[test]
fn the_example_of_the_documentation_is_one() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reconcile.md");
    let page = std::fs::read_to_string(path).unwrap();
    let example = page.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let setup = without_file();
    let token = setup.write("token", "Bearer hunter2", 0o600).display().to_string();
    let config = file(&example.replace("/etc/hapax/probe-token", &token)).load();
    let probe = config.routes[0].policy.probe.as_ref().unwrap();
    assert_eq!(probe.answer, ProbeAnswer::ProbeAs(StatusCode::CREATED));
    assert_eq!(probe.happened.condition.as_ref().unwrap().equals, "succeeded");
}

#[test]
fn a_route_may_do_without_the_probe_of_the_defaults() {
    let config = file(&format!("[defaults]\nprobe = {MINIMAL}\n[[route]]\npath = \"/a\"\nprobe = \"off\"\n")).load();
    assert_eq!(config.routes[0].policy.probe, None);
}

#[test]
fn statuses_may_be_a_number_or_several_in_a_text() {
    let config = file("[defaults]\nprobe = { get = \"/{id}\", happened = \"200, 201\", did_not_happen = 410 }").load();
    let probe = config.defaults.probe.unwrap();
    assert_eq!(probe.happened.statuses, [StatusCode::OK, StatusCode::CREATED]);
    assert_eq!(probe.did_not_happen.statuses, [StatusCode::GONE]);
}

#[test]
fn the_secret_of_a_probe_is_read_from_its_file_and_shown_nowhere() {
    let setup = without_file();
    let token = setup.write("token", "Bearer hunter2\n", 0o600);
    let text = format!(
        "[defaults]\nprobe = {{ get = \"/{{id}}\", header = \"Authorization\", value_file = \"{}\" }}\n",
        token.display()
    );
    let named = file(&text);
    let config = named.load();
    assert_eq!(config.defaults.probe.as_ref().unwrap().header.as_ref().unwrap().1.expose(), "Bearer hunter2");
    assert!(!format!("{config:?}").contains("hunter2"));
    let shown = named.told("defaults.probe");
    assert!(
        shown.contains("header = \"authorization\", value = \"(hidden)\"") && !shown.contains("hunter2"),
        "{shown}"
    );
}

#[test]
fn a_probe_that_cannot_be_is_refused_with_what_to_write() {
    for (table, why) in [
        ("{}", "has no `get`; write the path to ask, such as \"/payments?idempotency_record={id}\""),
        (
            r#"{ get = "payments" }"#,
            "has the `get` \"payments\"; write a path such as \"/payments?idempotency_record={id}\"",
        ),
        (r#"{ get = "/payments" }"#, "has a `get` that names no request; put {id} into it"),
        (r#"{ get = "/{uid}" }"#, "has a `get` with {uid}; there are {id}, {key}, {scope} and {label:NAME}"),
        (r#"{ get = "/{key" }"#, "has a `get` with a { that is not closed; write {id}"),
        (r#"{ get = "/{id}", hapened = "200" }"#, "has the unknown key `hapened`; did you mean `happened`?"),
        (
            r#"{ get = "/{id}", happened = "302" }"#,
            "has `happened` = \"302\"; write statuses such as \"200\" or \"200,201\", no redirects",
        ),
        (
            r#"{ get = "/{id}", happened_if = "status" }"#,
            "has `happened_if` = \"status\"; write a JSON pointer and a value, such as \"/status=succeeded\"",
        ),
        (r#"{ get = "/{id}", declined_if = "/a=b" }"#, "has `declined_if` without `declined`; name its statuses too"),
        (
            r#"{ get = "/{id}", declined = "200", declined_if = "/a=b" }"#,
            "gives 200 OK two meanings; tell them apart by `happened_if`, `did_not_happen_if` or `declined_if`",
        ),
        (
            r#"{ get = "/{id}", answer = "stored:404" }"#,
            "has `answer` = \"stored:404\"; write \"probe\", \"probe:201\" (its body, with that status) or \"stored:201\" \
             (no body)",
        ),
        (r#"{ get = "/{id}", header = "X" }"#, "has a `header` without a value; name its file in `value_file`"),
        (r#"{ get = "/{id}", value = "x" }"#, "has a value without a `header`; name the header field"),
        (
            r#"{ get = "/{id}", url = "https://bank.example/v1" }"#,
            "has a `url` that is not scheme, host and port; write such as \"https://bank.example\", and the path into \
             `get`",
        ),
        (
            r#"{ get = "/{id}", host = "bank.example", header = "host", value = "x" }"#,
            "has both a `host` and the `header` Host; remove the header",
        ),
        (r#"{ get = "/{id}", timeout = 5 }"#, "has a `timeout` that is no duration; write such as \"10s\""),
    ] {
        let problem = problem(&format!("[defaults]\nprobe = {table}\n"));
        assert_eq!(problem, format!("hapax.toml:2: `defaults.probe` {why}"));
    }
    assert_eq!(
        problem("[[route]]\npath = \"/a\"\nprobe = 7"),
        "hapax.toml:3: `route.probe` must be a table such as { get = \"/payments?idempotency_record={id}\" }, or \"off\", \
         not 7"
    );
}

#[test]
fn a_probe_that_would_be_believed_too_early_is_refused() {
    assert_eq!(
        problem(&format!("[defaults]\nprobe = {MINIMAL}\nsettle_after = \"59s\"")),
        "hapax.toml:3: `settle_after` is 59s, shorter than `upstream.answer_timeout`, 1m: a probe would be believed while \
         the upstream may still be at work; raise it"
    );
    file("[defaults]\nsettle_after = \"59s\"").load();
}

#[test]
fn a_probe_that_asks_for_a_label_nobody_records_is_refused() {
    let asks =
        |labels: &str| format!("[defaults]\nprobe = {{ get = \"/{{label:order}}?record={{id}}\" }}\nlabels = {labels}");
    assert_eq!(problem(&asks("{}")), "hapax.toml:2: `probe` asks for the label `order`, which `labels` does not have");
    file(&asks("{ order = \"request:/order\" }")).load();
    file("[defaults]\nprobe = { get = \"/{label:request-id}/{id}\" }").load();
}

#[test]
fn a_probe_that_asks_for_a_label_of_the_answer_is_refused() {
    let asks = "probe = { get = \"/{label:charge}/{id}\" }";
    let why = "`probe` asks for the label `charge`, which is taken from the answer: a request whose outcome is unknown has \
               none; take it from the request (\"request:/…\"), or ask by {id}";
    let label = "labels = { charge = \"answer:/id\" }";
    assert_eq!(problem(&format!("[defaults]\n{label}\n{asks}")), format!("hapax.toml:3: {why}"));
    let inherited = format!("[defaults]\n{label}\n[[route]]\npath = \"/a\"\n{asks}");
    assert_eq!(problem(&inherited), format!("hapax.toml:5: {why}"));
    file(&format!("[defaults]\nlabels = {{ charge = \"answer:/id\" }}\nprobe = {MINIMAL}")).load();
}

#[test]
fn a_probe_may_be_asked_under_another_host() {
    for host in ["bank.example", "bank.example:8443", "localhost", "10.0.0.1:80", "[::1]", "[::1]:8443", "a_b"] {
        let named = file(&format!("[defaults]\nprobe = {{ get = \"/{{id}}\", host = \"{host}\" }}"));
        assert_eq!(named.load().defaults.probe.unwrap().host.as_deref(), Some(host));
        let shown = named.told("defaults.probe");
        assert!(shown.contains(&format!("host = \"{host}\"")), "{shown}");
    }
    let wrong =
        ["http://bank.example", "bank.example/", "me@bank.example", "bank.example:", "bank.example:0", "a:65536"];
    for host in
        wrong.into_iter().chain([":80", "[::1", "[bank]", "a b", "a\\r\\nX: y", "*", "bank.example:8443:1", "ä"])
    {
        assert_eq!(
            problem(&format!("[defaults]\nprobe = {{ get = \"/{{id}}\", host = \"{host}\" }}")),
            "hapax.toml:2: `defaults.probe` has a `host` that is not a name, or a name and a port; write such as \
             \"bank.example\" or \"bank.example:8443\"",
            "{host}"
        );
    }
}

#[test]
fn every_key_of_a_probe_stands_in_the_documentation() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let page = std::fs::read_to_string(path).unwrap();
    let section = page.split("### `probe`\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let (mut told, mut known) = (rows.collect::<Vec<_>>(), PROBE_KEYS.to_vec());
    told.sort_unstable();
    known.sort_unstable();
    assert_eq!(told, known);
}

#[test]
fn the_labels_that_every_record_has_are_taken() {
    assert_eq!(
        problem("[defaults]\nlabels = { route = \"request:/r\" }"),
        "hapax.toml:2: `labels` has the name \"route\", which hapax gives every record itself; choose another"
    );
}

#[test]
fn a_secret_in_a_file_that_anyone_can_read_is_refused() {
    let mut setup = without_file();
    let text = "[defaults]\nprobe = { get = \"/{id}\", header = \"X-Token\", value = \"hunter2\" }\n";
    setup.sources.file = Some(setup.write("hapax.toml", text, 0o644));
    assert_eq!(
        setup.problems(),
        ["hapax.toml:2: `probe` holds a secret, and anyone on this machine can read the file; name a file of its own \
             in `value_file`"]
    );
}

#[test]
fn a_probe_cannot_be_set_by_a_variable() {
    let problems = without_file().variable("HAPAX_DEFAULTS_PROBE", "get=/x").problems();
    assert_eq!(
        problems,
        ["HAPAX_DEFAULTS_PROBE: `defaults.probe` is a table, and cannot be set by a variable; write it into the file"]
    );
}

const TO_ID: &str = ", and would find what is another's; ask by {id}, which the upstream gets as `Idempotency-Record`";

fn asks(scope: &str, get: &str, more: &str) -> String {
    let labels = "labels = { order = \"request:/order\" }";
    format!("scope = {scope}\n[defaults]\n{labels}\nprobe = {{ get = \"{get}\"{more} }}\n")
}

#[test]
fn a_probe_that_is_not_bound_to_the_caller_is_refused() {
    let by_key = "by {key}, which another caller may use as well";
    let by_label = "by a label, which any caller may write";
    let by_digest = "by {scope}, which is a digest here that only hapax knows";
    let both = r#"["credential", "header:X-Tenant"]"#;
    for (scope, get, more, why) in [
        (r#""credential""#, "/p?key={key}", "", by_key),
        (r#""header:X-Tenant""#, "/p?key={key}", "", by_key),
        (r#""credential""#, "/p/{label:order}", "", by_label),
        (r#""header:X-Tenant""#, "/p/{label:order}", "", by_label),
        (r#""credential""#, "/p/{label:order}?key={key}", "", by_key),
        (r#""credential""#, "/p/{scope}/{key}", "", by_digest),
        (r#""credential:X-Api-Key""#, "/p/{scope}/{key}", "", by_digest),
        (both, "/p/{scope}/{key}", "", by_digest),
        // Keys may be unique; what stands in a body is not.
        (r#""credential""#, "/p/{label:order}", ", keys_unique = true", by_label),
        (r#""credential""#, "/p/{label:route}/{label:request-id}", "", by_label),
        (r#""credential""#, "/p?key={key}", ", keys_unique = false", by_key),
    ] {
        assert_eq!(
            problem(&asks(scope, get, more)),
            format!("hapax.toml:4: `probe` asks {why}{TO_ID}"),
            "{scope} {get}"
        );
    }
    for (scope, get, more) in [
        (r#""credential""#, "/p?record={id}", ""),
        (r#""credential""#, "/p/{label:order}/{id}", ""),
        (both, "/p?record={id}", ""),
        (r#""header:X-Tenant""#, "/p/{scope}/{label:order}", ""),
        (r#""single""#, "/p?key={key}", ""),
        (r#""single""#, "/p/{label:order}", ""),
        (r#""credential""#, "/p?key={key}", ", keys_unique = true"),
    ] {
        file(&asks(scope, get, more)).load();
    }
}

#[test]
fn an_inherited_probe_that_is_not_bound_is_refused_once() {
    let text = "[defaults]\nprobe = { get = \"/{key}\" }\n[[route]]\npath = \"/a\"\n[[route]]\npath = \"/b\"\n";
    assert_eq!(
        file(text).problems(),
        [format!("hapax.toml:2: `probe` asks by {{key}}, which another caller may use as well{TO_ID}")]
    );
}

#[test]
fn where_keys_are_said_to_be_unique_nothing_of_the_probes_answer_is_recorded() {
    let named = file(&asks(r#""credential""#, "/p?key={key}", ", keys_unique = true"));
    let probe = named.load().defaults.probe.unwrap();
    assert_eq!((probe.answer, probe.is_by_key_alone()), (ProbeAnswer::Stored(StatusCode::OK), true));
    assert!(named.load().warnings().iter().any(|note| note.starts_with("a probe says `keys_unique`: ")));
    assert!(named.told("defaults.probe").contains("keys_unique = true"), "{}", named.told("defaults.probe"));
    for answer in ["probe", "probe:201"] {
        let more = format!(", keys_unique = true, answer = \"{answer}\"");
        assert_eq!(
            problem(&asks(r#""credential""#, "/p?key={key}", &more)),
            format!(
                "hapax.toml:4: `defaults.probe` has `answer` = \"{answer}\" beside `keys_unique`; whoever sends another \
                 caller's key would get what is that caller's: write \"stored:201\", or ask by {{id}}"
            )
        );
        let bound = file(&asks(r#""credential""#, "/p?key={key}&record={id}", &more)).load();
        assert!(!bound.defaults.probe.unwrap().is_by_key_alone(), "the id says whose it is");
    }
    assert_eq!(
        problem(&asks(r#""credential""#, "/p?key={key}", ", keys_unique = \"yes\"")),
        "hapax.toml:4: `defaults.probe` has `keys_unique` = \"yes\"; write true or false"
    );
}
