//! One run: start, reach the point, kill, start again, ask until answered, judge.

use std::fmt;
use std::path::Path;
use std::thread::{JoinHandle, ScopedJoinHandle};
use std::time::Duration;

use tokio::time::Instant;

use super::client::Client;
use super::point::{Point, Way};
use super::timing::Timing;
use super::verdict::{Back, Verdict};
use super::{LATE, LEASE, PROBE_AGAIN, PROBE_TIMEOUT, SETTLE_AFTER, SLACK, SWEEP};
use crate::hapax::{Builder, Hapax};
use crate::ledger::{Behaviour, Ledger};
use crate::postgres::Database;
use crate::{tokens, wait};

/// Where payments are made, and where answers expire soon.
const PAYMENTS: &str = "/payments";
const SHORT_LIVED: &str = "/short-lived";
/// Where the probe asks.
const LOOK_UP: &str = "/look-up";

/// Bytes of an answer: more than one read of the proxy takes, so that it comes in pieces.
const ANSWER_BYTES: usize = 256 * 1024;

/// An answer lives at least as long as a request may take.
const SHORT_LIFE: Duration = SETTLE_AFTER;

/// How many there are at least: every one of them can be the one that is interrupted.
const MIGRATIONS: u64 = 2;

/// Where records are kept.
#[derive(Debug, Clone)]
pub enum Store {
    /// In a file of the case's own.
    Sqlite,
    /// In a schema of the case's own in this database.
    Postgres(Database),
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Store::Sqlite => "sqlite",
            Store::Postgres(_) => "postgres",
        })
    }
}

/// What is run.
#[derive(Debug, Clone)]
pub struct Case {
    /// Where it is killed.
    pub point: &'static Point,
    /// On which store.
    pub store: Store,
    /// With which timing.
    pub timing: Timing,
    /// The upstream's answer timeout, and for how long a probe's "it did not happen" is not believed.
    pub settle_after: Duration,
    /// Further lines for the route of the payments.
    pub policy: &'static str,
}

impl Case {
    /// With an upstream that keeps to its time, and the usual policy.
    pub fn new(point: &'static Point, store: &Store, timing: Timing) -> Case {
        Case { point, store: store.clone(), timing, settle_after: SETTLE_AFTER, policy: "" }
    }

    /// Runs it. The program is a `hapax` with failpoints.
    ///
    /// # Panics
    ///
    /// When a process does not start.
    pub fn run(&self, program: &Path) -> Verdict {
        let mut run = Run::new(self, program);
        let mut clients = run.clients();
        let reached = match self.point.way {
            Way::Request => {
                run.start(self.point.name, self.timing.hit);
                run.until_killed(&mut clients)
            }
            Way::Write | Way::Expiry => {
                run.start(self.point.name, 1);
                run.until_killed(&mut clients)
            }
            Way::AfterCrash => {
                run.start(self.timing.before, self.timing.hit);
                let reached = run.until_killed(&mut clients);
                run.start(self.point.name, 1);
                run.wait_and_kill(self.point.name, || false) && reached
            }
            Way::Start => {
                run.start(self.point.name, self.timing.hit.min(MIGRATIONS));
                run.wait_and_kill(self.point.name, || false)
            }
        };
        let verdict = Verdict { reached, ..Verdict::default() };
        run.finish(clients, verdict)
    }

    /// How long a key may be without an answer once the proxy is back: the lease, two sweeps, and where a probe has to
    /// say that it did not happen, the time until that is believed and the run that follows. Where a node died while it
    /// probed, the time until another one takes it for dead.
    fn limit(&self) -> Duration {
        let probing = if self.point.name == "probe" { PROBE_AGAIN } else { Duration::ZERO };
        LEASE + 2 * SWEEP + self.settle_after + self.timing.late + probing + SLACK
    }
}

/// A case under way.
struct Run<'a> {
    case: &'a Case,
    ledger: Ledger,
    hapax: Option<Hapax>,
    builder: Builder,
    /// Which point the process was told.
    told: &'static str,
}

impl<'a> Run<'a> {
    fn new(case: &'a Case, program: &Path) -> Self {
        let ledger = Ledger::start();
        let answer = Behaviour::LargeBody(ANSWER_BYTES);
        ledger.on(LOOK_UP, Behaviour::LookUp(Box::new(answer.clone())));
        let payment = match case.timing.late {
            Duration::ZERO => answer.clone(),
            late => Behaviour::Late(late, Box::new(answer.clone())),
        };
        ledger.on(PAYMENTS, payment);
        ledger.on(SHORT_LIVED, answer);
        let mut builder = Hapax::builder(program).with_upstream(&ledger.url()).with_config(&config(case));
        if let Store::Postgres(database) = &case.store {
            builder = builder.with_store(&database.url());
        }
        Run { case, ledger, hapax: None, builder, told: "" }
    }

