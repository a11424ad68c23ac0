//! The one record that a person means: by its id or the first digits of it, its key, its request id, or a label.
//!
//! Whoever asks, and whether a terminal is there or not, the same text means the same record, letter by letter: blanks and
//! quotation marks count. A key goes before a label. Where several fit, none is chosen: they are named; and so is what could
//! not be read. To look at a record, any of these is enough. To change it, it must be said whose it is ([`bound`]).

use hapax_core::address::Key;

use super::failure::Failure;
use crate::desk::bound::{self, Bond, By};
use crate::desk::view::{DamagedView, Filter, RecordView};
use crate::desk::{Desk, DeskError, DeskErrorKind, is_observed};

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

/// A command that changes the record it names.
pub(super) struct ToChange<'a> {
    /// Its name after `hapax keys`.
    pub(super) command: &'static str,
    pub(super) text: &'a str,
    pub(super) scope: Option<&'a str>,
    pub(super) among: Among,
    /// `--keys-unique`.
    pub(super) keys_unique: bool,
    /// Whether a body is recorded.
    pub(super) has_body: bool,
}

/// How a person names a record.
#[derive(Clone, Copy)]
struct Named<'a> {
    text: &'a str,
    scope: Option<&'a str>,
}

/// What may be meant.
#[derive(Default)]
struct Candidates {
    records: Vec<RecordView>,
    /// What could not be read meanwhile.
    damaged: Vec<DamagedView>,
    /// Whether every record was looked at that could fit.
    complete: bool,
}

/// The one record that is meant, to look at it. A key may be given in quotation marks, as it stands in the request, where no
/// key has them.
pub(super) async fn locate(desk: &impl Desk, text: &str, scope: Option<&str>) -> Result<RecordView, Failure> {
    let named = Named { text, scope };
    let found = candidates(desk, named, Among::UnfinishedFirst).await?;
    if !found.records.is_empty() {
        return one_of(found, named).map(|(record, _)| record);
    }
    if let Some(key) = unquoted(text) {
        let mut inside = candidates(desk, Named { text: &key, scope }, Among::UnfinishedFirst).await?;
        inside.records.retain(|record| record.key == key);
        if inside.records.len() == 1 && inside.complete {
            return one_of(inside, Named { text: &key, scope }).map(|(record, _)| record);
        }
    }
    Err(missing(desk, found, named).await?)
}

/// The one record that is meant, and certainly no other, to change it.
pub(super) async fn locate_to_change(desk: &impl Desk, change: &ToChange<'_>) -> Result<RecordView, Failure> {
    let named = Named { text: change.text, scope: change.scope };
    let found = candidates(desk, named, change.among).await?;
    if found.records.is_empty() {
        return Err(missing(desk, found, named).await?);
    }
    let (record, is_certain) = one_of(found, named)?;
    check_bound(change, &record)?;
    if is_certain {
        return Ok(record);
    }
    let id = record.id;
    let message = format!(
        "the search stopped before the last record, so others than {id} may fit too; name it by its id, or by --scope"
    );
    Err(DeskError::new(DeskErrorKind::Several, message).into())
}

/// Refuses what a caller may have written, and shows what it has found, with what to type if that is the one.
fn check_bound(change: &ToChange<'_>, record: &RecordView) -> Result<(), Failure> {
    let by = match change.text {
        text if has_id(record, text) => By::Id,
        text if record.key == text => By::Key,
        _ => By::Label,
    };
    let bond = Bond { scoped: change.scope.is_some(), keys_unique: change.keys_unique, has_body: change.has_body };
    let Some(why) = bound::unbound(by, bond) else { return Ok(()) };
    let (shown, command, id) = (described(record), change.command, &record.id);
    Err(Failure::usage(format!(
        "one record fits, {shown}, but {why}; if it is the one that you mean, name it by its id: `hapax keys {command} {id}` \
         and the same flags"
    )))
}

/// A record as errors show it.
fn described(record: &RecordView) -> String {
    let RecordView { id, state, key, scope, .. } = record;
    format!("{id} ({state}, key {key:?}, scope {scope})")
}

