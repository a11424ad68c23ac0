//! The one record that a person means: by its id or the first digits of it, its key, its request id, or a label.

use super::failure::Failure;
use super::list::gather;
use crate::desk::view::{Filter, RecordView};
use crate::desk::{Desk, DeskError, DeskErrorKind};

/// Fewer digits are not taken for those of an id.
const ID_DIGITS_MIN: usize = 8;

/// Digits of a whole id.
const ID_DIGITS: usize = 64;

/// Records that are looked at for one that is meant.
const LOOKED_AT_MAX: u32 = 5_000;

/// Records that are named where several are meant.
const NAMED_MAX: usize = 8;

/// The one record that is meant.
pub(super) async fn locate(desk: &impl Desk, text: &str, scope: Option<&str>) -> Result<RecordView, Failure> {
    let text = text.trim();
    if is_whole_id(text) && scope.is_none() {
        match desk.show(text, false).await {
            // Keys may look like ids.
            Err(error) if error.kind == DeskErrorKind::NotFound => {}
            shown => return Ok(shown?),
        }
    }
    let filter = Filter { find: Some(text.to_owned()), scope: scope.map(str::to_owned), ..Filter::default() };
    let found = gather(desk, &filter, None, LOOKED_AT_MAX).await?;
    let complete = found.next.is_none();
    let mut meant: Vec<RecordView> = found.records.into_iter().filter(|record| is_meant(record, text)).collect();
    if meant.len() > 1 {
        return Err(several(&meant).into());
    }
    meant.pop().ok_or_else(|| {
        let stopped = if complete { "" } else { " among those that were looked at" };
        let message =
            format!("there is no such record{stopped}; `hapax keys list TEXT` finds parts of keys and scopes");
        DeskError::new(DeskErrorKind::NotFound, message).into()
    })
}

pub(super) fn is_whole_id(text: &str) -> bool {
    text.len() == ID_DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Whether these may be the first digits of an id.
pub(super) fn is_part_of_id(text: &str) -> bool {
    (ID_DIGITS_MIN..=ID_DIGITS).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn is_meant(record: &RecordView, text: &str) -> bool {
    let by_label = |(name, value): (&String, &String)| value == text || format!("{name}={value}") == text;
    record.key == text
        || record.labels.iter().any(by_label)
        || (is_part_of_id(text) && record.id.starts_with(&text.to_ascii_lowercase()))
}

fn several(records: &[RecordView]) -> DeskError {
    let named = records.iter().take(NAMED_MAX);
    let named: Vec<String> =
        named.map(|record| format!("{} ({}, scope {})", record.id, record.state, record.scope)).collect();
    let more = if records.len() > NAMED_MAX { ", and more" } else { "" };
    let message = format!("several records fit: {}{more}; name one by its id, or by --scope", named.join(", "));
    DeskError::new(DeskErrorKind::Several, message)
}