    fn clients(&self) -> Vec<Client> {
        let mut clients: Vec<Client> =
            (0..self.case.timing.keys).map(|_| Client::new(PAYMENTS, tokens::name("key"))).collect();
        if self.case.point.way == Way::Expiry {
            clients.push(Client::new(SHORT_LIVED, tokens::name("short")));
        }
        clients
    }

    /// Starts the process for the first time or again, to stop at that point.
    fn start(&mut self, point: &'static str, hit: u64) {
        self.told = point;
        let value = format!("{point}:{hit}");
        let delay = self.case.timing.delay.map(|(seed, ms)| format!("{seed}:{ms}"));
        match &mut self.hapax {
            Some(hapax) => {
                hapax.set_env("FAILPOINT", Some(&value));
                hapax.restart();
            }
            None => {
                let mut builder = self.builder.clone().with_env("FAILPOINT", &value);
                if let Some(delay) = delay {
                    builder = builder.with_env("FAILPOINT_DELAY", &delay);
                }
                let is_ready = self.case.point.way != Way::Start;
                self.hapax = Some(if is_ready { builder.start() } else { builder.start_unready() });
            }
        }
    }

    fn hapax(&mut self) -> &mut Hapax {
        self.hapax.as_mut().expect("it was started")
    }

    /// Every client sends its payment once; the process is killed at its point, or when all have their answers.
    fn until_killed(&mut self, clients: &mut [Client]) -> bool {
        let address = self.hapax().address();
        let expires = self.case.point.way == Way::Expiry;
        std::thread::scope(|scope| {
            let asking: Vec<_> = clients.iter_mut().map(|client| scope.spawn(|| client.ask(address))).collect();
            let reached =
                self.wait_and_kill(self.told, || !expires && asking.iter().all(ScopedJoinHandle::is_finished));
            drop(asking);
            reached
        })
    }

    /// Waits for the point, or until it is in vain, lets some time pass, and kills.
    fn wait_and_kill(&mut self, point: &str, in_vain: impl Fn() -> bool) -> bool {
        let line = format!("failpoint {point}");
        let limit = LEASE + 2 * SWEEP + SETTLE_AFTER + LATE + SHORT_LIFE + SLACK;
        let is_reached = |hapax: &Hapax| hapax.stderr().lines().any(|said| said == line);
        let hapax = self.hapax();
        wait::holds_within(limit, || is_reached(hapax) || in_vain());
        let reached = is_reached(hapax);
        wait::pass(self.case.timing.kill_after);
        self.hapax().kill_9();
        reached
    }

    /// The clients come back while nobody listens; then somebody does.
    fn finish(mut self, clients: Vec<Client>, mut verdict: Verdict) -> Verdict {
        let limit = self.case.limit();
        let address = self.hapax().address();
        let patience = limit + self.case.timing.down + SLACK;
        let asking: Vec<JoinHandle<Client>> = clients
            .into_iter()
            .map(|mut client| {
                std::thread::spawn(move || {
                    client.ask_until_answered(address, patience);
                    client
                })
            })
            .collect();
        wait::pass(self.case.timing.down);
        self.hapax().set_env("FAILPOINT", None);
        let since = Instant::now();
        self.hapax().restart();
        let back = Back { since, ready: Instant::now(), limit };
        let clients: Vec<Client> = asking.into_iter().map(|thread| thread.join().expect("a client")).collect();
        self.ledger.wait_until_idle();
        for client in &clients {
            // What has expired may run again.
            let runs_max = if client.path == SHORT_LIVED { 2 } else { 1 };
            verdict.judge(client, &self.ledger, &back, runs_max);
        }
        verdict
    }
}

fn config(case: &Case) -> String {
    format!(
        r#"
[upstream]
answer_timeout = "{settle}ms"

[background]
sweep_every = "{sweep}ms"
reap_every = "{sweep}ms"
reconcile_every = "{sweep}ms"

[store]
connections = 1
schema = "{schema}"

[defaults]
lease = "{lease}ms"
retention = "1h"

[[route]]
path = "{PAYMENTS}"
settle_after = "{settle}ms"
probe = {{ get = "{LOOK_UP}?idempotency_record={{id}}", timeout = "{probe}ms" }}
{policy}

[[route]]
path = "{SHORT_LIVED}"
retention = "{short}ms"
"#,
        settle = case.settle_after.as_millis(),
        sweep = SWEEP.as_millis(),
        probe = PROBE_TIMEOUT.as_millis(),
        policy = case.policy,
        schema = tokens::name("crash"),
        lease = LEASE.as_millis(),
        short = SHORT_LIFE.as_millis(),
    )
}
