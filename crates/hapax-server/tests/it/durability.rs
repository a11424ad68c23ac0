//! What is said of durability is what the store says of itself, in every place that tells it, and also after a change.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use crate::node::{Kept, builder, start};
use hapax_testkit::hapax::Hapax;
use hapax_testkit::ledger::Ledger;
use hapax_testkit::needs_postgres;
use hapax_testkit::postgres::{Database, Server};
use hapax_testkit::raw_http::request;
use hapax_testkit::skip::not_tested;
use hapax_testkit::wait::until;

const PATIENCE: Duration = Duration::from_secs(30);

/// The server is looked at often, so that a test need not wait.
const CONFIG: &str = "[background]\nsweep_every = \"200ms\"\n";

/// `hapax` with those arguments and nothing of the developer's shell.
fn hapax(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hapax"));
    command.args(arguments).current_dir(directory).env_clear().env("USER", "ana");
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn status(hapax_of: &Hapax, url: &str) -> String {
    text(&hapax(hapax_of.dir(), &["status", "--store", url]).stdout)
}

fn metrics(hapax: &Hapax) -> String {
    text(&request("GET", "/metrics").send(hapax.admin()).body)
}

fn ready(hapax: &Hapax) -> String {
    text(&request("GET", "/readyz?verbose").send(hapax.admin()).body)
}

/// The same server under two names.
fn twice(database: &Database) -> String {
    let address = database.address();
    format!("postgres://postgres@{address},{address}/{}", database.name())
}

#[test]
fn a_server_without_a_standby_is_never_called_more_than_it_is() {
    needs_postgres!();
    let server = Server::builder().start();
    let database = server.maintenance();
    let ledger = Ledger::start();
    let url = twice(&database);
    let hapax = builder(&ledger, Some(&database)).with_store(&url).with_config(CONFIG).start();
    hapax.line_with("no standby confirms it");
    let warned = "the store has several hosts, and no standby confirms what the primary commits";
    hapax.line_with(warned);
    let said = status(&hapax, &url);
    assert!(said.contains("postgres, durability disk, "), "{said}");
    assert!(said.contains(&format!("warning   {warned}")), "{said}");
    assert!(
        metrics(&hapax).contains(r#"hapax_durability_info{store="postgres",level="disk"} 1"#),
        "{}",
        metrics(&hapax)
    );
    assert!(ready(&hapax).contains("postgres, durability disk"), "{}", ready(&hapax));

    // A standby comes, and goes again: both are noticed while the node runs.
    database.run("ALTER SYSTEM SET synchronous_standby_names = 'nobody'");
    database.run("SELECT pg_reload_conf()");
    let replicated = r#"hapax_durability_info{store="postgres",level="replicated"} "#;
    until("the standby is noticed", PATIENCE, || metrics(&hapax).contains(&format!("{replicated}1")));
    assert!(metrics(&hapax).contains(r#"hapax_durability_info{store="postgres",level="disk"} 0"#));
    database.run("ALTER SYSTEM RESET synchronous_standby_names");
    database.run("SELECT pg_reload_conf()");
    until("its loss is noticed", PATIENCE, || metrics(&hapax).contains(&format!("{replicated}0")));
    until("and logged", PATIENCE, || hapax.stderr().matches("the store's durability changed").count() == 2);
    assert_eq!(hapax.stderr().matches(warned).count(), 2, "{}", hapax.stderr());
}

#[test]
fn a_file_on_a_disk_is_as_durable_as_that_and_one_host_is_not_warned_of() {
    needs_postgres!();
    for kept in [Kept::Sqlite, Kept::Postgres] {
        let node = start(kept);
        let kind = if kept == Kept::Sqlite { "sqlite" } else { "postgres" };
        let level = format!(r#"hapax_durability_info{{store="{kind}",level="disk"}} 1"#);
        assert!(metrics(&node.hapax).contains(&level), "{}", metrics(&node.hapax));
        assert!(!node.hapax.stderr().contains("several hosts"), "{}", node.hapax.stderr());
    }
}

#[test]
fn a_file_in_memory_is_not_called_durable_and_strict_refuses_it() {
    let Ok(directory) = tempfile::tempdir_in("/dev/shm") else { return not_tested("a tmpfs at /dev/shm") };
    let url = format!("sqlite:{}", directory.path().join("hapax.db").display());
    let ledger = Ledger::start();
    let hapax = builder(&ledger, None).with_store(&url).start();
    let said = status(&hapax, &url);
    if said.contains("durability disk") {
        return not_tested("a tmpfs at /dev/shm");
    }
    assert!(said.contains("sqlite, durability none, "), "{said}");
    hapax.line_with("is on a file system in memory (tmpfs)");
    assert!(metrics(&hapax).contains(r#"hapax_durability_info{store="sqlite",level="none"} 1"#));
    drop(hapax);
    let strict = builder(&ledger, None).with_store(&url).with_config("[store]\nstrict = true\n");
    let (_, _, refused) = strict.start_refused();
    assert!(refused.contains("`store.strict` refuses this store"), "{refused}");
}

#[test]
fn a_check_notes_several_hosts_that_need_not_have_a_standby() {
    let directory = tempfile::tempdir().unwrap();
    let check = |hosts: &str, strict: bool| {
        let file = format!(
            "[upstream]\nto = \"http://127.0.0.1:9\"\n[store]\nurl = \"postgres://me@{hosts}/app?sslmode=require\"\nstrict = {strict}\n"
        );
        std::fs::write(directory.path().join("hapax.toml"), file).unwrap();
        let output = hapax(directory.path(), &["config", "check"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let note = "note: `store.url` has several hosts and `store.strict` is off";
    assert!(check("a,b", false).contains(note));
    assert!(!check("a,b", true).contains(note));
    assert!(!check("a", false).contains(note));
}
