//! How one case is run: with a runtime of its own and a limit of time.

use std::time::Duration;

use super::harness::Harness;
use super::registry::runnable;

/// A case that takes longer hangs: the slowest takes seconds on a busy machine.
pub const CASE_SECS_MAX: u64 = 120;

/// Threads of the runtime of a case. More than one, so that tasks really run at once.
const WORKERS: usize = 4;

/// Runs the case of that name. Returns if the store passes it.
///
/// # Panics
/// If the store fails it: the message says in what. Also if there is no case of that name.
pub fn run<H: Harness>(name: &str, harness: H) {
    let Some(case) = runnable::<H>(name) else {
        panic!("there is no case {name}; conformance::CASES lists them");
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .thread_name("conformance")
        .enable_all()
        .build()
        .expect("a runtime starts");
    let limit = Duration::from_secs(CASE_SECS_MAX);
    let ended = runtime.block_on(async { tokio::time::timeout(limit, (case.run)(&harness)).await });
    // A store that hangs must not keep the test from failing.
    runtime.shutdown_background();
    drop(harness);
    assert!(ended.is_ok(), "{name} did not end within {CASE_SECS_MAX} s");
}

/// Runs the case of that name and says why the store failed it, if it did: for running cases from a program.
///
/// # Errors
/// What the failed case said.
pub fn check<H: Harness>(name: &'static str, harness: H) -> Result<(), String> {
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || run(name, harness));
    thread.expect("a thread starts").join().map_err(|panic| match panic.downcast::<String>() {
        Ok(message) => *message,
        Err(panic) => panic.downcast::<&str>().map_or_else(|_| "it panicked".to_owned(), |text| (*text).to_owned()),
    })
}