/// Whether these may be the first digits of an id.
pub(super) fn is_part_of_id(text: &str) -> bool {
    (ID_DIGITS_MIN..=ID_DIGITS).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Whether somebody may have meant the text without what is around it.
pub(super) fn is_padded(text: &str) -> bool {
    text.trim() != text || unquoted(text).is_some()
}

async fn candidates(desk: &impl Desk, named: Named<'_>, among: Among) -> Result<Candidates, Failure> {
    let mut found = fitting(desk, named, among).await?;
    // Who names a key does not mean a label that is the same.
    if found.records.iter().any(|record| record.key == named.text) {
        found.records.retain(|record| record.key == named.text || has_id(record, named.text));
    }
    // Nobody is answered by what was only observed: it is meant where nothing else fits, or by its id.
    let is_enforced = |record: &RecordView| !is_observed(&record.space);
    if found.records.iter().any(is_enforced) {
        found.records.retain(|record| is_enforced(record) || has_id(record, named.text));
    }
    Ok(found)
}

/// The cheap ways first: a whole id, and the key of a scope.
async fn fitting(desk: &impl Desk, named: Named<'_>, among: Among) -> Result<Candidates, Failure> {
    let Named { text, scope } = named;
    let filter = Filter { find: Some(text.to_owned()), scope: scope.map(str::to_owned), ..Filter::default() };
    let in_states =
        |states: &[&str]| Filter { states: states.iter().map(|&it| it.to_owned()).collect(), ..filter.clone() };
    let certainly = |record| Candidates { records: vec![record], damaged: Vec::new(), complete: true };
    match scope {
        // Keys may look like ids.
        None if text.len() == ID_DIGITS && is_part_of_id(text) => {
            if let Some(record) = shown(desk, text).await? {
                return Ok(certainly(record));
            }
        }
        None => {}
        // Scope and key are enough where keys are unique per caller: then no other record is looked at.
        Some(_) if Key::new(text).is_ok() => {
            let keyed = Filter { find: None, key: Some(text.to_owned()), ..filter.clone() };
            let mut found = search(desk, &keyed, text).await?;
            let is_unfinished = |record: &RecordView| UNFINISHED.contains(&record.state.as_str());
            if among == Among::UnfinishedFirst && found.records.iter().any(is_unfinished) {
                found.records.retain(is_unfinished);
            }
            if !found.records.is_empty() {
                return Ok(found);
            }
        }
        Some(_) => {}
    }
    if among == Among::UnfinishedFirst {
        return search(desk, &filter, text).await;
    }
    // Apart, because a search that has found something does not go on to the labels of what is finished.
    let mut found = search(desk, &in_states(&UNFINISHED), text).await?;
    let finished = search(desk, &in_states(&FINISHED), text).await?;
    found.complete &= finished.complete;
    found.records.extend(finished.records);
    found.add_damaged(finished.damaged);
    Ok(found)
}

impl Candidates {
    /// One that cannot be read may be met by every look.
    fn add_damaged(&mut self, damaged: Vec<DamagedView>) {
        for one in damaged {
            if !self.damaged.contains(&one) {
                self.damaged.push(one);
            }
        }
    }
}

/// Everything that the filter names and that is meant; of many, enough to say so.
async fn search(desk: &impl Desk, filter: &Filter, text: &str) -> Result<Candidates, Failure> {
    let mut found = Candidates::default();
    let mut after: Option<String> = None;
    for _ in 0..PAGES_MAX {
        let page = desk.list(filter, after.as_deref(), PAGE).await?;
        found.records.extend(page.records.into_iter().filter(|record| is_meant(record, text)));
        found.add_damaged(page.damaged);
        found.complete = page.next.is_none();
        if found.complete || found.records.len() > NAMED_MAX {
            break;
        }
        after = page.next;
    }
    Ok(found)
}

async fn shown(desk: &impl Desk, id: &str) -> Result<Option<RecordView>, Failure> {
    match desk.show(id, false).await {
        Err(error) if error.kind == DeskErrorKind::NotFound => Ok(None),
        shown => Ok(Some(shown?)),
    }
}

fn is_meant(record: &RecordView, text: &str) -> bool {
    let by_label = |(name, value): (&String, &String)| value == text || format!("{name}={value}") == text;
    record.key == text || record.labels.iter().any(by_label) || has_id(record, text)
}

fn has_id(record: &RecordView, text: &str) -> bool {
    begins_with(&record.id, text)
}

fn begins_with(id: &str, digits: &str) -> bool {
    is_part_of_id(digits) && id.starts_with(&digits.to_ascii_lowercase())
}

/// The key of a structured string, as it stands in a request.
fn unquoted(text: &str) -> Option<String> {
    let mut inside = text.strip_prefix('"')?.strip_suffix('"')?.chars();
    let mut key = String::new();
    while let Some(c) = inside.next() {
        match c {
            '\\' => key.push(inside.next().filter(|c| matches!(c, '"' | '\\'))?),
            '"' => return None,
            other => key.push(other),
        }
    }
    Some(key).filter(|key| !key.trim().is_empty())
}

/// The only one, and whether it is certain that there is no other.
fn one_of(mut found: Candidates, named: Named<'_>) -> Result<(RecordView, bool), Failure> {
    let also: Vec<&DamagedView> = found.damaged.iter().filter(|one| may_be(one, named)).collect();
    if found.records.len() + also.len() > 1 {
        return Err(several(&found.records, &also, named).into());
    }
    let complete = found.complete;
    let none = || DeskError::new(DeskErrorKind::NotFound, "there is no such record");
    Ok((found.records.pop().ok_or_else(none)?, complete))
}

/// Whether a record that cannot be read has the key, or the id, that was named.
fn may_be(damaged: &DamagedView, named: Named<'_>) -> bool {
    let is_scope = named.scope.is_none() || damaged.scope.as_deref() == named.scope;
    let has_id = damaged.id.as_deref().is_some_and(|id| begins_with(id, named.text));
    (damaged.key.as_deref() == Some(named.text) || has_id) && is_scope
}

/// Why nothing was found, and what may have been meant.
async fn missing(desk: &impl Desk, found: Candidates, named: Named<'_>) -> Result<Failure, Failure> {
    if let Some(damaged) = found.damaged.iter().find(|one| may_be(one, named)) {
        let message = format!("the record {} cannot be read: {}", damaged.named(), damaged.reason);
        return Ok(DeskError::new(DeskErrorKind::Conflict, message).into());
    }
    let stopped = if found.complete { "" } else { " among those that were looked at" };
    let unread = match found.damaged.len() {
        0 => String::new(),
        1 => format!(", but one that cannot be read: {}", listed(&found.damaged)),
        count => format!(", but {count} that cannot be read: {}", listed(&found.damaged)),
    };
    let next = match nearly(desk, named).await? {
        Some(other) => format!("without what is around it, {other:?} is one: name it just so"),
        None => "`hapax keys list TEXT` finds parts of keys and scopes".to_owned(),
    };
    let message = format!("there is no such record{stopped}{unread}; {next}");
    Ok(DeskError::new(DeskErrorKind::NotFound, message).into())
}

/// The text without blanks or quotation marks around it, if that names something. Nobody said so: it is only named.
async fn nearly(desk: &impl Desk, named: Named<'_>) -> Result<Option<String>, Failure> {
    let trimmed = named.text.trim();
    let others = [Some(trimmed.to_owned()), unquoted(trimmed)];
    for other in others.into_iter().flatten().filter(|other| other != named.text && !other.is_empty()) {
        let found = candidates(desk, Named { text: &other, ..named }, Among::UnfinishedFirst).await?;
        if !found.records.is_empty() {
            return Ok(Some(other));
        }
    }
    Ok(None)
}

fn listed(damaged: &[DamagedView]) -> String {
    let named: Vec<String> = damaged.iter().take(NAMED_MAX).map(DamagedView::named).collect();
    let more = if damaged.len() > NAMED_MAX { ", and more" } else { "" };
    format!("{}{more}", named.join(", "))
}

fn several(records: &[RecordView], damaged: &[&DamagedView], named: Named<'_>) -> DeskError {
    let readable = records.iter().map(described);
    let unreadable = damaged.iter().map(|one| format!("{}, which cannot be read", one.named()));
    let all: Vec<String> = readable.chain(unreadable).take(NAMED_MAX).collect();
    let more = if records.len() + damaged.len() > NAMED_MAX { ", and more" } else { "" };
    let other = other_name(records, damaged, named);
    let message = format!("several records fit: {}{more}; name one by its id{other}", all.join(", "));
    DeskError::new(DeskErrorKind::Several, message)
}

/// What else would tell them apart.
fn other_name(records: &[RecordView], damaged: &[&DamagedView], named: Named<'_>) -> &'static str {
    let differ = |all: Vec<Option<&str>>| all.windows(2).any(|pair| pair[0] != pair[1]);
    let scopes = records.iter().map(|one| Some(one.scope.as_str())).chain(damaged.iter().map(|it| it.scope.as_deref()));
    let keys = records.iter().map(|one| Some(one.key.as_str())).chain(damaged.iter().map(|it| it.key.as_deref()));
    match (differ(scopes.collect()) && named.scope.is_none(), differ(keys.collect())) {
        (true, _) => ", or by key and --scope",
        (false, true) => ", or by its key",
        (false, false) => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_in_quotation_marks_is_read_as_in_a_request() {
        assert_eq!(unquoted("\"a b\"").as_deref(), Some("a b"));
        assert_eq!(unquoted(r#""say \"hi\" \\""#).as_deref(), Some(r#"say "hi" \"#));
        for text in ["", "\"", "\"\"", "\" \"", "a b", "\"a", "\"a\"b\"", r#""a\b""#, r#""a\""#] {
            assert_eq!(unquoted(text), None, "{text}");
        }
        assert!(is_padded(" k") && is_padded("\"k\"") && !is_padded("k k"));
    }
}
