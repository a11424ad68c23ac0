//! Being written.

pub mod notify;
pub mod signals;
