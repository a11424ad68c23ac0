//! A key of a scope is found by its address: one record among 100,000 costs as much as one among ten.
//!
//! Judged from outside: by the bytes that the command reads from a SQLite file, and by the rows that PostgreSQL counts.

use std::io::Read as _;
use std::process::Stdio;

use hapax_testkit::wait::until;

use super::node::{self, Kept, Node, on_both_stores, pay, start};
use super::{SOON, command, json};

on_both_stores! {
    one_record_among_a_hundred_thousand_is_found_by_reading_a_handful
}

const OTHERS: u32 = 100_000;

/// What a command may read of a SQLite file: a few pages of a few tables. All records take a hundred times as much.
const BYTES_MAX: u64 = 512 * 1024;

/// What a command may read of a PostgreSQL table.
const ROWS_MAX: u64 = 16;

fn one_record_among_a_hundred_thousand_is_found_by_reading_a_handful(kept: Kept) {
    let mut node = start(kept);
    assert_eq!(node.send(&pay("k-1")).status, 201);
    let scope = json(&node, &["keys", "show", "k-1"])["scope"].as_str().unwrap().to_owned();
    assert_eq!(node.hapax.terminate(), Some(0));
    add_others(&node);
    for arguments in [
        &["keys", "show", "k-1", "--scope", &scope][..],
        &["keys", "resolve", "k-1", "--scope", &scope, "--happened", "--reason", "x", "--yes"],
        &["keys", "purge", "k-1", "--scope", &scope, "--reason", "x", "--yes"],
    ] {
        match kept {
            Kept::Sqlite => {
                let bytes = bytes_read(&node, arguments);
                assert!((1..=BYTES_MAX).contains(&bytes), "{arguments:?} read {bytes} bytes");
            }
            Kept::Postgres => {
                let rows = rows_read(&node, arguments);
                assert!((1..=ROWS_MAX).contains(&rows), "{arguments:?} read {rows} rows");
            }
        }
    }
    assert_eq!(json(&node, &["keys", "show", "k-1", "--scope", &scope])["state"].as_str(), Some("expired"));
}

/// As many copies of the first record under other keys. Their ids are made up: nobody is to look at them.
fn add_others(node: &Node) {
    let columns = "version, state, stamped_at, due_at, reap_at, scheme, space, scope";
    match &node.database {
        Some(database) => {
            database.run(&format!(
                "INSERT INTO hapax.record (id, key, data, {columns})
                 SELECT sha256(n::text::bytea), 'other-' || n, data, {columns}
                 FROM hapax.record, generate_series(1, {OTHERS}) AS n WHERE key = 'k-1'"
            ));
            database.run("VACUUM ANALYZE hapax.record");
        }
        None => {
            let file = rusqlite::Connection::open(node.hapax.dir().join("hapax.db")).unwrap();
            let copied = format!(
                "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {OTHERS})
                 INSERT INTO hapax_record (id, key, data, {columns})
                 SELECT randomblob(32), 'other-' || i, data, {columns} FROM hapax_record, n WHERE key = 'k-1';
                 INSERT INTO hapax_place (id, seq) SELECT id, seq FROM hapax_record WHERE key LIKE 'other-%';"
            );
            file.execute_batch(&copied).unwrap();
        }
    }
}

/// Bytes that a command reads in all.
fn bytes_read(node: &Node, arguments: &[&str]) -> u64 {
    let mut child = command(node, arguments).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut said = String::new();
    child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    // While nobody has waited for it, the system keeps its figures.
    let of_process = |name: &str| std::fs::read_to_string(format!("/proc/{}/{name}", child.id())).unwrap();
    until("the command ends", SOON, || of_process("status").contains("State:\tZ"));
    let bytes = of_process("io").lines().find_map(|line| line.strip_prefix("rchar: ")?.parse().ok()).unwrap();
    child.wait().unwrap();
    bytes
}

/// Rows of the table that a command reads, by index or not.
fn rows_read(node: &Node, arguments: &[&str]) -> u64 {
    let database = node.database.as_ref().unwrap();
    // A session tells what it read when it ends.
    let counted = || -> u64 {
        let others = "SELECT count(*) FROM pg_stat_activity
                      WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'";
        until("no other session is left", SOON, || database.run(others) == "0");
        let rows = "SELECT coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)
                    FROM pg_stat_user_tables WHERE schemaname = 'hapax' AND relname = 'record'";
        database.run(rows).parse().unwrap()
    };
    let before = counted();
    command(node, arguments).output().unwrap();
    counted() - before
}
