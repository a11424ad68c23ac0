//! The targets of lines that whoever sends requests can cause again and again: one or more for each request, or for each record.
//!
//! Whoever writes the log limits them, each kind by itself, so that a flood of one hides no other; the binary does, by
//! `log.requests_per_second`. A line about the state of the process (the store fails, a limit is reached) has the target of its
//! module, is said once for each change, and is never left out.

/// A request that was carried out or replayed.
pub const REQUEST: &str = "hapax::request";
/// A request that was refused, by the layer or before it.
pub const REFUSED: &str = "hapax::refused";
/// A request that the upstream did not answer.
pub const UPSTREAM: &str = "hapax::upstream";
/// What would have become of a request that is only observed.
pub const OBSERVED: &str = "hapax::observed";
/// What went wrong with one attempt or claim.
pub const ATTEMPT: &str = "hapax::attempt";
/// What a background role did about one record.
pub const RECORD: &str = "hapax::record";

/// All of them. None begins like another: a filter by one would take both.
pub const PER_REQUEST: [&str; 6] = [REQUEST, REFUSED, UPSTREAM, OBSERVED, ATTEMPT, RECORD];
