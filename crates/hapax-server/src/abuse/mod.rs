//! What keeps one caller, or one broken store, from hurting everybody.
//!
//! | module | what it is |
//! |---|---|
//! | [`breaker`] | refuses claims at once while the store is down, and finds out by itself that it is back |
//! | [`rates`] | how many new keys and how many look-ups one caller may have per second |
//! | [`clients`] | how many new keys that come to nothing one client address may use, whatever callers it makes up |
//! | [`active`] | how many unfinished keys one caller may have |
//! | `hashed` | maps by random hashes, for two of these |
//! | [`callers`] | who sends the most duplicates, mismatches and refused requests |
//!
//! None of them answers a request: they say yes or no, and the caller makes a response of it.

pub mod active;
pub mod breaker;
pub mod callers;
pub mod clients;
mod hashed;
pub mod rates;
