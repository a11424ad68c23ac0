//! The process: start, reload, drain, end, crash. What it says, what it keeps, and how it ends.
//!
//! Configuration files are tested in `config.rs`; here only what a running process does with a new one.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::node::{self, Kept, Node, builder, on_both_stores, pay, refused, start, start_with, unkeyed};
use hapax_testkit::ledger::Ledger;
use hapax_testkit::postgres::Server;
use hapax_testkit::raw_http::{Conn, ReadError, Response, request};
use hapax_testkit::wait::until;
use hapax_testkit::{clients, needs_clients, needs_postgres, port};
use tempfile::TempDir;
use tokio::time::Instant;

on_both_stores! {
    sigterm_finishes_records_and_answers_what_runs
    sigterm_ends_an_idle_process_at_once
    sigint_drains_as_well
    what_outlives_the_drain_time_is_left_to_its_lease
    a_second_sigterm_ends_it_at_once
    a_crash_in_the_middle_is_unknown_and_never_run_again
    a_crash_in_the_middle_is_run_again_where_the_route_says_so
    another_scope_on_the_same_store_is_refused_unless_it_is_meant
    it_is_ready_soon
}

/// More than any machine needs, and less than any drain.
const AT_ONCE: Duration = Duration::from_secs(5);

/// A crash is noticed after a second.
const SHORT_LEASE: &str = "[defaults]\nlease = \"1s\"\n";

/// Sends the request in the background and waits until the upstream has it and holds it.
fn hold(node: &Node, key: &'static str) -> JoinHandle<Result<Response, ReadError>> {
    node.ledger.hold(key);
    let address = node.hapax.address();
    let first = std::thread::spawn(move || pay(key).try_send(address));
    node.ledger.wait_until_received(key);
    first
}

fn sigterm_finishes_records_and_answers_what_runs(kept: Kept) {
    let mut node = start(kept);
    let first = hold(&node, "k");
    let mut idle = Conn::open(node.hapax.address());
    idle.expect_usable("/before");
    node.hapax.signal("TERM");
    until("it says that it is not ready", AT_ONCE, || node.hapax.ask_admin("/readyz").status == 503);
    let verbose = node.hapax.ask_admin("/readyz?verbose").text();
    assert!(verbose.contains("[-] draining") && verbose.contains("[+] store"), "{verbose}");
    assert_eq!(node.hapax.ask_admin("/livez").status, 200, "it must not be killed now");
    until("new connections are refused", AT_ONCE, || {
        matches!(pay("new").try_send(node.hapax.address()), Err(ReadError::Refused(_)))
    });
    idle.expect_closed();
    node.ledger.release("k");
    let first = first.join().unwrap().unwrap();
    assert_eq!(first.status, 201, "what ran is answered");
    assert_eq!(node.hapax.wait(), Some(0));
    assert!(node.hapax.stderr().contains("everything that ran is recorded"), "{}", node.hapax.stderr());
    node.hapax.restart();
    let retry = node.send(&pay("k"));
    assert_eq!((retry.is_replay(), retry.body), (true, first.body));
    node.ledger.assert_once("k");
    node.ledger.assert_never("new");
}

#[test]
fn an_end_leaves_the_file_whole_and_a_start_says_whether_it_is_new() {
    let mut node = start(Kept::Sqlite);
    assert!(node.hapax.line_with("\"serving\"").contains("\"is_new\":true"), "{}", node.hapax.stderr());
    let first = node.send(&pay("k"));
    assert_eq!(node.hapax.terminate(), Some(0));
    // As somebody moves a store by hand, without the files beside it.
    let copy = node.hapax.dir().join("copy.db");
    std::fs::copy(node.hapax.dir().join("hapax.db"), &copy).unwrap();
    let moved = builder(&node.ledger, None).with_store(&format!("sqlite:{}", copy.display())).start();
    let retry = pay("k").send(moved.address());
    assert_eq!((retry.is_replay(), retry.body), (true, first.body));
    assert!(moved.line_with("\"serving\"").contains("\"is_new\":false"), "{}", moved.stderr());
    node.ledger.assert_once("k");
}

