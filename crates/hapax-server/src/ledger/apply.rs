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
    says: Says,
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
        Ok(decided.then_some(Self { n: listed.n, at, attempt, says: listed.says, outcome }))
    }

    async fn resolve<S: Journal, T: Tokens>(
        &self,
        engine: &Engine<S, T>,
        note: &Note,
    ) -> Result<(Kind, String), EngineError> {
        let resolution = self.outcome.as_ref().map_or(Resolution::DidNotHappen, Resolution::Happened);
        let event = Event::Resolve { resolution, attempt: Some(self.attempt), since: None };
        let note = Note { detail: format!("{}; {}", self.detail(), note.detail), ..note.clone() };
        let reply = engine.apply_noted(&self.at, &event, None, &note).await?;
        Ok(match reply.answer {
            Answer::Done => (Kind::Resolved, String::new()),
            _ => (Kind::NotResolved, "the record changed since it was compared; compare again".to_owned()),
        })
    }

    /// For the note: the verdict, and which answer was recorded by it.
    fn detail(&self) -> String {
        let word = match self.says {
            Says::Happened => "happened",
            Says::Declined => "declined",
            Says::DidNotHappen | Says::Nothing => "did not happen",
        };
        match self.outcome.as_deref() {
            Some(Outcome { status, body: Body::Kept(body), .. }) => {
                format!("{word}; answer {status} with {} bytes", body.len())
            }
            _ => word.to_owned(),
        }
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

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use hapax_core::address::{AddressScheme, Key, Scope, Space};
    use hapax_core::fingerprint::{Fingerprint, Scheme};
    use hapax_core::journal::{NoteScan, Noted};
    use hapax_core::memory::Memory;
    use hapax_core::record::{Doubt, Policy, Record, State, Version};
    use hapax_core::store::{Store as _, Swap};
    use hapax_testkit::clock::FakeClock;

    use super::*;
    use crate::cli::{Cli, Command};
    use crate::ledger::book::OurRow;
    use crate::ledger::judge::{Absence, Ours, judge};
    use crate::ledger::rows::{Name, Row};

    fn args() -> LedgerArgs {
        let flags = ["--ledger", "p.csv", "--match", "key=k", "--apply", "--reason", "r", "--answer-status", "200"];
        let cli = Cli::parse_from(["hapax", "reconcile"].into_iter().chain(flags));
        let Command::Reconcile(args) = cli.command else { panic!("another command") };
        args
    }

    fn at(key: &str) -> Address {
        let (space, scope) = (Space::new("http").unwrap(), Scope::new("alice").unwrap());
        Address::new(&AddressScheme::default(), &space, &scope, &Key::new(key).unwrap())
    }

    fn unknown(version: u8, attempt: u32) -> Record {
        let fingerprint = Fingerprint { scheme: Scheme::new("none").unwrap(), digest: [0; 32] };
        let version = Version::from_bytes([version; 16]);
        Record {
            attempt,
            due_in_ms: Some(0),
            doubt: Some(Doubt { since: None, probes: 0 }),
            ..Record::new(version, State::Unknown, fingerprint, Policy::default())
        }
    }

    /// A book in which the ledger says that every one of these happened, and the store has them at attempt 1.
    fn book(keys: &[&str]) -> Book {
        let book = Book::open().unwrap();
        let ours = Ours::UNKNOWN;
        for key in keys {
            let name = Name { scope: None, value: (*key).to_owned() };
            let row = Row { line: 2, name, second: None, says: Says::Happened, at: None, body: None };
            book.put_row(&row, true).unwrap();
            let address = &at(key);
            book.put_record(&OurRow { address, value: Some(key), by_scope: false, attempt: 1, ours }).unwrap();
        }
        book.sort().unwrap();
        book.judge(|ours, said| judge(ours, said, Absence::SaysNothing)).unwrap();
        book
    }

    #[tokio::test]
    async fn what_the_ledger_says_of_one_attempt_settles_no_other() {
        let store = Arc::new(Memory::with_clock(FakeClock::default()));
        for (key, attempt) in [("same", 1), ("later", 2)] {
            let written = store.swap(&at(key), None, &unknown(1, attempt)).await.unwrap();
            assert!(matches!(written, Swap::Applied(_)));
        }
        let book = book(&["same", "later", "gone"]);
        let engine = Engine::new(Arc::clone(&store), hapax::tokens::random);
        apply(&engine, &args(), "ann", &book).await.unwrap();
        let of = |kind| -> Vec<String> { book.page(kind, 0, 10).unwrap().into_iter().map(|found| found.key).collect() };
        assert_eq!(
            (of(Kind::Resolved), of(Kind::NotResolved)),
            (vec!["same".into()], vec!["later".into(), "gone".into()])
        );
        let state = async |key| store.get(&at(key)).await.unwrap().stored.map(|stored| stored.record.state);
        assert_eq!((state("same").await, state("later").await), (Some(State::Completed), Some(State::Unknown)));
        assert_eq!(state("gone").await, None);
        let notes = store.notes(&NoteScan { limit: 10, ..NoteScan::default() }).await.unwrap();
        let said: Vec<_> =
            notes.iter().map(|Noted { note, .. }| (&*note.who, &*note.reason, note.after, &*note.detail)).collect();
        let detail = "happened; answer 200 with 0 bytes; by the ledger p.csv";
        assert_eq!(said, [("ann", "r", Some(State::Completed), detail)], "one change, one note");
    }
}
