//! `hapax routes` as a shell sees it: from an access log, and from what the proxy itself has seen.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use crate::node::{Kept, pay, start_with, unkeyed};
use hapax_testkit::raw_http::request;
use hapax_testkit::wait;

const CONFIG: &str = "[[route]]\nmethods = [\"PUT\"]\npath = \"/things/{id}\"\n";

fn routes(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hapax"));
    command.arg("routes").args(arguments).current_dir(directory).env_clear().output().unwrap()
}

fn json(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stdout)))
}

#[test]
fn an_access_log_shows_what_is_called_without_protection() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("hapax.toml"), CONFIG).unwrap();
    let log = "{\"method\":\"PUT\",\"path\":\"/things/7\",\"status\":200,\"has_key\":true}\n\
               {\"method\":\"DELETE\",\"path\":\"/things/7\",\"status\":204}\n{\"method\":\"DELETE\",\"path\":\"/things/8\",\"status\":204}\n\
               {\"method\":\"GET\",\"path\":\"/things/8\",\"status\":200}\nnot a line of a log\n";
    std::fs::write(directory.path().join("access.ndjson"), log).unwrap();
    let found = routes(directory.path(), &["--log", "access.ndjson", "--output", "json"]);
    assert_eq!(found.status.code(), Some(1), "something is unprotected");
    let report = json(&found);
    let endpoint = &report["endpoints"][0];
    assert_eq!((endpoint["method"].as_str(), endpoint["path"].as_str()), (Some("DELETE"), Some("/things/{id}")));
    assert_eq!((endpoint["hits"].as_u64(), report["endpoints"].as_array().unwrap().len()), (Some(2), 1));
    assert_eq!((report["malformed"].as_u64(), report["malformed_first"][0].as_u64()), (Some(1), Some(5)));
    assert_eq!(
        (report["routes"][0]["pattern"].as_str(), report["routes"][0]["hits"].as_u64()),
        (Some("/things/{id}"), Some(1))
    );
    let table = routes(directory.path(), &[]);
    let text = String::from_utf8(table.stdout).unwrap();
    assert_eq!(table.status.code(), Some(0), "without a log there is nothing to judge");
    assert!(text.contains("/things/{id}") && text.contains("POST,PATCH"), "{text}");
    let missing = routes(directory.path(), &["--log", "missing.ndjson"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(String::from_utf8(missing.stderr).unwrap().contains("the log `missing.ndjson` cannot be read"));
}

#[test]
fn the_proxys_own_log_tells_what_it_has_seen() {
    let config = format!("{CONFIG}[log]\nformat = \"json\"\nlevel = \"info,hapax=debug\"\n");
    let node = start_with(Kept::Sqlite, |builder| builder.with_config(&config).with_flag("--keys", "optional"));
    node.send(&request("DELETE", "/things/1"));
    node.send(&pay("k"));
    for _ in 0..3 {
        node.send(&unkeyed("{}"));
    }
    let all_read = || node.hapax.stderr().matches("a state-changing request").count() == 5;
    wait::until("the lines of all requests", Duration::from_secs(20), all_read);
    let log = node.hapax.dir().join("seen.ndjson");
    let logged = node.hapax.stderr();
    std::fs::write(&log, &logged).unwrap();
    let found = json(&routes(node.hapax.dir(), &["--log", "seen.ndjson", "--output", "json", "--keys", "optional"]));
    let endpoints = found["endpoints"].as_array().unwrap();
    let about = |method: &str| endpoints.iter().find(|endpoint| endpoint["method"] == method).unwrap();
    assert_eq!((about("DELETE")["finding"].as_str(), about("DELETE")["hits"].as_u64()), (Some("unprotected"), Some(1)));
    assert_eq!((about("POST")["with_key"].as_u64(), about("POST")["without_key"].as_u64()), (Some(1), Some(3)));
    let not_json = logged.lines().filter(|line| !line.is_empty() && !line.starts_with('{')).count();
    assert_eq!(found["malformed"].as_u64(), Some(not_json as u64), "what else the proxy logs is passed over");
}

#[test]
fn the_flags_of_the_proxy_say_by_what_is_judged() {
    let directory = tempfile::tempdir().unwrap();
    let line = |has_key: bool| format!("{{\"method\":\"POST\",\"path\":\"/pay\",\"has_key\":{has_key}}}\n");
    std::fs::write(directory.path().join("access.log"), line(true).repeat(9) + &line(false)).unwrap();
    let said = |flags: &[&str]| {
        let done = routes(directory.path(), &[&["--log", "access.log"], flags].concat());
        (done.status.code(), String::from_utf8(done.stdout).unwrap())
    };
    let (code, text) = said(&[]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("keys required, answers kept 24h, lease 30s"), "{text}");
    let (code, text) = said(&["--keys", "optional"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("partly-without-keys: 1 of 10 without a key"), "{text}");
    let (code, text) = said(&["--observe"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("observed only") && text.contains("unprotected"), "{text}");
    assert_eq!(said(&["--scope", "credential", "--anonymous", "--dialect", "ietf"]).0, Some(0));
}

/// What `hapax routes` says of a log, by text: exit code, standard output, standard error.
fn judged(config: &str, log: &str) -> (Option<i32>, String, String) {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("hapax.toml"), config).unwrap();
    std::fs::write(directory.path().join("access.log"), log).unwrap();
    let done = routes(directory.path(), &["--log", "access.log"]);
    (done.status.code(), String::from_utf8(done.stdout).unwrap(), String::from_utf8(done.stderr).unwrap())
}

const OPTIONAL: &str = "[defaults]\nrequired = false\n";

#[test]
fn a_few_requests_without_a_key_are_found_where_keys_are_optional() {
    let line = |has_key: bool| format!("{{\"method\":\"POST\",\"path\":\"/pay\",\"has_key\":{has_key}}}\n");
    let log = line(true).repeat(9) + &line(false);
    let (code, said, _) = judged(OPTIONAL, &log);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("1 of 10 without a key") && said.contains("keys optional"), "{said}");
    let (code, said, _) = judged("", &log);
    assert_eq!(code, Some(0), "where keys are required, none runs without: {said}");
    assert!(said.contains("Every state-changing endpoint in the log is protected.") && said.contains("keys required"));
}

#[test]
fn a_format_that_does_not_tell_of_keys_proves_nothing_where_they_are_optional() {
    let log = "1.2.3.4 - - [x] \"POST /pay HTTP/1.1\" 201 5 \"-\" \"curl\"\n";
    let (code, said, _) = judged(OPTIONAL, log);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("the log does not tell") && !said.contains("is protected"), "{said}");
    assert_eq!(judged("", log).0, Some(0));
}

