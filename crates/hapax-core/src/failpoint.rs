//! Named places at which a test stops the process, to kill it there.
//!
//! Crashes are tested where they hurt: between a claim and its reply, in the middle of a request, inside a migration. A test
//! names the place in the environment, as in `FAILPOINT=claim-durable:3` (the third time it is passed). There the process
//! says `failpoint claim-durable` on its standard error and goes no further; the test then kills it from outside.
//! `FAILPOINT_DELAY=SEED:MS` lets every place take up to so many milliseconds, drawn from the seed. With
//! `FAILPOINT_RESUME=FILE` a thread that was stopped goes on once that file exists: what a process does that was asleep there.
//!
//! Without the feature `failpoints` this module holds two macros that expand to nothing, and no released binary has it.
//! The macros, not a feature of each crate, decide: whoever uses them depends on this crate's feature alone. What is done
//! after the kill is the business of hapax-testkit.

/// A place that can be stopped at. Three ways to say it:
///
/// - `failpoint!("name")` blocks the thread;
/// - `failpoint!("name" => expression)` evaluates the expression first, and only if it stops here;
/// - `failpoint!(async "name")` blocks the task, inside of something asynchronous.
#[cfg(feature = "failpoints")]
#[doc(hidden)]
#[macro_export]
macro_rules! failpoint {
    (async $name:expr) => {
        $crate::failpoint::begin($name, ::core::future::ready(())).await
    };
    ($name:expr) => {
        $crate::failpoint!($name => ())
    };
    ($name:expr => $first:expr) => {
        if $crate::failpoint::is_due($name) {
            let _ = $first;
            $crate::failpoint::stop($name)
        }
    };
}

/// Nothing: there are no such places in this build.
#[cfg(not(feature = "failpoints"))]
#[doc(hidden)]
#[macro_export]
macro_rules! failpoint {
    (async $name:expr) => {};
    ($name:expr) => {};
    ($name:expr => $first:expr) => {};
}

/// A future that may be stopped just after it was begun: what it sent is on its way, and no reply is ever seen.
#[cfg(feature = "failpoints")]
#[doc(hidden)]
#[macro_export]
macro_rules! failpoint_begun {
    ($name:expr, $future:expr) => {
        $crate::failpoint::begin($name, $future)
    };
}

/// The future itself: there are no such places in this build.
#[cfg(not(feature = "failpoints"))]
#[doc(hidden)]
#[macro_export]
macro_rules! failpoint_begun {
    ($name:expr, $future:expr) => {
        $future
    };
}

#[cfg(feature = "failpoints")]
mod armed {
    use std::convert::Infallible;
    use std::future::{pending, poll_fn};
    use std::io::Write as _;
    use std::pin::pin;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::task::Poll;
    use std::time::Duration;

    use crate::address::Address;
    use crate::record::State;

    /// What the environment asks for, read once.
    #[derive(Debug, Default)]
    struct Plan {
        point: String,
        /// Which time it is passed is the one.
        hit: u64,
        passed: AtomicU64,
        seed: u64,
        delay_ms_max: u64,
        drawn: AtomicU64,
    }

    impl Plan {
        /// `point` is `NAME` or `NAME:HIT`, `delay` is `SEED:MS`. What is misspelt never stops anything, and its test fails.
        fn parse(point: &str, delay: &str) -> Self {
            let (point, hit) = point.split_once(':').unwrap_or((point, "1"));
            let (seed, ms) = delay.split_once(':').unwrap_or(("0", "0"));
            let number = |text: &str| text.parse().unwrap_or(0);
            let (hit, seed, delay_ms_max) = (number(hit), number(seed), number(ms));
            Self { point: point.to_owned(), hit, seed, delay_ms_max, ..Self::default() }
        }

        fn is_due(&self, name: &str) -> bool {
            self.point == name && self.passed.fetch_add(1, Ordering::Relaxed) + 1 == self.hit
        }

        /// The next of the pauses that the seed stands for.
        fn next_delay(&self) -> Duration {
            let drawn = self.drawn.fetch_add(1, Ordering::Relaxed);
            let ms = spread(self.seed.wrapping_add(drawn)) % (self.delay_ms_max + 1);
            Duration::from_millis(ms)
        }
    }

