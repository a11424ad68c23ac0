//! The README's service, with the README's own dependencies and nothing else, as a crate of its own.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

use std::path::Path;
use std::process::Command;

/// The first block of that language after a heading.
fn block<'a>(text: &'a str, heading: &str, language: &str) -> &'a str {
    let section = text.split(heading).nth(1).unwrap();
    let block = section.split(&format!("\n```{language}\n")).nth(1).unwrap();
    block.split("\n```").next().unwrap()
}

#[test]
fn the_service_of_the_readme_needs_no_more_than_the_readme_says() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    let dependencies = block(&readme, "## In a Rust service", "toml");
    let snippet = block(&readme, "## In a Rust service", "rust,no_run");
    assert!(dependencies.contains("…/hapax/") && snippet.contains("fn main"));
    // With the versions of the workspace, and not optimised: nothing of it is run.
    let krate = Path::new(env!("CARGO_TARGET_TMPDIR")).join("readme");
    std::fs::create_dir_all(krate.join("src")).unwrap();
    let manifest = format!(
        "[package]\nname = \"readme\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n\n[profile.dev]\ndebug = false\n\n{}\n",
        dependencies.replace("…/hapax", root.to_str().unwrap()),
    );
    std::fs::write(krate.join("Cargo.toml"), manifest).unwrap();
    std::fs::write(krate.join("src/main.rs"), snippet).unwrap();
    std::fs::copy(root.join("Cargo.lock"), krate.join("Cargo.lock")).unwrap();
    let check = Command::new(env!("CARGO"))
        .args(["check", "--quiet", "--offline"])
        .current_dir(&krate)
        .env("CARGO_TARGET_DIR", krate.join("target"))
        .output()
        .unwrap();
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stderr));
}
