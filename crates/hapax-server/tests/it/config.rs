//! Configuration, from outside: what is refused and in which words, who wins, and that the papers are complete.
//!
//! Every message is asserted whole, because it is what an operator gets. Left to others: types of values and patterns,
//! which are tested beside their code.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

mod commands;
mod mistakes;
mod papers;
mod policies;
mod precedence;
mod prepared;
mod probes;
mod refusals;
mod reloads;
mod scopes;
mod setup;
mod tokens;
