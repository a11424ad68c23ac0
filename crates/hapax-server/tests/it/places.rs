//! Places: nobody holds all of them with a few bytes, whatever it is that he sends slowly or not at all.
//!
//! The node has 50 places for connections, and an attacker takes as many as he gets. Another client must be answered
//! meanwhile. Attempts that go on without their client have places, too, and descriptors are places of the process.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

mod attack;

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use crate::node::{Kept, Node, pay, refused, start_with};
use attack::{
    HONEST, OTHER, PING, PREFACE, STRANGER, UPGRADE, connect, crowd, drip, frame, get, get_by_http2, head, payment,
};
use hapax_testkit::hapax::Hapax;
use hapax_testkit::ledger::{Behaviour, Ledger};
use hapax_testkit::raw_http::request;
use hapax_testkit::wait::until;

/// All places.
const PLACES: usize = 50;
/// How many of 20 attempts at a time one client may have: three quarters.
const OF_ONE_CLIENT: f64 = 15.0;
/// At once, on a busy machine.
const AT_ONCE: Duration = Duration::from_secs(2);
/// More than anything here takes.
const A_WHILE: Duration = Duration::from_secs(15);

fn node(server: &str) -> Node {
    start_with(Kept::Sqlite, |builder| builder.with_config(&format!("[server]\nconnections_max = {PLACES}\n{server}")))
}

/// All places are taken by connections that have sent this much; the next client gets in, from the same address as well.
fn gives_way(bytes: &[u8]) {
    let node = node("");
    let to = node.hapax.address();
    let crowd = crowd(STRANGER, to, PLACES, bytes);
    assert_eq!(get(HONEST, to, AT_ONCE), Some(200), "from another address");
    gets_in_from_the_same_address(to);
    drop(crowd);
}

/// Beside an attack from the same address a connection may be refused, but not for long.
fn gets_in_from_the_same_address(to: SocketAddr) {
    until("it gets in from the same address", Duration::from_secs(5), || get(STRANGER, to, AT_ONCE) == Some(200));
}

#[test]
fn silent_connections_give_way() {
    gives_way(b"");
}

#[test]
fn half_sent_heads_give_way() {
    gives_way(b"POST /payments HTTP/1.1\r\nHost: a\r\nX-A: ");
}

#[test]
fn half_sent_prefaces_of_http2_give_way() {
    gives_way(b"PRI * HTTP/2");
}

#[test]
fn http2_connections_without_a_stream_give_way() {
    gives_way(PREFACE);
}

#[test]
fn http2_connections_that_only_ping_give_way() {
    gives_way(&[PREFACE, PING, PING].concat());
}

#[test]
fn http2_heads_that_do_not_end_give_way() {
    // HEADERS without END_HEADERS.
    let mut open = head(1, "k");
    open[4] = 0;
    gives_way(&[PREFACE, &open].concat());
}

