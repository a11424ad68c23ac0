//! `hapax audit`: who changed what, when and why; newest first.

use super::args::{AuditArgs, Form};
use super::csv::csv;
use super::failure::Failure;
use super::list::{seconds, short_id};
use super::locate::{is_padded, is_part_of_id, locate};
use super::open::{self, AnyDesk};
use super::table::{may_be_cut, table, whole};
use super::terminal::{Terminal, print, print_json, remark};
use crate::desk::view::{AuditView, NoteView};
use crate::desk::{Desk as _, DeskError, DeskErrorKind};

/// Notes in one list; more are asked for part by part.
const LIST_MAX: u32 = 100_000;

/// Notes asked for at a time.
const PAGE: u32 = 500;

/// Pages that are read for notes with some key.
const PAGES_MAX: u32 = 200;

const HEAD: [&str; 12] =
    ["number", "at", "who", "what", "id", "scope", "key", "attempt", "before", "after", "reason", "detail"];

pub(super) async fn run(args: &AuditArgs, environment: Vec<(String, String)>) -> Result<u8, Failure> {
    if !(1..=LIST_MAX).contains(&args.limit) {
        return Err(Failure::usage(format!("--limit must be 1 to {LIST_MAX}; use --before to go on from there")));
    }
    let terminal = Terminal::of_output(&environment);
    let desk = open::desk(&args.place, environment).await?;
    let found = match &args.key {
        Some(text) => about(&desk, text, args).await?,
        None => gather(&desk, None, args).await?,
    };
    match args.output {
        Form::Text => print(&text(&found.notes, terminal))?,
        Form::Json => print_json(&found)?,
        Form::Csv => print(&csv(&HEAD, &found.notes.iter().map(row).collect::<Vec<_>>()))?,
    };
    if let Some(next) = found.next.filter(|_| args.output != Form::Json) {
        remark(&format!("there may be more; go on with --before {next}"));
    }
    Ok(0)
}

/// Notes about one record. It may be gone: its notes stay, and are found by what stands in them.
async fn about(desk: &AnyDesk, text: &str, args: &AuditArgs) -> Result<AuditView, Failure> {
    if is_part_of_id(text) && args.scope.is_none() {
        match gather(desk, Some(text), args).await {
            Ok(found) if found.notes.is_empty() => {}
            // Keys may look like ids.
            Err(Failure::Desk(error)) if error.kind == DeskErrorKind::NotFound => {}
            found => return found,
        }
    }
    match locate(desk, text, args.scope.as_deref()).await {
        Ok(record) => gather(desk, Some(&record.id), args).await,
        Err(Failure::Desk(error)) if matches!(error.kind, DeskErrorKind::NotFound | DeskErrorKind::Conflict) => {
            match by_key(desk, text, args).await {
                // It says what may have been meant, or what cannot be read.
                Err(_) if is_padded(text) || error.kind == DeskErrorKind::Conflict => Err(error.into()),
                found => found,
            }
        }
        Err(other) => Err(other),
    }
}

async fn gather(desk: &AnyDesk, id: Option<&str>, args: &AuditArgs) -> Result<AuditView, Failure> {
    let mut found = AuditView { notes: Vec::new(), next: args.before };
    loop {
        let room = args.limit.saturating_sub(found.notes.len() as u32).min(PAGE);
        let page = desk.audit(id, found.next, room).await?;
        found.notes.extend(page.notes);
        found.next = page.next;
        if found.next.is_none() || found.notes.len() as u32 >= args.limit {
            return Ok(found);
        }
    }
}

/// Notes with that key, and that scope if one is named. No index leads there: the newest notes are read, and not all.
async fn by_key(desk: &AnyDesk, key: &str, args: &AuditArgs) -> Result<AuditView, Failure> {
    let is_scope = |note: &NoteView| args.scope.is_none() || note.scope == args.scope;
    let is_meant = |note: &NoteView| note.key.as_deref() == Some(key) && is_scope(note);
    let mut found = AuditView { notes: Vec::new(), next: args.before };
    for _ in 0..PAGES_MAX {
        let page = desk.audit(None, found.next, PAGE).await?;
        found.next = page.next;
        found.notes.extend(page.notes.into_iter().filter(is_meant));
        if found.notes.len() > args.limit as usize {
            found.notes.truncate(args.limit as usize);
            found.next = found.notes.last().map(|note| note.number);
            break;
        }
        if found.next.is_none() {
            break;
        }
    }
    if found.notes.is_empty() { Err(no_note(found.next).into()) } else { Ok(found) }
}

fn no_note(next: Option<u64>) -> DeskError {
    let message = match next {
        None => "there is no such record, and no note about one; `hapax keys list TEXT` finds parts of keys".to_owned(),
        Some(next) => {
            let read = PAGE * PAGES_MAX;
            format!(
                "there is no such record, and none of the {read} notes that were read is about one; go on with --before {next}"
            )
        }
    };
    DeskError::new(DeskErrorKind::NotFound, message)
}

fn text(notes: &[NoteView], terminal: Terminal) -> String {
    if notes.is_empty() {
        return "no notes\n".to_owned();
    }
    let columns = [
        whole("WHEN"),
        may_be_cut("WHO"),
        whole("WHAT"),
        whole("ID"),
        may_be_cut("KEY"),
        whole("CHANGE"),
        may_be_cut("REASON"),
        may_be_cut("DETAIL"),
    ];
    let rows: Vec<Vec<String>> = notes
        .iter()
        .map(|note| {
            let at = if terminal.width.is_some() { seconds(&note.at) } else { note.at.clone() };
            let id = note.id.as_deref().map_or_else(String::new, |id| short_id(id, terminal));
            let change = match (&note.before, &note.after) {
                (Some(before), Some(after)) => format!("{before} → {after}"),
                _ => String::new(),
            };
            let key = note.key.clone().unwrap_or_default();
            vec![at, note.who.clone(), note.what.clone(), id, key, change, note.reason.clone(), note.detail.clone()]
        })
        .collect();
    table(&columns, &rows, terminal.width)
}

fn row(note: &NoteView) -> Vec<String> {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    vec![
        note.number.to_string(),
        note.at.clone(),
        note.who.clone(),
        note.what.clone(),
        text(&note.id),
        text(&note.scope),
        text(&note.key),
        note.attempt.map_or_else(String::new, |attempt| attempt.to_string()),
        text(&note.before),
        text(&note.after),
        note.reason.clone(),
        note.detail.clone(),
    ]
}