#[test]
fn without_its_file_a_node_claims_nothing_until_the_file_is_back() {
    let node = start(Kept::Sqlite);
    node.send(&pay("before"));
    let at = |name: &str| node.hapax.dir().join(name);
    std::fs::rename(at("hapax.db"), at("moved.db")).unwrap();
    for _ in 0..3 {
        assert_eq!(refused(&node.send(&pay("meanwhile"))), (503, "store-unavailable".into()));
    }
    node.ledger.assert_never("meanwhile");
    assert!(node.hapax.ask_admin("/readyz?verbose").text().contains("put it back"));
    std::fs::rename(at("moved.db"), at("hapax.db")).unwrap();
    until("it goes on", AT_ONCE, || node.send(&pay("meanwhile")).status == 201);
    node.ledger.assert_once("meanwhile");
}

fn sigterm_ends_an_idle_process_at_once(kept: Kept) {
    let mut node = start(kept);
    node.send(&pay("k"));
    let _idle = Conn::open(node.hapax.address());
    let begun = Instant::now();
    assert_eq!(node.hapax.terminate(), Some(0));
    assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
}

fn sigint_drains_as_well(kept: Kept) {
    let mut node = start(kept);
    let first = hold(&node, "k");
    node.hapax.signal("INT");
    node.hapax.line_with("finishing what runs");
    node.ledger.release("k");
    assert_eq!(first.join().unwrap().unwrap().status, 201);
    assert_eq!(node.hapax.wait(), Some(0));
}

fn what_outlives_the_drain_time_is_left_to_its_lease(kept: Kept) {
    let config = format!("[server]\ndrain = \"200ms\"\n{SHORT_LEASE}");
    let mut node = start_with(kept, |builder| builder.with_config(&config));
    let first = hold(&node, "k");
    let begun = Instant::now();
    assert_eq!(node.hapax.terminate(), Some(1), "not everything went well");
    assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
    assert!(node.hapax.stderr().contains("ended before everything was recorded"), "{}", node.hapax.stderr());
    assert!(first.join().unwrap().is_err(), "the connection is cut: there is no answer to give");
    assert_unknown_and_never_run_again(&mut node);
}

fn a_second_sigterm_ends_it_at_once(kept: Kept) {
    let mut node = start_with(kept, |builder| builder.with_config(SHORT_LEASE));
    let first = hold(&node, "k");
    node.hapax.signal("TERM");
    node.hapax.line_with("finishing what runs");
    let begun = Instant::now();
    let code = node.hapax.terminate();
    assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
    assert_eq!(code, Some(1), "it ends by itself, and not by the signal");
    assert!(node.hapax.stderr().contains("leases are left to lapse"), "{}", node.hapax.stderr());
    assert!(first.join().unwrap().is_err());
    assert_unknown_and_never_run_again(&mut node);
}

fn a_crash_in_the_middle_is_unknown_and_never_run_again(kept: Kept) {
    let mut node = start_with(kept, |builder| builder.with_config(SHORT_LEASE));
    let first = hold(&node, "k");
    node.hapax.kill_9();
    assert!(first.join().unwrap().is_err());
    assert_unknown_and_never_run_again(&mut node);
}

/// Starts it again; the key is in progress until the lease has lapsed, then unknown for good.
#[track_caller]
fn assert_unknown_and_never_run_again(node: &mut Node) {
    node.hapax.restart();
    until("the lease has lapsed", Duration::from_secs(10), || match refused(&node.send(&pay("k"))) {
        (409, code) if code == "in-progress" => false,
        (409, code) if code == "outcome-unknown" => true,
        other => panic!("{other:?}"),
    });
    node.ledger.release("k");
    for _ in 0..3 {
        let retry = node.send(&pay("k"));
        assert_eq!(refused(&retry), (409, "outcome-unknown".into()));
        assert!(retry.header("retry-after").is_some());
    }
    node.ledger.assert_once("k");
    assert_eq!(node.send(&pay("another")).status, 201);
}

