//! The process whose writes are recorded: it claims and completes keys, and says so after each acknowledgement.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hapax_core::address::{Address, AddressScheme, Key, Scope, Space};
use hapax_core::engine::Engine;
use hapax_core::fingerprint::{Fingerprint, Scheme};
use hapax_core::record::{Body, Outcome, Policy};
use hapax_core::transition::Event;
use hapax_sqlite::{Options, Sqlite};
use hapax_testkit::{child, tokens};
use tokio::task::JoinSet;

/// Tasks at a time: commits of several swaps.
const TASKS: usize = 8;

/// So that a few hundred keys fill the log.
const ANSWER_BYTES: usize = 2_500;

#[derive(clap::Args)]
pub(crate) struct WorkerArgs {
    /// The store's file.
    #[arg(long)]
    file: PathBuf,
    /// The number of the first key.
    #[arg(long, default_value_t = 0)]
    first: usize,
    /// How many.
    #[arg(long, default_value_t = 0)]
    keys: usize,
    /// Only keep the file open, until the input ends.
    #[arg(long)]
    hold: bool,
}

/// This program as a worker on that file.
pub(super) fn command(file: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this process has an executable"));
    command.arg("powerloss-worker").arg("--file").arg(file);
    command
}

/// The address of a key.
pub(super) fn address(key: &str) -> Address {
    let (space, scope) = (Space::new("http").unwrap(), Scope::new("alice").unwrap());
    Address::new(&AddressScheme::default(), &space, &scope, &Key::new(key).unwrap())
}

/// The answer of a key, which says which key it is for.
pub(super) fn answer(key: &str) -> Body {
    let mut bytes = format!("answer of {key} ").into_bytes();
    bytes.resize(ANSWER_BYTES, b'.');
    Body::Kept(bytes)
}

/// Does what it is told, and ends without any ceremony, as a killed process does.
pub(crate) fn run(args: &WorkerArgs) {
    if args.hold {
        hold(&args.file);
    } else {
        work(args);
    }
    std::process::exit(0);
}

fn hold(file: &Path) {
    let store = Sqlite::open(Options::new(file)).expect("the store opens");
    child::say("holding");
    while child::hear().is_some() {}
    drop(store);
}

#[tokio::main(flavor = "current_thread")]
async fn work(args: &WorkerArgs) {
    let store = match Sqlite::open(Options::new(&args.file)) {
        Ok(store) => store,
        Err(error) => return child::say(&format!("refused: {error}")),
    };
    let engine = Arc::new(Engine::new(store, tokens::random as fn() -> [u8; 16]));
    let next = Arc::new(AtomicUsize::new(args.first));
    let end = args.first + args.keys;
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let (engine, next) = (Arc::clone(&engine), Arc::clone(&next));
        tasks.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= end || !once(&engine, &format!("k-{number}")).await {
                    return;
                }
            }
        });
    }
    tasks.join_all().await;
}

/// Claims and completes one key. False when the store has failed.
async fn once(engine: &Engine<Sqlite, fn() -> [u8; 16]>, key: &str) -> bool {
    let at = address(key);
    let fingerprint = Fingerprint { scheme: Scheme::new("1;sha256").unwrap(), digest: [7; 32] };
    let Ok(held) = engine.claim(&at, &fingerprint, Policy::default()).await else { return false };
    child::say(&format!("claimed {key}"));
    let Some(attempt_id) = held.attempt_id() else { return false };
    let headers = vec![(b"content-type".to_vec(), b"text/plain".to_vec())];
    let outcome = Arc::new(Outcome { status: 201, headers, body: answer(key) });
    let complete = Event::Complete { attempt_id, outcome: &outcome, labels: &hapax_core::record::Labels::default() };
    if engine.apply(&at, &complete, Some(held.seen)).await.is_err() {
        return false;
    }
    child::say(&format!("completed {key}"));
    true
}
