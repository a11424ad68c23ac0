//! Test support: throw-away servers, a TCP proxy that breaks things, processes that can be killed.
//!
//! Tests of durability and of lost replies mean something only against real servers and real processes, so this crate
//! starts them and makes sure that nothing outlives the run, not even after SIGKILL. It leaves to its users what
//! is tested; it is never published, and no product code depends on it.
//!
//! A test that needs a server begins with [`needs_postgres!`] (or [`needs_pgbouncer!`], [`needs_clients!`]). With
//! `HAPAX_SKIP_SERVERS=1` it then says `NOT TESTED: …` and returns; without it, a missing server fails the test.
//!
//! Linux only: it reads `/proc`, and uses `setpriv` and `flock`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test support: a panic with a message is how a test fails"
)]

pub mod child;
pub mod clients;
pub mod clock;
pub mod crash;
pub mod hapax;
pub mod ledger;
pub mod pgbouncer;
pub mod port;
pub mod postgres;
pub mod powerloss;
pub mod process;
pub mod raw_http;
pub mod silent;
pub mod skip;
pub mod tcp_proxy;
pub mod tokens;
pub mod wait;
pub mod whole;

mod command;
mod watchdog;
