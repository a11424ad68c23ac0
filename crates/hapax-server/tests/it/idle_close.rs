//! Node's default HTTP server behind hapax: it closes a connection that has been idle for 5 s, without a word, and a
//! request that is on its way then is lost, nobody knows where.
//!
//! hapax keeps an idle connection for 2 s only and looks at it before it uses it, so this costs nobody anything: a hundred
//! thousand payments, in bursts with pauses of about 5 s between them, and no outcome is unknown. The race is real all the same:
//! where hapax is told to keep connections for about as long as Node does, requests fall into it. Then the outcome is unknown,
//! as it must be, and nothing runs twice. An upstream that closes early on purpose is tested with the other upstream faults.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Barrier;
use std::time::Duration;

use hapax_testkit::hapax::Hapax;
use hapax_testkit::process::Process;
use hapax_testkit::raw_http::{Conn, Request, Response, request};
use hapax_testkit::{clients, needs_clients, port, whole};
use serde_json::Value;

/// Node is up within this, on a busy machine.
const START_TIME_MAX: Duration = Duration::from_secs(20);
/// Clients, each with a connection that it keeps.
const CLIENTS: usize = 100;

/// The payment with that key.
fn pay(key: &str) -> Request {
    request("POST", "/payments")
        .header("Authorization", "Bearer alice-secret")
        .header("Content-Type", "application/json")
        .header("Idempotency-Key", key)
        .body(r#"{"amount":1200}"#)
}

/// Node's server and hapax in front of it.
struct Setup {
    upstream: SocketAddr,
    node: Process,
    hapax: Hapax,
}

/// Starts both. `idle_timeout` is how long hapax keeps a connection, if not as by default.
fn start(idle_timeout: Option<&str>) -> Setup {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/idle_close/server.js");
    let node = Process::spawn(clients::program("node").arg(script));
    let line = node.line_with("listening on", START_TIME_MAX);
    let upstream = port::loopback(line.rsplit(' ').next().unwrap().trim().parse().unwrap());
    let builder = Hapax::builder(env!("CARGO_BIN_EXE_hapax")).with_upstream(&format!("http://{upstream}"));
    let hapax = match idle_timeout {
        Some(limit) => builder.with_config(&format!("[upstream]\nidle_timeout = \"{limit}\"\n")).start(),
        None => builder.start(),
    };
    Setup { upstream, node, hapax }
}

impl Setup {
    /// What Node has counted.
    fn count(&self, what: &str) -> usize {
        let counts: Value = request("GET", "/count").send(self.upstream).json();
        usize::try_from(counts[what].as_u64().unwrap()).unwrap()
    }

    /// How many claims hapax says ended so.
    fn claims(&self, outcome: &str) -> usize {
        self.hapax.metric(&format!("hapax_claims_total{{outcome=\"{outcome}\"}}")) as usize
    }
}

#[expect(clippy::disallowed_methods, reason = "the pause is what is tested")]
fn pause(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

/// Every client pays `each` times, all pause together, and again, one burst more than there are pauses. Counts the
/// answers by status.
fn bursts(to: SocketAddr, each: usize, pauses_ms: &[u64]) -> BTreeMap<u16, usize> {
    let together = Barrier::new(CLIENTS);
    let client = |client: usize| {
        let together = &together;
        move || {
            let mut statuses = Vec::new();
            let mut conn = Conn::open(to);
            for burst in 0..=pauses_ms.len() {
                for payment in 0..each {
                    // A failure must not leave the others waiting; its place in the count stays empty.
                    let answer = conn.try_send(&pay(&format!("{client}-{burst}-{payment}")));
                    statuses.push(answer.map_or(0, |answer| answer.status));
                }
                together.wait();
                pauses_ms.get(burst).copied().into_iter().for_each(pause);
            }
            statuses
        }
    };
    let mut counts = BTreeMap::new();
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|at| scope.spawn(client(at))).collect();
        for status in clients.into_iter().flat_map(|client| client.join().unwrap()) {
            *counts.entry(status).or_default() += 1;
        }
    });
    counts
}

