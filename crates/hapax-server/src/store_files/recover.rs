//! `hapax store recover`: what the file that a restore kept has and the store lacks.
//!
//! A restore forgets what was written after the backup. Where the old file can still be read, that is known after all. It may
//! be done while nodes run: every change is a swap with its note, and whoever was faster stays.

use std::fmt::Write as _;
use std::path::Path;

use hapax::remembered::{self, SPACE};
use hapax::tokens;
use hapax_core::engine::{Engine, EngineError};
use hapax_core::event::Resolution;
use hapax_core::journal::{About, Journal as _, Note};
use hapax_core::limits::PAGE_ENTRIES_MAX;
use hapax_core::record::{Labels, Verdict};
use hapax_core::store::{Entry, ErrorKind, Scan, Store as _, StoreError, Swap};
use hapax_core::transition::{Answer, Event};
use hapax_sqlite::{Options, Sqlite};

use super::StoreFileError;
use super::args::RecoverArgs;
use super::old_record::{Left, Plan, plan};
use super::{fence, open};
use crate::desk::lookup;
use crate::flags::who;
use crate::logs::escaped;
use crate::store::AnyStore;

/// Records that are named one by one. More are counted.
const NAMED_MAX: usize = 50;

/// What was found, and what was done about it.
#[derive(Debug, Default)]
struct Found {
    all: u64,
    same: u64,
    stands: u64,
    copied: u64,
    doubted: u64,
    settled: u64,
    other_request: u64,
    free: u64,
    over: u64,
    damaged: u64,
    named: Vec<String>,
}

/// Compares, and takes over what was asked for.
pub(super) async fn run(args: &RecoverArgs, environment: Vec<(String, String)>) -> Result<String, StoreFileError> {
    let reason = args.reason.as_deref().unwrap_or_default();
    if args.apply && reason.trim().is_empty() {
        return Err(StoreFileError::Usage("`--reason` is empty; say why in a sentence".to_owned()));
    }
    let note = fence::note(&who(&args.actor, &environment), "recover", reason, &args.from.display().to_string());
    let store = open::existing(&args.store, environment).await?;
    let old = open_old(&args.from)?;
    check_same_store(&store, &old, &args.from).await?;
    let mut found = Found::default();
    let mut query = Scan { limit: PAGE_ENTRIES_MAX, ..Scan::default() };
    loop {
        let page = old.scan(&query).await?;
        found.damaged += page.damaged.len() as u64;
        for entry in page.entries.iter().filter(|entry| is_callers(entry)) {
            look_at(&store, entry, args.apply.then_some(&note), &mut found).await?;
        }
        match page.next {
            Some(next) => query.after = Some(next),
            None => return Ok(found.shown(args)),
        }
    }
}

fn open_old(from: &Path) -> Result<Sqlite, StoreFileError> {
    if !from.exists() {
        return Err(StoreFileError::Missing(from.to_owned()));
    }
    Ok(Sqlite::open(Options::new(from).with_existing())?)
}

/// Keys of another store are other keys, although they may be written alike.
async fn check_same_store(store: &AnyStore, old: &Sqlite, from: &Path) -> Result<(), StoreFileError> {
    let (ours, theirs) = (remembered::recall(store, "addresses").await?, remembered::recall(old, "addresses").await?);
    if ours.text.is_some() && ours.text == theirs.text {
        return Ok(());
    }
    let from = from.display();
    Err(StoreFileError::Usage(format!(
        "{from} is not an older state of this store: its keys were made in another way; name the file that the restore kept"
    )))
}

/// Records of hapax itself are of their store, and nothing hangs on what was only observed.
fn is_callers(entry: &Entry) -> bool {
    let space = entry.address.space().as_str();
    space != SPACE && !lookup::is_observed(space)
}

async fn look_at(
    store: &AnyStore,
    entry: &Entry,
    note: Option<&Note>,
    found: &mut Found,
) -> Result<(), StoreFileError> {
    found.all += 1;
    let seen = store.get(&entry.address).await?;
    let plan = plan(&entry.stored, &seen);
    let is_done = match note {
        Some(note) => apply(store, entry, &plan, note).await?,
        None => true,
    };
    found.count(entry, if is_done { &plan } else { &Plan::Leave(Left::Stands) });
    Ok(())
}

