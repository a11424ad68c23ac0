//! Policies and routes: what is refused, and what is inherited.

use std::time::Duration;

use hapax_server::config::policy::{Counted, InFlight, KeyPer, LabelSource, Meaning};
use hapax_server::config::{Mode, OnLapse, Policy};
use http::Method;

use crate::config::setup::{file, problem, without_file};

#[test]
fn a_retention_of_nothing_a_negative_one_and_one_of_a_thousand_years_are_refused() {
    assert_eq!(problem("[defaults]\nretention = \"0s\""), "hapax.toml:2: `retention` is 0; write a duration above 0");
    assert_eq!(
        problem("[defaults]\nretention = \"-5s\""),
        "hapax.toml:2: `defaults.retention` must be a duration with a unit, such as \"30s\" or \"24h\", not \"-5s\""
    );
    assert_eq!(
        problem("[defaults]\nretention = \"365000d\""),
        "hapax.toml:2: `retention` is 365000d, more than ten years; check its unit"
    );
}

#[test]
fn a_retention_below_the_lease_or_the_upstream_timeout_is_refused_where_it_was_set() {
    assert_eq!(
        problem("[upstream]\nanswer_timeout = \"1s\"\n[defaults]\nretention = \"10s\""),
        "hapax.toml:4: `retention` is 10s, shorter than `lease`, 30s; raise it"
    );
    assert_eq!(
        problem("[defaults]\nretention = \"45s\""),
        "hapax.toml:2: `retention` is 45s, shorter than `upstream.answer_timeout`, 1m; raise it"
    );
    assert_eq!(
        problem("[upstream]\nanswer_timeout = \"2d\""),
        "hapax.toml:2: `retention` is 24h, shorter than `upstream.answer_timeout`, 2d; raise it"
    );
    assert_eq!(
        problem("[[route]]\npath = \"/a\"\nlease = \"2d\""),
        "hapax.toml:3: `retention` is 24h, shorter than `lease`, 2d; raise it"
    );
}

#[test]
fn a_problem_that_routes_inherit_is_told_once() {
    let found = problem("[defaults]\nretention = \"45s\"\n[[route]]\npath = \"/a\"\n[[route]]\npath = \"/b\"\n");
    assert_eq!(found, "hapax.toml:2: `retention` is 45s, shorter than `upstream.answer_timeout`, 1m; raise it");
}

#[test]
fn a_lease_that_a_hiccup_would_end_is_refused() {
    assert_eq!(
        problem("[defaults]\nlease = \"50ms\""),
        "hapax.toml:2: `lease` is below 1s, so a hiccup of the store would end it; raise it"
    );
}

#[test]
fn impossible_combinations_are_refused() {
    for (text, why) in [
        ("key_age_max = \"1h\"", "`key_age_max` needs keys that hold their time; set `key_format = \"uuidv7\"`"),
        ("key_length_min = 0", "`key_length_min` is 0, but an empty key is no key; write 1 or more"),
        (
            "request_age_max = \"5m\"",
            "`request_age_max` needs the field that holds a request's time; set `request_time_header`",
        ),
        (
            "request_time_header = \"X-Time\"",
            "`request_time_header` does nothing without `request_age_max`; set that too",
        ),
        (
            "fingerprint = \"only\"",
            "`fingerprint` is \"only\" or \"except\", which needs JSON pointers; set `fingerprint_pointers`",
        ),
        ("replay_check = \"ask\"", "`replay_check = \"ask\"` needs an endpoint; set `ask.url`"),
        ("answer_bytes_max = \"9MiB\"", "`answer_bytes_max` is 9MiB, above the limit of 8MiB; lower it"),
        ("request_bytes_max = \"1GiB\"", "`request_bytes_max` is 1GiB, above the limit of 8MiB; lower it"),
        ("wait_max = \"1h\"", "`wait_max` is 1h, above 5m, longer than clients wait; lower it"),
        ("new_keys_per_second = 0", "`defaults.new_keys_per_second` must be a whole number above 0, or \"off\", not 0"),
        (
            "labels = { \"a b\" = \"request:/a\" }",
            "`labels` has the name \"a b\"; use letters, digits, dots, underscores and hyphens",
        ),
        (
            "labels = { a = \"reqest:/a\" }",
            "`defaults.labels` must be a table, each value \"request:\" or \"answer:\" and a JSON pointer, such as \
             \"request:/order/id\", not \"reqest:/a\"; did you mean `request`?",
        ),
        (
            "fingerprint_pointers = [\"amount\"]",
            "`defaults.fingerprint_pointers` must be a list, each item a JSON pointer such as \"/order/id\", not \
             \"amount\"",
        ),
    ] {
        assert_eq!(problem(&format!("[defaults]\n{text}\n")), format!("hapax.toml:2: {why}"));
    }
    assert_eq!(
        problem("[defaults]\nrequest_time_header = \"X-Time\"\nrequest_age_max = \"0s\""),
        "hapax.toml:3: `request_age_max` is 0; write a duration above 0"
    );
    let many: Vec<String> = (0..17).map(|at| format!("l{at} = \"request:/{at}\"")).collect();
    assert_eq!(
        problem(&format!("[defaults]\nlabels = {{ {} }}", many.join(", "))),
        "hapax.toml:2: `labels` has 17 entries, above the limit of 14; remove some"
    );
    let long: Vec<String> = (0..40).map(|at| format!("\"X-{at}-{}\"", "a".repeat(30))).collect();
    assert_eq!(
        problem(&format!("[defaults]\nfingerprint_headers = [{}]", long.join(", "))),
        "hapax.toml:2: `fingerprint` is not accepted: header names and pointers take more than 1024 bytes together"
    );
    assert_eq!(
        problem("[defaults]\nkey_format = \"uuid\"\nkey_length_min = 40"),
        "hapax.toml:3: `key_length_min` is 40, but a UUID has 36 characters; lower it"
    );
}

