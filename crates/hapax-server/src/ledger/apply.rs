//! What the ledger decides, resolved: each by its own swap, and only where the record is still the one that was compared.

use std::sync::Arc;

use futures_util::future::join_all;
use hapax_core::address::Address;
use hapax_core::engine::{Engine, EngineError, Tokens};
use hapax_core::journal::{Journal, Note};
use hapax_core::record::{Body, Outcome};
use hapax_core::transition::{Answer, Event, Resolution};

use super::LedgerError;
use super::args::LedgerArgs;
use super::book::{Book, Listed};
use super::judge::Kind;
use super::rows::Says;
use crate::logs::escaped;

/// Of the ledger's name in the audit log.
const FILE_CHARS_MAX: usize = 200;

/// Resolved at the same time, so that the store writes them together.
const TOGETHER: u32 = 64;

/// Resolves everything that is decidable.
///
/// # Errors
/// If the store fails. What was resolved before stays so; another run finds the rest.
pub(super) async fn apply<S: Journal, T: Tokens>(
    engine: &Engine<S, T>,
    args: &LedgerArgs,
    who: &str,
    book: &Book,
) -> Result<(), LedgerError> {
    let note = note(args, who);
    let mut after = 0;
    loop {
        let page = book.page(Kind::Decidable, after, TOGETHER)?;
        let Some(last) = page.last() else { return Ok(()) };
        after = last.n;
        let mut cases = Vec::new();
        for listed in &page {
            if let Some(case) = Case::of(listed, args, book)? {
                cases.push(case);
            }
        }
        let resolved = join_all(cases.iter().map(|case| case.resolve(engine, &note))).await;
        for (case, resolved) in cases.iter().zip(resolved) {
            let (kind, note) = resolved?;
            book.settle(case.n, kind, &note)?;
        }
    }
}

/// One record to resolve.
struct Case {
    n: i64,
    at: Address,
    /// The one that was compared: what the ledger says is about it, and not about a later one.
    attempt: u32,
    /// The answer to record; `None`: it did not happen.
    outcome: Option<Arc<Outcome>>,
}

impl Case {
    fn of(listed: &Listed, args: &LedgerArgs, book: &Book) -> Result<Option<Self>, LedgerError> {
        let Some(ours) = listed.ours else { return Ok(None) };
        let Some((at, attempt)) = book.address(ours)? else { return Ok(None) };
        let status = match listed.says {
            Says::Happened => args.answer_status,
            Says::Declined => Some(args.declined_status),
            Says::DidNotHappen | Says::Nothing => None,
        };
        let outcome = match status {
            Some(status) => Some(Arc::new(outcome(status, book.body(ours)?))),
            None => None,
        };
        // A row that says nothing decides nothing.
        let decided = outcome.is_some() || listed.says == Says::DidNotHappen;
        Ok(decided.then_some(Self { n: listed.n, at, attempt, outcome }))
    }

    async fn resolve<S: Journal, T: Tokens>(
        &self,
        engine: &Engine<S, T>,
        note: &Note,
    ) -> Result<(Kind, String), EngineError> {
        let resolution = self.outcome.as_ref().map_or(Resolution::DidNotHappen, Resolution::Happened);
        let event = Event::Resolve { resolution, attempt: Some(self.attempt) };
        let reply = engine.apply_noted(&self.at, &event, None, note).await?;
        Ok(match reply.answer {
            Answer::Done => (Kind::Resolved, String::new()),
            _ => (Kind::NotResolved, "the record changed since it was compared; compare again".to_owned()),
        })
    }
}

fn note(args: &LedgerArgs, who: &str) -> Note {
    let file = args.ledger.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    let short: String = escaped(&file).chars().take(FILE_CHARS_MAX).collect();
    Note {
        who: who.to_owned(),
        what: "resolve".to_owned(),
        about: None,
        before: None,
        after: None,
        reason: args.reason.clone().unwrap_or_default(),
        detail: format!("by the ledger {short}"),
    }
}

/// The answer to record, typed by what the body is.
fn outcome(status: u16, body: Option<String>) -> Outcome {
    let body = body.unwrap_or_default();
    let is_json = serde_json::from_str::<serde::de::IgnoredAny>(&body).is_ok();
    let kind = if is_json { "application/json" } else { "text/plain; charset=utf-8" };
    let headers = if body.is_empty() { vec![] } else { vec![(b"content-type".to_vec(), kind.as_bytes().to_vec())] };
    Outcome { status, headers, body: Body::Kept(body.into_bytes()) }
}