/// Does it, and says whether nobody was faster.
async fn apply(store: &AnyStore, entry: &Entry, plan: &Plan, note: &Note) -> Result<bool, StoreFileError> {
    let at = &entry.address;
    let event = match plan {
        Plan::Leave(_) => return Ok(true),
        Plan::Copy(next) | Plan::Doubt(next) => {
            let (about, after) = (Some(About::new(at, next.attempt)), Some(next.state));
            let note = Note { about, after, ..note.clone() };
            return Ok(matches!(store.swap_noted(at, None, next, &note).await?, Swap::Applied(_)));
        }
        Plan::Complete(attempt_id, outcome) => {
            Event::Complete { attempt_id: *attempt_id, outcome, labels: &Labels::default() }
        }
        Plan::Settle(Verdict::GivenUp, outcome) => {
            Event::Resolve { resolution: Resolution::GiveUp(outcome), attempt: None, since: None }
        }
        Plan::Settle(_, outcome) => {
            Event::Resolve { resolution: Resolution::Happened(outcome), attempt: None, since: None }
        }
    };
    let engine = Engine::new(store.clone(), tokens::random as tokens::Random);
    match engine.apply_noted(at, &event, None, note).await {
        Ok(reply) => Ok(matches!(reply.answer, Answer::Done | Answer::Contradicted)),
        Err(EngineError::Store(error)) => Err(error.into()),
        Err(other) => Err(StoreError::new("recover", ErrorKind::Unavailable, other.to_string()).into()),
    }
}

impl Found {
    fn count(&mut self, entry: &Entry, plan: &Plan) {
        let (count, becomes) = match plan {
            Plan::Leave(Left::Same) => (&mut self.same, None),
            Plan::Leave(Left::Stands) => (&mut self.stands, None),
            Plan::Leave(Left::OtherRequest) => (&mut self.other_request, Some("left: another request has its key")),
            Plan::Leave(Left::Free) => (&mut self.free, None),
            Plan::Leave(Left::Over) => (&mut self.over, None),
            Plan::Copy(_) => (&mut self.copied, Some("with its answer")),
            Plan::Doubt(_) => (&mut self.doubted, Some("as unknown")),
            Plan::Complete(..) | Plan::Settle(..) => (&mut self.settled, Some("settled with its answer")),
        };
        *count += 1;
        if let Some(becomes) = becomes.filter(|_| self.named.len() < NAMED_MAX) {
            let (state, id) = (entry.stored.record.state.name(), entry.address.id());
            let key = escaped(entry.address.key().as_str()).into_owned();
            self.named.push(format!("  {state:<9}  {becomes}  {key}  {id}\n"));
        }
    }

    fn shown(&self, args: &RecoverArgs) -> String {
        let from = args.from.display();
        let mut text = format!("{from} holds {} records of callers.\n", self.all);
        let mut line = |count: u64, what: &str| {
            if count > 0 {
                // Writing to a string cannot fail.
                let _ = writeln!(text, "{count:>9}  {what}");
            }
        };
        line(self.same, "are the same in the store");
        line(self.stands, "are newer or settled in the store, and stay as they are there");
        line(self.copied, "are completed, and the store lacks them: taken over with their answers");
        line(self.settled, "are completed, and in the store nobody knew: settled with their answers");
        line(self.doubted, "were not finished, and the store lacks them: taken over as unknown");
        line(
            self.other_request,
            "are of another request than the one under their key in the store: left, look at them",
        );
        line(self.free, "had left their key free: left to the fence");
        line(self.over, "have expired");
        line(self.damaged, "CANNOT BE READ: what they were stays unknown");
        text.extend(self.named.iter().map(String::as_str));
        if !args.apply {
            text.push_str("Nothing was changed. To take it over: add --apply --reason TEXT.\n");
            return text;
        }
        text.push_str("Done. ");
        text.push_str(if self.damaged == 0 {
            "If this file was in use until the restore, nothing is lost any more: hapax store fence --lift --reason TEXT.\n"
        } else {
            "Something could not be read, so leave the fence, and compare with the provider's ledger.\n"
        });
        text
    }
}
