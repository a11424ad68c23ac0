//! `hapax routes` as a shell sees it: from an access log, and from what the proxy itself has seen.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

mod node;

use std::path::Path;
use std::process::{Command, Output};

use hapax_testkit::raw_http::request;
use node::{Kept, pay, start_with, unkeyed};

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
    let log = node.hapax.dir().join("seen.ndjson");
    std::fs::write(&log, node.hapax.stderr()).unwrap();
    let found = json(&routes(node.hapax.dir(), &["--log", "seen.ndjson", "--output", "json"]));
    let endpoints = found["endpoints"].as_array().unwrap();
    let about = |method: &str| endpoints.iter().find(|endpoint| endpoint["method"] == method).unwrap();
    assert_eq!((about("DELETE")["finding"].as_str(), about("DELETE")["hits"].as_u64()), (Some("unprotected"), Some(1)));
    assert_eq!((about("POST")["with_key"].as_u64(), about("POST")["without_key"].as_u64()), (Some(1), Some(3)));
}
