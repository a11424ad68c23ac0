//! The documents of the HTTP contract say what the code does: docs/problems/*.md and docs/http-contract.md.
//!
//! Pages are compared with the code, and where a page speaks of the running binary, with that. What is answered in each
//! situation is left to the tests of the contract.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::node::{Kept, Node, pay, refused, start, start_with, unkeyed};
use hapax::http::{
    IDEMPOTENCY_ATTEMPT, IDEMPOTENCY_EXPIRES, IDEMPOTENCY_KEY, IDEMPOTENCY_RECORD, IDEMPOTENT_REPLAYED, Problem,
    Refusal,
};
use hapax_proxy::problem as listener;
use hapax_testkit::hapax::Builder;
use hapax_testkit::ledger::Behaviour;
use hapax_testkit::raw_http::{Conn, Response, request};
use http::StatusCode;
use serde_json::Value;

/// Statuses that a problem has besides its usual one.
const OTHER_STATUSES: [(Problem, u16); 5] = [
    (Problem::ScopeMissing, 401),
    (Problem::OutcomeUnknown, 504),
    (Problem::OutcomeUnknown, 500),
    (Problem::KeyReused, 400),
    (Problem::BodyIncomplete, 408),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every page by its code.
fn pages() -> BTreeMap<String, String> {
    let directory = std::fs::read_dir(root().join("docs/problems")).expect("docs/problems");
    let page = |path: PathBuf| {
        let code = path.file_stem().unwrap().to_str().unwrap().to_owned();
        (code, std::fs::read_to_string(path).unwrap())
    };
    directory.map(|entry| page(entry.unwrap().path())).collect()
}

/// Every code with its usual status and its title.
fn problems() -> BTreeMap<&'static str, (StatusCode, &'static str)> {
    let own = listener::ALL.iter().map(|problem| (problem.code, (problem.status, problem.title)));
    let layer = Problem::ALL.iter().map(|problem| (problem.code(), (problem.status(), problem.title())));
    own.chain(layer).collect()
}

/// The documents that a page shows.
fn examples(page: &str) -> Vec<Value> {
    let blocks = page.split("```json\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    blocks.map(|block| serde_json::from_str(block).unwrap_or_else(|error| panic!("{error}: {block}"))).collect()
}

/// The Rust files below a directory, with their text up to their tests.
fn sources(directory: &str) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(root().join(directory)).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(path.strip_prefix(root()).unwrap().to_str().unwrap()));
        } else if path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("tests.rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            found.push((path, text.split("#[cfg(test)]").next().unwrap().to_owned()));
        }
    }
    found
}

const HTTP_CODE: [&str; 3] = ["crates/hapax/src/http", "crates/hapax-proxy/src", "crates/hapax-server/src/scope"];

#[test]
fn every_problem_has_a_page_and_every_page_has_a_problem() {
    let pages: Vec<String> = pages().into_keys().collect();
    let codes: Vec<&str> = problems().into_keys().collect();
    assert_eq!(pages, codes);
}

#[test]
fn every_code_that_is_written_in_the_listener_is_in_its_list() {
    let text = include_str!("../../../hapax-proxy/src/problem.rs");
    let codes = text.split("code: \"").skip(1).map(|rest| rest.split('"').next().unwrap());
    for code in codes {
        assert!(listener::ALL.iter().any(|problem| problem.code == code), "{code} is not in problem::ALL");
    }
}

#[test]
fn a_code_has_one_title_whoever_says_it() {
    for own in listener::ALL {
        let layer = Problem::ALL.iter().find(|problem| problem.code() == own.code);
        assert!(layer.is_none_or(|layer| layer.title() == own.title), "{}", own.code);
    }
}

#[test]
fn every_page_names_its_status_its_title_and_its_type() {
    let pages = pages();
    for (code, (status, title)) in problems() {
        // The usual status is the layer's where both say it.
        let usual = Problem::ALL.iter().find(|problem| problem.code() == code).map_or(status, |own| own.status());
        let page = &pages[code];
        assert!(page.starts_with(&format!("# `{code}`\n")), "{code}");
        assert!(page.contains(&format!("\n| status | {}", usual.as_u16())), "{code}: {usual}");
        assert!(page.contains(&format!("\n| title | {title} |\n")), "{code}: {title}");
        assert!(page.contains(&format!("\n| type | `urn:hapax:problem:{code}` |\n")), "{code}");
        for (_, other) in OTHER_STATUSES.iter().filter(|(problem, _)| problem.code() == code) {
            assert!(page.contains(&other.to_string()), "{code}: {other}");
        }
        for heading in ["What a client should do", "What an operator should look at", "Example"] {
            assert!(page.contains(&format!("\n## {heading}\n\n")), "{code}: {heading}");
        }
    }
}

