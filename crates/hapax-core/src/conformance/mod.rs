//! The cases every store must pass. Public, behind the feature `conformance`, so that anyone's store can run them.
//!
//! A store keeps few promises (see [`store`](crate::store)), but "once" rests on all of them: one lost update, one
//! header too few, one key that comes free early, and an effect happens twice. So every store runs the same cases, and
//! every case is a test with a name. What a store cannot do is asked of its [`Harness`] and changes what the case
//! expects; no case is skipped.
//!
//! One line makes one `#[test]` per case, each with a runtime, a harness and a store of its own:
//!
//! ```no_run
//! use hapax_core::clock::{Clock, Reading};
//! use hapax_core::conformance::{ClockSource, Harness};
//! use hapax_core::memory::Memory;
//! # #[derive(Clone, Debug, Default)]
//! # struct FakeClock;
//! # impl FakeClock {
//! #     fn advance_ms(&self, _: u64) {}
//! #     fn step_ms(&self, _: i64) {}
//! # }
//! # impl Clock for FakeClock {
//! #     fn read(&self) -> Reading { Reading { wall_ms: 1_000, boot_ms: 0 } }
//! #     fn boot_id(&self) -> String { "doc".into() }
//! # }
//!
//! #[derive(Default)]
//! struct InMemory {
//!     clock: FakeClock,
//! }
//!
//! impl Harness for InMemory {
//!     type Store = Memory;
//!
//!     async fn open(&self) -> Memory {
//!         Memory::with_clock(self.clock.clone())
//!     }
//!
//!     async fn pass_ms(&self, ms: u64) {
//!         self.clock.advance_ms(ms);
//!     }
//!
//!     fn step_clock_ms(&self, by_ms: i64) -> ClockSource {
//!         self.clock.step_ms(by_ms);
//!         ClockSource::Host
//!     }
//! }
//!
//! hapax_core::conformance!(InMemory::default());
//! # fn main() {}
//! ```
//!
//! [`CASES`] lists the cases, and [`check`] runs one and says why it failed: that is how the suite is tested itself,
//! against stores that are broken on purpose. `docs/conformance.md` has the table of both.
//!
//! | file | what it has |
//! |---|---|
//! | `harness.rs` | what the suite asks of a store's author |
//! | `registry.rs`, `run.rs` | the list of cases, and how one is run |
//! | `rig.rs`, `samples.rs`, `lossy.rs` | an open store with the rules over it; records to write; lost replies |
//! | `swap.rs`, `values.rs`, `keys.rs` | compare and swap; what is kept comes back; what is kept apart stays apart |
//! | `lease.rs`, `clock.rs` | the rules over the real store; its time |
//! | `scan.rs`, `paging.rs`, `reap.rs` | finding records; page by page; deleting what has expired |
//! | `journal.rs` | notes kept with records, for stores that keep them |
//! | `race.rs`, `rival.rs`, `fault.rs` | many tasks and two processes; lost replies, dropped calls, restarts |

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failed case panics: that is how a test says so"
)]

mod harness;
mod lossy;
mod registry;
mod rig;
pub mod rival;
mod run;
mod samples;

mod clock;
mod fault;
mod journal;
mod keys;
mod lease;
mod paging;
mod race;
mod reap;
mod scan;
mod swap;
mod values;

pub use harness::{ClockSource, Harness};
pub use journal::check_journal;
pub use registry::{CASES, Case};
pub use run::{CASE_SECS_MAX, check, run};
