//! A second process on the same records, which races with the first.
//!
//! A database that two processes share must stay whole without their help: a mutex in one of them is no atomicity. So
//! a harness names a command ([`Harness::rival`]); what it starts opens the same records and calls [`run`]. The easiest
//! such command is the test binary itself, with the name of a test that does nothing unless it is started for this:
//!
//! ```no_run
//! # use hapax_core::memory::Memory;
//! # fn open(path: &std::ffi::OsStr) -> Memory { panic!("{path:?}") }
//! // This is a #[test].
//! fn conformance_rival() {
//!     if let Some(path) = std::env::var_os("MY_STORE_OF_RIVAL") {
//!         hapax_core::conformance::rival::run(async { open(&path) });
//!     }
//! }
//!
//! // And this is `Harness::rival`.
//! # fn rival(path: &std::path::Path) -> Option<std::process::Command> {
//! let mut command = std::process::Command::new(std::env::current_exe().ok()?);
//! command.args(["conformance_rival", "--exact", "--nocapture"]).env("MY_STORE_OF_RIVAL", path);
//! Some(command)
//! # }
//! ```
//!
//! The two talk in lines: over standard input and output, so nothing else may read or write there. A store that no two
//! processes can share gets a thread with a runtime of its own as its rival, which does the same.

use std::future::Future;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use super::harness::Harness;
use super::samples::{address, running, version};
use crate::address::Address;
use crate::record::{Record, Version};
use crate::store::{Durability, Store, Swap};

/// Sets what a rival says apart from what a test harness prints around it.
const SAID: &str = "conformance-rival: ";

/// A rival that says nothing for this long has gone.
const PATIENCE: Duration = Duration::from_secs(60);

/// Keys for which both race at once. Few: the two meet at the beginning of a block, and then one is ahead.
pub(super) const BLOCK_KEYS: usize = 10;

/// Lost swaps after which an increment gives up: the other side makes progress with each of them.
const INCREMENT_TRIES_MAX: u32 = 100_000;

/// Plays the second process: opens the store and does what the first one says, until it closes its end.
///
/// # Panics
/// If the store fails, or the first process says something this release does not know.
pub fn run<S: Store + Clone + 'static>(open: impl Future<Output = S>) {
    let mut lines = std::io::stdin().lines();
    // What a test harness began to print may not have ended its line.
    let say = |line: &str| println!("\n{SAID}{line}");
    serve(open, || lines.next()?.ok(), say);
}

fn serve<S: Store + Clone + 'static>(
    open: impl Future<Output = S>,
    mut hear: impl FnMut() -> Option<String>,
    mut say: impl FnMut(&str),
) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime starts");
    let store = runtime.block_on(open);
    say("ready");
    while let Some(order) = hear() {
        say("begun");
        match order.split_once(' ') {
            Some(("race", block)) => {
                for (key, won) in runtime.block_on(race(&store, block.parse().expect("a number"))) {
                    say(&format!("won {key} {}", u128::from_be_bytes(*won.as_bytes())));
                }
            }
            Some(("increment", times)) => {
                runtime.block_on(increment(&store, times.parse().expect("a number")));
            }
            _ => panic!("an order that this release does not know: {order}"),
        }
        say("done");
    }
}

pub(super) fn key(number: usize) -> Address {
    address("rivals", &format!("rival-{number}"))
}

/// Tries to be the first at each key of a block, and says where it was.
pub(super) async fn race<S: Store + Clone + 'static>(store: &S, block: usize) -> Vec<(usize, Version)> {
    let mut tasks = tokio::task::JoinSet::new();
    for number in block * BLOCK_KEYS..(block + 1) * BLOCK_KEYS {
        let store = store.clone();
        tasks.spawn(async move {
            let record = running();
            match store.swap(&key(number), None, &record).await.expect("a swap is answered") {
                Swap::Applied(_) => Some((number, record.version)),
                Swap::Lost(seen) => {
                    assert!(seen.version().is_some_and(|other| other != record.version), "lost to {seen:?}");
                    None
                }
            }
        });
    }
    tasks.join_all().await.into_iter().flatten().collect()
}

