//! The OpenAPI document against a live node with data: schemathesis makes requests of it, sound ones and unsound ones, and
//! every answer must be one that the document describes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

use std::path::Path;
use std::process::Command;

use crate::api::setup::{OPERATOR, order, page, start};
use crate::node::{self, Kept, on_both_stores};
use hapax_testkit::clients;
use hapax_testkit::ledger::Behaviour;
use hapax_testkit::needs_clients;
use serde_json::Value;

/// Requests made up per operation, besides those that cover the bounds of each parameter.
const EXAMPLES: &str = "20";

/// The same requests every time.
const SEED: &str = "4";

on_both_stores! {
    every_answer_is_one_that_the_document_describes
}

fn target() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("it lies in the build directory")
}

fn every_answer_is_one_that_the_document_describes(kept: Kept) {
    needs_clients!();
    let desk = start(kept);
    for nth in 0..3 {
        desk.completed(&format!("k-completed-{nth}"));
        desk.unknown(&format!("k-unknown-{nth}"));
    }
    desk.ready("k-ready");
    // The examples of the document are about these two.
    desk.node.ledger.next("k-lost", Behaviour::Drop);
    assert_eq!(desk.node.send(&order("k-lost", "4711")).status, 504);
    assert_eq!(desk.node.send(&order("k-wrong", "4712")).status, 201);
    let url = format!("http://{}/v1/openapi.json", desk.node.hapax.admin());
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("run.py");
    std::fs::write(&script, "from schemathesis.cli import schemathesis\nschemathesis()\n").unwrap();
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/real_clients/schemathesis.toml");
    let mut command: Command = clients::python(target(), &script);
    command.arg("--config-file").arg(config);
    command.args(["--no-color", "run", &url, "--max-examples", EXAMPLES, "--seed", SEED, "--workers", "1"]);
    command.args(["--header", &format!("Authorization: Bearer {OPERATOR}"), "--request-timeout", "20"]);
    let said = clients::run(command.current_dir(directory.path()));
    assert!(said.contains("Selected: 6/6\n  Tested: 6\n"), "every operation but the document itself: {said}");
    let lost = page(&desk.get("/v1/keys?label=order%3D4711"));
    let notes = desk.get(&format!("/v1/audit?id={}", lost[0]["id"].as_str().unwrap())).json();
    let notes = notes["notes"].as_array().unwrap().clone();
    let resolved = |note: &Value| note["before"] == "unknown" && note["after"] == "completed";
    assert!(notes.iter().any(resolved), "the example was understood: {notes:?}");
    // It has changed what it could, and the node is as it was.
    assert_eq!(desk.get("/v1/status").status, 200);
    assert!(!page(&desk.get("/v1/keys")).is_empty());
}
