//! Every input that was ever kept, and a few thousand made from them. `HAPAX_FUZZ_SEED` takes a seed back.

#![allow(clippy::expect_used, reason = "a test that cannot run says so")]

use std::panic::catch_unwind;

use hapax_fuzz::{TARGETS, Target, generate};

/// A moment for each target: the long runs are `cargo xtask fuzz`.
const INPUTS: usize = 3_000;

fn run(name: &str, inputs: usize) {
    let target = Target::named(name).expect("a target");
    let corpus = target.corpus();
    assert!(corpus.len() >= 5, "the corpus of {name} is gone");
    for (file, input) in corpus {
        assert!(catch_unwind(|| (target.run)(&input)).is_ok(), "corpus/{name}/{file}");
    }
    let seed = std::env::var("HAPAX_FUZZ_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(12);
    for (number, input) in generate(&target, seed).take(inputs).enumerate() {
        let held = catch_unwind(|| (target.run)(&input)).is_ok();
        assert!(held, "seed {seed}, input {number}: {:?}", String::from_utf8_lossy(&input));
    }
}

#[test]
fn http1_framing() {
    run("http1", INPUTS);
}

#[test]
fn http2_requests() {
    run("http2", INPUTS / 3);
}

#[test]
fn labels_and_pointers() {
    run("labels", INPUTS);
}

#[test]
fn readings_of_paths() {
    run("paths", INPUTS);
}

#[test]
fn configurations() {
    run("config", INPUTS / 3);
}

#[test]
fn a_target_that_breaks_a_rule_is_noticed() {
    fn breaks(data: &[u8]) {
        assert!(!data.contains(&b'\r'), "found");
    }
    let target = Target { run: breaks, ..TARGETS[0] };
    let found = generate(&target, 1).take(100).any(|input| catch_unwind(|| (target.run)(&input)).is_err());
    assert!(found);
}

#[test]
fn a_seed_gives_the_same_inputs_again() {
    let inputs = |seed| generate(&TARGETS[0], seed).take(50).collect::<Vec<_>>();
    assert_eq!(inputs(7), inputs(7));
    assert_ne!(inputs(7), inputs(8));
}
