//! The list of cases: the only one. The tests of the macro, [`CASES`] and the table in the documentation follow from it.

use std::future::Future;
use std::pin::Pin;

use super::harness::Harness;

/// A case: its name and what it demands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// Its group and its name: `swap::on_absent_is_applied`.
    pub name: &'static str,
    /// What a store must do to pass it.
    pub about: &'static str,
}

/// A case for a harness of that type.
pub(super) struct Runnable<H> {
    pub(super) name: &'static str,
    pub(super) run: Run<H>,
}

/// Borrows the harness for as long as the case runs.
pub(super) type Run<H> = for<'a> fn(&'a H) -> Pin<Box<dyn Future<Output = ()> + 'a>>;

/// Hands the list to another macro. Not for use elsewhere.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_cases {
    ($($then:tt)*) => {
        $($then)*! {
            swap {
                on_absent_is_applied: "expecting nothing where there is nothing writes the record",
            }
        }
    };
}

/// Makes one `#[test]` per case, for the harness that the expression gives. See
/// [`conformance`](mod@crate::conformance).
///
/// The tests are in a module `conformance` beside it. For two harnesses in one file, put each line into a module of its
/// own.
#[macro_export]
macro_rules! conformance {
    ($harness:expr) => {
        #[cfg(test)]
        fn conformance_harness() -> impl $crate::conformance::Harness {
            $harness
        }

        #[cfg(test)]
        mod conformance {
            $crate::conformance_cases!($crate::conformance_tests);
        }
    };
}

/// One `#[test]` per case. Not for use elsewhere.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_tests {
    ($($group:ident { $($case:ident: $about:literal,)* })*) => {
        $(
            mod $group {
                $(
                    #[doc = $about]
                    #[test]
                    fn $case() {
                        $crate::conformance::run(
                            concat!(stringify!($group), "::", stringify!($case)),
                            super::super::conformance_harness(),
                        );
                    }
                )*
            }
        )*
    };
}

macro_rules! registry {
    ($($group:ident { $($case:ident: $about:literal,)* })*) => {
        /// Every case, in the order in which to look at failures.
        pub const CASES: &[Case] = &[
            $($(Case { name: concat!(stringify!($group), "::", stringify!($case)), about: $about },)*)*
        ];

        pub(super) fn runnable<H: Harness>(name: &str) -> Option<Runnable<H>> {
            let all: &[Runnable<H>] = &[
                $($(Runnable {
                    name: concat!(stringify!($group), "::", stringify!($case)),
                    run: |harness| Box::pin(super::$group::$case(harness)),
                },)*)*
            ];
            all.iter().find(|case| case.name == name).copied()
        }
    };
}

crate::conformance_cases!(registry);

impl<H> Clone for Runnable<H> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<H> Copy for Runnable<H> {}
