//! Whether everything that was acknowledged is in an image.

use std::path::Path;

use hapax_core::record::{Body, State};
use hapax_core::store::Store as _;
use hapax_sqlite::{Options, Sqlite};
use hapax_testkit::powerloss::{Dice, Image};

use super::worker::{address, answer};

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    /// Acknowledgements that were checked.
    pub(super) asked: usize,
    pub(super) violations: Vec<String>,
}

pub(super) fn judge(image: &Image, dice: &mut Dice) -> Verdict {
    let dir = tempfile::tempdir().expect("a directory for the image");
    image.write_to(dir.path(), dice);
    let acknowledged: Vec<(&str, &str)> = image.said.iter().filter_map(|line| acknowledged(line)).collect();
    let mut verdict = Verdict { asked: acknowledged.len(), violations: Vec::new() };
    if acknowledged.is_empty() {
        // A file that was never used may be a fragment: it is refused, and nothing is lost with it.
        return verdict;
    }
    match Sqlite::open(Options::new(dir.path().join("hapax.db"))) {
        Ok(store) => look_up(&store, &acknowledged, &mut verdict),
        Err(error) => verdict.violations.push(format!("{} keys, and it does not open: {error}", acknowledged.len())),
    }
    check_whole(&dir.path().join("hapax.db"), &mut verdict);
    verdict
}

/// What an acknowledgement says, and of which key.
fn acknowledged(line: &str) -> Option<(&str, &str)> {
    line.split_once(' ').filter(|(what, _)| matches!(*what, "claimed" | "completed"))
}

#[tokio::main(flavor = "current_thread")]
async fn look_up(store: &Sqlite, acknowledged: &[(&str, &str)], verdict: &mut Verdict) {
    for (what, key) in acknowledged {
        let found = match store.get(&address(key)).await {
            Ok(seen) => seen.stored.map(|stored| (stored.record.state, stored.record.outcome)),
            Err(error) => {
                verdict.violations.push(format!("{what} {key}: {error}"));
                continue;
            }
        };
        let body = |outcome: Option<std::sync::Arc<hapax_core::record::Outcome>>| -> Option<Body> {
            outcome.map(|outcome| outcome.body.clone())
        };
        match found {
            None => verdict.violations.push(format!("{what} {key}, and it is gone")),
            Some((State::Completed, outcome)) if body(outcome.clone()) == Some(answer(key)) => {}
            Some((State::Completed, _)) => verdict.violations.push(format!("{what} {key}, and its answer is another")),
            Some((state, _)) if *what == "completed" => {
                verdict.violations.push(format!("completed {key}, and it is {state:?}"));
            }
            Some(_) => {}
        }
    }
}

fn check_whole(file: &Path, verdict: &mut Verdict) {
    let checked = rusqlite::Connection::open(file)
        .and_then(|connection| connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get::<_, String>(0)));
    match checked {
        Ok(said) if said == "ok" => {}
        Ok(said) => verdict.violations.push(format!("the file is not whole: {said}")),
        Err(error) => verdict.violations.push(format!("the file cannot be checked: {error}")),
    }
}
