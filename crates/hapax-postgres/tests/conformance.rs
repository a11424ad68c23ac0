//! The PostgreSQL store passes the suite that every store must pass.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

mod common;

use common::harness::Databases;
use hapax_core::conformance::Harness;
use hapax_testkit::needs_postgres;

macro_rules! cases {
    ($($cases:tt)*) => { crate::suite! { hapax_testkit::needs_postgres, crate::common::harness::Databases::shared(); $($cases)* } };
}

mod conformance {
    hapax_core::conformance_cases!(cases);
}

/// The cases that restart the store, with a server that really restarts.
macro_rules! with_a_server_that_restarts {
    ($($test:ident: $case:literal,)*) => {
        $(
            #[test]
            fn $test() {
                needs_postgres!();
                hapax_core::conformance::run($case, Databases::in_own_server());
            }
        )*
    };
}

with_a_server_that_restarts! {
    a_restarted_server_keeps_what_was_acknowledged: "fault::restart_keeps_what_was_acknowledged",
    time_goes_on_after_the_server_restarts: "fault::time_goes_on_after_a_restart",
    the_server_restarts_in_the_middle_of_traffic: "fault::restart_in_the_middle_of_traffic",
}

#[test]
fn conformance_rival() {
    common::harness::be_the_rival();
}

#[tokio::test(flavor = "multi_thread")]
async fn notes_are_kept_with_the_records() {
    needs_postgres!();
    hapax_core::conformance::check_journal(&Databases::shared().open().await).await;
    hapax_core::conformance::check_journal(&Databases::pooled().open().await).await;
}
