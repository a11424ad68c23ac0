//! One server for all processes of a test run.
//!
//! cargo-nextest runs every test in a process of its own; a server per process would cost two seconds per test. The first
//! process that needs one starts it, under a lock in a directory named after the run; the others read there where it is.
//! Each holds the lock shared for as long as it lives. A watchdog stops the server when the runner has ended and the
//! lock is free.

use std::fs::File;
use std::io::{ErrorKind, Result};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::cluster::Cluster;
use super::{Keeper, Server};
use crate::watchdog;

/// The first try finds no server, the second one does. More are needed only while a watchdog removes the directory.
const ATTEMPTS_MAX: usize = 10;

/// Joins the server of the run, starting it where there is none yet.
pub(super) fn join(run_id: &str) -> Server {
    let run = std::env::temp_dir().join(format!("hapax-run-{run_id}"));
    for _ in 0..ATTEMPTS_MAX {
        if let Some(server) = running(&run) {
            return server;
        }
        start(&run);
    }
    panic!("no shared server could be had in {}", run.display());
}

/// The server of the run, if one is ready.
fn running(run: &Path) -> Option<Server> {
    let lock = open_lock(run)?;
    lock.lock_shared().expect("the lock can be taken");
    let cluster = still_there(&lock, run).then(|| read_ready(run)).flatten()?;
    Some(Server { cluster, keeper: Keeper::Holder(lock) })
}

/// Starts the server of the run, unless somebody did meanwhile.
fn start(run: &Path) {
    let Some(lock) = open_lock(run) else { return };
    lock.lock().expect("the lock can be taken");
    if !still_there(&lock, run) || read_ready(run).is_some() {
        return;
    }
    let mut cluster = Cluster::in_new_directory(None);
    let stop = cluster.stop_command("immediate");
    watchdog::stop_at_end_of_run(&stop, cluster.directory(), run, std::os::unix::process::parent_id());
    cluster.create(&[], None);
    let directory = cluster.directory().to_str().expect("the temporary directory has a plain name");
    let ready = format!("{} {directory}", cluster.address().port());
    std::fs::write(run.join("ready"), ready).expect("the run's directory is writable");
}

/// Creates the directory and the lock as needed; `None` where a watchdog is just removing them.
fn open_lock(run: &Path) -> Option<File> {
    let opened = std::fs::create_dir_all(run).and_then(|()| File::create(run.join("lock")));
    match opened {
        Ok(lock) => Some(lock),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => panic!("cannot lock {}: {error}", run.display()),
    }
}

/// False where the lock's file was removed before we got the lock.
fn still_there(lock: &File, run: &Path) -> bool {
    let same = || -> Result<bool> { Ok(lock.metadata()?.ino() == run.join("lock").metadata()?.ino()) };
    same().unwrap_or(false)
}

fn read_ready(run: &Path) -> Option<Cluster> {
    let ready = std::fs::read_to_string(run.join("ready")).ok()?;
    let (port, directory) = ready.split_once(' ')?;
    Some(Cluster::existing(PathBuf::from(directory), port.parse().ok()?))
}
