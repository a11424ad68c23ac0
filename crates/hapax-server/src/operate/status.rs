//! `hapax status`: how things stand, in a few lines and in the exit code.

use std::fmt::Write as _;

use super::args::{Shape, StatusArgs};
use super::failure::Failure;
use super::terminal::{Terminal, print, print_json};
use super::{EXIT_ATTENTION, open};
use crate::config::units::about_size;
use crate::desk::Desk as _;
use crate::desk::view::{FenceView, StatusView, StoreView};
use crate::logs::escaped;

pub(super) async fn run(args: &StatusArgs, environment: Vec<(String, String)>) -> Result<u8, Failure> {
    let terminal = Terminal::of_output(&environment);
    let status = open::desk(&args.place, environment).await?.status().await?;
    match args.output {
        Shape::Text => print(&text(&status, terminal))?,
        Shape::Json => print_json(&status)?,
    };
    Ok(if status.healthy { 0 } else { EXIT_ATTENTION })
}

fn text(status: &StatusView, terminal: Terminal) -> String {
    let said = if status.healthy { terminal.calming("healthy") } else { terminal.alarming("needs attention") };
    let clock = if status.store.clock_trusted { "clock trusted" } else { "clock not trusted" };
    let at_least = if status.counts.capped { "at least " } else { "" };
    let oldest = status.oldest_unknown_since.as_ref().map(|since| format!(", the oldest since {since}"));
    let about = status.counts.about_all.map_or_else(|| "not counted".to_owned(), |all| format!("about {all}"));
    let mut text = format!("{said}\n");
    let mut line = |name: &str, value: &str| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name:<8}  {}", escaped(value));
    };
    line("store", &format!("{}, durability {}, {clock}", status.store.kind, status.store.durability));
    if let Some(warning) = &status.store.warning {
        line("warning", warning);
    }
    line("ready", &format!("{at_least}{}", status.counts.ready));
    line("running", &format!("{at_least}{}{}", status.counts.running, past_lease(status.counts.past_lease)));
    line("unknown", &format!("{at_least}{}{}", status.counts.unknown, oldest.unwrap_or_default()));
    line("dead", &format!("{at_least}{}", status.counts.dead));
    line("records", &about);
    if let Some(size) = size(&status.store) {
        line("size", &size);
    }
    if let Some(fence) = &status.fence {
        let FenceView { lost_since, restored_at, until, .. } = fence;
        let lost = format!("what was claimed from {lost_since} to {restored_at} may be lost");
        line("fence", &format!("{lost}; it stands until {until}"));
    }
    for problem in &status.problems {
        line("problem", problem);
    }
    text
}

/// What the store takes, and what is left for it.
fn size(store: &StoreView) -> Option<String> {
    let left = store.disk_free_bytes.map(|left| format!(", {} left on its disk", about_size(left)));
    Some(format!("{}{}", about_size(store.bytes?), left.unwrap_or_default()))
}

/// Whether some of what runs may not run any more.
fn past_lease(count: u64) -> String {
    match count {
        0 => String::new(),
        1 => ", 1 of them past its lease".to_owned(),
        count => format!(", {count} of them past their lease"),
    }
}
