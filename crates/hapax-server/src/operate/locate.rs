//! The one record that a person means: by its id or the first digits of it, its key, its request id, or a label.
//!
//! Whoever asks, and whether a terminal is there or not, the same text means the same record. Where several fit, none is
//! chosen: they are named.

use hapax_core::address::{Key, Scope};

use super::failure::Failure;
use crate::desk::view::{Filter, RecordView};
use crate::desk::{Desk, DeskError, DeskErrorKind, usual_address};

/// Fewer digits are not taken for those of an id.
const ID_DIGITS_MIN: usize = 8;

/// Digits of a whole id.
const ID_DIGITS: usize = 64;

/// Records asked for at a time.
const PAGE: u32 = 500;

/// Pages before the search stops. Each looks at many records.
const PAGES_MAX: u32 = 1_000;

/// Records that are named where several are meant.
const NAMED_MAX: usize = 8;

const UNFINISHED: [&str; 4] = ["ready", "running", "unknown", "dead"];
const FINISHED: [&str; 2] = ["completed", "expired"];

/// What may be meant by somebody who changes something.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Among {
    /// What is unfinished, if that fits: nothing else can be resolved.
    UnfinishedFirst,
    /// Every record.
    All,
}

/// What may be meant.
struct Candidates {
    records: Vec<RecordView>,
    /// Whether every record was looked at that could fit.
    complete: bool,
}

/// The one record that is meant, to look at it.
pub(super) async fn locate(desk: &impl Desk, text: &str, scope: Option<&str>) -> Result<RecordView, Failure> {
    let found = candidates(desk, text.trim(), scope, Among::UnfinishedFirst).await?;
    one_of(found).map(|(record, _)| record)
}

/// The one record that is meant, and certainly no other, to change it.
pub(super) async fn locate_to_change(
    desk: &impl Desk,
    text: &str,
    scope: Option<&str>,
    among: Among,
) -> Result<RecordView, Failure> {
    let found = candidates(desk, text.trim(), scope, among).await?;
    match one_of(found)? {
        (record, true) => Ok(record),
        (record, false) => {
            let id = record.id;
            let message = format!(
                "the search stopped before the last record, so others than {id} may fit too; name it by its id, or by --scope"
            );
            Err(DeskError::new(DeskErrorKind::Several, message).into())
        }
    }
}

/// Whether these may be the first digits of an id.
pub(super) fn is_part_of_id(text: &str) -> bool {
    (ID_DIGITS_MIN..=ID_DIGITS).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The cheap ways first: a whole id, and with a scope what is unfinished and where the key usually is.
async fn candidates(desk: &impl Desk, text: &str, scope: Option<&str>, among: Among) -> Result<Candidates, Failure> {
    let filter = Filter { find: Some(text.to_owned()), scope: scope.map(str::to_owned), ..Filter::default() };
    let in_states =
        |states: &[&str]| Filter { states: states.iter().map(|&it| it.to_owned()).collect(), ..filter.clone() };
    match scope {
        // Keys may look like ids.
        None if text.len() == ID_DIGITS && is_part_of_id(text) => {
            if let Some(record) = shown(desk, text).await? {
                return Ok(Candidates { records: vec![record], complete: true });
            }
        }
        None => {}
        Some(scope) => {
            let mut found = search(desk, &in_states(&UNFINISHED), text).await?;
            let usual = usual(desk, text, scope).await?;
            // Scope and key are the whole address where keys are unique per caller: that record is meant. Otherwise the key, or a
            // label, may stand in finished records, too.
            let only_usual = usual.as_ref().is_some_and(|usual| found.records.iter().all(|it| it.id == usual.id));
            found.records.extend(usual.filter(|usual| found.records.iter().all(|it| it.id != usual.id)));
            if !found.records.is_empty() && (only_usual || among == Among::UnfinishedFirst) {
                return Ok(found);
            }
        }
    }
    if among == Among::UnfinishedFirst {
        return search(desk, &filter, text).await;
    }
    // Apart, because a search that has found something does not go on to the labels of what is finished.
    let mut found = search(desk, &in_states(&UNFINISHED), text).await?;
    let finished = search(desk, &in_states(&FINISHED), text).await?;
    found.complete &= finished.complete;
    found.records.extend(finished.records);
    Ok(found)
}

/// Everything that the filter names and that is meant; of many, enough to say so.
async fn search(desk: &impl Desk, filter: &Filter, text: &str) -> Result<Candidates, Failure> {
    let mut found = Candidates { records: Vec::new(), complete: false };
    let mut after: Option<String> = None;
    for _ in 0..PAGES_MAX {
        let page = desk.list(filter, after.as_deref(), PAGE).await?;
        found.records.extend(page.records.into_iter().filter(|record| is_meant(record, text)));
        found.complete = page.next.is_none();
        if found.complete || found.records.len() > NAMED_MAX {
            break;
        }
        after = page.next;
    }
    Ok(found)
}

/// The record of that key where keys are unique per caller, as they are by default.
async fn usual(desk: &impl Desk, key: &str, scope: &str) -> Result<Option<RecordView>, Failure> {
    let parts = Scope::new(scope).ok().zip(Key::new(key).ok());
    match parts.and_then(|(scope, key)| usual_address(&scope, &key)) {
        Some(address) => shown(desk, &address.id().to_string()).await,
        None => Ok(None),
    }
}

async fn shown(desk: &impl Desk, id: &str) -> Result<Option<RecordView>, Failure> {
    match desk.show(id, false).await {
        Err(error) if error.kind == DeskErrorKind::NotFound => Ok(None),
        shown => Ok(Some(shown?)),
    }
}

fn is_meant(record: &RecordView, text: &str) -> bool {
    let by_label = |(name, value): (&String, &String)| value == text || format!("{name}={value}") == text;
    record.key == text
        || record.labels.iter().any(by_label)
        || (is_part_of_id(text) && record.id.starts_with(&text.to_ascii_lowercase()))
}

/// The only one, and whether it is certain that there is no other.
fn one_of(mut found: Candidates) -> Result<(RecordView, bool), Failure> {
    if found.records.len() > 1 {
        return Err(several(&found.records).into());
    }
    let complete = found.complete;
    found.records.pop().map(|record| (record, complete)).ok_or_else(|| {
        let stopped = if complete { "" } else { " among those that were looked at" };
        let message =
            format!("there is no such record{stopped}; `hapax keys list TEXT` finds parts of keys and scopes");
        DeskError::new(DeskErrorKind::NotFound, message).into()
    })
}

fn several(records: &[RecordView]) -> DeskError {
    let named = records.iter().take(NAMED_MAX);
    let named: Vec<String> =
        named.map(|record| format!("{} ({}, scope {})", record.id, record.state, record.scope)).collect();
    let more = if records.len() > NAMED_MAX { ", and more" } else { "" };
    let message = format!("several records fit: {}{more}; name one by its id, or by --scope", named.join(", "));
    DeskError::new(DeskErrorKind::Several, message)
}
