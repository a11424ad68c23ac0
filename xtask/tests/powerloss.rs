//! The power goes in the middle of everything: a few images, and a disk that lies to see that the judge sees.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

use std::process::{Command, Output};

fn powerloss(args: &[&str]) -> (Output, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_xtask")).arg("powerloss").args(args).output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output, said)
}

#[test]
fn nothing_that_was_acknowledged_is_lost() {
    let (output, said) = powerloss(&["--images", "18", "--keys", "170"]);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("\n18 images, ") && said.ends_with(" looked up, 0 violations\n"), "{said}");
}

#[test]
fn a_disk_that_lies_is_seen() {
    let (output, said) = powerloss(&["--images", "12", "--keys", "60", "--seed", "3", "--lie", "3"]);
    assert!(!output.status.success() && !said.ends_with(" 0 violations\n"), "{said}");
}
