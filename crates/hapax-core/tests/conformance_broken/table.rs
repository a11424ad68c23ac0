//! Which cases each broken store must fail.

use std::sync::Arc;

use crate::bent::AnyBend;
use crate::{reads, writes};

/// A store with one fault.
pub(crate) struct Broken {
    pub(crate) name: &'static str,
    pub(crate) fault: &'static str,
    /// Makes the fault.
    pub(crate) bend: fn() -> Arc<dyn AnyBend>,
    /// The cases that it must fail. It may fail others too.
    pub(crate) must_fail: &'static [&'static str],
}

macro_rules! broken {
    ($($name:ident: $bend:ty, $fault:literal, [$($case:literal,)*];)*) => {
        /// Every broken store.
        pub(crate) const BROKEN: &[Broken] = &[$(Broken {
            name: stringify!($name),
            fault: $fault,
            bend: || Arc::<$bend>::default(),
            must_fail: &[$($case,)*],
        },)*];

        /// One test per broken store.
        mod fails_its_cases {
            $(
                #[test]
                fn $name() {
                    crate::assert_fails(stringify!($name));
                }
            )*
        }
    };
}

broken! {
    ignores_the_version: writes::IgnoresTheVersion,
        "updates by address, without looking at the version",
        [
            "swap::on_stale_version_is_lost",
            "swap::lost_carries_the_whole_record",
            "swap::lost_carries_the_latest_record",
            "lease::late_completion_after_a_takeover_is_fenced",
            "race::sixty_four_updates_have_one_winner",
            "race::chains_of_writes_fit_one_order",
        ];
    insert_overwrites: writes::InsertOverwrites,
        "an insert is an upsert",
        [
            "swap::expecting_none_on_present_is_lost",
            "swap::lost_carries_the_whole_record",
            "swap::lost_carries_the_latest_record",
            "lease::claim_holds_the_key",
            "lease::completed_is_replayed_byte_for_byte",
            "lease::doubt_waits_for_a_verdict",
            "lease::mismatch_changes_nothing",
            "lease::accepted_request_reaches_a_worker_whole",
            "race::sixty_four_inserts_have_one_winner",
            "race::sixty_four_claims_have_one_attempt",
            "race::two_processes_have_one_winner_per_key",
            "fault::lost_reply_is_recognised",
            "fault::lost_request_is_tried_again",
        ];
    update_inserts: writes::UpdateInserts,
        "an update of nothing is an insert",
        [
            "swap::expecting_a_version_on_absent_is_lost",
            "swap::records_do_not_touch_each_other",
            "clock::time_passes_in_the_store",
            "reap::key_starts_anew_afterwards",
        ];
    looks_then_writes: writes::LooksThenWrites,
        "reads, compares, and writes a moment later",
        [
            "race::sixty_four_inserts_have_one_winner",
            "race::sixty_four_updates_have_one_winner",
            "race::sixty_four_claims_have_one_attempt",
            "race::no_update_is_lost",
        ];
    writes_in_two_steps: writes::WritesInTwoSteps,
        "writes a record without its answer, and the answer a moment later",
        [
            "fault::dropped_swap_leaves_a_whole_record_or_none",
        ];
    lost_without_the_record: writes::LostWithoutTheRecord,
        "says that a swap was lost, but not to what",
        [
            "swap::on_stale_version_is_lost",
            "swap::expecting_none_on_present_is_lost",
            "swap::lost_carries_the_whole_record",
            "swap::lost_carries_the_latest_record",
            "lease::claim_holds_the_key",
            "lease::mismatch_changes_nothing",
            "lease::stale_knowledge_is_found_out",
            "race::sixty_four_inserts_have_one_winner",
            "race::sixty_four_updates_have_one_winner",
            "fault::lost_reply_is_recognised",
        ];
    lost_with_a_stale_record: writes::LostWithAStaleRecord,
        "says that a swap was lost to the record as it was first written",
        [
            "swap::on_stale_version_is_lost",
            "swap::lost_carries_the_latest_record",
            "lease::completed_is_replayed_byte_for_byte",
            "lease::failed_may_run_again_when_it_is_due",
            "lease::dead_when_its_attempts_are_used_up",
            "lease::late_completion_after_a_lapse_is_recorded",
            "reap::key_starts_anew_afterwards",
            "race::sixty_four_updates_have_one_winner",
        ];
    reads_from_a_behind_copy: writes::ReadsFromABehindCopy,
        "reads come from a copy that is one write behind",
        [
            "swap::on_absent_is_applied",
            "swap::on_matching_version_is_applied",
            "swap::every_handle_reads_what_one_wrote",
            "lease::renewed_after_a_lapse_runs_again",
            "race::no_update_is_lost",
            "race::two_processes_lose_no_update",
            "fault::lost_request_is_tried_again",
        ];
    headers_in_a_map: writes::Garbles<writes::HeadersInAMap>,
        "keeps header fields in a map: no order, no repeats",
        [
            "values::headers_keep_order_and_repeats",
            "values::odd_headers",
            "values::two_hundred_headers",
            "values::largest_record",
        ];
    headers_as_text: writes::Garbles<writes::HeadersAsText>,
        "keeps header values as text, trimmed",
        [
            "values::odd_headers",
            "values::two_hundred_headers",
            "values::largest_record",
        ];
    bodies_cut_at_1_mib: writes::Garbles<writes::BodiesCutAtOneMib>,
        "bodies end after 1 MiB",
        [
            "values::bodies_around_powers_of_two",
            "values::largest_body",
            "values::largest_record",
            "paging::page_of_large_bodies_ends_early",
        ];
    bodies_end_at_nul: writes::Garbles<writes::BodiesEndAtNul>,
        "bodies end at their first NUL",
        [
            "values::every_byte_value",
            "values::bodies_around_powers_of_two",
            "values::largest_body",
            "values::largest_record",
            "paging::page_of_large_bodies_ends_early",
            "fault::dropped_swap_leaves_a_whole_record_or_none",
        ];
    empty_body_is_none: writes::Garbles<writes::EmptyBodyIsNone>,
        "an empty body is kept as none",
        [
            "values::empty_body_is_not_an_absent_one",
        ];
    merges_records: writes::Garbles<writes::MergesRecords>,
        "fields that are empty in the new record stay as they were in the old one",
        [
            "swap::on_matching_version_is_applied",
            "swap::a_record_is_replaced_whole",
            "lease::tombstone_stands_for_its_time",
            "reap::leaves_what_was_written_again",
        ];
    forgets_the_policy: writes::Garbles<writes::ForgetsThePolicy>,
        "keeps the answer, and leaves out policy, checkpoint, request and verdict",
        [
            "values::every_optional_field_filled",
            "values::every_verdict_and_policy",
            "lease::checkpoint_is_handed_to_the_next_attempt",
            "lease::outcome_expires_after_its_retention_and_not_before",
            "lease::dead_when_its_attempts_are_used_up",
            "lease::accepted_request_reaches_a_worker_whole",
            "lease::tombstone_stands_for_its_time",
            "reap::leaves_what_must_become_a_tombstone",
        ];
    nothing_is_zero: writes::Garbles<writes::NothingIsZero>,
        "an empty due time or tombstone time is kept as zero",
        [
            "values::empty_body_is_not_an_absent_one",
            "values::every_optional_field_empty",
            "scan::by_state_without_a_due_time",
        ];
    durations_in_32_bits: writes::Garbles<writes::DurationsInThirtyTwoBits>,
        "due and expiry times are kept in 32 bits",
        [
            "values::durations_and_numbers_up_to_their_limits",
        ];
    texts_trimmed: writes::Garbles<writes::TextsTrimmed>,
        "labels and errors are trimmed",
        [
            "values::texts_come_back_untouched",
        ];
    address_joined_by_colon: writes::Confuses<writes::AddressJoinedByColon>,
        "the parts of an address are joined by a colon",
        [
            "keys::the_border_between_scope_and_key_counts",
        ];
    case_does_not_count: writes::Confuses<writes::CaseDoesNotCount>,
        "addresses that differ in upper and lower case are the same",
        [
            "keys::upper_and_lower_case_differ",
            "keys::composed_and_decomposed_scopes_differ",
            "keys::spaces_scopes_and_schemes_keep_keys_apart",
            "scan::by_scope_exactly",
        ];
    spaces_do_not_count: writes::Confuses<writes::SpacesDoNotCount>,
        "spaces around the parts of an address do not count",
        [
            "keys::spaces_count",
            "scan::by_scope_exactly",
        ];
    parts_cut_short: writes::Confuses<writes::PartsCutShort>,
        "only the first 200 characters of a part count",
        [
            "keys::longest_parts",
        ];
    marks_do_not_count: writes::Confuses<writes::MarksDoNotCount>,
        "letters with and without marks are the same, as in a forgiving collation",
        [
            "keys::unicode_in_scopes",
            "keys::composed_and_decomposed_scopes_differ",
            "scan::by_scope_exactly",
        ];
    escapes_are_read: writes::Confuses<writes::EscapesAreRead>,
        "escapes in a key are taken for what they spell",
        [
            "keys::quotes_and_backslashes",
            "keys::escapes_that_look_like_nul",
        ];
    space_does_not_count: writes::Confuses<writes::SpaceDoesNotCount>,
        "space and scheme are not part of the address",
        [
            "keys::longest_parts",
            "keys::spaces_scopes_and_schemes_keep_keys_apart",
        ];
    addresses_sanitised: writes::AddressesSanitised,
        "a scan shows addresses with odd characters replaced",
        [
            "keys::longest_parts",
            "keys::quotes_and_backslashes",
            "keys::escapes_that_look_like_nul",
            "keys::sql_in_keys_and_scopes",
            "keys::glob_and_like_characters",
            "keys::spaces_count",
            "keys::unicode_in_scopes",
            "keys::composed_and_decomposed_scopes_differ",
            "scan::by_scope_exactly",
            "scan::text_has_no_wildcards",
        ];
    no_time_for_nothing: reads::NoTimeForNothing,
        "where there is no record, there is no time either",
        [
            "swap::absent_is_none_with_the_time",
            "clock::time_passes_in_the_store",
            "reap::waits_until_the_moment",
        ];
    scans_never_end: reads::ScansNeverEnd,
        "every page has a next one",
        [
            "scan::of_an_empty_store_is_one_empty_page",
            "scan::by_state",
            "paging::sees_each_record_once",
            "paging::limit_of_nothing_counts_as_one",
        ];
    one_state_at_a_time: reads::OneStateAtATime,
        "of several states only the first counts",
        [
            "scan::by_state",
            "scan::conditions_add_up",
        ];
    no_pages: reads::NoPages,
        "all that matches is on one page",
        [
            "paging::sees_each_record_once",
            "paging::stable_while_records_change",
            "paging::stable_by_due_time_while_records_change",
            "paging::goes_on_where_the_last_record_was_deleted",
            "paging::limit_of_nothing_counts_as_one",
            "paging::limit_has_a_limit",
            "paging::forged_cursor_is_invalid",
            "paging::page_of_large_bodies_ends_early",
        ];
    pages_by_offset: reads::PagesByOffset,
        "a place in a scan is the number of records before it",
        [
            "paging::stable_while_records_change",
            "paging::stable_by_due_time_while_records_change",
            "paging::goes_on_where_the_last_record_was_deleted",
            "paging::page_of_large_bodies_ends_early",
        ];
    pages_by_due_time_alone: reads::PagesByDueTimeAlone,
        "a place in a scan is a due time alone, which many records share",
        [
            "scan::conditions_add_up",
            "paging::sees_each_record_once",
            "paging::stable_by_due_time_while_records_change",
            "paging::limit_has_a_limit",
        ];
    forgives_forged_cursors: reads::ForgivesForgedCursors,
        "a cursor that cannot be read starts the scan again",
        [
            "paging::forged_cursor_is_invalid",
        ];
    text_with_wildcards: reads::TextWithWildcards,
        "text is searched with `LIKE`",
        [
            "scan::by_text_in_scope_or_key",
            "scan::text_has_no_wildcards",
        ];
    any_condition_will_do: reads::AnyConditionWillDo,
        "where scope and label are asked for, the scope is enough",
        [
            "scan::conditions_add_up",
        ];
    finds_what_is_alike: reads::FindsWhatIsAlike,
        "a scope is found by how it begins, a label by its value",
        [
            "scan::by_scope_exactly",
            "scan::by_label_exactly",
        ];
    index_is_not_updated: reads::IndexIsNotUpdated,
        "the states that a scan knows are those of the first write",
        [
            "scan::by_state_follows_every_write",
        ];
    due_in_no_order: reads::DueInNoOrder,
        "due records come in the order of writing, those without a due time among them",
        [
            "scan::by_state_without_a_due_time",
            "scan::by_due_now_follows_the_time",
            "scan::by_due_time_in_its_order",
            "scan::conditions_add_up",
        ];
    due_in_spite_of_the_pause: reads::DueInSpiteOfThePause,
        "records are due by a clock that is not trusted",
        [
            "clock::nothing_is_due_while_it_pauses",
        ];
    reaps_running: reads::ReapsRunning,
        "reaps whatever has passed its due time",
        [
            "reap::never_running_unknown_or_dead",
        ];
    reaps_before_the_tombstone: reads::ReapsBeforeTheTombstone,
        "reaps expired records before they became tombstones, and more than the limit",
        [
            "reap::takes_only_what_has_expired",
            "reap::oldest_first",
            "reap::in_batches_of_the_limit",
            "reap::leaves_what_must_become_a_tombstone",
        ];
    reap_ignores_the_limit: reads::ReapIgnoresTheLimit,
        "reaps all that has expired, however few are asked for",
        [
            "reap::oldest_first",
            "reap::in_batches_of_the_limit",
        ];
    reaps_by_an_old_list: reads::ReapsByAnOldList,
        "makes a list of what has expired and deletes it a moment later, newest first",
        [
            "reap::oldest_first",
            "reap::racing_a_claim_loses_no_live_record",
        ];
    follows_the_wall_clock: reads::FollowsTheWallClock,
        "its time is the wall clock, wherever that is set",
        [
            "clock::stamps_of_a_record_never_run_backwards",
            "clock::step_forward_frees_no_key",
            "clock::step_back_frees_no_key",
            "clock::lapse_pauses_until_the_clock_has_settled",
            "clock::expiry_pauses_until_the_clock_has_settled",
            "clock::nothing_is_due_while_it_pauses",
            "clock::step_is_reported",
            "clock::reads_notice_a_step_too",
        ];
    never_pauses: reads::NeverPauses,
        "does not say that its clock was stepped",
        [
            "clock::lapse_pauses_until_the_clock_has_settled",
            "clock::expiry_pauses_until_the_clock_has_settled",
            "clock::step_is_reported",
            "clock::reads_notice_a_step_too",
        ];
    stamps_a_constant: reads::StampsAConstant,
        "every moment is the same",
        [
            "swap::applied_is_stamped_with_the_time_it_returns",
            "lease::lapses_after_its_length_and_not_before",
            "lease::renew_lengthens_it",
            "lease::renewed_after_a_lapse_runs_again",
            "lease::outcome_expires_after_its_retention_and_not_before",
            "lease::failed_may_run_again_when_it_is_due",
            "lease::late_completion_after_a_lapse_is_recorded",
            "clock::time_passes_in_the_store",
            "reap::waits_until_the_moment",
        ];
    forgets_on_restart: reads::ForgetsOnRestart,
        "says that records survive on disk, and loses them at a restart",
        [
            "clock::step_before_a_restart_frees_no_key",
            "fault::restart_keeps_what_was_acknowledged",
            "fault::time_goes_on_after_a_restart",
            "fault::restart_in_the_middle_of_traffic",
        ];
    promises_a_disk: reads::PromisesADisk,
        "says that records survive on disk, where no restart and no second process can find them",
        [
            "race::two_processes_have_one_winner_per_key",
            "race::two_processes_lose_no_update",
            "clock::step_before_a_restart_frees_no_key",
            "fault::restart_keeps_what_was_acknowledged",
            "fault::time_goes_on_after_a_restart",
            "fault::restart_in_the_middle_of_traffic",
            "fault::health_says_what_survives",
        ];
}
