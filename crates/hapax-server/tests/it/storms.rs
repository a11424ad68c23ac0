//! Many at once: a thousand copies of one request, and two hundred tenants who use the same keys.
//!
//! The storms are real: every copy has a connection of its own and has sent all but its last byte before any sends that one.
//! Judged by an upstream that keeps its own ledger, and by every byte of every answer. Disconnects and upstream faults have
//! tests of their own.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Barrier, mpsc};

use crate::node::{self, Kept, on_both_stores, pay, refused};
use hapax_testkit::hapax::Hapax;
use hapax_testkit::ledger::Ledger;
use hapax_testkit::postgres::Server;
use hapax_testkit::raw_http::{Conn, ReadError, Request, Response, request};
use hapax_testkit::{needs_postgres, whole};

/// Copies of one request, all at once.
const COPIES: usize = 1000;
/// A thread that sends one request needs little.
const STACK_BYTES: usize = 256 * 1024;

/// How often.
fn rounds() -> usize {
    whole::or_part(20, 6)
}

#[test]
fn a_thousand_copies_through_one_proxy_on_sqlite_run_once() {
    let ledger = Ledger::start();
    let nodes = [node::builder(&ledger, None).start()];
    storm(&ledger, &nodes);
}

#[test]
fn a_thousand_copies_through_three_proxies_on_one_postgres_run_once() {
    needs_postgres!();
    let ledger = Ledger::start();
    let database = Server::shared().fresh_database();
    let nodes = [(); 3].map(|()| node::builder(&ledger, Some(&database)).start());
    storm(&ledger, &nodes);
}