/// The record that both sides count in.
pub(super) fn counter() -> Address {
    address("rivals", "counter")
}

/// Adds one to the attempt of the counter, so many times; each time on whatever stands there.
pub(super) async fn increment<S: Store>(store: &S, times: u32) {
    let mut seen = store.get(&counter()).await.expect("a record is read");
    let mut tries = 0;
    for _ in 0..times {
        loop {
            let stored = seen.stored.as_ref().expect("the counter is there");
            let next = Record { attempt: stored.record.attempt + 1, version: version(), ..stored.record.clone() };
            match store.swap(&counter(), seen.version(), &next).await.expect("a swap is answered") {
                Swap::Applied(_) => {
                    seen = store.get(&counter()).await.expect("a record is read");
                    break;
                }
                Swap::Lost(now) => seen = now,
            }
            tries += 1;
            assert!(tries < INCREMENT_TRIES_MAX, "swaps are lost, but to nobody");
        }
    }
}

/// The rival, as the first process sees it. It ends when this is dropped.
pub(super) struct Rival {
    orders: Orders,
    said: mpsc::Receiver<String>,
}

enum Orders {
    Process(Child, ChildStdin),
    Thread(mpsc::Sender<String>),
}

impl Rival {
    /// Starts the rival that the harness names, and waits until it has opened the store.
    pub(super) async fn start<H: Harness>(harness: &H, store: &H::Store) -> Self {
        let mut rival = match harness.rival(store) {
            Some(mut command) => {
                let mut child = command
                    .stdin(Stdio::piped())
                    .stdout(Stdio::piped())
                    .spawn()
                    .unwrap_or_else(|error| panic!("the rival cannot be started with {command:?}: {error}"));
                let output = child.stdout.take().expect("its output is a pipe");
                let input = child.stdin.take().expect("its input is a pipe");
                let (sender, said) = mpsc::channel();
                std::thread::spawn(move || {
                    let lines = BufReader::new(output).lines().map_while(Result::ok);
                    for line in lines {
                        let _ = line.strip_prefix(SAID).map(|line| sender.send(line.to_owned()));
                    }
                });
                Self { orders: Orders::Process(child, input), said }
            }
            None => {
                let health = store.health().await.expect("the store is healthy");
                let kept =
                    "a store that keeps its records can be opened by a second process: name it in Harness::rival";
                assert_eq!(health.durability, Durability::None, "{kept}");
                let (orders, heard) = mpsc::channel();
                let (sender, said) = mpsc::channel();
                let store = store.clone();
                std::thread::spawn(move || {
                    let say = |line: &str| drop(sender.send(line.to_owned()));
                    serve(async { store }, || heard.recv().ok(), say);
                });
                Self { orders: Orders::Thread(orders), said }
            }
        };
        assert_eq!(rival.hear(), "ready");
        rival
    }

    /// Gives an order and waits until the rival has begun.
    pub(super) fn begin(&mut self, order: &str) {
        match &mut self.orders {
            Orders::Process(_, input) => writeln!(input, "{order}").expect("the rival listens"),
            Orders::Thread(orders) => orders.send(order.to_owned()).expect("the rival listens"),
        }
        assert_eq!(self.hear(), "begun");
    }

    /// Waits until the rival is done; where it was first.
    pub(super) fn won(&mut self) -> Vec<(usize, Version)> {
        let mut won = Vec::new();
        loop {
            let line = self.hear();
            let words: Vec<_> = line.split(' ').collect();
            match words[..] {
                ["done"] => return won,
                ["won", key, version] => {
                    let version: u128 = version.parse().expect("a version");
                    won.push((key.parse().expect("a key"), Version::from_bytes(version.to_be_bytes())));
                }
                _ => panic!("the rival said {line}"),
            }
        }
    }

    fn hear(&mut self) -> String {
        let heard = tokio::task::block_in_place(|| self.said.recv_timeout(PATIENCE));
        heard.unwrap_or_else(|error| panic!("the rival has gone: {error}"))
    }
}

impl Drop for Rival {
    fn drop(&mut self) {
        if let Orders::Process(child, _) = &mut self.orders {
            // It has nothing of its own to lose; an error means that it has ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