#[test]
fn connections_between_two_requests_give_way_the_longest_idle_first() {
    let node = node("");
    let to = node.hapax.address();
    let mut idle = Vec::new();
    for _ in 0..PLACES / 2 {
        let mut stream = connect(STRANGER, to);
        stream.write_all(b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        assert_eq!(attack::status(&mut stream, A_WHILE), Some(200));
        idle.push(stream);
    }
    let mut other = crowd(HONEST, to, PLACES / 2, b"");
    let mut last = connect(HONEST, to);
    last.write_all(b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    assert_eq!(attack::status(&mut last, AT_ONCE), Some(200));
    until("a connection gives way", A_WHILE, || idle.iter_mut().chain(&mut other).any(attack::is_closed));
    assert!(!attack::is_closed(&mut idle[PLACES / 2 - 1]), "the last one that was used is not the first that goes");
}

/// One that waits for its answer is nobody's to close.
#[test]
fn a_request_under_way_keeps_its_place() {
    let node = node("");
    let to = node.hapax.address();
    node.ledger.hold("/payments");
    let mut running = connect(HONEST, to);
    running.write_all(&payment("running", 2, "ok")).unwrap();
    node.ledger.wait_until_received("/payments");
    let _crowds = [crowd(STRANGER, to, 2 * PLACES, b""), crowd(HONEST, to, PLACES, b"GET ")];
    assert_eq!(get(OTHER, to, AT_ONCE), Some(200));
    gets_in_from_the_same_address(to);
    node.ledger.release("/payments");
    assert_eq!(attack::status(&mut running, A_WHILE), Some(201));
    node.ledger.assert_once("running");
}

#[test]
fn slow_bodies_do_not_hold_their_places_and_leave_some_to_others() {
    let node = node("body_timeout = \"3s\"");
    let to = node.hapax.address();
    let mut crowd = crowd(STRANGER, to, PLACES, &payment("slow", 1000, ""));
    assert_eq!(get(HONEST, to, AT_ONCE), Some(200));
    node.hapax.line_with("add it to server.trusted_peers");
    let held = drip(&mut crowd, b"x", Duration::from_millis(300), A_WHILE);
    assert!(held.is_some_and(|held| held < Duration::from_secs(8)), "held for {held:?}");
    node.ledger.assert_never("slow");
    gets_in_from_the_same_address(to);
}

/// Long before the time for a body is over, and from the same address: whoever is far behind its rate gives way.
#[test]
fn slow_bodies_give_way() {
    let node = node("");
    let to = node.hapax.address();
    let streams = |key: &str| -> Vec<u8> {
        let open = (0..5).flat_map(|at| head(2 * at + 1, &format!("{key}-{at}")));
        PREFACE.iter().copied().chain(open).collect()
    };
    for begun in [payment("slow", 1000, "x"), streams("slow")] {
        let crowd = crowd(STRANGER, to, PLACES, &begun);
        assert_eq!(get(HONEST, to, AT_ONCE), Some(200));
        gets_in_from_the_same_address(to);
        drop(crowd);
    }
    let is_slow = |key: &String| key.starts_with("slow");
    assert_eq!(node.ledger.all().iter().filter(|entry| entry.key.as_ref().is_some_and(is_slow)).count(), 0);
}

/// What is not told by a length: extensions of chunks, trailers, a body that was asked for and never comes; and by HTTP/2.
#[test]
fn slow_bodies_of_every_kind_end() {
    let node = node("body_timeout = \"1s\"");
    let to = node.hapax.address();
    let head = |key: &str, more: &str| {
        format!("POST /payments HTTP/1.1\r\nHost: a\r\nAuthorization: b\r\nIdempotency-Key: {key}\r\n{more}\r\n")
    };
    let chunked = "Transfer-Encoding: chunked\r\n";
    let kinds: [(&str, Vec<u8>, Vec<u8>); 7] = [
        ("chunks", head("chunks", chunked).into_bytes(), b"1\r\nx\r\n".to_vec()),
        ("extension", (head("extension", chunked) + "5;a=").into_bytes(), b"b".to_vec()),
        ("trailers", (head("trailers", chunked) + "1\r\nx\r\n0\r\n").into_bytes(), b"a: b\r\n".to_vec()),
        ("expect", head("expect", "Expect: 100-continue\r\nContent-Length: 9\r\n").into_bytes(), Vec::new()),
        ("passed", b"PUT /a HTTP/1.1\r\nHost: a\r\nContent-Length: 900\r\n\r\n".to_vec(), b"x".to_vec()),
        ("http2", [PREFACE, &attack::head(1, "http2")].concat(), frame(0, 0, 1, b"x")),
        ("http2-empty", [PREFACE, &attack::head(1, "http2-empty")].concat(), frame(0, 0, 1, b"")),
    ];
    std::thread::scope(|scope| {
        for (name, begun, more) in &kinds {
            scope.spawn(move || assert!(ends_with_408(connect(STRANGER, to), begun, more), "{name} was held"));
        }
    });
    for (name, ..) in &kinds {
        node.ledger.assert_never(name);
    }
}

/// Drips until something other than a provisional answer or a frame of the connection's own has come.
fn ends_with_408(mut stream: TcpStream, begun: &[u8], more: &[u8]) -> bool {
    stream.write_all(begun).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let (since, mut got) = (attack::now(), Vec::new());
    while since.elapsed() < Duration::from_secs(8) {
        let mut bytes = [0; 4096];
        match stream.read(&mut bytes) {
            Ok(0) => break,
            Ok(count) => got.extend_from_slice(&bytes[..count]),
            Err(_) => {}
        }
        // By HTTP/2, the head of an answer is a frame of type 1 on stream 1; the problem is told in the clear.
        if String::from_utf8_lossy(&got).contains("urn:hapax:problem:") {
            return true;
        }
        if stream.write_all(more).is_err() {
            return false;
        }
    }
    false
}

#[test]
fn an_honest_slow_upload_passes() {
    let node = node("body_timeout = \"1s\"");
    let mut stream = connect(HONEST, node.hapax.address());
    stream.write_all(&payment("upload", 4000, "")).unwrap();
    for _ in 0..20 {
        stream.write_all(&[b'x'; 200]).unwrap();
        hapax_testkit::wait::pass(Duration::from_millis(150));
    }
    assert_eq!(attack::status(&mut stream, A_WHILE), Some(201));
    node.ledger.assert_once("upload");
}

#[test]
fn silent_tunnels_leave_places_to_others_and_give_way() {
    let upstream = attack::websockets();
    let hapax = Hapax::builder(env!("CARGO_BIN_EXE_hapax"))
        .with_upstream(&format!("http://{upstream}"))
        .with_config(&format!("[server]\nconnections_max = {PLACES}\n"))
        .start();
    let to = hapax.address();
    let mut tunnels = crowd(STRANGER, to, PLACES, UPGRADE);
    assert_eq!(attack::status(&mut tunnels[0], A_WHILE), Some(101));
    assert_eq!(get(HONEST, to, AT_ONCE), Some(200), "from another address");
    until("from the same address", A_WHILE, || get(STRANGER, to, AT_ONCE) == Some(200));
}

/// Sends a payment and hangs up.
fn hang_up(node: &Node, key: &str) {
    let mut stream = connect(STRANGER, node.hapax.address());
    stream.write_all(&payment(key, 2, "ok")).unwrap();
    drop(stream);
}

#[test]
fn hung_up_attempts_are_limited_and_nothing_beyond_is_claimed() {
    let config = "[server]\nconnections_max = 20\nconnections_per_client_max = 20\n";
    let node = start_with(Kept::Sqlite, |builder| builder.with_config(config));
    assert_eq!(node.send(&pay("known")).status, 201);
    node.ledger.on("/payments", Behaviour::Hang);
    for at in 0..60 {
        hang_up(&node, &format!("hung-{at}"));
    }
    until("the limit is reached", A_WHILE, || node.hapax.metric("hapax_in_flight") >= OF_ONE_CLIENT);
    let answer = node.send(&pay("probe"));
    assert_eq!(refused(&answer), (503, "too-many-in-flight".into()));
    assert_eq!(answer.header("retry-after"), Some("1"));
    assert_eq!(node.hapax.metric("hapax_in_flight"), OF_ONE_CLIENT);
    assert!(node.send(&pay("known")).is_replay(), "known keys are answered");
    node.ledger.forget_rules();
    let other = attack::ask(HONEST, node.hapax.address(), &payment("other", 2, "ok"), AT_ONCE);
    assert_eq!(other, Some(201), "another client has places of its own");
    node.ledger.assert_never("probe");
    node.ledger.cut_connections();
    until("the place is free again", A_WHILE, || node.send(&pay("probe")).status == 201);
}

#[test]
fn streams_that_are_reset_are_limited() {
    let node = start_with(Kept::Sqlite, |builder| builder.with_config("[server]\nconnections_max = 20\n"));
    node.ledger.on("/payments", Behaviour::Hang);
    let mut stream = connect(STRANGER, node.hapax.address());
    stream.write_all(PREFACE).unwrap();
    for at in 0..150_u32 {
        let number = 2 * at + 1;
        let mut bytes = head(number, &format!("reset-{at}"));
        bytes.extend(frame(0, 1, number, b"ok"));
        stream.write_all(&bytes).unwrap();
        // Later, so that it is not taken for one that nobody has looked at.
        if at >= 40 {
            hapax_testkit::wait::pass(Duration::from_millis(2));
            let _ = stream.write_all(&frame(3, 0, number - 80, &8_u32.to_be_bytes()));
        }
    }
    until("the limit is reached", A_WHILE, || node.hapax.metric("hapax_in_flight") >= OF_ONE_CLIENT);
    assert_eq!(refused(&node.send(&pay("probe"))), (503, "too-many-in-flight".into()));
    assert_eq!(node.hapax.metric("hapax_in_flight"), OF_ONE_CLIENT);
    assert!(node.ledger.all().len() <= 15, "{}", node.ledger.all().len());
}

/// Streams by HTTP/2, so many on each of some connections from that address.
fn streams(
    from: IpAddr,
    to: SocketAddr,
    connections: usize,
    each: u32,
    head: impl Fn(u32) -> Vec<u8>,
) -> Vec<TcpStream> {
    let bytes: Vec<u8> = PREFACE.iter().copied().chain((0..each).flat_map(|at| head(2 * at + 1))).collect();
    crowd(from, to, connections, &bytes)
}

/// Addresses enough for all of 20 requests at a time, those included that are left to clients with few.
const STRANGERS: [IpAddr; 4] = [STRANGER, OTHER, attack::loopback(4), attack::loopback(5)];

/// All room is taken by streams of strangers, 15 from each address; somebody else gets in all the same.
fn streams_give_way(head: impl Fn(u32) -> Vec<u8>) {
    let node = start_with(Kept::Sqlite, |builder| builder.with_config("[server]\nconnections_max = 20\n"));
    let to = node.hapax.address();
    let attackers = STRANGERS.map(|from| streams(from, to, 1, 15, &head));
    let refusals = "hapax_refused_total{reason=\"too-many-in-flight\"}";
    until("all room is taken", A_WHILE, || node.hapax.metric(refusals) >= 40.0);
    until("they give way", Duration::from_secs(8), || get(HONEST, to, AT_ONCE) == Some(200));
    drop(attackers);
}

#[test]
fn streams_that_are_passed_through_are_limited() {
    let node = start_with(Kept::Sqlite, |builder| builder.with_config("[server]\nconnections_max = 20\n"));
    let to = node.hapax.address();
    node.ledger.on("/slow", Behaviour::Hang);
    let attackers = streams(STRANGER, to, 3, 60, |number| get_by_http2(number, "/slow"));
    let refusals = "hapax_refused_total{reason=\"too-many-in-flight\"}";
    until("the rest is refused", A_WHILE, || node.hapax.metric(refusals) >= 3.0 * 60.0 - OF_ONE_CLIENT);
    node.ledger.wait_for_executions("/slow", 15);
    let answer = node.send(&request("GET", "/a"));
    assert_eq!((refused(&answer), answer.header("retry-after")), ((503, "too-many-in-flight".into()), Some("1")));
    assert_eq!(get(HONEST, to, AT_ONCE), Some(200), "another client has room of its own");
    assert_eq!(node.ledger.all().iter().filter(|entry| entry.path == "/slow").count(), 15);
    drop(attackers);
    until("there is room again", A_WHILE, || get(STRANGER, to, AT_ONCE) == Some(200));
}

/// Whoever is behind a trusted peer is counted by the address that it names.
#[test]
fn requests_behind_a_trusted_peer_are_limited_for_each_client() {
    let node = node("connections_per_client_max = 10\ntrusted_peers = [\"127.0.0.1\"]");
    let to = node.hapax.address();
    node.ledger.on("/slow", Behaviour::Hang);
    let of = |client: &str, path: &str| {
        format!("GET {path} HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: {client}\r\nConnection: close\r\n\r\n").into_bytes()
    };
    let held = crowd(STRANGER, to, 10, &of("203.0.113.7", "/slow"));
    node.ledger.wait_for_executions("/slow", 10);
    assert_eq!(attack::ask(STRANGER, to, &of("203.0.113.7", "/a"), AT_ONCE), Some(503));
    assert_eq!(attack::ask(STRANGER, to, &of("203.0.113.8", "/a"), AT_ONCE), Some(200));
    drop(held);
}

#[test]
fn streams_whose_bodies_never_come_give_way_to_requests() {
    streams_give_way(|number| head(number, &format!("never-{number}")));
}

#[test]
fn streams_whose_answers_are_not_taken_give_way_to_requests() {
    // Not a byte of any answer may be sent.
    let no_window = frame(4, 0, 0, &[0, 4, 0, 0, 0, 0]);
    let head = |number: u32| [if number == 1 { &no_window[..] } else { &[] }, &get_by_http2(number, "/a")].concat();
    streams_give_way(head);
}

/// Two clients that have many leave some room to others, whatever it is that they wait for.
#[test]
fn the_last_room_is_for_clients_that_have_few() {
    let node = start_with(Kept::Sqlite, |builder| builder.with_config("[server]\nconnections_max = 20\n"));
    let to = node.hapax.address();
    node.ledger.on("/slow", Behaviour::Hang);
    let attackers = [STRANGER, OTHER].map(|from| streams(from, to, 1, 15, |number| get_by_http2(number, "/slow")));
    node.ledger.wait_for_executions("/slow", 18);
    assert_eq!(get(HONEST, to, AT_ONCE), Some(200));
    drop(attackers);
}

/// A load balancer whose clients are named, or that names nobody: the share of one client is not its.
#[test]
fn a_trusted_peer_may_have_all_places() {
    let node = node("trusted_peers = [\"127.0.0.1\"]");
    let to = node.hapax.address();
    node.ledger.on("/held", Behaviour::Hang);
    let clients = crowd(STRANGER, to, PLACES - 1, b"GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
    node.ledger.wait_for_executions("/held", clients.len());
    assert_eq!(get(STRANGER, to, AT_ONCE), Some(200));
}

/// What is not recorded has nobody to go on for.
#[test]
fn a_request_that_is_passed_through_ends_with_its_client() {
    let node = node("");
    node.ledger.on("/slow", Behaviour::Hang);
    let clients = crowd(STRANGER, node.hapax.address(), 10, b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
    node.ledger.wait_for_executions("/slow", clients.len());
    drop(clients);
    let open = || established(node.ledger.address());
    until("no connection to the upstream is left", A_WHILE, || open() == 0);
}

/// How many connections to that address are open.
fn established(to: SocketAddr) -> usize {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let port = format!(":{:04X}", to.port());
    let is_open = |line: &&str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words[2].ends_with(&port) && words[3] == "01"
    };
    table.lines().skip(1).filter(is_open).count()
}

#[test]
fn the_admin_listener_answers_whatever_silent_connections_do() {
    let node = node("");
    let to = node.hapax.admin();
    let livez = b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let kinds: [&[u8]; 3] = [
        b"",
        b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX-A: ",
        b"POST /v1/keys HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 900\r\n\r\n{",
    ];
    for bytes in kinds {
        let crowd = crowd(STRANGER, to, 64, bytes);
        assert_eq!(attack::ask(STRANGER, to, livez, AT_ONCE), Some(200), "{:?}", String::from_utf8_lossy(bytes));
        drop(crowd);
    }
}

mod descriptors {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    use rustix::process::{Pid, Resource, Rlimit, prlimit};

    /// The binary behind a shell that sets its limits first.
    fn limited(ledger: &Ledger, ulimit: &str, config: &str) -> Hapax {
        let dir = tempfile::tempdir().unwrap().keep();
        let file = dir.join("hapax");
        let script = format!("#!/bin/sh\n{ulimit}\nexec {} \"$@\"\n", env!("CARGO_BIN_EXE_hapax"));
        std::fs::write(&file, script).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        let hapax = Hapax::builder(&file).with_upstream(&ledger.url()).with_config(config).start();
        std::fs::remove_dir_all(dir).unwrap();
        hapax
    }

    fn limit_of(hapax: &Hapax) -> (u64, u64) {
        let text = std::fs::read_to_string(format!("/proc/{}/limits", hapax.id())).unwrap();
        let line = text.lines().find(|line| line.starts_with("Max open files")).unwrap();
        let mut numbers = line.split_whitespace().filter_map(|word| word.parse().ok());
        (numbers.next().unwrap(), numbers.next().unwrap())
    }

    #[test]
    fn the_soft_limit_is_raised_to_the_hard_one() {
        let hapax = limited(&Ledger::start(), "ulimit -Sn 256", "");
        let (soft, hard) = limit_of(&hapax);
        assert_eq!(soft, hard);
    }

    #[test]
    fn where_descriptors_are_few_there_are_fewer_places_and_no_accepted_request_starves() {
        let ledger = Ledger::start();
        let hapax = limited(&ledger, "ulimit -n 200", "[server]\nconnections_max = 1000\n");
        let said = hapax.line_with("file descriptors");
        assert!(said.contains("LimitNOFILE") && said.contains("200"), "{said}");
        ledger.on("/payments", Behaviour::Delay(Duration::from_millis(300)));
        let to = hapax.address();
        let statuses: Vec<Option<u16>> = std::thread::scope(|scope| {
            let pay = |at: usize| move || attack::ask(STRANGER, to, &payment(&format!("k-{at}"), 2, "ok"), A_WHILE);
            let running: Vec<_> = (0..300).map(|at| scope.spawn(pay(at))).collect();
            assert_eq!(hapax.ask_admin("/readyz").status, 200);
            running.into_iter().map(|run| run.join().unwrap()).collect()
        });
        let failed = statuses.iter().filter(|status| !matches!(status, Some(201 | 503) | None)).count();
        assert_eq!(failed, 0, "{statuses:?}");
        assert!(statuses.contains(&Some(201)));
        assert_eq!(hapax.ask_admin("/readyz").status, 200);
    }

    #[test]
    fn not_ready_while_there_are_no_descriptors_and_ready_again_afterwards() {
        let ledger = Ledger::start();
        let hapax = limited(&ledger, "", "");
        let pid = Pid::from_raw(i32::try_from(hapax.id()).unwrap());
        let (soft, hard) = limit_of(&hapax);
        let used = std::fs::read_dir(format!("/proc/{}/fd", hapax.id())).unwrap().count() as u64;
        let limit = |soft| Rlimit { current: Some(soft), maximum: Some(hard) };
        let admin = connect(STRANGER, hapax.admin());
        prlimit(pid, Resource::Nofile, limit(used)).unwrap();
        let mut waiting = crowd(STRANGER, hapax.address(), 5, b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
        hapax.line_with("could not be accepted");
        // One more for the prober.
        prlimit(pid, Resource::Nofile, limit(used + 4)).unwrap();
        drop(admin);
        let answer = hapax.ask_admin("/readyz");
        assert_eq!(answer.status, 503);
        assert!(answer.text().contains("descriptors"), "{}", answer.text());
        prlimit(pid, Resource::Nofile, limit(soft)).unwrap();
        // Those that were accepted for want of nothing but a way to the upstream may have been told that nothing was sent.
        let told = attack::status(&mut waiting[4], A_WHILE);
        assert!(matches!(told, Some(200 | 502)), "{told:?}");
        assert_eq!(get(HONEST, hapax.address(), A_WHILE), Some(200));
        until("it is ready again", A_WHILE, || hapax.ask_admin("/readyz").status == 200);
    }
}
