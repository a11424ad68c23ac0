//! Processes that a test starts, talks to and kills.

use std::process::Command;
use std::time::Duration;

use hapax_testkit::child::{self, Child};
use hapax_testkit::wait;

const LIMIT: Duration = Duration::from_secs(20);

fn is_running(id: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{id}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

#[test]
fn a_role_and_its_test_talk_to_each_other() {
    if let Some(role) = child::role() {
        child::say(&format!("{role} is ready"));
        while let Some(heard) = child::hear() {
            child::say(&format!("heard {heard}"));
        }
        return;
    }
    let mut writer = Child::spawn(&mut child::rerun("a_role_and_its_test_talk_to_each_other", "writer"));
    assert_eq!(writer.said(LIMIT).as_deref(), Some("writer is ready"));
    writer.tell("one");
    writer.tell("two");
    assert_eq!(writer.said(LIMIT).as_deref(), Some("heard one"));
    assert_eq!(writer.said(LIMIT).as_deref(), Some("heard two"));
    assert!(is_running(writer.id()));
    writer.kill_9();
    assert!(!is_running(writer.id()));
    assert_eq!(writer.said(LIMIT), None);
}

#[test]
fn output_comes_line_by_line_and_ends() {
    let mut child = Child::spawn(Command::new("sh").args(["-c", "echo one; echo two; exit 3"]));
    assert_eq!(child.line(LIMIT).as_deref(), Some("one"));
    assert_eq!(child.line(LIMIT).as_deref(), Some("two"));
    assert_eq!(child.line(LIMIT), None);
    assert_eq!(child.wait(LIMIT).code(), Some(3));
}

#[test]
#[should_panic(expected = "printed nothing")]
fn silence_fails_the_test_after_the_limit() {
    let mut child = Child::spawn(&mut Command::new("cat"));
    child.line(Duration::from_millis(5));
}

#[test]
fn a_dropped_child_is_killed() {
    let child = Child::spawn(&mut Command::new("cat"));
    let id = child.id();
    assert!(is_running(id));
    drop(child);
    assert!(!is_running(id));
}

#[test]
#[should_panic(expected = "waited 5ms in vain: the moon")]
fn waiting_is_bounded() {
    wait::until("the moon", Duration::from_millis(5), || false);
}