#[test]
fn every_example_is_a_document_that_the_code_gives() {
    for (code, page) in pages() {
        let examples = examples(&page);
        assert!(!examples.is_empty(), "{code} has no example");
        for example in examples {
            assert_eq!(example, given(&code, &example), "{code}");
        }
    }
}

/// The document of that code with the example's status, detail and request id.
fn given(code: &str, example: &Value) -> Value {
    let (detail, id) = (example["detail"].as_str().unwrap(), example["request_id"].as_str().unwrap());
    let status = u16::try_from(example["status"].as_u64().unwrap()).unwrap();
    if let Some(problem) = Problem::ALL.into_iter().find(|problem| problem.code() == code) {
        let has = problem.status().as_u16() == status || OTHER_STATUSES.contains(&(problem, status));
        assert!(has, "{code} is never {status}");
        let refusal = Refusal::new(problem, detail).with_status(StatusCode::from_u16(status).unwrap());
        return serde_json::from_slice(refusal.into_response(Some(id)).body()).unwrap();
    }
    let problem = listener::ALL.into_iter().find(|problem| problem.code == code).expect("a known code");
    let problem = listener::Problem { detail: detail.to_owned().leak(), ..problem };
    serde_json::from_slice(problem.response_to(id).body()).unwrap()
}

#[test]
fn the_next_step_of_every_example_stands_in_the_code() {
    let mut files: Vec<_> = HTTP_CODE.into_iter().flat_map(sources).collect();
    files.extend(sources("crates/hapax-server/src/run"));
    files.extend(sources("crates/hapax/src"));
    let code: String = files.into_iter().map(|(_, text)| in_one_line(&text)).collect();
    for (name, page) in pages() {
        for example in examples(&page) {
            let detail = example["detail"].as_str().unwrap();
            let next_step = detail.trim_end_matches('.').rsplit(['.', ';']).next().unwrap().trim();
            assert!(code.contains(next_step), "{name}: nothing says {next_step:?}");
        }
    }
}

/// The text with its broken literals joined and their escapes read.
fn in_one_line(text: &str) -> String {
    let mut joined = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("\\\n") {
        joined.push_str(before);
        rest = after.trim_start();
    }
    joined.push_str(rest);
    joined.replace("\\\"", "\"")
}

#[test]
fn every_problem_is_linked_from_the_contract() {
    let contract = contract();
    for code in problems().into_keys() {
        assert!(contract.contains(&format!("[`{code}`](problems/{code}.md)")), "{code}");
    }
}

#[test]
fn every_link_of_the_contract_and_its_pages_leads_somewhere() {
    let contract = [("docs", contract())].into_iter();
    let pages = pages().into_values().map(|page| ("docs/problems", page));
    for (directory, text) in contract.chain(pages) {
        for link in text.split("](").skip(1).map(|rest| rest.split(')').next().unwrap()) {
            let path = link.split('#').next().unwrap();
            assert!(path.is_empty() || root().join(directory).join(path).exists(), "{link} in {directory}");
        }
    }
}

fn contract() -> String {
    std::fs::read_to_string(root().join("docs/http-contract.md")).unwrap()
}

/// Fields that the code names by a literal of its own.
const BY_LITERAL: [&str; 6] =
    ["prefer", "x-http-method-override", "x-http-method", "x-method-override", "trailer", "proxy-authenticate"];

/// Fields of requests that hapax makes for itself, to keys and authentication endpoints.
const OF_ITS_OWN_REQUESTS: [&str; 2] = ["accept", "range"];

#[test]
fn every_header_field_that_the_code_names_is_in_the_contract() {
    let contract = contract().to_ascii_lowercase();
    let mut names: BTreeSet<String> = BY_LITERAL.into_iter().map(str::to_owned).collect();
    for constant in [IDEMPOTENCY_ATTEMPT, IDEMPOTENCY_EXPIRES, IDEMPOTENCY_KEY, IDEMPOTENCY_RECORD, IDEMPOTENT_REPLAYED]
    {
        names.insert(constant.as_str().to_owned());
    }
    for (path, text) in HTTP_CODE.into_iter().flat_map(sources) {
        let found = named(&text);
        assert!(found.iter().all(|name| name.parse::<http::HeaderName>().is_ok()), "{path:?}: {found:?}");
        names.extend(found);
    }
    assert!(names.len() > 40, "the search finds no fields any more: {names:?}");
    for name in names.iter().filter(|name| !OF_ITS_OWN_REQUESTS.contains(&name.as_str())) {
        assert!(contract.contains(&format!("`{name}`")), "docs/http-contract.md does not mention {name}");
    }
}

/// The fields that a file names: constants that it imports or spells out, and those it makes itself.
fn named(text: &str) -> BTreeSet<String> {
    let made = text.split("HeaderName::from_static(\"").skip(1).map(|rest| rest.split('"').next().unwrap().to_owned());
    let imported =
        text.split("use http::header::{").skip(1).flat_map(|rest| rest.split('}').next().unwrap().split(','));
    let single = text.split("header::").skip(1).map(|rest| rest.split(|c: char| !is_constant(c)).next().unwrap());
    let constants =
        imported.chain(single).map(str::trim).filter(|name| name.len() > 1 && name.chars().all(is_constant));
    made.chain(constants.map(|name| name.to_ascii_lowercase().replace('_', "-"))).collect()
}

