//! The HTTP boundary.
