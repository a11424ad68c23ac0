//! State-changing work, once: what applications add to [`hapax_core`].
//!
//! | module | what it is |
//! |---|---|
//! | `http` | a tower layer that claims a request's `Idempotency-Key`, runs it once, and replays its answer (feature `http`) |

#[cfg(feature = "http")]
pub mod http;
