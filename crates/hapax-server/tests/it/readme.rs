//! The README's first minute, as written: the example API, the proxy, and the request it prints.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use hapax_testkit::hapax::Hapax;
use hapax_testkit::process::Process;
use hapax_testkit::wait::until;
use hapax_testkit::{needs_clients, port};

#[test]
fn the_first_minute_works_as_the_readme_says() {
    needs_clients!();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    assert!(readme.contains("python3 examples/ticker.py") && readme.contains("proxy --to http://127.0.0.1:3000"));
    // The example's port may be in use on this machine: another one, and nothing else, is changed.
    let free = port::free();
    let api = std::fs::read_to_string(root.join("examples/ticker.py")).unwrap().replace("3000", &free.to_string());
    let _api = Process::spawn(Command::new("python3").args(["-c", &api]));
    until("the example answers", Duration::from_secs(20), || TcpStream::connect(("127.0.0.1", free)).is_ok());
    // As on a terminal, where the start is a page with a request to try.
    let hapax = Hapax::builder(env!("CARGO_BIN_EXE_hapax")).with_env("HAPAX_LOG_FORMAT", "pretty");
    let hapax = hapax.with_upstream(&format!("http://127.0.0.1:{free}")).start();
    let printed = hapax.line_with("curl -i");
    let in_readme = readme.lines().find(|line| line.starts_with("curl -i")).unwrap();
    assert_eq!(printed.trim(), in_readme.replace("127.0.0.1:8080", &hapax.address().to_string()));
    let run = || {
        let out = Command::new("sh").args(["-c", printed.trim()]).output().unwrap();
        String::from_utf8(out.stdout).unwrap()
    };
    let (first, second) = (run(), run());
    assert!(first.starts_with("HTTP/1.1 201") && first.ends_with("{\"payment\": 1}"), "{first}");
    assert!(second.contains("idempotent-replayed: true") && second.ends_with("{\"payment\": 1}"), "{second}");
}
