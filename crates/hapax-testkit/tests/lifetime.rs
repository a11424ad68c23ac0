//! Nothing outlives a test run, however it ends; and servers are left out only when somebody says so.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests, like the tests themselves")]

use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use hapax_testkit::child::{self, Child};
use hapax_testkit::pgbouncer::Bouncer;
use hapax_testkit::postgres::{self, Server};
use hapax_testkit::{needs_pgbouncer, needs_postgres, skip, tokens, wait};

/// Includes the start of a server on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

fn rerun(test: &str, role: &str) -> Command {
    let mut command = child::rerun(test, role);
    command.env_remove("NEXTEST_RUN_ID").env_remove("HAPAX_SKIP_SERVERS");
    command
}

fn said(child: &mut Child) -> String {
    child.said(LIMIT).expect("the role says something")
}

fn assert_closes(address: &str) {
    let address: SocketAddr = address.parse().unwrap();
    wait::until("the port closes", LIMIT, || TcpStream::connect(address).is_err());
}

#[test]
fn servers_end_when_their_process_is_killed() {
    needs_pgbouncer!();
    if child::role().is_some() {
        let shared = Server::shared().fresh_database();
        let own = Server::builder().start();
        let bouncer = Bouncer::transaction_mode(&shared);
        child::say(&Server::shared().maintenance().run("SHOW data_directory"));
        child::say(&shared.address().to_string());
        child::say(&own.maintenance().run("SHOW data_directory"));
        child::say(&own.address().to_string());
        child::say(&bouncer.address().to_string());
        child::hear();
        return;
    }
    let mut process = Child::spawn(&mut rerun("servers_end_when_their_process_is_killed", "owner"));
    let [shared, shared_address, own, own_address, bouncer_address] = std::array::from_fn(|_| said(&mut process));
    process.kill_9();
    for address in [&shared_address, &own_address, &bouncer_address] {
        assert_closes(address);
    }
    for data in [shared, own].map(PathBuf::from) {
        wait::until("the directory is removed", LIMIT, || !data.parent().unwrap().exists());
    }
}

#[test]
fn processes_of_one_run_share_a_server_that_ends_after_them() {
    needs_postgres!();
    const TEST: &str = "processes_of_one_run_share_a_server_that_ends_after_them";
    match child::role().as_deref() {
        // Plays the part of nextest: starts processes, and never touches the server itself.
        Some("runner") => {
            let start = || Child::spawn(&mut child::rerun(TEST, "holder"));
            let mut holders = [start(), start()];
            for holder in &mut holders {
                child::say(&said(holder));
            }
            child::hear();
            return;
        }
        Some(_) => {
            child::say(&Server::shared().address().to_string());
            child::hear();
            return;
        }
        None => {}
    }
    let run = tokens::name("test");
    let mut runner = Child::spawn(rerun(TEST, "runner").env("NEXTEST_RUN_ID", &run));
    let [one, other] = std::array::from_fn(|_| said(&mut runner));
    assert_eq!(one, other);
    assert!(TcpStream::connect(one.parse::<SocketAddr>().unwrap()).is_ok());
    // The holders see the end of their input, and go too.
    runner.kill_9();
    assert_closes(&one);
    let directory = std::env::temp_dir().join(format!("hapax-run-{run}"));
    wait::until("the run's directory is removed", LIMIT, || !directory.exists());
}

#[test]
fn servers_left_out_on_purpose_are_reported() {
    if child::role().is_some() {
        child::say(&postgres::required().to_string());
        return;
    }
    let report = tempfile::NamedTempFile::new().unwrap();
    let mut command = rerun("servers_left_out_on_purpose_are_reported", "skipper");
    command.env("HAPAX_SKIP_SERVERS", "1").env("HAPAX_NOT_TESTED_FILE", report.path());
    let mut skipper = Child::spawn(&mut command);
    let printed = std::iter::from_fn(|| skipper.line(LIMIT)).find(|line| line.contains("NOT TESTED: "));
    assert!(printed.is_some());
    assert_eq!(said(&mut skipper), "false");
    let reported = std::fs::read_to_string(report.path()).unwrap();
    assert!(
        reported.starts_with("NOT TESTED: hapax-testkit servers_left_out_on_purpose_are_reported needs PostgreSQL"),
        "{reported}"
    );
}

#[test]
fn what_a_machine_does_not_allow_is_reported_though_the_test_passes() {
    if child::role().is_some() {
        return skip::not_tested("a moon");
    }
    let test = "what_a_machine_does_not_allow_is_reported_though_the_test_passes";
    let report = tempfile::NamedTempFile::new().unwrap();
    // Without `--nocapture`: the harness keeps what a test prints that passes.
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact"]).envs(rerun(test, "skipper").get_envs().filter_map(|(k, v)| Some((k, v?))));
    let output = command.env("HAPAX_NOT_TESTED_FILE", report.path()).output().unwrap();
    let line = format!("NOT TESTED: hapax-testkit {test} needs a moon\n");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && printed.contains(&line), "{printed}");
    assert_eq!(std::fs::read_to_string(report.path()).unwrap(), line);
}

#[test]
fn a_missing_server_fails_and_says_what_to_do() {
    if child::role().is_some() {
        let panic = std::panic::catch_unwind(postgres::required).unwrap_err();
        child::say(panic.downcast_ref::<String>().unwrap());
        return;
    }
    let mut command = rerun("a_missing_server_fails_and_says_what_to_do", "seeker");
    let mut seeker = Child::spawn(command.env("HAPAX_PG_BIN", "/nowhere"));
    let message = said(&mut seeker);
    assert_eq!(
        message,
        "HAPAX_PG_BIN names /nowhere, which is not a directory of PostgreSQL programs; run scripts/test, which installs \
         it, or set HAPAX_SKIP_SERVERS=1 to leave out the tests that need it"
    );
}
