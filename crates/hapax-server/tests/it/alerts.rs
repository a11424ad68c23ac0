//! Each alert of `deploy/alerts.yml`, provoked on a live node and evaluated by promtool.
//!
//! A node is scraped before and after something went wrong. promtool gets both scrapes as a history, 90 minutes of the first
//! and then the second, and must say that the alert is silent in the first part and fires in the second. So an alert that
//! asks for a metric which no node has, or for a counter that does not begin at zero, fails here.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::node::{self, Kept, Node, builder, pay, start, start_with};
use hapax_testkit::hapax::Hapax;
use hapax_testkit::ledger::{Behaviour, Ledger};
use hapax_testkit::postgres::Server;
use hapax_testkit::raw_http::{ReadError, Response};
use hapax_testkit::tcp_proxy::TcpProxy;
use hapax_testkit::wait::until;
use hapax_testkit::{needs_clients, needs_postgres};

/// Leases and sweeps that a test can wait for.
const QUICK: &str = "[background]\nsweep_every = \"200ms\"\nreconcile_every = \"200ms\"\nreap_every = \"200ms\"\n\
                     [defaults]\nlease = \"1s\"\n";

/// Longer than any of it takes.
const SOON: Duration = Duration::from_secs(20);

/// The samples of a scrape by their names and labels.
type Scrape = BTreeMap<String, f64>;

fn scrape(hapax: &Hapax) -> Scrape {
    let text = hapax.ask_admin("/metrics").text();
    let samples = text.lines().filter(|line| !line.starts_with('#') && !line.contains("_bucket"));
    let read = samples.filter_map(|line| {
        let (name, value) = line.rsplit_once(' ')?;
        Some((name.to_owned(), value.parse().ok()?))
    });
    read.filter(|(_, value): &(String, f64)| value.is_finite()).collect()
}

/// With the labels that Prometheus adds.
fn series(name: &str) -> String {
    let target = "job=\"hapax\",instance=\"one\"";
    match name.split_once('{') {
        Some((name, labels)) => format!("{name}{{{target},{labels}"),
        None => format!("{name}{{{target}}}"),
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn promtool() -> Command {
    let target = Path::new(env!("CARGO_BIN_EXE_hapax")).parent().and_then(Path::parent).unwrap();
    let installed = target.join("promtool/promtool");
    assert!(installed.exists(), "promtool is not at {}; run scripts/test, which installs it", installed.display());
    Command::new(installed)
}

/// The alert is silent while the node says `before`, and fires a few minutes after it began to say `after`. What is named in
/// `growing` goes on growing with time, as an age does.
fn assert_fires(alert: &str, before: &Scrape, after: &Scrape, growing: &[&str]) {
    let mut history = String::new();
    for (name, value) in after {
        let first = before.get(name).map_or("_x90".to_owned(), |value| format!("{value}+0x90"));
        let step = if growing.contains(&name.as_str()) { 60 } else { 0 };
        writeln!(history, "      - series: '{}'\n        values: '{first} {value}+{step}x20'", series(name)).unwrap();
    }
    let fires = format!("count(max_over_time(ALERTS{{alertname=\"{alert}\",alertstate=\"firing\"}}[8m])) > bool 0");
    let text = format!(
        "rule_files: ['{}']\nevaluation_interval: 1m\ntests:\n  - interval: 1m\n    input_series:\n{history}\
         \x20   promql_expr_test:\n\
         \x20     - {{expr: '{fires}', eval_time: 85m, exp_samples: []}}\n\
         \x20     - {{expr: '{fires}', eval_time: 98m, exp_samples: [{{labels: '{{}}', value: 1}}]}}\n",
        root().join("deploy/alerts.yml").display()
    );
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("alert.yml");
    std::fs::write(&file, text).unwrap();
    let done = promtool().args(["test", "rules"]).arg(&file).output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    let changed: Vec<_> = after.iter().filter(|(name, value)| before.get(*name) != Some(value)).collect();
    assert!(done.status.success(), "{alert} does not fire as it should: {said}\nwhat changed: {changed:#?}");
}

fn quick(kept: Kept, more: &str) -> Node {
    start_with(kept, |builder| builder.with_config(&format!("{QUICK}{more}")))
}

fn send_in_background(hapax: &Hapax, key: &'static str) -> JoinHandle<Result<Response, ReadError>> {
    let address = hapax.address();
    std::thread::spawn(move || pay(key).try_send(address))
}

/// Two nodes on one database, and a request that the first has sent to the upstream when it is paused.
struct Paused {
    ledger: Ledger,
    first: Hapax,
    second: Hapax,
    url: String,
    request: JoinHandle<Result<Response, ReadError>>,
    _database: hapax_testkit::postgres::Database,
}

fn paused(more: &str) -> Paused {
    let (ledger, database) = (Ledger::start(), Server::shared().fresh_database());
    let config = format!("{QUICK}{more}");
    let start = || builder(&ledger, Some(&database)).with_config(&config).start();
    let (mut first, second) = (start(), start());
    ledger.hold("k");
    let request = send_in_background(&first, "k");
    ledger.wait_until_received("k");
    first.signal("STOP");
    Paused { url: database.url(), ledger, first, second, request, _database: database }
}

fn operator(arguments: &[&str]) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hapax"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("HAPAX_")) {
        command.env_remove(name);
    }
    let done = command.args(arguments).output().unwrap();
    assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn promtool_accepts_the_rules() {
    needs_clients!();
    let done = promtool().args(["check", "rules"]).arg(root().join("deploy/alerts.yml")).output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success() && said.contains("SUCCESS"), "{said}");
}

