//! Reloading: the same sources read again, and what cannot change while the process lives.

use crate::config::setup::{file, without_file};

#[test]
fn the_file_is_read_anew_each_time() {
    let setup = file("[defaults]\nlease = \"20s\"\n");
    let first = setup.load();
    setup.write("hapax.toml", "[defaults]\nlease = \"40s\"\n", 0o600);
    let second = setup.load();
    assert_eq!((first.defaults.lease.as_secs(), second.defaults.lease.as_secs()), (20, 40));
    assert!(first.needs_restart(&second).is_empty());
}

#[test]
fn a_reload_of_an_invalid_file_is_refused_with_the_words_of_a_start() {
    let setup = file("");
    let running = setup.load();
    setup.write("hapax.toml", "[defaults]\nlease = \"0s\"\n", 0o600);
    assert_eq!(setup.problems(), ["hapax.toml:2: `lease` is 0; write a duration above 0"]);
    setup.write("hapax.toml", "", 0o600);
    assert_eq!(setup.load(), running);
}

#[test]
fn what_needs_a_restart_is_named() {
    let old = without_file().load();
    for (text, keys) in [
        ("", vec![]),
        ("[server]\nfrom = \"127.0.0.1:1\"", vec!["server.from"]),
        (
            "[server]\nconnections_max = 5\nheader_timeout = \"1s\"",
            vec!["server.connections_max", "server.header_timeout"],
        ),
        ("[store]\nurl = \"sqlite:other.db\"", vec!["store"]),
        ("[defaults]\nkey_per = \"route\"", vec!["key_per"]),
        ("[[route]]\npath = \"/a\"\nkey_per = \"route\"", vec!["key_per"]),
        ("[admin]\nfrom = \"off\"", vec!["admin.from"]),
        ("[admin]\ntoken = \"hunter2hunter2hunter2\"", vec![]),
        ("[admin]\nhosts = [\"hapax.internal\"]", vec!["admin.hosts"]),
        ("[log]\nlevel = \"debug\"", vec![]),
        ("[log]\nformat = \"json\"", vec!["log.format"]),
        ("[server]\nrequest_id_header = \"X-Correlation-Id\"", vec!["server.request_id_header"]),
        ("[server]\ndrain_delay = \"5s\"", vec![]),
    ] {
        assert_eq!(old.needs_restart(&file(text).load()), keys, "{text}");
    }
}

/// Whether a key of some request would be looked for elsewhere.
#[test]
fn a_reload_that_changes_for_whom_some_keys_are_unique_needs_a_restart() {
    let route = |path: &str, rest: &str| format!("[[route]]\npath = \"{path}\"\n{rest}\n");
    let per_route = "key_per = \"route\"";
    let by_default = format!("[defaults]\n{per_route}\n");
    let changes = [
        (by_default.clone(), by_default.clone() + &route("/a", "key_per = \"caller\""), true),
        (by_default.clone(), by_default + &route("/a", "retention = \"7d\""), false),
        (route("/{*all}", per_route), route("/{*all}", per_route) + &route("/a", "retention = \"7d\""), true),
        (route("/v1/{*all}", per_route), route("/v1/{*all}", per_route) + &route("/v2/a", "retention = \"7d\""), false),
        (route("/a/b", per_route), route("/a/b", per_route) + &route("/{*all}", "retention = \"7d\""), false),
        (route("/a", per_route), route("/a", &format!("{per_route}\nmethods = [\"POST\"]")), true),
        (route("/a", per_route), route("/a", &format!("{per_route}\nmethods = [\"PATCH\", \"POST\"]")), false),
    ];
    for (old, new, expected) in changes {
        let named = file(&old).load().needs_restart(&file(&new).load());
        assert_eq!(named, if expected { vec!["key_per"] } else { vec![] }, "{old}\n--\n{new}");
    }
}

#[test]
fn routes_policies_and_the_upstream_change_without_a_restart() {
    let old = without_file().load();
    let text = "mode = \"observe\"\ndialect = \"stripe\"\nanonymous = true\n[upstream]\nanswer_timeout = \"90s\"\n\
                [[route]]\npath = \"/a\"\nretention = \"7d\"\n";
    assert_eq!(old.needs_restart(&file(text).load()), [""; 0]);
}
