//! `hapax keys show`: all that is known of one record. Its answer's body only where it is asked for.

use std::fmt::Write as _;

use super::args::{Shape, ShowArgs};
use super::failure::Failure;
use super::list::last_change;
use super::locate::locate;
use super::open;
use super::terminal::{print, print_json};
use crate::desk::Desk as _;
use crate::desk::view::RecordView;
use crate::logs::escaped;

pub(super) async fn run(args: &ShowArgs, environment: Vec<(String, String)>) -> Result<u8, Failure> {
    let desk = open::desk(&args.place, environment).await?;
    let mut record = locate(&desk, &args.key, args.scope.as_deref()).await?;
    if args.body {
        record = desk.show(&record.id, true).await?;
    }
    match args.output {
        Shape::Text => print(&text(&record))?,
        Shape::Json => print_json(&record)?,
    };
    Ok(0)
}

/// A line for everything that there is.
pub(super) fn text(record: &RecordView) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: Option<&str>| {
        if let Some(value) = value {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{name:<14}  {}", escaped(value));
        }
    };
    line("id", Some(&record.id));
    line("scope", Some(&record.scope));
    line("key", Some(&record.key));
    line("space", Some(&record.space));
    line("state", Some(&record.state));
    line("remark", record.remark.as_deref());
    line("attempt", Some(&record.attempt.to_string()));
    line("why", record.error.as_deref());
    line("verdict", record.verdict.as_deref());
    line("unknown since", record.doubted_since.as_deref());
    line("probes", Some(record.probes.to_string()).filter(|_| record.probes > 0).as_deref());
    line("first seen", Some(&record.created_at));
    line("changed", Some(last_change(record)));
    line("due", record.due_at.as_deref());
    line("expires", record.expires_at.as_deref());
    for (name, value) in &record.labels {
        line("label", Some(&format!("{name}={value}")));
    }
    let Some(answer) = &record.answer else { return text };
    let bytes = answer.body_bytes.map_or_else(|| "its body was not kept".to_owned(), |bytes| format!("{bytes} bytes"));
    line("answer", Some(&format!("{}, {bytes}", answer.status)));
    for (name, value) in answer.headers.iter().flatten() {
        line("field", Some(&format!("{name}: {value}")));
    }
    line("body in base64", answer.body_base64.as_deref());
    if let Some(body) = &answer.body {
        let lines: Vec<_> = body.split('\n').map(escaped).collect();
        let _ = writeln!(text, "\n{}", lines.join("\n"));
    }
    text
}
