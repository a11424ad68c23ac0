//! The rule book of hapax: what may happen to a key, and what a store must do to keep it true.
//!
//! *Hapax* makes state-changing work happen once. For one scope and key, no second attempt starts while the first may
//! still have an effect; a recorded answer is replayed byte for byte until it expires. This crate holds the rules and
//! nothing that could make them hard to test: no clock, no randomness, no network, no runtime.
//!
//! | module | what it is |
//! |---|---|
//! | [`address`] | whose record this is |
//! | [`fingerprint`], [`canonical_json`] | what must be equal for two requests to be the same request |
//! | [`record`] | what is known of a key |
//! | [`event`] | what can be asked of a record, and what is answered |
//! | [`transition`] | every rule, in one pure function |
//! | [`engine`] | decide, swap, and decide again: the only place where rules and store meet |
//! | [`store`], [`codec`], [`clock`] | what a store must do, the bytes it keeps, the time it hands out |
//! | [`journal`] | who changed what by hand, kept with the records |
//! | [`memory`], [`any_store`] | the reference store; a store that is chosen at run time |
//! | [`limits`] | every maximum, with its reason |
//! | `failpoint` | where tests stop the process, to kill it there (feature `failpoints`) |
//! | `clock::SystemClock`, `clock::FakeClock` | the clocks of the host (feature `system-clock`), a clock for tests (`test-util`) |
//! | `conformance` | the cases every store must pass (feature `conformance`) |
//!
//! Start with [`engine`], which has an example.

pub mod address;
pub mod any_store;
pub mod canonical_json;
pub mod clock;
pub mod codec;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod engine;
pub mod event;
#[doc(hidden)]
pub mod failpoint;
pub mod fingerprint;
pub mod journal;
pub mod large;
pub mod limits;
pub mod memory;
pub mod record;
pub mod store;
pub mod transition;

#[cfg(test)]
mod model;
