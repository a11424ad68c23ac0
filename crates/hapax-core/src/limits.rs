//! Every maximum of the rule book, each with its reason.
//!
//! Limits of one file only (the depth of a JSON document, the text of a fingerprint scheme) stand in that file.

/// Longer keys are refused: they are read by people and stored with every record.
pub const KEY_CHARS_MAX: usize = 255;

/// A scope is a digest or a tenant's name; more would be a document, and it is stored with every record.
pub const SCOPE_CHARS_MAX: usize = 255;

/// A space names a use of the store (`http`, `webhook`), chosen by a developer.
pub const SPACE_CHARS_MAX: usize = 64;

/// An address scheme names how addresses are made; it is stored with every record.
pub const ADDRESS_SCHEME_CHARS_MAX: usize = 64;

/// The largest recorded body. A larger answer is recorded as "not kept" and never run again.
pub const BODY_BYTES_MAX: usize = 8 * 1024 * 1024;

/// The largest request kept for later work; the same reason as for answers.
pub const REQUEST_BYTES_MAX: usize = 8 * 1024 * 1024;

/// A checkpoint is a place to resume from, not a store for data.
pub const CHECKPOINT_BYTES_MAX: usize = 64 * 1024;

/// More header fields than any honest answer has.
pub const HEADER_COUNT_MAX: usize = 256;

/// Names and values of all header fields together.
pub const HEADER_BYTES_MAX: usize = 64 * 1024;

/// Labels are for finding a record again, and are searched one by one. Fourteen of the user's, and five of hapax's own.
pub const LABEL_COUNT_MAX: usize = 19;

/// Name and value of one label together.
pub const LABEL_BYTES_MAX: usize = 512;

/// An error code is a word for a metric or a list, not a message.
pub const ERROR_CODE_CHARS_MAX: usize = 64;

/// Who acted and what was done, in a note: names, not stories.
pub const NOTE_WORD_BYTES_MAX: usize = 128;

/// Why something was done, in a note: a few sentences and a link.
pub const NOTE_TEXT_BYTES_MAX: usize = 4 * 1024;

/// How often the engine decides again after losing a swap. Each loss means that somebody else made progress, so a
/// caller that loses this often gives up and asks its client to come back.
pub const SWAP_TRIES_MAX: u32 = 16;

/// Entries on one page of a scan: what a person or a sweep looks at in one go.
pub const PAGE_ENTRIES_MAX: u32 = 500;

/// Bytes on one page of a scan; a page of large answers ends early.
pub const PAGE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Rows a scan looks at for one page. A rare match in a large store gives short pages and a cursor, not a long silence.
pub const PAGE_ROWS_EXAMINED_MAX: u32 = 20_000;

/// Records deleted by one call of `reap`. More would hold up claims.
pub const REAP_MAX: u32 = 10_000;

/// The longest lease, retention or delay: ten years. Longer ones are a unit mistaken for another.
pub const DURATION_MS_MAX: u64 = 10 * 366 * 24 * 60 * 60 * 1000;

/// A wall clock that moved this much more or less than the boot clock was stepped, not slewed.
pub const CLOCK_STEP_MS_MIN: u64 = 1_000;

/// After a step nothing lapses or expires for this long, so that attempts that live can renew first. Longer than the
/// default lease.
pub const CLOCK_SETTLE_MS: u64 = 60_000;