#[test]
fn a_bad_pattern_is_refused_with_what_to_write() {
    assert_eq!(
        problem("[[route]]\npath = \"payments\""),
        "hapax.toml:2: `route.path` does not begin with `/`; put one in front"
    );
    assert_eq!(
        problem("[[route]]\npath = \"/(a+)+$\""),
        "hapax.toml:2: `route.path` looks like a regular expression or glob; write `{name}` for one segment, `{*rest}` \
         for all that follow"
    );
    assert_eq!(
        problem("[[route]]\nlease = \"20s\""),
        "hapax.toml:1: the route has no path; write path = \"/payments\""
    );
}

#[test]
fn a_route_for_a_method_that_is_never_protected_is_refused() {
    assert_eq!(
        problem("[[route]]\npath = \"/a\"\nmethods = [\"GET\", \"POST\"]"),
        "hapax.toml:3: `methods` names GET, which is never protected; remove it"
    );
    assert_eq!(
        problem("[[route]]\npath = \"/a\"\nmethods = [\"post\"]"),
        "hapax.toml:3: `route.methods` must be a list, each item a method such as \"POST\", not \"post\"; did you \
         mean `POST`?"
    );
    assert_eq!(
        problem("[[route]]\npath = \"/a\"\nmethods = []"),
        "hapax.toml:3: `methods` names none; write [\"POST\"]"
    );
}

#[test]
fn two_routes_for_the_same_requests_are_refused() {
    assert_eq!(
        problem("[[route]]\npath = \"/a/{id}\"\n[[route]]\nmethods = \"POST\"\npath = \"/a/{name}\"\n"),
        "hapax.toml:5: another route already says what holds for POST /a/{id}; join the two"
    );
    let apart = file("[[route]]\nmethods = \"PUT\"\npath = \"/a\"\n[[route]]\nmethods = \"POST\"\npath = \"/a\"\n");
    assert_eq!(apart.load().routes.len(), 2);
}

#[test]
fn a_route_inherits_what_it_does_not_say_and_is_protected() {
    let text = "[defaults]\nprotect = false\nretention = \"2d\"\nin_flight = \"wait\"\n\
                [[route]]\npath = \"/a\"\nlease = \"1m\"\nnew_keys_per_second = 5\n\
                [[route]]\npath = \"/b\"\nprotect = false\nin_flight = \"conflict\"\n";
    let config = file(text).load();
    let (a, b) = (&config.routes[0].policy, &config.routes[1].policy);
    assert!(!config.defaults.protect && a.protect && !b.protect);
    assert_eq!(
        (a.retention, a.lease, a.in_flight),
        (Duration::from_secs(172_800), Duration::from_secs(60), InFlight::Wait)
    );
    assert_eq!((b.lease, b.in_flight), (Duration::from_secs(30), InFlight::Conflict));
    assert_eq!(config.routes[0].methods, [Method::POST, Method::PATCH]);
    assert_eq!(a.new_keys_per_second.map(u32::from), Some(5));
}

