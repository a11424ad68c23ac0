//! `cargo xtask bench stores`: every store against the naive way, interleaved in one run.

mod naive_sqlite;
mod workload;

use std::time::Duration;

use hapax_core::memory::Memory;
use hapax_sqlite::{Options, Sqlite, SystemClock};

use self::naive_sqlite::NaiveSqlite;
use self::workload::{Ours, Subject, Tally, cycles, ms_at};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Seconds per measurement and side.
    #[arg(long, default_value_t = 4.0)]
    seconds: f64,
    #[arg(long)]
    concurrency: Vec<usize>,
    #[arg(long)]
    only_ours: bool,
}

pub(crate) fn run(args: &Args) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let dir = tempfile::tempdir_in(".").unwrap();
        let ours = Ours::new(Sqlite::open(&Options::new(dir.path().join("a.db"))).unwrap());
        let naive = NaiveSqlite::open(&dir.path().join("b.db"));
        let _ = Memory::new(SystemClock);
        for &c in &args.concurrency {
            let (mut a, mut b) = (Tally::new(), Tally::new());
            for _ in 0..4 {
                let d = Duration::from_secs_f64(args.seconds / 4.0);
                cycles(&ours, c, d, &mut a).await;
                if !args.only_ours { cycles(&naive, c, d, &mut b).await; }
            }
            println!("c={c} ours {:.0}/s p50 {:.3} p99 {:.3} max {:.3} claim p99 {:.3} | naive {:.0}/s p50 {:.3} p99 {:.3} | ratio {:.1} p50ratio {:.2}",
                a.per_s(), ms_at(&a.cycles, 0.5), ms_at(&a.cycles, 0.99), ms_at(&a.cycles, 1.0), ms_at(&a.claims, 0.99), b.per_s(), ms_at(&b.cycles, 0.5), ms_at(&b.cycles, 0.99), a.per_s()/b.per_s(), ms_at(&a.cycles, 0.5)/ms_at(&b.cycles, 0.5));
        }
        fn _assert<S: Subject>(_: &S) {}
    });
}
