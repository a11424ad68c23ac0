//! How much of a long test is run: a part with all the others, the whole by `cargo xtask storms`.

/// Set for the whole.
pub const WHOLE: &str = "HAPAX_WHOLE";

/// So many, or only `part` of them.
pub fn or_part(whole: usize, part: usize) -> usize {
    if std::env::var_os(WHOLE).is_some() { whole } else { part }
}
