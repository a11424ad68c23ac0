//! The PostgreSQL store passes the whole suite behind PgBouncer in transaction mode too.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

mod common;

macro_rules! cases {
    ($($cases:tt)*) => { crate::suite! { hapax_testkit::needs_pgbouncer, crate::common::harness::Databases::pooled(); $($cases)* } };
}

mod conformance {
    hapax_core::conformance_cases!(cases);
}

#[test]
fn conformance_rival() {
    common::harness::be_the_rival();
}
