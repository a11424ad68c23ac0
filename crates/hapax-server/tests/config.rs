//! Configuration, from outside: what is refused and in which words, who wins, and that the papers are complete.
//!
//! Every message is asserted whole, because it is what an operator gets. Left to others: types of values and patterns,
//! which are tested beside their code.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

#[path = "config/commands.rs"]
mod commands;
#[path = "config/mistakes.rs"]
mod mistakes;
#[path = "config/papers.rs"]
mod papers;
#[path = "config/policies.rs"]
mod policies;
#[path = "config/precedence.rs"]
mod precedence;
#[path = "config/prepared.rs"]
mod prepared;
#[path = "config/probes.rs"]
mod probes;
#[path = "config/refusals.rs"]
mod refusals;
#[path = "config/reloads.rs"]
mod reloads;
#[path = "config/scopes.rs"]
mod scopes;
#[path = "config/setup.rs"]
mod setup;
#[path = "config/tokens.rs"]
mod tokens;
