//! Starting, killing and restarting the binary, with a stand-in in its place: this test binary under a script.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use hapax_testkit::hapax::Hapax;
use hapax_testkit::raw_http::request;
use hapax_testkit::{child, wait};

/// Holds the arguments of the stand-in.
const ARGS: &str = "STAND_IN_ARGS";

/// A program that starts this test binary in a role, with the arguments in the environment.
fn stand_in(dir: &tempfile::TempDir, test: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let role = "HAPAX_TEST_ROLE=stand-in";
    script(dir, &format!("{ARGS}=\"$*\" {role} exec '{}' {test} --exact --nocapture", own.display()))
}

fn script(dir: &tempfile::TempDir, text: &str) -> PathBuf {
    let path = dir.path().join("stand-in");
    std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// Answers everything on both listeners with its arguments.
fn play() {
    let args = std::env::var(ARGS).unwrap();
    let words: Vec<&str> = args.split(' ').collect();
    let value = |flag: &str| words[words.iter().position(|word| *word == flag).unwrap() + 1].to_owned();
    println!("listening on http://{}", value("--from"));
    eprintln!("a complaint");
    let listen = |flag: &str| TcpListener::bind(value(flag)).unwrap();
    let (clients, admin) = (listen("--from"), listen("--admin"));
    let answer = move |listener: TcpListener, body: String| {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        }
    };
    let metrics = "hapax_claims_total{outcome=\"created\"} 3\n".to_owned();
    std::thread::spawn(move || answer(admin, metrics));
    answer(clients, args);
}

#[test]
fn it_is_started_killed_and_started_again_at_the_same_address() {
    if child::role().is_some() {
        return play();
    }
    let dir = tempfile::tempdir().unwrap();
    let program = stand_in(&dir, "it_is_started_killed_and_started_again_at_the_same_address");
    let builder = Hapax::builder(program).with_upstream("http://127.0.0.1:1").with_config("a = 1");
    let mut hapax = builder.with_flag("--keys", "optional").start();
    let args = request("GET", "/").send(hapax.address()).text();
    let expected =
        ["proxy --from", "--to http://127.0.0.1:1", "--store sqlite:", "--scope credential", "--keys optional"];
    for part in expected {
        assert!(args.contains(part), "{part} is not in {args}");
    }
    assert_eq!(std::fs::read_to_string(hapax.dir().join("hapax.toml")).unwrap(), "a = 1");
    assert_eq!(hapax.line_with("listening on"), format!("listening on {}", hapax.url()));
    wait::until("its complaint", std::time::Duration::from_secs(20), || hapax.stderr().contains("a complaint"));
    assert_eq!(hapax.metric("hapax_claims_total{outcome=\"created\"}"), 3.0);
    assert_eq!(hapax.metric("hapax_claims_total{outcome=\"replayed\"}"), 0.0);
    assert!(hapax.rss_bytes() > 100_000);
    let before = (hapax.address(), hapax.admin(), hapax.id());
    hapax.kill_9();
    assert!(request("GET", "/").try_send(hapax.address()).is_err());
    hapax.restart();
    assert_eq!((hapax.address(), hapax.admin()), (before.0, before.1));
    assert_ne!(hapax.id(), before.2);
    assert_eq!(request("GET", "/").send(hapax.address()).text(), args);
    assert_eq!(hapax.terminate(), None, "the stand-in leaves SIGTERM to the system");
}

#[test]
fn a_refusal_to_start_is_told_with_its_words() {
    let dir = tempfile::tempdir().unwrap();
    let program = script(&dir, "echo out; echo no such thing >&2; exit 3");
    let (code, stdout, stderr) = Hapax::builder(program).start_refused();
    assert_eq!((code, stdout.as_str(), stderr.as_str()), (Some(3), "out", "no such thing"));
}

#[test]
#[should_panic(expected = "no such thing")]
fn a_program_that_ends_at_once_fails_the_test_with_its_words() {
    let dir = tempfile::tempdir().unwrap();
    Hapax::builder(script(&dir, "echo no such thing >&2; exit 3")).start();
}

#[test]
fn the_environment_of_the_developer_does_not_reach_it() {
    let dir = tempfile::tempdir().unwrap();
    // Cargo and the test runner set variables with our prefix; none of them may configure what is tested.
    let program = script(&dir, "env | grep ^HAPAX_; exit 0");
    let (_, stdout, _) = Hapax::builder(program).with_env("HAPAX_SCOPE", "single").start_refused();
    assert_eq!(stdout, "HAPAX_SCOPE=single");
}
