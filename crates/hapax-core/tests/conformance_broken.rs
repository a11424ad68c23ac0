//! The suite has teeth: stores that are broken on purpose fail the cases that are meant to find them.
//!
//! Each broken store is the reference store with one fault. [`table::BROKEN`] lists the cases it must fail; the same
//! table is in `docs/conformance.md`, and a test compares the two. Every case of the suite is failed by at least one
//! store, so there is no case that anything would pass.

#![allow(clippy::expect_used, clippy::panic, reason = "a panic with a message is how a test fails")]

#[path = "conformance_broken/bent.rs"]
mod bent;
#[path = "conformance_broken/reads.rs"]
mod reads;
#[path = "conformance_broken/table.rs"]
mod table;
#[path = "conformance_broken/writes.rs"]
mod writes;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::Arc;

use bent::{BentHarness, Intact};
use hapax_core::conformance::{CASES, check};
use table::{BROKEN, Broken};

/// The broken store of that name fails every case that the table lists for it.
#[track_caller]
fn assert_fails(name: &str) {
    let broken = BROKEN.iter().find(|broken| broken.name == name).expect("it is in the table");
    let passes = |case: &&'static str| check(case, BentHarness::new(broken.bend)).is_ok();
    let passed: Vec<_> = broken.must_fail.iter().copied().filter(passes).collect();
    assert!(passed.is_empty(), "{name} ({}) passes {passed:?}", broken.fault);
}

#[test]
fn the_store_without_a_fault_passes_every_case() {
    for case in CASES {
        let harness = BentHarness::new(|| Arc::new(Intact));
        assert_eq!(check(case.name, harness), Ok(()), "{}", case.name);
    }
}

#[test]
fn every_case_is_failed_by_some_store() {
    let failed: BTreeSet<_> = BROKEN.iter().flat_map(|broken| broken.must_fail).copied().collect();
    let cases: BTreeSet<_> = CASES.iter().map(|case| case.name).collect();
    let misspelt: Vec<_> = failed.difference(&cases).collect();
    assert!(misspelt.is_empty(), "there are no cases {misspelt:?}");
    if let Some(case) = cases.difference(&failed).next() {
        let fails = |broken: &&Broken| check(case, BentHarness::new(broken.bend)).is_err();
        let candidates: Vec<_> = BROKEN.iter().filter(fails).map(|broken| broken.name).collect();
        panic!("no store must fail {case}; add it to one of {candidates:?}, or write a store that fails it");
    }
}

#[test]
fn the_document_lists_the_same_cases() {
    let mut table = "| case | what a store must do |\n|---|---|\n".to_owned();
    for case in CASES {
        writeln!(table, "| `{}` | {} |", case.name, case.about).expect("a string takes text");
    }
    assert_document_has(&table);
    assert_document_has(&format!("{} cases", CASES.len()));
}

#[test]
fn the_document_lists_the_same_broken_stores() {
    let mut table = "| broken store | its fault | cases it must fail |\n|---|---|---|\n".to_owned();
    for broken in BROKEN {
        let cases: Vec<_> = broken.must_fail.iter().map(|case| format!("`{case}`")).collect();
        writeln!(table, "| `{}` | {} | {} |", broken.name, broken.fault, cases.join(", "))
            .expect("a string takes text");
    }
    assert_document_has(&table);
    assert_document_has(&format!("{} broken stores", BROKEN.len()));
}

#[track_caller]
fn assert_document_has(text: &str) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/conformance.md");
    let document = std::fs::read_to_string(path).expect("the document is there");
    assert!(document.contains(text), "docs/conformance.md must contain this:\n\n{text}");
}
