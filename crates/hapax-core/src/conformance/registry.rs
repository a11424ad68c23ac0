//! The list of cases: the only one. The tests of the macro, [`CASES`] and the table in the document follow from it.

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
                absent_is_none_with_the_time: "a new store has no records and says what time it is",
                on_absent_is_applied: "expecting nothing where there is nothing writes the record",
                on_matching_version_is_applied:
                    "expecting the version that stands there writes the record, in every state",
                on_stale_version_is_lost: "expecting any other version changes nothing",
                expecting_a_version_on_absent_is_lost: "expecting a version where there is nothing writes nothing",
                expecting_none_on_present_is_lost:
                    "expecting nothing where there is a record changes nothing, in every state",
                lost_carries_the_whole_record: "a lost swap brings the record that stands there, with every field",
                lost_carries_the_latest_record: "a lost swap brings the record as it was last written",
                applied_is_stamped_with_the_time_it_returns:
                    "a write is stamped with the store's time at the write, and says which",
                a_record_is_replaced_whole: "nothing of the old record is left in the new one",
                records_do_not_touch_each_other: "a version is compared at its own address only",
                every_handle_reads_what_one_wrote:
                    "a write that was acknowledged is seen by the next read, on every handle",
            }
            values {
                empty_body_is_not_an_absent_one:
                    "a body of 0 bytes, a body that was not kept, and no answer are three things",
                every_byte_value: "bodies of 1 byte and of all 256 byte values come back",
                bodies_around_powers_of_two: "bodies come back whole at the sizes where formats change",
                largest_body: "a body of 8 MiB comes back",
                headers_keep_order_and_repeats: "header fields come back in order, with repeats",
                odd_headers: "empty values, spaces, and bytes that are not text come back",
                two_hundred_headers: "200 and 256 header fields come back",
                every_optional_field_empty: "a record with no optional field comes back, in every state",
                every_optional_field_filled: "a record with every optional field comes back, in every state",
                every_verdict_and_policy: "every verdict and every policy comes back",
                durations_and_numbers_up_to_their_limits:
                    "durations of 0 ms to ten years and the largest numbers come back",
                texts_come_back_untouched: "texts are not trimmed, normalised, cut or taken for something else",
                largest_record: "a record with everything at its limit comes back",
            }
            keys {
                longest_parts: "parts of the greatest length that differ in their last character are different",
                quotes_and_backslashes: "quotes, backslashes and placeholders are ordinary characters",
                escapes_that_look_like_nul: "texts that spell a NUL are not one",
                sql_in_keys_and_scopes: "SQL in a key or scope is text",
                glob_and_like_characters: "wildcards in a key match nothing but themselves",
                spaces_count: "spaces before, after and within count",
                upper_and_lower_case_differ: "keys and scopes that differ in case are different",
                unicode_in_scopes: "scopes may have any script, direction and emoji",
                composed_and_decomposed_scopes_differ: "scopes are not normalised",
                the_border_between_scope_and_key_counts: "`a:b` + `c` and `a` + `b:c` are different",
                spaces_scopes_and_schemes_keep_keys_apart:
                    "the same key in another space, scope or scheme is another key",
            }
            lease {
                claim_holds_the_key: "a claimed key is busy for others, and only that key",
                lapses_after_its_length_and_not_before:
                    "a lease lapses by the store's time: after its length, not before",
                renew_lengthens_it: "a renewed lease is counted from the renewal",
                renewed_after_a_lapse_runs_again: "an attempt that lives takes its record back from doubt",
                checkpoint_is_handed_to_the_next_attempt: "the next attempt resumes from the last checkpoint",
                completed_is_replayed_byte_for_byte: "a recorded answer is replayed unchanged, and found by its labels",
                outcome_expires_after_its_retention_and_not_before:
                    "an answer is replayed until it expires; then the key is free",
                failed_may_run_again_when_it_is_due:
                    "after a failure the next attempt starts when it is due, not before",
                dead_when_its_attempts_are_used_up:
                    "the last failed attempt leaves a dead record, which a verdict frees",
                doubt_waits_for_a_verdict: "a record in doubt stays so until somebody resolves it",
                late_completion_after_a_lapse_is_recorded: "an answer that comes after the lapse is recorded",
                late_completion_after_a_takeover_is_fenced: "an answer that comes after a takeover changes nothing",
                mismatch_changes_nothing: "another request under the same key is refused and changes nothing",
                accepted_request_reaches_a_worker_whole: "a request that was kept for later reaches a worker unchanged",
                tombstone_stands_for_its_time: "an expired key is gone for as long as its tombstone stands",
                stale_knowledge_is_found_out: "a caller that remembers an old record, or none, gets the right answer",
            }
            clock {
                time_passes_in_the_store: "every operation says the store's time, and it passes",
                stamps_of_a_record_never_run_backwards:
                    "whatever the host's clock does, stamps of a record do not decrease",
                step_forward_frees_no_key: "the host's clock an hour ahead frees no key",
                step_back_frees_no_key: "the host's clock an hour behind frees no key",
                step_before_a_restart_frees_no_key: "nor does a step that only a restarted store can notice",
                lapse_pauses_until_the_clock_has_settled: "after a step no lease lapses until the clock has settled",
                expiry_pauses_until_the_clock_has_settled:
                    "after a step nothing expires or is reaped until the clock has settled",
                nothing_is_due_while_it_pauses: "after a step nothing is due until the clock has settled",
                step_is_reported: "a step is reported by health, and steps add up",
                reads_notice_a_step_too: "each operation notices a step by itself",
            }
            scan {
                of_an_empty_store_is_one_empty_page: "a new store has one page with nothing on it",
                by_state: "by one state, by several, by none",
                by_state_follows_every_write: "whatever state follows whatever, a scan knows the latest",
                by_state_without_a_due_time: "a record without a due time is found by its state, and never due",
                by_due_now_follows_the_time: "what is due by the store's own time",
                by_due_time_in_its_order: "what is due by a moment, in order",
                by_scope_exactly: "by a scope as it is written",
                by_label_exactly: "by a label's name and value as they are written",
                by_text_in_scope_or_key: "by a piece of the scope or of the key",
                text_has_no_wildcards: "in a text that is searched for, `%`, `_` and others are ordinary characters",
                conditions_add_up: "all 144 combinations of conditions find what matches all of them",
            }
            paging {
                sees_each_record_once: "pages of 1, 7, 50, 100 and 101 show each of 100 records once",
                stable_while_records_change:
                    "writes, inserts and reaping between pages neither hide nor repeat an untouched record",
                stable_by_due_time_while_records_change: "the same in order of due time, while due times change",
                goes_on_where_the_last_record_was_deleted: "a scan goes on although the record it stopped at is gone",
                limit_of_nothing_counts_as_one: "a limit of 0 makes progress",
                limit_has_a_limit: "a limit of a thousand million gives pages of 500",
                forged_cursor_is_invalid: "a cursor that nobody handed out is refused as invalid",
                page_of_large_bodies_ends_early: "a page of large answers ends early, and the next one goes on",
            }
            reap {
                takes_only_what_has_expired: "completed, ready and expired records whose time has come, and no others",
                waits_until_the_moment: "nothing is reaped before it expires by the store's time",
                oldest_first: "what expired first is reaped first",
                in_batches_of_the_limit: "no more than the limit, and fewer only if nothing more is due",
                never_running_unknown_or_dead: "what somebody must still act on is never reaped",
                leaves_what_must_become_a_tombstone: "where a tombstone is kept, only the tombstone is reaped",
                key_starts_anew_afterwards: "a reaped key starts again with attempt 1",
                leaves_what_was_written_again: "a record that was written after it expired is not reaped",
                racing_a_claim_loses_no_live_record: "a claim and a reap at once: what was claimed stays",
            }
            race {
                sixty_four_inserts_have_one_winner: "64 tasks insert at one address, 200 times: one winner each time",
                sixty_four_updates_have_one_winner: "64 tasks replace the same version, 50 times: one winner each time",
                sixty_four_claims_have_one_attempt: "64 claims of one key: one proceeds, the others see it",
                no_update_is_lost: "16 tasks count in one record, and nothing is lost",
                chains_of_writes_fit_one_order: "swaps that build on each other, sent in all 24 orders, fit one order",
                two_processes_have_one_winner_per_key: "two processes insert at 500 addresses: one winner each",
                two_processes_lose_no_update: "two processes count in one record, and nothing is lost",
            }
            fault {
                lost_reply_is_recognised: "a write whose reply was lost is recognised by its writer",
                lost_request_is_tried_again: "a write that never arrived is made once",
                dropped_swap_leaves_a_whole_record_or_none:
                    "a call that is dropped half way leaves a whole record or none",
                restart_keeps_what_was_acknowledged:
                    "what was acknowledged is there after a restart, unless health says otherwise",
                time_goes_on_after_a_restart: "store time and leases go on over a restart",
                restart_in_the_middle_of_traffic: "a restart under load loses nothing that was acknowledged",
                health_says_what_survives: "health says whether records survive a restart",
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