#[test]
fn a_log_of_which_nothing_was_understood_is_an_error() {
    let (code, said, error) = judged("", "nonsense\n{\"level\":\"info\"}\n");
    assert_eq!((code, said.as_str()), (Some(1), ""));
    assert!(error.contains("the log `access.log` has no request that could be understood in its 2 lines;"), "{error}");
    for nothing in ["", "# a comment\n\n"] {
        let (code, said, error) = judged("", nothing);
        assert_eq!((code, said.as_str()), (Some(1), ""));
        assert!(error.contains("the log `access.log` holds no request, so there is nothing to judge;"), "{error}");
    }
    let directory = tempfile::tempdir().unwrap();
    let done = routes(directory.path(), &["--log", "."]);
    assert_eq!(done.status.code(), Some(1));
    let error = String::from_utf8(done.stderr).unwrap();
    assert!(error.contains("the log `.` cannot be read: Is a directory"), "{error}");
}

#[test]
fn the_configured_key_headers_are_looked_for_in_a_log() {
    let config = format!("{OPTIONAL}[keys]\nheaders = [\"X-Request-Key\"]\n");
    let log = |name: &str| format!("{{\"method\":\"POST\",\"path\":\"/pay\",\"headers\":{{\"{name}\":\"k\"}}}}\n");
    assert_eq!(judged(&config, &log("X-Request-Key")).0, Some(0));
    assert_eq!(judged(&config, &log("Idempotency-Key")).0, Some(1), "the proxy does not look at that field");
}

#[test]
fn a_path_is_matched_as_the_proxy_matches_it() {
    let config = "[defaults]\nprotect = false\n[[route]]\npath = \"/pay\"\n";
    let log = |path: &str| format!("{{\"method\":\"POST\",\"path\":\"{path}\",\"has_key\":true}}\n");
    for path in ["/pay", "//pay", "/%70ay", "/x/../pay", "/pay/"] {
        let (code, said, _) = judged(config, &log(path));
        assert_eq!(code, Some(0), "{path}: {said}");
    }
    assert_eq!(judged(config, &log("/other")).0, Some(1));
    let stricter = format!("{OPTIONAL}[[route]]\npath = \"/pay\"\nrequired = true\n");
    let untold = |path: &str| format!("1.2.3.4 - - [x] \"POST {path} HTTP/1.1\" 200 5\n");
    assert_eq!(judged(&stricter, &untold("//pay")).0, Some(0), "a key is required there as well");
    assert_eq!(judged(&stricter, &untold("//other")).0, Some(1));
}