#[test]
fn payments_with_pauses_have_no_unknown_outcome() {
    needs_clients!();
    let payments = whole::or_part(100_000, 15_000);
    let setup = start(None);
    // Around hapax's own limit, and around Node's.
    let pauses_ms = [1990, 4900, 5000, 5100];
    let statuses = bursts(setup.hapax.address(), payments / CLIENTS / (pauses_ms.len() + 1), &pauses_ms);
    assert_eq!(statuses, BTreeMap::from([(201, payments)]));
    assert_eq!((setup.count("executed"), setup.count("keys")), (payments, payments));
    assert_eq!((setup.claims("created"), setup.claims("unknown"), setup.claims("retried")), (payments, 0, 0));
}

/// Where hapax keeps connections for about as long as Node does, requests may fall into the race. How many do is chance (on
/// a quiet machine, none: Node 20 reads what has come before it closes what is idle); that each of them is told so, and that
/// none runs twice, is not.
fn racing(idle_timeout: &str, pauses_ms: &[u64]) {
    let setup = start(Some(idle_timeout));
    let statuses = bursts(setup.hapax.address(), 20, pauses_ms);
    let (paid, unknown) = (statuses[&201], statuses.get(&504).copied().unwrap_or_default());
    println!("kept for {idle_timeout}: {paid} paid, {unknown} unknown");
    assert_eq!(paid + unknown, CLIENTS * 20 * (pauses_ms.len() + 1), "{statuses:?}");
    assert_eq!((setup.claims("created"), setup.count("twice")), (paid + unknown, 0));
    assert!((paid..=paid + unknown).contains(&setup.count("executed")));
}

#[test]
fn connections_kept_a_little_shorter_than_node_keeps_them_run_nothing_twice() {
    needs_clients!();
    racing("4950ms", &[4900, 4930, 4950, 4990]);
}

#[test]
fn connections_kept_longer_than_node_keeps_them_run_nothing_twice() {
    needs_clients!();
    racing("8s", &[4970, 4990, 5000, 5010]);
}

/// The race itself, made certain: a connection has been idle for 3.5 s when Node begins to compute for 3 s. Whoever sends a
/// request on it then finds it open and silent; and Node, when it looks up, first closes what has been idle for 5 s. Returns the
/// answer to such a request.
fn pay_into_the_race(idle_timeout: Option<&str>) -> (Setup, Response) {
    let setup = start(idle_timeout);
    let to = setup.hapax.address();
    assert_eq!(pay("before").send(to).status, 201);
    pause(3500);
    let mut other = Conn::open(setup.upstream);
    other.write(&request("POST", "/stall?ms=3000").header("Idempotency-Key", "stall").body("").bytes());
    setup.node.line_with("stalling", START_TIME_MAX);
    let answer = pay("k").send(to);
    (setup, answer)
}

#[test]
fn by_default_a_request_does_not_fall_into_the_race() {
    needs_clients!();
    let (setup, answer) = pay_into_the_race(None);
    assert_eq!(answer.status, 201);
    assert_eq!((setup.count("executed"), setup.claims("unknown")), (3, 0));
}

/// A margin that is shorter than the upstream's worst pause is none.
#[test]
fn a_request_that_falls_into_the_race_is_unknown_and_never_sent_again() {
    needs_clients!();
    for idle_timeout in ["4950ms", "8s"] {
        let (setup, answer) = pay_into_the_race(Some(idle_timeout));
        assert_eq!((answer.status, answer.problem().as_deref()), (504, Some("outcome-unknown")), "{idle_timeout}");
        for _ in 0..3 {
            let retry = pay("k").send(setup.hapax.address());
            assert_eq!((retry.status, retry.problem().as_deref()), (409, Some("outcome-unknown")), "{idle_timeout}");
        }
        assert_eq!(setup.count("executed"), 2, "{idle_timeout}: Node never saw it, but nobody can know that");
    }
}
