//! Memory: its growth over many requests, and its size with many idle connections.

use std::net::Ipv4Addr;
use std::process::Command;
use std::time::Duration;

use hapax_testkit::raw_http::{Conn, request};

use super::super::report::bar;
use super::Args;
use super::subject::Subject;
use super::wrk::{Load, Run};

/// One look at the memory every so often.
const SLICE: Duration = Duration::from_secs(5);
/// So many requests in a hundred come before the measurement, for warmth: pools and the store's page cache (64 MiB with
/// SQLite, a few hundred bytes for every new key until it is full) fill once.
const WARM_PERCENT: u64 = 30;
/// File handles beside those of the connections.
const HANDLES_BESIDE: usize = 1_000;

/// What requests did to the memory.
pub(super) struct Growth {
    pub(super) requests: u64,
    /// Before the first request.
    pub(super) cold_bytes: u64,
    /// When caches and pools are full.
    pub(super) warm_bytes: u64,
    /// Every few seconds since then.
    pub(super) samples: Vec<u64>,
}

impl Growth {
    /// From the warm state to the end.
    pub(super) fn bytes(&self) -> i64 {
        self.end_bytes() as i64 - self.warm_bytes as i64
    }

    pub(super) fn end_bytes(&self) -> u64 {
        self.samples.last().copied().unwrap_or(self.warm_bytes)
    }

    pub(super) fn peak_bytes(&self) -> u64 {
        self.samples.iter().copied().max().unwrap_or(self.warm_bytes)
    }
}

/// What idle connections cost.
pub(super) struct Idle {
    pub(super) connections: usize,
    pub(super) before_bytes: u64,
    pub(super) bytes: u64,
}

/// GETs, first-time keys and replays in turn, until so many were answered.
pub(super) fn growth(args: &Args, subject: &Subject) -> Growth {
    let cold_bytes = subject.rss_bytes();
    subject.prime();
    let run = Run { load: Load::Mixed, connections: args.connections, length: SLICE };
    let progress = bar("memory over many requests", u32::try_from(args.requests / 1000).unwrap_or(u32::MAX));
    let warm = args.requests * WARM_PERCENT / 100;
    let mut before = 0;
    while before < warm {
        before += run.against(subject.address()).requests;
    }
    let mut growth = Growth { requests: 0, cold_bytes, warm_bytes: subject.rss_bytes(), samples: Vec::new() };
    while growth.requests < args.requests {
        growth.requests += run.against(subject.address()).requests;
        growth.samples.push(subject.rss_bytes());
        progress.set_position(growth.requests / 1000);
    }
    progress.finish_and_clear();
    growth
}

/// Connections that had an answer each and are kept open without a word.
pub(super) fn idle(args: &Args, subject: &Subject) -> Idle {
    let handles = args.idle + HANDLES_BESIDE;
    allow_handles(std::process::id(), handles);
    allow_handles(subject.id(), 2 * handles);
    let get = request("GET", "/charges");
    let before_bytes = subject.rss_bytes();
    let progress = bar("memory with idle connections", args.idle as u32);
    // From several addresses: one client may not have all connections.
    let from = |number: usize| Ipv4Addr::new(127, 0, 0, 1 + (number % 4) as u8).into();
    let mut open: Vec<Conn> = (0..args.idle)
        .map(|number| {
            let mut conn = Conn::open_from(from(number), subject.address());
            assert_eq!(conn.send(&get).status, 200);
            progress.inc(1);
            conn
        })
        .collect();
    let bytes = subject.rss_bytes();
    // They are open and usable, or the figure says nothing.
    for conn in open.iter_mut().step_by(args.idle.div_ceil(100).max(1)) {
        assert_eq!(conn.expect_usable("/charges").status, 200);
    }
    progress.finish_and_clear();
    Idle { connections: open.len(), before_bytes, bytes }
}

/// Asks for more file handles. Where that is not allowed, the connections will say so.
fn allow_handles(process: u32, count: usize) {
    let mut prlimit = Command::new("prlimit");
    let _ = prlimit.args(["--pid", &process.to_string(), &format!("--nofile={count}:{count}")]).output();
}