fn a_crash_in_the_middle_is_run_again_where_the_route_says_so(kept: Kept) {
    let config = format!("{SHORT_LEASE}on_lapse = \"rerun\"\n");
    let mut node = start_with(kept, |builder| builder.with_config(&config));
    let first = hold(&node, "k");
    node.hapax.kill_9();
    assert!(first.join().unwrap().is_err());
    node.ledger.release("k");
    node.hapax.restart();
    until("it is run again", Duration::from_secs(10), || node.send(&pay("k")).status == 201);
    let attempts: Vec<_> = node.ledger.executions("k").into_iter().map(|entry| entry.attempt.unwrap()).collect();
    assert_eq!(attempts, ["1", "2"], "the service can tell them apart");
    assert!(node.send(&pay("k")).is_replay());
}

fn another_scope_on_the_same_store_is_refused_unless_it_is_meant(kept: Kept) {
    let dir = TempDir::new().unwrap();
    let (ledger, database) = (Ledger::start(), (kept == Kept::Postgres).then(|| Server::shared().fresh_database()));
    let store = match &database {
        Some(database) => database.url(),
        None => format!("sqlite:{}", dir.path().join("hapax.db").display()),
    };
    let on_it = || builder(&ledger, None).with_store(&store);
    let mut first = on_it().start();
    assert_eq!(pay("k").send(first.address()).status, 201);
    assert_eq!(first.terminate(), Some(0));
    let (code, _, said) = on_it().with_scope("single").start_refused();
    assert_eq!(code, Some(1));
    let asked = ["credential", "single", "every key would be forgotten", "--new-addresses"];
    assert!(asked.iter().all(|part| said.contains(part)), "{said}");
    let mut again = on_it().start();
    assert!(pay("k").send(again.address()).is_replay(), "the refusal has changed nothing");
    again.terminate();
    let mut meant = on_it().with_scope("single").with_arg("--new-addresses").start();
    assert!(!pay("k").send(meant.address()).is_replay(), "that is what was meant");
    meant.terminate();
    let kept_since = on_it().with_scope("single").start();
    assert!(pay("k").send(kept_since.address()).is_replay(), "once is enough");
    let (code, _, _) = on_it().start_refused();
    assert_eq!(code, Some(1), "the way back has to be meant as well");
}

/// The promise is 200 ms for a release build on a machine that has nothing else to do: printed, not judged.
fn it_is_ready_soon(kept: Kept) {
    let node = start(kept);
    let mut again = builder(&node.ledger, node.database.as_ref());
    if node.database.is_none() {
        again = again.with_store(&format!("sqlite:{}", node.hapax.dir().join("again.db").display()));
    }
    let begun = Instant::now();
    let hapax = again.start();
    println!("{kept:?}: ready after {:?}", begun.elapsed());
    assert_eq!(hapax.ask_admin("/readyz").status, 200);
    assert!(hapax.line_with("\"serving\"").contains(&hapax.url()), "the log says where");
}

#[test]
fn sighup_puts_new_policies_in_force() {
    let mut node = start_with(Kept::Sqlite, |builder| builder.with_config(""));
    assert_eq!(refused(&node.send(&unkeyed("{}"))), (400, "key-missing".into()));
    let first = hold(&node, "running");
    node.hapax.write_config("[defaults]\nrequired = false\nin_flight = \"accepted\"\n");
    node.hapax.hup();
    node.hapax.line_with("the configuration was reloaded");
    assert_eq!(node.send(&unkeyed("{}")).status, 201, "a key is optional now");
    assert_eq!(node.send(&pay("running")).status, 202, "a retry of what was begun before gets the new answer");
    node.ledger.release("running");
    assert_eq!(first.join().unwrap().unwrap().status, 201, "what ran is not disturbed");
    assert!(node.send(&pay("running")).is_replay(), "no key is forgotten");
    assert_eq!(node.hapax.metric("hapax_reload_total{result=\"applied\"}"), 1.0);
    node.ledger.assert_once("running");
}

