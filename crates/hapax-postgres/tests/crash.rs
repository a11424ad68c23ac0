//! kill -9 of the client and of the server in the middle of claims and completions: what was acknowledged is there, and
//! every record is readable.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

mod common;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use hapax_core::engine::EngineError;
use hapax_core::record::{Body, Labels, Policy, State};
use hapax_core::store::{ErrorKind, Scan, Store, StoreError};
use hapax_core::transition::{Answer, Event};
use hapax_postgres::Postgres;
use hapax_testkit::child::{self, Child};
use hapax_testkit::needs_postgres;
use hapax_testkit::postgres::Server;
use tokio::task::JoinSet;

use common::{PATIENCE, TestEngine, address, engine, fingerprint, open, outcome};

const KEYS: u32 = 10_000;
const TASKS: u32 = 32;
const URL: &str = "HAPAX_TEST_URL";

/// Claims and completes one key, and says so after each acknowledgement.
async fn claim_and_complete(
    engine: &TestEngine<Postgres>,
    key: &str,
    say: &impl Fn(String),
) -> Result<(), EngineError> {
    let at = address(key);
    let held = engine.claim(&at, &fingerprint(), Policy::default()).await?;
    say(format!("claimed {key}"));
    if held.answer == Answer::Proceed {
        let (attempt_id, outcome) = (held.attempt_id().unwrap(), outcome(key));
        let event = Event::Complete { attempt_id, outcome: &outcome, labels: &Labels::default() };
        engine.apply(&at, &event, Some(held.seen)).await?;
        say(format!("completed {key}"));
    }
    Ok(())
}

/// Runs through the keys again and again; returns when every task has met a failure.
async fn work(url: &str, say: impl Fn(String) + Clone + Send + Sync + 'static) -> Vec<EngineError> {
    let engine = Arc::new(engine(open(url).await));
    let next = Arc::new(AtomicU32::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let (engine, next, say) = (Arc::clone(&engine), Arc::clone(&next), say.clone());
        tasks.spawn(async move {
            loop {
                let key = format!("k-{}", next.fetch_add(1, Ordering::Relaxed) % KEYS);
                if let Err(error) = claim_and_complete(&engine, &key, &say).await {
                    return error;
                }
            }
        });
    }
    tasks.join_all().await
}

#[test]
fn what_a_client_was_told_before_its_kill_9_is_there() {
    if child::role().is_some() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let failed = runtime.block_on(work(&std::env::var(URL).unwrap(), |line| child::say(&line)));
        panic!("{failed:?}");
    }
    needs_postgres!();
    for kill_after in [KEYS / 2, KEYS * 2 - 500, 700] {
        let database = Server::shared().fresh_database();
        let mut command = child::rerun("what_a_client_was_told_before_its_kill_9_is_there", "worker");
        let mut worker = Child::spawn(command.env(URL, database.url()));
        let mut said: Vec<String> = (0..kill_after).map(|_| worker.said(PATIENCE).unwrap()).collect();
        worker.kill_9();
        // What it managed to say before it was gone counts as well.
        said.extend(std::iter::from_fn(|| worker.said(PATIENCE)));
        check(&database.url(), &said);
    }
}

#[test]
fn what_was_acknowledged_before_the_servers_kill_9_is_there() {
    needs_postgres!();
    let mut server = Server::builder().start();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for kill_after in [3_000, 9_000] {
        let database = server.fresh_database();
        let said = Arc::new(Mutex::new(Vec::new()));
        let (line, lines) = std::sync::mpsc::channel();
        let (url, collect) = (database.url(), Arc::clone(&said));
        let working = runtime.spawn(async move {
            let say = move |text: String| {
                collect.lock().unwrap().push(text);
                let _ = line.send(());
            };
            work(&url, say).await
        });
        for _ in 0..kill_after {
            lines.recv_timeout(PATIENCE).unwrap();
        }
        server.kill_9();
        let failed = runtime.block_on(working).unwrap();
        for error in failed {
            let EngineError::Store(error) = error else { panic!("{error:?}") };
            assert!(is_told_what_to_do(&error), "{error:?}");
        }
        server.start();
        check(&database.url(), &said.lock().unwrap());
    }
}

/// Whoever was writing learns that the write may be there, and nobody else does.
fn is_told_what_to_do(error: &StoreError) -> bool {
    let said: &[&str] = match error.kind {
        ErrorKind::Ambiguous => {
            &["the connection was lost before the server answered; the write may be there; read it back"]
        }
        ErrorKind::Unavailable => &[
            "the server cannot be reached; nothing was written; check that it runs and listens there",
            "the server is starting or stopping; nothing was written; try again",
            "the connection to the server was lost; it is opened again by the next call",
        ],
        _ => &[],
    };
    said.iter().any(|said| error.message.ends_with(said))
}

fn check(url: &str, said: &[String]) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let found = read_all(&open(url).await).await;
        let mut completed = 0;
        for line in said {
            let (what, key) = line.split_once(' ').unwrap();
            let (state, body) = found.get(key).unwrap_or_else(|| panic!("{line}, and it is gone"));
            if what == "completed" {
                completed += 1;
                assert_eq!(*state, State::Completed, "{line}");
                assert_eq!(*body, Some(Body::Kept(format!("answer of {key}").into_bytes())), "{line}");
            }
        }
        assert!(completed > said.len() / 3, "{completed} of {} said were completions", said.len());
    });
}

/// Every record, by its key; none may be damaged.
async fn read_all(store: &Postgres) -> HashMap<String, (State, Option<Body>)> {
    let mut query = Scan { limit: 500, ..Scan::default() };
    let mut found = HashMap::new();
    loop {
        let page = store.scan(&query).await.unwrap();
        assert!(page.damaged.is_empty(), "{:?}", page.damaged);
        found.extend(page.entries.into_iter().map(|entry| {
            let record = entry.stored.record;
            let body = record.outcome.map(|outcome| outcome.body.clone());
            (entry.address.key().as_str().to_owned(), (record.state, body))
        }));
        query.after = page.next;
        if query.after.is_none() {
            return found;
        }
    }
}
