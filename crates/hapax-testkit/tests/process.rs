//! Servers that run in the background: their output is kept, and they end with us, however we end.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use hapax_testkit::child::{self, Child};
use hapax_testkit::process::Process;
use hapax_testkit::wait;

const LIMIT: Duration = Duration::from_secs(20);

fn is_running(id: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{id}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

fn shell(text: &str) -> Process {
    Process::spawn(Command::new("sh").args(["-c", text]))
}

#[test]
fn its_output_is_kept_apart_and_whole() {
    let mut process = shell("echo one; echo two >&2; printf three; exit 4");
    assert_eq!(process.wait(LIMIT).code(), Some(4));
    assert_eq!((process.stdout().as_str(), process.stderr().as_str()), ("one\nthree", "two"));
    assert_eq!(process.line_with("hre", LIMIT), "three");
}

#[test]
fn it_gets_signals_and_can_be_waited_for() {
    let mut process = shell("trap 'echo heard; exit 7' TERM; echo ready; while :; do sleep 0.01; done");
    process.line_with("ready", LIMIT);
    assert!(process.ended().is_none() && process.rss_bytes().unwrap() > 0);
    process.signal("TERM");
    assert_eq!(process.wait(LIMIT).code(), Some(7));
    assert_eq!(process.line_with("heard", LIMIT), "heard");
    assert!(process.rss_bytes().is_none());
}

#[test]
fn a_dropped_process_is_killed() {
    let process = shell("exec sleep 1000");
    let id = process.id();
    assert!(is_running(id));
    drop(process);
    assert!(!is_running(id));
}

#[test]
fn it_ends_when_its_owner_is_killed() {
    if child::role().is_some() {
        let process = shell("exec sleep 1000");
        child::say(&process.id().to_string());
        child::hear();
        return;
    }
    let mut owner = Child::spawn(&mut child::rerun("it_ends_when_its_owner_is_killed", "owner"));
    let id: u32 = owner.said(LIMIT).unwrap().parse().unwrap();
    assert!(Path::new(&format!("/proc/{id}")).exists());
    owner.kill_9();
    wait::until("the process ends", LIMIT, || !is_running(id));
}

#[test]
#[should_panic(expected = "waited 10ms in vain: a line with \"never\"")]
fn a_line_that_does_not_come_fails_the_test() {
    shell("exec sleep 1000").line_with("never", Duration::from_millis(10));
}