#[test]
fn every_alert_has_a_test_and_an_entry_in_the_runbook() {
    let rules = std::fs::read_to_string(root().join("deploy/alerts.yml")).unwrap();
    let runbook = std::fs::read_to_string(root().join("docs/runbook.md")).unwrap();
    let this = include_str!("alerts.rs");
    let names: Vec<&str> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(names.len() >= 12, "{names:?}");
    for name in names {
        assert!(runbook.contains(&format!("\n## {name}\n")), "{name} has no entry in docs/runbook.md");
        assert!(rules.contains(&format!("runbook: docs/runbook.md#{}\n", name.to_lowercase())), "{name} has no link");
        assert!(this.contains(&format!("assert_fires(\"{name}\"")), "{name} is not provoked by a test");
    }
}

#[test]
fn a_node_that_was_killed_is_down() {
    needs_clients!();
    let mut node = start(Kept::Sqlite);
    let up = |node: &Node| {
        let up = std::net::TcpStream::connect(node.hapax.admin()).is_ok();
        Scrape::from([("up".to_owned(), f64::from(u8::from(up)))])
    };
    let before = up(&node);
    node.hapax.kill_9();
    assert_fires("HapaxDown", &before, &up(&node), &[]);
}

#[test]
fn a_store_that_is_gone_opens_the_breaker_and_puts_answers_and_sweeps_at_risk() {
    needs_clients!();
    needs_postgres!();
    let (ledger, database) = (Ledger::start(), Server::shared().fresh_database());
    let proxy = TcpProxy::in_front_of(database.address());
    let config = format!("[store]\ntimeout = \"300ms\"\nbreaker_failures = 3\nbreaker_pause = \"60s\"\n{QUICK}");
    let hapax = builder(&ledger, None).with_store(&database.url_via(proxy.address())).with_config(&config).start();
    ledger.hold("k");
    let request = send_in_background(&hapax, "k");
    ledger.wait_until_received("k");
    let before = scrape(&hapax);
    proxy.refuse(true);
    proxy.cut_now();
    ledger.release("k");
    for number in 0..6 {
        assert_eq!(pay(&format!("refused-{number}")).send(hapax.address()).status, 503);
    }
    until("everything has noticed", SOON, || {
        let failures = scrape(&hapax).into_iter().filter(|(name, _)| name.contains("sweep_failures"));
        let failures = failures.map(|(_, count)| count).fold(0.0, f64::max);
        hapax.metric("hapax_breaker_open") > 0.5 && hapax.metric("hapax_completions_pending") > 0.5 && failures > 5.0
    });
    let after = scrape(&hapax);
    assert_fires("HapaxStoreDown", &before, &after, &[]);
    assert_fires("HapaxAnswersAtRisk", &before, &after, &[]);
    assert_fires("HapaxSweepsFail", &before, &after, &[]);
    proxy.refuse(false);
    assert_eq!(request.join().unwrap().unwrap().status, 409);
}

