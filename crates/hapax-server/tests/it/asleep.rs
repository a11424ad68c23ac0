//! A node that falls asleep between its claim and its first byte: another one takes over, and the sleeper sends nothing.
//!
//! Two processes on one store, judged by the upstream's own ledger. The process is stopped (SIGSTOP) exactly where it is
//! about to write, and goes on after the other one has carried the request out. What happens at the same place over
//! HTTP/2 and after a TLS handshake is tested in `send_before.rs`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

use std::time::Duration;

use crate::node::{builder, pay, refused};
use hapax_testkit::hapax::Hapax;
use hapax_testkit::ledger::{Behaviour, Ledger};
use hapax_testkit::postgres::Server;
use hapax_testkit::wait::{pass, until};
use hapax_testkit::{needs_postgres, whole};

/// A lapse is a licence to run again here, so that the other node needs no probe.
const CONFIG: &str = "[defaults]\nlease = \"1s\"\non_lapse = \"rerun\"\n\n[upstream]\nidle_timeout = \"10s\"\n";

const PATIENCE: Duration = Duration::from_secs(20);

/// Two nodes on one file. The first stops before the first byte of its `hit`th request.
struct Two {
    ledger: Ledger,
    sleeper: Hapax,
    other: Hapax,
    dir: tempfile::TempDir,
}

fn two(hit: u32) -> Two {
    let (ledger, dir) = (Ledger::start(), tempfile::tempdir().unwrap());
    let store = format!("sqlite:{}", dir.path().join("shared.db").display());
    let node = || builder(&ledger, None).with_store(&store).with_config(CONFIG);
    let resume = dir.path().join("resume");
    let sleeper = node()
        .with_env("FAILPOINT", &format!("first-byte:{hit}"))
        .with_env("FAILPOINT_RESUME", resume.to_str().unwrap())
        .start();
    let other = node().start();
    Two { ledger, sleeper, other, dir }
}

impl Two {
    /// The sleeper is stopped at its first byte, the other node carries the request out, the sleeper wakes up.
    fn sleep_through(&mut self, key: &str) {
        let (address, request) = (self.sleeper.address(), pay(key));
        let first = std::thread::spawn(move || request.send(address));
        self.sleeper.line_with("failpoint first-byte");
        self.sleeper.signal("STOP");
        until("the other node takes over", PATIENCE, || pay(key).send(self.other.address()).status == 201);
        self.ledger.assert_once(key);
        std::fs::write(self.dir.path().join("resume"), "").unwrap();
        self.sleeper.signal("CONT");
        let first = first.join().unwrap();
        assert_eq!(self.ledger.executions(key).len(), 1, "the sleeper sent late; its client got {:?}", refused(&first));
        assert_eq!(refused(&first), (502, "upstream-unreachable".into()));
        for node in [&self.sleeper, &self.other] {
            let retry = pay(key).send(node.address());
            assert_eq!((retry.status, retry.is_replay()), (201, true), "the other node's answer stands");
        }
        assert_eq!(self.sleeper.metric("hapax_double_runs_total"), 0.0);
    }
}

#[test]
fn a_node_that_slept_before_its_first_byte_sends_nothing_on_a_new_connection() {
    two(1).sleep_through("k");
}

#[test]
fn a_node_that_slept_before_its_first_byte_sends_nothing_on_a_pooled_connection() {
    let mut two = two(2);
    let before = two.ledger.connections();
    assert_eq!(pay("before").send(two.sleeper.address()).status, 201);
    two.sleep_through("k");
    // One of each node; the sleeper did not need a second.
    assert_eq!(two.ledger.connections() - before, 2);
}

/// What had been sent before the stop is found out by the probe, and what had not runs on the other node a moment later.
const PROBED: &str = r#"
[upstream]
answer_timeout = "2s"

[background]
sweep_every = "200ms"
reconcile_every = "200ms"

[defaults]
lease = "2s"

[[route]]
path = "/payments"
settle_after = "2s"
probe = { get = "/look-up?record={id}", timeout = "2s" }
"#;

const BURST: usize = 60;
const STOP_AFTER_MS_MAX: u64 = 40;

/// On PostgreSQL, since a process that is stopped inside a transaction of SQLite's holds up everybody.
#[test]
fn a_burst_that_is_stopped_at_any_moment_runs_nothing_twice() {
    needs_postgres!();
    // More of them look longer for the moment that hurts.
    let rounds = whole::or_part(20, 1) as u64;
    let seed = u64::from(std::process::id());
    let database = Server::shared().fresh_database();
    let ledger = Ledger::start();
    ledger.on("/look-up", Behaviour::LookUp(Box::new(Behaviour::answer(200, "{}"))));
    let node = || builder(&ledger, Some(&database)).with_config(PROBED).start();
    let (mut sleeper, other) = (node(), node());
    for round in 0..rounds {
        let stop_after_ms = (seed.wrapping_mul(31) + round * 7) % (STOP_AFTER_MS_MAX + 1);
        let keys: Vec<String> = (0..BURST).map(|at| format!("k-{round}-{at}")).collect();
        let send = |address, key: &str| {
            let request = pay(key);
            std::thread::spawn(move || request.try_send(address).map(|answer| answer.status))
        };
        let first: Vec<_> = keys.iter().map(|key| send(sleeper.address(), key)).collect();
        pass(Duration::from_millis(stop_after_ms));
        sleeper.signal("STOP");
        let mut left = keys.clone();
        until("the other node has carried everything out", PATIENCE * 2, || {
            pass(Duration::from_millis(200));
            left.retain(|key| !pay(key).try_send(other.address()).is_ok_and(|answer| answer.status < 300));
            left.is_empty()
        });
        sleeper.signal("CONT");
        for first in first {
            // Whatever it was told: the ledger is the judge.
            let _ = first.join().unwrap();
        }
        for key in &keys {
            let runs = ledger.executions(key).len();
            assert_eq!(runs, 1, "{key}, stopped after {stop_after_ms} ms, seed {seed}, round {round}");
        }
    }
}