#[test]
fn sighup_moves_to_another_upstream() {
    let elsewhere = Ledger::start();
    let to = |ledger: &Ledger| format!("[upstream]\nto = \"{}\"\n", ledger.url());
    let ledger = Ledger::start();
    let config = to(&ledger);
    let hapax = builder(&ledger, None).with_upstream("").with_config(&config).start();
    let mut node = Node { ledger, hapax, database: None };
    let first = hold(&node, "before");
    node.hapax.write_config(&to(&elsewhere));
    node.hapax.hup();
    node.hapax.line_with("the configuration was reloaded");
    assert_eq!(node.send(&pay("after")).status, 201);
    elsewhere.assert_once("after");
    node.ledger.assert_never("after");
    node.ledger.release("before");
    assert_eq!(first.join().unwrap().unwrap().status, 201, "what ran ends where it began");
    assert!(node.send(&pay("before")).is_replay());
    elsewhere.assert_never("before");
}

/// Input 100.
#[test]
fn sighup_with_an_invalid_file_keeps_the_old_policies_and_says_so() {
    let mut node = start_with(Kept::Sqlite, |builder| builder.with_config("[defaults]\nrequired = false\n"));
    let bad = [
        ("[defaults]\nrequired = true\nretenton = \"1h\"\n", "hapax.toml:3:"),
        ("[defaults\n", "hapax.toml:1"),
        ("[defaults]\nlease = \"0s\"\n", "`lease` is 0"),
        ("[upstream]\nto = \"https://127.0.0.1\"\nca_file = \"/nowhere/ca.pem\"\n", "/nowhere/ca.pem"),
    ];
    for (nth, (text, cause)) in bad.into_iter().enumerate() {
        node.hapax.write_config(text);
        node.hapax.hup();
        let refusals = (nth + 1) as f64;
        until("it is refused", AT_ONCE, || node.hapax.metric("hapax_reload_total{result=\"refused\"}") == refusals);
        assert!(node.hapax.line_with(cause).contains("ERROR"), "{text}");
        node.hapax.line_with("the old one stays in force");
        assert_eq!(node.send(&unkeyed("{}")).status, 201, "{text}");
    }
    let begun = node.hapax.id();
    node.hapax.write_config("[defaults]\nrequired = true\n");
    node.hapax.hup();
    node.hapax.line_with("the configuration was reloaded");
    assert_eq!(refused(&node.send(&unkeyed("{}"))), (400, "key-missing".into()), "a corrected file is taken");
    assert_eq!(node.hapax.id(), begun, "all of it in one process");
}

#[test]
fn sighup_names_the_settings_that_need_a_restart() {
    let mut node = start_with(Kept::Sqlite, |builder| builder.with_config(""));
    node.hapax.write_config("[defaults]\nrequired = false\n[server]\nconnections_max = 5\n[log]\nlevel = \"debug\"\n");
    node.hapax.hup();
    let line = node.hapax.line_with("need a restart");
    assert!(line.contains("server.connections_max") && !line.contains("log.level"), "{line}");
    node.hapax.line_with("the old one stays in force");
    assert_eq!(refused(&node.send(&unkeyed("{}"))), (400, "key-missing".into()), "all of it or nothing");
    node.hapax.restart();
    assert_eq!(node.send(&unkeyed("{}")).status, 201);
}

#[test]
fn sighup_without_the_file_keeps_the_old_policies_and_says_so() {
    let mut node = start_with(Kept::Sqlite, |builder| builder.with_config("[defaults]\nrequired = false\n"));
    std::fs::remove_file(node.hapax.dir().join("hapax.toml")).unwrap();
    node.hapax.hup();
    assert!(node.hapax.line_with("hapax.toml").contains("does not exist"));
    node.hapax.line_with("the old one stays in force");
    assert_eq!(node.send(&unkeyed("{}")).status, 201, "a key is still optional");
}