#[test]
fn every_key_of_a_policy_reaches_the_policy() {
    let text = "[ask]\nurl = \"http://127.0.0.1:9/ask\"\n[[route]]\nmethods = [\"DELETE\"]\npath = \"/a/{*rest}\"\n\
        required = false\nmode = \"observe\"\nretention = \"7d\"\nlease = \"20s\"\non_lapse = \"rerun\"\n\
        on_server_error = \"completed\"\non_gateway_error = \"ready\"\nin_flight = \"accepted\"\n\
        wait_max = \"20s\"\nkey_per = \"route\"\nkey_format = \"uuidv7\"\nkey_length_min = 36\nkey_age_max = \"1h\"\n\
        request_age_max = \"5m\"\nrequest_time_header = \"X-Time\"\nfingerprint = \"except\"\n\
        fingerprint_pointers = [\"/sent_at\"]\nfingerprint_headers = [\"X-Account\"]\nrequest_bytes_max = \"2MiB\"\n\
        answer_bytes_max = \"1MiB\"\nkeep_cookies = true\nnot_stored = [409]\nnew_keys_per_second = 1\n\
        lookups_per_second = 2\nreplay_check = \"ask\"\nkeep_expired = \"30d\"\nattempts_max = 3\n\
        labels = { order = \"request:/order\", charge = \"answer:/id\" }\n";
    let config = file(text).load();
    let route = &config.routes[0].policy;
    let untouched = Policy::default();
    let mut shown_twice = Vec::new();
    for (ours, default) in format!("{route:#?}").lines().zip(format!("{untouched:#?}").lines()) {
        if ours == default && ours.contains(": ") {
            shown_twice.push(ours.trim().to_owned());
        }
    }
    // Naming a route protects it, as the default does; everything else was changed above.
    assert_eq!(shown_twice[0], "protect: true,");
    assert_eq!((route.required, route.mode, route.on_lapse), (false, Mode::Observe, OnLapse::Rerun));
    assert_eq!((route.on_server_error, route.on_gateway_error), (Meaning::Completed, Meaning::Ready));
    assert_eq!((route.key_per, route.fingerprint, route.keep_cookies), (KeyPer::Route, Counted::Except, true));
    assert_eq!(route.frozen().retention_ms, 604_800_000);
    assert_eq!((route.frozen().attempts_max, route.frozen().keep_expired_ms), (Some(3), Some(2_592_000_000)));
    assert!(matches!(&route.labels["charge"], LabelSource::Answer(pointer) if pointer.as_str() == "/id"));
    assert_eq!(
        route.recipe(Some("k1")).unwrap().scheme().as_str(),
        "1;hmac-sha256=k1;headers=x-account;except=/sent_at"
    );
}

#[test]
fn a_route_can_switch_off_what_it_would_inherit() {
    let config = file("[defaults]\nattempts_max = 3\n[[route]]\npath = \"/a\"\nattempts_max = \"off\"\n").load();
    assert_eq!((config.defaults.attempts_max.map(u32::from), config.routes[0].policy.attempts_max), (Some(3), None));
}

#[test]
fn the_most_specific_route_comes_first() {
    let paths = ["/{*all}", "/a/{id}", "/a/b", "/a/{*rest}"];
    let text: String = paths.iter().map(|path| format!("[[route]]\npath = \"{path}\"\n")).collect();
    let config = file(&text).load();
    let matching: Vec<&str> = config.routes_for(&Method::POST, "/a/b").map(|route| route.path.as_str()).collect();
    assert_eq!(matching, ["/a/b", "/a/{id}", "/a/{*rest}", "/{*all}"]);
    assert_eq!(config.routes_for(&Method::PUT, "/a/b").count(), 0);
}

#[test]
fn observing_as_a_whole_beats_what_routes_say_and_the_defaults_do_not() {
    let text = "[[route]]\npath = \"/a\"\nmode = \"enforce\"\n";
    let whole = file(text).flag("--observe", "mode", "observe").load();
    assert_eq!((whole.defaults.mode, whole.routes[0].policy.mode), (Mode::Observe, Mode::Observe));
    let by_default = file(&format!("[defaults]\nmode = \"observe\"\n{text}")).load();
    assert_eq!((by_default.defaults.mode, by_default.routes[0].policy.mode), (Mode::Observe, Mode::Enforce));
}

#[test]
fn the_stripe_dialect_stores_server_errors_unless_told_otherwise() {
    let stripe = without_file().flag("--dialect", "dialect", "stripe").load();
    assert_eq!(
        (stripe.defaults.on_server_error, stripe.defaults.on_gateway_error),
        (Meaning::Completed, Meaning::Completed)
    );
    let told = file("dialect = \"stripe\"\n[defaults]\non_server_error = \"ready\"\n").load();
    assert_eq!(told.defaults.on_server_error, Meaning::Ready);
}

#[test]
fn pointers_that_count_nowhere_are_refused() {
    let why = "`fingerprint_pointers` do nothing unless `fingerprint` is \"only\" or \"except\"; set that too, or remove them";
    let pointers = "fingerprint_pointers = [\"/a\"]\n";
    for other in ["", "fingerprint = \"whole\"\n", "fingerprint = \"ignored\"\n"] {
        assert_eq!(problem(&format!("[defaults]\n{pointers}{other}")), format!("hapax.toml:2: {why}"));
        let route = format!("[[route]]\npath = \"/a\"\n{pointers}{other}");
        assert_eq!(problem(&route), format!("hapax.toml:3: {why}"));
    }
    // Pointers of the defaults may count in a route, and a route may do without them.
    file(&format!("[defaults]\n{pointers}[[route]]\npath = \"/a\"\nfingerprint = \"only\"\n")).load();
    file(&format!("[defaults]\nfingerprint = \"only\"\n{pointers}[[route]]\npath = \"/a\"\nfingerprint = \"whole\"\n"))
        .load();
    let others = "[[route]]\npath = \"/a\"\nfingerprint = \"only\"\nfingerprint_pointers = [\"/b\"]\n";
    assert_eq!(problem(&format!("[defaults]\n{pointers}{others}")), format!("hapax.toml:2: {why}"));
}
