//! `hapax audit`: who changed what, when and why; newest first.

use super::args::{AuditArgs, Form};
use super::csv::csv;
use super::failure::Failure;
use super::list::{seconds, short_id};
use super::locate::{is_part_of_id, locate};
use super::open::{self, AnyDesk};
use super::table::{may_be_cut, table, whole};
use super::terminal::{Terminal, print, print_json, remark};
use crate::desk::view::{AuditView, NoteView};
use crate::desk::{Desk as _, DeskErrorKind};

/// Notes in one list; more are asked for part by part.
const LIST_MAX: u32 = 100_000;

/// Notes asked for at a time.
const PAGE: u32 = 500;

const HEAD: [&str; 12] =
    ["number", "at", "who", "what", "id", "scope", "key", "attempt", "before", "after", "reason", "detail"];

pub(super) async fn run(args: &AuditArgs, environment: Vec<(String, String)>) -> Result<u8, Failure> {
    if !(1..=LIST_MAX).contains(&args.limit) {
        return Err(Failure::usage(format!("--limit must be 1 to {LIST_MAX}; use --before to go on from there")));
    }
    let terminal = Terminal::of_output(&environment);
    let desk = open::desk(&args.place, environment).await?;
    let id = match &args.key {
        Some(text) => match locate(&desk, text, None).await {
            // The record may be gone; its notes stay.
            Err(Failure::Desk(error)) if error.kind == DeskErrorKind::NotFound && is_part_of_id(text) => {
                Some(text.clone())
            }
            located => Some(located?.id),
        },
        None => None,
    };
    let found = gather(&desk, id.as_deref(), args).await?;
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
