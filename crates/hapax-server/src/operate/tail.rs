//! `hapax keys tail`: what changes among unfinished records, line by line, until Ctrl-C.
//!
//! It looks again and again, through the index of what is unfinished. What leaves it is looked up once, to say how it ended.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

use super::args::{Shape, TailArgs};
use super::failure::Failure;
use super::list::{gather, seconds, short_id};
use super::open::{self, AnyDesk};
use super::terminal::{Terminal, print, print_json_line, remark};
use crate::desk::view::{Filter, RecordView};
use crate::desk::{Desk as _, DeskErrorKind};
use crate::logs::escaped;

/// Records followed at a time; more cannot be read by anybody.
const FOLLOWED_MAX: u32 = 10_000;

/// Records whose end is looked up after one look.
const ENDS_MAX: usize = 100;

const UNFINISHED: [&str; 4] = ["ready", "running", "unknown", "dead"];

/// What was last said of each record.
type Known = BTreeMap<String, RecordView>;

pub(super) async fn run(args: &TailArgs, environment: Vec<(String, String)>) -> Result<u8, Failure> {
    if let Some(other) = args.state.iter().find(|state| !UNFINISHED.contains(&state.as_str())) {
        return Err(Failure::usage(format!("{other:?} cannot be followed; use ready, running, unknown or dead")));
    }
    let terminal = Terminal::of_output(&environment);
    let desk = open::desk(&args.place, environment).await?;
    let states = if args.state.is_empty() { UNFINISHED.map(str::to_owned).to_vec() } else { args.state.clone() };
    let filter = Filter { states, scope: args.scope.clone(), label: args.label.clone(), ..Filter::default() };
    // One that comes while the store is asked is not lost.
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut known = Known::new();
    loop {
        for record in look(&desk, &filter, &mut known).await? {
            let is_read = match args.output {
                Shape::Text => print(&line(&record, terminal))?,
                Shape::Json => print_json_line(&record)?,
            };
            if !is_read {
                return Ok(0);
            }
        }
        tokio::select! {
            () = tokio::time::sleep(Duration::from_secs(u64::from(args.every))) => {}
            _ = interrupt.recv() => return Ok(0),
        }
    }
}

/// What has changed since the last look.
async fn look(desk: &AnyDesk, filter: &Filter, known: &mut Known) -> Result<Vec<RecordView>, Failure> {
    let found = gather(desk, filter, None, FOLLOWED_MAX).await?;
    let partial = found.next.is_some();
    if partial && known.is_empty() {
        remark("there are more unfinished records than can be followed; narrow the filter");
    }
    let now: Known = found.records.into_iter().map(|record| (record.id.clone(), record)).collect();
    let is_news = |record: &&RecordView| known.get(&record.id).is_none_or(|last| differs(last, record));
    let mut changed: Vec<RecordView> = now.values().filter(is_news).cloned().collect();
    // With a part of the list, what is not on it may still be there.
    let gone = known.keys().filter(|id| !partial && !now.contains_key(*id)).take(ENDS_MAX);
    for id in gone {
        match desk.show(id, false).await {
            Ok(record) => changed.push(record),
            Err(error) if error.kind == DeskErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
    }
    *known = now;
    changed.sort_by(|one, other| one.changed_at.cmp(&other.changed_at));
    Ok(changed)
}

/// Whether something became of it. That it is looked at again later is no news.
fn differs(last: &RecordView, now: &RecordView) -> bool {
    let of = |record: &RecordView| (record.state.clone(), record.attempt, record.probes, record.error.clone());
    of(last) != of(now)
}

fn line(record: &RecordView, terminal: Terminal) -> String {
    let RecordView { state, attempt, scope, key, .. } = record;
    let (at, id) = (seconds(&record.changed_at), short_id(&record.id, terminal));
    let why = match (&record.answer, &record.error) {
        (Some(answer), _) => answer.status.to_string(),
        (None, error) => error.clone().unwrap_or_default(),
    };
    let text = format!("{at}  {id}  {state:<9}  {attempt:>2}  {scope}  {key}  {why}");
    format!("{}\n", escaped(text.trim_end()))
}