/// In every other round the upstream answers only when all other copies have been refused: nobody may get through while it
/// works. In the others it answers at once, so that claims, completion and replays meet.
fn storm(ledger: &Ledger, nodes: &[Hapax]) {
    let mut replayed = 0;
    for round in 0..rounds() {
        let (key, held) = (format!("round-{round}"), round % 2 == 0);
        let answers = send_copies(ledger, nodes, &key, held);
        ledger.assert_once(&key);
        let first = judge(&answers, round);
        let conflicts = answers.iter().filter(|answer| answer.status == 409).count();
        assert!(!held || conflicts == COPIES - 1, "round {round}: {conflicts} refusals while the upstream worked");
        replayed += answers.len() - 1 - conflicts;
        for node in nodes {
            let retry = pay(&key).send(node.address());
            assert_eq!((retry.is_replay(), &retry.body), (true, &first.body), "round {round}, afterwards");
        }
    }
    ledger.assert_each_once(rounds());
    assert!(replayed > 0, "no round was so that a copy came after the answer: the storm is too weak to show anything");
    let sum = |name: &str| nodes.iter().map(|node| node.metric(name)).sum::<f64>();
    assert_eq!(sum(r#"hapax_claims_total{outcome="created"}"#), rounds() as f64);
    assert_eq!(sum(r#"hapax_claims_total{outcome="unknown"}"#), 0.0);
    assert_eq!(sum("hapax_double_runs_total"), 0.0);
    assert_eq!(sum("hapax_in_flight"), 0.0);
}

/// Opens all connections, then lets all copies go at the same moment. Returns what each got.
fn send_copies(ledger: &Ledger, nodes: &[Hapax], key: &str, held: bool) -> Vec<Response> {
    if held {
        ledger.hold(key);
    }
    let (start, bytes) = (Barrier::new(COPIES), pay(key).bytes());
    let (last, before) = bytes.split_last().unwrap();
    let (tell, told) = mpsc::channel();
    std::thread::scope(|scope| {
        for copy in 0..COPIES {
            let (to, tell, start) = (nodes[copy % nodes.len()].address(), tell.clone(), &start);
            let send = move || {
                // All come to the start, whatever happens to one: otherwise the others would wait for it for ever.
                let conn = Conn::try_open(to).map(|mut conn| conn.try_write(before).map(|()| conn));
                start.wait();
                let answer = conn.and_then(|conn| {
                    let mut conn = conn.map_err(ReadError::Refused)?;
                    conn.try_write(&[*last]).map_err(ReadError::Refused)?;
                    conn.read_response()
                });
                tell.send(answer).unwrap();
            };
            std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, send).unwrap();
        }
        let mut answers: Vec<Response> = told.iter().take(COPIES - 1).map(Result::unwrap).collect();
        ledger.release(key);
        answers.push(told.recv().unwrap().unwrap());
        answers
    })
}

/// One copy got the answer first; every other one the same answer, or 409. Returns the first.
fn judge(answers: &[Response], round: usize) -> &Response {
    let (refusals, given): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.status == 409);
    for refusal in refusals {
        assert_eq!(refused(refusal), (409, "in-progress".to_owned()), "round {round}");
    }
    let firsts: Vec<_> = given.iter().filter(|answer| !answer.is_replay()).collect();
    assert_eq!(firsts.len(), 1, "round {round}: {:?}", firsts.iter().map(|first| first.text()).collect::<Vec<_>>());
    for answer in &given {
        let (said, wanted) = (said(answer), said(firsts[0]));
        assert_eq!(said, wanted, "round {round}");
        assert_eq!(answer.status, 201);
    }
    firsts[0]
}

/// What the upstream said, without what hapax adds to a replay.
fn said(answer: &Response) -> (u16, Option<&str>, &[u8]) {
    (answer.status, answer.header("x-execution"), &answer.body)
}

/// Tenants, all of whom use the same keys.
const TENANTS: usize = 200;
/// Connections, each of which carries the requests of many tenants, as one from a gateway does.
const CONNECTIONS: usize = 40;
/// How every tenant's marker begins.
const MARKER: &str = "marker-of-";

/// Keys of each.
fn keys() -> usize {
    whole::or_part(100, 20)
}

on_both_stores! {
    no_byte_of_one_tenant_reaches_another
}

fn no_byte_of_one_tenant_reaches_another(kept: Kept) {
    let node = node::start(kept);
    let first = send_all(node.hapax.address(), 0);
    let again = send_all(node.hapax.address(), 1);
    assert_eq!((first.len(), again.len()), (TENANTS * keys(), TENANTS * keys()));
    for (whose, answer) in &first {
        assert_eq!((answer.status, answer.is_replay()), (201, false), "{whose:?}");
        assert_own(*whose, answer);
        let replay = &again[whose];
        assert_eq!((replay.is_replay(), said(replay)), (true, said(answer)), "{whose:?}");
        assert_own(*whose, replay);
    }
    node.ledger.assert_each_once(TENANTS * keys());
}

/// Tenant and key.
type Whose = (usize, usize);

/// Sends every tenant's request with every key. All tenants use a key at about the same time, and those of one connection are
/// sent one behind the other without waiting: the harshest mixture that a gateway may make. `turn` gives them other
/// connections.
fn send_all(to: SocketAddr, turn: usize) -> BTreeMap<Whose, Response> {
    let sender = |connection: usize| {
        move || {
            let tenants = (0..TENANTS).filter(|tenant| (tenant / (turn + 1)) % CONNECTIONS == connection);
            let tenants: Vec<usize> = tenants.collect();
            let mut conn = Conn::open(to);
            let mut answers = Vec::new();
            for key in 0..keys() {
                let requests: Vec<u8> = tenants.iter().flat_map(|tenant| marked((*tenant, key)).bytes()).collect();
                conn.write(&requests);
                answers.extend(tenants.iter().map(|tenant| ((*tenant, key), conn.read_response().unwrap())));
            }
            answers
        }
    };
    std::thread::scope(|scope| {
        let senders: Vec<_> = (0..CONNECTIONS).map(|connection| scope.spawn(sender(connection))).collect();
        senders.into_iter().flat_map(|sender| sender.join().unwrap()).collect()
    })
}

/// The marker stands in the credential, in the body, and so in the upstream's answer.
fn marked((tenant, key): Whose) -> Request {
    request("POST", "/payments")
        .header("Authorization", &format!("Bearer {MARKER}{tenant:03}."))
        .header("Content-Type", "application/json")
        .header("Idempotency-Key", &format!("key-{key}"))
        .body(format!(r#"{{"note":"{MARKER}{tenant:03}."}}"#))
}

/// Own marker and own key, and nobody else's marker in any field or byte.
fn assert_own((tenant, key): Whose, answer: &Response) {
    let own = format!("{tenant:03}.");
    let body = answer.json();
    assert_eq!(body["key"], format!("key-{key}"));
    assert_eq!(body["tenant"], format!("Bearer {MARKER}{own}"));
    assert_eq!(body["body"], format!(r#"{{"note":"{MARKER}{own}"}}"#));
    let all = format!("{:?} {}", answer.headers, answer.text());
    let markers: Vec<&str> = all.match_indices(MARKER).map(|(at, _)| &all[at + MARKER.len()..][..own.len()]).collect();
    assert_eq!(markers, vec![own.as_str(); 2], "tenant {tenant}, key {key}: {all}");
}
