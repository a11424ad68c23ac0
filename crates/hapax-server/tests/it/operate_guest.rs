//! A store inside an application's own SQLite file (`with_guest`), operated by the commands beside the application.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

use std::path::Path;
use std::process::{Command, Output};

use hapax_core::address::{Address, AddressScheme, Key, Scope, Space};
use hapax_core::engine::Engine;
use hapax_core::fingerprint::{Fingerprint, Scheme};
use hapax_core::record::{Policy, State};
use hapax_core::store::Store as _;
use hapax_core::transition::Event;
use hapax_sqlite::{Options, Sqlite};
use rusqlite::Connection;

fn hapax(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hapax"));
    command.args(arguments).current_dir(directory).env_clear().env("USER", "ana").output().unwrap()
}

/// What it printed, where it must end well.
#[track_caller]
fn said(directory: &Path, arguments: &[&str]) -> String {
    let output = hapax(directory, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Its exit code and what it said about it.
fn failed(directory: &Path, arguments: &[&str]) -> (i32, String) {
    let output = hapax(directory, arguments);
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

/// An application's file with a table of its own.
fn application(file: &Path) -> Connection {
    let connection = Connection::open(file).unwrap();
    connection
        .execute_batch("CREATE TABLE orders (id TEXT); INSERT INTO orders VALUES ('o-1'); PRAGMA application_id = 77")
        .unwrap();
    connection
}

fn address(key: &str) -> Address {
    let (space, scope) = (Space::new("http").unwrap(), Scope::new("alice").unwrap());
    Address::new(&AddressScheme::default(), &space, &scope, &Key::new(key).unwrap())
}

/// A request whose outcome nobody knows.
async fn lose(store: &Sqlite, key: &str) {
    let engine = Engine::new(store.clone(), hapax::tokens::random);
    let fingerprint = Fingerprint { scheme: Scheme::new("1;sha256").unwrap(), digest: [7; 32] };
    let held = engine.claim(&address(key), &fingerprint, Policy::default()).await.unwrap();
    let attempt_id = held.attempt_id().unwrap();
    let doubt = Event::Doubt { attempt_id, error: "lost", probe_in_ms: 0 };
    engine.apply(&address(key), &doubt, Some(held.seen)).await.unwrap();
}

#[tokio::test]
async fn a_store_inside_an_applications_file_is_operated_like_any_other() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let shop = application(&here.join("app.db"));
    let store = Sqlite::open(Options::new(here.join("app.db")).with_guest()).unwrap();
    lose(&store, "k-1").await;
    let url = ["--store", "sqlite:app.db"];
    let with = |arguments: &[&str]| said(here, &[arguments, &url[..]].concat());

    assert!(with(&["status"]).contains("unknown   1"), "{}", with(&["status"]));
    assert!(with(&["keys", "list"]).contains("k-1"));
    with(&["keys", "resolve", "k-1", "--keys-unique", "--happened", "--reason", "paid, says the provider"]);
    let settled = store.get(&address("k-1")).await.unwrap().stored.unwrap().record.state;
    assert_eq!(settled, State::Completed, "the application sees it");
    assert!(with(&["audit"]).contains("paid, says the provider"));
    with(&[
        "store",
        "fence",
        "--raise",
        "--since",
        "2024-11-16T12:00:00Z",
        "--reason",
        "restored with the application",
    ]);
    assert!(with(&["store", "fence"]).starts_with("A fence stands"));

    let (code, told) = failed(here, &["store", "backup", "copy.db", "--store", "sqlite:app.db"]);
    assert_eq!((code, told.contains("back up an application's file by its own means")), (1, true), "{told}");
    let read = |sql: &str| shop.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!((read("PRAGMA application_id"), read("SELECT count(*) FROM orders")), (77, 1));
}

#[test]
fn an_applications_file_without_a_store_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    drop(application(&here.join("app.db")));
    let before = std::fs::read(here.join("app.db")).unwrap();
    let (code, told) = failed(here, &["status", "--store", "sqlite:app.db"]);
    assert_eq!((code, told.contains("the file holds no store; name the file that")), (6, true), "{told}");
    let (code, told) = failed(
        here,
        &[
            "proxy",
            "--to",
            "http://127.0.0.1:9",
            "--from",
            "127.0.0.1:0",
            "--admin",
            "127.0.0.1:0",
            "--store",
            "sqlite:app.db",
        ],
    );
    assert_ne!(code, 0);
    assert!(told.contains("another application's SQLite database; give hapax a file of its own"), "{told}");
    assert_eq!(std::fs::read(here.join("app.db")).unwrap(), before);
    assert_eq!(std::fs::read_dir(here).unwrap().count(), 1);
}
