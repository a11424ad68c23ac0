//! The OpenAPI document against a live node with data: schemathesis makes requests of it, sound ones and unsound ones, and
//! every answer must be one that the document describes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

mod node;
#[path = "api/setup.rs"]
mod setup;

use std::path::Path;
use std::process::Command;

use hapax_testkit::clients;
use hapax_testkit::needs_clients;
use node::{Kept, on_both_stores};
use setup::{OPERATOR, page, start};

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
    let url = format!("http://{}/v1/openapi.json", desk.node.hapax.admin());
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("run.py");
    std::fs::write(&script, "from schemathesis.cli import schemathesis\nschemathesis()\n").unwrap();
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/real_clients/schemathesis.toml");
    let mut command: Command = clients::python(target(), &script);
    command.arg("--config-file").arg(config);
    command.args(["--no-color", "run", &url, "--max-examples", EXAMPLES, "--seed", SEED, "--workers", "1"]);
    command.args(["--header", &format!("Authorization: Bearer {OPERATOR}"), "--request-timeout", "20"]);
    let said = clients::run(command.current_dir(directory.path()));
    assert!(said.contains("Selected: 6/6\n  Tested: 6\n"), "every operation but the document itself: {said}");
    // It has changed what it could, and the node is as it was.
    assert_eq!(desk.get("/v1/status").status, 200);
    assert!(!page(&desk.get("/v1/keys")).is_empty());
}
