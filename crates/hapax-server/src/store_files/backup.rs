//! `hapax store backup`: a consistent copy, and what it holds.

use std::fmt::Write as _;

use hapax_sqlite::{Contents, back_up};

use super::StoreFileError;
use super::args::BackupArgs;
use super::open;
use crate::timestamp;

/// Makes the copy and says what it holds.
pub(super) fn run(args: &BackupArgs, environment: Vec<(String, String)>) -> Result<String, StoreFileError> {
    let from = open::file(&args.store, environment)?;
    if !from.exists() {
        return Err(StoreFileError::Missing(from));
    }
    let contents = back_up(&from, &args.to, args.force)?;
    Ok(format!("Backed up {} to {}.\n{}", from.display(), args.to.display(), shown(&contents)))
}

/// Records by state, the newest moment, the size.
pub(super) fn shown(contents: &Contents) -> String {
    let total: u64 = contents.states.iter().map(|(_, count)| count).sum();
    let each: Vec<String> = contents.states.iter().map(|(state, count)| format!("{count} {state}")).collect();
    let each = if each.is_empty() { "no records".to_owned() } else { each.join(", ") };
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(text, "It holds {total} records, hapax's own included ({each}), {} bytes.", contents.bytes);
    let _ = writeln!(text, "It knows of everything up to {}.", timestamp::text(contents.newest));
    text
}