#[test]
fn a_store_at_its_ceiling_is_full() {
    needs_clients!();
    // The store has records of hapax's own.
    let node = start_with(Kept::Sqlite, |builder| builder.with_config("[store]\nrows_max = 4\n"));
    let before = scrape(&node.hapax);
    for number in 0..4 {
        pay(&format!("k-{number}")).send(node.hapax.address());
    }
    until("the store was measured", SOON, || node.hapax.metric("hapax_store_full") > 0.5);
    assert_fires("HapaxStoreFull", &before, &scrape(&node.hapax), &[]);
}

#[test]
fn an_answer_that_never_came_is_unknown_and_then_dead() {
    needs_clients!();
    let probe = "[[route]]\nmethods = [\"POST\"]\npath = \"/payments\"\nprobe_attempts = 5\nprobe_backoff = \"100ms\"\n\
                 probe = { get = \"/lost?record={id}\", happened = \"200\", did_not_happen = \"404\" }\n";
    let node = quick(Kept::Sqlite, probe);
    node.ledger.on("/lost", Behaviour::answer(500, "broken"));
    let before = scrape(&node.hapax);
    node.ledger.next("k", Behaviour::Drop);
    assert_eq!(node.send(&pay("k")).status, 504);
    until("it is counted as unknown", SOON, || node.hapax.metric("hapax_oldest_unknown_seconds") > 0.0);
    let unknown = scrape(&node.hapax);
    assert_fires("HapaxUnknownOutcomes", &before, &unknown, &["hapax_oldest_unknown_seconds"]);
    until("automation has given up", SOON, || node.hapax.metric("hapax_dead") > 0.5);
    let after = scrape(&node.hapax);
    assert_fires("HapaxReconcileFails", &before, &after, &[]);
    assert_fires("HapaxDead", &before, &after, &[]);
}

#[test]
fn two_attempts_that_both_finish_are_a_double_run() {
    needs_clients!();
    needs_postgres!();
    let mut two = paused("on_lapse = \"rerun\"\n");
    let before = scrape(&two.second);
    two.ledger.release("k");
    until("the second node has run it again", SOON, || pay("k").send(two.second.address()).status == 201);
    two.first.signal("CONT");
    let _ = two.request.join().unwrap();
    until("it is noticed", SOON, || two.first.metric("hapax_double_runs_total") > 0.5);
    assert_fires("HapaxDoubleRun", &before, &scrape(&two.first), &[]);
}

#[test]
fn an_attempt_that_comes_back_contradicts_a_verdict() {
    needs_clients!();
    needs_postgres!();
    for (verdict, metric) in [("--did-not-happen", "hapax_contradicted_total"), ("--give-up", "hapax_overruled_total")]
    {
        let mut two = paused("");
        let before = scrape(&two.second);
        until("the second node has noticed the lapse", SOON, || two.second.metric("hapax_lapsed_total") > 0.5);
        operator(&[
            "keys",
            "resolve",
            "k",
            "--keys-unique",
            verdict,
            "--reason",
            "a test",
            "--yes",
            "--store",
            &two.url,
        ]);
        two.ledger.release("k");
        two.first.signal("CONT");
        let _ = two.request.join().unwrap();
        until("it is noticed", SOON, || two.first.metric(metric) > 0.5);
        assert_fires("HapaxVerdictWrong", &before, &scrape(&two.first), &[]);
    }
}

