//! State-changing work, once: what applications add to [`hapax_core`].
//!
//! A service begins with [`http`], whose page has an example; `docs/library.md` is the guide. What an application names besides
//! is here: [`Memory`] and [`AnyStore`] among the stores, [`OnLapse`], [`Policy`], [`Recipe`] and [`HmacKey`] for routes,
//! [`Outcome`], [`Body`], [`Record`] and [`Address`] for probes.
//!
//! | module | what it is |
//! |---|---|
//! | `http` | a tower layer that claims a request's `Idempotency-Key`, runs it once, and replays its answer (feature `http`) |
//! | `claim` | what a handler holds while its request runs |
//! | [`lapse`], [`reap`], [`reconcile`], [`survey`] | background roles: notice a crash, delete what expired, find out, count |
//! | [`background`] | the first two of them together, at the usual pace |
//! | [`sweep`] | the loop that they share |
//! | [`fence`] | which keys may have been claimed in what a restore lost |
//! | [`remembered`] | short texts that a store keeps for hapax itself |
//! | [`log`] | which lines of the log requests can cause again and again |
//! | [`observe`] | what is counted |
//! | [`tokens`], [`clock`] | the only places that draw random bytes and read the host's clock |

pub mod background;
#[cfg(feature = "http")]
pub mod claim;
pub mod clock;
pub mod fence;
#[cfg(feature = "http")]
pub mod http;
pub mod lapse;
pub mod log;
pub mod observe;
pub mod reap;
pub mod reconcile;
pub mod remembered;
pub mod survey;
pub mod sweep;
pub mod tokens;

// What signatures of this crate name, so that an application needs no other crate but its store's.
pub use hapax_core::address::{Address, Scope};
pub use hapax_core::any_store::AnyStore;
#[cfg(feature = "test-util")]
pub use hapax_core::clock::FakeClock;
pub use hapax_core::fingerprint::{HmacKey, Recipe};
pub use hapax_core::memory::Memory;
pub use hapax_core::record::{Body, OnLapse, Outcome, Policy, Record};
pub use hapax_core::store::Store;

/// The example in the README is compiled with the tests.
#[cfg(all(doctest, feature = "axum"))]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// So is every one in the guide; those that assert something are run.
#[cfg(all(doctest, feature = "axum", feature = "test-util"))]
#[doc = include_str!("../../../docs/library.md")]
struct Guide;
