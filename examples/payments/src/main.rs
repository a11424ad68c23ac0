//! A small axum service whose payments happen once.

fn main() {}