    fn plan() -> Option<&'static Plan> {
        static PLAN: OnceLock<Option<Plan>> = OnceLock::new();
        let read = || {
            let variable = |name| std::env::var(name).ok();
            let (point, delay) = (variable("FAILPOINT"), variable("FAILPOINT_DELAY"));
            (point.is_some() || delay.is_some())
                .then(|| Plan::parse(&point.unwrap_or_default(), &delay.unwrap_or_default()))
        };
        PLAN.get_or_init(read).as_ref()
    }

    /// Neighbouring numbers become unrelated ones (the finalizer of SplitMix64).
    fn spread(number: u64) -> u64 {
        let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Counts a passing of that place, and says whether to stop there.
    #[must_use]
    pub fn is_due(name: &str) -> bool {
        let Some(plan) = plan() else { return false };
        if plan.delay_ms_max > 0 {
            pause(plan.next_delay());
        }
        plan.is_due(name)
    }

    /// How often a thread that is stopped looks for the file that lets it go on.
    const RESUME_EVERY: Duration = Duration::from_millis(5);

    /// Says that the place is reached, and blocks the thread for ever, or until the file exists that a test named.
    pub fn stop(name: &str) {
        let resume = std::env::var_os("FAILPOINT_RESUME");
        say(name);
        loop {
            match &resume {
                Some(file) if std::path::Path::new(file).exists() => return,
                Some(_) => pause(RESUME_EVERY),
                None => std::thread::park(),
            }
        }
    }

    /// The future; if it is to stop here, begun and never finished.
    pub async fn begin<F: Future>(name: &str, future: F) -> F::Output {
        let mut future = pin!(future);
        if is_due(name) {
            poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_ready())).await;
            say(name);
            match pending::<Infallible>().await {}
        }
        future.await
    }

    /// The place that a store passes while it writes these: for each whose it is, whether its key is new, and the number of
    /// its state. What a node remembers for itself is in another space, and passes no place.
    pub fn of_swaps<'a>(swaps: impl IntoIterator<Item = (&'a Address, bool, u8)>) -> &'static str {
        let mut requests = swaps.into_iter().filter(|(at, ..)| at.space().as_str() == "http");
        let named = requests.find_map(|(_, is_new, state)| match State::from_number(state) {
            Some(State::Running) if is_new => Some("claim-sent"),
            Some(State::Completed) => Some("completion-sent"),
            _ => None,
        });
        named.unwrap_or("other-write-sent")
    }

    fn say(name: &str) {
        // Whoever waits for the line is told in one piece, or has gone.
        let _ = std::io::stderr().lock().write_all(format!("failpoint {name}\n").as_bytes());
    }

    #[expect(clippy::disallowed_methods, reason = "a test asked for a pause of this thread")]
    fn pause(length: Duration) {
        std::thread::sleep(length);
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::address::{AddressScheme, Key, Scope, Space};

        fn address(space: &str) -> Address {
            let (scope, key) = (Scope::new("alice").unwrap(), Key::new("k").unwrap());
            Address::new(&AddressScheme::default(), &Space::new(space).unwrap(), &scope, &key)
        }

        #[test]
        fn the_named_passing_of_the_named_place_is_due_and_no_other() {
            let plan = Plan::parse("claim-durable:3", "");
            let due: Vec<bool> = (0..5).map(|_| plan.is_due("claim-durable")).collect();
            assert_eq!(due, [false, false, true, false, false]);
            assert!(!Plan::parse("claim-durable", "").is_due("claim-sent"));
            assert!(Plan::parse("claim-durable", "").is_due("claim-durable"));
        }

        #[test]
        fn what_is_misspelt_is_never_due() {
            for text in ["", ":", "claim-durable:", "claim-durable:x", "claim-durable:-1", "claim-durable:0"] {
                let plan = Plan::parse(text, "x:y");
                assert!((0..3).all(|_| !plan.is_due("claim-durable")), "{text}");
                assert_eq!(plan.next_delay(), Duration::ZERO);
            }
        }

        #[test]
        fn a_seed_stands_for_its_pauses() {
            let pauses = |seed: &str| {
                let plan = Plan::parse("", seed);
                (0..50).map(|_| plan.next_delay().as_millis()).collect::<Vec<_>>()
            };
            assert_eq!(pauses("7:20"), pauses("7:20"));
            assert_ne!(pauses("7:20"), pauses("8:20"));
            assert!(pauses("7:20").iter().all(|ms| *ms <= 20));
        }

        #[test]
        fn swaps_are_named_by_the_first_that_matters() {
            let (at, own) = (address("http"), address("hapax"));
            assert_eq!(of_swaps([(&at, false, 2), (&at, true, 2)]), "claim-sent");
            assert_eq!(of_swaps([(&own, true, 2), (&at, false, 5), (&at, true, 2)]), "completion-sent");
            assert_eq!(
                of_swaps([(&at, false, 2), (&at, false, 3), (&at, false, 99), (&own, true, 5)]),
                "other-write-sent"
            );
            assert_eq!(of_swaps([]), "other-write-sent");
        }
    }
}

#[cfg(feature = "failpoints")]
#[doc(hidden)]
pub use armed::{begin, is_due, of_swaps, stop};

#[cfg(test)]
#[cfg(not(feature = "failpoints"))]
mod tests {
    #[test]
    fn without_the_feature_a_place_is_nothing_at_all() {
        // Neither the name nor the expression is even looked at: nothing in scope is called so.
        failpoint!(no_such_name => no_such_function());
        failpoint!(async no_such_name);
        assert_eq!(failpoint_begun!(no_such_name, 7), 7);
    }
}
