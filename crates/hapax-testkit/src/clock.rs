//! A clock that moves only when a test moves it.

pub use hapax_core::clock::FakeClock;
