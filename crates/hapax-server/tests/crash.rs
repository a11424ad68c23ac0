//! The crash matrix, once for every point and store: kill -9, start again, ask until answered.
//!
//! `cargo xtask crash` runs it with random timings; docs/reliability.md says what it shows.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

use std::path::Path;

use hapax_testkit::crash::{ALL, Case, Point, Store, Timing, Verdict};
use hapax_testkit::needs_postgres;
use hapax_testkit::postgres::Server;

#[test]
fn a_proxy_killed_at_any_point_runs_nothing_twice_on_sqlite() {
    pass_at_every_point(&Store::Sqlite);
}

#[test]
fn a_proxy_killed_at_any_point_runs_nothing_twice_on_postgres() {
    needs_postgres!();
    pass_at_every_point(&Store::Postgres(Server::shared().fresh_database()));
}

/// Cases mostly wait, so they run side by side.
fn pass_at_every_point(store: &Store) {
    let wanted =
        |point: &&Point| std::env::var("POINTS").map_or(true, |names| names.split(',').any(|name| name == point.name));
    let cases = ALL.iter().filter(wanted).map(|point| Case { point, store: store.clone(), timing: Timing::plain() });
    let running: Vec<_> = cases
        .map(|case| {
            let (case, shown) = (case.clone(), case);
            (shown, std::thread::spawn(move || case.run(Path::new(env!("CARGO_BIN_EXE_hapax")))))
        })
        .collect();
    let mut wrong = Vec::new();
    for (case, thread) in running {
        match thread.join() {
            Ok(verdict) => {
                println!("{} {:?} {:?}", case.point.name, verdict.reached, verdict.longest_wait);
                wrong.extend(complaints(&case, &verdict));
            }
            Err(_) => wrong.push(format!("{}: did not run", case.point.name)),
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

fn complaints(case: &Case, verdict: &Verdict) -> Vec<String> {
    let unreached = (!verdict.reached).then(|| "the point was not reached".to_owned());
    unreached.into_iter().chain(verdict.wrongs()).map(|wrong| format!("{}: {wrong}", case.point.name)).collect()
}