/// A store that does not answer is no reason to wait for it.
#[test]
fn a_process_that_is_told_to_end_while_it_starts_ends() {
    let (ledger, silent) = (Ledger::start(), port::listener());
    let store = format!("postgres://hapax@{}/hapax?sslmode=disable", silent.local_addr().unwrap());
    let mut hapax = builder(&ledger, None).with_store(&store).start_unready();
    let (_asked, _) = silent.accept().unwrap();
    assert_eq!(hapax.terminate(), Some(0));
    hapax.line_with("ended before it had started");
}

/// Passes on what either side says, for every connection, in threads of their own.
fn relay(first: TcpStream, gate: TcpListener, to: SocketAddr) {
    let pass = |mut from: TcpStream, mut to: TcpStream| {
        std::thread::spawn(move || drop(std::io::copy(&mut from, &mut to).and_then(|_| to.shutdown(Shutdown::Write))));
    };
    let join = move |client: TcpStream| {
        let server = TcpStream::connect(to).unwrap();
        pass(client.try_clone().unwrap(), server.try_clone().unwrap());
        pass(server, client);
    };
    std::thread::spawn(move || std::iter::once(first).chain(gate.incoming().map(Result::unwrap)).for_each(join));
}

/// The signals that wait for the process to be taken.
fn pending_signals(id: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let of = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
    ["SigPnd:", "ShdPnd:"].map(|name| u64::from_str_radix(&of(name), 16).unwrap()).iter().sum()
}

/// Whoever changes the file and sends the signal may not know that the process has only just read it.
#[test]
fn a_reload_that_is_asked_for_while_it_starts_is_made_when_it_has_started() {
    needs_postgres!();
    let (ledger, database, gate) = (Ledger::start(), Server::shared().fresh_database(), port::listener());
    let store = database.url_via(gate.local_addr().unwrap());
    let hapax = builder(&ledger, None).with_store(&store).with_config("").start_unready();
    let mut node = Node { ledger, hapax, database: None };
    // It listens by now, has read its file, and waits for the store.
    let (asked, _) = gate.accept().unwrap();
    drop(TcpStream::connect(node.hapax.address()).unwrap());
    node.hapax.write_config("[defaults]\nrequired = false\n");
    node.hapax.hup();
    until("it has the signal", AT_ONCE, || pending_signals(node.hapax.id()) == 0);
    relay(asked, gate, database.address());
    node.hapax.line_with("\"serving\"");
    node.hapax.line_with("the configuration was reloaded");
    assert_eq!(node.send(&unkeyed("{}")).status, 201, "a key is optional now");
    assert_eq!(node.hapax.metric("hapax_reload_total{result=\"applied\"}"), 1.0);
}

/// A path in another spelling is also on the default route, which enforces before the other does.
#[test]
fn a_route_that_begins_to_be_enforced_forgets_no_key() {
    let route = |mode: &str| format!("[[route]]\npath = \"/kp\"\nkey_per = \"route\"\nmode = \"{mode}\"\n");
    let mut node = start_with(Kept::Sqlite, |builder| builder.with_config(&route("observe")));
    let pay = request("POST", "//kp").header("Authorization", "Bearer alice-secret").header("Idempotency-Key", "k");
    let pay = pay.body("{}");
    assert_eq!(node.send(&pay).status, 201);
    node.hapax.write_config(&route("enforce"));
    node.hapax.hup();
    node.hapax.line_with("the configuration was reloaded");
    assert!(node.send(&pay).is_replay());
    node.ledger.assert_once("k");
}

#[test]
fn a_slash_at_the_end_counts_neither_in_a_path_nor_in_a_route() {
    let config =
        "[[route]]\npath = \"/hooks/\"\nprotect = false\n[[route]]\npath = \"/pay/{id}/\"\nkey_per = \"route\"\n";
    let node = start_with(Kept::Sqlite, |builder| builder.with_config(config));
    for path in ["/hooks/", "/hooks"] {
        assert_eq!(node.send(&request("POST", path).body("{}")).status, 201, "{path} passes");
    }
    for path in ["/pay/7/", "/pay/8/"] {
        let pay = request("POST", path).header("Authorization", "Bearer alice-secret").header("Idempotency-Key", "k");
        assert_eq!(node.send(&pay.body("{}")).status, 201, "{path} has keys of its own");
    }
    assert_eq!(refused(&node.send(&request("POST", "/hook/").body("{}"))).0, 400);
}