fn is_constant(c: char) -> bool {
    c.is_ascii_uppercase() || c == '_'
}

// What the pages say of the running binary.

/// Asserts that the refusal has the shape of the page's example, and that its id finds it in the log.
#[track_caller]
fn assert_named_in_the_log(node: &Node, response: &Response, code: &str) -> String {
    let document = response.json();
    let example = examples(&pages()[code])
        .into_iter()
        .find(|example| example["status"] == document["status"])
        .unwrap_or_else(|| panic!("no example of {code} has the status {}", response.status));
    assert_eq!((&document["title"], &document["detail"]), (&example["title"], &example["detail"]));
    let id = document["request_id"].as_str().expect("a request id").to_owned();
    let line = node.hapax.line_with(&id);
    assert!(line.contains(code), "{line}");
    assert!(node.hapax.metric(&format!("hapax_refused_total{{reason=\"{code}\"}}")) >= 1.0);
    line
}

#[test]
fn a_failure_of_the_upstream_is_told_in_the_log_with_its_cause() {
    let node = start(Kept::Sqlite);
    node.ledger.refuse(true);
    let response = node.send(&pay("k"));
    assert_eq!((refused(&response), response.header("retry-after")), ((502, "upstream-unreachable".into()), None));
    let line = assert_named_in_the_log(&node, &response, "upstream-unreachable");
    assert!(line.contains("refused the connection"), "{line}");
    node.ledger.refuse(false);
    node.ledger.next("k", Behaviour::Drop);
    let response = node.send(&pay("k"));
    assert_eq!((refused(&response), response.header("retry-after")), ((504, "outcome-unknown".into()), Some("1")));
    assert!(assert_named_in_the_log(&node, &response, "outcome-unknown").contains("why"));
    node.ledger.assert_once("k");
}

#[test]
fn a_lost_answer_without_a_key_is_not_to_be_asked_for_again() {
    let node = start(Kept::Sqlite);
    node.ledger.on("/lost", Behaviour::Drop);
    let response = node.send(&request("PUT", "/lost").body("{}"));
    assert_eq!(refused(&response), (504, "outcome-unknown".into()));
    let detail = response.json()["detail"].as_str().unwrap().to_owned();
    assert!(detail.ends_with("Find out what happened before sending it again."), "{detail}");
    assert_eq!(response.header("retry-after"), None);
}

#[test]
fn a_refusal_of_the_listener_is_told_in_the_log() {
    let node = start(Kept::Sqlite);
    let mut conn = Conn::open(node.hapax.address());
    conn.write(b"GET / HTTP/1.1\r\n\r\n");
    let response = conn.read_response().unwrap();
    assert_eq!(refused(&response), (400, "bad-host".into()));
    assert_named_in_the_log(&node, &response, "bad-host");
    conn.expect_closed();
}

#[test]
fn the_dialect_says_only_what_is_stored_by_default() {
    let config = "dialect = \"stripe\"\n[defaults]\non_server_error = \"ready\"\n";
    let node = start_with(Kept::Sqlite, |builder| builder.with_config(config));
    node.ledger.next("k", Behaviour::answer(500, "broken"));
    assert_eq!(node.send(&pay("k")).status, 500);
    assert_eq!(node.send(&pay("k")).status, 201, "the route says that it may run again");
    assert_eq!(refused(&node.send(&unkeyed("{}").header("Idempotency-Key", "k"))), (400, "key-reused".into()));
}

#[test]
fn a_page_of_another_origin_may_read_the_fields_that_are_configured() {
    let config = "[cors]\norigins = [\"https://shop.example\"]\nexpose_headers = [\"x-total\", \"retry-after\"]\n";
    let node = start_with(Kept::Sqlite, |builder| builder.with_config(config));
    let refusal = node.send(&unkeyed("{}").header("Origin", "https://shop.example"));
    assert_eq!(refusal.header("access-control-expose-headers"), Some("x-total, retry-after"));
}

#[test]
fn a_node_that_only_observes_promises_no_replay_at_its_start() {
    let promise = "the second answer is the first one, replayed";
    let said = |node: &Node| node.hapax.line_with("Try it twice");
    let for_people = |builder: Builder| builder.with_env("HAPAX_LOG_FORMAT", "pretty");
    assert!(said(&start_with(Kept::Sqlite, for_people)).contains(promise));
    let observing = start_with(Kept::Sqlite, |builder| for_people(builder).with_arg("--observe"));
    assert!(!said(&observing).contains(promise), "{}", said(&observing));
}
