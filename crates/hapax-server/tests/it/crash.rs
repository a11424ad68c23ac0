//! The crash matrix, once for every point and store: kill -9, start again, ask until answered.
//!
//! `cargo xtask crash` runs it with random timings; docs/reliability.md says what it shows. Two tests turn a protection off,
//! to show that the matrix would see what it protects from.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

use std::path::Path;

use hapax_testkit::crash::{ALL, Case, LATE, LEASE, Store, Timing, Verdict, named};
use hapax_testkit::needs_postgres;
use hapax_testkit::postgres::Server;

/// Cases that run side by side.
const AT_ONCE: usize = 6;

/// Where an upstream that works on after the proxy's death may have the request.
const WITH_A_LATE_UPSTREAM: [&str; 5] =
    ["claim-durable", "half-request-sent", "request-sent", "answer-headers-in", "probe"];

#[test]
fn a_proxy_killed_at_any_point_runs_nothing_twice_on_sqlite() {
    pass_at_every_point(&Store::Sqlite);
}

#[test]
fn a_proxy_killed_at_any_point_runs_nothing_twice_on_postgres() {
    needs_postgres!();
    pass_at_every_point(&postgres());
}

#[test]
fn an_upstream_that_works_on_after_the_crash_is_waited_for_on_sqlite() {
    pass_with_a_late_upstream(&Store::Sqlite);
}

#[test]
fn an_upstream_that_works_on_after_the_crash_is_waited_for_on_postgres() {
    needs_postgres!();
    pass_with_a_late_upstream(&postgres());
}

#[test]
fn a_route_that_runs_again_after_a_lapse_is_seen_to_run_twice() {
    let case = Case { policy: "on_lapse = \"rerun\"", ..case("request-sent", &Store::Sqlite, Timing::plain()) };
    let verdict = run(&case);
    assert_eq!((verdict.reached, verdict.double_executions.len()), (true, 1), "{verdict:?}");
}

#[test]
fn a_verdict_that_comes_before_the_upstream_is_done_is_seen_to_run_twice() {
    // So late that a machine under load has come to its verdict before.
    let timing = Timing::plain_late(8 * LEASE);
    let case = Case { settle_after: LEASE, ..case("request-sent", &Store::Sqlite, timing) };
    let verdict = run(&case);
    assert_eq!((verdict.reached, verdict.double_executions.len()), (true, 1), "{verdict:?}");
}

#[test]
fn every_point_is_described() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reliability.md");
    let page = std::fs::read_to_string(page).unwrap();
    for point in &ALL {
        let row = format!("| `{}` |", point.name);
        assert!(page.contains(&row), "docs/reliability.md says nothing about {}", point.name);
    }
}

fn postgres() -> Store {
    Store::Postgres(Server::shared().fresh_database())
}

fn case(point: &str, store: &Store, timing: Timing) -> Case {
    Case::new(named(point).expect("a point"), store, timing)
}

fn run(case: &Case) -> Verdict {
    case.run(Path::new(env!("CARGO_BIN_EXE_hapax")))
}

fn pass_at_every_point(store: &Store) {
    pass(&ALL.iter().map(|point| Case::new(point, store, Timing::plain())).collect::<Vec<_>>());
}

fn pass_with_a_late_upstream(store: &Store) {
    let late = |point: &&str| case(point, store, Timing::plain_late(LATE));
    pass(&WITH_A_LATE_UPSTREAM.iter().map(late).collect::<Vec<_>>());
}

/// Cases mostly wait, so some run side by side. All at once would be so slow that answers come too late for their points.
fn pass(cases: &[Case]) {
    let mut wrong = Vec::new();
    for some in cases.chunks(AT_ONCE) {
        let judged = std::thread::scope(|scope| {
            let running: Vec<_> = some.iter().map(|case| scope.spawn(|| run(case))).collect();
            running.into_iter().map(|thread| thread.join().expect("the case ran")).collect::<Vec<_>>()
        });
        for (case, verdict) in some.iter().zip(judged) {
            let point = case.point.name;
            println!("{point}: {:.1} s", verdict.longest_wait.as_secs_f64());
            let unreached = (!verdict.reached).then(|| "the point was not reached".to_owned());
            wrong.extend(unreached.into_iter().chain(verdict.wrongs()).map(|wrong| format!("{point}: {wrong}")));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