/// What would forget keys at a start is no more possible by a signal.
#[test]
fn neither_sighup_nor_a_restart_makes_other_addresses() {
    let per_route = |methods: &str| format!("[[route]]\npath = \"/payments\"\nkey_per = \"route\"\n{methods}");
    let dir = TempDir::new().unwrap();
    let store = format!("sqlite:{}", dir.path().join("hapax.db").display());
    let of_some = per_route("methods = [\"PATCH\"]\n");
    let mut node = start_with(Kept::Sqlite, |builder| builder.with_store(&store).with_config(&of_some));
    assert_eq!(node.send(&pay("k")).status, 201);
    node.hapax.write_config(&per_route(""));
    node.hapax.hup();
    assert!(node.hapax.line_with("need a restart").contains("key_per"));
    assert!(node.send(&pay("k")).is_replay());
    node.hapax.write_config("scope = \"single\"\n");
    node.hapax.hup();
    until("it is refused", AT_ONCE, || node.hapax.metric("hapax_reload_total{result=\"refused\"}") == 2.0);
    assert!(node.send(&pay("k")).is_replay());
    node.hapax.terminate();
    let (code, _, said) = builder(&node.ledger, None).with_store(&store).with_config(&per_route("")).start_refused();
    assert_eq!(code, Some(1));
    assert!(said.contains("every key would be forgotten"), "{said}");
    node.ledger.assert_once("k");
}