#[test]
fn an_attempt_that_comes_back_to_a_purged_key_may_run_twice_yet() {
    needs_clients!();
    needs_postgres!();
    let mut two = paused("");
    let before = scrape(&two.second);
    until("the second node has noticed the lapse", SOON, || two.second.metric("hapax_lapsed_total") > 0.5);
    operator(&["keys", "purge", "k", "--keys-unique", "--reason", "a test", "--yes", "--store", &two.url]);
    two.ledger.release("k");
    two.first.signal("CONT");
    let _ = two.request.join().unwrap();
    until("it is noticed", SOON, || two.first.metric("hapax_forgotten_total") > 0.5);
    assert_fires("HapaxDoubleRun", &before, &scrape(&two.first), &[]);
}

#[test]
fn keys_that_are_used_again_and_retries_are_noticed() {
    needs_clients!();
    let node = start(Kept::Sqlite);
    assert_eq!(node.send(&pay("k")).status, 201);
    let before = scrape(&node.hapax);
    for amount in 0..12 {
        let other = node::unkeyed(&format!("{{\"amount\":{amount}}}")).header("Idempotency-Key", "k");
        assert_eq!(node.send(&other).status, 422);
    }
    assert_fires("HapaxKeysMisused", &before, &scrape(&node.hapax), &[]);
    for _ in 0..400 {
        assert_eq!(node.send(&pay("k")).status, 201);
    }
    assert_fires("HapaxDuplicateSpike", &before, &scrape(&node.hapax), &[]);
}

#[test]
fn attempts_that_end_without_a_word_are_zombies() {
    needs_clients!();
    const KEYS: [&str; 8] = ["k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7"];
    let mut node = quick(Kept::Sqlite, "");
    let requests: Vec<_> = KEYS
        .into_iter()
        .map(|key| {
            node.ledger.hold(key);
            let request = send_in_background(&node.hapax, key);
            node.ledger.wait_until_received(key);
            request
        })
        .collect();
    let before = scrape(&node.hapax);
    node.hapax.kill_9();
    node.hapax.restart();
    for key in KEYS {
        node.ledger.release(key);
    }
    for request in requests {
        assert!(request.join().unwrap().is_err());
    }
    until("every lapse is noticed", SOON, || node.hapax.metric("hapax_lapsed_total") > 7.5);
    assert_fires("HapaxZombies", &before, &scrape(&node.hapax), &[]);
}

#[test]
fn a_record_that_was_altered_is_damaged() {
    needs_clients!();
    let node = start(Kept::Sqlite);
    assert_eq!(node.send(&pay("k")).status, 201);
    let before = scrape(&node.hapax);
    let file = rusqlite::Connection::open(node.hapax.dir().join("hapax.db")).unwrap();
    file.execute("UPDATE hapax_record SET data = data || x'00' WHERE key = 'k'", []).unwrap();
    assert_eq!(node.send(&pay("k")).status, 503);
    assert_fires("HapaxRecordDamaged", &before, &scrape(&node.hapax), &[]);
}

#[test]
fn a_reload_of_a_wrong_file_is_refused() {
    needs_clients!();
    let mut node = quick(Kept::Sqlite, "");
    let before = scrape(&node.hapax);
    node.hapax.write_config("no_such_key = 1\n");
    node.hapax.hup();
    until("it is refused", SOON, || {
        scrape(&node.hapax)
            .iter()
            .any(|(name, value)| name.contains("refused\"") && name.contains("reload") && *value > 0.5)
    });
    assert_fires("HapaxReloadRefused", &before, &scrape(&node.hapax), &[]);
}

#[test]
fn a_node_that_keeps_records_in_memory_is_not_durable() {
    needs_clients!();
    let durable = scrape(&start(Kept::Sqlite).hapax);
    let node = start_with(Kept::Sqlite, |builder| builder.with_store("memory:"));
    assert_fires("HapaxNotDurable", &durable, &scrape(&node.hapax), &[]);
}
