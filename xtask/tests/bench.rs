//! The benchmark command runs, prints what it documents, and leaves nothing behind. What it measures is not judged here.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

use std::process::Command;

use serde_json::Value;

fn page() -> String {
    std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/benchmarks.md")).unwrap()
}

fn bench(args: &[&str]) -> Vec<Value> {
    let dir = tempfile::tempdir().unwrap();
    let before = page();
    let output = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(["bench", "stores", "--json", "--seconds", "0.3", "--concurrency", "8", "--dir"])
        .arg(dir.path())
        .args(args)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "its files are gone");
    assert!(page() == before, "a run that is not whole leaves the page alone");
    assert_eq!(said.matches("docs/benchmarks.md was left as it is: ").count(), 1, "and says so: {said}");
    String::from_utf8(output.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Every figure is there, and is what the others say it is.
fn check(line: &Value, store: &str, op: &str) {
    assert_eq!((&line["bench"], &line["store"], &line["op"]), (&"stores".into(), &store.into(), &op.into()));
    assert_eq!(line["concurrency"], 8);
    for figure in ["ours_per_s", "naive_per_s", "ratio", "p50_ms", "p99_ms", "naive_p50_ms", "naive_p99_ms"] {
        assert!(line[figure].as_f64().unwrap() > 0.0, "{figure} in {line}");
    }
    let number = |figure: &str| line[figure].as_f64().unwrap();
    assert!((number("ratio") - number("ours_per_s") / number("naive_per_s")).abs() < 0.02 * number("ratio") + 0.01);
    assert!(number("p50_ms") <= number("p99_ms"));
}

#[test]
fn sqlite_is_measured_with_growth_and_reaping() {
    let lines = bench(&["--store", "sqlite", "--preload", "3000", "--reap", "3000"]);
    assert_eq!(lines.len(), 4);
    check(&lines[0], "sqlite", "cycle");
    check(&lines[1], "sqlite", "replay");
    assert_eq!(lines[2]["bench"], "growth");
    assert_eq!(lines[2]["records"], 3000);
    assert!(lines[2]["bytes_per_record"].as_f64().unwrap() > 1024.0);
    assert_eq!(lines[3]["bench"], "reap");
    assert_eq!(lines[3]["records"], 3000);
}

#[test]
fn memory_has_no_naive_twin() {
    let lines = bench(&["--store", "memory"]);
    assert_eq!(lines.len(), 1);
    assert!(lines[0]["ours_per_s"].as_f64().unwrap() > 0.0);
    assert_eq!(lines[0]["naive_per_s"], Value::Null);
}

#[test]
fn postgres_is_measured() {
    hapax_testkit::needs_postgres!();
    let lines = bench(&["--store", "postgres"]);
    assert_eq!(lines.len(), 4);
    for (line, (op, naive)) in lines.iter().zip([
        ("cycle", "unprepared"),
        ("cycle", "prepared"),
        ("replay", "unprepared"),
        ("replay", "prepared"),
    ]) {
        check(line, "postgres", op);
        assert_eq!(line["naive"], naive);
    }
}

fn sweep(args: &[&str]) -> Value {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    let output = command.args(["bench", "sweep", "--dir"]).arg(dir.path()).args(args).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn sweeps_are_measured() {
    let line = sweep(&["--records", "3000", "--sweeps", "2"]);
    assert_eq!((&line["bench"], &line["records"], &line["lapsed"]), (&"sweep".into(), &3000.into(), &100.into()));
    assert!(line["median_ms"].as_f64().unwrap() <= line["max_ms"].as_f64().unwrap());
}