/// Input 93.
#[test]
fn a_port_in_use_is_named_with_the_flag_that_changes_it() {
    let ledger = Ledger::start();
    let taken = port::listener();
    let address = taken.local_addr().unwrap();
    let (code, stdout, said) = builder(&ledger, None).with_port(address.port()).start_refused();
    assert_eq!((code, stdout.as_str()), (Some(1), ""));
    assert!(said.contains(&format!("cannot listen on {address}")) && said.contains("--from"), "{said}");
    let dir = TempDir::new().unwrap();
    let mut admin = Command::new(env!("CARGO_BIN_EXE_hapax"));
    admin.args(["proxy", "--to", &ledger.url(), "--from", "127.0.0.1:0", "--admin", &address.to_string()]);
    let output = admin.env_clear().current_dir(dir.path()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(said.contains(&format!("cannot listen on {address}")) && said.contains("--admin"), "{said}");
    assert!(std::fs::read_dir(dir.path()).unwrap().next().is_none(), "nothing was begun");
}

#[test]
fn an_address_that_cannot_be_had_is_named_with_its_cause() {
    let dir = TempDir::new().unwrap();
    let refused = |from: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hapax"));
        command.args(["proxy", "--to", "http://127.0.0.1:3000", "--admin", "off", "--from", from]);
        let output = command.env_clear().current_dir(dir.path()).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    // An address of a network for documentation, which no machine has.
    let said = refused("192.0.2.1:8080");
    assert!(said.contains("this machine does not have that address; name one it has with --from"), "{said}");
    assert!(!said.contains("stop what uses it"), "{said}");
}

/// Input 94.
#[test]
fn a_wrong_password_is_refused_and_not_shown() {
    needs_postgres!();
    let server = Server::builder().with_password("the-right-one").start();
    let ledger = Ledger::start();
    let store = server.dsn("postgres", "canary-password");
    let (code, stdout, said) = builder(&ledger, None).with_store(&store).start_refused();
    assert_eq!(code, Some(1));
    assert!(said.contains("refused the user or the password"), "{said}");
    assert!(!format!("{stdout}{said}").contains("canary-password"), "{stdout}{said}");
    let store = server.dsn("postgres", "the-right-one");
    let hapax = builder(&ledger, None).with_store(&store).start();
    assert_eq!(pay("k").send(hapax.address()).status, 201);
    let all = hapax.stdout() + &hapax.stderr() + &hapax.ask_admin("/readyz?verbose").text();
    assert!(!all.contains("the-right-one"), "{all}");
}

#[test]
fn a_store_that_cannot_be_reached_at_start_is_named() {
    let ledger = Ledger::start();
    let nobody = format!("postgres://u:canary-password@{}/d", port::loopback(port::free()));
    let (code, stdout, said) = builder(&ledger, None).with_store(&nobody).start_refused();
    assert_eq!(code, Some(1));
    assert!(said.contains("cannot be reached") && said.contains("check that it runs"), "{said}");
    assert!(!format!("{stdout}{said}").contains("canary-password"), "{stdout}{said}");
    let (code, _, said) = builder(&ledger, None).with_store("sqlite:/nowhere/at/all/hapax.db").start_refused();
    assert_eq!(code, Some(2), "the configuration shows it");
    assert!(said.contains("/nowhere/at/all"), "{said}");
}

/// curl's answer to a payment over TLS: the protocol, the status, whether it was replayed, and the body.
fn curl(authority: &Path, protocol: &str, to: &str) -> (String, String, bool, String) {
    let mut command = clients::program("curl");
    command.args(["-sS", "-i", "--max-time", "30", protocol, "--cacert"]).arg(authority);
    command.args(["-H", "Authorization: Bearer alice-secret", "-H", "Idempotency-Key: k", "-d", "amount=1"]);
    let text = clients::run(command.arg(format!("{to}/payments")));
    let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
    let mut status = head.lines().next().unwrap().split(' ');
    let (version, code) = (status.next().unwrap(), status.next().unwrap());
    let replayed = head.to_ascii_lowercase().contains("idempotent-replayed: true");
    (version.to_owned(), code.to_owned(), replayed, body.to_owned())
}

#[test]
fn a_tls_listener_serves_both_protocols_and_takes_a_new_certificate() {
    needs_clients!();
    let dir = TempDir::new().unwrap();
    let (cert, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
    write_certificate(&cert, &key);
    let ledger = Ledger::start();
    // The harness asks the admin listener, which speaks plainly.
    let with_tls = builder(&ledger, None).with_flag("--tls-cert", cert.to_str().unwrap());
    let mut hapax = with_tls.with_flag("--tls-key", key.to_str().unwrap()).start();
    let to = format!("https://{}", hapax.address());
    let (version, status, replayed, first) = curl(&cert, "--http1.1", &to);
    assert_eq!((version.as_str(), status.as_str(), replayed), ("HTTP/1.1", "201", false));
    let (version, status, replayed, second) = curl(&cert, "--http2", &to);
    assert_eq!((version.as_str(), status.as_str(), replayed), ("HTTP/2", "201", true));
    assert_eq!(first, second);
    let plain = request("GET", "/").try_send(hapax.address());
    assert!(!plain.is_ok_and(|answer| answer.status < 400), "nothing is served in the clear");
    write_certificate(&cert, &key);
    hapax.hup();
    hapax.line_with("the configuration was reloaded");
    let (_, _, replayed, third) = curl(&cert, "--http2", &to);
    assert_eq!((replayed, third), (true, first), "under a new certificate, without a restart");
    std::fs::write(&cert, "no certificate").unwrap();
    hapax.hup();
    assert!(hapax.line_with("cert.pem").contains("ERROR"));
    hapax.line_with("the old one stays in force");
    ledger.assert_once("k");
    assert_eq!(hapax.terminate(), Some(0));
}

/// A new certificate for 127.0.0.1 that vouches for itself; the key is readable by its owner only.
fn write_certificate(cert: &Path, key: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    std::fs::write(cert, made.cert.pem()).unwrap();
    std::fs::write(key, made.signing_key.serialize_pem()).unwrap();
    std::fs::set_permissions(key, std::fs::Permissions::from_mode(0o600)).unwrap();
}
